"""global_*, flat_* and the memory they reach: every width and form against numpy, and every access outside is an error."""

import numpy as np
import pytest
from snippets import POISON, lanes_of, run_snippet

from tilewright.targets.amd.isa.errors import OutOfBounds, UninitialisedLds, UnknownInstruction, UseBeforeWait
from tilewright.targets.amd.isa.memory import Bytes, GlobalMemory
from tilewright.targets.amd.isa.state import PRIVATE_APERTURE, SHARED_APERTURE

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
OLD = {"ubyte": np.uint8, "sbyte": np.int8, "ushort": np.uint16, "sshort": np.int16, "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16}
NEW = {"u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16, "b32": 4, "b64": 8, "b96": 12, "b128": 16}
D16 = {"ubyte_d16": "d16_u8", "ubyte_d16_hi": "d16_hi_u8", "sbyte_d16": "d16_i8", "sbyte_d16_hi": "d16_hi_i8", "short_d16": "d16_b16", "short_d16_hi": "d16_hi_b16"}


def later(arch):
    return arch >= "gfx11" and not arch.startswith("gfx9")


def wait(arch, loads=True):
    if arch.startswith("gfx12"):
        return "s_wait_loadcnt 0x0" if loads else "s_wait_storecnt 0x0"
    return "s_waitcnt vmcnt(0)"


def everything(arch):
    if arch.startswith("gfx12"):
        return "s_wait_loadcnt 0x0\ns_wait_dscnt 0x0"
    return "s_waitcnt vmcnt(0) lgkmcnt(0)"


def addresses(array, offsets):
    """uint64 (lanes,) of the bytes at ``offsets``."""
    return (array.ctypes.data + np.asarray(offsets)).astype(np.uint64)


def registers(count, first=4):
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def expected(data, offsets, kind):
    """(dwords, lanes) that a load of ``kind`` gives, byte by byte."""
    size = kind if isinstance(kind, int) else np.dtype(kind).itemsize
    raw = np.stack([data[np.asarray(offsets) + i] for i in range(size)], axis=-1)
    if isinstance(kind, int):
        return np.ascontiguousarray(raw).view(np.uint32).T
    return np.ascontiguousarray(raw).view(kind)[:, 0].astype(np.int64).astype(np.uint32)[None]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("form", ["pair", "saddr", "flat"])
def test_loads(arch, form):
    lanes, rng = lanes_of(arch), np.random.default_rng(1)
    data = rng.integers(0, 256, 4096).astype(np.uint8)
    for name, kind in {**OLD, **(NEW if later(arch) else {})}.items():
        for unit in (16, 4, 1):  # rows, dwords and bytes go through different code
            at = rng.integers(4, 4096 // unit - 16, lanes) * unit
            size = kind if isinstance(kind, int) else np.dtype(kind).itemsize
            count = max(1, size // 4)
            if form == "pair":
                body, vgprs, sgprs = f"global_load_{name} {registers(count)}, v[2:3], off offset:-12", {2: addresses(data, at + 12)}, {}
            elif form == "flat":
                imm = "" if arch == "gfx1030" else " offset:8"
                body, vgprs, sgprs = f"flat_load_{name} {registers(count)}, v[2:3]{imm}", {2: addresses(data, at - (8 if imm else 0))}, {}
            else:
                body, vgprs, sgprs = f"global_load_{name} {registers(count)}, v2, s[8:9] offset:3", {2: (at - 3).astype(np.uint32)}, {8: np.uint64(data.ctypes.data)}
            result = run_snippet(arch, body + "\n" + everything(arch), vgprs=vgprs, sgprs=sgprs, memory=[data])
            for i, want in enumerate(expected(data, at, kind)):
                assert np.array_equal(result.vgpr(4 + i)[0], want), (name, unit, i)


@pytest.mark.parametrize("arch", ARCHS)
def test_stores(arch):
    lanes, rng = lanes_of(arch), np.random.default_rng(2)
    sizes = {"byte": 1, "short": 2, "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "byte_d16_hi": 1, "short_d16_hi": 2}
    if later(arch):
        sizes |= {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16, "d16_hi_b8": 1, "d16_hi_b16": 2}
    for name, size in sizes.items():
        for kind in ("global", "flat"):
            for unit in (16, 4, 1):
                data = rng.integers(0, 256, 4096).astype(np.uint8)
                at = rng.permutation(np.arange(1, 4096 // 16 - 4))[:lanes] * 16 + rng.integers(0, 16 // unit) * unit
                values = {k: rng.integers(0, 2**32, lanes, np.uint64).astype(np.uint32) for k in range(4, 8)}
                want, count = data.copy(), max(1, size // 4)
                shift = 16 if "d16_hi" in name else 0
                raw = np.stack([values[4 + i] >> np.uint32(shift) for i in range(count)], axis=-1).view(np.uint8)[:, :size]
                active = rng.integers(0, 2, lanes).astype(bool)
                for lane in np.flatnonzero(active):
                    want[at[lane]: at[lane] + size] = raw[lane]
                mask = int(sum(1 << int(i) for i in np.flatnonzero(active)))
                run_snippet(arch, f"{kind}_store_{name} v[2:3], {registers(count)}" + (", off" if kind == "global" else ""),
                            vgprs={2: addresses(data, at), **values}, memory=[data], exec=mask)
                assert np.array_equal(data, want), (name, kind, unit)


@pytest.mark.parametrize("arch", ["gfx1030", "gfx1100", "gfx1201"])
def test_d16_loads_keep_the_other_half(arch):
    data = np.arange(200, 328).astype(np.uint8)
    at = np.arange(lanes_of(arch)) * 2
    for old, new in D16.items():
        for name in (old, new) if later(arch) else (old,):
            kind = np.dtype({"u": np.uint8, "s": np.int8, "h": np.uint16}["h" if "short" in old else old[0]])
            value = expected(data, at, kind.type)[0] & np.uint32(0xFFFF)
            result = run_snippet(arch, f"global_load_{name} v4, v[2:3], off\n{everything(arch)}", vgprs={2: addresses(data, at), 4: 0x12345678}, memory=[data])
            want = np.uint32(0x5678) | value << np.uint32(16) if "hi" in old else np.uint32(0x12340000) | value
            assert np.array_equal(result.vgpr(4)[0], want), name


def test_the_highest_lane_wins():
    data = np.zeros(4, np.uint32)
    run_snippet("gfx942", "global_store_dword v[2:3], v4, off", vgprs={2: addresses(data, np.arange(64) % 2 * 4), 4: np.arange(64, dtype=np.uint32)}, memory=[data])
    assert data.tolist() == [62, 63, 0, 0]


def test_inactive_lanes_may_have_any_address():
    data = np.arange(64, dtype=np.uint32)
    at = addresses(data, np.arange(64) * 4)
    at[40:] = 0xDEAD_0000_0000
    body = "global_load_dword v4, v[2:3], off\ns_waitcnt vmcnt(0)\nglobal_store_dword v[2:3], v5, off"
    result = run_snippet("gfx942", body, vgprs={2: at, 5: 7}, memory=[data], exec=(1 << 40) - 1)
    assert np.array_equal(result.vgpr(4)[0, :40], np.arange(40)) and (result.vgpr(4)[0, 40:] == POISON).all()
    assert (data[:40] == 7).all() and np.array_equal(data[40:], np.arange(40, 64))


# ------------------------------------------------------------------------------------------------------- outside
def loads(arch, size, data, first, **more):
    name = {1: "ubyte", 4: "dword", 16: "dwordx4"}[size]
    at = np.full(lanes_of(arch), 64)
    at[5] = first
    return run_snippet(arch, f"global_load_{name} {registers(max(1, size // 4))}, v[2:3], off\n{wait(arch)}", vgprs={2: addresses(data, at)}, **more)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("size", [1, 4, 16])
def test_one_past_the_end_and_before_the_start(arch, size):
    data = np.zeros(512, np.uint8)
    inner = data[128:384]
    loads(arch, size, inner, 256 - size, memory=[inner])  # the last one that fits
    loads(arch, size, inner, 0, memory=[inner])
    with pytest.raises(OutOfBounds, match=r"1 bytes past the end of buffer .*k\.py:1.*lane 5"):
        loads(arch, size, inner, 256 - size + 1, memory=[inner])
    with pytest.raises(OutOfBounds, match=r"1 bytes before buffer .* of 256 bytes"):
        loads(arch, size, inner, -1, memory=[inner])


@pytest.mark.parametrize("kind", ["global", "flat"])
def test_a_store_outside_leaves_memory_as_it_was(kind):
    data = np.zeros(256, np.uint32)
    at = addresses(data, np.arange(64) * 4)
    at[63] = data.ctypes.data + 1024
    with pytest.raises(OutOfBounds, match=r"writes 4 bytes .* 4 bytes past the end .*wave 0, lane 63"):
        run_snippet("gfx942", f"{kind}_store_dword v[2:3], v4" + ", off" * (kind == "global"), vgprs={2: at, 4: 1}, memory=[data])
    assert not data.any()


def test_between_two_buffers():
    data = np.arange(256, dtype=np.uint32)
    low, high = data[:64], data[128:192]
    at = addresses(data, np.r_[np.arange(32), 128 + np.arange(32)] * 4)
    result = run_snippet("gfx942", "global_load_dword v4, v[2:3], off\ns_waitcnt vmcnt(0)", vgprs={2: at}, memory=[low, high])
    assert np.array_equal(result.vgpr(4)[0], np.r_[np.arange(32), 128 + np.arange(32)])
    at[3] = data.ctypes.data + 100 * 4
    with pytest.raises(OutOfBounds, match=r"lane 3\b"):
        run_snippet("gfx942", "global_load_dword v4, v[2:3], off", vgprs={2: at}, memory=[low, high])
    at[3] = data.ctypes.data + 63 * 4 + 1  # half in one buffer
    with pytest.raises(OutOfBounds, match=r"1 bytes past the end"):
        run_snippet("gfx942", "global_load_dword v4, v[2:3], off", vgprs={2: at}, memory=[low, high])


def test_no_buffers_and_null():
    with pytest.raises(OutOfBounds, match=r"reads 4 bytes at 0x0"):
        run_snippet("gfx942", "global_load_dword v4, v[2:3], off", vgprs={2: np.uint64(0), 3: 0})


def test_read_only_and_overlapping_buffers():
    space, data = GlobalMemory(), np.arange(16, dtype=np.uint32)
    first = data.ctypes.data
    space.add(first, first + 32, "a")
    space.add(first + 16, first + 64, "b")
    assert [(b.first, b.end, b.name) for b in space.buffers] == [(first, first + 64, "a")]
    space.add(first + 64, first + 64)  # empty
    assert len(space.buffers) == 1


@pytest.mark.parametrize("skip", range(0, 16, 3))
def test_bytes_of_any_alignment(skip):
    rng = np.random.default_rng(skip)
    raw = rng.integers(0, 256, 300).astype(np.uint8)
    memory = Bytes(raw[skip:])
    for size in (1, 2, 4, 8, 12, 16):
        for unit in (1, 2, 4, 8, 16):
            at = rng.permutation(len(memory.data) // 16 - 1)[:9] * 16 + (rng.integers(0, 16) // unit * unit)
            want = np.zeros((9, max(4, size)), np.uint8)
            for i in range(size):
                want[:, i] = memory.data[at + i]
            assert np.array_equal(memory.gather(at, size), want.view(np.uint32).T)
            values = rng.integers(0, 2**32, (max(1, size // 4), 9), np.uint64).astype(np.uint32)
            copy = memory.data.copy()
            for j in range(9):
                copy[at[j]: at[j] + size] = np.ascontiguousarray(values[:, j]).view(np.uint8)[:size]
            memory.scatter(at, values, size)
            assert np.array_equal(memory.data, copy), (size, unit)


# -------------------------------------------------------------------------------------------------- waits and names
@pytest.mark.parametrize("arch", ARCHS)
def test_use_before_wait(arch):
    data = np.zeros(64, np.uint32)
    load = "global_load_dwordx2 v[4:5], v[2:3], off"
    where = {"vgprs": {2: addresses(data, np.arange(lanes_of(arch)))}, "memory": [data]}
    run_snippet(arch, "\n".join([load, wait(arch), "ds_bpermute_b32 v9, v5, v5"]), **where)
    with pytest.raises(UseBeforeWait, match=r"v5"):
        run_snippet(arch, "\n".join([load, "ds_bpermute_b32 v9, v5, v5"]), **where)


@pytest.mark.parametrize("arch,text", [
    ("gfx942", "global_load_b32 v4, v[2:3], off"), ("gfx942", "global_load_dword v4, v[2:3], off glc"), ("gfx90a", "global_load_dword v4, v[2:3], off sc0"),
    ("gfx942", "global_load_dword v4, v[2:3], off offset:4096"), ("gfx1030", "global_load_dword v4, v[2:3], off offset:2048"),
    ("gfx1201", "global_load_b32 v4, v[2:3], off glc"), ("gfx1100", "global_load_b32 v4, v[2:3], off scope:SCOPE_SYS"),
    ("gfx942", "global_load_dwordx2 v4, v[2:3], off"), ("gfx1100", "global_load_b32 a4, v[2:3], off"), ("gfx942", "global_load_dword s4, v[2:3], off"),
    ("gfx942", "global_load_dword v4, v2, off"), ("gfx942", "global_load_short_d16 v4, v[2:3], off"), ("gfx1030", "flat_load_dword v4, v[2:3] offset:2048"),
    ("gfx942", "flat_load_dword v4, v[2:3] offset:-4"), ("gfx90a", "global_load_lds_dword v[2:3], off"), ("gfx942", "global_load_lds_dwordx4 v[2:3], off"),
    ("gfx942", "global_inv"), ("gfx942", "global_load_dword v4, v[2:3], off tfe"), ("gfx1201", "buffer_gl0_inv"),
])
def test_what_the_arch_does_not_have(arch, text):
    with pytest.raises(UnknownInstruction, match=text.split()[0]):
        run_snippet(arch, text)


@pytest.mark.parametrize("arch,modifiers", [("gfx90a", "glc slc"), ("gfx942", "sc0 sc1 nt"), ("gfx1030", "glc slc dlc"), ("gfx1100", "slc dlc"),
                                            ("gfx1201", "th:TH_LOAD_NT scope:SCOPE_SYS")])
def test_cache_modifiers_change_nothing(arch, modifiers):
    data = np.arange(64, dtype=np.uint32)
    result = run_snippet(arch, f"global_load_dword v4, v[2:3], off {modifiers}\n{wait(arch)}", vgprs={2: addresses(data, np.arange(lanes_of(arch)) * 4)}, memory=[data])
    assert np.array_equal(result.vgpr(4)[0], np.arange(lanes_of(arch)))


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_accumulation_registers(arch):
    data = np.arange(256, dtype=np.uint32)
    at = addresses(data, np.arange(64) * 16)
    result = run_snippet(arch, "global_load_dwordx4 a[4:7], v[2:3], off\ns_waitcnt vmcnt(0)\nglobal_store_dwordx4 v[2:3], a[8:11], off",
                         vgprs={2: at}, agprs={8: 1, 9: 2, 10: 3, 11: 4}, memory=[data])
    assert np.array_equal(result.agpr(5)[0], np.arange(64) * 4 + 1)
    assert np.array_equal(data, np.arange(256) % 4 + 1)


# ---------------------------------------------------------------------------------------------------- flat apertures
@pytest.mark.parametrize("arch", ARCHS)
def test_flat_reaches_lds_and_scratch(arch):
    lanes = lanes_of(arch)
    data = np.arange(lanes, dtype=np.uint32)
    at = addresses(data, np.arange(lanes) * 4)
    at[1::3] = SHARED_APERTURE + 16
    at[2::3] = PRIVATE_APERTURE + 8
    lds = np.arange(100, 108, dtype=np.uint32)
    body = "flat_store_dword v[6:7], v5\n" + everything(arch) + "\nflat_load_dword v4, v[2:3]\n" + everything(arch)
    result = run_snippet(arch, body, vgprs={2: at, 5: np.arange(lanes, dtype=np.uint32) + 1000, 6: np.uint64(PRIVATE_APERTURE + 8) + np.zeros(lanes, np.uint64)},
                         memory=[data], lds=lds, scratch_bytes=16)
    want = np.arange(lanes)
    want[1::3], want[2::3] = 104, np.arange(lanes)[2::3] + 1000
    assert np.array_equal(result.vgpr(4)[0], want)
    with pytest.raises(OutOfBounds, match="scratch at 0xe; each lane has 16"):
        run_snippet(arch, "flat_load_dword v4, v[2:3]", vgprs={2: np.uint64(PRIVATE_APERTURE + 14) + np.zeros(lanes, np.uint64)}, scratch_bytes=16)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
def test_flat_is_proven_by_both_counters(arch):
    data = np.zeros(64, np.uint32)
    use = "ds_bpermute_b32 v9, v4, v4"
    with pytest.raises(UseBeforeWait):
        run_snippet(arch, f"flat_load_dword v4, v[2:3]\n{wait(arch)}\n{use}", vgprs={2: addresses(data, np.zeros(lanes_of(arch), int))}, memory=[data])
    run_snippet(arch, f"flat_load_dword v4, v[2:3]\n{everything(arch)}\n{use}", vgprs={2: addresses(data, np.zeros(lanes_of(arch), int))}, memory=[data])


# ------------------------------------------------------------------------------------------------------ direct to LDS
@pytest.mark.parametrize("arch,name,size", [("gfx942", "dword", 4), ("gfx942", "ubyte", 1), ("gfx942", "sshort", 2), ("gfx950", "dwordx3", 12), ("gfx950", "dwordx4", 16)])
def test_loads_to_lds(arch, name, size):
    rng, wide = np.random.default_rng(3), max(4, size)
    data = rng.integers(0, 256, 4096).astype(np.uint8)
    at = rng.integers(0, (4096 - 64) // wide, 64) * wide
    result = run_snippet(arch, f"global_load_lds_{name} v[2:3], off offset:16\ns_waitcnt vmcnt(0)", vgprs={2: addresses(data, at)}, memory=[data],
                         m0=32, lds_bytes=2048, exec=~np.uint64(1 << 7))
    kind = {"ubyte": np.uint8, "sshort": np.int16}.get(name, size)
    want = np.ascontiguousarray(expected(data, at + 16, kind).T).view(np.uint8)  # (lanes, bytes): in place of the lane, whatever EXEC is
    placed = np.zeros(2048, np.uint8)
    placed[48: 48 + 64 * wide] = want.reshape(-1)
    written = np.zeros(2048, bool)
    written[48: 48 + 64 * wide] = True
    written[48 + 7 * wide: 48 + 8 * wide] = False
    assert np.array_equal(result.lds[0][written], placed[written])
    assert np.array_equal(result.machine.lds.initialised(0) != 0, written)


def test_lds_of_a_load_in_flight():
    data = np.zeros(64, np.uint32)
    load = "global_load_lds_dword v[2:3], off"
    read = "ds_read_b32 v4, v5"
    more = {"vgprs": {2: addresses(data, np.arange(64) * 4), 5: np.arange(64, dtype=np.uint32) * 4}, "memory": [data], "m0": 0, "lds_bytes": 256}
    run_snippet("gfx942", f"{load}\ns_waitcnt vmcnt(0)\n{read}\ns_waitcnt lgkmcnt(0)", **more)
    with pytest.raises(UseBeforeWait, match="load of wave 0 into LDS"):
        run_snippet("gfx942", f"{load}\n{read}", **more)
    with pytest.raises(UninitialisedLds):
        run_snippet("gfx942", read, **more)
