"""How launchers of every target with a driver lay kernel arguments out: each at its natural alignment, one after another."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects.errors import ArgumentError

# struct formats by Triton type; pointers are "Q"
FORMATS = {"i1": "?", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
           "fp16": "e", "f16": "e", "fp32": "f", "f32": "f", "fp64": "d", "f64": "d"}


def layout(signature: Sequence[str]) -> tuple[str, list[int], int]:
    """(struct format, byte offset of each argument, bytes in all) for the Triton types ("*fp32", "i32", …) of the run-time arguments.

    Raises ArgumentError for a type that cannot be passed."""
    text, offset, offsets = "=", 0, []
    for kind in signature:
        code = "Q" if kind.startswith("*") else FORMATS.get(kind)
        if code is None:
            raise ArgumentError(f"a kernel argument of type {kind!r} cannot be passed; pass bf16 and fp8 scalars as fp32")
        size = struct.calcsize("=" + code)
        padding = -offset % size
        text += f"{padding}x{code}" if padding else code
        offsets.append(offset + padding)
        offset += padding + size
    return text, offsets, offset


def letters(signature: Sequence[str]) -> list[str]:
    """struct's letter of each parameter."""
    return ["Q" if kind.startswith("*") else FORMATS[kind] for kind in signature]


_FUNCTION: Any = ctypes.CFUNCTYPE(None).__mro__[1]  # what every C function that ctypes calls is


def function_address(function: Any) -> int | None:
    """Where the code of a C function lies that ctypes calls; None of any other function."""
    return ctypes.cast(function, ctypes.c_void_p).value if isinstance(function, _FUNCTION) else None


def address(argument: Any, device: str, pass_instead: str) -> int:
    """Device address of a pointer argument: an int, None (0), or an array on the device. ``device`` and ``pass_instead`` are for the message
    of the ArgumentError for anything else: "an … GPU", "pass …"."""
    if isinstance(argument, int):
        return argument
    if argument is None:
        return 0
    if hasattr(argument, "data_ptr"):
        return int(argument.data_ptr())
    interface = getattr(argument, "__cuda_array_interface__", None)  # CuPy's name for it, whatever the device
    if interface is not None:
        return int(interface["data"][0])
    raise ArgumentError(f"a pointer argument of type {type(argument).__name__} does not live on {device}; pass {pass_instead}")


def checked(args: Sequence[Any], signature: Sequence[str], address_of: Callable[[Any], int]) -> list[Any]:
    """The arguments with addresses for arrays. Raises ArgumentError where one does not fit its parameter."""
    values = list(args)
    if len(values) != len(signature):
        raise ArgumentError(f"the kernel takes {len(signature)} arguments, {len(values)} were given")
    for i, kind in enumerate(signature):
        if kind.startswith("*"):
            values[i] = address_of(values[i])
        try:
            struct.pack("=" + ("Q" if kind.startswith("*") else FORMATS[kind]), values[i])
        except (struct.error, OverflowError) as e:
            raise ArgumentError(f"argument {values[i]!r} does not fit a kernel parameter of type {kind}: {e}") from None
    return values
