"""fake_target.py's target with a launcher that machine code may replace: its C function, made by ctypes, records what it is given."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import fake_target

from tilewright.targets import kernel_arguments
from tilewright.targets.protocol import NativeCall, NativePlan

_GRID, _STREAM, _BEGIN = 96, 112, 128
_C_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * 11)


class NativeDriver(fake_target.FakeDriver):
    """``by_machine_code``: launches of ``launches`` that came so, by number. ``statuses``: what the next calls of the C function give. ``during``: called in
    each of them. ``failed``: what was told of failures. ``function``: another C function's address."""

    def __init__(self, plans: bool = False) -> None:
        super().__init__()
        self.by_machine_code: list[int] = []
        self.statuses: list[int] = []
        self.failures: list[Any] = []
        self.during: Any = None
        self.on_failure: Any = None
        self.function: int | None = None
        self.plans, self.devices = plans, 1
        self.kept: dict[Any, bytes] = {}
        self._keep: list[Any] = []

    def device_count(self) -> int:
        return self.devices

    def make_launcher(self, signature: Any, metadata: Any) -> Any:
        python = super().make_launcher(signature, metadata)
        layout, offsets, size = kernel_arguments.layout(signature)
        letters = kernel_arguments.letters(signature)
        name = metadata["name"]
        unpacked = struct.Struct(layout)
        end = _BEGIN + -(-size // 8) * 8

        def launch(gx: int, gy: int, gz: int, stream: int, handle: Any, args: Any) -> None:
            packed = unpacked.pack(*args)  # refuses what does not fit
            if self.plans:
                self.kept[tuple(args[:1]), gx] = struct.pack("=q", gx * 1000 + args[0] % 1000)
            python(gx, gy, gz, stream, handle, unpacked.unpack(packed))

        def called(*words: int) -> int:
            grid = struct.unpack("=3I", ctypes.string_at(words[1], 12))
            (stream,) = struct.unpack("=Q", ctypes.string_at(words[2], 8))
            assert words[0] == 0x5555_1234_5678 and words[3:] == (0, 0, 0, 0, 0, 0, 7, 9), words
            values = unpacked.unpack(ctypes.string_at(words[1] + _BEGIN - _GRID, size))
            if self.plans:
                assert ctypes.string_at(words[1] + end - _GRID, 8) == struct.pack("=q", grid[0] * 1000 + values[0] % 1000)
            if self.during:
                self.during()
            status = self.statuses.pop(0) if self.statuses else 0
            if not status:
                self.by_machine_code.append(len(self.launches))
                self.launches.append((grid, stream, values, name))
            return status

        def failed(handle: Any, grid: Any, status: int) -> None:
            self.failures.append((grid, status))
            if self.on_failure:
                raise self.on_failure

        self._keep.append(_C_FUNCTION(called))
        memory = struct.pack("=11Q", *[0] * 9, 7, 9).ljust(end + 64, b"\0")
        launch.native = NativeCall(  # type: ignore[attr-defined]
            self.function or ctypes.cast(self._keep[-1], ctypes.c_void_p).value or 0, memory, [(letter, _BEGIN + o) for letter, o in zip(letters, offsets)],
            [(8, _GRID), (16, _STREAM)], (_GRID, _GRID + 4, _GRID + 8), _STREAM, 0, lambda handle: 0x5555_1234_5678, failed, most_x=1 << 20,
            planned=NativePlan((0,), True, (_BEGIN, end), end, lambda args, grid: self.kept.get((tuple(args[:1]), grid[0]))) if self.plans else None)
        return launch
