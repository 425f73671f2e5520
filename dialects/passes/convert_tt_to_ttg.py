"""Give every tensor a layout: the default blocked one of its shape.

Before: a tt module, no encodings. After: every tensor has an encoding, ``verify_layouts`` holds, and the module carries
``ttg.num-warps``, ``ttg.threads-per-warp`` and ``ttg.num-ctas``. Ops whose operands and results cannot both have the default
(expand_dims, reduce, trans, reshape, join, split, cat, dot, broadcast) are joined to the rest by ``ttg.convert_layout``; the
later passes choose better layouts and remove those. Tensors enter and leave called functions in the default layout of their shape,
and no later pass changes that: caller and callee need not know of each other.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis import layout_rules as rules
from tilewright.dialects.analysis.call_graph import is_kernel, retype
from tilewright.dialects.analysis.dots import TT_DOTS
from tilewright.dialects.analysis.structure import Function, Node, functions, type_info, with_encoding
from tilewright.dialects.encodings import default_blocked
from tilewright.dialects.errors import TilewrightError

_FORWARD = frozenset(("tt.trans", "tt.reshape", "tt.join", "tt.cat", "tt.reduce"))


class _Defaults:
    """The default blocked encoding by shape."""

    def __init__(self, num_warps: int, warp_size: int):
        self.num_warps, self.warp_size = num_warps, warp_size
        self.cache: dict[tuple[int, ...], Any] = {}

    def __call__(self, shape: tuple[int, ...]) -> Any:
        found = self.cache.get(shape)
        if found is None:
            found = self.cache[shape] = default_blocked(shape, self.num_warps, self.warp_size)
        return found


def set_constant_type(node: Node, type_: Any) -> None:
    """Give an ``arith.constant`` tensor another type, of the same shape and element."""
    value = node.op.attributes["value"]
    if value.is_splat:
        value = ir.DenseElementsAttr.get_splat(type_, value.get_splat_value())
    else:
        value = ir.DenseElementsAttr.get([value[i] for i in range(len(value))], type_)
    node.op.attributes["value"] = value
    node.set_type(0, type_)


def convert_operand(function: Function, node: Node, index: int, encoding: Any) -> None:
    """Let operand ``index`` come through a convert_layout to ``encoding``, unless it has it."""
    value = node.operands[index]
    type_ = with_encoding(value.type, encoding)
    if type_ != value.type:
        convert = function.insert_before(node, "ttg.convert_layout", [type_], [value])
        function.set_operand(node, index, convert.results[0])


def convert_result(function: Function, node: Node, index: int, encoding: Any) -> None:
    """Give result ``index`` the type with ``encoding``; its users get it converted back to the type it had."""
    value = node.results[index]
    old, new = value.type, with_encoding(value.type, encoding)
    if old != new:
        value.set_type(new)
        convert = function.insert_after(node, "ttg.convert_layout", [old], [value])
        function.replace_uses(value, convert.results[0], keep=convert)


def _fix(function: Function, node: Node, default: _Defaults) -> None:
    name = node.name
    if name in _FORWARD:
        encoding = rules.forward(node, 0, type_info(node.operands[0].type).encoding)
        for i, r in enumerate(node.results):
            if type_info(r.type).shape is not None:
                convert_result(function, node, i, encoding)
    elif name in ("tt.expand_dims", "tt.broadcast", "tt.split"):
        needed = rules.backward(node, type_info(node.results[0].type).encoding)
        assert needed is not None
        convert_operand(function, node, 0, needed[0])
    elif name in TT_DOTS:
        parent = type_info(node.results[0].type).encoding
        for i in (0, 1):
            convert_operand(function, node, i, ttg.DotOperandEncoding.of(i, parent))


def run(module: Any, ctx: Any) -> None:
    """Before: tt, no encodings. After: default blocked encodings everywhere, with convert_layout where ops need others.

    Raises TilewrightError for tensor arguments of kernels, and where tensors have encodings already.
    """
    i32 = ir.IntegerType.get_signless(32)
    operation = module.operation if hasattr(module, "operation") else module
    num_ctas = int(getattr(ctx.options, "num_ctas", 1) or 1)
    for attribute, value in (("num-warps", ctx.num_warps), ("threads-per-warp", ctx.warp_size), ("num-ctas", num_ctas)):
        operation.attributes[f"ttg.{attribute}"] = ir.IntegerAttr.get(i32, value)
    default = _Defaults(ctx.num_warps, ctx.warp_size)
    types: dict[Any, Any] = {}
    for function in functions(module):
        if is_kernel(function) and any(type_info(a.type).shape is not None for a in function.body.args):
            raise TilewrightError("a kernel has no tensor arguments: its host passes pointers and scalars")
        nodes = list(function.nodes())
        for node in (function.root, *nodes):
            for value in (*node.results, *(a for r in node.regions for a in r.args)):
                old = value.type
                new = types.get(old)
                if new is None:
                    info = type_info(old)
                    if info.encoding is not None:
                        raise TilewrightError(f"{old} of {node.name} has an encoding before layouts are chosen")
                    new = types[old] = old if info.shape is None else with_encoding(old, default(info.shape))
                if new != old:
                    if node.name == "arith.constant":
                        set_constant_type(node, new)
                    else:
                        value.set_type(new)
        for node in nodes:
            _fix(function, node, default)
        retype(function)
