"""Real kernels launched on the cpu target through every way in; all outputs start as NaN or a poison value."""

from __future__ import annotations

import collections
import json
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.dialects.errors import ArgumentError, CompilationError

OFFSET = tl.constexpr(3)


@triton.jit
def shifted(x):
    return x + OFFSET


@triton.jit
def scale(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(y_ptr + i, shifted(tl.load(x_ptr + i, mask=mask) * factor), mask=mask)


@triton.jit
def rows(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * stride + i, mask=i < n, other=0.0)
    tl.store(y_ptr + tl.program_id(0), tl.sum(x, axis=0))


@triton.jit
def of_tuple(y_ptr, pair, FLAG: tl.constexpr):
    tl.store(y_ptr, pair[0] + pair[1])
    if FLAG:
        tl.store(y_ptr + 1, pair[0] - pair[1])


@pytest.fixture(autouse=True)
def cpu(monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_TARGET", raising=False)


def run(x, y, n, factor, block=64):
    return scale[(triton.cdiv(n, block),)](x, y, n, factor, BLOCK=block)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64"])
@pytest.mark.parametrize("n", [1, 63, 64, 1000])
def test_numpy(dtype, n):
    x = np.random.default_rng(n).integers(-50, 50, n).astype(dtype)
    y = np.full(n + 8, 99, dtype)
    run(x, y, n, 2)
    np.testing.assert_array_equal(y[:n], x * 2 + 3)
    assert (y[n:] == 99).all()


def test_specialisations_agree():
    """The same numbers with every way an argument can be known: factor 1, 16, 7, a float, a large n; aligned and not."""
    raw = np.random.default_rng(0).standard_normal(4096 + 16).astype(np.float32)
    for start in (0, 1, 3):
        for n in (1, 16, 17, 4096):
            for factor in (1, 16, 7, 0.5, -2**31):
                x, y = raw[start:start + n], np.full(n + 1, np.nan, np.float32)
                run(x, y, n, factor)
                np.testing.assert_allclose(y[:n], x.astype(np.float64) * factor + 3, rtol=2e-6, atol=1e-6)
                assert np.isnan(y[n])


def test_torch():
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int32):
        x = torch.arange(-100, 100).to(dtype)
        y = torch.full_like(x, 77)
        run(x, y, 200, 1)
        assert torch.equal(y, x + 3)
    x = torch.nn.Parameter(torch.randn(70))
    y = torch.full((70,), float("nan"))
    run(x, y, 70, 1.5)
    torch.testing.assert_close(y, x.detach() * 1.5 + 3)


def test_strided_and_negative_views():
    x = np.random.default_rng(1).standard_normal((50, 40)).astype(np.float32)
    for view in (x, x[::-1], x[::2, :33]):
        y = np.full(view.shape[0], np.nan, np.float32)
        rows[(view.shape[0],)](view, y, view.strides[0] // 4, view.shape[1], BLOCK=64)
        np.testing.assert_allclose(y, view.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)


def test_tuple_arguments():
    y = np.full(2, np.nan, np.float32)
    of_tuple[(1,)](y, (5.5, 2), FLAG=True)
    np.testing.assert_array_equal(y, [7.5, 3.5])
    Pair = collections.namedtuple("Pair", "a b")
    y[:] = np.nan
    of_tuple[(1,)](y, Pair(1, 1), FLAG=False)
    assert y[0] == 2 and np.isnan(y[1])


def test_grid_of_three_dims_runs_every_program():
    @triton.jit
    def mark(y_ptr, X, Y):
        x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
        tl.store(y_ptr + (z * Y + y) * X + x, tl.num_programs(0) * 10000 + tl.num_programs(1) * 100 + tl.num_programs(2))

    out = np.zeros(3 * 5 * 7, np.int32)
    mark[(3, 5, 7)](out, 3, 5)
    assert (out == 30507).all()


def test_empty_grid_and_empty_array():
    y = np.full(4, np.nan, np.float32)
    run(np.zeros(0, np.float32), y, 0, 2)
    assert np.isnan(y).all()


def test_changed_global_changes_the_result(monkeypatch):
    x, y = np.ones(4, np.float32), np.full(4, np.nan, np.float32)
    run(x, y, 4, 2)
    assert (y == 5).all()
    monkeypatch.setitem(globals(), "OFFSET", tl.constexpr(10))
    run(x, y, 4, 2)
    assert (y == 12).all()
    monkeypatch.setitem(globals(), "OFFSET", tl.constexpr(3))
    run(x, y, 4, 2)
    assert (y == 5).all()


def test_the_attributes_of_a_kernel_pickle():
    """torch.compile sends the attributes of a kernel, whose jit function it has emptied, from a worker to this process, which launches it."""
    x, y = np.arange(64, dtype=np.float32), np.full(64, np.nan, np.float32)
    kernel = triton.JITFunction(scale.fn).warmup(x, y, 64, 2.0, BLOCK=64, grid=(1,))  # its own: a launched one has its launcher
    source = triton.compiler.ASTSource.__new__(triton.compiler.ASTSource)
    emptied = type(scale).__new__(type(scale))
    emptied.__dict__.update(scale.__dict__, fn=None, used_global_vals=None)
    source.__dict__.update(kernel.src.__dict__, fn=emptied)
    again = type(kernel).__new__(type(kernel))
    again.__dict__.update(pickle.loads(pickle.dumps({**kernel.__dict__, "src": source, "module": None, "function": None})))
    assert again.src.fn is not scale and again.src.fn.fn is None and again.src.fn.src == scale.src
    assert again.src.fn.arg_names == scale.arg_names and again.src.fn.constexprs == scale.constexprs
    assert again.selection == kernel.selection and again.handles == {}
    again[(1,)](x, y, 64, 2.0, 64)
    assert (y == x * 2 + 3).all()


def test_compile_pickle_launch():
    source = triton.compiler.ASTSource(scale, {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "factor": "fp32"}, {"BLOCK": 64})
    kernel = triton.compile(source, target=GPUTarget("cpu", "", 32), options={"num_warps": 4})  # so does torch.compile
    assert "tt.load" in kernel.asm["ttir"] and kernel.metadata.name == "scale"
    copy = pickle.loads(pickle.dumps(kernel))
    x, y = np.random.default_rng(2).standard_normal(100).astype(np.float32), np.full(100, np.nan, np.float32)
    copy[(2,)](x, y, 100, 2.0, 64)
    np.testing.assert_allclose(y, x * 2 + 3, rtol=1e-6)


@pytest.mark.parametrize("backend, arch, warp, stage", [("cuda", 80, 32, "ptx"), ("cuda", 90, 32, "ptx"), ("hip", "gfx942", 64, "amdgcn"),
                                                        ("hip", "gfx1100", 32, "amdgcn"), ("cpu", "x86-64-v3", 0, "asm")])
def test_offline_compilation_by_tritons_triple(backend, arch, warp, stage):
    source = triton.compiler.ASTSource(scale, {"x_ptr": "*fp16", "y_ptr": "*fp16", "n": "i32", "factor": "fp32"}, {"BLOCK": 64},
                                       {(0,): [["tt.divisibility", 16]]})
    kernel = triton.compile(source, target=GPUTarget(backend, arch, warp))
    assert "scale" in kernel.asm[stage] and len(kernel.asm["ttir"]) > 100
    assert kernel.metadata.target.backend == backend and kernel.metadata.warp_size == (warp or 1)


def test_ir_source(tmp_path):
    source = triton.compiler.ASTSource(scale, {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "factor": "fp32"}, {"BLOCK": 64})
    text = triton.compile(source, target="cpu").asm["ttir"]
    path = tmp_path / "scale.ttir"
    path.write_text(text)
    kernel = triton.compile(str(path), target="cpu")
    assert kernel.types == ["*fp32", "*fp32", "i32", "fp32"]
    x, y = np.arange(70, dtype=np.float32), np.full(70, np.nan, np.float32)
    kernel[(2,)](x, y, 70, 2.0)
    np.testing.assert_array_equal(y, x * 2 + 3)
    path.write_text("func.func @broken( {")
    with pytest.raises(CompilationError, match="does not parse"):
        triton.compile(str(path), target="cpu")
    path.write_text("module {}")
    with pytest.raises(ArgumentError, match="no function"):
        triton.compile(str(path), target="cpu")


def test_autotune_and_do_bench():
    tuned = triton.autotune([triton.Config({"BLOCK": b}) for b in (16, 64, 256)], key=["n"], warmup=1, rep=2)(scale)
    x, y = np.random.default_rng(3).standard_normal(5000).astype(np.float32), np.full(5000, np.nan, np.float32)
    tuned[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, y, 5000, 2.0)
    np.testing.assert_allclose(y, x * 2 + 3, rtol=1e-6)
    assert tuned.best_config in tuned.configs and all(t[0] > 0 for t in tuned.configs_timings.values())
    assert 0 < triton.testing.do_bench(lambda: run(x, y, 5000, 2.0), warmup=1, rep=2) < 1000


def test_mistakes_name_the_users_line():
    @triton.jit
    def wrong(x_ptr):
        tl.store(x_ptr, undefined_name)  # noqa: F821

    with pytest.raises(CompilationError, match="undefined_name") as error:
        wrong[(1,)](np.zeros(1, np.float32))
    assert error.value.file == __file__ and "undefined_name)" in str(error.value) and error.value.line == wrong.def_line + 1


def test_several_threads_launch_at_once():
    import threading

    results, errors = {}, []

    def work(k):
        try:
            x, y = np.full(300, k, np.float32), np.full(300, np.nan, np.float32)
            for _ in range(20):
                run(x, y, 300, float(k), block=32 << (k % 3))
            results[k] = (y == k * k + 3).all()
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and all(results[k] for k in range(6))


SCRIPT = """
    import json, sys
    import numpy as np
    sys.path.insert(0, {folder!r})
    from kernels import kernel
    y = np.full(40, np.nan, np.float32)
    kernel[(3,)](np.arange(40, dtype=np.float32), y, 40, BLOCK=16)
    print(json.dumps({{"y": y.tolist(), "mlir": [m for m in ("torch_mlir", "mlir") if m in sys.modules]}}))
"""

KERNELS = """
    import tilewright as triton
    import tilewright.language as tl
    ADD = tl.constexpr(1)

    @triton.jit
    def change(x):
        return x * 2

    @triton.jit
    def kernel(x, y, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + i, change(tl.load(x + i, mask=i < n)) + ADD, mask=i < n)
"""


def test_disk_cache_of_real_kernels(tmp_path):
    def process(text: str) -> dict:
        (tmp_path / "kernels.py").write_text(textwrap.dedent(text))
        env = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        result = subprocess.run([sys.executable, "-c", textwrap.dedent(SCRIPT).format(folder=str(tmp_path))], capture_output=True, text=True,
                                timeout=60, env=env)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    x = np.arange(40)
    cold = process(KERNELS)
    assert cold["mlir"] and cold["y"] == (x * 2 + 1).tolist()
    before = {p: p.stat().st_mtime_ns for p in Path(tmp_path / "cache").iterdir()}
    warm = process(KERNELS)
    after = {p: p.stat().st_mtime_ns for p in Path(tmp_path / "cache").iterdir()}
    assert warm["y"] == cold["y"]
    if before == after:  # else somebody edited the compiler between the two
        assert warm["mlir"] == []
    assert process(KERNELS.replace("x * 2", "x * 3"))["y"] == (x * 3 + 1).tolist()
    assert process(KERNELS.replace("constexpr(1)", "constexpr(5)"))["y"] == (x * 2 + 5).tolist()


def test_what_is_no_source_is_refused():
    for source in (None, 3, print):
        with pytest.raises(ArgumentError, match="compile takes an ASTSource"):
            triton.compile(source, target="cpu")
