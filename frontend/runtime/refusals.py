"""What ``jit`` refuses, and what a launch does once its kernel is known: arrays without memory, on another device than the current one, and numbers that a
parameter cannot hold.

The latter run on first launches, and where a warm one went wrong; ``warm_launch`` says how its keys keep such arguments from what was kept.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from tilewright.runtime.arguments import MockTensor
from tilewright.runtime.errors import ArgumentError, DeviceMismatchError, LaunchSignatureError, ReadOnlyArrayError
from tilewright.runtime.specialize import constexpr_value, describe, device_index, is_read_only, is_torch_tensor, shown

LARGEST = {"fp16": 65504.0, "fp32": 3.4028234663852886e38}
_BEYOND = {"fp16": 65520.0, "fp32": 3.4028235677973366e38}  # half a step further: what is less rounds to the largest
RANGES = {f"{sign}{bits}": (-(1 << bits - 1), (1 << bits - 1) - 1) if sign == "i" else (0, (1 << bits) - 1) for sign in "iu" for bits in (8, 16, 32, 64)}


def check_decorated(lists: Mapping[str, Any], flags: Mapping[str, Any], functions: Mapping[str, Any]) -> None:
    """Raise ArgumentError where ``jit`` is given something else than a list of parameters, a truth value, a function, or None."""
    for name, listed in lists.items():
        if listed is not None and (isinstance(listed, str) or not hasattr(listed, "__iter__")):
            raise ArgumentError(f"jit: {name} is a list of parameters' names or positions; found {shown(listed)} ({type(listed).__name__})")
    for name, value in flags.items():
        if value is not None and not (isinstance(value, (bool, int)) and value in (0, 1)):
            raise ArgumentError(f"jit: {name} is True or False; found {shown(value)} ({type(value).__name__})")
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise ArgumentError(f"jit: {name} is a function; found {shown(function)} ({type(function).__name__})")


def arrays(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """(where, array) of every array in an argument that tells its address by ``data_ptr``: itself, those in tuples, a descriptor's base; and torch's
    dtypes, which stand for arrays."""
    if isinstance(value, tuple):
        for i, v in enumerate(value):
            yield from arrays(f"{name}[{i}]", v)
    elif hasattr(value, "block_shape"):
        yield from arrays(f"{name}.base", value.base)
    elif hasattr(value, "data_ptr") or (type(value).__name__ == "dtype" and type(value).__module__.split(".")[0] == "torch"):
        yield name, value


def check_memory(kernel: str, arguments: Mapping[str, Any], constexprs: Container[str]) -> bool:
    """Whether every array has an address. Raises ArgumentError where one that has elements has none. ``constexprs``: names of what is none."""
    every = True
    for name, value in arguments.items():
        for where, array in () if name in constexprs else arrays(name, value):
            if isinstance(array, MockTensor) or not hasattr(array, "data_ptr"):
                raise ArgumentError(f"argument {where!r} of {kernel} is {shown(array)}, which stands for an array in warmup(…) alone; launch with an array")
            if array.data_ptr() == 0:
                every = False
                if getattr(getattr(array, "device", None), "type", "") == "meta":
                    raise ArgumentError(f"argument {where!r} of {kernel} lies on device 'meta', without elements in memory; pass a dense tensor")
                if is_torch_tensor(type(array)) and array.numel():
                    raise ArgumentError(f"argument {where!r} of {kernel} has {array.numel()} elements and no memory: its storage was freed "
                                        "(untyped_storage().resize_(0), as sharded training does between uses); bring it back before the launch")
    return every


def _read_only(name: str, value: Any) -> Iterator[str]:
    """Names of the read-only arrays in an argument, as ``CompiledKernel.argument_names`` has them."""
    if isinstance(value, tuple):
        for i, v in enumerate(value):
            yield from _read_only(f"{name}[{i}]", v)
    elif is_read_only(value.base if hasattr(value, "block_shape") else value):
        yield name


def check_writable(kernel: str, compiled: Any, arguments: Mapping[str, Any]) -> None:
    """Raise ReadOnlyArrayError where the kernel stores through an argument that may not be written. Of kernels without tt text nothing is known."""
    found = [where for name, value in arguments.items() for where in _read_only(name, value)]
    if not found:
        return
    written = compiled.written
    for where in found:
        if where in written:
            raise ReadOnlyArrayError(f"argument {where!r} of {kernel} is a read-only array, and the kernel stores through it; pass a copy, or make it writable "
                                     "(array.flags.writeable = True)")


def check_current(kernel: str, device: int, arguments: Mapping[str, Any]) -> bool:
    """Whether the arrays say on which device they lie, which has to be the current one, ``device``. Raises DeviceMismatchError where they lie
    on several, or on another."""
    places = {where: (getattr(array.device, "type", ""), index) for name, value in arguments.items() for where, array in arrays(name, value)
              if (index := device_index(array)) is not None}
    if not places:
        return False
    first, (kind, index) = next(iter(places.items()))
    for where, place in places.items():
        if place[1] != index:
            raise DeviceMismatchError(f"argument {where!r} of {kernel} lies on {place[0]}:{place[1]}, and {first!r} on {kind}:{index}; a launch takes arrays "
                                      "of one device: move them there")
    if index != device:
        how = f"launch it inside `with torch.{kind}.device({index}):`" if kind else f"make device {index} the current one"
        raise DeviceMismatchError(f"the arrays of {kernel} lie on {kind or 'device'}:{index}, and the current device, on which it would run, is {device}; "
                                  f"{how}, or move them")
    return True


def check_listed(fn: Any, signature: inspect.Signature) -> None:
    """Raise ArgumentError where a kernel that is launched has a parameter that stands for several."""
    for p in signature.parameters.values():
        if p.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            raise ArgumentError(f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}: {fn.__name__} cannot be launched: parameters of a kernel are listed "
                                f"one by one, and {'*' if p.kind is p.VAR_POSITIONAL else '**'}{p.name} is not")


def unbound(kernel: str, mismatch: TypeError, names: Sequence[str]) -> LaunchSignatureError:
    """What Python says of arguments that do not fit the parameters."""
    text = str(mismatch).removeprefix(f"{kernel}() ")
    return LaunchSignatureError(f"{kernel}: {text}; its parameters are {', '.join(names)}")


def check_arguments(kernel: str, params: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Raise ArgumentError for what is no kernel argument, as binding does for compiled kernels."""
    for name, p in params.items():
        value = arguments[name]
        try:
            if p.is_constexpr:
                check_constexpr(constexpr_value(value))
                continue
            facts = describe(value, p.mode)
        except ArgumentError as reason:
            raise ArgumentError(f"argument {name!r} of {kernel}: {reason}") from None
        scalar = isinstance(facts.type, str) and facts.type != "constexpr" and not facts.type.startswith("*")
        why = misfit(p.annotation_type if scalar and p.annotation_type else facts.type, value)
        if why:
            raise ArgumentError(f"argument {name!r} of {kernel}: {why}")


def check_constexpr(value: Any) -> None:
    if hasattr(value, "data_ptr") or hasattr(value, "__array_interface__"):
        raise ArgumentError(f"it is declared tl.constexpr, a value known while compiling; found an array ({type(value).__module__}.{type(value).__qualname__})")


def unfit(kernel: str, names: Sequence[str], types: Sequence[Any], arguments: Mapping[str, Any]) -> ArgumentError | None:
    """Which argument is a number that its parameter's type does not hold; None where all fit."""
    for name, kind in zip(names, types):
        why = misfit(kind, arguments.get(name))
        if why:
            return ArgumentError(f"argument {name!r} of {kernel}: {why}")
    return None


def misfit(kind: Any, value: Any) -> str:
    """Why a number does not fit a parameter of type ``kind``; "" where it does, and for what is no number."""
    if not isinstance(kind, str):
        return next(filter(None, map(misfit, kind, value)), "") if isinstance(value, tuple) else ""
    number = value.item() if type(value).__module__ == "numpy" and not getattr(value, "ndim", 1) else value
    if kind in RANGES and isinstance(number, int):
        low, high = RANGES[kind]
        return "" if low <= number <= high else f"{number} does not fit {kind}, from {low} to {high}"
    if kind in RANGES and isinstance(number, float):
        return f"it is {kind}, an integer; found {number!r}"
    if kind in LARGEST and isinstance(number, (int, float)) and not isinstance(number, bool):
        if math.isfinite(number) and abs(number) >= _BEYOND[kind]:
            return f"{number!r} is beyond the largest {kind} ({LARGEST[kind]:.8g}); pass an infinity if that is meant, or declare the parameter tl.float64"
    return ""
