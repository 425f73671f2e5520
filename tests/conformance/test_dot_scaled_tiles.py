"""tl.dot_scaled of tiles as large as the matrix instructions that have scales: formats, scales on one side or none, packing, waves, batches, loops
that are pipelined, transposed operands and scales as one value. Smaller tiles are test_dot_scaled.py's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import compare, poisoned, rng_of
from tilewright.conformance.test_dot_scaled import _SOURCE, _case, _operand, _scales

NARROW = ("e2m1", "e4m3", "e5m2")


@pytest.mark.parametrize("fa, fb", [(a, b) if (i + j) % 2 == 0 else pytest.param(a, b, marks=pytest.mark.nightly) for i, a in enumerate(NARROW) for j, b in enumerate(NARROW)])
def test_formats(fa, fb):
    _case(fa, fb, 32, 32, 32, 32, 128, num_warps=4)


@pytest.mark.parametrize("sa, sb", [(32, 0), (0, 32), (0, 0)])
@pytest.mark.parametrize("fa, fb", [("e2m1", "e4m3"), ("e5m2", "e2m1")])
def test_scales_that_are_left_out(fa, fb, sa, sb):
    _case(fa, fb, sa, sb, 16, 32, 128, num_warps=2)


@pytest.mark.parametrize("m, n, k, num_warps", [(32, 32, 64, 1), (64, 32, 64, 4), (16, 16, 256, 1), (16, 64, 128, 8), (64, 64, 128, 2), (32, 64, 128, 8),
                                               pytest.param(128, 64, 256, 4, marks=pytest.mark.nightly)])
def test_shapes(m, n, k, num_warps):
    _case("e4m3", "e2m1", 32, 32, m, n, k, num_warps=num_warps)


@pytest.mark.parametrize("pa, pb", [(False, True), (True, False)])
def test_packing_along_rows_and_columns(pa, pb):
    _case("e2m1", "e2m1", 32, 32, 32, 32, 128, pa, pb)


def test_other_scales():
    _case("e2m1", "e2m1", 16, 16, 16, 16, 128)


@pytest.mark.parametrize("num_warps", [1, 4])
def test_batches(num_warps):
    b, m, n, k = 2, 16, 32, 128
    rng = rng_of("batches of tiles")
    (x, xv), (y, yv) = _operand("e2m1", (b, m, k), -1, rng), _operand("e5m2", (b, k, n), -2, rng)
    s, r = (rng.integers(125, 130, (b, rows, k // 32)).astype(np.uint8) for rows in (m, n))
    wide = (xv * np.repeat(np.ldexp(1.0, s.astype(int) - 127), 32, 2)) @ (yv * np.repeat(np.ldexp(1.0, r.astype(int) - 127), 32, 2).swapaxes(1, 2))
    compare("""
        @triton.jit
        def kernel(p, s, q, r, o, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
            b, m, n, k = tl.arange(0, B)[:, None, None], tl.arange(0, M)[None, :, None], tl.arange(0, N)[None, None, :], tl.arange(0, K)
            g = tl.arange(0, K // 32)[None, None, :]
            x = tl.load(p + b * (M * K // 2) + m * (K // 2) + tl.arange(0, K // 2)[None, None, :])
            y = tl.load(q + b * (K * N) + k[None, :, None] * N + n).to(tl.float8e5, bitcast=True)
            sx = tl.load(s + b * (M * K // 32) + m * (K // 32) + g)
            sy = tl.load(r + b * (N * K // 32) + tl.arange(0, N)[None, :, None] * (K // 32) + g)
            tl.store(o + b * M * N + m * N + n, tl.dot_scaled(x, sx, "e2m1", y, sy, "e5m2"))
        """, {"p": x, "s": torch.from_numpy(s), "q": y, "r": torch.from_numpy(r), "o": poisoned("fp32", (b, m, n)), "B": b, "M": m, "N": n, "K": k},
            expected={"o": wide.astype(np.float32)}, tolerance={"o": {"rtol": 3e-6}}, num_warps=num_warps)


@pytest.mark.parametrize("fa, fb, n, num_warps, num_stages", [("e2m1", "e2m1", 60, 4, 2), ("e4m3", "e2m1", 64, 8, 3), ("e5m2", "e4m3", 64, 4, 1)])
def test_a_pipelined_matmul(fa, fb, n, num_warps, num_stages):
    """The loop of the block-scaled matmul of Triton's tutorials, the second operand transposed, masked at its edges."""
    m, k = 90, 384
    rng = rng_of("matmul of tiles", fa, fb)
    (x, xv), (y, yv) = _operand(fa, (m, k), -1, rng), _operand(fb, (n, k), -1, rng)
    (s, sv), (r, rv) = _scales(32, m, k, rng), _scales(32, n, k, rng)
    wide = (xv * np.repeat(sv, 32, 1)) @ (yv * np.repeat(rv, 32, 1)).T
    compare("""
        @triton.jit
        def kernel(p, ps, q, qs, o, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FA: tl.constexpr, FB: tl.constexpr, DA: tl.constexpr,
                   DB: tl.constexpr, STAGES: tl.constexpr):
            i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
            acc = tl.zeros([BM, BN], tl.float32)
            xs = p + i[:, None] * (k // DA) + tl.arange(0, BK // DA)[None, :]
            ys = q + j[:, None] * (k // DB) + tl.arange(0, BK // DB)[None, :]
            sxs = ps + i[:, None] * (k // 32) + tl.arange(0, BK // 32)[None, :]
            sys = qs + j[:, None] * (k // 32) + tl.arange(0, BK // 32)[None, :]
            for at in tl.range(0, k, BK, num_stages=STAGES):
                x = tl.load(xs, mask=i[:, None] < m, other=0)
                y = tl.load(ys, mask=j[:, None] < n, other=0)
                sx = tl.load(sxs, mask=i[:, None] < m, other=127)
                sy = tl.load(sys, mask=j[:, None] < n, other=127)
                acc = tl.dot_scaled(x, sx, FA, y.T, sy, FB, acc)
                xs += BK // DA
                ys += BK // DB
                sxs += BK // 32
                sys += BK // 32
            tl.store(o + i[:, None] * n + j[None, :], acc, mask=(i[:, None] < m) & (j[None, :] < n))
        """, {"p": x, "ps": s, "q": y, "qs": r, "o": poisoned("fp32", (m, n)), "m": m, "n": n, "k": k, "BM": 64, "BN": 64, "BK": 128, "FA": fa, "FB": fb,
              "DA": 2 if fa == "e2m1" else 1, "DB": 2 if fb == "e2m1" else 1, "STAGES": num_stages},
            (-(-m // 64), -(-n // 64)), expected={"o": wide.astype(np.float32)}, tolerance={"o": {"rtol": 3e-6}}, num_warps=num_warps)


@pytest.mark.parametrize("code", [0, 100, 255])
def test_scales_that_are_one_value(code):
    """Of 0 too, which is 2^-127 and not nothing."""
    compare("""
        @triton.jit
        def kernel(p, q, o, S: tl.constexpr, T: tl.constexpr):
            m, k = tl.arange(0, 32), tl.arange(0, 64)
            x, y = tl.load(p + m[:, None] * 64 + k[None, :]), tl.load(q + k[:, None] * 32 + m[None, :])
            s, t = tl.full((32, 2), S, tl.uint8), tl.full((32, 2), T, tl.uint8)
            tl.store(o + m[:, None] * 32 + m[None, :], tl.dot_scaled(x, s, "e4m3", y, t, "e4m3"))
            tl.store(o + 1024 + m[:, None] * 32 + m[None, :], tl.dot_scaled(x, s, "e4m3", y, s, "e4m3"))
        """, {"p": torch.full((32, 64), 0x38, dtype=torch.uint8), "q": torch.full((64, 32), 0x40, dtype=torch.uint8), "o": poisoned("fp32", (2, 32, 32)), "S": code, "T": 200},
            expected={"o": np.stack([np.full((32, 32), np.nan if code == 255 else 128 * 2.0**(code + 200 - 254)),
                                     np.full((32, 32), np.nan if code == 255 else 128 * 2.0**(2 * code - 254))]).astype(np.float32)}, num_warps=1)


def test_a_scale_of_nan_spoils_its_row_or_column():
    m, n, k = 32, 32, 128
    s, r = (torch.full((rows, k // 32), 127, dtype=torch.uint8) for rows in (m, n))
    s[5, 2], r[7, 0], s[3], r[4, 1] = 255, 255, 120, 130
    ones = {rows: torch.full(rows, 0x38, dtype=torch.uint8) for rows in ((m, k), (k, n))}
    args = {"p": ones[m, k], "ps": s, "q": ones[k, n], "qs": r, "c": torch.zeros((m, n)), "o": poisoned("fp32", (m, n)), "M": m, "N": n, "K": k, "FA": "e4m3", "FB": "e4m3",
            "SA": 32, "SB": 32, "DA": 1, "DB": 1}
    wide = np.repeat(np.ldexp(1.0, s.numpy().astype(int) - 127), 32, 1) @ np.repeat(np.ldexp(1.0, r.numpy().astype(int) - 127), 32, 1).T
    wide[5], wide[:, 7] = np.nan, np.nan
    compare(_SOURCE, args, expected={"o": wide.astype(np.float32)}, num_warps=4)
