"""A run-time ``if`` as compiled kernels see it: both branches have a type, whichever is taken.

The first time that an ``if`` is reached in a launch, the branch that is not taken is gone through before the other, without effects: nothing is loaded,
stored, printed or asserted, loops go round once. What it refuses is refused, as by the compiler, which generates both; then its variables are set back, and their
types are compared with those that the other branch leaves. Under a debugger this is left out, so that it shows what really runs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.compiler.rules import is_static, same_static, type_text, wrap
from tilewright.dialects.errors import TypeMismatchError, UnsupportedOnTargetError
from tilewright.runtime.interpreter_memory import InterpreterError

# what values that were never loaded may lead to, and what the interpreter alone cannot do: no mistakes of the branch
_OF_VALUES = (InterpreterError, UnsupportedOnTargetError, ArithmeticError, LookupError, ValueError)


class Plain:
    """An ``if`` that was looked at before, or is decided while compiling: one pass, as Fork has two."""

    ignored: tuple[Any, ...] = ()

    def __init__(self, taken: bool):
        self.passes = (taken,)

    def ends(self) -> bool:
        """Nothing has to be set back."""
        return False


PLAIN = (Plain(False), Plain(True))


class Fork:
    """An ``if`` that is reached for the first time. The rewritten kernel goes through it once for each of ``passes``, the conditions: first with the one that does not
    hold. It sets ``failed`` where an exception of ``ignored`` ends a pass, asks after each ``ends()``, whether variables have to be set back, and of each ``drops`` or
    ``resets``.

    rules: the interpreter's; taken: the condition that holds; names: the variables that the ``if`` assigns, loose: those of them that loops in it assign, which
    are not compared where they are new; variables: the function's, now."""

    ignored: tuple[Any, ...] = _OF_VALUES  # of the first pass, which then says nothing of types

    def __init__(self, rules: Any, taken: bool, names: Sequence[str], loose: Sequence[str], variables: Mapping[str, Any]):
        self.rules, self.taken, self.names, self.loose = rules, taken, names, loose
        self.builder = rules.semantic.builder
        self.passes = (not taken, taken)
        self.old = {name: variables[name] for name in names if name in variables}
        self.other: dict[str, Any] = {}
        self.trying = True  # the first pass
        self.resets = True  # variables are to be what they were before the ``if``
        self.failed = False
        self.gone: frozenset[str] = frozenset()  # after both passes: what only one of them has given a value
        self.pending = len(self.builder.pending)
        self.builder.trying += 1

    def ends(self) -> bool:
        """A pass is over: whether variables have to be set back. Raises TypeMismatchError after the second where the two leave other types in one."""
        variables = sys._getframe(1).f_locals
        found = {name: variables[name] for name in self.names if name in variables}
        if self.trying:
            self.trying, self.ignored, self.other = False, (), found
            self.builder.trying -= 1
            del self.builder.pending[self.pending:]
            return True
        self.resets = False
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
        return name not in self.old if self.resets else name in self.gone
