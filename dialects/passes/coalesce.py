"""Choose for each memory op the layout in which threads next to each other touch addresses next to each other.

Before: every tensor has a layout. After: the operands and results of loads, stores and atomics have the blocked encoding
whose order follows the contiguity of the pointers and whose threads hold runs of up to ``capabilities.max_vector_bits``, and
``ttg.convert_layout`` joins them to the rest; remove_layout_conversions then spreads these layouts.

Where the target has no asynchronous copies, a load of 8- or 16-bit elements that feeds a dot and is not contiguous along k gets runs
along k too: the thread then holds, for several rows of k, what it can write to shared memory as vectors along k, as the
matrix instructions want to read them. Where the target says how its memory works (``extra["shared_model"]``), by what that costs, and
not for elements that it can transpose as it reads them.

Ops on tensors of one shape and order get one run length, so that a kernel like y = f(x, w) needs no conversion: the longest
that any of them can use, but at most what the widest vector holds of the largest element stored.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright.dialects.analysis.axis_info import AxisInfoAnalysis
from tilewright.dialects.analysis.dots import TT_DOTS
from tilewright.dialects.analysis.layout_rules import MEMORY_OPS
from tilewright.dialects.analysis.structure import Function, Node, functions, type_info
from tilewright.dialects.encodings import blocked_for
from tilewright.dialects.passes.convert_tt_to_ttg import convert_operand, convert_result
from tilewright.dialects.passes.optimize_dot_operands import path_to_load


def order_by_contiguity(contiguity: tuple[int, ...]) -> list[int]:
    """Dims from the most contiguous to the least; among equals the last dim first."""
    return sorted(range(len(contiguity)), key=lambda d: (-contiguity[d], -d))


def mask_of(node: Node) -> Any:
    """The mask operand of a memory op, or None."""
    sizes = node.ints_attr("operandSegmentSizes") if "operandSegmentSizes" in node.op.attributes else [1] * len(node.operands)
    first = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2}.get(node.name)
    if first is None or first >= len(sizes) or not sizes[first]:
        return None
    return node.operands[sum(sizes[:first])]


def _run_length(node: Node, axis: AxisInfoAnalysis, order: list[int], ctx: Any) -> int:
    """Elements that one access of this op can take. Of atomics one, but of sums of types that ``capabilities.extra["added_in_pairs"]`` names two."""
    pointer = type_info(node.operands[0].type)
    most = int(ctx.capabilities.max_vector_bits) // max(8, pointer.pointee_bits)
    if node.name.startswith("tt.atomic"):
        pairs = ctx.capabilities.extra.get("added_in_pairs", ())
        most = 2 if node.name == "tt.atomic_rmw" and node.str_attr("rmw_op") == "fadd" and str(type_info(node.operands[1].type).element) in pairs else 1
    return max(1, min(axis.vector_elements(node.operands[0], order[0], mask_of(node)), most))


def _explain_narrow(node: Node, axis: AxisInfoAnalysis, dim: int, ctx: Any, threads: int) -> None:
    """Say of a load or store that takes fewer elements at a time than a thread holds and a vector has, what keeps it from more."""
    pointer, mask = type_info(node.operands[0].type), mask_of(node)
    bits = max(8, pointer.pointee_bits)
    shape = pointer.shape or ()
    best = min(int(ctx.capabilities.max_vector_bits) // bits, max(1, prod(shape) // threads), shape[dim])
    n = axis.vector_elements(node.operands[0], dim, mask)
    if node.name not in ("tt.load", "tt.store") or n >= best:
        return
    info, why = axis.get(node.operands[0]), []
    if info.contiguity[dim] <= n:
        why.append(f"addresses are known to be contiguous for no more than {n}")
    if max(1, info.divisibility[dim] * 8 // bits) <= n:
        why.append(f"they are known to start at multiples of {max(info.divisibility[dim], bits // 8)} bytes; arguments divisible by 16, or tl.multiple_of, would say more")
    if mask is not None and type_info(mask.type).shape and axis.get(mask).constancy[dim] <= n:
        why.append(f"the mask is known to be one value for no more than {axis.get(mask).constancy[dim]}; a bound divisible by 16 would say more")
    ctx.explain(node.op, f"tl.{node.name[3:]} of {bits}-bit elements", f"{n} at a time, of {best}", "; ".join(why))


def _dot_operands(function: Function) -> dict[int, list[int]]:
    """The loads that feed dots (ids of nodes), and which dims of what they load are the dots' k."""
    found: dict[int, list[int]] = {}
    for node in function.nodes():
        if node.name in TT_DOTS:
            for i, v in enumerate(node.operands[:2]):
                path = path_to_load(function, v)
                if path is not None:
                    found.setdefault(id(path.load), []).append(path.permutation[len(path.permutation) - 1 - i])
    return found


def _is_crowded(function: Function, threads: int, ctx: Any) -> bool:
    """Whether the accumulators of one loop take more than a quarter of the registers. Runs along k mean shorter runs along the contiguous
    dim, so more loads, each with an address of its own: where little room is left those addresses would be spilled."""
    elements: dict[int, int] = {}
    for node in function.nodes():
        if node.name in TT_DOTS:
            elements[id(node.region)] = elements.get(id(node.region), 0) + prod(type_info(node.results[0].type).shape or ())
    return max(elements.values(), default=0) // threads * 4 > ctx.capabilities.registers_per_thread


def _with_runs_along_k(shape: tuple[int, ...], run: int, dim: int, k: int, bits: int, threads: int) -> tuple[int, int]:
    """(run along ``dim``, run along ``k``) for a thread's share: 8 bytes along k where at least 4 are left along dim.

    Along dim 8 bytes at most: those are as many rows of the buffer, which neighbouring lanes write at a time.
    """
    share = max(1, prod(shape) // threads)
    longest, run = run, min(run, 64 // bits)
    along_k = min(64 // bits, shape[k], share)
    while along_k > 1 and min(run, share // along_k) * bits < 32:
        along_k //= 2
    return (min(run, share // along_k), along_k) if along_k > 1 else (longest, 1)


def _runs_for(shape: tuple[int, ...], run: int, k: int, bits: int, threads: int, wanted: int) -> tuple[int, int]:
    """As ``_with_runs_along_k`` for memory in which any layout can be had: the fewest loads and writes to shared memory together, and
    among equals the longest loads. Instructions want ``wanted`` bits along k at once: with less, operands are read in twice as many."""
    share = max(1, prod(shape) // threads)
    longest = min(run, share)
    best = (share // longest + 2 * share, -longest, 1)
    along_k = 2
    while along_k * bits <= 128 and along_k <= min(shape[k], share):
        most = min(run, share // along_k)
        for n in (most >> i for i in range(most.bit_length())):
            if n * bits >= 32:
                writes = share // along_k * (2 if along_k * bits < 32 else 1)
                reads = share * bits // 128 if along_k * bits < wanted else 0
                best = min(best, (share // n + writes + reads, -n, along_k))
        along_k *= 2
    return -best[1], best[2]


def _plan(function: Function, axis: AxisInfoAnalysis, ctx: Any) -> list[tuple[Node, Any]]:
    """The encoding of each memory op on tensors."""
    max_bits = int(ctx.capabilities.max_vector_bits)
    threads = ctx.num_warps * ctx.warp_size
    found: list[tuple[Node, tuple[tuple[int, ...], tuple[int, ...], int, int]]] = []
    model = ctx.capabilities.extra.get("shared_model")
    apart = ctx.capabilities.async_copy_bytes or model is None and _is_crowded(function, threads, ctx)
    operands = {} if apart else _dot_operands(function)
    wanted: dict[Any, int] = {}
    limit: dict[Any, int] = {}
    for node in function.nodes():
        if node.name not in MEMORY_OPS:
            continue
        info = type_info(node.operands[0].type)
        if info.shape is None:
            continue
        order = order_by_contiguity(axis.get(node.operands[0]).contiguity)
        k = next((d for d in operands.get(id(node), ()) if d != order[0]), order[0])  # rows for one dot do not hurt another
        turned = k != order[0] and info.pointee_bits < 32 and not (model is not None and info.pointee_bits in model.transposing)
        # what a dot reads goes through shared memory, and need not have the layout of a tile that is stored
        key = (info.shape, tuple(order), k if turned else -1, info.pointee_bits if id(node) in operands else 0)
        found.append((node, key))
        wanted[key] = max(wanted.get(key, 1), _run_length(node, axis, order, ctx))
        _explain_narrow(node, axis, order[0], ctx, threads)
        if node.name == "tt.store":
            limit[key] = min(limit.get(key, max_bits), max_bits // max(8, info.pointee_bits))
    encodings: dict[Any, Any] = {}
    for _, key in found:
        if key not in encodings:
            shape, dims, k, bits = key
            n = min(wanted[key], limit.get(key, max_bits), max(1, prod(shape) // threads), shape[dims[0]])
            size = [1] * len(shape)
            size[dims[0]] = n
            if k >= 0:
                size[dims[0]], size[k] = (_with_runs_along_k(shape, n, dims[0], k, bits, threads) if model is None else
                                          _runs_for(shape, n, k, bits, threads, int(ctx.capabilities.extra.get("operand_run_bits", 0))))
            encodings[key] = blocked_for(shape, size, list(dims), ctx.num_warps, ctx.warp_size)
    return [(node, encodings[key]) for node, key in found]


def run(module: Any, ctx: Any) -> None:
    """Before: ttg with any layouts. After: memory ops have coalesced blocked layouts, joined to the rest by convert_layout."""
    axis = AxisInfoAnalysis(module)  # of all functions: what is known of arguments is known where they are called
    for function in functions(module):
        for node, encoding in _plan(function, axis, ctx):
            for i, v in enumerate(node.operands):
                if type_info(v.type).shape is not None:
                    convert_operand(function, node, i, encoding)
            for i in range(len(node.results)):
                convert_result(function, node, i, encoding)
