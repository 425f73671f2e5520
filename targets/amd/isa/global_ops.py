"""global_load_*, global_store_*, and global_load_lds_* of gfx942 and gfx950, global_load_tr_* of gfx12.

Address = 64-bit vector registers + immediate, or a scalar base + an unsigned 32-bit vector offset + immediate (manuals, "Flat, global and scratch
instructions"). Atomics: atomics.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa import transfers as t
from tilewright.targets.amd.isa.errors import Misaligned
from tilewright.targets.amd.isa.program import Instruction, Operand
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any


def address(ins: Instruction, ctx: DecodeContext, vaddr: Operand, saddr: Operand) -> Callable[[Waves], Array]:
    """uint64 (n, lanes) addresses of a global instruction; arithmetic wraps at 64 bits."""
    imm = t.global_offset(ins, ctx) & (1 << 64) - 1
    add = np.uint64(imm)
    if t.is_off(saddr):
        pair = t.vector(vaddr, ctx, ins, 2)
        if pair.kind != "v":
            raise ctx.unknown(ins, f"address {vaddr.text!r}")
        k = pair.first
        return (lambda w: w.vgpr64(k) + add) if imm else lambda w: w.vgpr64(k)
    offset = t.vector(vaddr, ctx, ins, 1)
    if offset.kind != "v":
        raise ctx.unknown(ins, f"address {vaddr.text!r}")
    k, base = offset.first, ctx.reader(saddr, "b64")
    return lambda w: base(w) + add + w.vgpr(k)


t.register_transfers("global", "memory", address)


# ------------------------------------------------------------------------------------------------ loads to LDS
# bytes from memory → bytes in LDS: bytes and halves are extended to a dword
LDS_LOADS = {"ubyte": t.Format(1), "sbyte": t.Format(1, True), "ushort": t.Format(2), "sshort": t.Format(2, True), "dword": t.Format(4),
             "dwordx3": t.Format(12), "dwordx4": t.Format(16)}


def lds_target(ins: Instruction, ctx: DecodeContext, form: t.Format, imm: int) -> Callable[[Waves, Array, Array | None], None]:
    """Writes to LDS what a load gave, uint32 (dwords, n, lanes), after ``waits.issue``.

    CDNA 3 manual, "Memory buffer load to LDS": LDS address = M0 + instruction offset + lane · 4; the wider loads of gfx950 (CDNA 4) take
    lane · 12 and lane · 16. The offset counts for the memory's and for the LDS's address. Lanes keep their places whatever EXEC is."""
    if form.size > 4 and ctx.arch != "gfx950":
        raise ctx.unknown(ins, "only gfx950 loads more than a dword to LDS")
    wide = max(4, form.size)
    lanes = np.arange(ctx.lanes, dtype=np.int64) * wide + imm

    def write(w: Waves, values: Array, mask: Array | None) -> None:
        addresses = w.m0.astype(np.int64)[:, None] + lanes
        if int(np.bitwise_or.reduce(addresses, axis=None)) & 3:
            raise Misaligned(f"a load to LDS at M0 + offset = {int(addresses[0, 0]):#x}, which is no multiple of 4").at_waves(w)
        w.machine.lds.store(w, addresses, wide, [t.extend(values[0], form)] if form.signed else values, mask, asynchronous=True)

    return write


def _lds_load(form: t.Format) -> Callable[[Instruction, DecodeContext], Step]:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        if ctx.arch not in ("gfx942", "gfx950"):
            raise ctx.unknown(ins, "only gfx942 and gfx950 have it")
        t.only(ins, ctx)
        vaddr, saddr = ins.operands
        where, write = address(ins, ctx, vaddr, saddr), lds_target(ins, ctx, form, t.global_offset(ins, ctx))
        size, counter = form.size, t.load_counter(ctx)

        def step(w: Waves) -> None:
            addresses, mask = where(w), t.mask(w)
            w.waits.issue(w, counter)
            write(w, w.machine.memory.load(w, addresses, size, mask), mask)

        return step

    return make


for _name, _form in LDS_LOADS.items():
    instruction(f"global_load_lds_{_name}")(_lds_load(_form))


# what writes caches back or invalidates them, and the archs that have it
_CACHES = {
    **dict.fromkeys(("global_inv", "global_wb", "global_wbinv"), ("gfx1200", "gfx1201")),
    **dict.fromkeys(("buffer_gl0_inv", "buffer_gl1_inv"), ("gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151")),
    **dict.fromkeys(("buffer_wbinvl1", "buffer_wbinvl1_vol", "buffer_invl2"), ("gfx90a",)),
    "buffer_inv": ("gfx942", "gfx950"), "buffer_wbl2": ("gfx90a", "gfx942", "gfx950"),
}


@instruction(*_CACHES)
def _cache(ins: Instruction, ctx: DecodeContext) -> Step:
    """They change nothing where memory is coherent, but for what the check of races makes of them (LLVM's AMDGPU user guide, "Memory model"). buffer_wbl2 counts
    on vmcnt, what gfx12 has on loadcnt or storecnt."""
    if ctx.arch not in _CACHES[ins.base] or ins.operands:
        raise ctx.unknown(ins, f"only {', '.join(_CACHES[ins.base])} has it, without operands")
    t.only(ins, ctx)
    counter = {"buffer_wbl2": "vm", "global_inv": "load", "global_wb": "store", "global_wbinv": "store"}.get(ins.base)

    def step(w: Waves) -> None:
        if counter is not None:
            w.waits.issue(w, counter)
        if w.machine.global_races is not None:
            w.machine.global_races.cache(w)

    return step
