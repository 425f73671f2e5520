"""Write polynomials (polynomial.py) as arith ops: what depends on no loop at the function's start, the rest at the start of the body
of the innermost loop whose variable it needs; or, where the ops that need them are named, as late as is before all of them there. Equal
ones are written once, and a value that the kernel has already is used.

The result is exact modulo 2^bits; operands of divisions are written in the width the kernel had them in, where the affine
analysis' facts say that they are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.affine import Affine
from tilewright.dialects.analysis.polynomial import Atom, Monomial, Poly
from tilewright.dialects.analysis.structure import Function, Node, Region, position, type_info

_OPS = {"div": "arith.divsi", "rem": "arith.remsi", "min": "arith.minsi", "max": "arith.maxsi"}


class Writer:
    """Writes into ``function``; ``location`` of the ops is that of the last ``at``. ``users``, in program order: the ops whose operands
    the values become."""

    def __init__(self, function: Function, affine: Affine, users: Sequence[Node] = ()):
        self.function, self.affine = function, affine
        self._written: dict[Any, Any] = {}
        self._anchors: dict[Region, Node] = {}
        self.location: Any = None
        for user in users:
            node: Node | None = user
            while node is not None and node.region is not None:
                self._anchors.setdefault(node.region, node)
                node = node.parent
        self._take_what_is_there()

    def _take_what_is_there(self) -> None:
        """Note the integers that stand before all users."""
        for value, poly in self.affine.integers():
            node = self.function.def_node(value)
            anchor = self._anchors.get(node.region) if node is not None and node.region is not None else None
            if node is None or anchor is None or node.region is None or not _inside(self.region(poly.regions), node.region):
                continue
            if position(node) < position(anchor):
                self._written.setdefault(("poly", poly, type_info(value.type).bits), value)

    def at(self, location: Any) -> Writer:
        self.location = location
        return self

    def integer(self, poly: Poly, bits: int) -> Any:
        """The ir.Value of a polynomial without tile indices, as an integer of ``bits``."""
        key = ("poly", poly, bits)
        if key not in self._written:
            self._written[key] = self._sum(poly, bits)
        return self._written[key]

    def pointer(self, argument: int, offset: Poly) -> Any:
        """A pointer argument advanced by ``offset`` elements."""
        base = self.affine.argument(argument)
        if not offset:
            return base
        key = ("pointer", argument, offset)
        if key not in self._written:
            self._written[key] = self.op("tt.addptr", base.type, [base, self.integer(offset, 64)], offset.regions)
        return self._written[key]

    # -- ops
    def region(self, regions: frozenset[Region]) -> Region:
        """Where an op stands that depends on the variables of these loops: the innermost body."""
        best = self.function.body
        for region in regions:
            if _inside(region, best):
                best = region
        return best

    def op(self, name: str, type_: Any, operands: list[Any], regions: frozenset[Region], attributes: dict[str, Any] | None = None) -> Any:
        """Create an op at the start of the innermost of ``regions``, after those created there before."""
        region = self.region(regions)
        anchor = self._anchors.setdefault(region, region.ops[0])
        return self.function.insert_before(anchor, name, [type_], operands, attributes, self.location).results[0]

    def constant(self, value: int, bits: int) -> Any:
        type_ = ir.IntegerType.get_signless(bits)
        key = ("constant", value, bits)
        if key not in self._written:
            wrapped = (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
            self._written[key] = self.op("arith.constant", type_, [], frozenset(), {"value": ir.IntegerAttr.get(type_, wrapped)})
        return self._written[key]

    def _binary(self, name: str, a: Any, b: Any, bits: int, regions: frozenset[Region]) -> Any:
        return self.op(name, ir.IntegerType.get_signless(bits), [a, b], regions)

    def _sum(self, poly: Poly, bits: int) -> Any:
        common = poly.content()
        if common > 1 and len(poly.terms) > 1:  # as people write it: (a·8 + b)·128
            inner = Poly({m: c // common for m, c in poly.terms.items()})
            return self._binary("arith.muli", self.integer(inner, bits), self.constant(common, bits), bits, poly.regions)
        # terms of outer loops first, so that their sum can stand there
        terms = sorted(poly.terms.items(), key=lambda t: (self._depth(t[0]), [a.number for a in t[0]]))
        total, regions = None, frozenset[Region]()
        for monomial, c in terms:
            value, here = self._term(monomial, c, bits)
            regions |= here
            total = value if total is None else self._binary("arith.addi", total, value, bits, regions)
        return self.constant(0, bits) if total is None else total

    def _depth(self, monomial: Monomial) -> int:
        return max((len(a.regions) for a in monomial), default=0)

    def _term(self, monomial: Monomial, c: int, bits: int) -> tuple[Any, frozenset[Region]]:
        if not monomial:
            return self.constant(c, bits), frozenset()
        value, regions = None, frozenset[Region]()
        for a in sorted(monomial, key=lambda a: (len(a.regions), a.number)):
            factor = self.cast(self._atom(a), a, bits)
            regions |= a.regions
            value = factor if value is None else self._binary("arith.muli", value, factor, bits, regions)
        if c != 1:
            value = self._binary("arith.muli", value, self.constant(c, bits), bits, regions)
        return value, regions

    def cast(self, value: Any, atom: Atom, bits: int) -> Any:
        width = type_info(value.type).bits
        if width == bits:
            return value
        key = ("cast", atom, bits)
        if key not in self._written:
            name = "arith.extsi" if width < bits else "arith.trunci"
            self._written[key] = self.op(name, ir.IntegerType.get_signless(bits), [value], atom.regions)
        return self._written[key]

    def _atom(self, a: Atom) -> Any:
        if a.kind == "arg":
            return self.affine.argument(a.payload[0])
        if a.kind == "loop":
            return a.value
        key = ("atom", a)
        if key not in self._written:
            if a.kind in _OPS:
                x, y = (self.integer(p, a.bits) for p in a.payload[:2])
                self._written[key] = self._binary(_OPS[a.kind], x, y, a.bits, a.regions)
            elif a.kind in ("program_id", "num_programs"):
                i32 = ir.IntegerType.get_signless(32)
                self._written[key] = self.op(f"tt.get_{a.kind}", i32, [], frozenset(), {"axis": ir.IntegerAttr.get(i32, a.payload[0])})
            else:
                raise AssertionError(f"{a} has no value that can be written")
        return self._written[key]


def _inside(region: Region, outer: Region) -> bool:
    """Whether ``region`` lies within ``outer``, or is it."""
    while region is not outer:
        parent = region.parent
        if parent is None or parent.region is None:
            return False
        region = parent.region
    return True
