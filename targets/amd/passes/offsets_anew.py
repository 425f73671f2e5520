"""Compute the offsets of a loop's loads in each iteration, where registers are short and a few additions make them.

Before: buffer operations in loops with products take tiles of offsets from before the loop, a register for each vector. After: those that sums and
products of ranges and of a few numbers a row or column (``i % n``, which stay in registers) make are made again right before the operation, if
that holds fewer registers. Runs under the option ``addresses_anew``, which keeps LLVM from moving them out again (see fit_registers).
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects import encodings, ttg
from tilewright.dialects.analysis import structure
from tilewright.dialects.analysis.dots import TT_DOTS
from tilewright.dialects.analysis.layout_cost import registers
from tilewright.dialects.analysis.structure import Function, Node, erase_dead, functions, region_ancestor, type_info
from tilewright.dialects.pipeline import PassContext

_OFFSETS = {"amdg.buffer_load": 1, "amdg.buffer_store": 2}  # op → which operand
_CHEAP = frozenset(("tt.make_range", "tt.splat", "tt.broadcast", "tt.expand_dims", "arith.addi", "arith.muli", "arith.constant"))


class _Chain:
    """What makes a tile of offsets: ``ops`` (value → op to be made again, operands first), ``held`` (rows or columns that are not)."""

    def __init__(self, function: Function, loop: Node):
        self.function, self.loop = function, loop
        self.ops: dict[Any, Node] = {}
        self.held: list[Any] = []

    def follow(self, value: Any) -> bool:
        """False: something in it cannot be made again, nor held as a row or column."""
        info = type_info(value.type)
        if info.shape is None or value in self.ops or value in self.held:
            return True
        made = self.function.def_node(value)
        if made is not None and region_ancestor(made, self.loop.regions[0]) is not None:
            return False
        if made is not None and made.name in _CHEAP and all(map(self.follow, made.operands)):
            self.ops[value] = made
            return True
        if len(info.shape) != 1 or not isinstance(encodings.downcast(info.encoding), ttg.SliceEncoding):
            return False
        self.held.append(value)
        return True

    def holds(self, vector: list[int]) -> int:
        """Registers of a lane for what is held; of each vector the first element counts."""
        total = 0
        for value in self.held:
            info = type_info(value.type)
            sliced = encodings.integer(encodings.downcast(info.encoding).params[0])
            total += max(1, registers(info.shape or (), info.encoding) // vector[1 - sliced])
        return total


def _make_again(function: Function, loop: Node, node: Node) -> None:
    index = _OFFSETS[node.name]
    offsets = node.operands[index]
    info, vector = type_info(offsets.type), node.ints_attr("vector")
    chain = _Chain(function, loop)
    if len(vector) != 2 or not chain.follow(offsets) or offsets not in chain.ops:
        return
    if chain.holds(vector) >= registers(info.shape or (), info.encoding) // (vector[0] * vector[1]):
        return
    copies: dict[Any, Any] = {}
    for value, source in chain.ops.items():
        attributes = {name: source.op.attributes[name] for name in structure.attribute_names(source.op)}
        operands = [copies.get(v, v) for v in source.operands]
        copies[value] = function.insert_before(node, source.name, [value.type], operands, attributes).results[0]
    function.set_operand(node, index, copies[offsets])


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    for function in functions(module):
        for loop in [n for n in function.nodes() if n.name == "scf.for" and any(d.name in TT_DOTS for d in n.regions[0].ops)]:
            for node in [n for n in loop.regions[0].ops if n.name in _OFFSETS]:
                _make_again(function, loop, node)
        erase_dead(function)
