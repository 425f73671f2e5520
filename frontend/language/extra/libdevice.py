"""``tl.extra.libdevice``: the math library, one portable name a function for every target, with no bitcode behind it.

Names and argument types are those that Triton's module of this name has. Float functions take fp32 and fp64; 16-bit floats
are computed in fp32 and rounded once to the argument's type. Numbers take the type of the tensors beside them. Functions
that are primitive operations (floor, fma, isnan, conversions, reinterpretations) become those; the others become
``tt.extern_elementwise`` with the function's name, which each target expands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dialects.errors import TypeMismatchError
from tilewright.language import dtypes as t
from tilewright.language.const import unwrap
from tilewright.language.decorators import builtin
from tilewright.language.semantic_base import describe
from tilewright.language.values import tensor

__all__: list[str] = []


_AS = {t.int32: "k", t.uint32: "k.to(tl.uint32)", t.int64: "k.to(tl.int64)", t.uint64: "k.to(tl.uint64)", t.float32: "x", t.float64: "x.to(tl.float64)"}


def _export(fn: Callable[..., Any], name: str, doc: str, types: str, args: str) -> None:
    """Declare ``name``: ``args`` is how an example calls it with the tensors x, y (fp32) and k (int32)."""
    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = f"{doc}\n\nTypes: {types}.\n\nExample::\n\n    z = libdevice.{name}({args})\n"
    globals()[name] = builtin(fn)
    __all__.append(name)


def _wrong(name: str, wanted: str, have: Any) -> TypeMismatchError:
    return TypeMismatchError(f"libdevice.{name} takes {wanted}, not {have}; cast it with .to()")


def _floats(s: Any, name: str, args: tuple[Any, ...]) -> tuple[list[tensor], t.dtype]:
    """Float arguments in their common type, fp32 or fp64, and the type that the result has for the user."""
    args = tuple(unwrap(a) for a in args)
    common = None
    for a in args:
        if not isinstance(a, (tensor, bool, int, float)):
            raise _wrong(name, "floats", describe(a))
        if isinstance(a, tensor):
            scalar = a.type.scalar
            if not scalar.is_standard_floating():
                raise _wrong(name, "fp32, fp64, fp16 or bf16", scalar)
            if common is None or scalar.primitive_bitwidth > common.primitive_bitwidth:
                common = scalar
            elif scalar.primitive_bitwidth == common.primitive_bitwidth and scalar != common:
                common = t.float32
    out = common or t.float32
    wide = t.float64 if out.is_fp64() else t.float32
    return [s.cast(a, wide) if isinstance(a, tensor) else s.constant(float(a), wide) for a in args], out


def _integers(s: Any, name: str, args: tuple[Any, ...], widths: tuple[int, ...]) -> list[tensor]:
    """Integer arguments promoted to one type of one of ``widths`` bits."""
    values = [s.to_tensor(a) for a in args]
    first = next((v for v, a in zip(values, args) if isinstance(a, tensor)), values[0])
    out = []
    for v, a in zip(values, args):
        if not v.type.scalar.is_int():
            raise _wrong(name, "integers", v.type.scalar)
        out.append(v if isinstance(a, tensor) else s.cast(v, first.type.scalar))
    scalar = out[0].type.scalar
    if scalar.int_bitwidth not in widths or any(v.type.scalar != scalar for v in out):
        raise _wrong(name, f"integers of one type of {' or '.join(map(str, widths))} bits", ", ".join(str(v.type.scalar) for v in out))
    return out


_FLOATS = "fp32, fp64; fp16 and bf16 through fp32"


def _float_function(name: str, count: int, doc: str, only32: bool = False, directed: bool = False) -> None:
    def fn(*args: Any, _semantic: Any = None) -> tensor:
        if len(args) != count:
            raise TypeMismatchError(f"libdevice.{name} takes {count} arguments, not {len(args)}")
        values, out = _floats(_semantic, name, args)
        if only32 and out.is_fp64():
            raise _wrong(name, "fp32", out)
        if directed and out.primitive_bitwidth < 32:  # the last rounding, to 16 bits, would be to nearest
            raise _wrong(name, "fp32 or fp64", out)
        return _semantic.cast(_semantic.extern(name, values, values[0].type.scalar), out)

    types = "fp32; fp16 and bf16 through it" if only32 else "fp32, fp64" if directed else _FLOATS
    _export(fn, name, doc, types, ", ".join(["x", "y", "x", "y"][:count]))


_UNARY = {
    "acos": "arc cosine", "acosh": "inverse hyperbolic cosine", "asin": "arc sine", "asinh": "inverse hyperbolic sine", "atan": "arc tangent",
    "atanh": "inverse hyperbolic tangent", "cbrt": "cube root", "cosh": "hyperbolic cosine", "cospi": "cosine of pi·x",
    "cyl_bessel_i0": "modified Bessel function I0", "cyl_bessel_i1": "modified Bessel function I1", "erfc": "1 - erf(x)",
    "erfcinv": "inverse of erfc", "erfcx": "exp(x²)·erfc(x)", "erfinv": "inverse of erf", "exp10": "power of ten", "expm1": "exp(x) - 1",
    "j0": "Bessel function J0", "j1": "Bessel function J1", "lgamma": "logarithm of |gamma(x)|", "log10": "logarithm to base ten",
    "log1p": "log(1 + x)", "logb": "exponent as a float", "nearbyint": "nearest integer, ties to even", "normcdf": "normal distribution",
    "normcdfinv": "inverse of the normal distribution", "rcbrt": "reciprocal cube root", "rint": "nearest integer, ties to even",
    "round": "nearest integer, ties away from zero", "sinh": "hyperbolic sine", "sinpi": "sine of pi·x", "tan": "tangent",
    "tanh": "hyperbolic tangent", "tgamma": "gamma function", "trunc": "integer part", "y0": "Bessel function Y0", "y1": "Bessel function Y1",
    "rsqrt_rn": "reciprocal square root, correctly rounded in fp32 (fp64: within 1.5 ulp)",
}
_FAST_UNARY = {"fast_cosf": "cosine", "fast_exp10f": "power of ten", "fast_expf": "exponential", "fast_log10f": "logarithm to base ten",
               "fast_log2f": "logarithm to base two", "fast_logf": "natural logarithm", "fast_sinf": "sine", "fast_tanf": "tangent",
               "fast_tanhf": "hyperbolic tangent"}
_BINARY = {
    "atan2": "angle of the point (y, x), arguments y, x", "fmod": "remainder with the sign of x", "hypot": "sqrt(x² + y²)",
    "nextafter": "next float after x towards y", "remainder": "IEEE remainder", "rhypot": "1 / sqrt(x² + y²)",
    "add_rn": "x + y, never contracted", "sub_rn": "x - y, never contracted", "mul_rn": "x · y, never contracted",
}
_DIRECTED = {"add": ("x + y", 2), "sub": ("x - y", 2), "mul": ("x · y", 2), "div": ("x / y", 2), "fma": ("x · y + z", 3), "sqrt": ("square root", 1),
             "rcp": ("1 / x", 1)}
for _name, _what in _UNARY.items():
    _float_function(_name, 1, f"Elementwise {_what}.")
for _name, _what in _FAST_UNARY.items():
    _float_function(_name, 1, f"Elementwise {_what} of fp32, fast and less accurate.", only32=True)
for _name, _what in _BINARY.items():
    _float_function(_name, 2, f"Elementwise {_what}.")
for _name, _what in {"fast_dividef": "quotient", "fast_powf": "power"}.items():
    _float_function(_name, 2, f"Elementwise {_what} of fp32, fast and less accurate.", only32=True)
for _name, _count in {"norm3d": 3, "norm4d": 4, "rnorm3d": 3, "rnorm4d": 4}.items():
    _float_function(_name, _count, f"Elementwise {'reciprocal ' if _name[0] == 'r' else ''}Euclidean norm of {_count} values.")
for _mode, _how in {"rd": "down", "ru": "up", "rz": "towards zero"}.items():
    for _name, (_what, _count) in _DIRECTED.items():
        _float_function(f"{_name}_{_mode}", _count, f"Elementwise {_what} rounded once, {_how}.", directed=True)


def _primitive(name: str, doc: str, build: Callable[..., tensor], args: str = "x") -> None:
    """A float function that is made of primitive operations: ``build(semantic, *fp32 or fp64 tensors)``."""

    def fn(*args: Any, _semantic: Any = None) -> tensor:
        values, out = _floats(_semantic, name, args)
        result = build(_semantic, *values)
        return _semantic.cast(result, out) if result.type.scalar.is_floating() else result

    _export(fn, name, doc, _FLOATS, args)


for _name in ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "erf", "floor", "ceil"):
    _primitive(_name, f"Elementwise {_name}; as tl.{_name}.", lambda s, x, name=_name: s.unary_math(name, x))
_primitive("sqrt_rn", "Square root, correctly rounded.", lambda s, x: s.precise("sqrt_rn", x))
_primitive("div_rn", "x / y, correctly rounded.", lambda s, x, y: s.precise("div_rn", x, y), "x, y")
_primitive("rcp_rn", "1 / x, correctly rounded.", lambda s, x: s.precise("div_rn", s.constant(1.0, x.type), x))
_primitive("fma", "x · y + z, rounded once.", lambda s, x, y, z: s.fma(x, y, z), "x, y, x")
_primitive("fma_rn", "x · y + z, rounded once.", lambda s, x, y, z: s.fma(x, y, z), "x, y, x")
_primitive("fdim", "x - y where that is positive, else 0; NaN stays.", lambda s, x, y: s.where(s.less_equal(x, y), 0.0, s.sub(x, y)), "x, y")
_primitive("saturatef", "Limited to [0, 1]; NaN gives 0.", lambda s, x: s.clamp(x, 0.0, 1.0))
_primitive("isnan", "Whether NaN; int1.", lambda s, x: s.not_equal(x, x))
_primitive("isinf", "Whether infinite; int1.", lambda s, x: s.equal(s.abs(x), float("inf")))
_primitive("finitef", "Whether neither infinite nor NaN; int1.", lambda s, x: s.less_than(s.abs(x), float("inf")))
_primitive("isfinited", "Whether neither infinite nor NaN; int1.", lambda s, x: s.less_than(s.abs(x), float("inf")))


def _bits(s: Any, x: tensor) -> tensor:
    return s.bitcast(x, t.int64 if x.type.scalar.is_fp64() else t.int32)


def _copysign(s: Any, x: tensor, y: tensor) -> tensor:
    x, y = s.broadcast(x, y)
    a, b = _bits(s, x), _bits(s, y)
    top = a.type.scalar.get_int_min_value()
    low = a.type.scalar.get_int_max_value()
    return s.bitcast(s.or_(s.and_(a, low), s.and_(b, top)), x.type.scalar)


_primitive("signbit", "Whether the sign bit is set; int1.", lambda s, x: s.less_than(_bits(s, x), 0))
_primitive("copysign", "Magnitude of x with the sign of y.", _copysign, "x, y")


@builtin
def abs(x: Any, _semantic: Any = None) -> tensor:  # noqa: A001
    """Elementwise absolute value of integers or floats.

    Types: integers and floats.

    Example::

        z = libdevice.abs(x)
    """
    return _semantic.abs(x)


@builtin
def pow(x: Any, y: Any, _semantic: Any = None) -> tensor:  # noqa: A001
    """x to the power y, of floats; an int32 exponent takes the type of x.

    Types: fp32, fp64; fp16 and bf16 through fp32; exponents int32 too.

    Example::

        z = libdevice.pow(x * x, y)
    """
    s = _semantic
    x_out = None
    if isinstance(y, tensor) and y.type.scalar.is_int():
        x = s.to_tensor(x)
        x_out = x.type.scalar
        y = s.cast(y, t.float64 if x_out.is_fp64() else t.float32)
    values, out = _floats(s, "pow", (x, y))
    return s.cast(s.extern("pow", values, values[0].type.scalar), x_out or out)


def _with_int(name: str, int_first: bool, doc: str) -> None:
    """A function of a float and an int32."""

    def fn(a: Any, b: Any, _semantic: Any = None) -> tensor:
        s = _semantic
        x, n = (b, a) if int_first else (a, b)
        (value,), out = _floats(s, name, (x,))
        number = s.to_tensor(n)
        if not number.type.scalar.is_int():
            raise _wrong(name, "an integer as its other argument", number.type.scalar)
        number = s.cast(number, t.int32)
        args = [number, value] if int_first else [value, number]
        return s.cast(s.extern(name, args, value.type.scalar), out)

    _export(fn, name, doc, f"int32 and {_FLOATS}", "k, x" if int_first else "x, k")


_with_int("ldexp", False, "x · 2**n.")
_with_int("scalbn", False, "x · 2**n.")
_with_int("jn", True, "Bessel function Jn, arguments n, x.")
_with_int("yn", True, "Bessel function Yn, arguments n, x.")


def _to_int(name: str, result: t.dtype, doc: str) -> None:
    def fn(x: Any, _semantic: Any = None) -> tensor:
        values, _ = _floats(_semantic, name, (x,))
        return _semantic.extern(name, values, result)

    _export(fn, name, doc, _FLOATS, "x")


_to_int("ilogb", t.int32, "Exponent as an int32.")
_to_int("llrint", t.int64, "Nearest integer, ties to even, as int64.")
_to_int("llround", t.int64, "Nearest integer, ties away from zero, as int64.")


# -- integers ----------------------------------------------------------------------------------------------------------
def _bit_function(name: str, same: bool, doc: str) -> None:
    def fn(x: Any, _semantic: Any = None) -> tensor:
        (value,) = _integers(_semantic, name, (x,), (32, 64))
        return _semantic.extern(name, [value], value.type.scalar if same else t.int32)

    _export(fn, name, doc, "32- and 64-bit integers", "k")


_bit_function("brev", True, "Bits in reverse order.")
_bit_function("clz", False, "Leading zero bits, int32.")
_bit_function("popc", False, "Bits that are set, int32.")
_bit_function("ffs", False, "Position of the lowest set bit, from 1; 0 without any. int32.")


@builtin
def byte_perm(x: Any, y: Any, selector: Any, _semantic: Any = None) -> tensor:
    """Four bytes of the eight of x (low) and y chosen by the nibbles of ``selector``. int32.

    Types: int32, uint32.

    Example::

        z = libdevice.byte_perm(k, i, 0x3210)
    """
    return _semantic.extern("byte_perm", _integers(_semantic, "byte_perm", (x, y, selector), (32,)), t.int32)


@builtin
def mulhi(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """High half of the product, signed or unsigned by the type; 32 or 64 bits.

    Types: 32- and 64-bit integers.

    Example::

        z = libdevice.mulhi(k, i)
    """
    s = _semantic
    x, y = s.broadcast(*_integers(s, "mulhi", (x, y), (32, 64)))
    scalar = x.type.scalar
    high = s.umulhi(x, y)
    if scalar.is_int_unsigned():
        return high
    # signed from unsigned: a negative factor counts 2**width too much of the other
    zero = s.constant(0, x.type)
    high = s.sub(high, s.where(s.less_than(x, 0), y, zero), False)
    return s.sub(high, s.where(s.less_than(y, 0), x, zero), False)


def _averages(name: str, up: int, doc: str) -> None:
    def fn(x: Any, y: Any, _semantic: Any = None) -> tensor:
        s = _semantic
        x, y = s.broadcast(*_integers(s, name, (x, y), (32,)))
        wide = t.int64 if x.type.scalar.is_int_signed() else t.uint64
        total = s.add(s.add(s.cast(x, wide), s.cast(y, wide), False), up, False)
        return s.cast(s.shr(total, 1), x.type.scalar)

    _export(fn, name, doc, "int32, uint32", "k, i")


_averages("hadd", 0, "(x + y) >> 1 without overflow, 32 bits.")
_averages("rhadd", 1, "(x + y + 1) >> 1 without overflow, 32 bits.")


@builtin
def mul24(x: Any, y: Any, _semantic: Any = None) -> tensor:
    """Product of the low 24 bits (signed or unsigned by the type), low 32 bits of it.

    Types: int32, uint32.

    Example::

        z = libdevice.mul24(k, i)
    """
    s = _semantic
    x, y = s.broadcast(*_integers(s, "mul24", (x, y), (32,)))
    return s.mul(s.shr(s.shl(x, 8), 8), s.shr(s.shl(y, 8), 8), False)


@builtin
def sad(x: Any, y: Any, z: Any, _semantic: Any = None) -> tensor:
    """|x - y| + z of 32-bit integers.

    Types: int32, uint32.

    Example::

        z = libdevice.sad(k, i, 1)
    """
    s = _semantic
    x, y = s.broadcast(*_integers(s, "sad", (x, y), (32,)))
    distance = s.sub(s.maximum(x, y), s.minimum(x, y), False)
    z = s.cast(s.to_tensor(z), x.type.scalar)
    return s.add(distance, z, False)


# -- conversions and reinterpretations ---------------------------------------------------------------------------------
_ROUNDED = {"rn": "to nearest even", "rd": "down", "ru": "up", "rz": "towards zero"}


def _only(s: Any, name: str, x: Any, *types: t.dtype) -> tensor:
    x = s.to_tensor(x)
    if x.type.scalar not in types:
        raise _wrong(name, " or ".join(str(k) for k in types), x.type.scalar)
    return x


def _float_to_int(name: str, src: t.dtype, dst: t.dtype, mode: str) -> None:
    rounder = {"rn": lambda s, x: s.extern("rint", [x], src), "rd": lambda s, x: s.unary_math("floor", x),
               "ru": lambda s, x: s.unary_math("ceil", x), "rz": lambda s, x: x}[mode]
    _export(lambda x, _semantic=None: _semantic.cast(rounder(_semantic, _only(_semantic, name, x, src)), dst), name,
            f"{src} to {dst}, rounded {_ROUNDED[mode]}.", f"{src} to {dst}", _AS[src])


def _int_to_float(name: str, srcs: tuple[t.dtype, ...], dst: t.dtype, mode: str) -> None:
    def fn(x: Any, _semantic: Any = None) -> tensor:
        x = _only(_semantic, name, x, *srcs)
        exact = dst.is_fp64() and srcs[0].int_bitwidth == 32
        return _semantic.cast(x, dst) if mode == "rn" or exact else _semantic.extern(name, [x], dst)

    _export(fn, name, f"{srcs[0]} to {dst}, rounded {_ROUNDED[mode]}.", f"{srcs[0]} to {dst}", _AS[srcs[0]])


for _mode in _ROUNDED:
    for _kind, _src in (("float", t.float32), ("double", t.float64)):
        for _to, _dst in (("int", t.int32), ("uint", t.uint32), ("ll", t.int64), ("ull", t.uint64)):
            _float_to_int(f"{_kind}2{_to}_{_mode}", _src, _dst, _mode)
    for _from, _srcs in (("int", (t.int32,)), ("uint", (t.uint32, t.int32)), ("ll", (t.int64,)), ("ull", (t.uint64, t.int64))):
        _int_to_float(f"{_from}2float_{_mode}", _srcs[:1], t.float32, _mode)
        if "ll" in _from or _mode == "rn":
            _int_to_float(f"{_from}2double_{_mode}", _srcs[:1], t.float64, _mode)


def _rcp64h(x: Any, _semantic: Any = None) -> tensor:
    return _semantic.extern("rcp64h", [_only(_semantic, "rcp64h", x, t.float64)], t.float64)


_export(_rcp64h, "rcp64h", "1 / x of the high 32 bits of an fp64, good to 20 bits; the low 32 bits are 0, subnormal x and results too.", "fp64",
        "x.to(tl.float64)")


def _double_to_float(mode: str) -> None:
    name = f"double2float_{mode}"

    def fn(x: Any, _semantic: Any = None) -> tensor:
        x = _only(_semantic, name, x, t.float64)
        if mode in ("rn", "rz"):
            return _semantic.cast(x, t.float32, "rtne" if mode == "rn" else "rtz")
        return _semantic.extern(name, [x], t.float32)

    _export(fn, name, f"fp64 to fp32, rounded {_ROUNDED[mode]}.", "fp64 to fp32", _AS[t.float64])


for _mode in _ROUNDED:
    _double_to_float(_mode)


def _reinterpret(name: str, srcs: tuple[t.dtype, ...], dst: t.dtype) -> None:
    _export(lambda x, _semantic=None: _semantic.bitcast(_only(_semantic, name, x, *srcs), dst), name, f"The bits of {srcs[0]} as {dst}.",
            f"{srcs[0]} to {dst}", _AS[srcs[0]])


_reinterpret("float_as_int", (t.float32,), t.int32)
_reinterpret("float_as_uint", (t.float32,), t.uint32)
_reinterpret("int_as_float", (t.int32,), t.float32)
_reinterpret("uint_as_float", (t.uint32, t.int32), t.float32)
_reinterpret("double_as_longlong", (t.float64,), t.int64)
_reinterpret("longlong_as_double", (t.int64,), t.float64)


@builtin
def double2hiint(x: Any, _semantic: Any = None) -> tensor:
    """The high 32 bits of an fp64, int32.

    Types: fp64 to int32.

    Example::

        z = libdevice.double2hiint(x.to(tl.float64))
    """
    s = _semantic
    return s.cast(s.shr(s.bitcast(_only(s, "double2hiint", x, t.float64), t.int64), 32), t.int32)


@builtin
def double2loint(x: Any, _semantic: Any = None) -> tensor:
    """The low 32 bits of an fp64, int32.

    Types: fp64 to int32.

    Example::

        z = libdevice.double2loint(x.to(tl.float64))
    """
    s = _semantic
    return s.cast(s.bitcast(_only(s, "double2loint", x, t.float64), t.int64), t.int32)


@builtin
def hiloint2double(high: Any, low: Any, _semantic: Any = None) -> tensor:
    """The fp64 of two int32 halves.

    Types: int32 to fp64.

    Example::

        z = libdevice.hiloint2double(k, i)
    """
    s = _semantic
    high, low = s.broadcast(_only(s, "hiloint2double", high, t.int32), _only(s, "hiloint2double", low, t.int32))
    wide = s.or_(s.shl(s.cast(high, t.int64), 32), s.cast(s.cast(s.cast(low, t.uint32), t.uint64), t.int64))
    return s.bitcast(wide, t.float64)


__all__ += ["abs", "byte_perm", "double2hiint", "double2loint", "hiloint2double", "mul24", "mulhi", "pow", "sad"]
