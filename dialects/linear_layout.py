"""Linear maps over GF(2) between named index spaces: where each hardware index (register, lane, warp, …) finds its element.

A layout is given by its bases: the output for each single bit of each input dim; the output for any index is the xor of
the bases of its set bits. Blocked, sliced, swizzled and matrix-instruction layouts are all of this form, so every question
about them (vector width, broadcast, who owns what, how to convert) is linear algebra on small bit matrices.
After Zhou et al., "Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2" (2025).

Conventions. Sizes are powers of two. A basis list goes from the lowest bit up. Flattened inputs have the first in dim in the
lowest bits (register, then lane, …); flattened outputs are row-major: the *last* out dim is in the lowest bits, so a
flattened output is the element's row-major number in the tensor, and ``reshape_outs`` is what tt.reshape does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.dialects.gf2 import Gf2Solver, combine


def log2(size: int) -> int:
    """The exact base-2 logarithm. Raises ValueError where ``size`` is not a power of two."""
    if size <= 0 or size & (size - 1):
        raise ValueError(f"{size} is not a power of two")
    return size.bit_length() - 1


class LinearLayout:
    """An immutable linear map. ``bases``: in dim → list of output vectors (one entry an out dim); ``out_dims``: name → size.

    Raises ValueError for sizes that are not powers of two and for bases outside the out sizes.
    """

    __slots__ = ("in_dims", "out_dims", "_cols", "_out_bits", "_shifts", "_flat", "_hash", "_table", "_bases")

    in_dims: tuple[str, ...]
    out_dims: tuple[str, ...]
    _cols: tuple[tuple[int, ...], ...]
    _out_bits: tuple[int, ...]
    _shifts: tuple[int, ...]
    _flat: tuple[int, ...]
    _hash: int
    _table: Any
    _bases: Any

    def __init__(self, bases: Mapping[str, Sequence[Sequence[int]]], out_dims: Mapping[str, int]):
        out_bits = tuple(log2(s) for s in out_dims.values())
        shifts = _shifts(out_bits)
        sizes = tuple(out_dims.values())
        cols = []
        for name, vectors in bases.items():
            packed = []
            for vec in vectors:
                if len(vec) != len(sizes):
                    raise ValueError(f"basis {tuple(vec)} of {name!r} needs one entry for each of {tuple(out_dims)}")
                word = 0
                for v, s, sh in zip(vec, sizes, shifts):
                    if not 0 <= v < s:
                        raise ValueError(f"basis {tuple(vec)} of {name!r} lies outside the out sizes {sizes}")
                    word |= v << sh
                packed.append(word)
            cols.append(tuple(packed))
        self._set(tuple(bases), tuple(cols), tuple(out_dims), out_bits)

    def _set(self, in_dims: tuple[str, ...], cols: tuple[tuple[int, ...], ...], out_dims: tuple[str, ...],
             out_bits: tuple[int, ...]) -> None:
        put = object.__setattr__
        put(self, "in_dims", in_dims)
        put(self, "out_dims", out_dims)
        put(self, "_cols", cols)
        put(self, "_out_bits", out_bits)
        put(self, "_shifts", _shifts(out_bits))
        put(self, "_flat", tuple(c for dim in cols for c in dim))
        put(self, "_hash", hash((in_dims, cols, out_dims, out_bits)))
        put(self, "_table", None)
        put(self, "_bases", None)

    @classmethod
    def from_columns(cls, columns: Mapping[str, Sequence[int]], out_dims: Mapping[str, int]) -> LinearLayout:
        """As the constructor, with each basis as one flattened (row-major) output number."""
        out_bits = tuple(log2(s) for s in out_dims.values())
        limit = 1 << sum(out_bits)
        cols = tuple(tuple(c) for c in columns.values())
        if any(not 0 <= c < limit for dim in cols for c in dim):
            raise ValueError(f"a flattened basis lies outside the out sizes {dict(out_dims)}: {dict(columns)}")
        return cls._make(tuple(columns), cols, tuple(out_dims), out_bits)

    @classmethod
    def _make(cls, in_dims: tuple[str, ...], cols: tuple[tuple[int, ...], ...], out_dims: tuple[str, ...],
              out_bits: tuple[int, ...]) -> LinearLayout:
        self = cls.__new__(cls)
        self._set(in_dims, cols, out_dims, out_bits)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a LinearLayout is immutable")

    def __reduce__(self) -> Any:
        return (LinearLayout, (self.bases, {d: self.out_size(d) for d in self.out_dims}))

    # ------------------------------------------------------------------------------------------ simple layouts
    @staticmethod
    def empty() -> LinearLayout:
        """No dims: the neutral element of the product."""
        return LinearLayout._make((), (), (), ())

    @staticmethod
    def identity_1d(size: int, in_dim: str, out_dim: str) -> LinearLayout:
        return LinearLayout.strided_1d(size, 1, in_dim, out_dim)

    @staticmethod
    def strided_1d(size: int, stride: int, in_dim: str, out_dim: str) -> LinearLayout:
        """i → i * stride; the out size is size * stride."""
        n, s = log2(size), log2(stride)
        return LinearLayout._make((in_dim,), (tuple(1 << (i + s) for i in range(n)),), (out_dim,), (n + s,))

    @staticmethod
    def zeros_1d(size: int, in_dim: str, out_dim: str, out_size: int = 1) -> LinearLayout:
        """i → 0: a broadcast."""
        return LinearLayout._make((in_dim,), ((0,) * log2(size),), (out_dim,), (log2(out_size),))

    # ------------------------------------------------------------------------------------------------- queries
    @property
    def bases(self) -> dict[str, list[tuple[int, ...]]]:
        """in dim → list of output vectors. A fresh copy."""
        if self._bases is None:
            object.__setattr__(self, "_bases", {
                d: tuple(self._unpack(c) for c in cols) for d, cols in zip(self.in_dims, self._cols)})
        return {d: list(v) for d, v in self._bases.items()}

    def columns(self, in_dim: str) -> tuple[int, ...]:
        """The bases of ``in_dim`` as flattened (row-major) outputs; empty for an unknown dim."""
        return self._cols[self.in_dims.index(in_dim)] if in_dim in self.in_dims else ()

    @property
    def flat_columns(self) -> tuple[int, ...]:
        """All bases as flattened outputs, the first in dim first."""
        return self._flat

    def in_bits(self, dim: str) -> int:
        return len(self._cols[self._in_index(dim)])

    def in_size(self, dim: str) -> int:
        return 1 << len(self._cols[self._in_index(dim)])

    def out_size(self, dim: str) -> int:
        return 1 << self._out_bits[self._out_index(dim)]

    def out_bits(self, dim: str) -> int:
        return self._out_bits[self._out_index(dim)]

    @property
    def out_sizes(self) -> dict[str, int]:
        return {d: 1 << b for d, b in zip(self.out_dims, self._out_bits)}

    @property
    def total_in_bits(self) -> int:
        return len(self._flat)

    @property
    def total_out_bits(self) -> int:
        return sum(self._out_bits)

    def has_in(self, dim: str) -> bool:
        return dim in self.in_dims

    def _in_index(self, dim: str) -> int:
        try:
            return self.in_dims.index(dim)
        except ValueError:
            raise KeyError(f"no in dim {dim!r} in {self.in_dims}") from None

    def _out_index(self, dim: str) -> int:
        try:
            return self.out_dims.index(dim)
        except ValueError:
            raise KeyError(f"no out dim {dim!r} in {self.out_dims}") from None

    def _unpack(self, word: int) -> tuple[int, ...]:
        return tuple((word >> sh) & ((1 << b) - 1) for sh, b in zip(self._shifts, self._out_bits))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, LinearLayout) and self._hash == other._hash and self._cols == other._cols
            and self.in_dims == other.in_dims and self.out_dims == other.out_dims and self._out_bits == other._out_bits)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        lines = ", ".join(f"{d}={v}" for d, v in self.bases.items())
        return f"LinearLayout({lines} → {self.out_sizes})"

    # ------------------------------------------------------------------------------------------------ applying
    def apply_flat(self, index: int) -> int:
        """Flattened input (first in dim lowest) → flattened (row-major) output."""
        word, i = 0, 0
        flat = self._flat
        while index:
            if index & 1:
                word ^= flat[i]
            index >>= 1
            i += 1
        return word

    def apply(self, index: Mapping[str, int]) -> dict[str, int]:
        """One input to one output. ``index`` has an entry for each in dim (dims of size 1 may be left out)."""
        word = 0
        for d, cols in zip(self.in_dims, self._cols):
            i = index.get(d, 0) if not cols else index[d]
            if not 0 <= i < 1 << len(cols):
                raise ValueError(f"{d} = {i} is outside 0..{(1 << len(cols)) - 1}")
            for c in cols:
                if i & 1:
                    word ^= c
                i >>= 1
        return dict(zip(self.out_dims, self._unpack(word)))

    def table(self) -> Any:
        """int64 array: the flattened output of every flattened input. Cached; do not write to it."""
        if self._table is None:
            table = np.zeros(1, np.int64)
            for c in self._flat:
                table = np.concatenate([table, table ^ c])
            table.setflags(write=False)
            object.__setattr__(self, "_table", table)
        return self._table

    def unflatten_outs(self, flat: Any) -> dict[str, Any]:
        """Flattened outputs (an int or int array) → one int or array for each out dim."""
        return {d: (flat >> sh) & ((1 << b) - 1) for d, sh, b in zip(self.out_dims, self._shifts, self._out_bits)}

    def apply_array(self, index: Mapping[str, Any]) -> dict[str, Any]:
        """As ``apply`` over integer arrays that broadcast against each other; int64 arrays come back."""
        word: Any = np.int64(0)
        for d, cols in zip(self.in_dims, self._cols):
            if d not in index:
                if cols:
                    raise KeyError(f"no index for in dim {d!r}")
                continue
            i = np.asarray(index[d], np.int64)
            part = np.zeros_like(i)
            for bit, c in enumerate(cols):
                part ^= ((i >> bit) & 1) * c
            word = word ^ part
        return {d: np.asarray(v) for d, v in self.unflatten_outs(word).items()}

    # ---------------------------------------------------------------------------------------------- composition
    def compose(self, other: LinearLayout) -> LinearLayout:
        """``other`` after self. Its in dims are self's out dims (any order), each at least as large."""
        if set(other.in_dims) != set(self.out_dims):
            raise ValueError(f"cannot compose: outputs {self.out_dims}, then inputs {other.in_dims}")
        position: list[int] = [0] * self.total_out_bits
        for d, sh, b in zip(self.out_dims, self._shifts, self._out_bits):
            theirs = other._cols[other.in_dims.index(d)]
            if len(theirs) < b:
                raise ValueError(f"cannot compose: {d} has size {1 << b}, then only {1 << len(theirs)}")
            position[sh:sh + b] = theirs[:b]
        cols = tuple(tuple(combine(position, c) for c in dim) for dim in self._cols)
        return LinearLayout._make(self.in_dims, cols, other.out_dims, other._out_bits)

    def __mul__(self, other: LinearLayout) -> LinearLayout:
        """Product: other's tile repeats self. Bases of equal in dims are concatenated; out sizes of equal dims multiply."""
        out = {d: b for d, b in zip(self.out_dims, self._out_bits)}
        base = dict(out)
        for d, b in zip(other.out_dims, other._out_bits):
            out[d] = out.get(d, 0) + b
        out_dims, out_bits = tuple(out), tuple(out.values())
        shifts = dict(zip(out_dims, _shifts(out_bits)))
        cols: dict[str, tuple[int, ...]] = {}
        for layout, add in ((self, {}), (other, base)):
            moves = [(sh, (1 << b) - 1, shifts[d] + add.get(d, 0))
                     for d, sh, b in zip(layout.out_dims, layout._shifts, layout._out_bits)]
            for d, vectors in zip(layout.in_dims, layout._cols):
                cols[d] = cols.get(d, ()) + tuple(_move(c, moves) for c in vectors)
        return LinearLayout._make(tuple(cols), tuple(cols.values()), out_dims, out_bits)

    def invert_and_compose(self, other: LinearLayout) -> LinearLayout:
        """The map L with ``other(L(x)) == self(x)``: from self's inputs to those inputs of ``other`` that hold the same element.

        Both have the same out dims and sizes. Where ``other`` repeats elements, its free input bits (``free_variable_masks``)
        are 0. Raises ValueError where self reaches something that other does not.
        """
        if self.out_sizes != other.out_sizes:
            if {d: self.out_size(d) for d in self.out_dims} != {d: other.out_size(d) for d in other.out_dims}:
                raise ValueError(f"different outputs: {self.out_sizes} and {other.out_sizes}")
        other = other.transpose_outs(self.out_dims)
        solver = Gf2Solver(other._flat)
        out_bits = tuple(len(c) for c in other._cols)
        cols = []
        for dim in self._cols:
            packed = []
            for c in dim:
                x = solver.solve(c)
                if x is None:
                    raise ValueError(f"no input of the second layout reaches {self._unpack(c)}")
                packed.append(_reverse_fields(x, out_bits))
            cols.append(tuple(packed))
        return LinearLayout._make(self.in_dims, tuple(cols), other.in_dims, out_bits)

    def pseudo_invert(self) -> LinearLayout:
        """A right inverse: an input for every output, free input bits being 0. Raises ValueError unless surjective."""
        identity = LinearLayout._make(
            self.out_dims,
            tuple(tuple(1 << (sh + i) for i in range(b)) for sh, b in zip(self._shifts, self._out_bits)),
            self.out_dims, self._out_bits)
        return identity.invert_and_compose(self)

    def invert(self) -> LinearLayout:
        """The inverse. Raises ValueError unless bijective."""
        if not (self.is_injective() and self.is_surjective()):
            raise ValueError("only a bijective layout has an inverse; use pseudo_invert")
        return self.pseudo_invert()

    # ---------------------------------------------------------------------------------------------- sub-layouts
    def sublayout(self, in_dims: Iterable[str], out_dims: Iterable[str]) -> LinearLayout:
        """Restricted to ``in_dims`` (the others 0) and projected on ``out_dims``, in self's order."""
        ins, outs = set(in_dims), set(out_dims)
        keep = [(d, sh, b) for d, sh, b in zip(self.out_dims, self._shifts, self._out_bits) if d in outs]
        bits = tuple(b for _, _, b in keep)
        moves = [(sh, (1 << b) - 1, new) for (_, sh, b), new in zip(keep, _shifts(bits))]
        pairs = [(d, tuple(_move(c, moves) for c in cols)) for d, cols in zip(self.in_dims, self._cols) if d in ins]
        return LinearLayout._make(tuple(d for d, _ in pairs), tuple(c for _, c in pairs), tuple(d for d, _, _ in keep), bits)

    def quotient(self, dims: Iterable[str]) -> LinearLayout | None:
        """Self without ``dims``, where over them it is the identity and mixes with nothing else; otherwise None."""
        dims = tuple(dims)
        for d in dims:
            if d not in self.in_dims or d not in self.out_dims or self.in_size(d) != self.out_size(d):
                return None
            sh = self._shifts[self.out_dims.index(d)]
            mine = self._cols[self.in_dims.index(d)]
            if mine != tuple(1 << (sh + i) for i in range(len(mine))):
                return None
            mask = ((1 << len(mine)) - 1) << sh
            if any(c & mask for o, cols in zip(self.in_dims, self._cols) if o != d for c in cols):
                return None
        return self.sublayout([d for d in self.in_dims if d not in dims], [d for d in self.out_dims if d not in dims])

    def divide_left(self, tile: LinearLayout) -> LinearLayout | None:
        """The layout Q with ``tile * Q == self`` (up to dim order), or None where self does not begin with ``tile``."""
        if not set(tile.in_dims) <= set(self.in_dims) or not set(tile.out_dims) <= set(self.out_dims):
            return None
        bases, t_bases = self.bases, tile.bases
        t_size = {d: tile.out_size(d) if d in tile.out_dims else 1 for d in self.out_dims}
        rest: dict[str, list[tuple[int, ...]]] = {}
        for d, vectors in bases.items():
            head = [dict(zip(tile.out_dims, v)) for v in t_bases.get(d, [])]
            if [tuple(h.get(o, 0) for o in self.out_dims) for h in head] != vectors[:len(head)]:
                return None
            tail = vectors[len(head):]
            if any(v % t_size[o] for vec in tail for o, v in zip(self.out_dims, vec)):
                return None
            rest[d] = [tuple(v // t_size[o] for o, v in zip(self.out_dims, vec)) for vec in tail]
        sizes = {}
        for d in self.out_dims:
            if self.out_size(d) < t_size[d]:
                return None
            sizes[d] = self.out_size(d) // t_size[d]
        return LinearLayout(rest, sizes)

    # ------------------------------------------------------------------------------------------------ reshaping
    def reshape_outs(self, out_dims: Mapping[str, int]) -> LinearLayout:
        """Other out dims over the same row-major numbering (tt.reshape). Raises ValueError where the sizes' product differs."""
        bits = tuple(log2(s) for s in out_dims.values())
        if sum(bits) != self.total_out_bits:
            raise ValueError(f"cannot reshape {self.out_sizes} to {dict(out_dims)}")
        return LinearLayout._make(self.in_dims, self._cols, tuple(out_dims), bits)

    def transpose_outs(self, out_dims: Sequence[str]) -> LinearLayout:
        """The same out dims listed in another order."""
        if tuple(out_dims) == self.out_dims:
            return self
        if sorted(out_dims) != sorted(self.out_dims):
            raise ValueError(f"{tuple(out_dims)} is no reordering of {self.out_dims}")
        index = [self.out_dims.index(d) for d in out_dims]
        bits = tuple(self._out_bits[i] for i in index)
        moves = [(self._shifts[i], (1 << self._out_bits[i]) - 1, new) for i, new in zip(index, _shifts(bits))]
        cols = tuple(tuple(_move(c, moves) for c in dim) for dim in self._cols)
        return LinearLayout._make(self.in_dims, cols, tuple(out_dims), bits)

    def transpose_ins(self, in_dims: Sequence[str]) -> LinearLayout:
        """The same in dims listed in another order."""
        if sorted(in_dims) != sorted(self.in_dims):
            raise ValueError(f"{tuple(in_dims)} is no reordering of {self.in_dims}")
        return LinearLayout._make(tuple(in_dims), tuple(self._cols[self.in_dims.index(d)] for d in in_dims), self.out_dims,
                                  self._out_bits)

    def rename_outs(self, names: Mapping[str, str]) -> LinearLayout:
        return LinearLayout._make(self.in_dims, self._cols, tuple(names.get(d, d) for d in self.out_dims), self._out_bits)

    def rename_ins(self, names: Mapping[str, str]) -> LinearLayout:
        return LinearLayout._make(tuple(names.get(d, d) for d in self.in_dims), self._cols, self.out_dims, self._out_bits)

    def permute_tensor_dims(self, order: Sequence[int]) -> LinearLayout:
        """tt.trans: result dim i is self's dim ``order[i]``; the out dims are called dim0, dim1, … again."""
        names = [self.out_dims[i] for i in order]
        return self.transpose_outs(names).rename_outs({d: f"dim{i}" for i, d in enumerate(names)})

    def reshape_ins(self, in_dims: Mapping[str, int]) -> LinearLayout:
        """Other in dims over the same flattened numbering (first in dim in the lowest bits)."""
        bits = [log2(s) for s in in_dims.values()]
        if sum(bits) != len(self._flat):
            raise ValueError(f"cannot reshape {len(self._flat)} input bits to {dict(in_dims)}")
        cols, at = [], 0
        for b in bits:
            cols.append(self._flat[at:at + b])
            at += b
        return LinearLayout._make(tuple(in_dims), tuple(cols), self.out_dims, self._out_bits)

    def with_columns(self, in_dim: str, columns: Sequence[int]) -> LinearLayout:
        """Self with the flattened bases of one in dim replaced (the dim is added at the end where there is none)."""
        if in_dim not in self.in_dims:
            return LinearLayout._make((*self.in_dims, in_dim), (*self._cols, tuple(columns)), self.out_dims, self._out_bits)
        i = self.in_dims.index(in_dim)
        return LinearLayout._make(self.in_dims, (*self._cols[:i], tuple(columns), *self._cols[i + 1:]), self.out_dims,
                                  self._out_bits)

    def without_zero_bases(self, in_dim: str) -> LinearLayout:
        """Self with the zero bases of ``in_dim`` left out: no repeats along it."""
        return self.with_columns(in_dim, [c for c in self.columns(in_dim) if c])

    # ----------------------------------------------------------------------------------------------- properties
    @property
    def rank(self) -> int:
        return Gf2Solver(self._flat).rank

    def is_injective(self) -> bool:
        """No element is held twice."""
        return self.rank == len(self._flat)

    def is_surjective(self) -> bool:
        """Every element is held by somebody."""
        return self.rank == self.total_out_bits

    def free_variable_masks(self) -> dict[str, int]:
        """For each in dim the mask of bits whose basis depends on the bases before it (earlier dims first).

        Inputs whose masked bits are all 0 hold each reached element exactly once: they are the owners.
        """
        free, at, masks = Gf2Solver(self._flat).free, 0, {}
        for d, cols in zip(self.in_dims, self._cols):
            masks[d] = (free >> at) & ((1 << len(cols)) - 1)
            at += len(cols)
        return masks

    def is_trivial_over(self, dims: Iterable[str]) -> bool:
        """Whether over ``dims`` (in and out) self is the identity and mixes with nothing else."""
        return self.quotient(dims) is not None

    def num_consecutive_in_out(self) -> int:
        """How many consecutive indices of the first in dim always hold consecutive elements of the last out dim, aligned."""
        if not self._cols or not self._out_bits:
            return 1
        n = 0
        first = self._cols[0]
        while n < min(len(first), self._out_bits[-1]) and first[n] == 1 << n:
            n += 1
        others = 0
        for c in first[n:]:
            others |= c
        for dim in self._cols[1:]:
            for c in dim:
                others |= c
        low = (others & -others).bit_length() - 1 if others else n
        return 1 << min(n, low)


def _shifts(bits: Sequence[int]) -> tuple[int, ...]:
    """Where each out field starts: the last dim is lowest."""
    shifts, at = [], 0
    for b in reversed(bits):
        shifts.append(at)
        at += b
    return tuple(reversed(shifts))


def _move(word: int, moves: Sequence[tuple[int, int, int]]) -> int:
    out = 0
    for src, mask, dst in moves:
        out |= ((word >> src) & mask) << dst
    return out


def _reverse_fields(word: int, bits: Sequence[int]) -> int:
    """Fields stored first-lowest (as inputs are) to first-highest (as outputs are)."""
    out, at = 0, 0
    total = sum(bits)
    for b in bits:
        total -= b
        out |= ((word >> at) & ((1 << b) - 1)) << total
        at += b
    return out
