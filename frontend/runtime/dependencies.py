"""What a kernel's code depends on besides its arguments: its own source, that of the jit functions it calls, and the globals read.

Names are found in the source by AST: a name or an attribute chain (``module.helper``, ``config.BLOCK``) whose root is a global or a
variable of an enclosing function. Compiler functions (``tl.*``) are covered by the compiler's own version in the cache key.
"""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.language.const import constexpr
from tilewright.language.dtypes import dtype

_PACKAGE = __name__.split(".")[0]


class Use:
    """One value that the code reads: how to read it again, and what it was.

    ``place`` is (dictionary, key) where the value stands in one, for a check that costs 40 ns; None for a closure's variable.
    """

    __slots__ = ("name", "read", "value", "place")

    def __init__(self, name: str, read: Callable[[], Any], value: Any, place: tuple[dict[str, Any], str] | None):
        self.name, self.read, self.value, self.place = name, read, value, place

    def changed(self) -> bool:
        """Whether the name now stands for something else (another object of equal value is no change)."""
        now = self.read()
        if now is self.value:
            return False
        return stable_text(now) != stable_text(self.value)


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"


MISSING = _Missing()


def stable_text(value: Any) -> str:
    """Text of a value that is the same in every process: types by their names, floats exactly, functions by their source."""
    if isinstance(value, constexpr):
        return f"constexpr({stable_text(value.value)})"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(stable_text(v) for v in value)})"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{stable_text(k)}: {stable_text(v)}' for k, v in value.items())})"
    if hasattr(value, "cache_key") and not isinstance(value, type):
        return f"jit({value.cache_key}{' noinline' if getattr(value, 'noinline', None) else ''})"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__} {_class_source(value)}"
    function = getattr(value, "fn", value)
    code = getattr(function, "__code__", None)
    if code is not None:
        import hashlib  # loads OpenSSL: with the first kernel, not with Tilewright

        body = hashlib.sha256(_code_text(code).encode()).hexdigest()
        kept = [*(getattr(function, "__defaults__", None) or ()), *(_contents(cell) for cell in getattr(function, "__closure__", None) or ())]
        kept_text = [stable_text(v) for v in kept if v is None or isinstance(v, (bool, int, float, str, tuple, constexpr, dtype))]
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)} {body} {kept_text}"
    return f"{type(value).__module__}.{type(value).__qualname__}:{value!r}"


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _code_text(code: types.CodeType) -> str:
    consts = [_code_text(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {consts}"


def _class_source(value: type) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return repr(getattr(value, "_fields", ""))


class _Names(ast.NodeVisitor):
    """Dotted chains that are read, in order of first appearance. A chain's links all appear: ``a.b.c`` gives ("a", "b", "c")."""

    def __init__(self) -> None:
        self.chains: dict[tuple[str, ...], None] = {}

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain: list[str] = [node.attr]
        inner = node.value
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            self.chains[(inner.id, *reversed(chain))] = None
        else:
            self.visit(inner)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.chains[(node.id,)] = None


def _of_compiler(value: Any) -> bool:
    """Whether a module, function or class is Tilewright's own. Instances of its classes (constexprs, dtypes) are the user's values."""
    if isinstance(value, types.ModuleType):
        module = value.__name__
    elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)) or "__module__" in getattr(value, "__dict__", ()):
        module = value.__module__
    else:
        return False
    if isinstance(module, str) and module.split(".")[0] == _PACKAGE:
        return not hasattr(value, "cache_key") or module.startswith(f"{_PACKAGE}.language")
    return False


def _closure(fn: Any) -> dict[str, Any]:
    code = getattr(fn, "__code__", None)
    cells = getattr(fn, "__closure__", None)
    return dict(zip(code.co_freevars, cells)) if code is not None and cells else {}


def _reader(fn: Any, root: str, links: tuple[str, ...]) -> Callable[[], Any]:
    cells, globals_ = _closure(fn), fn.__globals__

    def read() -> Any:
        if root in cells:
            try:
                value = cells[root].cell_contents
            except ValueError:
                return MISSING
        else:
            value = globals_.get(root, MISSING)
        for link in links:
            value = getattr(value, link, MISSING)
        return value

    return read


def _member(read: Callable[[], Any], name: str) -> Any:
    return getattr(read(), "members", {}).get(name, MISSING)


def find(fn: Any, tree: ast.AST, parameters: set[str]) -> list[Use]:
    """The uses of ``fn``'s code: jit functions, other functions, and values; modules and the compiler's own names are left out.

    ``tree`` is the parsed definition. Names that only the function's body defines, and builtins, have no entry.
    """
    names = _Names()
    for node in ast.iter_child_nodes(tree):
        names.visit(node)
    uses: dict[str, Use] = {}
    for root, *links in names.chains:
        if root in parameters:
            continue
        read = _reader(fn, root, ())
        value = read()
        taken: list[str] = []
        place = (fn.__globals__, root) if root not in _closure(fn) else None
        # through modules and classes to the first value; further attributes are of the value itself
        while isinstance(value, (types.ModuleType, type)) and links and not _of_compiler(value):
            taken.append(links.pop(0))
            place = (value.__dict__, taken[-1]) if isinstance(value, types.ModuleType) else None
            value = getattr(value, taken[-1], MISSING)
        if value is MISSING or isinstance(value, types.ModuleType) or _of_compiler(value):
            continue
        name = ".".join((root, *taken))
        for member, function in getattr(value, "members", {}).items() if getattr(value, "__triton_aggregate__", False) else ():
            uses.setdefault(f"{name}.{member}", Use(f"{name}.{member}", partial(_member, _reader(fn, root, tuple(taken)), member), function, None))
        if name not in uses:
            uses[name] = Use(name, _reader(fn, root, tuple(taken)), value, place)
    return list(uses.values())
