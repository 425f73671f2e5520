"""A Driver without a device: kernels run in the instruction-level simulator, on host memory (``TILEWRIGHT_TARGET=amd:gfx942:sim``).

It executes the assembly text of the code object that is shipped (both are made of one module, see ``pipeline``) and checks it; see ``simulate``.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.dialects.errors import ArgumentError
from tilewright.dialects.simt.driver import HostTimer
from tilewright.targets import device_reports
from tilewright.targets.amd.capabilities import capabilities
from tilewright.targets.amd.driver import MOST_ALONG_YZ, AmdDriver, pack_format
from tilewright.targets.amd.launch_guards import LaunchGuards
from tilewright.targets.protocol import NeedsMemory


class SimulatedKernel:
    """A kernel's text, parsed and decoded. ``report``: what its last launch did (simulate.Report)."""

    def __init__(self, text: str, metadata: Mapping[str, Any]):
        from tilewright.targets.amd.isa.machine import load
        from tilewright.targets.amd.isa.program import parse

        self.program = parse(text)
        self.kernel = self.function = self.program.kernel(str(metadata["name"]))
        load(self.program, self.kernel)  # an instruction that the simulator does not have is an error now
        self.report: Any = None
        self.n_regs, self.n_spills = int(metadata.get("registers") or 0), int(metadata.get("spills") or 0)


class AmdSimulatedDriver:
    """targets.protocol.Driver over ``simulate``. One device of architecture ``arch``; pointers are addresses in this process, and launches are done
    when they return. Kernels may touch the storage of the arrays among their arguments and what ``simulate.register_buffer`` was given."""

    def __init__(self, arch: str):
        self.arch = arch

    def current_device(self) -> int:
        return 0

    def current_stream(self, device: int) -> int:
        return 0

    def load(self, asm: Mapping[str, Any], metadata: Mapping[str, Any], device: int = 0) -> SimulatedKernel:
        if not asm.get("amdgcn"):
            raise ArgumentError("amd: the simulator needs the stage amdgcn of the compiled kernel, which is not there")
        return SimulatedKernel(asm["amdgcn"], metadata)

    def make_launcher(self, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
        from tilewright.targets.amd.simulate import run_packed

        guards = LaunchGuards(metadata)
        reports = metadata.get("reports")
        formats = ["<" + pack_format([kind])[1:] for kind in signature]
        pointers = any(kind.startswith("*") for kind in signature)
        warps, shared = int(metadata["num_warps"]), int(metadata.get("shared", 0))
        threads = warps * capabilities(self.arch).warp_size

        def launch(gx: int, gy: int, gz: int, stream: int, handle: SimulatedKernel, args: Sequence[Any],
                   memory: Mapping[int, tuple[int, int]] | None = None) -> None:
            if gx * threads >= 1 << 32 or max(gy, gz) > MOST_ALONG_YZ:
                AmdDriver.refuse_grid((gx, gy, gz), threads)
            if guards.needed:
                guards.require(args, (gx, gy, gz))
            if memory is None and pointers:
                raise NeedsMemory
            from tilewright.targets.amd.isa.memory import GlobalMemory

            values = [struct.pack(form, 0 if value is None else value) for form, value in zip(formats, args, strict=True)]
            space = GlobalMemory([(first, end) for first, end in (memory or {}).values()])
            if reports is not None:
                buffer = ctypes.create_string_buffer(device_reports.BYTES)
                first = ctypes.addressof(buffer)
                space.add(first, first + device_reports.BYTES, "buffer of reports")
                values.append(struct.pack("<Q", first))
            handle.report = run_packed(handle.program, handle.kernel, (gx, gy, gz), values, space, warps, shared)
            if reports is not None:
                device_reports.tell(buffer.raw, reports, str(metadata["name"]))

        return launch

    def synchronize(self) -> None:
        """Launches are synchronous."""

    def event_timer(self) -> HostTimer:
        return HostTimer()

    def get_device_properties(self, device: int) -> Mapping[str, Any]:
        """The architecture's limits; one compute unit."""
        facts = capabilities(self.arch)
        return {"max_shared_mem": facts.max_shared_bytes, "max_num_regs": 65536, "multiprocessor_count": 1,
                "warpSize": facts.warp_size, "sm_clock_rate": 0, "mem_clock_rate": 0, "mem_bus_width": 0, "arch": self.arch}
