"""Loops and branches. Scalars are carried as they are. A tile that only moves on by a uniform step (pointers) is carried as
that step's sum. A tile whose next value depends on it element by element lives in one buffer, any other in two that swap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.targets.cpu.lower import TileLowering, is_lanewise, lowers
from tilewright.targets.cpu.lower_elementwise import element_of
from tilewright.targets.cpu.lower_memory import note_order
from tilewright.targets.cpu.tiles import Buffer, Lazy, Tile, fill, materialise


def block_ops(block: Any) -> list[Any]:
    """The block's operations in order, the terminator last."""
    ops = [view.operation for view in block.operations]
    note_order(ops)
    return ops


def _uniform_step(yielded: Any, argument: Any, block: Any) -> Any:
    """The value by which ``argument`` moves each iteration, where that is one number for the whole tile; else None."""
    owner = yielded.owner
    owner = getattr(owner, "operation", owner)
    if getattr(owner, "name", "") not in ("tt.addptr", "arith.addi") or owner.block != block:
        return None
    first, second = owner.operands
    if owner.name == "arith.addi" and second == argument:
        first, second = second, first
    if first != argument:
        return None
    maker = getattr(second.owner, "operation", second.owner)
    if getattr(maker, "name", "") == "tt.splat":
        return maker.operands[0]
    value = maker.attributes["value"] if getattr(maker, "name", "") == "arith.constant" else None
    if isinstance(value, ir.DenseElementsAttr) and value.is_splat:  # a scalar that a loop counts up is carried as it is
        return second
    return None


def _step_scalar(lo: TileLowering, step: Any) -> Any:
    held = lo.env[step]
    return held.lanes([lo.b.idx(0)] * len(held.shape), 1) if isinstance(held, Tile) else held


def _moved(lo: TileLowering, start: Tile, offset: Any) -> Lazy:
    """``start`` plus a scalar (bytes for pointers) in every element."""
    b = lo.b
    return Lazy(lo.b, start.shape, start.element, lambda index, n: b.add(start.lanes(index, n), b.broadcast(offset, n)), start.costly, start.divides)


def _step_amount(lo: TileLowering, step: Any, element: Any) -> Any:
    """What is added each iteration, in compute form: bytes as i64 for pointers."""
    b, amount = lo.b, _step_scalar(lo, step)
    if str(element).startswith("!tt.ptr"):
        from tilewright.targets.cpu.lower_elementwise import storage_type

        size = b.size(storage_type(b, element.pointee_type))
        return b.mul(b.cast_int(amount, b.i64), b.const(b.i64, size))
    return amount


def _only_reaches(value: Any, sink: Any, operand: int) -> bool:
    """Whether ``value`` is read only through elementwise ops of its own shape that end in that operand of ``sink``: then the new
    value may be written over it, since each element is read before it is written."""
    shape, todo, seen = value.type.shape, [value], [value]
    while todo:
        for use in todo.pop().uses:
            user = use.owner.operation
            if user == sink:
                if use.operand_number != operand:
                    return False
                continue
            if user.block != sink.block or not is_lanewise(user.name):
                return False
            for result in user.results:
                if not isinstance(result.type, ir.RankedTensorType) or result.type.shape != shape:
                    return False
                if result not in seen:
                    seen.append(result)
                    todo.append(result)
    return True


def _in_place(argument: Any, value: Any, end: Any, position: int) -> bool:
    """Whether the carried tile ``argument`` and its next value may share one buffer."""
    maker = getattr(value.owner, "operation", value.owner)
    if value == argument or not hasattr(maker, "block") or maker.block != end.block:
        return bool(value == argument)
    if maker.name == "tt.dot":
        return len(list(value.uses)) == 1 and _only_reaches(argument, maker, 2)
    return is_lanewise(maker.name) and _only_reaches(argument, end, position)


def _as_range(b: Any, lower: Any, upper: Any, step: Any, inits: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """``b.for_``, as often as Python's range where the last count plus the step passes the type's limits: counting in i64, and what counts in i64
    by the number of rounds. A step that turns out not to be positive gives no round."""
    type = lower.type
    stride, end = _integer(step), _integer(upper)
    if stride is not None and stride <= 0:
        return inits
    if stride is not None and (stride == 1 or (end is not None and end + stride < 1 << type.width - 1)):
        return b.for_(lower, upper, step, inits, body)
    if stride is None:
        upper = b.select(b.cmpi("sgt", step, b.const(type, 0)), upper, lower)
    if type.width < 64:
        bounds = (b.cast_int(v, b.i64) for v in (lower, upper, step))
        return b.for_(*bounds, inits, lambda count, args: body(b.cast_int(count, type), args))
    one = b.const(type, 1)
    runs = b.cmpi("slt", lower, upper)
    before_last = b.bin("arith.divui", b.bin("arith.subi", b.bin("arith.subi", upper, lower), one), b.select(runs, step, one))
    rounds = b.select(runs, b.add(before_last, one), b.const(type, 0))
    return b.for_(b.const(type, 0), rounds, one, inits, lambda number, args: body(b.add(lower, b.mul(number, step)), args))


def _integer(value: Any) -> int | None:
    owner = getattr(value.owner, "operation", value.owner)
    return int(ir.IntegerAttr(owner.attributes["value"]).value) if getattr(owner, "name", "") == "arith.constant" else None


@lowers("scf.for")
def for_(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    lower, upper, step, *inits = list(op.operands)
    block = op.regions[0].blocks[0]
    arguments = list(block.arguments)
    ops = block_ops(block)
    body_ops, yielded = ops[:-1], list(ops[-1].operands)
    steps = {value: _uniform_step(value, argument, block) for value, argument in zip(yielded, arguments[1:])}
    kinds: list[str] = []
    carried: list[Any] = []
    starts: list[Any] = []
    for init, value in zip(inits, yielded):
        held = lo.env[init]
        if not isinstance(held, Tile):
            kinds.append("scalar")
            carried.append(held)
            starts.append(None)
            continue
        if steps[value] is not None:
            if held.costly or held.divides:
                held = materialise(b, lo.arena, held)
            kinds.append("moved")
            starts.append(held)
            carried.append(b.const(b.i64 if str(held.element).startswith("!tt.ptr") else held.element, 0))
            continue
        position = len(kinds)
        if _in_place(arguments[1 + position], value, ops[-1], position):
            kinds.append("place")
            starts.append(fill(b, lo.arena.take(held.shape, held.element), held))
            continue
        kinds.append("buffer")
        first, second = (lo.arena.take(held.shape, held.element) for _ in range(2))
        fill(b, first, held)
        starts.append(first)
        carried += [first.ptr, second.ptr]

    def body(iv: Any, args: list[Any]) -> list[Any]:
        lo.env[arguments[0]] = iv
        at, nexts = 0, []
        for kind, start, argument, value in zip(kinds, starts, arguments[1:], yielded):
            if kind == "place":
                lo.env[argument] = start
                if len(list(value.uses)) == 1 and getattr(value.owner, "name", "") == "tt.dot":
                    lo.destination[value] = start
                continue
            if kind == "scalar":
                lo.env[argument] = args[at]
            elif kind == "moved":
                lo.env[argument] = _moved(lo, start, args[at])
            else:
                lo.env[argument] = Buffer(b, args[at], start.shape, start.element, start.wide)
                spare = Buffer(b, args[at + 1], start.shape, start.element, start.wide)
                nexts.append(spare)
                if value not in lo.destination and len(list(value.uses)) == 1 and _same_block(value, block):
                    lo.destination[value] = spare
                at += 1
            at += 1
        inner = lo.arena.top
        lo.block(body_ops)
        out: list[Any] = []
        at, spares = 0, iter(nexts)
        for kind, start, value in zip(kinds, starts, yielded):
            held = lo.env[value]
            if kind == "place":
                if not (isinstance(held, Buffer) and held.ptr == start.ptr):
                    fill(b, start, held)
                continue
            if kind == "scalar":
                out.append(held)
            elif kind == "moved":
                out.append(b.add(args[at], _step_amount(lo, steps[value], start.element)))
            else:
                spare = next(spares)
                if not (isinstance(held, Buffer) and held.ptr == spare.ptr):
                    fill(b, spare, held)
                out += [spare.ptr, args[at]]
                at += 1
            at += 1
        lo.arena.top = inner
        return out

    results = _as_range(b, lo.scalar(lower), lo.scalar(upper), lo.scalar(step), carried, body)
    out, at = [], 0
    for kind, start in zip(kinds, starts):
        if kind == "place":
            out.append(start)
            continue
        if kind == "scalar":
            out.append(results[at])
        elif kind == "moved":
            out.append(_moved(lo, start, results[at]))
        else:
            out.append(Buffer(b, results[at], start.shape, start.element, start.wide))
            at += 1
        at += 1
    return out


def _same_block(value: Any, block: Any) -> bool:
    owner = getattr(value.owner, "operation", value.owner)
    home = getattr(owner, "block", None)  # the owner of a block's argument is the block, which has none
    return home is not None and home == block


@lowers("scf.if")
def if_(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    buffers = [lo.arena.take(list(ir.RankedTensorType(r.type).shape), element_of(r.type)) if lo.is_tile(r) else None for r in op.results]
    types = [_scalar_type(lo, r) for r, buffer in zip(op.results, buffers) if buffer is None]

    def side(region: Any) -> list[Any]:
        mark = lo.arena.top
        ops = block_ops(region.blocks[0])
        for value, buffer in zip(ops[-1].operands, buffers):
            if buffer is not None and len(list(value.uses)) == 1 and _same_block(value, region.blocks[0]):
                lo.destination[value] = buffer
        lo.block(ops[:-1])
        out = []
        for value, buffer in zip(ops[-1].operands, buffers):
            held = lo.env[value]
            if buffer is None:
                out.append(held)
            elif not (isinstance(held, Buffer) and held.ptr == buffer.ptr):
                fill(b, buffer, held)
        lo.arena.top = mark
        return out

    has_else = len(op.regions[1].blocks) > 0
    scalars = iter(b.if_(lo.scalar(op.operands[0]), lambda: side(op.regions[0]), (lambda: side(op.regions[1])) if has_else else None, types))
    return [buffer if buffer is not None else next(scalars) for buffer in buffers]


def _scalar_type(lo: TileLowering, value: Any) -> Any:
    from tilewright.targets.cpu.lower_elementwise import compute_type

    return compute_type(lo.b, value.type)


@lowers("scf.while")
def while_(lo: TileLowering, op: Any) -> list[Any]:
    """Tiles live in one buffer each; what goes round is first put aside, since tiles may depend on each other."""
    b = lo.b
    before, after = op.regions[0].blocks[0], op.regions[1].blocks[0]

    def home(type: Any) -> Buffer | None:
        return lo.arena.take(list(type.shape), element_of(type)) if isinstance(type, ir.RankedTensorType) else None

    in_homes = [home(v.type) for v in op.operands]
    out_homes = [home(r.type) for r in op.results]
    for buffer, value in zip(in_homes, op.operands):
        if buffer is not None:
            fill(b, buffer, lo.env[value])

    def pass_on(values: Any, homes: list[Buffer | None]) -> list[Any]:
        aside = [fill(b, lo.arena.take(h.shape, h.element), lo.env[v]) if h is not None else None for v, h in zip(values, homes)]
        for h, kept in zip(homes, aside):
            if h is not None and kept is not None:
                fill(b, h, kept)
        return [lo.env[v] for v, h in zip(values, homes) if h is None]

    def bind(arguments: Any, homes: list[Buffer | None], scalars: Any) -> None:
        it = iter(scalars)
        for a, h in zip(arguments, homes):
            lo.env[a] = h if h is not None else next(it)

    inits = [lo.env[v] for v, h in zip(op.operands, in_homes) if h is None]
    out_types = [_scalar_type(lo, r) for r, h in zip(op.results, out_homes) if h is None]
    loop = b.op("scf.while", inits, out_types, None, 2)
    first = loop.regions[0].blocks.append(*[v.type for v in inits], arg_locs=[b.loc] * len(inits))
    second = loop.regions[1].blocks.append(*out_types, arg_locs=[b.loc] * len(out_types))
    outer, mark = b.ip, lo.arena.top
    b.ip = ir.InsertionPoint(first)
    bind(before.arguments, in_homes, first.arguments)
    ops = block_ops(before)
    lo.block(ops[:-1])
    condition, *passed = list(ops[-1].operands)
    scalars = pass_on(passed, out_homes)
    b.op("scf.condition", [lo.scalar(condition), *scalars])
    b.ip = ir.InsertionPoint(second)
    bind(after.arguments, out_homes, second.arguments)
    ops = block_ops(after)
    lo.block(ops[:-1])
    b.op("scf.yield", pass_on(list(ops[-1].operands), in_homes))
    b.ip, lo.arena.top = outer, mark
    results = iter(loop.results)
    return [h if h is not None else next(results) for h in out_homes]
