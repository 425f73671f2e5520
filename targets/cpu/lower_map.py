"""tt.map_elementwise: a loop over the elements, in which the region's ops are lowered as scalar code, branches and all."""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.targets.cpu.lower import TileLowering, lowers
from tilewright.targets.cpu.lower_control import block_ops
from tilewright.targets.cpu.tiles import each


@lowers("tt.map_elementwise")
def map_elementwise(lo: TileLowering, op: Any) -> list[Any]:
    """``pack`` neighbours along the last dim a call; where that dim is shorter, its last element stands for those that lack."""
    b = lo.b
    pack = ir.IntegerAttr(op.attributes["pack"]).value
    block = op.regions[0].blocks[0]
    ops, arguments = block_ops(block), list(block.arguments)
    tiles = [lo.tile(v) for v in op.operands]
    outs = [lo.out_buffer(op, i) for i in range(len(op.results))]
    step = min(pack, tiles[0].shape[-1])

    def call(index: Any) -> None:
        def at(j: int) -> list[Any]:
            return [*index[:-1], b.add(index[-1], b.idx(min(j, step - 1)))]

        mark = lo.arena.top
        places = [at(j) for j in range(pack)]
        for argument, (tile, place) in zip(arguments, [(t, p) for t in tiles for p in places]):
            lo.env[argument] = tile.lanes(place, 1)
        lo.block(ops[:-1])
        values = [lo.env[v] for v in ops[-1].operands]
        for i, out in enumerate(outs):
            for j in range(step):
                out.put(places[j], values[i * pack + j])
        lo.arena.top = mark

    each(b, tiles[0].shape, step, call)
    return list(outs)
