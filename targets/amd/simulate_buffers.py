"""The meaning of raw buffer loads and stores, for the SIMT executor: from the ISA manuals (CDNA 3, section 9.1; RDNA 3, section 9.4).

A resource is the pair of its base address and its size in bytes. An access whose offset does not lie below the size reads 0 or is dropped.
Stricter than the hardware: one that begins inside and ends outside is an error, and so is one that is far out without having been put there.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.dialects.simt import SimtError
from tilewright.dialects.simt.executor import CallInfo, Machine
from tilewright.dialects.simt.values import from_bytes, to_bytes

Array = Any
# Lanes are masked off by an offset of half the address range, and what the instruction adds.
_PUT_OUTSIDE, _ADDED = 1 << 31, 1 << 24
_WORD_3 = {"gfx9": 0x00027000, "gfx1": 0x31027000}  # a raw buffer's: 32-bit data; on RDNA compared by its offset


def _resource(arch: str) -> Callable[[CallInfo], Callable[..., Any]]:
    expected = _WORD_3[arch[:4]]

    def make(info: CallInfo) -> Callable[..., Any]:
        def run(m: Machine, base: Array, stride: Array, records: Array, flags: Array) -> Any:
            if stride.any() or (flags != expected).any():
                raise SimtError(f"a buffer resource with stride {int(stride[0])} and flags {int(flags[0]):#x}; a raw one on {arch} has 0 and {expected:#x}")
            active = m.mask
            for what, x in (("base", base), ("size", records)):
                if active.any() and (x[active] != x[active][0]).any():
                    raise SimtError(f"the {what} of a buffer resource differs between threads")
            if active.any() and not 0 <= int(records[active][0]) < _PUT_OUTSIDE:
                raise SimtError(f"a buffer of {int(records[active][0])} bytes: offsets are put outside at {_PUT_OUTSIDE}")
            return base.astype(np.uint64), records.astype(np.int64)

        return run

    return make


def _inside(m: Machine, resource: tuple[Array, Array], offset: Array, scalar: Array, nbytes: int, what: str) -> tuple[Array, Array]:
    """(addresses, which active threads' accesses are in range)."""
    base, records = resource
    at = offset.astype(np.int64)
    inside = (at < records - scalar.astype(np.int64)) & m.mask
    end = at + scalar.astype(np.int64) + nbytes
    for bad, why in ((inside & (end > records), "begins inside the buffer and ends outside"),
                     (m.mask & (at >= _PUT_OUTSIDE + _ADDED), "is far outside the buffer")):
        if bad.any():
            thread = int(np.flatnonzero(bad)[0])
            raise SimtError(f"a buffer {what} of {nbytes} bytes at offset {int(at[thread]):#x} {why} (thread {thread}; {int(records[thread])} bytes)")
    return base + offset.astype(np.uint64) + scalar.astype(np.uint64), inside


def _load(info: CallInfo) -> Callable[..., Any]:
    def run(m: Machine, resource: Any, offset: Array, scalar: Array, auxiliary: Array) -> Array:
        addresses, inside = _inside(m, resource, offset, scalar, info.result.nbytes, "load")
        return from_bytes(m.load_bytes(addresses, info.result.nbytes, 1, inside, min(4, info.result.nbytes)), info.result)

    return run


def _store(info: CallInfo) -> Callable[..., Any]:
    stored = info.operands[0]

    def run(m: Machine, value: Array, resource: Any, offset: Array, scalar: Array, auxiliary: Array) -> None:
        addresses, inside = _inside(m, resource, offset, scalar, stored.nbytes, "store")
        m.store_bytes(addresses, to_bytes(value, stored), 1, inside, min(4, stored.nbytes))

    return run


def _load_to_lds(info: CallInfo) -> Callable[..., Any]:
    """CDNA 4 ISA manual, buffer loads with LDS: lane i's bytes go to the wave's address + i · size; zeros where out of range. Here they are there
    at once; what waits and barriers must see to is for the instruction-level simulator."""
    def run(m: Machine, resource: Any, target: Array, size: Array, offset: Array, scalar: Array, immediate: Array, auxiliary: Array) -> None:
        nbytes = int(size[0])
        m.require_full_warps("a load to LDS")
        addresses, inside = _inside(m, resource, offset, scalar + immediate, nbytes, "load")
        data = m.load_bytes(addresses, nbytes, 1, inside, 4)
        waves = target.reshape(-1, m.warp_size)
        if (waves != waves[:, :1]).any():
            raise SimtError("the address in LDS of a load differs between a wave's lanes")
        m.store_bytes(target + m.lane_ids.astype(np.uint64) * np.uint64(nbytes), data, 3, m.mask, 4)

    return run


def _nothing(info: CallInfo) -> Callable[..., Any]:
    return lambda m, *args: None


def _first_lane(info: CallInfo) -> Callable[..., Any]:
    def run(m: Machine, value: Array) -> Array:
        waves = m.mask.reshape(-1, m.warp_size)
        first = np.arange(len(waves)) * m.warp_size + waves.argmax(axis=1)
        return np.repeat(value[first], m.warp_size)

    return run


def semantics(arch: str) -> dict[Any, Callable[[CallInfo], Callable[..., Any]]]:
    """Intrinsics by name or pattern."""
    return {"llvm.amdgcn.make.buffer.rsrc.p8.p1": _resource(arch),
            re.compile(r"^llvm\.amdgcn\.raw\.ptr\.buffer\.load\."): _load,
            re.compile(r"^llvm\.amdgcn\.raw\.ptr\.buffer\.store\."): _store,
            "llvm.amdgcn.raw.ptr.buffer.load.lds": _load_to_lds, "llvm.amdgcn.s.waitcnt": _nothing,
            "llvm.amdgcn.s.wait.dscnt": _nothing, "llvm.amdgcn.s.wait.storecnt": _nothing,
            re.compile(r"^llvm\.amdgcn\.readfirstlane\."): _first_lane, "llvm.amdgcn.sched.group.barrier": _nothing, "llvm.amdgcn.iglp.opt": _nothing}
