"""Functions marked ``noinline``: generated once for each combination of argument types and compile-time arguments, and called.

Such a function is a private ``func.func`` of the kernel's module. Only tensors (scalars, pointers, tiles) cross the call: tuples, block
pointers and tensor descriptors go in and come out in their pieces, and compile-time values are part of what the function was made for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tilewright.compiler.codegen_base import Frame, Function, Lambda, flatten, is_static, rebuild, static_value
from tilewright.compiler.codegen_jumps import JumpGenerator
from tilewright.dialects._mlir import ir
from tilewright.language.const import constexpr
from tilewright.language.tensor_descriptor import tensor_descriptor
from tilewright.language.values import base_value, tensor
from tilewright.language.values import tuple as tl_tuple

_LONGEST = 80  # characters of a function's name


class Made:
    """One function that was generated: the ``arguments`` it is for, its ``symbol`` and the form of its ``result`` (None: nothing)."""

    def __init__(self, arguments: dict[str, Any], symbol: str):
        self.arguments, self.symbol = arguments, symbol
        self.result: Any = None


class CallGenerator(JumpGenerator):
    """Generates calls, and the functions that are called."""

    def __init__(self, builder: Any):
        super().__init__(builder)
        self.made: dict[Any, list[Made]] = {}  # by the Python function
        self.symbols: set[str] = set()
        self.module: Any = None

    def can_be_called(self, fn: Any, scope: dict[str, Any]) -> bool:
        """Whether a noinline function is called here. It is inlined in the combiner of a reduction, which is applied to registers, and
        where it takes a lambda, which may use values of the function that it was written in."""
        return bool(getattr(fn, "noinline", False)) and self._in_function() and not any(map(_holds_lambda, scope.values()))

    def _in_function(self) -> bool:
        """Whether code is generated for a function's body, rather than for the region of an op that is no control flow."""
        op = self.builder.ip.block.owner.operation
        while op.name.startswith("scf."):
            op = op.block.owner.operation
        return bool(op.name == "func.func")

    def call_function(self, fn: Any, info: Function, scope: dict[str, Any]) -> Any:
        """Call ``fn`` with the arguments ``scope``; its result."""
        location = self.builder.loc
        known = self.made.setdefault(fn.fn, [])
        made = next((m for m in known if _same_arguments(m.arguments, scope)), None)
        if made is None:
            made = self.function(fn, info, scope)
            known.append(made)
        results = flatten(made.result, [])
        call = ir.Operation.create("func.call", results=[self.builder.type(r.type) for r in results],
                                   operands=[v.handle for v in _pieces(scope.values())],
                                   attributes={"callee": ir.FlatSymbolRefAttr.get(made.symbol)}, loc=location, ip=self.builder.ip)
        if made.result is None:
            return constexpr(None)
        return rebuild(made.result, iter([tensor(handle, r.type) for handle, r in zip(call.results, results)]))

    def function(self, fn: Any, info: Function, scope: dict[str, Any]) -> Made:
        """Generate the function for arguments like those of ``scope``."""
        builder = self.builder
        pieces = _pieces(scope.values())
        made = Made(dict(scope), self._symbol(info.name, scope))
        location = ir.Location.file(info.file, info.line_offset + info.node.lineno, info.indent + info.node.col_offset + 1)
        types = [builder.type(v.type) for v in pieces]
        function = ir.Operation.create("func.func", regions=1, loc=location, ip=ir.InsertionPoint(self.module.body), attributes={
            "sym_name": ir.StringAttr.get(made.symbol), "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
            "sym_visibility": ir.StringAttr.get("private"), "no_inline": builder.unit})
        entry = ir.Block.create_at_start(function.regions[0], types, [location] * len(types))
        with builder.in_function(entry, location) as hints:
            arguments = iter([tensor(h, v.type) for h, v in zip(entry.arguments, pieces)])
            inner = {name: self.with_descriptors(rebuild(value, arguments)) for name, value in scope.items()}
            frame = Frame(fn, info, inner, None)
            self.enter(frame, lambda frame: self.run(info.node.body))
            made.result = frame.ret
            returned = flatten(frame.ret, [])
            ir.Operation.create("func.return", operands=[v.handle for v in returned], loc=builder.loc, ip=builder.ip)
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [builder.type(v.type) for v in returned]))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(hints.get(i, {})) for i in range(len(types))])
        return made

    def enter(self, frame: Frame, body: Any, recursive: bool = False) -> Any:
        """See CodeGenerator."""
        raise NotImplementedError

    def with_descriptors(self, value: Any) -> Any:
        """``value`` with the tensor descriptors in it made here, at a function's top."""
        if isinstance(value, tensor_descriptor):
            return self.semantic.made(value)
        if isinstance(value, base_value) and value.parts:
            return value.with_parts([self.with_descriptors(v) for v in value.parts])
        return value

    def drop_uncalled(self) -> None:
        """Remove functions that only code which was generated anew has called."""
        bodies = {ir.StringAttr(op.attributes["sym_name"]).value: op.operation for op in self.module.body.operations}
        called: set[str] = set()
        todo = [op for op in bodies.values() if "tt.kernel" in op.attributes]
        while todo:
            for name in _callees(todo.pop()) - called:
                called.add(name)
                todo.append(bodies[name])
        unused = [op for name, op in bodies.items() if name not in called and "tt.kernel" not in op.attributes]
        for op in unused:
            op.erase()

    def _symbol(self, name: str, scope: dict[str, Any]) -> str:
        """A readable name that no other function has: the function's, then what it is for."""
        if any(name == symbol for symbol in self.symbols):  # the kernel's, from whose name a target may make others
            name += "_function"
        text = symbol = (f"{name}__" + "_".join(filter(None, map(_kind, scope.values()))))[:_LONGEST]
        number = 1
        while symbol in self.symbols:
            number += 1
            symbol = f"{text}_{number}"
        self.symbols.add(symbol)
        return symbol


def _pieces(values: Any) -> list[tensor]:
    out: list[tensor] = []
    for value in values:
        flatten(value, out)
    return out


def _holds_lambda(value: Any) -> bool:
    return isinstance(value, Lambda) or isinstance(value, base_value) and any(map(_holds_lambda, value.parts))


def _callees(function: Any) -> set[str]:
    found: set[str] = set()

    def visit(op: Any) -> Any:
        if op.name == "func.call":
            found.add(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
        return ir.WalkResult.ADVANCE

    function.walk(visit, ir.WalkOrder.PRE_ORDER)
    return found


def _same_arguments(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(_same(a, other[name]) for name, a in one.items())


def _same(a: Any, b: Any) -> bool:
    """Whether two arguments are served by one function: tensors of one type, compile-time values that no code can tell apart."""
    if isinstance(a, tensor):
        return isinstance(b, tensor) and bool(a.type == b.type)
    if isinstance(a, base_value) and not isinstance(a, tl_tuple):
        return isinstance(b, base_value) and bool(a.same_form(b)) and _all_same(a.parts, b.parts)
    if isinstance(a, tl_tuple):
        return isinstance(b, tl_tuple) and a.fields == b.fields and _all_same(a.values, b.values)
    if isinstance(b, base_value) and not is_static(b):
        return False
    a, b = static_value(a), static_value(b)
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return repr(a) == repr(b)  # -0.0 is not 0.0, and nan is nan
    if isinstance(a, (tuple, list)):
        return _all_same(a, b)
    return bool(a == b)


def _all_same(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(map(_same, some, others))


def _kind(value: Any) -> str:
    """A few letters for an argument, in a function's name."""
    if isinstance(value, tensor):
        type, sizes = value.type, ""
        if type.is_block():
            sizes = "x".join(["", *map(str, type.shape)])
            type = type.element_ty
        return ("P" + _word(type.element_ty) if type.is_ptr() else _word(type)) + sizes
    if isinstance(value, base_value):
        return "_".join(filter(None, map(_kind, value.parts)))
    value = static_value(value)
    if value is None or isinstance(value, str):
        return ""
    if isinstance(value, (bool, int, float)):
        return "c" + _word(str(value).replace("-", "m").replace(".", "p"))
    return _word(getattr(value, "__name__", ""))


def _word(text: Any) -> str:
    return re.sub(r"\W+", "_", str(text))


__all__ = ["CallGenerator", "Made"]
