"""From an encoding attribute and a shape to the linear layout it means, and what passes and lowerings ask about layouts.

Rules every register layout here follows:

- In dims are register, lane, warp, block; out dims dim0, dim1, …, of the shape's sizes.
- Where the shape is smaller than the layout the layout wraps: bases beyond the shape become zero, so lanes and warps repeat
  elements. Registers that would only repeat others are dropped (a ``linear`` encoding's own bases stay as written).
- Where the shape is larger the layout repeats over further registers, dim by dim in the repetition order, fastest first.
- blocked: a thread's block, then lanes, warps and repetition, all by ``order``.
- mma: the instruction's tile, then warps (along M first, then N, then the batch dim), then registers: along N first, then M,
  then the batch dim. Operands repeat along K first, then M or N, then batch; the warps of the dim that the operand lacks hold copies.
- k_width of a dot operand beyond the k that the instruction's registers hold consecutively: as many instructions' k are dealt
  out so that a thread holds k_width consecutive elements. Both operands deal alike, so the product is unchanged.

All functions need a current MLIR context; results are cached by (shape, attribute) for the life of the process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.linear_layout import LinearLayout, log2
from tilewright.dialects.matrix_ops import MatrixOp, OperandBases, lookup

REGISTER_DIMS = ("register", "lane", "warp", "block")


def dim_names(rank: int) -> list[str]:
    return [f"dim{i}" for i in range(rank)]


# ------------------------------------------------------------------------------------------ reading attributes
def downcast(attr: Any) -> Any:
    """The attribute as an instance of its class (parameters of attributes come as plain ``ir.Attribute``)."""
    return attr.maybe_downcast() if type(attr) is ir.Attribute else attr


def ints(attr: Any) -> list[int]:
    return list(ir.DenseI32ArrayAttr(attr))


def integer(attr: Any) -> int:
    return int(ir.IntegerAttr(attr).value)


def boolean(attr: Any) -> bool:
    return bool(ir.BoolAttr(attr).value)


def string(attr: Any) -> str:
    return str(ir.StringAttr(attr).value)


def mma_row(encoding: Any) -> MatrixOp:
    """The table's row of a ``#ttg.mma``."""
    return lookup(string(downcast(encoding).params[0]))


# -------------------------------------------------------------------------------------------------- the layouts
_cache: dict[tuple[tuple[int, ...], Any], LinearLayout] = {}
_type_cache: dict[Any, LinearLayout] = {}


def to_linear_layout(shape: Sequence[int], encoding: Any) -> LinearLayout:
    """The layout of a tensor (register encodings) or of a buffer (shared encodings: in dim "offset", in elements).

    For padded_shared it is the linear part; ``shared_offset`` adds the padding. Raises ValueError where the encoding does
    not fit the rank, TypeError for an attribute that is no encoding.
    """
    key = (tuple(shape), encoding)
    layout = _cache.get(key)
    if layout is None:
        encoding = downcast(encoding)
        build = _BUILDERS.get(type(encoding))
        if build is None:
            raise TypeError(f"{encoding} is not an encoding; known: {', '.join(c.__name__ for c in _BUILDERS)}")
        layout = _cache[key] = build(key[0], encoding)
    return layout


def layout_of(tensor_type: Any) -> LinearLayout:
    """The layout of a ranked tensor type that has an encoding, or of a memdesc type. 0.2 µs when seen before."""
    layout = _type_cache.get(tensor_type)
    if layout is None:
        if isinstance(tensor_type, ttg.MemDescType):
            layout = to_linear_layout(tensor_type.shape, tensor_type.encoding)
        else:
            ranked = ir.RankedTensorType(tensor_type)
            if ranked.encoding is None:
                raise TypeError(f"{tensor_type} has no encoding yet")
            layout = to_linear_layout(ranked.shape, ranked.encoding)
        _type_cache[tensor_type] = layout
    return layout


class _Bases:
    """Bases being collected: vectors as lists, with the size covered so far in each dim."""

    def __init__(self, rank: int):
        self.rank = rank
        self.covered = [1] * rank
        self.vectors: dict[str, list[tuple[int, ...]]] = {d: [] for d in REGISTER_DIMS}

    def add(self, name: str, dim: int, size: int) -> None:
        """``size`` indices of ``name`` run along ``dim`` beyond what is covered."""
        for _ in range(log2(size)):
            self.vectors[name].append(tuple(self.covered[dim] if i == dim else 0 for i in range(self.rank)))
            self.covered[dim] *= 2

    def add_zeros(self, name: str, size: int) -> None:
        self.vectors[name] += [(0,) * self.rank] * log2(size)

    def fit(self, shape: Sequence[int], repetition: Sequence[int], keep_registers: bool = False) -> LinearLayout:
        """Wrap to the shape, drop registers that repeat, and repeat over registers along ``repetition`` (dims, fastest first)."""
        vectors = {n: [tuple(x & (s - 1) for x, s in zip(v, shape)) for v in vs] for n, vs in self.vectors.items()}
        if not keep_registers:
            vectors["register"] = [v for v in vectors["register"] if any(v)]
        for dim in repetition:
            at = self.covered[dim]
            while at < shape[dim]:
                vectors["register"].append(tuple(at if i == dim else 0 for i in range(self.rank)))
                at *= 2
        return LinearLayout(vectors, dict(zip(dim_names(self.rank), shape)))


def _check_rank(encoding: Any, shape: Sequence[int], lists: Mapping[str, Sequence[int]]) -> None:
    for name, values in lists.items():
        if len(values) != len(shape):
            raise ValueError(f"{encoding} has {len(values)} entries in {name}, for a tensor of shape {list(shape)}")
    if "order" in lists and sorted(lists["order"]) != list(range(len(shape))):
        raise ValueError(f"order {list(lists['order'])} of {encoding} is no permutation of the {len(shape)} dims")


def _blocked(shape: tuple[int, ...], encoding: Any) -> LinearLayout:
    size, threads, warps, order = (ints(p) for p in encoding.params)
    _check_rank(encoding, shape, {"size_per_thread": size, "threads_per_warp": threads, "warps_per_cta": warps, "order": order})
    bases = _Bases(len(shape))
    for name, counts in (("register", size), ("lane", threads), ("warp", warps)):
        for d in order:
            bases.add(name, d, counts[d])
    return bases.fit(shape, order)


def _slice(shape: tuple[int, ...], encoding: Any) -> LinearLayout:
    dim = integer(encoding.params[0])
    if not 0 <= dim <= len(shape):
        raise ValueError(f"{encoding} removes dim {dim}, which cannot give rank {len(shape)}")
    parent = to_linear_layout((*shape[:dim], 1, *shape[dim:]), encoding.params[1])
    return drop_dim(parent, dim)


def drop_dim(layout: LinearLayout, dim: int) -> LinearLayout:
    """The layout of what is left when tensor dim ``dim`` is reduced away: its bases removed, repeating registers dropped."""
    names = [d for i, d in enumerate(layout.out_dims) if i != dim]
    sliced = layout.sublayout(layout.in_dims, names)
    return sliced.rename_outs({d: f"dim{i}" for i, d in enumerate(names)}).without_zero_bases("register")


def _linear(shape: tuple[int, ...], encoding: Any) -> LinearLayout:
    rank = integer(encoding.params[4])
    if rank != len(shape):
        raise ValueError(f"{encoding} has rank {rank}, for a tensor of shape {list(shape)}")
    bases = _Bases(rank)
    for name, param in zip(REGISTER_DIMS, encoding.params):
        flat = ints(param)
        bases.vectors[name] = [tuple(flat[i:i + rank]) for i in range(0, len(flat), rank)]
    for d in range(rank):
        while any(v[d] >= bases.covered[d] for vs in bases.vectors.values() for v in vs):
            bases.covered[d] *= 2
    return bases.fit(shape, list(reversed(range(rank))), keep_registers=True)


def linear_encoding(layout: LinearLayout) -> Any:
    """The ``#ttg.linear`` attribute of a register layout."""
    bases = layout.bases
    register, lane, warp, block = (bases.get(d, []) for d in REGISTER_DIMS)
    return ttg.LinearEncoding.of(register, lane, warp, block, len(layout.out_dims))


# --------------------------------------------------------------------------------------------- matrix operands
def _transposed(bases: OperandBases) -> OperandBases:
    return OperandBases(tuple((c, r) for r, c in bases.register), tuple((c, r) for r, c in bases.lane))


def instruction_operand(row: MatrixOp, role: str, transposed: bool) -> tuple[OperandBases, int, int]:
    """Bases and tile size (rows, columns) of the dot's ``role`` ("a": (m, k), "b": (k, n), "c": (m, n)) in one instruction.

    A transposed instruction computes Bᵀ·Aᵀ: the dot's A is its second operand, and its result is read with rows and
    columns exchanged; the tile is then row.n × row.m.
    """
    m, n, a_k, b_k = row.m, row.n, row.k // row.a_pack, row.k // row.b_pack
    if not transposed:
        return {"a": (row.a, m, a_k), "b": (row.b, b_k, n), "c": (row.c, m, n)}[role]
    return {"a": (_transposed(row.b), n, b_k), "b": (_transposed(row.a), a_k, m), "c": (_transposed(row.c), n, m)}[role]


def native_k_width(row: MatrixOp) -> int:
    """Consecutive k that a thread's registers of one instruction hold in both operands."""
    def width(bases: OperandBases, k_index: int) -> int:
        w = 1
        for vec in bases.register:
            if vec[k_index] != w or vec[1 - k_index]:
                break
            w *= 2
        return w

    return min(width(row.a, 1), width(row.b, 0))


def _deal_k(k: int, native: int, tile: int, ratio: int) -> int:
    """Move k's instruction-number bits (from ``tile`` up to ``tile * ratio``) down to just above the ``native`` low bits."""
    low, middle, number, high = k % native, (k % tile) // native, (k // tile) % ratio, k // (tile * ratio)
    return low + native * number + native * ratio * middle + tile * ratio * high


def _mma(shape: tuple[int, ...], encoding: Any) -> LinearLayout:
    return _matrix(shape, encoding, "c", 0)


def _matrix(shape: tuple[int, ...], encoding: Any, role: str, k_width: int) -> LinearLayout:
    """Accumulator or operand of a matrix instruction; ``shape`` is [batch,] rows, columns of that operand."""
    row = mma_row(encoding)
    warps, transposed = ints(encoding.params[1]), boolean(encoding.params[2])
    rank = len(shape)
    if rank not in (2, 3):
        raise ValueError(f"{encoding} needs a tensor of rank 2 or 3, not of shape {list(shape)}")
    _check_rank(encoding, shape, {"warps_per_cta": warps})
    tile, rows, columns = instruction_operand(row, role, transposed)
    batch = rank - 2
    zeros = (0,) * batch
    bases = _Bases(rank)
    bases.vectors["register"] = [zeros + v for v in tile.register]
    bases.vectors["lane"] = [zeros + v for v in tile.lane]
    bases.covered[-2:] = [rows, columns]
    k_dim = {"a": rank - 1, "b": rank - 2, "c": None}[role]
    for d in (rank - 2, rank - 1, *range(batch)):
        if d == k_dim:  # these warps split the dim that this operand lacks: along it they hold copies
            bases.add_zeros("warp", warps[d])
        else:
            bases.add("warp", d, warps[d])
    if k_dim is None:
        repetition = [rank - 1, rank - 2]
    else:
        repetition = [k_dim, 2 * rank - 3 - k_dim]
        native = native_k_width(row)
        if k_width > native:
            tile_k = columns if role == "a" else rows
            ratio, total = k_width // native, tile_k * (k_width // native)
            if log2(ratio) < 0 or 1 < shape[k_dim] < total:  # one element is what a broadcast repeats
                raise ValueError(f"k_width {k_width} needs at least {total} elements along k; the operand has {shape[k_dim]}")
            while bases.covered[k_dim] < total:
                bases.add("register", k_dim, 2)
            for name, vectors in bases.vectors.items():
                bases.vectors[name] = [tuple(_deal_k(x, native, tile_k, ratio) if i == k_dim else x for i, x in enumerate(v))
                                       for v in vectors]
    return bases.fit(shape, repetition + list(range(batch)))


def _dot_operand(shape: tuple[int, ...], encoding: Any) -> LinearLayout:
    op_idx, parent, k_width = integer(encoding.params[0]), downcast(encoding.params[1]), integer(encoding.params[2])
    if op_idx not in (0, 1):
        raise ValueError(f"{encoding}: op_idx is 0 (A) or 1 (B)")
    if isinstance(parent, ttg.MmaEncoding):
        return _matrix(shape, parent, "ab"[op_idx], k_width)
    if isinstance(parent, ttg.BlockedEncoding):
        return _fma_operand(shape, encoding, parent, op_idx)
    raise ValueError(f"{encoding}: the parent of a dot operand is an mma or a blocked encoding")


def _fma_operand(shape: tuple[int, ...], encoding: Any, parent: Any, op_idx: int) -> LinearLayout:
    """Each thread holds all of k for the rows (A) or columns (B) of its accumulators; registers run along k first."""
    size, threads, warps, order = (ints(p) for p in parent.params)
    _check_rank(parent, shape, {"size_per_thread": size, "threads_per_warp": threads, "warps_per_cta": warps, "order": order})
    rank = len(shape)
    if rank not in (2, 3):
        raise ValueError(f"{encoding} needs a tensor of rank 2 or 3, not of shape {list(shape)}")
    k_dim = rank - 1 if op_idx == 0 else rank - 2
    bases = _Bases(rank)
    bases.add("register", k_dim, shape[k_dim])
    for name, counts in (("register", size), ("lane", threads), ("warp", warps)):
        for d in order:
            if d != k_dim:
                bases.add(name, d, counts[d])
            elif name != "register":
                bases.add_zeros(name, counts[d])
    return bases.fit(shape, [d for d in order if d != k_dim])


def instruction_tiles(shape: Sequence[int], encoding: Any) -> Mapping[tuple[int, int, int], tuple[int, ...]]:
    """Which registers make up each instruction's operand: (batch, row, column) → registers in the row's order. Cached.

    For an mma accumulator or a dot operand of an mma parent. ``row`` and ``column`` count the instruction tiles that *this
    warp* holds, along M/K and K/N; ``batch`` counts batches in the same way (0 for rank 2). Instruction i along k is the same
    for both operands, whatever k_width is. Registers are indices into the tensor's register list.
    """
    return _instruction_tiles(tuple(shape), encoding)


@functools.lru_cache(maxsize=1024)
def _instruction_tiles(shape: tuple[int, ...], encoding: Any) -> Mapping[tuple[int, int, int], tuple[int, ...]]:
    encoding = downcast(encoding)
    layout = to_linear_layout(shape, encoding)
    role, k_width, mma = "c", 0, encoding
    if isinstance(encoding, ttg.DotOperandEncoding):
        role, mma, k_width = "ab"[integer(encoding.params[0])], downcast(encoding.params[1]), integer(encoding.params[2])
    row = mma_row(mma)
    warps, transposed = ints(mma.params[1]), boolean(mma.params[2])
    tile, rows, columns = instruction_operand(row, role, transposed)
    rank = len(shape)
    k_dim = {"a": rank - 1, "b": rank - 2, "c": None}[role]
    extents = [1] * (rank - 2) + [rows, columns]
    steps = [e * (1 if d == k_dim else w) for d, (e, w) in enumerate(zip(extents, warps))]
    counts = [max(1, s // step) for s, step in zip(shape, steps)]
    native = native_k_width(row)
    ratio = max(1, k_width // native)
    # thread 0 decides: register by row-major element
    elements = [0]
    for c in layout.columns("register"):
        elements += [e ^ c for e in elements]
    by_element: dict[int, int] = {}
    for r, e in enumerate(elements):
        by_element.setdefault(e, r)
    inside = [(0, 0)]
    for vector in tile.register:
        inside += [(r ^ vector[0], c ^ vector[1]) for r, c in inside]
    result = {}
    for b in range(counts[0]) if rank == 3 else range(1):
        for i in range(counts[-2]):
            for j in range(counts[-1]):
                registers = []
                for r, c in inside:
                    at = [i * steps[-2] + r, j * steps[-1] + c]
                    if k_dim is not None and ratio > 1:
                        at[k_dim - rank] = _deal_k(at[k_dim - rank], native, extents[k_dim], ratio)
                    flat = b * steps[0] % shape[0] if rank == 3 else 0
                    flat = (flat * shape[-2] + at[0] % shape[-2]) * shape[-1] + at[1] % shape[-1]
                    registers.append(by_element[flat])
                result[b, i, j] = tuple(registers)
    return MappingProxyType(result)


# ------------------------------------------------------------------------------------------------ shared memory
def _swizzled_shared(shape: tuple[int, ...], encoding: Any) -> LinearLayout:
    vec, per_phase, max_phase = (integer(p) for p in encoding.params[:3])
    order = ints(encoding.params[3])
    _check_rank(encoding, shape, {"order": order})
    columns = []
    for d in order:
        for bit in range(log2(shape[d])):
            vector = [0] * len(shape)
            vector[d] = 1 << bit
            if len(order) > 1 and d == order[1] and max_phase > 1:
                phase = ((1 << bit) // per_phase) % max_phase
                vector[order[0]] = (phase * vec) % shape[order[0]]
            columns.append(tuple(vector))
    return LinearLayout({"offset": columns}, dict(zip(dim_names(len(shape)), shape)))


def _panel_shared(shape: tuple[int, ...], encoding: Any) -> LinearLayout:
    panel, vec, per_phase, max_phase = (integer(p) for p in encoding.params[:4])
    order = ints(encoding.params[4])
    _check_rank(encoding, shape, {"order": order})
    fastest = order[0]
    if shape[fastest] < panel:
        raise ValueError(f"{encoding} has panels of {panel} elements, wider than dim {fastest} of a buffer of shape {list(shape)}")
    if vec * max_phase > panel:
        raise ValueError(f"{encoding}: {max_phase} phases of {vec} elements are more than a panel's {panel}")

    def vector(dim: int, at: int, swizzle: int = 0) -> tuple[int, ...]:
        return tuple((at if i == dim else 0) ^ (swizzle if i == fastest else 0) for i in range(len(shape)))

    columns = [vector(fastest, 1 << bit) for bit in range(log2(panel))]
    row = 1
    for d in order[1:]:
        for bit in range(log2(shape[d])):
            columns.append(vector(d, 1 << bit, row // per_phase % max_phase * vec))
            row *= 2
    columns += [vector(fastest, panel << bit) for bit in range(log2(shape[fastest] // panel))]
    return LinearLayout({"offset": columns}, dict(zip(dim_names(len(shape)), shape)))


def linear_shared_encoding(layout: LinearLayout) -> Any:
    """The ``#ttg.linear_shared`` of a layout from "offset" to the tensor."""
    return ttg.LinearSharedEncoding.of(layout.bases["offset"], len(layout.out_dims))


def _linear_shared(shape: tuple[int, ...], encoding: Any) -> LinearLayout:
    flat, rank = ints(encoding.params[0]), integer(encoding.params[1])
    if rank != len(shape):
        raise ValueError(f"{encoding} has rank {rank}, for a buffer of shape {list(shape)}")
    layout = LinearLayout({"offset": [tuple(flat[i:i + rank]) for i in range(0, len(flat), rank)]}, dict(zip(dim_names(rank), shape)))
    if not (layout.is_injective() and layout.is_surjective()):
        raise ValueError(f"{encoding} is no bijection to a buffer of shape {list(shape)}")
    return layout


def permuted_shared(encoding: Any, shape: Sequence[int], order: Sequence[int]) -> Any:
    """The encoding of a buffer of ``shape`` seen through a transposing view, whose dim i is the buffer's dim ``order[i]``."""
    encoding = downcast(encoding)
    if isinstance(encoding, ttg.SwizzledSharedEncoding):
        vec, per_phase, max_phase = (integer(p) for p in encoding.params[:3])
        return ttg.SwizzledSharedEncoding.of(vec, per_phase, max_phase, [list(order).index(d) for d in ints(encoding.params[3])])
    return linear_shared_encoding(to_linear_layout(shape, encoding).permute_tensor_dims(order))


def shared_rank(encoding: Any) -> int | None:
    """Number of dims that a shared encoding orders, where it says; leading dims beyond them are stages."""
    encoding = downcast(encoding)
    if isinstance(encoding, ttg.LinearSharedEncoding):
        return integer(encoding.params[1])
    for cls, index in ((ttg.SwizzledSharedEncoding, 3), (ttg.PaddedSharedEncoding, 2), (ttg.PanelSharedEncoding, 4)):
        if isinstance(encoding, cls):
            return len(ints(encoding.params[index]))
    return getattr(encoding, "rank", None)


def shared_alignment(encoding: Any) -> int:
    """Bytes that a buffer's start, and each of its stages, must be a multiple of (1 where the encoding does not say)."""
    return int(getattr(type(downcast(encoding)), "alignment", 1))


def _padded_shared(shape: tuple[int, ...], encoding: Any) -> LinearLayout:
    order = ints(encoding.params[2])
    _check_rank(encoding, shape, {"order": order})
    columns = [tuple((1 << bit) if i == d else 0 for i in range(len(shape))) for d in order for bit in range(log2(shape[d]))]
    return LinearLayout({"offset": columns}, dict(zip(dim_names(len(shape)), shape)))


def shared_offset(encoding: Any, linear_offset: Any) -> Any:
    """The real element offset of a linear one (ints or int arrays): padded_shared inserts its padding, others nothing."""
    encoding = downcast(encoding)
    if isinstance(encoding, ttg.PaddedSharedEncoding):
        interval, padding = integer(encoding.params[0]), integer(encoding.params[1])
        return linear_offset + linear_offset // interval * padding
    return linear_offset


def shared_elements(shape: Sequence[int], encoding: Any) -> int:
    """Elements of a buffer of that shape, padding included (none after the last element)."""
    count = 1
    for s in shape:
        count *= s
    return int(shared_offset(encoding, count - 1)) + 1


_BUILDERS: dict[type, Callable[[tuple[int, ...], Any], LinearLayout]] = {
    ttg.BlockedEncoding: _blocked,
    ttg.SliceEncoding: _slice,
    ttg.LinearEncoding: _linear,
    ttg.MmaEncoding: _mma,
    ttg.DotOperandEncoding: _dot_operand,
    ttg.SwizzledSharedEncoding: _swizzled_shared,
    ttg.PaddedSharedEncoding: _padded_shared,
    ttg.PanelSharedEncoding: _panel_shared,
    ttg.LinearSharedEncoding: _linear_shared,
}


def register_encoding(cls: type, build: Callable[[tuple[int, ...], Any], LinearLayout]) -> None:
    """Let a target's own encoding class take part: ``build(shape, attribute)`` gives its layout."""
    if _BUILDERS.setdefault(cls, build) is not build:
        raise ValueError(f"{cls.__name__} has a layout already")


# ---------------------------------------------------------------------------------------------- making encodings
def blocked_for(shape: Sequence[int], size_per_thread: Sequence[int], order: Sequence[int], num_warps: int,
                warp_size: int) -> Any:
    """The blocked encoding with threads, then warps, spread over the dims in ``order``, each dim filled before the next.

    Threads that the shape has no use for go to the slowest dim (where they repeat elements).
    """
    rank = len(shape)
    threads, warps = [1] * rank, [1] * rank
    lanes_left, warps_left = warp_size, num_warps
    for d in order:
        wanted = max(1, shape[d] // size_per_thread[d])
        threads[d] = min(lanes_left, wanted)
        lanes_left //= threads[d]
        warps[d] = min(warps_left, max(1, wanted // threads[d]))
        warps_left //= warps[d]
    threads[order[-1]] *= lanes_left
    warps[order[-1]] *= warps_left
    return ttg.BlockedEncoding.of(size_per_thread, threads, warps, order)


def default_blocked(shape: Sequence[int], num_warps: int, warp_size: int) -> Any:
    """One element a thread, the last dim fastest."""
    return blocked_for(shape, [1] * len(shape), list(reversed(range(len(shape)))), num_warps, warp_size)


# ------------------------------------------------------------------------------------------- questions on layouts
def registers_per_thread(layout: LinearLayout) -> int:
    return layout.in_size("register")


def unique_registers(layout: LinearLayout) -> list[int]:
    """Registers of a thread that hold different elements, in order; every other register repeats one of them."""
    return [r for r, first in enumerate(register_owners(layout)) if r == first]


def register_owners(layout: LinearLayout) -> list[int]:
    """For each register the first register of the thread that holds the same element (itself where there is none)."""
    first: dict[int, int] = {}
    owners = [0]
    for c in layout.columns("register"):
        owners += [x ^ c for x in owners]
    return [first.setdefault(x, r) for r, x in enumerate(owners)]


def repeats_registers(layout: LinearLayout) -> bool:
    return layout.free_variable_masks()["register"] != 0


def repeats_lanes(layout: LinearLayout) -> bool:
    """Whether several lanes of a warp hold the same element."""
    return layout.free_variable_masks()["lane"] != 0


def repeats_warps(layout: LinearLayout) -> bool:
    """Whether several warps hold the same element."""
    return layout.free_variable_masks()["warp"] != 0


def num_warps_of(layout: LinearLayout) -> int:
    return layout.in_size("warp")


def contiguous_elements(layout: LinearLayout) -> int:
    """Consecutive registers that hold consecutive elements of the last dim, aligned: the widest vector along it."""
    return layout.num_consecutive_in_out()


def contiguous_along(layout: LinearLayout, dim: int) -> int:
    """As ``contiguous_elements``, along tensor dim ``dim``."""
    names = [d for d in layout.out_dims if d != f"dim{dim}"] + [f"dim{dim}"]
    return layout.transpose_outs(names).num_consecutive_in_out()


# ------------------------------------------------------------------------------------------------ element types
_FLOAT_BITS = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "tf32": 32}


def element_bits(element_type: Any) -> int:
    """Width in bits of an integer, float or pointer type (i1: 1, pointers: 64)."""
    text = str(element_type)
    if text[0] == "i" and text[1:].isdigit():
        return int(text[1:])
    if text in _FLOAT_BITS:
        return _FLOAT_BITS[text]
    if text[:2] == "f8":
        return 8
    if text.startswith(("!tt.ptr", "!llvm.ptr")):
        return 64
    raise TypeError(f"{text} is no element type")


def storage_bits(element_type: Any) -> int:
    """Width in memory: as ``element_bits``, but i1 is stored as i8."""
    return max(8, element_bits(element_type))
