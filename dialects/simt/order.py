"""What happens before what in a block, or a group of blocks that run together: vector clocks of its warps, of in-order asynchronous readers, and single asynchronous writes.

A warp's clock advances when it releases (a barrier, an arrival, a fence), so an access is known to another warp once that warp has
acquired a later release. A *stream* is a device unit that reads shared memory later than the warp that asks for it, one request after
another; an *event* is one asynchronous write, whose end is learnt on its own. See Lamport's and Mattern's papers for vector clocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any

STREAMS = 2  # a warp


@dataclass(frozen=True)
class Clock:
    """What is known at a release: the latest access of each warp and stream, each warp's latest proxy fence, the events that ended, and ``more``."""

    vc: Array
    fenced: Array
    events: int
    more: Array | None = None

    def join(self, other: Clock | None) -> Clock:
        if other is None:
            return self
        return Clock(np.maximum(self.vc, other.vc), np.maximum(self.fenced, other.fenced), self.events | other.events, _most(self.more, other.more))


def _most(a: Array | None, b: Array | None) -> Array | None:
    """The greater of each; what the shorter one lacks is 0."""
    if a is None or b is None:
        return b if a is None else a
    if len(a) < len(b):
        a, b = b, a
    out = a.copy()
    np.maximum(out[:len(b)], b, out=out[:len(b)])
    return out


@dataclass(frozen=True)
class View:
    """What the authors of n accesses know: rows of clocks, and for each (bool[n], events) the events that those rows know."""

    vc: Array
    fenced: Array
    events: list[tuple[Array, int]]
    oldest: int  # no row knows less of any warp of the block whose memory is accessed


class Order:
    """``vc[w]`` and ``fenced[w]``: what warp w knows; ``events[w]``: the events that it knows ended, one bit each.

    ``warps`` are those of all blocks of the group, ``per_block`` (all, where it is not given) of each one's: warps are numbered block
    after block. ``more[w]`` (None: nothing) are times that warp w knows of others than these, which pass from warp to warp like the rest.
    """

    def __init__(self, warps: int, per_block: int = 0):
        self.warps, self.per_block = warps, per_block or warps
        self.vc = np.zeros((warps, (1 + STREAMS) * warps), np.int64)
        self.fenced = np.zeros((warps, warps), np.int64)
        self.events = [0] * warps
        self.event_count = self.event_base = 0  # events below the base are known to all
        self._own = np.arange(warps)
        self.vc[self._own, self._own] = 1
        self._stream_clock = np.zeros((1 + STREAMS) * warps, np.int64)
        self.more: Array | None = None
        self.changes = 0  # how often some warp's own clock went on

    def restart(self) -> None:
        """A new block: what earlier blocks did is over."""
        self.vc[:] = np.maximum(self.vc.max(axis=0), self._stream_clock)
        self.fenced[:] = self.vc[0, :self.warps]
        self.vc[self._own, self._own] += 1
        self.event_base, self.events = self.event_count, [0] * self.warps
        self.more = None
        self.changes += 1

    def know_more(self, count: int) -> None:
        """Make ``more`` at least this long."""
        had = 0 if self.more is None else self.more.shape[1]
        if had < count:
            longer = np.zeros((self.warps, count), np.int64)
            if self.more is not None:
                longer[:, :had] = self.more
            self.more = longer

    def name(self, warp: int) -> str:
        if self.per_block == self.warps:
            return f"warp {warp}"
        return f"warp {warp % self.per_block} of the group's block {warp // self.per_block}"

    # -- synchronisation
    def release(self, warps: Sequence[int]) -> Clock:
        """What these warps know together; their later accesses are not part of it."""
        rows = list(warps)
        clock = self._joined(rows, np.maximum.reduce)
        self.vc[rows, rows] += 1
        self.changes += 1
        return clock

    def _joined(self, rows: list[int], how: Any) -> Clock:
        events = 0
        for w in rows:
            events |= self.events[w]
        return Clock(how(self.vc[rows]), how(self.fenced[rows]), events, None if self.more is None else how(self.more[rows]))

    def acquire(self, warps: Sequence[int], clock: Clock) -> None:
        rows = list(warps)
        self.vc[rows] = np.maximum(self.vc[rows], clock.vc)
        self.fenced[rows] = np.maximum(self.fenced[rows], clock.fenced)
        for w in rows:
            self.events[w] |= clock.events
        if clock.more is not None:
            count = len(clock.more)
            self.know_more(count)
            self.more[rows, :count] = np.maximum(self.more[rows, :count], clock.more)  # type: ignore[index]

    def barrier(self, warps: Sequence[int] | None = None) -> None:
        rows = range(self.warps) if warps is None else warps
        self.acquire(rows, self.release(rows))

    def fence(self, warps: Sequence[int]) -> None:
        """These warps' writes so far are seen by the units that read shared memory on their own."""
        rows = list(warps)
        self.fenced[rows, rows] = self.vc[rows, rows]
        self.vc[rows, rows] += 1
        self.changes += 1

    # -- asynchronous units
    def stream(self, kind: int, index: int) -> int:
        """The number of the stream of ``kind`` (0 or 1) that belongs to warp ``index``."""
        return (1 + kind) * self.warps + index

    def stream_begin(self, stream: int) -> int:
        """A new request; returns its time."""
        self._stream_clock[stream] += 1
        return int(self._stream_clock[stream])

    def stream_done(self, warps: Sequence[int], stream: int, time: int) -> None:
        """These warps know that the stream's requests up to ``time`` are over."""
        rows = list(warps)
        self.vc[rows, stream] = np.maximum(self.vc[rows, stream], time)

    def event(self) -> int:
        self.event_count += 1
        return self.event_count - 1

    def nothing(self) -> Clock:
        return Clock(np.zeros_like(self.vc[0]), np.zeros_like(self.fenced[0]), 0)

    def event_clock(self, event: int, issued: Clock) -> Clock:
        """What is known when an event, begun by one who knew ``issued``, has ended."""
        return Clock(issued.vc, issued.fenced, issued.events | 1 << (event - self.event_base), issued.more)

    def knows_event(self, known: int, event: int) -> bool:
        return event < self.event_base or bool(known >> (event - self.event_base) & 1)

    def unknown_events(self) -> int:
        """How many events since ``restart`` no warp has learnt of."""
        known = 0
        for events in self.events:
            known |= events
        return self.event_count - self.event_base - known.bit_count()

    # -- views. own: the warps of the block whose memory is accessed
    def view(self, warps: Array, own: slice = slice(None)) -> View:
        """One row an access, made by the warp given."""
        distinct = np.flatnonzero(np.bincount(warps, minlength=self.warps))
        return View(self.vc[warps], self.fenced[warps], [(warps == w, self.events[w]) for w in distinct.tolist()],
                    int(self.vc[distinct, :self.warps][:, own].min()))

    def joint_view(self, warps: Sequence[int], own: slice = slice(None)) -> View:
        """One access that several warps make together: what all of them know."""
        rows = list(warps)
        events = -1
        for w in rows:
            events &= self.events[w]
        vc = self.vc[rows].min(axis=0)[None]
        return View(vc, self.fenced[rows].min(axis=0)[None], [(np.ones(1, bool), events)], int(vc[:, :self.warps][:, own].min()))


class AccessLog:
    """The last writer of each byte of a block's memory, and when each warp and stream last read it. ``own``: the block's warps, which alone
    access it; other blocks' do so by events."""

    EVENT = 32767

    def __init__(self, size: int, order: Order, own: range | None = None):
        self.order, self.own = order, range(order.warps) if own is None else own
        self.writer = np.full(size, -1, np.int16)
        self.write_time = np.zeros(size, np.int32)  # or the event's number
        self._reads = np.zeros((order.warps, size), np.int32)
        self._streams: dict[int, Array] = {}
        self._size = size
        self._last_read, self._events = 0, False

    def log_read(self, index: Array, warps: Array) -> None:
        times = self.order.vc[warps, warps]
        self._reads[warps[:, None], index] = times[:, None]
        self._last_read = max(self._last_read, int(times.max()))

    def log_stream_read(self, index: Array, stream: int, time: int) -> None:
        if stream not in self._streams:
            self._streams[stream] = np.zeros(self._size, np.int32)
        self._streams[stream][index] = time

    def log_write(self, index: Array, warps: Array) -> None:
        self.writer[index] = warps[:, None]
        self.write_time[index] = self.order.vc[warps, warps][:, None]

    def log_event(self, index: Array, event: int) -> None:
        self._events = True
        self.writer[index] = self.EVENT
        self.write_time[index] = event

    def unseen_writes(self, index: Array, view: View) -> Array:
        """bool[n, b]: the byte's last write does not happen before this access."""
        time = self.write_time[index]
        if not self._events and time.max(initial=0) <= view.oldest:
            return np.zeros(index.shape, bool)
        writer = self.writer[index]
        is_event = writer == self.EVENT
        warp = np.where(is_event, -1, writer)
        unseen = (np.take_along_axis(view.vc, np.maximum(warp, 0).astype(np.int64), 1) < time) & (warp >= 0)
        if is_event.any():
            for event in np.unique(time[is_event]).tolist():
                for rows, known in view.events:
                    if not self.order.knows_event(known, event):
                        unseen |= is_event & (time == event) & rows[:, None]
        return unseen

    def unfenced_writes(self, index: Array, view: View) -> Array:
        """bool[n, b]: a warp wrote the byte last, and no fence of that warp between is known."""
        writer = self.writer[index]
        by_warp = (writer >= 0) & (writer != self.EVENT)
        column = np.where(by_warp, writer, 0).astype(np.int64)
        return by_warp & (np.take_along_axis(view.fenced, column, 1) < self.write_time[index])

    def unseen_reads(self, index: Array, view: View) -> Array:
        """int16[n, b]: a warp or stream that has read the byte and whose read does not happen before this access; -1: none."""
        out = np.full(index.shape, -1, np.int16)
        for warp in self.own if self._last_read > view.oldest else ():
            out[self._reads[warp][index] > view.vc[:, warp][:, None]] = warp
        for stream, times in self._streams.items():
            out[times[index] > view.vc[:, stream][:, None]] = stream
        return out
