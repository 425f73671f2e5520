"""note_lines: the simulator's messages name the kernel's lines, which the text of the ttgir stage has not."""

import re

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.dialects.simt import SimtError
from tilewright.targets import registry
from tilewright.targets.nvidia.passes.note_lines import python_lines


@tilewright.jit
def doubled(p):
    return tl.load(p) * 2


@tilewright.jit
def kernel(x, y, far, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, doubled(x + i + far))


def first(function):
    return function.fn.__code__.co_firstlineno


def test_each_access_has_its_line_and_inlined_code_its_own():
    compiled = tilewright.compile(ASTSource(kernel, {"x": "*fp32", "y": "*fp32", "far": "i64"}, {"B": 128}), target=registry.parse("nvidia:sm_80"))
    text = compiled.asm["ttgir"]
    lines = python_lines(text, {"lines": compiled.metadata.lines})
    found = {m[0]: lines[n] for n, line in enumerate(text.splitlines(), 1) if (m := re.search(r"tt\.(load|store)", line))}
    assert found == {"tt.load": f"{__file__}:{first(doubled) + 2}", "tt.store": f"{__file__}:{first(kernel) + 3}"}
    assert not python_lines(text + "\n}", {"lines": compiled.metadata.lines}) and not python_lines(text, {})  # of another text nothing is known


def test_an_access_out_of_bounds_names_the_line(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_80:sim")
    with pytest.raises(SimtError, match=rf"load out of bounds.* at {re.escape(__file__)}:{first(doubled) + 2}\]"):
        kernel[(1,)](np.zeros(128, np.float32), np.zeros(128, np.float32), 1 << 50, B=128)
