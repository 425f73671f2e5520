"""Atomics: every kind with every type that it takes, masked, with and without the old value, through scalars and tensors, in every
memory order and scope; compare-and-swap by bits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import (
    SIMULATED,
    TORCH,
    compare,
    kernel_of,
    poisoned,
    random_array,
    rng_of,
    run,
    tl_name,
    wide,
)
from tilewright.dialects.errors import TypeMismatchError

_INTEGERS = ("int32", "uint32", "int64", "uint64")
_KINDS = {"add": (*_INTEGERS, "fp16", "bf16", "fp32", "fp64"), "max": (*_INTEGERS, "fp32", "fp64"), "min": (*_INTEGERS, "fp32", "fp64"),
          "and": _INTEGERS, "or": _INTEGERS, "xor": _INTEGERS, "xchg": (*_INTEGERS, "fp32", "fp64", "int16", "fp16", "bf16")}
_CASES = [(op, dtype) for op, types in _KINDS.items() for dtype in types]
_ORDERS = list(itertools.product(("relaxed", "acquire", "release", "acq_rel"), ("cta", "gpu", "sys")))
_NUMPY = {"add": np.add, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@pytest.mark.parametrize("op, dtype", _CASES if not SIMULATED else _CASES[::3] + [("add", "bf16"), ("xchg", "fp16")])
def test_every_kind_and_type(op, dtype):
    """``shared``: eight lanes an address; ``alone``: one each, with the old values; ``one``: through a scalar pointer, old value and all."""
    rng = rng_of("atomics", op, dtype)
    x, shared, alone, one = (random_array(dtype, n, rng, small=True) for n in (64, 8, 64, 2))
    orders = [_ORDERS[rng.integers(0, len(_ORDERS))] for _ in range(3)]
    (s0, c0), (s1, c1), (s2, c2) = orders
    reference = compare(f"""
        @triton.jit
        def kernel(p, shared, alone, old, one, n):
            i = tl.arange(0, 64)
            x = tl.load(p + i)
            {"" if op == "xchg" else f"tl.atomic_{op}(shared + i % 8, x, mask=i < n, sem='{s0}', scope='{c0}')"}
            tl.store(old + i, tl.atomic_{op}(alone + i, x, mask=(i < n) & (i != 5), sem='{s1}', scope='{c1}'), mask=(i < n) & (i != 5))
            tl.store(one + 1, tl.atomic_{op}(one, tl.load(p + 3), sem='{s2}', scope='{c2}'))
            tl.atomic_{op}(one, tl.load(p + 4), mask=n > 60)
        """, {"p": x, "shared": shared, "alone": alone, "old": poisoned(dtype, 64), "one": one, "n": 51}, num_warps=2)
    on = (np.arange(64) < 51) & (np.arange(64) != 5)
    v, before = wide(x), wide(alone)
    after = np.where(on, v if op == "xchg" else _NUMPY[op](before, v), before)
    assert np.array_equal(wide(reference["alone"]), after.astype(before.dtype))
    assert np.array_equal(wide(reference["old"])[on], before[on])
    assert wide(reference["one"])[1] == wide(one)[0]
    if op != "xchg":
        expected = wide(shared).copy()
        _NUMPY[op].at(expected, np.arange(64)[:51] % 8, v[:51])
        assert np.array_equal(wide(reference["shared"]), expected)


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_extrema_of_special_floats(dtype):
    """Ordered by sign and magnitude: -0 below 0, infinities at the ends; from memory of one sign and values of the other too."""
    values = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), 2.5, -2.5]
    x, y = (torch.tensor(v, dtype=torch.float64).to(TORCH[dtype]) for v in zip(*itertools.product(values, values)))
    reference = compare("""
        @triton.jit
        def kernel(p, high, low, old):
            i = tl.arange(0, 64)
            x = tl.load(p + i)
            tl.store(old + i, tl.atomic_max(high + i, x))
            tl.atomic_min(low + i, x)
        """, {"p": x, "high": y.clone(), "low": y.clone(), "old": poisoned(dtype, 64)}, num_warps=1)
    assert np.array_equal(wide(reference["high"]), np.maximum(wide(x), wide(y)))
    assert np.array_equal(wide(reference["low"]), np.minimum(wide(x), wide(y)))


_SWAPPED = ("int16", "uint16", "fp16", "bf16", "int32", "uint32", "fp32", "int64", "uint64", "fp64")


@pytest.mark.parametrize("dtype", _SWAPPED if not SIMULATED else ("uint16", "bf16", "fp32", "int64"))
def test_compare_and_swap_by_bits(dtype):
    floats = TORCH[dtype].is_floating_point
    memory = torch.tensor([0.0, -0.0, 1.0, 2.0] * 8 if floats else [0, 5, 1, 2] * 8, dtype=torch.float64).to(TORCH[dtype])
    x = random_array(dtype, 32, rng_of("swap", dtype), small=True)
    s, c = _ORDERS[_SWAPPED.index(dtype)]
    swapped = memory.clone()
    swapped[::4] = x[::4]
    compare(f"""
        @triton.jit
        def kernel(p, o, old, one, fresh):
            i = tl.arange(0, 32)
            x = tl.load(p + i)
            tl.store(old + i, tl.atomic_cas(o + i, tl.full([32], 0, {tl_name(dtype)}), x, sem='{s}', scope='{c}'))
            tl.atomic_cas(one, tl.load(one), tl.load(p + 2))
            tl.store(fresh, tl.atomic_cas(one + 1, tl.load(one), tl.load(p + 3)))
        """, {"p": x, "o": memory, "old": poisoned(dtype, 32), "one": torch.tensor([1.0, 2.0]).to(TORCH[dtype]), "fresh": poisoned(dtype, 1)},
        expected={"o": swapped, "old": memory}, num_warps=1)


def test_a_lock_of_many_programs():
    """Mutual exclusion by compare-and-swap and exchange: the sum under the lock misses nothing."""
    compare("""
        @triton.jit
        def kernel(lock, total):
            while tl.atomic_cas(lock, 0, 1) == 1:
                pass
            tl.store(total, tl.load(total, volatile=True) + tl.program_id(0))
            tl.debug_barrier()
            tl.atomic_xchg(lock, 0)
        """, {"lock": torch.zeros(1, dtype=torch.int32), "total": torch.zeros(1, dtype=torch.int32)}, (20,),
        {"total": np.array([190], np.int32), "lock": np.zeros(1, np.int32)}, num_warps=1)


@pytest.mark.parametrize("call, dtype, text", [
    ("tl.atomic_and(p, 1.0)", "fp32", "works on integers, not fp32"), ("tl.atomic_max(p, 1.0)", "fp16", "does not support fp16"),
    ("tl.atomic_add(p, 1)", "int16", "does not support int16"), ("tl.atomic_xchg(p, 1)", "int8", "does not support int8"),
    ("tl.atomic_cas(p, 1, 2)", "int8", "does not support int8"), ("tl.atomic_add(p, 1, sem='seq')", "int32", "seq"),
    ("tl.atomic_add(p, 1, scope='warp')", "int32", "warp"),
])
def test_what_atomics_do_not_take(call, dtype, text):
    with pytest.raises(TypeMismatchError, match=text) as caught:
        run(kernel_of(f"@triton.jit\ndef kernel(p):\n    {call}\n"), {"p": poisoned(dtype, 1)})
    assert caught.value.line > 0
