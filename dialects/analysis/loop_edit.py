"""Editing structured loops in the mirror of ``structure.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Function, Node, attribute_names


def add_carried(function: Function, loop: Node, inits: Sequence[Any], yielded: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Let an ``scf.for`` carry more values: ``inits`` at first, ``yielded`` (values of the body, of the same types) after each
    round. Returns the new body arguments and the new results.

    The op is made anew (operands cannot be added), the body moves over; ``loop`` stays the node of it, uses of its old results
    are replaced.
    """
    body = loop.regions[0]
    old = loop.op
    types = [v.type for v in inits]
    attributes = {name: old.attributes[name] for name in attribute_names(old)}
    new = ir.Operation.create("scf.for", results=[*(r.type for r in loop.results), *types], operands=[*loop.operands, *inits],
                              attributes=attributes, regions=1, loc=old.location, ip=ir.InsertionPoint(old))
    block = old.regions[0].blocks[0]
    block.append_to(new.regions[0])
    args = [block.add_argument(t, old.location) for t in types]
    end = body.ops[-1]
    terminator = ir.Operation.create("scf.yield", results=[], operands=[*end.operands, *yielded], loc=end.op.location,
                                     ip=ir.InsertionPoint(end.op))
    end.op.erase()
    end.op = terminator
    end.operands = list(terminator.operands)
    old_results, results = loop.results, list(new.results)
    loop.op, loop.operands, loop.results = new, list(new.operands), results
    first = len(body.args)
    body.args += args
    for i, a in enumerate(args):
        function.arg_of[a] = (body, first + i)
    for i, r in enumerate(results):
        function.defs[r] = (loop, i)
    function._uses = None
    for before, after in zip(old_results, results):
        function.replace_uses(before, after)
        del function.defs[before]
    function._uses = None
    old.erase()
    return args, results[len(old_results):]


def clone_under(node: Node, mapping: dict[Any, Any], ip: Any) -> Any:
    """A copy of an op at ``ip``, with all that its regions hold, whose operands are mapped; its results join ``mapping``."""
    new = node.op.clone(ip=ip)

    def remap(op: Any) -> Any:
        for i, v in enumerate(op.operands):
            if (m := mapping.get(v)) is not None:
                op.operands[i] = m
        return ir.WalkResult.ADVANCE

    for i, v in enumerate(node.operands):
        if (m := mapping.get(v)) is not None:
            new.operands[i] = m
    if node.regions:
        for region in new.regions:
            for block in region.blocks:
                for op in list(block.operations):
                    op.operation.walk(remap)
    mapping.update(zip(node.results, new.results))
    return new
