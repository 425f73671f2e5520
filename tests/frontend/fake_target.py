"""A target for tests of the runtime: it makes no code, and its driver records launches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilewright.compiler.source import ASTSource
from tilewright.dialects.errors import UnsupportedArchError
from tilewright.dialects.pipeline import Pipeline, Stage
from tilewright.targets import registry
from tilewright.targets.protocol import Capabilities, CommonOptions, Device, TargetPlugin


@dataclass(frozen=True)
class Options(CommonOptions):
    speed: str = "normal"


class Handle:
    n_regs, n_spills, function = 7, 0, 1234


class Timer:
    """Every run takes as many milliseconds as the last launch said."""

    def __init__(self, driver: FakeDriver):
        self.driver = driver

    def start(self) -> None: ...

    def stop(self) -> None:
        self.ms = self.driver.next_ms

    def elapsed_ms(self) -> float:
        return self.ms


class FakeDriver:
    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.loads: list[tuple[Any, ...]] = []
        self.signatures: list[list[str]] = []
        self.device = 0
        self.next_ms = 1.0
        self.on_launch: Any = None

    def current_device(self) -> int:
        return self.device

    def current_stream(self, device: int) -> int:
        return 100 + device

    def load(self, asm: Any, metadata: Any, device: int) -> Handle:
        self.loads.append((asm["bin"], dict(metadata), device))
        return Handle()

    def make_launcher(self, signature: Any, metadata: Any) -> Any:
        self.signatures.append(list(signature))
        metadata = dict(metadata)

        def launch(gx: int, gy: int, gz: int, stream: int, handle: Any, args: Any) -> None:
            assert isinstance(handle, Handle)
            self.launches.append(((gx, gy, gz), stream, tuple(args), metadata["name"]))
            if self.on_launch:
                self.on_launch(metadata)

        return launch

    def synchronize(self) -> None: ...

    def get_device_properties(self, device: int) -> dict[str, Any]:
        return {"max_shared_mem": 1024, "multiprocessor_count": 3}

    def event_timer(self) -> Timer:
        return Timer(self)


class Fake:
    """A plugin with what it saw: ``contexts`` of compilations, ``driver``."""

    def __init__(self, name: str = "fake", device_types: tuple[str, ...] = ("cpu",), fingerprint: str = "tools 1", fail: Any = None):
        # fail(ctx) → the error to raise while compiling, or None
        self.contexts: list[Any] = []
        self.driver = FakeDriver()
        self.fail = fail

        def text(module: Any, ctx: Any) -> str:
            self.contexts.append(ctx)
            error = self.fail(ctx) if self.fail is not None else None
            if error is not None:
                raise error
            ctx.metadata["shared"] = 64
            return f"text of {ctx.kernel_name} for {ctx.arch}"

        def resolve(arch: Any) -> str:
            arch = f"f{arch}" if isinstance(arch, int) else arch
            if arch not in ("f1", "f2"):
                raise UnsupportedArchError(f"{name} has no arch {arch!r}; it has f1, f2")
            return arch

        stages = (Stage("ttir"), Stage("text", translate=text), Stage("bin", translate=lambda code, ctx: code.encode() + b"\x00\xff"))
        self.plugin = TargetPlugin(
            api=1, name=name, aliases=(f"{name}backend",), device_types=device_types, archs=("f1", "f2"), default_arch="f1",
            probe=lambda: [Device(0, "Fake One", "f1")], resolve_arch=resolve,
            capabilities=lambda arch: Capabilities(arch, 32, 1024, extra={"triton_arch": int(arch[1:])}), options=Options,
            pipeline=lambda arch, options: Pipeline(stages), driver=lambda: self.driver, fingerprint=lambda: fingerprint,
            binary_stage="bin", source_stage="text")


MODULE = 'module { func.func @kernel() attributes {tt.kernel} { return } }'


def stand_in_module(self: Any, selection: Any, options: Any) -> Any:
    """Instead of the code generator: any module."""
    from tilewright.dialects._mlir import ir

    return ir.Module.parse(MODULE)


@contextmanager
def selected(monkeypatch: Any, folder: Any, *kernels: Any, driver: Any = None) -> Iterator[Fake]:
    """The target, registered and chosen for launches, with ``driver`` in the place of its own; ``folder`` is the cache's, and ``kernels`` have not been launched."""
    target = Fake()
    target.driver = driver or target.driver
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(folder))
    monkeypatch.setenv("TILEWRIGHT_TARGET", "fake:f1")
    monkeypatch.setattr(ASTSource, "make_module", stand_in_module)
    for kernel in kernels:
        monkeypatch.setattr(kernel, "_entries", {})
        monkeypatch.setattr(kernel, "_kernels", {})
    registry.register(target.plugin)
    try:
        yield target
    finally:
        registry.unregister("fake")
