"""tt.dot: matrix instructions, tile by tile as the mma encoding says, or fused multiply-adds where the accumulator is blocked."""

from __future__ import annotations

from typing import Any

from tilewright.dialects import encodings, ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import InternalCompilerError, UnsupportedOnTargetError
from tilewright.dialects.lowering.conversions import converter
from tilewright.dialects.lowering.indices import fields, register_constants, registers_by_element, thread_columns
from tilewright.dialects.lowering.registry import lowers


@lowers("tt.dot")
def lower_dot(ctx: Any, op: Any) -> list[Any]:
    encoding = encodings.downcast(op.results[0].type.encoding)
    if isinstance(encoding, ttg.MmaEncoding):
        return [_matrix_dot(ctx, op, encoding)]
    return [_fma_dot(ctx, op)]


# -------------------------------------------------------------------------------------------- matrix instructions
def _matrix_dot(ctx: Any, op: Any, encoding: Any) -> list[Any]:
    b, hooks = ctx.b, ctx.hooks
    row = encodings.mma_row(encoding)
    transposed = encodings.boolean(encoding.params[2])
    left, right, acc = op.operands
    for value in (left, right):
        operand = encodings.downcast(value.type.encoding)
        if not isinstance(operand, ttg.DotOperandEncoding) or encodings.downcast(operand.params[1]) != encoding:
            raise InternalCompilerError(f"tt.dot: operand {value.type} does not belong to the accumulator's layout {encoding}")
    a_tiles, b_tiles, c_tiles = (encodings.instruction_tiles(v.type.shape, v.type.encoding) for v in (left, right, acc))
    a_regs, b_regs = ctx.get(left), ctx.get(right)
    precision = ir.StringAttr(op.attributes["input_precision"]).value
    if precision not in ("tf32", "ieee") and str(left.type.element_type) == "f32":
        if precision == "tf32x3" and row.a_type == "tf32":
            return _split_dot(ctx, row, transposed, (a_tiles, b_tiles, c_tiles), a_regs, b_regs, list(ctx.get(acc)))
        raise UnsupportedOnTargetError(f"input_precision {precision!r} with the matrix instruction {row.name}; allowed here are "
                                       "'tf32' and 'tf32x3' (with a tf32 instruction), or 'ieee' for fused multiply-adds")
    out = list(ctx.get(acc))
    _multiply(b, hooks, row, transposed, (a_tiles, b_tiles, c_tiles), a_regs, b_regs, out)
    return _repeat(out, ctx.layout_of(acc))


def _multiply(b: Any, hooks: Any, row: Any, transposed: bool, tiles: Any, a_regs: list[Any], b_regs: list[Any],
              out: list[Any]) -> None:
    """``out`` += a·b in place. k is the outer loop, so that consecutive instructions do not wait for each other."""
    a_tiles, b_tiles, c_tiles = tiles
    steps = 1 + max(k for _, _, k in a_tiles)
    for k in range(steps):
        for (batch, i, j), c in c_tiles.items():
            a = [a_regs[r] for r in a_tiles[batch, i, k]]
            bv = [b_regs[r] for r in b_tiles[batch, k, j]]
            if transposed:
                a, bv = bv, a
            for r, value in zip(c, hooks.mma(b, row, a, bv, [out[r] for r in c]), strict=True):
                out[r] = value


def _split_dot(ctx: Any, row: Any, transposed: bool, tiles: Any, a_regs: list[Any], b_regs: list[Any], out: list[Any]) -> list[Any]:
    """tf32x3: each operand as a tf32 number and the rest; the three products that matter, smallest first."""
    b = ctx.b

    def split(registers: list[Any]) -> tuple[list[Any], list[Any]]:
        high = [b.bitcast(b.and_(b.bitcast(x, b.t_i32), b.i32(-0x2000)), b.t_f32) for x in registers]
        with b.no_contract():
            return high, [b.fsub(x, h) for x, h in zip(registers, high)]

    a_high, a_low = split(a_regs)
    b_high, b_low = split(b_regs)
    for x, y in ((a_low, b_high), (a_high, b_low), (a_high, b_high)):
        _multiply(b, ctx.hooks, row, transposed, tiles, x, y, out)
    return out


def _repeat(registers: list[Any], layout: Any) -> list[Any]:
    """Registers that repeat an element take its owner's value."""
    return [registers[r] for r in encodings.register_owners(layout)]


# --------------------------------------------------------------------------------------------- multiply and add
def _fma_dot(ctx: Any, op: Any) -> list[Any]:
    b = ctx.b
    left, right, acc = op.operands
    layouts = [ctx.layout_of(v) for v in (left, right, acc)]
    a_fields, b_fields, c_fields = map(fields, layouts)
    steps = left.type.shape[-1]
    type = ctx.element_type(acc)
    integer = isinstance(type, ir.IntegerType)
    wide = type if integer or not isinstance(type, ir.BF16Type) else b.t_f32

    def widen(value: Any) -> Any:
        source = ctx.element_type(value)
        registers = ctx.get(value)
        if integer:
            if ir.IntegerType(source).width == type.width:
                return registers
            return [b.sext(x, type) for x in registers]
        convert = converter(ctx, source, wide)
        made: dict[int, Any] = {}
        return [made.setdefault(id(x), convert(x)) if id(x) not in made else made[id(x)] for x in registers]

    def at(flds: Any, coordinates: tuple[int, ...]) -> int:
        return sum(c << shift for c, (shift, _) in zip(coordinates, flds))

    # The operands' layouts share the accumulator's threads: what a thread needs differs from thread 0's by the thread's part alone.
    for operand, flds, keep in ((layouts[0], a_fields, -2), (layouts[1], b_fields, -1)):
        shift, bits = c_fields[keep]
        own_shift = flds[keep][0]
        mine = [(c >> shift) & ((1 << bits) - 1) for c in thread_columns(layouts[2])]
        theirs = [(c >> own_shift) & ((1 << bits) - 1) for c in thread_columns(operand)]
        if mine != theirs:
            raise InternalCompilerError(f"tt.dot: operand layout {operand} does not belong to the accumulator's {layouts[2]}")
    a_regs, b_regs = widen(left), widen(right)
    a_table, b_table = registers_by_element(layouts[0]), registers_by_element(layouts[1])
    constants = register_constants(layouts[2])
    out = list(ctx.get(acc))
    up = (lambda x: b.fpext(x, wide)) if wide != type else (lambda x: x)
    down = converter(ctx, wide, type) if wide != type else (lambda x: x)
    for r in encodings.unique_registers(layouts[2]):
        coordinates = tuple((constants[r] >> shift) & ((1 << bits) - 1) for shift, bits in c_fields)
        batch, m, n = coordinates[:-2], coordinates[-2], coordinates[-1]
        total = up(out[r])
        for k in range(steps):
            x, y = a_regs[a_table[at(a_fields, (*batch, m, k))]], b_regs[b_table[at(b_fields, (*batch, k, n))]]
            total = b.add(total, b.mul(x, y)) if integer else b.fma(x, y, total)
        out[r] = down(total)
    return _repeat(out, layouts[2])
