"""Checks that every op's encodings obey the rules of ``dialects/analysis/layout_rules.py``.

Before and after: a ttg module; nothing is changed. Raises InternalCompilerError naming the op and the rule it breaks. Run in
tests after every pass, and under dump.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis import layout_rules as rules
from tilewright.dialects.analysis.call_graph import callee_of, calls_of, name_of
from tilewright.dialects.analysis.dots import TT_DOTS
from tilewright.dialects.analysis.structure import Function, Node, functions, type_info
from tilewright.dialects.encodings import downcast, integer, num_warps_of, to_linear_layout
from tilewright.dialects.errors import InternalCompilerError

# op name → the rule that a node breaks, or None: for a target's own ops
_checks: dict[str, Callable[[Node], str | None]] = {}


def register_check(name: str, check: Callable[[Node], str | None]) -> None:
    """Let a target say which rule of layouts a node of its op ``name`` breaks (None: none)."""
    _checks[name] = check


def _fail(node: Node, rule: str) -> None:
    types = [str(v.type) for v in node.operands], [str(v.type) for v in node.results]
    raise InternalCompilerError(f"{node.name} at {node.op.location}: {rule}; operands {types[0]}, results {types[1]}")


def _check_tensor(node: Node, value: Any, num_warps: int, warp_size: int) -> None:
    info = type_info(value.type)
    if info.shape is None:
        return
    if info.encoding is None:
        _fail(node, f"{value.type} has no encoding")
    layout = to_linear_layout(info.shape, info.encoding)
    if layout.in_size("lane") != warp_size or num_warps_of(layout) != num_warps:
        _fail(node, f"the layout of {value.type} has {layout.in_size('lane')} lanes and {num_warps_of(layout)} warps; "
                    f"the module has {warp_size} and {num_warps}")
    if not layout.is_surjective():
        _fail(node, f"the layout of {value.type} does not cover the tensor")


def check(node: Node) -> None:
    """Raise InternalCompilerError where ``node`` breaks a rule."""
    name = node.name
    operands = [type_info(v.type) for v in node.operands]
    results = [type_info(v.type) for v in node.results]
    tensors = [t for t in (*operands, *results) if t.shape is not None]
    if not tensors:
        return
    broken = _checks[name](node) if name in _checks else None
    if broken is not None:
        _fail(node, broken)
    if rules.is_elementwise(name) or name in rules.ALIKE:
        if any(t.encoding != tensors[0].encoding for t in tensors):
            _fail(node, "all tensors of this op have one encoding")
    elif name == "arith.constant":
        value = node.op.attributes["value"]
        if value.type != node.results[0].type:
            _fail(node, "the value's type is the result's")
    elif name == "tt.expand_dims":
        if operands[0].encoding != rules.slice_of(node.int_attr("axis"), results[0].encoding):
            _fail(node, "the operand is the slice of the result's encoding along the new dim")
    elif name == "tt.reduce":
        if any(t.encoding != operands[0].encoding for t in operands):
            _fail(node, "all operands have one encoding")
        if any(t.shape is not None and t.encoding != rules.slice_of(node.int_attr("axis"), operands[0].encoding) for t in results):
            _fail(node, "the result is the slice of the operand's encoding along the reduced dim")
    elif name in ("tt.trans", "tt.reshape", "tt.join", "tt.split", "tt.cat"):
        if name in ("tt.join", "tt.cat") and operands[0].encoding != operands[1].encoding:
            _fail(node, "both operands have one encoding")
        wanted = rules.forward(node, 0, operands[0].encoding)
        if name == "tt.reshape" and node.bool_attr("allow_reorder"):
            return
        if wanted is None or not all(rules.same_layout(t.shape or (), wanted, t.encoding) for t in results):
            _fail(node, "the result's layout is the operand's with no element moved")
    elif name in TT_DOTS:
        c, result = operands[2], results[0]
        if c.encoding != result.encoding:
            _fail(node, "c and the result have one encoding")
        for i in (0, 1):
            e = operands[i].encoding
            if not isinstance(e, ttg.DotOperandEncoding) or integer(e.params[0]) != i or downcast(e.params[1]) != c.encoding:
                _fail(node, f"operand {i} is dot operand {i} of the result's encoding")
        if not isinstance(c.encoding, (ttg.MmaEncoding, ttg.BlockedEncoding)):
            _fail(node, "the accumulator has an mma or a blocked encoding")
    elif name == "tt.gather":
        if operands[1].encoding != results[0].encoding:
            _fail(node, "indices and result have one encoding")
    elif name in ("ttg.local_alloc", "ttg.local_load", "ttg.local_store"):
        _check_memory(node)
    elif name == "tt.histogram" and len(operands) == 2 and operands[0].encoding != operands[1].encoding:
        _fail(node, "src and mask have one encoding")


def _check_memory(node: Node) -> None:
    """A tensor that goes to or comes from shared memory has the buffer's shape and element type."""
    memory = node.results[0].type if node.name == "ttg.local_alloc" else node.operands[0 if node.name == "ttg.local_load" else 1].type
    tensor = type_info((node.results if node.name == "ttg.local_load" else node.operands)[0].type)
    if not isinstance(memory, ttg.MemDescType) or tuple(memory.shape) != tensor.shape or memory.element_type != tensor.element:
        _fail(node, "the tensor has the shape and element type of the buffer")


def _check_flow(node: Node) -> None:
    """Types of what flows through structured control flow are equal."""

    def same(values: Any, others: Any, what: str) -> None:
        for a, b in zip(values, others, strict=True):
            if a.type != b.type:
                _fail(node, f"{what}: {a.type} against {b.type}")

    if node.name == "scf.for":
        (body,) = node.regions
        same(node.operands[3:], body.args[1:], "initial values and loop arguments")
        same(body.ops[-1].operands, body.args[1:], "yielded values and loop arguments")
        same(node.results, body.args[1:], "results and loop arguments")
    elif node.name == "scf.if":
        for region in node.regions:
            same(region.ops[-1].operands, node.results, "yielded values and results")
    elif node.name == "scf.while":
        before, after = node.regions
        same(node.operands, before.args, "initial values and arguments")
        same(before.ops[-1].operands[1:], after.args, "passed values and arguments")
        same(before.ops[-1].operands[1:], node.results, "passed values and results")
        same(after.ops[-1].operands, before.args, "yielded values and arguments")


def _check_calls(module_functions: list[Function]) -> None:
    """What a call passes and gives has the types of what the called function takes and returns."""
    by_name = {name_of(f): f for f in module_functions}
    for call in (node for function in module_functions for node in calls_of(function)):
        called = by_name.get(callee_of(call))
        if called is None:
            _fail(call, f"{callee_of(call)} is not a function of the module")
            continue
        for values, others in ((call.operands, called.body.args), (call.results, called.body.ops[-1].operands)):
            if [v.type for v in values] != [v.type for v in others]:
                _fail(call, f"{callee_of(call)} has {[str(v.type) for v in others]}")


def run(module: Any, ctx: Any = None) -> None:
    """Before and after: a ttg module whose encodings obey the rules. Raises InternalCompilerError where they do not.

    A module without layouts (no ``ttg.num-warps``) is passed over.
    """
    attributes = (module.operation if hasattr(module, "operation") else module).attributes
    if "ttg.num-warps" not in attributes or "ttg.threads-per-warp" not in attributes:
        return
    num_warps, warp_size = (int(ir.IntegerAttr(attributes[n]).value) for n in ("ttg.num-warps", "ttg.threads-per-warp"))
    all_functions = functions(module)
    _check_calls(all_functions)
    for function in all_functions:
        for node in function.nodes():
            for value in (*node.results, *(a for r in node.regions for a in r.args)):
                _check_tensor(node, value, num_warps, warp_size)
            check(node)
            _check_flow(node)
