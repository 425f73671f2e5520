"""The meaning of the PTX that the NVIDIA lowering emits, for the SIMT executor.

Written from the PTX ISA manual and on purpose not from ``matrix_ops`` or ``lower_hooks``, so that a wrong row or a wrong
operand there shows as a wrong product. Inline assembly is parsed into instructions, each of which is a numpy function over the
threads of a block; what is not here raises SimtError when the kernel is decoded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.dialects.simt import SimtError, SimtExecutor
from tilewright.dialects.simt.executor import CallInfo, Machine
from tilewright.dialects.simt.pending import Pending
from tilewright.dialects.simt.scalar_ops import INTRINSICS
from tilewright.targets.nvidia.simulate_barriers import waiter
from tilewright.targets.nvidia.simulate_hopper import INSTRUCTIONS
from tilewright.targets.nvidia.simulate_instructions import Handler, as_bits, float32

Array = Any


def _index(f: Callable[[Machine], int]) -> Callable[[Machine], Array]:
    return lambda m: np.full(m.num_threads, f(m), np.uint32)


# PTX ISA manual, "Special Registers"; as intrinsics their names have a dot where these have a first underscore
SPECIAL: dict[str, Callable[[Machine], Array]] = {
    "tid.x": lambda m: m.thread_ids, "laneid": lambda m: m.lane_ids, "ntid.x": _index(lambda m: m.num_threads),
    "cluster_ctarank": _index(lambda m: m.rank), "cluster_nctarank": _index(lambda m: len(m.group.machines)),
    "smid": _index(lambda m: 0), "globaltimer": lambda m: np.full(m.num_threads, time.time_ns(), np.uint64),
    **{f"ctaid.{axis}": _index(lambda m, i=i: m.program_ids[i]) for i, axis in enumerate("xyz")},  # type: ignore[misc]
    **{f"nctaid.{axis}": _index(lambda m, i=i: m.grid[i]) for i, axis in enumerate("xyz")},  # type: ignore[misc]
}


# ------------------------------------------------------------------------------------------------ inline assembly
@dataclass(frozen=True)
class Operand:
    """kind: "reg" (number or name), "special" (name of a special register), "imm" (value), "addr" (base operand, offset), "group" (operands), "sink" (``_``), "pair"
    (two operands, ``a|b``), "tensor" (base operand and coordinates, ``[a, {b, c}]``)."""

    kind: str
    value: Any = None
    offset: int = 0


@dataclass(frozen=True)
class Instruction:
    guard: Operand | None
    negated: bool
    opcode: str
    operands: tuple[Operand, ...]


def _operand(text: str) -> Operand:
    text = text.strip()
    if text == "_":
        return Operand("sink")
    if text.startswith("{"):
        return Operand("group", tuple(_operand(t) for t in text[1:-1].split(",")))
    if text.startswith("[") and "{" in text:
        base, _, coords = text[1:-1].partition(",")
        return Operand("tensor", (_operand(base), _operand(coords).value))
    if "|" in text:
        return Operand("pair", tuple(_operand(t) for t in text.split("|")))
    if text.startswith("["):
        base, _, offset = text[1:-1].partition("+")
        return Operand("addr", _operand(base), int(offset, 0) if offset.strip() else 0)
    if text.startswith("$"):
        return Operand("reg", int(text[1:]))
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", text):
        return Operand("imm", int(text, 0))
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return Operand("imm", int(text[2:], 16))
    if re.fullmatch(r"-?\d+\.\d*", text):
        return Operand("imm", int(np.float32(text).view(np.uint32)))
    if text.removeprefix("%") in SPECIAL and text.startswith("%"):
        return Operand("special", text[1:])
    if re.fullmatch(r"[%\w]+", text):
        return Operand("reg", text)
    raise SimtError(f"operand {text!r} of inline assembly is not understood")


def parse(text: str) -> list[Instruction]:
    """The instructions of PTX text, a label being an instruction "label"; register declarations and scopes are dropped."""
    out = []
    body = re.sub(r"//[^\n]*", "", text).replace("${:uid}", "").replace("%=", "")
    for statement in body.split(";"):
        statement = statement.strip().lstrip("{} \t\n")
        while label := re.match(r"([$\w]+):(?!:)\s*", statement):
            out.append(Instruction(None, False, "label", (Operand("reg", label[1]),)))
            statement = statement[label.end():].lstrip("{} \t\n")
        if not statement or statement.startswith(".reg"):
            continue
        guard, negated = None, False
        if statement.startswith("@"):
            word, statement = statement[1:].split(None, 1)
            negated = word.startswith("!")
            guard = _operand(word.lstrip("!"))
        opcode, rest = (*statement.split(None, 1), "")[:2]
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", rest)
        out.append(Instruction(guard, negated, opcode.strip(), tuple(_operand(o) for o in operands)))
    return out


def _registers(info: CallInfo) -> tuple[int, list[int | None]]:
    """Number of outputs, and for each input the output that it is tied to."""
    parts = [p for p in info.constraints.split(",") if p and not p.startswith("~")]
    outputs = sum(p.startswith("=") for p in parts)
    return outputs, [int(p) if p.isdigit() else None for p in parts[outputs:]]


class _State:
    """Register values while one piece of inline assembly runs."""

    def __init__(self, machine: Machine):
        self.machine, self.values = machine, {}  # type: ignore[var-annotated]

    def read(self, operand: Operand) -> Array:
        """Raw array of a register, or an immediate as uint32."""
        if operand.kind == "imm":
            return np.full(self.machine.num_threads, operand.value & 0xFFFFFFFF, np.uint32)
        if operand.kind == "special":
            return SPECIAL[operand.value](self.machine)
        try:
            return self.values[operand.value]
        except KeyError:
            raise SimtError(f"inline assembly reads {operand.value!r}, which nothing has written") from None

    def address(self, operand: Operand) -> Array:
        return self.read(operand.value).astype(np.uint64) + np.uint64(operand.offset)

    def write(self, operand: Operand, value: Array, mask: Array | None) -> None:
        if operand.kind == "sink":
            return
        old = self.values.get(operand.value)
        if mask is not None and not mask.all():
            if old is None:
                old = np.zeros_like(value)
            value = np.where(mask, value, as_type(old, value.dtype))
        self.values[operand.value] = value


def as_type(x: Array, dtype: Any) -> Array:
    """The same bits as another type of that size."""
    if isinstance(x, Pending) and x.dtype != dtype:
        x = x.read()
    if x.dtype == dtype:
        return x
    if x.dtype.itemsize != np.dtype(dtype).itemsize:
        raise SimtError(f"register of {x.dtype} used as {dtype}")
    return np.ascontiguousarray(x).view(dtype)


def inline_assembly(info: CallInfo) -> Callable[..., Any]:
    """Semantics of a piece of inline assembly."""
    instructions = parse(info.text)
    at = next((i for i, n in enumerate(instructions) if waiter(n.opcode.split("."))), None)
    if at is not None:
        return _waiting_assembly(info, instructions, at)
    steps = _steps(instructions)
    outputs, tied = _registers(info)
    result_types = info.result.members if info.result.kind == "struct" else (info.result,) * outputs

    def run(machine: Machine, *args: Array) -> Any:
        state = _State(machine)
        for i, (arg, tie) in enumerate(zip(args, tied)):
            state.values[outputs + i] = arg
            if tie is not None:
                state.values[tie] = arg
        for instruction, handler in steps:
            handler(state, instruction.operands, _guard(state, instruction))
        if not outputs:
            return None
        out = tuple(as_type(state.values[i], t.dtype) for i, t in enumerate(result_types))
        return out if info.result.kind == "struct" else out[0]

    return run


def _steps(instructions: Sequence[Instruction]) -> list[tuple[Instruction, Handler]]:
    steps = []
    for instruction in instructions:
        parts = instruction.opcode.split(".")
        make = INSTRUCTIONS.get(parts[0])
        if make is None:
            raise SimtError(f"PTX instruction {instruction.opcode!r} is unknown to the simulator")
        steps.append((instruction, make(parts)))
    return steps


def _guard(state: _State, instruction: Instruction) -> Array | None:
    if instruction.guard is None:
        return None
    mask = state.read(instruction.guard)
    return ~mask if instruction.negated else mask


_PURE = frozenset({"mov", "setp", "add", "sub", "and", "or", "xor", "shl", "shr", "mul"})


def _waiting_assembly(info: CallInfo, instructions: Sequence[Instruction], at: int) -> Callable[..., Any]:
    """Assembly around one instruction at which threads may stay, which is asked again and again: before it only what may be repeated,
    behind it only the branches of its loop. A branch before it that leaves the loop lets threads go on without waiting."""
    wait, name = instructions[at], info.text.replace("\n", " ")
    handler = waiter(wait.opcode.split("."))
    outputs, _ = _registers(info)
    assert handler is not None
    loops = wait.opcode.startswith("mbarrier")
    before = [n for n in instructions[:at] if n.opcode != "label"]
    if outputs or any(n.opcode.split(".")[0] not in _PURE and n.opcode != "bra" for n in before) or (loops and wait.guard is not None):
        raise SimtError(f"assembly that waits and does more than that is not simulated: {name}")
    if any(n.opcode not in ("label", "bra") for n in instructions[at + 1:]) or (not loops and len(instructions) > at + 1):
        raise SimtError(f"assembly that does something behind a wait is not simulated: {name}")

    def leads_to(position: int, holds: bool) -> str:
        """From an instruction behind the wait: "on" or "again"."""
        for _ in range(len(instructions) + 1):
            if position >= len(instructions):
                return "on"
            n = instructions[position]
            if position <= at and n.opcode != "label":
                return "again" if position == at else "elsewhere"
            if n.opcode == "bra":
                if n.guard is not None and n.guard != wait.operands[0]:
                    return "elsewhere"
                if n.guard is None or holds != n.negated:
                    target = [i for i, other in enumerate(instructions) if other.opcode == "label" and other.operands == n.operands]
                    if len(target) != 1:
                        return "elsewhere"
                    position = target[0]
                    continue
            position += 1
        return "elsewhere"

    if loops and (leads_to(at + 1, True), leads_to(at + 1, False)) != ("on", "again"):
        raise SimtError(f"a wait is simulated as a loop until {wait.opcode} holds, found {name}")
    # the loop comes back to the wait itself, or to what may be repeated
    steps = [(n, None if n.opcode == "bra" else _steps([n])[0][1]) for n in before]
    for n, _ in steps:
        if n.opcode == "bra" and (n.guard is None or leads_to(_label(instructions, n), True) != "on"):
            raise SimtError(f"a branch before a wait that does not lead behind it is not simulated: {name}")

    def run(machine: Machine, *args: Array) -> Array:
        state = _State(machine)
        state.values.update(enumerate(args))
        free = np.zeros(machine.num_threads, bool)
        for instruction, step in steps:
            mask = _guard(state, instruction)
            if step is None:
                free = free | mask
            else:
                step(state, instruction.operands, mask)
        if not free.any():
            return handler(state, wait.operands, _guard(state, wait)) & machine.mask
        return (free | handler(state, wait.operands, ~free)) & machine.mask

    run.waits = True  # type: ignore[attr-defined]
    return run


def _label(instructions: Sequence[Instruction], branch: Instruction) -> int:
    return next((i for i, n in enumerate(instructions) if n.opcode == "label" and n.operands == branch.operands), -1)


# ----------------------------------------------------------------------------------------------------- intrinsics
def _waits(f: Callable[..., Array]) -> Callable[[CallInfo], Callable[..., Array]]:
    f.waits = True  # type: ignore[attr-defined]
    return lambda info: f


def _as_instruction(opcode: str, numbers: bool = False) -> Callable[[CallInfo], Callable[..., Any]]:
    """An intrinsic that is an instruction without results. ``numbers``: its arguments are constants in the instruction."""
    parts = opcode.split(".")
    wait = waiter(parts)
    handler: Any = wait or INSTRUCTIONS[parts[0]](parts)

    def run(m: Machine, *args: Array) -> Any:
        state = _State(m)
        state.values.update(enumerate(args))
        return handler(state, [Operand("imm", int(a[0])) if numbers else Operand("reg", i) for i, a in enumerate(args)], None)

    if wait is not None:
        run.waits = True  # type: ignore[attr-defined]
    return lambda info: run


def _warp_barrier(info: CallInfo) -> Callable[..., None]:
    return lambda m, *args: m.require_full_warps("a warp barrier")


def _shuffle(mode: str) -> Callable[[CallInfo], Callable[..., Array]]:
    """shfl.sync with clamp 31 or 0 and no segments, so one segment a warp."""
    def run(m: Machine, members: Array, value: Array, b: Array, c: Array) -> Array:
        m.require_full_warps("a shuffle")
        if (members[m.mask] != 0xFFFFFFFF).any():
            raise SimtError("a shuffle of part of a warp is not simulated")
        lane = m.lane_ids.astype(np.int64)
        b = b.astype(np.int64) & 31
        clamp = c.astype(np.int64) & 31
        source = {"bfly": lane ^ b, "idx": b, "up": lane - b, "down": lane + b}[mode]
        inside = source >= clamp if mode == "up" else source <= clamp
        source = np.where(inside, source, lane) + (m.thread_ids.astype(np.int64) - lane)
        return value[source]

    return lambda info: run


def _redux(op: Callable[..., Array], as_signed: bool) -> Callable[[CallInfo], Callable[..., Array]]:
    def run(m: Machine, value: Array, members: Array) -> Array:
        m.require_full_warps("redux.sync")
        x = value.view(np.int32) if as_signed else value
        total = op(x.reshape(-1, m.warp_size), axis=1).astype(x.dtype)
        return np.repeat(total, m.warp_size).view(np.uint32)

    return lambda info: run


def _unary(f: Callable[[Array], Array], flush: bool = False) -> Callable[[CallInfo], Callable[..., Array]]:
    """An approximate f32 function, here rounded from f64; ``flush``: subnormal inputs and results become zero."""
    return lambda info: lambda m, x: float32(f, x, flush)


def _divide(info: CallInfo) -> Callable[..., Array]:
    return lambda m, x, y: (x.astype(np.float64) / y.astype(np.float64)).astype(np.float32)


def _matrix_load(opcode: str, count: int) -> Callable[[CallInfo], Callable[..., Any]]:
    """The intrinsic is the instruction with its results in a struct."""
    handler = INSTRUCTIONS["ldmatrix"](opcode.split("."))
    operands = (Operand("group", tuple(Operand("reg", i) for i in range(count))), Operand("addr", Operand("reg", count)))

    def run(machine: Machine, pointer: Array) -> Any:
        state = _State(machine)
        state.values[count] = pointer
        handler(state, operands, None)
        return state.values[0] if count == 1 else tuple(state.values[i] for i in range(count))

    return lambda info: run


def _vprintf(info: CallInfo) -> Callable[..., Array]:
    """Appends (program, thread, text) to ``machine.output`` for each active thread."""
    def run(m: Machine, text: Array, buffer: Array) -> Array:
        pattern = m.read_string(int(text[0]))
        for thread in np.flatnonzero(m.mask):
            m.output.append((m.program_ids, int(thread), _format(m, pattern, int(buffer[thread]))))
        return np.zeros(m.num_threads, np.uint32)

    return run


def _format(m: Machine, pattern: str, address: int) -> str:
    def one(match: re.Match[str]) -> str:
        nonlocal address
        spec, kind = match.group(0), match.group(2)
        if kind == "%":
            return "%"
        size = 8 if "ll" in spec or kind in "fa" else 4
        address = -(-address // size) * size
        raw = m.memory.load(np.array([address], np.uint64), size)
        address += size
        if kind in "fa":
            value = float(raw.view(np.float64)[0, 0])
            return value.hex() if kind == "a" else f"{value:f}"
        number = int(raw.view(f"{'i' if kind == 'd' else 'u'}{size}")[0, 0])
        return (spec.replace("ll", "")) % number

    return re.sub(r"%(0?\d*(?:ll)?)([duxfa%])", one, pattern)


def _assert_fail(info: CallInfo) -> Callable[..., None]:
    def run(m: Machine, message: Array, file: Array, line: Array, function: Array, size: Array) -> None:
        if m.mask.any():
            thread = int(np.flatnonzero(m.mask)[0])
            raise SimtError(f"{m.read_string(int(file[0]))}:{int(line[0])}: thread {thread}: assertion failed: "
                            f"{m.read_string(int(message[0]))}")

    return run


def _as_intrinsic(name: str) -> Callable[[CallInfo], Callable[..., Any]]:
    """What means the same as one of LLVM's general intrinsics."""

    def make(info: CallInfo) -> Callable[..., Any]:
        function = INTRINSICS[name](info)  # type: ignore[arg-type]
        return lambda m, *args: function(*args)

    return make


def semantics() -> dict[Any, Callable[[CallInfo], Callable[..., Any]]]:
    """The table for ``SimtExecutor``: intrinsics by name, then inline assembly."""
    table: dict[Any, Callable[[CallInfo], Callable[..., Any]]] = {
        **{f"llvm.nvvm.read.ptx.sreg.{name.replace('_', '.', 1)}": lambda info, read=read: read for name, read in SPECIAL.items()},  # type: ignore[misc]
        "llvm.nvvm.f2i.rz": _as_intrinsic("fptosi.sat"), "llvm.nvvm.f2ui.rz": _as_intrinsic("fptoui.sat"),
        "llvm.nvvm.barrier.cta.sync.aligned.all": _waits(lambda m, *args: m.block_barrier()),
        "llvm.nvvm.barrier0": _waits(lambda m, *args: m.block_barrier()),
        "llvm.nvvm.barrier.cta.sync.aligned.count": _as_instruction("barrier.cta.sync.aligned"),
        "llvm.nvvm.barrier.cta.arrive.aligned.count": _as_instruction("barrier.cta.arrive.aligned"),
        "llvm.nvvm.barrier.cluster.arrive": _as_instruction("barrier.cluster.arrive"),
        "llvm.nvvm.barrier.cluster.arrive.relaxed": _as_instruction("barrier.cluster.arrive.relaxed"),
        "llvm.nvvm.barrier.cluster.wait": _as_instruction("barrier.cluster.wait"),
        "llvm.nvvm.setmaxnreg.inc.sync.aligned.u32": _as_instruction("setmaxnreg.inc.sync.aligned.u32", True),
        "llvm.nvvm.setmaxnreg.dec.sync.aligned.u32": _as_instruction("setmaxnreg.dec.sync.aligned.u32", True),
        "llvm.nvvm.bar.warp.sync": _warp_barrier,
        "llvm.nvvm.redux.sync.add": _redux(np.sum, False), "llvm.nvvm.redux.sync.max": _redux(np.max, True),
        "llvm.nvvm.redux.sync.min": _redux(np.min, True), "llvm.nvvm.redux.sync.umax": _redux(np.max, False),
        "llvm.nvvm.redux.sync.umin": _redux(np.min, False), "llvm.nvvm.redux.sync.and": _redux(np.bitwise_and.reduce, False),
        "llvm.nvvm.redux.sync.or": _redux(np.bitwise_or.reduce, False),
        "llvm.nvvm.redux.sync.xor": _redux(np.bitwise_xor.reduce, False),
        "llvm.nvvm.ex2.approx.ftz.f32": _unary(np.exp2, True), "llvm.nvvm.ex2.approx.f": _unary(np.exp2),
        "llvm.nvvm.ex2.approx.ftz.f": _unary(np.exp2, True), "llvm.nvvm.lg2.approx.f": _unary(np.log2),
        "llvm.nvvm.lg2.approx.ftz.f": _unary(np.log2, True), "llvm.nvvm.rsqrt.approx.f": _unary(lambda x: 1 / np.sqrt(x)),
        "llvm.nvvm.rsqrt.approx.ftz.f": _unary(lambda x: 1 / np.sqrt(x), True),
        "llvm.nvvm.rcp.approx.ftz.f": _unary(lambda x: 1 / x, True), "llvm.nvvm.sqrt.approx.f": _unary(np.sqrt),
        "llvm.nvvm.sqrt.approx.ftz.f": _unary(np.sqrt, True), "llvm.nvvm.sqrt.rn.f": _unary(np.sqrt),
        "llvm.nvvm.div.full": _divide, "llvm.nvvm.div.rn.f": _divide, "llvm.nvvm.div.approx.f": _divide,
        "llvm.nvvm.tanh.approx.f32": _unary(np.tanh), "vprintf": _vprintf, "__assertfail": _assert_fail,
    }
    for shape in ("x1", "x2", "x4"):
        for trans in ("", ".trans"):
            opcode = f"ldmatrix.sync.aligned.m8n8.{shape}{trans}.shared.b16"
            table[f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.{shape}{trans}.b16.p3"] = _matrix_load(opcode, int(shape[1]))
    for mode in ("bfly", "idx", "up", "down"):
        table[f"llvm.nvvm.shfl.sync.{mode}.i32"] = table[f"llvm.nvvm.shfl.sync.{mode}.f32"] = _shuffle(mode)
    # Anything that is not an intrinsic's name is assembly.
    table[re.compile(r"^(?!llvm\.)")] = inline_assembly
    return table


def simulate(module: Any, kernel: str, num_warps: int, shared_bytes: int, grid: Sequence[int], args: Sequence[Any],
             **checks: Any) -> SimtExecutor:
    """Run a kernel of an LLVM-dialect module on numpy arguments (changed in place); ``checks`` are SimtExecutor's.

    Must be called inside ``mlir_context()``. Returns the executor, which can run again.
    """
    executor = SimtExecutor(module, kernel, 32 * num_warps, 32, shared_bytes, semantics(), **checks)
    executor.run(grid, args)
    return executor


__all__ = ["as_bits", "inline_assembly", "parse", "semantics", "simulate"]
