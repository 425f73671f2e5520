"""The whole CPU pipeline in one function: tt → loops → LLVM dialect → LLVM IR → assembly and object."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.passes import lazy_pass, shared_pass, tt_passes
from tilewright.dialects.pipeline import PassContext, Pipeline, Stage

_PASSES = "tilewright.targets.cpu.passes"


def pipeline(arch: str, options: Any) -> Pipeline:
    """Stages ttir, loops (scf and vector), llir (LLVM IR after O3), asm (text), obj."""
    checks = (lazy_pass("check_addresses", f"{_PASSES}.check_addresses:run"),) if options.check_addresses or options.debug else ()
    return Pipeline((
        Stage("ttir", (*tt_passes(), shared_pass("share_exponentials"))),
        Stage("loops", (*checks, lazy_pass("tiles_to_loops", f"{_PASSES}.tiles_to_loops:run"),)),
        Stage("llir", (lazy_pass("convert_to_llvm", f"{_PASSES}.convert_to_llvm:run"),), _to_llvm_ir, is_source=False),
        Stage("asm", (), _to_asm, is_source=False),
        Stage("obj", (), _to_obj),
    ))


def _to_llvm_ir(module: Any, ctx: PassContext) -> str:
    from tilewright.dialects.lowering.translate import translate_to_llvm_ir
    from tilewright.targets.cpu.emit import compile_ir

    optimised, *ctx.cpu_code = compile_ir(translate_to_llvm_ir(module, ctx), ctx.arch)  # type: ignore[attr-defined]
    return optimised


def _to_asm(llvm_ir: str, ctx: PassContext) -> str:
    return str(ctx.cpu_code[0])  # type: ignore[attr-defined]  # made with the object from one optimised module


def _to_obj(asm: str, ctx: PassContext) -> bytes:
    return bytes(ctx.cpu_code[1])  # type: ignore[attr-defined]
