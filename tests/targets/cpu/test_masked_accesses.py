"""Masked loads and stores are no wider than a register of the arch: LLVM 22 gets those that it has to split wrong."""

from __future__ import annotations

import re

import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.compiler import ASTSource


@triton.jit
def masked_copy(p, o, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, COLUMNS)[None, :]
    mask = (column < n) & (row + 1 < n)
    tl.store(o + row * COLUMNS + column, tl.load(p + row * COLUMNS + column, mask=mask), mask=mask)


@pytest.mark.parametrize("arch, bits", [("x86-64-v3", 256), ("x86-64-v4", 512)])
@pytest.mark.parametrize("type, width", [("i32", 32), ("fp64", 64)])
def test_masked_accesses_fit_a_register(arch, bits, type, width):
    source = ASTSource(masked_copy, {"p": f"*{type}", "o": f"*{type}", "n": "i32"}, {"ROWS": 4, "COLUMNS": 32})
    loops = triton.compile(source, target=f"cpu:{arch}").asm["loops"]
    lanes = [int(n) for n in re.findall(r"llvm\.intr\.masked\.(?:load|store).*?vector<(\d+)x(?:i32|i64|f64|f32)>", loops)]
    assert lanes and all(n * width <= bits for n in lanes)
    assert len(lanes) == 2 * 16 * width // bits  # of a load and a store of 16 lanes
