"""Atomics that a target has no instruction for, as loops around its compare-and-swap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dialects.encodings import storage_bits


def compare_and_swap_loop(b: Any, hooks: Any, ptr: Any, type: Any, change: Callable[[Any], Any], pred: Any, sem: str, scope: str) -> Any:
    """Atomically replace the ``type`` (an LLVM scalar of 16, 32 or 64 bits) at ``ptr`` by ``change`` of it; the old value, 0 where
    ``pred`` (i1 or None) is false. The values compared are the bits: a NaN or -0 in memory ends the loop like any other value."""
    size = storage_bits(type) // 8
    bits = b.int_type(size * 8)

    def run() -> Any:
        start = b.load(ptr, bits, align=size)
        loop = b.block([bits])
        after = b.block(after=loop)
        b.br(loop, [start])
        b.set_block(loop)
        seen = loop.arguments[0]
        new = b.bitcast(change(b.bitcast(seen, type)), bits)
        found = hooks.atomic_cas(b, ptr, seen, new, None, sem, scope)
        b.cond_br(b.icmp("eq", found, seen), after, loop, [], [found])
        b.set_block(after)
        return b.bitcast(seen, type)

    if pred is None:
        return run()
    return b.if_then_else(pred, run, lambda: b.zero(type))[0]
