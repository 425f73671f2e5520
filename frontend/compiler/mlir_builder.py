"""The Builder that makes tt IR.

Speed is what its form is about: types, attributes and locations are cached, ops are made with ``ir.Operation.create``, and
every constant is made once a function, in a block of its own at the start of the function. Use inside ``mlir_context()``.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.compiler import fp8e4b15
from tilewright.compiler.builder import Builder, Handle
from tilewright.dialects import tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import KernelWarning, TypeMismatchError, UnsupportedLanguageConstruct
from tilewright.dialects.pass_runner import place_of
from tilewright.language import dtypes as t

_CMPI = {"eq": 0, "ne": 1, "slt": 2, "sle": 3, "sgt": 4, "sge": 5, "ult": 6, "ule": 7, "ugt": 8, "uge": 9}
_CMPF = {"false": 0, "oeq": 1, "ogt": 2, "oge": 3, "olt": 4, "ole": 5, "one": 6, "ord": 7, "ueq": 8, "ugt": 9, "uge": 10,
         "ult": 11, "ule": 12, "une": 13, "uno": 14, "true": 15}
# ops with optional operands: how many operands each group has at most; all groups are single values
_SEGMENTED = {"tt.load": 3, "tt.store": 3, "tt.atomic_rmw": 3, "tt.histogram": 2, "tt.dot_scaled": 5}
# ops that carry tt.segment_sizes and are not region ops
_SEVERAL_TYPES = frozenset(("tt.print", "tt.extern_elementwise", "tt.elementwise_inline_asm"))
_FLOATS = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64", "fp8e4nv": "f8E4M3FN", "fp8e5": "f8E5M2", "fp8e4b8": "f8E4M3FNUZ",
           "fp8e5b16": "f8E5M2FNUZ"}


# ops that touch memory or the outside: not in the function of a map_elementwise
_EFFECTS = frozenset(("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.print", "tt.assert", "tt.debug_barrier"))
_OF_BITS = frozenset(("tt.fp_to_fp", "tt.bitcast"))


class MLIRBuilder(Builder):
    """Builds into the block of ``ip``. ``location`` is a function that gives the current ``ir.Location``."""

    is_interpreter = False

    def __init__(self, options: Any = None):
        self.options = options
        self.ip: Any = None
        self._block: Any = None  # the block of ip, compared to know whether an insertion point can be kept
        self.loc: Any = ir.Location.unknown()
        self.constants_at: Any = None  # insertion point of constants
        self._constants: dict[Any, Any] = {}
        self._types: dict[Any, Any] = {}
        self._attrs: dict[Any, Any] = {}
        self._i8 = ir.IntegerType.get_signless(8)
        self._i32 = ir.IntegerType.get_signless(32)
        self._i64 = ir.IntegerType.get_signless(64)
        self.unit = ir.UnitAttr.get()
        self.arg_hints: dict[int, dict[str, Any]] = {}  # of the kernel's arguments
        self.entry: Any = None

    def warn(self, text: str) -> None:
        place = place_of(self.loc)
        if place is None:
            super().warn(text)
        else:
            warnings.warn_explicit(text, KernelWarning, place[0], place[1])

    # -- types and attributes --------------------------------------------------------------------------------------
    def type(self, type: Any) -> Any:
        """The ir.Type of a language type. Pointers to int1 point to i8, which is what memory holds."""
        found = self._types.get(type)
        if found is None:
            found = self._types[type] = self._make_type(type)
        return found

    def _make_type(self, type: Any) -> Any:
        if type.is_block():
            return ir.RankedTensorType.get(type.shape, self.type(type.element_ty))
        if type.is_ptr():
            pointee = type.element_ty
            return tt.PtrType.of(self.type(t.int8 if pointee.is_bool() else pointee), type.address_space)
        if type.is_int():
            return ir.IntegerType.get_signless(type.int_bitwidth)
        if isinstance(type, t.tensor_descriptor_type):
            return tt.TensorDescType.of(type.block_shape, self.type(t.int8 if type.element_ty.is_bool() else type.element_ty))
        if type.is_fp8e4b15():
            return ir.IntegerType.get_signless(8)
        name = _FLOATS.get(type.name)
        if name is None:
            raise TypeMismatchError(f"there are no values of type {type}")
        return ir.Type.parse(name)

    def attr(self, op: str, name: str, value: Any) -> Any:
        key: Any = (name, value.__class__, tuple(value) if value.__class__ is list else value)
        if name == "predicate":
            key = (op, value)
        found = self._attrs.get(key)
        if found is None:
            if name == "predicate":
                found = ir.IntegerAttr.get(self._i64, (_CMPI if op == "arith.cmpi" else _CMPF)[value])
            elif isinstance(value, bool):
                found = ir.BoolAttr.get(value)
            elif isinstance(value, int):
                found = ir.IntegerAttr.get(self._i32, value)
            elif isinstance(value, str):
                found = ir.StringAttr.get(value)
            else:
                found = ir.DenseI32ArrayAttr.get(list(value))
            self._attrs[key] = found
        return found

    # -- Builder ---------------------------------------------------------------------------------------------------
    def create(self, op: str, operands: Sequence[Handle | None], result_types: Sequence[Any], attrs: dict[str, Any] | None = None,
               ) -> list[Handle]:
        if op in _OF_BITS and (handled := self._of_codes(op, operands, result_types, attrs)) is not None:
            return [handled]
        attributes = {k: self.attr(op, k, v) for k, v in attrs.items()} if attrs else {}
        if op in _SEGMENTED:
            present = [o for o in operands if o is not None]
            segments = [int(o is not None) for o in operands]
            attributes["operandSegmentSizes"] = self.attr(op, "operandSegmentSizes", segments)
            operands = present
        elif op == "tt.make_tensor_descriptor":
            rank = len(operands) // 2
            attributes["operandSegmentSizes"] = self.attr(op, "operandSegmentSizes", [1, rank, rank])
        elif op in _SEVERAL_TYPES:
            attributes |= tt.segment_sizes(len(operands), len(result_types) if op == "tt.elementwise_inline_asm" else None)
        types = self._types
        made = ir.Operation.create(op, results=[types.get(r) or self.type(r) for r in result_types], operands=operands,
                                   attributes=attributes, loc=self.loc, ip=self.ip)
        if len(result_types) == 1:
            return [made.result]
        return list(made.results)

    def _of_codes(self, op: str, operands: Sequence[Any], result_types: Sequence[Any], attrs: Any) -> Handle | None:
        """A conversion from or to fp8e4b15, whose values are i8 codes; None where neither type is that."""
        source = getattr(operands[0].type, "element_type", operands[0].type)
        if op == "tt.bitcast":
            return operands[0] if operands[0].type == self.type(result_types[0]) else None
        if result_types[0].scalar.is_fp8e4b15() or source == self._i8:
            return fp8e4b15.convert(self, operands[0], result_types[0], attrs["rounding"])
        return None

    def constant(self, value: Any, type: Any) -> Handle:
        scalar = type.scalar
        key = (struct.pack("d", value) if scalar.is_floating() else int(value), type)
        found = self._constants.get(key)
        if found is not None:
            return found
        mlir_type, element = self.type(type), self.type(scalar)
        if scalar.is_fp8e4b15():
            value, scalar = fp8e4b15.code_of(value), t.int8
        attr = ir.FloatAttr.get(element, float(value)) if scalar.is_floating() else ir.IntegerAttr.get(element, self._signed(int(value), scalar))
        if type.is_block():
            attr = ir.DenseElementsAttr.get_splat(mlir_type, attr)
        made = ir.Operation.create("arith.constant", results=[mlir_type], attributes={"value": attr}, loc=self.loc, ip=self.constants_at)
        self._constants[key] = made.result
        return made.result

    @staticmethod
    def _signed(value: int, scalar: Any) -> int:
        """IntegerAttr takes values as the two's complement of its width writes them."""
        width = scalar.int_bitwidth
        value &= (1 << width) - 1
        if width == 1:
            return value
        return value - (1 << width) if value >> (width - 1) else value

    def region_op(self, op: str, operands: Sequence[Handle], result_types: Sequence[Any], attrs: dict[str, Any],
                  scalar_types: Sequence[Any], combine: Callable[[list[Handle]], list[Handle]]) -> list[Handle]:
        made = ir.Operation.create(op, results=[self.type(r) for r in result_types], operands=list(operands),
                                   attributes={k: self.attr(op, k, v) for k, v in attrs.items()}
                                   | tt.segment_sizes(len(operands), len(result_types)), regions=1, loc=self.loc, ip=self.ip)
        scalars = [self.type(s) for s in scalar_types]
        block = ir.Block.create_at_start(made.regions[0], [*scalars, *scalars], [self.loc] * (2 * len(scalars)))
        # constants of a combiner stay inside it, so that it can be cloned and lowered by itself
        saved = self.ip, self.constants_at, self._constants
        self.ip = ir.InsertionPoint(block)
        self.constants_at, self._constants = self.ip, {}
        try:
            outs = combine(list(block.arguments))
            ir.Operation.create("tt.reduce_return" if op == "tt.reduce" else "tt.scan_return", operands=list(outs),
                                attributes=tt.segment_sizes(len(outs)), loc=self.loc, ip=self.ip)
        finally:
            self.ip, self.constants_at, self._constants = saved
        return list(made.results)

    def map_op(self, operands: Sequence[Handle], tile: Any, scalar_types: Sequence[Any], pack: int,
               function: Callable[[list[Handle]], tuple[list[Handle], list[Any]]]) -> tuple[list[Handle], list[Any]]:
        # the region first, since only then are the results' types known; its holder stands in the module meanwhile
        holder = ir.Operation.create("scf.if", regions=1, loc=self.loc, ip=self.ip)
        scalars = [self.type(s) for s in scalar_types for _ in range(pack)]
        block = ir.Block.create_at_start(holder.regions[0], scalars, [self.loc] * len(scalars))
        saved = self.ip, self.constants_at, self._constants
        self.ip = ir.InsertionPoint(block)
        self.constants_at, self._constants = self.ip, {}
        try:
            outs, types = function(list(block.arguments))
            if len(outs) > tt.MAX_MAPPED or len(types) > tt.MAX_VALUES or len(operands) > tt.MAX_VALUES:
                raise UnsupportedLanguageConstruct(f"map_elementwise takes up to {tt.MAX_VALUES} tensors and gives up to {tt.MAX_VALUES}, "
                                                   f"{tt.MAX_MAPPED} values a call; here {len(operands)} and {len(types)}, {len(outs)} a call")
            ir.Operation.create("tt.map_elementwise_return", operands=list(outs), attributes=tt.segment_sizes(len(outs), None, tt.MAX_MAPPED),
                                loc=self.loc, ip=self.ip)
        finally:
            self.ip, self.constants_at, self._constants = saved
        self._only_computes(block)
        made = ir.Operation.create("tt.map_elementwise", results=[self.type(tile.with_element_ty(r)) for r in types], operands=list(operands),
                                   attributes={"pack": self.attr("", "pack", pack)} | tt.segment_sizes(len(operands), len(types)), regions=1,
                                   loc=self.loc, ip=self.ip)
        block.append_to(made.regions[0])
        holder.erase()
        return list(made.results), types

    @staticmethod
    def _only_computes(block: Any) -> None:
        """The function of a map_elementwise is called as often as a target likes, so it may not touch memory or print."""
        found: list[str] = []

        def visit(op: Any) -> Any:  # an error raised in here would lose its class
            if op.name in _EFFECTS or op.name.startswith("tt.descriptor_"):
                found.append(f"the function of map_elementwise may only compute with scalars; it uses {op.name}. Load before it, and store, "
                             "print and check what it returns")
            elif any(isinstance(v.type, ir.RankedTensorType) for v in (*op.operands, *op.results)):
                found.append(f"the function of map_elementwise works on scalars; it makes or uses a tensor ({op.name})")
            return ir.WalkResult.ADVANCE

        for op in block.operations:
            op.operation.walk(visit)
        if found:
            raise UnsupportedLanguageConstruct(found[0])

    def set_hint(self, handle: Handle, name: str, values: Sequence[int]) -> None:
        owner = handle.owner
        values = list(values)
        if isinstance(owner, ir.Block):
            # of block arguments, only a function's can carry hints; those of loops are found by the analysis
            if owner == self.entry:
                self.arg_hints.setdefault(ir.BlockArgument(handle).arg_number, {})[name] = (
                    self.attr("", name, values[0]) if name == "tt.divisibility" and len(values) == 1 else ir.DenseI32ArrayAttr.get(values))
            return
        owner.attributes[name] = ir.DenseI32ArrayAttr.get(values)

    @contextmanager
    def in_function(self, entry: Any, location: Any) -> Iterator[dict[int, dict[str, Any]]]:
        """Build into a function whose first block is ``entry``: constants of its own, and hints of its arguments, which are given."""
        saved = self.ip, self.loc, self.constants_at, self._constants, self.entry, self.arg_hints
        anchor = ir.Operation.create("builtin.unrealized_conversion_cast", loc=location, ip=ir.InsertionPoint(entry))
        self.constants_at, self._constants = ir.InsertionPoint(anchor), {}
        self.ip, self.loc, self.entry, self.arg_hints = ir.InsertionPoint(entry), location, entry, {}
        try:
            yield self.arg_hints
        finally:
            self.ip, self.loc, self.constants_at, self._constants, self.entry, self.arg_hints = saved
            anchor.erase()

    # -- blocks ----------------------------------------------------------------------------------------------------
    def new_region(self, regions: int = 1) -> Any:
        """A detached op that only owns regions until their blocks are moved."""
        return ir.Operation.create("builtin.unrealized_conversion_cast", regions=0, loc=self.loc, ip=False) if not regions else \
            ir.Operation.create("scf.execute_region", regions=regions, loc=self.loc, ip=False)
