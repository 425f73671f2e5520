"""Races in global memory: two waves of a launch touch the same bytes, one of them writing something new, and nothing orders the two.

What orders them (``known``): a barrier of their work-group, and between work-groups an atomic of the one followed by an atomic of the other on the same
address. Atomics count as acquire and release whatever the code around them waits for, but what a wave published is only what it had waited for: a store
that is in flight (vmcnt; vscnt on gfx10 and gfx11, storecnt on gfx12) at a barrier or an atomic happens after it. Of a barrier on gfx9 that holds for other
work-groups alone: the waves of one share a cache that takes their accesses in order (LLVM's AMDGPU user guide, memory model of GFX90A to GFX942, where
a fence of workgroup scope does not wait for vmcnt unless in tgsplit mode).

For each granule of a buffer the last write and the last read are kept as one number each: the wave's clock, the wave, the instruction. A wave's clock
goes up at each barrier and each of its atomics. Writes that leave the bytes as they are are no races (copies of one value in several lanes, waves or
work-groups), and neither is what a wave reads of another of its work-group that reads the same with the same instruction. Not found: races of atomics with plain accesses, with a read that is not the last one of its granule, and with loads in flight at a barrier;
and those between work-groups where a kernel with atomics has more than ``MOST_WAVES``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.errors import GlobalRace

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.machine import Machine
    from tilewright.targets.amd.isa.memory import Buffer
    from tilewright.targets.amd.isa.state import Waves

Array = Any

MOST_WAVES = 2048  # whose clocks are kept for each other
_HELD = 1 << 22  # lanes whose reads of a buffer that nobody wrote are noted without being looked at
_FEW = 16  # lanes of an atomic that are looked at one by one
# one access as an int64, 0: none
_CLOCK, _WAVE, _LATE = np.int64(43), np.int64(20), np.int64(1 << 42)  # late: in flight at a barrier whose waves see it nevertheless
_WAVES, _PLACES = (1 << 22) - 1, (1 << 20) - 1


class _Shadow:
    """Of one buffer: who wrote and read each granule last."""

    def __init__(self, buffer: Buffer):
        self.buffer, self.granule = buffer, 16
        cells = -(-(buffer.end - buffer.first) // 16)
        self.writes, self.reads = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
        self.written = self.read = False
        self.held: list[tuple[Any, ...]] = []  # reads before the first write: most buffers are never written
        self.held_lanes = 0

    def cells(self, offsets: Array, size: int) -> Array:
        """Granules (accesses, granules of one), after splitting those that are larger than what is accessed."""
        bits = int(np.bitwise_or.reduce(offsets)) | size | self.granule
        fine = bits & -bits
        if fine != self.granule:
            factor = self.granule // fine
            self.writes, self.reads = np.repeat(self.writes, factor), np.repeat(self.reads, factor)
            self.granule = fine
        index = (offsets // self.granule)[:, None]
        return index + np.arange(size // self.granule) if size > self.granule else index


    def note_read(self, cells: Array, stamp: Array) -> None:
        # of copies the first wave's stays: it is the one that stores (numpy goes through views of negative strides forwards)
        self.reads[np.ascontiguousarray(cells[::-1])] = np.ascontiguousarray(stamp[::-1])
        self.read = True


def _by_lane(each: Array, shape: tuple[int, ...], mask: Array | None, where: Array | None) -> Array:
    """The waves' stamps for their active lanes: int64 (lanes, 1)."""
    rows = np.repeat(each, shape[1]) if mask is None else np.broadcast_to(each[:, None], shape)[mask]
    return (rows if where is None else rows[where])[:, None]


@dataclass(eq=False)
class _Store:
    """A store that may be in flight, a row for each lane."""

    shadow: _Shadow
    granule: int
    cells: Array
    wave: Array  # within the batch
    stamp: Array
    number: Array
    stream: tuple[str, str]


class GlobalRaces:
    """Of one launch of ``groups`` work-groups."""

    def __init__(self, machine: Machine, groups: int):
        self.machine, self.per_group = machine, machine.waves_per_group
        names = {ins.name for ins in machine.kernel.instructions}
        atomics = any("atomic" in n for n in names)
        waves = groups * self.per_group
        self.fences = atomics or any(n.startswith("s_barrier") for n in names)
        self.ordered_by_cache = machine.arch.startswith("gfx9") and not machine.kernel.descriptor.get("tg_split")
        self.known = np.zeros((waves, waves), np.int32) if atomics and waves <= MOST_WAVES else None
        self.between_groups = not atomics or self.known is not None
        self.clock = np.ones(waves, np.int64)
        self.names: list[tuple[int, int, int]] = []  # of the work-groups so far
        self._shadows: dict[int, _Shadow] = {}
        self._open: list[_Store] = []
        self._published: dict[int, Array] = {}  # address → what those knew that had an atomic there
        self._by_many = np.zeros(waves, np.int32)  # the same of atomics of many lanes, at any address
        self._by_all = np.zeros(waves, np.int32)

    @staticmethod
    def wanted(machine: Machine, groups: int) -> bool:
        """Whether there are two waves at all, few enough to be numbered."""
        return 1 < groups * machine.waves_per_group <= _WAVES and len(machine.kernel.instructions) <= _PLACES

    def begin(self, groups: Sequence[tuple[int, int, int]]) -> None:
        """Other work-groups run now."""
        self.first = len(self.names) * self.per_group
        self.names += groups
        self._open = []

    # -- what memory calls, before it changes. offsets: of the active lanes, in ``buffer``; where: which of the active lanes they are, None for all
    def read(self, w: Waves, buffer: Buffer, offsets: Array, size: int, shape: tuple[int, ...], mask: Array | None, where: Array | None) -> None:
        shadow = self._shadow(buffer)
        each = self._wave_stamps(w)
        if not shadow.written:
            shadow.held.append((offsets, size, each, shape, None if mask is None else mask.copy(), where))
            shadow.held_lanes += len(offsets)
            if shadow.held_lanes > _HELD:
                self._look_at_held(shadow)
            return
        cells = shadow.cells(offsets, size)
        stamp = _by_lane(each, shape, mask, where)
        old = shadow.writes[cells]
        clash = self._unordered(old, stamp)
        if clash is not None:
            clash &= ~self._copies(cells, stamp, old)
            if clash.any():
                raise self._race(shadow, cells, clash, stamp, old, "reads", "wrote")
        shadow.note_read(cells, stamp)

    def _look_at_held(self, shadow: _Shadow) -> None:
        for offsets, size, each, shape, mask, where in shadow.held:
            shadow.note_read(shadow.cells(offsets, size), _by_lane(each, shape, mask, where))
        shadow.held, shadow.held_lanes = [], 0

    def write(self, w: Waves, buffer: Buffer, offsets: Array, size: int, shape: tuple[int, ...], mask: Array | None, where: Array | None,
              values: Sequence[Array]) -> Any:
        """``values``: dwords that are about to be stored. What it returns is for ``written``."""
        shadow = self._shadow(buffer)
        if shadow.held:
            self._look_at_held(shadow)
        cells = shadow.cells(offsets, size)
        stamp = _by_lane(self._wave_stamps(w), shape, mask, where)
        for past, any_, how in ((shadow.writes, shadow.written, "wrote"), (shadow.reads, shadow.read, "read")):
            if not any_:
                continue
            old = past[cells]
            clash = self._unordered(old, stamp)
            if clash is not None:
                clash &= self._differs(shadow, offsets, size, values)
                if clash.any():
                    raise self._race(shadow, cells, clash, stamp, old, "writes", how)
        shadow.writes[cells] = stamp
        shadow.written = True
        if self.fences:
            if self.machine.waits.current[0] is not w.ins:
                raise RuntimeError(f"{w.ins.text}: waits.issue has to come before memory.store")
            ids = np.broadcast_to(w.wave_ids[:, None], shape)
            ids = ids.reshape(-1) if mask is None else ids[mask]
            ids = ids if where is None else ids[where]
            stream = self.machine.waits.current[1]
            self._open.append(_Store(shadow, shadow.granule, cells, ids, stamp[:, 0], self.machine.waits.issued(stream)[ids], stream))
            if len(self._open) > 64:
                self._open = [s for s in self._open if (s.number > self.machine.waits.proven(s.stream)[s.wave]).any()]
        return shadow, cells, stamp, offsets, size, values

    def written(self, given: Any) -> None:
        """Memory has changed: waves that wrote one granule in one step wrote the same."""
        shadow, cells, stamp, offsets, size, values = given
        now = shadow.writes[cells]
        lost = now != stamp
        if not lost.any():
            return
        if not self.between_groups:
            lost &= self._group(now) == self._group(stamp)
        lost &= self._differs(shadow, offsets, size, values)
        if lost.any():
            raise self._race(shadow, cells, lost, stamp, now, "writes", "wrote")

    def atomic(self, w: Waves, addresses: Array, mask: Array | None) -> None:
        """Atomics of the waves, in their order: each learns what was published there, and publishes what it knows."""
        if self.known is None:
            return
        ids = np.asarray(w.wave_ids)
        self._hold_back(ids if mask is None else ids[mask.any(axis=1)], False)
        for row, batch_wave in enumerate(ids.tolist()):
            active = np.unique(addresses[row] if mask is None else addresses[row][mask[row]]).tolist()
            if not active:
                continue
            wave = self.first + batch_wave
            mine = self.known[wave]
            mine[wave] = self.clock[wave]
            if len(active) <= _FEW:
                np.maximum(mine, self._by_many, out=mine)
                for address in active:
                    there = self._published.get(address)
                    if there is not None:
                        np.maximum(mine, there, out=mine)
                for address in active:
                    self._published[address] = mine.copy()
            else:
                np.maximum(mine, self._by_all, out=mine)
                np.maximum(self._by_many, mine, out=self._by_many)
            np.maximum(self._by_all, mine, out=self._by_all)
            self.clock[wave] += 1

    # -- what barriers call
    def barrier(self, groups: Array) -> None:
        """All waves of these work-groups of the batch have met."""
        waves = (np.unique(groups)[:, None] * self.per_group + np.arange(self.per_group))
        self._hold_back(waves.reshape(-1), self.ordered_by_cache)
        if self.known is not None:
            for of_group in waves + self.first:
                joined = self.known[of_group].max(axis=0)
                joined[of_group] = self.clock[of_group]
                self.known[of_group] = joined
        self.clock[waves.reshape(-1) + self.first] += 1

    # -- inside
    def _hold_back(self, waves: Array, seen: bool) -> None:
        """Stores of these waves (of the batch) that are in flight happen after what comes now: they get the clock that follows. ``seen``: their own
        work-groups see them nevertheless."""
        left = []
        for store in self._open:
            late = store.number > self.machine.waits.proven(store.stream)[store.wave]
            if not late.any():
                continue
            left.append(store)
            rows = np.flatnonzero(late & np.isin(store.wave, waves))
            if not len(rows):
                continue
            shadow = store.shadow
            if store.granule != shadow.granule:
                factor = store.granule // shadow.granule
                store.cells = (store.cells[:, :, None] * factor + np.arange(factor)).reshape(len(store.cells), -1)
                store.granule = shadow.granule
            old = store.stamp[rows]
            new = (self.clock[self.first + store.wave[rows]] + 1) << _CLOCK | old & ((1 << int(_CLOCK)) - 1) | (_LATE if seen else np.int64(0))
            cells = store.cells[rows]
            mine = shadow.writes[cells] == old[:, None]
            shadow.writes[cells[mine]] = np.broadcast_to(new[:, None], cells.shape)[mine]
            store.stamp[rows] = new
        self._open = left

    def _shadow(self, buffer: Buffer) -> _Shadow:
        found = self._shadows.get(buffer.first)
        if found is None:
            found = self._shadows[buffer.first] = _Shadow(buffer)
        return found

    def _wave_stamps(self, w: Waves) -> Array:
        waves = np.asarray(w.wave_ids) + self.first
        return self.clock[waves] << _CLOCK | waves << _WAVE | np.int64(w.ins.index)

    def _group(self, stamps: Array) -> Array:
        return (stamps >> _WAVE & _WAVES) // self.per_group

    def _unordered(self, old: Array, stamp: Array) -> Array | None:
        """bool (rows, granules): the older access is another wave's, and the new one's does not know of it. None: nowhere."""
        differ = ((old ^ stamp) >> _WAVE & _WAVES != 0) & (old != 0)
        if not differ.any():
            return None
        if self.ordered_by_cache:
            differ &= (old & _LATE == 0) | (self._group(old) != self._group(stamp))
        if self.known is not None:
            at = np.nonzero(differ)
            then = old[at]
            mine = (stamp[at[0], 0] >> _WAVE) & _WAVES
            differ[at] = self.known[mine, then >> _WAVE & _WAVES] < then >> _CLOCK
        else:
            same = self._group(old) == self._group(stamp)
            together = old >> _CLOCK >= stamp >> _CLOCK
            differ &= np.where(same, together, self.between_groups)
        return differ if differ.any() else None

    def _copies(self, cells: Array, stamp: Array, old: Array) -> Array:
        """bool (rows, granules): the granule's writer reads it too with this instruction, and the wave is of its work-group. Layouts repeat small tiles in
        several waves, of which the first stores and the others load what they do not need."""
        waves = np.int64(_WAVES + 1)
        readers = cells * waves + (stamp >> _WAVE & _WAVES)
        return np.isin(cells * waves + (old >> _WAVE & _WAVES), readers) & (self._group(old) == self._group(stamp))

    def _differs(self, shadow: _Shadow, offsets: Array, size: int, values: Sequence[Array]) -> Array:
        """bool (rows, granules): what is stored is not what memory holds."""
        held = np.ascontiguousarray(np.stack(list(shadow.buffer.bytes.gather(offsets, size)), axis=-1)).view(np.uint8)
        given = np.ascontiguousarray(np.stack([np.asarray(v, np.uint32) for v in values], axis=-1)).view(np.uint8)
        return (held[:, :size] != given[:, :size]).reshape(len(offsets), -1, min(shadow.granule, size)).any(axis=-1)

    def _tell(self, stamp: int) -> tuple[str, str]:
        wave, ins = stamp >> int(_WAVE) & _WAVES, self.machine.kernel.instructions[stamp & _PLACES]
        line = f"line {ins.line}, " if ins.line else ""
        return f"wave {wave % self.per_group} of work-group {self.names[wave // self.per_group]}", f"{line}pc {ins.index}: {ins.text}"

    def _race(self, shadow: _Shadow, cells: Array, clash: Array, stamp: Array, old: Array, does: str, did: str) -> GlobalRace:
        row, granule = (int(i[0]) for i in np.nonzero(clash))
        me, _ = self._tell(int(stamp[row, 0]))
        other, place = self._tell(int(old[row, granule]))
        same = me.split(" of ")[1] == other.split(" of ")[1]
        missing = ("no barrier between, or one that came before the store was waited for" if same else
                   "nothing that orders them: work-groups meet in atomics alone, after the store was waited for")
        byte = int(cells[row, granule]) * shadow.granule
        return GlobalRace(f"byte {byte} of {shadow.buffer}: {me} {does} what {other} {did} ({place}), with {missing}")
