"""The pass: from tt and ttg ops with layouts to LLVM-dialect scalars, one walk over the kernel."""

from __future__ import annotations

from typing import Any

from tilewright.dialects import tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.analysis.structure import Function, functions
from tilewright.dialects.lowering.context import SMEM, LoweringContext
from tilewright.dialects.lowering.registry import table


def lower_module(module: Any, pass_ctx: Any) -> None:
    """See ``dialects.lowering.lower_to_llvm``."""
    target = pass_ctx.target
    hooks = target.hooks(pass_ctx.arch, pass_ctx.options)
    lowerings = table(target.lowerings())
    root = module.operation if hasattr(module, "operation") else module
    mirrors = functions(root)
    axis_info = AxisInfoAnalysis(root)
    block = root.regions[0].blocks[0]
    _declare_shared(block, hooks)
    for function in mirrors:
        _lower_function(root, block, function, pass_ctx, hooks, lowerings, axis_info)
    for function in mirrors:
        function.root.op.erase()


def _declare_shared(block: Any, hooks: Any) -> None:
    parse = ir.Attribute.parse
    ir.Operation.create("llvm.mlir.global", attributes={
        "sym_name": ir.StringAttr.get(SMEM), "global_type": ir.TypeAttr.get(ir.Type.parse("!llvm.array<0 x i8>")),
        "linkage": parse("#llvm.linkage<external>"), "addr_space": parse(f"{hooks.shared_address_space} : i32"),
        "alignment": parse("1024 : i64"),
    }, regions=1, loc=ir.Location.unknown(), ip=ir.InsertionPoint.at_block_begin(block))


def _lower_function(root: Any, block: Any, function: Function, pass_ctx: Any, hooks: Any, lowerings: Any, axis_info: Any) -> None:
    old = function.root.op
    arguments = function.body.args
    # The context knows how types map; it needs a function to build in, so types come first from a throwaway rule.
    types = [_argument_type(a.type, hooks) for a in arguments]
    parse = ir.Attribute.parse
    func = ir.Operation.create("llvm.func", attributes={
        "sym_name": old.attributes["sym_name"],
        "function_type": ir.TypeAttr.get(ir.Type.parse(f"!llvm.func<void ({', '.join(map(str, types))})>")),
        "linkage": parse("#llvm.linkage<external>"), "CConv": parse("#llvm.cconv<ccc>"),
        "arg_attrs": ir.ArrayAttr.get(_argument_attrs(old, arguments, hooks)),
    }, regions=1, loc=old.location, ip=ir.InsertionPoint(block))
    func.regions[0].blocks.append(*types, arg_locs=[a.location if hasattr(a, "location") else old.location for a in arguments])
    ctx = LoweringContext(pass_ctx, hooks, lowerings, root, func, axis_info)
    b = ctx.b
    hooks.prepare_kernel(function, ctx.num_warps)
    hooks.declare_kernel(b, func, ctx.num_warps)
    for old_argument, new in zip(arguments, b.entry.arguments):
        ctx.set(old_argument, [new])
    # Constants and thread indices go to the entry block, which is closed at the end; the body begins in the next.
    body = b.block()
    b.set_block(body)
    ops = function.body.ops
    ctx.lower_ops(ops[:-1])
    b.loc = ops[-1].op.location
    b.ret()
    b.set_block(b.entry)
    b.loc = ir.Location.unknown()
    b.br(body)
    pass_ctx.metadata.setdefault("shared", 0)
    pass_ctx.metadata["num_warps"] = ctx.num_warps
    pass_ctx.metadata["name"] = ir.StringAttr(old.attributes["sym_name"]).value


def _argument_type(type: Any, hooks: Any) -> Any:
    text = str(type)
    if text.startswith("!tt.ptr"):
        return ir.Type.parse(f"!llvm.ptr<{hooks.global_address_space}>")
    if tt.is_descriptor(type):
        return hooks.descriptor_argument()[0]
    if text.startswith("f8"):
        return ir.IntegerType.get_signless(8)
    if text == "index":
        return ir.IntegerType.get_signless(64)
    return type


def _argument_attrs(func: Any, arguments: Any, hooks: Any) -> list[Any]:
    """Pointers promised to be divisible get LLVM's ``align``; descriptors what the target says."""
    given = ir.ArrayAttr(func.attributes["arg_attrs"]) if "arg_attrs" in func.attributes else None
    attrs = []
    for i, argument in enumerate(arguments):
        entry: dict[str, Any] = dict(hooks.descriptor_argument()[1]) if tt.is_descriptor(argument.type) else {}
        if given is not None and "tt.divisibility" in (d := ir.DictAttr(given[i])) and str(argument.type).startswith("!tt.ptr"):
            divisibility = ir.IntegerAttr(d["tt.divisibility"]).value
            if divisibility & (divisibility - 1) == 0:
                entry["llvm.align"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), divisibility)
        attrs.append(ir.DictAttr.get(entry))
    return attrs
