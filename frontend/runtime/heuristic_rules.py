"""``@heuristics``: choosing parameters of a kernel by rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.runtime.autotuner_checks import called, check_names, check_rules, parameters
from tilewright.runtime.errors import HeuristicError
from tilewright.runtime.jit import KernelInterface


class _RuleArguments(dict[str, Any]):
    """What a rule of heuristics is given: the arguments by name, without those left to their defaults."""

    def __init__(self, parameter: str, values: dict[str, Any]):
        super().__init__(values)
        self._parameter = parameter

    def __missing__(self, name: str) -> Any:
        raise HeuristicError(f"the rule of {self._parameter!r} in heuristics asks for {name!r}, which the launch does not give; it gives {', '.join(self)}")


class Heuristics(KernelInterface):
    """A kernel some of whose parameters are computed from the other arguments."""

    def __init__(self, fn: Any, arg_names: Sequence[str], values: Mapping[str, Callable[[dict[str, Any]], Any]]):
        check_rules(values)
        self.fn = fn
        self.arg_names = list(arg_names)
        self.values = dict(values)
        self._unchecked = True  # whether its names are to be looked at
        self.__name__ = getattr(fn, "__name__", "kernel")
        self.__doc__ = getattr(fn, "__doc__", None)
        self.__module__ = getattr(fn, "__module__", "")

    def _computed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        for name, rule in self.values.items():
            arguments = _RuleArguments(name, {**dict(zip(self.arg_names, args)), **kwargs})
            kwargs[name] = called(f"heuristics: the rule of {name!r}", "rule(arguments by name)", rule, arguments)
        return kwargs

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the parameters and launch."""
        if self._unchecked:
            check_names(self.values, self, "heuristics")
            self._unchecked = False
        return self.fn.run(*args, **self._computed(args, kwargs))

    def warmup(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the parameters and compile."""
        return self.fn.warmup(*args, **self._computed(args, kwargs))


def heuristics(values: Mapping[str, Callable[[dict[str, Any]], Any]]) -> Callable[[Any], Heuristics]:
    """Decorator over jit (or autotune): ``{parameter: f(arguments by name) → value}``."""

    def decorate(fn: Any) -> Heuristics:
        return Heuristics(fn, parameters(fn, "heuristics"), values)

    return decorate
