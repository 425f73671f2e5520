"""With debug=True a loop's step that turns out not to be positive is told; without it gives no round (tests/conformance/test_ranges_at_the_limits.py)."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.dialects.errors import DeviceAssertionError


@triton.jit
def count(o, n, size, LEFT: tl.constexpr, KNOWN: tl.constexpr):
    if KNOWN:
        size = tl.full([], 0, tl.int32)
    rounds = 0
    if LEFT:
        for _ in range(0, n, size):
            if rounds == 100:
                break
            rounds += 1
    else:
        for _ in range(0, n, size):
            rounds += 1
    tl.store(o, rounds)


@pytest.mark.parametrize("left", [False, True])
def test_a_step_that_is_not_positive_is_told(monkeypatch, left):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    o = np.zeros(1, np.int32)
    count[(1,)](o, 7, 2, LEFT=left, KNOWN=False, debug=True)
    assert o[0] == 4
    for size, known in ((0, False), (-3, False), (2, True)):
        with pytest.raises(DeviceAssertionError, match="the step of a loop, known at run time, is positive"):
            count[(1,)](o, 7, size, LEFT=left, KNOWN=known, debug=True)
