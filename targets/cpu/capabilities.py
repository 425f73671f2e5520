"""What the shared passes may know of a CPU (a program is one thread, tiles live in cache), and how LLVM names each arch."""

from __future__ import annotations

import os
import platform
from functools import cache

from tilewright.dialects.errors import UnsupportedArchError
from tilewright.dialects.fp8 import FP8
from tilewright.targets.protocol import Capabilities

# "native" is asked of the host when used
ARCHS = ("native", "x86-64-v3", "x86-64-v4", "aarch64")


def resolve_arch(arch: int | str) -> str:
    """"" and 0 mean the processor that the environment variable TILEWRIGHT_CPU names, else the host's.

    Raises UnsupportedArchError for an unknown name."""
    name = str(arch) if arch not in ("", 0, None) else os.environ.get("TILEWRIGHT_CPU") or "native"
    if name not in ARCHS:
        raise UnsupportedArchError(f"cpu: unknown architecture {name!r}; known: {', '.join(ARCHS)}")
    return name


def host_is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


@cache
def machine_of(arch: str) -> tuple[str, str, str]:
    """LLVM's (triple, cpu, features)."""
    if arch != "native":
        triple = "aarch64-unknown-linux-gnu" if arch == "aarch64" else "x86_64-unknown-linux-gnu"
        return triple, "generic" if arch == "aarch64" else arch, ""
    import llvmlite.binding as llvm

    features = llvm.get_host_cpu_features().flatten()
    if "+avx512f" in features:
        features += ",-prefer-256-bit"
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), features


@cache
def vector_bits(arch: str) -> int:
    """Bits of the widest vector register: 512, 256 or 128."""
    if arch != "native":
        return {"x86-64-v4": 512, "x86-64-v3": 256}.get(arch, 128)
    features = machine_of(arch)[2].split(",") if host_is_x86() else []
    return 512 if "+avx512f" in features and "+avx512vl" in features else 256 if "+avx2" in features else 128


def capabilities(arch: str) -> Capabilities:
    arch = resolve_arch(arch)
    return Capabilities(arch=arch, warp_size=1, max_shared_bytes=1 << 30, max_threads=1, max_vector_bits=vector_bits(arch),
                        float8_types=tuple(FP8))
