"""umulhi, div_rn, sqrt_rn, fdiv, clamp's rules for NaN, debug_barrier and static_print: against numpy's and Python's exact answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import compare, fresh_rng, poisoned, random_array, special_floats

N = 64


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_high_halves_of_products(dtype):
    rng = fresh_rng()
    x, y = random_array(dtype, N, rng), torch.from_numpy(rng.permutation(random_array(dtype, N, rng).numpy()))
    bits = int(dtype[-2:])
    mask = (1 << bits) - 1
    high = [((a & mask) * (b & mask)) >> bits for a, b in zip(x.tolist(), y.tolist())]
    compare("""
        @triton.jit
        def kernel(p, q, o):
            i = tl.arange(0, 64)
            tl.store(o + i, tl.umulhi(tl.load(p + i), tl.load(q + i)))
        """, {"p": x, "q": y, "o": poisoned(dtype, N)}, expected={"o": np.array(high, f"uint{bits}").view(dtype)}, num_warps=1)


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_correctly_rounded_quotients_and_roots(dtype):
    rng = fresh_rng()
    x, y = special_floats(dtype, N, rng), special_floats(dtype, N, rng)
    y = y[torch.from_numpy(rng.permutation(N))]
    with np.errstate(all="ignore"):
        quotient, root = x.numpy() / y.numpy(), np.sqrt(x.numpy())
    compare("""
        @triton.jit
        def kernel(p, q, d, f, r):
            i = tl.arange(0, 64)
            x, y = tl.load(p + i), tl.load(q + i)
            tl.store(d + i, tl.div_rn(x, y))
            tl.store(f + i, tl.fdiv(x, y, ieee_rounding=True))
            tl.store(r + i, tl.sqrt_rn(x))
        """, {"p": x, "q": y, **{o: poisoned(dtype, N) for o in "dfr"}}, expected={"d": quotient, "f": quotient, "r": root}, num_warps=1)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64"])
def test_clamp_and_nan(dtype):
    """Without propagation a NaN among the first two gives the bound; with it, NaN in x stays."""
    x = special_floats(dtype, N, fresh_rng())
    w = x.double().numpy()
    compare("""
        @triton.jit
        def kernel(p, o, q):
            i = tl.arange(0, 64)
            x = tl.load(p + i)
            tl.store(o + i, tl.clamp(x, -1.5, 2.5))
            tl.store(q + i, tl.clamp(x, -1.5, 2.5, propagate_nan=tl.PropagateNan.ALL))
        """, {"p": x, "o": poisoned(dtype, N), "q": poisoned(dtype, N)}, num_warps=1,
        expected={"o": torch.from_numpy(np.where(np.isnan(w), -1.5, np.clip(w, -1.5, 2.5))).to(x.dtype), "q": torch.from_numpy(np.clip(w, -1.5, 2.5)).to(x.dtype)})


def test_barriers_and_prints_of_the_compiler(capfd):
    compare("""
        @triton.jit
        def kernel(o, B: tl.constexpr):
            i = tl.arange(0, B)
            tl.static_print(f"block of {B}, twice {B * 2}", B)
            tl.store(o + i, i)
            tl.debug_barrier()
            x = tl.load(o + (B - 1 - i))
            tl.debug_barrier()
            tl.store(o + i, x)
        """, {"o": poisoned("int32", N), "B": N}, expected={"o": np.arange(N, dtype=np.int32)[::-1]})
    assert "block of 64, twice 128 64" in capfd.readouterr().out
