"""What warp specialisation knows of a kernel before it rewrites it: which loads go through which ring, and who needs what.

A *ring* is a shared-memory buffer of ``depth`` stages with two mbarriers a stage, ``full`` (the producer's bytes have arrived) and
``empty`` (the consumers have read them); see the PTX ISA manual, "mbarrier". A *group* is the loads of one block that share a stage:
those that the same matrix product reads. Groups that read the same descriptors into the same kinds of buffer share a ring, wherever
they stand: producer and consumers come to them in the same order, which is all that a ring asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects.analysis.structure import Function, Node, Region, is_removable, region_ancestor, type_info
from tilewright.dialects.encodings import element_bits
from tilewright.targets.nvidia.passes.cluster_pairs import BIT
from tilewright.targets.nvidia.passes.streamed_tiles import STREAM
from tilewright.targets.nvidia.passes.use_warp_group_dots import panel_encoding

DOT = "ttng.warp_group_dot"
# on products: two warp groups take turns to issue those from "begin" to "end" ("whole": this one alone)
TURN = "ttng.turn"
VIEWS = frozenset(("ttg.memdesc_trans", "ttg.memdesc_subslice"))


class NotSpecialised(Exception):
    """The kernel stays as it is; the text says why."""


@dataclass
class Load:
    """A tt.descriptor_load that goes through a ring. ``memory``: type of its buffer. ``allocs``: the local_allocs that it fills."""

    node: Node
    memory: Any
    allocs: list[Node]

    @property
    def bit(self) -> int | None:
        """The bit of the flags that says whether the two blocks of a cluster share the tile; None: they never do."""
        return self.node.int_attr(BIT) if BIT in self.node.op.attributes else None

    @property
    def stream(self) -> int | None:
        """The bit of the flags that says whether the grid reads the tensor once; None: that is not known."""
        return self.node.int_attr(STREAM) if STREAM in self.node.op.attributes else None

    @property
    def bytes(self) -> int:
        n = element_bits(self.memory.element_type) // 8
        for s in self.memory.shape:
            n *= s
        return n


@dataclass
class Ring:
    """Stages shared by groups. ``reused``: some stage is filled more than once, so that ``empty`` is needed."""

    key: Any
    loads: list[Load]
    depth: int = 1
    reused: bool = False
    held: int = 1  # most stages that one block holds at a time
    by_threads: bool = False  # some consumer reads with ordinary loads, so that every warp says when it is done
    buffers: list[Any] = field(default_factory=list)
    full: Any = None
    empty: Any = None

    @property
    def mask(self) -> int:
        """The bits of the flags that concern its loads."""
        return sum(1 << load.bit for load in self.loads if load.bit is not None)

    @property
    def stage_bytes(self) -> int:
        return sum(load.bytes for load in self.loads)


@dataclass
class Group:
    """The loads of one stage, in one block, and the ops that read them (nodes of that block: a loop stands for what is in it)."""

    loads: list[Load]
    region: Region
    ring: Ring
    readers: list[Node] = field(default_factory=list)
    tiles: list[Any] = field(default_factory=list)  # the loaded tensors, and the buffers filled with them


class Rings:
    """The analysis of one function. Raises NotSpecialised."""

    def __init__(self, function: Function, stages: int):
        self.function = function
        self.stages = stages
        self.load_of: dict[int, Load] = {}
        self.group_of: dict[int, Group] = {}  # by id of the load's node
        self.groups: list[Group] = []
        self.rings: list[Ring] = []
        for node in function.nodes():
            if node.name == "tt.descriptor_load":
                self.load_of[id(node)] = self._load(node)
        self._make_groups()

    # -- loads
    def _load(self, node: Node) -> Load:
        allocs = [user for user, _ in self.function.uses(node.results[0]) if user.name == "ttg.local_alloc"]
        if not allocs:
            return Load(node, self._memory(node), [])
        types = {a.results[0].type for a in allocs}
        if len(types) > 1:
            raise NotSpecialised("one load is wanted under two layouts of shared memory")
        return Load(node, ttg.MemDescType(allocs[0].results[0].type), allocs)

    def _memory(self, node: Node) -> Any:
        """The buffer of a tile that is only wanted in registers (queries that are scaled first): rows of up to 128 bytes, swizzled."""
        info = type_info(node.results[0].type)
        if info.shape is None or len(info.shape) < 2:
            raise NotSpecialised("a row is loaded into registers by a descriptor")
        order = tuple(reversed(range(len(info.shape))))
        try:
            encoding = panel_encoding(info.shape, info.bits, order, info.shape[-1])
        except ValueError as why:
            raise NotSpecialised(f"a tile is loaded into registers: {why}") from None
        return ttg.MemDescType.of(info.shape, info.element, encoding, True)

    def readers(self, load: Load) -> list[Node]:
        """The ops that read the loaded data, through views."""
        found: list[Node] = []
        todo = list(load.allocs)
        found += [user for user, _ in self.function.uses(load.node.results[0]) if user not in load.allocs]
        while todo:
            for user, _ in self.function.uses(todo.pop().results[0]):
                (todo if user.name in VIEWS else found).append(user)
        return found

    # -- groups and rings
    def _make_groups(self) -> None:
        by_reader: dict[tuple[int, int], list[Load]] = {}
        for load in self.load_of.values():
            readers = self.readers(load)
            region = load.node.region
            assert region is not None
            owners = {id(o): o for r in readers if (o := region_ancestor(r, region)) is not None}
            if not owners:
                raise NotSpecialised("a load whose data nothing reads")
            first = min(owners.values(), key=region.ops.index)
            by_reader.setdefault((id(region), id(first)), []).append(load)
        rings: dict[Any, Ring] = {}
        for loads in by_reader.values():
            region = loads[0].node.region
            assert region is not None
            key = tuple((load.node.operands[0], str(load.memory)) for load in loads)
            ring = rings.get(key)
            if ring is None:
                ring = rings[key] = Ring(key, loads)
                self.rings.append(ring)
            group = Group(loads, region, ring)
            seen: dict[int, Node] = {}
            for load in loads:
                for reader in self.readers(load):
                    owner = region_ancestor(reader, region)
                    assert owner is not None
                    if reader.name == "scf.yield" and load.node.results[0] not in reader.operands:
                        raise NotSpecialised("a loaded tile's buffer is handed on by a loop or an if")
                    seen[id(owner)] = owner
                    ring.by_threads |= reader.name != DOT
                self.group_of[id(load.node)] = group
            group.readers = list(seen.values())
            group.tiles = [v for load in loads for v in (load.node.results[0], *(a.results[0] for a in load.allocs))]
            self.groups.append(group)
        for ring in self.rings:
            groups = [g for g in self.groups if g.ring is ring]
            looped = any(g.loads[0].node.depth for g in groups)
            ring.reused = looped or len(groups) > 1
            ring.held = max(sum(1 for g in groups if g.region is region) for region in {id(g.region): g.region for g in groups}.values())
            innermost = any(g.loads[0].node.depth and not self._has_inner_loop(g.region) for g in groups)
            ring.depth = 1 if not ring.reused else max(self.stages, ring.held + 1) if innermost else ring.held

    @staticmethod
    def _has_inner_loop(region: Region) -> bool:
        """Whether a loop that loads stands in this block: then its own loads are the many, and these the few."""
        loops = (n for op in region.ops for n in (op, *op.walk()) if n.name in ("scf.for", "scf.while"))
        return any(m.name == "tt.descriptor_load" for loop in loops for m in loop.walk())

    def in_region(self, node: Node) -> list[Ring]:
        """Rings used inside an op with regions, in their order."""
        used = {id(self.group_of[id(m)].ring) for m in node.walk() if id(m) in self.group_of}
        return [r for r in self.rings if id(r) in used]


class Needed:
    """What the producer has to compute: the backward slice of the loads' coordinates and of the control flow around them.

    ``ops``: ids of nodes to copy. ``carried``: loop id → numbers of the carried values that are needed. Raises NotSpecialised
    where one thread could not compute it, or would read memory that the kernel writes.
    """

    def __init__(self, function: Function, loads: Iterable[Node]):
        self.function = function
        self.ops: set[int] = set()
        self.carried: dict[int, set[int]] = {}
        self.results: dict[int, set[int]] = {}  # scf.if → numbers of needed results
        for load in loads:
            self._op(load)
            for v in load.operands:
                self._value(v)

    def _op(self, node: Node) -> None:
        """The op and the control flow around it."""
        if id(node) in self.ops:
            return
        self.ops.add(id(node))
        parent = node.parent
        if parent is None or parent.name == "func.func":
            return
        if parent.name not in ("scf.for", "scf.if"):
            raise NotSpecialised(f"a load stands in {parent.name}")
        if id(parent) not in self.ops:
            self._op(parent)
            for v in parent.operands[:3] if parent.name == "scf.for" else parent.operands[:1]:
                self._value(v)

    def _value(self, value: Any) -> None:
        todo = [value]
        while todo:
            v = todo.pop()
            node = self.function.def_node(v)
            if node is None:
                region, index = self.function.arg_of[v]
                if region.parent.name == "scf.for" and index > 0:
                    self._carry(region.parent, index - 1, todo)
                continue
            if node.name == "scf.for":
                self._carry(node, node.results.index(v), todo)
                self._structure(node, todo)
            elif node.name == "scf.if":
                number = node.results.index(v)
                if number not in self.results.setdefault(id(node), set()):
                    self.results[id(node)].add(number)
                    self._structure(node, todo)
                    todo += [r.ops[-1].operands[number] for r in node.regions]
            elif id(node) not in self.ops:
                self._check(node)
                self._op(node)
                todo += node.operands

    def _structure(self, node: Node, todo: list[Any]) -> None:
        if id(node) not in self.ops:
            self._op(node)
            todo += node.operands[:3] if node.name == "scf.for" else node.operands[:1]

    def _carry(self, loop: Node, index: int, todo: list[Any]) -> None:
        if index in self.carried.setdefault(id(loop), set()):
            return
        self.carried[id(loop)].add(index)
        self._structure(loop, todo)
        todo += [loop.operands[3 + index], loop.regions[0].ops[-1].operands[index]]

    def _check(self, node: Node) -> None:
        if any(type_info(v.type).shape is not None for v in (*node.operands, *node.results)):
            raise NotSpecialised(f"where a load reads depends on a tensor ({node.name})")
        if node.regions:
            raise NotSpecialised(f"where a load reads depends on {node.name}")
        if node.name == "tt.load":
            raise NotSpecialised("where a load reads depends on memory")
        if not is_removable(node) and node.name not in ("tt.get_program_id", "tt.get_num_programs"):
            raise NotSpecialised(f"where a load reads depends on {node.name}, which has effects")
