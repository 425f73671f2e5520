"""Layout conversions: plans run by a numpy model, the emitted LLVM dialect run by the SIMT executor, bank conflicts counted."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from test_encodings import ROWS

from tilewright.dialects import encodings as E
from tilewright.dialects import ttg
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.dialects.gf2 import Gf2Solver
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.lowering import convert_plan as P

POISON = -1


# ---------------------------------------------------------------------------------------------- the numpy model
def distribute(layout, tensor_flat):
    """[registers, threads] values of a layout, from the tensor's elements in row-major order."""
    r = layout.in_size("register")
    return tensor_flat[layout.table()].reshape(-1, r).T.copy()


def linear(columns, index):
    out = np.zeros_like(index)
    for bit, c in enumerate(columns):
        out ^= (index >> bit & 1) * c
    return out


def execute(plan, values, warp_size):
    """Run a plan on [source registers, threads] values; returns [destination registers, threads]."""
    threads = np.arange(values.shape[1])
    out = np.full((plan.num_registers, values.shape[1]), POISON, values.dtype)
    if plan.kind == "registers":
        return values[list(plan.registers)]
    if plan.kind == "shuffle":
        s = plan.shuffle
        warp_base, lane = threads // warp_size * warp_size, threads % warp_size
        received = np.full((1 << len(s.lane_step), len(threads)), POISON, values.dtype)
        done = set()
        for group in s.packed:
            source = (linear(s.lane_step, np.array(group[0])) ^ linear(s.lane_thread, threads))
            assert not s.lane_identity or (linear(s.lane_thread, threads) == lane).all()
            assert s.moves(group) == bool((source != lane).any())
            assert (source < warp_size).all()
            for step in group:
                assert linear(s.lane_step, np.array(step)) == linear(s.lane_step, np.array(group[0]))
                send = values[linear(s.send_step, np.array(step)) ^ linear(s.send_thread, threads), threads]
                received[step] = send[warp_base + source]
                done.add(step)
        assert done == set(range(len(received)))
        for r in range(plan.num_registers):
            out[r] = received[s.unique[r] ^ linear(s.keep_thread, threads), threads]
        return out
    s = plan.shared
    memory = np.full(s.elements, POISON, values.dtype)
    writers = np.full(s.elements, -1)
    store_at, load_at = linear(s.store_thread, threads), linear(s.load_thread, threads)
    active = threads & s.idle_threads == 0
    for stores, loads in zip(s.stores, s.loads):
        writers[:] = -1
        for access in stores:
            assert access.offset % len(access.registers) == 0 and not (store_at % len(access.registers)).any()
            for i, r in enumerate(access.registers):
                at = (access.offset ^ store_at)[active] + i
                assert (writers[at] == -1).all(), "two threads write one element"
                writers[at] = threads[active] // warp_size
                memory[at] = values[r][active]
        for access in loads:
            assert access.offset % len(access.registers) == 0 and not (load_at % len(access.registers)).any()
            for i, r in enumerate(access.registers):
                at = (access.offset ^ load_at) + i
                out[r] = memory[at]
                assert (out[r] != POISON).all(), "read before it was written"
                assert not s.within_warp or (writers[at] == threads // warp_size).all()
        memory[:] = POISON
    for r, owner in s.copies:
        out[r] = out[owner]
    return out


def check(src, dst, plan, warp_size):
    tensor = np.random.default_rng(0).permutation(1 << src.total_out_bits)
    got = execute(plan, distribute(src, tensor), warp_size)
    np.testing.assert_array_equal(got, distribute(dst, tensor))


# ----------------------------------------------------------------------------------------------- random layouts
def split_powers(rng, total_bits, parts):
    bits = [0] * parts
    for _ in range(total_bits):
        bits[rng.randrange(parts)] += 1
    return [1 << b for b in bits]


def random_blocked(rng, rank, warp_bits, num_warp_bits):
    order = list(range(rank))
    rng.shuffle(order)
    return ttg.BlockedEncoding.of(split_powers(rng, rng.randint(0, 4), rank), split_powers(rng, warp_bits, rank),
                                  split_powers(rng, num_warp_bits, rank), order)


def random_mma(rng, rank, warp_bits, num_warp_bits):
    row = rng.choice([r for r in ROWS if r.warp_size == 1 << warp_bits])
    warps = split_powers(rng, num_warp_bits, 2)
    return ttg.MmaEncoding.of(row.name, [1] * (rank - 2) + warps, rng.random() < 0.4), row


def random_layout(rng, shape, warp_bits, num_warp_bits):
    rank = len(shape)
    kinds = ["blocked", "slice", "linear", "linear"] + (["mma", "dot", "fma"] if rank == 2 else [])
    kind = rng.choice(kinds)
    if kind == "blocked":
        return E.to_linear_layout(shape, random_blocked(rng, rank, warp_bits, num_warp_bits))
    if kind == "slice":
        parent_kind = rng.random()
        dim = rng.randint(0, rank)
        if rank == 1 and parent_kind < 0.4:
            parent = random_mma(rng, 2, warp_bits, num_warp_bits)[0]
        else:
            parent = random_blocked(rng, rank + 1, warp_bits, num_warp_bits)
        return E.to_linear_layout(shape, ttg.SliceEncoding.of(dim, parent))
    if kind == "fma":
        parent = random_blocked(rng, rank, warp_bits, num_warp_bits)
        return E.to_linear_layout(shape, ttg.DotOperandEncoding.of(rng.randint(0, 1), parent))
    if kind in ("mma", "dot"):
        mma, row = random_mma(rng, rank, warp_bits, num_warp_bits)
        if kind == "mma":
            return E.to_linear_layout(shape, mma)
        side = rng.randint(0, 1)
        wide = 2 * E.native_k_width(row) if shape[1 - side] >= 2 * row.k else 0
        return E.to_linear_layout(shape, ttg.DotOperandEncoding.of(side, mma, rng.choice([0, wide])))
    return random_linear(rng, shape, warp_bits, num_warp_bits)


def random_linear(rng, shape, warp_bits, num_warp_bits):
    """Any surjective map: permuted, or with mixed bases, with repeats in any place."""
    bits = sum(s.bit_length() - 1 for s in shape)
    registers = max(0, bits - warp_bits - num_warp_bits) + rng.randint(0, 1)
    total = registers + warp_bits + num_warp_bits
    while True:
        if rng.random() < 0.5:
            columns = [1 << i for i in range(bits)] + [0] * (total - bits)
            rng.shuffle(columns)
        else:
            columns = [rng.randrange(1 << bits) if rng.random() < 0.9 else 0 for _ in range(total)]
        if Gf2Solver(columns).rank == bits:
            break
    return LinearLayout.from_columns(
        {"register": columns[:registers], "lane": columns[registers:registers + warp_bits],
         "warp": columns[registers + warp_bits:], "block": []}, dict(zip(E.dim_names(len(shape)), shape)))


def random_pairs(count, seed):
    """(src, dst, bits of an element, warp size, warps, scratch limit)"""
    rng = random.Random(seed)
    for _ in range(count):
        shape = rng.choice([[1], [16], [64], [1024], [4, 32], [16, 16], [64, 16], [32, 64], [128, 64], [2, 16, 32]])
        warp_bits, num_warp_bits = rng.choice([5, 5, 6]), rng.randint(0, 3)
        src = random_layout(rng, shape, warp_bits, num_warp_bits)
        choice = rng.random()
        if choice < 0.25:  # a relative of the source: shuffles and register moves
            dst = related(rng, src, across_lanes=choice < 0.2)
        else:
            dst = random_layout(rng, shape, warp_bits, num_warp_bits)
        yield src, dst, rng.choice([1, 8, 16, 32, 64]), 1 << warp_bits, 1 << num_warp_bits, rng.choice([1024, 4096, 32768])


def related(rng, src, across_lanes):
    """Register (and lane) bases mixed among themselves, so that every warp keeps its data."""
    registers, lanes = list(src.columns("register")), list(src.columns("lane"))
    pool = registers + lanes if across_lanes else registers
    rng.shuffle(pool)
    for _ in range(rng.randint(0, 4) if len(pool) > 1 else 0):
        i, j = rng.sample(range(len(pool)), 2)
        pool[i] ^= pool[j]
    registers, lanes = pool[:len(registers)], pool[len(registers):] if across_lanes else lanes
    if rng.random() < 0.2:
        registers = registers + [rng.choice([0, *registers])]
    return LinearLayout.from_columns({"register": registers, "lane": lanes, "warp": src.columns("warp"), "block": []}, src.out_sizes)


@pytest.fixture(autouse=True)
def _context():
    with mlir_context():
        yield


def test_two_thousand_random_pairs_by_the_model():
    """Every plan gives every element of every thread, repeats included; all three ways occur."""
    kinds = {"registers": 0, "shuffle": 0, "shared": 0}
    for src, dst, bits, warp_size, warps, limit in random_pairs(2000, seed=1):
        plan = P.plan_convert(src, dst, bits, warp_size, warps, limit)
        kinds[plan.kind] += 1
        check(src, dst, plan, warp_size)
    assert min(kinds.values()) > 50, kinds


def test_every_possible_way_gives_the_same():
    """Shared memory and shuffles also where something cheaper was chosen."""
    shuffled = 0
    for src, dst, bits, warp_size, warps, limit in random_pairs(300, seed=2):
        check(src, dst, P.plan_convert(src, dst, bits, warp_size, warps, limit, way="shared"), warp_size)
        try:
            plan = P.plan_convert(src, dst, bits, warp_size, warps, limit, way="shuffle")
        except ValueError:
            continue
        shuffled += 1
        check(src, dst, plan, warp_size)
    assert shuffled > 20
