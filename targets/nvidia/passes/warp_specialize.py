"""Split a kernel into a producer, one thread that issues bulk tensor copies, and consumers, the warps that compute.

Before: ttg with ttng.warp_group_dot; tiles are read by ``tt.descriptor_load`` followed by ``ttg.local_alloc``. After: the function is ::

    rings of buffers and mbarriers; init_barrier …
    ttng.warp_specialize
      consumers: the kernel, where each load became: wait full[stage]; …; arrive empty[stage]
      producer:  the loops around the loads and the scalar arithmetic of their coordinates; wait empty[stage]; copies to full[stage]

Both walk the rings in the same order, each counting stage and phase for itself (the values that loops and ifs carry on). A phase is
the parity that ``mbarrier.try_wait.parity`` takes: consumers begin with 0, the producer with 1, which an mbarrier just initialised
has completed (PTX ISA manual, "mbarrier.test_wait, mbarrier.try_wait").

Matrix products run asynchronously: each is waited for before its result is used. An accumulator that a loop only adds to stays in
flight over the back edge: iteration i issues its product, then waits for that of i-1 and gives back the stage that that one read.

A kernel of which this cannot be done (NotSpecialised) is compiled anew with ``tma=False``, which reads through pointers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, functions, type_info
from tilewright.dialects.encodings import mma_row
from tilewright.dialects.errors import InternalCompilerError, VariantNeeded
from tilewright.dialects.pass_runner import place_of
from tilewright.dialects.passes.allocate_shared_memory import hooks_of, memdesc_bytes, scratch_of
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.passes import store_order
from tilewright.targets.nvidia.passes.cluster_pairs import FLAGS
from tilewright.targets.nvidia.passes.host_arguments import describe_box
from tilewright.targets.nvidia.passes.use_warp_group_dots import panel_encoding
from tilewright.targets.nvidia.passes.warp_consumers import Consumers
from tilewright.targets.nvidia.passes.warp_partition import Cluster, Emitter, Producer, half_dim, streamed_tensors
from tilewright.targets.nvidia.passes.warp_rings import DOT, Needed, NotSpecialised, Ring, Rings

PRODUCER_REGISTERS = 24
_MOST_STAGES = 8
_MOST_REGISTERS = 255  # of a thread
_REGISTERS = 65536  # of a multiprocessor
_BESIDES = 26  # registers that a product needs beside its accumulator's, as ptxas 13 counts
_LEAST_MARGIN = 1024  # where nothing else helps
_MARGIN = 4096  # bytes of shared memory left for layout conversions and reductions between warps


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text. Functions without descriptor ops are left alone."""
    for function in functions(module):
        names = {node.name for node in function.nodes()}
        if not names & {"tt.descriptor_load", "tt.descriptor_store", "tt.descriptor_reduce"}:
            continue
        try:
            _specialise(function, ctx)
        except NotSpecialised as why:
            raise VariantNeeded({"tma": False}, f"not warp-specialised: {why}") from None


def _specialise(function: Function, ctx: PassContext) -> None:
    if ctx.num_warps not in (4, 8):
        raise NotSpecialised(f"it needs 4 or 8 warps that compute; num_warps is {ctx.num_warps}")
    dots = [node for node in function.nodes() if node.name == DOT]
    if not any(node.depth for node in dots):
        raise NotSpecialised("no loop holds a matrix product of warp groups")
    loops = [node for node in function.nodes() if node.name == "scf.for" and "tt.num_stages" in node.op.attributes]
    stages = max((node.int_attr("tt.num_stages") for node in loops), default=ctx.num_stages)
    rings = Rings(function, max(1, stages))
    needed = Needed(function, [node for node in function.nodes() if node.name == "tt.descriptor_load"])
    stores = [node for node in function.nodes() if node.name in ("tt.descriptor_store", "tt.descriptor_reduce")]
    if any(parent not in ("func.func", "scf.for", "scf.if") for node in stores for parent in _around(node)):
        raise NotSpecialised("a tile is stored by a descriptor in a while loop")
    if stores:
        store_order.mark(function, stores, ctx.metadata["host"]["descriptors"])
    store_types = {id(node): _store_memory(node) for node in stores}
    # stores of one kind of tile share a buffer: each waits until the one before has been read
    kinds = {str(t): t for t in store_types.values()}
    others = sum(map(memdesc_bytes, kinds.values())) + _other_buffers(function, rings) + _scratch(function, stores, ctx)
    _fit(rings.rings, others, ctx)
    used = others + sum(r.depth * r.stage_bytes for r in rings.rings) + _MARGIN
    # two small blocks hide each other's beginnings and ends
    small = ctx.num_warps == 4 and 2 * used <= int(ctx.capabilities.max_shared_bytes)
    blocks = 2 if small and max(map(_instruction_registers, dots)) < _given(2, ctx.num_warps) else 1
    _deepen(rings.rings, others, blocks, ctx)

    body = function.body
    start, old = body.ops[0], list(body.ops[:-1])
    emitter = Emitter(start.op.location, ir.InsertionPoint(start.op))
    buffers = {name: emitter.alloc(t) for name, t in kinds.items()}
    for ring in rings.rings:
        _make_ring(ring, emitter, ctx)
    flags = function.body.args[function.root.int_attr(FLAGS)] if FLAGS in function.root.op.attributes else None
    shared = flags if any(ring.mask for ring in rings.rings) else None
    if shared is not None:
        emitter.op("ttng.cluster_arrive", [], [], {"relaxed": ir.BoolAttr.get(True)})
        emitter.op("ttng.cluster_wait", [], [])  # the other block's mbarriers are made
    cluster = Cluster.of(emitter, shared, rings.rings)
    streamed = streamed_tensors(emitter, flags, rings.rings)
    op = _warp_specialize_op(function, blocks, ctx)
    consumers = Consumers(function, rings, {i: buffers[str(t)] for i, t in store_types.items()}, cluster, ctx.num_warps)
    consumers.emit_function(old, op.regions[0].blocks[0])
    producer = Producer(function, rings, needed, cluster, streamed)
    producer.emit_function(old, op.regions[1].blocks[0])
    for load in rings.load_of.values():
        halves = cluster is not None and load.bit is not None and half_dim(load.memory) == 0
        describe_box(function, load.node.operands[0], load.memory, ctx, halves)
    if cluster is not None:
        op.attributes["cluster"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 2)
    for node in stores:
        describe_box(function, node.operands[0], store_types[id(node)], ctx)
    _check_complete(function, op)
    for node in reversed(old):
        node.op.erase()
    _explain(rings, ctx, dots[0].op.location)


def _around(node: Node) -> Iterator[str]:
    """The names of the ops that the node stands in."""
    parent = node.parent
    while parent is not None:
        yield parent.name
        parent = parent.parent


def _check_complete(function: Function, new: Any) -> None:
    """That neither half uses what will be erased: MLIR would not say so, but crash."""
    gone = {v for node in function.nodes() for v in (*node.results, *(a for r in node.regions for a in r.args))}
    found: list[str] = []

    def look(op: Any) -> Any:
        found.extend(op.name for v in op.operands if v in gone)
        return ir.WalkResult.ADVANCE

    new.operation.walk(look)
    if found:
        raise InternalCompilerError(f"{found[0]} uses a value that only the kernel before it was split has")


def _store_memory(node: Any) -> Any:
    """The buffer from which a tile is stored: rows of up to 128 bytes, swizzled."""
    info = type_info(node.operands[1].type)
    assert info.shape is not None
    order = tuple(reversed(range(len(info.shape))))
    return ttg.MemDescType.of(info.shape, info.element, panel_encoding(info.shape, info.bits, order, info.shape[-1]), True)


def _other_buffers(function: Function, rings: Rings) -> int:
    filled = {id(a) for load in rings.load_of.values() for a in load.allocs}
    return sum(memdesc_bytes(ttg.MemDescType(n.results[0].type)) for n in function.nodes() if n.name == "ttg.local_alloc" and id(n) not in filled)


def _scratch(function: Function, stores: list[Node], ctx: PassContext) -> int:
    """The most that an op needs while it runs. What a bulk store's tile is converted to does not matter: any layout can be stored."""
    skipped = {id(node) for s in stores if (node := function.def_node(s.operands[1])) is not None and len(function.uses(s.operands[1])) == 1}
    hooks = hooks_of(ctx)
    return max((scratch_of(n, hooks) for n in function.nodes() if not n.regions and id(n) not in skipped), default=0)


def _fit(rings: list[Ring], others: int, ctx: PassContext) -> None:
    """Fewer stages where shared memory is short, never fewer than a block holds at a time and one ahead."""
    limit = int(ctx.capabilities.max_shared_bytes) - _MARGIN - others
    while sum(r.depth * r.stage_bytes for r in rings) > limit:
        spare = [r for r in rings if r.depth > r.held + 1]
        if not spare and sum(r.depth * r.stage_bytes for r in rings) <= limit + _MARGIN - _LEAST_MARGIN:
            return  # most kernels need no more; allocate_shared_memory sees to the others
        if not spare:
            raise NotSpecialised(f"its tiles need {sum(r.depth * r.stage_bytes for r in rings)} bytes of shared memory, {limit} are there")
        deepest = max(r.depth for r in spare)
        for ring in spare:
            if ring.depth == deepest:
                ring.depth -= 1


def _deepen(rings: list[Ring], others: int, blocks: int, ctx: PassContext) -> None:
    """More stages, up to _MOST_STAGES, where shared memory is idle: they only help the producer to run ahead."""
    limit = int(ctx.capabilities.max_shared_bytes) // blocks - _MARGIN - others
    deep = [r for r in rings if r.depth > r.held]
    while deep and all(r.depth < _MOST_STAGES for r in deep) \
            and sum(r.depth * r.stage_bytes for r in rings) + sum(r.stage_bytes for r in deep) <= limit:
        for ring in deep:
            ring.depth += 1


def _make_ring(ring: Ring, emitter: Emitter, ctx: PassContext) -> None:
    for load in ring.loads:
        memory = load.memory
        ring.buffers.append(emitter.alloc(ttg.MemDescType.of([ring.depth, *memory.shape], memory.element_type, memory.encoding, True)))
    ring.full = emitter.barriers(ring.depth, 1)
    if ring.reused:
        # twice where two blocks may share the stage: each block's consumers then count in both
        arrivals = ctx.num_warps if ring.by_threads else ctx.num_warps // 4
        ring.empty = emitter.barriers(ring.depth, arrivals * (2 if ring.mask else 1))


def _given(blocks: int, num_warps: int) -> int:
    """Registers of a thread at the kernel's entry."""
    return _REGISTERS // blocks // (32 * num_warps + 128) // 8 * 8


def _instruction_registers(dot: Node) -> int:
    """What one instruction of the product needs of a thread's registers. The assembler compiles none that needs more than there are at
    the kernel's entry, whatever setmaxnreg brings later."""
    row = mma_row(dot.results[0].type.encoding)
    return row.n // 2 // (2 if row.c_type == "f16" else 1) + _BESIDES


def _warp_specialize_op(function: Function, blocks: int, ctx: PassContext) -> Any:
    end = function.body.ops[-1].op
    i32 = ir.IntegerType.get_signless(32)
    # a block is given whole eights of registers a thread, which its warps then share; setmaxnreg counts in eights too
    threads, given = 32 * ctx.num_warps, _given(blocks, ctx.num_warps)
    if ctx.options.maxnreg:  # a warp that wants more than the block was given waits for ever
        given = min(given, ctx.options.maxnreg // 8 * 8)
    registers = (given * (threads + 128) - 128 * PRODUCER_REGISTERS) // threads // 8 * 8
    # where every thread may have as many as there are, nobody has to give any away; where there are few, nobody can
    moved = given < registers < _MOST_REGISTERS
    values = {"consumer_registers": registers if moved else 0, "producer_registers": PRODUCER_REGISTERS if moved else 0, "min_ctas": blocks}
    op = ir.Operation.create("ttng.warp_specialize", results=[], operands=[], regions=2, loc=end.location, ip=ir.InsertionPoint(end),
                             attributes={k: ir.IntegerAttr.get(i32, v) for k, v in values.items()})
    for region in op.regions:
        region.blocks.append()
    if ctx.metadata.get("persistent"):
        ctx.metadata["persistent"] = {**ctx.metadata["persistent"], "ctas_per_sm": blocks}
    return op


def _explain(rings: Rings, ctx: PassContext, location: Any) -> None:
    place = place_of(location)
    parts = [f"{r.depth} stages of {r.stage_bytes} bytes" for r in rings.rings]
    ctx.metadata.setdefault("host", {}).setdefault("choices", []).append({
        "line": place[1] if place else 0, "what": "the kernel's loops", "chosen": "warp-specialised",
        "why": f"one producer and {ctx.num_warps // 4} consumer warp groups; rings: {'; '.join(parts)}"})
