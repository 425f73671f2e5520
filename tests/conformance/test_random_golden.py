"""The random numbers are Triton's: golden ones, made by Triton 3.6's own functions in its interpreter, for seeds of 32 and of 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

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
