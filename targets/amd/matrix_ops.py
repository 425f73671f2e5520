"""AMD's matrix instructions: MFMA (CDNA, wave64) and WMMA (RDNA, wave32), one row an instruction.

Lane layouts from the "Instruction Set Architecture" manuals of CDNA 3 (section 7.1, matrix arithmetic), CDNA 4, RDNA 3 (7.9)
and RDNA 4 (7.12); what confirmed each stands in the tests. Notation in the comments: ``l`` lane, ``j`` operand register, ``r``
accumulator register. ``extra["operands"]`` is how the intrinsic wants its operands: "vector" (of the element type, or of
``extra["element"]``), "i32"/"i64"/"v2i32"/"v4i32"/"v8i32" (bytes packed), "scalar"; ``extra["form"]`` names the argument list,
``extra["formats"]`` the numbers of A's and B's format where the instruction has several.

A product does not change when the k of both operands are permuted alike. So the same instruction stands in the table once more
(``extra["fed"]``, names ending in "_fed") wherever that lets an accumulator be the operand of the next dot as it lies in registers: the
slots of an operand then hold the k that the accumulator's registers and lanes have. ``fed_rows`` says which row that is.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from tilewright.dialects.matrix_ops import Bases, MatrixOp, OperandBases


def _steps(first: int, count: int) -> list[int]:
    return [first << i for i in range(count)]


def _row(values: list[int]) -> Bases:
    return tuple((v, 0) for v in values)


def _col(values: list[int]) -> Bases:
    return tuple((0, v) for v in values)


def _log2(n: int) -> int:
    return n.bit_length() - 1


def _mfma_layouts(size: int, k: int, fed: bool = False, f64: bool = False) -> tuple[OperandBases, OperandBases, OperandBases]:
    """A, B, D of a size × size × k MFMA on 64 lanes.

    A: row l % size, k = e·(l // size) + j with e = k·size/64 elements a lane; B alike with columns.
    D: row 4·(l // size) + r % 4 + 4·(64/size)·(r // 4), column l % size; of f64: row l // size + 4·r.
    Fed: k is D's row in A and B too, k = 4·(l // size) + j % 4 + 4·(64/size)·(j // 4).
    """
    per_lane = k * size // 64
    groups = _log2(64 // size)
    k_regs, k_lanes = _steps(1, _log2(per_lane)), _steps(per_lane, groups)
    if fed:
        k_regs, k_lanes = [1, 2, *_steps(4 << groups, _log2(per_lane) - 2)], _steps(4, groups)
    index = _steps(1, _log2(size))
    a = OperandBases(_col(k_regs), _row(index) + _col(k_lanes))
    b = OperandBases(_row(k_regs), _col(index) + _row(k_lanes))
    rows, lane_rows = [1, 2, *_steps(4 << groups, _log2(size * size // 64) - 2)], _steps(4, groups)
    if f64:
        rows, lane_rows = [4, 8], _steps(1, groups)
    return a, b, OperandBases(_row(rows), _col(index) + _row(lane_rows))


def _wmma_gfx11_layouts() -> tuple[OperandBases, OperandBases, OperandBases]:
    """A: row l % 16, k = j, lanes 16–31 repeat 0–15; D: row 2·r + l // 16, column l % 16."""
    bits = _steps(1, 4)
    zero: Bases = ((0, 0),)
    return (OperandBases(_col(bits), _row(bits) + zero), OperandBases(_row(bits), _col(bits) + zero),
            OperandBases(_row([2, 4, 8]), _col(bits) + _row([1])))


def _wmma_gfx12_layouts() -> tuple[OperandBases, OperandBases, OperandBases]:
    """A: row l % 16, k = 8·(l // 16) + j; D: row 8·(l // 16) + r, column l % 16."""
    bits = _steps(1, 4)
    return (OperandBases(_col([1, 2, 4]), _row(bits) + _col([8])), OperandBases(_row([1, 2, 4]), _col(bits) + _row([8])),
            OperandBases(_row([1, 2, 4]), _col(bits) + _row([8])))


def _mfma(archs: str, size: int, k: int, a_type: str, c_type: str, intrinsic: str, operands: str, element: str = "",
          b_type: str = "", precision: str = "", form: str = "mfma", formats: tuple[int, int] = (0, 0)) -> MatrixOp:
    a, b, d = _mfma_layouts(size, k, f64=c_type == "f64")
    suffix = precision or (a_type if not b_type or b_type == a_type else f"{a_type}_{b_type}")
    extra = {"archs": tuple(archs.split()), "form": form, "operands": operands, "element": element, "precision": precision,
             "formats": formats, "fed": False}
    name = f"amd.mfma_{size}x{size}x{k}_{suffix}" + ("_gfx950" if archs == "gfx950" else "")
    return MatrixOp(name, size, size, k, a_type, b_type or a_type, c_type, a, b, d, 64, f"llvm.amdgcn.mfma.{intrinsic}",
                    MappingProxyType(extra))


def _wmma(archs: str, a_type: str, c_type: str, intrinsic: str, operands: str, element: str = "", b_type: str = "",
          form: str = "wmma") -> MatrixOp:
    new = archs.startswith("gfx12")
    a, b, d = _wmma_gfx12_layouts() if new else _wmma_gfx11_layouts()
    extra = {"archs": tuple(archs.split()), "form": form, "operands": operands, "element": element, "precision": "",
             "formats": (0, 0), "fed": False}
    suffix = a_type if not b_type or b_type == a_type else f"{a_type}_{b_type}"
    name = f"amd.wmma_16x16x16_{suffix}_{'gfx12' if new else 'gfx11'}"
    return MatrixOp(name, 16, 16, 16, a_type, b_type or a_type, c_type, a, b, d, 32, f"llvm.amdgcn.wmma.{intrinsic}",
                    MappingProxyType(extra))


def _scaled_operand(size: int, k: int, bits: int) -> tuple[list[int], list[int]]:
    """k of an operand's elements in registers and by the lane's groups l // size, where scales count. 8 bits: two runs of 16, the second behind the
    first ones of all groups, k = 16·(l // size) + j % 16 + 16·(64/size)·(j // 16); fp4, in bytes of two: one run, 16·(l // size) + j."""
    groups = 64 // size
    return [1, 2, 4, 8] + ([16 * groups] if bits == 8 else []), _steps(16, _log2(groups))


def _dealt(operand: tuple[list[int], list[int]], along: int, group: int) -> tuple[list[int], list[int]]:
    """Where ``along`` instructions take ``group`` elements each in turn."""
    registers, lanes = ([v if v < group else v * along for v in part] for part in operand)
    return registers, lanes


def _scaled(size: int, k: int, parts: int, along: int, a: tuple[str, int, int], b: tuple[str, int, int]) -> MatrixOp:
    """The f8f6f4 instruction with scales; ``a``, ``b``: (format, its number, bits). A lane's byte of scales is row l % size's, of the 32 numbers from
    k = 32·(l // size) on, for all formats alike.

    ``parts`` 2: four of them side by side as one row of the table, the second rows and columns in further registers: a lane then has the scales of two
    rows that are ``size`` apart, whatever the number of waves, which are neighbours where scales are stored shuffled.

    ``along`` 2 or 4: so many of them one after another along k, to which neighbouring groups of 32 numbers are dealt in turn: a lane then has the scales of
    so many neighbours, which are consecutive bytes where scales are stored by rows. The sum is the same; operands are read in that order too."""
    index = _steps(1, _log2(size))
    (a_regs, a_lanes), (b_regs, b_lanes) = (_dealt(_scaled_operand(size, k, x[2]), along, 32 * x[2] // 8) for x in (a, b))
    words = [f"v{k * size // 64 * x[2] // 32}i32" for x in (a, b)]
    extra = {"archs": ("gfx950",), "form": "scaled", "operands": tuple(words), "element": "", "precision": "", "formats": (a[1], b[1]), "fed": False,
             "size": size, "parts": parts, "along": along}
    more = [size] if parts == 2 else []
    a_next, b_next = (_steps(32 * x[2] // 8, _log2(along)) for x in (a, b))
    c = _mfma_layouts(size, k)[2]
    name = f"amd.mfma_scale_{size}x{size}x{k}_{a[0]}_{b[0]}" + ("_by_4" if more else "") + (f"_along_{along}" if along > 1 else "")
    return MatrixOp(name, size * parts, size * parts, k * along, a[0], b[0], "f32",
                    OperandBases(_col(a_regs) + _row(more) + _col(a_next), _row(index) + _col(a_lanes)),
                    OperandBases(_row(b_regs) + _col(more) + _row(b_next), _col(index) + _row(b_lanes)), OperandBases(c.register + _row(more) + _col(more), c.lane),
                    64, f"llvm.amdgcn.mfma.scale.f32.{size}x{size}x{k}.f8f6f4.{words[0]}.{words[1]}", MappingProxyType(extra), 8 // a[2], 8 // b[2])


def _fed(row: MatrixOp) -> MatrixOp | None:
    """The row's instruction with the k order of its own accumulator; None where it has that already, or cannot (gfx11, whose lanes hold
    twice as much of an operand as of an accumulator)."""
    if row.warp_size == 32 or row.k * row.m // 64 <= 4:
        return None
    a, b, _ = _mfma_layouts(row.m, row.k, fed=True)
    return replace(row, name=f"{row.name}_fed", a=a, b=b, extra=MappingProxyType({**row.extra, "fed": True}))


_CDNA = "gfx90a gfx942 gfx950"
_RDNA3 = "gfx1100 gfx1101 gfx1102"
_RDNA4 = "gfx1200 gfx1201"
_FNUZ = (("f8E4M3FNUZ", "fp8"), ("f8E5M2FNUZ", "bf8"))
_OCP = (("f8E4M3FN", "fp8"), ("f8E5M2", "bf8"))

# best first: larger tiles do more work an operand byte, longer k more work an instruction
_PLAIN: tuple[MatrixOp, ...] = (
    _mfma("gfx950", 32, 16, "f16", "f32", "f32.32x32x16.f16", "vector"),
    _mfma("gfx950", 32, 16, "bf16", "f32", "f32.32x32x16.bf16", "vector"),
    _mfma("gfx950", 16, 32, "f16", "f32", "f32.16x16x32.f16", "vector"),
    _mfma("gfx950", 16, 32, "bf16", "f32", "f32.16x16x32.bf16", "vector"),
    _mfma("gfx950", 32, 32, "i8", "i32", "i32.32x32x32.i8", "v4i32"),
    _mfma("gfx950", 16, 64, "i8", "i32", "i32.16x16x64.i8", "v4i32"),
    _mfma(_CDNA, 32, 8, "f16", "f32", "f32.32x32x8f16", "vector"),
    _mfma(_CDNA, 32, 8, "bf16", "f32", "f32.32x32x8bf16.1k", "vector", "i16"),
    _mfma(_CDNA, 16, 16, "f16", "f32", "f32.16x16x16f16", "vector"),
    _mfma(_CDNA, 16, 16, "bf16", "f32", "f32.16x16x16bf16.1k", "vector", "i16"),
    _mfma("gfx942 gfx950", 32, 16, "i8", "i32", "i32.32x32x16.i8", "i64"),
    _mfma("gfx942 gfx950", 16, 32, "i8", "i32", "i32.16x16x32.i8", "i64"),
    _mfma("gfx90a", 32, 8, "i8", "i32", "i32.32x32x8i8", "i32"),
    _mfma("gfx90a", 16, 16, "i8", "i32", "i32.16x16x16i8", "i32"),
    # f32 read with the mantissa of 10 bits that input_precision "tf32" allows
    _mfma("gfx942", 32, 4, "tf32", "f32", "f32.32x32x4.xf32", "vector"),
    _mfma("gfx942", 16, 8, "tf32", "f32", "f32.16x16x8.xf32", "vector"),
    _mfma(_CDNA, 32, 2, "f32", "f32", "f32.32x32x2f32", "scalar"),
    _mfma(_CDNA, 16, 4, "f32", "f32", "f32.16x16x4f32", "scalar"),
    _mfma(_CDNA, 16, 4, "f64", "f64", "f64.16x16x4f64", "scalar"),
    # formats 0 and 1 are e4m3 and e5m2; scales are left out, which makes them 1 (CDNA 4 manual, 7.1.5)
    *(_mfma("gfx950", size, k, a, "f32", f"scale.f32.{size}x{size}x{k}.f8f6f4.v8i32.v8i32", "v8i32", "", b, form="mfma_scale",
            formats=(i, j)) for size, k in ((32, 64), (16, 128)) for i, (a, _) in enumerate(_OCP) for j, (b, _) in enumerate(_OCP)),
    *(_mfma("gfx942", size, k, a, "f32", f"f32.{size}x{size}x{k}.{an}.{bn}", "i64", "", b)
      for size, k in ((32, 16), (16, 32)) for a, an in _FNUZ for b, bn in _FNUZ),
    *(_mfma("gfx950", size, k, a, "f32", f"f32.{size}x{size}x{k}.{an}.{bn}", "i64", "", b)
      for size, k in ((32, 16), (16, 32)) for a, an in _OCP for b, bn in _OCP),
    _wmma(_RDNA3, "f16", "f32", "f32.16x16x16.f16.v8f32.v16f16", "vector"),
    _wmma(_RDNA3, "bf16", "f32", "f32.16x16x16.bf16.v8f32.v16i16", "vector", "i16"),
    _wmma(_RDNA3, "i8", "i32", "i32.16x16x16.iu8.v8i32.v4i32", "v4i32", form="wmma_signed"),
    _wmma(_RDNA4, "f16", "f32", "f32.16x16x16.f16.v8f32.v8f16", "vector"),
    _wmma(_RDNA4, "bf16", "f32", "f32.16x16x16.bf16.v8f32.v8i16", "vector", "i16"),
    _wmma(_RDNA4, "i8", "i32", "i32.16x16x16.iu8.v8i32.v2i32", "v2i32", form="wmma_signed"),
    *(_wmma(_RDNA4, a, "f32", f"f32.16x16x16.{an}.{bn}.v8f32.v2i32", "v2i32", "", b) for a, an in _OCP for b, bn in _OCP),
)
_FED: tuple[tuple[MatrixOp, MatrixOp], ...] = tuple((row, fed) for row, fed in ((row, _fed(row)) for row in _PLAIN) if fed is not None)
MATRIX_OPS: tuple[MatrixOp, ...] = _PLAIN + tuple(fed for _, fed in _FED)


# of tl.dot_scaled, best first (32 × 32 × 64 has the same rate as 16 × 16 × 128): types are its formats; cbsz and blgp number them (CDNA 4 manual, 7.1.5)
_FORMATS = (("e4m3", 0, 8), ("e5m2", 1, 8), ("e2m1", 4, 4))
SCALED_OPS: tuple[MatrixOp, ...] = tuple(_scaled(size, k, parts, along, a, b) for along in (1, 2, 4) for size, k, parts in ((16, 128, 2), (32, 64, 1), (16, 128, 1))
                                         for a in _FORMATS for b in _FORMATS)


def rows_for(arch: str) -> tuple[MatrixOp, ...]:
    """The rows that ``arch`` has, best first, without those for dots that are fed by another."""
    return tuple(row for row in _PLAIN if arch in row.extra["archs"])


def fed_rows(arch: str) -> dict[str, str]:
    """Names of rows → names of their forms for dots whose A operand is another dot's accumulator."""
    return {row.name: fed.name for row, fed in _FED if arch in row.extra["archs"]}
