"""Shape ops as tiles: what index of the source an index of the result asks for."""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.targets.cpu.lower import TileLowering, lowers
from tilewright.targets.cpu.tiles import Buffer, Lazy, Tile, each, fill, lane_by_lane, materialise, width


def _attr(op: Any, name: str) -> int:
    return ir.IntegerAttr(op.attributes[name]).value


@lowers("tt.make_range")
def make_range(lo: TileLowering, op: Any) -> list[Any]:
    b, start = lo.b, _attr(op, "start")

    def compute(index: Any, n: int) -> Any:
        first = b.add(b.cast_int(index[0], b.i32), b.const(b.i32, start)) if b.constant_of(index[0]) is None else b.const(
            b.i32, int(b.constant_of(index[0])) + start)
        return first if n == 1 else b.bin("arith.addi", b.broadcast(first, n), b.iota(n, b.i32))

    return [Lazy(lo.b, lo.shape(op), b.i32, compute)]


@lowers("tt.splat")
def splat(lo: TileLowering, op: Any) -> list[Any]:
    value = lo.scalar(op.operands[0])
    return [Lazy(lo.b, lo.shape(op), lo.element(op), lambda index, n: lo.b.broadcast(value, n), all_on=lambda index, n: value)]


@lowers("tt.unsplat")
def unsplat(lo: TileLowering, op: Any) -> list[Any]:
    tile = lo.tile(op.operands[0])
    return [tile.lanes([lo.b.idx(0)] * len(tile.shape), 1)]


@lowers("tt.expand_dims")
def expand_dims(lo: TileLowering, op: Any) -> list[Any]:
    src, axis = lo.tile(op.operands[0]), _attr(op, "axis")

    def inner(index: Any) -> list[Any]:
        return [*index[:axis], *index[axis + 1:]]

    shortcut = (lambda index, n: src.all_on(inner(index), n)) if axis < len(src.shape) else None
    return [Lazy(lo.b, lo.shape(op), src.element, lambda index, n: src.lanes(inner(index), n), src.costly, src.divides, shortcut)]


@lowers("tt.broadcast")
def broadcast(lo: TileLowering, op: Any) -> list[Any]:
    b, src = lo.b, lo.tile(op.operands[0])
    if src.costly or src.divides:  # each element would be computed again along the new dims
        src = materialise(b, lo.arena, src)

    def inner(index: Any) -> list[Any]:
        return [b.idx(0) if s == 1 else i for i, s in zip(index, src.shape)]

    def compute(index: Any, n: int) -> Any:
        return b.broadcast(src.lanes(inner(index), 1), n) if src.shape[-1] == 1 else src.lanes(inner(index), n)

    def all_on(index: Any, n: int) -> Any:
        return src.lanes(inner(index), 1) if src.shape[-1] == 1 else src.all_on(inner(index), n)

    return [Lazy(lo.b, lo.shape(op), src.element, compute, all_on=all_on)]


@lowers("tt.trans")
def trans(lo: TileLowering, op: Any) -> list[Any]:
    b, src = lo.b, lo.tile(op.operands[0])
    order = list(ir.DenseI32ArrayAttr(op.attributes["order"]))
    if src.costly:
        src = materialise(b, lo.arena, src)

    def compute(index: Any, n: int) -> Any:
        def source(last: Any) -> list[Any]:
            where: list[Any] = [None] * len(order)
            for i, d in enumerate(order):
                where[d] = last if i == len(order) - 1 else index[i]
            return where

        if n == 1 or order[-1] == len(order) - 1:
            return src.lanes(source(index[-1]), n)
        return lane_by_lane(b, n, index[-1], lambda last: src.lanes(source(last), 1))

    return [Lazy(lo.b, lo.shape(op), src.element, compute)]


@lowers("tt.reshape")
def reshape(lo: TileLowering, op: Any) -> list[Any]:
    src = materialise(lo.b, lo.arena, lo.tile(op.operands[0]))
    return [Buffer(lo.b, src.ptr, lo.shape(op), src.element, src.wide)]


@lowers("tt.join")
def join(lo: TileLowering, op: Any) -> list[Any]:
    b, sides = lo.b, [lo.tile(v) for v in op.operands]
    out = lo.arena.take(lo.shape(op), sides[0].element)

    def body(index: Any) -> None:
        for c, side in enumerate(sides):
            out.put([*index, b.idx(c)], side.lanes(index, 1))

    each(b, sides[0].shape, 1, body)
    return [out]


@lowers("tt.split")
def split(lo: TileLowering, op: Any) -> list[Any]:
    b, src = lo.b, materialise(lo.b, lo.arena, lo.tile(op.operands[0]))

    def half(c: int) -> Tile:
        def compute(index: Any, n: int) -> Any:
            if n == 1:
                return src.lanes([*index, b.idx(c)], 1)
            return lane_by_lane(b, n, index[-1], lambda last: src.lanes([*index[:-1], last, b.idx(c)], 1))

        return Lazy(lo.b, src.shape[:-1], src.element, compute)

    return [half(0), half(1)]


@lowers("tt.cat")
def cat(lo: TileLowering, op: Any) -> list[Any]:
    b, sides = lo.b, [lo.tile(v) for v in op.operands]
    out = lo.arena.take(lo.shape(op), sides[0].element)
    first = sides[0].shape[0]
    fill(b, Buffer(b, out.ptr, (first,), out.element), sides[0])
    fill(b, Buffer(b, b.gep(out.ptr, first, out.stored), sides[1].shape, out.element), sides[1])
    return [out]


@lowers("tt.gather")
def gather(lo: TileLowering, op: Any) -> list[Any]:
    b, axis = lo.b, _attr(op, "axis")
    src, indices = materialise(b, lo.arena, lo.tile(op.operands[0])), lo.tile(op.operands[1])
    out = lo.arena.take(lo.shape(op), src.element)
    # An index outside has no meaning, but must not read outside the tile, which would end the process: dims are powers of two.
    last = b.const(b.index, src.shape[axis] - 1)

    def body(index: Any) -> None:
        where = list(index)
        where[axis] = b.bin("arith.andi", b.cast_int(indices.lanes(index, 1), b.index), last)
        out.put(index, src.lanes(where, 1))

    each(b, out.shape, 1, body)
    return [out]


@lowers("tt.histogram")
def histogram(lo: TileLowering, op: Any) -> list[Any]:
    b, src = lo.b, lo.tile(op.operands[0])
    mask = lo.tile(op.operands[1]) if len(op.operands) > 1 else None
    out = lo.arena.take(lo.shape(op), lo.element(op))
    n = width(out)
    each(b, out.shape, n, lambda index: out.put(index, b.broadcast(b.const(out.element, 0), n)))

    def body(index: Any) -> None:
        value = src.lanes(index, 1)
        inside = b.cmpi("ult", value, b.const(value.type, out.shape[0]))
        if mask is not None:
            inside = b.op("arith.andi", [inside, mask.lanes(index, 1)], [b.i1]).result

        def count() -> list[Any]:
            where = [b.cast_int(value, b.index)]
            out.put(where, b.bin("arith.addi", out.lanes(where, 1), b.const(out.element, 1)))
            return []

        b.if_(inside, count, None, [])

    each(b, src.shape, 1, body)
    return [out]
