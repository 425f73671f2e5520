"""The warp-group matrix instructions of sm_90a (``wgmma.mma_async``), one row an instruction.

Lane layouts from the PTX ISA manual, "Asynchronous warpgroup-level matrix instructions", "Register fragments and shared memory
matrix layouts". Four warps compute 64 rows; warp w of them holds rows 16·w to 16·w + 15, so a row says ``m = 16`` (what one
warp holds) and ``#ttg.mma<row, warps_per_cta = [4·groups, …]>`` is the hardware's accumulator. A may lie in registers, with
the lane layout of ``mma.sync``'s A; for 16-bit types that is the accumulator's own layout after a cast. B always lies in shared
memory: a row's ``b`` is the fragment that ``mma.sync`` would take of it, so that layouts made from it are sound, but no
instruction reads it.

``intrinsic`` is the PTX opcode; ``extra``: "warp_group" True; "per_register" and "register" as in ``matrix_ops`` (for A, B,
C); "k_bytes" of one instruction (32); "negates": whether the opcode takes the two immediates that negate A and B; "transposes":
whether it takes the immediates that say MN-major operands (16-bit types alone); "min_sm" and "max_sm": sm_90a alone has them.
"""

from __future__ import annotations

from types import MappingProxyType

from tilewright.dialects.matrix_ops import MatrixOp, OperandBases
from tilewright.targets.nvidia.matrix_ops import _C16x8, _cols, _packed

_SIZES = (8, 16, 32, 64, 128, 256)


def _row(n: int, per: int, a_type: str, c_type: str, ptx: str, b_type: str = "") -> MatrixOp:
    """``per``: elements of A and B in 32 bits. ptx: the types at the opcode's end."""
    a, b = _packed(per)
    further = [8 << i for i in range((n // 8).bit_length() - 1)]
    b = OperandBases(b.register + _cols(*further), b.lane)
    # Element i of C: row g + 8·(i // 2 % 2), column 2·q + i % 2 + 8·(i // 4).
    c = OperandBases(_C16x8.register + _cols(*further), _C16x8.lane)
    k = 8 * per
    c_register, c_per = {"f32": ("f32", 1), "i32": ("b32", 1), "f16": ("b32", 2)}[c_type]
    types = a_type if not b_type or a_type == b_type else f"{a_type}_{b_type}"
    name = f"nvidia.wgmma_m64n{n}k{k}_{types}" + ("_acc_f16" if c_type == "f16" else "")
    extra = {"warp_group": True, "per_register": (per, per, c_per), "register": ("b32", "b32", c_register), "k_bytes": 32,
             "negates": c_type != "i32", "transposes": per == 2, "min_sm": 90, "max_sm": 90}
    return MatrixOp(name, 16, n, k, a_type, b_type or a_type, c_type, a, b, c, 32,
                    f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{ptx}", MappingProxyType(extra))


_FP8 = (("f8E4M3FN", "e4m3"), ("f8E5M2", "e5m2"))

# the largest n first: the fewest instructions, and the least shared memory read, for a product
WARP_GROUP_OPS: tuple[MatrixOp, ...] = tuple(row for n in reversed(_SIZES) for row in (
    _row(n, 2, "f16", "f32", "f32.f16.f16"),
    _row(n, 2, "f16", "f16", "f16.f16.f16"),
    _row(n, 2, "bf16", "f32", "f32.bf16.bf16"),
    _row(n, 4, "i8", "i32", "s32.s8.s8"),
    *(_row(n, 4, a, "f32", f"f32.{an}.{bn}", b) for a, an in _FP8 for b, bn in _FP8),
    _row(n, 1, "tf32", "f32", "f32.tf32.tf32"),
))


def warp_group_rows(sm: int) -> tuple[MatrixOp, ...]:
    """The rows that compute capability ``sm`` has (90 alone), the largest n first."""
    return tuple(row for row in WARP_GROUP_OPS if row.extra["min_sm"] <= sm <= row.extra["max_sm"])


def warp_group_row(a_type: str, b_type: str, c_type: str, n: int) -> MatrixOp | None:
    """The row for operands of these MLIR element types ("f32" reads as tf32) and ``n`` columns, or None."""
    a_type, b_type = ("tf32" if t == "f32" else t for t in (a_type, b_type))
    return next((row for row in WARP_GROUP_OPS if (row.a_type, row.b_type, row.c_type, row.n) == (a_type, b_type, c_type, n)), None)
