"""NVIDIA's warp-level matrix instructions (``mma.sync``), one row an instruction.

Lane layouts from the PTX ISA manual, "Warp-level matrix instructions", the fragment pictures of each shape. Notation: lane
``l``, ``g = l // 4``, ``q = l % 4``, ``i`` the element's number within the lane. ``intrinsic`` is the PTX opcode;
``extra["per_register"]`` says how many elements of A, B and C go into one operand register, ``extra["register"]`` gives those
registers' kinds ("b32", "f32", "f64"), ``extra["min_sm"]`` the first architecture that has the instruction.
"""

from __future__ import annotations

from types import MappingProxyType

from tilewright.dialects.matrix_ops import Bases, MatrixOp, OperandBases


def _rows(*values: int) -> Bases:
    return tuple((v, 0) for v in values)


def _cols(*values: int) -> Bases:
    return tuple((0, v) for v in values)


_G_ROW, _G_COL = _rows(1, 2, 4), _cols(1, 2, 4)

# C and D of every m16n8: element i is row g + 8·(i // 2), column 2q + i % 2.
_C16x8 = OperandBases(_cols(1) + _rows(8), _cols(2, 4) + _G_ROW)


def _packed(per: int) -> tuple[OperandBases, OperandBases]:
    """A and B of m16n8k(8·per) with ``per`` elements a 32-bit register.

    A: row g + 8·(r % 2), k = per·q + i % per + 4·per·(r // 2) for register r = i // per; B: column g, k likewise with r.
    """
    within = [1 << n for n in range(per.bit_length() - 1)]
    lanes = [per, 2 * per]
    a = OperandBases(_cols(*within) + _rows(8) + _cols(4 * per), _cols(*lanes) + _G_ROW)
    b = OperandBases(_rows(*within, 4 * per), _rows(*lanes) + _G_COL)
    return a, b


def _m16n8(per: int, a_type: str, c_type: str, ptx: str, min_sm: int = 80, b_type: str = "") -> MatrixOp:
    a, b = _packed(per)
    k = 8 * per
    c_register, c_per = {"f32": ("f32", 1), "i32": ("b32", 1), "f16": ("b32", 2)}[c_type]
    name = f"nvidia.mma_m16n8k{k}_{a_type if not b_type or a_type == b_type else f'{a_type}_{b_type}'}"
    if c_type == "f16":
        name += "_acc_f16"
    extra = {"per_register": (per, per, c_per), "register": ("b32", "b32", c_register), "min_sm": min_sm}
    return MatrixOp(name, 16, 8, k, a_type, b_type or a_type, c_type, a, b, _C16x8, 32,
                    f"mma.sync.aligned.m16n8k{k}.row.col.{ptx}", MappingProxyType(extra))


_FP8 = (("f8E4M3FN", "e4m3"), ("f8E5M2", "e5m2"))

# best first: 16-bit and 8-bit before tf32, larger k first
MATRIX_OPS: tuple[MatrixOp, ...] = (
    _m16n8(2, "f16", "f32", "f32.f16.f16.f32"),
    _m16n8(2, "f16", "f16", "f16.f16.f16.f16"),
    _m16n8(2, "bf16", "f32", "f32.bf16.bf16.f32"),
    _m16n8(4, "i8", "i32", "s32.s8.s8.s32"),
    *(_m16n8(4, a, "f32", f"f32.{an}.{bn}.f32", 89, b) for a, an in _FP8 for b, bn in _FP8),
    _m16n8(1, "tf32", "f32", "f32.tf32.tf32.f32"),
    # m8n8k4: A row g, k q; B k q, column g; C element i is row g, column 2q + i.
    MatrixOp("nvidia.mma_m8n8k4_f64", 8, 8, 4, "f64", "f64", "f64",
             OperandBases((), _cols(1, 2) + _G_ROW), OperandBases((), _rows(1, 2) + _G_COL),
             OperandBases(_cols(1), _cols(2, 4) + _G_ROW), 32, "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
             MappingProxyType({"per_register": (1, 1, 1), "register": ("f64", "f64", "f64"), "min_sm": 80})),
)


def rows_for(sm: int) -> tuple[MatrixOp, ...]:
    """The rows that compute capability ``sm`` (80, 89, 90, …) has, best first."""
    return tuple(row for row in MATRIX_OPS if row.extra["min_sm"] <= sm)
