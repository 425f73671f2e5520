"""v_wmma_* of gfx11 and gfx12, for waves of 32. Layouts and numerics: ``matrix``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.errors import SimulationError
from tilewright.targets.amd.isa.matrix import fetch, registers
from tilewright.targets.amd.isa.matrix_formats import FORMATS, Format, from_bf16, to_bf16
from tilewright.targets.amd.isa.program import Imm, Instruction
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.state import constant

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any


@dataclass(frozen=True)
class Wmma:
    """16 × 16 × k; formats of A and B ("iu8" and "iu4": signed or not by neg_lo) and accumulator "f32", "f16", "bf16" or "i32"."""

    k: int
    a: str
    b: str
    out: str


_BOTH = {f"v_wmma_{out}_16x16x16_{kind}": Wmma(16, kind, kind, out) for out, kind in (
    ("f32", "f16"), ("f32", "bf16"), ("f16", "f16"), ("bf16", "bf16"), ("i32", "iu8"), ("i32", "iu4"))}
WMMA: dict[int, dict[str, Wmma]] = {
    11: _BOTH,
    12: {**_BOTH, "v_wmma_i32_16x16x32_iu4": Wmma(32, "iu4", "iu4", "i32"),
         **{f"v_wmma_f32_16x16x16_{a}_{b}": Wmma(16, a, b, "f32") for a in ("fp8", "bf8") for b in ("fp8", "bf8")}},
}
_BITS = {"iu8": 8, "iu4": 4}


def _operand(ins: Instruction, ctx: DecodeContext, place: int, name: str, k: int) -> Callable[[Waves], Array]:
    """A or B as float64 (n, 16, k)."""
    bit = place - 1
    low, high = (ins.modifiers.get(m, (0, 0, 0))[bit] for m in ("neg_lo", "neg_hi"))
    signs = None
    if name in _BITS:  # neg_lo says signed (RDNA 3 manual, 7.9)
        if high:
            raise ctx.unknown(ins, "neg_hi of an integer operand")
        name = ("i" if low else "u") + name[2:]
    elif low or high:
        if name not in ("f16", "bf16"):
            raise ctx.unknown(ins, "negation of an operand")
        signs = np.where(np.arange(k) % 2 == 0, -1.0 if low else 1.0, -1.0 if high else 1.0)
    form = FORMATS[name]
    replicated = ctx.generation == 11
    read = fetch(registers(ins, ctx, place, form.bits * k // (32 if replicated else 64)))
    arranged = _replicated if replicated else _shared

    def values(w: Waves) -> Array:
        found = arranged(w, read(w), form, place)
        return found if signs is None else found * signs

    return values


def _replicated(w: Waves, words: Array, form: Format, place: int) -> Array:
    """gfx11: each lane of a row has all of its k; the two halves of the wave have to agree."""
    halves = words.reshape(len(words), w.n, 2, 16)
    differ = (halves[:, :, 0] != halves[:, :, 1]).any(axis=0)
    if differ.any():
        wave, lane = (int(i[0]) for i in np.nonzero(differ))
        raise SimulationError(f"lanes {lane} and {lane + 16} hold different values of operand {place}; gfx11's WMMA needs A and B in both halves of the wave",
                              wave, [lane, lane + 16])
    return form.decode(np.ascontiguousarray(halves[:, :, 0].transpose(1, 2, 0)))


def _shared(w: Waves, words: Array, form: Format, place: int) -> Array:
    """gfx12: the lanes l and l + 16 have the two halves of k."""
    halves = words.reshape(len(words), w.n, 2, 16)
    return form.decode(np.ascontiguousarray(halves.transpose(1, 3, 2, 0))).reshape(w.n, 16, -1)


def _rows(generation: int, product: Array) -> Array:
    """(n, 16, 16) → (8, n, 32) elements of the accumulator."""
    if generation == 11:
        return product.reshape(-1, 8, 2, 16).transpose(1, 0, 2, 3).reshape(8, -1, 32)
    return product.reshape(-1, 2, 8, 16).transpose(2, 0, 1, 3).reshape(8, -1, 32)


@instruction(*{name for table in WMMA.values() for name in table})
def _wmma(ins: Instruction, ctx: DecodeContext) -> Step:
    """RDNA 3 manual, 7.9; RDNA 4 manual, 7.12."""
    row = WMMA.get(ctx.generation, {}).get(ins.base)
    if row is None or ctx.lanes != 32:
        raise ctx.unknown(ins, "another arch has it" if row is None else "waves of 64")
    halves = row.out in ("f16", "bf16") and ctx.generation == 11
    ctx.only(ins, "neg_lo", "neg_hi", *(("clamp",) if row.out == "i32" else ()), *(("op_sel",) if halves else ()))
    a, b = _operand(ins, ctx, 1, row.a, row.k), _operand(ins, ctx, 2, row.b, row.k)
    count = 4 if row.out in ("f16", "bf16") and ctx.generation == 12 else 8
    target = registers(ins, ctx, 0, count)
    selected = ins.modifiers.get("op_sel", (0, 0, 0))
    if selected[0] or selected[1]:
        raise ctx.unknown(ins, "op_sel of A or B")
    accumulator = _ACCUMULATORS[row.out](halves, bool(selected[2]), "clamp" in ins.modifiers)
    negate, absolute = (ins.modifiers.get(m, (0, 0, 0))[2] for m in ("neg_lo", "neg_hi"))
    if (negate or absolute) and row.out == "i32":
        raise ctx.unknown(ins, "sign of an integer accumulator")
    operand = ins.operands[3]
    if isinstance(operand, Imm):
        fixed = constant(operand, row.out) & 0xFFFFFFFF
        bits = fixed if row.out in ("f32", "i32") else fixed & 0xFFFF | (fixed & 0xFFFF) << 16
        word = np.full((count, 1, 32), bits, np.uint32)
        read_c: Callable[[Waves], Array] = lambda w: word  # noqa: E731
    else:
        read_c = fetch(registers(ins, ctx, 3, count))
    first, generation = target.first, ctx.generation

    def step(w: Waves) -> None:
        if not w.full:
            wave = int((w.exec != w.all_ones).argmax())
            raise SimulationError("WMMA with lanes inactive: the manual wants EXEC to be all ones", wave)
        c = accumulator.read(read_c(w))
        if absolute:
            c = np.abs(c)
        if negate:
            c = -c
        result = _rows(generation, a(w) @ b(w).swapaxes(-1, -2)) + c
        old = w.vectors("v", first, count) if halves else None
        w.set_vectors("v", first, accumulator.write(result, old))

    return step


class _Words:
    """f32 and i32: an element a register."""

    def __init__(self, kind: str, clamp: bool):
        self.kind, self.clamp = kind, clamp

    def read(self, words: Array) -> Array:
        return words.view(np.float32 if self.kind == "f32" else np.int32).astype(np.float64)

    def write(self, result: Array, old: Array | None) -> Array:
        if self.kind == "f32":
            return result.astype(np.float32).view(np.uint32)
        if self.clamp:  # saturates (RDNA 3 manual, 7.9)
            result = np.clip(result, -(2.0**31), 2.0**31 - 1)
        return result.astype(np.int64).astype(np.uint32)


class _Half:
    """16-bit elements: one half of each register on gfx11 (the other one stays), two a register on gfx12."""

    def __init__(self, kind: str, halves: bool, high: bool):
        self.kind, self.halves, self.high = kind, halves, int(high)

    def read(self, words: Array) -> Array:
        pairs = np.ascontiguousarray(words).view(np.uint16).reshape(*words.shape, 2)
        bits = pairs[..., self.high] if self.halves else np.moveaxis(pairs, -1, 1).reshape(-1, *words.shape[1:])
        return from_bf16(bits) if self.kind == "bf16" else np.ascontiguousarray(bits).view(np.float16).astype(np.float64)

    def write(self, result: Array, old: Array | None) -> Array:
        bits = to_bf16(result) if self.kind == "bf16" else result.astype(np.float16).view(np.uint16)
        if self.halves:
            out = np.array(old).view(np.uint16).reshape(*result.shape, 2)
            out[..., self.high] = bits
            return out.view(np.uint32)[..., 0]
        pairs = bits.reshape(-1, 2, *bits.shape[1:])
        return np.ascontiguousarray(np.moveaxis(pairs, 1, -1)).view(np.uint32)[..., 0]


_ACCUMULATORS: dict[str, Callable[[bool, bool, bool], Any]] = {
    "f32": lambda halves, high, clamp: _Words("f32", clamp), "i32": lambda halves, high, clamp: _Words("i32", clamp),
    "f16": lambda halves, high, clamp: _Half("f16", halves, high), "bf16": lambda halves, high, clamp: _Half("bf16", halves, high),
}
