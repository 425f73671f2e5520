"""Programs that wait for a later one run at the same time."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.dialects.errors import OutOfResources
from tilewright.targets.cpu.driver import at_once


@triton.jit
def by_loads(flags, out, n):
    pid = tl.program_id(0)
    if pid < n - 1:
        while tl.load(flags + pid + 1) == 0:
            pass
    tl.store(out + pid, tl.load(out + pid + 1) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(flags + pid, 1)


@triton.jit
def by_atomics(flags, out, n):
    pid = tl.program_id(0)
    done = pid == n - 1
    while not done:
        done = tl.atomic_cas(flags + pid + 1, 1, 1) == 1
    tl.store(out + pid, tl.load(out + pid + 1) + 1)
    tl.atomic_xchg(flags + pid, 1)


@triton.jit
def with_break(flags, out, n):
    pid = tl.program_id(0)
    rounds = 0
    while pid < n - 1:
        rounds += 1
        if tl.atomic_add(flags + pid + 1, 0) == 1:
            break
    tl.store(out + pid, tl.load(out + pid + 1) + 1)
    tl.atomic_xchg(flags + pid, 1)


@triton.jit
def is_set(p):
    return tl.load(p) != 0


@triton.jit(noinline=True)
def is_set_called(p):
    return tl.load(p, volatile=True) != 0


@triton.jit
def by_function(flags, out, n, CALLED: tl.constexpr):
    pid = tl.program_id(0)
    ready = pid == n - 1
    while not ready:
        if CALLED:
            ready = is_set_called(flags + pid + 1)
        else:
            ready = is_set(flags + pid + 1)
    tl.store(out + pid, tl.load(out + pid + 1) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(flags + pid, 1)


@triton.jit
def search(values, out, n):
    low, high, wanted = 0, n, tl.program_id(0)
    while low < high:
        middle = (low + high) // 2
        if tl.load(values + middle) < wanted:
            low = middle + 1
        else:
            high = middle
    tl.store(out + wanted, low)


@pytest.mark.parametrize("kernel, more", [(by_loads, ()), (by_atomics, ()), (with_break, ()), (by_function, (False,)), (by_function, (True,))])
def test_each_waits_for_the_next(kernel, more, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    n = 9
    for _ in range(3):
        flags, out = np.zeros(n + 1, np.int32), np.zeros(n + 1, np.int32)
        made = kernel[(n,)](flags, out, n, *more)
        assert out.tolist() == [*range(n, 0, -1), 0] and flags.tolist() == [1] * n + [0]
    assert made.metadata.waits


def test_a_search_is_no_waiting(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    out = np.zeros(8, np.int32)
    made = search[(8,)](np.arange(0, 16, 2, dtype=np.int32), out, 8)
    assert out.tolist() == [0, 1, 1, 2, 2, 3, 3, 4] and not made.metadata.waits


def test_no_more_at_once_than_is_said():
    lock, state = threading.Lock(), {"now": 0, "most": 0}
    gate = threading.Barrier(3)
    ran = []

    def run(program):
        with lock:
            state["now"] += 1
            state["most"] = max(state["most"], state["now"])
            ran.append(program)
        gate.wait(20)  # three at a time or none
        with lock:
            state["now"] -= 1

    at_once(3, 9, run)
    assert sorted(ran) == list(range(9)) and state["most"] == 3
    with pytest.raises(ValueError, match="4"):
        at_once(2, 8, lambda program: int("4x") if program == 4 else None)


def test_threads_that_the_system_does_not_give(monkeypatch):
    """No program runs: one might wait for one that has no thread."""
    started, start = [], threading.Thread.start

    def some(thread):
        if len(started) == 5:
            raise RuntimeError("can't start new thread")
        start(thread)
        started.append(thread)

    monkeypatch.setattr(threading.Thread, "start", some)
    ran = []
    with pytest.raises(OutOfResources, match="threads for programs that wait for one another: 8 needed, 6 available. Launch fewer programs"):
        at_once(8, 8, ran.append)
    assert not ran and not any(thread.is_alive() for thread in started)
