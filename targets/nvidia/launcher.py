"""A kernel's launcher: packs the parameters into one buffer, and makes one driver call.

Parameters, in order: the user's run-time arguments at their natural alignment; of a persistent kernel three i32, the grid that was asked
for (the launch itself has one dim of at most ``ctas_per_sm`` blocks a multiprocessor), and where it asks for it an i32 of
flags, which say what tiles the two blocks of a cluster share and which tensors the grid reads once; one tensor map of 128 bytes a descriptor.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tilewright.targets import kernel_arguments
from tilewright.targets.nvidia import tensor_maps
from tilewright.targets.nvidia.host_plan import Bounded, HostPlan, MemoryUnknown
from tilewright.targets.protocol import NativeCall, NativePlan, NeedsMemory, NeedsVariant

if TYPE_CHECKING:
    from tilewright.targets.nvidia.driver import Loaded, NvidiaDriver

_INVALID_CONTEXT = 201
_PLANS, _MAPS = 1024, 4096  # launches of one kernel, and tensor maps of all kernels, that are kept
WITHOUT_TMA = {"tma": False}  # the option that makes the version for launches that a guard forbids

_maps: Bounded = Bounded(_MAPS)  # TensorMap → its bytes, or why there are none
_maps_lock = threading.Lock()


def parameter_layout(signature: Sequence[str], numbers: int = 0, maps: int = 0) -> tuple[str, list[int]]:
    """(struct format, byte offset of each parameter) of a buffer with every parameter at its natural alignment.

    ``numbers`` i32 follow the signature's. ``maps`` tensor maps are one field of the format, and as many offsets."""
    layout, offsets, offset = kernel_arguments.layout((*signature, *("i32",) * numbers))
    if maps:
        padding = -offset % tensor_maps.ALIGNMENT
        layout += f"{padding}x{maps * tensor_maps.BYTES}s"
        offsets += [offset + padding + i * tensor_maps.BYTES for i in range(maps)]
    return layout, offsets


def address(argument: Any) -> int:
    """Device address of a pointer argument; see targets.kernel_arguments."""
    return kernel_arguments.address(argument, "an NVIDIA GPU", "a torch tensor of device 'cuda', a cupy array or an address")


class Planned:
    """What a launch adds to the user's arguments: flags of shared tiles, and the tensor maps' bytes."""

    __slots__ = ("flags", "maps")

    def __init__(self, flags: int, maps: bytes):
        self.flags, self.maps = flags, maps


class Planner:
    """Which version of the kernel a launch gets, and its tensor maps; kept by all that this depends on."""

    def __init__(self, cuda: Any, host: Mapping[str, Any], signature: Sequence[str]):
        self.cuda, self.plan, self.signature = cuda, HostPlan(host, signature), signature
        self.kept = Bounded(_PLANS)  # key → bytes of the tensor maps, or the tuple of reasons against this version
        wanted = self.plan.arguments
        self.pick: Callable[[Any], Any] = (itemgetter(*wanted) if len(wanted) > 1 else
                                           (lambda args: args[wanted[0]]) if wanted else (lambda args: ()))
        self.uses_grid = self.plan.uses_grid

    def decide(self, key: Any, args: Sequence[Any], grid: tuple[int, int, int], memory: Any) -> Planned | tuple[str, ...]:
        """The answer for a key that is not kept, and keep it. Raises NeedsMemory."""
        try:
            answer = self.plan.evaluate(kernel_arguments.checked(args, self.signature, address), grid, memory)
        except MemoryUnknown:
            raise NeedsMemory from None
        reasons = list(answer.reasons)
        blobs: list[bytes] = []
        for m in answer.maps:
            with _maps_lock:
                blob = _maps.get(m)
                if blob is None:
                    blob = _maps.put(m, tensor_maps.encode(self.cuda, m))
            (reasons if isinstance(blob, str) else blobs).append(blob)
        return self.kept.put(key, tuple(reasons) if reasons else Planned(answer.flags, b"".join(blobs)))


# CUlaunchConfig (CUDA driver API, cuLaunchKernelEx): grid and block dims, shared bytes, stream, attributes and their number; then the
# parameters, from a multiple of 64 on, so that one call packs both
_CONFIG = struct.Struct("=7I4xQQI4x")
_BEFORE = "=7I4xQQI4x8x"
_BASE = struct.calcsize(_BEFORE)
# CUlaunchAttribute (the same chapter): CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, whose value is 1: the kernel may start before the one that
# was launched before it on the stream has ended, and waits for it by griddepcontrol.wait
_DEPENDENT = ctypes.create_string_buffer(struct.pack("=I4xI60x", 6, 1), 72)


def has_flags(persistent: Mapping[str, Any] | None) -> bool:
    """Whether a kernel has the argument of flags, by metadata["persistent"]. Of code in older bundles that does not say, those in clusters had it."""
    return persistent is not None and bool(persistent.get("flags", int(persistent.get("cluster", 1)) > 1))


def launch_attributes(metadata: Mapping[str, Any]) -> tuple[int, int]:
    """Address and number of the attributes that a kernel is launched with."""
    return (ctypes.addressof(_DEPENDENT), 1) if metadata.get("programmatic_launch") else (0, 0)


def native_launch(cuda: Any) -> Callable[..., int] | None:
    """The driver's own cuLaunchKernelEx(config, function, parameters, 0), whose arguments are ctypes objects that exist already: half the
    time of the bindings' cuLaunchKernel, which converts eleven. None where the driver lacks it (before CUDA 11.8), or with a stand-in."""
    own = getattr(cuda, "native_launch", None)
    if own is not None or not getattr(cuda, "__name__", "").startswith("cuda.bindings"):
        return own
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        return library["cuLaunchKernelEx"]
    except (OSError, AttributeError):
        return None


def launch_through(cuda: Any) -> Callable[..., int]:
    """``native_launch``'s function over the bindings' cuLaunchKernel, which takes no attributes: a dependent launch begins when the one before has ended."""
    def launch(config: ctypes.c_void_p, function: Any, table: ctypes.c_void_p, extra: None) -> int:
        *dims, shared, stream, _, _ = _CONFIG.unpack(ctypes.string_at(config.value or 0, _CONFIG.size))
        return int(cuda.cuLaunchKernel(function, *dims, shared, stream, table.value, 0)[0])

    return launch


def make_launcher(driver: NvidiaDriver, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
    """See targets.protocol.Driver. The parameter buffer is laid out once. Raises NeedsVariant and NeedsMemory (before launching) where
    ``metadata["host"]`` has descriptors or guards."""
    host = metadata.get("host") or {}
    persistent = metadata.get("persistent") or None
    planner = Planner(driver.cuda, host, signature) if host.get("descriptors") or host.get("guards") else None
    cluster = int(persistent.get("cluster", 1)) if persistent is not None else 1
    with_flags = has_flags(persistent)
    layout, offsets = parameter_layout(signature, 0 if persistent is None else 3 + with_flags, len(host.get("descriptors", ())))
    packer = struct.Struct(_BEFORE + layout.removeprefix("="))
    threads, shared = int(metadata.get("total_warps") or metadata["num_warps"]) * 32, int(metadata.get("shared", 0))
    buffer = ctypes.create_string_buffer(packer.size + 16)
    places = (ctypes.c_void_p * max(len(offsets), 1))(*[ctypes.addressof(buffer) + _BASE + o for o in offsets])
    config, table = ctypes.c_void_p(ctypes.addressof(buffer)), ctypes.c_void_p(ctypes.addressof(places))
    # The driver copies the parameters while it is called, without the interpreter's lock.
    lock = threading.Lock()
    pack_into, call = packer.pack_into, driver.launch
    attributes, count = launch_attributes(metadata)

    def again(handle: Loaded, grid: tuple[int, int, int], status: int) -> None:
        if status == _INVALID_CONTEXT:  # another thread than the one that loaded the kernel
            driver.use(handle.device)
            status = call(config, handle.pointer, table, None)
        if status:
            driver.launch_failed(status, grid, threads, handle)

    def pack_slowly(blocks: tuple[int, int, int], stream: Any, args: Sequence[Any], extra: tuple[Any, ...]) -> None:
        """After ``pack_into`` refused: arrays where addresses are expected, a number out of its type's range, a stream object."""
        values = kernel_arguments.checked(args, signature, address)
        if max(blocks) >= 1 << 31 or min(blocks) < 1:
            driver.refuse_grid(blocks)
        pack_into(buffer, 0, *blocks, threads, 1, 1, shared, int(stream or 0), attributes, count, *values, *extra)

    def launch(gx: int, gy: int, gz: int, stream: int, handle: Loaded, args: Sequence[Any]) -> None:
        with lock:
            try:
                pack_into(buffer, 0, gx, gy, gz, threads, 1, 1, shared, stream, attributes, count, *args)
            except (struct.error, OverflowError):
                pack_slowly((gx, gy, gz), stream, args, ())
            status = call(config, handle.pointer, table, None)
            if status:
                again(handle, (gx, gy, gz), status)

    per_sm = int(persistent["ctas_per_sm"]) if persistent is not None else 0

    def launch_planned(gx: int, gy: int, gz: int, stream: int, handle: Loaded, args: Sequence[Any], memory: Any = None) -> None:
        with lock:
            extra: tuple[Any, ...] = (gx, gy, gz) if per_sm else ()
            if per_sm and not 0 < gx * gy * gz < 1 << 31:  # a persistent kernel counts programs in 32 bits
                if min(gx, gy, gz) < 1 or gx >= 1 << 31 or max(gy, gz) > 65535:
                    driver.refuse_grid((gx, gy, gz))
                raise NeedsVariant(WITHOUT_TMA, (f"a grid of {gx * gy * gz} programs is more than one block can count",))
            if planner is not None:
                key = (planner.pick(args), gx, gy, gz) if planner.uses_grid else planner.pick(args)
                decided = planner.kept.get(key)
                if decided is None:
                    decided = planner.decide(key, args, (gx, gy, gz), memory)
                if isinstance(decided, tuple):
                    raise NeedsVariant(WITHOUT_TMA, decided)
                if with_flags:
                    extra += (decided.flags,)
                if decided.maps:
                    extra += (decided.maps,)
            bx, by, bz = (min(-(-gx * gy * gz // cluster), handle.multiprocessors // cluster * per_sm) * cluster, 1, 1) if per_sm else (gx, gy, gz)
            try:
                pack_into(buffer, 0, bx, by, bz, threads, 1, 1, shared, stream, attributes, count, *args, *extra)
            except (struct.error, OverflowError):
                pack_slowly((bx, by, bz), stream, args, extra)
            status = call(config, handle.pointer, table, None)
            if status:
                again(handle, (gx, gy, gz), status)

    def failed(handle: Loaded, grid: tuple[int, int, int], status: int) -> None:
        """After a native call that did not launch: ready this thread for ``launch``, or raise."""
        if status != _INVALID_CONTEXT:
            driver.launch_failed(status, grid, threads, handle)
        driver.use(handle.device)

    made: Any = launch if planner is None and not per_sm else launch_planned
    made.native = native_call(driver, signature, offsets, (threads, shared, attributes, count), persistent, with_flags, planner, failed)
    made.keep_alive = (buffer, places)  # the driver is given bare addresses of both
    return made


_WORDS_END, _TABLE = 96, 160  # of a native call's memory: its words, the configuration, the addresses of the parameters, and these


def native_call(driver: NvidiaDriver, signature: Sequence[str], offsets: Sequence[int], block: tuple[int, int, int, int], persistent: Mapping[str, Any] | None, with_flags: bool,
                planner: Planner | None, failed: Callable[..., None]) -> NativeCall | None:
    """What ``make_launcher``'s launcher does, as one call of the driver's own cuLaunchKernelEx; None where that is not to be had. ``offsets``: of all parameters;
    ``block``: threads, bytes of shared memory, address and number of launch attributes."""
    function = kernel_arguments.function_address(driver.launch)
    if function is None:
        return None
    begin = -(-(_TABLE + 8 * len(offsets)) // 64) * 64  # of the parameters
    places = [begin + o for o in offsets]
    users = len(signature)
    numbers, flags = 3 if persistent is not None else 0, int(with_flags)
    cluster = int(persistent.get("cluster", 1)) if persistent is not None else 1
    maps = len(offsets) - users - numbers - flags
    end_of_numbers = kernel_arguments.layout((*signature, *("i32",) * numbers))[2]
    size = offsets[-1] + tensor_maps.BYTES if maps else end_of_numbers + 4 * flags
    extra_at = places[users + numbers] if flags or maps else begin + -(-end_of_numbers // 8) * 8

    def look(args: Sequence[Any], grid: tuple[int, int, int]) -> bytes | None:
        assert planner is not None
        decided = planner.kept.get((planner.pick(args), *grid) if planner.uses_grid else planner.pick(args))
        if not isinstance(decided, Planned):
            return None
        flag = struct.pack("=I", decided.flags) if flags else b""
        return flag.ljust(places[-maps] - extra_at, b"\0") + decided.maps if maps else flag

    memory = bytearray(begin + -(-size // 32) * 32 + 32)
    threads, shared, *attributes = block
    _CONFIG.pack_into(memory, _WORDS_END, 0, 0, 0, threads, 1, 1, shared, 0, *attributes)
    return NativeCall(
        function, bytes(memory), list(zip(kernel_arguments.letters(signature), places)), [(0, _WORDS_END), (16, _TABLE), *((_TABLE + 8 * i, p) for i, p in enumerate(places))],
        (_WORDS_END, _WORDS_END + 4, _WORDS_END + 8), _WORDS_END + 32, 8, lambda handle: int(handle.pointer.value), failed,
        persistent=None if persistent is None else (places[users], cluster, lambda handle: handle.multiprocessors // cluster * int(persistent["ctas_per_sm"])),
        planned=None if planner is None else NativePlan(planner.plan.arguments, planner.uses_grid,
                                                        (begin, begin + -(-kernel_arguments.layout(signature)[2] // 8) * 8), extra_at, look))
