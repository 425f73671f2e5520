"""Sessions of the profiler: trees of scopes and kernels with counts and times, filled through the launch hooks."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright import knobs
from tilewright.dialects.errors import ArgumentError, TilewrightError

TIME, COUNT = "time (ns)", "count"
_CONTEXTS, _DATA, _HOOKS = ("shadow", "python"), ("tree", "trace"), (None, "triton", "launch")
_BACKENDS = (None, "cupti", "roctracer")  # Triton's names of where times come from; here they come from the target's event timers


class ProfilerError(TilewrightError, ValueError):
    """A scope that ends though it did not begin, or a session that is not there."""


class Node:
    """A scope or kernel: its metrics and what is below it, by name."""

    __slots__ = ("name", "metrics", "children")

    def __init__(self, name: str):
        self.name = name
        self.metrics: dict[str, Any] = {}
        self.children: dict[str, Node] = {}

    def at(self, path: Sequence[str]) -> Node:
        node = self
        for name in path:
            node = node.children.setdefault(name, Node(name))
        return node

    def add(self, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + value

    def frames(self) -> dict[str, Any]:
        """As hatchet reads it."""
        return {"frame": {"name": self.name, "type": "function"}, "metrics": dict(self.metrics), "children": [c.frames() for c in self.children.values()]}


class _Thread(threading.local):
    """Where a thread is."""

    def __init__(self) -> None:
        self.scopes: list[tuple[int, str]] = []
        self.states: list[str] = []
        self.open: list[Any] = []  # launches between their two hooks


here = _Thread()
scope_ids = itertools.count()
sessions: dict[int, Session] = {}
_ids = itertools.count()
_lock = threading.RLock()


class Session:
    """One profile. ``path``: of the file that ``write`` makes, without its ending."""

    def __init__(self, path: str, context: str, data: str, metadata: bool):
        self.path, self.context, self.data, self.metadata = path, context, data, metadata
        self.active = True
        self.root = Node("ROOT")
        self.launches: list[tuple[tuple[str, ...], float, Any, dict[str, Any]]] = []  # path, host time in s, event timer, metrics
        self.devices: dict[str, dict[str, Any]] = {}
        self.drivers: dict[int, Any] = {}
        self.events: list[dict[str, Any]] = []
        self.begin = time.time()

    def launched(self, path: tuple[str, ...], when: float, timer: Any, kernel: Any, metrics: dict[str, Any]) -> None:
        with _lock:
            self.launches.append((path, when, timer, metrics))
            self.drivers[id(kernel.driver)] = kernel.driver
            self._note_device(kernel)
            if len(self.launches) >= 4096:  # events are a limited good
                self.settle()

    def _note_device(self, kernel: Any) -> None:
        kind = (*kernel.selection.plugin.aliases, kernel.selection.plugin.name)[0].upper()
        index = str(kernel.driver.current_device())
        known = self.devices.setdefault(kind, {})
        if index not in known:
            facts = kernel.driver.get_device_properties(int(index))
            known[index] = {"arch": str(kernel.metadata.target.arch), "num_sms": facts.get("multiprocessor_count", 0), "clock_rate": facts.get("sm_clock_rate", 0),
                            "memory_clock_rate": facts.get("mem_clock_rate", 0), "bus_width": facts.get("mem_bus_width", 0)}

    def settle(self) -> None:
        """Read the times of the launches so far."""
        with _lock:
            for driver in self.drivers.values():
                driver.synchronize()
            for path, when, timer, metrics in self.launches:
                took = timer.elapsed_ms() * 1e6
                self.root.at(path).add({COUNT: 1, TIME: took, **metrics})
                if self.data == "trace":
                    self.events.append({"name": path[-1], "cat": "kernel", "ph": "X", "ts": (when - self.begin) * 1e6, "dur": took / 1e3, "pid": 0, "tid": 0,
                                        "args": {"scopes": list(path[:-1])}})
            self.launches.clear()

    def write(self, output_format: str = "") -> str:
        """The file's path. output_format: "hatchet" or "chrome_trace"; "": by ``data``."""
        self.settle()
        kind = output_format or ("chrome_trace" if self.data == "trace" else "hatchet")
        if kind not in ("hatchet", "chrome_trace") or (kind == "chrome_trace") != (self.data == "trace"):
            raise ArgumentError(f"a session of data={self.data!r} is written as {'chrome_trace' if self.data == 'trace' else 'hatchet'}; found {output_format!r}")
        path = f"{self.path}.{kind}"
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        content: Any = {"traceEvents": self.events} if kind == "chrome_trace" else [{**self.root.frames(), "metrics": {COUNT: 0, TIME: 0}}, self.devices]
        with open(path, "w", encoding="utf-8") as f:
            json.dump(content, f)
        return path


def _python_frames() -> list[str]:
    """The calls that led to a launch, the outermost first, without this package's own."""
    package = __name__.split(".")[0]
    frame: Any = sys._getframe(1)
    found = []
    while frame is not None:
        if frame.f_globals.get("__name__", "").split(".")[0] != package and not frame.f_code.co_filename.startswith("<warm launch"):
            found.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}@{frame.f_lineno}")
        frame = frame.f_back
    return found[::-1]


def _entered(record: Any) -> None:
    if record is None:  # a launch by hand, of code that does not say what it is
        return
    timer = record.kernel.driver.event_timer()
    here.open.append((time.time(), timer))
    timer.start()


def _left(record: Any) -> None:
    if record is None or not here.open:  # the session began between the two hooks
        return
    when, timer = here.open.pop()
    timer.stop()
    kernel = record.kernel
    scopes = [name for _, name in here.scopes] + here.states[-1:]
    facts: dict[str, Any] | None = None
    for session in list(sessions.values()):
        if not session.active:
            continue
        name, metrics = kernel.name, {}
        if session.metadata:
            facts = facts if facts is not None else record.get()
            name = str(facts["name"])
            metrics = {k: v for k, v in facts.items() if k.rstrip("0123456789") in ("flops", "bytes") and isinstance(v, (int, float))}
        path = (_python_frames() if session.context == "python" else scopes) + [name]
        session.launched(tuple(path), when, timer, kernel, metrics)


def _listen() -> None:
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    if any(s.active for s in sessions.values()):
        enter.add(_entered)
        leave.add(_left)
    else:
        enter.remove(_entered)
        leave.remove(_left)


def profiling() -> bool:
    """Whether there is a session."""
    return bool(sessions)


def begin(path: str, context: str, data: str, backend: Any, mode: Any, hook: Any) -> int:
    """See ``profiler.start``."""
    for name, value, allowed in (("context", context, _CONTEXTS), ("data", data, _DATA), ("hook", hook, _HOOKS), ("backend", backend, _BACKENDS)):
        if value not in allowed:
            raise ArgumentError(f"profiler.start: {name} is one of {', '.join(map(repr, allowed))}; found {value!r}. Kernels are timed as a whole here: "
                                "nothing is instrumented or sampled")
    if mode is not None:
        raise ArgumentError(f"profiler.start: mode is None; found {mode!r}. Kernels are timed as a whole here: nothing is instrumented or sampled")
    with _lock:
        number = next(_ids)
        sessions[number] = Session(path, context, data, hook is not None)
        _listen()
    return number


def _chosen(session: int | None) -> list[int]:
    if session is None:
        return list(sessions)
    if session not in sessions:
        raise ProfilerError(f"there is no profiling session {session}; there are {', '.join(map(str, sessions)) or 'none'}")
    return [session]


def set_active(session: int | None, active: bool) -> None:
    """Let sessions (None: all) record launches, or not."""
    with _lock:
        for number in _chosen(session):
            sessions[number].active = active
        _listen()


def end(session: int | None, output_format: str) -> list[str]:
    """Write and forget sessions (None: all); the paths of their files."""
    with _lock:
        numbers = _chosen(session)
        ended = [sessions[n] for n in numbers]
        paths = [s.write(output_format) for s in ended]
        for n in numbers:
            del sessions[n]
        _listen()
    return paths


def add_metrics(path: Sequence[str], metrics: Mapping[str, Any]) -> None:
    """Add numbers to a scope of the active sessions that are by scopes."""
    for name, value in metrics.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ArgumentError(f"metric {name!r} of a scope is a number; found {value!r}")
    with _lock:
        for session in sessions.values():
            if session.active and session.context == "shadow":
                session.root.at(path).add(metrics)
