"""AMDGCN executed on this machine: ``simulate`` runs a kernel's assembly text, as LLVM prints it and as ``kernel.asm["amdgcn"]`` holds it.

    out = np.zeros(1000, np.float32)
    report = simulate(kernel.asm["amdgcn"], (8,), [x, y, out, 1000], shared=kernel.metadata.shared)

Every instruction of the shipped code is executed lane by lane as AMD's manuals say, with numpy, and checked: accesses outside every buffer,
registers used before their load was waited for, LDS outside the allocation, unwritten or raced for, divergent barriers. The errors
(``isa.errors``) name the kernel's Python line. The package ``isa`` is written from the manuals and shares nothing with the lowering, so that a mistake in
one of them shows. Where hardware approximates (v_exp_f32, v_rcp_f32, …) the results here are correctly rounded.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.dialects import global_races
from tilewright.dialects.errors import ArgumentError
from tilewright.dialects.simt.memory import address_range
from tilewright.targets.amd.isa import errors
from tilewright.targets.amd.isa.launch import Launch, pack_arguments
from tilewright.targets.amd.isa.machine import Machine, load
from tilewright.targets.amd.isa.memory import GlobalMemory
from tilewright.targets.amd.isa.program import Kernel, Program, parse

SimulationError = errors.SimulationError

# first word of a mnemonic → class
_CLASSES = (("v_mfma", "matrix"), ("v_smfmac", "matrix"), ("v_wmma", "matrix"), ("v_swmmac", "matrix"), ("v_", "vector"), ("s_load", "scalar memory"),
            ("s_buffer_load", "scalar memory"), ("s_waitcnt", "wait"), ("s_wait_", "wait"), ("s_barrier", "barrier"), ("s_cbranch", "branch"), ("s_branch", "branch"),
            ("s_delay_alu", "none"), ("s_nop", "none"), ("s_clause", "none"), ("s_", "scalar"), ("ds_", "LDS"), ("scratch_", "scratch"), ("global_", "global"),
            ("buffer_", "global"), ("flat_", "flat"))

_LDS_BYTES = {"gfx950": 163840}  # of a work-group; elsewhere 65536


@dataclass
class Report:
    """What a launch did. ``instructions``: mnemonic → how often a wave executed it; ``lds_conflicts``: instruction's index in the text → extra cycles
    for LDS bank conflicts, over all waves, where they were counted."""

    kernel: str
    arch: str
    work_groups: int
    waves: int
    instructions: Counter[str]
    lds_conflicts: Mapping[int, int] = field(default_factory=dict)

    @property
    def classes(self) -> Counter[str]:
        """Executed instructions by class: vector, scalar, matrix, global, LDS, scratch, scalar memory, wait, barrier, branch, flat."""
        out: Counter[str] = Counter()
        for name, count in self.instructions.items():
            kind = next((k for prefix, k in _CLASSES if name.startswith(prefix)), "other")
            if kind != "none":
                out[kind] += count
        return out

    def add(self, other: Report) -> None:
        """Count another launch too."""
        self.work_groups += other.work_groups
        self.waves += other.waves
        self.instructions += other.instructions
        self.lds_conflicts = Counter(self.lds_conflicts) + Counter(other.lds_conflicts)


# -------------------------------------------------------------------------------------------------- further buffers
class _Registered:
    """Memory that kernels may touch while this is open; a context manager."""

    def __init__(self, array: Any):
        self.array, (self.first, size) = array, address_range(array)
        self.end = self.first + size
        with _lock:
            _registered.append(self)

    def close(self) -> None:
        with _lock:
            if self in _registered:
                _registered.remove(self)

    def __enter__(self) -> _Registered:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


_registered: list[_Registered] = []
_lock = threading.Lock()


def register_buffer(array: Any) -> _Registered:
    """Let kernels touch the memory of ``array`` (numpy, torch CPU tensor), which they reach by addresses that are no arguments, until ``close()`` or the end
    of a with block."""
    if not _is_array(array):
        raise ArgumentError(f"memory is an array of numpy or a tensor of torch; found {type(array).__name__}")
    return _Registered(array)


def _is_array(value: Any) -> bool:
    return hasattr(value, "data_ptr") or (hasattr(value, "__array_interface__") and bool(value.ndim))


def _sizes(what: str, value: Any, least: int) -> tuple[int, int, int]:
    """One to three ints, filled up with ``least``."""
    sizes = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(sizes) <= 3 or not all(hasattr(n, "__index__") and n >= 0 for n in sizes):
        raise ArgumentError(f"{what} is one to three integers of 0 or more; found {value!r}")
    x, y, z = (*map(int, sizes), least, least)[:3]
    return x, y, z


_ANY_SIZE = 1024  # what LLVM writes down of kernels that say nothing


def _check(program: Program, kernel: Kernel, threads: int, lds: int, shared: int) -> None:
    """Raise ArgumentError for what no device of the arch would start."""
    most = int(kernel.metadata.get("max_flat_workgroup_size", 1024))
    if threads <= 0 or threads != most and (threads > most or most < _ANY_SIZE):
        raise ArgumentError(f"num_warps: {kernel.name} was compiled for {'up to ' if most == _ANY_SIZE else ''}{most // kernel.lanes} waves of "
                            f"{kernel.lanes} lanes a work-group; found {threads // kernel.lanes}")
    if shared < 0 or lds > _LDS_BYTES.get(program.arch, 65536):
        raise ArgumentError(f"shared: a work-group of {program.arch} has 0 to {_LDS_BYTES.get(program.arch, 65536)} bytes of LDS; found {lds if shared >= 0 else shared}")


# ------------------------------------------------------------------------------------------------------- launching
def simulate(text: str, grid: Sequence[int], args: Sequence[Any], *, kernel: str | None = None, num_warps: int = 0, shared: int = 0,
             buffers: Iterable[tuple[int, int]] = (), groups: Iterable[tuple[int, int, int]] | None = None, check: bool = True,
             conflicts: bool = False) -> Report:
    """Run the work-groups of ``grid`` (up to three ints), or only ``groups``.

    text: AMDGCN of the arch that its first line names. args: one an explicit argument: numpy array or torch CPU tensor (changed in place), int (a scalar, or an
    address), float, bool, numpy scalar, or bytes as they stand in the kernarg segment. kernel: its name where the text has several. num_warps:
    waves of a work-group (default: as many as it was compiled for; others are refused). shared: bytes of dynamic LDS. buffers: further memory, [first, end) addresses.
    check=False leaves out waits and races (bounds are always checked); TILEWRIGHT_SIMULATE_GLOBAL_RACES=0 in the environment those in global memory. conflicts=True
    counts LDS bank conflicts. Raises SimulationError, and ArgumentError for a launch that no device would start.
    """
    if not isinstance(text, str):
        raise ArgumentError(f"the simulator takes AMDGCN text (asm[\"amdgcn\"]); found {type(text).__name__}")
    program = parse(text)
    chosen = program.kernel(kernel)
    values: list[Any] = []
    memory = GlobalMemory(buffers)
    for i, arg in enumerate(args):
        if _is_array(arg):
            first, size = address_range(arg)
            memory.add(first, first + size, f"argument {i}")
            values.append(int(arg.data_ptr()) if hasattr(arg, "data_ptr") else int(arg.__array_interface__["data"][0]))
        elif isinstance(arg, bool):
            values.append(int(arg))
        elif arg is None or isinstance(arg, (int, float, bytes)) or hasattr(arg, "tobytes"):
            values.append(arg)
        else:
            raise ArgumentError(f"argument {i} is a {type(arg).__name__}; the simulator takes arrays, tensors, numbers and bytes")
    sizes = _sizes("grid", grid, 1)
    if groups is not None:
        groups = [_sizes("a work-group of groups", g, 0) for g in groups]
        if outside := [g for g in groups if any(i >= n for i, n in zip(g, sizes))]:
            raise ArgumentError(f"the grid {sizes} has no work-group {outside[0]}")
    return run_packed(program, chosen, sizes, values, memory, num_warps, shared, groups, check, conflicts)


def run_packed(program: Program, kernel: Kernel, grid: tuple[int, int, int], values: Sequence[Any], memory: GlobalMemory, num_warps: int, shared: int,
               groups: Iterable[tuple[int, int, int]] | None = None, check: bool = True, conflicts: bool = False) -> Report:
    """``simulate`` for values that pack_arguments takes."""
    code = load(program, kernel)
    threads = num_warps * kernel.lanes or int(kernel.metadata.get("max_flat_workgroup_size", 256))
    block = (threads, 1, 1)
    lds = int(kernel.descriptor.get("group_segment_fixed_size", 0)) + shared
    _check(program, kernel, threads, lds, shared)
    with _lock:
        for registered in _registered:
            memory.add(registered.first, registered.end, "registered buffer")
    launch = Launch(grid, block, pack_arguments(kernel, values, grid, block, shared), lds)
    machine = Machine(code, launch, memory, check=check, check_global=global_races.wanted())
    cycles: dict[int, list[int]] = {}  # instruction → [accesses, cycles, cycles without conflicts]
    if conflicts:
        machine.lds_conflicts = cycles
    machine.run(groups)
    return Report(kernel.name, program.arch, machine.waves_run // machine.waves_per_group, machine.waves_run, machine.counts,
                  {pc: taken - least for pc, (_, taken, least) in cycles.items()})


__all__ = ["Report", "SimulationError", "errors", "register_buffer", "simulate"]
