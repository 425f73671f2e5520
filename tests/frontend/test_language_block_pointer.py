"""Block pointers: windows with boundary checks, moved and carried by loops, against numpy slices."""

from __future__ import annotations

import numpy as np
import pytest
from tt_execution import define, run_both, text_of

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("rows, cols, at", [(16, 32, (0, 0)), (13, 29, (8, 16)), (13, 29, (0, 16)), (5, 40, (-3, 31)), (40, 40, (9, 9))])
@pytest.mark.parametrize("transposed", (False, True))
def test_load_and_store_with_boundaries(rows, cols, at, transposed):
    kernel = define("""
        @triton.jit
        def kernel(p, q, rows, cols, sr, sc, r0, c0, PAD: tl.constexpr):
            a = tl.make_block_ptr(p, (rows, cols), (sr, sc), (r0, c0), (8, 16), (1, 0))
            x = tl.load(a, boundary_check=(0, 1), padding_option=PAD)
            b = tl.make_block_ptr(q, shape=(rows, cols), strides=(cols, 1), offsets=(r0, c0), block_shape=(8, 16), order=(1, 0))
            tl.store(b, x * 2, boundary_check=[0, 1])
        """)
    x = RNG.standard_normal((cols, rows) if transposed else (rows, cols)).astype(np.float32)
    strides = (1, rows) if transposed else (cols, 1)
    out = np.full((rows, cols), np.nan, np.float32)
    run_both(kernel, x, out, rows, cols, *strides, *at, PAD="zero")
    expected = np.full((rows, cols), np.nan, np.float32)
    window = tuple(slice(max(a, 0), a + n) for a, n in zip(at, (8, 16)))
    expected[window] = (x.T if transposed else x)[window] * 2
    np.testing.assert_array_equal(out, expected)


def test_padding():
    kernel = define("""
        @triton.jit
        def kernel(p, q, n, PAD: tl.constexpr):
            x = tl.load(tl.make_block_ptr(p, (n,), (1,), (0,), (16,), (0,)), boundary_check=(0,), padding_option=PAD)
            tl.store(q + tl.arange(0, 16), x)
        """)
    x = np.arange(1, 17, dtype=np.float32)
    for pad, filler in (("zero", 0), ("nan", np.nan), ("", 0)):
        out = np.full(16, 5, np.float32)
        run_both(kernel, x, out, 11, PAD=pad)
        np.testing.assert_array_equal(out, np.where(np.arange(16) < 11, x, filler).astype(np.float32))


def matmul_source():
    return """
        @triton.jit
        def kernel(a_ptr, b_ptr, c_ptr, M, N, K, sam, sbk, scm):
            a = tl.make_block_ptr(a_ptr, (M, K), (sam, 1), (tl.program_id(0) * 16, 0), (16, 16), (1, 0))
            b = tl.make_block_ptr(b_ptr, (K, N), (sbk, 1), (0, tl.program_id(1) * 16), (16, 16), (1, 0))
            acc = tl.zeros((16, 16), tl.float32)
            for k in range(0, K, 16):
                acc += tl.dot(tl.load(a, boundary_check=(0, 1), padding_option="zero"), tl.load(b, boundary_check=(0, 1), padding_option="zero"),
                              input_precision="ieee")
                a = tl.advance(a, (0, 16))
                b = b.advance([16, 0])
            c = tl.make_block_ptr(c_ptr, (M, N), (scm, 1), (tl.program_id(0) * 16, tl.program_id(1) * 16), (16, 16), (1, 0))
            tl.store(c, acc.to(c.dtype.element_ty), boundary_check=(0, 1))
        """


def test_matmul_advances_in_a_loop():
    a, b = RNG.standard_normal((37, 45)).astype(np.float32), RNG.standard_normal((45, 18)).astype(np.float32)
    out = np.full((37, 18), np.nan, np.float32)
    run_both(define(matmul_source()), a, b, out, 37, 18, 45, 45, 18, 18, grid=(3, 2))
    np.testing.assert_allclose(out, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


def test_a_loop_carries_only_the_offset_that_moves_and_keeps_unit_strides():
    signature = {n: "*fp32" for n in ("a_ptr", "b_ptr", "c_ptr")} | {n: "i32" for n in ("M", "N", "K", "sam", "sbk", "scm")}
    text = text_of(define(matmul_source()), signature)
    (line,) = [part for part in text.splitlines() if "scf.for" in part]
    assert "-> (i32, tensor<16x16xf32>, i32)" in line, line
    assert text.count("dense<1> : tensor<1x16xi32>") == 0


def test_a_pointer_made_anew_in_the_loop_and_one_chosen_by_a_branch():
    kernel = define("""
        @triton.jit
        def kernel(p, q, r, n):
            a = tl.make_block_ptr(p, (64,), (1,), (0,), (8,), (0,))
            total = tl.load(a)
            for i in range(n):
                a = tl.make_block_ptr(q, (64,), (2,), (i * 4,), (8,), (0,))
                total += tl.load(a)
            if n > 2:
                a = tl.advance(a, (1,))
            total += tl.load(a)
            tl.store(r + tl.arange(0, 8), total)
        """)
    for n in (0, 2, 4):
        p, q, r = np.arange(64, dtype=np.int32), np.arange(1000, 1064, dtype=np.int32), np.zeros(8, np.int32)
        run_both(kernel, p, q, r, n)
        steps = np.arange(8)
        last = p[steps] if n == 0 else q[(n - 1) * 8 + steps * 2 + (2 if n > 2 else 0)]
        expected = p[:8] + sum((q[i * 8 + steps * 2] for i in range(n)), np.zeros(8, np.int32)) + last
        np.testing.assert_array_equal(r, expected)


def test_64_bit_strides_reach_beyond_32_bits():
    text = text_of(define("""
        @triton.jit
        def kernel(p, n, s):
            a = tl.make_block_ptr(p, (n, 16), (s, 1), (n, 0), (16, 16), (1, 0))
            tl.store(a, 1.0)
        """), {"p": "*fp32", "n": "i32", "s": "i64"})
    assert "arith.extsi" in text and "tensor<16x1xi64>" in text
