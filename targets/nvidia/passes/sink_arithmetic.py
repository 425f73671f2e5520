"""Compute what only the end of a kernel needs after its loops of products, not before.

Before and after: ttg of the same values. Kernels often make the addresses of their results first, which then lie in registers beside
the loops' accumulators. What is computed of nothing but scalars (ranges, splats and arithmetic on them, of integers and pointers) and
used only after the last loop of products moves down to its first use. So that LLVM does not carry the thread's part of it through the
loops all the same, what follows them reads the thread's number again (REST_READS_ANEW), and the program's (READ_ANEW).
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import (
    Function,
    Node,
    Region,
    attribute_names,
    functions,
    position,
    type_info,
)
from tilewright.dialects.lowering.context import READ_ANEW, REST_READS_ANEW
from tilewright.dialects.passes.remove_layout_conversions import sink
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.passes.warp_rings import DOT

_SHAPED = frozenset(("tt.make_range", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.addptr", "tt.reshape", "ttg.convert_layout"))


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    for function in functions(module):
        loops = [node for node in function.nodes() if node.name == "scf.for" and any(n.name == DOT for n in node.walk())]
        for region in dict.fromkeys(loop.region for loop in loops):
            assert region is not None
            last = [loop for loop in loops if loop.region is region][-1]
            _sink(function, region, last)
            _repeat(function, region, last)
            last.op.attributes[REST_READS_ANEW] = ir.UnitAttr.get()


def _sink(function: Function, region: Region, last: Node) -> None:
    """Move what is used only after ``last``."""
    arithmetic = [node for node in region.ops if _is_arithmetic(node)]
    # computed of scalars alone: nothing lives longer because of it but scalars
    alone: set[int] = set()
    for node in arithmetic:
        if all(type_info(v.type).shape is None or ((d := function.def_node(v)) is not None and (id(d) in alone or d.name == "arith.constant"))
               for v in node.operands):
            alone.add(id(node))
    for node in reversed(arithmetic):
        users = [_within(user, region) for user, _ in function.uses(node.results[0])]
        if id(node) in alone and users and position(node) < position(last) and all(position(last) < position(user) for user in users):
            sink(function, node)


def _repeat(function: Function, region: Region, last: Node) -> None:
    """Compute scalars of the program's number that ``last`` stands before once more, for what uses them after it."""
    after = region.ops[position(last) + 1:]
    again: dict[Any, Any] = {}
    known: dict[Any, bool | None] = {}

    def depends(value: Any) -> bool | None:
        """Whether a scalar follows from the program's number; None: it cannot be computed again."""
        if value not in known:
            known[value] = follow(value)
        return known[value]

    def follow(value: Any) -> bool | None:
        node = function.def_node(value)
        if node is None:
            return False if function.arg_of[value][0] is function.body else None
        if node.name in ("tt.get_program_id", "arith.constant"):
            return node.name != "arith.constant"
        if node.region is not region or not node.name.startswith("arith.") or type_info(value.type).shape is not None:
            return None
        found = [depends(v) for v in node.operands]
        return None if None in found else any(found)

    def repeat(value: Any) -> Any:
        node = function.def_node(value)
        if node is None or node.name == "arith.constant" or not depends(value):
            return value
        if value not in again:
            operands = [repeat(v) for v in node.operands]
            attributes = {name: node.op.attributes[name] for name in attribute_names(node.op)}
            if node.name == "tt.get_program_id":
                attributes[READ_ANEW] = ir.UnitAttr.get()
            again[value] = function.insert_before(after[0], node.name, [value.type], operands, attributes, node.op.location).results[0]
        return again[value]

    for top in after:
        for node in (top, *top.walk()):
            for i, v in enumerate(node.operands):
                if depends(v) and (made := function.def_node(v)) is not None and made.region is region and position(made) < position(last):
                    function.set_operand(node, i, repeat(v))


def _is_arithmetic(node: Node) -> bool:
    """Tensors of integers or pointers without effects; constants cost no registers."""
    if len(node.results) != 1 or node.regions or node.name == "arith.constant" or not (node.name in _SHAPED or node.name.startswith("arith.")):
        return False
    info = type_info(node.results[0].type)
    return info.shape is not None and info.kind != "float"


def _within(node: Node, region: Region) -> Node:
    """The op of ``region`` that is or holds ``node``."""
    while node.region is not region:
        parent = node.parent
        assert parent is not None
        node = parent
    return node
