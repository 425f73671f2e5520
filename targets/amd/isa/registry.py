"""Table of instructions: mnemonic → maker. Modules of instructions fill it; ``instructions`` imports them all.

    @instruction("v_add_f32", "v_other_name_of_another_generation")
    def _add(ins, ctx):          # once, at decode time: operands, modifiers, arch; raises ctx.unknown(ins, why)
        a, b, d = ctx.reader(ins.operands[1], "f32"), ctx.reader(ins.operands[2], "f32"), ctx.writer(ins.operands[0])
        return lambda w: d(w, a(w) + b(w))

Names are those that LLVM prints, looked up first as printed (``v_mov_b32_dpp``), then as ``Instruction.base`` (``v_mov_b32``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.targets.amd.isa.errors import SimulationError, UnknownInstruction
from tilewright.targets.amd.isa.program import Instruction, Kernel, Operand, Program, Reg

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Step = Callable[["Waves"], None]
Maker = Callable[[Instruction, "DecodeContext"], Step]
INSTRUCTIONS: dict[str, Maker] = {}


def instruction(*names: str) -> Callable[[Maker], Maker]:
    """Registers a maker under all ``names``; a name that is taken is a mistake."""
    def register(make: Maker) -> Maker:
        for name in names:
            if name in INSTRUCTIONS:
                raise ValueError(f"{name} is registered twice: by {INSTRUCTIONS[name].__module__} and {make.__module__}")
            INSTRUCTIONS[name] = make
        return make

    return register


@dataclass
class DecodeContext:
    """What a maker may decide by. ``arch`` "gfx942"; ``generation`` 9, 10, 11 or 12; ``lanes`` of a wave; the kernel's descriptor."""

    program: Program
    kernel: Kernel
    arch: str = field(init=False)
    lanes: int = field(init=False)
    generation: int = field(init=False)

    def __post_init__(self) -> None:
        self.arch, self.lanes = self.program.arch, self.kernel.lanes
        self.generation = generation(self.arch)

    def unknown(self, ins: Instruction, why: str) -> UnknownInstruction:
        error = UnknownInstruction(f"{why}: the simulator does not have {ins.text!r} on {self.arch}")
        error.at(ins.describe())
        return error

    def only(self, ins: Instruction, *modifiers: str) -> None:
        """Raises UnknownInstruction for a modifier that is not one of these."""
        for name in ins.modifiers:
            if name not in modifiers:
                raise self.unknown(ins, f"modifier {name}:{ins.modifiers[name]}")

    def reader(self, operand: Operand, kind: str) -> Callable[[Waves], Any]:
        """See state.reader."""
        from tilewright.targets.amd.isa.state import reader

        return reader(operand, kind)

    def writer(self, operand: Operand, kind: str = "b32") -> Callable[..., None]:
        """See state.writer."""
        from tilewright.targets.amd.isa.state import writer

        return writer(operand, kind)


def generation(arch: str) -> int:
    """9 for gfx9xx, else 10, 11, 12."""
    return 9 if arch.startswith("gfx9") else int(arch[3:5])


def decode(ins: Instruction, ctx: DecodeContext) -> Step:
    """The step of an instruction, both halves of a VOPD line with reads before writes."""
    first = _decode_one(ins, ctx)
    if ins.dual is None:
        return first
    second = _decode_one(ins.dual, ctx)
    if not _reads(ins.dual, _target(ins)):
        return _both(first, second)
    if not _reads(ins, _target(ins.dual)):
        return _both(second, first)
    return _exchanging(first, second, _target(ins).first)


def _decode_one(ins: Instruction, ctx: DecodeContext) -> Step:
    make = INSTRUCTIONS.get(ins.name) or INSTRUCTIONS.get(ins.base)
    if make is None:
        raise ctx.unknown(ins, f"instruction {ins.name}")
    try:
        return make(ins, ctx)
    except SimulationError as e:
        raise e.at(ins.describe()) from None
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as e:
        raise ctx.unknown(ins, f"{type(e).__name__}: {e}") from e


def _target(ins: Instruction) -> Reg:
    assert isinstance(ins.operands[0], Reg)
    return ins.operands[0]


def _reads(ins: Instruction, target: Reg) -> bool:
    return any(isinstance(o, Reg) and o.kind == target.kind and o.first <= target.first < o.first + o.count for o in ins.operands)


def _both(first: Step, second: Step) -> Step:
    def step(w: Waves) -> None:
        first(w)
        second(w)

    return step


def _exchanging(first: Step, second: Step, target: int) -> Step:
    """Each reads what the other writes."""
    def step(w: Waves) -> None:
        old = w.vgpr(target).copy()
        first(w)
        new = w.vgpr(target).copy()
        w.set_vgpr(target, old)
        second(w)
        w.set_vgpr(target, new)

    return step
