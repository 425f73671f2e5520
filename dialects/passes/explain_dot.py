"""Why accelerate_dot computed a dot as it did, in words: its entries for ``--explain``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.dialects.encodings import instruction_operand
from tilewright.dialects.matrix_ops import MatrixOp, lookup


def describe(a: Any, b: Any, shape: Sequence[int], precision: str) -> str:
    """``tl.dot 64×64×32 of f16 and f16``: element types of the operands and (M, N, K)."""
    asked = f", {precision}" if "f32" in (str(a), str(b)) else ""
    return f"tl.dot {'×'.join(map(str, shape))} of {a} and {b}{asked}"


def _listed(items: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(items))


def why_fma(a: Any, b: Any, c: Any, asked: Sequence[tuple[str, str]], shape: Sequence[int], transposed: Any, ctx: Any) -> str:
    """Why no matrix instruction can compute a dot of element types a, b → c and sizes (M, N, K).

    asked: pairs of row types that were tried. transposed: whether a row's accumulators are used transposed, a function of the row.
    """
    rows = [lookup(name) for name in ctx.capabilities.matrix_ops]
    if not rows:
        return f"{ctx.arch} has no matrix instructions"

    def types(row: MatrixOp) -> tuple[str, str]:
        return (row.b_type, row.a_type) if transposed(row) else (row.a_type, row.b_type)

    typed = [row for row in rows if types(row) in asked and (row.c_type == str(c) or (row.c_type == "f32" and str(c) in ("f16", "bf16")))]
    if not typed:
        have = _listed(f"{'/'.join(types(r))}→{r.c_type}" if r.a_type != r.b_type else f"{r.a_type}→{r.c_type}" for r in rows)
        wanted = _listed(f"{x}/{y}" if x != y else x for x, y in asked)
        return f"{ctx.arch} has no matrix instruction that multiplies {wanted} into {c}; it has {have}"
    tiles = sorted({(*instruction_operand(row, "c", transposed(row))[1:], row.k) for row in typed})
    sizes = _listed("×".join(map(str, t)) for t in tiles)
    short = [f"{name} is {size}" for name, size, i in zip("MNK", shape, range(3)) if all(size % t[i] for t in tiles)]
    return (f"{' and '.join(short) or 'the tile'}{',' if short else ' is'} no multiple of what one instruction computes on {ctx.arch}: "
            f"M×N×K of {sizes}")


def why_converted(element: Any, ctx: Any) -> str:
    """Why an operand of ``element`` type is not taken as it is."""
    own = ctx.capabilities.float8_types
    if str(element).startswith("f8") and own and str(element) not in own:
        return f"the fp8 types of {ctx.arch} are {_listed(own)}"
    return f"{ctx.arch} has no matrix instruction for {element} with these types and sizes"
