"""What each primitive op means, in numpy: op name → function of (operands, result types, attributes).

Independent of every lowering, so that it can judge them. Results are rounded to the result type after each op, as the IEEE operation of
that type would be; functions are computed in float64 and rounded once. The interpreter runs them with numpy's warnings off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.runtime import interpreter_directed, interpreter_math
from tilewright.runtime.interpreter_memory import InterpreterError, canonical, numpy_dtype, round_to

Op = Callable[[list[Any], Any, dict[str, Any]], Any]
OPS: dict[str, Op] = {}


def scalar_name(dtype: Any) -> str:
    """Name of the element type of a dtype, block_type or pointer ("ptr" for pointers)."""
    scalar = dtype.scalar
    return "ptr" if scalar.is_ptr() else canonical(scalar.name)


def shape_of(dtype: Any) -> tuple[int, ...]:
    return tuple(int(s) for s in dtype.shape) if dtype.is_block() else ()


def held_dtype(dtype: Any) -> Any:
    name = scalar_name(dtype)
    return np.uint64 if name == "ptr" else numpy_dtype(name)


def op(*names: str) -> Callable[[Op], Op]:
    def add(fn: Op) -> Op:
        for name in names:
            OPS[name] = fn
        return fn

    return add


def _unsigned(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x)
    return x.astype(np.uint8) if x.dtype == np.bool_ else x.view(x.dtype.str.replace("i", "u")) if x.dtype.kind == "i" else x


def _as_held(x: Any, dtype: Any) -> np.ndarray:
    name = scalar_name(dtype)
    x = np.asarray(x)
    if name == "ptr":
        return x.astype(np.uint64)
    if name == "int1":
        return (x & 1).astype(np.bool_) if x.dtype.kind in "iu" else x.astype(np.bool_)
    return round_to(x, name) if x.dtype.kind == "f" else x.astype(numpy_dtype(name))


# ------------------------------------------------------------------------------------------------- arithmetic
def _int_binary(fn: Callable[[np.ndarray, np.ndarray], np.ndarray], unsigned: bool = False) -> Op:
    def run(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
        a, b = operands
        if a.dtype == np.bool_ or b.dtype == np.bool_:
            a, b = a.astype(np.uint8), b.astype(np.uint8)
        if unsigned:
            a, b = _unsigned(a), _unsigned(b)
        return _as_held(fn(a, b), out)

    return run


def _trunc_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    safe = np.where(b == 0, 1, b)
    quotient = a // safe
    return np.where((a % safe != 0) & ((a < 0) != (safe < 0)), quotient + 1, quotient).astype(a.dtype)


def _trunc_rem(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a - _trunc_div(a, b) * b).astype(a.dtype)


def _shift(fn: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = a.dtype.itemsize * 8
        amount = b.astype(np.int64)
        inside = (amount >= 0) & (amount < bits)  # beyond that the result is unspecified; 0 is ours
        return np.where(inside, fn(a, np.where(inside, amount, 0).astype(a.dtype)), 0).astype(a.dtype)

    return run


_Binary = Callable[[np.ndarray, np.ndarray], np.ndarray]
_SIGNED_INTS: dict[str, _Binary] = {"addi": np.add, "subi": np.subtract, "muli": np.multiply, "divsi": _trunc_div, "remsi": _trunc_rem,
                   "andi": np.bitwise_and, "ori": np.bitwise_or, "xori": np.bitwise_xor, "maxsi": np.maximum, "minsi": np.minimum,
                   "shli": _shift(np.left_shift), "shrsi": _shift(np.right_shift)}
_UNSIGNED_INTS: dict[str, _Binary] = {"divui": _trunc_div, "remui": _trunc_rem, "maxui": np.maximum, "minui": np.minimum,
                   "shrui": _shift(np.right_shift)}
OPS |= {f"arith.{name}": _int_binary(fn) for name, fn in _SIGNED_INTS.items()}
OPS |= {f"arith.{name}": _int_binary(fn, unsigned=True) for name, fn in _UNSIGNED_INTS.items()}


def _float(fn: Callable[..., np.ndarray]) -> Op:
    def run(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
        return round_to(fn(*operands), scalar_name(out))

    return run


def _ordered(fn: Callable[..., np.ndarray], larger: bool) -> Callable[..., np.ndarray]:
    """``fn`` (a maximum or minimum of numpy) with -0 below +0, as IEEE 754-2019 has it; numpy leaves it open."""
    def run(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        zeros = (a == 0) & (b == 0)
        if not zeros.any():
            return fn(a, b)
        negative = np.signbit(a) & np.signbit(b) if larger else np.signbit(a) | np.signbit(b)
        return np.where(zeros, np.where(negative, -0.0, 0.0), fn(a, b))

    return run


_MAXNUM, _MINNUM, _MAXIMUM, _MINIMUM = (_ordered(f, f in (np.fmax, np.maximum)) for f in (np.fmax, np.fmin, np.maximum, np.minimum))
_FLOATS: dict[str, Callable[..., np.ndarray]] = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide, "remf": np.fmod, "negf": np.negative,
    "maxnumf": _MAXNUM, "minnumf": _MINNUM, "maximumf": _MAXIMUM, "minimumf": _MINIMUM}
for _name, _fn in _FLOATS.items():
    OPS[f"arith.{_name}"] = _float(_fn)
OPS["tt.precise_divf"] = OPS["arith.divf"]

_SIGNED = {"eq": np.equal, "ne": np.not_equal, "slt": np.less, "sle": np.less_equal, "sgt": np.greater, "sge": np.greater_equal}
_UNSIGNED = {"ult": np.less, "ule": np.less_equal, "ugt": np.greater, "uge": np.greater_equal}
_INT_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_FLOAT_PREDICATES = ("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true")
_FLOAT = {"eq": np.equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal, "ne": np.not_equal}


@op("arith.cmpi")
def _cmpi(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    predicate = attrs["predicate"]
    predicate = _INT_PREDICATES[predicate] if isinstance(predicate, int) else predicate
    a, b = (np.asarray(x) for x in operands)
    if predicate in _SIGNED:
        if a.dtype == np.bool_ and predicate not in ("eq", "ne"):
            a, b = -a.astype(np.int8), -b.astype(np.int8)
        return _SIGNED[predicate](a, b)
    return _UNSIGNED[predicate](_unsigned(a), _unsigned(b))


@op("arith.cmpf")
def _cmpf(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    predicate = attrs["predicate"]
    predicate = _FLOAT_PREDICATES[predicate] if isinstance(predicate, int) else predicate
    a, b = (np.asarray(x) for x in operands)
    unordered = np.isnan(a) | np.isnan(b)
    if predicate in ("true", "false"):
        return np.full(np.broadcast(a, b).shape, predicate == "true")
    if predicate in ("ord", "uno"):
        return unordered if predicate == "uno" else ~unordered
    result = _FLOAT[predicate[1:]](a, b)
    return (result | unordered) if predicate[0] == "u" else (result & ~unordered)


@op("arith.select")
def _select(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    condition, a, b = operands
    return np.where(condition, a, b).astype(held_dtype(out))


# ------------------------------------------------------------------------------------------------ conversions
@op("arith.extsi", "arith.trunci", "arith.bitcast_int")
def _int_cast(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    x = np.asarray(operands[0])
    return _as_held(-x.astype(np.int8) if x.dtype == np.bool_ else x, out)


@op("arith.extui")
def _extui(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    return _as_held(_unsigned(operands[0]), out)


@op("arith.extf", "arith.truncf", "tt.fp_to_fp")
def _float_cast(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    rounding = attrs.get("rounding") or "rtne"
    return round_to(np.asarray(operands[0]), scalar_name(out), "rtz" if rounding == "rtz" else "rtne")


@op("arith.sitofp")
def _sitofp(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    x = np.asarray(operands[0])
    return _int_to_float(-x.astype(np.int8) if x.dtype == np.bool_ else x, out)


@op("arith.uitofp")
def _uitofp(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    return _int_to_float(_unsigned(operands[0]), out)


def _int_to_float(x: np.ndarray, out: Any) -> Any:
    name = scalar_name(out)
    if name in ("fp16", "fp32", "fp64"):
        with np.errstate(over="ignore"):
            return x.astype(numpy_dtype(name))
    if x.dtype.itemsize == 8:  # 64-bit ints do not fit float64: large ones are rounded to odd first, so that they round once
        top = x >> np.array(53, x.dtype)
        large = (top != 0) & (top != -1) if x.dtype.kind == "i" else top != 0
        low = x & np.array(2047, x.dtype)
        x = np.where(large, (x - low) | np.where(low != 0, 2048, 0).astype(x.dtype), x)
    return round_to(x.astype(np.float64), name)


@op("arith.fptosi", "arith.fptoui")
def _fptoi(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    """Truncated; beyond the type's ends the nearest value of it, and 0 for NaN."""
    held, meant = np.dtype(held_dtype(out)), np.dtype(canonical(out.scalar.name))
    ends = np.iinfo(meant)
    wide = np.trunc(np.nan_to_num(np.asarray(operands[0]).astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    below, above = wide < float(ends.min), wide >= 2.0 ** (meant.itemsize * 8 - (meant.kind == "i"))
    inside = np.where(below | above, 0.0, wide).astype(meant)
    return np.where(below, ends.min, np.where(above, ends.max, inside)).astype(meant).astype(held)


@op("tt.bitcast", "arith.bitcast")
def _bitcast(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    raise AssertionError("bitcast needs the source type; the builder handles it")


@op("tt.int_to_ptr")
def _int_to_ptr(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    return np.asarray(operands[0]).astype(np.uint64)


@op("tt.ptr_to_int")
def _ptr_to_int(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    return np.asarray(operands[0]).astype(np.int64)


# ------------------------------------------------------------------------------------------------------ math
def _wide(fn: Callable[..., Any], flush: bool = False) -> Op:
    """Computed in float64, rounded once. ``flush``: subnormal results become 0 (exp and exp2, on every target)."""

    def run(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
        name = scalar_name(out)
        with np.errstate(all="ignore"):
            wide = np.asarray(fn(*(np.asarray(x).astype(np.float64) for x in operands)))
            result = round_to(wide, name)
            if flush and name == "fp32":
                result = np.where(np.abs(result) < np.finfo(np.float32).tiny, np.float32(0), result)
        return result

    return run


def _per_element(fn: Callable[..., float]) -> Callable[..., np.ndarray]:
    def safe(*args: float) -> float:
        try:
            return fn(*args)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return np.vectorize(safe, otypes=[np.float64])


def _round_half_away(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


def _pow(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.power(x, y)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "expm1": np.expm1, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "cbrt": np.cbrt, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "pow": _pow, "powf": _pow, "fmod": np.fmod,
    "hypot": np.hypot, "copysign": np.copysign, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint,
    "nearbyint": np.rint, "roundeven": np.rint, "round": _round_half_away, "absf": np.abs, "abs": np.abs, "fabs": np.abs,
    "erf": _per_element(math.erf), "erfc": _per_element(math.erfc), "fdim": lambda x, y: np.maximum(x - y, 0), "fmax": _MAXNUM, "fmin": _MINNUM,
    "remainder": _per_element(math.remainder), "div_rn": np.divide, "mul_rn": np.multiply, "add_rn": np.add,
    "sub_rn": np.subtract, "rcp_rn": lambda x: 1 / x, "sqrt_rn": np.sqrt,
    "fast_logf": np.log, "fast_log2f": np.log2, "fast_sinf": np.sin, "fast_cosf": np.cos, "fast_tanf": np.tan,
    "fast_tanhf": np.tanh, "fast_dividef": np.divide, "fast_powf": _pow, "fast_log10f": np.log10,
}
_LIBDEVICE: dict[str, Op] = {name: _wide(fn) for name, fn in {**_FUNCTIONS, **interpreter_math.FUNCTIONS}.items()}


def _whole(fn: Callable[..., Any]) -> Op:
    """A function whose result is an integer of ``out``'s type."""
    def run(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
        with np.errstate(all="ignore"):
            return np.asarray(fn(*operands)).astype(held_dtype(out))

    return run


def _in_own_type(fn: Callable[..., Any]) -> Op:
    """A function of numpy that is exact in the type of its first operand."""
    def run(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
        with np.errstate(all="ignore"):
            return fn(*(np.asarray(x) for x in operands)).astype(held_dtype(out))

    return run


_LIBDEVICE |= {name: _whole(fn) for name, fn in interpreter_math.INTEGERS.items()}
_LIBDEVICE |= {"nextafter": _in_own_type(np.nextafter), "ldexp": _in_own_type(np.ldexp), "scalbn": _in_own_type(np.ldexp)}
_LIBDEVICE |= {"exp": _wide(np.exp, True), "exp2": _wide(np.exp2, True), "fast_expf": _wide(np.exp, True),
               "fast_exp2f": _wide(np.exp2, True), "exp10": _wide(lambda x: 10.0**x, True), "fast_exp10f": _wide(lambda x: 10.0**x, True)}
_LIBDEVICE |= {name: _in_own_type(fn) for name, fn in interpreter_directed.FUNCTIONS.items()}
_LIBDEVICE |= {name: _wide(fn) for name, fn in interpreter_directed.ORDERS.items()}
for _name in ("exp", "exp2", *_FUNCTIONS):
    OPS[f"math.{_name}"] = _LIBDEVICE[_name]
OPS["tt.precise_sqrt"] = _LIBDEVICE["sqrt"]


def _predicate(fn: Callable[[np.ndarray], np.ndarray]) -> Op:
    return lambda operands, out, attrs: np.asarray(fn(np.asarray(operands[0]))).astype(held_dtype(out))


_LIBDEVICE |= {name: _predicate(fn) for name, fn in {
    "isnan": np.isnan, "isinf": np.isinf, "isfinited": np.isfinite, "finitef": np.isfinite, "signbit": np.signbit,
    "isfinite": np.isfinite}.items()}


@op("math.fma")
def _fma(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    a, b, c = (np.asarray(x) for x in operands)
    name = scalar_name(out)
    with np.errstate(all="ignore"):
        if name == "fp64":
            from fractions import Fraction

            def exact(x: float, y: float, z: float) -> float:
                if not math.isfinite(z) and math.isfinite(x) and math.isfinite(y):
                    return z  # the exact product is finite, however large
                if not all(map(math.isfinite, (x, y, z))):
                    return x * y + z
                if 0 in (x, y):  # zeros keep their sign
                    return x * y + z
                total = Fraction(x) * Fraction(y) + Fraction(z)
                try:
                    return float(total) if total else 0.0
                except OverflowError:
                    return math.inf if total > 0 else -math.inf

            return np.vectorize(exact, otypes=[np.float64])(a, b, c)
        # the product of two floats of 24 bits is exact in float64; the sum is rounded to odd before it is narrowed
        product = a.astype(np.float64) * b.astype(np.float64)
        addend = c.astype(np.float64)
        total = product + addend
        virtual = total - product
        residue = (product - (total - virtual)) + (addend - virtual)
        bits = total.view(np.int64)
        inexact = np.isfinite(total) & (residue != 0)
        away = (residue > 0) != (total > 0)
        odd = np.where(inexact & away & (bits & 1 == 0), bits - 1, np.where(inexact, bits | 1, bits))
        odd = np.where(inexact & (total == 0), total.view(np.int64), odd)
        return round_to(odd.view(np.float64), name)


_LIBDEVICE["fma"] = OPS["math.fma"]


@op("math.absi")
def _absi(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    with np.errstate(over="ignore"):
        return np.abs(np.asarray(operands[0])).astype(held_dtype(out))


@op("tt.extern_elementwise")
def _extern(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    symbol = attrs["symbol"]
    if symbol not in _LIBDEVICE:
        raise InterpreterError(f"the interpreter has no function {symbol!r}; it has {', '.join(sorted(_LIBDEVICE))}")
    return _LIBDEVICE[symbol](operands, out, attrs)


@op("tt.clampf")
def _clampf(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    x, low, high = (np.asarray(v) for v in operands)
    if attrs.get("propagate_nan"):
        return _MINIMUM(_MAXIMUM(x, low), high).astype(held_dtype(out))
    return _MINNUM(_MAXNUM(x, low), high).astype(held_dtype(out))


@op("tt.mulhiui")
def _mulhiui(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    a, b = (_unsigned(x) for x in operands)
    bits = a.dtype.itemsize * 8
    high = np.vectorize(lambda x, y: (int(x) * int(y)) >> bits, otypes=[a.dtype])(a, b)
    return high.view(held_dtype(out))


# ------------------------------------------------------------------------------------------------------ shape
@op("tt.make_range")
def _make_range(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    return np.arange(attrs["start"], attrs["end"], dtype=np.int32)


def repeated(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """np.broadcast_to of an array of that rank, or of a scalar: a view, and made in a tenth of the time."""
    if x.shape == shape:
        return x
    if not x.flags.c_contiguous:
        return np.broadcast_to(x, shape)
    strides = tuple(0 if n == 1 else s for n, s in zip(x.shape, x.strides)) if x.ndim else (0,) * len(shape)
    out: np.ndarray = np.ndarray(shape, x.dtype, x, 0, strides)
    out.flags.writeable = False
    return out


@op("tt.splat", "tt.broadcast")
def _broadcast(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    return repeated(np.asarray(operands[0]), shape_of(out))


@op("tt.unsplat")
def _unsplat(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    return np.asarray(operands[0]).reshape(())


@op("tt.expand_dims")
def _expand_dims(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    return np.expand_dims(operands[0], attrs["axis"])


@op("tt.reshape")
def _reshape(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    return np.reshape(operands[0], shape_of(out))


@op("tt.trans")
def _trans(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    return np.transpose(operands[0], attrs["order"])


@op("tt.join")
def _join(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    return np.stack(operands, axis=-1)


@op("tt.cat")
def _cat(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    return np.concatenate(operands)


@op("tt.gather")
def _gather(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    src, indices, axis = np.asarray(operands[0]), np.asarray(operands[1]), attrs["axis"]
    size = src.shape[axis]
    outside = (indices < 0) | (indices >= size)
    if outside.any():  # numpy counts negative ones from the end, which no device does
        raise InterpreterError(f"gather: index {int(indices[outside][0])} is outside dim {axis}, which has {size} elements; "
                               "keep indices inside with tl.where, those of unused elements too")
    return np.take_along_axis(src, indices.astype(np.int64), axis=axis)


@op("tt.histogram")
def _histogram(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    values = np.asarray(operands[0]).reshape(-1)
    if len(operands) > 1 and operands[1] is not None:
        values = values[np.asarray(operands[1]).reshape(-1)]
    bins = shape_of(out)[0]
    values = values[(values >= 0) & (values < bins)]
    return np.bincount(values.astype(np.int64), minlength=bins).astype(held_dtype(out))


@op("tt.dot")
def _dot(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    a, b, c = (np.asarray(x) for x in operands)
    name = scalar_name(out)
    if name.startswith(("int", "uint")):
        return (np.matmul(a.astype(np.int64), b.astype(np.int64)) + c).astype(held_dtype(out))
    return round_to(np.matmul(a.astype(np.float64), b.astype(np.float64)) + c.astype(np.float64), name)


_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def _microscaled(data: Any, scale: Any, format: str, k_pack: bool, axis: int, fast_math: bool) -> np.ndarray:
    """An operand of dot_scaled times its scales, in float64; ``axis`` is where K is."""
    values = np.asarray(data)
    if format == "e2m1":
        halves = values.view(np.uint8)
        along = axis if k_pack else -3 - axis
        pairs = np.stack([halves & 15, halves >> 4], axis=values.ndim + along + 1)
        values = _E2M1[pairs.reshape([n * 2 if d == values.ndim + along else n for d, n in enumerate(values.shape)])]
    values = values.astype(np.float64)
    if scale is None:
        return values
    scale = np.asarray(scale)
    if scale.dtype.kind == "f":
        factors = scale.astype(np.float64)
    else:
        byte = scale.view(np.uint8).astype(np.int64)
        factors = np.where(byte == 255, np.inf if fast_math else np.nan, np.ldexp(1.0, byte - 127))
    if axis == -2:
        factors = np.swapaxes(factors, -1, -2)
    with np.errstate(invalid="ignore"):
        return values * np.repeat(factors, values.shape[axis] // factors.shape[axis], axis=axis)


@op("tt.dot_scaled")
def _dot_scaled(operands: list[Any], out: Any, attrs: dict[str, Any]) -> Any:
    a, b, c, a_scale, b_scale = operands
    formats = attrs["a_format"], attrs["b_format"]
    held = "fp32" if "fp16" in formats else "bf16"  # what the language says of operands times scales
    with np.errstate(all="ignore"):
        x = _microscaled(a, a_scale, formats[0], attrs["a_k_pack"], -1, attrs["fast_math"])
        y = _microscaled(b, b_scale, formats[1], attrs["b_k_pack"], -2, attrs["fast_math"])
        x, y = (round_to(v, held).astype(np.float64) for v in (x, y))
        return round_to(np.matmul(x, y) + np.asarray(c).astype(np.float64), "fp32")
