"""Launches that are refused (host_error_table.py) on the target under test: the class of the error and its text, of kernels that are new and that were
launched before; and that the kernels run as before after it."""

from __future__ import annotations

import decimal
import fractions

import pytest
import torch

import tilewright as triton
from tilewright.conformance.harness import DEVICE, ONLY_INTERPRETER, kernel_of
from tilewright.conformance.host_error_table import COMPILED, LAUNCHES
from tilewright.dialects.errors import TilewrightError
from tilewright.runtime.interpreter import InterpretedFunction

_SOURCES = {
    "add": """
    @triton.jit
    def add(x, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
    """,
    "dflt": """
    @triton.jit
    def dflt(x, n, BLOCK: tl.constexpr = 8):
        tl.store(x, n)
    """,
    "fl": """
    @triton.jit
    def fl(x, f):
        tl.store(x, f)
    """,
    "tup": """
    @triton.jit
    def tup(x, t):
        tl.store(x, t[0])
    """,
}


def _kernels():
    return {name: kernel_of(source, name) for name, source in _SOURCES.items()}


def _check(kernels, x, cases):
    scope = {"torch": torch, "triton": triton, "decimal": decimal, "fractions": fractions, "x": x, **kernels}
    for code, kind, text, *_ in cases:
        with pytest.raises(TilewrightError) as info:
            eval(code, scope)
        assert type(info.value) is kind and text in str(info.value), (code, type(info.value), str(info.value))


@pytest.mark.skipif(ONLY_INTERPRETER, reason="launches on a target")
@pytest.mark.parametrize("way", ["cold", "warm"])
def test_launches(way):
    kernels, x = _kernels(), torch.zeros(64).to(DEVICE)
    if way == "warm":
        for _ in range(2):
            kernels["add"][(1,)](x, 8, BLOCK=8), kernels["fl"][(1,)](x, 1.5), kernels["tup"][(1,)](x, (1.5,))
    else:
        kernels = {name: triton.JITFunction(kernel.fn) for name, kernel in kernels.items()}
    _check(kernels, x, LAUNCHES)
    x.zero_()
    kernels["add"][(1,)](x, 8, BLOCK=8)
    assert x.cpu().sum() == 8


def test_launches_in_the_interpreter():
    kernels = {name: InterpretedFunction(kernel) for name, kernel in _kernels().items()}
    _check(kernels, torch.zeros(64), [case for case in LAUNCHES if COMPILED not in case])
