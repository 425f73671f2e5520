"""What a dispatch sets up: the kernarg segment and each wave's first registers.

LLVM's "User Guide for AMDGPU Backend": "Kernel Argument Segment", "Code Object V5 Metadata" (hidden arguments) and "Initial Kernel Execution
State" (order of the SGPRs, packed work-item ids).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.dialects.errors import ArgumentError
from tilewright.targets.amd.isa.errors import UnknownInstruction
from tilewright.targets.amd.isa.program import Argument, Kernel
from tilewright.targets.amd.isa.state import M0, PRIVATE_APERTURE, TTMP, Batch

Array = Any
POISON = 0xFFC7FEC7  # what registers hold before they are written: NaN as f32, and as two f16


@dataclass
class Launch:
    """``grid`` in work-groups, ``block`` in work-items; ``kernarg``: the segment, which stays alive; ``lds_bytes`` of a work-group."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    kernarg: Array
    lds_bytes: int

    @property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]


# ------------------------------------------------------------------------------------------------- kernarg segment
def pack_arguments(kernel: Kernel, args: Sequence[Any], grid: tuple[int, int, int], block: tuple[int, int, int], dynamic_lds: int) -> Array:
    """The kernarg segment: uint8, 64-byte aligned.

    args: one an explicit argument: an int (pointers: an address), a float, bytes as they stand there, or a numpy scalar."""
    explicit = [a for a in kernel.args if not a.hidden]
    padding = len(explicit) - len(args)
    if padding < 0:
        raise ArgumentError(f"{kernel.name} takes {len(explicit)} arguments, {len(args)} were given")
    if padding:
        raise ArgumentError(f"{kernel.name} takes {len(explicit)} arguments, only {len(args)} were given")
    size = int(kernel.descriptor.get("kernarg_size", 0))
    room = np.zeros(max(size, 1) + 64 + 256, np.uint8)  # scalar loads may read whole dwords past the last argument
    segment = room[-room.ctypes.data % 64:][:max(size, 1) + 64]
    hidden = hidden_values(grid, block, dynamic_lds)
    for entry in kernel.args:
        if entry.hidden:
            data = (hidden.get(entry.kind, 0) & ((1 << 8 * entry.size) - 1)).to_bytes(entry.size, "little")
        else:
            data = _argument(entry, args[explicit.index(entry)])
        segment[entry.offset:entry.offset + entry.size] = np.frombuffer(data, np.uint8)
    return segment


def _argument(entry: Argument, value: Any) -> bytes:
    if isinstance(value, np.generic):
        value = value.tobytes()
    if isinstance(value, (bytes, bytearray)):
        if len(value) != entry.size:
            raise ArgumentError(f"the argument at offset {entry.offset} has {entry.size} bytes, {len(value)} were given")
        return bytes(value)
    if isinstance(value, float):
        if entry.size not in (2, 4, 8) or entry.kind == "global_buffer":
            raise ArgumentError(f"a float was given for the argument of {entry.size} bytes at offset {entry.offset}")
        return struct.pack({2: "<e", 4: "<f", 8: "<d"}[entry.size], value)
    number = int(value or 0)
    if not -(1 << 8 * entry.size - 1) <= number < 1 << 8 * entry.size:
        raise ArgumentError(f"{number} does not fit the argument of {entry.size} bytes at offset {entry.offset}")
    return (number & ((1 << 8 * entry.size) - 1)).to_bytes(entry.size, "little")


def hidden_values(grid: tuple[int, int, int], block: tuple[int, int, int], dynamic_lds: int) -> Mapping[str, int]:
    """By .value_kind; what is not here (queues, heaps, buffers of the host) is null."""
    values = {"hidden_grid_dims": 3 if grid[2] * block[2] > 1 else 2 if grid[1] * block[1] > 1 else 1, "hidden_dynamic_lds_size": dynamic_lds,
              "hidden_private_base": PRIVATE_APERTURE >> 32, "hidden_shared_base": (0x00FFA000 << 40) >> 32}
    for axis, blocks, items in zip("xyz", grid, block):
        values |= {f"hidden_block_count_{axis}": blocks, f"hidden_group_size_{axis}": items, f"hidden_remainder_{axis}": 0,
                   f"hidden_global_offset_{axis}": 0}
    return values


# ----------------------------------------------------------------------------------------------- initial registers
_USER_SGPRS = (("private_segment_buffer", 4), ("dispatch_ptr", 2), ("queue_ptr", 2), ("kernarg_segment_ptr", 2), ("dispatch_id", 2),
               ("flat_scratch_init", 2), ("private_segment_size", 1))


def initialise(batch: Batch, kernel: Kernel, launch: Launch, groups: Sequence[tuple[int, int, int]], waves_per_group: int) -> None:
    """Registers of the waves of ``groups`` as the dispatcher leaves them; all others are poisoned."""
    d, s = kernel.descriptor, batch.s
    batch.v[...] = POISON
    batch.a[...] = POISON
    s[...] = POISON
    s[M0] = 0
    batch.scc[...] = False
    batch.last = None
    for directive, value in d.items():
        known = directive[10:] in {name for name, _ in _USER_SGPRS} or directive[10:] in ("count", "kernarg_preload_length", "kernarg_preload_offset")
        if directive.startswith("user_sgpr_") and value and not known:
            raise UnknownInstruction(f"the kernel {kernel.name} asks for {directive}, which the simulator does not set up")
    address = int(launch.kernarg.ctypes.data)
    at = 0
    for name, count in _USER_SGPRS:
        if d.get(f"user_sgpr_{name}"):
            if name == "kernarg_segment_ptr":
                s[at], s[at + 1] = address & 0xFFFFFFFF, address >> 32
            elif name == "private_segment_buffer":
                s[at:at + 4] = np.array(scratch_descriptor(), np.uint32)[:, None]
            elif name == "flat_scratch_init":
                s[at:at + 2] = 0
            elif name == "private_segment_size":
                s[at] = d.get("private_segment_fixed_size", 0)
            elif name in ("queue_ptr", "dispatch_id"):
                s[at:at + 2] = 0
            else:
                raise UnknownInstruction(f"the kernel {kernel.name} asks for {name}, which the simulator does not set up")
            at += count
    preload = d.get("user_sgpr_kernarg_preload_length", 0)
    if preload:
        words = np.frombuffer(launch.kernarg.tobytes()[:len(launch.kernarg) // 4 * 4], np.uint32)
        first = d.get("user_sgpr_kernarg_preload_offset", 0)
        s[at:at + preload] = words[first:first + preload, None]
        at += preload
    at = max(at, d.get("user_sgpr_count", 0))
    ids = np.repeat(np.array(groups, np.uint32), waves_per_group, axis=0)  # (waves, 3)
    if kernel.arch.startswith("gfx12"):
        s[TTMP + 9] = ids[:, 0]
        s[TTMP + 7] = ids[:, 1] | ids[:, 2] << np.uint32(16)
    else:
        for i, axis in enumerate("xyz"):
            if d.get(f"system_sgpr_workgroup_id_{axis}", 1 if axis == "x" else 0):
                s[at] = ids[:, i]
                at += 1
        if d.get("system_sgpr_workgroup_info"):
            raise UnknownInstruction(f"the kernel {kernel.name} asks for work-group info, which the simulator does not set up")
        if d.get("enable_private_segment") or d.get("system_sgpr_private_segment_wavefront_offset"):
            s[at] = 0  # each lane's scratch is an array of its own
    _work_items(batch, kernel, launch, waves_per_group)


def _work_items(batch: Batch, kernel: Kernel, launch: Launch, waves_per_group: int) -> None:
    """Work-item ids, packed into v0 from gfx90a and gfx11 on, and EXEC, ones for lanes that have a work-item."""
    lanes = batch.lanes
    number = np.tile(np.arange(waves_per_group * lanes, dtype=np.uint32).reshape(waves_per_group, lanes), (batch.waves // waves_per_group, 1))
    bx, by, _ = launch.block
    x, y, z = number % bx, number // bx % by, number // (bx * by)
    wanted = kernel.descriptor.get("system_vgpr_workitem_id", 0)
    if kernel.arch.startswith("gfx10"):
        for i, value in enumerate((x, y, z)[:wanted + 1]):
            batch.v[i] = value
    else:
        batch.v[0] = x
        if wanted >= 1:
            batch.v[0] |= y << np.uint32(10)
        if wanted >= 2:
            batch.v[0] |= z << np.uint32(20)
    alive = (number < launch.threads).reshape(batch.waves, lanes)
    packed = np.packbits(alive, axis=1, bitorder="little")
    batch.exec[:] = packed.view(np.uint64 if lanes == 64 else np.uint32).reshape(-1)


def scratch_descriptor() -> list[int]:
    """The buffer descriptor of scratch: the private aperture's address as base, which buffer instructions know by it."""
    base = SCRATCH_BASE
    return [base & 0xFFFFFFFF, base >> 32 & 0xFFFF | 1 << 31, 0xFFFFFFFF, 0]  # bit 63: swizzled


SCRATCH_BASE = PRIVATE_APERTURE >> 16  # fits the descriptor's 48 bits
