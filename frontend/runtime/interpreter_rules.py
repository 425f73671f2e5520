"""What rewritten kernels call (see interpreter_rewrite): the language's rules for Python's syntax, applied to the interpreter's values.

The rules themselves are the code generator's (compiler/rules.py, compiler/python_functions.py).
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.compiler import names
from tilewright.compiler.python_functions import PythonFunctions
from tilewright.compiler.rules import (
    BINARY,
    COMPARE,
    is_constexpr_annotation,
    is_static,
    same_static,
    static_value,
    type_text,
    wrap,
)
from tilewright.dialects.errors import CompileTimeAssertionFailure, TypeMismatchError, UnsupportedLanguageConstruct
from tilewright.language import core
from tilewright.language.const import constexpr
from tilewright.language.values import base_value, current_semantic, tensor
from tilewright.language.values import tuple as tl_tuple
from tilewright.runtime.interpreter_branches import PLAIN, Fork
from tilewright.runtime.interpreter_memory import InterpreterError

Variables = dict[str, Any]  # by name; the class below has a method "dict"
_PATIENCE = 1000  # rounds of a loop before its states are compared
_WAITS = ("this loop would go round for ever: neither memory nor a variable changes any more. Programs are interpreted one after another, so that "
          "none may wait for a later one (compiled kernels may not either: targets start programs in any order)")


class Rules(PythonFunctions):
    """One object for all kernels. What is half evaluated (operands of ``and``, say) lies on a stack of the thread's builder."""

    slice = builtins.slice

    @property
    def semantic(self) -> Any:  # type: ignore[override]
        return current_semantic()

    def operation(self, method: str, python: Callable[[Any, Any], Any], lhs: Any, rhs: Any) -> Any:
        return python(lhs, rhs)  # the tensors' own operators, which observers are told of

    def call(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        return fn(*args, **kwargs)

    def part(self, value: Any, name: str) -> Any:
        """``value.name``; the handle of a tensor too, for debuggers."""
        return value.handle if name == "handle" and isinstance(value, tensor) else self.attribute(None, value, name)

    # -- calls -----------------------------------------------------------------------------------------------------
    def python(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Call what has the name of one of Python's functions."""
        special = self.python_functions.get(fn) if getattr(type(fn), "__hash__", None) else None
        if fn is print and self.semantic.builder.trying:
            return None
        if special is None or fn is print and "hex" not in kwargs and not any(isinstance(v, tensor) for v in args):  # Python's prints tell whoever debugs a kernel
            return fn(*args, **kwargs)
        return special(self, *args, **kwargs)

    def manager(self, fn: Any) -> Any:
        """What is called in a ``with``."""
        if not getattr(static_value(fn), "__triton_builtin__", False):
            raise UnsupportedLanguageConstruct(names.WITH_WHAT)
        return fn

    def variable(self, fn: Any) -> Any:
        """What a variable of the function's holds, which is called."""
        held = static_value(fn)
        if not callable(held):
            raise TypeMismatchError(f"{held!r} cannot be called{f'; convert with x.to({held})' if isinstance(held, core.dtype) else ''}")
        return fn

    def callee(self, fn: Any) -> Any:
        """A function of a module, called as compiled kernels call it."""
        fn = self.interpreted(fn)
        if core.is_builtin(fn) or names.is_jit(fn) or fn is print:
            return fn
        return lambda *args, **kwargs: self.call_python(fn, list(args), kwargs)

    interpreted: Callable[[Any], Any]

    # -- displays --------------------------------------------------------------------------------------------------
    def tuple(self, *values: Any) -> Any:
        return tl_tuple([wrap(v) for v in values])

    def several(self, value: Any, count: int | None) -> Any:
        """What is assigned to several names, ``count`` of them where that is known."""
        items = value if isinstance(value, tl_tuple) else self.static_iterable(value, "an assignment to several names")
        if count is not None and len(items) != count:
            raise TypeMismatchError(f"{len(items)} values are assigned to {count} names")
        return items

    def star(self, value: Any) -> list[Any]:
        return self.static_iterable(value, "*")

    def dict(self, *items: Any) -> Any:
        if not all(map(is_static, items)):
            raise TypeMismatchError(names.STATIC_DICT)
        values = [static_value(v) for v in items]
        return constexpr(builtins.dict(zip(values[::2], values[1::2])))

    def text(self, value: Any) -> Any:
        """A value in an f-string."""
        return static_value(value) if is_static(value) else str(value)

    def unrolled(self, value: Any) -> list[Any]:
        """What a comprehension runs over."""
        if isinstance(value, core.static_range):
            return [constexpr(i) for i in value]
        if isinstance(value, core.range):
            bounds = (value.start, value.end, value.step)
            if not all(map(is_static, bounds)):
                raise UnsupportedLanguageConstruct(names.STATIC_ITEMS)
            return [constexpr(i) for i in builtins.range(*(static_value(b) for b in bounds))]
        return self.static_iterable(value, "for")

    def decided(self, value: Any) -> bool:
        """The ``if`` of a comprehension."""
        if isinstance(value, tensor):
            raise UnsupportedLanguageConstruct(names.STATIC_FILTER)
        return bool(static_value(value))

    # -- choices ---------------------------------------------------------------------------------------------------
    def truth(self, value: Any) -> bool:
        """A condition. Of a scalar it is the value itself that is asked, which tells where it is a whole tile's (see NumpyBuilder.region_op)."""
        if isinstance(value, core.condition):
            value = value.condition
        if not isinstance(value, tensor):
            return bool(static_value(value))
        if value.type.is_block():
            value = self.test(None, value)
        return bool(self.number(value))

    def fork(self, value: Any, names: Sequence[str], loose: Sequence[str], site: int) -> Any:
        """The condition of an ``if``, both of whose branches are looked at once (interpreter_branches). ``names``: what it assigns; ``loose``: those of
        them that loops in it assign. ``site``: a number that no other ``if`` has."""
        found = self.truth(value)
        branches = self.semantic.builder.branches
        if site in branches or not isinstance(value, tensor) or sys.gettrace() is not None:
            return PLAIN[found]
        branches.add(site)
        return Fork(self, found, names, loose, sys._getframe(1).f_locals)

    def assign_attribute(self, instance: Any, name: str, value: Any, allowed: bool) -> None:
        if not self.semantic.builder.trying:
            super().assign_attribute(instance, name, value, allowed)

    def number(self, value: tensor) -> bool | int | float:
        """What a run-time scalar is: for control flow, not for the functions of the language, which may not ask."""
        return self.semantic.builder.value_of(value.handle)  # type: ignore[no-any-return]

    @property
    def pending(self) -> list[Any]:
        return self.semantic.builder.pending  # type: ignore[no-any-return]

    def choice(self, value: Any) -> bool:
        """The condition of ``a if … else b``."""
        found = self.truth(value)
        self.pending.append(isinstance(value, tensor))
        return found

    def chosen(self, value: Any) -> Any:
        return self.to_tensor(value) if self.pending.pop() else value

    def pick(self, test: Any, body: Callable[[], Any], other: Callable[[], Any]) -> Any:
        """``a if … else b`` where neither has effects: both types are looked at, as in compiled kernels."""
        found = self.truth(test)
        if not isinstance(test, tensor):
            return body() if found else other()
        values = body(), other()
        a, b = map(self.to_tensor, values)
        if not (is_static(values[0]) and is_static(values[1]) and same_static(*values) or self.alike(a, b)):
            raise self.unlike(*map(wrap, values))
        return a if found else b

    def begin(self, is_and: bool) -> bool:
        """The first of ``and`` or ``or``; ``step`` follows for each operand, and tells Python whether to go on."""
        self.pending.append((is_and, []))
        return is_and

    def step(self, value: Any) -> bool:
        is_and, values = self.pending[-1]
        values.append(value)
        return self.ends_early(is_and, value) != is_and

    def end(self, _: Any) -> Any:
        return self.combined(None, *self.pending.pop())

    def chain(self, value: Any) -> bool:
        """The first operand of a chained comparison; ``link`` follows for each other one."""
        self.pending.append([value, None])
        return True

    def link(self, kind: str, rhs: Any) -> bool:
        state = self.pending[-1]
        one = self.compare(None, getattr(ast, kind), state[0], rhs)
        state[:] = rhs, one if state[1] is None else self.both(None, state[1], one)
        return isinstance(state[1], tensor) or bool(static_value(state[1]))

    def chained(self, _: Any) -> Any:
        return self.pending.pop()[1]

    # -- assignments -----------------------------------------------------------------------------------------------
    def annotated(self, annotation: Any, value: Any) -> Any:
        return self.compile_time(value) if is_constexpr_annotation(annotation) else self.run_time(value)

    def declared(self, annotation: Any) -> None:
        if is_constexpr_annotation(annotation):
            raise UnsupportedLanguageConstruct(names.NEEDS_VALUE)

    def back(self, instance: Any, name: str, made: Any, allowed: bool) -> None:
        """``instance.name`` holds ``made`` after an item of it was assigned."""
        if getattr(instance, name) is not made:
            self.assign_attribute(instance, name, made, allowed)

    def asserted(self, test: Any, message: Any = "") -> None:
        message = static_value(message)
        if isinstance(test, tensor) and self.semantic.builder.trying:
            return
        if not isinstance(test, tensor):
            if not static_value(test):
                raise CompileTimeAssertionFailure(f"assert does not hold{': ' + str(message) if message else ''}")
        elif not np.all(test.handle.data):
            raise AssertionError(str(message))

    # -- loops -----------------------------------------------------------------------------------------------------
    def iterate(self, value: Any, one_name: bool = True, changed: Sequence[str] = ()) -> Iterator[Any]:
        """The items of a ``for``: of a range, run-time integers of the type in which compiled loops count. ``changed``: variables that the body
        assigns, which keep their types."""
        raw = value.value if type(value) is constexpr else value
        if isinstance(raw, builtins.range):
            raw = core.range(raw.start, raw.stop, raw.step)
        if not isinstance(raw, core.range) or isinstance(raw, core.static_range):
            yield from self.unrolled(raw if isinstance(raw, core.range) else value)
            return
        if not one_name:
            raise UnsupportedLanguageConstruct(names.ONE_COUNTER)
        start, end, step, down, counter = self.range_bounds(raw)
        size = int(self.number(step))
        if self.semantic.builder.trying:  # once, whatever the bounds are
            before = self.carried({}, sys._getframe(1).f_locals, changed) if changed else None
            yield tensor(self.semantic.builder.constant(0, counter), counter)
            if before:
                self.carried(before, sys._getframe(1).f_locals, changed)
            return
        if size <= 0:
            raise InterpreterError(f"the step of a loop, known at run time, is positive, and this one is {size}; compiled kernels go round no more")
        make, wrapped = self.semantic.builder.constant, 1 << counter.int_bitwidth
        low, high = counter.get_int_min_value(), counter.get_int_max_value()
        first, last = (self._in(int(self.number(b)), low, high, wrapped) for b in (start, end))
        before = self.carried({}, sys._getframe(1).f_locals, changed) if changed else None
        for i in builtins.range(first, last, -size if down else size):
            yield tensor(make(i, counter), counter)
            if before:
                self.carried(before, sys._getframe(1).f_locals, changed)

    def carried(self, before: Variables, variables: Variables, changed: Sequence[str]) -> Variables:
        """The variables that a loop carries, as they are before it; where it has gone round, an error unless they have the same types."""
        if not before:
            return {name: self.to_tensor(variables[name]) for name in changed if name in variables}
        for name, old in before.items():
            new = variables.get(name, old)
            if new is not old and isinstance(old, base_value) and not is_static(old) and not self.alike(old, self.to_tensor(new)):
                raise TypeMismatchError(f"{name} is {type_text(old)} before the loop and {type_text(wrap(new))} after an iteration of it; a variable "
                                        "that a loop changes keeps its type")
        return before

    @staticmethod
    def _in(value: int, low: int, high: int, size: int) -> int:
        """A bound as the counter's type holds it."""
        return value if low <= value <= high else (value - low) % size + low

    def again(self, value: Any, fixed: bool, spin: Any, changed: Sequence[str]) -> bool:
        """The condition of a ``while``. ``fixed``: nothing in the body changes it, nor leaves the loop. ``spin``: the state of the loop's
        watch, one object a loop. ``changed``: as of ``iterate``."""
        found = self.truth(value)
        if changed:
            spin.before = self.carried(spin.before, sys._getframe(1).f_locals, changed)
        if not found and not (self.semantic.builder.trying and spin.rounds == 0 and isinstance(value, tensor)):
            spin.rounds = 0
            return False
        if fixed and not isinstance(value, tensor) and not (isinstance(value, core.condition) and isinstance(value.condition, tensor)):
            raise UnsupportedLanguageConstruct(names.NEVER_ENDS)
        spin.rounds += 1
        if self.semantic.builder.trying and spin.rounds > 1:
            spin.rounds = 0
            return False
        if spin.rounds > _PATIENCE:
            spin.watch(sys._getframe(1).f_locals, self.semantic.builder.memory)
        return True


class Spin:
    """Finds a loop that goes round with nothing changing: a program that waits for another. Programs are deterministic, so that a state that
    comes again comes for ever. A state is the function's variables and the memory; it is compared with one kept earlier, and those that are
    kept lie ever further apart (Brent's way), which finds cycles of any length."""

    def __init__(self) -> None:
        self.rounds = 0
        self.before: dict[str, Any] = {}
        self.kept: Any = None
        self.next = 0

    def watch(self, variables: dict[str, Any], memory: Any) -> None:
        state = {name: v for name, v in variables.items() if v is not self}
        if not memory.watched or self.kept is None or self.rounds == _PATIENCE + 1:
            memory.watched, self.next = True, 0
        elif self.kept[0] == memory.changes and _same_state(self.kept[1], state):
            raise InterpreterError(_WAITS)
        if self.rounds >= self.next:
            self.kept, self.next = (memory.changes, state), 2 * self.rounds


def _same_state(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(_same(v, b[name]) for name, v in a.items())


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tensor):
        return bool(a.type == b.type) and a.handle.data.tobytes() == b.handle.data.tobytes()
    if hasattr(a, "parts"):
        return len(a.parts) == len(b.parts) and all(map(_same, a.parts, b.parts))
    a, b = static_value(a), static_value(b)
    return isinstance(a, (bool, int, float, str)) and type(a) is type(b) and repr(a) == repr(b)


def _install_operators() -> None:
    def binary(kind: type, python: Callable[[Any, Any], Any]) -> Callable[[Rules, Any, Any], Any]:
        def run(self: Rules, lhs: Any, rhs: Any) -> Any:
            if lhs.__class__ is tensor and rhs.__class__ is tensor:  # the usual case, first
                return python(lhs, rhs)
            return self.binary(None, kind, lhs, rhs)

        return run

    def compare(kind: type) -> Callable[[Rules, Any, Any], Any]:
        return lambda self, lhs, rhs: self.compare(None, kind, lhs, rhs)

    def unary(kind: type) -> Callable[[Rules, Any], Any]:
        return lambda self, value: self.unary(None, kind, value)

    for kind, (_, method, python) in BINARY.items():
        if method:
            setattr(Rules, kind.__name__, binary(kind, python))
        else:
            setattr(Rules, kind.__name__, lambda self, lhs, rhs, kind=kind: self.binary(None, kind, lhs, rhs))
    for kind in (*COMPARE, ast.Is, ast.IsNot, ast.In, ast.NotIn):
        setattr(Rules, kind.__name__, compare(kind))
    for kind in (ast.Not, ast.USub, ast.UAdd, ast.Invert):
        setattr(Rules, kind.__name__, unary(kind))


_install_operators()
RULES = Rules()

__all__ = ["RULES", "Rules", "Spin"]
