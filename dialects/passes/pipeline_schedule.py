"""What pipeline_loops decides: which loads of a loop are issued ahead of time, how, how far, and where they are waited for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.dialects import encodings, ttg
from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.analysis.call_graph import CALL, is_called
from tilewright.dialects.analysis.dots import is_asynchronous_dot, is_dot
from tilewright.dialects.analysis.structure import Function, Node, type_info
from tilewright.dialects.passes import fold_constants
from tilewright.dialects.passes.allocate_shared_memory import stage_bytes
from tilewright.dialects.passes.dce_cse import is_pure
from tilewright.dialects.pipeline import PassContext

ALLOC = "ttg.local_alloc"
# attribute (i32) of a loop, by a target's pass: its loads through registers get two buffers, and so many tiles wait for them in registers
REGISTER_TILES = "ttg.register_tiles"
# attribute (unit) of a load, by a target's pass: there are no registers to load it ahead. Its buffer is filled where it stands
AT_USE = "ttg.at_use"
# buffers of a ring up to which the loop's body is written as often, so that the slot is part of constant addresses: code and compile time grow as much
MOST_ROUNDS = 4
BY_LANE = "async_copies_by_lane"  # of Capabilities.extra: a warp's copy is one run of shared memory, a lane's vector after another's
# between a load and the dot that it feeds
_ON_THE_WAY = frozenset((ALLOC, "ttg.local_load", "ttg.memdesc_trans", "ttg.convert_layout", "tt.trans", "tt.fp_to_fp", "tt.bitcast",
                         "tt.reshape", "arith.extf", "arith.truncf", "arith.extsi", "arith.extui", "arith.trunci", "arith.sitofp",
                         "arith.uitofp", "arith.fptosi", "arith.fptoui", "arith.bitcast", "arith.andi", "arith.subf"))
_POINTER_OPS = frozenset(("tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.bitcast", "ttg.convert_layout", "tt.reshape",
                          "tt.trans"))
# nothing is loaded ahead over these
_FENCES = frozenset(("tt.atomic_rmw", "tt.atomic_cas", "tt.debug_barrier", "ttg.barrier", "tt.assert", "scf.for", "scf.while", CALL))


@dataclass
class PipelinedLoad:
    """``alloc``: the local_alloc that the load fills, for an async copy; None: prefetched in registers."""

    load: Node
    alloc: Node | None
    position: int  # of the first use, in the loop's body

    @property
    def is_async(self) -> bool:
        return self.alloc is not None


@dataclass
class LoopPlan:
    """``groups`` of async loads that are waited for together, in order; ``distance``: iterations that they are ahead;
    ``buffers``: stages of each buffer, ``distance`` or up to two more; ``early``: whether the copies are issued before their group's
    data is first read, else at the iteration's end; ``registers``: loads prefetched one iteration ahead; ``staged``: loads through registers
    into two buffers, ``distance`` iterations ahead, of which one lies in the buffer and the others in registers; ``rounds``: how often the
    lowering writes the body (``ttg.rounds``)."""

    loop: Node
    groups: list[list[PipelinedLoad]] = field(default_factory=list)
    registers: list[PipelinedLoad] = field(default_factory=list)
    staged: list[PipelinedLoad] = field(default_factory=list)
    distance: int = 1
    buffers: int = 1
    early: bool = False
    rounds: int = 1


class Slice:
    """What of one iteration must be computed to know ``roots`` (the operands of loads): ``nodes`` of the loop's body and
    ``carried`` (numbers of loop-carried values). ``ok`` is False where that is not pure, ``loads`` where it reads memory."""

    def __init__(self, function: Function, loop: Node, roots: list[Any]):
        body = loop.regions[0]
        self.nodes: set[int] = set()
        self.carried: set[int] = set()
        self.ok, self.loads = True, False
        work, seen = list(roots), set()
        while work:
            value = work.pop()
            if value in seen:
                continue
            seen.add(value)
            node = function.def_node(value)
            if node is None:
                region, index = function.arg_of[value]
                if region is body and index > 0:
                    self.carried.add(index - 1)
                    work.append(body.ops[-1].operands[index - 1])
                continue
            if node.region is not body:
                continue
            if node.name == "tt.load" and not node.bool_attr("is_volatile"):
                self.loads = True
            elif not is_pure(node) or is_dot(node.name) or node.name.startswith("scf."):
                self.ok = False
                return
            self.nodes.add(id(node))
            work.extend(node.operands)


def constant(function: Function, value: Any) -> int | None:
    """The integer that arith.constant gives ``value``."""
    node = function.def_node(value)
    if node is None or node.name != "arith.constant":
        return None
    number = fold_constants.attribute_value(node.attr("value"))
    return int(number) if number is not None else None


def trip_count(function: Function, loop: Node) -> int | None:
    """The number of iterations where the bounds are constants."""
    lower, upper, step = (constant(function, v) for v in loop.operands[:3])
    if step is not None and step <= 0:
        return 0
    if lower is None or upper is None or step is None:
        return None
    return max(0, -(-(upper - lower) // step))


def base_pointers(function: Function, pointer: Any) -> set[Any] | None:
    """The kernel arguments that a pointer may be based on; None where that is not known. Arguments of a called function may come
    from one of the kernel's."""
    bases: set[Any] = set()
    work, seen = [pointer], set()
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        node = function.def_node(value)
        if node is not None:
            if node.name in _POINTER_OPS:
                work.append(node.operands[0])
            elif node.name == "arith.select":
                work += node.operands[1:]
            elif node.name == "scf.for":
                index = node.results.index(value)
                work += [node.operands[3 + index], node.regions[0].ops[-1].operands[index]]
            elif node.name == "scf.if":
                index = node.results.index(value)
                work += [r.ops[-1].operands[index] for r in node.regions]
            else:
                return None
            continue
        region, index = function.arg_of[value]
        parent = region.parent
        if parent.name == "func.func":
            if is_called(function):
                return None
            bases.add(value)
        elif parent.name == "scf.for" and index > 0:
            work += [parent.operands[index + 2], region.ops[-1].operands[index - 1]]
        else:
            return None
    return bases


def grouped(loads: list[PipelinedLoad], body: list[Node]) -> list[list[PipelinedLoad]]:
    """In order of first use; loads whose data is needed before the same dot are together."""
    groups: list[list[PipelinedLoad]] = []
    for load in sorted(loads, key=lambda c: c.position):
        if groups and not any(is_dot(n.name) for n in body[groups[-1][0].position:load.position]):
            groups[-1].append(load)
        else:
            groups.append([load])
    return groups


def loops_with_dots(function: Function) -> list[Node]:
    """Loops with a dot directly in their body."""
    return [n for n in function.nodes() if n.name == "scf.for" and any(is_dot(m.name) for m in n.regions[0].ops)]


def stages_asked(loop: Node, ctx: PassContext) -> int:
    """The loop's own ``num_stages``, else the launch option."""
    return loop.int_attr("tt.num_stages") if "tt.num_stages" in loop.op.attributes else ctx.num_stages


def stages_of(loop: Node, ctx: PassContext) -> int:
    """What is asked for, and at most what a target found to fit (its option ``most_stages``; 0: all)."""
    asked, most = stages_asked(loop, ctx), getattr(ctx.options, "most_stages", 0)
    return min(asked, most) if most else asked


class Scheduler:
    """Plans of one function's innermost loops."""

    def __init__(self, function: Function, ctx: PassContext):
        self.function, self.ctx = function, ctx
        self._axis_info: AxisInfoAnalysis | None = None

    def loops(self) -> list[Node]:
        """See loops_with_dots."""
        return loops_with_dots(self.function)

    def plan(self, loop: Node) -> LoopPlan | None:
        """What to do with the loop; None for nothing."""
        attributes = loop.op.attributes
        stages = stages_of(loop, self.ctx)
        inner = list(loop.walk())
        step = constant(self.function, loop.operands[2])
        if stages < 2 or "unsignedCmp" in attributes or (step is not None and step <= 0) or any(n.name in _FENCES or self._may_act(n) for n in inner):
            return None
        stores = [n for n in inner if n.name == "tt.store"]
        body = loop.regions[0].ops
        position = {id(n): i for i, n in enumerate(body)}
        plan = LoopPlan(loop, distance=stages - 1)
        copies: list[PipelinedLoad] = []
        for node in body:
            if node.name != "tt.load" or node.bool_attr("is_volatile") or not self.feeds_dot(node, loop):
                continue
            ahead = Slice(self.function, loop, node.operands)
            if not ahead.ok or not self._independent(node, stores):
                continue
            uses = self.function.uses(node.results[0])
            first = min(position[id(self._top(user, loop))] for user, _ in uses)
            alloc = next((user for user, _ in uses if user.name == ALLOC and user.region is node.region), None)
            if alloc is not None and not ahead.loads and self._copyable(node, alloc):
                copies.append(PipelinedLoad(node, alloc, first))
            elif AT_USE not in node.op.attributes:
                plan.registers.append(PipelinedLoad(node, None, first))
        plan.groups = grouped(copies, body)
        if plan.groups:
            plan.buffers, plan.early = self._buffers(plan)
            if plan.buffers <= MOST_ROUNDS and self.ctx.capabilities.extra.get(BY_LANE) and constant(self.function, loop.operands[2]):
                plan.rounds = plan.buffers
        elif REGISTER_TILES in attributes:
            tiles = min(loop.int_attr(REGISTER_TILES), stages - 2)
            plan.staged = self.stageable(plan) if tiles > 0 else []
            if plan.staged:
                plan.registers = [c for c in plan.registers if not any(c.load is s.load for s in plan.staged)]
                plan.distance, plan.buffers, plan.rounds = tiles + 1, 2, 2
        return plan if plan.groups or plan.registers or plan.staged else None

    def stageable(self, plan: LoopPlan) -> list[PipelinedLoad]:
        """Of the loads through registers those that fill a buffer and do nothing else; none where only some of the buffers of the loop's
        products are filled so: the others' barriers would stay."""
        found = []
        for c in plan.registers:
            users = [user for user, _ in self.function.uses(c.load.results[0])]
            allocs = [u for u in users if u.name == ALLOC and u.region is c.load.region]
            if allocs and (len(users) > 1 or not self._only_read(allocs[0].results[0])):
                return []
            found += [PipelinedLoad(c.load, a, c.position) for a in allocs]
        return found

    def _only_read(self, memory: Any) -> bool:
        return all(u.name == "ttg.local_load" or u.name == "ttg.memdesc_trans" and self._only_read(u.results[0])
                   for u, _ in self.function.uses(memory))

    @staticmethod
    def _may_act(node: Node) -> bool:
        return node.name in ("tt.extern_elementwise", "tt.elementwise_inline_asm") and not node.bool_attr("pure")

    @staticmethod
    def _top(node: Node, loop: Node) -> Node:
        """The op of the loop's body that is ``node`` or holds it."""
        while node.parent is not loop:
            assert node.parent is not None
            node = node.parent
        return node

    def feeds_dot(self, load: Node, loop: Node) -> bool:
        """Whether a load of the loop's body is an operand of one of its dots, as it is or converted."""
        work, seen = list(load.results), set()
        while work:
            value = work.pop()
            if value in seen:
                continue
            seen.add(value)
            for user, index in self.function.uses(value):
                if is_dot(user.name) and index != 2:
                    return True
                if user.name in _ON_THE_WAY and user.region is load.region:
                    work += user.results
        return False

    def _independent(self, load: Node, stores: list[Node]) -> bool:
        """Whether no store of the loop may write what the load of a later iteration reads. Kernel arguments are taken for
        distinct memory, as in Triton."""
        if not stores:
            return True
        read = base_pointers(self.function, load.operands[0])
        if read is None:
            return False
        for store in stores:
            written = base_pointers(self.function, store.operands[0])
            if written is None or written & read:
                return False
        return True

    # -- async copies
    def _copyable(self, load: Node, alloc: Node) -> bool:
        """Whether each thread's part of the load moves in units that the target copies asynchronously, zeros where masked."""
        sizes = self.ctx.capabilities.async_copy_bytes
        if not sizes or type_info(load.results[0].type).encoding is None:
            return False
        if len(load.operands) == 3:
            node = self.function.def_node(load.operands[2])
            if node is None or node.name != "arith.constant" or fold_constants.attribute_value(node.attr("value")) != 0:
                return False
        if self.ctx.capabilities.extra.get(BY_LANE) and not copies_by_lane(load, alloc, max(sizes)):
            return False
        return copy_bytes(self._axis(), load, alloc) in sizes

    def _axis(self) -> AxisInfoAnalysis:
        if self._axis_info is None:
            called = is_called(self.function)  # then its callers say what is known of its arguments
            self._axis_info = AxisInfoAnalysis(self.function.module) if called else AxisInfoAnalysis(function=self.function)
        return self._axis_info

    def _buffers(self, plan: LoopPlan) -> tuple[int, bool]:
        """(stages, whether copies are issued early).

        ``distance + 1`` stages, so that one barrier an iteration is enough (it frees the slot read in the last iteration
        and shows the data just waited for), unless that leaves room for fewer than two blocks at once where ``distance``
        stages would leave more; then ``distance`` stages, refilled at the end of the iteration, after a second barrier.

        Products that go on in the next iteration still read the last one's slot at its start: they take one stage more for the same."""
        size = sum(stage_bytes(c.alloc.results[0].type) for group in plan.groups for c in group if c.alloc is not None)
        limit, distance = self.ctx.capabilities.max_shared_bytes, plan.distance
        held = 1 if self._goes_on(plan.loop) else 0
        if size * (distance + held + 1) + self._beside(plan) > limit:
            return distance + held, False
        lean, roomy = (limit // max(1, size * n) for n in (distance + held, distance + held + 1))
        return (distance + held + 1, True) if roomy >= max(held, min(lean, 2, self._blocks(plan.loop))) else (distance + held, False)

    def _beside(self, plan: LoopPlan) -> int:
        """Bytes of the other buffers that the loop uses: all in use at once with its stages, at worst."""
        inside = {id(node) for node in plan.loop.walk()}
        own = {id(c.alloc) for group in plan.groups for c in group if c.alloc is not None}

        def used(value: Any) -> bool:
            return any(id(user) in inside or any(used(v) for v in user.results if isinstance(v.type, ttg.MemDescType))
                       for user, _ in self.function.uses(value))

        return sum(stage_bytes(node.results[0].type) for node in self.function.nodes()
                   if node.name == "ttg.local_alloc" and id(node) not in own and (id(node) in inside or used(node.results[0])))

    def _goes_on(self, loop: Node) -> bool:
        """Whether a matrix product of the loop may still read shared memory when the next iteration begins: an asynchronous one
        whose result is needed there only."""
        body = loop.regions[0]
        return any(is_asynchronous_dot(n.name) and type_info(n.operands[0].type).shape is None
                   and [user for user, _ in self.function.uses(n.results[0])] == [body.ops[-1]] for n in body.ops)

    def _blocks(self, loop: Node) -> int:
        """How many blocks' registers a core has room for, going by the loop's accumulators, where the target says what it has."""
        available = int(self.ctx.capabilities.extra.get("registers_per_core", 0))
        accumulators = sum(type_info(n.results[0].type).numel for n in loop.regions[0].ops if is_asynchronous_dot(n.name))
        if not available or not accumulators:
            return 2
        threads = self.ctx.num_warps * self.ctx.warp_size
        return max(1, available // (accumulators + 40 * threads))  # besides them a thread has addresses and the like


def copies_by_lane(load: Node, alloc: Node, size: int) -> bool:
    """Whether the buffer holds each warp's vectors of ``size`` bytes lane by lane, as some targets' copies write them."""
    type_ = alloc.results[0].type
    layout, shared = encodings.layout_of(load.results[0].type), encodings.to_linear_layout(tuple(type_.shape), type_.encoding)
    low = (size * 8 // encodings.storage_bits(type_.element_type)).bit_length() - 1
    lanes = layout.columns("lane")
    return not isinstance(type_.encoding, ttg.PaddedSharedEncoding) and layout.columns("register")[:low] == shared.flat_columns[:low] \
        and lanes == shared.flat_columns[low:low + len(lanes)]


def copy_bytes(axis: AxisInfoAnalysis, load: Node, alloc: Node) -> int:
    """Bytes of one vector with which a thread can copy the load's tensor into the buffer: as the lowering will cut it."""
    from tilewright.dialects.lowering.async_copy import copy_groups
    from tilewright.dialects.lowering.context import SharedMemory
    from tilewright.dialects.lowering.shared_ops import View

    type_ = alloc.results[0].type
    assert isinstance(type_, ttg.MemDescType)
    shape = tuple(type_.shape)
    memory = SharedMemory(None, None, shape, encodings.to_linear_layout(shape, type_.encoding), (0,) * len(shape), type_.encoding)
    pointer, mask = (*load.operands, None)[:2]
    limits = [axis.vector_elements(pointer, d, mask) for d in range(len(shape))]
    bits = encodings.storage_bits(type_.element_type)
    groups = copy_groups(encodings.layout_of(load.results[0].type), View(memory), [min(n, 128 // bits) for n in limits])
    return len(groups[0]) * bits // 8 if groups else 0
