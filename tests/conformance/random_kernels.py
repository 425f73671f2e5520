"""Random kernels of which every value is exact, so that interpreter and targets have to agree bit for bit.

Each value carries a bound on its magnitude: floats stay integers small enough for their type, and integers wrap alike everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tilewright.conformance.harness import TORCH, poisoned, random_array, rng_of, tl_name

_TYPES = ("int32", "int32", "fp32", "fp32", "fp16", "bf16", "int8", "int64", "uint8", "fp64", "int16", "uint32")
_EXACT = {"fp16": 2**11, "bf16": 2**8, "fp32": 2**24, "fp64": 2**53}
_SHAPES = [(16, 16), (32, 16), (16, 64), (32, 32), (64, 8), (1, 32), (4, 2), (64, 64), (8, 1)]


@dataclass(frozen=True)
class Value:
    """A tile (or a scalar, shape ()) named ``name``; ``bound``: its largest magnitude, for floats, which are integers."""

    name: str
    type: str
    shape: tuple[int, ...]
    bound: int

    @property
    def is_float(self) -> bool:
        return self.type in _EXACT


class Program:
    """Builds the text of one kernel."""

    def __init__(self, seed: int, dots: bool = True):
        self.rng = rng_of("random kernel", seed)
        self.shape = _SHAPES[self.rng.integers(0, len(_SHAPES))]
        self.lines: list[str] = []
        self.args: dict[str, Any] = {}
        self.values: list[Value] = []
        self.count = 0
        self.depth = 0
        self.dots = dots
        self.size = int(np.prod(self.shape))

    def pick(self, *options: Any) -> Any:
        return options[self.rng.integers(0, len(options))]

    def emit(self, text: str) -> None:
        self.lines.append("    " * (self.depth + 1) + text)

    def give(self, text: str, type: str, shape: tuple[int, ...], bound: int) -> Value:
        """Assigns the expression; a float that may soon be inexact is brought back to a small range."""
        self.count += 1
        value = Value(f"v{self.count}", type, shape, bound)
        self.emit(f"{value.name} = {text}")
        if value.is_float and bound > 64:
            self.emit(f"{value.name} = (tl.where({value.name} > 7, 7, tl.where({value.name} < -7, -7, {value.name}))).to({tl_name(type)})")
            value = Value(value.name, type, shape, 7)
        self.values.append(value)
        return value

    def tile(self, rank: int | None = 2) -> Value:
        found = [v for v in self.values if rank is None or len(v.shape) == rank]
        return found[self.rng.integers(0, len(found))]

    def fitting(self, shape: tuple[int, ...]) -> Value:
        """A value that broadcasts to the shape."""
        found = [v for v in self.values if v.shape == () or v.shape == shape]
        return found[self.rng.integers(0, len(found))]

    def place(self, shape: tuple[int, ...]) -> str:
        if len(shape) == 1:
            return f"tl.arange(0, {shape[0]})"
        return f"tl.arange(0, {shape[0]})[:, None] * {shape[1]} + tl.arange(0, {shape[1]})[None, :]"

    # -- statements ------------------------------------------------------------------------------------------------
    def load(self) -> None:
        type = self.pick(*_TYPES)
        name = f"p{len(self.args)}"
        self.args[name] = random_array(type, 2 * self.size + 8, self.rng, small=True)
        at = self.pick(self.place(self.shape), f"{self.rng.integers(0, 8)} + {self.place(self.shape)}", f"({self.place(self.shape)}) * 2",
                       f"{2 * self.size} - ({self.place(self.shape)})", f"tl.arange(0, {self.shape[1]})[None, :] * {self.shape[0]} + tl.arange(0, {self.shape[0]})[:, None]")
        rows, columns = f"tl.arange(0, {self.shape[0]})[:, None]", f"tl.arange(0, {self.shape[1]})[None, :]"
        mask = self.pick("", "", f", mask=({rows} < n * 5) & ({columns} >= m), other=3", f", mask={rows} + {columns} != n", f", mask=({self.place(self.shape)}) < {self.size * 2 // 3}")
        self.give(f"tl.load({name} + {at}{mask})", type, self.shape, 4)

    def binary(self) -> None:
        a = self.tile(None)
        b = self.fitting(a.shape)
        if a.type == b.type == "bf16" or (a.type != b.type and {a.type, b.type} & {"bf16"}):
            a = self.give(f"{a.name}.to(tl.float32)", "fp32", a.shape, a.bound)
            b = b if b.type != "bf16" else self.give(f"{b.name}.to(tl.float32)", "fp32", b.shape, b.bound)
        sign = self.pick("+", "-", "*")
        if a.is_float or b.is_float:
            floats = [v for v in (a, b) if v.is_float]
            type = max((v.type for v in floats), key=lambda t: _EXACT[t])
            for v in (a, b):
                if not v.is_float and v.bound > 64:  # integers may be large: wrap them into a small range first
                    small = self.give(f"({v.name} & 7).to(tl.int32)", "int32", v.shape, 7)
                    a, b = (small if v is a else a), (small if v is b else b)
            bound = a.bound * b.bound if sign == "*" else a.bound + b.bound
            shape = a.shape or b.shape
            self.give(f"{a.name} {sign} {b.name}", type, shape, bound)
            return
        sign = self.pick("+", "-", "*", "&", "|", "^")
        wider = a.type if (_bits(a.type), a.type[0] == "u") >= (_bits(b.type), b.type[0] == "u") else b.type
        self.give(f"{a.name} {sign} {b.name}", wider, a.shape or b.shape, 2**64)

    def select(self) -> None:
        a = self.tile(None)
        same = [v for v in self.values if v.type == a.type and v.shape == a.shape]
        b = same[self.rng.integers(0, len(same))]
        c = self.fitting(a.shape)
        sign = self.pick("<", ">", "==", "!=", "<=", ">=")
        wide = a.type if a.type != "bf16" else "fp32"
        text = self.pick(f"tl.where({c.name} {sign} 1, {a.name}, {b.name})", f"tl.maximum({a.name}, {b.name})", f"tl.minimum({a.name}, {b.name})")
        type = a.type if "where" in text else wide
        self.give(text, type, a.shape, max(a.bound, b.bound))

    def cast(self) -> None:
        a = self.tile(None)
        type = self.pick(*_TYPES)
        if type in _EXACT and not a.is_float:
            self.give(f"({a.name} % 8).to({tl_name(type)})", type, a.shape, 7)
        elif a.is_float and type.startswith("u"):
            self.give(f"tl.abs({a.name}).to({tl_name(type)})", type, a.shape, a.bound)
        else:
            self.give(f"{a.name}.to({tl_name(type)})", type, a.shape, a.bound if a.is_float else 2**64)

    def reduce(self) -> None:
        a = self.tile(2)
        axis = int(self.rng.integers(0, 2))
        op = self.pick("sum", "max", "min", "argmax", "argmin")
        rest = a.shape[1 - axis]
        if a.type in ("fp16", "bf16"):
            a = self.give(f"{a.name}.to(tl.float32)", "fp32", a.shape, a.bound)
        small = {"int8": "int32", "int16": "int32", "uint8": "int32", "uint16": "int32"}.get(a.type, a.type)
        if op == "sum":
            type, bound = ("uint32" if a.type == "uint8" else small), a.bound * a.shape[axis]
        elif op.startswith("arg"):
            type, bound = "int32", a.shape[axis]
        else:
            type, bound = small, a.bound
        r = self.give(f"tl.{op}({a.name}, {axis})", type, (rest,), bound)
        at = "[None, :]" if axis == 0 else "[:, None]"
        self.give(f"tl.broadcast_to({r.name}{at}, {a.shape})", type, a.shape, r.bound)
        if self.rng.integers(0, 3) == 0:
            self.give(f"tl.{self.pick('max', 'min')}({r.name}, 0)", {"fp16": "fp32"}.get(type, type), (), r.bound)

    def scan(self) -> None:
        a = self.tile(2)
        if a.type in ("fp16", "bf16"):
            a = self.give(f"{a.name}.to(tl.float32)", "fp32", a.shape, a.bound)
        axis = int(self.rng.integers(0, 2))
        type = {"int8": "int32", "int16": "int32", "uint8": "uint32"}.get(a.type, a.type)
        self.give(f"tl.cumsum({a.name}, {axis}, reverse={bool(self.rng.integers(0, 2))})", type, a.shape, a.bound * a.shape[axis])

    def rearrange(self) -> None:
        a = self.tile(2)
        m, n = a.shape
        text = self.pick(f"tl.reshape(tl.trans({a.name}), ({m}, {n}))", f"tl.trans(tl.reshape({a.name}, ({n}, {m})))", f"tl.flip({a.name}, 1)",
                         f"tl.reshape(tl.ravel({a.name}), ({m}, {n}))", f"tl.trans(tl.trans({a.name}) + 0)")
        if "+ 0" in text and a.type == "bf16":
            text = f"tl.trans(tl.trans({a.name}))"
        self.give(text, a.type, a.shape, a.bound)

    def dot(self) -> None:
        m, n = self.shape
        if not self.dots or m < 16 or n < 16:
            return
        a, b = self.tile(2), self.tile(2)
        type = self.pick("fp16", "bf16", "fp32")
        x, y = (self.give(f"({v.name} % 4).to({tl_name(type)})" if not v.is_float else f"tl.where({v.name} > 3, 3, tl.where({v.name} < -3, -3, {v.name})).to({tl_name(type)})",
                          type, v.shape, 3) for v in (a, b))
        left = self.give(f"tl.dot({x.name}, tl.trans({y.name}))", "fp32", (m, m), 9 * n)  # [m, n] · [n, m], then back to [m, n]
        half = self.give(f"tl.where({left.name} > 0, 1.0, 0.0).to({tl_name(type)})", type, (m, m), 1)
        del self.values[-2:]
        self.give(f"tl.dot({half.name}, {y.name})", "fp32", (m, n), 3 * m)

    def branch(self) -> None:
        if self.depth > 1:
            return
        a = self.tile(None)
        scalar = [v for v in self.values if v.shape == ()]
        test = self.pick("n > m", "n == 2", "m > n and n > 0", *(f"{v.name} > 1" for v in scalar[:2]))
        known = list(self.values)
        name, self.count = f"v{self.count + 1}", self.count + 1
        self.emit(f"if {test}:")
        self._arm(name, a, known)
        self.emit("else:")
        self._arm(name, a, known)
        self.values = known + [Value(name, a.type, a.shape, 7 if a.is_float else 2**64)]

    def loop(self) -> None:
        if self.depth > 1:
            return
        a = self.tile(None)
        known = list(self.values)
        name, self.count = f"v{self.count + 1}", self.count + 1
        self.emit(f"{name} = {self._small(a)}")
        self.emit(f"for k{self.depth} in range({self.pick('0, n', '0, 3', 'm, n + 2', '4, m, -1')}):")
        self.values.append(Value(name, a.type, a.shape, 7 if a.is_float else 2**64))
        self.values.append(Value(f"k{self.depth}", "int32", (), 8))
        self._arm(name, a, list(self.values))
        self.values = known + [Value(name, a.type, a.shape, 7 if a.is_float else 2**64)]

    def _small(self, a: Value) -> str:
        return a.name if not a.is_float else f"tl.where({a.name} > 7, 7, tl.where({a.name} < -7, -7, {a.name})).to({tl_name(a.type)})"

    def _arm(self, name: str, like: Value, known: list[Value]) -> None:
        self.depth += 1
        for _ in range(self.rng.integers(1, 4)):
            self.pick(self.binary, self.select, self.reduce, self.rearrange, self.cast, self.load if self.depth < 2 else self.binary)()
        same = [v for v in self.values if v.type == like.type and v.shape == like.shape]
        self.emit(f"{name} = {self._small(same[-1])}")
        self.depth -= 1
        self.values = list(known)

    # -- the whole -------------------------------------------------------------------------------------------------
    def build(self) -> tuple[str, dict[str, Any]]:
        """(source, arguments)."""
        self.load()
        self.load()
        for _ in range(self.rng.integers(5, 12)):
            self.pick(self.load, self.binary, self.binary, self.select, self.cast, self.reduce, self.scan, self.rearrange, self.dot, self.branch, self.loop)()
        chosen = [*self.values[-3:], self.tile(2)]
        for k, v in enumerate(chosen):
            place = self.place(v.shape) if v.shape else "0"
            self.args[f"o{k}"] = poisoned(v.type, v.shape or 1)
            self.emit(f"tl.store(o{k} + {place}, {v.name})")
        head = f"@triton.jit\ndef kernel({', '.join(self.args)}, n, m):\n"
        self.args |= {"n": int(self.rng.integers(0, 4)), "m": int(self.rng.integers(0, 3))}
        return head + "\n".join(self.lines) + "\n", self.args


def _bits(type: str) -> int:
    return torch.empty(0, dtype=TORCH[type]).element_size() * 8
