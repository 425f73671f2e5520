"""What a target's simulated driver shares with every other's: launches on host memory through the SIMT executor.

A target subclasses ``SimulatedDriver`` with ``load`` (lower the kernel, make its executor) and ``get_device_properties``; the
result has the methods of ``targets.protocol.Driver``. Pointers are addresses in this process.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.dialects.global_races import Region
from tilewright.dialects.simt.executor import SimtExecutor

# One launch of the process runs at a time: an executor keeps a machine's memory, and atomics of two launches must not mix. A fork waits for it.
_running = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_running.acquire, after_in_parent=_running.release, after_in_child=_running.release)


class SimulatedKernel:
    """A kernel lowered to the LLVM dialect and decoded. Register counts are the compiled code's, where ``metadata`` has them."""

    def __init__(self, executor: SimtExecutor, metadata: Mapping[str, Any]):
        self.executor = self.function = executor
        self.n_regs, self.n_spills = int(metadata.get("registers") or 0), int(metadata.get("spills") or 0)


class HostTimer:
    """Host time, in place of events."""

    _begin = _end = 0.0

    def start(self) -> None:
        self._begin = time.perf_counter()

    def stop(self) -> None:
        self._end = time.perf_counter()

    def elapsed_ms(self) -> float:
        return (self._end - self._begin) * 1e3


class SimulatedDriver:
    """One simulated device of architecture ``arch``. Launches are done when they return; what kernels print is printed then."""

    def __init__(self, arch: str):
        self.arch = arch

    def current_device(self) -> int:
        return 0

    def current_stream(self, device: int) -> int:
        return 0

    def make_launcher(self, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
        floats = [i for i, kind in enumerate(signature) if kind in ("fp32", "f32")]

        def launch(gx: int, gy: int, gz: int, stream: int, handle: SimulatedKernel, args: Sequence[Any], memory: Any = None) -> None:
            for i in floats:  # as a device's launcher packs them: OverflowError for what is beyond
                struct.pack("=f", args[i])
            self.execute(handle, (gx, gy, gz), args, self.regions(signature, args, memory))

        return launch

    def regions(self, signature: Sequence[str], args: Sequence[Any], memory: Mapping[int, tuple[int, int]] | None) -> Sequence[Region]:
        """The arrays among a launch's arguments, as far as ``memory`` (address → storage) tells. A target may ask the runtime for it here."""
        known = memory or {}
        return [Region(*known[a], f"argument {i}") for i, (a, kind) in enumerate(zip(args, signature)) if kind.startswith("*") and a in known]

    def execute(self, handle: SimulatedKernel, grid: tuple[int, int, int], args: Sequence[Any], regions: Sequence[Region] = ()) -> None:
        """Run the blocks of ``grid``; ``args`` are all the lowered kernel's, ``regions`` the arrays that these are of. Threads take turns."""
        with _running:
            output = handle.executor.machine.output
            output.clear()
            try:
                handle.executor.run(grid, args, whole_process=True, regions=regions)
            finally:
                for _, _, text in output:
                    print(text, end="")

    def synchronize(self) -> None:
        """Launches are synchronous."""

    def event_timer(self) -> HostTimer:
        return HostTimer()
