"""v_div_scale and v_div_fmas: parts of the division sequence that write or read a lane mask. ISA manuals, "VOP3B" and V_DIV_FMAS."""

from __future__ import annotations

from tilewright.targets.amd.isa.modifiers import Operands
from tilewright.targets.amd.isa.program import Instruction
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.state import Waves
from tilewright.targets.amd.isa.valu_float import div_fmas, div_scale


@instruction("v_div_scale_f32", "v_div_scale_f64")
def _div_scale(ins: Instruction, ctx: DecodeContext) -> Step:
    kind = ins.base[-3:]
    o = Operands(ins, ctx)
    a, b, c = (o.source(i + 2, kind, i) for i in range(3))
    write, flag = o.result(0, kind), o.mask_result(1)
    o.done()

    def step(w: Waves) -> None:
        value, scaled = div_scale(kind, a(w), b(w), c(w))
        write(w, value)
        flag(w, scaled)

    return step


@instruction("v_div_fmas_f32", "v_div_fmas_f64")
def _div_fmas(ins: Instruction, ctx: DecodeContext) -> Step:
    kind = ins.base[-3:]
    o = Operands(ins, ctx)
    a, b, c = (o.source(i + 1, kind, i) for i in range(3))
    write = o.result(0, kind)
    o.done()
    return lambda w: write(w, div_fmas(kind, a(w), b(w), c(w), w.sgpr_to_mask(w.vcc)))
