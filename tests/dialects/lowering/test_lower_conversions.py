"""Float conversions: every fp8 code, and narrowing against a search of the nearest number, written apart from the lowering."""

import numpy as np
import pytest
from lowering_harness import Text, blocked, ptr, tensor

ENCODING = blocked([4], [32], [4], [0])
DTYPES = {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}
FP8 = ("f8E4M3FN", "f8E5M2", "f8E4M3FNUZ", "f8E5M2FNUZ")


def fp8_values(name: str) -> np.ndarray:
    """The 256 values from the definition of the formats (OCP 8-bit floating point specification; FNUZ: bias one more, NaN at 0x80)."""
    exponent_bits, mantissa_bits = (4, 3) if "E4M3" in name else (5, 2)
    fnuz = name.endswith("FNUZ")
    bias = (1 << (exponent_bits - 1)) - 1 + fnuz
    out = np.empty(256)
    for code in range(256):
        sign = -1.0 if code >= 128 else 1.0
        e, m = code >> mantissa_bits & ((1 << exponent_bits) - 1), code & ((1 << mantissa_bits) - 1)
        value = 2.0 ** (1 - bias) * m / (1 << mantissa_bits) if e == 0 else 2.0 ** (e - bias) * (1 + m / (1 << mantissa_bits))
        if fnuz and code == 128:
            value = np.nan
        elif name == "f8E5M2" and e == 31:
            value = np.inf if m == 0 else np.nan
        elif name == "f8E4M3FN" and code & 127 == 127:
            value = np.nan
        out[code] = sign * value
    return out


def to_fp8(x: np.ndarray, name: str, rounding: str) -> np.ndarray:
    """Codes by search: nearest (ties to the even code) or towards zero; saturating; NaN kept."""
    values = fp8_values(name)
    codes = np.array([c for c in range(128) if np.isfinite(values[c])])
    table = values[codes]
    magnitude = np.minimum(np.abs(x.astype(np.float64)), table[-1])
    below = np.searchsorted(table, magnitude, side="right") - 1
    above = np.minimum(below + 1, len(table) - 1)
    low, high = magnitude - table[below], table[above] - magnitude
    up = (high < low) | ((high == low) & (codes[below] % 2 == 1) & (above > below))
    code = np.where(up & (rounding == "rtne"), codes[above], codes[below])
    if name.endswith("FNUZ"):
        code = np.where(np.signbit(x) & (code > 0), code | 128, code)
        return np.where(np.isnan(x), 128, code).astype(np.uint8)
    code = np.where(np.isnan(x), 127, code)
    return (code | np.signbit(x) * 128).astype(np.uint8)


def convert(x, src, dst, rounding="rtne", op="tt.fp_to_fp", **options):
    def memory(name):
        return "i8" if name[:2] == "f8" else name

    n = len(x)
    t = Text(ptr("x", memory(src)), ptr("o", memory(dst)))
    value = t.load("%x", memory(src), [n], ENCODING)
    if src in FP8:
        value = t("tt.bitcast", value, tensor([n], "i8", ENCODING), tensor([n], src, ENCODING))
    value = t(op, value, tensor([n], src, ENCODING), tensor([n], dst, ENCODING),
              f'rounding = "{rounding}"' if op == "tt.fp_to_fp" else "")
    if dst in FP8:
        value = t("tt.bitcast", value, tensor([n], dst, ENCODING), tensor([n], "i8", ENCODING))
    t.store("%o", value, memory(dst), [n], ENCODING)
    out = np.zeros(n, DTYPES.get(dst, np.uint8))
    t.kernel(**options).run(x, out)
    return out


def samples(n, dtype=np.float32):
    """Random bit patterns, numbers of the fp8 ranges, ties, and special values."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)
    bits = np.where(np.isnan(bits), np.float32(np.nan), bits)  # signalling NaNs would warn on every conversion
    near = np.concatenate([fp8_values(f) for f in FP8])
    near = near[np.isfinite(near)]
    ties = (near[:-1] + near[1:]) / 2
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 448, 464, 465, -500, 57344, 61440, 61441, 1e30, 2.0**-10, 2.0**-11, 3e-41])
    x = np.concatenate([special, near, ties, ties * (1 + 2.0**-23), ties * (1 - 2.0**-23),
                        rng.standard_normal(2000) * 2.0 ** rng.integers(-20, 18, 2000), bits])[:n]
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(dtype)


@pytest.mark.parametrize("name", FP8)
@pytest.mark.parametrize("dst", ["f32", "f16", "f64"])
def test_every_fp8_code_widens_exactly(name, dst):
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(convert(np.tile(codes, 2), name, dst)[:256], fp8_values(name).astype(DTYPES[dst]))


@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("name", FP8)
@pytest.mark.parametrize("src", ["f32", "f16", "f64"])
def test_to_fp8(name, src, rounding):
    x = samples(8192, DTYPES[src])
    got, want = convert(x, src, name, rounding), to_fp8(x, name, rounding)
    bad = np.flatnonzero(got != want)
    assert not len(bad), [(x[i], hex(got[i]), hex(want[i])) for i in bad[:5]]


def test_f64_to_fp8_and_f16_rounds_once():
    """Just above a tie in f64, but a tie in f32."""
    x = np.tile(np.array([1.0625 + 2.0**-40, 1.0625, 1.0625 - 2.0**-40, 1.1875 + 2.0**-40]), 128)
    np.testing.assert_array_equal(fp8_values("f8E4M3FN")[convert(x, "f64", "f8E4M3FN")][:4], [1.125, 1.0, 1.0, 1.25])
    y = np.tile(np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11, 1 + 2.0**-11 - 2.0**-40, 65519.999999]), 128)
    np.testing.assert_array_equal(convert(y, "f64", "f16", op="arith.truncf"), y.astype(np.float16))


def bf16(x):
    word = x.view(np.uint32).astype(np.uint64)
    rounded = (word + 0x7FFF + (word >> 16 & 1)) >> 16
    return np.where(np.isnan(x), word >> 16 | 0x40, rounded).astype(np.uint16)


@pytest.mark.parametrize("native", [True, False])
def test_f32_to_bf16(native, monkeypatch):
    from lowering_harness import Hooks

    monkeypatch.setattr(Hooks, "native_bf16_conversion", native, raising=False)
    x = samples(8192)
    got, want = convert(x, "f32", "bf16", op="arith.truncf"), bf16(x)
    nan = np.isnan(x)
    np.testing.assert_array_equal(got[~nan], want[~nan])
    assert ((got[nan] & 0x7FFF) > 0x7F80).all()


@pytest.mark.parametrize("dst", ["f16", "bf16"])
def test_towards_zero(dst):
    x = samples(8192)
    got = convert(x, "f32", dst, "rtz")
    if dst == "bf16":
        keep = ~np.isnan(x)
        np.testing.assert_array_equal(got[keep], (x.view(np.uint32) >> 16).astype(np.uint16)[keep])
        return
    with np.errstate(over="ignore"):
        near = x.astype(np.float16)
    down = np.abs(near.astype(np.float64)) > np.abs(x)
    want = np.where(down, (near.view(np.uint16) - 1).view(np.float16), near)
    np.testing.assert_array_equal(got, want)


def test_integers_to_f16_round_once():
    values = np.array([2049, 2051, 4098, 4102, 65519, 65520, -2049, 1 << 40, (1 << 60) + 1, 0, 1, -1] + [0] * 500, np.int64)
    t = Text(ptr("x", "i64"), ptr("o", "f16"))
    x = t.load("%x", "i64", [512], ENCODING)
    t.store("%o", t("arith.sitofp", x, tensor([512], "i64", ENCODING), tensor([512], "f16", ENCODING)), "f16", [512], ENCODING)
    out = np.zeros(512, np.float16)
    t.kernel().run(values, out)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out, values.astype(np.float16))
