"""Loading and launching on AMD GPUs through hip-python (``from hip import hip``); imported on the first launch only."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.dialects.errors import ArgumentError, DriverNotFoundError, OutOfResources, TilewrightError
from tilewright.targets.amd.launch_guards import LaunchGuards

# struct formats of kernel arguments, by Triton type; natural alignment as in the code object's metadata
_FORMATS = {"i1": "B", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q",
            "fp32": "f", "f32": "f", "fp64": "d", "f64": "d"}
_PARAM_BUFFER_POINTER, _PARAM_BUFFER_SIZE, _PARAM_END = 1, 2, 3  # HIP_LAUNCH_PARAM_*


class HipError(TilewrightError):
    """A call into the HIP runtime failed; names the call and the status."""


def pack_format(signature: Sequence[str]) -> str:
    """struct format of the kernel's argument buffer: each argument at its natural alignment, as AMDGPU lays kernargs out.

    ``signature`` has the Triton types of the non-constexpr arguments ("*fp32", "i32", …).
    """
    layout, offset = "=", 0
    for kind in signature:
        code = "Q" if kind.startswith("*") else _FORMATS.get(kind)
        if code is None:
            raise ArgumentError(f"a kernel argument of type {kind!r} cannot be passed; pass fp16 and bf16 scalars as fp32")
        size = struct.calcsize("=" + code)
        padding = -offset % size
        layout += f"{padding}x{code}" if padding else code
        offset += padding + size
    return layout


def address(argument: Any) -> int:
    """Device address of a pointer argument: an int, None (0), or an array on the device."""
    if isinstance(argument, int):
        return argument
    if argument is None:
        return 0
    if hasattr(argument, "data_ptr"):
        return int(argument.data_ptr())
    if hasattr(argument, "__cuda_array_interface__"):  # what cupy offers on ROCm too
        return int(argument.__cuda_array_interface__["data"][0])
    raise ArgumentError(f"a pointer argument of type {type(argument).__name__} does not live on an AMD GPU; "
                        "pass a torch tensor of device 'cuda' (ROCm), a cupy array or an address")


class Loaded:
    """A loaded code object and its kernel."""

    def __init__(self, module: Any, function: Any, metadata: Mapping[str, Any]):
        self.module, self.function = module, function
        self.n_regs, self.n_spills = int(metadata.get("registers", 0)), int(metadata.get("spills", 0))


class _Timer:
    def __init__(self, driver: AmdDriver):
        self.driver = driver
        self.begin, self.end = (driver.call("hipEventCreate") for _ in range(2))

    def start(self) -> None:
        self.driver.call("hipEventRecord", self.begin, self.driver.current_stream(self.driver.current_device()))

    def stop(self) -> None:
        self.driver.call("hipEventRecord", self.end, self.driver.current_stream(self.driver.current_device()))

    def elapsed_ms(self) -> float:
        self.driver.call("hipEventSynchronize", self.end)
        return float(self.driver.call("hipEventElapsedTime", self.begin, self.end))


class AmdDriver:
    """targets.protocol.Driver over HIP. ``hip``: the module, or a stand-in with the same functions in tests."""

    def __init__(self, hip: Any = None):
        if hip is None:
            try:
                from hip import hip
            except ImportError as e:
                raise DriverNotFoundError("amd: the package hip-python is missing; pip install 'tilewright[amd]'") from e
        self.hip = hip
        try:
            count = self.call("hipGetDeviceCount")
        except RuntimeError as e:  # hip-python opens libamdhip64 on the first call
            raise DriverNotFoundError(f"amd: the HIP runtime cannot be loaded ({e}); install ROCm, or compile only with "
                                      "tilewright.compile(…), which needs no device") from e
        if not count:
            raise DriverNotFoundError("amd: the HIP runtime finds no device")

    def call(self, name: str, *args: Any) -> Any:
        """Call hip.NAME; its first result is the status. Returns the one further result, if any."""
        result = getattr(self.hip, name)(*args)
        status, rest = (result[0], result[1:]) if isinstance(result, tuple) else (result, ())
        if int(status) != 0:
            raise HipError(f"amd: {name} failed: {status}")
        return rest[0] if rest else None

    def current_device(self) -> int:
        return int(self.call("hipGetDevice"))

    def current_stream(self, device: int) -> int:
        """torch's current stream where torch is loaded, else the default stream (0)."""
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_available():
            return int(torch.cuda.current_stream(device).cuda_stream)
        return 0

    def load(self, asm: Mapping[str, Any], metadata: Mapping[str, Any], device: int) -> Loaded:
        code = asm.get("hsaco")
        if not code:
            raise DriverNotFoundError("amd: there is no code object to load; install a linker: pip install 'tilewright[amd]'")
        module = self.call("hipModuleLoadData", bytes(code))
        function = self.call("hipModuleGetFunction", module, metadata["name"].encode())
        return Loaded(module, function, metadata)

    def make_launcher(self, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
        guards = LaunchGuards(metadata)
        packer = struct.Struct(pack_format(signature))
        pointers = tuple(i for i, kind in enumerate(signature) if kind.startswith("*"))
        threads = int(metadata["num_warps"]) * int(metadata["warp_size"])
        shared = int(metadata.get("shared", 0))
        buffer = ctypes.create_string_buffer(max(packer.size, 1))
        size = ctypes.c_size_t(packer.size)
        extra = (ctypes.c_void_p * 5)(_PARAM_BUFFER_POINTER, ctypes.addressof(buffer), _PARAM_BUFFER_SIZE, ctypes.addressof(size),
                                      _PARAM_END)

        def launch(gx: int, gy: int, gz: int, stream: int, handle: Loaded, args: Sequence[Any]) -> None:
            if guards.needed:
                guards.require(args, (gx, gy, gz))
            values = list(args)
            for i in pointers:
                values[i] = address(values[i])
            packer.pack_into(buffer, 0, *values)
            self.call("hipModuleLaunchKernel", handle.function, gx, gy, gz, threads, 1, 1, shared, stream, None, extra)

        launch.keep_alive = (buffer, size)  # type: ignore[attr-defined]  # extra holds bare addresses of both
        return launch

    def synchronize(self) -> None:
        self.call("hipDeviceSynchronize")

    def get_device_properties(self, device: int) -> Mapping[str, Any]:
        """Keys as Triton's utils.get_device_properties: max_shared_mem (bytes), multiprocessor_count, warpSize, …"""
        p = self.call("hipGetDeviceProperties", device)
        return {"max_shared_mem": int(p.sharedMemPerBlock), "multiprocessor_count": int(p.multiProcessorCount),
                "warpSize": int(p.warpSize), "max_num_regs": int(p.regsPerBlock), "arch": bytes(p.gcnArchName).decode().strip("\0"),
                "sm_clock_rate": int(p.clockRate), "mem_clock_rate": int(p.memoryClockRate), "mem_bus_width": int(p.memoryBusWidth)}

    def event_timer(self) -> _Timer:
        return _Timer(self)


def check_resources(metadata: Mapping[str, Any], limit: int) -> None:
    """Raises OutOfResources when the kernel needs more LDS than ``limit`` bytes."""
    if int(metadata.get("shared", 0)) > limit:
        raise OutOfResources(int(metadata["shared"]), limit, "shared memory")
