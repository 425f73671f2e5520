"""Show ordinary writes to shared memory to what reads it by another path: wgmma and bulk copies.

Those access shared memory through the asynchronous proxy; ordinary loads, stores and ``cp.async`` go through the generic one. A
write through the generic proxy is seen by the other only after ``fence.proxy.async`` by the thread that wrote (PTX ISA manual,
"Memory Consistency Model", "Proxies", and "Async proxy"), and by other threads' accesses only after a barrier in addition. insert_barriers
puts barriers right before readers, so the order write, fence, barrier, read is had by fencing right after each write.

Before: shared memory is allocated. After: ``ttng.fence_async_shared`` stands right after each local_alloc with a source, local_store
and wait for ``cp.async`` that writes a buffer which an op of the asynchronous proxy reads; and right after each op whose bytes
(scratch included) such an op later writes, since that write is not to come first.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.aliases import ALLOC, ASYNC_COPY, Aliases
from tilewright.dialects.analysis.liveness import WAIT
from tilewright.dialects.analysis.structure import Function, Node, functions, position
from tilewright.dialects.passes.allocate_shared_memory import OFFSET, hooks_of, memdesc_bytes, scratch_of
from tilewright.targets.nvidia.dialect.effects import DOT

# op → operand numbers of the buffers that it reads, or writes, through the asynchronous proxy
_READS: dict[str, tuple[int, ...]] = {DOT: (0, 1), "ttng.async_tma_copy_local_to_global": (1,), "ttng.async_tma_reduce": (1,), "ttng.async_tma_scatter": (1,)}
_WRITES: dict[str, tuple[int, ...]] = {"ttng.async_tma_copy_global_to_local": (2,), "ttng.async_tma_gather": (2,)}

Bytes = tuple[int, int]


class _Fences:
    def __init__(self, function: Function, hooks: Any):
        self.function, self.hooks = function, hooks
        self.aliases = Aliases(function)
        self.read = self._roots(_READS)
        self.written = [self._bytes(root) for root in self._roots(_WRITES)]

    def _roots(self, table: dict[str, tuple[int, ...]]) -> set[Node]:
        """The buffers that ops of the table touch."""
        found: set[Node] = set()
        for node in self.function.nodes():
            for i in table.get(node.name, ()):
                found |= self.aliases.roots(node.operands[i])
        return found

    @staticmethod
    def _bytes(root: Node) -> Bytes:
        start = root.int_attr(OFFSET)
        return start, start + memdesc_bytes(root.results[0].type)

    def _generic(self, node: Node) -> tuple[set[Node], list[Bytes]]:
        """What ``node`` writes (or, of async_wait, has written) through the generic proxy: buffers, and bytes of scratch."""
        if node.name == ALLOC:
            return ({node} if node.operands else set()), []
        if node.name == "ttg.local_store":
            return set(self.aliases.roots(node.operands[1])), []
        if node.name == WAIT:
            return set().union(*(self.aliases.roots(n.operands[1]) for n in self.function.nodes() if n.name == ASYNC_COPY)), []
        if OFFSET in node.op.attributes and (size := scratch_of(node, self.hooks)):
            return set(), [(node.int_attr(OFFSET), node.int_attr(OFFSET) + size)]
        return set(), []

    def needed(self, node: Node) -> bool:
        buffers, scratch = self._generic(node)
        if buffers & self.read:
            return True
        touched = [*scratch, *map(self._bytes, buffers)]
        return any(a[0] < b[1] and b[0] < a[1] for a in touched for b in self.written)

    @staticmethod
    def _fenced(node: Node) -> bool:
        """Whether a fence stands there already: warp_specialize puts one before each bulk store."""
        region = node.region
        assert region is not None
        after = region.ops[position(node) + 1:]
        return bool(after) and after[0].name == "ttng.fence_async_shared"

    def run(self) -> None:
        if not self.read and not self.written:
            return
        for node in list(self.function.nodes()):
            if self.needed(node) and not self._fenced(node):
                self.function.insert_after(node, "ttng.fence_async_shared", [], [], {"b_cluster": ir.BoolAttr.get(False)})


def run(module: Any, ctx: Any) -> None:
    """Before: shared memory is allocated. After: fences where the asynchronous proxy meets ordinary writes; see the module's text."""
    hooks = hooks_of(ctx)
    for function in functions(module):
        _Fences(function, hooks).run()
