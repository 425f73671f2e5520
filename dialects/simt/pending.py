"""Registers whose values an asynchronous instruction delivers later: they pass through moves and merges, and nothing else may read them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.dialects.simt.memory import SimtError

Array = Any


class Pending(np.lib.mixins.NDArrayOperatorsMixin):
    """One register of all threads. ``values``: of the threads that have theirs; ``parts``: (threads, ticket) of the others.

    A ticket is the target's: it says which instruction's which result. Reading the value of an active thread that is still
    to get it raises SimtError.
    """

    def __init__(self, machine: Any, values: Array, parts: list[tuple[Array, Any]]):
        self.machine, self.values, self.parts = machine, values, parts

    def read(self) -> Array:
        for threads, ticket in self.parts:
            if (threads & self.machine.mask).any():
                raise SimtError(f"a register is read while {ticket} is to write it: a wait is missing between")
        return self.values

    def resolve(self, value_of: Any) -> Any:
        """``value_of(ticket)`` → values of all threads, or None while the instruction runs. A plain array once nothing is left."""
        values, parts = self.values, []
        for threads, ticket in self.parts:
            value = value_of(ticket)
            if value is None:
                parts.append((threads, ticket))
            else:
                values = np.where(threads, value, values)
        return Pending(self.machine, values, parts) if parts else values

    # -- numpy's view of it
    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        out = self.read()
        return out if dtype is None else out.astype(dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*[x.read() if isinstance(x, Pending) else x for x in inputs], **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.read(), name)

    def __getitem__(self, key: Any) -> Any:
        return self.read()[key]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    @property
    def shape(self) -> Any:
        return self.values.shape


def merge_pending(mask: Array, new: Any, old: Any) -> Any:
    """``new`` where ``mask``, else ``old``; at least one is Pending."""
    parts, values = [], []
    for value, threads in ((new, mask), (old, ~mask)):
        if isinstance(value, Pending):
            machine = value.machine
            parts += [(kept, ticket) for p, ticket in value.parts if (kept := p & threads).any()]
            values.append(value.values)
        else:
            values.append(value)
    if values[0].dtype != values[1].dtype:
        raise SimtError(f"a value changed its type between visits: {values[1].dtype} → {values[0].dtype}")
    merged = np.where(mask, *values)
    return Pending(machine, merged, parts) if parts else merged
