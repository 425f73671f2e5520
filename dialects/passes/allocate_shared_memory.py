"""Give every buffer and every op that needs scratch its place in shared memory.

A called function's buffers lie behind all that any of its callers, and theirs, hold while they call it; at one place for all calls.

Layout conversions take what is left where all does not fit: ``allocation.most_scratch`` tells their lowering to do with less, in more rounds.

Buffers that are never live at once share bytes. Placement is first-fit, the largest first (Gergov, "Algorithms for compile-time
memory optimization", 1999, shows that such a greedy order stays near the optimum).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.aliases import ALLOC
from tilewright.dialects.analysis.call_graph import callee_of, callers_first, calls_of, name_of
from tilewright.dialects.analysis.liveness import Interval, Liveness
from tilewright.dialects.analysis.structure import Node, functions
from tilewright.dialects.encodings import downcast, shared_alignment, shared_elements, shared_rank, storage_bits
from tilewright.dialects.errors import OutOfResources
from tilewright.dialects.lowering.convert_layout import MOST_SCRATCH
from tilewright.dialects.lowering.hooks import TargetHooks
from tilewright.dialects.pass_runner import place_of
from tilewright.dialects.pipeline import PassContext

BUFFER_ALIGNMENT = 128
SCRATCH_ALIGNMENT = 16
CONVERT = "ttg.convert_layout"
OFFSET = "allocation.offset"
_NO_SCRATCH = ("arith.", "math.", "scf.", "func.", "ttg.local_", "ttg.memdesc_", "ttg.async_")


@dataclass
class Buffer:
    """Bytes [offset, offset + size) of shared memory, needed by ``interval.node`` during ``interval``."""

    interval: Interval
    size: int
    alignment: int
    offset: int = -1

    @property
    def end(self) -> int:
        return self.offset + self.size


def memdesc_bytes(type_: Any) -> int:
    """Bytes of a whole memdesc. Leading dims that the encoding does not know of (stages) multiply."""
    shape, encoding = type_.shape, downcast(type_.encoding)
    rank = encoding_rank(encoding, len(shape))
    stages = 1
    for n in shape[: len(shape) - rank]:
        stages *= n
    return stages * stage_bytes(type_)


def stage_bytes(type_: Any) -> int:
    """Bytes from one stage of a memdesc to the next: the buffer of its innermost dims, which the encoding orders, up to a
    multiple of 16 and of the encoding's own alignment."""
    shape, encoding = type_.shape, downcast(type_.encoding)
    rank = encoding_rank(encoding, len(shape))
    step = max(16, shared_alignment(encoding))
    return -(-shared_elements(shape[len(shape) - rank:], encoding) * storage_bits(type_.element_type) // 8 // step) * step


def encoding_rank(encoding: Any, default: int) -> int:
    """Number of dims that a shared encoding orders."""
    rank = shared_rank(encoding)
    return default if rank is None else rank


def hooks_of(ctx: PassContext) -> Any:
    """The target's hooks for this kernel; plain ones of the right warp size where there is no target (`tilewright opt`)."""
    if getattr(ctx.target, "hooks", None) is not None:
        return ctx.target.hooks(ctx.arch, ctx.options)
    hooks = TargetHooks()
    hooks.warp_size = ctx.warp_size
    return hooks


def scratch_of(node: Node, hooks: Any) -> int:
    """Bytes of scratch that lowering this op takes."""
    if node.name.startswith(_NO_SCRATCH):
        return 0
    from tilewright.dialects.lowering.scratch import scratch_bytes

    return int(scratch_bytes(node.op, hooks))


def place(buffers: list[Buffer], start: int = 0) -> int:
    """Set every offset, from ``start`` on; the end of the last buffer."""
    placed: list[Buffer] = []
    total = start
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.interval.start)):
        others = sorted((b for b in placed if b.interval.overlaps(buffer.interval)), key=lambda b: b.offset)
        offset = -(-start // buffer.alignment) * buffer.alignment
        for other in others:
            if offset + buffer.size <= other.offset:
                break
            offset = max(offset, -(-other.end // buffer.alignment) * buffer.alignment)
        buffer.offset = offset
        placed.append(buffer)
        total = max(total, buffer.end)
    return total


def _describe(buffer: Buffer) -> str:
    node = buffer.interval.node
    where = place_of(node.op.location)
    at = f" ({where[0]}:{where[1]})" if where else ""
    if node.name == ALLOC:
        type_ = node.results[0].type
        what = f"a buffer of {'x'.join(map(str, type_.shape))}x{type_.element_type}"
    else:
        what = f"scratch of {node.name}"
    return f"{buffer.size} bytes for {what}{at}"


def _squeeze(buffers: list[Buffer], hooks: Any, start: int, limit: int, beside_others: bool) -> int:
    """Place the buffers anew with less scratch for layout conversions that alone do not fit, or also (``beside_others``) do not beside what lives with
    them: halved until all fits, or as far as it can be. The end of the last buffer."""
    i32, end, least = ir.IntegerType.get_signless(32), place(buffers, start), set[int]()
    while end > limit:
        large = [b for b in buffers if b.interval.node.name == CONVERT and id(b) not in least and (b.end if beside_others else start + b.size) > limit]
        if not large:
            break
        buffer = max(large, key=lambda b: b.size)
        node = buffer.interval.node
        node.op.attributes[MOST_SCRATCH] = ir.IntegerAttr.get(i32, max(1, buffer.size // 2))
        less = scratch_of(node, hooks)
        if less == buffer.size:
            least.add(id(buffer))
        buffer.size = less
        end = place(buffers, start)
    return end


def run(module: Any, ctx: PassContext, squeeze: bool = True) -> None:
    """Before: ttg, final layouts, pipelined. After: every local_alloc, and every op that needs scratch, has the attribute
    ``allocation.offset`` (i32, bytes), and ctx.metadata["shared"] holds the kernel's bytes.

    Raises OutOfResources above capabilities.max_shared_bytes, naming the largest buffers and their source lines. With ``squeeze`` False conversions that
    would fit alone keep their scratch: for callers that would rather give up something else.
    """
    hooks = hooks_of(ctx)
    i32 = ir.IntegerType.get_signless(32)
    total = 0
    starts: dict[str, int] = {}  # of called functions
    for function in callers_first(functions(module)):
        start = starts.get(name_of(function), 0)
        live = Liveness(function)
        buffers = []
        for interval in live.buffers():
            type_ = interval.node.results[0].type
            alignment = max(BUFFER_ALIGNMENT, shared_alignment(type_.encoding))
            buffers.append(Buffer(interval, memdesc_bytes(type_), alignment))
        for node in live.order:
            if size := scratch_of(node, hooks):
                buffers.append(Buffer(live.of(node), size, SCRATCH_ALIGNMENT))
        end, limit = place(buffers, start), ctx.capabilities.max_shared_bytes
        if end > limit:
            end = _squeeze(buffers, hooks, start, limit, beside_others=False)
        if end > limit and squeeze and place([b for b in buffers if b.interval.node.name != CONVERT], start) <= limit:
            end = _squeeze(buffers, hooks, start, limit, beside_others=True)
        total = max(total, end)
        for call in calls_of(function):
            during = live.of(call)
            held = max((b.end for b in buffers if b.interval.overlaps(during)), default=start)
            starts[callee_of(call)] = max(starts.get(callee_of(call), 0), held)
        if total > limit:
            largest = sorted(buffers, key=lambda b: -b.size)[:3]
            raise OutOfResources(total, limit, "shared memory", "Reducing block sizes or `num_stages` "
                                 f"may help. The largest: {'; '.join(map(_describe, largest))}.")
        for buffer in buffers:
            buffer.interval.node.op.attributes[OFFSET] = ir.IntegerAttr.get(i32, buffer.offset)
            if MOST_SCRATCH in buffer.interval.node.op.attributes:
                ctx.explain(buffer.interval.node.op, "layout conversion", f"in rounds of {buffer.size} bytes of shared memory", "all of it does not fit")
    ctx.metadata["shared"] = total
