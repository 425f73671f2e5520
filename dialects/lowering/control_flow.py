"""scf.for, scf.if and scf.while become blocks with one argument a register; combiner regions are inlined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import ROUNDS
from tilewright.dialects.loop_bounds import BoundsAhead, as_number
from tilewright.dialects.lowering.context import ROUNDS_READ_ANEW, LoweringContext, SharedMemory
from tilewright.dialects.lowering.registry import lowers


def flatten(values: Sequence[Any]) -> list[Any]:
    """LLVM values of several lowered values; of a memdesc its base pointer (the rest is static)."""
    out: list[Any] = []
    for v in values:
        if isinstance(v, SharedMemory):
            out.append(v.base)
        else:
            out += v
    return out


def unflatten(flat: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """``flat`` cut into lowered values of the shapes of ``like``."""
    out: list[Any] = []
    at = 0
    for v in like:
        if isinstance(v, SharedMemory):
            out.append(v.with_(base=flat[at]))
            at += 1
        else:
            out.append(list(flat[at:at + len(v)]))
            at += len(v)
    return out


def _check_views(before: Sequence[Any], after: Sequence[Any], what: str) -> None:
    for a, b in zip(before, after, strict=True):
        if isinstance(a, SharedMemory) and (a.layout, a.offsets, a.shape) != (b.layout, b.offsets, b.shape):
            raise ValueError(f"{what} carries shared-memory views of different form: {a} and {b}")


def _bind(ctx: LoweringContext, values: Sequence[Any], lowered: Sequence[Any]) -> None:
    for v, x in zip(values, lowered, strict=True):
        ctx.set(v, x)


# ---------------------------------------------------------------------------------------- vectors across iterations
def _lane_of(b: Any, value: Any) -> tuple[Any, int] | None:
    """(vector, number) where ``value`` is one element of a vector."""
    op = value.owner if hasattr(value.owner, "operands") else None  # a block argument's owner is its block
    if op is None or op.name != "llvm.extractelement":
        return None
    number = b.constant_of(op.operands[1])
    return None if number is None else (op.operands[0], int(number))


def _whole(b: Any, values: Sequence[Any]) -> Any:
    """The vector whose elements ``values`` are, all and in order; None where they are not."""
    lanes = [_lane_of(b, v) for v in values]
    first = lanes[0]
    if first is None or first[0].type.shape[0] != len(values):
        return None
    return first[0] if all(lane is not None and lane[0] == first[0] and lane[1] == i for i, lane in enumerate(lanes)) else None


def narrow_vectors(b: Any, values: Sequence[Any]) -> dict[int, list[int]]:
    """Vectors of elements narrower than 32 bits of which all elements are among ``values``: by the number of the first one.

    A loop that carries such elements one by one takes a loaded vector apart at the end of an iteration, and so waits there for a
    load that only the next one needs.
    """
    found: dict[Any, dict[int, int]] = {}
    for at, value in enumerate(values):
        if value.type in (b.t_f16, b.t_bf16, b.t_i16, b.t_i8):
            lane = _lane_of(b, value)
            if lane is not None:
                found.setdefault(lane[0], {}).setdefault(lane[1], at)
    vectors = ([where[i] for i in range(len(where))] for vector, where in found.items() if len(where) == vector.type.shape[0])
    return {positions[0]: positions for positions in vectors}


def _in_words(b: Any, vector: Any) -> Any:
    """A vector of bytes as 32-bit words: LLVM's targets may keep each byte of one that crosses blocks in a register of its own."""
    count = vector.type.shape[0]
    if vector.type.element_type != b.t_i8 or count % 4:
        return vector
    return b.bitcast(vector, b.t_i32 if count == 4 else b.vec(count // 4, b.t_i32))


def pack_carried(b: Any, values: Sequence[Any], vectors: dict[int, list[int]]) -> list[Any]:
    """``values`` with those of each vector replaced by it, where its first element stood."""
    if not vectors:
        return list(values)
    inside = {at for positions in vectors.values() for at in positions}
    out = []
    for at, value in enumerate(values):
        if at in vectors:
            elements = [values[i] for i in vectors[at]]
            whole = _whole(b, elements)
            out.append(_in_words(b, b.pack_vector(elements) if whole is None else whole))
        elif at not in inside:
            out.append(value)
    return out


def unpack_carried(b: Any, packed: Sequence[Any], vectors: dict[int, list[int]]) -> list[Any]:
    """The inverse of ``pack_carried``."""
    if not vectors:
        return list(packed)
    inside = {at for positions in vectors.values() for at in positions}
    out: list[Any] = [None] * (len(packed) + len(inside) - len(vectors))
    rest = iter(packed)
    for at in range(len(out)):
        if at in vectors:
            vector = next(rest)
            if (vector.type.element_type if isinstance(vector.type, ir.VectorType) else vector.type) == b.t_i32:
                vector = b.bitcast(vector, b.vec(len(vectors[at]), b.t_i8))
            for i, value in zip(vectors[at], b.unpack_vector(vector, len(vectors[at]))):
                out[i] = value
        elif at not in inside:
            out[at] = next(rest)
    return out


class _Sums:
    """Integers of one type, made by a builder, for loop_bounds."""

    def __init__(self, b: Any, type: Any, less: str):
        self.b, self.type, self.less = b, type, less
        self.add, self.sub = b.add, b.sub

    def const(self, value: int) -> Any:
        return self.b.const(self.type, value)

    def maximum(self, a: Any, b: Any) -> Any:
        return self.b.select(self.b.icmp(self.less, a, b), b, a)


def _end(b: Any, lower: Any, upper: Any, step: int) -> Any:
    """What the count is after the last round of a loop that has rounds, modulo the type: no count before is equal to it, but the first where the rounds
    go through all of the type."""
    type = lower.type
    span = b.sub(b.sub(upper, lower), b.const(type, 1))
    rest = b.and_(span, b.const(type, step - 1)) if step & step - 1 == 0 else b.urem(span, b.const(type, step))
    return b.add(b.add(lower, b.sub(span, rest)), b.const(type, step))


class _For:
    """One scf.for: its test, and its body one or several times.

    The test stands in one of three places. *Before the body*, of the count against ``upper``: where the last count plus the step is known to be a number of the
    type. There too, of the count against the one that follows the last (``_end``): where the target's hooks ask for it. Else *after the body*, of whether the
    next count is a round's (BoundsAhead), and once before the first.
    """

    def __init__(self, ctx: LoweringContext, op: Any):
        self.ctx, self.op, self.b = ctx, op, ctx.b
        self.region = ctx.node.regions[0]
        self.lower, self.upper, self.step = (ctx.scalar(v) for v in ctx.node.operands[:3])
        self.initial = [ctx.get(v) for v in ctx.node.operands[3:]]
        self.unsigned = "unsignedCmp" in op.attributes
        self.less = "ult" if self.unsigned else "slt"
        self.type, self.width = self.lower.type, self.lower.type.width
        self.start, self.end, self.stride = map(self._known, (self.lower, self.upper, self.step))
        self.rounds = ir.IntegerAttr(op.attributes[ROUNDS]).value if ROUNDS in op.attributes and self.stride else 1
        self.vectors = narrow_vectors(self.b, flatten(self.initial)) if ctx.hooks.carries_vectors else {}

    def _known(self, value: Any) -> int | None:
        number = self.b.constant_of(value)
        return None if number is None else as_number(int(number), self.width, self.unsigned)

    def lower_it(self) -> list[Any]:
        if self.stride is not None and self.stride <= 0:  # no round
            return self.initial
        b = self.b
        first = pack_carried(b, flatten(self.initial), self.vectors)
        carried = self._tested_first(first) if self.rounds == 1 and self._stays_in_range() else \
            self._left_by_count(first) if self.rounds == 1 and self._may_end_by_count() else self._tested_last(first)
        return unflatten(unpack_carried(b, carried, self.vectors), self.initial)

    def _stays_in_range(self) -> bool:
        """Whether the last count plus the step is a number of the type."""
        return self.stride == 1 or (self.end is not None and self.stride is not None and 0 <= self.end and self.end + self.stride < 1 << self.width - 1)

    def _may_end_by_count(self) -> bool:
        """From 0 or above, rounds times step stays below the whole range of the type, after which the count would be the first again."""
        return self.stride is not None and not self.unsigned and self.start is not None and self.start >= 0 and self.ctx.hooks.ends_by_count(self.ctx.node)

    def _tested_first(self, first: list[Any]) -> list[Any]:
        return self._while(first, lambda count: self.b.icmp(self.less, count, self.upper))

    def _left_by_count(self, first: list[Any]) -> list[Any]:
        b = self.b
        last = b.select(b.icmp(self.less, self.lower, self.upper), _end(b, self.lower, self.upper, self.stride or 1), self.lower)
        return self._while(first, lambda count: b.icmp("ne", count, last))

    def _while(self, first: list[Any], goes_on: Callable[[Any], Any]) -> list[Any]:
        """The test before the body; what is carried in the end."""
        b = self.b
        header = b.block([self.type, *(v.type for v in first)])
        body = b.block(after=header)
        after = b.block(after=body)
        b.br(header, [self.lower, *first])
        b.set_block(header)
        count, *carried = header.arguments
        b.cond_br(goes_on(count), body, after)
        b.set_block(body)
        following = self._body(count, carried)
        b.br(header, [b.add(count, self.step), *following])
        b.set_block(after)
        return carried

    def _tested_last(self, first: list[Any]) -> list[Any]:
        b, rounds = self.b, self.rounds
        bounds = BoundsAhead(_Sums(b, self.type, self.less), self.upper, self.step, self.width, self.end, self.stride, self.unsigned)
        ahead = [bounds(1 + i) for i in range(rounds)]
        runs = b.icmp(self.less, self.lower, self.upper)
        if self.stride is None:
            runs = b.and_(runs, b.icmp("ne" if self.unsigned else "sgt", self.step, b.const(self.type, 0)))
        header = b.block([self.type, *(v.type for v in first)])
        after = b.block([v.type for v in first], after=header)
        b.cond_br(runs, header, after, [self.lower, *first], first)
        b.set_block(header)
        count, *carried = header.arguments
        following = self._further(count, count, self._body(count, carried), 1, ahead)
        step = self.step if rounds == 1 else b.const(self.type, rounds * (self.stride or 0))
        next_count = b.add(count, step)
        b.cond_br(b.icmp(self.less, count, ahead[-1]), header, after, [next_count, *following], following)
        b.set_block(after)
        return list(after.arguments)

    def _further(self, first: Any, count: Any, carried: list[Any], done: int, ahead: Sequence[Any]) -> list[Any]:
        """The rounds after the ``done`` ones since the count was ``first``, each under the loop's test; ``carried`` is what the last, of ``count``, gave."""
        if done == self.rounds:
            return carried
        b = self.b
        more = b.icmp(self.less, first, ahead[done - 1])
        count = b.add(count, self.step)
        # a value that nobody asks for after the loop needs none where the loop ends: what alternates is seen to be the same in each turn
        ended = [x if next(iter(r.uses), None) is not None else [b.undef(v.type) for v in flatten([x])]
                 for r, x in zip(self.op.results, unflatten(unpack_carried(b, carried, self.vectors), self.initial), strict=True)]
        unwanted = pack_carried(b, flatten(ended), self.vectors)
        return b.if_then_else(more, lambda: self._further(first, count, self._body(count, carried), done + 1, ahead), lambda: unwanted)

    def _body(self, count: Any, carried: Sequence[Any]) -> list[Any]:
        ctx, b, region = self.ctx, self.b, self.region
        _bind(ctx, region.args, [[count], *unflatten(unpack_carried(b, carried, self.vectors), self.initial)])
        with ctx.read_anew() if ROUNDS_READ_ANEW in self.op.attributes else nullcontext():
            ctx.lower_ops(region.ops[:-1])
        yielded = [ctx.get(v) for v in region.ops[-1].operands]
        _check_views(self.initial, yielded, "a loop")
        b.loc = self.op.location
        return pack_carried(b, flatten(yielded), self.vectors)


@lowers("scf.for")
def lower_for(ctx: LoweringContext, op: Any) -> list[Any]:
    """A loop runs as often as Python's ``range``, also where its last count plus the step passes the type's limits. A step that is not positive, known while
    compiling or not, gives no round.

    With ``ttg.rounds = R`` the body stands R times, each but the first under the loop's test: ``if i + 1 < n: body …``.
    Leaving the loop from its middle would be shorter, but targets that need structured branches then move what is carried."""
    return _For(ctx, op).lower_it()


@lowers("scf.if")
def lower_if(ctx: LoweringContext, op: Any) -> list[Any]:
    b, node = ctx.b, ctx.node
    condition = ctx.scalar(node.operands[0])
    like: list[Any] = []

    def side(region: Any) -> list[Any]:
        ctx.lower_ops(region.ops[:-1])
        b.loc = op.location
        yielded = [ctx.get(v) for v in region.ops[-1].operands]
        if like:
            _check_views(like, yielded, "an if")
        else:
            like.extend(yielded)
        return flatten(yielded)

    regions = node.regions
    if len(regions) == 1:
        b.if_then(condition, lambda: side(regions[0]) and None)
        return []
    merged = b.if_then_else(condition, lambda: side(regions[0]), lambda: side(regions[1]))
    return unflatten(merged, like)


@lowers("scf.while")
def lower_while(ctx: LoweringContext, op: Any) -> list[Any]:
    b, node = ctx.b, ctx.node
    initial = [ctx.get(v) for v in node.operands]
    before_region, after_region = node.regions
    header = b.block([v.type for v in flatten(initial)])
    b.br(header, flatten(initial))
    b.set_block(header)
    _bind(ctx, before_region.args, unflatten(header.arguments, initial))
    ctx.lower_ops(before_region.ops[:-1])
    b.loc = op.location
    condition, *passed = (ctx.get(v) for v in before_region.ops[-1].operands)
    body = b.block()
    after = b.block(after=body)
    b.cond_br(condition[0], body, after)
    b.set_block(body)
    # The condition's block dominates both successors, so its values need no arguments.
    _bind(ctx, after_region.args, passed)
    ctx.lower_ops(after_region.ops[:-1])
    b.loc = op.location
    yielded = [ctx.get(v) for v in after_region.ops[-1].operands]
    _check_views(initial, yielded, "a loop")
    b.br(header, flatten(yielded))
    b.set_block(after)
    return passed


def inliner(ctx: LoweringContext, node: Any) -> Any:
    """A function that lowers the op's region once, its arguments being the registers given (a list an argument), and returns those of
    the values that the region ends with. Several registers an argument are for regions without control flow."""
    region = node.regions[0]
    args, ops = region.args, region.ops

    def inline(inputs: list[list[Any]]) -> list[list[Any]]:
        saved = ctx.node
        location = ctx.b.loc
        for a, registers in zip(args, inputs, strict=True):
            ctx.set(a, registers)
        ctx.lower_ops(ops[:-1])
        results = [ctx.get(v) for v in ops[-1].operands]
        ctx.node = saved
        ctx.b.loc = location
        return results

    return inline


@lowers("tt.map_elementwise")
def lower_map_elementwise(ctx: LoweringContext, op: Any) -> list[Any]:
    """The region once for every ``pack`` registers; the last of them again where they do not divide."""
    node = ctx.node
    pack = ir.IntegerAttr(op.attributes["pack"]).value
    operands = ctx.operands(op)
    count = max(map(len, operands))
    operands = [o if len(o) == count else o * count for o in operands]
    inline = inliner(ctx, node)
    starts = list(range(0, count, pack))
    out: list[list[Any]] = [[] for _ in op.results]

    def put(results: list[list[Any]], number: int) -> None:
        for i, registers in enumerate(out):
            registers += [r[number if len(r) > 1 else 0] for r in results[i * pack:(i + 1) * pack]]

    if any(inner.regions for inner in node.regions[0].ops):
        for start in starts:
            put(inline([[o[min(start + j, count - 1)]] for o in operands for j in range(pack)]), 0)
    else:
        results = inline([[o[min(start + j, count - 1)] for start in starts] for o in operands for j in range(pack)])
        for number in range(len(starts)):
            put(results, number)
    return [registers[:count] for registers in out]


def combiner(ctx: LoweringContext, node: Any) -> Any:
    """A function that inlines the combiner region of a reduce or scan.

    ``combine(accumulators, elements)``: each a list of n register lists (one an operand of the reduce), combined register by
    register; returns n register lists. A region with control flow is inlined once a register.
    """
    simple = not any(inner.regions for inner in node.regions[0].ops)
    inline = inliner(ctx, node)

    def combine(accumulators: list[list[Any]], elements: list[list[Any]]) -> list[list[Any]]:
        count = len(accumulators[0])
        if simple:
            # a constant in the region has one register, whatever the number of combinations
            return [r if len(r) == count else r * count for r in inline([*accumulators, *elements])]
        out: list[list[Any]] = [[] for _ in accumulators]
        for i in range(count):
            for o, r in zip(out, inline([[x[i]] for x in (*accumulators, *elements)])):
                o += r
        return out

    return combine
