"""scf.for, scf.if and scf.while become blocks with one argument a register; combiner regions are inlined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import ROUNDS
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


def _bounds(b: Any, upper: Any, step: Any, unsigned: bool) -> Callable[[int], Any]:
    """A function of n: below which number a count is n steps before one that is below ``upper``. That is ``upper`` less the steps, held at the
    type's lowest number: sums of counts and steps could pass the type's limits."""
    type = upper.type
    width = type.width
    lowest = 0 if unsigned else -1 << width - 1
    less = "ult" if unsigned else "slt"
    end, by = (None if (x := b.constant_of(v)) is None else (int(x) - lowest) % (1 << width) + lowest for v in (upper, step))
    made: dict[int, Any] = {0: upper}

    def bound(times: int) -> Any:
        if by is None:  # as far below as one step from the bound before it
            before, distance, least = at(times - 1), step, b.add(step, b.const(type, lowest))
        elif end is not None or by * times >> width:  # known, or beyond the lowest number whatever the end is
            return b.const(type, lowest if end is None else max(end - by * times, lowest))
        else:
            before, distance, least = upper, b.const(type, by * times), b.const(type, lowest + by * times)
        return b.sub(b.select(b.icmp(less, before, least), least, before), distance)

    def at(times: int) -> Any:
        if times not in made:
            made[times] = bound(times)
        return made[times]

    return at


def _end(b: Any, lower: Any, upper: Any, step: int) -> Any:
    """What the count is after the last round of a loop that has rounds, modulo the type: no count before is equal to it, but the first where the rounds
    go through all of the type."""
    type = lower.type
    span = b.sub(b.sub(upper, lower), b.const(type, 1))
    rest = b.and_(span, b.const(type, step - 1)) if step & step - 1 == 0 else b.urem(span, b.const(type, step))
    return b.add(b.add(lower, b.sub(span, rest)), b.const(type, step))


@lowers("scf.for")
def lower_for(ctx: LoweringContext, op: Any) -> list[Any]:
    """A loop runs as often as Python's ``range``, also where its last count plus the step passes the type's limits. Where that can't be, the test
    stands before the body, as it does where the hooks want the loop left by its count (see ``_end``); elsewhere before the first round, and then after each (see ``_bounds``). A step that is known at run time, and
    not positive then, gives no round.

    With ``ttg.rounds = R`` the body stands R times, each but the first under the loop's test: ``if i + 1 < n: body …``.
    Leaving the loop from its middle would be shorter, but targets that need structured branches then move what is carried."""
    b, node = ctx.b, ctx.node
    lower, upper, step = (ctx.scalar(v) for v in node.operands[:3])
    initial = [ctx.get(v) for v in node.operands[3:]]
    region = node.regions[0]
    unsigned = "unsignedCmp" in op.attributes
    less = "ult" if unsigned else "slt"
    vectors = narrow_vectors(b, flatten(initial)) if ctx.hooks.carries_vectors else {}
    first = pack_carried(b, flatten(initial), vectors)
    stride, end = (None if (x := b.constant_of(v)) is None else int(x) for v in (step, upper))
    rounds = ir.IntegerAttr(op.attributes[ROUNDS]).value if ROUNDS in op.attributes and stride else 1
    ends_low = end is not None and stride is not None and 0 <= end and 0 < stride and end + stride < 1 << lower.type.width - 1
    tested_first = rounds == 1 and (stride == 1 or ends_low)
    last = None
    start = b.constant_of(lower)
    # from 0 or above, rounds times step stays below the whole range of the type, after which the count would be the first again
    if rounds == 1 and stride and stride > 0 and not tested_first and not unsigned and start is not None and start >= 0 and ctx.hooks.ends_by_count(node):
        tested_first, last = True, b.select(b.icmp(less, lower, upper), _end(b, lower, upper, stride), lower)
    bound = _bounds(b, upper, step, unsigned)
    bounds = [] if tested_first else [bound(1 + i) for i in range(rounds)]
    runs = None if tested_first else b.icmp(less, lower, upper)
    if stride is None:
        runs = b.and_(runs, b.icmp("ne" if unsigned else "sgt", step, b.const(step.type, 0)))
    header = b.block([lower.type, *(v.type for v in first)])
    body = b.block(after=header) if tested_first else header
    after = b.block([] if tested_first else [v.type for v in first], after=body)
    if tested_first:
        b.br(header, [lower, *first])
    else:
        b.cond_br(runs, header, after, [lower, *first], first)
    b.set_block(header)
    induction, *arguments = header.arguments
    if tested_first:
        b.cond_br(b.icmp(less, induction, upper) if last is None else b.icmp("ne", induction, last), body, after)
        b.set_block(body)

    def one(number: Any, carried: Sequence[Any]) -> list[Any]:
        _bind(ctx, region.args, [[number], *unflatten(unpack_carried(b, carried, vectors), initial)])
        with ctx.read_anew() if ROUNDS_READ_ANEW in op.attributes else nullcontext():
            ctx.lower_ops(region.ops[:-1])
        yielded = [ctx.get(v) for v in region.ops[-1].operands]
        _check_views(initial, yielded, "a loop")
        b.loc = op.location
        return pack_carried(b, flatten(yielded), vectors)

    def rest(number: Any, carried: list[Any], done: int) -> list[Any]:
        if done == rounds:
            return carried
        more = b.icmp(less, induction, bounds[done - 1])
        number = b.add(number, step)
        # a value that nobody asks for after the loop needs none where the loop ends: what alternates is seen to be the same in each turn
        ended = [x if next(iter(r.uses), None) is not None else [b.undef(v.type) for v in flatten([x])]
                 for r, x in zip(op.results, unflatten(unpack_carried(b, carried, vectors), initial), strict=True)]
        unwanted = pack_carried(b, flatten(ended), vectors)
        return b.if_then_else(more, lambda: rest(number, one(number, carried), done + 1), lambda: unwanted)

    carried = rest(induction, one(induction, arguments), 1)
    following = b.add(induction, step if rounds == 1 else b.const(lower.type, rounds * (stride or 0)))
    if tested_first:
        b.br(header, [following, *carried])
    else:
        b.cond_br(b.icmp(less, induction, bounds[-1]), header, after, [following, *carried], carried)
        arguments = list(after.arguments)
    b.set_block(after)
    return unflatten(unpack_carried(b, arguments, vectors), initial)


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
