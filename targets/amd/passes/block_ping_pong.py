"""Let the two halves of a work-group of eight waves take turns in a matmul's loop: one multiplies while the other reads, loads and stores.

A compute unit has four SIMDs, and a work-group of eight waves puts waves i and i + 4 on one of them. Left alone both wait for memory at the same
time. Here a round has four phases, each ended by a barrier::

    read    all operands of the tile into registers; begin to load the next tile
    product the first half of k, at a higher priority for issue
    store   the next tile to LDS
    product the second half of k

and waves 4 to 7 are one phase behind: a barrier that they alone come to stands before the loop, and one for waves 0 to 3 after it (the hardware counts
waves at any barrier). One buffer in LDS is enough: the last reads of a tile are a phase before the first store of the next one, and the last store a phase
before its first read.

Before: loops through registers as pipeline_loops leaves them, buffer operations in place, nothing allocated. After: such a loop with one product that is
large enough, and nothing else that touches LDS, has the form above; the tile before it is stored before the loop. Others stay as they are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, attribute_names, functions, type_info
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.amd.passes.fit_registers import limit, words

WARPS = 8
LEAST = 128 * 256 * 64  # products of a round: below, a phase of memory is longer than one of products
_BESIDES = 40  # registers of a lane for addresses and the like
_LOADS = frozenset(("amdg.buffer_load", "tt.load"))
_HARMLESS = ("arith.", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.addptr", "tt.make_range", "scf.yield")


class _Operand(NamedTuple):
    """``load`` reads ``alloc``, perhaps through ``view`` (a memdesc_trans), which a carried tile, the body's argument ``number``, fills."""

    load: Node
    view: Node | None
    alloc: Node
    number: int


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    if ctx.num_warps != WARPS:
        return
    for function in functions(module):
        for loop in [n for n in function.nodes() if n.name == "scf.for"]:
            found = _match(function, loop)
            if found is not None and _fits(loop, *found, ctx):
                ctx.explain(found[0].op, "dot", "ping-pong", "waves 4 to 7 are one phase behind waves 0 to 3: one half multiplies while the other reads and loads")
                _transform(function, loop, *found)


def may_take(loop: Node, ctx: PassContext) -> bool:
    """Whether ``loop``, before pipelining, has the one large product that this pass looks for."""
    from tilewright.targets.amd.pipeline import TAKES_TURNS

    dots = [n for n in loop.regions[0].ops if n.name == "tt.dot"]
    return ctx.num_warps == WARPS and ctx.options.block_pingpong and ctx.arch in TAKES_TURNS and len(dots) == 1 and _is_large(dots[0])


def _is_large(dot: Node) -> bool:
    (m, n), k = type_info(dot.results[0].type).shape or (0, 0), (type_info(dot.operands[0].type).shape or (0,))[-1]
    return m * n * k >= LEAST and k >= 32


def _match(function: Function, loop: Node) -> tuple[Node, list[_Operand]] | None:
    """The loop's product and its operands, where it has the form that pipeline_loops gives."""
    body = loop.regions[0]
    dots = [n for n in body.ops if n.name == "tt.dot"]
    if len(dots) != 1:
        return None
    operands = [_operand(function, loop, v) for v in dots[0].operands[:2]]
    if None in operands:
        return None
    found = [o for o in operands if o is not None]
    own = {id(n) for o in found for n in o[:3] if n is not None} | {id(dots[0])}
    at = body.ops.index(dots[0])
    for i, node in enumerate(body.ops):
        if id(node) not in own and not (node.name in _LOADS and i < at) and not node.name.startswith(_HARMLESS):
            return None
    return dots[0], found


def _operand(function: Function, loop: Node, value: Any) -> _Operand | None:
    def only_use(v: Any) -> bool:
        return len(list(function.uses(v))) == 1

    body = loop.regions[0]
    load = function.def_node(value)
    if load is None or load.name != "ttg.local_load" or load.region is not body or not only_use(value):
        return None
    view, alloc = None, function.def_node(load.operands[0])
    if alloc is not None and alloc.name == "ttg.memdesc_trans":
        view, alloc = alloc, function.def_node(alloc.operands[0])
    if alloc is None or alloc.name != "ttg.local_alloc" or alloc.region is not body or not alloc.operands:
        return None
    tile = alloc.operands[0]
    if tile not in body.args or not all(only_use(v) for v in (tile, alloc.results[0], load.operands[0])):
        return None
    return _Operand(load, view, alloc, body.args.index(tile))


def _fits(loop: Node, dot: Node, operands: list[_Operand], ctx: PassContext) -> bool:
    """Whether the product is large enough, and accumulators, all operands of a round and the next tile fit the registers."""
    held = words(dot.results[0]) + sum(words(o.load.results[0]) + words(o.alloc.operands[0]) for o in operands)
    return _is_large(dot) and held + _BESIDES <= limit(ctx.warp_size, ctx.num_warps)


def _transform(function: Function, loop: Node, dot: Node, operands: list[_Operand]) -> None:
    i16, i32 = ir.IntegerType.get_signless(16), ir.IntegerType.get_signless(32)
    end = loop.regions[0].ops[-1]

    def phase_ends(anchor: Node, priority: int | None = None) -> None:
        fixed = {"mask": ir.IntegerAttr.get(i32, 0)}
        function.insert_before(anchor, "amdg.sched_barrier", [], [], fixed)
        if priority == 0:
            function.insert_before(anchor, "amdg.setprio", [], [], {"priority": ir.IntegerAttr.get(i16, 0)})
        function.insert_before(anchor, "ttg.barrier", [], [])
        if priority:
            function.insert_before(anchor, "amdg.setprio", [], [], {"priority": ir.IntegerAttr.get(i16, priority)})
        function.insert_before(anchor, "amdg.sched_barrier", [], [], fixed)

    buffers = []
    for o in operands:
        old = o.alloc.results[0].type
        type_ = ttg.MemDescType.of(list(old.shape), old.element_type, old.encoding, True)
        buffer = function.insert_before(loop, "ttg.local_alloc", [type_], []).results[0]
        function.insert_before(loop, "ttg.local_store", [], [loop.operands[o.number + 2], buffer])
        function.replace_uses(o.alloc.results[0], buffer)
        function.erase(o.alloc)
        if o.view is not None:
            turned = o.view.results[0].type
            o.view.set_type(0, ttg.MemDescType.of(list(turned.shape), turned.element_type, turned.encoding, True))
        buffers.append(buffer)
    function.insert_before(loop, "ttg.barrier", [], [])
    function.insert_before(loop, "amdg.half_barrier", [], [], {"late": ir.BoolAttr.get(True)})

    halves = [[_half(function, dot, o.load, 1 - i, part) for i, o in enumerate(operands)] for part in range(2)]
    attributes = {name: dot.op.attributes[name] for name in attribute_names(dot.op)}
    total = dot.operands[2]
    for part in range(2):
        phase_ends(dot, 1)
        total = function.insert_before(dot, "tt.dot", [dot.results[0].type], [*halves[part], total], attributes).results[0]
        phase_ends(dot, 0)
        if part == 0:
            for o, buffer in zip(operands, buffers):
                function.insert_before(dot, "ttg.local_store", [], [end.operands[o.number - 1], buffer])
    function.replace_uses(dot.results[0], total)
    function.erase(dot)
    for o in operands:
        function.erase(o.load)
    function.insert_after(loop, "amdg.half_barrier", [], [], {"late": ir.BoolAttr.get(False)})


def _half(function: Function, dot: Node, load: Node, dim: int, part: int) -> Any:
    """A half of the operand's k, along ``dim``, read before the product."""
    memory = load.operands[0]
    shape, offsets = list(memory.type.shape), [0, 0]
    shape[dim] //= 2
    offsets[dim] = part * shape[dim]
    type_ = ttg.MemDescType.of(shape, memory.type.element_type, memory.type.encoding, True)
    view = function.insert_before(dot, "ttg.memdesc_subslice", [type_], [memory], {"offsets": ir.DenseI32ArrayAttr.get(offsets)}).results[0]
    result = ir.RankedTensorType.get(shape, load.results[0].type.element_type, type_info(load.results[0].type).encoding)
    attributes = {name: load.op.attributes[name] for name in attribute_names(load.op)}
    return function.insert_before(dot, "ttg.local_load", [result], [view], attributes).results[0]
