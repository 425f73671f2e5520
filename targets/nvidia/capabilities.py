"""Facts about NVIDIA's architectures, from the CUDA programming guide's table of compute capabilities and the PTX manual."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilewright.dialects.errors import UnsupportedArchError
from tilewright.targets.nvidia.matrix_ops import rows_for
from tilewright.targets.protocol import Capabilities


@dataclass(frozen=True)
class _Arch:
    """shared_kib: largest dynamic shared memory a block may opt into. ptx: the PTX version that is emitted. max_num_ctas: blocks of the largest
    cluster, the not portable sizes included."""

    shared_kib: int
    ptx: int
    fp8: tuple[str, ...] = ("f8E5M2", "f8E4M3FN")
    max_num_ctas: int = 1
    extra: dict[str, bool] = field(default_factory=dict)


_ARCHS: dict[str, _Arch] = {
    "sm_80": _Arch(163, 80, ("f8E5M2",)),
    "sm_86": _Arch(99, 80, ("f8E5M2",)),
    "sm_87": _Arch(163, 80, ("f8E5M2",)),
    "sm_89": _Arch(99, 84),
    "sm_90a": _Arch(227, 84, max_num_ctas=16),
    "sm_100a": _Arch(227, 86, max_num_ctas=16),
    "sm_120a": _Arch(99, 87, max_num_ctas=16),
}
ARCHS = tuple(_ARCHS)


def sm_number(arch: str) -> int:
    """90 of "sm_90a"."""
    return int(re.sub(r"\D", "", arch))


def ptx_version(arch: str) -> int:
    """84 for PTX 8.4."""
    return _ARCHS[resolve_arch(arch)].ptx


def resolve_arch(arch: int | str) -> str:
    """90, "90", "sm_90" and "sm_90a" → "sm_90a" (from sm_90 on, the variant with the architecture's own instructions);
    80 → "sm_80"."""
    name = "sm_" + str(arch).removeprefix("sm_").removeprefix("sm")
    if name not in _ARCHS and f"{name}a" in _ARCHS:
        name += "a"
    if name not in _ARCHS:
        raise UnsupportedArchError(f"nvidia: unknown architecture {arch!r}; known: {', '.join(_ARCHS)}")
    return name


def capabilities(arch: str) -> Capabilities:
    """What the shared passes may use on ``arch``. Async copies are ``cp.async`` (4, 8 or 16 bytes a thread)."""
    name = resolve_arch(arch)
    facts, sm = _ARCHS[name], sm_number(name)
    hopper = name == "sm_90a"
    return Capabilities(arch=name, warp_size=32, max_shared_bytes=facts.shared_kib * 1024, matrix_ops=tuple(r.name for r in rows_for(sm)),
                        async_copy_bytes=(16, 8, 4), float8_types=facts.fp8, max_num_ctas=facts.max_num_ctas,
                        extra={"sm": sm, "triton_arch": sm, "ptx_version": facts.ptx, "has_wgmma": name == "sm_90a", "has_tma": sm >= 90,
                               "warp_group_dots": hopper, "bulk_copies": hopper, "registers_per_core": 65536})
