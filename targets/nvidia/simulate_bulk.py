"""Meaning of bulk copies (TMA): cp.async.bulk.tensor, cp.reduce.async.bulk.tensor and their groups (PTX ISA manual, "Data Movement and
Conversion Instructions: Asynchronous copy", "Tensors"; CUDA driver API, cuTensorMapEncodeTiled). Written apart from the lowering.

A load's bytes are there at once, but only who has learnt of it from the mbarrier may touch them. A store reads shared memory when
its group is waited for, as late as a device may.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.dialects.simt import SimtError
from tilewright.dialects.simt.values import VType, bf16_to_f32, f32_to_bf16
from tilewright.targets.nvidia.simulate_barriers import (
    RANK,
    MBarriers,
    active,
    block_of,
    of_block,
    shared_offset,
    warp_of,
)
from tilewright.targets.nvidia.simulate_instructions import Handler

Array = Any

_NAN = {"fp16": 0x7FFF, "bf16": 0x7FFF, "fp32": 0x7FFFFFFF, "fp64": 0x7FFFFFFFFFFFFFFF}


@dataclass(frozen=True)
class TensorMap:
    """What a kernel argument of 128 bytes describes. Extents, strides (elements) and box are outermost first; ``dtype`` is a Triton name.

    Raises SimtError for what cuTensorMapEncodeTiled refuses.
    """

    base: int
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    nan_fill: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        def require(holds: bool, text: str) -> None:
            if not holds:
                raise SimtError(f"tensor map {self.name or self}: {text}")

        rank, inner = len(self.shape), self.box[-1] * self.itemsize
        require(1 <= rank <= 5 and len(self.strides) == len(self.box) == rank, f"rank {rank} is not 1 to 5, or extents, strides and box differ in it")
        require(self.base % 16 == 0, f"the base address {self.base:#x} is not a multiple of 16")
        require(all(1 <= n <= 1 << 32 for n in self.shape), f"extents {self.shape} are not 1 to 2^32")
        require(all(1 <= n <= 256 for n in self.box), f"the box {self.box} is not of 1 to 256 elements")
        require(self.strides[-1] == 1, f"the innermost stride is 1, found {self.strides[-1]}")
        require(all(s * self.itemsize % 16 == 0 and 0 <= s * self.itemsize < 1 << 40 for s in self.strides[:-1]),
                f"strides {self.strides} of {self.itemsize} bytes are not multiples of 16 bytes below 2^40")
        require(inner % 16 == 0, f"the box's rows have {inner} bytes, not a multiple of 16")
        require(self.swizzle in (0, 32, 64, 128), f"swizzle {self.swizzle}")
        require(not self.swizzle or inner <= self.swizzle, f"the box's rows have {inner} bytes, more than the swizzle's {self.swizzle}")
        require(not self.nan_fill or self.dtype in _NAN, f"NaN fill of {self.dtype}")

    @property
    def box_bytes(self) -> int:
        return int(np.prod(self.box)) * self.itemsize

    def rows(self, coords: Sequence[int]) -> tuple[Array, Array, int, int]:
        """The box's innermost rows at ``coords`` (outermost first): (address of each row's first inside element, is the row inside,
        first and last-plus-one inside element)."""
        count = int(np.prod(self.box[:-1]))
        outer = np.indices(self.box[:-1]).reshape(len(self.box) - 1, count) + np.array(coords[:-1], np.int64)[:, None]
        inside = np.ones(count, bool)
        address = np.full(len(inside), self.base, np.int64)
        for i in range(len(self.box) - 1):
            inside &= (outer[i] >= 0) & (outer[i] < self.shape[i])
            address = address + outer[i] * (self.strides[i] * self.itemsize)
        low = max(0, -coords[-1])
        high = max(low, min(self.box[-1], self.shape[-1] - coords[-1]))
        return address + (coords[-1] + low) * self.itemsize, inside & (high > low), low, high

    def require_edges(self, coords: Sequence[int], stores: bool, what: str) -> None:
        """What no manual says of bulk copies, and an H200 does (passes/host_recipe.py); raises SimtError where a copy would meet it."""
        if coords[-1] * self.itemsize % 16:
            raise SimtError(f"{what} that begins at element {coords[-1]} of {self.itemsize} bytes of a row, within 16 bytes: an illegal instruction on an H200")
        if stores and min(coords) < 0:
            raise SimtError(f"{what} that begins at {tuple(coords)}, below 0: an illegal instruction on an H200")
        end = self.shape[-1]
        if stores and coords[-1] < end < coords[-1] + self.box[-1] and end * self.itemsize % 16:
            raise SimtError(f"{what} into rows of {end} elements of {self.itemsize} bytes: an H200 writes the last 16 bytes whole, beyond the rows' end")

    def shared_bytes(self, address: int, what: str) -> Array:
        """int[box_bytes]: where the box's bytes lie in shared memory, in the box's order. 16-byte pieces are exchanged within
        ``swizzle`` bytes by the 128-byte line that they are in: address bits 4 and up are xor-ed with bits 7 and up."""
        repeat = 8 * self.swizzle if self.swizzle else 128
        if address % repeat:
            raise SimtError(f"{what}: shared address {address} is not a multiple of {repeat}, where "
                            + ("the swizzle begins" if self.swizzle else "copies may begin"))
        if self.swizzle and self.box[-1] * self.itemsize != self.swizzle:
            raise SimtError(f"{what}: rows of {self.box[-1] * self.itemsize} bytes with a swizzle of {self.swizzle} are not simulated")
        return swizzled(address + np.arange(self.box_bytes, dtype=np.int64), self.swizzle)

    def fill(self, count: int) -> Array:
        pattern = _NAN[self.dtype] if self.nan_fill else 0
        return np.tile(np.frombuffer(pattern.to_bytes(self.itemsize, "little"), np.uint8), count)


def swizzled(address: Array, width: int) -> Array:
    """PTX ISA, "Swizzling modes": within ``width`` bytes, 16-byte pieces are xor-ed with the number of the 128-byte line."""
    return address ^ ((address >> 3) & (width - 16)) if width else address


class BulkStore:
    """One store of a box. ``time``: of its read of shared memory, in the order of events there; ``token``: its write, where races are looked for."""

    def __init__(self, time: int, machine: Any, index: Array, put: Callable[[Array], None], token: Any = None):
        self.token = token
        self.time, self.machine, self.index, self.put = time, machine, index, put
        self.data: Array | None = None

    def read(self) -> None:
        if self.data is None:
            self.data = self.machine.shared.data[self.index].copy()

    def write(self) -> None:
        self.read()
        assert self.data is not None
        self.put(self.data)


class BulkGroups:
    """Each thread's bulk stores: begun, committed groups, and groups that have read shared memory but need not have written yet.

    The latter come to memory as late as they may, the last one first, so that results are wrong where a kernel counts on their order."""

    def __init__(self) -> None:
        self.begun: dict[int, list[BulkStore]] = {}
        self.groups: dict[int, list[list[BulkStore]]] = {}
        self.unwritten: dict[int, list[list[BulkStore]]] = {}

    @staticmethod
    def of(m: Any) -> BulkGroups:
        return m.state.setdefault("bulk", BulkGroups())  # type: ignore[no-any-return]

    def finish(self, machine: Any) -> None:
        if any(self.begun.values()) or any(any(g) for g in self.groups.values()):
            raise SimtError("the kernel ends while bulk stores may still read shared memory: cp.async.bulk.wait_group is missing")
        for groups in self.unwritten.values():
            for group in reversed(groups):
                for store in reversed(group):
                    store.write()
        self.unwritten.clear()


def _map_of(m: Any, address: int) -> TensorMap:
    tensor_map = m.objects.get(address)
    if not isinstance(tensor_map, TensorMap):
        raise SimtError(f"address {address:#x} is no tensor map; it must be a kernel argument passed by value")
    return tensor_map


def _place(state: Any, operand: Any, thread: int, parts: list[str]) -> tuple[TensorMap, list[int]]:
    """The tensor map and coordinates, outermost first, of a ``[map, {c0, c1, …}]`` operand (innermost first)."""
    if operand.kind != "tensor":
        raise SimtError(f"{'.'.join(parts)}: expected [tensor map, {{coordinates}}]")
    base, coords = operand.value
    tensor_map = _map_of(state.machine, int(state.read(base)[thread]))
    values = [int(np.int32(np.uint32(state.read(c)[thread]))) for c in coords]
    rank = int(parts[next(i for i, p in enumerate(parts) if p == "tensor") + 1][0])
    if not len(values) == rank == len(tensor_map.shape):
        raise SimtError(f"{'.'.join(parts)} with {len(values)} coordinates and a tensor map of rank {len(tensor_map.shape)}")
    return tensor_map, values[::-1]


def cp(parts: list[str]) -> Handler | None:
    """cp.async.bulk… and cp.reduce.async.bulk…; None for other copies."""
    if "bulk" not in parts:
        return None
    name = ".".join(parts)
    if "commit_group" in parts:
        return _commit
    if "wait_group" in parts:
        return _wait(parts)
    if "prefetch" in parts:
        return lambda state, operands, mask: None
    unknown = {"im2col", "gather4", "scatter4", "tile::gather4", "tile::scatter4", "im2col_no_offs"} & set(parts)
    if "tensor" not in parts or unknown:
        raise SimtError(f"{name} is unknown to the simulator")
    places = [p for p in parts if p in ("global", "shared::cta", "shared::cluster")]
    if places in (["shared::cluster", "global"], ["shared::cta", "global"]) and "mbarrier::complete_tx::bytes" in parts and parts[1] == "async":
        return _load(parts)
    if places == ["global", "shared::cta"] and "bulk_group" in parts:
        return _store(parts)
    raise SimtError(f"{name} is unknown to the simulator")


def _load(parts: list[str]) -> Handler:
    """[dst], [map, {coords}], [mbar]{, mask of the cluster's blocks}{, policy}. To each block of the mask (else to the one that dst names)
    go the bytes, to dst's offset in its shared memory, and the completion, to the mbarrier at mbar's offset."""
    multicast = "multicast::cluster" in parts
    expected = 3 + ("multicast::cluster" in parts) + ("L2::cache_hint" in parts)

    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        if len(operands) != expected:
            raise SimtError(f"{'.'.join(parts)} takes {expected} operands, found {len(operands)}")
        where, barriers = state.address(operands[0]), state.address(operands[2])
        order = m.shared.order
        for t in np.flatnonzero(active(state, mask)).tolist():
            tensor_map, coords = _place(state, operands[1], t, parts)
            home, offset = block_of(m, int(where[t]), parts)
            other, bar = block_of(m, int(barriers[t]), parts)
            if other is not home:
                raise SimtError(f"a bulk copy to block {home.rank} of the cluster, whose mbarrier is in block {other.rank}")
            ranks = _ranks(m, int(state.read(operands[3])[t]) & 0xFFFF) if multicast else [home.rank]
            tensor_map.require_edges(coords, False, "a bulk copy")
            index = tensor_map.shared_bytes(offset, "a bulk copy")
            data, token = _read_box(m, tensor_map, coords, warp_of(m, t))
            read = order.nothing() if token is None else m.races.ended(token)
            for target in (m.group.machines[r] for r in ranks):
                address = bar if target is m else bar | target.rank + 1 << RANK
                _, barrier = MBarriers.reached(m, t, address, parts, "a bulk copy's mbarrier")
                event = target.shared.unit_write(index, data, [warp_of(m, t)], f"a bulk copy{of_block(target)}")
                # Only the bytes' arrival is learnt from the barrier, not what the copying thread did before.
                barrier.complete(tensor_map.box_bytes, order.event_clock(event, read))
            if multicast:
                m.group.count("multicast copies")

    return run


def _ranks(m: Any, mask: int) -> list[int]:
    """The blocks of a multicast's mask."""
    ranks = [r for r in range(16) if mask >> r & 1]
    if not ranks or ranks[-1] >= len(m.group.machines):
        raise SimtError(f"a bulk copy to the blocks of mask {mask:#x} of a cluster of {len(m.group.machines)}")
    return ranks


def _read_box(m: Any, tensor_map: TensorMap, coords: list[int], warp: int) -> tuple[Array, Any]:
    """The box's bytes, and what ``races.ended`` takes where races in global memory are looked for."""
    address, inside, low, high = tensor_map.rows(coords)
    item = tensor_map.itemsize
    data = tensor_map.fill(int(np.prod(tensor_map.box))).reshape(len(address), -1)
    token = None
    if inside.any():
        where, size = address[inside].astype(np.uint64), (high - low) * item
        data[inside, low * item:high * item] = m.memory.load(where, size)
        if m.races is not None:
            token = m.races.unit_reads(m, where, size, warp)
    return data.reshape(-1), token


def _store(parts: list[str]) -> Handler:
    """[map, {coords}], [src]{, policy}; with .reduce an operation between."""
    expected = 3 if "L2::cache_hint" in parts else 2
    reduce = None
    if parts[1] == "reduce":
        reduce = next((p for p in parts if p in ("add", "min", "max", "and", "or", "xor", "inc", "dec")), None)
        if reduce in (None, "inc", "dec"):
            raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")

    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        if len(operands) != expected:
            raise SimtError(f"{'.'.join(parts)} takes {expected} operands, found {len(operands)}")
        sources = state.address(operands[1])
        for t in np.flatnonzero(active(state, mask)).tolist():
            tensor_map, coords = _place(state, operands[0], t, parts)
            tensor_map.require_edges(coords, True, "a bulk store")
            index = tensor_map.shared_bytes(shared_offset(int(sources[t])), "a bulk store")
            warp = warp_of(m, t)
            time = m.shared.unit_read(index, [warp], m.shared.order.stream(1, warp), "a bulk store")
            token = None
            if m.races is not None and reduce is None:  # reductions are atomics, which race with nobody here
                where, new = _inside(tensor_map, coords, m.shared.data[index])
                token = m.races.unit_writes(m, where, new, warp) if len(where) else None
            BulkGroups.of(m).begun.setdefault(t, []).append(
                BulkStore(time, m, index, lambda data, tm=tensor_map, c=coords: _write_box(m, tm, c, data, reduce), token))  # type: ignore[misc]

    return run


def _write_box(m: Any, tensor_map: TensorMap, coords: list[int], data: Array, reduce: str | None) -> None:
    where, new = _inside(tensor_map, coords, data)
    if not len(where):
        return
    if reduce is not None:
        new = _reduced(tensor_map, reduce, m.memory.load(where, new.shape[1]), new)
    m.memory.store(where, new)


def _inside(tensor_map: TensorMap, coords: list[int], data: Array) -> tuple[Array, Array]:
    """(addresses, uint8 rows) of what a box of ``data`` has inside the map's array."""
    address, inside, low, high = tensor_map.rows(coords)
    item = tensor_map.itemsize
    return address[inside].astype(np.uint64), np.ascontiguousarray(data.reshape(len(address), -1)[inside, low * item:high * item])


def _reduced(tensor_map: TensorMap, op: str, old: Array, new: Array) -> Array:
    """Elementwise in the map's element type."""
    t = tensor_map.dtype
    if t in ("fp16", "fp32", "fp64", "bf16"):
        vtype = VType("bf16", 16) if t == "bf16" else VType("float", int(t[2:]))
        f = {"add": np.add, "min": np.fmin, "max": np.fmax}.get(op)
        if f is None:
            raise SimtError(f"a bulk reduction {op} of {t}")
        a, b = (np.ascontiguousarray(x).view(vtype.dtype) for x in (old, new))
        out = f32_to_bf16(f(bf16_to_f32(a), bf16_to_f32(b))) if t == "bf16" else f(a, b)
        return np.ascontiguousarray(out).view(np.uint8)
    kind = "u" if t.startswith("u") else "i"
    a, b = (np.ascontiguousarray(x).view(f"{kind}{tensor_map.itemsize}") for x in (old, new))
    out = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op](a, b)
    return np.ascontiguousarray(out).view(np.uint8)


def _commit(state: Any, operands: Any, mask: Any) -> None:
    groups = BulkGroups.of(state.machine)
    for t in np.flatnonzero(active(state, mask)).tolist():
        groups.groups.setdefault(t, []).append(groups.begun.pop(t, []))


def _wait(parts: list[str]) -> Handler:
    """cp.async.bulk.wait_group{.read} n: all but the n latest groups of each thread have read (and, without .read, written)."""
    written = "read" not in parts

    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        bulk, pending = BulkGroups.of(m), operands[0].value
        if operands[0].kind != "imm":
            raise SimtError("cp.async.bulk.wait_group takes a number")
        for t in np.flatnonzero(active(state, mask)).tolist():
            mine = bulk.groups.get(t, [])
            done = mine[:max(0, len(mine) - pending)]
            for group in done:
                for store in group:
                    store.read()
                    m.shared.order.stream_done([warp_of(m, t)], m.shared.order.stream(1, warp_of(m, t)), store.time)
            bulk.groups[t] = mine[len(done):]
            unwritten = bulk.unwritten.setdefault(t, [])
            unwritten += done
            if written:
                complete = max(0, len(unwritten) + len(bulk.groups[t]) - pending)
                for group in unwritten[:complete]:
                    for store in group:
                        store.write()
                        if store.token is not None:
                            m.shared.order.acquire([warp_of(m, t)], m.races.ended(store.token))
                del unwritten[:complete]

    return run


def prefetch(parts: list[str]) -> Handler:
    """prefetch.tensormap [map]; prefetch of ordinary addresses does nothing that is seen."""
    def run(state: Any, operands: Any, mask: Any) -> None:
        if "tensormap" in parts:
            address = state.address(operands[0])
            for t in np.flatnonzero(active(state, mask)).tolist():
                _map_of(state.machine, int(address[t]))

    return run
