"""Run kernels as the Python that they are: ``TILEWRIGHT_INTERPRET=1``, or ``InterpretedFunction(kernel)`` on any kernel.

Programs run one after another in the order of the grid, x fastest, on numpy tiles, so breakpoints and prints work and
results do not vary. It is the oracle of the tests: it shares the language's type rules with the compiler and nothing of
the passes and lowerings. Device tensors are copied to the host and back. Every address is checked against the arguments.
"""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.dialects.errors import ArgumentError, TilewrightError
from tilewright.language import core as tl
from tilewright.language.semantic import Semantic, integer_promote, type_of_python
from tilewright.runtime.callables import KernelParam
from tilewright.runtime.interpreter_builder import Cell, NumpyBuilder
from tilewright.runtime.interpreter_memory import InterpreterError, Memory
from tilewright.runtime.interpreter_scope import Scope, checked, code_of, placed, refuse

__all__ = ["InterpretedFunction", "InterpreterError"]

_ELEMENT_NAMES = {
    "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "bool": "int1", "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5", "float8_e4m3fnuz": "fp8e4b8", "float8_e5m2fnuz": "fp8e5b16",
    **{f"{u}int{n}": f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)},
}


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
        value = getattr(value, "base", value) if hasattr(value, "base") and hasattr(value, "dtype") and not isinstance(value, np.ndarray) \
            and hasattr(value.base, "data_ptr") and str(value.dtype) not in _ELEMENT_NAMES else value
        if hasattr(value, "data_ptr") and hasattr(value, "untyped_storage"):
            if value.device.type == "meta" or getattr(value, "is_sparse", False):
                raise ArgumentError(f"argument {name!r} has no elements in memory (device {value.device}, layout {value.layout}); pass a dense tensor")
            storage = value.untyped_storage()
            if value.device.type != "cpu":
                key = storage.data_ptr()
                if key not in self.copies:
                    self.copies[key] = (storage, storage.cpu())
                storage = self.copies[key][1]
            address = storage.data_ptr() + value.storage_offset() * value.element_size()
            self.memory.add(storage.data_ptr(), storage.nbytes())
            element = str(value.dtype).rsplit(".", 1)[-1]
        elif hasattr(value, "__array_interface__"):
            array = np.asarray(value)
            if not array.dtype.isnative:
                raise ArgumentError(f"argument {name!r}: the array's byte order ({array.dtype.str}) is not the machine's; convert it to native byte order")
            owner = array
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            low, high = _byte_bounds(owner)
            self.memory.add(low, high - low)
            address, element = array.__array_interface__["data"][0], array.dtype.name
        else:
            raise ArgumentError(f"argument {name!r} is a {type(value).__name__}; the interpreter takes torch tensors, numpy arrays, "
                                "numbers, tuples and None")
        if element not in _ELEMENT_NAMES:
            raise ArgumentError(f"argument {name!r} has elements of type {element}; allowed are {', '.join(_ELEMENT_NAMES)}")
        pointer = tl.pointer_type(tl.dtype(_ELEMENT_NAMES[element]))
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


# -------------------------------------------------------------------- Python builtins, as the language means them
def _is_tensor(*values: Any) -> bool:
    return any(isinstance(v, tl.tensor) for v in values)


def _range(*args: Any, **kwargs: Any) -> Iterator[Any]:
    """Loop variables are run-time integers, as in compiled code: of the type that start, end and step promote to, int32 at least."""
    semantic = tl.current_semantic()
    bounds = [int(a) for a in args]
    if len(args) == 3 and isinstance(args[2], tl.tensor) and bounds[2] <= 0:
        raise InterpreterError(f"the step of a loop, known at run time, is positive, and this one is {bounds[2]}; compiled kernels go round no more")
    kind = tl.int32
    for bound, value in zip(args, bounds):
        type = bound.dtype if isinstance(bound, tl.tensor) else type_of_python(abs(value) if len(args) == 3 and bound is args[2] else value)
        kind = integer_promote(kind, type)
    for i in builtins.range(*bounds):
        yield tl.tensor(semantic.builder.constant(i, kind), kind)


def _min(*values: Any) -> Any:
    if _is_tensor(*values):
        out = values[0]
        for v in values[1:]:
            out = tl.current_semantic().minimum(out, v) if _is_tensor(out, v) else min(out, v)
        return out
    return min(*values)


def _max(*values: Any) -> Any:
    if _is_tensor(*values):
        out = values[0]
        for v in values[1:]:
            out = tl.current_semantic().maximum(out, v) if _is_tensor(out, v) else max(out, v)
        return out
    return max(*values)


def _cast(kind: Any, python: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(value: Any) -> Any:
        return tl.current_semantic().cast(value, kind) if _is_tensor(value) else python(value)

    return run


_BUILTINS: dict[str, Any] = {"range": _range, "min": _min, "max": _max, "float": _cast(tl.float32, float), "int": _cast(tl.int32, int),
                             "_tw_refuse": refuse}


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet: Python says so where it is read
        return tl.constexpr(None)


class InterpretedFunction:
    """A kernel or helper that runs in Python. Same launch interface as a compiled one; options such as num_warps are taken
    and mean nothing here."""

    __interprets__ = True
    _code: Any = None  # what is run of ``fn``; made at the first call
    launches = 0  # of all kernels: tells whether a piece of code launched any

    def __init__(self, fn: Any, **options: Any):
        self.fn = getattr(fn, "fn", fn)
        self.options = options
        self.__name__, self.__doc__, self.__module__ = self.fn.__name__, self.fn.__doc__, self.fn.__module__
        self.__wrapped__ = self.fn
        self.signature = inspect.signature(self.fn)
        self.arg_names = list(self.signature.parameters)
        self.constexprs = {n for n, p in self.signature.parameters.items() if "constexpr" in str(getattr(p.annotation, "__name__", p.annotation))}
        self.params = {n: KernelParam(i, p, False, False) for i, (n, p) in enumerate(self.signature.parameters.items())}
        self._hooks: list[Callable[..., None]] = []

    def __repr__(self) -> str:
        return f"InterpretedFunction({self.__module__}:{self.__name__})"

    def add_pre_run_hook(self, hook: Callable[..., None]) -> None:
        self._hooks.append(hook)

    @property
    def value(self) -> InterpretedFunction:
        """What a constexpr that holds the function answers: here it is handed on bare."""
        return self

    def _python(self) -> Callable[..., Any]:
        """The function with the language's meaning of range, min, max, float and int, and with its jit helpers interpreted."""
        scope = Scope(self.fn.__globals__, _BUILTINS)
        if self._code is None:
            self._code = code_of(self.fn)
        for name in self._code.co_names:
            value = scope.get(name)
            if value is not None and type(value).__name__ == "JITFunction":
                scope[name] = InterpretedFunction(value)
        cells = dict(zip(self.fn.__code__.co_freevars, self.fn.__closure__ or ()))
        for name, cell in cells.items():
            if name != self.fn.__name__:
                checked(name, _contents(cell), _BUILTINS)
        closure = builtins.tuple(cells[n] for n in self._code.co_freevars if n in cells)
        out = types.FunctionType(self._code, scope, self.fn.__name__, self.fn.__defaults__, closure or None)
        out.__kwdefaults__ = self.fn.__kwdefaults__
        return out

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call from another kernel that is being interpreted."""
        tl.current_semantic()  # raises outside a kernel, saying what to do
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        for name in self.constexprs:
            if bound.arguments[name] is not None and not isinstance(bound.arguments[name], (tl.constexpr, InterpretedFunction)):
                bound.arguments[name] = tl.constexpr(bound.arguments[name])
        for name, value in bound.arguments.items():
            if isinstance(value, tl.dtype):
                bound.arguments[name] = tl.constexpr(value)
        return self._python()(*bound.args, **bound.kwargs)

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)

    def warmup(self, *args: Any, grid: Any, **kwargs: Any) -> None:
        """There is nothing to compile."""

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        """Run every program of ``grid`` (a tuple of up to three ints, or a function of the arguments)."""
        from tilewright.compiler.options import check_portable
        from tilewright.runtime.jit import normalise_grid

        if warmup:
            return
        for hook in self._hooks:
            hook(*args, **kwargs)
        known = {k: v for k, v in kwargs.items() if k in self.signature.parameters}
        check_portable({k: v for k, v in kwargs.items() if k not in known})
        try:
            bound = self.signature.bind(*args, **known)
        except TypeError as e:
            raise ArgumentError(f"{self.__name__}: {e}; it takes ({', '.join(self.arg_names)})") from None
        bound.apply_defaults()
        size = grid(dict(bound.arguments)) if callable(grid) else grid
        gx, gy, gz = normalise_grid(size)
        memory = Memory()
        arguments = _Arguments(memory)
        values = {n: arguments.convert(n, v, n in self.constexprs, self.params.get(n)) for n, v in bound.arguments.items()}
        builder = NumpyBuilder(memory, self.options)
        builder.grid = (gx, gy, gz)
        python = self._python()
        with tl.active_semantic(Semantic(builder)):
            try:
                for z in range(gz):
                    for y in range(gy):
                        for x in range(gx):
                            builder.program = (x, y, z)
                            python(**values)
            except Exception as error:
                told = placed(error)
                if told is None:
                    raise
                raise told from (error.__cause__ if isinstance(error, TilewrightError) else error)
        arguments.write_back()
        InterpretedFunction.launches += bool(gx and gy and gz)
