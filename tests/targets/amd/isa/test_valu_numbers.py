"""The rounding under all float instructions, against rational numbers and torch's formats."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from valu_cases import FLOAT, exact_fma, floats, round_fraction, same

from tilewright.targets.amd.isa import valu_numbers as numbers


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


def _halfway(kind, n, rng):
    """Products and addends whose sum lies at, or next to, the middle between two floats of ``kind``."""
    bits = {"f16": 10, "f32": 23, "f64": 52}[kind]
    type = FLOAT[kind]
    a = (1 + rng.integers(0, 1 << bits, n) * 2.0**-bits).astype(type)
    b = (2.0 ** rng.integers(-3, 4, n)).astype(type)
    half = a.astype(np.float64) * b * 2.0 ** -(bits + 1)
    c = (half * rng.choice([1, -1], n)).astype(type)
    odd = rng.random(n) < 0.5
    return np.where(odd, a, np.nextafter(a, type(2))).astype(type), b, np.where(rng.random(n) < 0.5, c, np.nextafter(c, type(0))).astype(type)


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_fma_rounds_once(kind):
    n = 1500
    rng = np.random.default_rng(1)
    cases = [tuple(floats(kind, n, s) for s in (1, 2, 3)), _halfway(kind, n, rng)]
    # results among the subnormal numbers, and sums that cancel
    a, b = floats(kind, n, 4), floats(kind, n, 5)
    cases.append((a, b, (-(a.astype(np.float64) * b)).astype(FLOAT[kind])))
    tiny = np.finfo(FLOAT[kind]).tiny
    cases.append(((rng.standard_normal(n) * np.sqrt(tiny)).astype(FLOAT[kind]), (rng.standard_normal(n) * np.sqrt(tiny)).astype(FLOAT[kind]),
                  (rng.standard_normal(n) * float(tiny) / 8).astype(FLOAT[kind])))
    for a, b, c in cases:
        got = numbers.FMA[kind](a, b, c)
        expected = np.array([exact_fma(x, y, z, kind) for x, y, z in zip(a, b, c)], FLOAT[kind])
        same(got, expected)


def test_fma_of_float32_is_not_a_sum_in_float64():
    """257 · 65281 = 2^24 + 1 lies in the middle between two float32; what is added is lost in float64, and decides."""
    a, b, c = np.float32(257), np.float32(65281), np.float32(2.0**-40)
    assert np.float32(np.float64(a) * np.float64(b) + np.float64(c)) == 2**24
    assert numbers.fma32(*(np.array([x]) for x in (a, b, c)))[0] == 2**24 + 2
    assert numbers.fma32(*(np.array([x]) for x in (a, b, -c)))[0] == 2**24


def test_fma_broadcasts():
    a, one = floats("f32", 64).reshape(1, 64), np.full((1, 1), 2, np.float32)
    same(numbers.fma32(a, one, one), (a * 2.0 + 2.0).astype(np.float32) + np.zeros((1, 64), np.float32))
    assert numbers.fma64(a.astype(np.float64), one.astype(np.float64), np.ones((3, 1))).shape == (3, 64)


def test_bfloat16_is_torchs():
    x = np.concatenate([floats("f32", 5000), (np.arange(4096, dtype=np.uint32) * 0x8000 + 0x3F7F8000).view(np.float32)])
    expected = torch.from_numpy(x).to(torch.bfloat16)
    got = numbers.f32_to_bf16(x)
    want = expected.view(torch.int16).numpy().view(np.uint16)
    nan = np.isnan(x)
    assert (got[~nan] == want[~nan]).all()
    assert np.isnan(numbers.bf16_to_f32(got[nan])).all() and nan.any()
    assert (numbers.bf16_to_f32(want[~nan]) == expected.to(torch.float32).numpy()[~nan]).all()


@pytest.mark.parametrize("format, type", [("FP8_FNUZ", torch.float8_e4m3fnuz), ("BF8_FNUZ", torch.float8_e5m2fnuz), ("FP8_OCP", torch.float8_e4m3fn),
                                          ("BF8_OCP", torch.float8_e5m2)])
def test_eight_bit_floats_are_torchs(format, type):
    f = getattr(numbers, format)
    codes = np.arange(256, dtype=np.uint8)
    values = torch.from_numpy(codes).view(type).to(torch.float32).numpy()
    got = f.decode(codes)
    assert ((got == values) & (np.signbit(got) == np.signbit(values)) | np.isnan(got) & np.isnan(values)).all()
    finite = np.sort(values[np.isfinite(values)])
    middles = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    x = np.concatenate([finite, middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(np.inf)), floats("f32", 3000)])
    largest = finite[-1]
    x = x[np.isnan(x) | (np.abs(x) <= largest)]  # torch saturates or not, as its versions do
    want = torch.from_numpy(x).to(type).view(torch.uint8).numpy()
    nan = np.isnan(x)
    code = f.encode(x)
    assert (code[~nan] == want[~nan]).all()
    assert np.isnan(f.decode(code[nan])).all()


def test_eight_bit_floats_overflow_to_infinity_or_nan():
    x = np.array([1e9, -1e9, np.inf, 463.9, 464.0, 465.0, 448.0], np.float32)
    assert numbers.FP8_OCP.encode(x).tolist() == [0x7F, 0xFF, 0x7F, 0x7E, 0x7E, 0x7F, 0x7E]  # 464 is a tie, and 448 even
    assert numbers.BF8_OCP.encode(x[:3]).tolist() == [0x7C, 0xFC, 0x7C]
    assert numbers.FP8_FNUZ.encode(x).tolist() == [0x80] * 7
    assert numbers.FP8_FNUZ.encode(np.array([240, 247.9, 248, -0.0], np.float32)).tolist() == [0x7F, 0x7F, 0x80, 0]


@pytest.mark.parametrize("kind", ["f16", "f32", "f64"])
def test_ldexp_rounds_once(kind):
    x = floats(kind, 800, 7)
    e = np.random.default_rng(0).integers(-1200 if kind == "f64" else -200, 200, 800)
    got = numbers.ldexp(x, e, kind)
    expected = []
    for v, s in zip(x, e):
        if not np.isfinite(v) or v == 0:
            expected.append(v)
        else:
            out = round_fraction(Fraction(float(v)) * Fraction(2) ** int(s), kind)
            expected.append(np.copysign(out, v))
    same(got, np.array(expected, FLOAT[kind]))


def test_towards_zero_to_f16():
    x = np.concatenate([floats("f32", 3000, 3), np.array([65519.9, 65520, 65535, 1e6, -1e6, 1e-9], np.float32)])
    got = numbers.to_f16_towards_zero(x).astype(np.float64)
    finite = np.isfinite(x)
    a, b = np.abs(got[finite]), np.abs(x[finite].astype(np.float64))
    above = np.nextafter(np.abs(numbers.to_f16_towards_zero(x)[finite]), np.float16(np.inf)).astype(np.float64)
    assert (a <= b).all() and ((above > b) | (a == 65504)).all()
    assert (np.isnan(got) == np.isnan(x)).all() and (np.isinf(got) == np.isinf(x)).all()


def test_float_to_integer_saturates():
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1.9, -1.9, -0.5, 65536.0, 40000.7], np.float32)
    assert numbers.to_integer(x, "i32").tolist() == [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 1, -1, 0, 65536, 40000]
    assert numbers.to_integer(x, "u32").tolist() == [0, 2**32 - 1, 0, 3000000000, 0, 1, 0, 0, 65536, 40000]
    assert numbers.to_integer(x, "u16").tolist() == [0, 65535, 0, 65535, 0, 1, 0, 0, 65535, 40000]
    assert numbers.to_integer(x, "i16").tolist() == [0, 32767, -32768, 32767, -32768, 1, -1, 0, 32767, 32767]
