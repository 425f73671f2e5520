"""Loads, stores and atomics of every type: masks, defaults, strides, alignments, shapes and numbers of warps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import (
    ALL,
    ON_CPU,
    TORCH,
    assert_same,
    compare,
    interpret,
    kernel_of,
    poisoned,
    random_array,
    rng_of,
    run,
)

_SHAPES = [(1, 1), (1, 64), (64, 1), (2, 4), (16, 16), (8, 128), (64, 64), (32, 2)]
_FP8 = ("fp8e5", "fp8e4nv")


@pytest.mark.parametrize("warps", [1, 2] if ON_CPU else [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", (*ALL, *_FP8))
def test_masked_copies(dtype, warps):
    """Rows and columns beyond a run-time size give ``other`` or 0 and are not written."""
    shape = _SHAPES[(warps + sum(map(ord, dtype))) % len(_SHAPES)]
    m, n = shape
    x = random_array(dtype, shape, rng_of(dtype, warps)) if dtype not in _FP8 else random_array("fp32", shape, rng_of(dtype)).to(TORCH[dtype])
    other = "1" if dtype != "int1" else "True"
    compare(f"""
        @triton.jit
        def kernel(p, o, q, r, rows, columns, M: tl.constexpr, N: tl.constexpr):
            m, n = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
            at = m * N + n
            mask = (m < rows) & (n < columns)
            tl.store(o + at, tl.load(p + at, mask=mask))
            tl.store(q + at, tl.load(p + at, mask=mask, other={other}), mask=n != 1)
            tl.store(r + at, tl.load(p + at, mask=m < rows, other={other}), mask=mask)
        """, {"p": x, "o": poisoned(dtype, shape), "q": poisoned(dtype, shape), "r": poisoned(dtype, shape), "rows": max(1, m - 1), "columns": max(1, n - 3),
              "M": m, "N": n}, num_warps=warps)


@pytest.mark.parametrize("dtype", ["int1", "int8", "uint16", "bf16", "fp32", "int64", "fp64"])
@pytest.mark.parametrize("offset, stride", [(0, 1), (1, 1), (3, 1), (4, 1), (1, 2), (0, 3), (63, -1), (130, -2), (5, 0)])
def test_strides_and_alignments(dtype, offset, stride):
    """Contiguous, shifted, strided, reversed and constant addresses, with and without a mask that cuts a vector."""
    x = random_array(dtype, 256, rng_of(dtype, offset, stride))
    compare("""
        @triton.jit
        def kernel(p, o, q, w, offset, stride, n):
            i = tl.arange(0, 64)
            x = tl.load(p + offset + i * stride)
            tl.store(o + i, x)
            tl.store(q + i, tl.load(p + offset + i * stride, mask=i < n, other=0))
            if stride != 0:
                tl.store(w + offset + i * stride, x, mask=(i < n) & (i > 2))
        """, {"p": x, "o": poisoned(dtype, 64), "q": poisoned(dtype, 64), "w": poisoned(dtype, 256), "offset": offset, "stride": stride, "n": 37}, num_warps=2)


@pytest.mark.parametrize("dtype", ["int1", "int8", "fp16", "fp32", "int64"])
def test_views_at_odd_addresses(dtype):
    """Arguments that start at one element past an alignment of 16 bytes, and lengths divisible by 16 or not."""
    for start, n in ((0, 64), (1, 48), (2, 63), (3, 64), (8, 16)):
        x = random_array(dtype, 128, rng_of(dtype, start))
        kernel = kernel_of("""
            @triton.jit
            def kernel(p, o, n):
                i = tl.arange(0, 64)
                tl.store(o + i, tl.load(p + i, mask=i < n, other=0), mask=i < n)
            """)
        out = poisoned(dtype, 128)
        args = {"p": x[start:], "o": out[start:], "n": n}
        reference = interpret(kernel, args)
        got = run(kernel, args, num_warps=1)
        assert_same(got["o"], reference["o"], what=f"start {start}, length {n}")
        np.testing.assert_array_equal(reference["o"][:n].to(torch.float64).numpy(), x[start : start + n].to(torch.float64).numpy())


@pytest.mark.parametrize("warps", [1] if ON_CPU else [1, 4, 8])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 1, 8), (4, 8, 2), (8, 4, 16)])
def test_three_dims_in_any_order(shape, warps):
    a, b, c = shape
    x = random_array("int32", shape, rng_of(shape))
    source = """
        @triton.jit
        def kernel(p, o, q, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
            i, j, k = tl.arange(0, A)[:, None, None], tl.arange(0, B)[None, :, None], tl.arange(0, C)[None, None, :]
            x = tl.load(p + i * B * C + j * C + k)
            tl.store(o + k * A * B + i * B + j, x)
            y = tl.load(p + i * B * C + j * C + k, mask=(k % 2 == 0) & (j > 0), other=-5)
            tl.store(q + j * A * C + k * A + i, y)
        """
    reference = compare(source, {"p": x, "o": poisoned("int32", (c, a, b)), "q": poisoned("int32", (b, c, a)), "A": a, "B": b, "C": c}, num_warps=warps,
                        expected={"o": x.permute(2, 0, 1)})
    assert (reference["q"][:1] == -5).all()


@pytest.mark.parametrize("dtype", ["int8", "fp16", "fp32", "fp64", "int64"])
def test_gathers_and_scatters_by_loaded_indices(dtype):
    rng = rng_of(dtype, "scatter")
    x, order = random_array(dtype, 256, rng), torch.from_numpy(rng.permutation(256).astype(np.int32))
    compare("""
        @triton.jit
        def kernel(p, index, o, q):
            i = tl.arange(0, 256)
            at = tl.load(index + i)
            tl.store(o + i, tl.load(p + at))
            tl.store(q + at, tl.load(p + i), mask=at % 3 != 0)
        """, {"p": x, "index": order, "o": poisoned(dtype, 256), "q": poisoned(dtype, 256)}, expected={"o": x[order.long()]}, num_warps=2)


def test_pointers_in_memory_select_and_loops():
    """Pointers chosen by where and if, cast, and carried through loops."""
    x, y = random_array("fp32", 128, rng_of(1)), random_array("fp32", 128, rng_of(2))
    compare("""
        @triton.jit
        def kernel(p, q, o, flag, n):
            i = tl.arange(0, 32)
            chosen = tl.where(i % 2 == 0, p + i, q + i)
            tl.store(o + i, tl.load(chosen))
            base = p
            if flag > 0:
                base = q + 3
            at = base + i
            total = tl.zeros([32], tl.float32)
            for k in range(n):
                total += tl.load(at)
                at += 32
                base += 1
            tl.store(o + 32 + i, total)
            tl.store(o + 64, tl.load(base))
            words = (p + i).to(tl.pointer_type(tl.int32))
            tl.store((o + 65 + i).to(tl.pointer_type(tl.int32)), tl.load(words))
        """, {"p": x, "q": y, "o": poisoned("fp32", 97), "flag": 1, "n": 3}, num_warps=2)


@pytest.mark.parametrize("grid", [(7,), (3, 4), (2, 3, 2)])
def test_grids(grid):
    size = int(np.prod(grid))
    full = (*grid, 1, 1)[:3]
    out = poisoned("int32", (size, 8))
    i = np.arange(size)
    x, y, z = i % full[0], i // full[0] % full[1], i // full[0] // full[1]
    expected = ((x + 10 * y + 100 * z)[:, None] + 1000 * (full[0] + full[1] * full[2]) + np.arange(8)).astype(np.int32)
    compare("""
        @triton.jit
        def kernel(o):
            x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
            at = x + tl.num_programs(0) * (y + tl.num_programs(1) * z)
            sizes = tl.num_programs(0) + tl.num_programs(1) * tl.num_programs(2)
            tl.store(o + at * 8 + tl.arange(0, 8), x + 10 * y + 100 * z + 1000 * sizes + tl.arange(0, 8))
        """, {"o": out}, grid, {"o": expected}, num_warps=1)


def test_atomics_of_many_programs():
    x = random_array("int32", 32 * 9, rng_of("many"), small=True)
    compare("""
        @triton.jit
        def kernel(p, total, top, count):
            x = tl.load(p + tl.program_id(0) * 32 + tl.arange(0, 32))
            tl.atomic_add(total, tl.sum(x, 0))
            tl.atomic_max(top, tl.max(x, 0))
            tl.atomic_add(count + (x + 4), 1)
        """, {"p": x, "total": torch.zeros(1, dtype=torch.int64), "top": torch.full((1,), -100, dtype=torch.int32), "count": torch.zeros(9, dtype=torch.int32)},
        (9,), {"total": x.sum()[None], "top": x.max()[None], "count": torch.bincount(x + 4, minlength=9).to(torch.int32)}, num_warps=1)
