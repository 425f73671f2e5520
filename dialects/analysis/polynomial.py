"""Integer polynomials over atoms: the values of a kernel that its launch decides (arguments, program ids, loop variables), the index
along a tile's dim, and what else is taken as it is.

Arithmetic is exact (Python integers). What it means for a kernel's 32-bit value is said in affine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import gcd, inf
from typing import Any

Bound = float | int
PROGRAMS = 2**31 - 1  # most programs along an axis of a grid


class Atom:
    """One indeterminate. ``kind`` and ``payload``:

    "arg" (number of the kernel's argument), "base" (the same, of a pointer), "program_id" and "num_programs" (axis),
    "loop" (region, lo, hi, step): the loop's variable, "div", "rem", "min", "max" (polynomials a, b; div and rem truncate; a tile's remainder also has its extent), "within"
    (see affine.py),
    "dim" (d, extent): 0 … extent - 1 along dim d of a tile, "carried" (region, argument number): a loop-carried value that is not
    resolved yet, "opaque" (an ir.Value of which nothing is known).

    ``bits``: width of the kernel's value. ``value``: the ir.Value of "loop" and "opaque". ``divisor``: divides every value.
    ``regions``: bodies of the loops in which it may change. ``uniform``: one value in a launch, from arguments alone;
    ``known``: its range follows from arguments and grid; ``unresolved``: a carried value is in it.
    """

    __slots__ = ("number", "kind", "payload", "bits", "value", "divisor", "regions", "uniform", "known", "unresolved", "range")

    def __init__(self, number: int, kind: str, payload: tuple[Any, ...], bits: int, value: Any = None, divisor: int = 1,
                 regions: frozenset[Any] = frozenset()):
        self.number, self.kind, self.payload, self.bits, self.value = number, kind, payload, bits, value
        inner = [p for p in payload if isinstance(p, Poly)]
        atoms = [a for p in inner for a in p.atoms()]
        self.regions: frozenset[Any] = regions.union(*(a.regions for a in atoms)) if atoms else regions
        self.uniform: bool = kind in ("arg", "base") or (kind in ("div", "rem", "min", "max") and all(a.uniform for a in atoms))
        self.known: bool = kind not in ("opaque", "carried", "base") and all(a.known for a in atoms)
        self.unresolved: bool = kind == "carried" or any(a.unresolved for a in atoms)
        self.divisor = divisor
        if kind in ("rem", "min", "max"):
            self.divisor = gcd(inner[0].divisor(), inner[1].divisor()) or 1
        elif kind == "loop":
            self.divisor = gcd(inner[0].divisor(), inner[2].divisor()) or 1
        self.range = self._range(inner)

    def _range(self, inner: list[Poly]) -> tuple[Bound, Bound]:
        kind = self.kind
        if kind == "dim":
            return 0, self.payload[1] - 1
        if kind == "program_id":
            return 0, PROGRAMS - 1
        if kind == "num_programs":
            return 1, PROGRAMS
        if kind == "loop":
            (lo, _), (_, end), (step, _) = (p.range() for p in inner)
            # a loop that runs has lo ≤ i < hi where its step is positive
            return (lo, max(lo, end - 1)) if step >= 1 else (-inf, inf)
        if kind in ("min", "max"):
            f = min if kind == "min" else max
            (a, b), (c, d) = (p.range() for p in inner)
            return f(a, c), f(b, d)
        if kind in ("div", "rem"):
            (a, b), (c, d) = (p.range() for p in inner)
            if a < 0 or c < 1:
                return -inf, inf
            if kind == "rem":
                return 0, min(b, d - 1)
            return (0 if d == inf else a // d if a != inf else 0), (b if b == inf else b // c)
        return -inf, inf

    def __lt__(self, other: Atom) -> bool:
        return self.number < other.number

    def __repr__(self) -> str:
        if self.kind in ("div", "rem", "min", "max"):
            return f"{self.kind}({self.payload[0]}, {self.payload[1]})"
        if self.kind in ("arg", "base", "program_id", "num_programs", "dim"):
            return f"{self.kind}{self.payload[0]}"
        return f"{self.kind}#{self.number}"


Monomial = tuple[Atom, ...]  # sorted; () is 1


class Poly:
    """Immutable: ``terms`` maps monomials to non-zero integers."""

    __slots__ = ("terms", "_hash")

    def __init__(self, terms: dict[Monomial, int]):
        self.terms = terms
        self._hash: int | None = None

    @staticmethod
    def const(value: int) -> Poly:
        return Poly({(): value} if value else {})

    @staticmethod
    def of(atom: Atom) -> Poly:
        return Poly({(atom,): 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        return bool(self.terms)

    def _sum(self, other: Poly, sign: int) -> Poly:
        if not other.terms:
            return self
        terms = dict(self.terms)
        for m, c in other.terms.items():
            total = terms.get(m, 0) + sign * c
            if total:
                terms[m] = total
            else:
                del terms[m]
        return Poly(terms)

    def __add__(self, other: Poly | int) -> Poly:
        return self._sum(Poly.const(other) if isinstance(other, int) else other, 1)

    def __sub__(self, other: Poly | int) -> Poly:
        return self._sum(Poly.const(other) if isinstance(other, int) else other, -1)

    def __neg__(self) -> Poly:
        return Poly({m: -c for m, c in self.terms.items()})

    def __mul__(self, other: Poly | int) -> Poly:
        if isinstance(other, int):
            return Poly({m: c * other for m, c in self.terms.items()} if other else {})
        terms: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            for n, d in other.terms.items():
                key = tuple(sorted(m + n)) if m and n else m or n
                total = terms.get(key, 0) + c * d
                if total:
                    terms[key] = total
                else:
                    del terms[key]
        return Poly(terms)

    @property
    def constant(self) -> int | None:
        """The value where it is one known integer."""
        if not self.terms:
            return 0
        return self.terms.get((), None) if len(self.terms) == 1 else None

    def atoms(self) -> Iterator[Atom]:
        """Those of its monomials; not what is inside them."""
        seen = set()
        for m in self.terms:
            for a in m:
                if a not in seen:
                    seen.add(a)
                    yield a

    def split(self, wanted: Callable[[Monomial], bool]) -> tuple[Poly, Poly]:
        """(terms whose monomial is wanted, the others)."""
        yes: dict[Monomial, int] = {}
        no: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            (yes if wanted(m) else no)[m] = c
        return Poly(yes), Poly(no)

    def substitute(self, replace: Callable[[Atom], Poly | None]) -> Poly:
        """With every atom for which ``replace`` gives a polynomial replaced by it."""
        replaced = {a: r for a in self.atoms() if (r := replace(a)) is not None}
        if not replaced:
            return self
        total = Poly({})
        for m, c in self.terms.items():
            product = Poly({tuple(a for a in m if a not in replaced): c})
            for a in m:
                if a in replaced:
                    product = product * replaced[a]
            total = total + product
        return total

    def divided_by(self, other: Poly) -> Poly | None:
        """The exact quotient by a polynomial of one term; None where there is none."""
        if len(other.terms) != 1:
            return Poly.const(1) if self == other else None
        (divisor, by), = other.terms.items()
        terms = {}
        for m, c in self.terms.items():
            rest = list(m)
            for a in divisor:
                if a not in rest:
                    return None
                rest.remove(a)
            if c % by:
                return None
            terms[tuple(rest)] = c // by
        return Poly(terms)

    @property
    def single(self) -> tuple[Monomial, int]:
        """(monomial, coefficient) where it is one term; ((), 0) otherwise."""
        if len(self.terms) != 1:
            return (), 0
        return next(iter(self.terms.items()))

    def content(self) -> int:
        """The greatest common divisor of the coefficients."""
        return gcd(*self.terms.values())

    def divisor(self) -> int:
        """A number that divides every value; 0 for zero."""
        n = 0
        for m, c in self.terms.items():
            for a in m:
                c *= a.divisor
            n = gcd(n, c)
        return n

    def range(self) -> tuple[Bound, Bound]:
        """Bounds of its value that hold in every launch (infinite where none are known)."""
        low: Bound = 0
        high: Bound = 0
        for m, c in self.terms.items():
            lo: Bound = c
            hi: Bound = c
            for a in m:
                ends = [0 if 0 in (x, y) else x * y for x in (lo, hi) for y in a.range]
                lo, hi = min(ends), max(ends)
            low, high = low + lo, high + hi
        return low, high

    def __repr__(self) -> str:
        if not self.terms:
            return "0"
        return " + ".join("·".join([str(c)] * (c != 1 or not m) + [repr(a) for a in m]) for m, c in self.terms.items())

    # -- what holds of all its atoms
    @property
    def uniform(self) -> bool:
        return all(a.uniform for a in self.atoms())

    @property
    def known(self) -> bool:
        return all(a.known for a in self.atoms())

    @property
    def unresolved(self) -> bool:
        return any(a.unresolved for a in self.atoms())

    @property
    def regions(self) -> frozenset[Any]:
        return frozenset().union(*(a.regions for a in self.atoms()))
