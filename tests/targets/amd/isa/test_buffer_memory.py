"""buffer_*: addressing and range check against plain Python, for the descriptors of each generation; scratch through them."""

import numpy as np
import pytest
from snippets import POISON, lanes_of, run_snippet

from tilewright.targets.amd.isa.errors import (
    Misaligned,
    OutOfBounds,
    SimulationError,
    UnknownInstruction,
    UseBeforeWait,
)
from tilewright.targets.amd.isa.launch import scratch_descriptor

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
# last word of a raw descriptor: format float 32; OOB_SELECT 3 from gfx10 on, RESOURCE_LEVEL 1 on gfx10
FLAGS = {"gfx9": 0x00027000, "gfx1030": 0x31016FAC, "gfx1100": 0x31004FAC, "gfx1201": 0x31004FAC}


def later(arch):
    return arch >= "gfx11" and not arch.startswith("gfx9")


def wait(arch):
    return "s_wait_loadcnt 0x0" if arch.startswith("gfx12") else "s_waitcnt vmcnt(0)"


def flags(arch):
    return FLAGS["gfx9" if arch.startswith("gfx9") else arch]


def resource(arch, data, records, stride=0, word3=None):
    """Scalar registers 4 to 7."""
    base = data.ctypes.data
    return {4: base & 0xFFFFFFFF, 5: base >> 32 | stride << 16, 6: records, 7: flags(arch) if word3 is None else word3}


def zero(arch):
    return "null" if arch.startswith("gfx12") else "0"


def registers(count, first=20):
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


SIZES = {"ubyte": 1, "sbyte": 1, "ushort": 2, "sshort": 2, "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}
NEW = {"ubyte": "u8", "sbyte": "i8", "ushort": "u16", "sshort": "i16", "dword": "b32", "dwordx2": "b64", "dwordx3": "b96", "dwordx4": "b128"}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", SIZES)
def test_loads_in_and_out_of_range(arch, name):
    rng, lanes, size = np.random.default_rng(1), lanes_of(arch), SIZES[name]
    data = rng.integers(0, 256, 8192).astype(np.uint8)
    records = 4096
    unit = min(size, 4)
    at = rng.integers(0, records // unit, lanes) * unit
    at[::4] = records - 16 + rng.integers(0, 8, lanes // 4) * 4  # about the end: some dwords in, some out
    at[1::8] = 0x8000_0000  # what masked lanes take
    at[3] = 0xFFFF_FFFC
    for imm in (0, 4, 4092):
        mnemonic = NEW[name] if later(arch) else name
        body = f"buffer_load_{mnemonic} {registers(max(1, size // 4))}, v2, s[4:7], {zero(arch)} offen offset:{imm}\n{wait(arch)}"
        result = run_snippet(arch, body, vgprs={2: at.astype(np.uint32)}, sgprs=resource(arch, data, records), memory=[data])
        for lane in range(lanes):
            for i in range(max(1, size // 4)):
                first, part = int(at[lane]) + imm + 4 * i, unit
                raw = data[first: first + part].tobytes() if first + part <= records else bytes(part)
                want = int.from_bytes(raw, "little", signed=name.startswith("s")) & 0xFFFFFFFF
                assert result.vgpr(20 + i)[0, lane] == want, (lane, i, imm)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name,size", [("byte", 1), ("short", 2), ("dword", 4), ("dwordx2", 8), ("dwordx3", 12), ("dwordx4", 16), ("short_d16_hi", 2)])
def test_stores_out_of_range_are_dropped(arch, name, size):
    rng, lanes = np.random.default_rng(2), lanes_of(arch)
    data = rng.integers(0, 256, 4096).astype(np.uint8)
    records = 2048
    at = rng.permutation(4096 // 16)[:lanes] * 16
    at[5], at[6] = records - 8, 0x8000_0000
    values = {20 + i: rng.integers(0, 2**32, lanes, np.uint64).astype(np.uint32) for i in range(4)}
    want = data.copy()
    for lane in range(lanes):
        for i in range(max(1, size // 4)):
            first, part = int(at[lane]) + 4 * i, min(size, 4)
            if first + part <= records:
                value = int(values[20 + i][lane]) >> (16 if "d16" in name else 0)
                want[first: first + part] = np.frombuffer((value & (1 << 8 * part) - 1).to_bytes(part, "little"), np.uint8)
    run_snippet(arch, f"buffer_store_{name} {registers(max(1, size // 4))}, v2, s[4:7], {zero(arch)} offen", vgprs={2: at.astype(np.uint32), **values},
                sgprs=resource(arch, data, records), memory=[data])
    assert np.array_equal(data, want)


@pytest.mark.parametrize("arch", ARCHS)
def test_address_parts(arch):
    """base + SGPR offset + immediate + VGPR offset + stride · index."""
    data, lanes = np.arange(4096, dtype=np.uint32), lanes_of(arch)
    i = np.arange(lanes, dtype=np.uint32)
    scalar = {**resource(arch, data, 4 * 4096, stride=12), 9: 64}
    body = f"buffer_load_dword v20, v[2:3], s[4:7], s9 idxen offen offset:8\nbuffer_load_dword v21, off, s[4:7], s9 offset:20\nbuffer_load_dword v22, v2, s[4:7], s9 idxen\n{wait(arch)}"
    result = run_snippet(arch, body, vgprs={2: i, 3: i * 4}, sgprs=scalar, memory=[data])
    assert np.array_equal(result.vgpr(20)[0], (64 + 8 + 16 * i) // 4)
    assert (result.vgpr(21)[0] == (64 + 20) // 4).all() and np.array_equal(result.vgpr(22)[0], (64 + 12 * i) // 4)


def test_descriptors_of_several_waves():
    data = np.arange(1024, dtype=np.uint32)
    word = {k: np.array([v, w], np.uint32) for (k, v), w in zip(resource("gfx942", data, 256).items(), resource("gfx942", data[512:], 128).values())}
    result = run_snippet("gfx942", "buffer_load_dword v20, v2, s[4:7], 0 offen\ns_waitcnt vmcnt(0)", vgprs={2: np.arange(64, dtype=np.uint32) * 4}, sgprs=word,
                         memory=[data], waves=2)
    assert np.array_equal(result.vgpr(20)[0], np.arange(64)) and np.array_equal(result.vgpr(20)[1], np.where(np.arange(64) < 32, 512 + np.arange(64), 0))


@pytest.mark.parametrize("arch", ARCHS)
def test_inactive_lanes_keep_their_registers(arch):
    data = np.arange(64, dtype=np.uint32)
    result = run_snippet(arch, f"buffer_load_dword v20, v2, s[4:7], {zero(arch)} offen\n{wait(arch)}", vgprs={2: 0x80000000}, sgprs=resource(arch, data, 256),
                         memory=[data], exec=0xFF)
    assert (result.vgpr(20)[0, :8] == 0).all() and (result.vgpr(20)[0, 8:] == POISON).all()


# --------------------------------------------------------------------------------------------------------- checks
@pytest.mark.parametrize("arch", ARCHS)
def test_records_larger_than_the_memory(arch):
    """In range of the descriptor, but not of the buffer: an error, as the hardware would read what follows."""
    data = np.arange(256, dtype=np.uint32)
    inner = data[:64]
    body = f"buffer_load_dword v20, v2, s[4:7], {zero(arch)} offen"
    run_snippet(arch, body, vgprs={2: 252}, sgprs=resource(arch, inner, 260), memory=[inner])
    with pytest.raises(OutOfBounds, match="4 bytes past the end"):
        run_snippet(arch, body, vgprs={2: 256}, sgprs=resource(arch, inner, 260), memory=[inner])


@pytest.mark.parametrize("arch", ARCHS)
def test_where_sources_disagree_is_an_error(arch):
    data = np.arange(256, dtype=np.uint32)
    body = "buffer_load_dword v20, v2, s[4:7], s9 offen"
    for offset, scalar in ((8, 16), (1024, 16), (0x80000000, 512)):  # in range, out of range either way
        run_snippet(arch, body, vgprs={2: offset}, sgprs={**resource(arch, data, 512), 9: scalar}, memory=[data])
    with pytest.raises(SimulationError, match="offset 500, SGPR offset 16, 512 records.*whether the SGPR offset counts.*lane"):
        run_snippet(arch, body, vgprs={2: 500}, sgprs={**resource(arch, data, 512), 9: 16}, memory=[data])
    odd = {2: 508}, {**resource(arch, data, 510), 9: 0}
    if arch.startswith("gfx9"):
        with pytest.raises(SimulationError, match="part of a dword"):
            run_snippet(arch, body, vgprs=odd[0], sgprs=odd[1], memory=[data])
    else:
        assert (run_snippet(arch, f"{body}\n{wait(arch)}", vgprs=odd[0], sgprs=odd[1], memory=[data]).vgpr(20) == 0).all()


@pytest.mark.parametrize("arch", ["gfx1030", "gfx1100", "gfx1201"])
def test_out_of_bounds_select(arch):
    data = np.arange(64, dtype=np.uint32)
    inner, body = data[:32], f"buffer_load_dword v20, v2, s[4:7], {zero(arch)} offen\n{wait(arch)}"
    unchecked = flags(arch) & ~(1 << 28)
    assert (run_snippet(arch, body, vgprs={2: 40}, sgprs=resource(arch, data, 4, word3=unchecked), memory=[data]).vgpr(20) == 10).all()
    assert (run_snippet(arch, body, vgprs={2: 40}, sgprs=resource(arch, data, 0, word3=unchecked), memory=[data]).vgpr(20) == 0).all()
    with pytest.raises(OutOfBounds):
        run_snippet(arch, body, vgprs={2: 128}, sgprs=resource(arch, inner, 4, word3=unchecked), memory=[inner])
    with pytest.raises(SimulationError, match="OOB_SELECT"):
        run_snippet(arch, body, vgprs={2: 40}, sgprs=resource(arch, data, 4, word3=flags(arch) & ~(3 << 28)), memory=[data])


@pytest.mark.parametrize("arch,change,match", [
    ("gfx942", {5: 1 << 31}, "swizzling"), ("gfx1100", {5: 1 << 30}, "swizzling"), ("gfx942", {7: 0x00827000}, "thread-id"), ("gfx942", {7: 0x40027000}, "no buffer descriptor"),
    ("gfx1030", {7: 0x30016FAC}, "RESOURCE_LEVEL"),
])
def test_descriptors_that_are_not_here(arch, change, match):
    data = np.arange(64, dtype=np.uint32)
    words = resource(arch, data, 256)
    for k, v in change.items():
        words[k] = v | (words[k] if k == 5 else 0)
    with pytest.raises(SimulationError, match=match):
        run_snippet(arch, "buffer_load_dword v20, v2, s[4:7], 0 offen", vgprs={2: 0}, sgprs=words, memory=[data])


@pytest.mark.parametrize("arch,text", [
    ("gfx942", "buffer_load_b32 v20, v2, s[4:7], 0 offen"), ("gfx942", "buffer_load_dword v20, v2, s[4:7], 0"), ("gfx942", "buffer_load_dword v20, off, s[4:7], 0 offen"),
    ("gfx942", "buffer_load_dword v20, v2, s[4:5], 0 offen"), ("gfx942", "buffer_load_dword v20, v2, s[4:7], 0 offen offset:4096"), ("gfx942", "buffer_load_dword v20, v2, s[4:7], 0 offen glc"),
    ("gfx942", "buffer_load_dword v20, v2, s[4:7], 0 offen tfe"), ("gfx942", "buffer_load_dwordx4 v2, s[4:7], 0 offen lds"), ("gfx1100", "buffer_load_dword v2, s[4:7], 0 offen lds"),
    ("gfx942", "buffer_load_dwordx2 v2, s[4:7], 0 offen lds"), ("gfx942", "buffer_atomic_pk_add_bf16 v20, v2, s[4:7], 0 offen"),
])
def test_what_the_arch_does_not_have(arch, text):
    with pytest.raises(UnknownInstruction, match=text.split()[0]):
        run_snippet(arch, text)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
def test_use_before_wait(arch):
    data = np.arange(64, dtype=np.uint32)
    with pytest.raises(UseBeforeWait, match="v20"):
        run_snippet(arch, f"buffer_load_dword v20, v2, s[4:7], {zero(arch)} offen\nds_bpermute_b32 v3, v20, v20", vgprs={2: 0}, sgprs=resource(arch, data, 256), memory=[data])


# ---------------------------------------------------------------------------------------------------- LDS and scratch
@pytest.mark.parametrize("arch,name,size", [("gfx90a", "dword", 4), ("gfx942", "dword", 4), ("gfx942", "ubyte", 1), ("gfx950", "dwordx3", 12), ("gfx950", "dwordx4", 16)])
def test_loads_to_lds(arch, name, size):
    rng, wide = np.random.default_rng(4), max(4, size)
    data = rng.integers(0, 256, 4096).astype(np.uint8)
    at = rng.integers(0, 2000 // wide, 64) * wide
    at[7] = 0x8000_0000  # out of range: zeros are written
    result = run_snippet(arch, f"buffer_load_{name} v2, s[4:7], 0 offen offset:32 lds\ns_waitcnt vmcnt(0)", vgprs={2: at.astype(np.uint32)},
                         sgprs=resource(arch, data, 4096), memory=[data], m0=64, lds_bytes=2048, exec=(1 << 64) - 1 - (1 << 9))
    for lane in range(64):
        got = result.lds[0][96 + lane * wide: 96 + (lane + 1) * wide]
        if lane == 9:
            assert not result.machine.lds.initialised(0)[96 + lane * wide: 96 + (lane + 1) * wide].any()
        else:
            first = int(at[lane]) + 32
            assert np.array_equal(got[:size], data[first: first + size] if lane != 7 else np.zeros(size)) and not got[size:].any()


def test_loads_to_lds_need_a_multiple_of_four():
    data = np.arange(64, dtype=np.uint32)
    with pytest.raises(Misaligned, match="M0"):
        run_snippet("gfx942", "buffer_load_dword v2, s[4:7], 0 offen lds", vgprs={2: 0}, sgprs=resource("gfx942", data, 256), memory=[data], m0=2, lds_bytes=512)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1030"])
def test_scratch_through_a_descriptor(arch):
    words = dict(zip(range(4, 8), scratch_descriptor()))
    lanes = lanes_of(arch)
    value = np.arange(2 * lanes, dtype=np.uint32).reshape(2, lanes)
    body = f"buffer_store_dword v20, off, s[4:7], 0 offset:8\nbuffer_store_byte v21, v2, s[4:7], 0 offen\nbuffer_load_dwordx2 v[22:23], off, s[4:7], 0 offset:8\n{wait(arch)}"
    result = run_snippet(arch, body, vgprs={20: value, 21: 0x5A, 2: 14}, sgprs=words, scratch_bytes=16, waves=2)
    assert np.array_equal(result.vgpr(22), value) and (result.vgpr(23) >> np.uint32(16) & np.uint32(0xFF) == 0x5A).all()
    with pytest.raises(OutOfBounds, match="scratch at 0x10; each lane has 16"):
        run_snippet(arch, "buffer_load_dword v20, off, s[4:7], 0 offset:16", sgprs=words, scratch_bytes=16)
    # a stack pointer counts the bytes of all lanes
    body = f"buffer_store_dword v20, off, s[4:7], s32 offset:4\nbuffer_load_dword v22, off, s[4:7], 0 offset:12\n{wait(arch)}"
    result = run_snippet(arch, body, vgprs={20: value}, sgprs={**words, 32: 8 * lanes}, scratch_bytes=16, waves=2)
    assert np.array_equal(result.vgpr(22), value)
    with pytest.raises(SimulationError, match="stack pointer"):
        run_snippet(arch, "buffer_load_dword v20, off, s[4:7], s32 offset:8", sgprs={**words, 32: 4}, scratch_bytes=16)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
def test_scratch(arch):
    lanes = lanes_of(arch)
    rng = np.random.default_rng(5)
    value = {k: rng.integers(0, 2**32, (2, lanes), np.uint64).astype(np.uint32) for k in range(20, 24)}
    word, four = ("b32", "b128") if later(arch) else ("dword", "dwordx4")
    own = (np.arange(lanes, dtype=np.uint32) % 4) * 4
    body = f"""scratch_store_{four} off, v[20:23], off offset:16
        scratch_store_{word} v2, v20, off offset:32
        scratch_load_{word} v24, off, s9 offset:-12
        scratch_load_{word} v25, v2, off offset:16
        scratch_load_{word} v26, v2, s9 offset:-16
        {wait(arch)}"""
    result = run_snippet(arch, body, vgprs={**value, 2: own}, sgprs={9: 32}, scratch_bytes=48, waves=2)
    assert np.array_equal(result.vgpr(24), value[21])
    stacked = np.stack([value[20 + i] for i in range(4)])
    assert np.array_equal(result.vgpr(25), np.take_along_axis(stacked, np.broadcast_to(own // 4, (1, 2, lanes)).astype(int), axis=0)[0])
    assert np.array_equal(result.vgpr(26), result.vgpr(25))
    half = "short_d16_hi" if not later(arch) else "d16_hi_b16"
    result = run_snippet(arch, f"scratch_store_{half} off, v20, off offset:2\nscratch_load_{'sshort' if not later(arch) else 'i16'} v24, off, off offset:2\n{wait(arch)}", vgprs=value,
                         scratch_bytes=4, waves=2)
    assert np.array_equal(result.vgpr(24), (value[20] >> np.uint32(16)).astype(np.int16).astype(np.int32).view(np.uint32))
    with pytest.raises(OutOfBounds, match=r"writes 16 bytes of scratch at 0x24; each lane has 48.*k\.py:1"):
        run_snippet(arch, f"scratch_store_{four} off, v[20:23], off offset:36", vgprs=value, scratch_bytes=48, waves=2)
    with pytest.raises(OutOfBounds, match="at 0xfffffff4"):
        run_snippet(arch, f"scratch_load_{word} v24, off, off offset:-12", scratch_bytes=48)
    with pytest.raises(UseBeforeWait):
        run_snippet(arch, f"scratch_load_{word} v24, off, off\nscratch_store_{word} off, v24, off", scratch_bytes=48)
