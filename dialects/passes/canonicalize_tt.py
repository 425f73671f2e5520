"""Simplify tt (or ttg): constants, identities, splats and broadcasts, loop invariants, dots that add, constant branches.

One forward walk, operands before their users, so that most chains collapse in a single visit; loops are then relieved of what
does not change in them. Upstream's canonicalizer costs 20 µs for each op that Python declares, and knows none of tt's rules.
What has no use any more is left for dce_cse.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import (
    Function,
    Node,
    Region,
    attribute_names,
    block_region_of,
    functions,
    is_removable,
    type_info,
    with_encoding,
)
from tilewright.dialects.passes import fold_constants as fc
from tilewright.dialects.passes.dce_cse import is_pure
from tilewright.dialects.pipeline import PassContext

_LOOPS = ("scf.for", "scf.while")
# elementwise ops of equal operand and result shapes, which commute with splat and broadcast
_ELEMENTWISE = ("arith.", "math.", "tt.addptr", "tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int", "tt.fp_to_fp", "tt.precise_",
                "tt.mulhiui", "tt.clampf")
_SHAPE_OPS = frozenset(("tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans"))
_COMBINERS = ("tt.reduce", "tt.scan", "tt.map_elementwise")
_DIVISIONS = ("arith.divsi", "arith.remsi", "arith.divui", "arith.remui", "arith.ceildivsi", "arith.ceildivui", "arith.floordivsi")


def run(module: Any, ctx: PassContext) -> None:
    """Before: any tt or ttg. After: the same meaning; arith on constants is folded, x+0, x*1, … are x, splats and broadcasts come
    after the arithmetic they commute with, ``dot(a, b, 0) + c`` is ``dot(a, b, c)``, branches on constants are gone, in combiners too, and pure ops
    that depend on nothing in a loop stand before it."""
    for function in functions(module):
        Simplifier(function).run()
        hoist_invariants(function)


class Simplifier:
    """Folds over one function's mirror, which it keeps up to date."""

    def __init__(self, function: Function):
        self.function = function
        self._constants: dict[Any, fc.Number | None] = {}

    def run(self) -> None:
        self._region(self.function.body)

    def _region(self, region: Region) -> None:
        position = 0
        while position < len(region.ops):
            node = region.ops[position]
            if node.name == "scf.if" and self._constant_branch(node):
                continue  # its contents stand here now
            if node.name in _COMBINERS:
                for inner in node.regions:
                    self._combiner(inner)
            if node.name == "scf.for":
                self._unchanged_carried(node)
            if node.name in ("scf.for", "scf.while", "scf.if") or block_region_of(node.name) is not None:
                for inner in node.regions:
                    self._region(inner)
            else:
                self._visit(node)
            # nodes made while visiting were inserted before this one: go on after it, wherever it is now
            while position < len(region.ops) and region.ops[position] is not node:
                position += 1
            position += 1

    def _combiner(self, region: Region) -> None:
        """Inside a combiner: no branch on a constant, and nothing that is not used (a helper that asks for a value's type leaves such)."""
        position = 0
        while position < len(region.ops):
            node = region.ops[position]
            if node.name != "scf.if" or not self._constant_branch(node):
                position += 1
        for node in reversed(list(region.ops)):
            if node.results and is_removable(node) and not any(True for r in node.results for _ in r.uses):
                self.function.erase(node)

    def _visit(self, node: Node) -> None:
        new = self.simplified(node)
        if new is not None and new is not node.results[0]:
            self.function.replace_uses(node.results[0], new)

    # -- values
    def constant(self, value: Any) -> fc.Number | None:
        """The number that every element of ``value`` is, if it is made by arith.constant."""
        if value in self._constants:
            return self._constants[value]
        node = self.function.def_node(value)
        found = fc.attribute_value(node.attr("value")) if node is not None and node.name == "arith.constant" else None
        self._constants[value] = found
        return found

    def make_constant(self, at: Node, type_: Any, number: fc.Number) -> Any:
        attr = fc.constant_attribute(type_, number)
        node = self.function.insert_before(at, "arith.constant", [type_], [], {"value": attr})
        self._constants[node.results[0]] = number
        return node.results[0]

    def make(self, at: Node, name: str, type_: Any, operands: list[Any], attributes: dict[str, Any] | None = None) -> Any:
        """A new op before ``at``, simplified in its turn."""
        node = self.function.insert_before(at, name, [type_], operands, attributes)
        new = self.simplified(node)
        return node.results[0] if new is None else new

    def splat_source(self, value: Any) -> Any:
        node = self.function.def_node(value)
        return node.operands[0] if node is not None and node.name == "tt.splat" else None

    # -- rules
    def simplified(self, node: Node) -> Any:
        """A value equal to the op's result, or None."""
        name = node.name
        if len(node.results) != 1:
            if name == "tt.store":
                self._store(node)
            return None
        if name == "arith.constant" or not node.operands:
            return None
        if name in ("tt.load", "ttg.async_copy_global_to_local"):
            return self._load(node) if name == "tt.load" else None
        type_ = node.results[0].type
        if name == "tt.splat":
            number = self.constant(node.operands[0])
            return self.make_constant(node, type_, number) if number is not None and type_info(type_).kind != "ptr" else None
        if name in _SHAPE_OPS:
            return self._shape_op(node)
        if name.startswith("arith."):
            new = self._constants_folded(node)
            if new is None:
                new = self._identity(node)
            if new is not None:
                return new
        elif name == "tt.fp_to_fp":
            new = self._constants_folded(node)
            if new is not None:
                return new
        elif name == "tt.addptr" and self.constant(node.operands[1]) == 0:
            return node.operands[0]
        elif name == "tt.bitcast" and node.operands[0].type == type_:
            return node.operands[0]
        elif name == "ttg.convert_layout" and node.operands[0].type == type_:
            return node.operands[0]
        if type_info(type_).shape is not None and name.startswith(_ELEMENTWISE):
            return self._scalar_first(node) or self._broadcast_last(node)
        return None

    def _constants_folded(self, node: Node) -> Any:
        numbers = [self.constant(v) for v in node.operands]
        if any(n is None for n in numbers):
            return None
        source, target = type_info(node.operands[0].type), type_info(node.results[0].type)
        predicate = node.int_attr("predicate") if node.name in ("arith.cmpi", "arith.cmpf") else None
        number = fc.fold(node.name, numbers, source, target, predicate)  # type: ignore[arg-type]
        return None if number is None else self.make_constant(node, node.results[0].type, number)

    def _identity(self, node: Node) -> Any:
        name, operands, type_ = node.name, node.operands, node.results[0].type
        if name == "arith.select":
            if operands[1] == operands[2]:
                return operands[1]
            condition = self.constant(operands[0])
            return None if condition is None else operands[1] if condition else operands[2]
        if len(operands) == 1:
            source = self.function.def_node(operands[0])
            if name == "arith.trunci" and source is not None and source.name in ("arith.extsi", "arith.extui") \
                    and source.operands[0].type == type_:
                return source.operands[0]
            if name in ("arith.extsi", "arith.extui") and source is not None and source.name == name:
                return self.make(node, name, type_, [source.operands[0]])
            return None
        if len(operands) != 2:
            return None
        a, b = operands
        left, right = self.constant(a), self.constant(b)
        if name in ("arith.addi", "arith.ori", "arith.xori") and left == 0:
            return b
        if name in ("arith.addi", "arith.subi", "arith.ori", "arith.xori", "arith.shli", "arith.shrsi", "arith.shrui") and right == 0:
            return a
        if name == "arith.muli":
            if left == 1 or right == 0:
                return b
            if right == 1 or left == 0:
                return a
        if name in ("arith.divsi", "arith.divui") and right == 1:
            return a
        if name in ("arith.remsi", "arith.remui") and right == 1:
            return self.make_constant(node, type_, 0)
        if name == "arith.andi":
            ones = 1 if type_info(type_).bits == 1 else -1
            if left == 0 or right == ones:
                return a
            if right == 0 or left == ones:
                return b
        if name == "arith.ori" and type_info(type_).bits == 1 and 1 in (left, right):
            return a if left == 1 else b
        if name in ("arith.andi", "arith.ori", "arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui", "arith.maximumf",
                    "arith.minimumf", "arith.maxnumf", "arith.minnumf") and a == b:
            return a
        if name in ("arith.subi", "arith.xori") and a == b:
            return self.make_constant(node, type_, 0)
        # x + (-0.0) and x - 0.0 are x for every x; x + 0.0 is not for x = -0.0
        if name == "arith.mulf" and 1.0 in (left, right):
            return b if left == 1.0 else a
        if name == "arith.divf" and right == 1.0:
            return a
        if name == "arith.subf" and right == 0.0 and str(right) == "0.0":
            return a
        if name == "arith.addf":
            if str(right) == "-0.0":
                return a
            if str(left) == "-0.0":
                return b
            return self._dot_accumulates(node, a, b) or self._dot_accumulates(node, b, a)
        return None

    def _dot_accumulates(self, node: Node, dot: Any, addend: Any) -> Any:
        """``dot(a, b, 0) + c`` as ``dot(a, b, c)`` where the dot has no other use. The sum's order changes, as in Triton.

        Not where the dot may add up in less precision than the program's own addition has (``max_num_imprecise_acc``)."""
        source = self.function.def_node(dot)
        if source is None or source.name != "tt.dot" or self.constant(source.operands[2]) != 0 or len(self.function.uses(dot)) != 1:
            return None
        if source.int_attr("max_num_imprecise_acc"):
            return None
        if source.region is not node.region and not self._same_iteration(source, node):
            return None
        attributes = {n: source.attr(n) for n in attribute_names(source.op)}
        return self.function.insert_before(node, "tt.dot", [node.results[0].type], [*source.operands[:2], addend], attributes,
                                           source.op.location).results[0]

    @staticmethod
    def _same_iteration(source: Node, node: Node) -> bool:
        """Whether the add runs at most once for each run of the dot: no loop lies between them."""
        parent = node.parent
        while parent is not None and parent is not source.parent:
            if parent.name in _LOOPS:
                return False
            parent = parent.parent
        return parent is not None

    def _shape_op(self, node: Node) -> Any:
        source, type_ = node.operands[0], node.results[0].type
        if source.type == type_ and (node.name != "tt.trans" or node.ints_attr("order") == sorted(node.ints_attr("order"))):
            return source
        number = self.constant(source)
        if number is not None and type_info(type_).kind != "ptr":
            return self.make_constant(node, type_, number)
        scalar = self.splat_source(source)
        if scalar is not None:
            return self.make(node, "tt.splat", type_, [scalar])
        inner = self.function.def_node(source)
        if inner is not None and inner.name == node.name and node.name == "tt.broadcast":
            return self.make(node, "tt.broadcast", type_, [inner.operands[0]])
        return None

    def _scalar_first(self, node: Node) -> Any:
        """An elementwise op on splats is the splat of the op on the scalars."""
        scalars = []
        for value in node.operands:
            scalar = self.splat_source(value)
            number = self.constant(value) if scalar is None else None
            if scalar is None and (number is None or type_info(value.type).kind == "ptr"):
                return None
            scalars.append((scalar, value, number))
        if all(scalar is None for scalar, _, _ in scalars):
            return None  # constants only: folding did not take it
        info = type_info(node.results[0].type)
        operands = [self.make_constant(node, type_info(v.type).element, n) if s is None else s for s, v, n in scalars]  # type: ignore[arg-type]
        if any(v.type != type_info(whole.type).element for v, (_, whole, _) in zip(operands, scalars)):
            return None
        value = self.make(node, node.name, info.element, operands, self._plain_attributes(node))
        return self.make(node, "tt.splat", node.results[0].type, [value])

    def _broadcast_last(self, node: Node) -> Any:
        """An elementwise op on broadcasts of one shape (and splats) is the broadcast of the op on what was broadcast."""
        small: Any = None
        for value in node.operands:
            source = self.function.def_node(value)
            if source is not None and source.name == "tt.broadcast":
                info = type_info(source.operands[0].type)
                if small is not None and (small.shape, small.encoding) != (info.shape, info.encoding):
                    return None
                small = info
            elif self.splat_source(value) is None and self.constant(value) is None:
                return None
        if small is None:
            return None
        operands = []
        for value in node.operands:
            source = self.function.def_node(value)
            assert source is not None
            if source.name == "tt.broadcast":
                operands.append(source.operands[0])
                continue
            type_ = self._shaped(small, type_info(value.type).element)
            number = self.constant(value)
            operands.append(self.make(node, "tt.splat", type_, [source.operands[0]]) if number is None
                            else self.make_constant(node, type_, number))
        result = self.make(node, node.name, self._shaped(small, type_info(node.results[0].type).element), operands,
                           self._plain_attributes(node))
        return self.make(node, "tt.broadcast", node.results[0].type, [result])

    @staticmethod
    def _shaped(like: Any, element: Any) -> Any:
        """The tensor type of ``like``'s shape and encoding with another element."""
        plain = ir.RankedTensorType.get(list(like.shape), element)
        return plain if like.encoding is None else with_encoding(plain, like.encoding)

    @staticmethod
    def _plain_attributes(node: Node) -> dict[str, Any]:
        """The op's attributes without the hints, which say something of its own shape."""
        hints = ("tt.divisibility", "tt.contiguity", "tt.constancy")
        return {n: node.attr(n) for n in attribute_names(node.op) if n not in hints}

    # -- memory
    def _load(self, node: Node) -> Any:
        if len(node.operands) < 2:
            return None
        mask = self.constant(node.operands[1])
        if mask is None:
            return None
        type_ = node.results[0].type
        if mask:
            attributes = {n: node.attr(n) for n in attribute_names(node.op)}
            attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 0, 0])
            return self.function.insert_before(node, "tt.load", [type_], node.operands[:1], attributes).results[0]
        if node.bool_attr("is_volatile"):
            return None
        if len(node.operands) == 3:
            return node.operands[2]
        return self.make_constant(node, type_, 0) if type_info(type_).kind in ("int", "float") else None

    def _store(self, node: Node) -> None:
        """A store that is never masked needs no mask; one that always is, is left to the lowering (rare)."""
        if len(node.operands) == 3 and self.constant(node.operands[2]):
            attributes = {n: node.attr(n) for n in attribute_names(node.op)}
            attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 1, 0])
            new = self.function.insert_before(node, "tt.store", [], node.operands[:2], attributes)
            region = node.region
            self.function.erase(node)
            assert region is not None and new in region.ops

    # -- control flow
    def _constant_branch(self, node: Node) -> bool:
        """Put the taken side of an scf.if on a constant in its place."""
        condition = self.constant(node.operands[0])
        if condition is None:
            return False
        function, region = self.function, node.region
        assert region is not None
        taken = next((r for r in node.regions if r.index == (0 if condition else 1)), None)
        if taken is not None:
            end = taken.ops.pop()
            at = next(i for i, n in enumerate(region.ops) if n is node)
            for inner in taken.ops:
                inner.op.move_before(node.op)
                inner.region = region
            region.ops[at:at] = taken.ops
            taken.ops = [end]
            for result, value in zip(node.results, end.operands):
                function.replace_uses(result, value)
        function.erase(node)
        return True

    def _unchanged_carried(self, loop: Node) -> None:
        """A loop-carried value that is yielded as it came is its initial value."""
        args, end = loop.regions[0].args, loop.regions[0].ops[-1]
        for i, result in enumerate(loop.results):
            if end.operands[i] in (args[i + 1], loop.operands[i + 3]):
                self.function.replace_uses(args[i + 1], loop.operands[i + 3], keep=end)
                self.function.replace_uses(result, loop.operands[i + 3])


# ----------------------------------------------------------------------------------------------- loop invariants
def _may_speculate(node: Node, simplifier: Simplifier) -> bool:
    """Whether the op may run though the loop's body never does: dividing by what may be zero traps on some machines."""
    if node.name in _DIVISIONS:
        divisor = simplifier.constant(node.operands[1])
        return divisor is not None and divisor not in (0, -1)
    return is_pure(node) and node.name != "tt.dot"


def hoist_invariants(function: Function) -> int:
    """Move pure ops before the outermost loop in which they depend on nothing; how many moves were made."""
    simplifier = Simplifier(function)
    moved = 0

    def visit(region: Region) -> None:
        for node in list(region.ops):
            if node.name in _LOOPS or node.name == "scf.if" or block_region_of(node.name) is not None:
                for inner in node.regions:
                    visit(inner)  # innermost first: what leaves an inner loop may then leave this one
            if node.name in _LOOPS and "tt.disable_licm" not in node.op.attributes:
                leave(node)

    def leave(loop: Node) -> None:
        nonlocal moved
        inside: set[Any] = set()  # values made in the loop and not moved
        for region in loop.regions:
            inside.update(region.args)
        for inner in loop.walk():
            inside.update(inner.results)
            for region in inner.regions:
                inside.update(region.args)
        outer = loop.region
        assert outer is not None
        for region in loop.regions:
            kept = []
            for node in region.ops:
                if node.results and not node.regions and _may_speculate(node, simplifier) \
                        and not any(v in inside for v in node.operands):
                    node.op.move_before(loop.op)
                    node.region = outer
                    at = next(i for i, n in enumerate(outer.ops) if n is loop)
                    outer.ops.insert(at, node)
                    inside.difference_update(node.results)
                    moved += 1
                else:
                    kept.append(node)
            region.ops[:] = kept

    visit(function.body)
    return moved
