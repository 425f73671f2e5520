"""Read loop-invariant matrix operands again in each iteration, in loops whose tiles would not fit the registers.

Before: an operand that a loop does not change (attention's queries) is read from shared memory once, before the loop, and held in registers through
it. After: in loops whose tiles in use need more registers than a wave's lane can have, such operands are read right before the products that take
them, the largest first, until the rest fits; a fragment then lives for a few instructions. Their buffers live through the loop: operands
for which shared memory has no room stay in registers.

With the option ``addresses_anew`` each iteration of a loop with products also computes its addresses of shared memory from the lane's number, of which
LLVM is kept from moving them before the loop: those of a swizzled buffer differ by xor, so that each takes a register.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis import structure
from tilewright.dialects.analysis.dots import TT_DOTS
from tilewright.dialects.analysis.layout_cost import registers
from tilewright.dialects.analysis.structure import Function, Node, erase_dead, functions, region_ancestor, type_info
from tilewright.dialects.lowering.context import REST_READS_ANEW, ROUNDS_READ_ANEW
from tilewright.dialects.passes.allocate_shared_memory import memdesc_bytes
from tilewright.dialects.pipeline import PassContext

OTHERS = 100  # of a lane: fragments in flight, addresses, counters; with 160 words in tiles, dk and dv on gfx1100 still computed addresses in their loop
_SIMDS = 4  # over which a work-group's waves are spread (compute unit of CDNA, work-group processor of RDNA)
_FILE = {64: 512, 32: 1536}  # registers of a SIMD by the wave's size, a lane (LLVM AMDGPU user guide, code object descriptors)
_MOST = 256  # that one instruction can name
_REPEATED = frozenset(("tt.broadcast", "tt.splat", "arith.constant", "tt.make_range", "tt.expand_dims", "ttg.local_load"))
_IN_PLACE = ("arith.", "math.", "tt.fp_to_fp", "tt.dot")


def limit(warp_size: int, num_warps: int) -> int:
    """Registers that a lane may have."""
    return min(_MOST, _FILE[warp_size] // max(1, num_warps // _SIMDS))


def waves_by_registers(needed: int, warp_size: int) -> int:
    """Of a SIMD, where a lane needs so many registers, which are given eight or 24 at a time."""
    granule = 8 if warp_size == 64 else 24
    return _FILE[warp_size] // max(granule, -(-needed // granule) * granule)


def reads_again(function: Function, loop: Node, ctx: PassContext) -> bool:
    """Whether operands of ``loop`` would be read again, for which LDS is needed, or registers are known to spill."""
    if ctx.options.addresses_anew:
        return True
    outside = [v for dot in loop.walk() if dot.name in TT_DOTS for v in dot.operands[:2]
               if (made := function.def_node(v)) is not None and made.name == "ttg.local_load" and region_ancestor(made, loop.regions[0]) is None]
    return bool(outside) and tiles_in_use(function, loop) > limit(ctx.warp_size, ctx.num_warps) - OTHERS


def words(value: Any) -> int:
    """Registers that a lane holds of a tile; 0 for masks (scalar registers), pointers and scalars."""
    info = type_info(value.type)
    if info.shape is None or info.kind == "ptr" or info.bits < 8 or info.encoding is None:
        return 0
    return -(-registers(info.shape, info.encoding) * info.bits // 32)


def tiles_in_use(function: Function, loop: Node) -> int:
    """An estimate of the most registers that tiles take at one op of the loop's body: those from before the loop that it uses, and those live
    there. What only repeats a value counts as nothing, and so do operands read in the loop: they are read where they are used."""
    body = loop.regions[0]
    place = {id(node): i for i, node in enumerate(body.ops)}
    last: dict[Any, int] = {}
    for node in loop.walk():
        at = place[id(region_ancestor(node, body))]
        for v in node.operands:
            last[v] = max(last.get(v, 0), at)

    def inside(value: Any) -> bool:
        made = function.def_node(value)
        return value in body.args or made is not None and region_ancestor(made, body) is not None

    def counts(value: Any) -> int:
        made = function.def_node(value)
        return 0 if made is not None and made.name in _REPEATED and (made.name != "ttg.local_load" or inside(value)) else words(value)

    whole = sum(counts(v) for v in last if not inside(v))
    live = {v: counts(v) for v in body.args if v in last}
    most = sum(live.values())
    for i, node in enumerate(body.ops[:-1]):
        dying = [v for v in dict.fromkeys(node.operands) if last.get(v) == i and v in live]
        made = sum(counts(v) for v in node.results)
        freed = sum(live[v] for v in dying) if node.name.startswith(_IN_PLACE) else 0
        most = max(most, sum(live.values()) + max(0, made - freed))
        for v in dying:
            del live[v]
        live |= {v: counts(v) for v in node.results if v in last}
    return whole + most


def _buffer(function: Function, load: Node) -> Node | None:
    """The local_alloc that a read operand lies in, where it is written once, when it is made."""
    view = function.def_node(load.operands[0])
    while view is not None and view.name == "ttg.memdesc_trans":
        view = function.def_node(view.operands[0])
    return view if view is not None and view.name == "ttg.local_alloc" and view.operands else None


def _bytes(alloc: Node) -> int:
    info = type_info(alloc.operands[0].type)
    return int(info.numel * info.bits // 8)


def _beside_stages(function: Function, loop: Node, ctx: PassContext) -> int:
    """Bytes of LDS beside the stages of pipelined loads, which are live throughout ``loop``."""
    inside = {id(node) for node in loop.walk()}

    def used(value: Any) -> bool:
        return any(id(user) in inside or any(used(v) for v in user.results if type_info(v.type).shape is None) for user, _ in function.uses(value))

    stages = (n for n in function.nodes() if n.name == "ttg.local_alloc" and not n.operands and used(n.results[0]))
    return int(ctx.capabilities.max_shared_bytes) - sum(memdesc_bytes(n.results[0].type) for n in stages)


def _read_again(function: Function, loop: Node, load: Node) -> None:
    """Before each product of the loop that takes what ``load`` read."""
    attributes = {name: load.op.attributes[name] for name in structure.attribute_names(load.op)}
    for user, index in list(function.uses(load.results[0])):
        if region_ancestor(user, loop.regions[0]) is not None:
            again = function.insert_before(user, load.name, [load.results[0].type], list(load.operands), attributes)
            function.set_operand(user, index, again.results[0])


def _fit(function: Function, loop: Node, ctx: PassContext) -> bool:
    most = limit(ctx.warp_size, ctx.num_warps) - OTHERS
    room = ctx.capabilities.max_shared_bytes * 3 // 4 - sum(_bytes(n) for n in loop.walk() if n.name == "ttg.local_alloc" and n.operands)
    left = _beside_stages(function, loop, ctx)
    found: dict[Any, tuple[Node, Node]] = {}
    for dot in [n for n in loop.walk() if n.name in TT_DOTS]:
        for value in dot.operands[:2]:
            load = function.def_node(value)
            if load is None or load.name != "ttg.local_load" or region_ancestor(load, loop.regions[0]) is not None:
                continue
            alloc = _buffer(function, load)
            if alloc is not None:
                found[value] = (load, alloc)
    changed = False
    for value in sorted(found, key=words, reverse=True):
        load, alloc = found[value]
        if _bytes(alloc) <= min(room, left) and tiles_in_use(function, loop) > most:
            room -= _bytes(alloc)
            left -= _bytes(alloc)
            _read_again(function, loop, load)
            changed = True
    return changed


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    for function in functions(module):
        loops = [n for n in function.nodes() if n.name == "scf.for" and any(d.name in TT_DOTS for d in n.regions[0].ops)]
        if any([_fit(function, loop, ctx) for loop in loops]):
            erase_dead(function)
        if ctx.options.addresses_anew:
            for loop in loops:
                for name in (ROUNDS_READ_ANEW, REST_READS_ANEW):
                    loop.op.attributes[name] = ir.UnitAttr.get()
