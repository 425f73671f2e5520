"""Instructions that move data between lanes or to scalar registers: readlane, writelane, permlane, mbcnt. ISA manuals, VOP1–VOP3, "Cross-lane".

readlane, writelane, readfirstlane and permlane64 do not care for EXEC (readfirstlane takes the lowest active lane, lane 0 where none is).
"""

from __future__ import annotations

import numpy as np

from tilewright.targets.amd.isa.modifiers import Operands
from tilewright.targets.amd.isa.program import Instruction, Reg
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.state import Waves
from tilewright.targets.amd.isa.valu_numbers import Array

U32 = np.uint32


def _vgpr(ins: Instruction, ctx: DecodeContext, index: int) -> int:
    operand = ins.operands[index]
    if not isinstance(operand, Reg) or operand.kind != "v" or operand.count != 1 or operand.neg or operand.abs or operand.hi is not None:
        raise ctx.unknown(ins, f"operand {operand.text}")
    return operand.first


@instruction("v_nop")
def _nop(ins: Instruction, ctx: DecodeContext) -> Step:
    return lambda w: None


@instruction("v_readlane_b32")
def _readlane(ins: Instruction, ctx: DecodeContext) -> Step:
    ctx.only(ins)
    k = _vgpr(ins, ctx, 1)
    lane, write = ctx.reader(ins.operands[2], "u32"), ctx.writer(ins.operands[0], "b32")

    def step(w: Waves) -> None:
        at = np.broadcast_to(lane(w).reshape(-1), (w.n,)) & U32(w.lanes - 1)
        write(w, w.vgpr(k)[np.arange(w.n), at])

    return step


@instruction("v_readfirstlane_b32")
def _readfirstlane(ins: Instruction, ctx: DecodeContext) -> Step:
    ctx.only(ins)
    k, write = _vgpr(ins, ctx, 1), ctx.writer(ins.operands[0], "b32")

    def step(w: Waves) -> None:
        if w.full:
            write(w, w.vgpr(k)[:, 0])
        else:
            write(w, w.vgpr(k)[np.arange(w.n), w.exec_mask.argmax(axis=1)])

    return step


@instruction("v_writelane_b32")
def _writelane(ins: Instruction, ctx: DecodeContext) -> Step:
    ctx.only(ins)
    k = _vgpr(ins, ctx, 0)
    value, lane = ctx.reader(ins.operands[1], "b32"), ctx.reader(ins.operands[2], "u32")

    def step(w: Waves) -> None:
        if w.waits.any_pending:
            w.waits.touch(w, "v", k, 1, True)
        at = np.broadcast_to(lane(w).reshape(-1), (w.n,)) & U32(w.lanes - 1)
        w.v[k][np.arange(w.n), at] = np.broadcast_to(value(w).reshape(-1), (w.n,))

    return step


@instruction("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32")
def _mbcnt(ins: Instruction, ctx: DecodeContext) -> Step:
    """How many bits of the mask are set below the lane, among the lower or the upper 32, added to the second source."""
    o = Operands(ins, ctx)
    mask, add, write = o.source(1, "b32"), o.source(2, "u32"), o.result(0, "u32")
    o.done()
    first = 32 if "_hi_" in ins.base else 0
    below = np.clip(np.arange(ctx.lanes) - first, 0, 32)
    limit = ((np.uint64(1) << below.astype(np.uint64)) - np.uint64(1)).astype(U32)
    return lambda w: write(w, np.bitwise_count(mask(w) & limit).astype(U32) + add(w))


# ------------------------------------------------------------------------------------------------------------- permlane
def _moved(w: Waves, source: Array, fetch_inactive: bool, bound: bool, value: Array) -> tuple[Array, Array | None]:
    """(value of each lane's ``source`` lane, lanes that are written). An inactive source gives 0 with ``bound``, else leaves the lane."""
    out = np.take_along_axis(value, source, axis=1)
    if fetch_inactive or w.full:
        return out, None
    valid = np.take_along_axis(w.exec_mask, source, axis=1)
    if bound:
        return np.where(valid, out, U32(0)), None
    return out, valid


def _flags(ins: Instruction, ctx: DecodeContext) -> tuple[bool, bool]:
    """(fetch inactive, bound control): op_sel of permlane16, fi and bound_ctrl of the swaps."""
    ctx.only(ins, "op_sel", "fi", "bound_ctrl")
    bits = ins.modifiers.get("op_sel", (0, 0))
    return bool(bits[0] or ins.modifiers.get("fi", 0)), bool(bits[1] or ins.modifiers.get("bound_ctrl", 0))


@instruction("v_permlane16_b32", "v_permlanex16_b32")
def _permlane16(ins: Instruction, ctx: DecodeContext) -> Step:
    """Each lane takes the lane of its row of 16 (x: of the other row of the pair) that its nibble of {source 2, source 1} names."""
    fetch, bound = _flags(ins, ctx)
    d, k = _vgpr(ins, ctx, 0), _vgpr(ins, ctx, 1)
    low, high = ctx.reader(ins.operands[2], "b32"), ctx.reader(ins.operands[3], "b32")
    lanes = np.arange(ctx.lanes)
    row = lanes // 16 ^ (1 if "permlanex" in ins.base else 0)
    shift, upper = (lanes % 8 * 4).astype(U32), lanes % 16 >= 8

    def step(w: Waves) -> None:
        nibble = np.where(upper, high(w) >> shift, low(w) >> shift) & U32(15)
        source = np.broadcast_to(row * 16 + nibble.astype(np.int64), (w.n, w.lanes))
        value, mask = _moved(w, source, fetch, bound, w.vgpr(k))
        w.set_vgpr(d, value, mask)

    return step


@instruction("v_permlane64_b32")
def _permlane64(ins: Instruction, ctx: DecodeContext) -> Step:
    """Exchanges the halves of a wave of 64; nothing to exchange in one of 32."""
    ctx.only(ins)
    d, k = _vgpr(ins, ctx, 0), _vgpr(ins, ctx, 1)
    if ctx.lanes == 32:
        return lambda w: w.set_vgpr(d, w.vgpr(k).copy())
    return lambda w: w.set_vgpr(d, np.roll(w.vgpr(k), 32, axis=1))


@instruction("v_permlane16_swap_b32", "v_permlane32_swap_b32")
def _permlane_swap(ins: Instruction, ctx: DecodeContext) -> Step:
    """gfx950: exchanges the odd rows (of 16 or 32 lanes) of the first register with the even rows of the second."""
    fetch, bound = _flags(ins, ctx)
    a, b = _vgpr(ins, ctx, 0), _vgpr(ins, ctx, 1)
    size = 16 if "permlane16" in ins.base else 32
    lanes = np.arange(ctx.lanes)
    odd = lanes // size % 2 == 1
    other = np.where(odd, lanes - size, lanes + size)

    def step(w: Waves) -> None:
        source = np.broadcast_to(other, (w.n, w.lanes))
        from_b, mask_b = _moved(w, source, fetch, bound, w.vgpr(b))
        from_a, mask_a = _moved(w, source, fetch, bound, w.vgpr(a))
        everywhere = np.broadcast_to(odd, (w.n, w.lanes))
        w.set_vgpr(a, from_b, everywhere if mask_b is None else everywhere & mask_b)
        w.set_vgpr(b, from_a, ~everywhere if mask_a is None else ~everywhere & mask_a)

    return step
