"""Which bulk stores of a program must wait until those before them have been written.

Bulk stores of one thread come to memory in any order (PTX ISA manual, "cp.async.bulk.tensor" and "Memory Consistency Model", async
proxy); that shared memory has been read (``cp.async.bulk.wait_group.read``) says nothing of it. A program whose stores overlap means the
last one. So a store is marked ORDERED where an earlier one of the same program to the same argument may overlap it: it stands in a
loop of the program, or after another store whose tile is not seen to lie apart. The first store of a block of ops speaks for the
block: it waits for all before, so that later ones look only at what stands between. Reductions of one kind may come in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects import tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.affine import Affine, NotAffine
from tilewright.dialects.analysis.structure import Function, Node
from tilewright.targets.nvidia.passes.host_arguments import descriptor_number

ORDERED = "ttng.ordered"


def mark(function: Function, stores: Sequence[Node], descriptors: Sequence[dict[str, Any]]) -> None:
    """Mark those of ``stores`` (all bulk stores of the function, in its order) that wait; ``descriptors``: their recipes."""
    affine = Affine(function)
    for i, store in enumerate(stores):
        argument = _argument(function, store, descriptors)
        kind = store.str_attr("kind") if store.name == "tt.descriptor_reduce" else None
        others = [s for s in stores if _argument(function, s, descriptors) == argument]
        if kind is not None and all(s.str_attr("kind") == kind for s in others):
            continue  # in whatever order they come, the sum is the same
        before = [s for s in others if s in stores[:i]]
        siblings = [s for s in before if s.region is store.region]
        if siblings:
            since = before[before.index(siblings[0]):]
            ordered = not all(s.region is store.region and _apart(affine, s, store) for s in since)
        else:
            ordered = bool(before) or _in_loop(store)
        if ordered:
            store.op.attributes[ORDERED] = ir.UnitAttr.get()


def _argument(function: Function, store: Node, descriptors: Sequence[dict[str, Any]]) -> Any:
    return descriptors[descriptor_number(function, store.operands[0])]["argument"]


def _in_loop(store: Node) -> bool:
    """Whether a program may come to the store twice. The loop over programs that make_persistent made does not count."""
    parent = store.parent
    while parent is not None:
        if parent.name == "scf.while" or (parent.name == "scf.for" and "ttng.persistent" not in parent.op.attributes):
            return True
        parent = parent.parent
    return False


def _apart(affine: Affine, a: Node, b: Node) -> bool:
    """Whether two tiles of one descriptor are seen not to overlap."""
    if a.operands[0] != b.operands[0]:
        return False
    for x, y, extent in zip(a.operands[2:], b.operands[2:], tt.TensorDescType(a.operands[0].type).shape):
        try:
            distance = (affine.value(x).poly - affine.value(y).poly).constant
        except NotAffine:
            continue
        if distance is not None and abs(distance) >= extent:
            return True
    return False
