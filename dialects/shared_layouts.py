"""The layout of a buffer in shared memory between a write in one register layout and a read in another: any linear layout
(``#ttg.linear_shared``), chosen by what both cost on the target's memory.

``SharedModel`` is what a target says of its memory (``capabilities.extra["shared_model"]``): banks, which lanes are served together, and
loads that transpose. Candidates are the layouts of ``dialects.swizzle.choose_shared`` for the groups of lanes of each width, and
row-major ones with an xor; ``cost`` counts cycles and instructions of both sides exactly, by ranks over GF(2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilewright.dialects.encodings import linear_shared_encoding, to_linear_layout
from tilewright.dialects.gf2 import Gf2Solver, independent
from tilewright.dialects.linear_layout import LinearLayout, log2
from tilewright.dialects.shared_model import SharedModel
from tilewright.dialects.swizzle import access_vector, choose_shared


@dataclass(frozen=True)
class Cost:
    """Of a write and a read of a whole buffer by one warp each: cycles beyond the fewest, cycles, instructions, and pointers, of which one
    is needed for every pattern of register bits that overlaps with the thread's."""

    conflicts: int
    cycles: int
    instructions: int
    pointers: int

    @property
    def total(self) -> int:
        return self.cycles + self.instructions + self.pointers


def transposed_read(layout: LinearLayout, element_bits: int, bytes_: int) -> LinearLayout | None:
    """Which elements each lane's *address* covers when a transposing load is to give ``layout``: its first registers are consecutive
    in memory. None where the layout has too few lanes or registers of its own.

    The load gives lane i of 16 column i, one element from each row: rows are ``layout``'s first registers, columns its first lanes.
    """
    count = log2(bytes_ * 8 // element_bits)
    registers, lanes = layout.columns("register"), layout.columns("lane")
    rows = registers[:count]
    if len(lanes) < 4 or len(rows) < count or not all(lanes[:4]) or Gf2Solver((*lanes, *rows)).rank < len(independent(lanes)) + count:
        return None
    columns = {"register": (*lanes[:count], *registers[count:]), "lane": (*lanes[count:4], *rows, *lanes[4:]),
               "warp": layout.columns("warp")}
    return LinearLayout.from_columns(columns, layout.out_sizes)


def is_transposing(shared: LinearLayout, layout: LinearLayout, element_bits: int, bytes_: int) -> LinearLayout | None:
    """``transposed_read`` where the buffer holds those elements one after another in order, aligned, so that the load can be used."""
    read = transposed_read(layout, element_bits, bytes_)
    if read is None:
        return None
    count = log2(bytes_ * 8 // element_bits)
    solver = Gf2Solver(shared.flat_columns)
    offsets = {d: [solver.solve(c) or 0 for c in read.columns(d)] for d in ("register", "lane", "warp")}
    low = (1 << count) - 1
    if offsets["register"][:count] != [1 << i for i in range(count)]:
        return None
    if any(o & low for o in (*offsets["register"][count:], *offsets["lane"], *offsets["warp"])):
        return None
    return read


def _side(layout: LinearLayout, shared: LinearLayout, element_bytes: int, model: SharedModel, write: bool, vec: int) -> Cost:
    """Cost of one side in accesses of ``vec`` elements."""
    solver = Gf2Solver(shared.flat_columns)
    free = layout.free_variable_masks() if write else {"register": 0, "lane": 0, "warp": 0}

    def offsets(dim: str) -> list[int]:
        return [0 if free[dim] >> i & 1 else solver.solve(c) or 0 for i, c in enumerate(layout.columns(dim))]

    own, lanes, warps = offsets("register"), offsets("lane"), offsets("warp")
    registers = Gf2Solver(own).rank
    reach = 0
    for o in (*lanes, *warps):
        reach |= o
    accesses = 1 << (registers - log2(vec))
    unit = max(4, vec * element_bytes)
    ordered = model.lanes(lanes, unit, write)
    at_once = min(len(ordered), log2(model.banks * 4 // unit))
    shift = log2(unit // element_bytes)
    where = [o >> shift for o in ordered[:at_once]]
    banks = [w & (model.banks * 4 // unit - 1) for w in where]
    least = accesses << (len(ordered) - at_once)
    cycles = least << (Gf2Solver(where).rank - Gf2Solver(banks).rank)
    # parts of words have to be put together or taken apart
    return Cost(cycles - least, cycles, accesses * (2 if vec * element_bytes < 4 else 1), 1 << Gf2Solver([o & reach for o in own]).rank)


def _packing(layout: LinearLayout, shared: LinearLayout, element_bytes: int, vec: int = 0, together: int = 0) -> int:
    """Instructions that bring elements into the order of words, where registers hold words of other elements; and words of a vector of
    ``vec`` to their places, where 1 << ``together`` elements have to be in registers one after another."""
    inside = max(0, 2 - log2(element_bytes))
    words = (layout.in_size("register") * element_bytes + 3) // 4
    registers, offsets = layout.columns("register"), shared.flat_columns
    found = words if tuple(registers[:inside]) != tuple(offsets[:inside]) else 0
    least = min(together, log2(vec)) if vec else 0
    return found + (words if tuple(registers[inside:least]) != tuple(offsets[inside:least]) else 0)


def cost(written: LinearLayout, read: LinearLayout, shared: LinearLayout, element_bits: int, model: SharedModel, together: int = 0) -> Cost:
    """Of writing ``written`` and reading ``read`` through ``shared`` (offset → tensor). together: how many of ``read``'s register bits
    number the elements of one operand of an instruction, which registers hold one after another."""
    bytes_ = element_bits // 8
    write = _side(written, shared, bytes_, model, True, access_vector(written, shared, bytes_, write=True))
    packing = _packing(written, shared, bytes_) if bytes_ < 4 else 0
    turned = is_transposing(shared, read, element_bits, model.transposing[element_bits]) if element_bits in model.transposing else None
    if turned is not None:
        load = _side(turned, shared, bytes_, model, False, model.transposing[element_bits] // bytes_)
    else:
        vec = access_vector(read, shared, bytes_)
        load = _side(read, shared, bytes_, model, False, vec)
        packing += _packing(read, shared, bytes_, vec, together) if 4 <= vec * bytes_ and bytes_ < 4 else 0
    return Cost(write.conflicts + load.conflicts, write.cycles + load.cycles, write.instructions + load.instructions + packing,
                write.pointers + load.pointers)


def _chosen(written: LinearLayout, read: LinearLayout, vector: Sequence[int], lanes: Sequence[int], element_bytes: int,
            model: SharedModel) -> Iterator[LinearLayout]:
    """``choose_shared`` where only ``vector`` of ``read``'s registers may be consecutive in memory, and is so in that order.

    Then the same with rows of the banks made of what lies together in the tensor: conflicts depend on nothing but what goes to
    further rows, and a buffer that is filled without passing through registers is read from global memory in its own order.
    """
    others = [c for c in read.columns("register") if c not in vector]
    columns = {"register": vector, "lane": lanes, "warp": (*read.columns("warp"), *others)}
    found = choose_shared(written, LinearLayout.from_columns(columns, read.out_sizes), element_bytes, banks=model.banks)
    offsets = found.layout.flat_columns
    count = len(vector)
    if Gf2Solver((*offsets[:count], *vector)).rank == count:
        offsets = (*vector, *offsets[count:])
    row, low = log2(model.banks * 4 // element_bytes), log2(max(found.store_vec, found.load_vec, len(vector) and 1 << count))
    rest = offsets[row:]
    inside = independent(_in_tensor_order(read, offsets[0]), (*offsets[:low], *rest), max(0, row - low))
    if len(inside) == row - low and len(offsets) > row:
        yield LinearLayout.from_columns({"offset": (*offsets[:low], *inside, *rest)}, read.out_sizes)
    yield LinearLayout.from_columns({"offset": offsets}, read.out_sizes)


def _in_tensor_order(layout: LinearLayout, first: int) -> list[int]:
    """Unit vectors of the tensor, the dim in which ``first`` lies before the others, the last dim next."""
    groups, at = [], 0
    for bits in (layout.out_bits(d) for d in reversed(layout.out_dims)):
        groups.append([1 << at + i for i in range(bits)])
        at += bits
    groups.sort(key=lambda group: not any(first & v for v in group))
    return [v for group in groups for v in group]


def _candidates(written: LinearLayout, read: LinearLayout, element_bits: int, model: SharedModel) -> Iterator[LinearLayout]:
    bytes_ = element_bits // 8
    registers = [c for c in read.columns("register") if c]
    for width in (16, 8, 4):
        lanes = model.lanes(read.columns("lane"), width, False)
        yield from _chosen(written, read, registers[:max(0, log2(width // bytes_))] if width > bytes_ else [], lanes, bytes_, model)
        yield from _chosen(written, read, registers, lanes, bytes_, model)
    if element_bits in model.transposing:
        size = model.transposing[element_bits]
        turned = transposed_read(read, element_bits, size)
        if turned is not None:
            yield from _chosen(written, turned, turned.columns("register")[:log2(size // bytes_)], turned.columns("lane"), bytes_, model)


@lru_cache(maxsize=1024)
def linear_candidate(shape: tuple[int, ...], written: Any, read: Any, element_bits: int, model: SharedModel,
                     together: int = 0) -> tuple[Cost, Any]:
    """The cheapest linear layout of a buffer of ``shape`` between register encodings ``written`` and ``read``, and its cost."""
    source, target = (to_linear_layout(shape, e) for e in (written, read))
    best: tuple[tuple[int, int], int, Cost, LinearLayout] | None = None
    for number, shared in enumerate(_candidates(source, target, element_bits, model)):
        found = cost(source, target, shared, element_bits, model, together)
        key = ((found.total, found.conflicts), number, found, shared)
        if best is None or key[:2] < best[:2]:
            best = key
    assert best is not None
    return best[2], linear_shared_encoding(best[3])


def cost_of(shape: Sequence[int], written: Any, read: Any, shared: Any, element_bits: int, model: SharedModel, together: int = 0) -> Cost:
    """As ``cost``, of encodings."""
    source, target, between = (to_linear_layout(tuple(shape), e) for e in (written, read, shared))
    return cost(source, target, between, element_bits, model, together)
