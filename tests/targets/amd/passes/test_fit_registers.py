"""Attention's queries are read again in the loop where its tiles would not fit the registers, and only there; addresses are
computed in loops where registers would spill; the values are right."""

import re

import attention as example
import matmul as example_matmul
import numpy as np
import pytest

import tilewright as triton
from tilewright.backends.compiler import GPUTarget
from tilewright.compiler import ASTSource
from tilewright.targets.amd import emit
from tilewright.targets.amd.passes import fit_registers, offsets_anew
from tilewright.targets.amd.passes.fit_registers import limit

STRIDES = [f"stride_{a}" for a in ("qh", "qm", "kh", "kn", "vh", "vn", "oh", "om")]


def compiled(arch, warps, m=128, n=64, dim=64, stages=2):
    signature = {f"{t}_ptr": "*bf16" for t in "qkvo"} | dict.fromkeys([*STRIDES, "n_ctx"], "i32") | {"qk_scale": "fp32"}
    aligned = {(i,): [["tt.divisibility", 16]] for i, t in enumerate(signature.values()) if t != "fp32"}
    constants = {"HEAD_DIM": dim, "BLOCK_M": m, "BLOCK_N": n, "CAUSAL": False, "PRECISION": "ieee"}
    source = ASTSource(fn=example.attention_kernel, signature=signature | dict.fromkeys(constants, "constexpr"), constexprs=constants, attrs=aligned)
    return triton.compile(source, target=GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32), options={"num_warps": warps, "num_stages": stages})


def reads_of_queries(kernel, m=128, dim=64):
    """In the first loop."""
    text = kernel.asm["ttgir"]
    loop = text[text.index("scf.for"):text.index("scf.yield")]
    return len(re.findall(rf'"ttg.local_load"\(%\d+\)[^\n]*memdesc<array<i64: {m}, {dim}>', loop))


def test_queries_are_read_again_where_they_do_not_fit():
    kernel = compiled("gfx1201", 4)
    assert reads_of_queries(kernel) == 1
    assert kernel.metadata.spills == 0


def test_without_the_pass_registers_spill(monkeypatch):
    monkeypatch.setattr(fit_registers, "_fit", lambda *args: False)
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    kernel = compiled("gfx1201", 4)
    assert reads_of_queries(kernel) == 0
    assert kernel.metadata.spills > 0


@pytest.mark.parametrize("arch, warps", [("gfx1201", 8), ("gfx942", 4)])
def test_what_fits_stays_in_registers(arch, warps):
    assert reads_of_queries(compiled(arch, warps)) == 0


@pytest.mark.parametrize("m, stages", [(128, 5), (256, 4)])
def test_queries_make_room_for_many_stages(m, stages):
    """gfx950's copies to LDS fill it with their stages: the queries are read before, not in the loop or after the first copies, when both would be needed."""
    kernel = compiled("gfx950", 8, m, dim=128, stages=stages)
    assert reads_of_queries(kernel, m, 128) == 0 and kernel.metadata.shared <= 163840
    assert re.search(r"buffer_load_dwordx4 .* lds", kernel.asm["amdgcn"])


def matmul(m, n, k, warps):
    signature = {f"{t}_ptr": "*fp16" for t in "xwby"} | dict.fromkeys(["M", "N", "K", "stride_xm", "stride_wk", "stride_ym"], "i32")
    constants = {"stride_xk": 1, "stride_wn": 1, "stride_yn": 1, "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "GROUP_M": 8, "RELU": True, "PRECISION": "ieee"}
    names = example_matmul.matmul_kernel.arg_names
    source = ASTSource(fn=example_matmul.matmul_kernel, signature=signature | dict.fromkeys(constants, "constexpr"), constexprs=constants,
                       attrs={(names.index(a),): [["tt.divisibility", 16]] for a in signature})
    return triton.compile(source, target=GPUTarget("hip", "gfx1100", 32), options={"num_warps": warps, "num_stages": 2})


def test_addresses_are_computed_in_the_loop_where_registers_would_spill(monkeypatch):
    """128 registers of sums, 64 of the next tiles and 48 of fragments leave 16; what is asked for again is said."""
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    kernel = matmul(128, 128, 64, 4)
    assert kernel.metadata.spills == 0
    assert "scratch memory" in str(kernel.explain())
    loop = kernel.asm["ttgir"][kernel.asm["ttgir"].index("scf.for"):]
    assert "tt.make_range" in loop[:loop.index("scf.yield")]
    monkeypatch.setattr(offsets_anew, "_make_again", lambda *args: None)
    assert matmul(128, 128, 64, 4).metadata.spills > 0
    monkeypatch.setattr(fit_registers, "ROUNDS_READ_ANEW", "tt.nothing")
    assert matmul(128, 128, 64, 4).metadata.spills > 4


def test_other_schedules_are_tried(monkeypatch):
    """As if LLVM's own schedule and the first other one spilled: the text and the object are of the last."""
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    seen, spills = [], iter((9, 4, 0))
    real = emit.emit_amdgcn
    monkeypatch.setattr(emit, "emit_amdgcn", lambda ir, arch: (seen.append(ir), real(ir, arch))[1])
    monkeypatch.setattr(emit, "resource_usage", lambda text: {"spills": next(spills)})
    objects = []
    make = emit.emit_object
    monkeypatch.setattr(emit, "emit_object", lambda ir, arch: (objects.append(ir), make(ir, arch))[1])
    assert matmul(64, 64, 32, 4).metadata.spills == 0
    strategies = [ir.partition('"amdgpu-sched-strategy"="')[2].partition('"')[0] for ir in seen]
    assert strategies == ["", *emit.STRATEGIES]
    assert objects == [seen[-1]]


@pytest.mark.parametrize("m, n, k", [(128, 128, 192), (129, 136, 80)])
def test_values_with_addresses_computed_in_the_loop(m, n, k, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx1100:sim")
    x, w, b = (np.random.default_rng(i).standard_normal(s).astype(np.float16) for i, s in enumerate(((m, k), (k, n), (n,))))
    got = example_matmul.matmul(x, w, b, block=(128, 128, 64), num_stages=2)
    want = example_matmul.reference(x, w, b)
    assert np.linalg.norm(got - want) < 1e-3 * np.linalg.norm(want)


def test_limits():
    """64: 512 of a SIMD, of which an instruction can name 256; 32: 1536. A work-group's waves are spread over 4 SIMDs."""
    assert [limit(64, w) for w in (1, 4, 8, 16)] == [256, 256, 256, 128]
    assert [limit(32, w) for w in (1, 4, 16, 32)] == [256, 256, 256, 192]


def test_values(monkeypatch):
    """Queries of more than one block, the last of them partial."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx1201:sim")
    q, k, v = (np.random.default_rng(i).standard_normal((1, 150, 64)).astype(np.float16) for i in range(3))
    got = example.attention(q, k, v, block=(128, 64))
    want = example.reference(q, k, v, False)
    assert np.linalg.norm(got - want) < 2e-3 * np.linalg.norm(want)
