"""What kernels tell the host through a buffer, where a GPU has no printf: lines of device_print, and assertions that failed.

The buffer is of 32-bit words: the number of records that were asked for, seven of nothing, then records of RECORD_WORDS words: the text's
number, the program's x, y and z, the element's row-major number (of assertions the thread), the value's low and high half, nothing. Records beyond
the capacity are counted only. ``metadata["reports"]`` describes the texts: ``kind`` ("print" or "assert"), ``text``, and for values ``type`` (of
prints.KINDS), ``bits``, ``hex`` and the tile's ``shape``.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.dialects import prints
from tilewright.dialects.errors import DeviceAssertionError

HEADER_WORDS = RECORD_WORDS = 8
CAPACITY = 1 << 15  # records
BYTES = 4 * (HEADER_WORDS + CAPACITY * RECORD_WORDS)


def tell(data: bytes, reports: Sequence[Mapping[str, Any]], kernel: str) -> None:
    """Print the lines of a launch's buffer, and raise DeviceAssertionError for the first failed assertion."""
    asked, = struct.unpack_from("<I", data)
    failures, lines = [], []
    for i in range(min(asked, CAPACITY)):
        number, x, y, z, which, low, high, _ = struct.unpack_from("<8I", data, 4 * (HEADER_WORDS + i * RECORD_WORDS))
        entry = reports[number]
        if entry["kind"] == "assert":
            failures.append(f"{kernel}: device_assert failed in program ({x}, {y}, {z}), thread {which}: {entry['text']}")
            continue
        value = prints.value_text(entry["type"], entry["bits"], entry["hex"], low | high << 32) if entry.get("type") else ""
        lines.append(prints.line((x, y, z), entry["text"], entry.get("shape"), which, value))
    if asked > CAPACITY:
        lines.append(f"{kernel}: {asked - CAPACITY} more lines of device_print did not fit into the buffer")
    sys.stdout.write("".join(f"{text}\n" for text in lines))  # in one write: another thread's lines may come between writes
    if failures:
        raise DeviceAssertionError(failures[0] + (f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""))
