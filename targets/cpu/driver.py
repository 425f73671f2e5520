"""Loads objects into the process and runs grids on a pool of threads. ctypes gives up the GIL while a chunk runs."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tilewright.dialects import prints
from tilewright.dialects.errors import ArgumentError, DeviceAddressError, DeviceAssertionError, OutOfResources
from tilewright.dialects.settings import count, from_variable
from tilewright.targets.protocol import NeedsVariant

_FORMATS = {"i1": "?7x", "i8": "b7x", "u8": "B7x", "i16": "h6x", "u16": "H6x", "i32": "i4x", "u32": "I4x", "i64": "q", "u64": "Q",
            "fp32": "f4x", "f32": "f4x", "fp64": "d", "f64": "d", "fp16": "e6x", "f16": "e6x"}


class KernelAssertionError(DeviceAssertionError):
    """A device_assert did not hold; names the program and the message."""


def num_threads() -> int:
    """TILEWRIGHT_NUM_THREADS, else the processors this process may use."""
    asked = from_variable(("TILEWRIGHT_NUM_THREADS",), count)
    if asked is not None:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


NULL_MARK = "\0null: "  # begins the messages of passes/check_addresses.py, and none of a user's
CHECKED = {"check_addresses": True}  # the option that makes the version for launches with a null pointer
MAY_BE_ONE = {"arguments_apart": False}  # the option that makes the version for launches with one array for two arguments

_local = threading.local()
_running: dict[int, tuple[Sequence[str], Failures]] = {}  # thread → messages of the kernel it runs, and the launch's failures
_MAX_SIZE = 2**31 - 1  # programs along one axis
_WORTH_THREADS = 100e-6  # seconds of work below which waking other threads costs more than it saves
_AT_ONCE = 1024  # programs of kernels whose programs wait for one another that run at the same time, as a large GPU would
_SCRATCH = 1 << 30  # bytes of scratch memory for them all


def at_once(count: int, total: int, run: Callable[[int], None]) -> None:
    """``run`` for each of ``total`` programs, ``count`` at a time, each on a thread of its own, started in their order; the processors take turns among
    them, so that one may wait for another. Of a grid of more than ``count`` none of the first may wait for one of the last, as on any GPU.
    Raises OutOfResources, before any program runs, where the system does not give so many threads."""
    position, lock, begin = iter(range(total)), threading.Lock(), threading.Event()
    wrong: list[BaseException] = []

    def work() -> None:
        begin.wait()
        while not refused:
            with lock:
                program = next(position, None)
            if program is None:
                return
            try:
                run(program)
            except BaseException as error:
                wrong.append(error)
                return

    started: list[threading.Thread] = []
    refused = False
    try:
        for _ in range(count - 1):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError:
        refused = True
    begin.set()
    work()
    for thread in started:
        thread.join()
    if refused:
        raise OutOfResources(count, len(started) + 1, "threads for programs that wait for one another", "Launch fewer programs, or raise the system's limit of threads.")
    if wrong:
        raise wrong[0]


def _scratch(size: int) -> int:
    """Address of this thread's scratch memory of at least ``size`` bytes, aligned to 64."""
    held = getattr(_local, "scratch", None)
    if held is None or len(held) < size + 64:
        held = _local.scratch = (ctypes.c_uint8 * (max(size, 1 << 16) + 64))()
    return (ctypes.addressof(held) + 63) & ~63


@ctypes.CFUNCTYPE(None, *[ctypes.c_int32] * 6, ctypes.c_void_p)
def _print(text: int, x: int, y: int, z: int, count: int, kind: int, data: int) -> None:
    import numpy as np

    table, program = _running[threading.get_ident()][0], (x, y, z)
    if not count:
        lines = [prints.line(program, table[text])]
    else:
        as_hex, letter, bits, stored, *shape = table[kind].split()
        sizes, width = tuple(map(int, shape)), int(stored) // 8
        raw = np.frombuffer(ctypes.string_at(data, width * count), f"{'f' if letter == 'f' else 'u'}{width}")
        if letter == "f":
            raw, bits = raw.astype(np.float64).view(np.uint64), "64"
        lines = [prints.line(program, table[text], sizes, i, prints.value_text(letter, int(bits), as_hex == "1", int(v))) for i, v in enumerate(raw)]
    # one write with their ends: print writes those apart, and another thread's line may come between
    sys.stdout.write("".join(f"{shown}\n" for shown in lines))
    sys.stdout.flush()


@ctypes.CFUNCTYPE(None, *[ctypes.c_int32] * 4)
def _assert(text: int, x: int, y: int, z: int) -> None:
    messages, failures = _running[threading.get_ident()]
    failures.add(messages[text], (x, y, z))


class Failures:
    """What the programs of one launch told: the first, and how many. A loop may tell without end, so no more is kept."""

    def __init__(self) -> None:
        self.count, self.lock = 0, threading.Lock()

    def add(self, message: str, program: tuple[int, int, int]) -> None:
        with self.lock:
            self.count += 1
            if self.count == 1:
                self.message, self.program = message, program

    def error(self) -> DeviceAddressError | KernelAssertionError:
        """Of a launch whose programs told some."""
        more = f" (and {self.count - 1} more)" if self.count > 1 else ""
        if self.message.startswith(NULL_MARK):
            return DeviceAddressError(f"{self.message.removeprefix(NULL_MARK)} [program {self.program}]{more}")
        return KernelAssertionError(f"device_assert failed in program {self.program}: {self.message}{more}")


class Loaded:
    """An object in memory. ``function``: its entry's address. ``seconds``: a program's time in the last launch, 0 before the first."""

    n_regs = n_spills = 0
    seconds = 0.0

    def __init__(self, obj: bytes, metadata: Mapping[str, Any]):
        import llvmlite.binding as llvm

        from tilewright.targets.cpu.emit import ENTRY_SUFFIX, target_machine

        machine = target_machine.__wrapped__("native")  # one of its own: the engine frees it, and the cached one is shared
        llvm.add_symbol("tilewright_cpu_print", ctypes.cast(_print, ctypes.c_void_p).value)
        llvm.add_symbol("tilewright_cpu_assert", ctypes.cast(_assert, ctypes.c_void_p).value)
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self.engine.add_object_file(llvm.ObjectFileRef.from_data(obj))
        self.engine.finalize_object()
        self.function = self.engine.get_function_address(metadata["name"] + ENTRY_SUFFIX)
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, *[ctypes.c_int32] * 3, ctypes.c_void_p)
        self.call = prototype(self.function)


class _Timer:
    def start(self) -> None:
        self.begin = time.perf_counter()

    def stop(self) -> None:
        self.end = time.perf_counter()

    def elapsed_ms(self) -> float:
        return (self.end - self.begin) * 1e3


def address(argument: Any) -> int:
    """Address of a pointer argument: an int, None (0), a numpy array or an array in host memory with ``data_ptr``."""
    if hasattr(argument, "data_ptr"):
        return int(argument.data_ptr())
    if argument is None:
        return 0
    if isinstance(argument, int):
        return argument
    if hasattr(argument, "__array_interface__"):
        return int(argument.__array_interface__["data"][0])
    raise ArgumentError(f"a pointer argument of type {type(argument).__name__} does not live in host memory; pass a numpy array, a "
                        "torch CPU tensor or an address")


class CpuDriver:
    """targets.protocol.Driver for the host. Launches are done when they return."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._threads = num_threads()
        self._pid = os.getpid()

    def pool(self) -> ThreadPoolExecutor:
        if self._pool is None or self._pid != os.getpid():  # threads do not survive a fork
            self._pool, self._pid = ThreadPoolExecutor(self._threads, thread_name_prefix="tilewright"), os.getpid()
        return self._pool

    def current_device(self) -> int:
        return 0

    def current_stream(self, device: int) -> int:
        return 0

    def load(self, asm: Mapping[str, Any], metadata: Mapping[str, Any], device: int) -> Loaded:
        return Loaded(asm["obj"], metadata)

    def make_launcher(self, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
        unknown = [s for s in signature if not s.startswith("*") and s not in _FORMATS]
        if unknown:
            raise ArgumentError(f"a kernel argument of type {unknown[0]!r} cannot be passed; pass bf16 and fp8 scalars as fp32")
        packer = struct.Struct("=" + "".join("Q" if s.startswith("*") else _FORMATS[s] for s in signature))
        pointers = tuple(i for i, s in enumerate(signature) if s.startswith("*"))
        scratch_bytes = int(metadata.get("scratch_bytes", 0))
        messages = list(metadata.get("messages", ()))
        waits = bool(metadata.get("waits"))
        checked = bool(metadata.get("check_addresses"))
        apart = [tuple(pair) for pair in metadata.get("apart", ())]
        asks = not checked and not metadata.get("bundled")  # a bundle has no other version to ask for

        def launch(gx: int, gy: int, gz: int, stream: int, handle: Loaded, args: Sequence[Any]) -> None:
            values = list(args)
            for i in pointers:
                values[i] = address(values[i])
                if not values[i] and asks:
                    raise NeedsVariant(CHECKED, (f"argument {i} is a null pointer",))
            for i, j in apart:
                if values[i] == values[j]:
                    raise NeedsVariant(MAY_BE_ONE, (f"argument {i} and argument {j} are one array",))
            try:
                slots = ctypes.create_string_buffer(packer.pack(*values), max(packer.size, 8))
            except (struct.error, OverflowError) as e:
                raise ArgumentError(f"the arguments {values!r} do not fit the kernel's types ({', '.join(signature)}): {e}") from None
            where = ctypes.addressof(slots)
            total = gx * gy * gz
            if total > _MAX_SIZE and max(gx, gy, gz) > _MAX_SIZE:  # program ids have 32 bits: more would silently be other sizes
                raise ArgumentError(f"the grid is {(gx, gy, gz)}; allowed are up to {_MAX_SIZE} programs along each of x, y and z")
            call = handle.call
            failures = Failures()

            def chunk(begin: int, end: int) -> None:
                if not messages:
                    call(where, begin, end, gx, gy, gz, _scratch(scratch_bytes))
                    return
                _running[threading.get_ident()] = messages, failures
                try:
                    call(where, begin, end, gx, gy, gz, _scratch(scratch_bytes))
                finally:
                    del _running[threading.get_ident()]

            if total <= 0:
                return
            workers = min(self._threads, total)
            if 0 < handle.seconds * total < _WORTH_THREADS:
                workers = 1
            start = time.perf_counter()
            if waits:  # all to the end, also where one fails: others may wait for it
                at_once(min(total, _AT_ONCE, max(self._threads, _SCRATCH // max(scratch_bytes, 1))), total, lambda program: chunk(program, program + 1))
            elif checked:  # one after another, up to the first that fails
                for program in range(total):
                    chunk(program, program + 1)
                    if failures.count:
                        break
            elif workers <= 1:
                chunk(0, total)
            else:
                self._share(chunk, total, workers)
            handle.seconds = (time.perf_counter() - start) * workers / total
            if failures.count:
                raise failures.error()

        return launch

    def _share(self, chunk: Callable[[int, int], None], total: int, workers: int) -> None:
        """Run programs 0 to ``total`` on as many threads: a few chunks each, to even out programs of unlike length."""
        step = max(1, -(-total // (workers * 4)))
        position, lock = iter(range(0, total, step)), threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    begin = next(position, None)
                if begin is None:
                    return
                chunk(begin, min(begin + step, total))

        others = [self.pool().submit(work) for _ in range(workers - 1)]
        work()
        for future in others:
            future.result()

    def synchronize(self) -> None:
        """Launches are done when they return."""

    def get_device_properties(self, device: int) -> Mapping[str, Any]:
        return {"max_shared_mem": 1 << 30, "multiprocessor_count": self._threads, "warpSize": 1, "max_num_regs": 32, "arch": "native"}

    def event_timer(self) -> _Timer:
        return _Timer()
