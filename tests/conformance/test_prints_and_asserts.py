"""device_print and device_assert, and Python's print and assert in kernels: what is said, by whom, and when."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import ONLY_INTERPRETER, assert_stops, interpret, kernel_of, poisoned, run
from tilewright.dialects.errors import TilewrightError

_PRINTS = """
    @triton.jit
    def kernel(x, o):
        i = tl.arange(0, 4)
        v = tl.load(x + i)
        tl.device_print("value ", v)
        tl.device_print("byte ", (i + 250).to(tl.uint8), hex=True)
        tl.device_print("unsigned ", (i + 250).to(tl.uint8), i.to(tl.uint64) - 1)
        tl.device_print("many ", i.to(tl.int16) - 2, v * 0 + 7.0)
        tl.device_print("alone")
        if tl.program_id(0) == 1:
            print("scalar ", tl.program_id(0) * 41 + 1)
        tl.store(o + i, v)
    """


def _numbers(text: str, prefix: str) -> set:
    """All numbers on the lines with that prefix."""
    found = set()
    for line in text.splitlines():
        if prefix in line:
            found |= {float(int(n, 16)) if n.startswith("0x") else float(n) for n in re.findall(r"-?0x[0-9a-f]+|-?\d+\.?\d*", line.split(prefix, 1)[1])}
    return found


_COMPILED = pytest.mark.skipif(ONLY_INTERPRETER, reason="the interpreter always prints and asserts, as Python does")


@pytest.mark.parametrize("how", [pytest.param(run, marks=_COMPILED), interpret])
def test_every_value_is_printed_with_its_program(how, capfd):
    x = torch.tensor([-3.5, 0.0, 2.25, 100.0])
    out = how(kernel_of(_PRINTS), {"x": x, "o": poisoned("fp32", 4)}, (2,))
    assert torch.equal(out["o"], x)
    text = capfd.readouterr().out
    assert _numbers(text, "value ") == {-3.5, 0.0, 2.25, 100.0}
    assert _numbers(text, "byte ") == {250.0, 251.0, 252.0, 253.0} and "0xfa" in text
    assert _numbers(text, "unsigned ") == {0.0, 1.0, 2.0, 250.0, 251.0, 252.0, 253.0, float(2**64 - 1)}
    assert _numbers(text, "many ") == {-2.0, -1.0, 0.0, 1.0, 7.0}
    if how is run:  # the interpreter's print is Python's own
        assert _numbers(text, "scalar ") == {42.0}
        assert all("(1, 0, 0)" in line for line in text.splitlines() if "scalar" in line)
    assert "alone" in text and "(0, 0, 0)" in text


_ASSERTS = """
    @triton.jit
    def kernel(x, n, k):
        v = tl.load(x + tl.arange(0, 8))
        tl.device_assert(v < n, "too large", mask=v != 6)
        assert k > 0, "k is not positive"
        tl.store(x + tl.arange(0, 8), v * 2)
    """


@_COMPILED
@pytest.mark.own_process
@pytest.mark.parametrize("n, k, message", [(8, 1, None), (6, 1, "too large"), (8, 0, "k is not positive")])
def test_assertions_hold_or_stop_the_kernel_where_debug_is_on(n, k, message, capfd):
    x = torch.arange(8, dtype=torch.int32)
    args = {"x": x, "n": n, "k": k}
    if message is None:
        for out in (run(kernel_of(_ASSERTS), args, debug=True), interpret(kernel_of(_ASSERTS), args)):
            assert torch.equal(out["x"], 2 * x)
        return
    assert torch.equal(run(kernel_of(_ASSERTS), args)["x"], 2 * x)  # without debug there are none
    with pytest.raises((TilewrightError, AssertionError), match=message):  # of Python's assert, Python's own
        interpret(kernel_of(_ASSERTS), args)
    assert_stops(lambda: run(kernel_of(_ASSERTS), args, debug=True), message, capfd)


@pytest.mark.own_process
def test_an_assertion_names_the_line(capfd):
    source = """
        @triton.jit
        def kernel(x):
            tl.device_assert(tl.load(x) > 0, "of this line")
        """
    assert_stops(lambda: run(kernel_of(source), {"x": torch.zeros(1, dtype=torch.int32)}, debug=True), r"of this line.*:\d+|:\d+.*of this line", capfd)


def test_asserts_and_prints_that_do_not_come_to_pass(capfd):
    source = """
        @triton.jit
        def kernel(x, n):
            if n > 100:
                tl.device_print("never")
                tl.device_assert(False, "never")
            tl.store(x, n)
        """
    assert run(kernel_of(source), {"x": poisoned("int32", 1), "n": 5}, debug=True)["x"].numpy() == np.array([5])
    assert "never" not in capfd.readouterr().out
