"""A compiled kernel: its code by stage, its metadata, and its launch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from tilewright import knobs
from tilewright.compiler.options import ignored_ctas
from tilewright.dialects.errors import DeviceAddressError, InternalCompilerError
from tilewright.runtime.arguments import memory_of
from tilewright.runtime.compile_ahead import compiling
from tilewright.runtime.explain import listed, named, report, run_time_names, tell
from tilewright.targets import registry
from tilewright.targets.protocol import GPUTarget, LaunchRequest, NeedsMemory, NeedsVariant


class KernelMetadata:
    """Facts about compiled code, by attribute: name, hash, target, num_warps, num_stages, num_ctas, shared (bytes), …."""

    def __init__(self, values: Mapping[str, Any]):
        values = dict(values)
        target = values.get("target")
        if isinstance(target, Mapping):
            values["target"] = GPUTarget(**target)
        self.__dict__.update({k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})

    @property
    def _fields(self) -> tuple[str, ...]:
        return tuple(sorted(self.__dict__))

    def _asdict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the metadata has no {name!r}; it has {', '.join(sorted(self.__dict__))}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KernelMetadata) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((self.__dict__.get("hash"), self.__dict__.get("name")))

    def __repr__(self) -> str:
        return f"KernelMetadata({', '.join(f'{k}={v!r}' for k, v in sorted(self.__dict__.items()))})"


class LazyDict:
    """A dict for launch hooks whose parts are made when it is read. ``kernel``: the CompiledKernel that is launched."""

    kernel: Any = None

    def __init__(self, data: dict[str, Any]):
        self.data = data
        self.extras: list[tuple[Callable[..., Mapping[str, Any]], tuple[Any, ...]]] = []

    def get(self) -> dict[str, Any]:
        for function, args in self.extras:
            self.data = self.data | dict(function(*args))
        self.extras.clear()
        return self.data

    def add(self, function: Callable[..., Mapping[str, Any]], args: tuple[Any, ...]) -> None:
        self.extras.append((function, args))


def flat_types(types: Sequence[Any]) -> list[str]:
    """Run-time types of a signature in order: tuples and descriptors flattened, constexprs left out."""
    out: list[str] = []
    for t in types:
        if isinstance(t, (tuple, list)):
            out += flat_types(t)
        elif t.startswith("tensordesc<"):
            from tilewright.language.dtypes import str_to_ty

            out += [x.signature_name for x in str_to_ty(t).flat_types]
        elif t != "constexpr":
            out.append(t)
    return out


def _flat_expressions(types: Sequence[Any], whole: str) -> list[str]:
    """Python expressions of the run-time values in ``whole``; a descriptor's value is the tuple of its arguments."""
    out: list[str] = []
    for i, t in enumerate(types):
        if isinstance(t, (tuple, list)):
            out += _flat_expressions(t, f"{whole}[{i}]")
        elif t.startswith("tensordesc<"):
            out.append(f"*{whole}[{i}]")
        elif t != "constexpr":
            out.append(f"{whole}[{i}]")
    return out


def argument_picker(types: Sequence[Any]) -> Callable[[Any], Any] | None:
    """From the values of parameters of these types to the run-time ones, flattened; None where that is all of them as they are."""
    if any(isinstance(t, (tuple, list)) or t.startswith("tensordesc<") for t in types):
        picked = "".join(f"{e}, " for e in _flat_expressions(types, "values"))
        return eval(f"lambda values: ({picked})")  # noqa: S307 - indices only
    wanted = [i for i, t in enumerate(types) if t != "constexpr"]
    if len(wanted) == len(types):
        return None
    if len(wanted) < 2:
        return lambda values: tuple([values[i] for i in wanted])
    return itemgetter(*wanted)


class _Own:
    """A lock that whoever receives a pickle of it gets anew, free. torch.compile pickles the attributes of kernels one by one."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: Any) -> None:
        self._lock.release()

    def __reduce__(self) -> Any:
        return (_Own, ())


class _Loaded(dict):  # type: ignore[type-arg]
    """What is loaded in this process; a pickle of it is empty."""

    def __reduce__(self) -> Any:
        return (_Loaded, ())


class CompiledKernel:
    """What ``compile``, ``warmup`` and a launch return.

    asm: stage → text or bytes, read from the cache when asked for. metadata: see KernelMetadata. n_regs, n_spills: of one thread, where the
    target says. It pickles (the loaded code does not travel) and can be launched as ``kernel[grid](*args)`` with all arguments in order.
    """

    def __init__(self, src: Any, asm: Any, metadata: Mapping[str, Any], key: str, selection: registry.Selection, types: Sequence[Any],
                 given: Mapping[str, Any] | None = None):
        self.src = src
        self.given = dict(given or {})  # the options as they were asked for
        if ignored_ctas(self.given):
            told = {"line": None, "what": f"num_ctas={self.given['num_ctas']}", "chosen": "not followed", "why": "each program is run by one block, with the same results"}
            metadata = {**metadata, "choices": [*(metadata.get("choices") or ()), told]}
        self.asm = asm
        self.metadata = KernelMetadata(metadata)
        self.hash = key
        self.name = self.metadata.name
        self.selection = selection
        self.types = list(types)  # one per parameter, "constexpr" for those that the code has inside
        self.handles: dict[int, Any] = _Loaded()
        self.variants: dict[Any, CompiledKernel] = {}  # options laid over these → the same kernel compiled so
        self.reasons: tuple[str, ...] = ()  # of a variant: why the last launch ran it and not the kernel it was made of
        self.packed_metadata = (self.metadata.num_warps, self.metadata.num_ctas, self.metadata.shared)
        self.module: Any = None
        self.function: Any = None
        self._launcher: Any = None
        self._run: Any = None
        self._load_lock, self._variant_lock = _Own(), _Own()

    def __repr__(self) -> str:
        return f"CompiledKernel({self.name}, {self.selection}, {self.hash[:12]})"

    # ----------------------------------------------------------------------------------------------------------- loading
    @property
    def driver(self) -> Any:
        from tilewright.runtime.driver import driver_of

        return driver_of(self.selection)

    @property
    def launcher(self) -> Callable[..., None]:
        """The driver's launcher for this signature: ``launcher(gx, gy, gz, stream, handle, run-time arguments)``."""
        if self._launcher is None:
            self._launcher = self.driver.make_launcher(flat_types(self.types), self.metadata._asdict())
        return self._launcher

    def load(self, device: int) -> Any:
        """The code loaded on a device, once. Raises OutOfResources where the device cannot run it."""
        with compiling(), self._load_lock:
            handle = self.handles.get(device)
            if handle is None:
                enter, leave = knobs.runtime.kernel_load_start_hook, knobs.runtime.kernel_load_end_hook
                if enter:
                    enter(self.module, self.function, self.name, None, self.hash)
                handle = self.handles[device] = self.driver.load(self.asm, self.metadata._asdict(), device)
                self.module = handle
                self.function = getattr(handle, "function", handle)
                if leave:
                    leave(self.module, self.function, self.name, None, self.hash)
            return handle

    def _init_handles(self) -> None:
        """Load on the current device."""
        self.load(self.driver.current_device())

    def _resource(self, attribute: str, field: str) -> Any:
        if self.module is None and not self.handles and self.metadata._asdict().get(field) is None:
            return None
        value = getattr(self.module, attribute, None)
        return self.metadata._asdict().get(field) if value is None else value

    @property
    def n_regs(self) -> int | None:
        """Registers of a thread; None where neither the assembler nor the loaded code says."""
        return self._resource("n_regs", "registers")

    @property
    def n_spills(self) -> int | None:
        """Spilled bytes or registers, as the target counts; None where unknown."""
        return self._resource("n_spills", "spills")

    @property
    def kernel(self) -> Any:
        """The binary stage."""
        return self.asm[self.selection.plugin.binary_stage]

    # --------------------------------------------------------------------------------------------------------- launching
    def variant(self, options: Mapping[str, Any]) -> CompiledKernel:
        """This kernel compiled with ``options`` laid over its own; compiled, or read from the cache, once."""
        from tilewright.compiler.compiler import compile_selected

        key = tuple(sorted(options.items()))
        with self._variant_lock:
            found = self.variants.get(key)
            if found is None:
                given = {**self.given, **options}
                if given == self.given:
                    raise InternalCompilerError(f"{self.name}: its launcher asks for options {dict(options)}, which it was compiled with")
                found = self.variants[key] = compile_selected(self.src, self.selection, given)
            return found

    def answer(self, request: LaunchRequest, gx: int, gy: int, gz: int, stream: Any, device: int, values: Any,
               arguments: Sequence[Any]) -> CompiledKernel:
        """Launch as the launcher's ``request`` demands; returns the kernel that ran. ``values``: what the launcher was given;
        ``arguments``: what they were made of (arrays where ``values`` has addresses)."""
        if isinstance(request, NeedsMemory):
            try:
                self.launcher(gx, gy, gz, stream, self.load(device), values, memory=memory_of(arguments))
                return self
            except NeedsVariant as variant_request:
                request = variant_request
        if not isinstance(request, NeedsVariant):
            raise request
        variant = self.variant(request.options)
        if variant.reasons != request.reasons:
            variant.reasons = request.reasons
            tell((variant.hash, request.reasons), self.name, [named(f"launched with {listed(request.options)}: {r}", self.argument_names) for r in request.reasons])
        try:
            variant.launcher(gx, gy, gz, stream, variant.load(device), values)
        except DeviceAddressError as error:
            raise DeviceAddressError(f"{self.name}: {named(str(error), self.argument_names)}") from None
        except LaunchRequest as further:
            return variant.answer(further, gx, gy, gz, stream, device, values, arguments)
        return variant

    @property
    def argument_names(self) -> list[str]:
        """The user's names for the run-time arguments, in order; none where the kernel came as IR."""
        signature = getattr(self.src, "signature", None)
        return run_time_names(signature) if isinstance(signature, Mapping) else []

    @property
    def written(self) -> frozenset[str]:
        """Names of the run-time arguments that the kernel stores through, as far as its tt text tells; read when it is first asked for."""
        found: frozenset[str] | None = self.__dict__.get("_written")
        if found is None:
            found = frozenset()
            if "ttir" in self.asm:
                from tilewright.dialects._mlir import ir
                from tilewright.dialects.analysis.written_arguments import written_arguments
                from tilewright.dialects.context import mlir_context

                names = self.argument_names
                with mlir_context():
                    found = frozenset(names[i] for i in written_arguments(ir.Module.parse(self.asm["ttir"]), self.name) if i < len(names))
            self._written = found
        return found

    def explain(self) -> str:
        """What the compiler chose and why: the choices, what is checked and made at a launch, and of a variant why it ran."""
        names = self.argument_names
        because = [f"launched with {listed(self.given)} because of {r}" for r in self.reasons]
        lines = [*because, *report(self.metadata._asdict(), names)]
        return "\n".join([f"{self.name} for {self.selection}", *(named(line, names) for line in lines)])

    def launch_metadata(self, grid: Any, stream: Any, *args: Any) -> LazyDict:
        """What launch hooks are told: name, function, stream, and what the kernel's own ``launch_metadata`` adds."""
        record = LazyDict({"name": self.name, "function": self.function, "stream": stream})
        record.kernel = self
        fn: Any = getattr(self.src, "fn", None)
        extra = getattr(fn, "launch_metadata", None)
        if extra is not None:
            named = dict(zip(fn.arg_names, args))
            record.add(lambda g, metadata, kw: extra(g, metadata, kw), (grid, self.metadata, named))
        return record

    @property
    def run(self) -> Callable[..., None]:
        """Triton's launcher: ``run(gx, gy, gz, stream, function, packed_metadata, launch_metadata, enter_hook, exit_hook, *args)``, with all
        of the kernel's arguments in order, constexprs included."""
        if self._run is None:
            from tilewright.runtime.driver import driver as active
            from tilewright.runtime.specialize import FAST

            self._init_handles()
            driver, launcher, fast = self.driver, self.launcher, FAST[0]
            pick = argument_picker(self.types)

            def value(kind: Any, arg: Any) -> Any:
                return arg if kind == "constexpr" else fast[type(arg)](arg)[1]

            def run(gx: int, gy: int, gz: int, stream: Any, function: Any, packed: Any, record: Any, enter: Any, leave: Any,
                    *args: Any) -> None:
                values = tuple(map(value, self.types, args))
                if enter:
                    enter(record)
                if gx and gy and gz:
                    device = driver.current_device()
                    picked = pick(values) if pick else values
                    ran: CompiledKernel = self
                    try:
                        launcher(gx, gy, gz, stream, self.handles.get(device) or self.load(device), picked)
                    except LaunchRequest as request:
                        ran = self.answer(request, gx, gy, gz, stream, device, picked, args)
                    active.recent = ran
                if leave:
                    leave(record)

            self._run = run
        return self._run

    @run.setter
    def run(self, value: Any) -> None:
        self._run = value

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        from tilewright.runtime.jit import normalise_grid

        def launch(*args: Any, stream: Any = None) -> None:
            gx, gy, gz = normalise_grid(grid)
            self._check_arguments(args)
            run = self.run
            if stream is None:
                stream = self.driver.current_stream(self.driver.current_device())
            enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
            record = self.launch_metadata((gx, gy, gz), stream, *args) if enter or leave else None
            run(gx, gy, gz, stream, self.function, self.packed_metadata, record, enter or None, leave or None, *args)

        return launch

    def _check_arguments(self, args: Sequence[Any]) -> None:
        """Raise where the arguments of a launch are not those that the code was made for."""
        from tilewright.bundle import misfit
        from tilewright.runtime.errors import ArgumentError, LaunchSignatureError

        names = [str(n) for n in getattr(self.src, "signature", range(len(self.types)))]
        needed = max((i + 1 for i, t in enumerate(self.types) if t != "constexpr"), default=0)
        if not needed <= len(args) <= len(self.types):
            raise LaunchSignatureError(f"{self.name} is compiled for the arguments {', '.join(names)}, all of them by position; {len(args)} were given")
        attrs = getattr(self.src, "attrs", {})
        for i, (name, kind, value) in enumerate(zip(names, self.types, args)):
            if isinstance(kind, str) and kind != "constexpr" and value is not None and type(value).__name__ != "bool_":
                why = misfit(kind, any(pair[0] == "tt.divisibility" for pair in attrs.get((i,), ())), value)
                if why:
                    raise ArgumentError(f"argument {name!r} of {self.name}: {why}")

    # ---------------------------------------------------------------------------------------------------------- pickling
    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.update(variants={}, module=None, function=None, _launcher=None, _run=None)
        return state
