"""Compile several kernels at once, in forked processes that leave them in the disk cache.

Python holds one lock for all threads, and so does LLVM's binding, so threads gain little; a forked process has the kernel's source at
hand, which one that was spawned could only import. The processes touch neither device nor driver: what they do ends with the cache's files.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright import knobs

SILENCE = 120.0  # seconds without a finished compilation after which a process counts as stuck
POLL = 5.0  # seconds from one look at the clock to the next
_gate = threading.Condition()
_compiling = 0  # compilations in progress in this process: it must not be forked meanwhile, since locks would stay held in the child
_forking = False


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Around one compilation."""
    global _compiling
    with _gate:
        while _forking:
            _gate.wait()
        _compiling += 1
    try:
        yield
    finally:
        with _gate:
            _compiling -= 1
            _gate.notify_all()


def _renew_after_fork() -> None:
    global _gate, _compiling, _forking
    _gate, _compiling, _forking = threading.Condition(), 0, False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


def processes() -> int:
    """How many to use: TILEWRIGHT_COMPILE_PROCESSES, else the processors this process may use, at most 16; 1 where there is no fork."""
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return 1
    asked = knobs.environment("COMPILE_PROCESSES")
    if asked is not None and asked.isdigit():
        return max(1, int(asked))
    return min(16, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def compile_ahead(jobs: Sequence[Callable[[], Any]]) -> int:
    """Call every job (a compilation that ends in the disk cache) in one of several processes; returns how many were used, 0 where it is
    not worth it. Jobs that fail fail again where their kernel is asked for; nothing is raised here."""
    global _forking
    count = min(processes(), len(jobs))
    if count < 2 or _compiling_here():
        return 0
    with _gate:
        while _compiling or _forking:
            _gate.wait()
        _forking = True
    pipes: dict[int, int] = {}  # read end → pid
    try:
        for first in range(count):
            read, write = os.pipe()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads; see the module's text
                pid = os.fork()
            if pid == 0:
                _work(jobs[first::count], write)
            os.close(write)
            pipes[read] = pid
    finally:
        with _gate:
            _forking = False
            _gate.notify_all()
    _wait(pipes)
    return count


_local = threading.local()


def _compiling_here() -> bool:
    return bool(getattr(_local, "working", False))


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
