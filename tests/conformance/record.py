"""What the kernels of a test use of the language: names with element types, run by run, and what became of each run.

The plugin opens a ``Recorder`` around a test; the harness starts a run in it for every kernel and marks those that the target refuses.
Without a recorder nothing is recorded.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tilewright.language as tl
from tilewright.language.block_pointer import block_pointer
from tilewright.language.watch import observe

# functions whose other arguments (offsets, masks, indices, accumulators) say nothing of the type that they work on
_FIRST = {"load", "store", "gather", "histogram", "dot", "sort", "topk", "broadcast_to", "reshape", "expand_dims", "multiple_of", "max_contiguous", "max_constancy"}
_SKIP_FIRST = {"where"}


def element_types(value: Any) -> Iterator[str]:
    """The names of the element types of an argument: of tensors, pointers (what they point to), types, and tuples of such."""
    if isinstance(value, tl.tensor):
        scalar = value.dtype
        while scalar.is_ptr() or scalar.is_block():
            scalar = scalar.element_ty if scalar.is_ptr() else scalar.scalar
        yield str(scalar)
    elif isinstance(value, tl.tensor_descriptor):
        yield str(value.dtype)
    elif isinstance(value, block_pointer):
        yield from element_types(value.base)
    elif isinstance(value, tl.dtype):
        yield str(value.scalar)
    elif isinstance(value, (list, tuple, tl.tuple)):
        for v in value:
            yield from element_types(v)


class Recorder:
    """Runs in order; each ``{"uses": {name: set of types}, "outcome": "passed" | "refused", "reason": text}``."""

    current: Recorder | None = None

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self.depth = 0

    def __enter__(self) -> Recorder:
        self.before = Recorder.current
        Recorder.current = self
        observe(self.observe)
        return self

    def __exit__(self, *exc: Any) -> None:
        Recorder.current = self.before
        observe(self.before.observe if self.before else None)

    def start(self) -> None:
        """What is seen from now on belongs to a new run."""
        self.runs.append({"uses": {}, "outcome": "passed", "reason": ""})

    def drop(self) -> None:
        """Forget the last run: it will be made again in pieces."""
        self.runs.pop()

    def refuse(self, reason: str) -> None:
        """The target said that it cannot run the last run's kernel."""
        self.runs[-1].update(outcome="refused", reason=reason)

    def note(self, name: str, types: Iterator[str] | tuple[str, ...] = ()) -> None:
        if not self.runs:
            self.start()
        self.runs[-1]["uses"].setdefault(name, set()).update(types)

    def observe(self, name: str, args: Any, kwargs: Any, call: Callable[[], Any]) -> Any:
        """A call of the language. Calls that another one makes belong to that and are not noted."""
        if self.depth:
            return call()
        self.depth += 1
        try:
            result = call()
        finally:
            self.depth -= 1
        if name.startswith("operator ") and any(isinstance(a, tl.tensor) and a.dtype.is_ptr() for a in args):
            self.note(name, ("pointers",))
            return result
        short = name.rpartition(".")[2]
        relevant = args[:1] if short in _FIRST or short.startswith("atomic_") else args[1:] if short in _SKIP_FIRST else (*args, *kwargs.values())
        types = tuple(element_types(relevant)) or tuple(element_types(result))
        self.note(name, types)
        for keyword in kwargs:
            self.note(f"{name}({keyword}=)", types)
        return result


@functools.cache
def named_in(source: str) -> frozenset[str]:
    """Names of a text of kernels that are no calls of functions: ``tl.static_range``, types and constants, and attributes (".shape")."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "tl":
                value = getattr(tl, node.attr, None)
                if isinstance(value, (type, tl.dtype)) or not getattr(value, "__triton_builtin__", False):
                    found.add(node.attr)
            elif not (isinstance(node.value, ast.Name) and node.value.id in ("triton", "libdevice")):
                found.add("." + node.attr)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == "tl":
            # loops are written with calls that are no calls of functions
            found.update(f"{node.func.attr}({k.arg}=)" for k in node.keywords if k.arg and node.func.attr in ("range", "static_range", "condition"))
    return frozenset(found)


def note_source(source: str) -> None:
    """The running test has made kernels of that text."""
    recorder = Recorder.current
    if recorder is not None:
        for name in named_in(source):
            recorder.note(name)


def start(kernel: Any) -> None:
    """A run of ``kernel`` starts, where a test is recorded."""
    if Recorder.current is not None:
        Recorder.current.start()
        source = getattr(kernel, "module_source", None)
        if source:
            note_source(source)
