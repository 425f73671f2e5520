"""ttng.warp_specialize: one branch on the warp's number, the program's warps on one side and the producer's on the other.

After a barrier of all threads the producer's warps give registers away (setmaxnreg works on whole warp groups, and only in a kernel
whose registers are bounded at entry: PTX ISA, "setmaxnreg") and one thread of them runs the producer region; the program's warps
take the registers and run the consumer region, where the program's barrier is hardware barrier CONSUMER_BARRIER of their threads
alone. Both sides meet at the function's end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dialects.errors import InternalCompilerError
from tilewright.targets.nvidia.dialect.ttng import PRODUCER_WARPS
from tilewright.targets.nvidia.lower_barriers import integer, raw_thread, set_max_registers

OP = "ttng.warp_specialize"
CONSUMER_BARRIER = 1
# What the producer's warps would do once more, before they part from the program's warps, and must not.
_NOT_BEFORE = frozenset(("tt.atomic_rmw", "tt.atomic_cas", "tt.print", "tt.elementwise_inline_asm", "ttng.named_barrier",
                         "ttng.set_max_registers", "ttng.warp_group_dot"))


def specialisation_of(function: Any) -> tuple[int, int]:
    """(warps beside the program's own, blocks that must fit on a multiprocessor) of a kernel's mirror; (0, 0) without the op.

    Raises InternalCompilerError where the op does not stand at the function's end.
    """
    found = [node for node in function.nodes() if node.name == OP]
    if not found:
        return 0, 0
    ops = function.body.ops
    if len(found) != 1 or len(ops) < 2 or ops[-2] is not found[0]:
        raise InternalCompilerError(f"{OP} must be the last op of the kernel, and the only one of its kind")
    for node in function.nodes():
        if node is found[0]:
            break
        if node.name in _NOT_BEFORE:
            raise InternalCompilerError(f"{node.name} before {OP}: the producer's warps would do it too")
    return PRODUCER_WARPS, integer(found[0].op, "min_ctas") if "min_ctas" in found[0].op.attributes else 1


def cluster_of(function: Any) -> int:
    """Blocks of a cluster that a kernel's mirror asks for; 1 where it asks for none."""
    found = [node for node in function.nodes() if node.name == OP]
    return integer(found[0].op, "cluster") if found and "cluster" in found[0].op.attributes else 1


def lower_warp_specialize(ctx: Any, op: Any) -> None:
    b, hooks = ctx.b, ctx.hooks
    if not hooks.extra_warps:
        raise InternalCompilerError(f"{OP} is lowered in a kernel that was prepared without it")
    consumers, producer = ctx.node.regions
    more, fewer = integer(op, "consumer_registers"), integer(op, "producer_registers")
    threads = ctx.num_threads
    thread = raw_thread(ctx)
    ctx.metadata["total_warps"] = ctx.num_warps + hooks.extra_warps

    def lower(region: Any) -> None:
        ctx.lower_ops(region.ops[:-1])
        b.loc = op.location

    def produce() -> None:
        if fewer:
            set_max_registers(ctx, fewer, increase=False)

        def alone() -> None:
            hooks.single_thread = True
            lower(producer)
            hooks.single_thread = False

        b.if_then(b.icmp("eq", thread, b.i32(threads)), alone)

    def consume() -> None:
        if more:
            set_max_registers(ctx, more, increase=True)
        hooks.named_barrier = (CONSUMER_BARRIER, threads)
        lower(consumers)
        hooks.named_barrier = None

    hooks.barrier(b)
    # uniform in a warp: threads is a multiple of 32
    b.if_then_else(b.icmp("uge", thread, b.i32(threads)), produce, consume)
    if hooks.cluster > 1:  # a block must not end while the other may still write to its shared memory
        for step in ("arrive.relaxed", "wait"):
            b.call_intrinsic(f"llvm.nvvm.barrier.cluster.{step}", None, [])


LOWERINGS: dict[str, Callable[..., Any]] = {OP: lower_warp_specialize}
