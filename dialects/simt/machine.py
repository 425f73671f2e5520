"""The state of one running block, as memory operations and a target's semantics see it, and of a group of blocks that run together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tilewright.dialects.simt.memory import SHARED_WINDOW, GlobalMemory, SharedMemory, SimtError
from tilewright.dialects.simt.order import Clock, Order
from tilewright.dialects.simt.values import VType, from_bytes, from_float, signed, to_bytes, to_float

if TYPE_CHECKING:
    from tilewright.dialects.simt.global_races import GlobalRaces

Array = Any


class AtomicOrder(NamedTuple):
    """``acquires``: accesses after it follow those before an atomic that ``releases`` and that it comes after. ``near``: among threads of one block only."""

    acquires: bool
    releases: bool
    near: bool = False


ACQ_REL = AtomicOrder(True, True)


class Group:
    """Blocks that run together and may reach one another's shared memory through a target's semantics; mostly one alone.

    Public to semantics: ``machines`` (one a block, by ``rank``), ``order`` (of the warps of all), ``state`` (what semantics keep of the
    running group, by name; ``finish(group)`` is called at its end), ``counts`` (how often what was done, over all groups; semantics
    may add to it).
    """

    def __init__(self, blocks: int, num_threads: int, warp_size: int, shared_bytes: int, check_races: bool, check_uninitialised: bool):
        warps = -(-num_threads // warp_size)
        self.order = Order(blocks * warps, warps)
        self.state: dict[str, Any] = {}
        self.counts: dict[str, int] = {}
        self.races: GlobalRaces | None = None
        memory, output = GlobalMemory(), []  # type: ignore[var-annotated]
        self.machines = [Machine(self, rank, num_threads, warp_size, memory, output,
                                 SharedMemory(shared_bytes, warps, check_races, check_uninitialised, self.order, rank * warps))
                         for rank in range(blocks)]

    def start(self, programs: Sequence[tuple[int, int, int]]) -> None:
        self.state = {}
        for machine, program in zip(self.machines, programs):
            machine.start_block(program)
        self.order.restart()
        if self.races is not None:
            self.races.begin(programs)

    def check_global(self, races: GlobalRaces | None) -> None:
        """``races`` looks at accesses to global memory from now on."""
        self.races = races
        for machine in self.machines:
            machine.races = races

    def finish(self) -> None:
        for machine in self.machines:
            machine.finish_block()
        for state in self.state.values():
            state.finish(self)

    def exited(self) -> Array:
        """bool: which threads have ended, block after block."""
        return self.machines[0].exited if len(self.machines) == 1 else np.concatenate([m.exited for m in self.machines])

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


class Machine:
    """Public to semantics: ``num_threads``, ``warp_size``, ``thread_ids`` (uint32), ``lane_ids``, ``warp_ids`` and ``first_warp`` (warps
    are numbered through the group, as ``shared.order`` counts them), ``group`` and ``rank`` (the block's place there), ``exited``
    (bool[threads], those that have ended), ``program_ids`` and ``grid`` (three ints), ``mask`` (bool[threads], the active ones), ``full`` (all are), ``output``
    (a list that printing intrinsics append to), ``objects`` (Opaque arguments by address), ``state`` (what a target's semantics
    keep of the running block, by name; ``finish(machine)`` is called at the block's end), ``others_wait`` (some threads are held
    at an operation that waits), ``waits_for`` (what the last one waits for), ``races`` (told of accesses to global memory, or None) and the methods below. Memory methods touch active
    threads only."""

    def __init__(self, group: Group, rank: int, num_threads: int, warp_size: int, memory: GlobalMemory, output: list[Any], shared: SharedMemory):
        self.group, self.rank, self.first_warp = group, rank, shared.warps.start
        self.num_threads, self.warp_size = num_threads, warp_size
        self.thread_ids = np.arange(num_threads, dtype=np.uint32)
        self.lane_ids = self.thread_ids % np.uint32(warp_size)
        self.warp_ids = (self.thread_ids // np.uint32(warp_size) + np.uint32(self.first_warp)).astype(np.int16)
        self.program_ids = self.grid = (0, 0, 0)
        self.mask = np.ones(num_threads, bool)
        self.full = True
        self.exited = np.zeros(num_threads, bool)
        self.memory, self.shared, self.output = memory, shared, output
        self.races: GlobalRaces | None = None
        self.place = 0  # which of the kernel's accesses runs: a number that decoding gave it
        self.barriers = 0
        self.objects: dict[int, Any] = {}
        self.state: dict[str, Any] = {}
        self.others_wait, self.waits_for = False, ""
        self._open: list[tuple[Array, Any]] = []  # (threads, copy)
        self._groups: dict[bytes, list[list[Any]]] = {}  # by the threads that commit and wait together
        self._named: dict[int, _NamedBarrier] = {}

    def start_block(self, program_ids: tuple[int, int, int]) -> None:
        self.program_ids = program_ids
        self.exited = np.zeros(self.num_threads, bool)
        self.shared.reset()
        self.state = {}
        self._open, self._groups, self._named = [], {}, {}

    def finish_block(self) -> None:
        if self._open or any(any(groups) for groups in self._groups.values()):
            raise SimtError("the kernel ends with asynchronous copies in flight: a wait is missing")
        for number, barrier in self._named.items():
            if barrier.arrived:
                raise SimtError(f"the kernel ends while barrier {number} has {len(barrier.arrived)} of its {barrier.warps} warps")
        for state in self.state.values():
            state.finish(self)

    # -- synchronisation
    def barrier(self) -> None:
        """All threads of the block must be here."""
        if not self.full:
            missing = np.flatnonzero(~self.mask)
            raise SimtError(f"barrier reached by {int(self.mask.sum())} of {self.num_threads} threads; the first missing "
                            f"is thread {int(missing[0])}")
        self.barriers += 1
        self.shared.barrier()

    def block_barrier(self) -> Array:
        """``barrier`` for operations that wait: if other threads are held elsewhere, those that are here wait for them."""
        whole = self._named.get(0)
        if self.full or not (self.others_wait or (whole is not None and (whole.released.any() or whole.arrived))):
            self.barrier()
            return self.mask
        return self.named_barrier(0, self.num_threads)

    def named_barrier(self, number: int, threads: int, stay: bool = True) -> Array:
        """The active warps arrive at a barrier of ``threads`` threads and, with ``stay``, wait for it; the threads that go on."""
        if threads % self.warp_size or not 0 < threads <= self.num_threads:
            raise SimtError(f"barrier {number} of {threads} threads in a block of {self.num_threads}, warps of {self.warp_size}")
        self.require_full_warps(f"barrier {number}")
        barrier = self._named.setdefault(number, _NamedBarrier(self.shared.order.warps))
        passed = barrier.released[self.warp_ids] & self.mask
        barrier.released[self.active_warps(passed)] = False
        fresh = [w for w in self.active_warps(self.mask & ~passed) if w not in barrier.holds]
        if fresh:
            if barrier.arrived and barrier.warps != threads // self.warp_size:
                raise SimtError(f"barrier {number} of {threads} threads, where {len(barrier.arrived)} warps have arrived for one of "
                                f"{barrier.warps * self.warp_size}")
            barrier.warps = threads // self.warp_size
            again = [w for w in fresh if w in barrier.arrived]
            if again or len(barrier.arrived) + len(fresh) > barrier.warps:
                raise SimtError(f"barrier {number} of {threads} threads: " + (f"{self.shared.order.name(again[0])} arrives twice" if again else
                                f"{len(barrier.arrived) + len(fresh)} warps arrive"))
            barrier.arrived += fresh
            barrier.clock = self.shared.order.release(fresh).join(barrier.clock)
            if stay:
                barrier.holds.update(fresh)
            if len(barrier.arrived) == barrier.warps:
                self.barriers += 1
                holds = sorted(barrier.holds)
                self.shared.order.acquire(holds, barrier.clock)
                barrier.released[holds] = True
                barrier.arrived, barrier.clock, barrier.holds = [], None, set()
                passed = passed | (barrier.released[self.warp_ids] & self.mask)
                barrier.released[self.active_warps(passed)] = False
        self.waits_for = f"barrier {number}, at which {len(barrier.arrived)} of {barrier.warps} warps are"
        return passed if stay else self.mask

    def active_warps(self, mask: Array | None = None) -> list[int]:
        """The warps of which a thread is active (or in ``mask``)."""
        mask = self.mask if mask is None else mask
        warps = np.flatnonzero(mask.reshape(-1, self.warp_size).any(axis=1))
        return (warps + self.first_warp if self.first_warp else warps).tolist()

    def require_full_warps(self, what: str) -> None:
        """For warp-wide instructions: each warp is wholly active or wholly inactive."""
        if not self.full:
            by_warp = self.mask.reshape(-1, self.warp_size)
            if (by_warp.any(axis=1) != by_warp.all(axis=1)).any():
                raise SimtError(f"{what} in a warp of which only some lanes are active")

    # -- memory. space: 0 generic, 1 global, 3 shared (others: as global)
    def _split(self, addr: Array, space: int) -> bool:
        """Is this shared memory? Generic addresses must all be of one kind."""
        if space != 0:
            return space == 3
        shared = addr >= np.uint64(SHARED_WINDOW)
        if shared.any() != shared.all():
            raise SimtError("one generic access touches both global and shared memory")
        return bool(shared.any())

    def load_bytes(self, addr: Array, nbytes: int, space: int = 1, mask: Array | None = None, align: int = 1,
                   order: AtomicOrder | None = None) -> Array:
        """uint8[threads, nbytes]; zeros in inactive threads. ``mask`` narrows the active ones. ``order``: of a load that is atomic."""
        active = self.mask if mask is None else (mask if self.full else mask & self.mask)
        everyone = self.full and (mask is None or mask.all())
        a = addr if everyone else addr[active]
        if not len(a):
            return np.zeros((self.num_threads, nbytes), np.uint8)
        if self._split(a, space):
            warps = self.warp_ids if everyone else self.warp_ids[active]
            data = self.shared.load(a & np.uint64(SHARED_WINDOW - 1), nbytes, warps, align)
        else:
            data = self.memory.load(a, nbytes, align)
            if self.races is not None and order is not None:
                self.races.atomic(self, addr, active, *order)
            elif self.races is not None:
                self.races.reads(self, a, nbytes, self.warp_ids if everyone else self.warp_ids[active])
        if everyone:
            return data
        out = np.zeros((self.num_threads, nbytes), np.uint8)
        out[active] = data
        return out

    def store_bytes(self, addr: Array, data: Array, space: int = 1, mask: Array | None = None, align: int = 1,
                    order: AtomicOrder | None = None) -> None:
        """``data`` uint8[threads, nbytes]. ``order``: of a store that is atomic."""
        every, active = addr, self.mask if mask is None else (mask if self.full else mask & self.mask)
        if not (self.full and (mask is None or mask.all())):
            addr, data = addr[active], data[active]
            warps = self.warp_ids[active]
        else:
            warps = self.warp_ids
        if not len(addr):
            return
        if self._split(addr, space):
            self.shared.store(addr & np.uint64(SHARED_WINDOW - 1), data, warps, align)
        elif self.races is None or order is not None:
            self.memory.store(addr, data, align)
            if self.races is not None and order is not None:
                self.races.atomic(self, every, active, *order)
        else:
            told: list[Any] = []
            races = self.races
            self.memory.store(addr, data, align, lambda: told.extend(races.writes(self, addr, data, warps)))
            races.written(told)

    def load(self, addr: Array, t: VType, space: int, align: int = 1) -> Any:
        if t.kind == "struct" or t.kind == "array":
            raise SimtError(f"load of {t}: only scalars and vectors are loaded")
        return from_bytes(self.load_bytes(addr, t.nbytes, space, align=align), t)

    def store(self, addr: Array, value: Array, t: VType, space: int, align: int = 1) -> None:
        self.store_bytes(addr, to_bytes(value, t), space, align=align)

    def read_string(self, address: int) -> str:
        """The C string at a global address."""
        data = bytearray()
        while True:
            byte = int(self.memory.load(np.array([address + len(data)], np.uint64), 1)[0, 0])
            if byte == 0:
                return data.decode(errors="replace")
            data.append(byte)

    # -- atomics: threads take turns in order. order: what they mean for other accesses
    def atomic(self, addr: Array, t: VType, space: int, update: Callable[[Array, Array], Array],
               mask: Array | None = None, order: AtomicOrder = ACQ_REL) -> Array:
        """``update(old values, thread numbers) → new values`` once a thread; returns the old values (0 where inactive)."""
        active = self.mask if mask is None else self.mask & mask
        todo = np.flatnonzero(active)
        old = np.zeros((self.num_threads, t.lanes) if t.lanes else self.num_threads, t.dtype)
        check, races = self.shared.check_races, self.races
        if races is not None and len(todo) and not self._split(addr[todo], space):
            races.atomic(self, addr, active, order.acquires, order.releases, order.near)
        self.shared.check_races, self.races = False, None  # atomics do not race with each other
        try:
            while len(todo):
                _, first = np.unique(addr[todo], return_index=True)
                now = todo[first]
                turn = np.zeros(self.num_threads, bool)
                turn[now] = True
                current = from_bytes(self.load_bytes(addr, t.nbytes, space, turn, t.nbytes), t)
                old[now] = current[now]
                new = current.copy()
                new[now] = update(current[now], now)
                self.store_bytes(addr, to_bytes(new, t), space, turn, t.nbytes)
                todo = np.delete(todo, first)
        finally:
            self.shared.check_races, self.races = check, races
        return old

    def atomic_rmw(self, op: str, addr: Array, value: Array, t: VType, space: int, mask: Array | None = None,
                   order: AtomicOrder = ACQ_REL) -> Array:
        """op: xchg add sub and nand or xor max min umax umin fadd fsub fmax fmin uinc_wrap udec_wrap."""
        f = RMW.get(op)
        if f is None:
            raise SimtError(f"atomic {op!r} is not one of {', '.join(sorted(RMW))}")
        if op.startswith("f"):
            def update(old: Array, who: Array) -> Array:
                return from_float(f(to_float(old, t), to_float(value[who], t)), t)
        else:
            def update(old: Array, who: Array) -> Array:
                return f(old, value[who])
        return self.atomic(addr, t, space, update, mask, order)

    def atomic_cas(self, addr: Array, expected: Array, value: Array, t: VType, space: int, mask: Array | None = None,
                   order: AtomicOrder = ACQ_REL) -> Array:
        """Old values; compares bits."""
        return self.atomic(addr, t, space, lambda old, who: np.where(old == expected[who], value[who], old), mask, order)

    # -- asynchronous copies into shared memory
    def async_copy(self, dst: Array, data: Array, mask: Array | None = None, align: int = 1) -> None:
        """Begin a copy of uint8[threads, nbytes] to shared addresses; it lands at async_wait."""
        active = self.mask if mask is None else self.mask & mask
        if active.any():
            self._open.append((active, self.shared.async_begin(dst[active] & np.uint64(SHARED_WINDOW - 1), data[active],
                                                               self.warp_ids[active], align)))

    def async_commit(self) -> None:
        groups = self._async_groups("commit")
        mine = []
        for threads, copy in self._open:
            if (threads & self.mask).any():
                if (threads & ~self.mask).any():
                    raise SimtError("an asynchronous commit reached by only some of the threads that began a copy")
                mine.append(copy)
        self._open = [entry for entry in self._open if not (entry[0] & self.mask).any()]
        groups.append(mine)

    def async_wait(self, pending: int) -> None:
        """Until at most ``pending`` groups are in flight."""
        groups = self._async_groups("wait")
        done = max(0, len(groups) - pending)
        for group in groups[:done]:
            for record in group:
                self.shared.async_finish(record)
        del groups[:done]

    def async_wait_all(self) -> None:
        """Until nothing is in flight, committed or not."""
        self.async_commit()
        self.async_wait(0)

    def _async_groups(self, what: str) -> list[list[Any]]:
        # Groups are counted per thread on a device; here once for the threads that always come together.
        key = self.mask.tobytes()
        for other, groups in self._groups.items():
            if other != key and any(groups) and (np.frombuffer(other, bool) & self.mask).any():
                raise SimtError(f"an asynchronous {what} reached by only some threads of those that committed together")
        return self._groups.setdefault(key, [])


class _NamedBarrier:
    """``arrived``: warps so far; ``holds``: those of them that stay; ``released``: bool[the group's warps], may go on when asked again."""

    def __init__(self, warps: int) -> None:
        self.warps = warps
        self.arrived: list[int] = []
        self.holds: set[int] = set()
        self.released = np.zeros(warps, bool)
        self.clock: Clock | None = None


def threads_text(threads: Array) -> str:
    """bool[threads] as "threads 0-127, 256"."""
    numbers = np.flatnonzero(threads)
    starts = numbers[np.insert(np.diff(numbers) > 1, 0, True)]
    ends = numbers[np.append(np.diff(numbers) > 1, True)]
    return "threads " + ", ".join(f"{a}-{b}" if a != b else str(a) for a, b in zip(starts.tolist(), ends.tolist()))


RMW: dict[str, Callable[[Array, Array], Array]] = {
    "xchg": lambda old, v: v, "add": lambda old, v: old + v, "sub": lambda old, v: old - v, "and": lambda old, v: old & v,
    "nand": lambda old, v: ~(old & v), "or": lambda old, v: old | v, "xor": lambda old, v: old ^ v,
    "max": lambda old, v: np.maximum(signed(old), signed(v)).view(old.dtype),
    "min": lambda old, v: np.minimum(signed(old), signed(v)).view(old.dtype), "umax": np.maximum, "umin": np.minimum,
    "fadd": np.add, "fsub": np.subtract, "fmax": np.fmax, "fmin": np.fmin,
    "uinc_wrap": lambda old, v: np.where(old >= v, old.dtype.type(0), old + old.dtype.type(1)),
    "udec_wrap": lambda old, v: np.where((old == 0) | (old > v), v, old - old.dtype.type(1)),
}
