"""Control flow: branches, early returns, loops of every kind that carry scalars, tiles, pointers and tuples, nested functions."""

from __future__ import annotations

import pytest

from tilewright.conformance.harness import compare, poisoned, random_array, rng_of

# name → (source of `kernel(p, o, n, m)`, which fills o[0:64]); p holds 256 small int32
KERNELS = {
    "if_else_of_tiles": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        if n > 2:
            y = x * 2
            z = 5
        elif m > 0:
            y = x - 1
            z = n
        else:
            y = tl.zeros([64], tl.int32)
            z = m + 7
        tl.store(o + i, y + z)
    """,
    "branch_on_loaded_values": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        if tl.load(p + n) > 0 and tl.sum(x, 0) != 3:
            x = tl.where(x > 0, x, -x)
        elif not (m == 1) or tl.max(x, 0) > 100:
            x = x ^ 3
        tl.store(o + i, x)
    """,
    "one_value_from_both_branches": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        if n > m:
            tl.store(o + i, x)
            y = x
            z = n
        else:
            y = x
            z = n
        tl.store(o + i, y + z)
    """,
    "nested_branches": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        total = 0
        if n > 0:
            if m > 0:
                total = n * m
                x += 1
            else:
                if n > 3:
                    total = -n
                x += 2
        else:
            total = m
        tl.store(o + i, x * total)
    """,
    "early_return": """
        i = tl.arange(0, 64)
        tl.store(o + i, i)
        if n == m:
            return
        if n > m:
            tl.store(o + i, i * n)
            return
        tl.store(o + i, i * m + 1)
    """,
    "loop_of_tiles": """
        i = tl.arange(0, 64)
        x = tl.zeros([64], tl.int32)
        y = tl.load(p + i)
        for k in range(n):
            x, y = y, x + k
        tl.store(o + i, x - y)
    """,
    "negative_steps": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        for k in range(n, -m - 3, -2):
            x = x * 3 + k
        for k in tl.range(10, n, -3):
            x = x ^ k
        tl.store(o + i, x)
    """,
    "nested_loops": """
        i = tl.arange(0, 64)
        x = tl.zeros([64], tl.int32)
        count = 0
        for a in range(n):
            row = tl.load(p + a * 64 + i, mask=a < 4, other=1)
            for b in range(a, a + m):
                x += row * b
                count += 1
            x = x ^ count
        tl.store(o + i, x + count)
    """,
    "loop_of_pointers": """
        i = tl.arange(0, 64)
        at = p + i
        base = p
        total = tl.zeros([64], tl.int32)
        for k in range(0, n):
            total += tl.load(at) + tl.load(base)
            at += 32 if k % 2 == 0 else 16
            base += m
        tl.store(o + i, total)
    """,
    "branch_in_a_loop": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        worst = 0
        for k in range(n + 3):
            if k % 3 == 1:
                x = x + k
                worst = worst + 1
            elif k % 3 == 2:
                x = tl.where(x > k, x, k)
            else:
                worst = worst * 2
        tl.store(o + i, x + worst)
    """,
    "while_loops": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        a, b = n + 20, m + 6
        while b != 0:
            a, b = b, a % b
        steps = 0
        while tl.max(x, 0) < 50 and steps < 9:
            x = x * 2 + 1
            steps += 1
        tl.store(o + i, x * 100 + a * 10 + steps)
    """,
    "while_in_for_in_if": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        if n >= 0:
            for k in range(3):
                left = n
                while left > 0:
                    x += left * k
                    left -= 1
        tl.store(o + i, x)
    """,
    "static_loops": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        for k in tl.static_range(4):
            if k % 2 == 0:
                x += k
            else:
                x *= k
        for k in tl.static_range(3, 0, -1):
            x = x * 2 - k * n
        tl.store(o + i, x)
    """,
    "tuples": """
        i = tl.arange(0, 64)
        pair = (tl.load(p + i), n)
        first, (second, third) = pair[0], (m, pair[1])
        for k in range(3):
            pair = (pair[0] + k, pair[1] * 2)
        lowest, highest = bounds(pair[0])
        tl.store(o + i, pair[0] + pair[1] * second + third - first * lowest + highest)
    """,
    "helpers_with_defaults": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        x = scaled(x) + scaled(x, 3) - scaled(x, by=n, plus=m)
        tl.store(o + i, chosen(x, n > 2) + chosen(x, False) * early(n) + early(m))
    """,
    "conditional_expressions": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        a = n if n > m else m
        b = x if n > 1 else x * 2
        tl.store(o + i, b + a + (1 if m == 0 else 2) + min(n, m) - max(n, 3))
    """,
    "invariants_and_dead_code": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        unused = tl.sum(x * 7, 0)
        for k in range(0, 5):
            c = n * m + 1
            d = tl.load(p + 7)
            x += c * d
        if n < -100:
            x = x // 0 if m == 12345 else x
        y = x + 0
        tl.store(o + i, y * 1 + (x - x))
    """,
    "assigned_in_one_branch": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        scale = 1
        offset = x
        if n > 2:
            scale = n
        if m > 0:
            offset = offset + scale
        for k in range(m):
            if k == 1:
                scale = scale + k
        tl.store(o + i, offset * 2 + scale)
    """,
    "int64_counters": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        last = tl.cast(n, tl.int64) + 4
        for k in range(last):
            x += (k * 2).to(tl.int32)
        tl.store(o + i, x)
    """,
    "reductions_in_loops": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        best = -1000
        where = 0
        for k in range(n):
            y = tl.load(p + k * 16 + i, mask=i < 64 - k, other=-9)
            top = tl.max(y, 0)
            at = tl.argmax(y, 0)
            where = at if top > best else where
            best = max(best, top)
            x += tl.cumsum(y, 0)
        tl.store(o + i, x + best * 100 + where)
    """,
}
HELPERS = """
    @triton.jit
    def bounds(x):
        return tl.min(x, 0), tl.max(x, 0)

    @triton.jit
    def scaled(x, by=2, plus: tl.constexpr = 1):
        return x * by + plus

    @triton.jit
    def chosen(x, flag):
        if flag:
            y = x + 1
        else:
            y = -x
        return y

    @triton.jit
    def early(n):
        if n > 2:
            return n * 10
        return n - 1

    @triton.jit
    def kernel(p, o, n, m):
"""


@pytest.mark.parametrize("name", KERNELS)
def test_control_flow(name):
    body = KERNELS[name]
    for warps, (n, m) in enumerate([(0, 0), (1, 2), (5, 1), (3, 3)]):
        source = HELPERS + body
        if "plus=m" in body:
            source = source.replace("plus=m", "plus=4")
        compare(source, {"p": random_array("int32", 256, rng_of(name), small=True), "o": poisoned("int32", 64), "n": n, "m": m}, num_warps=1 << warps % 3)


@pytest.mark.parametrize("dtype", ["int8", "fp16", "bf16", "fp64", "int1"])
def test_loops_carry_every_type(dtype):
    other = "~x" if dtype == "int1" else "x + 1"
    compare(f"""
        @triton.jit
        def kernel(p, o, q, n):
            i = tl.arange(0, 32)
            x = tl.load(p + i)
            last = tl.load(p)
            rows = tl.load(p + i[:, None] * 0 + i[None, :])
            for k in range(n):
                if k % 2 == 0:
                    x = ({other}).to(x.dtype)
                    last = tl.load(p + k)
                rows = tl.trans(rows)
            tl.store(o + i, x)
            tl.store(o + 32, last)
            tl.store(q + i[:, None] * 32 + i[None, :], rows)
        """, {"p": random_array(dtype, 32, rng_of(dtype), small=True), "o": poisoned(dtype, 33), "q": poisoned(dtype, (32, 32)), "n": 5}, num_warps=2)
