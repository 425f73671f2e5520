"""What a target says of its shared memory, for choosing layouts of buffers (``capabilities.extra["shared_model"]``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tilewright.dialects.gf2 import combine, independent


def _none() -> Mapping[int, tuple[int, ...]]:
    return MappingProxyType({})


@dataclass(frozen=True, eq=False)
class SharedModel:
    """banks: of four bytes. One cycle serves as many lanes as make one row of the banks, each bank one word.

    read_lanes: bytes of a lane's read → masks of lanes whose span is the first group that is served together (its cosets are the
    others); where it has no entry, and for writes, lanes in order. transposing: bits of an element → bytes a lane of a load that
    transposes: of each 16 lanes, words of ``elements`` elements make rows of 16 elements, and lane i receives column i.
    """

    banks: int = 32
    read_lanes: Mapping[int, tuple[int, ...]] = field(default_factory=_none)
    transposing: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))

    def lanes(self, columns: Sequence[int], bytes_: int, write: bool) -> list[int]:
        """A layout's lane columns in another basis, so that the first ones span each group that is served together."""
        masks = () if write else self.read_lanes.get(bytes_, ())
        masks = tuple(m for m in masks if m < 1 << len(columns))
        basis = independent((*masks, *(1 << i for i in range(len(columns)))))
        return [combine(columns, m) for m in basis]
