"""Ops that move no data between threads: each register of the result is a register of a source, found by layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import InternalCompilerError
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.lowering.indices import fields, register_constants, registers_by_element, thread_columns
from tilewright.dialects.lowering.registry import lowers


def renumber(src: LinearLayout, dst: LinearLayout, source_of: Callable[[int], int]) -> list[int] | None:
    """For each register of ``dst`` the register of ``src`` that holds its element, or None where that takes other threads.

    source_of: row-major number of an element of the result → that of its source; linear over xor.
    """
    if tuple(map(source_of, thread_columns(dst))) != thread_columns(src):
        return None
    table = registers_by_element(src)
    found = [table.get(source_of(c)) for c in register_constants(dst)]
    return None if None in found else found  # type: ignore[return-value]


def _rearrange(ctx: Any, op: Any, source_of: Callable[[int], int]) -> list[Any]:
    src, dst = ctx.layout_of(op.operands[0]), ctx.layout_of(op.results[0])
    numbers = renumber(src, dst, source_of)
    if numbers is None:
        raise _mismatch(op)
    registers = ctx.get(op.operands[0])
    return [[registers[i] for i in numbers]]


def _mismatch(op: Any) -> InternalCompilerError:
    return InternalCompilerError(f"{op.name}: the layouts of {op.operands[0].type} and {op.results[0].type} put an element into "
                                 "different threads; a ttg.convert_layout is missing")


def _ints(op: Any, name: str) -> list[int]:
    return list(ir.DenseI32ArrayAttr(op.attributes[name]))


@lowers("tt.splat")
def lower_splat(ctx: Any, op: Any) -> list[Any]:
    return [[ctx.scalar(op.operands[0])] * ctx.layout_of(op.results[0]).in_size("register")]


@lowers("tt.unsplat")
def lower_unsplat(ctx: Any, op: Any) -> list[Any]:
    return [[ctx.get(op.operands[0])[0]]]


@lowers("tt.expand_dims")
def lower_expand_dims(ctx: Any, op: Any) -> list[Any]:
    return _rearrange(ctx, op, lambda e: e)


@lowers("tt.reshape")
def lower_reshape(ctx: Any, op: Any) -> list[Any]:
    src, dst = ctx.layout_of(op.operands[0]), ctx.layout_of(op.results[0])
    if ir.BoolAttr(op.attributes["allow_reorder"]).value and renumber(src, dst, lambda e: e) is None \
            and src.in_size("register") == dst.in_size("register") and src.is_injective() and dst.is_injective():
        return [list(ctx.get(op.operands[0]))]  # every thread keeps what it has
    return _rearrange(ctx, op, lambda e: e)


@lowers("tt.broadcast")
def lower_broadcast(ctx: Any, op: Any) -> list[Any]:
    src, dst = ctx.layout_of(op.operands[0]), ctx.layout_of(op.results[0])
    moves = [(dst_shift, (1 << src_bits) - 1, src_shift)
             for (src_shift, src_bits), (dst_shift, _) in zip(fields(src), fields(dst))]

    def source_of(e: int) -> int:
        out = 0
        for dst_shift, mask, src_shift in moves:
            out |= (e >> dst_shift & mask) << src_shift
        return out

    return _rearrange(ctx, op, source_of)


@lowers("tt.trans")
def lower_trans(ctx: Any, op: Any) -> list[Any]:
    src, dst = fields(ctx.layout_of(op.operands[0])), fields(ctx.layout_of(op.results[0]))
    moves = [(dst[i][0], (1 << dst[i][1]) - 1, src[d][0]) for i, d in enumerate(_ints(op, "order"))]

    def source_of(e: int) -> int:
        out = 0
        for dst_shift, mask, src_shift in moves:
            out |= (e >> dst_shift & mask) << src_shift
        return out

    return _rearrange(ctx, op, source_of)


@lowers("tt.join")
def lower_join(ctx: Any, op: Any) -> list[Any]:
    src, dst = ctx.layout_of(op.operands[0]), ctx.layout_of(op.results[0])
    numbers = renumber(src, dst, lambda e: e >> 1)
    if numbers is None or any(c & 1 for c in thread_columns(dst)):
        raise _mismatch(op)
    sides = [ctx.get(v) for v in op.operands]
    return [[sides[c & 1][i] for i, c in zip(numbers, register_constants(dst))]]


@lowers("tt.split")
def lower_split(ctx: Any, op: Any) -> list[Any]:
    src, dst = ctx.layout_of(op.operands[0]), ctx.layout_of(op.results[0])
    registers, table = ctx.get(op.operands[0]), registers_by_element(src)
    if tuple(c << 1 for c in thread_columns(dst)) != thread_columns(src):
        raise _mismatch(op)
    out: list[Any] = []
    for side in (0, 1):
        numbers = [table.get(c << 1 | side) for c in register_constants(dst)]
        if None in numbers:
            raise _mismatch(op)
        out.append([registers[i] for i in numbers if i is not None])
    return out


def cat_in_registers(lhs: LinearLayout, rhs: LinearLayout, dst: LinearLayout) -> bool:
    """Whether each thread just appends its registers (the order is not promised): nobody may hold an element twice."""
    return (lhs.is_injective() and rhs.is_injective() and dst.is_injective()
            and dst.in_size("register") == lhs.in_size("register") + rhs.in_size("register"))


@lowers("tt.cat")
def lower_cat(ctx: Any, op: Any) -> list[Any]:
    layouts = [ctx.layout_of(v) for v in op.operands]
    dst = ctx.layout_of(op.results[0])
    sides = [ctx.get(v) for v in op.operands]
    if cat_in_registers(layouts[0], layouts[1], dst):
        return [[*sides[0], *sides[1]]]
    from tilewright.dialects.lowering.scratch import exchange

    size = 1 << layouts[0].total_out_bits
    return [exchange(ctx, op, list(zip(layouts, sides, (0, size))), dst)]


@lowers("tt.make_range")
def lower_make_range(ctx: Any, op: Any) -> list[Any]:
    b = ctx.b
    start = ir.IntegerAttr(op.attributes["start"]).value
    index = ctx.indices.along(ctx.layout_of(op.results[0]), 0)
    return [[b.add(i, b.i32(start)) for i in index] if start else index]
