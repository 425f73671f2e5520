"""What random kernels are made of: values with facts that keep every result comparable, and the program that collects statements.

Each value has a kind:

``int``    an integer of any magnitude: it wraps alike everywhere
``bool``   int1
``exact``  a float that is an integer, at most ``bound`` in magnitude: sums, products and dots of it are exact in any order and precision
``free``   any float, special ones too: only what IEEE 754 fixes is done with it, in kernels compiled with ``enable_fp_fusion=False``
``fp8``    an fp8 value: loaded, stored, moved and cast

An expression keeps the facts of its value whatever statements around it are dropped (bounds are made inside the expression), so that the
shrinker may drop statements and cannot make a mismatch of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tilewright.language import dtypes
from tilewright.language.semantic_base import computation_type, integer_promote

from .harness import INTS, TL, TORCH, UINTS, WIDTH, poisoned, random_array, rng_of, special_floats

EXACT = {"fp16": 2**11, "bf16": 2**8, "fp32": 2**24, "fp64": 2**53}
FLOATS = tuple(EXACT)
FP8 = ("fp8e5", "fp8e4nv")
INTEGERS = (*INTS, *UINTS)
# how often each type is loaded
TYPES = ("int32", "int32", "fp32", "fp32", "fp16", "bf16", "fp64", "int8", "int16", "int64", "uint8", "uint16", "uint32", "uint64", "int1", *FP8)
SMALL = 7  # the bound to which exact floats are brought back
MOST = 64  # beyond it they are

HEADER = '''import tilewright as triton
import tilewright.language as tl
from tilewright.language.extra import libdevice


@triton.jit
def small(x, low, high):
    return tl.minimum(tl.maximum(x, low), high).to(x.dtype)


@triton.jit
def no_nan(x):
    return tl.where(x == x, x, 1)


@triton.jit
def odd(x):
    return x | 1


@triton.jit
def add_of(a, b):
    return a + b


@triton.jit
def max_of(a, b):
    return tl.maximum(a, b)


@triton.jit
def xor_of(a, b):
    return a ^ b


@triton.jit
def and_of(a, b):
    return a & b


@triton.jit
def min_max_sum(a, b, c, d, e, f):
    return tl.minimum(a, d), tl.maximum(b, e), c + f


@triton.jit
def best_of(v, i, w, j):
    first = (v > w) | ((v == w) & (i < j))
    return tl.where(first, v, w), tl.where(first, i, j)


@triton.jit
def affine(a, b, c, d):
    return a * c, b * c + d
'''


@dataclass(frozen=True)
class Value:
    """A tile named ``name`` (a scalar: shape ()), of element type ``type``; ``bound``: the largest magnitude of an exact one."""

    name: str
    type: str
    shape: tuple[int, ...]
    kind: str
    bound: int = 0

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


@dataclass
class Case:
    """One kernel to run: its text (header included), arguments, grid, launch options, and how outputs are compared.

    ``facts``: the name of each variable → (type, shape), for the shrinker; ``used``: (category, item) → how often."""

    seed: int
    source: str
    args: dict[str, Any]
    grid: tuple[int, ...]
    options: dict[str, Any]
    facts: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    used: Counter[tuple[str, str]] = field(default_factory=Counter)


@dataclass(frozen=True)
class Production:
    """A rule of the grammar: a function of the program that writes one statement or a few. ``nested``: also inside loops and branches."""

    name: str
    weight: float
    nested: bool
    write: Callable[[Any], None]


PRODUCTIONS: dict[str, Production] = {}
VARIANTS: dict[str, tuple[str, ...]] = {}  # the choices inside productions, for the list of what was never used


def production(weight: float, nested: bool = True, variants: Sequence[str] = ()) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Registers a rule under the function's name."""

    def register(write: Callable[[Any], None]) -> Callable[[Any], None]:
        name = write.__name__
        PRODUCTIONS[name] = Production(name, weight, nested, write)
        if variants:
            VARIANTS[name] = tuple(variants)
        return write

    return register


class Nothing(Exception):
    """The rule finds no operand that it could take; another is chosen."""


def tl_type(type: str) -> str:
    """``fp32`` → ``tl.float32``."""
    return "tl." + TL.get(type, type)


def common(a: str, b: str, div: bool = False) -> str:
    """The type in which ``a op b`` is computed."""
    return str(computation_type(dtypes.dtype(a), False, dtypes.dtype(b), False, div).name)


def wider_integer(a: str, b: str) -> str:
    return str(integer_promote(dtypes.dtype(a), dtypes.dtype(b)).name)


def signed(type: str) -> bool:
    return type.startswith("int") and type != "int1"


def small_type(type: str) -> str:
    """What tl.max and tl.min make of a type."""
    return {"fp16": "fp32", "bf16": "fp32"}.get(type, type) if type in FLOATS else type if WIDTH[type] >= 32 else "int32"


def sum_type(type: str) -> str:
    if type in FLOATS or (type != "int1" and WIDTH[type] >= 32):
        return type
    return "int32" if signed(type) else "uint32"


def row_major(shape: Sequence[int], strides: Sequence[int] | None = None) -> str:
    """Offsets of a tile, as text; by other strides where they are given."""
    rank, parts = len(shape), []
    if rank == 0:
        return "0"
    for d, size in enumerate(shape):
        stride = math.prod(shape[d + 1:]) if strides is None else strides[d]
        at = "[" + ", ".join(":" if e == d else "None" for e in range(rank)) + "]" if rank > 1 else ""
        parts.append(f"tl.arange(0, {size}){at}" + (f" * {stride}" if stride != 1 else ""))
    return " + ".join(parts)


class Base:
    """The text so far and the values that are alive; the rules are in random_kernels_{ops,memory,control}.py."""

    def __init__(self, seed: int):
        self.seed = seed
        self.rng = rng_of("random kernel, second grammar", seed)
        self.lines: list[str] = []
        self.prologue: list[str] = []
        self.helpers: list[str] = []
        self.places: dict[tuple[int, ...], str] = {}
        self.args: dict[str, Any] = {}
        self.constants: dict[str, int] = {}
        self.values: list[Value] = []
        self.untouched: set[str] = set()  # values that nothing has read yet
        self.facts: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.used: Counter[tuple[str, str]] = Counter()
        self.count = 0
        self.nest: list[str] = []
        self.budget = 0  # statements that may still be written
        self.free = self.chance(0.3)
        self.numel = self.pick(1, 2, 4, 16, 16, 32, 64, 64, 128, 256, 256, 256, 256, 512, 1024)
        self.grid = self.pick((1,), (1,), (1,), (2,), (3,), (2, 2), (1, 3), (2, 1, 2), (1, 2, 2))
        self.programs = math.prod(self.grid)
        self.n, self.m = int(self.rng.integers(0, 4)), int(self.rng.integers(0, 3))
        self.current = ""

    # -- choices ---------------------------------------------------------------------------------------------------
    def pick(self, *options: Any) -> Any:
        return options[self.rng.integers(0, len(options))]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def number(self, low: int, high: int) -> int:
        """low … high, both included."""
        return int(self.rng.integers(low, high + 1))

    def variant(self, *allowed: str) -> str:
        """One of the current rule's variants (those allowed here), counted."""
        chosen = self.pick(*(allowed or VARIANTS[self.current]))
        if chosen not in VARIANTS[self.current]:
            raise AssertionError(f"{chosen} is not listed as a variant of {self.current}")
        self.used["variant", f"{self.current}.{chosen}"] += 1
        return str(chosen)

    def factor(self, numel: int, rank: int | None = None) -> tuple[int, ...]:
        """A shape of that many elements; sizes are powers of two, 1 included."""
        rank = rank or self.pick(1, 1, 2, 2, 2, 2, 3, 3, 4)
        bits, sizes = numel.bit_length() - 1, [0] * rank
        for _ in range(bits):
            sizes[self.rng.integers(0, rank)] += 1
        return tuple(1 << s for s in sizes)

    # -- values ----------------------------------------------------------------------------------------------------
    def emit(self, text: str) -> None:
        self.lines.append("    " * (len(self.nest) + 1) + text)

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def give(self, text: str, type: str, shape: Sequence[int], kind: str, bound: int = 0) -> Value:
        """Assigns the expression to a new variable. An exact float that grows too large is brought back to a small range."""
        if kind == "exact":
            if bound > EXACT[type]:
                raise AssertionError(f"{text} of {type} may reach {bound}")
            if bound > MOST:
                text, bound = f"small({text}, -{SMALL}, {SMALL})", SMALL
        value = Value(self.name(), type, tuple(shape), kind, bound)
        self.emit(f"{value.name} = {text}")
        self.keep(value)
        self.used["op × type", f"{self.current} {type}"] += 1
        self.used["type", type] += 1
        self.used["shape", "×".join(map(str, value.shape)) or "scalar"] += 1
        return value

    def keep(self, value: Value) -> None:
        self.values.append(value)
        self.facts[value.name] = (value.type, value.shape)
        self.untouched.add(value.name)

    def read(self, value: Value) -> Value:
        self.untouched.discard(value.name)
        return value

    def find(self, good: Callable[[Value], bool]) -> Value | None:
        """A living value that is good, rather a late or unread one."""
        found = [v for v in self.values if good(v)]
        if not found:
            return None
        fresh = [v for v in found if v.name in self.untouched]
        if fresh and self.chance(0.5):
            return self.read(self.pick(*fresh))
        return self.read(found[-1 - min(int(self.rng.exponential(4.0)), len(found) - 1)])

    def need(self, good: Callable[[Value], bool]) -> Value:
        found = self.find(good)
        if found is None:
            raise Nothing
        return found

    def tile(self, *kinds: str) -> Value:
        return self.need(lambda v: len(v.shape) > 0 and (v.kind in kinds or not kinds))

    def any(self, *kinds: str) -> Value:
        return self.need(lambda v: v.kind in kinds or not kinds)

    def like(self, shape: tuple[int, ...], good: Callable[[Value], bool], broadcast: bool = True) -> Value | None:
        """A good value of that shape, or one that broadcasts to it."""

        def fits(v: Value) -> bool:
            return good(v) and (v.shape == shape or (broadcast and (v.shape == () or (
                len(v.shape) == len(shape) and all(a == b or a == 1 for a, b in zip(v.shape, shape))))))

        return self.find(fits)

    def low(self, v: Value, most: int = SMALL) -> str:
        """An expression of an exact value with a bound."""
        return v.name if v.bound <= most else f"small({v.name}, -{most}, {most})"

    def few(self, v: Value, most: int = SMALL) -> str:
        """Any value as exact small integers (0 … most, −most … most) in its own type. ``most`` is one less than a power of two."""
        if v.kind == "int":
            return f"({v.name} & {most})"
        if v.kind == "exact":
            return self.low(v, most)
        if v.kind == "free":
            return f"tl.floor(small({v.name}, -{most}, {most}))" if v.type in ("fp32", "fp64") else f"tl.floor(small({v.name}.to(tl.float32), -{most}, {most}))"
        if v.kind == "fp8":
            return f"tl.floor(small({v.name}.to(tl.float32), -{most}, {most}))"
        return f"{v.name}.to(tl.int32)"

    def few_type(self, v: Value) -> str:
        """The type of ``few``."""
        return v.type if v.kind in ("int", "exact") or (v.kind == "free" and v.type in ("fp32", "fp64")) else "int32" if v.kind == "bool" else "fp32"

    def cast_few(self, v: Value, type: str, most: int = SMALL) -> str:
        """``few`` in another type; negative floats become their magnitude in unsigned ones."""
        text = self.few(v, most)
        if self.few_type(v) == type:
            return text
        if v.kind in ("exact", "free", "fp8") and type not in FLOATS and type not in FP8 and not signed(type):
            text = f"tl.abs({text})"
        return f"({text}).to({tl_type(type)})"

    def condition(self, shape: tuple[int, ...]) -> str:
        """An int1 expression that broadcasts to the shape."""
        found = self.like(shape, lambda v: v.kind == "bool") if self.chance(0.4) else None
        if found is not None:
            return found.name
        v = self.like(shape, lambda v: v.kind in ("int", "exact", "free"))
        sign = self.pick("<", ">", "==", "!=", "<=", ">=")
        if v is None or self.chance(0.2):
            return f"(({self.place(shape)}) % {self.number(2, 5)} {sign} n)" if shape else f"(n {sign} m)"
        return f"({v.name} {sign} {self.number(0, 3)})"

    def place(self, shape: tuple[int, ...]) -> str:
        """The row-major offsets of a tile of the shape: a variable at the kernel's start."""
        if not shape:
            return "0"
        if shape not in self.places:
            self.places[shape] = "at_" + "_".join(map(str, shape))
            self.prologue.append(f"{self.places[shape]} = {row_major(shape)}")
        return self.places[shape]

    # -- arrays ----------------------------------------------------------------------------------------------------
    def array(self, type: str, size: int, kind: str | None = None) -> tuple[str, str, int]:
        """A new input of random values: (name, kind of its values, bound)."""
        name = f"p{len(self.args)}"
        if type == "int1":
            data, kind, bound = random_array(type, size, self.rng), "bool", 0
        elif type in INTEGERS:
            data, kind, bound = random_array(type, size, self.rng, small=self.chance(0.3)), "int", 0
        elif type in FP8:
            data, kind, bound = random_array("fp32", size, self.rng, small=True).to(TORCH[type]), "fp8", 4
        elif self.free and kind != "exact":
            special = self.chance(0.4)
            data = special_floats(type, max(size, 20), self.rng)[torch.from_numpy(self.rng.permutation(max(size, 20)))][:size] if special \
                else random_array(type, size, self.rng)
            kind, bound = "free", 0
        else:
            data, kind, bound = random_array(type, size, self.rng, small=True), "exact", 4
        self.args[name] = data
        return name, kind, bound

    def output(self, type: str, size: int) -> str:
        name = f"o{len(self.args)}"
        self.args[name] = poisoned(type, size)
        return name

    def permutation(self, rank: int) -> list[int]:
        return [int(i) for i in self.rng.permutation(rank)]


__all__ = ["EXACT", "FLOATS", "FP8", "HEADER", "INTEGERS", "MOST", "PRODUCTIONS", "SMALL", "TYPES", "VARIANTS", "Base", "Case", "Nothing", "Production", "Value",
           "common", "np", "production", "row_major", "signed", "small_type", "sum_type", "tl_type", "wider_integer"]
