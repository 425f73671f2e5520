"""Tiles whose layout changes through more memory than a program shares: the exchange goes in rounds.

Triton's AMD target splits these too; a transposed store of 128 KB was refused here where a work-group has 64 KB.
"""

import pytest

from tilewright.conformance.harness import compare, poisoned, random_array, rng_of

TRANSPOSED = """
    @triton.jit
    def kernel(x, o, M: tl.constexpr, N: tl.constexpr):
        v = tl.load(x + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
        tl.store(o + tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :], tl.trans(v))
"""


@pytest.mark.parametrize("dtype, m, n, warps", [("fp32", 128, 256, 8), ("int64", 64, 256, 4), ("fp16", 512, 128, 8)])
def test_transposed_tiles(dtype, m, n, warps):
    x = random_array(dtype, (m, n), rng_of("large", dtype))
    compare(TRANSPOSED, {"x": x, "o": poisoned(dtype, (n, m)), "M": m, "N": n}, expected={"o": x.T.contiguous()}, num_warps=warps)


def test_transposed_beside_operands_of_a_loop():
    """The product's operands keep their memory; the conversion in the loop takes what is left."""
    rng = rng_of("beside")
    x, a, b = random_array("fp32", (128, 128), rng, small=True), random_array("fp16", (64, 96), rng, small=True), random_array("fp16", (96, 64), rng, small=True)
    want = (a.double() @ b.double()).float()
    compare("""
        @triton.jit
        def kernel(x, a, b, o, c, K, S: tl.constexpr, M: tl.constexpr, BK: tl.constexpr):
            i = tl.arange(0, S)
            m, k = tl.arange(0, M), tl.arange(0, BK)
            v = tl.load(x + i[:, None] * S + i[None, :])
            acc = tl.zeros((M, M), tl.float32)
            for k0 in range(0, K, BK):
                acc = tl.dot(tl.load(a + m[:, None] * K + k0 + k[None, :]), tl.load(b + (k0 + k[:, None]) * M + m[None, :]), acc)
                tl.store(o + i[:, None] * S + i[None, :], tl.trans(v) + k0)
            tl.store(c + m[:, None] * M + m[None, :], acc)
        """, {"x": x, "a": a, "b": b, "o": poisoned("fp32", (128, 128)), "c": poisoned("fp32", (64, 64)), "K": 96, "S": 128, "M": 64, "BK": 32},
        expected={"o": x.T.contiguous() + 64, "c": want}, num_warps=8)
