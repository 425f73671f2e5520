"""Stand-ins for arrays as kernel arguments: another element type over the same memory, and no memory at all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tilewright.runtime.errors import ArgumentError


class MockTensor:
    """An array that is not there, for ``warmup``: its dtype (of torch, numpy or tl, or a name such as "fp32"), aligned to 16 bytes."""

    def __init__(self, dtype: Any, shape: Any = None):
        self.dtype = dtype
        self.shape = [1] if shape is None else list(shape)

    @staticmethod
    def wrap_dtype(arg: Any) -> Any:
        """``arg``, or a MockTensor where it is a dtype of torch."""
        if type(arg).__name__ == "dtype" and type(arg).__module__.split(".")[0] == "torch":
            return MockTensor(arg)
        return arg

    def stride(self) -> tuple[int, ...]:
        strides = [1]
        for size in reversed(self.shape[1:]):
            strides.append(strides[-1] * size)
        return tuple(reversed(strides))

    @staticmethod
    def data_ptr() -> int:
        return 0

    @staticmethod
    def ptr_range() -> int:
        return 0


class TensorWrapper:
    """``base``'s memory read as elements of ``dtype`` (of tl, torch or numpy); see ``reinterpret``."""

    def __init__(self, base: Any, dtype: Any):
        self.base = base
        self.dtype = dtype
        self.data = getattr(base, "data", base)
        self.device = getattr(base, "device", "cpu")
        self.shape = base.shape

    def data_ptr(self) -> int:
        from tilewright.runtime.specialize import pointer_facts

        return pointer_facts(self.base)[2]

    def stride(self, *args: Any) -> Any:
        """Strides in elements, as the base counts them."""
        if hasattr(self.base, "stride"):
            return self.base.stride(*args)
        strides = tuple(s // self.base.itemsize for s in self.base.strides)
        return strides[args[0]] if args else strides

    def element_size(self) -> int:
        return self.base.element_size() if hasattr(self.base, "element_size") else self.base.itemsize

    def numel(self) -> int:
        return self.base.numel() if hasattr(self.base, "numel") else self.base.size

    def __str__(self) -> str:
        return f"TensorWrapper[{self.dtype}]({self.base})"

    def cpu(self) -> TensorWrapper:
        return TensorWrapper(self.base.cpu(), self.dtype)

    def copy_(self, other: Any) -> None:
        self.base.copy_(getattr(other, "base", other))

    def clone(self) -> TensorWrapper:
        return TensorWrapper(self.base.clone() if hasattr(self.base, "clone") else self.base.copy(), self.dtype)

    def to(self, device: Any) -> TensorWrapper:
        return TensorWrapper(self.base.to(device), self.dtype)

    def new_empty(self, sizes: Any) -> TensorWrapper:
        return TensorWrapper(self.base.new_empty(sizes), self.dtype)


def _bits(dtype: Any) -> int:
    from tilewright.runtime.specialize import element_name

    name = element_name(dtype)
    return 8 if name.startswith("fp8") or name == "i1" else int("".join(c for c in name if c.isdigit()))


def reinterpret(tensor: Any, dtype: Any) -> Any:
    """The array with its elements read as ``dtype`` by kernels (say, uint8 memory as tl.float8e5). Same size of elements; no copy."""
    base = tensor.base if isinstance(tensor, TensorWrapper) else tensor
    if not is_array(base):
        raise ArgumentError(f"reinterpret takes an array; a {type(tensor).__name__} is none")
    if hasattr(base, "dtype") and _bits(base.dtype) != _bits(dtype):
        raise ArgumentError(f"elements of {base.dtype} have {_bits(base.dtype)} bits, and {dtype} has {_bits(dtype)}; they must be equal")
    if getattr(base, "dtype", None) == dtype:
        return base
    return TensorWrapper(base, dtype)


def _interface(value: Any) -> Any:
    """What an object tells by one of the array interfaces; None where it has none."""
    from tilewright.targets.registry import ARRAY_PROTOCOLS

    return next((found for name in ARRAY_PROTOCOLS if (found := getattr(value, name, None)) is not None), None)


def is_array(value: Any) -> bool:
    """Whether an object is memory for a kernel, and no number, type, function or tuple."""
    from tilewright.runtime.specialize import is_numpy_scalar

    if isinstance(value, type) or is_numpy_scalar(type(value)):  # a class, whose attributes are descriptors, or a number that has an interface
        return False
    return hasattr(value, "data_ptr") or hasattr(value, "__dlpack__") or _interface(value) is not None


def owner(array: Any) -> Any:
    """The array whose memory a view, or a stand-in such as a TensorWrapper, reads: followed through ``base`` and ``_base`` while those are arrays."""
    while not hasattr(array, "untyped_storage"):
        inner = getattr(array, "base", None)
        if inner is None:
            inner = getattr(array, "_base", None)
        if not is_array(inner):  # a mapped file, bytes, None
            break
        array = inner
    return array


def storage(array: Any) -> tuple[int, int] | None:
    """First byte and end of the memory that an array belongs to, of which it may be a view; None where it does not say."""
    from tilewright.runtime.specialize import dlpack_layout, item_size, pointer_facts

    array = owner(array)
    if hasattr(array, "untyped_storage"):
        memory = array.untyped_storage()
        return int(memory.data_ptr()), int(memory.data_ptr()) + int(memory.nbytes())
    element, _, first = pointer_facts(array)
    size = item_size(element)
    shape, strides = getattr(array, "shape", None), getattr(array, "stride", None)
    if not hasattr(array, "data_ptr") and (interface := _interface(array)) is not None:
        shape, strides = interface["shape"], interface.get("strides")
        strides = _row_major(shape, size) if strides is None else strides
    elif not hasattr(array, "data_ptr"):
        shape, strides = dlpack_layout(array)
        strides = _row_major(shape, size) if strides is None else [s * size for s in strides]
    elif callable(strides):
        strides = [s * size for s in strides()]
    if shape is not None and strides is not None:
        if 0 in tuple(shape):
            return first, first
        steps = [(n - 1) * s for n, s in zip(shape, strides)]
        return first + sum(s for s in steps if s < 0), first + sum(s for s in steps if s > 0) + size
    numel, nbytes = getattr(array, "numel", None), getattr(array, "nbytes", None)
    if callable(numel):
        return first, first + int(numel()) * size
    return None if nbytes is None else (first, first + int(nbytes))


def _row_major(shape: Any, size: int) -> list[int]:
    """Strides in bytes of an array without gaps, whose elements have ``size`` bytes."""
    return [size * math.prod(shape[i + 1:]) for i in range(len(shape))]


def memory_of(arguments: Iterable[Any]) -> dict[int, tuple[int, int]]:
    """Address → storage of every array among launch arguments, in tuples and descriptors too, that says.

    Null reaches nothing: torch gives it for every view without elements, so that the storages of two of them would become one range."""
    from tilewright.runtime.specialize import pointer_facts

    found: dict[int, tuple[int, int]] = {}
    for argument in arguments:
        if isinstance(argument, (tuple, list)):
            inner = memory_of(argument)
        else:
            array = argument.base if hasattr(argument, "block_shape") else argument
            span = storage(array) if is_array(array) else None
            address = 0 if span is None else pointer_facts(array)[2]
            inner = {} if span is None else {address: span if address else (0, 0)}
        for address, (lo, hi) in inner.items():
            known = found.get(address, (lo, hi))
            found[address] = min(lo, known[0]), max(hi, known[1])
    return found
