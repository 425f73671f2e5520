"""The one MLIR context of the process, and the lock around everything that touches MLIR.

Two threads that load ``ext`` dialects at once crash the process, and ``pm.run`` holds the GIL, so nothing is gained
by more than one context (design, section 3). Use::

    with mlir_context() as ctx:          # takes the lock, enters the context and an unknown location
        module = ir.Module.parse(text)

A target's own dialects are loaded when its plugin is: ``ensure_dialects(*dialects)``.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

MLIR_LOCK = threading.RLock()
_context: Any = None
_loaded: set[str] = set()


def _get_context() -> Any:
    global _context
    if _context is None:
        from tilewright.dialects._mlir import ir

        _context = ir.Context()
        _context.enable_multithreading(False)
    return _context


def _name_module(namespace: str) -> None:
    """Let the bindings find a Python module of the dialect. They look for one whenever they hand out a type, attribute or op
    of it, and a search of the path that finds nothing takes 40 µs each time (a found one: 0.3 µs)."""
    from tilewright.dialects._mlir import ext

    name = f"{ext.__name__.rpartition('.')[0]}.{namespace}"
    sys.modules.setdefault(name, types.ModuleType(name, "Stands for a dialect declared by Tilewright."))


def ensure_dialects(*dialects: Any) -> None:
    """Load each ``ext.Dialect`` into the current context unless one of that name is loaded already."""
    for dialect in dialects:
        if dialect.DIALECT_NAMESPACE not in _loaded:
            dialect.load()
            _name_module(dialect.DIALECT_NAMESPACE)
            _loaded.add(dialect.DIALECT_NAMESPACE)


def loaded_namespaces() -> frozenset[str]:
    """Namespaces of the ext dialects loaded so far."""
    return frozenset(_loaded)


@contextlib.contextmanager
def mlir_context() -> Iterator[Any]:
    """Hold the lock, with the process's context (tt and ttg loaded) and an unknown location current."""
    with MLIR_LOCK:
        ctx = _get_context()
        from tilewright.dialects._mlir import ir

        with ctx, ir.Location.unknown():
            from tilewright.dialects import tt, ttg

            ensure_dialects(tt.TT, ttg.TTG)
            yield ctx
