"""Functions of numbers against references of their own: mpmath for the mathematical ones, Python's integers for the exact ones.

Special arguments (NaN, infinities, zeros of both signs, subnormal numbers) are compared with the interpreter in test_elementwise.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tilewright.conformance.cases import WARPS, covering, numbers
from tilewright.conformance.harness import FLOATS, ON_CPU, TORCH, batch, compare, poisoned, random_array, rng_of
from tilewright.dialects.errors import TilewrightError

N = 64
# function → (arguments, largest error in fp32 and fp64 in ulp on the cpu, the same on GPUs, which have approximate instructions)
_FUNCTIONS: dict[str, tuple[str, float, float, float]] = {
    "tl.exp": ("x", 2, 3, 8), "tl.exp2": ("x", 2, 3, 3), "tl.log": ("p", 2, 3, 3), "tl.log2": ("p", 2, 3, 3), "tl.sin": ("x", 2, 2, 2), "tl.cos": ("x", 2, 2, 2),
    "tl.sqrt": ("p", 1, 1, 2), "tl.rsqrt": ("p", 2, 3, 3), "tl.erf": ("x", 2, 2, 2), "tl.sigmoid": ("x", 3, 4, 8), "tl.floor": ("w", 0, 0, 0), "tl.ceil": ("w", 0, 0, 0),
    "tl.abs": ("w", 0, 0, 0)}
_LIBDEVICE: dict[str, tuple[str, float, float, float]] = {
    "exp": ("x", 2, 3, 8), "exp2": ("x", 2, 3, 3), "exp10": ("x", 3, 4, 12), "expm1": ("x", 2, 3, 3), "log": ("p", 2, 3, 3), "log2": ("p", 2, 3, 3), "log10": ("p", 2, 3, 3),
    "log1p": ("p", 2, 3, 3), "sin": ("x", 2, 2, 2), "cos": ("x", 2, 2, 2), "tan": ("x", 3, 3, 3), "asin": ("u", 2, 3, 2), "acos": ("u", 2, 3, 2), "atan": ("x", 2, 3, 2),
    "sinh": ("x", 3, 4, 3), "cosh": ("x", 3, 4, 3), "tanh": ("x", 3, 3, 3), "asinh": ("x", 3, 3, 3), "acosh": ("q", 3, 3, 3), "atanh": ("u", 3, 3, 3), "rsqrt": ("p", 2, 3, 3),
    "sqrt": ("p", 1, 1, 2), "cbrt": ("x", 1, 4, 1), "erf": ("x", 2, 2, 2), "erfc": ("x", 9, 12, 9), "erfcx": ("p", 4, 6, 4), "erfinv": ("u", 3, 4, 3),
    "floor": ("w", 0, 0, 0), "ceil": ("w", 0, 0, 0), "trunc": ("w", 0, 0, 0), "rint": ("w", 0, 0, 0), "nearbyint": ("w", 0, 0, 0), "round": ("w", 0, 0, 0),
    "cyl_bessel_i0": ("x", 1, 6, 1), "cyl_bessel_i1": ("x", 1, 6, 1), "tgamma": ("q", 4, 6, 4),
    "pow": ("p y", 3, 4, 3), "atan2": ("x y", 3, 3, 3), "hypot": ("x y", 2, 3, 2), "fmod": ("w y", 0, 0, 0), "copysign": ("x y", 0, 0, 0), "fma": ("x y w", 0.5, 0.5, 0.5),
    "div_rn": ("x y", 0, 0, 0), "add_rn": ("x y", 0, 0, 0), "mul_rn": ("x y", 0, 0, 0), "isnan": ("x", 0, 0, 0), "isinf": ("x", 0, 0, 0), "signbit": ("x", 0, 0, 0),
    "ilogb": ("p", 0, 0, 0), "llrint": ("w", 0, 0, 0)}
_FAST = {"fast_expf": ("x", 8), "fast_logf": ("p", 4), "fast_log2f": ("p", 4), "fast_cosf": ("x", 8), "fast_sinf": ("x", 8), "fast_tanhf": ("x", 4)}
# absolute: the relative error is unbounded near their zeros
_ABSOLUTE = {"j0": "x", "j1": "x", "y0": "p", "y1": "p", "lgamma": "q"}


def _reference(name: str, args: list[np.ndarray]) -> np.ndarray:
    mp: Any = pytest.importorskip("mpmath")
    f: dict[str, Any] = {
        "exp2": lambda x: mp.mpf(2) ** x, "exp10": lambda x: mp.mpf(10) ** x, "log2": lambda x: mp.log(x, 2), "rsqrt": lambda x: 1 / mp.sqrt(x), "abs": abs,
        "sigmoid": lambda x: 1 / (1 + mp.exp(-x)), "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)), "erfcx": lambda x: mp.exp(x * x) * mp.erfc(x), "trunc": lambda x: mp.mpf(int(x)),
        "rint": mp.nint, "nearbyint": mp.nint, "llrint": lambda x: int(mp.nint(x)), "round": lambda x: mp.sign(x) * mp.floor(abs(x) + mp.mpf(0.5)),
        "cyl_bessel_i0": lambda x: mp.besseli(0, x), "cyl_bessel_i1": lambda x: mp.besseli(1, x), "lgamma": mp.loggamma, "tgamma": mp.gamma, "pow": mp.power,
        "fmod": lambda x, y: mp.sign(x) * (abs(x) % abs(y)), "copysign": lambda x, y: abs(x) if y > 0 else -abs(x), "fma": lambda x, y, z: x * y + z,
        "div_rn": lambda x, y: x / y, "add_rn": lambda x, y: x + y, "mul_rn": lambda x, y: x * y, "isnan": lambda x: False, "isinf": lambda x: False,
        "signbit": lambda x: x < 0, "ilogb": lambda x: mp.frexp(x)[1] - 1, "fast_expf": mp.exp, "fast_logf": mp.log, "fast_log2f": lambda x: mp.log(x, 2),
        "fast_cosf": mp.cos, "fast_sinf": mp.sin, "fast_tanhf": mp.tanh, "j0": lambda x: mp.besselj(0, x), "j1": lambda x: mp.besselj(1, x),
        "y0": lambda x: mp.bessely(0, x), "y1": lambda x: mp.bessely(1, x)}
    with mp.workdps(40):
        function = f.get(name) or getattr(mp, name)
        values = [function(*(mp.mpf(float(v)) for v in row)) for row in zip(*args)]
    if name in ("isnan", "isinf", "signbit", "ilogb", "llrint"):
        return np.array([int(v) for v in values])
    return np.array([float(v) for v in values])


def _arguments(dtype: str) -> dict[str, torch.Tensor]:
    """x of ordinary size, p positive, u within ±1, q above 1, w with fractions and ties, y nowhere 0."""
    r = rng_of(dtype, "numbers")
    kind = TORCH[dtype]

    def make(v: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(v).to(kind)

    w = np.round(r.uniform(-40, 40, N) * 4) / 4
    y = r.uniform(0.25, 3, N) * np.where(r.random(N) < 0.5, -1, 1)
    return {"x": make(r.uniform(-6, 6, N)), "p": make(r.uniform(0.01, 9, N)), "u": make(r.uniform(-0.97, 0.97, N)), "q": make(r.uniform(1.125, 9, N)), "w": make(w), "y": make(y)}


@pytest.mark.parametrize("dtype, warps", covering(FLOATS, WARPS, quick=4, keep=lambda d, w: w == {"fp16": 1, "bf16": 2, "fp32": 4, "fp64": 8}[d]))
def test_functions(dtype, warps):
    """16-bit floats go through fp32 and are rounded once: one value more or less near a tie."""
    inputs = _arguments(dtype)
    narrow = dtype in ("fp16", "bf16")  # they share the code of fp32
    table = {**_FUNCTIONS, **{f"libdevice.{n}": v for n, v in _LIBDEVICE.items() if not narrow or n in ("tanh", "pow", "atan2", "rint", "log1p", "isnan")}}
    rows = []
    for name, (arguments, cpu32, cpu64, gpu32) in table.items():
        short = name.rpartition(".")[2]
        ulp = (cpu32 if ON_CPU else max(cpu32, gpu32)) if dtype == "fp32" else cpu64 if dtype == "fp64" else min(1, cpu32)
        rows.append((f"{name}({arguments.replace(' ', ', ')})", _reference(short, [numbers(inputs[a]) for a in arguments.split()]), {"ulp": max(ulp, 0.5)}))
    if dtype == "fp32":
        rows += [(f"libdevice.{n}({a})", _reference(n, [numbers(inputs[a])]), {"ulp": ulp if n not in ("fast_cosf", "fast_sinf") else 0, "atol": 1e-6 if n in ("fast_cosf", "fast_sinf") else 0})
                 for n, (a, ulp) in _FAST.items()]
    if dtype in ("fp32", "fp64"):
        rows += [(f"libdevice.{n}({a})", _reference(n, [numbers(inputs[a])]), {"atol": 4e-6 if dtype == "fp32" else 4e-14}) for n, a in _ABSOLUTE.items()]
    batch(rows, inputs, num_warps=warps)


@pytest.mark.parametrize("dtype", FLOATS)
def test_quotients_and_limits(dtype):
    """fdiv, div_rn, sqrt_rn, clamp with numbers and tensors in its limits, with NaN."""
    inputs = _arguments(dtype)
    x, y, p = (numbers(inputs[k]) for k in "xyp")
    bad = inputs["x"].clone()
    bad[::7] = float("nan")
    inputs["n"] = bad
    b = numbers(bad)
    half = {"ulp": 0.5}
    rough = {"ulp": 2 if dtype == "fp32" else 1}
    rows = [("tl.fdiv(x, y)", x / y, rough), ("x / y", x / y, rough), ("tl.clamp(x, -1.0, 2.0)", np.clip(x, -1, 2), half), ("tl.clamp(x, min=-p, max=p)", np.clip(x, -p, p), half),
            ("tl.clamp(n, -1.0, 2.0)", np.where(np.isnan(b), -1, np.clip(b, -1, 2)), half), ("tl.clamp(n, -1.0, 2.0, propagate_nan=tl.PropagateNan.ALL)", np.clip(b, -1, 2), half),
            ("tl.minimum(n, y)", np.fmin(b, y), half), ("tl.maximum(n, y, propagate_nan=tl.PropagateNan.ALL)", np.maximum(b, y), half)]
    if dtype in ("fp32", "fp64"):
        # rounded once from the quotient of floats: double's own, or one whose double rounding is innocuous (2·24 + 2 bits)
        rows += [("tl.div_rn(x, y)", x / y), ("tl.sqrt_rn(p)", np.sqrt(p)), ("tl.fdiv(x, y, ieee_rounding=True)", x / y, {} if dtype == "fp32" else rough)]
    rows += [("libdevice.finitef(n)", np.isfinite(b)), ("libdevice.isfinited(n)", np.isfinite(b))]
    batch(rows, inputs, num_warps=2)


def _high(a: np.ndarray, b: np.ndarray, width: int) -> list[int]:
    mask = (1 << width) - 1
    return [((int(x) & mask) * (int(y) & mask)) >> width for x, y in zip(a, b)]


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_integers(dtype):
    """Exactly as Python's: high halves of products, quotients rounded up, the swizzle."""
    r = rng_of(dtype, "integers")
    a, b = random_array(dtype, N, r), random_array(dtype, N, r)
    x, y = (random_array("int32", N, rng_of(dtype, k)).abs() % 5000 for k in (1, 2))
    x, y = x.to(TORCH[dtype]), (y % 37 + 1).to(TORCH[dtype])
    width = 32 if "32" in dtype else 64
    high = np.array(_high(a.numpy(), b.numpy(), width), dtype=f"uint{width}").view(dtype)
    u, v = x.numpy().astype(np.int64), y.numpy().astype(np.int64)
    rows: list[Any] = [("tl.umulhi(a, b)", high), ("tl.cdiv(x, y)", -(-u // v)), ("tl.cdiv(x, 7)", -(-u // 7)), ("x // y", u // v), ("x % y", u % v)]
    if dtype == "int32":
        i, j = u % 7, v % 11
        index = i * 11 + j
        group, within = index // 44, index % 44
        rows_of = np.minimum(7 - group * 4, 4)
        text = "tl.swizzle2d(x % 7, y % 11, 7, 11, 4)"
        rows += [(f"{text}[0]", group * 4 + within % rows_of), (f"{text}[1]", within // rows_of), ("libdevice.int2float_rn(a)", a.numpy().astype(np.float32))]
    batch(rows, {"a": a, "b": b, "x": x, "y": y}, num_warps=1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax(dtype):
    x = random_array(dtype, (4, 32), rng_of(dtype, "softmax"))
    v = numbers(x)

    def softmax(axis):
        e = np.exp(v - v.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)

    bound = {"rtol": {"fp16": 1e-3, "bf16": 8e-3, "fp32": 2e-6, "fp64": 1e-14}[dtype]}
    batch([("tl.softmax(x)", softmax(0), bound), ("tl.softmax(x, dim=1, keep_dims=True)", softmax(1), bound), ("tl.softmax(x, 1, ieee_rounding=True)", softmax(1), bound)],
          {"x": x}, num_warps=2)


def test_random_numbers():
    """Uniform, normal and integer numbers of a seed: their ranges and means, other numbers of other rounds, the same ones on every target."""
    out = {k: poisoned("fp32", 1024) for k in ("u", "v", "n", "m")} | {k: poisoned("uint32", 1024) for k in ("i", "j", "w")}
    got = compare("""
        @triton.jit
        def kernel(u, v, n, m, i, j, w, seed):
            k = tl.arange(0, 1024)
            tl.store(u + k, tl.rand(seed, k))
            tl.store(v + k, tl.rand(seed, k, n_rounds=7) + tl.rand4x(seed, k)[1] - tl.rand4x(seed, k)[1])
            tl.store(n + k, tl.randn(seed, k))
            tl.store(m + k, tl.randn4x(seed, k)[3])
            tl.store(i + k, tl.randint(seed, k))
            tl.store(j + k, tl.randint4x(seed, k)[2])
            a, b, c, d = tl.philox(seed, k.to(tl.uint32), 0, 0, 0)
            e, f, g, h = tl.philox_impl(a, b, c, d, a, b)
            tl.store(w + k, a ^ (e & 0))
            tl.device_assert(tl.uint_to_uniform_float(b) < 1.0)
        """, {**out, "seed": 2021}, tolerance={k: {"atol": 1e-5} for k in ("n", "m", "u", "v")}, num_warps=4)
    u, n = numbers(got["u"]), numbers(got["n"])
    assert 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 0.05 and abs(n.mean()) < 0.15 and abs(n.std() - 1) < 0.1
    assert (numbers(got["v"]) != u).any() and len(set(got["i"].tolist())) > 1000 and got["i"].tolist() == got["w"].tolist()


def test_symbols_of_a_library_are_the_portable_functions():
    """Names as vendors' libraries have them, whatever the path; what is none of them is refused."""
    x = torch.from_numpy(rng_of("symbols").standard_normal(64).astype(np.float32))
    source = """
        @triton.jit
        def kernel(x, o, q, NAME: tl.constexpr):
            i = tl.arange(0, 64)
            v = tl.load(x + i)
            tl.store(o + i, tl.extern_elementwise("", "some/library.bc", [v], {(tl.float32,): (NAME, tl.float32)}, is_pure=True))
            tl.store(q + i, libdevice.tanh(v))
    """
    for name in ("tanh", "__xx_tanhf", "__yyyy_tanh_f32"):
        got = compare(source, {"x": x, "o": poisoned("fp32", 64), "q": poisoned("fp32", 64), "NAME": name}, tolerance={"*": {"ulp": 2}})
        assert torch.equal(got["o"], got["q"])
    with pytest.raises(TilewrightError, match="'mine' of some/library.bc is none of libdevice's functions"):
        compare(source, {"x": x, "o": poisoned("fp32", 64), "q": poisoned("fp32", 64), "NAME": "mine"})
