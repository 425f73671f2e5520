"""Random kernels (random_kernels.py) on the target, bit for bit as in the interpreter."""

from __future__ import annotations

import pytest

from tilewright.conformance.harness import SIMULATED, compare
from tilewright.conformance.random_kernels import Program

_QUICK = 20 if SIMULATED else 60


@pytest.mark.parametrize("seed", [s if s < _QUICK else pytest.param(s, marks=pytest.mark.slow) for s in range(400)])
def test_random_kernel(seed):
    source, args = Program(seed).build()
    # ulp 0.5: equal, zeros of both signs being so, since the minimum of both is either
    compare(source, args, num_warps=(4, 1, 2, 8)[seed % 4], tolerance={"*": {"ulp": 0.5}})
