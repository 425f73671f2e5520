"""Host time of a launch, side by side with Triton in one process, on the device that torch has.

    python benchmarks/launch_overhead.py [--rounds 15] [--batch 200] [--no-peer]
    python benchmarks/launch_overhead.py --stand-in nvidia:sm_80 amd:gfx942

Rows: kernels of 3, 7 and 19 arguments, two host descriptors, a matrix product by pointers (whose tensor maps, where the target makes them,
are kept from launch to launch) and one by descriptors. The two sides take turns; a batch is shorter than the device's queue, and is
timed until its last launch returns. Columns: microseconds, medians of the rounds; their ratio; Tilewright's time without machine code (as with
TILEWRIGHT_NATIVE_LAUNCH=0), its launcher in Python called directly, and in it the driver's call alone. ``version``: which version of the kernel ran, where it has several.

``--stand-in`` needs no GPU: each target's own driver and launcher, but with a C function that returns at once in the place of the call that launches,
and tensors of the host. Rows are the same but for descriptors; the targets take turns. (sm_90 would need the CUDA driver, for tensor maps.)
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import ctypes.util
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

from frameworks import Framework

Call = Callable[[], Any]
KERNELS = {"3 arguments": ("launch", "arguments_3"), "7 arguments": ("launch", "arguments_7"), "19 arguments": ("launch", "arguments_19"),
           "2 descriptors": ("launch", "descriptors_2"), "matmul by pointers": ("matmul", "matmul_pointers"),
           "matmul by descriptors": ("matmul", "matmul_descriptors")}  # row → file of kernels/, function


def device_name() -> str:
    """torch's device type for its accelerator. Raises SystemExit where there is none."""
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("launch_overhead.py needs a GPU: it measures launches with GPU tensors")
    return "cuda"


def stand_in(target: str) -> Any:
    """The target's driver without its runtime's library: current device and stream are 0, nothing is loaded, and a launch returns at once."""
    if target.startswith("amd"):
        from tilewright.targets.amd.driver import AmdDriver as Driver
    elif target.startswith("nvidia"):
        from tilewright.targets.nvidia.driver import NvidiaDriver as Driver  # type: ignore[assignment]
    else:
        raise SystemExit(f"there are stand-ins for nvidia and amd; found {target!r}")

    class StandIn(Driver):  # type: ignore[misc, valid-type]
        current_device = current_stream = property(lambda self: int)  # a C function, as torch's are, that gives 0

        def __init__(self) -> None:
            self.cuda = self.hip = SimpleNamespace()
            self.launch = ctypes.CDLL(ctypes.util.find_library("m"))["fegetround"]  # 0 and no more: what rounding floats are made with

        def device_count(self) -> int:
            return 1

        def load(self, asm: Mapping[str, Any], metadata: Mapping[str, Any], device: int = 0) -> Any:
            return SimpleNamespace(pointer=ctypes.c_void_p(0x7F00_1234_5678), device=0, multiprocessors=132, n_regs=0, n_spills=0)

        def unload(self, handle: Any) -> None:
            pass

    return StandIn()


@contextlib.contextmanager
def serving(target: str) -> Iterator[None]:
    """Launches go to ``target``'s stand-in, and take tensors of the host."""
    from tilewright.runtime.driver import _drivers, set_driver
    from tilewright.targets import registry

    selection = registry.parse(target)
    drivers, device_types = dict(_drivers), selection.plugin.device_types
    object.__setattr__(selection.plugin, "device_types", ("cpu",))
    set_driver(selection, stand_in(target))
    before = os.environ.get("TILEWRIGHT_TARGET")
    os.environ["TILEWRIGHT_TARGET"] = target
    try:
        yield
    finally:
        object.__setattr__(selection.plugin, "device_types", device_types)
        _drivers.clear()
        _drivers.update(drivers)
        os.environ.pop("TILEWRIGHT_TARGET") if before is None else os.environ.update(TILEWRIGHT_TARGET=before)


class Launch:
    """One launch of a kernel with these arguments."""

    def __init__(self, kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]):
        self.kernel, self.args, self.kwargs, self.grid = kernel, args, kwargs, (4,)

    def __call__(self) -> Any:
        return self.kernel[self.grid](*self.args, **self.kwargs)

    def by_python(self) -> Any:
        """The same by Tilewright's generated code alone."""
        return partial(self.kernel._warm, self.grid)(*self.args, **self.kwargs)


def calls(framework: Framework, device: str) -> dict[str, Launch]:
    """Row → a function that launches its kernel once."""
    import torch

    x = [torch.randn(4096, device=device) for _ in range(5)]
    square = [torch.randn(256, 256, device=device, dtype=torch.float16) for _ in range(3)]
    vector = torch.randn(256, device=device, dtype=torch.float16)
    tiles = [framework.descriptor(t, (64, 64), (64, 64)) for t in square]
    operands = [framework.descriptor(t, (256, 256), block) for t, block in zip(square, ((128, 64), (128, 64), (128, 128)))]

    def launches(row: str, *args: Any, **kwargs: Any) -> tuple[str, Launch]:
        return row, Launch(framework.kernel(*KERNELS[row]), args, kwargs)

    sizes = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    strides = (256, 1) * 3
    return dict((
        launches("3 arguments", x[0], x[1], 64, BLOCK=64),
        launches("7 arguments", *x[:3], 64, 2, 3, 0.5, BLOCK=64),
        launches("19 arguments", *x, 16, 17, 18, 19, 2, 3, 4, 5, 6, 7, 8, 9, 0.5, 0.25, BLOCK=64),
        launches("2 descriptors", tiles[0], tiles[1], 64, BLOCK=64),
        launches("matmul by pointers", square[0], square[1], vector, square[2], 256, 256, 256, *strides, WRAP=False, BIAS=False, RELU=False,
                 num_warps=8, **sizes),
        launches("matmul by descriptors", *operands, 256, 256, 256, PROGRAMS=4, HALVES=False, FLATTEN=False, WARP_SPECIALIZE=False,
                 OUT=framework.tl.float16, num_warps=8, **sizes),
    ))


def microseconds(call: Call, batch: int, synchronize: Call) -> float:
    begin = time.perf_counter()
    for _ in range(batch):
        call()
    spent = time.perf_counter() - begin
    synchronize()
    return spent / batch * 1e6


def parts(function: Any, launch: Launch) -> dict[str, Call]:
    """Of a Tilewright launch: the same by Python, its launcher called with what it was given, and the driver's call in it alone."""
    for _ in range(4):  # machine code comes after some
        launch()
    call = launch.by_python
    kernel, given, driver_given = call(), [], []
    for key, entry in [(k, e) for k, e in function._entries.items() if type(e) is tuple]:
        function._entries[key] = (entry[0], lambda *args, usual=entry[1]: (given.append(args), usual(*args)), *entry[2:])
        call()
        function._entries[key] = entry
    x, y, z, stream, _, values = given[0]
    handle, launcher = kernel.load(kernel.driver.current_device()), kernel.launcher
    out: dict[str, Call] = {"python": call, "launcher": lambda: launcher(x, y, z, stream, handle, values)}
    usual = getattr(kernel.driver, "launch", None)
    if usual is not None:
        kernel.driver.launch = lambda *args: (driver_given.append(args), usual(*args))[1]
        kernel._launcher = None
        recording = kernel.launcher
        kernel.driver.launch, kernel._launcher = usual, launcher
        recording(x, y, z, stream, handle, values, **_memory(recording))
        out["driver"] = lambda keep=recording: usual(*driver_given[0])  # ``keep`` owns the memory that the addresses are of
    return out


class _Apart(dict[int, Any]):
    """Every argument's memory, for a launcher that asks: here all of them are arrays of their own."""

    def get(self, address: int, default: Any = None) -> Any:
        return address, address + 1


def _memory(launcher: Any) -> dict[str, Any]:
    return {"memory": _Apart()} if "memory" in launcher.__code__.co_varnames else {}


def without_a_device(targets: list[str], rounds: int, batch: int) -> None:
    """Print the table of ``--stand-in``."""
    functions: dict[tuple[str, str], dict[str, Call]] = {}
    notes = {}
    for target in targets:
        with serving(target):
            ours = Framework("tilewright")
            for row, call in calls(ours, "cpu").items():
                if "descriptor" in row:
                    continue  # tensor maps are made by the CUDA driver
                kernel = call()
                notes[row, target] = f"{len((kernel.metadata._asdict().get('host') or {}).get('guards', ()))} guards" + ("" if not kernel.reasons else ", not kept")
                functions[row, target] = {"launch": call, **parts(ours.kernel(*KERNELS[row]), call)}
    times: dict[Any, list[float]] = {}
    for turn in range(rounds + 1):
        for (row, target), named in functions.items():
            with serving(target):
                for _ in range(4):  # another driver has come: the kernel is loaded, and told to the machine code, anew
                    named["launch"]()
                for name, call in named.items():
                    spent = microseconds(call, batch, lambda: None)
                    times.setdefault((row, target, name), []).extend([spent] if turn else [])
    print("| launch | target | launch µs | by Python | its launcher | the empty call | version |\n| --- | --- | --- | --- | --- | --- | --- |")
    for row, target in sorted(functions, key=lambda k: list(KERNELS).index(k[0])):
        cells = " | ".join(f"{statistics.median(times[row, target, name]):.1f}" for name in functions[row, target])
        print(f"| {row} | {target} | {cells} | {notes[row, target]} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--no-peer", action="store_true", help="measure Tilewright alone")
    parser.add_argument("--stand-in", nargs="+", metavar="TARGET", help="measure launches through drivers that do nothing, without a GPU")
    args = parser.parse_args()
    if args.stand_in:
        without_a_device(args.stand_in, args.rounds, args.batch)
        return
    import torch

    device, synchronize = device_name(), torch.cuda.synchronize
    ours = Framework("tilewright")
    frameworks = [ours] if args.no_peer else [ours, Framework("triton")]
    sides = {f.name: calls(f, device) for f in frameworks}
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, " + ", ".join(f"{f.name} {f.version}" for f in frameworks))
    print("| launch | tilewright µs | triton µs | ratio | by Python | launcher | driver's call | version |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in sides[ours.name]:
        functions: dict[str, Call] = {}
        failed = {}
        for name, rows in sides.items():
            try:
                rows[row]()
                functions[name] = rows[row]
            except Exception as e:  # noqa: BLE001 - one side may lack a feature; the row says so
                failed[name] = f"{type(e).__name__}: {str(e).splitlines()[0][:60]}"
        version = ""
        if ours.name in functions:
            kernel = functions[ours.name]()
            version = "usual" if not kernel.reasons else f"without: {kernel.reasons[0]}"
            version += f", {len((kernel.metadata._asdict().get('host') or {}).get('descriptors', ()))} tensor maps"
            functions |= parts(ours.kernel(*KERNELS[row]), functions[ours.name])
        for call in functions.values():
            for _ in range(100):
                call()
        synchronize()
        times: dict[str, list[float]] = {name: [] for name in functions}
        for _ in range(args.rounds):
            for name, call in functions.items():
                times[name].append(microseconds(call, args.batch, synchronize))
        medians = {name: statistics.median(t) for name, t in times.items()}

        def shown(name: str) -> str:
            return f"{medians[name]:.1f}" if name in medians else failed.get(name, "")

        ratio = f"{medians['tilewright'] / medians['triton']:.2f}" if {"tilewright", "triton"} <= set(medians) else ""
        print(f"| {row} | {shown('tilewright')} | {shown('triton')} | {ratio} | {shown('python')} | {shown('launcher')} | {shown('driver')} | {version} |", flush=True)


if __name__ == "__main__":
    main()
