"""Races in global memory: two waves of a launch touch the same bytes, one of them writing something new, and nothing orders the two.

What orders them (``known``): a barrier of their work-group, and between work-groups an atomic of the one followed by an atomic of the other on the same
address, where the code before and after them does what a release and an acquire need: what a wave published is only what it had waited for (and on gfx942 and gfx950
written back), and another sees of it what came after it emptied its caches (cache_views.py). A store that is in flight (vmcnt; vscnt on gfx10 and gfx11,
storecnt on gfx12) at a barrier or an atomic happens after it. Of a barrier on gfx9 that holds for other
work-groups alone: the waves of one share a cache that takes their accesses in order (LLVM's AMDGPU user guide, memory model of GFX90A to GFX942, where
a fence of workgroup scope does not wait for vmcnt unless in tgsplit mode).

What is kept of each byte, and what is no race, is every target's: dialects/global_races.py. A wave's clock goes up at each barrier and each of its atomics.
Not found besides: races with loads in flight at a barrier, and those between work-groups where a kernel with atomics has more than ``MOST_WAVES``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.dialects.global_races import (
    AUTHOR,
    AUTHORS,
    CLOCK,
    LATE,
    MOST_WAVES,
    PLACES,
    Published,
    RaceLog,
    Shadow,
    differing,
)
from tilewright.targets.amd.isa.cache_views import CacheViews, passes_caches
from tilewright.targets.amd.isa.errors import GlobalRace

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.machine import Machine
    from tilewright.targets.amd.isa.memory import Buffer
    from tilewright.targets.amd.isa.state import Waves

Array = Any
_VMCNT = ("vm", "mem")  # the stream of what counts on vmcnt, loads and buffer_wbl2


def _by_lane(each: Array, shape: tuple[int, ...], mask: Array | None, where: Array | None) -> Array:
    """The waves' stamps for their active lanes: int64 (lanes, 1)."""
    rows = np.repeat(each, shape[1]) if mask is None else np.broadcast_to(each[:, None], shape)[mask]
    return (rows if where is None else rows[where])[:, None]


@dataclass(eq=False)
class _Store:
    """A store that may be in flight: ``number``, of each of ``waves`` (of the batch), says until when. ``cells`` and ``stamp`` have a row a lane."""

    shadow: Shadow
    granule: int
    cells: Array | slice
    stamp: Array
    waves: Array
    number: Array
    stream: tuple[str, str]
    lanes: Callable[[], Array]  # which of ``waves`` each lane is of


class GlobalRaces(RaceLog):
    """Of one launch of ``groups`` work-groups."""

    def __init__(self, machine: Machine, groups: int):
        super().__init__(machine.waves_per_group)
        self.machine = machine
        names = {ins.name for ins in machine.kernel.instructions}
        atomics = any("atomic" in n for n in names)
        waves = groups * self.per_group
        self.ordered_by_cache = machine.arch.startswith("gfx9") and not machine.kernel.descriptor.get("tg_split")
        self.known = np.zeros((waves, waves), np.int32) if atomics and waves <= MOST_WAVES else None
        # whether it matters which stores are in flight: where a cache orders a work-group's and no clock of another's is known, it does not
        self.fences = self.known is not None or (not self.ordered_by_cache and any(n.startswith("s_barrier") for n in names))
        self.between_groups = not atomics or self.known is not None
        one_cache = machine.arch.startswith("gfx9") or not machine.kernel.descriptor.get("workgroup_processor_mode", 1)
        self.views = None if self.known is None else CacheViews(machine.arch, self.known, one_cache)
        self._cached = False  # the access that is looked at goes through caches that may be old
        self.clock = np.ones(waves, np.int64)
        self.group_names: list[tuple[int, int, int]] = []  # of the work-groups so far
        self._shadows: dict[int, Shadow] = {}
        self._open: list[_Store] = []
        self._published = Published(waves if self.known is not None else 0)

    @staticmethod
    def wanted(machine: Machine, groups: int) -> bool:
        """Whether there are two waves at all, few enough to be numbered."""
        return 1 < groups * machine.waves_per_group <= AUTHORS and len(machine.kernel.instructions) <= PLACES

    def begin(self, groups: Sequence[tuple[int, int, int]]) -> None:
        """Other work-groups run now."""
        self.first = len(self.group_names) * self.per_group
        self.group_names += groups
        self._open = []

    # -- what memory calls, before it changes. offsets: of the active lanes, in ``buffer``; where: which of the active lanes they are, None for all
    def read(self, w: Waves, buffer: Buffer, offsets: Array, size: int, shape: tuple[int, ...], mask: Array | None, where: Array | None) -> None:
        stamps, kept = self._wave_stamps(w), None if mask is None else mask.copy()
        passes = passes_caches(w.ins, self.machine.arch)
        if passes and self.known is not None:
            self._learn(w, offsets, buffer.first, shape, mask, where)
        self._cached = self.views is not None and not passes
        self.see_read(self._shadow(buffer), len(offsets), size, lambda: offsets, lambda: _by_lane(stamps(), shape, kept, where))
        self._cached = False

    def write(self, w: Waves, buffer: Buffer, offsets: Array, size: int, shape: tuple[int, ...], mask: Array | None, where: Array | None,
              values: Sequence[Array]) -> Any:
        """``values``: dwords that are about to be stored. What it returns is for ``written``."""
        shadow, stamps = self._shadow(buffer), self._wave_stamps(w)

        def differs() -> Array:
            return _differs(shadow, offsets, size, values)

        cells, stamp = self.see_write(shadow, offsets, size, lambda: _by_lane(stamps(), shape, mask, where), differs)
        if self.fences:
            if self.machine.waits.current[0] is not w.ins:
                raise RuntimeError(f"{w.ins.text}: waits.issue has to come before memory.store")
            ids, stream, kept = np.asarray(w.wave_ids), self.machine.waits.current[1], None if mask is None else mask.copy()
            self._open.append(_Store(shadow, shadow.granule, cells, stamp[:, 0], ids, self.machine.waits.issued(stream)[ids], stream,
                                     lambda: _by_lane(np.arange(len(ids)), shape, kept, where)[:, 0]))
            if len(self._open) > 64:
                self._open = [s for s in self._open if (s.number > self.machine.waits.proven(s.stream)[s.waves]).any()]
        return shadow, cells, stamp, differs

    def written(self, given: tuple[Shadow, Array | slice, Array, Callable[[], Array]]) -> None:
        """Memory has changed."""
        self.see_written(*given, not self.between_groups)

    def atomic(self, w: Waves, addresses: Array, mask: Array | None) -> None:
        """Atomics of the waves, in their order: each learns what was published there, and publishes what it knows."""
        if self.known is None or self.views is None:
            return
        ids = np.asarray(w.wave_ids)
        self.clock = self.clock.copy()  # stamps of reads before may still be asked for
        self._hold_back(ids if mask is None else ids[mask.any(axis=1)], False)
        for row, batch_wave in enumerate(ids.tolist()):
            active = np.unique(addresses[row] if mask is None else addresses[row][mask[row]]).tolist()
            if not active:
                continue
            wave = self.first + batch_wave
            mine = self.known[wave]
            mine[wave] = self.clock[wave]
            self._published.meet(mine, active, self.views.tells(wave, int(self.machine.waits.proven(_VMCNT)[batch_wave])))
            self.clock[wave] += 1

    def _learn(self, w: Waves, offsets: Array, first: int, shape: tuple[int, ...], mask: Array | None, where: Array | None) -> None:
        """Loads that pass the caches may be atomic: they learn what was published there. LLVM makes them of atomics that change nothing."""
        assert self.known is not None and self.views is not None
        rows = np.broadcast_to(np.asarray(w.wave_ids)[:, None] + self.first, shape)
        rows = rows.reshape(-1) if mask is None else rows[mask]
        rows = rows if where is None else rows[where]
        for wave in np.unique(rows).tolist():
            addresses = (np.unique(offsets[rows == wave]) + first).tolist()
            self._published.learn(self.known[wave], addresses)
            if self.views.told is not None:
                self._published.learn(self.views.told[wave], addresses)

    def cache(self, w: Waves) -> None:
        """The waves empty a cache, or begin to write one back, after ``waits.issue``."""
        if self.known is None or self.views is None:
            return
        ids = np.asarray(w.wave_ids)
        if w.ins.base != "buffer_wbl2":
            for wave in (ids + self.first).tolist():
                self.views.empty(w.ins, wave)
            return
        self.clock = self.clock.copy()  # as in atomic
        for batch_wave in ids.tolist():  # (the wave's own stores come to the cache before)
            wave = self.first + batch_wave
            self.known[wave, wave] = self.clock[wave]
            self.views.write_back(w.ins, wave, int(self.machine.waits.issued(_VMCNT)[batch_wave]))
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
                assert self.views is not None
                self.views.barrier(of_group)
        self.clock = self.clock.copy()  # as in atomic
        self.clock[waves.reshape(-1) + self.first] += 1

    # -- inside
    def _hold_back(self, waves: Array, seen: bool) -> None:
        """Stores of these waves (of the batch) that are in flight happen after what comes now: they get the clock that follows. ``seen``: their own
        work-groups see them nevertheless."""
        left = []
        asked = np.zeros(self.machine.batch.waves, bool)
        asked[waves] = True
        for store in self._open:
            late = store.number > self.machine.waits.proven(store.stream)[store.waves]
            if not late.any():
                continue
            left.append(store)
            late &= asked[store.waves]
            if not late.any():
                continue
            lanes = store.lanes()
            rows = np.flatnonzero(late[lanes])
            shadow = store.shadow
            if isinstance(store.cells, slice):
                store.cells = np.arange(store.cells.start, store.cells.stop).reshape(len(store.stamp), -1)
            if store.granule != shadow.granule:
                factor = store.granule // shadow.granule
                store.cells = (store.cells[:, :, None] * factor + np.arange(factor)).reshape(len(store.cells), -1)
                store.granule = shadow.granule
            old = store.stamp[rows]
            new = (self.clock[self.first + store.waves[lanes[rows]]] + 1) << CLOCK | old & ((1 << int(CLOCK)) - 1) | (LATE if seen else np.int64(0))
            cells = store.cells[rows]
            mine = shadow.writes[cells] == old[:, None]
            shadow.writes[cells[mine]] = np.broadcast_to(new[:, None], cells.shape)[mine]
            store.stamp[rows] = new
        self._open = left

    def _shadow(self, buffer: Buffer) -> Shadow:
        found = self._shadows.get(buffer.first)
        if found is None:
            found = self._shadows[buffer.first] = Shadow(buffer)
        return found

    def _wave_stamps(self, w: Waves) -> Callable[[], Array]:
        """() → the stamps that the waves have now."""
        clock, ids, first, place = self.clock, w.wave_ids, self.first, np.int64(w.ins.index)

        def stamps() -> Array:
            waves = np.asarray(ids) + first
            return clock[waves] << CLOCK | waves << AUTHOR | place

        return stamps

    # -- what RaceLog asks
    def unseen(self, old: Array, stamp: Array) -> Array:
        same = self.group(old) == self.group(stamp)
        if self.known is not None:
            at = stamp >> AUTHOR & AUTHORS, old >> AUTHOR & AUTHORS
            clocks = self.known[at]
            if self._cached and self.views is not None:
                clocks = np.where(same, clocks, self.views.seen[at])
            out = clocks < old >> CLOCK
        else:
            out = np.where(same, old >> CLOCK >= stamp >> CLOCK, self.between_groups)
        return out & ((old & LATE == 0) | ~same) if self.ordered_by_cache else out

    def names(self, stamp: int) -> tuple[str, str, str]:
        wave, ins = stamp >> int(AUTHOR) & AUTHORS, self.machine.kernel.instructions[stamp & PLACES]
        line = f"line {ins.line}, " if ins.line else ""
        return f"wave {wave % self.per_group}", f"work-group {self.group_names[wave // self.per_group]}", f"{line}pc {ins.index}: {ins.text}"

    def error(self, text: str, same_group: bool) -> GlobalRace:
        return GlobalRace(text + ("no barrier between, or one that came before the store was waited for" if same_group else
                                  "nothing that orders them: work-groups meet in atomics alone, after the store was waited for, and where "
                                  "these release (by the one that stored) and acquire (by the one that loads)"))


def _differs(shadow: Shadow, offsets: Array, size: int, values: Sequence[Array]) -> Array:
    """bool (rows, granules): what is stored is not what memory holds."""
    held = np.ascontiguousarray(np.stack(list(shadow.region.bytes.gather(offsets, size)), axis=-1)).view(np.uint8)
    given = np.ascontiguousarray(np.stack([np.asarray(v, np.uint32) for v in values], axis=-1)).view(np.uint8)
    return differing(held[:, :size], given[:, :size], shadow.granule)
