"""The whole AMD pipeline in one function: tt → ttg → LLVM dialect → LLVM IR → AMDGCN → HSACO."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.errors import VariantNeeded
from tilewright.dialects.passes import lazy_pass, shared_pass, tt_passes, ttg_passes
from tilewright.dialects.pipeline import PassContext, Pipeline, Stage
from tilewright.targets.amd.buffers import COPY_BYTES
from tilewright.targets.amd.capabilities import capabilities
from tilewright.targets.amd.options import check_options

SCALES = ("gfx950",)  # has matrix instructions for operands with scales
TAKES_TURNS = ("gfx942", "gfx950")
# spilled registers beyond which nothing else is tried: other orders and addresses computed anew save some tens (gfx1100's matmul 28, attention 71), and of
# accumulators as large as the register file (fp64 128×128 by one wave: 568 spilled) each attempt takes LLVM seconds
HOPELESS = 256
_PASSES = "tilewright.targets.amd.passes"


def pipeline(arch: str, options: Any) -> Pipeline:
    """Stages ttir, ttgir, llir (optimised LLVM IR), amdgcn (text), hsaco (code object; nothing without a linker).

    Raises ArgumentError for options that ``arch`` does not have.
    """
    check_options(arch, capabilities(arch).warp_size, options)
    stages = Pipeline((
        Stage("ttir", tt_passes()),
        Stage("ttgir", ttg_passes()),
        Stage("llir", (shared_pass("lower_to_llvm"),), _to_llvm_ir),
        Stage("amdgcn", (), _to_amdgcn, is_source=False),
        Stage("hsaco", (), _to_hsaco),
    ))
    if arch in SCALES:
        stages = stages.insert_before("accelerate_dot", lazy_pass("accelerate_dot_scaled", f"{_PASSES}.accelerate_dot_scaled:run"))
    if options.matrix_instr_nonkdim or options.kpack != 1:
        stages = stages.insert_before("accelerate_dot", lazy_pass("apply_matrix_options", f"{_PASSES}.apply_matrix_options:run"))
    if options.buffer_ops:
        stages = stages.insert_before("allocate_shared_memory", lazy_pass("convert_to_buffer_ops", f"{_PASSES}.convert_to_buffer_ops:run"))
        if options.addresses_anew:
            stages = stages.insert_after("convert_to_buffer_ops", lazy_pass("offsets_anew", f"{_PASSES}.offsets_anew:run"))
    if options.block_pingpong and arch in TAKES_TURNS:
        stages = stages.insert_before("allocate_shared_memory", lazy_pass("block_ping_pong", f"{_PASSES}.block_ping_pong:run"))
    stages = stages.insert_after("insert_barriers", lazy_pass("schedule_dot_loops", f"{_PASSES}.schedule_dot_loops:run"))
    stages = stages.insert_after("insert_barriers", lazy_pass("part_fma_slices", f"{_PASSES}.part_fma_slices:run"))
    if options.buffer_ops and loads_to_lds(arch, options):
        stages = stages.insert_before("pipeline_loops", lazy_pass("direct_to_lds", f"{_PASSES}.direct_to_lds:run"))
        stages = stages.insert_after("insert_barriers", lazy_pass("convert_copies", f"{_PASSES}.convert_to_buffer_ops:run_copies"))
    stages = stages.insert_before("pipeline_loops", lazy_pass("double_buffer", f"{_PASSES}.double_buffer:run"))
    stages = stages.insert_after("pipeline_loops", lazy_pass("order_shared_accesses", f"{_PASSES}.order_shared_accesses:run"))
    stages = stages.replace("allocate_shared_memory", lazy_pass("allocate_shared_memory", f"{_PASSES}.allocate_shared_memory:run"))
    stages = stages.insert_before("lower_to_llvm", lazy_pass("add_report_buffer", f"{_PASSES}.add_report_buffer:run"))
    return stages.insert_after("order_shared_accesses", lazy_pass("fit_registers", f"{_PASSES}.fit_registers:run"))


def loads_to_lds(arch: str, options: Any) -> bool:
    """Whether loads of dot operands may go to LDS directly: by themselves where a lane's are of 16 bytes, where asked for also those of 4."""
    return arch in COPY_BYTES and (options.async_copy if options.async_copy is not None else COPY_BYTES[arch] == 16)


def _to_llvm_ir(module: Any, ctx: PassContext) -> str:
    from tilewright.dialects.lowering.translate import translate_to_llvm_ir
    from tilewright.targets.amd.async_marks import mark_async_copies
    from tilewright.targets.amd.emit import optimise

    return optimise(mark_async_copies(translate_to_llvm_ir(module, ctx)), ctx.arch)


def _to_amdgcn(llvm_ir: str, ctx: PassContext) -> str:
    from tilewright.targets.amd.emit import STRATEGIES, emit_amdgcn, matrix_instructions, resource_usage, with_strategy
    from tilewright.targets.amd.launch_guards import WITHOUT_BUFFERS
    from tilewright.targets.amd.passes.double_buffer import DOUBLED

    text = emit_amdgcn(llvm_ir, ctx.arch)
    usage = resource_usage(text)
    own = llvm_ir
    for strategy in STRATEGIES if matrix_instructions(text) else ():
        if not 0 < usage.get("spills", 0) <= HOPELESS:
            break
        other = with_strategy(own, strategy)
        other_text = emit_amdgcn(other, ctx.arch)
        other_usage = resource_usage(other_text)
        if other_usage.get("spills", 0) < usage["spills"]:
            llvm_ir, text, usage = other, other_text, other_usage
    ctx.metadata["llir"] = llvm_ir  # the object is made from a fresh parse of the same module
    ctx.metadata.update({k: usage[k] for k in ("registers", "spills", "agprs", "sgprs", "sgpr_spills", "scratch_bytes") if k in usage})
    ctx.metadata["warp_size"] = ctx.warp_size
    ctx.metadata["matrix_instructions"] = matrix_instructions(text)
    if (ctx.metadata.get("host") or {}).get("guards"):
        ctx.metadata["launch_variants"] = [WITHOUT_BUFFERS]
    if ctx.metadata.pop(DOUBLED, False) and usage.get("spills") and ctx.num_stages > 2:
        raise VariantNeeded({"num_stages": 2}, f"with two LDS buffers {usage['spills']} of a lane's registers would be kept in scratch memory")
    if 0 < usage.get("spills", 0) <= HOPELESS and not ctx.options.addresses_anew and ctx.metadata["matrix_instructions"]:
        raise VariantNeeded({"addresses_anew": True}, f"{usage['spills']} of a lane's registers would be kept in scratch memory")
    if usage.get("spills"):
        ctx.explain(None, "registers", f"{usage['spills']} of a lane's are kept in scratch memory",
                    f"{ctx.arch} has {ctx.capabilities.registers_per_thread} for {ctx.num_warps} waves a program; a smaller tile, more warps or fewer "
                    "stages need fewer")
    return text


def _to_hsaco(amdgcn: str, ctx: PassContext) -> bytes | None:
    from tilewright.targets.amd.emit import emit_object, link, linker

    obj = emit_object(ctx.metadata.pop("llir"), ctx.arch)
    return link(obj) if linker() else None
