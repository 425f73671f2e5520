"""Affine analysis: integers, pointers and masks of a kernel as polynomials (polynomial.py) over what its launch decides.

``Affine(function).value(v)`` gives a ``Value``: the polynomial ``poly`` and the ``facts`` that must hold for it to be what the
kernel computes. A pointer's polynomial counts elements and has one "base" atom, its argument. Loop-carried values that change by
the same amount each round (``ptrs += BLOCK * stride``) are start + round · amount.

Exactness. Addition, subtraction and multiplication in n bits agree with the polynomial modulo 2^n, whatever overflows on the way.
So only where the width matters (widening, an offset of fewer than 64 bits added to a pointer, division, comparison, loop bounds)
must the polynomial fit; that is the fact ("fits", poly, bits). ("nonneg", poly): it is ≥ 0. ("multiple", poly, n): n divides it.

``x % m`` of a tile ``x = start + (0 … n-1)`` is taken as ``start % m + (0 … n-1)``, which holds where n divides start and m (facts, unless
seen here): then no multiple of m lies inside the tile. Likewise ``min(x, m - 1)`` and ``where(x < m, x, anything)`` are taken as x, with
an atom "within" for start, under the fact that all of x is below m. ``modulo_of`` tells of such atoms: what m protects from may not matter.
``Affine(function, whole_remainders=True)`` takes remainders, quotients and minima of tiles as they are instead, as atoms of polynomials in the
tile's indices: good for bounds, and true whatever m is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.polynomial import Atom, Poly
from tilewright.dialects.analysis.structure import Function, Node, Region, type_info

_RING: dict[str, Callable[[Poly, Poly], Poly]] = {
    "arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b, "arith.muli": lambda a, b: a * b, "tt.addptr": lambda a, b: a + b}
_OPAQUE_OPS = {"arith.divsi": "div", "arith.remsi": "rem", "arith.minsi": "min", "arith.maxsi": "max"}
_LESS = {2: (0, 1, 0), 3: (0, 1, 1), 4: (1, 0, 0), 5: (1, 0, 1)}  # predicate → (smaller, greater, or equal)
_UNSIGNED_LESS = {6: (0, 1), 8: (1, 0)}
_PREDICATES = ("==", "!=", "<", "<=", ">", ">=", "unsigned <", "unsigned <=", "unsigned >", "unsigned >=")


class NotAffine(Exception):
    """The value is no such polynomial; the text says why. Never reaches the user: passes turn it into a recorded reason."""


class Fact(NamedTuple):
    """("fits", poly, bits), ("nonneg", poly, 0) or ("multiple", poly, n): see the module's text."""

    kind: str
    poly: Poly
    number: int


class Value(NamedTuple):
    poly: Poly
    facts: frozenset[Fact] = frozenset()


class Modulo(NamedTuple):
    """What a "rem" or "within" atom stands for: x = start + (0 … extent-1) where that is below ``bound``, and something else where not.
    ``facts``: those that are needed because of the elements that are not below it."""

    start: Poly
    bound: Poly
    extent: int
    facts: frozenset[Fact]


_MAX_TERMS = 200  # of a polynomial; addresses have a dozen


def is_small(poly: Poly, bits: int) -> bool:
    """Whether the value is known to fit ``bits`` signed bits."""
    if poly.unresolved:
        return False
    low, high = poly.range()
    if low >= -(1 << (bits - 1)) and high < 1 << (bits - 1):
        return True
    monomial, c = poly.single
    return c == 1 and len(monomial) == 1 and monomial[0].bits <= bits  # the kernel's own value


def pointer_base(poly: Poly) -> tuple[int, Poly]:
    """(pointer argument, offset in elements) of a pointer's polynomial. Raises NotAffine."""
    own, offset = poly.split(lambda m: any(a.kind == "base" for a in m))
    monomial, c = own.single
    if len(monomial) != 1 or c != 1:
        raise NotAffine("its pointers are no offsets from one pointer argument")
    return monomial[0].payload[0], offset


class Affine:
    """The analysis of one function, on demand; results are kept."""

    def __init__(self, function: Function, whole_remainders: bool = False):
        self.function, self.whole_remainders = function, whole_remainders
        self._atoms: dict[Any, Atom] = {}
        self._values: dict[Any, Value | NotAffine] = {}
        self._solved: dict[Atom, Value | None] = {}
        self._solving: set[Atom] = set()
        self._modulo: dict[Atom, Modulo] = {}
        self._arguments = {v: i for i, v in enumerate(function.body.args)}
        attributes = function.root.op.attributes
        self._arg_attrs = attributes["arg_attrs"] if "arg_attrs" in attributes else None

    # -- what passes ask
    def value(self, v: Any) -> Value:
        """The polynomial of an integer or pointer, scalar or tile, with carried values resolved. Raises NotAffine."""
        try:
            return self.resolve(self._of(v))
        except RecursionError:
            raise NotAffine("it is computed in too many steps") from None

    def conditions(self, mask: Any) -> list[Value]:
        """A boolean tile as a conjunction: it holds where every polynomial (affine in the tile's indices) is < 0. Raises NotAffine."""
        try:
            return [self.resolve(c) for c in self._conditions(mask)]
        except RecursionError:
            raise NotAffine("the mask is computed in too many steps") from None

    def integers(self) -> Iterator[tuple[Any, Poly]]:
        """The scalar integers that were looked at, with what they are modulo 2^(their width)."""
        for v, found in self._values.items():
            if isinstance(found, Value) and not found.poly.unresolved and type_info(v.type).shape is None and type_info(v.type).kind == "int":
                yield v, found.poly

    def modulo_of(self, atom: Atom) -> Modulo | None:
        return self._modulo.get(atom)

    def argument(self, index: int) -> Any:
        """The ir.Value of an argument."""
        return self.function.body.args[index]

    def argument_divisor(self, index: int) -> int:
        """``tt.divisibility`` of an argument (a pointer's in bytes); 1 without."""
        if self._arg_attrs is None or "tt.divisibility" not in self._arg_attrs[index]:
            return 1
        hint = self._arg_attrs[index]["tt.divisibility"]
        values = [int(hint.value)] if isinstance(hint, ir.IntegerAttr) else list(hint)
        return max(1, *values)

    # -- atoms
    def atom(self, kind: str, payload: tuple[Any, ...], bits: int, **more: Any) -> Atom:
        key = (kind, payload, bits)
        found = self._atoms.get(key)
        if found is None:
            found = self._atoms[key] = Atom(len(self._atoms), kind, payload, bits, **more)
        return found

    def dim(self, d: int, extent: int) -> Poly:
        """The index along dim ``d`` of a tile; 0 where the dim has one element."""
        return Poly.of(self.atom("dim", (d, extent), 32)) if extent > 1 else Poly.const(0)

    def _opaque(self, value: Any) -> Value:
        regions = set()
        region: Region | None = self.function.region_of(value)
        while region is not None and region.parent is not None:
            if region.parent.name in ("scf.for", "scf.while"):
                regions.add(region)
            region = region.parent.region
        return Value(Poly.of(self.atom("opaque", (value,), type_info(value.type).bits, value=value, regions=frozenset(regions))))

    # -- evaluation
    def _of(self, v: Any) -> Value:
        found = self._values.get(v)
        if found is None:
            try:
                found = self._evaluate(v)
            except NotAffine as e:
                found = e if type_info(v.type).shape is not None or type_info(v.type).kind == "ptr" else self._opaque(v)
                if self._solving:  # perhaps only because a loop is being followed
                    if isinstance(found, NotAffine):
                        raise
                    return found
            self._values[v] = found
        if isinstance(found, NotAffine):
            raise found
        return found

    def _evaluate(self, v: Any) -> Value:
        info = type_info(v.type)
        if info.kind not in ("int", "index", "ptr") or (info.kind == "int" and info.bits == 1):
            raise NotAffine(f"{v.type} is no integer or pointer")
        node = self.function.def_node(v)
        if node is None:
            return self._block_argument(v, info)
        return self._op(node, v, info)

    def _block_argument(self, v: Any, info: Any) -> Value:
        index = self._arguments.get(v)
        if index is not None:
            if info.shape is not None:
                raise NotAffine("a tile that is an argument")
            if info.kind == "ptr":
                return Value(Poly.of(self.atom("base", (index,), 64)))
            return Value(Poly.of(self.atom("arg", (index,), info.bits, divisor=self.argument_divisor(index))))
        region, number = self.function.arg_of[v]
        loop = region.parent
        if loop is None or loop.name != "scf.for":
            raise NotAffine("it changes in a while loop")
        if number == 0:
            return self._induction(region, loop, v, info.bits)
        return Value(Poly.of(self.atom("carried", (region, number), info.bits, value=v, regions=frozenset((region,)))))

    def _induction(self, region: Region, loop: Node, v: Any, bits: int) -> Value:
        ends = [self._of(x) for x in loop.operands[:3]]
        facts = frozenset().union(*(self._exact(e, bits) for e in ends))
        atom = self.atom("loop", (region, *(e.poly for e in ends)), bits, value=v, regions=frozenset((region,)))
        return Value(Poly.of(atom), facts)

    @staticmethod
    def _exact(x: Value, bits: int) -> frozenset[Fact]:
        """The facts under which ``x`` is the number itself, not only modulo 2^bits."""
        return x.facts if is_small(x.poly, bits) else x.facts | {Fact("fits", x.poly, bits)}

    def _op(self, node: Node, v: Any, info: Any) -> Value:
        name = node.name
        if name == "arith.constant":
            number = constant_of(node)
            if number is None:
                raise NotAffine("constants that differ")
            return Value(Poly.const(number))
        if name in ("tt.get_program_id", "tt.get_num_programs"):
            return Value(Poly.of(self.atom(name[len("tt.get_"):], (node.int_attr("axis"),), 32)))
        if name == "tt.make_range":
            start, end = node.int_attr("start"), node.int_attr("end")
            return Value(self.dim(0, end - start) + start)
        if name in ("tt.splat", "tt.broadcast", "ttg.convert_layout"):
            return self._of(node.operands[0])
        if name == "tt.expand_dims":
            axis = node.int_attr("axis")
            return self._renumber(self._of(node.operands[0]), lambda d: d + (d >= axis))
        if name == "tt.trans":
            order = node.ints_attr("order")
            return self._renumber(self._of(node.operands[0]), order.index)
        if name in _RING:
            a, b = (self._of(x) for x in node.operands)
            facts = a.facts | b.facts
            if name == "tt.addptr":
                bits = type_info(node.operands[1].type).bits  # addresses have 64: there, modulo 2^64 is what is meant
                facts = a.facts | (b.facts if bits >= 64 else self._exact(b, bits))
            poly = _RING[name](a.poly, b.poly)
            if len(poly.terms) > _MAX_TERMS:
                raise NotAffine("its polynomial has too many terms")
            return Value(poly, facts)
        if name == "arith.shli":
            a, by = (self._of(x) for x in node.operands)
            n = by.poly.constant
            if n is None or not 0 <= n < info.bits:
                raise NotAffine("a shift by what is no constant")
            return Value(a.poly * (1 << n), a.facts)
        if name in ("arith.extsi", "arith.extui"):
            bits = type_info(node.operands[0].type).bits
            a = self._of(node.operands[0])
            facts = self._exact(a, bits)
            if name == "arith.extui" and a.poly.range()[0] < 0:
                facts |= {Fact("nonneg", a.poly, 0)}
            return Value(a.poly, facts)
        if name == "arith.trunci":
            return self._of(node.operands[0])
        if name == "arith.select" and info.shape is not None and info.kind == "int":
            return self._select(node, info.bits)
        held = self._held(node, info.bits) if name == "arith.maxsi" and info.shape is None else None
        if held is not None:
            return held
        if name in _OPAQUE_OPS:
            return self._division(node, _OPAQUE_OPS[name], info.bits)
        raise NotAffine(f"{name} is not affine" if info.shape is not None or info.kind == "ptr" else f"{name} is not followed")

    def _held(self, node: Node, bits: int) -> Value | None:
        """A number held above one next to the type's lowest, as the ends of pipelined loops are: the number itself, as a fact. None for other maxima."""
        a, least = (self._of(x) for x in node.operands)
        bound = least.poly.constant
        if bound is None or bound >= -(1 << bits - 2):
            return None
        return Value(a.poly, self._exact(a, bits) | {Fact("nonneg", a.poly - bound, 0)})

    def _division(self, node: Node, kind: str, bits: int) -> Value:
        a, b = (self._of(x) for x in node.operands)
        facts = self._exact(a, bits) | self._exact(b, bits)
        if any(d.kind == "dim" for p in (a, b) for d in p.poly.atoms()):
            if self.whole_remainders:
                return Value(Poly.of(self.atom(kind, (a.poly, b.poly), bits)), facts)
            if kind not in ("rem", "min"):
                raise NotAffine(f"{node.name} of a tile's coordinates")
            a, b = self.resolve(a), self.resolve(b)
            if kind == "rem":
                return self._tile_remainder(a, b, facts, bits)
            if any(d.kind == "dim" for d in a.poly.atoms()):
                a, b = b, a
            return self._tile_below(b, a.poly + 1, facts, bits)  # min(bound - 1, tile)
        return Value(Poly.of(self.atom(kind, (a.poly, b.poly), bits)), facts)

    @staticmethod
    def _run(tile: Poly, bound: Poly) -> tuple[Poly, Poly, int]:
        """(index, start, extent) of a tile that is a run of coordinates."""
        index, start = tile.split(lambda m: any(x.kind == "dim" for x in m))
        monomial, c = index.single
        if c != 1 or len(monomial) != 1 or any(x.kind == "dim" for x in bound.atoms()):
            raise NotAffine("a remainder or a bound of what is no run of coordinates")
        return index, start, monomial[0].payload[1]

    def _tile_remainder(self, a: Value, b: Value, exact: frozenset[Fact], bits: int) -> Value:
        index, start, extent = self._run(a.poly, b.poly)
        rewritten = {Fact("multiple", b.poly, extent)}
        if start.divisor() % extent:
            rewritten.add(Fact("multiple", start, extent))
        # not the atom of the kernel's own start % divisor: a pass may put something else for this one
        atom = self.atom("rem", (start, b.poly, extent), bits)
        self._modulo[atom] = Modulo(start, b.poly, extent, frozenset(rewritten))
        return Value(index + Poly.of(atom), exact | rewritten | {Fact("nonneg", start, 0)})

    def _tile_below(self, x: Value, bound: Poly, exact: frozenset[Fact], bits: int) -> Value:
        index, start, extent = self._run(x.poly, bound)
        atom = self.atom("within", (start, bound, extent), bits)
        rewritten = frozenset((Fact("nonneg", bound - start - extent, 0),))
        self._modulo[atom] = Modulo(start, bound, extent, rewritten)
        return Value(index + Poly.of(atom), exact | rewritten)

    def _select(self, node: Node, bits: int) -> Value:
        """where(x < bound, x, anything)."""
        x = self.resolve(self._of(node.operands[1]))
        conditions = [self.resolve(c) for c in self._conditions(node.operands[0])]
        if len(conditions) != 1 or not any(a.kind == "dim" for a in x.poly.atoms()):
            raise NotAffine("arith.select is not affine")
        return self._tile_below(x, x.poly - conditions[0].poly, x.facts | conditions[0].facts, bits)

    def _renumber(self, x: Value, new: Callable[[int], int]) -> Value:
        x = self.resolve(x)  # a carried tile hides the dims that it has

        def replace(a: Atom) -> Poly | None:
            if a.kind == "dim":
                return self.dim(new(a.payload[0]), a.payload[1])
            if self.whole_remainders and a.kind in ("div", "rem", "min", "max"):  # a tile's has indices inside
                return Poly.of(self.atom(a.kind, tuple(p.substitute(replace) for p in a.payload), a.bits))
            return None

        return Value(x.poly.substitute(replace), frozenset(f._replace(poly=f.poly.substitute(replace)) for f in x.facts))

    # -- masks
    def _conditions(self, mask: Any) -> list[Value]:
        node = self.function.def_node(mask)
        name = node.name if node is not None else "a block argument"
        if node is None:
            raise NotAffine("the mask comes from outside or changes in a loop")
        if name == "arith.andi":
            return self._conditions(node.operands[0]) + self._conditions(node.operands[1])
        if name in ("tt.broadcast", "tt.splat", "ttg.convert_layout"):
            return self._conditions(node.operands[0])
        if name == "tt.expand_dims":
            axis = node.int_attr("axis")
            return [self._renumber(c, lambda d: d + (d >= axis)) for c in self._conditions(node.operands[0])]
        if name == "tt.trans":
            order = node.ints_attr("order")
            return [self._renumber(c, order.index) for c in self._conditions(node.operands[0])]
        if name == "arith.constant" and constant_of(node):
            return []
        if name != "arith.cmpi":
            raise NotAffine(f"the mask is made by {name}")
        predicate = node.int_attr("predicate")
        if predicate in _UNSIGNED_LESS:
            return self._below(*(node.operands[i] for i in _UNSIGNED_LESS[predicate]))
        if predicate not in _LESS:
            raise NotAffine(f"the mask compares by {_PREDICATES[predicate]}")
        smaller, greater, equal = _LESS[predicate]
        a, b = self._of(node.operands[smaller]), self._of(node.operands[greater])
        bits = type_info(node.operands[0].type).bits
        return [Value(a.poly - b.poly - equal, self._exact(a, bits) | self._exact(b, bits))]

    def _below(self, index: Any, size: Any) -> list[Value]:
        """``index <u size``, which is 0 ≤ index < size where size is not negative."""
        a, b = self._of(index), self._of(size)
        bits = type_info(index.type).bits
        facts = self._exact(a, bits) | self._exact(b, bits)
        if b.poly.range()[0] < 0:
            facts |= {Fact("nonneg", b.poly, 0)}
        return [Value(a.poly - b.poly, facts), Value(-a.poly - 1, facts)]

    # -- loop-carried values
    def resolve(self, x: Value) -> Value:
        """With carried values replaced by start + round · amount. Raises NotAffine where one changes otherwise."""
        if not x.poly.unresolved and not any(f.poly.unresolved for f in x.facts):
            return x
        facts: set[Fact] = set()
        poly = self._resolve_poly(x.poly, facts)
        for f in x.facts:
            g = f._replace(poly=self._resolve_poly(f.poly, facts))
            if g.kind != "fits" or not is_small(g.poly, g.number):
                facts.add(g)
        return Value(poly, frozenset(facts))

    def _resolve_poly(self, poly: Poly, facts: set[Fact]) -> Poly:
        def replace(a: Atom) -> Poly | None:
            if not a.unresolved:
                return None
            if a.kind == "carried":
                solved = self._solve(a)
                facts.update(solved.facts)
                return solved.poly
            payload = tuple(self._resolve_poly(p, facts) if isinstance(p, Poly) else p for p in a.payload)
            more: dict[str, Any] = {"value": a.value, "regions": frozenset((a.payload[0],))} if a.kind == "loop" else {}
            return Poly.of(self.atom(a.kind, payload, a.bits, **more))

        return poly.substitute(replace)

    def _solve(self, carried: Atom) -> Value:
        if carried not in self._solved:
            if carried in self._solving:
                raise NotAffine("loop-carried values that depend on each other")
            self._solving.add(carried)
            try:
                self._solved[carried] = self._follow(carried)
            except NotAffine:
                self._solved[carried] = None
            finally:
                self._solving.discard(carried)
        solved = self._solved[carried]
        if solved is None:
            info = type_info(carried.value.type)
            if info.shape is not None or info.kind == "ptr":
                raise NotAffine("a loop changes it by amounts that differ")
            return self._opaque(carried.value)
        return solved

    def _follow(self, carried: Atom) -> Value:
        region, number = carried.payload
        loop = region.parent
        start = self.resolve(self._of(loop.operands[number + 2]))
        after = self._of(region.ops[-1].operands[number - 1])
        own, rest = after.poly.split(lambda m: carried in m)
        if own != Poly.of(carried):
            raise NotAffine("it does not grow by an amount")
        facts: set[Fact] = set()
        amount = self._resolve_poly(rest, facts)
        inside = {region, *(r for n in loop.walk() for r in n.regions)}
        if amount.regions & inside or any(a.kind == "base" for a in amount.atoms()):
            raise NotAffine("the amount changes in the loop")
        rounds = self._rounds(region, loop, amount)
        for f in after.facts:
            if carried in f.poly.atoms():
                f = f._replace(poly=f.poly.substitute(lambda a: start.poly + rounds.poly if a is carried else None))
            facts.add(f._replace(poly=self._resolve_poly(f.poly, facts)))
        return Value(start.poly + rounds.poly, start.facts | rounds.facts | facts)

    def _rounds(self, region: Region, loop: Node, amount: Poly) -> Value:
        """amount · (number of rounds before this one)."""
        variable = self.resolve(self._of(region.args[0]))
        lo, _, step = next(iter(variable.poly.atoms())).payload[1:]
        since = variable.poly - lo
        if not amount:
            return Value(amount)
        each = amount.divided_by(step)
        if each is not None:
            return Value(since * each, variable.facts)
        bits = type_info(region.args[0].type).bits
        count = self.atom("div", (since, step), bits)
        return Value(Poly.of(count) * amount, variable.facts | self._exact(Value(since), bits))


def constant_of(node: Node) -> int | None:
    """The integer of an arith.constant, a splat's too; None for others."""
    if node.name != "arith.constant":
        return None
    attr = node.op.attributes["value"]
    if isinstance(attr, ir.DenseElementsAttr):
        if not attr.is_splat:
            return None
        attr = attr.get_splat_value()
    if isinstance(attr, ir.BoolAttr):
        return int(attr.value)
    return int(attr.value) if isinstance(attr, ir.IntegerAttr) else None


def pointer_roots(function: Function, pointer: Any) -> set[int] | None:
    """Numbers of the pointer arguments that ``pointer`` (scalar or tile) may be derived from; None where it may be any pointer."""
    arguments = {v: i for i, v in enumerate(function.body.args)}
    roots: set[int] = set()
    seen: set[Any] = set()
    todo = [pointer]
    while todo:
        v = todo.pop()
        if v in seen:
            continue
        seen.add(v)
        if v in arguments:
            roots.add(arguments[v])
            continue
        sources = _pointer_sources(function, v)
        if sources is None:
            return None
        todo.extend(sources)
    return roots


def _pointer_sources(function: Function, v: Any) -> Iterable[Any] | None:
    found = function.defs.get(v)
    if found is None:
        region, number = function.arg_of[v]
        loop = region.parent
        if loop is None or loop.name not in ("scf.for", "scf.while"):
            return None
        if loop.name == "scf.for":
            return loop.operands[number + 2], region.ops[-1].operands[number - 1]
        before, after = loop.regions
        if region is after:
            return (before.ops[-1].operands[number + 1],)
        return loop.operands[number], after.ops[-1].operands[number]
    node, number = found
    if node.name == "scf.if":
        return [r.ops[-1].operands[number] for r in node.regions]
    if node.name == "scf.for":
        return node.operands[number + 3], node.regions[0].ops[-1].operands[number]
    if node.name == "scf.while":
        return (node.regions[0].ops[-1].operands[number + 1],)
    if node.name in ("tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.bitcast", "tt.unsplat",
                     "tt.split", "tt.make_tensor_descriptor"):
        return node.operands[:1]
    if node.name in ("arith.select",):
        return node.operands[1:]
    if node.name in ("tt.cat", "tt.join"):
        return node.operands
    return None
