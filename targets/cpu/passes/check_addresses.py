"""The pass check_addresses: accesses through null pointers become errors with the kernel's line. Runs with debug=True, and in the version of a kernel
that the launcher asks for where an argument is null: an address that is not mapped ends the process."""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import attribute_names
from tilewright.dialects.pipeline import PassContext
from tilewright.targets.cpu.driver import NULL_MARK

LOWEST = 1 << 22  # bytes from address 0 on in which no system puts data: Linux's smallest mapping and first program lie above, others keep 4 GiB

# op → what the user wrote, and the position of the mask among the operands where it may have one
_ACCESSES = {"tt.load": ("tl.load", 1), "tt.store": ("tl.store", 2), "tt.atomic_rmw": ("an atomic", 2), "tt.atomic_cas": ("tl.atomic_cas", None)}


def run(module: Any, ctx: PassContext) -> None:
    """Before: tt. After: each access whose pointer comes from an argument of the kernel is under an ``scf.if`` that the argument is not null, every
    other one masked off at addresses below ``LOWEST`` (a tile's compare-and-swap, which has no mask, excepted); a tt.assert before each, of the
    elements that its mask lets through, tells where it was not so."""
    from tilewright.targets.cpu.lower_memory import base_of

    found: list[tuple[Any, Any]] = []

    def visit(op: Any) -> Any:
        if op.name in _ACCESSES:
            found.append((op, base_of(op.operands[0])))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    if ctx.options.check_addresses:
        ctx.metadata["check_addresses"] = True
    for op, base in found:
        with op.location, ir.InsertionPoint(op):
            _check(op, base)


def _op(name: str, operands: list[Any], type: Any, **attributes: Any) -> Any:
    return ir.Operation.create(name, results=[type], operands=operands, attributes=attributes).result


def _constant(type: Any, value: int) -> Any:
    if isinstance(type, ir.RankedTensorType):
        splat = ir.DenseElementsAttr.get_splat(type, ir.IntegerAttr.get(type.element_type, value))
        return _op("arith.constant", [], type, value=splat)
    return _op("arith.constant", [], type, value=ir.IntegerAttr.get(type, value))


def _like(type: Any, element: Any) -> Any:
    return ir.RankedTensorType.get(type.shape, element, type.encoding) if isinstance(type, ir.RankedTensorType) else element


def _reaches(pointer: Any) -> Any:
    """Whether each address is that of data: all but the lowest, and the highest half, which is negative."""
    address = _op("tt.ptr_to_int", [pointer], _like(pointer.type, ir.IntegerType.get_signless(64)))
    signed_at_least = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 5)
    return _op("arith.cmpi", [address, _constant(address.type, LOWEST)], _like(pointer.type, ir.IntegerType.get_signless(1)), predicate=signed_at_least)


def _check(op: Any, base: Any) -> None:
    i1 = ir.IntegerType.get_signless(1)
    what, place = _ACCESSES[op.name]
    operands = list(op.operands)
    mask = operands[place] if place is not None and len(operands) > place else None
    ok = _reaches(operands[0] if base is None else base)
    spread = ok if mask is None or mask.type == ok.type else _op("tt.splat", [ok], mask.type)
    fine = spread if mask is None else _op("arith.ori", [spread, _op("arith.xori", [mask, _constant(mask.type, 1)], mask.type)], mask.type)
    whose = "at an address near 0, which is a null pointer's" if base is None else f"through argument {ir.BlockArgument(base).arg_number}, which is a null pointer"
    ir.Operation.create("tt.assert", operands=[fine], attributes={"message": ir.StringAttr.get(f"{NULL_MARK}{what} {whose}")})
    if base is not None:
        _put_under(op, ok)
    elif place is not None:
        masks = _like(operands[0].type, i1)
        both = ok if mask is None else _op("arith.andi", [ok, mask], masks)
        operands[place:place + 1] = [both]
        sizes = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
        sizes[place] = 1
        attributes = {n: op.attributes[n] for n in attribute_names(op)}
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(sizes)
        made = ir.Operation.create(op.name, results=[r.type for r in op.results], operands=operands, attributes=attributes)
        for old, new in zip(op.results, made.results):
            old.replace_all_uses_with(new)
        op.erase()


def _put_under(op: Any, ok: Any) -> None:
    """Move the op into the first branch of an ``scf.if``; in the other its results are what a load that is masked off gives (``other``), or zeros."""
    types = [r.type for r in op.results]
    other = list(op.operands)[2:] if op.name == "tt.load" else []
    choice = ir.Operation.create("scf.if", results=types, operands=[ok], regions=2)
    for old, new in zip(op.results, choice.results):
        old.replace_all_uses_with(new)
    for region, values in zip(choice.regions, (list(op.results), None)):
        block = region.blocks.append()
        with ir.InsertionPoint(block):
            end = ir.Operation.create("scf.yield", operands=(other or [_zero(t) for t in types]) if values is None else values)
            if values is not None:
                op.move_before(end)


def _zero(type: Any) -> Any:
    element = type.element_type if isinstance(type, ir.RankedTensorType) else type
    if str(element).startswith("!tt.ptr"):
        return _op("tt.int_to_ptr", [_zero(_like(type, ir.IntegerType.get_signless(64)))], type)
    zero = ir.IntegerAttr.get(element, 0) if isinstance(element, ir.IntegerType) else ir.FloatAttr.get(element, 0.0)
    return _op("arith.constant", [], type, value=ir.DenseElementsAttr.get_splat(type, zero) if element != type else zero)
