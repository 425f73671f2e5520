"""Which ops are matrix products: ``tt.dot``, ``tt.dot_scaled``, and those that a target makes of them and registers.

Every product has A and B as operands 0 and 1 (tensors, or memdescs where it reads shared memory itself), a tensor C as operand 2,
and one result ``A @ B + C`` of C's type; scales, where it has any, come after these.
"""

from __future__ import annotations

# those that read their operands from registers, in the layouts of dot operands; tt.dot_scaled where the target has an instruction for it
TT_DOTS = frozenset(("tt.dot", "tt.dot_scaled"))
_asynchronous: dict[str, bool] = dict.fromkeys(TT_DOTS, False)


def register_dot(name: str, asynchronous: bool = False) -> None:
    """Let a target say that its op ``name`` is a matrix product; ``asynchronous``: it may still read its operands in shared memory
    when the ops after it run, until an op of the target waits for it."""
    if _asynchronous.setdefault(name, asynchronous) != asynchronous:
        raise ValueError(f"{name} was registered with asynchronous = {_asynchronous[name]}")


def is_dot(name: str) -> bool:
    """Whether the op of that name is a matrix product."""
    return name in _asynchronous


def is_asynchronous_dot(name: str) -> bool:
    """Whether it is one that may go on after it was issued."""
    return _asynchronous.get(name, False)
