"""The five example kernels at the sizes of Triton's tutorials: what to compile, the same for Tilewright and the peer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Config:
    """``signature``: argument → Triton type or "constexpr"; ``aligned``: arguments divisible by 16."""

    name: str
    module: str
    kernel: str
    signature: dict[str, str]
    constexprs: dict[str, Any]
    aligned: tuple[str, ...]
    options: dict[str, int] = field(default_factory=dict)


def matmul(dtype: str, m: int, n: int, k: int, warps: int, stages: int) -> Config:
    signature = {"x_ptr": f"*{dtype}", "w_ptr": f"*{dtype}", "b_ptr": f"*{dtype}", "y_ptr": f"*{dtype}", "M": "i32", "N": "i32", "K": "i32",
                 "stride_xm": "i32", "stride_xk": "constexpr", "stride_wk": "i32", "stride_wn": "constexpr", "stride_ym": "i32",
                 "stride_yn": "constexpr", "BLOCK_M": "constexpr", "BLOCK_N": "constexpr", "BLOCK_K": "constexpr",
                 "GROUP_M": "constexpr", "RELU": "constexpr", "PRECISION": "constexpr"}
    constexprs = {"stride_xk": 1, "stride_wn": 1, "stride_yn": 1, "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8,
                  "RELU": True, "PRECISION": "tf32"}
    aligned = ("x_ptr", "w_ptr", "b_ptr", "y_ptr", "M", "N", "K", "stride_xm", "stride_wk", "stride_ym")
    return Config("matmul", "matmul", "matmul_kernel", signature, constexprs, aligned, {"num_warps": warps, "num_stages": stages})


def attention(dtype: str, m: int, n: int, dim: int, causal: bool, warps: int, stages: int) -> Config:
    signature = {f"{t}_ptr": f"*{dtype}" for t in "qkvo"}
    signature |= {f"stride_{a}": "i32" for a in ("qh", "qm", "kh", "kn", "vh", "vn", "oh", "om")}
    signature |= {"n_ctx": "i32", "qk_scale": "fp32", "HEAD_DIM": "constexpr", "BLOCK_M": "constexpr", "BLOCK_N": "constexpr",
                  "CAUSAL": "constexpr", "PRECISION": "constexpr"}
    constexprs = {"HEAD_DIM": dim, "BLOCK_M": m, "BLOCK_N": n, "CAUSAL": causal, "PRECISION": "tf32"}
    aligned = tuple(a for a, t in signature.items() if t not in ("constexpr", "fp32"))
    name = "attention_causal" if causal else "attention"
    return Config(name, "attention", "attention_kernel", signature, constexprs, aligned, {"num_warps": warps, "num_stages": stages})


CONFIGS = (
    Config("add", "vector_add", "add_kernel", {"x_ptr": "*fp32", "y_ptr": "*fp32", "z_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
           {"BLOCK": 1024}, ("x_ptr", "y_ptr", "z_ptr", "n"), {"num_warps": 4, "num_stages": 3}),
    Config("softmax", "softmax", "softmax_kernel",
           {"out_ptr": "*bf16", "in_ptr": "*bf16", "out_stride": "i32", "in_stride": "i32", "n_rows": "i32", "n_cols": "i32", "BLOCK": "constexpr"},
           {"BLOCK": 4096}, ("out_ptr", "in_ptr", "out_stride", "in_stride", "n_rows", "n_cols"), {"num_warps": 8, "num_stages": 3}),
    Config("layer_norm", "layer_norm", "layer_norm_kernel",
           {"x_ptr": "*fp16", "y_ptr": "*fp16", "w_ptr": "*fp16", "b_ptr": "*fp16", "mean_ptr": "*fp32", "rstd_ptr": "*fp32",
            "stride": "i32", "n": "i32", "eps": "fp32", "BLOCK": "constexpr"},
           {"BLOCK": 4096}, ("x_ptr", "y_ptr", "w_ptr", "b_ptr", "mean_ptr", "rstd_ptr", "stride", "n"), {"num_warps": 8, "num_stages": 3}),
    matmul("fp16", 128, 128, 64, 4, 3),
    attention("bf16", 128, 64, 64, False, 4, 3),
    attention("bf16", 128, 64, 64, True, 4, 3),
)
