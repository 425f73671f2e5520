"""Quotients and square roots that are correctly rounded whatever the hardware's estimates are.

LLVM's own expansion of an f64 quotient refines the reciprocal r of the denominator d twice by r + r·(1 - d·r). Where d is one place below a power
of two, 1/d lies just above the middle between a power of two and the number after it: once r is the power of two, each step is a tie and stays
there, and so does the quotient (1 / (2 - 2^-52) gives 0.5). With r the float nearest to 1/d the last step is right for all numerators (Markstein,
"Computation of elementary functions on the IBM RISC System/6000 processor", 1990; Cornea, Harrison and Tang, "Scientific Computing on
Itanium-based Systems", 2002, on the divisor of all ones). So r's last bit is set for these d. The other way that r misses the nearest float is a
second step from an error that is too large still, which takes d of the form 2^53 - 3, 2^53 - 5, … and an estimate of less than 26 bits; the
manuals promise v_rcp_f64 23 bits (2^29 ulp), so the first step is a cubic one.

f32 likewise: v_rcp_f32 may be off by 1 ulp, so one step, two corrections of the quotient, and the same divisors.

Roots of f64: LLVM's last step knows 1/(2·sqrt(x)) to 46 bits and loses where the root lies next to the middle of two floats. Here the candidate is compared with
its neighbours' products (Tuckerman's test): g is right where g·(g - ulp) < x <= g·(g + ulp).

Scaling (v_div_scale, v_div_fmas, v_div_fixup) as in the ISA manuals' chapter "Vector ALU operations".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.lower_math import MathFunction
from tilewright.dialects.lowering.elementwise import map_registers
from tilewright.dialects.lowering.registry import table


def _quotient(b: Any, n: Any, d: Any, kind: str) -> Any:
    """n / d of ``kind`` "f32" or "f64", rounded once."""
    type, mantissa = (b.t_f32, 23) if kind == "f32" else (b.t_f64, 52)
    word = b.t_i32 if kind == "f32" else b.t_i64
    name = "llvm.amdgcn.{}." + kind
    scaled = b.struct([type, b.t_i1])
    one = b.const(type, 1.0)

    def scale(which: int) -> Any:
        return b.call_intrinsic(name.format("div.scale"), scaled, [n, d, b.i1(which)])

    with b.no_contract():
        down, up = scale(0), scale(1)
        den, num, flag = b.extract_value(down, 0, type), b.extract_value(up, 0, type), b.extract_value(up, 1, b.t_i1)
        minus = b.fneg(den)
        r = b.call_intrinsic(name.format("rcp"), type, [den])
        error = b.fma(minus, r, one)
        if kind == "f64":
            r = b.fma(r, b.fma(error, error, error), r)
            error = b.fma(minus, r, one)
        r = b.fma(error, r, r)
        ones = b.icmp("eq", b.or_(b.bitcast(den, word), b.const(word, -1 << mantissa)), b.const(word, -1))
        r = b.bitcast(b.or_(b.bitcast(r, word), b.zext(ones, word)), type)
        q = b.fmul(num, r)
        rest = b.fma(minus, q, num)
        if kind == "f32":  # the reciprocal comes from one step: q may be two places off
            q = b.fma(rest, r, q)
            rest = b.fma(minus, q, num)
        q = b.call_intrinsic(name.format("div.fmas"), type, [rest, r, q, flag])
        return b.call_intrinsic(name.format("div.fixup"), type, [q, d, n])


def _root(b: Any, x: Any) -> Any:
    """sqrt(x) of f64, rounded once."""
    type = b.t_f64
    half, one = b.const(type, 0.5), b.i64(1)
    with b.no_contract():
        small = b.fcmp("olt", x, b.const(type, 2.0**-767))  # what is lost of products below is not of their sign then
        s = b.fmul(x, b.select(small, b.const(type, 2.0**256), b.const(type, 1.0)))
        y = b.call_intrinsic("llvm.amdgcn.rsq.f64", type, [s])
        g, h = b.fmul(s, y), b.fmul(y, half)
        r = b.fma(b.fneg(h), g, half)
        g, h = b.fma(g, r, g), b.fma(h, r, h)
        g = b.fma(b.fma(b.fneg(g), g, s), h, g)  # the nearest or one beside it
        bits = b.bitcast(g, b.t_i64)
        below, above = (b.bitcast(f(bits, one), type) for f in (b.sub, b.add))
        zero = b.const(type, 0.0)
        too_large = b.fcmp("ole", b.fma(b.fneg(below), g, s), zero)
        too_small = b.fcmp("ogt", b.fma(b.fneg(above), g, s), zero)
        g = b.select(too_large, below, b.select(too_small, above, g))
        g = b.fmul(g, b.select(small, b.const(type, 2.0**-128), b.const(type, 1.0)))
        itself = b.or_(b.fcmp("oeq", x, zero), b.fcmp("oeq", x, b.const(type, float("inf"))))
        return b.select(itself, x, g)


def _power_of_two(value: Any) -> bool:
    """Whether an LLVM value is a constant power of two: LLVM multiplies by its reciprocal."""
    owner = value.owner
    if not isinstance(owner, ir.Operation) or owner.name != "llvm.mlir.constant":
        return False
    number = ir.FloatAttr(owner.attributes["value"]).value if ir.FloatAttr.isinstance(owner.attributes["value"]) else 0.0
    return number != 0 and number.hex().lstrip("-").startswith("0x1.0000000000000p")


def precise_quotient(b: Any, n: Any, d: Any) -> Any:
    """n / d of f32 or f64 values, correctly rounded."""
    if _power_of_two(d):
        return b.fdiv(n, d)
    return _quotient(b, n, d, "f32" if n.type == b.t_f32 else "f64")


def precise(name: str, emit: Callable[..., Any], *types: Any) -> Callable[[Any, Any], list[Any]]:
    """A lowering of op ``name`` by ``emit(b, *values)`` where the elements are of one of ``types``, and else the shared one."""
    def lower(ctx: Any, op: Any) -> list[Any]:
        if isinstance(ctx.element_type(op.results[0]), types):
            return [map_registers(lambda *args: emit(ctx.b, *args), ctx.operands(op))]
        lowered = table()[name](ctx, op)
        assert lowered is not None
        return lowered

    return lower


def _inverse_root(b: Any, x: Any) -> Any:
    """The portable rsqrt, with the same bits: of two roundings."""
    return precise_quotient(b, b.const(b.t_f64, 1.0), _root(b, x))


# of arith.divf: f64, and f32 where nothing is to be approximate (enable_fp_fusion off)
LOWERINGS: Mapping[str, Callable[[Any, Any], Any]] = {
    name: precise(name, precise_quotient, ir.F32Type, ir.F64Type) for name in ("tt.precise_divf", "arith.divf")}
MATH: Mapping[tuple[str, str], MathFunction] = {
    (name, "f64"): MathFunction(name, "f64", build, ulp, 1) for name, build, ulp in (("sqrt", _root, 0.5), ("rsqrt", _inverse_root, 1.5), ("rsqrt_rn", _inverse_root, 1.5))}
