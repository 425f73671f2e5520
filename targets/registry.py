"""Which targets there are, and which one runs.

Targets are entry points of the group ``tilewright.targets``, each naming a ``TargetPlugin``. They are loaded when asked for by name or
alias; one that cannot be loaded keeps its error, which ``entries()`` shows, and harms no other.

A selection is text ``NAME[:ARCH[:sim]]`` ("cpu", "nvidia:sm_80", "amd:gfx942:sim"), a ``GPUTarget``, or nothing: then ``TILEWRIGHT_TARGET``,
else the device of the arguments, else the first target that detects a device, else cpu.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from tilewright.dialects.errors import TargetNotFoundError, UnsupportedArchError
from tilewright.targets.protocol import API_VERSION, Device, GPUTarget, TargetPlugin

GROUP = "tilewright.targets"
DETECTION_ORDER = ("nvidia", "amd")  # others follow in name order; cpu is the last
FALLBACK = "cpu"

# What array protocols call the place where data lies; plugins name these in ``device_types``.
DLPACK_DEVICE_TYPES = {1: "cpu", 2: "cuda", 3: "cpu", 4: "opencl", 7: "vulkan", 8: "metal", 10: "hip", 11: "cpu", 13: "cuda", 14: "xpu"}
ARRAY_PROTOCOLS = {"__array_interface__": "cpu", "__cuda_array_interface__": "cuda"}


@dataclass
class TargetEntry:
    """One known target: its name, where it comes from, and after loading its plugin or the error that loading gave."""

    name: str
    origin: str
    point: Any = None
    plugin: TargetPlugin | None = None
    error: Exception | None = None
    in_process: bool = False

    def load(self) -> TargetPlugin:
        """The plugin, imported on the first call. Raises TargetNotFoundError with the plugin's own error in it."""
        if self.plugin is None and self.error is None:
            try:
                plugin = self.point.load()
                if not isinstance(plugin, TargetPlugin):
                    raise TypeError(f"{self.origin} is a {type(plugin).__name__}, not a TargetPlugin")
                if plugin.api != API_VERSION:
                    raise TypeError(f"it is written for version {plugin.api} of the target protocol; this Tilewright has {API_VERSION}")
                self.plugin = plugin
            except Exception as error:  # a broken plugin harms nothing else
                self.error = error
        if self.plugin is None:
            raise TargetNotFoundError(f"target {self.name!r} ({self.origin}) cannot be loaded: "
                                      f"{type(self.error).__name__}: {self.error}") from self.error
        return self.plugin


@dataclass(frozen=True)
class Selection:
    """What to compile for and run on: a plugin, one of its archs, and whether its simulator stands in for the device."""

    plugin: TargetPlugin
    arch: str
    simulate: bool = False

    @property
    def gpu_target(self) -> GPUTarget:
        return gpu_target(self.plugin, self.arch)

    def __reduce__(self) -> Any:
        return (_selected, (self.plugin.name, self.arch, self.simulate))  # a plugin's functions do not travel; its name does

    def __str__(self) -> str:
        return f"{self.plugin.name}:{self.arch}" + (":sim" if self.simulate else "")


_lock = threading.RLock()
_entries: dict[str, TargetEntry] | None = None
_on_change: list[Callable[[], object]] = []


def _known() -> dict[str, TargetEntry]:
    global _entries
    with _lock:
        if _entries is None:
            found: dict[str, TargetEntry] = {}
            for point in metadata.entry_points(group=GROUP):
                found.setdefault(point.name, TargetEntry(point.name, point.value, point))
            _entries = dict(sorted(found.items(), key=lambda item: _rank(item[0])))
        return _entries


def _rank(name: str) -> tuple[int, str]:
    if name == FALLBACK:
        return (len(DETECTION_ORDER) + 1, name)
    return (DETECTION_ORDER.index(name) if name in DETECTION_ORDER else len(DETECTION_ORDER), name)


def _selected(name: str, arch: str, simulate: bool) -> Selection:
    return Selection(get(name), arch, simulate)


def on_change(forget: Callable[[], object]) -> None:
    """Have ``forget()`` called whenever a name may stand for another plugin than before: for whoever keeps what a plugin has made."""
    _on_change.append(forget)


def _changed() -> None:
    for forget in _on_change:
        forget()


def reload() -> None:
    """Forget what is known, so that packages installed since then are found (and in-process registrations are lost)."""
    global _entries
    with _lock:
        _entries = None
    _changed()


def register(plugin: TargetPlugin) -> None:
    """Make a plugin known in this process, or replace the one of its name (an edited pipeline, a test's target). Kernels are compiled anew."""
    with _lock:
        known = _known()
        known[plugin.name] = TargetEntry(plugin.name, "registered in this process", plugin=plugin, in_process=True)
    _changed()


def unregister(name: str) -> None:
    """Undo ``register``; an entry point of that name is found again."""
    with _lock:
        known = _known()
        known.pop(name, None)
        for point in metadata.entry_points(group=GROUP):
            if point.name == name:
                known[name] = TargetEntry(name, point.value, point)
    _changed()


def names() -> list[str]:
    """Names of all targets, in the order of detection; loads none."""
    return sorted(_known(), key=_rank)


def entries(load: bool = True) -> list[TargetEntry]:
    """All targets in the order of detection, loaded where possible; a broken one has ``error`` set."""
    result = [_known()[name] for name in names()]
    if load:
        for entry in result:
            try:
                entry.load()
            except TargetNotFoundError:
                pass
    return result


def plugins() -> list[TargetPlugin]:
    """The plugins that load, in the order of detection."""
    return [entry.plugin for entry in entries() if entry.plugin is not None]


def get(name: str) -> TargetPlugin:
    """The plugin of that name or alias. Raises TargetNotFoundError naming those known, or giving the plugin's error."""
    known = _known()
    if name in known:
        return known[name].load()
    broken = []
    for entry in entries():
        if entry.plugin is None:
            broken.append(f"{entry.name} ({type(entry.error).__name__}: {entry.error})")
        elif name in entry.plugin.aliases:
            return entry.plugin
    listed = ", ".join(sorted({n for p in plugins() for n in (p.name, *p.aliases)}))
    text = f"no target {name!r}; known: {listed or 'none'}"
    if meant := [f"{p.name}:{name}" for p in plugins() if name in p.archs]:
        text += f"; an arch is written {' or '.join(meant)}"
    if broken:
        text += f"; broken: {'; '.join(broken)}"
    raise TargetNotFoundError(text)


def is_in_process(plugin: TargetPlugin) -> bool:
    """Whether the plugin was handed to ``register``, so that its code is not described by an installed package."""
    entry = _known().get(plugin.name)
    return entry is None or entry.in_process or entry.plugin is not plugin


def probe(plugin: TargetPlugin) -> list[Device]:
    """Devices of that target; a probe that raises has none."""
    try:
        return list(plugin.probe())
    except Exception:
        return []


def gpu_target(plugin: TargetPlugin, arch: str) -> GPUTarget:
    """The triple as Triton writes it: backend is the first alias, arch ``capabilities.extra["triton_arch"]`` where given."""
    capabilities = plugin.capabilities(arch)
    return GPUTarget((*plugin.aliases, plugin.name)[0], capabilities.extra.get("triton_arch", arch), capabilities.warp_size)


def default_arch(plugin: TargetPlugin) -> str:
    """The arch of the first device found, else the plugin's default."""
    devices = probe(plugin)
    return plugin.resolve_arch(devices[0].arch) if devices else plugin.default_arch


def parse(text: str) -> Selection:
    """``NAME[:ARCH[:sim]]`` or ``NAME::sim``. Raises TargetNotFoundError or UnsupportedArchError."""
    parts = [part.strip() for part in text.split(":")]
    if not parts[0] or len(parts) > 3 or (len(parts) == 3 and parts[2] != "sim"):
        raise TargetNotFoundError(f"a target is written NAME[:ARCH[:sim]], such as cpu, nvidia:sm_90a or amd:gfx942:sim; found {text!r}")
    plugin = get(parts[0])
    simulate = len(parts) == 3
    wanted: str | int = parts[1] if len(parts) > 1 else ""
    arch = plugin.resolve_arch(int(wanted) if isinstance(wanted, str) and wanted.isdigit() else wanted) if wanted else default_arch(plugin)
    if simulate and plugin.simulator is None:
        raise UnsupportedArchError(f"target {plugin.name!r} has no simulator; leave out ':sim'")
    return Selection(plugin, arch, simulate)


def from_device_types(device_types: Iterable[str]) -> Selection | None:
    """The target on which arguments of these device types live: cpu if it takes them all, else one that has a device, else the first."""
    wanted = set(device_types)
    if not wanted:
        return None
    if FALLBACK in _known():  # arrays of the host: no other plugin need be loaded to know
        try:
            host = get(FALLBACK)
        except TargetNotFoundError:
            pass
        else:
            if wanted <= set(host.device_types):
                return Selection(host, default_arch(host))
    matching = [p for p in plugins() if wanted <= set(p.device_types)]
    for plugin in matching:
        devices = probe(plugin)
        if devices:
            return Selection(plugin, plugin.resolve_arch(devices[0].arch))
    return Selection(matching[0], matching[0].default_arch) if matching else None


def detect() -> Selection:
    """The first target that has a device, else cpu."""
    for plugin in plugins():
        if plugin.name == FALLBACK:
            continue
        devices = probe(plugin)
        if devices:
            return Selection(plugin, plugin.resolve_arch(devices[0].arch))
    plugin = get(FALLBACK)
    return Selection(plugin, default_arch(plugin))


def select(target: Any = None, device_types: Sequence[str] = ()) -> Selection:
    """The target to use. ``target``: text, a GPUTarget, a Selection, or None to decide as the module's text says."""
    if isinstance(target, Selection):
        return target
    if isinstance(target, str):
        return parse(target)
    if target is not None:
        backend, arch = getattr(target, "backend", None), getattr(target, "arch", None)
        if backend is None:
            raise TargetNotFoundError(f"a target is text or a GPUTarget; found {target!r}")
        plugin = get(backend)
        found = plugin.resolve_arch(arch) if arch not in (None, "") else default_arch(plugin)
        lanes, asked = plugin.capabilities(found).warp_size, getattr(target, "warp_size", 0)
        if asked not in (0, None, lanes) and lanes > 1:  # torch.compile asks 32 of every target, also of those without warps
            raise UnsupportedArchError(f"{plugin.name}:{found} has warps of {lanes} lanes; found {target!r}")
        return Selection(plugin, found)
    chosen = os.environ.get("TILEWRIGHT_TARGET")
    if chosen:
        try:
            return parse(chosen)
        except (TargetNotFoundError, UnsupportedArchError) as error:
            raise type(error)(f"the environment variable TILEWRIGHT_TARGET is {chosen!r}: {error}") from error.__cause__
    return from_device_types(device_types) or detect()


def origin_folder(plugin: TargetPlugin) -> str | None:
    """The folder of the module that an installed plugin comes from; None for one registered in the process."""
    entry = _known().get(plugin.name)
    if entry is None or entry.point is None or entry.plugin is not plugin:
        return None
    module = sys.modules.get(entry.point.value.split(":")[0])
    file = getattr(module, "__file__", None)
    return os.path.dirname(file) if file else None
