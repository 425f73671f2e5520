"""Loading and launching on AMD GPUs through hip-python (``from hip import hip``); imported on the first launch only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.dialects.errors import ArgumentError, DriverNotFoundError, OutOfResources, TilewrightError
from tilewright.targets import device_reports
from tilewright.targets.amd.launcher import (
    address,
    launch_through,
    loaded_runtimes,
    make_launcher,
    native_launch,
    pack_format,
)

# hipError_t
_INVALID_VALUE, _OUT_OF_MEMORY, _INVALID_CONFIGURATION, _NO_BINARY_FOR_GPU, _LAUNCH_OUT_OF_RESOURCES = 1, 2, 9, 209, 701
MOST_ALONG_YZ = 65536  # programs; hipModuleLaunchKernel calls more an invalid value


class HipError(TilewrightError):
    """A call into the HIP runtime failed; names the call and the status. ``status`` is the hipError_t."""

    def __init__(self, message: str, status: int = 0):
        self.status = status
        super().__init__(message)


class Loaded:
    """A loaded code object and its kernel. ``n_regs`` vector registers a lane, ``n_spills`` of them kept in scratch memory; ``pointer``: the
    function as ``AmdDriver.launch`` takes it. The image is kept: the runtime may read it until the module is unloaded."""

    def __init__(self, module: Any, function: Any, pointer: Any, device: int, image: bytes, metadata: Mapping[str, Any]):
        self.module, self.function, self.pointer, self.device, self.image = module, function, pointer, device, image
        self.n_regs, self.n_spills = int(metadata.get("registers") or 0), int(metadata.get("spills") or 0)


class _Timer:
    """start(), stop(), elapsed_ms() with two events on the current stream."""

    def __init__(self, driver: AmdDriver):
        self._driver = driver
        self._begin, self._end = (driver.call("hipEventCreate") for _ in range(2))

    def _record(self, event: Any) -> None:
        self._driver.call("hipEventRecord", event, self._driver.current_stream(self._driver.current_device()))

    def start(self) -> None:
        self._record(self._begin)

    def stop(self) -> None:
        self._record(self._end)

    def elapsed_ms(self) -> float:
        self._driver.call("hipEventSynchronize", self._end)
        return float(self._driver.call("hipEventElapsedTime", self._begin, self._end))

    def __del__(self) -> None:
        for event in (getattr(self, "_begin", None), getattr(self, "_end", None)):
            if event is not None and sys is not None and not sys.is_finalizing():
                self._driver.hip.hipEventDestroy(event)


def _torch_runtime(libraries: Sequence[str]) -> str | None:
    """The folder that ROCM_PATH must name for hip-python to open the runtime that is loaded already (torch's wheels have their own)."""
    if len(libraries) != 1:
        return None
    folder, name = os.path.split(libraries[0])
    return os.path.dirname(folder) if os.path.basename(folder) == "lib" and name.startswith("libamdhip64.so") else None


class AmdDriver:
    """targets.protocol.Driver over HIP. ``hip``: the module, or a stand-in with the same functions in tests."""

    def __init__(self, hip: Any = None):
        if hip is None:
            try:
                from hip import hip
            except ImportError as e:
                raise DriverNotFoundError("amd: the package hip-python is missing; pip install 'tilewright[amd]'") from e
        self.hip = hip
        self._torch: Any = None
        try:
            count = self._first_call()
        except RuntimeError as e:  # hip-python opens libamdhip64 on the first call
            raise DriverNotFoundError(f"amd: the HIP runtime cannot be loaded ({e}); install ROCm, or compile only with "
                                      "tilewright.compile(…), which needs no device") from e
        except HipError as e:  # no device is a status of its own (100), so is a kernel driver that does not answer
            raise DriverNotFoundError(f"amd: the HIP runtime cannot be used ({e}); is ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES set?") from e
        if not count:
            raise DriverNotFoundError("amd: the HIP runtime finds no device; is ROCR_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES set?")
        self._check_one_runtime()
        self._native = native_launch(hip)
        self.launch: Callable[..., int] = self._native or launch_through(hip)

    def device_count(self) -> int:
        return int(self.call("hipGetDeviceCount"))

    def _first_call(self) -> int:
        """The number of devices. hip-python opens the runtime now: the one that is in the process already, if one is."""
        before = os.environ.get("ROCM_PATH")
        wanted = _torch_runtime(loaded_runtimes())
        if wanted is not None:
            os.environ["ROCM_PATH"] = wanted
        try:
            return int(self.call("hipGetDeviceCount"))
        finally:
            if wanted is not None:
                if before is None:
                    del os.environ["ROCM_PATH"]
                else:
                    os.environ["ROCM_PATH"] = before

    @staticmethod
    def _check_one_runtime() -> None:
        """Two copies of the runtime do not know each other's memory: an array of the one is a wrong address in the other."""
        libraries = loaded_runtimes()
        if len(libraries) > 1:
            raise DriverNotFoundError(f"amd: {len(libraries)} HIP runtimes are in this process ({', '.join(libraries)}), which do not share memory. Import torch "
                                      "before the first launch, or set ROCM_PATH to the installation that torch was built for")

    def call(self, name: str, *args: Any) -> Any:
        """Call hip.NAME; its first result is the status. Returns the one further result, if any."""
        result = getattr(self.hip, name)(*args)
        if int(result[0]) != 0:
            self._fail(name, result[0])
        return result[1] if len(result) > 1 else None

    def _fail(self, name: str, status: Any) -> None:
        text = str(getattr(status, "name", status))
        named = getattr(self.hip, "hipError_t", None)
        try:
            status = named(status) if named is not None else status
            found, described = self.hip.hipGetErrorString(status)
        except (ValueError, RuntimeError):  # a status that the bindings do not know, or no runtime
            found, described = 1, b""
        text = str(getattr(status, "name", text))
        if int(found) == 0 and described:
            text += f": {described.decode() if isinstance(described, bytes) else described}"
        self.forget_error()
        raise HipError(f"amd: {name} failed with {text}", int(status))

    def forget_error(self) -> None:
        """Clear this thread's last error, which torch would take for one of its own launches': it has been dealt with, or is raised."""
        try:
            self.hip.hipGetLastError()
        except (RuntimeError, AttributeError):  # no runtime
            pass

    # -- devices, streams
    @property
    def current_device(self) -> Callable[[], int]:
        """torch's where torch has the GPU in use, else that of this thread. A function; where it is torch's own, every launch is spared a
        frame."""
        torch_c = self._torch_c()
        return torch_c._cuda_getDevice if torch_c is not None else self._current_device

    def _current_device(self) -> int:
        torch_c = self._torch_c()  # since torch may begin at any time
        return int(torch_c._cuda_getDevice()) if torch_c is not None else int(self.call("hipGetDevice"))

    def _torch_c(self) -> Any:
        """torch's C module once a torch for ROCm has initialised its GPUs (which it calls "cuda"), else None."""
        if self._torch is None:
            torch = sys.modules.get("torch")
            if torch is None or not hasattr(torch, "cuda") or not getattr(torch.version, "hip", None) or not torch.cuda.is_initialized():
                return None
            self._check_one_runtime()
            self._torch = torch._C
        return self._torch

    @property
    def current_stream(self) -> Callable[[int], int]:
        """torch's current stream of a device where torch has the GPU in use, else the default stream (0). A function, as above."""
        torch_c = self._torch_c()
        return torch_c._cuda_getCurrentRawStream if torch_c is not None else self._current_stream

    def _current_stream(self, device: int) -> int:
        torch_c = self._torch_c()
        return int(torch_c._cuda_getCurrentRawStream(device)) if torch_c is not None else 0

    def other_device(self, device: int) -> bool:
        """Whether this thread's device is another than ``device``."""
        return int(self.call("hipGetDevice")) != device

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Make ``device`` this thread's for a while: HIP loads modules, and launches on the default stream, on the thread's device."""
        before = int(self.call("hipGetDevice"))
        if before != device:
            self.call("hipSetDevice", device)
        try:
            yield
        finally:
            if before != device:
                self.call("hipSetDevice", before)

    def _attribute(self, name: str, device: int) -> int:
        return int(self.call("hipDeviceGetAttribute", getattr(self.hip.hipDeviceAttribute_t, f"hipDeviceAttribute{name}"), device))

    def get_device_properties(self, device: int) -> Mapping[str, Any]:
        """Keys as Triton's: max_shared_mem (bytes of LDS), max_num_regs (a work-group), multiprocessor_count (compute units), warpSize, clocks in
        kHz, mem_bus_width (bits), arch ("gfx942")."""
        names = {"max_shared_mem": "MaxSharedMemoryPerBlock", "max_num_regs": "MaxRegistersPerBlock", "multiprocessor_count": "MultiprocessorCount",
                 "warpSize": "WarpSize", "sm_clock_rate": "ClockRate", "mem_clock_rate": "MemoryClockRate", "mem_bus_width": "MemoryBusWidth"}
        return {**{key: self._attribute(name, device) for key, name in names.items()}, "arch": self._arch(device)}

    def _arch(self, device: int) -> str:
        name = self.call("hipGetDeviceProperties", device).gcnArchName
        return (name.decode() if isinstance(name, bytes) else str(name)).split("\0")[0].split(":")[0]

    def synchronize(self) -> None:
        """Wait for the current device."""
        with self.on(self.current_device()):
            self.call("hipDeviceSynchronize")

    def event_timer(self) -> _Timer:
        with self.on(self.current_device()):
            return _Timer(self)

    # -- kernels
    def load(self, asm: Mapping[str, Any], metadata: Mapping[str, Any], device: int) -> Loaded:
        """Load the code object on ``device``. ``metadata``: name, shared (bytes), num_warps, warp_size, arch.

        Raises OutOfResources where the kernel needs more LDS or threads than the device gives a work-group."""
        code = asm.get("hsaco")
        if not code:
            raise DriverNotFoundError("amd: there is no code object to load; install a linker: pip install 'tilewright[amd]'")
        image = bytes(code)
        with self.on(device):
            check_resources(metadata, self._attribute("MaxSharedMemoryPerBlock", device))
            try:
                module = self.call("hipModuleLoadData", image)
            except HipError as e:
                here = self._arch(device)
                hint = f"; the code object is for {metadata.get('arch', 'another architecture')} and device {device} is {here}"
                raise HipError(f"{e}{hint if e.status == _NO_BINARY_FOR_GPU or here != metadata.get('arch', here) else ''}", e.status) from e
            function = self.call("hipModuleGetFunction", module, str(metadata["name"]).encode())
            most = int(self.call("hipFuncGetAttribute", self.hip.hipFunction_attribute.HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function))
        wanted = int(metadata["num_warps"]) * int(metadata["warp_size"])
        if wanted > most:
            raise OutOfResources(wanted, most, "threads", "Reducing num_warps may help.")
        pointer = ctypes.c_void_p(int(function)) if self._native else function
        return Loaded(module, function, pointer, device, image, metadata)

    @contextlib.contextmanager
    def report_buffer(self, device: int) -> Iterator[tuple[int, Callable[[], bytes]]]:
        """Address of a zeroed buffer of targets/device_reports on ``device``, and a function that waits for the device and reads it."""
        with self.on(device):
            pointer = self.call("hipMalloc", device_reports.BYTES)
            try:
                self.call("hipMemset", pointer, 0, device_reports.BYTES)

                def read() -> bytes:
                    data = bytearray(device_reports.BYTES)
                    self.call("hipDeviceSynchronize")
                    self.call("hipMemcpy", data, pointer, device_reports.BYTES, self.hip.hipMemcpyKind.hipMemcpyDeviceToHost)
                    return bytes(data)

                yield int(pointer), read
            finally:
                self.call("hipFree", pointer)

    def unload(self, handle: Loaded) -> None:
        """Free a loaded kernel."""
        with self.on(handle.device):
            self.call("hipModuleUnload", handle.module)

    def make_launcher(self, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
        """See targets.protocol.Driver and targets/amd/launcher.py."""
        return make_launcher(self, signature, metadata)

    def launch_failed(self, status: Any, grid: tuple[int, int, int], threads: int, handle: Loaded) -> None:
        """Raise what a failed launch means."""
        code = int(status)
        self.forget_error()
        if min(grid) < 1 or (code in (_INVALID_VALUE, _INVALID_CONFIGURATION) and (grid[0] >= 1 << 31 or max(grid[1:]) > MOST_ALONG_YZ)):
            self.refuse_grid(grid, threads)
        if code in (_LAUNCH_OUT_OF_RESOURCES, _OUT_OF_MEMORY):
            limit = self._attribute("MaxRegistersPerBlock", handle.device)
            raise OutOfResources(threads * handle.n_regs, limit, "registers or scratch memory", "Reducing num_warps or block sizes may help.")
        self._fail("hipModuleLaunchKernel", code)

    @staticmethod
    def refuse_grid(grid: tuple[int, int, int], threads: int) -> None:
        raise ArgumentError(f"the grid is {grid}; allowed are at least 1 along each dim, along x fewer than 2³² threads "
                            f"({(1 << 32) // threads - 1} programs of {threads}), and at most {MOST_ALONG_YZ} programs along y and z")


def check_resources(metadata: Mapping[str, Any], limit: int) -> None:
    """Raises OutOfResources when the kernel needs more LDS than ``limit`` bytes."""
    if int(metadata.get("shared", 0)) > limit:
        raise OutOfResources(int(metadata["shared"]), limit, "shared memory")


__all__ = ["AmdDriver", "HipError", "Loaded", "address", "check_resources", "pack_format"]
