"""The numpy builder: the same interface as the one that makes IR, computing each op at once on whole tiles."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.compiler.builder import Builder
from tilewright.dialects import prints
from tilewright.runtime import interpreter_descriptors
from tilewright.runtime.interpreter_memory import (
    InterpreterError,
    Memory,
    canonical,
    decode,
    encode,
    is_small_float,
    numpy_dtype,
    storage_dtype,
)
from tilewright.runtime.interpreter_ops import OPS, held_dtype, repeated, scalar_name, shape_of

_builtin_type = type


class Cell:
    """A value: ``data`` (an array of the tile's shape, 0-d for scalars) and its language type."""

    __slots__ = ("data", "type")

    def __init__(self, data: Any, type: Any):
        self.data, self.type = np.asarray(data), type

    def __repr__(self) -> str:
        return f"{self.data!r} : {self.type}"


class NumpyBuilder(Builder):
    """Computes. ``program`` and ``grid`` are set by the interpreter before each program; ``memory`` holds the arguments."""

    is_interpreter = True

    def __init__(self, memory: Memory, options: Any = None):
        self.memory, self.options = memory, options
        self.scalars: dict[Any, np.ndarray] = {}  # constants that were made
        self.pending: list[Any] = []  # what an expression holds while its parts are evaluated (interpreter_rules)
        self.calls: list[Any] = []  # the functions that are running
        self.branches: set[Any] = set()  # run-time ifs both of whose branches were looked at (interpreter_branches)
        self.trying = 0  # how many ifs are gone through without effects
        self.program: tuple[int, int, int] = (0, 0, 0)
        self.grid: tuple[int, int, int] = (1, 1, 1)

    def constant(self, value: Any, type: Any) -> Cell:
        key = value, type.scalar, _builtin_type(value)
        data = self.scalars.get(key) if value else None  # zeros of both signs are equal
        if data is None:
            data = self.scalars[key] = self._scalar(value, type)
        return Cell(repeated(data, shape_of(type)), type)

    def _scalar(self, value: Any, type: Any) -> np.ndarray:
        name = scalar_name(type)
        dtype = held_dtype(type)
        if name.startswith(("int", "uint")) and name != "int1":
            bits = np.dtype(dtype).itemsize * 8
            wrapped = int(value) & ((1 << bits) - 1)
            data = np.asarray(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped, dtype)
        elif is_small_float(name):
            data = decode(encode(np.asarray(float(value)), name), name)
        else:
            with np.errstate(over="ignore"):
                data = np.asarray(value).astype(dtype)
        data = np.asarray(data)
        data.flags.writeable = False
        return data

    def concrete(self, handle: Cell) -> bool | int | float:
        """The value, for debuggers and for functions without a source. Functions of the language may not ask: what they need is a
        compile-time value, and compiled kernels have none of a tensor."""
        if sys._getframe(3).f_globals.get("__name__", "").startswith("tilewright."):  # below: the tensor's method, and what it calls
            super().concrete(handle)
        return self.value_of(handle)

    def value_of(self, handle: Cell) -> bool | int | float:
        """The value of a scalar."""
        if handle.data.size != 1:
            raise InterpreterError(f"a tile of shape {handle.data.shape} has no single truth value or number; "
                                   "use tl.where, or reduce it first")
        value = handle.data.reshape(()).item()
        name = scalar_name(handle.type)
        if name.startswith("uint") and value < 0:
            value += 1 << (handle.data.dtype.itemsize * 8)
        return value

    def create(self, op: str, operands: Sequence[Cell | None], result_types: Sequence[Any], attrs: dict[str, Any] | None = None) -> list[Cell]:
        if self.trying and op in _EFFECTS:
            return [Cell(np.zeros(shape_of(t), held_dtype(t)), t) for t in result_types]
        special = _SPECIAL.get(op)
        attrs = attrs or {}
        if special is not None:
            return [Cell(data, t) for data, t in zip(special(self, operands, result_types, attrs), result_types)]
        fn = OPS.get(op)
        if fn is None:
            raise InterpreterError(f"the interpreter does not know the operation {op!r}")
        arrays = [None if o is None else o.data for o in operands]
        return [Cell(fn(arrays, result_types[0], attrs), result_types[0])]

    def region_op(self, op: str, operands: Sequence[Cell], result_types: Sequence[Any], attrs: dict[str, Any],
                  scalar_types: Sequence[Any], combine: Callable[[list[Cell]], list[Cell]]) -> list[Cell]:
        axis = attrs["axis"]
        parts = [np.moveaxis(o.data, axis, 0) for o in operands]

        def merged(left: list[np.ndarray], right: list[np.ndarray]) -> list[np.ndarray]:
            both, types = [*left, *right], [*scalar_types, *scalar_types]
            try:  # all pairs at once, each value of the combiner an array in place of a scalar
                return [c.data for c in combine([Cell(a, t) for a, t in zip(both, types)])]
            except (ValueError, InterpreterError):  # the combiner makes tiles of its scalars (numpy's error), or branches on them (concrete's)
                outs = [np.empty_like(p) for p in left]
                for place in np.ndindex(np.shape(left[0])):
                    for out, c in zip(outs, combine([Cell(a[place], t) for a, t in zip(both, types)])):
                        out[place] = np.reshape(c.data, ())
                return outs

        if op == "tt.reduce":
            while parts[0].shape[0] > 1:  # neighbours first: the order of the elements is kept
                parts = [np.asarray(p) for p in merged([p[0::2] for p in parts], [p[1::2] for p in parts])]
            return [Cell(np.broadcast_to(p[0], shape_of(t)), t) for p, t in zip(parts, result_types)]
        if op != "tt.scan":
            raise InterpreterError(f"the interpreter does not know the operation {op!r}")
        if attrs.get("reverse"):
            parts = [p[::-1] for p in parts]
        outs = [np.empty_like(p) for p in parts]
        running = [p[0] for p in parts]
        for i in range(parts[0].shape[0]):
            if i:
                running = merged(running, [p[i] for p in parts])
            for out, value in zip(outs, running):
                out[i] = value
        if attrs.get("reverse"):
            outs = [o[::-1] for o in outs]
        return [Cell(np.moveaxis(o, 0, axis), t) for o, t in zip(outs, result_types)]


    def map_op(self, operands: Sequence[Cell], tile: Any, scalar_types: Sequence[Any], pack: int,
               function: Callable[[list[Cell]], tuple[list[Cell], list[Any]]]) -> tuple[list[Cell], list[Any]]:
        flat = [np.broadcast_to(o.data, shape_of(tile)).reshape(-1) for o in operands]
        count = flat[0].size
        calls = []
        for start in range(0, count, pack):
            places = [min(start + j, count - 1) for j in range(pack)]
            calls.append(function([Cell(x[p], s) for x, s in zip(flat, scalar_types) for p in places]))
        types = calls[0][1]
        for _, others in calls:
            if others != types:
                raise InterpreterError(f"the function of map_elementwise gives {', '.join(map(str, types))} for some elements and "
                                       f"{', '.join(map(str, others))} for others; cast what it returns to one type")
        outs = []
        for i, type in enumerate(types):
            data = np.array([handles[i * pack + j].data.reshape(()) for handles, _ in calls for j in range(pack)][:count])
            outs.append(Cell(data.astype(held_dtype(type)).reshape(shape_of(tile)), tile.with_element_ty(type)))
        return outs, types


Special = Callable[[NumpyBuilder, Sequence[Any], Sequence[Any], dict[str, Any]], Sequence[Any]]


def _program_id(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    return [np.int32(b.program[attrs["axis"]])]


def _num_programs(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    return [np.int32(b.grid[attrs["axis"]])]


def _addptr(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    pointer, offset = operands
    size = types[0].scalar.element_ty.itemsize
    with np.errstate(over="ignore"):
        return [pointer.data + (offset.data.astype(np.int64) * size).astype(np.uint64)]


def _load(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    pointer, mask, other = [*operands, None, None][:3]
    name = scalar_name(types[0])
    mask_data = None if mask is None else np.broadcast_to(mask.data, pointer.data.shape)
    if name == "ptr":
        values = b.memory.load(pointer.data, mask_data, "int64").astype(np.uint64)
    else:
        values = b.memory.load(pointer.data, mask_data, name)
    if other is not None and mask_data is not None:
        values = np.where(mask_data, values, other.data).astype(values.dtype)
    return [values]


def _store(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    pointer, value, mask = [*operands, None][:3]
    name = scalar_name(value.type)
    data = value.data.view(np.int64) if name == "ptr" else value.data
    b.memory.store(pointer.data, data, None if mask is None else mask.data, "int64" if name == "ptr" else name)
    return []


def _unsigned(x: np.ndarray) -> np.ndarray:
    return x.view(x.dtype.str.replace("i", "u"))


_RMW: dict[str, Callable[[Any, Any], Any]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "add": np.add, "fadd": np.add, "max": np.maximum,
    "min": np.minimum, "xchg": lambda old, new: new,
    "umax": lambda a, b: np.maximum(_unsigned(a), _unsigned(b)).view(a.dtype),
    "umin": lambda a, b: np.minimum(_unsigned(a), _unsigned(b)).view(a.dtype),
}


def _one_by_one(b: NumpyBuilder, pointer: Cell, mask: Cell | None, name: str, update: Callable[[np.ndarray, int], np.ndarray]) -> np.ndarray:
    """Old values, each element's read-modify-write done in order, so that equal addresses see each other."""
    flat = pointer.data.reshape(-1)
    active = np.ones(flat.shape, bool) if mask is None else np.broadcast_to(mask.data, pointer.data.shape).reshape(-1)
    old: np.ndarray = np.zeros(flat.shape, numpy_dtype(name))
    for i in np.flatnonzero(active):
        here = flat[i : i + 1]
        old[i : i + 1] = b.memory.load(here, None, name)
        with np.errstate(over="ignore"):
            b.memory.store(here, np.asarray(update(old[i : i + 1], int(i))), None, name)
    return old.reshape(pointer.data.shape)


def _atomic_rmw(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    pointer, value, mask = [*operands, None][:3]
    values = np.broadcast_to(value.data, pointer.data.shape).reshape(-1)
    fn = _RMW[attrs["rmw_op"]]
    return [_one_by_one(b, pointer, mask, scalar_name(value.type), lambda old, i: fn(old, values[i : i + 1]))]


def _atomic_cas(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    pointer, compare, value = operands
    expected, new = (np.broadcast_to(x.data, pointer.data.shape).reshape(-1) for x in (compare, value))

    def bits(x: np.ndarray) -> np.ndarray:  # zeros of both signs differ, and a NaN is itself
        return x.view(f"u{x.dtype.itemsize}") if x.dtype.kind == "f" else x

    return [_one_by_one(b, pointer, None, scalar_name(value.type),
                        lambda old, i: np.where(bits(old) == bits(expected[i:i + 1].astype(old.dtype)), new[i], old))]


def _bitcast(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    source, target = scalar_name(operands[0].type), scalar_name(types[0])
    data = operands[0].data
    if source == target:
        return [data]
    bits = encode(data, source) if is_small_float(source) else data.view(np.int64) if source == "ptr" else data
    if target == "ptr":
        return [bits.astype(np.uint64) if bits.dtype != np.uint64 else bits]
    raw = np.ascontiguousarray(bits.astype(np.int8) if bits.dtype == np.bool_ else bits)
    stored: np.ndarray = raw.view(storage_dtype(target)).reshape(data.shape)  # ascontiguousarray makes scalars of one dim
    if is_small_float(target):
        return [decode(stored, target)]
    return [stored.astype(np.bool_) if canonical(target) == "int1" else stored]


def _split(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    return [operands[0].data[..., 0], operands[0].data[..., 1]]


def _nothing(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    return []


def _print(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    if not operands:
        print(prints.line(b.program, attrs["prefix"]))
    for k, (o, signed) in enumerate(zip(operands, attrs["is_signed"])):
        assert o is not None
        name, data = scalar_name(o.type), np.ravel(o.data)
        kind = "p" if name == "ptr" else "f" if data.dtype.kind == "f" else "i" if signed else "u"
        raw = data.astype(np.float64).view(np.uint64) if kind == "f" else data
        bits = 64 if kind in "fp" else 1 if name == "int1" else data.dtype.itemsize * 8
        text = prints.operand_text(attrs["prefix"], k, len(operands))
        for i, value in enumerate(raw):
            print(prints.line(b.program, text, shape_of(o.type), i, prints.value_text(kind, bits, attrs["hex"], int(value))))
    return []


def _assert(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    if not np.all(operands[0].data):
        raise InterpreterError(f"device_assert failed in program {b.program}: {attrs.get('message', '')}")
    return []


def _inline_asm(b: NumpyBuilder, operands: Sequence[Any], types: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    raise InterpreterError("the interpreter cannot run target assembly (inline_asm_elementwise); guard it by the target")


_SPECIAL: dict[str, Special] = {
    "tt.get_program_id": _program_id, "tt.get_num_programs": _num_programs, "tt.addptr": _addptr, "tt.load": _load,
    "tt.store": _store, "tt.atomic_rmw": _atomic_rmw, "tt.atomic_cas": _atomic_cas, "tt.bitcast": _bitcast,
    "arith.bitcast": _bitcast, "tt.split": _split, "tt.assume": _nothing, "tt.debug_barrier": _nothing, "tt.print": _print,
    "tt.assert": _assert, "tt.elementwise_inline_asm": _inline_asm, **interpreter_descriptors.OPS,
}
_EFFECTS = frozenset(("tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.print", "tt.assert", *interpreter_descriptors.OPS))
