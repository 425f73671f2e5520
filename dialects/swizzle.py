"""Choose where in shared memory a tensor goes between a write in one register layout and a read in another, so that both
are vectorised and neither has bank conflicts.

Everything is a choice of basis of the tensor's index space F2^d. Written from the lowest offset bit up it is

    common | extra | word | bank | line [| round]

- common: vectors that both sides hold in registers, so both move them as one access;
- extra: further vectors for the side that gains more; they must lie in the other side's lanes of one wavefront, which then
  read or write within one vector;
- word, bank: the rest of one row of all banks;
- line: what changes the row and keeps the bank. No conflicts means that no combination of lanes that access memory
  together, modulo what lies within one access, is a line vector: ``line`` is a common complement of both sides' spans;
- round: register bits of both sides. Where scratch is short, each value of them is moved separately through the same memory. Where that does not
  suffice (``by_threads``), register bits of the reader alone, which the writer may hold in its threads: in each round some of them write.

The idea is that of Zhou et al., "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2" (2025),
extended by vectors of unequal width and by rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.dialects.gf2 import Gf2Solver, combine, common_complement, independent, intersection
from tilewright.dialects.linear_layout import LinearLayout, log2

MAX_VECTOR_BYTES = 16


@dataclass(frozen=True)
class SharedChoice:
    """``layout``: in dims "offset" (elements) and "round" to the tensor, bijective. ``store_vec``, ``load_vec``: elements an access."""

    layout: LinearLayout
    store_vec: int
    load_vec: int

    @property
    def rounds(self) -> int:
        return self.layout.in_size("round")


@dataclass
class _Side:
    """Registers and threads of one access, as flattened tensor vectors."""

    registers: list[int]  # independent of the threads
    lanes: list[int]
    warps: list[int]
    vec_bits: int = 0

    @property
    def threads(self) -> list[int]:
        return self.lanes + self.warps

    def count(self, vec_bits: int) -> int:
        """Accesses a thread makes."""
        return 1 << (len(self.registers) - vec_bits)


def _write_side(layout: LinearLayout) -> _Side:
    """Only owners write: threads that repeat others take no part."""
    free = layout.free_variable_masks()

    def owned(dim: str) -> list[int]:
        return [0 if free[dim] >> i & 1 else c for i, c in enumerate(layout.columns(dim))]

    return _Side([c for c in owned("register") if c], owned("lane"), owned("warp"))


def _read_side(layout: LinearLayout) -> _Side:
    """All threads read; registers that vary with the thread cannot be part of a vector."""
    lanes, warps = list(layout.columns("lane")), list(layout.columns("warp"))
    return _Side(independent(layout.columns("register"), given=lanes + warps), lanes, warps)


def choose_shared(src: LinearLayout, dst: LinearLayout, element_bytes: int, max_bytes: int | None = None,
                  banks: int = 32, by_threads: bool = False) -> SharedChoice:
    """The shared-memory layout for writing ``src`` and reading ``dst`` (same out dims), elements of 1, 2, 4, 8 or 16 bytes.

    ``max_bytes``: scratch wanted at most; more rounds are made where both sides' registers allow it, or, with ``by_threads``, the reader's: the
    writer's threads then have coordinates in "round" too.
    """
    total = src.total_out_bits
    unit = [1 << i for i in range(total)]
    write, read = _write_side(src), _read_side(dst)
    element = log2(element_bytes)
    line_bits = log2(banks * 4) - element  # elements in one row of the banks
    word_bits = max(0, 2 - element)
    max_vec = log2(MAX_VECTOR_BYTES) - element

    both_threads = write.threads + read.threads
    space, rounds = unit, []
    wanted = 0 if max_bytes is None else total + element - max(element, max_bytes.bit_length() - 1)
    if wanted > 0:
        space = independent(read.threads if by_threads else both_threads)
        keep = max(len(space), total - wanted)
        shared = intersection(write.registers, read.registers)
        space += independent(shared + write.registers + read.registers + unit, space, keep - len(space))
        # complete with single registers of the writer, so that a round is a set of them
        rounds = independent((read if by_threads else write).registers + unit, space)
        write.registers = intersection(write.registers, space)
        read.registers = intersection(read.registers, space)
        if by_threads:  # where in its round a thread writes
            along, within = Gf2Solver(space + rounds), (1 << len(space)) - 1
            write.lanes, write.warps = ([combine(space, (along.solve(v) or 0) & within) for v in vectors] for vectors in (write.lanes, write.warps))
            both_threads = write.threads + read.threads
    size = len(space)

    # vectors that both sides move as one, free of every thread's influence
    common = independent(intersection(write.registers, read.registers), both_threads, max_vec)
    rest = independent(both_threads + write.registers + read.registers + space, common)
    split = Gf2Solver(common + rest)
    mask = (1 << len(common)) - 1

    def strip(v: int) -> int:
        """Without the component along ``common``. Threads have none."""
        x = split.solve(v)
        assert x is not None
        return v ^ combine(common, x & mask)

    for side in (write, read):
        side.registers = independent(common + [strip(r) for r in side.registers])
        side.vec_bits = len(common)

    # further vectors for one side
    best: tuple[int, _Side, _Side, list[int]] = (write.count(len(common)) + read.count(len(common)), write, read, [])
    for side, other in ((write, read), (read, write)):
        group = other.lanes[:max(0, line_bits - max(len(common), word_bits))]
        inside = intersection([r for r in side.registers if r not in common], group)
        more = independent(inside, side.threads, max_vec - len(common))
        cost = side.count(len(common) + len(more)) + other.count(len(common))
        if cost < best[0]:
            best = cost, side, other, more
    _, wide, narrow, extra = best
    wide.vec_bits = len(common) + len(extra)

    def group_of(side: _Side) -> list[int]:
        return side.lanes[:max(0, line_bits - max(side.vec_bits, word_bits))]

    candidates = intersection(group_of(wide), group_of(narrow)) + rest
    word = independent(candidates, extra, max(0, word_bits - wide.vec_bits))
    low = extra + word

    line: list[int] = []
    if size > line_bits:
        spans = []
        for side in (wide, narrow):
            inner = low[:max(0, max(side.vec_bits, word_bits) - len(common))]
            spans.append(independent(inner + group_of(side) + extra + side.threads + rest, limit=line_bits - len(common)))
        line = common_complement(spans[0], spans[1], rest)

    # the wide side's threads must not reach into its vectors: put everything above ``extra`` in a complement that holds them
    if extra:
        above = independent(wide.threads + rest, extra)
        aside = Gf2Solver(extra + above)
        extra_mask = (1 << len(extra)) - 1

        def project(v: int) -> int:
            x = aside.solve(v)
            assert x is not None
            return v ^ combine(extra, x & extra_mask)

        line, word = [project(v) for v in line], [project(v) for v in word]
        fill = [project(v) for v in group_of(narrow) + group_of(wide) + rest]
    else:
        fill = group_of(narrow) + group_of(wide) + rest
    bank = independent(fill, extra + word + line)
    columns = common + extra + word + bank + line
    layout = LinearLayout.from_columns({"offset": columns, "round": rounds}, src.out_sizes)
    return SharedChoice(layout, 1 << write.vec_bits, 1 << read.vec_bits)


def access_vector(layout: LinearLayout, shared: LinearLayout, element_bytes: int, write: bool = False) -> int:
    """The widest aligned vector (elements, at most 16 bytes) with which registers of ``layout`` reach shared memory.

    ``shared`` maps in dim "offset" (and others above it) to the tensor. With ``write`` only owners count.
    """
    solver = Gf2Solver(shared.flat_columns)
    side = _write_side(layout) if write else _read_side(layout)
    threads = 0
    for c in side.threads:
        threads |= solver.solve(c) or 0
    registers = Gf2Solver([solver.solve(c) or 0 for c in side.registers])
    vec, limit = 0, log2(MAX_VECTOR_BYTES) - log2(element_bytes)
    while vec < min(limit, shared.in_bits("offset")) and not threads >> vec & 1 and (1 << vec) in registers:
        vec += 1
    return 1 << vec


def bank_conflicts(layout: LinearLayout, shared: LinearLayout, element_bits: int, banks: int = 32, lanes: int = 32,
                   write: bool = False) -> int:
    """Wavefronts beyond the minimum that a whole access of ``layout`` to ``shared`` costs, by brute force over all threads.

    The model: at most ``lanes`` consecutive lanes access memory at once, as few as make one row of ``banks`` 4-byte banks
    for wider vectors; one wavefront reads one word of each bank, and a word as often as wanted. With ``write`` only
    owners of elements take part.
    """
    bytes_ = max(8, element_bits) // 8
    vec = access_vector(layout, shared, bytes_, write)
    group = min(lanes, banks * 4 // max(4, vec * bytes_))
    solver = Gf2Solver(shared.flat_columns)
    inverse = LinearLayout.from_columns(
        {d: [_coordinate(solver, c) for c in layout.columns(d)] for d in ("register", "lane", "warp")},
        {"offset": 1 << shared.total_in_bits})
    registers, num_lanes, warps = (inverse.in_size(d) for d in ("register", "lane", "warp"))
    offsets = inverse.table().reshape(warps, num_lanes, registers)
    active = np.ones((warps, num_lanes), bool)
    if write:
        free = layout.free_variable_masks()
        active = ((np.arange(num_lanes)[None] & free["lane"]) == 0) & ((np.arange(warps)[:, None] & free["warp"]) == 0)
    extra = 0
    firsts = sorted({int(o): r for r, o in reversed(list(enumerate(offsets[0, 0] // vec)))}.values())
    words_each = max(1, vec * bytes_ // 4)
    for r in firsts:
        word = offsets[:, :, r] // vec * vec * bytes_ // 4
        for w in range(warps):
            for start in range(0, num_lanes, group):
                at = word[w, start:start + group][active[w, start:start + group]]
                if not len(at):
                    continue
                distinct = np.unique((at[:, None] + np.arange(words_each)).ravel())
                counts = np.bincount(distinct % banks)
                extra += int(counts.max()) - -(-len(distinct) // banks)
    return extra


def _coordinate(solver: Gf2Solver, vector: int) -> int:
    x = solver.solve(vector)
    if x is None:
        raise ValueError("the shared layout does not reach every element")
    return x


def coordinates(shared: LinearLayout, layout: LinearLayout) -> dict[str, tuple[int, ...]]:
    """For each in dim of ``layout`` its bases as flattened inputs of ``shared`` ("offset" lowest)."""
    solver = Gf2Solver(shared.flat_columns)
    return {d: tuple(_coordinate(solver, c) for c in layout.columns(d)) for d in layout.in_dims}


def conflicts_of_choice(src: LinearLayout, dst: LinearLayout, choice: SharedChoice, element_bits: int,
                        banks: int = 32) -> tuple[int, int]:
    """Conflicts of the write and of the read through ``choice``."""
    return (bank_conflicts(src, choice.layout, element_bits, banks, write=True),
            bank_conflicts(dst, choice.layout, element_bits, banks))


__all__: Sequence[str] = ["SharedChoice", "access_vector", "bank_conflicts", "choose_shared", "conflicts_of_choice", "coordinates"]
