"""The lines of device_print, of one form on every target and in the interpreter:

    pid (x, y, z) idx (i, j) prefix: value

The index is the element's in its tile, each number as wide as the largest along its dim; a scalar's is ``()``, and a print of no value has none.
Of several operands each line says ``(operand k)`` before the value. The form is Triton's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from tilewright.dialects.errors import TypeMismatchError

KINDS = ("i", "u", "f", "p")  # signed, unsigned, a float (its bits those of a float64), a pointer


def prefix_text(prefix: str, has_values: bool) -> str:
    """What stands between index and value: a blank, the user's text and ``: ``; of a print without values only blank and text."""
    if has_values:
        prefix = prefix.removesuffix(" ").removesuffix(":") + ": "
    return prefix if prefix in ("", ": ") or prefix.startswith(" ") else f" {prefix}"


def check_element(element: str, as_hex: bool) -> None:
    """Raise TypeMismatchError for elements (an MLIR type's text) that lowerings would misprint: of floats they print f32 and f64, in decimal."""
    if element.startswith(("f", "bf")) and (as_hex or element not in ("f32", "f64")):
        raise TypeMismatchError(f"tt.print takes integers, pointers, f32 and f64, and in hexadecimal no floats; found {element}. tl.device_print casts "
                                "others to f32, and in hexadecimal takes their bits (tt.bitcast): do the same in IR text")


def operand_text(prefix: str, number: int, count: int) -> str:
    """The text before the value of operand ``number`` of ``count``; ``prefix`` is prefix_text's."""
    return prefix if count == 1 else f"{prefix}(operand {number}) "


def widths(shape: Sequence[int]) -> list[int]:
    """Digits of the largest index along each dim."""
    return [len(str(size - 1)) for size in shape]


def index_text(shape: Sequence[int], flat: int) -> str:
    """``idx (…)`` of the element with that row-major number."""
    index = []
    for size in reversed(shape):
        flat, at = divmod(flat, size)
        index.append(at)
    return f"idx ({', '.join(f'{i:{w}d}' for i, w in zip(reversed(index), widths(shape)))})"


def value_text(kind: str, width: int, as_hex: bool, raw: int) -> str:
    """A value from its bits, of which the low ``width`` count. A pointer is always in hexadecimal."""
    if kind == "f":
        return f"{struct.unpack('<d', struct.pack('<Q', raw))[0]:f}"
    raw &= (1 << width) - 1
    if kind == "p":
        return f"0x{raw:x}"
    if as_hex:
        return f"0x{raw:0{max(1, width // 4)}x}"
    return str(raw - (1 << width) if kind == "i" and width > 1 and raw >> (width - 1) else raw)


def line(program: Iterable[int], text: str, shape: Sequence[int] | None = None, flat: int = 0, value: str = "") -> str:
    """A whole line without its end; ``shape`` None: there is no value."""
    where = f"pid ({', '.join(map(str, program))})"
    return f"{where}{text}" if shape is None else f"{where} {index_text(shape, flat)}{text}{value}"
