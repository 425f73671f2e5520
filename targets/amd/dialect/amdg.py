"""The amdg dialect: what only AMD GPUs have. Buffer operations take a uniform base and per-lane offsets and check bounds
in hardware (CDNA 3 ISA manual, section 9.1.5, buffer resource descriptor; RDNA 3 ISA manual, section 9.4)."""

from typing import Any, Optional

from tilewright.dialects._mlir import ext
from tilewright.dialects.lowering import scratch


class AMDG(ext.Dialect, name="amdg"):
    """Operations of AMD GPUs on tiles with layouts."""


class BufferLoadOp(AMDG.Operation, name="buffer_load"):
    """Read at ``ptr`` (a uniform scalar pointer) + ``offsets`` (a tile of i32, in elements); 0 where that is masked off.

    Offsets are not negative, and end below 2^31 bytes. ``limit`` (i32, in bytes, from 0 to 2^31 - 16): offsets that do not lie below it
    are masked off, as those are where ``mask`` is false. ``vector`` (array<i32>, one entry a dim): the most consecutive elements that one
    access may take: all of them are masked off, or none. Where ``where`` is false the result is ``other`` (both are given, or neither; ``where``
    is the whole mask). Optional operands are written with operandSegmentSizes (ptr, offsets, limit, mask, where, other).
    """

    result: ext.Result[Any]
    cache: Any
    vector: Any
    ptr: ext.Operand[Any]
    offsets: ext.Operand[Any]
    limit: Optional[ext.Operand[Any]] = None  # noqa: UP045
    mask: Optional[ext.Operand[Any]] = None  # noqa: UP045
    where: Optional[ext.Operand[Any]] = None  # noqa: UP045
    other: Optional[ext.Operand[Any]] = None  # noqa: UP045


class BufferStoreOp(AMDG.Operation, name="buffer_store"):
    """Write ``value`` at ``ptr`` + ``offsets``, as buffer_load reads; what is masked off is not written.

    Optional operands are written with operandSegmentSizes (value, ptr, offsets, limit, mask)."""

    cache: Any
    vector: Any
    value: ext.Operand[Any]
    ptr: ext.Operand[Any]
    offsets: ext.Operand[Any]
    limit: Optional[ext.Operand[Any]] = None  # noqa: UP045
    mask: Optional[ext.Operand[Any]] = None  # noqa: UP045


class BufferAtomicRmwOp(AMDG.Operation, name="buffer_atomic_rmw"):
    """tt.atomic_rmw at ``ptr`` + ``offsets``, as buffer_load reads: what is masked off is not touched, and its old value is 0. ``vector``: 1 in each
    dim, or 2 in one where the instruction takes two neighbours, which all elements then have.

    Optional operands are written with operandSegmentSizes (value, ptr, offsets, limit, mask)."""

    result: ext.Result[Any]
    rmw_op: Any
    sem: Any
    scope: Any
    vector: Any
    value: ext.Operand[Any]
    ptr: ext.Operand[Any]
    offsets: ext.Operand[Any]
    limit: Optional[ext.Operand[Any]] = None  # noqa: UP045
    mask: Optional[ext.Operand[Any]] = None  # noqa: UP045


class BufferAtomicCasOp(AMDG.Operation, name="buffer_atomic_cas"):
    """tt.atomic_cas at ``ptr`` + ``offsets``: where memory holds ``cmp``, by its bits, it becomes ``value``.

    Optional operands are written with operandSegmentSizes (cmp, value, ptr, offsets, limit, mask)."""

    result: ext.Result[Any]
    sem: Any
    scope: Any
    vector: Any
    cmp: ext.Operand[Any]
    value: ext.Operand[Any]
    ptr: ext.Operand[Any]
    offsets: ext.Operand[Any]
    limit: Optional[ext.Operand[Any]] = None  # noqa: UP045
    mask: Optional[ext.Operand[Any]] = None  # noqa: UP045


scratch.RULES |= {f"amdg.buffer_{name}": scratch.RULES[f"tt.{name}"] for name in ("atomic_rmw", "atomic_cas")}


class BufferLoadToLocalOp(AMDG.Operation, name="buffer_load_to_local"):
    """Start to copy what buffer_load would read into the memdesc ``dst``, whose layout has each wave's lanes one after another, 16 bytes
    each; zeros where masked off. Done at the wait for its group, as ttg.async_copy_global_to_local.

    Optional operands are written with operandSegmentSizes (dst, ptr, offsets, limit, mask)."""

    token: ext.Result[Any]
    cache: Any
    vector: Any
    dst: ext.Operand[Any]
    ptr: ext.Operand[Any]
    offsets: ext.Operand[Any]
    limit: Optional[ext.Operand[Any]] = None  # noqa: UP045
    mask: Optional[ext.Operand[Any]] = None  # noqa: UP045


class SchedBarrierOp(AMDG.Operation, name="sched_barrier"):
    """Instructions outside the kinds of ``mask`` (i32) do not move across (LLVM's llvm.amdgcn.sched.barrier)."""

    mask: Any


class SchedGroupBarrierOp(AMDG.Operation, name="sched_group_barrier"):
    """The next ``size`` instructions of the kinds ``mask`` come here in the schedule, among those of the same ``group``
    (llvm.amdgcn.sched.group.barrier)."""

    mask: Any
    size: Any
    group: Any


class IglpOptOp(AMDG.Operation, name="iglp_opt"):
    """LLVM's own order ``variant`` (i32) for the instructions around it (llvm.amdgcn.iglp.opt)."""

    variant: Any


class SetPrioOp(AMDG.Operation, name="setprio"):
    """Raise or lower the wave's priority for issue: 0 to 3 (s_setprio)."""

    priority: Any


class HalfBarrierOp(AMDG.Operation, name="half_barrier"):
    """A barrier that only the second half of the work-group's waves (``late``), or only the first, comes to: until its counterpart the one half is one
    barrier behind the other (passes/block_ping_pong.py)."""

    late: Any
