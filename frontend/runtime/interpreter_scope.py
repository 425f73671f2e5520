"""A kernel's Python as the interpreter runs it: the names that it may read, the constructs that it lacks, and the place of its errors.

The same names and constructs are refused as in compiled kernels (compiler/names.py), when they are reached. ``import`` and Python's
``breakpoint`` stay, for debuggers.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import textwrap
import types
from typing import Any

from tilewright import knobs
from tilewright.compiler import names
from tilewright.dialects.errors import (
    CompilationError,
    NameResolutionError,
    TilewrightError,
    UnsupportedLanguageConstruct,
    mistake_of,
)
from tilewright.runtime.interpreter_memory import InterpreterError

_MISSING = object()
_FOR_DEBUGGERS = frozenset({"breakpoint", "__import__"})
_ALLOWED = ("Import", "ImportFrom")


class Scope(dict[str, Any]):
    """The globals of a function that is interpreted: reads of them in kernels are checked. Frames are known as the user's by it."""

    def __init__(self, values: dict[str, Any], own: dict[str, Any]):
        super().__init__(values)
        for name, value in own.items():
            self.setdefault(name, value)
        self.own = own

    def __getitem__(self, name: str) -> Any:  # for LOAD_GLOBAL: Python asks where globals are no plain dict
        value = self.get(name, _MISSING)
        if value is _MISSING:
            if hasattr(builtins, name) and name not in names.BUILTIN_NAMES and name not in _FOR_DEBUGGERS:
                raise NameResolutionError(f"{name} is not defined: Python's {name} is not part of the language")
            raise KeyError(name)
        return checked(name, value, self.own)


def checked(name: str, value: Any, own: dict[str, Any]) -> Any:
    """``value``, where a kernel may read a global of that name and value; else raises."""
    if own.get(name) is value or names.may_be_read(name, value) or knobs.compilation.allow_non_constexpr_globals:
        return value
    if name in _FOR_DEBUGGERS and value is getattr(builtins, name):
        return value
    raise names.refused_global(name, value)


# ------------------------------------------------------------------------------------------------------------ constructs
def _lacks(node: ast.AST) -> str | None:
    """Why the language does not have this very node."""
    kind = type(node).__name__
    if kind in names.WHY_NOT and kind not in _ALLOWED:
        return names.LACKS + names.WHY_NOT[kind]
    if isinstance(node, (ast.For, ast.While)) and node.orelse:
        return names.no_else(node)
    if isinstance(node, ast.While) and any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test)):
        return names.NO_WALRUS
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult):
        return names.NO_MATMUL
    if isinstance(node, ast.Call) and any(k.arg is None for k in node.keywords):
        return f"{names.LACKS}** in calls"
    if isinstance(node, ast.Dict) and None in node.keys:
        return f"{names.LACKS}** in dictionaries"
    if isinstance(node, ast.Delete) and not all(isinstance(t, ast.Name) for t in node.targets):
        return "del takes names"
    return None


class _Refuse(ast.NodeTransformer):
    """Puts in place of each statement with such a node one that raises, so that it is refused when it is reached."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def generic_visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.stmt):
            inner = [node] if _lacks(node) else self._expressions(node)
            for found in inner:
                reason = _lacks(found)
                if reason:
                    self.reasons.append(reason)
                    call = ast.Call(ast.Name("_tw_refuse", ast.Load()), [ast.Constant(reason)], [])
                    refusal: ast.stmt = ast.Expr(call)
                    if isinstance(node, ast.Return):  # what follows a return is never reached, nor seen
                        refusal = ast.Return(call)
                    for made in ast.walk(refusal):
                        if isinstance(made, (ast.stmt, ast.expr)):
                            ast.copy_location(made, found)
                    return refusal
        return super().generic_visit(node)

    @staticmethod
    def _expressions(statement: ast.stmt) -> list[ast.AST]:
        """The expressions of a statement, without those of statements in it."""
        found: list[ast.AST] = []
        ahead = [n for n in ast.iter_child_nodes(statement) if not isinstance(n, ast.stmt)]
        while ahead:
            node = ahead.pop(0)
            found.append(node)
            ahead += [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.stmt)]
        return found


def refuse(reason: str) -> None:
    raise UnsupportedLanguageConstruct(reason)


def code_of(fn: Any) -> types.CodeType:
    """The code of ``fn``; where it has constructs that the language lacks, with refusals in their places. Without a source: as it is."""
    code: types.CodeType = fn.__code__
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        return code
    text = "".join(lines)
    indent = len(text) - len(text.lstrip(" "))
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:  # a lambda in the middle of a statement
        return code
    node = tree.body[0]
    if not isinstance(node, ast.FunctionDef):
        return code
    transformer = _Refuse()
    node.body = [transformer.visit(s) for s in node.body]
    if not transformer.reasons:
        return code
    node.decorator_list = []
    body: list[ast.stmt] = [node]
    if code.co_freevars:  # they are cells only within a function that has them
        holder = ast.parse(f"def _tw_holder({', '.join(code.co_freevars)}): pass").body[0]
        assert isinstance(holder, ast.FunctionDef)
        holder.body = [node]
        body = [holder]
    tree.body = body
    for inner in ast.walk(tree):
        if hasattr(inner, "col_offset"):
            inner.col_offset += indent  # type: ignore[attr-defined]
            inner.end_col_offset += indent  # type: ignore[attr-defined]
    ast.increment_lineno(tree, first - 1)
    return _inside(compile(tree, code.co_filename, "exec"), fn.__name__) or code


def _inside(code: types.CodeType, name: str) -> types.CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found = constant if constant.co_name == name else _inside(constant, name)
            if found is not None:
                return found
    return None


# ---------------------------------------------------------------------------------------------------------------- places
def placed(error: Exception) -> Exception | None:
    """The error to raise in place of one that left a kernel: with the user's line, and of the class that a compiled kernel gives. None:
    raise it as it is (it has its place, or comes from a debugger)."""
    if type(error).__module__ == "bdb" or isinstance(error, CompilationError) and error.file:
        return None
    frames = []
    trace = error.__traceback__
    while trace is not None:
        if isinstance(trace.tb_frame.f_globals, Scope):
            frames.append(trace)
        trace = trace.tb_next
    if not frames:
        return None
    if isinstance(error, TilewrightError) and not isinstance(error, (CompilationError, InterpreterError)):
        return None
    told: Any = error if isinstance(error, TilewrightError) else mistake_of(error)
    if isinstance(error, AssertionError):  # Python's assert, which is device_assert's short form
        told = InterpreterError(f"assert does not hold{': ' + str(error) if str(error) else ''}")
    file, line, column = _place(frames[-1])
    out = told.at(file, line, column)
    out.calls += [(f, n, _line(f, n)) for f, n, _ in map(_place, reversed(frames[:-1]))]
    return out.with_traceback(error.__traceback__)  # type: ignore[no-any-return]


def _place(trace: types.TracebackType) -> tuple[str, int, int]:
    code = trace.tb_frame.f_code
    line, column = trace.tb_lineno, 0
    if hasattr(code, "co_positions"):
        at = next(itertools.islice(code.co_positions(), trace.tb_lasti // 2, None), (None,) * 4)
        line, column = at[0] or line, at[2] or 0
    return code.co_filename, line, column


def _line(file: str, number: int) -> str:
    import linecache

    return linecache.getline(file, number).strip()

