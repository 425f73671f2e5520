"""``tl.extra``: the math library ``libdevice`` and the functions of dependent launches, also under the names of targets, as in Triton.

``tl.extra.TARGET.libdevice`` is the one portable module for every TARGET that is installed (by name or alias), so a kernel
that names one target's library compiles for all.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any


def _is_target(name: str) -> bool:
    from tilewright.targets import registry

    return any(name == p.name or name in p.aliases for p in registry.plugins())


class _Loader(importlib.abc.Loader):
    """Gives the module that exists already, whatever name was asked for."""

    def __init__(self, real: str):
        self.real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(self.real)
        self.facts = (module.__spec__, module.__loader__)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__, module.__loader__ = self.facts


class _Finder(importlib.abc.MetaPathFinder):
    """``extra.TARGET`` is this package, ``extra.TARGET.libdevice`` its libdevice."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(__name__ + "."):
            return None
        parts = fullname[len(__name__) + 1:].split(".")
        if parts == ["libdevice"] or not _is_target(parts[0]) or parts[1:] not in ([], ["libdevice"]):
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(".".join([__name__, *parts[1:]])), is_package=len(parts) == 1)


sys.meta_path.insert(0, _Finder())  # before the finder of files, which would load libdevice a second time


_LAUNCHES = ("gdc_launch_dependents", "gdc_wait")


def __getattr__(name: str) -> Any:
    if name == "libdevice":
        return importlib.import_module(f"{__name__}.libdevice")
    if name in _LAUNCHES:
        return getattr(importlib.import_module(f"{__name__}.dependent_launch"), name)
    if not name.startswith("_") and _is_target(name):
        return sys.modules[__name__]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has libdevice, {', '.join(_LAUNCHES)}, also under the name of each target")
