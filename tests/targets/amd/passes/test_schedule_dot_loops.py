"""Where the scheduler is told how to interleave a loop of products, and what it makes of that."""

import re

import attention
import matmul
import pytest

import tilewright
from tilewright.backends.compiler import GPUTarget
from tilewright.dialects.errors import ArgumentError

MATMUL = ["x_ptr", "w_ptr", "b_ptr", "y_ptr", "M", "N", "K", "stride_xm", "stride_xk", "stride_wk", "stride_wn", "stride_ym", "stride_yn",
          "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "RELU", "PRECISION"]


def matmul_code(arch, block=(128, 128, 64), **options):
    signature = {**dict.fromkeys(MATMUL[:4], "*fp16"), **dict.fromkeys(("M", "N", "K", "stride_xm", "stride_wk", "stride_ym"), "i32")}
    constexprs = dict(zip(MATMUL[13:16], block)) | {"stride_xk": 1, "stride_wn": 1, "stride_yn": 1, "GROUP_M": 8, "RELU": True, "PRECISION": "ieee"}
    src = tilewright.compiler.ASTSource(fn=matmul.matmul_kernel, signature={n: signature.get(n, "constexpr") for n in MATMUL}, constexprs=constexprs,
                                        attrs={(MATMUL.index(a),): [["tt.divisibility", 16]] for a in signature})
    return tilewright.compile(src, target=GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32), options={"num_warps": 4, **options})


def attention_code(arch, **options):
    names = ["q_ptr", "k_ptr", "v_ptr", "o_ptr", *(f"stride_{a}" for a in ("qh", "qm", "kh", "kn", "vh", "vn", "oh", "om")), "n_ctx", "qk_scale"]
    kinds = ["*fp16"] * 4 + ["i32"] * 9 + ["fp32"]
    constexprs = {"HEAD_DIM": 64, "BLOCK_M": 64, "BLOCK_N": 32, "CAUSAL": False, "PRECISION": "ieee"}
    src = tilewright.compiler.ASTSource(fn=attention.attention_kernel, signature={**dict(zip(names, kinds)), **dict.fromkeys(constexprs, "constexpr")},
                                        constexprs=constexprs, attrs={})
    return tilewright.compile(src, target=GPUTarget("hip", arch, 64), options={"num_warps": 4, **options})


def loop_of(assembly):
    block = max(re.split(r"^\.LBB\d+_\d+:.*$", assembly, flags=re.M), key=lambda b: len(re.findall(r"v_mfma|v_wmma", b)))
    return [line.split() for line in block.splitlines() if re.match(r"\t[a-z]", line)]


def test_operands_of_a_matmul_are_read_ahead():
    kernel = matmul_code("gfx942")
    assert "amdg.iglp_opt" in kernel.asm["ttgir"] and kernel.metadata.spills == 0
    loop = [line for line in loop_of(kernel.asm["amdgcn"]) if line[0].startswith(("ds_read", "v_mfma"))]
    first = [line[0] for line in loop].index(next(line[0] for line in loop if line[0].startswith("v_mfma")))
    assert first >= 6  # without the hint: 2 on gfx942
    assert all(line[0].startswith("v_mfma") for line in loop[-4:])


def test_nothing_is_asked_for_where_registers_are_short():
    assert "amdg.iglp_opt" not in matmul_code("gfx942", (256, 256, 64)).asm["ttgir"]
    assert "amdg.iglp_opt" not in matmul_code("gfx950", async_copy=False).asm["ttgir"]  # LDS has room for five work-groups
    assert "amdg.iglp_opt" not in matmul_code("gfx1100", (64, 64, 32)).asm["ttgir"]


def test_hints_of_attention():
    assert "amdg.iglp_opt" not in attention_code("gfx942").asm["ttgir"]
    hinted = attention_code("gfx942", schedule_hint="attention,memory-bound-attention")
    assert "variant = 2" in hinted.asm["ttgir"]
    assert '"amdgpu-sched-strategy"="iterative-ilp"' in hinted.asm["llir"]


def test_unknown_hints_are_refused():
    with pytest.raises(ArgumentError, match="schedule_hint is 'local-prefetch'"):
        matmul_code("gfx942", schedule_hint="local-prefetch")


def test_hints_that_a_pass_may_place(monkeypatch):
    """amdg.sched_barrier, sched_group_barrier and setprio, for passes of one's own."""
    from tilewright.dialects._mlir import ir
    from tilewright.dialects.analysis.structure import functions
    from tilewright.targets.amd.passes import schedule_dot_loops

    def hints(module, ctx):
        number = lambda value, bits: ir.IntegerAttr.get(ir.IntegerType.get_signless(bits), value)  # noqa: E731
        for function in functions(module):
            for dot in [n for n in function.nodes() if n.name == "tt.dot"]:
                function.insert_before(dot, "amdg.setprio", [], [], {"priority": number(1, 16)})
                function.insert_after(dot, "amdg.setprio", [], [], {"priority": number(0, 16)})
                function.insert_after(dot, "amdg.sched_barrier", [], [], {"mask": number(0, 32)})
                function.insert_before(dot, "amdg.sched_group_barrier", [], [], {"mask": number(8, 32), "size": number(1, 32), "group": number(0, 32)})

    monkeypatch.setattr(schedule_dot_loops, "run", hints)
    asm = matmul_code("gfx942", (64, 64, 32), waves_per_eu=1).asm
    assert asm["amdgcn"].count("s_setprio 1") == asm["amdgcn"].count("s_setprio 0") == 1
    assert "sched.barrier(i32 0)" in asm["llir"] and "sched.group.barrier(i32 8, i32 1, i32 0)" in asm["llir"]


def test_the_scheduler_that_can_end_llvm_on_wave32_is_not_asked_for_there():
    assert "iterative-ilp" not in matmul_code("gfx1100", (64, 64, 32), schedule_hint="memory-bound-attention").asm["llir"]
