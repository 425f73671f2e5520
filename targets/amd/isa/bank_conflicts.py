"""Cycles that LDS instructions take by a model of banks; counted where the machine has a dict ``lds_conflicts`` (else nothing is done).

The model: banks of 4 bytes, 32 of them (64 on gfx950: CDNA 4 manual, "Local data share"); lanes are served in groups that move at most 4
bytes a bank; a group takes as many cycles as the bank with most distinct dwords; lanes that want the same dword share it. Groups are consecutive
lanes, but for 128-bit loads: CDNA 3's groups are given by AMD's Composable Kernel documentation ("Understanding AMD GPU LDS and bank
conflicts"); CDNA 4's, RDNA 3's and that RDNA 4's are consecutive were measured on devices by the amd-shark-ai project (docs/empirical-lds), which
also found the groups of 64-bit loads consecutive. That gfx90a is like CDNA 3 and gfx1030 like RDNA 3 is an assumption.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.registry import DecodeContext

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any
# 128-bit loads: lanes of the first 32; the second 32 of a wave of 64 are alike
_READ_B128_CDNA4 = ((0, 1, 2, 3, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25, 26, 27), (4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 28, 29, 30, 31))
_READ_B128 = ((0, 1, 2, 3, 20, 21, 22, 23), (4, 5, 6, 7, 16, 17, 18, 19), (8, 9, 10, 11, 28, 29, 30, 31), (12, 13, 14, 15, 24, 25, 26, 27))


def banks(arch: str) -> int:
    return 64 if arch == "gfx950" else 32


def groups(arch: str, lanes: int, size: int, write: bool) -> Array:
    """int (groups, lanes of a group): who is served together when each lane moves ``size`` bytes."""
    width = {1: 4, 2: 4, 12: 16}.get(size, size)
    if width == 16 and not write and not arch.startswith("gfx12"):
        half = np.array(_READ_B128_CDNA4 if arch == "gfx950" else _READ_B128)
        return np.concatenate([half + first for first in range(0, lanes, 32)])
    return np.arange(lanes).reshape(-1, min(lanes, banks(arch) * 4 // width))


def cycles(addresses: Array, mask: Array | None, size: int, lane_groups: Array, bank_count: int) -> tuple[int, int]:
    """(cycles, cycles without conflicts) of one access of all waves. Groups without active lanes take none."""
    words = max(1, size // 4)
    dwords = (addresses.astype(np.int64) >> 2)[:, lane_groups, None] + np.arange(words)
    if mask is not None:
        dwords = np.where(mask[:, lane_groups, None], dwords, -1)
    rows = np.sort(dwords.reshape(len(addresses) * len(lane_groups), -1), axis=1)
    distinct = rows >= 0
    distinct[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    row, _ = np.nonzero(distinct)
    per_bank = np.bincount(row * bank_count + rows[distinct] % bank_count, minlength=len(rows) * bank_count).reshape(len(rows), bank_count)
    worst = per_bank.max(axis=1)
    return int(worst.sum()), int((worst > 0).sum())


def counter(ctx: DecodeContext, size: int, write: bool) -> Callable[[Waves, Array, Array | None], None]:
    """A function that adds an access to ``machine.lds_conflicts[pc]``: [accesses of waves, cycles, cycles without conflicts]."""
    lane_groups, bank_count = groups(ctx.arch, ctx.lanes, size, write), banks(ctx.arch)

    def count(w: Waves, addresses: Array, mask: Array | None) -> None:
        table = getattr(w.machine, "lds_conflicts", None)
        if table is None:
            return
        taken, least = cycles(addresses, mask, size, lane_groups, bank_count)
        entry = table.setdefault(w.ins.index, [0, 0, 0])
        entry[0] += w.n
        entry[1] += taken
        entry[2] += least

    return count
