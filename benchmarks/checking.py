"""One run of a case's launches against its float64 reference. On any device that has torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cases import Candidate, Case


def array(shape: Sequence[int], dtype: str, fill: str, device: str = "cuda") -> Any:
    """A tensor: "random" (normal), "nan", or "below N" (integers)."""
    import torch

    kind = getattr(torch, dtype)
    if fill == "random":
        return torch.randn(tuple(shape), device=device, dtype=torch.float32).to(kind)
    if fill == "nan":
        return torch.full(tuple(shape), float("nan"), device=device, dtype=kind)
    return torch.randint(0, int(fill.split()[1]), tuple(shape), device=device, dtype=kind)


def errors(got: Any, ref: Any) -> tuple[float, float]:
    """Relative to the reference: of the whole (Frobenius), and of the worst element against the largest. NaN stays NaN."""
    difference = got.double().sub_(ref)
    return float(difference.norm() / ref.norm()), float(difference.abs().max() / ref.abs().max())


def prepared(case: Case, b: dict[str, Any], candidate: Candidate, framework: Any) -> tuple[Callable[[], Any], list[Any]]:
    """A function that runs the case's launches, and a list that holds the compiled kernels once it has run."""
    launches = case.launches(b, candidate, framework)
    calls = [(framework.kernel(l.file, l.kernel)[l.grid], l.args, l.options) for l in launches]
    kernels: list[Any] = []

    def run() -> None:
        kernels[:] = [call(*args, **options) for call, args, options in calls]

    return run, kernels


def check(case: Case, b: dict[str, Any], run: Callable[[], Any], reference: dict[str, Any], synchronize: Callable[[], Any]) -> tuple[float, str]:
    """(greatest Frobenius error, "" or what is wrong) after one run into outputs full of NaN."""
    for name in case.bounds:
        b[name].fill_(float("nan"))
    run()
    synchronize()
    worst, wrong = 0.0, ""
    for name, bound in case.bounds.items():
        whole, element = errors(b[name], reference[name])
        worst = max(worst, whole) if whole == whole else whole
        if not (whole <= bound and element <= 8 * bound):
            wrong += f" {name}: error {whole:.1e} (bound {bound:.0e}), worst element {element:.1e}"
    return worst, wrong and f"WRONG{wrong}"
