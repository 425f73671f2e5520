"""Descriptors of ragged tensors: rows of many subarrays one after another, each read and written without touching its neighbours.

A subarray is ``T[offset : offset + size]`` along the ragged dim. A descriptor has one size for all, so the bound is moved instead of the size: two leading
dims, of which no more than one index each is used, shift the base so that row ``size`` of the subarray falls on the end of the ragged dim. With B = 2^30 rows,
the row stride s, and indices (B, offset + size, B - size + row), the element address is

    B · (2^34 - s) + (offset + size) · s + (B - size + row) · s  =  2^64 + (offset + row) · s

and 2^64 is 0 in addresses. So rows from ``size`` on are outside the descriptor, and the hardware's check (or the mask) takes them.
"""

from __future__ import annotations

from typing import Any

import tilewright.language as tl
from tilewright.dialects.errors import ArgumentError
from tilewright.runtime.jit import jit
from tilewright.runtime.specialize import shown
from tilewright.tools.tensor_descriptor import TensorDescriptor

_ROWS = 1 << 30
_ANY = 0x7FFF0000  # size of the leading dims


def create_ragged_descriptor(T: Any, block_shape: Any, ragged_dim: int = 0) -> TensorDescriptor:
    """A descriptor for ``load_ragged``, ``store_ragged`` and ``atomic_add_ragged`` of the torch tensor ``T`` of 2 or 3 dims.

    ``block_shape``: of the tiles, one size a dim. ``ragged_dim``: any but the last. Raises ArgumentError for other ranks and dims, and for more than 2^30 rows.
    """
    if not hasattr(T, "shape") or not hasattr(T, "stride"):
        raise ArgumentError(f"a ragged descriptor is made of a torch tensor; found {shown(T)} ({type(T).__name__})")
    if isinstance(block_shape, str) or not hasattr(block_shape, "__iter__"):
        raise ArgumentError(f"the block_shape of a descriptor is a list of integers; found {shown(block_shape)}")
    if isinstance(ragged_dim, bool) or not hasattr(ragged_dim, "__index__"):
        raise ArgumentError(f"ragged_dim is the number of a dim; found {shown(ragged_dim)} ({type(ragged_dim).__name__})")
    block, shape = list(block_shape), list(T.shape)
    rank = len(shape)
    dim = ragged_dim + rank if ragged_dim < 0 else ragged_dim
    if not 2 <= rank <= 3:
        raise ArgumentError(f"ragged descriptors are of tensors of 2 or 3 dims, not of {rank}")
    if not 0 <= dim < rank - 1:
        raise ArgumentError(f"the ragged dim is any but the last of {rank}, not {ragged_dim}")
    if len(block) != rank:
        raise ArgumentError(f"a block of a tensor of {rank} dims has {rank} sizes, not {len(block)}")
    if shape[dim] > _ROWS:
        raise ArgumentError(f"a ragged dim has at most 2^30 rows, not {shape[dim]}")
    stride = T.stride(dim)
    shape[dim] = _ROWS
    return TensorDescriptor(T, [_ANY, _ANY, *shape], [2**34 - stride, stride, *(T.stride(d) for d in range(rank))], [1, 1, *block])


@jit
def to_ragged_indices(batch_offset, batch_size, row):
    """The two leading indices and the one along the ragged dim of row ``row`` of a subarray."""
    rows = 0x40000000
    return rows, batch_offset + batch_size, rows - batch_size + row


@jit
def load_ragged(TMA, batch_offset, batch_size, coords, ragged_dim: tl.constexpr = 0):  # type: ignore[assignment]
    """The block at ``coords`` (one a dim of the tensor, counted in the subarray that starts at row ``batch_offset`` and has ``batch_size`` rows) of a descriptor
    by ``create_ragged_descriptor``; zeros outside the subarray."""
    tl.static_assert(len(TMA.shape) == len(coords) + 2, "a descriptor by create_ragged_descriptor is needed, and one coordinate a dim of its tensor")
    first, second, row = to_ragged_indices(batch_offset, batch_size, coords[ragged_dim])
    block = TMA.load([first, second, *coords[:ragged_dim], row, *coords[ragged_dim + 1:]])  # type: ignore[operator]
    return tl.reshape(block, block.shape[2:])


@jit
def store_ragged(TMA, batch_offset, batch_size, coords, data, ragged_dim: tl.constexpr = 0):  # type: ignore[assignment]
    """Write ``data`` at ``coords`` of a subarray; nothing outside it. Arguments as of ``load_ragged``."""
    first, second, row = to_ragged_indices(batch_offset, batch_size, coords[ragged_dim])
    TMA.store([first, second, *coords[:ragged_dim], row, *coords[ragged_dim + 1:]], tl.expand_dims(data, (0, 1)))  # type: ignore[operator]


@jit
def atomic_add_ragged(TMA, batch_offset, batch_size, coords, data, ragged_dim: tl.constexpr = 0):  # type: ignore[assignment]
    """Add ``data`` atomically at ``coords`` of a subarray; nothing outside it. Arguments as of ``load_ragged``."""
    first, second, row = to_ragged_indices(batch_offset, batch_size, coords[ragged_dim])
    TMA.atomic_add([first, second, *coords[:ragged_dim], row, *coords[ragged_dim + 1:]], tl.expand_dims(data, (0, 1)))  # type: ignore[operator]
