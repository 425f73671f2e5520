"""Loading and launching on NVIDIA GPUs through ``cuda.bindings.driver``; imported on the first launch only."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.dialects.errors import ArgumentError, DriverNotFoundError, OutOfResources, TilewrightError
from tilewright.targets.nvidia.launcher import launch_through, make_launcher, native_launch

_DEFAULT_SHARED_LIMIT = 48 * 1024  # more needs the function's attribute
_OUT_OF_RESOURCES = 701


class CudaError(TilewrightError):
    """A call into the CUDA driver failed; names the call and the status. ``status`` is the CUresult."""

    def __init__(self, message: str, status: int = 0):
        self.status = status
        super().__init__(message)


class Loaded:
    """A loaded module and its kernel. ``n_regs`` registers a thread, ``n_spills`` 32-bit words of local memory a thread,
    ``multiprocessors`` of the device. ``pointer``: the function as ``NvidiaDriver.launch`` takes it."""

    def __init__(self, module: Any, function: Any, pointer: Any, device: int, n_regs: int, n_spills: int, n_max_threads: int, multiprocessors: int):
        self.module, self.function, self.pointer, self.device = module, function, pointer, device
        self.n_regs, self.n_spills, self.n_max_threads, self.multiprocessors = n_regs, n_spills, n_max_threads, multiprocessors


class _Timer:
    """start(), stop(), elapsed_ms() with two events on the current stream."""

    def __init__(self, driver: NvidiaDriver):
        self._driver = driver
        self._begin, self._end = (driver.call("cuEventCreate", 0) for _ in range(2))

    def _record(self, event: Any) -> None:
        self._driver.call("cuEventRecord", event, self._driver.current_stream(self._driver.current_device()))

    def start(self) -> None:
        self._record(self._begin)

    def stop(self) -> None:
        self._record(self._end)

    def elapsed_ms(self) -> float:
        self._driver.call("cuEventSynchronize", self._end)
        # CUDA 13's bindings spell the function with its version
        name = "cuEventElapsedTime" if hasattr(self._driver.cuda, "cuEventElapsedTime") else "cuEventElapsedTime_v2"
        return float(self._driver.call(name, self._begin, self._end))

    def __del__(self) -> None:
        for event in (getattr(self, "_begin", None), getattr(self, "_end", None)):
            if event is not None and sys is not None and not sys.is_finalizing():
                self._driver.cuda.cuEventDestroy(event)


class NvidiaDriver:
    """targets.protocol.Driver over the CUDA driver. ``cuda``: the module, or a stand-in with the same functions in tests."""

    def __init__(self, cuda: Any = None):
        if cuda is None:
            try:
                import cuda.bindings.driver as bindings
            except ImportError as e:
                raise DriverNotFoundError("nvidia: the package cuda-python is missing; pip install 'tilewright[nvidia]'") from e
            cuda = bindings
        self.cuda = cuda
        self._native = native_launch(cuda)
        self.launch: Callable[..., int] = self._native or launch_through(cuda)
        self._contexts: dict[int, Any] = {}
        self._torch: Any = None
        self._lock = threading.RLock()
        try:
            self.call("cuInit", 0)
        except RuntimeError as e:  # cuda.bindings opens libcuda on the first call
            raise DriverNotFoundError(f"nvidia: the CUDA driver cannot be loaded ({e}); install NVIDIA's driver, or compile only "
                                      "with tilewright.compile(…), which needs no device") from e
        except CudaError as e:
            raise DriverNotFoundError(f"nvidia: the CUDA driver cannot be used ({e})") from e
        if not self.call("cuDeviceGetCount"):
            raise DriverNotFoundError("nvidia: the CUDA driver finds no device (is CUDA_VISIBLE_DEVICES set?)")

    def call(self, name: str, *args: Any) -> Any:
        """Call cuda.NAME; its first result is the status. Returns the one further result, if any."""
        result = getattr(self.cuda, name)(*args)
        if int(result[0]) != 0:
            self._fail(name, result[0])
        return result[1] if len(result) > 1 else None

    def _fail(self, name: str, status: Any) -> None:
        text = str(getattr(status, "name", status))
        found, described = self.cuda.cuGetErrorString(status)
        if int(found) == 0 and described:
            text += f": {described.decode() if isinstance(described, bytes) else described}"
        raise CudaError(f"nvidia: {name} failed with {text}", int(status))

    # -- devices, contexts, streams
    def device_count(self) -> int:
        return int(self.call("cuDeviceGetCount"))

    @property
    def current_device(self) -> Callable[[], int]:
        """torch's where torch has CUDA in use, else that of the current context, else 0. A function; where it is torch's own, every launch
        is spared a frame."""
        torch_c = self._torch_c()
        return torch_c._cuda_getDevice if torch_c is not None else self._current_device

    def _current_device(self) -> int:
        torch_c = self._torch_c()  # since torch may begin at any time
        if torch_c is not None:
            return int(torch_c._cuda_getDevice())
        status, device = self.cuda.cuCtxGetDevice()
        return int(device) if int(status) == 0 else 0

    def _torch_c(self) -> Any:
        """torch's C module once torch has initialised CUDA, else None."""
        if self._torch is None:
            torch = sys.modules.get("torch")
            if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
                return None
            self._torch = torch._C
        return self._torch

    @property
    def current_stream(self) -> Callable[[int], int]:
        """torch's current stream of a device where torch has CUDA in use, else the default stream (0). A function, as above."""
        torch_c = self._torch_c()
        return torch_c._cuda_getCurrentRawStream if torch_c is not None else self._current_stream

    def _current_stream(self, device: int) -> int:
        torch_c = self._torch_c()
        return int(torch_c._cuda_getCurrentRawStream(device)) if torch_c is not None else 0

    def use(self, device: int) -> None:
        """Make the primary context of ``device`` current on this thread."""
        with self._lock:
            context = self._contexts.get(device)
            if context is None:
                handle = self.call("cuDeviceGet", device)
                context = self._contexts[device] = self.call("cuDevicePrimaryCtxRetain", handle)
        self.call("cuCtxSetCurrent", context)

    def _attribute(self, name: str, device: int) -> int:
        attribute = getattr(self.cuda.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", attribute, self.call("cuDeviceGet", device)))

    def get_device_properties(self, device: int) -> Mapping[str, Any]:
        """Keys as Triton's: max_shared_mem (bytes), max_num_regs (a block), multiprocessor_count, warpSize, clocks in kHz,
        mem_bus_width (bits), arch (90 for compute capability 9.0)."""
        names = {"max_shared_mem": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", "max_num_regs": "MAX_REGISTERS_PER_BLOCK",
                 "multiprocessor_count": "MULTIPROCESSOR_COUNT", "warpSize": "WARP_SIZE", "sm_clock_rate": "CLOCK_RATE",
                 "mem_clock_rate": "MEMORY_CLOCK_RATE", "mem_bus_width": "GLOBAL_MEMORY_BUS_WIDTH"}
        properties = {key: self._attribute(name, device) for key, name in names.items()}
        major, minor = (self._attribute(f"COMPUTE_CAPABILITY_{n}", device) for n in ("MAJOR", "MINOR"))
        return {**properties, "arch": 10 * major + minor}

    def synchronize(self) -> None:
        self.use(self.current_device())
        self.call("cuCtxSynchronize")

    def event_timer(self) -> _Timer:
        self.use(self.current_device())
        return _Timer(self)

    # -- kernels
    def load(self, asm: Mapping[str, Any], metadata: Mapping[str, Any], device: int) -> Loaded:
        """Load the cubin, else the PTX, which the driver then assembles. ``metadata``: name, shared (bytes), num_warps, total_warps.

        Raises OutOfResources where the kernel needs more shared memory or threads than the device gives a block."""
        self.use(device)
        shared = int(metadata.get("shared", 0))
        limit = self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", device)
        if shared > limit:
            raise OutOfResources(shared, limit, "shared memory")
        code = asm.get("cubin")
        if code:
            image = bytes(code)
        elif asm.get("ptx"):
            image = asm["ptx"].encode() + b"\0"
        else:
            raise DriverNotFoundError("nvidia: there is neither cubin nor PTX to load")
        try:
            module = self.call("cuModuleLoadData", image)
        except CudaError as e:
            raise CudaError(f"{e}; the kernel was built for {metadata.get('arch', 'another architecture')} and the device has compute "
                            f"capability {self.get_device_properties(device)['arch'] / 10}", e.status) from e
        function = self.call("cuModuleGetFunction", module, str(metadata["name"]).encode())
        attributes = self.cuda.CUfunction_attribute

        def get(name: str) -> int:
            return int(self.call("cuFuncGetAttribute", getattr(attributes, f"CU_FUNC_ATTRIBUTE_{name}"), function))

        n_regs, local, threads = get("NUM_REGS"), get("LOCAL_SIZE_BYTES"), get("MAX_THREADS_PER_BLOCK")
        wanted = int(metadata.get("total_warps") or metadata["num_warps"]) * 32
        if wanted > threads:
            raise OutOfResources(wanted, threads, "threads", "Reducing num_warps, or setting maxnreg, may help.")
        if shared > _DEFAULT_SHARED_LIMIT:
            self.call("cuFuncSetCacheConfig", function, self.cuda.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED)
            self.call("cuFuncSetAttribute", function, attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared)
        pointer = ctypes.c_void_p(int(function)) if self._native else function
        return Loaded(module, function, pointer, device, n_regs, local // 4, threads, self._attribute("MULTIPROCESSOR_COUNT", device))

    def unload(self, handle: Loaded) -> None:
        """Free a loaded kernel."""
        self.use(handle.device)
        self.call("cuModuleUnload", handle.module)

    def make_launcher(self, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
        """See targets.protocol.Driver and targets/nvidia/launcher.py."""
        return make_launcher(self, signature, metadata)

    def launch_failed(self, status: Any, grid: tuple[int, int, int], threads: int, handle: Loaded) -> None:
        if int(status) == _OUT_OF_RESOURCES:
            limit = self._attribute("MAX_REGISTERS_PER_BLOCK", handle.device)
            raise OutOfResources(threads * handle.n_regs, limit, "registers", "Reducing num_warps, or setting maxnreg, may help.")
        if min(grid) < 1 or grid[0] >= 1 << 31 or max(grid[1:]) > 65535:
            self.refuse_grid(grid)
        # ctypes gives a bare number, the bindings and stand-ins their own type
        named = getattr(self.cuda, "CUresult", None)
        self._fail("cuLaunchKernel", named(status) if named is not None and self._native else status)

    @staticmethod
    def refuse_grid(grid: tuple[int, int, int]) -> None:
        raise ArgumentError(f"the grid is {grid}; allowed are 1 to 2147483647 programs along x, 1 to 65535 along y and z")
