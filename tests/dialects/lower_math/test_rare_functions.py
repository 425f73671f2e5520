"""libdevice's rarer functions, executed on the host: integers and bits exactly, Bessel functions by absolute error, special values."""

import math

import mpmath
import numpy as np
import pytest
from math_harness import DTYPE, compile_loop

FLOATS = ("f32", "f64")


def numbers(type, n=4000):
    rng = np.random.default_rng()
    dtype = DTYPE[type]
    info = np.finfo(dtype)
    with np.errstate(all="ignore"):
        x = (rng.uniform(1, 2, n) * np.exp2(rng.integers(int(np.log2(info.smallest_subnormal)), int(np.log2(info.max)), n)) * rng.choice([-1, 1], n)).astype(dtype)
    x[:12] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, info.max, info.tiny, info.smallest_subnormal, 0.5, 2.5]
    return x


def same(got, want):
    np.testing.assert_array_equal(got, want)
    kept = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[kept]), np.signbit(want[kept]))


@pytest.mark.parametrize("type, bits", [("i32", 32), ("i64", 64)])
def test_bits_of_integers(type, bits):
    rng = np.random.default_rng()
    x = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), 2000, dtype=np.int64 if bits == 64 else np.int32)
    x = np.concatenate([x, np.array([0, 1, -1, 2, 1 << (bits - 2), -(1 << (bits - 1))], x.dtype), x[:500] >> rng.integers(0, bits, 500).astype(x.dtype)])
    words = [int(v) & ((1 << bits) - 1) for v in x]
    np.testing.assert_array_equal(compile_loop("popc", type)(x), [bin(w).count("1") for w in words])
    np.testing.assert_array_equal(compile_loop("clz", type)(x), [bits - w.bit_length() for w in words])
    np.testing.assert_array_equal(compile_loop("ffs", type)(x), [(w & -w).bit_length() for w in words])
    reverse = [int(f"{w:0{bits}b}"[::-1], 2) for w in words]
    np.testing.assert_array_equal(compile_loop("brev", type)(x).view(np.uint64 if bits == 64 else np.uint32), reverse)


def test_byte_perm():
    rng = np.random.default_rng()
    x, y, s = (rng.integers(-(2**31), 2**31, 1000, dtype=np.int32) for _ in range(3))
    want = []
    for a, b, k in zip(x, y, s):
        data = int(a).to_bytes(4, "little", signed=True) + int(b).to_bytes(4, "little", signed=True)
        want.append(int.from_bytes(bytes(data[(int(k) & 0xFFFFFFFF) >> 4 * i & 7] for i in range(4)), "little", signed=True))
    np.testing.assert_array_equal(compile_loop("byte_perm", "i32")(x, y, s), want)


@pytest.mark.parametrize("type", FLOATS)
def test_nextafter(type):
    x, y = numbers(type), np.roll(numbers(type), 5)
    y[100:200] = x[100:200]
    with np.errstate(all="ignore"):
        same(compile_loop("nextafter", type)(x, y), np.nextafter(x, y))


@pytest.mark.parametrize("type", FLOATS)
def test_exponents(type):
    x = numbers(type)
    got, levels = compile_loop("ilogb", type)(x), compile_loop("logb", type)(x)
    for value, exponent, level in zip(x, got, levels):
        if np.isnan(value):
            assert exponent == -(2**31) and np.isnan(level)
        elif value == 0 or np.isinf(value):
            assert exponent == (-(2**31) if value == 0 else 2**31 - 1) and level == (-np.inf if value == 0 else np.inf)
        else:
            assert exponent == level == math.frexp(float(value))[1] - 1


@pytest.mark.parametrize("type", FLOATS)
@pytest.mark.parametrize("name", ["ldexp", "scalbn"])
def test_scaling_rounds_once(name, type):
    x = numbers(type)
    rng = np.random.default_rng()
    exponents = np.array([0 if v == 0 or not np.isfinite(v) else math.frexp(float(v))[1] for v in x])
    least, top = (-149, 128) if type == "f32" else (-1074, 1024)
    n = (rng.integers(least - 3, top + 3, len(x)) - exponents).astype(np.int32)  # results of every size, subnormal ones among them
    n[:40:2] = rng.choice([2**31 - 1, -(2**31), 0, 1, -1], 20)
    with np.errstate(all="ignore"):
        same(compile_loop(name, type)(x, n), np.ldexp(x, n).astype(DTYPE[type]))


@pytest.mark.parametrize("type", FLOATS)
def test_to_integers(type):
    x = (np.random.default_rng().standard_normal(2000) * 1e6).astype(DTYPE[type])
    x[:9] = [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.49999997, 2.0**22 + 0.5, -0.0]
    np.testing.assert_array_equal(compile_loop("llrint", type)(x), np.rint(x).astype(np.int64))
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(compile_loop("llround", type)(x), np.copysign(np.floor(np.abs(wide) + 0.5), wide).astype(np.int64))


@pytest.mark.parametrize("type", FLOATS)
def test_remainder_is_exact(type):
    rng = np.random.default_rng()
    x, y = numbers(type), np.roll(numbers(type), 7)
    near = slice(200, 1500)  # quotients of moderate size, ties among them
    y[near] = rng.choice(numbers(type)[20:], 1300)
    with np.errstate(all="ignore"):
        x[near] = (y[near] * (rng.integers(-9, 10, 1300) / 2)).astype(x.dtype)
    large = slice(1500, 1900)  # divisors near the range's end, where their double or their multiples overflow
    y[large] = np.ldexp(rng.uniform(0.5, 1, 400), {"f32": 128, "f64": 1024}[type] - rng.integers(0, 4, 400)).astype(x.dtype)
    with np.errstate(over="ignore"):
        x[large] = np.nan_to_num((y[large] * rng.choice([0.5, 0.75, 1, 1.5, 2.5, 3.5, 5.5], 400)).astype(x.dtype))
    want = []
    for a, b in zip(x.astype(np.float64), y.astype(np.float64)):
        try:
            want.append(math.remainder(a, b))
        except ValueError:
            want.append(math.nan)
    same(compile_loop("remainder", type)(x, y), np.array(want).astype(DTYPE[type]))


@pytest.mark.parametrize("type, names", [(t, n) for t in FLOATS for n in (("add_rn", np.add), ("sub_rn", np.subtract), ("mul_rn", np.multiply))])
def test_sums_and_products_that_never_fuse(type, names):
    x, y = numbers(type), np.roll(numbers(type), 3)
    with np.errstate(all="ignore"):
        same(compile_loop(names[0], type)(x, y), names[1](x, y))


BESSEL = {"j0": lambda x: mpmath.besselj(0, x), "j1": lambda x: mpmath.besselj(1, x), "y0": lambda x: mpmath.bessely(0, x), "y1": lambda x: mpmath.bessely(1, x)}


@pytest.mark.parametrize("type, bound", [("f32", 2.0**-24), ("f64", 4e-15)])
@pytest.mark.parametrize("name", BESSEL)
def test_bessel_functions(name, type, bound):
    """Absolute error where the function is below 1, relative beyond (y near 0); j's relative error near its first zeros."""
    rng = np.random.default_rng()
    x = np.concatenate([rng.uniform(0, 9, 150), rng.uniform(8, 200, 60), np.exp(rng.uniform(-30, 3, 60)), [1e6, 7.999999, 8.0, 8.000001]]).astype(DTYPE[type])
    if name[0] == "j":
        x = np.concatenate([x, -x])
    got = compile_loop(name, type)(x)
    for value, result in zip(x, got):
        with mpmath.workprec(160):
            exact = BESSEL[name](mpmath.mpf(float(value)))
            scale = max(1.0, abs(float(exact)))
            assert abs(float(result - exact)) <= scale * bound * (1 + abs(float(value)) * 2e-3 * (type == "f64")), (value, result, float(exact))
    if name[0] == "j":
        with mpmath.workprec(160):
            for i in (1, 2):
                zero = DTYPE[type](float(mpmath.besseljzero(int(name[1]), i)))
                exact = BESSEL[name](mpmath.mpf(float(zero)))
                assert abs(float(compile_loop(name, type)(np.array([zero]))[0] / exact - 1)) < (1e-6 if type == "f32" else 1e-12)


@pytest.mark.parametrize("type", FLOATS)
def test_special_values(type):
    inf, nan = math.inf, math.nan
    cases = {"j0": {0.0: 1.0, inf: 0.0, -inf: 0.0, nan: nan}, "j1": {0.0: 0.0, inf: 0.0, nan: nan}, "y0": {0.0: -inf, -1.0: nan, inf: 0.0, nan: nan, -inf: nan},
             "y1": {0.0: -inf, -1.0: nan, inf: 0.0, nan: nan}, "lgamma": {0.0: inf, 1.0: 0.0, 2.0: 0.0, -1.0: inf, -7.0: inf, inf: inf, -inf: inf, nan: nan},
             "tgamma": {0.0: inf, 1.0: 1.0, 5.0: 24.0, -1.0: nan, -4.0: nan, inf: inf, nan: nan, 200.0: inf, -200.5: 0.0},
             "erfinv": {0.0: 0.0, 1.0: inf, -1.0: -inf, 1.5: nan, nan: nan}, "erfcinv": {0.0: inf, 1.0: 0.0, 2.0: -inf, -0.5: nan, 3.0: nan, nan: nan},
             "erfcx": {0.0: 1.0, inf: 0.0, -inf: inf, -30.0: inf, nan: nan}, "normcdf": {0.0: 0.5, inf: 1.0, -inf: 0.0, nan: nan},
             "normcdfinv": {0.0: -inf, 1.0: inf, 0.5: 0.0, -1.0: nan, nan: nan}, "cyl_bessel_i0": {0.0: 1.0, inf: inf, -inf: inf, nan: nan, 800.0: inf},
             "cyl_bessel_i1": {0.0: 0.0, inf: inf, -inf: -inf, nan: nan}, "sinpi": {0.0: 0.0, 1.0: 0.0, 0.5: 1.0, 1.5: -1.0, inf: nan, 1e20: 0.0},
             "cospi": {0.0: 1.0, 1.0: -1.0, 0.5: 0.0, inf: nan, 1e20: 1.0}, "rcbrt": {8.0: 0.5, 0.0: inf, inf: 0.0, nan: nan}}
    for name, table in cases.items():
        got = compile_loop(name, type)(np.array(list(table)))
        np.testing.assert_allclose(got, np.array(list(table.values()), DTYPE[type]), rtol=3e-16, err_msg=name)
    assert compile_loop("tgamma", type)(np.array([-0.0]))[0] == -inf and compile_loop("lgamma", type)(np.array([-0.0]))[0] == inf


@pytest.mark.parametrize("type", FLOATS)
@pytest.mark.parametrize("name, reference", [("jn", mpmath.besselj), ("yn", mpmath.bessely)])
def test_bessel_functions_of_any_order(name, reference, type):
    rng = np.random.default_rng()
    n = np.concatenate([rng.integers(-30, 30, 60), rng.integers(-400, 400, 20)]).astype(np.int32)
    x = np.concatenate([rng.uniform(0, 60, 30), rng.exponential(1, 15), 10.0 ** rng.uniform(-12, 0, 15), rng.uniform(0, 900, 20)])
    x = (x * (rng.choice([-1, 1], len(x)) if name == "jn" else 1)).astype(DTYPE[type])
    if name == "yn":  # whose reference is slow
        n, x = n[::3], x[::3]
    got = compile_loop(name, type)(n, x)
    eps = float(np.finfo(DTYPE[type]).eps)
    for k, at, g in zip(n.tolist(), x.tolist(), got.tolist()):
        with mpmath.workprec(120):
            exact = reference(k, mpmath.mpf(at))
        if abs(exact) > np.finfo(DTYPE[type]).max:
            assert math.isinf(g) and (g > 0) == (exact > 0), (k, at, g, exact)
        else:  # beside the function's size: absolute near its zeros, relative where it falls off or grows
            envelope = abs(exact) if abs(at) < abs(k) else max(abs(exact), mpmath.mpf(1) / mpmath.sqrt(abs(at) + 1))
            allowed = envelope * (4 * eps + 2e-16 * (20 + abs(k) + abs(at) / 4)) + float(np.finfo(DTYPE[type]).smallest_subnormal)
            assert abs(mpmath.mpf(g) - exact) <= allowed, (k, at, g, float(exact), float(abs(mpmath.mpf(g) - exact) / envelope))


@pytest.mark.parametrize("type", FLOATS)
def test_bessel_functions_of_any_order_at_special_arguments(type):
    x = np.array([0.0, np.inf, -np.inf, np.nan, 1.0, 1e-30], DTYPE[type])
    jn, yn = compile_loop("jn", type), compile_loop("yn", type)
    for n in (2, 3, -3, 5, 2**31 - 1, -(2**31)):
        order = np.full(len(x), n, np.int32)
        j, y = jn(order, x), yn(order, x)
        assert j[0] == j[1] == j[2] == 0 and np.isnan(j[3]) and abs(j[5]) < 1e-40
        sign = -1 if n < 0 and n % 2 else 1
        assert y[0] == -np.inf * sign and y[1] == 0 and np.isnan(y[2]) and np.isnan(y[3]) and y[5] * sign < -1e29
