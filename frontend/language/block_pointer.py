"""Block pointers: a window of ``block_shape`` into a strided array, moved by ``advance``.

They exist in the frontend only: loads and stores become ordinary tensors of pointers with masks, so every target has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects.errors import ShapeMismatchError, TypeMismatchError
from tilewright.language import dtypes as t
from tilewright.language.const import unwrap
from tilewright.language.dtypes import block_type, pointer_type
from tilewright.language.semantic_base import describe
from tilewright.language.semantic_tile import TileSemantic
from tilewright.language.values import base_value, current_semantic, tensor


class block_pointer(base_value):
    """``base`` is a scalar pointer; ``sizes``, ``strides`` and ``offsets`` are integer scalars, one a dim of ``block_shape``."""

    __slots__ = ("base", "sizes", "strides", "offsets", "block_shape", "order")

    def __init__(self, base: tensor, sizes: Sequence[tensor], strides: Sequence[tensor], offsets: Sequence[tensor],
                 block_shape: Sequence[int], order: Sequence[int]):
        self.base, self.sizes, self.strides, self.offsets = base, list(sizes), list(strides), list(offsets)
        self.block_shape, self.order = list(block_shape), list(order)

    @property
    def type(self) -> Any:  # type: ignore[override]
        """A pointer to a block, as in Triton: ``type.element_ty.element_ty`` is the array's type."""
        return pointer_type(block_type(self.base.type.element_ty, self.block_shape), self.base.type.address_space)

    @property
    def dtype(self) -> Any:
        return self.type

    @property
    def parts(self) -> list[Any]:
        """The run-time values in it."""
        return [self.base, *self.sizes, *self.strides, *self.offsets]

    def with_parts(self, parts: Sequence[Any]) -> block_pointer:
        n = len(self.block_shape)
        return block_pointer(parts[0], parts[1:1 + n], parts[1 + n:1 + 2 * n], parts[1 + 2 * n:], self.block_shape, self.order)

    def same_form(self, other: Any) -> bool:
        """Whether the compile-time parts agree."""
        return isinstance(other, block_pointer) and self.block_shape == other.block_shape and self.order == other.order

    def advance(self, offsets: Any, _semantic: Any = None) -> block_pointer:
        """See tl.advance."""
        return (_semantic or current_semantic()).advance(self, offsets)

    advance.__triton_builtin__ = True  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"block pointer to {self.block_shape} of {self.base.type.element_ty}"


class BlockPointerSemantic(TileSemantic):
    """Operations on block pointers."""

    def _scalars(self, values: Any, count: int, what: str, offset: bool = False) -> list[tensor]:
        values = unwrap(values)
        values = list(values) if hasattr(values, "__iter__") and not isinstance(values, tensor) else [values]
        if len(values) != count:
            raise ShapeMismatchError(f"the {what} of a block pointer are {count} integers, one a dim of the block, not {len(values)}")
        out = []
        for v in values:
            v = self.to_tensor(v)
            if v.type.is_block() or not v.type.is_int():
                raise TypeMismatchError(f"the {what} of a block pointer are integer scalars, not {v.type}")
            if offset and v.type.int_bitwidth > 32:
                raise TypeMismatchError(f"the {what} of a block pointer have 32 bits, not {v.type}; cast with .to(tl.int32), or add the "
                                        "large part to the base")
            out.append(self.cast(v, t.int32) if offset else v)
        return out

    def make_block_ptr(self, base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any) -> block_pointer:
        if not isinstance(base, tensor) or not base.type.is_ptr():
            raise TypeMismatchError(f"the base of a block pointer is a scalar pointer, not {describe(base)}")
        block = self.shape_of(block_shape)
        block_type(t.int32, block)  # raises where a size is no power of two
        order = self.shape_of(order)
        if sorted(order) != list(range(len(block))):
            raise ShapeMismatchError(f"the order of a block pointer is a permutation of its {len(block)} dims, not {order}")
        n = len(block)
        return block_pointer(base, self._scalars(shape, n, "shape"), self._scalars(strides, n, "strides"),
                             self._scalars(offsets, n, "offsets", offset=True), block, order)

    def advance(self, pointer: Any, offsets: Any) -> block_pointer:
        if not isinstance(pointer, block_pointer):
            raise TypeMismatchError(f"advance moves a block pointer (tl.make_block_ptr), not {describe(pointer)}")
        moves = self._scalars(offsets, len(pointer.block_shape), "offsets", offset=True)
        new = [old if by.const == 0 else self.add(old, by, False) for old, by in zip(pointer.offsets, moves)]
        return block_pointer(pointer.base, pointer.sizes, pointer.strides, new, pointer.block_shape, pointer.order)

    def _along(self, pointer: block_pointer, dim: int) -> tensor:
        """0, 1, … along ``dim`` of the block, size 1 elsewhere."""
        index = self.arange(0, pointer.block_shape[dim])
        for d in range(len(pointer.block_shape)):
            if d != dim:
                index = self.expand_dims(index, d)
        return index

    def block_addresses(self, pointer: block_pointer) -> tensor:
        """The tensor of pointers. What is one for the block is added to the base as a scalar, in 64 bits."""
        address = pointer.base
        for offset, stride in zip(pointer.offsets, pointer.strides):
            if offset.const == 0:
                continue
            if stride.const == 1:
                address = self.addptr(address, offset)
            else:
                address = self.addptr(address, self.mul(self.cast(offset, t.int64), self.cast(stride, t.int64)))
        addresses: Any = address
        for dim, (stride, size) in enumerate(zip(pointer.strides, pointer.block_shape)):
            if size == 1:
                continue
            steps = self._along(pointer, dim)
            if stride.const is not None and abs(stride.const) * size < 2**31:
                steps = steps if stride.const == 1 else self.mul(steps, stride.const, False)
            else:
                steps = self.mul(self.cast(steps, t.int64), self.cast(stride, t.int64))
            addresses = self.addptr(*self.broadcast(addresses, steps))
        return self.broadcast_to_rank(addresses, pointer.block_shape)

    def block_mask(self, pointer: block_pointer, boundary_check: Any) -> tensor | None:
        """Where the block lies inside the array, in the dims of ``boundary_check``."""
        mask = None
        named = [self._dim(d, len(pointer.block_shape)) for d in self.shape_of(boundary_check if boundary_check is not None else ())]
        dims = sorted(set(named))
        if len(dims) != len(named):
            raise ShapeMismatchError(f"boundary_check names each dim once, not {named}")
        for dim in dims:
            index = self.add(self._along(pointer, dim), pointer.offsets[dim], False)
            inside = self.and_(self.greater_equal(index, 0), self.less_than(index, pointer.sizes[dim]))
            mask = inside if mask is None else self.and_(mask, inside)
        return None if mask is None else self.broadcast_to_rank(mask, pointer.block_shape)

    @staticmethod
    def _dim(dim: int, rank: int) -> int:
        if not -rank <= dim < rank:
            raise ShapeMismatchError(f"boundary_check names dim {dim} of a block of {rank} dims")
        return dim % rank

    def load(self, ptr: Any, mask: Any = None, other: Any = None, boundary_check: Any = (), padding_option: Any = "",
             cache_modifier: Any = "", eviction_policy: Any = "", volatile: Any = False) -> tensor:
        if not isinstance(ptr, block_pointer):
            return super().load(ptr, mask, other, boundary_check, padding_option, cache_modifier, eviction_policy, volatile)
        if unwrap(mask) is not None or unwrap(other) is not None:
            raise TypeMismatchError("load through a block pointer takes boundary_check and padding_option, not mask and other")
        padding = unwrap(padding_option) or ""
        if padding not in ("", "zero", "nan"):
            raise TypeMismatchError(f'padding_option is "zero" or "nan", not {padding!r}')
        element = ptr.base.type.element_ty
        if padding == "nan" and not element.is_floating():
            raise TypeMismatchError(f'padding_option "nan" is for floats, not {element}')
        inside = self.block_mask(ptr, boundary_check)
        if padding and inside is None:  # which Triton takes
            self.builder.warn(f'padding_option "{padding}" pads nothing without boundary_check: the load reads whatever lies outside the tensor; name the dims '
                              "in boundary_check")
        filler = None if inside is None or not padding else self.constant(float("nan") if padding == "nan" else 0, block_type(element, ptr.block_shape))
        return super().load(self.block_addresses(ptr), inside, filler, (), "", cache_modifier, eviction_policy, volatile)

    def store(self, ptr: Any, value: Any, mask: Any = None, boundary_check: Any = (), cache_modifier: Any = "",
              eviction_policy: Any = "") -> None:
        if not isinstance(ptr, block_pointer):
            return super().store(ptr, value, mask, boundary_check, cache_modifier, eviction_policy)
        if unwrap(mask) is not None:
            raise TypeMismatchError("store through a block pointer takes boundary_check, not mask")
        value = self.to_tensor(value)
        element = ptr.base.type.element_ty
        if value.type.is_block() and value.type.scalar != element:
            raise TypeMismatchError(f"store of {value.type.scalar} through a block pointer to {element}; cast with .to({element})")
        super().store(self.block_addresses(ptr), value, self.block_mask(ptr, boundary_check), (), cache_modifier, eviction_policy)
