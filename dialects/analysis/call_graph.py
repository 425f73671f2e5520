"""Which function of a module calls which. A kernel's module holds the kernel and the functions that it calls (``func.call``)."""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, functions
from tilewright.dialects.errors import TilewrightError

CALL = "func.call"
RETURN = "func.return"


def callee_of(call: Node) -> str:
    """The name of the function that a func.call calls."""
    return str(ir.FlatSymbolRefAttr(call.op.attributes["callee"]).value)


def name_of(function: Function) -> str:
    return str(ir.StringAttr(function.root.op.attributes["sym_name"]).value)


def is_kernel(function: Function) -> bool:
    return "tt.kernel" in function.root.op.attributes


def is_called(function: Function) -> bool:
    """A function that others of the module call: it is private."""
    attributes = function.root.op.attributes
    return "sym_visibility" in attributes and str(ir.StringAttr(attributes["sym_visibility"]).value) == "private"


def calls_of(function: Function) -> list[Node]:
    """The function's calls, in program order."""
    return [node for node in function.nodes() if node.name == CALL]


def has_calls(module: Any) -> bool:
    """Whether any function of the module calls another."""
    return any(calls_of(function) for function in functions(module))


def callers_first(module_functions: list[Function]) -> list[Function]:
    """The functions in an order in which each comes after all that call it. Reversed: after all that it calls.

    Raises TilewrightError where functions call each other in a circle, or call one that the module does not define.
    """
    by_name = {name_of(f): f for f in module_functions}
    order: list[Function] = []
    state: dict[str, int] = {}

    def visit(function: Function, path: tuple[str, ...]) -> None:
        name = name_of(function)
        if name in path:
            raise TilewrightError(f"recursion: {' calls '.join((*path[path.index(name):], name))}")
        if name in state:
            return
        for call in calls_of(function):
            called = by_name.get(callee_of(call))
            if called is None:
                raise TilewrightError(f"{name} calls {callee_of(call)}, which the module does not define")
            visit(called, (*path, name))
        state[name] = 1
        order.append(function)

    for function in module_functions:
        visit(function, ())
    return order[::-1]


def retype(function: Function) -> None:
    """Let the function's type say what its arguments and returned values are now."""
    returned = function.body.ops[-1].operands
    function.root.op.attributes["function_type"] = ir.TypeAttr.get(
        ir.FunctionType.get([a.type for a in function.body.args], [v.type for v in returned]))
