"""Memories of the SIMT executor: global (the process's own numpy buffers, by address) and shared (one byte array a block)."""

from __future__ import annotations

import bisect
import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.dialects.errors import TilewrightError
from tilewright.dialects.simt.order import AccessLog, Order, View

Array = Any  # np.ndarray; numpy's generic parameters add nothing here

SHARED_WINDOW = 1 << 62  # generic addresses of shared memory start here


class SimtError(TilewrightError):
    """A kernel did what a GPU must not: names the operation's location, the program and the first thread."""


def _rows(view: Array, offsets: Array, count: int) -> Array:
    """Index array [threads, count] of ``count`` items from each offset."""
    return offsets[:, None] + np.arange(count, dtype=np.int64)


def _item_size(bits: int, nbytes: int) -> int:
    """Largest power of two up to 8 that divides ``nbytes`` and all the addresses whose bits are or-ed in ``bits``."""
    for size in (8, 4, 2):
        if not (bits | nbytes) & (size - 1):
            return size
    return 1


_ITEM = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class _Buffer:
    """A range of addresses and its views by item size."""

    def __init__(self, base: int, size: int, data: Array | None = None, owner: Any = None):
        self.base, self.size, self.owner = base, size, owner
        if data is None:
            raw: Any = (ctypes.c_uint8 * size).from_address(base)
            data = np.frombuffer(raw, np.uint8)
        self.views = {n: data[: size // n * n].view(t) for n, t in _ITEM.items()}

    def gather(self, offsets: Array, nbytes: int, bits: int) -> Array:
        item = _item_size(bits | self.base, nbytes)
        if nbytes == item:
            return self.views[item][offsets // item].view(np.uint8).reshape(len(offsets), nbytes)
        index = _rows(self.views[item], offsets // item, nbytes // item)
        return self.views[item][index].view(np.uint8)

    def scatter(self, offsets: Array, data: Array, bits: int) -> None:
        nbytes = data.shape[1]
        item = _item_size(bits | self.base, nbytes)
        index = _rows(self.views[item], offsets // item, nbytes // item)
        self.views[item][index] = np.ascontiguousarray(data).view(_ITEM[item])


def address_range(value: Any) -> tuple[int, int]:
    """Lowest address and number of bytes of the memory that a numpy array or a CPU torch tensor spans."""
    if isinstance(value, np.ndarray):
        low = high = value.__array_interface__["data"][0]
        if value.size == 0:
            return low, 0
        for extent, stride in zip(value.shape, value.strides):
            low, high = low + min(0, (extent - 1) * stride), high + max(0, (extent - 1) * stride)
        return low, high - low + value.itemsize
    span = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride()))
    return int(value.data_ptr()), span * value.element_size() if value.numel() else 0


def process_ranges() -> list[tuple[int, int, Any]]:
    """The process's own readable and writable memory, as ranges for ``GlobalMemory``; neighbours are joined. Linux only.

    For callers that know addresses but not how far their arrays reach: an access outside is still an error, not a crash.
    """
    ranges: list[tuple[int, int, Any]] = []
    with open("/proc/self/maps") as f:
        for line in f:
            span, mode = line.split()[:2]
            if mode.startswith("rw"):
                low, high = (int(x, 16) for x in span.split("-"))
                if ranges and ranges[-1][0] + ranges[-1][1] == low:
                    ranges[-1] = (ranges[-1][0], high - ranges[-1][0], None)
                else:
                    ranges.append((low, high - low, None))
    return ranges


class GlobalMemory:
    """The buffers that were passed to the kernel. Every access must lie inside one of them."""

    def __init__(self) -> None:
        self._buffers: list[_Buffer] = []
        self._bases: list[int] = []
        self.low = self.high = 0  # lowest and highest address of the last access

    def set_ranges(self, ranges: list[tuple[int, int, Any]]) -> None:
        """Replace the known ranges of (address, bytes, owner); overlapping ones are joined."""
        joined: list[list[Any]] = []
        for base, size, owner in sorted((r for r in ranges if r[1]), key=lambda r: r[0]):
            if joined and base < joined[-1][0] + joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], base + size - joined[-1][0])
                joined[-1][2] = (joined[-1][2], owner)
            else:
                joined.append([base, size, owner])
        self._buffers = [_Buffer(base, size, owner=owner) for base, size, owner in joined]
        self._bases = [b.base for b in self._buffers]

    def _buffer_of(self, low: int) -> _Buffer | None:
        i = bisect.bisect_right(self._bases, low) - 1
        return self._buffers[i] if i >= 0 else None

    def _checked(self, addr: Array, nbytes: int, align: int, what: str) -> tuple[_Buffer | None, int]:
        """The one buffer that holds all accesses (None: several do) and the or of all addresses."""
        bits = int(np.bitwise_or.reduce(addr))
        if bits & (align - 1):
            bad = int(np.flatnonzero(addr & np.uint64(align - 1))[0])
            raise SimtError(f"misaligned global {what} of {nbytes} bytes: address {int(addr[bad]):#x} (active thread "
                            f"{bad}) is not a multiple of {align}")
        self.low, self.high = low, high = int(addr.min()), int(addr.max())
        buffer = self._buffer_of(low)
        if buffer is not None and high + nbytes <= buffer.base + buffer.size:
            return buffer, bits
        for thread, a in enumerate(addr.tolist()):
            buffer = self._buffer_of(a)
            if buffer is None or a + nbytes > buffer.base + buffer.size:
                near = ("no buffer lies below" if buffer is None else
                        f"the nearest buffer below has {buffer.size} bytes and this starts at byte {a - buffer.base}")
                raise SimtError(f"global {what} out of bounds: {nbytes} bytes at {a:#x} (active thread {thread}); {near}")
        return None, bits

    def load(self, addr: Array, nbytes: int, align: int = 1) -> Array:
        """``addr`` uint64[n] → uint8[n, nbytes]."""
        buffer, bits = self._checked(addr, nbytes, align, "load")
        if buffer is not None:
            return buffer.gather((addr - np.uint64(buffer.base)).astype(np.int64), nbytes, bits)
        out = np.empty((len(addr), nbytes), np.uint8)
        for rows, buf in self._by_buffer(addr):
            out[rows] = buf.gather((addr[rows] - np.uint64(buf.base)).astype(np.int64), nbytes, bits)
        return out

    def store(self, addr: Array, data: Array, align: int = 1, before: Callable[[], None] | None = None) -> None:
        """``addr`` uint64[n], ``data`` uint8[n, nbytes]; of two threads at one address the last wins. ``before`` is called when all is checked."""
        buffer, bits = self._checked(addr, data.shape[1], align, "store")
        if before is not None:
            before()
        if buffer is not None:
            buffer.scatter((addr - np.uint64(buffer.base)).astype(np.int64), data, bits)
            return
        for rows, buf in self._by_buffer(addr):
            buf.scatter((addr[rows] - np.uint64(buf.base)).astype(np.int64), data[rows], bits)

    def _by_buffer(self, addr: Array) -> list[tuple[Array, _Buffer]]:
        which = np.searchsorted(np.array(self._bases, np.uint64), addr, "right") - 1
        return [(np.flatnonzero(which == i), self._buffers[i]) for i in np.unique(which)]


class SharedMemory:
    """One block's shared memory, with a log of who touched each byte and an order of what happens before what (``order``).

    Fresh memory holds 0xff in every byte: a NaN in every float format, so that what reads it unwritten is seen. ``order`` may be that of
    a group of blocks; ``first`` is then the number there of the block's first warp.
    """

    def __init__(self, size: int, num_warps: int, check_races: bool, check_uninitialised: bool, order: Order | None = None, first: int = 0):
        self.size, self.check_races, self.check_uninitialised = size, check_races, check_uninitialised
        self.data = np.full(max(size + 7, 8) // 8 * 8, 0xFF, np.uint8)
        self._buffer = _Buffer(0, size, self.data)
        self._buffer.base = 0
        self._written = np.zeros(size, bool)
        self.order = Order(num_warps) if order is None else order
        self.warps = range(first, first + num_warps)
        self._own = slice(first, first + num_warps)
        self._log = AccessLog(size, self.order, self.warps)
        self._in_flight = np.zeros(size, np.int16)
        self._any_in_flight = 0
        self._opaque = np.zeros(size, bool)
        self._any_opaque = False

    def reset(self) -> None:
        """A new block begins; ``order`` is to be restarted too."""
        self.data.fill(0xFF)
        self._written.fill(False)
        self._in_flight.fill(0)
        self._any_in_flight = 0
        self._opaque.fill(False)
        self._any_opaque = False

    def barrier(self) -> None:
        """All threads have met: accesses before and after no longer race."""
        self.order.barrier(self.warps)

    def _checked(self, addr: Array, nbytes: int, align: int, what: str) -> tuple[Array, int]:
        offsets = addr.astype(np.int64)
        bits = int(np.bitwise_or.reduce(offsets))
        if bits & (align - 1):
            bad = int(np.flatnonzero(offsets & (align - 1))[0])
            raise SimtError(f"misaligned shared {what} of {nbytes} bytes: offset {offsets[bad]} (active thread {bad}) is not "
                            f"a multiple of {align}")
        if int(offsets.max()) + nbytes > self.size or int(offsets.min()) < 0:
            bad = int(np.flatnonzero((offsets + nbytes > self.size) | (offsets < 0))[0])
            raise SimtError(f"shared {what} out of bounds: {nbytes} bytes at offset {offsets[bad]} of {self.size} (active "
                            f"thread {bad})")
        return offsets, bits

    def _race(self, what: str, index: Array, conflict: Array, who: str | Array, others: Array, earlier: str) -> SimtError:
        """``who``: the access's author, or the warp of each row; ``others``: who made the earlier access, as the log names them."""
        row, col = np.argwhere(conflict)[0]
        other, warps, name = int(others[row, col]), self.order.warps, self.order.name
        by = who if isinstance(who, str) else name(int(who[row]))
        known = "an asynchronous copy" if other == AccessLog.EVENT else name(other) if other < warps else \
            f"an asynchronous operation of {name(other % warps)}, which may still run,"
        whose = f" of the group's block {self.warps.start // len(self.warps)}" if len(self.warps) < warps else ""
        return SimtError(f"shared-memory race: {what} of byte {int(index[row, col])}{whose} by {by} after a {earlier} by {known} with no barrier in between")

    def load(self, addr: Array, nbytes: int, warps: Array, align: int = 1) -> Array:
        """``addr`` [n] (bytes from the start), ``warps`` int16[n] → uint8[n, nbytes]."""
        offsets, bits = self._checked(addr, nbytes, align, "load")
        if self.check_races or self.check_uninitialised or self._any_in_flight:
            index = _rows(self.data, offsets, nbytes)
            self._check_in_flight(index, "load")
            self._check_written(index, "load")
            if self.check_races:
                self._require_seen(index, self.order.view(warps, self._own), "read", warps)
                self._log.log_read(index, warps)
        return self._buffer.gather(offsets, nbytes, bits)

    def _check_written(self, index: Array, what: str) -> None:
        if self.check_uninitialised and not self._written[index].all():
            bad = index[~self._written[index]]
            raise SimtError(f"shared {what} of byte {int(bad[0])}, which nothing has written")

    def _require_seen(self, index: Array, view: View, what: str, who: str | Array, where: Array | bool = True, reads: bool = False) -> None:
        """The bytes' last writes (with ``reads`` the reads too) happen before an access by those who know ``view``."""
        if reads:
            reader = self._log.unseen_reads(index, view)
            conflict = (reader != -1) & where
            if conflict.any():
                raise self._race(what, index, conflict, who, reader, "read")
        conflict = self._log.unseen_writes(index, view) & where
        if conflict.any():
            raise self._race(what, index, conflict, who, self._log.writer[index], "write")

    def _check_in_flight(self, index: Array, what: str) -> None:
        if self._any_in_flight and self._in_flight[index].any():
            byte = int(index[self._in_flight[index] > 0][0])
            raise SimtError(f"shared {what} of byte {byte}, which an asynchronous copy in flight writes: a wait is missing")
        if self._any_opaque and self._opaque[index].any():
            raise SimtError(f"shared {what} of byte {int(index[self._opaque[index]][0])}, which is part of a barrier object")

    def store(self, addr: Array, data: Array, warps: Array, align: int = 1) -> None:
        """``data`` uint8[n, nbytes]."""
        offsets, bits = self._checked(addr, data.shape[1], align, "store")
        index = _rows(self.data, offsets, data.shape[1])
        self._check_in_flight(index, "store")
        if self.check_races:
            # Replicated layouts write the same value from several warps; that is no race.
            self._require_seen(index, self.order.view(warps, self._own), "write", warps, self.data[index] != data, reads=True)
            self._log.log_write(index, warps)
        self._buffer.scatter(offsets, data, bits)
        if self.check_races and not np.array_equal(self.data[index], data):
            clash = self.data[index] != data
            order = self._log.writer[index]
            if ((order != warps[:, None]) & clash).any():
                raise self._race("write", index, clash, warps, order, "different write")
        self._written[index] = True

    # -- asynchronous copies: begun by async_begin, visible after async_finish
    def async_begin(self, addr: Array, data: Array, warps: Array, align: int = 1) -> tuple[Array, Array, Array]:
        """Claim the bytes; what comes back is handed to ``async_finish``."""
        offsets, _ = self._checked(addr, data.shape[1], align, "asynchronous copy")
        index = _rows(self.data, offsets, data.shape[1])
        self._check_in_flight(index, "asynchronous copy")
        if self.check_races:
            self._require_seen(index, self.order.view(warps, self._own), "asynchronous copy", warps, reads=True)
        self._in_flight[index] = 1
        self._any_in_flight += 1
        return index, data, warps

    def async_finish(self, record: tuple[Array, Array, Array]) -> None:
        """The copy has landed, and its thread knows; other warps need a barrier."""
        index, data, warps = record
        self._in_flight[index] = 0
        self._any_in_flight -= 1
        self.data[index] = data
        self._written[index] = True
        if self.check_races:
            self._log.log_write(index, warps)

    # -- accesses by units of their own, for a target's semantics. index: int[b] of distinct bytes; warps: those that ask for it
    def unit_read(self, index: Array, warps: list[int], stream: int, what: str) -> int:
        """A stream will read these bytes; returns the request's time. The warps' knowledge must cover the last writes, and a
        proxy fence must follow those of warps."""
        index = self._unit_index(index, what)
        self._check_written(index, what)
        time = self.order.stream_begin(stream)
        if self.check_races:
            view = self.order.joint_view(warps, self._own)
            who = f"an asynchronous operation of {self.order.name(warps[0])}"
            self._require_seen(index, view, what, who)
            unfenced = self._log.unfenced_writes(index, view)
            if unfenced.any():
                byte = int(index[unfenced][0])
                raise SimtError(f"{what} of shared byte {byte}, which {self.order.name(int(self._log.writer[byte]))} wrote with no proxy fence in between")
            self._log.log_stream_read(index, stream, time)
        return time

    def unit_write(self, index: Array, data: Array, warps: list[int], what: str) -> int:
        """An asynchronous write of ``data`` uint8[b], done at once; returns its event, which readers must have learnt of. ``warps`` may be
        those of another block of the group."""
        index = self._unit_index(index, what)
        event = self.order.event()
        if self.check_races:
            who = f"an asynchronous copy of {self.order.name(warps[0])}"
            self._require_seen(index, self.order.joint_view(warps, self._own), "write", who, reads=True)
            self._log.log_event(index, event)
        self.data[index[0]] = data
        self._written[index] = True
        return event

    def _unit_index(self, index: Array, what: str) -> Array:
        if len(index) and (int(index.max()) >= self.size or int(index.min()) < 0):
            raise SimtError(f"{what} out of bounds: bytes {int(index.min())} to {int(index.max())} of {self.size} in shared memory")
        index = index[None]
        self._check_in_flight(index, what)
        return index

    def object_access(self, offset: int, size: int, warps: list[int], what: str, ends: bool, known: bool = False) -> None:
        """These warps use a device's object in these bytes, or with ``ends`` begin or end its life. ``known``: they know of its making."""
        if not self.check_races:
            return
        index = np.tile(np.arange(offset, offset + size), (len(warps), 1))
        who = np.array(warps, np.int16)
        if not known:
            self._require_seen(index, self.order.view(who, self._own), what, who, reads=ends)
        if ends:
            self._log.log_write(index, who)
        else:
            self._log.log_read(index, who)

    def set_opaque(self, offset: int, size: int, opaque: bool) -> None:
        """Bytes that hold an object of the device (a barrier), which loads and stores must not touch."""
        if offset < 0 or offset + size > self.size:
            raise SimtError(f"an object of {size} bytes at offset {offset} of {self.size} bytes of shared memory")
        self._opaque[offset:offset + size] = opaque
        self._any_opaque = bool(self._opaque.any())
