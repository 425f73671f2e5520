"""Facts about AMD's architectures, from the ISA manuals and LLVM's AMDGPU user guide."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tilewright.dialects.errors import UnsupportedArchError
from tilewright.dialects.shared_model import SharedModel
from tilewright.targets.amd.buffers import atomic_instruction
from tilewright.targets.amd.matrix_ops import fed_rows, rows_for
from tilewright.targets.protocol import Capabilities


@dataclass(frozen=True)
class _Arch:
    warp_size: int
    lds_bytes: int
    lds_banks: int
    vgprs: int
    fp8: tuple[str, ...] = ()


_FNUZ = ("f8E4M3FNUZ", "f8E5M2FNUZ")
_OCP = ("f8E4M3FN", "f8E5M2")
_ARCHS: dict[str, _Arch] = {
    "gfx90a": _Arch(64, 64 * 1024, 32, 512),
    "gfx942": _Arch(64, 64 * 1024, 32, 512, _FNUZ),
    "gfx950": _Arch(64, 160 * 1024, 64, 512, _OCP),
    "gfx1030": _Arch(32, 64 * 1024, 32, 256),
    "gfx1100": _Arch(32, 64 * 1024, 32, 256),
    "gfx1101": _Arch(32, 64 * 1024, 32, 256),
    "gfx1102": _Arch(32, 64 * 1024, 32, 256),
    "gfx1200": _Arch(32, 64 * 1024, 32, 256, _OCP),
    "gfx1201": _Arch(32, 64 * 1024, 32, 256, _OCP),
}
ARCHS = tuple(_ARCHS)

# Lanes that a ds_read_b128 serves together: {0–3, 20–23} and its cosets on CDNA 3 and RDNA 3, {0–3, 12–15, 20–23, 24–27} on CDNA 4, in order on
# RDNA 4. AMD's Composable Kernel documentation ("Understanding AMD GPU LDS and bank conflicts") gives CDNA's; the others were measured by
# the amd-shark-ai project (docs/empirical-lds). Writes and narrower reads go by lanes in order. gfx90a and gfx1030 are taken to be like
# their successors. ds_read_b64_tr_b16, _b8: CDNA 4 manual, "LDS transpose loads".
_LIKE_CDNA3 = SharedModel(32, MappingProxyType({16: (1, 2, 20)}))
_CDNA4 = SharedModel(64, MappingProxyType({16: (1, 2, 12, 20)}), MappingProxyType({16: 8, 8: 8}))
_SHARED = {name: _CDNA4 if name == "gfx950" else SharedModel(32) if name.startswith("gfx12") else _LIKE_CDNA3 for name in _ARCHS}


def resolve_arch(arch: int | str) -> str:
    """"gfx942", also with feature suffixes as the runtime reports them ("gfx942:sramecc+:xnack-")."""
    name = str(arch).split(":")[0]
    if name not in _ARCHS:
        raise UnsupportedArchError(f"amd: unknown architecture {arch!r}; known: {', '.join(_ARCHS)}")
    return name


def _why_decomposed(node: Any, ctx: Any) -> str | None:
    from tilewright.targets.amd.scaled_dots import why_decomposed

    return why_decomposed(node, ctx)


def capabilities(arch: str) -> Capabilities:
    """What the shared passes may use on ``arch``. No async copies: loads are prefetched through registers."""
    name = resolve_arch(arch)
    facts = _ARCHS[name]
    return Capabilities(arch=name, warp_size=facts.warp_size, max_shared_bytes=facts.lds_bytes, registers_per_thread=facts.vgprs,
                        matrix_ops=tuple(row.name for row in rows_for(name)), shared_banks=facts.lds_banks, float8_types=facts.fp8,
                        extra={**({"why_decomposed": _why_decomposed} if name == "gfx950" else {}), "fed_rows": fed_rows(name),
                               "added_in_pairs": tuple(t for t in ("f16", "bf16") if atomic_instruction(name, "fadd", t)),
                               "shared_model": _SHARED[name], "operand_bits": 128, "operand_run_bits": 128 if facts.warp_size == 32 else 64})


def features_of(arch: str) -> tuple[str, ...]:
    """What LLVM is told of the architecture beyond its name: of gfx11 that halves of registers are none of their own, since it would move them one by one
    where v_perm_b32 joins two at once."""
    return ("-real-true16",) if arch.startswith("gfx11") else ()
