"""Misuses of the language (error_table.py), launched on the target under test: the class of the error, the user's line and the text."""

from __future__ import annotations

import linecache
import textwrap

import numpy as np
import pytest
import torch

from tilewright.conformance.error_table import CASES, COMPILED
from tilewright.conformance.harness import DEVICE, ONLY_INTERPRETER, SIMULATED, kernel_of
from tilewright.dialects.errors import CompilationError
from tilewright.runtime.interpreter import InterpretedFunction

_SOURCE = """
    @triton.jit
    def kernel(p, q, n, f, C: tl.constexpr):
        o = tl.arange(0, 16)
"""
_CASES = [c for c in CASES if not (ONLY_INTERPRETER and COMPILED in c)]
_STEP = 20


@pytest.mark.parametrize("start", range(0, len(_CASES), _STEP * (10 if SIMULATED else 1)))
def test_misuses(start):
    p, q = torch.zeros(4096).to(DEVICE), torch.from_numpy(np.zeros(4096, np.int32)).to(DEVICE)
    for statement, kind, text, *_ in _CASES[start:start + _STEP]:
        kernel = kernel_of(textwrap.dedent(_SOURCE) + textwrap.indent(statement, "    ") + "\n")
        with pytest.raises(CompilationError) as info:
            (InterpretedFunction(kernel) if ONLY_INTERPRETER else kernel)[(1,)](p, q, 3, 1.5, 7)
        error = info.value
        assert type(error) is kind and text in error.message, (statement, str(error))
        assert linecache.getline(error.file, error.line).strip() == statement
