"""What is computed where: which tensors of a tt function are made in memory when they are defined ("materialised"), and which
are only functions of an index, evaluated in the loops of the ops that need them.

Ops that need loops of their own (stores, reductions, dots, …) are *roots*. A tensor that is dear and that several roots
need, or that a loop would compute again and again, is materialised; so is a load that a store may overtake.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.dialects.analysis.structure import Function, Node, Region, type_info

STRUCTURAL = frozenset(("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.make_range", "tt.trans", "tt.join", "tt.split"))
# Ops with loops or effects of their own; whatever else has tensors is elementwise.
ROOTS = frozenset((
    "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.reduce", "tt.scan", "tt.dot", "tt.gather", "tt.histogram", "tt.reshape", "tt.cat",
    "tt.print", "tt.assert", "tt.unsplat", "tt.elementwise_inline_asm", "scf.for", "scf.while", "scf.if", "scf.yield", "scf.condition",
    "func.return", "tt.assume", "tt.debug_barrier"))
WRITES = frozenset(("tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.debug_barrier"))
_CHEAP_LIMIT = 3.0  # dearer tensors are not computed twice
_COST = {"math.exp": 8.0, "math.exp2": 7.0, "math.log": 9.0, "math.log2": 9.0, "math.sin": 12.0, "math.cos": 12.0, "math.tanh": 12.0,
         "math.erf": 14.0, "math.sqrt": 5.0, "math.rsqrt": 6.0, "arith.divf": 4.0, "arith.remf": 12.0, "arith.divsi": 8.0,
         "arith.divui": 8.0, "arith.remsi": 8.0, "arith.remui": 8.0, "tt.extern_elementwise": 14.0, "tt.precise_sqrt": 5.0,
         "tt.precise_divf": 4.0, "tt.fp_to_fp": 4.0, "tt.load": 2.5, "arith.muli": 0.5}
_FREE = frozenset(("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.make_range", "tt.trans", "arith.constant", "tt.bitcast",
                   "tt.int_to_ptr", "tt.ptr_to_int"))


def is_tensor(value: Any) -> bool:
    return type_info(value.type).shape is not None


class Plan:
    """``materialised``: values to be made in memory at their op. ``deltas``: (loop node, k) → the scalars that each iteration adds to
    the carried integer or pointer tensor k. ``in_place``: (loop node, k) whose new value may be written over the old."""

    def __init__(self, function: Function):
        self.function = function
        self.materialised: set[Any] = set()
        self.deltas: dict[tuple[Node, int], list[Any]] = {}
        self.in_place: set[tuple[Node, int]] = set()
        self.destination: dict[Any, tuple[Node, int]] = {}  # value → the loop's carried slot that it becomes
        self._costs: dict[Any, float] = {}
        self._sinks: dict[Any, frozenset[Node]] = {}
        self._crossing: dict[Any, bool] = {}
        self._repeat: dict[Any, int] = {}
        self._roots: dict[Any, Any] = {}
        loops = [n for n in function.nodes() if n.name == "scf.for"]
        for loop in loops:
            self._find_deltas(loop)
        self._decide(function.body)
        for loop in loops:
            self._find_in_place(loop)

    # ------------------------------------------------------------------------------------------------ loops
    def uniform(self, value: Any) -> Any:
        """The scalar (value or constant's node) that every element of the tensor equals, or None."""
        node = self.function.def_node(value)
        if node is None:
            return None
        if node.name == "tt.splat":
            return node.operands[0]
        if node.name == "arith.constant":
            return node
        if node.name in ("tt.broadcast", "tt.expand_dims"):
            return self.uniform(node.operands[0])
        return None

    def _find_deltas(self, loop: Node) -> None:
        body = loop.regions[0]
        for k, arg in enumerate(body.args[1:]):
            info = type_info(arg.type)
            if info.shape is None or info.kind not in ("int", "ptr") or info.bits == 1:
                continue
            steps, value = [], body.ops[-1].operands[k]
            while value is not None and value != arg:
                node = self.function.def_node(value)
                value = None
                if node is not None and node.region is body and node.name in ("tt.addptr", "arith.addi"):
                    for step, rest in ((1, 0), (0, 1)) if node.name == "arith.addi" else ((1, 0),):
                        found = self.uniform(node.operands[step])
                        if found is not None:
                            steps.append(found)
                            value = node.operands[rest]
                            break
            if value is not None:
                self.deltas[loop, k] = steps

    def _find_in_place(self, loop: Node) -> None:
        body = loop.regions[0]
        end = body.ops[-1]
        for k, arg in enumerate(body.args[1:]):
            if not is_tensor(arg) or (loop, k) in self.deltas:
                continue
            new = end.operands[k]
            if sum(v == new for v in end.operands) > 1:
                continue
            node = self.function.def_node(new)
            inside = node is not None and node.region is body
            if inside and (new in self.materialised or node.name in ("tt.dot", "tt.reduce", "tt.scan")) and new not in self.destination:
                self.destination[new] = (loop, k)
            if inside and node.name == "tt.dot" and self.sinks(new) == {end} and self._only_reaches(arg, node, 2):
                self.in_place.add((loop, k))
            elif inside and new not in self.materialised and node.name not in ROOTS and self._only_reaches(arg, end, k):
                self.in_place.add((loop, k))

    def _only_reaches(self, arg: Any, sink: Node, operand: int) -> bool:
        """Whether ``arg`` is read only for elementwise chains of its own shape that end in that operand of ``sink``."""
        shape, todo, seen = type_info(arg.type).shape, [arg], set()
        while todo:
            value = todo.pop()
            for node, index in self.function.uses(value):
                if node is sink:
                    if index != operand:
                        return False
                    continue
                if node.region is not sink.region or node.name in ROOTS or node.name in STRUCTURAL or node.name == "tt.load":
                    return False
                for result in node.results:
                    if result in self.materialised or type_info(result.type).shape != shape:
                        return False
                    if result not in seen:
                        seen.add(result)
                        todo.append(result)
        return True

    # ---------------------------------------------------------------------------------------------- decisions
    def sinks(self, value: Any) -> frozenset[Node]:
        """The roots and materialised ops that evaluate ``value``."""
        if value not in self._sinks:
            self._examine(value)
        return self._sinks[value]

    def _examine(self, value: Any) -> None:
        sinks: set[Node] = set()
        crossing, repeat = False, 1
        home = self.function.region_of(value)
        for node, index in self.function.uses(value):
            if node.region is not home:
                crossing = True
            if node.name == "scf.for" and (node, index - 3) in self.deltas:
                arg = node.regions[0].args[index - 2]
                sinks |= self.sinks(arg)
                sinks.add(node)
                crossing = True
                continue
            if node.name in ROOTS or (node.name == "tt.load" and not is_tensor(node.results[0])):
                sinks.add(node)
                continue
            for result in node.results:
                if result in self.materialised:
                    sinks.add(node)
                else:
                    sinks |= self.sinks(result)
                    crossing |= self._crossing[result]
                factor = self._repeat.get(result, 1) if result not in self.materialised else 1
                if node.name == "tt.broadcast":
                    old, new = type_info(value.type).shape, type_info(result.type).shape
                    for a, b in list(zip(old or (), new or ()))[:-1]:
                        factor *= b // a
                repeat = max(repeat, factor)
        self._sinks[value], self._crossing[value], self._repeat[value] = frozenset(sinks), crossing, repeat

    def cost(self, value: Any) -> float:
        """Work an element, in simple vector instructions, with the operands that are not materialised."""
        found = self._costs.get(value)
        if found is not None:
            return found
        node = self.function.def_node(value)
        if node is None or not is_tensor(value) or value in self.materialised or node.name in ROOTS:
            found = 0.5
        else:
            info = type_info(value.type)
            base = _COST.get(node.name)
            if base is None:
                base = 0.0 if node.name in _FREE else 0.3 if info.kind in ("int", "ptr") else 1.0
                if base == 1.0 and info.bits == 16:
                    base = 3.0  # rounding to bf16 or f16 is work
            found = base + sum(self.cost(v) for v in node.operands if is_tensor(v) and node.name != "arith.constant")
            if all(self.uniform(v) is not None for v in node.operands) and node.name not in ("tt.load", "tt.make_range"):
                found = 0.1
        self._costs[value] = found
        return found

    def _decide(self, region: Region) -> None:
        for node in reversed(region.ops):
            for inner in node.regions if node.name.startswith("scf.") else ():
                self._decide(inner)
            if node.name in ROOTS or node.name == "arith.constant":
                continue
            for value in node.results:
                if not is_tensor(value):
                    continue
                self._costs.pop(value, None)
                if self._must(node, value):
                    self.materialised.add(value)
        self._costs.clear()

    def _must(self, node: Node, value: Any) -> bool:
        sinks = self.sinks(value)
        crossing, repeat = self._crossing[value], self._repeat[value]
        if node.name == "tt.load":
            if not sinks:
                return bool(node.bool_attr("is_volatile"))
            if len(sinks) > 1 or crossing or repeat >= 4 or node.bool_attr("is_volatile"):
                return True
            return not self._may_wait(node, next(iter(sinks)))
        if not sinks:
            return False
        if node.name == "tt.extern_elementwise" and not node.bool_attr("pure"):
            return True
        self._costs.clear()
        return (len(sinks) > 1 or crossing or repeat >= 4) and self.cost(value) > _CHEAP_LIMIT

    # ---------------------------------------------------------------------------------------- order of memory
    def _may_wait(self, load: Node, sink: Node) -> bool:
        """Whether nothing between ``load`` and ``sink``, nor ``sink`` itself, may change what the load reads."""
        region = load.region
        if region is None or sink.region is not region:
            return False
        at = _position(region.ops, load)
        for node in region.ops[at + 1:]:
            if node is sink:
                break
            if writes(node):
                return False
        if sink.name in WRITES:
            pointer = sink.operands[0] if sink.operands else None
            if pointer is None or any(p == pointer for p in load.operands[:1]):
                return pointer is not None and sink.name == "tt.store"
            a, b = self.base(load.operands[0]), self.base(pointer)
            # Two pointer arguments whose arrays overlap without being one are a race in the language, as on a GPU.
            return a is not None and b is not None and a != b
        return not sink.regions or not any(writes(n) for n in (sink, *sink.walk()))

    def base(self, value: Any) -> Any:
        """The kernel's argument that a pointer is derived from, or None."""
        if value in self._roots:
            return self._roots[value]
        self._roots[value] = None  # ends cycles through loops
        node = self.function.def_node(value)
        found = None
        if node is None:
            region, index = self.function.arg_of[value]
            parent = region.parent
            if parent is self.function.root:
                found = value
            elif parent is not None and parent.name == "scf.for" and index > 0:
                found = self.base(parent.operands[index + 2])
                new = self.base(region.ops[-1].operands[index - 1]) if found is not None else None
                if new is not None and new != found:
                    found = None
        elif node.name in ("tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.trans", "tt.bitcast", "tt.reshape"):
            found = self.base(node.operands[0])
        elif node.name == "scf.for":
            found = self.base(node.operands[self.function.defs[value][1] + 3])
        self._roots[value] = found
        return found


def writes(node: Node) -> bool:
    """Whether the op, or one inside it, writes memory or waits for others."""
    return node.name in WRITES or any(n.name in WRITES for n in node.walk())


def _position(ops: Iterable[Node], node: Node) -> int:
    return next(i for i, n in enumerate(ops) if n is node)
