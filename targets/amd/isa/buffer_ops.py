"""buffer_load_*, buffer_store_*: memory through a buffer descriptor with range check, also to LDS. Atomics: atomics.py.

Manuals, "Vector memory buffer instructions" ("Buffer addressing", "Range checking", "Buffer resource descriptor"), of which here is the
linear part: swizzling and thread-id addressing are only known for scratch (see ``scratch``).

    offset  = instruction offset + VGPR offset (offen) + stride · VGPR index (idxen)
    address = base + SGPR offset + offset

A load out of range gives 0, a store out of range does nothing; each dword of a wide access is checked by itself, atomics as a whole (the manuals' notes
to the range check; LLVM's user guide, "Relaxed Buffer OOB Mode"). Raw buffers: gfx9 checks offset < records, later generations
offset + bytes ≤ records with OOB_SELECT 3, and nothing but records ≠ 0 with 2. Sources contradict each other on two points, and an
access whose answer hangs on one is an error: whether the SGPR offset counts in the check (GCN's manuals: yes; LLVM's intrinsics: no), and on
gfx9 a dword that begins inside and ends outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa import global_ops
from tilewright.targets.amd.isa import transfers as t
from tilewright.targets.amd.isa.errors import SimulationError
from tilewright.targets.amd.isa.launch import SCRATCH_BASE
from tilewright.targets.amd.isa.memory import offenders
from tilewright.targets.amd.isa.program import Imm, Instruction, Reg, Special
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any
_CHECKS = {2: "only for empty buffers", 3: "raw"}  # OOB_SELECT


@dataclass(frozen=True)
class Descriptor:
    """Four scalar registers of n waves. ``base`` uint64, ``records`` and ``stride`` int64 (n, 1) in bytes; ``least`` of the records."""

    base: Array
    records: Array
    stride: Array
    swizzled: bool
    checked: bool
    least: int = 0


_seen: dict[tuple[bytes, int], Descriptor] = {}


def descriptor(w: Waves, first: int, generation: int) -> Descriptor:
    """Reads and checks a buffer descriptor; raises SimulationError for what is not here."""
    words = [w.sgpr(first + i) for i in range(4)]
    base = words[0].astype(np.uint64) | (words[1] & np.uint32(0xFFFF)).astype(np.uint64) << np.uint64(32)
    stride, flags = words[1].astype(np.int64) >> 16 & 0x3FFF, words[3]
    # gfx9 and gfx10 have one bit for swizzling and one that only places lines in the cache, gfx11 and gfx12 two for swizzling
    swizzle = words[1] >> np.uint32(31) if generation < 11 else words[1] >> np.uint32(30)
    swizzled = bool((swizzle != 0).any())
    scratch = base >> np.uint64(32) == np.uint64(SCRATCH_BASE >> 32)
    if swizzled and not ((swizzle != 0) & scratch).all() or (flags & np.uint32(1 << 23)).any():
        raise SimulationError(f"a buffer descriptor with swizzling or thread-id addressing: {_show(words)}", 0).at_waves(w)
    if (flags >> np.uint32(30)).any():
        raise SimulationError(f"this is no buffer descriptor (type is not 0): {_show(words)}", 0).at_waves(w)
    checked = True
    if generation >= 10 and not swizzled:
        select = np.unique(flags >> np.uint32(28) & np.uint32(3))
        if len(select) > 1 or int(select[0]) not in _CHECKS:
            raise SimulationError(f"OOB_SELECT {list(map(int, select))} is not simulated, only {_CHECKS}: {_show(words)}", 0).at_waves(w)
        checked = int(select[0]) == 3
        if generation == 10 and not (flags & np.uint32(1 << 24)).all():
            raise SimulationError(f"RESOURCE_LEVEL (bit 24 of the last word) has to be 1 on gfx10: {_show(words)}", 0).at_waves(w)
    return Descriptor(base[:, None], words[2].astype(np.int64)[:, None], stride[:, None], swizzled, checked, int(words[2].min()))


def _show(words: list[Array]) -> str:
    return " ".join(f"{int(x[0]):#010x}" for x in words)


class Place:
    """Addressing operands of a buffer instruction, from operand ``first`` on: vector address or off, descriptor, scalar offset."""

    def __init__(self, ins: Instruction, ctx: DecodeContext, first: int, *modifiers: str) -> None:
        t.only(ins, ctx, "offen", "idxen", *modifiers)
        vaddr, resource, scalar = ins.operands[first:]
        self.ins, self.generation = ins, ctx.generation
        self.imm = t.offset(ins, ctx, 0, 0x7FFFFF if ctx.generation == 12 else 0xFFF)
        self.offen, self.idxen = bool(ins.modifiers.get("offen")), bool(ins.modifiers.get("idxen"))
        if t.is_off(vaddr):
            if self.offen or self.idxen:
                raise ctx.unknown(ins, "off with offen or idxen")
            self.vector = 0
        else:
            if not (self.offen or self.idxen):
                raise ctx.unknown(ins, "an address register without offen and idxen")
            reg = t.vector(vaddr, ctx, ins, self.offen + self.idxen)
            if reg.kind != "v":
                raise ctx.unknown(ins, f"address {vaddr.text!r}")
            self.vector = reg.first
        if not isinstance(resource, Reg) or resource.kind != "s" or resource.count != 4:
            raise ctx.unknown(ins, f"descriptor {resource.text!r}")
        if (ctx.generation == 9 and isinstance(scalar, Special) and scalar.name == "null") or (ctx.generation == 12 and isinstance(scalar, Imm)):
            raise ctx.unknown(ins, f"scalar offset {scalar.text!r}")
        self.resource, self.zero = resource.first, t.is_zero(scalar)
        self.scalar: Callable[[Waves], Array] = ctx.reader(scalar, "u32")

    def descriptor(self, w: Waves) -> Descriptor:
        """``descriptor`` of these registers; instructions beside this one had the same."""
        if w.waits.any_pending:
            w.waits.touch(w, "s", self.resource, 4, False)
        key = w.s[self.resource: self.resource + 4].tobytes(), self.generation
        found = _seen.get(key)
        if found is None:
            if len(_seen) > 256:
                _seen.clear()
            found = _seen[key] = descriptor(w, self.resource, self.generation)
        return found

    def offsets(self, w: Waves, d: Descriptor) -> Array:
        """int64 (n, lanes): the offset that the range check looks at; it does not wrap."""
        offset = np.full((w.n, w.lanes), self.imm, np.int64)
        if self.idxen:
            offset += w.vgpr(self.vector).astype(np.int64) * d.stride
        if self.offen:
            offset += w.vgpr(self.vector + self.idxen)
        return offset

    def whole(self, w: Waves, size: int) -> tuple[Array, Array]:
        """uint64 addresses (n, lanes), and which active lanes are in range with all of ``size`` bytes."""
        d = self.descriptor(w)
        if d.swizzled:
            raise SimulationError("an atomic on a swizzled buffer", 0).at_waves(w)
        offsets, scalar = self.offsets(w, d), self._scalar(w)
        return self._addresses(d, offsets, scalar), self._inside(w, d, offsets, scalar, size)

    def load(self, w: Waves, size: int) -> Array:
        """uint32 (dwords, n, lanes), 0 where out of range."""
        d = self.descriptor(w)
        if d.swizzled:
            return w.machine.scratch.load(w, self.scratch(w, d), size, t.mask(w))
        parts = [w.machine.memory.load(w, addresses, part, mask) for _, addresses, part, mask in self._parts(w, d, size)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def store(self, w: Waves, size: int, values: Any) -> None:
        d = self.descriptor(w)
        if d.swizzled:
            w.machine.scratch.store(w, self.scratch(w, d), size, values, t.mask(w))
            return
        for first, addresses, part, mask in self._parts(w, d, size):
            w.machine.memory.store(w, addresses, part, values[first: first + max(1, part // 4)], mask)

    def _parts(self, w: Waves, d: Descriptor, size: int) -> list[tuple[int, Array, int, Array | None]]:
        """(first dword, addresses, bytes, lanes or None for all): one of ``size`` bytes where no lane is in range with only a part of its dwords."""
        offsets, scalar = self.offsets(w, d), self._scalar(w)
        addresses = self._addresses(d, offsets, scalar)
        if d.checked and int(offsets.max()) + int(scalar.max()) + size <= d.least:
            return [(0, addresses, size, t.mask(w))]  # all of all lanes in range by any rule
        part = min(size, 4)
        inside = [self._inside(w, d, offsets + i, scalar, part) for i in range(0, size, 4)]
        if all(np.array_equal(inside[0], other) for other in inside[1:]):
            return [(0, addresses, size, inside[0])]
        return [(i, addresses + np.uint64(4 * i), 4, mask) for i, mask in enumerate(inside)]

    def scratch(self, w: Waves, d: Descriptor) -> Array:
        """int64 (n, lanes): the private byte that a swizzled descriptor means.

        LLVM's AMDGPU user guide, "Private Segment Buffer": descriptors of scratch interleave the lanes' dwords, so that the offset is the lane's
        private address. ``launch.scratch_descriptor`` gives the base. The SGPR offset, a stack or frame pointer where functions are called, is
        not interleaved ("Unswizzled"): it counts the bytes of all lanes."""
        scalar = self._scalar(w)
        if (scalar % (4 * w.lanes) != 0).any():
            raise SimulationError("a stack pointer that is no whole number of dwords of all lanes", 0).at_waves(w)
        return self.offsets(w, Descriptor(d.base, d.records, np.zeros_like(d.stride), True, False)) + scalar // w.lanes

    def _scalar(self, w: Waves) -> Array:
        """int64 (n, 1) or (1, 1)."""
        return np.asarray(self.scalar(w)).astype(np.int64)

    def _addresses(self, d: Descriptor, offsets: Array, scalar: Array) -> Array:
        return d.base + (offsets + scalar).astype(np.uint64)

    def _inside(self, w: Waves, d: Descriptor, offsets: Array, scalar: Array, part: int) -> Array:
        """Active lanes for which ``part`` bytes at ``offsets`` are in range."""
        if not d.checked:
            return w.exec_mask & (d.records != 0)
        end = offsets + part
        inside = end <= d.records
        if not self.zero:
            self._agree(w, inside, end + scalar <= d.records, offsets, scalar, d, "whether the SGPR offset counts in the range check")
        if self.generation == 9:
            self._agree(w, inside, offsets < d.records, offsets, scalar, d, "whether a part of a dword is in range")
        return inside & w.exec_mask

    def _agree(self, w: Waves, one: Array, other: Array, offsets: Array, scalar: Array, d: Descriptor, question: str) -> None:
        differ = (one != other) & w.exec_mask
        if differ.any():
            wave, lanes, at = offenders(offsets, differ, None)
            base = int(np.broadcast_to(scalar, (w.n, 1))[wave, 0])
            raise SimulationError(f"offset {at}, SGPR offset {base}, {int(d.records[wave, 0])} records: it depends on {question}, on which the manuals and LLVM disagree",
                                  wave, lanes).at_waves(w)


# -------------------------------------------------------------------------------------------------- loads and stores
def _load(old: bool, form: t.Format, name: str) -> Callable[[Instruction, DecodeContext], Step]:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        t.known_here(ins, ctx, old)
        if "lds" in ins.modifiers:
            return _lds_load(ins, ctx, name)
        place, write, regs = Place(ins, ctx, 1), t.loader(ins, ctx, ins.operands[0], form), t.destination(ins.operands[0])
        size, counter = form.size, t.load_counter(ctx)

        def step(w: Waves) -> None:
            # the address is read before the record begins: it may lie in the destination
            values = place.load(w, size)
            w.waits.issue(w, counter, regs)
            write(w, values)

        return step

    return make


def _lds_load(ins: Instruction, ctx: DecodeContext, name: str) -> Step:
    """To LDS, see global_ops.lds_target; a lane out of range writes 0 (Triton relies on it, says its documentation of buffer_load_to_shared)."""
    form = global_ops.LDS_LOADS.get(name)
    if form is None or ctx.generation != 9:
        raise ctx.unknown(ins, "a load to LDS")
    place = Place(ins, ctx, 0, "lds")
    write, size, counter = global_ops.lds_target(ins, ctx, form, place.imm), form.size, t.load_counter(ctx)

    def step(w: Waves) -> None:
        values = place.load(w, size)
        w.waits.issue(w, counter)
        write(w, values, t.mask(w))

    return step


def _store(old: bool, form: t.Format) -> Callable[[Instruction, DecodeContext], Step]:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        t.known_here(ins, ctx, old)
        place, read = Place(ins, ctx, 1), t.storer(ins, ctx, ins.operands[0], form)
        size, counter = form.size, t.store_counter(ctx)

        def step(w: Waves) -> None:
            values = read(w)
            w.waits.issue(w, counter)
            place.store(w, size, values)

        return step

    return make


for _names, _old in ((t.OLD_LOADS, True), (t.NEW_LOADS, False)):
    for _name, _form in _names.items():
        instruction(f"buffer_load_{_name}")(_load(_old, _form, _name))
for _names, _old in ((t.OLD_STORES, True), (t.NEW_STORES, False)):
    for _name, _form in _names.items():
        instruction(f"buffer_store_{_name}")(_store(_old, _form))
