"""Functions marked noinline: called, with arguments and results of every kind, wherever a call may stand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import (
    ONLY_INTERPRETER,
    SIMULATED,
    compare,
    kernel_of,
    poisoned,
    random_array,
    rng_of,
    tl_name,
)

# name → (functions and `kernel(p, o, n, m)`, which fills o[0:64]); p holds 256 small int32
KERNELS = {
    "results_of_every_number": """
        @triton.jit(noinline=True)
        def nothing(o, x):
            tl.store(o + tl.arange(0, 64), x)

        @triton.jit(noinline=True)
        def one(x, n):
            return x * n

        @triton.jit(noinline=True)
        def three(x, n):
            return x + 1, n - 1, tl.sum(x, 0)

        @triton.jit
        def kernel(p, o, n, m):
            x = tl.load(p + tl.arange(0, 64))
            y, a, b = three(one(x, n), m)
            nothing(o, y * a + b)
    """,
    "nested_and_shared": """
        @triton.jit(noinline=True)
        def inner(x, k):
            return x * 3 + k

        @triton.jit(noinline=True)
        def middle(x, k):
            return inner(x, k) - inner(x, k + 1) * tl.max(x, 0)

        @triton.jit(noinline=True)
        def outer(x, k):
            return middle(inner(x, k), k) + tl.min(x, 0)

        @triton.jit
        def kernel(p, o, n, m):
            x = tl.load(p + tl.arange(0, 64))
            tl.store(o + tl.arange(0, 64), outer(x, n) + middle(x, m) + inner(x, 7))
    """,
    "in_loops_and_branches": """
        @triton.jit(noinline=True)
        def step(x, k):
            if k % 2 == 0:
                return x + tl.sum(x, 0), k
            return x - k, k + 1

        @triton.jit
        def kernel(p, o, n, m):
            x = tl.load(p + tl.arange(0, 64))
            total = 0
            for k in range(n + 3):
                x, a = step(x, k)
                total += a
                if k > 1:
                    x, b = step(x, k + m)
                    total -= b
                x = x & 1023
            while total > 0:
                x, c = step(x, total)
                total = total - c - 1
            tl.store(o + tl.arange(0, 64), x + total)
    """,
    "early_returns_and_loops_inside": """
        @triton.jit(noinline=True)
        def search(p, n, m):
            if n < 0:
                return -1, n
            found = 0
            for k in range(n):
                if tl.load(p + k) == m:
                    found = found + k
                else:
                    found = found - 1
            if found > 3:
                return found, m
            return found + 100, n

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            a, b = search(p, n, m)
            c, d = search(p, n - 60, m)
            tl.store(o + i, i * a + b - c * d)
    """,
    "values_from_before_a_call_that_writes": """
        @triton.jit(noinline=True)
        def spoil(o, x, by):
            tl.store(o + tl.arange(0, 64), x * by)

        @triton.jit(noinline=True)
        def shift(src, dst):
            i = tl.arange(0, 64)
            x = tl.load(src + i)
            tl.debug_barrier()
            tl.store(dst + i, x)

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            tl.store(o + i, i)
            before = tl.load(o + i)
            spoil(o, before, n)
            after = tl.load(o + i)
            tl.debug_barrier()
            shift(o, p + 1)
            tl.debug_barrier()
            shift(p, p + 1)
            tl.debug_barrier()
            tl.store(o + i, before * 1000 + after + tl.load(p + i))
    """,
    "atomics_inside": """
        @triton.jit(noinline=True)
        def count(p, x):
            return tl.atomic_add(p + tl.arange(0, 64), x)

        @triton.jit(noinline=True)
        def ticket(p):
            return tl.atomic_add(p, 3)

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            old = count(p, i)
            old += count(p, i * n)
            tl.debug_barrier()
            tl.store(o + i, old + ticket(p + 100) * ticket(p + 100))
    """,
    "tuples_and_pointers": """
        from collections import namedtuple
        Pair = namedtuple("Pair", ["first", "second"])

        @triton.jit(noinline=True)
        def swap(pair, extra):
            return Pair(pair.second, pair.first), (extra[1], (extra[0], pair.first))

        @triton.jit(noinline=True)
        def advanced(pointer, tile, n):
            return pointer + n, tile + n * 2

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            pair, rest = swap(Pair(n, tl.load(p + i)), (m, i))
            q, t = advanced(p, p + i, 2)
            tl.store(o + i, pair.first * 2 + pair.second + rest[0] + rest[1][0] * rest[1][1] + tl.load(q) + tl.load(t))
    """,
    "programs_seen_inside": """
        @triton.jit(noinline=True)
        def place(n):
            return tl.program_id(0) * 100 + tl.num_programs(0) * 10 + tl.program_id(1) + n

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            if tl.program_id(0) == 0:
                tl.store(o + i, i + place(n))
    """,
    "compile_time_arguments": """
        @triton.jit
        def double(x):
            return x * 2

        @triton.jit(noinline=True)
        def apply(x, fn: tl.constexpr, WAY: tl.constexpr, k=5, *more):
            if WAY == "add":
                return fn(x) + k
            for v in tl.static_range(len(more)):
                x += more[v]
            return fn(x) * k

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            x = tl.load(p + i)
            y = apply(x, double, "add") + apply(x, fn=double, WAY="mul", k=n) + apply(x, double, "mul", 2, n, m, 1)
            tl.store(o + i, y)
    """,
    "in_combiners_and_with_lambdas": """
        @triton.jit(noinline=True)
        def larger(a, b):
            return tl.maximum(a, b)

        @triton.jit(noinline=True)
        def through(f, x):
            return f(x) + f(x + 1)

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            x = tl.load(p + i)
            y = tl.reduce(x, 0, larger) + tl.associative_scan(x, 0, larger)
            tl.store(o + i, larger(through(lambda v: v * n, x), y))
    """,
    "layouts_on_both_sides": """
        @triton.jit(noinline=True)
        def turned(x):
            return tl.trans(x) + tl.sum(x, 1)[None, :]

        @triton.jit(noinline=True)
        def picked(x, row):
            return tl.gather(x, tl.zeros([1, 8], tl.int32) + row, 0)

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 8)
            x = tl.load(p + i[:, None] * 8 + i[None, :])
            y = turned(tl.trans(turned(x)))
            for k in range(n):
                y = turned(y) & 255
            z = tl.reshape(y, [64]) + tl.reshape(tl.broadcast_to(picked(x, m % 8), [8, 8]), [64])
            tl.store(o + tl.arange(0, 64), tl.cumsum(z, 0))
    """,
    "scratch_on_both_sides": """
        @triton.jit(noinline=True)
        def deep(x):
            return tl.flip(tl.cumsum(x, 0))

        @triton.jit(noinline=True)
        def summed(x):
            return tl.cumsum(x, 0) - tl.sum(deep(x), 0)

        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 64)
            x = tl.load(p + i)
            total = tl.sum(x, 0)
            for k in range(2):
                h = tl.histogram(x & 63, 64)
                x = summed(x + total) + h
                total = tl.sum(x, 0) - tl.max(summed(h), 0)
                x = x & 4095
            tl.store(o + i, x + total)
    """,
}


def _args(key):
    return {"p": random_array("int32", 256, rng_of(key), small=True), "o": poisoned("int32", 64), "n": 5, "m": 2}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name):
    compare(KERNELS[name], _args(name), grid=(2, 1) if name == "programs_seen_inside" else (1,))


@pytest.mark.parametrize("warps", [1, 2, 8])
def test_any_number_of_warps(warps):
    compare(KERNELS["layouts_on_both_sides"], _args(warps), num_warps=warps)


def test_numbers():
    """Of one kernel against numpy: what the interpreter and a target might get wrong alike."""
    args = _args("numpy")
    x = args["p"].numpy()[:64].astype(np.int64)
    y, a, b = x * 5 + 1, 1, (x * 5).sum()
    compare(KERNELS["results_of_every_number"], args, expected={"o": (y * a + b).astype(np.int32)})


TYPES = ("int1", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "fp16", "bf16", "fp32", "fp64", "fp8e5", "fp8e4nv")


def test_types_as_arguments_and_results():
    lines, args = [], {}
    for t in TYPES:
        args |= {f"p{t}": random_array("fp32", 32, rng_of(t)).to(poisoned(t, 1).dtype) if t.startswith("fp8") else random_array(t, 32, rng_of(t)),
                 f"o{t}": poisoned(t, 32), f"s{t}": poisoned(t, 1)}
        lines.append(f"x, y = pass_on(tl.load(p{t} + i), tl.load(p{t} + 3), p{t} + i)\n            tl.store(o{t} + i, x)\n            tl.store(s{t}, y)")
    body = "\n            ".join(lines)
    compare(f"""
        @triton.jit(noinline=True)
        def pass_on(x, y, pointers):
            z = tl.load(pointers)
            return tl.where(tl.arange(0, 32) > 3, x, z), y

        @triton.jit
        def kernel({', '.join(args)}):
            i = tl.arange(0, 32)
            {body}
        """, args, expected={f"o{t}": args[f"p{t}"] for t in TYPES} | {f"s{t}": args[f"p{t}"][3:4] for t in TYPES})


def test_arithmetic_of_16_bit_scalars():
    args = {f"p{t}": random_array(t, 4, rng_of("scalars", t)) for t in ("fp16", "bf16")} | {f"o{t}": poisoned(t, 2) for t in ("fp16", "bf16")}
    compare("""
        @triton.jit(noinline=True)
        def average(x, y):
            return (x + y) * 0.5, x - y

        @triton.jit
        def kernel(pfp16, pbf16, ofp16, obf16):
            a, b = average(tl.load(pfp16), tl.load(pfp16 + 1))
            tl.store(ofp16, a)
            tl.store(ofp16 + 1, b)
            a, b = average(tl.load(pbf16), tl.load(pbf16 + 1))
            tl.store(obf16, a)
            tl.store(obf16 + 1, b)
        """, args)


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_products_inside_and_around(dtype):
    """Shared memory of a called function's product lies beside what a pipelined loop of the caller holds."""
    a, b = (random_array(dtype, (32, 64), rng_of(dtype, i), small=True) for i in range(2))
    b = b.reshape(64, 32)
    product = a.double() @ b.double()
    compare(f"""
        @triton.jit(noinline=True)
        def squared(x):
            return tl.dot(x, tl.trans(x), input_precision="ieee")

        @triton.jit
        def kernel(a, b, o, q, n):
            i, k = tl.arange(0, 32), tl.arange(0, 16)
            acc = tl.zeros([32, 32], tl.float32)
            extra = tl.zeros([32, 32], tl.float32)
            for at in range(0, n, 16):
                x = tl.load(a + i[:, None] * n + at + k[None, :])
                y = tl.load(b + (at + k[:, None]) * 32 + i[None, :])
                acc = tl.dot(x, y, acc, input_precision="ieee")
                if at > 0:
                    extra += squared(x)
            tl.store(o + i[:, None] * 32 + i[None, :], acc)
            tl.store(q + i[:, None] * 32 + i[None, :], extra + squared(acc.to({tl_name(dtype)})))
        """, {"a": a, "b": b, "o": poisoned("fp32", (32, 32)), "q": poisoned("fp32", (32, 32)), "n": 64},
        expected={"o": product.float()}, tolerance={"*": {"rtol": 1e-6}})


def test_block_pointers_and_descriptors():
    compare("""
        @triton.jit(noinline=True)
        def moved(block, by):
            x = tl.load(block, boundary_check=(0, 1))
            return tl.advance(block, (0, by)), x

        @triton.jit(noinline=True)
        def copied(source, target, row):
            target.store([row, 0], source.load([row, 4]) * 2)
            return source

        @triton.jit
        def kernel(p, o, n, m):
            block = tl.make_block_ptr(p, (8, n), (16, 1), (0, 0), (8, 8), (1, 0))
            x = tl.zeros([8, 8], tl.int32)
            for k in range(2):
                block, y = moved(block, 8)
                x += y
            source = tl.make_tensor_descriptor(p, [8, n], [16, 1], [4, 8])
            target = tl.make_tensor_descriptor(o, [8, 8], [8, 1], [4, 8])
            source = copied(source, target, 0)
            source = copied(source, target, m)
            tl.debug_barrier()
            at = tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :]
            tl.store(o + at, tl.load(o + at) + x)
        """, {**_args("blocks"), "n": 13, "m": 4})


def test_one_function_a_signature():
    """Calls with arguments of one kind share a function; other types and compile-time values make others."""
    if ONLY_INTERPRETER:
        pytest.skip("the interpreter compiles nothing")
    kernel = kernel_of("""
        @triton.jit(noinline=True)
        def helper(x, C: tl.constexpr, D):
            return x * C + D

        @triton.jit
        def kernel(p):
            i = tl.arange(0, 16)
            x = tl.load(p + i)
            x = helper(x, 1, 0.0) + helper(x, 1, 0.0)
            x = helper(x, 2, 0.0) + helper(x, 2, -0.0)
            tl.store(p + i, x + helper(tl.load(p), 1, 0.0))

        @triton.jit
        def other(p):
            tl.store(p, helper(tl.load(p), 1, 0.0))
        """)
    text = kernel.warmup(torch.zeros(16), grid=(1,)).asm["ttir"]
    names = [line.split("@")[1].split("(")[0] for line in text.splitlines() if "func.func private" in line]
    assert sorted(names) == ["helper__fp32_c1_c0p0", "helper__fp32x16_c1_c0p0", "helper__fp32x16_c2_c0p0", "helper__fp32x16_c2_cm0p0"]
    assert text.count("call @helper__fp32x16_c1_c0p0") == 2


def test_unrolled_loops():
    rng = rng_of("unroll")
    args = {"p": random_array("fp32", 64, rng), "o": poisoned("fp32", 64)}
    source = """
        @triton.jit(noinline=True)
        def step(x, k):
            return x * 1.25 + k

        @triton.jit
        def kernel(p, o, a, b, s, F: tl.constexpr):
            i = tl.arange(0, 16)
            x = tl.load(p + i)
            n = 0
            for k in tl.range(a, b, s, loop_unroll_factor=F):
                x = step(x, k)
                for j in tl.range(0, 5, loop_unroll_factor=2):
                    if j > k:
                        x -= j
                n += 1
            tl.store(o + i, x)
            for k in tl.range(10, 3, -2, loop_unroll_factor=F):
                tl.store(o + 16 + k, k)
            tl.store(o + 32 + i, i * 0.0 + n)
        """
    for factor, bounds in ((3, ((0, 10, 1), (-4, 7, 3), (3, 3, 1), (5, 2, 1))), (4, ((0, 8, 1), (0, 11, 2)))):
        for a, b, s in bounds[:2] if SIMULATED else bounds:
            compare(source, {**args, "a": a, "b": b, "s": s, "F": factor}, enable_fp_fusion=False)
