"""A kernel's launcher on AMD GPUs: packs the arguments into one buffer, and makes one call of the HIP runtime.

The buffer is the kernarg segment's explicit part, each argument at its natural alignment (LLVM's AMDGPU user guide, "Kernarg Segment"; the
runtime fills in the hidden arguments that follow). It is handed over through ``extra`` (HIP's "Porting CUDA driver API", "kernel launch"),
whose contents the runtime copies while it is called.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.targets import device_reports, kernel_arguments

if TYPE_CHECKING:
    from tilewright.targets.amd.driver import AmdDriver, Loaded

_PARAM_BUFFER_POINTER, _PARAM_BUFFER_SIZE, _PARAM_END = 1, 2, 3  # HIP_LAUNCH_PARAM_*
_RUNTIME = "libamdhip64"
_MOST_THREADS = 1 << 32  # along one dim of a launch: hipModuleLaunchKernel refuses as many, and no 32-bit id could count them


def pack_format(signature: Sequence[str]) -> str:
    """struct format of the kernel's argument buffer, as AMDGPU lays kernargs out. ``signature`` has the types of the run-time arguments."""
    return kernel_arguments.layout(signature)[0]


def address(argument: Any) -> int:
    """Device address of a pointer argument; see targets.kernel_arguments."""
    return kernel_arguments.address(argument, "an AMD GPU", "a torch tensor of device 'cuda' (ROCm), a cupy array or an address")


# ------------------------------------------------------------------------------------------------------- the runtime's library
def loaded_runtimes(maps: str = "/proc/self/maps") -> list[str]:
    """Files of HIP runtimes that are mapped into this process, each once. None where the system does not tell."""
    found: dict[str, None] = {}
    try:
        with open(maps, encoding="utf-8", errors="replace") as f:
            for line in f:
                path = line.split(None, 5)[5].strip() if line.count(" ") > 4 and _RUNTIME in line else ""
                if os.path.basename(path).startswith(_RUNTIME):
                    found.setdefault(os.path.realpath(path))
    except OSError:
        pass
    return list(found)


def native_launch(hip: Any) -> Callable[..., int] | None:
    """hipModuleLaunchKernel of the library that hip-python has opened, called by ctypes with objects that exist already: the bindings convert
    eleven arguments. (hipDrvLaunchKernelEx takes four, but ROCm 7's drops ``extra`` and is not captured into graphs.) None with a stand-in, or where
    the library is not to be found; then the bindings' function serves."""
    own = getattr(hip, "native_launch", None)
    if own is not None or getattr(hip, "__name__", "").split(".")[0] not in ("hip", "rocm"):
        return own
    libraries = loaded_runtimes()
    try:
        return ctypes.CDLL(libraries[0])["hipModuleLaunchKernel"] if len(libraries) == 1 else None
    except (OSError, AttributeError):
        return None


def launch_through(hip: Any) -> Callable[..., int]:
    """``native_launch``'s function over the bindings' hipModuleLaunchKernel."""
    def launch(function: Any, gx: int, gy: int, gz: int, bx: Any, by: Any, bz: Any, shared: Any, stream: Any, params: None, extra: Any) -> int:
        return int(hip.hipModuleLaunchKernel(function, gx, gy, gz, bx.value, by.value, bz.value, shared.value, stream.value or 0, params, extra)[0])

    return launch


def make_launcher(driver: AmdDriver, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
    """See targets.protocol.Driver. The buffer and all arguments of the call but the grid exist before the first launch. Raises NeedsVariant
    (before launching) where ``metadata["host"]`` has guards that the arguments break."""
    reports = metadata.get("reports")
    if reports is not None:
        signature = [*signature, "*i32"]
    packer = struct.Struct(pack_format(signature))
    threads, shared = int(metadata["num_warps"]) * int(metadata["warp_size"]), int(metadata.get("shared", 0))
    buffer = ctypes.create_string_buffer(max(packer.size, 1))
    size = ctypes.c_size_t(packer.size)
    extra = (ctypes.c_void_p * 5)(_PARAM_BUFFER_POINTER, ctypes.addressof(buffer), _PARAM_BUFFER_SIZE, ctypes.addressof(size), _PARAM_END)
    where = ctypes.c_void_p(ctypes.addressof(extra))
    x, one, lds, queue = ctypes.c_uint(threads), ctypes.c_uint(1), ctypes.c_uint(shared), ctypes.c_void_p()
    most = (_MOST_THREADS - 1) // threads
    lock = threading.Lock()  # the runtime reads the buffer without the interpreter's lock
    pack_into, call = packer.pack_into, driver.launch

    def again(handle: Loaded, grid: tuple[int, int, int], status: int) -> None:
        """After a call that did not launch: once more on the kernel's device, where another is this thread's (the runtime wants a stream's device
        to be the thread's)."""
        if driver.other_device(handle.device):
            driver.forget_error()
            with driver.on(handle.device):
                status = call(handle.pointer, *grid, x, one, one, lds, queue, None, where)
        if status:
            driver.launch_failed(status, grid, threads, handle)

    def slowly(grid: tuple[int, int, int], stream: Any, args: Sequence[Any]) -> None:
        """What is unusual: arrays where addresses are expected, a number out of its type's range, a stream object; or a mistake."""
        if min(grid) < 1 or grid[0] > most or max(grid) >= 1 << 32:
            driver.refuse_grid(grid, threads)
        pack_into(buffer, 0, *kernel_arguments.checked(args, signature, address))
        queue.value = int(stream or 0)

    def launch(gx: int, gy: int, gz: int, stream: int, handle: Loaded, args: Sequence[Any]) -> None:
        with lock:
            try:
                pack_into(buffer, 0, *args)
                queue.value = stream
            except (struct.error, TypeError, OverflowError):
                slowly((gx, gy, gz), stream, args)
            if gx > most:
                driver.refuse_grid((gx, gy, gz), threads)
            status = call(handle.pointer, gx, gy, gz, x, one, one, lds, queue, None, where)
            if status:
                again(handle, (gx, gy, gz), status)

    made: Any = launch
    if reports is not None:
        name = str(metadata["name"])

        def launch_reporting(gx: int, gy: int, gz: int, stream: int, handle: Loaded, args: Sequence[Any]) -> None:
            """With a buffer of its own, that is read when the kernel is done."""
            with driver.report_buffer(handle.device) as (where_to, read):
                launch(gx, gy, gz, stream, handle, [*args, where_to])
                data = read()
            device_reports.tell(data, reports, name)

        made = launch_reporting
    host = metadata.get("host") or {}
    if host.get("guards"):
        from tilewright.targets.amd.launch_guards import LaunchGuards

        require, inner = LaunchGuards(metadata).require, made

        def launch_guarded(gx: int, gy: int, gz: int, stream: int, handle: Loaded, args: Sequence[Any]) -> None:
            require(args, (gx, gy, gz))
            inner(gx, gy, gz, stream, handle, args)

        made = launch_guarded
    made.keep_alive = (buffer, size, extra)  # the runtime is given bare addresses
    return made
