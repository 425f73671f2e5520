"""Large FMA dots: slices that LLVM's schedulers keep apart."""

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.targets import registry
from tilewright.targets.amd.passes import part_fma_slices
from tilewright.targets.amd.simulate import simulate


@triton.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x, y = tl.load(a + i[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + j[None, :])
    tl.store(c + i[:, None] * N + j[None, :], tl.dot(x, y, input_precision="ieee"))


def compiled(m: int, n: int, k: int, num_warps: int = 1, arch: str = "gfx1100"):
    source = ASTSource(product, dict.fromkeys("abc", "*fp32"), {"M": m, "N": n, "K": k})
    return triton.compile(source, target=registry.parse(f"amd:{arch}"), options={"num_warps": num_warps})


def test_slices_of_a_large_dot_are_kept_apart(monkeypatch):
    assert "sched_barrier" not in compiled(32, 32, 16).asm["ttgir"]
    monkeypatch.setattr(part_fma_slices, "LARGE", 512)
    monkeypatch.setenv("TILEWRIGHT_ALWAYS_COMPILE", "1")
    kernel = compiled(32, 32, 16)
    lines = [line for line in kernel.asm["ttgir"].splitlines() if "tt.dot" in line or "sched_barrier" in line]
    assert len(lines) >= 4 and all("sched_barrier" in line for line in lines[1::2]) and all("tt.dot" in line for line in lines[::2])
    a, b = (np.random.default_rng(i).standard_normal(s).astype(np.float32) for i, s in enumerate(((32, 16), (16, 32))))
    c = np.full((32, 32), np.nan, np.float32)
    simulate(kernel.asm["amdgcn"], (1,), [a, b, c], shared=kernel.metadata.shared)
    assert np.allclose(c, a.astype(float) @ b.astype(float), rtol=1e-5, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
def test_a_large_dot_by_one_warp_compiles(arch):
    assert compiled(64, 64, 64, 1, arch).metadata.spills < 300  # 1126 without the pass, in four times the time
