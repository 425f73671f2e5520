"""Compiling for several machines, what a launch takes and refuses, assertions that protect what follows."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.compiler.source import ASTSource
from tilewright.dialects.errors import ArgumentError, InternalCompilerError, TilewrightError, UnsupportedArchError
from tilewright.targets.cpu import capabilities, emit


@triton.jit
def add_kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(z_ptr + at, x + tl.load(y_ptr + at, mask=at < n), mask=at < n)


SIGNATURE = {"x_ptr": "*fp32", "y_ptr": "*fp32", "z_ptr": "*fp32", "n": "i32"}


@pytest.mark.parametrize("arch,wanted", [("x86-64-v3", "ymm"), ("x86-64-v4", "zmm"), ("aarch64", "fadd")])
def test_code_for_other_machines(arch, wanted):
    compiled = triton.compile(ASTSource(add_kernel, SIGNATURE, {"BLOCK": 256}), target=f"cpu:{arch}")
    assert wanted in compiled.asm["asm"] and compiled.asm["obj"][:4] == b"\x7fELF"
    assert {"ttir", "loops", "llir", "asm", "obj"} <= set(compiled.asm)
    assert "scf.for" in compiled.asm["loops"] and "tt." not in compiled.asm["loops"].replace("tt.divisibility", "")


def test_lines_of_the_kernel_are_in_the_code():
    compiled = triton.compile(ASTSource(add_kernel, SIGNATURE, {"BLOCK": 256}), target="cpu:x86-64-v3")
    assert "test_driver.py" in compiled.asm["asm"] and ".loc" in compiled.asm["asm"]


def test_unknown_architectures():
    with pytest.raises(UnsupportedArchError, match="x86-64-v3"):
        capabilities.resolve_arch("pentium")


def test_the_environment_chooses_the_machine(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CPU", "x86-64-v3")
    assert capabilities.resolve_arch("") == "x86-64-v3" and capabilities.resolve_arch("native") == "native"


def test_a_call_of_nothing_is_an_error():
    text = "declare void @nobody()\ndefine void @f() {\n call void @nobody()\n ret void\n}\n"
    with pytest.raises(InternalCompilerError, match="nobody"):
        emit.compile_ir(text, "native")


def test_a_conversion_that_llvm_makes_a_call_is_an_error():
    """f64 → f16 has no instruction on x86-64-v3: LLVM calls a function that no C library need have."""
    text = "define half @f(double %x) {\n %y = fptrunc double %x to half\n ret half %y\n}\n"
    with pytest.raises(InternalCompilerError, match="__trunc"):
        emit.compile_ir(text, "x86-64-v3")


def test_numpy_torch_and_addresses():
    torch = pytest.importorskip("torch")
    x, y = np.arange(100, dtype="float32"), np.ones(100, "float32")
    z = np.full(100, np.nan, "float32")
    add_kernel[(2,)](x, y, z, 100, BLOCK=64)
    assert np.array_equal(z, x + 1)
    out = torch.full((100,), float("nan"))
    add_kernel[(2,)](torch.from_numpy(x), torch.from_numpy(y), out, 100, BLOCK=64)
    assert np.array_equal(out.numpy(), x + 1)


def test_an_empty_grid_does_nothing():
    z = np.full(4, 9, "float32")
    add_kernel[(0,)](z, z, z, 4, BLOCK=4)
    assert (z == 9).all()


@pytest.mark.parametrize("grid", [(2**32 + 1,), (1, 3 * 2**30), (1, 1, 2**40)])
def test_sizes_beyond_program_ids_are_refused(grid):
    x = np.zeros(4, np.float32)
    with pytest.raises(ArgumentError, match="allowed are up to 2147483647 programs along each of x, y and z"):
        add_kernel[grid](x, x, x, 0, BLOCK=4)  # 1, -2^30 and 0 programs, were the sizes cut to 32 bits
    add_kernel[(2**32 + 1, 0)](x, x, x, 0, BLOCK=4)  # of nothing


def test_what_does_not_fit_is_refused():
    from tilewright.targets.cpu.driver import CpuDriver

    compiled = triton.compile(ASTSource(add_kernel, SIGNATURE, {"BLOCK": 64}), target="cpu")
    driver = CpuDriver()
    handle = driver.load({"obj": compiled.asm["obj"]}, {"name": "add_kernel"}, 0)
    launch = driver.make_launcher(list(SIGNATURE.values()), {"name": "add_kernel", "scratch_bytes": 4096})
    z = np.zeros(64, "float32")
    with pytest.raises(ArgumentError, match="i32"):
        launch(1, 1, 1, 0, handle, [z.ctypes.data, z.ctypes.data, z.ctypes.data, 2**40])
    with pytest.raises(ArgumentError, match="list"):
        launch(1, 1, 1, 0, handle, [[1.0], z.ctypes.data, z.ctypes.data, 64])
    with pytest.raises(ArgumentError, match="bf16"):
        driver.make_launcher(["bf16"], {})


def test_kernels_can_be_unloaded():
    from tilewright.targets.cpu.driver import CpuDriver

    compiled = triton.compile(ASTSource(add_kernel, SIGNATURE, {"BLOCK": 64}), target="cpu")
    driver = CpuDriver()
    launch = driver.make_launcher(list(SIGNATURE.values()), {"name": "add_kernel", "scratch_bytes": 4096})
    z = np.ones(64, "float32")
    for i in range(5):
        handle = driver.load({"obj": compiled.asm["obj"]}, {"name": "add_kernel"}, 0)
        launch(1, 1, 1, 0, handle, [z.ctypes.data] * 3 + [64])
        del handle
        gc.collect()
        assert (z == 2.0 ** (i + 1)).all()
    emit.compile_ir("define void @f() {\n ret void\n}\n", "native")


@triton.jit
def guarded_kernel(x, out, i, BLOCK: tl.constexpr):
    tl.device_assert(i < 4, "too far")
    at = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for _k in range(3):
        total += tl.load(x + i.to(tl.int64) * 1000000000 + at)
    tl.store(out + at, total)


def test_an_assertion_stops_the_program_before_what_it_guards():
    x, out = np.ones(16, "float32"), np.zeros(16, "float32")
    with pytest.raises(TilewrightError, match="too far"):
        guarded_kernel[(1,)](x, out, 5, BLOCK=16, debug=True)
    assert (out == 0).all()
    guarded_kernel[(1,)](x, out, 0, BLOCK=16, debug=True)
    assert (out == 3).all()
