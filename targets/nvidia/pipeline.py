"""The whole NVIDIA pipeline in one function: tt → ttg → LLVM dialect → LLVM IR → PTX → cubin."""

from __future__ import annotations

from typing import Any

from tilewright.dialects.errors import OutOfResources
from tilewright.dialects.passes import lazy_pass, shared_pass, tt_passes, ttg_passes
from tilewright.dialects.pipeline import Pass, PassContext, Pipeline, Stage
from tilewright.targets.nvidia.capabilities import capabilities


def pipeline(arch: str, options: Any) -> Pipeline:
    """Stages ttir, ttgir, llir (LLVM IR as lowered), ptx (after LLVM's O3), cubin (nothing where there is no ptxas: then the
    driver assembles the PTX when it loads the kernel)."""
    stages = Pipeline((
        Stage("ttir", _tt_passes(arch, options)),
        Stage("ttgir", ttg_passes((_own_pass("fit_loads"),))),
        Stage("llir", (_own_pass("note_lines"), shared_pass("lower_to_llvm")), _to_llvm_ir),
        Stage("ptx", (), _to_ptx),
        Stage("cubin", (), _to_cubin),
    ))
    if uses_warp_groups(arch, options):
        stages = stages.insert_before("accelerate_dot", _own_pass("use_warp_group_dots"))
        stages = stages.insert_before("allocate_shared_memory", _own_pass("schedule_warp_group_dots"))
        stages = stages.insert_before("insert_barriers", _own_pass("fence_async_proxy"))
    if uses_bulk_copies(arch, options):
        for name in ("rotate_chained_dots", "sink_arithmetic", "make_persistent", "warp_specialize", "share_counters", "load_late"):
            stages = stages.insert_before("optimize_dot_operands", _own_pass(name))
        stages = stages.replace("allocate_shared_memory", _own_pass("allocate_shared_memory"))
    return stages


def _tt_passes(arch: str, options: Any) -> tuple[Pass, ...]:
    """The shared ones. Where tiles are moved by bulk copies, descriptors that the host can make are its; the others become pointers, and
    pointers of either origin descriptors of the host where that is possible."""
    first = (_own_pass("refuse_calls"),) if uses_warp_groups(arch, options) else ()
    share = shared_pass("share_exponentials")
    if not uses_bulk_copies(arch, options):
        return (*first, *tt_passes(), share)
    host = _own_pass("host_descriptors")
    return (*first, shared_pass("canonicalize_tt"), shared_pass("dce_cse"), host, *tt_passes(), share, _own_pass("promote_to_descriptors"), host)


def uses_bulk_copies(arch: str, options: Any) -> bool:
    """Whether tiles are moved by bulk copies under tensor maps that the host makes."""
    return bool(capabilities(arch).extra["bulk_copies"] and options.tma and uses_warp_groups(arch, options))


def uses_warp_groups(arch: str, options: Any) -> bool:
    """Whether dots are given to warp groups: where the architecture has such products, as the option says or else the capability."""
    extra = capabilities(arch).extra
    return bool(extra["has_wgmma"] and (extra["warp_group_dots"] if options.warp_group_dots is None else options.warp_group_dots))


def _own_pass(name: str) -> Pass:
    return lazy_pass(name, f"tilewright.targets.nvidia.passes.{name}:run")


def _to_llvm_ir(module: Any, ctx: PassContext) -> str:
    from tilewright.dialects.lowering.translate import translate_to_llvm_ir

    check_shared_memory(ctx)
    return translate_to_llvm_ir(module, ctx)


def check_shared_memory(ctx: PassContext) -> None:
    """Raises OutOfResources where the kernel needs more shared memory than a block of ``ctx.arch`` may have."""
    needed, limit = int(ctx.metadata.get("shared", 0)), int(ctx.capabilities.max_shared_bytes)
    if needed > limit:
        raise OutOfResources(needed, limit, "shared memory")


def _to_ptx(llvm_ir: str, ctx: PassContext) -> str:
    from tilewright.targets.nvidia.capabilities import sm_number
    from tilewright.targets.nvidia.emit import emit_ptx, matrix_instructions

    ctx.metadata["warp_size"] = ctx.warp_size
    if ctx.options.launch_pdl and sm_number(ctx.arch) >= 90:
        ctx.metadata["programmatic_launch"] = True
    ptx = emit_ptx(llvm_ir, ctx.arch)
    ctx.metadata["matrix_instructions"] = matrix_instructions(ptx)
    host = ctx.metadata.get("host") or {}
    if host.get("descriptors") or host.get("guards") or ctx.metadata.get("persistent"):
        from tilewright.targets.nvidia.launcher import WITHOUT_TMA

        ctx.metadata["launch_variants"] = [WITHOUT_TMA]
    return ptx


def _to_cubin(ptx: str, ctx: PassContext) -> bytes | None:
    from tilewright.targets.nvidia.emit import assemble, ptxas

    if ptxas(ctx.arch) is None:
        return None
    cubin, usage = assemble(ptx, ctx.arch, line_info=ctx.line_tables, fast_compile=ctx.options.fast_compile)
    ctx.metadata.update(usage)
    return cubin
