"""Cut dots on FMA along k, so that a thread holds a few k of its rows and columns at a time instead of all.

Before: a ``tt.dot`` with a blocked accumulator whose operands are read whole from shared memory by ``ttg.local_load``; of a
128×128×32 fp32 tile on 256 threads each would hold 512 numbers, twice what there are registers. After: one dot for each
``chunk`` of k, reading ``ttg.memdesc_subslice`` views just before it, the accumulator handed on. Runs after pipeline_loops, which
looks for whole operands. Dots with an operand computed in registers stay as they are.

Accumulators that no register file holds would be written to memory and read again for every slice, and take compilers minutes (128×128×64 fp32 by
one warp: 90 s and more): OutOfResources says what to do. Small dots of that kind compile in seconds, and are let through.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.layout_cost import registers
from tilewright.dialects.analysis.structure import Function, Node, attribute_names, erase_dead, functions, type_info
from tilewright.dialects.errors import OutOfResources
from tilewright.dialects.pass_runner import place_of
from tilewright.dialects.passes.optimize_dot_operands import CASTS

# numbers of both operands that a thread holds at a time: beside them are the accumulators and addresses
OPERAND_REGISTERS = 64
MOST = 16384  # multiply-adds of a thread, in 32-bit words, times the registers they need over those there are: more take longer than 20 s to compile
_MIN_CHUNK = 4  # of 4-byte elements: what one vector holds
# ops that may change shared memory: no read moves down past them
_WRITES = frozenset(("ttg.local_store", "ttg.local_alloc", "ttg.local_dealloc", "ttg.async_copy_global_to_local", "ttg.async_wait",
                     "ttg.barrier", "tt.debug_barrier", "scf.for", "scf.if", "scf.while"))


class _Read:
    """An operand: the local_load it comes from, and the casts after it in order of execution."""

    def __init__(self, load: Node, casts: list[Node]):
        self.load, self.casts = load, casts


def _read(function: Function, value: Any) -> _Read | None:
    casts: list[Node] = []
    node = function.def_node(value)
    while node is not None and node.name in CASTS:
        casts.append(node)
        node = function.def_node(node.operands[0])
    return _Read(node, casts[::-1]) if node is not None and node.name == "ttg.local_load" else None


def _may_move(function: Function, read: _Read, dot: Node) -> bool:
    """Whether the buffer still holds at ``dot`` what ``read`` saw."""
    view = function.def_node(read.load.operands[0])
    while view is not None and view.name == "ttg.memdesc_trans":
        view = function.def_node(view.operands[0])
    if view is not None and view.name == "ttg.local_alloc" and view.operands:
        return True  # written once, when it was made
    region = dot.region
    if region is None or read.load.region is not region:
        return False
    between = False
    for node in region.ops:
        if node is read.load:
            between = True
        elif node is dot:
            return True
        elif between and (node.name in _WRITES or node.regions):
            return False
    return False


def _piece(function: Function, dot: Node, read: _Read, dim: int, start: int, size: int) -> Any:
    """The operand's ``size`` elements of k from ``start``, read just before the dot."""
    memory = read.load.operands[0]
    type_ = memory.type
    shape = list(type_.shape)
    offsets = [0] * len(shape)
    shape[dim], offsets[dim] = size, start

    def insert(name: str, result: Any, operands: list[Any], attributes: dict[str, Any]) -> Any:
        return function.insert_before(dot, name, [result], operands, attributes).results[0]

    view = insert("ttg.memdesc_subslice", ttg.MemDescType.of(shape, type_.element_type, type_.encoding, type_.is_mutable), [memory],
                  {"offsets": ir.DenseI32ArrayAttr.get(offsets)})
    attributes = {name: read.load.op.attributes[name] for name in attribute_names(read.load.op)}
    encoding = type_info(read.load.results[0].type).encoding
    value = insert("ttg.local_load", ir.RankedTensorType.get(shape, type_.element_type, encoding), [view, *read.load.operands[1:]],
                   attributes)
    for cast in read.casts:
        attributes = {name: cast.op.attributes[name] for name in attribute_names(cast.op)}
        element = type_info(cast.results[0].type).element
        value = insert(cast.name, ir.RankedTensorType.get(shape, element, encoding), [value], attributes)
    return value


def _check(dot: Node, operands: int, ctx: Any) -> None:
    """Raises OutOfResources where the accumulators and ``operands`` words of a slice need more registers than a thread has, and minutes."""
    info = type_info(dot.results[0].type)
    words, held = max(1, info.bits // 32), registers(info.shape or (), info.encoding)
    needed, there = held * words + operands, ctx.capabilities.registers_per_thread
    if needed > there and held * words * dot.operands[0].type.shape[-1] * needed >= MOST * there:
        m, n = dot.results[0].type.shape[-2:]
        where = place_of(dot.op.location)
        raise OutOfResources(needed, there, "registers of a thread for a product's accumulators and operands",
                             f"The product{f' ({where[0]}:{where[1]})' if where else ''} has {m}×{n} results over {ctx.num_warps} "
                             f"warp{'s' if ctx.num_warps > 1 else ''} without matrix instructions; raise num_warps, or reduce block sizes.")


def _slice(function: Function, dot: Node, ctx: Any) -> bool:
    infos = [type_info(v.type) for v in dot.operands[:2]]
    if not isinstance(type_info(dot.results[0].type).encoding, ttg.BlockedEncoding):
        return False
    shape = infos[0].shape
    assert shape is not None
    k, rank = shape[-1], len(shape)
    held = sum(registers(t.shape or (), t.encoding) for t in infos) // k
    chunk = _MIN_CHUNK
    while chunk * 2 * held <= OPERAND_REGISTERS:
        chunk *= 2
    _check(dot, held * min(chunk, k) * max(1, infos[0].bits // 32), ctx)
    if chunk >= k:
        return False
    reads = [_read(function, v) for v in dot.operands[:2]]
    if any(r is None or not _may_move(function, r, dot) for r in reads):
        return False
    total = dot.operands[2]
    attributes = {name: dot.op.attributes[name] for name in attribute_names(dot.op)}
    for start in range(0, k, chunk):
        pieces = [_piece(function, dot, r, rank - 1 - i, start, chunk) for i, r in enumerate(reads) if r is not None]
        total = function.insert_before(dot, "tt.dot", [dot.results[0].type], [*pieces, total], attributes).results[0]
    function.replace_uses(dot.results[0], total)
    function.erase(dot)
    return True


def run(module: Any, ctx: Any) -> None:
    """Before: FMA dots over all of k. After: chains of dots over a few k each, where the operands are in shared memory."""
    for function in functions(module):
        dots = [n for n in function.nodes() if n.name == "tt.dot"]
        if any([_slice(function, n, ctx) for n in dots]):
            erase_dead(function)
