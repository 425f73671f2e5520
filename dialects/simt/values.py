"""How LLVM types are held by the SIMT executor, and conversions between them.

One entry a thread: integers as unsigned arrays (i1: bool), f16/f32/f64 as floats, bf16 as its bits in uint16, pointers as
uint64, vectors as [threads, n], structs as tuples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.dialects._mlir import ir, llvm
from tilewright.dialects.simt.memory import SimtError
from tilewright.dialects.simt.pending import Pending, merge_pending

Array = Any


@dataclass(frozen=True)
class VType:
    """kind: "int", "float", "bf16", "ptr", "struct", "array" or "none"; ``lanes`` is 0 for scalars."""

    kind: str
    bits: int = 0
    lanes: int = 0
    space: int = 0
    members: tuple[VType, ...] = ()

    @property
    def scalar(self) -> VType:
        return VType(self.kind, self.bits, 0, self.space)

    @property
    def dtype(self) -> Any:
        """numpy's type of one element."""
        if self.kind == "int":
            return np.dtype(bool) if self.bits == 1 else np.dtype(f"u{self.bits // 8}")
        if self.kind == "float":
            return np.dtype(f"f{self.bits // 8}")
        return np.dtype(np.uint16) if self.kind == "bf16" else np.dtype(np.uint64)

    @property
    def nbytes(self) -> int:
        """Bytes in memory (naturally aligned)."""
        if self.kind == "struct":
            end = 0
            for m in self.members:
                end = -(-end // m.alignment) * m.alignment + m.nbytes
            return -(-end // self.alignment) * self.alignment
        if self.kind == "array":
            return self.lanes * self.members[0].nbytes
        if self.lanes and self.bits == 1:
            return max(1, self.lanes // 8)
        return max(1, self.bits // 8) * max(1, self.lanes)

    @property
    def alignment(self) -> int:
        if self.kind in ("struct", "array"):
            return max([m.alignment for m in self.members], default=1)
        return self.nbytes

    def __str__(self) -> str:
        if self.kind in ("struct", "array"):
            return f"{self.kind}<{', '.join(map(str, self.members))}>"
        name = {"int": f"i{self.bits}", "float": f"f{self.bits}"}.get(self.kind, self.kind)
        return f"vector<{self.lanes}x{name}>" if self.lanes else name


NONE = VType("none")
_INT_BITS = (1, 8, 16, 32, 64)


def vtype(t: Any) -> VType:
    """The VType of an LLVM-dialect type. Raises SimtError for types that no kernel has (i24, fp128, …)."""
    if isinstance(t, ir.IntegerType):
        if t.width in _INT_BITS:
            return VType("int", t.width)
    elif isinstance(t, (ir.F16Type, ir.F32Type, ir.F64Type)):
        return VType("float", t.width)
    elif isinstance(t, ir.BF16Type):
        return VType("bf16", 16)
    elif isinstance(t, ir.VectorType):
        e = vtype(t.element_type)
        return VType(e.kind, e.bits, t.shape[0], e.space)
    elif isinstance(t, llvm.PointerType):
        return VType("ptr", 64, 0, t.address_space)
    elif isinstance(t, llvm.StructType):
        return VType("struct", members=tuple(vtype(m) for m in t.body or ()))
    elif str(t).startswith("!llvm.array<"):
        array = llvm.ArrayType(t)
        return VType("array", lanes=array.num_elements, members=(vtype(array.element_type),)) \
            if hasattr(array, "num_elements") else _parse_array(str(t))
    elif str(t) in ("!llvm.void", "none"):
        return NONE
    raise SimtError(f"the SIMT executor holds integers of {_INT_BITS} bits, f16, bf16, f32, f64, pointers, vectors and "
                    f"structs; found {t}")


def _parse_array(text: str) -> VType:
    count, element = text[len("!llvm.array<"):-1].split(" x ", 1)
    if element.startswith(("ptr", "struct", "array")):
        element = "!llvm." + element
    return VType("array", lanes=int(count), members=(vtype(ir.Type.parse(element)),))


def bf16_to_f32(x: Array) -> Array:
    return (x.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(x: Array) -> Array:
    """Round to nearest even; every NaN becomes the quiet 0x7fff-signed pattern with its sign."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(nan, (bits >> np.uint32(16)) | np.uint32(0x40), rounded).astype(np.uint16)


def to_float(x: Array, t: VType) -> Array:
    """bf16 bits become float32; other floats stay."""
    return bf16_to_f32(x) if t.kind == "bf16" else x


def from_float(x: Array, t: VType) -> Array:
    """Round a float array to a float type."""
    if t.kind == "bf16":
        if x.dtype == np.float64:
            x = _f64_to_f32_odd(x)
        return f32_to_bf16(x)
    return x.astype(t.dtype, copy=False)


def _f64_to_f32_odd(x: Array) -> Array:
    """Round to odd, so that a second rounding to fewer bits is as if there had been one."""
    y = x.astype(np.float32)
    inexact = (y.astype(np.float64) != x) & np.isfinite(y)
    bits = y.view(np.uint32)
    away = inexact & (np.abs(y.astype(np.float64)) > np.abs(x))
    bits = np.where(away, bits - np.uint32(1), bits)
    return np.where(inexact, bits | np.uint32(1), bits).astype(np.uint32).view(np.float32)


def signed(x: Array) -> Array:
    """The same bits as signed integers (bool: 0 and -1)."""
    if x.dtype == np.bool_:
        return -x.astype(np.int8)
    return x.view(f"i{x.dtype.itemsize}")


def to_bytes(x: Array, t: VType) -> Array:
    """Value of a scalar or vector type → uint8[threads, nbytes]."""
    if x.dtype == np.bool_:
        x = x.astype(np.uint8)
    return np.ascontiguousarray(x).view(np.uint8).reshape(x.shape[0], -1)


def from_bytes(data: Array, t: VType) -> Array:
    """uint8[threads, nbytes] → value."""
    if t.kind == "int" and t.bits == 1:
        out = data != 0
    else:
        out = np.ascontiguousarray(data).view(t.dtype)
    return out if t.lanes else out[:, 0]


def merge(mask: Array, new: Any, old: Any) -> Any:
    """``new`` where ``mask``, else ``old``."""
    if isinstance(new, tuple):
        return tuple(merge(mask, n, o) for n, o in zip(new, old))
    if isinstance(new, Pending) or isinstance(old, Pending):
        return merge_pending(mask, new, old)
    if new.dtype != old.dtype or new.shape != old.shape:
        raise SimtError(f"a value changed its type between visits: {old.dtype}{old.shape} → {new.dtype}{new.shape}")
    return np.where(mask if new.ndim == 1 else mask[:, None], new, old)


def zeros(t: VType, threads: int) -> Any:
    if t.kind == "struct":
        return tuple(zeros(m, threads) for m in t.members)
    if t.kind == "array":
        return tuple(zeros(t.members[0], threads) for _ in range(t.lanes))
    return np.zeros((threads, t.lanes) if t.lanes else threads, t.dtype)


def constant(attr: Any, t: VType, threads: int) -> Array:
    """Value of an ``llvm.mlir.constant``."""
    if isinstance(attr, ir.DenseElementsAttr):
        if isinstance(attr, ir.DenseIntElementsAttr) or isinstance(attr, ir.DenseFPElementsAttr):
            items = [attr.get_splat_value().value] * t.lanes if attr.is_splat else [attr[i] for i in range(len(attr))]
            row = np.stack([_scalar(getattr(v, "value", v), t.scalar) for v in items])
            return np.tile(row, (threads, 1))
        raise SimtError(f"constant {attr} is not held by the SIMT executor")
    return np.full(threads, _scalar(attr.value, t.scalar), t.dtype)


def _scalar(value: Any, t: VType) -> Any:
    if t.kind == "int":
        return np.bool_(value) if t.bits == 1 else np.array(int(value) & ((1 << t.bits) - 1), t.dtype)
    if t.kind == "bf16":
        return f32_to_bf16(np.array([value], np.float32))[0]
    with np.errstate(over="ignore"):
        return np.array(value, t.dtype)
