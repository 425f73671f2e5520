"""Match an access through a tile of pointers with a box of a tensor: base + Σ coordinate · stride, bounds from the mask.

Used by promote_to_descriptors, which decides; this file only takes polynomials apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Any

from tilewright.dialects.analysis.affine import Affine, Fact, Modulo, NotAffine, Value, pointer_base
from tilewright.dialects.analysis.polynomial import Atom, Monomial, Poly

MAX_RANK = 5  # CUDA driver API, cuTensorMapEncodeTiled: a tensor has 1 to 5 dims
ONE = Poly.const(1)
ZERO = Poly({})


@dataclass
class Dim:
    """One dim of the tensor. ``stride`` in elements and ``bound`` (None: unbounded) are uniform; ``start`` is the box's first
    coordinate. ``tile``: the tile's dim; None for one of extent 1 that a scalar term made. ``checked``: the mask sees to
    coordinates below 0, so that they may occur."""

    stride: Poly
    extent: int
    tile: int | None
    start: Poly = ZERO
    bound: Poly | None = None
    checked: bool = False

    def index(self, affine: Affine) -> Poly:
        """The coordinate of every element of the tile."""
        return self.start if self.tile is None else self.start + affine.dim(self.tile, self.extent)


@dataclass
class Tile:
    """``base``: number of the pointer argument, advanced by ``offset`` (uniform, elements). ``dims`` outermost first, the last with
    stride 1. ``order``: dim i of what the box gives is the tile's dim order[i]. ``address_facts`` must hold for elements that the
    mask lets through, ``mask_facts`` for all."""

    base: int
    offset: Poly
    dims: list[Dim]
    order: list[int]
    address_facts: frozenset[Fact]
    mask_facts: frozenset[Fact]

    @property
    def box(self) -> list[int]:
        return [d.extent for d in self.dims]


Unobserved = Callable[[int, Modulo], bool]  # (tile dim, modulo): do elements from its bound on reach no memory?


def match(affine: Affine, pointer: Any, mask: Any | None, shape: tuple[int, ...], itemsize: int, unobserved: Unobserved | None = None) -> Tile:
    """The tile that a pointer (and mask) of this shape describes. Raises NotAffine with the reason where it is none.

    Where ``unobserved`` says so, rows ``(start + i) % m`` (or ``min(start + i, m - 1)``, …) are taken as rows start + i below the bound m.
    """
    address = affine.value(pointer)
    conditions = [] if mask is None else affine.conditions(mask)
    if unobserved is not None:
        straight, bounds = _without_remainders(affine, address, conditions, unobserved)
        if bounds:
            try:
                return _match(affine, straight, conditions + bounds, shape, itemsize)
            except NotAffine:
                pass  # as it is written, then
    return _match(affine, address, conditions, shape, itemsize)


def _without_remainders(affine: Affine, address: Value, conditions: list[Value], unobserved: Unobserved) -> tuple[Value, list[Value]]:
    """(address with such coordinates for the remainders, conditions that bound them)."""
    poly, facts, bounds = address.poly, address.facts, []
    remainders = {a: m for a in poly.atoms() if (m := affine.modulo_of(a)) is not None}
    replaced: dict[Atom, Poly] = {}
    for atom, m in remainders.items():
        if any(atom in c.poly.atoms() for c in conditions):
            continue
        stride = poly.split(lambda mono: atom in mono)[0].divided_by(Poly.of(atom))
        indices = [a for a in poly.atoms() if a.kind == "dim" and a.payload[1] == m.extent
                   and poly.split(lambda mono: a in mono)[0].divided_by(Poly.of(a)) == stride]
        if len(indices) == 1 and unobserved(indices[0].payload[0], m):
            replaced[atom] = m.start
            bounds.append(Value(Poly.of(indices[0]) + m.start - m.bound))
    kept = frozenset().union(*(m.facts for a, m in remainders.items() if a not in replaced))
    for atom in replaced:
        facts = facts - remainders[atom].facts
    facts = frozenset(f._replace(poly=f.poly.substitute(replaced.get)) for f in facts | kept)
    return Value(poly.substitute(replaced.get), facts), bounds


def _plain(affine: Affine, x: Value) -> Value:
    """With start for "within" atoms, which is what they are where the facts hold."""
    def replace(a: Atom) -> Poly | None:
        m = affine.modulo_of(a) if a.kind == "within" else None
        return None if m is None else m.start

    return Value(x.poly.substitute(replace), frozenset(f._replace(poly=f.poly.substitute(replace)) for f in x.facts))


def _match(affine: Affine, address: Value, conditions: list[Value], shape: tuple[int, ...], itemsize: int) -> Tile:
    address, conditions = _plain(affine, address), [_plain(affine, c) for c in conditions]
    base, rest = pointer_base(address.poly)
    _require_known(rest, "its address depends on")
    dims, scalar = _tile_dims(rest, shape)
    masks = _bounds(conditions)
    for d in dims:
        if d.tile in masks:
            scalar = masks[d.tile].apply(d, scalar)
    scalar = _into_coordinates(dims, scalar, set(masks))
    further, offset = _further_dims(scalar)
    kept, order = _arrange(dims, further, shape, itemsize)
    if len(kept) > MAX_RANK:
        raise NotAffine(f"the tensor would have {len(kept)} dims; a descriptor has at most {MAX_RANK}")
    return Tile(base, offset, kept, order, address.facts, frozenset(f for c in conditions for f in c.facts))


def _require_known(poly: Poly, what: str) -> None:
    for a in poly.atoms():
        if not a.known:
            raise NotAffine(f"{what} a value that the host cannot know (loaded from memory, or chosen by an if)")


def _is_tile(m: Monomial) -> bool:
    return any(a.kind == "dim" for a in m)


def _is_uniform(m: Monomial) -> bool:
    return all(a.uniform for a in m)


def _tile_dims(rest: Poly, shape: tuple[int, ...]) -> tuple[list[Dim], Poly]:
    """The tile's dims of more than one element with their strides, and what of the offset depends on no tile index."""
    tile, scalar = rest.split(_is_tile)
    strides: dict[int, Poly] = {}
    for m, c in tile.terms.items():
        indices = [a for a in m if a.kind == "dim"]
        if len(indices) != 1:
            raise NotAffine("its offsets are products of coordinates")
        d = indices[0].payload[0]
        strides[d] = strides.get(d, ZERO) + Poly({tuple(a for a in m if a.kind != "dim"): c})
    dims = []
    for d, extent in enumerate(shape):
        if extent == 1:
            continue
        stride = strides.get(d, ZERO)
        if not stride:
            raise NotAffine(f"every element along dim {d} has one address")
        if not stride.uniform:
            raise NotAffine(f"the stride of dim {d} is not the same in every program")
        dims.append(Dim(stride, extent, d))
    units = sum(d.stride == ONE for d in dims)
    if units != 1:
        raise NotAffine("two dims have stride 1" if units else "no dim has stride 1")
    return dims, scalar


@dataclass
class _Bounds:
    """What the mask says of dim i: with x = i + varying, x < upper and x ≥ lower (None: nothing is said)."""

    varying: Poly
    upper: Poly | None = None
    lower: Poly | None = None

    def apply(self, d: Dim, scalar: Poly) -> Poly:
        """Set the dim's coordinate and bound; what is left of the offset. A coordinate counts from the lower bound, if there is one."""
        low = self.lower or ZERO
        d.start, d.checked = self.varying - low, self.lower is not None
        d.bound = None if self.upper is None else self.upper - low
        return scalar - d.stride * d.start


def _bounds(conditions: list[Value]) -> dict[int, _Bounds]:
    """The conditions (poly < 0) of a mask by tile dim."""
    found: dict[int, _Bounds] = {}
    for condition in conditions:
        tile, rest = condition.poly.split(_is_tile)
        if not tile:
            raise NotAffine("the mask has a condition that is one for the whole tile")
        monomial, c = tile.single
        if len(monomial) != 1 or c not in (1, -1):
            raise NotAffine("the mask compares something else than one coordinate with a bound")
        _require_known(rest, "the mask depends on")
        d = monomial[0].payload[0]
        # i + rest < 0; or -i + rest < 0, which is i - rest - 1 ≥ 0
        uniform, varying = (rest if c == 1 else -rest - 1).split(_is_uniform)
        bounds = found.setdefault(d, _Bounds(varying))
        if bounds.varying != varying:
            raise NotAffine(f"two conditions of the mask speak of different coordinates along dim {d}")
        side = "upper" if c == 1 else "lower"
        if getattr(bounds, side) not in (None, -uniform):
            raise NotAffine(f"the mask has two {side} bounds along dim {d}")
        setattr(bounds, side, -uniform)
    return found


def _into_coordinates(dims: list[Dim], scalar: Poly, masked: set[int]) -> Poly:
    """Give the scalar terms that are multiples of a dim's stride to its coordinate; the others."""
    left: dict[Monomial, int] = {}
    for m, c in scalar.terms.items():
        term, best, best_rank = Poly({m: c}), None, (-1, 0)
        for d in dims:
            quotient = term.divided_by(d.stride) if len(d.stride.terms) == 1 else None
            if quotient is None or not _may_hold(d, m, quotient, masked):
                continue
            by, factor = d.stride.single
            if (len(by), abs(factor)) > best_rank:
                best, best_rank = (d, quotient), (len(by), abs(factor))
        if best is None:
            left[m] = c
            continue
        d, quotient = best
        d.start = d.start + quotient
        if d.bound is not None:
            d.bound = d.bound + quotient
    return Poly(left)


def _may_hold(d: Dim, m: Monomial, quotient: Poly, masked: set[int]) -> bool:
    if not _is_uniform(m):
        # the mask has said which part of a coordinate changes between programs. Everything is a multiple of a stride of 1: a
        # product with an argument is rather a row, or a matrix, of its own stride
        return d.tile not in masked and (d.stride != ONE or not any(a.uniform for a in m))
    if d.checked:
        return False  # its coordinate counts from the mask's lower bound
    if quotient.constant is not None:
        return quotient.constant > 0
    # a coordinate that an argument moves forwards: with one that it moves back, it would begin below 0
    return d.stride != ONE or (len(m) == 1 and m[0].kind == "arg" and m[0].bits <= 32 and quotient.single[1] > 0)


def _further_dims(scalar: Poly) -> tuple[list[Dim], Poly]:
    """Dims of extent 1 for the terms that change between programs, one a stride; and the uniform rest."""
    offset, varying = scalar.split(_is_uniform)
    groups: dict[Monomial, dict[Monomial, int]] = {}
    for m, c in varying.terms.items():
        key = tuple(a for a in m if a.uniform)
        groups.setdefault(key, {})[tuple(a for a in m if not a.uniform)] = c
    dims = []
    for key, terms in groups.items():
        factor = gcd(*terms.values())
        dims.append(Dim(Poly({key: factor}), 1, None, Poly({m: c // factor for m, c in terms.items()})))
    return dims, offset


def _arrange(dims: list[Dim], further: list[Dim], shape: tuple[int, ...], itemsize: int) -> tuple[list[Dim], list[int]]:
    """(dims outermost first, order): the further ones, the tile's, the one of stride 1 last."""
    by_tile = {d.tile: d for d in dims}
    leading = next((i for i, n in enumerate(shape) if n > 1), len(shape))

    def single(tile: int | None) -> Dim:  # a dim of one element: its stride matters to nobody
        return Dim(Poly.const(16 // itemsize), 1, tile, bound=ONE)

    inner = next(d for d in dims if d.stride == ONE)
    outer = [by_tile.get(i) or single(i) for i in range(leading, len(shape)) if by_tile.get(i) is not inner]
    ones = [single(None) for _ in range(leading - len(further))]
    assert inner.tile is not None
    return [*further, *ones, *outer, inner], [*range(leading), *(d.tile for d in outer if d.tile is not None), inner.tile]


