"""Races in global memory in the SIMT executor: two warps of a launch touch the same bytes, one of them writing something new, and nothing orders the two.

What orders them: within a block, or blocks that run together, what orders shared memory (``order.Order``: barriers, arrivals, fences of a target). Between any
two warps, an atomic of the one that releases, followed by an atomic of the other at the same address that acquires: what the first did, or knew of, is known to the
second then; atomics of others in between change nothing. A fence before an atomic makes it release, one after it makes it acquire.

What a device copies on its own (``unit_reads``, ``unit_writes``) has an author of its own: it follows what the warp that asked for it knew then, and only who has
learnt of its end (``ended``) comes after it.

What is kept of each byte, and what is no race, is every target's: dialects/global_races.py. Not found besides: races of asynchronous copies with atomics, and of copies
by threads after they are issued, which is when they read here; those between programs that one block runs one after another; and those between blocks where a kernel with atomics has more than ``MOST_WAVES`` warps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.dialects.global_races import (
    AUTHOR,
    AUTHORS,
    CLOCK,
    MOST_WAVES,
    PLACES,
    Published,
    RaceLog,
    Region,
    Shadow,
    differing,
)
from tilewright.dialects.simt.memory import SimtError
from tilewright.dialects.simt.order import Clock

if TYPE_CHECKING:
    from tilewright.dialects.simt.machine import Group, Machine

Array = Any
Token = tuple[int, int]  # (author within the group, time) of an asynchronous access
Told = list[tuple[Shadow, Array | slice, Array, Callable[[], Array]]]

KINDS = 3  # authors a warp: itself, its asynchronous stores, its asynchronous loads
_NAMES = ("", "an asynchronous store of ", "an asynchronous load of ")
_CHUNK = 20  # memory of no known region is looked at in pieces of 2**20 bytes
_SLACK = 1 << 16  # an access begins in its piece


class GlobalRaces(RaceLog):
    """Of one launch of ``groups`` groups of blocks. ``regions``: memory that belongs together, for the messages and for speed; ``ignored``: memory of the
    executor's own; ``place_name``: what a number that ``Machine.place`` has stands for."""

    def __init__(self, group: Group, groups: int, regions: Sequence[Region], ignored: Sequence[Region], place_name: Callable[[int], str]):
        self.order, self.blocks = group.order, len(group.machines)
        self.warps = self.order.warps
        super().__init__(KINDS * self.warps)
        self._place_name = place_name
        self.programs: list[tuple[int, int, int]] = []  # so far
        self.first = 0
        self.between_groups = True
        self._wide = groups * self.per_group if groups * self.warps <= MOST_WAVES else 0
        self._published: dict[int, Published] = {}
        self._near: dict[int, Published] = {}  # by block
        self._own = np.arange(self.warps)
        spans = sorted([*((r, True) for r in _joined(regions)), *((r, False) for r in ignored)], key=lambda span: span[0].first)
        self._firsts, self._ends = [r.first for r, _ in spans], [r.end for r, _ in spans]
        self._shadows = [Shadow(r) if looked_at else None for r, looked_at in spans]
        self._pieces: dict[int, Shadow] = {}
        self._changes = -1

    @staticmethod
    def possible(group: Group, groups: int, places: int) -> bool:
        """Whether there are two authors at all, few enough to be numbered."""
        return 1 < groups * group.order.warps <= AUTHORS // KINDS and places <= PLACES

    def begin(self, programs: Sequence[tuple[int, int, int]]) -> None:
        """Another group of blocks runs, whose order has been restarted."""
        if self.programs:
            self.first += self.per_group
        self.programs += programs
        order = self.order
        self._base = order.vc[0, :self.warps].copy()
        self._base[0] -= 1  # the warp's own clock has begun already
        self._changes = -1
        self._authors = (self.first + self._own) << AUTHOR
        self._times = np.zeros(self.per_group, np.int64)
        self._near = {}
        self._fenced: dict[int, Array] = {}
        self._observed: dict[int, Array] = {}
        if not self._wide:
            self._published = {}

    # -- accesses, behind memory's own checks, a write before memory changes. addr uint64 (n,), warps (n,) as the group numbers them
    def reads(self, m: Machine, addr: Array, size: int, warps: Array) -> None:
        stamps, place = self._stamps(), m.place
        for shadow, where in self._parts(addr, m.memory.low, m.memory.high):
            mine, at = (warps, addr) if where is None else (warps[where], addr[where])
            self.see_read(shadow, len(at), size, lambda s=shadow, at=at: s.offsets(at), lambda mine=mine: (stamps[mine] | place)[:, None])  # type: ignore[misc]

    def writes(self, m: Machine, addr: Array, data: Array, warps: Array) -> Told:
        """``data`` uint8 (n, bytes). What it returns is for ``written``."""
        stamps, place, told = self._stamps(), m.place, []
        for shadow, where in self._parts(addr, m.memory.low, m.memory.high):
            mine, at = (warps, addr) if where is None else (warps[where], addr[where])
            differs = self._differs(m, shadow, addr, data, where)
            cells, stamp = self.see_write(shadow, shadow.offsets(at), data.shape[1], lambda mine=mine: (stamps[mine] | place)[:, None], differs)  # type: ignore[misc]
            told.append((shadow, cells, stamp, differs))
        return told

    def written(self, told: Told) -> None:
        for part in told:
            self.see_written(*part, not self.between_groups)

    def unit_reads(self, m: Machine, addr: Array, size: int, warp: int) -> Token:
        """Something that copies on its own reads from now on, for a warp."""
        return self._unit(m, addr, size, warp, 2, None)

    def unit_writes(self, m: Machine, addr: Array, data: Array, warp: int) -> Token:
        """The same with a write of ``data`` uint8 (n, bytes), which memory need not have yet."""
        return self._unit(m, addr, data.shape[1], warp, 1, data)

    def _unit(self, m: Machine, addr: Array, size: int, warp: int, kind: int, data: Array | None) -> Token:
        author = kind * self.warps + warp
        self._times[author] += 1
        time = int(self._times[author])
        asks = self._stamps()[warp] | np.int64(m.place)
        does = np.int64(time) << CLOCK | np.int64(self.first + author) << AUTHOR | np.int64(m.place)

        def stamps(stamp: Any, count: int) -> Callable[[], Array]:
            return lambda: np.full((count, 1), stamp, np.int64)

        for shadow, where in self._parts(addr, int(addr.min()), int(addr.max())):
            at = addr if where is None else addr[where]
            before, noted = stamps(asks, len(at)), stamps(does, len(at))
            if data is None:
                self.see_read(shadow, len(at), size, lambda s=shadow, at=at: s.offsets(at), before, noted)  # type: ignore[misc]
            else:
                self.see_write(shadow, shadow.offsets(at), size, before, self._differs(m, shadow, addr, data, where), noted)
        return author, time

    def ended(self, token: Token) -> Clock:
        """What those know who have learnt of an asynchronous access's end."""
        nothing, (author, time) = self.order.nothing(), token
        more = np.zeros(self.per_group, np.int64)
        more[author] = time
        return Clock(nothing.vc, nothing.fenced, nothing.events, more)

    def atomic(self, m: Machine, addr: Array, active: Array, acquires: bool = True, releases: bool = True, near: bool = False) -> None:
        """Atomics of the active threads' warps, in their order: each learns what was published there if it acquires, and publishes what it knows if it
        releases; what was published there before stays. ``near``: only the block's own threads are meant."""
        order, wide = self.order, 0 if near else self._wide
        if not near:
            self.between_groups = bool(wide)
        published = self._near if near else self._published
        key = m.rank if near else 0
        if key not in published:
            published[key] = Published(wide or self.per_group)
        order.know_more(self.per_group + wide)
        rows = active.reshape(-1, m.warp_size)
        for row in np.flatnonzero(rows.any(axis=1)).tolist():
            warp = m.first_warp + row
            mine = self._known(warp, wide)
            fenced = None if near else self._fenced.get(warp)
            told = mine.copy() if releases else np.zeros_like(mine) if fenced is None else fenced.copy()
            published[key].meet(mine, np.unique(addr.reshape(rows.shape)[row][rows[row]]).tolist(), told)
            if acquires:
                self._learn(warp, mine, wide)
            elif not near:
                old = self._observed.get(warp)
                self._observed[warp] = mine if old is None else np.maximum(mine, old)
            self._go_on(warp)

    def fence(self, warps: Sequence[int]) -> None:
        """What these warps' atomics saw before is known after it, and what they know now is published by atomics after it, whatever those say."""
        self.order.know_more(self.per_group + self._wide)
        for warp in warps:
            if warp in self._observed:
                self._learn(warp, self._observed.pop(warp), self._wide)
            self._fenced[warp] = self._known(warp, self._wide)
            self._go_on(warp)

    def _known(self, warp: int, wide: int) -> Array:
        """What a warp knows, itself included, as vectors that are published have it: int32, its own copy."""
        row = self.order.more[warp]  # type: ignore[index]
        out = row[self.per_group:].astype(np.int32) if wide else np.zeros(self.per_group, np.int32)
        own = out[self.first:self.first + self.per_group] if wide else out
        own[:] = row[:self.per_group]
        own[:self.warps] = np.maximum(row[:self.warps], self.order.vc[warp, :self.warps] - self._base)
        return out

    def _learn(self, warp: int, known: Array, wide: int) -> None:
        row = self.order.more[warp]  # type: ignore[index]  # a view
        own = known[self.first:self.first + self.per_group] if wide else known
        row[:self.per_group] = np.maximum(row[:self.per_group], own)
        if wide:
            row[self.per_group:] = np.maximum(row[self.per_group:], known)

    def _go_on(self, warp: int) -> None:
        """What the warp does now was not published."""
        self.order.vc[warp, warp] += 1
        self.order.changes += 1

    # -- what RaceLog asks
    def unseen(self, old: Array, stamp: Array) -> Array:
        order, more = self.order, self.order.more
        me = (stamp >> AUTHOR & AUTHORS) - self.first  # a warp of the running group: units are looked at as who asked for them
        then, clock = old >> AUTHOR & AUTHORS, old >> CLOCK
        out = np.full(len(old), self.between_groups)
        inside = then >= self.first
        if inside.any():
            rows, author = me[inside], then[inside] - self.first
            known = np.zeros(len(rows), np.int64) if more is None else more[rows, author]
            warp = np.minimum(author, self.warps - 1)
            known = np.where(author < self.warps, np.maximum(known, order.vc[rows, warp] - self._base[warp]), known)
            out[inside] = known < clock[inside]
        if self._wide and more is not None and more.shape[1] > self.per_group:
            outside = ~inside
            out[outside] = more[me[outside], self.per_group + then[outside]] < clock[outside]
        return out

    def names(self, stamp: int) -> tuple[str, str, str]:
        author = stamp >> int(AUTHOR) & AUTHORS
        group, (kind, warp) = author // self.per_group, divmod(author % self.per_group, self.warps)
        block, number = divmod(warp, self.order.per_block)
        return f"{_NAMES[kind]}warp {number}", f"program {self.programs[group * self.blocks + block]}", self._place_name(stamp & PLACES)

    def error(self, text: str, same_group: bool) -> SimtError:
        return SimtError("global-memory race: " + text + ("no barrier between, or an asynchronous copy that was not waited for" if same_group else
                                                          "nothing that orders them: programs meet in atomics alone"))

    # -- inside
    def _stamps(self) -> Array:
        """The stamps of the group's warps now, but for the place; not changed afterwards."""
        if self._changes != self.order.changes:
            self._changes = self.order.changes
            self._now = (self.order.vc[self._own, self._own] - self._base) << CLOCK | self._authors
        return self._now

    def _differs(self, m: Machine, shadow: Shadow, addr: Array, data: Array, where: Array | None) -> Callable[[], Array]:
        def differs() -> Array:
            a, new = (addr, data) if where is None else (addr[where], data[where])
            return differing(m.memory.load(a, new.shape[1]), new, shadow.granule)

        return differs

    def _parts(self, addr: Array, low: int, high: int) -> list[tuple[Shadow, Array | None]]:
        """(shadow, which of ``addr``, from ``low`` to ``high``, lie in its region or None for all)."""
        i = bisect_right(self._firsts, low) - 1
        if i >= 0 and high < self._ends[i]:
            shadow = self._shadows[i]
            return [] if shadow is None else [(shadow, None)]
        if low >> _CHUNK == high >> _CHUNK and (i < 0 or low >= self._ends[i]) and (i + 1 == len(self._firsts) or high < self._firsts[i + 1]):
            return [(self._piece(low >> _CHUNK), None)]
        out: list[tuple[Shadow, Array | None]] = []
        keys = np.array([self._key(a) for a in addr.tolist()], np.int64)
        for key in np.unique(keys).tolist():
            shadow = self._shadows[-1 - key] if key < 0 else self._piece(key)
            if shadow is not None:
                out.append((shadow, np.flatnonzero(keys == key)))
        return out

    def _key(self, address: int) -> int:
        """Of a known region -1 - its number, else the number of the piece."""
        i = bisect_right(self._firsts, address) - 1
        return -1 - i if i >= 0 and address < self._ends[i] else address >> _CHUNK

    def _piece(self, number: int) -> Shadow:
        found = self._pieces.get(number)
        if found is None:
            found = self._pieces[number] = Shadow(Region(number << _CHUNK, number + 1 << _CHUNK, "memory"), _SLACK)
        return found


def _joined(regions: Sequence[Region]) -> list[Region]:
    """Those that overlap become one."""
    out: list[Region] = []
    for r in sorted(regions, key=lambda r: r.first):
        if r.end <= r.first:
            continue
        if out and r.first < out[-1].end:
            out[-1] = Region(out[-1].first, max(out[-1].end, r.end), out[-1].name or r.name)
        else:
            out.append(r)
    return out
