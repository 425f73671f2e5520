"""LLVM IR to PTX to cubin: line tables, architectures, and what must not go by silently."""

import pytest

from tilewright.dialects.errors import InternalCompilerError, OutOfResources, UnsupportedArchError
from tilewright.targets.nvidia import emit
from tilewright.targets.nvidia.capabilities import ARCHS, capabilities, resolve_arch

SOURCE = """
@global_smem = external addrspace(3) global [0 x i8], align 16
define ptx_kernel void @k(ptr addrspace(1) %a) #0 !dbg !5 {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x(), !dbg !9
  %p = getelementptr float, ptr addrspace(1) %a, i32 %t
  %q = getelementptr float, ptr addrspace(3) @global_smem, i32 %t
  %v = load float, ptr addrspace(1) %p, !dbg !9
  BODY
  store float %v, ptr addrspace(3) %q
  ret void
}
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare float @llvm.nvvm.unheard.of(float)
declare i32 @vprintf(ptr, ptr)
attributes #0 = { "nvvm.reqntid"="128" }
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C, file: !1, producer: "x", isOptimized: true, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "kernel.py", directory: "/src")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!4 = !DISubroutineType(types: !6)
!6 = !{}
!5 = distinct !DISubprogram(name: "k", file: !1, line: 1, type: !4, unit: !0, spFlags: DISPFlagDefinition)
!9 = !DILocation(line: 33, column: 1, scope: !5)
"""


def ir(body=""):
    return SOURCE.replace("BODY", body)


@pytest.mark.parametrize("arch", ARCHS)
def test_every_architecture_assembles_with_line_tables(arch):
    ptx = emit.emit_ptx(ir(), arch)
    assert f".target {arch}\n" in ptx and ", debug" not in ptx
    assert ".loc\t1 33" in ptx and "kernel.py" in ptx and ".reqntid 128" in ptx
    # Shared addresses take 32 bits.
    assert "mov.b32" in ptx.split("global_smem")[-2][-40:]
    if emit.ptxas():
        cubin, usage = emit.assemble(ptx, arch)
        assert cubin[:4] == b"\x7fELF" and 4 <= usage["registers"] <= 32 and usage["spills"] == 0
        assert b"kernel.py" in cubin


def test_unknown_intrinsics_are_errors():
    with pytest.raises(InternalCompilerError, match=r"calls 'llvm.nvvm.unheard.of'"):
        emit.emit_ptx(ir("%w = call float @llvm.nvvm.unheard.of(float %v)"), "sm_80")
    emit.emit_ptx(ir("%w = call i32 @vprintf(ptr null, ptr null)"), "sm_80")


@pytest.mark.skipif(emit.ptxas() is None, reason="no ptxas")
def test_assembler_errors_name_the_line():
    with pytest.raises(InternalCompilerError, match=r"ptxas failed.*\n.*PTX line \d+: frobnicate"):
        emit.assemble(emit.emit_ptx(ir('call void asm sideeffect "frobnicate;", ""()'), "sm_80"), "sm_80")
    static = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {\n.shared .b8 a[60000];\n.reg .b32 r;\nmov.b32 r, a;\nst.shared.b32 [r], r;\nret;\n}"
    with pytest.raises(OutOfResources, match="static shared memory: 60000 needed"):
        emit.assemble(static, "sm_80")


def test_resource_usage_text():
    log = "    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads\nptxas info    : Used 40 registers, 2 barriers"
    assert emit.resource_usage(log) == {"registers": 40, "spills": 20, "stack": 16}
    serialised = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x in function 'k'"
    injected = "ptxas info    : (C7517) wgmma.wait_group is injected in around line 100 by compiler"
    found = emit.resource_usage(f"{log}\n{injected}\n{serialised}\n")
    assert found["wgmma_serialized"] == serialised and found["wgmma_injected"] == injected


def test_architectures():
    assert [resolve_arch(a) for a in (80, "80", "sm_86", 90, "90a", "sm_90a", "100a")] == [
        "sm_80", "sm_80", "sm_86", "sm_90a", "sm_90a", "sm_90a", "sm_100a"]
    with pytest.raises(UnsupportedArchError, match="unknown architecture 'sm_70'; known: sm_80"):
        resolve_arch("sm_70")
    assert capabilities("sm_90a").max_shared_bytes == 232448 and capabilities(80).max_shared_bytes == 166912
    assert "nvidia.mma_m16n8k16_bf16" in capabilities("sm_80").matrix_ops


LOADING = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p)
.reqntid 128
{
	.reg .pred %p<2>;
	.reg .b32 %r<4>;
	.reg .b64 %rd<2>;
	ld.param.b64 %rd1, [p];
	mov.b32 %r3, 0;
$L__BB0_1:
	ld.global.b32 %r1, [%rd1];
	ld.global.b32 %r2, [%rd1+4];
	add.s32 %r3, %r3, %r1;
	add.s32 %r3, %r3, %r2;
	setp.ne.s32 %p1, %r3, 7;
	@%p1 bra 	$L__BB0_1;
	st.global.b32 [%rd1], %r3;
	ret;
}
"""


def test_loops_that_load_several_times_may_use_64_registers():
    from tilewright.targets.nvidia.emit import with_room_for_loads

    assert ".reqntid 128\n.minnctapersm 8\n" in with_room_for_loads(LOADING)
    one = LOADING.replace("	ld.global.b32 %r2, [%rd1+4];\n", "	mov.b32 %r2, 0;\n")
    outside = LOADING.replace("	ld.global.b32 %r2, [%rd1+4];\n", "").replace("	st.global", "	ld.global.b32 %r2, [%rd1+4];\n	st.global")
    bounded = LOADING.replace(".reqntid 128", ".reqntid 128\n.minnctapersm 2")
    wide = LOADING.replace(".reqntid 128", ".reqntid 2048")
    assert [with_room_for_loads(text) for text in (one, outside, bounded, wide)] == [None] * 4
    if emit.ptxas():
        assert emit.assemble(LOADING, "sm_90a")[1]["spills"] == 0
