"""Software pipelining: the loads that feed a loop's dots are issued iterations ahead of their use.

A loop as optimize_dot_operands leaves it, with ``num_stages = S`` (the loop's ``tt.num_stages``, else the launch option)::

    for i:                                   alloc S buffers; copy 0 … S-2 ahead, a commit group each
      x = tt.load p                          for i:
      m = local_alloc x            →           async_wait {S-2}          iteration i's data is there
      d = local_load m                         copy iteration i+S-1 into the slot read in iteration i-1; commit
      c = dot d, …                             d = local_load slot[i mod S]
      p += step                                c = dot d, …
                                             async_wait {0}

The distance is S-1 iterations and the buffers S (see Scheduler._buffers for when they are more, or fewer and the copy comes last). Loads needed
before different dots (K and V of attention) are groups of their own, each waited for where its data is first read, with
all later groups left in flight. What a load's addresses and mask depend on (the loop variable, pointers that advance) is computed
ahead by a copy of those ops; beyond the last iteration the mask is false, so that loops of any trip count, zero included,
touch no memory that the kernel does not.

Loads that an async copy cannot do (too narrow, ``other`` not zero, addresses that are loaded themselves, a target without async
copies) are prefetched in registers: issued one iteration early, carried by the loop, and stored to shared memory as before. That takes two
barriers an iteration. A loop that a target's pass marked (``ttg.register_tiles = T``) has two buffers instead and one barrier::

    alloc 2 buffers; load 0 … T; store 0 into the first
    for i:                                   x₁ … x_T: the tiles of iterations i+1 … i+T
      d = local_load slot[i mod 2]           which iteration i-1 stored: the one barrier is here
      local_store x₁ into slot[(i+1) mod 2]
      x_{T+1} = load of iteration i+T+1
      c = dot d, …

and ``ttg.rounds = 2``: the lowering writes the body twice, so that the slot is part of constant addresses and nothing moves between registers.

Loads for which a target's pass found no registers (``ttg.at_use``) are not prefetched: they fill their buffers where they stand, one after another.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.aliases import SLOT_AGE
from tilewright.dialects.analysis.dots import is_dot
from tilewright.dialects.analysis.structure import (
    ROUNDS,
    Function,
    Node,
    attribute_names,
    functions,
    type_info,
    with_encoding,
)
from tilewright.dialects.loop_bounds import BoundsAhead, lowest_of
from tilewright.dialects.passes.pipeline_schedule import (
    ALLOC,
    AT_USE,
    LoopPlan,
    PipelinedLoad,
    Scheduler,
    Slice,
    constant,
    grouped,
    trip_count,
)
from tilewright.dialects.pipeline import PassContext


def run(module: Any, ctx: PassContext) -> None:
    """Before: dots read their operands by local_load of a local_alloc of a tt.load. After: see the module's text. The ops that
    only the moved loads needed are left for dce_cse."""
    done: set[Any] = set()  # loops seen: what they became, or themselves where there is nothing to do
    while _one(module, ctx, done):
        pass  # a mirror is stale once a loop was rebuilt: look again
    for function in functions(module):
        _place_at_use(function)


def _one(module: Any, ctx: PassContext, done: set[Any]) -> bool:
    for function in functions(module):
        scheduler = Scheduler(function, ctx)
        for loop in scheduler.loops():
            if loop.op in done:
                continue
            plan = scheduler.plan(loop)
            if plan is not None:
                done.add(Expander(function, plan).run())
                return True
            done.add(loop.op)
    return False


def _place_at_use(function: Function) -> None:
    """The buffers of loads marked AT_USE are filled right after these, with a barrier before each load: so one tile's elements at a time are in
    registers, where a barrier between load and buffer, or none, would let all tiles' be."""
    for load in [n for n in function.nodes() if n.name == "tt.load" and AT_USE in n.op.attributes]:
        alloc = next((user for user, _ in function.uses(load.results[0]) if user.name == ALLOC and user.region is load.region), None)
        if alloc is not None:
            ir.Operation.create("ttg.barrier", loc=load.op.location, ip=ir.InsertionPoint(load.op))
            alloc.op.move_after(load.op)


class Emitter:
    """Creates ops at ``ip``; integer arithmetic on known constants is done here."""

    def __init__(self, location: Any, ip: Any):
        self.location, self.ip = location, ip
        self.known: dict[Any, int] = {}

    def op(self, name: str, results: list[Any], operands: list[Any], attributes: dict[str, Any] | None = None) -> Any:
        return ir.Operation.create(name, results=results, operands=operands, attributes=attributes or {}, loc=self.location, ip=self.ip)

    def integer(self, type_: Any, value: int) -> Any:
        """A constant, modulo the type's range."""
        value = (value + (1 << type_.width - 1)) % (1 << type_.width) - (1 << type_.width - 1)
        result = self.op("arith.constant", [type_], [], {"value": ir.IntegerAttr.get(type_, value)}).result
        self.known[result] = value
        return result

    def binary(self, name: str, a: Any, b: Any) -> Any:
        x, y = self.known.get(a), self.known.get(b)
        if x is not None and y is not None:
            value = {"arith.addi": x + y, "arith.subi": x - y, "arith.muli": x * y}[name]
            if -(1 << 31) <= value < 1 << 31:
                return self.integer(a.type, value)
        return self.op(name, [a.type], [a, b]).result

    def compare(self, predicate: int, a: Any, b: Any) -> Any:
        attr = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)
        return self.op("arith.cmpi", [ir.IntegerType.get_signless(1)], [a, b], {"predicate": attr}).result


SLT, EQ = 2, 0


class _Sums:
    """Integers of one type, made by an emitter, for loop_bounds."""

    def __init__(self, emitter: Emitter, type_: Any):
        self.emitter, self.type = emitter, type_

    def const(self, value: int) -> Any:
        return self.emitter.integer(self.type, value)

    def add(self, a: Any, b: Any) -> Any:
        return self._made("arith.addi", a, b)

    def sub(self, a: Any, b: Any) -> Any:
        return self._made("arith.subi", a, b)

    def maximum(self, a: Any, b: Any) -> Any:
        return self._made("arith.maxsi", a, b)

    def _made(self, name: str, a: Any, b: Any) -> Any:
        return self.emitter.op(name, [self.type], [a, b]).result


class Ahead:
    """Copies ops of one iteration for another: ``mapping`` says what the loop variable and the carried values are there.

    ``predicate``: i1, whether that iteration exists; None: it does. Loads on the way are masked by it.
    """

    def __init__(self, function: Function, loop: Node, emitter: Emitter, mapping: dict[Any, Any], predicate: Any):
        self.function, self.body, self.emitter, self.mapping, self.predicate = function, loop.regions[0], emitter, mapping, predicate

    def value(self, value: Any) -> Any:
        """``value``, which the original iteration computes, in the other one."""
        work = [value]
        while work:
            v = work[-1]
            node = self.function.def_node(v)
            if v in self.mapping or node is None or node.region is not self.body:
                work.pop()
                continue
            missing = [o for o in node.operands if o not in self.mapping and self._inside(o)]
            if missing:
                work += missing
                continue
            operands = [self.mapping.get(o, o) for o in node.operands]
            if node.name == "tt.load":
                new = self.load(node, operands)
            else:
                new = node.op.clone(ip=self.emitter.ip)
                for i, o in enumerate(operands):
                    new.operands[i] = o
            self.mapping.update(zip(node.results, new.results))
            work.pop()
        return self.mapping.get(value, value)

    def _inside(self, value: Any) -> bool:
        node = self.function.def_node(value)
        return node is not None and node.region is self.body

    def mask(self, load: Node, mask: Any) -> Any:
        """The load's mask (or None) where the iteration exists."""
        if self.predicate is None:
            return mask
        result = load.results[0].type
        info = type_info(result)
        if info.shape is None:
            type_, exists = self.predicate.type, self.predicate
        else:
            type_ = ir.RankedTensorType.get(list(info.shape), self.predicate.type)
            if info.encoding is not None:
                type_ = with_encoding(type_, info.encoding)
            exists = self.emitter.op("tt.splat", [type_], [self.predicate]).result
        return exists if mask is None else self.emitter.op("arith.andi", [type_], [mask, exists]).result

    def load(self, node: Node, operands: list[Any] | None = None) -> Any:
        """The load op itself, masked."""
        operands = [self.value(o) for o in node.operands] if operands is None else operands
        mask = self.mask(node, operands[1] if len(operands) > 1 else None)
        operands = [operands[0]] + ([mask] if mask is not None else []) + operands[2:]
        attributes = {n: node.op.attributes[n] for n in attribute_names(node.op)}
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, int(mask is not None), int(len(operands) > 2)])
        return ir.Operation.create("tt.load", results=[node.results[0].type], operands=operands, attributes=attributes,
                                   loc=node.op.location, ip=self.emitter.ip)


class Expander:
    """Rewrites one loop by its plan."""

    def __init__(self, function: Function, plan: LoopPlan):
        self.function, self.plan, self.loop = function, plan, plan.loop
        self.i32 = ir.IntegerType.get_signless(32)
        self.token = ttg.AsyncTokenType.get()
        self.copies = [c for group in plan.groups for c in group]
        self.carried_by: dict[int, list[int]] = {}  # distance → numbers of the carried values that are needed ahead
        for distance, loads in ((plan.distance, self.copies + plan.staged), (1, plan.registers)):
            if loads:
                needed = Slice(function, self.loop, [v for c in loads for v in c.load.operands]).carried
                self.carried_by[distance] = sorted(needed | set(self.carried_by.get(distance, ())))
        self.buffers: dict[int, Any] = {}  # id of a load's node → its multi-stage buffer

    # -- before the loop
    def run(self) -> Any:
        """The new loop's op."""
        plan, loop = self.plan, self.loop
        before = Emitter(loop.op.location, ir.InsertionPoint(loop.op))
        for v in loop.operands[:3]:
            if (number := constant(self.function, v)) is not None:
                before.known[v] = number
        lower, upper, step = loop.operands[:3]
        trips = trip_count(self.function, loop)
        bound = self._bounds(before, upper, step)
        self._allocate(before, self.copies)
        ahead_values: dict[int, list[Any]] = {}
        prefetched: list[Any] = []
        tiles: list[list[Any]] = []
        for distance, carried in self.carried_by.items():
            now = {i: loop.operands[3 + i] for i in carried}
            for d in range(distance):
                mapping = {loop.regions[0].args[0]: self._advanced(before, lower, step, d)}
                mapping.update({loop.regions[0].args[1 + i]: v for i, v in now.items()})
                exists = None if trips is not None and trips > d else before.compare(SLT, lower, bound(d))
                ahead = Ahead(self.function, loop, before, mapping, exists)
                if self.copies and distance == plan.distance:
                    for group in plan.groups:
                        self._issue(ahead, group, before.integer(self.i32, d))
                if plan.staged and distance == plan.distance:
                    tiles.append([ahead.load(c.load).result for c in plan.staged])
                if plan.registers and distance == 1:
                    prefetched = [ahead.load(c.load).result for c in plan.registers]
                now = {i: ahead.value(loop.regions[0].ops[-1].operands[i]) for i in carried}
            ahead_values[distance] = [now[i] for i in carried]
        strides = {distance: before.binary("arith.muli", before.integer(step.type, distance), step) for distance in self.carried_by}
        bounds = {distance: bound(distance) for distance in self.carried_by}
        if tiles:  # buffers that were read before the loop may lie where these do: they are made as late as that
            self._allocate(before, plan.staged)
            self._store(before, tiles[0], before.integer(self.i32, 0))
        extra = [v for distance in self.carried_by for v in ahead_values[distance]] + prefetched + [v for tile in tiles[1:] for v in tile]
        rotating = bool(self.copies or tiles) and plan.buffers > 1
        if rotating:
            extra.append(before.integer(self.i32, 0))
        return self._rebuild(extra, strides, bounds, rotating)

    def _advanced(self, emitter: Emitter, value: Any, step: Any, times: int) -> Any:
        """``value + times · step``, modulo the type's range."""
        if times == 0:
            return value
        return emitter.binary("arith.addi", value, emitter.binary("arith.muli", emitter.integer(step.type, times), step))

    def _bounds(self, emitter: Emitter, upper: Any, step: Any) -> BoundsAhead:
        """Below which numbers counts have an iteration d steps on; where the step turns out not to be positive, and there is none, that is the lowest."""
        type_ = step.type
        end, by = emitter.known.get(upper), emitter.known.get(step)
        if by is None:
            positive = emitter.compare(SLT, emitter.integer(type_, 0), step)
            upper = emitter.op("arith.select", [type_], [positive, upper, emitter.integer(type_, lowest_of(type_.width, False))]).result
        return BoundsAhead(_Sums(emitter, type_), upper, step, type_.width, end, by)

    def _allocate(self, emitter: Emitter, loads: list[PipelinedLoad]) -> None:
        for c in loads:
            self.buffers[id(c.load)] = emitter.op("ttg.local_alloc", [self._buffer_type(c)], [],
                                                  {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0])}).result

    def _buffer_type(self, copy: PipelinedLoad) -> Any:
        assert copy.alloc is not None
        type_ = copy.alloc.results[0].type
        return ttg.MemDescType.of([self.plan.buffers, *type_.shape], type_.element_type, type_.encoding, True)

    def _slot(self, emitter: Emitter, copy: PipelinedLoad, index: Any) -> Any:
        assert copy.alloc is not None
        type_ = copy.alloc.results[0].type
        view = ttg.MemDescType.of(type_.shape, type_.element_type, type_.encoding, True)
        return emitter.op("ttg.memdesc_index", [view], [self.buffers[id(copy.load)], index]).result

    def _store(self, emitter: Emitter, tile: list[Any], index: Any) -> None:
        """A tile of every staged load into slot ``index`` of its buffer."""
        outer = emitter.location
        for c, value in zip(self.plan.staged, tile, strict=True):
            assert c.alloc is not None
            emitter.location = c.alloc.op.location
            emitter.op("ttg.local_store", [], [value, self._slot(emitter, c, index)])
        emitter.location = outer

    def _issue(self, ahead: Ahead, group: list[PipelinedLoad], index: Any, in_loop: bool = False) -> None:
        """Start the group's copies of the iteration ``ahead`` into slot ``index``, and close the commit group."""
        emitter = ahead.emitter
        outer = emitter.location
        tokens = []
        for c in group:
            node = c.load
            emitter.location = node.op.location
            operands = [ahead.value(v) for v in node.operands[:2]]
            mask = ahead.mask(node, operands[1] if len(operands) > 1 else None)
            view = self._slot(emitter, c, index)
            attributes = {n: node.op.attributes[n] for n in ("cache", "evict", "is_volatile")}
            attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 1, int(mask is not None), 0])
            if in_loop:
                attributes[SLOT_AGE] = ir.IntegerAttr.get(self.i32, self.plan.buffers - self.plan.distance)
            tokens.append(emitter.op("ttg.async_copy_global_to_local", [self.token],
                                     [operands[0], view] + ([mask] if mask is not None else []), attributes).result)
        emitter.location = outer
        emitter.op("ttg.async_commit_group", [self.token], tokens)

    # -- the loop
    def _rebuild(self, extra: list[Any], strides: dict[int, Any], bounds: dict[int, Any], rotating: bool) -> Any:
        plan, loop, old = self.plan, self.loop, self.loop.op
        body = loop.regions[0]
        inits = [*loop.operands[3:], *extra]
        attributes = {n: old.attributes[n] for n in attribute_names(old)}
        if plan.rounds > 1:
            attributes[ROUNDS] = ir.IntegerAttr.get(self.i32, plan.rounds)
        new = ir.Operation.create("scf.for", results=[v.type for v in inits], operands=[*loop.operands[:3], *inits],
                                  attributes=attributes, regions=1, loc=old.location, ip=ir.InsertionPoint(old))
        types = [body.args[0].type] + [v.type for v in inits]
        block = new.regions[0].blocks.append(*types, arg_locs=[old.location] * len(types))
        for node in body.ops:
            block.append(node.op)
        arguments = list(block.arguments)
        own, added = arguments[1:len(body.args)], arguments[len(body.args):]
        end = body.ops[-1]
        emitter = Emitter(old.location, ir.InsertionPoint(end.op))
        iterations: dict[int, Ahead] = {}
        at = 0
        for distance, carried in self.carried_by.items():
            mapping = dict(zip((body.args[1 + i] for i in carried), added[at:at + len(carried)]))
            at += len(carried)
            iterations[distance] = Ahead(self.function, loop, emitter, mapping, None)
        registers = added[at:at + len(plan.registers)]
        waiting = added[at + len(plan.registers):len(added) - bool(rotating)]
        phase = added[-1] if rotating else None
        # each iteration ahead begins with its loop variable and whether it exists
        emitter.ip = ir.InsertionPoint(body.ops[0].op)
        for distance, ahead in iterations.items():
            ahead.mapping[body.args[0]] = emitter.binary("arith.addi", arguments[0], strides[distance])
            ahead.predicate = emitter.compare(SLT, arguments[0], bounds[distance])
        next_phase = None
        extract = insert = phase
        if self.copies or plan.staged:
            if not rotating:
                extract = insert = emitter.integer(self.i32, 0)
            else:
                one, last, zero = emitter.integer(self.i32, 1), emitter.integer(self.i32, plan.buffers - 1), emitter.integer(self.i32, 0)
                if plan.buffers == 2:
                    next_phase = emitter.binary("arith.subi", one, phase)
                else:
                    wraps = emitter.compare(EQ, phase, last)
                    next_phase = emitter.op("arith.select", [self.i32], [wraps, zero, emitter.binary("arith.addi", phase, one)]).result
                age = plan.buffers - plan.distance
                if plan.distance == 1 or plan.staged:
                    insert = next_phase
                elif age == 1:
                    first = emitter.compare(EQ, phase, zero)
                    insert = emitter.op("arith.select", [self.i32], [first, last, emitter.binary("arith.subi", phase, one)]).result
                elif age:
                    first = emitter.compare(SLT, phase, emitter.integer(self.i32, age))
                    over = emitter.binary("arith.addi", phase, emitter.integer(self.i32, plan.distance))
                    insert = emitter.op("arith.select", [self.i32], [first, over, emitter.binary("arith.subi", phase, emitter.integer(
                        self.i32, age))]).result
        prefetches = self._place_prefetches(iterations, emitter)
        self._place_copies(iterations, emitter, extract, insert)
        if plan.staged:
            waiting = self._place_stores(iterations[plan.distance], emitter, extract, insert, waiting)
        # the values ahead of the next iteration
        emitter.ip = ir.InsertionPoint(end.op)
        yielded = list(end.operands)
        for distance, carried in self.carried_by.items():
            yielded += [iterations[distance].value(end.operands[i]) for i in carried]
        yielded += prefetches + waiting
        if rotating:
            yielded.append(next_phase)
        ir.Operation.create("scf.yield", operands=yielded, loc=end.op.location, ip=ir.InsertionPoint(end.op))
        for c, register in zip(plan.registers, registers):
            c.load.results[0].replace_all_uses_with(register)
        for before, after in zip(body.args, [arguments[0], *own]):
            before.replace_all_uses_with(after)
        end.op.erase()
        for c in self.copies + plan.staged:
            self._read_from_slot(c)
        for i, result in enumerate(loop.results):
            result.replace_all_uses_with(new.results[i])
        if self.copies:
            ir.Operation.create("ttg.async_wait", results=[self.token], operands=[], loc=old.location, ip=ir.InsertionPoint(old),
                                attributes={"num": ir.IntegerAttr.get(self.i32, 0)})
        old.erase()
        return new

    def _place_prefetches(self, iterations: dict[int, Ahead], emitter: Emitter) -> list[Any]:
        """Store what was prefetched to shared memory, all that the same dot needs together (one barrier before, one after),
        then issue the next iteration's loads."""
        body = self.loop.regions[0].ops
        made: dict[int, Any] = {}
        for group in grouped(self.plan.registers, body):
            allocs = [user for c in group for user, _ in self.function.uses(c.load.results[0])
                      if user.name == "ttg.local_alloc" and user.region is c.load.region]
            stored = {id(node) for node in allocs}
            first = group[0].position
            following = next((n for n in body[first + 1:-1] if id(n) not in stored), body[-1])
            for node in allocs:
                if node is not body[first]:
                    node.op.move_before(following.op)
            emitter.ip = ir.InsertionPoint(following.op)
            ahead = iterations[1]
            # ops copied for one group may be needed by another that stands before: each makes its own
            own = Ahead(self.function, self.loop, emitter, dict(ahead.mapping), ahead.predicate)
            made.update({id(c): own.load(c.load).result for c in group})
        return [made[id(c)] for c in self.plan.registers]

    def _place_stores(self, ahead: Ahead, emitter: Emitter, extract: Any, insert: Any, waiting: list[Any]) -> list[Any]:
        """Where the first product begins, store the oldest tile of ``waiting`` into the slot that nobody reads in this iteration, and load one
        more; the tiles that wait then. Buffers are read from slot ``extract``."""
        body, staged = self.loop.regions[0].ops, self.plan.staged
        for c in staged:
            assert c.alloc is not None
            emitter.ip = ir.InsertionPoint(c.alloc.op)
            self._slots[id(c.load)] = self._slot(emitter, c, extract)
        emitter.ip = ir.InsertionPoint(next(n for n in body if is_dot(n.name)).op)
        self._store(emitter, waiting[:len(staged)], insert)
        own = Ahead(self.function, self.loop, emitter, dict(ahead.mapping), ahead.predicate)
        return waiting[len(staged):] + [own.load(c.load).result for c in staged]

    def _place_copies(self, iterations: dict[int, Ahead], emitter: Emitter, extract: Any, insert: Any) -> None:
        plan = self.plan
        body = self.loop.regions[0].ops
        count = len(plan.groups)
        early = plan.early
        self._slots: dict[int, Any] = {}
        for j, group in enumerate(plan.groups):
            emitter.ip = ir.InsertionPoint(body[group[0].position].op)
            left = plan.distance * count - 1 if early else plan.distance * count - j - 1
            emitter.op("ttg.async_wait", [self.token], [], {"num": ir.IntegerAttr.get(self.i32, left)})
            if early:
                self._issue(iterations[plan.distance], group, insert, in_loop=True)
            for c in group:
                self._slots[id(c.load)] = self._slot(emitter, c, extract)
        if not early:
            emitter.ip = ir.InsertionPoint(body[-1].op)
            for group in plan.groups:
                self._issue(iterations[plan.distance], group, insert, in_loop=True)

    def _read_from_slot(self, copy: PipelinedLoad) -> None:
        """The buffer's readers read the slot; other users of the load get a local_load in its layout."""
        assert copy.alloc is not None
        slot = self._slots[id(copy.load)]
        copy.alloc.results[0].replace_all_uses_with(slot)
        others = [user for user, _ in self.function.uses(copy.load.results[0]) if user is not copy.alloc]
        copy.alloc.op.erase()
        if others:
            owner = slot.owner
            emitter = Emitter(copy.load.op.location, None)
            following = owner.operation if hasattr(owner, "operation") else owner
            emitter.ip = ir.InsertionPoint.after(following)
            again = emitter.op("ttg.local_load", [copy.load.results[0].type], [slot],
                               {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0])}).result
            copy.load.results[0].replace_all_uses_with(again)
