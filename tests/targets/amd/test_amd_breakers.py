"""Kernels that the simulator, or the compiler for AMD, once took wrongly."""

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.targets.amd.isa.errors import OutOfBounds


@tilewright.jit
def add_halves(x, idx, n, more, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(x + tl.load(idx + i), i.to(tl.float16), mask=i < n)
    y = (x + n + more - 2).to(tl.pointer_type(tl.int32))  # the last two, and ``more`` halves
    tl.store(idx, tl.load(y))


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_halves_are_added_up_to_the_end_of_their_memory(arch, monkeypatch):
    """The loop around compare-and-swap works on the last half's dword, whose other half is nobody's."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{arch}:sim")
    n = 13
    x, idx = np.zeros(n, np.float16), np.arange(64, dtype=np.int32)[::-1] % n
    idx[:n] = np.arange(n)[::-1]
    add_halves[(1,)](x, idx.copy(), n, -1, B=64, num_warps=1)
    assert (x == np.arange(n)[::-1]).all()
    with pytest.raises(OutOfBounds, match="reads 4 bytes .* 2 bytes past the end"):  # of a load that is no such loop's
        add_halves[(1,)](x, idx.copy(), n, 1, B=64, num_warps=1)


@tilewright.jit
def negated(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, -tl.load(x + i))


def test_pairs_are_negated_beside_a_constant(monkeypatch):
    """v_pk_add_f32 of −x and −0, one constant for both halves."""
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx942:sim")
    x, o = np.random.default_rng(1).standard_normal(128).astype(np.float32), np.full(128, np.nan, np.float32)
    x[:4] = 0.0, -0.0, 1e-42, np.inf
    negated[(1,)](x, o, B=128, num_warps=1, enable_fp_fusion=False)
    assert (o.view(np.uint32) == (-x).view(np.uint32)).all()
