"""Which matrix instruction each kind of dot becomes on each architecture, and that the product is right: the code object's text is executed
by the instruction-level simulator."""

import re

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.targets.amd.simulate_intrinsics import fp8_table


@tilewright.jit
def dot_kernel(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr, KIND_A: tl.constexpr, KIND_B: tl.constexpr,
               OUT: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
    if KIND_A is not None:
        x, y = x.to(KIND_A, bitcast=True), y.to(KIND_B, bitcast=True)
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y, input_precision=PRECISION, out_dtype=OUT))


@tilewright.jit
def chain_kernel(a, b, v, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, D: tl.constexpr):
    """(2⁻⁴ a bᵀ) v, the product of the first dot in the type of v."""
    m, n, k, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K), tl.arange(0, D)
    x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + n[None, :] * K + k[:, None])
    p = tl.dot(x, y) * 0.0625
    w = tl.load(v + n[:, None] * D + d[None, :])
    tl.store(c + m[:, None] * D + d[None, :], tl.dot(p.to(w.dtype), w))


def instructions(text):
    return set(re.findall(r"v_(?:mfma|wmma)_\w+", text))


def run(monkeypatch, arch, a, b, out, shape, precision="ieee", kinds=(None, None), out_type=tl.float32):
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{arch}:sim")
    m, n, k = shape
    c = np.full((m, n), -77, out)
    kernel = dot_kernel[(1,)](a, b, c, M=m, N=n, K=k, PRECISION=precision, KIND_A=kinds[0], KIND_B=kinds[1], OUT=out_type, num_warps=2)
    return c, instructions(kernel.asm["amdgcn"])


def test_f64(monkeypatch):
    rng = np.random.default_rng()
    a, b = rng.standard_normal((32, 16)), rng.standard_normal((16, 32))
    for arch, expected in (("gfx90a", {"v_mfma_f64_16x16x4f64"}), ("gfx942", {"v_mfma_f64_16x16x4_f64"})):
        c, found = run(monkeypatch, arch, a, b, np.float64, (32, 32, 16), out_type=tl.float64)
        assert {i.replace("_e64", "") for i in found} == expected
        np.testing.assert_allclose(c, a @ b, rtol=0, atol=1e-13)


@pytest.mark.parametrize("precision, expected, bound", [("tf32", "xf32", 2e-3), ("ieee", "4_f32", 1e-6), ("tf32x3", "xf32", 3e-6)])
def test_f32_precisions_on_gfx942(monkeypatch, precision, expected, bound):
    """A dot that may read its operands as tf32 takes the xf32 instruction; what was asked to be exact does not."""
    rng = np.random.default_rng()
    a, b = rng.standard_normal((32, 16)).astype(np.float32), rng.standard_normal((16, 32)).astype(np.float32)
    c, found = run(monkeypatch, "gfx942", a, b, np.float32, (32, 32, 16), precision)
    assert len(found) == 1 and expected in found.pop()
    exact = a.astype(np.float64) @ b
    error = np.abs(c - exact).max() / np.abs(exact).max()
    assert error < bound and (precision != "tf32" or error > 1e-6)


FP8 = [("gfx942", (32, 32, 32), "16x16x32_fp8_bf8", ("fp8e4b8", "fp8e5b16")),
       ("gfx950", (64, 32, 64), "32x32x64_f8f6f4", ("fp8e4nv", "fp8e5")),
       ("gfx950", (16, 32, 128), "16x16x128_f8f6f4", ("fp8e5", "fp8e4nv")),
       ("gfx950", (64, 32, 32), "32x32x16_fp8_fp8", ("fp8e4nv", "fp8e4nv")),
       ("gfx1201", (32, 32, 32), "wmma_f32_16x16x16_bf8_fp8", ("fp8e5", "fp8e4nv"))]


@pytest.mark.parametrize("arch, shape, expected, kinds", FP8, ids=[f"{f[0]}-{f[2]}" for f in FP8])
def test_fp8(monkeypatch, arch, shape, expected, kinds):
    """The architecture's own formats, exactly: every product of two of them is an f32, and sums of small ones are exact."""
    rng = np.random.default_rng()
    operands = []
    for kind, size in zip(kinds, ((shape[0], shape[2]), (shape[2], shape[1]))):
        table = fp8_table("fp8" if "e4" in kind else "bf8", arch)
        codes = np.flatnonzero(np.isin(np.abs(table), [0, 0.5, 1, 1.5, 2, 3, 4]))
        bits = rng.choice(codes, size).astype(np.uint8)
        operands.append((bits, table[bits]))
    types = [{"fp8e4b8": tl.float8e4b8, "fp8e5b16": tl.float8e5b16, "fp8e4nv": tl.float8e4nv, "fp8e5": tl.float8e5}[k] for k in kinds]
    c, found = run(monkeypatch, arch, operands[0][0], operands[1][0], np.float32, shape, kinds=types)
    np.testing.assert_array_equal(c, operands[0][1] @ operands[1][1])
    # a transposed accumulator means that the instruction's first operand is the dot's second
    swapped = expected.replace("fp8_bf8", "bf8_fp8") if "fp8_bf8" in expected else expected.replace("bf8_fp8", "fp8_bf8")
    assert len(found) == 1 and re.search(f"{expected}|{swapped}", found.pop())


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("shape", [(64, 32, 32, 32), (32, 64, 16, 64)])
def test_chained_dots_stay_in_registers(monkeypatch, arch, shape):
    """The first product becomes the second's operand without LDS: every ds_ access belongs to an operand that was loaded."""
    m, n, k, d = shape
    rng = np.random.default_rng()
    a, b, v = (rng.standard_normal(s).astype(np.float16) for s in ((m, k), (n, k), (n, d)))
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{arch}:sim")
    c = np.full((m, d), np.nan, np.float32)
    kernel = chain_kernel[(1,)](a, b, v, c, M=m, N=n, K=k, D=d, num_warps=2)
    p = (a.astype(np.float64) @ b.T * 0.0625).astype(np.float16)
    expected = p.astype(np.float64) @ v
    assert np.abs(c - expected).max() < 2e-3 * np.abs(expected).max()
    asm = kernel.asm
    assert len(re.findall(r'"ttg.local_alloc"\(%', asm["ttgir"])) == 3
    to_operands = [line for line in asm["ttgir"].splitlines() if re.search(r"convert_layout.*#dot_op\d*>$", line)]
    assert len(to_operands) == 1 and "allocation.offset" not in to_operands[0]
    assert not re.search(r"ds_bpermute|ds_swizzle", asm["amdgcn"])
    assert ("v_permlanex16" in asm["amdgcn"]) == (arch == "gfx1100")
