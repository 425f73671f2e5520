"""Offsets of random numbers that are floats: what Triton 3.6 takes, fp16, bf16 and fp32, which are the numbers of the integers they round to."""

from __future__ import annotations

import pytest
import torch

from tilewright.conformance.harness import TORCH, compare, poisoned


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_float_offsets_are_integers(dtype):
    x = torch.tensor([0.0, 0.99, 1.0, 1.5, 2.0, 100.0, 1000.0, 0.25] * 2, dtype=torch.float32).to(TORCH[dtype])
    compare("""
        @triton.jit
        def kernel(x, o, u, i, s):
            k = tl.arange(0, 16)
            v = tl.load(x + k)
            w = v.to(tl.uint32)
            tl.store(o + k, tl.randint(5, v))
            same = (tl.rand(5, v) == tl.rand(5, w)) & (tl.randn(5, v) == tl.randn(5, w))
            same &= (tl.randn4x(5, v)[2] == tl.randn4x(5, w)[2]) & (tl.rand4x(5, v)[3] == tl.rand4x(5, w)[3])
            tl.store(u + k, same.to(tl.int32))
            tl.store(i + k, tl.randint4x(5, v)[3] ^ tl.randint4x(5, w)[3])
            tl.store(s, tl.randint(5, tl.load(x + 5)))
        """, {"x": x, "o": poisoned("int32", (16,)), "u": poisoned("int32", (16,)), "i": poisoned("int32", (16,)),
              "s": poisoned("int32", (1,))},
        expected={"u": torch.ones(16, dtype=torch.int32), "i": torch.zeros(16, dtype=torch.int32)})


def test_bits_of_floats_are_counters():
    compare("""
        @triton.jit
        def kernel(x, y, o, w):
            k = tl.arange(0, 16)
            v, d = tl.load(x + k), tl.load(y + k)
            a, b, c, e = tl.philox(5, v, 0, v, v)
            bits = v.to(tl.uint32, bitcast=True)
            f, g, h, i = tl.philox(5, bits, 0, bits, bits)
            tl.store(o + k, (a ^ f) | (b ^ g) | (c ^ h) | (e ^ i))
            bits = d.to(tl.uint64, bitcast=True)
            a, b, c, e = tl.philox(5, d, d, d, d)
            f, g, h, i = tl.philox(5, bits, bits, bits, bits)
            tl.store(w + k, (a ^ f) | (b ^ g) | (c ^ h) | (e ^ i))
        """, {"x": torch.linspace(-3, 3, 16), "y": torch.linspace(-3, 3, 16, dtype=torch.float64), "o": poisoned("int32", (16,)), "w": poisoned("int64", (16,))},
        expected={"o": torch.zeros(16, dtype=torch.int32), "w": torch.zeros(16, dtype=torch.int64)})
