"""Matrix instructions against numpy, with the layouts of lanes and registers stated here anew (shared notes on matrix layouts, and the manuals)."""

import itertools

import numpy as np
import pytest
from snippets import run_snippet

from tilewright.targets.amd.isa.errors import SimulationError, UnknownInstruction
from tilewright.targets.amd.isa.matrix import MFMA
from tilewright.targets.amd.isa.matrix_formats import to_bf16
from tilewright.targets.amd.isa.matrix_wmma import WMMA


# ------------------------------------------------------------------------------------------------- numbers and bits
def minifloat(code, exponent, mantissa, bias):
    """Value of a small float's code, all codes finite."""
    sign = -1.0 if code >> (exponent + mantissa) & 1 else 1.0
    power, fraction = code >> mantissa & ((1 << exponent) - 1), code & ((1 << mantissa) - 1)
    if power == 0:
        return sign * fraction * 2.0 ** (1 - bias - mantissa)
    return sign * (1 + fraction / (1 << mantissa)) * 2.0 ** (power - bias)


MINI = {"fp8 fnuz": (4, 3, 8), "bf8 fnuz": (5, 2, 16), "fp8": (4, 3, 7), "bf8": (5, 2, 15), "fp6": (2, 3, 1), "bf6": (3, 2, 3), "fp4": (2, 1, 1)}
BITS = {"f16": 16, "bf16": 16, "f32": 32, "xf32": 32, "f64": 64, "i8": 8, "u8": 8, "i4": 4, "u4": 4, "fp6": 6, "bf6": 6, "fp4": 4,
        "fp8 fnuz": 8, "bf8 fnuz": 8, "fp8": 8, "bf8": 8}


def codes_of(values, kind):
    """Bits of exactly representable values."""
    values = np.asarray(values, np.float64)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint64)
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint64)
    if kind in ("f32", "xf32"):
        return values.astype(np.float32).view(np.uint32).astype(np.uint64)
    if kind == "f64":
        return values.view(np.uint64)
    if kind in ("i8", "u8", "i4", "u4"):
        return (values.astype(np.int64) & ((1 << BITS[kind]) - 1)).astype(np.uint64)
    table = {minifloat(c, *MINI[kind]): c for c in reversed(range(1 << BITS[kind]))}
    return np.vectorize(table.__getitem__, otypes=[np.uint64])(values)


def some(kind, shape, rng):
    """Random exactly representable values whose products and sums are exact in f32."""
    if kind in ("i8", "u8", "i4", "u4"):
        low, high = {"i8": (-128, 128), "u8": (0, 256), "i4": (-8, 8), "u4": (0, 16)}[kind]
        return rng.integers(low, high, shape).astype(np.float64)
    if kind == "fp4":
        return rng.choice([-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6], shape)
    return rng.integers(-3 if kind == "bf8" or kind.startswith("bf") else -7, 4, shape).astype(np.float64)


def pack(codes, bits):
    """uint64 (lanes, elements) → registers {0: uint32 (lanes,), …}, low elements first."""
    lanes, count = codes.shape
    if bits in (8, 16, 32, 64):
        return np.ascontiguousarray(codes.astype(f"u{bits // 8}")).view(np.uint32)
    stream = (codes[:, :, None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)).astype(np.uint8).reshape(lanes, count * bits)
    return np.packbits(stream, axis=1, bitorder="little").view(np.uint32)


# --------------------------------------------------------------------------------------------------------- layouts
def mfma_operand(lane, j, rows, k, blocks):
    """(block, row, k) of element j of a lane."""
    each = rows * k * blocks // 64
    return lane // rows % blocks, lane % rows, each * (lane // (rows * blocks)) + j


def long_operand(lane, j, rows, bits):
    """(row, k) of f8f6f4."""
    if bits == 8:
        return lane % rows, (j // 16) * (1024 // rows) + 16 * (lane // rows) + j % 16
    return lane % rows, 32 * (lane // rows) + j


def mfma_result(lane, r, size, blocks, f64=False):
    """(block, row, column) of register (f64: pair) r."""
    if f64:
        return (0, 4 * r + lane // 16, lane % 16) if size == 16 else (lane // 16, lane // 4 % 4, lane % 4)
    if size == 32:
        return r // 16, 8 * (r % 16 // 4) + 4 * (lane // 32) + r % 4, lane % 32
    if size == 16:
        return r // 4, 4 * (lane // 16) + r % 4, lane % 16
    return lane // 4, r, lane % 4


CASES = sorted({(arch, name) for arch, name in MFMA})


def parts(name, arch):
    """The name says all: result, m, n, k, blocks, formats of A and B."""
    _, _, out, rest = name.split("_", 3)
    shape = rest.split("_")[0]
    kind = rest[len(shape):].strip("_")
    m, n, k = shape.split("x", 2)
    digits = "".join(itertools.takewhile(str.isdigit, k))
    kind = (k[len(digits):] + "_" + kind).strip("_")
    m, k = int(m), int(digits)
    blocks = 1
    if kind.split("_")[0].rstrip("b").isdigit():
        blocks, kind = int(kind.split("_")[0][:-1]), kind.split("_", 1)[1]
    elif arch == "gfx90a":  # gfx90a does not write it: a lane holds 4 halves (2 where not _1k), 4 bytes or one word
        each = 2 if kind == "bf16" else {"f32": 1, "f64": 1, "i8": 4}.get(kind, 4)
        blocks = each * 64 // (m * k)
    kind = kind.removesuffix("_1k")
    a, _, b = kind.partition("_")
    own = " fnuz" if arch == "gfx942" and a in ("fp8", "bf8") else ""
    return out, m, k, blocks, a + own, (b or a) + own


def span(first, count):
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def fill(at, registers):
    return {at + i: registers[..., i] for i in range(registers.shape[-1])}


@pytest.mark.parametrize("arch, name", CASES)
def test_mfma_random(arch, name):
    out, m, k, blocks, a_kind, b_kind = parts(name, arch)
    rng = np.random.default_rng(abs(hash(name)) % 1000)
    a, b = some(a_kind, (blocks, m, k), rng), some(b_kind, (blocks, k, m), rng)
    c = rng.integers(-1000, 1000, (blocks, m, m)).astype(np.float64)
    f64 = out == "f64"
    count = m * m * blocks // 64
    each = m * k * blocks // 64
    a_codes, b_codes = np.zeros((64, each), np.uint64), np.zeros((64, each), np.uint64)
    ca, cb = codes_of(a, a_kind), codes_of(b, b_kind)
    for lane, j in itertools.product(range(64), range(each)):
        block, row, kk = mfma_operand(lane, j, m, k, blocks)
        a_codes[lane, j], b_codes[lane, j] = ca[block, row, kk], cb[block, kk, row]
    place = [[mfma_result(lane, r, m, blocks, f64) for lane in range(64)] for r in range(count)]
    block, row, column = (np.array([[p[i] for p in line] for line in place]) for i in range(3))
    c_kind = {"f32": np.float32, "f64": np.float64, "i32": np.int32}[out]
    c_words = c[block, row, column].astype(c_kind)  # (registers, lanes)
    c_words = np.ascontiguousarray(c_words.T).view(np.uint32)
    vgprs = {**fill(64, pack(a_codes, BITS[a_kind])), **fill(96, pack(b_codes, BITS[b_kind])), **fill(128, c_words)}
    na, nb, nd = (x.shape[-1] for x in (pack(a_codes, BITS[a_kind]), pack(b_codes, BITS[b_kind]), c_words))
    got = run_snippet(arch, f"{name} {span(0, nd)}, {span(64, na)}, {span(96, nb)}, {span(128, nd)}", vgprs=vgprs)
    expected = (a @ b + c)[block, row, column].astype(c_kind)
    for r in range(count):
        found = got.vgpr(2 * r, np.float64) if f64 else got.vgpr(r, c_kind)
        np.testing.assert_array_equal(found[0], expected[r])


# one name a row
ONE_HOT = {MFMA[case] if case[0] != "gfx90a" else case[1]: case for case in CASES if case[0] != "gfx90a" or case[1].endswith(("bf16", "1f32"))}


@pytest.mark.parametrize("arch, name", list(ONE_HOT.values()))
def test_mfma_one_hot(arch, name):
    """A single 1 in each place of A (a wave each): the row of D that it stands in is B's row k; and the same for B."""
    out, m, k, blocks, a_kind, b_kind = parts(name, arch)
    f64 = out == "f64"
    each = m * k * blocks // 64
    waves = 64 * each
    lanes, js = np.divmod(np.arange(waves), each)
    hot = np.zeros((waves, 64, each))
    hot[np.arange(waves), lanes, js] = 1
    mark = np.zeros((64, each))  # block and k; halves of 1 keep small floats exact
    for lane, j in itertools.product(range(64), range(each)):
        mark[lane, j] = (1, 2, 3, 4, 6)[mfma_operand(lane, j, m, k, blocks)[2] % 5]
    for first in (True, False):
        kinds = (a_kind, b_kind)
        one, all_ = (kinds[0], kinds[1]) if first else (kinds[1], kinds[0])
        bits = pack(codes_of(hot, one).reshape(-1, each), BITS[one]).reshape(waves, 64, -1)
        marks = pack(codes_of(mark, all_), BITS[all_])
        n = bits.shape[-1]
        vgprs = {**fill(64, bits), **fill(96, np.broadcast_to(marks, (waves, *marks.shape)))}
        operands = (64, 96) if first else (96, 64)
        nd = m * m * blocks // 64 * (2 if f64 else 1)
        got = run_snippet(arch, f"{name} {span(0, nd)}, {span(operands[0], n)}, {span(operands[1], n)}, 0", vgprs=vgprs, waves=8, groups=waves // 8)
        place = [[mfma_result(lane, r, m, blocks, f64) for lane in range(64)] for r in range(m * m * blocks // 64)]
        for r, line in enumerate(place):
            found = (got.vgpr(2 * r, np.float64) if f64 else got.vgpr(r, {"f32": np.float32, "i32": np.int32}[out]))[:waves]
            expected = np.zeros((waves, 64))
            block, row, column = (np.array([p[i] for p in line]) for i in range(3))
            h_block, h_row, h_k = (np.array([mfma_operand(lane, j, m, k, blocks)[i] for lane, j in zip(lanes, js)])[:, None] for i in range(3))
            hit = (block == h_block) & ((row if first else column) == h_row)
            expected = np.where(hit, np.array([1, 2, 3, 4, 6])[h_k % 5], 0)
            np.testing.assert_array_equal(found, expected)


FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")
PER_FORMAT = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}


def long_registers(x, kind, rows):
    """(rows, k) → uint32 (64, registers)."""
    codes = np.zeros((64, 32), np.uint64)
    all_codes = codes_of(x, kind)
    for lane, j in itertools.product(range(64), range(32)):
        codes[lane, j] = all_codes[long_operand(lane, j, rows, BITS[kind])]
    return pack(codes, BITS[kind])


@pytest.mark.parametrize("size, k", [(16, 128), (32, 64)])
@pytest.mark.parametrize("a_kind, b_kind", [("fp8", "fp8"), ("bf8", "fp8"), ("fp6", "bf6"), ("fp4", "fp4"), ("fp8", "fp4"), ("bf6", "bf8")])
@pytest.mark.parametrize("scaled", [False, True])
def test_f8f6f4(size, k, a_kind, b_kind, scaled):
    rng = np.random.default_rng(5)
    small = {"fp6": [-1, -0.5, 0, 0.25, 1.5, 2], "bf6": [-1, 0.5, 0.25, 0, 1.5, 2]}
    a, b = (rng.choice(small.get(kind, [-1, -0.5, 0, 1.5, 2, 3]), shape) for kind, shape in ((a_kind, (size, k)), (b_kind, (k, size))))
    c = rng.integers(-50, 50, (size, size)).astype(np.float64)
    ra, rb = long_registers(a, a_kind, size), long_registers(b.T, b_kind, size)
    count = size * size // 64
    place = [[mfma_result(lane, r, size, 1) for lane in range(64)] for r in range(count)]
    row, column = (np.array([[p[i] for p in line] for line in place]) for i in (1, 2))
    c_words = np.ascontiguousarray(c[row, column].astype(np.float32).T).view(np.uint32)
    vgprs = {**fill(64, ra), **fill(96, rb), **fill(128, c_words)}
    modifiers = "".join(f" {m}:{FORMATS.index(f)}" for m, f in (("cbsz", a_kind), ("blgp", b_kind)) if FORMATS.index(f))
    registers = f"{span(0, count)}, {span(64, ra.shape[1])}, {span(96, rb.shape[1])}, {span(128, count)}"
    scale_a, scale_b = np.ones((size, k // 32)), np.ones((size, k // 32))
    if scaled:
        ea, eb = rng.integers(124, 131, (2, size, k // 32))
        scale_a, scale_b = 2.0 ** (ea - 127), 2.0 ** (eb - 127)
        lane = np.arange(64)
        vgprs[160] = (ea[lane % size, lane // size] << 8 | 0x77_00_0033).astype(np.uint32)  # byte 1
        vgprs[161] = (eb[lane % size, lane // size] << 16 | 0x77_00_5533).astype(np.uint32)  # byte 2
        text = f"v_mfma_scale_f32_{size}x{size}x{k}_f8f6f4 {registers}, v160, v161 op_sel:[1,0,0] op_sel_hi:[0,1,0]{modifiers}"
    else:
        text = f"v_mfma_f32_{size}x{size}x{k}_f8f6f4 {registers}{modifiers}"
    got = run_snippet("gfx950", text, vgprs=vgprs)
    expected = (a * np.repeat(scale_a, 32, axis=1)) @ (b.T * np.repeat(scale_b, 32, axis=1)).T + c
    for r in range(count):
        np.testing.assert_array_equal(got.vgpr(r, np.float32)[0], expected[row[r], column[r]])


def test_a_scale_of_255_is_nan():
    text = "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[64:71], v[72:79], 0, v80, v81 op_sel_hi:[0,0,0]"
    lane = np.arange(64)
    ones = dict.fromkeys(range(64, 80), np.uint32(0x38383838))  # 1.0 in e4m3
    got = run_snippet("gfx950", text, vgprs={**ones, 80: np.where(lane == 5, 255, 127).astype(np.uint32), 81: np.full(64, 127, np.uint32)})
    for r in range(4):
        row = 4 * (lane // 16) + r
        np.testing.assert_array_equal(got.vgpr(r, np.float32)[0], np.where(row == 5, np.nan, 128.0))


# ------------------------------------------------------------------------------------------------------------ WMMA
WMMA_CASES = [(arch, name) for arch, generation in (("gfx1100", 11), ("gfx1201", 12)) for name in sorted(WMMA[generation])]


def wmma_case(arch, name, rng, signs=(1, 1)):
    _, _, out, shape, kind = name.split("_", 4)
    k = int(shape.split("x")[2])
    a_kind, _, b_kind = kind.partition("_")
    b_kind = b_kind or a_kind
    if a_kind.startswith("iu"):
        a_kind, b_kind = (("i" if s else "u") + a_kind[2:] for s in signs)
    a, b = some(a_kind, (16, k), rng), some(b_kind, (k, 16), rng)
    codes = []
    for matrix, kind_ in ((codes_of(a, a_kind), a_kind), (codes_of(b, b_kind).T, b_kind)):
        lane = np.arange(32)[:, None]
        j = np.arange(k if arch == "gfx1100" else k // 2)[None, :]
        kk = j if arch == "gfx1100" else k // 2 * (lane // 16) + j
        codes.append(pack(matrix[lane % 16, np.broadcast_to(kk, (32, j.shape[1]))], BITS[kind_]))
    return out, a, b, codes[0], codes[1]


def wmma_rows(arch):
    """Row and column of element r, (8, 32)."""
    r, lane = np.arange(8)[:, None], np.arange(32)[None, :]
    return np.broadcast_to(2 * r + lane // 16 if arch == "gfx1100" else 8 * (lane // 16) + r, (8, 32)), np.broadcast_to(lane % 16, (8, 32))


def half_bits(x, kind):
    return (x.astype(np.float16).view(np.uint16) if kind == "f16" else to_bf16(x)).astype(np.uint32)


@pytest.mark.parametrize("arch, name, signs", [(*case, s) for case in WMMA_CASES for s in ((1, 1), (0, 1), (1, 0)) if s == (1, 1) or "iu" in case[1]])
def test_wmma_random(arch, name, signs):
    rng = np.random.default_rng(3)
    out, a, b, ra, rb = wmma_case(arch, name, rng, signs)
    integer = "iu" in name
    c = rng.integers(-20, 20, (16, 16)).astype(np.float64)
    row, column = wmma_rows(arch)
    expected = (a @ b + c)[row, column]
    c = c[row, column]
    modifiers = f" neg_lo:[{signs[0]},{signs[1]},0]" if integer and any(signs) else ""
    operands = f"{span(64, ra.shape[1])}, {span(80, rb.shape[1])}"
    vgprs = {**fill(64, ra), **fill(80, rb)}
    if out in ("f32", "i32"):
        kind = {"f32": np.float32, "i32": np.int32}[out]
        vgprs |= {96 + r: c[r].astype(kind).view(np.uint32) for r in range(8)}
        got = run_snippet(arch, f"{name} v[0:7], {operands}, v[96:103]{modifiers}", vgprs=vgprs)
        for r in range(8):
            np.testing.assert_array_equal(got.vgpr(r, kind)[0], expected[r])
        return
    bits, want = half_bits(c, out), half_bits(expected, out)
    if arch == "gfx1100":
        for high in (0, 1):
            shift = 16 * high
            vgprs |= {96 + r: (bits[r] << shift) | np.uint32(0xBEEF << (16 - shift)) for r in range(8)}
            got = run_snippet(arch, f"{name} v[96:103], {operands}, v[96:103]{' op_sel:[0,0,1]' if high else ''}", vgprs=vgprs)
            for r in range(8):
                np.testing.assert_array_equal(got.vgpr(96 + r)[0], (want[r] << shift) | np.uint32(0xBEEF << (16 - shift)))
    else:
        vgprs |= {96 + r: bits[2 * r] | bits[2 * r + 1] << 16 for r in range(4)}
        got = run_snippet(arch, f"{name} v[0:3], {operands}, v[96:99]", vgprs=vgprs)
        for r in range(4):
            np.testing.assert_array_equal(got.vgpr(r)[0], want[2 * r] | want[2 * r + 1] << 16)


@pytest.mark.parametrize("arch, name", [c for c in WMMA_CASES if "_f32_" in c[1] or "_i32_" in c[1]])
def test_wmma_one_hot(arch, name):
    """One element of A is 1 (gfx11: in both halves of the wave), B says k: D's row says k."""
    rng = np.random.default_rng(0)
    out, a, b, _, _ = wmma_case(arch, name, rng)
    k = a.shape[1]
    marks = np.array([1, 2, 3, 4, 6])[np.arange(k) % 5]
    a_kind = name.split("_", 4)[4].partition("_")[0].replace("iu", "i")
    b_kind = (name.split("_", 4)[4].partition("_")[2] or a_kind).replace("iu", "i")
    each = k if arch == "gfx1100" else k // 2
    lane, j = np.arange(32)[:, None], np.arange(each)[None, :]
    kk = np.broadcast_to(j if arch == "gfx1100" else k // 2 * (lane // 16) + j, (32, each))
    rows, ks = np.divmod(np.arange(16 * k), k)
    hot = ((lane % 16)[None] == rows[:, None, None]) & (kk[None] == ks[:, None, None])
    ra = pack(codes_of(hot.astype(float), a_kind).reshape(-1, each), BITS[a_kind]).reshape(16 * k, 32, -1)
    rb = pack(codes_of(marks[kk], b_kind), BITS[b_kind])
    vgprs = {**fill(64, ra), **fill(80, np.broadcast_to(rb, (16 * k, *rb.shape)))}
    text = f"{name} v[0:7], {span(64, ra.shape[-1])}, {span(80, rb.shape[-1])}, 0" + (" neg_lo:[1,1,0]" if out == "i32" else "")
    got = run_snippet(arch, text, vgprs=vgprs, waves=8, groups=2 * k)
    row, _ = wmma_rows(arch)
    for r in range(8):
        np.testing.assert_array_equal(got.vgpr(r, {"f32": np.float32, "i32": np.int32}[out]), np.where(row[r][None] == rows[:, None], marks[ks][:, None], 0))


# -------------------------------------------------------------------------------------------------- numerics, rules
def test_the_sum_is_rounded_once():
    """2^24 + 1 + 1 is 2^24 + 2: not rounded after the first addition; and subnormals are kept, but not on gfx90a."""
    lane = np.arange(64)
    ones = {64: np.where(lane < 32, np.float32(1), np.float32(1)).view(np.uint32), 65: np.full(64, 1, np.float32).view(np.uint32)}
    got = run_snippet("gfx942", "v_mfma_f32_32x32x2_f32 v[0:15], v64, v65, v[0:15]",
                      vgprs={**ones, **{r: np.full(64, 2.0**24, np.float32).view(np.uint32) for r in range(16)}})
    np.testing.assert_array_equal(got.vgpr(0, np.float32), 2.0**24 + 2)


@pytest.mark.parametrize("arch, name, kept", [("gfx90a", "v_mfma_f32_16x16x16f16", False), ("gfx942", "v_mfma_f32_16x16x16_f16", True)])
def test_subnormals(arch, name, kept):
    tiny = dict.fromkeys((64, 65), np.full(64, 0x00010001, np.uint32)) | dict.fromkeys((66, 67), np.full(64, 0x3C003C00, np.uint32))
    got = run_snippet(arch, f"{name} v[0:3], v[64:65], v[66:67], 0", vgprs=tiny)
    np.testing.assert_array_equal(got.vgpr(0, np.float32), 16 * 2.0**-24 if kept else 0)


def test_mfma_does_not_ask_for_exec_and_wmma_wants_it_whole():
    ones = np.full(64, 1, np.float32).view(np.uint32)
    got = run_snippet("gfx942", "v_mfma_f32_16x16x4_f32 a[0:3], v4, v5, 2.0", vgprs={4: ones, 5: ones}, exec=0b1010)
    np.testing.assert_array_equal(got.agpr(3, np.float32), 6)
    with pytest.raises(SimulationError, match="EXEC to be all ones"):
        run_snippet("gfx1100", "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", vgprs=dict.fromkeys(range(24), 0), exec=0xFFFF)


def test_gfx11_wants_operands_in_both_halves():
    lane = np.arange(32, dtype=np.uint32)
    with pytest.raises(SimulationError, match="lanes 3 and 19 hold different values of operand 2"):
        run_snippet("gfx1100", "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", vgprs={**dict.fromkeys(range(24), 0), 17: np.where(lane == 3, 1, 0).astype(np.uint32)})


def test_integers_wrap_or_saturate():
    high = {r: np.full(32, 0x7FFFFFF0, np.uint32) for r in range(8)}
    ones = dict.fromkeys(range(8, 16), np.full(32, 0x01010101, np.uint32))
    text = "v_wmma_i32_16x16x16_iu8 v[0:7], v[8:11], v[12:15], v[0:7] neg_lo:[1,1,0]"
    assert (run_snippet("gfx1100", text, vgprs={**high, **ones}).vgpr(0) == 0x80000000).all()
    assert (run_snippet("gfx1100", text + " clamp", vgprs={**high, **ones}).vgpr(0) == 0x7FFFFFFF).all()


def test_signs_of_f64_and_of_wmma():
    ones = np.full(64, 1.0)
    got = run_snippet("gfx942", "v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[12:19] neg:[1,0,1]", vgprs={8: ones, 10: ones * 2, **{12 + 2 * r: ones * 5 for r in range(4)}})
    np.testing.assert_array_equal(got.vgpr(2, np.float64), -8 - 5)
    halves = dict.fromkeys(range(8, 16), np.full(32, 0x3C003C00, np.uint32))
    c = {r: np.full(32, -3, np.float32) for r in range(8)}
    text = "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]"
    for modifiers, expected in ((" neg_lo:[1,0,0]", -3), (" neg_lo:[1,0,0] neg_hi:[1,0,0]", -16 - 3), (" neg_lo:[0,0,1]", 19), (" neg_hi:[0,0,1]", 19),
                                (" neg_lo:[0,0,1] neg_hi:[0,0,1]", 13)):
        got = run_snippet("gfx1201", text + modifiers, vgprs={**halves, **c})
        np.testing.assert_array_equal(got.vgpr(0, np.float32), expected, modifiers)


@pytest.mark.parametrize("arch, text", [
    ("gfx942", "v_mfma_f32_16x16x4_f32 v[0:3], v4, v5, v[0:3] cbsz:1"), ("gfx942", "v_mfma_f32_16x16x4_f32 v[0:3], v4, v5, v[0:3] blgp:3"),
    ("gfx90a", "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]"), ("gfx950", "v_mfma_f32_16x16x8_xf32 v[0:3], v[4:5], v[6:7], v[0:3]"),
    ("gfx942", "v_mfma_f32_16x16x16_f16 v[0:3], v[4:7], v[6:7], v[0:3]"), ("gfx1100", "v_wmma_f32_16x16x16_fp8_fp8 v[0:7], v[8:9], v[10:11], v[0:7]"),
    ("gfx1201", "v_wmma_f16_16x16x16_f16 v[0:3], v[4:7], v[8:11], v[0:3] op_sel:[0,0,1]"),
])
def test_what_the_arch_does_not_have_is_unknown(arch, text):
    with pytest.raises(UnknownInstruction):
        run_snippet(arch, text, vgprs=dict.fromkeys(range(24), 0))


def test_bf16_is_rounded_once():
    x = np.array([1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-40, 1 + 3 * 2.0**-8, -(1 + 2.0**-8 + 2.0**-40), np.inf, 3.4e38, 1e39, 2.0**-140, np.nan, 0.0])
    expected = [0x3F80, 0x3F81, 0x3F82, 0xBF81, 0x7F80, 0x7F80, 0x7F80, 0x0000, 0x7FC0, 0]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(to_bf16(x), expected)
