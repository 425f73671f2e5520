"""tl.dot_scaled on gfx950: which instruction, how its operands and scales come to it, and what is said of those that have none. Values are
tests/conformance/test_dot_scaled_tiles.py's."""

import re
from collections import Counter

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.targets.amd.matrix_ops import SCALED_OPS


@tilewright.jit
def loop_kernel(p, ps, q, qs, o, K, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, FA: tl.constexpr, FB: tl.constexpr, DA: tl.constexpr, DB: tl.constexpr, SA: tl.constexpr,
                SB: tl.constexpr, PACK: tl.constexpr, GROUP: tl.constexpr):
    i, j, g = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK // GROUP)
    PA: tl.constexpr = 1 if PACK else 2
    xs = p + tl.arange(0, M // PA)[:, None] * (K // DA * PA) + tl.arange(0, BK // DA * PA)[None, :]
    ys = q + j[:, None] * (K // DB) + tl.arange(0, BK // DB)[None, :]
    sxs, sys = ps + i[:, None] * (K // GROUP) + g[None, :], qs + j[:, None] * (K // GROUP) + g[None, :]
    acc = tl.zeros([M, N], tl.float32)
    for at in range(0, K, BK):
        sx = None
        sy = None
        if SA:
            sx = tl.load(sxs)
        if SB:
            sy = tl.load(sys)
        acc = tl.dot_scaled(tl.load(xs), sx, FA, tl.load(ys).T, sy, FB, acc, lhs_k_pack=PACK)
        xs += BK // DA * PA
        ys += BK // DB
        sxs += BK // GROUP
        sys += BK // GROUP
    tl.store(o + i[:, None] * N + j[None, :], acc)


_ELEMENT = {"e2m1": "*u8", "e4m3": "*fp8e4nv", "e5m2": "*fp8e5", "bf16": "*bf16"}


def compiled(fa="e2m1", fb="e2m1", m=64, n=64, bk=128, sa=True, sb=True, pack=True, group=32, arch="gfx950", **options):
    scale = "*u8" if group == 32 else "*fp8e4nv"
    constexprs = {"M": m, "N": n, "BK": bk, "FA": fa, "FB": fb, "DA": 2 if fa == "e2m1" else 1, "DB": 2 if fb == "e2m1" else 1, "SA": sa, "SB": sb, "PACK": pack, "GROUP": group}
    signature = {"p": _ELEMENT[fa], "ps": scale, "q": _ELEMENT[fb], "qs": scale, "o": "*fp32", "K": "i32", **dict.fromkeys(constexprs, "constexpr")}
    source = tilewright.compiler.ASTSource(fn=loop_kernel, signature=signature, constexprs=constexprs, attrs={(i,): [["tt.divisibility", 16]] for i in range(6)})
    return tilewright.compile(source, target=GPUTarget("hip", arch, 64), options=options)


def instructions(made):
    return Counter(line.split()[0] for line in made.asm["amdgcn"].splitlines() if re.match(r"\s+[a-z]", line))


def chosen(made):
    return [(c["chosen"], c["why"]) for c in made.metadata.choices if c["what"].startswith("tl.dot_scaled")]


def test_a_row_is_for_every_pair_of_formats():
    assert len(SCALED_OPS) == 81 and len({r.name for r in SCALED_OPS}) == 81
    assert [r.extra["along"] for r in SCALED_OPS] == [1] * 27 + [2] * 27 + [4] * 27  # of those that deal k: test_amd_scaled_rows.py
    for row in SCALED_OPS[:27]:
        for bases, pack, dim in ((row.a, row.a_pack, 1), (row.b, row.b_pack, 0)):
            k = [v[dim] for v in (*bases.register, *bases.lane) if v[dim]]
            assert sum(k) == row.k // pack - 1 and len(k) == len(set(k))  # all of k once, in elements
        assert row.a_pack == (2 if row.a_type == "e2m1" else 1)
        # what was measured: runs of 16 bytes, of 8-bit formats a second one behind those of all lanes
        size, parts = row.extra["size"], row.extra["parts"]
        assert [v[1] for v in row.a.register if v[1]] == [1, 2, 4, 8] + ([64 if size == 16 else 32] if row.a_pack == 1 else [])
        assert [v for v in row.a.register if v[0]] == [(size, 0)] * (parts - 1) and [v for v in row.b.register if v[1]] == [(0, size)] * (parts - 1)
        assert row.m == row.n == size * parts


@pytest.mark.parametrize("fa, fb, nonkdim, name", [("e2m1", "e2m1", 32, "v_mfma_scale_f32_32x32x64_f8f6f4"), ("e4m3", "e2m1", 0, "v_mfma_scale_f32_16x16x128_f8f6f4")])
def test_instructions_of_a_loop(fa, fb, nonkdim, name):
    made = compiled(fa, fb, matrix_instr_nonkdim=nonkdim)
    found = instructions(made)
    size, k = (32, 64) if nonkdim == 32 else (16, 128)
    assert found[name] in [n * (64 // size) ** 2 * (128 // k) // 4 for n in (1, 2)]  # of each of four waves, of one round or two
    assert f"amd.mfma_scale_{size}x{size}x{k}_{fb}_{fa}" + ("" if size == 32 else "_by_4") in chosen(made)[0][0]  # transposed: B comes first
    assert found["ds_read_u8"] == found["ds_write_b8"] == 0 and found["ds_bpermute_b32"] == 0  # scales do not go through LDS
    assert not any(n.startswith("v_cvt") or n == "v_perm_b32" for n in found)


def test_loads_of_operands_are_as_wide_as_their_runs():
    """64 bytes of k a row are not all that a lane could load, but what K is known to be a multiple of: 8 bytes."""
    found = instructions(compiled(m=128, n=128, bk=256))
    assert found["buffer_load_dword"] == 0 and found["buffer_load_dwordx2"] > 0


def test_without_scales_it_is_the_instruction_that_has_none():
    found = instructions(compiled(sa=False, sb=False, matrix_instr_nonkdim=16))
    assert found["v_mfma_f32_16x16x128_f8f6f4"] and not found["v_mfma_scale_f32_16x16x128_f8f6f4"]
    assert instructions(compiled(sa=False, matrix_instr_nonkdim=16))["v_mfma_scale_f32_16x16x128_f8f6f4"]


@pytest.mark.parametrize("how, why", [
    (dict(fa="bf16"), "gfx950 has no matrix instruction for bf16 with scales"), (dict(group=16), "scales of f8E4M3FN; the instructions have e8m0 (uint8) scales of 32 numbers"),
    (dict(pack=False), "operand a's bytes hold two neighbours along M; the instructions want them along K (lhs_k_pack)"),
    (dict(bk=32), "M×N×K of 64×64×32 are no multiples of what one instruction computes: 32×32×64 or 16×16×128"),
    (dict(bk=64, matrix_instr_nonkdim=16), "M×N×K of 64×64×64 are no multiples of what one instruction computes: 16×16×128 (matrix_instr_nonkdim is 16)"),
    (dict(arch="gfx942"), "gfx942 has no matrix instruction for operands with scales")])
def test_why_others_are_products_of_bf16(how, why):
    made = compiled(**how)
    assert chosen(made) == [("tl.dot of bf16, operands times scales rounded to it", why)]
    assert not any("f8f6f4" in n for n in instructions(made))


@tilewright.jit
def shuffled_kernel(p, ps, q, qs, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """Scales in the order in which Triton's tutorial stores them for CDNA 4: of 32 rows and 8 groups 256 bytes."""
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // 2)
    x, y = tl.load(p + i[:, None] * (K // 2) + k[None, :]), tl.load(q + j[:, None] * (K // 2) + k[None, :])
    sx = tl.load(ps + tl.arange(0, M // 32)[:, None] * K + tl.arange(0, K)[None, :])
    sy = tl.load(qs + tl.arange(0, N // 32)[:, None] * K + tl.arange(0, K)[None, :])
    sx = sx.reshape(M // 32, K // 256, 4, 16, 2, 2, 1).permute(0, 5, 3, 1, 4, 2, 6).reshape(M, K // 32)
    sy = sy.reshape(N // 32, K // 256, 4, 16, 2, 2, 1).permute(0, 5, 3, 1, 4, 2, 6).reshape(N, K // 32)
    tl.store(o + i[:, None] * N + j[None, :], tl.dot_scaled(x, sx, "e2m1", y.T, sy, "e2m1"))


def shuffled(scales):
    rows, groups = scales.shape
    return np.ascontiguousarray(scales.reshape(rows // 32, 2, 16, groups // 8, 2, 4).transpose(0, 3, 5, 2, 4, 1)).reshape(rows // 32, groups * 32)


def test_shuffled_scales(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx950:sim")
    m, n, k = 128, 64, 256
    rng = np.random.default_rng(8)
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    a, b = rng.integers(0, 16, (m, k)).astype(np.uint8), rng.integers(0, 16, (n, k)).astype(np.uint8)
    s, t = rng.integers(122, 133, (m, k // 32)).astype(np.uint8), rng.integers(122, 133, (n, k // 32)).astype(np.uint8)
    o = np.full((m, n), np.nan, np.float32)
    made = shuffled_kernel[(1,)](a[:, ::2] | a[:, 1::2] << 4, shuffled(s), b[:, ::2] | b[:, 1::2] << 4, shuffled(t), o, m, n, k, matrix_instr_nonkdim=16)
    x, y = (values[c] * np.repeat(np.ldexp(1.0, e.astype(int) - 127), 32, 1) for c, e in ((a, s), (b, t)))
    np.testing.assert_allclose(o, x @ y.T, rtol=3e-6)
    found = instructions(made)
    assert found["v_mfma_scale_f32_16x16x128_f8f6f4"] and not found["buffer_load_ubyte"] and found["buffer_load_dword"] == 3  # of 64 and 32 rows a wave, 8 groups
