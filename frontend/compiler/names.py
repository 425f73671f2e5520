"""What names and constructs a kernel may use: one judgement for the code generator and the interpreter. Nothing here touches IR."""

from __future__ import annotations

import ast
import builtins
import types
from enum import Enum
from typing import Any

from tilewright.dialects.errors import NameResolutionError
from tilewright.language import core
from tilewright.language.const import ConstexprFunction, constexpr
from tilewright.language.dtypes import dtype

# Python's functions that are part of the language
BUILTIN_NAMES = frozenset({
    "len", "min", "max", "abs", "float", "int", "bool", "str", "repr", "isinstance", "print", "getattr", "hasattr", "tuple", "list", "range", "zip",
    "enumerate", "reversed", "pow", "sum", "any", "all", "slice", "Ellipsis",
})

# Node of Python's syntax → what the language of kernels does not have
WHY_NOT = {
    "Try": "try: kernels have no exceptions", "Raise": "raise: kernels have no exceptions; use tl.static_assert or tl.device_assert",
    "FunctionDef": "a nested function definition: define it at module level with @jit",
    "ClassDef": "a class definition", "Import": "import: import at module level", "ImportFrom": "import: import at module level",
    "Global": "global", "Nonlocal": "nonlocal", "Yield": "yield", "YieldFrom": "yield", "Await": "await", "AsyncFor": "async",
    "AsyncWith": "async", "AsyncFunctionDef": "async", "DictComp": "a dictionary", "Set": "a set", "SetComp": "a set",
    "Match": "match: use if/elif", "TryStar": "try: kernels have no exceptions",
}
LACKS = "the language of kernels does not have "
NO_MATMUL = "the operator @ is not part of the language; use tl.dot"
NO_WALRUS = ("the language of kernels does not have := in the condition of a while; assign before the loop and at the end of its body, or use "
             "`while True` with break")
NEEDS_VALUE = "a constexpr variable needs a value"
WITH_WHAT = "`with` takes context managers of the compiler (classes marked as builtins), called right there"
STATIC_ITEMS = "a comprehension runs over compile-time items (tl.static_range, a tuple)"
STATIC_FILTER = "the `if` of a comprehension is a compile-time condition"
ONE_FOR = "comprehensions take one `for` in kernels"
STATIC_DICT = "a dictionary in a kernel has compile-time keys and values; tuples hold tensors"
ONE_COUNTER = "a run-time loop counts in one variable"
NEVER_ENDS = ("this loop never ends: its condition is true while compiling and the loop does not change it; it holds no break and no return")
NO_KWARGS = f"{LACKS}**kwargs"


def no_else(node: ast.For | ast.While) -> str:
    """Why a loop has no else."""
    return f"{LACKS}else after {'for' if isinstance(node, ast.For) else 'while'}; set a variable in the loop and test it after it"


def is_jit(value: Any) -> bool:
    """A jit function, by its interface, compiled or interpreted."""
    return hasattr(value, "parse") and hasattr(value, "fn") and hasattr(value, "src") or hasattr(type(value), "__interprets__")


def may_be_read(name: str, value: Any) -> bool:
    """Whether a global (or a variable of a function around the kernel) with this value is one that cannot change what a kernel means."""
    return (type(value) is constexpr or isinstance(value, (types.ModuleType, dtype, ConstexprFunction, Enum)) or is_jit(value)
            or core.is_builtin(value) or str(getattr(value, "__module__", "")).startswith("tilewright.language")
            or isinstance(value, type) and (issubclass(value, (Enum, tuple)) or value in (int, float, bool, str))
            or name in BUILTIN_NAMES and value is getattr(builtins, name, None))


def refused_global(name: str, value: Any) -> NameResolutionError:
    """The error of reading a global that is none of those."""
    if isinstance(value, (bool, int, float, str)) or value is None or isinstance(value, (tuple, list)):
        return NameResolutionError(f"the global variable {name} is read in a kernel and is not a constexpr: its later changes would be "
                                   f"missed. Define it as {name} = tl.constexpr({value!r}), or pass it as an argument")
    if callable(value):
        return NameResolutionError(f"{name} is a plain Python function or class; kernels call functions decorated with @jit (or "
                                   "@constexpr_function for compile-time values)")
    return NameResolutionError(f"the global variable {name} of type {type(value).__name__} cannot be read in a kernel; pass it as an argument")
