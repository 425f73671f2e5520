"""Settings, under Triton's names: ``knobs.cache.dir``, ``knobs.runtime.interpret``, hooks, ….

A setting that is read from the environment is read at each use, under ``TILEWRIGHT_NAME`` first, then ``TRITON_NAME``; one that was
assigned keeps the assigned value until ``reset()``, and child processes get it through the environment (unless ``propagate_env`` is
False). ``with knobs.compilation.scope(): …`` undoes assignments at its end; ``knobs.x.y = knobs.env`` goes back to the environment's.
A setting of Triton's that changes nothing here warns once when it is set; docs/launching.md lists those.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable
from typing import Any

from tilewright.dialects import settings
from tilewright.dialects.errors import ArgumentError
from tilewright.dialects.settings import (
    Group,
    SettingWithoutEffectWarning,
    choice,
    env,
    flag,
    named_class,
    number,
    text,
    variable,
)

Knobs = base_knobs = Group


def environment(name: str) -> str | None:
    """The value of TILEWRIGHT_``name``, else of TRITON_``name``; None where both are unset or empty."""
    return variable(f"TILEWRIGHT_{name}", f"TRITON_{name}")


def environment_flag(name: str) -> bool:
    """Whether TILEWRIGHT_``name``, else TRITON_``name``, is on. Raises ArgumentError where it says neither on nor off."""
    return bool(settings.from_variable((f"TILEWRIGHT_{name}", f"TRITON_{name}"), settings.truth, False))


class HookChain(list[Callable[..., Any]]):
    """Functions called one after another with the same arguments. False where there is none; a list, whose truth every launch asks for."""

    def __init__(self, reversed: bool = False):
        super().__init__()
        self.reversed = reversed

    @property
    def calls(self) -> list[Callable[..., Any]]:
        return self

    def add(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise ArgumentError(f"a hook is called; {function!r} cannot be")
        if function not in self:
            self.append(function)

    def remove(self, function: Callable[..., Any]) -> None:
        if function in self:
            super().remove(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = None
        for call in self[::-1] if self.reversed else self[:]:
            result = call(*args, **kwargs) or result
        return result


class _Hooks(Group):
    """A group with hooks. A single function assigned to a chain becomes its only member, None empties it."""

    def __setattr__(self, name: str, value: Any) -> None:
        chain = self.__dict__.get(name)
        if value is not None and name in self.__dict__ and not name.startswith("_") and not callable(value):
            raise ArgumentError(f"{name} is a function; found {value!r} ({type(value).__name__})")
        if isinstance(chain, HookChain) and not isinstance(value, HookChain):
            chain[:] = [] if value is None else [value]
            return
        super().__setattr__(name, value)


def _home() -> str:
    return environment("HOME") or os.path.expanduser("~")


_NO_C = "nothing native is built from C to launch a kernel"


class _Build(_Hooks):
    cc = text("CC", spelt="CC")
    cudacrt_path = text("CUDACRT_PATH", without_effect=_NO_C)
    cudart_path = text("CUDART_PATH", without_effect=_NO_C)

    impl: Callable[..., str] | None

    def __init__(self) -> None:
        super().__init__(impl=None)

    @property
    def backend_dirs(self) -> set[str]:
        return {path for path in (self.cudacrt_path, self.cudart_path) if path is not None}


class _Redis(Group):
    of_code = False
    host = text("REDIS_HOST", "localhost")
    port = number("REDIS_PORT", 6379)
    key_format = text("REDIS_KEY_FORMAT", "triton:{key}:{filename}")


class _Cache(Group):
    of_code = False
    home_dir = text("HOME", lambda: os.path.expanduser("~"))
    dir = text("CACHE_DIR", lambda: os.path.join(_home(), ".tilewright", "cache"))
    dump_dir = text("DUMP_DIR", lambda: os.path.join(_home(), ".tilewright", "dump"))
    override_dir = text("OVERRIDE_DIR", lambda: os.path.join(_home(), ".tilewright", "override"))
    manager_class = named_class("CACHE_MANAGER")
    remote_manager_class = named_class("REMOTE_CACHE_BACKEND")

    def get_triton_dir(self, dirname: str) -> str:
        """The folder of that name beside the cache."""
        return os.path.join(self.home_dir, ".tilewright", dirname)


class _Compilation(_Hooks):
    always_compile = flag("ALWAYS_COMPILE")
    override = flag("KERNEL_OVERRIDE")
    dump_ir = flag("KERNEL_DUMP")
    store_binary_only = flag("STORE_BINARY_ONLY")
    disable_line_info = flag("DISABLE_LINE_INFO", code=True)
    allow_non_constexpr_globals = flag("ALLOW_NON_CONSTEXPR_GLOBALS")
    front_end_debugging = flag("FRONT_END_DEBUGGING")
    dump_ir_extract_di_local_variables = flag("EXTRACT_DI_LOCAL_VARIABLES", spelt="LLVM_EXTRACT_DI_LOCAL_VARIABLES",
                                              without_effect="compiled kernels name no local variables; kernel.asm has every stage with its lines")
    use_ir_loc = text("USE_IR_LOC", spelt="USE_IR_LOC", without_effect="line tables name the user's source only; dump the IR to read it")
    enable_asan = flag("ENABLE_ASAN", without_effect="no address sanitiser is built in; TILEWRIGHT_INTERPRET=1 and the simulated targets check every address")
    instrumentation_mode = text("INSTRUMENTATION_MODE", "", without_effect="kernels are not instrumented; tilewright.profiler times launches")

    listener: Callable[..., None] | None

    def __init__(self) -> None:
        super().__init__(listener=None)


class _Autotuning(Group):
    of_code = False
    cache = flag("CACHE_AUTOTUNING")
    print = flag("PRINT_AUTOTUNING")


class _Runtime(_Hooks):
    interpret = flag("INTERPRET")
    debug = flag("DEBUG")
    override_arch = text("OVERRIDE_ARCH")
    native_launch = flag("NATIVE_LAUNCH", True)

    launch_enter_hook: HookChain
    launch_exit_hook: HookChain
    kernel_load_start_hook: HookChain
    kernel_load_end_hook: HookChain
    jit_cache_hook: Callable[..., Any] | None
    jit_post_compile_hook: Callable[..., Any] | None

    def __init__(self) -> None:
        super().__init__(launch_enter_hook=HookChain(), launch_exit_hook=HookChain(reversed=True), kernel_load_start_hook=HookChain(),
                         kernel_load_end_hook=HookChain(reversed=True), jit_cache_hook=None, jit_post_compile_hook=None)

    @property
    def add_stages_inspection_hook(self) -> None:
        """Triton's way of changing the stages; here a pipeline is data, and a target a plugin."""
        return None

    @add_stages_inspection_hook.setter
    def add_stages_inspection_hook(self, hook: Any) -> None:
        if hook is not None:
            raise ArgumentError("knobs.runtime.add_stages_inspection_hook is not called: stages are a Pipeline here. Register a target with "
                                "another one: tilewright.targets.registry.register(dataclasses.replace(plugin, pipeline=…))")


class _Language(Group):
    fp32_default = choice("F32_DEFAULT", ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"))
    default_fp_fusion = flag("DEFAULT_FP_FUSION", True)


class _Proton(Group):
    of_code = False
    disable = flag("PROTON_DISABLE")
    cupti_lib_dir = text("CUPTI_LIB_PATH", without_effect="tilewright.profiler times launches by the target's event timers")
    enable_nvtx = flag("ENABLE_NVTX", True, without_effect="tilewright.profiler writes no ranges for other profilers")


build = _Build()
redis = _Redis()
cache = _Cache()
compilation = _Compilation()
autotuning = _Autotuning()
runtime = _Runtime()
language = _Language()
proton = _Proton()

_GROUPS: tuple[Group, ...] = (build, redis, cache, compilation, autotuning, runtime, language, proton)


class TargetKnobs(Group):
    """Settings of a target that names none of its own: whatever is assigned; unknown ones are None."""

    def __init__(self, target: str = ""):
        super().__init__(_target=target)

    def _new(self) -> TargetKnobs:
        return TargetKnobs(self._target)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._assigned.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._assigned[name] = value
        self._changed()


def refresh_knobs() -> None:
    """Triton's; settings are read at each use here."""


def tell_without_effect(target: Any = None) -> None:
    """Warn, once each, of settings in the environment that change nothing: the frontend's, and those of a target plugin."""
    for group in (*_GROUPS, *(() if target is None or target.knobs is None else (target.knobs,))):
        group.tell_without_effect()


def code_key(target: Any) -> str:
    """Text of all settings that code for a target plugin depends on, beside its options."""
    groups = (compilation, *(() if target.knobs is None else (target.knobs,)))
    return ", ".join(filter(None, (g.code_key() for g in groups)))


def __getattr__(name: str) -> Any:
    """``knobs.<target>``: a group for every known target; ``propagate_env``."""
    if name == "propagate_env":
        return settings.propagate
    if name.startswith("_"):
        raise AttributeError(name)
    from tilewright.targets import registry

    if name in registry.names():
        plugin = registry.get(name)
        if plugin.knobs is not None:
            return plugin.knobs
        group = globals()[name] = TargetKnobs(name)
        return group
    raise AttributeError(f"no knobs are called {name!r}")


class _Module(types.ModuleType):
    """So that ``knobs.propagate_env = False`` is heard where settings are made."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "propagate_env":
            settings.propagate = bool(value)
        else:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Module

__all__ = ["HookChain", "Knobs", "SettingWithoutEffectWarning", "TargetKnobs", "autotuning", "base_knobs", "build", "cache", "compilation", "env",
           "environment", "language", "proton", "redis", "refresh_knobs", "runtime"]
