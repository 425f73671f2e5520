"""``tl.extra``: the math library ``libdevice``, also under the names of targets, as in Triton, and what kernels have on one target only.

``tl.extra.TARGET.libdevice`` is the one portable module for every TARGET that is installed (by name or alias), so a kernel
that names one target's library compiles for all. ``tl.extra.TARGET.NAME()`` with a NAME of that target's (TargetPlugin.language) compiles
for it, and is an UnsupportedOnTargetError for others.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from functools import cache
from typing import Any


def _is_target(name: str) -> bool:
    from tilewright.targets import registry

    return any(name == p.name or name in p.aliases for p in registry.plugins())


_MODULES = (["utils"], ["gdc"])  # in which Triton keeps functions of a target; here they are this package's


@cache
def _own(name: str) -> Any:
    """The function of kernels that some target has under that name, or None."""
    from tilewright.dialects.errors import UnsupportedOnTargetError
    from tilewright.language import core
    from tilewright.language.target_info import _target
    from tilewright.targets import registry

    plugin = next((p for p in registry.plugins() if name in p.language), None)
    if plugin is None:
        return None
    function = plugin.language[name]

    def call(_semantic: Any = None) -> Any:
        target = _target()
        if target is None or target.backend not in (plugin.name, *plugin.aliases):
            raise UnsupportedOnTargetError(f"{name} is a function of {plugin.name} alone, and this is compiled for "
                                           f"{target.backend if target is not None else 'the interpreter'}; call it under `if` with the "
                                           "functions of tl.target_info")
        if function.number is not None:
            return core.constexpr(function.number(_semantic.builder.options, target.warp_size))
        assert function.asm is not None
        asm, constraints = function.asm(plugin.resolve_arch(target.arch))
        out = _semantic.inline_asm(asm, constraints, [], [getattr(core, function.result or "int32")], function.pure, 1)
        return out[0] if function.result else None

    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.doc
    return core.builtin(call)


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
        if parts == ["libdevice"] or not _is_target(parts[0]) or parts[1:] not in ([], ["libdevice"], *_MODULES):
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(".".join([__name__, *(p for p in parts[1:] if [p] not in _MODULES)])), is_package=len(parts) == 1)


sys.meta_path.insert(0, _Finder())  # before the finder of files, which would load libdevice a second time


_LAUNCHES = ("gdc_launch_dependents", "gdc_wait")


def __getattr__(name: str) -> Any:
    if name == "libdevice":
        return importlib.import_module(f"{__name__}.libdevice")
    if name in _LAUNCHES:
        return getattr(importlib.import_module(f"{__name__}.dependent_launch"), name)
    if not name.startswith("_") and _is_target(name):
        return sys.modules[__name__]
    if not name.startswith("_") and (function := _own(name)) is not None:
        return function
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has libdevice, also under the name of each target")
