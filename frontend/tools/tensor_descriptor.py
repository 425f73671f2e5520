"""``TensorDescriptor``: a tensor's address, shape and strides and the block that kernels read or write of it, made on the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.runtime.errors import ArgumentError
from tilewright.runtime.specialize import element_name, plain_descriptor, pointer_facts

ALIGNMENT = 16  # bytes
MAX_RANK = 5
MIN_ROW_BYTES = 16
MAX_SIZE = 2**31 - 1


@dataclass
class TensorDescriptor:
    """base: the array. shape, strides: in elements, one to five dims, the last stride 1. block_shape: powers of two, a row of at least 16
    bytes when it is launched. padding: "zero" or "nan", what elements outside read as. Raises ArgumentError for what no descriptor can be.

    As an argument of a kernel it is a ``tl.tensor_descriptor``. Its fields may be assigned (an autotuner's pre_hook sets
    ``block_shape``); they are looked at in each launch.
    """

    base: Any
    shape: list[int]
    strides: list[int]
    block_shape: list[int]
    padding: str = field(default="zero")

    def __post_init__(self) -> None:
        if _traced(self.base) or not plain_descriptor(self):
            check(self, launched=False)

    @staticmethod
    def from_tensor(tensor: Any, block_shape: list[int], padding: str = "zero") -> TensorDescriptor:
        """The descriptor of an array (of torch, numpy, or anything with shape and strides) with its own shape and strides."""
        if hasattr(tensor, "stride"):
            strides = list(tensor.stride())
        elif getattr(tensor, "strides", None) is not None and hasattr(tensor, "itemsize"):
            strides = [_in_elements(s, tensor.itemsize) for s in tensor.strides]
        else:
            raise ArgumentError(f"a {type(tensor).__name__} does not tell its strides; give TensorDescriptor a base, shape and strides")
        return TensorDescriptor(tensor, list(tensor.shape), strides, block_shape, padding)


def _in_elements(stride: int, size: int) -> int:
    if stride % size:
        raise ArgumentError(f"the strides of a descriptor are whole elements; found {stride} bytes, and elements have {size}")
    return stride // size


def _traced(base: Any) -> bool:
    """Whether an array lies nowhere, as those with which torch traces."""
    return type(base).__name__ in ("FakeTensor", "FunctionalTensor")


def _integers(values: Any, what: str) -> list[int]:
    try:
        return [int(v.__index__()) for v in values]
    except (TypeError, AttributeError):
        raise ArgumentError(f"the {what} of a descriptor is a list of integers; found {values!r}") from None


def check(desc: Any, launched: bool = True) -> None:
    """Raise ArgumentError, saying which rule is broken, where ``desc`` (with TensorDescriptor's fields) is no tensor descriptor. Rows of a block may be short until
    it is ``launched``: programs make descriptors of blocks of one element, for which an autotuner's pre_hook sets another."""
    from tilewright.language.dtypes import str_to_ty

    if isinstance(desc.base, (bool, int, float, str, type(None))):
        raise ArgumentError(f"the base of a descriptor is an array; found {desc.base!r} ({type(desc.base).__name__})")
    shape, strides, block = (_integers(getattr(desc, n), n) for n in ("shape", "strides", "block_shape"))
    rank = len(shape)
    if not 1 <= rank <= MAX_RANK:
        raise ArgumentError(f"a descriptor has one to five dims; the shape has {rank}")
    if len(strides) != rank or len(block) != rank:
        raise ArgumentError(f"shape, strides and block_shape have one entry a dim; found {rank}, {len(strides)} and {len(block)}")
    if _traced(desc.base):
        element, address = element_name(desc.base.dtype), 0
    else:
        element, _, address = pointer_facts(desc.base)
    size = str_to_ty(element).itemsize
    if address % ALIGNMENT:
        raise ArgumentError(f"the address of a descriptor's array is a multiple of {ALIGNMENT} bytes; {address:#x} is not")
    if strides[-1] != 1:
        raise ArgumentError(f"the last stride of a descriptor is 1; found {strides[-1]} (strides {strides})")
    for stride in strides[:-1]:
        if stride < 0:
            raise ArgumentError(f"the strides of a descriptor are not negative; found {stride} (strides {strides})")
        if stride * size % ALIGNMENT:
            raise ArgumentError(f"strides of a descriptor are multiples of {ALIGNMENT} bytes but for the last; found {stride} elements of {size} bytes")
    if not all(0 <= s <= MAX_SIZE for s in shape):
        raise ArgumentError(f"the sizes of a descriptor are 0 to 2^31 - 1; found {shape}")
    for b in block:
        if b < 1 or b & (b - 1):
            raise ArgumentError(f"block dims are powers of two; found {block}")
    if launched and block[-1] * size < MIN_ROW_BYTES:
        raise ArgumentError(f"a row of the block has at least {MIN_ROW_BYTES} bytes; found {block[-1]} elements of {size} bytes")
    if desc.padding not in ("zero", "nan"):
        raise ArgumentError(f"padding is 'zero' or 'nan'; found {desc.padding!r}")
    if desc.padding == "nan" and not element.startswith(("fp", "bf")):
        raise ArgumentError(f"padding 'nan' needs floating-point elements; these are {element}")


__all__ = ["TensorDescriptor", "check"]
