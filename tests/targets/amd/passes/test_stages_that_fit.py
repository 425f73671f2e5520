"""A loop whose stages do not fit LDS gets as many as fit (passes/allocate_shared_memory.py): values by the simulator, what is told, and what is refused."""

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.dialects.errors import ArgumentError, OutOfResources

KB = 1024


@tilewright.jit
def stages_kernel(x_ptr, w_ptr, y_ptr, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, OWN: tl.constexpr):
    m, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for i in tl.range(0, K, BLOCK_K, num_stages=OWN):
        x = tl.load(x_ptr + m[:, None] * K + (i + k)[None, :])
        w = tl.load(w_ptr + (i + k)[:, None] * BLOCK + m[None, :])
        acc = tl.dot(x, w, acc)
    tl.store(y_ptr + m[:, None] * BLOCK + m[None, :], acc)


def compiled(target, block, block_k, own=None, **options):
    signature = {"x_ptr": "*fp16", "w_ptr": "*fp16", "y_ptr": "*fp32", "K": "i32"}
    constexprs = {"BLOCK": block, "BLOCK_K": block_k, "OWN": own}
    source = tilewright.compiler.ASTSource(fn=stages_kernel, signature={**signature, **dict.fromkeys(constexprs, "constexpr")}, constexprs=constexprs,
                                           attrs={(i,): [["tt.divisibility", 16]] for i in range(4)})
    return tilewright.compile(source, target=target, options=options)


GFX950 = GPUTarget("hip", "gfx950", 64)


@pytest.mark.parametrize("own", [None, 13])
def test_as_many_as_fit(monkeypatch, own):
    """A stage of 64×64×64 is 16 KB, and n stages are n - 1 buffers: 160 KB hold 11, asked for by the launch or by the loop."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx950:sim")
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((64, 832)).astype(np.float16), rng.standard_normal((832, 64)).astype(np.float16)
    y = np.full((64, 64), np.nan, np.float32)
    kernel = stages_kernel[(1,)](x, w, y, 832, 64, 64, own, num_stages=2 if own else 14)
    expected = x.astype(np.float64) @ w.astype(np.float64)
    assert np.abs(y - expected).max() < 1e-3 * np.abs(expected).max()
    assert kernel.metadata.shared == 160 * KB
    assert [v["options"] for v in kernel.metadata.variants] == [{"most_stages": 11}]
    told = kernel.explain()
    assert f"11 of the {own or 14} stages asked for (that is what fits 160 KB of LDS)" in told
    assert f"{own or 14} stages take {((own or 14) - 1) * 16 * KB} bytes of LDS, and gfx950 has {160 * KB}" in told


def test_what_fits_is_left_alone():
    kernel = compiled(GFX950, 64, 64, num_stages=11)
    assert kernel.metadata.shared == 160 * KB and "most_stages" not in str(getattr(kernel.metadata, "variants", ()))
    assert "stages asked for" not in kernel.explain()


def test_not_even_one():
    """A tile of 256×256 fp16 for each operand: 256 KB of a stage, of which one operand's 128 KB alone are more than gfx942 has."""
    with pytest.raises(OutOfResources, match=r"shared memory: \d+ needed, 65536 available. It does not fit with one stage either: reduce block sizes"):
        compiled(GPUTarget("hip", "gfx942", 64), 256, 256, num_stages=4, num_warps=8)


def test_nvidia_refuses_as_triton_does():
    """Autotuners there leave out what does not fit."""
    with pytest.raises(OutOfResources, match="shared memory"):
        compiled(GPUTarget("cuda", 80, 32), 64, 64, num_stages=14)


def test_no_fewer_than_none():
    with pytest.raises(ArgumentError, match="most_stages is -1; allowed are 0"):
        compiled(GFX950, 64, 64, most_stages=-1)
