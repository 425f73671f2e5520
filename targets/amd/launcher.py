"""A kernel's launcher on AMD GPUs: packs the arguments into one buffer, and makes one call of the HIP runtime.

The buffer holds the kernarg segment's explicit part, each argument at its natural alignment (LLVM's AMDGPU user guide, "Kernarg Segment"; the
runtime fills in the hidden arguments that follow). It is handed over through ``extra`` (HIP's "Porting CUDA driver API", "kernel launch"),
whose contents the runtime copies while it is called.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.targets import device_reports, kernel_arguments
from tilewright.targets.amd.launch_guards import LaunchGuards
from tilewright.targets.protocol import NativeCall, NativePlan

if TYPE_CHECKING:
    from tilewright.targets.amd.driver import AmdDriver, Loaded

_PARAM_BUFFER_POINTER, _PARAM_BUFFER_SIZE, _PARAM_END = 1, 2, 3  # HIP_LAUNCH_PARAM_*
_RUNTIME = "libamdhip64"
_ARGUMENTS = 8  # where they begin in a record: after the stream
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
    def launch(function: Any, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: Any, params: None, extra: Any) -> int:
        return int(hip.hipModuleLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream.value or 0, params, extra)[0])

    return launch


class _Record:
    """One launch's memory: the stream and, from byte 8 on, the kernel's arguments, and what the runtime is told of them. A launch holds one alone, since
    the runtime reads it without the interpreter's lock; the launcher keeps as many as there were launches at once."""

    def __init__(self, size: int):
        self.buffer = ctypes.create_string_buffer(_ARGUMENTS + max(size, 1))
        self.size = ctypes.c_size_t(size)
        self.extra = (ctypes.c_void_p * 5)(_PARAM_BUFFER_POINTER, ctypes.addressof(self.buffer) + _ARGUMENTS, _PARAM_BUFFER_SIZE,
                                           ctypes.addressof(self.size), _PARAM_END)
        queue, where = ctypes.c_void_p.from_buffer(self.buffer), ctypes.c_void_p(ctypes.addressof(self.extra))
        self.parts = self.buffer, queue, where, self  # what a launch needs, and what must live as long


def make_launcher(driver: AmdDriver, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
    """See targets.protocol.Driver. A warm launch writes the stream and the arguments by one call of struct, and calls the runtime with objects that exist
    already. Raises NeedsVariant (before launching) where ``metadata["host"]`` has guards that the arguments break."""
    reports = metadata.get("reports")
    arguments = signature if reports is None else [*signature, "*i32"]
    packer = struct.Struct("=Q" + pack_format(arguments).removeprefix("="))
    threads, shared = int(metadata["num_warps"]) * int(metadata["warp_size"]), int(metadata.get("shared", 0))
    most = (_MOST_THREADS - 1) // threads
    pack_into, call = packer.pack_into, driver.launch
    guards = LaunchGuards(metadata)
    guarded, pick, uses_grid, held = guards.needed, guards.pick, guards.uses_grid, guards.held
    free = [_Record(packer.size - _ARGUMENTS).parts]
    take, give = free.pop, free.append  # each is one step even between threads

    def again(handle: Loaded, grid: tuple[int, int, int], status: int, queue: Any, where: Any) -> None:
        """After a call that did not launch: once more on the kernel's device, where another is this thread's (the runtime wants a stream's device
        to be the thread's)."""
        if driver.other_device(handle.device):
            driver.forget_error()
            with driver.on(handle.device):
                status = call(handle.pointer, *grid, threads, 1, 1, shared, queue, None, where)
        if status:
            driver.launch_failed(status, grid, threads, handle)

    def pack_slowly(buffer: Any, grid: tuple[int, int, int], stream: Any, args: Sequence[Any]) -> None:
        """What is unusual: arrays where addresses are expected, a number out of its type's range, a stream object; or a mistake."""
        if min(grid) < 1 or grid[0] > most or max(grid) >= 1 << 32:
            driver.refuse_grid(grid, threads)
        pack_into(buffer, 0, int(stream or 0), *kernel_arguments.checked(args, arguments, address))

    def launch(gx: int, gy: int, gz: int, stream: int, handle: Loaded, args: Sequence[Any]) -> None:
        if guarded and ((pick(args), gx, gy, gz) if uses_grid else pick(args)) not in held:
            guards.require(args, (gx, gy, gz))
        try:
            record = take()
        except IndexError:
            record = _Record(packer.size - _ARGUMENTS).parts
        buffer, queue, where, _ = record
        try:
            try:
                pack_into(buffer, 0, stream, *args)
            except (struct.error, TypeError, OverflowError):
                pack_slowly(buffer, (gx, gy, gz), stream, args)
            if gx > most:
                driver.refuse_grid((gx, gy, gz), threads)
            status = call(handle.pointer, gx, gy, gz, threads, 1, 1, shared, queue, None, where)
            if status:
                again(handle, (gx, gy, gz), status, queue, where)
        finally:
            give(record)

    def failed(handle: Loaded, grid: tuple[int, int, int], status: int) -> None:
        """After a native call that did not launch: leave it to ``launch`` where another device is this thread's, else raise."""
        if not driver.other_device(handle.device):
            driver.launch_failed(status, grid, threads, handle)
        driver.forget_error()

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
    else:
        made.native = native_call(driver, signature, (threads, shared), most, guards, failed)
    return made


_WORDS_END, _SIZE, _BEGIN = 96, 136, 160  # of a native call's memory: its words, ``extra``, the size of the arguments, and these


def native_call(driver: AmdDriver, signature: Sequence[str], block: tuple[int, int], most: int, guards: LaunchGuards, failed: Callable[..., None]) -> NativeCall | None:
    """What ``make_launcher``'s launcher does, as one call of the runtime's own hipModuleLaunchKernel; None where that is not to be had. ``block``: threads, and
    bytes of LDS."""
    function = kernel_arguments.function_address(driver.launch)
    if function is None:
        return None
    _, offsets, size = kernel_arguments.layout(signature)
    places = [_BEGIN + o for o in offsets]
    end = _BEGIN + -(-size // 32) * 32

    def look(args: Sequence[Any], grid: tuple[int, int, int]) -> bytes | None:
        return b"" if ((guards.pick(args), *grid) if guards.uses_grid else guards.pick(args)) in guards.held else None

    threads, shared = block
    words = [0, 0, 0, 0, threads, 1, 1, shared, 0, 0, 0]
    memory = bytearray(struct.pack("=11Q", *words).ljust(_WORDS_END, b"\0") + struct.pack("=6Q", _PARAM_BUFFER_POINTER, 0, _PARAM_BUFFER_SIZE, 0, _PARAM_END, size))
    memory += bytes(end - len(memory))
    return NativeCall(
        function, bytes(memory), list(zip(kernel_arguments.letters(signature), places)), [(80, _WORDS_END), (_WORDS_END + 8, _BEGIN), (_WORDS_END + 24, _SIZE)],
        (8, 16, 24), 64, 0, lambda handle: int(handle.pointer.value), failed, most_x=min(most, 0x7FFF_FFFF),
        planned=None if not guards.needed else NativePlan(guards.arguments, guards.uses_grid, (_BEGIN, end), end, look))
