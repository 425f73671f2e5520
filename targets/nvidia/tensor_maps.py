"""Tensor maps: the 128 bytes that tell the TMA unit of a tensor in global memory, its box, and how the box lies in shared memory.

CUDA driver API, "Tensor Map Object Management" (cuTensorMapEncodeTiled), and the PTX manual's section on tensors. Sizes and strides
are outermost first here, as in ``metadata["host"]["descriptors"]``; the driver takes the innermost first.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

BYTES, ALIGNMENT = 128, 64
UNBOUNDED = 2147483647  # the extent of a dim whose end the kernel does not know

_TYPES = {"fp16": "FLOAT16", "bf16": "BFLOAT16", "fp32": "FLOAT32", "fp64": "FLOAT64", "i16": "UINT16", "u16": "UINT16", "i32": "INT32",
          "u32": "UINT32", "i64": "INT64", "u64": "UINT64", "i1": "UINT8", "i8": "UINT8", "u8": "UINT8"}
_FLOATS = ("fp16", "bf16", "fp32", "fp64")
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


class TensorMap(NamedTuple):
    """What a tensor map says; hashable. ``base``: byte address. ``shape``, ``strides`` (in elements), ``box``: outermost first."""

    base: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    dtype: str
    itemsize: int
    swizzle: int
    padding: str
    l2: int = 128  # bytes that a miss brings into L2: 64, 128 or 256


def type_name(dtype: str) -> str:
    """Suffix of the CUtensorMapDataType of a Triton or MLIR element type. 8-bit floats are copied as bytes."""
    if dtype.replace("fp8", "f8").startswith("f8"):
        return "UINT8"
    found = _TYPES.get(dtype.replace("float", "fp") if dtype.startswith("float") else dtype)
    if found is None:
        raise KeyError(f"tensor maps have no elements of type {dtype!r}; they have {', '.join(sorted(_TYPES))} and 8-bit floats")
    return found


def problems(m: TensorMap) -> list[str]:
    """Why the TMA unit cannot be given this tensor; empty where it can."""
    out = []
    if m.base % 16:
        out.append(f"its address {m.base:#x} is no multiple of 16")
    if not 1 <= len(m.shape) <= 5:
        out.append(f"it has {len(m.shape)} dims, and 1 to 5 are possible")
    for size in m.shape:
        if not 1 <= size <= 1 << 32:
            out.append(f"a dim has {size} elements, and 1 to 2^32 are possible")
    if m.strides and m.strides[-1] != 1:
        out.append(f"its innermost stride is {m.strides[-1]}, and must be 1")
    for stride, extent in zip(m.strides[:-1], m.shape):
        size = stride * m.itemsize
        if size % 16 or not 0 <= size < 1 << 40:
            out.append(f"a stride is {size} bytes, and must be a multiple of 16 below 2^40")
        if size == 0 and extent > 1:  # nothing is said of rows that are all one (CUDA driver API, cuTensorMapEncodeTiled)
            out.append("a stride is 0: all its rows are one")
    for extent in m.box:
        if not 1 <= extent <= 256:
            out.append(f"a box has {extent} elements along a dim, and 1 to 256 are possible")
    if m.box:
        inner = m.box[-1] * m.itemsize
        if inner % 16:
            out.append(f"the box's rows have {inner} bytes, and must have a multiple of 16")
        if m.swizzle and inner > m.swizzle:
            out.append(f"the box's rows have {inner} bytes, more than the swizzle's {m.swizzle}")
    if m.padding == "nan" and m.dtype not in _FLOATS:
        out.append(f"elements of type {m.dtype} cannot be filled with NaN")
    return out


def byte_range(m: TensorMap) -> tuple[int, int | None]:
    """First byte and end of the memory that the tensor covers; end None where a dim is unbounded."""
    if UNBOUNDED in m.shape:
        return m.base, None
    return m.base, m.base + (sum((n - 1) * s for n, s in zip(m.shape, m.strides)) + 1) * m.itemsize


def encode(cuda: Any, m: TensorMap) -> bytes | str:
    """The map's 128 bytes, or the driver's reason against it. ``cuda``: cuda.bindings.driver, or a stand-in."""
    enum = {
        "dtype": getattr(cuda.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{type_name(m.dtype)}"),
        "swizzle": getattr(cuda.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[m.swizzle]}"),
        "l2": getattr(cuda.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_L2_{m.l2}B"),
        "fill": getattr(cuda.CUtensorMapFloatOOBfill, "CU_TENSOR_MAP_FLOAT_OOB_FILL_"
                        + ("NAN_REQUEST_ZERO_FMA" if m.padding == "nan" else "NONE")),
    }
    wide, narrow = cuda.cuuint64_t, cuda.cuuint32_t
    status, made = cuda.cuTensorMapEncodeTiled(
        enum["dtype"], len(m.shape), m.base, [wide(n) for n in m.shape[::-1]], [wide(s * m.itemsize) for s in m.strides[-2::-1]],
        [narrow(n) for n in m.box[::-1]], [narrow(1)] * len(m.shape), cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        enum["swizzle"], enum["l2"], enum["fill"])
    if int(status) != 0:
        return f"cuTensorMapEncodeTiled failed with {getattr(status, 'name', status)} for {m}"
    return ctypes.string_at(int(made.getPtr()), BYTES)
