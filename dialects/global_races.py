"""Races in global memory: what simulators of every target keep to find two accesses to one byte, one of them a write, that nothing orders.

For each granule of memory the last write and the last read are kept as one number each, a *stamp*: the author's clock, the author (whoever runs in order on its
own: a wave, a warp, a unit that copies), the place in the kernel. A target's simulator says whose clock knows of whose (``RaceLog.unseen``), what each author
is called, and which of a launch's accesses count.

No races are writes that leave the bytes as they are (copies of one value in several lanes, authors or groups), and what an author reads of another of its group
that reads the same with the same instruction: layouts repeat small tiles. Not found: races of atomics with plain accesses, and with a read that is not the last
one of its granule.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any

# A stamp is an int64; 0 is no access. LATE is for targets: an access that its own group sees in order though its clock says otherwise.
CLOCK, AUTHOR, LATE = np.int64(43), np.int64(20), np.int64(1 << 42)
AUTHORS, PLACES = (1 << 22) - 1, (1 << 20) - 1
MOST_WAVES = 2048  # whose clocks are kept for each other where work-groups meet in atomics
_HELD = 1 << 22  # lanes whose reads of memory that nobody wrote are noted without being looked at
_MOST_BYTES = 1 << 26  # of what is published by address; then as of atomics of many addresses
_FEW = 16  # addresses of one wave's atomic that are looked at one by one


def wanted() -> bool:
    """The user has not left the check out."""
    return os.environ.get("TILEWRIGHT_SIMULATE_GLOBAL_RACES", "1") != "0"


@dataclass(frozen=True)
class Region:
    """Addresses first ≤ a < end that belong together."""

    first: int
    end: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name or 'buffer'} [{self.first:#x}, {self.end:#x}) of {self.end - self.first} bytes"


class Shadow:
    """Of one region: who wrote and read each granule last. ``slack``: bytes behind its end that accesses may reach."""

    def __init__(self, region: Any, slack: int = 0):
        self.region, self.granule = region, 16
        cells = -(-(region.end - region.first + slack) // 16)
        self.writes, self.reads = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
        self.written = self.read = False
        self.held: list[Callable[[], tuple[Array, int, Array]]] = []  # reads before the first write: most regions are never written
        self.held_lanes = 0

    def offsets(self, addresses: Array) -> Array:
        """Of addresses uint64."""
        return (addresses - np.uint64(self.region.first)).view(np.int64)

    def run(self, offsets: Array, size: int) -> slice | None:
        """The granules of accesses that come one behind the other without gaps, else None: nothing is indexed then, and no granule is accessed twice."""
        first, count = int(offsets[0]), len(offsets)
        if int(offsets[-1]) - first != (count - 1) * size or not (offsets[1:] - offsets[:-1] == size).all():
            return None
        self._split(first | size)
        shift = self.granule.bit_length() - 1
        return slice(first >> shift, first + count * size >> shift)

    def cells(self, offsets: Array, size: int) -> Array:
        """Granules (accesses, granules of one)."""
        self._split(int(np.bitwise_or.reduce(offsets)) | size)
        index = (offsets >> (self.granule.bit_length() - 1))[:, None]
        return index + np.arange(size // self.granule) if size > self.granule else index

    def _split(self, bits: int) -> None:
        """Granules no larger than what is accessed."""
        bits |= self.granule
        fine = bits & -bits
        if fine != self.granule:
            factor = self.granule // fine
            self.writes = np.repeat(self.writes, factor) if self.written else np.zeros(len(self.writes) * factor, np.int64)
            self.reads = np.repeat(self.reads, factor) if self.read else np.zeros(len(self.reads) * factor, np.int64)
            self.granule = fine

    def note_read(self, cells: Array, stamp: Array) -> None:
        # of copies the first author's stays: it is the one that stores (numpy goes through views of negative strides forwards)
        self.reads[np.ascontiguousarray(cells[::-1])] = np.ascontiguousarray(stamp[::-1])
        self.read = True

    def note_write(self, cells: Array | slice, stamp: Array) -> None:
        if isinstance(cells, slice):
            self.writes[cells].reshape(len(stamp), -1)[:] = stamp
        else:
            self.writes[cells] = stamp
        self.written = True


class Published:
    """What is known to whoever has an atomic at an address, as vectors of clocks: an atomic that follows another one there learns what that one's author knew."""

    def __init__(self, authors: int):
        self._at: dict[int, Array] = {}
        self._by_many = np.zeros(authors, np.int32)  # of atomics of many addresses, at any
        self._by_all = np.zeros(authors, np.int32)

    def learn(self, mine: Array, addresses: Sequence[int]) -> None:
        """Of an atomic load: nothing is published."""
        if len(addresses) > _FEW:
            np.maximum(mine, self._by_all, out=mine)
            return
        np.maximum(mine, self._by_many, out=mine)
        for address in addresses:
            there = self._at.get(address)
            if there is not None:
                np.maximum(mine, there, out=mine)

    def meet(self, mine: Array, addresses: Sequence[int], told: Array | None = None) -> None:
        """``mine``: int32, what the atomic's author knows, itself included; it learns in place, and what it knows then is published. ``told``: that part of it alone
        is, which learns as well (memory that is not the same for all authors before it is written back)."""
        self.learn(mine, addresses)
        if told is not None:
            self.learn(told, addresses)
        published = mine if told is None else told
        if len(addresses) > _FEW:
            np.maximum(self._by_many, published, out=self._by_many)
        else:
            for address in addresses:
                if len(self._at) * published.nbytes > _MOST_BYTES and address not in self._at:
                    np.maximum(self._by_many, published, out=self._by_many)
                else:
                    self._at[address] = published.copy()
        np.maximum(self._by_all, published, out=self._by_all)


class RaceLog(ABC):
    """Of one launch. ``per_group``: authors of one group, which are numbered group after group."""

    def __init__(self, per_group: int):
        self.per_group = per_group

    # -- what a target says
    @abstractmethod
    def unseen(self, old: Array, stamp: Array) -> Array:
        """bool (n,): the access ``old`` of another author does not happen before the one of ``stamp``; int64 (n,) each."""

    @abstractmethod
    def names(self, stamp: int) -> tuple[str, str, str]:
        """(the author, its group, the place in the kernel) of an access."""

    @abstractmethod
    def error(self, text: str, same_group: bool) -> Exception:
        """``text`` says who did what; what is missing between comes behind."""

    # -- accesses. offsets: int64 (n,) into the shadow's region, n > 0; lanes: () → the stamps of their authors, int64 (n, 1). ``noted``: the stamps to keep,
    # where these are another author's than who has to know of what was before
    def see_read(self, shadow: Shadow, count: int, size: int, offsets: Callable[[], Array], lanes: Callable[[], Array],
                 noted: Callable[[], Array] | None = None) -> None:
        """``count`` reads that happen now. The callables may be called much later, for what was true now."""
        if not shadow.written:
            shadow.held.append(lambda: (offsets(), size, (noted or lanes)()))
            shadow.held_lanes += count
            if shadow.held_lanes > _HELD:
                self._look_at_held(shadow)
            return
        cells, stamp = shadow.cells(offsets(), size), lanes()
        old = shadow.writes[cells]
        clash = self._unordered(old, stamp)
        if clash is not None:
            clash &= ~self._copies(cells, stamp, old)
            if clash.any():
                raise self._race(shadow, cells, clash, stamp, old, "reads", "wrote")
        shadow.note_read(cells, stamp if noted is None else noted())

    def see_write(self, shadow: Shadow, offsets: Array, size: int, lanes: Callable[[], Array], differs: Callable[[], Array],
                  noted: Callable[[], Array] | None = None) -> tuple[Array | slice, Array]:
        """A write that is about to happen; its (granules, stamps). ``differs``: bool (n, granules), what it writes is not what stands there."""
        if shadow.held:
            self._look_at_held(shadow)
        run = shadow.run(offsets, size)
        if run is not None and not (shadow.written and shadow.writes[run].any()) and not (shadow.read and shadow.reads[run].any()):
            kept = (noted or lanes)()
            shadow.note_write(run, kept)
            return run, kept
        cells, stamp = shadow.cells(offsets, size), lanes()
        for past, any_, how in ((shadow.writes, shadow.written, "wrote"), (shadow.reads, shadow.read, "read")):
            if not any_:
                continue
            old = past[cells]
            clash = self._unordered(old, stamp)
            if clash is not None:
                clash &= differs()
                if clash.any():
                    raise self._race(shadow, cells, clash, stamp, old, "writes", how)
        kept = stamp if noted is None else noted()
        shadow.note_write(cells, kept)
        return cells, kept

    def see_written(self, shadow: Shadow, cells: Array | slice, stamp: Array, differs: Callable[[], Array], within_groups: bool) -> None:
        """Memory has changed: authors that wrote one granule in one step wrote the same."""
        if isinstance(cells, slice):
            return
        now = shadow.writes[cells]
        lost = now != stamp
        if not lost.any():
            return
        if within_groups:
            lost &= self.group(now) == self.group(stamp)
        lost &= differs()
        if lost.any():
            raise self._race(shadow, cells, lost, stamp, now, "writes", "wrote")

    def group(self, stamps: Array) -> Array:
        return (stamps >> AUTHOR & AUTHORS) // self.per_group

    # -- inside
    def _look_at_held(self, shadow: Shadow) -> None:
        for read in shadow.held:
            offsets, size, stamp = read()
            shadow.note_read(shadow.cells(offsets, size), stamp)
        shadow.held, shadow.held_lanes = [], 0

    def _unordered(self, old: Array, stamp: Array) -> Array | None:
        """bool (rows, granules): the older access is another author's, and the new one's does not know of it. None: nowhere."""
        if not old.any():
            return None
        differ = ((old ^ stamp) & np.int64(AUTHORS << int(AUTHOR)) != 0) & (old != 0)
        if not differ.any():
            return None
        at = np.nonzero(differ)
        differ[at] = self.unseen(old[at], stamp[at[0], 0])
        return differ if differ.any() else None

    def _copies(self, cells: Array, stamp: Array, old: Array) -> Array:
        """bool (rows, granules): the granule's writer reads it too with this instruction, and the reader is of its group. Layouts repeat small tiles in
        several waves, of which the first stores and the others load what they do not need."""
        authors = np.int64(AUTHORS + 1)
        readers = cells * authors + (stamp >> AUTHOR & AUTHORS)
        return np.isin(cells * authors + (old >> AUTHOR & AUTHORS), readers) & (self.group(old) == self.group(stamp))

    def _race(self, shadow: Shadow, cells: Array, clash: Array, stamp: Array, old: Array, does: str, did: str) -> Exception:
        row, granule = (int(i[0]) for i in np.nonzero(clash))
        me, mine, _ = self.names(int(stamp[row, 0]))
        other, theirs, place = self.names(int(old[row, granule]))
        byte = int(cells[row, granule]) * shadow.granule
        return self.error(f"byte {byte} of {shadow.region}: {me} of {mine} {does} what {other} of {theirs} {did} ({place}), with ", mine == theirs)


def differing(held: Array, given: Array, granule: int) -> Array:
    """bool (n, granules): bytes uint8 (n, size) that are not the same, by granule."""
    return (held != given).reshape(len(held), -1, min(granule, held.shape[1])).any(axis=-1)
