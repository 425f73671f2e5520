"""A program's loads see what its own atomics did, in every lane."""

import numpy as np
import pytest

import tilewright
import tilewright.language as tl


@tilewright.jit
def load_after(p, out, KIND: tl.constexpr):
    i = tl.arange(0, 64)
    before = tl.load(p)
    if KIND == "cas":
        tl.atomic_cas(p, before, before + 5)
    else:
        tl.atomic_add(p, 5)
    tl.store(out + i, tl.load(p) * 100 + before)


@pytest.mark.parametrize("kind", ["add", "cas"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
def test_every_lane_loads_what_the_programs_atomic_left(arch, kind, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{arch}:sim")
    p, out = np.array([7], np.int32), np.full(64, -1, np.int32)
    load_after[(1,)](p, out, kind, num_warps=1)
    assert p[0] == 12 and (out == 1207).all(), out
