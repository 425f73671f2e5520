"""Shapes, and covering sets of products: the default run takes each value of each list once or so, the nightly run takes all combinations."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import FLOATS, SIMULATED, random_array, rng_of

SHAPES = [(1,), (2,), (32,), (256,), (1, 1), (1, 32), (32, 1), (4, 8), (16, 64), (64, 4), (64, 64), (1, 1, 1), (2, 4, 8), (8, 1, 16), (16, 8, 2), (4, 1, 1)]
AXES = [(s, a) for s in SHAPES for a in range(len(s))]
WARPS = (1, 2, 4, 8)


def covering(*lists: Sequence[Any], quick: int | None = None, keep: Callable[..., bool] = lambda *_: True) -> list[Any]:
    """The product of the lists as parameters. Those not marked nightly: ``quick`` rows (the longest list's length if not said), each list
    walked at its own pace, so that values are spread and pairs vary. ``keep`` drops combinations that mean nothing."""
    wanted = quick or max(len(x) for x in lists)
    chosen: list[Any] = []
    for step in range(20 * wanted):
        # a list longer than the sample is strode through; a shorter one starts one later each time it has been gone through
        row = tuple(x[(step * max(1, round(len(x) / wanted)) if len(x) >= wanted else step + k * (step // len(x))) % len(x)] for k, x in enumerate(lists))
        if keep(*row) and row not in chosen:
            chosen.append(row)
        if len(chosen) == wanted:
            break
    if SIMULATED:
        chosen = chosen[::3]
    if os.environ.get("TILEWRIGHT_CONFORMANCE_NIGHTLY") != "1":  # thousands, that would take seconds to collect
        return [pytest.param(*r) for r in chosen]
    rest = [r for r in itertools.product(*lists) if keep(*r) and r not in chosen]
    return [pytest.param(*r) for r in chosen] + [pytest.param(*r, marks=pytest.mark.nightly) for r in rest]


def exact_array(dtype: str, shape: tuple[int, ...], *key: Any) -> torch.Tensor:
    """Small integers, with ties, whose sums over the shape are exact in the type."""
    if dtype in ("fp16", "bf16"):
        return torch.from_numpy(np.array(rng_of(dtype, shape, *key).integers(-1, 2, shape)).astype(np.float64)).to(torch.float16 if dtype == "fp16" else torch.bfloat16)
    return random_array(dtype, shape, rng_of(dtype, shape, *key), small=True)


def numbers(x: torch.Tensor) -> np.ndarray:
    """In float64, or in (u)int64."""
    if x.dtype.is_floating_point:
        return x.to(torch.float64).numpy()
    return x.numpy().astype(np.uint64 if x.dtype == torch.uint64 else np.int64)


def wrapped(value: np.ndarray, dtype: str) -> np.ndarray:
    """Integers reduced to the range of a type; floats as they are."""
    return value if dtype in FLOATS else value.astype(dtype)
