"""What kernels tell the host through a buffer, where a GPU has no printf: lines of device_print, and assertions that failed.

The buffer is of 32-bit words: the number of records that were asked for, seven of nothing, then records of RECORD_WORDS words: the text's
number, the program's x, y and z, the thread, the value's low and high half, nothing. Records beyond the capacity are counted only.
``metadata["reports"]`` describes the texts: ``kind`` ("print" or "assert"), ``text``, and for values ``type`` ("i", "u", "f" or "p"), ``bits``, ``hex``.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.dialects.errors import DeviceAssertionError

HEADER_WORDS = RECORD_WORDS = 8
CAPACITY = 1 << 15  # records
BYTES = 4 * (HEADER_WORDS + CAPACITY * RECORD_WORDS)


def value_text(entry: Mapping[str, Any], bits: int) -> str:
    """A value as printed; ``bits`` are those of an int64, or of a float64."""
    if entry["type"] == "f":
        number = struct.unpack("<d", struct.pack("<Q", bits))[0]
        return number.hex() if entry["hex"] else f"{number:f}"
    width = int(entry["bits"])
    raw = bits & ((1 << width) - 1)
    if entry["type"] == "p":
        return f"0x{raw:x}"
    if entry["hex"]:
        return f"0x{raw:0{max(1, width // 4)}x}"
    return str(raw - (1 << width) if entry["type"] == "i" and width > 1 and raw >> (width - 1) else raw)


def tell(data: bytes, reports: Sequence[Mapping[str, Any]], kernel: str) -> None:
    """Print the lines of a launch's buffer, and raise DeviceAssertionError for the first failed assertion."""
    asked, = struct.unpack_from("<I", data)
    failures = []
    for i in range(min(asked, CAPACITY)):
        number, x, y, z, thread, low, high, _ = struct.unpack_from("<8I", data, 4 * (HEADER_WORDS + i * RECORD_WORDS))
        entry = reports[number]
        if entry["kind"] == "assert":
            failures.append(f"{kernel}: device_assert failed in program ({x}, {y}, {z}), thread {thread}: {entry['text']}")
            continue
        value = value_text(entry, low | high << 32) if entry.get("type") else ""
        print(f"pid ({x}, {y}, {z}) thread {thread} {entry['text']}{value}")
    if asked > CAPACITY:
        print(f"{kernel}: {asked - CAPACITY} more lines of device_print did not fit into the buffer")
    if failures:
        raise DeviceAssertionError(failures[0] + (f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""))
