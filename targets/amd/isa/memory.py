"""Memory of the simulated machine: this process's buffers, a work-group's LDS and a lane's scratch, as arrays of bytes.

Every access is checked before it happens. Accesses need not be aligned to their size: LLVM compiles for the HSA's unaligned access
mode (LLVM's AMDGPU user guide, "unaligned-access-mode"); atomics must be ("Memory Alignment Support" in the RDNA 3 manual), see atomics.py.
Where two lanes of one instruction store to one address the highest lane of the highest wave wins: the hardware leaves it open.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.errors import LdsOutOfBounds, OutOfBounds, SimulationError, UninitialisedLds

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any

POISON = 0x7FC0_DEAD  # what scratch holds before it is written: a NaN, as an integer out of every range


class Bytes:
    """A flat array of bytes (uint8, one dimension, contiguous) that is read and written at many offsets at once.

    ``offsets``: int64, one dimension, all inside; sizes 1, 2, 4, 8, 12 or 16 bytes. Values are one uint32 array a dword."""

    def __init__(self, data: Array) -> None:
        self.data = data
        self.skip = int(-data.ctypes.data % 16)  # the wide views begin at the first aligned address
        body = data[self.skip:]
        self._u16 = body[: body.size // 2 * 2].view(np.uint16)
        self._u32 = body[: body.size // 4 * 4].view(np.uint32)
        self._rows = {8: body[: body.size // 8 * 8].view(np.uint32).reshape(-1, 2), 16: body[: body.size // 16 * 16].view(np.uint32).reshape(-1, 4)}

    def gather(self, offsets: Array, size: int) -> Array:
        """The dwords at ``offsets``, bytes and halves zero extended: uint32 (dwords, offsets)."""
        if size == 1:
            return self.data.take(offsets).astype(np.uint32)[None]
        at, low = self._aligned(offsets)
        if low >= 0:  # else an address before the first aligned one
            if size == 2 and not low & 1:
                return self._u16.take(at >> 1).astype(np.uint32)[None]
            if size == 4 and not low & 3:
                return self._u32.take(at >> 2)[None]
            if size in self._rows and not low & (size - 1):
                return self._rows[size].take(at >> (3 if size == 8 else 4), axis=0).T
            if not low & 3 and size > 4:
                word = at >> 2
                return np.stack([self._u32.take(word + i) for i in range(size // 4)])
        words = np.zeros((max(1, size // 4), offsets.size), np.uint32)
        for i in range(size):
            words[i // 4] |= self.data.take(offsets + i).astype(np.uint32) << np.uint32(8 * (i % 4))
        return words

    def scatter(self, offsets: Array, words: Sequence[Array], size: int) -> None:
        """Stores the low ``size`` bytes of ``words``; the last of equal offsets stays."""
        if size == 1:
            self.data[offsets] = words[0].astype(np.uint8)
            return
        at, low = self._aligned(offsets)
        if low >= 0:
            if size == 2 and not low & 1:
                self._u16[at >> 1] = words[0].astype(np.uint16)
                return
            if size in self._rows and not low & (size - 1):
                self._rows[size][at >> (3 if size == 8 else 4)] = np.stack(list(words), axis=-1)
                return
            if not low & 3 and size >= 4:
                for i in range(size // 4):
                    self._u32[(at >> 2) + i] = words[i]
                return
        for i in range(size):
            self.data[offsets + i] = (words[i // 4] >> np.uint32(8 * (i % 4))).astype(np.uint8)

    def _aligned(self, offsets: Array) -> tuple[Array, int]:
        """Offsets from the first aligned address, and all of them or-ed: its low bits say how aligned they are, its sign whether one is before."""
        at = offsets - self.skip if self.skip else offsets
        return at, int(np.bitwise_or.reduce(at)) if at.size else 0


@dataclass(frozen=True)
class Buffer:
    """Memory of this process that a kernel may touch: addresses first ≤ a < end."""

    first: int
    end: int
    name: str
    writable: bool
    bytes: Bytes

    def __str__(self) -> str:
        return f"{self.name or 'buffer'} [{self.first:#x}, {self.end:#x}) of {self.end - self.first} bytes"


class GlobalMemory:
    """The buffers that a launch may touch. ``ranges``: (first, end) or (first, end, name) addresses in this process; ones that overlap become one."""

    def __init__(self, ranges: Iterable[tuple[int, int] | tuple[int, int, str]] = ()) -> None:
        self._buffers: list[Buffer] = []
        self._firsts: list[int] = []
        self._kept: list[Array] = []
        self.races: Any = None  # global_races.GlobalRaces of the launch that runs, where they are checked
        for r in ranges:
            self.add(r[0], r[1], r[2] if len(r) > 2 else "")

    def add(self, first: int, end: int, name: str = "", writable: bool = True) -> None:
        """Allows the bytes first ≤ a < end. The caller keeps them alive."""
        if end <= first:
            return
        kept = []
        for b in self._buffers:
            if b.end <= first or end <= b.first:
                kept.append(b)
            else:
                first, end, name, writable = min(first, b.first), max(end, b.end), b.name or name, writable and b.writable
        whole = -(-end // 4) * 4 if first % 4 == 0 else end  # see _places
        data = np.ctypeslib.as_array((ctypes.c_uint8 * (whole - first)).from_address(first))
        kept.append(Buffer(first, end, name, writable, Bytes(data)))
        self._buffers = sorted(kept, key=lambda b: b.first)
        self._firsts = [b.first for b in self._buffers]

    def add_array(self, array: Array, name: str = "", writable: bool = True) -> int:
        """Allows a contiguous numpy array and keeps it alive; its address."""
        first = int(array.ctypes.data)
        self._kept.append(array)
        self.add(first, first + array.nbytes, name, writable)
        return first

    @property
    def buffers(self) -> Sequence[Buffer]:
        return tuple(self._buffers)

    def load(self, w: Waves, addresses: Array, size: int, mask: Array | None = None) -> Array:
        """uint32 (dwords, *addresses.shape): what stands at uint64 ``addresses``, (waves, lanes) or (waves, 1), where ``mask``; 0 elsewhere.

        Bytes and halves come zero extended. Raises OutOfBounds."""
        words = max(1, size // 4)
        active = addresses.ravel() if mask is None else addresses[mask]
        if not active.size:
            return np.zeros((words, *addresses.shape), np.uint32)
        flat = None
        for buffer, offsets, where in self._places(w, active, size, addresses, mask, False):
            if self.races is not None and buffer.writable:
                self.races.read(w, buffer, offsets, size, addresses.shape, mask, where)
            found = buffer.bytes.gather(offsets, size)
            if where is None:
                flat = found
            else:
                flat = np.empty((words, active.size), np.uint32) if flat is None else flat
                flat[:, where] = found
        assert flat is not None
        return spread(flat, addresses.shape, mask)

    def store(self, w: Waves, addresses: Array, size: int, values: Sequence[Array], mask: Array | None = None) -> None:
        """Stores dwords ``values`` (each broadcastable to ``addresses``) where ``mask``. Raises OutOfBounds before anything is stored."""
        active = addresses.ravel() if mask is None else addresses[mask]
        if not active.size:
            return
        flat = [_select(v, addresses.shape, mask) for v in values]
        for buffer, offsets, where in list(self._places(w, active, size, addresses, mask, True)):
            part = flat if where is None else [v[where] for v in flat]
            if self.races is None:
                buffer.bytes.scatter(offsets, part, size)
                continue
            told = self.races.write(w, buffer, offsets, size, addresses.shape, mask, where, part)
            buffer.bytes.scatter(offsets, part, size)
            self.races.written(told)

    def update(self, w: Waves, addresses: Array, size: int, values: Sequence[Array], mask: Array | None, operation: Callable[..., Sequence[Array]]) -> Array:
        """Read, modify, write in the order of waves and lanes; the old dwords as ``load`` gives them. See ``update_bytes``."""
        words = max(1, size // 4)
        active = addresses.ravel() if mask is None else addresses[mask]
        if not active.size:
            return np.zeros((words, *addresses.shape), np.uint32)
        flat = [_select(v, addresses.shape, mask) for v in values]
        old = np.empty((words, active.size), np.uint32)
        if self.races is not None:
            self.races.atomic(w, addresses, mask)
        for buffer, offsets, where in list(self._places(w, active, size, addresses, mask, True)):
            part = slice(None) if where is None else where
            old[:, part] = update_bytes(buffer.bytes, offsets, size, [v[part] for v in flat], operation)
        return spread(old, addresses.shape, mask)

    def _places(self, w: Waves, active: Array, size: int, addresses: Array, mask: Array | None, write: bool) -> Iterator[tuple[Buffer, Array, Array | None]]:
        """(buffer, offsets into it, which of ``active`` they are or None for all). Checks all of them before the first is given.

        Atomics of 8 and 16 bits are loops around compare-and-swap of the dword that holds the element, which at a buffer's end may reach beyond it. No device
        minds, since a page ends with a dword, and what lies beyond is written back as it was; so it is allowed to them."""
        low, high = int(active.min()), int(active.max()) + size
        i = bisect_right(self._firsts, low) - 1
        if i >= 0 and high <= self._buffers[i].end:
            buffer = self._buffers[i]
            if write and not buffer.writable:
                raise self._outside(w, addresses, size, mask, write)
            yield buffer, (active - np.uint64(buffer.first)).view(np.int64), None
            return
        which = self._which(active, size, write)
        if (which < 0).any() and size == 4 and _holds_an_element(w):
            of_first = self._which(active, 1, write)
            aligned = np.array([b.first % 4 == 0 for b in self._buffers])[of_first] & (active % np.uint64(4) == 0)
            which = np.where(aligned, of_first, which)
        if (which < 0).any():
            raise self._outside(w, addresses, size, mask, write)
        for i in np.unique(which):
            where, buffer = which == i, self._buffers[int(i)]
            yield buffer, (active[where] - np.uint64(buffer.first)).view(np.int64), where

    def _which(self, active: Array, size: int, write: bool) -> Array:
        """Index of the buffer that each access is inside of, or -1."""
        if not self._buffers:
            return np.full(active.shape, -1)
        which = np.searchsorted(np.array(self._firsts, np.uint64), active, side="right").astype(np.int64) - 1
        # ends - size in Python integers: an address near 2**64 must not wrap
        last = np.array([max(0, b.end - size + 1) if b.writable or not write else 0 for b in self._buffers], np.uint64)
        return np.where((which >= 0) & (active < last[np.maximum(which, 0)]), which, -1)

    def _outside(self, w: Waves, addresses: Array, size: int, mask: Array | None, write: bool) -> SimulationError:
        wave, lanes, at = offenders(addresses, (self._which(addresses.ravel(), size, write) < 0).reshape(addresses.shape), mask)
        verb = "writes" if write else "reads"
        what = f"{verb} {size} byte{'s' if size > 1 else ''} at {at:#x}, " + self._nearest(at, size, write)
        return OutOfBounds(what, wave, lanes if addresses.shape[-1] > 1 else None).at_waves(w)

    def _nearest(self, at: int, size: int, write: bool) -> str:
        if not self._buffers:
            return "but the launch has no buffers"
        for b in self._buffers:
            if write and not b.writable and b.first <= at and at + size <= b.end:
                return f"inside {b}, which is read only"
        b = min(self._buffers, key=lambda b: max(b.first - at, at + size - b.end))
        distance = f"{b.first - at} bytes before" if at < b.first else f"{at + size - b.end} bytes past the end of"
        text = f"{distance} {b}"
        others = [str(o) for o in self._buffers if o is not b]
        return text + (f"; the other buffers: {', '.join(others[:6])}{' …' if len(others) > 6 else ''}" if others else "")


def _holds_an_element(w: Waves) -> bool:
    """Whether the instruction belongs to a loop around compare-and-swap of a dword: it is one, or a load on the same line of the user's."""
    if "_atomic_cmpswap" in w.ins.name:
        return True
    return w.ins.line > 0 and any(ins.line == w.ins.line and "_atomic_cmpswap" in ins.name for ins in w.machine.kernel.instructions)


class Lds:
    """Local data share of ``groups`` work-groups with ``size`` bytes each, and which bytes were written.

    ``races``: tells them of each access (races.Races), or None. Instructions call ``waits.issue`` before they access."""

    def __init__(self, groups: int, size: int, races: Any = None) -> None:
        self.groups, self.size, self.pitch, self.races = groups, size, -(-max(size, 1) // 16) * 16, races
        self.data = Bytes(np.zeros(groups * self.pitch, np.uint8))
        self.written = Bytes(np.zeros(groups * self.pitch, np.uint8))  # 0xff where written
        self._by_group = self.data.data.reshape(groups, self.pitch)

    def contents(self, group: int) -> Array:
        """The bytes of one work-group: uint8 (size,), a view."""
        return self.data.data[group * self.pitch: group * self.pitch + self.size]

    def initialised(self, group: int) -> Array:
        """0xff for each byte of a work-group that was written: uint8 (size,), a view."""
        return self.written.data[group * self.pitch: group * self.pitch + self.size]

    def fill(self, group: int, contents: Array) -> None:
        """Sets the first bytes of a work-group's LDS, as written."""
        data = np.frombuffer(contents.tobytes(), np.uint8)
        self.contents(group)[: data.size] = data
        self.initialised(group)[: data.size] = 0xFF

    def clear(self) -> None:
        """For the next work-groups."""
        self.data.data[:] = 0xC7
        self.written.data[:] = 0

    def load(self, w: Waves, addresses: Array, size: int, mask: Array | None) -> Array:
        """The dwords at int (waves, lanes) ``addresses`` where ``mask``, 0 elsewhere: uint32 (dwords, waves, lanes).

        Raises LdsOutOfBounds, UninitialisedLds, and what the races find."""
        offsets = self._offsets(w, addresses, size, mask, "reads")
        if not offsets.size:
            return np.zeros((max(1, size // 4), *addresses.shape), np.uint32)
        if self.races is not None:
            self.races.lds_access(w, addresses, size, mask, False)
        self._check_written(w, offsets, addresses, size, mask)
        return spread(self.data.gather(offsets, size), addresses.shape, mask)

    def store(self, w: Waves, addresses: Array, size: int, values: Sequence[Array], mask: Array | None, asynchronous: bool = False) -> None:
        """Stores dwords ``values`` where ``mask``. ``asynchronous``: by a load from memory. Raises LdsOutOfBounds, and what the races find."""
        offsets = self._offsets(w, addresses, size, mask, "writes")
        if not offsets.size:
            return
        if self.races is not None:
            self.races.lds_access(w, addresses, size, mask, True, data=_as_bytes(values, addresses.shape, size), memory=self._by_group,
                                  asynchronous=asynchronous)
        self.data.scatter(offsets, [_select(v, addresses.shape, mask) for v in values], size)
        ones = np.full(offsets.shape, 0xFFFF_FFFF, np.uint32)
        self.written.scatter(offsets, [ones] * max(1, size // 4), size)

    def update(self, w: Waves, addresses: Array, size: int, values: Sequence[Array], mask: Array | None, operation: Callable[..., Sequence[Array]]) -> Array:
        """Read, modify, write in the order of waves and lanes; the old dwords as ``load`` gives them. See ``update_bytes``."""
        offsets = self._offsets(w, addresses, size, mask, "updates")
        if not offsets.size:
            return np.zeros((max(1, size // 4), *addresses.shape), np.uint32)
        if self.races is not None:
            self.races.lds_access(w, addresses, size, mask, True, True)
        self._check_written(w, offsets, addresses, size, mask)
        old = update_bytes(self.data, offsets, size, [_select(v, addresses.shape, mask) for v in values], operation)
        return spread(old, addresses.shape, mask)

    def _offsets(self, w: Waves, addresses: Array, size: int, mask: Array | None, verb: str) -> Array:
        places = addresses.astype(np.int64)
        active = places.ravel() if mask is None else places[mask]
        if active.size and int(active.max()) + size > self.size:
            wave, lanes, at = offenders(places, places + size > self.size, mask)
            past = f"{at + size - self.size} bytes past the end of" if at < self.size + (1 << 20) else "outside"
            raise LdsOutOfBounds(f"{verb} {size} byte{'s' if size > 1 else ''} of LDS at {at:#x}, {past} the work-group's {self.size} bytes",
                                 wave, lanes).at_waves(w)
        if self.groups > 1:
            places += (np.asarray(w.group_ids, np.int64) * self.pitch)[:, None]
            active = places.ravel() if mask is None else places[mask]
        return active

    def _check_written(self, w: Waves, offsets: Array, addresses: Array, size: int, mask: Array | None) -> None:
        full = 0xFFFF_FFFF if size >= 4 else (1 << 8 * size) - 1
        words = self.written.gather(offsets, size)
        if int(np.bitwise_and.reduce(words, axis=None)) == full:
            return
        bad = np.zeros(addresses.shape, np.bool_)
        found = (words != full).any(axis=0)
        bad[np.ones(addresses.shape, np.bool_) if mask is None else mask] = found
        wave, lanes, at = offenders(addresses, bad, mask)
        place = int(offsets[np.argmax(found)])
        missing = [at + i for i in range(size) if not self.written.data[place + i]]
        raise UninitialisedLds(f"reads {size} bytes of LDS at {at:#x}, of which {', '.join(map(hex, missing))} {'was' if len(missing) == 1 else 'were'} never written",
                               wave, lanes).at_waves(w)


class Scratch:
    """Private memory: ``size`` bytes for each lane of ``waves`` waves."""

    def __init__(self, waves: int, lanes: int, size: int) -> None:
        self.size, self.lanes, self.pitch = size, lanes, -(-max(size, 1) // 16) * 16
        self.data = Bytes(np.zeros(waves * lanes * self.pitch if size else 0, np.uint8))
        self._first = (np.arange(waves * lanes) * self.pitch).reshape(waves, lanes)  # byte of each lane

    def clear(self) -> None:
        """For the next waves: every dword is POISON."""
        self.data.data.view(np.uint32)[:] = POISON

    def load(self, w: Waves, addresses: Array, size: int, mask: Array | None) -> Array:
        """The dwords at int64 (waves, lanes) private byte addresses where ``mask``, 0 elsewhere: uint32 (dwords, waves, lanes). Raises OutOfBounds."""
        offsets = self._offsets(w, addresses, size, mask, "reads")
        return spread(self.data.gather(offsets, size), addresses.shape, mask)

    def store(self, w: Waves, addresses: Array, size: int, values: Sequence[Array], mask: Array | None) -> None:
        """Stores dwords ``values`` where ``mask``. Raises OutOfBounds."""
        offsets = self._offsets(w, addresses, size, mask, "writes")
        if offsets.size:
            self.data.scatter(offsets, [_select(v, addresses.shape, mask) for v in values], size)

    def _offsets(self, w: Waves, addresses: Array, size: int, mask: Array | None, verb: str) -> Array:
        active = addresses.ravel() if mask is None else addresses[mask]
        if active.size and int(active.max()) + size > self.size:
            wave, lanes, at = offenders(addresses, addresses + size > self.size, mask)
            raise OutOfBounds(f"{verb} {size} byte{'s' if size > 1 else ''} of scratch at {at:#x}; each lane has {self.size}", wave, lanes).at_waves(w)
        places = self._first[w.wave_ids] + addresses
        return places.ravel() if mask is None else places[mask]


def update_bytes(memory: Bytes, offsets: Array, size: int, values: Sequence[Array], operation: Callable[..., Sequence[Array]]) -> Array:
    """``operation(old dwords, values)`` → new dwords at ``offsets``, as if one after another; the dwords before each. uint32 (dwords, offsets).

    Equal offsets are taken in rounds: the first of each address, then the second of each and so on."""
    count = offsets.size
    order = np.argsort(offsets, kind="stable")
    ranked = offsets[order]
    first = np.ones(count, np.bool_)
    first[1:] = ranked[1:] != ranked[:-1]
    old = np.empty((max(1, size // 4), count), np.uint32)
    if first.all():
        old[:] = memory.gather(offsets, size)
        memory.scatter(offsets, operation(old, values), size)
        return old
    starts = np.flatnonzero(first)
    rank = np.arange(count) - np.repeat(starts, np.diff(np.append(starts, count)))
    by_rank = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[by_rank], np.arange(int(rank.max()) + 2))
    for r in range(len(bounds) - 1):
        which = order[by_rank[bounds[r]: bounds[r + 1]]]
        before = memory.gather(offsets[which], size)
        old[:, which] = before
        memory.scatter(offsets[which], operation(before, [v[which] for v in values]), size)
    return old


def spread(flat: Array, shape: tuple[int, ...], mask: Array | None) -> Array:
    """(dwords, active lanes) → (dwords, *shape), 0 where not ``mask``."""
    if mask is None:
        return flat.reshape(len(flat), *shape)
    out = np.zeros((len(flat), *shape), np.uint32)
    out[:, mask] = flat
    return out


def offenders(addresses: Array, bad: Array, mask: Array | None) -> tuple[int, list[int], int]:
    """(wave, its lanes, the first one's address) of the first wave that has a bad active lane."""
    if mask is not None:
        bad = bad & mask
    wave = int(np.argmax(bad.any(axis=1)))
    lanes = [int(i) for i in np.flatnonzero(bad[wave])]
    return wave, lanes, int(addresses[wave, lanes[0]])


def _select(value: Array, shape: tuple[int, ...], mask: Array | None) -> Array:
    """The active lanes of a value that broadcasts to ``shape``: one dimension."""
    if value.shape != shape:
        value = np.broadcast_to(value, shape)
    return value.ravel() if mask is None else value[mask]


def _as_bytes(values: Sequence[Array], shape: tuple[int, ...], size: int) -> Array:
    """Dwords as the bytes that a store of ``size`` writes: uint8 (*shape, size)."""
    if size < 4:
        values = [values[0].astype(np.uint8 if size == 1 else np.uint16)]
    whole = np.empty((*shape, len(values)), values[0].dtype)
    for i, v in enumerate(values):
        whole[..., i] = v
    return whole.view(np.uint8)
