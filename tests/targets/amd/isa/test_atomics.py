"""Atomics of global, flat, buffer and LDS memory against plain Python, lanes that meet at one address, and each check."""

import struct
from fractions import Fraction

import numpy as np
import pytest
from snippets import POISON, lanes_of, run_snippet

from tilewright.targets.amd.isa.atomics import BUFFER_LACKS, FLAT_LACKS, LDS_NAMES, MEMORY_NAMES
from tilewright.targets.amd.isa.errors import (
    LdsOutOfBounds,
    Misaligned,
    OutOfBounds,
    SimulationError,
    UninitialisedLds,
    UnknownInstruction,
    UseBeforeWait,
)
from tilewright.targets.amd.isa.state import PRIVATE_APERTURE, SHARED_APERTURE

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")


def has(arch, archs):
    return any(arch.startswith(a) for a in archs)


def later(arch):
    return arch >= "gfx11" and not arch.startswith("gfx9")


def waits(arch):
    return "s_wait_loadcnt 0x0\ns_wait_dscnt 0x0" if arch.startswith("gfx12") else "s_waitcnt vmcnt(0) lgkmcnt(0)"


def returning(arch):
    return "th:TH_ATOMIC_RETURN" if arch.startswith("gfx12") else "sc0" if arch in ("gfx942", "gfx950") else "glc"


# ------------------------------------------------------------------------------------- what each name means, in Python

def wrap(value, size):
    return value % (1 << 8 * size)


def signed(value, size):
    return value - (1 << 8 * size) if value >> (8 * size - 1) else value


def round_to(exact, mantissa, least):
    """Nearest value with ``mantissa`` bits and multiples of 2^least at the smallest; ties to even. Fractions."""
    if exact == 0:
        return Fraction(0)
    magnitude = abs(exact)
    exponent = max(magnitude.numerator.bit_length() - magnitude.denominator.bit_length() - mantissa - 1, least)
    while magnitude / Fraction(2) ** exponent >= 2**mantissa:
        exponent += 1
    scaled = magnitude / Fraction(2) ** exponent
    whole, rest = divmod(scaled, 1)
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    return (1 if exact > 0 else -1) * whole * Fraction(2) ** exponent


def float_of(value, size):
    return struct.unpack("<f" if size == 4 else "<d", value.to_bytes(size, "little"))[0]


def bits_of(value, size):
    return int.from_bytes(struct.pack("<f" if size == 4 else "<d", value), "little")


def packed_add(a, b, kind):
    out = 0
    for shift in (0, 16):
        x, y = (v >> shift & 0xFFFF for v in (a, b))
        if kind == "f16":
            x, y = (Fraction(struct.unpack("<e", struct.pack("<H", v))[0]) for v in (x, y))
            total = struct.unpack("<H", struct.pack("<e", float(round_to(x + y, 11, -24))))[0]
        else:
            x, y = (Fraction(float_of(v << 16, 4)) for v in (x, y))
            total = bits_of(float(round_to(x + y, 8, -133)), 4) >> 16
        out |= total << shift
    return out


def apply(name, size, old, data, second=None):
    """Memory after one operation, as an unsigned integer. ``name`` without width."""
    if name.startswith("f_"):
        x, y = float_of(old, size), float_of(data, size)
        if name == "f_cmpswap":  # −0 equals +0, NaN equals nothing
            return data if x == float_of(second, size) else old
        if name == "f_add":
            return bits_of(float(round_to(Fraction(x) + Fraction(y), 24 if size == 4 else 53, -149 if size == 4 else -1074)), size)
        better = y < x if "min" in name else y > x
        return data if better else old
    if name.startswith("pk_"):
        return packed_add(old, data, name[3:])
    return {
        "add": lambda: wrap(old + data, size), "sub": lambda: wrap(old - data, size), "rsub": lambda: wrap(data - old, size), "swap": lambda: data,
        "and": lambda: old & data, "or": lambda: old | data, "xor": lambda: old ^ data,
        "smin": lambda: min(old, data, key=lambda v: signed(v, size)), "smax": lambda: max(old, data, key=lambda v: signed(v, size)),
        "umin": lambda: min(old, data), "umax": lambda: max(old, data),
        "inc": lambda: 0 if old >= data else old + 1, "dec": lambda: data if old == 0 or old > data else old - 1,
        "sub_clamp": lambda: max(old - data, 0), "cond_sub": lambda: old - data if old >= data else old,
        "mskor": lambda: old & ~data | second, "wrap": lambda: old - data if old >= data else wrap(old + second, size),
        "cmpswap": lambda: data if old == second else old,
    }[name]()


def meaning(name):
    """(operation of ``apply``, bytes) of a name after global_atomic_."""
    size = 8 if name.endswith(("_x2", "64")) else 4
    base = name.removesuffix("_x2")
    if base.startswith("pk_add"):
        return "pk_" + base[7:], 4
    if base in ("csub", "csub_u32"):
        return "sub_clamp", 4
    word, _, kind = base.rpartition("_") if base[-2:] in ("32", "64") else (base, "", "")
    if kind.startswith("f"):
        return "f_" + word.removesuffix("_num"), size
    if word in ("min", "max"):
        return kind[0].replace("i", "s") + word, size
    return {"fmin": "f_min", "fmax": "f_max", "fcmpswap": "f_cmpswap"}.get(word, word), size


def operands(name, size, lanes, rng):
    """(old, data, second): unsigned integers, such that comparisons come out both ways."""
    if name.startswith("f_"):
        draw = lambda: [bits_of(float(v), size) for v in np.ldexp(rng.standard_normal(lanes), rng.integers(-20, 20, lanes)).astype(np.float32 if size == 4 else float)]  # noqa: E731
    elif name == "pk_f16":
        draw = lambda: [int(v) for v in rng.standard_normal((lanes, 2)).astype(np.float16).view(np.uint32)[:, 0]]  # noqa: E731
    elif name == "pk_bf16":
        draw = lambda: [int(v) for v in (rng.standard_normal((lanes, 2)).astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16).view(np.uint32)[:, 0]]  # noqa: E731
    else:
        draw = lambda: [int(v) for v in rng.integers(0, 1 << 8 * size, lanes, np.uint64)] if size == 4 else [int(v) for v in rng.integers(0, 2**64, lanes, np.uint64, endpoint=False)]  # noqa: E731
    old, data, second = draw(), draw(), draw()
    for i in range(0, lanes, 3):
        second[i] = old[i]
        if i % 2 and not name.startswith(("f_", "pk")):
            old[i], data[i] = i % 5, 2
    if name.endswith("cmpswap"):
        for i in range(0, lanes, 3):
            second[i] = old[i]
        if name[0] == "f":
            old[1], second[1] = 0, 1 << 8 * size - 1
            old[2] = second[2] = (1 << 8 * size - 1) - 1  # NaN
    return old, data, second


def array(values, size):
    return np.array(values, np.uint32 if size == 4 else np.uint64)


def registers(count, first):
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kind", ["global", "flat", "buffer"])
def test_memory_atomics(arch, kind):
    lanes, rng = lanes_of(arch), np.random.default_rng(1)
    tested = 0
    for full, (atomic, archs) in MEMORY_NAMES.items():
        lacks = {"flat": FLAT_LACKS, "buffer": BUFFER_LACKS, "global": {}}[kind]
        if not has(arch, archs) or has(arch, lacks.get(full, ())):
            continue
        name, size = meaning(full)
        assert size == atomic.size, full
        tested += 1
        old, data, second = operands(name, size, lanes, rng)
        want = [apply(name, size, *each) for each in zip(old, data, second)]
        n, sources = size // 4, atomic.sources
        source, target = registers(n * sources, 8), registers(n, 20)
        vgprs = {8: array(data, size), **({8 + n: array(second, size)} if sources == 2 else {})}
        for gives in (False, True):
            memory = array(old, size)
            at = memory.ctypes.data
            if kind == "buffer":
                body = f"buffer_atomic_{full} {source}, v2, s[4:7], {'null' if arch.startswith('gfx12') else '0'} offen"
                where = {2: np.arange(lanes, dtype=np.uint32) * size}
                flags = 0x00027000 if arch.startswith("gfx9") else 0x31016FAC if arch == "gfx1030" else 0x31004FAC
                sgprs, result_at = {4: at & 0xFFFFFFFF, 5: at >> 32, 6: memory.nbytes, 7: flags}, 8
            else:
                body = f"{kind}_atomic_{full} " + (f"{target}, " if gives else "") + f"v[2:3], {source}" + (", off" if kind == "global" else "")
                where, sgprs, result_at = {2: (at + np.arange(lanes) * size).astype(np.uint64)}, {}, 20
            result = run_snippet(arch, body + (" " + returning(arch) if gives else "") + "\n" + waits(arch), vgprs={**vgprs, **where}, sgprs=sgprs, memory=[memory])
            assert [int(v) for v in memory] == want, full
            if gives:
                assert [int(v) for v in result.vgpr(result_at, np.uint32 if size == 4 else np.uint64)[0]] == old, full
            elif kind != "buffer":
                assert (result.vgpr(20) == POISON).all()
    assert tested > 24


@pytest.mark.parametrize("arch", ARCHS)
def test_lds_atomics(arch):
    lanes, rng = lanes_of(arch), np.random.default_rng(2)
    tested = 0
    names = dict(LDS_NAMES)
    for full, (atomic, archs) in names.items():
        if not has(arch, archs):
            continue
        tested += 1
        name, size = full.replace("{}", ""), atomic.size
        word, _, letter = name.rpartition("_")
        if name.startswith("pk_add"):
            name = "pk_" + letter
        elif word in ("cmpst", "cmpstore"):
            name = "f_cmpswap" if letter[0] == "f" else "cmpswap"
        elif letter.startswith("f"):
            name = "f_" + word.removesuffix("_num")
        else:
            name = letter[0].replace("i", "s") + word if word in ("min", "max") else word
        old, data, second = operands(name, size, lanes, rng)
        want = [apply(name, size, *each) for each in zip(old, data, second)]
        n = size // 4
        first, other = (second, data) if word == "cmpst" else (data, second)  # ds_cmpst: the comparison comes first
        sources = registers(n, 8) + (f", {registers(n, 12)}" if atomic.sources == 2 else "")
        vgprs = {2: np.arange(lanes, dtype=np.uint32) * size, 8: array(first, size), 12: array(other, size)}
        for rtn in ("", "_rtn"):
            result = run_snippet(arch, f"ds_{full.format(rtn)} " + (f"{registers(n, 20)}, " if rtn else "") + f"v2, {sources} offset:16\n{waits(arch)}", vgprs=vgprs,
                                 lds=np.concatenate([np.zeros(16, np.uint8), array(old, size).view(np.uint8)]))
            assert [int(v) for v in result.lds[0][16:].view(np.uint32 if size == 4 else np.uint64)] == want, full
            if rtn:
                assert [int(v) for v in result.vgpr(20, np.uint32 if size == 4 else np.uint64)[0]] == old, full
    assert tested >= 34


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("size", [4, 8])
def test_lds_exchanges(arch, size):
    lanes, rng, n, letter = lanes_of(arch), np.random.default_rng(3), size // 4, f"b{8 * size}"
    dtype = np.uint32 if size == 4 else np.uint64
    old = rng.integers(0, 2**32, 128 * lanes, np.uint64).astype(dtype)
    one, two = (rng.integers(0, 2**32, lanes, np.uint64).astype(dtype) for _ in range(2))
    at = np.arange(lanes, dtype=np.uint32) * size
    words = [("wrxchg", "wrxchg2", "wrxchg2st64")] + ([("storexchg", "storexchg_2addr", "storexchg_2addr_stride64")] if later(arch) else [])
    for single, double, far in words:
        result = run_snippet(arch, f"ds_{single}_rtn_{letter} {registers(n, 20)}, v2, {registers(n, 8)}\n{waits(arch)}", vgprs={2: at, 8: one}, lds=old)
        assert np.array_equal(result.vgpr(20, dtype)[0], old[:lanes]) and np.array_equal(result.lds[0].view(dtype)[:lanes], one)
        for name, unit, second in ((double, 1, lanes), (far, 64, 1)):
            result = run_snippet(arch, f"ds_{name}_rtn_{letter} {registers(2 * n, 20)}, v2, {registers(n, 8)}, {registers(n, 12)} offset1:{second}\n{waits(arch)}",
                                 vgprs={2: at, 8: one, 12: two}, lds=old)
            assert np.array_equal(result.vgpr(20, dtype)[0], old[:lanes])
            assert np.array_equal(result.vgpr(20 + n, dtype)[0], old[unit * second: unit * second + lanes])
            assert np.array_equal(result.lds[0].view(dtype)[unit * second: unit * second + lanes], two)


def test_ds_wrap():
    old, data, second = (np.array(v, np.uint32) for v in ([5, 9, 0, 2**32 - 1], [6, 9, 0, 1], [7, 1, 3, 8]))
    fill = lambda v: np.resize(v, 64)  # noqa: E731
    result = run_snippet("gfx942", "ds_wrap_rtn_b32 v20, v2, v8, v9\ns_waitcnt lgkmcnt(0)", vgprs={2: np.arange(64, dtype=np.uint32) * 4, 8: fill(data), 9: fill(second)}, lds=fill(old))
    assert result.lds[0].view(np.uint32)[:4].tolist() == [12, 0, 0, 2**32 - 2] and np.array_equal(result.vgpr(20)[0], fill(old))


# ------------------------------------------------------------------------------------------- minimum and maximum of floats
def test_nan_in_minimum_and_maximum():
    """Before gfx12 the new value is taken where it compares less or greater; gfx12 takes the number, and −0 for less than 0."""
    nan, one, zero, minus = 0x7FC00001, 0x3F800000, 0, 0x80000000
    cases = [(nan, one), (one, nan), (zero, minus), (minus, zero)]
    old, data = (np.resize(np.array(v, np.uint32), 32) for v in zip(*cases))
    def run(arch, name):
        memory = old.copy()
        run_snippet(arch, f"global_atomic_{name} v[2:3], v8, off", vgprs={2: (memory.ctypes.data + 4 * np.arange(32)).astype(np.uint64), 8: data}, memory=[memory])
        return [int(v) for v in memory[:4]]
    assert run("gfx1100", "min_f32") == [nan, one, zero, minus] and run("gfx1030", "fmax") == [nan, one, zero, minus]
    assert run("gfx1201", "min_num_f32") == [one, one, minus, minus] and run("gfx1201", "max_num_f32") == [one, one, zero, zero]


# --------------------------------------------------------------------------------------------------- meeting lanes
@pytest.mark.parametrize("arch", ARCHS)
def test_lanes_that_meet_happen_one_after_another(arch):
    lanes = lanes_of(arch)
    memory = np.zeros(4, np.uint32)
    which = np.arange(2 * lanes).reshape(2, lanes) % 3
    at = (memory.ctypes.data + 4 * which).astype(np.uint64)
    result = run_snippet(arch, f"global_atomic_add v20, v[2:3], v8, off {returning(arch)}\n{waits(arch)}", vgprs={2: at, 8: 1}, memory=[memory], waves=2,
                         exec=(1 << lanes) - 1 - (1 << 3))
    seen = [0, 0, 0]
    for w in range(2):
        for lane in range(lanes):
            if lane != 3:
                assert result.vgpr(20)[w, lane] == seen[which[w, lane]]
                seen[which[w, lane]] += 1
    assert memory.tolist() == [*seen, 0]


def test_one_lane_takes_a_lock():
    memory = np.zeros(1, np.uint32)
    at = np.full(64, memory.ctypes.data, np.uint64)
    body = "global_atomic_cmpswap v20, v[2:3], v[8:9], off sc0\ns_waitcnt vmcnt(0)"
    result = run_snippet("gfx942", body, vgprs={2: at, 8: np.arange(1, 65, dtype=np.uint32), 9: 0}, memory=[memory])
    assert memory[0] == 1 and result.vgpr(20)[0].tolist() == [0] + [1] * 63


def test_rounding_happens_at_each_addition():
    memory = np.array([2.0**24], np.float32)
    at = np.full(64, memory.ctypes.data, np.uint64)
    run_snippet("gfx942", "global_atomic_add_f32 v[2:3], v8, off", vgprs={2: at, 8: 1.0}, memory=[memory])
    assert memory[0] == 2.0**24  # and not 2^24 + 64


# --------------------------------------------------------------------------------------------------------- checks
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
def test_checks(arch):
    lanes = lanes_of(arch)
    memory = np.zeros(lanes, np.uint32)
    at = (memory.ctypes.data + 4 * np.arange(lanes)).astype(np.uint64)
    past, odd = at.copy(), at.copy()
    past[-1] += np.uint64(4)
    odd[2] += np.uint64(2)
    body = "global_atomic_add v[2:3], v8, off"
    with pytest.raises(OutOfBounds, match=f"lane {lanes - 1}"):
        run_snippet(arch, body, vgprs={2: past, 8: 1}, memory=[memory])
    with pytest.raises(Misaligned, match="atomic of 4 bytes .*lane 2"):
        run_snippet(arch, body, vgprs={2: odd, 8: 1}, memory=[memory])
    assert not memory.any()
    with pytest.raises(UseBeforeWait, match="v20"):
        run_snippet(arch, f"global_atomic_add v20, v[2:3], v8, off {returning(arch)}\nds_bpermute_b32 v3, v20, v20", vgprs={2: at, 8: 1}, memory=[memory])
    with pytest.raises(LdsOutOfBounds, match="updates 4 bytes of LDS at 0x80, 4 bytes past"):
        run_snippet(arch, "ds_add_u32 v2, v8", vgprs={2: 128, 8: 1}, lds=np.zeros(128, np.uint8))
    with pytest.raises(UninitialisedLds):
        run_snippet(arch, "ds_add_u32 v2, v8", vgprs={2: 0, 8: 1}, lds_bytes=128)
    with pytest.raises(Misaligned):
        run_snippet(arch, "ds_add_u32 v2, v8", vgprs={2: 2, 8: 1}, lds=np.zeros(128, np.uint8))


@pytest.mark.parametrize("arch", ARCHS)
def test_flat_atomics_reach_lds(arch):
    lanes = lanes_of(arch)
    memory = np.full(1, 100, np.uint32)
    at = np.where(np.arange(lanes) % 2, SHARED_APERTURE + 4, memory.ctypes.data).astype(np.uint64)
    result = run_snippet(arch, f"flat_atomic_add v20, v[2:3], v8 {returning(arch)}\n{waits(arch)}", vgprs={2: at, 8: 1}, memory=[memory], lds=np.array([7, 40], np.uint32))
    assert memory[0] == 100 + lanes // 2 and result.lds[0].view(np.uint32).tolist() == [7, 40 + lanes // 2]
    assert np.array_equal(result.vgpr(20)[0], np.arange(lanes) // 2 + np.where(np.arange(lanes) % 2, 40, 100))
    with pytest.raises(SimulationError, match="flat atomic of scratch"):
        run_snippet(arch, "flat_atomic_add v[2:3], v8", vgprs={2: np.full(lanes, PRIVATE_APERTURE, np.uint64), 8: 1}, scratch_bytes=16)


@pytest.mark.parametrize("arch", ARCHS)
def test_waves_may_meet_in_atomics_without_a_barrier(arch):
    result = run_snippet(arch, "ds_add_u32 v2, v8", vgprs={2: 0, 8: 1}, lds=np.zeros(4, np.uint8), waves=2)
    assert result.lds[0].view(np.uint32)[0] == 2 * lanes_of(arch)


@pytest.mark.parametrize("arch,text", [
    ("gfx942", "global_atomic_add_u32 v[2:3], v8, off"), ("gfx942", "global_atomic_add v20, v[2:3], v8, off"), ("gfx942", "global_atomic_add v[2:3], v8, off sc0"),
    ("gfx1030", "global_atomic_add_f32 v[2:3], v8, off"), ("gfx1100", "global_atomic_add_f64 v[2:3], v[8:9], off"), ("gfx90a", "global_atomic_pk_add_bf16 v[2:3], v8, off"),
    ("gfx942", "ds_cmpstore_b32 v2, v8, v9"), ("gfx1100", "ds_cmpst_b32 v2, v8, v9"), ("gfx1201", "ds_min_f32 v2, v8"), ("gfx942", "ds_mskor_b32 v2, v8"),
    ("gfx1201", "global_atomic_add_u32 v[2:3], v8, off th:TH_LOAD_NT"), ("gfx942", "global_atomic_add_x2 v[2:3], v8, off"),
])
def test_what_the_arch_does_not_have(arch, text):
    with pytest.raises(UnknownInstruction, match=text.split()[0]):
        run_snippet(arch, text)
