"""break, continue and return, in loops of every kind and under branches known at run time."""

from __future__ import annotations

import pytest

from tilewright.conformance.harness import compare, poisoned, random_array, rng_of

# name → body of `kernel(p, o, n, m)`, which fills o[0:64]; p holds 256 small int32
JUMPS = {
    "break_of_for": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        k = -1
        for k in range(n + 6):
            if k == m + 2:
                break
            x = x * 2 + k
        tl.store(o + i, x + k)
    """,
    "break_counting_down": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        for k in range(9, m - 7, -2):
            x += k
            if k < n:
                x = x ^ 5
                break
        tl.store(o + i, x)
    """,
    "continue_of_for": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        for k in range(n + 5):
            if k % 3 == m % 3:
                continue
            y = x + k
            x = y * 3
        tl.store(o + i, x)
    """,
    "break_and_continue": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        seen = 0
        for k in range(20):
            if k % 4 == n:
                seen += 1
                if seen > m:
                    break
                if k % 8 < 4:
                    continue
                x += 1
            elif k % 5 == 2:
                x = x * 2
            else:
                seen += 2
                if x.to(tl.int64).sum() % 2 == 0:
                    continue
            x = x + k
        tl.store(o + i, x * 16 + seen)
    """,
    "both_sides_may_jump": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        for k in range(n + 4):
            if k < 3:
                if m > k:
                    continue
                y = x + 1
            else:
                if k == 5:
                    break
                y = x * 2
            z = y + k
            if k == m:
                z = z + 7
                if n == 3:
                    break
                w = z
            else:
                w = z - 1
            x = w
        tl.store(o + i, x)
    """,
    "nested": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        count = 0
        for a in range(n + 3):
            for b in range(a, a + 6):
                if b == m + 3:
                    break
                if (a + b) % 2 == 0:
                    continue
                x += a * b
                count += 1
            if count > 7:
                break
            for c in range(3):
                if c == a:
                    continue
                x = x ^ c
            count += 1
        tl.store(o + i, x * 32 + count)
    """,
    "while_true": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        a, b = n + 24, m + 10
        while True:
            if b == 0:
                break
            a, b = b, a % b
            x += a
        steps = 0
        while 1:
            steps += 1
            if steps < 3:
                continue
            x += steps
            if steps > n:
                break
        tl.store(o + i, x * 8 + a + steps)
    """,
    "while_with_break_does_not_test_again": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        at = 0
        while tl.load(p + at * 16) != 99:
            at += 1
            if at == 16:
                break
            if at % 3 == 0:
                continue
            x += at
        tl.store(o + i, x + at)
    """,
    "unrolled": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        for k in tl.static_range(6):
            if k == 1:
                continue
            if k == n:
                x += 100
                break
            if m > k:
                continue
            if k == 5:
                break
            x = x * 2 + k
        for s in (3, 1, 2):
            if s == m:
                break
            x = x ^ s
        tl.store(o + i, x)
    """,
    "unrolled_inside_a_loop": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        for a in range(4):
            for k in tl.static_range(3):
                if a == k + n:
                    continue
                if a + k == m + 2:
                    break
                x += a * 4 + k
            if a == 2 and m == 2:
                break
        tl.store(o + i, x)
    """,
    "return_from_a_kernels_loop": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        tl.store(o + i, x)
        for k in range(n + 2):
            if k == m:
                tl.store(o + i, x * 2)
                return
            x += k
            while x.max() > 20:
                x = x // 2
                if x.min() < -3:
                    tl.store(o + i, x * 3)
                    return
        tl.store(o + i, x + 50)
    """,
    "return_from_helpers_loops": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        a = first_above(p, n, 256)
        b, y = halves(x, m)
        c = search(p, n, m) + searched(n, m) + unrolled_search(n, m) * 3
        tl.store(o + i, y * 1000 + a * 100 + b * 10 + c)
    """,
    "helper_with_loop_inside_a_jumping_loop": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        for k in range(n + 2):
            a = searched(k, m)
            if a > 12:
                break
            x += a
            if first_above(p, k, 64) == m:
                continue
            x = x * 2
        tl.store(o + i, x)
    """,
    "tuples_and_pointers_and_descriptors": """
        i = tl.arange(0, 64)
        pair = (tl.load(p + i), n)
        at = p
        d = tl.make_tensor_descriptor(p, [256], [1], [64])
        for k in range(5):
            pair = (pair[0] + tl.load(at + i), pair[1] + 1)
            if pair[1] == m + 3:
                at = p + 64
                break
            at += 16
            if k == n:
                d = tl.make_tensor_descriptor(p + 16, [128], [1], [64])
                continue
            pair = (pair[0] ^ k, pair[1])
        tl.store(o + i, pair[0] * 4 + pair[1] + tl.load(at + i) + d.load([96]))
    """,
    "dead_code_after_jumps": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        tl.store(o + i, x)
        for k in range(n):
            x += 1
            continue
            if x.max() > 0:
                return
        while True:
            x += m
            break
            return
        tl.store(o + i, x)
    """,
    "locals_of_other_types": """
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        for k in range(n + 3):
            if k == 1:
                y = 1.5
                x += tl.cast(y * 2, tl.int32)
                continue
            else:
                y = x + 1
                x = y
                if k == 4:
                    break
            z = y
            x = x ^ 1
        tl.store(o + i, x)
    """,
}
HELPERS = """
    @triton.jit
    def first_above(p, limit, size):
        for k in range(size):
            if tl.load(p + k) > limit:
                return k
        return -1

    @triton.jit
    def halves(x, stop):
        steps = 0
        while x.max() > 0:
            if steps == stop:
                return steps, x + 1
            x = x // 2
            steps += 1
        return -steps, x

    @triton.jit
    def search(p, n, m):
        for a in range(8):
            for b in range(8):
                value = tl.load(p + a * 16 + b)
                if value == n and b != m:
                    return a * 8 + b
                if value == -m:
                    break
            else_value = a
        return 64

    @triton.jit
    def searched(n, m):
        total = 0
        while True:
            total += n + 1
            if total > 10:
                return total
            if total == m:
                return -1
            if n < 0:
                return 5

    @triton.jit
    def unrolled_search(n, m):
        for k in tl.static_range(5):
            if k == 1:
                continue
            if n == k:
                return k * 2 + 1
            if m == k:
                break
        return m

    @triton.jit
    def kernel(p, o, n, m):
"""
CALLED = """
    @triton.jit(noinline=True)
    def called(x, n, m):
        for k in range(n):
            if k == m:
                return x + k, k
            if k % 2 == 1:
                continue
            x = x * 2
        return x, -1

    @triton.jit
    def steps(v, m):
        count = 0
        while True:
            if v <= 1:
                return count
            if count > m + 20:
                break
            count += 1
            if v % 2 == 0:
                v = v // 2
                continue
            v = v * 3 + 1
        return -count

    @triton.jit
    def kernel(p, o, n, m):
        i = tl.arange(0, 64)
        x = tl.load(p + i)
        for k in range(3):
            y, at = called(x, n + k, m)
            if at == 1:
                break
            x = y + at
        tl.store(o + i, x + tl.map_elementwise(steps, i + n, tl.zeros([64], tl.int32) + m) * 100)
"""


def test_jumps_in_called_functions():
    for n, m in ((0, 0), (3, 1), (2, 5)):
        compare(CALLED, {"p": random_array("int32", 256, rng_of("called"), small=True), "o": poisoned("int32", 64), "n": n, "m": m})


VALUES = [(0, 0), (1, 2), (5, 1), (3, 3)]


@pytest.mark.parametrize("name", JUMPS)
def test_jumps(name):
    for warps, (n, m) in enumerate(VALUES):
        compare(HELPERS + JUMPS[name], {"p": random_array("int32", 256, rng_of(name), small=True), "o": poisoned("int32", 64), "n": n, "m": m},
                num_warps=1 << warps % 3)
