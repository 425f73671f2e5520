"""With debug=True (and sanitize_overflow, which is on unless turned off) integers of up to 32 bits that leave their type stop the program."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import ONLY_INTERPRETER, SIMULATED, assert_stops, kernel_of, poisoned, run
from tilewright.dialects.errors import TilewrightError
from tilewright.runtime.interpreter import InterpretedFunction

_BINARY = """
    @triton.jit
    def kernel(x, y, o, N: tl.constexpr):
        i = tl.arange(0, N)
        tl.store(o + i, EXPRESSION)
    """
X, Y = "tl.load(x + i)", "tl.load(y + i)"
# (expression, type, x, y whose result fits, y whose result does not, what is said)
CASES = [
    (f"{X} + {Y}", "int32", 2**31 - 3, 2, 3, "int32 overflow detected for operation add"),
    (f"{X} - {Y}", "int32", -(2**31) + 5, 5, 6, "int32 overflow detected for operation sub"),
    (f"{X} * {Y}", "int32", -(2**16), 2**15, 2**15 + 1, "int32 overflow detected for operation mul"),
    (f"-{X} + 0 * {Y}", "int32", None, 2**31 - 1, -(2**31), "int32 overflow detected for operation sub"),
    (f"{X} - {Y}", "uint32", 7, 7, 8, "uint32 overflow detected for operation sub"),
    (f"{X} * {Y}", "uint32", 2**32 - 1, 1, 2**32 - 1, "uint32 overflow detected for operation mul"),
    (f"{X} * {Y}", "uint32", 2**31, 1, 2**32 - 2, "uint32 overflow detected for operation mul"),
    (f"{X} + {Y}", "int8", 120, 7, 8, "int8 overflow detected for operation add"),
    (f"{X} * {Y}", "uint16", 256, 255, 256, "uint16 overflow detected for operation mul"),
    (f"tl.add({X}, 1) + 0 * {Y}", "int32", None, 2**31 - 2, 2**31 - 1, "int32 overflow detected for operation add"),
    (f"tl.sum({Y}, 0) + 0 * {X}", "int32", 0, (2**31 - 1) // 4, 2**29, r"int32 overflow detected for operation add \(sum\)"),
    (f"tl.cumsum({Y}, 0) + 0 * {X}", "int32", 0, -(2**29), -(2**29) - 1, r"int32 overflow detected for operation add \(cumsum\)"),
    (f"tl.cumprod({Y}, 0) + 0 * {X}", "int32", 0, 215, 216, r"int32 overflow detected for operation mul \(cumprod\)"),
    (f"tl.cdiv({Y}, 3) + 0 * {X}", "int32", 0, 2**31 - 3, 2**31 - 2, "int32 overflow detected for operation add"),
]


def arrays(dtype, x, y):
    kind = getattr(np, dtype)
    x, y = np.full(4, y if x is None else x, np.int64).astype(kind), np.full(4, y, np.int64).astype(kind)
    return torch.from_numpy(x), torch.from_numpy(y)


def interpreted(kernel, args, **options):
    """As run, in the interpreter and with options."""
    copies = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in args.items()}
    InterpretedFunction(kernel)[(1,)](**copies, **options)
    return copies


def both(kernel, args, **options):
    """The results on the target and in the interpreter, which are the same."""
    a = interpreted(kernel, args, **options)["o"]
    b = a if ONLY_INTERPRETER else run(kernel, args, **options)["o"]
    assert torch.equal(a, b)
    return a


def stops(kernel, args, message, capfd, **options):
    with pytest.raises(TilewrightError, match=message):
        interpreted(kernel, args, **options)
    if not ONLY_INTERPRETER:
        assert_stops(lambda: run(kernel, args, **options), message, capfd)


@pytest.mark.own_process
@pytest.mark.parametrize("expression, dtype, x, fits, does_not, message", CASES, ids=[f"{c[0].replace(X, 'x').replace(Y, 'y')} {c[1]}" for c in CASES])
def test_what_leaves_its_type_stops_the_program(expression, dtype, x, fits, does_not, message, capfd):
    kernel = kernel_of(_BINARY.replace("EXPRESSION", expression))

    def args(y):
        a, b = arrays(dtype, x, y)
        return {"x": a, "y": b, "o": poisoned(dtype, 4), "N": 4}

    right = both(kernel, args(fits), debug=True)
    assert torch.equal(right, both(kernel, args(fits)))
    wrapped = both(kernel, args(does_not))  # without debug nothing is asked
    assert torch.equal(wrapped, both(kernel, args(does_not), debug=True, sanitize_overflow=False))
    stops(kernel, args(does_not), message, capfd, debug=True)


@pytest.mark.own_process
def test_the_line_is_the_users(capfd):
    source = """
        @triton.jit
        def kernel(x, o):
            a = tl.load(x)
            b = a - 1
            c = a + 1
            tl.store(o, b * 0 + c)
        """
    args = {"x": torch.tensor([2**31 - 1], dtype=torch.int32), "o": poisoned("int32", 1)}
    line = next(i for i, text in enumerate(kernel_of(source).module_source.splitlines(), 1) if "c = a + 1" in text)
    # "-": a simulator that executes the lowered text, which has no lines; what the device gets is held by the targets' own tests
    said = rf"(?s)((:{line}|{'-:[0-9]+' if SIMULATED else 'no simulator'})\b.*overflow detected for operation add|overflow detected for operation add.*:{line}\b)"
    stops(kernel_of(source), args, said, capfd, debug=True)


def test_what_may_wrap():
    """64 bits, tl.add and its like with sanitize_overflow=False, random numbers, bits, pointers, combiners of the user's own."""
    source = """
        @triton.jit
        def plus(a, b):
            return a + b

        @triton.jit
        def kernel(x, y, o, n):
            i = tl.arange(0, 4)
            v, w = tl.load(x + i), tl.load(y + i)
            w = w * w + w
            a = tl.add(v, 1, sanitize_overflow=False) ^ tl.mul(v, v, sanitize_overflow=False) ^ tl.sub(-2, v, sanitize_overflow=False) ^ (v << 3)
            a ^= tl.reduce(v, 0, plus) ^ tl.randint(n, i) ^ (tl.rand(n, i) * 100).to(tl.int32)
            tl.store(o + i, a ^ w.to(tl.int32))
        """
    args = {"x": torch.full((4,), 2**31 - 1, dtype=torch.int32), "y": torch.full((4,), 2**62 + 5, dtype=torch.int64), "o": poisoned("int32", 4), "n": 3}
    assert torch.equal(both(kernel_of(source), args, debug=True), both(kernel_of(source), args))


@pytest.mark.own_process
def test_lanes_that_a_mask_turns_off_are_checked_too(capfd):
    """As in Triton: the mask is of the load and the store, not of what stands between. Without ``other`` such lanes hold 0."""
    source = """
        @triton.jit
        def kernel(x, o, n, OTHER: tl.constexpr):
            i = tl.arange(0, 8)
            v = tl.load(x + i, mask=i < n, other=OTHER)
            tl.store(o + i, v + 1, mask=i < n)
        """
    args = {"x": torch.arange(8, dtype=torch.int32), "o": poisoned("int32", 8), "n": 5}
    assert both(kernel_of(source), {**args, "OTHER": 0}, debug=True).tolist()[:5] == [1, 2, 3, 4, 5]
    stops(kernel_of(source), {**args, "OTHER": 2**31 - 1}, "int32 overflow detected for operation add", capfd, debug=True)


def test_branches_that_are_not_taken_are_not_checked():
    source = """
        @triton.jit
        def kernel(x, o, n):
            v = tl.load(x)
            if n > 100:
                v = v + v
            for k in range(n):
                v -= k
            tl.store(o, v)
        """
    args = {"x": torch.tensor([2**31 - 1], dtype=torch.int32), "o": poisoned("int32", 1), "n": 4}
    assert both(kernel_of(source), args, debug=True).tolist() == [2**31 - 7]


def test_the_decorator_and_the_option(capfd):
    """debug of @jit turns the checks on in the interpreter as in compiled kernels; an option that is no yes or no is refused."""
    source = """
        @triton.jit(debug=True)
        def kernel(x, o):
            tl.store(o, tl.load(x) + 1)
        """
    args = {"x": torch.tensor([2**31 - 1], dtype=torch.int32), "o": poisoned("int32", 1)}
    with pytest.raises(TilewrightError, match=re.escape("int32 overflow detected for operation add")):
        interpreted(kernel_of(source), args)
    assert both(kernel_of(source), args, debug=False).tolist() == [-(2**31)]
