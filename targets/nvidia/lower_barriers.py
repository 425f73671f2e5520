"""mbarriers, named and cluster barriers, proxy fences and register counts, from ttng to PTX.

Everything is inline assembly or an intrinsic of the PTX ISA manual's sections "Parallel synchronization and communication
instructions: mbarrier", "barrier", "barrier.cluster", "membar/fence" and "setmaxnreg". Which threads execute an op follows from
where it stands: in the producer region of warp_specialize there is one, elsewhere all threads of the program come by and
thread 0 acts where one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import InternalCompilerError

# One try waits for a time that the hardware bounds, so the loop is the waiting (PTX ISA, "mbarrier.try_wait").
WAIT_ASM = ("{\n.reg .pred P1;\nWL${:uid}:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [$0], $1;\n@P1 bra DN${:uid};\n"
            "bra WL${:uid};\nDN${:uid}:\n}")


# ------------------------------------------------------------------------------------------------- who, and where
def integer(op: Any, name: str) -> int:
    return int(ir.IntegerAttr(op.attributes[name]).value)


def flag(op: Any, name: str) -> bool:
    """A bool attribute, or a unit attribute that may be left out."""
    return name in op.attributes and (not isinstance(op.attributes[name], ir.BoolAttr) or bool(ir.BoolAttr(op.attributes[name]).value))


def text(op: Any, name: str, default: str = "") -> str:
    return str(ir.StringAttr(op.attributes[name]).value) if name in op.attributes else default


def shared_address(ctx: Any, value: Any) -> Any:
    """The i32 shared-memory address of a memdesc's first element."""
    memory = ctx.get(value)
    if any(memory.offsets):
        raise InternalCompilerError("the address of a slice of shared memory is asked for where a whole buffer is wanted")
    return ctx.b.ptrtoint(memory.base, ctx.b.t_i32)


def raw_thread(ctx: Any) -> Any:
    """The thread's number in the block, in the entry block."""
    return ctx.once("raw thread", ctx.hooks.raw_thread_id) if ctx.hooks.extra_warps else ctx.thread_id()


def first_of(ctx: Any, threads: int) -> Any | None:
    """i1: the thread is the first of its group of ``threads`` (a power of two; 0: of all). None where one thread alone runs this."""
    if ctx.hooks.single_thread:
        return None
    thread = raw_thread(ctx)
    return ctx.once(("first of", threads), lambda b: b.icmp("eq", b.and_(thread, b.i32(threads - 1)) if threads else thread, b.i32(0)))


def where(ctx: Any, conditions: list[Any | None], act: Callable[[], Any]) -> None:
    """``act`` builds what happens where all the conditions (i1; None: always) hold."""
    b, condition = ctx.b, None
    for c in conditions:
        number = None if c is None else b.constant_of(c)
        if number is not None and not number:
            return
        if c is not None and number is None:
            condition = c if condition is None else b.and_(condition, c)
    if condition is None:
        act()
    else:
        b.if_then(condition, act)


def asm(ctx: Any, instruction: str, letters: str = "", args: tuple[Any, ...] = ()) -> None:
    """One instruction for its effect. ``letters``: an LLVM constraint letter an argument."""
    ctx.b.inline_asm(instruction, ",".join([*letters, "~{memory}"]), None, list(args), side_effects=True)


def _optional_pred(ctx: Any, op: Any, index: int) -> Any | None:
    operands = list(op.operands)
    return ctx.scalar(operands[index]) if len(operands) > index else None


# ------------------------------------------------------------------------------------------------------- mbarriers
def _more_follow(node: Any) -> bool:
    """Whether the next op that does something makes another mbarrier."""
    ops = node.region.ops
    for other in ops[next(i for i, n in enumerate(ops) if n is node) + 1:]:
        if other.name not in ("ttg.local_alloc", "ttg.memdesc_index", "arith.constant"):
            return bool(other.name == "ttng.init_barrier")
    return False


def lower_init_barrier(ctx: Any, op: Any) -> None:
    address, more = shared_address(ctx, op.operands[0]), _more_follow(ctx.node)

    def init() -> None:
        asm(ctx, f"mbarrier.init.shared::cta.b64 [$0], {integer(op, 'count')};", "r", (address,))
        if not more:  # the copy engine and the cluster's other blocks must see it made
            asm(ctx, "fence.mbarrier_init.release.cluster;")

    where(ctx, [first_of(ctx, 0)], init)


def lower_inval_barrier(ctx: Any, op: Any) -> None:
    address = shared_address(ctx, op.operands[0])
    where(ctx, [first_of(ctx, 0)], lambda: asm(ctx, "mbarrier.inval.shared::cta.b64 [$0];", "r", (address,)))


def lower_barrier_expect(ctx: Any, op: Any) -> None:
    address = shared_address(ctx, op.operands[0])
    instruction = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], {integer(op, 'size')};"
    where(ctx, [first_of(ctx, 0), ctx.scalar(op.operands[1])], lambda: asm(ctx, instruction, "r", (address,)))


def lower_wait_barrier(ctx: Any, op: Any) -> None:
    address, phase = shared_address(ctx, op.operands[0]), ctx.scalar(op.operands[1])
    where(ctx, [_optional_pred(ctx, op, 2)], lambda: asm(ctx, WAIT_ASM, "rr", (address, phase)))


def _arriving(ctx: Any, op: Any) -> Any | None:
    """The threads that arrive, by the op's scope."""
    scope = text(op, "scope", "thread")
    if scope == "warp" and not ctx.hooks.single_thread:
        ctx.hooks.warp_barrier(ctx.b)  # what the other lanes did comes before lane 0's arrival
    return first_of(ctx, {"thread": 0, "warp": 32, "warp_group": 128}[scope])


def lower_arrive_barrier(ctx: Any, op: Any) -> None:
    address, count = shared_address(ctx, op.operands[0]), integer(op, "count")
    who = _arriving(ctx, op)
    instruction = "mbarrier.arrive.shared::cta.b64 _, [$0]" + (f", {count};" if count > 1 else ";")
    where(ctx, [who, _optional_pred(ctx, op, 1)], lambda: asm(ctx, instruction, "r", (address,)))


def lower_arrive_barrier_remote(ctx: Any, op: Any) -> None:
    address, rank, count = shared_address(ctx, op.operands[0]), ctx.scalar(op.operands[1]), integer(op, "count")
    who = _arriving(ctx, op)
    # at the default scope: what the arrival promises is that this block read its own shared memory, and a release at cluster scope waits
    # for all of its memory accesses
    arrive = "mbarrier.arrive.shared::cluster.b64 _, [RA]" + (f", {count};" if count > 1 else ";")
    instruction = f"{{\n.reg .b32 RA;\nmapa.shared::cluster.u32 RA, $0, $1;\n{arrive}\n}}"
    where(ctx, [who, _optional_pred(ctx, op, 2)], lambda: asm(ctx, instruction, "rr", (address, rank)))


def lower_cluster_rank(ctx: Any, op: Any) -> list[Any]:
    return [[ctx.b.call_intrinsic("llvm.nvvm.read.ptx.sreg.cluster.ctarank", ctx.b.t_i32, [])]]


# ------------------------------------------------------------------------------------- barriers without memory, fences
def _all_lanes(ctx: Any, what: str) -> None:
    if ctx.hooks.single_thread:
        raise InternalCompilerError(f"nvidia: {what} in code that one thread alone runs")


def lower_named_barrier(ctx: Any, op: Any) -> None:
    _all_lanes(ctx, "a named barrier")
    b, number = ctx.b, integer(op, "id")
    value = b.i32(number)
    thread = raw_thread(ctx)
    group = ctx.once("warp group", lambda b: b.lshr(thread, b.i32(7)))
    if flag(op, "per_warp_group"):
        value = ctx.once(("named barrier", number), lambda b: b.add(group, b.i32(number)))
    elif flag(op, "other_warp_group"):
        value = ctx.once(("other's named barrier", number), lambda b: b.add(b.xor(group, b.i32(1)), b.i32(number)))
    kind = "arrive" if flag(op, "arrive") else "sync"

    def meet() -> None:
        b.call_intrinsic(f"llvm.nvvm.barrier.cta.{kind}.aligned.count", None, [value, b.i32(integer(op, "threads"))])

    only = integer(op, "only") if "only" in op.attributes else None
    where(ctx, [None if only is None else ctx.once(("is warp group", only), lambda b: b.icmp("eq", group, b.i32(only)))], meet)


def lower_cluster_arrive(ctx: Any, op: Any) -> None:
    ctx.b.call_intrinsic("llvm.nvvm.barrier.cluster.arrive" + (".relaxed" if flag(op, "relaxed") else ""), None, [])


def lower_cluster_wait(ctx: Any, op: Any) -> None:
    ctx.b.call_intrinsic("llvm.nvvm.barrier.cluster.wait", None, [])


def lower_fence_async_shared(ctx: Any, op: Any) -> None:
    asm(ctx, f"fence.proxy.async.shared::{'cluster' if flag(op, 'b_cluster') else 'cta'};")


def set_max_registers(ctx: Any, registers: int, increase: bool) -> None:
    """All warps of a warp group have ``registers`` registers a thread from here on. They must come here together."""
    ctx.b.call_intrinsic(f"llvm.nvvm.setmaxnreg.{'inc' if increase else 'dec'}.sync.aligned.u32", None, [ctx.b.i32(registers)])


def lower_set_max_registers(ctx: Any, op: Any) -> None:
    _all_lanes(ctx, "set_max_registers")
    set_max_registers(ctx, integer(op, "registers"), flag(op, "increase"))


LOWERINGS: dict[str, Callable[..., Any]] = {
    "ttng.init_barrier": lower_init_barrier, "ttng.inval_barrier": lower_inval_barrier,
    "ttng.barrier_expect": lower_barrier_expect, "ttng.wait_barrier": lower_wait_barrier,
    "ttng.arrive_barrier": lower_arrive_barrier, "ttng.arrive_barrier_remote": lower_arrive_barrier_remote,
    "ttng.named_barrier": lower_named_barrier, "ttng.cluster_rank": lower_cluster_rank, "ttng.cluster_arrive": lower_cluster_arrive,
    "ttng.cluster_wait": lower_cluster_wait, "ttng.fence_async_shared": lower_fence_async_shared,
    "ttng.set_max_registers": lower_set_max_registers,
}
