"""The portable math functions: executed on the host, against mpmath in units in the last place, and at special values."""

import math
import warnings

import numpy as np
import pytest
from math_harness import DTYPE, compile_loop, draw, measured, ulp_errors

from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.dialects.lower_math import functions, lookup


@pytest.mark.parametrize("name,type", measured(), ids=lambda x: x)
def test_error_is_below_what_is_stated(name, type):
    errors = ulp_errors(name, type, draw(name, type, 400))
    # 0.5 is the least any function can promise; the measurement itself rounds
    assert errors.max() <= max(functions()[name, type].ulp, 0.5) + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name,type", measured(), ids=lambda x: x)
def test_error_is_below_what_is_stated_on_many_more(name, type):
    errors = ulp_errors(name, type, draw(name, type, 8000, seed=11))
    assert errors.max() <= max(functions()[name, type].ulp, 0.5) + 1e-6


SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1e30, -1e30]
NUMPY = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "erf": np.vectorize(math.erf), "erfc": np.vectorize(math.erfc), "pow": np.power, "cbrt": np.cbrt, "hypot": np.hypot,
    "sqrt": np.sqrt, "fmod": np.fmod, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "fabs": np.abs,
    "copysign": np.copysign, "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}
CASES = [(n, t) for n, t in sorted(functions()) if n in NUMPY and t in ("f32", "f64")]


@pytest.mark.parametrize("name,type", CASES, ids=lambda x: x)
def test_special_values(name, type):
    """NaN, infinity and the sign of zero as C has them."""
    dtype = DTYPE[type]
    values = np.array(SPECIAL, dtype)
    arguments = [values] if functions()[name, type].arity == 1 else [a.ravel() for a in np.meshgrid(values, values)]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = NUMPY[name](*(a.astype(np.float64) for a in arguments)).astype(dtype)
    got = compile_loop(name, type)(*arguments)
    bad = [i for i in range(len(got)) if not (
        np.isnan(got[i]) and np.isnan(want[i]) or np.isclose(got[i], want[i], rtol=1e-5, atol=0)
        and np.signbit(got[i]) == np.signbit(want[i]))]
    assert not bad, [([a[i] for a in arguments], got[i], want[i]) for i in bad]


@pytest.mark.parametrize("type", ["f32", "f64"])
def test_fmod_is_exact(type):
    rng = np.random.default_rng(0)
    dtype = DTYPE[type]
    x = (rng.standard_normal(4000) * 2.0 ** rng.integers(-30, 30, 4000)).astype(dtype)
    y = (rng.standard_normal(4000) * 2.0 ** rng.integers(-30, 30, 4000)).astype(dtype)
    tiny = np.finfo(dtype).smallest_subnormal
    x[:200] = (rng.integers(0, 1000, 200) * tiny).astype(dtype)
    y[:200] = (rng.integers(1, 50, 200) * tiny).astype(dtype)
    x[200:300] = np.finfo(dtype).max
    y[300:350] = (rng.integers(1, 50, 50) * tiny).astype(dtype)
    x[350:400] = np.finfo(dtype).tiny * rng.uniform(1, 8, 50)
    y[350:400] = np.finfo(dtype).tiny * rng.uniform(0.1, 2, 50)
    want = np.array([math.fmod(float(a), float(b)) for a, b in zip(x, y)], dtype)
    np.testing.assert_array_equal(compile_loop("fmod", type)(x, y), want)


def test_rounding():
    x = np.concatenate([np.arange(-40, 41) / 8, [2.0**23 + 1, -(2.0**22) - 0.5, 0.49999997, 8388607.5]]).astype(np.float32)
    np.testing.assert_array_equal(compile_loop("rint", "f32")(x), np.rint(x))
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(compile_loop("round", "f32")(x), np.copysign(np.floor(np.abs(wide) + 0.5), wide))


def test_predicates():
    x = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], np.float32)
    for name, fn in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite), ("signbit", np.signbit)):
        np.testing.assert_array_equal(compile_loop(name, "f32")(x)[:-1], fn(x)[:-1])
    assert compile_loop("isnan", "f32")(x)[-1] == 1


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_large_f64_arguments(name):
    """Among them the worst known of that size, and both sides of the switch between the reductions."""
    x = np.array([6381956970095103.0 * 2.0**797, 2.0**30, np.nextafter(2.0**30, 0), 1e22, 1e300, np.finfo(np.float64).max, 2.0**52 + 1])
    x = np.concatenate([x, -x])
    assert ulp_errors(name, "f64", [x]).max() <= functions()[name, "f64"].ulp


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_arguments_of_every_size(name):
    """The worst known argument (nearest to a multiple of pi/2), the switch between the reductions, and the largest numbers."""
    x = np.array([16367173.0 * 2.0**72, 105614.99, 105615.0, 105616.0, 3.4028235e38, 1e22, 2.0**100, 411775.0, 1.5707964, 3.1415927e7],
                 np.float32)
    x = np.concatenate([x, -x])
    assert ulp_errors(name, "f32", [x]).max() <= functions()[name, "f32"].ulp


def test_exp_flushes_subnormal_results_and_nothing_else():
    for name, low in (("exp", -87.33654), ("exp2", -126.0)):
        x = np.array([low, np.nextafter(np.float32(low), np.float32(-np.inf)) - 0.01, -100.0 if name == "exp" else -140.0], np.float32)
        y = compile_loop(name, "f32")(x)
        assert y[0] >= np.finfo(np.float32).tiny and y[1] == 0 and y[2] == 0


def test_what_is_not_there_is_named():
    with pytest.raises(UnsupportedOnTargetError, match="no math function 'zeta'; there are .*erf"):
        lookup("zeta", "f32")
    with pytest.raises(UnsupportedOnTargetError, match="'finitef' is not there for f64, only for f32"):
        lookup("finitef", "f64")
    assert lookup("exp", "bf16").type == "f32" and lookup("floor", "f16").type == "f16"
