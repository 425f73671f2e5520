"""Arithmetic, comparisons, bits, selection and elementary functions."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.errors import TypeMismatchError
from tilewright.language import dtypes as t
from tilewright.language.const import unwrap
from tilewright.language.semantic_base import SemanticBase, computation_type, describe, integer_promote, type_of_python
from tilewright.language.values import tensor

# comparison → (float predicate, signed, unsigned). NaN compares unequal to everything.
_COMPARISONS = {
    "greater_than": ("ogt", "sgt", "ugt"), "greater_equal": ("oge", "sge", "uge"), "less_than": ("olt", "slt", "ult"),
    "less_equal": ("ole", "sle", "ule"), "equal": ("oeq", "eq", "eq"), "not_equal": ("une", "ne", "ne"),
}
_SIGNS = {"greater_than": ">", "greater_equal": ">=", "less_than": "<", "less_equal": "<=", "equal": "==", "not_equal": "!="}

# function of one float argument → op
UNARY_MATH = {
    "exp": "math.exp", "exp2": "math.exp2", "log": "math.log", "log2": "math.log2", "sin": "math.sin", "cos": "math.cos",
    "sqrt": "math.sqrt", "rsqrt": "math.rsqrt", "erf": "math.erf", "floor": "math.floor", "ceil": "math.ceil",
}


class ArithmeticSemantic(SemanticBase):
    """Elementwise operations."""

    # -- arithmetic ------------------------------------------------------------------------------------------------
    def checks_overflow(self, scalar: Any) -> bool:
        """Whether sums, differences and products of that type are held to their exact values: those of integers of up to 32 bits, where the options
        ``debug`` and ``sanitize_overflow`` are on. Combiners check nothing: threads combine values, too, that no result is made of."""
        options = self.builder.options
        return (scalar.is_int() and scalar.int_bitwidth < 64 and not self.in_combiner and bool(getattr(options, "debug", False))
                and bool(getattr(options, "sanitize_overflow", True)))

    def assert_range(self, exact: tensor, scalar: Any, what: str) -> None:
        """Stop the program where ``exact`` (int64, or a float) is outside the range of the type ``scalar``."""
        low, high = (self.constant(v, exact.type) for v in (scalar.get_int_min_value(), scalar.get_int_max_value()))
        fits = self.and_(self.less_equal(exact, high), self.greater_equal(exact, low))
        self.builder.create("tt.assert", [fits.handle], [], {"message": f"{scalar.name} overflow detected for operation {what}"})

    def _assert_fits(self, op: str, lhs: tensor, rhs: tensor, what: str) -> None:
        """The exact result is that of int64; a product of uint32 that is larger than that holds wraps to a negative number, which does not fit either."""
        scalar = lhs.type.scalar
        if self.checks_overflow(scalar):
            wide = [self.cast(v, t.int64) for v in (lhs, rhs)]
            self.assert_range(self.new(op, wide, wide[0].type), scalar, what)

    def add(self, lhs: Any, rhs: Any, sanitize_overflow: bool = True) -> tensor:
        """Sum; pointer + integer advances by elements. ``sanitize_overflow`` False: may wrap, whatever the options say."""
        lhs, rhs = self.binary_operands(lhs, rhs, "+", ptr_lhs=True, ptr_rhs=True)
        l_type, r_type = lhs.type.scalar, rhs.type.scalar
        if l_type.is_ptr() and r_type.is_ptr():
            raise TypeMismatchError("two pointers cannot be added")
        if r_type.is_ptr():
            lhs, rhs, l_type = rhs, lhs, r_type
        if l_type.is_ptr():
            return self.addptr(lhs, rhs)
        if sanitize_overflow:
            self._assert_fits("arith.addi", lhs, rhs, "add")
        return self.float_op("arith.addf" if l_type.is_floating() else "arith.addi", [lhs, rhs], lhs.type)

    def addptr(self, ptr: tensor, offset: tensor) -> tensor:
        """Offsets are signed in the IR, so an unsigned one of up to 32 bits is widened first to keep its value."""
        off_type = offset.type.scalar
        if off_type.is_int_unsigned() and off_type.int_bitwidth < 64:
            offset = self.cast(offset, t.int64)
        return self.new("tt.addptr", [ptr, offset], ptr.type)

    def sub(self, lhs: Any, rhs: Any, sanitize_overflow: bool = True) -> tensor:
        lhs, rhs = self.binary_operands(lhs, rhs, "-", ptr_lhs=True)
        scalar = lhs.type.scalar
        if scalar.is_ptr():
            off = rhs.type.scalar
            if off.is_ptr():
                raise TypeMismatchError("two pointers cannot be subtracted; cast them to int64 first")
            if off.is_int_unsigned():
                rhs = self.cast(rhs, t.int64)
            return self.addptr(lhs, self.minus(rhs, sanitize_overflow))
        if sanitize_overflow:
            self._assert_fits("arith.subi", lhs, rhs, "sub")
        return self.float_op("arith.subf" if scalar.is_floating() else "arith.subi", [lhs, rhs], lhs.type)

    def mul(self, lhs: Any, rhs: Any, sanitize_overflow: bool = True) -> tensor:
        lhs, rhs = self.binary_operands(lhs, rhs, "*")
        if sanitize_overflow:
            self._assert_fits("arith.muli", lhs, rhs, "mul")
        return self.float_op("arith.mulf" if lhs.type.scalar.is_floating() else "arith.muli", [lhs, rhs], lhs.type)

    def truediv(self, lhs: Any, rhs: Any) -> tensor:
        """Float quotient; integers are divided as fp32, 16-bit floats in fp32 with an fp32 result."""
        lhs, rhs = self.binary_operands(lhs, rhs, "/", div_or_mod=True)
        if lhs.type.scalar.is_int():
            lhs, rhs = self.cast(lhs, t.float32), self.cast(rhs, t.float32)
        return self.divided(lhs, rhs)

    def divided(self, lhs: tensor, rhs: tensor) -> tensor:
        """Quotient of floats of one type. Of fp8 it is the correctly rounded one in fp32 that is rounded to fp8: approximate division
        would not be the same on every target."""
        return self.in_wider("tt.precise_divf", [lhs, rhs], lhs.type) if lhs.type.scalar.is_fp8() else self.new("arith.divf", [lhs, rhs], lhs.type)

    def floordiv(self, lhs: Any, rhs: Any) -> tensor:
        """Integer quotient, truncated towards zero (unlike Python's, and like Triton's)."""
        lhs, rhs = self.binary_operands(lhs, rhs, "//", div_or_mod=True)
        scalar = lhs.type.scalar
        if not scalar.is_int():
            raise TypeMismatchError(f"// takes integers, not {scalar}; use / and tl.floor")
        self._not_by_zero("//", rhs)
        return self.new("arith.divsi" if scalar.is_int_signed() else "arith.divui", [lhs, rhs], lhs.type)

    def mod(self, lhs: Any, rhs: Any) -> tensor:
        """Remainder with the sign of the dividend (C's, and Triton's)."""
        lhs, rhs = self.binary_operands(lhs, rhs, "%", div_or_mod=True)
        scalar = lhs.type.scalar
        self._not_by_zero("%", rhs)
        op = "arith.remf" if scalar.is_floating() else "arith.remsi" if scalar.is_int_signed() else "arith.remui"
        return self.float_op(op, [lhs, rhs], lhs.type)

    def _not_by_zero(self, sign: str, divisor: tensor) -> None:
        """Targets differ in what they make of x // 0. A warning, not an error: the operation may stand where it never runs."""
        if divisor.const == 0 and divisor.type.scalar.is_int():
            self.builder.warn(f"{sign} by 0, a constant: no integer is the result, and targets differ; choose by tl.where what stands in its place")

    def fdiv(self, lhs: Any, rhs: Any, ieee_rounding: bool = False) -> tensor:
        """Float quotient in the operands' own type; ``ieee_rounding``: correctly rounded."""
        lhs, rhs = self.binary_operands(lhs, rhs, "fdiv")
        if not lhs.type.scalar.is_floating():
            raise TypeMismatchError(f"fdiv takes floats, not {lhs.type.scalar}")
        if ieee_rounding and lhs.type.scalar.is_fp32():
            return self.new("tt.precise_divf", [lhs, rhs], lhs.type)
        return self.divided(lhs, rhs)

    def minus(self, value: tensor, sanitize_overflow: bool = True) -> tensor:
        scalar = value.type.scalar
        if scalar.is_ptr():
            raise TypeMismatchError("a pointer has no negative")
        if scalar.is_floating():
            return self.float_op("arith.negf", [value], value.type)
        zero = self.constant(0, value.type)
        if sanitize_overflow:
            self._assert_fits("arith.subi", zero, value, "sub")
        return self.new("arith.subi", [zero, value], value.type)

    # -- bits ------------------------------------------------------------------------------------------------------
    def _bitwise(self, op: str, sign: str, lhs: Any, rhs: Any) -> tensor:
        lhs, rhs = self.binary_operands(lhs, rhs, sign, promote=self._may_promote(lhs, rhs))
        if not lhs.type.scalar.is_int() or not rhs.type.scalar.is_int():
            raise TypeMismatchError(f"{sign} takes integers, not {lhs.type.scalar} and {rhs.type.scalar}")
        bits = lhs.type.scalar.int_bitwidth
        if sign in ("<<", ">>") and rhs.const is not None and not 0 <= rhs.const < bits:
            self.builder.warn(f"{sign} of {lhs.type.scalar} by {rhs.const}, a constant: machines shift by 0 to {bits - 1}, and differ beyond; "
                              "cast to a wider type, or write what the result is to be")
        return self.new(op, [lhs, rhs], lhs.type)

    @staticmethod
    def _may_promote(lhs: Any, rhs: Any) -> bool:
        # a float operand is refused with bitwise's own message rather than by promotion
        return not any(isinstance(v, float) or (isinstance(v, tensor) and not v.type.scalar.is_int()) for v in (lhs, rhs))

    def and_(self, lhs: Any, rhs: Any) -> tensor:
        return self._bitwise("arith.andi", "&", lhs, rhs)

    def or_(self, lhs: Any, rhs: Any) -> tensor:
        return self._bitwise("arith.ori", "|", lhs, rhs)

    def xor_(self, lhs: Any, rhs: Any) -> tensor:
        return self._bitwise("arith.xori", "^", lhs, rhs)

    def shl(self, lhs: Any, rhs: Any) -> tensor:
        return self._bitwise("arith.shli", "<<", lhs, rhs)

    def shr(self, lhs: Any, rhs: Any) -> tensor:
        """Arithmetic where the left operand is signed before promotion, else logical; a number shifted by a tensor goes by the tensor."""
        lhs, rhs = unwrap(lhs), unwrap(rhs)
        signed = next((v.type.scalar.is_int_signed() for v in (lhs, rhs) if isinstance(v, tensor)), True)
        return self._bitwise("arith.shrsi" if signed else "arith.shrui", ">>", lhs, rhs)

    def invert(self, value: tensor) -> tensor:
        scalar = value.type.scalar
        if not scalar.is_int():
            raise TypeMismatchError(f"~ takes integers, not {scalar}")
        return self.new("arith.xori", [value, self.constant(-1, value.type)], value.type)

    # -- truth -----------------------------------------------------------------------------------------------------
    def to_bool(self, value: Any) -> tensor:
        """``value != 0``, int1."""
        value = self.to_tensor(value)
        return value if value.type.scalar.is_bool() else self.cast(value, t.int1)

    def logical_and(self, lhs: Any, rhs: Any) -> tensor:
        return self.and_(self.to_bool(lhs), self.to_bool(rhs))

    def logical_or(self, lhs: Any, rhs: Any) -> tensor:
        return self.or_(self.to_bool(lhs), self.to_bool(rhs))

    def not_(self, value: Any) -> tensor:
        return self.invert(self.to_bool(value))

    def _compare(self, name: str, lhs: Any, rhs: Any) -> tensor:
        # a number takes part with its own type, as in Triton: `x > 0.1` of fp16 compares in fp32, with no rounding of 0.1 to fp16
        lhs, rhs = self.to_tensor(lhs), self.to_tensor(rhs)
        lhs, rhs = self.binary_operands(lhs, rhs, _SIGNS[name], ptr_lhs=True, ptr_rhs=True)
        l_type, r_type = lhs.type.scalar, rhs.type.scalar
        if l_type.is_ptr() or r_type.is_ptr():
            lhs = self.cast(lhs, t.uint64) if l_type.is_ptr() else self.cast(lhs, t.uint64)
            rhs = self.cast(rhs, t.uint64) if r_type.is_ptr() else self.cast(rhs, t.uint64)
            l_type = t.uint64
        result = lhs.type.with_element_ty(t.int1)
        of_float, signed, unsigned = _COMPARISONS[name]
        if l_type.is_floating():
            return self.float_op("arith.cmpf", [lhs, rhs], result, {"predicate": of_float})
        return self.new("arith.cmpi", [lhs, rhs], result, {"predicate": signed if l_type.is_int_signed() else unsigned})

    def greater_than(self, lhs: Any, rhs: Any) -> tensor:
        return self._compare("greater_than", lhs, rhs)

    def greater_equal(self, lhs: Any, rhs: Any) -> tensor:
        return self._compare("greater_equal", lhs, rhs)

    def less_than(self, lhs: Any, rhs: Any) -> tensor:
        return self._compare("less_than", lhs, rhs)

    def less_equal(self, lhs: Any, rhs: Any) -> tensor:
        return self._compare("less_equal", lhs, rhs)

    def equal(self, lhs: Any, rhs: Any) -> tensor:
        return self._compare("equal", lhs, rhs)

    def not_equal(self, lhs: Any, rhs: Any) -> tensor:
        return self._compare("not_equal", lhs, rhs)

    # -- selection -------------------------------------------------------------------------------------------------
    def where(self, condition: Any, x: Any, y: Any) -> tensor:
        """``x`` where the condition holds, else ``y``; all three broadcast, both values are computed."""
        condition = self.to_bool(condition)
        x, y = self.binary_operands(x, y, "where", ptr_lhs=True, ptr_rhs=True)
        if x.type.scalar != y.type.scalar:
            raise TypeMismatchError(f"where takes values of one type, not {x.type.scalar} and {y.type.scalar}")
        if condition.type.is_block() or x.type.is_block():
            condition, x = self.broadcast(condition, x)
            x, y = self.broadcast(x, y)
        return self.new("arith.select", [condition, x, y], x.type)

    def _extremum(self, name: str, lhs: Any, rhs: Any, propagate_nan: bool) -> tensor:
        # both as tensors first: a number takes part in the promotion with its own type here, as in Triton
        lhs, rhs = (self.promote_bf16(self.to_tensor(v)) for v in (lhs, rhs))
        lhs, rhs = self.binary_operands(lhs, rhs, name)
        scalar = lhs.type.scalar
        short = name[:3]
        if scalar.is_floating():
            op = f"arith.{name}f" if propagate_nan else f"arith.{short}numf"
        else:
            op = f"arith.{short}{'s' if scalar.is_int_signed() else 'u'}i"
        return self.float_op(op, [lhs, rhs], lhs.type)

    def minimum(self, lhs: Any, rhs: Any, propagate_nan: bool = False) -> tensor:
        """Smaller of the two. NaN is ignored, or kept with ``propagate_nan``. bf16 gives fp32."""
        return self._extremum("minimum", lhs, rhs, propagate_nan)

    def maximum(self, lhs: Any, rhs: Any, propagate_nan: bool = False) -> tensor:
        """Larger of the two. NaN is ignored, or kept with ``propagate_nan``. bf16 gives fp32."""
        return self._extremum("maximum", lhs, rhs, propagate_nan)

    def clamp(self, x: Any, lo: Any, hi: Any, propagate_nan: bool = False) -> tensor:
        """``min(max(x, lo), hi)`` of floats. A NaN in x gives lo, or stays with ``propagate_nan``."""
        x, lo, hi = (self.promote_bf16(self.to_tensor(v)) for v in (x, lo, hi))
        lo, hi = self.binary_operands(lo, hi, "clamp")
        x, lo = self.binary_operands(x, lo, "clamp")
        x, hi = self.binary_operands(x, hi, "clamp")
        lo, hi = self.binary_operands(lo, hi, "clamp")
        scalar = x.type.scalar
        if not scalar.is_floating():
            raise TypeMismatchError(f"clamp takes floats, not {scalar}; use tl.minimum and tl.maximum for integers")
        return self.float_op("tt.clampf", [x, lo, hi], x.type, {"propagate_nan": bool(propagate_nan)})

    # -- functions -------------------------------------------------------------------------------------------------
    def abs(self, value: Any) -> tensor:
        value = self.to_tensor(value)
        scalar = value.type.scalar
        if scalar.is_floating():
            return self.float_op("math.absf", [value], value.type)
        if scalar.is_int_signed():
            return self.new("math.absi", [value], value.type)
        if scalar.is_int():
            return value
        raise TypeMismatchError(f"abs takes numbers, not {scalar}")

    def unary_math(self, name: str, value: Any) -> tensor:
        """exp, log, sin, … of floats. 16-bit floats are computed in fp32 and rounded once to the argument's type."""
        value = self.to_tensor(value)
        scalar = value.type.scalar
        if scalar in (t.float32, t.float64):
            return self.new(UNARY_MATH[name], [value], value.type)
        if scalar in (t.float16, t.bfloat16):
            return self.cast(self.new(UNARY_MATH[name], [self.cast(value, t.float32)], value.type.with_element_ty(t.float32)), scalar)
        raise TypeMismatchError(f"{name} takes fp32, fp64, fp16 or bf16, not {scalar}; cast it with .to(tl.float32)")

    def precise(self, name: str, *operands: Any) -> tensor:
        """sqrt_rn and div_rn, correctly rounded: fp32, and fp64 for which the plain ops are."""
        values = [self.to_tensor(v) for v in operands]
        if len(values) == 2:
            values = list(self.binary_operands(operands[0], operands[1], name))
        scalar = values[0].type.scalar
        if scalar.is_fp64():
            return self.new("math.sqrt" if name == "sqrt_rn" else "arith.divf", values, values[0].type)
        if not scalar.is_fp32():
            raise TypeMismatchError(f"{name} takes fp32 or fp64, not {scalar}")
        return self.new("tt.precise_sqrt" if name == "sqrt_rn" else "tt.precise_divf", values, values[0].type)

    def fma(self, x: Any, y: Any, z: Any) -> tensor:
        """``x * y + z`` rounded once."""
        x, y = self.binary_operands(x, y, "fma")
        x, z = self.binary_operands(x, z, "fma")
        y, z = self.binary_operands(y, z, "fma")
        x, y = self.binary_operands(x, y, "fma")
        if not x.type.scalar.is_floating():
            raise TypeMismatchError(f"fma takes floats, not {x.type.scalar}")
        return self.float_op("math.fma", [x, y, z], x.type)

    def umulhi(self, x: Any, y: Any) -> tensor:
        """High half of the product of 32- or 64-bit integers read as unsigned."""
        x, y = self.binary_operands(x, y, "umulhi")
        if not x.type.scalar.is_int() or x.type.scalar.int_bitwidth not in (32, 64):
            raise TypeMismatchError(f"umulhi takes 32- or 64-bit integers, not {x.type.scalar}")
        return self.new("tt.mulhiui", [x, y], x.type)

    def extern(self, symbol: str, operands: list[Any], result: t.dtype, pure: bool = True) -> tensor:
        """Call the libdevice function ``symbol`` elementwise; operands are broadcast, the result has element type ``result``."""
        values = [self.to_tensor(v) for v in operands]
        if len(values) > 1:
            for i in range(1, len(values)):
                values[0], values[i] = self.broadcast(values[0], values[i])
            values = [self.broadcast(v, values[0])[0] for v in values]
        type = values[0].type.with_element_ty(result)
        return self.new("tt.extern_elementwise", values, type, {"symbol": symbol, "pure": pure})


__all__ = ["UNARY_MATH", "ArithmeticSemantic", "computation_type", "describe", "integer_promote", "type_of_python", "unwrap"]
