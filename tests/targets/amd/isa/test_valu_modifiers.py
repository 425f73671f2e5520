"""Everything that the text can add to an instruction: signs, clamp, output scale, halves, SDWA, DPP, denormal modes."""

import numpy as np
import pytest
from snippets import lanes_of, run_snippet
from valu_cases import floats, integers, lane_values, run_one, same, to_register

from tilewright.targets.amd.isa.errors import UnknownInstruction


def lane_numbers(arch, waves=1):
    """100 · wave + lane."""
    return np.arange(lanes_of(arch), dtype=np.uint32) + np.arange(waves, dtype=np.uint32)[:, None] * np.uint32(100)


# -------------------------------------------------------------------------------------------------------------- signs
@pytest.mark.parametrize("kind, type", [("f16", np.float16), ("f32", np.float32), ("f64", np.float64)])
def test_signs_of_sources(kind, type):
    a, b = (lane_values("gfx942", lambda n, i=i: floats(kind, n, i)) for i in (1, 2))
    x, y, d = ("v[2:3]", "v[4:5]", "v[0:1]") if kind == "f64" else ("v2", "v4", "v0")
    with np.errstate(all="ignore"):
        for text, expected in ((f"-{x}, {y}", -a + b), (f"|{x}|, {y}", abs(a) + b), (f"-|{x}|, -{y}", -abs(a) - b), (f"{x}, |{y}|", a + abs(b))):
            same(run_one("gfx942", f"v_add_{kind}_e64 {d}, {text}", {2: a, 4: b}, type), expected)


def test_signs_of_scalars_and_constants():
    a = lane_values("gfx942", lambda n: floats("f32", n))
    with np.errstate(all="ignore"):
        r = run_snippet("gfx942", "v_add_f32_e64 v0, v2, -s4\nv_mul_f32_e64 v1, -v2, |s4|", {2: a}, {4: np.float32(-2.5)}, waves=8)
        same(r.vgpr(0, np.float32), a + np.float32(2.5))
        same(r.vgpr(1, np.float32), -a * np.float32(2.5))
        same(run_one("gfx942", "v_fma_f32 v0, v2, -1.0, 0.5", {2: a}, np.float32), np.float32(0.5) - a)


# --------------------------------------------------------------------------------------------------- results of floats
def _clamped(x, to_zero=True):
    out = np.where(np.isnan(x), 0 if to_zero else np.nan, np.clip(np.where(np.isnan(x), 0, x), 0, 1)).astype(x.dtype)
    return np.where(out == 0, x.dtype.type(0), out)


@pytest.mark.parametrize("kind, type", [("f16", np.float16), ("f32", np.float32)])
def test_clamp_and_output_scale(kind, type):
    a, b = (lane_values("gfx942", lambda n, i=i: floats(kind, n, i)) for i in (1, 2))
    with np.errstate(all="ignore"):
        for tail, f in ((" clamp", _clamped), (" mul:2", lambda x: x * type(2)), (" mul:4", lambda x: x * type(4)), (" div:2", lambda x: x * type(0.5)),
                        (" clamp mul:2", lambda x: _clamped(x * type(2)))):
            same(run_one("gfx942", f"v_add_{kind}_e64 v0, v2, v4{tail}", {2: a, 4: b}, type), f(a + b))
        same(run_one("gfx942", f"v_add_{kind}_e64 v0, v2, v4 clamp", {2: a, 4: b}, type, descriptor={"dx10_clamp": 0}), _clamped(a + b, False))


def _flush(x):
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)


@pytest.mark.parametrize("mode, ins, out", [(0, True, True), (1, False, True), (2, True, False), (3, False, False)])
@pytest.mark.parametrize("kind, type", [("f16", np.float16), ("f32", np.float32), ("f64", np.float64)])
def test_denormal_modes(kind, type, mode, ins, out):
    a = lane_values("gfx942", lambda n: floats(kind, n, 1))
    b = lane_values("gfx942", lambda n: floats(kind, n, 2))
    a[:, ::2] = np.finfo(type).tiny / 4
    b[:, ::4] = np.finfo(type).tiny / 2
    name, other = ("float_denorm_mode_32", "float_denorm_mode_16_64") if kind == "f32" else ("float_denorm_mode_16_64", "float_denorm_mode_32")
    x, y, d = ("v[2:3]", "v[4:5]", "v[0:1]") if kind == "f64" else ("v2", "v4", "v0")
    with np.errstate(all="ignore"):
        p, q = (_flush(a), _flush(b)) if ins else (a, b)
        expected = _flush(p + q) if out else p + q
        modes = {name: mode, other: 3 if mode == 0 else 0}  # the other mode is another's
        same(run_one("gfx942", f"v_add_{kind}_e64 {d}, {x}, {y}", {2: a, 4: b}, type, descriptor=modes), expected)
        less = run_snippet("gfx942", f"v_cmp_lt_{kind}_e64 s[10:11], {x}, {y}", {2: to_register(a), 4: to_register(b)}, waves=8, descriptor=modes).sgpr(10, np.uint64)
        assert less.tolist() == [sum(1 << i for i, bit in enumerate(row) if bit) for row in p < q]


def test_moves_do_not_flush():
    a = np.full((1, 64), 1e-40, np.float32)
    same(run_one("gfx942", "v_mov_b32_e32 v0, v2", {2: a}, np.float32, waves=1, descriptor={"float_denorm_mode_32": 0}), a)


# -------------------------------------------------------------------------------------------------------------- halves
def test_other_half_of_a_16_bit_result():
    """GFX9 clears it, but for instructions that only VOP3 has; later generations keep it."""
    one, old = np.uint32(0x3C00), np.uint32(0xABCD1234)
    for arch, text, high in (("gfx942", "v_add_f16_e32 v0, v2, v2", 0), ("gfx942", "v_fma_f16 v0, v2, v2, 0", 0xABCD), ("gfx1030", "v_add_f16_e32 v0, v2, v2", 0xABCD),
                             ("gfx1201", "v_cvt_f16_f32_e32 v0, 1.0", 0xABCD), ("gfx942", "v_cvt_f16_f32_e32 v0, 1.0", 0), ("gfx942", "v_max3_f16 v0, v2, v2, v2", 0xABCD),
                             ("gfx942", "v_lshlrev_b16_e32 v0, 1, v2", 0), ("gfx1030", "v_lshlrev_b16 v0, 1, v2", 0xABCD)):
        r = run_snippet(arch, text, {0: old, 2: one})
        assert (r.vgpr(0) >> 16 == high).all() and not (r.vgpr(0) & 0xFFFF == 0x1234).any(), (arch, text)


def test_halves_by_op_sel():
    low, high = (lane_values("gfx1030", lambda n, i=i: floats("f16", n, i), waves=1) for i in (1, 2))
    pair = low.view(np.uint16).astype(np.uint32) | high.view(np.uint16).astype(np.uint32) << np.uint32(16)
    with np.errstate(all="ignore"):
        for text, expected, part in (("op_sel:[1,0,0]", high + low, 0), ("op_sel:[0,1,1]", low + high, 1), ("op_sel:[1,1,1]", high + high, 1), ("op_sel:[0,0,1]", low + low, 1)):
            r = run_snippet("gfx1030", f"v_add_f16_e64 v0, v2, v2 {text}", {0: np.uint32(0x11112222), 2: pair})
            same((r.vgpr(0) >> np.uint32(16 * part) & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16), expected)
            assert (r.vgpr(0) >> np.uint32(16 - 16 * part) & 0xFFFF == (0x1111 if part == 0 else 0x2222)).all()
        r = run_snippet("gfx1030", "v_fma_f16 v0, v2, v2, v2 op_sel:[0,1,0,0]\nv_cmp_lt_f16_e64 s4, v2, v2 op_sel:[1,0]", {2: pair})
        assert int(r.sgpr(4)[0]) == sum(1 << i for i, (x, y) in enumerate(zip(high[0], low[0])) if x < y)


def test_halves_by_name():
    low, high = (lane_values("gfx1100", lambda n, i=i: integers(n, i, 16), waves=1) for i in (1, 2))
    pair = low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)
    r = run_snippet("gfx1100", "v_mov_b16_e32 v0.h, v2.l\nv_mov_b16_e32 v0.l, v2.h\nv_and_b16 v1.l, v2.h, v2.l\nv_mov_b16_e64 v3.l, s4\nv_mov_b16_e32 v4.h, 0x7fff",
                    {0: 0, 1: 0, 2: pair, 3: 0xFFFF0000, 4: 0x1234}, {4: 0xAAAABBBB})
    assert (r.vgpr(0) == (low.astype(np.uint32) << np.uint32(16) | high)).all() and (r.vgpr(1) == (low & high)).all()
    assert (r.vgpr(3) == 0xFFFFBBBB).all() and (r.vgpr(4) == 0x7FFF1234).all()


# ---------------------------------------------------------------------------------------------------------------- SDWA
SELECT = {"BYTE_0": lambda x: x & 255, "BYTE_1": lambda x: x >> 8 & 255, "BYTE_2": lambda x: x >> 16 & 255, "BYTE_3": lambda x: x >> 24, "WORD_0": lambda x: x & 0xFFFF,
          "WORD_1": lambda x: x >> 16, "DWORD": lambda x: x}
PLACE = {"BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16), "WORD_1": (16, 16), "DWORD": (0, 32)}


@pytest.mark.parametrize("dst", PLACE)
@pytest.mark.parametrize("unused", ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"])
def test_sdwa_of_integers(dst, unused):
    a, b = (lane_values("gfx942", lambda n, i=i: integers(n, i), waves=1) for i in (1, 2))
    for s0, s1, signed in (("BYTE_2", "WORD_1", False), ("WORD_1", "DWORD", True), ("DWORD", "BYTE_3", False), ("BYTE_1", "WORD_0", True)):
        left = "sext(v2), v4" if signed else "v2, v4"
        text = f"v_add_u32_sdwa v0, {left} dst_sel:{dst} dst_unused:{unused} src0_sel:{s0} src1_sel:{s1}"
        got = run_one("gfx942", text, {0: np.full((1, 64), 0x89ABCDEF, np.uint32), 2: a, 4: b}, np.uint32, waves=1)
        start, bits = PLACE[dst]
        for g, x, y in zip(got.flat, a.flat, b.flat):
            p = SELECT[s0](int(x))
            width = PLACE[s0][1]
            if signed and p >> (width - 1):
                p -= 1 << width
            value = (p + SELECT[s1](int(y))) & ((1 << bits) - 1)
            field = ((1 << bits) - 1) << start
            out = value << start
            if unused == "UNUSED_PRESERVE":
                out |= 0x89ABCDEF & ~field
            elif unused == "UNUSED_SEXT" and value >> (bits - 1):
                out |= 0xFFFFFFFF << (start + bits) & 0xFFFFFFFF
            assert g == out, (text, hex(x), hex(y))


def test_sdwa_of_floats_and_selections():
    low, high = (lane_values("gfx942", lambda n, i=i: floats("f16", n, i), waves=1) for i in (1, 2))
    pair = low.view(np.uint16).astype(np.uint32) | high.view(np.uint16).astype(np.uint32) << np.uint32(16)
    with np.errstate(all="ignore"):
        same(run_one("gfx942", "v_cvt_f32_f16_sdwa v0, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_1", {2: pair}, np.float32, waves=1), high.astype(np.float32))
        r = run_snippet("gfx942", "v_add_f16_sdwa v0, -v2, |v2| dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_0", {0: 0x1234, 2: pair})
        same((r.vgpr(0) >> np.uint32(16)).astype(np.uint16).view(np.float16), -high + abs(low))
        assert (r.vgpr(0) & 0xFFFF == 0x1234).all()
    r = run_snippet("gfx942", "v_cndmask_b32_sdwa v0, v2, v4, vcc dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:WORD_1", {2: pair, 4: pair}, vcc=0xFFFF)
    assert (r.vgpr(0)[0] == np.where(np.arange(64) < 16, pair[0] >> np.uint32(16), pair[0])).all()
    r = run_snippet("gfx942", "v_cmp_eq_u16_sdwa s[10:11], v2, v4 src0_sel:BYTE_1 src1_sel:WORD_0", {2: pair, 4: pair >> np.uint32(8) & np.uint32(255)})
    assert (r.sgpr(10, np.uint64) == 0xFFFFFFFFFFFFFFFF).all()


# ----------------------------------------------------------------------------------------------------------------- DPP
def dpp_reference(arch, control, value, lanes):
    """Source lane of each lane, or None."""
    out = []
    for i in range(lanes):
        row, at = i // 16 * 16, i % 16
        source = None
        if control == "quad_perm":
            source = i // 4 * 4 + value[i % 4]
        elif control == "row_shl":  # towards lane 0
            source = i + value if at + value < 16 else None
        elif control == "row_shr":
            source = i - value if at - value >= 0 else None
        elif control == "row_ror":
            source = row + (at - value) % 16
        elif control == "row_mirror":
            source = row + 15 - at
        elif control == "row_half_mirror":
            source = i // 8 * 8 + 7 - i % 8
        elif control in ("row_newbcast", "row_share"):
            source = row + value
        elif control == "row_xmask":
            source = row + (at ^ value)
        elif control == "row_bcast":
            source = (row - 1 if row else None) if value == 15 else (31 if i >= 32 else None)
        elif control in ("wave_shl", "wave_rol"):
            source = i + 1 if i + 1 < lanes else (0 if control == "wave_rol" else None)
        elif control in ("wave_shr", "wave_ror"):
            source = i - 1 if i else (lanes - 1 if control == "wave_ror" else None)
        elif control == "dpp8":
            source = i // 8 * 8 + value[i % 8]
        out.append(source)
    return out


GFX9 = [("quad_perm", (1, 0, 3, 2)), ("quad_perm", (0, 0, 2, 2)), ("row_shl", 1), ("row_shl", 15), ("row_shr", 1), ("row_shr", 8), ("row_ror", 4), ("row_mirror", None),
        ("row_half_mirror", None), ("row_bcast", 15), ("row_bcast", 31), ("wave_shl", 1), ("wave_shr", 1), ("wave_rol", 1), ("wave_ror", 1), ("row_newbcast", 3)]
GFX11 = [("quad_perm", (3, 2, 1, 0)), ("row_shl", 2), ("row_shr", 4), ("row_ror", 12), ("row_mirror", None), ("row_half_mirror", None), ("row_share", 5), ("row_xmask", 8),
         ("dpp8", (7, 0, 6, 1, 5, 2, 4, 3))]
CASES = [(arch, c) for arch, controls in (("gfx942", GFX9), ("gfx1100", GFX11)) for c in controls]


@pytest.mark.parametrize("arch, case", CASES)
@pytest.mark.parametrize("tail", ["row_mask:0xf bank_mask:0xf", "row_mask:0xf bank_mask:0xf bound_ctrl:1", "row_mask:0xa bank_mask:0x5", "row_mask:0xf bank_mask:0xf fi:1"])
@pytest.mark.parametrize("active", [0xFFFFFFFFFFFFFFFF, 0xFFFF0F0FF3FFFFF5])
def test_dpp(arch, case, tail, active):
    control, value = case
    if "fi" in tail and arch == "gfx942":
        return
    if control == "dpp8":
        if "row_mask:0xa" in tail or "bound" in tail:
            return
        tail = "fi:1" if "fi" in tail else ""
    lanes = lanes_of(arch)
    active &= (1 << lanes) - 1
    word = control if value is None else f"{control}:{list(value)}".replace(" ", "") if isinstance(value, tuple) else f"{control}:{value}"
    x, old = lane_numbers(arch, 2) + np.uint32(1), np.uint32(5000)
    r = run_snippet(arch, f"v_mov_b32_dpp v0, v2 {word} {tail}", {0: old, 2: x}, waves=2, exec=active)
    expected = []
    for row in x.tolist():
        for i, source in enumerate(dpp_reference(arch, control, value, lanes)):
            written = active >> i & 1 and ("0xa" not in tail or (i // 16 % 2 == 1 and i // 4 % 2 == 0))
            valid = source is not None and ("fi" in tail or active >> source & 1)
            if written and not valid:
                expected.append(0 if "bound" in tail or control == "dpp8" else 5000)
            else:
                expected.append(row[source] if written else 5000)
    assert r.vgpr(0).reshape(-1).tolist() == expected


def test_dpp_moves_only_the_first_source():
    x, y = lane_numbers("gfx942").astype(np.float32), np.float32(1000)
    r = run_snippet("gfx942", "v_add_f32_dpp v0, -v2, v4 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1", {0: 0, 2: x, 4: y})
    expected = [1000 - (i - 1 if i % 16 else 0) for i in range(64)]
    assert r.vgpr(0, np.float32)[0].tolist() == expected
    r = run_snippet("gfx942", "v_fmac_f32_dpp v0, v2, v4 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", {0: x, 2: x, 4: y})
    assert r.vgpr(0, np.float32)[0].tolist() == [(i ^ 1) * 1000 + i for i in range(64)]


def test_a_sum_over_a_wave_by_dpp():
    """The sequence of GFX9's reductions: within rows, then rows into the last."""
    x = lane_numbers("gfx942", 3)
    text = "\n".join(f"v_add_u32_dpp v2, v2, v2 {c} row_mask:{m} bank_mask:0xf" + (" bound_ctrl:1" if m == "0xf" else "")
                     for c, m in (("row_shr:1", "0xf"), ("row_shr:2", "0xf"), ("row_shr:4", "0xf"), ("row_shr:8", "0xf"), ("row_bcast:15", "0xa"), ("row_bcast:31", "0xc")))
    r = run_snippet("gfx942", text, {2: x}, waves=3)
    assert (r.vgpr(2)[:, 63] == x.sum(1)).all()


def test_comparison_with_dpp():
    x = lane_numbers("gfx1100")
    r = run_snippet("gfx1100", "v_cmp_gt_u32_e64_dpp s4, v2, v3 row_ror:1 row_mask:0xf bank_mask:0xf", {2: x, 3: x})
    assert int(r.sgpr(4)[0]) == 0x00010001


def test_dpp_of_64_bits():
    x = lane_numbers("gfx942").astype(np.uint64) << np.uint64(20)
    r = run_snippet("gfx942", "v_mov_b64_dpp v[0:1], v[2:3] row_newbcast:7 row_mask:0xf bank_mask:0xf", {2: x})
    assert r.vgpr(0, np.uint64)[0].tolist() == [(i // 16 * 16 + 7) << 20 for i in range(64)]


@pytest.mark.parametrize("arch, text", [("gfx1100", "v_mov_b32_dpp v0, v1 row_bcast:15 row_mask:0xf bank_mask:0xf"), ("gfx942", "v_mov_b32_dpp v0, v1 row_xmask:1 row_mask:0xf bank_mask:0xf"),
                                        ("gfx942", "v_mov_b32_dpp v0, v1 row_mask:0xf bank_mask:0xf"), ("gfx942", "v_mov_b32_e64 v0, v1 row_shr:1"),
                                        ("gfx942", "v_add_f32_e32 v0, v1, v2 clamped:1"), ("gfx942", "v_add_u32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_MAYBE src0_sel:DWORD src1_sel:DWORD")])
def test_what_is_refused(arch, text):
    with pytest.raises(UnknownInstruction):
        run_snippet(arch, text)
