"""Run kernels as the Python that they are: ``TILEWRIGHT_INTERPRET=1``, or ``InterpretedFunction(kernel)`` on any kernel.

Programs run one after another in the order of the grid, x fastest, on numpy tiles, so breakpoints and prints work and
results do not vary. It is the oracle of the tests: it shares the language's type rules with the compiler and nothing of
the passes and lowerings. Device tensors are copied to the host and back. Every address is checked against the arguments.
"""

from __future__ import annotations

import builtins
import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import knobs
from tilewright.compiler.rules import is_static, static_value, wrap
from tilewright.dialects.errors import ArgumentError, TilewrightError, TypeMismatchError, UnsupportedLanguageConstruct
from tilewright.language import core as tl
from tilewright.language.semantic import Semantic
from tilewright.runtime.arguments import TensorWrapper, owner, storage
from tilewright.runtime.binder import make_collector
from tilewright.runtime.callables import KernelParam
from tilewright.runtime.errors import KernelCallError
from tilewright.runtime.interpreter_builder import Cell, NumpyBuilder
from tilewright.runtime.interpreter_memory import InterpreterError, Memory
from tilewright.runtime.interpreter_rewrite import OBJECT, RULES, code_of
from tilewright.runtime.interpreter_scope import Scope, checked, placed
from tilewright.runtime.refusals import check_arguments, check_listed, check_memory, unbound
from tilewright.runtime.specialize import PINNED, constexpr_value, is_read_only, pointer_facts
from tilewright.runtime.warm_launch import MISSING, GridArguments, called_grid, normalise_grid

__all__ = ["InterpretedFunction", "InterpreterError"]

class _Arguments:
    """Turns launch arguments into values of the language; owns the host copies of device tensors."""

    def __init__(self, memory: Memory):
        self.memory = memory
        self.copies: dict[int, tuple[Any, Any]] = {}  # device storage address → (device storage, host storage)

    def declared(self, name: str, value: Any, kind: Any) -> Any:
        """A number as the scalar type that the parameter's annotation says."""
        number = value.item() if isinstance(value, np.generic) else value
        if kind.is_int() and not kind.is_bool():
            if not isinstance(number, int) or not kind.get_int_min_value() <= number <= kind.get_int_max_value():
                raise ArgumentError(f"argument {name!r}: {number!r} does not fit the type {kind} that its annotation says")
        return tl.tensor(NumpyBuilder(self.memory).constant(number, kind), kind)

    def convert(self, name: str, value: Any, is_constexpr: bool, parameter: Any = None) -> Any:
        if parameter is not None and parameter.annotation_type and isinstance(value, (bool, int, float, np.number, np.bool_)):
            return self.declared(name, value, tl.str_to_ty(parameter.annotation_type))
        if value is None or isinstance(value, tl.constexpr) and value.value is None:
            return None  # and no constexpr: Python's `is None` in the kernel has to see it
        if is_constexpr or isinstance(value, (str, tl.dtype, InterpretedFunction, tl.constexpr)) or callable(value):
            if is_constexpr:
                value = tl.constexpr(constexpr_value(value)) if isinstance(value, tl.constexpr) else constexpr_value(value)
            bare = isinstance(value, (tl.constexpr, InterpretedFunction)) or (callable(value) and not isinstance(value, tl.dtype))
            return value if bare else tl.constexpr(value)
        if isinstance(value, (bool, np.bool_)):
            return tl.tensor(Cell(np.bool_(value), tl.int1), tl.int1)
        if isinstance(value, (int, np.integer)):
            value = int(value)
            if not -(2**63) <= value < 2**64:
                raise ArgumentError(f"argument {name!r}: the integer {value} needs more than 64 bits")
            kind = tl.int32 if -(2**31) <= value < 2**31 else tl.int64 if value < 2**63 else tl.uint64
            return tl.tensor(Cell(np.uint64(value).view(np.int64) if kind is tl.uint64 else kind_array(kind, value), kind), kind)
        if isinstance(value, (float, np.floating)):
            return tl.tensor(Cell(np.float32(value), tl.float32), tl.float32)
        if isinstance(value, builtins.tuple):
            return tl.tuple([self.convert(f"{name}[{i}]", v, False) for i, v in enumerate(value)], getattr(value, "_fields", None))
        if hasattr(value, "block_shape") and hasattr(value, "padding"):
            return self._descriptor(name, value)
        pointer = self._pointer(name, value)
        if parameter is not None and parameter.is_const:
            kind = tl.pointer_type(pointer.type.element_ty, pointer.type.address_space, True)
            return tl.tensor(Cell(pointer.handle.data, kind), kind)
        return pointer

    def _descriptor(self, name: str, value: Any) -> Any:
        from tilewright.tools.tensor_descriptor import check

        try:
            check(value)
        except ArgumentError as reason:
            raise ArgumentError(f"argument {name!r}: {reason}") from None
        base = self._pointer(name, value.base)
        kind = tl.tensor_descriptor_type(tl.block_type(base.type.element_ty, value.block_shape), value.padding)
        numbers = [tl.tensor(Cell(np.dtype(f"int{t.int_bitwidth}").type(v), t), t)
                   for v, t in zip([*value.shape, *value.strides[:-1]], kind.flat_types[1:])]
        return tl.tensor_descriptor.template(kind).with_parts([base, *numbers])

    def _pointer(self, name: str, value: Any) -> Any:
        """The pointer that a compiled launch would pass, of whatever it takes for an array; its memory becomes reachable."""
        try:
            element, device, address = pointer_facts(value)
        except ArgumentError as reason:
            raise ArgumentError(f"argument {name!r}: {reason}") from None
        array = owner(value)
        if hasattr(array, "untyped_storage"):
            if getattr(array, "is_sparse", False) or getattr(getattr(array, "device", None), "type", "") == "meta":
                raise ArgumentError(f"argument {name!r} has no elements in memory (device {array.device}, layout {array.layout}); pass a dense tensor")
            memory = array.untyped_storage()
            low = memory.data_ptr()
            if device not in (None, "cpu", PINNED):
                if low not in self.copies:
                    self.copies[low] = (memory, memory.cpu())
                memory = self.copies[low][1]
                address += memory.data_ptr() - low if address else 0  # null: a view without elements
            self.memory.add(memory.data_ptr(), memory.nbytes())
        else:
            if device not in (None, "cpu", PINNED):
                raise ArgumentError(f"argument {name!r}, a {type(value).__name__}, lies on {device} and has no untyped_storage() that the interpreter could "
                                    "copy to the host; pass a torch tensor, or an array of the host")
            span = storage(array)
            if span is None:
                raise ArgumentError(f"argument {name!r}, a {type(value).__name__}, tells an address and not how much memory lies there, and the interpreter "
                                    "checks every address; give the class untyped_storage(), shape and stride(), numel() or nbytes")
            self.memory.add(span[0], span[1] - span[0])
            if is_read_only(value):
                part = value.base if isinstance(value, TensorWrapper) else value
                self.memory.read_only.append((*_byte_bounds(np.asarray(part)), name))
        pointer = tl.pointer_type(tl.str_to_ty(element))
        return tl.tensor(Cell(np.uint64(address), pointer), pointer)

    def write_back(self) -> None:
        for device, host in self.copies.values():
            device.copy_(host)


def kind_array(kind: Any, value: int) -> Any:
    return np.int32(value) if kind is tl.int32 else np.int64(value)


def _byte_bounds(array: np.ndarray) -> tuple[int, int]:
    """Lowest address and one past the highest that the elements of a strided array lie at."""
    low = high = array.__array_interface__["data"][0]
    for size, stride in zip(array.shape, array.strides):
        if size == 0:
            return low, low
        low, high = (low + (size - 1) * stride, high) if stride < 0 else (low, high + (size - 1) * stride)
    return low, high + array.itemsize


RULES.interpreted = lambda fn: interpreted(fn)  # type: ignore[method-assign]
_interpreted: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def interpreted(fn: Any) -> Any:
    """A jit function as the interpreter runs it, one a function; anything else as it is."""
    if type(fn).__name__ != "JITFunction":
        return fn
    found = _interpreted.get(fn)
    if found is None:
        found = _interpreted[fn] = InterpretedFunction(fn)
    return found


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet: Python says so where it is read
        return tl.constexpr(None)


class InterpretedFunction:
    """A kernel or helper that runs in Python. Same launch interface as a compiled one; options such as num_warps are taken
    and mean nothing here."""

    __interprets__ = True
    launch: Any = None  # the latest one, of any kernel
    _made: tuple[Any, Any] = (0, None)  # what is run of ``fn``, and in which launch
    launches = 0  # of all kernels: tells whether a piece of code launched any

    def __init__(self, fn: Any, **options: Any):
        self.fn = getattr(fn, "fn", fn)
        self.options = {"debug": getattr(fn, "debug", None), **options}
        self.__name__, self.__doc__, self.__module__ = self.fn.__name__, self.fn.__doc__, self.fn.__module__
        self.__wrapped__ = self.fn
        self.signature = inspect.signature(self.fn)
        self.arg_names = list(self.signature.parameters)
        self.constexprs = {n for n, p in self.signature.parameters.items() if "constexpr" in str(getattr(p.annotation, "__name__", p.annotation))}
        self.params = {n: KernelParam(i, p, False, False) for i, (n, p) in enumerate(self.signature.parameters.items())}
        self._rest = next((n for n, p in self.signature.parameters.items() if p.kind is p.VAR_POSITIONAL), None)
        self._hooks: list[Callable[..., None]] = []
        self._collect: Any = None

    def __repr__(self) -> str:
        return f"InterpretedFunction({self.__module__}:{self.__name__})"

    def add_pre_run_hook(self, hook: Callable[..., None]) -> None:
        self._hooks.append(hook)

    @property
    def value(self) -> InterpretedFunction:
        """What a constexpr that holds the function answers: here it is handed on bare."""
        return self

    def _python(self) -> Callable[..., Any]:
        """The function with the language's meaning of Python's syntax, and with its jit helpers interpreted. Made once a launch, in which
        globals stay what they are."""
        launch, made = self._made
        if launch is not InterpretedFunction.launch:
            made = self._make()
            self._made = InterpretedFunction.launch, made
        return made

    def _make(self) -> Callable[..., Any]:
        code = code_of(self.fn)
        cells = dict(zip(self.fn.__code__.co_freevars, self.fn.__closure__ or ()))
        for name, cell in cells.items():
            value = _contents(cell)
            if name != self.fn.__name__:
                checked(name, value)
            if interpreted(value) is not value:
                cells[name] = types.CellType(interpreted(value))
        closure = builtins.tuple(types.CellType(RULES) if n == OBJECT else cells[n] for n in code.co_freevars)
        out = types.FunctionType(code, Scope(self.fn.__globals__, interpreted), self.fn.__name__, self.fn.__defaults__, closure or None)
        out.__kwdefaults__ = self.fn.__kwdefaults__
        return out

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call from another kernel that is being interpreted."""
        try:
            builder = tl.current_semantic().builder
        except TilewrightError:  # outside of a kernel
            raise KernelCallError(f"{self.__name__} is a kernel: launch it as {self.__name__}[grid](...), or call it from another kernel") from None
        if self.fn in builder.calls:
            raise UnsupportedLanguageConstruct(f"{self.__name__} calls itself; the language of kernels has no recursion")
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeMismatchError(f"{self.__name__}: {error}") from None
        bound.apply_defaults()
        values = bound.arguments
        for name, value in values.items():
            if name in self.constexprs or isinstance(value, tl.dtype):
                if value is not None and not isinstance(value, (tl.constexpr, tl.tensor, InterpretedFunction)):
                    values[name] = tl.constexpr(value)
            elif name != self._rest:
                values[name] = wrap(value)
        builder.calls.append(self.fn)
        try:
            return self._python()(*bound.args, **bound.kwargs)
        finally:
            builder.calls.pop()

    def _returns(self) -> Exception:
        return TypeMismatchError(f"the kernel {self.__name__} returns a value; kernels return nothing and write results with tl.store").at(
            self.fn.__code__.co_filename, self.fn.__code__.co_firstlineno, 0)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: self._interpret(grid, args, kwargs)

    def warmup(self, *args: Any, grid: Any = MISSING, **kwargs: Any) -> None:
        """There is nothing to compile."""
        if grid is MISSING:
            normalise_grid(grid)

    def run(self, *args: Any, grid: Any = MISSING, warmup: bool = False, **kwargs: Any) -> None:
        """Run every program of ``grid`` (a tuple of up to three ints, or a function of the arguments)."""
        if not warmup:
            self._interpret(grid, args, kwargs)

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """({parameter: argument}, options) of a launch. Raises as a compiled kernel's launch does."""
        if self._collect is None:
            check_listed(self.fn, self.signature)
            self._collect = make_collector(self.__name__, list(self.params.values()))
        try:
            given, options = self._collect(*args, **kwargs)
        except TypeError as error:
            raise unbound(self.__name__, error, self.arg_names) from None
        check_arguments(self.__name__, self.params, given)
        check_memory(self.__name__, given, self.constexprs)
        return given, options

    def _interpret(self, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        from tilewright.compiler.options import check_portable

        for hook in self._hooks:
            hook(*args, **kwargs)
        given, options = self._bound(args, kwargs)
        check_portable(options)
        if callable(grid):
            grid = called_grid(grid, GridArguments(given))
        gx, gy, gz = normalise_grid(grid)
        if max(gx, gy, gz) >= 2**31:
            raise ArgumentError(f"the grid is ({gx}, {gy}, {gz}); allowed are up to 2147483647 programs along each of x, y and z")
        memory = Memory()
        arguments = _Arguments(memory)
        values = {n: arguments.convert(n, v, n in self.constexprs, self.params.get(n)) for n, v in given.items()}
        debug, sanitize = options.get("debug"), options.get("sanitize_overflow")
        builder = NumpyBuilder(memory, types.SimpleNamespace(debug=bool(knobs.runtime.debug or self.options.get("debug") if debug is None else debug),
                                                             sanitize_overflow=sanitize is None or bool(sanitize)))
        builder.grid = (gx, gy, gz)
        InterpretedFunction.launch = object()
        python = self._python()
        builder.calls.append(self.fn)
        with tl.active_semantic(Semantic(builder)), np.errstate(all="ignore"):
            try:
                for z in range(gz):
                    for y in range(gy):
                        for x in range(gx):
                            builder.program = (x, y, z)
                            returned = python(**values)
                            if returned is not None and not (is_static(returned) and static_value(returned) is None):
                                raise self._returns()
            except Exception as error:
                told = placed(error)
                if told is None:
                    raise
                raise told from (error.__cause__ if isinstance(error, TilewrightError) else error)
        arguments.write_back()
        InterpretedFunction.launches += bool(gx and gy and gz)
