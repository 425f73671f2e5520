"""``@autotune`` and ``@heuristics``: choosing constexpr parameters and options of a kernel, by measurement or by rule."""

from __future__ import annotations

import builtins
import hashlib
import inspect
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright import knobs
from tilewright.dialects.errors import (
    ArgumentError,
    AssemblerNotFoundError,
    CompileTimeAssertionFailure,
    TilewrightError,
)
from tilewright.runtime.errors import AssemblerError, OutOfResources, PTXASError
from tilewright.runtime.jit import KernelInterface

_OPTION_NAMES = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")


class Config:
    """One candidate: ``kwargs`` (constexpr parameters by name) and launch options.

    num_warps: warps of a program; num_stages: of the software pipeline; num_ctas: blocks of a cluster; maxnreg: limit on registers of a
    thread; pre_hook: called with the launch's arguments by name before each launch with this configuration.
    """

    def __init__(self, kwargs: Mapping[str, Any], num_warps: int = 4, num_stages: int = 3, num_ctas: int = 1, maxnreg: int | None = None,
                 pre_hook: Callable[[dict[str, Any]], None] | None = None, ir_override: str | None = None):
        self.kwargs = dict(kwargs)
        self.num_warps = num_warps
        self.num_ctas = num_ctas
        self.num_stages = num_stages
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook
        self.ir_override = ir_override

    def all_kwargs(self) -> dict[str, Any]:
        """Parameters and those options that are set, as keywords of a launch."""
        return {**self.kwargs, **{n: getattr(self, n) for n in _OPTION_NAMES if getattr(self, n) is not None}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __str__(self) -> str:
        parts = [f"{k}: {v}" for k, v in self.kwargs.items()]
        parts += [f"{n}: {getattr(self, n)}" for n in ("num_warps", "num_ctas", "num_stages", "maxnreg")]
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"Config({self})"

    def _identity(self) -> tuple[Any, ...]:
        return (tuple(self.kwargs.items()), *(getattr(self, n) for n in _OPTION_NAMES), self.pre_hook)

    def __hash__(self) -> int:
        return hash(self._identity())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._identity() == other._identity()


def _zero(array: Any) -> None:
    if hasattr(array, "zero_"):
        array.zero_()
    else:
        array[...] = 0


def _copy(array: Any) -> Any:
    return array.clone() if hasattr(array, "clone") else array.copy()


def _restore(array: Any, saved: Any) -> None:
    if hasattr(array, "copy_"):
        array.copy_(saved)
    else:
        array[...] = saved


def _refuse_twice(given: Mapping[str, Any], config: Config) -> None:
    if not given.keys().isdisjoint(config.kwargs):
        raise ArgumentError(f"{', '.join(sorted(given.keys() & config.kwargs.keys()))} is given in the launch and in the configurations of "
                            "autotune; leave it out of the launch")


class Autotuner(KernelInterface):
    """A kernel that measures its configurations, once per value of the key arguments (and per dtype of the array arguments)."""

    def __init__(self, fn: Any, arg_names: Sequence[str], configs: Sequence[Config], key: Sequence[str], reset_to_zero: Sequence[str] | None,
                 restore_value: Sequence[str] | None, pre_hook: Callable[..., None] | None = None,
                 post_hook: Callable[..., None] | None = None, prune_configs_by: Mapping[str, Any] | None = None, warmup: int | None = None,
                 rep: int | None = None, use_cuda_graph: bool = False, do_bench: Callable[..., Any] | None = None,
                 cache_results: bool = False):
        self.configs = list(configs) if configs else [Config({})]
        self.keys = list(key)
        self.arg_names = list(arg_names)
        self.fn = fn
        unknown = [k for k in self.keys if k not in self.arg_names]
        if unknown:
            raise ArgumentError(f"autotune: {unknown[0]!r} is no parameter of the kernel; it has {', '.join(self.arg_names)}")
        self.reset_to_zero = list(reset_to_zero or ())
        self.restore_value = list(restore_value or ())
        for name in (*self.reset_to_zero, *self.restore_value):
            if name not in self.arg_names:
                raise ArgumentError(f"autotune: {name!r} is no parameter of the kernel; it has {', '.join(self.arg_names)}")
        self.cache: dict[tuple[Any, ...], Config] = {}
        self.cache_results = cache_results
        self.user_pre_hook, self.user_post_hook = pre_hook, post_hook
        self.user_defined_pre_hook, self.user_defined_post_hook = pre_hook is not None, post_hook is not None
        self._saved: dict[str, Any] = {}
        prune = dict(prune_configs_by or {})
        self.perf_model: Callable[..., float] | None = prune.get("perf_model")
        self.configs_top_k = prune.get("top_k", 1.0)
        self.early_config_prune: Callable[..., Sequence[Config]] | None = prune.get("early_config_prune")
        self.num_warmups, self.num_reps, self.use_cuda_graph = warmup, rep, use_cuda_graph
        self._do_bench = do_bench
        self.best_config: Config | None = None
        self.configs_timings: dict[Config, list[float]] = {}
        self.bench_time = 0.0
        self._last_error: Exception | None = None
        self.nargs: dict[str, Any] | None = None
        base = fn
        while not inspect.isfunction(base) and hasattr(base, "fn"):
            base = base.fn
        self.base_fn = base
        innermost = fn
        while not hasattr(innermost, "cache_key") and hasattr(getattr(innermost, "fn", None), "run"):
            innermost = innermost.fn
        self._is_compiled = hasattr(innermost, "params")  # the interpreter's time says nothing: the first configuration is taken
        self.__name__ = getattr(base, "__name__", "kernel")
        self.__doc__ = getattr(base, "__doc__", None)
        self.__module__ = getattr(base, "__module__", "")

    # Triton's hook names, which subclasses and users call
    def pre_hook(self, args: dict[str, Any], reset_only: bool = False) -> None:
        if self.user_pre_hook is not None:
            self.user_pre_hook(args, reset_only=reset_only)
            return
        for name in self.reset_to_zero:
            _zero(args[name])
        if not reset_only:
            self._saved = {name: _copy(args[name]) for name in self.restore_value}

    def post_hook(self, args: dict[str, Any], exception: Exception | None) -> None:
        if self.user_post_hook is not None:
            self.user_post_hook(args, exception=exception)
            return
        for name, saved in self._saved.items():
            _restore(args[name], saved)
        self._saved = {}

    def do_bench(self, call: Callable[[], Any], quantiles: Sequence[float]) -> Any:
        if self._do_bench is not None:
            return self._do_bench(call, quantiles=quantiles)
        from tilewright.testing import do_bench, do_bench_cudagraph

        if self.use_cuda_graph:
            return do_bench_cudagraph(call, rep=self.num_reps if self.num_reps is not None else 100, quantiles=quantiles)
        return do_bench(call, warmup=self.num_warmups if self.num_warmups is not None else 25,
                        rep=self.num_reps if self.num_reps is not None else 100, quantiles=quantiles)

    def _bench(self, *args: Any, config: Config, **meta: Any) -> list[float]:
        _refuse_twice(meta, config)
        current = {**meta, **config.all_kwargs()}
        named = {**(self.nargs or {}), **current}

        def call() -> None:
            if config.pre_hook:
                config.pre_hook(named)
            self.pre_hook(named)
            try:
                self.fn.run(*args, **current)
            except Exception as error:
                try:
                    self.post_hook(named, exception=error)
                finally:
                    raise
            self.post_hook(named, exception=None)

        try:
            return list(self.do_bench(call, quantiles=(0.5, 0.2, 0.8)))
        except (OutOfResources, CompileTimeAssertionFailure, PTXASError, AssemblerError) as error:
            if isinstance(error, AssemblerNotFoundError):
                raise
            self._last_error = error
            return [float("inf")] * 3

    def _key(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        key: list[Any] = [named[k] for k in self.keys if k in named]
        arrays = (value.base if hasattr(value, "block_shape") else value for value in named.values())
        key += [str(array.dtype) for array in arrays if hasattr(array, "dtype")]
        return tuple(tuple(k) if isinstance(k, list) else k for k in key)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the best configuration for these arguments, measuring all of them the first time."""
        self.nargs = dict(zip(self.arg_names, args))
        if len(self.configs) > 1 and not self._is_compiled:
            config = self.prune_configs(kwargs)[0]
        elif len(self.configs) > 1:
            named = {**self.nargs, **{k: v for k, v in kwargs.items() if k in self.arg_names}}
            key = self._key(named)
            known = self.cache.get(key)
            config = known if known is not None else self._tune(key, args, kwargs)
        else:
            config = self.configs[0]
        _refuse_twice(kwargs, config)
        self.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
        try:
            return self.fn.run(*args, **kwargs, **config.all_kwargs())
        finally:
            self.nargs = None

    def _tune(self, key: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Config:
        candidates = self.prune_configs(kwargs)
        stored = self._stored(key, candidates)
        if stored is not None:
            self.cache[key] = stored
            return stored
        self._last_error = None
        start = time.perf_counter()
        timings = {config: self._bench(*args, config=config, **kwargs) for config in candidates}
        self.bench_time = time.perf_counter() - start
        best = builtins.min(timings, key=lambda c: timings[c])
        if timings[best][0] == float("inf"):
            raise self._last_error or TilewrightError(f"autotune: no configuration of {self.__name__} could be run")
        self.cache[key] = best
        self.configs_timings = timings
        self.pre_hook({**(self.nargs or {}), **kwargs, **best.all_kwargs()}, reset_only=True)
        self._store(key, candidates, timings)
        if knobs.autotuning.print:
            print(f"Autotuning {self.__name__} for {dict(zip(self.keys, key))} took {self.bench_time:.2f} s; best: {best}")
        return best

    # -- results on disk (cache_results=True or TILEWRIGHT_CACHE_AUTOTUNING=1)
    def _path(self, key: tuple[Any, ...], candidates: Sequence[Config]) -> str | None:
        if not (self.cache_results or knobs.autotuning.cache) or any(c.pre_hook is not None for c in candidates):
            return None
        from tilewright.runtime.cache import cache_dir, compiler_stamp
        from tilewright.runtime.driver import driver

        kernel = self.fn
        while not hasattr(kernel, "cache_key") and hasattr(kernel, "fn"):
            kernel = kernel.fn
        text = "\n".join([compiler_stamp(), str(getattr(driver.active, "selection", "")), getattr(kernel, "cache_key", ""), str(key),
                          *map(str, candidates)])
        return os.path.join(cache_dir(), f"autotune-{hashlib.sha256(text.encode()).hexdigest()}.json")

    def _stored(self, key: tuple[Any, ...], candidates: Sequence[Config]) -> Config | None:
        path = self._path(key, candidates)
        if path is None:
            return None
        try:
            with open(path, encoding="utf-8") as f:
                wanted = json.load(f)["best"]
        except (OSError, ValueError, KeyError):
            return None
        return next((c for c in candidates if str(c) == wanted), None)

    def _store(self, key: tuple[Any, ...], candidates: Sequence[Config], timings: Mapping[Config, Sequence[float]]) -> None:
        path = self._path(key, candidates)
        if path is None:
            return
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            temporary = f"{path}.{os.getpid()}"
            with open(temporary, "w", encoding="utf-8") as f:
                json.dump({"best": str(self.cache[key]), "timings": [[str(c), list(t)] for c, t in timings.items()]}, f)
            os.replace(temporary, path)
        except OSError:
            pass  # the result is measured again

    def prune_configs(self, kwargs: Mapping[str, Any]) -> list[Config]:
        """The candidates for a launch: all, less those that ``early_config_prune`` drops, then the best few of ``perf_model``."""
        chosen = list(self.configs)
        if self.early_config_prune is not None:
            chosen = list(self.early_config_prune(self.configs, self.nargs, **kwargs))
            if not chosen:
                raise TilewrightError(f"autotune: early_config_prune left no configuration of {self.__name__}; it must leave one")
        if self.perf_model is not None:
            top_k = self.configs_top_k
            count = int(len(self.configs) * top_k) if isinstance(top_k, float) and top_k <= 1.0 else top_k
            if not isinstance(count, int) or count < 1:
                raise ArgumentError(f"top_k is a share of the configurations up to 1.0, or a count; found {top_k!r}")
            if len(chosen) > count:
                estimate = {c: self.perf_model(**(self.nargs or {}), **kwargs, **c.all_kwargs()) for c in chosen}
                chosen = sorted(chosen, key=lambda c: estimate[c])[:count]
        return chosen

    def warmup(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Compile every candidate without launching; returns the CompiledKernels."""
        self.nargs = dict(zip(self.arg_names, args))
        out = [self.fn.warmup(*args, **kwargs, **config.all_kwargs()) for config in self.prune_configs(kwargs)]
        self.nargs = None
        return out


def autotune(configs: Sequence[Config], key: Sequence[str], prune_configs_by: Mapping[str, Any] | None = None,
             reset_to_zero: Sequence[str] | None = None, restore_value: Sequence[str] | None = None,
             pre_hook: Callable[..., None] | None = None, post_hook: Callable[..., None] | None = None, warmup: int | None = None,
             rep: int | None = None, use_cuda_graph: bool = False, do_bench: Callable[..., Any] | None = None,
             cache_results: bool = False) -> Callable[[Any], Autotuner]:
    """Decorator over jit: measure ``configs`` and launch with the fastest, anew for every value of the arguments named by ``key``.

    prune_configs_by: {"early_config_prune": f(configs, named_args, **kwargs) → configs, "perf_model": f(**args) → time, "top_k": count or
    share}. reset_to_zero: arrays cleared before each measurement; restore_value: arrays given their contents back after it.
    pre_hook(args, reset_only), post_hook(args, exception) replace those two. warmup, rep: milliseconds of do_bench.
    """

    def decorate(fn: Any) -> Autotuner:
        return Autotuner(fn, fn.arg_names, configs, key, reset_to_zero, restore_value, pre_hook=pre_hook, post_hook=post_hook,
                         prune_configs_by=prune_configs_by, warmup=warmup, rep=rep, use_cuda_graph=use_cuda_graph, do_bench=do_bench,
                         cache_results=cache_results)

    return decorate


class Heuristics(KernelInterface):
    """A kernel some of whose parameters are computed from the other arguments."""

    def __init__(self, fn: Any, arg_names: Sequence[str], values: Mapping[str, Callable[[dict[str, Any]], Any]]):
        self.fn = fn
        self.arg_names = list(arg_names)
        self.values = dict(values)
        self.__name__ = getattr(fn, "__name__", "kernel")
        self.__doc__ = getattr(fn, "__doc__", None)

    def _computed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        for name, rule in self.values.items():
            kwargs[name] = rule({**dict(zip(self.arg_names, args)), **kwargs})
        return kwargs

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the parameters and launch."""
        return self.fn.run(*args, **self._computed(args, kwargs))

    def warmup(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the parameters and compile."""
        return self.fn.warmup(*args, **self._computed(args, kwargs))


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Decorator over jit (or autotune): ``{parameter: f(arguments by name) → value}``."""

    def decorate(fn: Any) -> Heuristics:
        return Heuristics(fn, fn.arg_names, values)

    return decorate
