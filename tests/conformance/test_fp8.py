"""The five fp8 types: conversions both ways bit for bit, arithmetic, moves, reductions, dots of all pairs, and what is refused.

Codes go in and out as uint8. What is expected comes from the formats' definition (dialects/fp8.py) in float64, and the interpreter has to give the same.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import (
    SIMULATED,
    TORCH,
    compare,
    interpret,
    kernel_of,
    poisoned,
    rng_of,
    special_floats,
)
from tilewright.dialects.errors import TypeMismatchError
from tilewright.dialects.fp8 import FORMATS

NAMES = {"fp8e4nv": "tl.float8e4nv", "fp8e5": "tl.float8e5", "fp8e4b8": "tl.float8e4b8", "fp8e5b16": "tl.float8e5b16", "fp8e4b15": "tl.float8e4b15"}
FP8 = list(NAMES)
MOSTLY = [f if i < 2 else pytest.param(f, marks=pytest.mark.nightly) for i, f in enumerate(FP8)]  # where the types take one path
OF_TORCH = {"fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2, "fp8e4b8": torch.float8_e4m3fnuz, "fp8e5b16": torch.float8_e5m2fnuz}
WIDE = {"fp32": "tl.float32", "fp64": "tl.float64", "fp16": "tl.float16", "bf16": "tl.bfloat16"}


def values(name, codes):
    table = np.array([FORMATS[name].decode(c) for c in range(256)])
    return table[np.asarray(codes)]


def encoded(name, numbers):
    flat = np.asarray(numbers, np.float64).reshape(-1)
    return np.array([FORMATS[name].encode(float(v)) for v in flat], np.uint8).reshape(np.shape(numbers))


def codes_of(name, n, *key):
    rng = rng_of(name, n, *key)
    out = rng.integers(0, 256, n).astype(np.uint8)
    if n >= 256:
        out[:256] = rng.permutation(256)
    return out


def finite_codes(name, n, *key, most=np.inf):
    out = codes_of(name, n, *key)
    v = values(name, out)
    out[~(np.abs(v) <= most) | ~np.isfinite(v)] = 0x38
    return out


def hard_floats(name, dtype, n):
    """Every value of the format, the middles between neighbours, numbers a hair beside the middles, and special ones."""
    v = values(name, range(256))
    v = np.unique(v[np.isfinite(v)])
    middles = (v[1:] + v[:-1]) / 2
    listed = np.concatenate([v, middles, middles * (1 + 2.0**-40), middles * (1 - 2.0**-9), [1e30, -1e30, 1e-30]])
    out = special_floats(dtype, n, rng_of(name, dtype))
    out[n - len(listed):] = torch.from_numpy(listed).to(TORCH[dtype])
    return out


@pytest.mark.parametrize("name", FP8)
def test_conversions_to_fp8(name):
    n = 2048
    inputs = {d: hard_floats(name, d, n) for d in WIDE}
    lines = [f"tl.store(o + {n * at} + i, tl.load({d} + i).to({NAMES[name]}, fp_downcast_rounding={rounding!r}).to(tl.uint8, bitcast=True))"
             for at, (d, rounding) in enumerate((d, r) for d in WIDE for r in ("rtne", "rtz"))]
    reference = compare(f"""
        @triton.jit
        def kernel({', '.join(inputs)}, o):
            i = tl.arange(0, {n})
            {(chr(10) + ' ' * 12).join(lines)}
        """, {**inputs, "o": poisoned("uint8", (8, n))})["o"].numpy()
    for at, (d, x) in enumerate(inputs.items()):
        wide = x.to(torch.float64).numpy()
        np.testing.assert_array_equal(reference[2 * at], encoded(name, wide), err_msg=d)
        near = encoded(name, wide)
        cut = np.where(np.abs(values(name, near)) > np.abs(wide), _one_below(name, near), near)  # towards zero: the next one where that is too large
        np.testing.assert_array_equal(reference[2 * at + 1], cut, err_msg=f"{d}, rtz")


def _one_below(name, codes):
    out = np.where(codes & 0x7F, codes - 1, codes).astype(np.uint8)
    return np.where(FORMATS[name].fnuz & (out == 0x80), 0, out).astype(np.uint8)


@pytest.mark.parametrize("name", FP8)
def test_conversions_from_fp8(name):
    """To wider floats exactly, to the other fp8 types rounded once, to integers and back."""
    others = [f for f in FP8 if f != name]
    stores = [f"tl.store(w + {256 * at} + i, x.to({t}).to(tl.float64))" for at, t in enumerate(WIDE.values())]
    stores += [f"tl.store(o + {256 * at} + i, x.to({NAMES[f]}).to(tl.uint8, bitcast=True))" for at, f in enumerate(others)]
    codes = np.arange(256, dtype=np.uint8)
    reference = compare(f"""
        @triton.jit
        def kernel(p, w, o, k, b):
            i = tl.arange(0, 256)
            x = tl.load(p + i).to({NAMES[name]}, bitcast=True)
            {(chr(10) + ' ' * 12).join(stores)}
            tl.store(k + i, tl.where(tl.abs(x) < 1000.0, x, 1.0).to(tl.int32))
            tl.store(b + i, (i - 128).to({NAMES[name]}).to(tl.uint8, bitcast=True))
        """, {"p": torch.from_numpy(codes), "w": poisoned("fp64", (4, 256)), "o": poisoned("uint8", (4, 256)), "k": poisoned("int32", 256), "b": poisoned("uint8", 256)})
    v = values(name, codes)
    for row in reference["w"].numpy():
        np.testing.assert_array_equal(row, v)
    for row, f in zip(reference["o"].numpy(), others):
        np.testing.assert_array_equal(row, encoded(f, v), err_msg=f)
    np.testing.assert_array_equal(reference["k"].numpy(), np.trunc(np.where(np.abs(v) < min(1000, values(name, FORMATS[name].largest) + 1), v, 1)))
    np.testing.assert_array_equal(reference["b"].numpy(), encoded(name, np.arange(256) - 128))


# kernel text → float64 meaning, which is rounded once
_ARITHMETIC = {
    "x + y": lambda x, y, z: x + y, "x - y": lambda x, y, z: x - y, "x * y": lambda x, y, z: x * y, "x / y": lambda x, y, z: x / y, "x % y": lambda x, y, z: np.fmod(x, y),
    "-x": lambda x, y, z: -x, "tl.abs(x)": lambda x, y, z: np.abs(x), "tl.fma(x, y, z)": lambda x, y, z: x * y + z, "x + 1.0": lambda x, y, z: x + 1,
    "1.5 - x": lambda x, y, z: 1.5 - x, "x / 1.5": lambda x, y, z: x / 1.5, "tl.maximum(x, y)": lambda x, y, z: np.fmax(x, y),
    "tl.minimum(x, y, propagate_nan=tl.PropagateNan.ALL)": lambda x, y, z: np.minimum(x, y), "tl.clamp(x, y, z)": lambda x, y, z: np.fmin(np.fmax(x, y), z),
    "tl.full([256], 1e9, T)": lambda x, y, z: np.full(256, 1e9), "tl.full([256], float('nan'), T)": lambda x, y, z: np.full(256, np.nan),
    "tl.where(x < y, 1.0, x * 0.5)": lambda x, y, z: np.where(x < y, 1, x * 0.5), "(x + z).to(tl.float32) .to(T)": lambda x, y, z: x + z,
}


@pytest.mark.parametrize("name", FP8)
def test_arithmetic(name):
    """In fp32, rounded once: what float64, which is exact here, gives rounded to the type. Results have the type of x."""
    stores = [f"tl.store(o + {256 * at} + i, ({text.replace(', T)', f', {NAMES[name]})').replace('(T)', f'({NAMES[name]})')}).to(tl.uint8, bitcast=True))"
              for at, text in enumerate(_ARITHMETIC)]
    operands = [codes_of(name, 256, i) for i in range(3)]
    reference = compare(f"""
        @triton.jit
        def kernel(p, q, r, o):
            i = tl.arange(0, 256)
            x, y, z = (tl.load(p + i).to({NAMES[name]}, bitcast=True), tl.load(q + i).to({NAMES[name]}, bitcast=True), tl.load(r + i).to({NAMES[name]}, bitcast=True))
            tl.static_assert((x + y).dtype == {NAMES[name]})
            {(chr(10) + ' ' * 12).join(stores)}
        """, {**{p: torch.from_numpy(c) for p, c in zip("pqr", operands)}, "o": poisoned("uint8", (len(_ARITHMETIC), 256))})["o"].numpy()
    x, y, z = (values(name, c) for c in operands)
    with np.errstate(all="ignore"):
        for row, (text, meaning) in zip(reference, _ARITHMETIC.items()):
            wanted = encoded(name, meaning(x, y, z))
            if "0.5" in text:  # where both sides have one type: 0.5x is rounded before it is chosen
                wanted = np.where(x < y, encoded(name, np.ones(256)), encoded(name, x * 0.5))
            # zeros' signs in max, min and clamp are the language's rule, not numpy's
            same = (row == wanted) | ((row & 0x7F == 0) & (wanted & 0x7F == 0) & ("m" in text[:5]) & (not FORMATS[name].fnuz))
            assert same.all(), (text, [(x[k], y[k], z[k], row[k], wanted[k]) for k in np.flatnonzero(~same)[:3]])


@pytest.mark.parametrize("name", MOSTLY)
def test_comparisons_and_moves(name):
    """Comparisons are the numbers'; what only moves keeps all bits, NaN's too."""
    n = 256
    x, y = codes_of(name, n, 1), codes_of(name, n, 2)
    rng = rng_of(name)
    places = rng.integers(0, n, n).astype(np.int32)
    reference = compare(f"""
        @triton.jit
        def kernel(p, q, g, o, c):
            i = tl.arange(0, {n})
            x, y = tl.load(p + i).to({NAMES[name]}, bitcast=True), tl.load(q + i).to({NAMES[name]}, bitcast=True)
            tl.store(c + i, (x < y).to(tl.int32) + 2 * (x == y).to(tl.int32) + 4 * (x >= y).to(tl.int32) + 8 * (x != x).to(tl.int32) + 16 * (x <= 0.5).to(tl.int32))
            tl.store(o + i, tl.where(i % 3 == 0, x, y).to(tl.uint8, bitcast=True))
            tl.store(o + {n} + i, tl.trans(tl.reshape(x, [16, 16])).reshape({n}).to(tl.uint8, bitcast=True))
            tl.store(o + {2 * n} + i, tl.gather(x, tl.load(g + i), 0).to(tl.uint8, bitcast=True))
            tl.store(o + {3 * n} + i, tl.flip(x, 0).to(tl.uint8, bitcast=True))
            a, b = tl.split(tl.reshape(tl.join(x, y), [{n}, 2]))
            tl.store(o + {4 * n} + i, tl.where(i % 2 == 0, a, b).to(tl.uint8, bitcast=True))
            tl.store(o + {5 * n} + tl.arange(0, {2 * n}), tl.cat(x, y, can_reorder=False).to(tl.uint8, bitcast=True))
            rows = tl.broadcast_to(tl.reshape(x, [1, {n}]), [2, {n}])
            tl.store(o + {7 * n} + tl.arange(0, 2)[:, None] * {n} + i[None, :], rows.to(tl.uint8, bitcast=True))
        """, {"p": torch.from_numpy(x), "q": torch.from_numpy(y), "g": torch.from_numpy(places), "o": poisoned("uint8", (9, n)), "c": poisoned("int32", n)})
    k = np.arange(n)
    expected = [np.where(k % 3 == 0, x, y), x.reshape(16, 16).T.reshape(-1), x[places], x[::-1], np.where(k % 2 == 0, x, y), x, y, x, x]
    np.testing.assert_array_equal(reference["o"].numpy(), np.stack(expected))
    v, w = values(name, x), values(name, y)
    np.testing.assert_array_equal(reference["c"].numpy(), (v < w) + 2 * (v == w) + 4 * (v >= w) + 8 * (v != v) + 16 * (v <= 0.5))


@pytest.mark.parametrize("name", MOSTLY)
def test_reductions(name):
    """Of few small numbers, so that sums are exact in every order."""
    x = finite_codes(name, 256, 3)
    few = encoded(name, rng_of(name, 4).integers(-1, 2, (16, 16)) * 0.125)
    reference = compare(f"""
        @triton.jit
        def kernel(p, q, o, f):
            i, j = tl.arange(0, 16), tl.arange(0, 256)
            x = tl.load(p + j).to({NAMES[name]}, bitcast=True).reshape(16, 16)
            y = tl.load(q + j).to({NAMES[name]}, bitcast=True).reshape(16, 16)
            tl.store(f + i, tl.max(x, 1).to(tl.float32))
            tl.store(f + 16 + i, tl.min(x, 0).to(tl.float32))
            tl.store(f + 32 + i, tl.argmax(x, 1).to(tl.float32))
            tl.store(o + i, tl.sum(y, 1).to(tl.uint8, bitcast=True))
            tl.store(o + 16 + i, tl.sum(y, 0).to(tl.uint8, bitcast=True))
            tl.store(f + 48 + j, tl.cumsum(y, 1).reshape(256).to(tl.float32))
        """, {"p": torch.from_numpy(x), "q": torch.from_numpy(few), "o": poisoned("uint8", 32), "f": poisoned("fp32", 304)}, num_warps=2)
    v, w = values(name, x).reshape(16, 16), values(name, few)
    np.testing.assert_array_equal(reference["f"].numpy(), np.concatenate([v.max(1), v.min(0), v.argmax(1), w.cumsum(1).reshape(-1)]).astype(np.float32))
    np.testing.assert_array_equal(values(name, reference["o"].numpy()), np.concatenate([w.sum(1), w.sum(0)]))


_DOTS = [(a, b) for a in FP8 for b in FP8]


@pytest.mark.parametrize("a, b", [p if i % 2 == 0 else pytest.param(*p, marks=pytest.mark.nightly) for i, p in enumerate(_DOTS)])
def test_dots(a, b):
    """Every pair. Small numbers of few bits, so that products and sums are exact however they are added."""
    if SIMULATED and _DOTS.index((a, b)) % 4:
        pytest.skip("a quarter of them in the simulator")
    m, n, k = 16, 16, 32
    x, y = (encoded(f, rng_of(f, i).integers(-4, 5, s) / 4) for i, (f, s) in enumerate(((a, (m, k)), (b, (k, n)))))
    compare(f"""
        @triton.jit
        def kernel(p, q, o):
            m, n, k = tl.arange(0, {m}), tl.arange(0, {n}), tl.arange(0, {k})
            x = tl.load(p + m[:, None] * {k} + k[None, :]).to({NAMES[a]}, bitcast=True)
            y = tl.load(q + k[:, None] * {n} + n[None, :]).to({NAMES[b]}, bitcast=True)
            tl.store(o + m[:, None] * {n} + n[None, :], tl.dot(x, y))
        """, {"p": torch.from_numpy(x), "q": torch.from_numpy(y), "o": poisoned("fp32", (m, n))}, expected={"o": (values(a, x) @ values(b, y)).astype(np.float32)}, num_warps=1)


@pytest.mark.parametrize("name", list(OF_TORCH))
def test_torch_tensors(name):
    """Pointers to torch's types; loads with masks and numbers for what is masked off, stores of computed values."""
    codes = finite_codes(name, 64, 5, most=8)
    compare("""
        @triton.jit
        def kernel(p, o, s):
            i = tl.arange(0, 64)
            tl.static_assert(p.dtype.element_ty.is_fp8())
            x = tl.load(p + i, mask=i < 50, other=2.0)
            tl.store(o + i, x + x, mask=i >= 7)
            tl.store(s, tl.load(p + 3))
        """, {"p": torch.from_numpy(codes).view(OF_TORCH[name]), "o": torch.zeros(64, dtype=torch.uint8).view(OF_TORCH[name]), "s": torch.zeros(1, dtype=torch.uint8).view(OF_TORCH[name])},
            expected={"o": torch.from_numpy(encoded(name, np.where(np.arange(64) < 7, 0, 2 * np.where(np.arange(64) < 50, values(name, codes), 2)))).view(OF_TORCH[name])})


@pytest.mark.parametrize("text, message", [
    ("x + i", "have no common type; cast one of them"), ("tl.exp(x)", "exp takes fp32, fp64, fp16 or bf16, not fp8e5"), ("x // x", "// takes integers, not fp8e5"),
    ("x & x", "& takes integers"), ('x.to(tl.float32, fp_downcast_rounding="rtz")', "fp_downcast_rounding is for a float to a narrower float"),
    ('x.to(tl.float32).to(tl.float8e5, fp_downcast_rounding="up")', 'fp_downcast_rounding is "rtne" or "rtz"'), ("x.to(tl.int16, bitcast=True)", "bitcast keeps the width"),
    ("tl.dot(tl.reshape(x, [4, 4]), tl.reshape(x, [4, 4]).to(tl.float16))", "dot takes operands of one type"),
    ("tl.dot(tl.reshape(x, [4, 4]), tl.reshape(x, [4, 4]), max_num_imprecise_acc=8)", "max_num_imprecise_acc"),
    ("tl.atomic_add(p + i, x)", "fp8e5")])
def test_what_is_refused(text, message):
    kernel = kernel_of(f"""
        @triton.jit
        def kernel(p):
            i = tl.arange(0, 16)
            x = tl.load(p + i)
            z = {text}
        """)
    args = {"p": torch.zeros(16, dtype=torch.float8_e5m2)}
    for run in (lambda: kernel[(1,)](**args), lambda: interpret(kernel, args)):
        with pytest.raises(TypeMismatchError) as found:
            run()
        assert message in str(found.value), str(found.value)
