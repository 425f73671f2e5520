"""Let loop-carried integers that are always equal be one.

Before and after: the same values. The rings of a specialised kernel count stages and phases each for itself (warp_rings.py); those of one
depth that a loop walks together hold the same numbers in every round. LLVM merges such values only where they are sums.

Two carried values are the same where they begin as the same and, given that all that are taken for the same are, so are what the loop's
round makes of them: values are numbered by op, attributes and operands' numbers, and classes of carried values split until this holds
(optimistic value numbering: Alpern, Wegman and Zadeck, "Detecting equality of variables in programs", POPL 1988).
"""

from __future__ import annotations

import itertools
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, Region, attribute_names, functions
from tilewright.dialects.pipeline import PassContext


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text. Carried values left without a use are dce_cse's to remove."""
    for function in functions(module):
        if any(node.name == "ttng.warp_specialize" for node in function.nodes()):
            _Numbering(function).run()


def _is_integer(value: Any) -> bool:
    return isinstance(value.type, (ir.IntegerType, ir.IndexType))


class _Numbering:
    """Numbers of a function's values: equal numbers, equal values."""

    def __init__(self, function: Function):
        self.function = function
        self.fresh = itertools.count()
        self.numbers: dict[Any, int] = {}
        self.expressions: dict[Any, int] = {}
        self.same: list[tuple[Any, Any]] = []  # (value, the one to use in its place)

    def run(self) -> None:
        self._region(self.function.body, note=True)
        for value, leader in self.same:
            self.function.replace_uses(value, leader)

    def number(self, value: Any) -> int:
        if value not in self.numbers:
            self.numbers[value] = next(self.fresh)
        return self.numbers[value]

    def _region(self, region: Region, note: bool) -> None:
        for node in region.ops:
            if node.name == "scf.for":
                self._loop(node, note)
            elif node.regions:
                for inner in node.regions:
                    self._region(inner, note)
            elif node.name.startswith("arith.") and len(node.results) == 1 and _is_integer(node.results[0]):
                attributes = tuple((name, str(node.op.attributes[name])) for name in attribute_names(node.op))
                expression = (node.name, attributes, str(node.results[0].type), *map(self.number, node.operands))
                self.numbers[node.results[0]] = self.expressions.setdefault(expression, next(self.fresh))

    def _loop(self, loop: Node, note: bool) -> None:
        """Split the classes of what the loop carries until a round keeps them; note what is equal."""
        (body,) = loop.regions
        args, end = body.args[1:], body.ops[-1]
        classes: list[Any] = [self.number(v) if _is_integer(v) else next(self.fresh) for v in loop.operands[3:]]
        while True:
            heads: dict[Any, Any] = {}
            for arg, c in zip(args, classes):
                self.numbers[arg] = heads.setdefault(c, next(self.fresh))
            self._region(body, False)
            split = [(self.numbers[arg], self.number(v)) for arg, v in zip(args, end.operands)]
            if len(set(split)) == len(heads):
                break
            classes = split
        if note:
            self._region(body, True)
        leaders: dict[Any, int] = {}
        results: dict[int, int] = {}
        for i, (arg, result) in enumerate(zip(args, loop.results)):
            leader = leaders.setdefault(self.numbers[arg], i)
            self.numbers[result] = results.setdefault(leader, next(self.fresh))
            if note and leader != i:
                self.same += [(arg, args[leader]), (result, loop.results[leader])]
