"""ds_*: loads, stores and lane exchanges of the local data share. Atomics: atomics.py.

Manuals, "Local data share" and "LDS instructions": address = 32-bit register + unsigned 16-bit offset; the two-address forms have two
8-bit offsets in units of the element, times 64 for the stride64 forms. gfx9 and gfx10 say read, write, read2, read2st64; gfx11 and
gfx12 load, store, load_2addr, load_2addr_stride64 (and their assemblers take the older names too). M0 is not used from gfx9 on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa import bank_conflicts
from tilewright.targets.amd.isa import transfers as t
from tilewright.targets.amd.isa.errors import Misaligned
from tilewright.targets.amd.isa.memory import offenders
from tilewright.targets.amd.isa.program import Instruction, Operand
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any
Make = Callable[[Instruction, DecodeContext], Step]

LOADS = {
    "b32": t.Format(4), "b64": t.Format(8), "b96": t.Format(12), "b128": t.Format(16),
    "u8": t.Format(1), "i8": t.Format(1, True), "u16": t.Format(2), "i16": t.Format(2, True),
    "u8_d16": t.Format(1, False, 0), "u8_d16_hi": t.Format(1, False, 1), "i8_d16": t.Format(1, True, 0), "i8_d16_hi": t.Format(1, True, 1),
    "u16_d16": t.Format(2, False, 0), "u16_d16_hi": t.Format(2, False, 1),
}
STORES = {
    "b8": t.Format(1), "b16": t.Format(2), "b32": t.Format(4), "b64": t.Format(8), "b96": t.Format(12), "b128": t.Format(16),
    "b8_d16_hi": t.Format(1, False, 1), "b16_d16_hi": t.Format(2, False, 1),
}


def address(ins: Instruction, ctx: DecodeContext, operand: Operand) -> int:
    """Number of the address register."""
    reg = t.vector(operand, ctx, ins, 1)
    if reg.kind != "v":
        raise ctx.unknown(ins, f"address {operand.text!r}")
    return reg.first


def operands(ins: Instruction, ctx: DecodeContext, count: int) -> None:
    """Raises unless there are ``count`` operands; a word such as scc that is no modifier here would be one."""
    if len(ins.operands) != count:
        raise ctx.unknown(ins, f"{len(ins.operands)} operands instead of {count}")


def one_offset(ins: Instruction, ctx: DecodeContext) -> int:
    ctx.only(ins, "offset")  # gds is another memory
    return t.offset(ins, ctx, 0, 0xFFFF)


def two_offsets(ins: Instruction, ctx: DecodeContext, size: int, stride64: bool) -> tuple[int, int]:
    """Byte offsets of a two-address form."""
    ctx.only(ins, "offset0", "offset1")
    unit = size * (64 if stride64 else 1)
    first, second = (ins.modifiers.get(name, 0) for name in ("offset0", "offset1"))
    if not (isinstance(first, int) and isinstance(second, int) and 0 <= first <= 255 and 0 <= second <= 255):
        raise ctx.unknown(ins, f"offset0:{first} offset1:{second}")
    return first * unit, second * unit


def at(w: Waves, k: int, imm: int) -> Array:
    """int64 (n, lanes) byte addresses: the register plus ``imm``, modulo 2^32."""
    return (w.vgpr(k) + np.uint32(imm)).astype(np.int64)


def check_aligned(w: Waves, addresses: Array, alignment: int, mask: Array | None) -> None:
    """Raises Misaligned."""
    bad = (addresses & (alignment - 1)) != 0
    if mask is not None:
        bad &= mask
    if bad.any():
        wave, lanes, place = offenders(addresses, bad, mask)
        raise Misaligned(f"LDS address {place:#x} is no multiple of {alignment}, which this instruction needs", wave, lanes).at_waves(w)


# -------------------------------------------------------------------------------------------------- loads and stores
def _load(old: bool, form: t.Format) -> Make:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        t.known_here(ins, ctx, old)
        operands(ins, ctx, 2)
        k, imm = address(ins, ctx, ins.operands[1]), one_offset(ins, ctx)
        write, regs = t.loader(ins, ctx, ins.operands[0], form), t.destination(ins.operands[0])
        size, counter, count = form.size, t.lds_counter(ctx), bank_conflicts.counter(ctx, form.size, False)

        def step(w: Waves) -> None:
            addresses, mask = at(w, k, imm), t.mask(w)
            w.waits.issue(w, counter, regs)
            write(w, w.machine.lds.load(w, addresses, size, mask))
            count(w, addresses, mask)

        return step

    return make


def _store(old: bool, form: t.Format) -> Make:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        t.known_here(ins, ctx, old)
        operands(ins, ctx, 2)
        k, imm = address(ins, ctx, ins.operands[0]), one_offset(ins, ctx)
        read = t.storer(ins, ctx, ins.operands[1], form)
        size, counter, count = form.size, t.lds_counter(ctx), bank_conflicts.counter(ctx, form.size, True)

        def step(w: Waves) -> None:
            addresses, mask, values = at(w, k, imm), t.mask(w), read(w)
            w.waits.issue(w, counter)
            w.machine.lds.store(w, addresses, size, values, mask)
            count(w, addresses, mask)

        return step

    return make


def _load2(old: bool, size: int, stride64: bool) -> Make:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        t.known_here(ins, ctx, old)
        operands(ins, ctx, 2)
        target, k = t.vector(ins.operands[0], ctx, ins, size // 2), address(ins, ctx, ins.operands[1])
        offsets, regs, half = two_offsets(ins, ctx, size, stride64), t.destination(ins.operands[0]), size // 4
        counter, count = t.lds_counter(ctx), bank_conflicts.counter(ctx, size, False)

        def step(w: Waves) -> None:
            mask, places = t.mask(w), [at(w, k, imm) for imm in offsets]
            w.waits.issue(w, counter, regs)
            # both are read before the address register may be overwritten
            both = [w.machine.lds.load(w, addresses, size, mask) for addresses in places]
            for i, values in enumerate(both):
                w.set_vectors(target.kind, target.first + i * half, values)
                count(w, places[i], mask)

        return step

    return make


def _store2(old: bool, size: int, stride64: bool) -> Make:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        t.known_here(ins, ctx, old)
        operands(ins, ctx, 3)
        k, form = address(ins, ctx, ins.operands[0]), t.Format(size)
        reads = [t.storer(ins, ctx, operand, form) for operand in ins.operands[1:]]
        offsets, counter, count = two_offsets(ins, ctx, size, stride64), t.lds_counter(ctx), bank_conflicts.counter(ctx, size, True)
        first, second = reads

        def step(w: Waves) -> None:
            mask, values = t.mask(w), (first(w), second(w))
            w.waits.issue(w, counter)
            for i, imm in enumerate(offsets):
                addresses = at(w, k, imm)
                w.machine.lds.store(w, addresses, size, values[i], mask)
                count(w, addresses, mask)

        return step

    return make


for _name, _form in LOADS.items():
    instruction(f"ds_read_{_name}")(_load(True, _form))
    instruction(f"ds_load_{_name}")(_load(False, _form))
for _name, _form in STORES.items():
    instruction(f"ds_write_{_name}")(_store(True, _form))
    instruction(f"ds_store_{_name}")(_store(False, _form))
for _size in (4, 8):
    _bits = f"b{8 * _size}"
    instruction(f"ds_read2_{_bits}")(_load2(True, _size, False))
    instruction(f"ds_read2st64_{_bits}")(_load2(True, _size, True))
    instruction(f"ds_load_2addr_{_bits}")(_load2(False, _size, False))
    instruction(f"ds_load_2addr_stride64_{_bits}")(_load2(False, _size, True))
    instruction(f"ds_write2_{_bits}")(_store2(True, _size, False))
    instruction(f"ds_write2st64_{_bits}")(_store2(True, _size, True))
    instruction(f"ds_store_2addr_{_bits}")(_store2(False, _size, False))
    instruction(f"ds_store_2addr_stride64_{_bits}")(_store2(False, _size, True))


# ---------------------------------------------------------------------------------------------- transposing loads
# element bits → bytes of a lane
_TRANSPOSED = {"ds_read_b64_tr_b16": (16, 8), "ds_read_b64_tr_b8": (8, 8), "ds_read_b64_tr_b4": (4, 8), "ds_read_b96_tr_b6": (6, 12)}


def transpose(values: Array, bits: int) -> Array:
    """What the transposing loads give from what each lane's address holds: uint32 (dwords, waves, lanes) both.

    CDNA 4 manual, "LDS transpose loads": in each 16 lanes the words read are the rows of a matrix of 16 columns, 16 · bits wide: with E elements a
    lane, 16 / E lanes make a row. Lane i receives column i, element j from row j."""
    dwords, waves, lanes = values.shape
    elements = 32 * dwords // bits
    each = np.ascontiguousarray(values.transpose(1, 2, 0)).view(np.uint8)  # (waves, lanes, bytes)
    flat = np.unpackbits(each, axis=-1, bitorder="little").reshape(waves, lanes // 16, elements, 16, bits)  # rows, columns
    columns = np.packbits(flat.transpose(0, 1, 3, 2, 4).reshape(waves, lanes, elements * bits), axis=-1, bitorder="little")
    return np.ascontiguousarray(columns).view(np.uint32).transpose(2, 0, 1)


def _transposing(bits: int, size: int) -> Make:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        if ctx.arch != "gfx950":
            raise ctx.unknown(ins, "only gfx950 has it")
        operands(ins, ctx, 2)
        target, k, imm = t.vector(ins.operands[0], ctx, ins, size // 4), address(ins, ctx, ins.operands[1]), one_offset(ins, ctx)
        regs, counter, count = t.destination(ins.operands[0]), t.lds_counter(ctx), bank_conflicts.counter(ctx, size, False)
        alignment = 8 if size == 8 else 4

        def step(w: Waves) -> None:
            if not w.full:
                raise Misaligned("a transposing load with inactive lanes: what they would bring to others is not defined").at_waves(w)
            addresses = at(w, k, imm)
            check_aligned(w, addresses, alignment, None)
            w.waits.issue(w, counter, regs)
            w.set_vectors(target.kind, target.first, transpose(w.machine.lds.load(w, addresses, size, None), bits))
            count(w, addresses, None)

        return step

    return make


for _name, (_element, _size) in _TRANSPOSED.items():
    instruction(_name)(_transposing(_element, _size))


# ------------------------------------------------------------------------------------------------ exchanging lanes
@instruction("ds_bpermute_b32")
def _bpermute(ins: Instruction, ctx: DecodeContext) -> Step:
    """Manuals, DS_BPERMUTE_B32: lane i takes the value of lane (address + offset) / 4, modulo the lanes; 0 from an inactive one.
    No LDS is used."""
    return _permuting(ins, ctx, backward)


@instruction("ds_bpermute_fi_b32")
def _bpermute_fi(ins: Instruction, ctx: DecodeContext) -> Step:
    """RDNA 4 manual, DS_BPERMUTE_FI_B32: as ds_bpermute_b32, but inactive lanes give their value."""
    if ctx.generation != 12:
        raise ctx.unknown(ins, "only gfx12 has it")
    return _permuting(ins, ctx, lambda value, source, active: np.take_along_axis(value, source, axis=1))


@instruction("ds_permute_b32")
def _permute(ins: Instruction, ctx: DecodeContext) -> Step:
    """Manuals, DS_PERMUTE_B32: lane i sends its value to lane (address + offset) / 4, modulo the lanes; the highest sender wins, who is sent
    nothing gets 0."""
    return _permuting(ins, ctx, forward)


def _permuting(ins: Instruction, ctx: DecodeContext, exchange: Callable[[Array, Array, Array], Array]) -> Step:
    operands(ins, ctx, 3)
    imm, k = one_offset(ins, ctx), address(ins, ctx, ins.operands[1])
    target, source = (t.vector(ins.operands[i], ctx, ins, 1) for i in (0, 2))
    regs, counter, lanes = t.destination(target), t.lds_counter(ctx), ctx.lanes

    def step(w: Waves) -> None:
        other = (w.vgpr(k) + np.uint32(imm)).astype(np.int64) >> 2 & (lanes - 1)
        value = exchange(w.vector(source.kind, source.first), other, w.exec_mask)
        w.waits.issue(w, counter, regs)
        w.set_vector(target.kind, target.first, value)

    return step


def backward(value: Array, source: Array, active: Array) -> Array:
    """(n, lanes): value of the lane ``source``, 0 where that is inactive."""
    return np.take_along_axis(np.where(active, value, np.uint32(0)), source, axis=1)


def forward(value: Array, target: Array, active: Array) -> Array:
    """(n, lanes): what was sent to each lane, 0 where nothing was."""
    out = np.zeros(value.shape, np.uint32)
    waves = np.broadcast_to(np.arange(len(value))[:, None], value.shape)
    out[waves[active], target[active]] = value[active]
    return out


@instruction("ds_swizzle_b32")
def _swizzle(ins: Instruction, ctx: DecodeContext) -> Step:
    """Manuals, DS_SWIZZLE_B32: lane i takes the value of a lane that the offset tells, 0 from an inactive one. No LDS is used."""
    ctx.only(ins, "offset")
    operands(ins, ctx, 2)
    target, k = t.vector(ins.operands[0], ctx, ins, 1), address(ins, ctx, ins.operands[1])
    source = swizzled_lanes(ins.modifiers.get("offset", 0), ctx.lanes)
    if source is None:
        raise ctx.unknown(ins, f"swizzle {ins.modifiers.get('offset')}")
    regs, counter, lanes = t.destination(target), t.lds_counter(ctx), source[None]

    def step(w: Waves) -> None:
        value = backward(w.vgpr(k), np.broadcast_to(lanes, (w.n, w.lanes)), w.exec_mask)
        w.waits.issue(w, counter, regs)
        w.set_vector(target.kind, target.first, value)

    return step


def swizzled_lanes(offset: int | str, lanes: int) -> Array | None:
    """int64 (lanes,): where each lane takes its value from; None for the modes that are not here (FFT, rotate).

    Bit 15 set and the rest below 0x100: quads by four 2-bit lanes. Bit 15 clear: in each 32 lanes ((i & and) | or) ^ xor, five bits each.
    Names as the assembler has them: LLVM's "Syntax of AMDGPU Instruction Modifiers", "swizzle pattern"."""
    i = np.arange(lanes)
    if isinstance(offset, str):
        found = re.match(r"swizzle\((\w+)((?:,[^,]+)*)\)$", offset)
        if not found:
            return None
        mode, values = found[1], found[2].split(",")[1:]
        if mode == "BITMASK_PERM":
            keep = mask_or = mask_xor = 0
            for bit, letter in zip((16, 8, 4, 2, 1), values[0].strip('"'), strict=True):
                keep |= bit * (letter in "pi")
                mask_or |= bit * (letter == "1")
                mask_xor |= bit * (letter == "i")
            return (i & ~31) | (((i & 31 & keep) | mask_or) ^ mask_xor)
        numbers = [int(v, 0) for v in values]
        if mode == "QUAD_PERM":
            return (i & ~3) | np.array(numbers)[i & 3]
        if mode == "SWAP":
            return i ^ numbers[0]
        if mode == "REVERSE":
            return i ^ (numbers[0] - 1)
        if mode == "BROADCAST":
            return (i & ~(numbers[0] - 1)) | numbers[1]
        return None
    if 0 <= offset < 0x8000:
        return (i & ~31) | (((i & offset & 31) | (offset >> 5 & 31)) ^ (offset >> 10 & 31))
    if 0x8000 <= offset < 0x8100:
        return (i & ~3) | (offset >> 2 * (i & 3) & 3)
    return None


@instruction("ds_nop")
def _nop(ins: Instruction, ctx: DecodeContext) -> Step:
    """Manuals, DS_NOP."""
    ctx.only(ins)
    return lambda w: None
