"""Whole reads of shared memory by ``ldmatrix``, wherever the composed map thread → memory offset has its shape.

``ldmatrix`` (PTX ISA manual, 9.7.14.5.15) reads 8×8 matrices of 16-bit elements, or rows of 16 bytes: lanes 8i..8i+7 name the
rows of matrix i; lane l receives the 4 bytes number l % 4 of row l // 4, or with ``.trans`` elements (2·(l % 4), l // 4) and the
one below. The decision is made on the linear map from (register, lane, warp) to element offsets in memory, never on the names
of layouts, so any swizzle and any operand with that map gets it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.dialects.lowering.shared_ops import Addresses


@dataclass(frozen=True)
class MatrixLoad:
    """How to read a tile. Offsets are in elements.

    word: elements in 32 bits. count: matrices an instruction (1, 2 or 4). thread: the row address's columns by the bits of
    the thread's number. steps: for each instruction its offset, to be xor-ed, and for each of its matrices the number of the
    first register of the word that it fills. owners: for each register the register that holds its element.
    """

    trans: bool
    word: int
    count: int
    thread: tuple[int, ...]
    steps: tuple[tuple[int, tuple[int, ...]], ...]
    owners: tuple[int, ...]


def plan_matrix_load(columns: dict[str, tuple[int, ...]], element_bytes: int) -> MatrixLoad | None:
    """The plan for a map from (register, lane, warp) to element offsets, or None where ldmatrix does not have its shape."""
    if element_bytes not in (1, 2, 4) or len(columns["lane"]) != 5:
        return None
    registers, lanes, warps = columns["register"], columns["lane"], columns["warp"]
    word = 4 // element_bytes
    inside = word.bit_length() - 1
    row = 16 // element_bytes
    if len(registers) < inside:
        return None
    if registers[:inside] == tuple(1 << i for i in range(inside)) and lanes[:2] == (word, 2 * word):
        trans, rows = False, lanes[2:]
    elif element_bytes == 2 and lanes[2:] == (1, 2, 4) and registers[:1] != (0,):
        trans, rows = True, (registers[0], *lanes[:2])
    else:
        return None
    others = registers[inside:]
    # Rows begin at multiples of 16 bytes, and a basis that is a sum of others would name a register twice.
    if any(c & (row - 1) for c in (*rows, *others, *warps)) or 0 in rows:
        return None
    live = [i for i, c in enumerate(others) if c]
    if _rank([others[i] for i in live]) != len(live):
        return None
    matrices = _matrices(live, others, (*rows, *warps), trans)
    rest = [i for i in live if i not in matrices]
    thread = (*rows, *(others[i] for i in matrices), *([0] * (2 - len(matrices))), *warps)
    steps = []
    for combination in range(1 << len(rest)):
        offset = register = 0
        for n, i in enumerate(rest):
            if combination >> n & 1:
                offset ^= others[i]
                register |= 1 << (inside + i)
        firsts = []
        for m in range(1 << len(matrices)):
            firsts.append(register | sum(1 << (inside + i) for n, i in enumerate(matrices) if m >> n & 1))
        steps.append((offset, tuple(firsts)))
    mask = (1 << inside) - 1 | sum(1 << (inside + i) for i in live)
    owners = tuple(r & mask for r in range(1 << len(registers)))
    return MatrixLoad(trans, word, 1 << len(matrices), thread, tuple(steps), owners)


def _matrices(live: Sequence[int], columns: Sequence[int], thread: Sequence[int], trans: bool) -> list[int]:
    """Which register bits number the matrices of one instruction.

    The lowest come first, since a product wants the words of one operand in neighbouring registers: two bits for A, one for
    B. Where only the first can be such (rows of B in memory order), the second is one that the swizzle mixes with the thread's
    bits: what is left then differs by constants, and fewer addresses are live.
    """
    if trans and len(live) > 2:
        reach = 0
        for c in thread:
            reach |= c
        if not columns[live[0]] & reach:
            mixed = [i for i in live[1:] if columns[i] & reach]
            if mixed:
                return [live[0], mixed[0]]
    return list(live[:2])


def _rank(columns: Sequence[int]) -> int:
    basis: list[int] = []
    for c in columns:
        for b in basis:
            c = min(c, c ^ b)
        if c:
            basis.append(c)
    return len(basis)


def plan_for(plan: Any) -> MatrixLoad | None:
    """The plan for what the shared lowering offers (its ``MatrixLoadPlan``), or None."""
    layout = plan.layout
    if plan.has_padding or plan.element_bits % 8 or any(layout.columns("block") if layout.has_in("block") else ()):
        return None
    if plan.view.constant & (128 // plan.element_bits - 1):
        return None
    columns = {d: tuple(map(plan.offset, layout.columns(d))) for d in ("register", "lane", "warp")}
    return plan_matrix_load(columns, plan.element_bits // 8)


def emit_matrix_load(b: Any, plan: Any, remember: Any) -> list[Any] | None:
    """The registers of ``plan.layout``; ``remember(elements, word)`` is told of every 32-bit word and its elements."""
    load = plan_for(plan)
    if load is None:
        return None
    i32, element = b.t_i32, plan.element_type
    result_type = i32 if load.count == 1 else b.struct([i32] * load.count)
    name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{load.count}{'.trans' if load.trans else ''}.b16.p3"
    addresses = Addresses(plan.ctx, plan.view, load.thread)
    registers: list[Any] = [None] * len(load.owners)
    for step, firsts in load.steps:
        out = b.call_intrinsic(name, result_type, [addresses.at(step)])
        words = [out] if load.count == 1 else [b.extract_value(out, i, i32) for i in range(load.count)]
        for first, word in zip(firsts, words):
            if load.word == 1:
                elements = [b.bitcast(word, element)]
            else:
                elements = b.unpack_vector(b.bitcast(word, b.vec(load.word, element)), load.word)
            remember(elements, word)
            registers[first:first + load.word] = elements
    return [registers[r] for r in load.owners]
