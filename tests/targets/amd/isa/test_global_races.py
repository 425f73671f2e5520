"""Races in global memory by AMD's code: on each architecture the waits for stores that order accesses are needed. (What holds on every target:
tests/targets/test_global_races_simulated.py.)"""

import functools
import re

import numpy as np
import pytest
from race_kernels import count, last_adds, turn

import tilewright
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.targets import registry
from tilewright.targets.amd.isa.errors import GlobalRace
from tilewright.targets.amd.simulate import simulate

ARCHS = ("gfx942", "gfx1030", "gfx1100", "gfx1201")


@functools.cache
def text_of(kernel, arch, **constants):
    signature = {n: "i32" if n == "n" else "*i32" if n == "counter" or kernel is count else "*fp32"
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


def test_work_groups_that_run_in_different_batches(arch):
    with pytest.raises(GlobalRace):
        run(count, arch, [np.zeros(1, np.int32)], 200, ATOMIC=False)


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


TOLD = {"BARRIER": True, "SEM": "acq_rel", "VOLATILE": False}


def parts(grid):
    x = np.arange(grid * 256, dtype=np.float32)
    out = np.zeros(256, np.float32)
    return [x, np.full(grid * 256, np.nan, np.float32), np.zeros(1, np.int32), out, grid], out, x.reshape(grid, 256).sum(0) * 2


def test_programs_are_ordered_by_an_atomic(arch):
    args, out, expected = parts(4)
    run(last_adds, arch, args, 4, B=256, G=4, **TOLD)
    assert (out == expected).all()
    args, out, expected = parts(40)  # more than one batch
    run(last_adds, arch, args, 40, B=256, G=40, **TOLD)
    assert (out == expected).all()


def test_stores_are_waited_for_before_an_atomic(arch):
    with pytest.raises(GlobalRace, match="after the store was waited for"):
        run(last_adds, arch, parts(4)[0], 4, change=without_store_waits(arch, r"\n\t(?:global|buffer)_atomic"), B=256, G=4, **TOLD)
