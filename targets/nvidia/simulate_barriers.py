"""Meaning of the PTX that orders threads and asynchronous work: mbarriers, named and cluster barriers, fences, elections (PTX ISA manual,
"Parallel Synchronization and Communication Instructions"). Written apart from the lowering; ``simulate`` puts it into inline assembly.

A cluster is a group of blocks that run together. A shared::cluster address is the offset, and above ``RANK`` the block's rank plus 1; an
address without a rank is the own block's.

A handler in ``WAITING`` returns the threads that go on; the others are asked again later (``dialects/simt/executor``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.dialects.simt import SimtError
from tilewright.dialects.simt.memory import SHARED_WINDOW
from tilewright.dialects.simt.order import Clock
from tilewright.targets.nvidia.simulate_instructions import Handler, as_bits

Array = Any
_TX_LIMIT = 1 << 20
RANK = 24  # shared memory has fewer bytes than 1 << RANK


def active(state: Any, mask: Any) -> Array:
    """The threads that execute an instruction with guard ``mask``."""
    return state.machine.mask if mask is None else state.machine.mask & mask


def shared_offset(address: int) -> int:
    """Byte of shared memory of a shared or generic address."""
    return address & (SHARED_WINDOW - 1)


def block_of(m: Any, address: int, parts: Sequence[str]) -> tuple[Any, int]:
    """(machine, byte of its shared memory) of an address in an instruction of those parts."""
    offset = shared_offset(address)
    rank = (offset >> RANK) - 1
    if rank < 0:
        return m, offset
    if "shared::cluster" not in parts:
        raise SimtError(f"{'.'.join(parts)} of an address in shared memory of block {rank} of the cluster: only shared::cluster reaches it")
    if rank >= len(m.group.machines):
        raise SimtError(f"{'.'.join(parts)} of an address in block {rank} of a cluster of {len(m.group.machines)}")
    return m.group.machines[rank], offset & ((1 << RANK) - 1)


def mapa(parts: list[str]) -> Handler:
    """mapa.shared::cluster.u32 d, a, b: the address of the same place in block b of the cluster (9.7.9.23)."""
    if parts[1:] != ["shared::cluster", "u32"]:
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")

    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        address, rank = as_bits(state.read(operands[1]), 4), as_bits(state.read(operands[2]), 4)
        here = active(state, mask)
        if (rank[here] >= len(m.group.machines)).any():
            raise SimtError(f"mapa of block {int(rank[here].max())} of a cluster of {len(m.group.machines)}")
        if (address[here] >> RANK).any():
            raise SimtError("mapa of an address that is another block's already")
        state.write(operands[0], address | (rank + np.uint32(1)) << np.uint32(RANK), mask)

    return run


def warp_of(m: Any, thread: int) -> int:
    return int(m.first_warp) + thread // 32


class MBarrier:
    """An mbarrier object: arrivals that the phase still needs, bytes that it still expects, and its number.

    ``done`` is what those who arrived in completed phases knew, ``open`` that of the current one. ``made`` is the event of its making,
    which the cluster's other blocks must have learnt of.
    """

    def __init__(self, offset: int, count: int, made: int):
        self.offset, self.count, self.pending, self.bytes, self.phase = offset, count, count, 0, 0
        self.made = made
        self.done: Clock | None = None
        self.open: Clock | None = None

    def __str__(self) -> str:
        return f"the mbarrier at byte {self.offset}"

    def expect(self, size: int) -> None:
        self.bytes += size
        if abs(self.bytes) >= _TX_LIMIT:
            raise SimtError(f"{self} expects {self.bytes} bytes; the limit is {_TX_LIMIT - 1}")

    def arrive(self, count: int, clock: Clock | None) -> None:
        if count > self.pending:
            raise SimtError(f"{self}: {count} arrivals where its phase {self.phase} has {self.pending} of {self.count} left")
        self.pending -= count
        self._join(clock)

    def complete(self, size: int, clock: Clock) -> None:
        """``size`` bytes of an asynchronous copy have arrived."""
        self.expect(-size)
        self._join(clock)

    def _join(self, clock: Clock | None) -> None:
        if clock is not None:
            self.open = clock.join(self.open)
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.count
            self.done = self.open.join(self.done) if self.open is not None else self.done
            self.open = None


class MBarriers:
    """The mbarriers of a block by offset. ``fresh``: the events of those that a thread has made since its last fence."""

    def __init__(self, machine: Any):
        self.machine = machine
        self.live: dict[int, MBarrier] = {}
        self.fresh: dict[int, list[int]] = {}

    @staticmethod
    def of(machine: Any) -> MBarriers:
        return machine.state.setdefault("mbarriers", MBarriers(machine))  # type: ignore[no-any-return]

    def at(self, address: int, warps: list[int], what: str, ends: bool = False) -> MBarrier:
        offset = shared_offset(address)
        barrier = self.live.get(offset)
        if barrier is None:
            raise SimtError(f"{what} of shared byte {offset}, where no mbarrier is initialised")
        order = self.machine.shared.order
        known = not ends and all(order.knows_event(order.events[w], barrier.made) for w in warps)
        self.machine.shared.object_access(offset, 8, warps, what, ends, known)
        return barrier

    @staticmethod
    def reached(m: Any, thread: int, address: int, parts: Sequence[str], what: str) -> tuple[Any, MBarrier]:
        """(machine, mbarrier) that a thread of ``m`` names, maybe in another block: that one must be known to have made it, and live."""
        home, offset = block_of(m, address, parts)
        warp = warp_of(m, thread)
        if home is m:
            return m, MBarriers.of(m).at(offset, [warp], what)
        Cluster.of(m).touch(m, thread, home, what)
        barrier = MBarriers.of(home).live.get(offset)
        order = m.shared.order
        if barrier is None or not order.knows_event(order.events[warp], barrier.made):
            raise SimtError(f"{what} of shared byte {offset} of the cluster's block {home.rank}, where {order.name(warp)} knows of no mbarrier: "
                            "a cluster barrier after its making (and its fence) is missing")
        return home, barrier

    def init(self, address: int, count: int, thread: int) -> None:
        offset, warp = shared_offset(address), warp_of(self.machine, thread)
        if offset % 8:
            raise SimtError(f"mbarrier.init of shared byte {offset}: not a multiple of 8")
        if not 1 <= count < _TX_LIMIT:
            raise SimtError(f"mbarrier.init: the count is 1 to {_TX_LIMIT - 1}, found {count}")
        if offset in self.live:
            raise SimtError(f"mbarrier.init of shared byte {offset}, which holds one already: mbarrier.inval is missing")
        self.machine.shared.object_access(offset, 8, [warp], "mbarrier.init", True)
        self.machine.shared.set_opaque(offset, 8, True)
        order = self.machine.shared.order
        made = order.event()
        order.acquire([warp], order.event_clock(made, order.nothing()))
        self.fresh.setdefault(thread, []).append(made)
        self.live[offset] = MBarrier(offset, count, made)

    def inval(self, address: int, warp: int) -> None:
        barrier = self.at(address, [warp], "mbarrier.inval", True)
        self.machine.shared.set_opaque(barrier.offset, 8, False)
        del self.live[barrier.offset]

    def finish(self, machine: Any) -> None:
        for barrier in self.live.values():
            if barrier.bytes:
                raise SimtError(f"the kernel ends while {barrier}{of_block(machine)} expects {barrier.bytes} more bytes of bulk copies")
        if machine.shared.order.unknown_events():
            raise SimtError("the kernel ends while a bulk copy may still write shared memory: nobody has waited for it")


# ------------------------------------------------------------------------------- mbarrier instructions, 9.7.13.15
def _threads(state: Any, mask: Any) -> list[int]:
    return np.flatnonzero(active(state, mask)).tolist()


def mbarrier(parts: list[str]) -> Handler:
    """mbarrier.init, inval, arrive, arrive.expect_tx, expect_tx, test_wait.parity (one look)."""
    kind = parts[1]
    if "shared::cluster" in parts and kind == "init":
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")

    def init(state: Any, operands: Any, mask: Any) -> None:
        address, count = state.address(operands[0]), as_bits(state.read(operands[1]), 4)
        for t in _threads(state, mask):
            MBarriers.of(state.machine).init(int(address[t]), int(count[t]), t)

    def inval(state: Any, operands: Any, mask: Any) -> None:
        address = state.address(operands[0])
        for t in _threads(state, mask):
            MBarriers.of(state.machine).inval(int(address[t]), warp_of(state.machine, t))

    def arrive(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        where = next(o for o in operands if o.kind == "addr")
        if operands[0] is not where and operands[0].kind != "sink":
            raise SimtError("the state that mbarrier.arrive returns is not simulated; give _ for it")
        amount = operands[-1] if operands[-1] is not where else None
        address = state.address(where)
        values = as_bits(state.read(amount), 4) if amount is not None else np.ones(m.num_threads, np.uint32)
        threads = _threads(state, mask)
        order = m.shared.order
        reached = [MBarriers.reached(m, t, int(address[t]), parts, "mbarrier.arrive") for t in threads]
        clocks = {} if "relaxed" in parts else {w: order.release([w]) for w in m.active_warps(active(state, mask))}
        for t, (home, barrier) in zip(threads, reached):
            clock = clocks.get(warp_of(m, t))
            if home is not m:
                m.group.count("remote arrivals")
            if "expect_tx" in parts:
                barrier.expect(int(values[t]))
                barrier.arrive(1, clock)
            else:
                barrier.arrive(int(values[t]), clock)

    def expect(state: Any, operands: Any, mask: Any) -> None:
        address, size = state.address(operands[0]), as_bits(state.read(operands[1]), 4)
        for t in _threads(state, mask):
            MBarriers.reached(state.machine, t, int(address[t]), parts, "mbarrier.expect_tx")[1].expect(int(size[t]))

    def test(state: Any, operands: Any, mask: Any) -> None:
        state.write(operands[0], look(state, operands, mask, "relaxed" not in parts)[0], mask)

    handlers = {"init": init, "inval": inval, "arrive": arrive, "expect_tx": expect}
    if kind == "test_wait" and "parity" in parts:
        return test
    if kind not in handlers or "noComplete" in parts or parts[-1] != "b64":
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")
    return handlers[kind]


def look(state: Any, operands: Any, mask: Any, acquire: bool) -> tuple[Array, str]:
    """(bool[threads], the reason): the phase whose parity is given is complete. Phase n has parity n % 2; a barrier in phase n has
    completed phase n - 1 (for n = 0 too, as the manual defines it)."""
    m = state.machine
    address, parity = state.address(operands[1]), as_bits(state.read(operands[2]), 4)
    asking = active(state, mask)
    done = np.zeros(m.num_threads, bool)
    reason = ""
    places, groups = np.unique(np.where(asking, address, np.uint64(0xFFFFFFFFFFFFFFFF)), return_inverse=True)
    for i, place in enumerate(places.tolist()):
        threads = (groups == i) & asking
        if not threads.any():
            continue
        barrier = MBarriers.of(m).at(place, m.active_warps(threads), "a wait")
        if (parity[threads] > 1).any():
            raise SimtError(f"the parity of a wait for {barrier} is 0 or 1, found {int(parity[threads].max())}")
        passed = threads & (parity != barrier.phase % 2)
        done |= passed
        if passed.any() and acquire and barrier.done is not None:
            m.shared.order.acquire(m.active_warps(passed), barrier.done)
        if not passed.any():
            reason = (f"{barrier}, parity {barrier.phase % 2}: phase {barrier.phase} has {barrier.count - barrier.pending} of "
                      f"{barrier.count} arrivals and expects {barrier.bytes} more bytes")
    return done, reason


# ---------------------------------------------------------------------------- barriers, 9.7.13.1 and 9.7.13.4; they wait
Waiter = Callable[[Any, Any, Any], Array]


def try_wait(parts: list[str]) -> Waiter:
    """mbarrier.try_wait.parity in a loop that ends when it holds."""
    if parts[1] not in ("try_wait", "test_wait") or "parity" not in parts:
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")

    def run(state: Any, operands: Any, mask: Any) -> Array:
        done, state.machine.waits_for = look(state, operands, mask, "relaxed" not in parts)
        return done

    return run


def _at_barriers(state: Any, operands: Any, mask: Any, meet: Callable[[int, int], Array]) -> Array:
    """``meet(number, threads)`` with those threads active that name this barrier; all that go on. Warps may name different ones."""
    m = state.machine
    here = active(state, mask)
    values = [np.broadcast_to(state.read(o), here.shape).astype(np.int64) for o in operands]
    if len(values) == 1:
        values.append(np.full(m.num_threads, m.num_threads))
    pairs = np.stack(values, axis=1)
    saved, going_on = (m.mask, m.full), np.zeros_like(here)
    for number, threads in np.unique(pairs[here], axis=0).tolist():
        if not 0 <= number < 16:
            raise SimtError(f"barrier {number}: a block has barriers 0 to 15")
        m.mask = here & (pairs == (number, threads)).all(axis=1)
        m.full = bool(m.mask.all())
        try:
            m.require_full_warps(f"barrier {number}")
            going_on |= meet(number, threads)
        finally:
            m.mask, m.full = saved
    return going_on


def bar_sync(parts: list[str]) -> Waiter:
    """bar.sync a{, b} and barrier{.cta}.sync{.aligned} a{, b}."""
    def run(state: Any, operands: Any, mask: Any) -> Array:
        m = state.machine
        if mask is not None and not mask[m.mask].all():
            raise SimtError(f"{'.'.join(parts)} of part of the threads that reach it is not simulated")

        def meet(number: int, threads: int) -> Array:
            return m.block_barrier() if number == 0 and threads == m.num_threads else m.named_barrier(number, threads)

        return _at_barriers(state, operands, mask, meet)

    return run


def bar(parts: list[str]) -> Handler:
    """bar.arrive a, b; bar.warp.sync."""
    if "warp" in parts:
        return lambda state, operands, mask: state.machine.require_full_warps("a warp barrier")
    if parts[0] == "barrier" and "cluster" in parts and "arrive" in parts:
        return cluster_arrive(parts)
    if "arrive" not in parts:
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")

    def run(state: Any, operands: Any, mask: Any) -> None:
        if mask is not None and not mask[state.machine.mask].all():
            raise SimtError(f"{'.'.join(parts)} of part of the threads that reach it is not simulated")
        _at_barriers(state, operands, mask, lambda number, threads: state.machine.named_barrier(number, threads, stay=False))

    return run


def of_block(m: Any) -> str:
    """Which block of a cluster."""
    return f" of the cluster's block {m.rank}" if len(m.group.machines) > 1 else ""


class Cluster:
    """What the blocks of a cluster have in common: barrier.cluster, and what is to happen while a block lives.

    ``arrivals``, ``waits``: how often each thread of the cluster arrived at the barrier and passed its wait. ``clocks``: what those knew
    who arrived the n-th time; ``fenced``: a thread's mbarriers that a fence has made known to its cluster, as event bits. ``touched``:
    (block, warp that accessed it from outside, that thread's arrivals before) → the latest time of the warp.
    """

    def __init__(self, group: Any):
        threads = sum(m.num_threads for m in group.machines)
        self.arrivals, self.waits = np.zeros(threads, np.int64), np.zeros(threads, np.int64)
        self.clocks: dict[int, Clock] = {}
        self.fenced: dict[int, int] = {}
        self.touched: dict[tuple[int, int, int], int] = {}

    @staticmethod
    def of(m: Any) -> Cluster:
        found = m.group.state.get("cluster")
        if found is None:
            found = m.group.state["cluster"] = Cluster(m.group)
        return found  # type: ignore[no-any-return]

    @staticmethod
    def rows(m: Any) -> slice:
        return slice(m.rank * m.num_threads, (m.rank + 1) * m.num_threads)

    def touch(self, m: Any, thread: int, home: Any, what: str) -> None:
        """A thread of ``m`` accesses shared memory of the block ``home``."""
        if home.exited.all():
            raise SimtError(f"{what} in shared memory of the cluster's block {home.rank}, which has ended")
        warp = warp_of(m, thread)
        self.touched[home.rank, warp, int(self.arrivals[m.rank * m.num_threads + thread])] = int(m.shared.order.vc[warp, warp])

    def finish(self, group: Any) -> None:
        """Whoever waits for an arrival that never comes is a deadlock; but a block must not end before others have had access to it: some
        thread of it knows of their accesses, or has waited at a cluster barrier at which they arrived afterwards."""
        order = group.order
        for (rank, warp, before), time in self.touched.items():
            home = group.machines[rank]
            if self.waits[self.rows(home)].max() <= before and order.vc[home.shared.warps, warp].max() < time:
                raise SimtError(f"block {rank} of the cluster [program {home.program_ids}] may have ended before {order.name(warp)} accessed its "
                                "shared memory: a cluster barrier before its end is missing")


def cluster_arrive(parts: list[str]) -> Handler:
    """barrier.cluster.arrive{.release|.relaxed}{.aligned}: threads arrive, with .aligned whole warps."""
    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        here = active(state, mask)
        if "aligned" in parts:
            m.require_full_warps("barrier.cluster.arrive.aligned")
        cluster = Cluster.of(m)
        arrivals, waits = cluster.arrivals[cluster.rows(m)], cluster.waits[cluster.rows(m)]  # views
        if (waits[here] < arrivals[here]).any():
            raise SimtError("barrier.cluster.arrive of a thread that has not waited since it arrived before")
        arrivals[here] += 1
        order = m.shared.order
        if "relaxed" in parts:  # nothing is promised but what a fence made known
            for t in [t for t in cluster.fenced if t // m.num_threads == m.rank and here[t % m.num_threads]]:
                nothing = order.nothing()
                number = int(cluster.arrivals[t])
                cluster.clocks[number] = Clock(nothing.vc, nothing.fenced, cluster.fenced.pop(t)).join(cluster.clocks.get(number))
            return
        for number in np.unique(arrivals[here]).tolist():
            warps = m.active_warps(here & (arrivals == number))
            cluster.clocks[number] = order.release(warps).join(cluster.clocks.get(number))

    return run


def cluster_wait(parts: list[str]) -> Waiter:
    def run(state: Any, operands: Any, mask: Any) -> Array:
        m = state.machine
        if "aligned" in parts:
            m.require_full_warps("barrier.cluster.wait.aligned")
        cluster, here = Cluster.of(m), active(state, mask)
        arrivals, waits = cluster.arrivals[cluster.rows(m)], cluster.waits[cluster.rows(m)]
        if (waits[here] >= arrivals[here]).any():
            raise SimtError("barrier.cluster.wait with no arrival before it")
        rest = ~m.group.exited()  # who has ended is not waited for
        least = int(cluster.arrivals[rest].min())
        passed = here & (arrivals <= least)
        waits[passed] = arrivals[passed]
        for number in np.unique(arrivals[passed]).tolist():
            if number in cluster.clocks:
                m.shared.order.acquire(m.active_warps(passed & (arrivals == number)), cluster.clocks[number])
        there = rest & (cluster.arrivals > least)
        m.waits_for = f"barrier.cluster, at which {int(there.sum())} of {int(rest.sum())} threads are"
        return passed  # type: ignore[no-any-return]

    return run


def waiter(parts: list[str]) -> Waiter | None:
    """The handler of an instruction at which threads may stay, else None."""
    if parts[0] == "mbarrier" and parts[1] == "try_wait":
        return try_wait(parts)
    if parts[0] == "barrier" and "cluster" in parts:
        return cluster_wait(parts) if "wait" in parts else None
    if parts[0] in ("bar", "barrier") and "sync" in parts and "warp" not in parts:
        return bar_sync(parts)
    return None


# ----------------------------------------------------------------------------------- fences, elections, registers
def fence(parts: list[str]) -> Handler:
    """fence.proxy.async: the executing threads' writes so far are seen by the async proxy. Counted where the whole warp executes it,
    since one lane's fence does not cover the others' writes. fence.mbarrier_init: the executing threads' mbarriers are known to who waits
    at a cluster barrier at which they arrive afterwards. Other fences of proxies order what runs in order here anyway; of others, those of a scope beyond
    the block make atomics around them order global memory."""
    if "mbarrier_init" in parts:
        return _fence_init
    if "proxy" not in parts:
        return _fence_memory if {"gpu", "sys", "cluster"} & set(parts) else lambda state, operands, mask: None
    if "async" not in parts:
        return lambda state, operands, mask: None

    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        by_warp = active(state, mask).reshape(-1, m.warp_size)
        m.shared.order.fence((m.first_warp + np.flatnonzero(by_warp.all(axis=1))).tolist())

    return run


def _fence_memory(state: Any, operands: Any, mask: Any) -> None:
    m = state.machine
    if m.races is not None:
        m.races.fence(m.active_warps(active(state, mask)))


def _fence_init(state: Any, operands: Any, mask: Any) -> None:
    m = state.machine
    cluster, barriers, base = Cluster.of(m), MBarriers.of(m), m.shared.order.event_base
    for t in _threads(state, mask):
        number = m.rank * m.num_threads + t
        for event in barriers.fresh.pop(t, []):
            cluster.fenced[number] = cluster.fenced.get(number, 0) | 1 << (event - base)


def elect(parts: list[str]) -> Handler:
    """elect.sync d|p, membermask: one thread of each warp, here the first."""
    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        if (state.read(operands[1])[m.mask].astype(np.uint32) != 0xFFFFFFFF).any():
            raise SimtError("elect.sync of part of a warp is not simulated")
        m.require_full_warps("elect.sync")
        if operands[0].kind == "pair":
            lane, chosen = operands[0].value
            state.write(lane, np.zeros(m.num_threads, np.uint32), mask)
        else:
            chosen = operands[0]
        state.write(chosen, m.lane_ids == 0, mask)

    return run


def setmaxnreg(parts: list[str]) -> Handler:
    """setmaxnreg.{inc,dec}.sync.aligned.u32: by all warps of a warp group; the count is a multiple of 8 from 24 to 256."""
    if parts[1] not in ("inc", "dec"):
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")

    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        count = operands[0].value
        if operands[0].kind != "imm" or count % 8 or not 24 <= count <= 256:
            raise SimtError(f"setmaxnreg: a multiple of 8 from 24 to 256, found {count}")
        require_groups(m, "setmaxnreg")

    return run


def require_groups(m: Any, what: str) -> list[int]:
    """The active warp groups; each must be wholly active."""
    rest = m.num_threads % 128
    if rest and m.mask[m.num_threads - rest:].any():
        raise SimtError(f"{what} in a block whose last warps are no warp group of four")
    by_group = m.mask[:m.num_threads - rest].reshape(-1, 128)
    whole = by_group.all(axis=1)
    if (by_group.any(axis=1) != whole).any():
        raise SimtError(f"{what} in a warp group of which only some threads are active")
    return np.flatnonzero(whole).tolist()  # type: ignore[no-any-return]


def nothing(parts: list[str]) -> Handler:
    return lambda state, operands, mask: None


_COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}


def setp(parts: list[str]) -> Handler:
    """setp of integers, one predicate."""
    kind, t = parts[1], parts[-1]
    if kind not in _COMPARE or t[0] not in "bus" or len(parts) != 3:
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")
    size = int(t[1:]) // 8

    def run(state: Any, operands: Any, mask: Any) -> None:
        a, b = (as_bits(state.read(o), size) for o in operands[1:])
        if t[0] == "s":
            a, b = a.view(f"i{size}"), b.view(f"i{size}")
        state.write(operands[0], _COMPARE[kind](a, b), mask)

    return run


INSTRUCTIONS: dict[str, Callable[[list[str]], Handler]] = {
    "mbarrier": mbarrier, "bar": bar, "barrier": bar, "fence": fence, "elect": elect, "setmaxnreg": setmaxnreg, "setp": setp,
    "mapa": mapa, "griddepcontrol": nothing, "nanosleep": nothing,
}
