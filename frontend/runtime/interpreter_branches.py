"""A run-time ``if`` as compiled kernels see it: both branches have a type, whichever is taken.

The first time that an ``if`` is reached in a launch, the branch that is not taken is gone through before the other, without effects: nothing is loaded,
stored, printed or asserted, loops go round once. What it refuses is refused, as by the compiler, which generates both; then its variables are set back, and their
types are compared with those that the other branch leaves. Under a debugger this is left out, so that it shows what really runs.
"""

from __future__ import annotations

import sys
from typing import Any

from tilewright.compiler.rules import is_static, same_static, type_text, wrap
from tilewright.dialects.errors import TypeMismatchError, UnsupportedOnTargetError
from tilewright.runtime.interpreter_memory import InterpreterError

# what values that were never loaded may lead to, and what the interpreter alone cannot do: no mistakes of the branch
_OF_VALUES = (InterpreterError, UnsupportedOnTargetError, ArithmeticError, LookupError, ValueError)


class Plain:
    """An ``if`` that was looked at before, or is decided while compiling."""

    ignored: tuple[Any, ...] = ()
    failed = False

    def __init__(self, taken: bool):
        self.passes = (taken,)

    def ends(self) -> bool:
        return False


PLAIN = (Plain(False), Plain(True))


class Fork:
    """``passes``: the conditions to go through the ``if`` with. ``ends()`` after each says whether variables have to be set back."""

    ignored: tuple[Any, ...] = _OF_VALUES  # exceptions that end the first pass, which then says nothing

    def __init__(self, rules: Any, taken: bool, names: tuple[str, ...], loose: tuple[str, ...], variables: dict[str, Any]):
        self.rules, self.taken, self.names, self.loose = rules, taken, names, loose
        self.builder = rules.semantic.builder
        self.passes = (not taken, taken)
        self.old = {name: variables[name] for name in names if name in variables}
        self.other: dict[str, Any] = {}
        self.trying, self.done, self.failed = True, False, False
        self.gone: frozenset[str] = frozenset()
        self.pending = len(self.builder.pending)
        self.builder.trying += 1

    def ends(self) -> bool:
        variables = sys._getframe(1).f_locals
        found = {name: variables[name] for name in self.names if name in variables}
        if self.trying:
            self.trying, self.ignored, self.other = False, (), found
            self.builder.trying -= 1
            del self.builder.pending[self.pending:]
            return True
        self.done = True
        if self.failed:
            return False
        for name in self.names:
            if name in self.loose and name not in self.old:
                continue
            here, there = found.get(name), self.other.get(name)
            if name in found and name in self.other and here is not there:
                self._compare(name, *((here, there) if self.taken else (there, here)))
        self.gone = frozenset(found.keys() - self.other.keys() - self.old.keys())
        return bool(self.gone)

    def _compare(self, name: str, then: Any, other: Any) -> None:
        then, other = wrap(then), wrap(other)
        if is_static(then) and is_static(other) and same_static(then, other):
            return
        if not self.rules.alike(self.rules.to_tensor(then), self.rules.to_tensor(other)):
            raise TypeMismatchError(f"{name} is {type_text(then)} after the then branch of this `if` and {type_text(other)} after the else branch (or before "
                                    "it); make the types equal")

    def drops(self, name: str) -> bool:
        """Whether a variable that is set back has no value from here on."""
        return name in self.gone if self.done else name not in self.old

    def resets(self, name: str) -> bool:
        return not self.done
