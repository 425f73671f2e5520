"""Measuring and comparing, with Triton's names: do_bench, perf_report, Benchmark, assert_close; and ``Case`` for ``tilewright matrix``."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.case import Case  # noqa: F401 - users find it here
from tilewright.dialects.errors import ArgumentError, TilewrightError
from tilewright.perf_report import Benchmark, Mark, MissingPackageError, perf_report  # noqa: F401 - users find them here

_MODES = ("mean", "median", "min", "max", "all")


def _quantile(sorted_times: Sequence[float], q: float) -> float:
    position = q * (len(sorted_times) - 1)
    low = int(position)
    high = min(low + 1, len(sorted_times) - 1)
    return sorted_times[low] + (sorted_times[high] - sorted_times[low]) * (position - low)


def _check(fn: Any, times: dict[str, Any], grad_to_none: Any, return_mode: str, quantiles: Sequence[float] | None) -> None:
    if not callable(fn):
        raise ArgumentError(f"what is measured is a function without arguments, lambda: kernel[grid](x); found {fn!r} ({type(fn).__name__})")
    for name, value in times.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise ArgumentError(f"{name} is a number of milliseconds of 0 or more; found {value!r}")
    if grad_to_none is not None and (not hasattr(grad_to_none, "__iter__") or not all(hasattr(x, "grad") for x in grad_to_none)):
        raise ArgumentError(f"grad_to_none is a list of tensors, whose gradients are cleared; found {grad_to_none!r}")
    if quantiles is not None and (isinstance(quantiles, str) or not hasattr(quantiles, "__iter__") or not all(isinstance(q, (int, float)) for q in quantiles)):
        raise ArgumentError(f"quantiles is a list of numbers from 0 to 1, such as [0.2, 0.5, 0.8]; found {quantiles!r}")
    if return_mode not in _MODES:
        raise ArgumentError(f"return_mode is one of {', '.join(_MODES)}; found {return_mode!r}")
    for q in quantiles or ():
        if not 0 <= q <= 1:
            raise ArgumentError(f"quantiles lie from 0 to 1; found {q!r}")


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
    _check(fn, {"warmup": warmup, "rep": rep}, grad_to_none, return_mode, quantiles)
    from tilewright.runtime.driver import ActiveDriver, driver

    driver.recent = None
    try:
        fn()
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise
        raise ArgumentError(f"what is measured is called without arguments, lambda: kernel[grid](x); {fn!r} cannot be ({error})") from None
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
    _check(fn, {"rep": rep}, grad_to_none, return_mode, quantiles)
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
            x.detach_()
            x.requires_grad_(True)
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


def assert_close(x: Any, y: Any, atol: Any = None, rtol: Any = None, err_msg: str = "") -> None:
    """Raise AssertionError unless ``x`` and ``y`` (torch tensors, arrays, lists, numbers) agree: |x − y| ≤ atol + rtol·|y|, NaN equal to NaN.

    atol, rtol: numbers, or functions of x's dtype that give them. Default: 1e-2 and 0.
    """
    import numpy as np

    def array(v: Any) -> Any:
        if hasattr(v, "detach"):
            v = v.detach().cpu()
            v = v.float() if str(v.dtype) == "torch.bfloat16" or "float8" in str(v.dtype) else v
            return v.numpy()
        return np.asarray(v)

    dtype = getattr(x, "dtype", None)
    atol = 1e-2 if atol is None else atol(dtype) if callable(atol) else atol
    rtol = 0.0 if rtol is None else rtol(dtype) if callable(rtol) else rtol
    for name, value in (("atol", atol), ("rtol", rtol)):
        if not hasattr(value, "__float__") or not float(value) >= 0:
            raise ArgumentError(f"{name} is a number of 0 or more, or a function of x's dtype that gives one; found {value!r}")
    for v in (x, y):
        if array(v).dtype.kind not in "biufc" and not hasattr(v, "dtype"):
            raise ArgumentError(f"assert_close compares numbers; found {v!r} ({type(v).__name__})")
    np.testing.assert_allclose(array(x), array(y), atol=atol, rtol=rtol, equal_nan=True, err_msg=err_msg)


class UnsupportedUtilityError(TilewrightError, NotImplementedError):
    """The active target has no such tool or figure; says which have."""


def _utility(name: str, plugin: Any = None) -> Callable[..., Any]:
    """A function of a target's own tools. Of ``plugin`` where one is given, else of the first target that has it."""
    from tilewright.targets import registry

    having = [p for p in registry.plugins() if name in p.utilities]
    if plugin is None and having:
        return having[0].utilities[name]
    if plugin is not None and name in plugin.utilities:
        return plugin.utilities[name]
    raise UnsupportedUtilityError(f"target {getattr(plugin, 'name', '')!r} does not tell {name}; {', '.join(p.name for p in having) or 'no target'} do{'es' * (len(having) < 2)}")


def _properties(device: int | None) -> tuple[Any, dict[str, Any]]:
    from tilewright.runtime.driver import driver

    active = driver.active
    return active, dict(active.utils.get_device_properties(active.get_current_device() if device is None else device))


def get_dram_gbps(device: int | None = None) -> float:
    """Peak bandwidth of the device's memory in GB/s, from its clock and bus width. Raises UnsupportedUtilityError where they are not known."""
    active, facts = _properties(device)
    if not facts.get("mem_clock_rate") or not facts.get("mem_bus_width"):
        raise UnsupportedUtilityError(f"the driver of {active.selection} does not tell the memory's clock and bus width; measure a copy with do_bench")
    return float(facts["mem_clock_rate"] * facts["mem_bus_width"] * 2 / 8 / 1e6)  # kHz · bits · 2 transfers a clock


def get_max_tensorcore_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """Peak TFLOPS of dense matrix instructions on operands of ``dtype`` (of torch or tl, or a name such as "fp16"), at ``clock_rate`` kHz."""
    return _peak("max_tensorcore_tflops", dtype, clock_rate, device)


def get_max_simd_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """Peak TFLOPS of multiply-adds outside the matrix instructions, in ``dtype``, at ``clock_rate`` kHz."""
    return _peak("max_simd_tflops", dtype, clock_rate, device)


def _peak(name: str, dtype: Any, clock_rate: float, device: int | None) -> float:
    from tilewright.runtime.specialize import element_name

    active, facts = _properties(device)
    return float(_utility(name, active.selection.plugin)(facts, element_name(dtype), clock_rate))


def __getattr__(name: str) -> Any:
    """Names of Triton's that are of one vendor: they are functions of its target."""
    if not name.startswith("_"):
        try:
            return _utility(name)
        except UnsupportedUtilityError:
            pass
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def geomean(values: Sequence[float]) -> float:
    """Geometric mean of positive numbers."""
    values = list(values)
    if not values or not all(v > 0 for v in values):
        raise ArgumentError(f"geomean takes numbers above 0, one at least; found {values!r}")
    return math.exp(statistics.fmean(math.log(v) for v in values))
