"""Targets under Triton's name: ``backends`` maps a target's name to an object with ``compiler`` and ``driver``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Backend:
    """One target: ``compiler(target)`` gives a Backend of ``compiler.compiler``, ``driver()`` its ActiveDriver."""

    def __init__(self, name: str):
        self.name = name

    def compiler(self, target: Any) -> Any:
        from tilewright.compiler.compiler import make_backend

        return make_backend(target)

    def driver(self) -> Any:
        from tilewright.runtime.driver import ActiveDriver
        from tilewright.targets import registry

        return ActiveDriver(registry.select(self.name))


class _Backends(Mapping[str, Backend]):
    def __getitem__(self, name: str) -> Backend:
        from tilewright.targets import registry

        if name not in registry.names():
            raise KeyError(name)
        return Backend(name)

    def __iter__(self) -> Iterator[str]:
        from tilewright.targets import registry

        return iter(registry.names())

    def __len__(self) -> int:
        from tilewright.targets import registry

        return len(registry.names())


backends = _Backends()


def __getattr__(name: str) -> Any:
    if name == "compiler":
        import importlib

        return importlib.import_module(f"{__name__}.compiler")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
