"""Tensor descriptors in the interpreter: element numbers against the tensor's sizes, with Python's integers. Nothing of the passes is used.

A descriptor's cell holds [address, sizes…, strides…] in 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.runtime.interpreter_memory import numpy_dtype
from tilewright.runtime.interpreter_ops import scalar_name


def make(b: Any, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    return [np.array([int(o.data) if o.data.dtype != np.uint64 else int(o.data.view(np.int64)) for o in operands], np.int64)]


def _elements(desc: Any, lines: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(addresses, which of them are inside) of the elements at all combinations of ``lines``, the element numbers along each dim."""
    rank = len(lines)
    base, sizes, strides = int(desc.data[0]), desc.data[1:1 + rank], desc.data[1 + rank:]
    size = desc.type.element_ty.itemsize
    grid = np.meshgrid(*lines, indexing="ij")
    inside = np.ones(grid[0].shape, bool)
    offset: np.ndarray = np.zeros(grid[0].shape, np.int64)
    for number, n, stride in zip(grid, sizes, strides):
        inside &= (number >= 0) & (number < n)
        offset += number * stride * size
    return (offset + base).view(np.uint64), inside


def _lines(desc: Any, indices: Sequence[Any]) -> list[np.ndarray]:
    return [int(i.data) + np.arange(n, dtype=np.int64) for i, n in zip(indices, desc.type.block_shape)]


def _row_lines(desc: Any, rows: Any, column: Any) -> list[np.ndarray]:
    return [rows.data.astype(np.int64), int(column.data) + np.arange(desc.type.block_shape[1], dtype=np.int64)]


def _read(b: Any, desc: Any, lines: Sequence[np.ndarray], type: Any) -> np.ndarray:
    addresses, inside = _elements(desc, lines)
    values: np.ndarray = b.memory.load(addresses, inside, scalar_name(type))
    return np.where(inside, values, np.nan).astype(values.dtype) if desc.type.padding == "nan" else values


def load(b: Any, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    return [_read(b, operands[0], _lines(operands[0], operands[1:]), types[0])]


def gather(b: Any, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    return [_read(b, operands[0], _row_lines(*operands), types[0])]


def store(b: Any, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    desc, value, *indices = operands
    addresses, inside = _elements(desc, _lines(desc, indices))
    b.memory.store(addresses, value.data, inside, scalar_name(value.type))
    return []


def scatter(b: Any, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    desc, value, rows, column = operands
    addresses, inside = _elements(desc, _row_lines(desc, rows, column))
    b.memory.store(addresses, value.data, inside, scalar_name(value.type))
    return []


def _unsigned(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(old: np.ndarray, new: np.ndarray) -> np.ndarray:
        kind = old.dtype.str.replace("i", "u")
        out: np.ndarray = f(old.view(kind), new.view(kind))
        return out.view(old.dtype)

    return apply


_KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "fadd": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "max": np.maximum, "min": np.minimum,
    "umax": _unsigned(np.maximum), "umin": _unsigned(np.minimum), "fmax": np.maximum, "fmin": np.minimum,
}


def reduce(b: Any, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    """No two elements of a block lie at one address, unless a stride is 0; so each is read, combined and written in order."""
    desc, value, *indices = operands
    name = scalar_name(value.type)
    addresses, inside = _elements(desc, _lines(desc, indices))
    flat = addresses.reshape(-1)
    values: np.ndarray = np.broadcast_to(value.data, addresses.shape).reshape(-1).astype(numpy_dtype(name))
    for i in np.flatnonzero(inside.reshape(-1)):
        here = flat[i:i + 1]
        with np.errstate(over="ignore"):
            b.memory.store(here, np.asarray(_KINDS[attrs["kind"]](b.memory.load(here, None, name), values[i:i + 1])), None, name)
    return []


OPS = {"tt.make_tensor_descriptor": make, "tt.descriptor_load": load, "tt.descriptor_gather": gather, "tt.descriptor_store": store,
       "tt.descriptor_scatter": scatter, "tt.descriptor_reduce": reduce}
