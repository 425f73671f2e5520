"""Loops that wait for another program: whose end depends on what memory holds at an address that stays the same from one round to the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.dialects.analysis.structure import Function, Node

_READS = {"tt.load", "tt.atomic_rmw", "tt.atomic_cas", "func.call", "tt.elementwise_inline_asm"}


def waiting_reads(function: Function) -> list[Node]:
    """The reads (loads, atomics, calls) on which the end of such an ``scf.while`` depends; none: no program waits for another. A loop that another
    program need not end, one that polls memory which it has changed itself, may be among them."""
    found: dict[int, Node] = {}
    for node in function.nodes():
        if node.name == "scf.while":
            for read in reads_of_end(function, node):
                addresses = read.operands if read.name in ("func.call", "tt.elementwise_inline_asm") else read.operands[:1]
                if all(_stays(function, a, node, set()) for a in addresses):
                    found[id(read)] = read
    return list(found.values())


def _within(function: Function, value: Any, loop: Node) -> bool:
    node: Node | None = function.region_of(value).parent
    while node is not None and node is not loop:
        node = node.parent
    return node is loop


def _sources(function: Function, value: Any, loop: Node) -> list[Any]:
    """The values inside ``loop``, or that enter it anew in each round, of which ``value`` is made or chosen by."""
    node = function.def_node(value)
    if node is not None:
        ends = [v for region in node.regions if region.ops for v in region.ops[-1].operands]
        return [*node.operands, *ends]
    region, i = function.arg_of[value]
    owner = region.parent
    if owner.name == "scf.while":
        before, after = owner.regions
        if region is after:
            return [before.ops[-1].operands[i + 1]]
        return [after.ops[-1].operands[i], *([] if owner is loop else [owner.operands[i]])]
    if owner.name == "scf.for":
        return [*owner.operands, *([region.ops[-1].operands[i - 1]] if i else [])]
    return []


def reads_of_end(function: Function, loop: Node) -> Iterator[Node]:
    """The reads (loads, atomics, calls) inside ``loop`` (scf.while), whatever their address, on which its end depends."""
    seen: set[Any] = set()
    todo = [loop.regions[0].ops[-1].operands[0]]
    while todo:
        value = todo.pop()
        if value in seen or not _within(function, value, loop):
            continue
        seen.add(value)
        node = function.def_node(value)
        if node is not None and node.name in _READS:
            yield node
        todo += _sources(function, value, loop)


def _handed_on(function: Function, value: Any, loop: Node) -> bool:
    """Whether the loop carries a value round unchanged."""
    before, after = loop.regions
    region, i = function.arg_of[value]
    if region is after:
        value = before.ops[-1].operands[i + 1]
    if value not in function.arg_of or function.arg_of[value][0] is not before:
        return False
    carried = after.ops[-1].operands[function.arg_of[value][1]]
    if carried not in function.arg_of or function.arg_of[carried][0] is not after:
        return False
    return bool(before.ops[-1].operands[function.arg_of[carried][1] + 1] == value)


def _stays(function: Function, value: Any, loop: Node, seen: set[Any]) -> bool:
    """Whether a value is the same in every round, as far as that is plain."""
    if value in seen or not _within(function, value, loop):
        return True
    seen.add(value)
    node = function.def_node(value)
    if node is None:
        return _handed_on(function, value, loop)
    if node.regions or node.name in _READS:
        return False
    return all(_stays(function, v, loop, seen) for v in node.operands)
