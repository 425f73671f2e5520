"""flat_*: an address that may mean global memory, LDS or scratch, lane by lane.

Manuals, "Flat, global and scratch instructions": the high 32 bits of an address tell the LDS and the scratch aperture (src_shared_base and
src_private_base give them), the low 32 bits are then the LDS byte or the lane's private byte. A flat instruction counts on both the vector memory
and the LDS counter, and only 0 of both proves it done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa import transfers as t
from tilewright.targets.amd.isa.errors import SimulationError
from tilewright.targets.amd.isa.program import Instruction, Operand
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.state import PRIVATE_APERTURE, SHARED_APERTURE

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any
_HIGH, _LOW = np.uint64(0xFFFF_FFFF_0000_0000), np.uint64(0xFFFF_FFFF)


def address(ins: Instruction, ctx: DecodeContext, operand: Operand) -> Callable[[Waves], Array]:
    """uint64 (n, lanes). The offset is unsigned, 12 bits on gfx9 and gfx11 and absent on gfx10; signed with 24 bits on gfx12 (FLAT encoding)."""
    if ctx.generation == 12:
        imm = t.offset(ins, ctx, -(1 << 23), (1 << 23) - 1)
    else:
        imm = t.offset(ins, ctx, 0, 2047 if ctx.generation == 10 else 4095)
    pair, add = t.vector(operand, ctx, ins, 2), np.uint64(imm & (1 << 64) - 1)
    if pair.kind != "v":
        raise ctx.unknown(ins, f"address {operand.text!r}")
    return lambda w: w.vgpr64(pair.first) + add


def counters(ctx: DecodeContext, loads: bool) -> tuple[str, str]:
    return (t.load_counter(ctx) if loads else t.store_counter(ctx)), t.lds_counter(ctx)


def _parts(w: Waves, addresses: Array) -> tuple[Array, Array, Array]:
    """Which active lanes mean LDS, scratch and global memory."""
    high, active = addresses & _HIGH, w.exec_mask
    lds, private = active & (high == np.uint64(SHARED_APERTURE)), active & (high == np.uint64(PRIVATE_APERTURE))
    return lds, private, active & ~lds & ~private


def load(w: Waves, addresses: Array, size: int) -> Array:
    """As GlobalMemory.load, of all three memories."""
    lds, private, rest = _parts(w, addresses)
    values = w.machine.memory.load(w, addresses, size, rest)
    if lds.any():
        values = values + w.machine.lds.load(w, _low(addresses), size, lds)
    if private.any():
        values = values + w.machine.scratch.load(w, _low(addresses), size, private)
    return values


def store(w: Waves, addresses: Array, size: int, values: Sequence[Array]) -> None:
    lds, private, rest = _parts(w, addresses)
    w.machine.memory.store(w, addresses, size, values, rest)
    if lds.any():
        w.machine.lds.store(w, _low(addresses), size, values, lds)
    if private.any():
        w.machine.scratch.store(w, _low(addresses), size, values, private)


def update(w: Waves, addresses: Array, size: int, values: Sequence[Array], operation: Callable[..., Any]) -> Array:
    """Atomics, of global memory and LDS."""
    lds, private, rest = _parts(w, addresses)
    if private.any():
        raise SimulationError("a flat atomic of scratch, which is not simulated", int(np.argmax(private.any(axis=1)))).at_waves(w)
    old = w.machine.memory.update(w, addresses, size, values, rest, operation)
    if lds.any():
        old = old + w.machine.lds.update(w, _low(addresses), size, values, lds, operation)
    return old


def _low(addresses: Array) -> Array:
    return (addresses & _LOW).astype(np.int64)


def _load(old: bool, form: t.Format) -> Callable[[Instruction, DecodeContext], Step]:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        t.known_here(ins, ctx, old)
        t.only(ins, ctx)
        target, source = ins.operands
        where, write, regs = address(ins, ctx, source), t.loader(ins, ctx, target, form), t.destination(target)
        size, both = form.size, counters(ctx, True)

        def step(w: Waves) -> None:
            addresses = where(w)
            w.waits.issue(w, both, regs)
            write(w, load(w, addresses, size))

        return step

    return make


def _store(old: bool, form: t.Format) -> Callable[[Instruction, DecodeContext], Step]:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        t.known_here(ins, ctx, old)
        t.only(ins, ctx)
        target, source = ins.operands
        where, read = address(ins, ctx, target), t.storer(ins, ctx, source, form)
        size, both = form.size, counters(ctx, False)

        def step(w: Waves) -> None:
            addresses, values = where(w), read(w)
            w.waits.issue(w, both)
            store(w, addresses, size, values)

        return step

    return make


for _name, _form in t.OLD_LOADS.items():
    instruction(f"flat_load_{_name}")(_load(True, _form))
for _name, _form in t.NEW_LOADS.items():
    instruction(f"flat_load_{_name}")(_load(False, _form))
for _name, _form in t.OLD_STORES.items():
    instruction(f"flat_store_{_name}")(_store(True, _form))
for _name, _form in t.NEW_STORES.items():
    instruction(f"flat_store_{_name}")(_store(False, _form))
