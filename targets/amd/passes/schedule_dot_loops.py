"""Say to LLVM's scheduler how loops of matrix products shall be interleaved.

Before: ttg, shared memory allocated. After: an amdg.iglp_opt at the end of the body of

- loops whose products are independent of each other (a matmul) and that block_ping_pong left alone, on architectures with MFMA: variant 0, which reads operands several
  products ahead. Unasked LLVM reads each right before its product, and a wave waits for LDS eight times a round. It needs registers for
  that: where they would cost a wave, nothing is done.
- loops whose products depend on each other (attention), with ``schedule_hint="attention"``: variant 2, which puts exponentials between
  the products.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.dots import TT_DOTS
from tilewright.dialects.analysis.layout_cost import registers
from tilewright.dialects.analysis.structure import Function, Node, functions, type_info
from tilewright.dialects.pipeline import PassContext

SMALL_GEMM, EXPONENTIALS = 0, 2  # llvm.amdgcn.iglp.opt (LLVM's AMDGPU user guide)
_BESIDES = 32  # registers for addresses and the like


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    hints = ctx.options.schedule_hint.split(",")
    for function in functions(module):
        for loop in [n for n in function.nodes() if n.name == "scf.for"]:
            dots = [n for n in loop.regions[0].ops if n.name in TT_DOTS]
            if not dots or any(n.name in ("scf.for", "scf.if", "scf.while", "func.call", "amdg.setprio") for n in loop.regions[0].ops):
                continue
            if _chained(function, loop, dots):
                if "attention" in hints:
                    _mark(function, loop, EXPONENTIALS)
            elif ctx.capabilities.warp_size == 64 and _fits(loop, ctx):
                _mark(function, loop, SMALL_GEMM)


def _mark(function: Function, loop: Node, variant: int) -> None:
    i32 = ir.IntegerType.get_signless(32)
    function.insert_before(loop.regions[0].ops[-1], "amdg.iglp_opt", [], [], {"variant": ir.IntegerAttr.get(i32, variant)}, loop.op.location)


def _chained(function: Function, loop: Node, dots: list[Node]) -> bool:
    """Whether a product's operand follows from another product of the same round."""
    made = {d.results[0] for d in dots}
    seen: set[Any] = set()
    work = [v for d in dots for v in d.operands[:2]]
    while work:
        value = work.pop()
        if value in made:
            return True
        node = function.def_node(value)
        if value in seen or node is None or node.region is not loop.regions[0]:
            continue
        seen.add(value)
        work += node.operands
        work += [v for inner in node.walk() for v in inner.operands]
    return False


def _fits(loop: Node, ctx: PassContext) -> bool:
    """Whether a wave's accumulators, all operands of a round, and what is loaded ahead leave as many waves as LDS does."""
    words = _BESIDES
    for node in loop.regions[0].ops:
        if node.name in (*TT_DOTS, "ttg.local_load", "amdg.buffer_load", "tt.load"):
            info = type_info(node.results[0].type)
            if info.shape is not None:
                words += registers(info.shape, info.encoding) * max(8, info.bits) // 32
    shared = max(1, int(ctx.metadata.get("shared", 0)))
    groups = max(1, ctx.capabilities.max_shared_bytes // shared)
    waves = min(8, max(1, groups * ctx.num_warps // 4), max(1, ctx.options.waves_per_eu or 8))
    return words * 5 <= ctx.capabilities.registers_per_thread // waves * 4  # an order that is forced needs more than it must
