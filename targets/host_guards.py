"""Checks guards at a launch: what a version of a kernel takes for granted of its arguments and its grid (``metadata["host"]["guards"]``).

Kinds, each with ``expr`` (an expression, see host_expressions.py) and ``why``: "range" (``min`` ≤ it ≤ ``max``), "aligned" (a multiple
of the number ``to``), "multiple" (a multiple of the expression ``of``). Expressions are bounded over all programs and iterations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.targets.host_expressions import Expressions, Interval, UndefinedExpression


def check(expressions: Expressions, guards: Sequence[Mapping[str, Any]], args: Sequence[int], grid: Sequence[int]) -> list[str]:
    """Why the guards do not hold, one sentence each."""
    memo: dict[int, Interval] = {}
    out = []
    for g in guards:
        try:
            reason = violation(expressions, g, args, grid, memo)
        except UndefinedExpression as e:
            reason = f"it depends on {e}"
        if reason:
            out.append(f"{g['why']}: {reason}")
    return out


def violation(expressions: Expressions, g: Mapping[str, Any], args: Sequence[int], grid: Sequence[int], memo: dict[int, Interval]) -> str | None:
    """Why one guard does not hold. Raises UndefinedExpression."""
    v = expressions.interval(g["expr"], args, grid, memo)
    if v.empty:  # no program comes there
        return None
    if g["kind"] == "range":
        if g["min"] <= v.lo and v.hi <= g["max"]:
            return None
        return f"the values are {v.lo} to {v.hi}, and must lie within {g['min']} to {g['max']}"
    if g["kind"] == "aligned":
        of: int | None = g["to"]
    else:
        divisor = expressions.interval(g["of"], args, grid, memo)
        if divisor.empty:
            return None
        of = divisor.exact
    if of is None or of == 0:
        return "the divisor is not one number" if of is None else "the divisor is 0"
    if v.lo % of == 0 and v.step % of == 0:
        return None
    return f"{v.lo if v.exact is not None else f'{v.lo} to {v.hi} in steps of {v.step}'} is no multiple of {of}"
