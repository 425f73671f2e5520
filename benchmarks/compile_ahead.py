"""Compile candidates in other processes, so that the measuring process finds them in the compilers' caches on disk.

No worker looks at a device: both compilers are told the architecture. ``Ahead`` hands out (framework, case, candidate) and answers with
what went wrong (one line), or "".
"""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

Task = tuple[str, str, int]

_frameworks: dict[str, Any] = {}
_cases: dict[str, Any] = {}


def first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()[:300] if lines else ''}"


def compile_one(task: Task, arch: int) -> str:
    """Run in a worker. "" or the error's first line."""
    from cases import all_cases
    from frameworks import Framework, compile_for, stand_in, warmup

    name, case_name, index = task
    try:
        framework = _frameworks.get(name)
        if framework is None:
            framework = _frameworks[name] = Framework(name)
            compile_for(framework, arch)
        if not _cases:
            _cases.update(all_cases())
        case = _cases[case_name]
        for kernel in warmup(framework, case.launches(case.buffers(stand_in), case.candidates[index], framework)):
            shared = kernel.metadata.shared
            if shared and shared > 227 * 1024:
                return f"OutOfResources: {shared} bytes of shared memory, and a block has 232448"
    except Exception as error:  # noqa: BLE001 - a candidate that fails must not end the others
        return first_line(error)
    return ""


class Ahead:
    """``workers`` processes at work on the tasks, in their order."""

    def __init__(self, tasks: Iterable[Task], arch: int, workers: int):
        # both compilers print notes on some failures; the table shows the error's first line
        context = multiprocessing.get_context("spawn")
        self.pool = concurrent.futures.ProcessPoolExecutor(workers, context, _start_worker, (os.getpid(),))
        self.futures = {task: self.pool.submit(compile_one, task, arch) for task in tasks}

    def wait(self, task: Task, seconds: float) -> str:
        """"" where the candidate is compiled, else why not."""
        future = self.futures.get(task)
        if future is None:
            return ""
        try:
            return future.result(seconds)
        except concurrent.futures.CancelledError:
            return "not compiled: cancelled"
        except concurrent.futures.TimeoutError:
            return f"not compiled within {seconds:.0f} s"
        except concurrent.futures.process.BrokenProcessPool:
            return "the compiling process died"

    def drop(self, case: str) -> None:
        """Compile no more of a case's candidates."""
        for (_, name, _), future in self.futures.items():
            if name == case:
                future.cancel()

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)


def _start_worker(parent: int) -> None:
    """Silence, and an end with the measuring process, which may end itself because of a hung kernel."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
