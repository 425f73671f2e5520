"""Reductions and scans: the combiner's block is evaluated on whole vectors, then on halves of one vector.

A combiner with branches or loops is scalar code, called for one element after another, as the function of a map_elementwise is.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.targets.cpu.lower import TileLowering, lowers
from tilewright.targets.cpu.lower_control import block_ops
from tilewright.targets.cpu.lower_elementwise import compute_type, emit
from tilewright.targets.cpu.tiles import Tile, each, width


def _combiner(lo: TileLowering, op: Any) -> Any:
    """``combine(accumulators, elements)`` → accumulators, on lanes of any width."""
    b = lo.b
    block = op.regions[0].blocks[0]
    ops = block_ops(block)
    arguments = list(block.arguments)

    def combine_one(accs: list[Any], elements: list[Any]) -> list[Any]:
        mark = lo.arena.top
        for argument, lanes in zip(arguments, [*accs, *elements]):
            lo.env[argument] = lanes
        lo.block(ops[:-1])
        lo.arena.top = mark
        return [lo.env[v] for v in ops[-1].operands]

    if _branches(op):
        return combine_one

    def combine(accs: list[Any], elements: list[Any]) -> list[Any]:
        n = b.lanes(accs[0].type)
        values = dict(zip(arguments, [*accs, *elements]))
        for inner in ops[:-1]:
            if inner.name == "arith.constant":
                attr = inner.attributes["value"]
                element = inner.results[0].type
                number = ir.IntegerAttr(attr).value if isinstance(element, ir.IntegerType) else ir.FloatAttr(attr).value
                values[inner.results[0]] = b.const(b.vec(n, compute_type(b, element)), number)
            else:
                lanes = [values[v] if v in values else b.broadcast(lo.env[v], n) for v in inner.operands]
                values[inner.results[0]] = emit(b, inner, lanes, n, lo.declare)
        return [values[v] if v in values else b.broadcast(lo.env[v], n) for v in ops[-1].operands]

    return combine


def _branches(op: Any) -> bool:
    return any(len(inner.regions) for inner in block_ops(op.regions[0].blocks[0]))


@lowers("tt.reduce")
def reduce(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    axis = ir.IntegerAttr(op.attributes["axis"]).value
    tiles: list[Tile] = [lo.tile(v) for v in op.operands]
    shape = tiles[0].shape
    combine = _combiner(lo, op)
    outs: list[Any] = [lo.out_buffer(op, i) if lo.is_tile(r) else None for i, r in enumerate(op.results)]

    def over(size: int, step: int, at: Any) -> list[Any]:
        """Combine ``at(i)`` (a list of lanes) for i in range(0, size, step)."""
        first = at(b.idx(0))
        if size <= step:
            return first
        if size == 2 * step:
            return combine(first, at(b.idx(step)))
        return b.for_(b.idx(step), b.idx(size), b.idx(step), first, lambda i, accs: combine(accs, at(i)))

    if axis != len(shape) - 1:
        n = 1 if _branches(op) else width(tiles[0])
        rest = [*shape[:axis], *shape[axis + 1:]]

        def column(index: Any) -> None:
            totals = over(shape[axis], 1, lambda i: [t.lanes([*index[:axis], i, *index[axis:]], n) for t in tiles])
            for out, total in zip(outs, totals):
                out.put(index, total)

        each(b, rest, n, column)
        return list(outs)

    n = 1 if _branches(op) else min(_lanes_for(shape[-1]), shape[-1])
    scalars: list[Any] = []

    def row(index: Any) -> None:
        totals = over(shape[-1], n, lambda i: [t.lanes([*index, i], n) for t in tiles])
        lanes = n
        while lanes > 1:
            totals = combine([b.half(t, 0) for t in totals], [b.half(t, 1) for t in totals])
            lanes //= 2
        if outs[0] is None:
            scalars.extend(totals)
        for out, total in zip(outs, totals):
            if out is not None:
                out.put(index, total)

    each(b, shape[:-1], 1, row)
    return scalars if outs[0] is None else list(outs)


def _lanes_for(size: int) -> int:
    """More lanes than one register where the row is long: independent sums hide the latency of adding."""
    return 64 if size >= 256 else 16


@lowers("tt.scan")
def scan(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    axis = ir.IntegerAttr(op.attributes["axis"]).value
    backwards = ir.BoolAttr(op.attributes["reverse"]).value
    tiles: list[Tile] = [lo.tile(v) for v in op.operands]
    shape = tiles[0].shape
    combine = _combiner(lo, op)
    outs = [lo.out_buffer(op, i) for i in range(len(op.results))]
    last = axis == len(shape) - 1
    n = 1 if last or _branches(op) else width(tiles[0])
    size = shape[axis]

    def line(index: Any) -> None:
        def position(i: Any) -> Any:
            return b.bin("arith.subi", b.idx(size - 1), i) if backwards else i

        def at(i: Any) -> list[Any]:
            return [*index[:axis], position(i), *index[axis:]]

        first = [t.lanes(at(b.idx(0)), n) for t in tiles]
        for out, value in zip(outs, first):
            out.put(at(b.idx(0)), value)

        def step(i: Any, accs: list[Any]) -> list[Any]:
            totals = combine(accs, [t.lanes(at(i), n) for t in tiles])
            for out, value in zip(outs, totals):
                out.put(at(i), value)
            return totals

        if size > 1:
            b.for_(b.idx(1), b.idx(size), b.idx(1), first, step)

    each(b, [*shape[:axis], *shape[axis + 1:]], n, line)
    return list(outs)


