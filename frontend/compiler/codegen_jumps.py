"""break, continue, and return where the flow of control is known at run time only, as structured control flow.

What a jump leaves behind is held in names of the scope that no variable can have, so that branches merge them like variables:
``SKIP`` (the rest of this loop's body is skipped), ``STOP`` (the loop ends), ``RETURNED`` and ``VALUE`` (the function has returned, and
what). They are compile-time booleans until a run-time branch makes them int1. Statements after a branch that may have jumped go into
the branch that goes on or, where both may go on, into an ``scf.if`` of their own. A loop that may be left becomes an ``scf.while`` with
``STOP`` in its condition; one with ``continue`` alone stays an ``scf.for``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tilewright.compiler.codegen_base import (
    Bind,
    Jumping,
    Loop,
    Returning,
    Undefined,
    assigned,
    flatten,
    rebuild,
    type_text,
)
from tilewright.compiler.codegen_control import ControlGenerator, StaticTest
from tilewright.dialects.errors import TypeMismatchError, UnsupportedLanguageConstruct
from tilewright.language import core
from tilewright.language.const import constexpr
from tilewright.language.values import tensor

SKIP, STOP, RETURNED, VALUE, COUNTER = "<skip>", "<stop>", "<returned>", "<value>", "<counter>"
_FLAGS = (SKIP, STOP, RETURNED)
_JUMPS: dict[type, str] = {ast.Break: "break", ast.Continue: "continue", ast.Return: "return"}


def jumps(statements: Sequence[ast.AST]) -> frozenset[str]:
    """Which jumps may leave these statements: a break or continue of a loop inside them does not. Cached on the statements."""
    out: frozenset[str] = frozenset()
    for node in statements:
        found = getattr(node, "_tw_jumps", None)
        if found is None:
            kind = _JUMPS.get(type(node))
            found = frozenset([kind]) if kind else frozenset()
            for field in ("body", "orelse"):
                inner = getattr(node, field, None)
                if isinstance(inner, list):
                    found |= jumps(inner)
            if isinstance(node, (ast.For, ast.While)):
                found &= {"return"}
            node._tw_jumps = found  # type: ignore[attr-defined]
        out |= found
    return out


def falls_through(statements: Sequence[ast.AST]) -> bool:
    """Whether the end of these statements may be reached, as far as their text tells."""
    for s in statements:
        if type(s) in _JUMPS or (isinstance(s, ast.If) and not falls_through(s.body) and not falls_through(s.orelse)):
            return False
    return True


def _is_true(flag: Any) -> bool:
    return not isinstance(flag, tensor) and bool(flag.value)


class JumpGenerator(ControlGenerator):
    """Loops and branches that hold jumps; all others are ControlGenerator's."""

    # -- the flags -------------------------------------------------------------------------------------------------
    def _clear(self) -> None:
        """Here nothing has jumped."""
        scope = self.frame.scope
        for flag in _FLAGS:
            scope[flag] = constexpr(False)
        scope.pop(VALUE, None)

    def nothing_like(self, value: Any) -> Any:
        """A value of the same types for a path on which it is never used."""
        return rebuild(value, iter([self.semantic.constant(0, v.type) for v in flatten(value, [])]))

    @contextmanager
    def _loop(self, node: Any, keeps_all: bool) -> Iterator[None]:
        """Generate a loop whose body holds jumps. ``keeps_all``: what its body assigns lives on after an iteration (unrolled loops)."""
        frame = self.frame
        outer, before = frame.loop, frame.scope
        frame.loop = Loop(None if keeps_all else {n for n in assigned([node]) if n in before and not isinstance(before[n], Undefined)})
        try:
            yield
        finally:
            frame.loop = outer

    def _innermost(self) -> Loop:
        loop = self.frame.loop
        assert loop is not None
        return loop

    def _after(self) -> tuple[Any, Any]:
        """Take what a loop left from the scope: whether the function has returned, and its value."""
        scope = self.frame.scope
        returned, value = scope.pop(RETURNED, constexpr(False)), scope.pop(VALUE, None)
        scope.pop(STOP, None)
        scope.pop(SKIP, None)
        if self.frame.loop is not None:
            self._clear()
        return returned, value

    # -- jumps -----------------------------------------------------------------------------------------------------
    def visit_Break(self, node: ast.Break) -> bool:
        self.frame.scope[SKIP] = self.frame.scope[STOP] = constexpr(True)
        return True

    def visit_Continue(self, node: ast.Continue) -> bool:
        self.frame.scope[SKIP] = constexpr(True)
        return True

    def visit_Return(self, node: ast.Return) -> bool:
        super().visit_Return(node)
        frame = self.frame
        if frame.loop is not None:
            frame.scope[VALUE] = constexpr(None) if frame.ret is None else frame.ret
            frame.ret = None
            for flag in _FLAGS:
                frame.scope[flag] = constexpr(True)
        return True

    def run(self, statements: Sequence[ast.stmt]) -> bool:
        """Run statements in order; True where none of them falls through to what follows (see visit_Jumping for run-time branches)."""
        if self.frame.loop is None:
            return super().run(statements)
        for i, statement in enumerate(statements):
            if not jumps([statement]):
                if self.visit(statement):
                    return True
                continue
            rest = statements[i + 1:]
            if isinstance(statement, ast.If):
                return bool(self.visit(Jumping(statement, rest)))
            self.visit(statement)
            return self._go_on(rest)
        return False

    def _go_on(self, rest: Sequence[ast.stmt]) -> bool:
        """What follows something that may have jumped."""
        skip = self.frame.scope[SKIP]
        if not isinstance(skip, tensor):
            return True if skip.value else self.run(rest)
        if rest:
            self._branches(skip, [partial(self._skipped), partial(self._not_left, partial(self.run, rest))], assigned(rest))
        return _is_true(self.frame.scope[SKIP])

    def _skipped(self) -> None:
        for flag in _FLAGS if self._innermost().function else (SKIP,):
            self.frame.scope[flag] = constexpr(True)

    def _not_left(self, body: Callable[[], Any]) -> None:
        self._clear()
        body()

    def visit_Jumping(self, node: Jumping) -> bool:
        """An ``if`` that holds jumps, and the statements after it."""
        statement, rest = node.statement, node.rest
        condition = self.truth(statement.test)
        sides = [statement.body, statement.orelse]
        if not isinstance(condition, tensor):
            return self.run([*sides[not condition], *rest])
        onward = [falls_through(side) for side in sides]
        apart = bool(all(onward) and rest)
        if not apart:
            sides = [[*side, *rest] if falls else side for side, falls in zip(sides, onward)]
        self._branches(condition, [partial(self.run, side) for side in sides], assigned([statement] if apart else [statement, *rest]))
        return self._go_on(rest) if apart else _is_true(self.frame.scope[SKIP])

    def _branches(self, condition: tensor, sides: Sequence[Callable[[], Any]], names: set[str]) -> None:
        """An scf.if whose sides may jump. A variable that one side does not have, because it jumps, is the other side's after it."""
        frame, location, before = self.frame, self.builder.loc, self.frame.scope
        loop = self._innermost()
        holder = self.holder(2)
        scopes, blocks = [], []
        for region, side in zip(holder.regions, sides):
            frame.scope = dict(before)
            block = self.block(region)
            self.inside(block, side)
            scopes.append(frame.scope)
            blocks.append(block)
        frame.scope = before
        self.builder.loc = location
        gone = [_is_true(scope[SKIP]) for scope in scopes]
        pairs: list[tuple[str, Any, Any]] = []
        for name in [*sorted(names), *_FLAGS, VALUE]:
            values = [scope.get(name) for scope in scopes]
            if values[0] is values[1]:
                if values[0] is not None:
                    before[name] = values[0]
                continue
            lacking = [v is None or isinstance(v, Undefined) for v in values]
            free = name != VALUE and name not in _FLAGS and loop.carried is not None and name not in loop.carried
            if not any(lacking) and free and any(gone) and not self.alike(self.to_tensor(values[0]), self.to_tensor(values[1])):
                lacking = list(gone)  # a local of the body, and this side never gets to its next use
            if all(lacking):
                before[name] = Undefined("is assigned on paths that end a loop's body only; assign it before the `if`")
                continue
            if any(lacking):
                at = lacking.index(True)
                if not gone[at] and name != VALUE:
                    before[name] = Undefined("is assigned on one path of an `if` only, and used after it; assign it before the `if`")
                    continue
                values[at] = self.nothing_like(self.to_tensor(values[1 - at]))
                if name != VALUE:
                    loop.unset.add(name)
            pairs.append((name, values[0], values[1]))
        merged = self.merge(holder, blocks, condition, pairs, _mismatch)
        for (name, _, _), value in zip(pairs, merged):
            before[name] = value

    # -- loops -----------------------------------------------------------------------------------------------------
    def run_body(self, node: Any) -> None:
        """One iteration of a loop's body."""
        if self.frame.loop is not None:
            self._clear()
        self.run(node.body)

    def visit_For(self, node: ast.For) -> bool | None:
        if not jumps(node.body):
            return super().visit_For(node)
        self._leave(*self._jumping_for(node, None))
        return None

    def visit_While(self, node: ast.While) -> None:
        if not jumps(node.body):
            return super().visit_While(node)
        self._leave(*self._jumping_while(node))
        return None

    def _leave(self, returned: Any, value: Any) -> None:
        """After an inner loop: a return in it leaves the outer one too."""
        if self.frame.loop is not None and (isinstance(returned, tensor) or returned.value):
            scope = self.frame.scope
            for flag in _FLAGS:
                scope[flag] = returned
            scope[VALUE] = value

    def _jumping_for(self, node: ast.For, items: Any) -> tuple[Any, Any]:
        self.refuse_else(node)
        items = self.iterable(node.iter) if items is None else items
        self.at(node)
        if not isinstance(items, core.range):
            with self._loop(node, True):
                self._clear()
                self._unrolled_from(node, items, 0)
                self._forget_unset()
            return self._after()
        with self._loop(node, False):
            if jumps(node.body) == {"continue"}:
                self.run_time_for(node, items)
            else:
                self._counted(node, self.loop_bounds(node, items))
        return self._after()

    def _unrolled_from(self, node: ast.For, items: Sequence[Any], first: int) -> None:
        for i in range(first, len(items)):
            self._forget_unset()
            self.assign(node.target, items[i])
            self.frame.scope[SKIP] = constexpr(False)
            self.run(node.body)
            stop = self.frame.scope[STOP]
            if isinstance(stop, tensor):
                if i + 1 < len(items):
                    self.frame.scope[SKIP] = constexpr(False)
                    self._branches(stop, [lambda: None, partial(self._not_left, partial(self._unrolled_from, node, items, i + 1))], assigned([node]))
                return
            if stop.value:
                return

    def _forget_unset(self) -> None:
        """What was not assigned on the paths that skipped it has no value in the next iteration, or after an unrolled loop."""
        loop, scope = self._innermost(), self.frame.scope
        for name in loop.unset:
            scope[name] = Undefined("is assigned on some paths of an unrolled loop's body only; assign it before the loop")
        loop.unset.clear()

    def run_time_for(self, node: ast.For, loop: Any) -> None:
        bounds = self.loop_bounds(node, loop)
        if not bounds[0].type.is_uint64():
            return self.signed_for(node, loop, bounds)
        self._counted(node, bounds)
        if self.frame.loop is not None:
            self._clear()
        else:
            self.frame.scope.pop(STOP)
        return None

    def _counted(self, node: ast.For, bounds: tuple[tensor, tensor, tensor, bool, Any]) -> None:
        """A run-time `for` that may be left, or counts in uint64, as an scf.while."""
        s, scope = self.semantic, self.frame.scope
        start, end, step, down, counter = bounds
        target = node.target.id  # type: ignore[attr-defined]
        if step.const is None or step.const <= 0:  # a step that turns out not to be positive gives no round
            start = s.where(s.greater_than(step, 0), start, end)
        scope[COUNTER] = tensor(start.handle, start.type)

        def test() -> tensor:
            here = self.frame.scope[COUNTER]
            more = s.greater_than(here, end) if down else s.less_than(here, end)
            return s.and_(more, s.not_(self.frame.scope[STOP]))

        def body() -> None:
            here = self.frame.scope[COUNTER]
            self.frame.scope[target] = s.cast(here, counter)
            self.run_body(node)
            following = s.sub(here, step, False) if down else s.add(here, step, False)
            if step.const != 1:  # `end` where the next count would pass the type's limits: the distance is exact as an unsigned number
                unsigned = core.uint64 if start.type.primitive_bitwidth == 64 else core.uint32
                left = s.cast(s.sub(here, end, False) if down else s.sub(end, here, False), unsigned)
                following = s.where(s.greater_than(left, s.cast(step, unsigned)), following, end)
            self.frame.scope[COUNTER] = following

        self._while(node, {target, COUNTER}, test, body, target)
        del scope[COUNTER]

    def _jumping_while(self, node: ast.While) -> tuple[Any, Any]:
        self.refuse_else(node)
        self.at(node)

        def test() -> tensor:
            """The loop's own test, which is not evaluated once the loop was left."""
            stop = self.frame.scope[STOP]
            holder = self.holder(2)
            left, going = (self.block(region) for region in holder.regions)
            value = self.inside(going, partial(self.truth, node.test))
            if not isinstance(value, tensor):
                raise StaticTest(value)
            false = self.semantic.constant(False, value.type)
            return self.merge(holder, [left, going], stop, [("the condition", false, value)], _mismatch)[0]

        def endless() -> tensor:
            return self.semantic.not_(self.frame.scope[STOP])

        before = self.frame.scope
        self.refuse_walrus(node)
        with self._loop(node, False):
            try:
                if isinstance(node.test, ast.Constant):
                    raise StaticTest(bool(node.test.value))
                self._while(node, set(), test, partial(self.run_body, node), None)
            except StaticTest as static:
                self.frame.scope = before
                if static.value:
                    if not jumps(node.body) & {"break", "return"}:
                        raise UnsupportedLanguageConstruct(
                            "this loop never ends: its condition is true while compiling and it holds no break and no return") from None
                    self._while(node, set(), endless, partial(self.run_body, node), None)
                    if "break" not in jumps(node.body):  # only a return leads out of it
                        if VALUE not in self.frame.scope:
                            raise UnsupportedLanguageConstruct("this loop never ends: its return cannot be reached") from None
                        self.frame.scope[RETURNED] = constexpr(True)
        return self._after()

    def _while(self, node: Any, more: set[str], test: Callable[[], tensor], body: Callable[[], Any], counter: str | None) -> None:
        """An scf.while that carries, besides the body's variables, how it was left and what it returns."""
        scope, location = self.frame.scope, self.builder.loc
        names = assigned(node.body) | more | {STOP}
        scope[STOP] = self.semantic.constant(False, core.int1)
        scope.pop(VALUE, None)
        if "return" in jumps(node.body):
            names |= {RETURNED, VALUE}
            scope[RETURNED] = self.semantic.constant(False, core.int1)
        tests: list[tensor] = []
        returns: list[Any] = []

        def condition(block: Any) -> None:
            tests.append(test())

        def iteration(block: Any) -> None:
            given = self.frame.scope.get(VALUE)
            body()
            returns.append(self.frame.scope.get(VALUE))
            if returns[-1] is None and given is not None:
                self.frame.scope[VALUE] = given

        while True:
            live, ends, holder, blocks = self.loop_body(names, set(), [([], condition), ([], iteration)])
            value = returns[-1]
            if value is None or not flatten(value, []) or VALUE in scope:
                break
            holder.erase()  # only now is it known what the function returns, for which the loop needs room
            scope[VALUE] = self.nothing_like(value)
        inits, yields, kept = self.close(live, ends, blocks, 0, counter)
        made = self.while_op(inits, yields, tests[-1], blocks, location)
        holder.erase()
        self.after_loop(live, kept, list(made.results))
        if value is None and RETURNED in scope:
            scope[RETURNED] = constexpr(False)  # the return cannot be reached
        if VALUE not in scope and value is not None:
            scope[VALUE] = value  # known while compiling: None, say

    # -- functions -------------------------------------------------------------------------------------------------
    def visit_Returning(self, node: Returning) -> bool:
        """A statement that holds a return, outside loops that can be left. What follows an `if` becomes part of its branches, so each path
        ends with its own return; what follows a loop, part of a branch on whether the loop has returned."""
        statement, rest, frame = node.statement, node.rest, self.frame
        if isinstance(statement, (ast.For, ast.While)):
            if isinstance(statement, ast.For):
                items = self.iterable(statement.iter)
                if not isinstance(items, core.range) and jumps(statement.body) == {"return"}:
                    self.refuse_else(statement)
                    flat: list[ast.stmt] = []
                    for item in items:
                        flat += [Bind(statement.target, item), *statement.body]
                    return self.run([*flat, *rest])
                returned, value = self._jumping_for(statement, items)
            else:
                returned, value = self._jumping_while(statement)
            value = None if value is None or (type(value) is constexpr and value.value is None) else value
            if not isinstance(returned, tensor):
                if returned.value:
                    frame.ret = value
                    return True
                return self.run(rest)

            def give() -> None:
                frame.ret = value

            return self._returning(returned, [give, partial(self.run, rest)])
        condition = self.truth(statement.test)
        if not isinstance(condition, tensor):
            return self.run([*(statement.body if condition else statement.orelse), *rest])
        sides = [statement.body, statement.orelse]
        if rest and all(map(falls_through, sides)):
            return self._rest_once(condition, sides, rest)
        return self._returning(condition, [partial(self.run, [*side, *rest]) for side in sides])

    def _rest_once(self, condition: tensor, sides: Sequence[Sequence[ast.stmt]], rest: Sequence[ast.stmt]) -> bool:
        """Both sides of an `if` may return and may go on: what follows stands once, under the condition that none has returned, rather
        than in both (many such ifs would double the code each)."""
        frame = self.frame
        frame.loop = Loop(None, function=True)
        self._clear()
        self._branches(condition, [partial(self.run, side) for side in sides], assigned([*sides[0], *sides[1]]))
        self._go_on(rest)
        frame.loop = None
        returned, value = self._after()
        nothing = value is None or (type(value) is constexpr and value.value is None)
        if not nothing and not _is_true(returned):
            raise _mismatch(VALUE, value, None)
        frame.ret = None if nothing else value
        return True

    def _returning(self, condition: tensor, sides: Sequence[Callable[[], Any]]) -> bool:
        """An scf.if that gives the function's result: each side runs to the function's end."""
        frame, location, before = self.frame, self.builder.loc, self.frame.scope
        holder = self.holder(2)
        values, blocks = [], []
        for region, side in zip(holder.regions, sides):
            frame.scope, frame.ret = dict(before), None
            block = self.block(region)
            self.inside(block, side)
            values.append(frame.ret)
            blocks.append(block)
        frame.scope = before
        self.builder.loc = location
        pairs = [] if all(v is None for v in values) else [(VALUE, *values)]
        merged = self.merge(holder, blocks, condition, pairs, _mismatch)
        frame.ret = merged[0] if merged else None
        return True


def _mismatch(name: str, a: Any, b: Any) -> Exception:
    if name == VALUE:
        texts = ["nothing" if v is None or (type(v) is constexpr and v.value is None) else type_text(v) for v in (a, b)]
        return TypeMismatchError(f"the function returns {texts[0]} on one path and {texts[1]} on another; all paths return one type")
    return TypeMismatchError(f"{name} is {type_text(a)} after the then branch of this `if` and {type_text(b)} after the else branch (or before it); "
                             "make the types equal")
