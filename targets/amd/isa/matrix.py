"""Matrix instructions: v_mfma_* (CDNA, waves of 64) and v_wmma_* (RDNA, waves of 32): D = A·B + C.

Numerics: products are exact, sums are in float64, and the result is rounded once to the accumulator's type (to nearest even). The hardware
rounds between its steps in ways that are not documented, so the last bits of real sums may differ; integers are exact. Subnormals are kept, but
f16 and bf16 MFMA of gfx90a flush them, inputs and results ("MI200 MFMA behavior specifics" in AMD's documentation). The rounding of xf32 inputs
is an assumption (matrix_formats). NaNs come out as quiet NaNs of no particular payload.

EXEC does not matter to MFMA (CDNA 3 manual, chapter 7). WMMA is executed with all lanes active only: anything else is an error here. cbsz, abid and
blgp are known where they name formats (f8f6f4) or negate (f64), as broadcasts not: an error. Distances between dependent
instructions (s_nop) are not checked.

Lanes and registers (CDNA 3 manual, 7.1.4; RDNA 3 7.9; RDNA 4 7.12), with l = lane:

* MFMA, M×N×K of B blocks: A's row i of block b has its k at lane i + M·(b + B·(k // L)), element k % L of the L = K·M·B/64 that a lane holds;
  B likewise with columns. D's row i, column j: lane j + N·(i // H % R + R·(b % S)), element i % H + H·(i // (H·R) + G·(b // S)), with H = 4 rows
  in a row (f64: 1), S blocks side by side, R = 64/(S·N), G = M/(H·R).
* f8f6f4 with 8-bit elements: the lane's 32 are two runs of 16, half of K apart: k = (K/2)·(e // 16) + 16·(l // M) + e % 16; smaller elements are one
  run of 32. Block scales: lane i + M·g holds the scale of row i for k in 32·g … 32·g + 31.
* WMMA gfx11: A's row l % 16, k = element, the lanes 16…31 repeat the lanes 0…15; D's row 2·r + l // 16, column l % 16. 16-bit accumulators fill
  one half of each register (op_sel). gfx12: k = E·(l // 16) + element, E elements a lane; D's row 8·(l // 16) + element, 16-bit ones packed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.matrix_formats import FORMATS, Format, flush
from tilewright.targets.amd.isa.program import Imm, Instruction, Operand, Reg
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.state import constant

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any
Fetch = Callable[["Waves"], Array]

_CDNA = ("gfx90a", "gfx942", "gfx950")
_CDNA3 = ("gfx942", "gfx950")


@dataclass(frozen=True)
class Mfma:
    """One MFMA instruction: m × n × k, ``blocks`` of them; formats of A and B (FORMATS) and of the accumulator: "f32", "f64" or "i32"."""

    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    out: str
    archs: tuple[str, ...]


# m, n, k, blocks → as in the names; gfx90a writes no blocks and joins the type to the shape, bf16 with _1k where it takes four elements a lane
_SHAPES: tuple[tuple[str, str, tuple[tuple[int, int, int, int], ...], tuple[str, ...]], ...] = (
    ("f32", "f32", ((32, 32, 1, 2), (16, 16, 1, 4), (4, 4, 1, 16), (32, 32, 2, 1), (16, 16, 4, 1)), _CDNA),
    ("f32", "f16", ((32, 32, 4, 2), (16, 16, 4, 4), (4, 4, 4, 16), (32, 32, 8, 1), (16, 16, 16, 1)), _CDNA),
    ("f32", "bf16", ((32, 32, 4, 2), (16, 16, 4, 4), (4, 4, 4, 16), (32, 32, 8, 1), (16, 16, 16, 1)), _CDNA),
    ("f32", "f16", ((32, 32, 16, 1), (16, 16, 32, 1)), ("gfx950",)),
    ("f32", "bf16", ((32, 32, 16, 1), (16, 16, 32, 1)), ("gfx950",)),
    ("i32", "i8", ((32, 32, 4, 2), (16, 16, 4, 4), (4, 4, 4, 16)), _CDNA),
    ("i32", "i8", ((32, 32, 8, 1), (16, 16, 16, 1)), ("gfx90a",)),
    ("i32", "i8", ((32, 32, 16, 1), (16, 16, 32, 1)), _CDNA3),
    ("i32", "i8", ((32, 32, 32, 1), (16, 16, 64, 1)), ("gfx950",)),
    ("f32", "xf32", ((32, 32, 4, 1), (16, 16, 8, 1)), ("gfx942",)),
    ("f64", "f64", ((16, 16, 4, 1), (4, 4, 4, 4)), _CDNA),
    *(("f32", f"{a}_{b}", ((32, 32, 16, 1), (16, 16, 32, 1)), _CDNA3) for a in ("fp8", "bf8") for b in ("fp8", "bf8")),
)


def _mfma_rows() -> dict[tuple[str, str], Mfma]:
    """(arch, mnemonic) → row."""
    rows = {}
    for out, kind, shapes, archs in _SHAPES:
        a, _, b = kind.partition("_")
        for m, n, k, blocks in shapes:
            for arch in archs:
                own = " fnuz" if arch == "gfx942" and a in ("fp8", "bf8") else " flushed" if arch == "gfx90a" and a in ("f16", "bf16") else ""
                row = Mfma(m, n, k, blocks, a + own, (b or a) + own, out, archs)
                shape, many = f"v_mfma_{out}_{m}x{n}x{k}", f"_{blocks}b" if blocks > 1 else ""
                names = [f"{shape}{kind}{'_1k' if kind == 'bf16' else ''}"] if arch == "gfx90a" else [f"{shape}{many}_{kind}"]
                if arch != "gfx90a" and blocks == 1:
                    names.append(f"{shape}{kind}")
                    if kind == "bf16" and m * k == 256:
                        names.append(f"{shape}{kind}_1k")
                for name in names:
                    rows[arch, name] = row
    # gfx90a's first bf16 instructions, two elements a lane
    for m, n, k, blocks in ((32, 32, 2, 2), (16, 16, 2, 4), (4, 4, 2, 16), (32, 32, 4, 1), (16, 16, 8, 1)):
        rows["gfx90a", f"v_mfma_f32_{m}x{n}x{k}bf16"] = Mfma(m, n, k, blocks, "bf16 flushed", "bf16 flushed", "f32", ("gfx90a",))
    return rows


MFMA = _mfma_rows()


# -------------------------------------------------------------------------------------------------------- operands
def registers(ins: Instruction, ctx: DecodeContext, place: int, count: int) -> Reg:
    operand = ins.operands[place]
    if not isinstance(operand, Reg) or operand.kind not in "va" or operand.count != count or operand.hi is not None or operand.neg or operand.abs \
            or (operand.kind == "a" and ctx.generation != 9):
        raise ctx.unknown(ins, f"operand {operand.text!r} where {count} vector registers are needed")
    return operand


def fetch(reg: Reg) -> Fetch:
    """uint32 (count, n, lanes)."""
    kind, first, count = reg.kind, reg.first, reg.count
    return lambda w: w.vectors(kind, first, count)


def _constant(operand: Operand, kind: str) -> int | None:
    return constant(operand, kind) if isinstance(operand, Imm) else None


# ------------------------------------------------------------------------------------------------------------ MFMA
def _blocks_of(reg: Reg, form: Format, rows: int, blocks: int) -> Fetch:
    """An operand as float64 (n, blocks, rows, k)."""
    read = fetch(reg)
    words, groups = reg.count, 64 // (rows * blocks)

    def arranged(w: Waves) -> Array:
        split = read(w).reshape(words, w.n, groups, blocks, rows)
        return form.decode(np.ascontiguousarray(split.transpose(1, 3, 4, 2, 0))).reshape(w.n, blocks, rows, -1)

    return arranged


@dataclass(frozen=True)
class _Accumulator:
    """Where D's elements are: (n, blocks, m, n) ↔ (elements, n, lanes)."""

    m: int
    n: int
    blocks: int
    rows: int  # consecutive rows of a lane

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Blocks one after another and side by side, groups of rows, lanes' rows."""
        side = max(1, 64 // (self.n * self.m // self.rows))
        lanes = 64 // (side * self.n)
        return self.blocks // side, side, self.m // (self.rows * lanes), lanes

    def toregisters(self, product: Array) -> Array:
        many, side, groups, lanes = self.shape
        waves = len(product)
        split = product.reshape(waves, many, side, groups, lanes, self.rows, self.n)
        return split.transpose(1, 3, 5, 0, 2, 4, 6).reshape(-1, waves, 64)


def _finish(out: str, flushed: bool) -> tuple[Callable[[Array], Array], Callable[[Array, Array], Array]]:
    """(registers → C, (product, C) → registers) of an accumulator: uint32 (registers, n, lanes), elements (elements, n, lanes)."""
    if out == "i32":
        return (lambda words: words.view(np.int32)), lambda product, c: (product.astype(np.int64) + c).astype(np.uint32)
    if out == "f64":
        def read(words: Array) -> Array:
            pairs = words.reshape(-1, 2, *words.shape[1:])
            return np.ascontiguousarray(np.moveaxis(pairs, 1, -1)).view(np.float64)[..., 0]

        def write(product: Array, c: Array) -> Array:
            both = np.moveaxis((product + c)[..., None].view(np.uint32), -1, 1)
            return both.reshape(-1, *both.shape[2:])

        return read, write
    if flushed:
        return (lambda words: flush(words.view(np.float32))), lambda product, c: flush((product + c).astype(np.float32)).view(np.uint32)
    return (lambda words: words.view(np.float32)), lambda product, c: (product + c).astype(np.float32).view(np.uint32)


def _accumulate(ins: Instruction, ctx: DecodeContext, row: Mfma, product: Fetch, negate_c: bool = False) -> Step:
    """D = product + C, whatever EXEC is."""
    layout = _Accumulator(row.m, row.n, row.blocks, 1 if row.out == "f64" else 4)
    count = row.m * row.n * row.blocks // 64 * (2 if row.out == "f64" else 1)
    target = registers(ins, ctx, 0, count)
    read, write = _finish(row.out, "flushed" in row.a)
    kind, first = target.kind, target.first
    fixed = _constant(ins.operands[3], row.out)
    if fixed is None:
        read_c = fetch(registers(ins, ctx, 3, count))
    elif row.out == "f64":
        value = np.array([fixed & (1 << 64) - 1], np.uint64).view(np.float64)[0]
    else:
        value = read(np.array([fixed & 0xFFFFFFFF], np.uint32))[0]

    def step(w: Waves) -> None:
        c = read(read_c(w)) if fixed is None else value
        w.set_vectors(kind, first, write(layout.toregisters(product(w)), -c if negate_c else c), everywhere=True)

    return step


def _mfma(ins: Instruction, ctx: DecodeContext) -> Step:
    row = MFMA.get((ctx.arch, ins.base))
    if row is None:
        raise ctx.unknown(ins, "another arch has it")
    ctx.only(ins, *(("neg", "blgp") if row.out == "f64" else ()))
    a, b = (_blocks_of(registers(ins, ctx, place, k), FORMATS[name], rows, row.blocks) for place, name, rows, k in (
        (1, row.a, row.m, _words(row.a, row.m, row)), (2, row.b, row.n, _words(row.b, row.n, row))))
    if row.out != "f64":
        return _accumulate(ins, ctx, row, lambda w: a(w) @ b(w).swapaxes(-1, -2))
    # f64: the bits of blgp negate A, B and C (CDNA 3 manual, chapter 7; LLVM prints neg:[a,b,c] from gfx942 on)
    bits = ins.modifiers.get("neg", tuple(int(ins.modifiers.get("blgp", 0)) >> i & 1 for i in range(3)))
    sign = -1.0 if bits[0] ^ bits[1] else 1.0
    return _accumulate(ins, ctx, row, lambda w: sign * (a(w) @ b(w).swapaxes(-1, -2)), bool(bits[2]))


def _words(name: str, rows: int, row: Mfma) -> int:
    return FORMATS[name].bits * rows * row.k * row.blocks // (64 * 32)


instruction(*{name for _, name in MFMA})(_mfma)

_F8F6F4 = ("fp8", "bf8", "fp6", "bf6", "fp4")  # by cbsz and blgp


def _long_operand(reg: Reg, form: Format, rows: int) -> Fetch:
    """A or B of f8f6f4 as float64 (n, rows, k)."""
    plain = _blocks_of(reg, form, rows, 1)
    if form.bits != 8:
        return lambda w: plain(w)[:, 0]
    groups = 64 // rows

    def interleaved(w: Waves) -> Array:
        return plain(w).reshape(w.n, rows, groups, 2, 16).transpose(0, 1, 3, 2, 4).reshape(w.n, rows, -1)

    return interleaved


def _scale(ins: Instruction, ctx: DecodeContext, place: int, rows: int) -> Fetch:
    """2^(E8M0 byte − 127) as float64 (n, rows, k), NaN for 255. The byte is chosen by op_sel (low bit) and op_sel_hi (high bit) of the operand."""
    if "op_sel_hi" not in ins.modifiers:
        raise ctx.unknown(ins, "no op_sel_hi, which chooses the scale's byte")
    byte = ins.modifiers.get("op_sel", (0, 0, 0))[place - 4] + 2 * ins.modifiers["op_sel_hi"][place - 4]
    read = ctx.reader(ins.operands[place], "b32")
    table = np.ldexp(1.0, np.arange(256) - 127)
    table[255] = np.nan

    def scales(w: Waves) -> Array:
        codes = np.broadcast_to(read(w), (w.n, 64)) >> np.uint32(8 * byte) & np.uint32(255)
        return np.repeat(table.take(codes.reshape(w.n, -1, rows)).swapaxes(1, 2), 32, axis=2)

    return scales


@instruction("v_mfma_f32_16x16x128_f8f6f4", "v_mfma_f32_32x32x64_f8f6f4", "v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_scale_f32_32x32x64_f8f6f4")
def _f8f6f4(ins: Instruction, ctx: DecodeContext) -> Step:
    """CDNA 4 manual, chapter 7: A's format by cbsz, B's by blgp; the scaled form multiplies runs of 32 by powers of two."""
    if ctx.arch != "gfx950":
        raise ctx.unknown(ins, "only gfx950 has it")
    scaled = "_scale_" in ins.base
    ctx.only(ins, "cbsz", "blgp", *(("op_sel", "op_sel_hi") if scaled else ()))
    size, k = (16, 128) if "16x16" in ins.base else (32, 64)
    names = [_F8F6F4[ins.modifiers.get(m, 0)] for m in ("cbsz", "blgp")]
    a, b = (_long_operand(registers(ins, ctx, place, FORMATS[name].bits), FORMATS[name], size) for place, name in zip((1, 2), names, strict=True))
    row = Mfma(size, size, k, 1, names[0], names[1], "f32", ("gfx950",))
    if not scaled:
        return _accumulate(ins, ctx, row, lambda w: (a(w) @ b(w).swapaxes(-1, -2))[:, None])
    a_scale, b_scale = _scale(ins, ctx, 4, size), _scale(ins, ctx, 5, size)
    return _accumulate(ins, ctx, row, lambda w: ((a(w) * a_scale(w)) @ (b(w) * b_scale(w)).swapaxes(-1, -2))[:, None])
