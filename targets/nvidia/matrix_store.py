"""Whole writes of 16-bit tensors to shared memory by ``stmatrix``, wherever the composed map thread → memory offset has its shape.

``stmatrix`` (PTX ISA manual, "Warp-level matrix instructions: stmatrix") is ldmatrix turned around, so the decision is
``matrix_load``'s: on the linear map from (register, lane, warp) to element offsets. An accumulator's registers have that shape in
any panel or swizzle, row by row or (``.trans``) column by column; each 8 rows of 16 bytes then lie in different banks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects.lowering.shared_ops import Addresses
from tilewright.targets.nvidia.matrix_load import plan_for


def matrix_store(b: Any, plan: Any, values: Sequence[Any], pack: Any) -> Callable[[], None] | None:
    """What builds the stores of ``values``, the registers of ``plan.layout``, or None where stmatrix does not fit.

    ``pack(elements)`` gives the 32-bit word of two elements.
    """
    if plan.element_bits != 16:
        return None
    store = plan_for(plan)
    if store is None:
        return None

    def build() -> None:
        addresses = Addresses(plan.ctx, plan.view, store.thread)
        registers = ", ".join(f"${i + 1}" for i in range(store.count))
        text = f"stmatrix.sync.aligned.m8n8.x{store.count}{'.trans' if store.trans else ''}.shared.b16 [$0], {{{registers}}};"
        constraints = ",".join(["r"] * (1 + store.count) + ["~{memory}"])
        for step, firsts in store.steps:
            words = [pack(list(values[first:first + store.word])) for first in firsts]
            b.inline_asm(text, constraints, None, [b.ptrtoint(addresses.at(step), b.t_i32), *words], side_effects=True)

    return build
