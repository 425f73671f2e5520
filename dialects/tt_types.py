"""What the tt dialect's ops are made of: the dialect, its types, and the checks that ops share. ``tt`` has these names too."""

from collections.abc import Sequence
from typing import Any

from tilewright.dialects._mlir import ext, ir

MAX_VALUES = 8  # operands or results of an op with several_types


def segment_sizes(operands: int, results: int | None = None, slots: int = MAX_VALUES) -> dict[str, Any]:
    """The attributes every op with several_types carries: operandSegmentSizes (``slots`` slots, the first ``operands`` of them
    filled) and, with ``results`` (reduce, scan, elementwise_inline_asm), resultSegmentSizes likewise."""
    if max(operands, results or 0) > slots:
        raise ValueError(f"{max(operands, results or 0)} values given to an op that takes at most {slots}")
    sizes = {"operandSegmentSizes": operands}
    if results is not None:
        sizes["resultSegmentSizes"] = results
    return {name: ir.DenseI32ArrayAttr.get([1] * n + [0] * (slots - n)) for name, n in sizes.items()}


def several_types(op_class: Any, slots: int = MAX_VALUES) -> Any:
    """Decorator of ops whose variadic operands (and results) have unlike types, as argmax reduces floats beside integers.

    IRDL gives all values of one variadic operand one type. So it is told of ``slots`` optional ones, each with its own
    constraint, and the op carries ``segment_sizes``. ``op.operands`` and ``op.results`` list the values as ever; the field
    (``srcs``, ``results_``) only documents.
    """

    def emit() -> None:
        irdl = ext.irdl
        operands, attrs, results, regions = ext.partition_fields(op_class._fields)
        optional = [irdl.Variadicity.optional] * slots
        with ir.InsertionPoint(irdl.operation_(op_class._op_name).body):
            irdl.operands_([irdl.any() for _ in optional], [f"{operands[0].name}{i}" for i in range(slots)], optional)
            if attrs:
                irdl.attributes_([irdl.any() for _ in attrs], [a.name for a in attrs])
            if results and results[0].variadicity == irdl.Variadicity.variadic:
                irdl.results_([irdl.any() for _ in optional], [f"result{i}" for i in range(slots)], optional)
            elif results:
                irdl.results_([irdl.any()], [results[0].name], [irdl.Variadicity.single])
            if regions:
                irdl.regions_([irdl.region([]) for _ in regions], [r.name for r in regions])

    op_class._emit_operation = emit
    return op_class


class TT(ext.Dialect, name="tt"):
    """Tile operations without layouts."""


class PtrType(TT.Type, name="ptr"):
    """Pointer to ``pointee`` in address space ``space`` (1 = global). Text: ``!tt.ptr<f32, 1 : i32>``."""

    pointee: Any
    space: Any

    @staticmethod
    def of(pointee: Any, space: int = 1) -> "PtrType":
        return PtrType.get(pointee, ir.IntegerAttr.get(ir.IntegerType.get_signless(32), space))

    @property
    def pointee_type(self) -> Any:
        """The pointed-to ``ir.Type``."""
        return ir.TypeAttr(self.params[0]).value


class TensorDescType(TT.Type, name="tensordesc"):
    """A view of a strided tensor in memory that is read and written in blocks of ``block_shape`` elements of type ``element``.

    Text: ``!tt.tensordesc<array<i64: 128, 64>, f16>``. The tensor has as many dims as the block (1 to 5). Block dims are powers of
    two. A value of this type is made by tt.make_tensor_descriptor, or is a kernel argument that the host
    makes."""

    block_shape: Any
    element: Any

    @staticmethod
    def of(shape: Sequence[int], element: Any) -> "TensorDescType":
        return TensorDescType.get(ir.DenseI64ArrayAttr.get(list(shape)), element)

    @property
    def shape(self) -> list[int]:
        """The block's shape."""
        return list(ir.DenseI64ArrayAttr(self.params[0]))

    @property
    def element_type(self) -> Any:
        return ir.TypeAttr(self.params[1]).value

    @property
    def block_type(self) -> Any:
        """The tensor type (without encoding) of a whole block."""
        return ir.RankedTensorType.get(self.shape, self.element_type)


# ------------------------------------------------------------------------------------------------ tensor descriptors
def is_descriptor(type_: Any) -> bool:
    """Whether an ``ir.Type`` is ``!tt.tensordesc``."""
    return isinstance(type_, TensorDescType) or str(type_).startswith("!tt.tensordesc")


def descriptor_type(value: Any, what: str) -> TensorDescType:
    """The descriptor type of an ``ir.Value``. Raises ValueError where it is something else."""
    if not is_descriptor(value.type):
        raise ValueError(f"{what}: operand 0 must be a tensor descriptor, found {value.type}")
    return TensorDescType(value.type)


def make_descriptor_operands(op: Any) -> tuple[Any, list[Any], list[Any]]:
    """(base, shape, strides) of a tt.make_tensor_descriptor, the lists outermost dim first."""
    operands = list(op.operands)
    rank = (len(operands) - 1) // 2
    return operands[0], operands[1:1 + rank], operands[1 + rank:]


def require_ints(values: Sequence[Any], width: int, count: int, what: str) -> None:
    if len(values) != count or any(str(v.type) != f"i{width}" for v in values):
        raise ValueError(f"{what} needs {count} values of i{width}, found {[str(v.type) for v in values]}")


def without_leading_ones(shape: Sequence[int], rank: int) -> list[int]:
    """``shape`` with leading dims of size 1 dropped until ``rank`` dims are left; fewer where the first one is not 1."""
    shape = list(shape)
    while len(shape) > rank and shape[0] == 1:
        shape = shape[1:]
    return shape


def require_block(tensor: Any, desc: TensorDescType, what: str) -> None:
    found = ir.RankedTensorType(tensor.type)
    if found.element_type != desc.element_type or list(found.shape) != without_leading_ones(desc.shape, len(found.shape)):
        raise ValueError(f"{what}: a block {desc.shape} of {desc.element_type} (or it without leading dims of size 1) is needed, "
                         f"found {tensor.type}")


def require_rows(op: Any, tensor: Any, offsets: int, what: str) -> None:
    """The checks that gather and scatter share; ``offsets`` is the operand number of the row numbers."""
    desc = descriptor_type(op.operands[0], what)
    rows = ir.RankedTensorType(op.operands[offsets].type)
    found = ir.RankedTensorType(tensor.type)
    if len(desc.shape) != 2 or desc.shape[0] != 1:
        raise ValueError(f"{what}: the descriptor's block must be [1, columns], found {desc.shape}")
    if len(rows.shape) != 1 or str(rows.element_type) != "i32":
        raise ValueError(f"{what}: the row numbers must be a rank-1 tensor of i32, found {rows}")
    if list(found.shape) != [rows.shape[0], desc.shape[1]] or found.element_type != desc.element_type:
        raise ValueError(f"{what}: a tensor {[rows.shape[0], desc.shape[1]]} of {desc.element_type} is needed, found {found}")
    require_ints(list(op.operands)[offsets + 1:], 32, 1, f"{what}: the column offset")
