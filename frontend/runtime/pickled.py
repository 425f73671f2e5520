"""How kernels are pickled: by the place where they are found again, as Python's functions are; and what is left of one that has lost its function."""

from __future__ import annotations

import threading
from typing import Any

# what tools may ask of a kernel whose function they took away
_FACTS = ("module", "version", "do_not_specialize", "do_not_specialize_on_alignment", "_debug", "_noinline", "params", "arg_names", "constexprs", "hash", "file",
          "raw_src", "starting_line_number", "def_line", "indent", "_src", "_fn_name", "_repr", "__name__", "__qualname__", "__module__", "__doc__")


def reduced(function: Any) -> Any:
    """What pickles in place of a JITFunction."""
    if function.fn is None:  # a tool has taken the function away, for what it was compiled to is enough where this is sent
        return (_without_function, ({n: v for n, v in function.__dict__.items() if n in _FACTS},))
    return kept_by_name(function)


def kept_by_name(kernel: Any) -> Any:
    """What pickles in place of a decorated kernel: its place, where it is found again. Raises PicklingError where it cannot be found so."""
    import pickle

    module, name = _place_of(kernel)
    try:
        found = _find(module, name)
    except (ImportError, AttributeError):
        found = None
    depth = 0
    while found is not None and found is not kernel:
        found, depth = getattr(found, "fn", None), depth + 1
    if found is None:
        raise pickle.PicklingError(f"{name} is not found as {module}.{name}, and a kernel is pickled by its name; define it in a module, at the top level or in a class")
    return (_find_kernel, (module, name, depth))


def _place_of(kernel: Any) -> tuple[str, str]:
    """Module and qualified name of the function under a kernel's decorators."""
    while hasattr(kernel, "fn"):
        kernel = kernel.fn
    return kernel.__module__, kernel.__qualname__


def _find(module: str, qualname: str) -> Any:
    import importlib

    found: Any = importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _find_kernel(module: str, qualname: str, depth: int) -> Any:
    """The kernel of that name, or what lies so many decorators under it."""
    found = _find(module, qualname)
    for _ in range(depth):
        found = found.fn
    return found


def _without_function(facts: dict[str, Any]) -> Any:
    """A JITFunction that says what it was, and cannot be compiled."""
    from tilewright.runtime.jit import JITFunction

    made = JITFunction.__new__(JITFunction)
    made.__dict__.update(facts, fn=None, kernel=None, used_global_vals={}, pre_run_hooks=[], launch_metadata=None, _hash_lock=threading.RLock(), _tree=None)
    return made
