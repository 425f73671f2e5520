"""What the examples share: arrays of torch (any device) or numpy, float64 references' errors, and a small command line.

    python examples/softmax.py                    # the device that is there; torch where installed, else numpy
    python examples/softmax.py --device cpu --numpy
    tilewright matrix examples/softmax.py         # every target: devices, simulators, and compilers where there is neither
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.testing import Case


def has_torch() -> bool:
    try:
        import torch  # noqa: F401
    except ImportError:
        return False
    return True


def default_device() -> str:
    """"cuda" where torch sees a GPU (of either vendor), else "cpu"."""
    if os.environ.get("TILEWRIGHT_INTERPRET") == "1" or not has_torch():
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def random(shape: Sequence[int], dtype: str, device: str, seed: int, use_numpy: bool = False, scale: float = 1.0) -> Any:
    """Normal values times ``scale``, of ``dtype`` ("float32", "float16", "bfloat16"), as a torch tensor or numpy array."""
    values = np.random.default_rng(seed).standard_normal(tuple(shape)) * scale
    if use_numpy:
        return values.astype(dtype)
    import torch

    return torch.from_numpy(values).to(device=device, dtype=getattr(torch, dtype))


def poisoned(shape: Sequence[int], like: Any) -> Any:
    """An output array of like's kind and dtype, full of NaN, so that an element nobody writes is seen."""
    if isinstance(like, np.ndarray):
        return np.full(tuple(shape), np.nan, like.dtype)
    return like.new_full(tuple(shape), float("nan"))


def f64(x: Any) -> np.ndarray:
    """The values as a float64 numpy array."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x.detach().double().cpu().numpy()


def rounded(x: np.ndarray, like: Any) -> np.ndarray:
    """float64 values rounded to like's dtype and back."""
    if isinstance(like, np.ndarray):
        return x.astype(like.dtype).astype(np.float64)
    import torch

    return torch.from_numpy(x).to(like.dtype).double().numpy()


def error(out: Any, ref: np.ndarray) -> float:
    """‖out − ref‖ / ‖ref‖ in float64. NaN (an element not written, say) stays NaN."""
    return float(np.linalg.norm(f64(out) - ref) / max(float(np.linalg.norm(ref)), 1e-300))


def sample(cases: Callable[[str, bool], Iterable[Case]], device: str, *words: str) -> Iterator[Case]:
    """Those of the cases whose names have one of ``words``: few enough for simulators. On numpy arrays where there is no torch."""
    return (case for case in cases(device, not has_torch()) if any(w in case.name for w in words))


def main(cases: Callable[[str, bool], Iterable[Case]]) -> None:
    """Run ``cases(device, use_numpy)``; print each case's ``error`` and bound; exit with 1 where a bound is broken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default=None)
    parser.add_argument("--numpy", action="store_true", help="numpy arrays instead of torch tensors (cpu)")
    args = parser.parse_args()
    use_numpy = args.numpy or not has_torch()
    device = args.device or ("cpu" if use_numpy else default_device())
    failed = 0
    for case in cases(device, use_numpy):
        err = error(case.run(), case.reference())
        good = err <= case.tolerance
        failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {case.name:<60} error {err:.2e} (bound {case.tolerance:.1e})")
    raise SystemExit(1 if failed else 0)
