"""Native f32 instructions laid over the portable expansions, and the barrier that orders global memory too.

f16 and bf16 go through f32; f64 stays portable, but for quotients and roots (lower_division). Errors, from the ISA manuals (vector ALU opcodes) and LLVM's AMDGPU user guide:
v_exp_f32, v_sqrt_f32 and v_rsq_f32 1 ulp, with subnormal arguments and results as 0, which stays so for exp; square roots scale
small arguments by a power of two; division (fdiv.fast,
a reciprocal and a product, scaled where the divisor is above 2^96) 2.5 ulp, divisors below 2^-126 counting as 0. exp(x) is
v_exp_f32(x·log2 e), whose product's rounding adds a relative error of |x|·2^-24. log2 and log are LLVM's own expansions of v_log_f32
(1 ulp, with subnormal arguments scaled; log multiplies by ln 2 in two parts). Sine and cosine stay portable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.lower_math import MathFunction
from tilewright.dialects.lowering.elementwise import map_registers
from tilewright.targets.amd import lower_division
from tilewright.targets.amd.lower_casts import lower_narrowing

LOG2_E, LOG2_10 = 1.4426950408889634, 3.321928094887362


def _unary(name: str) -> Callable[[Any, Any], Any]:
    return lambda b, x: b.call_intrinsic(name, b.t_f32, [x])


def _root(name: str, result: float) -> Callable[[Any, Any], Any]:
    """A square root whose instruction takes subnormal arguments for 0: these are multiplied by 2^32, and the root by ``result``."""
    native = _unary(name)

    def emit(b: Any, x: Any) -> Any:
        one, small = b.const(b.t_f32, 1.0), b.fcmp("olt", x, b.const(b.t_f32, 2.0**-126))
        root = native(b, b.fmul(x, b.select(small, b.const(b.t_f32, 2.0**32), one)))
        return b.fmul(root, b.select(small, b.const(b.t_f32, result), one))

    return emit


_exp2 = _unary("llvm.amdgcn.exp2.f32")
_sqrt, _rsqrt = _root("llvm.amdgcn.sqrt.f32", 2.0**-16), _root("llvm.amdgcn.rsq.f32", 2.0**16)


def _exp(b: Any, x: Any) -> Any:
    return _exp2(b, b.fmul(x, b.const(b.t_f32, LOG2_E)))


def _div(b: Any, x: Any, y: Any) -> Any:
    return b.call_intrinsic("llvm.amdgcn.fdiv.fast", b.t_f32, [x, y])


def _llvm(name: str) -> Callable[[Any, Any], Any]:
    return lambda b, x: b.op(f"llvm.intr.{name}", (x,), (x.type,)).result


def _exp10(b: Any, x: Any) -> Any:
    return _exp2(b, b.fmul(x, b.const(b.t_f32, LOG2_10)))


# libdevice's fast functions: what comes before the portable ones; bounds as above, for |x| up to what overflows
MATH: Mapping[tuple[str, str], MathFunction] = {
    (name, "f32"): MathFunction(name, "f32", build, ulp, arity)
    for name, build, ulp, arity in (("fast_expf", _exp, 64.0, 1), ("fast_exp10f", _exp10, 64.0, 1), ("fast_dividef", _div, 2.5, 2))} | dict(lower_division.MATH)


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

        lowered = lower_division.LOWERINGS.get(name, table()[name])(ctx, op)
        assert lowered is not None
        return lowered

    return lower


def _debug_barrier(ctx: Any, op: Any) -> None:
    ctx.hooks.full_barrier(ctx.b)


LOWERINGS: Mapping[str, Callable[[Any, Any], Any]] = {
    **lower_division.LOWERINGS,
    "tt.debug_barrier": _debug_barrier,
    "arith.truncf": lower_narrowing,
    "tt.fp_to_fp": lower_narrowing,
    **{name: _native(name, emit) for name, emit in (
        ("math.exp", _exp), ("math.exp2", _exp2), ("math.sqrt", _sqrt), ("math.rsqrt", _rsqrt), ("arith.divf", _div),
        ("math.log", _llvm("log")), ("math.log2", _llvm("log2")))},
}
