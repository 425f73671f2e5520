"""Faults of the language that breakers found: lambdas, combiners with branches, called functions that print and assert."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.conformance.harness import assert_stops, compare, kernel_of, poisoned, random_array, rng_of, run

LAMBDAS = """
    @triton.jit
    def twice(f, x):
        x = f(x)
        return f(x)

    @triton.jit
    def kernel(o, n):
        k = 3
        g = lambda x: x + k
        tl.store(o, g(n))
        k = 50
        tl.store(o + 1, g(n))
        for i in range(n):
            k += i
            tl.store(o + 2 + i, twice(g, i))
        if n > 3:
            k = 7
            tl.store(o + 7, g(1))
        else:
            k = 9
        tl.store(o + 8, g(1))
        h = lambda x: (lambda y: y * k + x)
        inner = h(10)
        k = 1000
        tl.store(o + 9, inner(3))
        k = 5
        d = lambda a, b=k, *rest, c=4: a * 1000 + b * 100 + c * 10 + len(rest)
        k = 6
        tl.store(o + 10, d(n))
        tl.store(o + 11, d(n, 1, 2, 3))
        tl.store(o + 12, d(b=2, a=n, c=7))
        through = lambda f, x: f(x)
        tl.store(o + 13, through(lambda y: through(g, y) * 2, 3))
"""

COMBINERS = """
    @triton.jit
    def larger(a, b):
        if tl.abs(a) > tl.abs(b):
            return a
        elif a == -b:
            return tl.maximum(a, b)
        return b

    @triton.jit
    def largest_at(a, i, b, j):
        if a > b:
            return a, i
        if a == b:
            return a, tl.minimum(i, j)
        return b, j

    @triton.jit
    def gcd(a, b):
        while b != 0:
            a, b = b, a % b
        return a

    @triton.jit
    def kernel(p, largest, at, sizes, divisors, scanned):
        i = tl.arange(0, 16)
        x = tl.load(p + i[:, None] * 16 + i[None, :])
        v, w = tl.reduce((x, tl.broadcast_to(i[None, :], (16, 16))), 1, largest_at)
        tl.store(largest + i, v)
        tl.store(at + i, w)
        tl.store(sizes + i, tl.reduce(x, 0, larger))
        tl.store(divisors + i, tl.reduce(tl.abs(x) * 6, 1, gcd))
        v, w = tl.associative_scan((x, tl.broadcast_to(i[:, None], (16, 16))), 0, largest_at, reverse=True)
        tl.store(scanned + i[:, None] * 16 + i[None, :], w)
"""


def test_lambdas_read_variables_when_called():
    expected = [8, 55, *(2 * (50 + s) + i for i, s in enumerate((0, 1, 3, 6, 10))), 8, 8, 3 * 1000 + 10, 5540, 5142, 5270, 2 * (3 + 6)]
    compare(LAMBDAS, {"o": poisoned("int32", len(expected)), "n": 5}, expected={"o": np.array(expected, np.int32)})


@pytest.mark.parametrize("warps", [1, 4])
def test_combiners_with_branches_and_loops(warps):
    p = random_array("int32", (16, 16), rng_of("combiners"), small=True) * 5
    x = p.numpy().astype(np.int64)
    first = np.argmax(x, 1)
    sizes = np.abs(x).max(0)
    expected = {"largest": x.max(1).astype(np.int32), "at": first.astype(np.int32),
                "sizes": np.where((x == sizes).any(0), sizes, -sizes).astype(np.int32),
                "divisors": np.gcd.reduce(np.abs(x) * 6, axis=1).astype(np.int32),
                "scanned": np.array([[r + np.argmax(x[r:, c]) for c in range(16)] for r in range(16)], np.int32)}
    compare(COMBINERS, {"p": p, **{name: poisoned("int32", value.shape) for name, value in expected.items()}}, expected=expected, num_warps=warps)


CALLED_REPORTS = """
    @triton.jit(noinline=True)
    def inner(x, n):
        if n > 5:
            tl.device_assert(x < n, "inner limit")
        tl.device_print("inner ", x)
        return x + 1

    @triton.jit(noinline=True)
    def outer(x, n):
        y = inner(x, n)
        for k in range(2):
            y = inner(y, n)
        return x, y

    @triton.jit
    def kernel(o, n):
        x, y = outer(tl.program_id(0) * 10 + 1, n)
        tl.store(o + tl.program_id(0), y)
"""


@pytest.mark.own_process
def test_called_functions_print_and_assert(capfd):
    kernel = kernel_of(CALLED_REPORTS)
    out = run(kernel, {"o": poisoned("int32", 2), "n": 5}, (2,), debug=True)
    assert out["o"].tolist() == [4, 14]
    text = capfd.readouterr().out
    for value in (1, 2, 3, 11, 12, 13):
        assert len(re.findall(rf"idx \(\) inner: {value}$", text, re.M)) == 1, text
    assert_stops(lambda: run(kernel, {"o": poisoned("int32", 2), "n": 6}, (2,), debug=True), "inner limit", capfd)
