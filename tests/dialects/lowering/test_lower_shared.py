"""Shared memory: stores and loads under any pair of layouts and any shared encoding, views, async copies, gather, histogram."""

import itertools

import numpy as np
import pytest
from lowering_harness import LAYOUTS, Hooks, Text, blocked, memdesc, panels, ptr, swizzled, tensor

PADDED = "#ttg.padded_shared<32 : i32, 8 : i32, array<i32: 1, 0>>"
SHARED = {"plain": swizzled(1, 1, 1, [1, 0]), "swizzled": swizzled(4, 1, 8, [1, 0]), "phases": swizzled(2, 2, 4, [1, 0]),
          "columns": swizzled(4, 1, 4, [0, 1]), "padded": PADDED, "panels": panels(16, 4, 2, 4, [1, 0]),
          "panel columns": panels(8, 2, 1, 4, [0, 1])}
TWO_D = [n for n, (shape, *_) in LAYOUTS.items() if len(shape) == 2]
SHAPE = [32, 64]
FROM = blocked([1, 4], [4, 8], [2, 2], [1, 0])
TO = blocked([4, 2], [4, 8], [2, 2], [0, 1])


def alloc(t, shape, element, shared, source=None, encoding=None):
    return t("ttg.local_alloc", source or "", tensor(shape, element, encoding) if source else "", memdesc(shape, element, shared),
             "")


def local_load(t, buffer, shape, element, shared, encoding):
    return t("ttg.local_load", buffer, memdesc(shape, element, shared), tensor(shape, element, encoding),
             "operandSegmentSizes = array<i32: 1, 0>")


def round_trip(element, shared, src, dst, shape=SHAPE, warps=4, lanes=32):
    t = Text(ptr("x", element), ptr("o", element))
    buffer = alloc(t, shape, element, shared, t.load("%x", element, shape, src), src)
    t.store("%o", local_load(t, buffer, shape, element, shared, dst), element, shape, dst)
    return t.kernel(warps, lanes)


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize("element,dtype", [("f16", np.float16), ("f32", np.float32), ("i8", np.int8), ("f64", np.float64)])
def test_round_trip(shared, element, dtype):
    x = np.random.default_rng(0).integers(-99, 99, SHAPE).astype(dtype)
    for src, dst in ((FROM, TO), (TO, FROM)):
        out = np.full(SHAPE, 101, dtype)
        round_trip(element, SHARED[shared], src, dst).run(x, out)
        np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("name", TWO_D)
def test_every_layout(name):
    shape, encoding, warps, lanes = LAYOUTS[name]
    x = np.random.default_rng(0).integers(-99, 99, shape).astype(np.float32)
    for shared in (swizzled(2, 1, 4, [1, 0]), swizzled(1, 1, 1, [0, 1]), PADDED, panels(8, 2, 1, 4, [1, 0])):
        out = np.full(shape, np.nan, np.float32)
        round_trip("f32", shared, encoding, encoding, shape, warps, lanes).run(x, out)
        np.testing.assert_array_equal(out, x)


def shared_accesses(kernel):
    lines = [line for line in kernel.text().split("\n") if "!llvm.ptr<3>" in line]
    return ([line.split(" : ")[-1].split(",")[0] for line in lines if "llvm.store" in line],
            [line.split("->")[-1].strip() for line in lines if "llvm.load" in line])


def test_widest_vectors_that_registers_and_offsets_share():
    stores, loads = shared_accesses(round_trip("f16", swizzled(8, 1, 8, [1, 0]), blocked([1, 8], [4, 8], [4, 1], [1, 0]),
                                               blocked([1, 8], [4, 8], [4, 1], [1, 0])))
    assert set(stores) == set(loads) == {"vector<8xf16>"}
    stores, loads = shared_accesses(round_trip("f16", swizzled(2, 1, 8, [1, 0]), FROM, FROM))
    assert set(stores) == {"vector<2xf16>"}
    stores, loads = shared_accesses(round_trip("f32", PADDED, FROM, TO))
    assert set(stores) == {"vector<4xf32>"} and set(loads) == {"vector<2xf32>"}


def test_i1_lives_as_a_byte():
    t = Text(ptr("x", "i8"), ptr("o", "i8"))
    i8, i1 = tensor(SHAPE, "i8", FROM), tensor(SHAPE, "i1", FROM)
    x = t("arith.cmpi", f"{t.load('%x', 'i8', SHAPE, FROM)}, {t.constant('0', i8)}", f"{i8}, {i8}", i1, "predicate = 4 : i64")
    buffer = alloc(t, SHAPE, "i1", SHARED["plain"], x, FROM)
    y = local_load(t, buffer, SHAPE, "i1", SHARED["plain"], TO)
    t.store("%o", t("arith.extui", y, tensor(SHAPE, "i1", TO), tensor(SHAPE, "i8", TO)), "i8", SHAPE, TO)
    x = np.random.default_rng(0).integers(-2, 3, SHAPE).astype(np.int8)
    out = np.full(SHAPE, 9, np.int8)
    t.kernel().run(x, out)
    np.testing.assert_array_equal(out, x > 0)


@pytest.mark.parametrize("shared,transposed", [(swizzled(4, 1, 8, [1, 0]), swizzled(4, 1, 8, [0, 1])),
                                               (PADDED, PADDED.replace("1, 0", "0, 1")),
                                               (panels(16, 4, 1, 4, [1, 0]), panels(16, 4, 1, 4, [0, 1]))])
def test_transposed_view(shared, transposed):
    t = Text(ptr("x", "f32"), ptr("o", "f32"))
    buffer = alloc(t, SHAPE, "f32", shared, t.load("%x", "f32", SHAPE, FROM), FROM)
    view = t("ttg.memdesc_trans", buffer, memdesc(SHAPE, "f32", shared), memdesc(SHAPE[::-1], "f32", transposed),
             "order = array<i32: 1, 0>")
    t.store("%o", local_load(t, view, SHAPE[::-1], "f32", transposed, TO), "f32", SHAPE[::-1], TO)
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    out = np.full(SHAPE[::-1], np.nan, np.float32)
    t.kernel().run(x, out)
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize("shared", [swizzled(4, 1, 8, [1, 0]), swizzled(2, 2, 4, [1, 0]), PADDED, panels(32, 4, 1, 8, [1, 0]),
                                    panels(8, 4, 4, 2, [1, 0]), panels(16, 4, 2, 4, [0, 1])])
@pytest.mark.parametrize("start", [(0, 0), (16, 32), (0, 16), (16, 48)])
def test_slice(shared, start):
    small = [16, 16]
    t = Text(ptr("x", "f32"), ptr("o", "f32"))
    buffer = alloc(t, SHAPE, "f32", shared, t.load("%x", "f32", SHAPE, FROM), FROM)
    view = t("ttg.memdesc_subslice", buffer, memdesc(SHAPE, "f32", shared), memdesc(small, "f32", shared),
             f"offsets = array<i32: {start[0]}, {start[1]}>")
    dst = blocked([1, 2], [4, 8], [4, 1], [1, 0])
    t.store("%o", local_load(t, view, small, "f32", shared, dst), "f32", small, dst)
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    out = np.full(small, np.nan, np.float32)
    t.kernel().run(x, out)
    np.testing.assert_array_equal(out, x[start[0]:start[0] + 16, start[1]:start[1] + 16])


@pytest.mark.parametrize("shared", [swizzled(4, 1, 4, [1, 0]), panels(16, 4, 2, 4, [1, 0])])
@pytest.mark.parametrize("dynamic", [False, True])
def test_stages(dynamic, shared):
    """Three buffers, filled through views, read in another order."""
    whole = memdesc([3, *SHAPE], "f32", shared)
    one = memdesc(SHAPE, "f32", shared)
    t = Text(ptr("x", "f32"), ptr("o", "f32"), "%n: i32")
    buffer = t("ttg.local_alloc", "", "", whole)
    v = tensor(SHAPE, "f32", FROM)
    x = t.load("%x", "f32", SHAPE, FROM)
    for stage in range(3):
        number = t.constant(str(stage), "i32")
        if dynamic:
            number = t("arith.addi", f"{number}, %n", "i32, i32", "i32")
        view = t("ttg.memdesc_index", f"{buffer}, {number}", f"{whole}, i32", one)
        shifted = t("arith.addf", f"{x}, {t.constant(str(float(stage)), v)}", f"{v}, {v}", v)
        t("ttg.local_store", f"{shifted}, {view}", f"{v}, {one}", None)
    view = t("ttg.memdesc_index", f"{buffer}, {t.constant('1', 'i32')}", f"{whole}, i32", one)
    t.store("%o", local_load(t, view, SHAPE, "f32", shared, TO), "f32", SHAPE, TO)
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    out = np.full(SHAPE, np.nan, np.float32)
    t.kernel().run(x, out, 0)
    np.testing.assert_array_equal(out, x + np.float32(1))


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("other", [None, "7.0"])
@pytest.mark.parametrize("limit", [2048, 1000, 999])
def test_async_copy(limit, other, asynchronous, monkeypatch):
    """Masked elements come as zero, or as ``other``; without the hook by a load and a store."""
    monkeypatch.setattr(Hooks, "has_async_copy", asynchronous)
    shared = swizzled(4, 1, 8, [1, 0])
    d, p, m, v = (memdesc(SHAPE, "f32", shared), tensor(SHAPE, "!tt.ptr<f32, 1 : i32>", FROM), tensor(SHAPE, "i1", FROM),
                  tensor(SHAPE, "f32", FROM))
    t = Text(ptr("x", "f32"), ptr("o", "f32"), f"%n: i32 {{tt.divisibility = {limit & -limit} : i32}}")
    buffer = t("ttg.local_alloc", "", "", d)
    mask = t.below(SHAPE, FROM, "%n")
    operands, types = [t.pointers("%x", "f32", SHAPE, FROM), buffer, mask], [p, d, m]
    if other:
        operands.append(t.constant(other, v))
        types.append(v)
    token = t("ttg.async_copy_global_to_local", ", ".join(operands), ", ".join(types), "!ttg.async_token",
              f'cache = "none", evict = "normal", is_volatile = false, operandSegmentSizes = array<i32: 1, 1, 1, {int(bool(other))}>')
    token = t("ttg.async_commit_group", token, "!ttg.async_token", "!ttg.async_token")
    t("ttg.async_wait", token, "!ttg.async_token", "!ttg.async_token", "num = 0 : i32")
    t.store("%o", local_load(t, buffer, SHAPE, "f32", shared, TO), "f32", SHAPE, TO)
    x = np.random.default_rng(0).standard_normal(limit).astype(np.float32)
    out = np.full(SHAPE, np.nan, np.float32)
    kernel = t.kernel()
    assert ("async.copy" in kernel.text()) == asynchronous
    kernel.run(x, out, limit)
    np.testing.assert_array_equal(out.ravel()[:limit], x)
    assert (out.ravel()[limit:] == float(other or 0)).all()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", TWO_D)
def test_gather(name, axis):
    shape, encoding, warps, lanes = LAYOUTS[name]
    t = Text(ptr("x", "f32"), ptr("i", "i32"), ptr("o", "f32"))
    v, i = tensor(shape, "f32", encoding), tensor(shape, "i32", encoding)
    r = t("tt.gather", f"{t.load('%x', 'f32', shape, encoding)}, {t.load('%i', 'i32', shape, encoding)}", f"{v}, {i}", v,
          f"axis = {axis} : i32")
    t.store("%o", r, "f32", shape, encoding)
    rng = np.random.default_rng(0)
    x, index = rng.standard_normal(shape).astype(np.float32), rng.integers(0, shape[axis], shape).astype(np.int32)
    out = np.full(shape, np.nan, np.float32)
    t.kernel(warps, lanes).run(x, index, out)
    np.testing.assert_array_equal(out, np.take_along_axis(x, index, axis))


@pytest.mark.parametrize("bins", [16, 256])
@pytest.mark.parametrize("masked", [False, True])
def test_histogram(bins, masked):
    src, dst = blocked([2], [32], [4], [0]), blocked([1], [32], [4], [0])
    t = Text(ptr("x", "i32"), ptr("o", "i32"), "%n: i32")
    i = tensor([512], "i32", src)
    operands, types = [t.load("%x", "i32", [512], src)], [i]
    if masked:
        operands.append(t.below([512], src, "%n"))
        types.append(tensor([512], "i1", src))
    r = t("tt.histogram", ", ".join(operands), ", ".join(types), tensor([bins], "i32", dst),
          f"operandSegmentSizes = array<i32: 1, {int(masked)}>")
    t.store("%o", r, "i32", [bins], dst)
    x = np.random.default_rng(0).integers(-3, bins + 3, 512).astype(np.int32)
    out = np.full(bins, -1, np.int32)
    t.kernel().run(x, out, 300)
    kept = x[:300] if masked else x
    np.testing.assert_array_equal(out, np.bincount(kept[(kept >= 0) & (kept < bins)], minlength=bins))


@pytest.mark.parametrize("size", [512, 64])
def test_cat(size):
    """In registers where threads hold distinct elements, through shared memory where they repeat them."""
    src = blocked([1], [32], [4], [0])
    dst = blocked([2 if size > 64 else 1], [32], [4], [0])
    t = Text(ptr("x", "f32"), ptr("y", "f32"), ptr("o", "f32"))
    v = tensor([size], "f32", src)
    r = t("tt.cat", f"{t.load('%x', 'f32', [size], src)}, {t.load('%y', 'f32', [size], src)}", f"{v}, {v}",
          tensor([2 * size], "f32", dst))
    t.store("%o", r, "f32", [2 * size], dst)
    x, y = np.random.default_rng(0).standard_normal((2, size)).astype(np.float32)
    out = np.full(2 * size, np.nan, np.float32)
    kernel = t.kernel()
    kernel.run(x, y, out)
    assert sorted(out) == sorted([*x, *y])
    assert (kernel.metadata["shared"] > 0) == (size == 64)


def test_views_carried_by_a_loop():
    """A loop swaps two buffers; the view after an odd number of turns is the other one."""
    shared = swizzled(1, 1, 1, [1, 0])
    d = memdesc(SHAPE, "f32", shared)
    v = tensor(SHAPE, "f32", FROM)
    t = Text(ptr("x", "f32"), ptr("o", "f32"), "%n: i32")
    x = t.load("%x", "f32", SHAPE, FROM)
    first = alloc(t, SHAPE, "f32", shared, x, FROM)
    second = alloc(t, SHAPE, "f32", shared, t("arith.addf", f"{x}, {x}", f"{v}, {v}", v), FROM)
    zero, one = t.constant("0", "i32"), t.constant("1", "i32")
    t.lines.append(f"%l:2 = scf.for %i = {zero} to %n step {one} iter_args(%p = {first}, %q = {second}) -> ({d}, {d}) : i32 {{\n"
                   f" scf.yield %q, %p : {d}, {d}\n }}")
    t.store("%o", local_load(t, "%l#0", SHAPE, "f32", shared, TO), "f32", SHAPE, TO)
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    kernel = t.kernel()
    for n, scale in itertools.product((0, 1, 2, 3), [1]):
        out = np.full(SHAPE, np.nan, np.float32)
        kernel.run(x, out, n)
        np.testing.assert_array_equal(out, x * (scale + n % 2))
