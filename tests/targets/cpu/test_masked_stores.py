"""Masked stores of truncated values under constant masks write their lanes and no more, by any processor's code."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.targets.cpu import emit, masked_stores


@triton.jit
def store_some(x, out, FIRST: tl.constexpr, LAST: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty), mask=(i >= FIRST) & (i < LAST))


@pytest.mark.parametrize("wide, narrow", [(np.int64, np.int32), (np.int64, np.uint16), (np.int32, np.int8), (np.uint64, np.uint32)])
@pytest.mark.parametrize("n, first, last", [(2, 0, 1), (2, 1, 2), (8, 3, 4), (8, 2, 7), (16, 8, 9)])
def test_lanes_that_are_on(wide, narrow, n, first, last, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    rng = np.random.default_rng()
    x, out = rng.integers(-100, 100, n).astype(wide), np.full(n + 2, 77, narrow)
    kernel = store_some[(1,)](x, out, first, last, n)
    expected = np.full(n + 2, 77, narrow)
    expected[first:last] = x[first:last].astype(narrow)
    np.testing.assert_array_equal(out, expected)
    assert masked_stores.expand(kernel.asm["llir"]) == kernel.asm["llir"]  # no such store is left


def test_the_text():
    """One lane of two, as LLVM prints it; a value that is no trunc and a mask that is no constant stay."""
    text = """
define void @f(ptr %p, <2 x i64> %w, <2 x i32> %v, <2 x i1> %m) {
  %t = trunc <2 x i64> %w to <2 x i32>
  tail call void @llvm.masked.store.v2i32.p0(<2 x i32> %t, ptr align 4 %p, <2 x i1> <i1 false, i1 true>)
  call void @llvm.masked.store.v2i32.p0(<2 x i32> %v, ptr align 4 %p, <2 x i1> <i1 false, i1 true>)
  call void @llvm.masked.store.v2i32.p0(<2 x i32> %t, ptr align 4 %p, <2 x i1> %m)
  ret void
}
declare void @llvm.masked.store.v2i32.p0(<2 x i32>, ptr, <2 x i1>)
"""
    changed = masked_stores.expand(text)
    assert changed.count("@llvm.masked.store") == 3 and "getelementptr i8, ptr %p, i64 4" in changed and "store i32 %masked.0.value, ptr %masked.0.at, align 4" in changed
    emit.target_machine("native")
    llvm.parse_assembly(changed).verify()
