"""Running sums of exponentials beside a running maximum, of which compilers may leave out the exponential that is always 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import compare, poisoned, rng_of, special_floats

N = 64
SOURCE = """
@triton.jit
def kernel(x, top, total, begin, rounds, N: tl.constexpr):
    i = tl.arange(0, N)
    m = tl.load(begin + i)
    s = tl.zeros((N,), tl.float32)
    for r in range(rounds):
        v = tl.load(x + r * N + i)
        new = {maximum}
        {sum}
        m = new
    tl.store(top + i, m)
    tl.store(total + i, s)
"""
SUMS = {"exp2": "s = s * tl.exp2(m - new) + tl.exp2(v - new)", "exp": "s = tl.exp(v - new) + tl.exp(m - new) * s",
        "fma": "s = tl.fma(s, tl.exp2(m - new), tl.exp2(v - new))", "weighted": "s = s * tl.exp2(m - new) + 3.0 * tl.exp2(v - new)"}
MAXIMA = {"number": "tl.maximum(m, v)", "NaN": "tl.maximum(v, m, propagate_nan=tl.PropagateNan.ALL)"}


def arguments(special: bool, rounds: int = 4) -> dict[str, Any]:
    rng = rng_of("running sums", special)
    if special:  # every special value meets every other in some element
        listed = special_floats("fp32", 20, rng_of("special"))
        x = listed[torch.from_numpy(rng.integers(0, 20, (rounds, N)))]
        begin = listed[torch.arange(N) % 20]
        return {"x": x, "top": poisoned("fp32", N), "total": poisoned("fp32", N), "begin": begin, "rounds": rounds, "N": N}
    x = torch.from_numpy((rng.standard_normal((rounds, N)) * 6).astype(np.float32))
    return {"x": x, "top": poisoned("fp32", N), "total": poisoned("fp32", N), "begin": torch.full((N,), -math.inf), "rounds": rounds, "N": N}


@pytest.mark.parametrize("maximum", MAXIMA)
@pytest.mark.parametrize("form", SUMS)
def test_special_values(form, maximum):
    """Infinities, NaN, equal values, subnormals: as the interpreter, which takes every exponential."""
    source = SOURCE.replace("{maximum}", MAXIMA[maximum]).replace("{sum}", SUMS[form])
    for special in (True, False):
        compare(source, arguments(special), tolerance={"total": {"ulp": 8}}, num_warps=1, enable_fp_fusion=False)


@pytest.mark.parametrize("form", ["exp2", "exp"])
def test_values_beside_numpy(form):
    args = arguments(special=False)
    x = args["x"].double().numpy()
    top = x.max(0)
    total = (np.exp2 if form == "exp2" else np.exp)(x - top).sum(0).astype(np.float32)
    source = SOURCE.replace("{maximum}", MAXIMA["number"]).replace("{sum}", SUMS[form])
    compare(source, args, expected={"total": total}, tolerance={"total": {"rtol": 1e-6}}, num_warps=1)
