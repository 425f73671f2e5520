"""Rules of random kernels: elementwise operations, and what moves, reduces, scans, sorts and multiplies tiles."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from .harness import WIDTH
from .random_kernels_base import (
    EXACT,
    FLOATS,
    FP8,
    INTEGERS,
    SMALL,
    TYPES,
    Base,
    Nothing,
    Value,
    common,
    production,
    signed,
    small_type,
    sum_type,
    tl_type,
    wider_integer,
)

LARGEST = 2048  # elements of a tile


# ------------------------------------------------------------------------------------------------------ elementwise
def _shape(a: Value, b: Value) -> tuple[int, ...]:
    return a.shape or b.shape


def _numbers(v: Value) -> bool:
    return v.kind in ("int", "exact", "free")


@production(5, variants=("+", "-", "*"))
def arithmetic(p: Base) -> None:
    a = p.need(_numbers)
    b = p.like(a.shape, _numbers)
    if b is None:
        raise Nothing
    if p.chance(0.5) and a.shape:
        a, b = b, a
    sign = p.variant()
    shape = a.shape if len(a.shape) > len(b.shape) or a.numel > b.numel else b.shape
    if a.kind == b.kind == "int":
        p.give(f"{a.name} {sign} {b.name}", common(a.type, b.type), shape, "int")
    elif "free" in (a.kind, b.kind):
        p.give(f"{a.name} {sign} {b.name}", common(a.type, b.type), shape, "free")
    else:
        exact_arithmetic(p, a, b, sign, shape)


def exact_arithmetic(p: Base, a: Value, b: Value, sign: str, shape: tuple[int, ...]) -> None:
    type = common(a.type, b.type)
    texts, bounds = [], []
    for v in (a, b):
        texts.append(p.few(v) if v.kind == "int" else v.name)
        bounds.append(SMALL if v.kind == "int" else v.bound)
    for i, v in enumerate((a, b)):  # bring large ones back until the result is exact
        bound = bounds[0] * bounds[1] if sign == "*" else sum(bounds)
        if bound > EXACT[type]:
            texts[i], bounds[i] = p.few(v), SMALL
    bound = bounds[0] * bounds[1] if sign == "*" else sum(bounds)
    p.give(f"{texts[0]} {sign} {texts[1]}", type, shape, "exact", bound)


@production(2, variants=("int with int", "float with int", "float with float", "int with float", "reversed"))
def literal(p: Base) -> None:
    """A tile or scalar with a Python number, which takes the tile's type where its kind allows."""
    a = p.need(lambda v: _numbers(v) and v.kind != "free")
    sign, c = p.pick("+", "-", "*"), p.number(1, 5)
    if a.kind == "int":
        how = p.variant("int with int", "int with float", "reversed")
        if how == "int with float":
            p.give(f"{p.few(a)} {sign} {c}.0", "fp32", a.shape, "exact", SMALL * 5)
        else:
            p.give(f"{c} {sign} {a.name}" if how == "reversed" else f"{a.name} {sign} {c}", a.type, a.shape, "int")
    else:
        how = p.variant("float with int", "float with float", "reversed")
        number = f"{c}" if how == "float with int" else f"{c}.0"
        text = p.low(a)
        p.give(f"{number} {sign} {text}" if how == "reversed" else f"{text} {sign} {number}", a.type, a.shape, "exact", SMALL * 5)


@production(2, variants=("//", "%", "// literal", "% literal", "float %", "/", "div_rn", "cdiv"))
def divide(p: Base) -> None:
    a = p.any("int", "exact", "free")
    if a.kind == "int":
        how = p.variant("//", "%", "// literal", "% literal", "cdiv")
        if "literal" in how:
            divisor = p.pick(1, 2, 3, 5, 7, 8, 16, 100) if not signed(a.type) else p.pick(1, 2, 3, 5, 7, 8, 16, 100, -2, -3, -4)
            p.give(f"{a.name} {how[:2].strip()} {divisor}", a.type, a.shape, "int")
            return
        b = p.like(a.shape, lambda v: v.kind == "int" and signed(v.type) == signed(a.type))
        if b is None:
            raise Nothing
        # never 0, and never -1, by which the smallest integer cannot be divided
        divisor = f"odd(tl.abs({b.name}) >> 1)" if signed(b.type) else f"odd({b.name})"
        if how == "cdiv":
            p.give(f"tl.cdiv({p.few(a, 63)}, odd({p.few(b)}))", common(a.type, b.type, True), _broad(a, b), "int")
        else:
            p.give(f"{a.name} {how} {divisor}", common(a.type, b.type, True), _broad(a, b), "int")
    elif a.kind == "exact":
        b = p.like(a.shape, lambda v: v.kind == "exact")
        if b is None:
            raise Nothing
        p.variant("float %")
        p.give(f"{a.name} % (tl.abs({p.low(b)}) + 1)", common(a.type, b.type, True), _broad(a, b), "exact", SMALL + 1)
    else:
        b = p.like(a.shape, lambda v: v.kind in ("exact", "free"))
        if b is None:
            raise Nothing
        nonzero = f"tl.where({b.name} == 0, 1, {b.name})"  # the sign of a zero may be either, after a minimum say
        if a.type == b.type and a.type in ("fp32", "fp64") and p.chance(0.4):
            p.variant("div_rn")
            p.give(f"tl.div_rn({a.name}, {nonzero})", a.type, _broad(a, b), "free")
        else:
            p.variant("/")
            p.give(f"{a.name} / {nonzero}", common(a.type, b.type, True), _broad(a, b), "free")


def _broad(a: Value, b: Value) -> tuple[int, ...]:
    return a.shape if a.numel >= b.numel and a.shape else b.shape or a.shape


@production(3, variants=("&", "|", "^", "<<", ">>", "~", "bool &", "bool |", "bool ^", "bool ~"))
def bits(p: Base) -> None:
    a = p.any("int", "bool")
    b = p.like(a.shape, lambda v: v.kind == a.kind) or a
    shape = _broad(a, b)
    if a.kind == "bool":
        sign = p.variant("bool &", "bool |", "bool ^", "bool ~")[5:]
        p.give(f"~{a.name}" if sign == "~" else f"{a.name} {sign} {b.name}", "int1", a.shape if sign == "~" else shape, "bool")
        return
    sign = p.variant("&", "|", "^", "<<", ">>", "~")
    if sign == "~":
        p.give(f"~{a.name}", a.type, a.shape, "int")
    else:
        right = f"({b.name} & 7)" if sign in ("<<", ">>") else b.name
        p.give(f"{a.name} {sign} {right}", wider_integer(a.type, b.type), shape, "int")


@production(3, variants=("<", ">", "==", "!=", "<=", ">=", "literal"))
def compare(p: Base) -> None:
    a = p.need(_numbers)
    b = p.like(a.shape, _numbers)
    sign = p.variant("<", ">", "==", "!=", "<=", ">=")
    if b is None or p.chance(0.2):
        p.variant("literal")
        p.give(f"{a.name} {sign} {p.number(0, 4)}", "int1", a.shape, "bool")
    else:
        p.give(f"{a.name} {sign} {b.name}", "int1", _broad(a, b), "bool")


@production(4, variants=("where", "where of two types", "where of a literal", "maximum", "minimum", "maximum of NaN", "clamp"))
def select(p: Base) -> None:
    a = p.need(lambda v: v.kind != "fp8" or bool(v.shape))
    how = p.variant("where") if a.kind in ("bool", "fp8") else p.variant("where", "where of two types", "where of a literal", "maximum", "minimum", "clamp", "maximum of NaN")
    if how == "where":
        b = p.like(a.shape, lambda v: v.type == a.type and v.kind == a.kind) or a
        p.give(f"tl.where({p.condition(a.shape)}, {a.name}, {b.name})", a.type, a.shape, a.kind, max(a.bound, b.bound))
    elif how == "where of a literal":
        c = p.number(0, 5)
        p.give(f"tl.where({p.condition(a.shape)}, {a.name}, {c})", a.type, a.shape, a.kind, max(a.bound, c) if a.kind == "exact" else 0)
    elif how == "clamp":
        if a.kind == "int":
            raise Nothing
        type = "fp64" if a.type == "fp64" else "fp32"  # as that of the bounds, numbers that become fp32
        p.give(f"tl.clamp({a.name}, -3.0, {p.number(0, 6)}.0)", type, a.shape, a.kind, 6)
    else:
        b = p.like(a.shape, lambda v: _numbers(v) and (v.kind == "int") == (a.kind == "int")) or a
        kind = "free" if "free" in (a.kind, b.kind) else a.kind
        bound = max(a.bound, b.bound)
        if how == "where of two types":
            p.give(f"tl.where({p.condition(a.shape)}, {a.name}, {b.name})", common(a.type, b.type), a.shape, kind, bound)
            return
        x, y = (("fp32" if v.type == "bf16" else v.type) for v in (a, b))
        nan = ", propagate_nan=tl.PropagateNan.ALL" if "NaN" in how else ""
        p.give(f"tl.{how.split()[0]}({a.name}, {b.name}{nan})", common(x, y), _broad(a, b), kind, bound)


_ALL = (*INTEGERS, *FLOATS, "int1")


@production(4, variants=("int to int", "int to float", "float to int", "float to float", "towards zero", "bool", "to fp8", "from fp8", "bits"))
def cast(p: Base) -> None:
    a = p.any()
    if a.kind == "fp8":
        p.variant("from fp8")
        type = p.pick(*FLOATS)
        exact = bool(a.bound)
        p.give(f"{a.name}.to({tl_type(type)})", type, a.shape, "exact" if exact else "free", a.bound)
        return
    if a.kind != "bool" and p.chance(0.2):
        _bitcast(p, a)
        return
    type = p.pick(*TYPES)
    if type == "int1":
        if a.kind != "int":
            raise Nothing
        p.variant("bool")
        p.give(f"{a.name}.to(tl.int1)", "int1", a.shape, "bool")
    elif a.kind == "bool":
        p.variant("bool")
        if type in FP8:
            raise Nothing
        p.give(f"{a.name}.to({tl_type(type)})", type, a.shape, "exact" if type in FLOATS else "int", 1)
    elif type in FP8:
        p.variant("to fp8")
        free = a.kind == "free"
        p.give(f"{a.name}.to({tl_type(type)})" if free else p.cast_few(a, type), type, a.shape, "fp8", 0 if free else SMALL)
    elif type in INTEGERS:
        if a.kind == "int":
            p.variant("int to int")
            p.give(f"{a.name}.to({tl_type(type)})", type, a.shape, "int")
        else:
            p.variant("float to int")
            p.give(p.cast_few(a, type, 63), type, a.shape, "int")
    elif a.kind == "int":
        p.variant("int to float")
        if p.free:
            p.give(f"{a.name}.to({tl_type(type)})", type, a.shape, "free")
        else:
            p.give(p.cast_few(a, type, 63), type, a.shape, "exact", 63)
    else:
        narrower = WIDTH[type] < WIDTH[a.type] and not (type == "bf16" and a.type == "fp16")
        rounding = ', fp_downcast_rounding="rtz"' if narrower and p.chance(0.3) and a.type in ("fp32", "fp64") else ""
        p.variant("towards zero" if rounding else "float to float")
        p.give(f"{a.name}.to({tl_type(type)}{rounding})", type, a.shape, a.kind, a.bound)


def _bitcast(p: Base, a: Value) -> None:
    if a.kind == "free":
        raise Nothing  # the bits of a NaN are nobody's promise
    types = [t for t in (*INTEGERS, *(FLOATS if p.free else ())) if WIDTH[t] == WIDTH[a.type] and t != a.type]
    if a.kind == "exact":
        types = [t for t in types if t in INTEGERS]
    p.variant("bits")
    type = p.pick(*types)
    source = f"({a.name} + 0.0)" if a.kind == "exact" else a.name  # +0.0: minimum and maximum may give zero either sign
    text = f"{source}.to({tl_type(type)}, bitcast=True)"
    # no signalling NaN: whether a maximum ignores one is not laid down
    p.give(f"no_nan({text})" if type in FLOATS else text, type, a.shape, "free" if type in FLOATS else "int")


@production(2, variants=("-", "abs", "floor", "ceil", "sqrt_rn", "umulhi", "fma", "broadcast"))
def function(p: Base) -> None:
    how = p.variant()
    if how == "umulhi":
        a = p.need(lambda v: v.kind == "int" and WIDTH[v.type] >= 32)
        b = p.like(a.shape, lambda v: v.kind == "int" and v.type == a.type) or a
        p.give(f"tl.umulhi({a.name}, {b.name})", a.type, a.shape, "int")
    elif how in ("-", "abs"):
        a = p.need(_numbers)
        p.give(f"-{a.name}" if how == "-" else f"tl.abs({a.name})", a.type, a.shape, a.kind, a.bound)
    elif how == "broadcast":
        a, b = p.need(_numbers), p.need(_numbers)
        if a.shape == b.shape or not a.shape or not b.shape or len(a.shape) != len(b.shape) or any(x != y and 1 not in (x, y) for x, y in zip(a.shape, b.shape)):
            raise Nothing
        shape = tuple(max(x, y) for x, y in zip(a.shape, b.shape))
        if math.prod(shape) > LARGEST:
            raise Nothing
        p.give(f"tl.broadcast({a.name}, {b.name})[0]", a.type, shape, a.kind, a.bound)
    elif how == "sqrt_rn":
        a = p.need(lambda v: v.kind == "free" and v.type in ("fp32", "fp64"))
        p.give(f"tl.sqrt_rn(tl.abs({a.name}))", a.type, a.shape, "free")
    elif how in ("floor", "ceil"):
        a = p.any("exact", "free")
        p.give(f"tl.{how}({a.name})", a.type, a.shape, a.kind, a.bound)
    else:
        a = p.need(lambda v: v.kind in ("exact", "free") and v.type in ("fp32", "fp64"))
        same = [p.like(a.shape, lambda v: v.kind == a.kind and v.type == a.type, broadcast=False) or a for _ in range(2)]
        texts = [p.low(v) if v.kind == "exact" else v.name for v in (a, *same)]
        p.give(f"tl.fma({', '.join(texts)})", a.type, a.shape, a.kind, SMALL * SMALL + SMALL)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


# name → (text of the argument, text of the function, the same in Python, scale, added). floor(f(x) * scale + added) of the integers
# x from -7 to 7 is far from any step, so that every implementation within 1% of a step gives the same (tests/conformance/test_random_kernels.py).
MATH: dict[str, Any] = {
    "exp": ("small({x}, -7, 3)", "tl.exp({x})", lambda x: math.exp(min(x, 3)), 4, 0.5),
    "exp2": ("small({x}, -7, 5)", "tl.exp2({x})", lambda x: 2.0 ** min(x, 5), 4, 0.25),
    "log": ("(tl.abs({x}) + 1)", "tl.log({x})", lambda x: math.log(abs(x) + 1), 8, 0.5),
    "log2": ("(tl.abs({x}) + 1)", "tl.log2({x})", lambda x: math.log2(abs(x) + 1), 8, 0.5),
    "sqrt": ("tl.abs({x})", "tl.sqrt({x})", lambda x: math.sqrt(abs(x)), 8, 0.5),
    "rsqrt": ("(tl.abs({x}) + 1)", "tl.rsqrt({x})", lambda x: (abs(x) + 1) ** -0.5, 32, 0.5),
    "sin": ("{x}", "tl.sin({x})", math.sin, 8, 8.5),
    "cos": ("{x}", "tl.cos({x})", math.cos, 8, 8.25),
    "erf": ("{x}", "tl.erf({x})", math.erf, 8, 8.5),
    "sigmoid": ("{x}", "tl.sigmoid({x})", _sigmoid, 16, 0.5),
    "libdevice.tanh": ("{x}", "libdevice.tanh({x})", math.tanh, 8, 8.5),
    "libdevice.atan": ("{x}", "libdevice.atan({x})", math.atan, 8, 16.5),
    "libdevice.cbrt": ("{x}", "libdevice.cbrt({x})", lambda x: math.copysign(abs(x) ** (1 / 3), x), 8, 16.25),
    "libdevice.log1p": ("tl.abs({x})", "libdevice.log1p({x})", lambda x: math.log1p(abs(x)), 8, 0.5),
    "libdevice.expm1": ("small({x}, -7, 3)", "libdevice.expm1({x})", lambda x: math.expm1(min(x, 3)), 4, 4.5),
    "libdevice.pow": ("(tl.abs({x}) + 1)", "libdevice.pow({x}, {x} * 0.25)", lambda x: (abs(x) + 1) ** ((abs(x) + 1) * 0.25), 2, 0.25),
    "libdevice.rint": ("{x}", "libdevice.rint({x} * 0.75)", lambda x: float(round(x * 0.75)), 1, 6.5),
    "libdevice.hypot": ("{x}", "libdevice.hypot({x}, {x} + 1)", lambda x: math.hypot(x, x + 1), 5, 0.25),
}


def math_margin(name: str) -> float:
    """How near to a step floor(f(x) * scale + added) comes, relative to the value's own size where that is above 1."""
    _, _, f, scale, added = MATH[name]
    values = [f(float(x)) * scale + added for x in range(-SMALL, SMALL + 1)]
    return min(abs(v - round(v)) / max(1.0, abs(v)) for v in values)


@production(2, variants=tuple(MATH))
def elementary(p: Base) -> None:
    a = p.any("exact", "int", "free")
    type = p.pick("fp32", "fp32", "fp64")
    name = p.variant()
    argument, text, f, scale, added = MATH[name]
    argument = argument.format(x=p.cast_few(a, type))
    bound = math.ceil(max(abs(f(float(x)) * scale + added) for x in range(-SMALL, SMALL + 1)) + 1)
    p.give(f"tl.floor({text.format(x=argument)} * {scale}.0 + {added})", type, a.shape, "exact", bound)


@production(1, variants=("full", "zeros", "zeros_like", "arange", "program_id"))
def make(p: Base) -> None:
    how = p.variant()
    type = p.pick(*INTEGERS, *FLOATS)
    shape = p.factor(p.numel)
    c = p.number(0, 5)
    kind = "exact" if type in FLOATS else "int"
    if how == "full":
        p.give(f"tl.full({shape}, {c}, {tl_type(type)})", type, shape, kind, c)
    elif how == "zeros":
        p.give(f"tl.zeros({shape}, {tl_type(type)})", type, shape, kind, 0)
    elif how == "zeros_like":
        a = p.tile("int", "exact")
        p.give(f"tl.zeros_like({a.name})", a.type, a.shape, a.kind, 0)
    elif how == "arange":
        p.give(f"{p.place(shape)} + pid", "int32", shape, "int")
    else:
        axis = p.number(0, 2)
        p.give(f"tl.program_id({axis}) * 3 + tl.num_programs({p.number(0, 2)})", "int32", (), "int")


# ------------------------------------------------------------------------------------------------------------ moving
@production(6, variants=("trans", "permute", "reshape", "ravel", "expand_dims", "broadcast_to", "join", "split", "interleave", "cat", "view", "item"))
def move(p: Base) -> None:
    how = p.variant()
    a = p.tile()
    shape = a.shape
    if how in ("trans", "permute"):
        if len(shape) < 2:
            raise Nothing
        order = p.permutation(len(shape))
        if how == "trans" and len(shape) == 2:
            order = [1, 0]
        dims = ", ".join(map(str, order))
        text = f"tl.trans({a.name})" if how == "trans" and len(shape) == 2 else f"tl.trans({a.name}, {dims})" if how == "trans" else f"tl.permute({a.name}, ({dims}))"
        p.give(text, a.type, [shape[d] for d in order], a.kind, a.bound)
    elif how == "reshape":
        new = p.factor(a.numel)
        p.give(f"tl.reshape({a.name}, {new})", a.type, new, a.kind, a.bound)
    elif how == "ravel":
        p.give(f"tl.ravel({a.name})", a.type, (a.numel,), a.kind, a.bound)
    elif how == "view":  # the order of a view's elements is not promised; their sum is
        if a.kind != "int":
            raise Nothing
        p.give(f"tl.sum(tl.view({a.name}, ({a.numel},)), 0)", sum_type(a.type), (), "int")
    elif how == "item":
        if a.numel != 1:
            raise Nothing
        p.give(f"{a.name}.item()", a.type, (), a.kind, a.bound)
    elif how == "expand_dims":
        if len(shape) > 3:
            raise Nothing
        at = p.number(0, len(shape))
        new = (*shape[:at], 1, *shape[at:])
        index = ", ".join("None" if d == at else ":" for d in range(len(shape) + 1))
        p.give(p.pick(f"tl.expand_dims({a.name}, {at})", f"{a.name}[{index}]"), a.type, new, a.kind, a.bound)
    elif how == "broadcast_to":
        ones = [d for d, s in enumerate(shape) if s == 1]
        if not ones:
            raise Nothing
        d = p.pick(*ones)
        new = (*shape[:d], p.pick(2, 4, 8, 16), *shape[d + 1:])
        if math.prod(new) > LARGEST:
            raise Nothing
        p.give(f"tl.broadcast_to({a.name}, {new})", a.type, new, a.kind, a.bound)
    elif how == "split":
        if shape[-1] != 2:
            if shape[-1] < 2 or a.numel > LARGEST:
                raise Nothing
            half = shape[-1] // 2
            halves = (*shape[:-1], half, 2)
            p.give(f"tl.split(tl.reshape({a.name}, {halves}))[{p.number(0, 1)}]", a.type, halves[:-1], a.kind, a.bound)
        else:
            p.give(f"tl.split({a.name})[{p.number(0, 1)}]", a.type, shape[:-1], a.kind, a.bound)
    else:
        if a.numel * 2 > LARGEST or len(shape) > 3:
            raise Nothing
        b = p.like(shape, lambda v: v.type == a.type and v.kind == a.kind, broadcast=False) or a
        bound = max(a.bound, b.bound)
        if how == "join":
            p.give(f"tl.join({a.name}, {b.name})", a.type, (*shape, 2), a.kind, bound)
        elif how == "interleave":
            p.give(f"tl.interleave({a.name}, {b.name})", a.type, (*shape[:-1], shape[-1] * 2), a.kind, bound)
        else:
            d = p.number(0, len(shape) - 1)
            p.give(f"tl.cat({a.name}, {b.name}, dim={d})", a.type, (*shape[:d], shape[d] * 2, *shape[d + 1:]), a.kind, bound)


@production(2, variants=("gather", "flip", "sort", "sort descending", "topk", "histogram", "histogram masked"))
def arrange(p: Base) -> None:
    how = p.variant()
    if how.startswith("histogram"):
        a = p.need(lambda v: v.kind == "int" and bool(v.shape))
        bins = p.pick(2, 4, 8, 16, 32)
        flat = a.name if len(a.shape) == 1 else f"tl.ravel({a.name})"
        mask = f", mask={p.place((a.numel,))} % 3 != n" if "masked" in how else ""
        p.give(f"tl.histogram({flat} & {bins - 1}, {bins}{mask})", "int32", (bins,), "int")
        return
    a = p.tile()
    axis = p.number(0, len(a.shape) - 1)
    if how == "gather":
        wanted = (*a.shape[:axis], p.pick(a.shape[axis], a.shape[axis], 4), *a.shape[axis + 1:])
        index = p.like(wanted, lambda v: v.kind == "int", broadcast=False)
        if math.prod(wanted) > LARGEST:
            raise Nothing
        text = index.name if index is not None else f"({p.place(wanted)} * 3 + pid)"
        p.give(f"tl.gather({a.name}, (({text}).to(tl.int32) & {a.shape[axis] - 1}), {axis})", a.type, wanted, a.kind, a.bound)
    elif how == "flip":
        if a.shape[axis] > 16:
            raise Nothing
        p.give(f"tl.flip({a.name}, {axis})", a.type, a.shape, a.kind, a.bound)
    else:
        if a.kind not in ("int", "exact") or a.shape[-1] > 16 or a.numel > 256:
            raise Nothing
        if how == "topk":
            k = 1 << p.number(0, a.shape[-1].bit_length() - 1)
            type = "fp32" if a.type == "bf16" else a.type
            if type != a.type:
                raise Nothing
            p.give(f"tl.topk({a.name}, {k})", type, (*a.shape[:-1], k), a.kind, a.bound)
        else:
            p.give(f"tl.sort({a.name}, descending={'descending' in how})", a.type, a.shape, a.kind, a.bound)


# ------------------------------------------------------------------------------------------------- reductions, scans
@production(5, variants=("sum", "max", "min", "argmax", "argmin", "max and index", "min and index", "xor_sum", "reduce_or", "combiner", "tuple", "best of", "keep_dims", "all axes"))
def reduce(p: Base) -> None:
    a = p.tile("int", "bool", "exact", "free")
    how = p.variant(*{"int": ("sum", "max", "min", "argmax", "argmin", "max and index", "min and index", "xor_sum", "reduce_or", "combiner", "tuple", "best of"),
                      "bool": ("sum", "reduce_or"), "exact": ("sum", "max", "min", "argmax", "argmin", "max and index", "combiner"),
                      "free": ("max", "min")}[a.kind])
    axis: int | None = p.number(0, len(a.shape) - 1)
    # Triton gives the first axis where none is named only for those
    if how in ("sum", "max", "min", "xor_sum") and p.chance(0.2):
        p.variant("all axes")
        axis = None
    keep = p.chance(0.3)
    if keep:
        p.variant("keep_dims")
    length = a.numel if axis is None else a.shape[axis]
    shape = tuple(1 if axis is None or d == axis else s for d, s in enumerate(a.shape)) if keep else \
        () if axis is None else (*a.shape[:axis], *a.shape[axis + 1:])
    rest = f"{axis}, keep_dims=True" if keep else f"{axis}"
    if how == "sum":
        if a.kind == "exact":
            most = EXACT[a.type] // length
            if most < 1:
                raise Nothing
            c = min(most, SMALL)
            p.give(f"tl.sum({p.low(a, c)}, {rest})", a.type, shape, "exact", min(a.bound, c) * length if a.bound <= c else c * length)
        else:
            p.give(f"tl.sum({a.name}, {rest})", sum_type(a.type), shape, "int")
    elif how in ("max", "min"):
        p.give(f"tl.{how}({a.name}, {rest})", small_type(a.type), shape, a.kind, a.bound)
    elif how.startswith("arg"):
        p.give(f"tl.{how}({a.name}, {rest})", "int32", shape, "int")
    elif "index" in how:
        which = p.number(0, 1)
        type = "int32" if which else "fp32" if a.type == "bf16" else a.type
        p.give(f"tl.{how[:3]}({a.name}, {rest.replace(',', ', return_indices=True,', 1) if keep else rest + ', return_indices=True'})[{which}]",
               type, shape, "int" if which else a.kind, a.bound)
    elif how in ("xor_sum", "reduce_or"):
        p.give(f"tl.{how}({a.name}, {rest})", a.type, shape, a.kind)
    elif how == "combiner":
        if a.kind == "exact":
            if a.type == "bf16":
                raise Nothing
            p.give(f"tl.reduce({a.name}, {axis}, max_of{', keep_dims=True' if keep else ''})", a.type, shape, "exact", a.bound)
        else:
            combine = p.pick("add_of", "max_of", "xor_of", "and_of")
            p.give(f"tl.reduce({a.name}, {axis}, {combine}{', keep_dims=True' if keep else ''})", a.type, shape, "int")
    elif how == "best of":
        p.give(f"tl.reduce(({a.name}, {p.place(a.shape)}), {axis}, best_of{', keep_dims=True' if keep else ''})[{(which := p.number(0, 1))}]",
               "int32" if which else a.type, shape, "int")
    else:
        others = [p.like(a.shape, lambda v: v.kind == "int", broadcast=False) or a for _ in range(2)]
        which = p.number(0, 2)
        values = (a, *others)
        p.give(f"tl.reduce(({', '.join(v.name for v in values)}), {axis}, min_max_sum{', keep_dims=True' if keep else ''})[{which}]",
               values[which].type, shape, "int")


@production(3, variants=("cumsum", "cumprod", "combiner", "affine", "tuple", "reverse"))
def scan(p: Base) -> None:
    a = p.tile("int", "exact")
    how = p.variant("cumsum", "cumprod", "combiner", "affine", "tuple")
    axis = p.number(0, len(a.shape) - 1)
    reverse = p.chance(0.4)
    if reverse:
        p.variant("reverse")
    tail = f", {axis}, reverse={reverse}"
    type = "fp32" if a.type == "bf16" else a.type
    if how == "cumsum":
        if a.kind == "exact":
            c = min(EXACT[type] // a.shape[axis], SMALL)
            p.give(f"tl.cumsum({p.low(a, c)}{tail})", type, a.shape, "exact", c * a.shape[axis])
        else:
            p.give(f"tl.cumsum({a.name}{tail})", sum_type(a.type), a.shape, "int")
    elif how == "cumprod":
        if a.kind == "exact":
            p.give(f"tl.cumprod({p.low(a, 1)}{tail})", type, a.shape, "exact", 1)
        else:
            p.give(f"tl.cumprod({a.name}{tail})", a.type, a.shape, "int")
    elif how == "combiner":
        if a.type == "bf16":
            raise Nothing
        combine = p.pick("max_of", "xor_of", "add_of") if a.kind == "int" else "max_of"
        p.give(f"tl.associative_scan({a.name}{tail.replace(', reverse', f', {combine}, reverse')})", a.type, a.shape, a.kind, a.bound)
    else:
        if a.kind != "int":
            raise Nothing
        size = 2 if how == "affine" else 3
        # affine multiplies one by the other, so both have one type
        good = (lambda v: v.kind == "int" and v.type == a.type) if how == "affine" else (lambda v: v.kind == "int")
        values = [a, *(p.like(a.shape, good, broadcast=False) or a for _ in range(size - 1))]
        which = p.number(0, size - 1)
        combine = "affine" if how == "affine" else "min_max_sum"
        p.give(f"tl.associative_scan(({', '.join(v.name for v in values)}), {axis}, {combine}, reverse={reverse})[{which}]", values[which].type, a.shape, "int")


# -------------------------------------------------------------------------------------------------------------- dots
_DOTS = ("fp16", "bf16", "fp32", "fp64", "int8", "fp8e5", "fp8e4nv", "fp16 out")


def _as_large(shape: tuple[int, ...], v: Value) -> bool:
    return v.numel == math.prod(shape) and v.kind != "bool"


@production(3, variants=(*_DOTS, "accumulator", "batched", "transposed", "precision"))
def dot(p: Base) -> None:
    """Operands are brought to ±3, so that products and sums are exact in every precision."""
    batch = p.pick((), (), (2,))
    sizes = [s for s in (16, 16, 32) if s * s * math.prod(batch) <= LARGEST]
    m, n, k = (p.pick(*sizes) for _ in range(3))
    turn = p.chance(0.3)
    left, right = (*batch, m, k), (*batch, n, k) if turn else (*batch, k, n)
    how = p.variant(*(t for t in _DOTS if not (batch and t.startswith("fp8"))))
    type = how.split()[0]
    texts = []
    for shape in (left, right):
        a = p.like(shape, lambda v: v.kind != "bool", broadcast=False) or p.find(partial(_as_large, shape))
        if a is None:
            if p.nest or p.count > 20:
                raise Nothing
            name, kind, bound = p.array(p.pick("fp16", "fp32", "int8", "bf16", "int32"), math.prod(shape), "exact")
            loaded = str(p.args[name].dtype).rsplit(".", 1)[-1].replace("bfloat16", "bf16").replace("float16", "fp16").replace("float32", "fp32")
            a = p.read(p.give(f"tl.load({name} + {p.place(shape)})", loaded, shape, kind if kind != "free" else "free", bound))
        text = p.cast_few(a, type, 3)
        texts.append(text if a.shape == shape else f"tl.reshape({text}, {shape})")
    if batch:
        p.variant("batched")
    if turn:
        p.variant("transposed")
        texts[1] = f"tl.permute({texts[1]}, ({', '.join(map(str, (*range(len(batch)), len(batch) + 1, len(batch))))}))"
    out = {"int8": "int32", "fp64": "fp64"}.get(type, "fp16" if how == "fp16 out" else "fp32")
    bound = 9 * k
    extra = ""
    acc = p.like((*batch, m, n), lambda v: v.type == out and v.kind in ("int", "exact"), broadcast=False) if how != "fp16 out" else None
    if acc is not None:
        p.variant("accumulator")
        extra += f", {acc.name}"
        bound += acc.bound
    if type == "fp32":
        p.variant("precision")
        extra += f', input_precision="{p.pick("tf32", "ieee", "tf32x3")}"'
    if how == "fp16 out":
        extra += ", out_dtype=tl.float16"
    p.give(f"tl.dot({texts[0]}, {texts[1]}{extra})", out, (*batch, m, n), "int" if out == "int32" else "exact", bound)


__all__ = ["LARGEST", "MATH", "math_margin"]
