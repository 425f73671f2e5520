"""The scoreboard of memory instructions in flight, and the instructions that wait.

Results of loads are written at once; what is checked is that the code never touches a register that a load may still write. A wave's
counters go up when an instruction is issued and down when it is done; ``s_waitcnt vmcnt(n)`` holds the wave until at most n are in flight.
What that proves depends on the order of completion ("Data dependency resolution" in the RDNA and CDNA manuals, 4.4 to 4.5 and "Memory counters"
of RDNA 4's 4.4):

* class ``mem`` (vector memory on vm; on gfx12 load) and ``lds`` (on lgkm; on gfx12 ds) finish in the order of issue: of L in flight the
  oldest L − n are done. Instructions of another class on the same counter do not help, since they may be the ones that finished.
* class ``smem`` (scalar memory on lgkm; on gfx12 km) and ``flat`` (on two counters) finish in any order: only 0 proves them, for flat on
  both of its counters.
* stores write no registers; they are counted (vm on gfx9, vs or store later), and nothing waits for them at s_endpgm. A barrier proves nothing.

A counter holds at most ``_LIMITS``: an instruction that would exceed it stalls until the oldest of its class is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.errors import UseBeforeWait
from tilewright.targets.amd.isa.program import Imm, Instruction
from tilewright.targets.amd.isa.registry import DecodeContext, Step, generation, instruction

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.machine import Machine
    from tilewright.targets.amd.isa.state import Waves

Array = Any

COUNTERS = ("vm", "lgkm", "vs", "exp", "load", "store", "ds", "km", "sample", "bvh")
# class of an instruction → may it finish before an older one of its class?
_UNORDERED = {"mem": False, "lds": False, "smem": True, "flat": True, "store": True, "other": True}
# what an instruction that counts on this is, unless issue() is told
_CLASS = {"vm": "mem", "load": "mem", "sample": "mem", "bvh": "mem", "lgkm": "lds", "ds": "lds", "km": "smem", "vs": "store", "store": "store",
          "exp": "other"}
_LIMITS = {"vm": 63, "lgkm": 63, "vs": 63, "exp": 7, "load": 63, "store": 63, "ds": 63, "km": 31, "sample": 63, "bvh": 7}  # lgkm: 15 on gfx9


@dataclass(eq=False)
class Record:
    """A load in flight: its registers, and for each wave of the machine its number within each of its streams (0: not this wave)."""

    ins: Instruction
    streams: tuple[tuple[str, str], ...]  # (counter, class); all have to be proven
    numbers: tuple[Array, ...]
    regs: tuple[tuple[str, int, int], ...]


class Waits:
    """Scoreboard of the machine's waves. ``any_pending``: some load may be in flight (what accessors ask before they call ``touch``)."""

    def __init__(self, machine: Machine):
        self.waves = machine.batch.waves
        self._limits = {**_LIMITS, "lgkm": 15} if generation(machine.arch) == 9 else _LIMITS
        self.reset()

    def reset(self) -> None:
        """Other waves begin."""
        self._issued: dict[tuple[str, str], Array] = {}
        self._proven: dict[tuple[str, str], Array] = {}
        self._records: list[Record] = []
        self._pending: dict[str, dict[int, list[Record]]] = {"v": {}, "a": {}, "s": {}}
        self._current: Record | None = None  # the load issued last, whose results are being written
        self.any_pending = False
        self.current: tuple[Instruction | None, tuple[str, str]] = None, ("", "")  # issued last, and its stream

    # -- what memory instructions call
    def issue(self, w: Waves, counter: str | Sequence[str], regs: Sequence[tuple[str, int, int]] = (), kind: str | None = None) -> None:
        """The waves issue an instruction that counts on ``counter`` and writes ``regs`` ((file "v" "a" "s", first, count), …) when done.

        Two counters: a flat instruction. ``kind``: its class, where the counter alone does not say: by default what writes scalar registers on lgkm
        is scalar memory, the rest of lgkm LDS. Call it first of all: before ``races.lds_access`` and before the results are written."""
        counters = (counter,) if isinstance(counter, str) else tuple(counter)
        if kind is None:
            kind = "flat" if len(counters) > 1 else _CLASS[counters[0]]
            if kind == "lds" and any(file == "s" for file, _, _ in regs):
                kind = "smem"
        ids = w.wave_ids
        streams = tuple((c, kind) for c in counters)
        numbers = []
        for stream in streams:
            issued = self._issued.get(stream)
            if issued is None:
                issued = self._issued[stream] = np.zeros(self.waves, np.int64)
                self._proven[stream] = np.zeros(self.waves, np.int64)
            issued[ids] += 1
            if not _UNORDERED[kind]:
                proven = self._proven[stream]
                proven[ids] = np.maximum(proven[ids], issued[ids] - self._limits[stream[0]])
            number = np.zeros(self.waves, np.int64)
            number[ids] = issued[ids]
            numbers.append(number)
        self.current = w.ins, streams[0]
        if not regs:
            return
        record = Record(w.ins, streams, tuple(numbers), tuple(regs))
        for file, first, count in record.regs:
            table = self._pending[file]
            for k in range(first, first + count):
                older = table.get(k)
                if older is None:
                    table[k] = [record]
                else:
                    older[:] = [r for r in older if not self._superseded(r, record)]
                    older.append(record)
        self._records.append(record)
        self._current = record
        if len(self._records) > 256:  # loads that nothing waits for
            self._records = [r for r in self._records if any(r in self._pending[f].get(k, ()) for f, first, n in r.regs for k in range(first, first + n))]
        self.any_pending = True

    def wait(self, w: Waves, counts: Mapping[str, int]) -> None:
        """The waves have waited until at most that many are in flight on each counter."""
        ids = w.wave_ids
        for stream, issued in self._issued.items():
            n = counts.get(stream[0])
            if n is None or (n and _UNORDERED[stream[1]]):
                continue
            proven = self._proven[stream]
            proven[ids] = np.maximum(proven[ids], issued[ids] - n)
        if self._records:
            self._forget(counts)

    def end(self, w: Waves) -> None:
        """The waves have ended: nothing of theirs is pending."""
        for stream, issued in self._issued.items():
            self._proven[stream][w.wave_ids] = issued[w.wave_ids]
        self._forget(None)

    # -- what accessors call
    def touch(self, w: Waves, file: str, first: int, count: int = 1, write: bool = False) -> None:
        """Raises UseBeforeWait where one of the registers has a load in flight for one of the waves.

        A load may write what an older load of its ordered class still has to write (they finish in order)."""
        table = self._pending[file]
        if not table:
            return
        for k in range(first, first + count):
            for record in table.get(k, ()):
                if write and (record is self._current or self._in_order(record, w.ins)) and _is_load(w.ins):
                    continue
                late = self._late(record, w.wave_ids)
                if late is None:
                    continue
                name = f"{file}{k}"
                load = f"line {record.ins.line}, " if record.ins.line else ""
                raise UseBeforeWait(
                    f"{name} is {'overwritten' if write else 'read'} while a load may still write it ({load}pc {record.ins.index}: {record.ins.text}); "
                    f"first wait for {' and '.join(_wait_name(c) for c, _ in record.streams)}", wave=late)

    # -- what races call
    def issued(self, stream: tuple[str, str]) -> Array:
        """How many each wave issued, (waves,)."""
        if stream not in self._issued:
            self._issued[stream], self._proven[stream] = np.zeros(self.waves, np.int64), np.zeros(self.waves, np.int64)
        return self._issued[stream]

    def proven(self, stream: tuple[str, str]) -> Array:
        """How many of them are known to be done, (waves,)."""
        self.issued(stream)
        return self._proven[stream]

    # -- inside
    def _late(self, record: Record, ids: Array) -> int | None:
        """Index within ``ids`` of a wave for which the load may be in flight."""
        for stream, number in zip(record.streams, record.numbers, strict=True):
            late = number[ids] > self._proven[stream][ids]
            if late.any():
                return int(late.argmax())
        return None

    def _in_order(self, record: Record, ins: Instruction) -> bool:
        """Does ``ins`` write its result after the record's load did?"""
        return len(record.streams) == 1 and not _UNORDERED[record.streams[0][1]] and record.streams[0][1] == _class_of(ins)

    @staticmethod
    def _superseded(old: Record, new: Record) -> bool:
        """Whoever waits for ``new`` has waited for ``old``."""
        if old.streams != new.streams or _UNORDERED[old.streams[0][1]]:
            return False
        return bool(((old.numbers[0] == 0) | (new.numbers[0] > 0)).all())

    def _forget(self, counts: Mapping[str, int] | None) -> None:
        """Drop the loads that are done for all waves."""
        kept = []
        for record in self._records:
            if counts is not None and not any(c in counts for c, _ in record.streams):
                kept.append(record)
            elif any((number > self._proven[stream]).any() for stream, number in zip(record.streams, record.numbers, strict=True)):
                kept.append(record)
            else:
                for file, first, count in record.regs:
                    table = self._pending[file]
                    for k in range(first, first + count):
                        left = [r for r in table.get(k, ()) if r is not record]
                        if left:
                            table[k] = left
                        else:
                            table.pop(k, None)
        self._records = kept
        self.any_pending = bool(kept)


def _class_of(ins: Instruction) -> str:
    if ins.base.startswith(("global_", "buffer_", "tbuffer_", "scratch_", "image_")):
        return "mem"
    return "lds" if ins.base.startswith("ds_") else "other"


def _is_load(ins: Instruction) -> bool:
    return ins.base.startswith(("global_", "buffer_", "tbuffer_", "scratch_", "flat_", "image_", "ds_", "s_load", "s_buffer", "s_scratch", "s_mem", "s_atc", "s_sendmsg"))


def _wait_name(counter: str) -> str:
    return {"vm": "vmcnt", "lgkm": "lgkmcnt", "vs": "vscnt", "exp": "expcnt"}.get(counter, counter + "cnt")


# ------------------------------------------------------------------------------------------------- the instructions
_FIELDS = {"vmcnt": "vm", "lgkmcnt": "lgkm", "expcnt": "exp"}


def _split_immediate(imm: int, gfx: int) -> dict[str, int]:
    """Fields of the 16-bit operand: manuals, s_waitcnt (gfx9 has vmcnt in [15:14, 3:0], gfx10 a longer lgkmcnt, gfx11 another order)."""
    if gfx == 11:
        return {"exp": imm & 7, "lgkm": imm >> 4 & 63, "vm": imm >> 10 & 63}
    return {"vm": imm & 15 | imm >> 10 & 48, "exp": imm >> 4 & 7, "lgkm": imm >> 8 & (15 if gfx == 9 else 63)}


def _immediate(ins: Instruction, ctx: DecodeContext, place: int = 0) -> int:
    operand = ins.operands[place]
    if not isinstance(operand, Imm) or not isinstance(operand.value, int):
        raise ctx.unknown(ins, f"operand {operand.text!r}")
    return operand.value & 0xFFFF


def _waiting(counts: dict[str, int]) -> Step:
    return lambda w: w.machine.waits.wait(w, counts)


@instruction("s_waitcnt")
def _s_waitcnt(ins: Instruction, ctx: DecodeContext) -> Step:
    """Manuals, SOPP: wait until no counter exceeds its field. A field that the text leaves out is at its largest: no wait."""
    if ctx.generation == 12:
        raise ctx.unknown(ins, "gfx12 has s_wait_loadcnt and its like")
    ctx.only(ins, *_FIELDS)
    counts = {_FIELDS[name]: int(value) for name, value in ins.modifiers.items()}
    if ins.operands:
        counts = {**_split_immediate(_immediate(ins, ctx), ctx.generation), **counts}
    return _waiting(counts)


@instruction("s_waitcnt_vscnt", "s_waitcnt_vmcnt", "s_waitcnt_lgkmcnt", "s_waitcnt_expcnt")
def _s_waitcnt_one(ins: Instruction, ctx: DecodeContext) -> Step:
    """RDNA manuals, SOPK: one counter; the scalar operand, which is added to the immediate, has to be null."""
    if ctx.generation not in (10, 11) or ins.operands[0].text != "null":
        raise ctx.unknown(ins, "operand or generation")
    counter = {**_FIELDS, "vscnt": "vs"}[ins.base.removeprefix("s_waitcnt_")]
    return _waiting({counter: _immediate(ins, ctx, 1)})


@instruction(*(f"s_wait_{c}cnt" for c in ("load", "store", "ds", "km", "sample", "bvh", "exp")))
def _s_wait(ins: Instruction, ctx: DecodeContext) -> Step:
    """RDNA 4 manual, SOPP: one counter."""
    if ctx.generation != 12:
        raise ctx.unknown(ins, "only gfx12 has it")
    return _waiting({ins.base.removeprefix("s_wait_").removesuffix("cnt"): _immediate(ins, ctx)})


@instruction("s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt")
def _s_wait_two(ins: Instruction, ctx: DecodeContext) -> Step:
    """RDNA 4 manual, SOPP: two counters; ds in bits 5:0, the other in 13:8."""
    if ctx.generation != 12:
        raise ctx.unknown(ins, "only gfx12 has it")
    imm = _immediate(ins, ctx)
    return _waiting({"ds": imm & 63, ins.base.split("_")[2].removesuffix("cnt"): imm >> 8 & 63})


@instruction("s_wait_idle")
def _s_wait_idle(ins: Instruction, ctx: DecodeContext) -> Step:
    """RDNA manuals, SOPP: until all counters are 0."""
    return _waiting(dict.fromkeys(COUNTERS, 0))


@instruction("s_waitcnt_depctr", "s_wait_alu", "s_wait_event")
def _s_wait_alu(ins: Instruction, ctx: DecodeContext) -> Step:
    """RDNA manuals, SOPP: waits for ALU results that the hardware's forwarding does not cover. The simulator has no such delays."""
    return lambda w: None
