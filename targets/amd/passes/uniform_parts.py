"""Cut tiles of pointers and integers into what is one value in the whole program and what differs between elements.

A tile of pointers is ``scalar + lane``: a scalar pointer, and a tile of i32 (elements). ``ptr + (pid · BLOCK + range) · stride`` has the
scalar ``ptr + pid · BLOCK · stride`` and the lane part ``range · stride``. Pointers that a loop advances by the same amount everywhere
have a scalar that the loop carries, and a lane part that stands before it.

The lane part is right modulo 2^32, as arithmetic in 32 bits is. Whether scalar + lane is the address itself is for the caller to prove.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.affine import constant_of
from tilewright.dialects.analysis.loop_edit import add_carried
from tilewright.dialects.analysis.structure import Function, Node, attribute_names, position, type_info

SHAPE_OPS = frozenset(("tt.broadcast", "tt.expand_dims", "ttg.convert_layout", "tt.reshape", "tt.trans"))


class Unsplit(Exception):
    """The tile has no such parts; the text says why. Never reaches the user."""


class Split(NamedTuple):
    """``scalar``: a pointer, or an integer of the tile's width; ``lane``: a tile of i32. None: 0."""

    scalar: Any
    lane: Any


class Splitter:
    """Splits values of one function. The parts' ops stand where the value's own op does; what is not used in the end is dead code."""

    def __init__(self, function: Function):
        self.function = function
        self.i32 = ir.IntegerType.get_signless(32)
        self._known: dict[Any, Split | Unsplit] = {}
        self._order: list[Any] = []  # of _known's keys
        self._results: dict[Any, Any] = {}  # the scalar that a loop carries → the loop's result

    def split(self, v: Any) -> Split:
        """Raises Unsplit."""
        found = self._known.get(v)
        if found is None:
            try:
                found = self._split(v)
            except Unsplit as e:
                found = e
            self._remember(v, found)
        if isinstance(found, Unsplit):
            raise found
        return found

    def _remember(self, v: Any, found: Split | Unsplit) -> None:
        if v not in self._known:
            self._order.append(v)
        self._known[v] = found

    def _split(self, v: Any) -> Split:
        info = type_info(v.type)
        if info.shape is None:
            return Split(v, None)
        node = self.function.def_node(v)
        if info.kind == "ptr":
            return self._carried(v) if node is None else self._pointer(node, v)
        if info.kind == "int" and info.bits in (32, 64):
            return self._integer(node, v)
        raise Unsplit(f"tiles of {info.element} are not followed")

    # -- pointers
    def _pointer(self, node: Node, v: Any) -> Split:
        if node.name == "tt.splat":
            return Split(node.operands[0], None)
        if node.name == "tt.addptr":
            pointer, offset = (self.split(o) for o in node.operands)
            scalar = pointer.scalar
            if offset.scalar is not None:
                scalar = self._op(node, "tt.addptr", scalar.type, [scalar, offset.scalar])
            return Split(scalar, self._sum(node, pointer.lane, offset.lane))
        if node.name in SHAPE_OPS:
            return self._reshaped(node, v)
        if node.name == "scf.for":
            return self._after_loop(node, v)
        raise Unsplit(f"pointers made by {node.name}")

    def _reshaped(self, node: Node, v: Any) -> Split:
        part = self.split(node.operands[0])
        if part.lane is None:
            return part
        attributes = {n: node.op.attributes[n] for n in attribute_names(node.op)}
        return Split(part.scalar, self._op(node, node.name, self.lane_type(v), [part.lane], attributes))

    # -- integers
    def _integer(self, node: Node | None, v: Any) -> Split:
        if node is None:
            try:
                return self._carried(v)
            except Unsplit:
                return self._whole(node, v)
        name = node.name
        if name == "tt.splat":
            return Split(node.operands[0], None)
        if name == "arith.constant" and (number := constant_of(node)) is not None:
            if number == 0:
                return Split(None, None)
            type_ = type_info(v.type).element
            return Split(self._op(node, "arith.constant", type_, [], {"value": ir.IntegerAttr.get(type_, number)}), None)
        if name in SHAPE_OPS:
            return self._reshaped(node, v)
        if name in ("arith.extsi", "arith.extui") and type_info(node.operands[0].type).bits == 32:
            part = self.split(node.operands[0])
            scalar = None if part.scalar is None else self._op(node, name, type_info(v.type).element, [part.scalar])
            return Split(scalar, part.lane)
        if name == "arith.addi":
            a, b = (self.split(o) for o in node.operands)
            scalar = self._same(node, a.scalar, b.scalar) if a.scalar is not None and b.scalar is not None else b.scalar if a.scalar is None else a.scalar
            return Split(scalar, self._sum(node, a.lane, b.lane))
        if name == "arith.muli":
            a, b = (self.split(o) for o in node.operands)
            if a.lane is None:
                a, b = b, a
            if b.lane is None:
                return self._product(node, v, a, b.scalar)
        if name == "scf.for":
            try:
                return self._after_loop(node, v)
            except Unsplit:
                pass
        return self._whole(node, v)

    def _whole(self, node: Node | None, v: Any) -> Split:
        """All of it is lane part."""
        if type_info(v.type).bits == 32:
            return Split(None, v)
        if node is None:
            raise Unsplit("64-bit offsets that change in a loop")
        after = node.region.ops[position(node) + 1]  # type: ignore[union-attr]
        return Split(None, self._op(after, "arith.trunci", self.lane_type(v), [v]))

    def _product(self, node: Node, v: Any, part: Split, by: Any) -> Split:
        if by is None:
            return Split(None, None)
        scalar = None if part.scalar is None else self._same(node, part.scalar, by)
        lane = None
        if part.lane is not None:
            narrow = by if type_info(by.type).bits == 32 else self._op(node, "arith.trunci", self.i32, [by])
            tile = self._op(node, "tt.splat", part.lane.type, [narrow])
            lane = self._op(node, "arith.muli", part.lane.type, [part.lane, tile])
        return Split(scalar, lane)

    # -- loops
    def _carried(self, v: Any) -> Split:
        region, number = self.function.arg_of[v]
        loop = region.parent
        if loop.name != "scf.for" or number == 0:
            raise Unsplit("tiles that change in a while loop")
        first = self.split(loop.operands[number + 2])
        scalar = first.scalar
        if scalar is None:
            type_ = type_info(v.type).element
            scalar = self._op(loop, "arith.constant", type_, [], {"value": ir.IntegerAttr.get(type_, 0)})
        (argument,), (result,) = add_carried(self.function, loop, [scalar], [scalar])
        mark = len(self._order)
        self._remember(v, Split(argument, first.lane))
        after = self._next(region, number, first, mark, v)
        end = region.ops[-1]
        self.function.set_operand(end, self.function.arg_of[argument][1] - 1, after.scalar)
        self._results[argument] = self.function.arg_of[argument]
        return Split(argument, first.lane)

    def _next(self, region: Any, number: int, first: Split, mark: int, v: Any) -> Split:
        """What the loop hands on. Where its lane part is another one, nothing that was derived from the guess is kept."""
        try:
            after = self.split(region.ops[-1].operands[number - 1])
            if after.lane != first.lane or after.scalar is None:
                raise Unsplit("a loop changes it by amounts that differ between elements")
        except Unsplit:
            for key in self._order[mark:]:
                del self._known[key]
            del self._order[mark:]
            raise
        return after

    def _after_loop(self, loop: Node, v: Any) -> Split:
        number = self.function.defs[v][1]
        part = self.split(loop.regions[0].args[number + 1])
        found = self.function.arg_of.get(part.scalar)
        if found is None or found[0] is not loop.regions[0]:
            raise Unsplit("what a loop leaves")
        return Split(loop.results[found[1] - 1], part.lane)

    # -- ops
    def lane_type(self, v: Any) -> Any:
        info = type_info(v.type)
        return ir.RankedTensorType.get(list(info.shape or ()), self.i32, info.encoding)

    def _op(self, anchor: Node, name: str, type_: Any, operands: Sequence[Any], attributes: dict[str, Any] | None = None) -> Any:
        return self.function.insert_before(anchor, name, [type_], operands, attributes).results[0]

    def _same(self, node: Node, a: Any, b: Any) -> Any:
        return self._op(node, node.name, a.type, [a, b])

    def _sum(self, node: Node, a: Any, b: Any) -> Any:
        if a is None or b is None:
            return b if a is None else a
        return self._op(node, "arith.addi", a.type, [a, b])
