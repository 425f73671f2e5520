"""Every misuse of the host's side in the conformance suite's host_error_table.py: the class and the text, from kernels that are new and that were launched
before; and what is no misuse, though it looks like one."""

from __future__ import annotations

import copy
import decimal  # noqa: F401 - for the rows
import fractions  # noqa: F401
import functools  # noqa: F401
import pickle
import warnings

import numpy as np
import pytest
import torch

import tilewright as triton
import tilewright.language as tl
from tilewright import knobs, testing  # noqa: F401
from tilewright.compiler.source import ASTSource  # noqa: F401
from tilewright.conformance.host_error_table import ENVIRONMENT, HOST, LAUNCHES
from tilewright.dialects.errors import ArgumentError, TilewrightError
from tilewright.runtime.compile_ahead import processes  # noqa: F401
from tilewright.runtime.driver import driver, driver_of
from tilewright.runtime.errors import DeviceMismatchError, KernelCallError, LaunchSignatureError, ReadOnlyArrayError
from tilewright.runtime.interpreter import InterpretedFunction, InterpreterError
from tilewright.targets import registry
from tilewright.targets.cpu.driver import num_threads  # noqa: F401
from tilewright.targets.protocol import GPUTarget  # noqa: F401
from tilewright.tools.ragged_tma import create_ragged_descriptor  # noqa: F401
from tilewright.tools.tensor_descriptor import TensorDescriptor  # noqa: F401


@triton.jit
def add(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def dflt(x, n, BLOCK: tl.constexpr = 8):
    tl.store(x, n)


@triton.jit
def fl(x, f):
    tl.store(x, f)


@triton.jit
def tup(x, t):
    tl.store(x, t[0])


@triton.jit
def two(x, y):
    tl.store(x, tl.load(y))


@triton.jit
def desc(d, y):
    tl.store(y, 1.0)


@triton.jit
def flagged(x, FLAG: tl.constexpr, SCALE: tl.constexpr):
    if FLAG:
        tl.store(x, SCALE)


@triton.heuristics({"BLOCK": lambda args: 8})
@triton.jit
def ruled(x, n, BLOCK: tl.constexpr):
    tl.store(x, n)


@triton.autotune([triton.Config({"BLOCK": 8})], key=["n"])
@triton.heuristics({"EVEN": lambda args: True})
@triton.jit
def tuned(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    tl.store(x, n)


# ------------------------------------------------------------------------------------------------ what the rows are made of
_scope: dict = {}
exec("def executed(x): pass", _scope)
executed = _scope["executed"]


async def asynchronous(x):
    pass


def generator(x):
    yield 1


async def asyncgen(x):
    yield 1


def varargs(x, *a):
    tl.store(x, 1)


def kwargs_(x, **a):
    tl.store(x, 1)


class Meth:
    def m(self, x):
        tl.store(x, 1)

    @classmethod
    def c(cls, x):
        tl.store(x, 1)


def plain(x):
    tl.store(x, 1)


staticm = staticmethod(plain)
prop = property(plain)


class Callable_:  # noqa: N801
    def __call__(self, x):
        pass


class Cls:
    pass


def badname(x, _tw_type):
    tl.store(x, _tw_type)


def cfg(**k):
    return triton.Config(k)


def fresh(kernel):
    """The kernel as it was before any launch."""
    return triton.JITFunction(kernel.fn) if isinstance(kernel, triton.JITFunction) else kernel


class _Device:
    type = "cpu"

    def __init__(self, index):
        self.index = index


class Placed:
    """An array of one of several devices; the memory is the host's."""

    dtype = torch.float32

    def __init__(self, index):
        self.device, self.memory = _Device(index), np.zeros(64, np.float32)

    def data_ptr(self):
        return self.memory.ctypes.data


X = np.zeros(64, np.float32)
T = torch.zeros(64)
x = T
t0 = torch.zeros(64)
t0.untyped_storage().resize_(0)
KERNELS = (add, dflt, fl, tup, two)


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "host-errors"))
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    yield
    driver.reset_active()


def refused(code, kind, text, names=None):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TilewrightError) as info:
            eval(code, {**globals(), **(names or {})})
    assert type(info.value) is kind and text in str(info.value), (code, type(info.value), str(info.value))


@pytest.mark.parametrize("case", HOST, ids=[c[0][:70] for c in HOST])
def test_misuses(case):
    refused(*case)


@pytest.mark.parametrize("way", ["cold", "warm"])
def test_launches(way):
    """All rows in one test, since each launches the same few kernels."""
    for _ in range(2):
        add[(1,)](T, 8, BLOCK=8), dflt[(1,)](T, 3), fl[(1,)](T, 1.5), tup[(1,)](T, (1.5,))
    for case in LAUNCHES:
        refused(*case[:3], {k.__name__: fresh(k) for k in KERNELS} if way == "cold" else None)
    T.zero_()
    add[(1,)](T, 8, BLOCK=8)
    assert T.sum() == 8


@pytest.mark.parametrize("case", ENVIRONMENT, ids=[f"{next(iter(c[0].items()))}" for c in ENVIRONMENT])
def test_environment(case, monkeypatch):
    variables, code, kind, text = case
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    refused(code, kind, text)


# ------------------------------------------------------------------------------------------------------ what is no misuse
@pytest.mark.parametrize("one", [np.int32(8), np.int64(8), np.uint8(8), tl.constexpr(8), tl.constexpr(np.int16(8))])
def test_numpy_scalars_are_constexprs(one):
    a, b = np.zeros(16, np.float32), np.zeros(16, np.float32)
    assert add[(1,)](a, 8, BLOCK=one) is add[(1,)](a, 8, BLOCK=8)
    InterpretedFunction(add)[(1,)](b, 8, BLOCK=one)
    assert a.sum() == 16 and b.sum() == 8
    flagged[(1,)](a, np.bool_(True), np.float32(2.5))
    InterpretedFunction(flagged)[(1,)](b, np.bool_(True), np.float32(2.5))
    assert a[0] == b[0] == 2.5
    flagged[(1,)](a, np.bool_(False), np.float32(7))
    assert a[0] == 2.5


def test_numpy_scalars_are_arguments():
    a = np.zeros(2, np.float32)
    for value in (np.int8(-3), np.uint64(7), np.float32(0.1), np.float16(0.5), np.float64(1.5), np.bool_(True), float("inf"), 3.4028234663852886e38):
        fl[(1,)](a, value)
        InterpretedFunction(fl)[(1,)](a[1:], value)
        assert a[0] == a[1] == np.float32(value), value


def test_arguments_by_position_and_by_name_are_the_same_launch():
    """The generated code takes by position what the first launch gave so; every other way has to give the same, and to be found again."""
    kernel, a = fresh(add), np.zeros(16, np.float32)
    ways = [lambda: kernel[(1,)](a, 8, BLOCK=8), lambda: kernel[(1,)](a, 8, 8), lambda: kernel[(1,)](a, n=8, BLOCK=8), lambda: kernel[(1,)](x=a, n=8, BLOCK=8),
            lambda: kernel[(1,)](BLOCK=8, n=8, x=a), lambda: kernel[(1,)](a, BLOCK=8, n=8, num_warps=4), lambda: kernel.run(a, 8, 8, grid=(1,))]
    count = 0
    for _ in range(3):
        for way in ways:
            way()
            count += 1
            assert (a[:8] == count).all() and not a[8:].any()
    old = [dflt[(1,)], fresh(dflt)[(1,)]]
    for launch in old:
        for _ in range(2):
            launch(a, 1)
            launch(a, n=2)
            launch(a, 3, 8)
            launch(a, 4, BLOCK=8)
            assert a[0] == 4
            with pytest.raises(LaunchSignatureError, match="multiple values for argument 'n'"):
                launch(a, 4, n=4)
            with pytest.raises(LaunchSignatureError, match="takes from 2 to 3 positional arguments but 4"):
                launch(a, 4, 8, 8)


def _torch_like():
    """A class that passes for torch's, of arrays on several devices: the machine of the tests has one device, and none that torch numbers."""
    class Tensor(Placed):
        is_cpu = True

        def get_device(self):
            return self.device.index

        def numel(self):
            return 64

    Tensor.__module__ = "torch"
    return Tensor


def test_warm_launches_look_at_the_devices_of_their_arrays(monkeypatch):
    """As with two devices: what is kept for arrays of one is not launched with those of the other, nor on the other."""
    Tensor, current = _torch_like(), [0]
    cpu = driver_of(registry.parse("cpu"))
    monkeypatch.setattr(type(cpu), "current_device", lambda self: current[0])
    kernel = fresh(two)
    a, b = [Tensor(0), Tensor(0)], [Tensor(1), Tensor(1)]
    for _ in range(3):
        for index, (x, y) in enumerate((a, b)):
            current[0] = index
            kernel[(1,)](x, y)
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "_run_cold", None)
        for index, (x, y) in enumerate((a, b)):  # warm on both
            current[0] = index
            y.memory[0] = 5 + index
            kernel[(1,)](x, y)
            assert x.memory[0] == 5 + index
    for index, here, there in ((0, a, b), (1, b, a)):
        current[0] = index
        for wrong in ((here[0], there[1]), (there[0], here[1]), there):
            with pytest.raises(DeviceMismatchError, match=r"lies? on cpu:"):
                kernel[(1,)](*wrong)
        kernel[(1,)](*here)


def test_a_freed_tensor_is_refused_after_launches_with_the_same_kind():
    kernel, a = fresh(add), torch.zeros(64)
    for _ in range(3):
        kernel[(1,)](a, 8, BLOCK=8)
    a.untyped_storage().resize_(0)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="argument 'x' of add has 64 elements and no memory"):
            kernel[(1,)](a, 8, BLOCK=8)
    kernel[(1,)](torch.zeros(0), 0, BLOCK=8)  # nothing is read of it
    kernel[(0,)](a, 8, BLOCK=8)


@triton.jit
def gathered(x, y, z, n, SECOND: tl.constexpr):
    """Reads x and z, writes y, through pointers that loops carry and that offsets are loaded for."""
    i = tl.arange(0, 8)
    a, b = x + i, y + i
    for _ in range(n):
        tl.store(b + tl.load(z + i), tl.load(a))
        a += 8
        b += 8
    if SECOND:
        tl.atomic_add(z, 1)


@triton.jit
def helper(p):
    tl.store(p, 1.0)


@triton.jit
def calls(x, y, t, WHICH: tl.constexpr):
    if WHICH == 0:
        helper(x + 1)
    elif WHICH == 1:
        tl.store(t[1], tl.load(y))


@triton.jit
def described(d, e):
    d.store([0], e.load([0]))


def test_read_only_arrays_are_refused_where_the_kernel_stores_through_them():
    def arrays(kind, frozen, n=16):
        out = {name: np.zeros(n, np.int32 if name == "z" else np.float32) for name in kind}
        for name in frozen:
            out[name].flags.writeable = False
        return out

    for kernel, interpreted in ((gathered, False), (InterpretedFunction(gathered), True)):
        for frozen, second, wrong in ((("x", "z"), False, None), (("y",), False, "y"), (("z",), True, "z"), (("x",), True, None), ((), True, None), (("y",), False, "y")):
            given = arrays("xyz", frozen)
            if wrong is None:
                kernel[(1,)](*given.values(), 2, SECOND=second)
                continue
            with pytest.raises(InterpreterError if interpreted else ReadOnlyArrayError, match=f"argument '{wrong}'.* is a read-only array, and the kernel stores"):
                kernel[(1,)](*given.values(), 2, SECOND=second)
            assert not given[wrong].any()
    for which, wrong in ((0, "x"), (1, r"t\[1\]"), (2, None)):
        given = arrays("xyt", "xyt")
        if wrong is None:
            calls[(1,)](given["x"], given["y"], (1.0, given["t"]), WHICH=which)
        else:
            with pytest.raises(ReadOnlyArrayError, match=f"argument '{wrong}' of calls"):
                calls[(1,)](given["x"], given["y"], (1.0, given["t"]), WHICH=which)
    base = np.zeros(64 + 4, np.float32)
    base = base[-base.ctypes.data % 16 // 4:][:64]
    other = base.copy()
    frozen, free = base[:64].view(), torch.zeros(64)
    frozen.flags.writeable = False
    described[(1,)](TensorDescriptor(free, [64], [1], [8]), TensorDescriptor(frozen, [64], [1], [8]))
    with pytest.raises(ReadOnlyArrayError, match="argument 'd' of described"):
        described[(1,)](TensorDescriptor(frozen, [64], [1], [8]), TensorDescriptor(free, [64], [1], [8]))
    assert (base == other).all()


def test_a_mistake_inside_a_users_function_stays_what_it_is():
    def grid(meta):
        return (len(3),)

    for call in (lambda: add[grid](T, 8, BLOCK=8), lambda: testing.do_bench(lambda: len(3)), lambda: triton.heuristics({"BLOCK": lambda a: len(3)})(add)[(1,)](T, 8)):
        with pytest.raises(TypeError, match=r"^object of type 'int' has no len\(\)$"):
            call()


def test_wrong_code_of_a_definition_names_its_line():
    with pytest.raises(KernelCallError, match=rf"test_errors_host.py:{generator.__code__.co_firstlineno}: generator is a generator"):
        triton.jit(generator)
    with pytest.raises(ArgumentError, match=rf"test_errors_host.py:{varargs.__code__.co_firstlineno}: varargs cannot be launched: .* and \*a is not"):
        triton.jit(varargs)[(1,)](X, 1)


@pytest.mark.parametrize("kernel", [add, ruled, tuned, tuned.fn, tuned.fn.fn], ids=["jit", "heuristics", "autotune", "under autotune", "under both"])
def test_decorated_kernels_pickle_and_copy(kernel):
    assert pickle.loads(pickle.dumps(kernel)) is kernel and copy.deepcopy(kernel) is kernel
    assert copy.deepcopy({"kernels": [kernel]})["kernels"][0] is kernel


def test_what_is_not_found_by_name_does_not_pickle():
    def inner(x):
        tl.store(x, 1)

    for kernel in (triton.autotune([cfg()], [])(triton.jit(inner)), triton.heuristics({})(add)):
        with pytest.raises(pickle.PicklingError, match="a kernel is pickled by its name"):
            pickle.dumps(kernel)


def test_configs_pickle():
    config = triton.Config({"BLOCK": 8}, num_warps=2)
    assert pickle.loads(pickle.dumps(config)) == config and hash(pickle.loads(pickle.dumps(config))) == hash(config)
    assert triton.Config({"BLOCK": 1}) != triton.Config({"BLOCK": True})
