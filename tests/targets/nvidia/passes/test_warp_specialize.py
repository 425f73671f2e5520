"""The passes that split a kernel into a producer and consumers: what they make of a matmul and of attention, and what they refuse."""

from __future__ import annotations

import re
from typing import Any

import descriptor_texts as texts
import pytest

from tilewright.dialects.analysis.structure import Function, Node, functions
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import VariantNeeded
from tilewright.dialects.printer import print_module
from tilewright.targets.host_expressions import Expressions

WAIT, ARRIVE, DOT, DONE = "ttng.wait_barrier", "ttng.arrive_barrier", "ttng.warp_group_dot", "ttng.warp_group_dot_wait"
COPY, EXPECT = "ttng.async_tma_copy_global_to_local", "ttng.barrier_expect"


def halves(module: Any) -> tuple[Function, Node, list[Node], list[Node]]:
    """(function, the op, ops of the consumers, ops of the producer)."""
    (function,) = functions(module)
    (op,) = [n for n in function.nodes() if n.name == "ttng.warp_specialize"]
    first, second = ([n for top in r.ops for n in (top, *top.walk())] for r in op.regions)
    return function, op, first, second


def protocol(nodes: list[Node]) -> list[str]:
    """The ops that matter to the rings, shortened."""
    kept = {WAIT: "wait", ARRIVE: "arrive", "ttng.arrive_barrier_remote": "remote", DOT: "dot", COPY: "copy", EXPECT: "expect", "scf.for": "for", "scf.if": "if", "scf.yield": "yield",
            "ttng.async_tma_copy_local_to_global": "store", "ttg.local_store": "fill", "ttng.tma_store_wait": "stored"}
    out = []
    for n in nodes:
        if n.name == DONE:
            out.append(f"done{n.int_attr('pendings')}({len(n.operands)})")
        elif n.name in kept:
            out.append(kept[n.name])
    return out


def test_matmul_keeps_one_product_in_flight_and_gives_back_the_stage_before() -> None:
    with mlir_context():
        module, ctx = texts.run(texts.MATMUL, texts.SPECIALISE)
        _, op, consumers, producer = halves(module)
        # a stage is given back to this block's producer, and again to it or to the other block's
        assert protocol(consumers) == ["for", "for", "wait", "dot", "done1(0)", "arrive", "arrive", "remote", "yield", "done0(1)", "arrive",
                                       "arrive", "remote", "stored", "fill", "store", "yield", "stored"]
        # A; of B one half or the other for both blocks, or all of it
        assert protocol(producer) == ["for", "for", "wait", "expect", "copy", "if", "if", "copy", "yield", "copy", "yield", "yield", "copy",
                                      "yield", "yield", "yield"]
        assert [op.int_attr(n) for n in ("consumer_registers", "producer_registers", "min_ctas")] == [240, 24, 1]
        text = print_module(module)
        assert not re.search(r"convert_layout", text)
        (expect,) = [n for n in producer if n.name == EXPECT]
        assert expect.int_attr("size") == (128 * 64 + 64 * 256) * 2
        assert [(d["box"], d["swizzle"]) for d in ctx.metadata["host"]["descriptors"]] == [([128, 64], 128), ([64, 64], 128), ([128, 64], 128)]
        assert ctx.metadata["persistent"] == {"ctas_per_sm": 1, "cluster": 2, "flags": True}


def test_two_blocks_share_the_operand_that_both_read() -> None:
    with mlir_context():
        module, ctx = texts.run(texts.MATMUL, texts.SPECIALISE)
        _, op, consumers, producer = halves(module)
        host = ctx.metadata["host"]
        assert op.int_attr("cluster") == 2 and len(host["pairs"]) == 1  # B: A's tile is one panel, which halves badly
        plan = Expressions(host["expressions"])
        (needed,) = host["pairs"]
        m, n, k = 128 * 4, 256 * 6, 64
        # the grid runs along M first: neighbours have one column of tiles, but not where there is one row of them
        assert plan.alike_in_pairs(needed, (m, n, k), (4, 6, 1))
        assert not plan.alike_in_pairs(needed, (128, n, k), (1, 6, 1))
        assert not plan.alike_in_pairs(needed, (m, n, k), (3, 5, 1))
        parts = [c for c in producer if c.name == COPY and "multicast" in c.op.attributes]
        assert [c.int_attr("multicast") for c in parts] == [3, 3]
        # every stage is counted by both blocks' consumers
        (function,) = functions(module)
        counts = sorted({n.int_attr("count") for n in function.nodes() if n.name == "ttng.init_barrier"})
        assert counts == [1, 2 * 2]


def test_the_grid_of_a_persistent_kernel_comes_before_the_tensor_maps() -> None:
    with mlir_context():
        module, _ = texts.run(texts.MATMUL, texts.SPECIALISE)
        (function,) = functions(module)
        types = [str(a.type) for a in function.body.args]
        assert types[:7] == ["i32"] * 7 and all(t.startswith("!tt.tensordesc") for t in types[7:]) and len(types) == 10
        assert function.root.int_attr("ttng.launch_flags") == 6


def test_phases_begin_apart_and_turn_where_the_ring_wraps() -> None:
    with mlir_context():
        module, _ = texts.run(texts.MATMUL, texts.SPECIALISE)
        function, _, consumers, producer = halves(module)
        for nodes, first in ((consumers, 0), (producer, 1)):
            outer = next(n for n in nodes if n.name == "scf.for")
            stage, phase = (function.def_node(v) for v in outer.operands[3:5])
            assert stage is not None and phase is not None
            assert (stage.int_attr("value"), phase.int_attr("value")) == (0, first)
            depths = [n for n in nodes if n.name == "arith.cmpi" and n.int_attr("predicate") == 0 and n.operands[0] in
                      [m.results[0] for m in nodes if m.name == "arith.addi"]]
            (limit,) = {function.def_node(n.operands[1]).int_attr("value") for n in depths}  # type: ignore[union-attr]
            assert limit >= 3
            (flip,) = [n for n in nodes if n.name == "arith.xori"]
            assert flip.operands[0] == flip.region.args[-1 if nodes is producer else -2]  # type: ignore[union-attr]


def test_attention_issues_the_next_scores_before_it_needs_the_last_sum() -> None:
    with mlir_context():
        module, _ = texts.run(texts.ATTENTION, texts.SPECIALISE)
        function, _, consumers, producer = halves(module)
        loop = [n for n in consumers if n.name == "scf.for"][-1]
        assert protocol([n for n in loop.walk()]) == ["wait", "dot", "wait", "dot", "done1(1)", "arrive", "done0(2)", "arrive", "yield"]
        # the operand in registers is cast only after the product that reads the old one is done
        done = [n for n in loop.walk() if n.name == DONE][-1]
        cast = next(n for n in loop.walk() if n.name == "arith.truncf")
        assert cast.operands[0] == done.results[1]
        assert protocol(producer).count("copy") == 1 + 1 + 2 + 1  # Q; K of the first round; K and V; V of the last
        # K and V of both places go through one ring each
        buffers = {function.def_node(function.def_node(n.operands[2]).operands[0]) for n in producer if n.name == COPY}  # type: ignore[union-attr]
        assert len(buffers) == 3


def test_stages_are_as_many_as_fit() -> None:
    with mlir_context():
        module, ctx = texts.run(texts.ATTENTION, texts.SPECIALISE, num_stages=5)
        assert "2 stages of 32768 bytes; 2 stages of 32768 bytes" in ctx.metadata["host"]["choices"][-1]["why"]


@pytest.mark.parametrize("text, warps, why", [
    (texts.MATMUL, 16, "num_warps is 16"),
    (texts.MATMUL.replace("128x256xf32", "32x256xf32").replace("128x256xf16", "32x256xf16").replace("128x64xf16", "32x64xf16")
     .replace("128, 64", "32, 64").replace("128, 256", "32, 256"), 8, "holds a matrix product of warp groups"),
])
def test_what_is_not_specialised_is_compiled_anew_without_bulk_copies(text: str, warps: int, why: str) -> None:
    with mlir_context(), pytest.raises(VariantNeeded) as raised:
        texts.run(text, texts.SPECIALISE, num_warps=warps)
    assert why in str(raised.value) and raised.value.options == {"tma": False}
