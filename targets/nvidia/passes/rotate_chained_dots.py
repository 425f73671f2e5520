"""Let the last product of a loop's chain run beside the first one of the next round, as FlashAttention-3 does.

Before, in a loop whose round computes S = A·K, values from S, and then O += P·V with P from S and O used by nothing but the next round::

    for i: S = dot(q, k[i]); …; o' = f(o, S); p = g(S); o = dot(p, v[i], o')

After, the product of round i is issued in round i+1, after the first one there, where nothing has to wait for it::

    if there is a round:
      S = dot(q, k[0]); …; o' = f(o, S); p = g(S)
      for i from the second: S = dot(q, k[i]); o = dot(p, v[i-1], o'); … o' = f(o, S); p = g(S)
      o = dot(p, v[last], o')

(Shah et al., "FlashAttention-3: Fast and Accurate Attention with Asynchrony and Low-precision", section 3.2.) What reads o stands as late
as it may in the round, and the casts that make p stand last: warp_consumers.py waits for the product in between.

Two warp groups take turns to issue their two products, so that one computes its softmax while the other's products run: where the first
product is at least as deep as _DEEP, since softmax takes longer than the products of fewer, and who waits for its turn only loses time.

The load of v moves with its product, so that its stage of shared memory is in use no longer than the product needs it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.loop_edit import clone_under
from tilewright.dialects.analysis.structure import (
    Function,
    Node,
    attribute_names,
    functions,
    is_removable,
    reaches,
    type_info,
)
from tilewright.dialects.errors import VariantNeeded
from tilewright.dialects.passes.pipeline_schedule import constant
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.passes.warp_registers import OTHERS, fewest_rows, loaded_words, tiles_in_use
from tilewright.targets.nvidia.passes.warp_rings import DOT, TURN, VIEWS

_MOST_REGISTERS, _ALL_REGISTERS = 232, 255  # of a consumer's thread where two blocks share the registers, and of any
_DEEP = 128
_CASTS = frozenset(("arith.truncf", "ttg.convert_layout", "tt.fp_to_fp"))


def run(module: Any, ctx: PassContext) -> None:
    """Before and after: see the module's text. Loops without such a chain stay.

    Raises VariantNeeded where a loop's tiles need more registers than a thread has, and twice as many warps would have them.
    """
    for function in functions(module):
        for node in function.nodes():
            if node.name == "scf.for":
                _check_registers(tiles_in_use(function, node), _ALL_REGISTERS, node, ctx)
    done: set[Any] = set()
    while _one(module, ctx, done):
        pass  # the mirror is stale once a loop was rewritten


def _one(module: Any, ctx: PassContext, done: set[Any]) -> bool:
    for function in functions(module):
        for node in function.nodes():
            if node.name == "scf.for" and node.op not in done:
                done.add(node.op)
                last = find(function, node)
                if last is not None and _fits(node, last, ctx):
                    done.add(Rotation(function, node, last).run())
                    return True
    return False


def find(function: Function, loop: Node) -> Node | None:
    """The product to move: its result is only carried, its first operand is in registers and comes from another product of the round."""
    body = loop.regions[0]
    dots = [n for n in body.ops if n.name == DOT]
    if len(dots) != 2 or any(n.name.startswith("scf.") for n in body.ops[:-1]):
        return None
    first, last = dots
    end = body.ops[-1]
    uses = function.uses(last.results[0])
    if len(uses) != 1 or uses[0][0] is not end or str(last.operands[0].type).startswith("!ttg.memdesc"):
        return None
    carried = body.args[1 + uses[0][1]]
    if reaches(function, body, first.operands, carried) or not reaches(function, body, last.operands[:1], first.results[0]):
        return None
    moved = moved_with(function, last)
    if moved is None:
        return None
    # everything else of the round may be reordered around the product
    if not all(is_removable(n) or n.name in (DOT, "tt.descriptor_load", "tt.reduce") for n in body.ops[:-1]):
        return None
    return last


def _fits(loop: Node, last: Node, ctx: PassContext) -> bool:
    """Whether a thread has registers for what is live at once: both accumulators, and the second product's operand.

    Raises VariantNeeded where twice as many warps would have them.
    """
    first = next(n for n in loop.regions[0].ops if n.name == DOT)
    scores, total, operand = (type_info(v.type) for v in (first.results[0], last.results[0], last.operands[0]))
    words = scores.numel + total.numel + operand.numel * operand.bits // 32 + loaded_words(loop)
    return _check_registers(words, _MOST_REGISTERS, loop, ctx)


def _check_registers(words: int, most: int, loop: Node, ctx: PassContext) -> bool:
    """Whether a thread's part of ``words`` fits ``most`` registers. Raises VariantNeeded where twice as many warps would have them."""
    needed = words // (32 * ctx.num_warps) + OTHERS
    if needed <= most:
        return True
    if ctx.num_warps == 4 and fewest_rows(loop) >= 128:
        raise VariantNeeded({"num_warps": 8}, f"the products of a loop keep {needed} registers a thread in use; two warp groups share them")
    return False


def moved_with(function: Function, dot: Node) -> list[Node] | None:
    """The product, and the load, buffer and views of its second operand where nothing else reads them, in program order."""
    moved = [dot]
    value = dot.operands[1]
    while True:
        node = function.def_node(value)
        if node is None or node.region is not dot.region:
            return None
        if len(function.uses(value)) != 1:
            return None
        moved.insert(0, node)
        if node.name == "tt.descriptor_load":
            return moved
        if node.name not in VIEWS and node.name != "ttg.local_alloc":
            return None
        value = node.operands[0]


def _depth(dot: Node) -> int:
    """Elements that the product sums over."""
    type_ = dot.operands[1].type  # B lies in shared memory
    return int(ttg.MemDescType(type_).shape[0])


class Rotation:
    """Rewrites one loop."""

    def __init__(self, function: Function, loop: Node, last: Node):
        self.function, self.loop, self.last = function, loop, last
        self.body = loop.regions[0]
        moved = moved_with(function, last)
        assert moved is not None
        self.moved = moved
        ids = {id(n) for n in moved}
        self.end = self.body.ops[-1]
        self.slot = next(i for i, v in enumerate(self.end.operands) if v == last.results[0])
        # values of the round that the moved ops read: the next round gets them
        self.crossing: list[Any] = []
        for node in moved:
            for v in node.operands:
                made = function.def_node(v)
                inside = made is not None and made.region is self.body and id(made) not in ids
                argument = v in function.arg_of and function.arg_of[v][0] is self.body
                if (inside or argument) and v not in self.crossing:
                    self.crossing.append(v)
        self.rest = self._ordered([n for n in self.body.ops[:-1] if id(n) not in ids])
        self.first = next(n for n in self.rest if n.name == DOT)
        self.takes_turns = _depth(self.first) >= _DEEP

    def _turn(self, node: Node, which: str) -> dict[int, str]:
        return {id(node): which} if self.takes_turns else {}

    def _ordered(self, rest: list[Node]) -> list[Node]:
        """First what does not read the carried product, then what does, then the casts of what crosses."""
        carried = self.body.args[1 + self.slot]
        late: set[int] = set()
        for node in rest:
            if any(v == carried or ((d := self.function.def_node(v)) is not None and id(d) in late) for v in node.operands):
                late.add(id(node))
        casts: set[int] = set()
        value = self.last.operands[0]
        cast = self.function.def_node(value)
        while cast is not None and cast.name in _CASTS and len(self.function.uses(value)) == 1:
            casts.add(id(cast))
            value = cast.operands[0]
            cast = self.function.def_node(value)
        first = [n for n in rest if id(n) not in late and id(n) not in casts]
        return first + [n for n in rest if id(n) in late and id(n) not in casts] + [n for n in rest if id(n) in casts]

    def run(self) -> Any:
        """The new loop's op."""
        loop, end = self.loop, self.end
        location = loop.op.location
        lower, upper, step, *inits = loop.operands

        def op(name: str, results: list[Any], operands: list[Any], ip: Any, attributes: dict[str, Any] | None = None, regions: int = 0) -> Any:
            return ir.Operation.create(name, results=results, operands=operands, attributes=attributes or {}, regions=regions,
                                       loc=location, ip=ip)

        before = ir.InsertionPoint(loop.op)
        slt = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 2)
        i1 = ir.IntegerType.get_signless(1)
        some = op("arith.cmpi", [i1], [lower, upper], before, {"predicate": slt}).result
        if (constant(self.function, step) or 0) <= 0:  # a step that turns out not to be positive gives no round
            zero = op("arith.constant", [step.type], [], before, {"value": ir.IntegerAttr.get(step.type, 0)}).result
            some = op("arith.andi", [i1], [some, op("arith.cmpi", [i1], [zero, step], before, {"predicate": slt}).result], before).result
        branch = op("scf.if", [r.type for r in loop.results], [some], before, regions=2)
        then, other = (r.blocks.append() for r in branch.regions)
        op("scf.yield", [], list(inits), ir.InsertionPoint(other))

        # the first round, without its product
        ip = ir.InsertionPoint(then)
        mapping = dict(zip(self.body.args, [lower, *inits]))
        self._copy(self.rest, mapping, ip, self._turn(self.first, "whole"))
        second = self._second(lower, upper, step, op, ip)
        carried = [mapping.get(v, v) for i, v in enumerate(end.operands) if i != self.slot]
        crossing = [mapping.get(v, v) for v in self.crossing]

        attributes = {name: loop.op.attributes[name] for name in attribute_names(loop.op)}
        new = op("scf.for", [v.type for v in (*carried, *crossing)], [second, upper, step, *carried, *crossing], ip, attributes, 1)
        block = new.regions[0].blocks.append(lower.type, *(v.type for v in (*carried, *crossing)))
        args = list(block.arguments)
        inside = ir.InsertionPoint(block)
        held = [v for i, v in enumerate(self.body.args[1:]) if i != self.slot]
        mapping = {self.body.args[0]: args[0], **dict(zip(held, args[1:]))}
        previous = dict(zip(self.crossing, args[1 + len(held):]))
        # the first product of this round, and all that it needs, then the one of the round before
        at = self.rest.index(self.first) + 1
        self._copy(self.rest[:at], mapping, inside, self._turn(self.first, "begin"))
        mapping[self.body.args[1 + self.slot]] = self._copy(self.moved, previous, inside, self._turn(self.last, "end"))
        self._copy(self.rest[at:], mapping, inside)
        following = [mapping.get(v, v) for i, v in enumerate(end.operands) if i != self.slot]
        op("scf.yield", [], [*following, *(mapping.get(v, v) for v in self.crossing)], inside)

        results = list(new.results)
        tail = dict(zip(self.crossing, results[len(held):]))
        total = self._copy(self.moved, tail, ip)
        values = results[: len(held)]
        values.insert(self.slot, total)
        op("scf.yield", [], values, ip)
        for old, result in zip(loop.results, branch.results):
            old.replace_all_uses_with(result)
        loop.op.erase()
        return new

    def _second(self, lower: Any, upper: Any, step: Any, op: Callable[..., Any], ip: Any) -> Any:
        """Where the other rounds begin: ``lower + step``, or ``upper`` where that would pass the type's limits."""
        second = op("arith.addi", [lower.type], [lower, step], ip).result
        if constant(self.function, step) == 1:
            return second
        ult = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 6)  # lower is below upper: their distance is exact as an unsigned number
        distance = op("arith.subi", [lower.type], [upper, lower], ip).result
        more = op("arith.cmpi", [ir.IntegerType.get_signless(1)], [step, distance], ip, {"predicate": ult}).result
        return op("arith.select", [lower.type], [more, second, upper], ip).result

    @staticmethod
    def _copy(nodes: list[Node], mapping: dict[Any, Any], ip: Any, turns: dict[int, str] | None = None) -> Any:
        """Clone ops in order, products with their turns; the first result of the last one."""
        new: Any = None
        for node in nodes:
            new = clone_under(node, mapping, ip)
            if turns and id(node) in turns:
                new.attributes[TURN] = ir.StringAttr.get(turns[id(node)])
        return new.results[0]
