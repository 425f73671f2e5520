"""The amdg dialect: what only AMD GPUs have. Buffer operations take a uniform base and per-lane byte offsets and check bounds
in hardware (CDNA 3 ISA manual, section 9.1, buffer resource descriptor)."""

from typing import Any, Optional

from tilewright.dialects._mlir import ext


class AMDG(ext.Dialect, name="amdg"):
    """Operations of AMD GPUs on tiles with layouts."""


class BufferLoadOp(AMDG.Operation, name="buffer_load"):
    """Read at ``ptr`` (a uniform scalar pointer) + ``offsets`` (i32 elements, a tile); masked-off lanes give ``other`` or 0.

    Optional operands are written with operandSegmentSizes (ptr, offsets, mask, other).
    """

    result: ext.Result[Any]
    cache: Any
    ptr: ext.Operand[Any]
    offsets: ext.Operand[Any]
    mask: Optional[ext.Operand[Any]] = None  # noqa: UP045
    other: Optional[ext.Operand[Any]] = None  # noqa: UP045


class BufferStoreOp(AMDG.Operation, name="buffer_store"):
    """Write ``value`` at ``ptr`` + ``offsets`` where ``mask`` holds."""

    cache: Any
    value: ext.Operand[Any]
    ptr: ext.Operand[Any]
    offsets: ext.Operand[Any]
    mask: Optional[ext.Operand[Any]] = None  # noqa: UP045


class SchedBarrierOp(AMDG.Operation, name="sched_barrier"):
    """Instructions outside the kinds of ``mask`` (i32) do not move across (LLVM's llvm.amdgcn.sched.barrier)."""

    mask: Any


class SetPrioOp(AMDG.Operation, name="setprio"):
    """Raise or lower the wave's priority for issue: 0 to 3 (s_setprio)."""

    priority: Any
