"""tt.reduce and tt.scan over every axis of layouts of all kinds, executed over all threads, against float64."""

import numpy as np
import pytest
from lowering_harness import ARGMAX, LAYOUTS, SUM, Text, blocked, ptr, reduce, scan, slice_of, tensor

CASES = [(name, axis) for name, (shape, *_) in LAYOUTS.items() for axis in range(len(shape))]


@pytest.mark.parametrize("name,axis", CASES)
def test_sum(name, axis):
    shape, encoding, warps, lanes = LAYOUTS[name]
    t = Text(ptr("x", "f32"), ptr("o", "f32"))
    x = t.load("%x", "f32", shape, encoding)
    (r,) = reduce(t, [x], ["f32"], shape, axis, encoding, SUM, "%r")
    rest = [s for i, s in enumerate(shape) if i != axis]
    t.store("%o", r, "f32", rest, slice_of(axis, encoding))
    x = np.random.default_rng(axis).standard_normal(shape).astype(np.float32)
    out = np.full(rest, np.nan, np.float32)
    t.kernel(warps, lanes).run(x, out)
    np.testing.assert_allclose(out, x.astype(np.float64).sum(axis), rtol=0, atol=2e-5)


@pytest.mark.parametrize("name,axis", CASES)
def test_argmax_breaks_ties_by_index(name, axis):
    shape, encoding, warps, lanes = LAYOUTS[name]
    t = Text(ptr("x", "f32"), ptr("k", "i32"), ptr("o", "f32"), ptr("i", "i32"))
    x, k = t.load("%x", "f32", shape, encoding), t.load("%k", "i32", shape, encoding)
    r, i = reduce(t, [x, k], ["f32", "i32"], shape, axis, encoding, ARGMAX, "%r, %ri")
    rest = [s for d, s in enumerate(shape) if d != axis]
    t.store("%o", r, "f32", rest, slice_of(axis, encoding))
    t.store("%i", i, "i32", rest, slice_of(axis, encoding))
    x = np.random.default_rng(axis).integers(0, 3, shape).astype(np.float32)
    k = np.broadcast_to(np.arange(shape[axis], dtype=np.int32).reshape([-1 if d == axis else 1 for d in range(len(shape))]), shape)
    out, index = np.full(rest, np.nan, np.float32), np.full(rest, -1, np.int32)
    t.kernel(warps, lanes).run(x, np.ascontiguousarray(k), out, index)
    np.testing.assert_array_equal(out, x.max(axis))
    np.testing.assert_array_equal(index, x.argmax(axis))


@pytest.mark.parametrize("element,dtype", [("i8", np.int8), ("f16", np.float16), ("i64", np.int64), ("f64", np.float64), ("i1", bool)])
def test_to_a_scalar_of_every_width(element, dtype):
    shape, encoding = [512], blocked([2], [32], [4], [0])
    t = Text(ptr("x", "i8" if element == "i1" else element), ptr("o", "i8" if element == "i1" else element))
    x = t.load("%x", "i8" if element == "i1" else element, shape, encoding)
    op = "arith.addf" if element[0] == "f" else "arith.addi"
    if element == "i1":
        wide = tensor(shape, "i8", encoding)
        x = t("arith.cmpi", f"{x}, {t.constant('0', wide)}", f"{wide}, {wide}", tensor(shape, "i1", encoding), "predicate = 1 : i64")
        op = "arith.ori"
    (r,) = reduce(t, [x], [element], shape, 0, encoding, f'%r = "{op}"(%a0, %b0) : ({element}, {element}) -> {element}', "%r")
    if element == "i1":
        r = t("arith.extui", r, "i1", "i8")
    p = f"!tt.ptr<{'i8' if element == 'i1' else element}, 1 : i32>"
    t("tt.store", f"%o, {r}", f"{p}, {'i8' if element == 'i1' else element}", None,
      'cache = "none", evict = "normal", operandSegmentSizes = array<i32: 1, 1, 0>')
    rng = np.random.default_rng(1)
    kernel = t.kernel(4, 32)
    if element == "i1":
        for data in (np.zeros(512, np.int8), (np.arange(512) == 300).astype(np.int8)):
            out = np.full(1, 7, np.int8)
            kernel.run(data, out)
            assert out[0] == data.any()
        return
    x = rng.integers(-3, 4, 512).astype(dtype)
    out = np.full(1, 99, dtype)
    kernel.run(x, out)
    assert out[0] == x.sum(dtype=dtype)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name,axis", CASES)
def test_cumulative_sum(name, axis, reverse):
    shape, encoding, warps, lanes = LAYOUTS[name]
    t = Text(ptr("x", "f32"), ptr("o", "f32"))
    x = t.load("%x", "f32", shape, encoding)
    (r,) = scan(t, [x], ["f32"], shape, axis, encoding, SUM, "%r", reverse)
    t.store("%o", r, "f32", shape, encoding)
    x = np.random.default_rng(axis).standard_normal(shape).astype(np.float32)
    out = np.full(shape, np.nan, np.float32)
    t.kernel(warps, lanes).run(x, out)
    wide = np.flip(x, axis) if reverse else x
    wide = wide.astype(np.float64).cumsum(axis)
    np.testing.assert_allclose(out, np.flip(wide, axis) if reverse else wide, rtol=0, atol=3e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name,axis", CASES)
def test_a_scan_keeps_its_order(name, axis, reverse):
    """x → m x + c composed in order: associative, not commutative. Exact in small integers."""
    shape, encoding, warps, lanes = LAYOUTS[name]
    t = Text(ptr("m", "i32"), ptr("c", "i32"), ptr("om", "i32"), ptr("oc", "i32"))
    m, c = t.load("%m", "i32", shape, encoding), t.load("%c", "i32", shape, encoding)
    ops = "%rm = arith.muli %a0, %b0 : i32\n%s = arith.muli %a1, %b0 : i32\n%rc = arith.addi %s, %b1 : i32"
    rm, rc = scan(t, [m, c], ["i32", "i32"], shape, axis, encoding, ops, "%rm, %rc", reverse)
    t.store("%om", rm, "i32", shape, encoding)
    t.store("%oc", rc, "i32", shape, encoding)
    rng = np.random.default_rng(axis)
    m, c = rng.integers(-3, 4, shape).astype(np.int32), rng.integers(-9, 10, shape).astype(np.int32)
    om, oc = np.zeros_like(m), np.zeros_like(c)
    t.kernel(warps, lanes).run(m, c, om, oc)
    fm, fc = (np.moveaxis(np.flip(a, axis) if reverse else a, axis, 0).copy() for a in (m, c))
    with np.errstate(over="ignore"):
        for i in range(1, len(fm)):
            fm[i], fc[i] = fm[i - 1] * fm[i], fc[i - 1] * fm[i] + fc[i]
    for got, want in ((om, fm), (oc, fc)):
        want = np.moveaxis(want, 0, axis)
        np.testing.assert_array_equal(got, np.flip(want, axis) if reverse else want)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("warps", [8, 16])
def test_a_scan_over_many_warps_reuses_its_scratch_without_races(warps, reverse):
    """Three and four rounds through shared memory alternate between two regions."""
    n = warps * 32 * 4
    encoding = blocked([2], [32], [warps], [0])
    t = Text(ptr("x", "i32"), ptr("o", "i32"))
    (r,) = scan(t, [t.load("%x", "i32", [n], encoding)], ["i32"], [n], 0, encoding, "%r = arith.addi %a0, %b0 : i32", "%r", reverse)
    t.store("%o", r, "i32", [n], encoding)
    x = np.random.default_rng(0).integers(-9, 9, n).astype(np.int32)
    out = np.zeros_like(x)
    t.kernel(warps, 32).run(x, out)
    np.testing.assert_array_equal(out, x[::-1].cumsum()[::-1] if reverse else x.cumsum())
