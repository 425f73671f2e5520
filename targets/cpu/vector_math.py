"""Functions on lanes in compute form. f32 exp, exp2, log, log2, sin, cos, tanh and erf are polynomials on whole vectors; the rest calls the C
library's double version a lane (rounded once to the narrower type), which is slower and as exact as that library.

Arguments are reduced as W. J. Cody and W. Waite do ("Software Manual for the Elementary Functions", 1980); log's coefficients are
Cephes' logf's (S. Moshier). Measured against mpmath in tests/targets/cpu/test_elementwise.py: exp, exp2, log ≤ 1.5 ulp, sin, cos ≤ 2,
log2, tanh, erf ≤ 2.5. exp and exp2 give 0 where the result would be subnormal, as on every target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.targets.cpu.loop_builder import LoopBuilder

_TINY = 2.0**-126  # the least normal f32


def _horner(b: LoopBuilder, x: Any, coefficients: Sequence[float]) -> Any:
    """Polynomial, highest power first, by fused multiply-adds."""
    acc = b.const(x.type, coefficients[0])
    for c in coefficients[1:]:
        acc = b.fma(acc, x, b.const(x.type, c))
    return acc


# Least-squares fits weighted to even out the relative error, from the constant on: e^r = 1 + r + r²·P(r) for |r| ≤ log(2)/2,
# 2^r = 1 + r·P(r) for |r| ≤ 1/2.
_EXP = (0.5000000026917607, 0.16666576978543154, 0.04166637535337803, 0.008363179816675618, 0.0013941105555673426)
_EXP2 = (0.6931471805537242, 0.2402265092233694, 0.05550410928704891, 0.009618056670816142, 0.0013333454602823952,
         0.00015461447166119715, 1.5310066261389754e-05)
_MAGIC = 1.5 * 2.0**23  # added to |x| < 2^22 it leaves the nearest integer in the low bits


def _times_power(b: LoopBuilder, p: Any, shifted: Any, x: Any, low: float, high: float) -> Any:
    """p · 2^n, n being in the low bits of ``shifted`` (n + _MAGIC), by adding to p's exponent; 0 where x < low, inf where x > high.

    NaN stays: the low bits of a NaN are 0. For p in [0.7, 1.5) and x between the limits the exponent never wraps."""
    power = b.bin("arith.shli", b.bitcast(shifted, b.i32), b.const(b.vec(b.lanes(x.type), b.i32), 23))
    y = b.bitcast(b.bin("arith.addi", b.bitcast(p, b.i32), power), b.f32)
    y = b.select(b.cmpf("olt", x, b.const(x.type, low)), b.const(x.type, 0.0), y)
    return b.select(b.cmpf("ogt", x, b.const(x.type, high)), b.const(x.type, math.inf), y)


def _exp2(b: LoopBuilder, x: Any) -> Any:
    magic = b.const(x.type, _MAGIC)
    shifted = b.op("arith.addf", [x, magic], [x.type]).result
    r = b.op("arith.subf", [x, b.op("arith.subf", [shifted, magic], [x.type]).result], [x.type]).result
    p = b.fma(_horner(b, r, _EXP2[::-1]), r, b.const(x.type, 1.0))
    return _times_power(b, p, shifted, x, -126.0, 127.99999237060547)


def _exp(b: LoopBuilder, x: Any) -> Any:
    magic = b.const(x.type, _MAGIC)
    shifted = b.fma(x, b.const(x.type, math.log2(math.e)), magic)
    n = b.op("arith.subf", [shifted, magic], [x.type]).result
    r = b.fma(n, b.const(x.type, -0.693145751953125), x)
    r = b.fma(n, b.const(x.type, -1.428606820309417e-06), r)
    tail = b.fma(_horner(b, r, _EXP[::-1]), b.op("arith.mulf", [r, r], [r.type]).result, r)
    p = b.op("arith.addf", [tail, b.const(x.type, 1.0)], [x.type]).result
    return _times_power(b, p, shifted, x, -87.33654022216797, 88.72283172607422)


_LOG = [7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1,
        -2.4999993993e-1, 3.3333331174e-1]


def _log_parts(b: LoopBuilder, x: Any) -> tuple[Any, Any, Any]:
    """(e, f, y): log(x) = e·log 2 + f + y, for positive finite x; f = m - 1 with m in [√½, √2)."""
    i32 = b.vec(b.lanes(x.type), b.i32)
    small = b.cmpf("olt", x, b.const(x.type, _TINY))
    x = b.select(small, b.bin("arith.mulf", x, b.const(x.type, 2.0**23)), x)
    bits = b.bitcast(x, b.i32)
    # subtracting the pattern of √½ makes the exponent field count from there
    shifted = b.bin("arith.subi", bits, b.const(i32, 0x3F3504F3))
    e = b.bin("arith.shrsi", shifted, b.const(i32, 23))
    m = b.bitcast(b.bin("arith.subi", bits, b.bin("arith.shli", e, b.const(i32, 23))), b.f32)
    e = b.bin("arith.subi", e, b.select(small, b.const(i32, 23), b.const(i32, 0)))
    f = b.bin("arith.subf", m, b.const(x.type, 1.0))
    z = b.bin("arith.mulf", f, f)
    y = b.bin("arith.mulf", b.bin("arith.mulf", _horner(b, f, _LOG), f), z)
    y = b.fma(b.const(x.type, -0.5), z, y)
    return b.un("arith.sitofp", e, x.type), f, y


def _log_special(b: LoopBuilder, x: Any, y: Any) -> Any:
    y = b.select(b.cmpf("oeq", x, b.const(x.type, math.inf)), x, y)
    y = b.select(b.cmpf("oeq", x, b.const(x.type, 0.0)), b.const(x.type, -math.inf), y)
    return b.select(b.cmpf("ult", x, b.const(x.type, 0.0)), b.const(x.type, math.nan), y)


def _log(b: LoopBuilder, x: Any) -> Any:
    e, f, y = _log_parts(b, x)
    y = b.fma(e, b.const(x.type, -2.12194440e-4), y)
    return _log_special(b, x, b.fma(e, b.const(x.type, 0.693359375), b.bin("arith.addf", f, y)))


def _log2(b: LoopBuilder, x: Any) -> Any:
    e, f, y = _log_parts(b, x)
    # log2(e) - 1 is small, so f and y are added once whole and once scaled
    part = b.const(x.type, math.log2(math.e) - 1)
    scaled = b.fma(f, part, b.bin("arith.mulf", y, part))
    return _log_special(b, x, b.bin("arith.addf", e, b.bin("arith.addf", f, b.bin("arith.addf", y, scaled))))


# sin r = r + r³·P(r²), cos r = 1 - r²/2 + r⁴·P(r²) on [-pi/4, pi/4]; tanh x = x + x³·P(x²) below 0.625; erf x = x·P(x²) below 0.95;
# -log(1 - erf x) = P(x) from there to 4. Least-squares fits weighted to even out the relative error; coefficients from the constant on.
_SIN = (-0.16666666663803242, 0.008333331853963047, -0.00019840075376320165, 2.7248441178493593e-06)
_COS = (0.04166666666427697, -0.0013888887654488291, 2.4800590806421966e-05, -2.729971043761168e-07)
_TANH = (-0.3333332924879924, 0.1333279450740728, -0.053854065178000766, 0.02101006349832355, -0.006113169177228343)
_ERF_SMALL = (1.128379165913701, -0.3761262713559862, 0.11283600171947558, -0.026854444407154315, 0.00518953498168824,
              -0.0008020838090932181, 7.889108875369644e-05)
_ERF_LARGE = (-0.00018344760216417575, 1.129556847590877, 0.6332625761363877, 0.1083725198112867, -0.025178995534672455,
              0.004193622055750523, -0.0004391087328731169, 2.1496326495618057e-05)
_LARGE_ANGLE = 2.0**28  # from there on the reduction in f64 loses bits, and the C library is called


def _angle(b: LoopBuilder, x: Any) -> tuple[Any, Any]:
    """(quadrant as i32, remainder in [-pi/4, pi/4] as f32) by Cody-Waite reduction in f64; 0 for large angles."""
    n = b.lanes(x.type)
    wide = b.un("arith.extf", x, b.vec(n, b.f64))
    wide = b.select(b.cmpf("olt", b.un("math.absf", wide), b.const(wide.type, _LARGE_ANGLE)), wide, b.const(wide.type, 0.0))
    q = b.un("math.roundeven", b.bin("arith.mulf", wide, b.const(wide.type, 2 / math.pi)))
    r = b.fma(q, b.const(wide.type, -1.5707963267948966), wide)
    r = b.fma(q, b.const(wide.type, -6.123233995736766e-17), r)
    return b.un("arith.fptosi", q, b.vec(n, b.i32)), b.un("arith.truncf", r, x.type)


def _sin_cos(b: LoopBuilder, x: Any, name: str, declare: Callable[[str, int], None]) -> Any:
    q, r = _angle(b, x)
    q = b.bin("arith.addi", q, b.const(q.type, int(name == "cos")))
    z = b.bin("arith.mulf", r, r)
    sine = b.fma(b.bin("arith.mulf", _horner(b, z, _SIN[::-1]), z), r, r)
    cosine = b.fma(b.bin("arith.mulf", z, z), _horner(b, z, _COS[::-1]), b.fma(z, b.const(z.type, -0.5), b.const(z.type, 1.0)))
    odd = b.cmpi("ne", b.bin("arith.andi", q, b.const(q.type, 1)), b.const(q.type, 0))
    sign = b.bin("arith.shli", b.bin("arith.andi", q, b.const(q.type, 2)), b.const(q.type, 30))
    value = b.bitcast(b.bin("arith.xori", b.bitcast(b.select(odd, cosine, sine), b.i32), sign), b.f32)
    if name == "sin":
        value = b.select(b.cmpf("oeq", x, b.const(x.type, 0.0)), x, value)  # keeps -0
    large = b.cmpf("uge", b.un("math.absf", x), b.const(x.type, _LARGE_ANGLE))
    return b.if_(b.any_of(large), lambda: [b.select(large, library(b, name, [x], declare), value)], lambda: [value], [x.type])[0]


def _tanh(b: LoopBuilder, x: Any) -> Any:
    z = b.bin("arith.mulf", x, x)
    small = b.fma(b.bin("arith.mulf", _horner(b, z, _TANH[::-1]), z), x, x)
    size = b.un("math.absf", x)
    e = _exp(b, b.bin("arith.mulf", size, b.const(x.type, 2.0)))
    large = b.bin("arith.subf", b.const(x.type, 1.0), b.bin("arith.divf", b.const(x.type, 2.0), b.bin("arith.addf", e, b.const(x.type, 1.0))))
    large = b.op("math.copysign", [large, x], [x.type]).result
    return b.select(b.cmpf("olt", size, b.const(x.type, 0.625)), small, b.select(b.cmpf("uno", x, x), x, large))


def _erf(b: LoopBuilder, x: Any) -> Any:
    size = b.un("math.absf", x)
    small = b.bin("arith.mulf", _horner(b, b.bin("arith.mulf", x, x), _ERF_SMALL[::-1]), x)
    bounded = b.select(b.cmpf("olt", size, b.const(x.type, 4.0)), size, b.const(x.type, 4.0))
    e = _exp(b, b.un("arith.negf", _horner(b, bounded, _ERF_LARGE[::-1])))
    large = b.op("math.copysign", [b.bin("arith.subf", b.const(x.type, 1.0), e), x], [x.type]).result
    return b.select(b.cmpf("olt", size, b.const(x.type, 0.95)), small, b.select(b.cmpf("uno", x, x), x, large))


_POLYNOMIALS: dict[str, Callable[[LoopBuilder, Any], Any]] = {
    "exp": _exp, "exp2": _exp2, "log": _log, "log2": _log2, "tanh": _tanh, "erf": _erf,
    "fast_expf": _exp, "fast_logf": _log, "fast_log2f": _log2, "fast_tanhf": _tanh,
}
# name → MLIR op that becomes instructions
_DIRECT = {"sqrt": "math.sqrt", "floor": "math.floor", "ceil": "math.ceil", "trunc": "math.trunc", "rint": "math.roundeven",
           "nearbyint": "math.roundeven", "roundeven": "math.roundeven", "round": "math.round", "absf": "math.absf", "abs": "math.absf",
           "fabs": "math.absf", "fma": "math.fma", "copysign": "math.copysign", "sqrt_rn": "math.sqrt"}
_ARITH = {"div_rn": "arith.divf", "mul_rn": "arith.mulf", "add_rn": "arith.addf", "sub_rn": "arith.subf", "fast_dividef": "arith.divf",
          "fmax": "arith.maxnumf", "fmin": "arith.minnumf"}
# name → function of the C library, taking and giving doubles
_LIBM = {n: n for n in ("exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh",
                        "tanh", "asinh", "acosh", "atanh", "pow", "fmod", "hypot", "erf", "erfc", "cbrt", "lgamma", "tgamma", "fdim",
                        "remainder", "j0", "j1", "y0", "y1", "logb")}
_LIBM |= {"powf": "pow", "fast_sinf": "sin", "fast_cosf": "cos", "fast_tanf": "tan", "fast_tanhf": "tanh", "fast_powf": "pow",
          "fast_log10f": "log10"}
LIBRARY_SYMBOLS = frozenset(_LIBM.values())


def function_names() -> list[str]:
    """Every function that the target has."""
    return sorted({*_POLYNOMIALS, *_DIRECT, *_ARITH, *_LIBM, "rsqrt", "isnan", "isinf", "isfinited", "finitef", "signbit", "rcp_rn", "exp10"})


def call(b: LoopBuilder, name: str, args: Sequence[Any], declare: Callable[[str, int], None]) -> Any | None:
    """The function on f32 or f64 lanes, or None where there is no such function. Predicates give i32 lanes.

    ``declare(symbol, arity)`` makes a C function of doubles known to the module.
    """
    x = args[0]
    element = b.element(x.type)
    if name in _POLYNOMIALS and element == b.f32:
        return _POLYNOMIALS[name](b, x)
    if name in ("sin", "cos", "fast_sinf", "fast_cosf") and element == b.f32:
        return _sin_cos(b, x, name.removeprefix("fast_").removesuffix("f"), declare)
    if name in _DIRECT:
        return b.op(_DIRECT[name], list(args), [x.type]).result
    if name in _ARITH:
        return b.op(_ARITH[name], list(args), [x.type]).result
    if name == "rsqrt":
        return b.bin("arith.divf", b.const(x.type, 1.0), b.un("math.sqrt", x))
    if name == "rcp_rn":
        return b.bin("arith.divf", b.const(x.type, 1.0), x)
    i32 = b.vec(b.lanes(x.type), b.i32)
    if name == "isnan":
        return b.un("arith.extui", b.cmpf("uno", x, x), i32)
    if name in ("isinf", "isfinited", "finitef"):
        predicate = "oeq" if name == "isinf" else "one"
        found = b.cmpf(predicate, b.un("math.absf", x), b.const(x.type, math.inf))
        return b.un("arith.extui", found, i32)
    if name == "signbit":
        bits = b.bitcast(x, b.i32 if element == b.f32 else b.i64)
        return b.un("arith.extui", b.cmpi("slt", bits, b.const(bits.type, 0)), i32)
    if name in ("exp10", "fast_exp10f"):
        y = library(b, "pow", [b.const(x.type, 10.0), x], declare)
        if element == b.f64:
            return y
        return b.select(b.cmpf("olt", y, b.const(x.type, 2.0**-126)), b.const(x.type, 0.0), y)  # flushed, as exp's are
    base = name if name in _LIBM else name.removeprefix("fast_").removesuffix("f")
    if base not in _LIBM:
        return None
    return library(b, _LIBM[base], args, declare)


def library(b: LoopBuilder, symbol: str, args: Sequence[Any], declare: Callable[[str, int], None]) -> Any:
    """The C library's function of doubles, a lane at a time, rounded once to the lanes' type."""
    declare(symbol, len(args))
    n, element = b.lanes(args[0].type), b.element(args[0].type)
    out = []
    for i in range(n):
        lanes = [b.extract(a, i) if n > 1 else a for a in args]
        wide = [a if element == b.f64 else b.un("arith.extf", a, b.f64) for a in lanes]
        y = b.op("func.call", wide, [b.f64], {"callee": ir.FlatSymbolRefAttr.get(symbol)}).result
        out.append(y if element == b.f64 else b.un("arith.truncf", y, element))
    return b.from_elements(out)
