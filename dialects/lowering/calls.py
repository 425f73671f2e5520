"""Calls of functions: each register of an argument is an argument, those of the results are one struct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.call_graph import CALL, RETURN, callee_of
from tilewright.dialects.encodings import layout_of
from tilewright.dialects.lowering.registry import lowers


def register_types(llvm_type: Callable[[Any], Any], types: Sequence[Any]) -> list[list[Any]]:
    """The LLVM types of the registers of values of these types, a list a value. ``llvm_type``: of an element of a type."""
    out = []
    for type in types:
        count = layout_of(type).in_size("register") if isinstance(type, ir.RankedTensorType) else 1
        out.append([llvm_type(type)] * count)
    return out


def result_type(llvm_type: Callable[[Any], Any], types: Sequence[Any]) -> Any:
    """The LLVM type of what a function with results of these types returns; None for nothing."""
    flat = [t for registers in register_types(llvm_type, types) for t in registers]
    return None if not flat else flat[0] if len(flat) == 1 else ir.Type.parse(f"!llvm.struct<({', '.join(map(str, flat))})>")


def _uniform(ctx: Any, values: Sequence[Any], registers: Sequence[list[Any]]) -> list[list[Any]]:
    """Scalars, which all threads hold alike, in the target's form for them."""
    return [r if isinstance(v.type, ir.RankedTensorType) else [ctx.uniform(r[0])] for v, r in zip(values, registers)]


def bind_arguments(ctx: Any, arguments: Sequence[Any]) -> None:
    """Give the function's tensors and scalars the arguments of its llvm.func."""
    given = list(ctx.func.regions[0].blocks[0].arguments)
    registers, at = [], 0
    for types in register_types(ctx.llvm_type, [a.type for a in arguments]):
        registers.append(given[at:at + len(types)])
        at += len(types)
    for argument, lowered in zip(arguments, _uniform(ctx, arguments, registers)):
        ctx.set(argument, lowered)


@lowers(CALL)
def lower_call(ctx: Any, op: Any) -> list[list[Any]]:
    b, node = ctx.b, ctx.node
    name = callee_of(node)
    arguments = [r for v in node.operands for r in ctx.get(v)]
    types = [v.type for v in node.results]
    result = b.call(name, result_type(ctx.llvm_type, types), arguments)
    counts = [len(registers) for registers in register_types(ctx.llvm_type, types)]
    if sum(counts) == 1:
        return _uniform(ctx, node.results, [[result]])
    out, at = [], 0
    for count in counts:
        out.append([b.extract_value(result, at + i) for i in range(count)])
        at += count
    return _uniform(ctx, node.results, out)


@lowers(RETURN)
def lower_return(ctx: Any, op: Any) -> None:
    b = ctx.b
    values = [r for v in ctx.node.operands for r in ctx.get(v)]
    b.ret([] if not values else values if len(values) == 1 else [b.pack_struct(values)])
