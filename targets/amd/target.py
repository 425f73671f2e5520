"""The AMD target: one frozen object, found through the entry point group ``tilewright.targets``."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from typing import Any

from tilewright.targets.amd.capabilities import ARCHS, capabilities, resolve_arch
from tilewright.targets.amd.matrix_ops import MATRIX_OPS
from tilewright.targets.amd.options import AmdOptions
from tilewright.targets.amd.pipeline import pipeline
from tilewright.targets.protocol import API_VERSION, Device, TargetPlugin


def _probe() -> list[Device]:
    """GPUs that the amdkfd driver lists in sysfs; reading files initialises nothing."""
    devices: list[Device] = []
    for path in sorted(glob.glob("/sys/class/kfd/kfd/topology/nodes/*/properties")):
        try:
            with open(path) as f:
                facts = dict(line.split(None, 1) for line in f if " " in line)
            version = int(facts.get("gfx_target_version", "0"))
        except (OSError, ValueError):
            continue
        if version:  # 90402 is gfx942: major 9, minor 4, stepping 2 in hexadecimal
            arch = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
            devices.append(Device(len(devices), facts.get("name", "AMD GPU").strip(), arch))
    return devices


def _driver() -> Any:
    from tilewright.targets.amd.driver import AmdDriver

    return AmdDriver()


def _simulator(arch: str) -> Any:
    from tilewright.targets.amd.simulated_driver import AmdSimulatedDriver

    return AmdSimulatedDriver(resolve_arch(arch))


def _hooks(arch: str, options: Any) -> Any:
    from tilewright.targets.amd.lower_hooks import AmdHooks

    return AmdHooks(arch, options)


def _dialects() -> tuple[Any, ...]:
    from tilewright.targets.amd.dialect.amdg import AMDG

    return (AMDG,)


def _lowerings() -> Mapping[str, Callable[..., Any]]:
    from tilewright.targets.amd import lower_buffer_ops, lower_math

    return {**lower_math.LOWERINGS, **lower_buffer_ops.LOWERINGS}


def _fingerprint() -> str:
    # on the path of every first launch, cache hit or not: imports nothing heavy and starts no process
    from importlib.metadata import version

    from tilewright.targets.amd.emit import linker

    return f"llvmlite {version('llvmlite')}; linker {' '.join(linker() or ('none',))}"


TARGET = TargetPlugin(
    api=API_VERSION,
    name="amd",
    aliases=("hip", "rocm"),
    device_types=("hip", "cuda"),  # torch calls AMD's devices "cuda" too
    archs=ARCHS,
    default_arch="gfx942",
    probe=_probe,
    resolve_arch=resolve_arch,
    capabilities=capabilities,
    options=AmdOptions,
    pipeline=pipeline,
    driver=_driver,
    fingerprint=_fingerprint,
    binary_stage="hsaco",
    source_stage="amdgcn",
    matrix_ops=lambda: MATRIX_OPS,
    dialects=_dialects,
    lowerings=_lowerings,
    hooks=_hooks,
    simulator=_simulator,
)
