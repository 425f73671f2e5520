"""Expressions of the kernel language."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tilewright.compiler.codegen_base import (
    GeneratorBase,
    Lambda,
    is_static,
    static_value,
)
from tilewright.compiler.names import NO_MATMUL, ONE_FOR, STATIC_DICT, STATIC_FILTER
from tilewright.dialects.errors import TypeMismatchError, UnsupportedLanguageConstruct
from tilewright.language.const import constexpr
from tilewright.language.values import tensor
from tilewright.language.values import tuple as tl_tuple

_CONVERSIONS: dict[int, Callable[[Any], str]] = {ord("s"): str, ord("r"): repr, ord("a"): ascii}


class ExpressionGenerator(GeneratorBase):
    """Visitors of expressions; each returns a value (tensor, constexpr, tuple, or a compile-time object)."""

    def visit_Constant(self, node: ast.Constant) -> Any:
        return constexpr(node.value)

    def visit_Name(self, node: ast.Name) -> Any:
        return self.lookup(node.id)

    def visit_Tuple(self, node: ast.Tuple | ast.List) -> Any:
        return tl_tuple(self.elements(node.elts))

    def visit_Dict(self, node: ast.Dict) -> Any:
        """A dictionary of compile-time keys and values, which is a constexpr."""
        out = {}
        for key, item in zip(node.keys, node.values):
            if key is None:
                raise UnsupportedLanguageConstruct("the language of kernels does not have ** in dictionaries")
            name, value = self.visit(key), self.visit(item)
            if not is_static(name) or not is_static(value):
                raise TypeMismatchError(STATIC_DICT)
            out[static_value(name)] = static_value(value)
        return constexpr(out)

    def elements(self, nodes: list[ast.expr]) -> list[Any]:
        out = []
        for n in nodes:
            if isinstance(n, ast.Starred):
                out.extend(self.static_iterable(self.visit(n.value), "*"))
            else:
                out.append(self.visit(n))
        return out

    # -- operators -------------------------------------------------------------------------------------------------
    def visit_BinOp(self, node: ast.BinOp) -> Any:
        lhs, rhs = self.visit(node.left), self.visit(node.right)
        return self.binary(node, self.operator_of(node), lhs, rhs)

    @staticmethod
    def operator_of(node: ast.BinOp | ast.AugAssign) -> type:
        if isinstance(node.op, ast.MatMult):
            raise UnsupportedLanguageConstruct(NO_MATMUL)
        return node.op.__class__

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        return self.unary(node, node.op.__class__, self.visit(node.operand))

    def visit_Compare(self, node: ast.Compare) -> Any:
        lhs = self.visit(node.left)
        result: Any = None
        for op, comparator in zip(node.ops, node.comparators):
            rhs = self.visit(comparator)
            one = self.compare(node, op.__class__, lhs, rhs)
            result = one if result is None else self.both(node, result, one)
            if not isinstance(result, tensor) and not static_value(result):
                return result
            lhs = rhs
        return result

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """Compile-time operands short-circuit as in Python; run-time ones are all evaluated."""
        is_and = isinstance(node.op, ast.And)
        values: list[Any] = []
        for operand in node.values:
            values.append(self.visit(operand))
            if self.ends_early(is_and, values[-1]):
                break
        return self.combined(node, is_and, values)

    # -- parts of values -------------------------------------------------------------------------------------------
    def visit_Attribute(self, node: ast.Attribute) -> Any:
        return self.attribute(node, self.visit(node.value), node.attr)

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        value = self.visit(node.value)
        return self.subscript(node, value, self.visit(node.slice))

    def visit_Slice(self, node: ast.Slice) -> Any:
        return slice(*(self.visit(n) if n is not None else None for n in (node.lower, node.upper, node.step)))

    # -- choices ---------------------------------------------------------------------------------------------------
    def visit_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.truth(node.test)
        if not isinstance(condition, tensor):
            return self.visit(node.body if condition else node.orelse)
        return self.choose(node, condition)

    def truth(self, node: ast.expr) -> Any:
        """A test as an int1 scalar tensor, or as a Python bool."""
        return self.test(node, self.visit(node))

    def choose(self, node: ast.IfExp, condition: tensor) -> Any:
        raise NotImplementedError

    # -- text and the rest -----------------------------------------------------------------------------------------
    def visit_JoinedStr(self, node: ast.JoinedStr) -> Any:
        parts = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
                continue
            assert isinstance(part, ast.FormattedValue)
            value = self.visit(part.value)
            raw = static_value(value) if is_static(value) else str(value)
            if part.conversion != -1:
                raw = _CONVERSIONS[part.conversion](raw)
            spec = static_value(self.visit(part.format_spec)) if part.format_spec else ""
            parts.append(format(raw, spec))
        return constexpr("".join(parts))

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        return Lambda(node, self.frame)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        value = self.visit(node.value)
        self.assign(node.target, self.run_time(value))
        return self.frame.scope[node.target.id]

    def assign(self, target: ast.expr, value: Any) -> None:
        raise NotImplementedError

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        if len(node.generators) != 1:
            raise UnsupportedLanguageConstruct(ONE_FOR)
        generator = node.generators[0]
        saved = dict(self.frame.scope)
        out = []
        for item in self.unrolled(generator.iter):
            self.assign(generator.target, item)
            tests = [self.truth(t) for t in generator.ifs]
            if any(isinstance(t, tensor) for t in tests):
                raise UnsupportedLanguageConstruct(STATIC_FILTER)
            if all(tests):
                out.append(self.visit(node.elt))
        self.frame.scope = saved
        return tl_tuple(out)

    def unrolled(self, node: ast.expr) -> list[Any]:
        raise NotImplementedError
