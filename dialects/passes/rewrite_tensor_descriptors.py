"""Turn tensor descriptors into pointers: what every target can do, and what a target with descriptors does with those it does not keep.

    %d = tt.make_tensor_descriptor %base, [%m, %n], [%s, 1]        %p = base + (i64 i)·s + j
    %v = tt.descriptor_load %d[%i, %j]                      →      %v = tt.load %p + rows·s + columns, mask (i+rows <u m) & (j+columns <u n)

Offsets are 64-bit. One unsigned comparison a dim says "0 ≤ index < size", since sizes are not negative (a negative one counts as 0); an
index that wraps past 2^31 is negative and so outside. Dims of size 1 in the block cost a scalar comparison, which empties another dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects import tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, functions, type_info
from tilewright.dialects.errors import CompilationError, UnsupportedOnTargetError
from tilewright.dialects.pipeline import PassContext

_ULT, _SGE, _SLT = 6, 5, 2
_KINDS = {k: k for k in ("add", "fadd", "and", "or", "xor", "max", "min", "umax", "umin")}
KEPT = "tt.host"  # unit attribute of a tt.make_tensor_descriptor that the target keeps


def run(module: Any, ctx: PassContext) -> None:
    """Before: tt, without encodings. After: the same reads, writes and atomics, through tensors of pointers with masks; the only
    descriptor ops left are those of descriptors that the target keeps (made with the attribute ``tt.host``, or arguments of the
    kernel)."""
    for function in functions(module):
        rewriter = _Rewriter(function)
        for node in list(function.nodes()):
            if node.name in _RULES:
                rewriter.rewrite(node)
        for node in list(function.nodes()):
            if node.name == "tt.make_tensor_descriptor" and not function.uses(node.results[0]):
                function.erase(node)


class _Rewriter:
    """Makes the ops that stand in for a descriptor op, before it."""

    def __init__(self, function: Function):
        self.function = function
        self.at: Node = function.root
        self.i1, self.i32, self.i64 = (ir.IntegerType.get_signless(w) for w in (1, 32, 64))

    def rewrite(self, node: Node) -> None:
        op = node.op  # noqa: F841 - the runner takes the place of an error from here
        desc = node.operands[0]
        make = self.function.def_node(desc)
        if make is None and self.function.region_of(desc) is self.function.body or make is not None and KEPT in make.op.attributes:
            return
        if make is None or make.name != "tt.make_tensor_descriptor":
            raise CompilationError("which tensor descriptor is used here depends on a loop or a branch; make it where it is used")
        self.at = node
        result = _RULES[node.name](self, node, make)
        if result is not None:
            self.function.replace_uses(node.results[0], result)
        self.function.erase(node)

    # -- ops
    def op(self, name: str, type_: Any, *operands: Any, **attributes: Any) -> Any:
        return self.function.insert_before(self.at, name, [type_], operands, attributes).results[0]

    def int_(self, value: int, type_: Any) -> Any:
        return self.op("arith.constant", type_, value=ir.IntegerAttr.get(type_, value))

    def compare(self, predicate: int, a: Any, b: Any) -> Any:
        shape = type_info(a.type).shape
        type_ = self.i1 if shape is None else ir.RankedTensorType.get(list(shape), self.i1)
        return self.op("arith.cmpi", type_, a, b, predicate=ir.IntegerAttr.get(self.i64, predicate))

    def wide(self, value: Any) -> Any:
        """The i32 scalar or tensor in 64 bits."""
        shape = type_info(value.type).shape
        return self.op("arith.extsi", self.i64 if shape is None else ir.RankedTensorType.get(list(shape), self.i64), value)

    def splat(self, value: Any, shape: Sequence[int]) -> Any:
        return self.op("tt.splat", ir.RankedTensorType.get(list(shape), value.type), value)

    def range_(self, size: int) -> Any:
        return self.op("tt.make_range", ir.RankedTensorType.get([size], self.i32), start=ir.IntegerAttr.get(self.i32, 0),
                       end=ir.IntegerAttr.get(self.i32, size))

    def along(self, line: Any, dim: int, shape: Sequence[int]) -> Any:
        """The rank-1 tensor laid along ``dim`` of a tensor of ``shape``."""
        element, sizes = type_info(line.type).element, [shape[dim]]
        for d in range(len(shape)):
            if d != dim:
                sizes = sizes[:d] + [1] + sizes[d:]
                line = self.op("tt.expand_dims", ir.RankedTensorType.get(sizes, element), line, axis=ir.IntegerAttr.get(self.i32, d))
        return line if sizes == list(shape) else self.op("tt.broadcast", ir.RankedTensorType.get(list(shape), element), line)

    def combined(self, name: str, values: Sequence[Any]) -> Any:
        """The values under an op of two, or None where there are none."""
        out = None
        for v in values:
            out = v if out is None else self.op(name, v.type, out, v)
        return out

    # -- addresses and masks
    def moved(self, pointer: Any, offset: Any, stride: Any = None) -> Any:
        offset = self.wide(offset)
        return self.op("tt.addptr", pointer.type, pointer, offset if stride is None else self.op("arith.muli", self.i64, offset, stride))

    def tile(self, pointer: Any, offsets: Any, shape: Sequence[int]) -> Any:
        """The tensor of pointers ``pointer + offsets``; offsets is a tensor, or None for a tensor of one pointer."""
        pointers = self.splat(pointer, shape)
        return pointers if offsets is None else self.op("tt.addptr", pointers.type, pointers, offsets)

    def block(self, make: Node, indices: Sequence[Any], shape: Sequence[int]) -> tuple[Any, Any]:
        """(pointers, mask) of the block at ``indices``; ``shape`` is the block's, perhaps without leading dims of size 1."""
        pointer, sizes, strides = tt.make_descriptor_operands(make.op)
        rank = len(sizes)
        sizes = [self.not_negative(s) for s in sizes]
        for d, index in enumerate(indices):
            pointer = self.moved(pointer, index, strides[d] if d < rank - 1 else None)
        dims = [(d, d + rank - len(shape)) for d in range(len(shape)) if shape[d] > 1]  # (dim of the result, of the tensor)
        single = [d for d in range(rank) if d not in {b for _, b in dims}]
        inside = self.combined("arith.andi", [self.compare(_ULT, indices[d], sizes[d]) for d in single])
        if not dims:
            return self.tile(pointer, None, shape), self.splat(inside, shape)
        offsets, masks = [], []
        for d, b in dims:
            steps = self.range_(shape[d])
            index = self.op("arith.addi", steps.type, steps, self.splat(indices[b], [shape[d]]))
            size = sizes[b]
            if inside is not None:  # an empty dim empties the block
                size, inside = self.op("arith.select", self.i32, inside, size, self.int_(0, self.i32)), None
            masks.append(self.along(self.compare(_ULT, index, self.splat(size, [shape[d]])), d, shape))
            offsets.append(self.along(self.steps(steps, strides[b] if b < rank - 1 else None, shape[d]), d, shape))
        return self.tile(pointer, self.combined("arith.addi", offsets), shape), self.combined("arith.andi", masks)

    def steps(self, lines: Any, stride: Any, size: int) -> Any:
        """i64 line numbers times the stride (None: 1)."""
        lines = self.wide(lines)
        return lines if stride is None else self.op("arith.muli", lines.type, lines, self.splat(stride, [size]))

    def not_negative(self, size: Any) -> Any:
        return self.op("arith.maxsi", self.i32, size, self.int_(0, self.i32))

    def rows(self, make: Node, x: Any, y: Any, shape: Sequence[int]) -> tuple[Any, Any]:
        """(pointers, mask) of rows ``x`` (a tensor) from column ``y`` on."""
        pointer, sizes, strides = tt.make_descriptor_operands(make.op)
        height, width = (self.not_negative(s) for s in sizes)
        columns = self.range_(shape[1])
        index = self.op("arith.addi", columns.type, columns, self.splat(y, [shape[1]]))
        masks = [self.along(self.compare(_ULT, x, self.splat(height, [shape[0]])), 0, shape),
                 self.along(self.compare(_ULT, index, self.splat(width, [shape[1]])), 1, shape)]
        offsets = [self.along(self.steps(x, strides[0], shape[0]), 0, shape), self.along(self.wide(columns), 1, shape)]
        return self.tile(self.moved(pointer, y), self.combined("arith.addi", offsets), shape), self.combined("arith.andi", masks)

    # -- memory
    def load(self, node: Node, make: Node, pointers: Any, mask: Any) -> Any:
        type_ = node.results[0].type
        operands, element = [pointers, mask], type_info(type_).element
        if ir.StringAttr(make.attr("padding")).value == "nan":
            nan = ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get(element, float("nan")))
            operands.append(self.op("arith.constant", type_, value=nan))
        hints = {n: node.attr(n) if n in node.op.attributes else ir.StringAttr.get(default) for n, default in (("cache", "none"), ("evict", "normal"))}
        return self.op("tt.load", type_, *operands, is_volatile=ir.BoolAttr.get(False), **hints,
                       operandSegmentSizes=ir.DenseI32ArrayAttr.get([1, 1, len(operands) - 2]))

    def store(self, pointers: Any, value: Any, mask: Any) -> None:
        self.function.insert_before(self.at, "tt.store", [], [pointers, value, mask], {
            "cache": ir.StringAttr.get("none"), "evict": ir.StringAttr.get("normal"), "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 1])})

    def atomic(self, kind: str, pointers: Any, value: Any, mask: Any) -> None:
        self.op("tt.atomic_rmw", value.type, pointers, value, mask, rmw_op=ir.StringAttr.get(kind), sem=ir.StringAttr.get("relaxed"),
                scope=ir.StringAttr.get("gpu"), operandSegmentSizes=ir.DenseI32ArrayAttr.get([1, 1, 1]))

    def float_extremum(self, kind: str, pointers: Any, value: Any, mask: Any) -> None:
        """Floats order as signed integers where positive and inversely as unsigned integers where negative."""
        info, pointer = type_info(value.type), type_info(pointers.type)
        shape = list(info.shape or ())
        if info.bits < 32:
            raise UnsupportedOnTargetError(f"atomic_{kind[1:]} of {info.element} through a tensor descriptor: {info.bits}-bit floats have no "
                                           "atomic maximum and minimum here; use fp32")
        bits_type = ir.IntegerType.get_signless(info.bits)
        bits = self.op("tt.bitcast", ir.RankedTensorType.get(shape, bits_type), value)
        at = self.op("tt.bitcast", ir.RankedTensorType.get(shape, tt.PtrType.get(bits_type, pointer.element.params[1])), pointers)
        zero = self.op("arith.constant", bits.type, value=ir.DenseElementsAttr.get_splat(bits.type, ir.IntegerAttr.get(bits_type, 0)))
        for kind_here, predicate in zip(("max", "umin") if kind == "fmax" else ("min", "umax"), (_SGE, _SLT)):
            self.atomic(kind_here, at, bits, self.op("arith.andi", mask.type, mask, self.compare(predicate, bits, zero)))


def _shape(value: Any) -> list[int]:
    return list(type_info(value.type).shape or ())


def _load(r: _Rewriter, node: Node, make: Node) -> Any:
    return r.load(node, make, *r.block(make, node.operands[1:], _shape(node.results[0])))


def _gather(r: _Rewriter, node: Node, make: Node) -> Any:
    return r.load(node, make, *r.rows(make, node.operands[1], node.operands[2], _shape(node.results[0])))


def _store(r: _Rewriter, node: Node, make: Node) -> None:
    pointers, mask = r.block(make, node.operands[2:], _shape(node.operands[1]))
    r.store(pointers, node.operands[1], mask)


def _scatter(r: _Rewriter, node: Node, make: Node) -> None:
    pointers, mask = r.rows(make, node.operands[2], node.operands[3], _shape(node.operands[1]))
    r.store(pointers, node.operands[1], mask)


def _reduce(r: _Rewriter, node: Node, make: Node) -> None:
    kind, value = ir.StringAttr(node.attr("kind")).value, node.operands[1]
    pointers, mask = r.block(make, node.operands[2:], _shape(value))
    if kind in _KINDS:
        r.atomic(_KINDS[kind], pointers, value, mask)
    else:
        r.float_extremum(kind, pointers, value, mask)


_RULES: dict[str, Any] = {"tt.descriptor_load": _load, "tt.descriptor_gather": _gather, "tt.descriptor_store": _store,
                          "tt.descriptor_scatter": _scatter, "tt.descriptor_reduce": _reduce}
