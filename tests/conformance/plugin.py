"""The conformance suite as a pytest plugin: ``pytest --pyargs tilewright.conformance --tilewright-target NAME``.

It adds options, watches the suite's tests (no others), and writes what a target covers: a JSON report and a summary. With pytest-xdist the
workers' records travel with their test reports, and the controller writes. It is loaded by every pytest of an environment that has Tilewright
and does nothing there; torch, numpy and the compiler are imported when the suite is collected.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

_PROPERTY = "tilewright-conformance"

# Targets that come with Tilewright → tests whose kernels these may refuse (a part of the node id). Any other refusal is a failure there;
# targets that are not named may refuse what they like, and the report tells it.
REFUSALS: dict[str, tuple[str, ...]] = {
    "interpreter": ("test_inline_assembly",), "cpu": (), "nvidia": ("test_atomics[", "test_atomic_kinds["), "amd": ("test_inline_asm",),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tilewright", "conformance of a Tilewright target (pytest --pyargs tilewright.conformance)")
    group.addoption("--tilewright-target", metavar="NAME[:ARCH]", help="the target under test (default: $TILEWRIGHT_TARGET, else cpu); 'interpreter': the oracle alone")
    group.addoption("--tilewright-device", metavar="DEVICE", help="the torch device of the arrays (default: $TILEWRIGHT_TEST_DEVICE, else cpu)")
    group.addoption("--tilewright-sample", metavar="N:SEED", help="at most N cases of each test function, chosen by SEED")
    group.addoption("--tilewright-report", metavar="FILE", help="write what the target covers to FILE (JSON; python -m tilewright.conformance.table makes a table of it)")


def is_ours(path: Path) -> bool:
    """Whether a file is one of the suite's."""
    return path.parent.name == "conformance" and (path.parent / "names.json").is_file()


class _State:
    """Of one session: results by node id, and what they add up to."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.tests: dict[str, dict[str, Any]] = {}
        self.missing: list[str] = []
        self.files: set[str] = set()


_KEY: pytest.StashKey[_State] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_KEY] = _State(config)
    config.addinivalue_line("markers", "nightly: the full product of a covering test; deselected unless -m names it")
    config.addinivalue_line("markers", "slow: takes more than a few seconds")
    config.addinivalue_line("markers", "own_process: ends the device's context, and so runs in a process of its own where there is a device")
    for option, variable in (("target", "TILEWRIGHT_TARGET"), ("device", "TILEWRIGHT_TEST_DEVICE"), ("sample", "TILEWRIGHT_CONFORMANCE_SAMPLE")):
        value = config.getoption(f"tilewright_{option}")
        if value:
            os.environ[variable] = value
    sample = os.environ.get("TILEWRIGHT_CONFORMANCE_SAMPLE", "")
    if sample and not sample.partition(":")[0].isdigit():
        raise pytest.UsageError(f"--tilewright-sample takes N:SEED, a number of cases for each test function and a seed, not {sample!r}")
    global _target
    _target = _read_target()
    os.environ["TILEWRIGHT_CONFORMANCE_NIGHTLY"] = "1" if _nightly_wanted(config) else "0"
    target = config.getoption("tilewright_target")
    if target and target != "interpreter":
        from tilewright.dialects.errors import TilewrightError
        from tilewright.targets import registry

        try:
            registry.parse(target)
        except TilewrightError as error:
            raise pytest.UsageError(f"--tilewright-target {target}: {error}") from None


def target_of_run() -> str:
    """The target under test; tests may change the variables while they run."""
    return _target


_target = ""


def _read_target() -> str:
    device = os.environ.get("TILEWRIGHT_TEST_DEVICE", "cpu")
    return os.environ.get("TILEWRIGHT_TARGET", "") or ("cpu" if device == "cpu" else device)


# ------------------------------------------------------------------------------------------------------------ which tests
def _nightly_wanted(config: pytest.Config) -> bool:
    """By a mark expression that names them, or by a node id."""
    return "nightly" in (config.option.markexpr or "") or any("::" in str(a) for a in config.invocation_params.args)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave nightly tests out unless asked for, and take the sample."""
    ours = [i for i in items if is_ours(i.path)]
    dropped: set[pytest.Item] = set()
    if not _nightly_wanted(config):
        dropped.update(i for i in ours if i.get_closest_marker("nightly") is not None)
    sample = os.environ.get("TILEWRIGHT_CONFORMANCE_SAMPLE")
    if sample:
        most, _, seed = sample.partition(":")
        functions: dict[str, list[pytest.Item]] = {}
        for item in ours:
            if item not in dropped:
                functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
        for cases in functions.values():
            cases.sort(key=lambda i: hashlib.sha256(f"{seed}:{i.nodeid.rpartition('::')[2]}".encode()).digest())
            dropped.update(cases[int(most):])
    if dropped:
        config.hook.pytest_deselected(items=list(dropped))
        items[:] = [i for i in items if i not in dropped]


# ------------------------------------------------------------------------------------------------------------ what they do
@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    if not is_ours(item.path):
        return (yield)
    from tilewright.conformance import harness
    from tilewright.conformance.record import Recorder

    if harness.TARGET != (_target if harness.DEVICE == "cpu" else os.environ.get("TILEWRIGHT_TARGET", "")):
        raise RuntimeError(f"the harness was imported before the options were read: it tests {harness.TARGET!r}, not {_target!r}")
    with Recorder() as recorder:
        item.stash[_RUNS] = recorder.runs
        return (yield)


_RUNS: pytest.StashKey[list[dict[str, Any]]] = pytest.StashKey()


def may_refuse(nodeid: str) -> bool:
    allowed = REFUSALS.get(target_of_run().partition(":")[0])
    return allowed is None or any(part in nodeid for part in allowed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A kernel that the target refuses is no failure (of a target that may): the test is skipped and the report says refused."""
    report = yield
    if call.when != "call" or not is_ours(item.path):
        return report
    runs = item.stash.get(_RUNS, [])
    outcome: str = report.outcome
    reason = ""
    if report.outcome == "skipped":  # said so by the test itself, or expected to fail
        reason, runs = str(call.excinfo.value) if call.excinfo else "", []
    elif call.excinfo is not None:
        from tilewright.dialects.errors import OutOfResources, UnsupportedOnTargetError

        reason = str(call.excinfo.value)[:2000]
        if isinstance(call.excinfo.value, UnsupportedOnTargetError):
            outcome, reason = "refused", call.excinfo.value.message
        elif isinstance(call.excinfo.value, OutOfResources):  # a chip with less memory or fewer registers than the test's tiles need
            outcome = "refused"
        elif _target == "interpreter" and reason.startswith("the interpreter cannot run"):
            outcome = "refused"
        if runs:
            runs[-1].update(outcome=outcome, reason=reason)
    elif any(r["outcome"] == "refused" for r in runs):
        outcome, reason = "partly refused", next(r["reason"] for r in runs if r["outcome"] == "refused")
    if "refused" in outcome:
        path, line, _ = item.location
        if not may_refuse(item.nodeid):
            outcome = report.outcome = "failed"
            report.longrepr = f"{path}:{(line or 0) + 1}: {target_of_run()} refuses what it has to run (tests/conformance/plugin.py: REFUSALS): {reason}"
            for r in runs:
                r["outcome"] = "failed" if r["outcome"] == "refused" else r["outcome"]
        elif outcome == "refused":
            report.outcome = "skipped"
            report.longrepr = (str(path), (line or 0) + 1, f"not on this target: {reason}")
    record = {"file": str(item.path), "outcome": outcome, "reason": reason, "seconds": round(call.duration, 3),
              "runs": [{**r, "uses": {n: sorted(t) for n, t in sorted(r["uses"].items())}} for r in runs]}
    report.user_properties.append((_PROPERTY, json.dumps(record)))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    state = _current
    if state is None:
        return
    if report.when == "call":
        for name, value in report.user_properties:
            if name == _PROPERTY:
                record = json.loads(str(value))
                # the id of a test of a file that --pyargs names has no file, and tests of several files may have one name
                state.tests[f"{Path(record['file']).name}{report.nodeid}" if report.nodeid.startswith("::") else report.nodeid] = record
    elif report.when == "setup" and not report.passed and "conformance" in report.nodeid:
        state.tests.setdefault(report.nodeid, {"outcome": "failed" if report.failed else "skipped", "reason": str(report.longrepr)[-500:], "seconds": 0, "runs": []})


_current: _State | None = None


def pytest_sessionstart(session: pytest.Session) -> None:
    global _current
    _current = None if hasattr(session.config, "workerinput") else session.config.stash[_KEY]


# --------------------------------------------------------------------------------------------------------------- the report
def add_up(tests: dict[str, dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """Name → type ("" for a use without one) → counts of passed, refused and failed runs, with the reason of the first that failed, else of the first refused.

    A failed run is held against those of its names and types that no passed run used, or else against all of it that fewest runs used.
    """
    used: Counter[tuple[str, str]] = Counter()
    good: set[tuple[str, str]] = set()
    flat = []
    for nodeid, test in tests.items():
        for run in test["runs"]:
            pairs = {(n, t) for n, types in run["uses"].items() for t in (types or [""])}
            used.update(pairs)
            if run["outcome"] == "passed":
                good |= pairs
            flat.append((nodeid, run, pairs))
    names: dict[str, dict[str, dict[str, Any]]] = {}
    for nodeid, run, pairs in flat:
        blamed = pairs
        if run["outcome"] != "passed":
            rarest = min((used[p] for p in pairs), default=0)
            blamed = pairs - good or {p for p in pairs if used[p] == rarest}
        for name, kind in blamed:
            entry = names.setdefault(name, {}).setdefault(kind, {"passed": 0, "refused": 0, "failed": 0})
            entry[run["outcome"]] += 1
            if run["outcome"] == "failed" and entry["failed"] == 1 or run["outcome"] == "refused" and "reason" not in entry:  # a failure's comes first
                entry["reason"] = f"{nodeid.rpartition('/')[2]}: {run['reason'].splitlines()[0] if run['reason'] else ''}"[:400]
    return names


def missing_names(names: dict[str, dict[str, dict[str, Any]]], target: str) -> list[str]:
    """Names of the usage list that no run passed with; a target that says it refuses a name (REFUSALS) need not pass it."""
    from tilewright.conformance.names import wanted

    def fine(name: str) -> bool:
        kinds = names.get(name, {}).values()
        return any(k["passed"] for k in kinds) or (target != "interpreter" and any(k["refused"] for k in kinds))

    return [n for n in wanted() if not fine(n)]


def _whole_run(session: pytest.Session, tests: dict[str, dict[str, Any]]) -> bool:
    """Whether every test of every file was meant to run, so that a name that none used is a gap."""
    option = session.config.option
    if any(getattr(option, o, None) for o in ("markexpr", "keyword", "lf", "collectonly", "deselect")) or os.environ.get("TILEWRIGHT_CONFORMANCE_SAMPLE"):
        return False
    if session.shouldstop or session.shouldfail or any("::" in str(a) for a in session.config.invocation_params.args):
        return False
    files = {Path(t["file"]) for t in tests.values() if "file" in t}
    return all(set(folder.glob("test_*.py")) <= files for folder in {f.parent for f in files})


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _current is None or not _current.tests:
        return
    tests, target = _current.tests, target_of_run()
    names = add_up(tests)
    if exitstatus == 0 and _whole_run(session, tests):
        _current.missing = missing_names(names, target)
        if _current.missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
    file = session.config.getoption("tilewright_report")
    if file:
        from tilewright import __version__

        short = {n.rpartition("/")[2]: {k: t[k] for k in ("outcome", "reason", "seconds")} for n, t in sorted(tests.items())}
        Path(file).write_text(json.dumps({
            "tilewright": __version__, "target": target, "device": os.environ.get("TILEWRIGHT_TEST_DEVICE", "cpu"),
            "sample": os.environ.get("TILEWRIGHT_CONFORMANCE_SAMPLE", ""), "names": dict(sorted(names.items())), "tests": short}, indent=1))


def summary(names: dict[str, dict[str, dict[str, Any]]], tests: dict[str, dict[str, Any]], target: str) -> list[str]:
    """What a target covers, for people."""
    counts = Counter(t["outcome"] for t in tests.values())
    lines = [f"target {target}: " + ", ".join(f"{counts[k]} tests {k}" for k in ("passed", "failed", "refused", "partly refused", "skipped") if counts[k])]
    calls = {n: k for n, k in names.items() if not n.startswith(".") and "(" not in n}
    whole = [n for n, kinds in calls.items() if all(k["passed"] and not k["refused"] and not k["failed"] for k in kinds.values())]
    lines.append(f"{len(whole)} of {len(calls)} names used pass with every type they were used with")
    for outcome in ("failed", "refused"):
        for name, kinds in sorted(calls.items()):
            bad = {k: v for k, v in kinds.items() if v[outcome] and not (outcome == "refused" and v["passed"])}
            if bad:
                lines.append(f"  {outcome}: {name} ({', '.join(k or 'any' for k in sorted(bad))}): {next(iter(bad.values())).get('reason', '')[:160]}")
    return lines


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if _current is None or not _current.tests:
        return
    wanted = config.getoption("tilewright_report") or config.getoption("tilewright_target")
    if not wanted and not _current.missing:
        return
    terminalreporter.section("Tilewright conformance")
    for line in summary(add_up(_current.tests), _current.tests, target_of_run()) if wanted else ():
        terminalreporter.write_line(line)
    if _current.missing:
        terminalreporter.write_line(f"FAILED: no passing test uses these names of the usage list: {', '.join(_current.missing)}")
