"""Let each block run many programs, one after another: the next tile's loads then overlap the last one's epilogue.

Before: a ttg kernel of descriptor loads and warp-group products, one program a block. After: its body stands in a loop over the programs
block, block + blocks, … of the grid, whose true size comes in three more i32 arguments (before the descriptors; metadata["persistent"]
tells the launcher). Where neighbouring programs may share tiles (cluster_pairs.py), or the grid may read
a tensor once (streamed_tiles.py), a fourth i32 says which. tl.program_id and tl.num_programs mean what they meant.

Done only where every program does the same work, so that dealing them out in turn is fair: no loop's bounds depend on the program's
number; and where programs cannot wait for each other: no atomics. Programs that one block runs in turn see one another's writes
only as programs of different blocks do, since bulk loads read nothing that the kernel stores.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, functions
from tilewright.dialects.lowering.context import ROUNDS_READ_ANEW
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.nvidia.passes.cluster_pairs import FLAGS, find_pairs
from tilewright.targets.nvidia.passes.host_arguments import insert_arguments
from tilewright.targets.nvidia.passes.streamed_tiles import find_streams
from tilewright.targets.nvidia.passes.warp_rings import DOT

_UNFAIR = frozenset(("tt.atomic_rmw", "tt.atomic_cas", "tt.get_num_programs", "tt.debug_barrier", "tt.print", "tt.assert",
                     "tt.elementwise_inline_asm", "tt.extern_elementwise", "scf.while", "tt.descriptor_reduce"))


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    for function in functions(module):
        if wanted(function):
            pairs, streams = find_pairs(function, ctx), find_streams(function, ctx)
            flags = bool(pairs or streams)
            _wrap(function, flags)
            ctx.metadata["persistent"] = {"ctas_per_sm": 1, "cluster": 2 if pairs else 1, "flags": flags}


def wanted(function: Function) -> bool:
    """Whether the function has loops of products over descriptor loads, all alike in every program, and stores nothing in between."""
    nodes = list(function.nodes())
    if any(node.name in _UNFAIR for node in nodes) or not any(node.name == "tt.descriptor_load" for node in nodes):
        return False
    loops = [node for node in nodes if node.name == "scf.for"]
    if not any(any(n.name == DOT for n in loop.walk()) for loop in loops) or any(loop.depth for loop in loops):
        return False
    ids = [node for node in nodes if node.name == "tt.get_program_id"]
    return bool(ids) and not any(_depends(function, v, set()) for loop in loops for v in loop.operands[:3])


def _depends(function: Function, value: Any, seen: set[Any]) -> bool:
    """Whether a scalar is computed from the program's number, or from memory."""
    if value in seen:
        return False
    seen.add(value)
    node = function.def_node(value)
    if node is None:
        entry = function.arg_of[value]
        return entry[0].parent.name != "func.func"
    if node.name in ("tt.get_program_id", "tt.load") or node.regions:
        return True
    return any(_depends(function, v, seen) for v in node.operands)


def _wrap(function: Function, with_flags: bool) -> None:
    i32 = ir.IntegerType.get_signless(32)
    x, y, z, *flags = insert_arguments(function, [i32] * (4 if with_flags else 3))
    if with_flags:
        function.root.op.attributes[FLAGS] = ir.IntegerAttr.get(i32, ir.BlockArgument(flags[0]).arg_number)
    body = function.body
    ops = list(body.ops[:-1])
    end = body.ops[-1].op
    axes = {node.int_attr("axis") for node in ops if node.name == "tt.get_program_id"} | {
        node.int_attr("axis") for op in ops for node in op.walk() if node.name == "tt.get_program_id"}

    def op(name: str, operands: list[Any], ip: Any, attributes: dict[str, Any] | None = None, type_: Any = i32) -> Any:
        return ir.Operation.create(name, results=[type_], operands=operands, attributes=attributes or {}, loc=end.location, ip=ip).result

    before = ir.InsertionPoint(end)
    axis = ir.IntegerAttr.get(i32, 0)
    first = op("tt.get_program_id", [], before, {"axis": axis})
    step = op("tt.get_num_programs", [], before, {"axis": axis})
    total = op("arith.muli", [op("arith.muli", [x, y], before), z], before)
    attributes = {name: ir.UnitAttr.get() for name in ("ttng.persistent", ROUNDS_READ_ANEW)}
    loop = ir.Operation.create("scf.for", results=[], operands=[first, total, step], attributes=attributes, regions=1, loc=end.location, ip=before)
    block = loop.regions[0].blocks.append(i32)
    tile = block.arguments[0]
    last = ir.Operation.create("scf.yield", loc=end.location, ip=ir.InsertionPoint(block))
    for node in ops:
        node.op.move_before(last)
    inside = ir.InsertionPoint.at_block_begin(block)
    numbers = {0: tile}
    if axes & {1, 2}:
        rest = op("arith.divui", [tile, x], inside)
        numbers = {0: op("arith.remui", [tile, x], inside), 1: op("arith.remui", [rest, y], inside), 2: op("arith.divui", [rest, y], inside)}
    _replace_ids(ops, numbers, inside)


def _replace_ids(ops: list[Node], numbers: dict[int, Any], inside: Any) -> None:
    for top in ops:
        for node in (top, *top.walk()):
            if node.name == "tt.get_program_id":
                node.results[0].replace_all_uses_with(numbers[node.int_attr("axis")])
                node.op.erase()
