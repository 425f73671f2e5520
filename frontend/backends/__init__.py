"""Targets under Triton's name: ``backends`` maps a target's name to an object with ``compiler`` and ``driver``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


class Backend:
    """One target: ``compiler(target)`` gives a Backend of ``compiler.compiler``, ``driver`` is the class of its drivers."""

    def __init__(self, name: str):
        self.name = name

    def compiler(self, target: Any) -> Any:
        from tilewright.compiler.compiler import make_backend

        return make_backend(target)

    @property
    def driver(self) -> Any:
        """The class of the target's drivers: called, it makes one; ``driver.active`` is an instance of it where that is this target's."""
        if self.name not in _driver_classes:
            _driver_classes[self.name] = _driver_class(self.name)
        return _driver_classes[self.name]


_driver_classes: dict[str, type] = {}


def _driver_class(name: str) -> type:
    from tilewright.runtime.driver import ActiveDriver
    from tilewright.targets import registry

    class OfOneTarget(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, ActiveDriver) and instance.selection.plugin.name == name

    class TargetDriver(ActiveDriver, metaclass=OfOneTarget):
        def __init__(self) -> None:
            super().__init__(registry.select(name))

    return TargetDriver


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
    if name == "BaseBackend":
        from tilewright.compiler.compiler import Backend as BaseBackend

        return BaseBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
