"""Kernels with and without races in global memory, for the tests of every target's simulator."""

import tilewright
import tilewright.language as tl


@tilewright.jit
def shared_place(x, value, step, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, tl.full((B,), 0, tl.int32) + value + tl.program_id(0) * step)


@tilewright.jit
def count(x, ATOMIC: tl.constexpr):
    if ATOMIC:
        tl.atomic_add(x, 1)
    else:
        tl.store(x, tl.load(x) + 1)


@tilewright.jit
def shift(x, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i + B))


@tilewright.jit
def turn(x, y, B: tl.constexpr, BARRIER: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i) * 2)
    if BARRIER:
        tl.debug_barrier()
    tl.store(x + i, tl.load(y + B - 1 - i))


@tilewright.jit
def last_adds(x, parts, counter, out, n, B: tl.constexpr, G: tl.constexpr, BARRIER: tl.constexpr, SEM: tl.constexpr = "acq_rel",
              VOLATILE: tl.constexpr = False):
    """Every program writes a part; the one that counts last adds them all."""
    pid = tl.program_id(0)
    i = tl.arange(0, B)
    tl.store(parts + pid * B + i, tl.load(x + pid * B + i) * 2)
    if BARRIER:
        tl.debug_barrier()  # the atomic is one warp's
    if tl.atomic_add(counter, 1, sem=SEM) == n - 1:
        total = tl.zeros((B,), tl.float32)
        for p in range(G):
            total += tl.load(parts + p * B + i, volatile=VOLATILE)
        tl.store(out + i, total)
