"""Constants, type promotion, casts and broadcasting: what every operation of the language starts with.

The promotion rules are Triton's: a Python number takes the tensor's type unless its kind (bool < int < float) is higher; else
fp64 > fp32 > fp16 > bf16 > fp8, bf16 with bf16 stays, ``/`` and ``%`` of 16-bit floats compute in fp32, two fp8 of one type stay (of
two types they become fp16), and integers follow C (wider wins, unsigned wins at equal width).

No machine has arithmetic on fp8: it is done in a wider type and rounded once (``in_wider``).
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import Any

from tilewright.compiler.builder import Builder
from tilewright.dialects.errors import ShapeMismatchError, TypeMismatchError
from tilewright.dialects.fp8 import FORMATS
from tilewright.language import dtypes as t
from tilewright.language.const import constexpr, unwrap
from tilewright.language.dtypes import block_type, dtype, pointer_type
from tilewright.language.values import tensor

_F32_MIN, _F32_MAX = 2.0**-126, (2.0 - 2.0**-23) * 2.0**127


def type_of_python(value: Any) -> dtype:
    """The type that a Python number has as a tensor: bool → int1; int → the first of int32, uint32, int64, uint64 that
    holds it; float → fp32, or fp64 where fp32 would overflow or be subnormal."""
    if isinstance(value, bool):
        return t.int1
    if isinstance(value, int):
        if -(2**31) <= value < 2**31:
            return t.int32
        if 2**31 <= value < 2**32:
            return t.uint32
        if -(2**63) <= value < 2**63:
            return t.int64
        if 2**63 <= value < 2**64:
            return t.uint64
        raise TypeMismatchError(f"the integer {value} needs more than 64 bits")
    if isinstance(value, float):
        size = abs(value)
        if size == 0.0 or math.isinf(size) or math.isnan(size) or _F32_MIN <= size <= _F32_MAX:
            return t.float32
        return t.float64
    raise TypeMismatchError(f"{value!r} of Python type {type(value).__name__} cannot be a tensor; bool, int and float can")


def integer_promote(a: dtype, b: dtype) -> dtype:
    """C's rule for two integer types: the wider one; at equal width the unsigned one."""
    if a.int_bitwidth != b.int_bitwidth:
        return a if a.int_bitwidth > b.int_bitwidth else b
    return a if a.is_int_unsigned() else b


@functools.lru_cache(4096)
def computation_type(a: dtype, a_is_number: bool, b: dtype, b_is_number: bool, div_or_mod: bool) -> dtype:
    """The type in which ``a op b`` is computed (element types; ``*_is_number``: a Python number, not a tensor)."""
    if a_is_number != b_is_number:
        number, other = (a, b) if a_is_number else (b, a)
        if number.kind().value <= other.kind().value:
            return t.float32 if div_or_mod and other in (t.float16, t.bfloat16) else other
    for wide in (t.float64, t.float32):
        if a == wide or b == wide:
            return wide
    if a == t.float16 or b == t.float16:
        return t.float32 if div_or_mod else t.float16
    if a == t.bfloat16 or b == t.bfloat16:
        return t.bfloat16 if a == b and not div_or_mod else t.float32
    if a.is_fp8() and b.is_fp8():
        return a if a == b else t.float16
    if a.is_floating() or b.is_floating():  # fp8 with an integer
        raise TypeMismatchError(f"{a} and {b} have no common type; cast one of them")
    if div_or_mod and a.is_int_signed() != b.is_int_signed():
        raise TypeMismatchError(f"/, // and % take integers of one signedness, not {a} and {b}; cast one of them")
    return integer_promote(a, b)


_PACKED = {"fp16": "e", "fp32": "f", "fp64": "d"}


def round_constant(value: float, type: dtype) -> float | None:
    """``value`` rounded to a float type, to nearest even; None where it is no finite value of it."""
    if not math.isfinite(value):
        return None if math.isnan(value) else value
    if type.is_bf16():
        (bits,) = struct.unpack("<I", struct.pack("<f", value)) if abs(value) <= _F32_MAX else (0x7F800000,)
        if struct.unpack("<f", struct.pack("<I", bits))[0] != value:
            return None  # rounding twice is not rounding once; leave it to the run-time cast
        bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        rounded = struct.unpack("<f", struct.pack("<I", bits))[0]
        return rounded if math.isfinite(rounded) else None
    code = _PACKED.get(type.name)
    if code is None:
        return None
    try:
        return struct.unpack(code, struct.pack(code, value))[0]
    except OverflowError:
        return None


class SemanticBase:
    """Holds the builder; see Semantic."""

    in_combiner = False  # within the function of a reduction, a scan or map_elementwise

    def __init__(self, builder: Builder):
        self.builder = builder

    # -- making values ---------------------------------------------------------------------------------------------
    def new(self, op: str, operands: Sequence[Any], type: Any, attrs: dict[str, Any] | None = None) -> tensor:
        """One op of one result; operands are tensors or None."""
        return tensor(self.builder.create(op, [o.handle if o is not None else None for o in operands], [type], attrs)[0], type)

    def in_wider(self, op: str, operands: Sequence[tensor], type: Any, attrs: dict[str, Any] | None = None) -> tensor:
        """One float op whose operands and result are fp8: in fp32, rounded to fp8 in the end, which gives what rounding once would,
        since fp32 has more than twice the bits; fused multiply-adds in fp64, which holds them exactly."""
        wide = t.float64 if op == "math.fma" else t.float32
        operands = [self.cast(o, wide) if o.type.scalar.is_fp8() else o for o in operands]
        if not type.scalar.is_fp8():
            return self.new(op, operands, type, attrs)
        return self.cast(self.new(op, operands, type.with_element_ty(wide), attrs), type.scalar)

    def float_op(self, op: str, operands: Sequence[tensor], type: Any, attrs: dict[str, Any] | None = None) -> tensor:
        """One float op of operands of one type, in a wider type where that is fp8."""
        return (self.in_wider if operands[0].type.scalar.is_fp8() else self.new)(op, operands, type, attrs)

    def constant(self, value: Any, type: Any) -> tensor:
        """A Python number as a scalar or, for a block_type, a tile. Integers wrap to the type's width."""
        scalar = type.scalar
        if scalar.is_ptr():
            if value != 0:
                raise TypeMismatchError("only 0 can be a constant pointer")
            as_int = self.constant(0, type.with_element_ty(t.int64))
            return self.new("tt.int_to_ptr", [as_int], type)
        if scalar.is_bool():
            value = bool(value)
        elif scalar.is_int():
            if isinstance(value, float):
                if value != value or math.isinf(value):
                    raise TypeMismatchError(f"{value} is no integer")
            value = int(value) & ((1 << scalar.int_bitwidth) - 1)
            if scalar.is_int_signed() and value >> (scalar.int_bitwidth - 1):
                value -= 1 << scalar.int_bitwidth
        else:
            value = float(value)
            if scalar.is_fp8():
                value = FORMATS[scalar.name].round(value)
        return tensor(self.builder.constant(value, type), type, value)

    def to_tensor(self, value: Any, check_type: bool = True) -> tensor:
        """A tensor as it is; a number or constexpr as a scalar constant."""
        if isinstance(value, tensor):
            return value
        value = unwrap(value)
        if isinstance(value, tensor):
            return value
        if hasattr(value, "item") and getattr(value, "shape", None) == ():  # a numpy scalar
            value = value.item()
        return self.constant(value, type_of_python(value))

    def scalar_constant(self, value: Any, dtype: dtype) -> tensor:
        return self.constant(unwrap(value), dtype)

    def full(self, shape: Sequence[Any], value: Any, dtype: dtype) -> tensor:
        """A tile of one value, a number or a scalar tensor (cast to ``dtype``)."""
        value = unwrap(value)
        shape = self.shape_of(shape)
        if isinstance(value, tensor):
            if value.type.is_block() and value.numel != 1:
                raise ShapeMismatchError(f"full takes a scalar value, not one of shape {list(value.shape)}")
            if value.type.is_block():
                value = self.unsplat(value)
            if dtype is not None:
                value = self.cast(value, dtype)
            return self.splat(value, shape)
        if dtype is None:
            raise TypeMismatchError("full needs a dtype where the value is a number")
        dtype = unwrap(dtype)
        if not hasattr(dtype, "is_ptr") or isinstance(dtype, tensor):
            raise TypeMismatchError(f"full and zeros take a type of the language such as tl.float32 as dtype, not {describe(dtype)}")
        if not hasattr(value, "__float__"):  # numpy's numbers too
            raise TypeMismatchError(f"full takes a number or a scalar tensor, not {describe(value)}")
        self._fits(value, dtype)
        return self.constant(value, block_type(dtype, shape) if shape else dtype)

    @staticmethod
    def _fits(value: Any, dtype: dtype) -> None:
        """Refuse a number that ``full`` would change: what the type's width does not hold, signed or as bits (0xFF of int8 is -1), and fractions."""
        if not dtype.is_int() or dtype.is_bool() or isinstance(value, float) and not math.isfinite(value):
            return
        if value != int(value):
            raise TypeMismatchError(f"full of {value!r} and {dtype}: it is no integer; round it first, or take a float type")
        bits = dtype.int_bitwidth
        if not -(1 << (bits - 1)) <= int(value) < 1 << bits:
            raise TypeMismatchError(f"full of {value!r} and {dtype}: the number does not fit {bits} bits, which hold {-(1 << (bits - 1))} to {(1 << bits) - 1}")

    @staticmethod
    def shape_of(shape: Any) -> list[int]:
        """A shape argument as a list of Python ints; raises where an entry is no compile-time integer."""
        shape = unwrap(shape)
        entries = shape if isinstance(shape, (list, tuple)) or hasattr(shape, "__iter__") else [shape]
        out = []
        for s in entries:
            s = unwrap(s)
            if isinstance(s, bool) or not isinstance(s, int):
                raise TypeMismatchError(f"shapes are compile-time integers (constexpr), not {describe(s)}")
            out.append(s)
        return out

    # -- promotion -------------------------------------------------------------------------------------------------
    def binary_operands(self, lhs: Any, rhs: Any, what: str, *, ptr_lhs: bool = False, ptr_rhs: bool = False, promote: bool = True,
                        div_or_mod: bool = False) -> tuple[tensor, tensor]:
        """Both operands as tensors of one shape and, unless one is a pointer, one element type."""
        if lhs.__class__ is tensor and rhs.__class__ is tensor and (lhs.type is rhs.type or lhs.type == rhs.type):  # the usual case, first
            scalar = lhs.type.scalar
            if not scalar.is_ptr() and not (div_or_mod and scalar.primitive_bitwidth == 16 and scalar.is_floating()):
                return lhs, rhs
        lhs, rhs = unwrap(lhs), unwrap(rhs)
        l_number, r_number = not isinstance(lhs, tensor), not isinstance(rhs, tensor)
        for operand in (lhs, rhs):
            if not isinstance(operand, (tensor, bool, int, float)) and not hasattr(operand, "item"):
                raise TypeMismatchError(f"{what} takes tensors and numbers, not {describe(operand)}")
        l_type = type_of_python(lhs) if l_number else lhs.type.scalar
        r_type = type_of_python(rhs) if r_number else rhs.type.scalar
        for type, other, allowed in ((l_type, r_type, ptr_lhs), (r_type, l_type, ptr_rhs)):
            if type.is_ptr() and (not allowed or other.is_floating()):
                raise TypeMismatchError(f"{what} does not take {l_type} and {r_type}")
            if type.is_ptr() and other.is_ptr() and type != other:
                raise TypeMismatchError(f"{what} takes pointers of one type, not {l_type} and {r_type}")
        if promote and not l_type.is_ptr() and not r_type.is_ptr():
            common = computation_type(l_type, l_number, r_type, r_number, div_or_mod)
            shape = () if l_number and r_number else rhs.type.shape if l_number else lhs.type.shape
            lhs, rhs = self._as_common(lhs, l_number, common, what, shape), self._as_common(rhs, r_number, common, what, shape)
        else:
            lhs, rhs = self.to_tensor(lhs), self.to_tensor(rhs)
        return self.broadcast(lhs, rhs)

    def _as_common(self, value: Any, is_number: bool, common: dtype, what: str, shape: Sequence[int]) -> tensor:
        """A tensor cast to the common type; a number as a constant of that type and of the other operand's ``shape``."""
        if not is_number:
            return self.cast(value, common) if value.type.scalar != common else value
        if common.is_int():
            if value < 0 and common.is_int_unsigned():
                raise TypeMismatchError(f"{what} of a {common} tensor and the negative number {value}; cast one of them")
            if not common.get_int_min_value() <= value <= common.get_int_max_value():
                raise TypeMismatchError(f"the number {value} is outside the range of {common}, the other operand's type")
        return self.constant(value, block_type(common, shape) if shape else common)

    # -- broadcasting ----------------------------------------------------------------------------------------------
    def splat(self, value: tensor, shape: Sequence[int]) -> tensor:
        """A scalar as a tile."""
        if not shape:
            return value
        type = block_type(value.type, shape)
        if value.const is not None:
            return tensor(self.builder.constant(value.const, type), type, value.const)
        return self.new("tt.splat", [value], type)

    def unsplat(self, value: tensor) -> tensor:
        """A tile of one element as a scalar."""
        if value.numel != 1:
            raise ShapeMismatchError(f"a tensor of one element is needed, not of shape {list(value.shape)}")
        return self.new("tt.unsplat", [value], value.type.scalar)

    def broadcast_to(self, value: tensor, shape: Sequence[int]) -> tensor:
        """``value`` with dims of size 1 repeated to ``shape``; ranks are equal unless value is a scalar."""
        shape = tuple(shape)
        if not value.type.is_block():
            return self.splat(value, shape)
        src = value.type.shape
        if src == shape:
            return value
        if len(src) != len(shape):
            raise ShapeMismatchError(f"cannot broadcast shape {list(src)} to {list(shape)}: the numbers of dims differ "
                                     "(add dims with [:, None] or tl.expand_dims)")
        for i, (have, want) in enumerate(zip(src, shape)):
            if have != want and have != 1:
                raise ShapeMismatchError(f"cannot broadcast shape {list(src)} to {list(shape)}: dim {i} has size {have}, "
                                         f"and only size 1 repeats to {want}")
        type = block_type(value.type.scalar, shape)
        if value.const is not None:
            return tensor(self.builder.constant(value.const, type), type, value.const)
        return self.new("tt.broadcast", [value], type)

    def broadcast(self, lhs: tensor, rhs: tensor) -> tuple[tensor, tensor]:
        """Both to their common shape. Fewer dims are filled with leading ones, as numpy does."""
        a, b = lhs.type.shape, rhs.type.shape
        if a == b:
            return lhs, rhs
        if not a:
            return self.splat(lhs, b), rhs
        if not b:
            return lhs, self.splat(rhs, a)
        while len(lhs.type.shape) < len(b):
            lhs = self.expand_dims(lhs, 0)
        while len(rhs.type.shape) < len(a):
            rhs = self.expand_dims(rhs, 0)
        shape = []
        for i, (m, n) in enumerate(zip(lhs.type.shape, rhs.type.shape)):
            if m != n and m != 1 and n != 1:
                raise ShapeMismatchError(f"shapes {list(a)} and {list(b)} do not broadcast: sizes {m} and {n} in dim {i} differ "
                                         "and neither is 1")
            shape.append(max(m, n))
        return self.broadcast_to(lhs, shape), self.broadcast_to(rhs, shape)

    def expand_dims(self, value: tensor, axis: int) -> tensor:
        """A dim of size 1 inserted at ``axis`` (negative: counted in the result)."""
        if not value.type.is_block():
            return self.splat(value, [1])
        shape = list(value.type.shape)
        at = axis + len(shape) + 1 if axis < 0 else axis
        if not 0 <= at <= len(shape):
            raise ShapeMismatchError(f"axis {axis} is outside a tensor of {len(shape)} dims and one new")
        shape.insert(at, 1)
        type = block_type(value.type.scalar, shape)
        if value.const is not None:
            return tensor(self.builder.constant(value.const, type), type, value.const)
        return self.new("tt.expand_dims", [value], type, {"axis": at})

    # -- casts -----------------------------------------------------------------------------------------------------
    def cast(self, value: tensor, to: Any, rounding: str | None = None) -> tensor:
        """Numeric conversion. ``rounding`` ("rtne" or "rtz") is for float to a narrower float only.

        Float to int truncates; int to a narrower int wraps; to int1 is ``!= 0``. Pointers convert to and from integers and
        to pointers of another type.
        """
        to = unwrap(to)
        if not isinstance(to, dtype):
            raise TypeMismatchError(f"a cast takes a type, not {describe(to)}")
        src, dst = value.type.scalar, to.scalar
        if src == dst:  # a rounding then has nothing to do; kernels name one whatever the argument's type is
            return value
        result = value.type.with_element_ty(dst)
        if src.is_ptr() and dst.is_bool():  # whether it is null, as in Triton
            return self.cast(self.cast(value, t.uint64), dst)
        if src.is_ptr() or dst.is_ptr():
            return self._cast_pointer(value, src, dst, result)
        if src.is_floating() and dst.is_floating():
            return self._cast_float(value, src, dst, result, rounding)
        if rounding is not None:
            self._check_rounding(src, dst)
        if value.const is not None and not src.is_floating() and not src.is_ptr() and (dst.is_int() or dst.is_floating()) and not dst.is_fp8():
            return self.constant(value.const, result)
        if src.is_fp8() or dst.is_fp8():
            return self.cast(self.cast(value, t.float32), dst)
        if dst.is_bool():
            zero = self.constant(0, value.type)
            if src.is_floating():
                return self.new("arith.cmpf", [value, zero], result, {"predicate": "une"})
            return self.new("arith.cmpi", [value, zero], result, {"predicate": "ne"})
        if src.is_int() and dst.is_int():
            if src.int_bitwidth == dst.int_bitwidth:
                return tensor(value.handle, result)
            if src.int_bitwidth > dst.int_bitwidth:
                return self.new("arith.trunci", [value], result)
            return self.new("arith.extsi" if src.is_int_signed() else "arith.extui", [value], result)
        if src.is_floating():
            return self.new("arith.fptosi" if dst.is_int_signed() else "arith.fptoui", [value], result)
        return self.new("arith.sitofp" if src.is_int_signed() else "arith.uitofp", [value], result)

    @staticmethod
    def _check_rounding(src: dtype, dst: dtype) -> None:
        if not (src.is_floating() and dst.is_floating() and dst.primitive_bitwidth < src.primitive_bitwidth):
            raise TypeMismatchError(f"fp_downcast_rounding is for a float to a narrower float, not {src} to {dst}")

    def _cast_float(self, value: tensor, src: dtype, dst: dtype, result: Any, rounding: str | None) -> tensor:
        if rounding not in (None, "rtne", "rtz"):
            raise TypeMismatchError(f'fp_downcast_rounding is "rtne" or "rtz", not {rounding!r}')
        if rounding is not None:
            self._check_rounding(src, dst)
        if src.is_fp8() or dst.is_fp8():
            return self.new("tt.fp_to_fp", [value], result, {"rounding": rounding or "rtne"})
        if src.primitive_bitwidth == dst.primitive_bitwidth:  # fp16 and bf16
            return self.cast(self.cast(value, t.float32), dst)
        if value.const is not None and rounding is None:
            # a constant holds the double that the user wrote: it is rounded to its type first, then to the new one
            once = round_constant(value.const, src)
            twice = round_constant(once, dst) if once is not None else None
            if twice is not None:
                return self.constant(twice, result)
        if src.primitive_bitwidth > dst.primitive_bitwidth:
            if rounding == "rtz":
                return self.new("tt.fp_to_fp", [value], result, {"rounding": "rtz"})
            return self.new("arith.truncf", [value], result)
        return self.new("arith.extf", [value], result)

    def _cast_pointer(self, value: tensor, src: dtype, dst: dtype, result: Any) -> tensor:
        if src.is_ptr() and dst.is_ptr():
            return self.new("tt.bitcast", [value], result)
        if src.is_ptr():
            as_int = self.new("tt.ptr_to_int", [value], value.type.with_element_ty(t.int64))
            if dst in (t.int64, t.uint64):
                return tensor(as_int.handle, result)
            if dst.is_bool():
                return self.cast(as_int, dst)
            raise TypeMismatchError(f"a pointer becomes an int64 or uint64, not {dst}")
        if src.is_int():
            wide = self.cast(value, t.uint64 if src.is_int_unsigned() else t.int64)
            return self.new("tt.int_to_ptr", [wide], result)
        raise TypeMismatchError(f"{src} cannot become a pointer; int64 can")

    def bitcast(self, value: tensor, to: Any) -> tensor:
        """The same bits under another type of equal width."""
        to = unwrap(to)
        src, dst = value.type.scalar, to.scalar
        if src == dst:
            return value
        result = value.type.with_element_ty(dst)
        if src.is_ptr() != dst.is_ptr():
            return self._cast_pointer(value, src, dst, result)
        if src.primitive_bitwidth != dst.primitive_bitwidth:
            raise TypeMismatchError(f"bitcast keeps the width: {src} has {src.primitive_bitwidth} bits and {dst} {dst.primitive_bitwidth}")
        if src.is_int() and dst.is_int():
            return tensor(value.handle, result)
        return self.new("tt.bitcast", [value], result)

    def promote_bf16(self, value: tensor) -> tensor:
        """bf16 as fp32, everything else as it is."""
        return self.cast(value, t.float32) if value.type.scalar.is_bf16() else value


def describe(value: Any) -> str:
    """A value in an error message."""
    if isinstance(value, tensor):
        return f"a run-time tensor of type {value.type}"
    if isinstance(value, constexpr):
        value = value.value
    return f"{value!r} ({type(value).__name__})"


__all__ = ["SemanticBase", "computation_type", "describe", "integer_promote", "pointer_type", "type_of_python"]
