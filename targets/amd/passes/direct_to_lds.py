"""Let the loads of a loop's dot operands go from global memory to LDS without passing through registers (gfx950, and gfx942 where it is asked for).

The instruction (CDNA 3 and 4 ISA manuals, buffer_load_dword and buffer_load_dwordx4 with LDS) writes a wave's 64 × 4 or 64 × 16 bytes one after another,
lane by lane, from an address that the wave gives. So it is the buffer's layout that says which element each lane loads.

Before: optimize_dot_operands has put a local_alloc behind each such load. After: where a buffer's layout keeps a lane's bytes of the load's
fastest dim together (it is given the cheapest one that does), the load has the register layout that follows from it, and ``ctx.capabilities`` say that copies of so many bytes, a lane after another, may be asynchronous: pipeline_loops then
makes ttg.async_copy_global_to_local of the loads. Loads that do not qualify stay as they are, and are prefetched in registers. So are all of a
kernel that calls functions: of the addresses of those nothing is proven, which a buffer operation needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tilewright.dialects import ttg
from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.analysis.call_graph import has_calls
from tilewright.dialects.analysis.dots import TT_DOTS
from tilewright.dialects.analysis.layout_rules import transposed
from tilewright.dialects.analysis.structure import Function, Node, functions, type_info, with_encoding
from tilewright.dialects.encodings import linear_encoding, permuted_shared, to_linear_layout
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.passes import remove_layout_conversions
from tilewright.dialects.passes.dce_cse import dce
from tilewright.dialects.passes.pipeline_schedule import BY_LANE
from tilewright.dialects.pipeline import PassContext
from tilewright.dialects.shared_layouts import cost_of
from tilewright.targets.amd.buffers import COPY_BYTES


def run(module: Any, ctx: PassContext) -> None:
    """See the module's text."""
    if ctx.num_stages < 2 or ctx.options.most_stages == 1 or has_calls(module):
        return
    changed = False
    for function in functions(module):
        axis = AxisInfoAnalysis(function=function)
        for load, alloc in list(_loads(function)):
            changed |= _Direct(function, axis, ctx, load, alloc).run()
    if changed:
        remove_layout_conversions.run(module, ctx)
        for function in functions(module):
            dce(function)
        ctx.capabilities = replace(ctx.capabilities, async_copy_bytes=(COPY_BYTES[ctx.arch],), extra={**ctx.capabilities.extra, BY_LANE: True})


def _loads(function: Function) -> Iterator[tuple[Node, Node]]:
    """Loads directly in a loop with dots that do nothing but fill a buffer."""
    for loop in function.nodes():
        if loop.name != "scf.for" or not any(n.name in TT_DOTS for n in loop.regions[0].ops):
            continue
        for node in loop.regions[0].ops:
            if node.name == "tt.load" and not node.bool_attr("is_volatile"):
                users = [user for user, _ in function.uses(node.results[0])]
                if len(users) == 1 and users[0].name == "ttg.local_alloc" and users[0].region is node.region:
                    yield node, users[0]


class _Direct:
    """One load and its buffer."""

    def __init__(self, function: Function, axis: AxisInfoAnalysis, ctx: PassContext, load: Node, alloc: Node):
        self.function, self.axis, self.ctx, self.load, self.alloc = function, axis, ctx, load, alloc
        info = type_info(load.results[0].type)
        self.shape, self.bits = info.shape or (), max(8, info.bits)
        self.vector = COPY_BYTES[ctx.arch] * 8 // self.bits

    def run(self) -> bool:
        """Whether the load was given another layout."""
        mask = self.load.operands[1] if len(self.load.operands) > 1 else None
        elements = [self.axis.vector_elements(self.load.operands[0], d, mask) for d in range(len(self.shape))]
        wide = [d for d, n in enumerate(elements) if n >= self.vector > 0 and n == max(elements)]
        reads = self._reads()
        if len(wide) != 1 or reads is None:
            return False
        chosen = self._layout(wide[0], reads)
        if chosen is None:
            return False
        shared, registers = chosen
        self._give(registers)
        self._allocate(shared)
        return True

    def _reads(self) -> list[Any] | None:
        """The encodings, as of the buffer's own shape, in which it is read; None where it is used otherwise."""
        found = []
        for user, _ in self.function.uses(self.alloc.results[0]):
            order: tuple[int, ...] | None = None
            users = [user]
            if user.name == "ttg.memdesc_trans":
                order = tuple(user.ints_attr("order"))
                users = [u for u, _ in self.function.uses(user.results[0])]
            for read in users:
                if read.name != "ttg.local_load":
                    return None
                info = type_info(read.results[0].type)
                encoding = info.encoding
                if order is not None:
                    encoding = transposed(info.shape or (), encoding, tuple(order.index(d) for d in range(len(order))))
                found.append(encoding)
        return found or None

    def _layout(self, fastest: int, reads: list[Any]) -> tuple[Any, Any] | None:
        """(encoding of the buffer, register encoding of the load), the cheapest to read of those that fit."""
        model = self.ctx.capabilities.extra["shared_model"]
        best: tuple[int, Any, Any] | None = None
        for shared in self._candidates(fastest):
            registers = self._registers(to_linear_layout(self.shape, shared), fastest)
            if registers is None:
                continue
            total = sum(cost_of(self.shape, registers, read, shared, self.bits, model).total for read in reads)
            if best is None or total < best[0]:
                best = total, shared, registers
        return best[1:] if best is not None else None

    def _candidates(self, fastest: int) -> Iterator[Any]:
        yield self.alloc.results[0].type.encoding
        order = [fastest, *(d for d in reversed(range(len(self.shape))) if d != fastest)]
        unit = 16 * 8 // self.bits  # as long as reads of operands are at best
        units = self.shape[fastest] // unit
        for per_phase in (1, 2, 4, 8):
            for max_phase in (16, 8, 4, 2):
                if max_phase <= units:
                    yield ttg.SwizzledSharedEncoding.of(unit, per_phase, max_phase, order)
        yield ttg.SwizzledSharedEncoding.of(1, 1, 1, order)

    def _registers(self, shared: LinearLayout, fastest: int) -> Any:
        """The register encoding of a load into ``shared``, a lane's bytes after another's; None where these are not consecutive
        along the fastest dim, or there are fewer than one for each lane."""
        columns = shared.flat_columns
        stride = 1
        for extent in self.shape[fastest + 1:]:
            stride *= extent
        low = self.vector.bit_length() - 1
        lanes, warps = self.ctx.warp_size.bit_length() - 1, self.ctx.num_warps.bit_length() - 1
        inside = sum(stride << i for i in range(low))
        if len(columns) < low + lanes + warps or columns[:low] != tuple(stride << i for i in range(low)) or any(c & inside for c in columns[low:]):
            return None
        parts = {"register": (*columns[:low], *columns[low + lanes + warps:]), "lane": columns[low:low + lanes],
                 "warp": columns[low + lanes:low + lanes + warps]}
        return linear_encoding(LinearLayout.from_columns(parts, shared.out_sizes))

    def _give(self, registers: Any) -> None:
        for i, v in enumerate(self.load.operands):
            if type_info(v.type).shape is not None:
                moved = self.function.insert_before(self.load, "ttg.convert_layout", [with_encoding(v.type, registers)], [v])
                self.function.set_operand(self.load, i, moved.results[0])
        self.load.set_type(0, with_encoding(self.load.results[0].type, registers))

    def _allocate(self, shared: Any) -> None:
        type_ = self.alloc.results[0].type
        if type_.encoding == shared:
            return
        self.alloc.set_type(0, ttg.MemDescType.of(list(type_.shape), type_.element_type, shared))
        for user, _ in self.function.uses(self.alloc.results[0]):
            if user.name == "ttg.memdesc_trans":
                order = tuple(user.ints_attr("order"))
                result = user.results[0].type
                user.set_type(0, ttg.MemDescType.of(list(result.shape), result.element_type, permuted_shared(shared, self.shape, order)))
