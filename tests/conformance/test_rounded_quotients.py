"""Quotients and roots whose exact values lie next to the middle between two floats, where a reciprocal that is one place off shows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import compare, fresh_rng, poisoned

N = 512
MANTISSA, TYPE = {"fp32": 23, "fp64": 52}, {"fp32": np.float32, "fp64": np.float64}


def hard_quotients(dtype, n, rng):
    """Integers A, B with A·2^k = B·(2Q + 1) ± 1: A / B is as near to the middle of two floats as quotients come. Half of the divisors are just below a power of
    two; powers of two over these are among them (B of all ones and A of one bit is the case of its own that needs more than the usual refinement)."""
    bits, pairs = MANTISSA[dtype] + 1, []
    while len(pairs) < n:
        near = rng.random() < 0.5
        b = (1 << bits) - 2 * int(rng.integers(0, 40)) - 1 if near else int(rng.integers(1 << (bits - 1), 1 << bits)) | 1
        for k in (bits, bits + 1):
            a = int(rng.choice([1, -1])) * pow(pow(2, k, b), -1, b) % b
            pairs += [(a, b), (1 << int(rng.integers(0, bits)), b)]
    a, b = (np.array(x[:n], TYPE[dtype]) for x in zip(*pairs))
    scale = rng.integers(-25, 26, n)
    return np.ldexp(a, scale) * rng.choice([1, -1], n).astype(a.dtype), np.ldexp(b, -scale)


def hard_roots(dtype, n, rng):
    """X with X·2^k = M² - c for odd M and small c: sqrt(X) is next to the middle between the floats M ± 1 halves. M is a root of c + … modulo 2^k, bit by bit."""
    bits, found = MANTISSA[dtype] + 1, []
    while len(found) < n:
        c = 8 * int(rng.integers(-30, 30)) + 1
        for k in (bits + 1, bits + 2):
            root = 1
            for bit in range(3, k + 1):
                root += ((root * root - c) >> bit - 1 & 1) << bit - 2
            for m in {(s * root + t) % (1 << k - 1) for s in (1, -1) for t in (0, 1 << k - 2)}:
                m |= 1 << bits
                x, rest = divmod(m * m - c, 1 << k)
                if not rest and x.bit_length() <= bits:
                    found.append(x << k % 2)  # an even power of two below it
    scale = 2 * rng.integers(-25, 26, n)
    return np.ldexp(np.array(found[:n], TYPE[dtype]), scale)


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_quotients_and_roots_next_to_the_middle(dtype):
    rng = fresh_rng()
    (x, y), z = hard_quotients(dtype, N, rng), hard_roots(dtype, N, rng)
    plain = "x / y" if dtype == "fp64" else "tl.fdiv(x, y, ieee_rounding=True)"
    compare(f"""
        @triton.jit
        def kernel(p, q, s, d, f, r, g, B: tl.constexpr):
            i = tl.arange(0, B)
            x, y, z = tl.load(p + i), tl.load(q + i), tl.load(s + i)
            tl.store(d + i, tl.div_rn(x, y))
            tl.store(f + i, {plain})
            tl.store(r + i, tl.sqrt_rn(z))
            tl.store(g + i, libdevice.sqrt(z))
        """, {"p": torch.from_numpy(x), "q": torch.from_numpy(y), "s": torch.from_numpy(z), **{o: poisoned(dtype, N) for o in "dfrg"}, "B": N},
        expected={"d": x / y, "f": x / y, "r": np.sqrt(z), **({"g": np.sqrt(z)} if dtype == "fp64" else {})}, num_warps=2)
