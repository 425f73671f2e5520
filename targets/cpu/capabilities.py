"""What the shared passes may know of a CPU: a program is one thread, tiles live in cache."""

from __future__ import annotations

import platform

from tilewright.dialects.errors import UnsupportedArchError
from tilewright.targets.protocol import Capabilities

# arch → LLVM's (triple, cpu, features); "native" is asked of the host when used
ARCHS = ("native", "x86-64-v3", "x86-64-v4", "aarch64")


def resolve_arch(arch: int | str) -> str:
    """"" and 0 mean the host's processor."""
    name = str(arch) if arch not in ("", 0, None) else "native"
    if name not in ARCHS:
        raise UnsupportedArchError(f"cpu: unknown architecture {arch!r}; known: {', '.join(ARCHS)}")
    return name


def host_is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def capabilities(arch: str) -> Capabilities:
    return Capabilities(arch=resolve_arch(arch), warp_size=1, max_shared_bytes=1 << 30, max_threads=1, max_vector_bits=512,
                        float8_types=("f8E5M2", "f8E4M3FN"))
