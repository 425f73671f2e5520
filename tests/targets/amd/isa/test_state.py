"""Registers of waves: masks, views and copies, operands by kind, and the report of a launch."""

import numpy as np
import pytest
from snippets import kernel_text, run_snippet

from tilewright.targets.amd.isa.launch import Launch
from tilewright.targets.amd.isa.machine import Machine, load
from tilewright.targets.amd.isa.memory import GlobalMemory
from tilewright.targets.amd.isa.program import parse, parse_operand
from tilewright.targets.amd.isa.state import reader, scalar_reader, scalar_writer, writer
from tilewright.targets.amd.simulate import simulate


@pytest.fixture(params=["gfx942", "gfx1100"])
def machine(request):
    """Six waves in two work-groups that have just begun."""
    program = parse(kernel_text(request.param, "s_nop 0", agprs=8 if request.param == "gfx942" else 0))
    lanes = program.kernel().lanes
    machine = Machine(load(program, program.kernel()), Launch((2, 1, 1), (3 * lanes, 1, 1), np.zeros(64, np.uint8), 64), GlobalMemory())
    machine.run()
    return machine


def waves(machine, *index):
    w = machine._waves(np.array(index or range(6)))
    w.ins = machine.kernel.instructions[0]
    return w


def test_masks(machine):
    w = waves(machine)
    rng = np.random.default_rng(2)
    mask = rng.integers(0, 2, (6, w.lanes)).astype(bool)
    packed = w.mask_to_sgpr(mask)
    assert [int(x) for x in packed] == [sum(1 << i for i in range(w.lanes) if row[i]) for row in mask]
    np.testing.assert_array_equal(w.sgpr_to_mask(packed), mask)
    assert w.full
    w.exec = packed
    np.testing.assert_array_equal(w.exec_mask, mask)
    assert not w.full
    w.vcc = packed
    np.testing.assert_array_equal(w.vcc, packed)


def test_writes_go_where_lanes_are_active(machine):
    w = waves(machine)
    w.set_vgpr(3, np.uint32(7))
    w.exec = np.full(6, 0b1010, np.uint64)
    w.set_vgpr(3, np.full((6, w.lanes), 2.5, np.float32))
    mask = np.zeros((6, w.lanes), bool)
    mask[:, 2:] = True
    w.set_vgpr(4, np.uint32(1))
    w.set_vgpr(4, np.uint32(9), mask)
    expected = np.where(np.isin(np.arange(w.lanes), (1, 3)), np.float32(2.5).view(np.uint32), 7)
    np.testing.assert_array_equal(w.vgpr(3), np.broadcast_to(expected, (6, w.lanes)))
    assert w.vgpr(4)[0, 1] == 1 and w.vgpr(4)[0, 3] == 9
    w.set_vgpr64(6, np.full((6, w.lanes), 0x1122334455667788, np.uint64))
    assert w.vgpr(6)[2, 1] == 0x55667788 and w.vgpr(7)[2, 1] == 0x11223344 and w.vgpr64(6)[2, 1] == 0x1122334455667788 and w.vgpr(7)[2, 0] != 0x11223344
    with pytest.raises(TypeError, match="a register of 4 bytes is written from float64"):
        w.set_vgpr(3, np.zeros((6, w.lanes)))
    with pytest.raises(TypeError, match="64 bits are written from"):
        w.set_vgpr64(3, np.zeros((6, w.lanes), np.uint32))


def test_scattered_waves_work_on_copies_and_write_them_back(machine):
    w = waves(machine)
    w.set_vgpr(3, np.uint32(1))
    w.set_sgpr(9, np.arange(6, dtype=np.uint32))
    some = waves(machine, 0, 3, 5)
    assert some.sgpr(9).tolist() == [0, 3, 5] and some.group_ids.tolist() == [0, 1, 1]
    some.set_vgpr(3, np.uint32(2))
    some.exec = np.array([1, 2, 3], np.uint64)
    some.scc = True
    assert (w.vgpr(3) == 1).all()
    some.store()
    all_again = waves(machine)
    np.testing.assert_array_equal(all_again.vgpr(3)[:, 0], [2, 1, 1, 2, 1, 2])
    assert all_again.exec.tolist()[::3] == [1, 2] and all_again.scc.tolist() == [True, False, False, True, False, True]
    assert all_again.exec_mask[3].nonzero()[0].tolist() == [1]  # not the mask from before


def test_neighbours_are_views(machine):
    part = waves(machine, 2, 3)
    part.set_vgpr(5, np.uint32(77))
    np.testing.assert_array_equal(waves(machine).vgpr(5)[:, 0] == 77, [False, False, True, True, False, False])


@pytest.mark.parametrize("text, kind, value", [
    ("-1", "b32", 0xFFFFFFFF), ("64", "u32", 64), ("-16", "i32", -16), ("1.0", "b32", 0x3F800000), ("1.0", "f32", 1.0), ("-0.5", "f64", -0.5), ("1", "f32", np.uint32(1).view(np.float32)),
    ("1.0", "f16", 1.0), ("1.0", "b16", 0x3C00), ("1.0", "bf16", 0x3F80), ("-1", "u16", 0xFFFF), ("-1", "b64", (1 << 64) - 1), ("0xffffffff", "b64", 0xFFFFFFFF),
    ("0xffffffff", "i64", -1), ("0x40000000", "f64", 2.0), ("1.0", "pkf16", 0x3C00), ("-1", "pk16", 0xFFFFFFFF), ("0.15915494", "f32", np.float32(0.15915494)), ("0x3c003c00", "pkf16", 0x3C003C00),
])
def test_constants_by_kind(machine, text, kind, value):
    got = reader(parse_operand(text), kind)(waves(machine))
    assert got.shape == (1, 1) and got[0, 0] == value
    assert scalar_reader(parse_operand(text), kind)(waves(machine)) == value


def test_operands(machine):
    w = waves(machine)
    w.set_vgpr(3, np.full((6, w.lanes), 0x3C00BEEF, np.uint32))
    assert reader(parse_operand("v3.h"), "f16")(w)[0, 0] == 1.0 and reader(parse_operand("v3.l"), "b16")(w)[5, 1] == 0xBEEF
    writer(parse_operand("v3.h"), "b16")(w, np.full((6, w.lanes), 0x1234, np.uint16))
    assert w.vgpr(3)[4, 4] == 0x1234BEEF
    scalar_writer(parse_operand("s[4:5]"), "b64")(w, np.full(6, 0x500000003, np.uint64))
    assert w.sgpr(4)[1] == 3 and w.sgpr(5)[1] == 5 and reader(parse_operand("s[4:5]"), "u64")(w).shape == (6, 1)
    scalar_writer(parse_operand("null"), "b32")(w, np.uint32(8))
    assert scalar_reader(parse_operand("null"), "u32")(w) == 0
    scalar_writer(parse_operand("ttmp9"))(w, np.arange(6, dtype=np.uint32))
    assert reader(parse_operand("ttmp9"), "i32")(w)[:, 0].tolist() == list(range(6))
    w.exec = np.full(6, 5, np.uint64)
    assert scalar_reader(parse_operand("exec_lo"), "u32")(w).tolist() == [5] * 6
    with pytest.raises(TypeError, match="no scalar operand"):
        scalar_reader(parse_operand("off"), "u32")
    with pytest.raises(TypeError, match="no destination"):
        writer(parse_operand("1.0"))


def test_registers_begin_with_poison():
    """A NaN, so that a value that nobody wrote does not go unnoticed."""
    out = np.zeros(64, np.float32)
    text = kernel_text("gfx942", "s_load_dwordx2 s[4:5], s[0:1], 0x0\nv_lshlrev_b32_e32 v0, 2, v0\ns_waitcnt lgkmcnt(0)\nglobal_store_dword v0, v5, s[4:5]",
                       args=[(0, 8, "global_buffer")], kernarg=8, descriptor={"user_sgpr_kernarg_segment_ptr": 1, "user_sgpr_count": 2})
    simulate(text, (1,), [out], num_warps=1)
    assert np.isnan(out).all()


@pytest.mark.parametrize("stride, extra", [(4, 0), (128, 1)])
def test_bank_conflicts_are_counted_on_demand(stride, extra):
    text = kernel_text("gfx942", f"v_mul_u32_u24_e32 v1, {stride}, v0\nds_write_b32 v1, v0\ns_waitcnt lgkmcnt(0)")
    report = simulate(text, (3,), [], num_warps=1, shared=8192, conflicts=True)
    assert (sum(report.lds_conflicts.values()) > 0) == bool(extra) and set(report.lds_conflicts) == {1}
    assert not simulate(text, (3,), [], num_warps=1, shared=8192).lds_conflicts
    assert report.classes["LDS"] == 3 and report.classes["vector"] == 3


def test_report_adds_up():
    text = kernel_text("gfx942", "s_nop 0\nv_mov_b32_e32 v1, 0")
    report = simulate(text, (3,), [], num_warps=2)
    report.add(simulate(text, (1,), [], num_warps=2))
    assert report.waves == 8 and report.work_groups == 4 and report.instructions["v_mov_b32"] == 8 and "none" not in report.classes


def test_vopd_halves_read_before_either_writes():
    """Also where each reads what the other writes."""
    result = run_snippet("gfx1100", "v_dual_mov_b32 v1, v2 :: v_dual_mov_b32 v2, v1", vgprs={1: np.uint32(5), 2: np.uint32(6)}, exec=np.uint64(3))
    assert result.vgpr(1)[0, :3].tolist() == [6, 6, 5] and result.vgpr(2)[0, :3].tolist() == [5, 5, 6]
    result = run_snippet("gfx1100", "v_dual_mov_b32 v1, v2 :: v_dual_add_f32 v3, v1, v1", vgprs={1: np.float32(5), 2: np.float32(6)})
    assert result.vgpr(3, np.float32)[0, 0] == 10 and result.vgpr(1, np.float32)[0, 0] == 6
