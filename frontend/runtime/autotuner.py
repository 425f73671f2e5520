"""``@autotune``: choosing constexpr parameters and options of a kernel by measurement. By rule: heuristic_rules.py."""

from __future__ import annotations

import builtins
import inspect
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilewright import knobs
from tilewright.dialects.errors import (
    ArgumentError,
    CompilationError,
    CompileTimeAssertionFailure,
    InternalCompilerError,
)
from tilewright.runtime import tuning_results
from tilewright.runtime.autotuner_checks import (
    PRUNING,
    array_of,
    called,
    check_callables,
    check_config,
    check_names,
    checked_estimate,
    checked_pruning,
    checked_times,
    listed_configs,
    listed_names,
    parameters,
    pruned,
)
from tilewright.runtime.errors import AssemblerError, AutotunerError, OutOfResources, PTXASError
from tilewright.runtime.heuristic_rules import Heuristics, heuristics
from tilewright.runtime.jit import KernelInterface
from tilewright.runtime.specialize import constexpr_key

__all__ = ["Autotuner", "Config", "Heuristics", "OutOfResources", "PTXASError", "autotune", "heuristics"]

# What tells that a configuration does not do, while another may: raised by compiling, loading or launching it. The first two are usual in
# spaces of configurations; the others are warned of. A mistake of the compiler's own is neither: it is raised.
_USUAL = (OutOfResources, CompileTimeAssertionFailure)
_FAILURES = (*_USUAL, CompilationError, AssemblerError, ArgumentError)

_OPTION_NAMES = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override")


class Config:
    """One candidate: ``kwargs`` (constexpr parameters by name) and launch options.

    num_warps: warps of a program; num_stages: of the software pipeline; num_ctas: blocks of a cluster; maxnreg: limit on registers of a
    thread; ir_override: a file with code of the user's in place of a stage's, which its ending names; pre_hook: called with the launch's arguments by name before each launch with this configuration.
    """

    def __init__(self, kwargs: Mapping[str, Any], num_warps: int = 4, num_stages: int = 3, num_ctas: int = 1, maxnreg: int | None = None,
                 pre_hook: Callable[[dict[str, Any]], None] | None = None, ir_override: str | None = None, **unknown: Any):
        check_config(kwargs, {"num_warps": num_warps, "num_stages": num_stages, "num_ctas": num_ctas, "maxnreg": maxnreg, "pre_hook": pre_hook,
                              "ir_override": ir_override}, unknown)
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
        parts += [f"ir_override: {self.ir_override}"] if self.ir_override is not None else []
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"Config({self})"

    def _identity(self) -> tuple[Any, ...]:
        return (tuple((k, constexpr_key(v)) for k, v in self.kwargs.items()), *(getattr(self, n) for n in _OPTION_NAMES), self.pre_hook)

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


_dtype_names: dict[Any, str] = {}


def _dtypes(value: Any) -> Iterable[str]:
    """Names of the element types of an array argument, or of those in a tuple or a descriptor."""
    if isinstance(value, (tuple, list)):
        for v in value:
            yield from _dtypes(v)
        return
    dtype = getattr(getattr(value, "base", value) if hasattr(value, "block_shape") else value, "dtype", None)
    if dtype is not None:
        name = _dtype_names.get(dtype)
        if name is None:
            name = _dtype_names[dtype] = str(dtype)
        yield name


def _kernel_of(fn: Any) -> Any:
    """The jit function under autotuners and heuristics; in the interpreter, what takes its place."""
    # asked of the class: the key itself reads the source, and the helpers that a module defines further down are not there yet
    while not hasattr(type(fn), "cache_key") and hasattr(getattr(fn, "fn", None), "run"):
        fn = fn.fn
    return fn


_tuning = threading.RLock()  # one measurement at a time
_nargs = threading.local()  # autotuner's id → arguments by name of the launch that this thread is at
_said = False


def _without_warmup(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """A launch's keywords as ``warmup`` takes them."""
    return {k: v for k, v in kwargs.items() if k != "warmup"}


def _say_unmeasured(target: Any) -> None:
    global _said
    if not _said:
        _said = True
        warnings.warn(f"target {target} is a simulator, whose times say nothing of a device: autotune takes the first configuration that can be "
                      "run, here and in what follows", stacklevel=4)


def _refuse_twice(given: Mapping[str, Any], config: Config) -> None:
    own = config.all_kwargs()
    if not given.keys().isdisjoint(own):
        raise ArgumentError(f"{', '.join(sorted(given.keys() & own.keys()))} is given in the launch and in the configurations of autotune; "
                            "leave it out of the launch")


class Autotuner(KernelInterface):
    """A kernel that measures its configurations, once per value of the key arguments (and per dtype of the array arguments)."""

    def __init__(self, fn: Any, arg_names: Sequence[str], configs: Sequence[Config], key: Sequence[str], reset_to_zero: Sequence[str] | None,
                 restore_value: Sequence[str] | None, pre_hook: Callable[..., None] | None = None,
                 post_hook: Callable[..., None] | None = None, prune_configs_by: Mapping[str, Any] | None = None, warmup: int | None = None,
                 rep: int | None = None, use_cuda_graph: bool = False, do_bench: Callable[..., Any] | None = None,
                 cache_results: bool = False):
        if warmup is not None or rep is not None or use_cuda_graph:
            warnings.warn("autotune's warmup, rep and use_cuda_graph are deprecated: pass do_bench, a function (call, quantiles) → times", DeprecationWarning,
                          stacklevel=3)
        self.arg_names = list(arg_names)
        self.fn = fn
        self.configs = listed_configs(configs, Config) or [Config({})]
        key = listed_names(key, "key", None)
        for name in key:
            if name not in self.arg_names:  # published kernels have such keys, which change nothing
                warnings.warn(f"autotune: the key {name!r} is no parameter of the kernel and is left out; it has {', '.join(self.arg_names)}", stacklevel=3)
        self.keys = [k for k in key if k in self.arg_names]
        self.reset_to_zero = listed_names(reset_to_zero or (), "reset_to_zero", self.arg_names)
        self.restore_value = listed_names(restore_value or (), "restore_value", self.arg_names)
        self._cache: dict[tuple[Any, ...], Config] = {}  # of the place of the last launch
        self._caches: dict[Any, dict[tuple[Any, ...], Config]] = {}  # place (see _place) → cache
        if not isinstance(cache_results, (bool, int)):
            raise ArgumentError(f"autotune: cache_results is True or False; found {cache_results!r}")
        self.cache_results = cache_results
        prune = checked_pruning(prune_configs_by)
        check_callables("autotune", {"pre_hook": pre_hook, "post_hook": post_hook, "do_bench": do_bench, **{k: prune.get(k) for k in PRUNING[:2]}})
        self.user_pre_hook, self.user_post_hook = pre_hook, post_hook
        self.user_defined_pre_hook, self.user_defined_post_hook = pre_hook is not None, post_hook is not None
        self._saved: dict[str, Any] = {}
        self.perf_model: Callable[..., float] | None = prune.get("perf_model")
        self.configs_top_k = prune.get("top_k", 1.0)
        self.early_config_prune: Callable[..., Sequence[Config]] | None = prune.get("early_config_prune")
        self.num_warmups, self.num_reps, self.use_cuda_graph = warmup, rep, use_cuda_graph
        self._do_bench = do_bench
        self.best_config: Config | None = None
        self.configs_timings: dict[Config, list[float]] = {}
        self.bench_time = 0.0
        self._first_error: Exception | None = None
        self._odd_failures: list[tuple[Config, Exception]] = []
        self._unchecked = True  # whether the configurations' names are to be looked at
        self._told: set[Config] = set()  # configurations whose failure the user was warned of
        base = fn
        while not inspect.isfunction(base) and hasattr(base, "fn"):
            base = base.fn
        self.base_fn = base
        self._is_compiled = hasattr(_kernel_of(fn), "create_binder")  # the interpreter's time says nothing: the first configuration is taken
        self._defaults = {n: p.default for n, p in inspect.signature(base).parameters.items() if p.default is not p.empty}
        self.__name__ = getattr(base, "__name__", "kernel")
        self.__doc__ = getattr(base, "__doc__", None)
        self.__module__ = getattr(base, "__module__", "")

    @property
    def nargs(self) -> dict[str, Any] | None:
        """The positional arguments by name of the launch that is being prepared on this thread; None outside of one."""
        return getattr(_nargs, str(id(self)), None)

    @nargs.setter
    def nargs(self, value: dict[str, Any] | None) -> None:
        if value is None:
            _nargs.__dict__.pop(str(id(self)), None)
        else:
            setattr(_nargs, str(id(self)), value)

    @property
    def cache(self) -> dict[tuple[Any, ...], Config]:
        """Key → best configuration, on the target of the last launch."""
        return self._cache

    @cache.setter
    def cache(self, value: dict[tuple[Any, ...], Config]) -> None:
        self._caches.clear()
        self._cache = value

    def _cache_of(self, place: tuple[Any, ...]) -> dict[tuple[Any, ...], Config]:
        found = self._caches.get(place)
        if found is None:
            found = self._caches[place] = self._cache if not self._caches else {}
        self._cache = found
        return found

    # Triton's hook names, which subclasses and users call
    def pre_hook(self, args: dict[str, Any], reset_only: bool = False) -> None:
        if self.user_pre_hook is not None:
            called("autotune: pre_hook", "f(arguments, reset_only=…)", self.user_pre_hook, args, reset_only=reset_only)
            return
        for name in self.reset_to_zero:
            _zero(array_of(args, name, "reset_to_zero", self.__name__))
        if not reset_only:
            self._saved = {name: _copy(array_of(args, name, "restore_value", self.__name__)) for name in self.restore_value}

    def post_hook(self, args: dict[str, Any], exception: Exception | None) -> None:
        if self.user_post_hook is not None:
            called("autotune: post_hook", "f(arguments, exception=…)", self.user_post_hook, args, exception=exception)
            return
        for name, saved in self._saved.items():
            _restore(args[name], saved)
        self._saved = {}

    def do_bench(self, call: Callable[[], Any], quantiles: Sequence[float]) -> Any:
        if self._do_bench is not None:
            return called("autotune: do_bench", "f(call, quantiles=…)", self._do_bench, call, quantiles=quantiles)
        from tilewright.testing import do_bench, do_bench_cudagraph

        if self.use_cuda_graph:
            return do_bench_cudagraph(call, rep=self.num_reps if self.num_reps is not None else 100, quantiles=quantiles)
        return do_bench(call, warmup=self.num_warmups if self.num_warmups is not None else 25,
                        rep=self.num_reps if self.num_reps is not None else 100, quantiles=quantiles)

    def _bench(self, *args: Any, config: Config, **meta: Any) -> list[float]:
        _refuse_twice(meta, config)
        if knobs.autotuning.print:
            print(f"Autotuning {self.__name__}: {config}")
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
            return checked_times(self.do_bench(call, quantiles=(0.5, 0.2, 0.8)))
        except _FAILURES as error:
            if isinstance(error, InternalCompilerError) and not isinstance(error, AssemblerError):
                raise
            self._failed(config, error)
            return [float("inf")] * 3

    def _failed(self, config: Config, error: Exception) -> None:
        """Note why a configuration is left out; the first such error is raised where all are."""
        self._first_error = self._first_error or error
        if knobs.autotuning.print:
            print(f"Autotuning {self.__name__}: {config} cannot be run: {error}")
        if not isinstance(error, _USUAL):
            self._odd_failures.append((config, error))

    def _warn_of_failures(self) -> None:
        """Of those that a kernel's author may not have meant, once each; not where all failed, since that raises."""
        new = [(config, error) for config, error in self._odd_failures if config not in self._told]
        self._told.update(config for config, _ in new)
        if new:
            config, error = new[0]
            text = (str(error).splitlines() or [""])[0]
            warnings.warn(f"autotune leaves out {len(new)} of {self.__name__}'s configurations; the first is {config}: "
                          f"{type(error).__name__}: {text}", stacklevel=5)

    def _key(self, named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Values of the key's parameters, then the arrays' dtypes in the order of the parameters: however the arguments were given."""
        key: list[Any] = [named[k] if k in named else self._defaults.get(k) for k in self.keys]
        for name in self.arg_names:
            if name in named:
                key += _dtypes(named[name])
        out = tuple(tuple(k) if isinstance(k, list) else k for k in key)
        try:
            hash(out)
        except TypeError:
            odd = next(n for n, v in zip(self.keys, out) if type(v).__hash__ is None)
            raise ArgumentError(f"autotune: argument {odd!r} of {self.__name__} is a {type(named[odd]).__name__}, by which nothing can be kept; make the key "
                                "of numbers, such as its sizes") from None
        return out

    @staticmethod
    def _place(named: Mapping[str, Any]) -> tuple[Any, ...]:
        """What decides on which target a launch runs: what is fast there says nothing of elsewhere."""
        from tilewright.runtime.driver import driver

        kinds = (getattr(getattr(v, "device", None), "type", None) for v in named.values())
        return os.environ.get("TILEWRIGHT_TARGET"), driver.selected(), next((k for k in kinds if k is not None), None)

    @staticmethod
    def _simulated() -> Any:
        """The selection where launches run in a target's simulator, else None."""
        from tilewright.runtime.driver import driver
        from tilewright.targets import registry

        selection = registry.select() if os.environ.get("TILEWRIGHT_TARGET") else driver.selected()
        return selection if selection is not None and selection.simulate else None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch with the best configuration for these arguments, measuring all of them the first time."""
        if self._unchecked:
            for config in self.configs:
                check_names(config.kwargs, self, "a Config of autotune")
            self._unchecked = False
        self.nargs = dict(zip(self.arg_names, args))
        try:
            if len(self.configs) > 1 and not self._is_compiled:
                config = self.prune_configs(kwargs)[0]
            elif len(self.configs) > 1:
                named = {**self.nargs, **{k: v for k, v in kwargs.items() if k in self.arg_names}}
                cache = self._cache_of(self._place(named))
                key = self._key(named)
                config = cache.get(key) or self._tune(cache, key, args, kwargs)
            else:
                config = self.configs[0]
            _refuse_twice(kwargs, config)
            self.best_config = config
            if config.pre_hook is not None:
                config.pre_hook({**self.nargs, **kwargs, **config.all_kwargs()})
            return self.fn.run(*args, **kwargs, **config.all_kwargs())
        finally:
            self.nargs = None

    def _tune(self, cache: dict[tuple[Any, ...], Config], key: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Config:
        with _tuning:
            known = cache.get(key)  # another thread may have been here
            if known is not None:
                return known
            self._first_error, self._odd_failures = None, []
            candidates = self.prune_configs(kwargs)
            for config in candidates:
                _refuse_twice(kwargs, config)
            if self._do_bench is None and (simulated := self._simulated()) is not None:
                _say_unmeasured(simulated)
                best = self._first_that_runs(candidates, args, kwargs)
            else:
                path = self._kept_at(key, candidates)
                kept = None if path is None else tuning_results.read(path, candidates)
                if kept is None:
                    best = self._fastest(key, candidates, args, kwargs)
                    if path is not None:
                        tuning_results.write(path, candidates, best, self.configs_timings)
                else:
                    best, self.configs_timings = kept
            cache[key] = best
            return best

    def _fastest(self, key: tuple[Any, ...], candidates: Sequence[Config], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Config:
        start = time.perf_counter()
        self._compile_ahead(candidates, args, kwargs)
        timings = {config: self._bench(*args, config=config, **kwargs) for config in candidates}
        self.bench_time = time.perf_counter() - start
        best = builtins.min(timings, key=lambda c: timings[c])
        if timings[best][0] == float("inf"):
            raise self._first_error or AutotunerError(f"autotune: no configuration of {self.__name__} could be run")
        self._warn_of_failures()
        self.configs_timings = timings
        self.pre_hook({**(self.nargs or {}), **kwargs, **best.all_kwargs()}, reset_only=True)
        if knobs.autotuning.print:
            print(f"Autotuning {self.__name__} for {dict(zip(self.keys, key))} took {self.bench_time:.2f} s; best: {best}")
        return best

    def _first_that_runs(self, candidates: Sequence[Config], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Config:
        for config in candidates:
            if config.pre_hook is not None:  # it may change what is compiled
                return config
            try:
                self.fn.warmup(*args, **_without_warmup(kwargs), **config.all_kwargs())
            except _FAILURES as error:
                if isinstance(error, InternalCompilerError) and not isinstance(error, AssemblerError):
                    raise
                self._failed(config, error)
            else:
                self._warn_of_failures()
                return config
        raise self._first_error or AutotunerError(f"autotune: no configuration of {self.__name__} could be compiled")

    def _compile_ahead(self, candidates: Sequence[Config], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Let several processes compile what is to be measured. Configurations with a pre_hook, which may change what is compiled, wait."""
        from tilewright.compiler.compiler import is_cached, load_compiler
        from tilewright.runtime._async_compile import Collecting
        from tilewright.runtime.compile_ahead import compile_ahead, processes

        plain = [c for c in candidates if c.pre_hook is None]
        if len(plain) < 2 or processes() < 2:
            return
        with Collecting() as collected:
            for config in plain:
                try:
                    self.fn.warmup(*args, **_without_warmup(kwargs), **config.all_kwargs())
                except _FAILURES:
                    pass  # raised again, and told, where it is measured
        missing = []
        for job in collected.jobs.values():
            try:
                if not is_cached(*job.args):
                    missing.append(job)
            except _FAILURES:
                pass
        if len(missing) > 1:
            load_compiler(missing[0].args[1])  # once, before there are several processes
            compile_ahead(missing)

    def _kept_at(self, key: tuple[Any, ...], candidates: Sequence[Config]) -> str | None:
        """The file for what is chosen among ``candidates``; None where nothing is kept (cache_results=True or TILEWRIGHT_CACHE_AUTOTUNING=1 asks for it)."""
        if not (self.cache_results or knobs.autotuning.cache) or any(c.pre_hook is not None for c in candidates):
            return None
        return tuning_results.path_of(getattr(_kernel_of(self.fn), "cache_key", ""), self._place(self.nargs or {})[2], key, candidates)

    def prune_configs(self, kwargs: Mapping[str, Any]) -> list[Config]:
        """The candidates for a launch: all, less those that ``early_config_prune`` drops, then the best few of ``perf_model``."""
        chosen = list(self.configs)
        if self.early_config_prune is not None:
            chosen = pruned(called("autotune: early_config_prune", "f(configs, named_args, **kwargs)", self.early_config_prune, self.configs, self.nargs, **kwargs), Config, self.__name__)
        if self.perf_model is not None:
            top_k = self.configs_top_k
            count = int(len(self.configs) * top_k) if isinstance(top_k, float) and top_k <= 1.0 else top_k
            if not isinstance(count, int) or count < 1:
                raise ArgumentError(f"top_k is a share of the configurations up to 1.0, or a count; found {top_k!r}")
            if len(chosen) > count:
                estimate = {c: checked_estimate(called("autotune: perf_model", "f(**arguments)", self.perf_model, **(self.nargs or {}), **kwargs, **c.all_kwargs())) for c in chosen}
                chosen = sorted(chosen, key=lambda c: estimate[c])[:count]
        return chosen

    def warmup(self, *args: Any, **kwargs: Any) -> list[Any]:
        """Compile every candidate without launching; returns the CompiledKernels."""
        self.nargs = dict(zip(self.arg_names, args))
        try:
            candidates = self.prune_configs(kwargs)
            if self._is_compiled:
                self._compile_ahead(candidates, args, kwargs)
            return [self.fn.warmup(*args, **kwargs, **config.all_kwargs()) for config in candidates]
        finally:
            self.nargs = None


def autotune(configs: Sequence[Config], key: Sequence[str], prune_configs_by: Mapping[str, Any] | None = None,
             reset_to_zero: Sequence[str] | None = None, restore_value: Sequence[str] | None = None,
             pre_hook: Callable[..., None] | None = None, post_hook: Callable[..., None] | None = None, warmup: int | None = None,
             rep: int | None = None, use_cuda_graph: bool = False, do_bench: Callable[..., Any] | None = None,
             cache_results: bool = False) -> Callable[[Any], Autotuner]:
    """Decorator over jit: measure ``configs`` and launch with the fastest, anew for every value of the arguments named by ``key``.

    prune_configs_by: {"early_config_prune": f(configs, named_args, **kwargs) → configs, "perf_model": f(**args) → time, "top_k": count or
    share}. reset_to_zero: arrays cleared before each measurement; restore_value: arrays given their contents back after it.
    pre_hook(args, reset_only), post_hook(args, exception) replace those two. do_bench(call, quantiles) → times measures in place of
    testing.do_bench; warmup, rep (milliseconds) and use_cuda_graph are deprecated. cache_results: keep what was chosen on disk, as
    TRITON_CACHE_AUTOTUNING=1 does for all kernels. A configuration that cannot be compiled or run is left out; where none can, its error is raised.
    In a simulator nothing is measured: the first configuration that compiles is taken.
    """

    def decorate(fn: Any) -> Autotuner:
        return Autotuner(fn, parameters(fn, "autotune"), configs, key, reset_to_zero, restore_value, pre_hook=pre_hook, post_hook=post_hook,
                         prune_configs_by=prune_configs_by, warmup=warmup, rep=rep, use_cuda_graph=use_cuda_graph, do_bench=do_bench,
                         cache_results=cache_results)

    return decorate
