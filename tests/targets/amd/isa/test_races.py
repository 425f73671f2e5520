"""Races in LDS: which accesses of two waves conflict, and what orders them."""

import numpy as np
import pytest
from snippets import run_snippet

from tilewright.targets.amd.isa.errors import LdsRace, UseBeforeWait

ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"]
DATA = np.arange(4096, dtype=np.uint32)


def names(arch, text):
    """gfx9's and gfx10's mnemonics in those of the arch."""
    if arch.startswith(("gfx9", "gfx10")):
        return text
    text = text.replace("ds_write", "ds_store").replace("ds_read", "ds_load")
    if arch == "gfx1201":
        text = text.replace("s_waitcnt lgkmcnt(0)", "s_wait_dscnt 0x0").replace("s_barrier\n", "s_barrier_signal -1\ns_barrier_wait -1\n")
    return text


def run(arch, text, groups=1, **registers):
    """Two waves a group. v0: lane · 4, the same in both waves; v1: distinct for both; v2: the wave; v3: as v0 in the other half of LDS."""
    lanes = 64 if arch.startswith("gfx9") else 32
    lane, wave = np.arange(lanes), np.tile(np.arange(2), groups)[:, None]
    vgprs = {0: np.broadcast_to(lane * 4, (2 * groups, lanes)), 1: (wave * lanes + lane) * 4, 2: np.broadcast_to(wave, (2 * groups, lanes)),
             3: (1 - wave) * lanes * 4 + lane * 4, 4: np.full((2 * groups, lanes), 7)}
    return run_snippet(arch, names(arch, text + "\n"), vgprs={k: v.astype(np.uint32) for k, v in vgprs.items()} | registers, lds=np.zeros(2048, np.uint8),
                       waves=2, groups=groups, memory=[DATA], sgprs={2: np.array([DATA.ctypes.data], np.uint64)})


WAIT = "s_waitcnt lgkmcnt(0)\n"
BARRIER = WAIT + "s_barrier\n"


@pytest.mark.parametrize("arch", ARCHS)
def test_write_and_read_need_a_barrier(arch):
    """Each wave writes its half and reads the other's."""
    run(arch, f"ds_write_b32 v1, v2\n{BARRIER}ds_read_b32 v5, v3\n{WAIT}", groups=3)
    with pytest.raises(LdsRace) as error:
        run(arch, f"ds_write_b32 v1, v2\n{WAIT}ds_read_b32 v5, v3\n{WAIT}")
    message = str(error.value)
    write = names(arch, "ds_write_b32 v1, v2")
    assert f"(line 1, pc 0: {write})" in message and "k.py:3" in message and "no barrier" in message
    assert "wave 0 reads what wave 1 wrote" in message or "wave 1 reads what wave 0 wrote" in message


@pytest.mark.parametrize("arch", ARCHS)
def test_read_and_write_need_a_barrier(arch):
    """The next store must not overtake the reads of the other wave."""
    head = f"ds_write_b32 v1, v2\n{BARRIER}ds_read_b32 v5, v3\n"
    run(arch, f"{head}{BARRIER}ds_write_b32 v1, v4\n{WAIT}")
    with pytest.raises(LdsRace, match="writes what wave . read"):
        run(arch, f"{head}{WAIT}ds_write_b32 v1, v4\n{WAIT}")


@pytest.mark.parametrize("arch", ARCHS)
def test_two_writes(arch):
    with pytest.raises(LdsRace, match="writes what wave . wrote"):
        run(arch, f"ds_write_b32 v0, v2\n{WAIT}")
    run(arch, f"ds_write_b32 v0, v4\n{WAIT}")  # the same value twice
    with pytest.raises(LdsRace):
        run(arch, f"ds_write_b32 v0, v4\nds_write_b32 v0, v2\n{WAIT}")


@pytest.mark.parametrize("arch", ARCHS)
def test_two_lanes_of_one_store(arch):
    """Two lanes of each wave write one dword: the same value, or nobody knows which of the two stays."""
    pairs = "v_and_b32_e32 v10, -8, v1\n"
    run(arch, f"{pairs}ds_write_b32 v10, v2\n{WAIT}", groups=2)
    with pytest.raises(LdsRace, match="two lanes of wave . write different values") as error:
        run(arch, f"{pairs}ds_write_b32 v10, v0\n{WAIT}")
    assert "k.py:2" in str(error.value)
    run(arch, f"{pairs}ds_write_b32 v10, v0\n{WAIT}".replace("ds_write_b32", "ds_add_u32"))
    # a byte that both write alike and one that they do not
    with pytest.raises(LdsRace, match="two lanes"):
        run(arch, f"{pairs}ds_write_b8 v10, v2\nds_write_b8 v10, v1 offset:1\n{WAIT}")


@pytest.mark.parametrize("arch", ARCHS)
def test_reads_alone_do_not_race_and_are_remembered(arch):
    run(arch, f"ds_read_b32 v5, v0\n{WAIT}")
    # both waves read the first half; wave 0 then writes it
    with pytest.raises(LdsRace, match="writes what several waves read"):
        run(arch, f"ds_read_b32 v5, v0\n{WAIT}ds_write_b32 v1, v4\n{WAIT}")


@pytest.mark.parametrize("arch", ARCHS)
def test_a_store_in_flight_is_not_ordered_by_the_barrier(arch):
    """Without the wait before it, the barrier says nothing about the store."""
    with pytest.raises(LdsRace, match="or with one that came before that access was waited for"):
        run(arch, f"ds_write_b32 v1, v2\ns_barrier\nds_read_b32 v5, v3\n{WAIT}")


@pytest.mark.parametrize("arch", ARCHS)
def test_a_load_in_flight_is_not_ordered_by_the_barrier(arch):
    with pytest.raises(LdsRace, match="writes what wave . read"):
        run(arch, f"ds_write_b32 v1, v2\n{BARRIER}ds_read_b32 v5, v3\ns_barrier\nds_write_b32 v1, v4\n{WAIT}")


@pytest.mark.parametrize("arch", ARCHS)
def test_atomics_order_themselves_but_nothing_else(arch):
    run(arch, f"ds_add_u32 v0, v4\n{BARRIER}ds_read_b32 v5, v0\n{WAIT}")
    with pytest.raises(LdsRace, match="reads what several waves wrote"):
        run(arch, f"ds_add_u32 v0, v4\n{WAIT}ds_read_b32 v5, v0\n{WAIT}")
    with pytest.raises(LdsRace):
        run(arch, f"ds_write_b32 v1, v2\n{WAIT}ds_add_u32 v3, v4\n{WAIT}")


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_neighbouring_bytes_are_no_race(arch):
    """Wave 0 writes the even bytes, wave 1 the odd ones; then words, then one byte that both have."""
    lanes = 64 if arch == "gfx942" else 32
    wave, lane = np.arange(2)[:, None], np.arange(lanes)
    bytes_ = {10: (2 * lane + wave).astype(np.uint32), 11: np.maximum(2 * lane + wave, 1).astype(np.uint32)}
    run_it = lambda text: run_snippet(arch, names(arch, text + "\n"), vgprs={  # noqa: E731
        **bytes_, 2: np.broadcast_to(wave, (2, lanes)).astype(np.uint32), 0: (lane * 4).astype(np.uint32), 12: ((wave * lanes + lane) * 16).astype(np.uint32),
        16: 1, 17: 1, 18: 1, 19: 1}, lds_bytes=4096, waves=2)
    run_it(f"ds_write_b128 v12, v[16:19]\n{BARRIER}ds_write_b8 v10, v2\n{BARRIER}ds_read_b32 v5, v0\n{WAIT}")
    with pytest.raises(LdsRace, match="LDS byte 1:"):
        run_it(f"ds_write_b128 v12, v[16:19]\n{BARRIER}ds_write_b8 v11, v2\n{WAIT}")
    with pytest.raises(LdsRace):  # a word over the other wave's bytes
        run_it(f"ds_write_b128 v12, v[16:19]\n{BARRIER}ds_write_b8 v10, v2\n{WAIT}ds_read_b32 v5, v0\n{WAIT}")


def test_barriers_are_of_a_group():
    """Groups do not share LDS, and one group's barrier does not order another's waves."""
    run("gfx942", f"ds_write_b32 v1, v2\n{BARRIER}ds_read_b32 v5, v3\n{WAIT}", groups=4)
    text = f"ds_write_b32 v1, v2\nv_readfirstlane_b32 s8, v6\ns_cmp_eq_u32 s8, 1\ns_cbranch_scc1 over\n{BARRIER}over:\nds_read_b32 v5, v3\n{WAIT}"
    group = np.repeat(np.arange(2), 2)[:, None] * np.ones((1, 64))
    registers = {6: group.astype(np.uint32)}

    def go(values):
        lane, wave = np.arange(64), np.tile(np.arange(2), 2)[:, None]
        return run_snippet("gfx942", text, vgprs={1: ((wave * 64 + lane) * 4).astype(np.uint32), 2: np.broadcast_to(wave, (4, 64)).astype(np.uint32),
                                                  3: (((1 - wave) * 64 + lane) * 4).astype(np.uint32), **values}, lds=np.zeros(1024, np.uint8), waves=2, groups=2)

    go({6: np.zeros((4, 64), np.uint32)})
    with pytest.raises(LdsRace, match=r"work-group \(1, 0, 0\)"):
        go(registers)


def test_split_barriers():
    """gfx12: what comes after the signal is not ordered by it."""
    text = "ds_store_b32 v1, v2\ns_wait_dscnt 0x0\ns_barrier_signal -1\n{0}s_barrier_wait -1\nds_load_b32 v5, v3\ns_wait_dscnt 0x0"
    run("gfx1201", text.format(""))
    run("gfx1201", "s_barrier_signal -1\nds_store_b32 v1, v2\ns_wait_dscnt 0x0\ns_barrier_wait -1\ns_barrier_signal -1\ns_barrier_wait -1\nds_load_b32 v5, v3\ns_wait_dscnt 0x0")
    with pytest.raises(LdsRace):
        run("gfx1201", "s_barrier_signal -1\nds_store_b32 v1, v2\ns_wait_dscnt 0x0\ns_barrier_wait -1\nds_load_b32 v5, v3\ns_wait_dscnt 0x0")


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_loads_into_lds(arch):
    """Each wave loads its 64 words straight into LDS; m0 says where."""
    lanes = np.arange(64, dtype=np.uint32)
    wave = np.arange(2)

    def go(body):
        return run_snippet(arch, "s_mov_b32 m0, s6\n" + body, vgprs={0: lanes * 4, 1: ((wave[:, None] * 64 + lanes) * 4).astype(np.uint32),
                                                                     3: (((1 - wave[:, None]) * 64 + lanes) * 4).astype(np.uint32)},
                           sgprs={2: np.array([DATA.ctypes.data], np.uint64), 6: (wave * 256).astype(np.uint32)}, memory=[DATA], lds_bytes=512, waves=2)

    load = "global_load_lds_dword v0, s[2:3]\n"
    got = go(f"{load}s_waitcnt vmcnt(0)\ns_barrier\nds_read_b32 v5, v3\n{WAIT}")
    np.testing.assert_array_equal(got.vgpr(5), np.broadcast_to(lanes, (2, 64)))
    go(f"{load}s_waitcnt vmcnt(0)\nds_read_b32 v5, v1\n{WAIT}")
    with pytest.raises(UseBeforeWait, match="LDS byte 0 is read while a load of wave 0 into LDS may be in flight"):
        go(f"{load}ds_read_b32 v5, v1\n{WAIT}")
    with pytest.raises(UseBeforeWait):
        go(f"{load}{WAIT}ds_read_b32 v5, v1\n{WAIT}")  # another counter
    with pytest.raises(LdsRace, match="reads what wave . wrote"):
        go(f"{load}s_waitcnt vmcnt(0)\nds_read_b32 v5, v3\n{WAIT}")
    with pytest.raises(LdsRace, match="has to wait for it, then both for a barrier"):
        go(f"{load}s_barrier\nds_read_b32 v5, v3\n{WAIT}")
