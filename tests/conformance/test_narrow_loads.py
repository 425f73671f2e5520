"""Products of tiles whose rows begin anywhere: loads of one element an access, whose addresses are made in more than one way."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import compare, poisoned, rng_of

HIGH = (1 << 31) - 5000  # an offset in elements to which a row's can be added in 32 bits, and no second one

# way → text before the loop, of the loop, after the product of each round
WAYS = {
    "pointers go forward": ("xp = x + (m % M)[:, None] * K + k[None, :]\n    wp = w + k[:, None] * N + (n % N)[None, :]",
                            "a = tl.load(xp, mask=k[None, :] < K - i, other=0)\n        b = tl.load(wp, mask=k[:, None] < K - i, other=0)",
                            "xp += BK\n        wp += BK * N"),
    "masks of rows": ("xp = x + m[:, None] * K + k[None, :]\n    wp = w + k[:, None] * N + n[None, :]",
                      "a = tl.load(xp, mask=(m[:, None] < M) & (k[None, :] < K - i), other=0)\n"
                      "        b = tl.load(wp, mask=(k[:, None] < K - i) & (n[None, :] < N), other=0)",
                      "xp += BK\n        wp += BK * N"),
    "pointers of the round": ("xp = x + (m % M)[:, None] * K + k[None, :]\n    wp = w + k[:, None] * N + (n % N)[None, :]",
                              "a = tl.load(xp + i, mask=k[None, :] < K - i, other=0)\n        b = tl.load(wp + i * N, mask=k[:, None] < K - i, other=0)", "pass"),
    "backwards": ("xp = x + M * K - 1 + (m % M)[:, None] * -K - k[None, :]\n    wp = w + K * N - 1 - k[:, None] * N - (n % N)[None, :]",
                  "a = tl.load(xp, mask=k[None, :] < K - i, other=0)\n        b = tl.load(wp, mask=k[:, None] < K - i, other=0)",
                  "xp -= BK\n        wp -= BK * N"),
    "wide offsets": ("xp = x + (m % M).to(tl.int64)[:, None] * K + k[None, :]\n    wp = w + k.to(tl.int64)[:, None] * N + (n % N)[None, :]",
                     "a = tl.load(xp, mask=k[None, :] < K - i, other=0)\n        b = tl.load(wp, mask=k[:, None] < K - i, other=0)",
                     "xp += BK\n        wp += (BK * N).to(tl.int64)"),
    "sums beyond 32 bits": (f"xp = x + ({HIGH} + (m % M) * K)[:, None] + ({HIGH} + k)[None, :]\n"
                            f"    wp = w + (-{HIGH} + k * N)[:, None] + (-{HIGH} + n % N)[None, :]",
                            f"a = tl.load(xp - {HIGH} - {HIGH}, mask=k[None, :] < K - i, other=0)\n"
                            f"        b = tl.load(wp + {HIGH} + {HIGH}, mask=k[:, None] < K - i, other=0)",
                            "xp += BK\n        wp += BK * N"),
    "offsets go forward": ("xo = (m % M)[:, None] * K + k[None, :]\n    wo = k[:, None] * N + (n % N)[None, :]",
                           "a = tl.load(x + xo, mask=k[None, :] < K - i, other=0)\n        b = tl.load(w + wo, mask=k[:, None] < K - i, other=0)",
                           "xo += BK\n        wo += BK * N"),
    "a step of its own each round": ("xp = x + (m % M)[:, None] * K + k[None, :]\n    wp = w + k[:, None] * N + (n % N)[None, :]\n    far = BK * N",
                                     "a = tl.load(xp, mask=k[None, :] < K - i, other=0)\n        b = tl.load(wp, mask=k[:, None] < K - i, other=0)",
                                     "xp += i - i + BK\n        wp += far + i - i"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("sizes, block, dtype", [((31, 61, 45), (32, 64, 32), "float16"), pytest.param((29, 27, 67), (32, 32, 32), "int8", marks=pytest.mark.nightly)])
def test_every_way_to_the_same_tiles(way, sizes, block, dtype):
    before, body, after = WAYS[way]
    (rows, columns, depth), rng = sizes, rng_of(way, sizes)
    x, w = (torch.from_numpy(rng.integers(-4, 5, s).astype(dtype)) for s in ((rows, depth), (depth, columns)))
    total = "tl.int32" if dtype == "int8" else "tl.float32"
    expected = x.numpy().astype(np.float64) @ w.numpy().astype(np.float64)
    if way == "backwards":  # each array is read from its end
        expected = expected[::-1, ::-1]
    y = poisoned("int32" if dtype == "int8" else "fp32", (rows, columns))
    compare(f"""
        @triton.jit
        def kernel(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
            m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
            {before.replace(chr(10), chr(10) + ' ' * 8)}
            acc = tl.zeros((BM, BN), {total})
            for i in range(0, K, BK):
                {body.replace(chr(10), chr(10) + ' ' * 8)}
                acc = tl.dot(a, b, acc)
                {after.replace(chr(10), chr(10) + ' ' * 8)}
            tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))
    """, dict(x=x, w=w, y=y, M=rows, N=columns, K=depth, BM=block[0], BN=block[1], BK=block[2]), expected={"y": expected.astype(y.numpy().dtype)}, num_warps=1)
