"""What a launch evaluates on the host, in ``ctx.metadata["host"]``: expressions, guards, and the choices for --explain.

``expressions`` is a list of nodes that refer to earlier ones by number: ["arg", i] (the kernel's i-th run-time argument, read as the
kernel reads it: two's complement of its width; a pointer is its address), ["const", v], ["program_id", axis],
["num_programs", axis], ["loop", lo, hi, step] (any of range(lo, hi, step)), and ["add" | "sub" | "mul" | "div" | "rem" | "min" | "max",
a, b] with div and rem truncating. A guard that does not hold sends the launch to another version of the kernel. ``descriptors`` are
the target's own.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.analysis.affine import Fact
from tilewright.dialects.analysis.polynomial import Atom, Poly
from tilewright.dialects.pass_runner import place_of
from tilewright.dialects.pipeline import PassContext

INT32_MAX = 2**31 - 1


class Refused(Exception):
    """The access stays as it is; the text says why."""


class Host:
    """``ctx.metadata["host"]``, made on first use; equal expressions and guards are kept once."""

    def __init__(self, ctx: PassContext):
        self.data: dict[str, list[Any]] = ctx.metadata.setdefault("host", {"expressions": [], "descriptors": [], "guards": [], "choices": []})
        self._numbers = {tuple(e): i for i, e in enumerate(self.data["expressions"])}
        self._guards = {self._guard_key(g) for g in self.data["guards"]}

    # -- expressions
    def node(self, *parts: Any) -> int:
        """The number of an expression."""
        number = self._numbers.get(parts)
        if number is None:
            number = self._numbers[parts] = len(self.data["expressions"])
            self.data["expressions"].append(list(parts))
        return number

    def const(self, value: int) -> int:
        return self.node("const", value)

    def poly(self, poly: Poly) -> int:
        """The expression of a polynomial all of whose atoms are known."""
        positive = [(m, c) for m, c in poly.terms.items() if c > 0]
        negative = [(m, -c) for m, c in poly.terms.items() if c < 0]
        total: int | None = None
        for sign, terms in (("add", positive), ("sub", negative)):
            for m, c in terms:
                term = self._term(m, c)
                if total is None:
                    total = term if sign == "add" else self.node("sub", self.const(0), term)
                else:
                    total = self.node(sign, total, term)
        return self.const(0) if total is None else total

    def _term(self, monomial: tuple[Atom, ...], c: int) -> int:
        if not monomial:
            return self.const(c)
        number = self._atom(monomial[0])
        for a in monomial[1:]:
            number = self.node("mul", number, self._atom(a))
        return number if c == 1 else self.node("mul", number, self.const(c))

    def _atom(self, a: Atom) -> int:
        if a.kind in ("arg", "base"):
            return self.node("arg", a.payload[0])
        if a.kind in ("program_id", "num_programs"):
            return self.node(a.kind, a.payload[0])
        if a.kind == "dim":
            return self.node("loop", self.const(0), self.const(a.payload[1]), self.const(1))
        if a.kind == "loop":
            return self.node("loop", *(self.poly(p) for p in a.payload[1:]))
        assert a.kind in ("div", "rem", "min", "max"), a
        return self.node(a.kind, *(self.poly(p) for p in a.payload[:2]))

    # -- guards
    @staticmethod
    def _guard_key(guard: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(sorted((k, v) for k, v in guard.items() if k != "why"))

    def guard(self, kind: str, why: str, **fields: Any) -> None:
        guard = {"kind": kind, **fields, "why": why}
        key = self._guard_key(guard)
        if key not in self._guards:
            self._guards.add(key)
            self.data["guards"].append(guard)

    def in_range(self, poly: Poly, low: int, high: int, why: str, expression: int | None = None) -> bool:
        """Let a guard see to low ≤ poly ≤ high, unless that always holds. False, and no guard, where it never can."""
        least, most = poly.range()
        if least >= low and most <= high:
            return True
        if least > high or most < low:
            return False
        self.guard("range", why, expr=self.poly(poly) if expression is None else expression, min=low, max=high)
        return True

    def multiple(self, poly: Poly, of: int, why: str) -> bool:
        """Let a guard see to ``of`` dividing poly, unless it always does. False where it never can."""
        if poly.divisor() % of == 0:
            return True
        if poly.constant is not None:
            return False
        self.guard("multiple", why, expr=self.poly(poly), of=self.const(of))
        return True

    def fact(self, fact: Fact, what: str = "", expression: int | None = None) -> bool:
        """A guard for a fact of the affine analysis; ``expression`` where a better one than the polynomial's own is known."""
        if fact.kind == "fits":
            end = 1 << (fact.number - 1)
            return self.in_range(fact.poly, -end, end - 1, f"{what}{fact.number}-bit arithmetic must not wrap", expression)
        if fact.kind == "nonneg":
            return self.in_range(fact.poly, 0, 2**63 - 1, f"{what}coordinates under a remainder or a minimum must lie within their bounds", expression)
        return self.multiple(fact.poly, fact.number, f"{what}the tile's start and the remainder's divisor must be multiples of the block")

    def mark(self) -> int:
        """For ``forget``."""
        return len(self.data["guards"])

    def forget(self, mark: int) -> None:
        """Drop the guards that were added since: what they were for is not done."""
        for g in self.data["guards"][mark:]:
            self._guards.discard(self._guard_key(g))
        del self.data["guards"][mark:]

    # -- choices
    def choose(self, op: Any, what: str, chosen: str, why: str) -> None:
        """Record for ``tilewright compile --explain`` how the access ``op`` is done."""
        place = place_of(op.location)
        self.data["choices"].append({"line": place[1] if place else 0, "what": what, "chosen": chosen, "why": why})
