"""Which element each register of a thread holds, computed from the thread's number with shifts, masks and xors.

A layout is linear over GF(2), so an index is the xor of a part that depends on the thread (its lane and warp bits) and of a
constant for each register. The first is computed once in the entry block; the second is an ``or`` (or ``xor`` where bits
overlap) made where it is needed, which the back ends fold into addresses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.lowering.builder import LLVMBuilder


class Indices:
    """Index arithmetic of one function. ``entry()`` is a context manager that builds in the entry block."""

    def __init__(self, b: LLVMBuilder, entry: Any, thread_id: Any):
        self.b = b
        self._entry = entry
        self._make_thread_id = thread_id
        self._thread: Any = None
        self._groups: dict[tuple[int, int, int], Any] = {}
        self._parts: dict[tuple[int, ...], Any] = {}
        self._owner_masks: dict[int, Any] = {}
        self._block: Any = None
        self._in_block: dict[Any, Any] = {}

    @property
    def thread(self) -> Any:
        """This thread's number in the block (i32): lane in the low bits, warp above."""
        if self._thread is None:
            with self._entry():
                self._thread = self._make_thread_id(self.b)
        return self._thread

    def linear(self, columns: Sequence[int]) -> Any | None:
        """The xor of ``columns[i]`` over the set bits i of the thread's number (i32); None where all columns are 0."""
        columns = tuple(columns)
        if columns not in self._parts:
            self._parts[columns] = self._linear(columns)
        return self._parts[columns]

    def _linear(self, columns: tuple[int, ...]) -> Any | None:
        by_shift: dict[int, int] = {}
        for i, c in enumerate(columns):
            j = 0
            while c >> j:
                if c >> j & 1:
                    by_shift[j - i] = by_shift.get(j - i, 0) | 1 << i
                j += 1
        if not by_shift:
            return None
        thread = self.thread
        b = self.b
        with self._entry():
            total, covered = None, 0
            for shift, mask in by_shift.items():
                value = self._group(thread, mask, shift, len(columns))
                out = mask << shift if shift >= 0 else mask >> -shift
                if total is None:
                    total = value
                elif covered & out:
                    total = b.xor(total, value)
                else:
                    total = b.or_(total, value, disjoint=True)
                covered |= out
        return total

    def _group(self, thread: Any, mask: int, shift: int, bits: int) -> Any:
        key = (mask, shift, bits)
        value = self._groups.get(key)
        if value is None:
            b = self.b
            low = (mask & -mask).bit_length() - 1
            value = thread
            # The bits above the thread's number are 0, so a mask of all high bits is no mask once they are shifted down.
            if mask != ((1 << bits) - 1) and not (shift < 0 and -shift == low and mask >> low == (1 << (bits - low)) - 1):
                value = b.and_(value, b.i32(mask))
            if shift > 0:
                value = b.shl(value, b.i32(shift))
            elif shift < 0:
                value = b.lshr(value, b.i32(-shift))
            self._groups[key] = value
        return value

    def combined(self, columns: Sequence[int], constant: int) -> Any:
        """``linear(columns) ^ constant`` (i32)."""
        columns = tuple(columns)
        part = self.linear(columns)
        b = self.b
        if part is None:
            return b.i32(constant)
        if not constant:
            return part
        if b.current is not self._block:
            self._block, self._in_block = b.current, {}
        key = (columns, constant)
        value = self._in_block.get(key)
        if value is None:
            reach = 0
            for c in columns:
                reach |= c
            number = b.i32(constant)
            value = self._in_block[key] = b.xor(part, number) if reach & constant else b.or_(part, number, disjoint=True)
        return value

    # ------------------------------------------------------------------------------------------------- layouts
    def flat(self, layout: LinearLayout) -> list[Any]:
        """Row-major number of the element that each register holds (i32)."""
        columns = thread_columns(layout)
        return [self.combined(columns, c) for c in register_constants(layout)]

    def elements(self, layout: LinearLayout) -> list[tuple[Any, ...]]:
        """For each register the element's coordinates, one i32 a dim."""
        columns, constants = thread_columns(layout), register_constants(layout)
        dims = []
        for shift, bits in fields(layout):
            mask = (1 << bits) - 1
            own = [(c >> shift) & mask for c in columns]
            dims.append([self.combined(own, (c >> shift) & mask) for c in constants])
        return list(zip(*dims)) if dims else [()]

    def along(self, layout: LinearLayout, dim: int) -> list[Any]:
        """For each register the element's coordinate along ``dim`` (i32)."""
        shift, bits = fields(layout)[dim]
        mask = (1 << bits) - 1
        own = [(c >> shift) & mask for c in thread_columns(layout)]
        return [self.combined(own, (c >> shift) & mask) for c in register_constants(layout)]

    def owner(self, layout: LinearLayout) -> Any | None:
        """i1: this thread is the one of those holding an element that acts for it. None where every thread is."""
        masks = layout.free_variable_masks()
        return self.bits_are_zero(masks.get("lane", 0) | masks.get("warp", 0) << len(layout.columns("lane")))

    def bits_are_zero(self, mask: int) -> Any | None:
        """i1: none of ``mask``'s bits is set in the thread's number. None where the mask is 0."""
        if not mask:
            return None
        value = self._owner_masks.get(mask)
        if value is None:
            thread, b = self.thread, self.b
            with self._entry():
                value = b.icmp("eq", b.and_(thread, b.i32(mask)), b.i32(0))
            self._owner_masks[mask] = value
        return value


# ------------------------------------------------------------------------------------------- facts about layouts
_constants: dict[LinearLayout, list[int]] = {}


def thread_columns(layout: LinearLayout) -> tuple[int, ...]:
    """Flattened bases of the thread's number: lanes, then warps."""
    return (*layout.columns("lane"), *layout.columns("warp"))


def register_constants(layout: LinearLayout) -> list[int]:
    """Row-major number of the element of each register in thread 0. Cached; do not write to it."""
    found = _constants.get(layout)
    if found is None:
        found = [0]
        for c in layout.columns("register"):
            found = found + [x ^ c for x in found]
        if len(_constants) > 5000:
            _constants.clear()
        _constants[layout] = found
    return found


def fields(layout: LinearLayout) -> list[tuple[int, int]]:
    """(shift, bits) of each out dim in the row-major number."""
    out, at = [], layout.total_out_bits
    for d in layout.out_dims:
        bits = layout.out_bits(d)
        at -= bits
        out.append((at, bits))
    return out


def unflatten(layout: LinearLayout, flat: int) -> tuple[int, ...]:
    """Coordinates of a row-major number."""
    return tuple((flat >> shift) & ((1 << bits) - 1) for shift, bits in fields(layout))


def registers_by_element(layout: LinearLayout) -> dict[int, int]:
    """Row-major number → first register of thread 0 that holds the element."""
    found: dict[int, int] = {}
    for r, element in enumerate(register_constants(layout)):
        found.setdefault(element, r)
    return found
