"""A null pointer is an error with the kernel's line where it is the argument itself, and with debug=True where it was computed or loaded."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.bundle import load_bundle, write_bundle
from tilewright.dialects.errors import DeviceAddressError, DeviceAssertionError
from tilewright.tools.tensor_descriptor import TensorDescriptor

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("on_cpu")


@pytest.fixture
def on_cpu(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")


class Null:
    dtype, device = "float32", "cpu"

    def data_ptr(self):
        return 0


def line_of(kernel, text):
    lines, first = inspect.getsourcelines(kernel.fn)
    return next(i for i, line in enumerate(lines, first) if text in line)


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n, other=-1.0), mask=i < n)


@triton.jit
def others(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n, other=-1.0))


@triton.jit
def scalar(x, y):
    tl.store(y, tl.load(x))


@triton.jit
def long_loop(x, y, n, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    p = x + tl.arange(0, BLOCK)
    for _ in range(n):
        total += tl.load(p)
        p += 1 << 24
    tl.store(y + tl.arange(0, BLOCK), total)


@triton.jit
def rmw(x, y, n):
    for i in range(n):
        tl.atomic_add(x + i + (1 << 30), 1.0)


@triton.jit
def cas(x, y, n):
    for i in range(n):
        tl.atomic_cas(x + (1 << 30), 0.0, 1.0)


@triton.jit(noinline=True)
def read(p):
    return tl.load(p)


@triton.jit
def in_function(x, y):
    tl.store(y, read(x))


@triton.jit
def chosen(x, y, flag):
    p = x
    if flag:
        p = x + 1
    tl.store(p, 1.0)


@pytest.mark.parametrize("kernel, more, what", [
    (copy, (40, 16), "tl.load through x"), (scalar, (), "tl.load through x"), (long_loop, (5, 16), "tl.load through x"), (rmw, (3,), "an atomic through x"),
    (cas, (3,), "tl.atomic_cas through x"), (in_function, (), "tl.load at an address near 0"), (chosen, (2,), "tl.store at an address near 0")])
@pytest.mark.parametrize("null", [Null(), torch.empty(0)], ids=["an object", "an empty tensor"])
def test_arguments_without_memory(kernel, more, what, null):
    y = np.zeros(64, np.float32)
    word = what.split()[0] if "atomic" not in what else "tl.atomic"
    where = line_of(read if kernel is in_function else kernel, word)
    with pytest.raises(DeviceAddressError, match=rf"^{kernel.__name__}: {what}, which is a null pointer.* at .*test_null_pointers.py:{where} \[program \(0, 0, 0\)\]"):
        kernel[(3,)](null, y, *more)
    assert not y.any()


def test_stores():
    with pytest.raises(DeviceAddressError, match="copy: tl.store through y, which is a null pointer"):
        copy[(1,)](np.zeros(16, np.float32), Null(), 3, 16)


def test_what_is_masked_off_is_no_error():
    y = np.full(16, 2, np.float32)
    for _ in range(2):
        copy[(1,)](Null(), y, 0, 16)
    assert (y == 2).all()
    others[(1,)](Null(), y, 0, 16)
    assert (y == -1).all()
    x = np.arange(16, dtype=np.float32)
    made = copy[(1,)](x, y, 16, 16)  # others are launched as ever
    assert (y == x).all() and not made.metadata._asdict().get("check_addresses")


def test_null_is_still_null_to_the_kernel():
    @triton.jit
    def has(x, y):
        if x:
            tl.store(y, tl.load(x))
        else:
            tl.store(y, 7.0)

    y = np.zeros(1, np.float32)
    has[(1,)](Null(), y)
    assert y[0] == 7


@triton.jit
def last_of_loop(x, y, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    p = x + i
    for _ in range(n):
        p = y + i
    tl.store(p, 7.0)


def test_a_loop_may_leave_another_argument():
    y = np.zeros(16, np.float32)
    last_of_loop[(1,)](Null(), y, 1, 16)
    assert (y == 7).all()
    with pytest.raises(DeviceAddressError, match="tl.store at an address near 0"):
        last_of_loop[(1,)](Null(), y, 0, 16)


@triton.jit
def each_after_the_next(flags, x, out, n):
    pid = tl.program_id(0)
    while tl.atomic_add(flags + pid + 1, 0) == 0:
        pass
    tl.store(out + pid, tl.load(x, mask=n < 0, other=3.0))
    tl.atomic_xchg(flags + pid, 1)


def test_programs_that_wait_for_one_another_still_run_at_the_same_time():
    flags, out = np.array([0, 0, 0, 0, 1], np.int32), np.zeros(4, np.float32)
    made = each_after_the_next[(4,)](flags, Null(), out, 4)
    assert (out == 3).all() and flags.all() and made.metadata.check_addresses


def test_a_message_of_the_users_own():
    @triton.jit
    def positive(x):
        tl.device_assert(tl.load(x) > 0, "null: not at all")

    with pytest.raises(DeviceAssertionError, match=r"device_assert failed in program \(0, 0, 0\): null: not at all"):
        positive[(1,)](np.zeros(1, np.float32), debug=True)


def test_the_first_of_many_is_told_and_their_number():
    @triton.jit
    def rounds(x, n):
        for i in range(n):
            tl.device_assert(tl.load(x + i) > i, "too small")

    with pytest.raises(DeviceAssertionError, match=r"device_assert failed in program \(0, 0, 0\): too small.* \(and 5 more\)$"):
        rounds[(1,)](np.array([1, 2, 0, 0, 0, 0, 0, 0], np.float32), 8, debug=True)


@triton.jit
def through(table, y, MANY: tl.constexpr):
    i = tl.arange(0, MANY)
    p = tl.load(table + i).to(tl.pointer_type(tl.float32))
    tl.store(y + i, tl.load(p, mask=i != 3))
    tl.store(p, 5.0, mask=i != 3)
    tl.atomic_add(p, 1.0, mask=i != 3)


def test_computed_addresses_with_debug():
    data, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    table = np.array([data[i:].ctypes.data for i in range(8)], np.int64)
    table[3] = 0
    through[(1,)](table, y, 8, debug=True)
    assert y.tolist() == [0, 1, 2, 0, 4, 5, 6, 7] and data.tolist() == [6, 6, 6, 3, 6, 6, 6, 6]
    for bad in (0, 4096, -8):
        table[5] = bad
        with pytest.raises(DeviceAddressError, match=rf"^tl.load at an address near 0, which is a null pointer's at .*:{line_of(through, 'tl.store(y')} \[program"):
            through[(1,)](table, y, 8, debug=True)


@pytest.mark.parametrize("kind", ["float64", "bfloat16", "int8", "bool", "float8_e5m2"])
def test_kinds_of_elements(kind):
    with pytest.raises(DeviceAddressError, match="scalar: tl.load through x"):
        scalar[(1,)](torch.empty(0, dtype=getattr(torch, kind)), torch.zeros(1))


def test_a_bundle_has_no_such_version(tmp_path):
    """It launches what it has, as it did: what is masked off needs no memory."""
    x, y = np.zeros(16, np.float32), np.full(16, 2, np.float32)
    write_bundle(str(tmp_path / "copy.zip"), [[copy.warmup(x, y, 5, 16, grid=(1,))]])
    load_bundle(tmp_path / "copy.zip")[(1,)](torch.empty(0), y, 0, 16)
    assert (y == 2).all()


def test_a_descriptor_without_memory():
    @triton.jit
    def tile(d, y):
        tl.store(y + tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :], d.load([0, 0]))

    d = TensorDescriptor(np.zeros((8, 8), np.float32), [8, 8], [8, 1], [8, 8])
    y = np.zeros(64, np.float32)
    tile[(1,)](d, y)
    d.base = Null()
    with pytest.raises(DeviceAddressError, match="^tile: tl.load through d, which is a null pointer"):
        tile[(1,)](d, y)
