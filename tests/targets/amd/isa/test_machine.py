"""Control flow, barriers, launches and initial registers of the machine, on kernels written here."""

import numpy as np
import pytest
from snippets import kernel_text, lanes_of, run_snippet

from tilewright.dialects.errors import ArgumentError
from tilewright.targets.amd.isa.errors import (
    Deadlock,
    DivergentBarrier,
    OutOfBounds,
    SimulationError,
    Trap,
    UnknownInstruction,
)
from tilewright.targets.amd.isa.launch import Launch, hidden_values
from tilewright.targets.amd.isa.machine import Machine, load
from tilewright.targets.amd.isa.memory import GlobalMemory
from tilewright.targets.amd.isa.program import parse
from tilewright.targets.amd.isa.state import TTMP
from tilewright.targets.amd.simulate import register_buffer, simulate

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")


# -------------------------------------------------------------------------------------------------- control flow
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_waves_leave_a_loop_one_by_one(arch):
    """Each wave adds up 1 … its count; waves are apart while they loop and together afterwards."""
    counts = np.array([5, 1, 9, 3, 3, 40, 2, 7], np.uint32)
    result = run_snippet(arch, """
        s_mov_b32 s3, 0
        loop:
        s_add_i32 s3, s3, s2
        s_sub_i32 s2, s2, 1
        s_cmp_lg_u32 s2, 0
        s_cbranch_scc1 loop
        s_add_i32 s3, s3, 1000
    """, sgprs={2: counts}, waves=4, groups=2)
    assert result.sgpr(3).tolist() == [c * (c + 1) // 2 + 1000 for c in counts]
    counted = result.machine.counts
    assert counted["s_cbranch_scc1"] == counts.sum() and counted["s_endpgm"] == 8
    # together again: the tail is one block run for all eight waves
    assert result.machine.clock < counts.max() + 12


def test_a_divergent_branch_within_a_wave():
    """LLVM's form: EXEC is narrowed, the other side runs with the rest."""
    lane = np.arange(64, dtype=np.uint32)
    result = run_snippet("gfx942", """
        v_cmp_gt_u32_e32 vcc, 10, v0
        s_and_saveexec_b64 s[2:3], vcc
        s_xor_b64 s[2:3], exec, s[2:3]
        v_mov_b32_e32 v1, 1
        s_andn2_saveexec_b64 s[2:3], s[2:3]
        s_or_b64 exec, exec, s[2:3]
        v_add_u32_e32 v2, 1, v1
    """, vgprs={0: lane, 1: np.uint32(7)}, waves=2)
    np.testing.assert_array_equal(result.vgpr(1), np.broadcast_to(np.where(lane < 10, 1, 7), (2, 64)))


def test_execz_skips():
    result = run_snippet("gfx942", "s_cbranch_execz skip\ns_mov_b32 s2, 1\nskip:\ns_mov_b32 s3, 1", sgprs={2: np.uint32(0)}, exec=np.array([0, 5], np.uint64), waves=2)
    assert result.sgpr(2).tolist() == [0, 1] and result.sgpr(3).tolist() == [1, 1]


def test_a_wave_may_wait_for_another_in_memory():
    """Wave 1 spins until wave 0, which is behind it in the code, stores: neither order of the pcs starves one of them."""
    flag = np.zeros(1, np.uint32)
    text = """
        v_mov_b32_e32 v0, s4
        v_mov_b32_e32 v1, s5
        s_cmp_lg_u32 s2, s3
        s_cbranch_scc1 other
        spin:
        global_load_dword v2, v[0:1], off
        s_waitcnt vmcnt(0)
        v_readfirstlane_b32 s6, v2
        s_cmp_eq_u32 s6, 0
        s_cbranch_scc1 spin
        s_endpgm
        other:
        v_mov_b32_e32 v2, 1
        global_store_dword v[0:1], v2, off
    """
    address = np.full(2, flag.ctypes.data, np.uint64)
    for spinning in (0, 1):
        flag[0] = 0
        run_snippet("gfx942", text, sgprs={2: np.arange(2, dtype=np.uint32), 3: np.uint32(spinning), 4: address}, memory=[flag], groups=2, check=False)  # a plain flag is a race
        assert flag[0] == 1


def test_a_kernel_that_hangs_is_an_error():
    program = parse(kernel_text("gfx942", "again:\ns_branch again"))
    launch = Launch((1, 1, 1), (64, 1, 1), np.zeros(64, np.uint8), 0)
    with pytest.raises(Deadlock, match="more than 1000 blocks"):
        Machine(load(program, program.kernel()), launch, GlobalMemory(), max_blocks=1000).run()


def test_trap_is_an_assertion():
    with pytest.raises(Trap, match=r"an assertion of the kernel failed \[k, /src/k.py:2, pc 1: s_trap 2, work-group \(0, 0, 0\), wave 0, lanes 0, 2\]"):
        run_snippet("gfx942", "s_nop 0\ns_trap 2", exec=5)


@pytest.mark.parametrize("line, found", [("v_frobnicate_b32 v0, v1", "instruction v_frobnicate_b32"), ("s_mov_b32 s0, s1 glc", "modifier glc"),
                                         ("s_branch nowhere", "a branch to nowhere"), ("s_sendmsg sendmsg(MSG_INTERRUPT)", "message"), ("s_barrier_signal 3", "named")])
def test_what_is_unknown_is_named(line, found):
    with pytest.raises(UnknownInstruction, match=found + r".*\[k, /src/k.py:2, pc 1: " + line[:6]):
        run_snippet("gfx1201", "s_nop 0\n" + line)


# ------------------------------------------------------------------------------------------------------ barriers
EXCHANGE = {9: ("ds_write_b32 v0, v1", "s_waitcnt lgkmcnt(0)\ns_barrier", "ds_read_b32 v3, v2", "s_waitcnt lgkmcnt(0)"),
            11: ("ds_store_b32 v0, v1", "s_waitcnt lgkmcnt(0)\ns_barrier", "ds_load_b32 v3, v2", "s_waitcnt lgkmcnt(0)"),
            12: ("ds_store_b32 v0, v1", "s_wait_dscnt 0x0\ns_barrier_signal -1\ns_barrier_wait -1", "ds_load_b32 v3, v2", "s_wait_dscnt 0x0")}


def exchange(arch, middle=None, **kwargs):
    """Each lane stores to LDS and reads what the mirrored thread stored."""
    lanes = lanes_of(arch)
    store, barrier, read, wait = EXCHANGE[9 if arch in ("gfx90a", "gfx942", "gfx950", "gfx1030") else 12 if arch == "gfx1201" else 11]
    thread = np.arange(4 * lanes, dtype=np.uint32).reshape(4, lanes)
    tile = np.tile(thread, (3, 1))
    result = run_snippet(arch, "\n".join([store, middle if middle is not None else barrier, read, wait]), waves=4, groups=3, lds_bytes=16 * lanes,
                         vgprs={0: tile * 4, 1: tile + 1000 * np.repeat(np.arange(3, dtype=np.uint32), 4)[:, None], 2: (4 * lanes - 1 - tile) * 4}, **kwargs)
    np.testing.assert_array_equal(result.vgpr(3).reshape(3, 4 * lanes), (4 * lanes - 1 - thread.reshape(-1)) + 1000 * np.arange(3)[:, None])
    return barrier


@pytest.mark.parametrize("arch", ARCHS)
def test_barrier(arch):
    exchange(arch)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
def test_waves_come_to_a_barrier_at_different_times(arch):
    """Waves loop as often as their number before they meet."""
    barrier = exchange(arch)
    exchange(arch, "loop:\ns_sub_i32 s2, s2, 1\ns_cmp_gt_i32 s2, 0\ns_cbranch_scc1 loop\n" + barrier, sgprs={2: np.tile(np.array([3, 50, 1, 9], np.uint32), 3)})


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_a_barrier_with_inactive_lanes_is_an_error(arch):
    meet = "s_barrier_signal -1\ns_barrier_wait -1" if arch == "gfx1201" else "s_barrier"
    word = "s_mov_b32 exec_lo" if arch == "gfx1201" else "s_mov_b64 exec"
    with pytest.raises(DivergentBarrier, match=r"k.py:2, pc 1: s_barrier.*wave 0, lanes"):
        run_snippet(arch, f"{word}, 7\n{meet}", waves=2)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_a_barrier_that_some_waves_leave_out_is_an_error(arch):
    meet = "s_barrier_signal -1\ns_barrier_wait -1" if arch == "gfx1201" else "s_barrier"
    with pytest.raises(DivergentBarrier, match=r"waves \[1, 3\] of the work-group ended without reaching"):
        run_snippet(arch, f"s_cmp_eq_u32 s2, 0\ns_cbranch_scc1 end\n{meet}\nend:\ns_nop 0", sgprs={2: np.array([1, 0, 1, 0], np.uint32)}, waves=4)


def test_waves_meet_at_different_barriers():
    """The hardware counts waves that have come to any barrier; here one half is a barrier behind, and they come to as many in the end."""
    behind = ["s_cmp_eq_u32 s2, 0", "s_cbranch_scc1 first", "s_barrier", "first:", "s_mov_b32 s3, 2", "loop:", "s_barrier", "s_sub_i32 s3, s3, 1", "s_cmp_gt_i32 s3, 0",
              "s_cbranch_scc1 loop", "s_cmp_lg_u32 s2, 0", "s_cbranch_scc1 end"]
    which = {"sgprs": {2: np.array([1, 0, 1, 0], np.uint32)}, "waves": 4}
    run_snippet("gfx942", "\n".join([*behind, "s_barrier", "end:", "s_nop 0"]), **which)
    with pytest.raises(DivergentBarrier, match=r"waves \[1, 3\] of the work-group ended without reaching"):
        run_snippet("gfx942", "\n".join([*behind, "end:", "s_nop 0"]), **which)


def test_waves_that_signal_more_often_than_others_are_an_error():
    with pytest.raises(DivergentBarrier, match=r"came to \[0, 1\] barriers each"):
        run_snippet("gfx1201", "s_cmp_eq_u32 s2, 0\ns_cbranch_scc1 end\ns_barrier_signal -1\nend:\ns_nop 0", sgprs={2: np.array([1, 0], np.uint32)}, waves=2)


# -------------------------------------------------------------------------------------------- launch and registers
def first_registers(arch, grid, block, descriptor, groups, count=1):
    """The batch as the kernel's first instruction finds it."""
    program = parse(kernel_text(arch, "s_nop 0", descriptor=descriptor))
    kernarg = np.arange(64, dtype=np.uint8)
    seen = {}

    def look(machine):
        b = machine.batch
        seen.update(s=b.s.copy(), v=b.v[:3].copy(), exec=b.exec.copy(), machine=machine)

    machine = Machine(load(program, program.kernel()), Launch(grid, block, kernarg, 0), GlobalMemory(), prepare=look)
    machine.run(groups)
    return seen, int(kernarg.ctypes.data), kernarg


@pytest.mark.parametrize("arch", ARCHS)
def test_initial_registers(arch):
    lanes = lanes_of(arch)
    descriptor = {"user_sgpr_kernarg_segment_ptr": 1, "user_sgpr_count": 4, "system_sgpr_workgroup_id_x": 1, "system_sgpr_workgroup_id_y": 1,
                  "system_sgpr_workgroup_id_z": 1, "system_vgpr_workitem_id": 2}
    seen, address, _ = first_registers(arch, (5, 6, 7), (8, 4, 4), descriptor, [(3, 4, 5)])
    s = seen["s"][:, 0]
    assert int(s[0]) | int(s[1]) << 32 == address
    if arch == "gfx1201":
        assert (s[TTMP + 9], s[TTMP + 7]) == (3, 4 | 5 << 16)
    else:
        assert s[4:7].tolist() == [3, 4, 5]
    thread = np.arange(128).reshape(-1, lanes)
    x, y, z = thread % 8, thread // 8 % 4, thread // 32
    if arch == "gfx1030":
        np.testing.assert_array_equal(seen["v"], np.stack([x, y, z]))
    else:
        np.testing.assert_array_equal(seen["v"][0], x | y << 10 | z << 20)
    assert (seen["exec"] == (1 << lanes) - 1).all()


def test_user_registers_come_in_order_and_arguments_are_preloaded():
    seen, address, kernarg = first_registers("gfx942", (2, 1, 1), (64, 1, 1), {
        "user_sgpr_dispatch_id": 1, "user_sgpr_kernarg_segment_ptr": 1, "user_sgpr_kernarg_preload_length": 3, "user_sgpr_kernarg_preload_offset": 1,
        "user_sgpr_count": 7, "system_sgpr_workgroup_id_x": 1}, [(1, 0, 0)])
    s = seen["s"][:, 0]
    assert int(s[0]) | int(s[1]) << 32 == address  # before the dispatch id
    assert s[4:7].tolist() == kernarg.view(np.uint32)[1:4].tolist() and s[7] == 1


@pytest.mark.parametrize("wanted", ["user_sgpr_dispatch_ptr", "user_sgpr_something_new", "system_sgpr_workgroup_info"])
def test_registers_that_are_not_set_up_are_refused(wanted):
    with pytest.raises(UnknownInstruction, match="k asks for .*, which the simulator does not set up"):
        first_registers("gfx942", (1, 1, 1), (64, 1, 1), {wanted: 1}, None)


def test_a_last_wave_that_is_not_full():
    seen, _, _ = first_registers("gfx1100", (1, 1, 1), (40, 1, 1), {}, None)
    assert [int(x) for x in seen["exec"]] == [0xFFFFFFFF, 0xFF]


STORE = {"gfx942": ("s_load_dwordx2 s[4:5], s[0:1], 0x0\ns_load_dword s6, s[0:1], 0x8\ns_waitcnt lgkmcnt(0)", "s2", "global_store_dword v0, v1, s[4:5]", "v_add_u32_e32"),
         "gfx1100": ("s_load_b64 s[4:5], s[0:1], 0x0\ns_load_b32 s6, s[0:1], 0x8\ns_waitcnt lgkmcnt(0)", "s2", "global_store_b32 v0, v1, s[4:5]", "v_add_nc_u32_e32"),
         "gfx1201": ("s_load_b64 s[4:5], s[0:1], 0x0\ns_load_b32 s6, s[0:1], 0x8\ns_wait_kmcnt 0x0", "ttmp9", "global_store_b32 v0, v1, s[4:5]", "v_add_nc_u32_e32")}


def stores(arch, extra=""):
    """out[block · threads + thread] = value + block"""
    loads, block, store, add = STORE[arch]
    lanes = lanes_of(arch)
    return kernel_text(arch, f"{loads}\n{extra}\ns_mul_i32 s8, {block}, {2 * lanes}\ns_add_i32 s7, {block}, s6\n{add} v0, s8, v0\nv_lshlrev_b32_e32 v0, 2, v0\nv_mov_b32_e32 v1, s7\n{store}",
                       args=[(0, 8, "global_buffer"), (8, 4, "by_value")], kernarg=12,
                       descriptor={"user_sgpr_kernarg_segment_ptr": 1, "user_sgpr_count": 2, "system_sgpr_workgroup_id_x": 1})


@pytest.mark.parametrize("arch", STORE)
def test_simulate(arch):
    lanes = lanes_of(arch)
    out = np.zeros((100, 2 * lanes), np.int32)
    report = simulate(stores(arch), (100,), [out, 7], num_warps=2)
    np.testing.assert_array_equal(out, np.broadcast_to(np.arange(100)[:, None] + 7, out.shape))
    assert (report.work_groups, report.waves, report.classes["global"], report.classes["scalar memory"]) == (100, 200, 200, 400)
    out[:] = 0
    simulate(stores(arch), (100,), [out, 7], num_warps=2, groups=[(3, 0, 0)])
    assert (out[3] == 10).all() and not out[:3].any() and not out[4:].any()


def test_simulate_refuses():
    out = np.zeros(128, np.int32)
    with pytest.raises(ArgumentError, match="takes 2 arguments, only 1"):
        simulate(stores("gfx942"), (1,), [out], num_warps=2)
    with pytest.raises(ArgumentError, match="argument 1 is a list"):
        simulate(stores("gfx942"), (1,), [out, [1]], num_warps=2)
    with pytest.raises(OutOfBounds, match=r"writes 4 bytes.*0 bytes past the end of|writes 4 bytes.*past the end"):
        simulate(stores("gfx942"), (2,), [out, 1], num_warps=2)


@pytest.mark.parametrize("args, options, text", [
    ((1, 1 << 40), {}, "1099511627776 does not fit the argument of 4 bytes at offset 8"),
    ((1, -(1 << 31) - 1), {}, "does not fit the argument of 4 bytes"),
    ((1, np.zeros(3)), {}, "does not fit the argument of 4 bytes"),  # an address
    ((0.5, 1), {}, "a float was given for the argument of 8 bytes at offset 0"),
    ((1, 1), {"num_warps": -1}, "num_warps: .* up to 16 waves of 64 lanes a work-group; found -1"),
    ((1, 1), {"num_warps": 17}, "found 17"),
    ((1, 1), {"shared": -1}, "0 to 65536 bytes of LDS; found -1"),
    ((1, 1), {"shared": 65537}, "0 to 65536 bytes of LDS; found 65537"),
    ((1, 1), {"grid": (-1,)}, r"grid is one to three integers of 0 or more; found \(-1,\)"),
    ((1, 1), {"grid": (1, 1, 1, 1)}, "grid is one to three integers"),
    ((1, 1), {"grid": (2.0,)}, "grid is one to three integers"),
    ((1, 1), {"groups": [(4, 0, 0)]}, r"the grid \(3, 1, 1\) has no work-group \(4, 0, 0\)"),
    ((1, 1), {"kernel": "other"}, "the text has no kernel 'other'; it has "),
])
def test_a_launch_that_no_device_would_start(args, options, text):
    with pytest.raises(ArgumentError, match=text):
        simulate(stores("gfx942"), **{"grid": (3,), "args": args, "num_warps": 2, **options})


def test_wrong_things_are_told():
    with pytest.raises(ArgumentError, match="takes AMDGCN text .* found bytes"):
        simulate(b"\x7fELF", (1,), [])
    with pytest.raises(ArgumentError, match="memory is an array of numpy or a tensor of torch; found list"):
        register_buffer([1, 2])


def test_buffers_that_are_no_arguments():
    out = np.zeros(128, np.int32)
    address = int(out.ctypes.data)
    with pytest.raises(OutOfBounds):
        simulate(stores("gfx942"), (1,), [address, 1], num_warps=2)
    with register_buffer(out):
        simulate(stores("gfx942"), (1,), [address, 1], num_warps=2)
    assert (out == 1).all()
    with pytest.raises(OutOfBounds):
        simulate(stores("gfx942"), (1,), [address, 1], num_warps=2)
    simulate(stores("gfx942"), (1,), [address, 2], num_warps=2, buffers=[(address, address + out.nbytes)])
    assert (out == 2).all()


def test_arguments_are_read_only():
    with pytest.raises(OutOfBounds, match="read only"):
        simulate(stores("gfx942", "s_mov_b64 s[4:5], s[0:1]"), (1,), [np.zeros(1, np.int32), 7], num_warps=2)


def test_hidden_values():
    values = hidden_values((3, 4, 5), (256, 1, 1), 512)
    assert [values[f"hidden_block_count_{a}"] for a in "xyz"] == [3, 4, 5] and values["hidden_group_size_x"] == 256
    assert values["hidden_grid_dims"] == 3 and values["hidden_dynamic_lds_size"] == 512 and hidden_values((3, 4, 1), (64, 1, 1), 0)["hidden_grid_dims"] == 2


def test_constant_data_by_program_counter():
    """A table in a constant section, which LLVM reaches by s_getpc_b64."""
    text = kernel_text("gfx942", """
        s_getpc_b64 s[4:5]
        s_add_u32 s4, s4, table@rel32@lo+4
        s_addc_u32 s5, s5, table@rel32@hi+12
        s_load_dwordx2 s[6:7], s[4:5], 0x4
        s_load_dwordx2 s[8:9], s[0:1], 0x0
        s_waitcnt lgkmcnt(0)
        v_mov_b32_e32 v1, s6
        v_mov_b32_e32 v2, s7
        v_mov_b32_e32 v0, 0
        global_store_dwordx2 v0, v[1:2], s[8:9]
    """, args=[(0, 8, "global_buffer")], kernarg=8, descriptor={"user_sgpr_kernarg_segment_ptr": 1, "user_sgpr_count": 2})
    text += '\t.section\t.rodata,"a",@progbits\n\t.p2align\t2\ntable:\n\t.long\t11\n\t.long\t22\n\t.long\t33\n'
    out = np.zeros(2, np.uint32)
    simulate(text, (1,), [out], num_warps=1)
    assert out.tolist() == [22, 33]


def test_a_failure_of_the_simulator_itself_has_a_place():
    with pytest.raises(SimulationError, match=r"the simulator failed: .*pc 0"):
        run_snippet("gfx942", "v_mov_b32_e32 v300, 0")
