"""The NVIDIA target: one frozen object, found through the entry point group ``tilewright.targets``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.targets.nvidia.capabilities import ARCHS, capabilities, resolve_arch
from tilewright.targets.nvidia.knobs import KNOBS
from tilewright.targets.nvidia.language import LANGUAGE
from tilewright.targets.nvidia.matrix_ops import MATRIX_OPS
from tilewright.targets.nvidia.options import NvidiaOptions
from tilewright.targets.nvidia.pipeline import pipeline
from tilewright.targets.nvidia.probe import probe
from tilewright.targets.nvidia.utilities import UTILITIES
from tilewright.targets.nvidia.warp_group_ops import WARP_GROUP_OPS
from tilewright.targets.protocol import API_VERSION, TargetPlugin


def _driver() -> Any:
    from tilewright.targets.nvidia.driver import NvidiaDriver

    return NvidiaDriver()


def _simulator(arch: str) -> Any:
    from tilewright.targets.nvidia.simulated_driver import NvidiaSimulatedDriver

    return NvidiaSimulatedDriver(resolve_arch(arch))


def _hooks(arch: str, options: Any) -> Any:
    from tilewright.targets.nvidia.capabilities import sm_number
    from tilewright.targets.nvidia.lower_hooks import NvidiaHooks

    return NvidiaHooks(sm_number(arch), options)


def _dialects() -> tuple[Any, ...]:
    from tilewright.targets.nvidia.dialect.ttng import TTNG

    return (TTNG,)


def _lowerings() -> Mapping[str, Callable[..., Any]]:
    from tilewright.targets.nvidia import lower_barriers, lower_bulk_copies, lower_pinned, lower_warp_specialize
    from tilewright.targets.nvidia.lower_fp8 import OPS, lower_conversion
    from tilewright.targets.nvidia.lower_math import LOWERINGS
    from tilewright.targets.nvidia.lower_warp_group_dot import LOWERINGS as WARP_GROUP_DOT

    return {**LOWERINGS, **WARP_GROUP_DOT, **dict.fromkeys(OPS, lower_conversion), **lower_barriers.LOWERINGS, **lower_bulk_copies.LOWERINGS,
            **lower_warp_specialize.LOWERINGS, **lower_pinned.LOWERINGS}


def _fingerprint() -> str:
    # on the path of every first launch, cache hit or not: imports nothing heavy and starts no process
    import os
    from importlib.metadata import version

    from tilewright.targets.nvidia.emit import ptxas

    path = ptxas()
    facts = os.stat(path) if path else None
    assembler = f"{path} ({facts.st_size} bytes, {int(facts.st_mtime)})" if facts else "none"
    return f"llvmlite {version('llvmlite')}; ptxas {assembler}"


TARGET = TargetPlugin(
    api=API_VERSION,
    name="nvidia",
    aliases=("cuda",),
    device_types=("cuda",),
    takes_pinned=True,
    archs=ARCHS,
    default_arch="sm_80",
    probe=probe,
    resolve_arch=resolve_arch,
    capabilities=capabilities,
    options=NvidiaOptions,
    pipeline=pipeline,
    driver=_driver,
    fingerprint=_fingerprint,
    binary_stage="cubin",
    source_stage="ptx",
    matrix_ops=lambda: MATRIX_OPS + WARP_GROUP_OPS,
    dialects=_dialects,
    lowerings=_lowerings,
    hooks=_hooks,
    simulator=_simulator,
    knobs=KNOBS,
    utilities=UTILITIES,
    language=LANGUAGE,
)
