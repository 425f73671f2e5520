"""Kernels from @jit through the whole pipeline: run in the simulator, and the code that comes out for real devices.

The simulator checks bounds, alignment, races, unwritten shared memory and missing waits while it computes.
"""

import re
from collections import Counter

import attention as attention_example
import layer_norm as layer_norm_example
import matmul as matmul_example
import numpy as np
import pytest
import softmax as softmax_example
import vector_add as vector_add_example

import tilewright
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.dialects.errors import OutOfResources
from tilewright.targets.nvidia.emit import ptxas
from tilewright.targets.protocol import GPUTarget

HEADER = re.compile(r"\b(cp\.async\.c[ag]|cp\.async\.commit_group|ldmatrix|mma\.sync|st\.shared|ld\.shared|bar\.sync|ld\.global)\b")


@pytest.fixture
def simulated(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_80:sim")


def normal(shape, dtype, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def error(got, expected):
    assert not np.isnan(got).any()
    return np.abs(got.astype(np.float64) - expected).max() / max(np.abs(expected).max(), 1e-30)


# --------------------------------------------------------------------------------------------------- simulated runs
@pytest.mark.parametrize("n", [1, 1000, 4096])
@pytest.mark.parametrize("dtype, bound", [(np.float32, 1e-7), (np.float16, 1e-3)])
def test_vector_add(simulated, n, dtype, bound):
    x, y = normal(n, dtype, 0), normal(n, dtype, 1)
    assert error(vector_add_example.add(x, y), x.astype(np.float64) + y) < bound


@pytest.mark.parametrize("shape", [(1, 1), (3, 97), (5, 1025)])
def test_softmax(simulated, shape):
    x = normal(shape, np.float32, 2) * 10
    assert error(softmax_example.softmax(x), softmax_example.reference(x)) < 1e-6


@pytest.mark.parametrize("shape", [(2, 33), (3, 2000)])
def test_layer_norm(simulated, shape):
    x, w, b = normal(shape, np.float16, 3), normal(shape[1], np.float16, 4), normal(shape[1], np.float16, 5)
    y, mean, rstd = layer_norm_example.layer_norm(x, w, b)
    assert error(y, layer_norm_example.reference(x, w, b)) < 1e-3
    wide = x.astype(np.float64)
    assert error(mean, wide.mean(axis=1)) < 1e-5 and error(rstd, 1 / np.sqrt(wide.var(axis=1) + 1e-5)) < 1e-5


@pytest.mark.parametrize("m, n, k", [(64, 64, 64), (70, 45, 97)])
@pytest.mark.parametrize("dtype, precision, bound", [(np.float16, "ieee", 1e-3), (np.float32, "tf32", 3e-3), (np.float32, "ieee", 1e-6),
                                                     (np.float32, "tf32x3", 1e-5)])
@pytest.mark.parametrize("column_major", [False, True])
def test_matmul(simulated, m, n, k, dtype, precision, bound, column_major):
    x, w, b = normal((m, k), dtype, 6), normal((k, n), dtype, 7), normal(n, dtype, 8)
    if column_major:
        w = w.T.copy().T
    got = matmul_example.matmul(x, w, b, block=(32, 32, 32), precision=precision)
    assert error(got, matmul_example.reference(x, w, b)) < bound


@pytest.mark.parametrize("block, warps, stages", [((64, 64, 32), 4, 4), ((128, 64, 64), 8, 2), ((16, 16, 16), 1, 1), ((32, 128, 16), 2, 3)])
def test_matmul_shapes_of_blocks(simulated, block, warps, stages):
    x, w, b = normal((67, 100), np.float16, 9), normal((100, 36), np.float16, 10), normal(36, np.float16, 11)
    got = matmul_example.matmul(x, w, b, block=block, num_warps=warps, num_stages=stages)
    assert error(got, matmul_example.reference(x, w, b)) < 1e-3


@pytest.mark.parametrize("causal", [False, True])
def test_attention(simulated, causal):
    q, k, v = (normal((2, 80, 32), np.float16, s) for s in (12, 13, 14))
    got = attention_example.attention(q, k, v, causal, block=(32, 32))
    assert error(got, attention_example.reference(q, k, v, causal)) < 2e-3


@tilewright.jit
def int8_kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] + n[None, :] * K)
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y, out_dtype=tl.int32))


def test_int8_dot(simulated):
    rng = np.random.default_rng(15)
    a, b = rng.integers(-128, 128, (32, 64)).astype(np.int8), rng.integers(-128, 128, (16, 64)).astype(np.int8)
    c = np.zeros((32, 16), np.int32)
    int8_kernel[(1,)](a, b, c, 32, 16, 64)
    np.testing.assert_array_equal(c, a.astype(np.int32) @ b.T.astype(np.int32))


@tilewright.jit
def debug_kernel(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.device_print("v", v)
    tl.atomic_add(x, tl.sum(v))


def test_print_and_atomics(simulated, capsys):
    x = np.arange(32, dtype=np.int32)
    debug_kernel[(1,)](x, 32, B=32, num_warps=1)
    out = capsys.readouterr().out
    assert sorted(out.splitlines()) == [f"pid (0, 0, 0) idx ({i:2d}) v: {i}" for i in range(32)]
    assert x[0] == 31 * 32 // 2


def test_out_of_bounds_is_an_error(simulated):
    from tilewright.dialects.simt import SimtError

    with pytest.raises(SimtError, match=r"global load out of bounds.*wild_kernel, llvm.load at"):
        wild_kernel[(1,)](np.zeros(32, np.int32), 1 << 45, B=32)


@tilewright.jit
def wild_kernel(x, offset, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), tl.load(x + offset + tl.arange(0, B)))


# ----------------------------------------------------------------------------------------------- code for devices
def compile_matmul(block, num_warps=4, num_stages=3, dtype="fp16", arch=80):
    bm, bn, bk = block
    kernel = matmul_example.matmul_kernel
    signature = {f"{p}_ptr": "*" + dtype for p in "xwby"}
    signature |= {name: "i32" for name in ("M", "N", "K", "stride_xm", "stride_wk", "stride_ym")}
    constants = dict(BLOCK_M=bm, BLOCK_N=bn, BLOCK_K=bk, GROUP_M=8, RELU=True, PRECISION="tf32", stride_xk=1, stride_wn=1, stride_yn=1)
    attributes = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names) if name in signature}
    return tilewright.compile(ASTSource(kernel, signature, constants, attributes), target=GPUTarget("cuda", arch, 32),
                              options={"num_warps": num_warps, "num_stages": num_stages, "warp_group_dots": False, "tma": False})


def loop_of(ptx):
    """Text of the innermost loop that multiplies."""
    for label in re.findall(r"^(\$L__BB\d+_\d+):", ptx, re.M):
        found = re.search(re.escape(label) + r":(.*?)bra \t?" + re.escape(label) + r";", ptx, re.S)
        if found and "mma.sync" in found.group(1):
            return found.group(1)
    raise AssertionError("no loop with mma.sync")


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("arch", [80, 90])
def test_matmul_loop(dtype, arch):
    kernel = compile_matmul((128, 128, 32), num_stages=3, dtype=dtype, arch=arch)
    loop = loop_of(kernel.asm["ptx"])
    counts = Counter(HEADER.findall(loop))
    # 128×128×32 by 4 warps of 64×64: 2 k steps of 4×8 products, 8 + 8 operand loads, 8 copies of 16 bytes a thread
    assert counts == {"mma.sync": 64, "ldmatrix": 16, "cp.async.cg": 8, "cp.async.commit_group": 1, "bar.sync": 1}
    assert re.findall(r"cp\.async\.wait_group (\d+)", loop) == ["1"]
    # A block of three stages of 16 KiB
    assert kernel.metadata.shared == 3 * 16384


@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
@pytest.mark.parametrize("block, warps, registers", [((64, 64, 32), 4, 128), ((128, 128, 32), 8, 168), ((128, 128, 32), 4, 255)])
def test_matmul_registers(block, warps, registers):
    kernel = compile_matmul(block, warps)
    assert kernel.asm["cubin"][:4] == b"\x7fELF"
    assert kernel.metadata.spills == 0
    assert 32 < kernel.metadata.registers <= registers


def test_line_tables_name_the_kernels_lines():
    ptx = compile_matmul((64, 64, 32)).asm["ptx"]
    assert "matmul.py" in ptx
    lines = {int(n) for n in re.findall(r"\.loc\t\d+ (\d+)", ptx)}
    first = matmul_example.matmul_kernel.fn.__code__.co_firstlineno
    assert len([n for n in lines if first < n < first + 40]) > 8


def test_too_much_shared_memory_is_refused():
    with pytest.raises(OutOfResources, match=r"shared memory: \d+ needed, 166912 available"):
        compile_matmul((256, 256, 64), num_stages=4, num_warps=8)
