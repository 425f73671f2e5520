"""Program flow: branches, ends, barriers, hardware registers, and what has no effect here ("Program Control" in the manuals; SOPP, SOP1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.errors import Trap
from tilewright.targets.amd.isa.program import Expr, Imm, Instruction
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.state import scalar_reader, scalar_writer

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any
END = -1  # of Waves.next_pc
_CONDITIONS: dict[str, Callable[[Waves], Array]] = {
    "scc0": lambda w: ~w.scc, "scc1": lambda w: w.scc, "vccz": lambda w: w.vcc == 0, "vccnz": lambda w: w.vcc != 0,
    "execz": lambda w: w.exec == 0, "execnz": lambda w: w.exec != 0,
}


def _target(ins: Instruction, ctx: DecodeContext) -> int:
    operand = ins.operands[0]
    if not isinstance(operand, Expr) or operand.text not in ctx.kernel.labels:
        raise ctx.unknown(ins, f"a branch to {operand.text}")
    return ctx.kernel.labels[operand.text]


@instruction("s_branch")
def _branch(ins: Instruction, ctx: DecodeContext) -> Step:
    target = _target(ins, ctx)

    def step(w: Waves) -> None:
        w.next_pc = target

    return step


@instruction(*(f"s_cbranch_{c}" for c in _CONDITIONS))
def _conditional(ins: Instruction, ctx: DecodeContext) -> Step:
    target, following, condition = _target(ins, ctx), ins.index + 1, _CONDITIONS[ins.base.removeprefix("s_cbranch_")]

    def step(w: Waves) -> None:
        taken = condition(w)
        count = int(np.count_nonzero(taken))
        if count == w.n:
            w.next_pc = target
        elif count:
            w.next_pc = np.where(taken, target, following)

    return step


@instruction("s_endpgm", "s_endpgm_saved")
def _end(ins: Instruction, ctx: DecodeContext) -> Step:
    def step(w: Waves) -> None:
        w.machine.waits.end(w)
        w.next_pc = END

    return step


@instruction("s_trap")
def _trap(ins: Instruction, ctx: DecodeContext) -> Step:
    """Trap 2 is llvm.trap (AMDGPU user guide, "Trap Handler ABI"): an assertion that failed."""
    number = ins.operands[0].text

    def step(w: Waves) -> None:
        raise Trap("an assertion of the kernel failed" if number == "2" else f"trap {number}", 0,
                   [i for i in range(w.lanes) if int(w.exec[0]) >> i & 1])

    return step


# -------------------------------------------------------------------------------------------------------- barriers
@instruction("s_barrier")
def _barrier(ins: Instruction, ctx: DecodeContext) -> Step:
    def step(w: Waves) -> None:
        w.machine.signal(w)
        w.machine.wait(w)

    return step


def _whole_group(ins: Instruction, ctx: DecodeContext) -> None:
    """−1 names the work-group's barrier (RDNA 4 manual, "Barriers")."""
    operand = ins.operands[0]
    if not isinstance(operand, Imm) or operand.value not in (-1, 0xFFFF):
        raise ctx.unknown(ins, "a named barrier")


@instruction("s_barrier_signal")
def _signal(ins: Instruction, ctx: DecodeContext) -> Step:
    _whole_group(ins, ctx)
    return lambda w: w.machine.signal(w)


@instruction("s_barrier_wait")
def _wait(ins: Instruction, ctx: DecodeContext) -> Step:
    _whole_group(ins, ctx)
    return lambda w: w.machine.wait(w)


# ------------------------------------------------------------------------------------------------- no effect here
@instruction("s_nop", "s_clause", "s_delay_alu", "s_setprio", "s_sleep", "s_sleep_var", "s_inst_prefetch", "s_set_inst_prefetch_distance", "s_icache_inv",
             "s_code_end", "s_ttracedata", "s_ttracedata_imm", "s_incperflevel", "s_decperflevel", "s_sched_barrier", "s_setprio_inc_wg", "s_wakeup")
def _nothing(ins: Instruction, ctx: DecodeContext) -> Step:
    """Scheduling, prefetching and counting."""
    return lambda w: None


@instruction("s_sendmsg")
def _message(ins: Instruction, ctx: DecodeContext) -> Step:
    """Only MSG_DEALLOC_VGPRS, which a wave sends when it needs no registers any more."""
    if "MSG_DEALLOC_VGPRS" not in ins.operands[0].text:
        raise ctx.unknown(ins, f"message {ins.operands[0].text}")
    return lambda w: None


# --------------------------------------------------------------------------------------- mode and program counter
def _mode(ctx: DecodeContext) -> int:
    """The MODE register's low byte as the descriptor sets it: rounding in 3:0, denormals in 7:4 (manuals, "MODE register")."""
    d = ctx.kernel.descriptor
    return (d.get("float_round_mode_32", 0) | d.get("float_round_mode_16_64", 0) << 2 | d.get("float_denorm_mode_32", 0) << 4
            | d.get("float_denorm_mode_16_64", 3) << 6)


@instruction("s_setreg_imm32_b32", "s_denorm_mode", "s_round_mode")
def _set_mode(ins: Instruction, ctx: DecodeContext) -> Step:
    """The mode of floats; only what it is already, since instructions are decoded for the descriptor's."""
    first, size = {"s_round_mode": (0, 4), "s_denorm_mode": (4, 4)}.get(ins.base, (0, 0))
    value = ins.operands[-1]
    if not size:
        name, *where = ins.operands[0].text.removeprefix("hwreg(").removesuffix(")").replace(" ", "").split(",")
        if name != "HW_REG_MODE" or len(where) != 2:
            raise ctx.unknown(ins, f"register {name}")
        first, size = int(where[0]), int(where[1])
    if not isinstance(value, Imm) or first + size > 8 or _mode(ctx) >> first & ((1 << size) - 1) != int(value.value) & ((1 << size) - 1):
        raise ctx.unknown(ins, "a change of the float mode within a kernel")
    return lambda w: None


@instruction("s_getpc_b64")
def _getpc(ins: Instruction, ctx: DecodeContext) -> Step:
    """Address of the next instruction. Code lies at an address of its own, where nothing can be read."""
    write = scalar_writer(ins.operands[0], "b64")
    return lambda w: write(w, np.full(w.n, w.machine.code_address + ins.address + 4, np.uint64))


@instruction("s_setpc_b64", "s_swappc_b64")
def _jump(ins: Instruction, ctx: DecodeContext) -> Step:
    """To an address in registers; s_swappc_b64 keeps the address that follows, to which the function returns."""
    read = scalar_reader(ins.operands[-1], "u64")
    write = scalar_writer(ins.operands[0], "b64") if ins.base == "s_swappc_b64" else None

    def step(w: Waves) -> None:
        targets = w.machine.pc_of(np.broadcast_to(read(w), (w.n,)))
        if write is not None:
            write(w, np.full(w.n, w.machine.code_address + ins.address + 4, np.uint64))
        w.next_pc = int(targets[0]) if (targets == targets[0]).all() else targets

    return step


@instruction("s_getreg_b32")
def _getreg(ins: Instruction, ctx: DecodeContext) -> Step:
    """HW_REG_SHADER_CYCLES (RDNA): a clock, here of blocks of instructions; HW_REG_MODE's low byte."""
    name, *where = ins.operands[1].text.removeprefix("hwreg(").removesuffix(")").replace(" ", "").split(",")
    first, size = (int(where[0]), int(where[1])) if where else (0, 32)
    write = scalar_writer(ins.operands[0])
    keep = (1 << size) - 1
    if name.startswith("HW_REG_SHADER_CYCLES"):
        shift = first + (32 if name.endswith("HI") else 0)
        return lambda w: write(w, np.full(w.n, w.machine.clock >> shift & keep, np.uint32))
    if name == "HW_REG_MODE" and first + size <= 8:
        value = np.uint32(_mode(ctx) >> first & keep)
        return lambda w: write(w, np.full(w.n, value, np.uint32))
    raise ctx.unknown(ins, f"register {name}")


@instruction("s_bitreplicate_b64_b32")
def _replicate(ins: Instruction, ctx: DecodeContext) -> Step:
    """Each bit twice."""
    read, write = scalar_reader(ins.operands[1], "u32"), scalar_writer(ins.operands[0], "b64")

    def step(w: Waves) -> None:
        bits = np.unpackbits(np.ascontiguousarray(np.broadcast_to(read(w), (w.n,))).view(np.uint8).reshape(w.n, 4), axis=1, bitorder="little")
        write(w, np.packbits(np.repeat(bits, 2, axis=1), axis=1, bitorder="little").view(np.uint64).reshape(w.n))

    return step
