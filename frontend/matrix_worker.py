"""One target's row of ``tilewright matrix``, in a process of its own: ``python -m tilewright.matrix_worker REQUEST.json RESULTS``.

RESULTS gets one JSON object a line as things happen, so that what was found before a crash is kept: {"event": "begin", "ran", "reason"},
{"event": "kernel", …} for each kernel compiled, {"event": "case", …} for each case done ({"event": "start", "name"} before it),
{"event": "failure", "message"} where the file itself or the target cannot be used, {"event": "end"}.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from tilewright.dialects.errors import ArgumentError

INTERPRETER = "interpreter"
DEVICE, SIMULATOR, COMPILED, NOTHING = "device", "simulator", "compiled only", "not run"

_FACTS = ("name", "registers", "spills", "shared", "num_warps", "matrix_instructions", "choices", "variants", "host")


class NoLaunch:
    """A driver whose launches do nothing: what is launched is only compiled."""

    n_regs = n_spills = None
    function = None

    def __init__(self, capabilities: Any):
        self.capabilities = capabilities

    def current_device(self) -> int:
        return 0

    def current_stream(self, device: int) -> int:
        return 0

    def load(self, asm: Mapping[str, Any], metadata: Mapping[str, Any], device: int) -> Any:
        return self

    def make_launcher(self, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
        return lambda *args, **kwargs: None

    def synchronize(self) -> None: ...

    def get_device_properties(self, device: int) -> Mapping[str, Any]:
        c = self.capabilities
        return {"max_shared_mem": c.max_shared_bytes, "max_num_regs": c.registers_per_thread * c.max_threads, "multiprocessor_count": 1,
                "warpSize": c.warp_size, "sm_clock_rate": 0, "mem_clock_rate": 0, "mem_bus_width": 0, "arch": c.arch}

    def event_timer(self) -> NoLaunch:
        return self

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def elapsed_ms(self) -> float:
        return 1.0


def _measure_once(fn: Callable[[], Any], *args: Any, quantiles: Sequence[float] | None = None, **kwargs: Any) -> Any:
    """Stands for do_bench where time says nothing: every configuration of an autotuner runs once."""
    start = time.perf_counter()
    fn()
    ms = (time.perf_counter() - start) * 1e3
    return ms if quantiles is None else [ms] * len(quantiles)


def _array_device(selection: Any) -> tuple[str | None, str]:
    """(torch's name of the place of arrays for a device of this target, why there is none)."""
    if "cpu" in selection.plugin.device_types:
        return "cpu", ""
    try:
        import torch
    except ImportError:
        return None, "a device is there; install torch to launch on it"
    for kind in selection.plugin.device_types:
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return kind, ""
    return None, "a device is there, and this build of torch does not use it"


def prepare(target: str, compile_only: bool) -> tuple[str, str, str]:
    """Make ``target`` (of ``registry.parse``, or "interpreter") the one that launches go to. Returns (where they run, why not on a device
    or simulator, the device of arrays). Before the user's file is imported: decorators look at the environment."""
    os.environ.pop("TILEWRIGHT_TARGET", None)
    os.environ.pop("TILEWRIGHT_INTERPRET", None)
    if target == INTERPRETER and compile_only:
        return NOTHING, "--compile-only was given, and the interpreter compiles nothing", "cpu"
    if target == INTERPRETER:
        os.environ["TILEWRIGHT_INTERPRET"] = "1"
        return INTERPRETER, "", "cpu"
    from tilewright.runtime.driver import driver, driver_of, set_driver
    from tilewright.targets import registry

    selection = registry.parse(target)
    plugin = selection.plugin
    reason = "--compile-only was given" if compile_only else ""
    if not compile_only and not selection.simulate and any(plugin.resolve_arch(d.arch) == selection.arch for d in registry.probe(plugin)):
        device, reason = _array_device(selection)
        if device is not None:
            os.environ["TILEWRIGHT_TARGET"] = str(selection)
            return DEVICE, "", device
    simulated = registry.Selection(plugin, selection.arch, True)
    if not compile_only and plugin.simulator is not None:
        driver_of(simulated)
        os.environ["TILEWRIGHT_TARGET"] = str(simulated)
        return SIMULATOR, "", "cpu"
    set_driver(simulated, NoLaunch(plugin.capabilities(selection.arch)))
    driver.set_active(simulated)
    return COMPILED, reason or "no such device here, and the target has no simulator", "cpu"


def load_file(path: str) -> ModuleType:
    """The user's file as a module, its folder on the path, ``import triton`` served."""
    from tilewright import _utils
    from tilewright.dropin import install_as_triton

    install_as_triton()
    return _utils.load_file(path)


def _message(error: BaseException, path: str) -> str:
    """The error in words, with the line of the user's file that it went through."""
    lines = [f"{type(error).__name__}: {error}"]
    places = [f for f in traceback.extract_tb(error.__traceback__) if os.path.abspath(f.filename) == os.path.abspath(path)]
    if places and f"{os.path.basename(path)}:" not in lines[0]:
        lines.append(f"at {os.path.basename(path)}:{places[-1].lineno}")
    return "\n".join(lines)


def _run(case: Any) -> Any:
    """The output of a case. Raises ArgumentError where nothing was launched for it: a library that takes torch's way for arrays on the cpu
    would be right on every target without having run on any."""
    from tilewright.case import float64, poisoned_memory
    from tilewright.runtime.driver import driver
    from tilewright.runtime.interpreter import InterpretedFunction

    driver.recent, before = None, InterpretedFunction.launches
    with poisoned_memory():
        out = case.run()
    if driver.recent is None and InterpretedFunction.launches == before:
        if any(float64(o).size for o in (out if isinstance(out, (tuple, list)) else [out])):  # what is empty needs no launch
            raise ArgumentError("run() launched no kernel: does it take another way for arrays on the cpu, or was the result made before?")
    return out


class Worker:
    """Runs one request and writes the events."""

    def __init__(self, request: Mapping[str, Any], write: Callable[[dict[str, Any]], None]):
        self.request, self.write = request, write
        self.path = str(request["file"])
        self.where = self.device = ""
        self.stage = "when it is imported; put what it runs under `if __name__ == \"__main__\":`"

    def run(self) -> None:
        """The whole row. Never raises an Exception: it becomes an event."""
        try:
            with self._listening():
                self.where, reason, self.device = prepare(str(self.request["target"]), bool(self.request.get("compile_only")))
                self.write({"event": "begin", "ran": self.where, "reason": reason})
                if self.where == NOTHING:
                    self.write({"event": "end"})
                    return
                if self.where in (SIMULATOR, COMPILED):
                    from tilewright import testing

                    testing.do_bench = _measure_once
                module = load_file(self.path)
                self.stage = "before its cases are made"
                self._work(module)
        except Exception as error:
            self.write({"event": "failure", "message": _message(error, self.path)})
        except SystemExit as error:  # a script without a guard
            self.write({"event": "failure", "message": f"the file ends the process (exit status {error.code}) {self.stage}"})
        self.write({"event": "end"})

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        from tilewright import knobs

        seen: set[Any] = set()

        def listener(metadata: Mapping[str, Any], **_: Any) -> None:
            if metadata["hash"] not in seen:
                seen.add(metadata["hash"])
                self.write({"event": "kernel", **{k: metadata.get(k) for k in _FACTS}})

        before, knobs.compilation.listener = knobs.compilation.listener, listener
        try:
            yield
        finally:
            knobs.compilation.listener = before

    def _work(self, module: ModuleType) -> None:
        from tilewright.case import CASES, Case
        from tilewright.matrix_kernels import compile_kernels

        make = getattr(module, CASES, None)
        if make is not None and not self.request.get("kernel") and (self.request.get("signature") or self.request.get("options")):
            raise ArgumentError(f"--signature and --option are for a kernel that is compiled without cases: name it with --kernel. The launches of {CASES} "
                                "say theirs themselves")
        if make is None or self.request.get("kernel"):
            if self.where == INTERPRETER:
                self.write({"event": "begin", "ran": NOTHING, "reason": "without cases there is nothing for the interpreter to run"})
                return
            self.write({"event": "begin", "ran": COMPILED, "reason": f"the file has no {CASES}" if make is None else "--kernel was given"})
            for name, compile_ in compile_kernels(module, self.request):
                self._one(name, lambda c=compile_: c(str(self.request["target"])))  # type: ignore[misc]
            return
        wanted = self.request.get("cases") or "*"
        made = make(self.device)
        if not isinstance(made, Iterable):
            raise ArgumentError(f"{CASES} returns {type(made).__name__}; it has to yield Cases (tilewright.testing), or return a list of them")
        for case in made:
            if not isinstance(case, Case) or not isinstance(case.name, str):
                raise ArgumentError(f"{CASES} yields {case!r}; it has to be a Case (tilewright.testing) whose name is a string")
            if not fnmatch.fnmatchcase(case.name, wanted):
                continue
            self._one(case.name, lambda case=case: self._case(case))  # type: ignore[misc]

    def _one(self, name: str, run: Callable[[], Mapping[str, Any]]) -> None:
        self.write({"event": "start", "name": name})
        start = time.perf_counter()
        try:
            result = run()
        except Exception as error:  # one case must not end the others
            result = {"status": "failed", "message": _message(error, self.path)}
        except SystemExit as error:
            result = {"status": "failed", "message": f"the case ends the process (exit status {error.code})"}
        self.write({"event": "case", "name": name, "error": None, "tolerance": None, "message": "", "seconds": time.perf_counter() - start, **result})

    def _case(self, case: Any) -> Mapping[str, Any]:
        if not isinstance(case.tolerance, (int, float)) or not 0 <= case.tolerance < math.inf:
            raise ArgumentError(f"a case's tolerance is a number of 0 or more; found {case.tolerance!r}")
        out = _run(case)
        if self.where == COMPILED:
            return {"status": "compiled"}
        error = float(case.measure(out, case.reference()))
        good = error <= case.tolerance  # not of NaN
        message = "" if good else ("an element is NaN where the reference is not: was it written?" if error != error else
                                   f"the error is {error:.3g}; at most {case.tolerance:.3g} is right")
        return {"status": "passed" if good else "failed", "error": error, "tolerance": float(case.tolerance), "message": message}


def main(argv: Sequence[str]) -> int:
    """Entry point."""
    request_path, results = argv
    with open(request_path, encoding="utf-8") as f:
        request = json.load(f)
    with open(results, "a", encoding="utf-8") as out:
        def write(event: dict[str, Any]) -> None:
            out.write(json.dumps(event, default=str) + "\n")
            out.flush()

        Worker(request, write).run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
