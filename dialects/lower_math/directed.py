"""Roundings down, up and towards zero of sums, products, quotients, fma, roots, reciprocals and conversions; rcp64h.

Each function computes a result r next to the exact one by usual instructions, then on which side of r the exact one lies, without
error, and moves r by one place where it lies on the wrong side. The side is the sign of a remainder that is exact, or rounded once
(which keeps its sign):

- a sum's by ordering the operands by magnitude (T. J. Dekker, "A floating-point technique for extending the available precision", 1971);
- f32 in f64, where the product of two f32 is exact;
- f64 by fma on significands in [1, 2), so that nothing overflows and nothing that counts underflows;
- fma's in f64 by the sum of four terms without error (J. R. Shewchuk, "Adaptive precision floating-point arithmetic", 1997, section 2).

Right for subnormal numbers, overflow (rounded down, what is beyond the largest number is that number), infinities, NaN, and the signs
of zeros (an exact zero sum of unlike signs is -0 when rounded down, IEEE 754, 6.3). No branches: lanes can be built from them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.dialects.lower_math.basic import bits_of, unary
from tilewright.dialects.lower_math.registry import defined

MODES = ("rd", "ru", "rz")
Side = tuple[Any, Any]  # (whether the exact value is below r, whether it is above), i1s


def _element(x: Any) -> str:
    return str(x.type).rpartition("x")[2].rstrip(">")


def _negative(b: Any, x: Any) -> Any:
    word, type = bits_of(b, x)
    return b.icmp("slt", word, b.const(type, 0))


def _moved(b: Any, mode: str, r: Any, side: Side) -> Any:
    """r, or its neighbour where the exact value's rounding is that."""
    below, above = side
    negative = _negative(b, r)
    word, type = bits_of(b, r)
    smaller, larger = (b.bitcast(b.add(word, b.const(type, d)), r.type) for d in (-1, 1))  # in magnitude
    if mode == "rd":
        return b.select(below, b.select(negative, larger, smaller), r)
    if mode == "ru":
        return b.select(above, b.select(negative, smaller, larger), r)
    return b.select(b.select(negative, above, below), smaller, r)


def _finite(b: Any, *values: Any) -> Any:
    found = None
    for x in values:
        this = b.fcmp("olt", b.fabs(x), b.const(x.type, math.inf))
        found = this if found is None else b.and_(found, this)
    return found


def _side(b: Any, r: Any, remainder: Any, usual: Any) -> Side:
    """From a remainder with the sign of exact - r; of an infinite r (of finite operands) the exact value is nearer to zero. Where not
    ``usual`` r is exact."""
    zero = b.const(remainder.type, 0.0)
    over = b.fcmp("oeq", b.fabs(r), b.const(r.type, math.inf))
    negative = _negative(b, r)
    inside = b.xor(negative, b.i1(1))
    below = b.select(over, inside, b.fcmp("olt", remainder, zero))
    above = b.select(over, negative, b.fcmp("ogt", remainder, zero))
    return b.and_(below, usual), b.and_(above, usual)


def _zero_down(b: Any, mode: str, result: Any, exact_zero: Any, any_negative: Any) -> Any:
    """A sum that is exactly 0: rounded down -0, unless both terms are +0."""
    if mode != "rd":
        return result
    zero = b.select(any_negative, b.const(result.type, -0.0), b.const(result.type, 0.0))
    return b.select(exact_zero, zero, result)


# ------------------------------------------------------------------------------------------------ significands of f64
def _split(b: Any, x: Any) -> tuple[Any, Any]:
    """(significand with x's sign and a magnitude in [1, 2), exponent as an i64) of a finite x; of 0 something finite."""
    small = b.fcmp("olt", b.fabs(x), b.const(x.type, 2.0**-1022))
    word = b.bitcast(b.select(small, b.fmul(x, b.const(x.type, 2.0**64)), x), b.t_i64)
    field = b.and_(b.lshr(word, b.i64(52)), b.i64(0x7FF))
    exponent = b.sub(field, b.select(small, b.i64(1023 + 64), b.i64(1023)))
    significand = b.or_(b.and_(word, b.i64(-0x7FF0000000000001)), b.i64(1023 << 52))
    return b.bitcast(significand, b.t_f64), exponent


def _power(b: Any, exponent: Any, most: int = 600) -> Any:
    """2^exponent of an i64, limited to 2^-most … 2^most: beyond, only the sign of what is multiplied matters."""
    low, high = b.i64(-most), b.i64(most)
    exponent = b.select(b.icmp("slt", exponent, low), low, b.select(b.icmp("sgt", exponent, high), high, exponent))
    return b.bitcast(b.shl(b.add(exponent, b.i64(1023)), b.i64(52)), b.t_f64)


def _or_zero(b: Any, condition: Any, value: Any) -> Any:
    """0 where ``condition``."""
    return b.select(condition, b.const(value.type, 0.0), value)


def _is_zero(b: Any, x: Any) -> Any:
    return b.fcmp("oeq", x, b.const(x.type, 0.0))


def _two_sum(b: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """(rounded sum, its error), whichever is larger."""
    total = b.fadd(x, y)
    virtual = b.fsub(total, x)
    return total, b.fadd(b.fsub(x, b.fsub(total, virtual)), b.fsub(y, virtual))


# ------------------------------------------------------------------------------------------------------ operations
def _add(b: Any, mode: str, x: Any, y: Any) -> Any:
    r = b.fadd(x, y)
    order = b.fcmp("ogt", b.fabs(y), b.fabs(x))
    large, small = b.select(order, y, x), b.select(order, x, y)
    remainder = b.fsub(small, b.fsub(r, large))
    result = _moved(b, mode, r, _side(b, r, remainder, _finite(b, x, y)))
    return _zero_down(b, mode, result, _is_zero(b, r), b.or_(_negative(b, x), _negative(b, y)))  # no sum underflows: 0 is exact


def _sub(b: Any, mode: str, x: Any, y: Any) -> Any:
    return _add(b, mode, x, b.fneg(y))


def _wide(b: Any, *values: Any) -> list[Any]:
    return [b.fpext(v, b.t_f64) for v in values]


def _mul(b: Any, mode: str, x: Any, y: Any) -> Any:
    usual = _finite(b, x, y)
    if _element(x) == "f32":
        exact = b.fmul(*_wide(b, x, y))
        r = b.fptrunc(exact, x.type)
        return _moved(b, mode, r, _side(b, r, b.fsub(exact, b.fpext(r, b.t_f64)), usual))
    r = b.fmul(x, y)
    none = b.or_(_is_zero(b, x), _is_zero(b, y))
    (mx, ex), (my, ey), (mr, er) = (_split(b, v) for v in (x, y, r))
    scaled = _or_zero(b, _is_zero(b, r), b.fmul(mr, _power(b, b.sub(er, b.add(ex, ey)))))
    remainder = _or_zero(b, none, b.fma(mx, my, b.fneg(scaled)))
    return _moved(b, mode, r, _side(b, r, remainder, usual))


def _div(b: Any, mode: str, x: Any, y: Any) -> Any:
    usual = b.and_(_finite(b, x, y), b.xor(_is_zero(b, y), b.i1(1)))
    if _element(x) == "f32":
        wx, wy = _wide(b, x, y)
        r = b.fptrunc(b.fdiv(wx, wy), x.type)
        remainder = b.fsub(wx, b.fmul(b.fpext(r, b.t_f64), wy))
    else:
        r, wy = b.fdiv(x, y), y
        (mx, ex), (my, ey), (mr, er) = (_split(b, v) for v in (x, y, r))
        scaled = b.fmul(mx, _power(b, b.sub(ex, b.add(er, ey))))
        remainder = b.select(_is_zero(b, r), mx, b.fma(b.fneg(mr), my, scaled))
        remainder = _or_zero(b, _is_zero(b, x), remainder)
    remainder = b.select(_negative(b, wy), b.fneg(remainder), remainder)
    return _moved(b, mode, r, _side(b, r, remainder, usual))


def _rcp(b: Any, mode: str, x: Any) -> Any:
    return _div(b, mode, b.const(x.type, 1.0), x)


def _sqrt(b: Any, mode: str, x: Any) -> Any:
    usual = b.and_(_finite(b, x), b.fcmp("ogt", x, b.const(x.type, 0.0)))
    if _element(x) == "f32":
        (wide,) = _wide(b, x)
        r = b.fptrunc(unary(b, "llvm.intr.sqrt", wide), x.type)
        (root,) = _wide(b, r)
        remainder = b.fsub(wide, b.fmul(root, root))
    else:
        r = unary(b, "llvm.intr.sqrt", x)
        (mx, ex), (mr, er) = (_split(b, v) for v in (x, r))
        remainder = b.fma(b.fneg(mr), mr, b.fmul(mx, _power(b, b.sub(ex, b.add(er, er)))))
    return _moved(b, mode, r, _side(b, r, remainder, usual))


def _fma(b: Any, mode: str, x: Any, y: Any, z: Any) -> Any:
    r = b.fma(x, y, z)
    usual = _finite(b, x, y, z)
    if _element(x) == "f32":
        wx, wy, wz, wr = _wide(b, x, y, z, r)
        total, error = _two_sum(b, b.fmul(wx, wy), wz)
        remainder = b.fadd(b.fsub(total, wr), error)  # the difference is exact: they are next to each other
    else:
        none, alone = b.or_(_is_zero(b, x), _is_zero(b, y)), _is_zero(b, z)
        (mx, ex), (my, ey), (mz, ez), (mr, er) = (_split(b, v) for v in (x, y, z, r))
        product = b.add(ex, ey)
        # all relative to the larger term, the smaller one no less than 2^-300 of it: there its sign alone counts
        unit = b.select(b.or_(alone, b.and_(b.icmp("sgt", product, ez), b.xor(none, b.i1(1)))), product, ez)
        px = _or_zero(b, none, b.fmul(mx, _power(b, b.sub(product, unit), 300)))
        pz = _or_zero(b, alone, b.fmul(mz, _power(b, b.sub(ez, unit), 300)))
        pr = _or_zero(b, _is_zero(b, r), b.fmul(mr, _power(b, b.sub(er, unit))))
        high = b.fmul(px, my)
        terms = [b.fma(px, my, b.fneg(high)), high]  # the least first, none overlapping another
        for new in (pz, b.fneg(pr)):
            grown = []
            for term in terms:
                new, error = _two_sum(b, new, term)
                grown.append(error)
            terms = [*grown, new]
        remainder = terms[0]
        for term in terms[1:]:  # the sign is that of the largest that is not 0
            remainder = b.select(_is_zero(b, term), remainder, term)
    result = _moved(b, mode, r, _side(b, r, remainder, usual))
    factors = b.xor(_negative(b, x), _negative(b, y))
    exact_zero = b.and_(usual, b.and_(_is_zero(b, r), _is_zero(b, remainder)))
    return _zero_down(b, mode, result, exact_zero, b.or_(factors, _negative(b, z)))


_OPERATIONS: dict[str, tuple[Callable[..., Any], int]] = {"add": (_add, 2), "sub": (_sub, 2), "mul": (_mul, 2), "div": (_div, 2),
                                                        "fma": (_fma, 3), "sqrt": (_sqrt, 1), "rcp": (_rcp, 1)}


# ------------------------------------------------------------------------------------------------------ conversions
def _narrowed(b: Any, mode: str, total: Any, error: Any | None) -> Any:
    """total + error of f64, of which total is the rounded value, as an f32."""
    r = b.fptrunc(total, b.t_f32)
    remainder = b.fsub(total, b.fpext(r, b.t_f64))
    remainder = remainder if error is None else b.fadd(remainder, error)
    return _moved(b, mode, r, _side(b, r, remainder, _finite(b, total)))


def _from_32(b: Any, mode: str, k: Any, signed: bool) -> Any:
    return _narrowed(b, mode, b.sitofp((b.sext if signed else b.zext)(k, b.t_i64), b.t_f64), None)


def _from_64(b: Any, mode: str, k: Any, signed: bool, to: str) -> Any:
    high = (b.ashr if signed else b.lshr)(k, b.i64(32))
    large = b.fmul(b.sitofp(high, b.t_f64), b.const(b.t_f64, 2.0**32))
    small = b.sitofp(b.and_(k, b.i64(0xFFFFFFFF)), b.t_f64)
    total = b.fadd(large, small)
    error = b.fsub(small, b.fsub(total, large))
    if to == "float":
        return _narrowed(b, mode, total, error)
    return _moved(b, mode, total, _side(b, total, error, _finite(b, total)))


def _apart(build: Callable[..., Any], *fixed: Any, **more: Any) -> Callable[..., Any]:
    """A function for the table, none of whose operations may be contracted."""

    def run(b: Any, *args: Any) -> Any:
        with b.no_contract():
            return build(b, *fixed, *args, **more)

    return run


for _mode in MODES:
    for _name, (_build, _arity) in _OPERATIONS.items():
        defined(f"{_name}_{_mode}", "f32", "f64", ulp=1.0, arity=_arity)(_apart(_build, _mode))
    defined(f"double2float_{_mode}", "f64", ulp=1.0)(_apart(_narrowed, _mode, error=None))
    for _signed in (True, False):
        _u = "" if _signed else "u"
        defined(f"{_u}int2float_{_mode}", "i32", ulp=1.0)(_apart(_from_32, _mode, signed=_signed))
        for _to in ("float", "double"):
            defined(f"{_u}ll2{_to}_{_mode}", "i64", ulp=1.0)(_apart(_from_64, _mode, signed=_signed, to=_to))


@defined("rcp64h", "f64")
def rcp64h(b: Any, x: Any) -> Any:
    """1/x of the high 32 bits of x, in the high 32 bits of the result (to the nearest; the low 32 are 0); subnormal x and results are 0."""
    with b.no_contract():
        high = b.bitcast(b.and_(b.bitcast(x, b.t_i64), b.i64(-(1 << 32))), b.t_f64)
        least = b.const(b.t_f64, 2.0**-1022)
        high = b.select(b.fcmp("olt", b.fabs(high), least), b.copysign(b.const(b.t_f64, 0.0), x), high)
        word = b.bitcast(b.fdiv(b.const(b.t_f64, 1.0), high), b.t_i64)
        rounded = b.bitcast(b.and_(b.add(word, b.i64(1 << 31)), b.i64(-(1 << 32))), b.t_f64)
        rounded = b.select(b.fcmp("olt", b.fabs(rounded), least), b.copysign(b.const(b.t_f64, 0.0), x), rounded)
        return b.select(b.fcmp("uno", x, x), b.const(b.t_f64, math.nan), rounded)
