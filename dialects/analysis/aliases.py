"""Which shared-memory buffers a value may stand for: views, loop-carried memdescs, and the tokens of async copies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects.analysis.structure import Function, Node

ALLOC = "ttg.local_alloc"
ASYNC_COPY = "ttg.async_copy_global_to_local"
# attribute (i32) of an async copy in a loop: how many iterations ago the stage that it fills was last read
SLOT_AGE = "ttg.slot_age"

_kinds: dict[Any, str] = {}


def _kind(type_: Any) -> str:
    found = _kinds.get(type_)
    if found is None:
        found = "memdesc" if isinstance(type_, ttg.MemDescType) else "token" if isinstance(type_, ttg.AsyncTokenType) else ""
        if len(_kinds) > 20000:
            _kinds.clear()
        _kinds[type_] = found
    return found


def is_memdesc(type_: Any) -> bool:
    return _kind(type_) == "memdesc"


def carries_buffers(type_: Any) -> bool:
    """Whether values of this type stand for shared memory: memdescs and async tokens."""
    return _kind(type_) != ""


class Aliases:
    """``roots(value)``: the local_alloc nodes whose buffers a memdesc may be a view of, or an async token was made for.

    Any op with a memdesc or token among its results and operands is taken for a view of all of them, so a target's own views
    need no entry here.
    """

    def __init__(self, function: Function):
        self.function = function
        self._roots: dict[Any, frozenset[Node]] = {}
        self._edges = list(self._flow())
        changed = True
        while changed:
            changed = False
            for source, target in self._edges:
                add = self._roots.get(source)
                if add:
                    old = self._roots.get(target, frozenset())
                    if not add <= old:
                        self._roots[target] = old | add
                        changed = True

    def _flow(self) -> Iterator[tuple[Any, Any]]:
        """(from, to) pairs of values, after noting what each local_alloc makes."""
        for node in self.function.nodes():
            name = node.name
            if name == ALLOC:
                self._roots[node.results[0]] = frozenset((node,))
            elif name == "scf.for":
                end = node.regions[0].ops[-1].operands
                for i, result in enumerate(node.results):
                    if carries_buffers(result.type):
                        arg = node.regions[0].args[i + 1]
                        yield node.operands[i + 3], arg
                        yield end[i], arg
                        yield node.operands[i + 3], result
                        yield end[i], result
            elif name == "scf.if":
                for i, result in enumerate(node.results):
                    if carries_buffers(result.type):
                        for region in node.regions:
                            yield region.ops[-1].operands[i], result
            elif name == "scf.while":
                before, after = node.regions
                for i, arg in enumerate(before.args):
                    yield node.operands[i], arg
                    yield after.ops[-1].operands[i], arg
                for i, (arg, result) in enumerate(zip(after.args, node.results)):
                    passed = before.ops[-1].operands[i + 1]
                    yield passed, arg
                    yield passed, result
            elif node.results:
                results = [r for r in node.results if carries_buffers(r.type)]
                if results:
                    for operand in node.operands:
                        for result in results:
                            yield operand, result

    def roots(self, value: Any) -> frozenset[Node]:
        return self._roots.get(value, frozenset())

    def values(self) -> Iterator[tuple[Any, frozenset[Node]]]:
        """Every value that stands for some buffer, with its roots."""
        yield from self._roots.items()
