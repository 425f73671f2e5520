"""The CPU target: one frozen object, found through the entry point group ``tilewright.targets``."""

from __future__ import annotations

import platform
from typing import Any

from tilewright.targets.cpu.capabilities import ARCHS, capabilities, resolve_arch
from tilewright.targets.cpu.options import CpuOptions
from tilewright.targets.cpu.pipeline import pipeline
from tilewright.targets.protocol import API_VERSION, Device, TargetPlugin


def _probe() -> list[Device]:
    return [Device(0, platform.processor() or platform.machine(), "native")]


def _driver() -> Any:
    from tilewright.targets.cpu.driver import CpuDriver

    return CpuDriver()


def _fingerprint() -> str:
    from tilewright.targets.cpu.emit import fingerprint

    return fingerprint()


TARGET = TargetPlugin(
    api=API_VERSION,
    name="cpu",
    aliases=(),
    device_types=("cpu",),
    archs=ARCHS,
    default_arch="native",
    probe=_probe,
    resolve_arch=resolve_arch,
    capabilities=capabilities,
    options=CpuOptions,
    pipeline=pipeline,
    driver=_driver,
    fingerprint=_fingerprint,
    binary_stage="obj",
    source_stage="asm",
)
