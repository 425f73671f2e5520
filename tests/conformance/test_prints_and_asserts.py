"""device_assert, and Python's assert in kernels: what is said, by whom, and when. (device_print: test_print_lines.py.)"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import ONLY_INTERPRETER, assert_stops, interpret, kernel_of, poisoned, run
from tilewright.dialects.errors import TilewrightError

_COMPILED = pytest.mark.skipif(ONLY_INTERPRETER, reason="the interpreter always asserts, as Python does")


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
