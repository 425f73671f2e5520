"""Integer expressions that the host evaluates at a launch: exactly, over the real arguments, and as intervals over what varies in a kernel.

An expression is an index into a list of nodes ``[op, …]`` (see ``metadata["host"]["expressions"]``): ``["arg", i]``, ``["const", v]``,
``["program_id", axis]``, ``["num_programs", axis]``, ``["loop", lo, hi, step]`` (every value of range(lo, hi, step)) and ``add``, ``sub``,
``mul``, ``div``, ``rem``, ``min``, ``max`` of two expressions; div and rem truncate towards zero, as the kernel's do. Integers are
unbounded here: whether the kernel's own arithmetic wraps is what range guards are for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

BINARY = ("add", "sub", "mul", "div", "rem", "min", "max")
_VARYING = ("program_id", "loop")


class UndefinedExpression(Exception):
    """An expression without a value for these arguments: a division by zero, or bounds that cannot be told."""


def divide(a: int, b: int) -> int:
    """Quotient truncated towards zero."""
    if b == 0:
        raise UndefinedExpression("a division by zero")
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def remainder(a: int, b: int) -> int:
    """Remainder with the dividend's sign."""
    return a - divide(a, b) * b


@dataclass(frozen=True)
class Interval:
    """Integers lo, lo + step, …, hi (a superset of the values taken); step 0 where lo == hi. Empty where lo > hi: code that never runs."""

    lo: int
    hi: int
    step: int = 1

    @property
    def empty(self) -> bool:
        return self.lo > self.hi

    @property
    def exact(self) -> int | None:
        return self.lo if self.lo == self.hi else None


EMPTY = Interval(0, -1)


def point(value: int) -> Interval:
    return Interval(value, value, 0)


def _made(lo: int, hi: int, step: int) -> Interval:
    return point(lo) if lo == hi else Interval(lo, hi, step or 1)


def _mul(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return _made(min(corners), max(corners), gcd(a.lo * b.step, b.lo * a.step, a.step * b.step))


def _div(a: Interval, b: Interval) -> Interval:
    if b.lo <= 0 <= b.hi:
        raise UndefinedExpression(f"a division by what may be zero ({b.lo} to {b.hi})")
    corners = [divide(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]  # monotonic in each, the divisor's sign being one
    d = b.exact
    even = d is not None and a.lo % d == 0 and a.step % d == 0
    return _made(min(corners), max(corners), abs(a.step // d) if even and d is not None else 1)


def _rem(a: Interval, b: Interval) -> Interval:
    if b.lo <= 0 <= b.hi:
        raise UndefinedExpression(f"a remainder by what may be zero ({b.lo} to {b.hi})")
    largest = max(abs(b.lo), abs(b.hi)) - 1
    d = b.exact
    if d is not None and divide(a.lo, d) == divide(a.hi, d) and (a.lo >= 0 or a.hi <= 0):
        return _made(remainder(a.lo, d), remainder(a.hi, d), a.step)
    smallest_divisor = min(abs(b.lo), abs(b.hi))
    if -smallest_divisor < a.lo and a.hi < smallest_divisor:
        return a
    lo, hi = max(min(a.lo, 0), -largest), min(max(a.hi, 0), largest)
    step = gcd(a.step, d, a.lo) if d is not None else 1
    # values are multiples of step: the outermost ones within the bounds
    return _made(-(-lo // step) * step, hi // step * step, step)


def _loop(lo: Interval, hi: Interval, step: Interval) -> Interval:
    each = gcd(lo.step, step.lo, step.step)  # every value is lo.lo plus a multiple of it
    if step.lo > 0:
        return _made(lo.lo, lo.lo + (hi.hi - 1 - lo.lo) // each * each, each) if lo.lo < hi.hi else EMPTY
    if step.hi < 0:
        return _made(lo.hi - (lo.hi - 1 - hi.lo) // each * each, lo.hi, each) if lo.hi > hi.lo else EMPTY
    raise UndefinedExpression(f"a loop whose step may be zero ({step.lo} to {step.hi})")


def combine(op: str, a: Interval, b: Interval) -> Interval:
    """What ``op`` makes of every value of ``a`` and of ``b``."""
    if a.empty or b.empty:
        return EMPTY
    if op == "add":
        return _made(a.lo + b.lo, a.hi + b.hi, gcd(a.step, b.step))
    if op == "sub":
        return _made(a.lo - b.hi, a.hi - b.lo, gcd(a.step, b.step))
    if op == "mul":
        return _mul(a, b)
    if op == "div":
        return _div(a, b)
    if op == "rem":
        return _rem(a, b)
    step = gcd(a.step, b.step, a.lo - b.lo)
    if op == "min":
        return _made(min(a.lo, b.lo), min(a.hi, b.hi), step)
    if op == "max":
        return _made(max(a.lo, b.lo), max(a.hi, b.hi), step)
    raise UndefinedExpression(f"the unknown operation {op!r}")


class Expressions:
    """The nodes of one kernel. ``varies[e]``: e differs between programs or iterations; ``grid[e]``: e depends on the grid."""

    def __init__(self, nodes: Sequence[Sequence[Any]]):
        self.nodes = [tuple(node) for node in nodes]
        self._arguments: dict[int, frozenset[int]] = {}
        self._kinds: dict[int, frozenset[str]] = {}

    def operands(self, e: int) -> tuple[int, ...]:
        node = self.nodes[e]
        return node[1:] if node[0] in BINARY or node[0] == "loop" else ()

    def arguments(self, e: int) -> frozenset[int]:
        """The kernel arguments that ``e`` depends on."""
        found = self._arguments.get(e)
        if found is None:
            node = self.nodes[e]
            own = frozenset([node[1]]) if node[0] == "arg" else frozenset()
            found = self._arguments[e] = own.union(*(self.arguments(o) for o in self.operands(e)))
        return found

    def kinds(self, e: int) -> frozenset[str]:
        """Names of the operations in ``e``."""
        found = self._kinds.get(e)
        if found is None:
            found = self._kinds[e] = frozenset([self.nodes[e][0]]).union(*(self.kinds(o) for o in self.operands(e)))
        return found

    def uses_grid(self, e: int) -> bool:
        return bool(self.kinds(e) & {"program_id", "num_programs"})

    def varies(self, e: int) -> bool:
        """Whether ``e`` has more than one value in a launch."""
        return bool(self.kinds(e) & set(_VARYING))

    def interval(self, e: int, args: Sequence[Any], grid: Sequence[int], memo: dict[int, Interval] | None = None) -> Interval:
        """Bounds of ``e`` over all programs of ``grid`` and all iterations. ``memo`` may be shared by calls with equal args and grid.

        Raises UndefinedExpression where a divisor may be zero.
        """
        memo = {} if memo is None else memo
        found = memo.get(e)
        if found is None:
            op, *rest = self.nodes[e]
            if op == "arg":
                found = point(int(args[rest[0]]))
            elif op == "const":
                found = point(int(rest[0]))
            elif op == "program_id":
                found = _made(0, grid[rest[0]] - 1, 1)
            elif op == "num_programs":
                found = point(int(grid[rest[0]]))
            elif op == "loop":
                parts = [self.interval(o, args, grid, memo) for o in rest]
                found = EMPTY if any(p.empty for p in parts) else _loop(*parts)
            else:
                found = combine(op, *(self.interval(o, args, grid, memo) for o in rest))
            memo[e] = found
        return found

    def alike_in_pairs(self, wanted: Iterable[int], args: Sequence[int], grid: Sequence[int]) -> bool:
        """Whether each expression (without loops) has one value in programs 2q and 2q + 1, for every q: x counts fastest. False for an odd
        number of programs, more than 2^20, or a value beyond 32 bits on the way, where the kernel's arithmetic might wrap."""
        total = grid[0] * grid[1] * grid[2]
        if total % 2 or total > 1 << 20:
            return False
        values = self._of_all_programs(wanted, args, grid)
        return values is not None and all(bool((v[::2] == v[1::2]).all()) for v in values)

    def different_in_all(self, wanted: Iterable[int], args: Sequence[int], grid: Sequence[int]) -> bool:
        """Whether no two programs have the same values of all expressions (without loops). False for more than 2^16 programs, or a value beyond 32 bits
        on the way."""
        import numpy as np

        total = grid[0] * grid[1] * grid[2]
        values = self._of_all_programs(wanted, args, grid) if total <= 1 << 16 else None
        return values is not None and (total == 1 or (bool(values) and len(np.unique(np.stack(values), axis=1).T) == total))

    def _of_all_programs(self, wanted: Iterable[int], args: Sequence[int], grid: Sequence[int]) -> list[Any] | None:
        """Of each expression its value in every program, x counting fastest; None where one has a value beyond 32 bits on the way."""
        import numpy as np

        total = grid[0] * grid[1] * grid[2]
        number = np.arange(total, dtype=np.int64)
        ids = (number % grid[0], number // grid[0] % grid[1], number // (grid[0] * grid[1]))
        memo: dict[int, Any] = {}

        def value(e: int) -> Any:
            if e in memo:
                return memo[e]
            op, *rest = self.nodes[e]
            if op in ("arg", "const", "num_programs"):
                number = int(rest[0] if op == "const" else (args if op == "arg" else grid)[rest[0]])
                if not -(1 << 31) <= number < 1 << 31:  # numpy has no numbers at all for some of an unsigned argument
                    raise UndefinedExpression("a value beyond 32 bits")
                v: Any = np.int64(number)
            elif op == "program_id":
                v = ids[rest[0]]
            elif op in ("div", "rem"):
                a, b = value(rest[0]), value(rest[1])
                if not np.all(b):
                    raise UndefinedExpression("a division by zero")
                q = np.sign(a) * np.sign(b) * (abs(a) // abs(b))
                v = q if op == "div" else a - q * b
            elif op in BINARY:
                function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[op]
                v = function(value(rest[0]), value(rest[1]))
            else:
                raise UndefinedExpression(f"{op!r} differs between rounds")
            if np.any(v != v.astype(np.int32)):
                raise UndefinedExpression("a value beyond 32 bits")
            memo[e] = v
            return v

        try:
            return [np.broadcast_to(value(e), (total,)) for e in wanted]
        except UndefinedExpression:
            return None

    def evaluator(self, wanted: Iterable[int]) -> Callable[[Sequence[Any], Sequence[int]], tuple[int, ...]]:
        """``f(args, grid) → values of the wanted expressions``, none of which varies. Generated: it runs whenever a pointer is new."""
        lines: list[str] = []
        done: set[int] = set()

        def emit(e: int) -> None:
            if e in done:
                return
            done.add(e)
            op, *rest = self.nodes[e]
            for o in self.operands(e):
                emit(o)
            if op in _VARYING or op not in ("arg", "const", "num_programs", *BINARY):
                raise UndefinedExpression(f"an expression with {op!r} has no single value")
            text = {"arg": "args[{0}]", "const": "{0}", "num_programs": "grid[{0}]", "add": "e{0} + e{1}", "sub": "e{0} - e{1}",
                    "mul": "e{0} * e{1}", "div": "divide(e{0}, e{1})", "rem": "remainder(e{0}, e{1})", "min": "min(e{0}, e{1})",
                    "max": "max(e{0}, e{1})"}[op].format(*map(int, rest))
            lines.append(f"    e{e} = {text}")

        wanted = tuple(wanted)
        for e in wanted:
            emit(e)
        source = "\n".join(["def evaluate(args, grid):", *lines, f"    return ({''.join(f'e{e}, ' for e in wanted)})"])
        scope: dict[str, Any] = {"divide": divide, "remainder": remainder}
        exec(compile(source, "<host expressions>", "exec"), scope)  # noqa: S102 - text made of names above and integers only
        return scope["evaluate"]
