"""Buffers live at once never share bytes; those that are not, do; sizes, alignment, and the error above the limit."""

from __future__ import annotations

import random

import pytest
from shared_texts import alloc, commit, context, copy, index, kernel, load, memdesc, scratch, store, use, wait

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.liveness import Interval, Liveness
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import OutOfResources
from tilewright.dialects.passes import allocate_shared_memory as pass_
from tilewright.dialects.passes.allocate_shared_memory import Buffer, memdesc_bytes, place

SIZE = 32 * 32 * 4


@pytest.fixture(autouse=True)
def _scratch(monkeypatch):
    monkeypatch.setattr(pass_, "scratch_of", lambda node, hooks: 512 if node.name == "ttg.convert_layout" else 0)


def allocate(body, max_shared=1 << 20, **how):
    """(offset by the op's location order, total)."""
    ctx = context(max_shared)
    with mlir_context():
        module = ir.Module.parse(kernel(body))
        pass_.run(module, ctx, **how)
        offsets = [n.int_attr(pass_.OFFSET) for n in functions(module)[0].nodes() if pass_.OFFSET in n.op.attributes]
    return offsets, ctx.metadata["shared"]


def test_one_buffer():
    assert allocate(alloc("%a", src="%t") + load("%x", "%a") + use("%x")) == ([0], SIZE)


def test_nothing_shared():
    assert allocate(use("%t")) == ([], 0)


def test_live_together_lie_apart_and_dead_ones_are_reused():
    offsets, total = allocate(alloc("%a", src="%t") + alloc("%b", src="%t") + load("%x", "%a") + load("%y", "%b")
                              + alloc("%e", src="%x") + load("%z", "%e") + use("%y") + use("%z"))
    assert sorted(offsets[:2]) == [0, SIZE] and offsets[2] in (0, SIZE) and total == 2 * SIZE


def test_scratch_lies_beside_live_buffers_and_over_dead_ones():
    offsets, total = allocate(alloc("%a", src="%t") + scratch("%s", "%t") + load("%x", "%a") + scratch("%u", "%x") + use("%u") + use("%s"))
    assert offsets == [0, SIZE, 0] and total == SIZE + 512


def test_views_keep_the_buffer():
    offsets, total = allocate(
        alloc("%a", 2, 32, 32) + index("%v", "%a", "%c1", 2)
        + f'%w = "ttg.memdesc_trans"(%v) {{order = array<i32: 1, 0>}} : ({memdesc()}) -> {memdesc()}\n'
        + alloc("%b", src="%t") + load("%y", "%b") + load("%x", "%w") + use("%x") + use("%y"))
    assert offsets == [0, 2 * SIZE] and total == 3 * SIZE


LOOP = "scf.for %i = %c0 to %n step %c1 : i32 {{\n{}}}\n"


def test_used_in_a_loop_means_live_all_through_it():
    # %b is made after the last use of %a in the body, but the next iteration uses %a again
    offsets, total = allocate(alloc("%a", src="%t") + LOOP.format(load("%x", "%a") + alloc("%b", src="%x") + load("%y", "%b") + use("%y")))
    assert sorted(offsets) == [0, SIZE] and total == 2 * SIZE


def test_made_and_used_inside_a_loop_are_not_live_across_iterations():
    offsets, total = allocate(LOOP.format(alloc("%a", src="%t") + load("%x", "%a") + alloc("%b", src="%x") + load("%y", "%b") + use("%y")))
    assert offsets == [0, 0] and total == SIZE


def test_loop_carried_memdesc_holds_its_buffers_throughout():
    body = (alloc("%a", src="%t") + f"%r = scf.for %i = %c0 to %n step %c1 iter_args(%m = %a) -> ({memdesc()}) : i32 {{\n"
            + load("%x", "%m") + alloc("%tmp", src="%x") + load("%y", "%tmp") + alloc("%b", src="%y") + f"scf.yield %b : {memdesc()} }}\n"
            + load("%z", "%r") + use("%z"))
    (a, tmp, b), total = allocate(body)
    assert len({a, tmp, b}) == 3 and total == 3 * SIZE


def test_branch_results_alias_both_sides():
    body = (f"%r = scf.if %c -> ({memdesc()}) {{\n" + alloc("%a", src="%t") + f"scf.yield %a : {memdesc()} }} else {{\n"
            + alloc("%b", src="%t") + f"scf.yield %b : {memdesc()} }}\n" + alloc("%d", src="%t") + load("%y", "%d") + load("%x", "%r")
            + use("%x") + use("%y"))
    (a, b, d), _ = allocate(body)
    assert d not in (a, b)


def test_async_copy_lives_to_its_wait_by_token():
    body = (alloc("%a") + copy("%k", "%a") + commit("%g", "%k") + alloc("%b", src="%t") + load("%y", "%b") + use("%y")
            + wait("%w", 0, "%g") + alloc("%d", src="%t") + load("%z", "%d") + use("%z"))
    (a, b, d), total = allocate(body)
    assert a != b and total == 2 * SIZE and d in (a, b)


@pytest.mark.parametrize("num, reused", [(0, True), (1, False)])
def test_async_copy_without_token_lives_to_a_wait_for_all(num, reused):
    body = (alloc("%a") + LOOP.format(copy("%k", "%a") + commit("%g", "%k")) + wait("%w", num)
            + alloc("%d", src="%t") + load("%z", "%d") + use("%z"))
    (a, d), _ = allocate(body)
    assert (a == d) == reused


def test_wait_inside_a_branch_does_not_end_a_copy():
    body = (alloc("%a") + copy("%k", "%a") + commit("%g", "%k") + "scf.if %c {\n" + wait("%w", 0) + "}\n"
            + alloc("%d", src="%t") + load("%z", "%d") + use("%z"))
    (a, d), _ = allocate(body)
    assert a != d


def test_padding_and_element_sizes_count():
    padded = "#ttg.padded_shared<32 : i32, 4 : i32, array<i32: 1, 0>>"
    with mlir_context():
        def size(text):
            return memdesc_bytes(ir.Type.parse(text).maybe_downcast())

        assert size(f"!ttg.memdesc<array<i64: 32, 32>, f32, {padded}, true>") == (32 * 32 + 31 * 4) * 4
        assert size(f"!ttg.memdesc<array<i64: 3, 32, 32>, f16, {padded}, true>") == 3 * 2304  # stages begin at multiples of 16 bytes
        assert size("!ttg.memdesc<array<i64: 64>, i1, #ttg.swizzled_shared<1 : i32, 1 : i32, 1 : i32, array<i32: 0>>, true>") == 64


def test_panels_begin_at_multiples_of_their_alignment():
    panels = "#ttg.panel_shared<8 : i32, 8 : i32, 1 : i32, 1 : i32, array<i32: 1, 0>>"
    with mlir_context():
        type_ = f"!ttg.memdesc<array<i64: 3, 32, 8>, f16, {panels}, true>"
        assert memdesc_bytes(ir.Type.parse(type_).maybe_downcast()) == 3 * 1024  # a stage has 512 bytes
    panel = f'%p = "ttg.local_alloc"() {{operandSegmentSizes = array<i32: 0>}} : () -> {type_}\n'
    keep = f'"ttg.local_dealloc"(%p) : ({type_}) -> ()\n'
    small = '%s = "ttg.local_alloc"() {operandSegmentSizes = array<i32: 0>} : () -> !ttg.memdesc<array<i64: 1024>, f32, ' \
            "#ttg.swizzled_shared<1 : i32, 1 : i32, 1 : i32, array<i32: 0>>, true>\n"
    offsets, _ = allocate(small.replace("1024", "1040") + panel + keep
                          + small.replace("%s", "%t2") + '"ttg.local_dealloc"(%s) : (!ttg.memdesc<array<i64: 1040>, f32, '
                          "#ttg.swizzled_shared<1 : i32, 1 : i32, 1 : i32, array<i32: 0>>, true>) -> ()\n")
    assert offsets[1] % 1024 == 0 and offsets[1] >= 4160


def test_out_of_resources_names_the_largest_buffers_and_their_lines():
    body = (alloc("%a", 4, 32, 32).rstrip() + ' loc("kernel.py":41:5)\n' + alloc("%b", src="%t").rstrip() + ' loc("kernel.py":43:5)\n'
            + index("%v", "%a", "%c0", 4) + load("%x", "%v") + load("%y", "%b") + store("%y", "%v") + use("%x"))
    with pytest.raises(OutOfResources) as caught:
        allocate(body, max_shared=4 * SIZE)
    text = str(caught.value)
    assert caught.value.required == 5 * SIZE and caught.value.limit == 4 * SIZE
    assert f"{4 * SIZE} bytes for a buffer of 4x32x32xf32 (kernel.py:41); {SIZE} bytes for a buffer of 32x32xf32 (kernel.py:43)" in text
    assert "num_stages" in text
    assert allocate(body, max_shared=5 * SIZE)[1] == 5 * SIZE


def test_conversions_take_what_is_left(monkeypatch):
    """One that would not fit alone in any case, one that would not beside a live buffer where asked; stages are then given up elsewhere."""
    def needs(node, hooks):
        most = node.int_attr(pass_.MOST_SCRATCH) if pass_.MOST_SCRATCH in node.op.attributes else 1 << 20
        return max(256, min(4096, most)) if node.name == pass_.CONVERT else 0

    monkeypatch.setattr(pass_, "scratch_of", needs)
    alone, beside = scratch("%s", "%t") + use("%s"), alloc("%a", src="%t") + scratch("%s", "%t") + load("%x", "%a") + use("%x") + use("%s")
    assert allocate(alone, 3000) == ([0], 2048) and allocate(alone, 3000, squeeze=False) == ([0], 2048)
    assert allocate(beside, SIZE + 4096) == ([0, SIZE], SIZE + 4096)
    assert allocate(beside, SIZE + 2047) == ([0, SIZE], SIZE + 1024)
    with pytest.raises(OutOfResources, match="shared memory"):
        allocate(beside, SIZE + 2047, squeeze=False)
    with pytest.raises(OutOfResources) as caught:  # more than the least
        allocate(beside, SIZE + 255)
    assert caught.value.required == SIZE + 256
    with pytest.raises(OutOfResources) as caught:  # no conversion helps where the buffers do not fit
        allocate(beside, SIZE - 1)
    assert caught.value.required == SIZE + 2048


@pytest.mark.parametrize("seed", range(40))
def test_placement_never_overlaps_what_is_live_together(seed):
    rng = random.Random(seed)
    buffers = []
    for _ in range(rng.randint(1, 25)):
        start = rng.randint(0, 30)
        buffers.append(Buffer(Interval(None, start, start + rng.randint(0, 15)), rng.randint(1, 4000), rng.choice((16, 128, 1024))))
    total = place(buffers)
    for i, a in enumerate(buffers):
        assert a.offset % a.alignment == 0 and 0 <= a.offset and a.end <= total
        for b in buffers[:i]:
            assert not a.interval.overlaps(b.interval) or a.end <= b.offset or b.end <= a.offset
    # at every time the live bytes fit, and the whole is not worse than laying all end to end
    assert total <= sum(b.size + b.alignment for b in buffers)
    assert total >= max(sum(b.size for b in buffers if b.interval.start <= t <= b.interval.end) for t in range(50))


def test_intervals_number_nested_ops():
    with mlir_context():
        function = functions(ir.Module.parse(kernel(LOOP.format(use("%t")) + use("%t"))))[0]
        live = Liveness(function)
        loop = next(n for n in function.nodes() if n.name == "scf.for")
        assert live.of(loop).end - live.of(loop).start == 2  # print and yield
