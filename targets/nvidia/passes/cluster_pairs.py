"""Which loads two neighbouring programs share: blocks are launched in clusters of two, and such a tile is fetched once for both.

Whether programs 2q and 2q + 1 read the same tile depends on the arguments (a matmul's programs share B where the grid goes along M, A
where it goes along N), so the host decides at each launch: ``metadata["host"]["pairs"][bit]`` lists expressions that must have the same
value in both programs of every pair for descriptor ``bit`` of the kernel's argument *flags* to be set. Half of the tile is then fetched
by each block and multicast to both (PTX ISA, "cp.async.bulk.tensor", .multicast::cluster).

What must be equal is found from the coordinates' computation: values that do not depend on the program's number are; an op's result is
where its operands are; a value carried by a loop is where its beginning is and, supposing so, its next value. What remains are scalars
computed from the program's number outside of loops, which the host evaluates for every program of the grid.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, type_info
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.host_plan import FIRST_STREAM
from tilewright.targets.nvidia.passes.host_arguments import is_descriptor
from tilewright.targets.nvidia.passes.host_recipe import Host

BIT = "ttng.pair"  # i32, on a tt.descriptor_load: its bit of the flags
FLAGS = "ttng.launch_flags"  # i32, on the function: which argument the flags are
_ARITHMETIC = {"arith.addi": "add", "arith.subi": "sub", "arith.muli": "mul", "arith.divsi": "div", "arith.remsi": "rem",
               "arith.minsi": "min", "arith.maxsi": "max"}
_WIDENING = frozenset(("arith.extsi", "arith.index_cast"))


class Unknown(Exception):
    """The host cannot tell."""


def find_pairs(function: Function, ctx: PassContext) -> int:
    """Mark the loads in loops of which the host can tell whether pairs share them; how many descriptors that are. Program ids must still
    be what they are."""
    by_descriptor: dict[Any, list[Node]] = {}
    if sum(node.name == "ttng.warp_group_dot" for node in function.nodes()) != 1:
        return 0  # measured: attention gains nothing, and loses where its blocks wait for each other
    for node in function.nodes():
        if node.name == "tt.descriptor_load" and is_descriptor(node.operands[0]):
            by_descriptor.setdefault(node.operands[0], []).append(node)
    host = Host(ctx)
    pairs: list[list[int]] = []
    for loads in by_descriptor.values():
        if not any(load.depth for load in loads):
            continue
        try:
            values: dict[int, None] = {}
            for load in loads:
                for v in load.operands[1:]:
                    values.update(dict.fromkeys(Place(function, host).needed(v)))
        except Unknown:
            continue
        if len(pairs) < FIRST_STREAM and _splits(loads[0]):
            for load in loads:
                load.op.attributes[BIT] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), len(pairs))
            pairs.append(list(values))
    if pairs:
        ctx.metadata["host"]["pairs"] = pairs
    return len(pairs)


def _splits(load: Node) -> bool:
    """Whether the tile parts between two panels, so that each half takes no more copies than before."""
    info = type_info(load.results[0].type)
    return info.shape is not None and len(info.shape) == 2 and info.shape[1] * info.bits >= 2 * 1024


class Place:
    """The scalars that a value, as a tile's coordinate, depends on: where two programs have them in common, the value is the same in both."""

    def __init__(self, function: Function, host: Host):
        self.function, self.host = function, host
        self.seen: set[Any] = set()

    def needed(self, value: Any) -> list[int]:
        """Numbers of host expressions."""
        if value in self.seen:
            return []  # carried: supposed equal
        expression = self._expression(value)
        if expression is not None:
            return [expression] if self._varies(expression) else []
        self.seen.add(value)
        node = self.function.def_node(value)
        if node is None:
            region, index = self.function.arg_of[value]
            loop = region.parent
            if loop.name == "func.func":
                return []
            if loop.name != "scf.for":
                raise Unknown
            if index == 0:
                return [e for v in loop.operands[:3] for e in self.needed(v)]
            return [*self.needed(loop.operands[2 + index]), *self.needed(region.ops[-1].operands[index - 1])]
        if node.name == "scf.for":
            return [e for v in loop_values(node, node.results.index(value)) for e in self.needed(v)]
        if node.name == "scf.if":
            i = node.results.index(value)
            return [*self.needed(node.operands[0]), *(e for r in node.regions for e in self.needed(r.ops[-1].operands[i]))]
        if node.regions or not node.name.startswith("arith."):
            raise Unknown
        return [e for v in node.operands for e in self.needed(v)]

    def _varies(self, expression: int) -> bool:
        parts = self.host.data["expressions"][expression]
        if parts[0] == "program_id":
            return True
        return parts[0] in _ARITHMETIC.values() and any(self._varies(e) for e in parts[1:])

    def _expression(self, value: Any) -> int | None:
        """The host's expression of a scalar computed outside of loops; None where there is none."""
        node = self.function.def_node(value)
        if node is None:
            region, index = self.function.arg_of[value]
            if region.parent.name != "func.func" or type_info(value.type).kind != "int":
                return None
            return self.host.node("arg", index)
        if node.name == "arith.constant" and type_info(value.type).kind == "int" and type_info(value.type).shape is None:
            return self.host.const(node.int_attr("value"))
        if node.name in ("tt.get_program_id", "tt.get_num_programs"):
            return self.host.node(node.name.removeprefix("tt.get_"), node.int_attr("axis"))
        if node.name in _WIDENING:
            return self._expression(node.operands[0])
        if node.name in _ARITHMETIC:
            parts = [self._expression(v) for v in node.operands]
            return None if None in parts else self.host.node(_ARITHMETIC[node.name], *parts)
        return None


def loop_values(loop: Node, index: int) -> list[Any]:
    """What result ``index`` of an scf.for may be, and its bounds, on which the number of rounds depends."""
    return [*loop.operands[:3], loop.operands[3 + index], loop.regions[0].ops[-1].operands[index]]
