"""Emission of the two halves of a warp-specialised kernel; see warp_specialize.py for what they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.loop_edit import clone_under
from tilewright.dialects.analysis.structure import Function, Node, Region, attribute_names, type_info
from tilewright.targets.nvidia.passes.store_order import ORDERED
from tilewright.targets.nvidia.passes.warp_rings import (
    DOT,
    TURN,
    VIEWS,
    Group,
    Load,
    Needed,
    Ring,
    Rings,
    region_ancestor,
)

State = dict[int, tuple[Any, Any]]  # id of a ring → (stage, phase)
_CASTS = frozenset(("arith.truncf", "ttg.convert_layout", "tt.fp_to_fp"))
_ATOMICS = frozenset(("tt.atomic_rmw", "tt.atomic_cas"))
TURN_BARRIER = 2  # and the next: hardware barriers of the two warp groups that take turns


class Emitter:
    """Creates ops at ``ip``."""

    def __init__(self, location: Any, ip: Any):
        self.location, self.ip = location, ip
        self.i32, self.i1 = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(1)
        self.flat = ttg.SwizzledSharedEncoding.of(1, 1, 1, [0])

    def op(self, name: str, results: list[Any], operands: list[Any], attributes: dict[str, Any] | None = None, regions: int = 0) -> Any:
        return ir.Operation.create(name, results=results, operands=operands, attributes=attributes or {}, regions=regions,
                                   loc=self.location, ip=self.ip)

    def number(self, value: int, type_: Any = None) -> Any:
        type_ = type_ or self.i32
        return self.op("arith.constant", [type_], [], {"value": ir.IntegerAttr.get(type_, value)}).result

    def attr(self, value: int) -> Any:
        return ir.IntegerAttr.get(self.i32, value)

    def binary(self, name: str, a: Any, b: Any) -> Any:
        return self.op(f"arith.{name}", [a.type], [a, b]).result

    def compare(self, predicate: int, a: Any, b: Any) -> Any:
        attr = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
        return self.op("arith.cmpi", [self.i1], [a, b], {"predicate": attr}).result

    def alloc(self, type_: Any) -> Any:
        return self.op("ttg.local_alloc", [type_], [], {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0])}).result

    def barriers(self, count: int, arrivals: int) -> Any:
        """``count`` mbarriers, each of which ``arrivals`` complete a phase of."""
        i64 = ir.IntegerType.get_signless(64)
        array = self.alloc(ttg.MemDescType.of([count, 1], i64, self.flat, True))
        for i in range(count):
            self.op("ttng.init_barrier", [], [self.index(array, self.number(i))], {"count": self.attr(arrivals)})
        return array

    def index(self, array: Any, stage: Any) -> Any:
        """Stage ``stage`` of a multi-buffered memdesc."""
        t = ttg.MemDescType(array.type)
        return self.op("ttg.memdesc_index", [ttg.MemDescType.of(t.shape[1:], t.element_type, t.encoding, True)], [array, stage]).result

    def wait(self, barriers: Any, stage: Any, phase: Any) -> None:
        self.op("ttng.wait_barrier", [], [self.index(barriers, stage), phase], {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, 0])})

    def arrive(self, ring: Ring, stage: Any, pred: Any = None, cluster: Cluster | None = None) -> None:
        """Give a stage back: to this block's producer, and once more to it or, where the stage is shared, to the other block's."""
        scope = ir.StringAttr.get("warp" if ring.by_threads else "warp_group")
        barrier = self.index(ring.empty, stage)

        def send(name: str, operands: list[Any], pred: Any) -> None:
            sizes = [1] * len(operands) + [int(pred is not None)]
            self.op(name, [], operands + ([pred] if pred is not None else []),
                    {"count": self.attr(1), "scope": scope, "operandSegmentSizes": ir.DenseI32ArrayAttr.get(sizes)})

        send("ttng.arrive_barrier", [barrier], pred)
        if cluster is not None and ring.mask:
            shared, alone = cluster.shares[id(ring)]
            send("ttng.arrive_barrier", [barrier], alone if pred is None else self.binary("andi", alone, pred))
            send("ttng.arrive_barrier_remote", [barrier, cluster.other], shared if pred is None else self.binary("andi", shared, pred))


def half_dim(memory: Any) -> int:
    """The dim along which two blocks halve a tile: the last where that parts panels, else the first."""
    panel = int(ir.IntegerAttr(memory.encoding.params[0]).value)
    return len(memory.shape) - 1 if memory.shape[-1] >= 2 * panel else 0


@dataclass
class Cluster:
    """Two blocks that may share tiles. rank: this block's, 0 or 1; other: the other's. bits: bit → i1, whether it is set. shares: id of a
    ring → (i1 whether any of its loads is shared, its opposite)."""

    rank: Any
    other: Any
    bits: dict[int, Any]
    shares: dict[int, tuple[Any, Any]]

    @staticmethod
    def of(e: Emitter, flags: Any, rings: list[Ring]) -> Cluster | None:
        if flags is None:
            return None
        rank = e.op("ttng.cluster_rank", [e.i32], []).result
        zero = e.number(0)

        def is_set(mask: int, predicate: int = 1) -> Any:
            return e.compare(predicate, e.binary("andi", flags, e.number(mask)), zero)

        bits = {load.bit: is_set(1 << load.bit) for ring in rings for load in ring.loads if load.bit is not None}
        return Cluster(rank, e.binary("xori", rank, e.number(1)), bits, {id(r): (is_set(r.mask), is_set(r.mask, 0)) for r in rings if r.mask})


class Half:
    """Copies blocks of the kernel; ``mapping``: old values → new. Subclasses say what becomes of single ops."""

    def __init__(self, function: Function, rings: Rings):
        self.function, self.rings = function, rings
        self.mapping: dict[Any, Any] = {}
        self.states: State = {}
        self.emitter: Emitter = None  # type: ignore[assignment]  # set by emit_function

    def emit_function(self, nodes: list[Node], block: Any) -> None:
        """Emit the function's ops into ``block``, terminator included."""
        self.emitter = Emitter(nodes[0].op.location, ir.InsertionPoint(block))
        for ring in self.rings.rings:
            self.states[id(ring)] = (self.emitter.number(0), self.emitter.number(self.first_phase))
        self.start()
        self.emit_block(nodes)
        self.finish()
        self.emitter.op("ttng.warp_return", [], [])

    first_phase = 0

    def start(self) -> None:
        """What the half does first."""

    def finish(self) -> None:
        """What the half does at its end."""

    def emit_block(self, nodes: list[Node]) -> None:
        for node in nodes:
            self.emitter.location = node.op.location
            self.emit(node)

    def emit(self, node: Node) -> None:
        raise NotImplementedError

    def map(self, value: Any) -> Any:
        return self.mapping.get(value, value)

    def clone(self, node: Node) -> Any:
        """A copy of the op, with all that its regions hold, under the mapping."""
        return clone_under(node, self.mapping, self.emitter.ip)

    def advance(self, ring: Ring) -> tuple[Any, Any]:
        """(stage, phase) to use now; the state moves on."""
        e = self.emitter
        stage, phase = self.states[id(ring)]
        if not ring.reused:
            return stage, phase
        if ring.depth == 1:
            self.states[id(ring)] = (stage, e.binary("xori", phase, e.number(1)))
            return stage, phase
        following = e.binary("addi", stage, e.number(1))
        wraps = e.compare(0, following, e.number(ring.depth))
        turned = e.binary("xori", phase, e.number(1))
        self.states[id(ring)] = (e.op("arith.select", [e.i32], [wraps, e.number(0), following]).result,
                                 e.op("arith.select", [e.i32], [wraps, turned, phase]).result)
        return stage, phase

    # -- control flow
    def emit_for(self, node: Node, carried: list[int], extra: list[Any], after_args: Any, before_yield: Any) -> list[Any]:
        """A loop with the carried values of those numbers, the states of the rings used inside, and ``extra``.

        ``after_args(args)`` is told the block arguments of ``extra``; ``before_yield()`` gives what they become. Returns the results of
        ``extra``.
        """
        e = self.emitter
        rings = self.rings.in_region(node)
        body = node.regions[0]
        inits = [self.map(node.operands[3 + i]) for i in carried]
        flat = [v for r in rings for v in self.states[id(r)]]
        operands = [*map(self.map, node.operands[:3]), *inits, *flat, *extra]
        attributes = {name: node.op.attributes[name] for name in attribute_names(node.op)}
        loop = e.op("scf.for", [v.type for v in operands[3:]], operands, attributes, regions=1)
        block = loop.regions[0].blocks.append(operands[0].type, *(v.type for v in operands[3:]))
        args = list(block.arguments)
        self.mapping[body.args[0]] = args[0]
        for n, i in enumerate(carried):
            self.mapping[body.args[1 + i]] = args[1 + n]
        at = 1 + len(carried)
        for n, r in enumerate(rings):
            self.states[id(r)] = (args[at + 2 * n], args[at + 2 * n + 1])
        outer, e.ip = e.ip, ir.InsertionPoint(block)
        after_args(args[at + 2 * len(rings):])
        self.emit_block(body.ops[:-1])
        end = body.ops[-1]
        more = before_yield()
        yielded = [self.map(end.operands[i]) for i in carried]
        e.op("scf.yield", [], [*yielded, *(v for r in rings for v in self.states[id(r)]), *more])
        e.ip = outer
        results = list(loop.results)
        for n, i in enumerate(carried):
            self.mapping[node.results[i]] = results[n]
        at = len(carried)
        for n, r in enumerate(rings):
            self.states[id(r)] = (results[at + 2 * n], results[at + 2 * n + 1])
        return results[at + 2 * len(rings):]

    def emit_if(self, node: Node, wanted: list[int], drain: Any) -> None:
        """An if with the results of those numbers and the states of the rings used inside."""
        e = self.emitter
        rings = self.rings.in_region(node)
        before = dict(self.states)
        types = [node.results[i].type for i in wanted] + [e.i32] * (2 * len(rings))
        op = e.op("scf.if", types, [self.map(node.operands[0])], regions=2)
        outer = e.ip
        for n in range(2):
            self.states = dict(before)
            e.ip = ir.InsertionPoint(op.regions[n].blocks.append())
            yielded: list[Any] = []
            if n < len(node.regions):
                ops = node.regions[n].ops
                self.emit_block(ops[:-1])
                drain()
                yielded = [self.map(ops[-1].operands[i]) for i in wanted]
            e.op("scf.yield", [], [*yielded, *(v for r in rings for v in self.states[id(r)])])
        e.ip = outer
        self.states = dict(before)
        results = list(op.results)
        for n, i in enumerate(wanted):
            self.mapping[node.results[i]] = results[n]
        for n, r in enumerate(rings):
            self.states[id(r)] = (results[len(wanted) + 2 * n], results[len(wanted) + 2 * n + 1])


class Producer(Half):
    """Loops, coordinates and copies."""

    first_phase = 1

    def __init__(self, function: Function, rings: Rings, needed: Needed, cluster: Cluster | None):
        super().__init__(function, rings)
        self.needed, self.cluster = needed, cluster

    def start(self) -> None:
        """The tensor maps are on their way while the first coordinates are computed."""
        ops = [n for n in self.function.nodes() if n.name in ("tt.descriptor_load", "tt.descriptor_store", "tt.descriptor_reduce")]
        for desc in dict.fromkeys(n.operands[0] for n in ops):
            self.emitter.op("ttng.prefetch_tensormap", [], [desc])

    def emit(self, node: Node) -> None:
        if id(node) not in self.needed.ops:
            return
        group = self.rings.group_of.get(id(node))
        if group is not None:
            if node is max((load.node for load in group.loads), key=lambda n: group.region.ops.index(n)):
                self._copy(group)
        elif node.name == "scf.for":
            self.emit_for(node, sorted(self.needed.carried.get(id(node), ())), [], lambda args: None, lambda: [])
        elif node.name == "scf.if":
            self.emit_if(node, sorted(self.needed.results.get(id(node), ())), lambda: None)
        else:
            self.clone(node)

    def _copy(self, group: Group) -> None:
        e, ring = self.emitter, group.ring
        stage, phase = self.advance(ring)
        if ring.reused:
            e.wait(ring.empty, stage, phase)
        full = e.index(ring.full, stage)
        true = e.number(1, e.i1)
        e.op("ttng.barrier_expect", [], [full, true], {"size": e.attr(ring.stage_bytes)})
        for load, buffer in zip(group.loads, ring.buffers):
            desc, *coords = load.node.operands
            e.location = load.node.op.location
            attributes = {name: load.node.op.attributes[name] for name in ("cache", "evict")}
            operands = [desc, full, e.index(buffer, stage), true, *map(self.map, coords)]
            if self.cluster is None or load.bit is None:
                e.op("ttng.async_tma_copy_global_to_local", [], operands, attributes)
            else:
                self._copy_for_both(load, operands, attributes)

    def _copy_for_both(self, load: Load, operands: list[Any], attributes: dict[str, Any]) -> None:
        """Where the tile is shared: this block's half of it, for both blocks. Else all of it for this one."""
        e, cluster = self.emitter, self.cluster
        assert cluster is not None and load.bit is not None
        desc, full, memory, true, *coords = operands
        t = load.memory
        dim = half_dim(t)
        size = t.shape[dim] // 2

        def half(number: int) -> None:
            view = ttg.MemDescType.of([size if d == dim else s for d, s in enumerate(t.shape)], t.element_type, t.encoding, True)
            offsets = [number * size if d == dim else 0 for d in range(len(t.shape))]
            part = e.op("ttg.memdesc_subslice", [view], [memory], {"offsets": ir.DenseI32ArrayAttr.get(offsets)}).result
            at = list(coords)
            place = len(at) - len(t.shape) + dim
            if number:
                at[place] = e.binary("addi", at[place], e.number(size))
            e.op("ttng.async_tma_copy_global_to_local", [], [desc, full, part, true, *at], {**attributes, "multicast": e.attr(3)})

        def whole() -> None:
            e.op("ttng.async_tma_copy_global_to_local", [], operands, attributes)

        def mine() -> None:
            self._either(e.compare(0, cluster.rank, e.number(0)), lambda: half(0), lambda: half(1))

        self._either(cluster.bits[load.bit], mine, whole)

    def _either(self, condition: Any, then: Any, other: Any) -> None:
        """An if without results."""
        e = self.emitter
        op = e.op("scf.if", [], [condition], regions=2)
        outer = e.ip
        for region, build in zip(op.regions, (then, other)):
            e.ip = ir.InsertionPoint(region.blocks.append())
            build()
            e.op("scf.yield", [], [])
        e.ip = outer


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
            if node.name in _ATOMICS and self.store_buffers:  # they may tell others that what was stored before is there
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
