"""Let what a loop of products loads by narrow accesses fit the registers: its addresses first, then its data.

Before: ttg, not pipelined. A tile whose rows are no multiples of 4 bytes is loaded an element at a time, and pipeline_loops would load it an iteration
ahead: a thread holds two registers for each address and one for each element. After: the same values, by the first of these rules that fits the registers
of a thread (an estimate: see Need):

0. nothing is changed;
1. addresses are made in each round, of a scalar pointer that the loop carries and of offsets. A tile of pointers that goes forward by a
   number is ``base + Σ offsets`` with one offset a row and one a column, of 32 bits; what follows from ranges and scalars alone is computed in
   the round too, masks included, and takes no register. No offset is added to another before it is widened to 64 bits: the addresses are the same;
2. that, and no load ahead (AT_USE): each tile goes straight from its load to its buffer, one after another.

So that neither LLVM nor ptxas moves the sums before the loop, where they would be addresses in registers again, they are marked (PINNED, lower_pinned.py).
Copies that are asynchronous (cp.async of 4 or 8 bytes) hold no data, and keep their addresses: made in each round, fp32 tiles of 128×128×32 and ×64 by four
warps spilled more in two of eight cases (152 → 504 bytes, 832 → 1,244) and less in three. Accesses of 16 bytes are few. Loops of warp-specialised kernels stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.analysis.loop_edit import add_carried
from tilewright.dialects.analysis.structure import (
    Function,
    Node,
    attribute_names,
    functions,
    region_ancestor,
    type_info,
)
from tilewright.dialects.lowering.context import ROUNDS_READ_ANEW
from tilewright.dialects.passes.pipeline_schedule import AT_USE, Scheduler, constant
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.lower_pinned import PINNED
from tilewright.targets.nvidia.passes.warp_registers import tiles_in_use

_FILE, _MOST = 65536, 255  # registers of a block, and of a thread (CUDA programming guide, compute capabilities)
BESIDES = 20  # of a thread: counters, addresses of shared memory, what is on its way. With 252 in all no loop of the table in hopper.md spills, with 308 all do
_CHEAP = frozenset(("tt.make_range", "tt.splat", "tt.broadcast", "tt.expand_dims", "arith.constant", "arith.addi", "arith.subi", "arith.muli",
                    "arith.cmpi", "arith.andi"))
_REPEATING = ("tt.broadcast", "tt.expand_dims")


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    for function in functions(module):
        if any(node.name == "ttng.warp_specialize" for node in function.nodes()):
            continue
        for loop in Scheduler(function, ctx).loops():
            _loop(function, loop, ctx)


@dataclass
class Need:
    """Registers of a thread that a loop needs. ``tiles``: what is computed (warp_registers.py); ``ahead``: data loaded an iteration
    ahead; ``held``: addresses as they are; ``lean``: addresses by rule 1."""

    tiles: int
    ahead: int
    held: int
    lean: int

    def rule(self, limit: int) -> int:
        """The first of the module's rules that fits ``limit`` registers; the last where none does."""
        least = self.tiles + BESIDES
        needs = (least + self.held + self.ahead, least + self.lean + self.ahead)
        return next((i for i, need in enumerate(needs) if need <= limit), 2)


def registers_of_a_thread(ctx: PassContext) -> int:
    """As many as it may have."""
    return min(_MOST, _FILE // (ctx.num_warps * ctx.warp_size), getattr(ctx.options, "maxnreg", None) or _MOST)


def _loop(function: Function, loop: Node, ctx: PassContext) -> None:
    scheduler = Scheduler(function, ctx)
    loads = [n for n in loop.regions[0].ops if n.name == "tt.load" and type_info(n.results[0].type).encoding is not None and scheduler.feeds_dot(n, loop)]
    if not loads:
        return
    axis = AxisInfoAnalysis(function.module)
    wide = {load: _vector(axis, load) for load in loads}
    loads = [load for load in loads if wide[load] * type_info(load.results[0].type).bits < 128]
    counts = [distinct(load.operands[0].type) // wide[load] for load in loads]
    limit, tiles = registers_of_a_thread(ctx), tiles_in_use(function, loop) // (ctx.num_warps * ctx.warp_size)
    if tiles + 3 * sum(counts) + BESIDES <= limit:
        return  # whatever is loaded how: most loops, without a plan
    sums = [Sum.of(function, loop, n.operands[0]) for n in loads]
    plan = scheduler.plan(loop)
    through = [c.load for c in plan.registers if c.load in loads] if plan is not None else []
    held = [min(2 * n, _held(function, loop, load.operands[0])) for n, load in zip(counts, loads, strict=True)]
    again = _Anew(function, loop)
    copied = [c.load for group in plan.groups for c in group] if plan is not None else []
    lean = [h if s is None or load in copied else min(h, s.words(again)) for load, h, s in zip(loads, held, sums, strict=True)]
    ahead = sum(_data(load, wide[load]) for load in through)
    need = Need(tiles, ahead, sum(held), sum(lean))
    rule = need.rule(limit)
    if not rule:
        return
    better = [(load, s) for load, s, h, n in zip(loads, sums, held, lean, strict=True) if s is not None and n < h]
    for load, s in better:
        _rewrite(function, loop, load, s, again)
    if again.ranges:
        loop.op.attributes[ROUNDS_READ_ANEW] = ir.UnitAttr.get()
    if rule == 2:
        for load in through:
            load.op.attributes[AT_USE] = ir.UnitAttr.get()
    chosen = (["addresses are computed in each round"] if better else []) + (["loads stand where they are used"] if rule == 2 and through else [])
    if chosen:
        ctx.explain(loop.op, "loop of products", ", ".join(chosen), f"{need.tiles} registers of tiles, {need.held} of addresses and {need.ahead} of data loaded "
                    f"ahead, with {BESIDES} besides, are more than the {limit} of a thread")


# ------------------------------------------------------------------------------------------------------------ counting
def distinct(type_: Any) -> int:
    """Elements of a tile that a thread holds, each once; 1 of a scalar."""
    info = type_info(type_)
    if info.shape is None:
        return 1
    return 1 << sum(any(c) if isinstance(c, Iterable) else bool(c)
                    for c in encodings.to_linear_layout(info.shape, info.encoding).columns("register"))


def _vector(axis: AxisInfoAnalysis, load: Node) -> int:
    """Elements of one access."""
    pointer, mask = (*load.operands, None)[:2]
    info = type_info(load.results[0].type)
    wide = max(axis.vector_elements(pointer, d, mask) for d in range(len(info.shape or ())))
    return max(1, min(wide, 128 // max(8, info.bits), distinct(pointer.type)))


def _data(load: Node, vector: int) -> int:
    """Registers of what is loaded: while it is on its way, what is less than 32 bits takes one all the same."""
    info = type_info(load.results[0].type)
    return distinct(load.results[0].type) // vector * max(1, vector * info.bits // 32)


def _held(function: Function, loop: Node, pointer: Any) -> int:
    """Registers that an address tile and what it is computed of take through the loop, as it stands."""
    node = function.def_node(pointer)
    if type_info(pointer.type).shape is None or (node is not None and node.name == "tt.splat"):
        return 0
    if node is None or region_ancestor(node, loop.regions[0]) is None:
        return 2 * distinct(pointer.type)
    if node.name in _REPEATING:
        return _held(function, loop, node.operands[0])
    if node.name != "tt.addptr":
        return 2 * distinct(pointer.type)
    offset, made = node.operands[1], function.def_node(node.operands[1])
    inside = made is not None and region_ancestor(made, loop.regions[0]) is not None
    own = 0 if _uniform(function, offset) is not None else distinct(offset.type) * (1 if inside else 2)
    return own + _held(function, loop, node.operands[0])


# ------------------------------------------------------------------------------------------------- what a pointer is made of
def _uniform(function: Function, value: Any) -> Any:
    """The scalar (or the number) that all elements of a tile are; None: they differ, as far as is known."""
    node = function.def_node(value)
    if node is None:
        return None
    if node.name == "tt.splat":
        return node.operands[0]
    if node.name in _REPEATING:
        return _uniform(function, node.operands[0])
    return constant(function, value) if node.name == "arith.constant" else None


@dataclass
class Sum:
    """A tile of pointers as ``base``, a scalar from before the loop, plus ``first``, scalar offsets from there, ``steps`` (added after each round),
    ``now`` (of the round) and ``tiles``, offsets that differ, each with the ops that repeat it along the other dim. Scalars are values or
    (number, type)."""

    base: Any = None
    first: list[Any] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)
    now: list[Any] = field(default_factory=list)
    tiles: list[tuple[Any, list[Node]]] = field(default_factory=list)

    @staticmethod
    def of(function: Function, loop: Node, pointer: Any) -> Sum | None:
        """None where it is not so made."""
        found = Sum()
        return found if found._follow(function, loop, pointer, False) else None

    def words(self, again: _Anew) -> int:
        """Registers of a thread: of what is not computed in the round, and of eight sums under way."""
        return 16 + sum(distinct(v.type) * type_info(v.type).bits // 32 for v, _ in self.tiles if not again.is_cheap(v))

    def _follow(self, function: Function, loop: Node, value: Any, before: bool) -> bool:
        node = function.def_node(value)
        body = loop.regions[0]
        if node is None:
            region, index = function.arg_of[value]
            if before or region is not body or index == 0:
                return False
            end = body.ops[-1].operands[index - 1]
            while end != value:
                made = function.def_node(end)
                if made is None or made.name != "tt.addptr" or (step := self._scalar(function, made.operands[1])) is None:
                    return False
                self.steps.append(step)
                end = made.operands[0]
            return self._follow(function, loop, loop.operands[2 + index], True)
        inside = region_ancestor(node, body) is not None
        if node.name == "tt.splat":
            self.base = node.operands[0]
            made = function.def_node(self.base)
            return made is None and function.arg_of[self.base][0] is not body or made is not None and region_ancestor(made, body) is None
        if node.name in _REPEATING:
            if not self._follow(function, loop, node.operands[0], before):
                return False
            self.tiles = [(v, [*path, node]) for v, path in self.tiles]
            return True
        if node.name != "tt.addptr" or not self._follow(function, loop, node.operands[0], before):
            return False
        offset = node.operands[1]
        if type_info(offset.type).bits not in (32, 64):
            return False
        scalar = self._scalar(function, offset)
        if scalar is not None:
            (self.now if inside else self.first).append(scalar)
            return True
        path: list[Node] = []
        while (made := function.def_node(offset)) is not None and made.name in _REPEATING:
            path.insert(0, made)
            offset = made.operands[0]
        self.tiles.append((offset, path))
        return True

    @staticmethod
    def _scalar(function: Function, offset: Any) -> Any:
        found = _uniform(function, offset)
        return (found, type_info(offset.type).element) if isinstance(found, int) else found


# ------------------------------------------------------------------------------------------------------------- rewriting
class _Anew:
    """Makes tiles of ranges and scalars again at the start of the loop's body. ``ranges``: whether any range was."""

    def __init__(self, function: Function, loop: Node):
        self.function, self.loop, self.ranges = function, loop, False
        self.first = loop.regions[0].ops[0]
        self.made: dict[Any, Any] = {}
        self.cheap: dict[Any, bool] = {}

    def value(self, value: Any) -> Any:
        """``value`` itself where it is held, or made in the loop; what it is made of there is made again."""
        if type_info(value.type).shape is None or value in self.made:
            return self.made.get(value, value)
        node = self.function.def_node(value)
        if node is None:
            return value
        if region_ancestor(node, self.loop.regions[0]) is not None:
            self.made[value] = value
            if node.region is self.loop.regions[0] and node.name in _CHEAP:
                for i, v in enumerate(node.operands):
                    if (new := self.value(v)) != v:
                        self.function.set_operand(node, i, new)
        elif self.is_cheap(value):
            operands = [self.value(v) for v in node.operands]
            attributes = {name: node.op.attributes[name] for name in attribute_names(node.op)}
            if node.name == "tt.splat":
                attributes[PINNED] = ir.UnitAttr.get()
            self.ranges |= node.name == "tt.make_range"
            self.made[value] = self.function.insert_before(self.first, node.name, [value.type], operands, attributes).results[0]
        return self.made.get(value, value)

    def is_cheap(self, value: Any) -> bool:
        """Whether a tile from before the loop follows from ranges and scalars by a few additions and products."""
        if type_info(value.type).shape is None:
            return True
        if value not in self.cheap:
            node = self.function.def_node(value)
            self.cheap[value] = node is not None and node.name in _CHEAP and all(map(self.is_cheap, node.operands))
        return self.cheap[value]


def _rewrite(function: Function, loop: Node, load: Node, found: Sum, again: _Anew) -> None:
    """Let ``load`` read through pointers made in the round, under a mask made there."""
    type_ = load.operands[0].type
    pointer = found.base

    def add(anchor: Node, pointer: Any, scalar: Any) -> Any:
        if isinstance(scalar, tuple):
            number, kind = scalar
            scalar = function.insert_before(anchor, "arith.constant", [kind], [], {"value": ir.IntegerAttr.get(kind, number)}).results[0]
        return function.insert_before(anchor, "tt.addptr", [pointer.type], [pointer, scalar]).results[0]

    for scalar in found.first:
        pointer = add(loop, pointer, scalar)
    if found.steps:
        (carried,), _ = add_carried(function, loop, [pointer], [pointer])
        end, following = loop.regions[0].ops[-1], carried
        for scalar in found.steps:
            following = add(end, following, scalar)
        function.set_operand(end, len(end.operands) - 1, following)
        pointer = carried
    for scalar in found.now:
        pointer = add(load, pointer, scalar)
    tile = function.insert_before(load, "tt.splat", [type_], [pointer]).results[0]
    # the offset with the fewest values first: of those sums there are as few
    for value, path in sorted(found.tiles, key=lambda part: distinct(part[0].type)):
        offset = again.value(value)
        for node in path:
            info = type_info(node.results[0].type)
            repeated = ir.RankedTensorType.get(list(info.shape or ()), type_info(value.type).element, info.encoding)
            attributes = {name: node.op.attributes[name] for name in attribute_names(node.op)}
            offset = function.insert_before(load, node.name, [repeated], [offset], attributes).results[0]
        tile = function.insert_before(load, "tt.addptr", [type_], [tile, offset], {PINNED: ir.UnitAttr.get()}).results[0]
    function.set_operand(load, 0, tile)
    if len(load.operands) > 1:
        function.set_operand(load, 1, again.value(load.operands[1]))
