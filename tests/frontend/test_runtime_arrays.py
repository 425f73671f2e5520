"""What is taken for an array at a launch: the interpreter takes the same as compiled kernels, with the same element type and address."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tilewright as triton
import tilewright.language as tl
from tilewright.dialects.errors import ArgumentError
from tilewright.runtime.arguments import storage
from tilewright.runtime.interpreter import InterpretedFunction, InterpreterError


@triton.jit
def widen(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n).to(tl.float32), mask=i < n)


class Addressed:
    """An address and a dtype, as flag-gems' StridedBuffer; and what else is given."""

    def __init__(self, array, offset=0, **facts):
        self.array, self.offset, self.dtype = array, offset, array.dtype
        vars(self).update(facts)

    def data_ptr(self):
        return self.array.data_ptr() + self.offset * self.dtype.itemsize


class Capsule:
    """DLPack and nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


HALVES = (torch.arange(16) * 0.75 - 3).to(torch.float16)
BITS = HALVES.view(torch.int16)
QUARTERS = HALVES.to(torch.float8_e5m2)
ARRAYS = {
    "reinterpreted as fp8": (triton.reinterpret(QUARTERS.view(torch.uint8), tl.float8e5), QUARTERS.float()),
    "reinterpreted by torch's dtype": (triton.reinterpret(BITS, torch.float16), HALVES.float()),
    "reinterpreted numpy": (triton.reinterpret(BITS.numpy(), tl.float16), HALVES.float()),
    "numpy's class of scalars for a dtype": (triton.reinterpret(BITS.numpy(), np.float16), HALVES.float()),
    "reinterpreted view": (triton.reinterpret(BITS[3:], tl.float16), HALVES[3:].float()),
    "unsigned as signed": (triton.reinterpret(torch.full((16,), 200, dtype=torch.uint8), tl.int8), torch.full((16,), -56.0)),
    "base": (Addressed(HALVES, 2, _base=HALVES), HALVES[2:].float()),
    "shape and stride": (Addressed(HALVES, shape=(16,), stride=lambda: (1,)), HALVES.float()),
    "numel": (Addressed(HALVES, numel=lambda: 16), HALVES.float()),
    "nbytes": (Addressed(HALVES, nbytes=32), HALVES.float()),
    "DLPack": (Capsule(HALVES), HALVES.float()),
    "array over a bytearray": (np.frombuffer(bytearray(HALVES.numpy().tobytes()), np.float16), HALVES.float()),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("how", ["compiled", "interpreted"])
def test_arrays_are_read_as_what_they_say(name, how):
    array, expected = ARRAYS[name]
    out = torch.zeros(len(expected))
    (widen if how == "compiled" else InterpretedFunction(widen))[(1,)](array, out, len(expected), BLOCK=16)
    assert torch.equal(out, expected)
    span = storage(array)
    assert span is not None and span[1] - span[0] == (16 if "fp8" in name or "signed" in name else 32)


def test_addresses_are_checked_by_sizes_and_strides():
    column = Addressed(HALVES, 1, shape=(4,), stride=lambda: (4,))
    assert storage(column) == (HALVES.data_ptr() + 2, HALVES.data_ptr() + 2 + 13 * 2)
    backwards = Addressed(HALVES, 15, shape=(16,), stride=lambda: (-1,))
    assert storage(backwards) == (HALVES.data_ptr(), HALVES.data_ptr() + 32)
    with pytest.raises(InterpreterError, match="element 13 of the access"):
        InterpretedFunction(widen)[(1,)](column, torch.zeros(16), 16, BLOCK=16)


def test_what_the_interpreter_cannot_check_or_copy_is_refused():
    with pytest.raises(ArgumentError, match="argument 'x', a Addressed, tells an address and not how much memory lies there"):
        InterpretedFunction(widen)[(1,)](Addressed(HALVES), torch.zeros(16), 16, BLOCK=16)
    with pytest.raises(ArgumentError, match=r"argument 'x', a Addressed, lies on cuda and has no untyped_storage\(\)"):
        InterpretedFunction(widen)[(1,)](Addressed(HALVES, numel=lambda: 16, device="cuda"), torch.zeros(16), 16, BLOCK=16)


def test_a_reinterpreted_array_that_is_read_only_is_refused():
    out = np.zeros(16, np.int32)
    out.flags.writeable = False
    for launch in widen, InterpretedFunction(widen):
        with pytest.raises((ArgumentError, InterpreterError), match="'y'.* is a read-only array, and the kernel stores through it"):
            launch[(1,)](HALVES, triton.reinterpret(out, tl.float32), 16, BLOCK=16)


def test_grids_beyond_any_device_are_refused_by_the_interpreter_too():
    for launch in widen, InterpretedFunction(widen):
        with pytest.raises(ArgumentError, match="the grid is .1099511627776, 1, 1.; allowed are up to 2147483647 programs"):
            launch[(2**40,)](HALVES, torch.zeros(16), 16, BLOCK=16)
