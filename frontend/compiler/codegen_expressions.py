"""Expressions of the kernel language."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tilewright.compiler.codegen_base import (
    GeneratorBase,
    Lambda,
    is_static,
    same_static,
    static_value,
    type_text,
    wrap,
)
from tilewright.compiler.names import NO_MATMUL
from tilewright.dialects.errors import NameResolutionError, TypeMismatchError, UnsupportedLanguageConstruct
from tilewright.language import core
from tilewright.language.aggregate import Aggregate, BoundMethod
from tilewright.language.const import constexpr
from tilewright.language.dtypes import dtype
from tilewright.language.values import tensor
from tilewright.language.values import tuple as tl_tuple

BINARY: dict[type, tuple[str, str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", "add", operator.add), ast.Sub: ("-", "sub", operator.sub), ast.Mult: ("*", "mul", operator.mul),
    ast.Div: ("/", "truediv", operator.truediv), ast.FloorDiv: ("//", "floordiv", operator.floordiv), ast.Mod: ("%", "mod", operator.mod),
    ast.LShift: ("<<", "shl", operator.lshift), ast.RShift: (">>", "shr", operator.rshift), ast.BitAnd: ("&", "and_", operator.and_),
    ast.BitOr: ("|", "or_", operator.or_), ast.BitXor: ("^", "xor_", operator.xor), ast.Pow: ("**", "", operator.pow),
}
COMPARE: dict[type, tuple[str, str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", "equal", operator.eq), ast.NotEq: ("!=", "not_equal", operator.ne), ast.Lt: ("<", "less_than", operator.lt),
    ast.LtE: ("<=", "less_equal", operator.le), ast.Gt: (">", "greater_than", operator.gt), ast.GtE: (">=", "greater_equal", operator.ge),
}

_METHODS: dict[type, str] = {ast.LShift: "lshift", ast.RShift: "rshift", ast.Pow: "pow"}
_UNARY: dict[type, str] = {ast.USub: "__neg__", ast.UAdd: "__pos__", ast.Invert: "__invert__"}
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
                raise TypeMismatchError("a dictionary in a kernel has compile-time keys and values; tuples hold tensors")
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

    def static_iterable(self, value: Any, what: str) -> list[Any]:
        """The items of something whose length is known while compiling."""
        if isinstance(value, tl_tuple):
            return list(value.values)
        if isinstance(value, tensor):
            raise TypeMismatchError(f"{what} takes a tuple, not a tensor of type {value.type}")
        raw = static_value(value)
        if not hasattr(raw, "__iter__"):
            raise TypeMismatchError(f"{what} takes a tuple or list, not {raw!r}")
        return [wrap(v) for v in raw]

    # -- operators -------------------------------------------------------------------------------------------------
    def visit_BinOp(self, node: ast.BinOp) -> Any:
        lhs, rhs = self.visit(node.left), self.visit(node.right)
        return self.binary(node, node.op, lhs, rhs)

    def binary(self, node: Any, op: ast.operator, lhs: Any, rhs: Any) -> Any:
        entry = BINARY.get(op.__class__)
        if entry is None:
            raise UnsupportedLanguageConstruct(NO_MATMUL)
        sign, method, python = entry
        name = _METHODS.get(op.__class__, method.rstrip("_"))
        for one, other, prefix in ((lhs, rhs, "__"), (rhs, lhs, "__r")):
            if isinstance(one, Aggregate) and hasattr(type(one), f"{prefix}{name}__"):
                return self.call(getattr(one, f"{prefix}{name}__"), [other], {})
        if isinstance(lhs, Aggregate) or isinstance(rhs, Aggregate):
            raise TypeMismatchError(f"{type_text(lhs)} {sign} {type_text(rhs)}: neither has a method __{name}__ for that")
        if isinstance(lhs, tensor) or isinstance(rhs, tensor):
            if not method:
                raise UnsupportedLanguageConstruct("** of run-time tensors is not part of the language; multiply, or use "
                                                   "tl.exp2(y * tl.log2(x)) or libdevice.pow")
            self.at(node)
            return getattr(self.semantic, method)(self.operand(lhs, sign), self.operand(rhs, sign))
        if isinstance(lhs, tl_tuple) or isinstance(rhs, tl_tuple):
            if op.__class__ is ast.Add:
                return tl_tuple([*self.static_iterable(lhs, "+"), *self.static_iterable(rhs, "+")])
            if op.__class__ is ast.Mult:
                items, count = (lhs, rhs) if isinstance(lhs, tl_tuple) else (rhs, lhs)
                return items * count
            raise TypeMismatchError(f"{sign} does not take tuples")
        return wrap(python(static_value(lhs), static_value(rhs)))

    def operand(self, value: Any, sign: str) -> Any:
        if isinstance(value, tensor):
            return value
        raw = static_value(value)
        if not isinstance(raw, (bool, int, float)):
            raise TypeMismatchError(f"{sign} of a tensor and {raw!r}")
        return raw

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        value = self.visit(node.operand)
        op = node.op.__class__
        if isinstance(value, Aggregate) and op in _UNARY:
            return self.call(self.special(value, _UNARY[op]), [], {})
        if isinstance(value, tensor):
            self.at(node)
            if op is ast.USub:
                return self.semantic.minus(value)
            if op is ast.Invert:
                return self.semantic.invert(value)
            return self.semantic.not_(value) if op is ast.Not else value
        raw = static_value(value)
        if op is ast.Not:
            return constexpr(not raw)
        return wrap(-raw if op is ast.USub else ~raw if op is ast.Invert else +raw)

    def visit_Compare(self, node: ast.Compare) -> Any:
        lhs = self.visit(node.left)
        result: Any = None
        for op, comparator in zip(node.ops, node.comparators):
            rhs = self.visit(comparator)
            one = self.compare(node, op, lhs, rhs)
            result = one if result is None else self.both(node, result, one)
            if not isinstance(result, tensor) and not static_value(result):
                return result
            lhs = rhs
        return result

    def both(self, node: Any, a: Any, b: Any) -> Any:
        """``a and b`` of values that exist already."""
        if not isinstance(a, tensor):
            return b if static_value(a) else a
        if not isinstance(b, tensor):
            return a if static_value(b) else b
        self.at(node)
        return self.semantic.logical_and(a, b)

    def compare(self, node: Any, op: ast.cmpop, lhs: Any, rhs: Any) -> Any:
        kind = op.__class__
        if kind in (ast.Is, ast.IsNot):
            same = static_value(lhs) is static_value(rhs) if is_static(lhs) and is_static(rhs) else lhs is rhs
            if not same and is_static(lhs) and is_static(rhs):
                same = isinstance(static_value(lhs), (dtype, bool)) and same_static(lhs, rhs)
            return constexpr(same == (kind is ast.Is))
        if kind in (ast.In, ast.NotIn):
            items = [static_value(v) for v in self.static_iterable(rhs, "in")] if not isinstance(static_value(rhs) if is_static(rhs) else None, str) \
                else static_value(rhs)
            if not is_static(lhs):
                raise TypeMismatchError("`in` looks for a compile-time value")
            return constexpr((static_value(lhs) in items) == (kind is ast.In))
        sign, method, python = COMPARE[kind]
        if isinstance(lhs, Aggregate):
            name = f"__{python.__name__}__"
            if isinstance(getattr(lhs, name), BoundMethod):
                return self.call(getattr(lhs, name), [rhs], {})
            if kind in (ast.Eq, ast.NotEq):
                raise TypeMismatchError(f"{type(lhs).__name__} has no jit method {name}; compare its fields")
        if isinstance(lhs, tensor) or isinstance(rhs, tensor):
            other = rhs if isinstance(lhs, tensor) else lhs
            if kind in (ast.Eq, ast.NotEq) and not isinstance(other, tensor) and not isinstance(static_value(other), (bool, int, float)):
                return constexpr(kind is ast.NotEq)
            self.at(node)
            return getattr(self.semantic, method)(self.operand(lhs, sign), self.operand(rhs, sign))
        if isinstance(lhs, tl_tuple) and isinstance(rhs, tl_tuple) and not (is_static(lhs) and is_static(rhs)):
            if kind not in (ast.Eq, ast.NotEq):
                raise TypeMismatchError(f"{sign} does not take tuples of tensors")
            result: Any = constexpr(len(lhs) == len(rhs))
            for a, b in zip(lhs.values, rhs.values):
                result = self.both(node, result, self.compare(node, ast.Eq(), a, b))
            if kind is ast.Eq:
                return result
            return self.semantic.not_(result) if isinstance(result, tensor) else constexpr(not result.value)
        return constexpr(bool(python(static_value(lhs), static_value(rhs))))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """Compile-time operands short-circuit as in Python; run-time ones are all evaluated and combined as truth values."""
        is_and = isinstance(node.op, ast.And)
        result: Any = None
        for i, operand in enumerate(node.values):
            value = self.visit(operand)
            if not isinstance(value, tensor):
                raw = static_value(value)
                if bool(raw) != is_and:
                    return value
                if result is None and i == len(node.values) - 1:
                    return value
                continue
            if result is None:
                result = value
                continue
            self.at(node)
            result = self.semantic.logical_and(result, value) if is_and else self.semantic.logical_or(result, value)
        if isinstance(result, tensor) and len(node.values) > 1 and not result.type.scalar.is_bool():
            self.at(node)
            result = self.semantic.to_bool(result)
        return result

    # -- parts of values -------------------------------------------------------------------------------------------
    def visit_Attribute(self, node: ast.Attribute) -> Any:
        value = self.visit(node.value)
        name = node.attr
        if isinstance(value, tensor):
            if name == "T":
                self.at(node)
                return self.semantic.trans(value)
            if name in ("handle", "const") or (name.startswith("_") and name not in ("_reinterpret",)) or not hasattr(type(value), name):
                raise TypeMismatchError(f"a tensor of type {value.type} has no attribute {name!r}")
            return wrap(getattr(value, name))
        if type(value) is constexpr:
            if name == "value":
                return value
            if name == "type":
                return value.type
            return wrap(getattr(value.value, name))
        try:
            return wrap(getattr(value, name))
        except AttributeError:
            if not isinstance(value, ModuleType):
                raise
            import difflib

            near = difflib.get_close_matches(name, dir(value), 1)
            raise NameResolutionError(f"{value.__name__} has no {name!r}{f'; did you mean {near[0]}?' if near else ''}") from None

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        value = self.visit(node.value)
        index = self.visit(node.slice)
        if isinstance(value, Aggregate):
            return self.call(self.special(value, "__getitem__"), [index], {})
        if isinstance(value, tensor):
            self.at(node)
            return self.semantic.getitem(value, index)
        if not is_static(index):
            raise TypeMismatchError("a tuple is indexed by a compile-time integer, not by a run-time tensor")
        if isinstance(value, tl_tuple):
            return value[static_value(index) if not isinstance(index, slice) else index]
        raw = static_value(value)
        key = static_value(index)
        if isinstance(key, slice):
            key = slice(*(static_value(v) for v in (key.start, key.stop, key.step)))
        return wrap(raw[key])

    def special(self, value: Aggregate, name: str) -> Any:
        """A method that Python's syntax calls."""
        if not hasattr(type(value), name):
            raise TypeMismatchError(f"{type(value).__name__} has no method {name}")
        return getattr(value, name)

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
        value = self.visit(node)
        if isinstance(value, core.condition):
            value = value.condition
        if not isinstance(value, tensor):
            return bool(static_value(value))
        if value.type.is_block():
            if value.numel != 1:
                raise TypeMismatchError(f"a condition is one truth value, and this tensor has shape {list(value.shape)}; reduce it "
                                        "(tl.max, tl.reduce_or) or use tl.where")
            self.at(node)
            value = self.semantic.unsplat(value)
        self.at(node)
        return self.semantic.to_bool(value)

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

    def call(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError

    def run_time(self, value: Any) -> Any:
        raise NotImplementedError

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        if len(node.generators) != 1:
            raise UnsupportedLanguageConstruct("comprehensions take one `for` in kernels")
        generator = node.generators[0]
        saved = dict(self.frame.scope)
        out = []
        for item in self.unrolled(generator.iter):
            self.assign(generator.target, item)
            tests = [self.truth(t) for t in generator.ifs]
            if any(isinstance(t, tensor) for t in tests):
                raise UnsupportedLanguageConstruct("the `if` of a comprehension is a compile-time condition")
            if all(tests):
                out.append(self.visit(node.elt))
        self.frame.scope = saved
        return tl_tuple(out)

    def unrolled(self, node: ast.expr) -> list[Any]:
        raise NotImplementedError
