"""Runs random kernels in processes that may crash or hang: one kernel's comparison, the worker process, and its handle.

What a kernel may come to (``Outcome.kind``): "ok"; "mismatch", an array differs; "error", the target raised; "interpreter", the interpreter
raised; "refused", the target says that it lacks something (memory, a type); "crash" and "hang", told by the handle.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import itertools
import linecache
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tilewright.dialects.errors import OutOfResources, TilewrightError

from . import harness
from .random_kernels_base import Case
from .random_kernels_control import generate

# zeros of both signs count as equal, since the minimum of both is either
TOLERANCE: dict[str, Any] = {"ulp": 0.5}
_REFUSALS = ("UnsupportedOnTargetError", "UnsupportedArchError")


@dataclass
class Outcome:
    """What came of one kernel; ``mark`` tells failures of one cause from others."""

    kind: str
    text: str = ""
    mark: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    used: Counter[tuple[str, str]] = field(default_factory=Counter)


_folder: list[Path] = []
_number = itertools.count()


def load(source: str) -> tuple[Any, Path]:
    """(the function ``kernel`` of the text, the file that it lies in)."""
    if not _folder:
        _folder.append(Path(tempfile.mkdtemp(prefix="tilewright-random-")))
    name = f"random_{os.getpid()}_{next(_number)}"
    path = _folder[0] / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module.kernel, path


def _forget(path: Path) -> None:
    sys.modules.pop(path.stem, None)
    linecache.cache.pop(str(path), None)
    path.unlink(missing_ok=True)


def launch(kernel: Any, args: Mapping[str, Any], grid: tuple[int, ...], options: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Run the kernel on the target with copies of the arrays, between guards; every fourth starts an element or three off its alignment."""
    copies, wholes = dict(args), {}
    for number, (name, value) in enumerate(args.items()):
        if isinstance(value, torch.Tensor):
            before = 64 + ((1, 3)[number % 8 // 4] if number % 4 == 3 else 0)
            whole = torch.full((value.numel() + before + 64,), 91, dtype=torch.uint8)  # as bytes of the elements, below
            whole = whole.repeat_interleave(value.element_size()).view(value.dtype)
            whole[before : before + value.numel()] = value.reshape(-1)
            wholes[name] = (whole.to(harness.DEVICE), before, value.numel())
            copies[name] = wholes[name][0][before : before + value.numel()].view(value.shape)
    kernel[grid](**copies, **options)
    if harness.ON_GPU:
        torch.cuda.synchronize()
    for name, (whole, before, numel) in wholes.items():
        data = harness.bits_of(whole.cpu()).view(np.uint8).reshape(len(whole), -1)
        assert (data[:before] == 91).all() and (data[before + numel :] == 91).all(), f"the kernel wrote outside {name}"
    return {name: copies[name].cpu() for name in wholes}


def check(source: str, args: Mapping[str, Any], grid: tuple[int, ...], options: Mapping[str, Any]) -> Outcome:
    """Run the kernel in the interpreter and on the target, and compare every array."""
    seconds: dict[str, float] = {}
    path = None
    stage = "interpreter"
    try:
        start = time.perf_counter()
        kernel, path = load(source)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reference = harness.interpret(kernel, args, grid)
        seconds["interpreter"] = time.perf_counter() - start
        stage, start = "error", time.perf_counter()
        got = launch(kernel, args, grid, options)
        seconds["target"] = time.perf_counter() - start
        stage = "mismatch"
        for name, value in reference.items():
            harness.assert_same(got[name], value, what=name, **TOLERANCE)
        return Outcome("ok", seconds=seconds)
    except AssertionError as error:
        if stage == "error":  # written outside an output
            stage = "mismatch"
        text = str(error)
        return Outcome(stage, text, f"{stage}", seconds)
    except TilewrightError as error:
        if stage == "error" and (isinstance(error, OutOfResources) or type(error).__name__ in _REFUSALS):
            stage = "refused"
        return Outcome(stage, _short(error), f"{stage}: {type(error).__name__}: {_message(error)}", seconds)
    except Exception as error:  # whatever a compiler may raise is a finding
        return Outcome(stage, _short(error), f"{stage}: {type(error).__name__}: {_message(error)}", seconds)
    finally:
        if path is not None:
            _forget(path)


def _message(error: BaseException) -> str:
    """The error's words without numbers and names, so that one cause gives one mark."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = re.sub(r"^\S+\.py:\d+:\d+: ", "", lines[-1].strip() if lines and str(error).startswith("at ") else lines[0] if lines else "")
    return "".join("#" if c.isdigit() else c for c in text)[:100]


def _short(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error))
    return text if len(text) < 6000 else text[:2500] + "\n…\n" + text[-3000:]


def worker(connection: Any, log: str) -> None:
    """Answers seeds and cases until None comes. A crash leaves its stack in the file ``log``."""
    from tilewright.targets.cpu import emit

    emit.with_assembly = False  # the kernels run from their objects
    cache = tempfile.mkdtemp(prefix="tilewright-random-cache-")
    os.environ["TILEWRIGHT_CACHE_DIR"] = cache
    with open(log, "w") as file:
        faulthandler.enable(file)
        while (job := connection.recv()) is not None:
            if isinstance(job, int):
                start, processor = time.perf_counter(), time.process_time()
                try:
                    case = generate(job)
                except Exception as error:
                    connection.send(Outcome("generator", _short(error), f"generator: {type(error).__name__}: {_message(error)}"))
                    continue
                made = time.perf_counter() - start
                outcome = check(case.source, case.args, case.grid, case.options)
                outcome.seconds["generator"], outcome.used = made, case.used
                outcome.seconds["processor time"] = time.process_time() - processor
            else:
                outcome = check(*job)
            connection.send(outcome)
            shutil.rmtree(cache, ignore_errors=True)  # what is compiled is never asked for again
        for folder in (cache, *_folder):
            shutil.rmtree(str(folder), ignore_errors=True)


class Worker:
    """A process that runs kernels, replaced when it dies, does not answer in time, or has run ``lifetime`` of them."""

    def __init__(self, limit: float, lifetime: int = 400):
        self.limit, self.lifetime = limit, lifetime
        self.process: Any = None
        self.log = tempfile.NamedTemporaryFile(prefix="tilewright-random-", suffix=".log", delete=False).name
        self.served = 0

    def _start(self) -> None:
        # a server that has imported everything forks the workers: a crash then costs milliseconds. A device's driver may not like forks.
        forks = harness.DEVICE == "cpu" and "forkserver" in multiprocessing.get_all_start_methods()
        context: Any = multiprocessing.get_context("forkserver" if forks else "spawn")
        if context.get_start_method() == "forkserver":
            context.set_forkserver_preload([__name__, "tilewright.conformance.harness", "tilewright.dialects.context", "tilewright.compiler.code_generator"])
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=worker, args=(theirs, self.log), daemon=True)
        self.process.start()
        theirs.close()
        self.served = 0

    def stop(self, now: bool = False) -> None:
        """End the process: at its next job, or ``now``."""
        if self.process is None:
            return
        try:
            if not now:
                self.connection.send(None)
                self.process.join(20)
        except OSError:
            pass
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.connection.close()
        self.process = None

    def ask(self, job: int | tuple[Any, ...]) -> Outcome:
        """The outcome of a seed, or of (source, args, grid, options)."""
        if self.process is not None and self.served >= self.lifetime:
            self.stop()
        fresh = self.process is None
        if fresh:
            self._start()
        self.served += 1
        try:
            self.connection.send(job)
            if not self.connection.poll(self.limit + (60 if fresh else 0)):  # a new process has to import everything first
                self.stop(now=True)
                return Outcome("hang", f"no answer within {self.limit:.0f} s", "hang")
            outcome: Outcome = self.connection.recv()
        except (EOFError, OSError):
            self.process.join(10)
            code = self.process.exitcode
            self.stop(now=True)
            lines = Path(self.log).read_text().splitlines() if Path(self.log).exists() else []
            of_ours = next((i for i, line in enumerate(lines) if line.startswith("Current thread")), len(lines))
            stack = [line.strip() for line in lines[of_ours:] if line.startswith("  File")]
            # the innermost functions tell causes apart
            where = " < ".join(line.rpartition(" in ")[2] + " " + Path(line.split('"')[1]).stem for line in stack[:2])
            return Outcome("crash", f"the process ended with exit code {code}\n" + "\n".join(stack[:12]), f"crash {code} in {re.sub(r'[0-9]+', '#', where)}")
        if outcome.kind == "error" and harness.DEVICE != "cpu":
            self.stop()  # a device that faulted gives errors to the kernels after
        return outcome


def case_of(seed: int) -> Case:
    """The kernel of a seed (generated here, in this process)."""
    return generate(seed)


__all__ = ["TOLERANCE", "Outcome", "Worker", "case_of", "check", "load", "worker"]
