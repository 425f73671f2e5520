"""The interpreter looks at both branches of a run-time if, without what the one that is not taken would do."""

from __future__ import annotations

import pytest
import torch

import tilewright as triton
import tilewright.language as tl
from tilewright.dialects.errors import NameResolutionError, TypeMismatchError
from tilewright.runtime.interpreter import InterpretedFunction


def interpreted(fn):
    return InterpretedFunction(triton.jit(fn))


def two_branches(x, y, n):
    tl.store(x, 1.0)
    if n > 3:
        tl.store(x + n, 7.0)
        tl.atomic_add(x + 1, 1.0)
        tl.device_print("taken", n)
        print("python")
        tl.device_assert(n == 5, "five")
        assert n == 5
        while tl.load(x) < 9.0:
            tl.atomic_add(x, 4.0)
        for i in range(tl.load(y), 1 << 30, tl.load(y)):
            tl.atomic_add(x + 2, 1.0)
    else:
        tl.store(x + (1 << 40), 3.0)
        while tl.load(y + (1 << 40)) == 0:
            pass


def test_the_branch_that_is_not_taken_does_nothing(capsys):
    x, y = torch.zeros(8), torch.full((1,), 1 << 29, dtype=torch.int32)
    interpreted(two_branches)[(1,)](x, y, 5)
    assert x.tolist() == [9, 1, 1, 0, 0, 7, 0, 0]
    out = capsys.readouterr().out
    assert out.count("taken") == 1 and out.count("python") == 1
    x, memory = torch.zeros(8), torch.zeros(1)

    @interpreted
    def quiet(x, y, n):
        tl.store(x, 1.0)
        if n > 3:
            tl.store(x + (1 << 40), 7.0)
            tl.device_print("taken", n)
            tl.device_assert(n == 5, "five")
            tl.static_assert(True)
            tl.atomic_add(x + 1, 1.0)
            tl.atomic_cas(x + 1, 0.0, 2.0)
            while tl.load(y) == 0:
                tl.store(x + 1, 5.0)

    quiet[(3,)](x, memory, 2)
    assert x.tolist() == [1] + [0] * 7 and capsys.readouterr().out == ""


def test_variables_are_set_back():
    @interpreted
    def kernel(x, n):
        a, b, t = 1, 2.0, (1, 2)
        if n > 3:
            a = 5
            b += 1.0
            c = a + 3
            t = (4, 5)
        else:
            c = a * 100
            b = 9.0
        if n > 30:
            a = a + 50
            if n > 40:
                b = 77.0
        tl.store(x, a)
        tl.store(x + 1, b)
        tl.store(x + 2, c)
        tl.store(x + 3, t[0])

    for n, expected in ((2, [1, 9, 100, 1]), (5, [5, 3, 8, 4]), (35, [55, 3, 8, 4]), (50, [55, 77, 8, 4])):
        x = torch.zeros(4)
        kernel[(2,)](x, n)
        assert x.tolist() == expected


@pytest.mark.parametrize("n", [2, 5])
def test_nested_ifs_and_loops(n):
    @interpreted
    def kernel(x, n):
        v = 1
        for i in range(3):
            if n > 3:
                if i == 1:
                    v = 2
                else:
                    v = 2.5
        tl.store(x, v)

    with pytest.raises(TypeMismatchError, match="v is int32 after the then branch of this `if` and fp32 after the else branch"):
        kernel[(1,)](torch.zeros(4), n)


@pytest.mark.parametrize("n", [2, 5])
def test_what_one_path_assigns_is_not_there_afterwards(n):
    @interpreted
    def kernel(x, n):
        if n > 3:
            w = 1.0
        tl.store(x, w)

    with pytest.raises(NameResolutionError, match="'w'"):
        kernel[(1,)](torch.zeros(4), n)


def test_what_loops_leave_is_not_compared():
    @interpreted
    def kernel(x, n):
        if n > 3:
            for i in range(2):
                t = i * 1.0
                tl.store(x + i, t)
        else:
            t = tl.arange(0, 2)
            tl.store(x + t, 5.0)

    for n, expected in ((5, [0, 1]), (2, [5, 5])):
        x = torch.zeros(2)
        kernel[(1,)](x, n)
        assert x.tolist() == expected


def test_values_that_were_not_loaded_lead_to_no_error():
    @interpreted
    def kernel(x, y, n):
        if n > 3:
            for i in range(0, 10, tl.load(y)):  # a step of 0 there
                tl.store(x, i)
            tl.inline_asm_elementwise("mov $0, $1;", "=r,r", [n], dtype=tl.int32, is_pure=True, pack=1)
        tl.store(x + 1, 4.0)

    x = torch.zeros(2)
    kernel[(1,)](x, torch.ones(1, dtype=torch.int32), 2)
    assert x.tolist() == [0, 4]


def test_debuggers_may_be_imported():
    @interpreted
    def kernel(x, n):
        import os.path
        import sys
        if n > 3:
            print(os.path.basename("a/b"), sys.maxsize)
        tl.store(x, n)

    x = torch.zeros(1)
    kernel[(1,)](x, 2)
    assert x[0] == 2
