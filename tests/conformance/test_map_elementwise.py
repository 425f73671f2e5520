"""tl.map_elementwise: branches and loops of single elements, several results, packs; what its function may not do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import ONLY_INTERPRETER, SIMULATED, compare, poisoned, rng_of, run
from tilewright.conformance.harness import kernel_of as kernel_from
from tilewright.dialects.errors import TypeMismatchError, UnsupportedLanguageConstruct

_KERNEL = """
    @triton.jit
    def collatz(n, limit):
        steps = 0
        while n > 1:
            if n % 2 == 0:
                n = n // 2
            else:
                n = 3 * n + 1
            steps += 1
        if steps > limit:
            return steps * 1.0
        return steps * 0.5

    @triton.jit
    def two(a0, a1, b0, b1):
        if a0 > b0:
            r0 = a0 - b0
        else:
            r0 = b0 * 2
        r1 = a1 - b1 if a1 > b1 else b1 * 2
        return r0, r1, (a0 * 0.5).to(tl.float16), (a1 * 0.5).to(tl.float16)

    @triton.jit
    def four(a, b, c, d):
        return a > 3, b > 3, c > 3, d > 3

    @triton.jit
    def kernel(pa, pb, steps, difference, half, large, power, N: tl.constexpr):
        i = tl.arange(0, N)
        a = tl.load(pa + i)
        b = tl.load(pb + i)
        tl.store(steps + i, tl.map_elementwise(collatz, a, 20))
        x, y = tl.map_elementwise(two, a, b, pack=2)
        tl.store(difference + i, x)
        tl.store(half + i, y)
        z = tl.map_elementwise(four, a, pack=4)
        tl.store(large + i, z[0])
        tl.store(power + i, tl.map_elementwise(lambda e: e * e + tl.program_id(0), b))
    """


def _collatz(n):
    steps = 0
    while n > 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps if steps > 20 else steps / 2


@pytest.mark.parametrize("n, warps", [(1, 1), (2, 4), (64, 1), (256, 4)] if not SIMULATED else [(2, 4), (256, 2)])
def test_map_elementwise(n, warps):
    rng = rng_of("map", n)
    a, b = (rng.integers(1, 60, n).astype(np.int32) for _ in range(2))
    expected = {"steps": np.array([_collatz(int(x)) for x in a], np.float32), "difference": np.where(a > b, a - b, b * 2),
                "half": (a / 2).astype(np.float16), "large": a > 3, "power": b * b}
    args = {"pa": torch.from_numpy(a), "pb": torch.from_numpy(b), "steps": poisoned("fp32", n), "difference": poisoned("int32", n),
            "half": poisoned("fp16", n), "large": poisoned("int1", n), "power": poisoned("int32", n)}
    compare(_KERNEL, {**args, "N": n}, expected=expected, num_warps=warps)


def test_map_elementwise_of_broadcast_operands_and_layouts():
    """A row, a column and a scalar; the result goes on into a reduction."""
    source = """
        @triton.jit
        def pick(x, y, s):
            if x < y:
                return x * s
            else:
                return y - s

        @triton.jit
        def kernel(px, py, o, M: tl.constexpr, N: tl.constexpr):
            x = tl.load(px + tl.arange(0, M))[:, None]
            y = tl.load(py + tl.arange(0, N))[None, :]
            z = tl.map_elementwise(pick, x, y, 3.0)
            tl.store(o + tl.arange(0, M), tl.max(z, 1))
            tl.store(o + M + tl.arange(0, 1), tl.map_elementwise(pick, tl.max(x, 0, keep_dims=True), 1.5, 2.0).reshape([1]))
        """
    rng = rng_of("pick")
    x, y = rng.integers(-8, 8, 16).astype(np.float32), rng.integers(-8, 8, 64).astype(np.float32)
    rows = np.where(x[:, None] < y, x[:, None] * 3, y - 3).max(1)
    top = x.max()
    compare(source, {"px": torch.from_numpy(x), "py": torch.from_numpy(y), "o": poisoned("fp32", 17), "M": 16, "N": 64},
            expected={"o": np.append(rows, top * 2 if top < 1.5 else -0.5).astype(np.float32)})


@pytest.mark.skipif(ONLY_INTERPRETER, reason="the interpreter runs what compiled functions of elements may not do")
@pytest.mark.parametrize("body, pack, error, text", [
    ("return a, a, a", 2, TypeMismatchError, "returns 2 values of each result, not 3"),
    ("return a, a * 1.5", 2, TypeMismatchError, "cast them to one type"),
    ("return a + tl.load(p)", 1, UnsupportedLanguageConstruct, "may only compute with scalars; it uses tt.load"),
    ("return a + tl.arange(0, 4)", 1, TypeMismatchError, "returns scalars"),
    ("return a + tl.sum(tl.arange(0, 4), 0)", 1, UnsupportedLanguageConstruct, "works on scalars"),
    ("return a", 0, TypeMismatchError, "at least 1, not 0"),
])
def test_errors(body, pack, error, text):
    source = f"""
        @triton.jit
        def kernel(p):
            x = tl.map_elementwise(function, tl.arange(0, 8), {"p, " if "p)" in body else ""}pack={pack})
            tl.store(p + tl.arange(0, 8), x)

        @triton.jit
        def function(a{", p" if "p)" in body else ", b" if pack == 2 else ""}):
            {body}
        """
    with pytest.raises(error, match=text) as caught:
        run(kernel_from(source), {"p": poisoned("int32", 8)})
    assert caught.value.line > 0
