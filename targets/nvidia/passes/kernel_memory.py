"""Which memory a kernel's ops read and write, by pointer argument: what passes that reorder accesses must know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilewright.dialects.analysis.affine import pointer_roots
from tilewright.dialects.analysis.structure import Function, Node
from tilewright.dialects.analysis.waiting import reads_of_end
from tilewright.targets.nvidia.passes.host_arguments import is_descriptor
from tilewright.targets.nvidia.passes.host_recipe import Host


@dataclass
class Memory:
    """Which memory the kernel's ops touch, by pointer argument. ``unknown_write``: why a write may be to any.
    ``in_place``: by the id of a load, why it has to be done where it stands: a producer's copies run ahead of everything else."""

    reads: dict[int, list[Node]] = field(default_factory=dict)
    writes: dict[int, list[Node]] = field(default_factory=dict)
    unknown_read: bool = False
    unknown_write: str = ""
    in_place: dict[int, str] = field(default_factory=dict)


_READS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
_WRITES = ("tt.store", "tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce")
_BOTH = ("tt.atomic_rmw", "tt.atomic_cas")


def memory_of(function: Function, host: Host) -> Memory:
    """By what the ops' pointers and descriptors are derived from; a descriptor that is an argument counts as the pointer that it is of."""
    memory = Memory()
    orders: list[tuple[Node, str]] = [(n, "the kernel waits for others before it, by {}, and copies would not") for n in _waits(function)]
    maps = [i for i, a in enumerate(function.body.args) if is_descriptor(a)]
    pointer_of = {i: host.data["descriptors"][n]["argument"] for n, i in enumerate(maps)}
    for node in function.nodes():
        reads, writes = node.name in _READS + _BOTH, node.name in _WRITES + _BOTH
        if node.name in ("tt.elementwise_inline_asm", "tt.extern_elementwise") and not node.bool_attr("pure"):
            memory.unknown_write = f"the kernel calls {node.name} with effects, which may store anywhere"
            orders.append((node, "the kernel calls {} before it, with effects that copies would not wait for"))
        if not reads and not writes:
            continue
        roots = pointer_roots(function, node.operands[0])
        if roots is None:
            memory.unknown_read |= reads
            if writes:
                memory.unknown_write = "the kernel stores through a pointer that is derived from no argument"
                orders.append((node, "the kernel stores before it ({}) through a pointer that is derived from no argument"))
            continue
        for root in {pointer_of.get(r, r) for r in roots}:
            if reads:
                memory.reads.setdefault(root, []).append(node)
            if writes:
                memory.writes.setdefault(root, []).append(node)
    _keep_in_place(function, memory, orders)
    return memory


def _waits(function: Function) -> Iterator[Node]:
    """The ops by which a program may learn that others have written something: atomics that acquire and volatile loads, where somebody looks at
    what they give, and loads and atomics of any kind that a while loop goes round for."""
    for node in function.nodes():
        if node.name in _BOTH:
            if node.str_attr("sem") in ("acquire", "acq_rel") and any(function.uses(r) for r in node.results):
                yield node
        elif node.name == "tt.load":
            if (node.bool_attr("is_volatile") or node.str_attr("cache") == "cv") and function.uses(node.results[0]):
                yield node
        elif node.name == "scf.while":
            yield from (read for read in reads_of_end(function, node) if read.name in ("tt.load", *_BOTH))


def _keep_in_place(function: Function, memory: Memory, orders: list[tuple[Node, str]]) -> None:
    """Note the loads that may run after one of ``orders``: they stand after it, or in a loop with it."""
    if not orders:
        return
    place = {id(n): i for i, n in enumerate(function.nodes())}
    for node in function.nodes():
        if node.name not in _READS:
            continue
        for other, why in orders:
            if place[id(other)] < place[id(node)] or _loops(other) & _loops(node):
                memory.in_place[id(node)] = why.format(other.name)
                break


def _loops(node: Node) -> set[int]:
    found, parent = set[int](), node.parent
    while parent is not None:
        if parent.name in ("scf.for", "scf.while"):
            found.add(id(parent))
        parent = parent.parent
    return found
