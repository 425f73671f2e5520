"""pipeline_loops: the form of what comes out, and that it computes and touches what the loop did, however late copies land."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from evaluate import Evaluator, poisoned
from kernel_texts import Text, attention, context, matmul, ptr

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions, type_info
from tilewright.dialects.context import mlir_context
from tilewright.dialects.passes import (
    accelerate_dot,
    allocate_shared_memory,
    coalesce,
    convert_tt_to_ttg,
    dce_cse,
    insert_barriers,
    optimize_dot_operands,
    pipeline_loops,
    remove_layout_conversions,
    verify_layouts,
)
from tilewright.dialects.passes.pipeline_schedule import Scheduler

BEFORE = (convert_tt_to_ttg, coalesce, accelerate_dot, remove_layout_conversions, optimize_dot_operands)
PIPELINE = (*BEFORE, pipeline_loops, dce_cse, allocate_shared_memory, insert_barriers)


def ctx_of(stages=3, sizes=(16, 8, 4), shared=160 << 10, warp_size=32):
    ctx = context(warp_size)
    ctx.capabilities = replace(ctx.capabilities, async_copy_bytes=sizes, max_shared_bytes=shared)
    ctx.options = SimpleNamespace(num_warps=4, num_stages=stages)
    return ctx


def compiled(text, ctx, passes=PIPELINE):
    module = ir.Module.parse(text)
    for p in passes:
        p.run(module, ctx)
        module.operation.verify()
        verify_layouts.run(module, ctx)
    return module, functions(module)[0]


class Machine(Evaluator):
    """Evaluates shared memory too. ``late``: an async copy lands when a wait forces it, else at once. Buffers begin as NaN, and
    reading one with a copy in flight into it fails. ``touched`` notes every address of global memory that is accessed."""

    def __init__(self, function, arguments, late):
        self.late, self.touched = late, set()
        self.groups, self.open = [], []
        super().__init__(function, arguments)
        assert not self.groups and not self.open, "copies were left in flight"

    def access(self, pointers, mask):
        index, mask, array = super().access(pointers, mask)
        p = np.asarray(pointers)
        self.touched.update(np.broadcast_to(p, mask.shape)[mask].ravel().tolist())
        return index, mask, array

    def _ttg_local_alloc(self, node, x, shape):
        buffer = np.full(node.results[0].type.shape, np.nan)
        if x:
            buffer[...] = x[0]
        return [buffer]

    def compute(self, node, x):
        if node.name == "ttg.local_alloc":
            return self._ttg_local_alloc(node, x, None)
        if node.name == "ttg.local_load":
            for target, _ in [c for g in self.groups for c in g] + self.open:
                assert not np.shares_memory(target, x[0]), "a slot is read with a copy into it in flight"
            return [np.array(x[0])]
        if node.name == "ttg.barrier":
            return []
        return super().compute(node, x)

    def _tt_load(self, node, x, shape):
        (value,) = super()._tt_load(node, x, shape)
        return [value.astype(np.int64) if type_info(node.results[0].type).kind == "int" else value]

    def _ttg_memdesc_index(self, node, x, shape):
        return [x[0][int(x[1])]]

    def _ttg_async_copy_global_to_local(self, node, x, shape):
        _, _, has_mask, has_other = node.ints_attr("operandSegmentSizes")
        assert not has_other
        index, mask, array = self.access(x[0], x[2] if has_mask else None)
        values = np.where(mask, array[index], 0)
        for target, _ in [c for g in self.groups for c in g] + self.open:
            assert not np.shares_memory(target, x[1]), "two copies in flight into one slot"
        if not self.late:
            x[1][...] = values
        self.open.append((x[1], values))
        return [None]

    def _ttg_async_commit_group(self, node, x, shape):
        self.groups.append(self.open)
        self.open = []
        return [None]

    def _ttg_async_wait(self, node, x, shape):
        while len(self.groups) > node.int_attr("num"):
            for target, values in self.groups.pop(0):
                target[...] = values
        return [None]


def check(text, make_arguments, ctx, late):
    """The pipelined kernel against the text as it is: same memory after, same addresses touched."""
    with mlir_context():
        plain = functions(ir.Module.parse(text))[0]
        expected = make_arguments()
        reference = Machine(plain, expected, False)
        _, function = compiled(text, ctx)
        got = make_arguments()
        machine = Machine(function, got, late)
    for a, b in zip(expected, got, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)
            assert not a.size or np.isfinite(a).any()
    assert machine.touched == reference.touched
    return function


def data(n, seed):
    return np.random.default_rng(seed).integers(-8, 8, n).astype(np.float64)  # sums are exact


def in_loop(function):
    """Names, and for waits their numbers, of the ops in loops."""
    return [f"wait{n.int_attr('num')}" if n.name == "ttg.async_wait" else n.name for n in function.nodes() if n.depth]


def matmul_arguments(k, m=32, n=32):
    def make():
        return [data(m * k, 1), data(k * n, 2), data(n, 3), poisoned(m * n), m, n, k, k, n, n]

    return make


# ------------------------------------------------------------------------------------------------------- the form
@pytest.mark.parametrize("stages", [2, 3, 4, 5])
def test_matmul_loop_waits_for_the_oldest_stage_only(stages):
    with mlir_context():
        module, f = compiled(matmul(64, 64, 32), ctx_of(stages))
        inside = in_loop(f)
        assert f"wait{stages - 2}" in inside
        assert inside.count("ttg.async_copy_global_to_local") == 2 and inside.count("ttg.async_commit_group") == 1
        assert inside.count("ttg.local_load") == 2 and inside.count("ttg.barrier") == 1
        for gone in ("ttg.local_store", "ttg.local_alloc", "tt.load"):
            assert gone not in inside
        outside = [n for n in f.nodes() if not n.depth]
        assert sum(n.name == "ttg.async_commit_group" for n in outside) == stages - 1
        assert [n.int_attr("num") for n in outside if n.name == "ttg.async_wait"] == [0]
        shapes = sorted(n.results[0].type.shape for n in outside if n.name == "ttg.local_alloc")
        assert shapes == [[stages, 32, 64], [stages, 64, 32]]
        # what only the moved loads needed is gone: the loop carries the accumulator, pointers ahead and the phase
        (loop,) = (n for n in f.nodes() if n.name == "scf.for")
        assert len(loop.results) == 4


def test_one_stage_means_no_pipelining():
    with mlir_context():
        _, f = compiled(matmul(64, 64, 32), ctx_of(1))
        assert "ttg.local_alloc" in in_loop(f) and not any("async" in n.name for n in f.nodes())


def test_the_loops_own_number_of_stages_counts():
    with mlir_context():
        module = ir.Module.parse(matmul(64, 64, 32))
        loop = next(n for n in functions(module)[0].nodes() if n.name == "scf.for")
        loop.op.attributes["tt.num_stages"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 5)
        _, f = compiled(str(module), ctx_of(2))
        assert "wait3" in in_loop(f)


@pytest.mark.parametrize("shared, buffers, barriers", [(160 << 10, 3, 1), (40 << 10, 2, 2)])
def test_short_of_shared_memory_the_copy_comes_last(shared, buffers, barriers):
    """Three stages of 16 KiB leave room for three blocks in 160 KiB, for none twice in 40 KiB."""
    with mlir_context():
        _, f = compiled(matmul(128, 128, 32), ctx_of(3, shared=shared))
        inside = in_loop(f)
        assert inside.count("ttg.barrier") == barriers and "wait1" in inside
        assert {n.results[0].type.shape[0] for n in f.nodes() if n.name == "ttg.local_alloc"} == {buffers}
        copy = inside.index("ttg.async_copy_global_to_local")
        assert (copy < inside.index("tt.dot")) == (buffers == 3)


def test_attention_waits_for_k_and_v_apart():
    with mlir_context():
        _, f = compiled(attention(), ctx_of(3))
        inside = in_loop(f)
        # two groups an iteration, two iterations ahead: four in flight, the oldest awaited
        assert [n for n in inside if n.startswith("wait")] == ["wait3", "wait3"]
        first_dot, second_dot = (i for i, n in enumerate(inside) if n == "tt.dot")
        first_wait, second_wait = (i for i, n in enumerate(inside) if n == "wait3")
        assert first_wait < first_dot < second_wait < second_dot
        assert "tt.load" not in inside


def test_prefetch_in_registers_without_async_copies():
    with mlir_context():
        _, f = compiled(matmul(64, 64, 32), ctx_of(3, sizes=()))
        inside = in_loop(f)
        assert not any("async" in n.name for n in f.nodes())
        # stored to shared memory, then the next iteration's load is issued, then the dot
        order = [n for n in inside if n in ("ttg.local_alloc", "tt.load", "ttg.barrier", "ttg.local_load", "tt.dot")]
        assert order == ["ttg.barrier", *["ttg.local_alloc"] * 2, *["tt.load"] * 2, "ttg.barrier", *["ttg.local_load"] * 2, "tt.dot"]
        assert sum(n.name == "tt.load" and not n.depth for n in f.nodes()) == 3  # two of the first iteration, the bias


def test_predicates_do_not_overflow():
    """Near the largest i32 the variable ahead may wrap, so the bound is lowered instead."""
    with mlir_context():
        module, f = compiled(matmul(64, 64, 32), ctx_of(3))
        (loop,) = (n for n in f.nodes() if n.name == "scf.for")
        compares = [n for n in loop.regions[0].ops if n.name == "arith.cmpi" and n.operands[0] == loop.regions[0].args[0]]
        assert compares and all(f.def_node(n.operands[1]).name == "arith.subi" for n in compares)
        assert all(f.def_node(n.operands[1]).depth == 0 for n in compares)


# --------------------------------------------------------------------------------------------------- what it computes
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("shared", [160 << 10, 12 << 10])
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("k", [0, 8, 16, 32, 40, 112])
def test_matmul_of_any_trip_count(k, stages, shared, late):
    function = check(matmul(32, 32, 16), matmul_arguments(k), ctx_of(stages, shared=shared), late)
    assert any(n.name == "ttg.async_copy_global_to_local" for n in function.nodes())


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("k", [0, 8, 16, 40, 112])
def test_matmul_prefetched_in_registers(k, stages):
    check(matmul(32, 32, 16), matmul_arguments(k), ctx_of(stages, sizes=()), False)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(16, 8, 4), ()])
@pytest.mark.parametrize("size, stages", [(1, 2), (16, 3), (33, 2), (97, 3), (97, 4)])
def test_attention_of_any_length(size, stages, sizes, causal, late):
    def make():
        q, k, v = (np.random.default_rng(s).standard_normal(size * 16).astype(np.float16).astype(np.float64) for s in range(3))
        return [q, k, v, poisoned(size * 16), 16, size, 0.25]

    check(attention(64, 16, 16, causal=causal), make, ctx_of(stages, sizes=sizes, shared=48 << 10), late)


def loop_text(build, element="f16", k=16):
    """y = sum over i of a_i @ b_i for i from lo to hi by step, a_i and b_i 16 rows further on each; ``build(t, …)`` may change it."""
    t = Text([("a", ptr(element), 16), ("b", ptr(element), 16), ("y", ptr("f32"), 16), ("lo", "i32", 1), ("hi", "i32", 1), ("step", "i32", 1),
              ("index", ptr("i32"), 16)])
    a, b, y, lo, hi, step, index = t.args
    rows, cols = t.range(k), t.range(k)
    offsets = t.bin("arith.addi", t.bin("arith.muli", t.expand(rows, 1), t.const(k, (), "i32")), t.expand(cols, 0))
    init = t.const("0.0", (k, k), "f32")
    build(t, SimpleNamespace(a=a, b=b, y=y, lo=lo, hi=hi, step=step, index=index, offsets=offsets, init=init, k=k, element=element))
    return str(t)


def tile(t, g, base, number):
    """Pointers to the 16 rows of number ``number``."""
    return t.addptr(base, t.bin("arith.addi", g.offsets, t.bin("arith.muli", number, t.const(g.k * g.k, (), "i32"))))


def simple(t, g, other=None, index=None, extra=None, store=None):
    with t.loop(g.lo, g.hi, g.step, [g.init]) as (i, (acc,), (result,)):
        number = i
        if index:
            number = t.load(t.addptr(g.index, i))
        mask = t.cmp(2, t.expand(t.range(g.k), 0), t.const(12, (), "i32"))
        value = t.const(other, (g.k, g.k), g.element) if other is not None else None
        x = t.load(tile(t, g, g.a, number), mask if value is not None else None, value)
        w = t.load(tile(t, g, g.b, i))
        d = t.dot(x, w, acc)
        if store is not None:
            t.store(tile(t, g, store, i), t.const("1.0", (g.k, g.k), "f32"))
        if extra is not None:
            d = extra(t, g, x, d)
        t.yield_([d])
    t.store(t.addptr(g.y, g.offsets), result)


def loop_arguments(lo, hi, step, k=16, seed=0):
    def make():
        rng = np.random.default_rng(seed)
        n = max(hi, 1)
        return [data(n * k * k, seed), data(n * k * k, seed + 1), poisoned(n * k * k), lo, hi, step, rng.permutation(n).astype(np.int64)]

    return make


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("bounds", [(0, 0, 1), (3, 2, 1), (0, 1, 1), (2, 9, 3), (1, 8, 2), (5, 12, 1)])
def test_any_bounds_and_unmasked_loads(bounds, late):
    function = check(loop_text(simple), loop_arguments(*bounds), ctx_of(4), late)
    assert in_loop(function).count("ttg.async_copy_global_to_local") == 2


@pytest.mark.parametrize("bounds", [(0, 0, 1), (0, 1, 1), (2, 9, 3)])
def test_other_that_is_not_zero_is_prefetched_in_registers(bounds):
    function = check(loop_text(lambda t, g: simple(t, g, other="2.0")), loop_arguments(*bounds), ctx_of(3), True)
    inside = in_loop(function)
    assert inside.count("ttg.async_copy_global_to_local") == 1 and inside.count("tt.load") == 1
    zero = check(loop_text(lambda t, g: simple(t, g, other="0.0")), loop_arguments(*bounds), ctx_of(3), True)
    assert in_loop(zero).count("ttg.async_copy_global_to_local") == 2


@pytest.mark.parametrize("bounds", [(0, 0, 1), (0, 1, 1), (1, 7, 1)])
def test_loaded_addresses_are_loaded_ahead_too(bounds):
    """The index of the iteration beyond the last is not read: check() compares the addresses touched."""
    function = check(loop_text(lambda t, g: simple(t, g, index=True)), loop_arguments(*bounds), ctx_of(3), True)
    assert in_loop(function).count("ttg.async_copy_global_to_local") == 1
    assert in_loop(function).count("tt.load") == 2  # the index, and the tile it leads to, of the next iteration


def test_too_narrow_copies_are_prefetched_in_registers():
    text = matmul(32, 32, 16).replace("tt.divisibility = 16", "tt.divisibility = 1")
    function = check(text, matmul_arguments(40), ctx_of(3), True)
    assert not any("async" in n.name for n in function.nodes()) and "tt.load" in in_loop(function)
    wide = check(matmul(32, 32, 16, "f32", out="f32", precision="tf32").replace("tt.divisibility = 16", "tt.divisibility = 4"),
                 matmul_arguments(40), ctx_of(3), True)
    assert in_loop(wide).count("ttg.async_copy_global_to_local") == 2  # four bytes are one element


def test_other_users_of_the_load_read_the_slot():
    def extra(t, g, x, d):
        return t.bin("arith.addf", d, t.cast("arith.extf", x, "f32"))

    function = check(loop_text(lambda t, g: simple(t, g, extra=extra)), loop_arguments(0, 5, 1), ctx_of(3), True)
    assert "tt.load" not in in_loop(function) and in_loop(function).count("ttg.local_load") >= 3


def test_stores_of_the_loop_hold_back_only_loads_of_the_same_argument():
    def elsewhere(t, g):
        simple(t, g, store=g.y)

    def make():
        return [data(6 * 256, 0), data(6 * 256, 1), poisoned(6 * 256), 0, 6, 1, np.arange(6)]

    function = check(loop_text(elsewhere), make, ctx_of(3), True)
    assert in_loop(function).count("ttg.async_copy_global_to_local") == 2

    def same(t, g):  # writes the tile of b that the next iteration reads
        with t.loop(g.lo, g.hi, g.step, [g.init]) as (i, (acc,), (result,)):
            d = t.dot(t.load(tile(t, g, g.a, i)), t.load(tile(t, g, g.b, i)), acc)
            nxt = t.bin("arith.addi", i, t.const(1, (), "i32"))
            t.store(tile(t, g, g.b, nxt), t.const("3.0", (g.k, g.k), "f16"))
            t.yield_([d])
        t.store(t.addptr(g.y, g.offsets), result)

    def make_more():
        return [data(6 * 256, 0), data(7 * 256, 1), poisoned(6 * 256), 0, 6, 1, np.arange(6)]

    function = check(loop_text(same), make_more, ctx_of(3), True)
    assert in_loop(function).count("ttg.async_copy_global_to_local") == 1 and in_loop(function).count("tt.load") == 1


@pytest.mark.parametrize("fence", ['"tt.debug_barrier"() : () -> ()', '%old = "tt.atomic_rmw"(%index, %lo) {rmw_op = "add", sem = "acq_rel", '
                                   'scope = "gpu", operandSegmentSizes = array<i32: 1, 1, 0>} : (!tt.ptr<i32, 1 : i32>, i32) -> i32'])
def test_nothing_is_loaded_ahead_over_fences(fence):
    text = loop_text(simple)
    assert "tt.dot" in text
    text = re.sub(r"(%\d+ = \"tt\.dot\")", lambda m: fence + "\n" + m.group(1), text)
    with mlir_context():
        _, f = compiled(text, ctx_of(3))
        assert not any("async" in n.name for n in f.nodes()) and in_loop(f).count("tt.load") == 2
        assert sum(n.name == "tt.load" for n in f.nodes()) == 2


def test_volatile_loads_stay():
    text = loop_text(simple).replace("is_volatile = false", "is_volatile = true")
    with mlir_context():
        _, f = compiled(text, ctx_of(3))
        assert in_loop(f).count("tt.load") == 2 and sum(n.name == "tt.load" for n in f.nodes()) == 2


def test_two_loops_are_both_pipelined():
    def two(t, g):
        with t.loop(g.lo, g.hi, g.step, [g.init]) as (i, (acc,), (first,)):
            t.yield_([t.dot(t.load(tile(t, g, g.a, i)), t.load(tile(t, g, g.b, i)), acc)])
        with t.loop(t.const(0, (), "i32"), g.lo, g.step, [first]) as (i, (acc,), (result,)):
            t.yield_([t.dot(t.load(tile(t, g, g.b, i)), t.load(tile(t, g, g.a, i)), acc)])
        t.store(t.addptr(g.y, g.offsets), result)

    function = check(loop_text(two), loop_arguments(3, 7, 1), ctx_of(3), True)
    assert in_loop(function).count("ttg.async_commit_group") == 2


def test_the_inner_of_two_nested_loops_is_pipelined():
    def nested(t, g):
        with t.loop(g.lo, g.hi, g.step, [g.init]) as (i, (outer,), (result,)):
            with t.loop(t.const(0, (), "i32"), i, g.step, [outer]) as (j, (acc,), (inner,)):
                t.yield_([t.dot(t.load(tile(t, g, g.a, j)), t.load(tile(t, g, g.b, i)), acc)])
            t.yield_([inner])
        t.store(t.addptr(g.y, g.offsets), result)

    function = check(loop_text(nested), loop_arguments(1, 6, 1), ctx_of(3), True)
    depths = {n.depth for n in function.nodes() if n.name == "ttg.async_copy_global_to_local"}
    assert depths == {1, 2}  # the prologue lies in the outer loop


def test_known_trip_counts_need_no_predicates_in_the_prologue():
    def known(t, g):
        with t.loop(t.const(0, (), "i32"), t.const(2, (), "i32"), t.const(1, (), "i32"), [g.init]) as (i, (acc,), (result,)):
            t.yield_([t.dot(t.load(tile(t, g, g.a, i)), t.load(tile(t, g, g.b, i)), acc)])
        t.store(t.addptr(g.y, g.offsets), result)

    function = check(loop_text(known), loop_arguments(0, 2, 1), ctx_of(4), True)
    outside = [n for n in function.nodes() if n.name == "ttg.async_copy_global_to_local" and not n.depth]
    # iterations 0 and 1 exist, iteration 2 does not
    assert [len(n.operands) for n in outside] == [2, 2, 2, 2, 3, 3]


def test_plans_say_which_loads_share_a_wait():
    with mlir_context():
        for text, groups in ((matmul(64, 64, 32), [2]), (attention(), [1, 1])):
            _, f = compiled(text, ctx_of(3), BEFORE)
            scheduler = Scheduler(f, ctx_of(3))
            (loop,) = scheduler.loops()
            plan = scheduler.plan(loop)
            assert [len(g) for g in plan.groups] == groups and not plan.registers
