"""Rules of random kernels for control flow and functions, and the program as a whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import torch

from . import random_kernels_memory, random_kernels_ops
from .harness import TORCH
from .random_kernels_base import HEADER, PRODUCTIONS, SMALL, Base, Case, Nothing, Value, production
from .random_kernels_memory import save

DEEPEST = 3
_TRIPS = 6  # no loop runs more often
_LOOPS = ("for", "static", "while")


def _test(p: Base) -> str:
    """A run-time condition of scalars."""
    v = p.find(lambda v: v.shape == () and v.kind != "fp8")
    if v is not None and p.chance(0.6):
        return v.name if v.kind == "bool" else f"{v.name} {p.pick('>', '<', '==', '!=')} {p.number(0, 2)}"
    return p.pick("n > m", "n == 2", "m > n and n > 0", "n > 0 or m == 1", "not (m == 1)", "pid == 0", "0 < n < 3", "n >= 0", "n < 0")


def _carried(p: Base, most: int) -> list[Value]:
    found = [p.need(lambda v: v.kind != "fp8") for _ in range(p.number(1, most))]
    return list({v.name: v for v in found}.values())


def _alike(v: Value, w: Value) -> bool:
    return (v.type, v.shape, v.kind) == (w.type, w.shape, w.kind)


def _fit(p: Base, v: Value) -> str:
    return p.low(v) if v.kind == "exact" else v.name


def _as_carried(v: Value, name: str) -> Value:
    return Value(name, v.type, v.shape, v.kind, SMALL if v.kind == "exact" else 0)


def _block(p: Base, kind: str, finish: Callable[[], None]) -> None:
    """Statements one level deeper; what they make is forgotten after."""
    known, untouched = list(p.values), set(p.untouched)
    p.nest.append(kind)
    p.used["nesting", ">".join(p.nest)] += 1
    if kind in _LOOPS and p.chance(0.25):
        write(p, "jump")
    write_some(p, p.number(1, 3))
    finish()
    p.nest.pop()
    p.values, p.untouched = known, untouched & p.untouched


def _assign(p: Base, names: list[str], like: list[Value]) -> None:
    """Give each variable a living value of its type, shape and kind."""
    order = list(range(len(names)))
    texts = []
    for v in like:
        same = p.need(partial(_alike, v))
        texts.append(_fit(p, same))
    if len(names) > 1 and p.chance(0.4):
        p.emit(f"{', '.join(names)} = {', '.join(texts)}")
    else:
        for i in order:
            p.emit(f"{names[i]} = {texts[i]}")


@production(2.5, variants=("if else", "if", "elif", "ternary", "constexpr"))
def branch(p: Base) -> None:
    how = p.variant()
    if how == "ternary":
        a = p.need(lambda v: v.kind != "fp8")
        b = p.like(a.shape, lambda v: v.type == a.type and v.kind == a.kind, broadcast=False) or a
        p.give(f"{a.name} if {_test(p)} else {b.name}", a.type, a.shape, a.kind, max(a.bound, b.bound))
        return
    if len(p.nest) >= DEEPEST:
        raise Nothing
    like = _carried(p, 3)
    names = [p.name() for _ in like]
    outside = list(p.values)
    if how != "if else":  # the variables have a value before
        for name, v in zip(names, like):
            p.emit(f"{name} = {_fit(p, v)}")
    test = _test(p) if how != "constexpr" else p.pick("C0 > 1", "C0 == 2", "C1 > C0")
    p.emit(f"if {test}:")
    _block(p, "if", lambda: _assign(p, names, like))
    if how == "elif":
        p.emit(f"elif {_test(p)}:")
        _block(p, "elif", lambda: _assign(p, names, like))
    if how == "if else" or (how == "elif" and p.chance(0.5)):
        p.emit("else:")
        _block(p, "else", lambda: _assign(p, names, like))
    p.values = outside
    for name, v in zip(names, like):
        p.keep(_as_carried(v, name))


_RANGES = {
    "run-time": "range(n)", "static bounds": "range(0, 3)", "from and to": "range(m, n + 2)", "negative step": "range(4, m, -1)", "steps": "range(1, 9, 3)",
    "run-time step": "range(0, n * 2, m + 1)", "empty": "range(n, n)", "stages": "tl.range(0, n + 1, num_stages=3)", "static_range": "tl.static_range(0, 3)",
    "static_range down": "tl.static_range(3, 0, -1)", "constexpr": "range(C0)", "constexpr step": "range(0, 6, C1)", "unrolled": "tl.range(0, n + 2, loop_unroll_factor=2)",
}


@production(3, variants=(*_RANGES, "pointer", "tuple", "swap"))
def loop(p: Base) -> None:
    if len(p.nest) >= DEEPEST or sum(n in _LOOPS for n in p.nest) > 1:
        raise Nothing
    how = p.variant(*_RANGES)
    like = _carried(p, 3)
    names = [p.name() for _ in like]
    outside = list(p.values)
    for name, v in zip(names, like):
        p.emit(f"{name} = {_fit(p, v)}")
    pointer, pair = "", ""
    if p.chance(0.3):
        p.variant("pointer")
        pointer, step = f"q{p.count}", p.pick(0, 1, 4, p.numel)
        type = p.pick("int32", "fp32", "fp16", "int64", "uint8")
        shape = p.factor(p.numel)
        array, kind, bound = p.array(type, p.numel + _TRIPS * step + 8)
        p.emit(f"{pointer} = {array} + {p.place(shape)}")
    if p.chance(0.25):
        p.variant("tuple")
        a = p.need(lambda v: v.kind == "int")
        pair = f"t{p.count}"
        p.emit(f"{pair} = ({a.name}, {a.name})")
    counter = f"k{p.count}"
    p.emit(f"for {counter} in {_RANGES[how]}:")
    if pointer:
        p.nest.append("for")
        p.give(f"tl.load({pointer})", type, shape, kind, bound)
        p.nest.pop()
    inner = [_as_carried(v, name) for name, v in zip(names, like)]
    p.values += inner
    p.nest.append("for")
    p.give(f"pid + {counter}", "int32", (), "int")
    if pair:
        p.give(f"{pair}[{p.number(0, 1)}]", a.type, a.shape, "int")
    p.nest.pop()

    def finish() -> None:
        alike = [(x, y) for x, v in zip(names, like) for y, w in zip(names, like) if x < y and _alike(v, w)]
        _assign(p, names, like)
        if alike and p.chance(0.6):
            p.used["variant", "loop.swap"] += 1
            x, y = p.pick(*alike)
            p.emit(f"{x}, {y} = {y}, {x}")
        if pointer:
            p.emit(f"{pointer} += {step}")
        if pair:
            p.emit(f"{pair} = ({pair}[1], {p.need(lambda v: v.kind == 'int' and v.type == a.type and v.shape == a.shape).name})")

    _block(p, "static" if how.startswith("static_range") else "for", finish)
    p.values = outside
    for v in inner:
        p.keep(v)
    if pointer:  # where the pointer stands after the loop
        p.give(f"tl.load({pointer})", type, shape, kind, bound)
    if pair:
        p.give(f"{pair}[{p.number(0, 1)}]", a.type, a.shape, "int")


@production(1, variants=("counter", "and a condition"))
def while_loop(p: Base) -> None:
    if len(p.nest) >= DEEPEST or sum(n in _LOOPS for n in p.nest) > 1:
        raise Nothing
    how = p.variant()
    like = _carried(p, 2)
    names = [p.name() for _ in like]
    outside = list(p.values)
    for name, v in zip(names, like):
        p.emit(f"{name} = {_fit(p, v)}")
    counter = f"w{p.count}"
    p.emit(f"{counter} = 0")
    inner = [_as_carried(v, name) for name, v in zip(names, like)]
    test = f"{counter} < {p.pick('n', '3', 'n + m')}"
    if how == "and a condition":
        v = inner[0]
        if v.kind == "bool" or v.kind == "free":
            raise Nothing
        value = v.name if not v.shape else f"tl.max({v.name})"
        test = f"({test}) & ({value} {p.pick('>', '<', '!=')} {p.number(0, 3)})"
    p.emit(f"while {test}:")
    p.values += inner

    def finish() -> None:
        _assign(p, names, like)
        p.emit(f"{counter} += 1")

    _block(p, "while", finish)
    p.values = outside
    for v in inner:
        p.keep(v)


@production(0.8, variants=("break", "continue", "return", "break of while"))
def jump(p: Base) -> None:
    """Leaves the innermost loop, an iteration of it, or the kernel, under a condition."""
    loops = [n for n in p.nest if n in _LOOPS]
    if not loops or "static" in loops:
        raise Nothing
    # the counter of a while is raised at the end of its body
    how = p.variant("break of while") if loops[-1] == "while" else p.variant("break", "continue", "continue", "break", "return")
    p.emit(f"if {_test(p)}:")
    p.emit(f"    {how.split()[0]}")


# ---------------------------------------------------------------------------------------------------------- functions
@production(1.5, variants=("plain", "constexpr parameter", "branches", "loop", "tuple", "higher order", "noinline", "keyword"))
def call(p: Base) -> None:
    """A helper of two integer tiles of one type: what it returns has that type and shape."""
    a = p.any("int")
    b = p.like(a.shape, lambda v: v.kind == "int" and v.type == a.type, broadcast=False) or a
    how = p.variant()
    name = f"h{len(p.helpers)}"
    c = p.number(0, 4)
    first = p.pick("x + y", "x - y", "x * y", "x & y", "x | y", "x ^ y", "tl.maximum(x, y)", "tl.where(x > y, x, y)")
    body = [f"z = {first}"]
    result, args = "z", f"{a.name}, {b.name}"
    parameters = "x, y"
    decorator = "@triton.jit"
    if how == "higher order":
        parameters, args = "f: tl.constexpr, x, y", f"{p.pick('add_of', 'max_of', 'xor_of', 'and_of')}, {args}"
        body = ["z = f(x, f(y, x))"]
    elif how == "constexpr parameter":
        parameters, args = "x, y, C: tl.constexpr", f"{args}, {c}"
        body += ["if C > 2:", "    z = z ^ x", "elif C == 1:", "    return y", "z = z + C"]
    elif how == "branches":
        parameters, args = "x, y, s", f"{args}, {p.pick('n', 'm', 'pid')}"
        body += [f"if s > {p.number(0, 2)}:", "    z = z ^ x", "else:", "    z = x - z"]
    elif how == "loop":
        parameters, args = "x, y, C: tl.constexpr", f"{args}, {c}"
        body += ["for i in tl.static_range(C):", "    z = z * 3 + i"]
    elif how == "keyword":
        parameters, args = "x, y, C: tl.constexpr = 3", f"y={b.name}, x={a.name}"
        body += ["z = z * C"]
    elif how == "tuple":
        result = "z, x"
    elif how == "noinline":
        decorator = "@triton.jit(noinline=True)"
    p.helpers.append("\n".join([decorator, f"def {name}({parameters}):", *("    " + line for line in body), f"    return {result}"]))
    text = f"{name}({args})"
    if how == "tuple":
        text += f"[{p.number(0, 1)}]"
    p.give(text, a.type, a.shape, "int")


@production(0.7, nested=False, variants=("fp16", "bf16", "fp32", "int8", "fp8e5", "masked", "run-time bound"))
def matmul(p: Base) -> None:
    """The loop of a matrix product over k, with pointers that move and a masked last block."""
    type = p.variant("fp16", "bf16", "fp32", "int8", "fp8e5")
    m, n, k = p.pick(16, 16, 32), p.pick(16, 16, 32), p.pick(16, 16, 32)
    size = p.pick(k, 2 * k, 3 * k, k + 8, 2 * k - 4)
    masked = size % k != 0
    if masked:
        p.variant("masked")
    a, b = (f"p{len(p.args) + i}" for i in range(2))
    for name, numel in ((a, m * size), (b, size * n)):
        p.args[name] = torch.from_numpy(p.rng.integers(-3, 4, numel)).to(torch.float32).to(TORCH[type])
    bound = f"{size}"
    if p.chance(0.5):
        p.variant("run-time bound")
        bound = f"n + {size - p.n}"
    out = "int32" if type == "int8" else "fp32"
    x = p.count
    p.emit(f"k{x} = tl.arange(0, {k})")
    p.emit(f"a{x} = {a} + tl.arange(0, {m})[:, None] * {size} + k{x}[None, :]")
    p.emit(f"b{x} = {b} + k{x}[:, None] * {n} + tl.arange(0, {n})[None, :]")
    p.emit(f"c{x} = tl.zeros(({m}, {n}), tl.{'int32' if out == 'int32' else 'float32'})")
    p.emit(f"for i{x} in {p.pick('range', 'tl.range')}(0, {bound}, {k}):")
    left, right = (f", mask=k{x}[None, :] < {size} - i{x}", f", mask=k{x}[:, None] < {size} - i{x}") if masked else ("", "")
    p.emit(f"    c{x} = tl.dot(tl.load(a{x}{left}), tl.load(b{x}{right}), c{x})")
    p.emit(f"    a{x} += {k}")
    p.emit(f"    b{x} += {k} * {n}")
    kind = "int" if out == "int32" else "exact"
    p.give(f"c{x}" if kind == "int" else f"small(c{x}, -63, 63)", out, (m, n), kind, 63)


# ---------------------------------------------------------------------------------------------------------- the whole
def write_some(p: Base, count: int) -> None:
    """That many statements by random rules, as the budget allows."""
    for _ in range(count):
        if p.budget <= 0:
            return
        allowed = [r for r in PRODUCTIONS.values() if not p.nest or r.nested]
        weights = [r.weight for r in allowed]
        total = sum(weights)
        for _ in range(12):
            rule = allowed[int(p.rng.choice(len(allowed), p=[w / total for w in weights]))]
            if write(p, rule.name):
                break


def write(p: Base, name: str) -> bool:
    """One statement by the rule; False where it finds nothing to work on, and leaves no trace then."""
    state = (len(p.lines), list(p.values), set(p.untouched), dict(p.args), p.current, list(p.nest), p.used.copy(), len(p.helpers), p.budget)
    p.current = name
    p.budget -= 1
    try:
        PRODUCTIONS[name].write(p)
    except Nothing:
        del p.lines[state[0]:]
        p.values, p.untouched, p.args, p.current, p.nest, p.used = state[1], state[2], state[3], state[4], state[5], state[6]
        del p.helpers[state[7]:]
        p.budget = state[8]
        return False
    p.used["op", name] += 1
    p.current = state[4]
    return True


def generate(seed: int) -> Case:
    """The random kernel of that seed."""
    p = Base(seed)
    p.budget = p.number(5, 12)
    for name in ("load", "load", p.pick("load", "make", "block_pointer")):
        write(p, name)
    while not p.values:
        write(p, "make")
    while p.budget > 0:
        write_some(p, 1)
    unread = [v for v in p.values if v.name in p.untouched]
    chosen = {v.name: v for v in (*p.values[-2:], *unread[-3:], p.pick(*p.values))}
    for i, v in enumerate(chosen.values()):
        if i == 2 and p.chance(0.15):
            p.emit(f"if {_test(p)}:")
            p.emit("    return")
            p.used["op", "early return"] += 1
        save(p, v)
    parameters = [*p.args, "n", "m", "C0: tl.constexpr", "C1: tl.constexpr"]
    args = {**p.args, "n": p.n, "m": p.m, "C0": p.number(0, 3), "C1": p.number(1, 3)}
    head = ["pid = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))", *p.prologue]
    kernel = "\n".join(["@triton.jit", f"def kernel({', '.join(parameters)}):", *("    " + line for line in head), *p.lines])
    options: dict[str, object] = {"num_warps": p.pick(1, 2, 4, 8), "num_stages": p.pick(1, 2, 3, 4)}
    if p.free:
        options["enable_fp_fusion"] = False
    for name, value in options.items():
        p.used["option", f"{name}={value}"] += 1
    p.used["option", f"grid of {len(p.grid)} dims"] += 1
    pieces = [*p.helpers, kernel]
    imports, *library = HEADER.rstrip("\n").split("\n\n\n")
    text = "\n".join(pieces)
    library = [f for f in library if re.search(rf"\b{re.escape(f.split('def ')[1].split('(')[0])}\b", text)]
    source = "\n\n\n".join([imports, *library, *pieces]) + "\n"
    return Case(seed, source, args, p.grid, options, p.facts, p.used)


__all__ = ["DEEPEST", "generate", "random_kernels_memory", "random_kernels_ops", "write"]
