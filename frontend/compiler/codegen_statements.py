"""Statements: assignments, returns, assertions, and the order in which a body runs."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from tilewright.compiler import names
from tilewright.compiler.codegen_base import Bind, Returning, Undefined, has_return, static_value
from tilewright.compiler.codegen_expressions import ExpressionGenerator
from tilewright.compiler.rules import is_constexpr_annotation
from tilewright.dialects.errors import (
    CompileTimeAssertionFailure,
    NameResolutionError,
    TypeMismatchError,
    UnsupportedLanguageConstruct,
)
from tilewright.language.const import constexpr
from tilewright.language.values import tensor
from tilewright.language.values import tuple as tl_tuple


class StatementGenerator(ExpressionGenerator):
    """Visitors of statements. ``run`` runs a list of them."""

    def unsupported(self, node: Any) -> Any:
        kind = type(node).__name__
        raise UnsupportedLanguageConstruct(f"{names.LACKS}{names.WHY_NOT.get(kind, kind)}")

    def run(self, statements: Sequence[ast.stmt]) -> bool:
        """Run statements in order; True where they returned (the value is in the frame's ``ret``).

        A return under a run-time condition is structured here: what follows the ``if`` becomes part of its branches, so
        that a function has one exit.
        """
        for i, statement in enumerate(statements):
            if has_return(statement) and isinstance(statement, (ast.If, ast.For, ast.While)):
                return bool(self.visit(Returning(statement, statements[i + 1:])))
            if self.visit(statement):
                return True
        return False

    # -- assignments -----------------------------------------------------------------------------------------------
    def visit_Assign(self, node: ast.Assign) -> None:
        value = self.visit(node.value)
        self.at(node)
        run_time = self.run_time(value)
        for target in node.targets:
            self.assign(target, value if isinstance(target, ast.Attribute) else run_time)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        annotation = self.visit(node.annotation) if not isinstance(node.annotation, ast.Constant) else node.annotation.value
        if is_constexpr_annotation(annotation):
            if node.value is None:
                raise UnsupportedLanguageConstruct(names.NEEDS_VALUE)
            self.assign(node.target, self.compile_time(self.visit(node.value)))
            return
        if node.value is not None:
            value = self.visit(node.value)
            self.at(node)
            self.assign(node.target, self.run_time(value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        lhs = self.visit(node.target)
        value = self.binary(node, self.operator_of(node), lhs, self.visit(node.value))
        self.at(node)
        self.assign(node.target, self.run_time(value))

    def visit_Bind(self, node: Bind) -> None:
        self.assign(node.target, node.value)

    def assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.frame.scope[target.id] = value
            return
        if isinstance(target, (ast.Tuple, ast.List)):
            items = self.static_iterable(value, "an assignment to several names")
            stars = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
            if not stars:
                if len(items) != len(target.elts):
                    raise TypeMismatchError(f"{len(items)} values are assigned to {len(target.elts)} names")
                for t, v in zip(target.elts, items):
                    self.assign(t, v)
                return
            at, after = stars[0], len(target.elts) - stars[0] - 1
            if len(items) < len(target.elts) - 1:
                raise TypeMismatchError(f"{len(items)} values are too few for {len(target.elts) - 1} names and a starred one")
            for t, v in zip(target.elts[:at], items[:at]):
                self.assign(t, v)
            starred = target.elts[at]
            assert isinstance(starred, ast.Starred)
            self.assign(starred.value, tl_tuple(items[at:len(items) - after]))
            for t, v in zip(target.elts[at + 1:], items[len(items) - after:]):
                self.assign(t, v)
            return
        if isinstance(target, ast.Attribute):
            self.assign_field(target, value)
            return
        if isinstance(target, ast.Subscript):
            self.assign_item(target, value)
            return
        raise UnsupportedLanguageConstruct("only names are assigned in kernels; tl.store writes memory")

    def assign_item(self, target: ast.Subscript, value: Any) -> None:
        """``t[i] = value``: the name stands for a tuple with that item from here on."""
        whole, index = self.visit(target.value), self.visit(target.slice)
        made = self.with_item(whole, index, value)
        if made is not whole:
            self.assign(target.value, made)

    def assign_field(self, target: ast.Attribute, value: Any) -> None:
        """``self.x = …``, in a jit ``__init__`` of an aggregate."""
        instance = self.visit(target.value)
        self.assign_attribute(instance, target.attr, value, self.frame.info.name == "__init__" and self.frame.start == self.builder.ip.block)

    # -- the rest --------------------------------------------------------------------------------------------------
    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.visit(node.value)

    def visit_Return(self, node: ast.Return) -> bool:
        value = self.visit(node.value) if node.value is not None else None
        self.at(node)
        if type(value) is constexpr and value.value is None:
            value = None
        self.frame.ret = self.to_tensor(value)
        return True

    def visit_With(self, node: ast.With) -> bool:
        """Context managers made for the compiler: builtin classes whose ``__enter__`` and ``__exit__`` run while compiling, around the body's code."""
        if self.frame.loop is None and any(has_return(s) and not isinstance(s, ast.Return) for s in node.body):
            raise UnsupportedLanguageConstruct("a function returns from a `with` by a return that is no part of a branch or loop in it; "
                                               "set a variable and return after the `with`")
        managers = []
        for item in node.items:
            call = item.context_expr
            fn = static_value(self.visit(call.func)) if isinstance(call, ast.Call) else None
            if fn is None or not getattr(fn, "__triton_builtin__", False):
                raise UnsupportedLanguageConstruct(names.WITH_WHAT)
            manager = self.visit(call)
            managers.append(manager)
            value = manager.__enter__()
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value)
        try:
            return self.run(node.body)
        finally:
            for manager in reversed(managers):
                manager.__exit__(None, None, None)

    def visit_Pass(self, node: ast.Pass) -> None:
        return None

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if not isinstance(target, ast.Name):
                raise UnsupportedLanguageConstruct("del takes names")
            if target.id not in self.frame.scope:
                raise NameResolutionError(f"{target.id} is not a variable of this function, so that del has nothing to delete")
            self.lookup(target.id)  # an error where it has no value
            self.frame.scope[target.id] = Undefined("was deleted")

    def visit_Assert(self, node: ast.Assert) -> None:
        test = self.visit(node.test)
        message = static_value(self.visit(node.msg)) if node.msg is not None else ""
        if isinstance(test, tensor):
            self.at(node)
            self.semantic.device_assert(test, str(message))
        elif not static_value(test):
            raise CompileTimeAssertionFailure(f"assert does not hold{': ' + str(message) if message else ''}")

