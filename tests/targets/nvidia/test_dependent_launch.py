"""Programmatic dependent launch: griddepcontrol in the PTX, in its place among the accesses of memory, and the attribute of the launch (``launch_pdl``)."""

import re
import struct

import numpy as np
import pytest
from launch_samples import META
from native_calls import perform
from test_planned_launch import NativeCuda

import tilewright as triton
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.dialects.errors import ArgumentError
from tilewright.targets.nvidia.driver import NvidiaDriver
from tilewright.targets.protocol import GPUTarget


@triton.jit
def add(x, y, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    before = tl.load(y + i)
    tl.extra.cuda.gdc_wait()
    after = tl.load(x + i)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(y + i, before + after)


@triton.jit
def product(a, b, c, M, N, K, BLOCK: tl.constexpr, WAIT: tl.constexpr):
    m, n, k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 64)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    if WAIT:
        tl.extra.cuda.gdc_wait()
    for at in range(0, K, 64):
        x = tl.load(a + m[:, None] * K + at + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K - at), other=0.0)
        y = tl.load(b + (at + k[:, None]) * N + n[None, :], mask=(n[None, :] < N) & (k[:, None] < K - at), other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def compiled(kernel, arch, constants, **options):
    names = kernel.arg_names
    pointer = "*fp32" if kernel is add else "*fp16"
    signature = {n: "constexpr" if n in constants else pointer if n in "xyabc" else "i32" for n in names}
    attrs = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if n not in constants}
    return triton.compile(ASTSource(kernel, signature, {(names.index(n),): v for n, v in constants.items()}, attrs), target=GPUTarget("cuda", arch, 32), options=options)


def order(ptx):
    """Names of what reads or writes global memory, and of griddepcontrol, as they stand."""
    return re.findall(r"griddepcontrol\.\w+|ld\.global|st\.global|cp\.async\.cg|cp\.async\.bulk\.tensor", ptx)


@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("pdl", [False, True])
def test_instructions_stand_where_the_kernel_has_them(arch, pdl):
    made = compiled(add, arch, {"N": 128}, launch_pdl=pdl)
    wait, more = ["griddepcontrol.wait"] * (arch >= 90 and pdl), ["griddepcontrol.launch_dependents"] * (arch >= 90)
    assert order(made.asm["ptx"]) == ["ld.global", *wait, "ld.global", *more, "st.global"]
    assert made.metadata.launch_pdl is pdl and bool(made.metadata._asdict().get("programmatic_launch")) is (arch >= 90 and pdl)


def test_no_copies_run_ahead_of_the_wait():
    """A kernel that does not wait is promoted to bulk copies, which warps of their own make; one that waits is not, and copies after it."""
    waits = order(compiled(product, "sm_90a", {"BLOCK": 128, "WAIT": True}, launch_pdl=True, num_warps=8).asm["ptx"])
    assert waits[0] == "griddepcontrol.wait" and "cp.async.cg" in waits and "cp.async.bulk.tensor" not in waits
    assert "cp.async.bulk.tensor" in order(compiled(product, "sm_90a", {"BLOCK": 128, "WAIT": False}, launch_pdl=True, num_warps=8).asm["ptx"])
    # launched after all others, it has nothing to wait for
    assert "cp.async.bulk.tensor" in order(compiled(product, "sm_90a", {"BLOCK": 128, "WAIT": True}, num_warps=8).asm["ptx"])


@pytest.mark.parametrize("metadata, expected", [({}, 0), ({"launch_pdl": True}, 0), ({"programmatic_launch": True}, 1)])
@pytest.mark.parametrize("persistent", [None, {"ctas_per_sm": 1}])
def test_the_attribute_of_the_launch(metadata, expected, persistent):
    cuda = NativeCuda(formats="iiii" if persistent else "i")
    cuda.expected = expected
    driver = NvidiaDriver(cuda)
    metadata = {**META, **metadata, "persistent": persistent}
    launch, handle = driver.make_launcher(["i32"], metadata), driver.load({"cubin": b"x"}, metadata, 0)
    launch(3, 2, 1, 5, handle, [7])
    assert perform(launch.native, (3, 2, 1), 5, handle, [7]) == 0
    assert cuda.launches[0] == cuda.launches[1] and cuda.launches[0][4] == 5 and cuda.launches[0][5][0] == 7
    # CUlaunchAttribute: id 6 (programmatic stream serialisation), padding to 8 bytes, a value of 64 bytes that begins with 1
    assert cuda.attributes == [[struct.pack("=II", 6, 0) + struct.pack("=I", 1) + bytes(60)] * expected] * 2


@pytest.mark.parametrize("target", ["nvidia:sm_80:sim", "nvidia:sm_90a:sim", "amd:gfx942:sim", "cpu"])
def test_it_computes_the_same_everywhere(target, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", target)
    x, y = np.arange(256, dtype=np.float32), np.ones(256, np.float32)
    add[(2,)](x, y, N=128, launch_pdl=True)
    assert (y == x + 1).all()
    with pytest.raises(ArgumentError, match="launch_pdl is True or False; found 'x'"):
        add[(2,)](x, y, N=128, launch_pdl="x")
