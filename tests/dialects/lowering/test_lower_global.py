"""Loads, stores and atomics: masks, vector widths, owners."""

import re

import numpy as np
import pytest
from lowering_harness import LAYOUTS, Text, blocked, ptr, tensor

from tilewright.dialects.context import mlir_context
from tilewright.dialects.encodings import to_linear_layout
from tilewright.dialects.lowering.global_ops import vector_groups

LOAD = re.compile(r"llvm\.load .* -> (\S+)")


def loads(kernel) -> list[str]:
    return LOAD.findall(kernel.text())


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("element,dtype", [("f32", np.float32), ("i8", np.int8), ("f16", np.float16), ("i64", np.int64)])
def test_copy(name, element, dtype):
    shape, encoding, warps, lanes = LAYOUTS[name]
    t = Text(ptr("x", element), ptr("o", element))
    t.store("%o", t.load("%x", element, shape, encoding), element, shape, encoding)
    x = np.random.default_rng(0).integers(-100, 100, shape).astype(dtype)
    out = np.full(shape, 77, dtype)
    t.kernel(warps, lanes).run(x, out)
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("limit", [0, 1, 37, 101, 512])
def test_masked_lanes_touch_nothing(name, limit):
    """The arrays end at the limit: the executor reports any access beyond."""
    shape, encoding, warps, lanes = LAYOUTS[name]
    limit = min(limit, int(np.prod(shape)))
    t = Text(ptr("x", "f32"), ptr("o", "f32"), ptr("z", "f32"), "%n: i32")
    mask = t.below(shape, encoding, "%n")
    x = t.masked_load("%x", "f32", shape, encoding, mask)
    y = t.masked_load("%x", "f32", shape, encoding, mask, t.constant("7.0", tensor(shape, "f32", encoding)))
    t.store("%z", t("arith.addf", f"{x}, {y}", f"{tensor(shape, 'f32', encoding)}, {tensor(shape, 'f32', encoding)}",
                    tensor(shape, "f32", encoding)), "f32", shape, encoding)
    t.masked_store("%o", y, "f32", shape, encoding, mask)
    x = np.random.default_rng(0).standard_normal(limit).astype(np.float32)
    out, z = np.full(limit, np.nan, np.float32), np.full(shape, np.nan, np.float32)
    t.kernel(warps, lanes).run(x, out, z, limit)
    np.testing.assert_array_equal(out, x)
    flat = np.concatenate([2 * x, np.full(int(np.prod(shape)) - limit, 7, np.float32)])
    np.testing.assert_array_equal(z.ravel(), flat)


def vector_kernel(divisibility, mask_divisible, encoding=None, element="f16"):
    shape, encoding = [1024], encoding or blocked([8], [32], [4], [0])
    t = Text(ptr("x", element, divisibility), ptr("o", element, divisibility),
             f"%n: i32 {{tt.divisibility = {mask_divisible} : i32}}")
    mask = t.below(shape, encoding, "%n")
    t.masked_store("%o", t.masked_load("%x", element, shape, encoding, mask), element, shape, encoding, mask)
    return t.kernel(4, 32)


def test_vector_width_by_alignment_and_mask():
    assert loads(vector_kernel(16, 16)) == ["vector<8xf16>"]
    assert loads(vector_kernel(8, 16)) == ["vector<4xf16>"] * 2
    assert loads(vector_kernel(16, 2)) == ["vector<2xf16>"] * 4
    assert loads(vector_kernel(16, 1)) == ["f16"] * 8
    assert loads(vector_kernel(16, 16, element="f32")) == ["vector<4xf32>"] * 2
    x = np.random.default_rng(0).standard_normal(1024).astype(np.float16)
    for kernel, n in ((vector_kernel(16, 16), 1008), (vector_kernel(16, 2), 998), (vector_kernel(16, 1), 333)):
        out = np.full(n, np.nan, np.float16)
        kernel.run(x[:n].copy(), out, n)
        np.testing.assert_array_equal(out, x[:n])


def test_vectors_need_not_be_the_lowest_registers():
    """Groups are found wherever the layout puts consecutive elements."""
    with mlir_context():
        from tilewright.dialects._mlir import ir

        layout = to_linear_layout([4, 32], ir.Attribute.parse(
            "#ttg.linear<array<i32: 1, 0, 0, 1, 0, 2>, array<i32: 0, 4, 0, 8, 0, 16, 2, 0>, array<i32>, array<i32>, 2 : i32>"))
    assert vector_groups(layout, [1, 8]) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert vector_groups(layout, [1, 2]) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert vector_groups(layout, [8, 1]) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_repeated_elements_are_loaded_once_and_stored_by_one_thread():
    shape, encoding = [4, 8], blocked([1, 8], [4, 8], [2, 2], [1, 0])  # 32 elements on 128 threads
    t = Text(ptr("x", "f32"), ptr("o", "f32"))
    t.store("%o", t.load("%x", "f32", shape, encoding), "f32", shape, encoding)
    kernel = t.kernel(4, 32)
    assert loads(kernel) == ["vector<4xf32>"] * 2
    assert "llvm.icmp \"eq\"" in kernel.text()


@pytest.mark.parametrize("name", LAYOUTS)
def test_atomic_add_counts_each_element_once_and_gives_old_values_to_all(name):
    shape, encoding, warps, lanes = LAYOUTS[name]
    t = Text(ptr("c", "i32"), ptr("p", "i32"), ptr("o", "i32"))
    p, i = tensor(shape, "!tt.ptr<i32, 1 : i32>", encoding), tensor(shape, "i32", encoding)
    slots = t.load("%p", "i32", shape, encoding)
    base = t("tt.splat", "%c", "!tt.ptr<i32, 1 : i32>", p)
    where = t("tt.addptr", f"{base}, {slots}", f"{p}, {i}", p)
    old = t("tt.atomic_rmw", f"{where}, {t.constant('1', i)}", f"{p}, {i}", i,
            'rmw_op = "add", sem = "acq_rel", scope = "gpu", operandSegmentSizes = array<i32: 1, 1, 0>')
    t.store("%o", old, "i32", shape, encoding)
    n = int(np.prod(shape))
    slots = np.random.default_rng(0).integers(0, 7, shape).astype(np.int32)
    counts, out = np.zeros(7, np.int32), np.full(shape, -1, np.int32)
    t.kernel(warps, lanes).run(counts, slots, out)
    assert counts.sum() == n
    np.testing.assert_array_equal(counts, np.bincount(slots.ravel(), minlength=7))
    for s in range(7):  # the old values seen are 0, 1, … each once
        assert sorted(out[slots == s]) == list(range(counts[s]))


def test_scalar_atomic_is_done_once_a_program_and_its_result_is_shared(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_SIMULATE_GLOBAL_RACES", "0")  # the programs all store to one place
    shape, encoding = [256], blocked([2], [32], [4], [0])
    t = Text(ptr("c", "i32"), ptr("o", "i32"))
    old = t("tt.atomic_rmw", f"%c, {t.constant('3', 'i32')}", "!tt.ptr<i32, 1 : i32>, i32", "i32",
            'rmw_op = "add", sem = "relaxed", scope = "gpu", operandSegmentSizes = array<i32: 1, 1, 0>')
    i = tensor(shape, "i32", encoding)
    t.store("%o", t("tt.splat", old, "i32", i), "i32", shape, encoding)
    counter, out = np.full(1, 5, np.int32), np.full(256, -1, np.int32)
    t.kernel(4, 32).run(counter, out, grid=(3,))
    assert counter[0] == 14
    np.testing.assert_array_equal(out, np.full(256, 11))


def test_compare_and_swap():
    t = Text(ptr("c", "i32"), ptr("o", "i32"))
    old = t("tt.atomic_cas", f"%c, {t.constant('5', 'i32')}, {t.constant('9', 'i32')}", "!tt.ptr<i32, 1 : i32>, i32, i32", "i32",
            'sem = "acq_rel", scope = "gpu"')
    t("tt.store", f"%o, {old}", "!tt.ptr<i32, 1 : i32>, i32", None,
      'cache = "none", evict = "normal", operandSegmentSizes = array<i32: 1, 1, 0>')
    kernel = t.kernel(4, 32)
    for start, after in ((5, 9), (4, 4)):
        c, o = np.full(1, start, np.int32), np.full(1, -1, np.int32)
        kernel.run(c, o)
        assert (c[0], o[0]) == (after, start)
