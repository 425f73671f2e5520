"""Loops whose bounds and steps come to the limits of their type run as often as Python's range, in every form that loops are compiled to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance import harness
from tilewright.conformance.harness import compare, kernel_of, poisoned

TYPES = ["int32", "uint64", *(pytest.param(t, marks=pytest.mark.nightly) for t in ("int64", "uint32"))]
PROGRAMS, MOST = 24, 8


def limits(dtype):
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def steps(dtype, rng, n):
    """Of a few, and of parts of the type's range: two, three or four of which pass it."""
    _, high = limits(dtype)
    large = [high, high - 1, high // 2, high // 2 + 1, high // 3, high // 3 + 1, high // 4 + 1]
    return [int(rng.integers(1, 9)) if rng.random() < 0.4 else large[rng.integers(len(large))] for _ in range(n)]


def bounds(dtype, step, rng):
    """(first, end) with at most MOST rounds, one of the two at a limit or next to it, or none of them."""
    low, high = limits(dtype)
    for _ in range(1000):
        near = int(rng.integers(0, 5)) if rng.random() < 0.7 else int(rng.integers(0, 1 << 20))
        span = int(rng.integers(0, MOST)) * step + int(rng.integers(-2, 3))
        end = high - near if rng.random() < 0.5 else low + near + max(span, 0)
        first = end - span
        if rng.random() < 0.1:
            first, end = end, first
        if rng.random() < 0.2:
            first = low
        if low <= first <= high and low <= end <= high and -((first - end) // step) <= MOST:
            return first, end
    return low, low


def run(dtype, header, body, cases, **options):
    """Each program runs one case, whose counts it stores; behind them stands what the array held before."""
    first, end, step = zip(*cases)
    expected = np.zeros((len(cases), MOST + 1), dtype)
    for row, case in zip(expected, cases):
        counts = list(range(*case))
        row[0], row[1:1 + len(counts)] = len(counts), counts
    arrays = {name: torch.from_numpy(np.array(values, dtype)) for name, values in (("first", first), ("end", end))}
    sizes = torch.from_numpy(np.array([abs(s) for s in step], dtype))
    return compare(f"""
        @triton.jit
        def kernel(first, end, sizes, o, STEP: tl.constexpr):
            pid = tl.program_id(0)
            low, high, size = tl.load(first + pid), tl.load(end + pid), tl.load(sizes + pid)
            n = 0
            for i in {header}:
                {body}
                n += 1
                tl.store(o + pid * 9 + n, i)
            tl.store(o + pid * 9, n.to(low.dtype))
        """, {**arrays, "sizes": sizes, "o": torch.zeros((len(cases), MOST + 1), dtype=sizes.dtype), "STEP": step[0]},
        expected={"o": expected}, grid=(len(cases),), num_warps=1, **options)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("form", ["plain", "left", "unrolled"])
def test_a_step_known_at_run_time(dtype, form):
    rng = harness.fresh_rng()
    cases = [(*bounds(dtype, s, rng), s) for s in steps(dtype, rng, PROGRAMS)]
    header = {"plain": "range(low, high, size)", "left": "range(low, high, size)", "unrolled": "tl.range(low, high, size, loop_unroll_factor=3)"}[form]
    run(dtype, header, "if n == 100: break" if form == "left" else "pass", cases)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("form", ["plain", "left", "unrolled", "downwards"])
def test_a_step_known_while_compiling(dtype, form):
    rng = harness.fresh_rng()
    step = steps(dtype, rng, 1)[0]
    cases = [(*bounds(dtype, step, rng), step) for _ in range(PROGRAMS)]
    if form == "downwards":
        low, high = limits(dtype)
        cases = [(low + high - first, low + high - end, -step) for first, end, step in cases]
    header = "tl.range(low, high, STEP, loop_unroll_factor=2)" if form == "unrolled" else "range(low, high, STEP)"
    run(dtype, header, "if n == 100: break" if form == "left" else "pass", cases)


@pytest.mark.parametrize("stages", [1, 3, 4])
@pytest.mark.parametrize("known", [True, False])
def test_pipelined_loads(stages, known):
    """Loads that were issued for rounds that do not come would touch what lies around the arrays, or be multiplied."""
    rng = harness.fresh_rng()
    step = steps("int32", rng, 1)[0] if known else 1
    cases = []
    for size in [step] * 6 if known else steps("int32", rng, 6):
        cases.append((*bounds("int32", size, rng), size))
    first, end, size = (torch.tensor(v, dtype=torch.int32) for v in zip(*cases))
    x, y = (torch.from_numpy(rng.integers(-3, 4, (len(cases), MOST, 16, 16)).astype(np.float16)) for _ in range(2))
    expected = [sum((a.astype(np.float64) @ b for a, b in zip(p[:n], q[:n])), np.zeros((16, 16)))
                for p, q, n in zip(x.numpy(), y.numpy(), (len(range(*c)) for c in cases))]
    compare("""
        @triton.jit
        def kernel(first, end, sizes, x, y, o, STEP: tl.constexpr, STAGES: tl.constexpr):
            pid = tl.program_id(0)
            low, high, size = tl.load(first + pid), tl.load(end + pid), tl.load(sizes + pid)
            tile = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
            x += pid * 2048 + tile
            y += pid * 2048 + tile
            total = tl.zeros((16, 16), tl.float32)
            for _ in tl.range(low, high, STEP if STEP > 1 else size, num_stages=STAGES):
                total = tl.dot(tl.load(x), tl.load(y), total)
                x += 256
                y += 256
            tl.store(o + pid * 256 + tile, total)
        """, {"first": first, "end": end, "sizes": size, "x": x, "y": y, "o": poisoned("fp32", len(cases) * 256), "STEP": step, "STAGES": stages},
        expected={"o": np.array(expected, np.float32).reshape(-1)}, grid=(len(cases),), num_warps=1)


@pytest.mark.skipif(harness.ONLY_INTERPRETER, reason="an error there")
@pytest.mark.parametrize("form", ["range(low, high, size)", "tl.range(low, high, size, loop_unroll_factor=2)", "left"])
def test_a_step_that_turns_out_not_to_be_positive_gives_no_round(form):
    kernel = kernel_of(f"""
        @triton.jit
        def kernel(sizes, o, low, high):
            size = tl.load(sizes + tl.program_id(0))
            n = 0
            for i in {"range(low, high, size)" if form == "left" else form}:
                {"if n == 50: break" if form == "left" else "pass"}
                n += 1
            tl.store(o + tl.program_id(0), n)
        """)
    sizes = torch.tensor([0, -1, -3, -(2**31), 4, 2**31 - 1], dtype=torch.int32)
    got = harness.run(kernel, {"sizes": sizes, "o": poisoned("int32", 6), "low": 2, "high": 11}, (6,), num_warps=1)
    assert got["o"].tolist() == [0, 0, 0, 0, 3, 1]


@pytest.mark.skipif(harness.ONLY_INTERPRETER, reason="an error there")
def test_a_step_that_compiling_finds_not_to_be_positive_gives_no_round():
    """It is a number at run time to whoever writes the kernel, and a constant to the passes."""
    kernel = kernel_of("""
        @triton.jit
        def kernel(o, x, low, high):
            tile = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
            zero = low - low
            below = zero - 3
            known = tl.full([], 0, tl.int32)
            n = 0
            for i in range(low, high, zero):
                n += 1
            for i in range(low, high, below):
                n += 10
            for i in range(low, high, known):
                if n == 50:
                    break
                n += 100
            for i in tl.range(low, high, zero, loop_unroll_factor=2):
                n += 1000
            for i in tl.range(low, 11, below, loop_unroll_factor=2):
                n += 10000
            total = tl.zeros((16, 16), tl.float32)
            for i in tl.range(low, high, below, num_stages=3):
                total = tl.dot(tl.load(x + i + tile), tl.load(x + tile), total)
            tl.store(o, n + tl.sum(total).to(tl.int32))
        """)
    got = harness.run(kernel, {"o": poisoned("int32", 1), "x": torch.ones(512, dtype=torch.float16), "low": 2, "high": 11}, (1,), num_warps=1)
    assert got["o"].tolist() == [0]
