"""Give the loads of a loop's dot operands that pass through registers a second buffer in LDS, where that costs no wave.

With one buffer a round has two barriers, one before the tile is written and one before it is read, and the wave waits in between. With two the
next tile is written while this one is read: one barrier, and loads from global memory are one round further ahead (two with
``num_stages`` of 4 or more, where registers allow a second tile in flight). ``num_stages`` is the upper limit: 2 means one buffer, as in Triton.

Before: buffers stand behind the loads (optimize_dot_operands), and loads that go to LDS directly are settled (direct_to_lds). After: loops with
``num_stages`` of at least 3 that are better off so have ``ttg.register_tiles``, which pipeline_loops carries out. Better off is a loop

- whose buffers, twice, leave as many work-groups on a compute unit as one would, or as many as the registers leave in any case: a wave more hides more
  than a barrier less;
- of which fit_registers reads no operands again (LDS is needed for those);
- that block_ping_pong does not take, whose halves need no second buffer.

Registers are an estimate by the tiles in use, calibrated on the kernels of benchmarks/amd_static.py; a test compares the waves that came of it. Where
they spill after all, the kernel is compiled with ``num_stages`` of 2.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, functions, type_info
from tilewright.dialects.passes.allocate_shared_memory import hooks_of, memdesc_bytes, scratch_of
from tilewright.dialects.passes.pipeline_schedule import (
    ALLOC,
    REGISTER_TILES,
    PipelinedLoad,
    Scheduler,
    constant,
    stages_of,
)
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.amd.passes import block_ping_pong
from tilewright.targets.amd.passes.fit_registers import limit, reads_again, tiles_in_use, waves_by_registers, words

DOUBLED = "two_lds_buffers"  # of the metadata: some loop has them
_SIMDS = 4
_MOST_WAVES = {64: 8, 32: 16}  # of a SIMD
_BESIDES = {64: 34, 32: 50}  # registers of a lane beside its tiles
_TWICE = 40  # and more of them at most where reads, stores and loads of a round are in order with each other (gfx1201, 128 × 128 × 32: 213 → 249)


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    for function in functions(module):
        scheduler = Scheduler(function, ctx)
        for loop in scheduler.loops():
            stages = stages_of(loop, ctx)
            plan = scheduler.plan(loop) if stages >= 3 else None
            loads = scheduler.stageable(plan) if plan is not None and not plan.groups else []
            if loads and constant(function, loop.operands[2]):
                tiles, why = _tiles(function, loop, loads, ctx, stages)
                ctx.explain(loop.op, "loop", f"{2 if tiles else 1} LDS buffer{'s' if tiles else ''} an operand", why)
                if tiles:
                    ctx.metadata[DOUBLED] = True
                    loop.op.attributes[REGISTER_TILES] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), tiles)


def _tiles(function: Function, loop: Node, loads: list[PipelinedLoad], ctx: PassContext, stages: int) -> tuple[int, str]:
    """(tiles that wait in registers, 0 for one buffer, and why)."""
    if block_ping_pong.may_take(loop, ctx):
        return 0, "the halves of the work-group take turns"
    if reads_again(function, loop, ctx):
        return 0, "LDS is needed for operands that do not fit the registers"
    once, twice = _lds_bytes(function, loop, loads, ctx)
    if twice > ctx.capabilities.max_shared_bytes:
        return 0, f"two would take {twice} bytes"
    in_use = tiles_in_use(function, loop)
    by_registers = _waves(in_use, ctx)
    now, then = _waves_by_lds(once, ctx), _waves_by_lds(twice, ctx)
    if then < min(now, by_registers):
        return 0, f"two would leave {then} waves a SIMD of {min(now, by_registers)}"
    room, tile = limit(ctx.warp_size, ctx.num_warps), sum(words(c.load.results[0]) for c in loads)
    if _registers(in_use, ctx.warp_size) + _TWICE > room:
        return 0, "a lane's registers hold no second round's addresses"
    one_more = in_use + tile
    if stages >= 4 and _registers(one_more, ctx.warp_size) + _TWICE <= room and _waves(one_more, ctx) >= min(then, by_registers):
        return 2, "one barrier a round, loads three rounds ahead, and no wave less"
    return 1, "one barrier a round, loads two rounds ahead, and no wave less"


def _lds_bytes(function: Function, loop: Node, loads: list[PipelinedLoad], ctx: PassContext) -> tuple[int, int]:
    """About what the kernel takes with one buffer and with two: at least what lives together in the loop, and what any op needs for itself."""
    hooks = hooks_of(ctx)
    inside = {id(node) for node in loop.walk()}
    ring = sum(memdesc_bytes(c.alloc.results[0].type) for c in loads if c.alloc is not None)
    beside = scratch = 0
    for node in function.nodes():
        if node.name == ALLOC and not any(c.alloc is node for c in loads) and any(id(user) in inside for user in _readers(function, node)):
            beside += memdesc_bytes(node.results[0].type)
        size = scratch_of(node, hooks)
        scratch = max(scratch, size)
        if id(node) in inside and size and node.name != ALLOC:
            beside = max(beside, size)
    return max(scratch, ring + beside), max(scratch, 2 * ring + beside)


def _readers(function: Function, alloc: Node) -> list[Node]:
    """Users of a buffer and of its views."""
    found, work = [], list(alloc.results)
    while work:
        for user, _ in function.uses(work.pop()):
            found.append(user)
            work += [r for r in user.results if type_info(r.type).shape is None]
    return found


def _registers(tiles: int, warp_size: int) -> int:
    """Of a lane, where ``tiles`` words of it are in tiles."""
    return max(tiles + _BESIDES[warp_size], 2 * tiles if warp_size == 64 else 0)


def _waves(tiles: int, ctx: PassContext) -> int:
    """Of a SIMD, by registers."""
    return min(_MOST_WAVES[ctx.warp_size], waves_by_registers(_registers(tiles, ctx.warp_size), ctx.warp_size))


def _waves_by_lds(size: int, ctx: PassContext) -> int:
    unit = ctx.capabilities.max_shared_bytes * (1 if ctx.warp_size == 64 else 2)  # a work-group processor has two compute units' LDS
    return min(_MOST_WAVES[ctx.warp_size], unit // max(1, size) * ctx.num_warps // _SIMDS)
