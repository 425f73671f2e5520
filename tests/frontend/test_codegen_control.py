"""Branches, loops and calls: the generated IR, executed, gives what the kernel's Python gives."""

from __future__ import annotations

import numpy as np
import pytest
from tt_execution import compile_tt, define, execute, run_both, text_of

SIG = {"p": "*i32", "n": "i32"}


def test_code_after_ifs_that_may_return_is_made_once():
    ifs = "".join(f"            if n > {k}:\n                if n == {2 * k + 3}:\n                    return x + {k}\n                x += 1\n" for k in range(12))
    source = f"""
        @triton.jit
        def helper(x, n):
{ifs}
            return x * 2

        @triton.jit
        def kernel(p, n):
            tl.store(p, helper(5, n))
        """
    for n in (0, 1, 5, 12, 13, 30):
        x = 5
        for k in range(12):
            if n > k:
                if n == 2 * k + 3:
                    x += k
                    break
                x += 1
        else:
            x *= 2
        assert run(source, n)[0] == x
    assert text_of(define(source), SIG).count("scf.if") < 60


def run(source: str, *scalars, size: int = 16, **constexprs) -> list[int]:
    """Run a kernel(p, …scalars) both ways on an int32 array of 7s; the array's values."""
    out = np.full(size, 7, np.int32)
    run_both(define(source), out, *scalars, **constexprs)
    return out.tolist()


@pytest.mark.parametrize("n", [-3, 0, 1, 5, 12])
def test_if_elif_else_carries_only_what_changes(n):
    got = run("""
        @triton.jit
        def kernel(p, n):
            a = 1
            b = 2
            c = 3
            if n > 4:
                a = 10
                if n > 10:
                    b = a + 1
            elif n < 0:
                b = 20
            else:
                a, b = b, a
            tl.store(p, a)
            tl.store(p + 1, b)
            tl.store(p + 2, c)
        """, n)
    a, b, c = 1, 2, 3
    if n > 4:
        a = 10
        if n > 10:
            b = a + 1
    elif n < 0:
        b = 20
    else:
        a, b = b, a
    assert got[:3] == [a, b, c]


@pytest.mark.parametrize("bounds, expected", [
    ("n", range(5)), ("2, n", range(2, 5)), ("0, n, 2", range(0, 5, 2)), ("n, 0, -1", range(5, 0, -1)), ("n, -4, -3", range(5, -4, -3)),
    ("0, n, S", range(0, 5, 3)), ("n, n", range(0)), ("0, -n", range(0)), ("-n, n, 4", range(-5, 5, 4)), ("3", range(3)), ("5, 0, -2", range(5, 0, -2)),
])
@pytest.mark.parametrize("call", ["range", "tl.range"])
def test_for_counts_like_python(bounds, expected, call):
    got = run(f"""
        @triton.jit
        def kernel(p, n, S: tl.constexpr):
            at = 0
            for i in {call}({bounds}):
                tl.store(p + at, i)
                at += 1
            tl.store(p + 15, at)
        """, 5, S=3)
    assert got[:len(expected)] == list(expected) and got[15] == len(expected)
    assert got[len(expected)] == 7 or len(expected) == 15


def test_dynamic_step_and_64_bit_bounds():
    got = run("""
        @triton.jit
        def kernel(p, n, step):
            at = 0
            start = tl.cast(4294967296, tl.int64)
            for i in range(start, start + n, step):
                tl.store(p + at, (i - start).to(tl.int32))
                at += 1
        """, 10, 4)
    assert got[:4] == [0, 4, 8, 7]


def test_unsigned_bounds_count_as_unsigned():
    text = text_of(define("""
        @triton.jit
        def kernel(p, n):
            for i in range(0, n):
                tl.store(p + i, 1)
        """), {"p": "*i32", "n": "u32"})
    assert "arith.extui" in text and ": i64 {" in text


def test_the_counter_of_a_loop_keeps_pythons_value_where_it_was_set_before():
    assert run("""
        @triton.jit
        def kernel(p, n):
            i = 100
            for i in range(n):
                tl.store(p + i, i)
            tl.store(p + 8, i)
            for i in range(0):
                tl.store(p, 0)
            tl.store(p + 9, i)
        """, 4)[:10] == [0, 1, 2, 3, 7, 7, 7, 7, 3, 3]


def test_nested_loops_swap_and_accumulate():
    assert run("""
        @triton.jit
        def kernel(p, n):
            a, b = 0, 1
            total = 0
            for i in range(n):
                a, b = b, a + b
                for j in range(i):
                    total += a * j
                    if j == 2:
                        total -= 1
            tl.store(p, a)
            tl.store(p + 1, b)
            tl.store(p + 2, total)
        """, 9)[:2] == [34, 55]


def test_while_with_several_variables_and_one_that_does_not_change():
    want = 27
    for _ in range(100):
        want = want // 2 if want % 2 == 0 else 3 * want + 1
    assert run("""
        @triton.jit
        def kernel(p, n):
            a = n
            steps = 0
            limit = 100
            while (a != 1) and (steps < limit):
                if a % 2 == 0:
                    a = a // 2
                else:
                    a = 3 * a + 1
                steps += 1
                limit = limit
            tl.store(p, a)
            tl.store(p + 1, steps)
        """, 27)[:2] == [want, 100]


def test_while_that_never_runs_and_nested_while():
    assert run("""
        @triton.jit
        def kernel(p, n):
            at = 0
            while n > 100:
                n -= 1
            i = 0
            while i < n:
                j = 0
                while j < i:
                    tl.store(p + at, j)
                    at += 1
                    j += 1
                i += 1
        """, 4)[:7] == [0, 0, 1, 0, 1, 2, 7]


def test_a_constexpr_argument_that_a_loop_changes_becomes_a_tensor():
    got = run("""
        @triton.jit
        def kernel(p, n, C):
            t = (C, 5)
            for i in range(n):
                C = C * 2
                t = (t[1], t[0] + C)
            while C > 10:
                C -= 3
            tl.store(p, C)
            tl.store(p + 1, t[0])
            tl.store(p + 2, t[1])
        """, 3, C=3)
    assert got[0] == 9
    assert got[1:3] == [5 + 12, 3 + 6 + 24]


def test_unchanged_variables_are_not_carried():
    text = text_of(define("""
        @triton.jit
        def kernel(p, n):
            a = n
            b = n + 1
            for i in range(n):
                if i < 0:
                    pass
                a = a
                b += a
            tl.store(p, b + a)
        """), SIG)
    (line,) = [part for part in text.splitlines() if "scf.for" in part]
    assert line.count("= %") - 1 == 1 + line.count("step") - 1, line  # the counter and b


def test_early_returns_are_structured():
    source = """
        @triton.jit
        def kernel(p, n):
            if n < 0:
                return
            tl.store(p, 1)
            if n == 0:
                tl.store(p + 1, 2)
                return
            elif n == 1:
                return
            else:
                tl.store(p + 2, 3)
            if n > 5:
                if n > 8:
                    return
                tl.store(p + 3, 4)
            tl.store(p + 4, 5)
        """
    expected = {-1: [], 0: [(0, 1), (1, 2)], 1: [(0, 1)], 3: [(0, 1), (2, 3), (4, 5)], 7: [(0, 1), (2, 3), (3, 4), (4, 5)], 9: [(0, 1), (2, 3)]}
    for n, writes in expected.items():
        want = [7] * 16
        for i, v in writes:
            want[i] = v
        assert run(source, n) == want, n


def test_returned_values_join():
    source = """
        @triton.jit
        def classify(n, K: tl.constexpr):
            if K:
                if n < 0:
                    return -1, n
                if n == 0:
                    return 0, n
                n = n * 2
            return 1, n

        @triton.jit
        def kernel(p, n):
            a, b = classify(n, True)
            c, d = classify(n, False)
            tl.store(p, a)
            tl.store(p + 1, b)
            tl.store(p + 2, c)
            tl.store(p + 3, d)
        """
    for n, expected in {-4: [-1, -4, 1, -4], 0: [0, 0, 1, 0], 6: [1, 12, 1, 6]}.items():
        assert run(source, n)[:4] == expected


def test_return_inside_an_unrolled_loop():
    source = """
        @triton.jit
        def first_above(n, values):
            for v in values:
                if v > n:
                    return v
            return -1

        @triton.jit
        def kernel(p, n):
            tl.store(p, first_above(n, (3, 6, 9)))
        """
    assert [run(source, n)[0] for n in (0, 3, 8, 9)] == [3, 6, 9, -1]


def test_static_range_unrolls_and_keeps_constexprs():
    assert run("""
        @triton.jit
        def kernel(p, n, N: tl.constexpr):
            total = 0
            for i in tl.static_range(1, N, 2):
                x = tl.arange(0, 2 * i - i + 1) if i == 1 else tl.arange(0, 4)
                total += tl.sum(x) * i
                if i == 3:
                    total += n
            tl.store(p, total)
        """, 10, N=6)[0] == 1 * 1 + 6 * 3 + 10 + 6 * 5


def test_dead_branches_are_not_visited():
    assert run("""
        @triton.jit
        def kernel(p, n, MODE: tl.constexpr):
            if MODE == "a":
                tl.store(p, 1)
            elif MODE == "b":
                there_is_no_such_name(p)
            x = n if MODE is not None else nothing
            y = nothing if MODE == "c" else n
            if (MODE == "b" and nothing) or MODE == "a" or nothing:
                tl.store(p + 1, x + y)
        """, 3, MODE="a")[:2] == [1, 6]


def test_conditional_expressions():
    source = """
        @triton.jit
        def kernel(p, n):
            a = n if n > 3 else 3
            b = tl.load(p + 1) if n > 3 else n * 2
            c = (1, n) if n > 3 else (2, 5)
            tl.store(p, a + b)
            tl.store(p + 1, c[0])
            tl.store(p + 2, c[1])
        """
    assert run(source, 2)[:3] == [3 + 4, 2, 5]
    assert run(source, 9)[:3] == [9 + 7, 1, 9]
    text = text_of(define(source), SIG)
    assert "scf.if" in text


def test_calls_defaults_keywords_and_higher_order():
    assert run("""
        @triton.jit
        def add(a, b=3):
            return a + b

        @triton.jit
        def apply(f, x, y: tl.constexpr = 4, *, twice: tl.constexpr = False):
            r = f(x, y)
            if twice:
                r = f(r, y)
            return r

        @triton.jit
        def nothing(p):
            tl.store(p, 42)

        @triton.jit
        def kernel(p, n):
            nothing(p)
            tl.store(p + 1, add(n))
            tl.store(p + 2, add(b=n, a=1))
            tl.store(p + 3, apply(add, n))
            tl.store(p + 4, apply(add, n, 10, twice=True))
            tl.store(p + 5, apply(tl.maximum, n, 100))
            tl.store(p + 6, apply(lambda a, b: a * b + n, n))
        """, 5)[:7] == [42, 8, 6, 9, 25, 100, 25]


def test_tuples():
    assert run("""
        @triton.jit
        def pair(a, b):
            return a, b

        @triton.jit
        def kernel(p, n):
            t = (1, n, 3)
            a, (b, c) = t[0], t[1:]
            first, *rest = (4, 5, 6)
            u = pair(*pair(n, 8))
            tl.store(p, a + b * 10 + c * 100)
            tl.store(p + 1, first)
            tl.store(p + 2, rest[0] + rest[-1])
            tl.store(p + 3, u[0] * u[1])
            tl.store(p + 4, len(t + u))
            for i in tl.static_range(2):
                tl.store(p + 5 + i, t[i])
            state = (n, 0)
            for i in range(3):
                state = (state[1] + 1, state[0])
            tl.store(p + 7, state[0])
            tl.store(p + 8, state[1])
        """, 5)[:9] == [351, 4, 11, 40, 5, 1, 5, 2, 6]


def test_named_tuples():
    assert run("""
        from typing import NamedTuple

        class Pair(NamedTuple):
            low: tl.tensor
            high: tl.tensor

        @triton.jit
        def swap(x):
            return Pair(x.high, low_of(x))

        @triton.jit
        def low_of(x):
            return x.low

        @triton.jit
        def kernel(p, n):
            x = swap(Pair(low=n, high=9))
            tl.store(p, x.low)
            tl.store(p + 1, x.high)
        """, 5)[:2] == [9, 5]


def test_comprehensions_fstrings_and_python_functions():
    assert run("""
        @triton.jit
        def kernel(p, n, N: tl.constexpr):
            squares = [i * i for i in tl.static_range(N) if i != 2]
            tl.static_assert(len(squares) == N - 1, f"{N=} {len(squares)}")
            tl.store(p, squares[0] + squares[1] * 10 + squares[2] * 100)
            tl.store(p + 1, min(n, 3, max(N, 1)))
            tl.store(p + 2, abs(-n))
            tl.static_assert(isinstance(N, tl.constexpr) and isinstance(n, tl.tensor) and not isinstance(n, tl.constexpr))
            for i, v in enumerate((5, n)):
                tl.store(p + 3 + i, v)
            a = sum([1, 2, n])
            tl.store(p + 5, a)
            tl.store(p + 6, float(n) == 5.0)
        """, 5, N=4)[:7] == [910, 3, 5, 5, 5, 8, 1]


def test_augmented_annotated_and_chained():
    assert run("""
        @triton.jit
        def kernel(p, n):
            x: tl.int32 = n
            x += 1; x -= 2; x *= 3; x //= 2; x %= 5; x <<= 2; x |= 1; x ^= 6; x &= 31
            a = b = x
            C: tl.constexpr = 2 ** 3
            tl.store(p, a + b)
            tl.store(p + 1, (1 < n <= 5).to(tl.int32))
            tl.store(p + 2, (1 < n < 5).to(tl.int32))
            tl.store(p + 3, tl.sum(tl.arange(0, C)))
            if 0 < n < 100 and not (n == 50 or n == 60):
                tl.store(p + 4, 1)
            tl.store(p + 5, -7 // 2)
        """, 5)[1:6] == [1, 0, 28, 1, -4]


def test_assigned_numbers_are_run_time_integers_and_constexprs_are_pythons():
    kernel = define("""
        @triton.jit
        def kernel(p):
            m = -7
            C: tl.constexpr = -7
            tl.store(p, m // 2)
            tl.store(p + 1, m % 2)
            tl.store(p + 2, C // 2)
            tl.store(p + 3, C % 2)
        """)
    out = np.zeros(4, np.int32)
    execute(compile_tt(kernel, {"p": "*i32"}), [out])
    assert out.tolist() == [-3, -1, -4, 1]


def test_globals_that_are_constexpr_and_closures():
    assert run("""
        SIZE = tl.constexpr(4)
        NAME = tl.constexpr("a")

        def make(k):
            k = tl.constexpr(k)

            @triton.jit
            def helper(x):
                return x + k + SIZE
            return helper

        helper = make(10)

        @triton.jit
        def kernel(p, n):
            tl.store(p, helper(n))
            if NAME == "a":
                tl.store(p + 1, tl.sum(tl.full([SIZE], 2, tl.int32)))
        """, 1)[:2] == [15, 8]


def test_constexpr_functions_run_while_compiling():
    assert run("""
        import math

        @triton.constexpr_function
        def log2(n):
            return int(math.log2(n))

        @triton.jit
        def kernel(p, n, N: tl.constexpr):
            K: tl.constexpr = log2(N) * 2
            tl.store(p, tl.sum(tl.full([K], 1, tl.int32)))
            tl.store(p + 1, triton.cdiv(n, 4))
            tl.store(p + 2, tl.sum(tl.full([triton.next_power_of_2(N + 1)], 1, tl.int32)))
        """, 9, N=4)[:3] == [4, 3, 8]


@pytest.mark.parametrize("n", [0, 3])
def test_loop_inside_branch_inside_loop(n):
    run("""
        @triton.jit
        def kernel(p, n):
            x = tl.arange(0, 16)
            best = tl.full([16], -1, tl.int32)
            for i in range(n):
                if i % 2 == 0:
                    for j in range(i + 1):
                        x = x * 2 + j
                    best = tl.where(x > best, x, best)
                else:
                    k = i
                    while k > 0:
                        x += k
                        k -= 1
            tl.store(p + tl.arange(0, 16), best)
        """, n)


def test_hints_of_tl_range_are_attributes_of_the_loop():
    text = text_of(define("""
        @triton.jit
        def kernel(p, n, S: tl.constexpr):
            for i in tl.range(0, n, 1, num_stages=S, loop_unroll_factor=2, flatten=True, warp_specialize=True, disallow_acc_multi_buffer=True):
                tl.store(p + i, i)
        """), {**SIG, "S": "constexpr"}, {"S": 4})
    (line,) = [part for part in text.splitlines() if part.strip().startswith("} {")]
    assert "tt.num_stages = 4 : i32" in line and "tt.loop_unroll_factor = 2 : i32" in line
    assert all(f"tt.{h}" in line for h in ("flatten", "warp_specialize", "disallow_acc_multi_buffer"))
