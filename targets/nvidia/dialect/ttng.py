"""The ttng dialect: what only NVIDIA GPUs have — warp-group matrix products, mbarriers, bulk tensor copies (TMA).

These ops exist from sm_90 on. They are declared and verified here; the passes that make them and their lowerings are the
Hopper work. An mbarrier is a ``!ttg.memdesc`` of one i64 in shared memory; phases are i32 parities (0 or 1), as in the PTX
ISA manual, "Asynchronous barriers" and "Asynchronous warpgroup level matrix multiply-accumulate".
"""

from collections.abc import Sequence
from typing import Any, Optional

from tilewright.dialects._mlir import ext, ir
from tilewright.dialects.ttg import MemDescType

IntegerAttr = StringAttr = BoolAttr = Any


class TTNG(ext.Dialect, name="ttng"):
    """Operations of NVIDIA GPUs on tiles with layouts."""


def _memdesc(value: Any, what: str) -> Any:
    t = value.type
    if not str(t).startswith("!ttg.memdesc"):
        raise ValueError(f"{what} must be a memdesc, found {t}")
    return MemDescType(t)


def _require_barrier(value: Any, what: str = "the barrier") -> None:
    t = _memdesc(value, what)
    if t.element_type != ir.IntegerType.get_signless(64) or [*t.shape] != [1]:
        raise ValueError(f"{what} must be a memdesc of one i64, found {value.type}")


def _attribute(op: Any, name: str) -> int:
    return int(ir.IntegerAttr(op.attributes[name]).value)


class WarpGroupDotOp(TTNG.Operation, name="warp_group_dot"):
    """Start ``a @ b + c`` on groups of four warps (wgmma); the result may be read after warp_group_dot_wait.

    ``a`` is a memdesc or a tensor in the accumulator's dot-operand layout, ``b`` a memdesc, ``c`` a tensor. ``use_c`` (i1
    operand, where given) false: c is not read. Shapes [M, K], [K, N], [M, N]; M a multiple of 64, N of 8, K of 32 bytes.
    """

    result: ext.Result[Any]
    input_precision: StringAttr
    max_num_imprecise_acc: IntegerAttr
    is_async: BoolAttr
    a: ext.Operand[Any]
    b: ext.Operand[Any]
    c: ext.Operand[Any]
    use_c: Optional[ext.Operand[Any]] = None  # noqa: UP045

    def verify_invariants(self) -> bool:
        b = _memdesc(self.operands[1], "operand b of warp_group_dot")
        a_type = self.operands[0].type
        a_shape = list(MemDescType(a_type).shape if str(a_type).startswith("!ttg.memdesc") else ir.RankedTensorType(a_type).shape)
        c = ir.RankedTensorType(self.operands[2].type)
        (m, k), (kb, n) = a_shape, b.shape
        if k != kb or list(c.shape) != [m, n]:
            raise ValueError(f"warp_group_dot of [{m}, {k}] and [{kb}, {n}] cannot give {list(c.shape)}")
        if m % 64 or n % 8:
            raise ValueError(f"warp_group_dot needs M a multiple of 64 and N of 8, found {m} and {n}")
        return True


class WarpGroupDotWaitOp(TTNG.Operation, name="warp_group_dot_wait"):
    """Wait until at most ``pendings`` groups of this warp group are in flight; results are the inputs, now readable."""

    results_: Sequence[ext.Result[Any]]
    pendings: IntegerAttr
    inputs: Sequence[ext.Operand[Any]]

    def verify_invariants(self) -> bool:
        if _attribute(self, "pendings") < 0:
            raise ValueError(f"warp_group_dot_wait: pendings must be at least 0, found {_attribute(self, 'pendings')}")
        if [r.type for r in self.results] != [o.type for o in self.operands]:
            raise ValueError("warp_group_dot_wait gives its inputs, so results must have the inputs' types")
        return True


class InitBarrierOp(TTNG.Operation, name="init_barrier"):
    """Make an mbarrier that ``count`` arrivals complete a phase of."""

    count: IntegerAttr
    barrier: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        _require_barrier(self.operands[0])
        if not 1 <= _attribute(self, "count") < 1 << 20:
            raise ValueError(f"init_barrier: count must be 1 to 2^20 - 1, found {_attribute(self, 'count')}")
        return True


class InvalBarrierOp(TTNG.Operation, name="inval_barrier"):
    """End an mbarrier's life, so that its memory may hold something else."""

    barrier: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        _require_barrier(self.operands[0])
        return True


class BarrierExpectOp(TTNG.Operation, name="barrier_expect"):
    """One thread arrives, and the phase also waits for ``size`` bytes of bulk copies; where ``pred`` holds."""

    size: IntegerAttr
    barrier: ext.Operand[Any]
    pred: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        _require_barrier(self.operands[0])
        if _attribute(self, "size") <= 0:
            raise ValueError(f"barrier_expect: size must be positive, found {_attribute(self, 'size')}")
        return True


class WaitBarrierOp(TTNG.Operation, name="wait_barrier"):
    """Wait until the phase of parity ``phase`` (i32) is complete; where ``pred`` holds, if given."""

    barrier: ext.Operand[Any]
    phase: ext.Operand[Any]
    pred: Optional[ext.Operand[Any]] = None  # noqa: UP045

    def verify_invariants(self) -> bool:
        _require_barrier(self.operands[0])
        if self.operands[1].type != ir.IntegerType.get_signless(32):
            raise ValueError(f"wait_barrier: the phase is an i32, found {self.operands[1].type}")
        return True


class ArriveBarrierOp(TTNG.Operation, name="arrive_barrier"):
    """``count`` arrivals by one thread; where ``pred`` holds, if given."""

    count: IntegerAttr
    barrier: ext.Operand[Any]
    pred: Optional[ext.Operand[Any]] = None  # noqa: UP045

    def verify_invariants(self) -> bool:
        _require_barrier(self.operands[0])
        if _attribute(self, "count") < 1:
            raise ValueError(f"arrive_barrier: count must be at least 1, found {_attribute(self, 'count')}")
        return True


class AsyncTMACopyGlobalToLocalOp(TTNG.Operation, name="async_tma_copy_global_to_local"):
    """Start a bulk copy of the descriptor's block at ``coords`` into ``dst``; its bytes are counted on ``barrier``.

    Operands: descriptor, barrier, dst, pred, then one i32 coordinate a dim. Elements out of bounds become 0.
    """

    cache: StringAttr
    evict: StringAttr
    desc: ext.Operand[Any]
    barrier: ext.Operand[Any]
    dst: ext.Operand[Any]
    pred: ext.Operand[Any]
    coords: Sequence[ext.Operand[Any]]

    def verify_invariants(self) -> bool:
        _require_barrier(self.operands[1])
        _check_coords(self, _memdesc(self.operands[2], "the destination of a TMA copy"), 4)
        return True


class AsyncTMACopyLocalToGlobalOp(TTNG.Operation, name="async_tma_copy_local_to_global"):
    """Start a bulk copy of ``src`` into the descriptor's block at ``coords``; done at tma_store_wait.

    Operands: descriptor, src, then one i32 coordinate a dim. Elements out of bounds are not written.
    """

    desc: ext.Operand[Any]
    src: ext.Operand[Any]
    coords: Sequence[ext.Operand[Any]]

    def verify_invariants(self) -> bool:
        _check_coords(self, _memdesc(self.operands[1], "the source of a TMA copy"), 2)
        return True


def _check_coords(op: Any, block: Any, first: int) -> None:
    coords = list(op.operands)[first:]
    if len(coords) != len(block.shape) or any(c.type != ir.IntegerType.get_signless(32) for c in coords):
        raise ValueError(f"a TMA copy of a block {list(block.shape)} needs {len(block.shape)} i32 coordinates, found "
                         f"{[str(c.type) for c in coords]}")


class TMAStoreWaitOp(TTNG.Operation, name="tma_store_wait"):
    """Wait until at most ``pendings`` of this thread's bulk stores still read shared memory."""

    pendings: IntegerAttr


class FenceAsyncSharedOp(TTNG.Operation, name="fence_async_shared"):
    """Ordinary shared-memory writes before it are seen by wgmma and bulk copies after it (fence.proxy.async)."""

    b_cluster: BoolAttr
