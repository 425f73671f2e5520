"""Races in global memory between work-groups and between waves: found where nothing orders two accesses, and waits that order them are needed."""

import functools
import re

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.targets import registry
from tilewright.targets.amd.isa.errors import GlobalRace
from tilewright.targets.amd.simulate import simulate

ARCHS = ("gfx942", "gfx1030", "gfx1100", "gfx1201")


@tilewright.jit
def shared_place(x, value, step, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, tl.full((B,), 0, tl.int32) + value + tl.program_id(0) * step)


@tilewright.jit
def count(x, B: tl.constexpr):
    tl.store(x, tl.load(x) + 1)


@tilewright.jit
def count_atomically(x, B: tl.constexpr):
    tl.atomic_add(x, 1)


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
def last_adds(x, parts, counter, out, n, B: tl.constexpr, G: tl.constexpr):
    """Every program writes a part; the one that counts last adds them all."""
    pid = tl.program_id(0)
    i = tl.arange(0, B)
    tl.store(parts + pid * B + i, tl.load(x + pid * B + i) * 2)
    tl.debug_barrier()  # the atomic is one wave's
    if tl.atomic_add(counter, 1) == n - 1:
        total = tl.zeros((B,), tl.float32)
        for p in range(G):
            total += tl.load(parts + p * B + i)
        tl.store(out + i, total)


@functools.cache
def text_of(kernel, arch, **constants):
    signature = {n: "i32" if n in ("value", "step", "n") else "*i32" if n == "counter" or kernel in (shared_place, count, count_atomically) else "*fp32"
                 for n in kernel.arg_names if n not in constants}
    compiled = tilewright.compile(ASTSource(kernel, signature, constants), target=registry.parse(f"amd:{arch}"), options={"num_warps": 4})
    return compiled.asm["amdgcn"], compiled.metadata.shared


def run(kernel, arch, args, grid=1, change=None, **constants):
    text, shared = text_of(kernel, arch, **constants)
    if change is not None:
        changed = change(text)
        assert changed != text, "nothing was changed"
        text = changed
    simulate(text, (grid,), args, num_warps=4, shared=shared)


@pytest.fixture(params=ARCHS)
def arch(request):
    return request.param


def test_two_programs_write_one_place(arch):
    x = np.zeros(256, np.int32)
    run(shared_place, arch, [x, 7, 0], 3, B=256)  # the same value
    assert (x == 7).all()
    with pytest.raises(GlobalRace, match=r"byte \d+ of argument 0.*: wave 0 of work-group \(\d, 0, 0\) writes what wave 0 of work-group \(\d, 0, 0\) wrote "
                                         r"\(line \d+, pc \d+: .*store.*nothing that orders them") as found:
        run(shared_place, arch, [x, 7, 1], 3, B=256)
    assert "test_global_races.py:" in str(found.value)
    run(shared_place, arch, [x, 7, 1], 1, B=256)


def test_work_groups_that_run_in_different_batches(arch):
    with pytest.raises(GlobalRace):
        run(count, arch, [np.zeros(1, np.int32)], 200, B=1)


def test_counting_needs_an_atomic(arch):
    x = np.zeros(1, np.int32)
    run(count_atomically, arch, [x], 5, B=1)
    assert x[0] == 5
    with pytest.raises(GlobalRace):
        run(count, arch, [x], 2, B=1)


def test_a_program_reads_what_another_writes(arch):
    x = np.arange(512 * 3, dtype=np.float32)
    with pytest.raises(GlobalRace, match=r"writes what .* read|reads what .* wrote"):
        run(shift, arch, [x], 2, B=512)
    run(shift, arch, [x[:1024]], 1, B=512)


@pytest.mark.parametrize("barrier", [True, False])
def test_waves_of_a_program_need_a_barrier(arch, barrier):
    x, y = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    if not barrier:
        with pytest.raises(GlobalRace, match="reads what .* wrote .*no barrier between"):
            run(turn, arch, [x, y], B=1024, BARRIER=False)
        return
    run(turn, arch, [x, y], B=1024, BARRIER=True)
    assert (x == np.arange(1024)[::-1] * 2).all()


STORE_WAITS = {"gfx942": r"\n\ts_waitcnt [^\n]*vmcnt\(0\)[^\n]*", "gfx1030": r"\n\ts_waitcnt_vscnt null, 0x0", "gfx1100": r"\n\ts_waitcnt_vscnt null, 0x0",
               "gfx1201": r"\n\ts_wait_storecnt(?:_dscnt)? 0x0"}


def without_store_waits(arch, before):
    """The text without the waits for stores between the first store and ``before`` (a pattern)."""
    def change(text):
        first = re.search(r"\n\t(?:global|buffer)_store_", text).end()
        last = re.compile(before).search(text, first).start()
        return text[:first] + re.sub(STORE_WAITS[arch], "", text[first:last]) + text[last:]

    return change


def test_stores_are_waited_for_before_a_barrier(arch):
    """vscnt on gfx10 and gfx11 and storecnt on gfx12, which loads do not count on: a wait for loads alone would not do."""
    x, y = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    change = without_store_waits(arch, r"\n\ts_barrier")
    if arch == "gfx942":  # whose waves see each other's stores in order
        run(turn, arch, [x, y], change=change, B=1024, BARRIER=True)
        assert (x == np.arange(1024)[::-1] * 2).all()
        return
    with pytest.raises(GlobalRace, match="or one that came before the store was waited for"):
        run(turn, arch, [x, y], change=change, B=1024, BARRIER=True)
    with pytest.raises(GlobalRace):
        other = {"gfx1201": "\n\ts_wait_loadcnt 0x0"}.get(arch, "\n\ts_waitcnt vmcnt(0)")
        run(turn, arch, [x, y], change=lambda text: re.sub(STORE_WAITS[arch] + r"(?=(?:\n\t[^\n]*){0,3}\n\ts_barrier)", other, text), B=1024, BARRIER=True)


@tilewright.jit
def turns(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    for _ in range(n):
        tl.store(y + i, v + 1)
        tl.debug_barrier()
        v = tl.load(y + B - 1 - i)
        tl.debug_barrier()
    tl.store(x + i, v)


@tilewright.jit
def rounds(x, y, n, B: tl.constexpr):
    """The first round's barrier has no stores to wait for, the others' have."""
    i = tl.arange(0, B)
    v = tl.load(x + i)
    for _ in range(n):
        tl.debug_barrier()
        w = tl.load(y + B - 1 - i)
        tl.debug_barrier()
        tl.store(y + i, w + v)


def test_stores_of_the_round_before_are_waited_for(arch):
    x, y = np.ones(1024, dtype=np.float32), np.arange(1024, dtype=np.float32)
    run(rounds, arch, [x, y, 3], B=1024)
    assert (y == np.arange(1024)[::-1] + 3).all()


def test_stores_are_waited_for_in_a_loop(arch):
    x, y = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    run(turns, arch, [x, y, 3], B=1024)
    assert (x == np.arange(1024)[::-1] + 3).all()


def parts(grid):
    x = np.arange(grid * 256, dtype=np.float32)
    out = np.zeros(256, np.float32)
    return [x, np.full(grid * 256, np.nan, np.float32), np.zeros(1, np.int32), out, grid], out, x.reshape(grid, 256).sum(0) * 2


def test_programs_are_ordered_by_an_atomic(arch):
    args, out, expected = parts(4)
    run(last_adds, arch, args, 4, B=256, G=4)
    assert (out == expected).all()
    args, out, expected = parts(40)  # more than one batch
    run(last_adds, arch, args, 40, B=256, G=40)
    assert (out == expected).all()


def test_stores_are_waited_for_before_an_atomic(arch):
    with pytest.raises(GlobalRace, match="after the store was waited for"):
        run(last_adds, arch, parts(4)[0], 4, change=without_store_waits(arch, r"\n\t(?:global|buffer)_atomic"), B=256, G=4)


def test_the_check_can_be_left_out(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_SIMULATE_GLOBAL_RACES", "0")
    run(count, "gfx942", [np.zeros(1, np.int32)], 2, B=1)
