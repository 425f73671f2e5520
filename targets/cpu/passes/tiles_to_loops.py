"""The pass tiles_to_loops: the tt kernel becomes loops over scf, vector and scalars, and an entry that runs part of a grid."""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.analysis.call_graph import callers_first, is_kernel, name_of
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.analysis.waiting import waiting_reads
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.cpu.driver import MAY_BE_ONE
from tilewright.targets.cpu.emit import ENTRY_SUFFIX

PROGRAM_ARGUMENTS = 6  # pid x, y, z and grid x, y, z, all i32


def run(module: Any, ctx: PassContext) -> None:
    """Before: a ``func.func`` with ``tt.kernel`` of tt ops, and those that it calls (see calls.py). After: ``@NAME(arguments…, pids, grid, scratch)`` of scf, arith,
    math, vector and llvm ops, and ``@NAME__grid(slots, begin, end, grid x, y, z, scratch)``, which takes the kernel's
    arguments from 8-byte slots and runs programs begin ≤ id < end, x fastest. ctx.metadata gets ``scratch_bytes`` (a
    program's), ``messages`` (the texts of prints and assertions), ``waits`` (whether programs wait for others: what their loops look at is
    then read anew in each round) and, where there are such, ``apart`` (pairs of arguments that must not be one array)."""
    from tilewright.targets.cpu import inline_asm, lower_dot, lower_map, lower_memory, lower_reduce, lower_shape  # noqa: F401  (register lowerings)
    from tilewright.targets.cpu.calls import Called, lower_function
    from tilewright.targets.cpu.loop_builder import LoopBuilder
    from tilewright.targets.cpu.lower import TileLowering
    from tilewright.targets.cpu.lower_control import block_ops
    from tilewright.targets.cpu.lower_elementwise import compute_type, from_storage, storage_type
    from tilewright.targets.cpu.lower_memory import forget_order
    from tilewright.targets.cpu.tiles import Arena

    kernel = next(op for op in module.body.operations if "tt.kernel" in op.attributes).operation
    name = ir.StringAttr(kernel.attributes["sym_name"]).value
    ctx.metadata["waits"] = _read_anew(module)
    axis = AxisInfoAnalysis(module)
    callees = [f for f in reversed(callers_first(functions(module))) if not is_kernel(f)]
    old_entry = kernel.regions[0].blocks[0]
    arguments = list(old_entry.arguments)
    i32, ptr = ir.IntegerType.get_signless(32), ir.Type.parse("!llvm.ptr")
    kinds = [_held(a.type) for a in arguments]
    inputs = [*kinds, *[i32] * PROGRAM_ARGUMENTS, ptr]
    func = ir.Operation.create("func.func", attributes={
        "sym_name": ir.StringAttr.get(f"{name}__program"), "sym_visibility": ir.StringAttr.get("private"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, []))}, regions=1, loc=kernel.location, ip=ir.InsertionPoint(kernel))
    entry = func.regions[0].blocks.append(*inputs, arg_locs=[kernel.location] * len(inputs))
    b = LoopBuilder(func)
    messages: list[str] = []
    new_arguments = list(entry.arguments)
    arena = Arena(b, new_arguments[-1])
    declared: set[str] = set()
    apart: set[tuple[int, int]] | None = set() if ctx.options.arguments_apart else None

    def make(b: LoopBuilder, arena: Arena) -> TileLowering:
        b.contract = bool(getattr(ctx.options, "enable_fp_fusion", True))
        made = TileLowering(b, arena, axis, module, messages, int(ctx.capabilities.max_vector_bits), ctx.arch)
        made._declared, made.apart = declared, apart
        return made

    called: dict[str, Called] = {}
    for function in callees:
        called[name_of(function)] = lower_function(function, b, make, called)
    lowering = make(b, arena)
    lowering.called = called
    at = len(arguments)
    lowering.program, lowering.grid = new_arguments[at:at + 3], new_arguments[at + 3:at + 6]
    for old, new in zip(arguments, new_arguments):
        lowering.env[old] = new
    lowering.block(block_ops(old_entry)[:-1])
    b.loc = kernel.location
    b.op("func.return")
    forget_order()
    _grid_entry(module, name, [storage_type(b, a.type) for a in arguments], [compute_type(b, a.type) for a in arguments],
                [a.type for a in arguments], kernel.location, from_storage)
    kernel.erase()
    for function in callees:
        function.root.op.erase()
    ctx.metadata["scratch_bytes"] = arena.peak
    ctx.metadata["messages"] = messages
    if apart:
        ctx.metadata["apart"], ctx.metadata["launch_variants"] = sorted(apart), [MAY_BE_ONE]


def _read_anew(module: Any) -> bool:
    """Make the loads volatile on which a loop waits; whether there are such loops."""
    reads = [read for function in functions(module) for read in waiting_reads(function)]
    for read in reads:
        if read.name == "tt.load":
            read.op.attributes["is_volatile"] = ir.BoolAttr.get(True)
    return bool(reads)


def _held(type: Any) -> Any:
    """An argument in compute form: pointers as i64, narrow floats as f32."""
    if str(type).startswith("!tt.ptr"):
        return ir.IntegerType.get_signless(64)
    return ir.F32Type.get() if str(type) in ("f16", "bf16") else type


def _grid_entry(module: Any, name: str, stored: list[Any], held: list[Any], types: list[Any], location: Any, from_storage: Any) -> None:
    from tilewright.targets.cpu.loop_builder import LoopBuilder

    i64, ptr = ir.IntegerType.get_signless(64), ir.Type.parse("!llvm.ptr")
    i32 = ir.IntegerType.get_signless(32)
    inputs = [ptr, i64, i64, i32, i32, i32, ptr]
    func = ir.Operation.create("func.func", attributes={
        "sym_name": ir.StringAttr.get(f"{name}{ENTRY_SUFFIX}"), "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, []))},
        regions=1, loc=location, ip=ir.InsertionPoint(module.body))
    block = func.regions[0].blocks.append(*inputs, arg_locs=[location] * len(inputs))
    b = LoopBuilder(func)
    b.loc = location
    slots, begin, end, gx, gy, gz, scratch = block.arguments
    values = [from_storage(b, b.load(b.gep(slots, i, b.i64), kind), type) for i, (kind, type) in enumerate(zip(stored, types))]
    wide_x, wide_y = (b.un("arith.extsi", g, i64) for g in (gx, gy))
    row = b.bin("arith.divui", begin, wide_x)
    first = [b.bin("arith.remui", begin, wide_x), b.bin("arith.remui", row, wide_y), b.bin("arith.divui", row, wide_y)]
    one, zero = b.const(i32, 1), b.const(i32, 0)

    def body(_: Any, pids: list[Any]) -> list[Any]:
        b.op("func.call", [*values, *pids, gx, gy, gz, scratch], [], {"callee": ir.FlatSymbolRefAttr.get(f"{name}__program")})
        x, y, z = pids  # counted on: dividing for each program would be felt in small ones
        x = b.bin("arith.addi", x, one)
        next_row = b.cmpi("eq", x, gx)
        y = b.bin("arith.addi", y, b.un("arith.extui", next_row, i32))
        next_plane = b.cmpi("eq", y, gy)
        z = b.bin("arith.addi", z, b.un("arith.extui", next_plane, i32))
        return [b.select(next_row, zero, x), b.select(next_plane, zero, y), z]

    b.for_(begin, end, b.const(i64, 1), [b.un("arith.trunci", v, i32) for v in first], body)
    b.op("func.return")
