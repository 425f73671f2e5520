"""Decode an LLVM-dialect kernel once into Python closures, then run them block by block, or by groups of blocks, for every program
of a grid.

Threads run together until they part; those held at an operation that waits are asked again once others have run. The blocks of a group
take turns in the same way: each runs until all its threads wait.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilewright.dialects import global_races
from tilewright.dialects._mlir import ir
from tilewright.dialects.global_races import Region
from tilewright.dialects.simt.decode import Function, decode_function, reverse_post_order
from tilewright.dialects.simt.global_races import GlobalRaces
from tilewright.dialects.simt.machine import Group, Machine, threads_text
from tilewright.dialects.simt.memory import SHARED_WINDOW, SimtError, address_range, process_ranges
from tilewright.dialects.simt.values import VType, f32_to_bf16, merge

__all__ = ["SHARED_WINDOW", "CallInfo", "Machine", "Opaque", "SimtExecutor", "reverse_post_order"]

Array = Any
OBJECT_WINDOW = 1 << 61  # addresses of Opaque arguments start here; no memory lies there


@dataclass(frozen=True)
class Opaque:
    """A kernel argument passed by value that only a target's semantics understand; ``machine.objects[address]`` is ``value``."""

    value: Any


@dataclass(frozen=True)
class CallInfo:
    """What a semantics factory learns of an intrinsic, inline assembly or external call.

    ``text``: the intrinsic's name, the assembly text, or the callee. ``constraints``: of inline assembly, else "".
    ``match``: of the pattern that selected the factory, None for an exact name.
    """

    text: str
    constraints: str
    operands: tuple[VType, ...]
    result: VType
    match: re.Match[str] | None = None


# A function whose attribute ``waits`` is true may hold threads: it returns bool[threads], the active ones that go on, and says in
# ``machine.waits_for`` what the others wait for; those are asked again once other threads have run.
# factory(info) → function(machine, *operand arrays) → result: an array, a tuple for a struct, None for no result.
Semantics = Mapping[Any, Callable[[CallInfo], Callable[..., Any]]]


class Stuck(NamedTuple):
    """All threads of a block that are left wait; ``moved``: some thread went on since it was stuck before."""

    moved: bool
    waiting: dict[int, Array]  # block of the function → threads
    reasons: dict[int, str]


class SimtExecutor:
    """Runs ``kernel`` of ``module`` (after lowering to the LLVM dialect).

    num_threads: threads a block. shared_bytes: dynamic shared memory, at address 0 of address space 3 (``global_smem``).
    semantics: keys are intrinsic names, or compiled patterns searched in names, callees and assembly text; exact names win,
    then patterns in order. LLVM's own intrinsics (``llvm.fma``, …) are known.
    check_races: shared-memory accesses of two warps at one byte, one of them a write, with no barrier in between, are
    errors; so are such races in global memory between warps of any blocks, which TILEWRIGHT_SIMULATE_GLOBAL_RACES=0 in the environment
    leaves out. check_uninitialised: so are reads of shared bytes that nothing wrote (they hold 0xff, NaN, otherwise).
    max_steps: basic blocks entered by one program before it counts as hanging.
    group: blocks that run together; the n-th group are the programs group·n and on, x fastest.

    Raises SimtError for what the semantics do not know (at construction) and for what a GPU must not do (at run).
    Must be constructed inside ``mlir_context()``; ``run`` needs no MLIR.
    """

    def __init__(self, module: Any, kernel: str, num_threads: int, warp_size: int, shared_bytes: int,
                 semantics: Semantics | None = None, *, check_races: bool = True, check_uninitialised: bool = False,
                 max_steps: int = 1_000_000, group: int = 1):
        if num_threads % warp_size:
            raise SimtError(f"{num_threads} threads are not a whole number of warps of {warp_size}")
        self._blocks = group
        self._semantics = semantics or {}
        self._max_steps = max_steps
        self._functions: dict[str, Any] = {}
        self._decoded: dict[str, Function] = {}
        self.globals: dict[str, int] = {}
        self._places: list[tuple[str, Any]] = []
        self._check_global = check_races
        self.lines: Mapping[int, str] = {}  # line of the module's text → the kernel's "file:line", where a caller knows them
        self._global_buffers: list[tuple[int, int, Any]] = []
        self.num_threads = num_threads
        static = 0
        for op in _top_level(module):
            name = ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else ""
            if op.name == "llvm.func":
                self._functions[name] = op
            elif op.name == "llvm.mlir.global":
                static += self._place_global(op, name, shared_bytes + static)
        if kernel not in self._functions:
            raise SimtError(f"no function {kernel!r}; the module has {', '.join(self._functions) or 'none'}")
        self.group = Group(group, num_threads, warp_size, shared_bytes + static, check_races, check_uninitialised)
        self.machine = self.group.machines[0]
        self.kernel = self._decode(kernel)

    def _place_global(self, op: Any, name: str, shared_end: int) -> int:
        """Give a module-level variable an address; returns the shared bytes that it takes."""
        space = op.attributes["addr_space"].value if "addr_space" in op.attributes else 0
        text = str(ir.TypeAttr(op.attributes["global_type"]).value)
        if space == 3:
            m = re.fullmatch(r"!llvm\.array<(\d+) x i8>", text)
            size = int(m.group(1)) if m else 0
            self.globals[name] = -(-shared_end // 16) * 16 if size else 0
            return size + self.globals[name] - shared_end if size else 0
        if "value" in op.attributes and isinstance(op.attributes["value"], ir.StringAttr):
            data = np.frombuffer(op.attributes["value"].value_bytes, np.uint8).copy()
            address, size = address_range(data)
            self.globals[name] = address
            self._global_buffers.append((address, size, data))
        return 0

    def _decode(self, name: str) -> Function:
        if name not in self._decoded:
            # Recursion between functions would not end here; kernels have none.
            self._decoded[name] = decode_function(self, self._functions[name], self.num_threads)
        return self._decoded[name]

    # -- asked by decode
    def callee(self, name: str) -> Function | None:
        """The decoded function, or None where it is only declared."""
        op = self._functions.get(name)
        return self._decode(name) if op is not None and len(op.regions[0].blocks) else None

    def place(self, op: Any, text: str = "") -> int:
        """A number for an operation that may touch global memory, for messages."""
        self._places.append((" ".join(text.split())[:80] or op.name, op.location))
        return len(self._places) - 1

    def local_memory(self, size: int) -> np.uint64:
        """Address of fresh memory of ``size`` bytes a thread, for each block of a group one after the other."""
        data = np.zeros(size * self.num_threads * self._blocks + 16, np.uint8)
        base = data.__array_interface__["data"][0]
        self._global_buffers.append((base, data.nbytes, data))
        return np.uint64(-(-base // 16) * 16)

    def semantics_for(self, text: str, constraints: str, operands: tuple[VType, ...], result: VType) -> Callable[..., Any] | None:
        factory = self._semantics.get(text)
        if factory is not None:
            return factory(CallInfo(text, constraints, operands, result))
        for key, factory in self._semantics.items():
            if isinstance(key, re.Pattern):
                match = key.search(text)
                if match:
                    return factory(CallInfo(text, constraints, operands, result, match))
        return None

    # -- running
    def run(self, grid: Sequence[int], args: Sequence[Any],
            programs: Iterable[tuple[int, int, int]] | None = None, whole_process: bool = False, regions: Sequence[Region] = ()) -> None:
        """Run every program of ``grid`` (up to three ints), x fastest, or only ``programs``.

        args: one a kernel argument. Pointers: numpy arrays or CPU torch tensors (changed in place; bf16 as uint16), or an
        int address inside the memory of another argument; integers; floats. whole_process: any address of this process's
        memory may be touched, for callers that have addresses only; ``regions`` may say what lies where.
        """
        types = self.kernel.argument_types
        if len(args) != len(types):
            raise SimtError(f"the kernel takes {len(types)} arguments, {len(args)} were given")
        ranges, values, known = list(self._global_buffers), [], list(regions)
        objects: dict[int, Any] = {}
        for i, (arg, t) in enumerate(zip(args, types)):
            if isinstance(arg, Opaque):
                address = OBJECT_WINDOW + 128 * len(objects)
                objects[address] = arg.value
                arg = address
            values.append(self._argument(i, arg, t, ranges))
            if ranges and ranges[-1][2] is arg:  # an array, which has just been put there
                known.append(Region(ranges[-1][0], ranges[-1][0] + ranges[-1][1], f"argument {i}"))
        self.machine.memory.set_ranges(process_ranges() if whole_process else ranges)
        gx, gy, gz = (*grid, 1, 1, 1)[:3]
        for machine in self.group.machines:
            machine.grid, machine.objects = (gx, gy, gz), objects
        if programs is None:
            # not itertools.product, which would first list the whole of each range
            programs = ((x, y, z) for z in range(gz) for y in range(gy) for x in range(gx))
            count = gx * gy * gz
        else:
            programs = list(programs)
            count = len(programs)
        self.group.check_global(self._global_races(count, known))
        left = iter(programs)
        try:
            with np.errstate(all="ignore"):
                while together := tuple(itertools.islice(left, self._blocks)):
                    if len(together) < self._blocks:
                        raise SimtError(f"blocks run in groups of {self._blocks}, and the last of the grid {(gx, gy, gz)} has {len(together)}")
                    self.group.start(together)
                    self._run_group(values)
                    self.group.finish()
        finally:
            self.group.check_global(None)

    def _global_races(self, programs: int, regions: Sequence[Region]) -> GlobalRaces | None:
        groups = -(-programs // self._blocks)
        if not self._check_global or not global_races.wanted() or not GlobalRaces.possible(self.group, groups, len(self._places)):
            return None
        own = [Region(first, first + size, "the executor's memory") for first, size, _ in self._global_buffers]
        return GlobalRaces(self.group, groups, regions, own, self._place_name)

    def _place_name(self, number: int) -> str:
        """"line FILE:LINE, what" of an access that has this number; without the line where none is known."""
        name, location = self._places[number]
        where = self._where(location)
        if where.startswith("loc("):  # as MLIR writes a place: its first file and line, if any
            line = re.search(r'"([^"]*)":(\d+)', where)
            where = f"{line[1]}:{line[2]}" if line else ""
        return f"line {where}, {name}" if where else name

    def _where(self, location: Any) -> str:
        """An operation's place: the kernel's line, or else the location as it is."""
        text = str(location)
        line = re.fullmatch(r'loc\("-":(\d+):\d+\)', text)
        return self.lines.get(int(line[1]), text) if line else text

    def _run_group(self, values: Sequence[Any]) -> None:
        """The group's blocks in turns, each until all its threads wait."""
        everyone = np.ones(self.num_threads, bool)
        running = {m: self._steps(m, self.kernel, values, everyone, kernel=True) for m in self.group.machines}
        stuck: dict[Machine, Stuck] = {}  # those that have waited since something happened
        while running:
            for machine, steps in list(running.items()):
                try:
                    found = next(steps)
                except StopIteration:
                    del running[machine]
                    stuck = {}
                    continue
                if found.moved:
                    stuck = {}
                stuck[machine] = found
                if len(stuck) == len(running) and not any(s.moved for s in stuck.values()):
                    raise self._deadlock(self.kernel, sorted(stuck.items(), key=lambda item: item[0].rank))

    def _argument(self, index: int, arg: Any, t: VType, ranges: list[tuple[int, int, Any]]) -> Array:
        if t.kind == "ptr":
            if arg is None or isinstance(arg, (int, np.integer)):
                return np.full(self.num_threads, int(arg or 0), np.uint64)
            if not isinstance(arg, np.ndarray) and not hasattr(arg, "data_ptr"):
                raise SimtError(f"argument {index} is a pointer; give a numpy array, a torch tensor or an address, not {arg!r}")
            address, size = address_range(arg)
            ranges.append((address, size, arg))
            start = arg.__array_interface__["data"][0] if isinstance(arg, np.ndarray) else arg.data_ptr()
            return np.full(self.num_threads, start, np.uint64)
        if t.kind == "int":
            value = bool(arg) if t.bits == 1 else int(arg) & ((1 << t.bits) - 1)
            return np.full(self.num_threads, value, t.dtype)
        if t.kind == "bf16":
            return np.full(self.num_threads, f32_to_bf16(np.array([arg], np.float32))[0], np.uint16)
        if t.kind == "float":
            return np.full(self.num_threads, arg, t.dtype)
        raise SimtError(f"argument {index} has type {t}, which no kernel takes")

    def call(self, function: Function, args: Sequence[Any], machine: Machine) -> list[Any] | None:
        """Run a function for the active threads; their values on return, merged over threads."""
        try:
            found = next(self._steps(machine, function, args, machine.mask))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        # Other blocks do not run meanwhile.
        raise self._deadlock(function, [(machine, found)])

    def _steps(self, machine: Machine, function: Function, args: Sequence[Any], mask: Array,
               kernel: bool = False) -> Generator[Stuck, None, list[Any] | None]:
        """Run a function for the threads in ``mask``, stopping where all that are left wait; what ``call`` returns."""
        env = function.constants.copy()
        if machine.rank:
            for slot, size in function.own:
                env[slot] = env[slot] + np.uint64(machine.rank * size)
        for slot, value in zip(function.argument_slots, args):
            env[slot] = value
        saved = machine.mask, machine.full
        pending: dict[int, Array] = {0: mask}
        waiting: dict[int, Array] = {}  # threads that stay in a block that waits
        polled: dict[int, Array] = {}  # those asked again since something else ran
        reasons: dict[int, str] = {}
        returned: list[Any] | None = None
        steps, moved = 0, False
        blocks = function.blocks
        while pending or waiting:
            if not pending:
                index = next((i for i in sorted(waiting) if i not in polled), -1)
                if index < 0:
                    yield Stuck(moved, waiting, reasons)
                    polled, moved = {}, False
                    continue
                active = polled[index] = waiting.pop(index)
            else:
                index = min(pending)
                active = pending.pop(index)
                polled, moved = {}, True
            machine.others_wait = bool(waiting)
            machine.mask = active
            machine.full = bool(active.all())
            steps += 1
            if steps > self._max_steps:
                raise self._located(SimtError(f"more than {self._max_steps} basic blocks entered: does the kernel hang?"),
                                    machine, function, index, None)
            run = None
            try:
                if machine.full:
                    for run in blocks[index].ops:
                        run(env, machine)
                else:
                    for run, slots in blocks[index].masked:
                        before = [env[s] for s in slots]
                        run(env, machine)
                        for s, old in zip(slots, before):
                            if old is not None:
                                env[s] = merge(active, env[s], old)
                run = None
                for target, taken, moves in blocks[index].terminator(env, machine):
                    if target < 0:
                        if kernel:
                            machine.exited |= taken
                        values = [env[s] for s, _ in moves]
                        returned = values if returned is None else [merge(taken, n, o) for n, o in zip(values, returned)]
                        continue
                    if target == index and blocks[index].waits:
                        waiting[index] = taken | waiting[index] if index in waiting else taken
                        reasons[index] = machine.waits_for
                        continue
                    whole = taken is active and machine.full
                    new = [env[s] for s, _ in moves]
                    for (_, slot), value in zip(moves, new):
                        old = env[slot]
                        env[slot] = value if whole or old is None else merge(taken, value, old)
                    before_mask = pending.get(target)
                    pending[target] = taken if before_mask is None else before_mask | taken
            except SimtError as e:
                raise self._located(e, machine, function, index, run) from None
            except Exception as e:
                raise self._located(SimtError(f"{type(e).__name__}: {e}"), machine, function, index, run) from e
        machine.mask, machine.full = saved
        return returned

    def _deadlock(self, function: Function, blocks: list[tuple[Machine, Stuck]]) -> SimtError:
        text = "deadlock: all threads that are left wait"
        for machine, stuck in blocks:
            text += ("\nand" if machine is not blocks[0][0] else "") + f" [program {machine.program_ids}, {function.name}]"
            for index, threads in sorted(stuck.waiting.items()):
                block = function.blocks[index]
                text += f"\n  {threads_text(threads)} at {self._where(block.names[block.terminator][1])}: {stuck.reasons[index]}"
        error = SimtError(text)
        error.located = True  # type: ignore[attr-defined]
        return error

    def _located(self, error: SimtError, machine: Machine, function: Function, index: int, run: Any) -> SimtError:
        if getattr(error, "located", False):
            return error
        block = function.blocks[index]
        if run is None and block.waits:
            run = block.terminator
        where = "at the end of a block" if run is None else f"{block.names[run][0]} at {self._where(block.names[run][1])}"
        out = SimtError(f"{error} [program {machine.program_ids}, {function.name}, {where}]")
        out.located = True  # type: ignore[attr-defined]
        return out


def _top_level(module: Any) -> list[Any]:
    operation = module.operation
    # A plain iteration builds op classes (9 µs each), and there are a handful of these.
    return [op.operation for op in operation.regions[0].blocks[0].operations]
