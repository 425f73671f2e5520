"""Loads and stores: every element width, masks, contiguity known and unknown, columns, order of memory, atomics."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.bundle import load_bundle, write_bundle

DTYPES = ["int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64"]


def values(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


@triton.jit
def copy_kernel(src, dst, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + at, tl.load(src + at, mask=at < n), mask=at < n)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 15, 17, 100])
def test_masked_copy_touches_nothing_else(dtype, n):
    x, out = values(128, dtype), values(128, dtype, 1)
    kept = out.copy()
    copy_kernel[(2,)](x, out, n, BLOCK=64)
    assert np.array_equal(out[:n], x[:n]) and np.array_equal(out[n:], kept[n:])


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
def test_masked_lanes_never_touch_memory(dtype):
    """The array ends where a page that may not be read begins."""
    import ctypes

    size = np.dtype(dtype).itemsize
    page = mmap.PAGESIZE
    region = mmap.mmap(-1, 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(region))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert protect(base + page, page, 0) == 0
    n = 37
    x = np.frombuffer(region, dtype=dtype, count=n, offset=page - n * size)
    x[:] = values(n, dtype)
    out = values(128, dtype, 1)
    copy_kernel[(1,)](x, out, n, BLOCK=128)
    assert np.array_equal(out[:n], x)
    y = np.frombuffer(region, dtype=dtype, count=n, offset=page - n * size)
    copy_kernel[(1,)](out, y, n, BLOCK=128)
    assert np.array_equal(y, out[:n])
    assert protect(base + page, page, 3) == 0


@triton.jit
def other_kernel(src, dst, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(dst + at, tl.load(src + at, mask=at < n, other=7))
    tl.store(dst + BLOCK + at, tl.load(src + at, mask=at < n))


@pytest.mark.parametrize("dtype", DTYPES)
def test_other_and_the_zero_without_it(dtype):
    x, out = values(64, dtype), np.full(128, 55, dtype)
    other_kernel[(1,)](x, out, 41, BLOCK=64)
    assert np.array_equal(out, np.concatenate([x[:41], np.full(23, 7, dtype), x[:41], np.zeros(23, dtype)]))


@triton.jit
def wrapped_kernel(src, dst, n, shift, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(dst + at, tl.load(src + (at + shift) % n))


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("n,shift", [(64, 3), (97, 0), (97, 90), (5, 2), (1, 0)])
def test_contiguity_that_only_running_shows(dtype, n, shift):
    x, out = values(128, dtype), np.zeros(64, dtype)
    wrapped_kernel[(1,)](x, out, n, shift, BLOCK=64)
    assert np.array_equal(out, x[(np.arange(64) + shift) % n])


@triton.jit
def gather_scatter_kernel(src, index, dst, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    where = tl.load(index + at)
    tl.store(dst + where, tl.load(src + where, mask=at < n, other=3), mask=at < n)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "int64"])
@pytest.mark.parametrize("index_type", ["int32", "int64"])
def test_gather_and_scatter(dtype, index_type):
    index = np.random.default_rng(0).permutation(64).astype(index_type)
    x, out = values(64, dtype), np.full(64, 9, dtype)
    gather_scatter_kernel[(1,)](x, index, out, 50, BLOCK=64)
    expected = np.full(64, 9, dtype)
    expected[index[:50]] = x[index[:50]]
    assert np.array_equal(out, expected)


@triton.jit
def transpose_kernel(src, dst, m, n, sm, sn, dm, dn, M: tl.constexpr, N: tl.constexpr):
    rows, cols = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    mask = (rows < m) & (cols < n)
    x = tl.load(src + rows * sm + cols * sn, mask=mask, other=-1)
    tl.store(dst + rows * dm + cols * dn, x + 1, mask=mask)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
@pytest.mark.parametrize("m,n,M,N", [(32, 16, 32, 16), (31, 13, 32, 16), (5, 64, 8, 64), (64, 3, 64, 4), (1, 1, 2, 2)])
@pytest.mark.parametrize("source_by_column", [False, True])
@pytest.mark.parametrize("target_by_column", [False, True])
def test_rows_and_columns(dtype, m, n, M, N, source_by_column, target_by_column):
    x = values((m, n), dtype)
    x = np.asfortranarray(x) if source_by_column else x
    out = np.full((m, n), 77, dtype, order="F" if target_by_column else "C")
    s = [v // x.itemsize for v in (*x.strides, *out.strides)]
    if m == 1:
        s = [1, 1, 1, 1]
    transpose_kernel[(1,)](x, out, m, n, *s, M=M, N=N)
    assert np.array_equal(out, x + np.dtype(dtype).type(1))


@triton.jit
def column_mask_kernel(src, dst, k, stride, M: tl.constexpr, N: tl.constexpr):
    rows, cols = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(src + rows + cols * stride, mask=cols < k, other=-5)
    tl.store(dst + rows * N + cols, x)


@pytest.mark.parametrize("k", [0, 7, 16])
def test_columns_under_a_mask_of_columns(k):
    x, out = values((16, 32), "float32"), np.zeros((32, 16), "float32")
    column_mask_kernel[(1,)](x, out, k, 32, M=32, N=16)
    expected = x.T.copy()
    expected[:, k:] = -5
    assert np.array_equal(out, expected)


@triton.jit
def shift_kernel(x, n, by, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at + by, tl.load(x + at, mask=at + by < n), mask=at + by < n)


@pytest.mark.parametrize("by", [1, 15, 16, 33])
def test_a_load_reads_before_a_later_store_of_the_same_array(by):
    x = values(128, "float32")
    expected = x.copy()
    expected[by:] = x[:128 - by]
    shift_kernel[(1,)](x, 128, by, BLOCK=128)
    assert np.array_equal(x, expected)


@triton.jit
def in_place_kernel(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at)
    tl.store(y + at, v * 2)
    tl.store(y + BLOCK + at, v * 3)


def test_arguments_that_are_one_array():
    x = values(256, "float32")
    old = x.copy()
    in_place_kernel[(1,)](x, x, BLOCK=128)
    assert np.array_equal(x, np.concatenate([old[:128] * 2, old[:128] * 3]))


@triton.jit
def reload_kernel(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    first = tl.load(x + at)
    tl.store(x + at, first + 1)
    second = tl.load(x + at)
    tl.store(out + at, first * 10 + second)


def test_a_load_after_a_store_sees_it():
    x, out = np.arange(64, dtype="float32"), np.zeros(64, "float32")
    reload_kernel[(1,)](x, out, BLOCK=64)
    assert np.array_equal(out, np.arange(64) * 11 + 1)


@triton.jit
def scalar_kernel(x, out, i, flag):
    v = tl.load(x + i)
    w = tl.load(x + i + 1, mask=flag > 0, other=100.0)
    tl.store(out, v + w)
    tl.store(out + 1, v, mask=flag > 0)


def test_scalars():
    for flag in (0, 2):
        x, out = values(8, "float32"), np.full(2, 5, "float32")
        scalar_kernel[(1,)](x, out, 3, flag)
        assert out[0] == np.float32(x[3] + (x[4] if flag else np.float32(100))) and out[1] == (x[3] if flag else 5)


@triton.jit
def pointers_kernel(table, out, BLOCK: tl.constexpr):
    p = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    at = tl.arange(0, BLOCK)
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(p + at))


def test_pointers_from_memory():
    arrays = [values(32, "float32", i) for i in range(3)]
    table = np.array([a.ctypes.data for a in arrays], "int64")
    out = np.zeros(96, "float32")
    pointers_kernel[(3,)](table, out, BLOCK=32)
    assert np.array_equal(out, np.concatenate(arrays))


@triton.jit
def atomic_kernel(counts, x, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(counts + v % BINS, tl.full([BLOCK], 1, counts.dtype.element_ty), mask=at < n)


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64", "float16"])
def test_atomic_add_from_many_programs(dtype):
    x = np.random.default_rng(0).integers(0, 1000, 5000).astype("int32")
    counts = np.zeros(16, dtype)
    atomic_kernel[(40,)](counts, x, 5000, BLOCK=128, BINS=16)
    assert np.array_equal(counts, np.bincount(x % 16, minlength=16))


@triton.jit
def atomic_ops_kernel(x, y, old, OP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    v = tl.load(y + at)
    if OP == "max":
        r = tl.atomic_max(x + at, v)
    elif OP == "min":
        r = tl.atomic_min(x + at, v)
    elif OP == "and":
        r = tl.atomic_and(x + at, v)
    elif OP == "or":
        r = tl.atomic_or(x + at, v)
    elif OP == "xor":
        r = tl.atomic_xor(x + at, v)
    elif OP == "xchg":
        r = tl.atomic_xchg(x + at, v)
    else:
        r = tl.atomic_cas(x + at, v, v + 1)
    tl.store(old + at, r)


@pytest.mark.parametrize("op", ["max", "min", "and", "or", "xor", "xchg", "cas"])
def test_atomic_operations(op):
    rng = np.random.default_rng(1)
    x, y = rng.integers(-3, 3, 32).astype("int32"), rng.integers(-3, 3, 32).astype("int32")
    before, old = x.copy(), np.zeros(32, "int32")
    atomic_ops_kernel[(1,)](x, y, old, OP=op, BLOCK=32)
    expected = {"max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
                "xchg": lambda a, b: b, "cas": lambda a, b: np.where(a == b, b + 1, a)}[op](before, y)
    assert np.array_equal(old, before) and np.array_equal(x, expected)


@triton.jit
def row_mask_columns_kernel(src, dst, k, stride, OTHER: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    rows, cols = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    x = tl.load(src + rows + cols * stride, mask=(rows < k) & (cols != 3), other=OTHER)
    tl.store(dst + rows * N + cols, x)


@pytest.mark.parametrize("k", [0, 7, 16, 23, 32])
@pytest.mark.parametrize("other", [-5, None])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_columns_under_a_mask_of_rows(k, other, dtype):
    x, out = values((16, 32), dtype), np.zeros((32, 16), dtype)
    row_mask_columns_kernel[(1,)](x, out, k, 32, OTHER=other, M=32, N=16)
    expected = np.full((32, 16), other or 0, dtype)
    expected[:k] = x.T[:k]
    expected[:, 3] = other or 0
    assert np.array_equal(out, expected)


@triton.jit
def reversed_in_place(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    p = x + i
    for _ in range(n):
        p = y + i
    tl.store(p, tl.load(y + BLOCK - 1 - i))


@pytest.mark.parametrize("rounds", [0, 1])
def test_a_pointer_that_a_loop_leaves_may_be_another_arguments(rounds):
    """All is loaded before anything is stored: p is not x's alone, though the loop begins with that."""
    x, y = np.zeros(64, np.float32), np.arange(64, dtype=np.float32)
    reversed_in_place[(1,)](x, y, rounds, BLOCK=64)
    assert ((y if rounds else x) == np.arange(64)[::-1]).all()


@triton.jit
def reversed_kernel(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + BLOCK - 1 - i))


@triton.jit
def doubled_kernel(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def shifted_sums_kernel(x, y, z, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(y + i, tl.load(x + (i + 1) % BLOCK))
    tl.store(z + i, 1.0)


def test_one_array_for_two_arguments():
    """The version that loads all before it stores anything; where each element is stored where it came from, the usual one does."""
    x, y, turned = np.arange(64, dtype=np.float32), np.zeros(64, np.float32), np.arange(64, dtype=np.float32)[::-1]
    usual = reversed_kernel[(1,)](x, y, BLOCK=64)
    assert (y == turned).all() and (x == turned[::-1]).all()
    other = reversed_kernel[(1,)](x, x, BLOCK=64)
    assert (x == turned).all() and other is not usual and "because of x and y are one array" in other.explain()
    assert reversed_kernel[(1,)](x, y, BLOCK=64) is usual and (y == turned[::-1]).all()
    plain = doubled_kernel[(2,)](x, x, 50, BLOCK=32)
    assert (x[:50] == 2 * turned[:50]).all() and (x[50:] == turned[50:]).all() and not plain.metadata._asdict().get("apart")
    x = np.arange(64, dtype=np.float32)
    shifted_sums_kernel[(1,)](x, x, y, BLOCK=64)
    assert (x == np.arange(64) + (np.arange(64) + 1) % 64).all() and (y == 1).all()


def test_one_array_for_two_arguments_of_a_bundles_kernel(tmp_path):
    x = np.arange(64, dtype=np.float32)
    write_bundle(str(tmp_path / "turned.zip"), [[reversed_kernel.warmup(x, np.zeros(64, np.float32), BLOCK=64, grid=(1,))]])
    load_bundle(tmp_path / "turned.zip")[(1,)](x, x)
    assert (x == np.arange(64)[::-1]).all()


@triton.jit
def repeated_kernel(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    p, q = x + i[None, :] + tl.zeros((4, 1), tl.int32), y + i // 2
    tl.store(p, tl.load(p) + 1)
    tl.store(q, tl.load(q) * 2)


def test_elements_at_one_address_are_all_loaded_first():
    """Each stores the same, once: sums and products do not pile up."""
    x, y = np.arange(64, dtype=np.float32), np.arange(64, dtype=np.float32)
    repeated_kernel[(1,)](x, y, BLOCK=64)
    assert (x == np.arange(64) + 1).all() and (y[:32] == 2 * np.arange(32)).all() and (y[32:] == np.arange(32, 64)).all()
