"""Attention's queries are read again in the loop where its tiles would not fit the registers, and only there; the values are right."""

import re

import attention as example
import numpy as np
import pytest

import tilewright as triton
from tilewright.backends.compiler import GPUTarget
from tilewright.compiler import ASTSource
from tilewright.targets.amd.passes import fit_registers
from tilewright.targets.amd.passes.fit_registers import limit

STRIDES = [f"stride_{a}" for a in ("qh", "qm", "kh", "kn", "vh", "vn", "oh", "om")]


def compiled(arch, warps, m=128, n=64, dim=64):
    signature = {f"{t}_ptr": "*bf16" for t in "qkvo"} | dict.fromkeys([*STRIDES, "n_ctx"], "i32") | {"qk_scale": "fp32"}
    aligned = {(i,): [["tt.divisibility", 16]] for i, t in enumerate(signature.values()) if t != "fp32"}
    constants = {"HEAD_DIM": dim, "BLOCK_M": m, "BLOCK_N": n, "CAUSAL": False, "PRECISION": "ieee"}
    source = ASTSource(fn=example.attention_kernel, signature=signature | dict.fromkeys(constants, "constexpr"), constexprs=constants, attrs=aligned)
    return triton.compile(source, target=GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32), options={"num_warps": warps, "num_stages": 2})


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
