"""Bring dot operands that are loaded from global memory through shared memory, swizzled so that nothing waits for a bank.

Before: a dot operand that comes from a ``tt.load``, possibly through casts and ``tt.trans``, is converted to the dot operand's
layout by ``ttg.convert_layout``. After: ::

    %a  = tt.load …                                   registers, coalesced
    %sa = ttg.local_alloc %a                          swizzled_shared, in the order of the load (or with k fastest, where the
                                                      target has no asynchronous copies and that is better)
    %ta = ttg.memdesc_trans %sa                       only where there was a tt.trans
    %da = ttg.local_load %ta                          the dot operand's layout
    %ca = casts of %da                                only where there were casts: narrow data is what is stored
    tt.dot %ca, …

which is the shape that pipeline_loops turns into asynchronous copies. Operands computed in registers (P of attention) keep their
convert_layout.

Where the target has a ``SharedModel`` (capabilities.extra["shared_model"]) any linear layout may be taken, by what it costs there
(dialects/shared_layouts.py). Else, the swizzle (vec, per_phase, max_phase) is the one with the fewest wavefronts of 128 bytes for the vectorised writes of the
load's layout and reads of the operand's layout together, counted exactly over GF(2); among equals the one under which tiles of
eight rows of 16 bytes, which matrix-load instructions read, are free of conflicts, then the widest vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.dots import TT_DOTS
from tilewright.dialects.analysis.layout_cost import conversion_kind
from tilewright.dialects.analysis.layout_rules import transposed
from tilewright.dialects.analysis.structure import Function, Node, attribute_names, erase_dead, functions, type_info
from tilewright.dialects.encodings import (
    boolean,
    downcast,
    instruction_operand,
    integer,
    ints,
    mma_row,
    permuted_shared,
    to_linear_layout,
)
from tilewright.dialects.shared_layouts import cost_of, linear_candidate

CASTS = frozenset(("arith.extf", "arith.truncf", "arith.extsi", "arith.extui", "arith.trunci", "arith.sitofp", "arith.uitofp",
                    "arith.fptosi", "arith.fptoui", "tt.fp_to_fp", "tt.bitcast", "arith.bitcast"))
_WAVEFRONT = 128  # bytes that the banks of shared memory deliver at a time


def _rank(vectors: Sequence[int]) -> int:
    """Dimension of the span over GF(2)."""
    pivots: list[int] = []
    for v in vectors:
        for p in pivots:
            v = min(v, v ^ p)
        if v:
            pivots.append(v)
    return len(pivots)


def _log2(n: int) -> int:
    return n.bit_length() - 1


class _Offsets:
    """Element offsets in a swizzled buffer: linear over GF(2) in the coordinates."""

    def __init__(self, shape: Sequence[int], order: Sequence[int], vec: int, per_phase: int, max_phase: int):
        self.strides = [0] * len(shape)
        stride = 1
        for d in order:
            self.strides[d] = stride
            stride *= shape[d]
        self.inner, self.row = shape[order[0]], order[1] if len(order) > 1 else None
        self.vec, self.per_phase, self.max_phase = vec, per_phase, max_phase

    def __call__(self, coordinates: Sequence[int]) -> int:
        offset = sum(c * s for c, s in zip(coordinates, self.strides))
        if self.row is not None:
            offset ^= (coordinates[self.row] // self.per_phase) % self.max_phase * self.vec % self.inner
        return offset


def access_cost(offsets: _Offsets, registers: Sequence[Sequence[int]], lanes: Sequence[Sequence[int]], bits: int) -> tuple[int, int]:
    """(128-byte wavefronts, instructions) with which a warp accesses all its registers, as vectors of up to 16 bytes.

    An access of less than 4 bytes counts as two instructions: its halves or bytes have to be put together or taken apart.
    """
    in_registers = {offsets(v) for v in registers if any(v)}
    run = 0
    while (1 << run) in in_registers and (bits << (run + 1)) <= 128:
        run += 1
    accesses = 1 << (_rank(list(in_registers)) - run)
    unit = max(32, bits << run) // 8  # bytes a lane, a bank being four
    at_once = min(len(lanes), _log2(_WAVEFRONT // unit))
    shift = _log2(max(1, unit * 8 // bits))
    where = [offsets(v) >> shift for v in lanes[:at_once]]
    banks = [w & (_WAVEFRONT // unit - 1) for w in where]
    fronts = (accesses << (len(lanes) - at_once)) << (_rank(where) - _rank(banks))
    return fronts, accesses * (2 if bits << run < 32 else 1)


def _tile_conflicts(offsets: _Offsets, shape: Sequence[int], order: Sequence[int], bits: int) -> int:
    """log2 of the conflicts of a read of eight rows of 16 bytes, and 8 where 16 bytes are not kept together."""
    if len(order) < 2:
        return 0
    chunk = 128 // bits

    def at(row: int) -> int:
        coordinates = [0] * len(shape)
        coordinates[order[1]] = row
        return offsets(coordinates) // chunk

    if offsets.max_phase > 1 and offsets.vec < chunk:
        return 8
    rows = [at(1 << i) for i in range(min(3, _log2(shape[order[1]])))]
    return _rank(rows) - _rank([r & 7 for r in rows])


def choose_swizzle(shape: tuple[int, ...], order: tuple[int, ...], bits: int, written: Any, read: Any) -> tuple[int, int, int]:
    """(vec, per_phase, max_phase) in elements and rows for a buffer of ``shape`` and ``order`` of elements of ``bits``.

    ``written`` and ``read`` are register encodings of a tensor of that shape.
    """
    return _best_swizzle(shape, order, bits, written, read)[1]


@lru_cache(maxsize=1024)
def _best_swizzle(shape: tuple[int, ...], order: tuple[int, ...], bits: int, written: Any,
                  read: Any) -> tuple[int, tuple[int, int, int]]:
    """(wavefronts and instructions of a write and a read of a warp, swizzle)."""
    write, load = (to_linear_layout(shape, e).bases for e in (written, read))
    inner = shape[order[0]]
    row_bytes = max(1, inner * bits // 8)
    candidates = {(1, 1, 1)}
    for vec_bytes in (16, 32, 8, 4):
        vec = vec_bytes * 8 // bits
        if not 1 <= vec <= inner:
            continue
        for per_phase in {max(1, _WAVEFRONT // row_bytes), 1}:
            most = min(inner // vec, 16)
            for max_phase in {min(most, max(1, _WAVEFRONT // vec_bytes // per_phase)), min(most, max(1, 16 // per_phase))}:
                if max_phase > 1:
                    candidates.add((vec, per_phase, max_phase))

    def badness(c: tuple[int, int, int]) -> tuple[int, int, int, int, tuple[int, int, int]]:
        offsets = _Offsets(shape, order, *c)
        fronts, accesses = map(sum, zip(*(access_cost(offsets, m["register"], m["lane"], bits) for m in (write, load))))
        return fronts, _tile_conflicts(offsets, shape, order, bits), accesses, -c[0], c

    best = min(map(badness, candidates))
    return best[0] + best[2], best[-1]


@lru_cache(maxsize=1024)
def _shared_encoding(shape: tuple[int, ...], orders: tuple[tuple[int, ...], ...], bits: int, written: Any, read: Any, model: Any,
                     together: int) -> Any:
    """The encoding of the buffer, in that of the ``orders`` which takes the fewest wavefronts and instructions; where the target has a
    model of its memory, a linear one if that is better."""
    (_, swizzle), order = min(((_best_swizzle(shape, o, bits, written, read), o) for o in orders), key=lambda found: found[0][0])
    swizzled = ttg.SwizzledSharedEncoding.of(*swizzle, list(order))
    if model is None:
        return swizzled
    found, linear = linear_candidate(shape, written, read, bits, model, together)
    return linear if found.total < cost_of(shape, written, read, swizzled, bits, model, together).total else swizzled


@lru_cache(maxsize=1024)
def layout_order(shape: tuple[int, ...], encoding: Any) -> tuple[int, ...]:
    """Dims from fastest to slowest as a register layout holds them: a blocked encoding's order, else by the first bases."""
    if isinstance(encoding, ttg.BlockedEncoding):
        return tuple(ints(encoding.params[3]))
    bases = to_linear_layout(shape, encoding).bases
    order: list[int] = []
    for name in ("register", "lane", "warp"):
        for v in bases[name]:
            order += [d for d in range(len(shape)) if v[d] and d not in order]
    return tuple(order + [d for d in reversed(range(len(shape))) if d not in order])


class LoadPath:
    """How a dot operand comes from a load: casts in order of execution, the permutation, whether threads exchange data."""

    def __init__(self, load: Node, casts: list[Node], permutation: tuple[int, ...], converted: bool):
        self.load, self.casts, self.permutation, self.converted = load, casts, permutation, converted


def path_to_load(function: Function, value: Any) -> LoadPath | None:
    """Walk from a dot operand up to a load of a whole tensor; None where it is something else."""
    rank = len(type_info(value.type).shape or ())
    permutation = tuple(range(rank))
    casts: list[Node] = []
    converted = False
    node = function.def_node(value)
    while node is not None:
        if node.name == "tt.load":
            return LoadPath(node, casts[::-1], permutation, converted)
        if node.name == "ttg.convert_layout":
            info, result = type_info(node.operands[0].type), type_info(node.results[0].type)
            converted |= conversion_kind(info.shape or (), info.encoding, result.encoding) in ("lane", "shared")
        elif node.name == "tt.trans":
            order = node.ints_attr("order")  # result dim i is source dim order[i]
            permutation = tuple(order[i] for i in permutation)
        elif node.name in CASTS:
            casts.append(node)
        else:
            return None
        node = function.def_node(node.operands[0])
    return None


def _orders(order: tuple[int, ...], k: int, ctx: Any) -> tuple[tuple[int, ...], ...]:
    """The orders that the buffer may have: the load's, as asynchronous copies need it; or, without those, k fastest."""
    if ctx.capabilities.async_copy_bytes or order[0] == k:
        return (order,)
    return order, (k, *(d for d in order if d != k))


def _elements_together(operand: Any) -> int:
    """log2 of the elements of one instruction's operand in a lane, which are the operand's first registers."""
    parent = downcast(operand.params[1])
    if not isinstance(parent, ttg.MmaEncoding):
        return 0
    bases, _, _ = instruction_operand(mma_row(parent), "ab"[integer(operand.params[0])], boolean(parent.params[2]))
    return len(bases.register)


def _rewrite(function: Function, value: Any, path: LoadPath, ctx: Any) -> None:
    """Give every use of ``value`` the operand through shared memory."""
    loaded = path.load.results[0]
    source, target = type_info(loaded.type), type_info(value.type)
    assert source.shape is not None and target.shape is not None
    order = layout_order(source.shape, source.encoding)
    permuted = path.permutation != tuple(range(len(source.shape)))
    inverse = tuple(path.permutation.index(d) for d in range(len(source.shape)))
    # the operand's layout as one of the tensor that was loaded
    read = transposed(target.shape, target.encoding, inverse) if permuted else target.encoding
    k = path.permutation[len(order) - 1 - integer(target.encoding.params[0])]
    encoding = _shared_encoding(source.shape, _orders(order, k, ctx), max(8, source.bits), source.encoding, read,
                                ctx.capabilities.extra.get("shared_model"), _elements_together(target.encoding))
    anchor = function.def_node(value)
    assert anchor is not None

    def insert(name: str, type_: Any, operand: Any, attributes: dict[str, Any] | None = None) -> Any:
        return function.insert_before(anchor, name, [type_], [operand], attributes).results[0]

    memory = insert("ttg.local_alloc", ttg.MemDescType.of(source.shape, source.element, encoding), loaded)
    if permuted:
        moved = permuted_shared(encoding, source.shape, path.permutation)
        memory = insert("ttg.memdesc_trans", ttg.MemDescType.of(target.shape, source.element, moved), memory,
                        {"order": ir.DenseI32ArrayAttr.get(list(path.permutation))})
    new = insert("ttg.local_load", ir.RankedTensorType.get(list(target.shape), source.element, target.encoding), memory)
    for cast in path.casts:
        element = type_info(cast.results[0].type).element
        attributes = {name: cast.op.attributes[name] for name in attribute_names(cast.op)}
        new = insert(cast.name, ir.RankedTensorType.get(list(target.shape), element, target.encoding), new, attributes)
    function.replace_uses(value, new)


def run(module: Any, ctx: Any) -> None:
    """Before: dot operands from loads through convert_layout. After: through local_alloc and local_load; see the module's text."""
    for function in functions(module):
        values: dict[Any, None] = {}  # in order, once each
        for node in function.nodes():
            # conversions too: what is computed from them in the operand's layout (split_dot.py) uses them
            for v in node.operands[:2] if node.name in TT_DOTS else node.results if node.name == "ttg.convert_layout" else ():
                if isinstance(type_info(v.type).encoding, ttg.DotOperandEncoding):
                    values[v] = None
        changed = False
        for v in values:
            path = path_to_load(function, v) if function.uses(v) else None
            if path is not None and path.converted:
                _rewrite(function, v, path, ctx)
                changed = True
        if changed:
            erase_dead(function)
