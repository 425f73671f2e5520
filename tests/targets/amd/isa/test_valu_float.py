"""Float instructions, each against its own reference over normal and special values, under the names of each generation."""

import math

import numpy as np
import pytest
from valu_cases import FLOAT, exact_fma, floats, lane_values, run_one, same

from tilewright.targets.amd.isa.errors import UnknownInstruction

KINDS = ("f16", "f32", "f64")
OLD, NEW = ("gfx90a", "gfx1030", "gfx1100"), ("gfx1201",)


def reg(kind, k):
    return f"v[{k}:{k + 1}]" if kind == "f64" else f"v{k}"


def sources(arch, kind, count, seed=0):
    return [lane_values(arch, lambda n: floats(kind, n, seed + 10 * i)) for i in range(count)]


def run_floats(arch, name, kind, values, out=None, extra="", **more):
    """name d, sources: registers 2, 4, 6 → 0."""
    operands = ", ".join(reg(kind, 2 + 2 * i) for i in range(len(values)))
    text = f"{name} {reg(out or kind, 0)}, {operands}{extra}"
    return run_one(arch, text, {2 + 2 * i: v for i, v in enumerate(values)}, FLOAT[out or kind], **more)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op, f", [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("subrev", lambda a, b: b - a)])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1030", "gfx1201"])
def test_sums_and_products(arch, kind, op, f):
    if kind == "f64" and op.startswith("sub"):
        return  # there is none
    a, b = sources(arch, kind, 2)
    with np.errstate(all="ignore"):
        same(run_floats(arch, f"v_{op}_{kind}" + ("_e32" if kind != "f64" else "_e64"), kind, [a, b]), f(a, b))


@pytest.mark.parametrize("kind", KINDS)
def test_fma_and_fmac(kind):
    a, b, c = (x[:2] for x in sources("gfx942", kind, 3))
    expected = np.array([exact_fma(x, y, z, kind) for x, y, z in zip(a.flat, b.flat, c.flat)], FLOAT[kind]).reshape(a.shape)
    same(run_floats("gfx942", f"v_fma_{kind}", kind, [a, b, c], waves=2), expected)
    got = run_one("gfx942", f"v_fmac_{kind}_e32 {reg(kind, 0)}, {reg(kind, 2)}, {reg(kind, 4)}", {0: c, 2: a, 4: b}, FLOAT[kind], waves=2)
    same(got, expected)


def test_fma_with_a_constant_in_either_place():
    a, b = sources("gfx1100", "f32", 2)
    two = np.full(a.shape, 2.5, np.float32)
    same(run_one("gfx1100", "v_fmaak_f32 v0, v2, v4, 0x40200000", {2: a, 4: b}, np.float32),
         np.array([exact_fma(x, y, z, "f32") for x, y, z in zip(a.flat, b.flat, two.flat)], np.float32).reshape(a.shape))
    same(run_one("gfx1100", "v_fmamk_f32 v0, v2, 0x40200000, v4", {2: a, 4: b}, np.float32),
         np.array([exact_fma(x, y, z, "f32") for x, y, z in zip(a.flat, two.flat, b.flat)], np.float32).reshape(a.shape))


def test_mad_rounds_twice_and_flushes():
    """gfx90a's v_mad_f32 and v_mac_f32, which integer divisions use."""
    a, b, c = sources("gfx90a", "f32", 3)
    with np.errstate(all="ignore"):
        expected = _flushed(_flushed(_flushed(a) * _flushed(b)) + _flushed(c))
        same(run_floats("gfx90a", "v_mad_f32", "f32", [a, b, c]), expected)
        same(run_one("gfx90a", "v_mac_f32_e32 v0, v2, v4", {0: c, 2: a, 4: b}, np.float32), expected)
        same(run_one("gfx90a", "v_madmk_f32 v0, v2, 0x4f800000, v4", {2: a, 4: c}, np.float32), _flushed(_flushed(_flushed(a) * np.float32(2.0**32)) + _flushed(c)))


# ------------------------------------------------------------------------------------------------ maximum and minimum
def _bits(x):
    return int(np.asarray(x).view({2: np.uint16, 4: np.uint32, 8: np.uint64}[np.asarray(x).dtype.itemsize]))


def _signalling(x):
    quiet = {2: 1 << 9, 4: 1 << 22, 8: 1 << 51}[x.dtype.itemsize]
    return np.isnan(x) and not _bits(x) & quiet


def _pick(a, b, larger, mode):
    """One pair. mode: "ieee" (signalling NaN wins), "number" (a number wins), "propagate" (a NaN wins)."""
    if mode == "propagate" and (np.isnan(a) or np.isnan(b)) or mode == "ieee" and (_signalling(a) or _signalling(b)):
        return a.dtype.type(np.nan)
    if np.isnan(a):
        return b
    if np.isnan(b):
        return a
    if a == b:
        return max((a, b), key=lambda v: not np.signbit(v)) if larger else min((a, b), key=lambda v: not np.signbit(v))
    return max(a, b) if larger else min(a, b)


def _each(f, *arrays):
    return np.array([f(*v) for v in zip(*(a.flat for a in arrays))], arrays[0].dtype).reshape(arrays[0].shape)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arch, name, mode, descriptor", [
    ("gfx942", "{}_{}", "ieee", {}), ("gfx1100", "{}_{}", "ieee", {}), ("gfx1100", "{}_{}", "number", {"ieee_mode": 0}), ("gfx1201", "{}_num_{}", "number", {}),
    ("gfx1201", "{}imum_{}", "propagate", {})])
def test_larger_and_smaller(arch, name, mode, descriptor, kind):
    a, b = (x[:4] for x in sources(arch, kind, 2))
    assert any(_signalling(v) for v in a.flat)
    for word, larger in (("max", True), ("min", False)):
        got = run_floats(arch, "v_" + name.format(word, kind), kind, [a, b], waves=4, descriptor=descriptor)
        same(got, _each(lambda x, y: _pick(x, y, larger, mode), a, b))


def _median(a, b, c, mode):
    pick = lambda larger: lambda x, y: _pick(x, y, larger, mode)  # noqa: E731
    if any(np.isnan(v) for v in (a, b, c)):
        return pick(False)(pick(False)(a, b), c)
    top = max(a, b, c)
    rest = (b, c) if top == a else (a, c) if top == b else (a, b)
    return pick(True)(*rest)


@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize("arch, suffix, mode", [("gfx942", "", "ieee"), ("gfx1030", "", "ieee"), ("gfx1201", "_num", "number")])
def test_three_at_once(arch, suffix, mode, kind):
    a, b, c = (x[:4] for x in sources(arch, kind, 3))
    pick = lambda larger: lambda x, y: _pick(x, y, larger, mode)  # noqa: E731
    same(run_floats(arch, f"v_max3{suffix}_{kind}", kind, [a, b, c], waves=4), _each(lambda x, y, z: pick(True)(pick(True)(x, y), z), a, b, c))
    same(run_floats(arch, f"v_min3{suffix}_{kind}", kind, [a, b, c], waves=4), _each(lambda x, y, z: pick(False)(pick(False)(x, y), z), a, b, c))
    same(run_floats(arch, f"v_med3{suffix}_{kind}", kind, [a, b, c], waves=4), _each(lambda x, y, z: _median(x, y, z, mode), a, b, c))


def test_propagating_threes():
    for arch, kind in (("gfx950", "f32"), ("gfx1201", "f32"), ("gfx1201", "f16")):
        a, b, c = (x[:4] for x in sources(arch, kind, 3))
        up, down = (lambda x, y: _pick(x, y, True, "propagate")), (lambda x, y: _pick(x, y, False, "propagate"))
        same(run_floats(arch, f"v_maximum3_{kind}", kind, [a, b, c], waves=4), _each(lambda x, y, z: up(up(x, y), z), a, b, c))
        same(run_floats(arch, f"v_minimum3_{kind}", kind, [a, b, c], waves=4), _each(lambda x, y, z: down(down(x, y), z), a, b, c))
        if arch == "gfx1201":
            same(run_floats(arch, f"v_maximumminimum_{kind}", kind, [a, b, c], waves=4), _each(lambda x, y, z: down(up(x, y), z), a, b, c))
            same(run_floats(arch, f"v_minimummaximum_{kind}", kind, [a, b, c], waves=4), _each(lambda x, y, z: up(down(x, y), z), a, b, c))


def test_minmax_of_numbers():
    a, b, c = (x[:4] for x in sources("gfx1201", "f32", 3))
    up, down = (lambda x, y: _pick(x, y, True, "number")), (lambda x, y: _pick(x, y, False, "number"))
    same(run_floats("gfx1201", "v_maxmin_num_f32", "f32", [a, b, c], waves=4), _each(lambda x, y, z: down(up(x, y), z), a, b, c))
    same(run_floats("gfx1201", "v_minmax_num_f32", "f32", [a, b, c], waves=4), _each(lambda x, y, z: up(down(x, y), z), a, b, c))
    up, down = (lambda x, y: _pick(x, y, True, "ieee")), (lambda x, y: _pick(x, y, False, "ieee"))
    same(run_floats("gfx1100", "v_maxmin_f32", "f32", [a, b, c], waves=4), _each(lambda x, y, z: down(up(x, y), z), a, b, c))
    same(run_floats("gfx1100", "v_minmax_f32", "f32", [a, b, c], waves=4), _each(lambda x, y, z: up(down(x, y), z), a, b, c))


# ------------------------------------------------------------------------------------------------- rounding and parts
@pytest.mark.parametrize("kind", KINDS)
def test_rounding(kind):
    x, = sources("gfx90a", kind, 1)

    def scalar(f):
        def g(v):
            out = v.dtype.type(f(float(v))) if np.isfinite(v) else v
            return np.copysign(out, v)  # −0.3 rounds to −0
        return g

    for name, f in (("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc), ("rndne", round)):
        same(run_floats("gfx90a", f"v_{name}_{kind}_e32", kind, [x]), _each(scalar(f), x))


@pytest.mark.parametrize("kind", KINDS)
def test_fract_and_frexp(kind):
    x, = sources("gfx1030", kind, 1)
    type = FLOAT[kind]

    def fraction(v):
        if not np.isfinite(v):
            return type(np.nan)
        exact = float(v) + -float(np.floor(v))  # +0 of −0
        return min(type(exact), np.nextafter(type(1), type(0)))

    same(run_floats("gfx1030", f"v_fract_{kind}_e32", kind, [x]), _each(fraction, x))
    same(run_floats("gfx1030", f"v_frexp_mant_{kind}_e32", kind, [x]), _each(lambda v: type(math.frexp(float(v))[0]) if np.isfinite(v) else v, x))
    int_type, int_name = (np.int16, "i16") if kind == "f16" else (np.int32, "i32")
    got = run_one("gfx1030", f"v_frexp_exp_{int_name}_{kind}_e32 v0, {reg(kind, 2)}", {2: x}, int_type)
    same(got, np.array([math.frexp(float(v))[1] if np.isfinite(v) else 0 for v in x.flat], int_type).reshape(x.shape))


@pytest.mark.parametrize("kind", KINDS)
def test_ldexp(kind):
    x, = sources("gfx942", kind, 1)
    e = lane_values("gfx942", lambda n: np.random.default_rng(0).integers(-40, 40, n).astype(np.int16 if kind == "f16" else np.int32))
    got = run_one("gfx942", f"v_ldexp_{kind} {reg(kind, 0)}, {reg(kind, 2)}, v4", {2: x, 4: e}, FLOAT[kind])
    with np.errstate(all="ignore"):
        wide = np.longdouble(x) * np.exp2(e.astype(np.longdouble))
        same(got, wide.astype(FLOAT[kind]))


# --------------------------------------------------------------------------------------------------- approximations
def _flushed(x):
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


@pytest.mark.parametrize("name, f", [("rcp", lambda x: 1 / x), ("rcp_iflag", lambda x: 1 / x), ("sqrt", np.sqrt), ("exp", np.exp2), ("log", np.log2),
                                     ("rsq", lambda x: 1 / np.sqrt(x))])
def test_approximations_of_f32_flush_denormals(name, f):
    x, = sources("gfx1100", "f32", 1)
    got = run_floats("gfx1100", f"v_{name}_f32_e32", "f32", [x])
    with np.errstate(all="ignore"):
        same(got, _flushed(f(_flushed(x).astype(np.float64)).astype(np.float32)))


@pytest.mark.parametrize("name, f", [("rcp", lambda x: 1 / x), ("sqrt", np.sqrt), ("exp", np.exp2), ("log", np.log2), ("rsq", lambda x: 1 / np.sqrt(x))])
def test_approximations_of_f16_keep_denormals(name, f):
    x, = sources("gfx1100", "f16", 1)
    with np.errstate(all="ignore"):
        same(run_floats("gfx1100", f"v_{name}_f16_e32", "f16", [x]), f(x.astype(np.float64)).astype(np.float16))


@pytest.mark.parametrize("name, f", [("rcp", lambda x: 1 / x), ("sqrt", np.sqrt), ("rsq", lambda x: 1 / np.sqrt(x))])
def test_seeds_of_f64_have_24_bits(name, f):
    x, = sources("gfx90a", "f64", 1)
    got = run_floats("gfx90a", f"v_{name}_f64_e32", "f64", [x])
    with np.errstate(all="ignore"):
        exact = f(x)
        finite = np.isfinite(exact) & (exact != 0) & (np.abs(exact) > 1e-300)
        assert np.array_equal(got[~np.isfinite(exact)], exact[~np.isfinite(exact)], equal_nan=True)
        assert (np.abs(got[finite] / exact[finite] - 1) < 2.0**-23).all()
        assert (got[finite].view(np.uint64) & np.uint64((1 << 29) - 1) == 0).all()


def test_sine_and_cosine_of_revolutions():
    x = np.array([[0, 0.25, 0.5, 0.75, 1, -0.25, 1 / 12, 100.125, 256, 256.5, -300, np.inf, np.nan, -0.0, 255.25, 1e-30]], np.float32).repeat(2, 0).reshape(1, 32)
    sin = run_floats("gfx1100", "v_sin_f32_e32", "f32", [x], waves=1)
    cos = run_floats("gfx1100", "v_cos_f32_e32", "f32", [x], waves=1)
    h = np.float32(np.sqrt(0.5))
    assert sin[0, :12].tolist()[:6] == [0, 1, 0, -1, 0, -1] and sin[0, 6] == np.float32(0.5) and sin[0, 7] == h
    assert sin[0, 8:11].tolist() == [0, 0, 0] and np.isnan(sin[0, 11:13]).all() and sin[0, 14] == 1
    assert cos[0, :6].tolist() == [1, 0, -1, 0, 1, 0] and cos[0, 7] == h and cos[0, 8:11].tolist() == [1, 1, 1] and np.isnan(cos[0, 11:13]).all()
    assert np.abs(sin[0, 15] / (2 * np.pi * 1e-30) - 1) < 1e-7


# ------------------------------------------------------------------------------------------------ what is refused
@pytest.mark.parametrize("text", ["v_add_f32_e32 v0, v1", "v_add_f33 v0, v1, v2", "v_add_f32_e64 v0, v1, v2 whatever:1", "v_add_u32_e64 v0, -v1, v2",
                                  "v_add_f32_e64 v0, v1, v2 op_sel:[1,0,0]"])
def test_what_is_unknown_is_named(text):
    with pytest.raises(UnknownInstruction, match="v_add"):
        run_one("gfx942", text, {}, np.float32, waves=1)


@pytest.mark.parametrize("descriptor", [{"float_round_mode_32": 3}, {"float_round_mode_16_64": 1}, {"fp16_overflow": 1}])
@pytest.mark.parametrize("text", ["v_add_f32_e32 v0, v1, v2", "v_pk_mul_f16 v0, v1, v2", "v_fma_mixlo_f16 v0, v1, v2, v3", "v_cvt_pk_f16_f32 v0, v1, v2",
                                  "v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]", "v_div_fmas_f32 v0, v1, v2, v3"])
def test_other_modes_are_refused(text, descriptor):
    with pytest.raises(UnknownInstruction, match="rounding mode"):
        run_one("gfx950", text, {}, np.float32, waves=1, descriptor=descriptor)
    run_one("gfx950", "v_add_u32_e32 v0, v1, v2", {}, np.float32, waves=1, descriptor=descriptor)
