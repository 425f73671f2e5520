"""Rules of the language: what loops and branches carry, helpers, aggregates, compile-time values, arguments, integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import compare, poisoned, random_array, rng_of

VALUES = [(0, 0), (1, 2), (5, 1), (3, 3)]

# name → module text of a `kernel(p, o, n, m)` as above
RULES = {
    "aggregates": """
        @tl.core._aggregate
        class Span:
            low: tl.tensor
            high: tl.tensor

            def __init__(self, low, high):
                self.low = low
                self.high = high

            @triton.jit
            def length(self):
                return self.high - self.low

            @triton.jit
            def moved(self, by, times: tl.constexpr = 1):
                return Span(self.low + by * times, self.high + by * times)

            @triton.jit
            def __add__(self, other):
                return Span(self.low + other.low, self.high + other.high)

            @triton.jit
            def __lt__(self, other):
                return self.low < other.low

            @triton.jit
            def __neg__(self):
                return Span(-self.high, -self.low)

            @triton.jit
            def __rsub__(self, number):
                return Span(number - self.low, number - self.high)

            @triton.jit
            def __getitem__(self, at: tl.constexpr):
                return self.low if at == 0 else self.high

        @tl.core._aggregate
        class Scaled:
            span: Span
            by: tl.constexpr
            extra: tl.tuple

            @triton.constexpr_function
            def __init__(self, span, by, extra):
                self.span = span
                self.by = tl.constexpr(by)
                self.extra = extra

            @triton.constexpr_function
            def twice(self):
                return self.by * 2

            def doubled(self):
                return self.by * 2

            @triton.jit
            def total(self):
                return (self.span.length() * self.by + self.extra[0]) * self.twice() + self.doubled()

        @triton.jit
        def widened(s, by):
            if by > 2:
                return Span(s.low - by, s.high)
            return s.moved(1, times=3)

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            s = Span(tl.load(p + i), tl.load(p + 64 + i))
            for k in range(n):
                if k % 2 == 0:
                    s = s.moved(k)
                else:
                    s = s + Span(s.high, s.low)
                if k == m + 1:
                    break
            t = widened(s, m)
            u = Scaled(t, 3, (n, m))
            pair = (u, s)
            least = tl.where(pair[1] < t, 1, 0)
            tl.store(o + i, pair[0].total() * 2 + least + u.extra[1] + (-s)[1] * 3 + (n - s).length())
    """,
    "aggregate_with_jit_init": """
        @tl.core._aggregate
        class Tile:
            rows: tl.tensor
            base: tl.tensor
            size: tl.constexpr

            @triton.jit
            def __init__(self, base, start, size: tl.constexpr):
                offsets = start + tl.arange(0, size)
                self.base = base
                self.rows = offsets
                self.size = size

            @triton.jit
            def load(self):
                return tl.load(self.base + self.rows)

        @triton.jit
        def kernel(p, o, n, m):
            t = Tile(p, n * 4, 64)
            x = t.load()
            count = 0
            while x.max() > m and count < 9:
                t = Tile(t.base + 1, n, t.size)
                x = t.load() - x * x
                count += 1
            tl.store(o + tl.arange(0, t.size), x)
    """,
    "named_tuples": """
        from typing import NamedTuple
        from collections import namedtuple

        class Pair(NamedTuple):
            first: tl.tensor
            second: tl.tensor

        Other = namedtuple("Other", ["a", "b"])

        @triton.jit
        def swapped(pair):
            return Pair(pair.second, pair.first)

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            t = Pair(tl.load(p + i), second=tl.load(p + 32 + i))
            for k in range(n):
                t = swapped(t)
                t = Pair(t.first + k, t[1])
            q = Other(b=n, a=t)
            first, second = q.a
            tl.store(o + i, first * 3 + second + q.b * 7 + len(q))
    """,
    "none_and_first_assignments": """
        @triton.jit
        def maybe(x, extra=None):
            if extra is None:
                return x
            return x + extra

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            x = tl.load(p + i)
            nothing = None
            pair = (x, None)
            for k in range(n):
                if nothing is None:
                    inside = x + k
                pair = (inside, pair[1])
                x = maybe(inside) + maybe(k, extra=3)
                x = maybe(x, pair[1])
            last = None
            for k in tl.static_range(3):
                if last is not None:
                    x += last
                last = x * 2
            tl.store(o + i, x + last + pair[0])
    """,
    "conditions": """
        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            x = tl.load(p + i)
            a = tl.where((-2 < x) & (x <= 3), 1, 0)
            if 0 <= n < 4 and not m == 2 or n == m == 3:
                a += 100
            if not (n or m):
                a += 200
            ok = (n > 1 or m > 1) and x.max() > 0
            yes: tl.constexpr = True
            if yes or n // m:
                a += 400
            a += (5 if n > m > 0 else 6) + tl.where(ok, 1000, 2000)
            y = x * 2 if ok else x - 1
            tl.store(o + i, a + y + tl.where(not ok, 4000, 0))
    """,
    "higher_order_functions": """
        @triton.jit
        def applied(f, x, y):
            return f(x, y)

        @triton.jit
        def folded(f: tl.constexpr, x, times: tl.constexpr):
            for k in tl.static_range(times):
                x = f(x, k)
            return x

        @triton.jit
        def plus(x, y):
            return x + y

        @triton.jit
        def times_minus(x, y, minus=1):
            return x * y - minus

        @triton.jit
        def chosen(which: tl.constexpr):
            return plus if which else times_minus

        @triton.jit
        def total(first, *rest, scale: tl.constexpr = 2):
            for r in tl.static_range(len(rest)):
                first += rest[r] * scale
            return first

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            x = tl.load(p + i)
            twice = lambda v: v * 2 + n
            x = applied(plus, x, m) + applied(times_minus, x, n)
            x = folded(plus, x, 3) ^ folded(lambda v, k: v * 2 - k, x, 2)
            functions = (plus, times_minus)
            for f in functions:
                x = f(x, 2)
            x = twice(x) + applied(lambda a, b: a - b, x, n)
            args = (n, m, x)
            first, *others = (x, *args[:2], 7)
            tl.store(o + i, total(*args) + total(x) + total(x, n, m, scale=5) + others[2] * first)
    """,
    "compile_time_values": """
        from enum import Enum

        class Kind(Enum):
            LOW = 1
            HIGH = 2

        LEVELS = tl.constexpr((3, 5, 8))
        NAMES = tl.constexpr({"low": 2, "high": 4})
        LIST = tl.constexpr([1, 2, 3, 4])
        WHICH = tl.constexpr("high")
        TYPE = tl.constexpr(tl.int32)
        KIND = tl.constexpr(Kind.HIGH)
        HALF = tl.constexpr(0.5)

        @triton.constexpr_function
        def squares(n):
            return [k * k for k in range(n)]

        @triton.constexpr_function
        def log2(n):
            return n.bit_length() - 1

        @triton.jit
        def kind_of(x, kind: tl.constexpr, name: tl.constexpr = "none"):
            tl.static_assert(kind in (Kind.LOW, Kind.HIGH), "a kind")
            if kind == Kind.HIGH and name.startswith("n"):
                return x + 100
            elif kind == Kind.LOW:
                return x - 100
            else:
                return x

        @triton.jit
        def kernel(p, o, n, m):
            SIZE: tl.constexpr = 2 ** log2(100)
            i = tl.arange(0, SIZE)
            x = tl.load(p + i).to(TYPE)
            x += LEVELS[1] + NAMES[WHICH] + LIST[-1] + len(LIST) + len(LEVELS)
            sq: tl.constexpr = squares(4)
            for k in tl.static_range(len(sq)):
                x = x * 2 + sq[k]
            tl.static_assert(SIZE == 64 and TYPE.primitive_bitwidth == 32, f"{SIZE=} of {TYPE}")
            tl.static_assert(TYPE.is_int() and not TYPE.is_fp8() and x.dtype == TYPE and x.dtype != tl.int64)
            tl.static_assert(p.dtype.element_ty == tl.int32 and p.type.is_ptr() and x.type.is_block())
            tl.static_assert(isinstance(x, tl.tensor) and not isinstance(x, tl.constexpr))
            tl.static_assert(x.shape[0] == SIZE and x.numel == 64 and len(x.shape) == 1)
            tl.static_assert(max(3, 7, 5) == 7 and min(LEVELS) == 3 and abs(-4) == 4 and pow(2, 5) == 32 and 7 // 2 == 3 and -7 // 2 == -4 and -7 % 3 == 2)
            tl.static_assert((SIZE > 32) & (SIZE < 100) and 6 ^ 3 == 5 and ~5 == -6 and 1 << 3 == 8 and 3 / 2 == 1.5 and not 0)
            x = kind_of(x, KIND, "name") + kind_of(x, Kind.LOW)
            if WHICH == "high":
                x += 1
            if HALF < 1:
                x = (x * HALF).to(tl.int32)
            tl.store(o + i, x)
    """,
    "pointers": """
        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            x = tl.load(p + i)
            at = p + i.to(tl.int64) + tl.cast(n > 1, tl.int8) - tl.cast(m, tl.int16)
            at += tl.cast(m, tl.uint8)
            at = at + tl.full([64], 200, tl.uint8).to(tl.int8).to(tl.uint8) - 199
            back = tl.cast(n, tl.uint32) + at - tl.cast(n, tl.uint64)
            bits = p.to(tl.pointer_type(tl.uint8), bitcast=True)
            y = tl.load(bits + i * 4).to(tl.int32)
            as_int = p.to(tl.int64) + 8
            there = as_int.to(tl.pointer_type(tl.int32))
            z = tl.load(there + i)
            same = tl.where(p + 2 == there, 1, 0) + tl.where(p < there, 2, 0)
            q = p if n > 2 else there
            inner = tl.cast(p, tl.pointer_type(tl.int16)) + i * 2
            tl.store(o + i, x + tl.load(back) * 3 + y * 5 + z * 7 + same * 100 + tl.load(q + i) + tl.load(inner))
    """,
    "starred_and_strings": """
        @triton.jit
        def described(x, *, name: tl.constexpr, plus=1, minus: tl.constexpr = 2):
            tl.static_assert(name == f"x{1 + 1:02d}{'y'!r}", f"named {name}")
            return x + plus - minus

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            x = tl.load(p + i)
            head, *middle, tail = (1, 2, x, 4)
            (a, b), [c, *d] = (n, m), (3, 4, 5)
            x = described(middle[1], name="x02'y'", minus=3) + described(x, plus=n, name="x02'y'")
            both = [v * 2 for v in (n, m, x)]
            pairs = tuple((u, v) for u, v in zip((1, 2), both))
            tl.static_print(f"{head} {len(d)}", n)
            for at, (u, v) in enumerate(pairs):
                x += u * v + at
            del head
            e = f = tail + a
            e += 1
            tl.store(o + i, x + tail + a * b + c + d[1] + both[2] + e * f + sum((1, 2, n)))
    """,
}


@pytest.mark.parametrize("name", RULES)
def test_rules(name):
    for warps, (n, m) in enumerate(VALUES):
        compare(RULES[name], {"p": random_array("int32", 256, rng_of(name), small=True), "o": poisoned("int32", 64), "n": n, "m": m}, num_warps=1 << warps % 3)


ARGUMENTS = {
    # name → (parameters, arguments, body that leaves y of the output's type), output's type
    "int64": ("a: tl.int64, b: 'i64'", {"a": 3_000_000, "b": 1}, "y = a * a * (b + i)", "int64"),
    "narrow": ("a: tl.int8, b: tl.uint8, c: tl.int16", {"a": 100, "b": 200, "c": -30000}, "y = (a + a).to(tl.int32) + (b + b).to(tl.int32) * 1000 + c * 2 + i", "int32"),
    "unsigned": ("a: tl.uint32, b: tl.uint64", {"a": 2**32 - 1, "b": 2**64 - 1}, "y = (a + 2).to(tl.int64) + (b >> 40).to(tl.int64) + i", "int64"),
    "float64": ("a: tl.float64, b: float", {"a": 0.1, "b": 0.1}, "y = a + b.to(tl.float64) * 1e-3 + i", "fp64"),
    "float16": ("a: tl.float16, b", {"a": 0.1, "b": 0.1}, "y = a.to(tl.float32) * 3 + b + i", "fp32"),
    "by value": ("a, b, c, d", {"a": 2**31, "b": 2**63, "c": -1, "d": True}, "y = (a + a) + (b >> 60).to(tl.int64) * c + d + i", "int64"),
    "counters": ("a: tl.uint32, b: tl.uint64, c: tl.int8", {"a": 6, "b": 2**63 + 3, "c": 5}, """
                y = i.to(tl.int64)
                for k in range(a):
                    y += (k - 3).to(tl.int64)
                for k in range(b - 5, b, 2):
                    y += (k - 2**63).to(tl.int64) * 3
                for k in range(c):
                    y = y * 2 + k
                for k in range(2147483640, 2147483647, 4):
                    y += k
                for k in range(-2147483640, -2147483648, -3):
                    y += k * 2
                """, "int64"),
}


ARGUMENTS["tuples"] = ("t, u: tl.constexpr, v=(2, None)", {"t": (3, None, (4, 0.5), True, 16, 2**40), "u": (5, "x", (6,))}, """
                y = i + t[0] * 1000
                if t[1] is None and u[1] == "x" and v[1] is None:
                    y = y + u[2][0] + u[0] * v[0]
                (a, b), c, d = t[2], t[3], t[4]
                for k in range(t[0]):
                    y += a * k + d
                y = y.to(tl.int64) + (b * 4).to(tl.int64) + c + t[5] * t[-2]
                """, "int64")
I = np.arange(32)
EXPECTED = {"tuples": I + 3000 + 6 + 10 + 4 * 3 + 48 + 2 + 1 + 2**44, "int64": 9_000_000_000_000 * (1 + I), "narrow": -56 + 144_000 + 5536 + I, "unsigned": 1 + 2**24 - 1 + I, "by value": 2**32 - 8 + 1 + I,
            "float64": 0.1 + np.float64(np.float32(0.1)) * 1e-3 + I}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name):
    parameters, arguments, body, kind = ARGUMENTS[name]
    lines = "\n".join("            " + line.strip() if not line.startswith("                    ") else line[4:] for line in body.strip().splitlines())
    compare(f"""
        @triton.jit
        def kernel(o, {parameters}):
            i = tl.arange(0, 32)
{lines}
            tl.store(o + i, y)
        """, {"o": poisoned(kind, 32), **arguments}, expected={"o": EXPECTED[name].astype(kind.replace("fp64", "float64"))} if name in EXPECTED else None)


# -- what integer operators give, by C's rules on Python's integers
C_TYPES = {f"{u}int{w}": (w, u == "") for w in (8, 16, 32, 64) for u in ("", "u")}


def _wrapped(value: int, type: str) -> int:
    width, signed = C_TYPES[type]
    value &= (1 << width) - 1
    return value - (1 << width) if signed and value >> (width - 1) else value


def _promoted(a: str, b: str) -> str:
    (wa, sa), (wb, _) = C_TYPES[a], C_TYPES[b]
    return (a if wa > wb else b) if wa != wb else (b if sa else a)


def _truncated(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


OPERATORS = {
    "+": lambda x, y, a, w: x + y, "-": lambda x, y, a, w: x - y, "*": lambda x, y, a, w: x * y, "&": lambda x, y, a, w: x & y, "|": lambda x, y, a, w: x | y,
    "^": lambda x, y, a, w: x ^ y, "//": lambda x, y, a, w: _truncated(x, y), "%": lambda x, y, a, w: x - y * _truncated(x, y),
    "<<": lambda x, y, a, w: x << y, ">>": lambda x, y, a, w: (_wrapped(x, "int" + str(w)) if C_TYPES[a][1] else x & ((1 << w) - 1)) >> y,
    "<": lambda x, y, a, w: int(x < y), "==": lambda x, y, a, w: int(x == y), ">=": lambda x, y, a, w: int(x >= y),
}


@pytest.mark.parametrize("a, b", [("int8", "uint8"), ("uint8", "int32"), ("int16", "uint32"), ("int32", "uint32"), ("uint64", "int8"), ("int64", "uint32"),
                                  ("int16", "int16"), ("uint16", "int64")])
def test_integers_as_in_c(a, b):
    n = 64
    rng = rng_of("c", a, b)
    x, y = random_array(a, n, rng), random_array(b, n, rng)
    common = _promoted(a, b)
    width = C_TYPES[common][0]
    shifts = torch.from_numpy(rng.integers(0, width, n).astype(b))
    signs = C_TYPES[a][1] == C_TYPES[b][1]
    y = torch.from_numpy(np.where(np.isin(y.numpy(), [0, -1]), y.numpy().dtype.type(3), y.numpy()))  # quotients that do not exist
    lines, args, expected = [], {"x": x, "y": y, "s": shifts}, {}
    for k, (sign, fn) in enumerate(OPERATORS.items()):
        if sign in ("//", "%") and not signs:
            continue
        right = "s" if sign in ("<<", ">>") else "y"
        out = "int1" if sign in ("<", "==", ">=") else common
        lines.append(f"tl.store(o{k} + i, tl.load(x + i) {sign} tl.load({right} + i))")
        args[f"o{k}"] = poisoned(out, n)
        values = []
        for u, v in zip(x.tolist(), args[right].tolist()):
            value = fn(_wrapped(u, common), _wrapped(v, common), a, width)
            values.append(bool(value) if out == "int1" else _wrapped(value, common))
        expected[f"o{k}"] = np.array(values, bool if out == "int1" else common)
    indent = "\n            "
    compare(f"""
        @triton.jit
        def kernel({', '.join(args)}):
            i = tl.arange(0, {n})
            {indent.join(lines)}
        """, args, expected=expected)
