"""Drivers of the targets, and the one that is active: ``tilewright.runtime.driver.active``, with Triton's names.

A driver is made on the first launch of its target. ``active`` without a choice is that of ``TILEWRIGHT_TARGET`` or of the first device
detected, else cpu.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tilewright.dialects import settings
from tilewright.dialects.errors import TargetNotFoundError

if TYPE_CHECKING:
    from tilewright.targets import registry
    from tilewright.targets.protocol import GPUTarget

_drivers: dict[tuple[int, str], tuple[Any, Any]] = {}  # (id of the plugin, arch simulated or "") → (the plugin, its driver): kept, so that no other gets its id
_lock = threading.RLock()
_with_code: weakref.WeakSet[Any] = weakref.WeakSet()  # the JITFunctions that may hold compiled kernels
_listens = False


def keeps_code(function: Any) -> None:
    """Have ``function`` (a JITFunction) forget its compiled kernels, or which one it launches, when a plugin, a driver or the choice of one changes."""
    global _listens
    with _lock:
        _with_code.add(function)
        if not _listens:
            from tilewright.targets import registry

            registry.on_change(forget_code)
            _listens = True


def forget_code() -> None:
    """Have every kernel compiled anew at its next launch: a target's name may stand for another plugin."""
    with _lock:
        functions = list(_with_code)
    for function in functions:
        function.forget_kernels()


def forget_choices() -> None:
    """Have every kernel choose its target anew at its next launch."""
    with _lock:
        functions = list(_with_code)
    for function in functions:
        function.forget_entries()


settings.listeners.append(forget_choices)


def driver_of(selection: registry.Selection) -> Any:
    """The target's Driver (or its simulator), made once. Raises DriverNotFoundError where the vendor's is missing."""
    key = (id(selection.plugin), selection.arch if selection.simulate else "")
    with _lock:
        if key in _drivers:
            return _drivers[key][1]
        if selection.simulate:
            assert selection.plugin.simulator is not None
            return _keep_driver(selection, selection.plugin.simulator(selection.arch))
        return _keep_driver(selection, selection.plugin.driver())


def set_driver(selection: registry.Selection, driver: Any) -> None:
    """Let ``driver`` (an object with the methods of targets.protocol.Driver) serve a selection in this process, in place of the target's own."""
    _keep_driver(selection, driver)
    forget_code()  # it is loaded in the driver of before


def _keep_driver(selection: registry.Selection, driver: Any) -> Any:
    with _lock:
        _drivers[id(selection.plugin), selection.arch if selection.simulate else ""] = selection.plugin, driver
    return driver


class _Utils:
    """``driver.active.utils``."""

    def __init__(self, active: ActiveDriver):
        self._active = active

    def get_device_properties(self, device: int = 0) -> Mapping[str, Any]:
        """At least max_shared_mem (bytes), multiprocessor_count and warpSize where the device has them."""
        return self._active.driver.get_device_properties(device)


class ActiveDriver:
    """One target's driver under Triton's names."""

    def __init__(self, selection: registry.Selection):
        self.selection = selection
        self.utils = _Utils(self)

    def __repr__(self) -> str:
        return f"ActiveDriver({self.selection})"

    @property
    def driver(self) -> Any:
        """The plugin's Driver."""
        return driver_of(self.selection)

    def get_current_target(self) -> GPUTarget:
        return self.selection.gpu_target

    def get_current_device(self) -> int:
        return self.driver.current_device()

    def get_current_stream(self, device: int | None = None) -> int:
        return self.driver.current_stream(self.get_current_device() if device is None else device)

    def set_current_device(self, device: int) -> None:
        interface = self.get_device_interface()
        if hasattr(interface, "set_device"):
            interface.set_device(device)

    def get_device_interface(self) -> Any:
        """torch's module for the device (torch.cpu, or its like); imports torch."""
        import torch

        return getattr(torch, self._torch_device_type())

    def _torch_device_type(self) -> str:
        import torch

        for kind in self.selection.plugin.device_types:
            if hasattr(torch, kind):
                return kind
        return "cpu"

    def get_active_torch_device(self) -> Any:
        """torch.device of the current device; imports torch."""
        import torch

        kind = self._torch_device_type()
        return torch.device(kind) if kind == "cpu" else torch.device(kind, self.get_current_device())

    def is_active(self) -> bool:
        from tilewright.targets import registry

        return bool(registry.probe(self.selection.plugin))

    def get_benchmarker(self) -> Callable[..., Any]:
        from tilewright.testing import do_bench

        return do_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        """A buffer whose clearing evicts the device's cache (256 MiB, a torch tensor); imports torch."""
        import torch

        return torch.empty(64 << 20, dtype=torch.int32, device=self.get_active_torch_device())

    def clear_cache(self, cache: Any) -> None:
        cache.zero_()

    def synchronize(self) -> None:
        self.driver.synchronize()

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args


class DriverConfig:
    """``tilewright.runtime.driver``: which driver is active."""

    def __init__(self) -> None:
        self._chosen: Any = None
        self._detected: dict[str, ActiveDriver] = {}
        self.recent: Any = None  # the CompiledKernel launched last, so that do_bench times the target that ran

    def selected(self) -> registry.Selection | None:
        """The target that ``set_active`` chose, or None. Of an object with Triton's driver methods: that of its ``get_current_target()``."""
        if self._chosen is None:
            return None
        if isinstance(self._chosen, ActiveDriver):
            return self._chosen.selection
        from tilewright.targets import registry

        return registry.select(self._chosen.get_current_target())

    @property
    def default(self) -> ActiveDriver:
        from tilewright.targets import registry

        selection = registry.select()
        with _lock:
            key = f"{selection} {id(selection.plugin)}"
            if key not in self._detected:
                self._detected[key] = ActiveDriver(selection)
            return self._detected[key]

    @property
    def active(self) -> Any:
        return self._chosen if self._chosen is not None else self.default

    def set_active(self, driver: Any) -> None:
        """Make an ActiveDriver, a target ("NAME:ARCH:sim", a GPUTarget) or an object with Triton's driver methods the active one."""
        from tilewright.targets import registry
        from tilewright.targets.protocol import GPUTarget

        if isinstance(driver, (str, GPUTarget, registry.Selection)):
            driver = ActiveDriver(registry.select(driver))
        elif driver is not None and not hasattr(driver, "get_current_target"):
            raise TargetNotFoundError(f"set_active takes a target, as text or a GPUTarget, or an object with get_current_target; found {driver!r} "
                                      f"({type(driver).__name__})")
        self._chosen = driver
        forget_choices()

    def reset_active(self) -> None:
        self._chosen = None
        forget_choices()


driver = DriverConfig()
