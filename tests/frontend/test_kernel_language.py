"""What compiled kernels take as values and arguments, beyond what the interpreter runs the same (tests/conformance/test_language_rules.py)."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tt_execution import define

import tilewright.language as tl
from tilewright.dialects.errors import (
    ArgumentError,
    CompilationError,
    TypeMismatchError,
    UnsupportedLanguageConstruct,
)
from tilewright.runtime.errors import LaunchSignatureError


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))


def run(body: str, parameters: str = "", before: str = "", **arguments: Any) -> list[int]:
    """The first four results of a kernel(p, o, …) that adds to x, which is 0, 1, 2, …; arguments that are lambdas are called with the module's names."""
    source = textwrap.dedent(before) + f"\n@triton.jit\ndef kernel(p, o, {parameters}):\n    i = tl.arange(0, 64)\n    x = tl.load(p + i)\n"
    kernel = define(source + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n    tl.store(o + i, x)\n")
    p, o = np.arange(256, dtype=np.int32), np.zeros(64, np.int32)
    scope = kernel.fn.__globals__
    arguments = {k: v(scope) if callable(v) and getattr(v, "__name__", "") == "<lambda>" else v for k, v in arguments.items()}
    kernel[(1,)](p, o, **arguments)
    return o[:4].tolist()


def numbers(n: int = 256) -> np.ndarray:
    return np.arange(n, dtype=np.int32)


@dataclass(frozen=True)
class Config:
    a: int
    b: str


class Pointer:
    """What kernels know an array by."""

    def __init__(self, array: np.ndarray):
        self.array, self.dtype = array, array.dtype

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)


KEPT = [numbers(), numbers()]
SCOPE = """
class scope:
    __triton_builtin__ = True
    def __init__(self, value, _semantic=None):
        self.value, self.semantic = value, _semantic
    def __enter__(self):
        return self.semantic.to_tensor(self.value)
    def __exit__(self, *exc):
        pass
"""
ENUM = "from enum import Enum, IntEnum\nclass E(Enum):\n    A = 1\n    B = 2\nclass I(IntEnum):\n    A = 1\n    B = 2\n"
NAMED = "from typing import Any, NamedTuple\nclass Args(NamedTuple):\n    q: Any\n    n: int\n    k: Any\n"

VALUES = {
    "tl.tuple": ("t = tl.tuple((x, n))\nx = t[0] + t[1]", "n", "", {"n": 5}, [5, 6, 7, 8]),
    "items": ("t = [x, n]\nt[0] += 1\nfor k in range(3):\n    t[1] = t[1] + k\nx = t[0] + t[-1]", "n", "", {"n": 5}, [9, 10, 11, 12]),
    "with": ("with scope(7) as seven, scope(1) as one:\n    for k in range(n):\n        if k == 1:\n            break\n        x += seven\nx += one",
             "n", SCOPE, {"n": 5}, [8, 9, 10, 11]),
    "comparisons of tiles": ("y = tl.where(1 <= x < 3, 1, 0) + tl.where(x > 1 and not (x == 2), 10, 0)\nx = y + tl.where(x or x == 0, 100, 0)", "", "", {},
                             [100, 101, 101, 110]),
    "constexpr": ("C: tl.constexpr = 4\ntl.static_assert(isinstance(C, tl.constexpr) and isinstance(C, int) and isinstance((1, 2), tl.tuple))\n"
                  "x += C.value + (C + 1).value // 2", "", "", {}, [6, 7, 8, 9]),
    "closure": ("x = add5(x) + add6(x)", "", "def make(k):\n    C = tl.constexpr(k)\n    @triton.jit\n    def add(x):\n        return x + C\n    return add\n"
                "add5 = make(5)\nadd6 = make(6)\n", {}, [11, 13, 15, 17]),
    "no static loop twice": ("for k in tl.static_range(3):\n    if n == k:\n        continue\n    y = k\n    x += y", "n", "", {"n": 5}, [3, 4, 5, 6]),
    "function": ("if F is not None:\n    x = F(x)\nif G is None:\n    x += 1", "F: tl.constexpr, G: tl.constexpr",
                 "@triton.jit\ndef clipped(x):\n    return tl.maximum(x, 2)\n", {"F": lambda s: s["clipped"], "G": None}, [3, 3, 3, 4]),
    "enum": ("if e == E.B:\n    x += 1\nif e is E.B:\n    x += 2\nif e is E.A:\n    x += 4\nif k == I.A:\n    x += 8\nx += k * 16", "e: tl.constexpr, k: tl.constexpr", ENUM,
             {"e": lambda s: s["E"].B, "k": lambda s: s["I"].A}, [27, 28, 29, 30]),
    "dtype": ("tl.static_assert(T.primitive_bitwidth == 16 and T == tl.float16)\nx = (x.to(T) / 2).to(tl.int32)", "T: tl.constexpr", "", {"T": tl.float16},
              [0, 0, 1, 1]),
    "dataclass": ("x += c.a\nif c.b == 'q':\n    x += 1", "c: tl.constexpr", "", {"c": Config(3, "q")}, [4, 5, 6, 7]),
    "list and dict": ("for v in values:\n    x += v\nx += names['a']", "values: tl.constexpr, names: tl.constexpr", "", {"values": [1, 2, 3], "names": {"a": 4}},
                      [10, 11, 12, 13]),
    "dictionary": ("C: tl.constexpr = {'a': 3, (1, tl.int32): 4}\nx += C['a'] + C[(1, x.dtype)] + len(C)", "", "", {}, [9, 10, 11, 12]),
    "string": ("if s == 'add':\n    x += 1", "s", "", {"s": "add"}, [1, 2, 3, 4]),
    "tuple with None": ("for q in arrays:\n    x += tl.load(q + i)\nif ints[1] is None:\n    x += ints[0] + ints[2]", "arrays, ints", "",
                        {"arrays": (numbers(), numbers()), "ints": (1, None, 16)}, [17, 20, 23, 26]),
    "nested tuple": ("x += a[0][0] + a[0][1][0] + tl.load(a[1] + i)\n(b, (c,)), d = a\nx += b + c", "a", "", {"a": ((3, (4,)), numbers())}, [14, 16, 18, 20]),
    "named tuple": ("x += tl.load(a.q + i) + a.n + a[1]\nif a.k is None:\n    x += 100", "a", NAMED, {"a": lambda s: s["Args"](numbers(), 3, None)},
                    [106, 108, 110, 112]),
    "numpy scalars": ("tl.static_assert(c.dtype == tl.float32)\nx += a + b", "a, b, c", "",
                      {"a": np.int64(5), "b": np.int32(7), "c": np.float64(2.5)}, [12, 13, 14, 15]),
    "annotated": ("tl.static_assert(a.dtype == tl.int64 and b.dtype == tl.int16 and c.dtype == tl.float64 and d.dtype == tl.uint32)\n"
                  "x += (a + b + d).to(tl.int32)", "a: tl.int64, b: 'i16', c: tl.float64, d: tl.uint32", "", {"a": 1, "b": 16, "c": 2.5, "d": 7}, [24, 25, 26, 27]),
    "fp16 annotated": ("tl.static_assert(a.dtype == tl.float16)\nx += (a.to(tl.float32) * 8).to(tl.int32) + (a * 4).to(tl.int32)", "a: tl.float16", "",
                       {"a": 2.5}, [30, 31, 32, 33]),
    "wide integers": ("tl.static_assert(a.dtype == tl.uint64 and b.dtype == tl.int64)\nx += (a >> 60).to(tl.int32) + (b >> 33).to(tl.int32)", "a, b", "",
                      {"a": 2**63 + 5, "b": -(2**34)}, [6, 7, 8, 9]),
    "bool": ("tl.static_assert(b.dtype == tl.int1)\nx += b", "b", "", {"b": True}, [1, 2, 3, 4]),
    "const pointer": ("tl.static_assert(q.dtype.is_const())\nx += tl.load(q + i)", "q: tl.const", "", {"q": numbers()}, [0, 2, 4, 6]),
    "pointer annotation": ("x += tl.load(q + i)", "q: tl.pointer_type(tl.int32)", "", {"q": numbers()}, [0, 2, 4, 6]),
    "pointers in memory": ("for k in range(2):\n    q = tl.load(pp + k).to(tl.pointer_type(tl.int32))\n    x += tl.load(q + i) + tl.load(tl.cast(q, tl.pointer_type(tl.int8)) + 4)",
                           "pp", "", {"pp": np.array([a.ctypes.data for a in KEPT], np.int64)}, [2, 5, 8, 11]),
    "view": ("x += tl.load(q + i) + tl.load(r + i * s)", "q, r, s", "", {"q": numbers()[3:67], "r": numbers()[::2], "s": 2}, [3, 7, 11, 15]),
    "empty": ("x += tl.load(q + i, mask=i < 0, other=3)", "q", "", {"q": numbers(0)}, [3, 4, 5, 6]),
    "data_ptr": ("x += tl.load(q + i)", "q", "", {"q": Pointer(numbers())}, [0, 2, 4, 6]),
    "keyword only and defaults": ("x += a * 10 + b + C", "a, b=3, *, C: tl.constexpr = 4", "", {"a": 2}, [27, 28, 29, 30]),
}


@pytest.mark.parametrize("name", VALUES)
def test_value(name):
    body, parameters, before, arguments, expected = VALUES[name]
    assert run(body, parameters, before, **arguments) == expected


@pytest.mark.parametrize("body, parameters, arguments, kind, text", [
    ("tl.store(q + i, x)", "q: tl.const", {"q": numbers()}, TypeMismatchError, "pointer to const"),
    ("tl.make_tensor_descriptor(q, [64], [1], [64]).store([0], x)", "q: tl.const", {"q": numbers()}, TypeMismatchError, "descriptor of a pointer to const"),
    ("pass", "a", {"a": 2**70}, ArgumentError, "argument 'a' of kernel: the integer 1180591620717411303424 needs more than 64 bits"),
    ("pass", "a, b", {"a": 1}, LaunchSignatureError, "missing 1 required positional argument: 'b'; its parameters are p, o, a, b"),
    ("pass", "a", {"a": 1, "z": 4}, ArgumentError, "'z' is neither a parameter of the kernel nor an option"),
    ("pass", "a", {"a": 3j}, ArgumentError, "argument 'a' of kernel: a builtins.complex is no kernel argument"),
    ("pass", "a", {"a": (3, 3j)}, ArgumentError, "argument 'a' of kernel: a builtins.complex is no kernel argument"),
    ("d = {'a': x}", "", {}, TypeMismatchError, "compile-time keys and values"),
    ("t = (x, 1)\nt[n] = 2", "n", {"n": 5}, TypeMismatchError, "compile-time index"),
    ("t = (x, 1)\nt[2] = 2", "", {}, TypeMismatchError, "compile-time index within it"),
    ("with open('x') as f:\n    pass", "", {}, CompilationError, "open is not part of the language"),
    ("with tl.static_print('x'):\n    if n > 3:\n        return\nx += 1", "n", {"n": 5}, UnsupportedLanguageConstruct, "returns from a `with`"),
    ("while (k := n) > 3:\n    pass", "n", {"n": 5}, UnsupportedLanguageConstruct, ":= in the condition"),
    ("x += tl.load(o + i) + f(**{'a': 3})", "f: tl.constexpr", {"f": 3}, UnsupportedLanguageConstruct, "**"),
])
def test_mistakes(body, parameters, arguments, kind, text):
    with pytest.raises(kind) as error:
        run(body, parameters, **arguments)
    assert text in str(error.value)


def test_too_few_arguments_are_a_type_error_too():
    with pytest.raises(TypeError, match="multiple values for argument 'p'"):
        define("@triton.jit\ndef kernel(p, n):\n    tl.store(p, n)\n")[(1,)](numbers(), p=numbers(), n=3)


AGGREGATE = """
@tl.core._aggregate
class Pair:
    a: tl.tensor
    k: tl.constexpr

    def __init__(self, a, k=None):
        self.a = a
        if k is not None:
            self.k = k

    @triton.jit
    def plus(self, n):
        return Pair(self.a + n, self.k)
"""


@pytest.mark.parametrize("body, kind, text", [
    ("t = Pair(x)", TypeMismatchError, "__init__ of Pair does not assign the field k"),
    ("t = Pair(3, 4)", TypeMismatchError, "the field a of Pair is declared tensor, and is given constexpr[3]"),
    ("t = Pair(x, x)", TypeMismatchError, "the field k of Pair is declared constexpr"),
    ("t = Pair(x, 2)\nt.a = x", UnsupportedLanguageConstruct, "the field a of Pair is assigned in __init__"),
    ("t = Pair(x, 2)\nx += t.b", TypeMismatchError, "'Pair' object has no attribute 'b'"),
    ("t = Pair(x, 2)\nfor j in range(n):\n    t = Pair(x, 3)", TypeMismatchError, "t is Pair("),
    ("t = Pair(x, 2) + Pair(x, 2)", TypeMismatchError, "neither has a method __add__"),
    ("t = -Pair(x, 2)", TypeMismatchError, "Pair has no method __neg__"),
    ("t = Pair(x, 2)[0]", TypeMismatchError, "Pair has no method __getitem__"),
    ("t = Pair(x, 2) == Pair(x, 2)", TypeMismatchError, "no jit method __eq__"),
    ("t = Pair(x, 2)\nif n > 2:\n    t = t.plus(1.5)", TypeMismatchError, "t is Pair("),
])
def test_aggregate_mistakes(body, kind, text):
    with pytest.raises(kind) as error:
        run(body, "n", AGGREGATE, n=5)
    assert text in str(error.value)


def test_a_changed_method_of_an_aggregate_is_another_kernel():
    source = AGGREGATE + "@triton.jit\ndef kernel(p, n):\n    tl.store(p, Pair(n, 2).plus(1).a)\n"
    keys = {define(text).cache_key for text in (source, source, source.replace("self.a + n", "self.a - n"))}
    assert len(keys) == 2
