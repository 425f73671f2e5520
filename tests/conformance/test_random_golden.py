"""The random numbers are Triton's: golden ones, made by Triton 3.6's own functions in its interpreter, for seeds of 32 and of 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import compare, poisoned

# seed → (randint of offsets 0, 7919, …; xor of randint4x's four of offsets 5, 6, …; rand of 0, 31, …; randn of 0, 17, …)
GOLDEN = {
    42: ([-1662324653, -624720543, 522683822, 1740738781, 480111678, -745271729, 177134889, 906454305],
         "0x1.8c543c0000000p-1 0x1.c8bcaa0000000p-1 0x1.ced3b40000000p-2 0x1.3b38960000000p-1 0x1.523bea0000000p-1 0x1.ae25840000000p+0 0x1.effec60000000p-2 0x1.4358f60000000p+0"),
    1099511627783: ([871882489, 1002428034, -2067172319, 1526347970, -2115958455, -1108160628, -1149584493, -1600225243],
         "0x1.9fbef60000000p-2 0x1.b9d1cc0000000p-2 0x1.ea19b40000000p-1 0x1.4f85f00000000p-1 0x1.2641cc0000000p+0 0x1.30dfe40000000p-1 0x1.44643e0000000p+0 0x1.e45a480000000p+0"),
}


@pytest.mark.parametrize("seed", GOLDEN)
def test_tritons_numbers(seed):
    """Integers and uniform floats bit for bit; normal ones as exactly as log, sqrt and cos are."""
    integers, texts = GOLDEN[seed]
    floats = np.array([float.fromhex(t) for t in texts.split()], np.float32)
    reference = compare("""
        @triton.jit
        def kernel(seed, o, f, n):
            i = tl.arange(0, 4)
            tl.store(o + i, tl.randint(seed, i * 7919))
            a, b, c, d = tl.randint4x(seed, i + 5)
            tl.store(o + 4 + i, a ^ b ^ c ^ d)
            tl.store(f + i, tl.rand(seed, i * 31))
            tl.store(n + i, tl.randn(seed, i * 17))
        """, {"seed": seed, "o": poisoned("int32", 8), "f": poisoned("fp32", 4), "n": poisoned("fp32", 4)}, num_warps=1,
        expected={"o": np.array(integers, np.int32), "f": floats[:4]}, tolerance={"n": {"rtol": 1e-5}})
    assert np.allclose(reference["n"].numpy(), floats[4:], rtol=1e-6)


# the same of rand4x of offsets 0, 13, … (its four one after the other), randn4x of 0, 11, …, and randint of the 64-bit offsets 5, 5 + 4000000028, …
FOUR = {
    42: (
        "0x1.8c543cp-1 0x1.c1e172p-2 0x1.148f8ap-2 0x1.1c8332p-1 0x1.dfd522p-1 0x1.e57f52p-1 "
        "0x1.f35646p-1 0x1.f8456ep-1 0x1.2bf508p-3 0x1.538f5ep-1 0x1.0b7bacp-1 0x1.73dfaap-1 "
        "0x1.5d0acep-1 0x1.4cd75cp-3 0x1.3d96e0p-1 0x1.a6060ap-3",
        "0x1.523beap-1 0x1.4aeda2p-1 -0x1.51f86ep-3 0x1.37101cp-1 -0x1.19d4fep-2 -0x1.4f9a8ap-1 "
        "-0x1.e021f0p+0 0x1.6bbcd0p-4 -0x1.a17130p-1 0x1.b5882cp-1 -0x1.f90e94p+0 0x1.fb1d90p-1 "
        "-0x1.c85048p+0 -0x1.86ae2ap-1 0x1.49df8ep-1 -0x1.5cfa4ep-4",
        [1352259593, 539973052, 2028676257, -793046170]),
    1099511627783: (
        "0x1.9fbef6p-2 0x1.d125a4p-2 0x1.b08744p-2 0x1.6f7dd4p-3 0x1.62162ap-4 0x1.fe7034p-2 "
        "0x1.ead598p-1 0x1.f6c3fcp-1 0x1.6f84a2p-4 0x1.0206f2p-1 0x1.8e9b48p-2 0x1.e2079ep-1 "
        "0x1.8944c0p-1 0x1.9b194cp-5 0x1.26d022p-3 0x1.3bcd3ap-1",
        "0x1.2641ccp+0 0x1.3801fcp-5 -0x1.82cdc8p+1 -0x1.75280ap+0 0x1.634e9ep-1 0x1.eb55fep+0 "
        "0x1.f1bef4p-1 -0x1.f20820p-2 0x1.fe6bbcp-3 -0x1.c77c84p-1 0x1.dff938p-3 -0x1.a0056cp+0 "
        "-0x1.174260p+1 0x1.b9a65ap-1 0x1.b83a4ep-2 -0x1.9505f4p+0",
        [1833906785, 1051916537, 58296915, -1801412257]),
}
# pair_uniform_to_normal of (0, 0.25), (0.1, 0.6), (0.5, 0.125), (0.9, 0.01): the first ones, the second ones
PAIRS = (
    "-0x1.0a7b26p-22 -0x1.bc7288p+0 0x1.aa4498p-1 0x1.d52218p-2 0x1.6b5f50p+2 -0x1.42e8fep+0 "
    "0x1.aa4498p-1 0x1.d83ee8p-6")


def _floats(text):
    return np.array([float.fromhex(t) for t in text.split()], np.float32)


@pytest.mark.parametrize("seed", FOUR)
def test_four_at_a_time_and_wide_offsets(seed):
    uniform, normal, wide = FOUR[seed]
    reference = compare("""
        @triton.jit
        def kernel(seed, u, n, o):
            i = tl.arange(0, 4)
            a, b, c, d = tl.rand4x(seed, i * 13)
            tl.store(u + i, a)
            tl.store(u + 4 + i, b)
            tl.store(u + 8 + i, c)
            tl.store(u + 12 + i, d)
            a, b, c, d = tl.randn4x(seed, i * 11)
            tl.store(n + i, a)
            tl.store(n + 4 + i, b)
            tl.store(n + 8 + i, c)
            tl.store(n + 12 + i, d)
            tl.store(o + i, tl.randint(seed, i.to(tl.int64) * 1000000007 * 4 + 5))
        """, {"seed": seed, "u": poisoned("fp32", 16), "n": poisoned("fp32", 16), "o": poisoned("int32", 4)}, num_warps=1,
        expected={"u": _floats(uniform), "o": np.array(wide, np.int32)}, tolerance={"n": {"rtol": 1e-5}})
    assert np.allclose(reference["n"].numpy(), _floats(normal), rtol=2e-6, atol=1e-6)


def test_pairs_of_normal_numbers():
    reference = compare("""
        @triton.jit
        def kernel(u, v, o):
            i = tl.arange(0, 4)
            first, second = tl.pair_uniform_to_normal(tl.load(u + i), tl.load(v + i))
            tl.store(o + i, first)
            tl.store(o + 4 + i, second)
        """, {"u": torch.tensor([0.0, 0.1, 0.5, 0.9]), "v": torch.tensor([0.25, 0.6, 0.125, 0.01]), "o": poisoned("fp32", 8)}, num_warps=1,
        tolerance={"o": {"rtol": 1e-5, "atol": 1e-6}})
    assert np.allclose(reference["o"].numpy(), _floats(PAIRS), rtol=2e-6, atol=1e-6)
