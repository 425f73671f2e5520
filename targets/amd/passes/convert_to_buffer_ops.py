"""Let loads, stores and atomics through tiles of pointers be buffer operations, where that is proven to mean the same.

Before: tt.load, tt.store, tt.atomic_rmw and tt.atomic_cas, pipelined. After: those whose pointers are a scalar pointer + offsets of the elements
(uniform_parts.py), the offsets within 0 and 2^31 bytes, are amdg.buffer_load, _store, _atomic_rmw and _atomic_cas (of kinds and types that the arch has). Only the scalar pointer changes in a loop then, and
masks need no branches: conditions on a whole row (``row < n``, the offsets being ``row · stride + column``) and on the whole program
become the buffer's size, others put the offset beyond it.

The proof. ``affine`` gives pointer, scalar and offsets as polynomials over arguments, program ids, loop variables and the tile's
indices, each under facts (no 32-bit arithmetic wraps, …); pointer = scalar + offsets as polynomials. Facts and bounds that do not hold
for all arguments become guards of the launch (``metadata["host"]``): where one fails, the kernel compiled with ``buffer_ops=False`` runs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.affine import Affine, Fact, NotAffine, Value, is_small, pointer_base
from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.analysis.host_recipe import Host, Refused
from tilewright.dialects.analysis.polynomial import Atom, Poly
from tilewright.dialects.analysis.structure import Function, Node, functions, is_zero, type_info
from tilewright.dialects.encodings import layout_of
from tilewright.dialects.errors import VariantNeeded
from tilewright.dialects.lowering.global_ops import vector_groups
from tilewright.dialects.passes.dce_cse import cse, dce
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.amd.buffers import MOST_BYTES, READ_FIRST_LANE, WIDEST, atomic_instruction
from tilewright.targets.amd.passes.uniform_parts import SHAPE_OPS, Split, Splitter, Unsplit

_SLT, _SLE, _SGT, _SGE = 2, 3, 4, 5
_REACH = "rows that a mask cuts off must not reach into each other"
_EVALUATED = frozenset(("arg", "program_id", "num_programs", "dim", "loop", "div", "rem", "min", "max"))


_COPY = "ttg.async_copy_global_to_local"
_ATOMICS = {"tt.atomic_rmw": "amdg.buffer_atomic_rmw", "tt.atomic_cas": "amdg.buffer_atomic_cas"}
_MASK_AT = {"tt.load": 1, "tt.atomic_cas": 3}  # operand; 2 of the others


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    _run(module, ctx, ("tt.load", "tt.store", *(_ATOMICS if ctx.options.buffer_atomics else ())))


def run_copies(module: Any, ctx: PassContext) -> None:
    """As ``run``, of asynchronous copies, after the shared passes that know them: they become amdg.buffer_load_to_local. Raises
    VariantNeeded where one must stay: without the instruction that loads to LDS a copy cannot run on."""
    _run(module, ctx, (_COPY,))


def _run(module: Any, ctx: PassContext, names: tuple[str, ...]) -> None:
    for function in functions(module):
        if "tt.kernel" in function.root.op.attributes and _Converter(function, ctx, names).run():
            cse(function)
            dce(function)


class _Mask(NamedTuple):
    """A mask in parts, all of which must hold: offsets below ``limit`` (i32, bytes; None: any), and ``rest`` (a tile; None: true)."""

    limit: Any
    rest: Any


class _Converter:
    """Converts the accesses of one kernel."""

    def __init__(self, function: Function, ctx: PassContext, names: tuple[str, ...]):
        self.function, self.names = function, names
        self.axis = AxisInfoAnalysis(function=function)
        self.affine = Affine(function, whole_remainders=True)
        self.split = Splitter(function)
        self.host, self.ctx = Host(ctx), ctx
        self.i32 = ir.IntegerType.get_signless(32)
        self._atoms: dict[Atom, bool] = {}

    def run(self) -> int:
        """How many accesses were converted."""
        accesses = [n for n in self.function.nodes() if n.name in self.names and type_info(n.operands[0].type).shape is not None]
        converted = 0
        for node in accesses:
            mark = self.host.mark()
            try:
                self._convert(node)
                converted += 1
            except (NotAffine, Refused, Unsplit) as e:
                self.host.forget(mark)
                if node.name == _COPY:
                    raise VariantNeeded({"async_copy": False}, f"a load cannot go to LDS directly: {e}") from None
                self.ctx.explain(node.op, node.name[3:], "pointer", str(e))
        return converted

    def _convert(self, node: Node) -> None:
        """Raises NotAffine, Refused or Unsplit where the access must stay as it is."""
        pointer = node.operands[0]
        place = _MASK_AT.get(node.name, 2)
        mask = node.operands[place] if len(node.operands) > place else None
        together = self._check_atomic(node) if node.name in _ATOMICS else 0
        if node.name in ("tt.load", _COPY) and node.bool_attr("is_volatile"):
            raise Refused("it is volatile")
        if not together and node.str_attr("cache") not in ("none", "ca", "cg", "cs", "wb", ""):
            raise Refused(f"the cache modifier {node.str_attr('cache')!r}")
        size = type_info(pointer.type).pointee_bits // 8
        if not size:
            raise Refused("elements of less than a byte")
        whole = self.affine.value(pointer)
        base, offset = pointer_base(whole.poly)
        parts = self._flat(pointer) or self.split.split(pointer)
        lane = self.affine.value(parts.lane) if parts.lane is not None else Value(Poly.const(0))
        scalar = self.affine.value(parts.scalar)
        other_base, start = pointer_base(scalar.poly)
        if other_base != base or start + lane.poly != offset:
            raise Refused("its parts do not add up to its pointers")
        self._guard(lane.poly, 0, (MOST_BYTES - WIDEST) // size, f"a tile of argument {base} must lie within 2 GB from its first element")
        for fact in sorted(whole.facts | scalar.facts | lane.facts, key=repr):
            self._fact(fact, f"argument {base}: ")
        shape = type_info(pointer.type).shape or ()
        vector = [self.axis.vector_elements(pointer, d, mask) for d in range(len(shape))]
        if together:
            vector = [min(n, together) for n in vector]
            if any(len(group) != together for group in vector_groups(layout_of(pointer.type), vector)):
                raise Refused(f"the instruction adds {together} neighbours, and a thread has single ones")
        covered = self._mask(node, mask, lane.poly, size) if mask is not None else _Mask(None, None)
        self.ctx.explain(node.op, f"{node.name[3:]} of argument {base}" if node.name != _COPY else f"load of argument {base}",
                         "buffer" if node.name != _COPY else "buffer, to LDS", "its offsets are proven to fit 31 bits, or checked at the launch")
        self._rewrite(node, parts.scalar, parts.lane, covered, vector, mask)

    def _check_atomic(self, node: Node) -> int:
        """How many neighbours the arch's instruction takes at once. Raises Refused where it has none."""
        element = str(type_info(node.operands[1].type).element)
        kind = "cas" if node.name == "tt.atomic_cas" else node.str_attr("rmw_op")
        scope = node.str_attr("scope")
        found = atomic_instruction(self.ctx.arch, kind, element, scope)
        if found is None:
            raise Refused(f"{self.ctx.arch} has no buffer instruction for atomic {kind} of {element}, scope {scope}, that is exact in any memory")
        return found.elements

    def _flat(self, pointer: Any) -> Split | None:
        """Scalar pointer and offsets of a tile of one dim, as the kernel has them: all of the offset is one value a thread, which is cheaper
        than a pointer of its own; and a mask that compares the same offsets asks nothing, in no iteration. None of others."""
        made = self.function.def_node(pointer)
        if made is None or made.name != "tt.addptr" or len(type_info(pointer.type).shape or ()) != 1:
            return None
        splat, offsets = self.function.def_node(made.operands[0]), made.operands[1]
        if splat is None or splat.name != "tt.splat" or type_info(offsets.type).bits != 32:
            return None
        return Split(splat.operands[0], offsets)

    # -- what must hold
    def _known(self, poly: Poly) -> bool:
        return all(map(self._evaluated, poly.atoms()))

    def _evaluated(self, a: Atom) -> bool:
        """Whether the host can bound an atom."""
        found = self._atoms.get(a)
        if found is None:
            found = self._atoms[a] = a.known and a.kind in _EVALUATED and all(self._known(p) for p in a.payload if isinstance(p, Poly))
        return found

    def _guard(self, poly: Poly, low: int, high: int, why: str) -> None:
        if not self._known(poly):
            raise Refused("it depends on values that the host does not know")
        if self._broken_at_first(poly, low, high) or not self.host.in_range(poly, low, high, why):
            raise Refused(f"never true: {why}")

    @staticmethod
    def _broken_at_first(poly: Poly, low: int, high: int) -> bool:
        """Whether program 0, which every launch has, leaves the bounds at some element, as the tile's index - 1 does at 0. Such a guard would send
        every launch to the version without buffer operations, for one access."""
        first = poly.substitute(lambda a: Poly.const(0) if a.kind == "program_id" else None)
        if any(len(m) > 1 or m and m[0].kind != "dim" for m in first.terms):
            return False  # its range need not be reached
        least, most = first.range()
        return least < low or most > high

    def _fact(self, fact: Fact, what: str) -> None:
        if fact.kind == "fits" and is_small(fact.poly, fact.number):
            return
        if not self._known(fact.poly):
            raise Refused("it depends on arithmetic that the host cannot follow")
        if not self.host.fact(fact, what):
            raise Refused(f"{what}a fact that it rests on never holds: {fact.kind} {fact.number}")

    # -- masks
    def _mask(self, node: Node, mask: Any, lane: Poly, size: int) -> _Mask:
        limits: list[Any] = []
        rest: list[Any] = []
        every = self._conjuncts(mask)
        parts = [p for p in every if not self._implied(node, p, every)]
        taken = False  # a limit that rests on what the other parts cut off: these must be tested then
        for part in parts:
            mark = self.host.mark()
            try:
                limit = self._uniform(node, part)
                if limit is None:
                    if taken:
                        raise Refused("another limit rests on it")
                    limit, taken = self._row_limit(node, part, lane, size, [p for p in parts if p is not part])
                limits.append(limit)
            except (NotAffine, Refused, Unsplit):
                self.host.forget(mark)
                rest.append(part)
        left = None
        if rest:
            whole = len(rest) == len(every)
            left = mask if whole else rest[0]
            for part in () if whole else rest[1:]:
                left = self._op(node, "arith.andi", mask.type, [left, part])
        limit = None
        for one in limits:
            limit = one if limit is None else self._op(node, "arith.minsi", self.i32, [limit, one])
        return _Mask(limit, left)

    def _conjuncts(self, mask: Any) -> list[Any]:
        """Tiles of the mask's type that hold together where it does."""
        node = self.function.def_node(mask)
        if node is not None and node.name == "arith.andi":
            return self._conjuncts(node.operands[0]) + self._conjuncts(node.operands[1])
        return [mask]

    def _implied(self, node: Node, part: Any, others: list[Any]) -> bool:
        """Whether ``part``, a condition on the whole program, holds wherever another one does: that the iteration exists (the pipeliner asks), where
        ``k < K`` leaves nothing of iterations that do not."""
        if self._splat(part) is None:
            return False
        for other in others:
            mark = self.host.mark()
            try:
                if other is part or self._splat(other) is not None:
                    continue
                (mine,), found = self.affine.conditions(part), self.affine.conditions(other)
                if any(_follows(c.poly, mine.poly) for c in found):
                    for fact in sorted(mine.facts.union(*(c.facts for c in found)), key=repr):
                        self._fact(fact, "a mask: ")
                    return True
            except (NotAffine, Refused, ValueError):  # ValueError: of two conditions
                self.host.forget(mark)
        return False

    def _splat(self, part: Any) -> Node | None:
        made = self.function.def_node(part)
        while made is not None and made.name in SHAPE_OPS:
            made = self.function.def_node(made.operands[0])
        return made if made is not None and made.name == "tt.splat" else None

    def _uniform(self, node: Node, part: Any) -> Any:
        """The limit that lets all or nothing through, of a condition on the whole program; None of another."""
        made = self._splat(part)
        if made is None:
            return None
        return self._op(node, "arith.select", self.i32, [made.operands[0], self._constant(node, MOST_BYTES), self._constant(node, 0)])

    def _row_limit(self, node: Node, part: Any, lane: Poly, size: int, others: list[Any]) -> tuple[Any, bool]:
        """Bytes below which ``row · stride + column`` lies exactly where ``row < bound``, in elements for which ``others`` hold; whether it
        matters that they do. Raises where there is no such number, or that is not known."""
        conditions = list(self.affine.conditions(part))
        if len(conditions) != 1:  # x != 0 or a loaded mask says nothing about a bound; others say two things
            raise Refused("a mask that is not one bound")
        condition = conditions[0]
        bound = lane - condition.poly  # where the rows are all of the offset
        stride, column = Poly.const(1), Poly.const(0)
        if any(_of_tile(a) for a in bound.atoms()):
            row, minus_bound = condition.poly.split(lambda m: any(_of_tile(a) for a in m))
            bound = -minus_bound
            stride, column = _factor(lane, row)
        low, high = (condition.poly + bound).range()
        rests = self._apart(stride, column, others) if column else False
        if not column:  # row < bound is row · stride < bound · stride for positive strides only
            self._guard(stride, 1, MOST_BYTES, _REACH)
        for fact in sorted(condition.facts, key=repr):
            self._fact(fact, "a mask: ")
        factor = self._stride_value(node, stride)
        # a bound that is a size can be checked before the launch; others, also what is left of a size, are brought between 0 and the rows
        clamped = not (bound.uniform and all(c > 0 for c in bound.terms.values()))
        if clamped and (low < 0 or high == float("inf")):
            raise Refused("rows without bounds")
        if clamped:
            self._guard(stride * (int(high) + 1), 0, MOST_BYTES // size, _REACH)
        else:
            self._guard(stride * bound, 0, MOST_BYTES // size, "a mask's bound must not be negative, nor beyond 2 GB")
            self._guard(condition.poly + bound, 0, MOST_BYTES // size, _REACH)
        value = self._bound(node, part, bound)
        if clamped:
            if size == 1:  # -2^31 would wrap in ``_between``, and stay -2^31; bytes of wider elements make it 0
                self._guard(bound, 1 - 2**31, 2**31 - 1, "a mask's bound must not be -2^31")
            value = self._between(node, value, int(high) + 1)
        elements = value if factor is None else self._op(node, "arith.muli", self.i32, [value, factor])
        return elements if size == 1 else self._op(node, "arith.muli", self.i32, [elements, self._constant(node, size)]), rests

    def _apart(self, stride: Poly, column: Poly, others: list[Any]) -> bool:
        """See to it that a row ends before the next one begins; whether that rests on ``others``."""
        cut = self._cut(column, others)
        if stride.constant is not None and column.range()[1] != float("inf") and column.range()[1] >= stride.constant:
            raise Refused("columns longer than the stride")
        self._guard(stride - cut - 1, 0, MOST_BYTES, _REACH)
        self._guard(column, 0, MOST_BYTES, _REACH)
        self._guard(stride, 1, MOST_BYTES, _REACH)
        return cut != column

    def _between(self, node: Node, bound: Any, rows: int) -> Any:
        """min(max(bound, 0), rows), not written as such: LLVM would make a vector instruction of it, and lose that it is uniform."""
        one, minus_one = self._constant(node, 1), self._constant(node, -1)
        before = self._op(node, "arith.maxsi", self.i32, [self._op(node, "arith.subi", self.i32, [bound, one]), minus_one])
        return self._op(node, "arith.minsi", self.i32, [self._op(node, "arith.addi", self.i32, [before, one]), self._constant(node, rows)])

    def _cut(self, column: Poly, others: list[Any]) -> Poly:
        """``column`` for elements for which ``others`` hold: indices below their bounds. Raises where it has more than indices."""
        bounds: dict[Atom, Poly] = {}
        for part in others:
            try:
                for c in self.affine.conditions(part):
                    index, minus_bound = c.poly.split(lambda m: any(_of_tile(a) for a in m))
                    monomial, factor = index.single
                    if factor == 1 and len(monomial) == 1 and self._known(minus_bound):
                        bounds[monomial[0]] = -minus_bound - 1
            except NotAffine:
                pass
        for monomial in column.terms:
            if len(monomial) != 1 or not _of_tile(monomial[0]):
                raise Refused("columns that have strides of their own")

        def smaller(a: Atom) -> Poly | None:
            return Poly.of(self.affine.atom("min", (Poly.of(a), bounds[a]), 64)) if a in bounds else None

        return column.substitute(smaller)

    def _bound(self, node: Node, part: Any, bound: Poly) -> Any:
        """The scalar i32 that is ``bound``, from the comparison ``part``."""
        made = self.function.def_node(part)
        while made is not None and made.name in SHAPE_OPS:
            made = self.function.def_node(made.operands[0])
        if made is None or made.name != "arith.cmpi":
            raise Refused("no comparison")
        predicate = made.int_attr("predicate")
        if predicate not in (_SLT, _SLE, _SGT, _SGE) or type_info(made.operands[0].type).bits != 32:
            raise Refused("a comparison of another kind")
        less, more = (0, 1) if predicate in (_SLT, _SLE) else (1, 0)
        greater = self.split.split(made.operands[more])
        if greater.lane is not None:
            raise Refused("a comparison of two tiles")
        value = greater.scalar if greater.scalar is not None else self._constant(node, 0)
        if predicate in (_SLE, _SGE):
            value = self._op(node, "arith.addi", self.i32, [value, self._constant(node, 1)])
        if self.affine.value(value).poly != bound:
            smaller = self.split.split(made.operands[less])
            if smaller.scalar is not None:
                value = self._op(node, "arith.subi", self.i32, [value, smaller.scalar])
        written = self.affine.value(value)
        if written.poly != bound:
            raise Refused("the bound is not the one that was found")
        for fact in sorted(written.facts | {Fact("fits", bound, 32)}, key=repr):
            self._fact(fact, "a mask's bound: ")
        return value

    def _stride_value(self, node: Node, stride: Poly) -> Any:
        """The ir.Value of a stride; None for 1."""
        if stride.constant is not None:
            return None if stride.constant == 1 else self._constant(node, stride.constant)
        monomial, c = stride.single
        if c == 1 and len(monomial) == 1 and monomial[0].kind == "arg" and monomial[0].bits == 32:
            return self.affine.argument(monomial[0].payload[0])
        raise Refused("a stride that is no argument")

    # -- rewriting
    def _rewrite(self, node: Node, scalar: Any, lane: Any, covered: _Mask, vector: list[int], mask: Any) -> None:
        pointer = node.operands[0]
        if lane is None:
            type_ = self.split.lane_type(pointer)
            zero = ir.DenseElementsAttr.get_splat(type_, ir.IntegerAttr.get(self.i32, 0))
            lane = self._op(node, "arith.constant", type_, [], {"value": zero})
        optional = [v for v in covered if v is not None]
        given = [int(v is not None) for v in covered]
        attributes = {"vector": ir.DenseI32ArrayAttr.get(vector)}
        for name in ("cache", "rmw_op", "sem", "scope"):
            if name in node.op.attributes:
                attributes[name] = node.attr(name)
        if self._may_be_vector([scalar, covered.limit]):
            attributes[READ_FIRST_LANE] = ir.UnitAttr.get()
        if node.name in _ATOMICS:
            values = node.operands[1:2] if node.name == "tt.atomic_rmw" else node.operands[1:3]
            attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1] * (len(values) + 2) + given)
            old = self._op(node, _ATOMICS[node.name], node.results[0].type, [*values, scalar, lane, *optional], attributes)
            self.function.replace_uses(node.results[0], old)
            self.function.erase(node)
            return
        if node.name == "tt.store":
            attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 1, 1, *given])
            self.function.insert_before(node, "amdg.buffer_store", [], [node.operands[1], scalar, lane, *optional], attributes)
            self.function.erase(node)
            return
        if node.name == _COPY:
            attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 1, 1, *given])
            token = self._op(node, "amdg.buffer_load_to_local", node.results[0].type, [node.operands[1], scalar, lane, *optional], attributes)
            self.function.replace_uses(node.results[0], token)
            self.function.erase(node)
            return
        others = [mask, node.operands[2]] if len(node.operands) > 2 and not is_zero(self.function, node.operands[2]) else []
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 1, *given, *([1, 1] if others else [0, 0])])
        result = self._op(node, "amdg.buffer_load", node.results[0].type, [scalar, lane, *optional, *others], attributes)
        self.function.replace_uses(node.results[0], result)
        self.function.erase(node)

    def _may_be_vector(self, values: list[Any]) -> bool:
        """Whether LLVM may compute one of these scalars in vector registers: it has no scalar instruction for a minimum of a maximum by two
        constants, and takes v_med3."""
        work, seen = [(v, frozenset[str]()) for v in values if v is not None], set()
        while work:
            value, path = work.pop()
            node = self.function.def_node(value)
            if node is None or type_info(value.type).shape is not None or (value, path) in seen:
                continue
            seen.add((value, path))
            kind = {"arith.minsi": "min", "arith.minui": "min", "arith.maxsi": "max", "arith.maxui": "max"}.get(node.name)
            if kind is not None and path and kind not in path:
                return True
            # what is done to a clamped value does not matter, only min and max right after one another
            work += [(v, frozenset((kind,)) if kind is not None else frozenset()) for v in node.operands if node.name != "scf.for"]
        return False

    # -- ops
    def _op(self, anchor: Node, name: str, type_: Any, operands: list[Any], attributes: dict[str, Any] | None = None) -> Any:
        return self.function.insert_before(anchor, name, [type_], operands, attributes).results[0]

    def _constant(self, anchor: Node, value: int) -> Any:
        return self._op(anchor, "arith.constant", self.i32, [], {"value": ir.IntegerAttr.get(self.i32, value)})


def _follows(known: Poly, asked: Poly) -> bool:
    """Whether ``known`` < 0, for some element of a tile, means that ``asked`` < 0. A quotient u = ⌊n / d⌋ in ``asked``, n's size over d, is put down to n
    by d · u ≥ n - d + 1, which holds of quotients that are truncated too."""
    for a in list(asked.atoms()):
        if a.kind == "div" and asked.terms.get((a,), 0) < 0 and a.payload[1].constant is not None and a.payload[1].constant > 0:
            if sum(a in m for m in asked.terms) != 1:
                return False
            _, rest = asked.split(lambda m, a=a: m == (a,))  # type: ignore[misc]
            d, times = a.payload[1].constant, -asked.terms[(a,)]
            asked = rest * d - (a.payload[0] - d + 1) * times
    index, least = known.split(lambda m: any(_of_tile(a) for a in m))
    if any(c < 0 or len(m) != 1 or m[0].kind != "dim" for m, c in index.terms.items()):
        return False
    difference = least - asked  # known ≥ least: least < 0, and asked is no more
    return difference.constant is not None and difference.constant >= 0


def _of_tile(a: Atom) -> bool:
    """Whether the atom differs between elements of a tile."""
    return a.kind == "dim" or any(_of_tile(x) for p in a.payload if isinstance(p, Poly) for x in p.atoms())


def _factor(lane: Poly, row: Poly) -> tuple[Poly, Poly]:
    """(stride, column): lane = row · stride + column, the stride without tile indices. Raises Refused where there is none."""
    if lane == row:
        return Poly.const(1), Poly.const(0)
    monomial, c = row.single
    if c != 1 or len(monomial) != 1:
        raise Refused("rows that are no index")
    own, column = lane.split(lambda m: monomial[0] in m)
    stride = own.divided_by(row)
    if stride is None or any(_of_tile(a) for a in stride.atoms()):
        raise Refused("rows without a stride")
    return stride, column
