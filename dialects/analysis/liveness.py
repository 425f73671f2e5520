"""How long each shared-memory buffer is needed, as intervals of op numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.dialects.analysis.aliases import ALLOC, ASYNC_COPY, Aliases
from tilewright.dialects.analysis.structure import Function, Node, Region, block_region_of

WAIT = "ttg.async_wait"

# op name → (memdesc operands that it goes on reading, the op that waits for the end of that, attribute that says whether it does)
_reads_go_on: dict[str, tuple[tuple[int, ...], str, str]] = {}


def register_reads_go_on(name: str, operands: tuple[int, ...], wait: str, when: str = "") -> None:
    """Let a target say that its op ``name`` (where its boolean attribute ``when`` is true, if given) reads these operands after it,
    until an op ``wait`` whose integer attribute ``pendings`` says how many of the ops that it waits for may still go on, the
    latest ones: they end in the order in which they begin."""
    _reads_go_on[name] = (operands, wait, when)


def reads_go_on(node: Node) -> tuple[tuple[int, ...], str] | None:
    """(operands, wait) of an op that goes on reading; None for any other."""
    found = _reads_go_on.get(node.name)
    if found is None or (found[2] and not node.bool_attr(found[2])):
        return None
    return found[0], found[1]


@dataclass
class Interval:
    """Ops numbered ``start`` … ``end`` (both included) need the buffer of ``node``."""

    node: Node
    start: int
    end: int

    def overlaps(self, other: Interval) -> bool:
        return self.start <= other.end and other.start <= self.end


class Liveness:
    """Numbers ops in program order (an op with regions spans the numbers of what lies in it) and gives buffers' intervals.

    A buffer is live from its local_alloc to the last use of any view of it; all through a loop around such a use, unless the
    buffer is made inside that loop and is not carried to its next iteration. The destination of an async copy is live until
    a wait that the copy's token reaches, or, where copies and waits are not linked by tokens, until the first wait for all copies
    (``num = 0``) that is sure to come after it; likewise the operands of an op that goes on reading (``register_reads_go_on``), until
    the wait for it.

    Regions that run at the same time (``structure.register_concurrent``) have no order between them: a buffer from before such
    an op that is used inside it is live all through the function, and one of a region beside the program's own all through the op.
    """

    def __init__(self, function: Function, aliases: Aliases | None = None):
        self.function = function
        self.aliases = aliases or Aliases(function)
        self.order: list[Node] = list(function.nodes())
        self.start: dict[int, int] = {id(node): i for i, node in enumerate(self.order)}
        self.end: dict[int, int] = {}
        for node in reversed(self.order):
            last = self.start[id(node)]
            for region in node.regions:
                for inner in region.ops:
                    last = max(last, self.end[id(inner)])
            self.end[id(node)] = last

    def of(self, node: Node) -> Interval:
        """The interval of one op: of scratch memory that it alone uses."""
        interval = Interval(node, self.start[id(node)], self.end[id(node)])
        self._beside(interval, node)
        return interval

    def _beside(self, interval: Interval, node: Node) -> None:
        """Extend to the whole of a concurrent op around ``node`` unless that lies in the program's own region."""
        around = self._concurrent_around(node)
        if around is not None and around.index != block_region_of(around.parent.name):
            self._cover(interval, around.parent)

    @staticmethod
    def _concurrent_around(node: Node) -> Region | None:
        """The region of an op with concurrent regions that ``node`` lies in."""
        region = node.region
        while region is not None and block_region_of(region.parent.name) is None:
            region = region.parent.region
        return region

    def buffers(self) -> list[Interval]:
        """The interval of every local_alloc, in program order."""
        found = {id(n): Interval(n, self.start[id(n)], self.start[id(n)]) for n in self.order if n.name == ALLOC}
        for value, roots in self.aliases.values():
            region = self._argument_region(value)
            for root in roots:
                interval = found[id(root)]
                if region is not None:  # carried by this loop: its slot is in use throughout
                    self._cover(interval, region.parent)
                for user, _ in self.function.uses(value):
                    self._use(interval, root, user)
                    around = self._concurrent_around(user)
                    if around is not None and not self._inside(root, around.parent):
                        interval.start, interval.end = 0, len(self.order)
        for interval in found.values():
            self._beside(interval, interval.node)
        for node in self.order:
            if node.name == ASYNC_COPY:
                for root in self.aliases.roots(node.operands[1]):
                    self._until_waited(found[id(root)], root, node)
            elif (going := reads_go_on(node)) is not None:
                for root in {r for i in going[0] for r in self.aliases.roots(node.operands[i])}:
                    self._until_read(found[id(root)], root, node, going[1])
        return list(found.values())

    def _argument_region(self, value: Any) -> Region | None:
        entry = self.function.arg_of.get(value)
        return entry[0] if entry and entry[0].parent.name != "func.func" else None

    def _cover(self, interval: Interval, node: Node) -> None:
        interval.start = min(interval.start, self.start[id(node)])
        interval.end = max(interval.end, self.end[id(node)])

    def _use(self, interval: Interval, root: Node, user: Node) -> None:
        """Extend to ``user``, and to the end of each loop around it that does not also hold the allocation."""
        interval.end = max(interval.end, self.end[id(user)])
        parent = user.parent
        while parent is not None and parent.name != "func.func" and not self._inside(root, parent):
            interval.end = max(interval.end, self.end[id(parent)])
            parent = parent.parent

    def _inside(self, node: Node, ancestor: Node) -> bool:
        return self.start[id(ancestor)] <= self.start[id(node)] <= self.end[id(ancestor)]

    def _until_waited(self, interval: Interval, root: Node, copy: Node) -> None:
        if self._token_is_waited(copy.results[0], set()):
            return  # the token's uses, which count as the buffer's, reach to the wait
        region, after = copy.region, self.start[id(copy)]
        while region is not None:
            for node in region.ops:
                if node.name == WAIT and self.start[id(node)] > after and node.int_attr("num") == 0:
                    self._use(interval, root, node)
                    return
            parent = region.parent
            after, region = self.end[id(parent)] if parent.region is not None else after, parent.region
        interval.end = len(self.order)

    def _until_read(self, interval: Interval, root: Node, reader: Node, wait: str) -> None:
        region, after, later = reader.region, self.start[id(reader)], 0
        while region is not None:
            for node in region.ops:
                if self.start[id(node)] <= after:
                    continue
                if node.name == wait and node.int_attr("pendings") <= later:
                    self._use(interval, root, node)
                    return
                going = reads_go_on(node)
                later += going is not None and going[1] == wait
            parent = region.parent
            # how many more began in another iteration, or in a branch, is not counted: then only a wait for all will do
            after, region, later = self.end[id(parent)] if parent.region is not None else after, parent.region, 0
        interval.end = len(self.order)

    def _token_is_waited(self, token: Any, seen: set[Any]) -> bool:
        if token in seen:
            return False
        seen.add(token)
        for user, _ in self.function.uses(token):
            if user.name == WAIT:
                return True
            if user.name == "ttg.async_commit_group" and self._token_is_waited(user.results[0], seen):
                return True
        return False
