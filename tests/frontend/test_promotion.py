"""The type of every operator's result for every pair of operands is Triton 3.6's: promotion_table.json, which make_promotion_table.py writes.

docs/language.md lists the differences that are meant (``_MEANT``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.dialects.errors import TilewrightError
from tilewright.language import core as tl
from tilewright.language.semantic import Semantic
from tilewright.runtime.interpreter_builder import Cell, NumpyBuilder
from tilewright.runtime.interpreter_memory import Memory
from tilewright.runtime.interpreter_ops import held_dtype

TABLE = json.loads(Path(__file__).with_name("promotion_table.json").read_text())
OPERANDS = TABLE["operands"]
FP8 = [t for t in OPERANDS if t.startswith("fp8")]
TYPES = OPERANDS[:OPERANDS.index("True")]
CASTS = {"constant", "splat", "broadcast", "extsi", "extui", "extf", "trunci", "truncf", "sitofp", "uitofp", "fptosi", "fptoui", "bitcast", "fp_to_fp"}


class Recorder(NumpyBuilder):
    """Remembers the last operation that is no cast."""

    last = "-"

    def create(self, op: str, operands: Any, result_types: Any, attrs: Any = None) -> list[Cell]:
        name = op.partition(".")[2]
        if name not in CASTS:
            self.last = f"{name} {(attrs or {}).get('predicate', '')}".strip()
        return [Cell(np.zeros(t.shape, held_dtype(t)), t) for t in result_types]


def ours(operator: str, *names: str) -> str:
    builder = Recorder(Memory())
    semantic = Semantic(builder)
    operands: list[Any] = []
    for name in names:
        if name in TYPES:
            type = tl.block_type(tl.dtype(name), [16])
            operands.append(tl.tensor(Cell(np.zeros(16, held_dtype(type)), type), type))
        else:
            operands.append(eval(name))  # one of the numbers above
    mask = tl.block_type(tl.int1, [16])
    try:
        with tl.active_semantic(semantic):
            if operator == "where":
                out = tl.where(tl.tensor(Cell(np.zeros(16, bool), mask), mask), *operands)
            elif operator in ("minimum", "abs"):
                out = getattr(semantic, operator)(*operands)
            elif operator == "not":
                out = semantic.not_(operands[0])
            elif isinstance(operands[0], tl.tensor):
                out = getattr(operands[0], f"__{operator}__")(*operands[1:])
            else:  # a comparison of a number and a tensor is the tensor's, the other way round, in Python
                swapped = {"lt": "less_than", "eq": "equal"}
                out = getattr(semantic, swapped[operator])(*operands) if operator in swapped else getattr(operands[1], f"__r{operator}__")(operands[0])
    except TilewrightError:
        return "error"
    return f"{out.dtype} {builder.last}"


def _has_fp8(names: list[str]) -> bool:
    return any(n in FP8 for n in names)


_MEANT: list[Any] = [
    lambda operator, names, theirs, got: theirs == "error" and _has_fp8(names),  # numbers with fp8, and fp8e4b15 with others, are allowed
    lambda operator, names, theirs, got: operator == "truediv" and _has_fp8(names) and got == theirs.replace("divf", "precise_divf"),
    lambda operator, names, theirs, got: operator == "neg" and got == theirs.replace("subf", "negf"),  # the sign of -0.0
    lambda operator, names, theirs, got: operator == "not" and theirs == "error" and got == "int1 xori",  # `not x` is x == 0
    lambda operator, names, theirs, got: names == ["fp8e4b15"] * 2 or names == ["fp8e4b15"],  # Triton emits calls that only NVIDIA has
]


@pytest.mark.parametrize("operator", [k for k in TABLE if k not in ("operands", "cells")])
def test_as_triton(operator):
    rows = TABLE[operator]
    wrong = []
    for a, row in zip(OPERANDS, rows):
        for b, cell in zip(OPERANDS, row) if isinstance(row, list) else [(None, row)]:
            if cell < 0:
                continue
            names = [a] if b is None else [a, b]
            theirs, got = TABLE["cells"][cell], ours(operator, *names)
            if got != theirs and not any(meant(operator, names, theirs, got) for meant in _MEANT):
                wrong.append(f"{operator} of {', '.join(names)}: Triton says {theirs}, we {got}")
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(wrong[:400])
