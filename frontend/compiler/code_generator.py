"""From the Python source of a kernel to its tt module.

The tree of the kernel is walked once; jit functions that it calls are inlined where they are called, unless they are marked
noinline (codegen_calls). The parts: codegen_base (names, places), codegen_expressions, codegen_statements, codegen_control (branches,
loops) and, here, calls.
"""

from __future__ import annotations

import ast
import inspect
import os
from typing import Any

from tilewright import knobs
from tilewright.compiler.codegen_base import (
    Bind,
    Frame,
    Jumping,
    Lambda,
    Returning,
    Undefined,
    flatten,
    function_of,
    is_jit,
    rebuild,
    static_value,
    wrap,
)
from tilewright.compiler.codegen_calls import CallGenerator
from tilewright.compiler.mlir_builder import MLIRBuilder
from tilewright.compiler.python_functions import PythonFunctions
from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import (
    CompilationError,
    NameResolutionError,
    TypeMismatchError,
    UnsupportedLanguageConstruct,
)
from tilewright.dialects.settings import from_variable, truth
from tilewright.language import core
from tilewright.language import dtypes as t
from tilewright.language.aggregate import Aggregate
from tilewright.language.const import constexpr
from tilewright.language.tensor_descriptor import tensor_descriptor
from tilewright.language.values import active_semantic, tensor
from tilewright.language.values import tuple as tl_tuple

_DEEPEST = 60  # nested calls; more is a recursion in disguise and would exhaust Python's stack


def _seen_by(fn: Lambda) -> dict[str, Any]:
    """The variables that a lambda's body reads, with the values that they have when it is called, as in Python."""
    scope = {**fn.scope, **fn.frame.scope}
    if fn.frame.enclosing is not None:  # it stands in another lambda, whose parameters hide what that one sees
        outer, parameters = fn.frame.enclosing
        scope = {**scope, **_seen_by(outer), **parameters}
    return scope


class CodeGenerator(PythonFunctions, CallGenerator):
    """Generates one kernel."""

    lambdas = 0  # calls of lambdas that are being inlined, one in another

    # -- calls -----------------------------------------------------------------------------------------------------
    def visit_Call(self, node: ast.Call) -> Any:
        fn = self.visit(node.func)
        args = self.elements(node.args)
        kwargs: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise UnsupportedLanguageConstruct("the language of kernels does not have ** in calls")
            kwargs[keyword.arg] = self.visit(keyword.value)
        self.at(node)
        return self.call(fn, args, kwargs)

    def call(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call anything that a kernel can call."""
        fn = fn.value if type(fn) is constexpr else fn
        if core.is_builtin(fn) and not (isinstance(fn, type) and issubclass(fn, t.dtype)):  # types can be called, and are made by their classes
            return wrap(fn(*args, _semantic=self.semantic, **kwargs))
        if is_jit(fn):
            return self.inline(fn, args, kwargs)
        if isinstance(fn, Lambda):
            return self.inline_lambda(fn, args, kwargs)
        special = self.python_functions.get(fn) if getattr(type(fn), "__hash__", None) else None
        if special is not None:
            return special(self, *args, **kwargs)
        bound = getattr(fn, "__self__", None)
        if isinstance(bound, Aggregate) and not is_jit(getattr(fn, "__func__", None)):  # a Python method, which runs while compiling
            known = inspect.signature(fn).parameters
            return wrap(fn(*args, **kwargs, **({"_semantic": self.semantic} if "_semantic" in known else {})))
        if bound is not None and is_jit(getattr(fn, "__func__", None)):
            return self.inline(fn.__func__, [bound, *args], kwargs)
        return self.call_python(fn, args, kwargs)

    def bind(self, fn: Any, info: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            bound = info.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeMismatchError(f"{info.name}: {error}") from None
        bound.apply_defaults()
        scope = {}
        for name, parameter in info.signature.parameters.items():
            value = bound.arguments[name]
            if parameter.kind is parameter.VAR_POSITIONAL:
                value = tl_tuple([wrap(v) for v in value])
            elif parameter.kind is parameter.VAR_KEYWORD:
                raise UnsupportedLanguageConstruct("the language of kernels does not have **kwargs")
            scope[name] = constexpr(value) if isinstance(value, t.dtype) or is_jit(value) else wrap(value)  # what has a .value in a callee
        return scope

    def inline(self, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Generate a jit function's body here, or call it where it is marked noinline; its result."""
        info = function_of(fn)
        if any(f.info is info for f in self.frames):
            raise UnsupportedLanguageConstruct(f"{info.name} calls itself; the language of kernels has no recursion")
        if len(self.frames) > _DEEPEST:
            raise UnsupportedLanguageConstruct(f"calls are nested more than {_DEEPEST} deep")
        scope = self.bind(fn, info, args, kwargs)
        caller, line = self.frame.info, self.line
        try:
            if self.can_be_called(fn, scope):
                return self.call_function(fn, info, scope)
            return self.enter(Frame(fn, info, scope, self.builder.loc), lambda frame: self.run(info.node.body))
        except CompilationError as error:
            error.calls.append((caller.file, caller.line_offset + line, caller.src.splitlines()[line - 1].strip()))
            raise

    def inline_lambda(self, fn: Lambda, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if len(self.frames) + self.lambdas > _DEEPEST:
            raise UnsupportedLanguageConstruct(f"calls are nested more than {_DEEPEST} deep; the language of kernels has no recursion")
        bound = self._bind_lambda(fn, args, kwargs)
        frame = Frame(fn.frame.fn, fn.frame.info, {**_seen_by(fn), **bound}, fn.frame.callsite, fn.frame.nonlocals)
        frame.enclosing = fn, bound

        def body(frame: Frame) -> None:
            frame.ret = self.visit(fn.node.body)

        self.lambdas += 1
        try:
            return self.enter(frame, body, recursive=True)
        finally:
            self.lambdas -= 1

    def _bind_lambda(self, fn: Lambda, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Parameters' values. Defaults are of the variables' values where the lambda stands."""
        a = fn.node.args
        if a.kwarg:
            raise UnsupportedLanguageConstruct("the language of kernels does not have **kwargs")
        positional = [*a.posonlyargs, *a.args]
        defaults = dict(zip([p.arg for p in positional[len(positional) - len(a.defaults):]], a.defaults))
        defaults |= {p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults) if d is not None}
        P = inspect.Parameter
        kinds = [(a.posonlyargs, P.POSITIONAL_ONLY), (a.args, P.POSITIONAL_OR_KEYWORD), ([a.vararg] if a.vararg else [], P.VAR_POSITIONAL),
                 (a.kwonlyargs, P.KEYWORD_ONLY)]
        signature = inspect.Signature([P(p.arg, kind, default=defaults.get(p.arg, P.empty)) for group, kind in kinds for p in group])
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            takes = ", ".join(p.name for p in signature.parameters.values())
            raise TypeMismatchError(f"lambda {takes}: {error}") from None
        values = {name: tl_tuple([wrap(v) for v in value]) if signature.parameters[name].kind is P.VAR_POSITIONAL else wrap(value)
                  for name, value in bound.arguments.items()}
        if a.vararg and a.vararg.arg not in values:
            values[a.vararg.arg] = tl_tuple([])
        missing = {name: node for name, node in defaults.items() if name not in values}
        if missing:
            place = Frame(fn.frame.fn, fn.frame.info, dict(fn.scope), fn.frame.callsite, fn.frame.nonlocals)
            found: dict[str, Any] = {}
            self.enter(place, lambda _: found.update({name: self.visit(node) for name, node in missing.items()}), recursive=True)
            values |= found
        return values

    def enter(self, frame: Frame, body: Any, recursive: bool = False) -> Any:
        saved, location = self.frame, self.builder.loc
        self.frame = frame
        frame.start = self.builder.ip.block
        if not recursive:
            self.frames.append(frame)
        try:
            body(frame)
        finally:
            if not recursive:
                self.frames.pop()
        # not in finally: while an error passes, the frame says where it happened
        self.frame, self.builder.loc = saved, location
        return frame.ret if frame.ret is not None else constexpr(None)

    # -- kernels ---------------------------------------------------------------------------------------------------
    def kernel(self, fn: Any, source: Any) -> Any:
        """The module of ``fn`` with the types, constants and hints of ``source``."""
        info = function_of(fn)
        builder = self.builder
        constants = {path if isinstance(path, tuple) else (info.param_names.index(path),): value for path, value in source.constants.items()}
        location = ir.Location.file(info.file, info.line_offset + info.node.lineno, info.indent + info.node.col_offset + 1)
        builder.loc = location
        arg_types: list[Any] = []
        hints: list[dict[str, Any]] = []
        scope: dict[str, Any] = {}

        def argument(path: tuple[int, ...], kind: Any) -> Any:
            if path in constants or kind == "constexpr":
                return wrap(constants.get(path)) if not isinstance(constants.get(path), t.dtype) else constants[path]
            if isinstance(kind, (tuple, list)):
                return tl_tuple([argument((*path, i), k) for i, k in enumerate(kind)], getattr(kind, "_fields", None))
            type = t.str_to_ty(kind)
            given = {name: builder.attr("", name, int(value)) for name, value in source.attrs.get(path, ())}
            if isinstance(type, t.tensor_descriptor_type):
                arg_types.extend(type.flat_types)
                hints.extend(self.descriptor_hints(type, given))
                return tensor_descriptor.template(type)
            arg_types.append(type)
            hints.append(given)
            return tensor(None, type)

        for i, name in enumerate(info.param_names):
            scope[name] = argument((i,), source.signature.get(name, "constexpr"))
        module = self.module = ir.Module.create(location)
        symbol = getattr(source, "name", fn.__name__)
        self.symbols.add(symbol)
        function_type = ir.FunctionType.get([builder.type(a) for a in arg_types], [])
        function = ir.Operation.create("func.func", regions=1, loc=location, ip=ir.InsertionPoint(module.body), attributes={
            "sym_name": ir.StringAttr.get(symbol), "function_type": ir.TypeAttr.get(function_type),
            "sym_visibility": ir.StringAttr.get("public"), "tt.kernel": builder.unit})
        entry = ir.Block.create_at_start(function.regions[0], function_type.inputs, [location] * len(arg_types))
        builder.entry = entry
        handles = iter([tensor(h, a) for h, a in zip(entry.arguments, arg_types)])
        scope = {name: rebuild(value, handles) for name, value in scope.items()}
        anchor = ir.Operation.create("builtin.unrealized_conversion_cast", loc=location, ip=ir.InsertionPoint(entry))
        builder.constants_at = ir.InsertionPoint(anchor)
        builder.ip = ir.InsertionPoint(entry)
        self.semantic.call_jit = self.call
        frame = Frame(fn, info, scope, None)
        with active_semantic(self.semantic):
            frame.scope.update({name: self.with_descriptors(value) for name, value in scope.items()})
            self.enter(frame, lambda frame: self.visit(info.node))
        builder.loc = location
        ir.Operation.create("func.return", loc=location, ip=ir.InsertionPoint(entry))
        anchor.erase()
        self.drop_uncalled()
        for number, hint in builder.arg_hints.items():
            hints[number].update(hint)
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(h) for h in hints])
        return module

    def descriptor_hints(self, type: Any, of_last_size: dict[str, Any]) -> list[dict[str, Any]]:
        """Of the arguments that a descriptor is: the host has checked that its base and strides are multiples of 16 bytes."""
        rank, steps = len(type.block_shape), 16 // type.element_ty.itemsize
        stride = {"tt.divisibility": self.builder.attr("", "tt.divisibility", steps)} if steps > 1 else {}
        return [{"tt.divisibility": self.builder.attr("", "tt.divisibility", 16)}, *[{} for _ in range(rank - 1)], of_last_size,
                *[stride for _ in range(rank - 1)]]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        if node is not self.frame.info.node:
            return self.unsupported(node)
        self.run(node.body)
        result = self.frame.ret
        if result is not None and (flatten(result, []) or static_value(result) is not None):
            raise TypeMismatchError(f"the kernel {node.name} returns a value; kernels return nothing and write results with tl.store")
        return None


def _dispatch() -> dict[type, Any]:
    table: dict[type, Any] = {}
    for name in dir(CodeGenerator):
        if name.startswith("visit_") and hasattr(ast, name[6:]):
            table[getattr(ast, name[6:])] = getattr(CodeGenerator, name)
    table[ast.List] = CodeGenerator.visit_Tuple
    table[ast.GeneratorExp] = CodeGenerator.visit_ListComp
    table[Bind] = CodeGenerator.visit_Bind
    table[Returning] = CodeGenerator.visit_Returning
    table[Jumping] = CodeGenerator.visit_Jumping
    return table


CodeGenerator.dispatch = _dispatch()


def _full_traceback() -> bool:
    return os.environ.get("TILEWRIGHT_FULL_TRACEBACK", "0") != "0" or knobs.compilation.front_end_debugging


def ast_to_ttir(fn: Any, source: Any, options: Any, capabilities: Any = None) -> Any:
    """The tt module of a jit function; call inside ``mlir_context()``.

    ``source`` has ``signature`` (parameter → "*fp32", "i32", …, "constexpr", or a tuple of such), ``constants`` ({(i,) or
    (i, j): value}) and ``attrs`` ({(i,): [("tt.divisibility", 16), …]}). ``options`` are the launch's (debug,
    default_dot_input_precision). Raises CompilationError subclasses that name the user's file, line and column.
    """
    generator = CodeGenerator(MLIRBuilder(options))
    try:
        module = generator.kernel(fn, source)
    except CompilationError as error:
        raise error.with_traceback(None) if not _full_traceback() else error from error.__cause__
    if from_variable(("TILEWRIGHT_VERIFY",), truth, False):
        module.operation.verify()
    return module


__all__ = ["CodeGenerator", "NameResolutionError", "Undefined", "ast_to_ttir"]
