"""The register block of a dot: a CPU has no matrix instruction that this target uses, so the table of rows is empty.

ROWS × VECTORS accumulators of 16 f32: 4 × 4 is 16 of AVX-512's 32 registers (of 512 bits), with 4 for B and one for A.
"""

from __future__ import annotations

from tilewright.dialects.matrix_ops import MatrixOp

ROWS = 4
VECTORS = 4
MATRIX_OPS: tuple[MatrixOp, ...] = ()
