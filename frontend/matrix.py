"""``tilewright matrix FILE.py``: a team's own kernels on every target: compiled, resources, where they ran, error against float64.

Each target runs in a process of its own (``matrix_worker``), so that a crash, a hang or a broken plugin is one row and not the end.
FILE.py says what to run by a function ``tilewright_cases(device)`` that yields ``tilewright.testing.Case``s; see ``tilewright.case``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tilewright.dialects.errors import ArgumentError
from tilewright.matrix_worker import INTERPRETER, NOTHING

FORMAT = 1


@dataclass
class TargetResult:
    """What became of one target. ``ran``: "device", "simulator", "interpreter", "compiled only", "not run" (``reason`` says why) or "" where
    it did not begin. kernels, cases: dicts as ``matrix_worker`` writes them. ``failure``: what ended the row early."""

    target: str
    ran: str = ""
    reason: str = ""
    kernels: list[dict[str, Any]] = field(default_factory=list)
    cases: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.failure and all(c["status"] != "failed" for c in self.cases)

    @property
    def max_error(self) -> float | None:
        """The largest error of its cases, NaN if one is; None where none has one."""
        errors = [c["error"] for c in self.cases if c["error"] is not None]
        return None if not errors else next((e for e in errors if e != e), max(errors))

    def by_kernel(self) -> list[dict[str, Any]]:
        """Per kernel name, the most registers, spills and shared memory of its versions, and their matrix instructions."""
        rows: dict[str, dict[str, Any]] = {}
        for k in self.kernels:
            row = rows.setdefault(k["name"], {"name": k["name"], "versions": 0, "registers": None, "spills": None, "shared": None,
                                              "matrix_instructions": {}})
            row["versions"] += 1
            for figure in ("registers", "spills", "shared"):
                values = [v for v in (row[figure], k.get(figure)) if v is not None]
                row[figure] = max(values) if values else None
            for name, count in (k.get("matrix_instructions") or {}).items():
                row["matrix_instructions"][name] = max(count, row["matrix_instructions"].get(name, 0))
        return list(rows.values())

    def explanations(self) -> list[str]:
        """The choices that the compiler recorded, once each."""
        from tilewright.runtime.explain import choices

        return list(dict.fromkeys(f"{k['name']}, {line}" for k in self.kernels for line in choices(k)))


def all_targets() -> list[str]:
    """cpu, the interpreter, every arch of every target: a device where it is there, else the simulator, else compiled only."""
    from tilewright.demo import label
    from tilewright.targets import registry

    names = [INTERPRETER]
    for entry in registry.entries():
        if entry.plugin is None:
            names.append(entry.name)  # its row shows why it does not load
            continue
        host = entry.plugin.name == registry.FALLBACK
        archs = [entry.plugin.default_arch] if host else [*entry.plugin.archs]
        if not host:
            for device in registry.probe(entry.plugin):
                arch = entry.plugin.resolve_arch(device.arch)
                archs += [] if arch in archs else [arch]
        found = [label(registry.Selection(entry.plugin, arch)) for arch in archs]
        names = [*found, *names] if host else [*names, *found]
    return names


def targets_of(text: str | None) -> list[str]:
    """The targets that ``--targets A,B`` names; a name without an arch stands for all of its archs. Raises TargetNotFoundError."""
    from tilewright.targets import registry

    if text is None:
        return all_targets()
    out: list[str] = []
    for name in filter(None, (part.strip() for part in text.split(","))):
        if name == INTERPRETER:
            out.append(name)
        elif ":" not in name and (plugin := registry.get(name)).name != registry.FALLBACK:
            out += [f"{plugin.name}:{arch}" for arch in plugin.archs]
        else:
            registry.parse(name)
            out.append(name)
    if not out:
        raise ArgumentError("--targets names no target")
    return list(dict.fromkeys(out))


def _ended(code: int, timeout: float | None) -> str:
    if timeout is not None:
        return f"it took longer than {timeout:g} s and was ended (--timeout)"
    if code < 0:
        try:
            return f"the process was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"the process was ended by signal {-code}"
    return f"the process ended with exit status {code}"


def run_target(target: str, request: Mapping[str, Any], timeout: float) -> TargetResult:
    """One row, in a process of its own."""
    result = TargetResult(target)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        asked, answers, errors = (os.path.join(folder, n) for n in ("request.json", "results", "stderr"))
        with open(asked, "w", encoding="utf-8") as f:
            json.dump({**request, "target": target}, f)
        open(answers, "w").close()
        with open(errors, "wb") as stderr:
            process = subprocess.Popen([sys.executable, "-m", "tilewright.matrix_worker", asked, answers], stdout=stderr, stderr=stderr,
                                       stdin=subprocess.DEVNULL)
            late = None
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                code, late = process.wait(), timeout
            except BaseException:
                process.kill()
                raise
        current = _read(answers, result)
        if current is not None:  # no end was written
            with open(errors, encoding="utf-8", errors="replace") as f:
                tail = "" if late is not None else "\n".join(f.read().strip().splitlines()[-5:])
            what = f"{_ended(code, late)}{f' in case {current}' if current else ''}"
            result.failure = "\n".join(filter(None, (result.failure, what, tail)))
    result.seconds = time.perf_counter() - start
    if not result.failure and not result.cases and result.ran != NOTHING:
        result.failure = "no case was run" + (f": none is named like {request['cases']!r}" if request.get("cases") else "")
    return result


def _read(path: str, result: TargetResult) -> str | None:
    """Fill ``result`` from a worker's events. None where it came to its end, else the case it was at ("" for none)."""
    current = ""
    with open(path, encoding="utf-8") as f:
        for line in f:
            try:
                event = json.loads(line)
            except ValueError:  # cut off
                break
            kind = event.pop("event")
            if kind == "begin":
                result.ran, result.reason = event["ran"], event["reason"]
            elif kind == "kernel":
                result.kernels.append(event)
            elif kind == "start":
                current = event["name"]
            elif kind == "case":
                result.cases.append(event)
                current = ""
            elif kind == "failure":
                result.failure = event["message"]
            elif kind == "end":
                return None
    return current


def run(targets: Sequence[str], request: Mapping[str, Any], timeout: float = 600.0, jobs: int | None = None) -> Iterator[TargetResult]:
    """The rows in the order of ``targets``, each as soon as it and those before it are done. ``request``: file, and kernel, signature, options,
    cases, compile_only as the command line has them."""
    with ThreadPoolExecutor(max(1, jobs or min(4, os.cpu_count() or 1))) as pool:
        futures = [pool.submit(run_target, t, request, timeout) for t in targets]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


def spilled(result: TargetResult, most: int) -> None:
    """Make rows whose kernels spill more than ``most`` fail."""
    for row in result.by_kernel():
        if (row["spills"] or 0) > most:
            text = f"{row['name']} spills {row['spills']} registers; --max-spills is {most}"
            result.failure = "\n".join(filter(None, (result.failure, text)))


def main(args: Any, options: Mapping[str, Any], write: Callable[[str], None]) -> int:
    """The command: prints the table by ``write`` (unless JSON goes to stdout), writes the reports asked for, returns the exit status."""
    from tilewright import matrix_report as report

    if not os.path.isfile(args.file):
        raise ArgumentError(f"there is no file {args.file!r}")
    if args.cases and args.kernel:
        raise ArgumentError("--kernel compiles a kernel without cases; leave --cases out")
    for flag, path in (("--json", args.json), ("--junit", args.junit), ("--html", args.html)):
        if path in (None, "-") and (flag == "--json" or path is None):
            continue
        if path == "-":
            raise ArgumentError(f"{flag} needs a file; only --json goes to standard output")
        if not os.path.isdir(os.path.dirname(os.path.abspath(path))) or os.path.isdir(path):
            raise ArgumentError(f"{flag}: {path!r} is a folder" if os.path.isdir(path) else f"{flag}: there is no folder for {path!r}")
    request = {"file": os.path.abspath(args.file), "kernel": args.kernel, "signature": args.signature, "options": dict(options),
               "cases": args.cases, "compile_only": args.compile_only}
    show = write if args.json != "-" else lambda text: None
    targets = targets_of(args.targets)
    table = report.Table(targets)
    show(table.head())
    results = []
    for result in run(targets, request, args.timeout, args.jobs):
        if args.max_spills is not None:
            spilled(result, args.max_spills)
        if len(targets) == 1 and result.ran == NOTHING and not result.failure:
            result.failure = "nothing was run or compiled; name a target beside it"
        results.append(result)
        show(table.rows(result))
    show(report.summary(results))
    data = report.as_data(args.file, results)
    for path, text in ((args.json, lambda: json.dumps(data, indent=1) + "\n"), (args.junit, lambda: report.as_junit(args.file, results)),
                       (args.html, lambda: report.as_html(args.file, results))):
        if path == "-":
            write(text().rstrip("\n"))
        elif path is not None:
            with open(path, "w", encoding="utf-8") as f:
                f.write(text())
    return 0 if all(r.passed for r in results) else 1
