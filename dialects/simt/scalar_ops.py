"""Pure LLVM operations as numpy functions: ``FUNCTIONS[name](op_info) -> function of arrays``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.dialects.simt.fused import fma64, fma_to_odd
from tilewright.dialects.simt.memory import SimtError
from tilewright.dialects.simt.values import VType, f32_to_bf16, from_float, signed, to_float

Array = Any
Function = Callable[..., Array]


@dataclass(frozen=True)
class OpInfo:
    """What decoding an operation may need: types and attributes (a mapping)."""

    name: str
    operands: tuple[VType, ...]
    result: VType
    attributes: Any

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attributes[name].value if name in self.attributes else default


# ------------------------------------------------------------------------------------------------------- integers
def _int_binary(f: Function, boolean: Function) -> Callable[[OpInfo], Function]:
    return lambda info: boolean if info.result.bits == 1 else f


def _udiv(a: Array, b: Array) -> Array:
    return np.where(b == 0, a.dtype.type(0), a // np.where(b == 0, b.dtype.type(1), b))


def _magnitude(a: Array) -> Array:
    return np.where(signed(a) < 0, ~a + a.dtype.type(1), a)


def _sdiv(a: Array, b: Array) -> Array:
    quotient = _udiv(_magnitude(a), _magnitude(b))
    return np.where((signed(a) < 0) != (signed(b) < 0), ~quotient + a.dtype.type(1), quotient)


def _shift(kind: str) -> Callable[[OpInfo], Function]:
    def make(info: OpInfo) -> Function:
        width = info.result.bits

        def run(a: Array, b: Array) -> Array:
            big = b >= width  # poison in LLVM; the assembly clamps
            amount = np.where(big, b.dtype.type(0), b)
            if kind == "shl":
                return np.where(big, a.dtype.type(0), a << amount)
            if kind == "lshr":
                return np.where(big, a.dtype.type(0), a >> amount)
            amount = np.where(big, b.dtype.type(width - 1), b)
            return (signed(a) >> signed(amount)).view(a.dtype)

        return run

    return make


_ICMP: list[tuple[str, bool]] = [("equal", False), ("not_equal", False), ("less", True), ("less_equal", True),
                                 ("greater", True), ("greater_equal", True), ("less", False), ("less_equal", False),
                                 ("greater", False), ("greater_equal", False)]


def _icmp(info: OpInfo) -> Function:
    name, as_signed = _ICMP[info.attr("predicate")]
    compare = getattr(np, name)
    if as_signed:
        return lambda a, b: compare(signed(a), signed(b))
    return lambda a, b: compare(a, b)


def _fcmp(info: OpInfo) -> Function:
    predicate = info.attr("predicate")
    t = info.operands[0]
    ordered = {1: np.equal, 2: np.greater, 3: np.greater_equal, 4: np.less, 5: np.less_equal, 6: np.not_equal}
    unordered = {8: np.equal, 9: np.greater, 10: np.greater_equal, 11: np.less, 12: np.less_equal, 13: np.not_equal}

    def run(a: Array, b: Array) -> Array:
        a, b = to_float(a, t), to_float(b, t)
        nan = np.isnan(a) | np.isnan(b)
        if predicate in (0, 15):
            return np.full(a.shape, predicate == 15)
        if predicate in (7, 14):
            return nan if predicate == 14 else ~nan
        if predicate in ordered:
            return ordered[predicate](a, b) & ~nan
        return unordered[predicate](a, b) | nan

    return run


# --------------------------------------------------------------------------------------------------------- floats
def _float(f: Function) -> Callable[[OpInfo], Function]:
    """A function of floats in the operand type's own precision (bf16: in f32, rounded)."""
    def make(info: OpInfo) -> Function:
        t = info.result
        if t.kind == "bf16":
            return lambda *args: from_float(f(*[to_float(a, t) for a in args]).astype(np.float32, copy=False), t)
        return lambda *args: f(*args).astype(t.dtype, copy=False)

    return make


def _wide(f: Function) -> Callable[[OpInfo], Function]:
    """A function computed in f64 and rounded once."""
    def make(info: OpInfo) -> Function:
        t = info.result
        return lambda *args: from_float(f(*[to_float(a, t).astype(np.float64) for a in args]), t)

    return make


def _fma(info: OpInfo) -> Function:
    """One rounding, in every type: a sum rounded to f64 and again to f32 is off by one where the first rounding makes a tie."""
    if info.result.kind == "float" and info.result.bits == 64:
        return fma64
    return _wide(fma_to_odd)(info)


def _minmax(f: Function, propagate: bool) -> Function:
    def run(a: Array, b: Array) -> Array:
        if propagate:
            out = f(a, b)
        else:
            out = (np.fmax if f is np.maximum else np.fmin)(a, b)
        # -0 < +0, which numpy leaves open
        zero = (a == 0) & (b == 0)
        if zero.any():
            negative = (np.signbit(a) & np.signbit(b)) if f is np.maximum else (np.signbit(a) | np.signbit(b))
            out = np.where(zero, np.where(negative, -np.zeros_like(out), np.zeros_like(out)), out)
        return out

    return run


def _fneg(info: OpInfo) -> Function:
    if info.result.kind == "bf16":
        return lambda a: a ^ np.uint16(0x8000)
    return lambda a: -a


def _fabs(info: OpInfo) -> Function:
    if info.result.kind == "bf16":
        return lambda a: a & np.uint16(0x7FFF)
    return np.abs


def _copysign(info: OpInfo) -> Function:
    if info.result.kind == "bf16":
        return lambda a, b: (a & np.uint16(0x7FFF)) | (b & np.uint16(0x8000))
    return np.copysign


_erf = np.vectorize(math.erf, otypes=[np.float64])


# ----------------------------------------------------------------------------------------------------- conversions
def _zext(info: OpInfo) -> Function:
    dtype = info.result.dtype
    return lambda a: a.astype(dtype)


def _sext(info: OpInfo) -> Function:
    size = info.result.bits // 8
    return lambda a: signed(a).astype(f"i{size}").view(f"u{size}")


def _trunc(info: OpInfo) -> Function:
    if info.result.bits == 1:
        return lambda a: (a & a.dtype.type(1)) != 0
    dtype = info.result.dtype
    return lambda a: a.astype(dtype)


def _int_to_float(as_signed: bool) -> Callable[[OpInfo], Function]:
    def make(info: OpInfo) -> Function:
        t = info.result

        def run(a: Array) -> Array:
            x = signed(a) if as_signed else a
            if t.kind == "bf16":
                return f32_to_bf16(x.astype(np.float32)) if x.dtype.itemsize <= 2 else from_float(x.astype(np.float64), t)
            return x.astype(t.dtype)

        return run

    return make


def _float_to_int(as_signed: bool) -> Callable[[OpInfo], Function]:
    def make(info: OpInfo) -> Function:
        t, source, bits = info.result, info.operands[0], info.result.bits
        low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if as_signed else (0.0, 2.0 ** bits)
        top = (1 << (bits - 1)) - 1 if as_signed else (1 << bits) - 1

        def run(a: Array) -> Array:
            x = np.trunc(to_float(a, source).astype(np.float64))
            x = np.where(np.isnan(x), 0.0, x)  # out of range is poison in LLVM; devices saturate
            big, small = x >= high, x < low
            inside = np.where(big | small, 0.0, x)
            out = inside.astype(np.int64) if as_signed else inside.astype(np.uint64)
            out = np.where(big, out.dtype.type(top), np.where(small, out.dtype.type(int(low)), out))
            if bits == 1:
                return out != 0
            return out.astype(f"i{bits // 8}").view(t.dtype) if as_signed else out.astype(t.dtype)

        return run

    return make


def _float_to_float(info: OpInfo) -> Function:
    source, t = info.operands[0], info.result
    return lambda a: from_float(to_float(a, source), t)


def _bitcast(info: OpInfo) -> Function:
    source, t = info.operands[0], info.result
    if "int" == source.kind == t.kind and source.bits == t.bits:
        return (lambda a: a.reshape(a.shape[0], -1)) if t.lanes else (lambda a: a.reshape(a.shape[0]))
    if 1 in (source.bits, t.bits):
        if source.bits == 1 and source.lanes:
            return lambda a: np.packbits(a, axis=1, bitorder="little").view(t.dtype).reshape(
                (a.shape[0], t.lanes) if t.lanes else a.shape[0])
        raise SimtError(f"bitcast {source} → {t} is not held by the SIMT executor")
    dtype, lanes = t.dtype, t.lanes

    def run(a: Array) -> Array:
        out = np.ascontiguousarray(a).view(dtype) if a.ndim == 2 else np.ascontiguousarray(a)[:, None].view(dtype)
        return out if lanes else out[:, 0]

    return run


def _saturating(f: str, as_signed: bool) -> Callable[[OpInfo], Function]:
    def make(info: OpInfo) -> Function:
        bits = info.result.bits
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if as_signed else (0, (1 << bits) - 1)

        def run(a: Array, b: Array) -> Array:
            x, y = (signed(a), signed(b)) if as_signed else (a, b)
            x, y = x.astype(object), y.astype(object)
            out = x + y if f == "add" else x - y
            out = np.minimum(np.maximum(out, low), high)
            return np.array(out.tolist(), f"i{bits // 8}" if as_signed else a.dtype).view(a.dtype).reshape(a.shape)

        return run

    return make


def _signed_binary(f: Function) -> Callable[[OpInfo], Function]:
    return lambda info: lambda a, b: f(signed(a), signed(b)).view(a.dtype)


def _popcount(info: OpInfo) -> Function:
    def run(a: Array) -> Array:
        raw = np.ascontiguousarray(a).view(np.uint8).reshape(*a.shape, -1)
        return np.unpackbits(raw, axis=-1).sum(axis=-1).astype(a.dtype)

    return run


def _bits_matrix(a: Array) -> Array:
    """[..., width] of 0/1, lowest bit first."""
    raw = np.ascontiguousarray(a).view(np.uint8).reshape(*a.shape, -1)
    return np.unpackbits(raw, axis=-1, bitorder="little")


def _leading(info: OpInfo) -> Function:
    def run(a: Array, *_: Array) -> Array:
        bits = _bits_matrix(a)[..., ::-1]
        return np.where(a == 0, info.result.bits, bits.argmax(axis=-1)).astype(a.dtype)

    return run


def _trailing(info: OpInfo) -> Function:
    def run(a: Array, *_: Array) -> Array:
        return np.where(a == 0, info.result.bits, _bits_matrix(a).argmax(axis=-1)).astype(a.dtype)

    return run


def _bitreverse(info: OpInfo) -> Function:
    def run(a: Array) -> Array:
        packed = np.packbits(_bits_matrix(a)[..., ::-1], axis=-1, bitorder="little")
        return packed.view(a.dtype).reshape(a.shape)

    return run


def _funnel(left: bool) -> Callable[[OpInfo], Function]:
    def make(info: OpInfo) -> Function:
        width = info.result.bits

        def run(a: Array, b: Array, c: Array) -> Array:
            s = (c % c.dtype.type(width)).astype(np.uint64)
            wide = (a.astype(object) << width) | b.astype(object)
            out = (wide << s.astype(object)) >> width if left else wide >> s.astype(object)
            return np.array([int(v) & ((1 << width) - 1) for v in out], a.dtype)

        return run

    return make


def _mulhi(as_signed: bool) -> Callable[[OpInfo], Function]:
    def make(info: OpInfo) -> Function:
        def run(a: Array, b: Array) -> Array:
            x, y = (signed(a), signed(b)) if as_signed else (a, b)
            wide = (x.astype(object) * y.astype(object)) >> info.result.bits
            mask = (1 << info.result.bits) - 1
            return np.array([int(v) & mask for v in wide.ravel()], a.dtype).reshape(a.shape)

        return run

    return make


def _select(info: OpInfo) -> Function:
    def run(c: Array, a: Any, b: Any) -> Any:
        if isinstance(a, tuple):
            return tuple(run(c, x, y) for x, y in zip(a, b))
        return np.where(c if c.ndim == a.ndim else c[:, None], a, b)

    return run


def _plain(f: Function) -> Callable[[OpInfo], Function]:
    return lambda info: f


FUNCTIONS: dict[str, Callable[[OpInfo], Function]] = {
    "add": _int_binary(lambda a, b: a + b, np.logical_xor), "sub": _int_binary(lambda a, b: a - b, np.logical_xor),
    "mul": _int_binary(lambda a, b: a * b, np.logical_and), "udiv": _plain(_udiv), "sdiv": _plain(_sdiv),
    "urem": _plain(lambda a, b: a - _udiv(a, b) * b), "srem": _plain(lambda a, b: a - _sdiv(a, b) * b),
    "and": _plain(lambda a, b: a & b), "or": _plain(lambda a, b: a | b), "xor": _plain(lambda a, b: a ^ b),
    "shl": _shift("shl"), "lshr": _shift("lshr"), "ashr": _shift("ashr"), "icmp": _icmp, "fcmp": _fcmp,
    "fadd": _float(np.add), "fsub": _float(np.subtract), "fmul": _float(np.multiply), "fdiv": _float(np.divide),
    "frem": _float(np.fmod), "fneg": _fneg, "select": _select, "zext": _zext, "sext": _sext, "trunc": _trunc,
    "sitofp": _int_to_float(True), "uitofp": _int_to_float(False), "fptosi": _float_to_int(True),
    "fptoui": _float_to_int(False), "fptrunc": _float_to_float, "fpext": _float_to_float, "bitcast": _bitcast,
    "inttoptr": _zext, "ptrtoint": _zext, "freeze": _plain(lambda a: a),
}

# LLVM intrinsics, by name without "llvm." (or "llvm.intr.") and type suffix.
INTRINSICS: dict[str, Callable[[OpInfo], Function]] = {
    "fabs": _fabs, "sqrt": _float(np.sqrt), "exp": _wide(np.exp), "exp2": _wide(np.exp2), "log": _wide(np.log),
    "log2": _wide(np.log2), "log10": _wide(np.log10), "sin": _wide(np.sin), "cos": _wide(np.cos), "tan": _wide(np.tan),
    "pow": _wide(np.power), "tanh": _wide(np.tanh), "floor": _float(np.floor), "ceil": _float(np.ceil),
    "trunc": _float(np.trunc), "rint": _float(np.rint), "nearbyint": _float(np.rint), "roundeven": _float(np.rint),
    "round": _float(lambda a: np.trunc(a) + np.where(np.abs(a - np.trunc(a)) >= 0.5, np.copysign(1, a), 0).astype(a.dtype)),
    "fma": _fma, "fmuladd": _fma, "erf": _wide(_erf),
    "maxnum": _float(_minmax(np.maximum, False)), "minnum": _float(_minmax(np.minimum, False)),
    "maximum": _float(_minmax(np.maximum, True)), "minimum": _float(_minmax(np.minimum, True)),
    "maximumnum": _float(_minmax(np.maximum, False)), "minimumnum": _float(_minmax(np.minimum, False)),
    "copysign": _copysign, "smax": _signed_binary(np.maximum), "smin": _signed_binary(np.minimum),
    "umax": _plain(np.maximum), "umin": _plain(np.minimum), "abs": _plain(lambda a, *_: _magnitude(a)),
    "ctpop": _popcount, "ctlz": _leading, "cttz": _trailing, "bitreverse": _bitreverse,
    "bswap": _plain(lambda a: a.byteswap()), "fshl": _funnel(True), "fshr": _funnel(False),
    "sadd.sat": _saturating("add", True), "uadd.sat": _saturating("add", False), "ssub.sat": _saturating("sub", True),
    "fptosi.sat": _float_to_int(True), "fptoui.sat": _float_to_int(False),
    "usub.sat": _saturating("sub", False), "smul.hi": _mulhi(True), "umul.hi": _mulhi(False),
    "expect": _plain(lambda a, *_: a),
}


def intrinsic_function(name: str) -> Callable[[OpInfo], Function] | None:
    """The entry for "llvm.fma.f32", "llvm.intr.fma" or "llvm.smax.v2i32"."""
    base = name.removeprefix("llvm.").removeprefix("intr.")
    while base:
        if base in INTRINSICS:
            return INTRINSICS[base]
        base = base.rpartition(".")[0]
    return None
