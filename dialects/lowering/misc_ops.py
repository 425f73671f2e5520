"""Programs, pointers, barriers, math functions, print and assert."""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.lower_math import MathFunction, lookup
from tilewright.dialects.lowering.context import READ_ANEW
from tilewright.dialects.lowering.elementwise import map_registers
from tilewright.dialects.lowering.hooks import PrintedValues
from tilewright.dialects.lowering.registry import lowers
from tilewright.dialects.prints import check_element, operand_text


def _integer(op: Any, name: str) -> int:
    return int(ir.IntegerAttr(op.attributes[name]).value)


@lowers("tt.get_program_id")
def lower_program_id(ctx: Any, op: Any) -> list[Any]:
    axis = _integer(op, "axis")
    if READ_ANEW in op.attributes:
        return [[ctx.hooks.program_id_anew(ctx.b, axis)]]
    return [[ctx.once(("program", axis), lambda b: ctx.hooks.program_id(b, axis))]]


@lowers("tt.get_num_programs")
def lower_num_programs(ctx: Any, op: Any) -> list[Any]:
    axis = _integer(op, "axis")
    return [[ctx.once(("programs", axis), lambda b: ctx.hooks.num_programs(b, axis))]]


@lowers("tt.addptr")
def lower_addptr(ctx: Any, op: Any) -> list[Any]:
    b = ctx.b
    pointee = ctx.storage_type(ctx.llvm_type(ctx.element_type(op.operands[0]).pointee_type))

    def advance(ptr: Any, offset: Any) -> Any:
        number = b.constant_of(offset)
        if number is not None and abs(number) < 1 << 30:
            return b.gep(ptr, int(number), pointee)
        return b.gep(ptr, offset, pointee)

    return [map_registers(advance, ctx.operands(op))]


@lowers("tt.debug_barrier", "ttg.barrier")
def lower_barrier(ctx: Any, op: Any) -> None:
    ctx.hooks.barrier(ctx.b)


@lowers("tt.assume")
def lower_assume(ctx: Any, op: Any) -> None:
    ctx.b.op("llvm.intr.assume", [ctx.scalar(op.operands[0])], (), {
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([])})


# ---------------------------------------------------------------------------------------------------------- math
def math_lowering(ctx: Any, name: str, type: Any) -> Any:
    """Function of registers of MLIR type ``type`` computing ``name``. f16 and bf16 go through f32.

    ``hooks.math`` (optional: name → MathFunction, whose ulp the target states) comes before the portable one.
    """
    from tilewright.dialects.lowering.conversions import converter

    b, text, own = ctx.b, str(type), ctx.hooks.math
    function: MathFunction = own.get((name, text)) or lookup(name, text)
    if function.type == "f32" and text != "f32":
        function = own.get((name, "f32")) or function
    if function.type == text:
        return lambda *args: function.build(b, *args)
    up, down = converter(ctx, type, b.t_f32), converter(ctx, b.t_f32, type)
    if function.predicate:
        return lambda *args: function.build(b, *map(up, args))
    return lambda *args: down(function.build(b, *map(up, args)))


def _lower_math(ctx: Any, op: Any, name: str) -> list[Any]:
    types = [ctx.element_type(operand) for operand in op.operands]
    floats = [t for t in types if isinstance(t, ir.FloatType)]  # jn's and yn's first operand is an integer
    fn = math_lowering(ctx, name, (floats or types)[0])
    operands = ctx.operands(op)
    registers = map_registers(fn, operands)
    wanted = ctx.llvm_type(op.results[0].type)
    if registers[0].type != wanted:  # libdevice's predicates give i32, ours i1
        registers = map_registers(lambda x: ctx.b.zext(x, wanted), [registers])
    return [registers]


_MATH_OPS = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh",
             "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "powf", "sqrt", "rsqrt", "cbrt", "floor", "ceil", "round",
             "roundeven", "trunc", "copysign", "isnan", "isinf", "isfinite")


@lowers(*(f"math.{n}" for n in _MATH_OPS))
def lower_math(ctx: Any, op: Any) -> list[Any]:
    name = op.name[5:]
    return _lower_math(ctx, op, {"powf": "pow", "roundeven": "rint"}.get(name, name))


@lowers("tt.precise_sqrt")
def lower_precise_sqrt(ctx: Any, op: Any) -> list[Any]:
    return _lower_math(ctx, op, "sqrt")


@lowers("arith.remf")
def lower_remf(ctx: Any, op: Any) -> list[Any]:
    return _lower_math(ctx, op, "fmod")


@lowers("tt.extern_elementwise")
def lower_extern(ctx: Any, op: Any) -> list[Any]:
    return _lower_math(ctx, op, ir.StringAttr(op.attributes["symbol"]).value)


# ------------------------------------------------------------------------------------------------ print, assert
@lowers("tt.assert")
def lower_assert(ctx: Any, op: Any) -> None:
    """Stop the kernel where a condition does not hold."""
    b = ctx.b
    message = ir.StringAttr(op.attributes["message"]).value
    registers = ctx.get(op.operands[0])
    holds = registers[0]
    for r in registers[1:]:
        holds = b.and_(holds, r)
    failed = b.xor(holds, b.i1(1))
    b.if_then(failed, lambda: ctx.hooks.assert_failed(b, message))


@lowers("tt.print")
def lower_print(ctx: Any, op: Any) -> None:
    """Each element is printed by one of the threads that hold it, from one of its registers."""
    b, prefix, as_hex = ctx.b, ir.StringAttr(op.attributes["prefix"]).value, bool(ir.BoolAttr(op.attributes["hex"]).value)
    first = ctx.indices.bits_are_zero(ctx.num_threads - 1)
    if not len(op.operands):
        _where(b, first, partial(ctx.hooks.print_values, b, prefix, as_hex, None))
        return
    signs = list(ir.DenseI32ArrayAttr(op.attributes["is_signed"]))
    for k, (value, signed) in enumerate(zip(op.operands, signs)):
        check_element(str(ctx.element_type(value)), as_hex)
        text, registers, owner = operand_text(prefix, k, len(signs)), ctx.get(value), first
        if isinstance(value.type, ir.RankedTensorType):
            layout = ctx.layout_of(value)
            copies = layout.free_variable_masks().get("register", 0)
            own, indices, owner = [r for r in range(len(registers)) if not r & copies], ctx.indices.elements(layout), ctx.indices.owner(layout)
            printed = PrintedValues([registers[r] for r in own], bool(signed), tuple(value.type.shape), [indices[r] for r in own])
        else:
            printed = PrintedValues(registers, bool(signed), (), [()])
        _where(b, owner, partial(ctx.hooks.print_values, b, text, as_hex, printed))


def _where(b: Any, condition: Any, build: Any) -> None:
    """``build()`` under a condition, or always where that is None."""
    if condition is None:
        build()
    else:
        b.if_then(condition, build)
