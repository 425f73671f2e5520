"""What ``autotune``, ``Config`` and ``heuristics`` refuse, most of it where the kernel is defined: the launch may come much later, or never in a test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewright.runtime.errors import ArgumentError, AutotunerError, LaunchSignatureError
from tilewright.runtime.specialize import shown

PRUNING = ("early_config_prune", "perf_model", "top_k")
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "pre_hook", "ir_override")


def meant(name: Any, known: Iterable[str]) -> str:
    """" (did you mean …?)", or nothing."""
    import difflib  # for errors alone

    near = difflib.get_close_matches(name, list(known), 1) if isinstance(name, str) else []
    return f" (did you mean {near[0]}?)" if near else ""


def called(what: str, form: str, function: Any, *args: Any, **kwargs: Any) -> Any:
    """``function``'s result. Raises AutotunerError where it cannot be called so; what it raises itself stays as it is."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise
        raise AutotunerError(f"{what} is called as {form}; {shown(function)} cannot be ({error})") from None


def check_config(kwargs: Any, options: Mapping[str, Any], unknown: Mapping[str, Any]) -> None:
    """Raise where a Config is misspelt, or what it says cannot be."""
    for name in unknown:
        raise LaunchSignatureError(f"Config has no argument {name!r}{meant(name, OPTIONS)}; it takes a dict of constexpr parameters, and {', '.join(OPTIONS)}")
    if not isinstance(kwargs, Mapping):
        raise ArgumentError(f"Config takes a dict of constexpr parameters, Config({{'BLOCK': 64}}, num_warps=4); found {shown(kwargs)} ({type(kwargs).__name__})")
    for name in kwargs:
        if not isinstance(name, str):
            raise ArgumentError(f"the keys of a Config are parameters' names; found {shown(name)} ({type(name).__name__})")
    for name in ("num_warps", "num_stages", "num_ctas", "maxnreg"):  # which integers will do is the target's to say
        value = options[name]
        if value is not None and (isinstance(value, bool) or not hasattr(value, "__index__")):
            raise ArgumentError(f"{name} of a Config is an integer; found {shown(value)} ({type(value).__name__})")
    check_callables("Config", {"pre_hook": options["pre_hook"]})
    path = options["ir_override"]
    if path is not None and not isinstance(path, str) and not hasattr(path, "__fspath__"):
        raise ArgumentError(f"ir_override of a Config is the path of a file; found {shown(path)} ({type(path).__name__})")


def check_callables(what: str, functions: Mapping[str, Any]) -> None:
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise ArgumentError(f"{what}: {name} is a function; found {shown(function)} ({type(function).__name__})")


def listed_configs(configs: Any, kind: type) -> list[Any]:
    """autotune's configurations."""
    if configs is None:
        return []
    if isinstance(configs, (kind, str, Mapping)) or not hasattr(configs, "__iter__"):
        raise ArgumentError(f"autotune: configs is a list of Config(…); found {shown(configs)} ({type(configs).__name__})")
    found = list(configs)
    for config in found:
        if not isinstance(config, kind):
            raise ArgumentError(f"autotune: configs is a list of Config(…); found {shown(config)} ({type(config).__name__})")
    return found


def check_names(names: Iterable[str], fn: Any, who: str) -> None:
    """Of values that a decorator gives: parameters of the kernel, or options that some target has. Asked at the first launch, so that a module can be
    imported with a kernel that is wrong and not used."""
    parameters = fn.arg_names
    unknown = [n for n in names if n not in parameters]
    unknown = [n for n in unknown if n not in _options()]
    if unknown:
        raise ArgumentError(f"{who} sets {unknown[0]!r}, which is neither a parameter of {getattr(fn, '__name__', 'the kernel')} nor an option of any "
                            f"target{meant(unknown[0], [*parameters, *OPTIONS])}; the kernel has {', '.join(parameters)}")


def _options() -> set[str]:
    """Options that some target has."""
    import dataclasses

    from tilewright.compiler.options import HINTS, NEUTRAL
    from tilewright.targets import registry

    return {*HINTS, *NEUTRAL} | {f.name for plugin in registry.plugins() for f in dataclasses.fields(plugin.options)}


def listed_names(names: Any, what: str, known: Sequence[str] | None) -> list[Any]:
    """A list of parameters' names, each ``known`` where that is given."""
    if isinstance(names, (str, Mapping)) or not hasattr(names, "__iter__"):
        raise ArgumentError(f"autotune: {what} is a list of parameters' names; found {shown(names)} ({type(names).__name__})")
    found = list(names)
    for name in found:
        if known is not None and name not in known:
            raise ArgumentError(f"autotune: {shown(name)} in {what} is no parameter of the kernel{meant(name, known)}; it has {', '.join(known)}")
    return found


def checked_pruning(given: Any) -> dict[str, Any]:
    """autotune's prune_configs_by."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ArgumentError(f"autotune: prune_configs_by is a dict with {', '.join(PRUNING)}; found {shown(given)} ({type(given).__name__})")
    for name in given:
        if name not in PRUNING:
            raise ArgumentError(f"autotune: prune_configs_by has no {shown(name)}{meant(name, PRUNING)}; it takes {', '.join(PRUNING)}")
    return dict(given)


def pruned(chosen: Any, kind: type, kernel: str) -> list[Any]:
    """What early_config_prune left."""
    found = list(chosen) if hasattr(chosen, "__iter__") else None
    if found is None or not all(isinstance(c, kind) for c in found):
        raise AutotunerError(f"autotune: early_config_prune returns a list of the Configs that stay; for {kernel} it returned {shown(chosen)}")
    if not found:
        raise AutotunerError(f"autotune: early_config_prune left no configuration of {kernel}; it must leave one")
    return found


def checked_estimate(time: Any) -> Any:
    """What perf_model returned."""
    if not hasattr(time, "__float__"):
        raise AutotunerError(f"autotune: perf_model returns the time that it expects, a number; found {shown(time)} ({type(time).__name__})")
    return time


def checked_times(times: Any) -> list[float]:
    """What do_bench returned: three times, of which the first decides; or one."""
    found = [times] if hasattr(times, "__float__") and not hasattr(times, "__len__") else times
    if not hasattr(found, "__iter__") or not (found := list(found)) or not all(hasattr(t, "__float__") for t in found):
        raise AutotunerError(f"autotune: do_bench(call, quantiles=(0.5, 0.2, 0.8)) returns a time for each of these, or one time; found {shown(times)}")
    return found


def array_of(arguments: Mapping[str, Any], name: str, what: str, kernel: str) -> Any:
    """The array that is to be cleared or kept before a measurement."""
    value = arguments.get(name)
    if not (hasattr(value, "zero_") or hasattr(value, "__setitem__")) or not hasattr(value, "shape"):
        raise ArgumentError(f"autotune: {name!r} in {what} is an array that {kernel} writes; found {shown(value)} ({type(value).__name__})")
    return value


def check_rules(values: Any) -> None:
    """heuristics' rules."""
    if not isinstance(values, Mapping):
        raise ArgumentError(f"heuristics takes a dict, {{parameter: function of the arguments}}; found {shown(values)} ({type(values).__name__})")
    for name, rule in values.items():
        if not isinstance(name, str):
            raise ArgumentError(f"the keys of heuristics are parameters' names; found {shown(name)} ({type(name).__name__})")
        if not callable(rule):
            raise ArgumentError(f"heuristics: the rule of {name!r} is a function of the arguments by name; found {shown(rule)}")


def parameters(fn: Any, decorator: str) -> Sequence[str]:
    """The names of the parameters of what ``decorator`` stands over, which has to be a kernel."""
    if not hasattr(fn, "arg_names"):
        raise ArgumentError(f"{decorator} stands over @jit (or another decorator of kernels); found {fn!r}, which is no kernel: "
                            f"write @{decorator}(…) above @jit")
    return fn.arg_names
