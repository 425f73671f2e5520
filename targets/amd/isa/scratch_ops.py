"""scratch_load_*, scratch_store_*: a lane's private bytes, where LLVM keeps spilled registers and arrays.

Manuals, "Flat, global and scratch instructions": address = unsigned vector register or off + scalar register or off + signed immediate, in
bytes of the lane's own segment of .amdhsa_private_segment_fixed_size bytes. gfx90a and gfx10 reach scratch through buffer instructions (buffer_ops).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa import transfers as t
from tilewright.targets.amd.isa.program import Instruction, Operand
from tilewright.targets.amd.isa.registry import DecodeContext

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any


def address(ins: Instruction, ctx: DecodeContext, vaddr: Operand, saddr: Operand) -> Callable[[Waves], Array]:
    """int64 (n, lanes) private byte addresses, modulo 2^32."""
    imm = t.global_offset(ins, ctx)
    scalar = None if t.is_off(saddr) else ctx.reader(saddr, "u32")
    k = None
    if not t.is_off(vaddr):
        reg = t.vector(vaddr, ctx, ins, 1)
        if reg.kind != "v":
            raise ctx.unknown(ins, f"address {vaddr.text!r}")
        if scalar is not None and (ctx.generation == 10 or ctx.arch == "gfx90a"):
            raise ctx.unknown(ins, "a vector and a scalar address, which only later archs have")
        k = reg.first

    def where(w: Waves) -> Array:
        at = np.full((w.n, w.lanes), imm, np.int64)
        if k is not None:
            at += w.vgpr(k)
        if scalar is not None:
            at += scalar(w)
        return at & 0xFFFF_FFFF

    return where


t.register_transfers("scratch", "scratch", address)
