"""Random tiles, strides, bounds and masks: kernels with buffer operations write what they write without, bit for bit, and touch nothing else."""

import random

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.targets.amd.isa.errors import SimulationError

MIDDLE = 1 << 14


@tilewright.jit
def tile_kernel(x_ptr, y_ptr, z_ptr, s0, s1, b0, b1, start, FORM: tl.constexpr, B0: tl.constexpr, B1: tl.constexpr):
    pid = tl.program_id(0)
    r, c = tl.arange(0, B0), tl.arange(0, B1)
    rows, columns = pid * B0 + r, start + c
    mask = (rows[:, None] < b0) & (columns[None, :] < b1)
    if FORM == 1:
        rows = rows % b0
        mask = columns[None, :] < b1
    if FORM == 2:
        rows = r
        mask = (r[:, None] <= b0) & (b1 > columns[None, :])
    if FORM == 3:
        mask = (rows[:, None] >= b0) & (columns[None, :] < b1)
    if FORM == 4:
        mask = (rows[:, None] * 2 < b0) & (columns[None, :] != b1)
    if FORM == 5:
        rows = tl.minimum(rows, b0 - 1)
    if FORM == 6:
        rows = rows // 2
        mask = (rows[:, None] < b0) & (pid < b1)
    if FORM == 7:
        mask = (rows[:, None] < b0) & (rows[:, None] + columns[None, :] < b1)
    if FORM == 8:
        mask = rows[:, None] * s0 + columns[None, :] * s1 < b0 * s0
    at = rows[:, None] * s0 + columns[None, :] * s1
    x = tl.load(x_ptr + at, mask=mask, other=3.0)
    tl.store(y_ptr + pid * B0 * B1 + r[:, None] * B1 + c[None, :], x)
    tl.store(z_ptr + at, x * 2, mask=mask)


@tilewright.jit
def walk_kernel(x_ptr, y_ptr, s0, s1, b0, b1, step, FORM: tl.constexpr, B0: tl.constexpr, B1: tl.constexpr):
    r, c = tl.arange(0, B0), tl.arange(0, B1)
    ptrs = x_ptr + r[:, None] * s0 + c[None, :] * s1
    total = tl.zeros((B0, B1), tl.float32)
    at = c
    for i in range(0, b1, B1):
        if FORM == 0:
            total += tl.load(ptrs, mask=c[None, :] < b1 - i, other=0.0)
        if FORM == 1:
            total += tl.load(ptrs, mask=(r[:, None] < b0) & (at[None, :] < b1), other=1.0)
        if FORM == 2:
            total += tl.load(ptrs, mask=r[:, None] < b0 - i)
        if FORM == 3:
            total += tl.load(x_ptr + r[:, None] * s0 + at[None, :], mask=at[None, :] < b1)
        ptrs += step
        at += B1
    tl.store(y_ptr + r[:, None] * B1 + c[None, :], total)


def both(run):
    """(outputs with, outputs without, kernel with)."""
    (first, kernel), (second, plain) = run(buffer_ops=True), run(buffer_ops=False)
    assert "amdg.buffer" not in plain.asm["ttgir"]
    for a, b in zip(first, second):
        np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))
    return kernel


@pytest.fixture(params=["gfx942", pytest.param("gfx1100", marks=pytest.mark.slow)])
def arch(request, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{request.param}:sim")
    return request.param


QUICK = (0, 1, 8)
TILES = [pytest.param(f, marks=() if f in QUICK else pytest.mark.slow) for f in range(9)]


@pytest.mark.parametrize("form", TILES)
def test_tiles(arch, form):
    rng = random.Random(form)
    converted = 0
    for _ in range(5):
        s0, s1 = rng.choice((-40, 0, 1, 7, 33, 64)), rng.choice((1, 1, 1, 1, 2, 0, -1))
        b0, b1, start = rng.choice((1, 2, 5, 8, 13, 40)), rng.choice((0, 1, 7, 31, 32, 50)), rng.choice((0, 0, 0, 3, -5))
        programs = rng.choice((1, 2, 3))

        def run(**options):
            x = np.random.default_rng(0).standard_normal(2 * MIDDLE).astype(np.float32)
            y, z = np.full(programs * 8 * 32, np.nan, np.float32), np.full(2 * MIDDLE, np.nan, np.float32)
            kernel = tile_kernel[(programs,)](x[MIDDLE:], y, z[MIDDLE:], s0, s1, b0, b1, start, form, 8, 32, **options)
            return (y, z), kernel

        converted += "amdg.buffer_load" in both(run).asm["ttgir"]
    assert converted >= (0 if form == 4 else 1)


@pytest.mark.parametrize("form", [pytest.param(f, marks=() if f == 1 else pytest.mark.slow) for f in range(4)])
def test_walks(arch, form):
    rng = random.Random(form)
    converted = 0
    for _ in range(5):
        s0, s1, step = rng.choice((-40, 0, 33, 64, 200)), rng.choice((1, 1, 1, 2, 0)), rng.choice((0, 1, 32, 64, -32))
        b0, b1 = rng.choice((0, 1, 5, 8, 40)), rng.choice((0, 1, 31, 32, 33, 100))

        def run(**options):
            x = np.random.default_rng(0).standard_normal(2 * MIDDLE).astype(np.float32)
            y = np.full(8 * 32, np.nan, np.float32)
            return (y,), walk_kernel[(1,)](x[MIDDLE:], y, s0, s1, b0, b1, step, form, 8, 32, **options)

        converted += "amdg.buffer_load" in both(run).asm["ttgir"]
    assert converted


@pytest.mark.parametrize("taken_away", ["the launch's guards", "what keeps rows apart"])
def test_without_its_proofs_the_pass_is_found_out(monkeypatch, tmp_path, taken_away):
    from tilewright.targets.amd.launch_guards import LaunchGuards
    from tilewright.targets.amd.passes.convert_to_buffer_ops import _Converter

    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx942:sim")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    if taken_away == "the launch's guards":
        monkeypatch.setattr(LaunchGuards, "require", lambda self, args, grid: None)
    else:
        monkeypatch.setattr(_Converter, "_apart", lambda self, stride, column, others: False)

    def run(**options):
        x, y, z = np.ones(2 * MIDDLE, np.float32), np.full(256, np.nan, np.float32), np.full(2 * MIDDLE, np.nan, np.float32)
        stride = -40 if taken_away == "the launch's guards" else 7
        kernel = tile_kernel[(1,)](x[MIDDLE:], y, z[MIDDLE:], stride, 1, 5, 32, 0, 2, 8, 32, num_warps=2 if stride < 0 else 1, **options)
        return (y, z), kernel

    with pytest.raises((AssertionError, SimulationError)):
        both(run)
