"""Launchers that ask for another version of a kernel, or for the extent of the arguments' memory; what the user is told of it."""

from __future__ import annotations

import pickle

import fake_target
import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.dialects.errors import InternalCompilerError
from tilewright.runtime import explain
from tilewright.runtime.arguments import memory_of
from tilewright.targets.protocol import NeedsMemory, NeedsVariant


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    tl.store(y, tl.load(x) + n + BLOCK)


@pytest.fixture
def fake(monkeypatch, tmp_path):
    with fake_target.selected(monkeypatch, tmp_path, copy) as target:
        monkeypatch.setattr(explain, "_told", set())
        target.asked, target.memory = [], []
        make = target.driver.make_launcher

        def make_launcher(signature, metadata):
            launch = make(signature, metadata)

            def particular(gx, gy, gz, stream, handle, args, memory=None):
                """Odd sizes need speed="low"; sizes above 100 need to know the memory first."""
                if metadata["speed"] == "low":
                    return launch(gx, gy, gz, stream, handle, (*args, "low"))
                if args[2] > 100 and memory is None:
                    raise NeedsMemory
                target.memory.append(memory)
                if args[2] % 2:
                    target.asked.append(args[2])
                    raise NeedsVariant({"speed": "low"}, (f"{args[2]} is odd",))
                launch(gx, gy, gz, stream, handle, args)

            return particular

        target.driver.make_launcher = make_launcher
        yield target


def test_the_variant_is_compiled_once_and_launched_with_the_same_arguments(fake):
    x, y = np.zeros(8, np.float32), np.zeros(16, np.float32)[4:]
    usual = copy[(1,)](x, y, 6, 3, num_warps=2)
    other = copy[(1,)](x, y, 7, 3, num_warps=2)
    assert copy[(2,)](x, y, 9, 3, num_warps=2) is other and copy[(1,)](x, y, 8, 3, num_warps=2) is usual and other is not usual
    assert [c.options for c in fake.contexts] == [fake_target.Options(num_warps=2), fake_target.Options(num_warps=2, speed="low")]
    addresses = x.ctypes.data, y.ctypes.data
    assert [launch[2] for launch in fake.driver.launches] == [(*addresses, 6), (*addresses, 7, "low"), (*addresses, 9, "low"), (*addresses, 8)]
    assert [launch[:2] for launch in fake.driver.launches][2] == ((2, 1, 1), 100) and fake.asked == [7, 9]
    assert (usual.metadata.speed, other.metadata.speed, other.metadata.num_warps) == ("normal", "low", 2)
    assert triton.runtime.driver.recent is usual


def test_what_ran_and_why_is_told(fake, monkeypatch, capsys):
    x = np.zeros(8, np.float32)
    assert copy.explain_last_launch() == "not launched yet" or copy.last_launched is not None
    monkeypatch.setenv("TILEWRIGHT_EXPLAIN", "1")
    for n in (7, 7, 9, 6):
        copy[(1,)](x, x, n, 3)
    assert capsys.readouterr().err.splitlines() == [f"tilewright: copy: launched with speed=low: {n} is odd" for n in (7, 9)]
    assert copy.last_launched.metadata.speed == "normal" and "because" not in copy.explain_last_launch()
    copy[(1,)](x, x, 7, 3)
    assert "launched with speed=low because of 7 is odd" in copy.explain_last_launch()
    monkeypatch.setenv("TILEWRIGHT_EXPLAIN", "0")
    copy[(1,)](x, x, 11, 3)
    assert capsys.readouterr().err == ""


def test_memory_is_told_when_asked_for(fake):
    torch = pytest.importorskip("torch")
    whole = torch.zeros(100, dtype=torch.float32)
    view, part = whole[10:20], np.zeros((4, 6), np.int16)[1:, 2:]
    ran = copy[(1,)](view, part, 102, 3)
    start = whole.data_ptr()
    assert fake.memory == [{start + 40: (start, start + 400), part.ctypes.data: (part.ctypes.data - 16, part.ctypes.data - 16 + 48)}]
    assert ran.metadata.speed == "normal" and len(fake.driver.launches) == 1
    assert copy[(1,)](view, part, 103, 3).metadata.speed == "low" and len(fake.driver.launches) == 2


def test_memory_of_arguments_in_tuples_and_of_what_does_not_say():
    torch = pytest.importorskip("torch")

    class Bare:
        dtype = "float32"

        def data_ptr(self):
            return 4096

    class Device:  # as cupy's and numba's arrays, with nothing else
        __cuda_array_interface__ = {"shape": (4,), "strides": None, "typestr": "<f4", "data": (8192, False), "version": 3}

    a, wrapped = np.zeros(4, np.float32), triton.reinterpret(torch.zeros(32, dtype=torch.uint8), tl.float8e4nv)
    types = [tl.float16, tl.constexpr(4), tl.pointer_type(tl.int8), copy, torch.float16, np.float32, np.float32(3)]
    part = np.frombuffer(bytearray(64), np.uint8)[8:]
    found = memory_of([(a, (3, None)), Bare(), 4096, "text", 1.5, wrapped, part, Device(), *types])
    assert found.pop(part.ctypes.data)[1] == part.ctypes.data + 56 and found.pop(8192) == (8192, 8208)
    assert found == {a.ctypes.data: (a.ctypes.data, a.ctypes.data + 16), wrapped.data_ptr(): (wrapped.data_ptr(), wrapped.data_ptr() + 32)}


def test_views_without_elements_reach_no_memory():
    """torch gives all of them the address 0: their storages, and all that lies between, were taken for one array's memory."""
    torch = pytest.importorskip("torch")
    a, b = torch.zeros(32)[16:16], torch.zeros(4096, 4)[:, :0]
    assert a.data_ptr() == b.data_ptr() == 0
    assert memory_of([a, b, torch.empty(0, 3)]) == {0: (0, 0)}


def test_hooks_surround_a_variant_once(fake):
    seen = []
    enter, leave = lambda record: seen.append("enter"), lambda record: seen.append("leave")  # noqa: E731
    triton.knobs.runtime.launch_enter_hook.add(enter)
    triton.knobs.runtime.launch_exit_hook.add(leave)
    try:
        copy[(1,)](np.zeros(4), np.zeros(4), 7, 3)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(enter)
        triton.knobs.runtime.launch_exit_hook.remove(leave)
    assert seen == ["enter", "leave"] and len(fake.driver.launches) == 1


def test_compiled_kernels_are_launched_so_too_and_pickle(fake):
    x = np.zeros(8, np.float32)
    kernel = copy[(1,)](x, x, 6, 3)
    kernel[(1,)](x, x, 7, 3)
    kernel[(1,)](x, x, 104, 3)
    assert [launch[2][2:] for launch in fake.driver.launches] == [(6,), (7, "low"), (104,)]
    again = pickle.loads(pickle.dumps(kernel))
    again[(1,)](x, x, 9, 3)
    assert fake.driver.launches[-1][2][2:] == (9, "low") and len(fake.contexts) == 2


def test_a_launcher_that_asks_for_what_it_has_is_an_error(fake):
    fake.driver.make_launcher = lambda signature, metadata: _raise
    with pytest.raises(InternalCompilerError, match="copy: its launcher asks for options {'speed': 'low'}, which it was compiled with"):
        copy[(1,)](np.zeros(4), np.zeros(4), 6, 3, num_warps=8)


def _raise(*args):
    raise NeedsVariant({"speed": "low"}, ("always",))
