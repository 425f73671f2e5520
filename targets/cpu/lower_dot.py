"""tt.dot: register blocks of fused multiply-adds over operands in scratch memory.

A block of C is ROWS × VECTORS vectors, held in registers while k runs: one load of B's vectors and ROWS broadcasts of A's
elements feed ROWS · VECTORS multiply-adds.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.targets.cpu.lower import TileLowering, lowers
from tilewright.targets.cpu.lower_elementwise import compute_type, element_of

from tilewright.targets.cpu.tiles import Buffer, Lazy, Tile, fill, materialise

ROWS, VECTORS = 4, 4
_UNROLL = 4


@lowers("tt.dot")
def dot(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    a, bt, c = (lo.tile(v) for v in op.operands)
    out = lo.out_buffer(op)
    element = element_of(op.results[0].type)
    compute = compute_type(b, element)
    mark = lo.arena.top
    a_wide, b_wide = (_operand(lo, t, compute) for t in (a, bt))
    if not isinstance(c, Buffer) and c.costly:
        c = materialise(b, lo.arena, c)
    if len(out.shape) == 2:
        _matmul(lo, a_wide, b_wide, c, out, compute, [])
    else:
        b.loop(out.shape[0], 1, lambda batch: _matmul(lo, a_wide, b_wide, c, out, compute, [batch]))
    lo.arena.top = mark
    return [out]


def _operand(lo: TileLowering, tile: Tile, compute: Any) -> Buffer:
    """The operand in scratch memory as elements of the accumulator's type."""
    b = lo.b
    if isinstance(tile, Buffer) and tile.stored == compute:
        return tile
    held = compute_type(b, tile.element)
    if held == compute:
        return materialise(b, lo.arena, tile, wide=True)
    if isinstance(compute, ir.IntegerType):  # int8 operands of an int32 product
        wider = Lazy(tile.shape, compute, lambda index, n: b.cast_int(tile.lanes(index, n), compute))
    elif held == b.f32:  # f32 operands of an f64 accumulator
        wider = Lazy(tile.shape, compute, lambda index, n: b.un("arith.extf", tile.lanes(index, n), b.vec(n, compute)))
    else:
        wider = Lazy(tile.shape, compute, lambda index, n: b.un("arith.truncf", tile.lanes(index, n), b.vec(n, compute)))
    return fill(b, lo.arena.take(tile.shape, compute, wide=True), wider)


def _matmul(lo: TileLowering, a: Buffer, bt: Buffer, c: Tile, out: Buffer, compute: Any, batch: list[Any]) -> None:
    b = lo.b
    m_size, n_size, k_size = out.shape[-2], out.shape[-1], a.shape[-1]
    lanes = min(16, n_size)
    vectors = min(VECTORS, n_size // lanes)
    rows = min(ROWS, m_size)
    vector = b.vec(lanes, compute)
    integer = isinstance(compute, ir.IntegerType)

    def multiply_add(x: Any, y: Any, z: Any) -> Any:
        if integer:
            return b.bin("arith.addi", b.bin("arith.muli", x, y), z)
        return b.fma(x, y, z)

    def block(m: Any, n: Any) -> None:
        columns = [b.add(n, b.idx(v * lanes)) for v in range(vectors)]
        places = [b.add(m, b.idx(r)) for r in range(rows)]
        start = [c.lanes([*batch, place, column], lanes) for place in places for column in columns]
        a_row = [a.address([*batch, place, b.idx(0)]) for place in places]
        b_top = bt.address([*batch, b.idx(0), n])

        def step(k: Any, accs: list[Any]) -> list[Any]:
            accs = list(accs)
            for u in range(unroll):
                kk = b.add(k, b.idx(u))
                row = b.gep(b_top, b.mul(kk, b.idx(n_size)), compute)
                ys = [b.load(b.gep(row, v * lanes, compute), vector) for v in range(vectors)]
                for r in range(rows):
                    x = b.broadcast(b.load(b.gep(a_row[r], kk, compute), compute), lanes)
                    for v in range(vectors):
                        accs[r * vectors + v] = multiply_add(x, ys[v], accs[r * vectors + v])
            return accs

        unroll = min(_UNROLL, k_size)
        sums = step(b.idx(0), start) if k_size == unroll else b.for_(b.idx(0), b.idx(k_size), b.idx(unroll), start, step)
        for r, place in enumerate(places):
            for v, column in enumerate(columns):
                out.put([*batch, place, column], sums[r * vectors + v])

    b.loop(n_size, vectors * lanes, lambda n: b.loop(m_size, rows, lambda m: block(m, n)))
