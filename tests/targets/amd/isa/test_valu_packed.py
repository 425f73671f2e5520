"""Packed, mixed and dot-product instructions, half by half."""

import itertools

import numpy as np
import pytest
from snippets import run_snippet
from valu_cases import exact_fma, floats, integers, lane_values, same

from tilewright.targets.amd.isa.errors import UnknownInstruction


@pytest.fixture(autouse=True)
def _quiet():
    with np.errstate(all="ignore"):
        yield


def join(low, high):
    return low.view(np.uint16).astype(np.uint32) | high.view(np.uint16).astype(np.uint32) << np.uint32(16)


def halves(r, type):
    return (r & np.uint32(0xFFFF)).astype(np.uint16).view(type), (r >> np.uint32(16)).astype(np.uint16).view(type)


def pairs(arch, count, make, seed=0, waves=2):
    """(registers by number, [(low, high) of each source])."""
    values = [(lane_values(arch, lambda n: make(n, seed + 10 * i), waves), lane_values(arch, lambda n: make(n, seed + 10 * i + 5), waves)) for i in range(count)]
    return {2 + 2 * i: join(*v) for i, v in enumerate(values)}, values


def half(n, seed):
    return floats("f16", n, seed)


def short(n, seed):
    return integers(n, seed, 16)


def number(larger):
    def pick(a, b):
        out = np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.maximum(a, b) if larger else np.minimum(a, b)))
        tie = (a == b) & (a == 0)
        sign = np.signbit(a) & np.signbit(b) if larger else np.signbit(a) | np.signbit(b)
        return np.where(tie, np.where(sign, np.float16(-0.0), np.float16(0)), out)

    return pick


def each_fma(a, b, c):
    return np.array([exact_fma(x, y, z, "f16") for x, y, z in zip(a.flat, b.flat, c.flat)], np.float16).reshape(a.shape)


def nan_of_any(f):
    return lambda *x: np.where(np.logical_or.reduce([np.isnan(v) for v in x]), np.float16(np.nan), f(*x))


FLOATS = {
    "v_pk_add_f16": ("gfx942", 2, np.add), "v_pk_mul_f16": ("gfx1100", 2, np.multiply), "v_pk_fma_f16": ("gfx942", 3, each_fma),
    "v_pk_max_num_f16": ("gfx1201", 2, number(True)), "v_pk_min_num_f16": ("gfx1201", 2, number(False)),
    "v_pk_maximum_f16": ("gfx1201", 2, nan_of_any(number(True))), "v_pk_minimum_f16": ("gfx1201", 2, nan_of_any(number(False))),
    "v_pk_maximum3_f16": ("gfx950", 3, nan_of_any(lambda a, b, c: number(True)(number(True)(a, b), c))),
    "v_pk_minimum3_f16": ("gfx950", 3, nan_of_any(lambda a, b, c: number(False)(number(False)(a, b), c)))}


@pytest.mark.parametrize("name", FLOATS)
def test_pairs_of_f16(name):
    arch, count, f = FLOATS[name]
    registers, values = pairs(arch, count, half)
    r = run_snippet(arch, f"{name} v0, {', '.join(f'v{k}' for k in registers)}", registers, waves=2)
    for part, got in enumerate(halves(r.vgpr(0), np.float16)):
        same(got, f(*[v[part] for v in values]))


@pytest.mark.parametrize("name, larger", [("v_pk_max_f16", True), ("v_pk_min_f16", False)])
def test_larger_of_pairs_by_the_mode(name, larger):
    registers, values = pairs("gfx942", 2, half)
    for mode in (0, 1):
        r = run_snippet("gfx942", f"{name} v0, v2, v4", registers, waves=2, descriptor={"ieee_mode": mode})
        for part, got in enumerate(halves(r.vgpr(0), np.float16)):
            a, b = (v[part] for v in values)
            expected = number(larger)(a, b)
            if mode:
                signalling = [np.isnan(x) & (x.view(np.uint16) & 0x200 == 0) for x in (a, b)]
                assert signalling[0].any()
                expected = np.where(signalling[0] | signalling[1], np.float16(np.nan), expected)
            same(got, expected)


INTEGERS = {
    "v_pk_add_u16": lambda a, b: a + b, "v_pk_sub_u16": lambda a, b: a - b, "v_pk_mul_lo_u16": lambda a, b: a * b, "v_pk_add_i16": lambda a, b: a + b,
    "v_pk_sub_i16": lambda a, b: a - b, "v_pk_min_u16": np.minimum, "v_pk_max_u16": np.maximum,
    "v_pk_min_i16": lambda a, b: np.minimum(a.view(np.int16), b.view(np.int16)).view(np.uint16),
    "v_pk_max_i16": lambda a, b: np.maximum(a.view(np.int16), b.view(np.int16)).view(np.uint16),
    "v_pk_lshlrev_b16": lambda a, b: b << (a & 15), "v_pk_lshrrev_b16": lambda a, b: b >> (a & 15),
    "v_pk_ashrrev_i16": lambda a, b: (b.view(np.int16) >> (a & 15).view(np.int16)).view(np.uint16),
    "v_pk_mad_u16": lambda a, b, c: a * b + c, "v_pk_mad_i16": lambda a, b, c: a * b + c}


@pytest.mark.parametrize("name", INTEGERS)
def test_pairs_of_integers(name):
    registers, values = pairs("gfx942", 3 if "mad" in name else 2, short)
    r = run_snippet("gfx942", f"{name} v0, {', '.join(f'v{k}' for k in registers)}", registers, waves=2)
    for part, got in enumerate(halves(r.vgpr(0), np.uint16)):
        assert (got == INTEGERS[name](*[v[part] for v in values]).astype(np.uint16)).all()


@pytest.mark.parametrize("name, type, f", [("v_pk_add_u16", np.uint16, np.add), ("v_pk_sub_u16", np.uint16, np.subtract), ("v_pk_add_i16", np.int16, np.add),
                                           ("v_pk_sub_i16", np.int16, np.subtract)])
def test_pairs_saturate(name, type, f):
    registers, values = pairs("gfx1030", 2, short)
    r = run_snippet("gfx1030", f"{name} v0, v2, v4 clamp", registers, waves=2)
    info = np.iinfo(type)
    for part, got in enumerate(halves(r.vgpr(0), type)):
        assert (got == np.clip(f(*(v[part].view(type).astype(np.int64) for v in values)), info.min, info.max)).all()


@pytest.mark.parametrize("select", list(itertools.product((0, 1), repeat=4)))
def test_halves_and_signs_of_each_source(select):
    """op_sel for the low result, op_sel_hi for the high one; neg_lo and neg_hi flip what they took."""
    a0, b0, a1, b1 = select
    registers, values = pairs("gfx942", 2, half)
    text = f"v_pk_add_f16 v0, v2, v4 op_sel:[{a0},{b0}] op_sel_hi:[{a1},{b1}] neg_lo:[{b0},{a1}] neg_hi:[{b1},{a0}]"
    low, high = halves(run_snippet("gfx942", text, registers, waves=2).vgpr(0), np.float16)
    a, b = values
    flip = lambda x, n: -x if n else x  # noqa: E731
    same(low, flip(a[a0], b0) + flip(b[b0], a1))
    same(high, flip(a[a1], b1) + flip(b[b1], a0))


def test_constants_and_scalars_of_pairs():
    registers, (a,) = pairs("gfx942", 1, half)
    r = run_snippet("gfx942", """
        v_pk_add_f16 v0, v2, 1.0 op_sel_hi:[1,0]
        v_pk_add_f16 v1, v2, 1.0
        v_pk_mul_f16 v3, v2, s4
        v_pk_add_u16 v5, v2, 3 op_sel_hi:[1,0]
        v_pk_add_u16 v6, v2, -1
        """, registers, {4: 0x40003C00}, waves=2)
    one, zero = np.float16(1), np.float16(0)
    for k, (x, y) in ((0, (a[0] + one, a[1] + one)), (1, (a[0] + one, a[1] + zero)), (3, (a[0] * one, a[1] * np.float16(2)))):
        low, high = halves(r.vgpr(k), np.float16)
        same(low, x)
        same(high, y)
    low, high = halves(r.vgpr(5), np.uint16)
    bits = [x.view(np.uint16) for x in a]
    assert (low == bits[0] + np.uint16(3)).all() and (high == bits[1] + np.uint16(3)).all()
    low, high = halves(r.vgpr(6), np.uint16)
    assert (low == bits[0] - np.uint16(1)).all() and (high == bits[1] - np.uint16(1)).all()


def test_clamp_and_denormals_of_pairs():
    registers, (a, b) = pairs("gfx942", 2, half)
    low, high = halves(run_snippet("gfx942", "v_pk_add_f16 v0, v2, v4 clamp", registers, waves=2).vgpr(0), np.float16)
    for got, part in ((low, 0), (high, 1)):
        x = a[part] + b[part]
        same(got, np.where(np.isnan(x) | (x <= 0), np.float16(0), np.minimum(x, np.float16(1))))
    tiny = np.float16(2.0**-15)
    r = run_snippet("gfx942", "v_pk_mul_f16 v0, v2, v4", {2: np.uint32(0x02000200), 4: np.uint32(0x40003C00)}, descriptor={"float_denorm_mode_16_64": 0})
    assert (r.vgpr(0) == 0).all()
    r = run_snippet("gfx942", "v_pk_mul_f16 v0, v2, v4", {2: np.uint32(0x02000200), 4: np.uint32(0x40003C00)})
    low, high = halves(r.vgpr(0), np.float16)
    assert (low == tiny).all() and (high == tiny * 2).all()


# ----------------------------------------------------------------------------------------------------------- pairs of f32
def test_pairs_of_f32():
    a, b, c = ([lane_values("gfx942", lambda n: floats("f32", n, 10 * i + j)) for j in (0, 1)] for i in range(3))
    registers = {2: a[0], 3: a[1], 4: b[0], 5: b[1], 6: c[0], 7: c[1]}
    run = lambda text, **kw: run_snippet("gfx942", text, registers, waves=8, **kw)  # noqa: E731
    r = run("v_pk_add_f32 v[0:1], v[2:3], v[4:5]")
    same(r.vgpr(0, np.float32), a[0] + b[0])
    same(r.vgpr(1, np.float32), a[1] + b[1])
    r = run("v_pk_mul_f32 v[0:1], v[2:3], v[4:5] op_sel:[1,0] op_sel_hi:[0,0] neg_lo:[0,1] neg_hi:[1,0]")
    same(r.vgpr(0, np.float32), a[1] * -b[0])
    same(r.vgpr(1, np.float32), -a[0] * b[0])
    r = run("v_pk_mul_f32 v[2:3], v[2:3], s[4:5] op_sel_hi:[1,0]", sgprs={4: np.float32(3), 5: np.float32(5)})  # reads before it writes
    same(r.vgpr(2, np.float32), a[0] * np.float32(3))
    same(r.vgpr(3, np.float32), a[1] * np.float32(3))
    r = run("v_pk_add_f32 v[2:3], v[2:3], v[2:3] op_sel:[1,1] op_sel_hi:[0,0]")
    same(r.vgpr(2, np.float32), a[1] + a[1])
    same(r.vgpr(3, np.float32), a[0] + a[0])
    r = run("v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7] neg_lo:[0,0,1]")
    for k, z in ((0, -c[0]), (1, c[1])):
        same(r.vgpr(k, np.float32), np.array([exact_fma(*v, "f32") for v in zip(a[k].flat, b[k].flat, z.flat)], np.float32).reshape(a[k].shape))
    r = run("v_pk_add_f32 v[0:1], v[2:3], 1.0 op_sel_hi:[1,0]")
    same(r.vgpr(1, np.float32), a[1] + np.float32(1))
    with pytest.raises(UnknownInstruction, match="high half of a constant"):
        run("v_pk_add_f32 v[0:1], v[2:3], 1.0")


def test_pair_moves():
    r = run_snippet("gfx90a", "v_pk_mov_b32 v[0:1], s[8:9], v[2:3] op_sel:[1,0]\nv_pk_mov_b32 v[2:3], v[2:3], v[2:3] op_sel:[1,0]", {2: 10, 3: 11}, {8: 20, 9: 21})
    assert [int(r.vgpr(k)[0, 0]) for k in (0, 1, 2, 3)] == [21, 10, 11, 10]


# -------------------------------------------------------------------------------------------------- mixed precision
@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_mixed_products(arch):
    registers, ((al, ah), (bl, bh)) = pairs(arch, 2, half)
    c = lane_values(arch, lambda n: floats("f32", n, 9), 2)
    registers[6] = c
    f32 = lambda x: x.astype(np.float32)  # noqa: E731
    fma = lambda *v: np.array([exact_fma(*x, "f32") for x in zip(*(y.flat for y in v))], np.float32).reshape(c.shape)  # noqa: E731
    run = lambda text, **kw: run_snippet(arch, text, {**registers, 0: np.uint32(0x12345678)}, waves=2, **kw)  # noqa: E731
    same(run("v_fma_mix_f32 v0, v2, -v4, |v6| op_sel:[1,0,0] op_sel_hi:[1,1,0]").vgpr(0, np.float32), fma(f32(ah), -f32(bl), abs(c)))
    same(run("v_fma_mix_f32 v0, v6, v6, v4 op_sel:[0,0,1] op_sel_hi:[0,0,1]").vgpr(0, np.float32), fma(c, c, f32(bh)))
    same(run("v_fma_mix_f32 v0, v6, v6, 1.0 op_sel_hi:[0,0,1]").vgpr(0, np.float32), fma(c, c, np.ones_like(c)))
    r = run("v_fma_mixlo_f16 v0, v2, v4, v6 op_sel_hi:[1,1,0]").vgpr(0)
    same(halves(r, np.float16)[0], fma(f32(al), f32(bl), c).astype(np.float16))
    assert (r >> np.uint32(16) == 0x1234).all()
    r = run("v_fma_mixhi_f16 v0, v2, v4, v6 op_sel:[1,1,0] op_sel_hi:[1,1,0] clamp").vgpr(0)
    x = fma(f32(ah), f32(bh), c)
    same(halves(r, np.float16)[1], np.where(np.isnan(x) | (x <= 0), 0, np.minimum(x, 1)).astype(np.float16))
    assert (r & np.uint32(0xFFFF) == 0x5678).all()


# ------------------------------------------------------------------------------------------------------ dot products
def parts(x, bits, signed):
    out = [x >> bits * i & ((1 << bits) - 1) for i in range(32 // bits)]
    return [v - (1 << bits) if signed and v >> (bits - 1) else v for v in out]


@pytest.mark.parametrize("arch, text, bits, signs, unsigned", [
    ("gfx942", "v_dot4_i32_i8 v0, v2, v4, v6", 8, (1, 1), False), ("gfx942", "v_dot4_u32_u8 v0, v2, v4, v6", 8, (0, 0), True),
    ("gfx942", "v_dot2_i32_i16 v0, v2, v4, v6", 16, (1, 1), False), ("gfx942", "v_dot2_u32_u16 v0, v2, v4, v6", 16, (0, 0), True),
    ("gfx942", "v_dot8_i32_i4 v0, v2, v4, v6", 4, (1, 1), False), ("gfx942", "v_dot8_u32_u4 v0, v2, v4, v6", 4, (0, 0), True),
    ("gfx1100", "v_dot4_i32_iu8 v0, v2, v4, v6 neg_lo:[1,1,0]", 8, (1, 1), False), ("gfx1201", "v_dot4_i32_iu8 v0, v2, v4, v6 neg_lo:[1,0,0]", 8, (1, 0), False),
    ("gfx1100", "v_dot4_i32_iu8 v0, v2, v4, v6", 8, (0, 0), False), ("gfx1100", "v_dot8_i32_iu4 v0, v2, v4, v6 neg_lo:[0,1,0]", 4, (0, 1), False)])
@pytest.mark.parametrize("clamp", ["", " clamp"])
def test_integer_dot_products(arch, text, bits, signs, unsigned, clamp):
    a, b, c = (lane_values(arch, lambda n, i=i: integers(n, i)) for i in (1, 2, 3))
    got = run_snippet(arch, text + clamp, {2: a, 4: b, 6: c}, waves=8).vgpr(0)
    for g, x, y, z in zip(got.reshape(-1).tolist(), a.reshape(-1).tolist(), b.reshape(-1).tolist(), c.reshape(-1).tolist()):
        total = sum(p * q for p, q in zip(parts(x, bits, signs[0]), parts(y, bits, signs[1]))) + (z if unsigned else parts(z, 32, True)[0])
        if clamp:
            low, high = (0, 2**32 - 1) if unsigned else (-(2**31), 2**31 - 1)
            total = max(low, min(high, total))
        assert g == total & 0xFFFFFFFF


def test_accumulated_dot_products():
    a, b, c = (lane_values("gfx942", lambda n, i=i: integers(n, i)) for i in (1, 2, 3))
    got = run_snippet("gfx942", "v_dot4c_i32_i8_e32 v0, v2, v4", {0: c, 2: a, 4: b}, waves=8).vgpr(0)
    expected = [(sum(p * q for p, q in zip(parts(x, 8, 1), parts(y, 8, 1))) + z) & 0xFFFFFFFF for x, y, z in zip(*(v.reshape(-1).tolist() for v in (a, b, c)))]
    assert got.reshape(-1).tolist() == expected


@pytest.mark.parametrize("name, kind", [("v_dot2_f32_f16", "f16"), ("v_dot2_f32_bf16", "bf16")])
def test_float_dot_products(name, kind):
    rng = np.random.default_rng(0)
    values = rng.integers(-16, 17, (4, 8, 32)).astype(np.float32) / 4  # exact in any order
    c = rng.integers(-100, 100, (8, 32)).astype(np.float32)
    bits = [v.astype(np.float16).view(np.uint16) if kind == "f16" else (v.view(np.uint32) >> np.uint32(16)).astype(np.uint16) for v in values]
    registers = {2: join(bits[0], bits[1]), 4: join(bits[2], bits[3]), 6: c}
    al, ah, bl, bh = values
    run = lambda tail="": run_snippet("gfx1100", f"{name} v0, v2, v4, v6{tail}", registers, waves=8).vgpr(0, np.float32)  # noqa: E731
    same(run(), al * bl + ah * bh + c)
    same(run(" neg_lo:[1,0,1] neg_hi:[0,1,0]"), -al * bl - ah * bh - c)
    same(run(" op_sel:[1,0,0] op_sel_hi:[0,1,1]"), ah * bl + al * bh + c)
    if kind == "f16":
        got = run_snippet("gfx1100", "v_dot2acc_f32_f16 v0, v2, v4\nv_dual_dot2acc_f32_f16 v1, v2, v4 :: v_dual_mov_b32 v8, v2", {**registers, 0: c, 1: c}, waves=8)
        same(got.vgpr(0, np.float32), al * bl + ah * bh + c)
        same(got.vgpr(1, np.float32), al * bl + ah * bh + c)
