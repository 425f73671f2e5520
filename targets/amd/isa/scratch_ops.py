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
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction

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


def _load(old: bool, form: t.Format) -> Callable[[Instruction, DecodeContext], Step]:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        t.known_here(ins, ctx, old)
        t.only(ins, ctx)
        target, vaddr, saddr = ins.operands
        where, write, regs = address(ins, ctx, vaddr, saddr), t.loader(ins, ctx, target, form), t.destination(target)
        size, counter = form.size, t.load_counter(ctx)

        def step(w: Waves) -> None:
            addresses = where(w)
            w.waits.issue(w, counter, regs)
            write(w, w.machine.scratch.load(w, addresses, size, t.mask(w)))

        return step

    return make


def _store(old: bool, form: t.Format) -> Callable[[Instruction, DecodeContext], Step]:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        t.known_here(ins, ctx, old)
        t.only(ins, ctx)
        vaddr, source, saddr = ins.operands
        where, read = address(ins, ctx, vaddr, saddr), t.storer(ins, ctx, source, form)
        size, counter = form.size, t.store_counter(ctx)

        def step(w: Waves) -> None:
            addresses, values = where(w), read(w)
            w.waits.issue(w, counter)
            w.machine.scratch.store(w, addresses, size, values, t.mask(w))

        return step

    return make


for _names, _make, _verb, _old in ((t.OLD_LOADS, _load, "load", True), (t.NEW_LOADS, _load, "load", False),
                                   (t.OLD_STORES, _store, "store", True), (t.NEW_STORES, _store, "store", False)):
    for _name, _form in _names.items():
        instruction(f"scratch_{_verb}_{_name}")(_make(_old, _form))
