"""Integer, bit and select instructions against Python's integers, lane by lane."""

import numpy as np
import pytest
from snippets import lanes_of, run_snippet
from valu_cases import floats, integers, lane_values, run_one, to_register

from tilewright.targets.amd.isa.errors import UnknownInstruction

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def s(x, bits=32):
    """As a signed integer."""
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


def clamp(x, low, high):
    return max(low, min(high, x))


def perm(a, b, selector):
    data = (a << 32 | b).to_bytes(8, "little")
    out = []
    for k in selector.to_bytes(4, "little"):
        if k < 8:
            out.append(data[k])
        elif k < 12:
            out.append(255 if data[2 * (k - 8) + 1] & 128 else 0)
        else:
            out.append(0 if k == 12 else 255)
    return int.from_bytes(bytes(out), "little")


def field(x, offset, width, signed):
    offset, width = offset & 31, width & 31
    value = ((s(x) if signed else x) >> offset) & ((1 << width) - 1)
    return s(value, width) if signed and width else value


def first_other(x):
    x = s(x)
    x = ~x if x < 0 else x
    return -1 if x == 0 else 32 - x.bit_length()


# name: (widths of the sources, width of the result, function of unsigned integers)
CASES = {
    "v_add3_u32": ("32 32 32", 32, lambda a, b, c: a + b + c),
    "v_xad_u32": ("32 32 32", 32, lambda a, b, c: (a ^ b) + c),
    "v_lshl_add_u32": ("32 32 32", 32, lambda a, b, c: (a << (b & 31)) + c),
    "v_add_lshl_u32": ("32 32 32", 32, lambda a, b, c: ((a + b) & M32) << (c & 31)),
    "v_lshl_or_b32": ("32 32 32", 32, lambda a, b, c: (a << (b & 31)) | c),
    "v_and_or_b32": ("32 32 32", 32, lambda a, b, c: (a & b) | c),
    "v_or3_b32": ("32 32 32", 32, lambda a, b, c: a | b | c),
    "v_sad_u32": ("32 32 32", 32, lambda a, b, c: abs(a - b) + c),
    "v_bfi_b32": ("32 32 32", 32, lambda a, b, c: (a & b) | (~a & c)),
    "v_bfe_u32": ("32 32 32", 32, lambda a, b, c: field(a, b, c, False)),
    "v_bfe_i32": ("32 32 32", 32, lambda a, b, c: field(a, b, c, True)),
    "v_alignbit_b32": ("32 32 32", 32, lambda a, b, c: (a << 32 | b) >> (c & 31)),
    "v_alignbyte_b32": ("32 32 32", 32, lambda a, b, c: (a << 32 | b) >> (8 * (c & 3))),
    "v_mad_u32_u24": ("32 32 32", 32, lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c),
    "v_mad_i32_i24": ("32 32 32", 32, lambda a, b, c: s(a, 24) * s(b, 24) + c),
    "v_mad_u32_u16": ("16 16 32", 32, lambda a, b, c: a * b + c),
    "v_mad_i32_i16": ("16 16 32", 32, lambda a, b, c: s(a, 16) * s(b, 16) + c),
    "v_mad_u16": ("16 16 16", 16, lambda a, b, c: a * b + c),
    "v_mad_i16": ("16 16 16", 16, lambda a, b, c: a * b + c),
    "v_mad_legacy_u16": ("16 16 16", 16, lambda a, b, c: a * b + c),
    "v_mad_legacy_i16": ("16 16 16", 16, lambda a, b, c: a * b + c),
    "v_min3_i32": ("32 32 32", 32, lambda a, b, c: min(s(a), s(b), s(c))),
    "v_max3_u32": ("32 32 32", 32, lambda a, b, c: max(a, b, c)),
    "v_med3_i32": ("32 32 32", 32, lambda a, b, c: sorted((s(a), s(b), s(c)))[1]),
    "v_med3_u32": ("32 32 32", 32, lambda a, b, c: sorted((a, b, c))[1]),
    "v_med3_i16": ("16 16 16", 16, lambda a, b, c: sorted((s(a, 16), s(b, 16), s(c, 16)))[1]),
    "v_lshl_add_u64": ("64 32 64", 64, lambda a, b, c: (a << (b & 7)) + c),
    "v_add_i32": ("32 32", 32, lambda a, b: a + b),
    "v_sub_i32": ("32 32", 32, lambda a, b: a - b),
    "v_add_i16": ("16 16", 16, lambda a, b: a + b),
    "v_mul_lo_u32": ("32 32", 32, lambda a, b: a * b),
    "v_mul_hi_u32": ("32 32", 32, lambda a, b: a * b >> 32),
    "v_mul_hi_i32": ("32 32", 32, lambda a, b: s(a) * s(b) >> 32),
    "v_bfm_b32": ("32 32", 32, lambda a, b: ((1 << (a & 31)) - 1) << (b & 31)),
    "v_bcnt_u32_b32": ("32 32", 32, lambda a, b: a.bit_count() + b),
    "v_lshlrev_b64": ("32 64", 64, lambda a, b: b << (a & 63)),
    "v_lshrrev_b64": ("32 64", 64, lambda a, b: b >> (a & 63)),
    "v_ashrrev_i64": ("32 64", 64, lambda a, b: s(b, 64) >> (a & 63)),
    "v_add_u32_e32": ("32 32", 32, lambda a, b: a + b),
    "v_sub_u32_e32": ("32 32", 32, lambda a, b: a - b),
    "v_subrev_u32_e32": ("32 32", 32, lambda a, b: b - a),
    "v_add_u16_e32": ("16 16", 16, lambda a, b: a + b),
    "v_sub_u16_e32": ("16 16", 16, lambda a, b: a - b),
    "v_subrev_u16_e32": ("16 16", 16, lambda a, b: b - a),
    "v_mul_lo_u16_e32": ("16 16", 16, lambda a, b: a * b),
    "v_mul_u32_u24_e32": ("32 32", 32, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF)),
    "v_mul_hi_u32_u24_e32": ("32 32", 32, lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF) >> 32),
    "v_mul_i32_i24_e32": ("32 32", 32, lambda a, b: s(a, 24) * s(b, 24)),
    "v_mul_hi_i32_i24_e32": ("32 32", 32, lambda a, b: s(a, 24) * s(b, 24) >> 32),
    "v_and_b32_e32": ("32 32", 32, lambda a, b: a & b),
    "v_or_b32_e32": ("32 32", 32, lambda a, b: a | b),
    "v_xor_b32_e32": ("32 32", 32, lambda a, b: a ^ b),
    "v_xnor_b32_e32": ("32 32", 32, lambda a, b: ~(a ^ b)),
    "v_lshlrev_b32_e32": ("32 32", 32, lambda a, b: b << (a & 31)),
    "v_lshrrev_b32_e32": ("32 32", 32, lambda a, b: b >> (a & 31)),
    "v_ashrrev_i32_e32": ("32 32", 32, lambda a, b: s(b) >> (a & 31)),
    "v_lshlrev_b16_e32": ("16 16", 16, lambda a, b: b << (a & 15)),
    "v_lshrrev_b16_e32": ("16 16", 16, lambda a, b: b >> (a & 15)),
    "v_ashrrev_i16_e32": ("16 16", 16, lambda a, b: s(b, 16) >> (a & 15)),
    "v_min_i32_e32": ("32 32", 32, lambda a, b: min(s(a), s(b))),
    "v_max_i32_e32": ("32 32", 32, lambda a, b: max(s(a), s(b))),
    "v_min_u32_e32": ("32 32", 32, min),
    "v_max_u32_e32": ("32 32", 32, max),
    "v_min_i16_e32": ("16 16", 16, lambda a, b: min(s(a, 16), s(b, 16))),
    "v_max_u16_e32": ("16 16", 16, max),
    "v_not_b32_e32": ("32", 32, lambda a: ~a),
    "v_bfrev_b32_e32": ("32", 32, lambda a: int(f"{a:032b}"[::-1], 2)),
    "v_ffbh_u32_e32": ("32", 32, lambda a: 32 - a.bit_length() if a else -1),
    "v_ffbl_b32_e32": ("32", 32, lambda a: (a & -a).bit_length() - 1 if a else -1),
    "v_ffbh_i32_e32": ("32", 32, first_other),
    "v_mov_b32_e32": ("32", 32, lambda a: a),
    "v_mov_b64_e32": ("64", 64, lambda a: a),
}
OTHER_NAMES = {"v_add_nc_u32_e32": ("gfx1100", "v_add_u32_e32"), "v_sub_nc_u32_e32": ("gfx1030", "v_sub_u32_e32"), "v_subrev_nc_u32_e32": ("gfx1201", "v_subrev_u32_e32"),
               "v_add_nc_u16": ("gfx1201", "v_add_u16_e32"), "v_sub_nc_u16": ("gfx1100", "v_sub_u16_e32"), "v_add_nc_i32": ("gfx1100", "v_add_i32"),
               "v_sub_nc_i32": ("gfx1100", "v_sub_i32"), "v_add_nc_i16": ("gfx1100", "v_add_i16"), "v_lshlrev_b64_e32": ("gfx1201", "v_lshlrev_b64"),
               "v_clz_i32_u32_e32": ("gfx1100", "v_ffbh_u32_e32"), "v_ctz_i32_b32_e32": ("gfx1201", "v_ffbl_b32_e32"), "v_cls_i32_e32": ("gfx1100", "v_ffbh_i32_e32"),
               "v_and_b16": ("gfx1100", None), "v_or_b16": ("gfx1100", None), "v_xor_b16": ("gfx1100", None), "v_not_b16_e32": ("gfx1100", None),
               "v_lshlrev_b16": ("gfx1030", "v_lshlrev_b16_e32"), "v_xor3_b32": ("gfx1100", None)}
NEW = {"v_and_b16": ("16 16", 16, lambda a, b: a & b), "v_or_b16": ("16 16", 16, lambda a, b: a | b), "v_xor_b16": ("16 16", 16, lambda a, b: a ^ b),
       "v_not_b16_e32": ("16", 16, lambda a: ~a), "v_xor3_b32": ("32 32 32", 32, lambda a, b, c: a ^ b ^ c)}
TYPE = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def check(arch, name, widths, out, f):
    widths = [int(x) for x in widths.split()]
    values = [lane_values(arch, lambda n, i=i, b=b: integers(n, 10 + i, b), waves=4) for i, b in enumerate(widths)]
    names = [f"v[{2 * i + 2}:{2 * i + 3}]" if b == 64 else f"v{2 * i + 2}" for i, b in enumerate(widths)]
    got = run_one(arch, f"{name} {'v[0:1]' if out == 64 else 'v0'}, {', '.join(names)}", {2 * i + 2: v for i, v in enumerate(values)}, TYPE[out], waves=4)
    expected = [f(*(int(x) for x in row)) & ((1 << out) - 1) for row in zip(*(v.flat for v in values))]
    wrong = [(row, g, e) for row, g, e in zip(zip(*(v.flat for v in values)), got.flat, expected) if g != e]
    assert not wrong, f"{name}: {len(wrong)} wrong, first {wrong[0]}"


@pytest.mark.parametrize("name", CASES)
def test_each_instruction(name):
    check("gfx942", name, *CASES[name])


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_names_of_later_generations(name):
    arch, old = OTHER_NAMES[name]
    check(arch, name, *(CASES[old] if old else NEW[name]))


@pytest.mark.parametrize("name, upper", [("v_mad_legacy_u16", 0), ("v_mad_legacy_i16", 0), ("v_mad_u16", 0x1234), ("v_mad_i16", 0x1234)])
def test_only_opcodes_without_halves_clear_the_upper_one(name, upper):
    r = run_snippet("gfx942", f"{name} v0, v1, v1, v1", {0: np.full(64, 0x12340000, np.uint32), 1: np.full(64, 3, np.uint32)})
    assert set(r.vgpr(0).reshape(-1).tolist()) == {upper << 16 | 12}


def test_permutation_of_bytes():
    a, b = (lane_values("gfx942", lambda n, i=i: integers(n, i)) for i in (1, 2))
    rng = np.random.default_rng(0)
    selectors = lane_values("gfx942", lambda n: sum(rng.integers(0, 15, n).astype(np.uint32) << np.uint32(8 * i) for i in range(4)).astype(np.uint32))
    got = run_one("gfx942", "v_perm_b32 v0, v2, v4, v6", {2: a, 4: b, 6: selectors}, np.uint32)
    assert got.reshape(-1).tolist() == [perm(int(x), int(y), int(z)) for x, y, z in zip(a.flat, b.flat, selectors.flat)]
    plain = selectors & np.uint32(0x07070707)  # bytes of the sources alone
    got = run_one("gfx942", "v_perm_b32 v0, v2, v4, v6", {2: a, 4: b, 6: plain}, np.uint32)
    assert got.reshape(-1).tolist() == [perm(int(x), int(y), int(z)) for x, y, z in zip(a.flat, b.flat, plain.flat)]
    for selector in (0x07060302, 0x05040100, 0x03020706, 0x01000504, 0x0C0C0201, 0x06050201, 0x00010203, 0x04030605, 0x0D0B0A09):
        r = run_snippet("gfx942", "v_perm_b32 v0, v2, v4, s4", {2: a, 4: b}, {4: selector}, waves=8)
        assert r.vgpr(0).reshape(-1).tolist() == [perm(int(x), int(y), selector) for x, y in zip(a.flat, b.flat)], hex(selector)


def test_permutation_by_a_selector_of_each_wave():
    a, b = (lane_values("gfx942", lambda n, i=i: integers(n, i), waves=2) for i in (1, 2))
    r = run_snippet("gfx942", "v_perm_b32 v0, v2, v4, s4", {2: a, 4: b}, {4: np.array([0x07060302, 0x05040100], np.uint32)}, waves=2)
    assert r.vgpr(0)[0].tolist() == [perm(int(x), int(y), 0x07060302) for x, y in zip(a[0], b[0])]
    assert r.vgpr(0)[1].tolist() == [perm(int(x), int(y), 0x05040100) for x, y in zip(a[1], b[1])]


@pytest.mark.parametrize("table", [0, 0xFF, 0x96, 0xCA, 0x36, 0x8E, 0x54, 0x01])
def test_any_function_of_three_bits(table):
    a, b, c = (lane_values("gfx950", lambda n, i=i: integers(n, i), waves=1) for i in (1, 2, 3))

    def f(x, y, z):
        return sum((table >> ((x >> i & 1) * 4 + (y >> i & 1) * 2 + (z >> i & 1)) & 1) << i for i in range(32))

    got = run_one("gfx950", f"v_bitop3_b32 v0, v2, v4, v6 bitop3:{table:#x}", {2: a, 4: b, 6: c}, np.uint32, waves=1)
    expected = [f(int(x), int(y), int(z)) for x, y, z in zip(a.flat, b.flat, c.flat)]
    assert got.reshape(-1).tolist() == expected
    got = run_one("gfx950", f"v_bitop3_b16 v0, v2, v4, v6 bitop3:{table:#x}", {2: a, 4: b, 6: c}, np.uint16, waves=1)
    assert got.reshape(-1).tolist() == [x & 0xFFFF for x in expected]


# --------------------------------------------------------------------------------------------------------- saturation
@pytest.mark.parametrize("name, bits, f, low, high, arch", [
    ("v_add_u32_e64", 32, lambda a, b: a + b, 0, M32, "gfx942"), ("v_sub_u32_e64", 32, lambda a, b: a - b, 0, M32, "gfx942"),
    ("v_subrev_nc_u32_e64", 32, lambda a, b: b - a, 0, M32, "gfx1100"), ("v_add_i32", 32, lambda a, b: s(a) + s(b), -(1 << 31), (1 << 31) - 1, "gfx942"),
    ("v_sub_nc_i32", 32, lambda a, b: s(a) - s(b), -(1 << 31), (1 << 31) - 1, "gfx1201"), ("v_add_u16_e64", 16, lambda a, b: a + b, 0, 0xFFFF, "gfx942"),
    ("v_sub_nc_u16", 16, lambda a, b: a - b, 0, 0xFFFF, "gfx1030"), ("v_add_nc_i16", 16, lambda a, b: s(a, 16) + s(b, 16), -32768, 32767, "gfx1030")])
def test_clamp_saturates_sums(name, bits, f, low, high, arch):
    a, b = (lane_values(arch, lambda n, i=i: integers(n, i, bits)) for i in (1, 2))
    got = run_one(arch, f"{name} v0, v2, v4 clamp", {2: a, 4: b}, TYPE[bits])
    assert got.reshape(-1).tolist() == [clamp(f(int(x), int(y)), low, high) & ((1 << bits) - 1) for x, y in zip(a.flat, b.flat)]


def test_clamp_of_what_can_not_saturate_is_refused():
    with pytest.raises(UnknownInstruction, match="clamp"):
        run_one("gfx942", "v_lshl_add_u32 v0, v1, v2, v3 clamp", {}, np.uint32, waves=1)


# ------------------------------------------------------------------------------------------------------------- carries
CARRY = {"add": lambda a, b, c: a + b + c, "sub": lambda a, b, c: a - b - c, "subrev": lambda a, b, c: b - a - c}


def mask_of(bits):
    return sum(1 << i for i, bit in enumerate(bits) if bit)


@pytest.mark.parametrize("op", CARRY)
@pytest.mark.parametrize("arch, out, into, name", [
    ("gfx942", "vcc", None, "v_{}_co_u32_e32"), ("gfx942", "s[10:11]", None, "v_{}_co_u32_e64"), ("gfx1100", "s10", None, "v_{}_co_u32"),
    ("gfx942", "vcc", "vcc", "v_{}_co_u32_e32"), ("gfx942", "s[10:11]", "s[12:13]", "v_{}_co_u32_e64"), ("gfx1100", "s10", "s12", "v_{}_co_ci_u32_e64"),
    ("gfx1201", "vcc_lo", "vcc_lo", "v_{}_co_ci_u32_e32")])
def test_carries(arch, out, into, name, op):
    if into and "_ci_" not in name:
        name = name.format({"add": "addc", "sub": "subb", "subrev": "subbrev"}[op])
    else:
        name = name.format(op)
    lanes = lanes_of(arch)
    a, b = (lane_values(arch, lambda n, i=i: integers(n, i), waves=2) for i in (1, 2))
    carry = np.array([0x123456789ABCDEF0 & ((1 << lanes) - 1), 0x0FF00FF00FF0F00F & ((1 << lanes) - 1)], np.uint64)
    active = 0xFFFFFFF0FFFFFFFC & ((1 << lanes) - 1)
    text = f"{name} v0, {out}, v2, v4" + (f", {into}" if into else "")
    sgprs = {12: carry if lanes == 64 else carry.astype(np.uint32)}
    r = run_snippet(arch, text, {2: a, 4: b}, sgprs, waves=2, vcc=carry, exec=active)
    mask = r.vcc if "vcc" in out else r.sgpr(10, np.uint64) if lanes == 64 else r.sgpr(10).astype(np.uint64)
    for wave in range(2):
        exact = [CARRY[op](int(x), int(y), int(carry[wave]) >> i & 1 if into else 0) for i, (x, y) in enumerate(zip(a[wave], b[wave]))]
        assert [g for i, g in enumerate(r.vgpr(0)[wave].tolist()) if active >> i & 1] == [x & M32 for i, x in enumerate(exact) if active >> i & 1]
        assert int(mask[wave]) == mask_of(not 0 <= x <= M32 for x in exact) & active  # inactive lanes give 0


@pytest.mark.parametrize("arch, name, signed", [("gfx942", "v_mad_u64_u32", False), ("gfx1201", "v_mad_co_u64_u32", False), ("gfx942", "v_mad_i64_i32", True)])
def test_product_and_sum_of_64_bits(arch, name, signed):
    a, b = (lane_values(arch, lambda n, i=i: integers(n, i)) for i in (1, 2))
    c = lane_values(arch, lambda n: integers(n, 3, 64))
    out = "s[10:11]" if arch == "gfx942" else "s10"
    r = run_snippet(arch, f"{name} v[0:1], {out}, v2, v4, v[6:7]", {2: a, 4: b, 6: c}, waves=8)
    of = (lambda x, bits: s(int(x), bits)) if signed else lambda x, bits: int(x)
    exact = np.array([of(x, 32) * of(y, 32) + of(z, 64) for x, y, z in zip(a.flat, b.flat, c.flat)], object).reshape(a.shape)
    assert r.vgpr(0, np.uint64).reshape(-1).tolist() == [x & M64 for x in exact.flat]
    low, high = (-(1 << 63), (1 << 63) - 1) if signed else (0, M64)
    masks = r.sgpr(10, np.uint64) if arch == "gfx942" else r.sgpr(10)
    assert masks.tolist() == [mask_of(not low <= x <= high for x in row) for row in exact]


# ---------------------------------------------------------------------------------------------------------- selections
def test_selection_by_a_mask():
    a, b = (lane_values("gfx942", lambda n, i=i: integers(n, i), waves=2) for i in (1, 2))
    masks = np.array([0xF0F0123456789ABC, 0x1], np.uint64)
    for text, kw in (("v_cndmask_b32_e32 v0, v2, v4, vcc", {"vcc": masks}), ("v_cndmask_b32_e64 v0, v2, v4, s[10:11]", {"sgprs": {10: masks}})):
        r = run_snippet("gfx942", text, {2: a, 4: b}, waves=2, **kw)
        for wave in range(2):
            assert r.vgpr(0)[wave].tolist() == [int(y if int(masks[wave]) >> i & 1 else x) for i, (x, y) in enumerate(zip(a[wave], b[wave]))]


def test_selection_with_signs_keeps_denormals():
    a, b = (lane_values("gfx1100", lambda n, i=i: floats("f32", n, i), waves=1) for i in (1, 2))
    r = run_snippet("gfx1100", "v_cndmask_b32_e64 v0, -v2, |v4|, s10", {2: a, 4: b}, {10: 0xFF00FF0F}, descriptor={"float_denorm_mode_32": 0})
    expected = [(int(y) & 0x7FFFFFFF) if 0xFF00FF0F >> i & 1 else int(x) ^ 0x80000000 for i, (x, y) in enumerate(zip(a.view(np.uint32)[0], b.view(np.uint32)[0]))]
    assert r.vgpr(0)[0].tolist() == expected


def test_selection_of_halves():
    a, b = (lane_values("gfx1100", lambda n, i=i: integers(n, i, 16), waves=1) for i in (1, 2))
    r = run_snippet("gfx1100", "v_cndmask_b16 v0.h, v2.l, v4.l, s10", {0: np.uint32(0x1234), 2: to_register(a), 4: to_register(b)}, {10: 0xFF00FF0F})
    assert r.vgpr(0)[0].tolist() == [int(y if 0xFF00FF0F >> i & 1 else x) << 16 | 0x1234 for i, (x, y) in enumerate(zip(a[0], b[0]))]


def test_dual_instructions_read_before_either_writes():
    x, y = (lane_values("gfx1100", lambda n, i=i: integers(n, i), waves=2) for i in (1, 2))
    r = run_snippet("gfx1100", "v_dual_add_nc_u32 v2, v3, v2 :: v_dual_lshlrev_b32 v3, 4, v2", {2: x, 3: y}, waves=2)
    assert (r.vgpr(2) == x + y).all() and (r.vgpr(3) == x << np.uint32(4)).all()
    r = run_snippet("gfx1100", "v_dual_cndmask_b32 v2, v3, v2 :: v_dual_and_b32 v3, 15, v2", {2: x, 3: y}, waves=2, vcc=0xF0)
    mask = (np.arange(32) >> 2 & 1 == 1) & (np.arange(32) < 8)
    assert (r.vgpr(2) == np.where(mask, x, y)).all() and (r.vgpr(3) == (x & np.uint32(15))).all()


def test_swap_and_accumulators():
    x, y = (lane_values("gfx942", lambda n, i=i: integers(n, i), waves=2) for i in (1, 2))
    r = run_snippet("gfx942", "v_swap_b32 v2, v3", {2: x, 3: y}, waves=2, exec=0xFFFF)
    keep = np.arange(64) < 16
    assert (r.vgpr(2) == np.where(keep, y, x)).all() and (r.vgpr(3) == np.where(keep, x, y)).all()
    r = run_snippet("gfx942", "v_accvgpr_write_b32 a1, v2\nv_accvgpr_mov_b32 a2, a1\nv_accvgpr_read_b32 v4, a2\nv_accvgpr_write_b32 a3, 1.0", {2: x}, waves=2)
    assert (r.vgpr(4) == x).all() and (r.agpr(1) == x).all() and (r.agpr(3, np.float32) == 1).all()


@pytest.mark.parametrize("constant, bits", [("0x12345678", 0x12345678), ("-1", M32), ("64", 64), ("-16", M32 - 15), ("1.0", 0x3F800000), ("0.15915494", 0x3E22F983),
                                            ("s4", 77), ("vcc_lo", 0x55), ("exec_lo", M32), ("m0", 9), ("src_scc", 1)])
def test_scalar_operands(constant, bits):
    r = run_snippet("gfx1100", f"v_mov_b32_e32 v0, {constant}", {}, {4: 77}, vcc=0x55, m0=9, scc=True)
    assert (r.vgpr(0) == bits).all()


def test_inactive_lanes_stay():
    r = run_snippet("gfx942", "v_mov_b32_e32 v0, 3\nv_mov_b64_e32 v[2:3], v[4:5]", {0: np.uint32(1), 2: np.full(64, 5, np.uint64), 4: np.full(64, 7 << 32, np.uint64)}, exec=0xFF00)
    active = (np.arange(64) >= 8) & (np.arange(64) < 16)
    assert (r.vgpr(0)[0] == np.where(active, 3, 1)).all() and (r.vgpr(2, np.uint64)[0] == np.where(active, 7 << 32, 5)).all()
