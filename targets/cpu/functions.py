"""libdevice's integer functions and the rarer float ones on the cpu: floats in f64 by the C library, rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.targets.cpu.loop_builder import LoopBuilder
from tilewright.targets.cpu.vector_math import library

Declare = Callable[[str, int], None]
_INTEGER = ("clz", "popc", "ffs", "brev", "byte_perm")
_FLOAT = ("sinpi", "cospi", "logb", "rcbrt", "norm3d", "norm4d", "rnorm3d", "rnorm4d", "rhypot", "rsqrt_rn", "ldexp", "scalbn",
          "ilogb", "llrint", "llround")
NAMES = frozenset(_INTEGER + _FLOAT)


def call(b: LoopBuilder, name: str, args: Sequence[Any], declare: Declare) -> Any | None:
    """The function on lanes, or None where it is none of these. ``declare(symbol, arity)`` as in vector_math.call."""
    if name in _INTEGER:
        return _integer(b, name, args)
    if name not in _FLOAT:
        return None
    element, n = b.element(args[0].type), b.lanes(args[0].type)
    wide_type = b.vec(n, b.f64)
    wide = [b.un("arith.extf", a, wide_type) if b.element(a.type) == b.f32 else a for a in args]
    result = _float(b, name, wide, declare)
    return b.un("arith.truncf", result, b.vec(n, b.f32)) if element == b.f32 and b.element(result.type) == b.f64 else result


def _integer(b: LoopBuilder, name: str, args: Sequence[Any]) -> Any:
    x = args[0]
    bits = b.element(x.type).width
    if name == "clz":
        return b.cast_int(b.un("math.ctlz", x), b.i32)
    if name == "popc":
        return b.cast_int(b.un("math.ctpop", x), b.i32)
    if name == "brev":
        return b.un("llvm.intr.bitreverse", x)
    if name == "ffs":
        zero = b.cmpi("eq", x, b.const(x.type, 0))
        place = b.bin("arith.addi", b.un("math.cttz", x), b.const(x.type, 1))
        return b.cast_int(b.select(zero, b.const(x.type, 0), place), b.i32)
    assert name == "byte_perm" and bits == 32
    low, high, selector = (b.cast_int(a, b.i64, signed=False) for a in args)
    t = low.type
    bytes_ = b.bin("arith.ori", low, b.bin("arith.shli", high, b.const(t, 32)))
    result = None
    for i in range(4):
        which = b.bin("arith.andi", b.bin("arith.shrui", selector, b.const(t, 4 * i)), b.const(t, 7))
        byte = b.bin("arith.andi", b.bin("arith.shrui", bytes_, b.bin("arith.shli", which, b.const(t, 3))), b.const(t, 255))
        byte = b.bin("arith.shli", byte, b.const(t, 8 * i))
        result = byte if result is None else b.bin("arith.ori", result, byte)
    return b.cast_int(result, b.i32)


def _float(b: LoopBuilder, name: str, args: Sequence[Any], declare: Declare) -> Any:
    """On f64 lanes."""
    x = args[0]
    t, n = x.type, b.lanes(x.type)
    one = b.const(t, 1.0)
    if name in ("sinpi", "cospi"):
        return _pi_times(b, name, x, declare)
    if name == "logb":
        return library(b, "logb", [x], declare)
    if name == "rcbrt":
        return b.bin("arith.divf", one, library(b, "cbrt", [x], declare))
    if name == "rsqrt_rn":
        return b.bin("arith.divf", one, b.un("math.sqrt", x))
    if name in ("norm3d", "norm4d", "rnorm3d", "rnorm4d", "rhypot"):
        length = x
        for other in args[1:]:  # hypot neither overflows nor underflows on the way
            length = library(b, "hypot", [length, other], declare)
        return b.bin("arith.divf", one, length) if name.startswith("r") else length
    if name in ("ldexp", "scalbn"):
        return _scaled(b, x, args[1])
    if name == "ilogb":
        exponent = library(b, "logb", [x], declare)
        word = b.vec(n, b.i32)
        finite = b.cmpf("olt", b.un("math.absf", exponent), b.const(t, math.inf))
        special = b.select(b.cmpf("oeq", exponent, b.const(t, math.inf)), b.const(word, 2**31 - 1), b.const(word, -(2**31)))
        return b.select(finite, b.un("arith.fptosi", b.select(finite, exponent, b.const(t, 0.0)), word), special)
    rounded = b.un("math.roundeven" if name == "llrint" else "math.round", x)
    return b.un("arith.fptosi", rounded, b.vec(n, b.i64))


def _pi_times(b: LoopBuilder, name: str, x: Any, declare: Declare) -> Any:
    """sin or cos of pi·x: x is split exactly into halves and a rest of at most a quarter, so that no zero lies within the rest but 0."""
    t, w = x.type, b.vec(b.lanes(x.type), b.i64)
    finite = b.cmpf("olt", b.un("math.absf", x), b.const(t, 2.0**53))  # from there on x is an even integer
    bounded = b.select(finite, x, b.const(t, 0.0))
    halves = b.un("math.roundeven", b.bin("arith.mulf", bounded, b.const(t, 2.0)))
    rest = b.fma(halves, b.const(t, -0.5), bounded)
    quadrant = b.bin("arith.addi", b.un("arith.fptosi", halves, w), b.const(w, int(name == "cospi")))
    angle = b.bin("arith.mulf", rest, b.const(t, math.pi))
    sine, cosine = (library(b, f, [angle], declare) for f in ("sin", "cos"))
    y = b.select(b.cmpi("ne", b.bin("arith.andi", quadrant, b.const(w, 1)), b.const(w, 0)), cosine, sine)
    negative = b.cmpi("ne", b.bin("arith.andi", quadrant, b.const(w, 2)), b.const(w, 0))
    y = b.select(negative, b.un("arith.negf", y), y)
    undefined = b.cmpf("ueq", b.un("math.absf", x), b.const(t, math.inf))
    return b.select(undefined, b.const(t, math.nan), y)


def _scaled(b: LoopBuilder, x: Any, n: Any) -> Any:
    """x · 2^n for f64 lanes and i32 lanes n, in steps that are powers of two in range."""
    w = b.vec(b.lanes(n.type), b.i64)
    left = b.un("arith.extsi", n, w)
    for _ in range(3):
        step = b.bin("arith.minsi", b.bin("arith.maxsi", left, b.const(w, -1000)), b.const(w, 1000))
        left = b.bin("arith.subi", left, step)
        power = b.bin("arith.shli", b.bin("arith.addi", step, b.const(w, 1023)), b.const(w, 52))
        x = b.op("arith.mulf", [x, b.bitcast(power, b.f64)], [x.type]).result
    return x
