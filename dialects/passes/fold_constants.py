"""Constant values of arith ops: read, compute and write them. Used by canonicalize_tt.

A constant is a Python int (two's complement, read as signed, i1 as 0 or 1) or a float; a tensor's constant is its splat
value. Float results are computed in double and rounded once by the attribute: exact for + - * / in f32, f16 and bf16,
since a double holds more than 2p+2 bits (Figueroa, "When is double rounding innocuous?", 1995).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import TypeInfo, type_info

Number = int | float


def attribute_value(attr: Any) -> Number | None:
    """The number in an attribute of arith.constant; None for a dense attribute that is not a splat of numbers."""
    if isinstance(attr, ir.DenseElementsAttr):
        if not attr.is_splat:
            return None
        attr = attr.get_splat_value()
        if not isinstance(attr, (ir.IntegerAttr, ir.FloatAttr)):
            attr = attr.maybe_downcast()
    if isinstance(attr, ir.BoolAttr):
        return int(attr.value)
    if isinstance(attr, ir.IntegerAttr):
        type_ = attr.type
        return int(attr.value) & 1 if isinstance(type_, ir.IntegerType) and type_.width == 1 else int(attr.value)
    if isinstance(attr, ir.FloatAttr):
        return float(attr.value)
    return None


def constant_attribute(type_: Any, value: Number) -> Any:
    """The attribute of an arith.constant of ``type_`` (scalar or tensor of int, index or float)."""
    info = type_info(type_)
    scalar = ir.FloatAttr.get(info.element, float(value)) if info.kind == "float" else ir.IntegerAttr.get(info.element, value)
    return scalar if info.shape is None else ir.DenseElementsAttr.get_splat(type_, scalar)


def wrap(value: int, bits: int) -> int:
    """Two's complement of ``bits`` bits, signed; i1 as 0 or 1."""
    value &= (1 << bits) - 1
    return value if bits == 1 or value < 1 << (bits - 1) else value - (1 << bits)


def _unsigned(value: int, bits: int) -> int:
    return value & ((1 << bits) - 1)


def _signed(value: int, bits: int) -> int:
    return -value if bits == 1 else value  # i1 true is -1 where it is read as signed


def _truncated_quotient(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _shift(f: Callable[[int, int, int], int]) -> Callable[[int, int, int], int | None]:
    return lambda a, b, n: f(a, b, n) if 0 <= b < n else None


def _divide(f: Callable[[int, int, int], int]) -> Callable[[int, int, int], int | None]:
    return lambda a, b, n: f(a, b, n) if b != 0 else None


# (a, b, bits) → value before wrapping, or None where the result is undefined
INT_BINARY: dict[str, Callable[[int, int, int], int | None]] = {
    "arith.addi": lambda a, b, n: a + b,
    "arith.subi": lambda a, b, n: a - b,
    "arith.muli": lambda a, b, n: a * b,
    "arith.andi": lambda a, b, n: a & b,
    "arith.ori": lambda a, b, n: a | b,
    "arith.xori": lambda a, b, n: a ^ b,
    "arith.divsi": _divide(lambda a, b, n: _truncated_quotient(_signed(a, n), _signed(b, n))),
    "arith.remsi": _divide(lambda a, b, n: _signed(a, n) - _signed(b, n) * _truncated_quotient(_signed(a, n), _signed(b, n))),
    "arith.divui": _divide(lambda a, b, n: _unsigned(a, n) // _unsigned(b, n)),
    "arith.remui": _divide(lambda a, b, n: _unsigned(a, n) % _unsigned(b, n)),
    "arith.shli": _shift(lambda a, b, n: a << b),
    "arith.shrsi": _shift(lambda a, b, n: _signed(a, n) >> b),
    "arith.shrui": _shift(lambda a, b, n: _unsigned(a, n) >> b),
    "arith.maxsi": lambda a, b, n: min(a, b) if n == 1 else max(a, b),
    "arith.minsi": lambda a, b, n: max(a, b) if n == 1 else min(a, b),
    "arith.maxui": lambda a, b, n: max(_unsigned(a, n), _unsigned(b, n)),
    "arith.minui": lambda a, b, n: min(_unsigned(a, n), _unsigned(b, n)),
}


def _ieee_divide(a: float, b: float) -> float | None:
    return a / b if b != 0 else None


def _extremum(pick: Callable[[float, float], float], propagate: bool) -> Callable[[float, float], float | None]:
    def f(a: float, b: float) -> float | None:
        if math.isnan(a) or math.isnan(b):
            return math.nan if propagate else (b if math.isnan(a) else a)
        return None if a == b == 0 else pick(a, b)  # signed zeros: left to the target

    return f


FLOAT_BINARY: dict[str, Callable[[float, float], float | None]] = {
    "arith.addf": lambda a, b: a + b,
    "arith.subf": lambda a, b: a - b,
    "arith.mulf": lambda a, b: a * b,
    "arith.divf": _ieee_divide,
    "arith.maximumf": _extremum(max, True),
    "arith.minimumf": _extremum(min, True),
    "arith.maxnumf": _extremum(max, False),
    "arith.minnumf": _extremum(min, False),
}

_INT_COMPARE: tuple[Callable[[int, int, int], bool], ...] = (
    lambda a, b, n: a == b, lambda a, b, n: a != b,
    lambda a, b, n: _signed(a, n) < _signed(b, n), lambda a, b, n: _signed(a, n) <= _signed(b, n),
    lambda a, b, n: _signed(a, n) > _signed(b, n), lambda a, b, n: _signed(a, n) >= _signed(b, n),
    lambda a, b, n: _unsigned(a, n) < _unsigned(b, n), lambda a, b, n: _unsigned(a, n) <= _unsigned(b, n),
    lambda a, b, n: _unsigned(a, n) > _unsigned(b, n), lambda a, b, n: _unsigned(a, n) >= _unsigned(b, n),
)
# by the number of arith's predicate: false, oeq, ogt, oge, olt, ole, one, ord, ueq, ugt, uge, ult, ule, une, uno, true
_FLOAT_RELATION: tuple[Callable[[float, float], bool], ...] = (
    lambda a, b: a == b, lambda a, b: a > b, lambda a, b: a >= b, lambda a, b: a < b, lambda a, b: a <= b,
    lambda a, b: a != b, lambda a, b: True,
)


def compare_float(predicate: int, a: float, b: float) -> bool:
    """arith.cmpf of two floats."""
    unordered = math.isnan(a) or math.isnan(b)
    if predicate in (0, 15):
        return predicate == 15
    if predicate <= 7:
        return not unordered and _FLOAT_RELATION[predicate - 1](a, b)
    if predicate == 14:
        return unordered
    return unordered or _FLOAT_RELATION[predicate - 8](a, b)


def _cast(name: str, value: Number, source: TypeInfo, target: TypeInfo) -> Number | None:
    if name in ("arith.extsi", "arith.index_cast"):
        return wrap(_signed(int(value), source.bits), target.bits)
    if name in ("arith.extui", "arith.index_castui"):
        return wrap(_unsigned(int(value), source.bits), target.bits)
    if name == "arith.trunci":
        return wrap(int(value), target.bits)
    if name in ("arith.sitofp", "arith.uitofp"):
        number = _signed(int(value), source.bits) if name == "arith.sitofp" else _unsigned(int(value), source.bits)
        return float(number) if abs(number) <= 1 << 53 else None
    if name in ("arith.fptosi", "arith.fptoui"):
        if not math.isfinite(value):
            return None
        number = int(value)
        low, high = (-(1 << target.bits - 1), 1 << target.bits - 1) if name == "arith.fptosi" else (0, 1 << target.bits)
        return wrap(number, target.bits) if low <= number < high else None
    if name in ("arith.extf", "arith.truncf"):
        return float(value) if target.bits >= 16 else None  # fp8 saturates or not by its own rule
    if name == "tt.fp_to_fp":
        return 0.0 if str(value) == "0.0" else None  # which every type has
    return None


def fold(name: str, operands: Sequence[Number], source: TypeInfo, target: TypeInfo, predicate: int | None) -> Number | None:
    """The value of an arith op on constants, or None where it is not known or not defined.

    ``source`` describes the first operand's type, ``target`` the result's; ``predicate`` is that of cmpi and cmpf.
    """
    if name in INT_BINARY:
        a, b = int(operands[0]), int(operands[1])
        result = INT_BINARY[name](a, b, target.bits)
        return None if result is None else wrap(result, target.bits)
    if name in FLOAT_BINARY:
        return FLOAT_BINARY[name](float(operands[0]), float(operands[1])) if target.bits >= 16 else None
    if name == "arith.negf":
        return -operands[0]
    if name == "arith.cmpi" and predicate is not None:
        return int(_INT_COMPARE[predicate](int(operands[0]), int(operands[1]), source.bits))
    if name == "arith.cmpf" and predicate is not None:
        return int(compare_float(predicate, float(operands[0]), float(operands[1])))
    return _cast(name, operands[0], source, target) if len(operands) == 1 else None
