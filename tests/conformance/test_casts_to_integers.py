"""Floats as integers: the fraction dropped, the type's ends beyond its range, 0 for NaN, on every target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.conformance.harness import (
    FLOATS,
    INTS,
    SIMULATED,
    UINTS,
    compare,
    poisoned,
    random_array,
    rng_of,
    special_floats,
    tl_name,
    wide,
)

_ALL_PAIRS: list[Any] = [(f, i) for f in FLOATS for i in (*INTS, *UINTS)]
_FP8_PAIRS: list[Any] = [("fp8e4nv", "int8"), ("fp8e5", "uint16")]


def exact(value: float, dtype: str) -> int:
    """Python's own integers."""
    ends = np.iinfo(dtype)
    if np.isnan(value):
        return 0
    if np.isinf(value):
        return int(ends.max if value > 0 else ends.min)
    return min(max(int(value), int(ends.min)), int(ends.max))


def values(dtype: str, target: str, n: int):
    x = special_floats(dtype, n, rng_of(dtype, target)) if dtype in FLOATS else random_array(dtype, n, rng_of(dtype, target))
    ends = np.iinfo(target)
    near = [float(v) * f for v in (ends.min, ends.max, ends.max // 2) for f in (0.999, 1.0, 1.001, 4.0)] + [-0.9, 0.9, -1.0, -1.5, 2.0**31, 2.0**63, -(2.0**31)]
    for at, v in enumerate(near):
        x[32 + at] = v
    return x


@pytest.mark.parametrize("source, target", [*(p if not SIMULATED or k % 3 == 0 else pytest.param(*p, marks=pytest.mark.slow) for k, p in enumerate(_ALL_PAIRS)), *_FP8_PAIRS])
def test_floats_to_integers(source, target):
    n = 128
    x = values(source, target, n)
    source_text = f"""
        @triton.jit
        def kernel(x, out):
            i = tl.arange(0, {n})
            tl.store(out + i, tl.load(x + i).to({tl_name(target)}))
    """
    got = compare(source_text, {"x": x, "out": poisoned(target, n)}, num_warps=2)
    want = np.array([exact(float(v), target) for v in wide(x)], dtype=np.dtype(target))
    np.testing.assert_array_equal(wide(got["out"]).astype(np.dtype(target)), want)
