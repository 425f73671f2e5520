"""Measuring and comparing, with Triton's names: do_bench, perf_report, Benchmark, assert_close; and ``Case`` for ``tilewright matrix``."""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.case import Case  # noqa: F401 - users find it here
from tilewright.dialects.errors import ArgumentError, TilewrightError

_MODES = ("mean", "median", "min", "max", "all")


def _quantile(sorted_times: Sequence[float], q: float) -> float:
    position = q * (len(sorted_times) - 1)
    low = int(position)
    high = min(low + 1, len(sorted_times) - 1)
    return sorted_times[low] + (sorted_times[high] - sorted_times[low]) * (position - low)


def _summary(times: Sequence[float], quantiles: Sequence[float] | None, return_mode: str) -> Any:
    if quantiles is not None:
        ordered = sorted(times)
        result = [_quantile(ordered, q) for q in quantiles]
        return result[0] if len(result) == 1 else result
    if return_mode == "all":
        return list(times)
    functions: dict[str, Callable[[Sequence[float]], float]] = {
        "mean": statistics.fmean, "median": statistics.median, "min": min, "max": max}
    return functions[return_mode](times)


def do_bench(fn: Callable[[], Any], warmup: float = 25, rep: float = 100, grad_to_none: Sequence[Any] | None = None,
             quantiles: Sequence[float] | None = None, return_mode: str = "mean") -> Any:
    """Milliseconds of ``fn()``, by the event timer of the target that its launches run on (the active one where it launches none).

    warmup, rep: milliseconds to spend before and while measuring. quantiles: fractions to return (a list, or one number for one).
    return_mode: mean, median, min, max or all. On a GPU with torch loaded the L2 cache is cleared between runs.
    """
    if return_mode not in _MODES:
        raise ArgumentError(f"return_mode is one of {', '.join(_MODES)}; found {return_mode!r}")
    from tilewright.runtime.driver import ActiveDriver, driver

    driver.recent = None
    fn()
    active = ActiveDriver(driver.recent.selection) if driver.recent is not None else driver.active
    device = active.driver
    device.synchronize()
    evict = _evictor(active)

    def measure(count: int) -> list[float]:
        timers = [device.event_timer() for _ in range(count)]
        for timer in timers:
            for x in grad_to_none or ():
                x.grad = None
            evict()
            timer.start()
            fn()
            timer.stop()
        device.synchronize()
        return [timer.elapsed_ms() for timer in timers]

    estimate = max(statistics.fmean(measure(5)), 1e-4)
    for _ in range(max(1, int(warmup / estimate))):
        fn()
    return _summary(measure(max(1, int(rep / estimate))), quantiles, return_mode)


def _evictor(active: Any) -> Callable[[], Any]:
    """A function that clears the device's cache; nothing on the host, or where torch is not there to allocate the buffer."""
    from tilewright.runtime.launch_target import HOST

    if active.selection.simulate or HOST in active.selection.plugin.device_types or "torch" not in sys.modules:
        return lambda: None
    buffer = active.get_empty_cache_for_benchmark()
    return lambda: active.clear_cache(buffer)


def do_bench_cudagraph(fn: Callable[[], Any], rep: float = 20, grad_to_none: Sequence[Any] | None = None,
                       quantiles: Sequence[float] | None = None, return_mode: str = "mean") -> Any:
    """Milliseconds of ``fn()`` replayed from a device graph, without the host's time. Needs torch's graphs on the active device."""
    if return_mode not in _MODES:
        raise ArgumentError(f"return_mode is one of {', '.join(_MODES)}; found {return_mode!r}")
    from tilewright.runtime.driver import driver

    active = driver.active
    try:
        device = active.get_device_interface()
        capture_class, capture = device.CUDAGraph, device.graph
        available = device.is_available()
    except (ImportError, AttributeError):
        available = False
    if not available:
        raise TilewrightError(f"device graphs are not possible on target {active.selection}: they need torch and a device that it knows. Use do_bench")
    with device.stream(device.Stream()):
        fn()
        for x in grad_to_none or ():
            x.grad = None
        device.synchronize()
        start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
        start.record()
        for _ in range(5):
            fn()
        end.record()
        device.synchronize()
        count = max(1, int(rep / max(start.elapsed_time(end) / 5, 1e-4)))
        graph = capture_class()
        with capture(graph):
            for _ in range(count):
                for x in grad_to_none or ():
                    x.grad = None
                fn()
        device.synchronize()
        times = []
        for _ in range(10):
            start, end = device.Event(enable_timing=True), device.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            device.synchronize()
            times.append(start.elapsed_time(end) / count)
    return _summary(times, quantiles, return_mode)


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """Raise AssertionError unless ``x`` and ``y`` (torch tensors or arrays) agree: |x − y| ≤ atol + rtol·|y|, NaN equal to NaN.

    Default atol and rtol: 1e-2.
    """
    import numpy as np

    def array(v: Any) -> Any:
        if hasattr(v, "detach"):
            v = v.detach().cpu()
            v = v.float() if str(v.dtype) in ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2") else v
            return v.numpy()
        return np.asarray(v)

    atol = 1e-2 if atol is None else atol(getattr(x, "dtype", None)) if callable(atol) else atol
    rtol = 1e-2 if rtol is None else rtol(getattr(x, "dtype", None)) if callable(rtol) else rtol
    np.testing.assert_allclose(array(x), array(y), atol=atol, rtol=rtol, equal_nan=True, err_msg=err_msg)


class Benchmark:
    """A plot or table: what varies along x and from line to line. Parameters are Triton's."""

    def __init__(self, x_names: Sequence[str], x_vals: Sequence[Any], line_arg: str, line_vals: Sequence[Any], line_names: Sequence[str],
                 plot_name: str, args: dict[str, Any], xlabel: str = "", ylabel: str = "", x_log: bool = False, y_log: bool = False,
                 styles: Sequence[tuple[str, str]] | None = None):
        if len(line_vals) != len(line_names):
            raise ArgumentError(f"line_vals has {len(line_vals)} entries and line_names {len(line_names)}; they go together")
        self.x_names, self.x_vals, self.x_log = list(x_names), list(x_vals), x_log
        self.line_arg, self.line_vals, self.line_names, self.y_log = line_arg, list(line_vals), list(line_names), y_log
        self.styles, self.xlabel, self.ylabel, self.plot_name, self.args = styles, xlabel, ylabel, plot_name, args


class Mark:
    """A function with benchmarks; ``run`` measures them."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Benchmark | Sequence[Benchmark]):
        self.fn = fn
        self.benchmarks = benchmarks

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)

    @staticmethod
    def _table(bench: Benchmark, rows: Sequence[Sequence[Any]]) -> str:
        heads = [*bench.x_names, *bench.line_names]
        lines = [",".join(heads)]
        lines += [",".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in row) for row in rows]
        return "\n".join(lines)

    def _run_one(self, bench: Benchmark, save_path: str, print_data: bool, **kwargs: Any) -> list[list[Any]]:
        rows = []
        for x in bench.x_vals:
            values = list(x) if isinstance(x, (list, tuple)) else [x] * len(bench.x_names)
            if len(values) != len(bench.x_names):
                raise ArgumentError(f"{bench.plot_name}: {len(values)} values for {len(bench.x_names)} x_names")
            row = list(values)
            for line in bench.line_vals:
                result = self.fn(**dict(zip(bench.x_names, values)), **{bench.line_arg: line}, **bench.args, **kwargs)
                row.append(result[0] if isinstance(result, (tuple, list)) else result)
            rows.append(row)
        if print_data:
            print(f"{bench.plot_name}:\n{self._table(bench, rows)}")
        if save_path:
            os.makedirs(save_path, exist_ok=True)
            with open(os.path.join(save_path, f"{bench.plot_name}.csv"), "w", encoding="utf-8") as f:
                f.write(self._table(bench, rows) + "\n")
        return rows

    def run(self, show_plots: bool = False, print_data: bool = False, save_path: str = "", return_df: bool = False, **kwargs: Any) -> Any:
        """Measure all benchmarks; a table of each is printed and saved as CSV. Plots are not drawn. return_df: a pandas DataFrame each."""
        single = isinstance(self.benchmarks, Benchmark)
        benches = [self.benchmarks] if isinstance(self.benchmarks, Benchmark) else list(self.benchmarks)
        results = [self._run_one(b, save_path, print_data or show_plots, **kwargs) for b in benches]
        if not return_df:
            return None
        import pandas

        frames = [pandas.DataFrame(rows, columns=[*b.x_names, *b.line_names]) for b, rows in zip(benches, results)]
        return frames[0] if single else frames


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Decorator: the function becomes a Mark, whose ``run`` measures the benchmarks."""
    return lambda fn: Mark(fn, benchmarks)


def geomean(values: Sequence[float]) -> float:
    """Geometric mean of positive numbers."""
    return math.exp(statistics.fmean(math.log(v) for v in values))
