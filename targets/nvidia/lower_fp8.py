"""fp8 conversions by the ``cvt`` instructions of sm_89 and later, two elements at a time; elsewhere the shared arithmetic.

``cvt.rn.satfinite`` (PTX ISA manual, "cvt") rounds to nearest even and turns what is larger than the largest finite number,
infinities included, into that number, as the shared conversions do. Every fp8 value is exact in f16, so widening goes there.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.lowering.registry import table

_PTX = {"f8E4M3FN": "e4m3x2", "f8E5M2": "e5m2x2"}
_WIDE = ("f16", "bf16", "f32")
OPS = ("arith.extf", "arith.truncf", "tt.fp_to_fp")


def lower_conversion(ctx: Any, op: Any) -> list[Any]:
    """arith.extf, arith.truncf and tt.fp_to_fp."""
    source, to = str(ctx.element_type(op.operands[0])), str(ctx.element_type(op.results[0]))
    nearest = op.name != "tt.fp_to_fp" or ir.StringAttr(op.attributes["rounding"]).value == "rtne"
    if ctx.hooks.sm >= 89 and nearest:
        registers = ctx.get(op.operands[0])
        if source in _WIDE and to in _PTX:
            return [_pairs(registers, lambda pair: _narrow(ctx.b, pair, _PTX[to]))]
        if source in _PTX and to in _WIDE:
            return [_pairs(registers, lambda pair: _widen(ctx.b, pair, _PTX[source], ctx.llvm_type(op.results[0].type)))]
    lowered = table()[op.name](ctx, op)
    assert lowered is not None
    return lowered


def _pairs(registers: list[Any], convert: Any) -> list[Any]:
    """``convert`` on neighbouring registers; registers that repeat are converted once."""
    unique = list({id(r): r for r in registers}.values())
    out: dict[int, Any] = {}
    for i in range(0, len(unique), 2):
        pair = unique[i:i + 2]
        for register, value in zip(pair, convert(pair if len(pair) == 2 else pair * 2)):
            out[id(register)] = value
    return [out[id(r)] for r in registers]


def _narrow(b: Any, pair: list[Any], kind: str) -> list[Any]:
    low, high = (v if v.type == b.t_f32 else b.fpext(v, b.t_f32) for v in pair)
    word = b.inline_asm(f"cvt.rn.satfinite.{kind}.f32 $0, $1, $2;", "=h,f,f", b.t_i16, [high, low], side_effects=False)
    return b.unpack_vector(b.bitcast(word, b.vec(2, b.t_i8)), 2)


def _widen(b: Any, pair: list[Any], kind: str, type: Any) -> list[Any]:
    word = b.bitcast(b.pack_vector(pair), b.t_i16)
    halves = b.inline_asm(f"cvt.rn.f16x2.{kind} $0, $1;", "=r,h", b.t_i32, [word], side_effects=False)
    values = b.unpack_vector(b.bitcast(halves, b.vec(2, b.t_f16)), 2)
    if type == b.t_f16:
        return values
    wide = [b.fpext(v, b.t_f32) for v in values]
    return wide if type == b.t_f32 else [b.fptrunc(v, type) for v in wide]
