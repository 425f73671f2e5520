"""What both halves of a warp-specialised kernel share, and the producer's half; see warp_specialize.py for what they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.loop_edit import clone_under
from tilewright.dialects.analysis.structure import Function, Node, attribute_names
from tilewright.targets.nvidia.passes.warp_rings import Group, Load, Needed, Ring, Rings

State = dict[int, tuple[Any, Any]]  # id of a ring → (stage, phase)


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


def streamed_tensors(e: Emitter, flags: Any, rings: list[Ring]) -> dict[int, Any]:
    """Bit of a tensor that the grid may read once → i32, not 0 where the bit is set."""
    bits = sorted({load.stream for ring in rings for load in ring.loads if load.stream is not None})
    return {bit: e.binary("andi", flags, e.number(1 << bit)) for bit in bits}


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

    def leave(self, end: Node) -> None:
        """What the half does before the last op of a block, which hands values on."""

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
        self.leave(end)
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
                self.leave(ops[-1])
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

    def __init__(self, function: Function, rings: Rings, needed: Needed, cluster: Cluster | None, streamed: Mapping[int, Any]):
        super().__init__(function, rings)
        self.needed, self.cluster, self.streamed = needed, cluster, streamed

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
            if load.stream is not None:
                operands.append(self.streamed[load.stream])
                attributes["streamed"] = ir.UnitAttr.get()
            if self.cluster is None or load.bit is None:
                e.op("ttng.async_tma_copy_global_to_local", [], operands, attributes)
            else:
                self._copy_for_both(load, operands, attributes)

    def _copy_for_both(self, load: Load, operands: list[Any], attributes: dict[str, Any]) -> None:
        """Where the tile is shared: this block's half of it, for both blocks. Else all of it for this one."""
        e, cluster = self.emitter, self.cluster
        assert cluster is not None and load.bit is not None
        desc, full, memory, true, *coords = operands
        streamed = [coords.pop()] if load.stream is not None else []
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
            e.op("ttng.async_tma_copy_global_to_local", [], [desc, full, part, true, *at, *streamed], {**attributes, "multicast": e.attr(3)})

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
