"""Division by the sequence that compilers emit, from a reciprocal that is one place off: the quotient has to be correctly rounded."""

import numpy as np
import pytest
from valu_cases import FLOAT, floats, lane_values, run_one, same

from tilewright.targets.amd.isa.valu_float import div_scale

# denominator v[10:11], numerator v[12:13]; LLVM's expansion of fdiv with denormals kept
F32 = """
v_div_scale_f32 v0, {flag}, v10, v10, v12
v_div_scale_f32 v1, {vcc}, v12, v10, v12
v_rcp_f32_e32 v2, v0
v_add_u32_e32 v2, {nudge}, v2
v_fma_f32 v3, -v0, v2, 1.0
v_fma_f32 v2, v3, v2, v2
v_mul_f32_e32 v3, v1, v2
v_fma_f32 v4, -v0, v3, v1
v_fma_f32 v3, v4, v2, v3
v_fma_f32 v4, -v0, v3, v1
v_div_fmas_f32 v4, v4, v2, v3
v_div_fixup_f32 v20, v4, v10, v12
"""
F64 = """
v_div_scale_f64 v[0:1], {flag}, v[10:11], v[10:11], v[12:13]
v_rcp_f64_e32 v[2:3], v[0:1]
v_fma_f64 v[4:5], -v[0:1], v[2:3], 1.0
v_fma_f64 v[2:3], v[2:3], v[4:5], v[2:3]
v_fma_f64 v[4:5], -v[0:1], v[2:3], 1.0
v_fma_f64 v[2:3], v[2:3], v[4:5], v[2:3]
v_div_scale_f64 v[4:5], {vcc}, v[12:13], v[10:11], v[12:13]
v_mul_f64 v[6:7], v[4:5], v[2:3]
v_fma_f64 v[0:1], -v[0:1], v[6:7], v[4:5]
v_div_fmas_f64 v[0:1], v[0:1], v[2:3], v[6:7]
v_div_fixup_f64 v[20:21], v[0:1], v[10:11], v[12:13]
"""


def quotients(arch, kind, numerator, denominator, nudge=0):
    wave64 = arch == "gfx942"
    text = (F32 if kind == "f32" else F64).format(flag="s[0:1]" if wave64 else "null", vcc="vcc" if wave64 else "vcc_lo", nudge=nudge)
    if not wave64:
        text = text.replace("v_add_u32", "v_add_nc_u32")
    return run_one(arch, text, {10: denominator, 12: numerator}, FLOAT[kind], register=20, waves=len(numerator))


def compare(arch, kind, a, b, nudge=0):
    """Correctly rounded, but for powers of two by numbers whose fraction is all ones: Newton's iteration from a reciprocal that is not the
    nearest stays at a power of two, and the last step meets a tie (Markstein, "Computation of elementary functions on the IBM RISC
    System/6000 processor", 1990). There one place off is what such hardware gives."""
    with np.errstate(all="ignore"):
        expected = a / b
        got = quotients(arch, kind, a, b, nudge)
        if kind == "f64" or nudge:
            uint, ones = (np.uint32, (1 << 23) - 1) if kind == "f32" else (np.uint64, (1 << 52) - 1)
            known = (b.view(uint) & uint(ones) == ones) & (np.abs(np.frexp(a)[0]) == 0.5)
            assert (np.abs(got.view(uint) - expected.view(uint)).astype(uint)[known] + uint(1) <= 2).all()
            got = np.where(known, expected, got)
        same(got, expected)


def any_exponents(kind, n, seed):
    """Values of all exponents of the format, subnormal ones included."""
    rng = np.random.default_rng(seed)
    uint, type = {"f32": (np.uint32, np.float32), "f64": (np.uint64, np.float64)}[kind]
    x = rng.integers(0, np.iinfo(uint).max, n, dtype=uint).view(type)
    return np.where(np.isnan(x), type(1.5), x)


@pytest.mark.parametrize("nudge", [0, 1, -1])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_division_of_f32(arch, nudge):
    for seed, make in ((0, lambda n: floats("f32", n, 5)), (1, lambda n: any_exponents("f32", n, 1))):
        a = lane_values(arch, make, waves=32)
        b = lane_values(arch, lambda n: np.roll(make(n), 7)[::-1].copy(), waves=32)
        compare(arch, "f32", a, b, nudge)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_division_of_f64(arch):
    for make in (lambda n: floats("f64", n, 5), lambda n: any_exponents("f64", n, 1)):
        a = lane_values(arch, make, waves=16)
        b = lane_values(arch, lambda n: np.roll(make(n), 7)[::-1].copy(), waves=16)
        compare(arch, "f64", a, b)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_quotients_at_the_ends_of_the_range(kind):
    """Denominators and numerators beside 1, the smallest and the largest numbers: every branch of the scaling, which random ones hardly meet."""
    type, info = FLOAT[kind], np.finfo(FLOAT[kind])
    edges = np.array([info.max, info.max / 2, info.tiny, info.tiny * 3, info.smallest_subnormal, info.smallest_subnormal * 5, 1, 3, 1 / info.max, info.max / 7,
                      info.tiny / 3, 2.0**64, 2.0**-64, 2.0**100, 2.0**-103, np.inf, 0.0, np.nan], type)
    a, b = (x.reshape(-1) for x in np.meshgrid(edges, np.concatenate([edges, -edges])))
    pad = -len(a) % 64
    a, b = (np.append(x, np.ones(pad, type)).reshape(-1, 64) for x in (a, b))
    compare("gfx942", kind, a, b)


def test_scaling_is_the_manuals():
    x = lambda *v: np.array(v, np.float32)  # noqa: E731
    for s0, s1, s2, value, flag in ((2.0, 2.0, 2.0**97, 2.0**65, True),  # near the top: the denominator grows
                                    (2.0**97, 2.0, 2.0**97, 2.0**97, True),
                                    (2.0**-140, 2.0**-140, 2.0**-130, 2.0**-76, False),  # denormal denominator: both grow
                                    (2.0**-130, 2.0**-140, 2.0**-130, 2.0**-66, False),
                                    (2.0**127, 2.0**127, 2.0**60, 2.0**63, False),  # denormal reciprocal: both shrink
                                    (2.0**-60, 2.0**100, 2.0**-60, 2.0**4, True),  # denormal quotient: the numerator grows
                                    (2.0**100, 2.0**100, 2.0**-60, 2.0**100, True),
                                    (2.0**-110, 2.0**-10, 2.0**-110, 2.0**-46, False),  # tiny numerator
                                    (3.0, 3.0, 5.0, 3.0, False)):
        with np.errstate(all="ignore"):
            got, scaled = div_scale("f32", x(s0), x(s1), x(s2))
        assert (got[0], scaled[0]) == (np.float32(value), flag), (s0, s1, s2)
    with np.errstate(all="ignore"):
        assert np.isnan(div_scale("f32", x(0.0), x(0.0), x(1.0))[0]).all()


def test_half_precision_fixup():
    a, b = np.array([[1, 0, np.inf, 1, 0, -3, np.nan, 5] * 8], np.float16), np.array([[2, 0, np.inf, 0, 5, np.inf, 1, np.nan] * 8], np.float16)
    with np.errstate(all="ignore"):
        q = np.abs(a.astype(np.float32) / b).astype(np.float16)
        q[np.isnan(q)] = 1
        got = run_one("gfx942", "v_div_fixup_f16 v0, v2, v4, v6", {2: q, 4: b, 6: a}, np.float16, waves=1)
        same(got, (a.astype(np.float32) / b).astype(np.float16))
