"""A program's loads see what its own stores and atomics did, in every lane of the wave."""

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
    elif KIND == "store":
        tl.store(p, before + 5)
    elif KIND == "masked":
        tl.store(p, before + 5, mask=before > 0)
    elif KIND == "relaxed":
        tl.atomic_add(p, 5, sem="relaxed")
    else:
        tl.atomic_add(p, 5)
    tl.store(out + i, tl.load(p) * 100 + before)


@pytest.mark.parametrize("kind", ["add", "cas", "store", "masked", "relaxed"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100", "gfx1201"])
def test_every_lane_loads_what_its_program_left(arch, kind, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{arch}:sim")
    p, out = np.array([7], np.int32), np.full(64, -1, np.int32)
    load_after[(1,)](p, out, kind, num_warps=1)
    assert p[0] == 12 and (out == 1207).all(), out
