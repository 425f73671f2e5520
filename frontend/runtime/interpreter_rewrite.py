"""A kernel's code as the interpreter runs it: Python's, with a call of the language's rules (interpreter_rules) in place of each operator, display,
choice and assignment, and a refusal in place of what the language does not have, so that it is refused when it is reached.

Every call stands in the line and column of what it replaces: debuggers and errors see the user's source. ``import`` stays where it is of a debugger
or of what is used beside one; a kernel that is compiled has none.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
import types
import weakref
from collections.abc import Iterable
from typing import Any

from tilewright.compiler import names
from tilewright.dialects.errors import UnsupportedLanguageConstruct
from tilewright.language import core
from tilewright.runtime.errors import KernelCallError
from tilewright.runtime.interpreter_rules import RULES, Spin

_STAYS = (ast.Return, ast.Break, ast.Continue, ast.Import, ast.ImportFrom, ast.NamedExpr, ast.Delete)  # of an if whose branches are not compared
_DEBUGGERS = frozenset(("IPython", "bdb", "code", "debugpy", "faulthandler", "ipdb", "logging", "os", "pdb", "pudb", "pydevd", "pydevd_pycharm", "remote_pdb", "rpdb", "sys",
                        "traceback", "web_pdb"))  # what may be imported where a kernel is debugged
_FUNCTION = "_tw_function"
_sites = itertools.count()  # a number for each ``if``
OBJECT = "_tw"  # the variable, of no scope of the user's, that holds the rules


def _lacks(node: ast.AST) -> str | None:
    """Why the language does not have this very node."""
    kind = type(node).__name__
    if isinstance(node, (ast.Import, ast.ImportFrom)) and _for_debuggers(node):
        return None
    if kind in names.WHY_NOT:
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
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)) and len(node.generators) != 1:
        return names.ONE_FOR
    if isinstance(node, ast.With) and not all(isinstance(i.context_expr, ast.Call) for i in node.items):
        return names.WITH_WHAT
    return None


def _for_debuggers(node: ast.Import | ast.ImportFrom) -> bool:
    modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return all(module.split(".")[0] in _DEBUGGERS for module in modules)


def _expressions(statement: ast.stmt) -> list[ast.AST]:
    """The expressions of a statement, without those of statements in it."""
    found: list[ast.AST] = []
    ahead = [n for n in ast.iter_child_nodes(statement) if not isinstance(n, ast.stmt)]
    while ahead:
        node = ahead.pop(0)
        found.append(node)
        ahead += [n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.stmt)]
    return found


def _stored(nodes: list[ast.stmt]) -> set[str]:
    """Names that statements assign, also by an item or an attribute."""
    found = set()
    for statement in nodes:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
                found.add(node.id)
            elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                inner: ast.expr = node
                while isinstance(inner, (ast.Subscript, ast.Attribute)):
                    inner = inner.value
                if isinstance(inner, ast.Name):
                    found.add(inner.id)
    return found


def _leaves(body: list[ast.stmt]) -> bool:
    return any(isinstance(node, (ast.Break, ast.Return)) for statement in body for node in ast.walk(statement))


class Rewriter(ast.NodeTransformer):
    """Rewrites the statements of one function. ``modules``: whether a name is a module's; ``local``: the function's own variables."""

    def __init__(self, function: ast.FunctionDef, scope: dict[str, Any]):
        self.scope, self.name = scope, function.name
        a = function.args
        parameters = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else []))]
        self.local = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)} | set(parameters)
        self.temporaries = 0

    # -- making nodes ----------------------------------------------------------------------------------------------
    def rule(self, place: ast.AST, name: str, *args: ast.expr) -> ast.Call:
        """``_tw.name(*args)`` where ``place`` stands."""
        call = ast.Call(ast.Attribute(ast.Name(OBJECT, ast.Load()), name, ast.Load()), list(args), [])
        for made in (call, call.func, call.func.value):  # type: ignore[attr-defined]
            ast.copy_location(made, place)
        for made in (call.func, call.func.value):  # type: ignore[attr-defined]
            # of one line: Python gives calls of methods the line where a function over several ends
            made.end_lineno, made.end_col_offset = made.lineno, made.col_offset
        for arg in args:
            if not hasattr(arg, "lineno"):
                ast.copy_location(arg, place)
                ast.fix_missing_locations(arg)
        return call

    def statement(self, place: ast.AST, made: Any) -> Any:
        ast.copy_location(made, place)
        return ast.fix_missing_locations(made)

    def temporary(self) -> str:
        self.temporaries += 1
        return f"{OBJECT}_{self.temporaries}"

    def is_module(self, node: ast.expr) -> bool:
        """Whether an expression is a module, or a part of one, by its names alone."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id not in self.local and isinstance(self.scope.get(node.id), types.ModuleType)

    def named(self, node: ast.expr) -> Any:
        """What such an expression names; None of nothing."""
        if isinstance(node, ast.Attribute):
            return getattr(self.named(node.value), node.attr, None)
        return self.scope.get(node.id) if isinstance(node, ast.Name) else None

    # -- what is refused -------------------------------------------------------------------------------------------
    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.stmt):
            for found in [node] if _lacks(node) else _expressions(node):
                reason = _lacks(found)
                if reason:
                    return self.refusal(node, found, reason)
        return super().visit(node)

    def refusal(self, statement: ast.stmt, found: ast.AST, reason: str) -> ast.stmt:
        call = self.rule(found, "refuse", ast.Constant(reason))
        # what follows a return is never reached, nor seen
        return self.statement(found, ast.Return(call) if isinstance(statement, ast.Return) else ast.Expr(call))

    # -- expressions -----------------------------------------------------------------------------------------------
    def visit_BinOp(self, node: ast.BinOp) -> Any:
        self.generic_visit(node)
        return self.rule(node, type(node.op).__name__, node.left, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.operand, ast.Constant) and not isinstance(node.op, ast.Not):  # a number of the source
            return node
        self.generic_visit(node)
        return self.rule(node, type(node.op).__name__, node.operand)

    def visit_Compare(self, node: ast.Compare) -> Any:
        self.generic_visit(node)
        if len(node.ops) == 1:
            return self.rule(node, type(node.ops[0]).__name__, node.left, node.comparators[0])
        links = [self.rule(node, "link", ast.Constant(type(op).__name__), rhs) for op, rhs in zip(node.ops, node.comparators)]
        return self.rule(node, "chained", ast.BoolOp(ast.And(), [self.rule(node, "chain", node.left), *links]))

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        self.generic_visit(node)
        begin = self.rule(node, "begin", ast.Constant(isinstance(node.op, ast.And)))
        return self.rule(node, "end", ast.BoolOp(node.op, [begin, *(self.rule(v, "step", v) for v in node.values)]))

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        effects = any(isinstance(n, (ast.Call, ast.NamedExpr, ast.Lambda, ast.ListComp, ast.GeneratorExp)) for part in (node.body, node.orelse)
                      for n in ast.walk(part))
        self.generic_visit(node)
        if not effects:
            nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
            return self.rule(node, "pick", node.test, *(ast.copy_location(ast.Lambda(nothing, part), part) for part in (node.body, node.orelse)))
        node.test = self.rule(node.test, "choice", node.test)
        return self.rule(node, "chosen", node)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        self.generic_visit(node)
        node.value = self.rule(node.value, "run_time", node.value)
        return node

    def visit_Tuple(self, node: ast.Tuple | ast.List) -> Any:
        self.generic_visit(node)
        return self.rule(node, "tuple", *node.elts) if isinstance(node.ctx, ast.Load) else node

    visit_List = visit_Tuple

    def visit_Starred(self, node: ast.Starred) -> Any:
        self.generic_visit(node)
        if isinstance(node.ctx, ast.Load):
            node.value = self.rule(node.value, "star", node.value)
        return node

    def visit_Dict(self, node: ast.Dict) -> Any:
        self.generic_visit(node)
        return self.rule(node, "dict", *(e for pair in zip(node.keys, node.values) for e in pair))  # type: ignore[arg-type]  # a star-dict's key is None

    def visit_Slice(self, node: ast.Slice) -> Any:
        self.generic_visit(node)
        return self.rule(node, "slice", *(part or ast.Constant(None) for part in (node.lower, node.upper, node.step)))

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        self.generic_visit(node)
        return self.rule(node, "subscript", ast.Constant(None), node.value, node.slice) if isinstance(node.ctx, ast.Load) else node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        if self.is_module(node):
            return node
        self.generic_visit(node)
        return self.rule(node, "part", node.value, ast.Constant(node.attr)) if isinstance(node.ctx, ast.Load) else node

    def visit_Call(self, node: ast.Call) -> Any:
        node.args = [self.visit(a) for a in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        fn = node.func
        if isinstance(fn, ast.Name) and fn.id in names.BUILTIN_NAMES:
            node.args = [fn, *node.args]
            node.func = self.rule(node, "python").func
            ast.copy_location(node.func, fn)
        elif isinstance(fn, ast.Attribute):  # a method, or a function of a module
            if self.is_module(fn):
                if not core.is_builtin(self.named(fn)):
                    node.func = self.rule(fn, "callee", fn)
            else:
                fn.value = self.visit(fn.value)
        elif not isinstance(fn, ast.Name):
            node.func = self.visit(fn)
        elif fn.id in self.local:
            node.func = self.rule(fn, "variable", fn)
        return node

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> Any:
        generator = node.generators[0]
        generator.iter = self.rule(generator.iter, "unrolled", self.visit(generator.iter))
        generator.ifs = [self.rule(test, "decided", self.visit(test)) for test in generator.ifs]
        made = self.statement(node, ast.ListComp(self.visit(node.elt), node.generators))
        return self.rule(node, "tuple", ast.copy_location(ast.Starred(made, ast.Load()), node))

    visit_GeneratorExp = visit_ListComp

    def visit_FormattedValue(self, node: ast.FormattedValue) -> Any:
        self.generic_visit(node)
        node.value = self.rule(node.value, "text", node.value)
        return node

    # -- assignments -----------------------------------------------------------------------------------------------
    def targets(self, target: ast.expr, after: list[ast.stmt]) -> ast.expr:
        """A target as Python assigns it; statements that finish what it does not do itself are added to ``after``."""
        if isinstance(target, (ast.Tuple, ast.List)):
            target.elts = [self.targets(t, after) for t in target.elts]
        elif isinstance(target, ast.Starred):
            target.value = self.targets(target.value, after)
            if isinstance(target.value, ast.Name):
                name = target.value.id
                load = ast.Starred(ast.Name(name, ast.Load()), ast.Load())
                after.insert(0, self.statement(target, ast.Assign([ast.Name(name, ast.Store())], self.rule(target, "tuple", load))))
        elif isinstance(target, (ast.Subscript, ast.Attribute)):
            name = self.temporary()
            after += self.store(target, ast.Name(name, ast.Load()))
            return self.statement(target, ast.Name(name, ast.Store()))
        return target

    def store(self, target: ast.expr, value: ast.expr, back: bool = False) -> list[ast.stmt]:
        """Statements that assign ``value`` (rewritten already) to a name, an item or an attribute."""
        if isinstance(target, ast.Name):
            if target.id not in self.local:  # a global, which the rules have refused when Python comes to it
                return [self.statement(target, ast.Expr(value))]
            return [self.statement(target, ast.Assign([ast.Name(target.id, ast.Store())], value))]
        if isinstance(target, ast.Subscript):
            whole, index = self.loaded(target.value), self.visit(target.slice)
            return self.store(target.value, self.rule(target, "with_item", whole, index, value), True)
        if isinstance(target, ast.Attribute):
            call = self.rule(target, "back" if back else "assign_attribute", self.loaded(target.value), ast.Constant(target.attr), value,
                             ast.Constant(self.name == "__init__"))
            return [self.statement(target, ast.Expr(call))]
        raise AssertionError(target)

    def loaded(self, target: ast.expr) -> Any:
        """An expression that stands as a target, or in one, as it is read, rewritten."""
        copy = ast.parse(ast.unparse(target), mode="eval").body
        for node in ast.walk(copy):
            if hasattr(node, "lineno"):
                ast.copy_location(node, target)
        return self.visit(copy)

    def visit_Assign(self, node: ast.Assign) -> Any:
        value = self.visit(node.value)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Attribute):  # a field, whose kind says what becomes of a number
            return self.store(node.targets[0], value)
        value = self.rule(node, "run_time", value)
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript):
            return self.store(node.targets[0], value)
        after: list[ast.stmt] = []
        if isinstance(node.targets[0], (ast.Tuple, ast.List)):
            elements = node.targets[0].elts
            count = None if any(isinstance(t, ast.Starred) for t in elements) else len(elements)
            value = self.rule(node, "several", value, ast.Constant(count))
        node.targets = [self.targets(t, after) for t in node.targets]
        node.value = value
        return [node, *after]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        value = self.rule(node, type(node.op).__name__, self.loaded(node.target), self.visit(node.value))
        return self.store(node.target, self.rule(node, "run_time", value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        annotation = self.visit(node.annotation)
        if node.value is None:
            return self.statement(node, ast.Expr(self.rule(node, "declared", annotation)))
        return self.store(node.target, self.rule(node, "annotated", annotation, self.visit(node.value)))

    # -- statements ------------------------------------------------------------------------------------------------
    def visit_Return(self, node: ast.Return) -> Any:
        if node.value is not None:
            node.value = self.rule(node.value, "to_tensor", self.visit(node.value))
        return node

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for statement in statements:
            made = self.visit(statement)
            out += made if isinstance(made, list) else [made]
        return out

    def visit_If(self, node: ast.If) -> Any:
        inner = [n for statement in (*node.body, *node.orelse) for n in ast.walk(statement)]
        if any(isinstance(n, _STAYS) or isinstance(n, ast.Name) and n.id == "breakpoint" for n in inner):
            node.test = self.rule(node.test, "truth", self.visit(node.test))
            node.body, node.orelse = self.body(node.body), self.body(node.orelse)
            return node
        return self.forked(node, inner)

    def forked(self, node: ast.If, inner: list[ast.AST]) -> list[ast.stmt]:
        """An ``if`` both of whose branches are looked at (interpreter_branches), ``inner`` being all that stands in them::

            fork = _tw.fork(test, …)
            for taken in fork.passes:
                try:
                    if taken: … else: …
                except fork.ignored:
                    fork.failed = True
                if fork.ends():
                    …  # set variables back
        """
        stored = sorted(_stored([node]) & self.local)
        loops = [n for n in inner if isinstance(n, (ast.For, ast.While))]
        loose = _names({name for loop in loops for name in _stored([loop])})
        counters = {n.id for loop in loops if isinstance(loop, ast.For) for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
        names = [name for name in stored if name not in counters]
        fork, taken = self.temporary(), self.temporary()
        call = self.rule(node.test, "fork", self.visit(node.test), _names(names), loose, ast.Constant(next(_sites)))
        node.test = ast.copy_location(ast.Name(taken, ast.Load()), node.test)
        node.body, node.orelse = self.body(node.body), self.body(node.orelse)

        def part(name: str, *args: ast.expr) -> Any:
            made = ast.Attribute(ast.Name(fork, ast.Load()), name, ast.Load())
            return ast.Call(made, list(args), []) if args or name == "ends" else made

        back: list[ast.stmt] = []
        for name in names:
            drop: list[ast.stmt] = [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None)), ast.Delete([ast.Name(name, ast.Del())])]
            old = ast.Subscript(part("old"), ast.Constant(name), ast.Load())
            again = ast.If(part("resets"), [ast.Assign([ast.Name(name, ast.Store())], old)], [])
            back.append(ast.If(part("drops", ast.Constant(name)), drop, [again]))
        failed = ast.Assign([ast.Attribute(ast.Name(fork, ast.Load()), "failed", ast.Store())], ast.Constant(True))
        guarded = ast.Try([node], [ast.ExceptHandler(part("ignored"), None, [failed])], [], [])
        loop = ast.For(ast.Name(taken, ast.Store()), part("passes"), [guarded, ast.If(part("ends"), back or [ast.Pass()], [])], [])
        for made in ast.walk(loop):
            if not hasattr(made, "lineno") and isinstance(made, (ast.expr, ast.stmt, ast.ExceptHandler)):
                made.lineno, made.col_offset = node.lineno, node.col_offset  # type: ignore[union-attr]
                made.end_lineno, made.end_col_offset = node.lineno, node.col_offset  # type: ignore[union-attr]
        return [self.statement(node.test, ast.Assign([ast.Name(fork, ast.Store())], call)), loop]

    def visit_For(self, node: ast.For) -> Any:
        one_name = isinstance(node.target, ast.Name)
        changed = _names(_stored(node.body) - {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)})
        node.iter = self.rule(node.iter, "iterate", self.visit(node.iter), ast.Constant(one_name), changed)
        first: list[ast.stmt] = []
        node.target = self.targets(node.target, first)
        node.body = [*first, *self.body(node.body)]
        return node

    def visit_While(self, node: ast.While) -> Any:
        read = {n.id for n in ast.walk(node.test) if isinstance(n, ast.Name)}
        fixed = not _leaves(node.body) and not read & _stored(node.body)
        spin, changed = self.temporary(), _names(_stored(node.body))
        node.test = self.rule(node.test, "again", self.visit(node.test), ast.Constant(fixed), ast.Name(spin, ast.Load()), changed)
        node.body = self.body(node.body)
        return [self.statement(node, ast.Assign([ast.Name(spin, ast.Store())], self.rule(node, "Spin"))), node]

    def visit_Assert(self, node: ast.Assert) -> Any:
        parts = [self.visit(node.test)] + ([self.visit(node.msg)] if node.msg is not None else [])
        return self.statement(node, ast.Expr(self.rule(node, "asserted", *parts)))

    def visit_With(self, node: ast.With) -> Any:
        for item in node.items:
            call = self.visit(item.context_expr)
            call.func = self.rule(call, "manager", call.func)
        node.body = self.body(node.body)
        return node


def _refuse(reason: str) -> None:
    raise UnsupportedLanguageConstruct(reason)


RULES.refuse, RULES.Spin = _refuse, Spin  # type: ignore[attr-defined]
_codes: weakref.WeakKeyDictionary[Any, types.CodeType] = weakref.WeakKeyDictionary()


def code_of(fn: Any) -> types.CodeType:
    """The code of ``fn``, rewritten; a lambda's as it is. Cached with the function. Raises KernelCallError where the source cannot be read: Python's own
    meaning of it may be another (``-7 // 2``)."""
    found = _codes.get(fn)
    if found is None:
        found = _codes[fn] = _rewritten(fn)
    return found


def _rewritten(fn: Any) -> types.CodeType:
    code: types.CodeType = fn.__code__
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError) as error:
        raise KernelCallError(f"the source of {code.co_name!r} cannot be read ({error}); define jit functions in a file or a notebook cell, not by exec or in an "
                              "interactive prompt") from None
    text = "".join(lines)
    indent = len(text) - len(text.lstrip(" "))
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError:  # a lambda in the middle of a statement
        if code.co_name == "<lambda>":
            return code
        raise
    node = tree.body[0]
    if code.co_name == "<lambda>":
        return code
    if not isinstance(node, ast.FunctionDef) or node.name != inspect.unwrap(fn).__code__.co_name:
        raise KernelCallError(f"{code.co_filename}:{code.co_firstlineno}: what stands there is not {code.co_name}: the file was edited since Python has read it; start again, or "
                              "reload the module")
    rewriter = Rewriter(node, fn.__globals__)
    node.body = rewriter.body(node.body)
    if node.args.kwarg:
        node.body.insert(0, rewriter.refusal(node, node, names.NO_KWARGS))
    if node.args.vararg:
        name = node.args.vararg.arg
        load = ast.Starred(ast.Name(name, ast.Load()), ast.Load())
        node.body.insert(0, rewriter.statement(node, ast.Assign([ast.Name(name, ast.Store())], rewriter.rule(node, "tuple", load))))
    node.decorator_list, node.name = [], _FUNCTION
    # variables of functions around it, and the rules, are cells only within a function that has them
    holder = ast.parse(f"def _tw_holder({', '.join([*code.co_freevars, OBJECT])}): pass").body[0]
    assert isinstance(holder, ast.FunctionDef)
    holder.body = [node]
    tree.body = [holder]
    for inner in ast.walk(tree):
        if hasattr(inner, "col_offset") and not getattr(inner, "_tw_moved", False):
            inner._tw_moved = True  # type: ignore[attr-defined]
            inner.col_offset += indent  # type: ignore[attr-defined]
            if getattr(inner, "end_col_offset", None) is not None:
                inner.end_col_offset += indent  # type: ignore[attr-defined]
            inner.lineno += first - 1  # type: ignore[attr-defined]
            if getattr(inner, "end_lineno", None) is not None:
                inner.end_lineno += first - 1  # type: ignore[attr-defined]
    made = _inside(compile(tree, code.co_filename, "exec"), _FUNCTION)
    assert made is not None
    named: dict[str, Any] = {"co_name": code.co_name}
    if hasattr(code, "co_qualname"):  # since Python 3.11
        named["co_qualname"] = code.co_qualname
    return made.replace(**named)


def _names(names: Iterable[str]) -> ast.Constant:
    """A tuple of names in order, which compile() takes as a constant."""
    return ast.Constant(tuple(sorted(names)))  # type: ignore[arg-type]


def _inside(code: types.CodeType, name: str) -> types.CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found = constant if constant.co_name == name else _inside(constant, name)
            if found is not None:
                return found
    return None


__all__ = ["OBJECT", "RULES", "code_of"]
