"""``@jit``: a kernel's source, its parameters, and its launch.

The first launch of a combination of argument kinds compiles (or reads the disk cache); every other one is a look-up in a dictionary
by a key of the arguments' kinds, and one call of the driver's launcher.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from tilewright import knobs
from tilewright.language.const import ConstexprFunction, constexpr_function  # noqa: F401 - Triton has them here, where torch.compile looks
from tilewright.runtime._async_compile import Collecting, FutureKernel, active_mode
from tilewright.runtime.arguments import MockTensor, TensorWrapper, reinterpret
from tilewright.runtime.binder import make_binder, make_collector
from tilewright.runtime.callables import JITCallable, KernelParam
from tilewright.runtime.compile_ahead import compiling
from tilewright.runtime.driver import driver, keeps_code
from tilewright.runtime.errors import ArgumentError, KernelCallError
from tilewright.runtime.explain import choices, named, tell
from tilewright.runtime.pickled import kept_by_name, reduced
from tilewright.runtime.refusals import (
    check_constexpr,
    check_current,
    check_decorated,
    check_listed,
    check_memory,
    check_writable,
    unbound,
    unfit,
)
from tilewright.runtime.specialize import (  # noqa: F401  (Triton has two of them here)
    constexpr_key,
    constexpr_value,
    describe,
    is_torch_tensor,
    mangle_type,
    native_specialize_impl,
    shown,
)
from tilewright.runtime.warm_launch import (
    MISSING,
    Functions,
    GridArguments,
    called_grid,
    host_tensors,
    make_warm_launch,
    normalise_grid,
)
from tilewright.targets.protocol import is_pinned

if TYPE_CHECKING:
    from typing_extensions import Self

# os.environ decodes and encodes on every look-up (1 µs); its own dictionary takes 60 ns
_environ: Any = getattr(os.environ, "_data", os.environ)
_TARGET_VARIABLE: Any = os.environ.encodekey("TILEWRIGHT_TARGET") if _environ is not os.environ else "TILEWRIGHT_TARGET"  # type: ignore[attr-defined]
_environ_get = _environ.get


class KernelInterface:
    """Something that is launched as ``kernel[grid](*args)``. Copies are itself: what was compiled or measured for one is known to all; it is pickled by its name."""

    run: Callable[..., Any]

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self.run, grid=grid, warmup=False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = getattr(self, "__name__", "kernel")
        raise KernelCallError(f"{name} is a kernel: launch it as {name}[grid](...), or call it from another kernel")

    def warmup(self, *args: Any, grid: Any = MISSING, **kwargs: Any) -> Any:
        """Compile for these arguments (arrays, or dtypes in their place) without launching; returns the CompiledKernel."""
        if grid is MISSING:
            normalise_grid(grid)
        return self.run(*map(MockTensor.wrap_dtype, args), grid=grid, warmup=True, **kwargs)

    def __reduce__(self) -> Any:
        return kept_by_name(self)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def explain_last_launch(self) -> str:
        """What was launched last, what the compiler chose for it and why; see ``CompiledKernel.explain``."""
        function: Any = self
        while not hasattr(function, "last_launched") and hasattr(function, "fn"):  # an autotuner's, a heuristic's
            function = function.fn
        last = getattr(function, "last_launched", None)
        return "not launched yet" if last is None else last.explain()


class _Entry:
    """All that a launch needs."""

    __slots__ = ("kernel", "launcher", "handles", "current_device", "current_stream", "pick", "warm_pick")

    def __init__(self, kernel: Any, params: Sequence[KernelParam]):
        from tilewright.compiler.compiled import argument_picker

        self.kernel = kernel
        self.launcher: Callable[..., None] = kernel.launcher
        self.handles: dict[int, Any] = kernel.handles
        self.current_device: Callable[[], int] = kernel.driver.current_device
        self.current_stream: Callable[[int], Any] = kernel.driver.current_stream
        # of the values of all parameters, and of those that are not constexprs by declaration
        self.pick: Callable[[Any], Any] | None = argument_picker(kernel.types)
        self.warm_pick = argument_picker([t for p, t in zip(params, kernel.types) if not p.is_constexpr])

    def warm(self, device: int | None) -> tuple[Any, ...]:
        """What the generated code unpacks. ``device``: the one on which the arrays of its key lie; only there is it launched."""
        handles = self.handles if device is None else {device: self.handles[device]}
        return self.kernel, self.launcher, handles, self.current_device, self.current_stream, self.warm_pick


class _DeviceCaches(dict[int, tuple[dict[Any, Any], dict[Any, Any], Any, Any, Any]]):
    """Device → what ``create_binder`` made, the first entry being the kernels loaded there. Clearing it makes the next launch compile
    again, or read the disk cache."""

    def __init__(self, function: JITFunction):
        super().__init__()
        self._function = function

    def __missing__(self, device: int) -> tuple[dict[Any, Any], dict[Any, Any], Any, Any, Any]:
        self[device] = made = self._function.create_binder()
        return made

    def clear(self) -> None:
        super().clear()
        self._function.forget_kernels()


def _memory_key(source: Any, selection: Any, options: dict[str, Any]) -> tuple[str, str, str, str]:
    """What a function keeps a compiled kernel under."""
    from tilewright.compiler.options import settings_text

    return source.hash(), str(selection), repr(sorted(options.items(), key=lambda kv: kv[0])), settings_text(selection)


def _run(self: JITFunction, *args: Any, grid: Any = MISSING, warmup: bool = False, **kwargs: Any) -> Any:
    """``run`` as a method: launch (or with ``warmup`` only compile) and return the CompiledKernel. ``kwargs``: parameters by name, and options."""
    return self._run(*args, grid=grid, warmup=warmup, **kwargs)


class _RunOfKernels:
    """``JITFunction.run``: of a kernel, the function that launches it, in whose place a tool may assign another; of the class, a method that a tool may replace
    for all kernels."""

    def __get__(self, kernel: JITFunction | None, owner: Any = None) -> Callable[..., Any]:
        return _run if kernel is None else kernel._run

    def __set__(self, kernel: JITFunction, function: Callable[..., Any]) -> None:
        kernel._run, kernel._taken_over = function, True
        kernel._launch = lambda grid, /, *args, **kwargs: function(*args, grid=grid, warmup=False, **kwargs)


class _Replaceable(type):
    """The class of JITFunction: where its ``run`` is replaced, or a subclass has its own, ``kernel[grid](…)`` calls that one."""

    def __init__(cls, name: str, bases: Any, scope: dict[str, Any]):
        super().__init__(name, bases, scope)
        if "run" in scope and "__getitem__" not in scope:
            cls.run = scope["run"]

    def __setattr__(cls, name: str, value: Any) -> None:
        if name == "run":
            own = value is _run or isinstance(value, _RunOfKernels)
            value = _RUN if own else value
            super().__setattr__("__getitem__", _quick_launch if own else KernelInterface.__getitem__)
        super().__setattr__(name, value)


_RUN = _RunOfKernels()


def _quick_launch(kernel: JITFunction, grid: Any) -> Callable[..., Any]:
    """``kernel[grid]``: a function that launches."""
    if kernel.pre_run_hooks:  # they are told what was given by position and what by name
        return partial(kernel._run, grid=grid, warmup=False)
    return partial(kernel._launch, grid)


class JITFunction(JITCallable, KernelInterface, metaclass=_Replaceable):
    """A kernel, or a function that kernels call. ``run(*args, grid=, warmup=, **kwargs)`` launches it, or with ``warmup`` only compiles, and returns the CompiledKernel;
    ``kwargs``: parameters by name, and options. A tool may assign another function to it, of one kernel or of the class, which is called for launches too."""

    is_gluon = False
    run: Any = _RUN

    def __init__(self, fn: Callable[..., Any], version: Any = None, do_not_specialize: Any = None, do_not_specialize_on_alignment: Any = None,
                 debug: bool | None = None, noinline: bool | None = None, repr: Any = None, launch_metadata: Any = None):
        super().__init__(fn)
        self.module = fn.__module__
        self.version = version
        check_decorated({"do_not_specialize": do_not_specialize, "do_not_specialize_on_alignment": do_not_specialize_on_alignment},
                        {"debug": debug, "noinline": noinline}, {"repr": repr, "launch_metadata": launch_metadata})
        self.do_not_specialize = list(do_not_specialize or ())
        self.do_not_specialize_on_alignment = list(do_not_specialize_on_alignment or ())
        self._debug = debug
        self._noinline = noinline
        self.launch_metadata = launch_metadata
        self._repr = repr
        names = [p.name for p in self.signature.parameters.values()]
        for listed in (self.do_not_specialize, self.do_not_specialize_on_alignment):
            for item in listed:
                if item not in names and not (isinstance(item, int) and 0 <= item < len(names)):
                    warnings.warn(f"{self.__name__} has no parameter {item!r} to leave unspecialised; it has {', '.join(names) or 'none'}", stacklevel=3)
        self.params = [
            KernelParam(i, p, i in self.do_not_specialize or p.name in self.do_not_specialize,
                        i in self.do_not_specialize_on_alignment or p.name in self.do_not_specialize_on_alignment)
            for i, p in enumerate(self.signature.parameters.values())
        ]
        self.arg_names = names
        self.constexprs = [p.num for p in self.params if p.is_constexpr]
        self._constexpr_names = frozenset(p.name for p in self.params if p.is_constexpr)
        self.pre_run_hooks: list[Callable[..., None]] = []
        self.device_caches = _DeviceCaches(self)
        self._bind: Any = None
        self._entries: dict[Any, Any] = {}  # key of _run_cold → _Entry; key of the generated code → what it unpacks
        self._generation = 0  # counts how often those were forgotten
        self._kernels: dict[Any, Any] = {}
        self._compile_lock = threading.RLock()
        self._several = True  # whether there is more than one device
        self._warm: Any = None  # generated at the first launch
        self._quick: Any = None  # that, or the machine code before it
        self._make_warm: Any = None
        self._host_tensors: list[str] = []  # see warm_launch.host_tensors
        self._styles: dict[int, Functions] = {}  # so many parameters by position → ``_warm`` for that, and what belongs to it
        self._native: Any = None  # a NativeLaunch, once a kernel was launched that machine code can launch
        self._run: Callable[..., Any] = self._run_usual
        self._taken_over = False  # by a tool that assigned ``run``
        self._launch: Callable[..., Any] = self._first_launch
        self.kernel: Any = None
        self.last_launched: Any = None  # the CompiledKernel

    @property
    def debug(self) -> bool | None:
        """Whether launches ask for device assertions."""
        return self._debug

    @debug.setter
    def debug(self, value: bool | None) -> None:
        self._debug = value
        self.forget_entries()

    @property
    def repr(self) -> Callable[[Any], str]:
        """The function that names a specialisation of the kernel: ``repr(specialisation) → name``."""
        return (lambda _: self._fn_name) if self._repr is None else self._repr

    @repr.setter
    def repr(self, value: Any) -> None:
        self._repr = value
        self.forget_entries()

    def add_pre_run_hook(self, hook: Callable[..., None]) -> None:
        """``hook(*args, **kwargs)`` is called with the launch's arguments before every launch."""
        if not callable(hook):
            raise ArgumentError(f"a hook is called; {hook!r} cannot be")
        self.pre_run_hooks.append(hook)

    def __repr__(self) -> str:
        return f"JITFunction({self._fn_name})"

    def __reduce__(self) -> Any:
        return reduced(self)

    # ---------------------------------------------------------------------------------------------------------- launch
    def _first_launch(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """``_launch`` until there is code for warm launches."""
        if self._warm is None:
            return self._run_cold(None, args, kwargs, grid, False)
        return self._quick(grid, *args, **kwargs)

    def _run_usual(self, *args: Any, grid: Any = MISSING, warmup: bool = False, **kwargs: Any) -> Any:
        if self._warm is None or warmup or self.pre_run_hooks:
            return self._run_cold(None, args, kwargs, grid, warmup)
        return self._quick(grid, *args, **kwargs)

    def _cold(self, grid: Any, key: Any, given: dict[str, Any], surplus: tuple[Any, ...], options: dict[str, Any], leading: int) -> Any:
        """A launch that the generated code, which takes ``leading`` parameters by position, leaves to ``_run_cold``, and what it needs from then
        on under ``key``."""
        named = {p.name: given[p.name] for p in self.params if given[p.name] is not (p.default if p.has_default else MISSING)}
        if not surplus and (not options or options.keys().isdisjoint(self.arg_names[:leading])):
            return self._run_cold(key, (), {**named, **options}, grid, False)
        # it gives by position what the code takes by name, or the reverse
        places = [p.name for p in self.params if not p.keyword_only]
        count = leading if surplus else max((i + 1 for i, name in enumerate(places[:leading]) if name in named), default=0)
        positional = [*(given[name] for name in places[:count]), *surplus]
        taken = places[:len(positional)]
        named = {name: value for name, value in named.items() if name not in places[:count]}
        if len(taken) < len(positional) or not options.keys().isdisjoint(taken) or not named.keys().isdisjoint(taken):
            return self._run_cold(None, tuple(positional), {**named, **options}, grid, False)  # which says what is wrong
        return self._take_by_position(len(positional))(grid, *positional, **named, **options)

    def _take_by_position(self, count: int) -> Callable[..., Any]:
        """Let the generated code take so many parameters by position, from now on: the next launch is likely one of the same line. Returns it."""
        found = self._styles.get(count)
        if found is None:
            found = self._styles[count] = self._make_warm(count)
        if self._native is None or self._native.launch is None:
            self._launch_by(found.launch)
        self._warm = found.launch
        return found.launch

    def _launch_by(self, launch: Callable[..., Any]) -> None:
        """Let ``launch(grid, *args, **kwargs)``, the generated code or what stands before it, do the launches that are warm."""
        self._quick = launch
        if not self._taken_over:
            self._launch = launch

    def _run_cold(self, warm_key: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, warmup: bool) -> Any:
        """The launch in full. ``warm_key``: that of the generated code, which finds the entry there from then on."""
        for hook in self.pre_run_hooks:
            hook(*args, **kwargs)
        bind = self._bind or self._make_bind()
        generation = self._generation
        try:
            kinds, values, options = bind(*args, **kwargs)
            key = (kinds, tuple(options.items()) if options else None, _environ_get(_TARGET_VARIABLE))
            entry = self._entries.get(key)
        except (TypeError, ArgumentError, RuntimeError) as error:
            raise self._explain(error, args, kwargs) from None
        if any(scope.get(name) is not value for scope, name, value in self._checks) or any(use.changed() for use in self._slow_checks):
            entry = self._after_global_change(entry)
        if entry is None or warmup:
            kernel = self._kernel_for(args, kwargs, warmup)
            if warmup or kernel is None:  # None: a jit_cache_hook took the compilation over
                return kernel
            if isinstance(kernel, FutureKernel):
                kernel = kernel.result()
            entry = self._keep(key, _Entry(kernel, self.params), generation)
        bound = self._collect(*args, **kwargs)[0]
        if callable(grid):
            grid = called_grid(grid, GridArguments(bound))
        x, y, z = normalise_grid(grid)
        if not (x and y and z):
            return entry.kernel
        device = entry.current_device()
        whole = check_memory(self.__name__, bound, self._constexpr_names)
        placed = check_current(self.__name__, device, bound)
        check_writable(self.__name__, entry.kernel, bound)
        handle = entry.handles.get(device)
        if handle is None:
            handle = entry.kernel.load(device)
            self._remember(device, key, entry.kernel)
            tell(entry.kernel.hash, self.__name__, [named(c, entry.kernel.argument_names) for c in choices(entry.kernel.metadata._asdict())])
        if entry.pick is not None:
            values = entry.pick(values)
        ran = self._launched(entry, (x, y, z), device, handle, values, bound)
        driver.recent = self.last_launched = ran
        if warm_key is not None:
            if whole and not any(is_torch_tensor(type(v)) and v.is_cpu and is_pinned(v) for v in map(bound.__getitem__, self._host_tensors)):
                self._keep(warm_key, entry.warm(device if placed else None), generation)
                self._begin_native(entry.launcher)
        elif self._warm is None:
            self._generate(entry, bound, len(args))
            self._begin_native(entry.launcher)
        return ran

    def _launched(self, entry: _Entry, grid: tuple[int, int, int], device: int, handle: Any, values: Any, bound: dict[str, Any]) -> Any:
        """Launch, between the settings' hooks; the CompiledKernel that was launched, which a request of the launcher may have changed."""
        from tilewright.targets.protocol import LaunchRequest

        enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
        ran, record = entry.kernel, None
        if enter or leave:
            record = ran.launch_metadata(grid, entry.current_stream(device), *bound.values())
            enter(record)
        try:
            try:
                entry.launcher(*grid, entry.current_stream(device), handle, values)
            except LaunchRequest as request:
                ran = ran.answer(request, *grid, entry.current_stream(device), device, values, tuple(bound.values()))
        except (ArgumentError, OverflowError) as error:
            raise self._unfit(error, ran, bound) from None
        if record is not None:
            leave(record)
        return ran

    def _generate(self, entry: _Entry, bound: dict[str, Any], positional: int) -> None:
        """Make the code of warm launches, for arguments like those of the first, of which so many were given by position."""
        count = getattr(entry.kernel.driver, "device_count", None)
        self._several = count is None or count() > 1
        seen = [bound[p.name] for p in self.params]
        self._host_tensors = host_tensors(self.params, seen)
        self._make_warm = make_warm_launch(self, seen, self._several, {
            "cold": self._cold, "variable": _environ_get, "name": _TARGET_VARIABLE, "hooks": knobs.runtime, "driver": driver})
        self._take_by_position(min(positional, sum(not p.keyword_only for p in self.params)))

    def _keep(self, key: Any, entry: Any, generation: int) -> Any:
        """Let launches find an entry under a key, unless what it was made of has changed since there were so many generations. Returns it."""
        self._entries[key] = entry
        if self._generation != generation:
            self._entries.pop(key, None)
        return entry

    def _begin_native(self, launcher: Any) -> None:
        """Let machine code do warm launches, where a launcher can be replaced by it. On a first launch, so that none that is timed waits for the code."""
        if self._native is not None or getattr(launcher, "native", None) is None or not isinstance(_environ, dict):
            return
        from tilewright.runtime.native_launch import NativeLaunch, machine_code

        address = machine_code()
        if address is not None:
            self._native = NativeLaunch(self, self._several, {"environ": _environ, "name": _TARGET_VARIABLE, "hooks": knobs.runtime, "driver": driver}, address)
            self._launch_by(self._native.launch)

    def _make_bind(self) -> Any:
        check_listed(self.fn, self.signature)
        self._collect = make_collector(self.__name__, self.params)
        self._bind = make_binder(self.__name__, self.params)
        return self._bind

    def create_binder(self) -> tuple[dict[Any, Any], dict[Any, Any], Any, Any, Any]:
        """What ``device_caches`` holds for a device: kernels by key, an empty dict, the active GPUTarget, its Backend, and the function that
        binds arguments. Sets ``compile``, ``ASTSource`` and ``CompiledKernel``, as ahead-of-time tools expect."""
        from tilewright.compiler.compiler import ASTSource, CompiledKernel, compile, make_backend

        self.compile, self.ASTSource, self.CompiledKernel = compile, ASTSource, CompiledKernel
        target = driver.active.get_current_target()
        return {}, {}, target, make_backend(target), self._bind or self._make_bind()

    def forget_kernels(self) -> None:
        """Compile anew at the next launch."""
        with self._compile_lock:
            self.forget_entries()
            self._kernels = {}  # another one: a launch that is compiling at this moment keeps its kernel in the old one

    def forget_entries(self) -> None:
        """Look anew, at the next launch, which kernel it takes."""
        self._generation += 1  # a launch that is looking at this moment keeps nothing
        self._entries.clear()
        if self._native is not None:
            self._native.forget()

    _code_changed = forget_entries

    def _explain(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception:
        """The error of a failed binding, with the parameter's name."""
        try:
            bound, options = self._collect(*args, **kwargs)
        except TypeError as mismatch:
            return unbound(self.__name__, mismatch, self.arg_names)
        for p in self.params:
            try:
                hash(constexpr_key(bound[p.name])) if p.is_constexpr else describe(bound[p.name], p.mode)
            except ArgumentError as reason:
                return ArgumentError(f"argument {p.name!r} of {self.__name__}: {reason}")
        for name, value in options.items():
            try:
                hash(value)
            except TypeError:
                return ArgumentError(f"option {name!r} of {self.__name__} is given {shown(value)} ({type(value).__name__}); options are numbers, truth "
                                     "values and text")
        return error

    def _unfit(self, error: Exception, kernel: Any, arguments: dict[str, Any]) -> Exception:
        """A launcher's refusal of the arguments, with the name of the one that does not fit where there is one."""
        given = {p.name: p.default if arguments[p.name] is MISSING else arguments[p.name] for p in self.params}
        return unfit(self.__name__, self.arg_names, kernel.types, given) or error

    def _after_global_change(self, entry: Any) -> Any:
        """Some name stands for another object: forget the code that was made with the old one, unless the values are equal."""
        with self._compile_lock:
            before = self._key
            self._refresh()
            return entry if self.cache_key == before else None

    # --------------------------------------------------------------------------------------------------- the first launch
    def _kernel_for(self, args: tuple[Any, ...], kwargs: dict[str, Any], warmup: bool) -> Any:
        """The CompiledKernel for a launch's arguments; a FutureKernel inside an AsyncCompileMode; None where a jit_cache_hook says True."""
        from tilewright.compiler.compiler import ASTSource, compile_selected
        from tilewright.runtime.compile_hooks import call_hook
        from tilewright.runtime.launch_target import check_devices, choose

        keeps_code(self)
        kernels = self._kernels  # of the plugin that is chosen now
        bound, options = self._collect(*args, **kwargs)
        signature, constants, attrs, places = self._described(bound)
        selection = choose(driver, {d for devices in places.values() for d in devices})
        check_devices(self.__name__, selection, places)
        if self.debug and "debug" not in options:
            options["debug"] = True
        with compiling(), self._compile_lock:
            source = ASTSource(self, signature, constants, attrs)
            memory_key = _memory_key(source, selection, options)
            kernel = kernels.get(memory_key)
            if kernel is None:
                mode = active_mode.get()
                if not isinstance(mode, Collecting) and call_hook(knobs.runtime.jit_cache_hook, self, source, selection, options, warmup):
                    return None

                def finish(made: Any) -> None:
                    kernels[memory_key] = made
                    call_hook(knobs.runtime.jit_post_compile_hook, self, source, selection, options, warmup)

                if mode is not None:
                    return mode.submit((id(self), *memory_key), partial(compile_selected, source, selection, options), finish)
                kernel = compile_selected(source, selection, options)
                finish(kernel)
            return kernel

    def _described(self, bound: dict[str, Any]) -> tuple[dict[str, Any], dict[tuple[int, ...], Any], dict[tuple[int, ...], list[list[Any]]], dict[str, list[str]]]:
        """What a launch's arguments are to the compiler: types by name, constants and attributes by path, and by name where arrays lie."""
        signature: dict[str, Any] = {}
        constants: dict[tuple[int, ...], Any] = {}
        attrs: dict[tuple[int, ...], list[list[Any]]] = {}
        places: dict[str, list[str]] = {}
        for p in self.params:
            value = bound[p.name]
            try:
                if p.is_constexpr:
                    constants[(p.num,)] = value = constexpr_value(value)
                    check_constexpr(value)
                    signature[p.name] = "constexpr"
                    continue
                facts = describe(value, p.mode)
            except ArgumentError as reason:
                raise ArgumentError(f"argument {p.name!r} of {self.__name__}: {reason}") from None
            kind = facts.type
            if p.annotation_type and isinstance(kind, str) and kind != "constexpr" and not kind.startswith("*"):
                kind = p.annotation_type
            if p.is_const and isinstance(kind, str) and kind.startswith("*"):
                kind = "*k" + kind[1:]
            signature[p.name] = kind
            constants.update({(p.num, *path): v for path, v in facts.constants.items()})
            attrs.update({(p.num, *path): a for path, a in facts.attrs.items()})
            if facts.devices:
                places[p.name] = facts.devices
        return signature, constants, attrs, places

    def _remember(self, device: int, key: Any, kernel: Any) -> None:
        self.device_caches[device][0][key] = kernel

    def preload(self, specialization_data: str) -> Any:
        """Compile, or take from the disk cache, the specialisation that a ``jit_cache_hook`` was handed. Returns the CompiledKernel."""
        from tilewright.compiler.compiler import compile_selected
        from tilewright.runtime.compile_hooks import from_text

        keeps_code(self)
        kernels = self._kernels
        source, selection, options = from_text(self, specialization_data)
        memory_key = _memory_key(source, selection, options)
        with compiling(), self._compile_lock:
            kernel = kernels.get(memory_key)
            if kernel is None:
                kernel = kernels[memory_key] = compile_selected(source, selection, options)
            return kernel


def jit(fn: Callable[..., Any] | None = None, *, version: Any = None, repr: Callable[[Any], str] | None = None,
        launch_metadata: Callable[..., Any] | None = None, do_not_specialize: Sequence[int | str] | None = None,
        do_not_specialize_on_alignment: Sequence[int | str] | None = None, debug: bool | None = None,
        noinline: bool | None = None) -> Any:
    """Decorator: make a kernel (or a function that kernels call) of a Python function in the Triton language.

    do_not_specialize: parameters (names or positions) whose value and alignment are not looked at; on_alignment: only the latter.
    noinline: keep calls to it as calls. debug: device assertions on. repr: names the compiled kernel: ``repr(specialization) → name``, of its
    ``constants`` and ``signature`` by parameter. launch_metadata: ``(grid, metadata, arguments by name) → dict`` added to what launch hooks
    are told. version: any value, for the user's own. With ``TILEWRIGHT_INTERPRET=1`` the result runs in Python (``InterpretedFunction``).
    """

    def decorate(fn: Callable[..., Any]) -> Any:
        if not callable(fn):
            raise ArgumentError(f"jit decorates a function, not {fn!r}")
        if knobs.runtime.interpret:
            from tilewright.runtime.interpreter import InterpretedFunction

            return InterpretedFunction(fn, version=version, do_not_specialize=do_not_specialize,
                                       do_not_specialize_on_alignment=do_not_specialize_on_alignment, debug=debug,
                                       noinline=noinline, repr=repr, launch_metadata=launch_metadata)
        return JITFunction(fn, version=version, do_not_specialize=do_not_specialize,
                           do_not_specialize_on_alignment=do_not_specialize_on_alignment, debug=debug, noinline=noinline,
                           repr=repr, launch_metadata=launch_metadata)

    return decorate(fn) if fn is not None else decorate


__all__ = ["JITCallable", "JITFunction", "KernelInterface", "KernelParam", "MockTensor", "TensorWrapper", "jit", "normalise_grid", "reinterpret"]
