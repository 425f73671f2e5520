"""Runs a kernel's work-groups: as many at a time as fit in a batch, waves that stand at one pc in one step.

Which waves run: those at the lowest pc, so that branches join again; waves that were passed over for long get a turn, so that one that
spins on what another holds ends. Initial registers follow LLVM's "User Guide for AMDGPU Backend", "Initial Kernel Execution State".
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.targets.amd.isa.errors import Deadlock, DivergentBarrier, SimulationError
from tilewright.targets.amd.isa.global_races import GlobalRaces
from tilewright.targets.amd.isa.launch import Launch, initialise
from tilewright.targets.amd.isa.memory import Lds, Scratch
from tilewright.targets.amd.isa.program import Instruction, Kernel, Program
from tilewright.targets.amd.isa.races import Races
from tilewright.targets.amd.isa.registry import DecodeContext, Step, decode
from tilewright.targets.amd.isa.state import Batch, Waves
from tilewright.targets.amd.isa.waits import Waits

Array = Any
# ends of straight-line code; their steps set Waves.next_pc (an int, an array, or END), or call Machine.signal and Machine.wait
_ENDS = ("s_branch", "s_cbranch_", "s_endpgm", "s_barrier", "s_setpc_b64", "s_swappc_b64", "s_call_b64", "s_trap")
END = -1
_FAIR = 512  # blocks that may run while others that could run do not


@dataclass
class Block:
    """Straight-line code: instructions ``first`` to ``end`` with their steps."""

    first: int
    end: int
    body: list[tuple[Instruction, Step]]
    counts: Counter[str]


@dataclass
class Code:
    """A decoded kernel."""

    program: Program
    kernel: Kernel
    blocks: dict[int, Block]
    places: dict[int, int]  # byte address in the code → number of the instruction


def load(program: Program, kernel: Kernel) -> Code:
    """Decodes all of the kernel, once a kernel; raises UnknownInstruction for what the simulator does not have."""
    found = getattr(kernel, "_code", None)
    if found is not None:
        return found  # type: ignore[no-any-return]
    import tilewright.targets.amd.isa.instructions  # noqa: F401  (fills the table)

    ctx = DecodeContext(program, kernel)
    starts = {0, *kernel.labels.values()}
    for ins in kernel.instructions:
        if ins.name.startswith(_ENDS):
            starts.add(ins.index + 1)
    ordered = sorted(s for s in starts if s < len(kernel.instructions))
    blocks = {}
    for first, end in zip(ordered, [*ordered[1:], len(kernel.instructions)]):
        body = [(ins, decode(ins, ctx)) for ins in kernel.instructions[first:end]]
        names = [half.base for ins, _ in body for half in (ins, ins.dual) if half is not None]
        blocks[first] = Block(first, end, body, Counter(names))
    code = Code(program, kernel, blocks, {ins.address: ins.index for ins in kernel.instructions})
    kernel._code = code  # type: ignore[attr-defined]
    return code


class Unchecked:
    """In place of waits and races where they are not checked."""

    any_pending = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


class Machine:
    """One launch. ``memory``: global memory (memory.Memory). What instructions use:

    lds (memory.Lds), scratch (memory.Scratch), waits, races. ``Waves.group_ids`` and ``wave_ids`` index these.
    ``check``: waits and races are checked; ``check_global``: those in global memory too. ``prepare(machine)`` runs when the registers of a batch are set up. ``lds_conflicts``: a dict that a caller
    sets to have bank conflicts counted (see bank_conflicts).
    """

    lds_conflicts: dict[int, list[int]]

    def __init__(self, code: Code, launch: Launch, memory: Any, *, check: bool = True, check_global: bool = True, max_waves: int = 0, max_blocks: int = 5_000_000,
                 prepare: Callable[[Machine], None] | None = None):
        self.code, self.program, self.kernel, self.launch, self.memory = code, code.program, code.kernel, launch, memory
        self.arch, self.lanes = self.program.arch, self.kernel.lanes
        self.waves_per_group = -(-launch.threads // self.lanes)
        self.lds_bytes = launch.lds_bytes
        self.scratch_bytes = self.kernel.descriptor.get("private_segment_fixed_size", 0)
        self._groups_at_once = max(1, (max_waves or 4096 // self.lanes) // self.waves_per_group)
        self._max_blocks, self._check, self._prepare = max_blocks, check, prepare
        self._check_global = check and check_global
        self.global_races: GlobalRaces | None = None
        self._runs: Counter[int] = Counter()  # waves that ran a block
        self.waves_run, self.clock = 0, 0
        self.code_address = 0x0000_4000_0000_0000 + (id(code) & 0xFFFF_FFFF)  # nothing is read there
        self._data = np.frombuffer(code.program.data or b"\0", np.uint8)
        if code.program.data:
            memory.add(self._data.ctypes.data, self._data.ctypes.data + self._data.size, "constants", False)
        memory.add(launch.kernarg.ctypes.data, launch.kernarg.ctypes.data + launch.kernarg.size, "kernel arguments", False)
        self.groups: list[tuple[int, int, int]] = []

    def symbol_address(self, name: str) -> int:
        """Address of constant data, or of a function that the kernel calls."""
        if name in self.kernel.functions:
            return self.code_address + self.kernel.instructions[self.kernel.labels[name]].address
        if name not in self.program.symbols:
            raise SimulationError(f"the code refers to {name}, which it does not define")
        return int(self._data.ctypes.data) + self.program.symbols[name]

    def pc_of(self, addresses: Array) -> Array:
        """The numbers of the instructions at ``addresses``, a wave each."""
        out = np.empty(len(addresses), np.int64)
        for address in np.unique(addresses):
            pc = self.code.places.get(int(address) - self.code_address)
            if pc is None:
                wave = int(np.flatnonzero(addresses == address)[0])
                raise SimulationError(f"a jump to address {int(address):#x}, where no instruction begins", wave)
            out[addresses == address] = pc
        return out

    # -- names for messages
    def group_name(self, slot: int) -> str:
        return str(self.groups[slot])

    def wave_in_group(self, slot: int) -> int:
        return slot % self.waves_per_group

    # -- running
    def run(self, groups: Iterable[tuple[int, int, int]] | None = None) -> None:
        """All work-groups of the grid, x fastest, or only ``groups``."""
        gx, gy, gz = self.launch.grid
        if groups is None:
            groups = ((x, y, z) for z in range(gz) for y in range(gy) for x in range(gx))
            count = gx * gy * gz
        else:
            groups = list(groups)
            count = len(groups)
        self.memory.races = self.global_races = GlobalRaces(self, count) if self._check_global and GlobalRaces.wanted(self, count) else None
        left = iter(groups)
        with np.errstate(all="ignore"):
            while together := list(itertools.islice(left, self._groups_at_once)):
                self._run_batch(together)

    def _run_batch(self, groups: Sequence[tuple[int, int, int]]) -> None:
        self.groups = list(groups)
        count, waves = len(groups), len(groups) * self.waves_per_group
        self.waves_run += waves
        if not hasattr(self, "batch") or self.batch.waves != waves:
            self._allocate(count, waves)
        self.lds.clear()
        self.scratch.clear()
        self.waits.reset()
        self.races.reset()
        if self.global_races is not None:
            self.global_races.begin(groups)
        initialise(self.batch, self.kernel, self.launch, groups, self.waves_per_group)
        if self._prepare is not None:
            self._prepare(self)
        self._initial_exec = self.batch.exec.copy()
        self._signals, self._waited = np.zeros(waves, np.int64), np.zeros(waves, np.int64)
        self._completed = np.zeros(count, np.int64)
        self._blocked: dict[int, Array] = {}  # resume pc → waves
        self._views: dict[bytes, Waves] = {}
        self._schedule(waves)
        signals = self._signals.reshape(-1, self.waves_per_group)
        uneven = (signals != signals[:, :1]).any(axis=1)
        if uneven.any():
            group = int(uneven.argmax())
            raise DivergentBarrier(f"waves of work-group {self.group_name(group)} came to {sorted(set(signals[group].tolist()))} barriers each: all have to "
                                   "come to as many", 0)

    def _allocate(self, groups: int, waves: int) -> None:
        descriptor = self.kernel.descriptor
        total = descriptor.get("next_free_vgpr", 256)
        vgprs = min(total, descriptor.get("accum_offset", total))
        self.batch = Batch(waves, self.lanes, vgprs, max(0, total - vgprs))
        self.lds = Lds(groups, self.lds_bytes)
        self.scratch = Scratch(waves, self.lanes, self.scratch_bytes)
        self.wave_ids = np.arange(waves)
        self.group_of = self.wave_ids // self.waves_per_group
        self.waits: Any = Waits(self) if self._check else Unchecked()
        self.races: Any = Races(self) if self._check else Unchecked()
        self.lds.races = self.races if self._check else None

    def _waves(self, index: Array) -> Waves:
        key = index.tobytes()
        found = self._views.get(key)
        if found is None:
            first, last = int(index[0]), int(index[-1])
            if last - first + 1 != len(index):
                return Waves(self, self.batch, index, index, self.group_of[index])  # a copy, which is not kept
            found = self._views[key] = Waves(self, self.batch, slice(first, last + 1), index, self.group_of[index])
        else:
            found.load()
        return found

    def _schedule(self, waves: int) -> None:
        ready: dict[int, Array] = {0: self.wave_ids}  # pc → waves, ascending
        waiting_since: dict[int, int] = {0: 0}
        blocks, left, tick, patience = self.code.blocks, self._max_blocks, 0, _FAIR
        while ready:
            pc = min(ready)
            if len(ready) > 1:
                oldest = min(waiting_since, key=waiting_since.__getitem__)
                if tick - waiting_since[oldest] > patience:
                    pc, patience = oldest, max(8, patience // 2)  # somebody spins: take turns faster
            else:
                patience = _FAIR
            index = ready.pop(pc)
            del waiting_since[pc]
            w = self._waves(index)
            while True:
                tick += 1
                self.clock += 1
                if tick > left:
                    raise Deadlock(f"more than {left} blocks of instructions ran: does the kernel hang?").at_waves(w)
                next_pc = self._run_block(w, blocks[pc])
                # on without the scheduler while nobody else could join or comes before
                if isinstance(next_pc, int) and next_pc >= 0 and not ready and not self._blocked:
                    pc = next_pc
                    continue
                break
            w.store()
            for target, some in _split(next_pc, index):
                if target >= 0:
                    _add(ready, waiting_since, target, some, tick)
                elif target != END:
                    self._block(-2 - target, some)
            if self._blocked:
                self._release(ready, waiting_since, tick)
            if not ready and self._blocked:
                self._stuck()

    def _run_block(self, w: Waves, block: Block) -> Any:
        """Returns the next pc: an int, an array (n,) of them, END, or None for waves that wait."""
        w.next_pc = block.end
        try:
            for ins, step in block.body:
                w.ins = ins
                step(w)
        except SimulationError as e:
            raise e.at_waves(w) from None
        except Exception as e:  # noqa: BLE001 - whatever it is, say where
            raise SimulationError(f"the simulator failed: {type(e).__name__}: {e}").at_waves(w) from e
        self._runs[block.first] += w.n
        return w.next_pc

    @property
    def counts(self) -> Counter[str]:
        """Instructions executed by mnemonic, times waves."""
        out: Counter[str] = Counter()
        for first, waves in self._runs.items():
            for name, count in self.code.blocks[first].counts.items():
                out[name] += count * waves
        return out

    # -- barriers: a wave's n-th wait ends once every wave of its group has signalled n times, at whichever instructions: the hardware counts waves
    def signal(self, w: Waves) -> None:
        """s_barrier, s_barrier_signal."""
        partial = w.exec != self._initial_exec[w.wave_ids]
        if partial.any():
            wave = int(partial.argmax())
            off = self._initial_exec[w.wave_ids[wave]] & ~w.exec[wave]
            lanes = [i for i in range(self.lanes) if int(off) >> i & 1]
            raise DivergentBarrier(f"a barrier is reached with {len(lanes)} lanes inactive; all lanes of a wave must reach it", wave, lanes)
        self.races.arrive(w)
        self._signals[w.wave_ids] += 1
        counts = self._signals.reshape(-1, self.waves_per_group).min(axis=1)
        done = np.flatnonzero(counts > self._completed)
        if len(done):
            self._completed[done] = counts[done]
            self.races.barrier(done)
            if self.global_races is not None:
                self.global_races.barrier(done)

    def wait(self, w: Waves) -> None:
        """s_barrier, s_barrier_wait: the waves go on now, or are blocked until the others signal."""
        self._waited[w.wave_ids] += 1
        passes = self._completed[w.group_ids] >= self._waited[w.wave_ids]
        if not passes.all():
            w.next_pc = np.where(passes, w.ins.index + 1, -2 - (w.ins.index + 1))

    def _release(self, ready: dict[int, Array], since: dict[int, int], tick: int) -> None:
        for pc, index in list(self._blocked.items()):
            free = self._completed[self.group_of[index]] >= self._waited[index]
            if free.any():
                _add(ready, since, pc, index[free], tick)
                if free.all():
                    del self._blocked[pc]
                else:
                    self._blocked[pc] = index[~free]

    def _stuck(self) -> None:
        pc, index = next(iter(self._blocked.items()))
        wave = int(index[0])
        group = wave // self.waves_per_group
        ended = [int(i) % self.waves_per_group for i in self.wave_ids[self.group_of == group] if self._signals[i] < self._waited[wave]]
        w = self._waves(index)
        w.ins = self.kernel.instructions[pc - 1]
        raise DivergentBarrier(f"waves wait at a barrier that waves {ended[:8]} of the work-group ended without reaching", 0).at_waves(w)

    def _block(self, pc: int, index: Array) -> None:
        """Waves that wait and go on at ``pc``."""
        old = self._blocked.get(pc)
        self._blocked[pc] = index if old is None else np.sort(np.concatenate([old, index]))


def _split(next_pc: Any, index: Array) -> list[tuple[int, Array]]:
    if isinstance(next_pc, int):
        return [(next_pc, index)]
    return [(int(pc), index[next_pc == pc]) for pc in np.unique(next_pc)]


def _add(ready: dict[int, Array], since: dict[int, int], pc: int, index: Array, tick: int) -> None:
    old = ready.get(pc)
    ready[pc] = index if old is None else np.sort(np.concatenate([old, index]))
    since.setdefault(pc, tick)
