"""The part of the HIP runtime that the driver uses, in Python: two devices, modules, streams, events, and launches that are executed in the
instruction-level simulator on the kernarg buffer as it was handed over. Names and parameters are hip-python's (test_amd_driver.py checks)."""

from __future__ import annotations

import ctypes
import itertools
import threading
from types import SimpleNamespace

from tilewright.targets.amd.isa.memory import GlobalMemory
from tilewright.targets.amd.isa.program import parse
from tilewright.targets.amd.simulate import run_packed

# hipError_t of the HIP runtime API reference
INVALID_VALUE, INVALID_DEVICE, NO_BINARY_FOR_GPU, INVALID_HANDLE, NOT_FOUND = 1, 101, 209, 400, 500
TEXTS = {1: b"invalid argument", 9: b"invalid configuration argument", 101: b"invalid device ordinal", 209: b"no kernel image is available for execution",
         400: b"invalid resource handle", 500: b"named symbol not found", 701: b"too many resources requested for launch", 719: b"unspecified launch failure"}


class Launch(SimpleNamespace):
    """A launch as the runtime saw it: kernel, device, stream, grid, block, shared, buffer (the explicit kernargs)."""


class HipStandIn:
    """``code``: image → (arch, AMDGCN text or None where launches are only recorded). ``memory``: [first, end) of each allocation.
    ``fail``: function's name → statuses for its next calls."""

    class hipDeviceAttribute_t:
        hipDeviceAttributeMaxSharedMemoryPerBlock, hipDeviceAttributeMaxRegistersPerBlock, hipDeviceAttributeMultiprocessorCount = "lds", "registers", "units"
        hipDeviceAttributeWarpSize, hipDeviceAttributeClockRate, hipDeviceAttributeMemoryClockRate = "warp", "clock", "memory clock"
        hipDeviceAttributeMemoryBusWidth = "bus"

    class hipFunction_attribute:
        HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = "threads"

    def __init__(self, archs: tuple[str, ...] = ("gfx942", "gfx942"), threads: int = 1024):
        self.archs, self.threads = archs, threads
        self.code: dict[bytes, tuple[str, str | None]] = {}
        self.memory: list[tuple[int, int]] = []
        self.fail: dict[str, list[int]] = {}
        self.calls: list[str] = []
        self.launches: list[Launch] = []
        self.events: dict[int, float | None] = {}
        self.modules: dict[int, tuple[int, bytes]] = {}
        self.functions: dict[int, tuple[int, str]] = {}
        self.attributes = {"lds": 65536, "registers": 65536, "units": 304, "warp": 64, "clock": 2100000, "memory clock": 1300000, "bus": 8192}
        self._new = itertools.count(0x1000, 0x10)
        self._clock = itertools.count()
        self._thread = threading.local()
        self.last_error = 0  # kept until hipGetLastError is called, as the runtime does

    def _status(self, name: str) -> int:
        self.calls.append(name)
        waiting = self.fail.get(name)
        return self._failed(waiting.pop(0)) if waiting else 0

    def _failed(self, status: int) -> int:
        self.last_error = status or self.last_error
        return status

    def hipGetLastError(self):
        error, self.last_error = self.last_error, 0
        return (error,)

    @property
    def device(self) -> int:
        return getattr(self._thread, "device", 0)

    # -- devices
    def hipGetDeviceCount(self):
        return self._status("hipGetDeviceCount"), len(self.archs)

    def hipGetDevice(self):
        return self._status("hipGetDevice"), self.device

    def hipSetDevice(self, deviceId):
        status = self._status("hipSetDevice")
        if not 0 <= deviceId < len(self.archs):
            return (INVALID_DEVICE,)
        self._thread.device = deviceId
        return (status,)

    def hipDeviceGetAttribute(self, attr, deviceId):
        return self._status("hipDeviceGetAttribute"), self.attributes[attr]

    def hipGetDeviceProperties(self, deviceId):
        return self._status("hipGetDeviceProperties"), SimpleNamespace(gcnArchName=self.archs[deviceId].encode() + b":sramecc+:xnack-")

    def hipDeviceSynchronize(self):
        return (self._status("hipDeviceSynchronize"),)

    def hipGetErrorString(self, hipError):
        return 0, TEXTS.get(int(hipError), b"unknown error")

    # -- events
    def hipEventCreate(self):
        event = next(self._new)
        self.events[event] = None
        return self._status("hipEventCreate"), event

    def hipEventDestroy(self, event):
        return (self._status("hipEventDestroy") if self.events.pop(int(event), 0) != 0 else INVALID_HANDLE,)

    def hipEventRecord(self, event, stream):
        self.events[int(event)] = float(next(self._clock))
        return (self._status("hipEventRecord"),)

    def hipEventSynchronize(self, event):
        return (self._status("hipEventSynchronize"),)

    def hipEventElapsedTime(self, start, stop):
        begin, end = self.events[int(start)], self.events[int(stop)]
        return (INVALID_HANDLE, 0.0) if begin is None or end is None else (self._status("hipEventElapsedTime"), end - begin)

    # -- modules
    def hipModuleLoadData(self, image):
        status, image = self._status("hipModuleLoadData"), bytes(image)
        arch = self.code[image][0]
        if arch != self.archs[self.device]:
            return NO_BINARY_FOR_GPU, None
        module = next(self._new)
        self.modules[module] = self.device, image
        return status, module

    def hipModuleUnload(self, module):
        return (self._status("hipModuleUnload") if self.modules.pop(int(module), None) else INVALID_HANDLE,)

    def hipModuleGetFunction(self, module, kname):
        text = self.code[self.modules[int(module)][1]][1]
        if text is not None and kname.decode() not in parse(text).kernels:
            return NOT_FOUND, None
        function = next(self._new)
        self.functions[function] = int(module), kname.decode()
        return self._status("hipModuleGetFunction"), function

    def hipFuncGetAttribute(self, attrib, hfunc):
        return self._status("hipFuncGetAttribute"), self.threads

    def hipModuleLaunchKernel(self, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, stream, kernelParams, extra):
        status = self._status("hipModuleLaunchKernel")
        if status:
            return (status,)
        module, name = self.functions[int(f)]
        device, image = self.modules[module]
        if device != self.device:  # the stream's device, and the kernel's, must be the thread's
            return (self._failed(INVALID_HANDLE),)
        grid, block = (gridDimX, gridDimY, gridDimZ), (blockDimX, blockDimY, blockDimZ)
        if min(grid) < 1 or max(grid[1:]) > 65536 or any(g * b >= 1 << 32 for g, b in zip(grid, block)):
            return (self._failed(INVALID_VALUE),)
        words = ctypes.cast(extra if isinstance(extra, int) else extra.value, ctypes.POINTER(ctypes.c_void_p * 5))[0]
        if kernelParams is not None or (words[0], words[2], words[4]) != (1, 2, 3):  # HIP_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END
            return (INVALID_VALUE,)
        size = ctypes.c_size_t.from_address(words[3]).value
        launch = Launch(kernel=name, device=device, stream=stream or 0, grid=grid, block=block, shared=sharedMemBytes, buffer=ctypes.string_at(words[1], size))
        self.launches.append(launch)
        text = self.code[image][1]
        if text is not None:
            self._execute(text, launch)
        return (0,)

    def _execute(self, text: str, launch: Launch) -> None:
        program = parse(text)
        kernel = program.kernel(launch.kernel)
        values = [launch.buffer[a.offset:a.offset + a.size] for a in kernel.args if not a.hidden]
        assert all(len(v) == a.size for v, a in zip(values, kernel.args)), "the buffer ends before the last argument"
        run_packed(program, kernel, launch.grid, values, GlobalMemory(self.memory), launch.block[0] // kernel.lanes, launch.shared)
