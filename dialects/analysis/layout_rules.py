"""How the layouts of an op's operands and results hang together: the rules that every ttg module obeys.

- elementwise ops, loads, stores, atomics, select, scan: all tensors of the op have one encoding.
- splat, make_range, constant: any encoding. broadcast: operand and result have one.
- expand_dims: the operand is the slice of the result's encoding along the new dim; reduce: the result is the slice of the
  operand's. trans, reshape, join, split, cat: exactly the layout in which no register moves between threads.
- dot: c and the result have one encoding (mma or blocked), a and b are its dot operands 0 and 1.
- gather: indices and result have one. histogram: src and mask have one.
- scf: what flows into a loop argument, region argument or result has that value's type.

``forward`` and ``backward`` give encodings by these rules, ``check`` (dialects/passes/verify_layouts.py) asserts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects.analysis.structure import Node, type_info
from tilewright.dialects.encodings import downcast, integer, ints, linear_encoding, to_linear_layout
from tilewright.dialects.linear_layout import LinearLayout

_ELEMENTWISE_TT = frozenset("tt." + n for n in (
    "addptr bitcast int_to_ptr ptr_to_int fp_to_fp precise_sqrt precise_divf mulhiui clampf extern_elementwise "
    "elementwise_inline_asm load store atomic_rmw atomic_cas").split())
MEMORY_OPS = frozenset(("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas"))
# no tensor operands; the result takes whatever encoding is asked for
SOURCES = frozenset(("tt.splat", "tt.make_range", "arith.constant"))


# not elementwise, but with one encoding for all tensors too
ALIKE = frozenset(("tt.broadcast", "tt.scan", "tt.map_elementwise"))


def is_elementwise(name: str) -> bool:
    """Whether all tensors of the op share one encoding (memory ops included)."""
    return name in _ELEMENTWISE_TT or (name != "arith.constant" and name.startswith(("arith.", "math.")))


def same_layout(shape: Sequence[int], a: Any, b: Any) -> bool:
    """Whether two encodings place every element of such a tensor alike."""
    return a == b or to_linear_layout(shape, a) == to_linear_layout(shape, b)


@lru_cache(maxsize=4096)
def slice_of(axis: int, parent: Any) -> Any:
    """``#ttg.slice`` of ``parent`` along ``axis``."""
    return ttg.SliceEncoding.of(axis, parent)


@lru_cache(maxsize=4096)
def parent_of_slice(encoding: Any, axis: int) -> Any:
    """The encoding whose slice along ``axis`` is ``encoding``, or None where it is no such slice."""
    encoding = downcast(encoding)
    if isinstance(encoding, ttg.SliceEncoding) and integer(encoding.params[0]) == axis:
        return downcast(encoding.params[1])
    return None


@lru_cache(maxsize=4096)
def expanded(shape: tuple[int, ...], encoding: Any, axis: int) -> Any:
    """An encoding of a tensor with a dim of size 1 inserted at ``axis``, whose slice has the layout of ``encoding``."""
    parent = parent_of_slice(encoding, axis)
    if parent is not None:
        return parent
    encoding = downcast(encoding)
    if isinstance(encoding, ttg.BlockedEncoding):
        size, threads, warps, order = (ints(p) for p in encoding.params)
        for counts in (size, threads, warps):
            counts.insert(axis, 1)
        return ttg.BlockedEncoding.of(size, threads, warps, [d + (d >= axis) for d in order] + [axis])
    layout = to_linear_layout(shape, encoding)
    bases = {d: [v[:axis] + (0,) + v[axis:] for v in vectors] for d, vectors in layout.bases.items()}
    sizes = list(shape)
    sizes.insert(axis, 1)
    return linear_encoding(LinearLayout(bases, {f"dim{i}": s for i, s in enumerate(sizes)}))


def _blocked_or_linear(shape: Sequence[int], layout: LinearLayout, blocked: Any) -> Any:
    """``blocked`` where it means ``layout``, else the linear encoding."""
    if blocked is not None and to_linear_layout(shape, blocked) == layout:
        return blocked
    return linear_encoding(layout)


@lru_cache(maxsize=4096)
def transposed(shape: tuple[int, ...], encoding: Any, order: tuple[int, ...]) -> Any:
    """The encoding after ``tt.trans``: result dim i is source dim order[i]. ``shape`` is the source's."""
    encoding = downcast(encoding)
    new_shape = tuple(shape[i] for i in order)
    layout = to_linear_layout(shape, encoding)
    bases = {d: [tuple(v[i] for i in order) for v in vectors] for d, vectors in layout.bases.items()}
    result = LinearLayout(bases, {f"dim{i}": s for i, s in enumerate(new_shape)})
    blocked = None
    if isinstance(encoding, ttg.BlockedEncoding):
        size, threads, warps, fastest = (ints(p) for p in encoding.params)
        sizes, lanes, in_cta = ([counts[i] for i in order] for counts in (size, threads, warps))
        blocked = ttg.BlockedEncoding.of(sizes, lanes, in_cta, [order.index(d) for d in fastest])
    return _blocked_or_linear(new_shape, result, blocked)


@lru_cache(maxsize=4096)
def reshaped(shape: tuple[int, ...], encoding: Any, new_shape: tuple[int, ...]) -> Any:
    """The encoding after a reshape in row-major order that moves nothing."""
    layout = to_linear_layout(shape, encoding)
    return linear_encoding(layout.reshape_outs({f"dim{i}": s for i, s in enumerate(new_shape)}))


@lru_cache(maxsize=4096)
def joined(shape: tuple[int, ...], encoding: Any) -> Any:
    """The encoding after ``tt.join`` of two tensors of ``shape``: the new last dim is the lowest register bit."""
    encoding = downcast(encoding)
    layout = to_linear_layout(shape, encoding)
    bases = {d: [(*v, 0) for v in vectors] for d, vectors in layout.bases.items()}
    rank = len(shape)
    bases["register"] = [(0,) * rank + (1,), *bases["register"]]
    new_shape = (*shape, 2)
    result = LinearLayout(bases, {f"dim{i}": s for i, s in enumerate(new_shape)})
    blocked = None
    if isinstance(encoding, ttg.BlockedEncoding):
        size, threads, warps, order = (ints(p) for p in encoding.params)
        blocked = ttg.BlockedEncoding.of([*size, 2], [*threads, 1], [*warps, 1], [rank, *order])
    return _blocked_or_linear(new_shape, result, blocked)


@lru_cache(maxsize=4096)
def split(shape: tuple[int, ...], encoding: Any) -> Any:
    """The encoding of both results of ``tt.split`` of a tensor of ``shape`` (last dim 2), or None where the last dim is not
    just one register bit, so that the halves lie in different threads."""
    encoding = downcast(encoding)
    layout = to_linear_layout(shape, encoding)
    bases = layout.bases
    last = tuple([0] * (len(shape) - 1) + [1])
    along = [(d, v) for d, vectors in bases.items() for v in vectors if v[-1]]
    if along != [("register", last)]:
        return None
    bases["register"] = [v for v in bases["register"] if v != last]
    halves = LinearLayout({d: [v[:-1] for v in vectors] for d, vectors in bases.items()},
                          {f"dim{i}": s for i, s in enumerate(shape[:-1])})
    blocked = None
    if isinstance(encoding, ttg.BlockedEncoding):
        size, threads, warps, order = (ints(p) for p in encoding.params)
        if threads[-1] == 1 and warps[-1] == 1:
            rank = len(shape)
            blocked = ttg.BlockedEncoding.of(size[:-1], threads[:-1], warps[:-1], [d for d in order if d != rank - 1])
    return _blocked_or_linear(shape[:-1], halves, blocked)


@lru_cache(maxsize=4096)
def concatenated(shape: tuple[int, ...], encoding: Any) -> Any:
    """The encoding after ``tt.cat`` of two rank-1 tensors of ``shape``: the second's registers follow the first's."""
    layout = to_linear_layout(shape, encoding)
    bases = layout.bases
    bases["register"] = [*bases["register"], (shape[0],)]
    return linear_encoding(LinearLayout(bases, {"dim0": shape[0] * 2}))


def forward(node: Node, operand: int, encoding: Any) -> Any:
    """The encoding of the results when tensor operand number ``operand`` has ``encoding``; None where it says nothing.

    For ops whose results do not follow their operands (dot, loads into shared memory, …) None too.
    """
    name = node.name
    if is_elementwise(name) or name in ALIKE:
        return encoding
    shape = type_info(node.operands[operand].type).shape
    assert shape is not None
    if name == "tt.expand_dims":
        return expanded(shape, encoding, node.int_attr("axis"))
    if name == "tt.reduce":
        return slice_of(node.int_attr("axis"), encoding)
    if name == "tt.trans":
        return transposed(shape, encoding, tuple(node.ints_attr("order")))
    if name == "tt.reshape":
        return reshaped(shape, encoding, type_info(node.results[0].type).shape or ())
    if name == "tt.join":
        return joined(shape, encoding)
    if name == "tt.split":
        return split(shape, encoding)
    if name == "tt.cat":
        return concatenated(shape, encoding)
    if name == "tt.gather" and operand == 1:
        return encoding
    return None


def backward(node: Node, encoding: Any) -> list[Any] | None:
    """The encodings that the operands need (None for scalars) so that the results get ``encoding``; None where the op
    cannot give it without a conversion of its result."""
    name = node.name
    if name in SOURCES:
        return [None] * len(node.operands)
    infos = [type_info(v.type) for v in node.operands]
    if is_elementwise(name) or name in ALIKE:
        return [encoding if t.shape is not None else None for t in infos]
    if name == "tt.expand_dims":
        return [slice_of(node.int_attr("axis"), encoding)]
    shape = infos[0].shape if infos else None
    if name == "tt.reduce":
        parent = parent_of_slice(encoding, node.int_attr("axis"))
        return [parent] * len(infos) if parent is not None else None
    if name == "tt.trans":
        order = node.ints_attr("order")
        inverse = tuple(order.index(i) for i in range(len(order)))
        return [transposed(type_info(node.results[0].type).shape or (), encoding, inverse)]
    if name == "tt.reshape":
        return [reshaped(type_info(node.results[0].type).shape or (), encoding, shape or ())]
    if name == "tt.join":
        halves = split((*(shape or ()), 2), encoding)
        # only where the new dim is the lowest register bit do the halves join back to this very layout
        if halves is None or not same_layout((*(shape or ()), 2), joined(shape or (), halves), encoding):
            return None
        return [halves, halves]
    if name == "tt.split":
        return [joined(type_info(node.results[0].type).shape or (), encoding)]
    return None
