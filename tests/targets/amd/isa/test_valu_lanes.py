"""Between lanes, and to scalar registers."""

import numpy as np
import pytest
from snippets import lanes_of, run_snippet
from valu_cases import integers, lane_values

FULL = 0xFFFFFFFFFFFFFFFF


def test_readlane_and_writelane_take_no_notice_of_exec():
    x = lane_values("gfx942", integers, 2)
    r = run_snippet("gfx942", "v_readlane_b32 s4, v2, 37\nv_readlane_b32 s5, v2, s6\nv_writelane_b32 v3, s7, 63\nv_writelane_b32 v3, 9, s6\nv_readlane_b32 m0, v2, 1",
                    {2: x, 3: 0}, {6: np.array([3, 70], np.uint32), 7: 55}, waves=2, exec=2)
    assert r.sgpr(4).tolist() == x[:, 37].tolist() and r.sgpr(5).tolist() == [x[0, 3], x[1, 6]] and r.m0.tolist() == x[:, 1].tolist()
    expected = np.zeros((2, 64), np.uint32)
    expected[:, 63], expected[0, 3], expected[1, 6] = 55, 9, 9
    assert (r.vgpr(3) == expected).all()


def test_first_active_lane():
    x = lane_values("gfx1100", integers, 3)
    r = run_snippet("gfx1100", "v_readfirstlane_b32 s4, v2", {2: x}, waves=3, exec=np.array([0xFFFFFFFF, 0x100, 0], np.uint64))
    assert r.sgpr(4).tolist() == [x[0, 0], x[1, 8], x[2, 0]]


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_bits_below_the_lane(arch):
    lanes = lanes_of(arch)
    r = run_snippet(arch, "v_mbcnt_lo_u32_b32 v0, s4, 5\nv_mbcnt_hi_u32_b32 v1, s5, v0\nv_mbcnt_lo_u32_b32 v2, -1, 0\nv_mbcnt_hi_u32_b32 v2, -1, v2", {}, {4: 0xF0F01234, 5: 0x80000011})
    mask = 0x80000011F0F01234
    assert r.vgpr(0)[0].tolist() == [5 + (0xF0F01234 & ((1 << i) - 1)).bit_count() for i in range(lanes)]
    assert r.vgpr(1)[0].tolist() == [5 + (mask & ((1 << i) - 1)).bit_count() for i in range(lanes)]
    assert r.vgpr(2)[0].tolist() == list(range(lanes))


@pytest.mark.parametrize("name", ["v_permlane16_b32", "v_permlanex16_b32"])
@pytest.mark.parametrize("op_sel", ["", " op_sel:[1,0]", " op_sel:[0,1]", " op_sel:[1,1]"])
@pytest.mark.parametrize("active", [0xFFFFFFFF, 0x0FF3FFF5])
def test_permlane16(name, op_sel, active):
    x = lane_values("gfx1100", integers, 2)
    low, high = 0x76543210 ^ 0x1357ACE0, 0xFEDCBA98 ^ 0x31415926
    r = run_snippet("gfx1100", f"{name} v0, v2, s4, s5{op_sel}", {0: 77, 2: x}, {4: low, 5: high}, waves=2, exec=active)
    for wave in range(2):
        for i, got in enumerate(r.vgpr(0)[wave].tolist()):
            nibble = (low if i % 16 < 8 else high) >> (4 * (i % 8)) & 15
            row = i // 16 ^ (1 if "x16" in name else 0)
            source = row * 16 + nibble
            if not active >> i & 1:
                expected = 77
            elif active >> source & 1 or "[1," in op_sel:
                expected = int(x[wave, source])
            else:
                expected = 0 if op_sel.endswith("1]") else 77
            assert got == expected, (i, source)


def test_permlane64():
    x = lane_values("gfx1100", integers, 1)
    assert (run_snippet("gfx1100", "v_permlane64_b32_e32 v0, v2", {2: x}).vgpr(0) == x).all()


@pytest.mark.parametrize("size", [16, 32])
@pytest.mark.parametrize("tail, active", [("e32", FULL), ("e32", 0xFFFF0000FFFFFFF7), ("e64 bound_ctrl:1", 0xFFFF0000FFFFFFF7), ("e64 fi:1", 0xFFFF0000FFFFFFF7)])
def test_swaps_of_rows(size, tail, active):
    suffix, _, modifier = tail.partition(" ")
    a, b = (lane_values("gfx950", lambda n, i=i: integers(n, i), 1) for i in (1, 2))
    suffix_text = f"v_permlane{size}_swap_b32_{suffix} v0, v1" + (f" {modifier}" if modifier else "")
    r = run_snippet("gfx950", suffix_text, {0: a, 1: b}, exec=active)
    x, y = a[0].tolist(), b[0].tolist()
    expect_a, expect_b = list(x), list(y)
    for i in range(64):
        odd = i // size % 2 == 1
        source = i - size if odd else i + size
        if active >> i & 1:
            value = (y if odd else x)[source] if active >> source & 1 or modifier == "fi:1" else 0 if modifier else None
            if value is not None:
                (expect_a if odd else expect_b)[i] = value
    assert r.vgpr(0)[0].tolist() == expect_a and r.vgpr(1)[0].tolist() == expect_b
