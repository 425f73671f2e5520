"""Kernels of chained products, in the forms that programs write them; test_chained_dots_simulated.py compares them with numpy."""

import tilewright as triton
import tilewright.language as tl


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, w_ptr, o_ptr, o2_ptr, lse_ptr, p_ptr, bias_ptr, keep_ptr, bounds_ptr, sums_ptr, N, scale,
              D: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, FORM: tl.constexpr, BEFORE: tl.constexpr,
              TOP: tl.constexpr, BIAS: tl.constexpr, KEEP: tl.constexpr, SLOPE: tl.constexpr, SHARED: tl.constexpr, STORE_P: tl.constexpr,
              USE_O: tl.constexpr, TWO: tl.constexpr, EARLY: tl.constexpr, KN: tl.constexpr, AFTER: tl.constexpr, STAGES: tl.constexpr):
    """Heads of (N, D), every SHARED of which have K and V in common. TOP: the rows' running maximum is taken off. BEFORE: Q is scaled, else
    the scores. EARLY: V is loaded before the scores. KN: K is loaded transposed. AFTER: what follows the loop besides the store of O."""
    pid, head = tl.program_id(0), tl.program_id(1)
    start = pid * BM
    rows = start + tl.arange(0, BM)
    columns, d, dv = tl.arange(0, BN), tl.arange(0, D), tl.arange(0, DV)
    k_ptr += head // SHARED * N * D
    v_ptr += head // SHARED * N * DV
    q = tl.load(q_ptr + head * N * D + rows[:, None] * D + d[None, :])
    if BEFORE:
        q = (q * scale).to(q.dtype)
    acc, acc2 = tl.zeros((BM, DV), tl.float32), tl.zeros((BM, DV), tl.float32)
    top, total = tl.full((BM,), -1e30, tl.float32), tl.zeros((BM,), tl.float32)
    low, high = 0, N
    if FORM == "causal, masked everywhere":
        high = start + BM
    if FORM == "window":
        low, high = tl.maximum(start - 64, 0) // BN * BN, tl.minimum(start + BM, N)
    if FORM == "bounds from memory":
        low, high = tl.load(bounds_ptr + 2 * pid), tl.load(bounds_ptr + 2 * pid + 1)
    if FORM == "nothing":
        high = N - N
    whole = high
    if FORM == "causal, two loops":
        whole, high = start // BN * BN, start + BM
    for phase in tl.static_range(2 if FORM == "causal, two loops" else 1):
        for n in tl.range(low if phase == 0 else whole, whole if phase == 0 else high, BN, num_stages=STAGES):
            at = n + columns
            k = tl.load(k_ptr + d[:, None] + at[None, :] * D) if KN else tl.trans(tl.load(k_ptr + at[:, None] * D + d[None, :]))
            if EARLY:
                v = tl.load(v_ptr + at[:, None] * DV + dv[None, :])
            s = tl.dot(q, k)
            if not BEFORE:
                s *= scale
            if BIAS:
                s += tl.load(bias_ptr + rows[:, None] * N + at[None, :])
            if SLOPE:
                s -= 0.01 * tl.abs(rows[:, None] - at[None, :]).to(tl.float32)
            if FORM == "causal, masked everywhere" or phase == 1:
                s = tl.where(rows[:, None] >= at[None, :], s, -1e30)
            if FORM == "window":
                s = tl.where((rows[:, None] >= at[None, :]) & (rows[:, None] - at[None, :] < 64), s, -1e30)
            if TOP:
                new = tl.maximum(top, tl.max(s, 1))
                p = tl.exp2(s - new[:, None])
                shrink = tl.exp2(top - new)
                total = total * shrink + tl.sum(p, 1)
                acc = acc * shrink[:, None]
                if TWO:
                    acc2 = acc2 * shrink[:, None]
                top = new
            else:
                p = tl.exp(s)
                total += tl.sum(p, 1)
            if KEEP:
                p = tl.where(tl.load(keep_ptr + rows[:, None] * N + at[None, :]) != 0, p, 0.0)
            if STORE_P:
                tl.store(p_ptr + rows[:, None] * N + at[None, :], p)
            if not EARLY:
                v = tl.load(v_ptr + at[:, None] * DV + dv[None, :])
            acc = tl.dot(p.to(v.dtype), v, acc)
            if TWO:
                acc2 = tl.dot(p.to(v.dtype), tl.load(w_ptr + at[:, None] * DV + dv[None, :]), acc2)
            if USE_O:
                acc = acc * 2.0
                total = total * 2.0 + tl.max(tl.abs(acc), 1) * 0.0
    acc = acc / total[:, None]
    if AFTER == "atomics":
        tl.atomic_add(sums_ptr + rows, tl.sum(acc, 1))
    if AFTER == "lse":
        tl.store(lse_ptr + head * N + rows, top + tl.log2(total))
    if AFTER == "assertion":
        tl.device_assert(total > 0.0, "nothing was seen")
    tl.store(o_ptr + head * N * DV + rows[:, None] * DV + dv[None, :], acc)
    if TWO:
        tl.store(o2_ptr + rows[:, None] * DV + dv[None, :], acc2 / total[:, None])


@triton.jit
def tile(pointer, first, N: tl.constexpr, D: tl.constexpr):
    """Rows first … first + N - 1 of an array of D columns."""
    return tl.load(pointer + (first + tl.arange(0, N))[:, None] * D + tl.arange(0, D)[None, :])


@triton.jit
def relu_step(q, k, v, acc):
    return tl.dot(tl.maximum(tl.dot(q, tl.trans(k)), 0.0).to(tl.float16), v, acc)


@triton.jit
def loops(q_ptr, k_ptr, v_ptr, o_ptr, N, M, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, FORM: tl.constexpr):
    """o = relu(q kᵀ) v. FORM: how the loop stands, and what else it does."""
    d = tl.arange(0, D)
    if FORM == "over tiles":
        for number in tl.range(tl.program_id(0), M // BM, tl.num_programs(0)):
            q = tile(q_ptr, number * BM, BM, D)
            acc = tl.zeros((BM, D), tl.float32)
            for i in range(0, N, BN):
                acc = relu_step(q, tile(k_ptr, i, BN, D), tile(v_ptr, i, BN, D), acc)
            tl.store(o_ptr + (number * BM + tl.arange(0, BM))[:, None] * D + d[None, :], acc)
    else:
        first = tl.program_id(0) * BM
        out = o_ptr + (first + tl.arange(0, BM))[:, None] * D + d[None, :]
        q = tile(q_ptr, first, BM, D)
        acc = tl.zeros((BM, D), tl.float32)
        if FORM == "backwards":
            for i in range(N - BN, -1, -BN):
                acc = relu_step(q, tile(k_ptr, i, BN, D), tile(v_ptr, i, BN, D), acc)
        elif FORM == "while":
            i = 0
            while i < N:
                acc = relu_step(q, tile(k_ptr, i, BN, D), tile(v_ptr, i, BN, D), acc)
                i += BN
        elif FORM == "block pointers":
            k_block = tl.make_block_ptr(k_ptr, (N, D), (D, 1), (0, 0), (BN, D), (1, 0))
            v_block = tl.make_block_ptr(v_ptr, (N, D), (D, 1), (0, 0), (BN, D), (1, 0))
            for _ in range(0, tl.cdiv(N, BN)):
                acc = relu_step(q, tl.load(k_block), tl.load(v_block), acc)
                k_block, v_block = tl.advance(k_block, (BN, 0)), tl.advance(v_block, (BN, 0))
        elif FORM == "rotated by hand":
            p = tl.maximum(tl.dot(q, tl.trans(tile(k_ptr, 0, BN, D))), 0.0).to(tl.float16)
            for i in range(BN, N, BN):
                s = tl.dot(q, tl.trans(tile(k_ptr, i, BN, D)))
                acc = tl.dot(p, tile(v_ptr, i - BN, BN, D), acc)
                p = tl.maximum(s, 0.0).to(tl.float16)
            acc = tl.dot(p, tile(v_ptr, N - BN, BN, D), acc)
        elif FORM == "loads ahead by hand":
            k, v = tile(k_ptr, 0, BN, D), tile(v_ptr, 0, BN, D)
            for i in range(0, N, BN):
                acc = relu_step(q, k, v, acc)
                following = tl.minimum(i + BN, N - BN)
                k, v = tile(k_ptr, following, BN, D), tile(v_ptr, following, BN, D)
        elif FORM == "under an if":
            for i in range(0, N, BN):
                if i != BN:
                    acc = relu_step(q, tile(k_ptr, i, BN, D), tile(v_ptr, i, BN, D), acc)
            acc = relu_step(q, tile(k_ptr, BN, BN, D), tile(v_ptr, BN, BN, D), acc)
        elif FORM == "two levels":
            for h in range(0, N, 2 * BN):
                part = tl.zeros((BM, D), tl.float32)
                for i in range(h, h + 2 * BN, BN):
                    part = relu_step(q, tile(k_ptr, i, BN, D), tile(v_ptr, i, BN, D), part)
                acc += part
        elif FORM == "tiles of two loops":
            k, v = tile(k_ptr, 0, BN, D), tile(v_ptr, 0, BN, D)
            for i in range(BN, N, BN):
                acc = relu_step(q, tile(k_ptr, i, BN, D), tile(v_ptr, i, BN, D), acc)
            for _ in range(0, 2):
                acc = tl.dot(tl.maximum(tl.dot(q, tl.trans(k)) * 0.5, 0.0).to(tl.float16), v, acc)
        elif FORM == "counts its rounds":
            count = 0
            last = tl.zeros((BM, BN), tl.float32)
            for i in range(0, N, BN):
                last = tl.dot(q, tl.trans(tile(k_ptr, i, BN, D)))
                acc = tl.dot((tl.maximum(last, 0.0) * (count + 1)).to(tl.float16), tile(v_ptr, count * BN, BN, D), acc)
                count += 1
            acc += tl.sum(last, 1)[:, None] + count
        elif FORM == "sum in the scores":
            for i in range(0, N, BN):
                s = tl.dot(q, tl.trans(tile(k_ptr, i, BN, D))) + tl.max(acc, 1)[:, None] * 0.0
                acc = tl.dot(tl.maximum(s, 0.0).to(tl.float16), tile(v_ptr, i, BN, D), acc)
        elif FORM == "stores each round":
            for i in range(0, N, BN):
                acc = relu_step(q, tile(k_ptr, i, BN, D), tile(v_ptr, i, BN, D), acc)
                tl.store(out, acc)
        tl.store(out, acc)


@triton.jit
def linear_attention(q_ptr, k_ptr, v_ptr, o_ptr, steps, D: tl.constexpr, E: tl.constexpr, C: tl.constexpr, DECAY: tl.constexpr,
                     WITHIN: tl.constexpr):
    """The state, a sum of products, is the operand of the next chunk's product: o = q S (+ the chunk itself), S = decay · S + kᵀ v."""
    head = tl.program_id(0) * steps * C
    c = tl.arange(0, C)
    state = tl.zeros((D, E), tl.float32)
    for i in range(steps):
        first = head + i * C
        q, k, v = tile(q_ptr, first, C, D), tile(k_ptr, first, C, D), tile(v_ptr, first, C, E)
        o = tl.dot(q, state.to(q.dtype))
        if WITHIN:
            o = tl.dot(tl.where(c[:, None] >= c[None, :], tl.dot(q, tl.trans(k)), 0.0).to(v.dtype), v, o)
        if DECAY:
            state = state * 0.5
        state = tl.dot(tl.trans(k), v, state)
        tl.store(o_ptr + (first + c)[:, None] * E + tl.arange(0, E)[None, :], o)


@triton.jit
def three_products(q_ptr, k_ptr, w_ptr, v_ptr, o_ptr, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, E: tl.constexpr,
                   OUTSIDE: tl.constexpr):
    """o += relu(relu(q kᵀ) w) v; w is the same in every round (OUTSIDE: and loaded once)."""
    first = tl.program_id(0) * BM
    q, w = tile(q_ptr, first, BM, D), tile(w_ptr, 0, BN, E)
    acc = tl.zeros((BM, D), tl.float32)
    for i in range(0, N, BN):
        s = tl.maximum(tl.dot(q, tl.trans(tile(k_ptr, i, BN, D))), 0.0).to(tl.float16)
        t = tl.maximum(tl.dot(s, w if OUTSIDE else tile(w_ptr, 0, BN, E)), 0.0).to(tl.float16)
        acc = tl.dot(t, tile(v_ptr, i // BN * E, E, D), acc)
    tl.store(o_ptr + (first + tl.arange(0, BM))[:, None] * D + tl.arange(0, D)[None, :], acc)


@triton.jit
def mlp(x_ptr, w1_ptr, w2_ptr, o_ptr, H, K, BM: tl.constexpr, BH: tl.constexpr, BK: tl.constexpr, OUT: tl.constexpr, NESTED: tl.constexpr):
    """relu(x w1) w2 over blocks of the hidden dim. NESTED: a loop along k for each; else k is one block."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    h, k, out = tl.arange(0, BH), tl.arange(0, BK), tl.arange(0, OUT)
    acc = tl.zeros((BM, OUT), tl.float32)
    for first in range(0, H, BH):
        if NESTED:
            s = tl.zeros((BM, BH), tl.float32)
            for at in range(0, K, BK):
                s = tl.dot(tl.load(x_ptr + m[:, None] * K + (at + k)[None, :]), tl.load(w1_ptr + (at + k)[:, None] * H + (first + h)[None, :]), s)
        else:
            s = tl.dot(tl.load(x_ptr + m[:, None] * K + k[None, :]), tl.load(w1_ptr + k[:, None] * H + (first + h)[None, :]))
        acc = tl.dot(tl.maximum(s, 0.0).to(tl.float16), tl.load(w2_ptr + (first + h)[:, None] * OUT + out[None, :]), acc)
    tl.store(o_ptr + m[:, None] * OUT + out[None, :], acc)


@triton.jit
def latent_attention(q_ptr, c_ptr, o_ptr, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, ONCE: tl.constexpr):
    """K and V are the same tiles. ONCE: loaded once a round."""
    first = tl.program_id(0) * BM
    q = tile(q_ptr, first, BM, D)
    acc = tl.zeros((BM, D), tl.float32)
    top, total = tl.full((BM,), -1e30, tl.float32), tl.zeros((BM,), tl.float32)
    for i in range(0, N, BN):
        k = tile(c_ptr, i, BN, D)
        s = tl.dot(q, tl.trans(k)) * 0.2
        new = tl.maximum(top, tl.max(s, 1))
        p, shrink = tl.exp2(s - new[:, None]), tl.exp2(top - new)
        total, top = total * shrink + tl.sum(p, 1), new
        acc = tl.dot(p.to(tl.float16), k if ONCE else tile(c_ptr, i, BN, D), acc * shrink[:, None])
    tl.store(o_ptr + (first + tl.arange(0, BM))[:, None] * D + tl.arange(0, D)[None, :], acc / total[:, None])
