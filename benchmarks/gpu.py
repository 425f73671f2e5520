"""Every benchmark kernel under Tilewright and Triton in one process on one GPU: the same inputs, the same candidates, each its own best.

    python benchmarks/gpu.py [--kernels matmul8192,attention128] [--candidates N] [--json OUT] [--resume [--again]] [--time-budget S] [--total S]
                             [--tilewright-only] [--list] [--write-performance]

Per case (cases.py): outputs full of NaN, compared with float64 first; each candidate timed briefly; then the best of each side and the
library's kernels in turns. A time is the median of event pairs, L2 flushed before each, on random data. Candidates are compiled ahead in
other processes. What goes wrong on one side is printed in one line. A kernel that hangs or breaks the context ends the measuring process;
it is noted, and a new process goes on with the next candidate.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))

from cases import Case, all_cases
from checking import array, check, prepared
from compile_ahead import Ahead, first_line
from frameworks import Framework

BROKEN = 3  # exit status of a measuring process that must be started anew
HANG_SECONDS = 25.0
ROUNDS = 5


# --------------------------------------------------------------------------------------------------------------- state
class State:
    """What is known so far, kept on disk after every step: {"device": …, "rows": {case: row}, "bad": {"framework case index": why}}."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self.data: dict[str, Any] = {"rows": {}, "bad": {}}
        if path.exists():
            self.data.update(json.loads(path.read_text()))

    def save(self) -> None:
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.data, indent=1))
        temporary.replace(self.path)


class Watchdog:
    """Ends the process where the work between ``begin`` and ``end`` takes longer than allowed: a hung kernel cannot be stopped otherwise."""

    def __init__(self, state: State):
        self.state, self.deadline, self.what = state, float("inf"), ""
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, what: str, seconds: float = HANG_SECONDS) -> None:
        self.what, self.deadline = what, time.monotonic() + seconds

    def end(self) -> None:
        self.deadline = float("inf")

    def _watch(self) -> None:
        while True:
            time.sleep(0.25)
            if time.monotonic() > self.deadline:
                print(f"  {self.what}: no end after {HANG_SECONDS:.0f} s", flush=True)
                self.state.data["bad"][self.what] = "hangs"
                self.state.save()
                os._exit(BROKEN)


# ------------------------------------------------------------------------------------------------------------- measuring
class Cuda:
    """The GPU that torch has. Another device (a test's) offers the same."""

    name = "cuda"

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.flush: Any = None

    @property
    def arch(self) -> int:
        major, minor = self.torch.cuda.get_device_capability()
        return 10 * major + minor

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def samples(self, fn: Callable[[], Any], n: int) -> list[float]:
        """Milliseconds of n calls, L2 flushed before each; the flush also covers the host's time for the launch."""
        event = self.torch.cuda.Event
        if self.flush is None:
            self.flush = self.torch.empty(512 * 2**20 // 4, dtype=self.torch.int32, device="cuda")
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(n)]
        for a, b in pairs:
            self.flush.zero_()
            a.record()
            fn()
            b.record()
        self.synchronize()
        return [a.elapsed_time(b) for a, b in pairs]

    def copy_bandwidth(self) -> float:
        """GB/s of a copy within the device, bytes read and written counted."""
        a = self.torch.empty(2**30, dtype=self.torch.uint8, device="cuda")
        b = self.torch.empty_like(a)
        return 2 * 2**30 / statistics.median(self.samples(lambda: b.copy_(a), 25)[5:]) / 1e6

    def facts(self) -> dict[str, Any]:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return {"device": self.torch.cuda.get_device_name(), "driver": subprocess.run(command, capture_output=True, text=True).stdout.strip(),
                "torch": self.torch.__version__, "cuda": self.torch.version.cuda, "cudnn": self.torch.backends.cudnn.version()}

    def release(self) -> None:
        self.torch.cuda.empty_cache()


def quick(device: Any, fn: Callable[[], Any], budget_ms: float = 40.0) -> float:
    """Median of a few calls after two to warm up."""
    once = min(device.samples(fn, 2))
    return statistics.median(device.samples(fn, int(max(3, min(20, budget_ms / max(once, 0.01))))))


def frameworks(tilewright_only: bool) -> list[Framework]:
    found = [Framework("tilewright")]
    if not tilewright_only:
        try:
            found.append(Framework("triton"))
        except ImportError:
            print("no Triton here: Tilewright only")
    return found


class Runner:
    def __init__(self, args: argparse.Namespace, state: State, device: Any, sides: list[Framework]):
        self.args, self.state, self.device, self.frameworks = args, state, device, sides
        self.watchdog = Watchdog(state)
        self.stop = args.deadline
        self.ahead: Ahead | None = None

    def indices(self, case: Case) -> range:
        return range(len(case.candidates[: self.args.candidates or None]))

    def start_compiling(self, cases: list[Case]) -> None:
        tasks = [(f.name, c.name, i) for c in cases for i in self.indices(c) for f in self.frameworks
                 if f"{f.name} {c.name} {i}" not in self.state.data["bad"]]
        self.ahead = Ahead(tasks, self.device.arch, max(2, (os.cpu_count() or 4) - 2))

    def candidate(self, case: Case, b: dict[str, Any], reference: dict[str, Any], framework: Framework, index: int) -> dict[str, Any]:
        """One candidate of one side: {"ms", "error", …} or {"failed": line}."""
        what = f"{framework.name} {case.name} {index}"
        if what in self.state.data["bad"]:
            return {"failed": self.state.data["bad"][what]}
        patience = max(1.0, min(60.0, self.stop - time.monotonic()))
        failed = self.ahead.wait((framework.name, case.name, index), patience) if self.ahead else ""
        if failed:
            return {"failed": failed}
        self.watchdog.begin(what)
        try:
            run, kernels = prepared(case, b, case.candidates[index], framework)
            error, wrong = check(case, b, run, reference, self.device.synchronize)
            if wrong:
                return {"failed": wrong, "error": error}
            ms = quick(self.device, run)
            return {"ms": ms, "error": error, "regs": [getattr(k, "n_regs", None) for k in kernels],
                    "spills": [getattr(k, "n_spills", None) for k in kernels]}
        except Exception as e:  # noqa: BLE001 - one candidate that fails must not end the table
            self.end_if_lost(what, e)
            return {"failed": first_line(e)}
        finally:
            self.watchdog.end()

    def end_if_lost(self, what: str, error: Exception) -> None:
        """Note the error and end the process where the device's context did not survive it."""
        try:
            self.device.synchronize()
        except Exception:  # noqa: BLE001 - every error of a lost context
            print(f"  {what}: {first_line(error)}; the device's context is lost, starting anew", flush=True)
            self.state.data["bad"][what] = first_line(error)
            self.state.save()
            os._exit(BROKEN)

    def case(self, case: Case) -> None:
        begin = time.monotonic()
        import torch

        torch.manual_seed(time.time_ns() % 2**31)
        self.watchdog.begin(f"case {case.name} 0", 120.0)
        b = case.buffers(lambda shape, dtype, fill: array(shape, dtype, fill, self.device.name))
        case.prepare(b)
        reference = case.reference(b)
        self.device.synchronize()
        self.watchdog.end()
        tried: dict[str, list[dict[str, Any]]] = {f.name: [] for f in self.frameworks}
        for index in self.indices(case):
            late = time.monotonic() - begin > self.args.time_budget or time.monotonic() > self.stop
            for framework in self.frameworks:
                result = {"failed": "not tried: time"} if late else self.candidate(case, b, reference, framework, index)
                tried[framework.name].append(result)
                text = f"{case.rate(result['ms']):8.1f} {case.unit}" if "ms" in result else result["failed"]
                print(f"  {case.name} {index} {framework.name:10} {text}  {json.dumps(case.candidates[index])}", flush=True)
        if self.ahead:
            self.ahead.drop(case.name)
        row = self.finals(case, b, tried, reference)
        row["complete"] = time.monotonic() <= self.stop
        self.state.data["rows"][case.name] = row
        self.state.save()
        print(line_of(self.state.data["rows"][case.name]), flush=True)

    def finals(self, case: Case, b: dict[str, Any], tried: dict[str, list[dict[str, Any]]], reference: dict[str, Any]) -> dict[str, Any]:
        """The best of each side and the library's kernels in turns; then the results once more against float64."""
        turns: dict[str, Callable[[], Any]] = {}
        what: dict[str, str] = {}
        sides: dict[str, Any] = {}
        for framework in self.frameworks:
            good = [(r["ms"], i) for i, r in enumerate(tried[framework.name]) if "ms" in r]
            if good:
                index = min(good)[1]
                sides[framework.name] = {"index": index, "config": case.candidates[index], **tried[framework.name][index]}
                what[framework.name] = f"{framework.name} {case.name} {index}"
                turns[framework.name] = prepared(case, b, case.candidates[index], framework)[0]
        notes: list[str] = [f"{n}: {r['failed']}" for n, rs in tried.items() for r in rs if r.get("failed", "").startswith(("WRONG", "hangs"))]
        libraries: dict[str, float] = {}
        try:
            for name, fn in case.libraries(b).items():
                fn()
                turns[f"library {name}"] = fn
        except Exception as e:  # noqa: BLE001 - a library that lacks the kernel
            print(f"  {case.name} library: {first_line(e)}", flush=True)
        times: dict[str, list[float]] = {name: [] for name in turns}
        for _ in range(ROUNDS):
            for name, fn in turns.items():
                self.watchdog.begin(what.get(name, f"case {case.name} 0"))
                try:
                    fn()
                    once = max(self.device.samples(fn, 1)[0], 0.01)
                    times[name].append(statistics.median(self.device.samples(fn, int(max(3, min(20, 30.0 / once))))))
                except Exception as e:
                    self.end_if_lost(what.get(name, f"case {case.name} 0"), e)
                    raise
                finally:
                    self.watchdog.end()
        for name, measured in times.items():
            ms = statistics.median(measured)
            if name.startswith("library "):
                libraries[name.removeprefix("library ")] = ms
            else:
                sides[name] |= {"ms": ms, "runs": measured}
                wrong = check(case, b, turns[name], reference, self.device.synchronize)[1]
                if wrong:
                    notes.append(f"{name}: after the timing {wrong}")
                    sides[name]["wrong"] = wrong
        return {"case": case.name, "title": case.title, "unit": case.unit, "work": case.work, "peak": case.peak, "sides": sides,
                "libraries": libraries, "copy": self.state.data["copy"], "notes": notes, "tried": tried,
                "date": datetime.date.today().isoformat()}

    def launch_overhead(self) -> None:
        """Host microseconds of a launch, per signature."""
        import torch

        rows: dict[str, dict[str, float]] = {}
        for framework in self.frameworks:
            x = [torch.randn(4096, device=self.device.name) for _ in range(5)]
            square = [torch.randn(64, 64, device=self.device.name) for _ in range(2)]
            descriptors = [framework.descriptor(t, (64, 64), (64, 64)) for t in square]
            calls = {"arguments_3": (x[0], x[1], 64), "arguments_7": (*x[:3], 64, 2, 3, 0.5),
                     "arguments_19": (*x, 16, 17, 18, 19, 2, 3, 4, 5, 6, 7, 8, 9, 0.5, 0.25), "descriptors_2": (*descriptors, 64)}
            for name, args in calls.items():
                try:
                    kernel = framework.kernel("launch", name)
                    for _ in range(200):
                        kernel[(1,)](*args, BLOCK=64)
                    self.device.synchronize()
                    times = []
                    for _ in range(7):
                        begin = time.perf_counter()
                        for _ in range(500):
                            kernel[(1,)](*args, BLOCK=64)
                        times.append((time.perf_counter() - begin) * 2e3)
                        self.device.synchronize()
                    rows.setdefault(name, {})[framework.name] = statistics.median(times)
                except Exception as e:  # noqa: BLE001 - a side that lacks descriptors
                    print(f"  launch {name} {framework.name}: {first_line(e)}", flush=True)
        self.state.data["launch"] = rows
        self.state.save()
        for name, row in rows.items():
            print(f"launch {name}: " + ", ".join(f"{k} {v:.1f} µs" for k, v in row.items()), flush=True)

    def describe(self) -> None:
        data = self.state.data
        data.setdefault("copy", self.device.copy_bandwidth())
        data |= {**self.device.facts(), "date": datetime.date.today().isoformat(), "versions": {f.name: f.version for f in self.frameworks}}
        self.state.save()
        print(f"{data['device']}, driver {data['driver']}, torch {data['torch']}, copy {data['copy']:.0f} GB/s", flush=True)


def forget(state: State, names: list[str]) -> None:
    """Drop what is known of some cases."""
    state.data["rows"] = {n: row for n, row in state.data["rows"].items() if n not in names}
    state.data["bad"] = {what: why for what, why in state.data["bad"].items() if what.split()[1] not in names}
    state.save()


def done(state: State, name: str) -> bool:
    row = state.data["rows"].get(name)
    return row is not None and row["complete"]


def line_of(row: dict[str, Any]) -> str:
    from write_performance import table_row

    return table_row(row)


def measure(args: argparse.Namespace, names: list[str], cases: dict[str, Case], device: Any, sides: list[Framework]) -> None:
    """What a measuring process does."""
    state = State(pathlib.Path(args.json))
    todo = [cases[n] for n in names if n != "launch" and not done(state, n) and f"case {n} 0" not in state.data["bad"]]
    runner = Runner(args, state, device, sides)
    runner.describe()
    if todo and not args.no_ahead:
        runner.start_compiling(todo)
    for case in todo:
        if time.monotonic() > runner.stop:
            print(f"out of time before {case.name}; --resume goes on from here", flush=True)
            break
        try:
            runner.case(case)
        except Exception as e:  # noqa: BLE001 - one case that fails must not end the table
            print(f"{case.name}: {first_line(e)}", flush=True)
            runner.end_if_lost(f"case {case.name} 0", e)
            state.data["bad"][f"case {case.name} 0"] = first_line(e)
            state.save()
        device.release()
    if runner.ahead:
        runner.ahead.close()
    if "launch" in names and time.monotonic() < runner.stop + 10:
        time.sleep(1.0)  # the compiling processes end
        runner.launch_overhead()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="", help="names of --list with commas between; all by default")
    parser.add_argument("--json", default="", help="the results, written after every kernel")
    parser.add_argument("--resume", action="store_true", help="keep the rows that --json has")
    parser.add_argument("--again", action="store_true", help="with --resume: measure the named kernels anew")
    parser.add_argument("--candidates", type=int, default=0, help="only the first N configurations of each kernel")
    parser.add_argument("--tilewright-only", action="store_true")
    parser.add_argument("--time-budget", type=float, default=45.0, help="seconds of one kernel, after which no more candidates are tried")
    parser.add_argument("--total", type=float, default=540.0, help="seconds of the whole, after which nothing new is begun")
    parser.add_argument("--no-ahead", action="store_true", help="compile in the measuring process")
    parser.add_argument("--write-performance", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--child", type=float, default=0.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    cases = all_cases()
    if args.list:
        for case in cases.values():
            print(f"{case.name:18} {case.title}, {len(case.candidates)} candidates")
        return
    names = args.kernels.split(",") if args.kernels else [*cases, "launch"]
    unknown = [n for n in names if n not in cases and n != "launch"]
    if unknown:
        parser.error(f"no kernel is called {', '.join(unknown)}; known are {', '.join(cases)}, launch")
    if args.child:
        args.deadline = args.child
        measure(args, names, cases, Cuda(), frameworks(args.tilewright_only))
        return
    path = pathlib.Path(args.json or tempfile.mkdtemp() + "/gpu.json")
    if path.exists() and not args.resume:
        path.unlink()
    if args.again:
        forget(State(path), names)
    command = [sys.executable, __file__, *sys.argv[1:], "--json", str(path), "--child", str(time.monotonic() + args.total)]
    status = BROKEN
    for _ in range(20):
        status = subprocess.run(command, env={**os.environ, "PYTHONUNBUFFERED": "1"}).returncode
        if status != BROKEN:
            break
    from write_performance import table, write

    print("\n" + table(json.loads(path.read_text())) if path.exists() else "nothing was measured")
    if args.write_performance:
        write(path)
    raise SystemExit(status)


if __name__ == "__main__":
    main()
