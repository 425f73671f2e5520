"""Compile several kernels at once, in forked processes that leave them in the disk cache.

Python holds one lock for all threads, and so does LLVM's binding, so threads gain little; a forked process has the kernel's source at
hand, which one that was spawned could only import. The processes touch neither device nor driver: what they do ends with the cache's files.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.dialects.settings import count, from_variable

SILENCE = 120.0  # seconds without a finished compilation after which a process counts as stuck
POLL = 5.0  # seconds from one look at the clock to the next
_gate = threading.Condition()
_compiling = 0  # threads at work in this process, each as often as it is
_forker: int | None = None  # the thread that forks
_local = threading.local()  # depth: how often this thread is at work; working: whether this process was made here


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Around compiling and loading: the process is not forked meanwhile by another thread, since locks would stay held in the child."""
    global _compiling
    depth = getattr(_local, "depth", 0)
    with _gate:
        while _forker is not None and depth == 0 and _forker != threading.get_ident():
            _gate.wait()
        _compiling += 1
    _local.depth = depth + 1
    try:
        yield
    finally:
        _local.depth = depth
        with _gate:
            _compiling -= 1
            _gate.notify_all()


def _hold() -> bool:
    """Wait until no other thread compiles, and keep all from it. False where this thread does so already."""
    global _forker
    with _gate:
        if _forker == threading.get_ident():
            return False
        while _compiling > getattr(_local, "depth", 0) or _forker is not None:
            _gate.wait()
        _forker = threading.get_ident()
    return True


def _let_go() -> None:
    global _forker
    with _gate:
        _forker = None
        _gate.notify_all()


# what the hooks around a fork know of each other
_held: list[bool] = []


def _before_fork() -> None:
    _held.append(_hold())


def _after_fork() -> None:
    if _held.pop():
        _let_go()


def _in_child() -> None:
    global _gate, _compiling, _forker
    _held.clear()
    _gate, _compiling, _forker = threading.Condition(), getattr(_local, "depth", 0), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def processes() -> int:
    """How many to use: TILEWRIGHT_COMPILE_PROCESSES, else the processors this process may use, at most 16; 1 where there is no fork."""
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return 1
    asked = from_variable(("TILEWRIGHT_COMPILE_PROCESSES", "TRITON_COMPILE_PROCESSES"), count)
    if asked is not None:
        return int(asked)
    return min(16, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def compile_ahead(jobs: Sequence[Callable[[], Any]]) -> int:
    """Call every job (a compilation that ends in the disk cache) in one of several processes; returns how many were used, 0 where it is
    not worth it. Jobs that fail fail again where their kernel is asked for; nothing is raised here."""
    workers = min(processes(), len(jobs))
    if workers < 2 or getattr(_local, "working", False):
        return 0
    _hold()
    pipes: dict[int, int] = {}  # read end → pid
    try:
        for first in range(workers):
            read, write = os.pipe()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads; see the module's text
                pid = os.fork()
            if pid == 0:
                _work(jobs[first::workers], write)
            os.close(write)
            pipes[read] = pid
    finally:
        _let_go()
    _wait(pipes)
    return workers


def _work(jobs: Sequence[Callable[[], Any]], write: int) -> None:
    """The child: never returns."""
    try:
        _local.working = True
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)  # what compilers print is printed where the kernel is asked for
        os.dup2(null, 2)
        for job in jobs:
            try:
                job()
            except Exception:  # noqa: BLE001 - told where the kernel is asked for
                pass
            os.write(write, b".")
    finally:
        os._exit(0)


def _wait(pipes: dict[int, int]) -> None:
    import select  # here, as signal: every start of Python with Tilewright loads this module
    import signal

    heard = time.monotonic()
    try:
        while pipes:
            ready, _, _ = select.select(list(pipes), [], [], POLL)
            for read in ready:
                if os.read(read, 4096):
                    heard = time.monotonic()
                else:
                    os.close(read)
                    os.waitpid(pipes.pop(read), 0)
            if time.monotonic() - heard > SILENCE:
                break
    finally:
        for read, pid in pipes.items():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(read)
