"""Settings in groups: what an environment variable says, until a program assigns another value.

The frontend's groups (``tilewright.knobs``) and the targets' own (``TargetPlugin.knobs``) are made of these. A setting is read at each
use. Its variable ``NAME`` is looked for as ``TILEWRIGHT_NAME``, then as Triton spells it. Assigning keeps the value in the group and
hands it to child processes through the environment (unless ``propagate`` is off); ``reset()`` and the end of ``scope()`` undo both.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.dialects.errors import ArgumentError

TRUE = ("1", "true", "yes", "on", "y", "t")
FALSE = ("0", "false", "no", "off", "n", "f")
propagate = True  # whether an assignment is put into the environment
listeners: list[Callable[[], object]] = []  # called when a setting that code may depend on has been given another value


class FromEnvironment:
    """Assigned to a setting: what the environment says counts again."""

    def __repr__(self) -> str:
        return "env"


env = FromEnvironment()


def variable(*names: str) -> str | None:
    """The value of the first of these environment variables that is set and not empty."""
    return _found(names)[1]


def _found(names: Sequence[str]) -> tuple[str, str | None]:
    """Name and value of the first of these environment variables that is set and not empty; the last name and None where none is."""
    name = ""
    for name in names:
        value = os.environ.get(name)
        if value:
            return name, value
    return name, None


def from_variable(names: Sequence[str], read: Callable[[str], Any], default: Any = None) -> Any:
    """What the first of these variables that is set says. ``read`` raises ValueError, saying what is allowed; that becomes an ArgumentError which
    names the variable."""
    name, value = _found(names)
    if value is None:
        return default
    try:
        return read(value)
    except ValueError as error:
        raise ArgumentError(f"the environment variable {name} {error}; found {value!r}") from None


def truth(text: str) -> bool:
    """On or off, as in variables. Raises ValueError for anything else: it would count as off, unseen."""
    if text.lower() not in TRUE + FALSE:
        raise ValueError(f"is on ({', '.join(TRUE[:4])}) or off ({', '.join(FALSE[:4])})")
    return text.lower() in TRUE


def count(text: str) -> int:
    """A number of at least 1, as in variables. Raises ValueError."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ValueError("is an integer of 1 or more")
    return number


class SettingWithoutEffectWarning(UserWarning):
    """A setting of Triton's was set that has no meaning here; the text says why and what does the job."""


class Setting:
    """One setting of a ``Group``: a data descriptor.

    name: of the variable, without prefix ("CACHE_DIR" is TILEWRIGHT_CACHE_DIR and TRITON_CACHE_DIR). spelt: Triton's whole name where it has
    no TRITON_ before it. read: from the variable's text to the value; write: back, for child processes. default: a value, or a
    function that makes it. check: raises ArgumentError for a value that cannot be. code: whether code made under another value is other
    code. without_effect: why setting it changes nothing; said once.
    """

    def __init__(self, name: str, read: Callable[[str], Any], default: Any, *, spelt: str = "", write: Callable[[Any], str] = str,
                 check: Callable[[Any], Any] | None = None, code: bool = False, without_effect: str = ""):
        self.variables = (f"TILEWRIGHT_{name}", spelt or f"TRITON_{name}")
        self.read, self.write, self.default, self.check = read, write, default, check
        self.code, self.without_effect = code, without_effect

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        if obj is None:
            return self
        if self.name in obj._assigned:
            return obj._assigned[self.name]
        if variable(*self.variables) is None:
            return self.default() if callable(self.default) else self.default
        return from_variable(self.variables, self.read)

    def __set__(self, obj: Any, value: Any) -> None:
        if value is env:
            self.__delete__(obj)
            return
        if self.check is not None and value is not None:
            try:
                self.check(value)
            except ValueError as error:
                raise ArgumentError(f"the setting {self.name} {error}; found {value!r} ({type(value).__name__})") from None
        before = obj._assigned.get(self.name, env)
        obj._assigned[self.name] = value
        if self.without_effect:
            obj._tell(self)
        if propagate:
            obj._export(self, None if value is None else self.write(value))
        if value != before:
            obj._changed()

    def __delete__(self, obj: Any) -> None:
        if obj._assigned.pop(self.name, self) is not self:
            obj._withdraw(self)
            obj._changed()

    def given(self, obj: Any) -> bool:
        """Whether it was assigned or stands in the environment."""
        return self.name in obj._assigned or variable(*self.variables) is not None


def _is_flag(value: Any) -> None:
    if not isinstance(value, bool) and value not in (0, 1):
        raise ValueError("is on or off: set it to True or False")


def _is_text(value: Any) -> None:
    if not isinstance(value, str) and not hasattr(value, "__fspath__"):
        raise ValueError("is a text")


def _is_number(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("is an integer")


def _is_class(value: Any) -> None:
    if not isinstance(value, type):
        raise ValueError("is a class")


def flag(name: str, default: bool | None = False, **kw: Any) -> Any:
    """On or off: 1, true, yes, on, y, t in any case are on."""
    return Setting(name, truth, default, write=lambda value: "1" if value else "0", check=_is_flag, **kw)


def text(name: str, default: Any = None, **kw: Any) -> Any:
    """A text such as a path."""
    return Setting(name, str, default, **{"check": _is_text, **kw})


def choice(name: str, allowed: Sequence[str], default: Any = None, **kw: Any) -> Any:
    """One of a few words."""

    def read(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"is one of {', '.join(allowed)}")
        return value

    return Setting(name, read, default, check=read, **kw)


def number(name: str, default: int, **kw: Any) -> Any:
    """An integer."""

    def read(value: str) -> int:
        try:
            return int(value)
        except ValueError:
            raise ValueError("is an integer") from None

    return Setting(name, read, default, check=_is_number, **kw)


def named_class(name: str, **kw: Any) -> Any:
    """A class: assigned as it is, in the environment as "package.module:Class"; None where it is not set."""

    def read(value: str) -> Any:
        import importlib

        module, _, attribute = value.partition(":")
        try:
            found = getattr(importlib.import_module(module), attribute) if attribute else None
        except (ImportError, AttributeError, ValueError) as error:
            raise ValueError(f"names a class as package.module:Class ({error})") from None
        if not isinstance(found, type):
            raise ValueError("names a class as package.module:Class")
        return found

    return Setting(name, read, None, check=_is_class, write=lambda value: f"{value.__module__}:{value.__qualname__}", **kw)


class Group:
    """Settings under one name, with what else is assigned to it (hooks). ``of_code``: whether code depends on some of them."""

    of_code = True
    _assigned: dict[str, Any]
    _exported: dict[str, tuple[str | None, str | None]]
    _told: set[str]

    def __init__(self, **plain: Any) -> None:
        """``plain``: what else may be assigned, such as hooks, with its value."""
        # _exported: variable → (its value before, the value put there)
        self.__dict__.update(_assigned={}, _exported={}, _told=set(), **plain)

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(type(self), name) and name not in self.__dict__:
            raise ArgumentError(f"there is no setting {name!r} here; there are {', '.join([*self.settings(), *self._plain()])}")
        object.__setattr__(self, name, value)

    @classmethod
    def settings(cls) -> dict[str, Setting]:
        """The group's settings by name."""
        return {n: s for c in reversed(cls.__mro__) for n, s in vars(c).items() if isinstance(s, Setting)}

    def _plain(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if not k.startswith("_")}

    @property
    def knobs(self) -> dict[str, Any]:
        """All settings of the group with their values."""
        return {n: getattr(self, n) for n in self.settings()}

    @property
    def knob_descriptors(self) -> dict[str, Setting]:
        """Triton's name of ``settings()``."""
        return self.settings()

    def given(self, name: str) -> bool:
        """Whether a setting was assigned or stands in the environment."""
        return self.settings()[name].given(self)

    def reset(self) -> Group:
        """Undo all assignments to settings; returns the group."""
        for setting in self.settings().values():
            setting.__delete__(self)
        self._assigned.clear()
        return self

    def copy(self) -> Group:
        """A group of its own with the same assignments; what is assigned to it stays out of the environment only by ``scope``."""
        other = self._new()
        other._assigned.update(self._assigned)
        other.__dict__.update(self._plain())
        return other

    def _new(self) -> Group:
        return type(self)()

    @contextlib.contextmanager
    def scope(self) -> Iterator[Group]:
        """Assignments made inside, to settings and hooks, end with it, as do changes of the settings' variables."""
        before, plain, exported = dict(self._assigned), self._plain(), dict(self._exported)
        names = [v for s in self.settings().values() for v in s.variables]
        variables = {v: os.environ.get(v) for v in names}
        try:
            yield self
        finally:
            changed = before != self._assigned or variables != {v: os.environ.get(v) for v in names}
            for store, old in ((self._assigned, before), (self._exported, exported)):
                store.clear()
                store.update(old)
            self.__dict__.update(plain)
            for name, value in variables.items():
                _put(name, value)
            if changed:
                self._changed()

    def _changed(self) -> None:
        for tell in listeners if self.of_code else ():
            tell()

    def code_key(self) -> str:
        """Text of those settings that code depends on, where they are set; part of the cache key."""
        parts = [f"{n}={getattr(self, n)}" for n, s in self.settings().items() if s.code and s.given(self)]
        return ", ".join(parts)

    def tell_without_effect(self) -> None:
        """Warn, once each, of settings in the environment that change nothing here."""
        for name, setting in self.settings().items():
            if setting.without_effect and name not in self._told and variable(*setting.variables) is not None:
                self._tell(setting)

    def _tell(self, setting: Setting) -> None:
        if setting.name not in self._told:
            self._told.add(setting.name)
            warnings.warn(f"{setting.name} ({setting.variables[1]}) has no effect: {setting.without_effect}", SettingWithoutEffectWarning, stacklevel=4)

    def _export(self, setting: Setting, value: str | None) -> None:
        own, triton = setting.variables
        for name in (own, triton) if own in os.environ or own in self._exported else (triton,):
            before = self._exported[name][0] if name in self._exported else os.environ.get(name)
            self._exported[name] = before, value
            _put(name, value)

    def _withdraw(self, setting: Setting) -> None:
        for name in setting.variables:
            before, value = self._exported.pop(name, (None, None))
            if value is not None and os.environ.get(name) == value:  # nobody else has changed it since
                _put(name, before)


def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
