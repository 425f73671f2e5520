"""``import triton`` gives Tilewright: every ``triton.x`` is the module object of ``tilewright.x``."""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from pathlib import Path

from tilewright.dialects.errors import TilewrightError

ALIAS = "triton"
PACKAGE = __name__.split(".")[0]
_ON_PATH = str(Path(__file__).with_name("as_triton"))  # holds a module called triton that installs Tilewright


class DropInError(TilewrightError, ImportError):
    """The name ``triton`` is taken by another package in this process."""


def _real_name(fullname: str) -> str:
    """tilewright's name of a module: ``triton.language`` → ``tilewright.language``; what Triton keeps for each target apart
    (``language.extra.TARGET.libdevice``) is one module here."""
    parts = [PACKAGE, *fullname.split(".")[1:]]
    if parts[1:3] == ["language", "extra"] and len(parts) > 3:
        from tilewright.targets import registry

        if parts[3] in {n for p in registry.plugins() for n in (p.name, *p.aliases)}:
            del parts[3]
    return ".".join(parts)


class _Loader(importlib.abc.Loader):
    def __init__(self, real: str):
        self.real = real

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = importlib.import_module(self.real)
        self.facts = (module.__spec__, getattr(module, "__loader__", None))
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        # importing gave the module the alias's spec; it keeps its own, which relative imports and reload go by
        module.__spec__, module.__loader__ = self.facts
        # submodules that are there already get their alias now: imported through the finder they would be set as attributes of their
        # package again, over names such as runtime.driver, which is the module's object and not the module
        for name in [n for n in sys.modules if n.startswith(self.real + ".") and "." not in n[len(self.real) + 1:]]:
            sys.modules.setdefault(ALIAS + name[len(PACKAGE):], sys.modules[name])


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None,
                  ) -> importlib.machinery.ModuleSpec | None:
        if fullname != ALIAS and not fullname.startswith(ALIAS + "."):
            return None
        real = _real_name(fullname)
        if real not in sys.modules:
            try:
                found = importlib.util.find_spec(real)
            except ModuleNotFoundError:
                found = None
            if found is None:
                return None
        return importlib.machinery.ModuleSpec(fullname, _Loader(real), is_package=True)


_finder: _Finder | None = None


def install_as_triton() -> None:
    """From now on ``import triton`` and ``import triton.x`` in this process give Tilewright's modules. Calling it again changes nothing.

    Raises DropInError where another ``triton`` is imported already. Child processes inherit it that get this one's ``sys.path``: those of
    ``multiprocessing``, and torch.compile's. Others, started with ``subprocess``, call it themselves.
    """
    global _finder
    here = sys.modules.get(ALIAS)
    if here is not None and here is not sys.modules.get(PACKAGE):
        raise DropInError(f"{ALIAS!r} is imported already from {getattr(here, '__file__', '?')}; call install_as_triton() before anything imports it "
                          "(torch does so when it compiles)")
    if _finder is None:
        _finder = _Finder()
        sys.meta_path.insert(0, _finder)
    if _ON_PATH not in sys.path:
        sys.path.insert(0, _ON_PATH)
    # torch.compile copies users' kernels to modules that import triton alone, with annotations by the classes' own modules
    # (``SCALE: tilewright.language.const.constexpr = …``)
    setattr(builtins, PACKAGE, sys.modules[PACKAGE])
    importlib.import_module(ALIAS)


def uninstall() -> None:
    """Undo ``install_as_triton``."""
    global _finder
    if _finder is not None:
        sys.meta_path.remove(_finder)
        _finder = None
    if _ON_PATH in sys.path:
        sys.path.remove(_ON_PATH)
    for name in [n for n in sys.modules if n == ALIAS or n.startswith(ALIAS + ".")]:
        del sys.modules[name]
