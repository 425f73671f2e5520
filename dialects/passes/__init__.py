"""The passes that every target shares, by name, and their order.

A target's ``pipeline.py`` says ``Stage("ttir", passes=tt_passes())`` and ``Stage("ttgir", passes=ttg_passes(…))`` and adds
its own. A pass's module is imported when the pass first runs, so that reading a pipeline (for the cache key) costs nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from tilewright.dialects.pipeline import Pass, PassContext

_ROOT = "tilewright.dialects"

# name → "module:function", in the order in which the shared pipeline runs them
SHARED_PASSES: dict[str, str] = {
    "rewrite_tensor_descriptors": f"{_ROOT}.passes.rewrite_tensor_descriptors:run",
    "decompose_dot_scaled": f"{_ROOT}.passes.decompose_dot_scaled:run",
    "canonicalize_tt": f"{_ROOT}.passes.canonicalize_tt:run",
    "unroll_loops": f"{_ROOT}.passes.unroll_loops:run",
    "dce_cse": f"{_ROOT}.passes.dce_cse:run",
    "share_exponentials": f"{_ROOT}.passes.share_exponentials:run",
    "convert_tt_to_ttg": f"{_ROOT}.passes.convert_tt_to_ttg:run",
    "coalesce": f"{_ROOT}.passes.coalesce:run",
    "accelerate_dot": f"{_ROOT}.passes.accelerate_dot:run",
    "remove_layout_conversions": f"{_ROOT}.passes.remove_layout_conversions:run",
    "optimize_dot_operands": f"{_ROOT}.passes.optimize_dot_operands:run",
    "pipeline_loops": f"{_ROOT}.passes.pipeline_loops:run",
    "slice_fma_dots": f"{_ROOT}.passes.slice_fma_dots:run",
    "allocate_shared_memory": f"{_ROOT}.passes.allocate_shared_memory:run",
    "insert_barriers": f"{_ROOT}.passes.insert_barriers:run",
    "lower_to_llvm": f"{_ROOT}.lowering:lower_to_llvm",
}


def _load(where: str) -> Any:
    module, function = where.split(":")
    return getattr(importlib.import_module(module), function)


def lazy_pass(name: str, where: str) -> Pass:
    """A pass whose function ("package.module:function") is imported when it first runs."""

    def run(module: Any, ctx: PassContext) -> None:
        _load(where)(module, ctx)

    return Pass(name, run)


def shared_pass(name: str) -> Pass:
    """The shared pass of that name. Raises KeyError naming those there are."""
    if name not in SHARED_PASSES:
        raise KeyError(f"no shared pass {name!r}; there are {', '.join(SHARED_PASSES)}")
    return lazy_pass(name, SHARED_PASSES[name])


def tt_passes() -> tuple[Pass, ...]:
    """What runs on tt: the "ttir" stage of every target."""
    return tuple(map(shared_pass, ("rewrite_tensor_descriptors", "decompose_dot_scaled", "canonicalize_tt", "unroll_loops", "dce_cse")))


def ttg_passes(target_passes: Sequence[Pass] = ()) -> tuple[Pass, ...]:
    """From tt to ttg that is ready to be lowered: the "ttgir" stage. ``target_passes`` run before pipelining."""
    first = ("convert_tt_to_ttg", "coalesce", "accelerate_dot", "remove_layout_conversions", "optimize_dot_operands")
    last = ("pipeline_loops", "slice_fma_dots", "dce_cse", "allocate_shared_memory", "insert_barriers")
    return (*map(shared_pass, first), *target_passes, *map(shared_pass, last))


def pass_doc(name: str) -> str:
    """What the shared pass does: the first line of its module's docstring, imported for the purpose."""
    module = importlib.import_module(SHARED_PASSES[name].split(":")[0])
    return next(iter((module.__doc__ or "").strip().splitlines()), "")
