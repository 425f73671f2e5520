"""Native f32 instructions laid over the portable expansions. f16 and bf16 go through f32; f64 stays portable.

Errors, from the PTX ISA manual (floating-point instructions): ex2.approx.ftz 2 ulp, subnormal results become 0; sqrt.approx
and rsqrt.approx relative 2^-23 and 2^-22.4; div.full 2 ulp. exp(x) is ex2(x·log2 e), whose product's rounding adds a relative
error of |x|·2^-24. Logarithms, sin and cos have no native form that is accurate near their zeros, so they stay portable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.lower_math import MathFunction
from tilewright.dialects.lowering.elementwise import map_registers

LOG2_E, LOG2_10 = 1.4426950408889634, 3.321928094887362


def _exp2(b: Any, x: Any) -> Any:
    return b.call_intrinsic("llvm.nvvm.ex2.approx.ftz.f32", b.t_f32, [x])


def _exp(b: Any, x: Any) -> Any:
    return _exp2(b, b.fmul(x, b.const(b.t_f32, LOG2_E)))


def _sqrt(b: Any, x: Any) -> Any:
    return b.call_intrinsic("llvm.nvvm.sqrt.approx.f", b.t_f32, [x])


def _rsqrt(b: Any, x: Any) -> Any:
    return b.call_intrinsic("llvm.nvvm.rsqrt.approx.f", b.t_f32, [x])


def _div(b: Any, x: Any, y: Any) -> Any:
    return b.call_intrinsic("llvm.nvvm.div.full", b.t_f32, [x, y])


def _exp10(b: Any, x: Any) -> Any:
    return _exp2(b, b.fmul(x, b.const(b.t_f32, LOG2_10)))


# libdevice's fast functions: what comes before the portable ones; bounds as above, for |x| up to what overflows
MATH: Mapping[tuple[str, str], MathFunction] = {
    (name, "f32"): MathFunction(name, "f32", build, ulp, arity)
    for name, build, ulp, arity in (("fast_expf", _exp, 64.0, 1), ("fast_exp10f", _exp10, 64.0, 1), ("fast_dividef", _div, 2.5, 2))}


def _native(name: str, emit: Callable[..., Any]) -> Callable[[Any, Any], list[Any]]:
    """A lowering that uses ``emit(b, *f32 values)`` for f32, f16 and bf16, and else the shared one. With ``enable_fp_fusion`` off it
    is always the shared one, whose bits are the same on every target (docs/math_accuracy.md)."""
    def lower(ctx: Any, op: Any) -> list[Any]:
        b, type = ctx.b, ctx.element_type(op.results[0])
        if b.contract and isinstance(type, ir.F32Type):
            return [map_registers(lambda *args: emit(b, *args), ctx.operands(op))]
        if b.contract and isinstance(type, (ir.F16Type, ir.BF16Type)):
            return [map_registers(lambda *args: b.fptrunc(emit(b, *(b.fpext(a, b.t_f32) for a in args)), type), ctx.operands(op))]
        from tilewright.dialects.lowering.registry import table

        lowered = table()[name](ctx, op)
        assert lowered is not None
        return lowered

    return lower


LOWERINGS: Mapping[str, Callable[[Any, Any], list[Any]]] = {
    name: _native(name, emit) for name, emit in (
        ("math.exp", _exp), ("math.exp2", _exp2), ("math.sqrt", _sqrt), ("math.rsqrt", _rsqrt), ("arith.divf", _div))
}
