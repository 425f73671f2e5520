"""Arithmetic that neither LLVM nor ptxas may move out of a loop: tt.addptr and tt.splat with the attribute PINNED (passes/fit_loads.py).

Both move what a loop does not change before it: ptxas takes even ``mad.wide`` apart, and keeps the products of 64 bits. So each takes a zero that follows
from a pointer which changes in each round, by a rule that neither knows: bit 1 of a square is 0. A sum of pointer and offset multiplies by
``element size + zero``, to a scalar the zero of the first pointer that the loop carries is added. Where the loop carries none, a scalar is moved by assembly of
which LLVM is told that it has side effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import type_info
from tilewright.dialects.lowering.registry import table
from tilewright.targets.nvidia.lower_hooks import width_of

PINNED = "ttng.pinned"


def _shared(ctx: Any, op: Any, name: str) -> list[Any]:
    lowered = table()[name](ctx, op)
    assert lowered is not None
    return lowered


def lower_addptr(ctx: Any, op: Any) -> list[Any]:
    """Offsets are of 32 bits, widened with their sign, or of 64. One instruction (PTX ISA, "Integer Arithmetic Instructions: mad")."""
    if PINNED not in op.attributes:
        return _shared(ctx, op, "tt.addptr")
    b = ctx.b
    size = width_of(ctx.storage_type(ctx.llvm_type(ctx.element_type(op.operands[0]).pointee_type))) // 8
    sizes: dict[Any, Any] = {}
    made: dict[Any, Any] = {}

    def add(pointer: Any, offset: Any) -> Any:
        key = pointer, offset
        if key not in made:  # what is broadcast comes often
            wide = width_of(offset.type) == 32
            if (pointer, wide) not in sizes:
                zero = _zero(b, pointer)
                sizes[pointer, wide] = b.add(zero, b.i32(size)) if wide else b.add(b.zext(zero, b.t_i64), b.i64(size))
            made[key] = b.inline_asm(f"mad.{'wide.s32' if wide else 'lo.s64'} $0, $1, $2, $3;", "=l,r,r,l" if wide else "=l,l,l,l", pointer.type,
                                     [offset, sizes[pointer, wide], pointer], side_effects=False)
        return made[key]

    pointers, offsets = ctx.operands(op)
    return [[add(p, o) for p, o in zip(pointers, offsets, strict=True)]]


def _zero(b: Any, pointer: Any) -> Any:
    """0 (i32), of which only the processor knows."""
    low = b.trunc(b.ptrtoint(pointer, b.t_i64), b.t_i32)
    return b.and_(b.inline_asm("mul.lo.u32 $0, $1, $1;", "=r,r", b.t_i32, [low], side_effects=False), b.i32(2))


def lower_splat(ctx: Any, op: Any) -> list[Any]:
    """Of integers of 32 and 64 bits; constants and others are as ever."""
    b, value = ctx.b, ctx.scalar(op.operands[0])
    if PINNED not in op.attributes or not isinstance(value.type, ir.IntegerType) or value.type.width not in (32, 64) or b.constant_of(value) is not None:
        return _shared(ctx, op, "tt.splat")
    short = value.type.width == 32
    carried = next((v for v in ctx.node.region.args if type_info(v.type).kind == "ptr" and type_info(v.type).shape is None), None)
    if carried is None or ctx.node.parent.name != "scf.for":
        value = b.inline_asm(f"mov.b{value.type.width} $0, $1;", "=r,r" if short else "=l,l", value.type, [value])
    else:
        zero = _zero(b, ctx.scalar(carried))
        value = b.add(value, zero if short else b.zext(zero, b.t_i64))
    return [[value] * ctx.layout_of(op.results[0]).in_size("register")]


LOWERINGS: Mapping[str, Callable[[Any, Any], list[Any]]] = {"tt.addptr": lower_addptr, "tt.splat": lower_splat}
