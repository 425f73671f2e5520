"""ds_*: every width and form against numpy, lane exchanges, and each check."""

import numpy as np
import pytest
from snippets import POISON, lanes_of, run_snippet

from tilewright.targets.amd.isa import bank_conflicts
from tilewright.targets.amd.isa.errors import (
    LdsOutOfBounds,
    LdsRace,
    Misaligned,
    UninitialisedLds,
    UnknownInstruction,
    UseBeforeWait,
)
from tilewright.targets.amd.isa.lds_ops import swizzled_lanes
from tilewright.targets.amd.isa.machine import Machine

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
SIZE = 8192


def later(arch):
    return arch >= "gfx11" and not arch.startswith("gfx9")


def wait(arch):
    return "s_wait_dscnt 0x0" if arch.startswith("gfx12") else "s_waitcnt lgkmcnt(0)"


def registers(count, first=4):
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def gathered(data, at, kind):
    size = kind if isinstance(kind, int) else np.dtype(kind).itemsize
    raw = np.ascontiguousarray(np.stack([data[at + i] for i in range(size)], axis=-1))
    if isinstance(kind, int):
        return raw.view(np.uint32).T
    return raw.view(kind)[:, 0].astype(np.int64).astype(np.uint32)[None]


def contents(seed):
    return np.random.default_rng(seed).integers(0, 256, SIZE).astype(np.uint8)


LOADS = {"b32": 4, "b64": 8, "b96": 12, "b128": 16, "u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16}


@pytest.mark.parametrize("arch", ARCHS)
def test_loads(arch):
    data, rng, lanes = contents(1), np.random.default_rng(2), lanes_of(arch)
    for name, kind in LOADS.items():
        for verb in ("read", "load") if later(arch) else ("read",):
            for unit in (16, 4, 1):
                at = rng.integers(0, (SIZE - 1024) // unit, lanes) * unit
                size = kind if isinstance(kind, int) else np.dtype(kind).itemsize
                result = run_snippet(arch, f"ds_{verb}_{name} {registers(max(1, size // 4))}, v2 offset:1008\n{wait(arch)}", vgprs={2: at.astype(np.uint32)}, lds=data)
                for i, want in enumerate(gathered(data, at + 1008, kind)):
                    assert np.array_equal(result.vgpr(4 + i)[0], want), (name, unit, i)


@pytest.mark.parametrize("arch", ["gfx1030", "gfx1100", "gfx1201"])
def test_d16_loads_keep_the_other_half(arch):
    data, at = contents(3), np.arange(lanes_of(arch)) * 2
    for name, kind in {"u8_d16": np.uint8, "i8_d16": np.int8, "u16_d16": np.uint16}.items():
        value = gathered(data, at, kind)[0] & np.uint32(0xFFFF)
        for half in ("", "_hi"):
            result = run_snippet(arch, f"ds_{'load' if later(arch) else 'read'}_{name}{half} v4, v2\n{wait(arch)}", vgprs={2: at.astype(np.uint32), 4: 0x12345678}, lds=data)
            assert np.array_equal(result.vgpr(4)[0], np.uint32(0x5678) | value << np.uint32(16) if half else np.uint32(0x12340000) | value), name


@pytest.mark.parametrize("arch", ARCHS)
def test_stores(arch):
    rng, lanes = np.random.default_rng(4), lanes_of(arch)
    for name, size in {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16, "b8_d16_hi": 1, "b16_d16_hi": 2}.items():
        for verb in ("write", "store") if later(arch) else ("write",):
            for unit in (16, 4, 1):
                data = contents(5)
                at = rng.permutation(SIZE // 16 - 8)[:lanes] * 16 + rng.integers(0, 16 // unit) * unit
                values = {k: rng.integers(0, 2**32, lanes, np.uint64).astype(np.uint32) for k in range(4, 8)}
                raw = np.stack([values[4 + i] >> np.uint32(16 if "hi" in name else 0) for i in range(max(1, size // 4))], axis=-1).view(np.uint8)
                active, want = rng.integers(0, 2, lanes), data.copy()
                for lane in np.flatnonzero(active):
                    want[at[lane] + 100: at[lane] + 100 + size] = raw[lane, :size]
                result = run_snippet(arch, f"ds_{verb}_{name} v2, {registers(max(1, size // 4))} offset:100", vgprs={2: at.astype(np.uint32), **values}, lds=data,
                                     exec=int(sum(1 << int(i) for i in np.flatnonzero(active))))
                assert np.array_equal(result.lds[0], want), (name, unit)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("stride64", [False, True])
def test_two_addresses(arch, size, stride64):
    data, lanes, n = contents(6), lanes_of(arch), size // 4
    unit, bits = size * (64 if stride64 else 1), 8 * size
    at = np.arange(lanes) * size
    names = [("read2st64_b", "write2st64_b") if stride64 else ("read2_b", "write2_b")]
    if later(arch):
        names.append(("load_2addr_stride64_b", "store_2addr_stride64_b") if stride64 else ("load_2addr_b", "store_2addr_b"))
    for load, store in names:
        body = f"ds_{load}{bits} {registers(2 * n)}, v2 offset0:1 offset1:3\n{wait(arch)}\nds_{store}{bits} v3, {registers(n)}, {registers(n, 4 + n)} offset1:1"
        result = run_snippet(arch, body, vgprs={2: at.astype(np.uint32), 3: (4096 + at * 2 if not stride64 else 4096 + at).astype(np.uint32)}, lds=data)
        want = np.concatenate([gathered(data, at + unit, size), gathered(data, at + 3 * unit, size)])
        assert np.array_equal(np.stack([result.vgpr(4 + i)[0] for i in range(2 * n)]), want)
        place = 4096 + (at if stride64 else at * 2)
        assert np.array_equal(gathered(result.lds[0], place, size), want[:n]) and np.array_equal(gathered(result.lds[0], place + unit, size), want[n:])
    # the address register may be the destination's first
    result = run_snippet(arch, f"ds_read2_b{bits} {registers(2 * n, 2)}, v2 offset1:1\n{wait(arch)}", vgprs={2: at.astype(np.uint32)}, lds=data)
    assert np.array_equal(result.vgpr(2 + n)[0], gathered(data, at + size, 4)[0])


def test_work_groups_have_their_own():
    data = contents(7)
    body = "ds_write_b32 v2, v3\ns_waitcnt lgkmcnt(0)\nds_read_b32 v4, v2"
    result = run_snippet("gfx942", body, vgprs={2: np.arange(64, dtype=np.uint32) * 4, 3: np.arange(3, dtype=np.uint32)[:, None] + 5}, lds=data, groups=3)
    assert np.array_equal(result.vgpr(4), np.broadcast_to(np.arange(3)[:, None] + 5, (3, 64)))
    assert np.array_equal(result.lds[:, 256:], np.broadcast_to(data[256:], (3, SIZE - 256)))


# --------------------------------------------------------------------------------------------------------- checks
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("size,name", [(1, "u8"), (4, "b32"), (16, "b128")])
def test_outside_and_uninitialised(arch, size, name):
    data = contents(8)[:1024]
    def load(first, **more):
        at = np.full(lanes_of(arch), 64, np.uint32)
        at[9] = first
        return run_snippet(arch, f"ds_read_{name} {registers(max(1, size // 4))}, v2 offset:4\n{wait(arch)}", vgprs={2: at}, **more)
    load(1020 - size, lds=data)
    with pytest.raises(LdsOutOfBounds, match=r"1 bytes past the end of the work-group's 1024 bytes .*k\.py:1.*wave 0, lane 9"):
        load(1020 - size + 1, lds=data)
    with pytest.raises(LdsOutOfBounds, match="outside the work-group's"):
        load(np.uint32(2**32 - 64), lds=data)
    load(1020 - size, lds=data, lds_bytes=2048)
    with pytest.raises(UninitialisedLds, match=r"0x400 was never written .*k\.py:1.*lane 9"):
        load(1020 - size + 1, lds=data, lds_bytes=2048)


def test_a_store_outside():
    with pytest.raises(LdsOutOfBounds, match="writes 8 bytes of LDS at 0x3fc, 4 bytes past the end"):
        run_snippet("gfx942", "ds_write_b64 v2, v[4:5]", vgprs={2: 1020}, lds=contents(8)[:1024])
    with pytest.raises(LdsOutOfBounds):
        run_snippet("gfx942", "ds_write2st64_b32 v2, v4, v5 offset1:4", vgprs={2: 0}, lds_bytes=1024)


def test_written_bytes_are_initialised():
    body = "ds_write_b8 v2, v4 offset:2\ns_waitcnt lgkmcnt(0)\nds_read_u8 v5, v2 offset:2\n"
    at = np.arange(64, dtype=np.uint32) * 4
    run_snippet("gfx942", body, vgprs={2: at, 4: 1}, lds_bytes=256)
    with pytest.raises(UninitialisedLds, match=r"0x1 was never written"):
        run_snippet("gfx942", body + "ds_read_u16 v5, v2 offset:1", vgprs={2: at, 4: 1}, lds_bytes=256)


@pytest.mark.parametrize("arch", ARCHS)
def test_waits_and_races(arch):
    at = np.arange(2 * lanes_of(arch), dtype=np.uint32).reshape(2, -1) * 4
    store, load = "ds_write_b32 v2, v3", "ds_read_b32 v4, v2"
    use = "ds_write_b32 v5, v4"
    barrier = f"{wait(arch)}\n" + ("s_barrier_signal -1\ns_barrier_wait 0xffff" if arch.startswith("gfx12") else "s_barrier")
    registers = {2: at, 3: 1, 5: at + np.uint32(1024)}
    run_snippet(arch, f"{store}\n{barrier}\n{load}\n{wait(arch)}\n{use}", vgprs=registers, lds_bytes=2048, waves=2)
    with pytest.raises(UseBeforeWait, match="v4"):
        run_snippet(arch, f"{store}\n{barrier}\n{load}\n{use}", vgprs=registers, lds_bytes=2048, waves=2)
    other = {**registers, 6: at[::-1].copy()}
    run_snippet(arch, f"{store}\n{barrier}\nds_read_b32 v4, v6", vgprs=other, lds_bytes=2048, waves=2)
    with pytest.raises(LdsRace):
        run_snippet(arch, f"{store}\n{wait(arch)}\nds_read_b32 v4, v6", vgprs=other, lds_bytes=2048, waves=2)


@pytest.mark.parametrize("arch,text", [
    ("gfx942", "ds_load_b32 v4, v2"), ("gfx942", "ds_read_b32 v4, v2 gds"), ("gfx942", "ds_read_b32 v4, v2 offset:65536"), ("gfx942", "ds_read2_b32 v[4:5], v2 offset0:256"),
    ("gfx942", "ds_read_b64_tr_b16 v[4:5], v2"), ("gfx1201", "ds_read_b64_tr_b16 v[4:5], v2"), ("gfx942", "ds_read_u16_d16 v4, v2"), ("gfx942", "ds_read_b64 v4, v2"),
    ("gfx942", "ds_swizzle_b32 v4, v2 offset:swizzle(FFT,5)"), ("gfx1100", "ds_read_b32 a4, v2"), ("gfx942", "ds_read_b32 v4, s2"), ("gfx1100", "ds_bpermute_fi_b32 v4, v2, v3"),
    ("gfx942", "ds_append v4"),
])
def test_what_the_arch_does_not_have(arch, text):
    with pytest.raises(UnknownInstruction, match=text.split()[0]):
        run_snippet(arch, text)


# --------------------------------------------------------------------------------------------------- lane exchanges
@pytest.mark.parametrize("arch", ARCHS)
def test_permutes(arch):
    rng, lanes = np.random.default_rng(9), lanes_of(arch)
    value = rng.integers(0, 2**32, (2, lanes), np.uint64).astype(np.uint32)
    at = rng.integers(0, 2**32, (2, lanes), np.uint64).astype(np.uint32)
    active = rng.integers(0, 2, (2, lanes)).astype(bool)
    masks = [int(sum(1 << int(i) for i in np.flatnonzero(a))) for a in active]
    result = run_snippet(arch, "ds_bpermute_b32 v4, v2, v3 offset:8\nds_permute_b32 v5, v2, v3 offset:8", vgprs={2: at, 3: value}, exec=masks, waves=2)
    for w in range(2):
        pulled, pushed = np.full(lanes, POISON, np.uint32), np.zeros(lanes, np.uint32)
        for i in range(lanes):
            other = ((int(at[w, i]) + 8) % 2**32 // 4) % lanes
            if active[w, i]:
                pulled[i] = value[w, other] if active[w, other] else 0
                pushed[other] = value[w, i]
        pushed[~active[w]] = POISON
        assert np.array_equal(result.vgpr(4)[w], pulled) and np.array_equal(result.vgpr(5)[w], pushed)


def test_bpermute_of_inactive_lanes():
    value = np.arange(32, dtype=np.uint32) + 1
    result = run_snippet("gfx1201", "ds_bpermute_fi_b32 v4, v2, v3", vgprs={2: np.arange(32, dtype=np.uint32)[::-1].copy() * 4, 3: value}, exec=0xFFFF)
    assert np.array_equal(result.vgpr(4)[0, :16], value[::-1][:16])


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("offset,source", [
    ("0x041f", lambda i: i ^ 1), ("0x401f", lambda i: i ^ 16), ("swizzle(SWAP,16)", lambda i: i ^ 16), ("swizzle(REVERSE,8)", lambda i: i ^ 7),
    ("swizzle(BROADCAST,4,2)", lambda i: i & ~3 | 2), ("swizzle(QUAD_PERM,1,0,3,2)", lambda i: i ^ 1), ("0x80b1", lambda i: i ^ 1),
    ('swizzle(BITMASK_PERM,"01pip")', lambda i: i & ~31 | (i & 7 | 8) ^ 2), ("0x0008", lambda i: i & ~31 | i & 8),
    ("0x8000", lambda i: i & ~3),
])
def test_swizzle(arch, offset, source):
    lanes = lanes_of(arch)
    value = np.random.default_rng(10).integers(0, 2**32, lanes, np.uint64).astype(np.uint32)
    result = run_snippet(arch, f"ds_swizzle_b32 v4, v2 offset:{offset}", vgprs={2: value}, exec=(1 << lanes) - 1 - (1 << 5))
    for i in range(lanes):
        if i != 5:
            assert result.vgpr(4)[0, i] == (0 if source(i) == 5 else value[source(i)])


def test_swizzle_modes_that_are_not_here():
    assert swizzled_lanes(0xE000, 32) is None and swizzled_lanes(0xC000, 32) is None and swizzled_lanes("swizzle(ROTATE,0,1)", 32) is None


# ---------------------------------------------------------------------------------------------- transposing loads
@pytest.mark.parametrize("name,bits", [("b64_tr_b16", 16), ("b64_tr_b8", 8), ("b64_tr_b4", 4), ("b96_tr_b6", 6)])
def test_transposing_loads(name, bits):
    """Four matrices a wave, of 16 columns; each lane's address is anywhere, the lane gets one column of what its 16 lanes read."""
    rng = np.random.default_rng(bits)
    size = 12 if bits == 6 else 8
    rows = size * 8 // bits
    data = contents(11)
    slots = rng.permutation(SIZE // 16)[:64] * 16
    result = run_snippet("gfx950", f"ds_read_{name} {registers(size // 4)}, v2 offset:16\ns_waitcnt lgkmcnt(0)", vgprs={2: (slots - 16).astype(np.uint32)}, lds=data)
    got = [int.from_bytes(b"".join(int(result.vgpr(4 + i)[0, lane]).to_bytes(4, "little") for i in range(size // 4)), "little") for lane in range(64)]
    read = [int.from_bytes(data[s: s + size].tobytes(), "little") for s in slots]
    per_row = 16 // rows  # lanes that hold one row
    for lane in range(64):
        block, column = lane // 16 * 16, lane % 16
        for row in range(rows):
            holder = read[block + row * per_row + column // rows]
            assert got[lane] >> row * bits & (1 << bits) - 1 == holder >> column % rows * bits & (1 << bits) - 1


def test_transposing_loads_check():
    with pytest.raises(Misaligned, match="0x4 is no multiple of 8"):
        run_snippet("gfx950", "ds_read_b64_tr_b16 v[4:5], v2", vgprs={2: 4}, lds=contents(1))
    with pytest.raises(Misaligned, match="inactive lanes"):
        run_snippet("gfx950", "ds_read_b64_tr_b16 v[4:5], v2", vgprs={2: 8}, lds=contents(1), exec=1)


# ---------------------------------------------------------------------------------------------------- bank conflicts
def conflicts(arch, size, write, addresses, mask=None):
    lanes = lanes_of(arch)
    return bank_conflicts.cycles(np.asarray(addresses, np.int64)[None], None if mask is None else mask[None], size, bank_conflicts.groups(arch, lanes, size, write),
                                 bank_conflicts.banks(arch))


@pytest.mark.parametrize("arch,size,least", [("gfx942", 4, 2), ("gfx942", 8, 4), ("gfx942", 16, 8), ("gfx950", 4, 1), ("gfx950", 16, 4), ("gfx1100", 4, 1), ("gfx1100", 16, 4)])
def test_bank_conflicts(arch, size, least):
    lanes = lanes_of(arch)
    i = np.arange(lanes)
    for write in (False, True):
        assert conflicts(arch, size, write, i * size) == (least, least)  # one after another
        assert conflicts(arch, size, write, i * 0) == (least, least)  # all the same
        worst = lanes // least * (lanes // (lanes // least))
        assert conflicts(arch, size, write, i * 4 * bank_conflicts.banks(arch)) == (worst, least)  # all in one bank
    none = np.zeros(lanes, bool)
    assert conflicts(arch, size, True, i * size, none) == (0, 0)


@pytest.mark.parametrize("arch,together,apart", [("gfx942", (0, 20), (0, 4)), ("gfx942", (36, 51), (32, 48)), ("gfx950", (0, 27), (0, 4)), ("gfx950", (4, 31), (16, 20)),
                                                 ("gfx1100", (8, 28), (8, 12)), ("gfx1201", (0, 4), (0, 20))])
def test_lanes_that_128_bit_loads_serve_together(arch, together, apart):
    for (one, other), clash in ((together, True), (apart, False)):
        active = np.zeros(lanes_of(arch), bool)
        active[[one, other]] = True
        at = np.zeros(lanes_of(arch), int)
        at[other] = 4 * bank_conflicts.banks(arch)
        assert conflicts(arch, 16, False, at, active) == ((2, 1) if clash else (2, 2))


def test_stores_of_cdna_go_by_lanes_in_order():
    """Lanes 0 to 3 are read with lanes 20 to 23 and written with lanes 4 to 7; a clash takes one cycle more."""
    for other, write in ((20, False), (4, True)):
        at = np.arange(64) * 16
        at[other] = at[0] + 4096
        assert conflicts("gfx942", 16, write, at) == (9, 8)
        assert conflicts("gfx942", 16, not write, at) == (8 + _clashes(at, 16, not write), 8)


def _clashes(at, size, write):
    """Cycles more than needed, group by group and bank by bank."""
    more = 0
    for group in bank_conflicts.groups("gfx942", 64, size, write):
        words = {int(a) // 4 + i for a in at[group] for i in range(size // 4)}
        more += max(sum(w % 32 == bank for w in words) for bank in range(32)) - 1
    return more


def test_conflicts_are_counted_where_asked(monkeypatch):
    table = {}
    monkeypatch.setattr(Machine, "lds_conflicts", table, raising=False)
    at = np.broadcast_to(np.arange(64, dtype=np.uint32) * 128, (2, 64)) + np.array([[0], [4]], np.uint32)
    run_snippet("gfx942", "ds_write_b32 v2, v3\nds_write2_b32 v4, v3, v3 offset1:32", vgprs={2: at, 3: 1, 4: at}, lds_bytes=16384, waves=2)
    assert table == {0: [2, 128, 4], 1: [4, 256, 8]}
