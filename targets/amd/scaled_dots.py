"""Which ``tt.dot_scaled`` gfx950's matrix instructions compute, and in which layout they take the scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.dialects import scaled
from tilewright.dialects.analysis.structure import Node, type_info
from tilewright.dialects.encodings import boolean, downcast, instruction_operand, ints, linear_encoding, mma_row
from tilewright.dialects.linear_layout import LinearLayout, log2
from tilewright.dialects.matrix_ops import MatrixOp
from tilewright.targets.amd.matrix_ops import SCALED_OPS

GROUP = scaled.GROUPS["i8"]  # numbers along k that one scale of the instruction is for


def has_scales(node: Node) -> list[bool]:
    """Whether A and B of a ``tt.dot_scaled`` have scales."""
    return [bool(n) for n in node.ints_attr("operandSegmentSizes")[3:5]]


def why_decomposed(node: Node, ctx: Any) -> str | None:
    """Why no instruction computes this ``tt.dot_scaled``; None where one does."""
    formats = [node.str_attr(f"{x}_format") for x in "ab"]
    wide = [f for f in formats if f not in scaled.NARROW]
    if wide:
        return f"{ctx.arch} has no matrix instruction for {wide[0]} with scales"
    for i, x in enumerate("ab"):
        if not node.bool_attr(f"{x}_k_pack"):
            return f"operand {x}'s bytes hold two neighbours along {'MN'[i]}; the instructions want them along K ({'lr'[i]}hs_k_pack)"
    scales = [v for v in node.operands[3:] if str(type_info(v.type).element) != "i8"]
    if scales:
        return f"scales of {type_info(scales[0].type).element}; the instructions have e8m0 (uint8) scales of {GROUP} numbers"
    if not rows_that_fit(node, ctx):
        m, n, k = scaled.sizes(node)
        size = ctx.options.matrix_instr_nonkdim
        wanted = " or ".join(dict.fromkeys(f"{r.m}×{r.n}×{r.k}" for r in SCALED_OPS if size in (0, r.extra["size"]) and r.extra["parts"] == r.extra["along"] == 1))
        return f"M×N×K of {m}×{n}×{k} are no multiples of what one instruction computes: {wanted}" + (f" (matrix_instr_nonkdim is {size})" if size else "")
    return None


def rows_that_fit(node: Node, ctx: Any, along: int = 1) -> list[MatrixOp]:
    """The rows of the operands' formats, of ``along`` instructions along k, whose tiles fit the product, best first. Accumulators are transposed: A is
    an instruction's second operand."""
    m, n, k = scaled.sizes(node)
    types = node.str_attr("b_format"), node.str_attr("a_format")
    size = ctx.options.matrix_instr_nonkdim
    return [r for r in SCALED_OPS if (r.a_type, r.b_type) == types and r.extra["along"] == along and size in (0, r.extra["size"]) and not (m % r.m or n % r.n or k % r.k)]


def scale_encoding(shape: Sequence[int], encoding: Any, operand: int) -> Any:
    """The layout of operand 0's or 1's scales, of ``shape`` ([batch,] M or N, K / 32), beside accumulators of ``encoding``: a lane holds a row's scale
    of the numbers from 32·(lane // M) on, or as many neighbours from 32·along·(lane // M) on. As operands repeat: along K first, then along M or N, then
    along the batch; warps of the other dim hold copies."""
    row, warps = mma_row(encoding), ints(downcast(encoding).params[1])
    rank = len(shape)
    own = rank - 2 + operand  # the accumulator's dim that the scales' rows are along
    covered = [1] * (rank - 2) + [row.extra["size"], row.k // GROUP]
    bases: dict[str, list[tuple[int, ...]]] = {"register": [], "lane": [], "warp": [], "block": []}

    def vector(dim: int, at: int) -> tuple[int, ...]:
        return tuple(at % shape[d] if d == dim else 0 for d in range(rank))

    along = row.extra["along"]
    bases["register"] += [vector(rank - 1, 1 << i) for i in range(log2(along))]
    for dim, first in ((rank - 2, 1), (rank - 1, along)):
        bases["lane"] += [vector(dim, first << i) for i in range(log2(covered[dim] // first))]
    if row.extra["parts"] == 2:
        bases["register"].append(vector(rank - 2, row.extra["size"]))
        covered[rank - 2] *= 2
    for dim in (rank - 2, rank - 1, *range(rank - 2)):
        for _ in range(log2(warps[dim])):
            target = rank - 2 if dim == own else dim
            if dim >= rank - 2 and dim != own:
                bases["warp"].append((0,) * rank)
            else:
                bases["warp"].append(vector(target, covered[target]))
                covered[target] *= 2
    for dim in (rank - 1, rank - 2, *range(rank - 2)):
        while covered[dim] < shape[dim]:
            bases["register"].append(vector(dim, covered[dim]))
            covered[dim] *= 2
    return linear_encoding(LinearLayout(bases, {f"dim{d}": n for d, n in enumerate(shape)}))


def scale_steps(shape: Sequence[int], encoding: Any, operand: int) -> tuple[int, int, int]:
    """How far apart the scales of neighbouring instructions of one warp are: along the batch, along M or N, and along K / 32."""
    row, warps = mma_row(encoding), ints(downcast(encoding).params[1])
    _, rows, columns = instruction_operand(row, "c", boolean(downcast(encoding).params[2]))
    return (warps[0] if len(shape) == 3 else 1), (rows, columns)[operand] * warps[len(shape) - 2 + operand], row.k // GROUP
