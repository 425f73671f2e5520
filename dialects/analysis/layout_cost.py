"""What layout conversions and recomputation cost, roughly in instructions a thread: for choosing between the two."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tilewright.dialects.encodings import to_linear_layout
from tilewright.dialects.linear_layout import Gf2Solver

LOOP_WEIGHT = 8.0  # what one loop around an op counts
BARRIERS = 20.0  # the two barriers around a pass through shared memory, and its latency

_OP_COST = {
    "tt.splat": 0.0, "tt.broadcast": 0.0, "tt.expand_dims": 0.0, "arith.constant": 0.0, "tt.make_range": 0.5, "tt.trans": 0.0,
    "tt.reshape": 0.0, "tt.join": 0.0, "tt.split": 0.0, "ttg.convert_layout": 0.0, "tt.bitcast": 0.0, "arith.bitcast": 0.0,
    "arith.divf": 8.0, "tt.precise_divf": 10.0, "tt.precise_sqrt": 10.0, "arith.divsi": 20.0, "arith.divui": 20.0,
    "arith.remsi": 20.0, "arith.remui": 20.0, "math.exp": 4.0, "math.exp2": 3.0, "math.rsqrt": 3.0, "math.sqrt": 6.0,
    "tt.fp_to_fp": 3.0, "tt.load": 20.0, "tt.extern_elementwise": 20.0, "tt.elementwise_inline_asm": 10.0,
}


def op_cost(name: str) -> float:
    """Instructions for one element."""
    found = _OP_COST.get(name)
    if found is not None:
        return found
    return 10.0 if name.startswith("math.") else 1.0


@lru_cache(maxsize=8192)
def registers(shape: tuple[int, ...], encoding: Any) -> int:
    """Elements that a thread holds."""
    return to_linear_layout(shape, encoding).in_size("register")


@lru_cache(maxsize=8192)
def conversion_kind(shape: tuple[int, ...], source: Any, target: Any) -> str:
    """How far elements move: "none" (equal layouts), "register" (within threads), "lane" (within warps) or "shared"."""
    a, b = to_linear_layout(shape, source), to_linear_layout(shape, target)
    if a == b:
        return "none"
    if a.columns("warp") != b.columns("warp") or a.columns("block") != b.columns("block"):
        return "shared"
    own = Gf2Solver(a.columns("register"))
    if a.columns("lane") == b.columns("lane"):
        if all(own.solve(c) is not None for c in b.columns("register")):
            return "register"
    warp = Gf2Solver((*a.columns("register"), *a.columns("lane")))
    if all(warp.solve(c) is not None for c in (*b.columns("register"), *b.columns("lane"))):
        return "lane"
    return "shared"


@lru_cache(maxsize=8192)
def conversion_cost(shape: tuple[int, ...], bits: int, source: Any, target: Any) -> float:
    """Cost of one ``ttg.convert_layout`` of elements of ``bits``."""
    kind = conversion_kind(shape, source, target)
    if kind == "none":
        return 0.0
    words = max(8, bits) / 32.0
    if kind == "register":
        return 0.1 * registers(shape, target) * words
    if kind == "lane":
        return 4.0 + 2.0 * registers(shape, target) * words
    return BARRIERS + (registers(shape, source) + registers(shape, target)) * words
