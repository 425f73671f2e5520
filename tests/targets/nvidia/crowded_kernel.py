"""A kernel whose loop keeps so many tiles that the vectors it loads first do not fit beside them, when blocks are 128×128 and D is 64."""

import tilewright as triton
import tilewright.language as tl


@triton.jit
def crowded(q_ptr, k_ptr, v_ptr, g_ptr, a_ptr, b_ptr, dk_ptr, dv_ptr, steps, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    """The gradients of attention's keys and values with products for the softmax: p = s·a, ds = p·(dp − b)."""
    n, d = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, D)
    own = n[:, None] * D + d[None, :]
    k, v = tl.load(k_ptr + own), tl.load(v_ptr + own)
    dk, dv = tl.zeros((N, D), tl.float32), tl.zeros((N, D), tl.float32)
    for i in range(steps):
        m = i * M + tl.arange(0, M)
        at = m[:, None] * D + d[None, :]
        q, g = tl.load(q_ptr + at), tl.load(g_ptr + at)
        a, b = tl.load(a_ptr + m), tl.load(b_ptr + m)
        p = tl.dot(k, tl.trans(q)) * a[None, :]
        dv = tl.dot(p.to(tl.float16), g, dv)
        ds = p * (tl.dot(v, tl.trans(g)) - b[None, :])
        dk = tl.dot(ds.to(tl.float16), q, dk)
    tl.store(dk_ptr + own, dk)
    tl.store(dv_ptr + own, dv)
