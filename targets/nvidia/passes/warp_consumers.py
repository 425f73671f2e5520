"""The consumers' half of a warp-specialised kernel: the kernel itself, whose loads became waits for stages, and whose products run on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, Region, region_ancestor, type_info
from tilewright.targets.nvidia.passes.store_order import ORDERED
from tilewright.targets.nvidia.passes.warp_partition import Cluster, Half
from tilewright.targets.nvidia.passes.warp_rings import DOT, TURN, VIEWS, Group, Rings

_CASTS = frozenset(("arith.truncf", "ttg.convert_layout", "tt.fp_to_fp"))
# they may tell others that what was stored before is there
_ANNOUNCE = frozenset(("tt.atomic_rmw", "tt.atomic_cas", "tt.debug_barrier"))
TURN_BARRIER = 2  # and the next: hardware barriers of the two warp groups that take turns


@dataclass
class InFlight:
    """A product that was issued, and the groups to give back when it is complete. ``continued``: a later one adds to its result."""

    node: Node
    groups: list[Group]
    continued: bool = False


@dataclass
class Held:
    """A stage that the consumers have in use."""

    group: Group
    stage: Any
    phase: Any
    left: set[int] = field(default_factory=set)  # ids of readers still to come
    waited: bool = False


class Consumers(Half):
    """The kernel itself."""

    def __init__(self, function: Function, rings: Rings, store_buffers: dict[int, Any], cluster: Cluster | None,
                 num_warps: int):
        super().__init__(function, rings)
        self.store_buffers, self.cluster = store_buffers, cluster
        self.held: dict[int, Held] = {}  # by id of the group
        self.flying: list[InFlight] = []
        # products that stay in flight over the back edge of the loop at hand → the stages of the round before to give back there
        self.free: dict[int, list[tuple[Group, Any]]] = {}
        self.views: dict[Any, Node] = {}
        self.filled = {id(a) for load in rings.load_of.values() for a in load.allocs}
        self.stored = False
        turns = [n for n in function.nodes() if n.name == DOT and TURN in n.op.attributes]
        self.takes_turns = num_warps == 8 and bool(turns) and not any(self._filled_here(v) for n in turns for v in n.operands[:2])

    # -- stages
    def _acquire(self, held: Held) -> None:
        """Wait until the group's bytes have arrived, and let its allocs be the stage."""
        held.waited = True
        e, ring = self.emitter, held.group.ring
        e.wait(ring.full, held.stage, held.phase)
        for load, buffer in zip(held.group.loads, ring.buffers):
            slot = e.index(buffer, held.stage)
            for alloc in load.allocs:
                self.mapping[alloc.results[0]] = slot
            loaded = load.node.results[0]
            if any(user not in load.allocs for user, _ in self.function.uses(loaded)):
                self.mapping[loaded] = e.op("ttg.local_load", [loaded.type], [slot],
                                            {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0])}).result

    def _done(self, group: Group, node: Node) -> None:
        """``node`` has read its share of the group."""
        held = self.held[id(group)]
        held.left.discard(id(node))
        if not held.left:
            del self.held[id(group)]
            if group.ring.reused:
                self.emitter.arrive(group.ring, held.stage, cluster=self.cluster)

    # -- products in flight
    def wait_for(self, values: set[Any]) -> None:
        """Complete the products whose results are among ``values``, and all that were issued before them."""
        last = max((i for i, f in enumerate(self.flying) if f.node.results[0] in values), default=-1)
        if last >= 0:
            self._complete(last + 1)

    def _complete(self, count: int, also: Iterable[Any] = ()) -> None:
        """Complete the ``count`` products that were issued first; ``also``: other values that are not to be read before."""
        done, self.flying = self.flying[:count], self.flying[count:]
        values: list[Any] = []  # old values whose new ones are tied to the wait
        for f in done:
            values += [] if f.continued else [f.node.results[0]]
            values += self._next_operand(f.node)
        values = list(dict.fromkeys([*values, *also]))
        self._wait(values, len(self.flying))
        for f in done:
            for group in f.groups:
                self._done(group, f.node)

    def _wait(self, values: list[Any], pendings: int) -> None:
        """At most ``pendings`` products are in flight after it; ``values`` (old) may be read after it."""
        e = self.emitter
        by_type: dict[Any, list[Any]] = {}
        for v in values:
            by_type.setdefault(v.type, []).append(v)
        for group in by_type.values() or [[]]:  # an op takes values of one type; to wait again for the same costs nothing
            news = [self.map(v) for v in group]
            results = e.op("ttng.warp_group_dot_wait", [v.type for v in news], news, {"pendings": e.attr(pendings)}).results
            self.mapping.update(zip(group, results))

    def _next_operand(self, dot: Node) -> list[Any]:
        """Where ``dot`` reads A from registers that a loop carries: what the next round's A is cast from, if it is there already.

        Registers of an operand that are written while a product reads them make ptxas run all products one by one, so the cast has to
        come after the wait.
        """
        entry = self.function.arg_of.get(dot.operands[0])
        if entry is None or entry[0] is not dot.region or entry[1] == 0:
            return []
        region, index = entry
        value = region.ops[-1].operands[index - 1]
        node = self.function.def_node(value)
        while node is not None and node.name in _CASTS and value not in self.mapping:
            value = node.operands[0]
            node = self.function.def_node(value)
        return [value] if node is not None and node.region is region and node.name not in _CASTS and value in self.mapping else []

    def _is_added_to(self, value: Any) -> bool:
        """Whether a product adds to this value in the registers in which it is made."""
        return any((user.name == DOT and i == 2 and len(user.operands) == 3) or (user.name == "ttg.convert_layout" and self._is_added_to(user.results[0]))
                   for user, i in self.function.uses(value))

    def _clone_after_products(self, node: Node) -> None:
        """An op that writes what a product will add to: ptxas allows that while no product runs, or else waits by itself (C7517)."""
        before = dict(self.mapping)
        own = [v for v in node.operands if type_info(v.type).shape is not None and ((d := self.function.def_node(v)) is None or d.name != "arith.constant")]
        self._complete(len(self.flying), own)
        self.clone(node)
        for v in own:  # what was made outside a loop is not to be known by what a wait inside gave
            if v in before:
                self.mapping[v] = before[v]
            else:
                self.mapping.pop(v, None)

    def drain(self) -> None:
        if self.flying:
            self._complete(len(self.flying))

    def finish(self) -> None:
        self.drain()
        if self.takes_turns:
            self._meet(arrive=False, only=0)  # the second group's last arrival: no barrier is left half full
        if self.stored:
            self._stores_done()

    # -- ops
    def leave(self, end: Node) -> None:
        """Read the tiles that are handed on, as results of an if or to the next round, into registers: the stage is not kept for them."""
        for held in [h for h in self.held.values() if id(end) in h.left]:
            if not held.waited:
                self._acquire(held)
            self._done(held.group, end)

    def emit(self, node: Node) -> None:
        name = node.name
        group = self.rings.group_of.get(id(node))
        if group is not None:
            if id(group) not in self.held:
                stage, phase = self.advance(group.ring)
                self.held[id(group)] = Held(group, stage, phase, {id(r) for r in group.readers})
            return
        if id(node) in self.filled:
            return
        if node.name in VIEWS and (node.operands[0] in self.views or any(node.operands[0] in h.group.tiles for h in self.held.values())):
            self.views[node.results[0]] = node  # made where it is read: the data may not be there yet
            return
        used = set(node.operands)
        for inner in node.walk():
            used.update(inner.operands)
        views = self._views_behind(used)
        if name == DOT and self._continues(node):
            used.discard(node.operands[2])
        self.wait_for(used)
        for held in list(self.held.values()):
            if not held.waited and any(v in used for v in held.group.tiles):
                self._acquire(held)
        for view in views:
            self.clone(view)
        if name == DOT:
            self._dot(node)
            return
        if self.flying and any(self._is_added_to(v) for v in node.results):
            self._clone_after_products(node)
        elif name == "scf.for":
            self._for(node)
        elif name == "scf.if":
            self.drain()
            self.emit_if(node, list(range(len(node.results))), self.drain)
        elif name in ("tt.descriptor_store", "tt.descriptor_reduce"):
            self._store(node)
        else:
            if self.store_buffers and any(n.name in _ANNOUNCE for n in (node, *node.walk())):
                self._stores_done(complete=True)
                self.emitter.op("ttg.barrier", [], [])
            self.clone(node)
        for group in [h.group for h in self.held.values() if id(node) in h.left]:
            self._done(group, node)

    def _views_behind(self, used: set[Any]) -> list[Node]:
        """The views among the values used and what they are views of, to be made now; their sources join ``used``."""
        found: list[Node] = []
        todo = [v for v in used if v in self.views]
        while todo:
            view = self.views[todo.pop()]
            if view not in found:
                found.append(view)
            used.add(view.operands[0])
            if view.operands[0] in self.views:
                todo.append(view.operands[0])
        return sorted(found, key=lambda n: len(self._chain(n)))

    def _chain(self, view: Node) -> list[Node]:
        chain = [view]
        while (source := self.views.get(chain[-1].operands[0])) is not None:
            chain.append(source)
        return chain

    # -- turns
    def start(self) -> None:
        if self.takes_turns:
            self._meet(arrive=True, only=1)  # the first group begins

    def _meet(self, arrive: bool, only: int | None = None) -> None:
        """This warp group waits for its turn, or lets the other have it."""
        e = self.emitter
        who = "other_warp_group" if arrive else "per_warp_group"
        attributes = {"id": e.attr(TURN_BARRIER), "threads": e.attr(256), "arrive": ir.BoolAttr.get(arrive), who: ir.UnitAttr.get()}
        if only is not None:
            attributes["only"] = e.attr(only)
        e.op("ttng.named_barrier", [], [], attributes)

    def _continues(self, node: Node) -> bool:
        """Whether this product adds to the result of one in flight, which nothing else reads: they run in order."""
        previous = next((f for f in self.flying if f.node.results[0] == node.operands[2]), None)
        return previous is not None and len(self.function.uses(node.operands[2])) == 1

    def _dot(self, node: Node) -> None:
        for f in self.flying:
            if f.node.results[0] == node.operands[2]:
                f.continued = True
        turn = node.str_attr(TURN) if self.takes_turns and TURN in node.op.attributes else ""
        if turn in ("begin", "whole"):
            self._meet(arrive=False)
        new = self.clone(node)
        new.attributes["is_async"] = ir.BoolAttr.get(True)
        if turn in ("end", "whole"):
            self._meet(arrive=True)
        free = self.free.get(id(node))
        groups = [h.group for h in self.held.values() if id(node) in h.left]
        self.flying.append(InFlight(node, [] if free is not None else groups))
        if free:
            # the last round's products are older than those of this round
            self._wait([], len(self.flying))
            for group, stage in free:
                self.emitter.arrive(group.ring, stage, self.emitter.compare(5, stage, self.emitter.number(0)), self.cluster)

    def _stays_in_flight(self, node: Node, body: Region) -> bool:
        """Whether nothing in the loop but the same product of the next round reads this one's result, nor anything but it its stage."""
        accumulator, result = node.operands[2], node.results[0]
        entry = self.function.arg_of.get(accumulator)
        if entry is None or entry[0] is not body or entry[1] == 0 or len(self.function.uses(accumulator)) != 1:
            return False
        end = body.ops[-1]
        if [(user, i) for user, i in self.function.uses(result)] != [(end, entry[1] - 1)]:
            return False
        if self.function.def_node(node.operands[0]) is None or not self._is_memory(node.operands[0]):
            return False
        if any(self._refilled(v, body) for v in node.operands[:2]):
            return False
        groups = [g for g in self.rings.groups if g.region is body and node in g.readers]
        later = body.ops[body.ops.index(node) + 1:]
        return all(g.readers == [node] and g.ring.depth > g.ring.held for g in groups) \
            and not any(n.regions and n.name.startswith("scf.") for n in later)

    def _filled_here(self, value: Any) -> bool:
        """Whether the consumers fill this buffer. All warps then meet before a product reads it: not possible while one has its turn."""
        node = self.function.def_node(value)
        while node is not None and node.name in VIEWS:
            node = self.function.def_node(node.operands[0])
        return node is not None and node.name == "ttg.local_alloc" and id(node) not in self.filled

    def _refilled(self, value: Any, body: Region) -> bool:
        """Whether the consumers themselves fill this buffer, in every round of the loop: no product may still read it then."""
        node = self.function.def_node(value)
        while node is not None and node.name in VIEWS:
            node = self.function.def_node(node.operands[0])
        return node is not None and node.name == "ttg.local_alloc" and id(node) not in self.filled and region_ancestor(node, body) is not None

    @staticmethod
    def _is_memory(value: Any) -> bool:
        return str(value.type).startswith("!ttg.memdesc")

    def _for(self, node: Node) -> None:
        self.drain()
        body = node.regions[0]
        free = [n for n in body.ops if n.name == DOT and self._stays_in_flight(n, body)]
        if free and any(n.name == DOT and n not in free for n in body.ops[body.ops.index(free[0]):]):
            free = []  # one that is waited for would complete those before it
        groups = [g for g in self.rings.groups if g.region is body and g.ring.reused and any(r in free for r in g.readers)]
        e, outer = self.emitter, self.free

        def begin(args: list[Any]) -> None:
            # the first product of a round gives back what all of the round before read
            self.free = {id(n): list(zip(groups, args)) if n is free[0] else [] for n in free}

        def end() -> list[Any]:
            if not free:
                self.drain()
            self.flying = []
            return [self.held.pop(id(g)).stage for g in groups]

        stages = self.emit_for(node, list(range(len(node.results))), [e.number(-1) for _ in groups], begin, end)
        self.free = outer
        if free:
            self._wait([node.results[body.ops[-1].operands.index(n.results[0])] for n in free], 0)
            for group, stage in zip(groups, stages):
                e.arrive(group.ring, stage, e.compare(5, stage, e.number(0)), self.cluster)

    def _stores_done(self, complete: bool = False) -> None:
        """Wait until the bulk stores so far have read shared memory, or also written theirs."""
        attributes = {"pendings": self.emitter.attr(0), **({"complete": ir.UnitAttr.get()} if complete else {})}
        self.emitter.op("ttng.tma_store_wait", [], [], attributes)

    def _store(self, node: Node) -> None:
        """Tile → shared memory → bulk store. The buffer is free once the store before has been read."""
        desc, value, *coords = node.operands
        e, buffer = self.emitter, self.store_buffers[id(node)]
        source = self.function.def_node(value)
        while source is not None and source.name == "ttg.convert_layout" and source.operands[0] in self.mapping:
            value = source.operands[0]  # any layout can be stored
            source = self.function.def_node(value)
        self._stores_done(complete=ORDERED in node.op.attributes)
        e.op("ttg.local_store", [], [self.map(value), buffer])
        e.op("ttng.fence_async_shared", [], [], {"b_cluster": ir.BoolAttr.get(False)})
        operands = [desc, buffer, *map(self.map, coords)]
        if node.name == "tt.descriptor_store":
            e.op("ttng.async_tma_copy_local_to_global", [], operands)
        else:
            e.op("ttng.async_tma_reduce", [], operands, {"kind": node.op.attributes["kind"]})
        self.stored = True
