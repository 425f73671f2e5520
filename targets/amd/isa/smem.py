"""Scalar memory: s_load, s_buffer_load ("Scalar Memory Operations" in the CDNA and RDNA manuals), and cache maintenance.

Addresses are rounded down to dwords, as the hardware does for dword loads. Results count on lgkm (gfx12: km), out of order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilewright.targets.amd.isa.errors import SimulationError
from tilewright.targets.amd.isa.program import Imm, Instruction, Reg
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.state import NULL, scalar_index, scalar_reader

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

_COUNTS = {"dword": 1, "dwordx2": 2, "dwordx3": 3, "dwordx4": 4, "dwordx8": 8, "dwordx16": 16, "b32": 1, "b64": 2, "b96": 3, "b128": 4, "b256": 8, "b512": 16}
_SMALL = {"u8": (1, False), "i8": (1, True), "u16": (2, False), "i16": (2, True)}
_CACHE = ("glc", "slc", "dlc", "scope", "th", "nv")


@instruction(*(f"s_{kind}_{size}" for kind in ("load", "buffer_load") for size in (*_COUNTS, *_SMALL)))
def _s_load(ins: Instruction, ctx: DecodeContext) -> Step:
    """D = memory at base + scalar offset + immediate. The buffer form takes base and bounds from a descriptor; out of bounds it gives 0."""
    ctx.only(ins, "offset", *_CACHE)
    target, base, *rest = ins.operands
    place = scalar_index(target)
    size_name = ins.base.rsplit("_", 1)[1]
    buffer = ins.base.startswith("s_buffer")
    small = _SMALL.get(size_name)
    count = _COUNTS.get(size_name, 1)
    if place is None or place == NULL or not isinstance(base, Reg) or base.count != (4 if buffer else 2) or len(rest) > 1:
        raise ctx.unknown(ins, "operands")
    if small and ctx.generation != 12:
        raise ctx.unknown(ins, "only gfx12 has it")
    offset = int(ins.modifiers.get("offset", 0))
    read_base = scalar_reader(Reg(kind=base.kind, first=base.first, count=2), "b64")
    limits = scalar_reader(Reg(kind=base.kind, first=base.first + 2), "u32") if buffer else None
    stride = scalar_reader(Reg(kind=base.kind, first=base.first + 1), "u32") if buffer else None
    read_offset = None
    for operand in rest:
        if isinstance(operand, Imm):
            offset += int(operand.value)
        else:
            read_offset = scalar_reader(operand, "u32")
    regs = [("s", place, count)]
    counter = "km" if ctx.generation == 12 else "lgkm"
    bytes_each = small[0] if small else 4
    align = np.uint64(0xFFFFFFFFFFFFFFFF if small else 0xFFFFFFFFFFFFFFFC)
    whole = bytes_each if small else 4 * count
    if count in (3,):
        sizes = [12]
    else:
        sizes = [min(whole, 16)] * max(1, whole // 16)

    def step(w: Waves) -> None:
        at = read_base(w)
        add = np.int64(offset) if read_offset is None else read_offset(w).astype(np.int64) + np.int64(offset)
        mask = None
        if limits is not None and stride is not None:
            if ((stride(w) >> np.uint32(16)) & np.uint32(0x3FFF)).any():
                raise SimulationError("a scalar load from a buffer with a stride is not simulated")
            at = at & np.uint64(0xFFFFFFFFFFFF)
            mask = ((add + whole) <= limits(w).astype(np.int64)).reshape(-1, 1)
        address = ((at.view(np.int64) + add).view(np.uint64) & align).reshape(-1, 1)
        found = []
        for i, size in enumerate(sizes):
            words = w.machine.memory.load(w, address + np.uint64(16 * i), size, mask)
            found += [words[j, :, 0] for j in range(len(words))]
        w.machine.waits.issue(w, counter, regs, kind="smem")
        if small and small[1]:
            found[0] = found[0].astype(np.uint8 if bytes_each == 1 else np.uint16).view(np.int8 if bytes_each == 1 else np.int16).astype(np.int32).view(np.uint32)
        for i, value in enumerate(found):
            w.set_sgpr(place + i, value)

    return step


@instruction("s_dcache_inv", "s_dcache_wb", "s_gl1_inv", "s_dcache_inv_vol", "s_prefetch_data", "s_prefetch_inst", "s_prefetch_data_pc_rel",
             "s_prefetch_inst_pc_rel", "s_buffer_prefetch_data")
def _cache(ins: Instruction, ctx: DecodeContext) -> Step:
    """Caches are not modelled."""
    return lambda w: None


@instruction("s_memtime", "s_memrealtime", "s_sendmsg_rtn_b64")
def _time(ins: Instruction, ctx: DecodeContext) -> Step:
    """A 64-bit clock: here the number of blocks of instructions that ran."""
    if ins.base == "s_sendmsg_rtn_b64" and "GET_REALTIME" not in ins.operands[1].text:
        raise ctx.unknown(ins, f"message {ins.operands[1].text}")
    place = scalar_index(ins.operands[0])
    if place is None:
        raise ctx.unknown(ins, "operands")

    def step(w: Waves) -> None:
        w.machine.waits.issue(w, "lgkm", [("s", place, 2)], kind="smem")
        w.set_sgpr64(place, np.full(w.n, w.machine.clock, np.uint64))

    return step
