"""Memory of the interpreter: the buffers that were passed, found by address, read and written elementwise with checks.

bf16 and fp8 values are held as float32 arrays whose values are exact in the narrow type; this module owns the bit
patterns: it decodes on loads and rounds to nearest even on casts. A NaN is held with its pattern (bf16: the upper half; fp8: the last
byte, under a mark), so that what is loaded, moved and bitcast keeps its bits; conversions make one NaN of all.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from typing import Any

import numpy as np

from tilewright.dialects.errors import CompilationError, TilewrightError


class InterpreterError(TilewrightError):
    """The kernel did something wrong at run time: an address outside every argument, an assertion, a bad shape. Told with the user's line."""

    def __init__(self, message: str, file: str = "", line: int = 0, col: int = 0):
        self.message, self.file, self.line, self.col = message, file, line, col
        self.calls: list[tuple[str, int, str]] = []
        super().__init__(message)

    def at(self, file: str, line: int, col: int) -> InterpreterError:
        """The error with its place; unchanged where it has one already."""
        return self if self.file else type(self)(self.message, file, line, col)

    def __str__(self) -> str:
        if not self.file:
            return self.message
        told = CompilationError(self.message, self.file, self.line, self.col)
        told.calls = self.calls
        return str(told)


# name → (exponent bits, mantissa bits, bias, has infinities, has negative zero)
_SMALL_FLOATS = {
    "bf16": (8, 7, 127, True, True),
    "fp8e5": (5, 2, 15, True, True),
    "fp8e4nv": (4, 3, 7, False, True),
    "fp8e4b8": (4, 3, 8, False, False),
    "fp8e5b16": (5, 2, 16, False, False),
    "fp8e4b15": (4, 3, 15, False, True),
}
_PLAIN = {
    "int1": np.bool_, "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.int8, "uint16": np.int16, "uint32": np.int32, "uint64": np.int64,
    "fp16": np.float16, "fp32": np.float32, "fp64": np.float64,
}
_ALIASES = {"i1": "int1", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16",
            "u32": "uint32", "u64": "uint64", "f16": "fp16", "f32": "fp32", "f64": "fp64", "u1": "int1", "uint1": "int1"}


def canonical(name: str) -> str:
    """The dtype's long name ("int32", "fp16", "bf16", "fp8e5")."""
    return _ALIASES.get(name, name)


def is_small_float(name: str) -> bool:
    return canonical(name) in _SMALL_FLOATS


def numpy_dtype(name: str) -> type:
    """What holds values of the type: its own numpy dtype (signless ints are signed), float32 for bf16 and fp8."""
    name = canonical(name)
    return np.float32 if name in _SMALL_FLOATS else _PLAIN[name]


def storage_dtype(name: str) -> type:
    """What the type looks like in memory."""
    name = canonical(name)
    if name in _SMALL_FLOATS:
        return np.uint16 if name == "bf16" else np.uint8
    return np.int8 if name == "int1" else _PLAIN[name]


def _table(name: str) -> np.ndarray:
    """All values of an 8-bit float by bit pattern."""
    exp_bits, man_bits, bias, has_inf, has_negative_zero = _SMALL_FLOATS[name]
    out = np.empty(256, np.float32)
    for code in range(256):
        sign = -1.0 if code & 0x80 else 1.0
        exponent, mantissa = (code >> man_bits) & ((1 << exp_bits) - 1), code & ((1 << man_bits) - 1)
        top = (1 << exp_bits) - 1
        if not has_negative_zero:
            value = np.nan if code == 0x80 else None
        elif has_inf and exponent == top:
            value = sign * np.inf if mantissa == 0 else np.nan
        elif name == "fp8e4nv" and exponent == top and mantissa == (1 << man_bits) - 1:
            value = np.nan
        else:
            value = None
        if value is None:
            scale = mantissa / (1 << man_bits)
            value = sign * (scale * 2.0 ** (1 - bias) if exponent == 0 else (1 + scale) * 2.0 ** (exponent - bias))
        out[code] = value
    held = out.view(np.uint32)
    return np.where(np.isnan(out), _MARK | np.arange(256, dtype=np.uint32), held).astype(np.uint32).view(np.float32)


_MARK = np.uint32(0x7FF0A500)  # of the NaNs that hold an fp8 code in their last byte
_NAN_CODES = {"fp8e5": 0x7F, "fp8e4nv": 0x7F, "fp8e4b8": 0x80, "fp8e5b16": 0x80, "fp8e4b15": 0x7E}  # of what NaN is converted to; e4b15 has none
_LARGEST = {"fp8e4b15": np.float32(1.75)}  # what conversions saturate to, where it is not the largest number of all
_TABLES: dict[str, np.ndarray] = {}


def _fp8_values(name: str) -> np.ndarray:
    """float32 values of the 256 codes."""
    if name not in _TABLES:
        _TABLES[name] = _table(name)
    return _TABLES[name]


def decode(bits: np.ndarray, name: str) -> np.ndarray:
    """Bit patterns to float32 values."""
    name = canonical(name)
    if name == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return _fp8_values(name)[bits.astype(np.uint8)]


def encode(values: np.ndarray, name: str, rounding: str = "rtne") -> np.ndarray:
    """float values to bit patterns: to nearest even ("rtne") or toward zero ("rtz"); fp8 saturates to the largest finite
    value where the format has no infinity. Infinity has a code in fp8e5, which conversions never make (round_to). NaN keeps the pattern
    that it is held with (see _held_nan), others get the type's one."""
    name = canonical(name)
    if name == "bf16":
        f32 = _to_odd_float32(values)
        bits = f32.view(np.uint32)
        if rounding == "rtne":
            rounded = bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))
        else:
            rounded = bits
        out = (rounded >> 16).astype(np.uint16)
        return np.where(np.isnan(f32), np.where(bits & 0xFFFF, np.uint16(0x7FC0), (bits >> 16).astype(np.uint16)), out)
    table = _fp8_values(name)
    codes = np.arange(128)
    finite = codes[np.isfinite(table[:128])]
    magnitudes = table[:128][finite].astype(np.float64)  # ascending
    wide = np.asarray(values, np.float64)
    magnitude = np.abs(wide)
    high = np.clip(np.searchsorted(magnitudes, magnitude, side="left"), 0, len(magnitudes) - 1)
    low = np.clip(np.where(magnitudes[high] > magnitude, high - 1, high), 0, None)
    below, above = magnitudes[low], magnitudes[high]
    up = magnitude - below > above - magnitude
    tie = (magnitude - below == above - magnitude) & (low != high)
    take_high = (up | (tie & (finite[high] % 2 == 0))) if rounding == "rtne" else np.zeros_like(up)
    code = np.where(take_high, finite[high], finite[low]).astype(np.uint8)
    has_inf = _SMALL_FLOATS[name][3]
    if has_inf:
        limit = magnitudes[-1] + (magnitudes[-1] - magnitudes[-2]) / 2
        overflow = (magnitude >= limit) if rounding == "rtne" else np.isinf(magnitude)
        code = np.where(overflow, np.uint8(int(finite[-1]) + 1), code)
    negative = np.signbit(wide)
    if not _SMALL_FLOATS[name][4]:
        negative &= code != 0
    code = np.where(negative, code | 0x80, code).astype(np.uint8)
    nan: np.ndarray | np.uint8 = np.uint8(_NAN_CODES[name])
    if np.asarray(values).dtype == np.float32:
        bits = np.ascontiguousarray(values).view(np.uint32).reshape(np.shape(values))
        nan = np.where(bits & np.uint32(0x7FFFFF00) == _MARK, bits & 0xFF, nan).astype(np.uint8)
    return np.where(np.isnan(wide), nan, code)


def _to_odd_float32(values: np.ndarray) -> np.ndarray:
    """float32 by rounding to odd, so that a second rounding to a narrower type gives what one rounding would."""
    if values.dtype != np.float64:
        return np.asarray(values, np.float32)
    with np.errstate(over="ignore"):
        near = values.astype(np.float32)
    inexact = np.isfinite(near) & (near.astype(np.float64) != values)
    toward_zero = np.where(np.abs(near.astype(np.float64)) > np.abs(values), np.nextafter(near, np.float32(0)), near)
    bits = toward_zero.astype(np.float32).view(np.uint32)
    return np.where(inexact, bits | 1, near.view(np.uint32)).astype(np.uint32).view(np.float32)


def round_to(values: np.ndarray, name: str, rounding: str = "rtne") -> np.ndarray:
    """Values as the type holds them (see numpy_dtype)."""
    name = canonical(name)
    if name in _SMALL_FLOATS:
        values = np.asarray(values)
        if values.dtype.kind == "f":
            values = np.where(np.isnan(values), values.dtype.type(np.nan), values)  # conversions make one NaN of all
        if name != "bf16":  # conversions to fp8 saturate, infinities included, as the hardware's do
            table = _fp8_values(name)
            largest = _LARGEST.get(name, table[np.isfinite(table)].max())
            values = np.clip(values, -largest, largest)
        return decode(encode(values, name, rounding), name)
    target = numpy_dtype(name)
    if getattr(values, "dtype", None) == target:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        out: np.ndarray = np.asarray(values).astype(target)
        if rounding == "rtz" and np.issubdtype(target, np.floating):
            wide = np.asarray(values, np.float64)
            out = np.where(np.abs(out.astype(np.float64)) > np.abs(wide), np.nextafter(out, target(0)), out).astype(target)
    return out


class Memory:
    """The byte ranges that a launch may touch."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.buffers: list[np.ndarray] = []  # bytes
        self.read_only: list[tuple[int, int, str]] = []  # first byte, end and argument of arrays that may not be written
        self.bounds: tuple[np.ndarray, np.ndarray] | None = None  # of each buffer, where no buffer was added since
        self.watched = False  # whether changes are counted
        self.changes = 0

    def add(self, low: int, size: int) -> None:
        """Make ``size`` bytes at address ``low`` reachable. The bytes are aliased, not copied."""
        i = bisect_right(self.starts, low)
        if size <= 0 or (i and low + size <= self.starts[i - 1] + len(self.buffers[i - 1])):
            return
        while i and self.starts[i - 1] + len(self.buffers[i - 1]) > low:  # overlapping views: one range over both
            i -= 1
            size = max(low + size, self.starts[i] + len(self.buffers[i])) - min(low, self.starts[i])
            low = min(low, self.starts[i])
            del self.starts[i], self.buffers[i]
        while i < len(self.starts) and self.starts[i] < low + size:
            size = max(low + size, self.starts[i] + len(self.buffers[i])) - low
            del self.starts[i], self.buffers[i]
        self.starts.insert(i, low)
        self.bounds = None
        self.buffers.insert(i, np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(low)))

    def _locate(self, addresses: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        if self.bounds is None:
            self.bounds = np.asarray(self.starts, np.uint64), np.asarray([s + len(b) for s, b in zip(self.starts, self.buffers)], np.uint64)
        starts, ends = self.bounds
        index = np.searchsorted(starts, addresses, side="right").astype(np.int64) - 1
        bad = index < 0
        if len(starts):
            bad |= addresses + np.uint64(size) > ends[np.maximum(index, 0)]
        else:
            bad = np.ones_like(bad)
        if bad.any():
            where = int(np.flatnonzero(bad)[0])
            raise InterpreterError(
                f"out of bounds: element {where} of the access reads or writes address {int(addresses[where]):#x}, "
                f"{size} byte(s), outside every argument. Mask it off.")
        return index, addresses - starts[index]

    def _elements(self, index: np.ndarray, offset: np.ndarray, storage: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray] | None:
        """The buffer as elements, and their numbers: of an access to one buffer, as most are, whose elements do not straddle its own."""
        offset = offset.astype(np.uint64, copy=False)  # of signed addresses numpy makes floats
        size, first = storage.itemsize, int(index[0])
        if index[-1] != first or (index != first).any():
            return None
        if size > 1 and (offset & np.uint64(size - 1)).any():
            return None
        buffer = self.buffers[first]
        return buffer[: len(buffer) // size * size].view(storage), (offset // np.uint64(size)).astype(np.int64)

    def load(self, addresses: np.ndarray, mask: np.ndarray | None, name: str) -> np.ndarray:
        """Values at the addresses where ``mask`` holds, 0 elsewhere; the shape of ``addresses``."""
        storage = np.dtype(storage_dtype(name))
        flat = addresses.reshape(-1)
        active = np.ones(flat.shape, bool) if mask is None else np.broadcast_to(mask, addresses.shape).reshape(-1)
        raw: np.ndarray = np.zeros(flat.shape, storage)
        if active.any():
            index, offset = self._locate(flat[active], storage.itemsize)
            whole = self._elements(index, offset, storage)
            if whole is not None:
                raw[active] = whole[0][whole[1]]
            else:
                values: np.ndarray = np.empty(index.shape, storage)
                for b in np.unique(index):
                    chosen = index == b
                    byte = offset[chosen].astype(np.int64)[:, None] + np.arange(storage.itemsize)
                    values[chosen] = np.ascontiguousarray(self.buffers[b][byte]).view(storage)[:, 0]
                raw[active] = values
        raw = raw.reshape(addresses.shape)
        if canonical(name) in _SMALL_FLOATS:
            return decode(raw, name)
        return raw.astype(np.bool_) if canonical(name) == "int1" else raw

    def store(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray | None, name: str) -> None:
        """Write where ``mask`` holds; of two writes to one address the later element's stays."""
        storage = np.dtype(storage_dtype(name))
        flat = addresses.reshape(-1)
        active = np.ones(flat.shape, bool) if mask is None else np.broadcast_to(mask, addresses.shape).reshape(-1)
        if not active.any():
            return
        chosen_values = np.broadcast_to(values, addresses.shape).reshape(-1)[active]
        raw = encode(chosen_values, name) if canonical(name) in _SMALL_FLOATS else chosen_values
        raw = np.ascontiguousarray(raw.astype(storage))
        index, offset = self._locate(flat[active], storage.itemsize)
        for low, high, argument in self.read_only:
            if ((flat[active] >= low) & (flat[active] < high)).any():
                raise InterpreterError(f"argument {argument!r} is a read-only array, and the kernel stores through it; pass a copy, or make it writable "
                                       "(array.flags.writeable = True)")
        whole = None if self.watched else self._elements(index, offset, storage)
        if whole is not None:
            whole[0][whole[1]] = raw
            return
        for b in np.unique(index):
            chosen = index == b
            byte = offset[chosen].astype(np.int64)[:, None] + np.arange(storage.itemsize)
            if self.watched and not np.array_equal(self.buffers[b][byte], raw[chosen][:, None].view(np.uint8).reshape(-1, storage.itemsize)):
                self.changes += 1
            self.buffers[b][byte] = raw[chosen][:, None].view(np.uint8).reshape(-1, storage.itemsize)
