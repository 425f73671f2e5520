"""Races in global memory, as every vendor's simulator finds them: the same kernels, the same answers. (What is AMD's own: amd/isa/test_global_races.py.)"""

import re

import numpy as np
import pytest
import race_kernels
from race_kernels import count, last_adds, shared_place, shift, turn

import tilewright
import tilewright.language as tl
from tilewright.dialects.errors import TilewrightError

TARGETS = ("nvidia:sm_80:sim", "nvidia:sm_90a:sim", "amd:gfx942:sim")


@pytest.fixture(autouse=True, params=TARGETS)
def target(request, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", request.param)
    return request.param


@tilewright.jit
def locked(lock, x, B: tl.constexpr, TAKE: tl.constexpr, GIVE: tl.constexpr):
    """Adds to x, read backwards, so that every warp reads what other warps wrote."""
    i = tl.arange(0, B)
    if TAKE:
        while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
            pass
    v = tl.load(x + B - 1 - i) + 1
    tl.debug_barrier()
    tl.store(x + i, v)
    if GIVE:
        tl.debug_barrier()
    tl.atomic_xchg(lock, 0, sem="release")


@tilewright.jit
def hand_over(data, flag, out, B: tl.constexpr, ATOMIC: tl.constexpr):
    """Program 0 writes and raises a flag, program 1 waits for it and reads."""
    i = tl.arange(0, B)
    if tl.program_id(0) == 0:
        tl.store(data + i, i * 3)
        tl.debug_barrier()
        tl.atomic_xchg(flag, 1, sem="release")
    else:
        if ATOMIC:
            while tl.atomic_cas(flag, 1, 1, sem="acquire") == 0:
                pass
        else:
            while tl.load(flag, volatile=True) == 0:
                pass
        tl.store(out + i, tl.load(data + B - 1 - i))


@tilewright.jit
def split_k(x, out, B: tl.constexpr, ATOMIC: tl.constexpr):
    i = tl.arange(0, B)
    part = tl.load(x + tl.program_id(0) * B + i)
    if ATOMIC:
        tl.atomic_add(out + i, part)
    else:
        tl.store(out + i, tl.load(out + i) + part)


@tilewright.jit
def replicated(x, y, B: tl.constexpr):
    """A tile smaller than a program: several warps hold it, the first one stores it and all read it again."""
    i = tl.arange(0, B)
    tl.store(x + i, tl.load(x + i) + 1)
    tl.store(y + i, tl.load(x + i) * 2)


def race(text):
    return pytest.raises(TilewrightError, match=text)


def test_two_programs_write_one_place(target):
    x = np.zeros(256, np.int32)
    shared_place[(3,)](x, 7, 0, B=256)  # the same value
    assert (x == 7).all()
    who = "wave 0 of work-group" if target.startswith("amd") else "warp 0 of program"
    line = shared_place.fn.__code__.co_firstlineno + 3
    with race(r"byte \d+ of buffer .*|byte \d+ of argument 0 .*") as found:
        shared_place[(3,)](x, 7, 1, B=256)
    text = str(found.value)
    file = race_kernels.__file__
    assert re.search(rf"{who} \(\d, 0, 0\) writes what {who} \(\d, 0, 0\) wrote \(line ({re.escape(file)}:)?{line}, .*nothing that orders them", text), text
    assert f"{file}:{line}" in text.partition("nothing that orders")[2], text  # the later access too
    shared_place[(1,)](x, 7, 1, B=256)


def test_counting_needs_an_atomic():
    x = np.zeros(1, np.int32)
    count[(5,)](x, ATOMIC=True)
    assert x[0] == 5
    with race("writes what .* (read|wrote)|reads what .* wrote"):
        count[(2,)](x, ATOMIC=False)


def test_a_program_reads_what_another_writes():
    x = np.arange(512 * 3, dtype=np.float32)
    with race("writes what .* read|reads what .* wrote"):
        shift[(2,)](x, B=512)
    shift[(1,)](x, B=512)


def test_warps_of_a_program_need_a_barrier():
    x, y = np.arange(1024, dtype=np.float32), np.zeros(1024, np.float32)
    turn[(1,)](x, y, B=1024, BARRIER=True)
    assert (x == np.arange(1024)[::-1] * 2).all()
    with race("reads what .* wrote .*no barrier between"):
        turn[(1,)](x, y, B=1024, BARRIER=False)


@pytest.mark.parametrize("grid", [4, 40])
def test_programs_are_ordered_by_an_atomic(grid):
    x, out = np.arange(grid * 256, dtype=np.float32), np.zeros(256, np.float32)
    last_adds[(grid,)](x, np.full(grid * 256, np.nan, np.float32), np.zeros(1, np.int32), out, grid, B=256, G=grid, BARRIER=True)
    assert (out == x.reshape(grid, 256).sum(0) * 2).all()


def test_an_atomic_orders_its_own_warp_alone():
    x, out = np.arange(1024, dtype=np.float32), np.zeros(256, np.float32)
    with race("reads what wa(rp|ve) [0123] of .* wrote"):
        last_adds[(4,)](x, np.full(1024, np.nan, np.float32), np.zeros(1, np.int32), out, 4, B=256, G=4, BARRIER=False)


@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release"])
def test_an_atomic_orders_as_it_says(sem):
    x, out = np.arange(1024, dtype=np.float32), np.zeros(256, np.float32)
    with race("reads what wa(rp|ve) [0123] of .* wrote .*nothing that orders them"):
        last_adds[(4,)](x, np.full(1024, np.nan, np.float32), np.zeros(1, np.int32), out, 4, B=256, G=4, BARRIER=True, SEM=sem)


@pytest.mark.parametrize("take, give", [(True, True), (False, True), (True, False)])
def test_a_lock(take, give):
    x, lock = np.arange(256, dtype=np.int32), np.zeros(1, np.int32)
    if take and give:
        locked[(5,)](lock, x, B=256, TAKE=True, GIVE=True)
        assert (x == np.arange(256)[::-1] + 5).all() and lock[0] == 0
        return
    with race("what wa(rp|ve) [0123] of .* nothing that orders them"):
        locked[(5,)](lock, x, B=256, TAKE=take, GIVE=give)


def test_a_flag_that_is_waited_for():
    data, flag, out = np.zeros(256, np.int32), np.zeros(1, np.int32), np.zeros(256, np.int32)
    hand_over[(2,)](data, flag, out, B=256, ATOMIC=True)
    assert (out == np.arange(256)[::-1] * 3).all()
    with race(r"reads what wa(rp|ve) \d of \S+ \(0, 0, 0\) wrote"):
        hand_over[(2,)](data * 0, flag * 0, out, B=256, ATOMIC=False)


def test_split_k():
    x, out = np.arange(4 * 256, dtype=np.int32), np.zeros(256, np.int32)
    split_k[(4,)](x, out, B=256, ATOMIC=True)
    assert (out == x.reshape(4, 256).sum(0)).all()
    with race("reads what .* wrote|writes what .* read"):
        split_k[(4,)](x, out, B=256, ATOMIC=False)


def test_copies_in_several_warps_are_no_race():
    x, y = np.arange(16, dtype=np.int32), np.zeros(16, np.int32)
    replicated[(1,)](x, y, B=16, num_warps=4)
    assert (y == (np.arange(16) + 1) * 2).all()
    with race("writes what .* (read|wrote)|reads what .* wrote"):
        replicated[(2,)](x, y, B=16, num_warps=4)


def test_the_check_can_be_left_out(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_SIMULATE_GLOBAL_RACES", "0")
    x = np.zeros(1, np.int32)
    count[(2,)](x, ATOMIC=False)
    assert x[0] >= 1
