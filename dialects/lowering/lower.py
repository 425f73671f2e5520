"""The pass: from tt and ttg ops with layouts to LLVM-dialect scalars, one walk over each function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dialects import tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.analysis.call_graph import callee_of, calls_of, name_of
from tilewright.dialects.analysis.structure import Function, functions
from tilewright.dialects.lowering.calls import bind_arguments, lower_return, register_types, result_type
from tilewright.dialects.lowering.context import SMEM, LoweringContext
from tilewright.dialects.lowering.registry import table


def lower_module(module: Any, pass_ctx: Any) -> None:
    """See ``dialects.lowering.lower_to_llvm``."""
    root = module.operation if hasattr(module, "operation") else module
    mirrors = functions(root)
    state = _Module(root, mirrors, pass_ctx)
    _declare_shared(state.block, state.hooks)
    for function in mirrors:
        (_lower_called if name_of(function) in state.called else _lower_kernel)(state, function)
    for function in mirrors:
        function.root.op.erase()


def _declare_shared(block: Any, hooks: Any) -> None:
    parse = ir.Attribute.parse
    ir.Operation.create("llvm.mlir.global", attributes={
        "sym_name": ir.StringAttr.get(SMEM), "global_type": ir.TypeAttr.get(ir.Type.parse("!llvm.array<0 x i8>")),
        "linkage": parse("#llvm.linkage<external>"), "addr_space": parse(f"{hooks.shared_address_space} : i32"),
        "alignment": parse("1024 : i64"),
    }, regions=1, loc=ir.Location.unknown(), ip=ir.InsertionPoint.at_block_begin(block))


class _Module:
    """What the lowering of one function has to know of the module."""

    def __init__(self, root: Any, mirrors: list[Function], pass_ctx: Any):
        self.root, self.pass_ctx = root, pass_ctx
        self.block = root.regions[0].blocks[0]
        self.hooks = pass_ctx.target.hooks(pass_ctx.arch, pass_ctx.options)
        self.lowerings = table(pass_ctx.target.lowerings())
        self.axis_info = AxisInfoAnalysis(root)
        self.called = {callee_of(call) for function in mirrors for call in calls_of(function)}

    def context(self, func: Any) -> LoweringContext:
        return LoweringContext(self.pass_ctx, self.hooks, self.lowerings, self.root, func, self.axis_info)

    def make(self, old: Any, types: list[Any], result: Any, places: list[Any], attributes: dict[str, Any]) -> Any:
        """The llvm.func that stands for ``old``, with an entry block."""
        parse = ir.Attribute.parse
        returns = "void" if result is None else str(result)
        func = ir.Operation.create("llvm.func", attributes={
            "sym_name": old.attributes["sym_name"],
            "function_type": ir.TypeAttr.get(ir.Type.parse(f"!llvm.func<{returns} ({', '.join(map(str, types))})>")),
            "CConv": parse("#llvm.cconv<ccc>"), **attributes,
        }, regions=1, loc=old.location, ip=ir.InsertionPoint(self.block))
        func.regions[0].blocks.append(*types, arg_locs=places)
        return func


def _lower_kernel(module: _Module, function: Function) -> None:
    old, hooks, pass_ctx = function.root.op, module.hooks, module.pass_ctx
    arguments = function.body.args
    # The context knows how types map; it needs a function to build in, so types come first from a throwaway rule.
    types = [_argument_type(a.type, hooks) for a in arguments]
    func = module.make(old, types, None, [a.location if hasattr(a, "location") else old.location for a in arguments], {
        "linkage": ir.Attribute.parse("#llvm.linkage<external>"), "arg_attrs": ir.ArrayAttr.get(_argument_attrs(old, arguments, hooks))})
    ctx = module.context(func)
    hooks.prepare_kernel(function, ctx.num_warps)
    hooks.declare_kernel(ctx.b, func, ctx.num_warps)
    for old_argument, new in zip(arguments, ctx.b.entry.arguments):
        ctx.set(old_argument, [new])
    _lower_body(ctx, function)
    hooks.kernel_lowered(pass_ctx.metadata)
    pass_ctx.metadata.setdefault("shared", 0)
    pass_ctx.metadata["num_warps"] = ctx.num_warps
    pass_ctx.metadata["name"] = ir.StringAttr(old.attributes["sym_name"]).value


def _lower_called(module: _Module, function: Function) -> None:
    """A function that others of the module call."""
    old, hooks = function.root.op, module.hooks
    arguments, returned = function.body.args, function.body.ops[-1].operands

    def llvm_type(type: Any) -> Any:
        return _argument_type(type.element_type if isinstance(type, ir.RankedTensorType) else type, hooks)

    types = [t for registers in register_types(llvm_type, [a.type for a in arguments]) for t in registers]
    result = result_type(llvm_type, [v.type for v in returned])
    func = module.make(old, types, result, [old.location] * len(types), {
        "linkage": ir.Attribute.parse("#llvm.linkage<internal>"), "no_inline": ir.UnitAttr.get(),
        "convergent": ir.UnitAttr.get()})  # it may hold barriers
    ctx = module.context(func)
    ctx.is_called = True
    hooks.prepare_kernel(function, ctx.num_warps)
    hooks.declare_function(ctx.b, func, ctx.num_warps)
    ctx.b.loc = old.location
    _lower_body(ctx, function, lambda: bind_arguments(ctx, arguments))


def _lower_body(ctx: LoweringContext, function: Function, bind: Callable[[], None] | None = None) -> None:
    """Constants and thread indices go to the entry block, which is closed at the end; the body begins in the next."""
    b = ctx.b
    if bind is not None:
        b.set_block(b.entry)
        bind()
    body = b.block(after=b.entry)
    b.set_block(body)
    ops = function.body.ops
    ctx.lower_ops(ops[:-1])
    b.loc = ops[-1].op.location
    ctx.node = ops[-1]
    lower_return(ctx, ops[-1].op)
    b.set_block(b.entry)
    b.loc = ir.Location.unknown()
    b.br(body)


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
