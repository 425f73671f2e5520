"""What ptxas makes of kernels whose dots are given to warp groups (and loaded by cp.async): no spills, nothing serialised."""

import re

import attention
import matmul
import pytest
from test_warp_group_kernels_simulated import gradients

import tilewright
from tilewright.compiler import ASTSource
from tilewright.targets.nvidia.emit import ptxas
from tilewright.targets.protocol import GPUTarget

pytestmark = pytest.mark.skipif(ptxas() is None, reason="no ptxas")


def compiled(kernel, pointers, constants, warps, stages):
    """For sm_90a; ``pointers``: types by name. Other arguments are i32 that 16 divides, but scales."""
    signature = {n: pointers.get(n, "fp32" if n.endswith("scale") else "i32") for n in kernel.arg_names if n not in constants}
    divisible = {(kernel.arg_names.index(n),): [["tt.divisibility", 16]] for n in signature if signature[n] != "fp32"}
    return tilewright.compile(ASTSource(kernel, signature, constants, divisible), target=GPUTarget("cuda", 90, 32),
                              options={"num_warps": warps, "num_stages": stages, "warp_group_dots": True, "tma": False})


def check(kernel, products):
    """``products``: shapes and types of the instructions that its PTX has."""
    metadata, ptx = kernel.metadata, kernel.asm["ptx"]
    used = set(re.findall(r"wgmma\.mma_async\.sync\.aligned\.(m64n\d+k\d+\.[\w.]+)", ptx))
    assert used == products and "mma.sync" not in ptx
    assert metadata.spills == 0 and not getattr(metadata, "wgmma_serialized", None), metadata
    assert "cp.async" in ptx and "fence.proxy.async" in ptx


@pytest.mark.parametrize("block, warps, element, column_major, product", [
    ((128, 256, 64), 8, "fp16", False, "m64n256k16.f32.f16.f16"), ((128, 128, 64), 4, "fp16", False, "m64n128k16.f32.f16.f16"),
    ((128, 128, 64), 8, "bf16", True, "m64n128k16.f32.bf16.bf16"), ((64, 256, 64), 8, "fp16", False, "m64n128k16.f32.f16.f16"),
    ((128, 256, 128), 8, "fp8e4nv", True, "m64n256k32.f32.e4m3.e4m3"), ((128, 128, 32), 4, "fp32", True, "m64n128k8.f32.tf32.tf32"),
])
def test_matmul(block, warps, element, column_major, product):
    units = ("stride_xk", "stride_wk" if column_major else "stride_wn", "stride_yn")
    out = "fp16" if element.startswith("fp8") else element
    constants = {"BLOCK_M": block[0], "BLOCK_N": block[1], "BLOCK_K": block[2], "GROUP_M": 8, "RELU": True, "PRECISION": "tf32",
                 **dict.fromkeys(units, 1)}
    pointers = {"x_ptr": f"*{element}", "w_ptr": f"*{element}", "b_ptr": f"*{out}", "y_ptr": f"*{out}"}
    kernel = compiled(matmul.matmul_kernel, pointers, constants, warps, 3)
    check(kernel, {product})
    assert "wgmma.wait_group.sync.aligned 1" in kernel.asm["ptx"]


@pytest.mark.parametrize("m, n, d, warps, causal", [(128, 64, 64, 4, False), (128, 64, 64, 4, True), (128, 128, 128, 8, False)])
def test_attention(m, n, d, warps, causal):
    constants = {"HEAD_DIM": d, "BLOCK_M": m, "BLOCK_N": n, "CAUSAL": causal, "PRECISION": "tf32"}
    kernel = compiled(attention.attention_kernel, {f"{p}_ptr": "*bf16" for p in "qkvo"}, constants, warps, 2)
    check(kernel, {f"m64n{x}k16.f32.bf16.bf16" for x in (n, d)})


def test_attentions_gradients():
    pointers = {n: "*fp16" if len(n) == 5 else "*fp32" for n in gradients.arg_names if n.endswith("_ptr")}
    kernel = compiled(gradients, pointers, {"M": 64, "N": 128, "D": 64}, 8, 2)
    assert kernel.metadata.spills == 0 and not getattr(kernel.metadata, "wgmma_serialized", None), kernel.metadata
