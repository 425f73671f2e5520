"""What is compiled: a kernel of the Triton language with its signature, or IR text."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from tilewright.dialects.errors import ArgumentError
from tilewright.runtime.dependencies import argument_text
from tilewright.runtime.specialize import constexpr_value, shown

Path_ = tuple[int, ...]


class Specialization(NamedTuple):
    """What ``jit(repr=…)`` is given: constexpr values and argument types, by parameter."""

    constants: dict[str, Any]
    signature: dict[str, Any]


class ASTSource:
    """A jit function specialised for a signature, with Triton's conventions.

    signature: parameter name → type ("*fp32", "i32", "fp32", …, "constexpr", or a tuple of such for a tuple).
    constexprs: values, by parameter name or by path, ``(i,)`` for parameter i, ``(i, j)`` for element j of a tuple; parameters left out of
    the signature are constexprs too. attrs: path → [["tt.divisibility", 16], …].
    """

    ext = "ttir"
    language = "triton"

    def __init__(self, fn: Any, signature: Mapping[str, Any], constexprs: Mapping[Any, Any] | None = None,
                 attrs: Mapping[Any, Any] | None = None):
        while not hasattr(fn, "arg_names") or not hasattr(fn, "params"):
            if not hasattr(fn, "fn"):
                raise ArgumentError(f"ASTSource takes a function decorated with jit; {fn!r} is none")
            fn = fn.fn
        self.fn = fn
        self.name = fn.__name__
        names = list(fn.arg_names)
        self.constants: dict[Path_, Any] = {}
        for key, value in dict(constexprs or {}).items():
            path = (names.index(key),) if isinstance(key, str) and key in names else (key,) if isinstance(key, int) else key
            if not isinstance(path, tuple) or not path or not isinstance(path[0], int) or path[0] >= len(names):
                raise ArgumentError(f"{self.name} has no parameter {key!r}; it has {', '.join(names)}")
            self.constants[path] = constexpr_value(value)
        if not isinstance(signature, Mapping):
            raise ArgumentError(f"{self.name}: the signature is a dict, parameter → type; found {shown(signature)} ({type(signature).__name__})")
        for key in signature:
            if key not in names:
                raise ArgumentError(f"{self.name} has no parameter {key!r}; it has {', '.join(names)}")
        missing = [n for i, n in enumerate(names)
                   if (n not in signature or signature[n] == "constexpr") and (i,) not in self.constants]
        for name in list(missing):
            parameter = fn.params[names.index(name)]
            if parameter.has_default:
                default = parameter.default
                self.constants[(parameter.num,)] = constexpr_value(default)
                missing.remove(name)
        if missing:
            raise ArgumentError(f"{self.name}: no type or constexpr value is given for {', '.join(missing)}")
        self.signature: dict[str, Any] = {n: signature[n] if n in signature and (i,) not in self.constants else "constexpr"
                                          for i, n in enumerate(names)}
        self.attrs: dict[Path_, list[list[Any]]] = {}
        for key, value in dict(attrs or {}).items():
            path = (names.index(key),) if isinstance(key, str) else (key,) if isinstance(key, int) else tuple(key)
            if path not in self.constants:
                self.attrs[path] = self._facts(key, value)
        if getattr(fn, "_repr", None) is not None:
            self.name = self._named()

    def _facts(self, key: Any, value: Any) -> list[list[Any]]:
        """What is known of one argument. Raises ArgumentError for what the compiler does not know: code would be made for something else."""
        found = [list(pair) for pair in value] if isinstance(value, (list, tuple)) and all(isinstance(pair, (list, tuple)) for pair in value) else None
        if found is None or any(pair != ["tt.divisibility", 16] for pair in found):
            raise ArgumentError(f'{self.name}: attrs of {shown(key)} are [["tt.divisibility", 16]] or nothing; found {shown(value)}')
        return found

    def _named(self) -> str:
        """The kernel's name by its ``jit(repr=…)``: what is after the last dot."""
        names = list(self.fn.arg_names)
        constants = {names[path[0]]: value for path, value in self.constants.items() if len(path) == 1}
        try:
            text = self.fn.repr(Specialization(constants, self.signature))
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise
            raise ArgumentError(f"repr of {self.fn.__name__} is called with the specialisation, which has constants and signature; {shown(self.fn.repr)} "
                                f"cannot be ({error})") from None
        name = text.rpartition(".")[2] if isinstance(text, str) else ""
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise ArgumentError(f"repr of {self.fn.__name__} gives a kernel's name, made of letters, digits and _; it gave {text!r}")
        return name

    @property
    def constexprs(self) -> dict[Path_, Any]:
        return self.constants

    def hash(self) -> str:
        """Hex key of the source text, all it depends on, and the specialisation."""
        constants = [f"{path}={argument_text(value)}" for path, value in sorted(self.constants.items())]
        attrs = [f"{path}={sorted(map(str, value))}" for path, value in sorted(self.attrs.items())]
        types = [f"{name}:{kind!r}" for name, kind in self.signature.items()]
        text = "\n".join([self.fn.cache_key, self.name, str(getattr(self.fn, "noinline", None)), *types, *constants, *attrs])
        return hashlib.sha256(text.encode()).hexdigest()

    def types(self) -> list[Any]:
        """The signature's types in the order of the parameters."""
        return list(self.signature.values())

    def make_module(self, selection: Any, options: Any) -> Any:
        """The ``ir.Module`` of tt; called inside ``mlir_context()``."""
        from tilewright.compiler.code_generator import ast_to_ttir
        from tilewright.language.target_info import compiling

        with compiling(selection.gpu_target):
            return ast_to_ttir(self.fn, self, options, selection.plugin.capabilities(selection.arch))

    def make_ir(self, target: Any, options: Any, codegen_fns: Any = None, module_map: Any = None, context: Any = None) -> Any:
        """The tt module for a GPUTarget as tools read one through Triton's bindings (compiler/ir_view.py). The last three are Triton's and mean nothing here.

        Raises what compiling raises, and UnsupportedLanguageConstruct where a parameter is a descriptor or a tuple: it is several arguments of the kernel's, and
        others in Triton's kernels than in these, so that a reader that counts arguments would take one for another."""
        from tilewright.compiler.compiler import load_target
        from tilewright.compiler.ir_view import ModuleView
        from tilewright.dialects.context import mlir_context
        from tilewright.dialects.errors import UnsupportedLanguageConstruct
        from tilewright.targets import registry

        strange = [name for name, kind in self.signature.items() if not isinstance(kind, str) or kind.startswith("tensordesc<")]
        if strange:
            raise UnsupportedLanguageConstruct(f"{self.name}: the parameters {', '.join(strange)} are descriptors or tuples, which are no single arguments in tt; "
                                               "look at kernel.asm['ttir']")
        selection = registry.select(target)
        with mlir_context():
            load_target(selection.plugin)
            return ModuleView(self.make_module(selection, options))


_FUNCTION = re.compile(r"(?:func\.func|tt\.func)\s+(?:public\s+|private\s+)?@\"?([\w$.]+)\"?\s*\(")
_IR_NAMES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32",
             "i64": "i64", "f8E4M3FN": "fp8e4nv", "f8E5M2": "fp8e5"}


class IRSource:
    """IR text of one of the target's MLIR stages, from a file ``NAME.STAGE`` ("kernel.ttir", "kernel.ttgir") or given as ``text``."""

    language = "ir"

    def __init__(self, path: Any, text: str | None = None, ext: str | None = None):
        self.path = str(path)
        self.ext = ext or os.path.splitext(self.path)[1].removeprefix(".")
        if text is None:
            try:
                with open(self.path, encoding="utf-8") as f:
                    text = f.read()
            except (OSError, UnicodeDecodeError) as error:
                raise ArgumentError(f"the IR file {self.path} cannot be read ({getattr(error, 'strerror', None) or error})") from None
        self.src = text
        found = _FUNCTION.search(text) or re.search(r"sym_name\s*=\s*\"([\w$.]+)\"", text)
        if found is None:
            raise ArgumentError(f"{self.path} holds no function")
        self.name = found.group(1)
        self._types: list[str] | None = None
        self.constants: dict[Path_, Any] = {}
        self.attrs: dict[Path_, Any] = {}

    def options(self, given: Mapping[str, Any], warp_size: int) -> dict[str, Any]:
        """``given`` with the num_warps that the text was made for. Raises ArgumentError where it cannot run as asked."""
        facts = {name: int(found.group(1)) for name in ("num-warps", "threads-per-warp")
                 if (found := re.search(rf'"?ttg\.{name}"?\s*=\s*(\d+)', self.src))}
        lanes, warps = facts.get("threads-per-warp", warp_size), facts.get("num-warps")
        if lanes != warp_size:
            raise ArgumentError(f"{self.path} was made for warps of {lanes} lanes, and those of the target have {warp_size}")
        if warps is None:
            return dict(given)
        if given.get("num_warps", warps) != warps:
            raise ArgumentError(f"{self.path} was made for num_warps={warps}, which its layouts hold; found num_warps={given['num_warps']}")
        return {**given, "num_warps": warps}

    def hash(self) -> str:
        return hashlib.sha256(f"{self.ext}\n{self.src}".encode()).hexdigest()

    def types(self) -> list[Any]:
        """Types of the function's arguments; known once ``make_module`` ran."""
        if self._types is None:
            raise ArgumentError("the argument types of an IRSource are known after it is parsed")
        return self._types

    @property
    def signature(self) -> dict[int, str]:
        return dict(enumerate(self.types()))

    def make_module(self, selection: Any, options: Any) -> Any:
        from tilewright.dialects._mlir import ir
        from tilewright.dialects.errors import CompilationError

        try:
            module = ir.Module.parse(self.src)
        except ir.MLIRError as error:
            raise CompilationError(f"{self.path} does not parse as MLIR: {error}") from error
        for op in module.body.operations:
            if op.operation.name == "func.func" and ir.StringAttr(op.attributes["sym_name"]).value == self.name:
                self._types = [_signature_name(str(t)) for t in ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value).inputs]
        return module


def _signature_name(text: str) -> str:
    found = re.match(r"!tt\.ptr<(\w+)", text)
    name = _IR_NAMES.get(found.group(1) if found else text)
    if name is None:
        raise ArgumentError(f"a kernel's argument of type {text} has no name in signatures")
    return f"*{name}" if found else name
