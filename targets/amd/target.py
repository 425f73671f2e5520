"""The AMD target: one frozen object, found through the entry point group ``tilewright.targets``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.targets.amd.capabilities import ARCHS, capabilities, resolve_arch
from tilewright.targets.amd.knobs import KNOBS
from tilewright.targets.amd.language import LANGUAGE
from tilewright.targets.amd.matrix_ops import MATRIX_OPS, SCALED_OPS
from tilewright.targets.amd.options import AmdOptions
from tilewright.targets.amd.pipeline import pipeline
from tilewright.targets.amd.probe import probe
from tilewright.targets.amd.utilities import UTILITIES
from tilewright.targets.protocol import API_VERSION, TargetPlugin


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
    from tilewright.targets.amd import lower_buffer_atomics, lower_buffer_ops, lower_dot_scaled, lower_math

    return {**lower_math.LOWERINGS, **lower_buffer_ops.LOWERINGS, **lower_buffer_atomics.LOWERINGS,
            **lower_dot_scaled.LOWERINGS}


def _fingerprint() -> str:
    # on the path of every first launch, cache hit or not: imports nothing heavy and starts no process
    from importlib.metadata import version

    from tilewright.targets.amd.emit import linker

    return f"llvmlite {version('llvmlite')}; linker {' '.join(linker() or ('none',))}"


TARGET = TargetPlugin(
    api=API_VERSION,
    name="amd",
    aliases=("hip", "rocm"),
    takes_pinned=True,
    device_types=("hip", "cuda"),  # torch calls AMD's devices "cuda" too
    archs=ARCHS,
    default_arch="gfx942",
    probe=probe,
    resolve_arch=resolve_arch,
    capabilities=capabilities,
    options=AmdOptions,
    pipeline=pipeline,
    driver=_driver,
    fingerprint=_fingerprint,
    binary_stage="hsaco",
    source_stage="amdgcn",
    matrix_ops=lambda: MATRIX_OPS + SCALED_OPS,
    dialects=_dialects,
    lowerings=_lowerings,
    hooks=_hooks,
    simulator=_simulator,
    knobs=KNOBS,
    utilities=UTILITIES,
    language=LANGUAGE,
)
