"""The kernel arguments that the launcher adds to the user's: first the grid of a persistent kernel, then the tensor maps.

An argument of type !tt.tensordesc is a tensor map; the n-th of them is ``metadata["host"]["descriptors"][n]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects import tt, ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function
from tilewright.dialects.encodings import element_bits
from tilewright.dialects.errors import InternalCompilerError, VariantNeeded
from tilewright.dialects.pipeline import PassContext

_MAX_EXTENT = 256  # of a box's dim (CUDA driver API, cuTensorMapEncodeTiled)


def is_descriptor(value: Any) -> bool:
    return tt.is_descriptor(value.type)


def insert_arguments(function: Function, types: Sequence[Any]) -> list[Any]:
    """Arguments of ``types`` after the user's and before the tensor maps. The mirror is stale where tensor maps had to move."""
    block = function.root.op.regions[0].blocks[0]
    location = function.root.op.location
    old = list(block.arguments)
    maps = [a for a in old if is_descriptor(a)]
    first = len(old) - len(maps)
    added = [block.add_argument(t, location) for t in types]
    moved = [block.add_argument(a.type, location) for a in maps]
    for before, after in zip(maps, moved):
        before.replace_all_uses_with(after)
    for _ in maps:
        block.erase_argument(first)
    _describe(function, first, len(types))
    region = function.body
    region.args = list(block.arguments)
    function.arg_of.update({a: (region, i) for i, a in enumerate(region.args)})
    return list(block.arguments)[first:first + len(added)]


def append_argument(function: Function, type_: Any) -> Any:
    """A last argument of that type."""
    block = function.root.op.regions[0].blocks[0]
    argument = block.add_argument(type_, function.root.op.location)
    _describe(function, len(list(block.arguments)) - 1, 1)
    function.body.args.append(argument)
    function.arg_of[argument] = (function.body, len(function.body.args) - 1)
    return argument


def _describe(function: Function, first: int, count: int) -> None:
    """Bring the function's type and arg_attrs in line with its block: ``count`` arguments were put in at ``first``."""
    op = function.root.op
    types = [a.type for a in op.regions[0].blocks[0].arguments]
    op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    if "arg_attrs" in op.attributes:
        given = list(ir.ArrayAttr(op.attributes["arg_attrs"]))
        op.attributes["arg_attrs"] = ir.ArrayAttr.get([*given[:first], *([ir.DictAttr.get({})] * count), *given[first:]])


def descriptor_number(function: Function, value: Any) -> int:
    """Which of the tensor maps a descriptor argument is."""
    maps = [a for a in function.body.args if is_descriptor(a)]
    return maps.index(value)


def describe_box(function: Function, desc: Any, memory: Any, ctx: PassContext, halves: bool = False) -> None:
    """Let the tensor map's box be one panel of the buffer, or with ``halves`` half its rows: what one copy moves, under the buffer's
    swizzle.

    Raises VariantNeeded where the copies of one descriptor would need different boxes, or a box is too large.
    """
    encoding = memory.encoding
    if not isinstance(encoding, ttg.PanelSharedEncoding):
        raise InternalCompilerError(f"a bulk copy needs a panel_shared buffer, found {memory}")
    panel, vec, per_phase, max_phase = (int(ir.IntegerAttr(p).value) for p in encoding.params[:4])
    rank = len(memory.shape)
    order = list(ir.DenseI32ArrayAttr(encoding.params[4]))
    if order != list(reversed(range(rank))):
        raise VariantNeeded({"tma": False}, "a buffer has not the order of the memory that it is filled from")
    itemsize = element_bits(memory.element_type) // 8
    recipe = ctx.metadata["host"]["descriptors"][descriptor_number(function, desc)]
    # the descriptor may have leading dims of extent 1 that the buffer has not
    box = [1] * (len(recipe["shape"]) - rank) + [*memory.shape[:-1], panel]
    if halves:
        box[-rank] //= 2
    swizzle = panel * itemsize if max_phase > 1 else 0
    if vec * itemsize != 16 or (max_phase > 1 and per_phase * swizzle != 128):
        raise InternalCompilerError(f"no tensor map swizzles as {encoding} does")
    if max(box) > _MAX_EXTENT:
        raise VariantNeeded({"tma": False}, f"a tile of {'x'.join(map(str, memory.shape))} has more than {_MAX_EXTENT} rows, the most a copy moves")
    if recipe.get("placed") and (recipe["box"], recipe["swizzle"]) != (box, swizzle):
        raise VariantNeeded({"tma": False}, f"{recipe.get('name', 'a descriptor')} is read under two layouts of shared memory")
    recipe.update(box=box, swizzle=swizzle, placed=True)
