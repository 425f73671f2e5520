"""Float arithmetic of the vector ALU: sums, products, fused products, maxima, rounding, roots, exponentials, parts of numbers.

Source: the ISA manuals' chapter "Instructions", VOP1, VOP2 and VOP3 of MI200, MI300, RDNA2, RDNA3 and RDNA4, and their remarks on accuracy.

Exact, bit for bit: sums, products, fma, fmac, min, max, med3, floor and its kind, fract, ldexp, frexp, div_scale, div_fmas, div_fixup.
Not exact in hardware either; here the correctly rounded value stands for what the manual bounds:

| instruction | manual | here |
| --- | --- | --- |
| v_exp_f32, v_log_f32, v_rcp_f32, v_rsq_f32, v_sqrt_f32 | 1 ulp; denormal arguments and results count as 0 | correctly rounded, denormals flushed |
| v_exp_f16, v_log_f16, v_rcp_f16, v_rsq_f16, v_sqrt_f16 | 0.51 ulp | correctly rounded |
| v_rcp_f64, v_rsq_f64, v_sqrt_f64 | relative error up to 2^-23 (2^29 ulp) | correctly rounded, then the lowest 29 bits cleared, so that a missing Newton step shows |
| v_sin_f32, v_cos_f32, v_sin_f16, v_cos_f16 | argument in revolutions within ±256, absolute error unstated | correctly rounded; sin 0 and cos 1 outside |

Where the manuals leave something open, or can't be meant as printed: div_scale of denormal reciprocals and div_fixup's overflow (see there);
v_dot2 of floats (valu_packed); v_fma_mixlo and mixhi round to f32 and then to f16; permlane swaps treat inactive lanes as DPP does
(valu_lanes); v_min and v_max of GFX12's "num" kind take a signalling NaN for a quiet one. The f64 division that LLVM emits is, from such a
v_rcp_f64, one place off for powers of two by numbers whose fraction is all ones (tests/…/test_valu_division.py), and right otherwise.

A result that is one place off on a device and right here, or the reverse, is possible where a kernel's result depends on such an instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.targets.amd.isa.registry import DecodeContext
from tilewright.targets.amd.isa.valu_numbers import (
    FLOAT,
    FMA,
    UINT,
    Array,
    exponent_field,
    flush,
    fract,
    is_denormal,
    ldexp,
    max_number,
    maximum,
    min_number,
    minimum,
    quiet,
    scaled_fma,
)
from tilewright.targets.amd.isa.valu_table import Function, lanewise

ALL = ("f16", "f32", "f64")


def _reversed_subtract(a: Array, b: Array) -> Array:
    return b - a


for k in ALL:
    lanewise(f"v_add_{k}", out=k, of=(k, k), f=np.add)
    lanewise(f"v_mul_{k}", out=k, of=(k, k), f=np.multiply)
    lanewise(f"v_fma_{k}", out=k, of=(k, k, k), f=FMA[k], keeps_half=True)
    lanewise(f"v_fmac_{k}", out=k, of=(k, k, k), f=FMA[k], accumulates=True)
for k in ("f16", "f32"):
    lanewise(f"v_sub_{k}", out=k, of=(k, k), f=np.subtract)
    lanewise(f"v_subrev_{k}", out=k, of=(k, k), f=_reversed_subtract)
    # the constant stands where it is multiplied or added, and all three are written
    lanewise(f"v_fmaak_{k}", f"v_fmamk_{k}", out=k, of=(k, k, k), f=FMA[k])


def _mad_flushed(a: Array, b: Array, c: Array) -> Array:
    """Product and sum each rounded; denormals count as 0 whatever the mode."""
    return flush(flush(flush(a, "f32") * flush(b, "f32"), "f32") + flush(c, "f32"), "f32")


lanewise("v_mad_f32", "v_madak_f32", "v_madmk_f32", out="f32", of=("f32",) * 3, f=_mad_flushed)
lanewise("v_mac_f32", out="f32", of=("f32",) * 3, f=_mad_flushed, accumulates=True)


# ------------------------------------------------------------------------------------------------ maximum and minimum
def _ieee(ctx: DecodeContext) -> bool:
    return bool(ctx.kernel.descriptor.get("ieee_mode", 1))


def _two(make: Callable[[str, bool], Function], k: str) -> Callable[[DecodeContext], Function]:
    return lambda ctx: make(k, _ieee(ctx))


def _nested(outer: Function, inner: Function) -> Function:
    return lambda a, b, c: outer(inner(a, b), c)


def _three(make: Callable[[str, bool], Function], k: str) -> Callable[[DecodeContext], Function]:
    def choose(ctx: DecodeContext) -> Function:
        f = make(k, _ieee(ctx))
        return _nested(f, f)

    return choose


def _pair(outer: Callable[[str, bool], Function], inner: Callable[[str, bool], Function], k: str) -> Callable[[DecodeContext], Function]:
    return lambda ctx: _nested(outer(k, _ieee(ctx)), inner(k, _ieee(ctx)))


def median(k: str, ieee: bool) -> Function:
    """The middle of three: the larger of the two that remain without a largest. The smallest where one is NaN."""
    largest, smallest = max_number(k, ieee), min_number(k, ieee)

    def med3(a: Array, b: Array, c: Array) -> Array:
        top = largest(largest(a, b), c)
        out = np.where(top == a, largest(b, c), np.where(top == b, largest(a, c), largest(a, b)))
        nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
        return np.where(nan, smallest(smallest(a, b), c), out) if nan.any() else out

    return med3


for k in ALL:
    lanewise(f"v_max_{k}", out=k, of=(k, k), chosen=_two(max_number, k))
    lanewise(f"v_min_{k}", out=k, of=(k, k), chosen=_two(min_number, k))
    # GFX12 has no IEEE mode: a number wins over any NaN
    lanewise(f"v_max_num_{k}", out=k, of=(k, k), f=max_number(k, False))
    lanewise(f"v_min_num_{k}", out=k, of=(k, k), f=min_number(k, False))
    lanewise(f"v_maximum_{k}", out=k, of=(k, k), f=maximum(k), keeps_half=True)
    lanewise(f"v_minimum_{k}", out=k, of=(k, k), f=minimum(k), keeps_half=True)
for k in ("f16", "f32"):
    lanewise(f"v_max3_{k}", out=k, of=(k, k, k), chosen=_three(max_number, k), keeps_half=True)
    lanewise(f"v_min3_{k}", out=k, of=(k, k, k), chosen=_three(min_number, k), keeps_half=True)
    lanewise(f"v_med3_{k}", out=k, of=(k, k, k), chosen=_two(median, k), keeps_half=True)
    larger, smaller, above, below = max_number(k, False), min_number(k, False), maximum(k), minimum(k)
    lanewise(f"v_max3_num_{k}", out=k, of=(k, k, k), f=_nested(larger, larger))
    lanewise(f"v_min3_num_{k}", out=k, of=(k, k, k), f=_nested(smaller, smaller))
    lanewise(f"v_med3_num_{k}", out=k, of=(k, k, k), f=median(k, False))
    lanewise(f"v_maximum3_{k}", out=k, of=(k, k, k), f=_nested(above, above), keeps_half=True)
    lanewise(f"v_minimum3_{k}", out=k, of=(k, k, k), f=_nested(below, below), keeps_half=True)
    lanewise(f"v_maxmin_num_{k}", out=k, of=(k, k, k), f=_nested(smaller, larger))
    lanewise(f"v_minmax_num_{k}", out=k, of=(k, k, k), f=_nested(larger, smaller))
    lanewise(f"v_maximumminimum_{k}", out=k, of=(k, k, k), f=_nested(below, above))
    lanewise(f"v_minimummaximum_{k}", out=k, of=(k, k, k), f=_nested(above, below))
    lanewise(f"v_maxmin_{k}", out=k, of=(k, k, k), chosen=_pair(min_number, max_number, k))
    lanewise(f"v_minmax_{k}", out=k, of=(k, k, k), chosen=_pair(max_number, min_number, k))


# ------------------------------------------------------------------------------------------------- rounding and parts
def _fract(k: str) -> Function:
    return lambda x: fract(x, k)


def _mantissa(k: str) -> Function:
    """frexp's fraction in [0.5, 1), of its sign; infinities and NaN as they are."""
    def mantissa(x: Array) -> Array:
        m: Array = np.where(np.isfinite(x), np.frexp(x)[0], x)
        return m.astype(FLOAT[k])

    return mantissa


def _exponent(k: str, out: Any) -> Function:
    """frexp's exponent; 0 of 0, infinities and NaN."""
    def exponent(x: Array) -> Array:
        e: Array = np.where(np.isfinite(x), np.frexp(x)[1], 0)
        return e.astype(out)

    return exponent


for k in ALL:
    for name, rounding in (("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc), ("rndne", np.rint)):
        lanewise(f"v_{name}_{k}", out=k, of=(k,), f=rounding)
    lanewise(f"v_fract_{k}", out=k, of=(k,), f=_fract(k))
    lanewise(f"v_frexp_mant_{k}", out=k, of=(k,), f=_mantissa(k))
lanewise("v_frexp_exp_i16_f16", out="i16", of=("f16",), f=_exponent("f16", np.int16))
lanewise("v_frexp_exp_i32_f32", out="i32", of=("f32",), f=_exponent("f32", np.int32))
lanewise("v_frexp_exp_i32_f64", out="i32", of=("f64",), f=_exponent("f64", np.int32))
lanewise("v_ldexp_f16", out="f16", of=("f16", "i16"), f=lambda x, e: ldexp(x, e, "f16"))
lanewise("v_ldexp_f32", out="f32", of=("f32", "i32"), f=lambda x, e: ldexp(x, e, "f32"))
lanewise("v_ldexp_f64", out="f64", of=("f64", "i32"), f=lambda x, e: ldexp(x, e, "f64"))


# ------------------------------------------------------------------------------- roots, reciprocals, transcendental functions
def _by_double(f: Function, k: str) -> Function:
    """``f`` in float64, rounded; f32 flushes denormal arguments and results."""
    if k == "f32":
        return lambda x: flush(f(flush(x, k).astype(np.float64)).astype(np.float32), k)
    return lambda x: f(x.astype(np.float64)).astype(np.float16)


def _seed(f: Function) -> Function:
    """Of f64: 24 bits of the correctly rounded value."""
    def g(x: Array) -> Array:
        y = np.asarray(f(x))
        return np.where(np.isfinite(y), (y.view(np.uint64) & np.uint64(0xFFFFFFFFE0000000)).view(np.float64), y)

    return g


def _reciprocal(x: Array) -> Array:
    return 1.0 / x


def _rsqrt(x: Array) -> Array:
    return np.where(x == 0, np.copysign(np.inf, x), 1.0 / np.sqrt(x))


def _periodic(f: Function, outside: float) -> Function:
    """Of revolutions: the whole ones are taken off exactly."""
    def g(x: Array) -> Array:
        part = x - np.rint(x)
        # a quarter's sine and a half's cosine are exact, as π is not
        y = f(2.0 * np.pi * part)
        y = np.where(part * 4 == np.rint(part * 4), np.rint(y), y)
        return np.where(np.isfinite(x), np.where(np.abs(x) <= 256, y, outside), np.nan)

    return g


_APPROXIMATE: dict[str, Function] = {"rcp": _reciprocal, "rsq": _rsqrt, "sqrt": np.sqrt, "exp": np.exp2, "log": np.log2,
                                     "sin": _periodic(np.sin, 0.0), "cos": _periodic(np.cos, 1.0)}
for k in ("f16", "f32"):
    for name, function in _APPROXIMATE.items():
        lanewise(f"v_{name}_{k}", out=k, of=(k,), f=_by_double(function, k))
lanewise("v_rcp_iflag_f32", out="f32", of=("f32",), f=_by_double(_reciprocal, "f32"))
lanewise("v_rcp_f64", out="f64", of=("f64",), f=_seed(_reciprocal))
lanewise("v_rsq_f64", out="f64", of=("f64",), f=_seed(_rsqrt))
lanewise("v_sqrt_f64", out="f64", of=("f64",), f=_seed(np.sqrt))


# ----------------------------------------------------------------------------------------------------------- division
# (step of the scale, exponent difference that is near the top, exponent of tiny numerators, middle exponent, underflow, overflow)
_DIVISION = {"f32": (64, 96, 23, 127, -150, 129), "f64": (128, 768, 53, 1023, -1075, 1025)}


def div_scale(k: str, s0: Array, s1: Array, s2: Array) -> tuple[Array, Array]:
    """(scaled s0, whether the quotient is scaled back): s0 is the denominator s1 or the numerator s2.

    The manuals scale a denominator up whose reciprocal is denormal while the quotient is denormal too, which overflows; here it goes down,
    which the sequence needs to give the right quotient.
    """
    step, near_top, tiny, *_ = _DIVISION[k]
    e1, e2 = exponent_field(s1, k), exponent_field(s2, k)
    small_reciprocal = np.abs(s1).astype(FLOAT[k]) > np.ldexp(FLOAT[k](1), {"f32": 126, "f64": 1022}[k])
    quotient = s2 / s1
    small_quotient = is_denormal(quotient, k) | ((quotient == 0) & (s2 != 0) & np.isfinite(s1))
    zero = (s1 == 0) | (s2 == 0)
    top = ~zero & (e2 - e1 >= near_top)
    rest = ~zero & ~top
    denormal = rest & is_denormal(s1, k)
    rest &= ~denormal
    both, recip, small = rest & small_reciprocal & small_quotient, rest & small_reciprocal & ~small_quotient, rest & small_quotient & ~small_reciprocal
    numerator_tiny = rest & ~small_reciprocal & ~small_quotient & (e2 <= tiny)
    is_denominator, is_numerator = s0 == s1, s0 == s2
    up = (top & is_denominator) | denormal | (small & is_numerator) | numerator_tiny
    down = (both & is_denominator) | recip
    out = np.where(up, ldexp(s0, np.int64(step), k), np.where(down, ldexp(s0, np.int64(-step), k), s0))
    return np.where(zero, FLOAT[k](np.nan), out), top | both | small


def div_fmas(k: str, s0: Array, s1: Array, s2: Array, scaled: Array) -> Array:
    """fma(s0, s1, s2), scaled back where ``scaled`` says so, before the one rounding: subnormal quotients come out right."""
    step, _, _, middle, *_ = _DIVISION[k]
    if not scaled.any():
        return FMA[k](s0, s1, s2)
    return scaled_fma(s0, s1, s2, np.where(scaled, np.where(exponent_field(s2, k) > middle, step, -step), 0), k)


def div_fixup(k: str, s0: Array, s1: Array, s2: Array) -> Array:
    """The quotient s0 = s2 / s1 with the special cases put right.

    The manuals' condition for overflow (a denominator of the exponent of infinity) can't be met at its place, and quotients far above the
    range arrive as NaN: here it is the exponents' difference, from which on every quotient is too large.
    """
    *_, underflow, overflow = _DIVISION.get(k, (0, 0, 0, 0, 0, 0))
    s0, s1, s2 = np.broadcast_arrays(s0, s1, s2)
    float_, uint = FLOAT[k], UINT[k]
    bits = np.dtype(uint).itemsize * 8
    sign = (s1.view(uint) ^ s2.view(uint)) & uint(1 << (bits - 1))
    e1, e2 = exponent_field(s1, k), exponent_field(s2, k)
    out = np.abs(s0)
    if k != "f16":
        out = np.where(e2 - e1 > overflow, float_(np.inf), out)
        out = np.where(e2 - e1 < underflow, float_(0), out)
    zero1, zero2, inf1, inf2 = s1 == 0, s2 == 0, np.isinf(s1), np.isinf(s2)
    out = np.where(inf1 | zero2, float_(0), out)
    out = np.where(zero1 | inf2, float_(np.inf), out)
    out = ((out.view(uint) & uint((1 << (bits - 1)) - 1)) | sign).view(float_)
    invalid = (zero1 & zero2) | (inf1 & inf2)
    nan = np.array((1 << bits) - (1 << {"f16": 9, "f32": 22, "f64": 51}[k]), uint).view(float_)
    out = np.where(invalid, nan, out)
    out = np.where(np.isnan(s1), quiet(s1, k), out)
    return np.where(np.isnan(s2), quiet(s2, k), out)


def _fixup(k: str) -> Function:
    return lambda a, b, c: div_fixup(k, a, b, c)


for k in ALL:
    lanewise(f"v_div_fixup_{k}", out=k, of=(k, k, k), f=_fixup(k), keeps_half=True)
