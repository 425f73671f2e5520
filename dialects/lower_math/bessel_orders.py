"""Bessel functions of any integer order: jn, yn, by the recurrence F(k+1) = (2k / x) F(k) - F(k-1) (Abramowitz & Stegun, 9.1.27).

Upwards it is stable for Y always and for J while k <= x. Beyond, J goes downwards from an order where it vanishes beside that of n, from an
arbitrary start, and is scaled by J0 + 2 (J2 + J4 + …) = 1 (J. C. P. Miller; 9.12). Below x = 2^-6 J is its power series (9.1.10).
``bessel_j`` and ``bessel_y`` are written over a ``loop``, so that a target with another kind of loops uses them too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects.lower_math.basic import unary
from tilewright.dialects.lower_math.bessel import j0, j1, y0, y1
from tilewright.dialects.lower_math.in_double import c
from tilewright.dialects.lower_math.registry import defined

# loop(count as an i64, initial values, body(index as an i64, values) -> values) -> values
Loop = Callable[[Any, Sequence[Any], Callable[[Any, Sequence[Any]], Sequence[Any]]], Sequence[Any]]
_SMALL = 2.0**-6
_VANISHED = 960  # from this order on, where 3x is below it, J is below 2^-1094 and Y above 2^1041 (9.3.1)


def _order(b: Any, n: Any) -> tuple[Any, Any, Any]:
    """(|n| as an i64, whether odd, whether negative)."""
    wide = b.sext(n, b.t_i64)
    negative = b.icmp("slt", wide, b.i64(0))
    order = b.select(negative, b.sub(b.i64(0), wide), wide)
    return order, b.icmp("ne", b.and_(order, b.i64(1)), b.i64(0)), negative


def _count(b: Any, condition: Any, count: Any) -> Any:
    return b.select(condition, count, b.i64(0))


def _step(b: Any, k: Any, x: Any, this: Any, last: Any) -> Any:
    """(2k / x) this - last."""
    return b.fsub(b.fmul(b.fdiv(b.sitofp(b.add(k, k), b.t_f64), x), this), last)


def _upwards(b: Any, loop: Loop, condition: Any, order: Any, x: Any, zeroth: Any, first: Any) -> Any:
    """F(order) for order >= 2 where ``condition``; what is infinite stays so."""

    def body(i: Any, values: Sequence[Any]) -> Sequence[Any]:
        last, this = values
        following = _step(b, b.add(i, b.i64(1)), x, this, last)
        return this, b.select(b.fcmp("oeq", b.fabs(this), c(b, math.inf)), this, following)

    return loop(_count(b, condition, b.sub(order, b.i64(1))), (zeroth, first), body)[1]


def _downwards(b: Any, loop: Loop, condition: Any, order: Any, x: Any) -> Any:
    size = b.sitofp(order, b.t_f64)
    above = b.fptosi(unary(b, "llvm.intr.sqrt", b.fmul(size, c(b, 160.0))), b.t_i64)  # by so many orders J falls by 2^-60
    start = b.shl(b.lshr(b.add(order, above), b.i64(1)), b.i64(1))

    def body(i: Any, values: Sequence[Any]) -> Sequence[Any]:
        last, this, total, found = values
        k = b.sub(start, i)
        following = _step(b, k, x, this, last)
        large = b.fcmp("ogt", b.fabs(following), c(b, 2.0**500))
        scale = b.select(large, c(b, 2.0**-500), c(b, 1.0))
        this, following, total, found = (b.fmul(v, scale) for v in (this, following, total, found))
        at = b.sub(k, b.i64(1))
        even = b.icmp("eq", b.and_(at, b.i64(1)), b.i64(0))
        total = b.select(even, b.fadd(total, following), total)
        return this, following, total, b.select(b.icmp("eq", at, order), following, found)

    values = (c(b, 0.0), c(b, 1.0), c(b, 0.0), c(b, 0.0))
    _, zeroth, total, found = loop(_count(b, condition, start), values, body)
    return b.fdiv(found, b.fsub(b.fadd(total, total), zeroth))


def _series(b: Any, loop: Loop, condition: Any, order: Any, x: Any) -> Any:
    half = b.fmul(x, c(b, 0.5))
    power = loop(_count(b, condition, order), (c(b, 1.0),),
                 lambda i, values: (b.fmul(values[0], b.fdiv(half, b.sitofp(b.add(i, b.i64(1)), b.t_f64))),))[0]
    square, size, total = b.fmul(half, half), b.sitofp(order, b.t_f64), c(b, 1.0)
    for k in (3, 2, 1):
        factor = b.fdiv(square, b.fmul(c(b, float(k)), b.fadd(size, c(b, float(k)))))
        total = b.fsub(c(b, 1.0), b.fmul(factor, total))
    return b.fmul(power, total)


def _not(b: Any, condition: Any) -> Any:
    return b.xor(condition, b.i1(1))


def bessel_j(b: Any, n: Any, x: Any, zeroth: Any, first: Any, loop: Loop) -> Any:
    """J of order n (i32) at x (f64), from those of orders 0 and 1 at |x|."""
    order, odd, negative = _order(b, n)
    size, whole = b.fabs(x), b.sitofp(order, b.t_f64)
    several = b.icmp("sgt", order, b.i64(1))
    infinite = b.fcmp("oeq", size, c(b, math.inf))
    up = b.and_(b.fcmp("oge", size, whole), _not(b, infinite))
    vanished = b.and_(b.icmp("sge", order, b.i64(_VANISHED)), b.fcmp("olt", b.fmul(size, c(b, 3.0)), whole))
    small = b.fcmp("olt", size, c(b, _SMALL))
    inside = b.and_(several, _not(b, vanished))
    near = b.select(b.fcmp("oeq", size, c(b, 0.0)), c(b, 1.0), size)  # never divided by
    value = _upwards(b, loop, b.and_(several, up), order, near, zeroth, first)
    down = b.and_(inside, b.and_(b.fcmp("olt", size, whole), _not(b, small)))
    value = b.select(down, _downwards(b, loop, down, order, near), value)
    series = b.and_(inside, small)
    value = b.select(series, _series(b, loop, series, order, size), value)
    value = b.select(b.or_(vanished, infinite), c(b, 0.0), value)
    value = b.select(b.icmp("eq", order, b.i64(0)), zeroth, value)
    flip = b.and_(odd, b.xor(negative, b.fcmp("olt", x, c(b, 0.0))))
    return b.select(b.fcmp("uno", x, x), x, b.select(flip, b.fneg(value), value))


def bessel_y(b: Any, n: Any, x: Any, zeroth: Any, first: Any, loop: Loop) -> Any:
    """Y of order n (i32) at x (f64), from those of orders 0 and 1."""
    order, odd, negative = _order(b, n)
    whole = b.sitofp(order, b.t_f64)
    positive = b.and_(b.fcmp("ogt", x, c(b, 0.0)), b.fcmp("olt", x, c(b, math.inf)))
    vanished = b.and_(b.icmp("sge", order, b.i64(_VANISHED)), b.fcmp("olt", b.fmul(x, c(b, 3.0)), whole))
    several = b.and_(b.icmp("sgt", order, b.i64(1)), b.and_(positive, _not(b, vanished)))
    value = _upwards(b, loop, several, order, b.select(positive, x, c(b, 1.0)), zeroth, first)
    value = b.select(b.and_(positive, vanished), c(b, -math.inf), value)
    value = b.select(b.icmp("eq", order, b.i64(0)), zeroth, value)
    return b.select(b.and_(odd, negative), b.fneg(value), value)


def _blocks(b: Any) -> Loop:
    """Loops as basic blocks of an LLVM function."""

    def loop(count: Any, initial: Sequence[Any], body: Callable[[Any, Sequence[Any]], Sequence[Any]]) -> Sequence[Any]:
        header = b.block([b.t_i64, *(v.type for v in initial)])
        b.br(header, [b.i64(0), *initial])
        b.set_block(header)
        i, *values = header.arguments
        inside = b.block()
        after = b.block(after=inside)
        b.cond_br(b.icmp("slt", i, count), inside, after)
        b.set_block(inside)
        b.br(header, [b.add(i, b.i64(1)), *body(i, values)])
        b.set_block(after)
        return values

    return loop


def _defined(name: str, of: Callable[..., Any], zeroth: Callable[..., Any], first: Callable[..., Any], magnitude: bool) -> None:
    def double(b: Any, n: Any, x: Any) -> Any:
        with b.no_contract():
            at = b.fabs(x) if magnitude else x
            return of(b, n, x, zeroth(b, at), first(b, at), _blocks(b))

    defined(name, "f64", ulp=math.inf, arity=2)(double)
    defined(name, "f32", ulp=math.inf, arity=2)(lambda b, n, x: b.fptrunc(double(b, n, b.fpext(x, b.t_f64)), b.t_f32))


_defined("jn", bessel_j, j0, j1, True)
_defined("yn", bessel_y, y0, y1, False)
