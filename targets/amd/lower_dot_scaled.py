"""tt.dot_scaled by gfx950's v_mfma_scale (CDNA 4 ISA manual, 7.1.5; LLVM AMDGPU user guide, llvm.amdgcn.mfma.scale).

Each instruction takes a register of scales for either operand and says which of its four bytes counts. Without scales on both sides it is
the form that has none; beside scales on one side those of the other are 1. A scale of 255 is NaN whatever ``fast_math`` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.lowering.indices import fields, registers_by_element
from tilewright.dialects.lowering.registry import Lowering
from tilewright.targets.amd.scaled_dots import scale_steps

_ONE = 127  # e8m0
_BYTES = 4  # of a register


class _Scales:
    """The scales of one operand: of each instruction a register, and which of its bytes."""

    def __init__(self, ctx: Any, value: Any, encoding: Any, operand: int):
        self.b, self.registers = ctx.b, ctx.get(value)
        layout = ctx.layout_of(value)
        self.table, self.fields = registers_by_element(layout), fields(layout)
        self.steps = scale_steps(value.type.shape, encoding, operand)
        self.size = encodings.mma_row(encoding).extra["size"]
        self.words: dict[Any, Any] = {}

    def at(self, batch: int, tile: int, k: int, part: int, turn: int) -> tuple[Any, int]:
        """(register, byte) for the warp's instruction of these numbers."""
        at = [n * step for n, step in zip((batch, tile, k), self.steps)]
        coordinates = [at[0], at[1] + part * self.size, at[2] + turn][-len(self.fields):]
        register = self.table[sum((c & (1 << bits) - 1) << shift for c, (shift, bits) in zip(coordinates, self.fields))]
        return self._byte(self.registers[register])

    def _byte(self, value: Any) -> tuple[Any, int]:
        """Bytes that came into a register together are named where they are; others have a register each, as they were loaded."""
        b = self.b
        owner = getattr(value.owner, "operation", None) or value.owner
        if getattr(owner, "name", "") == "llvm.extractelement":
            vector, index = owner.operands[0], b.constant_of(owner.operands[1])
            count = ir.VectorType(vector.type).shape[0]
            if index is not None and count == 2:
                if vector not in self.words:
                    self.words[vector] = b.zext(b.bitcast(vector, b.t_i16), b.t_i32)
                return self.words[vector], int(index)
            if index is not None and count % _BYTES == 0:
                key = (vector, index // _BYTES)
                if key not in self.words:
                    words = b.bitcast(vector, b.t_i32 if count == _BYTES else b.vec(count // _BYTES, b.t_i32))
                    self.words[key] = words if count == _BYTES else b.extract_element(words, int(index) // _BYTES)
                return self.words[key], int(index) % _BYTES
        if value not in self.words:
            self.words[value] = b.zext(value, b.t_i32)
        return self.words[value], 0


def _not_known(b: Any, word: Any) -> Any:
    """Two registers of scales that LLVM knows to be 0, which is 2^-127, are to it an instruction without scales, which are 1: so it must not
    know one of them. Assembly that is empty, and any value may leave."""
    return b.inline_asm("", "=v,0", b.t_i32, [word], side_effects=False)


def lower_dot_scaled(ctx: Any, op: Any) -> list[Any]:
    b = ctx.b
    encoding = encodings.downcast(op.results[0].type.encoding)
    row = encodings.mma_row(encoding)
    parts, along = row.extra["parts"], row.extra["along"]
    left, right, acc, *scales = op.operands
    present = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))[3:5]
    given: list[Any] = [_Scales(ctx, scales.pop(0), encoding, i) if n else None for i, n in enumerate(present)]
    a_tiles, b_tiles, c_tiles = (encodings.instruction_tiles(v.type.shape, v.type.encoding) for v in (left, right, acc))
    a_regs, b_regs = ctx.get(left), ctx.get(right)
    out = list(ctx.get(acc))
    packed: dict[Any, Any] = {}
    hidden: dict[Any, Any] = {}
    zero = b.i32(0)

    def operand(registers: Any, tile: tuple[int, ...], part: int, turn: int, how: str) -> Any:
        share, at = len(tile) // (parts * along), turn * parts + part
        tile = tile[share * at:share * (at + 1)]
        key = (id(registers), tile)
        if key not in packed:
            packed[key] = b.bitcast(b.pack_vector([registers[r] for r in tile]), b.vec(int(how[1:-3]), b.t_i32))
        return packed[key]

    def scale(side: int, batch: int, tile: int, k: int, part: int, turn: int) -> tuple[Any, int]:
        if given[side] is None:
            return b.i32(_ONE), 0
        word, byte = given[side].at(batch, tile, k, part, turn)
        if side == 0 and given[1] is not None:
            if word not in hidden:
                hidden[word] = word if _comes_from_memory(word) else _not_known(b, word)
            word = hidden[word]
        return word, byte

    # instructions have the dot's B first: accumulators are transposed, B's parts are their rows
    first, second = (b.i32(f) for f in row.extra["formats"])
    numbers = [(at, p, q) for at in c_tiles for p in range(parts) for q in range(parts)]
    for k, turn in [(k, turn) for k in range(1 + max(k for _, _, k in a_tiles)) for turn in range(along)]:
        for (batch, i, j), p, q in numbers:
            x = operand(b_regs, b_tiles[batch, k, j], q, turn, row.extra["operands"][0])
            y = operand(a_regs, a_tiles[batch, i, k], p, turn, row.extra["operands"][1])
            with_scales = [zero] * 4
            if any(g is not None for g in given):
                (b_word, b_byte), (a_word, a_byte) = scale(1, batch, j, k, q, turn), scale(0, batch, i, k, p, turn)
                with_scales = [b.i32(b_byte), b_word, b.i32(a_byte), a_word]
            whole = c_tiles[batch, i, j]
            share = len(whole) // parts**2
            c = whole[share * (q + parts * p):share * (q + parts * p + 1)]
            total = b.pack_vector([out[r] for r in c])
            made = b.call(row.intrinsic, total.type, [x, y, total, first, second, *with_scales])
            for r, value in zip(c, b.unpack_vector(made, len(c)), strict=True):
                out[r] = value
    return [[out[r] for r in encodings.register_owners(ctx.layout_of(acc))]]


def _comes_from_memory(word: Any) -> bool:
    """Whether a register of scales is what a load of this very block gave."""
    while True:
        owner = getattr(word.owner, "operation", None) or word.owner
        name = getattr(owner, "name", "")
        if name == "llvm.load" or name == "llvm.call_intrinsic" and "buffer.load" in str(owner.attributes["intrin"]):
            return True
        if name not in ("llvm.bitcast", "llvm.zext", "llvm.extractelement"):
            return False
        word = owner.operands[0]


LOWERINGS: Mapping[str, Lowering] = {"tt.dot_scaled": lower_dot_scaled}
