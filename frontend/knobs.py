"""Settings, under Triton's names: ``knobs.cache.dir``, ``knobs.runtime.interpret``, hooks, ….

A setting that is read from the environment is read at each use, under ``TILEWRIGHT_NAME`` first, then ``TRITON_NAME``; one that was
assigned keeps the assigned value until ``reset()``. ``with knobs.compilation.scope(): …`` undoes assignments at its end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

_TRUE = ("1", "true", "yes", "on", "y", "t")


def environment(name: str) -> str | None:
    """The value of TILEWRIGHT_``name``, else of TRITON_``name``; None where both are unset or empty."""
    return os.environ.get(f"TILEWRIGHT_{name}") or os.environ.get(f"TRITON_{name}") or None


class _Setting:
    """A descriptor: an environment variable with a type and a default, that can be assigned."""

    def __init__(self, name: str, read: Callable[[str], Any], default: Any):
        self.env, self.read, self.default = name, read, default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        if obj is None:
            return self
        if self.name in obj._assigned:
            return obj._assigned[self.name]
        text = environment(self.env)
        if text is None:
            return self.default() if callable(self.default) else self.default
        return self.read(text)

    def __set__(self, obj: Any, value: Any) -> None:
        obj._assigned[self.name] = value

    def __delete__(self, obj: Any) -> None:
        obj._assigned.pop(self.name, None)


def _flag(name: str, default: bool | None = False) -> Any:
    return _Setting(name, lambda text: text.lower() in _TRUE, default)


def _text(name: str, default: Any = None) -> Any:
    return _Setting(name, str, default)


class HookChain(list[Callable[..., Any]]):
    """Functions called one after another with the same arguments. False where there is none; a list, whose truth every launch asks for."""

    def __init__(self, reversed: bool = False):
        super().__init__()
        self.reversed = reversed

    @property
    def calls(self) -> list[Callable[..., Any]]:
        return self

    def add(self, function: Callable[..., Any]) -> None:
        if function not in self:
            self.append(function)

    def remove(self, function: Callable[..., Any]) -> None:
        if function in self:
            super().remove(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = None
        for call in self[::-1] if self.reversed else self[:]:
            result = call(*args, **kwargs) or result
        return result


class Knobs:
    """A group of settings."""

    _assigned: dict[str, Any]

    def __init__(self) -> None:
        object.__setattr__(self, "_assigned", {})

    def reset(self) -> Knobs:
        self._assigned.clear()
        return self

    def copy(self) -> Knobs:
        other = type(self)()
        other._assigned.update(self._assigned)
        return other

    @contextlib.contextmanager
    def scope(self) -> Iterator[Knobs]:
        before = dict(self._assigned)
        plain = {k: v for k, v in self.__dict__.items() if k != "_assigned"}
        try:
            yield self
        finally:
            self._assigned.clear()
            self._assigned.update(before)
            for k, v in plain.items():
                setattr(self, k, v)

    @property
    def knobs(self) -> dict[str, Any]:
        """All settings of the group with their values."""
        return {n: getattr(self, n) for n in dir(type(self)) if isinstance(getattr(type(self), n, None), _Setting)}


def _home() -> str:
    return environment("HOME") or os.path.expanduser("~")


class _Cache(Knobs):
    home_dir = _text("HOME", lambda: os.path.expanduser("~"))
    dir = _text("CACHE_DIR", lambda: os.path.join(_home(), ".tilewright", "cache"))
    dump_dir = _text("DUMP_DIR", lambda: os.path.join(_home(), ".tilewright", "dump"))
    override_dir = _text("OVERRIDE_DIR", lambda: os.path.join(_home(), ".tilewright", "override"))


class _Compilation(Knobs):
    always_compile = _flag("ALWAYS_COMPILE")
    dump_ir = _flag("KERNEL_DUMP")
    store_binary_only = _flag("STORE_BINARY_ONLY")

    def __init__(self) -> None:
        super().__init__()
        self.listener: Callable[..., None] | None = None


class _Autotuning(Knobs):
    cache = _flag("CACHE_AUTOTUNING")
    print = _flag("PRINT_AUTOTUNING")


class _Runtime(Knobs):
    interpret = _flag("INTERPRET")
    debug = _flag("DEBUG")

    def __init__(self) -> None:
        super().__init__()
        self.launch_enter_hook = HookChain()
        self.launch_exit_hook = HookChain(reversed=True)
        self.kernel_load_start_hook = HookChain()
        self.kernel_load_end_hook = HookChain(reversed=True)
        self.jit_cache_hook: Callable[..., Any] | None = None
        self.jit_post_compile_hook: Callable[..., Any] | None = None


class _Language(Knobs):
    fp32_default = _text("F32_DEFAULT")
    default_fp_fusion = _flag("DEFAULT_FP_FUSION", None)  # None: as the target has it


cache = _Cache()
compilation = _Compilation()
autotuning = _Autotuning()
runtime = _Runtime()
language = _Language()


class TargetKnobs(Knobs):
    """Settings of one target: whatever is assigned; unknown ones are None."""

    def __init__(self, target: str = ""):
        super().__init__()
        object.__setattr__(self, "_target", target)

    def copy(self) -> TargetKnobs:
        other = TargetKnobs(self._target)
        other._assigned.update(self._assigned)
        return other

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._assigned.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._assigned[name] = value


def __getattr__(name: str) -> Any:
    """``knobs.<target>``: a group for every known target."""
    if name.startswith("_"):
        raise AttributeError(name)
    from tilewright.targets import registry

    if name in registry.names():
        group = globals()[name] = TargetKnobs(name)
        return group
    raise AttributeError(f"no knobs are called {name!r}")
