"""Insert ``ttg.barrier`` where one thread would otherwise touch shared memory that another still reads or has just written.

A forward analysis over the accesses since the last barrier, as byte intervals: a read of what was written (RAW), a write of
what was read (WAR) or written (WAW) needs a barrier in between. Loops are iterated to a fixpoint, branches are joined.

Asynchronous copies write at some time before the wait that completes them. Reads beside a copy in flight are of other
stages (no barrier could order them); when ``async_wait`` returns, this thread's copies are done but other threads' need a
barrier to be seen: from there on they count as writes. Ops of a target may go on reading after they are issued
(``register_async_reads``): no barrier settles those reads before the wait that ends them, and one has to after it.

Ops with scratch (layout conversions, reductions across warps, …) write their scratch, pass at least one barrier of their own, and
read it: whatever was pending before them is settled, and the scratch counts as read after them.

A loop whose body is written several times (``ttg.rounds``) is followed so, with the integers that it carries round: its iterations touch
one stage and another, and a write of the one is no conflict with a read of the other.

A called function is analysed before its callers, as if nothing were pending when it begins: a barrier stands before a call where
something is pending on any byte that the function touches, and what it leaves pending is so after the call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.aliases import ALLOC, ASYNC_COPY, Aliases, is_memdesc
from tilewright.dialects.analysis.call_graph import CALL, callee_of, callers_first, name_of
from tilewright.dialects.analysis.liveness import WAIT, reads_go_on, register_reads_go_on
from tilewright.dialects.analysis.structure import ROUNDS, Function, Node, Region, block_region_of, functions
from tilewright.dialects.errors import InternalCompilerError
from tilewright.dialects.passes.allocate_shared_memory import OFFSET, hooks_of, memdesc_bytes, scratch_of
from tilewright.dialects.pipeline import PassContext

Bytes = tuple[int, int]  # [first, end)
_BARRIERS = ("ttg.barrier", "tt.debug_barrier")
_TESTS = {0: operator.eq, 1: operator.ne, 2: operator.lt, 3: operator.le, 4: operator.gt, 5: operator.ge}  # arith.cmpi's predicates, of signed integers
_NO_EFFECT = frozenset(("ttg.memdesc_index", "ttg.memdesc_subslice", "ttg.memdesc_trans", "ttg.local_dealloc",
                        "ttg.async_commit_group", "scf.yield", "scf.condition"))

# op name → (operand numbers read, operand numbers written), for a target's own ops on memdescs; others count as both
_accesses: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {"ttg.local_load": ((0,), ()), "ttg.local_store": ((), (1,))}


# op name → memdesc operands that it writes after all earlier accesses, and that nobody touches before other means say so
_announced: dict[str, tuple[int, ...]] = {}


def register_access(name: str, reads: tuple[int, ...] = (), writes: tuple[int, ...] = (), announced: tuple[int, ...] = ()) -> None:
    """Let a target say which memdesc operands its op reads and writes (at once, by all threads). ``announced`` are written by
    hardware that tells each reader itself when it is done: no barrier has to follow."""
    _accesses[name] = (reads, writes)
    if announced:
        _announced[name] = announced


# names of ops that wait for the end of what others go on reading
_read_waits: set[str] = set()


def register_async_reads(name: str, reads: tuple[int, ...], wait: str, writes: tuple[int, ...] = (), when: str = "") -> None:
    """Let a target say that its op ``name`` begins to read these memdesc operands: see ``liveness.register_reads_go_on``."""
    _accesses[name] = (reads, writes)
    _read_waits.add(wait)
    register_reads_go_on(name, reads, wait, when)


@dataclass(frozen=True)
class State:
    """Accesses since the last barrier; ``in_flight``: asynchronous copies not waited for, which barriers do not settle;
    ``reading``: likewise what is read asynchronously, beside the name of the op that waits for it."""

    reads: frozenset[Bytes] = frozenset()
    writes: frozenset[Bytes] = frozenset()
    in_flight: frozenset[Bytes] = frozenset()
    reading: frozenset[tuple[str, Bytes]] = frozenset()

    def join(self, other: State) -> State:
        return State(self.reads | other.reads, self.writes | other.writes, self.in_flight | other.in_flight,
                     self.reading | other.reading)

    def settled(self) -> State:
        return State(in_flight=self.in_flight, reading=self.reading)


def _overlap(a: frozenset[Bytes] | set[Bytes], b: frozenset[Bytes] | set[Bytes]) -> bool:
    return any(x[0] < y[1] and y[0] < x[1] for x in a for y in b)


@dataclass(frozen=True)
class Called:
    """What a call does: the bytes that the function, or one that it calls, touches, and what is pending when it returns."""

    touches: frozenset[Bytes] = frozenset()
    leaves: State = State()


class RaceAnalysis:
    """``needed``: ids of the ops that a barrier must precede. ``called``: the summaries of the functions that this one calls."""

    def __init__(self, function: Function, scratch: Callable[[Node], int], called: Mapping[str, Called] | None = None):
        self.function = function
        self._called = called or {}
        self.aliases = Aliases(function)
        self._scratch = scratch
        self._regions: dict[Any, frozenset[Bytes]] = {}
        self._memory: dict[int, tuple[set[Bytes], set[Bytes], Bytes | None]] = {}
        self._numbers: dict[Any, int] = {}  # what counts stages, in the round that is being followed
        self._of_rounds: dict[Any, tuple[dict[Any, frozenset[Bytes]], dict[int, tuple[set[Bytes], set[Bytes], Bytes | None]]]] = {}
        self.needed: dict[int, Node] = {}
        self._touched: set[Bytes] = set()
        self._end = self._region(function.body, State())

    def summary(self) -> Called:
        """The function as its callers see it."""
        return Called(frozenset(self._touched), self._end)

    # -- which bytes
    def bytes_of(self, value: Any) -> frozenset[Bytes]:
        """What a memdesc may cover: its whole buffers, or one stage where it is one at a known index."""
        found = self._regions.get(value)
        if found is None:
            found = self._stage_of(value) or frozenset(self._root_bytes(root) for root in self.aliases.roots(value))
            self._regions[value] = found
        return found

    @staticmethod
    def _root_bytes(root: Node) -> Bytes:
        if OFFSET not in root.op.attributes:
            raise InternalCompilerError(f"{root!r} has no {OFFSET}: run allocate_shared_memory first")
        offset = root.int_attr(OFFSET)
        return offset, offset + memdesc_bytes(root.results[0].type)

    def _stage_of(self, value: Any) -> frozenset[Bytes] | None:
        view = self.function.def_node(value)
        while view is not None and view.name in ("ttg.memdesc_trans", "ttg.memdesc_subslice"):
            view = self.function.def_node(view.operands[0])
        if view is None or view.name != "ttg.memdesc_index":
            return None
        root, index = self.function.def_node(view.operands[0]), self._number(view.operands[1])
        if root is None or root.name != ALLOC or index is None:
            return None
        size = memdesc_bytes(view.results[0].type)
        start = self._root_bytes(root)[0] + size * index
        return frozenset(((start, start + size),))

    def _number(self, value: Any) -> int | None:
        """An integer that is known in the iteration that is being followed."""
        if value in self._numbers:
            return self._numbers[value]
        node = self.function.def_node(value)
        if node is not None and node.name == "arith.constant" and isinstance(value.type, ir.IntegerType):
            return node.int_attr("value")
        if node is not None and node.name in ("arith.addi", "arith.subi"):
            a, b = map(self._number, node.operands)
            if a is not None and b is not None:
                return a + b if node.name == "arith.addi" else a - b
        if node is not None and node.name == "arith.select" and (condition := self.function.def_node(node.operands[0])) is not None \
                and condition.name == "arith.cmpi":
            a, b = map(self._number, condition.operands)
            test = _TESTS.get(condition.int_attr("predicate"))
            if a is not None and b is not None and test is not None:
                return self._number(node.operands[1 if test(a, b) else 2])
        return None

    def _rounds(self, loop: Node) -> list[dict[Any, int]]:
        """The integers that ``loop`` carries and that are the same again after its rounds, in each of these."""
        body = loop.regions[0]
        rounds: list[dict[Any, int]] = [{} for _ in range(loop.int_attr(ROUNDS) if ROUNDS in loop.op.attributes else 1)]
        if len(rounds) == 1:
            return rounds
        outer = self._numbers
        for arg, initial, yielded in zip(body.args[1:], loop.operands[3:], body.ops[-1].operands):
            number = first = self._number(initial)
            seen: list[int] = []
            while number is not None and len(seen) < len(rounds):
                seen.append(number)
                self._numbers = outer | {arg: number}
                number = self._number(yielded)
            self._numbers = outer
            if number is not None and number == first:
                for known, value in zip(rounds, seen):
                    known[arg] = value
        return rounds

    def _round(self, loop: Node, number: int, known: dict[Any, int], state: State) -> State:
        kept = self._numbers, self._regions, self._memory
        context = (id(loop), number, tuple(self._numbers.values()))
        self._numbers = self._numbers | known
        if known:
            self._regions, self._memory = self._of_rounds.setdefault(context, ({}, {}))
        state = self._region(loop.regions[0], state)
        self._numbers, self._regions, self._memory = kept
        return state

    # -- effects
    def _effects(self, node: Node) -> tuple[set[Bytes], set[Bytes], Bytes | None]:
        """(bytes read, bytes written, scratch) of one op."""
        found = self._memory.get(id(node))
        if found is None:
            reads: set[Bytes] = set()
            writes: set[Bytes] = set()
            if node.name == ALLOC:
                if node.operands:
                    writes |= self.bytes_of(node.results[0])
            elif node.name not in _NO_EFFECT:
                memdescs = [i for i, v in enumerate(node.operands) if is_memdesc(v.type)]
                read, written = _accesses.get(node.name, (memdescs, memdescs))
                for i in (i for i in read if is_memdesc(node.operands[i].type)):
                    reads |= self.bytes_of(node.operands[i])
                for i in written:
                    writes |= self.bytes_of(node.operands[i])
            size = self._scratch(node)
            offset = node.int_attr(OFFSET) if size else 0
            found = self._memory[id(node)] = (reads, writes, (offset, offset + size) if size else None)
        return found

    def _announced_bytes(self, node: Node) -> set[Bytes]:
        return {r for i in _announced.get(node.name, ()) for r in self.bytes_of(node.operands[i])}

    def _step(self, node: Node, state: State) -> State:
        if node.name.startswith(("arith.", "math.")):
            return state
        if node.name in _BARRIERS:
            return state.settled()
        if node.name == CALL:
            called = self._called.get(callee_of(node), Called())
            self._touched |= called.touches
            if id(node) in self.needed or _overlap(called.touches, state.reads | state.writes):
                self.needed[id(node)] = node
                state = state.settled()
            return state.join(called.leaves)
        if node.name == WAIT:
            left = frozenset() if node.int_attr("num") == 0 else state.in_flight
            return replace(state, writes=state.writes | state.in_flight, in_flight=left)
        if node.name in _read_waits:
            ended = frozenset(r for r in state.reading if r[0] == node.name)
            going_on = state.reading if node.int_attr("pendings") else state.reading - ended
            return replace(state, reads=state.reads | {r for _, r in ended}, reading=going_on)
        if node.name == ASYNC_COPY:
            target = self.bytes_of(node.operands[1])
            self._touched |= target
            if id(node) in self.needed or _overlap(target, state.reads | state.writes):
                self.needed[id(node)] = node
                state = state.settled()
            return replace(state, in_flight=state.in_flight | target)
        reads, writes, scratch = self._effects(node)
        if not reads and not writes and scratch is None and node.name not in _announced:
            return state
        self._touched |= reads | writes | ({scratch} if scratch else set()) | self._announced_bytes(node)
        begun = writes | ({scratch} if scratch else set()) | self._announced_bytes(node)
        if id(node) in self.needed or _overlap(reads, state.writes) or _overlap(begun, state.reads | state.writes):
            self.needed[id(node)] = node
            state = state.settled()
        if scratch:
            return State(frozenset((scratch,)), frozenset(writes), state.in_flight, state.reading)
        reading = state.reading
        going = reads_go_on(node)
        if going is not None:
            operands, wait = going
            reading |= {(wait, r) for i in operands if is_memdesc(node.operands[i].type) for r in self.bytes_of(node.operands[i])}
        return State(state.reads | reads, state.writes | writes, state.in_flight, reading)

    # -- control flow
    def _region(self, region: Region, state: State) -> State:
        for node in region.ops:
            if node.name == "scf.for":
                state = self._for(node, state)
            elif node.name == "scf.while":
                before, after = node.regions

                def once(s: State, before: Region = before, after: Region = after) -> State:
                    return self._region(after, self._region(before, s))

                state = self._region(before, self._fixpoint(state, once))
            elif node.name == "scf.if":
                ends = [self._region(r, state) for r in node.regions]
                if len(ends) < 2:
                    ends.append(state)
                state = ends[0].join(ends[1])
            elif (number := block_region_of(node.name)) is not None:
                # the op has a barrier of its own at its start; no barrier can order its other regions, which have other means
                state = self._region(node.regions[number], state.settled())
            else:
                state = self._step(node, state)
        return state

    def _for(self, loop: Node, state: State) -> State:
        """Like ``_fixpoint``, round by round; the loop may end after any of them. Barriers of a loop of several rounds are found anew from what is pending
        at its head at last: of those that its first iteration needs, one in another place may do for all."""
        rounds, before = self._rounds(loop), dict(self.needed)
        while True:
            leaving = end = state
            if len(rounds) > 1:
                self.needed = dict(before)
            for number, known in enumerate(rounds):
                end = self._round(loop, number, known, end)
                leaving = leaving.join(end)
            grown = state.join(end)
            if grown == state:
                return leaving
            state = grown

    def _fixpoint(self, state: State, body: Callable[[State], State]) -> State:
        """State at the loop's head and after it: entry, or the end of any iteration."""
        while True:
            grown = state.join(body(state))
            if grown == state:
                return state
            state = grown


def run(module: Any, ctx: PassContext) -> None:
    """Before: shared memory is allocated. After: no race on shared memory that a barrier could order."""
    hooks = hooks_of(ctx)
    called: dict[str, Called] = {}
    for function in reversed(callers_first(functions(module))):
        if not _uses_shared(function, called):
            continue
        analysis = RaceAnalysis(function, lambda node: scratch_of(node, hooks) if OFFSET in node.op.attributes else 0, called)
        for node in analysis.needed.values():
            ir.Operation.create("ttg.barrier", loc=node.op.location, ip=ir.InsertionPoint(node.op))
        called[name_of(function)] = analysis.summary()


def _uses_shared(function: Function, called: Mapping[str, Called]) -> bool:
    return any(OFFSET in node.op.attributes or node.name == CALL and callee_of(node) in called for node in function.nodes())
