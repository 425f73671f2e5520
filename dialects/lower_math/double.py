"""f64: exp, exp2, expm1, log, log2, log10, log1p, tanh, sinh, cosh — to a few units in the last place.

As in f32, with longer polynomials. Subnormal results of exp and exp2 are flushed.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.lower_math.basic import unary
from tilewright.dialects.lower_math.exponential import polynomial
from tilewright.dialects.lower_math.registry import defined

LOG2E, LN2 = 1.4426950408889634, 0.6931471805599453
LN2_HI, LN2_LO = 0.6931471803691238, 1.9082149292705877e-10  # the first has 32 bits
_EXP = (0.5, 0.16666666666666685, 0.04166666666666673, 0.008333333333316758, 0.0013888888888858157, 0.00019841269897010803,
        2.4801587374230097e-05, 2.755723428390155e-06, 2.7557232988651533e-07, 2.5112223766582342e-08, 2.0927046466163907e-09)
_EXP2 = (0.6931471805599453, 0.24022650695910072, 0.0555041086648217, 0.009618129107628479, 0.001333355814638979,
         0.00015403530393374282, 1.5252733856869821e-05, 1.3215486804193408e-06, 1.0178050937725484e-07, 7.05489961148719e-09,
         4.4567160413236166e-10, 2.5725243130721564e-11)
_LOG = (0.3333333333333334, -0.250000000000004, 0.19999999999995402, -0.16666666666539595, 0.14285714286356233,
        -0.1250000001529434, 0.11111111074690398, -0.09999999046932559, 0.09090909807202309, -0.08333367920138335,
        0.07692322082303617, -0.07142094898445951, 0.06665634240889264, -0.06260056833019734, 0.05904904278400301,
        -0.054840965417278675, 0.05017094495779937, -0.051572912834149866, 0.06061914599548019, -0.054960147016047324,
        0.023143396964912993)



def _c(b: Any, value: float) -> Any:
    return b.const(b.t_f64, value)


def _scale(b: Any, x: Any, n: Any) -> Any:
    """x 2^n for an i64 n where x and the result are normal."""
    return b.bitcast(b.add(b.bitcast(x, b.t_i64), b.shl(n, b.i64(52))), b.t_f64)


def _clamp(b: Any, x: Any, low: float, high: float) -> Any:
    x = b.op("llvm.intr.maxnum", (x, _c(b, low)), (b.t_f64,)).result
    return b.op("llvm.intr.minnum", (x, _c(b, high)), (b.t_f64,)).result


def _finish(b: Any, x: Any, result: Any, low: float, high: float) -> Any:
    result = b.select(b.fcmp("olt", x, _c(b, low)), _c(b, 0.0), result)
    result = b.select(b.fcmp("ogt", x, _c(b, high)), _c(b, float("inf")), result)
    return b.select(b.fcmp("uno", x, x), x, result)


def exp2_inside(b: Any, x: Any) -> Any:
    """2^x for -1022 <= x < 1023.5."""
    n = unary(b, "llvm.intr.rint", x)
    with b.no_contract():
        r = b.fsub(x, n)
    return _scale(b, b.fma(r, polynomial(b, r, _EXP2), _c(b, 1.0)), b.fptosi(n, b.t_i64))


@defined("exp2", "f64", ulp=1.0)
def exp2(b: Any, x: Any) -> Any:
    inside = exp2_inside(b, _clamp(b, x, -1022.0, 1023.9999999999999))
    return _finish(b, x, inside, -1022.0, 1023.9999999999999)


def _reduced(b: Any, x: Any) -> tuple[Any, Any]:
    with b.no_contract():
        n = unary(b, "llvm.intr.rint", b.fmul(x, _c(b, LOG2E)))
    return n, b.fma(n, _c(b, -LN2_LO), b.fma(n, _c(b, -LN2_HI), x))


def _expm1_of_reduced(b: Any, r: Any) -> Any:
    with b.no_contract():
        return b.fma(b.fmul(r, r), polynomial(b, r, _EXP), r)


@defined("exp", "f64", ulp=1.0)
def exp(b: Any, x: Any) -> Any:
    n, r = _reduced(b, _clamp(b, x, -709.0, 710.0))
    with b.no_contract():
        power = b.fadd(_expm1_of_reduced(b, r), _c(b, 1.0))
    return _finish(b, x, _scale(b, power, b.fptosi(n, b.t_i64)), -708.3964185322641, 709.782712893384)


@defined("expm1", "f64", ulp=2.0)
def expm1(b: Any, x: Any) -> Any:
    n, r = _reduced(b, _clamp(b, x, -60.0, 710.0))
    half = b.bitcast(b.shl(b.add(b.fptosi(n, b.t_i64), b.i64(1022)), b.i64(52)), b.t_f64)
    with b.no_contract():
        result = b.fma(half, _expm1_of_reduced(b, r), b.fsub(half, _c(b, 0.5)))
        result = b.fadd(result, result)
    result = b.select(b.fcmp("ogt", x, _c(b, 709.782712893384)), _c(b, float("inf")), result)
    return b.select(b.or_(b.fcmp("uno", x, x), b.fcmp("olt", b.fabs(x), _c(b, 2.0**-54))), x, result)


# ---------------------------------------------------------------------------------------------------- logarithms
def _split(b: Any, x: Any) -> tuple[Any, Any]:
    """(f, e as f64): x = (1 + f) 2^e, 1 + f in [sqrt(1/2), sqrt(2)), for positive finite x."""
    tiny = b.fcmp("olt", x, _c(b, 2.0**-1022))
    with b.no_contract():
        word = b.bitcast(b.select(tiny, b.fmul(x, _c(b, 2.0**52)), x), b.t_i64)
    e = b.ashr(b.sub(word, b.i64(0x3FE6A09E667F3BCD)), b.i64(52))
    m = b.bitcast(b.sub(word, b.shl(e, b.i64(52))), b.t_f64)
    with b.no_contract():
        f = b.fsub(m, _c(b, 1.0))
    return f, b.sitofp(b.sub(e, b.select(tiny, b.i64(52), b.i64(0))), b.t_f64)


def _log_parts(b: Any, f: Any) -> tuple[Any, Any]:
    """log(1 + f) as high + low, high being f - f^2/2 rounded."""
    with b.no_contract():
        square = b.fmul(f, f)
        lost = b.fma(f, f, b.fneg(square))
        half = b.fmul(square, _c(b, -0.5))
        high = b.fadd(f, half)
        low = b.fadd(b.fsub(half, b.fsub(high, f)), b.fmul(b.fmul(square, f), polynomial(b, f, _LOG)))
        return high, b.fma(lost, _c(b, -0.5), low)


def _special(b: Any, x: Any, result: Any) -> Any:
    infinity = _c(b, float("inf"))
    result = b.select(b.fcmp("oeq", x, infinity), infinity, result)
    result = b.select(b.fcmp("ult", x, _c(b, 0.0)), _c(b, float("nan")), result)
    return b.select(b.fcmp("oeq", x, _c(b, 0.0)), _c(b, float("-inf")), result)


def _sum(b: Any, big: Any, small: Any, rest: Any) -> Any:
    """big + small + rest where |big| >= |small| or big is 0."""
    with b.no_contract():
        total = b.fadd(big, small)
        return b.fadd(total, b.fadd(b.fadd(b.fsub(big, total), small), rest))


@defined("log", "f64", ulp=1.0)
def log(b: Any, x: Any) -> Any:
    f, e = _split(b, x)
    high, low = _log_parts(b, f)
    with b.no_contract():
        return _special(b, x, _sum(b, b.fmul(e, _c(b, LN2_HI)), high, b.fma(e, _c(b, LN2_LO), low)))


@defined("log1p", "f64", ulp=2.0)
def log1p(b: Any, x: Any) -> Any:
    with b.no_contract():
        one = _c(b, 1.0)
        u = b.fadd(x, one)
        f, e = _split(b, u)
        lost = b.select(b.fcmp("oge", u, _c(b, 2.0)), b.fsub(one, b.fsub(u, x)), b.fsub(x, b.fsub(u, one)))
        near = b.fcmp("oeq", e, _c(b, 0.0))
        f = b.select(near, x, f)
        lost = b.select(b.or_(near, b.fcmp("oeq", u, _c(b, float("inf")))), _c(b, 0.0), b.fdiv(lost, u))
        high, low = _log_parts(b, f)
        result = _sum(b, b.fmul(e, _c(b, LN2_HI)), high, b.fadd(b.fma(e, _c(b, LN2_LO), low), lost))
        return b.select(b.fcmp("oeq", x, _c(b, 0.0)), x, _special(b, u, result))


def _scaled_log(b: Any, x: Any, scale: tuple[float, float], e_scale: tuple[float, float]) -> Any:
    """log(x) * (scale as a sum) where log(x) = e log 2 + log(1 + f) and e's own factor is given as a sum."""
    f, e = _split(b, x)
    high, low = _log_parts(b, f)
    with b.no_contract():
        product = b.fmul(high, _c(b, scale[0]))
        error = b.fma(high, _c(b, scale[0]), b.fneg(product))
        error = b.fma(high, _c(b, scale[1]), error)
        error = b.fma(low, _c(b, scale[0]), error)
        error = b.fma(e, _c(b, e_scale[1]), error)
        return _sum(b, b.fmul(e, _c(b, e_scale[0])), product, error)


def log2_of_positive(b: Any, x: Any) -> Any:
    """log2 of a positive finite number."""
    return _scaled_log(b, x, (LOG2E, 2.0355273740931033e-17), (1.0, 0.0))


@defined("log2", "f64", ulp=1.0)
def log2(b: Any, x: Any) -> Any:
    return _special(b, x, log2_of_positive(b, x))


@defined("log10", "f64", ulp=1.0)
def log10(b: Any, x: Any) -> Any:
    return _special(b, x, _scaled_log(b, x, (0.4342944819032518, 1.098319650216765e-17), (0.3010299955494702, 1.1451100898021838e-10)))


# ---------------------------------------------------------------------------------------------------- hyperbolic
@defined("tanh", "f64", ulp=3.0)
def tanh(b: Any, x: Any) -> Any:
    """t / (t + 2) with t = e^(2|x|) - 1."""
    magnitude = b.op("llvm.intr.minnum", (b.fabs(x), _c(b, 40.0)), (b.t_f64,)).result
    with b.no_contract():
        t = expm1(b, b.fadd(magnitude, magnitude))
        result = b.fdiv(t, b.fadd(t, _c(b, 2.0)))
    return b.select(b.fcmp("uno", x, x), x, b.copysign(result, x))


@defined("sinh", "f64", ulp=3.0)
def sinh(b: Any, x: Any) -> Any:
    """(t + t / (t + 1)) / 2 with t = e^|x| - 1; by halves where e^|x| overflows before its half."""
    magnitude = b.fabs(x)
    with b.no_contract():
        t = expm1(b, magnitude)
        small = b.fmul(b.fadd(t, b.fdiv(t, b.fadd(t, _c(b, 1.0)))), _c(b, 0.5))
        root = exp(b, b.fmul(magnitude, _c(b, 0.5)))
        large = b.fmul(b.fmul(root, _c(b, 0.5)), root)
    result = b.select(b.fcmp("olt", magnitude, _c(b, 700.0)), small, large)
    return b.select(b.fcmp("uno", x, x), x, b.copysign(result, x))


@defined("cosh", "f64", ulp=3.0)
def cosh(b: Any, x: Any) -> Any:
    magnitude = b.fabs(x)
    with b.no_contract():
        power = exp(b, magnitude)
        small = b.fmul(b.fadd(power, b.fdiv(_c(b, 1.0), power)), _c(b, 0.5))
        root = exp(b, b.fmul(magnitude, _c(b, 0.5)))
        large = b.fmul(b.fmul(root, _c(b, 0.5)), root)
    result = b.select(b.fcmp("olt", magnitude, _c(b, 700.0)), small, large)
    return b.select(b.fcmp("uno", x, x), x, result)
