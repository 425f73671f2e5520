"""Kernels of many shapes are promoted to descriptors and compute the same: loop forms, orders of arguments, transposes, batches, masks."""

import importlib.util
import sys
import types
from pathlib import Path

import attention
import numpy as np
import pytest
from descriptor_oracle import Compiled
from tt_execution import define

import tilewright
import tilewright.language

B = dict(BM=16, BN=32, BK=16)


def values(*shape, seed=0, dtype=np.float16):
    """Small integers in rows whose strides are multiples of 16 bytes, so that sums are exact and copies possible."""
    wide = np.random.default_rng(seed).integers(-3, 4, (*shape[:-1], -(-shape[-1] // 8) * 8)).astype(dtype)
    wide[..., shape[-1]:] = 99  # what a mask that is lost would let in
    return wide


def strides(x):
    return [s // x.itemsize for s in x.strides]


def matmul(source, m=32, n=64, k=48, a_columns=False, b_columns=False, batch=None, grid=None, **more):
    """Compile ``kernel`` with a (m, k), b (k, n), c (m, n) and their strides under the usual names."""
    lead = () if batch is None else (batch,)

    def operand(rows, columns, turned, seed):
        x = values(*lead, *((columns, rows) if turned else (rows, columns)), seed=seed)
        s = strides(x)
        return x, (s[:-2] + s[:-3:-1] if turned else s)

    a, sa = operand(m, k, a_columns, 1)
    b, sb = operand(k, n, b_columns, 2)
    c = values(*lead, m, n, seed=3)
    args = dict(a_ptr=a, b_ptr=b, c_ptr=c, M=m, N=n, K=k, **more)
    for name, s in zip("abc", (sa, sb, strides(c))):
        if batch is not None:
            args[f"s{name}z"] = s[0]
        args[f"s{name}0"], args[f"s{name}1"] = s[-2:]
    kernel = define(source)
    constexprs = {n: v for n, v in {**B, "G": 2}.items() if n in kernel.arg_names}
    args = {n: v for n, v in args.items() if n in kernel.arg_names}
    grid = grid or (-(-m // B["BM"]), -(-n // B["BN"]), *lead)
    return Compiled(kernel, args, constexprs), grid


def head(arguments="a_ptr, b_ptr, c_ptr, M, N, K, sa0, sa1, sb0, sb1, sc0, sc1"):
    return f"""
@triton.jit
def kernel({arguments}, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
"""


INDICES = """
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
"""
OUT = """
    tl.store(c_ptr + i[:, None] * sc0 + j[None, :] * sc1, acc.to(tl.float16), mask=(i[:, None] < M) & (j[None, :] < N))
"""
CARRIED = """
    pa = a_ptr + i[:, None] * sa0 + k[None, :] * sa1
    pb = b_ptr + (k[:, None] * sb0 + j[None, :] * sb1)
"""
UNEVEN = [(32, 64, 48), (17, 40, 33), (16, 32, 1), (50, 8, 24)]

LOOPS = {
    "carried, no mask": CARRIED + """
    for _ in range(0, K, BK):
        acc += tl.dot(tl.load(pa), tl.load(pb))
        pa += BK * sa1
        pb += BK * sb0
""",
    "carried, mask": CARRIED + """
    for step in range(tl.cdiv(K, BK)):
        a = tl.load(pa, mask=(i[:, None] < M) & (k[None, :] < K - step * BK), other=0.0)
        b = tl.load(pb, mask=(k[:, None] < K - step * BK) & (j[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        pa += BK * sa1
        pb += BK * sb0
""",
    "recomputed": """
    for k0 in range(0, K, BK):
        kk = k0 + k
        a = tl.load(a_ptr + i[:, None] * sa0 + kk[None, :] * sa1, mask=(i < M)[:, None] & (kk < K)[None, :])
        b = tl.load(b_ptr + kk[:, None] * sb0 + j[None, :] * sb1, mask=(K > kk[:, None]) & (N - 1 >= j[None, :]))
        acc += tl.dot(a, b)
""",
    "carried indices": """
    for _ in range(0, K, BK):
        a = tl.load(a_ptr + (i[:, None] * sa0 + k[None, :] * sa1), mask=(i[:, None] < M) & (k[None, :] <= K - 1), other=0)
        b = tl.load(b_ptr + k[:, None] * sb0 + j * sb1, mask=(k[:, None] < K) & (j[None, :] < N), other=0)
        acc = tl.dot(a, b, acc)
        k += BK
""",
    "advanced scalars": """
    left = K
    for _ in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptr + i[:, None] * sa0 + k[None, :] * sa1, mask=(i[:, None] < M) & (k[None, :] < left), other=0)
        b = tl.load(b_ptr + k[:, None] * sb0 + j[None, :] * sb1, mask=(k[:, None] < left) & (j[None, :] < N), other=0)
        acc = tl.dot(a, b, acc)
        a_ptr += BK * sa1
        b_ptr += BK * sb0
        left -= BK
""",
    "64-bit offsets": """
    for k0 in range(0, K, BK):
        kk = (k0 + k).to(tl.int64)
        a = tl.load(a_ptr + i.to(tl.int64)[:, None] * sa0 + kk[None, :] * sa1, mask=(i[:, None] < M) & (kk[None, :] < K))
        b = tl.load(b_ptr + kk[:, None] * sb0 + j.to(tl.int64)[None, :] * sb1, mask=(kk[:, None] < K) & (j[None, :] < N))
        acc += tl.dot(a, b)
""",
    "hints": """
    i = tl.max_contiguous(tl.multiple_of(i, BM), BM)
    for k0 in range(0, K, BK):
        k0 = tl.multiple_of(k0, BK)
        a = tl.load(a_ptr + i[:, None] * sa0 + (k0 + k)[None, :] * sa1, mask=(i[:, None] < M) & (k0 + k[None, :] < K), cache_modifier=".cg")
        b = tl.load(b_ptr + (k0 + k)[:, None] * sb0 + j[None, :] * sb1, mask=(k0 + k[:, None] < K) & (j[None, :] < N), eviction_policy="evict_last")
        acc += tl.dot(a, b)
""",
}


@pytest.mark.parametrize("m, n, k", UNEVEN)
@pytest.mark.parametrize("form", LOOPS)
def test_loop_forms(form, m, n, k):
    if form == "carried, no mask":
        m, n, k = 32, 64, 48
    c, grid = matmul(head() + INDICES + LOOPS[form] + OUT, m, n, k)
    assert c.chosen() == ["tma", "tma"] and c.chosen("tl.store") == ["tma"], c.choices
    assert c.boxes() == [[16, 16], [16, 32], [16, 32]]
    c.check(grid)


def test_hints_are_kept():
    c, _ = matmul(head() + INDICES + LOOPS["hints"] + OUT)
    assert 'cache = "cg"' in c.text and 'evict = "evict_last"' in c.text


@pytest.mark.parametrize("a_columns", [False, True])
@pytest.mark.parametrize("b_columns", [False, True])
@pytest.mark.parametrize("form", ["carried, mask", "recomputed"])
def test_transposed_operands(form, a_columns, b_columns):
    c, grid = matmul(head() + INDICES + LOOPS[form] + OUT, 24, 40, 40, a_columns=a_columns, b_columns=b_columns)
    assert c.chosen() == ["tma", "tma"], c.choices
    assert c.text.count("tt.trans") == a_columns + b_columns
    assert c.boxes()[1] == ([32, 16] if b_columns else [16, 32])
    c.check(grid)


@pytest.mark.parametrize("arguments", [
    "N, sb0, sb1, c_ptr, K, b_ptr, M, a_ptr, sc0, sc1, sa0, sa1",
    "sc1, sc0, sb1, sb0, sa1, sa0, K, N, M, c_ptr, b_ptr, a_ptr"])
def test_order_of_arguments(arguments):
    c, grid = matmul(head(arguments) + INDICES + LOOPS["carried, mask"] + OUT, 17, 40, 33)
    assert c.chosen() == ["tma", "tma"] and c.chosen("tl.store") == ["tma"]
    c.check(grid)


def test_batch():
    source = head("a_ptr, b_ptr, c_ptr, M, N, K, saz, sbz, scz, sa0, sa1, sb0, sb1, sc0, sc1") + INDICES + """
    z = tl.program_id(2)
    a_ptr += z * saz
    b_ptr += z.to(tl.int64) * sbz
    c_ptr += scz * z
""" + LOOPS["carried, mask"] + OUT
    c, grid = matmul(source, 24, 40, 40, batch=3)
    assert c.chosen() == ["tma", "tma"] and c.chosen("tl.store") == ["tma"], c.choices
    assert c.boxes() == [[1, 16, 16], [1, 16, 32], [1, 16, 32]]
    c.check(grid)


def test_batch_and_head_from_one_program_id():
    source = head("a_ptr, b_ptr, c_ptr, M, N, K, H, saz, sah, sbz, sbh, scz, sch, sa0, sa1, sb0, sb1, sc0, sc1") + INDICES + """
    z = tl.program_id(2) // H
    h = tl.program_id(2) % H
    a_ptr += z * saz + h * sah
    b_ptr += (z * sbz + h * sbh).to(tl.int64)
    c_ptr += z.to(tl.int64) * scz + h.to(tl.int64) * sch
""" + LOOPS["recomputed"] + OUT
    m, n, k, heads = 24, 40, 40, 2
    x = {name: values(3, heads, *s, seed=i) for i, (name, s) in enumerate((("a", (m, k)), ("b", (k, n)), ("c", (m, n))))}
    args = {f"{name}_ptr": v for name, v in x.items()} | dict(M=m, N=n, K=k, H=heads)
    for name, v in x.items():
        args.update(zip((f"s{name}z", f"s{name}h", f"s{name}0", f"s{name}1"), strides(v)))
    c = Compiled(define(source), args, B)
    assert c.chosen() == ["tma", "tma"] and c.chosen("tl.store") == ["tma"], c.choices
    assert c.boxes() == [[1, 1, 16, 16], [1, 1, 16, 32], [1, 1, 16, 32]]
    c.check((2, 2, 6))


def test_grouped_order_and_remainders():
    source = head("a_ptr, b_ptr, c_ptr, M, N, K, sa0, sa1, sb0, sb1, sc0, sc1, G: tl.constexpr") + """
    pid = tl.program_id(axis=0)
    across = tl.cdiv(N, BN)
    width = G * across
    group = pid // width
    size = min(tl.cdiv(M, BM) - group * G, G)
    row = group * G + (pid % size)
    column = (pid % width) // size
    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    wrapped_i = tl.max_contiguous(tl.multiple_of(i % M, BM), BM)
    wrapped_j = tl.max_contiguous(tl.multiple_of(j % N, BN), BN)
    pa = a_ptr + (wrapped_i[:, None] * sa0 + k[None, :] * sa1)
    pb = b_ptr + (k[:, None] * sb0 + wrapped_j[None, :] * sb1)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(0, tl.cdiv(K, BK)):
        acc += tl.dot(tl.load(pa, mask=k[None, :] < K - step * BK, other=0.), tl.load(pb, mask=k[:, None] < K - step * BK, other=0.))
        pa += BK * sa1
        pb += BK * sb0
""" + OUT
    c, _ = matmul(source, 48, 64, 40)
    assert c.chosen() == ["tma", "tma"], c.choices
    c.check((6,))


def test_split_k_with_atomics():
    source = head("a_ptr, b_ptr, c_ptr, M, N, K, sa0, sa1, sb0, sb1, sc0, sc1, SPLIT: tl.constexpr") + INDICES + """
    k = tl.program_id(2) * BK + k
    pa = a_ptr + i[:, None] * sa0 + k[None, :] * sa1
    pb = b_ptr + k[:, None] * sb0 + j[None, :] * sb1
    for step in range(0, tl.cdiv(K, BK * SPLIT)):
        left = K - step * (BK * SPLIT)
        acc += tl.dot(tl.load(pa, mask=k[None, :] < left, other=0.0), tl.load(pb, mask=k[:, None] < left, other=0.0))
        pa += BK * SPLIT * sa1
        pb += BK * SPLIT * sb0
    tl.atomic_add(c_ptr + i[:, None] * sc0 + j[None, :] * sc1, acc.to(tl.float16))
"""
    a, b, out = values(16, 40, seed=1), values(40, 32, seed=2), np.zeros((16, 32), np.float16)
    args = dict(a_ptr=a, b_ptr=b, c_ptr=out, M=16, N=32, K=40)
    for name, x in zip("abc", (a, b, out)):
        args[f"s{name}0"], args[f"s{name}1"] = strides(x)
    c = Compiled(define(source), args, {**B, "SPLIT": 2})
    assert c.chosen() == ["tma", "tma"], c.choices
    c.check((1, 1, 2))


def test_persistent_loop_over_tiles():
    source = head("a_ptr, b_ptr, c_ptr, M, N, K, sa0, sa1, sb0, sb1, sc0, sc1") + """
    across = tl.cdiv(N, BN)
    k = tl.arange(0, BK)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0)):
        i = (tile // across) * BM + tl.arange(0, BM)
        j = (tile % across) * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            kk = step * BK + k
            a = tl.load(a_ptr + i[:, None] * sa0 + kk[None, :] * sa1, mask=(i[:, None] < M) & (kk[None, :] < K), other=0.0)
            b = tl.load(b_ptr + kk[:, None] * sb0 + j[None, :] * sb1, mask=(kk[:, None] < K) & (j[None, :] < N), other=0.0)
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + i[:, None] * sc0 + j[None, :] * sc1, acc.to(tl.float16), mask=(i[:, None] < M) & (j[None, :] < N))
"""
    c, _ = matmul(source, 50, 72, 40)
    assert c.chosen() == ["tma", "tma"] and c.chosen("tl.store") == ["tma"], c.choices
    c.check((3,))


@pytest.mark.parametrize("m, n, k", UNEVEN)
@pytest.mark.parametrize("turned", [False, True])
def test_block_pointers(turned, m, n, k):
    b = """tl.make_block_ptr(b_ptr, (N, K), (sb1, sb0), (tl.program_id(1) * BN, 0), (BN, BK), (1, 0))""" if turned else \
        """tl.make_block_ptr(b_ptr, (K, N), (sb0, sb1), (0, tl.program_id(1) * BN), (BK, BN), (1, 0))"""
    source = head() + f"""
    a = tl.make_block_ptr(a_ptr, (M, K), (sa0, sa1), (tl.program_id(0) * BM, 0), (BM, BK), (1, 0))
    b = {b}
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        x, y = tl.load(a, boundary_check=(0, 1)), tl.load(b, boundary_check=(0, 1), padding_option="zero")
        acc = tl.dot(x, {'y.T' if turned else 'y'}, acc)
        a = tl.advance(a, (0, BK))
        b = tl.advance(b, {'(0, BK)' if turned else '(BK, 0)'})
    c = tl.make_block_ptr(c_ptr, (M, N), (sc0, sc1), (tl.program_id(0) * BM, tl.program_id(1) * BN), (BM, BN), (1, 0))
    tl.store(c, acc.to(tl.float16), boundary_check=(0, 1))
"""
    c, grid = matmul(source, m, n, k, b_columns=turned)
    assert c.chosen() == ["tma", "tma"] and c.chosen("tl.store") == ["tma"], c.choices
    c.check(grid)


def test_block_pointer_that_starts_outside():
    """Coordinates below 0 read zeros, as the mask has it; where they are not within a unit of 16 bytes, by a copy."""
    source = head() + INDICES + """
    a = tl.make_block_ptr(a_ptr, (M, K), (sa0, sa1), (tl.program_id(0) * BM - 5, -8), (BM, BK), (1, 0))
    x = tl.load(a, boundary_check=(0, 1))
    y = tl.load(b_ptr + k[:, None] * sb0 + j[None, :] * sb1, mask=(k[:, None] < K) & (j[None, :] < N))
    acc = tl.dot(x, y)
""" + OUT
    c, grid = matmul(source, 24, 40, 11)
    assert c.chosen() == ["tma", "tma"], c.choices
    c.check(grid)
    c, grid = matmul(source.replace("-8)", "-3)"), 24, 40, 11)
    assert c.chosen() == ["copies must begin at a multiple of 16 bytes in the innermost dim", "tma"], c.choices
    c.check(grid)


def test_batched_dot_of_three_dims():
    source = """
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa0, sa1, sb0, sb1, sc0, sc1, saz, sbz, scz, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    z, i, j, k = tl.arange(0, 2), tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    a = tl.load(a_ptr + z[:, None, None] * saz + i[None, :, None] * sa0 + k[None, None, :] * sa1, mask=k[None, None, :] < K)
    b = tl.load(b_ptr + z[:, None, None] * sbz + k[None, :, None] * sb0 + j[None, None, :] * sb1, mask=k[None, :, None] < K)
    tl.store(c_ptr + z[:, None, None] * scz + i[None, :, None] * sc0 + j[None, None, :] * sc1, tl.dot(a, b).to(tl.float16))
"""
    for turned in (False, True):
        c, _ = matmul(source, 16, 32, 12, batch=2, b_columns=turned)
        assert c.chosen() == ["tma", "tma"] and c.chosen("tl.store") == ["tma"], c.choices
        c.check((1,))


# ---------------------------------------------------------------------------------------------------- attention
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("n_ctx", [32, 40, 7])
def test_example_attention(n_ctx, causal):
    heads, dim = 2, 16
    q, k, v, o = (np.random.default_rng(i).standard_normal((heads, n_ctx, dim)).astype(np.float16) for i in range(4))
    args = dict(q_ptr=q, k_ptr=k, v_ptr=v, o_ptr=o, n_ctx=n_ctx, qk_scale=0.3)
    for name in "qkvo":
        args[f"stride_{name}h"] = n_ctx * dim
        args[f"stride_{name}{'n' if name in 'kv' else 'm'}"] = dim
    c = Compiled(attention.attention_kernel, args, dict(HEAD_DIM=dim, BLOCK_M=16, BLOCK_N=16, CAUSAL=causal, PRECISION="ieee"))
    assert c.chosen() == ["tma"] * len(c.chosen()) and len(c.chosen()) == 5 and c.chosen("tl.store") == ["tma"], c.choices
    assert len(c.boxes()) == 4  # the two loops share K's and V's
    c.check((-(-n_ctx // 16), heads))


@pytest.mark.parametrize("n_ctx", [64, 48])
def test_attention_of_constant_sizes_with_advanced_pointers(n_ctx):
    """Everything is known but the program: heads are told from rows by the masks and constants alone."""
    source = """
@triton.jit
def kernel(out, vee, kay, cue, HEADS: tl.constexpr, N: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    start, zh = tl.program_id(0) * BM, tl.program_id(1)
    base = (zh // HEADS).to(tl.int64) * (HEADS * N * D) + (zh % HEADS).to(tl.int64) * (N * D)
    rows, columns, d = start + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    q = tl.load(cue + base + rows[:, None] * D + d[None, :], mask=rows[:, None] < N)
    q = (q * 0.5).to(tl.float16)
    kp = kay + base + columns[None, :] * D + d[:, None]
    vp = vee + base + columns[:, None] * D + d[None, :]
    total, top, acc = tl.zeros([BM], tl.float32), tl.full([BM], -1e30, tl.float32), tl.zeros([BM, D], tl.float32)
    for n in tl.range(0, N, BN):
        k = tl.load(kp)
        s = tl.dot(q, k)
        new = tl.maximum(top, tl.max(s, 1))
        p, alpha = tl.exp2(s - new[:, None]), tl.exp2(top - new)
        total, acc, top = total * alpha + tl.sum(p, 1), acc * alpha[:, None], new
        acc = tl.dot(p.to(tl.float16), tl.load(vp), acc)
        kp += BN * D
        vp += BN * D
    tl.store(out + base + rows[:, None] * D + d[None, :], (acc / total[:, None]).to(tl.float16), mask=rows[:, None] < N)
"""
    heads, dim = 2, 32
    q, k, v, o = (np.random.default_rng(i).standard_normal((2, heads, n_ctx, dim)).astype(np.float16) for i in range(4))
    c = Compiled(define(source), dict(out=o, vee=v, kay=k, cue=q), dict(HEADS=heads, N=n_ctx, D=dim, BM=32, BN=16))
    assert c.chosen() == ["tma"] * 3 and c.chosen("tl.store") == ["tma"], c.choices
    c.check((-(-n_ctx // 32), 4))


def test_attention_backward_forms():
    """Transposed tiles of one argument read in two places, bases moved by arithmetic on a program id, loops from a program's start on."""
    source = """
@triton.jit
def kernel(Q, K, DQ, stride_z, stride_h, stride_tok, H, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    bhid = tl.program_id(2)
    adj = (stride_h * (bhid % H) + stride_z * (bhid // H)).to(tl.int64)
    Q += adj
    K += adj
    DQ += adj
    start_n = tl.program_id(0) * BN
    offs_n, offs_d = start_n + tl.arange(0, BN), tl.arange(0, D)
    k = tl.load(K + offs_n[:, None] * stride_tok + offs_d[None, :])
    offs_m = start_n + tl.arange(0, BM)
    qT_ptrs = Q + offs_m[None, :] * stride_tok + offs_d[:, None]
    acc = tl.zeros([BN, D], dtype=tl.float32)
    for step in range((N - start_n) // BM):
        qT = tl.load(qT_ptrs)
        s = tl.dot(k, qT)
        acc += tl.dot(s.to(tl.float16), tl.trans(qT))
        qT_ptrs += BM * stride_tok
    tl.store(DQ + offs_n[:, None] * stride_tok + offs_d[None, :], acc)
"""
    q, k = (np.random.default_rng(i).integers(-1, 2, (2, 3, 64, 32)).astype(np.float16) for i in range(2))
    out = np.zeros((2, 3, 64, 32), np.float32)
    args = dict(Q=q, K=k, DQ=out, stride_z=3 * 64 * 32, stride_h=64 * 32, stride_tok=32, H=3, N=64)
    c = Compiled(define(source), args, dict(D=32, BM=16, BN=32))
    assert c.chosen() == ["tma", "tma"] and c.chosen("tl.store") == ["tma"], c.choices
    c.check((2, 1, 6))


# ------------------------------------------------------------------------------- rows that must only exist somewhere
CLAMPS = {"where": "tl.where({0} < {1}, {0}, 0)", "minimum": "tl.minimum({0}, {1} - 1)", "minimum, reversed": "tl.minimum({1} - 1, {0})",
          "remainder": "{0} % {1}"}


@pytest.mark.parametrize("m, n, k", UNEVEN)
@pytest.mark.parametrize("clamp", CLAMPS)
def test_clamped_rows_in_a_persistent_loop(clamp, m, n, k):
    """The tile's number is carried by itself for the epilogue, as pipelined kernels do."""
    source = head() + f"""
    across = tl.cdiv(N, BN)
    tiles = tl.cdiv(M, BM) * across
    k = tl.arange(0, BK)
    later = tl.program_id(0) - tl.num_programs(0)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
        i = (tile // across) * BM + tl.arange(0, BM)
        j = (tile % across) * BN + tl.arange(0, BN)
        i = {CLAMPS[clamp].format('i', 'M')}
        j = {CLAMPS[clamp].format('j', 'N')}
        i = tl.max_contiguous(tl.multiple_of(i, BM), BM)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(tl.cdiv(K, BK)):
            kk = step * BK + tl.arange(0, BK)
            a = tl.load(a_ptr + (i[:, None] * sa0 + kk[None, :] * sa1), mask=k[None, :] < K - step * BK, other=0.0)
            b = tl.load(b_ptr + (kk[:, None] * sb0 + j[None, :] * sb1), mask=k[:, None] < K - step * BK, other=0.0)
            acc = tl.dot(a, b, acc)
        later += tl.num_programs(0)
        i = (later // across) * BM + tl.arange(0, BM)
        j = (later % across) * BN + tl.arange(0, BN)
        tl.store(c_ptr + sc0 * i[:, None] + sc1 * j[None, :], acc.to(tl.float16), mask=(i[:, None] < M) & (j[None, :] < N))
"""
    c, _ = matmul(source, m, n, k)
    assert c.chosen() == ["tma", "tma"] and c.chosen("tl.store") == ["tma"], c.choices
    assert not [g for g in c.guards if g["kind"] == "multiple" or "within their bounds" in g["why"]]
    c.check((2,))


# --------------------------------------------------------------------------------------------- the benchmarks' kernels
@pytest.fixture
def benchmark_kernels(monkeypatch):
    """Loads benchmarks/kernels/NAME.py for this compiler."""
    switch = types.ModuleType("switch")
    switch.triton, switch.tl = tilewright, tilewright.language
    monkeypatch.setitem(sys.modules, "switch", switch)
    folder = Path(__file__).parents[4] / "benchmarks" / "kernels"

    def load(name):
        spec = importlib.util.spec_from_file_location(f"benchmark_{name}", folder / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name, loads, stores", [("forward_pointers", 3, 1), ("backward_keys", 4, 2), ("backward_queries", 4, 1)])
def test_benchmark_attention(benchmark_kernels, name, loads, stores, causal):
    kernel = getattr(benchmark_kernels("attention"), name)
    heads, n, d = 2, 32, 16
    arrays = {p: np.random.default_rng(i).standard_normal((heads, n) if p in ("lse_ptr", "delta_ptr") else (heads, n, d)).astype(
        np.float32 if p in ("lse_ptr", "delta_ptr") else np.float16) for i, p in enumerate(kernel.arg_names) if p.endswith("_ptr")}
    args = {p: v for p, v in {**arrays, "N": n, "scale": 0.3, "plain_scale": 0.2}.items() if p in kernel.arg_names}
    constexprs = {p: v for p, v in dict(D=d, BLOCK_M=16, BLOCK_N=16, CAUSAL=causal).items() if p in kernel.arg_names}
    c = Compiled(kernel, args, constexprs)
    assert len(c.boxes()) == loads + stores, c.choices
    assert c.chosen().count("tma") >= loads and c.chosen("tl.store").count("tma") == stores, c.choices
    c.check((n // 16, heads))
