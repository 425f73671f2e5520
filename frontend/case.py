"""What a team's file says to ``tilewright matrix``: cases that run its kernels, each with a float64 reference and a bound.

    from tilewright.testing import Case

    def tilewright_cases(device):
        for n in (1, 97, 1025):
            x = torch.randn(n, device=device)
            yield Case(f"scale n={n}", run=lambda x=x: scale(x), reference=lambda x=x: 2 * x.double(), tolerance=1e-6)
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

CASES = "tilewright_cases"  # the function's name in the file
_OWN = frozenset({"tilewright", "numpy", "torch"})  # their own scratch arrays are left as they are


def float64(x: Any) -> Any:
    """An array of torch or numpy, or a number, as a numpy array of float64; of complex128 where it is complex."""
    import numpy as np

    if hasattr(x, "detach"):
        x = x.detach().cpu().resolve_conj().resolve_neg()
        x = (x.cdouble() if x.is_complex() else x.double()).numpy()
    array = np.asarray(x)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _pairs(out: Any, reference: Any) -> list[tuple[Any, Any]]:
    outs, references = ([*v] if isinstance(v, (tuple, list)) else [v] for v in (out, reference))
    for what, values in (("case", outs), ("reference", references)):  # as numbers they are NaN, and NaN beside NaN is right
        if any(v is None for v in values):
            raise ValueError(f"the {what} returns None; it has to return the array, or a tuple of arrays")
    if len(outs) != len(references):
        raise ValueError(f"the case returns {len(outs)} arrays, its reference {len(references)}")
    return [(float64(o), float64(r)) for o, r in zip(outs, references)]


def max_error(out: Any, reference: Any) -> float:
    """max |out − reference| / max |reference|, the largest of all outputs; NaN where an element is NaN and its reference is not.

    Equal infinities, and NaN where the reference has NaN, are no error. Where the reference is 0 everywhere the difference counts as it is.
    Raises ValueError where shapes or numbers of outputs differ, or None is among them.
    """
    import numpy as np

    worst = 0.0
    for o, r in _pairs(out, reference):
        if o.shape != r.shape:
            raise ValueError(f"the case returns an array of shape {o.shape}, its reference one of {r.shape}")
        if not o.size:
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            difference = np.where((o == r) | (np.isnan(o) & np.isnan(r)), 0.0, np.abs(o - r))
            finite = np.abs(r[np.isfinite(r)])
        scale = float(finite.max(initial=0.0)) or 1.0
        error = float(np.max(difference)) / scale  # max of what has a NaN is NaN
        if error != error:
            return error
        worst = max(worst, error)
    return worst


@dataclass(frozen=True)
class Case:
    """One thing to run on every target.

    run(): launches, and returns the output: an array (torch or numpy), or a tuple of them; it allocates them, so that what a kernel leaves
    unwritten is seen (``poisoned_memory``). reference(): the same in float64, from the same inputs. tolerance: the largest error that is right.
    measure(output, reference): the error, ``max_error`` unless another is given (a norm, say).
    """

    name: str
    run: Callable[[], Any]
    reference: Callable[[], Any]
    tolerance: float
    measure: Callable[[Any, Any], float] = max_error


def _poison(array: Any) -> Any:
    """Fill an array: NaN, the largest integer, True; fp8 the bytes that are NaN in most of its formats."""
    if hasattr(array, "is_floating_point"):
        import torch

        if array.is_complex() or (array.is_floating_point() and array.element_size() > 1):
            return array.fill_(float("nan"))
        if array.is_floating_point():
            array.view(torch.uint8).fill_(0x80 if "fnuz" in str(array.dtype) else 0xFF)
            return array
        return array.fill_(True if array.dtype == torch.bool else torch.iinfo(array.dtype).max)
    kind = array.dtype.kind
    if kind in "fc":
        array.fill(float("nan"))
    elif kind in "iub":
        array.fill(True if kind == "b" else 2 ** (8 * array.dtype.itemsize - (kind == "i")) - 1)
    return array


@contextlib.contextmanager
def poisoned_memory() -> Iterator[None]:
    """While this lasts, ``empty``, ``empty_like``, … of numpy and torch (where it is loaded) give arrays full of NaN to all but these
    packages themselves, so that an element which no kernel writes cannot pass for a result."""
    import numpy as np

    places: list[tuple[Any, str]] = [(np, "empty"), (np, "empty_like")]
    torch = sys.modules.get("torch")
    if torch is not None:
        places += [(torch, "empty"), (torch, "empty_like"), (torch, "empty_strided"), (torch.Tensor, "new_empty")]
    saved = [(owner, name, getattr(owner, name)) for owner, name in places]

    def poisoning(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            array = make(*args, **kwargs)
            caller = sys._getframe(1).f_globals.get("__name__", "")
            return array if caller.partition(".")[0] in _OWN else _poison(array)

        return made

    for owner, name, make in saved:
        setattr(owner, name, poisoning(make))
    try:
        yield
    finally:
        for owner, name, make in saved:
            setattr(owner, name, make)
