"""Which memory a kernel's ops read and write, by pointer argument: what passes that reorder accesses must know."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.dialects.analysis.affine import pointer_roots
from tilewright.dialects.analysis.structure import Function, Node
from tilewright.targets.nvidia.passes.host_arguments import is_descriptor
from tilewright.targets.nvidia.passes.host_recipe import Host


@dataclass
class Memory:
    """Which memory the kernel's ops touch, by pointer argument. ``unknown``: a write through a pointer that may be any."""

    reads: dict[int, list[Node]] = field(default_factory=dict)
    writes: dict[int, list[Node]] = field(default_factory=dict)
    unknown_read: bool = False
    unknown_write: str = ""


_READS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
_WRITES = ("tt.store", "tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce")
_BOTH = ("tt.atomic_rmw", "tt.atomic_cas")


def memory_of(function: Function, host: Host) -> Memory:
    """By what the ops' pointers and descriptors are derived from; a descriptor that is an argument counts as the pointer that it is of."""
    memory = Memory()
    maps = [i for i, a in enumerate(function.body.args) if is_descriptor(a)]
    pointer_of = {i: host.data["descriptors"][n]["argument"] for n, i in enumerate(maps)}
    for node in function.nodes():
        reads, writes = node.name in _READS + _BOTH, node.name in _WRITES + _BOTH
        if node.name in ("tt.elementwise_inline_asm", "tt.extern_elementwise") and not node.bool_attr("pure"):
            memory.unknown_write = f"the kernel calls {node.name} with effects, which may store anywhere"
        if not reads and not writes:
            continue
        roots = pointer_roots(function, node.operands[0])
        if roots is None:
            memory.unknown_read |= reads
            if writes:
                memory.unknown_write = "the kernel stores through a pointer that is derived from no argument"
            continue
        for root in {pointer_of.get(r, r) for r in roots}:
            if reads:
                memory.reads.setdefault(root, []).append(node)
            if writes:
                memory.writes.setdefault(root, []).append(node)
    return memory
