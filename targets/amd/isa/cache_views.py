"""What a wave's loads see of other work-groups' stores, and what its atomics tell them: caches that are not coherent, by LLVM's AMDGPU memory model.

An atomic that follows another on its address knows what happened before that one. It need not see it yet: the wave's caches may hold older values until it empties them
(buffer_inv sc1, buffer_wbinvl1_vol, buffer_gl1_inv and buffer_gl0_inv, global_inv, global_wbinv). On gfx9 the waves of a work-group share a cache; on RDNA they
run on two compute units, with one each, unless in CU mode. And on gfx942 and gfx950 work-groups may have different L2 caches: what a wave stored is told only
by an atomic after buffer_wbl2 sc1 that the wave has waited for (vmcnt; it counts like a store). Loads that pass the caches see all that is known.

Not modelled: what scope "sys" asks besides, stores within a work-group (whose LDS barriers are taken to do), and what a cache really holds: a load is wrong here that
would be wrong if the cache had the line.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.targets.amd.isa.program import Instruction

Array = Any
_CHIPLETS = ("gfx942", "gfx950")


def writes_back(arch: str) -> bool:
    """Whether work-groups may have different L2 caches."""
    return arch in _CHIPLETS


def passes_caches(ins: Instruction, arch: str) -> bool:
    """Whether a load asks what is common to all work-groups: as LLVM's atomic loads of scope agent do."""
    if arch.startswith("gfx12"):
        return ins.modifiers.get("scope") in ("SCOPE_DEV", "SCOPE_SYS")
    return bool(ins.modifiers.get("sc1" if arch in _CHIPLETS else "glc"))


class CacheViews:
    """Of one launch, by waves: vectors of clocks, int32 (waves, waves). ``known``: what happened before, of whoever owns this object; it is read here."""

    def __init__(self, arch: str, known: Array, shared_by_group: bool):
        self.arch, self.known, self.shared = arch, known, shared_by_group
        self.seen = np.zeros_like(known)  # by loads
        self._common = np.zeros_like(known) if arch.startswith("gfx1") else None  # what would be seen with an empty L0
        self.told = np.zeros_like(known) if writes_back(arch) else None  # what an atomic tells
        self._under_way: dict[int, list[tuple[int, Array]]] = {}  # wave → (number on vmcnt, what will have been written back)

    def empty(self, ins: Instruction, wave: int) -> None:
        """The wave empties a cache."""
        name, modifiers = ins.base, ins.modifiers
        if name in ("buffer_wbinvl1", "buffer_wbinvl1_vol") or (name == "buffer_inv" and modifiers.get("sc1")):
            np.maximum(self.seen[wave], self.known[wave], out=self.seen[wave])
        if self._common is None:
            return
        common = self._common[wave]
        of_gfx12 = name in ("global_inv", "global_wbinv")
        if name == "buffer_gl1_inv" or (of_gfx12 and modifiers.get("scope") in ("SCOPE_DEV", "SCOPE_SYS")):
            np.maximum(common, self.known[wave], out=common)
        if name == "buffer_gl0_inv" or of_gfx12:
            np.maximum(self.seen[wave], common, out=self.seen[wave])

    def write_back(self, ins: Instruction, wave: int, number: int) -> None:
        """The wave begins to write its L2 cache back, as ``number`` of what counts on vmcnt."""
        if self.told is not None and ins.modifiers.get("sc1"):
            self._under_way.setdefault(wave, []).append((number, self.known[wave].copy()))

    def tells(self, wave: int, proven: int) -> Array | None:
        """What the wave's atomic tells now, where ``proven`` of what counts on vmcnt is done; None: all that it knows."""
        if self.told is None:
            return None
        left = self._under_way.pop(wave, ())
        for number, known in left:
            if number <= proven:
                np.maximum(self.told[wave], known, out=self.told[wave])
            else:
                self._under_way.setdefault(wave, []).append((number, known))
        return self.told[wave]

    def barrier(self, waves: Array) -> None:
        """These waves, of one work-group, have met."""
        for view, joined in ((self.seen, self.shared), (self._common, True), (self.told, True)):
            if view is not None and joined:
                view[waves] = view[waves].max(axis=0)
