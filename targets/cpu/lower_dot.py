"""tt.dot: register blocks of fused multiply-adds over operands in scratch memory.

A block of C is rows × vectors (``matrix_ops.register_block``), held in registers while k runs: one load of each of B's vectors and
one broadcast of an element of A a row feed rows · vectors multiply-adds. B is packed into panels as wide as a block, so that k walks
through consecutive memory; A stays row-major.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.targets.cpu.loop_builder import VECTOR_LANES
from tilewright.targets.cpu.lower import TileLowering, lowers
from tilewright.targets.cpu.lower_elementwise import compute_type, element_of
from tilewright.targets.cpu.matrix_ops import register_block
from tilewright.targets.cpu.tiles import Buffer, Lazy, Tile, each, evaluating, materialise


@lowers("tt.dot")
def dot(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    a, bt, c = (lo.tile(v) for v in op.operands)
    out = lo.out_buffer(op)
    compute = compute_type(b, element_of(op.results[0].type))
    mark = lo.arena.top
    if c.costly and not isinstance(c, Buffer):
        c = materialise(b, lo.arena, c)
    start = None if _is_zero(op.operands[2]) else c
    a_held = _rows(lo, a, compute)
    if len(out.shape) == 2:
        _matmul(lo, a_held, bt, start, out, compute, [])
    else:
        b.loop(out.shape[0], 1, lambda batch: _matmul(lo, a_held, bt, start, out, compute, [batch]))
    lo.arena.top = mark
    return [out]


def _is_zero(value: Any) -> bool:
    """Whether the tensor is a constant of zeros."""
    op = getattr(value.owner, "operation", value.owner)
    if getattr(op, "name", "") != "arith.constant":
        return False
    dense = ir.DenseElementsAttr(op.attributes["value"])
    if not dense.is_splat:
        return False
    number = dense.get_splat_value()
    return (ir.IntegerAttr(number).value if isinstance(number, ir.IntegerAttr) else ir.FloatAttr(number).value) == 0


def _converter(lo: TileLowering, tile: Tile, compute: Any) -> Callable[[Any], Any]:
    """From lanes of ``tile`` in compute form to the accumulator's type."""
    b, held = lo.b, compute_type(lo.b, tile.element)
    if held == compute:
        return lambda x: x
    if isinstance(compute, ir.IntegerType):  # int8 operands of an int32 product
        return lambda x: b.cast_int(x, compute)
    name = "arith.extf" if held == b.f32 else "arith.truncf"
    return lambda x: b.un(name, x, b.vec(b.lanes(x.type), compute))


def _rows(lo: TileLowering, tile: Tile, compute: Any) -> Buffer:
    """The operand in scratch memory, row-major, as elements of the accumulator's type."""
    if isinstance(tile, Buffer) and tile.stored == compute:
        return tile
    convert = _converter(lo, tile, compute)
    wide = Lazy(lo.b, tile.shape, compute, lambda index, n: convert(tile.lanes(index, n)))
    return materialise(lo.b, lo.arena, wide, wide=True)


def _panels(lo: TileLowering, tile: Tile, compute: Any, wide: int, batch: list[Any]) -> Any:
    """Pointer to the operand packed into panels of ``wide`` columns: element (k, n) at (n // wide · K + k) · wide + n % wide."""
    b = lo.b
    k_size, n_size = tile.shape[-2:]
    convert = _converter(lo, tile, compute)
    packed = lo.arena.take([n_size * k_size], compute, wide=True)
    n = min(VECTOR_LANES, wide)

    def body(index: list[Any]) -> None:
        k, first = index
        row = b.add(b.mul(first, b.idx(k_size)), b.mul(k, b.idx(wide)))
        for part in range(0, wide, n):
            lanes = convert(tile.lanes([*batch, k, b.add(first, b.idx(part))], n))
            b.store(lanes, b.gep(b.gep(packed.ptr, row, compute), part, compute))

    each(b, [k_size, n_size], wide, body)
    return packed.ptr


def _matmul(lo: TileLowering, a: Buffer, bt: Tile, c: Tile | None, out: Buffer, compute: Any, batch: list[Any]) -> None:
    """``out = a @ bt + c`` (``c`` None: zeros), where ``out`` may be the memory that ``c`` reads at the same index."""
    b = lo.b
    m_size, n_size, k_size = out.shape[-2], out.shape[-1], a.shape[-1]
    rows, vectors, lanes = register_block(lo.vector_bits, 8 * b.size(compute))
    lanes = min(lanes, n_size)
    vectors = min(vectors, n_size // lanes)
    wide = vectors * lanes
    panels = _panels(lo, bt, compute, wide, batch)
    vector = b.vec(lanes, compute)
    integer = isinstance(compute, ir.IntegerType)

    def multiply_add(x: Any, y: Any, z: Any) -> Any:
        return b.bin("arith.addi", b.bin("arith.muli", x, y), z) if integer else b.fma(x, y, z)

    def block(m: Any, n: Any, height: int) -> None:
        columns = [b.add(n, b.idx(v * lanes)) for v in range(vectors)]
        places = [b.add(m, b.idx(r)) for r in range(height)]
        zero = b.const(vector, 0)
        start = [zero if c is None else c.lanes([*batch, place, column], lanes) for place in places for column in columns]
        a_top = a.address([*batch, m, b.idx(0)])
        panel = b.gep(panels, b.mul(n, b.idx(k_size)), compute)

        def step(k: Any, accs: list[Any]) -> list[Any]:
            accs = list(accs)
            row = b.gep(panel, b.mul(k, b.idx(wide)), compute)
            ys = [b.load(b.gep(row, v * lanes, compute), vector) for v in range(vectors)]
            at = b.gep(a_top, k, compute)
            for r in range(height):
                x = b.broadcast(b.load(b.gep(at, r * k_size, compute), compute), lanes)
                for v in range(vectors):
                    accs[r * vectors + v] = multiply_add(x, ys[v], accs[r * vectors + v])
            return accs

        sums = b.for_(b.idx(0), b.idx(k_size), b.idx(1), start, step)
        for r, place in enumerate(places):
            for v, column in enumerate(columns):
                out.put([*batch, place, column], sums[r * vectors + v])

    def column(n: Any) -> None:
        whole = m_size // rows * rows
        if whole:
            b.loop(whole, rows, lambda m: block(m, n, rows))
        if m_size > whole:
            block(b.idx(whole), n, m_size - whole)

    with evaluating(b):
        b.loop(n_size, wide, column)
