"""How many registers a thread needs for the tiles that a loop around warp-group products keeps in use.

An estimate in program order, before anything is scheduled: of each op, the tiles live there, and its result beside them where that
cannot take an operand's place. Row and column vectors, masks, pointers and what is only repeated (broadcasts, constants) are left out;
``OTHERS`` stands for all of these, addresses and counters.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.analysis.structure import Function, Node, type_info
from tilewright.targets.nvidia.passes.warp_rings import DOT

OTHERS = 40
_REPEATED = frozenset(("tt.broadcast", "tt.splat", "arith.constant", "tt.make_range", "tt.expand_dims"))


def words(value: Any) -> int:
    """32-bit words of a tile, in all threads together."""
    info = type_info(value.type)
    if info.shape is None or len(info.shape) < 2 or info.kind == "ptr" or info.bits < 8:
        return 0
    return int(info.numel * info.bits // 32)


def tiles_in_use(function: Function, loop: Node) -> int:
    """The most words of tiles that are live at one op of the loop's body, in all threads together."""
    body = loop.regions[0]
    place = {id(node): i for i, node in enumerate(body.ops)}

    def inside(node: Node) -> int | None:
        current: Node | None = node
        while current is not None and current.region is not body:
            current = current.parent
        return None if current is None else place[id(current)]

    last: dict[Any, int] = {}
    for node in loop.walk():
        at = inside(node)
        assert at is not None
        for v in node.operands:
            last[v] = max(last.get(v, 0), at)

    def counts(value: Any) -> int:
        made = function.def_node(value)
        while made is not None and made.name == "ttg.convert_layout" and (source := function.def_node(made.operands[0])) is not None:
            made = source
        if made is not None and made.name in _REPEATED | {"tt.descriptor_load"}:
            return 0  # repeated, or read from shared memory
        return words(value)

    outside = [v for v in last if v not in body.args and ((d := function.def_node(v)) is None or inside(d) is None)]
    whole = sum(counts(v) for v in outside)
    live = {v: counts(v) for v in body.args if v in last}
    most = sum(live.values())
    for i, node in enumerate(body.ops[:-1]):
        dying = [v for v in dict.fromkeys(node.operands) if last.get(v) == i and v in live]
        given = [live[v] for v in dying]
        made = 0
        for v in node.results:
            size = counts(v)
            if size in given:
                given.remove(size)
            else:
                made += size
        most = max(most, sum(live.values()) + made)
        for v in dying:
            del live[v]
        live |= {v: counts(v) for v in node.results if v in last}
    return whole + most


def loaded_words(loop: Node) -> int:
    """Words of the tiles that the loop's own body loads through pointers."""
    return sum(words(v) for node in loop.regions[0].ops if node.name == "tt.load" for v in node.results)


def fewest_rows(loop: Node) -> int:
    """Of the results of the products in the loop's body; 0: there are none."""
    return min(((type_info(n.results[0].type).shape or (0,))[0] for n in loop.regions[0].ops if n.name == DOT), default=0)
