"""The register blocks of the dot micro kernel: rows × vectors of accumulators kept in registers while k runs.

The table of matrix instructions (``MATRIX_OPS``) is empty: dots are vector multiply-adds, and need no fragment layouts.
"""

from __future__ import annotations

from typing import Any

MATRIX_OPS: tuple[Any, ...] = ()


def register_block(vector_bits: int, element_bits: int) -> tuple[int, int, int]:
    """(rows, vectors, lanes of a vector) of accumulators.

    With 16 registers (256 bits) 6×2 accumulators leave four for two vectors of b and the broadcast of a, and are more than the
    8–10 multiply-adds that two units of latency 4–5 hold; with 32 registers (512 bits; AArch64's 128) 12×2 do.
    """
    lanes = max(vector_bits // element_bits, 1)
    return (12, 2, lanes) if vector_bits in (128, 512) else (6, 2, lanes)
