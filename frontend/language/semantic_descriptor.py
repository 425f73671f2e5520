"""What the calls on tensor descriptors mean: checks, and the descriptor ops of tt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects.errors import ShapeMismatchError, TypeMismatchError
from tilewright.language import dtypes as t
from tilewright.language.block_pointer import BlockPointerSemantic
from tilewright.language.const import unwrap
from tilewright.language.dtypes import block_type, tensor_descriptor_type
from tilewright.language.semantic_base import describe
from tilewright.language.tensor_descriptor import tensor_descriptor
from tilewright.language.values import tensor

MAX_RANK = 5
MIN_ROW_BYTES = 16
MAX_SIZE = 2**31 - 1


def _listed(values: Any, what: str) -> list[Any]:
    values = unwrap(values)
    if isinstance(values, tensor) or not hasattr(values, "__iter__"):
        raise TypeMismatchError(f"the {what} of a tensor descriptor are a list, one entry a dim, not {describe(values)}")
    return [unwrap(v) for v in values]


class DescriptorSemantic(BlockPointerSemantic):
    """Operations on tensor descriptors."""

    # -- making ----------------------------------------------------------------------------------------------------
    def make_tensor_descriptor(self, base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: Any = "zero") -> tensor_descriptor:
        if not isinstance(base, tensor) or not base.type.is_ptr():
            raise TypeMismatchError(f"the base of a tensor descriptor is a scalar pointer, not {describe(base)}")
        element = base.type.element_ty
        if element.is_ptr():
            raise TypeMismatchError("a tensor descriptor of pointers is not part of the language")
        sizes, steps = _listed(shape, "sizes"), _listed(strides, "strides")
        block = self.shape_of(block_shape)
        rank = len(sizes)
        if not 1 <= rank <= MAX_RANK:
            raise ShapeMismatchError(f"a tensor descriptor has 1 to {MAX_RANK} dims, not {rank}")
        for found, what in ((steps, "strides"), (block, "block_shape")):
            if len(found) != rank:
                raise ShapeMismatchError(f"a tensor descriptor of {rank} dims takes {rank} entries of {what}, not {len(found)}")
        tile = block_type(element, block)  # raises where a size is no power of two
        if block[-1] * element.itemsize < MIN_ROW_BYTES:
            raise ShapeMismatchError(f"the last dim of a descriptor's block has at least {MIN_ROW_BYTES} bytes; {block[-1]} elements of {element} "
                                     f"have {block[-1] * element.itemsize}")
        if not self._is_one(steps[-1]):
            raise TypeMismatchError("the last stride of a tensor descriptor is 1, known while compiling (a constexpr, or an argument of "
                                    f"value 1), not {describe(steps[-1])}")
        padding = unwrap(padding_option) or "zero"
        if padding not in ("zero", "nan"):
            raise TypeMismatchError(f'padding_option is "zero" or "nan", not {padding!r}')
        if padding == "nan" and not element.is_floating():
            raise TypeMismatchError(f'padding_option "nan" is for floats, not {element}')
        return self.made(tensor_descriptor(None, base, [self._tensor_size(s) for s in sizes], [self._tensor_stride(s) for s in steps[:-1]],
                                           tensor_descriptor_type(tile, padding)))

    def _is_one(self, stride: Any) -> bool:
        if not isinstance(stride, tensor):
            return bool(stride == 1)
        if stride.const is not None:
            return bool(stride.const == 1)
        return self.builder.is_interpreter and self.builder.concrete(stride.handle) == 1

    def _descriptor_integer(self, value: Any, what: str) -> tensor:
        value = self.to_tensor(value)
        if value.type.is_block() or not value.type.is_int() or value.type.is_bool():
            raise TypeMismatchError(f"the {what} of a tensor descriptor are integer scalars, not {value.type}")
        return value

    def _tensor_size(self, value: Any) -> tensor:
        """int32; a greater size does as well as the greatest, since offsets do not reach beyond."""
        value = self._descriptor_integer(value, "sizes")
        if value.type == t.int32:
            return value
        if value.type.int_bitwidth >= 32:
            value = self.minimum(self.cast(value, t.int64) if value.type != t.uint64 else value, MAX_SIZE)
        return self.cast(value, t.int32)

    def _tensor_stride(self, value: Any) -> tensor:
        return self.cast(self._descriptor_integer(value, "strides"), t.int64)

    def made(self, desc: tensor_descriptor) -> tensor_descriptor:
        """The descriptor with its op made here."""
        parts = [*desc.parts, self.constant(1, t.int64)]
        (handle,) = self.builder.create("tt.make_tensor_descriptor", [p.handle for p in parts], [desc.type], {"padding": desc.type.padding})
        return tensor_descriptor(handle, desc.base, desc.sizes, desc.leading_strides, desc.type)

    # -- checks ----------------------------------------------------------------------------------------------------
    def _descriptor(self, desc: Any, what: str) -> Any:
        """The handle."""
        if not isinstance(desc, tensor_descriptor):
            raise TypeMismatchError(f"{what} goes through a tensor descriptor (tl.make_tensor_descriptor), not {describe(desc)}")
        return desc.handle if desc.handle is not None else self.made(desc).handle

    def _descriptor_offset(self, value: Any) -> Any:
        value = self._descriptor_integer(value, "offsets")
        if value.type.int_bitwidth > 32:
            raise TypeMismatchError(f"the offsets into a tensor descriptor have 32 bits, not {value.type}; cast with .to(tl.int32)")
        return self.cast(value, t.int32).handle

    def _descriptor_offsets(self, desc: tensor_descriptor, offsets: Any) -> list[Any]:
        listed = _listed(offsets, "offsets")
        if len(listed) != len(desc.block_shape):
            raise ShapeMismatchError(f"a tensor descriptor of blocks {desc.block_shape} takes {len(desc.block_shape)} offsets, not {len(listed)}")
        return [self._descriptor_offset(v) for v in listed]

    def _written(self, desc: tensor_descriptor, value: Any, shape: list[int], what: str) -> Any:
        """The handle of the block to write, cast to what memory holds."""
        value = self.to_tensor(value)
        if desc.base.type.is_const():
            raise TypeMismatchError(f"{what} through a descriptor of a pointer to const")
        if list(value.shape) != shape:
            raise ShapeMismatchError(f"{what} through a descriptor of blocks {desc.block_shape} takes a value of shape {shape}, not {list(value.shape)}")
        value = self.cast(value, desc.dtype)
        return (self.cast(value, t.int8) if desc.dtype.is_bool() else value).handle

    def _row_numbers(self, desc: tensor_descriptor, x_offsets: Any, what: str) -> tensor:
        if len(desc.block_shape) != 2 or desc.block_shape[0] != 1:
            raise ShapeMismatchError(f"{what} goes through a descriptor of blocks [1, columns], not {desc.block_shape}")
        if not isinstance(x_offsets, tensor) or len(x_offsets.shape) != 1 or not x_offsets.dtype.is_int() or x_offsets.dtype.is_bool():
            raise TypeMismatchError(f"the row numbers of {what} are a tensor of one dim of int32, not {describe(x_offsets)}")
        if x_offsets.dtype.int_bitwidth > 32:
            raise TypeMismatchError(f"the row numbers of {what} have 32 bits, not {x_offsets.dtype}; cast with .to(tl.int32)")
        return self.cast(x_offsets, t.int32)

    def _loaded(self, op: str, desc: tensor_descriptor, operands: list[Any], shape: Sequence[int], attrs: dict[str, Any]) -> tensor:
        stored = t.int8 if desc.dtype.is_bool() else desc.dtype
        type = block_type(stored, shape)
        value = tensor(self.builder.create(op, operands, [type], attrs)[0], type)
        return self.cast(value, t.int1) if desc.dtype.is_bool() else value

    # -- memory ----------------------------------------------------------------------------------------------------
    def descriptor_load(self, desc: Any, offsets: Any) -> tensor:
        handle = self._descriptor(desc, "load")
        return self._loaded("tt.descriptor_load", desc, [handle, *self._descriptor_offsets(desc, offsets)], desc.block_shape, {"cache": "none", "evict": "normal"})

    @staticmethod
    def _writable(desc: Any, what: str) -> None:
        base = getattr(desc, "base", None)
        if base is not None and base.type.is_const():
            raise TypeMismatchError(f"{what} through a descriptor of a pointer to const")

    def descriptor_store(self, desc: Any, offsets: Any, value: Any) -> None:
        self._writable(desc, "store")
        handle = self._descriptor(desc, "store")
        at = self._descriptor_offsets(desc, offsets)
        self.builder.create("tt.descriptor_store", [handle, self._written(desc, value, desc.block_shape, "store"), *at], [], {})

    def descriptor_gather(self, desc: Any, x_offsets: Any, y_offset: Any) -> tensor:
        handle = self._descriptor(desc, "gather")
        rows = self._row_numbers(desc, unwrap(x_offsets), "gather")
        return self._loaded("tt.descriptor_gather", desc, [handle, rows.handle, self._descriptor_offset(unwrap(y_offset))],
                            [rows.shape[0], desc.block_shape[1]], {})

    def descriptor_scatter(self, desc: Any, value: Any, x_offsets: Any, y_offset: Any) -> None:
        self._writable(desc, "scatter")
        handle = self._descriptor(desc, "scatter")
        rows = self._row_numbers(desc, unwrap(x_offsets), "scatter")
        block = self._written(desc, value, [rows.shape[0], desc.block_shape[1]], "scatter")
        self.builder.create("tt.descriptor_scatter", [handle, block, rows.handle, self._descriptor_offset(unwrap(y_offset))], [], {})

    def descriptor_reduce(self, op: str, desc: Any, offsets: Any, value: Any) -> None:
        """``op`` in add, and, or, xor, max, min."""
        self._writable(desc, f"atomic_{op}")
        handle = self._descriptor(desc, f"atomic_{op}")
        element = desc.dtype
        narrow = element.primitive_bitwidth < 32
        if element.is_fp8() or narrow and not (element.is_floating() and op in ("add", "max", "min")):
            raise TypeMismatchError(f"atomic_{op} through a tensor descriptor does not support {element}: it works on 32- and 64-bit values"
                                    + (", fp16 and bf16" if op == "add" else ""))
        if op in ("and", "or", "xor") and not element.is_int():
            raise TypeMismatchError(f"atomic_{op} works on integers, not {element}")
        at = self._descriptor_offsets(desc, offsets)
        block = self._written(desc, value, desc.block_shape, f"atomic_{op}")
        kind = op
        if element.is_floating():
            kind = f"f{op}"
        elif op in ("max", "min") and not element.is_int_signed():
            kind = f"u{op}"
        self.builder.create("tt.descriptor_reduce", [handle, block, *at], [], {"kind": kind})
