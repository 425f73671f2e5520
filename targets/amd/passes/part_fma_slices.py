"""Keep LLVM's schedulers from mixing the slices of a large FMA dot.

Before: ttg, barriers inserted; slice_fma_dots has cut FMA dots into chains of dots over a few k, each behind the reads of its operands. After: where such a
chain takes ``LARGE`` multiply-adds a lane or more, an amdg.sched_barrier stands after each of its dots.

Unasked the schedulers see all slices as one stretch of code: they read operands far ahead, more than the registers hold, and their time and that of the
register allocator grow faster than the code (64×64×64 fp32 by one wave of 32 lanes: 17 s and 1126 spilled registers, with the barriers 4 s and 35).
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.layout_cost import registers
from tilewright.dialects.analysis.structure import Function, Node, functions, position, type_info

LARGE = 4096


def run(module: Any, ctx: Any) -> None:
    """See the module's text."""
    for function in functions(module):
        seen: set[int] = set()
        for node in list(function.nodes()):
            if _is_fma_dot(node) and id(node) not in seen:
                chain = _chain(function, node)
                seen.update(map(id, chain))
                if len(chain) > 1 and sum(map(multiply_adds, chain)) >= LARGE:
                    for dot in chain:
                        _part(function, dot)


def multiply_adds(dot: Node) -> int:
    """Of one lane."""
    info = type_info(dot.results[0].type)
    return registers(info.shape or (), info.encoding) * int(dot.operands[0].type.shape[-1])


def _is_fma_dot(node: Node) -> bool:
    return node.name == "tt.dot" and isinstance(type_info(node.results[0].type).encoding, ttg.BlockedEncoding)


def _chain(function: Function, dot: Node) -> list[Node]:
    """``dot`` and the dots of its region that go on with its accumulator."""
    chain = [dot]
    while True:
        users = function.uses(chain[-1].results[0])
        if len(users) != 1 or users[0][1] != 2 or not _is_fma_dot(users[0][0]) or users[0][0].region is not dot.region:
            return chain
        chain.append(users[0][0])


def _part(function: Function, dot: Node) -> None:
    assert dot.region is not None
    after = dot.region.ops[position(dot) + 1]
    function.insert_before(after, "amdg.sched_barrier", [], [], {"mask": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 0)}, dot.op.location)
