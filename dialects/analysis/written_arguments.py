"""Which pointer arguments a kernel of tt writes through: for launches with arrays that may not be written.

Pointers are followed from one op to the next by classes of values that may hold the same address: an op's pointer results belong with its pointer operands,
and what loops, branches and calls hand on with what receives it. A pointer that was made of an integer or loaded belongs to no argument: of those nothing is
known, so that an argument which is not listed is written at most through one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.dialects._mlir import ir

_WRITES = {"tt.store": 0, "tt.atomic_rmw": 0, "tt.atomic_cas": 0, "tt.descriptor_store": 0, "tt.descriptor_scatter": 0,
           "tt.descriptor_reduce": 0}
_NEW = frozenset(("tt.load", "tt.int_to_ptr", "tt.descriptor_load", "tt.descriptor_gather"))  # whose results are no operand's address


class _Classes:
    """Union-find over values."""

    def __init__(self) -> None:
        self.parent: dict[Any, Any] = {}

    def find(self, value: Any) -> Any:
        while (above := self.parent.get(value, value)) != value:
            value = above
        return value

    def join(self, a: Any, b: Any) -> None:
        self.parent[self.find(a)] = self.find(b)


def _is_address(value: Any) -> bool:
    text = str(value.type)
    return "!tt.ptr" in text or "!tt.tensordesc" in text or "!tt.desc" in text


def _operations(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region:
            for inner in block.operations:
                yield inner.operation
                yield from _operations(inner.operation)


def _join_all(classes: _Classes, left: Any, right: Any) -> None:
    for a, b in zip(left, right):
        if _is_address(a) and _is_address(b):
            classes.join(a, b)


def _join(classes: _Classes, op: Any, functions: dict[str, Any]) -> None:
    operands, results = list(op.operands), list(op.results)
    if op.name in ("scf.for", "scf.while"):
        blocks = [region.blocks[0] for region in op.regions]
        taken = list(blocks[0].arguments)[1:] if op.name == "scf.for" else list(blocks[0].arguments)
        inits = operands[3:] if op.name == "scf.for" else operands
        last = list(list(blocks[-1].operations)[-1].operation.operands)
        _join_all(classes, inits, taken)
        _join_all(classes, last, taken)
        if op.name == "scf.while":
            handed = list(list(blocks[0].operations)[-1].operation.operands)[1:]
            _join_all(classes, handed, list(blocks[1].arguments))
            _join_all(classes, handed, results)
        else:
            _join_all(classes, last, results)
    elif op.name == "scf.if":
        for region in op.regions:
            if len(region.blocks):
                _join_all(classes, list(list(region.blocks[0].operations)[-1].operation.operands), results)
    elif op.name in ("func.call", "tt.call"):
        callee = functions.get(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
        if callee is not None:
            entry = callee.regions[0].blocks[0]
            _join_all(classes, operands, list(entry.arguments))
            _join_all(classes, list(list(entry.operations)[-1].operation.operands), results)
    elif op.name not in _NEW:
        addresses = [v for v in (*operands, *results) if _is_address(v)] if any(map(_is_address, results)) else []
        for value in addresses[1:]:
            classes.join(addresses[0], value)


def written_arguments(module: Any, kernel: str) -> set[int]:
    """Positions of the kernel's arguments that it stores through, or may: both pointers that a branch chooses between count."""
    functions = {ir.StringAttr(op.operation.attributes["sym_name"]).value: op.operation for op in module.body.operations
                 if op.operation.name == "func.func"}
    classes = _Classes()
    stored: list[Any] = []
    for op in _operations(module.operation):
        _join(classes, op, functions)
        if op.name in _WRITES:
            stored.append(op.operands[_WRITES[op.name]])
    roots = {classes.find(value) for value in stored}
    return {i for i, argument in enumerate(functions[kernel].regions[0].blocks[0].arguments) if _is_address(argument) and classes.find(argument) in roots}
