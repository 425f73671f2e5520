"""Launch and compile options, checked against what the target's options dataclass has."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Mapping
from typing import Any

from tilewright import knobs
from tilewright.runtime.errors import ArgumentError
from tilewright.targets.registry import Selection

# Options that Triton has on every target: given with these values they ask for nothing, so a target need not have them.
NEUTRAL: dict[str, Any] = {
    "num_ctas": 1, "maxnreg": None, "debug": False, "sanitize_overflow": True, "ir_override": None, "launch_cooperative_grid": False,
    "launch_pdl": False, "enable_fp_fusion": True, "extern_libs": None, "instrumentation_mode": "", "cluster_dims": (1, 1, 1),
    "num_buffers_warp_spec": 0, "num_consumer_groups": 0, "reg_dec_producer": 0, "reg_inc_consumer": 0, "warp_size": None,
}
# Hints: a target that lacks them loses speed at most.
HINTS = frozenset({"num_warps", "num_stages", "launch_pdl"})


def make_options(selection: Selection, given: Mapping[str, Any]) -> Any:
    """An instance of the target's options dataclass. Raises ArgumentError for an unknown option, naming those that exist."""
    cls = selection.plugin.options
    fields = {f.name for f in dataclasses.fields(cls) if f.init}
    taken: dict[str, Any] = {}
    for name, value in given.items():
        if name in fields:
            taken[name] = value
        elif name == "launch_pdl" and value not in (None, False, True):
            raise ArgumentError(f"launch_pdl is True or False; found {value!r}")
        elif name in HINTS or (name in NEUTRAL and (value == NEUTRAL[name] or value is None)):
            continue
        elif name in NEUTRAL:
            raise ArgumentError(f"target {selection} does not have option {name!r} (given {value!r}); it takes {', '.join(sorted(fields))}")
        else:
            raise ArgumentError(f"{name!r} is neither a parameter of the kernel nor an option of target {selection}, whose options are "
                                f"{', '.join(sorted(fields))}")
    for name, setting in defaults(selection).items():
        if name in fields:
            taken.setdefault(name, setting)
    for name in ("num_warps", "num_stages", "num_ctas"):
        if name in taken:
            taken[name] = _count(name, taken[name])
    for field in dataclasses.fields(cls):
        if field.name in taken:
            taken[field.name] = _checked(field, taken[field.name])
    _check_precision(taken.get("default_dot_input_precision"))
    return _as_one_block(selection, cls(**taken))


def _as_one_block(selection: Selection, options: Any) -> Any:
    """The options with num_ctas 1. More is a hint, where the architecture has clusters of blocks: what a program computes does not depend on it, and
    programs are run by one block each (``OptionNotHonouredWarning``). Raises ArgumentError where it has none, or not as large."""
    ctas = getattr(options, "num_ctas", 1)
    if ctas == 1:
        return options
    most = selection.plugin.capabilities(selection.arch).max_num_ctas
    if most == 1:
        raise ArgumentError(f"num_ctas is {ctas}, and {selection} has no clusters of blocks: a program is one block there; set num_ctas=1")
    if ctas > most or ctas & (ctas - 1):
        raise ArgumentError(f"num_ctas is {ctas}; {selection} has clusters of {', '.join(str(1 << i) for i in range(most.bit_length()))} blocks")
    return dataclasses.replace(options, num_ctas=1)


class OptionNotHonouredWarning(UserWarning):
    """An option of a launch was taken as a hint, and the compiler did not follow it; results are the same. Given once a kernel."""


_warned: set[tuple[str, str]] = set()


def ignored_ctas(given: Mapping[str, Any]) -> int:
    """How many blocks a program were asked for in vain; 0 where no more than one was."""
    ctas = int(given.get("num_ctas") or 1)
    return ctas if ctas > 1 else 0


def warn_ignored_ctas(selection: Selection, name: str, source: Any, given: Mapping[str, Any]) -> None:
    """Warn that ``num_ctas`` was not followed, once a kernel. Targets of one thread a program have nothing to follow, and say nothing."""
    ctas, key = ignored_ctas(given), (name, str(getattr(getattr(source, "fn", None), "__module__", "")))
    if not ctas or key in _warned or selection.plugin.capabilities(selection.arch).warp_size == 1:
        return
    _warned.add(key)
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == __name__.split(".")[0]:
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{name}: num_ctas={ctas} is a hint that was not followed: each program is run by one block, with the same results. Nothing but speed "
                  "may differ; set num_ctas=1 to be rid of this warning.", OptionNotHonouredWarning, stacklevel=level)


def _check_precision(value: Any) -> None:
    from tilewright.language.semantic_tile import INPUT_PRECISIONS

    if value is not None and value not in INPUT_PRECISIONS:
        raise ArgumentError(f"default_dot_input_precision is one of {', '.join(INPUT_PRECISIONS)}; found {value!r}")


def _count(name: str, value: Any) -> int:
    """num_warps, num_stages or num_ctas, checked."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < (0 if name == "num_stages" else 1):
        raise ArgumentError(f"{name} is {'an integer of 0 or more' if name == 'num_stages' else 'a positive integer'}; found {value!r}")
    if name == "num_warps" and int(value) & (int(value) - 1):
        raise ArgumentError(f"num_warps is a power of two; found {value!r}")
    return int(value)


def _fields_called(name: str) -> list[Any]:
    """The option's field in a target that has it, where its type is the same on all targets."""
    from tilewright.targets import registry

    if name not in ("debug", "enable_fp_fusion", "sanitize_overflow"):
        return []
    return [f for f in dataclasses.fields(registry.get(registry.FALLBACK).options) if f.name == name]


def check_portable(given: Mapping[str, Any]) -> None:
    """Options of a launch that no target compiles for (the interpreter's): each has to be one that some target has."""
    from tilewright.targets import registry

    for name, value in given.items():
        for field in _fields_called(name):
            _checked(field, value)
        if name == "default_dot_input_precision":
            _check_precision(value)
        if name in ("num_warps", "num_stages", "num_ctas"):
            _count(name, value)
        elif name not in NEUTRAL and name not in HINTS:
            have = {f.name for target in registry.names() for f in dataclasses.fields(registry.get(target).options) if f.init}
            if name not in have:
                raise ArgumentError(f"{name!r} is neither a parameter of the kernel nor an option of any target: {', '.join(sorted(have | set(NEUTRAL)))}")


def defaults(selection: Selection) -> dict[str, Any]:
    """Options that settings give a default: those of all targets, and the target's own."""
    found: dict[str, Any] = {}
    if knobs.language.given("default_fp_fusion"):
        found["enable_fp_fusion"] = knobs.language.default_fp_fusion
    if knobs.language.fp32_default is not None:
        found["default_dot_input_precision"] = knobs.language.fp32_default
    if knobs.runtime.debug:
        found["debug"] = True
    own = getattr(selection.plugin.knobs, "option_defaults", None)
    return found if own is None else {**found, **own()}


def settings_text(selection: Selection) -> str:
    """What settings say of a compilation, as they are now."""
    compilation = knobs.compilation
    return (f"{defaults(selection)} {knobs.code_key(selection.plugin)} {knobs.runtime.override_arch} {compilation.always_compile} {compilation.override} "
            f"{compilation.allow_non_constexpr_globals}")


def _checked(field: Any, value: Any) -> Any:
    """``value`` as the field's annotation says, where that is of yes or no, or of an integer. A word such as "no" would count as true."""
    kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
    kinds = {k.strip() for k in kind.split("|")}
    if value is None and ("None" in kinds or field.default is dataclasses.MISSING):
        return None
    if kinds - {"None"} == {"bool"}:
        if value is None:
            return field.default
        if type(value).__name__ not in ("bool", "bool_") and not (type(value) is int and value in (0, 1)):
            raise ArgumentError(f"{field.name} is True or False{' or None' * ('None' in kinds)}; found {value!r}")
        return bool(value)
    if kinds - {"None"} == {"int"}:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise ArgumentError(f"{field.name} is an integer{' or None' * ('None' in kinds)}; found {value!r}")
        return int(value)
    return value


def options_dict(options: Any) -> dict[str, Any]:
    """The options by name."""
    return {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
