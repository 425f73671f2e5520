"""Loops that wait for another program: whose end depends on what memory holds at an address that stays the same from one round to the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.dialects.analysis.structure import Function, Node

_AT_FIRST_OPERAND = frozenset(("tt.load", "tt.atomic_rmw", "tt.atomic_cas"))
_READS = _AT_FIRST_OPERAND | {"func.call", "tt.elementwise_inline_asm"}  # the last two may read at any operand


def waiting_reads(function: Function) -> list[Node]:
    """The reads (loads, atomics, calls, inline assembly) on which the end of such an ``scf.while`` depends; none: no program waits for another. There may be reads
    of loops that end without another program: of memory that the loop itself changes."""
    found: dict[int, Node] = {}
    for node in function.nodes():
        if node.name == "scf.while":
            for read in reads_of_end(function, node):
                addresses = read.operands[:1] if read.name in _AT_FIRST_OPERAND else read.operands
                if all(_stays(function, a, node) for a in addresses):
                    found[id(read)] = read
    return list(found.values())


def _within(function: Function, value: Any, loop: Node) -> bool:
    node: Node | None = function.region_of(value).parent
    while node is not None and node is not loop:
        node = node.parent
    return node is loop


def _sources(function: Function, value: Any, loop: Node) -> list[Any]:
    """What a value inside ``loop`` is made of, or chosen by, as far as that may change from round to round."""
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


def _stays(function: Function, value: Any, loop: Node) -> bool:
    """Whether a value is the same in every round, as far as that is plain."""
    seen: set[Any] = set()
    todo = [value]
    while todo:
        v = todo.pop()
        if v in seen or not _within(function, v, loop):
            continue
        seen.add(v)
        node = function.def_node(v)
        if node is None:
            if not _handed_on(function, v, loop):
                return False
        elif node.regions or node.name in _READS:
            return False
        else:
            todo += node.operands
    return True
