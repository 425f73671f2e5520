"""Random kernels from a grammar, compared between the interpreter and a target: every array bit for bit.

``python -m tilewright.conformance.random_kernels --count 20000 --jobs 16`` runs the kernels of seeds 0 … 19999 on the cpu target;
``--target nvidia:sm_80:sim`` on another, ``--device cuda`` with torch's arrays on that device (and its target). A mismatch, an error, a
crash and a hang of one kernel are reported with its seed, made small, and written as a script of its own (``--out FOLDER``); the run goes on.
``--seeds 17,99`` runs just those. At the end: what the kernels used, and what of the grammar none did. The exit status is 0 where all
kernels agreed (or the target refused them with an error that says what it lacks), 1 where one did not, 2 for a run that could not start.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tilewright.conformance.random_kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="how many kernels (1000)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--seeds", default="", help="just these seeds, separated by commas")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (one a core)")
    parser.add_argument("--target", default=None, help="NAME:ARCH of the target (TILEWRIGHT_TARGET, else cpu)")
    parser.add_argument("--device", default=None, help="torch's device that holds the arrays, such as cuda")
    parser.add_argument("--budget", type=float, default=0, help="start no kernel after so many seconds (0: no limit)")
    parser.add_argument("--limit", type=float, default=0, help="seconds that one kernel may take (60; 600 in a simulator)")
    parser.add_argument("--shrink", type=float, default=60, help="seconds that making one failure small may take (60; 0: not at all)")
    parser.add_argument("--most", type=int, default=3, help="failures of one cause that are made small (3)")
    parser.add_argument("--json", default="", help="write the result to this file")
    parser.add_argument("--out", default="random_kernels_found", help="folder for the scripts of failures")
    parser.add_argument("--print", action="store_true", help="only print the kernels' text")
    return parser.parse_args(argv)


class Run:
    """The state of a run, shared by the threads that each serve one worker process."""

    def __init__(self, options: argparse.Namespace, target: str):
        self.options, self.target = options, target
        self.seeds: queue.SimpleQueue[int] = queue.SimpleQueue()
        chosen = [int(s) for s in options.seeds.split(",") if s] or range(options.seed, options.seed + options.count)
        for seed in chosen:
            self.seeds.put(seed)
        self.total = len(chosen)
        self.lock = threading.Lock()
        self.kinds: collections.Counter[str] = collections.Counter()
        self.used: collections.Counter[tuple[str, str]] = collections.Counter()
        self.seconds: collections.Counter[str] = collections.Counter()
        self.marks: collections.Counter[str] = collections.Counter()
        self.slowest: list[tuple[float, int]] = []
        self.failures: list[dict[str, Any]] = []
        self.start = self.told = time.monotonic()

    def serve(self) -> None:
        from .random_kernels_run import Worker

        worker = Worker(self.options.limit or (600 if self.target.endswith(":sim") else 60))
        try:
            while not self.options.budget or time.monotonic() - self.start < self.options.budget:
                try:
                    seed = self.seeds.get_nowait()
                except queue.Empty:
                    break
                outcome = worker.ask(seed)
                self._count(seed, outcome)
                if outcome.kind not in ("ok", "refused"):
                    self._fail(seed, outcome, worker)
        finally:
            worker.stop()

    def _count(self, seed: int, outcome: Any) -> None:
        with self.lock:
            self.kinds[outcome.kind] += 1
            self.used.update(outcome.used)
            self.seconds.update(outcome.seconds)
            self.slowest = sorted([*self.slowest, (outcome.seconds.get('interpreter', 0) + outcome.seconds.get('target', 0), seed)], reverse=True)[:5]
            if outcome.kind != "ok":
                self.marks[outcome.mark] += 1
            now = time.monotonic()
            if now - self.told > 30:
                self.told = now
                done = sum(self.kinds.values())
                print(f"{done} of {self.total} kernels in {now - self.start:.0f} s: {self._kinds()}", flush=True)

    def _kinds(self) -> str:
        return ", ".join(f"{n} {k}" for k, n in self.kinds.most_common())

    def _fail(self, seed: int, outcome: Any, worker: Any) -> None:
        from .random_kernels_control import generate
        from .random_kernels_shrink import reproducer, shrink

        told = outcome.text
        with self.lock:
            number = self.marks[outcome.mark]
        known = {"seed": seed, "kind": outcome.kind, "mark": outcome.mark, "text": outcome.text}
        if outcome.kind != "generator":
            case = generate(seed)
            allowed = self.options.shrink
            if self.options.budget:  # a run that has to end
                allowed = min(allowed, max(5.0, self.options.budget - (time.monotonic() - self.start)))
            if allowed and number <= self.options.most:
                case, outcome = shrink(case, outcome, worker, allowed)
            folder = Path(self.options.out)
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"seed_{seed}_{outcome.kind}.py"
            path.write_text(reproducer(case, outcome, self.target))
            known |= {"source": case.source, "script": str(path)}
        with self.lock:
            self.failures.append(known)
            print(f"seed {seed}: {outcome.kind}: {_last(told) if outcome.kind != 'crash' else outcome.mark}" + (f" ({known['script']})" if "script" in known else ""), flush=True)

    def report(self) -> None:
        wall = time.monotonic() - self.start
        done = sum(self.kinds.values())
        print(f"\n{done} kernels in {wall:.0f} s on {self.target or self.options.device}, seeds from {self.options.seed}: {self._kinds()}")
        if done:
            spent = ", ".join(f"{name} {value / done * 1000:.0f} ms" for name, value in self.seconds.most_common())
            print(f"a kernel takes {spent}; the slowest: {', '.join(f'seed {s} {t:.1f} s' for t, s in self.slowest)}")
        coverage(self.used)
        if self.marks:
            print("\nwhat was not ok:")
            for mark, n in self.marks.most_common():
                print(f"  {n:5} × {mark}")
        for failure in sorted(self.failures, key=lambda f: f["seed"]):
            print(f"  seed {failure['seed']}: {failure['kind']}: {_last(failure['text']) if failure['kind'] != 'crash' else failure['mark']}")

    def result(self) -> dict[str, Any]:
        return {"target": self.target or self.options.device, "kernels": sum(self.kinds.values()), "wanted": self.total, "kinds": dict(self.kinds),
                "seconds": time.monotonic() - self.start, "marks": dict(self.marks), "failures": self.failures,
                "used": {f"{a}: {b}": n for (a, b), n in sorted(self.used.items())}}


def _last(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:240] if lines else ""


def coverage(used: collections.Counter[tuple[str, str]]) -> None:
    """Print what was used how often: rules, their variants, types, shapes, nesting; and what was not at all."""
    from .random_kernels_base import VARIANTS
    from .random_kernels_control import PRODUCTIONS

    def of(category: str) -> dict[str, int]:
        return {item: n for (c, item), n in used.most_common() if c == category}

    ops, variants = of("op"), of("variant")
    print("\nrules: " + ", ".join(f"{name} {n}" for name, n in ops.items()))
    print("variants: " + "; ".join(f"{rule} (" + ", ".join(f"{v} {variants.get(f'{rule}.{v}', 0)}" for v in names) + ")" for rule, names in VARIANTS.items()))
    table: dict[str, dict[str, int]] = {}
    for item, n in of("op × type").items():
        op, _, type = item.rpartition(" ")
        table.setdefault(op, {})[type] = n
    types = list(of("type"))
    print("rule × type of its result:")
    print(f"  {'':16}" + "".join(f"{t:>8}" for t in types))
    for op, row in sorted(table.items()):
        print(f"  {op:16}" + "".join(f"{row.get(t, 0):8}" for t in types))
    shapes = of("shape")
    print(f"shapes: {len(shapes)} different: " + ", ".join(f"{s} {n}" for s, n in list(shapes.items())[:40]))
    print("nesting: " + ", ".join(f"{s} {n}" for s, n in of("nesting").items()))
    print("options: " + ", ".join(f"{s} {n}" for s, n in sorted(of("option").items())))
    never = [name for name in PRODUCTIONS if name not in ops] + [f"{rule}.{v}" for rule, names in VARIANTS.items() for v in names if f"{rule}.{v}" not in variants]
    print("never used: " + (", ".join(never) or "nothing"))


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    options = _parse(argv)
    if options.device:
        os.environ["TILEWRIGHT_TEST_DEVICE"] = options.device
    if options.target is not None:
        os.environ["TILEWRIGHT_TARGET"] = options.target
    target = os.environ.get("TILEWRIGHT_TARGET", "") or ("" if options.device else "cpu")
    if target:
        os.environ["TILEWRIGHT_TARGET"] = target
    os.environ["TILEWRIGHT_ALWAYS_COMPILE"] = "1"  # each kernel is seen once
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # each process has one core
    if options.print:
        from .random_kernels_control import generate

        for seed in [int(s) for s in options.seeds.split(",") if s] or range(options.seed, options.seed + options.count):
            case = generate(seed)
            print(f"# seed {seed}, grid {case.grid}, {case.options}\n{case.source}")
        return 0
    from . import random_kernels_control, random_kernels_shrink  # noqa: F401  # before the threads, and as they are now: a run is long

    run = Run(options, target)
    threads = [threading.Thread(target=run.serve) for _ in range(max(1, min(options.jobs, run.total)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.report()
    if options.json:
        Path(options.json).write_text(json.dumps(run.result(), indent=1))
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
