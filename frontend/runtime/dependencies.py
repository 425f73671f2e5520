"""What a kernel's code depends on besides its arguments: its own source, that of the jit functions it calls, and the globals read.

Names are found in the source by AST: a name or an attribute chain (``module.helper``, ``config.BLOCK``) whose root is a global or a
variable of an enclosing function. What runs while compiling (``constexpr_function``s, and the Python functions and classes that they reach) is
followed by its byte code, as far as it is the user's: of the standard library and the large array libraries a function counts by its own code.
Compiler functions (``tl.*``) are covered by the compiler's own version in the cache key.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

from tilewright.language.const import ConstexprFunction, constexpr
from tilewright.language.dtypes import dtype

_PACKAGE = __name__.split(".")[0]
_LIBRARIES = frozenset(sys.stdlib_module_names) - {"__main__"} | {_PACKAGE, "ml_dtypes", "numpy", "torch", "triton"}
_MOST_FUNCTIONS = 500  # of Python that are followed from one jit function

Place = tuple[dict[str, Any], str, Any]  # in a dictionary, under a key, there stands an object


class Use:
    """One value that the code reads: how to read it again, and what it was.

    ``places``: where the value and the modules on the way to it stand, for checks that cost 40 ns each; none where the value has to be read (a closure's variable, a class's
    attribute) or its text made (a list) to see a change. ``text``: that of a value that may change in place, when it was found.
    """

    __slots__ = ("name", "read", "value", "places", "text")

    def __init__(self, name: str, read: Callable[[], Any], value: Any, places: Iterable[Place]):
        self.name, self.read, self.value = name, read, value
        self.text = None if settled(value) else stable_text(value)
        self.places = tuple(places) if self.text is None else ()

    def changed(self) -> bool:
        """Whether the name now stands for something else (another object of equal value is no change)."""
        now = self.read()
        if now is self.value and self.text is None:
            return False
        return stable_text(now) != (stable_text(self.value) if self.text is None else self.text)


class _Missing:
    def __repr__(self) -> str:
        return "<missing>"


MISSING = _Missing()
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, type(...), _Missing, dtype, type, types.BuiltinFunctionType)


def settled(value: Any) -> bool:
    """Whether a value cannot change in place unheard. A constexpr's ``value`` may be assigned, which is heard (``callables``); functions and classes are
    followed by what they use."""
    if isinstance(value, constexpr):
        return settled(value.value)
    function = value.fn if isinstance(value, ConstexprFunction) else value
    if isinstance(function, types.FunctionType):
        return all(map(settled, function.__defaults__ or ())) and all(map(settled, (function.__kwdefaults__ or {}).values()))
    if isinstance(value, (*_PLAIN, Enum)) or hasattr(type(value), "cache_key"):
        return True
    if isinstance(value, (tuple, frozenset)):
        return all(map(settled, value))
    kind = type(value)
    if kind.__module__ == "torch" and kind.__name__ == "dtype" or any(c.__name__ == "generic" and c.__module__ == "numpy" for c in kind.__mro__):
        return True
    parameters = kind.__dict__.get("__dataclass_params__")
    return parameters is not None and parameters.frozen and all(settled(getattr(value, name, None)) for name in value.__dataclass_fields__)


@functools.lru_cache(maxsize=1024)
def is_settled_kind(kind: type) -> bool:
    """Whether equal objects of a class give the same code, whatever happens: dtypes, members of enumerations, the compiler's own."""
    return issubclass(kind, (dtype, Enum)) or kind.__module__ == "torch" and kind.__name__ == "dtype" or kind.__module__.split(".")[0] == _PACKAGE and not issubclass(
        kind, ConstexprFunction)


# ------------------------------------------------------------------------------------------------------------ texts
_KEPT = (bool, int, float, str, bytes, tuple, list, dict, set, frozenset, Enum, constexpr, dtype)


def stable_text(value: Any, inside: tuple[int, ...] = ()) -> str:
    """Text of a value that is the same in every process: types by their names and source, floats exactly, functions by their code and what that reads.
    ``inside``: ids of the values that this is a part of."""
    if id(value) in inside:
        return f"<{len(inside) - inside.index(id(value))} up>"
    kind = type(value)
    if value is None or kind in (bool, int, float, str, dtype):
        return f"{kind.__module__}.{kind.__qualname__}:{value!r}"
    inside = (*inside, id(value))
    if isinstance(value, constexpr):
        return f"constexpr({stable_text(value.value, inside)})"
    if isinstance(value, (tuple, list)):
        return f"{kind.__name__}({', '.join(stable_text(v, inside) for v in value)})"
    if isinstance(value, dict):
        return f"dict({', '.join(f'{stable_text(k, inside)}: {stable_text(v, inside)}' for k, v in value.items())})"
    if isinstance(value, (set, frozenset)):
        return f"{kind.__name__}({', '.join(sorted(stable_text(v, inside) for v in value))})"
    if hasattr(value, "cache_key") and not isinstance(value, type):
        return f"jit({value.cache_key}{' noinline' if getattr(value, 'noinline', None) else ''})"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__} {_class_text(value)}"
    function = value.func if isinstance(value, functools.partial) else getattr(value, "fn", value)
    if getattr(function, "__code__", None) is not None:
        return _function_text(value, function, inside)
    if hasattr(value, "tolist") and hasattr(value, "dtype") and hasattr(value, "shape"):  # whose repr leaves out the middle
        return f"{kind.__module__}.{kind.__qualname__}:{value.dtype} {tuple(value.shape)} {value.tolist()!r}"
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields is None and (kind.__repr__ is object.__repr__ and not _of_library(kind.__module__) or kind is types.SimpleNamespace):
        fields = getattr(value, "__dict__", None)
    if fields is not None and not isinstance(value, Enum):
        parts = ", ".join(f"{name}={stable_text(getattr(value, name, MISSING), inside)}" for name in fields)
        return f"{kind.__module__}.{kind.__qualname__}({parts}) {_class_text(kind)}"
    return f"{kind.__module__}.{kind.__qualname__}:{value!r}"


def _function_text(value: Any, function: Any, inside: tuple[int, ...]) -> str:
    """A function by its code alone; see ``argument_text`` for what it reads."""
    import hashlib  # loads OpenSSL: with the first kernel, not with Tilewright

    body = hashlib.sha256(_code_text(function.__code__).encode()).hexdigest()
    kept = [*(getattr(function, "__defaults__", None) or ()), *(getattr(function, "__kwdefaults__", None) or {}).values(),
            *(_contents(cell) for cell in getattr(function, "__closure__", None) or ())]
    if isinstance(value, functools.partial):
        kept += [*value.args, *value.keywords.values(), *value.keywords]
    texts = [stable_text(v, inside) for v in kept if v is None or isinstance(v, _KEPT)]
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)} {body} {texts}"


def argument_text(value: Any) -> str:
    """``stable_text`` of a constexpr argument, with all that functions and classes in it read while compiling."""
    values = list(parts(value))
    texts = [f"{name}: {stable_text(v)}" for kind in values if isinstance(kind, type) and not _of_library(kind.__module__)
             for name, v in vars(kind).items() if isinstance(v, _KEPT) and not name.startswith("__")]
    texts += [f"{u.name} = {stable_text(u.value)}" for u in uses_while_compiling(values)]
    return "\n".join([stable_text(value), *texts])


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _code_text(code: types.CodeType) -> str:
    consts = [_code_text(c) if isinstance(c, types.CodeType) else stable_text(c) if isinstance(c, frozenset) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()} {code.co_names} {consts}"


_class_texts: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()  # read once: the file may be edited later


def _class_text(value: type) -> str:
    """Source of a class and of those of the user's that it is derived from."""
    found = _class_texts.get(value)
    if found is None:
        found = _class_texts[value] = "\n".join(_class_source(c) for c in value.__mro__ if c is value or not _of_library(c.__module__))
    return found


def _class_source(value: type) -> str:
    try:
        return inspect.getsource(value)
    except (OSError, TypeError):
        return repr(getattr(value, "_fields", ""))


# ------------------------------------------------------------------------------------------------------------ names
class _Names(ast.NodeVisitor):
    """Dotted chains that are read, in order of first appearance (a chain's links all appear: ``a.b.c`` gives ("a", "b", "c")), and the names that are the code's own."""

    def __init__(self) -> None:
        self.chains: dict[tuple[str, ...], None] = {}
        self.own: set[str] = set()

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
        else:
            self.own.add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        self.own.add(node.arg)
        self.generic_visit(node)


@functools.lru_cache(maxsize=1024)
def _chains_of_code(code: types.CodeType) -> tuple[tuple[str, ...], ...]:
    """The chains whose root is a global or a variable around the function, of a function's byte code and that of functions inside of it."""
    chains: dict[tuple[str, ...], None] = {}
    chain: tuple[str, ...] = ()
    for step in dis.get_instructions(code):
        name, of = step.opname, step.argval
        if chain and name in ("LOAD_ATTR", "LOAD_METHOD"):
            chain = (*chain, of)
            continue
        if name in ("EXTENDED_ARG", "CACHE"):
            continue
        if chain:
            chains[chain] = None
        chain = (of,) if name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF") else ()
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            chains.update(dict.fromkeys(c for c in _chains_of_code(inner) if c[0] not in code.co_cellvars))
    return tuple(chains)


def _of_library(module: Any) -> bool:
    return not isinstance(module, str) or module.split(".")[0] in _LIBRARIES


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


def _place(scope: dict[str, Any], name: str, value: Any) -> list[Place | None]:
    return [(scope, name, value) if scope.get(name, MISSING) is value else None]  # a module may make what it is asked for


def _resolve(fn: Any, chains: Iterable[tuple[str, ...]], before: str, uses: dict[str, Use]) -> None:
    """Add what the chains stand for in ``fn``: jit functions, other functions, and values; modules and the compiler's own names are left out."""
    for root, *links in chains:
        value = _reader(fn, root, ())()
        taken: list[str] = []
        places = [None] if root in _closure(fn) else _place(fn.__globals__, root, value)
        # through modules and classes to the first value; further attributes are of the value itself
        while isinstance(value, (types.ModuleType, type)) and links and not _of_compiler(value):
            taken.append(links.pop(0))
            after = getattr(value, taken[-1], MISSING)
            places += _place(value.__dict__, taken[-1], after) if isinstance(value, types.ModuleType) else [None]
            value = after
        if value is MISSING and not taken and hasattr(builtins, root) or isinstance(value, types.ModuleType) or _of_compiler(value):
            continue
        name = before + ".".join((root, *taken))
        for member, function in getattr(value, "members", {}).items() if getattr(value, "__triton_aggregate__", False) else ():
            uses.setdefault(f"{name}.{member}", Use(f"{name}.{member}", functools.partial(_member, _reader(fn, root, tuple(taken)), member), function, ()))
        if name not in uses:
            uses[name] = Use(name, _reader(fn, root, tuple(taken)), value, () if None in places else places)  # type: ignore[arg-type]


def parts(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """A value, and the values in it where it is a constexpr or a container."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    yield value
    inner = [value.value] if isinstance(value, constexpr) else value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    for one in inner:
        yield from parts(one, seen)


def _functions(value: Any) -> Iterator[Any]:
    """The Python functions that run where one of these parts is called while compiling, as far as they are followed."""
    if isinstance(value, functools.partial):
        yield from _functions(value.func)
    elif isinstance(value, ConstexprFunction):
        yield from _functions(value.fn)
    elif isinstance(value, types.MethodType):
        yield from _functions(value.__func__)
    elif isinstance(value, types.FunctionType):
        wrapped = inspect.unwrap(value)
        for function in (value, wrapped) if wrapped is not value else (value,):
            if isinstance(function, types.FunctionType) and not _of_library(function.__module__):
                yield function
    elif isinstance(value, type) and not _of_library(value.__module__) and not issubclass(value, Enum):
        for kind in value.__mro__:
            if not _of_library(kind.__module__):
                for member in vars(kind).values():
                    yield from _functions(member.fget if isinstance(member, property) else getattr(member, "__func__", member) if not isinstance(member, type) else None)
    elif hasattr(type(value), "__dataclass_fields__") or type(value).__repr__ is object.__repr__:
        if not isinstance(value, type) and not hasattr(type(value), "cache_key"):
            yield from _functions(type(value))


def uses_while_compiling(values: Iterable[Any]) -> list[Use]:
    """The uses of the Python functions that are reached from ``values``, which the code calls while compiling."""
    uses: dict[str, Use] = {}
    seen: set[int] = set()
    waiting = [p for v in values for p in parts(v)]
    while waiting and len(seen) < _MOST_FUNCTIONS:
        for function in _functions(waiting.pop()):
            if id(function) in seen:
                continue
            seen.add(id(function))
            known = len(uses)
            own = {c: None for c in _chains_of_code(function.__code__) if c[0] in _closure(function) or c[0] not in function.__code__.co_cellvars}
            _resolve(function, own, f"{function.__module__}.{function.__qualname__}: ", uses)
            waiting += [p for u in list(uses.values())[known:] for p in parts(u.value)]
    return list(uses.values())


def find(fn: Any, tree: ast.AST, parameters: set[str]) -> list[Use]:
    """The uses of ``fn``'s code: jit functions, other functions, and values; modules and the compiler's own names are left out.

    ``tree`` is the parsed definition. Names that only the function's body defines, and builtins, have no entry.
    """
    names = _Names()
    for node in ast.iter_child_nodes(tree):
        names.visit(node)
    uses: dict[str, Use] = {}
    own = {n for n in names.own if n not in fn.__globals__ and n not in _closure(fn)}
    _resolve(fn, [c for c in names.chains if c[0] not in parameters and c[0] not in own], "", uses)
    return [*uses.values(), *uses_while_compiling([u.value for u in uses.values()])]
