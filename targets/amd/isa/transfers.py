"""What all vector memory instructions share: formats of loads and stores by their names, cache modifiers, immediates, counters.

Names are those of LLVM's "Syntax of … Instructions" pages: gfx9 and gfx10 say dword, ushort, short_d16_hi; gfx11 and gfx12 say b32, u16,
d16_hi_b16 (and their assemblers take the older names too).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.program import Imm, Instruction, Operand, Reg, Special
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any
Registers = Sequence[tuple[str, int, int]]  # (file, first, count), as Waits.issue takes them


@dataclass(frozen=True)
class Format:
    """``size`` bytes in memory; ``signed``: bytes and halves are sign extended; ``half``: the half of the register, 0 or 1, or None for all of it.

    A load to a half keeps the other one; a store takes the low bytes of the half."""

    size: int
    signed: bool = False
    half: int | None = None

    @property
    def words(self) -> int:
        return max(1, self.size // 4)


OLD_LOADS = {
    "ubyte": Format(1), "sbyte": Format(1, True), "ushort": Format(2), "sshort": Format(2, True),
    "dword": Format(4), "dwordx2": Format(8), "dwordx3": Format(12), "dwordx4": Format(16),
    "ubyte_d16": Format(1, False, 0), "ubyte_d16_hi": Format(1, False, 1), "sbyte_d16": Format(1, True, 0), "sbyte_d16_hi": Format(1, True, 1),
    "short_d16": Format(2, False, 0), "short_d16_hi": Format(2, False, 1),
}
NEW_LOADS = {
    "u8": Format(1), "i8": Format(1, True), "u16": Format(2), "i16": Format(2, True),
    "b32": Format(4), "b64": Format(8), "b96": Format(12), "b128": Format(16),
    "d16_u8": Format(1, False, 0), "d16_hi_u8": Format(1, False, 1), "d16_i8": Format(1, True, 0), "d16_hi_i8": Format(1, True, 1),
    "d16_b16": Format(2, False, 0), "d16_hi_b16": Format(2, False, 1),
}
OLD_STORES = {
    "byte": Format(1), "short": Format(2), "dword": Format(4), "dwordx2": Format(8), "dwordx3": Format(12), "dwordx4": Format(16),
    "byte_d16_hi": Format(1, False, 1), "short_d16_hi": Format(2, False, 1),
}
NEW_STORES = {
    "b8": Format(1), "b16": Format(2), "b32": Format(4), "b64": Format(8), "b96": Format(12), "b128": Format(16),
    "d16_hi_b8": Format(1, False, 1), "d16_hi_b16": Format(2, False, 1),
}


def known_here(ins: Instruction, ctx: DecodeContext, old: bool) -> None:
    """Raises for a name of gfx11 and later on an earlier generation."""
    if not old and ctx.generation < 11:
        raise ctx.unknown(ins, "a name of gfx11 and later")


# ------------------------------------------------------------------------------------------------------ modifiers
# Cache modifiers do not change what a load gives here: memory is coherent and accesses happen in program order.
_CACHE = {"gfx90a": ("glc", "slc", "scc"), "gfx942": ("sc0", "sc1", "nt"), "gfx950": ("sc0", "sc1", "nt")}


def cache_modifiers(ctx: DecodeContext) -> tuple[str, ...]:
    """The cache modifiers of the arch's vector memory instructions."""
    if ctx.generation == 9:
        return _CACHE[ctx.arch]
    return ("th", "scope") if ctx.generation == 12 else ("glc", "slc", "dlc")


def only(ins: Instruction, ctx: DecodeContext, *modifiers: str) -> None:
    """Raises for a modifier that is neither one of these nor a cache modifier of the arch."""
    ctx.only(ins, "offset", *cache_modifiers(ctx), *modifiers)


def offset(ins: Instruction, ctx: DecodeContext, low: int, high: int) -> int:
    """The immediate offset, low ≤ offset ≤ high."""
    value = ins.modifiers.get("offset", 0)
    if not isinstance(value, int) or not low <= value <= high:
        raise ctx.unknown(ins, f"offset:{value} (allowed: {low} to {high})")
    return value


def global_offset(ins: Instruction, ctx: DecodeContext) -> int:
    """Signed offset of global and scratch instructions: 13 bits on gfx9 and gfx11, 12 on gfx10, 24 on gfx12 (manuals, FLAT encoding)."""
    bits = {9: 13, 10: 12, 11: 13, 12: 24}[ctx.generation]
    return offset(ins, ctx, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def returns(ins: Instruction, ctx: DecodeContext) -> bool:
    """Does an atomic give the value before? glc on gfx90a, gfx10 and gfx11, sc0 on gfx942 and gfx950, th:TH_ATOMIC_…RETURN on gfx12."""
    if ctx.generation == 12:
        hint = ins.modifiers.get("th", "")
        if isinstance(hint, int):
            return bool(hint & 1)
        if hint and not hint.startswith("TH_ATOMIC_"):
            raise ctx.unknown(ins, f"th:{hint}")
        return hint.endswith("RETURN")
    return "sc0" in ins.modifiers if ctx.arch in ("gfx942", "gfx950") else "glc" in ins.modifiers


# -------------------------------------------------------------------------------------------------------- registers
def vector(operand: Operand, ctx: DecodeContext, ins: Instruction, count: int) -> Reg:
    """A vector or accumulation register tuple of ``count``."""
    if not isinstance(operand, Reg) or operand.kind not in ("v", "a") or operand.count != count or operand.hi is not None \
            or operand.neg or operand.abs or (operand.kind == "a" and ctx.generation != 9):
        raise ctx.unknown(ins, f"operand {operand.text!r} where {count} vector register{'s' if count > 1 else ''} are needed")
    return operand


def is_off(operand: Operand) -> bool:
    return isinstance(operand, Special) and operand.name == "off"


def is_zero(operand: Operand) -> bool:
    return (isinstance(operand, Imm) and operand.value == 0) or (isinstance(operand, Special) and operand.name == "null")


def loader(ins: Instruction, ctx: DecodeContext, operand: Operand, form: Format) -> Callable[[Waves, Array], None]:
    """Writes what a load gave, uint32 (dwords, n, lanes), to its destination where EXEC."""
    target = vector(operand, ctx, ins, form.words)
    kind, k = target.kind, target.first
    if form.half is not None:
        if ctx.generation == 9:
            # LLVM: GCNSubtarget::d16PreservesUnusedBits is false where SRAM ECC is on, which it is on these
            raise ctx.unknown(ins, "what a d16 load leaves in the other half depends on SRAM ECC")
        keep, shift = (np.uint32(0xFFFF_0000), np.uint32(0)) if form.half == 0 else (np.uint32(0xFFFF), np.uint32(16))

        def write_half(w: Waves, values: Array) -> None:
            value = extend(values[0], form) & np.uint32(0xFFFF)
            w.set_vector(kind, k, (half_kept(w, kind, k) & keep) | value << shift)

        return write_half
    if form.signed:
        return lambda w, values: w.set_vector(kind, k, extend(values[0], form))
    if form.words == 1:
        return lambda w, values: w.set_vector(kind, k, values[0])
    return lambda w, values: w.set_vectors(kind, k, values)


def half_kept(w: Waves, kind: str, k: int) -> Array:
    """A register of which a load leaves one half: not a use that has to wait, since loads of one kind come back in order."""
    return (w.v if kind == "v" else w.a)[k]


def extend(value: Array, form: Format) -> Array:
    """The dword that a byte or half becomes."""
    if not form.signed:
        return value
    return value.astype(np.int8 if form.size == 1 else np.int16).astype(np.int32).view(np.uint32)


def storer(ins: Instruction, ctx: DecodeContext, operand: Operand, form: Format) -> Callable[[Waves], Sequence[Array]]:
    """Reads what a store stores: its dwords, (n, lanes) each, of which the low ``size`` bytes count."""
    source = vector(operand, ctx, ins, form.words)
    kind, k = source.kind, source.first
    if form.half == 1:
        return lambda w: [w.vector(kind, k) >> np.uint32(16)]
    if form.words == 1:
        return lambda w: [w.vector(kind, k)]
    return lambda w: w.vectors(kind, k, form.words)


def destination(operand: Operand) -> Registers:
    """The registers of a destination."""
    assert isinstance(operand, Reg)
    return ((operand.kind, operand.first, operand.count),)


def mask(w: Waves) -> Array | None:
    """The active lanes, None for all."""
    return None if w.full else w.exec_mask


# --------------------------------------------------------------------------------------------------------- counters
def load_counter(ctx: DecodeContext) -> str:
    """Counter of vector memory loads, and of atomics that return."""
    return "load" if ctx.generation == 12 else "vm"


def store_counter(ctx: DecodeContext) -> str:
    """Counter of vector memory stores, and of atomics that do not return: gfx9 counts them with the loads."""
    return {9: "vm", 10: "vs", 11: "vs", 12: "store"}[ctx.generation]


def lds_counter(ctx: DecodeContext) -> str:
    return "ds" if ctx.generation == 12 else "lgkm"


Address = Callable[[Instruction, DecodeContext, Operand, Operand], Callable[["Waves"], Array]]


def load_from(space: str, address: Address, old: bool, form: Format) -> Callable[[Instruction, DecodeContext], Step]:
    """A load whose operands are target, vaddr, saddr, from the machine's ``space`` ("memory", "scratch"). ``old``: by its older name."""
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        known_here(ins, ctx, old)
        only(ins, ctx)
        target, vaddr, saddr = ins.operands
        where, write, regs = address(ins, ctx, vaddr, saddr), loader(ins, ctx, target, form), destination(target)
        size, counter = form.size, load_counter(ctx)

        def step(w: Waves) -> None:
            addresses = where(w)
            w.waits.issue(w, counter, regs)
            write(w, getattr(w.machine, space).load(w, addresses, size, mask(w)))

        return step

    return make


def store_to(space: str, address: Address, old: bool, form: Format) -> Callable[[Instruction, DecodeContext], Step]:
    """A store whose operands are vaddr, source, saddr; as ``load_from``."""
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        known_here(ins, ctx, old)
        only(ins, ctx)
        vaddr, source, saddr = ins.operands
        where, read = address(ins, ctx, vaddr, saddr), storer(ins, ctx, source, form)
        size, counter = form.size, store_counter(ctx)

        def step(w: Waves) -> None:
            addresses, values = where(w), read(w)
            w.waits.issue(w, counter)
            getattr(w.machine, space).store(w, addresses, size, values, mask(w))

        return step

    return make


def register_transfers(prefix: str, space: str, address: Address) -> None:
    """Every ``prefix``_load_… and ``prefix``_store_…, under both generations' names."""
    for old, loads, stores in ((True, OLD_LOADS, OLD_STORES), (False, NEW_LOADS, NEW_STORES)):
        for name, form in loads.items():
            instruction(f"{prefix}_load_{name}")(load_from(space, address, old, form))
        for name, form in stores.items():
            instruction(f"{prefix}_store_{name}")(store_to(space, address, old, form))
