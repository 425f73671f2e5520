"""Which operands a grid reads once: their tiles are loaded so that they leave L2 first, and push nothing else out of it.

A matrix of weights that every program reads its own part of, once, goes through L2 without being found there again. Loaded with the
policy evict_first (PTX ISA, "createpolicy") its lines make room for each other, and what L2 holds besides stays: the operand that all
programs share, and what the kernel before has written and not yet sent to memory.

Whether that is so depends on the arguments, so the host decides at each launch, as for pairs (cluster_pairs.py):
``metadata["host"]["streams"][n]`` has the descriptor's number and the expressions that give its tiles' place; bit ``FIRST_STREAM + n`` of the
kernel's argument *flags* is set where they differ between all programs of the grid and the tensor is too large for L2 to keep
(host_plan.STREAMED_BYTES). It is a hint: it changes no result.

The host also keeps small operands from bulk copies: ``metadata["host"]["fills"]`` lists the loads in loops with their tiles' rows. Of a
tensor with far fewer rows than a tile most of each copy fills shared memory with zeros, which takes longer than loads with masks do (measured,
docs/hopper.md): such launches get the version without bulk copies.

Marked are descriptors that are loaded by one op, in a loop whose rounds move the tile, by a kernel of one product, and for which the user named no policy.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects import tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, reaches, type_info
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.host_plan import FIRST_STREAM
from tilewright.targets.nvidia.passes.cluster_pairs import Place, Unknown
from tilewright.targets.nvidia.passes.host_arguments import descriptor_number, is_descriptor
from tilewright.targets.nvidia.passes.host_recipe import Host

STREAM = "ttng.stream"  # i32, on a tt.descriptor_load: its bit of the flags
_MOST_STREAMS = 8


def find_streams(function: Function, ctx: PassContext) -> int:
    """Mark the loads of which the host can tell whether the grid reads their tensor once; how many that are. Program ids must still be what
    they are."""
    if sum(node.name == "ttng.warp_group_dot" for node in function.nodes()) != 1:
        return 0
    by_descriptor: dict[Any, list[Node]] = {}
    for node in function.nodes():
        if node.name == "tt.descriptor_load" and is_descriptor(node.operands[0]):
            by_descriptor.setdefault(node.operands[0], []).append(node)
    host = Host(ctx)
    streams: list[dict[str, Any]] = []
    ctx.metadata["host"]["fills"] = [_fill(function, desc, load) for desc, loads in by_descriptor.items() for load in loads if load.depth]
    for desc, loads in by_descriptor.items():
        load = loads[0]
        if len(loads) > 1 or load.depth != 1 or load.str_attr("evict") != "normal" or not _moves(function, load):
            continue
        try:
            place = Place(function, host)
            expressions = list(dict.fromkeys(e for v in load.operands[1:] for e in place.needed(v)))
        except Unknown:
            continue
        if expressions and len(streams) < _MOST_STREAMS:
            bit = FIRST_STREAM + len(streams)
            load.op.attributes[STREAM] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), bit)
            streams.append({"descriptor": descriptor_number(function, desc), "expressions": expressions})
    if streams:
        ctx.metadata["host"]["streams"] = streams
    return len(streams)


def _fill(function: Function, desc: Any, load: Node) -> dict[str, Any]:
    """What the host needs to tell how many of a tile's rows lie outside of its tensor wherever the tile stands."""
    info = type_info(load.results[0].type)
    assert info.shape is not None
    rank = len(tt.TensorDescType(desc.type).shape)
    rows = info.shape[-2] if len(info.shape) > 1 else 1
    return {"descriptor": descriptor_number(function, desc), "dim": max(rank - 2, 0), "rows": rows}


def _moves(function: Function, load: Node) -> bool:
    """Whether a coordinate depends on what the loop around the load carries: else its rounds read one tile again and again."""
    body = load.region
    return body is not None and any(reaches(function, body, load.operands[1:], carried) for carried in body.args)
