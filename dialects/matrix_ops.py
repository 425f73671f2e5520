"""What a row of a target's matrix-instruction table says, and the process-wide table of all loaded rows.

A row gives the instruction's tile (m, n, k), element types, and for each operand which (lane, register) holds which
element, as linear-layout bases: ``a`` maps to (m, k), ``b`` to (k, n), ``c`` to (m, n). The ``#ttg.mma`` encoding names a
row; ``dialects.encodings`` builds the layouts of accumulators and operands from it, and the shared lowering of ``tt.dot``
hands the row and the registers to the target's ``mma`` hook. So a new instruction is a new row, never a new if.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

Bases = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class OperandBases:
    """Bases of one operand: ``register`` and ``lane`` are tuples of (row, column) vectors, lowest bit first.

    A zero vector means that the value is repeated (some instructions want lanes 16-31 to repeat lanes 0-15).
    """

    register: Bases
    lane: Bases


@dataclass(frozen=True)
class MatrixOp:
    """One matrix instruction.

    name: unique over all targets, prefixed with the target ("toy.mma_m16n8k16_f16").
    a_type, b_type, c_type: MLIR spellings ("f16", "bf16", "f32", "i8", "i32", "f8E4M3FN", …); ``tf32`` for f32 data read as tf32.
    warp_size: lanes. intrinsic: what the target's ``mma`` hook emits (an LLVM intrinsic's name or assembly).
    extra: target data, read by that target alone. a_pack, b_pack: numbers along k that an element of the operand's tensor holds (2: fp4 in
    bytes); ``a`` and ``b`` are in such elements, ``k`` is in numbers.
    """

    name: str
    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    c_type: str
    a: OperandBases
    b: OperandBases
    c: OperandBases
    warp_size: int
    intrinsic: str
    extra: MappingProxyType[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    a_pack: int = 1
    b_pack: int = 1


_rows: dict[str, MatrixOp] = {}


def register_rows(rows: Iterable[MatrixOp]) -> None:
    """Add rows to the table. Raises ValueError when a name is taken by a different row."""
    for row in rows:
        if _rows.setdefault(row.name, row) != row:
            raise ValueError(f"matrix instruction {row.name!r} is registered twice with different contents")


def lookup(name: str) -> MatrixOp:
    """The row of that name. Raises KeyError with the known names."""
    try:
        return _rows[name]
    except KeyError:
        raise KeyError(f"no matrix instruction {name!r}; loaded: {', '.join(sorted(_rows)) or 'none'}") from None
