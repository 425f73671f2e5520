"""What the parts of the code generator share: frames, names, places in the source, and values in pieces."""

from __future__ import annotations

import ast
import builtins
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright import knobs
from tilewright.compiler import names
from tilewright.compiler.mlir_builder import MLIRBuilder
from tilewright.compiler.rules import ValueRules, is_static, same_static, static_value, type_text, wrap
from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import CompilationError, NameResolutionError, TilewrightError, mistake_of
from tilewright.language.semantic import Semantic
from tilewright.language.values import base_value, tensor

_MISSING = object()


class Function:
    """What is read once of a jit function: its tree, its parameters and where it stands."""

    def __init__(self, fn: Any):
        self.src = fn.src
        tree = fn.parse()
        self.node: ast.FunctionDef = tree.body[0]
        self.name = fn.__name__
        self.file = getattr(fn, "file", None) or fn.fn.__code__.co_filename
        first = getattr(fn, "def_line", None) or fn.starting_line_number
        self.line_offset = first - 1
        self.indent = getattr(fn, "indent", 0)
        self.signature = inspect.signature(fn.fn)
        args = self.node.args
        self.constexpr_params = {a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs)
                                 if a.annotation is not None and "constexpr" in ast.unparse(a.annotation)}
        self.param_names = list(self.signature.parameters)


_functions: weakref.WeakKeyDictionary[Any, Function] = weakref.WeakKeyDictionary()


def function_of(fn: Any) -> Function:
    """The Function of a jit function, cached while its source stays."""
    found = _functions.get(fn.fn)
    if found is None or found.src != fn.src:
        found = _functions[fn.fn] = Function(fn)
    return found


class Frame:
    """One call of a function that is being inlined (or the kernel itself)."""

    __slots__ = ("fn", "info", "scope", "globals", "nonlocals", "callsite", "locations", "ret", "loop", "start", "enclosing")

    def __init__(self, fn: Any, info: Function, scope: dict[str, Any], callsite: Any, nonlocals: dict[str, Any] | None = None):
        self.fn = fn
        self.info = info
        self.scope = scope
        self.globals = fn.fn.__globals__
        self.callsite = callsite
        self.locations: dict[int, Any] = {}
        self.ret: Any = None
        self.start: Any = None  # the block in which the function's body begins
        self.enclosing: Any = None  # (Lambda, its parameters' values), where this is a lambda's call
        self.loop: Loop | None = None  # the innermost one around the current statement whose body holds jumps
        if nonlocals is None:
            nonlocals = {}
            code = fn.fn.__code__
            for name, cell in zip(code.co_freevars, fn.fn.__closure__ or ()):
                try:
                    nonlocals[name] = cell.cell_contents
                except ValueError:  # not assigned yet
                    continue
        self.nonlocals = nonlocals


class Loop:
    """A loop with jumps. ``carried``: the variables of before it that its body assigns (None: all that the body assigns live on).
    ``unset``: names that hold no value of the user's on some path, because that path skips their assignment."""

    def __init__(self, carried: set[str] | None, function: bool = False):
        self.carried = carried
        self.function = function  # no loop, but the rest of a function: what skips something in it has returned
        self.unset: set[str] = set()


class Undefined:
    """A name that has no value on every path; using it is an error that says why."""

    def __init__(self, reason: str):
        self.reason = reason


class Lambda:
    """A lambda of the kernel: inlined where it is called."""

    def __init__(self, node: ast.Lambda, frame: Frame):
        self.node, self.frame = node, frame
        self.scope = dict(frame.scope)


class Bind(ast.stmt):
    """Stands for ``target = value`` in an unrolled loop, the value being known already."""

    def __init__(self, target: ast.expr, value: Any):
        self.target, self.value = target, value
        self.lineno, self.col_offset = target.lineno, target.col_offset


class Returning(ast.stmt):
    """A statement that holds a return, together with the statements that follow it in the function."""

    def __init__(self, statement: Any, rest: Sequence[ast.stmt]):
        self.statement, self.rest = statement, list(rest)
        self.lineno, self.col_offset = statement.lineno, statement.col_offset


class Jumping(Returning):
    """An ``if`` in a loop's body that holds a jump, together with the statements that follow it in the body."""


def is_jit(value: Any) -> bool:
    """A jit function, by its interface."""
    return hasattr(value, "parse") and hasattr(value, "fn") and hasattr(value, "src")


# -- pieces of values --------------------------------------------------------------------------------------------------
def flatten(value: Any, out: list[tensor]) -> list[tensor]:
    """The tensors in a value, in order."""
    if isinstance(value, tensor):
        out.append(value)
    elif isinstance(value, base_value):
        for v in value.parts:
            flatten(v, out)
    return out


def rebuild(template: Any, tensors: Iterator[tensor]) -> Any:
    """``template`` with its tensors replaced in order."""
    if isinstance(template, tensor):
        return next(tensors)
    if isinstance(template, base_value):
        return template.with_parts([rebuild(v, tensors) for v in template.parts])
    return template


# -- static facts about trees ------------------------------------------------------------------------------------------
def _names(target: ast.AST, out: set[str]) -> None:
    if isinstance(target, ast.Name):
        out.add(target.id)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for t in target.elts:
            _names(t, out)
    elif isinstance(target, (ast.Starred, ast.Subscript)):
        _names(target.value, out)


def assigned(nodes: Sequence[ast.AST]) -> set[str]:
    """Names that statements may assign, those of nested statements included. Cached on the statements."""
    out: set[str] = set()
    for node in nodes:
        found = getattr(node, "_tw_assigned", None)
        if found is None:
            found = set()
            if isinstance(node, ast.Assign):
                for t in node.targets:
                    _names(t, found)
            elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For, ast.NamedExpr, Bind)):
                _names(node.target, found)
            elif isinstance(node, ast.With):
                for item in node.items:
                    if item.optional_vars is not None:
                        _names(item.optional_vars, found)
            for field in ("body", "orelse"):
                inner = getattr(node, field, None)
                if isinstance(inner, list):
                    found |= assigned(inner)
            for child in ast.walk(node):
                if isinstance(child, ast.NamedExpr):
                    _names(child.target, found)
            node._tw_assigned = found  # type: ignore[attr-defined]
        out |= found
    return out


def has_return(node: ast.AST) -> bool:
    """Whether a statement holds a return. Cached on it."""
    found = getattr(node, "_tw_returns", None)
    if found is None:
        found = isinstance(node, ast.Return) or any(
            has_return(s) for field in ("body", "orelse") for s in (getattr(node, field, None) or []) if isinstance(s, ast.stmt))
        node._tw_returns = found  # type: ignore[attr-defined]
    return found




class GeneratorBase(ValueRules):
    """State, places and names; see CodeGenerator."""

    builtin_names: dict[str, Any] = {}
    dispatch: dict[type, Callable[[Any, Any], Any]] = {}

    def __init__(self, builder: MLIRBuilder):
        self.builder = builder
        self.semantic = Semantic(builder)
        self.frames: list[Frame] = []
        self.frame: Frame = None  # type: ignore[assignment]
        self.line = 0  # of the node that ops are made for, in the frame's source

    # -- places ----------------------------------------------------------------------------------------------------
    def at(self, node: Any) -> None:
        """Ops made from now on come from ``node``."""
        frame = self.frame
        self.line = node.lineno
        key = node.lineno << 12 | node.col_offset
        location = frame.locations.get(key)
        if location is None:
            info = frame.info
            location = ir.Location.file(info.file, info.line_offset + node.lineno, info.indent + node.col_offset + 1)
            if frame.callsite is not None:
                location = ir.Location.callsite(location, [frame.callsite])
            frame.locations[key] = location
        self.builder.loc = location

    def place(self, error: CompilationError, node: Any) -> CompilationError:
        """The error with the place of ``node``."""
        info = self.frame.info
        line = info.line_offset + getattr(node, "lineno", 1)
        placed = error.at(info.file, line, info.indent + getattr(node, "col_offset", 0))
        if not placed.source_line:  # a file that is no more: quote the source that was read
            lines = info.src.splitlines()
            number = getattr(node, "lineno", 1) - 1
            if number < len(lines):
                placed = type(error)(error.message, info.file, line, getattr(node, "col_offset", 0), lines[number])
        return placed

    def visit(self, node: Any) -> Any:
        """Generate one node. Errors get its place, the innermost one."""
        handler = self.dispatch.get(node.__class__)
        frame = self.frame
        try:
            if handler is None:
                return self.unsupported(node)
            return handler(self, node)
        except CompilationError as error:
            if error.file:
                raise
            self.frame = frame
            raise self.place(error, node) from error.__cause__
        except TilewrightError:
            raise
        except RecursionError:
            raise
        except Exception as error:
            self.frame = frame
            raise self.place(mistake_of(error), node) from error

    def unsupported(self, node: Any) -> Any:
        raise NotImplementedError

    # -- names -----------------------------------------------------------------------------------------------------
    def lookup(self, name: str) -> Any:
        frame = self.frame
        value = frame.scope.get(name, _MISSING)
        if value is not _MISSING:
            if value.__class__ is Undefined:
                raise NameResolutionError(f"{name} {value.reason}")
            return value
        value = frame.nonlocals.get(name, _MISSING)
        if value is _MISSING:
            value = frame.globals.get(name, _MISSING)
        if value is not _MISSING:
            return self._global(name, value)
        if name in self.builtin_names:
            return self.builtin_names[name]
        raise NameResolutionError(f"{name} is not defined{self._suggestion(name)}")

    def _suggestion(self, name: str) -> str:
        import difflib

        near = difflib.get_close_matches(name, [*self.frame.scope, *self.frame.globals], 1)
        if hasattr(builtins, name):
            return f": Python's {name} is not part of the language"
        return f"; did you mean {near[0]}?" if near else ""

    def _global(self, name: str, value: Any) -> Any:
        if name in self.builtin_names and value is getattr(builtins, name, None):
            return self.builtin_names[name]
        if names.may_be_read(name, value) or isinstance(value, Undefined):
            return value
        if knobs.compilation.allow_non_constexpr_globals:
            return wrap(value)
        raise names.refused_global(name, value)


__all__ = ["Bind", "Frame", "Function", "GeneratorBase", "Jumping", "Lambda", "Loop", "Returning", "Undefined", "assigned", "flatten", "function_of",
           "has_return", "is_jit", "is_static", "rebuild", "same_static", "static_value", "type_text", "wrap"]
