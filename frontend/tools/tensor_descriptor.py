"""``TensorDescriptor``: a tensor's address, shape and strides and the block that kernels read or write of it, made on the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.runtime.errors import ArgumentError


@dataclass
class TensorDescriptor:
    """base: the array. shape, strides: in elements, one to five dims, the last stride 1. block_shape: powers of two, a row of at least 16
    bytes. padding: "zero" or "nan", what elements outside read as. Raises ArgumentError for what no descriptor can be.
    """

    base: Any
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str = field(default="zero")

    def __post_init__(self) -> None:
        from tilewright.runtime.arguments import _bits
        from tilewright.runtime.specialize import pointer_facts

        rank = len(self.shape)
        if not 1 <= rank <= 5:
            raise ArgumentError(f"a descriptor has one to five dims; the shape has {rank}")
        if len(self.strides) != rank or len(self.block_shape) != rank:
            raise ArgumentError(f"shape, strides and block_shape have one entry a dim; found {rank}, {len(self.strides)} and {len(self.block_shape)}")
        element, _, address = pointer_facts(self.base)
        size = _bits(self.base.dtype) // 8 if hasattr(self.base, "dtype") else 1
        if address % 16:
            raise ArgumentError("the address of a descriptor's array is a multiple of 16 bytes; this one's is not")
        if self.strides[-1] != 1:
            raise ArgumentError(f"the last stride of a descriptor is 1; found {self.strides[-1]}")
        for stride in self.strides[:-1]:
            if stride * size % 16:
                raise ArgumentError(f"strides of a descriptor are multiples of 16 bytes but for the last; found {stride} elements of {size} bytes")
        for b in self.block_shape:
            if b < 1 or b & (b - 1):
                raise ArgumentError(f"block dims are powers of two; found {list(self.block_shape)}")
        if self.block_shape[-1] * size < 16:
            raise ArgumentError(f"a row of the block has at least 16 bytes; found {self.block_shape[-1]} elements of {size} bytes")
        if self.padding not in ("zero", "nan"):
            raise ArgumentError(f"padding is 'zero' or 'nan'; found {self.padding!r}")
        if self.padding == "nan" and not element.startswith(("fp", "bf")):
            raise ArgumentError(f"padding 'nan' needs floating-point elements; these are {element}")

    @staticmethod
    def from_tensor(tensor: Any, block_shape: list[int], padding: str = "zero") -> TensorDescriptor:
        """The descriptor of an array with its own shape and strides."""
        if hasattr(tensor, "stride"):
            strides = list(tensor.stride())
        else:
            strides = [s // tensor.itemsize for s in tensor.strides]
        return TensorDescriptor(tensor, list(tensor.shape), strides, block_shape, padding)
