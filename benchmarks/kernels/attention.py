"""Attention, softmax(q kᵀ · scale) v: forward by pointers and by descriptors, and backward (FlashAttention-2, Dao 2023, section 3.1).

Arrays are (heads, N, D), contiguous; N is a multiple of the blocks. ``scale`` holds log2(e), since the powers are of 2.
"""

from switch import tl, triton


@triton.jit
def forward_step(q, k, v, acc, total, top, scale, rows, columns, MASK: tl.constexpr):
    """One block of keys: k is (D, BLOCK_N), v is (BLOCK_N, D). ``top`` is the rows' maximum so far, times scale."""
    scores = tl.dot(q, k)
    if MASK:
        scores = tl.where(rows[:, None] >= columns[None, :], scores, -1.0e30)
    new = tl.maximum(top, tl.max(scores, 1) * scale)
    p = tl.exp2(scores * scale - new[:, None])
    shrink = tl.exp2(top - new)
    total = total * shrink + tl.sum(p, 1)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
    return acc, total, new


@triton.jit
def forward_pointers(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, N, scale, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                     CAUSAL: tl.constexpr):
    start = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * N
    rows = start + tl.arange(0, BLOCK_M)
    block = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, D)
    k_ptr += head * D
    v_ptr += head * D
    q = tl.load(q_ptr + head * D + rows[:, None] * D + dims[None, :])
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    top = tl.full((BLOCK_M,), -1.0e30, dtype=tl.float32)
    whole = N
    if CAUSAL:
        whole = start // BLOCK_N * BLOCK_N
    for n in range(0, whole, BLOCK_N):
        k = tl.load(k_ptr + (n + block)[None, :] * D + dims[:, None])
        v = tl.load(v_ptr + (n + block)[:, None] * D + dims[None, :])
        acc, total, top = forward_step(q, k, v, acc, total, top, scale, rows, n + block, False)
    if CAUSAL:
        for n in range(whole, start + BLOCK_M, BLOCK_N):
            k = tl.load(k_ptr + (n + block)[None, :] * D + dims[:, None])
            v = tl.load(v_ptr + (n + block)[:, None] * D + dims[None, :])
            acc, total, top = forward_step(q, k, v, acc, total, top, scale, rows, n + block, True)
    acc = acc / total[:, None]
    tl.store(lse_ptr + head + rows, top + tl.log2(total))
    tl.store(o_ptr + head * D + rows[:, None] * D + dims[None, :], acc.to(o_ptr.dtype.element_ty))


@triton.jit
def forward_descriptors(q_desc, k_desc, v_desc, o_desc, lse_ptr, N, scale, D: tl.constexpr, BLOCK_M: tl.constexpr,
                        BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WARP_SPECIALIZE: tl.constexpr, OUT: tl.constexpr):
    """The descriptors are of (heads · N, D)."""
    start = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1) * N
    rows = start + tl.arange(0, BLOCK_M)
    block = tl.arange(0, BLOCK_N)
    q = q_desc.load([head + start, 0])
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    top = tl.full((BLOCK_M,), -1.0e30, dtype=tl.float32)
    whole = N
    if CAUSAL:
        whole = start // BLOCK_N * BLOCK_N
    for n in tl.range(0, whole, BLOCK_N, warp_specialize=WARP_SPECIALIZE):
        k = tl.trans(k_desc.load([head + n, 0]))
        v = v_desc.load([head + n, 0])
        acc, total, top = forward_step(q, k, v, acc, total, top, scale, rows, n + block, False)
    if CAUSAL:
        for n in tl.range(whole, start + BLOCK_M, BLOCK_N, warp_specialize=WARP_SPECIALIZE):
            k = tl.trans(k_desc.load([head + n, 0]))
            v = v_desc.load([head + n, 0])
            acc, total, top = forward_step(q, k, v, acc, total, top, scale, rows, n + block, True)
    acc = acc / total[:, None]
    tl.store(lse_ptr + head + rows, top + tl.log2(total))
    o_desc.store([head + start, 0], acc.to(OUT))


@triton.jit
def backward_delta(o_ptr, do_ptr, delta_ptr, D: tl.constexpr, BLOCK: tl.constexpr):
    """delta = Σ_d o · do of each row; rows of all heads are counted through."""
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    places = rows[:, None] * D + tl.arange(0, D)[None, :]
    o = tl.load(o_ptr + places).to(tl.float32)
    do = tl.load(do_ptr + places).to(tl.float32)
    tl.store(delta_ptr + rows, tl.sum(o * do, 1))


@triton.jit
def keys_step(dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, m, keys, scale, D: tl.constexpr, BLOCK_M: tl.constexpr,
              MASK: tl.constexpr):
    """Add one block of queries to dk (without its scale) and dv. Scores stand transposed: (keys, queries)."""
    rows = m + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, D)
    q = tl.load(q_ptr + rows[:, None] * D + dims[None, :])
    do = tl.load(do_ptr + rows[:, None] * D + dims[None, :])
    lse = tl.load(lse_ptr + rows)
    delta = tl.load(delta_ptr + rows)
    p = tl.exp2(tl.dot(k, tl.trans(q)) * scale - lse[None, :])
    if MASK:
        p = tl.where(rows[None, :] >= keys[:, None], p, 0.0)
    dv = tl.dot(p.to(do.dtype), do, dv)
    ds = p * (tl.dot(v, tl.trans(do)) - delta[None, :])
    dk = tl.dot(ds.to(q.dtype), q, dk)
    return dk, dv


@triton.jit
def backward_keys(q_ptr, k_ptr, v_ptr, do_ptr, dk_ptr, dv_ptr, lse_ptr, delta_ptr, N, scale, plain_scale, D: tl.constexpr,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    """dk and dv of BLOCK_N keys, over all queries that see them, BLOCK_M at a time (BLOCK_M divides BLOCK_N)."""
    start = tl.program_id(0) * BLOCK_N
    head = tl.program_id(1).to(tl.int64) * N
    keys = start + tl.arange(0, BLOCK_N)
    dims = tl.arange(0, D)
    own = head * D + keys[:, None] * D + dims[None, :]
    q_ptr += head * D
    do_ptr += head * D
    lse_ptr += head
    delta_ptr += head
    k = tl.load(k_ptr + own)
    v = tl.load(v_ptr + own)
    dk = tl.zeros((BLOCK_N, D), dtype=tl.float32)
    dv = tl.zeros((BLOCK_N, D), dtype=tl.float32)
    first = 0
    if CAUSAL:
        for m in range(start, start + BLOCK_N, BLOCK_M):
            dk, dv = keys_step(dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, m, keys, scale, D, BLOCK_M, True)
        first = start + BLOCK_N
    for m in range(first, N, BLOCK_M):
        dk, dv = keys_step(dk, dv, k, v, q_ptr, do_ptr, lse_ptr, delta_ptr, m, keys, scale, D, BLOCK_M, False)
    tl.store(dk_ptr + own, (dk * plain_scale).to(dk_ptr.dtype.element_ty))
    tl.store(dv_ptr + own, dv.to(dv_ptr.dtype.element_ty))


@triton.jit
def queries_step(dq, q, do, lse, delta, k_ptr, v_ptr, n, rows, scale, D: tl.constexpr, BLOCK_N: tl.constexpr, MASK: tl.constexpr):
    """Add one block of keys to dq (without its scale)."""
    keys = n + tl.arange(0, BLOCK_N)
    dims = tl.arange(0, D)
    k = tl.load(k_ptr + keys[:, None] * D + dims[None, :])
    v = tl.load(v_ptr + keys[:, None] * D + dims[None, :])
    p = tl.exp2(tl.dot(q, tl.trans(k)) * scale - lse[:, None])
    if MASK:
        p = tl.where(rows[:, None] >= keys[None, :], p, 0.0)
    ds = p * (tl.dot(do, tl.trans(v)) - delta[:, None])
    return tl.dot(ds.to(k.dtype), k, dq)


@triton.jit
def backward_queries(q_ptr, k_ptr, v_ptr, do_ptr, dq_ptr, lse_ptr, delta_ptr, N, scale, plain_scale, D: tl.constexpr,
                     BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr):
    """dq of BLOCK_M queries, over all keys that they see, BLOCK_N at a time (BLOCK_N divides BLOCK_M)."""
    start = tl.program_id(0) * BLOCK_M
    head = tl.program_id(1).to(tl.int64) * N
    rows = start + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, D)
    own = head * D + rows[:, None] * D + dims[None, :]
    k_ptr += head * D
    v_ptr += head * D
    q = tl.load(q_ptr + own)
    do = tl.load(do_ptr + own)
    lse = tl.load(lse_ptr + head + rows)
    delta = tl.load(delta_ptr + head + rows)
    dq = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    whole = N
    if CAUSAL:
        whole = start
    for n in range(0, whole, BLOCK_N):
        dq = queries_step(dq, q, do, lse, delta, k_ptr, v_ptr, n, rows, scale, D, BLOCK_N, False)
    if CAUSAL:
        for n in range(start, start + BLOCK_M, BLOCK_N):
            dq = queries_step(dq, q, do, lse, delta, k_ptr, v_ptr, n, rows, scale, D, BLOCK_N, True)
    tl.store(dq_ptr + own, (dq * plain_scale).to(dq_ptr.dtype.element_ty))
