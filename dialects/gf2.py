"""Linear algebra over GF(2) on Python integers: a vector is a bit mask, a subspace is a list of independent vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Gf2Solver:
    """Solves ``columns · x = y`` over GF(2). Columns are bit masks; x is a bit mask over columns.

    Independent columns are taken greedily in the order given, so columns that depend on earlier ones never occur in a
    solution: give the preferred columns first. ``free`` is the mask of those dependent columns.
    """

    __slots__ = ("pivots", "free", "count")

    def __init__(self, columns: Iterable[int] = ()):
        self.pivots: dict[int, tuple[int, int]] = {}  # leading bit → (reduced vector, combination of columns)
        self.free = 0
        self.count = 0
        for col in columns:
            self.add(col)

    def reduce(self, vector: int) -> tuple[int, int]:
        """(rest, combination): ``vector`` is the rest plus that combination of columns; the rest is 0 inside the span."""
        pivots, comb, rest = self.pivots, 0, 0
        while vector:
            top = vector.bit_length()
            hit = pivots.get(top)
            if hit is None:
                rest |= 1 << (top - 1)
                vector ^= 1 << (top - 1)
            else:
                vector ^= hit[0]
                comb ^= hit[1]
        return rest, comb

    def add(self, column: int) -> bool:
        """Append a column; whether it is independent of those before it."""
        rest, comb = self.reduce(column)
        bit = 1 << self.count
        self.count += 1
        if rest:
            self.pivots[rest.bit_length()] = (rest, comb ^ bit)
            return True
        self.free |= bit
        return False

    def solve(self, vector: int) -> int | None:
        """A combination of columns giving ``vector``, or None where there is none."""
        rest, comb = self.reduce(vector)
        return None if rest else comb

    def __contains__(self, vector: int) -> bool:
        return self.reduce(vector)[0] == 0

    @property
    def rank(self) -> int:
        return len(self.pivots)


def combine(columns: Sequence[int], mask: int) -> int:
    """The xor of the columns whose bit is set in ``mask``."""
    word = 0
    while mask:
        low = mask & -mask
        word ^= columns[low.bit_length() - 1]
        mask ^= low
    return word


def independent(vectors: Iterable[int], given: Iterable[int] = (), limit: int | None = None) -> list[int]:
    """Those vectors, in order and at most ``limit``, that are independent of ``given`` and of those taken before."""
    solver = Gf2Solver(given)
    taken: list[int] = []
    for v in vectors:
        if limit is not None and len(taken) >= limit:
            break
        if solver.add(v):
            taken.append(v)
    return taken


def intersection(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """A basis of the vectors that lie in both spans."""
    solver = Gf2Solver(a)
    mask = (1 << len(a)) - 1
    found = []
    for v in b:
        rest, comb = solver.reduce(v)
        if rest == 0:
            found.append(combine(a, comb & mask))
        solver.add(v)
    return independent(found)


def common_complement(a: Sequence[int], b: Sequence[int], space: Sequence[int]) -> list[int]:
    """A basis of a subspace of ``space`` that together with a, and likewise with b, spans it, meeting neither.

    Two subspaces of equal dimension always have one: with i a basis of what they share, i + a' and i + b' bases of each, the
    sums a'_j + b'_j and whatever is outside both. Raises ValueError where the dimensions differ.
    """
    a, b = independent(a), independent(b)
    if len(a) != len(b):
        raise ValueError(f"subspaces of dimensions {len(a)} and {len(b)} have no common complement")
    shared = intersection(a, b)
    only_a, only_b = independent(a, shared), independent(b, shared)
    return [x ^ y for x, y in zip(only_a, only_b)] + independent(space, shared + only_a + only_b)
