"""f32 → bf16 where there is no instruction for it: two numbers at a time, whose upper halves one v_perm_b32 joins.

Rounding is dialects' (``bf16_word``); a number costs v_bfe_u32, v_add3_u32, v_cmp_u_f32 and v_cndmask_b32, a pair one v_perm_b32 more (ISA manuals,
vector ALU opcodes). Taken one by one LLVM would shift each half down first.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.lowering.conversions import bf16_word, f32_to_bf16, lower_float_conversion

_UPPER_HALVES = 0x07060302  # bytes 3, 2 of the second source under bytes 3, 2 of the first


def lower_narrowing(ctx: Any, op: Any) -> list[Any] | None:
    """arith.truncf and tt.fp_to_fp; all but f32 → bf16 to nearest is the shared lowering's."""
    nearest = op.name == "arith.truncf" or ir.StringAttr(op.attributes["rounding"]).value == "rtne"
    source, target = ctx.element_type(op.operands[0]), ctx.element_type(op.results[0])
    if ctx.hooks.native_bf16_conversion or not nearest or not isinstance(source, ir.F32Type) or not isinstance(target, ir.BF16Type):
        return lower_float_conversion(ctx, op)
    registers = ctx.operands(op)[0]
    distinct = list(dict.fromkeys(registers))
    made: dict[Any, Any] = {}
    for first, second in zip(distinct[0::2], distinct[1::2]):
        made[first], made[second] = _pair(ctx.b, first, second)
    if len(distinct) % 2:
        made[distinct[-1]] = f32_to_bf16(ctx.b, distinct[-1], False)
    return [[made[r] for r in registers]]


def _pair(b: Any, first: Any, second: Any) -> tuple[Any, Any]:
    word = b.call_intrinsic("llvm.amdgcn.perm", b.t_i32, [bf16_word(b, second), bf16_word(b, first), b.i32(_UPPER_HALVES)])
    both = b.bitcast(word, b.vec(2, b.t_bf16))
    return b.extract_element(both, 0), b.extract_element(both, 1)
