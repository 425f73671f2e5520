"""Called functions on the cpu: ``func.func @NAME__called(arguments…, results…, failed?, pid x, y, z, grid x, y, z, scratch)``.

Scalars are passed as they are, tiles as the address of a buffer, results are addresses of buffers that the function fills (a scalar
is a buffer of one element). The function's scratch memory begins where the caller's ends at the call. ``failed``, of functions that hold
assertions which end the program, is a byte that they set: the caller then ends, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.call_graph import callee_of
from tilewright.dialects.analysis.structure import Function
from tilewright.targets.cpu.loop_builder import LoopBuilder
from tilewright.targets.cpu.lower import TileLowering, lowers
from tilewright.targets.cpu.lower_control import block_ops
from tilewright.targets.cpu.lower_elementwise import compute_type, element_of
from tilewright.targets.cpu.tiles import Arena, Buffer, Tile, fill

CALLED_SUFFIX = "__called"


@dataclass(frozen=True)
class Called:
    """A function that was lowered: its symbol, the bytes of scratch it takes with all that it calls, and whether it has ``failed``."""

    symbol: str
    scratch: int
    may_fail: bool


def _shape(type: Any) -> list[int]:
    return list(type.shape) if isinstance(type, ir.RankedTensorType) else [1]


def may_fail(function: Function, called: dict[str, Called]) -> bool:
    """Whether the function's own block holds an assertion, or calls a function of which that is so."""
    return any(n.name == "tt.assert" or n.name == "func.call" and called[callee_of(n)].may_fail for n in function.body.ops)


def lower_function(function: Function, types: LoopBuilder, make: Any, called: dict[str, Called]) -> Called:
    """Lower a function whose callees stand in ``called``. ``make(builder, arena)`` gives its TileLowering; ``types`` is any builder."""
    old = function.root.op
    name = ir.StringAttr(old.attributes["sym_name"]).value
    arguments, returned = function.body.args, function.body.ops[-1].operands
    flagged = may_fail(function, called)
    i32, ptr = ir.IntegerType.get_signless(32), ir.Type.parse("!llvm.ptr")
    inputs = [ptr if TileLowering.is_tile(a) else compute_type(types, a.type) for a in arguments]
    inputs += [*[ptr] * (len(returned) + flagged), *[i32] * 6, ptr]
    func = ir.Operation.create("func.func", attributes={
        "sym_name": ir.StringAttr.get(f"{name}{CALLED_SUFFIX}"), "sym_visibility": ir.StringAttr.get("private"),
        "llvm.linkage": ir.Attribute.parse("#llvm.linkage<internal>"),  # convert_to_llvm says that it is not inlined
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, []))}, regions=1, loc=old.location, ip=ir.InsertionPoint(old))
    entry = func.regions[0].blocks.append(*inputs, arg_locs=[old.location] * len(inputs))
    b = LoopBuilder(func)
    given = list(entry.arguments)
    arena = Arena(b, given[-1])
    lo = make(b, arena)
    lo.called = called
    lo.program, lo.grid = given[-7:-4], given[-4:-1]
    for argument, value in zip(arguments, given):
        lo.env[argument] = Buffer(b, value, _shape(argument.type), element_of(argument.type)) if lo.is_tile(argument) else value
    places = given[len(arguments):]
    lo.results = [Buffer(b, place, _shape(v.type), element_of(v.type)) for place, v in zip(places, returned)]
    lo.flag = places[len(returned)] if flagged else None
    lo.block(block_ops(old.regions[0].blocks[0]))
    b.loc = old.location
    b.op("func.return")
    return Called(f"{name}{CALLED_SUFFIX}", arena.peak, flagged)


@lowers("func.return")
def return_(lo: TileLowering, op: Any) -> list[Any]:
    """Fill the caller's buffers."""
    for buffer, value in zip(lo.results, op.operands):
        held = lo.env[value]
        if isinstance(held, Tile):
            fill(lo.b, buffer, held)
        else:
            buffer.put([lo.b.idx(0)], held)
    return []


@lowers("func.call")
def call(lo: TileLowering, op: Any) -> list[Any]:
    b = lo.b
    called = lo.called[ir.FlatSymbolRefAttr(op.attributes["callee"]).value]
    outs = [lo.out_buffer(op, i) if lo.is_tile(r) else lo.arena.take([1], element_of(r.type)) for i, r in enumerate(op.results)]
    mark = lo.arena.top
    passed = []
    for value in op.operands:
        held = lo.env[value]
        if isinstance(held, Tile):
            in_place = isinstance(held, Buffer) and not held.wide
            held = (held if in_place else fill(b, lo.arena.take(held.shape, held.element), held)).ptr  # type: ignore[attr-defined]
        passed.append(held)
    passed += [out.ptr for out in outs]
    lo.failed = lo.new_flag(op) if called.may_fail else None
    if called.may_fail:
        flag = lo.failed
        if flag is None:  # an assertion in a loop or branch ends the function, and not the program
            flag = lo.arena.take([1], b.i8, wide=True).ptr
            b.store(b.const(b.i8, 0), flag)
        passed.append(flag)
    scratch = b.gep(lo.arena.base, b.idx(lo.arena.top) if lo.arena.top else 0, b.i8)
    b.op("func.call", [*passed, *lo.program, *lo.grid, scratch], [], {"callee": ir.FlatSymbolRefAttr.get(called.symbol)})
    lo.arena.peak = max(lo.arena.peak, lo.arena.top + called.scratch)
    lo.arena.top = mark
    return [out if lo.is_tile(r) else out.lanes([b.idx(0)], 1) for out, r in zip(outs, op.results)]
