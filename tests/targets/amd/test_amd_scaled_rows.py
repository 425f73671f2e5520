"""Scales stored by rows (not shuffled) on gfx950: consecutive bytes along K are loaded two and four at once where that is known to be right, since k is dealt
to neighbouring instructions in groups of 32 (rows ``…_along_2``, ``…_along_4`` of matrix_ops.SCALED_OPS). Values are the simulator's beside float64's."""

import re
from collections import Counter

import numpy as np
import pytest
import torch

import tilewright
import tilewright.language as tl
from tilewright.targets.amd.matrix_ops import SCALED_OPS


@tilewright.jit
def rows_kernel(p, ps, q, qs, o, K, G, END, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, FA: tl.constexpr, FB: tl.constexpr, DA: tl.constexpr, DB: tl.constexpr, MASKED: tl.constexpr,
                SB: tl.constexpr):
    """G: from one row of scales to the next. MASKED: A's scales from END on are 127, which is 1."""
    i, j, g = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK // 32)
    acc = tl.zeros([M, N], tl.float32)
    for at in range(0, K, BK):
        x = tl.load(p + i[:, None] * (K // DA) + (at // DA + tl.arange(0, BK // DA))[None, :])
        y = tl.load(q + j[:, None] * (K // DB) + (at // DB + tl.arange(0, BK // DB))[None, :])
        sy = None
        if MASKED:
            sx = tl.load(ps + i[:, None] * G + (at // 32 + g)[None, :], mask=(at // 32 + g)[None, :] < END, other=127)
        else:
            sx = tl.load(ps + i[:, None] * G + (at // 32 + g)[None, :])
        if SB:
            sy = tl.load(qs + j[:, None] * G + (at // 32 + g)[None, :])
        acc = tl.dot_scaled(x, sx, FA, y.T, sy, FB, acc)
    tl.store(o + i[:, None] * N + j[None, :], acc)


HALVES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
VALUES = {"e2m1": np.concatenate([HALVES, -HALVES]), **{kind: torch.arange(256, dtype=torch.uint8).view(type_).double().numpy()
                                                        for kind, type_ in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2))}}


def operand(kind, rows, k, rng):
    """(as it is stored, values)"""
    table = VALUES[kind]
    if kind == "e2m1":
        codes = rng.integers(0, 16, (rows, k)).astype(np.uint8)
        return codes[:, ::2] | codes[:, 1::2] << 4, table[codes]
    finite = np.flatnonzero(np.isfinite(table) & (np.abs(table) < 16)).astype(np.uint8)
    codes = rng.choice(finite, (rows, k))
    return codes, table[codes]


def run(fa, fb, m, n, bk, stride=16, end=0, sb=True, blocks=2, **options):
    """(result, expected, instructions, row of the table)"""
    k = blocks * bk
    rng = np.random.default_rng(k)
    (x, xv), (y, yv) = operand(fa, m, k, rng), operand(fb, n, k, rng)
    scales = [np.full((rows, stride), 200, np.uint8) for rows in (m, n)]
    for s in scales:
        s[:, :k // 32] = rng.integers(122, 133, (len(s), k // 32))
    a_scales = np.where(np.arange(stride) < (end or stride), scales[0], 127)
    wide = [v * np.repeat(np.ldexp(1.0, s[:, :k // 32].astype(int) - 127), 32, 1) for v, s in ((xv, a_scales), (yv, scales[1] if sb else np.full_like(scales[1], 127)))]
    o = np.full((m, n), np.nan, np.float32)
    made = rows_kernel[(1,)](x, scales[0], y, scales[1], o, k, stride, end, m, n, bk, fa, fb, 2 if fa == "e2m1" else 1, 2 if fb == "e2m1" else 1, end > 0, sb, **options)
    found = Counter(line.split()[0] for line in made.asm["amdgcn"].splitlines() if re.match(r"\s+[a-z]", line))
    (row,) = [c["chosen"] for c in made.metadata.choices if c["what"].startswith("tl.dot_scaled")]
    return o, wide[0] @ wide[1].T, found, row


@pytest.fixture(autouse=True)
def gfx950(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx950:sim")


@pytest.mark.parametrize("fa, fb, bk, size, row, load", [
    ("e2m1", "e2m1", 256, 16, "16x16x128_e2m1_e2m1_by_4_along_2", "buffer_load_ushort"), ("e2m1", "e2m1", 512, 16, "16x16x128_e2m1_e2m1_by_4_along_4", "buffer_load_dword"),
    ("e4m3", "e2m1", 256, 16, "16x16x128_e2m1_e4m3_by_4_along_2", "buffer_load_ushort"), pytest.param("e5m2", "e4m3", 256, 0, "16x16x128_e4m3_e5m2_by_4_along_2", "buffer_load_ushort", marks=pytest.mark.nightly),
    ("e4m3", "e4m3", 256, 32, "32x32x64_e4m3_e4m3_along_4", "buffer_load_dword"), pytest.param("e2m1", "e5m2", 128, 32, "32x32x64_e5m2_e2m1_along_2", "buffer_load_ushort", marks=pytest.mark.nightly)])
def test_values_and_loads(fa, fb, bk, size, row, load):
    got, expected, found, chosen = run(fa, fb, 64, 32, bk, stride=64, num_warps=2, matrix_instr_nonkdim=size)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4 * np.abs(expected).max())
    assert chosen.endswith(row)
    assert found[load] and not found["buffer_load_ubyte"] and not found["ds_read_u8"]


def test_one_instruction_wide():
    got, expected, _, chosen = run("e2m1", "e4m3", 16, 16, 256, num_warps=1, matrix_instr_nonkdim=16)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4 * np.abs(expected).max())
    assert chosen.endswith("_along_2")


def test_scales_of_one_side():
    got, expected, _, chosen = run("e2m1", "e2m1", 32, 32, 256, sb=False, num_warps=1, matrix_instr_nonkdim=16)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4 * np.abs(expected).max())
    assert chosen.endswith("_along_2")


@pytest.mark.parametrize("stride, end", [(19, 0), (16, 13)])
def test_bytes_where_no_more_is_known(stride, end):
    """Rows that do not begin at multiples of what one load takes, which the launch says, and masks that may end between: still the right numbers."""
    got, expected, found, _ = run("e2m1", "e2m1", 32, 32, 256, stride=stride, end=end, num_warps=1, matrix_instr_nonkdim=16)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4 * np.abs(expected).max())
    assert found["buffer_load_ubyte"]


@pytest.mark.parametrize("row", [r for r in SCALED_OPS if r.extra["along"] > 1 and r.a_type == "e4m3"], ids=lambda r: r.name)
def test_an_instruction_has_whole_groups(row):
    """Of each of the instructions of a row, the numbers that lane group g's scale is for are those of one group of 32, of both operands the same."""
    size, parts, along = (row.extra[x] for x in ("size", "parts", "along"))
    lanes = 64 // size
    for bases, pack, dim in ((row.a, row.a_pack, 1), (row.b, row.b_pack, 0)):
        registers = [0]
        for vector in bases.register:
            registers += [r + vector[dim] for r in registers]
        share = len(registers) // (parts * along)
        for turn in range(along):
            groups = {}
            for lane in range(lanes):
                base = sum(v[dim] for i, v in enumerate(bases.lane[-(lanes.bit_length() - 1):]) if lane >> i & 1)
                mine = registers[turn * parts * share:turn * parts * share + share]
                for place, k in enumerate(mine):
                    # the instruction's own order: runs of 16 bytes by lane, and for 8 bits a second run behind those of all lanes
                    slot = (16 * lane + place % 16 + 16 * lanes * (place // 16)) * pack // 32
                    groups.setdefault(slot, set()).add((base + k) * pack // 32)
            assert groups == {slot: {turn + along * slot} for slot in range(lanes)}
