"""Registers of waves: the machine's arrays (``Batch``) and what an instruction sees of them (``Waves``).

Vector registers are (registers, waves, lanes) uint32, so that one register of all waves is contiguous. ``Waves`` are those that stand at
one pc; where they are neighbours, its arrays are views of the batch's, else copies that ``store`` writes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.program import Expr, Imm, Instruction, Operand, Reg, Special, float_bits

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.machine import Machine

Array = Any
VCC, TTMP, M0, NULL, SREGS = 106, 108, 124, 125, 128  # places in the scalar register file (s0 … s105 before)
_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


class Batch:
    """All waves that run at a time: ``waves`` of ``lanes``, with registers for one kernel."""

    def __init__(self, waves: int, lanes: int, vgprs: int, agprs: int):
        self.waves, self.lanes = waves, lanes
        self.v = np.zeros((max(vgprs, 1), waves, lanes), np.uint32)
        self.a = np.zeros((agprs, waves, lanes), np.uint32)
        self.s = np.zeros((SREGS, waves), np.uint32)
        self.exec = np.zeros(waves, np.uint64)
        self.scc = np.zeros(waves, bool)
        self.last: Waves | None = None  # whose mask is up to date


class Waves:
    """The waves that execute a step together. Contract in the package's documentation (``isa/__init__``)."""

    def __init__(self, machine: Machine, batch: Batch, index: slice | Array, wave_ids: Array, group_ids: Array):
        self.machine, self._batch, self._index = machine, batch, index
        self.n, self.lanes = len(wave_ids), batch.lanes
        self.wave_ids, self.group_ids = wave_ids, group_ids
        self.ins: Instruction = None  # type: ignore[assignment]
        self.next_pc: Any = 0  # set by branches: an int or (n,), see machine
        self._copied = not isinstance(index, slice)
        self.waits = machine.waits
        self._mask: Array | None = None
        self._full: bool | None = None
        self.all_ones = np.uint64((1 << batch.lanes) - 1)
        self.load()

    # -- which waves
    def load(self) -> None:
        """Take the batch's registers (views where the waves are neighbours)."""
        b, i = self._batch, self._index
        if self._copied or not hasattr(self, "v"):
            self.v, self.a, self.s, self._exec, self._scc = b.v[:, i], b.a[:, i], b.s[:, i], b.exec[i], b.scc[i]
        if b.last is not self:
            self._mask = self._full = None
            b.last = self

    def store(self) -> None:
        """Write copies back."""
        if self._copied:
            b, i = self._batch, self._index
            b.v[:, i], b.a[:, i], b.s[:, i], b.exec[i], b.scc[i] = self.v, self.a, self.s, self._exec, self._scc

    # -- masks
    @property
    def exec(self) -> Array:
        """uint64 (n,)."""
        return self._exec

    @exec.setter
    def exec(self, value: Array) -> None:
        self._exec[...] = value
        self._mask = self._full = None

    @property
    def exec_mask(self) -> Array:
        """bool (n, lanes), read-only."""
        if self._mask is None:
            self._mask = self.sgpr_to_mask(self._exec)
        return self._mask

    @property
    def full(self) -> bool:
        """All lanes of all these waves are active."""
        if self._full is None:
            self._full = bool((self._exec == self.all_ones).all())
        return self._full

    def mask_to_sgpr(self, mask: Array) -> Array:
        """bool (n, lanes) → uint64 (n,)."""
        packed = np.packbits(np.broadcast_to(mask, (self.n, self.lanes)), axis=1, bitorder="little")
        return packed.view(np.uint64).reshape(self.n) if self.lanes == 64 else packed.view(np.uint32).reshape(self.n).astype(np.uint64)

    def sgpr_to_mask(self, value: Array) -> Array:
        """uint64 (n,) → bool (n, lanes)."""
        bytes_ = np.ascontiguousarray(value, np.uint64).view(np.uint8).reshape(self.n, 8)
        return np.unpackbits(bytes_, axis=1, bitorder="little", count=self.lanes).view(bool)

    # -- vector registers
    def vgpr(self, k: int) -> Array:
        """uint32 (n, lanes), read-only."""
        if self.waits.any_pending:
            self.waits.touch(self, "v", k, 1, False)
        return self.v[k]

    def set_vgpr(self, k: int, value: Array, mask: Array | None = None) -> None:
        """Write where EXEC, and ``mask`` if given. ``value``: 4-byte elements (bits are kept), or bool."""
        if self.waits.any_pending:
            self.waits.touch(self, "v", k, 1, True)
        self._put(self.v[k], value, np.uint32, mask)

    def vgpr64(self, k: int) -> Array:
        """uint64 (n, lanes) of registers k and k + 1."""
        if self.waits.any_pending:
            self.waits.touch(self, "v", k, 2, False)
        return _join(self.v[k], self.v[k + 1])

    def set_vgpr64(self, k: int, value: Array, mask: Array | None = None) -> None:
        if self.waits.any_pending:
            self.waits.touch(self, "v", k, 2, True)
        low, high = _halves(value)
        self._put(self.v[k], low, np.uint32, mask)
        self._put(self.v[k + 1], high, np.uint32, mask)

    def agpr(self, k: int) -> Array:
        if self.waits.any_pending:
            self.waits.touch(self, "a", k, 1, False)
        return self.a[k]

    def set_agpr(self, k: int, value: Array, mask: Array | None = None) -> None:
        if self.waits.any_pending:
            self.waits.touch(self, "a", k, 1, True)
        self._put(self.a[k], value, np.uint32, mask)

    def vector(self, kind: str, k: int) -> Array:
        """vgpr or agpr by ``kind``."""
        return self.vgpr(k) if kind == "v" else self.agpr(k)

    def set_vector(self, kind: str, k: int, value: Array, mask: Array | None = None) -> None:
        (self.set_vgpr if kind == "v" else self.set_agpr)(k, value, mask)

    def vectors(self, kind: str, k: int, count: int) -> Array:
        """uint32 (count, n, lanes) of ``count`` registers, read-only."""
        if self.waits.any_pending:
            self.waits.touch(self, kind, k, count, False)
        file = self.v if kind == "v" else self.a
        return file[k:k + count]

    def set_vectors(self, kind: str, k: int, value: Array, mask: Array | None = None, everywhere: bool = False) -> None:
        """Write registers k … from (count, n, lanes); ``everywhere``: whatever EXEC is (matrix instructions)."""
        count = len(value)
        if self.waits.any_pending:
            self.waits.touch(self, kind, k, count, True)
        file = self.v if kind == "v" else self.a
        value = _bits(value, np.uint32)
        if everywhere or (mask is None and self.full):
            file[k:k + count] = value
        else:
            np.copyto(file[k:k + count], value, where=self.exec_mask if mask is None else self.exec_mask & mask)

    def set_vgpr16(self, k: int, value: Array, high: bool, mask: Array | None = None) -> None:
        """Write one half of register k, of 2-byte elements; the other half stays."""
        if self.waits.any_pending:
            self.waits.touch(self, "v", k, 1, True)
        self._put(self.v[k].view(np.uint16)[..., int(high)::2], value, np.uint16, mask)

    def _put(self, target: Array, value: Array, dtype: Any, mask: Array | None) -> None:
        value = np.asarray(value)
        if value.dtype != dtype:
            value = _bits(value, dtype)
        if mask is None:
            if self.full:
                target[...] = value
                return
            mask = self.exec_mask
        elif not self.full:
            mask = mask & self.exec_mask
        np.copyto(target, value, where=mask)

    # -- scalar registers; k counts ttmp from TTMP, VCC is 106 and 107
    def sgpr(self, k: int) -> Array:
        """uint32 (n,), read-only."""
        if self.waits.any_pending:
            self.waits.touch(self, "s", k, 1, False)
        return self.s[k]

    def set_sgpr(self, k: int, value: Array) -> None:
        if self.waits.any_pending:
            self.waits.touch(self, "s", k, 1, True)
        if k != NULL:
            self.s[k] = value

    def sgpr64(self, k: int) -> Array:
        """uint64 (n,) of registers k and k + 1."""
        if self.waits.any_pending:
            self.waits.touch(self, "s", k, 2, False)
        return _join(self.s[k], self.s[k + 1])

    def set_sgpr64(self, k: int, value: Array) -> None:
        if self.waits.any_pending:
            self.waits.touch(self, "s", k, 2, True)
        if k != NULL:
            self.s[k], self.s[k + 1] = _halves(value)

    def sgpr_mask(self, k: int) -> Array:
        """Lane mask (uint64) held by register k: two registers of a wave of 64, one of a wave of 32."""
        return self.sgpr64(k) if self.lanes == 64 else self.sgpr(k).astype(np.uint64)

    def set_sgpr_mask(self, k: int, value: Array) -> None:
        if self.lanes == 64:
            self.set_sgpr64(k, value)
        else:
            self.set_sgpr(k, np.asarray(value).astype(np.uint32))

    @property
    def vcc(self) -> Array:
        """uint64 (n,): as wide as the wave."""
        return self.sgpr_mask(VCC)

    @vcc.setter
    def vcc(self, value: Array) -> None:
        self.set_sgpr_mask(VCC, value)

    @property
    def scc(self) -> Array:
        """bool (n,)."""
        return self._scc

    @scc.setter
    def scc(self, value: Array) -> None:
        self._scc[...] = value

    @property
    def m0(self) -> Array:
        """uint32 (n,)."""
        return self.s[M0]

    @m0.setter
    def m0(self, value: Array) -> None:
        self.s[M0] = value

    def read(self, operand: Operand, kind: str) -> Array:
        """The operand's value; see ``reader``, which decides once."""
        return reader(operand, kind)(self)


def _join(low: Array, high: Array) -> Array:
    out = np.empty((*low.shape, 2), np.uint32)
    out[..., 0], out[..., 1] = low, high
    return out.view(np.uint64)[..., 0]


def _halves(value: Array) -> tuple[Array, Array]:
    """Low and high 32 bits of 8-byte elements, or of a Python int."""
    if isinstance(value, int):
        return np.uint32(value & 0xFFFFFFFF), np.uint32(value >> 32 & 0xFFFFFFFF)
    value = np.asarray(value)
    if value.dtype == bool or value.dtype.itemsize != 8:
        raise TypeError(f"64 bits are written from {value.dtype}")
    pairs = np.ascontiguousarray(value).view(np.uint32).reshape(*value.shape, 2)
    return pairs[..., 0], pairs[..., 1]


def _bits(value: Array, dtype: Any) -> Array:
    if value.dtype == dtype:
        return value
    if value.dtype.itemsize == np.dtype(dtype).itemsize and value.dtype != bool:
        return value.view(dtype)
    if value.dtype == bool:
        return value.astype(dtype)
    raise TypeError(f"a register of {np.dtype(dtype).itemsize} bytes is written from {value.dtype}")


# -------------------------------------------------------------------------------------------------- operand access
_DTYPES: dict[str, Any] = {
    "b8": np.uint8, "b16": np.uint16, "u16": np.uint16, "i16": np.int16, "f16": np.float16, "bf16": np.uint16, "b32": np.uint32, "u32": np.uint32,
    "i32": np.int32, "f32": np.float32, "b64": np.uint64, "u64": np.uint64, "i64": np.int64, "f64": np.float64, "pkf16": np.uint32,
    "pkbf16": np.uint32, "pk16": np.uint32,
}
_FLOATS = {"f16": "f16", "b16": "f16", "i16": "f16", "u16": "f16", "pkf16": "f16", "pk16": "f16", "bf16": "bf16", "pkbf16": "bf16", "f64": "f64",
           "b64": "f64", "i64": "f64", "u64": "f64", "mask": "f64"}


def constant(operand: Imm, kind: str) -> int:
    """Bits of an immediate as an operand of ``kind``, before truncation to its width.

    Inline integers are the integer's bits, sign-extended; inline floats the float's bits in the operand's own type; a 32-bit literal is
    the high half of an f64, sign-extended for i64 and zero-extended for other 64-bit operands (manuals, "Literal constants")."""
    if isinstance(operand.value, float):
        return float_bits(operand.value, _FLOATS.get(kind, "f32"))
    value = operand.value
    if kind == "f64" and operand.literal:
        return (value & 0xFFFFFFFF) << 32
    if kind == "i64" and operand.literal and value & 0x80000000 and value < 1 << 32:
        return value - (1 << 32)
    return value


_PLACES = {"vcc": VCC, "vcc_lo": VCC, "vcc_hi": VCC + 1, "m0": M0, "null": NULL, "flat_scratch": 126, "flat_scratch_lo": 126, "flat_scratch_hi": 127}


def scalar_index(operand: Operand) -> int | None:
    """Place in the scalar register file, or None for what has none (exec, scc, immediates, vector registers)."""
    if isinstance(operand, Reg):
        return operand.first if operand.kind == "s" else TTMP + operand.first if operand.kind == "ttmp" else None
    if isinstance(operand, Special):
        return _PLACES.get(operand.name)
    return None


def scalar_reader(operand: Operand, kind: str = "u32") -> Callable[[Waves], Array]:
    """Function of waves giving a scalar operand of shape (n,), or () for constants. kind: 32- or 64-bit ones of ``reader``, or "mask":
    as wide as a wave, as uint64."""
    dtype = _DTYPES.get(kind, np.uint64)
    wide = np.dtype(dtype).itemsize == 8
    small = np.dtype(dtype).itemsize == 2
    if isinstance(operand, Imm):
        fixed = np.array(constant(operand, kind) & ((1 << 8 * np.dtype(dtype).itemsize) - 1), _UNSIGNED[np.dtype(dtype).itemsize]).view(dtype)
        if kind == "mask":
            return lambda w: fixed & w.all_ones
        return lambda w: fixed
    k = scalar_index(operand)
    if k is not None:
        if k == NULL:
            zero = np.zeros((), dtype)
            return lambda w: zero
        if kind == "mask":
            return lambda w: w.sgpr_mask(k)
        if wide:
            return lambda w: w.sgpr64(k).view(dtype)
        if small:
            part = int(bool(isinstance(operand, Reg) and operand.hi))
            return lambda w: np.ascontiguousarray(w.sgpr(k)).view(np.uint16)[part::2].view(dtype)
        return lambda w: w.sgpr(k).view(dtype)
    name = operand.name if isinstance(operand, Special) else ""
    if name in ("exec", "exec_lo", "exec_hi") and (wide or not small):
        if wide:
            return lambda w: w.exec.view(dtype)
        shift = np.uint64(32 if name == "exec_hi" else 0)
        return lambda w: (w.exec >> shift & _LOW).astype(np.uint32).view(dtype)
    if name in ("scc", "src_scc"):
        return lambda w: w.scc.astype(dtype)
    if name == "src_vccz":
        return lambda w: (w.vcc == 0).astype(dtype)
    if name == "src_execz":
        return lambda w: (w.exec == 0).astype(dtype)
    if name in ("src_shared_base", "src_private_base") and (wide or not small):
        # the aperture's high 32 bits, which a 64-bit read has in its high half
        base = SHARED_APERTURE if name == "src_shared_base" else PRIVATE_APERTURE
        value = np.array(base if wide else base >> 32, np.uint64 if wide else np.uint32).view(dtype)
        return lambda w: value
    raise TypeError(f"no scalar operand of kind {kind}: {operand.text!r}")


# where flat addresses mean LDS and scratch: the high 32 bits; no buffer of a process lies there
SHARED_APERTURE, PRIVATE_APERTURE = 0x00FFA000 << 40, 0x00FFB000 << 40
_UNSIGNED: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def reader(operand: Operand, kind: str) -> Callable[[Waves], Array]:
    """Function of waves giving the operand as a vector operation reads it: (n, lanes) for vector registers, (n, 1) for scalar ones,
    (1, 1) for constants; neg, abs and sext are not applied.

    kind: "b32" "u32" "i32" "f32", "b16" "u16" "i16" "f16" "bf16" (as uint16; the register's low half, or that of .h), "b64" "u64" "i64"
    "f64" (two registers), "pkf16" "pkbf16" "pk16" (32 bits; constants by the rules of 16-bit elements), "mask" (lane mask as uint64 (n, 1)).
    """
    if isinstance(operand, Reg) and operand.kind in ("v", "a"):
        return _vector_reader(operand, kind)
    if isinstance(operand, Expr):
        raise TypeError(f"no operand: {operand.text!r}")
    scalar = scalar_reader(operand, kind)
    if isinstance(operand, Imm):
        dtype = _DTYPES.get(kind, np.uint64)
        fixed = np.array(constant(operand, kind) & ((1 << 8 * np.dtype(dtype).itemsize) - 1), _UNSIGNED[np.dtype(dtype).itemsize]).view(dtype).reshape(1, 1)
        fixed.flags.writeable = False
        return lambda w: fixed
    return lambda w: scalar(w).reshape(-1, 1)


def _vector_reader(operand: Reg, kind: str) -> Callable[[Waves], Array]:
    k, dtype = operand.first, _DTYPES[kind]
    size = np.dtype(dtype).itemsize
    if size == 8:
        if operand.kind == "v":
            return (lambda w: w.vgpr64(k)) if dtype is np.uint64 else lambda w: w.vgpr64(k).view(dtype)
        return lambda w: _join(*w.vectors("a", k, 2)).view(dtype)
    if size == 2:
        part = int(bool(operand.hi))
        return lambda w: w.vector(operand.kind, k).view(np.uint16)[..., part::2].view(dtype)
    if operand.kind == "v":
        if dtype is np.uint32:
            return lambda w: w.vgpr(k)
        return lambda w: w.vgpr(k).view(dtype)
    return lambda w: w.agpr(k).view(dtype)


def writer(operand: Operand, kind: str = "b32") -> Callable[..., None]:
    """Function (waves, value, mask=None) that writes a destination: vector registers where EXEC and mask, scalar ones from (n,) values.

    kind "b16": only the half that the operand names (.h, else the low one) changes; "b64" two registers; "mask" a lane mask (uint64 (n,))
    into a scalar destination as wide as the wave. "null" swallows."""
    size = 8 if kind in ("b64", "u64", "i64", "f64", "mask") else 2 if kind in ("b16", "u16", "i16", "f16", "bf16") else 4
    if isinstance(operand, Reg) and operand.kind == "v":
        k = operand.first
        if size == 8:
            return lambda w, value, mask=None: w.set_vgpr64(k, value, mask)
        if size == 2:
            high = bool(operand.hi)
            return lambda w, value, mask=None: w.set_vgpr16(k, value, high, mask)
        return lambda w, value, mask=None: w.set_vgpr(k, value, mask)
    if isinstance(operand, Reg) and operand.kind == "a" and size == 4:
        k = operand.first
        return lambda w, value, mask=None: w.set_agpr(k, value, mask)
    return scalar_writer(operand, kind)


def scalar_writer(operand: Operand, kind: str = "b32") -> Callable[..., None]:
    """Function (waves, value) that writes a scalar destination from (n,) values of 4 or 8 bytes ("b64"), or a lane mask ("mask")."""
    k = scalar_index(operand)
    wide = kind in ("b64", "u64", "i64", "f64")
    if k == NULL:
        return lambda w, value, mask=None: None
    if k is not None:
        if kind == "mask":
            return lambda w, value, mask=None: w.set_sgpr_mask(k, value)
        if wide:
            return lambda w, value, mask=None: w.set_sgpr64(k, value)
        return lambda w, value, mask=None: w.set_sgpr(k, np.asarray(value).view(np.uint32))
    name = operand.name if isinstance(operand, Special) else ""
    if name == "exec" or (name == "exec_lo" and kind == "mask"):
        return lambda w, value, mask=None: _set_exec(w, np.asarray(value).view(np.uint64))
    if name == "exec_lo":
        return lambda w, value, mask=None: _set_exec(w, w.exec & ~_LOW | np.asarray(value).view(np.uint32).astype(np.uint64))
    if name == "exec_hi":
        return lambda w, value, mask=None: _set_exec(w, w.exec & _LOW | np.asarray(value).view(np.uint32).astype(np.uint64) << _32)
    raise TypeError(f"no destination of kind {kind}: {operand.text!r}")


def _set_exec(w: Waves, value: Array) -> None:
    w.exec = value & w.all_ones
