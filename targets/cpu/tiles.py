"""Tiles of the cpu target. A tile is a function of the index: it gives ``n`` lanes along its last dim wherever it is asked.

``Lazy`` computes them on the spot, so chains of elementwise ops fuse into the loop that asks; ``Buffer`` reads them from
scratch memory, row-major. ``materialise`` turns the one into the other by a loop over the tile.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.targets.cpu.loop_builder import VECTOR_LANES, LoopBuilder
from tilewright.targets.cpu.lower_elementwise import compute_type, from_storage, storage_type, to_storage

Index = Sequence[Any]  # one index value a dim


class Tile:
    """shape: sizes; element: the tt element type; costly: whether computing a lane again would be felt."""

    shape: tuple[int, ...]
    element: Any
    costly: bool = False
    divides: bool = False

    def lanes(self, index: Index, n: int) -> Any:
        """Lanes in compute form of the elements ``index``, ``index + 1``, … along the last dim. 1 ≤ n ≤ shape[-1]."""
        raise NotImplementedError

    def all_on(self, index: Index, n: int) -> Any:
        """Of a tile of i1: whether all those lanes are set, as a scalar."""
        raise NotImplementedError


class Lazy(Tile):
    """Computed where it is asked, once a place: within one evaluation the same lanes are not made twice (an integer hash that
    uses each value twice would else grow exponentially)."""

    def __init__(self, b: LoopBuilder, shape: Sequence[int], element: Any, compute: Callable[[Index, int], Any], costly: bool = False,
                 divides: bool = False, all_on: Callable[[Index, int], Any] | None = None):
        self.b, self.shape, self.element, self.compute, self.costly, self.divides = b, tuple(shape), element, compute, costly, divides
        self.all_on_shortcut = all_on

    def lanes(self, index: Index, n: int) -> Any:
        known = self.b.known
        if not known:
            return self.compute(index, n)
        key = (self, n, *index)
        for block in reversed(known):
            if key in block:
                return block[key]
        value = known[-1][key] = self.compute(index, n)
        return value

    def all_on(self, index: Index, n: int) -> Any:
        if n > 1 and self.all_on_shortcut is not None:
            return self.all_on_shortcut(index, n)
        return self.b.all_of(self.lanes(index, n))


class Buffer(Tile):
    """Row-major scratch memory at ``ptr``. ``wide``: elements are stored in compute form (no narrowing)."""

    def __init__(self, b: LoopBuilder, ptr: Any, shape: Sequence[int], element: Any, wide: bool = False):
        self.b, self.ptr, self.shape, self.element, self.wide = b, ptr, tuple(shape), element, wide
        self.stored = stored_type(b, element, wide)

    def flat(self, index: Index) -> Any:
        """Position of an element, in elements."""
        b = self.b
        where = b.idx(0)
        stride = math.prod(self.shape)
        for i, size in zip(index, self.shape):
            stride //= size
            if size > 1:
                where = b.add(where, b.mul(i, b.idx(stride)))
        return where

    def address(self, index: Index) -> Any:
        return self.b.gep(self.ptr, self.flat(index), self.stored)

    def lanes(self, index: Index, n: int) -> Any:
        raw = self.b.load(self.address(index), self.b.vec(n, self.stored))
        return self.decode(raw)

    def all_on(self, index: Index, n: int) -> Any:
        return self.b.all_of(self.lanes(index, n))

    def decode(self, raw: Any) -> Any:
        if self.wide:
            return self.b.cmpi("ne", raw, self.b.const(raw.type, 0)) if str(self.element) == "i1" else raw
        return from_storage(self.b, raw, self.element)

    def put(self, index: Index, value: Any) -> None:
        """Store lanes in compute form."""
        if not self.wide or str(self.element) == "i1":
            value = to_storage(self.b, value, self.element)
        self.b.store(value, self.address(index))


def stored_type(b: LoopBuilder, element: Any, wide: bool) -> Any:
    return compute_type(b, element) if wide and str(element) != "i1" else storage_type(b, element)


class Arena:
    """Scratch memory of one program, laid out while compiling: offsets grow, and fall back at the end of a block."""

    def __init__(self, b: LoopBuilder, base: Any):
        self.b, self.base, self.top, self.peak = b, base, 0, 0

    def take(self, shape: Sequence[int], element: Any, wide: bool = False) -> Buffer:
        """A buffer at a fixed offset, aligned to a cache line."""
        b = self.b
        ptr = b.gep(self.base, b.idx(self.top) if self.top else 0, b.i8)
        size = math.prod(shape) * b.size(stored_type(b, element, wide))
        self.top += (size + 63) // 64 * 64
        self.peak = max(self.peak, self.top)
        return Buffer(b, ptr, shape, element, wide)


@contextlib.contextmanager
def evaluating(b: LoopBuilder) -> Iterator[None]:
    """One evaluation of tiles: what it computes is remembered until its end, when memory may have changed."""
    saved, b.known = b.known, [{}]
    try:
        yield
    finally:
        b.known = saved


def each(b: LoopBuilder, shape: Sequence[int], n: int, body: Callable[[list[Any]], None]) -> None:
    """``body(index)`` for all indices of ``shape``, the last dim in steps of ``n``."""

    def nest(dim: int, index: list[Any]) -> None:
        if dim == len(shape):
            body(index)
            return
        b.loop(shape[dim], n if dim == len(shape) - 1 else 1, lambda i: nest(dim + 1, [*index, i]))

    with evaluating(b):
        nest(0, [])


def width(tile: Tile) -> int:
    """How many lanes to work on at once."""
    return min(VECTOR_LANES, tile.shape[-1])


def fill(b: LoopBuilder, buffer: Buffer, tile: Tile) -> Buffer:
    """Write every element of ``tile`` into ``buffer``."""
    n = width(tile)
    each(b, tile.shape, n, lambda index: buffer.put(index, tile.lanes(index, n)))
    return buffer


def materialise(b: LoopBuilder, arena: Arena, tile: Tile, wide: bool = False) -> Buffer:
    """The tile in scratch memory; as it is where it is there already (in the wanted form)."""
    if isinstance(tile, Buffer) and (not wide or tile.wide or tile.stored == stored_type(b, tile.element, True)):
        return tile
    return fill(b, arena.take(tile.shape, tile.element, wide), tile)


def lane_by_lane(b: LoopBuilder, n: int, last: Any, one: Callable[[Any], Any]) -> Any:
    """``n`` lanes made of scalars: ``one(last + k)`` for each k."""
    return b.from_elements([one(b.add(last, b.idx(k))) for k in range(n)])
