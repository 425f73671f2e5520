"""The ttng dialect: what only NVIDIA GPUs have — warp-group matrix products, mbarriers, bulk tensor copies (TMA).

These ops exist from sm_90 on. They are declared and verified here, and lowered by lower_barriers, lower_bulk_copies,
lower_warp_specialize and the warp-group lowerings beside them. An mbarrier is a ``!ttg.memdesc`` of one i64 in shared memory;
an array of them is ``memdesc<Nx1xi64>``, of which memdesc_index gives one. Phases are i32 parities (0 or 1). See the PTX ISA
manual, "Parallel synchronization: mbarrier", "Asynchronous copies" and "Asynchronous warpgroup level matrix instructions".

"One thread" of an op means: inside the producer region of warp_specialize the only thread there is; elsewhere thread 0 of
the program.
"""

from collections.abc import Sequence
from typing import Any, Optional

from tilewright.dialects._mlir import ext, ir
from tilewright.dialects.ttg import MemDescType

IntegerAttr = StringAttr = BoolAttr = Any
ARRIVE_SCOPES = ("thread", "warp", "warp_group")
REDUCTIONS = ("add", "fadd", "min", "max", "umin", "umax", "fmin", "fmax", "and", "or", "xor")  # those of tt.descriptor_reduce
MAX_TX_BYTES = (1 << 20) - 1  # what one phase of an mbarrier can count (PTX ISA, "mbarrier: contents")


class TTNG(ext.Dialect, name="ttng"):
    """Operations of NVIDIA GPUs on tiles with layouts."""


def _text(op: Any, name: str, default: str = "") -> str:
    """A string attribute that may be left out."""
    return str(ir.StringAttr(op.attributes[name]).value) if name in op.attributes else default


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
        if b.element_type == ir.F32Type.get() and _text(self, "input_precision") != "tf32":
            raise ValueError(f"warp_group_dot reads f32 as tf32, which input_precision {_text(self, 'input_precision')!r} does not allow")
        return True


class WarpGroupDotWaitOp(TTNG.Operation, name="warp_group_dot_wait"):
    """Wait until at most ``pendings`` groups of this warp group are in flight; results are the inputs, now readable. All of one
    type (several types: several waits)."""

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
        if not 0 < _attribute(self, "size") <= MAX_TX_BYTES:
            raise ValueError(f"barrier_expect: size must be positive and at most {MAX_TX_BYTES}, found {_attribute(self, 'size')}")
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
    """``count`` arrivals by each arriving thread; where ``pred`` holds, if given.

    The optional attribute ``scope`` says who arrives: "thread" (the default: one thread), "warp" (lane 0 of each warp, after the
    warp's lanes have met, so it speaks for all of them) or "warp_group" (the first thread of each four warps, which speaks
    for them only where all they did was done together, as wgmma is).
    """

    count: IntegerAttr
    barrier: ext.Operand[Any]
    pred: Optional[ext.Operand[Any]] = None  # noqa: UP045

    def verify_invariants(self) -> bool:
        _require_barrier(self.operands[0])
        if _attribute(self, "count") < 1:
            raise ValueError(f"arrive_barrier: count must be at least 1, found {_attribute(self, 'count')}")
        if _text(self, "scope", "thread") not in ARRIVE_SCOPES:
            raise ValueError(f"arrive_barrier: scope must be one of {', '.join(ARRIVE_SCOPES)}, found {_text(self, 'scope')!r}")
        return True


class ArriveBarrierRemoteOp(TTNG.Operation, name="arrive_barrier_remote"):
    """``count`` arrivals on the mbarrier at the same place in the shared memory of block ``rank`` (i32) of the cluster, where ``pred``
    holds. ``scope`` as in arrive_barrier."""

    count: IntegerAttr
    barrier: ext.Operand[Any]
    rank: ext.Operand[Any]
    pred: Optional[ext.Operand[Any]] = None  # noqa: UP045

    def verify_invariants(self) -> bool:
        _require_barrier(self.operands[0])
        if _attribute(self, "count") < 1:
            raise ValueError(f"arrive_barrier_remote: count must be at least 1, found {_attribute(self, 'count')}")
        return True


# ----------------------------------------------------------------------------------------- barriers without memory
class NamedBarrierOp(TTNG.Operation, name="named_barrier"):
    """``threads`` threads (whole warps) meet at hardware barrier ``id``; with ``arrive`` this one does not wait there.

    0 is the program's barrier and 1 that of warp_specialize's consumers, so ``id`` is 2 to 15. With the unit attribute
    ``per_warp_group`` each warp group meets at a barrier of its own: ``id`` plus the group's number; with ``other_warp_group``, of two
    groups each goes to the other's. ``only`` (i32): the one warp group that does it.
    """

    id: IntegerAttr
    threads: IntegerAttr
    arrive: BoolAttr

    def verify_invariants(self) -> bool:
        if not 2 <= _attribute(self, "id") <= 15:
            raise ValueError(f"named_barrier: id must be 2 to 15, found {_attribute(self, 'id')}")
        threads = _attribute(self, "threads")
        if threads < 32 or threads % 32 or threads > 1024:
            raise ValueError(f"named_barrier: threads must be a multiple of 32 up to 1024, found {threads}")
        return True


class ClusterRankOp(TTNG.Operation, name="cluster_rank", traits=[ext.Pure]):
    """This block's number in its cluster (i32)."""

    result: ext.Result[Any]


class ClusterArriveOp(TTNG.Operation, name="cluster_arrive"):
    """This thread arrives at its cluster's barrier; ``relaxed``: its writes need not be seen by the others."""

    relaxed: BoolAttr


class ClusterWaitOp(TTNG.Operation, name="cluster_wait"):
    """Wait until all threads of the cluster have arrived."""


class SetMaxRegistersOp(TTNG.Operation, name="set_max_registers"):
    """The four warps of a warp group have ``registers`` registers a thread from here on; ``increase`` says which way that is."""

    registers: IntegerAttr
    increase: BoolAttr

    def verify_invariants(self) -> bool:
        _check_registers("set_max_registers", _attribute(self, "registers"))
        return True


def _check_registers(what: str, count: int) -> None:
    if count % 8 or not 24 <= count <= 256:
        raise ValueError(f"{what}: registers a thread must be a multiple of 8 from 24 to 256, found {count}")


# ------------------------------------------------------------------------------------------------------ bulk copies
class AsyncTMACopyGlobalToLocalOp(TTNG.Operation, name="async_tma_copy_global_to_local"):
    """Start a bulk copy of the descriptor's block at ``coords`` into ``dst``; its bytes are counted on ``barrier``.

    Operands: descriptor, barrier, dst, pred, then one i32 coordinate a dim of the descriptor, outermost first. ``dst`` has the
    descriptor's rank, or less: then the block's leading dims have extent 1. Elements out of bounds become 0. The optional
    attribute ``multicast`` (i32, a mask of the cluster's blocks) lets every block of it receive the data at the same place.
    With the attribute ``streamed`` there is one i32 more, behind the coordinates: where it is not 0, the lines are the first to leave L2
    (in the place of ``evict``). One thread issues it.
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
        _check_coords(self, _memdesc(self.operands[2], "the destination of a TMA copy"), 4, "streamed" in self.operation.attributes)
        return True


class AsyncTMACopyLocalToGlobalOp(TTNG.Operation, name="async_tma_copy_local_to_global"):
    """Start a bulk copy of ``src`` into the descriptor's block at ``coords``, as a group of its own; done at tma_store_wait.

    Operands: descriptor, src, then coordinates as for loads. Elements out of bounds are not written. Optional attribute
    ``evict``. One thread issues it.
    """

    desc: ext.Operand[Any]
    src: ext.Operand[Any]
    coords: Sequence[ext.Operand[Any]]

    def verify_invariants(self) -> bool:
        _check_coords(self, _memdesc(self.operands[1], "the source of a TMA copy"), 2)
        return True


class AsyncTMAReduceOp(TTNG.Operation, name="async_tma_reduce"):
    """As async_tma_copy_local_to_global, but ``src`` is combined with what is there by ``kind``, element by element.

    Integers have 32 or 64 bits; f16 and bf16 have fadd, fmin and fmax, f32 and f64 fadd.
    """

    kind: StringAttr
    desc: ext.Operand[Any]
    src: ext.Operand[Any]
    coords: Sequence[ext.Operand[Any]]

    def verify_invariants(self) -> bool:
        _check_coords(self, _memdesc(self.operands[1], "the source of a TMA reduction"), 2)
        if _text(self, "kind") not in REDUCTIONS:
            raise ValueError(f"async_tma_reduce: kind must be one of {', '.join(REDUCTIONS)}, found {_text(self, 'kind')!r}")
        return True


def _check_coords(op: Any, block: Any, first: int, streamed: bool = False) -> None:
    """That the operands from ``first`` on are the coordinates, and behind them, where ``streamed``, what that says: all of i32."""
    found, rank = list(op.operands)[first:], len(block.shape)
    if not max(rank, 1) <= len(found) - streamed <= 5 or any(v.type != ir.IntegerType.get_signless(32) for v in found):
        raise ValueError(f"a TMA copy of a block {list(block.shape)} needs {rank} i32 coordinates (up to 5 where leading dims "
                         f"are dropped){' and whether it is streamed, an i32' if streamed else ''}, found {[str(v.type) for v in found]}")


class AsyncTMAGatherOp(TTNG.Operation, name="async_tma_gather"):
    """Start a bulk copy of the descriptor's rows ``rows`` (a tensor of i32), from column ``column`` on, into ``dst``."""

    desc: ext.Operand[Any]
    barrier: ext.Operand[Any]
    dst: ext.Operand[Any]
    rows: ext.Operand[Any]
    column: ext.Operand[Any]


class AsyncTMAScatterOp(TTNG.Operation, name="async_tma_scatter"):
    """Start a bulk copy of ``src`` to the descriptor's rows ``rows`` (a tensor of i32), from column ``column`` on."""

    desc: ext.Operand[Any]
    src: ext.Operand[Any]
    rows: ext.Operand[Any]
    column: ext.Operand[Any]


class TMAStoreWaitOp(TTNG.Operation, name="tma_store_wait"):
    """Wait until at most ``pendings`` of this thread's bulk stores still read shared memory.

    With the unit attribute ``complete``: until they have written global memory too.
    """

    pendings: IntegerAttr

    def verify_invariants(self) -> bool:
        if _attribute(self, "pendings") < 0:
            raise ValueError(f"tma_store_wait: pendings must be at least 0, found {_attribute(self, 'pendings')}")
        return True


class PrefetchTensormapOp(TTNG.Operation, name="prefetch_tensormap"):
    """Bring a descriptor into the cache, so that the first copy need not wait for it."""

    desc: ext.Operand[Any]


class FenceAsyncSharedOp(TTNG.Operation, name="fence_async_shared"):
    """Ordinary shared-memory writes before it are seen by wgmma and bulk copies after it (fence.proxy.async)."""

    b_cluster: BoolAttr


# ----------------------------------------------------------------------------------------------- warp specialisation
PRODUCER_WARPS = 4  # setmaxnreg takes whole warp groups


class WarpSpecializeOp(TTNG.Operation, name="warp_specialize"):
    """Two programs at once: region 0 ("consumers") is run by the kernel's num_warps warps, region 1 ("producer") by one thread
    of PRODUCER_WARPS further warps, thread num_warps * 32. Both use values from above freely, and end in warp_return.

    It stands at the function's end, before func.return; what stands before it is executed by all threads, the producer's
    too, and seen by both. Inside region 0 every barrier of the program is one of the consumers alone.
    ``consumer_registers``, ``producer_registers``: registers a thread from here on (0: as the kernel began). The optional
    attribute ``min_ctas`` (i32, 1 without it): blocks that must fit on a multiprocessor, which bounds the registers; ``cluster``
    (i32, 1 without it): blocks of a cluster.
    """

    consumer_registers: IntegerAttr
    producer_registers: IntegerAttr
    consumers: ext.Region
    producer: ext.Region

    def verify_invariants(self) -> bool:
        counts = [_attribute(self, n) for n in ("consumer_registers", "producer_registers")]
        for count in counts:
            if count:
                _check_registers("warp_specialize", count)
        if bool(counts[0]) != bool(counts[1]):
            raise ValueError(f"warp_specialize: both or neither of the register counts are 0, found {counts}")
        for name, region in zip(("consumers", "producer"), self.regions):
            blocks = list(region.blocks)
            if len(blocks) != 1 or len(blocks[0].arguments):
                raise ValueError(f"warp_specialize: region {name} must be one block without arguments")
            last = list(blocks[0].operations)[-1].operation.name if len(blocks[0].operations) else "nothing"
            if last != "ttng.warp_return":
                raise ValueError(f"warp_specialize: region {name} must end in ttng.warp_return, found {last}")
        return True


class WarpReturnOp(TTNG.Operation, name="warp_return", traits=[ir.IsTerminatorTrait]):
    """Ends a region of warp_specialize."""
