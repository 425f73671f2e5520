"""Tensor descriptors: a strided tensor in memory that is read and written in blocks, without masks.

A descriptor is its base, sizes and strides with a block's shape; ``tt.make_tensor_descriptor`` is where it is made, and again where a
loop or a branch has carried one. What becomes of it (pointers, bulk copies) is the target's business. What the calls mean stands in
semantic_descriptor.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.language.const import constexpr
from tilewright.language.decorators import builtin
from tilewright.language.dtypes import tensor_descriptor_type
from tilewright.language.values import base_value, tensor
from tilewright.language.values import tuple as tl_tuple


class tensor_descriptor(base_value):
    """A view of a tensor in memory, made by tl.make_tensor_descriptor, or by the host's TensorDescriptor and passed as an argument.

    Elements of a block that lie outside the tensor (before its first one, too) read as 0 or NaN and are not written. Offsets are
    32-bit integers, in elements, one a dim.
    """

    __slots__ = ("handle", "base", "sizes", "leading_strides", "type")

    def __init__(self, handle: Any, base: tensor, sizes: Sequence[tensor], leading_strides: Sequence[tensor], type: tensor_descriptor_type):
        self.handle = handle  # None where it has to be made anew
        self.base, self.sizes, self.leading_strides = base, list(sizes), list(leading_strides)
        self.type = type

    # -- facts
    @property
    def block_type(self) -> Any:
        return self.type.block_type

    @property
    def block_shape(self) -> list[int]:
        return list(self.type.block_shape)

    @property
    def dtype(self) -> Any:
        """The element type."""
        return self.type.element_ty

    @property
    def shape(self) -> tl_tuple:
        """The tensor's sizes, int32."""
        return tl_tuple(self.sizes)

    @property
    def strides(self) -> tl_tuple:
        """Elements from one to the next along each dim, int64; the last is 1."""
        return tl_tuple([*self.leading_strides, constexpr(1)])

    # -- values in pieces
    @property
    def parts(self) -> list[Any]:
        return [self.base, *self.sizes, *self.leading_strides]

    def with_parts(self, parts: Sequence[Any]) -> tensor_descriptor:
        rank = len(self.sizes)
        handle = self.handle if all(a is b for a, b in zip(parts, self.parts)) else None
        return tensor_descriptor(handle, parts[0], parts[1:1 + rank], parts[1 + rank:], self.type)

    def same_form(self, other: Any) -> bool:
        return isinstance(other, tensor_descriptor) and self.type == other.type

    @staticmethod
    def template(type: tensor_descriptor_type) -> tensor_descriptor:
        """A descriptor of that type whose parts are yet to come (``with_parts``)."""
        parts = [tensor(None, x) for x in type.flat_types]
        rank = len(type.block_shape)
        return tensor_descriptor(None, parts[0], parts[1:1 + rank], parts[1 + rank:], type)

    def __repr__(self) -> str:
        return f"tensor descriptor of blocks {self.block_shape} of {self.dtype}"

    # -- memory
    @builtin
    def load(self, offsets: Any, _semantic: Any = None) -> tensor:
        """The block whose first element is at ``offsets``.

        Example::

            d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [16, 16])
            m = d.load([16, 0])
        """
        return _semantic.descriptor_load(self, offsets)

    @builtin
    def store(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """Write ``value``, a block, cast to the element type, at ``offsets``.

        Example::

            d = tl.make_tensor_descriptor(out, [n, n], [n, 1], [16, 16])
            d.store([0, 0], m)
        """
        _semantic.descriptor_store(self, offsets, value)

    @builtin
    def gather(self, x_offsets: Any, y_offset: Any, _semantic: Any = None) -> tensor:
        """Rows ``x_offsets`` (a rank-1 tensor of int32) of a rank-2 tensor, from column ``y_offset`` on. The block is [1, columns].

        Example::

            d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [1, 16])
            rows = d.gather(15 - i, 0)
        """
        return _semantic.descriptor_gather(self, x_offsets, y_offset)

    @builtin
    def scatter(self, value: Any, x_offsets: Any, y_offset: Any, _semantic: Any = None) -> None:
        """Write the rows of ``value`` as rows ``x_offsets``, from column ``y_offset`` on; the opposite of gather.

        Example::

            d = tl.make_tensor_descriptor(out, [n, n], [n, 1], [1, 16])
            d.scatter(m, 15 - i, 0)
        """
        _semantic.descriptor_scatter(self, value, x_offsets, y_offset)

    @builtin
    def atomic_add(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """Add ``value``, a block, to memory, atomically an element (relaxed). Nothing is returned: 32- and 64-bit types, fp16, bf16.

        Example::

            d = tl.make_tensor_descriptor(out, [n, n], [n, 1], [16, 16])
            d.atomic_add([0, 0], m)
        """
        _semantic.descriptor_reduce("add", self, offsets, value)

    @builtin
    def atomic_and(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """As atomic_add, with bitwise and; 32- and 64-bit integers.

        Example::

            d = tl.make_tensor_descriptor(q, [n, n], [n, 1], [16, 16])
            d.atomic_and([0, 0], m.to(tl.int32))
        """
        _semantic.descriptor_reduce("and", self, offsets, value)

    @builtin
    def atomic_or(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """As atomic_add, with bitwise or; 32- and 64-bit integers.

        Example::

            d = tl.make_tensor_descriptor(q, [n, n], [n, 1], [16, 16])
            d.atomic_or([0, 0], m.to(tl.int32))
        """
        _semantic.descriptor_reduce("or", self, offsets, value)

    @builtin
    def atomic_xor(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """As atomic_add, with bitwise exclusive or; 32- and 64-bit integers.

        Example::

            d = tl.make_tensor_descriptor(q, [n, n], [n, 1], [16, 16])
            d.atomic_xor([0, 0], m.to(tl.int32))
        """
        _semantic.descriptor_reduce("xor", self, offsets, value)

    @builtin
    def atomic_max(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """As atomic_add, with the maximum; 32- and 64-bit types (fp16 and bf16 where the target has it).

        Example::

            d = tl.make_tensor_descriptor(out, [n, n], [n, 1], [16, 16])
            d.atomic_max([0, 0], m)
        """
        _semantic.descriptor_reduce("max", self, offsets, value)

    @builtin
    def atomic_min(self, offsets: Any, value: Any, _semantic: Any = None) -> None:
        """As atomic_add, with the minimum; 32- and 64-bit types (fp16 and bf16 where the target has it).

        Example::

            d = tl.make_tensor_descriptor(out, [n, n], [n, 1], [16, 16])
            d.atomic_min([0, 0], m)
        """
        _semantic.descriptor_reduce("min", self, offsets, value)
