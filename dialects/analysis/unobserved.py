"""Which elements of a tile never reach memory, though they are computed: rows beyond a matrix' end, which the last store masks off.

A kernel reads rows ``(start + i) % M`` so that every row it reads exists; rows with start + i ≥ M are somebody else's, and their products
are not stored. Whatever stands in such rows is as good. This is a walk forwards over the uses of a value: along elementwise ops,
casts, transposes, matrix products and loops element (…, i, …) makes only elements (…, i, …) of one dim; at a store (or an
atomic) the mask must let through only start + i < M.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.analysis.affine import Affine, NotAffine
from tilewright.dialects.analysis.polynomial import Poly
from tilewright.dialects.analysis.structure import Function, Node, type_info

_ELEMENTWISE = ("arith.", "math.")
_MORE = frozenset(("tt.fp_to_fp", "tt.bitcast", "tt.precise_divf", "tt.precise_sqrt", "tt.clampf"))


def never_observed(function: Function, affine: Affine, value: Any, dim: int, start: Poly, bound: Poly) -> bool:
    """Whether elements of the tile ``value`` whose index i along ``dim`` has start + i ≥ bound reach no memory. ``start`` and ``bound``
    are polynomials at the place where ``value`` is made."""
    seen: set[tuple[Any, int]] = set()
    todo = [(value, dim)]
    while todo:
        item = todo.pop()
        if item in seen:
            continue
        seen.add(item)
        v, d = item
        for user, index in function.uses(v):
            if user.name in ("tt.store", "tt.atomic_rmw"):
                if index != 1 or not _masked(affine, user, d, start, bound):
                    return False
                continue
            reached = _reached(function, user, index, v, d, start)
            if reached is None:
                return False
            todo += reached
    return True


def _masked(affine: Affine, store: Node, dim: int, start: Poly, bound: Poly) -> bool:
    """Whether the store's mask says start + i < bound along ``dim``."""
    shape = type_info(store.operands[1].type).shape
    if shape is None or not store.ints_attr("operandSegmentSizes")[2]:
        return False
    try:
        conditions = affine.conditions(store.operands[2])
    except NotAffine:
        return False
    return any(c.poly == affine.dim(dim, shape[dim]) + start - bound for c in conditions)


def _reached(function: Function, user: Node, index: int, value: Any, dim: int, start: Poly) -> list[tuple[Any, int]] | None:
    """The values in which the elements end up, with the dim that they are told apart by; None where they may spread."""
    name = user.name
    if (name.startswith(_ELEMENTWISE) or name in _MORE) and not user.regions:
        return [(r, dim) for r in user.results]
    if name == "tt.trans":
        return [(user.results[0], user.ints_attr("order").index(dim))]
    if name == "tt.broadcast":
        return [(user.results[0], dim)]  # the dim has more than one element, so it stays
    if name == "tt.expand_dims":
        return [(user.results[0], dim + (user.int_attr("axis") <= dim))]
    if name == "tt.dot":
        rank = len(type_info(value.type).shape or ())
        summed = {0: rank - 1, 1: rank - 2}.get(index)
        return None if dim == summed else [(user.results[0], dim)]
    if name == "tt.reduce":
        axis = user.int_attr("axis")
        return None if axis == dim else [(r, dim - (axis < dim)) for r in user.results]
    if name == "scf.for" and index >= 3:
        body = user.regions[0]
        if body in start.regions:
            return None  # another round has other elements
        return [(body.args[index - 2], dim), (user.results[index - 3], dim)]
    if name == "scf.yield":
        parent = user.parent
        if parent is not None and parent.name == "scf.if":
            return [(parent.results[index], dim)]
        if parent is not None and parent.name == "scf.for" and parent.regions[0] not in start.regions:
            return [(parent.regions[0].args[index + 1], dim), (parent.results[index], dim)]
    return None
