"""Launches by machine code do what launches by Python do: the same calls, or the same errors; and nothing is lost or held."""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import gc
import os
import random
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import fake_target
import numpy as np
import pytest
from native_target import NativeDriver

import tilewright as triton
import tilewright.language as tl
from tilewright import knobs
from tilewright.dialects.errors import ArgumentError
from tilewright.runtime import native_launch, native_machine
from tilewright.tools.tensor_descriptor import TensorDescriptor

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not native_machine.usable(), reason="this Python or system has no machine code of its own")

OFFSET = 3  # a global that kernels read


def make():
    """A kernel that no other test has launched."""
    @triton.jit(do_not_specialize=["loose"], do_not_specialize_on_alignment=["unaligned"])
    def kernel(x, n, y, loose, unaligned, flag=True, type: tl.int64 = 3, small: tl.int8 = 2, *, len=0.5, CAUSAL: tl.constexpr = False, BLOCK: tl.constexpr):
        tl.store(x, tl.load(y) + OFFSET)

    return kernel


@pytest.fixture(scope="module")
def code_folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("code"))


@pytest.fixture
def fake(monkeypatch, code_folder):
    with fake_target.selected(monkeypatch, code_folder, driver=NativeDriver()) as target:
        yield target


BASE = torch.zeros(4096, dtype=torch.uint8)
ALIGNED = BASE[-BASE.data_ptr() % 64:]
X = ALIGNED[:64].view(torch.float16)


class Sub(torch.Tensor):
    """A tensor whose attributes go through Python."""


class Whole(int):
    pass


def tensor(rng):
    dtype = rng.choice([torch.float32, torch.float16, torch.int8])
    return ALIGNED[rng.choice([0, 16, 64, 4, 8]):][:64].view(dtype)


POINTERS = [tensor, tensor, tensor, tensor, lambda rng: None, lambda rng: torch.nn.Parameter(torch.zeros(4)), lambda rng: np.zeros(8, np.float32),
            lambda rng: torch.zeros(4).as_subclass(Sub), lambda rng: (tensor(rng), rng.randint(0, 3), None)]
NUMBERS = [lambda rng: rng.choice([0, 1, 2, 15, 16, 17, 32, -1, -16, 2**31 - 1, 2**31, 2**40, 2**63, -2**31, -2**31 - 1, 2**31 - 16, -2**63, 2**64 - 1])] * 4 + [
    lambda rng: rng.choice([True, False]), lambda rng: rng.choice([0.0, 1.5, -0.1, 1e38, float("inf"), 1e-40]), lambda rng: np.int64(rng.choice([1, 16, 3])),
    lambda rng: np.float32(2), lambda rng: None, lambda rng: tl.constexpr(5), lambda rng: Whole(5), tensor]


def arguments(rng):
    odd = rng.random() < 0.3
    pointer, number = (lambda: (rng.choice(POINTERS) if odd else tensor)(rng)), (lambda: (rng.choice(NUMBERS) if odd else NUMBERS[0])(rng))
    args = [pointer(), number(), pointer(), number(), number() if rng.random() < 0.5 else pointer()]
    options = {"BLOCK": rng.choice([64, 128, True, 1, 1.0, "a", None, (1, 2), tl.float16, 2**70] if odd else [64, "a", None, tl.float16])}
    for name, value in (("flag", number), ("type", lambda: rng.choice([3, 16, 1])), ("small", lambda: rng.choice([1, -128, 127])), ("len", number),
                        ("CAUSAL", lambda: rng.choice([True, False, 0, 1])), ("num_warps", lambda: rng.choice([4, 8]))):
        if rng.random() < 0.3:
            options[name] = value()
    if rng.random() < 0.3:  # by name, what stands last
        options["unaligned"] = args.pop()
    return args, options


@pytest.mark.parametrize("seed", range(4))
def test_machine_code_makes_the_calls_that_python_makes(fake, seed, monkeypatch):
    monkeypatch.setattr(native_launch, "TRIES", 10**6)
    rng, kernel, drawn = random.Random(seed), make(), []
    for _ in range(200):
        args, options = rng.choice(drawn) if drawn and rng.random() < 0.8 else arguments(rng)
        drawn.append((args, options))
        grid = rng.choice([(3,), (2, 5), (1, 2, 3), 4, [2], (np.int64(2),), lambda meta: (3, 2 if meta["CAUSAL"] else 1)])
        ran = [kernel[grid](*args, **options) for _ in range(2)]
        ran += [kernel.run(*args, grid=grid, warmup=False, **options), kernel._run_cold(None, tuple(args), options, grid, False)]
        assert all(k is ran[0] for k in ran), (args, options)
        launched = fake.driver.launches[-4:]
        assert all(repr(launch) == repr(launched[-1]) for launch in launched), launched
        assert kernel.last_launched is ran[0]
    assert len(fake.driver.by_machine_code) > 25, "the test does not test machine code"


def by_both(fake, kernel, launch):
    """What ``launch()`` gives with the machine code and without it: (launches, or the error's class and text)."""
    def outcome():
        n = len(fake.driver.launches)
        try:
            launch()
        except Exception as error:  # noqa: BLE001
            return type(error), str(error)
        return repr(fake.driver.launches[n:])

    machine = outcome()
    quick, usual = kernel._quick, kernel._launch
    kernel._quick = kernel._launch = kernel._warm
    python = outcome()
    kernel._quick, kernel._launch = quick, usual
    return machine, python


def told(fake, kernel, *args, **options):
    """Launch until the machine code does."""
    for _ in range(5):
        kernel[(2,)](*args, **options)
    assert fake.driver.by_machine_code and fake.driver.by_machine_code[-1] == len(fake.driver.launches) - 1


@pytest.mark.parametrize("change", [
    {"n": 2**64}, {"n": -1}, {"n": 2**63}, {"n": np.int32(7)}, {"n": Whole(7)}, {"n": True}, {"n": None}, {"n": 1.5}, {"n": "a"}, {"n": object()}, {"n": 1}, {"n": 2**200},
    {"x": None}, {"x": X[1:]}, {"x": torch.empty(0)}, {"x": X.view(torch.int16)}, {"x": torch.empty(4, device="meta")}, {"x": np.zeros(3)}, {"x": 5}, {"x": X.to_sparse()},
    {"x": torch.zeros(4).as_subclass(Sub)}, {"x": torch.nn.Parameter(torch.zeros(4))}, {"len": 1e39}, {"len": float("nan")}, {"len": float("inf")}, {"len": -1e-46},
    {"len": 3}, {"small": 127}, {"small": 128}, {"small": -129}, {"type": 2**40}, {"type": 2**63}, {"BLOCK": 128}, {"BLOCK": 64.0}, {"BLOCK": True}, {"BLOCK": "64"},
    {"num_warps": 8}, {"num_warps": 4.0}, {"speeed": 3}, {"flag": 1}, {"flag": False}, {"loose": 1}, {"unaligned": 32}, {"CAUSAL": 1}, {"CAUSAL": [1]}])
def test_unusual_arguments(fake, change):
    kernel = make()
    usual = {"x": X, "n": 5, "y": X, "loose": 6, "unaligned": 7, "flag": True, "type": 4, "small": 3, "len": 0.5, "BLOCK": 64}
    told(fake, kernel, **usual)
    machine, python = by_both(fake, kernel, lambda: kernel[(2,)](**{**usual, **change}))
    assert machine == python
    told(fake, kernel, **usual)


def test_names_that_a_program_has_made(fake):
    kernel = make()
    told(fake, kernel, X, 5, X, 6, 7, BLOCK=64, num_warps=4)
    for _ in range(3):
        n = len(fake.driver.by_machine_code)
        kernel[(2,)](X, 5, X, 6, 7, **{"".join(["BL", "OCK"]): 64, "".join(["num_", "warps"]): 4})
        assert len(fake.driver.by_machine_code) == n + 1
        kernel[(2,)](X, 5, X, 6, 7, **{"".join(["num_", "warps"]): 4, "".join(["BL", "OCK"]): 32})
    assert fake.driver.launches[-1][2] == fake.driver.launches[0][2] and kernel.last_launched is not kernel[(2,)](X, 5, X, 6, 7, BLOCK=64, num_warps=4)


def test_grids(fake):
    kernel, calls = make(), []
    fake.driver.devices = 2  # each tensor is asked where it lies

    def count(meta):
        calls.append(dict(meta))
        return meta["n"], 2

    def raising(meta):
        raise KeyError("mine")

    told(fake, kernel, X, 5, X, 6, 7, BLOCK=64)
    for grid in ((3,), (3, 4), (3, 4, 5), 6, [7], (np.int64(2),), (0,), (2, 0), (-1,), (1.5,), (), (1, 2, 3, 4), "a", None, lambda meta: (2,), lambda meta: 5,
                 lambda meta: (0,), lambda: (1,), raising, lambda meta: meta["speed"], lambda meta: lambda m: (3,), (2**31,), (2**64,), (1 << 21,), (True,), torch.Size([3])):
        machine, python = by_both(fake, kernel, lambda: kernel[grid](X, 5, X, 6, 7, BLOCK=64))  # noqa: B023
        assert machine == python, grid
    n = len(fake.driver.by_machine_code)
    kernel[count](X, 5, X, 6, 7, BLOCK=64)
    assert fake.driver.launches[-1][0] == (5, 2, 1) and len(fake.driver.by_machine_code) == n + 1
    assert calls == [{"x": X, "n": 5, "y": X, "loose": 6, "unaligned": 7, "flag": True, "type": 3, "small": 2, "len": 0.5, "CAUSAL": False, "BLOCK": 64}]


def test_descriptors(fake, monkeypatch):
    @triton.jit
    def kernel(a, b, n):
        pass

    monkeypatch.setattr(native_launch, "TRIES", 10**6)
    rng, usual = random.Random(0), TensorDescriptor(X, [32], [1], [16])
    told(fake, kernel, usual, usual, 5)
    for _ in range(150):
        dtype, rank = rng.choice([torch.float16, torch.float32]), rng.choice([1, 2])
        shape = [rng.choice([32, 5]) for _ in range(rank)]
        strides = [16 * rng.randint(1, 5) for _ in range(rank - 1)] + [1]
        kind = rng.choice([list, tuple])
        a, b = (TensorDescriptor(ALIGNED[:1024].view(dtype), kind(shape), strides, [rng.choice([16, 16, 32])] * rank, rng.choice(["zero", "zero", "nan"])) for _ in range(2))
        if rng.random() < 0.3:  # after it was made
            name, value = rng.choice([("strides", [*strides[:-1], 2]), ("strides", [-16, *strides[1:]] if rank > 1 else [1]), ("shape", [-1] * rank), ("shape", [2**31] * rank),
                                      ("base", X[1:]), ("base", X), ("block_shape", [64] * rank), ("shape", torch.Size(shape)), ("padding", "other"), ("strides", [1.0] * rank),
                                      ("shape", [np.int64(16)] * rank), ("base", None), ("shape", shape + [1]), ("strides", [7] * (rank - 1) + [1])])
            setattr(b, name, value)
        for _ in range(3):
            machine, python = by_both(fake, kernel, lambda: kernel[(2,)](a, b, 5))  # noqa: B023
            assert machine == python, (a, b)
    assert len(fake.driver.by_machine_code) > 100


def test_what_changes_between_launches_is_seen(fake, monkeypatch):
    global OFFSET
    kernel, seen = make(), []

    def machine_code(**options):
        n = len(fake.driver.by_machine_code)
        ran = kernel[(2,)](X, 5, X, 6, 7, BLOCK=64, **options)
        return len(fake.driver.by_machine_code) > n, ran

    told(fake, kernel, X, 5, X, 6, 7, BLOCK=64)
    taken = kernel[(2,)]
    first = kernel.last_launched
    # hooks
    knobs.runtime.launch_enter_hook.add(seen.append)
    assert machine_code() == (False, first) and len(seen) == 1
    knobs.runtime.launch_enter_hook.remove(seen.append)
    knobs.runtime.launch_exit_hook.add(seen.append)
    assert machine_code() == (False, first) and len(seen) == 2
    knobs.runtime.launch_exit_hook.remove(seen.append)
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append(args))
    taken(X, 5, X, 6, 7, BLOCK=64)
    assert len(seen) == 3
    kernel.pre_run_hooks.clear()
    assert machine_code() == (True, first)
    kernel.pre_run_hooks = ()
    assert machine_code() == (True, first)
    # a grid's function may add hooks, which are called; it itself is called once
    for by in (kernel, kernel._warm, make()):
        def grid(meta):
            seen.append("grid")
            knobs.runtime.launch_enter_hook.add(enter)
            return (meta["n"],)

        def enter(record):
            seen.append("enter")

        seen.clear()
        launch = by[grid] if hasattr(by, "run") else functools.partial(by, grid)
        launch(X, 5, X, 6, 7, BLOCK=64)
        knobs.runtime.launch_enter_hook.remove(enter)
        assert seen == ["grid", "enter"] and fake.driver.launches[-1][0] == (5, 1, 1)
    # a global: another object of the same value, then another value
    OFFSET = 10**6
    assert machine_code()[1] is not first
    OFFSET = 3
    told(fake, kernel, X, 5, X, 6, 7, BLOCK=64)
    # another device, stream
    fake.driver.device = 1
    assert machine_code()[0] is False and fake.driver.launches[-1][1] == 101
    fake.driver.device = 0
    assert machine_code()[0] and fake.driver.launches[-1][1] == 100
    # another target
    ran = kernel.last_launched
    monkeypatch.setenv("TILEWRIGHT_TARGET", "fake:f2")
    assert str(machine_code()[1].selection) != str(ran.selection)
    monkeypatch.setenv("TILEWRIGHT_TARGET", "fake:" + "".join(["f", "1"]))  # an equal text
    assert machine_code() == (True, ran)
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nosuch")
    with pytest.raises(Exception, match="nosuch"):
        machine_code()
    monkeypatch.setenv("TILEWRIGHT_TARGET", "fake:f1")
    # forgotten kernels
    kernel.device_caches.clear()
    assert machine_code()[1] is not ran
    told(fake, kernel, X, 5, X, 6, 7, BLOCK=64)
    # a tool in the place of run
    kernel.run = lambda *args, grid, warmup, **kwargs: seen.append(grid)
    kernel[(9,)](X, 5, X, 6, 7, BLOCK=64)
    assert seen[-1] == (9,)


def test_forgetting_during_a_launch(fake):
    kernel = make()
    told(fake, kernel, X, 5, X, 6, 7, BLOCK=64)
    expected = kernel.last_launched

    def forget():
        kernel.device_caches.clear()
        gc.collect()

    fake.driver.during = forget
    assert kernel[(2,)](X, 5, X, 6, 7, BLOCK=64) is expected
    fake.driver.during = None
    assert kernel[(2,)](X, 5, X, 6, 7, BLOCK=64) is not expected


def test_forgotten_kernels_are_freed(fake):
    import weakref

    kernel = make()
    told(fake, kernel, X, 5, X, 6, 7, BLOCK=64)
    gone = weakref.ref(kernel.last_launched)
    kernel.device_caches.clear()
    triton.runtime.driver.recent = kernel.last_launched = None
    gc.collect()
    assert gone() is None
    function = weakref.ref(kernel)
    told(fake, kernel, X, 5, X, 6, 7, BLOCK=64)
    triton.runtime.driver.recent = None
    del kernel
    gc.collect()
    assert function() is None


def test_failed_calls(fake):
    kernel = make()
    told(fake, kernel, X, 5, X, 6, 7, BLOCK=64)
    n, m = len(fake.driver.launches), len(fake.driver.by_machine_code)
    fake.driver.statuses = [201]
    kernel[lambda meta: (4, 3)](X, 5, X, 6, 7, BLOCK=64)  # Python launches then, with the sizes that are known
    assert fake.driver.failures == [((4, 3, 1), 201)] and len(fake.driver.launches) == n + 1 and len(fake.driver.by_machine_code) == m
    assert fake.driver.launches[-1][0] == (4, 3, 1)
    fake.driver.statuses, fake.driver.on_failure = [-1], ArgumentError("no room")
    with pytest.raises(ArgumentError, match="no room"):
        kernel[(2,)](X, 5, X, 6, 7, BLOCK=64)
    assert fake.driver.failures[-1] == ((2, 1, 1), -1) and len(fake.driver.launches) == n + 1
    kernel[(2,)](X, 5, X, 6, 7, BLOCK=64)
    assert len(fake.driver.by_machine_code) == m + 1


def test_an_interrupt_while_an_argument_is_read_is_not_lost(fake):
    from torch.overrides import TorchFunctionMode

    class Interrupting(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            raise self.error

    kernel = make()
    told(fake, kernel, X, 5, X, 6, 7, BLOCK=64)
    for error in (KeyboardInterrupt(), RuntimeError("mine")):
        mode = Interrupting()
        mode.error = error
        with pytest.raises(type(error) if isinstance(error, KeyboardInterrupt) else Exception), mode:
            kernel[(2,)](X, 5, X, 6, 7, BLOCK=64)
    told(fake, kernel, X, 5, X, 6, 7, BLOCK=64)


def test_what_a_launcher_decides_is_asked_once(fake):
    fake.driver.plans = True
    kernel, other = make(), ALIGNED[64:128].view(torch.float16)
    for _ in range(3):
        for x, grid in ((X, (2,)), (other, (2,)), (X, (3,)), (other, lambda meta: (4, 5))):
            for _ in range(3):
                kernel[grid](x, random.randint(2, 9), X, 6, 7, BLOCK=64)  # n does not matter to it
    assert len(fake.driver.launches) == 36 and len(fake.driver.by_machine_code) > 24  # the function checks what it is given


def test_many_launches_hold_nothing(fake):
    fake.driver.function = ctypes.cast(ctypes.CDLL(ctypes.util.find_library("m"))["fegetround"], ctypes.c_void_p).value  # gives 0, and is quick
    kernel = make()
    d = TensorDescriptor(ALIGNED[:1024].view(torch.float16), [16, 16], [16, 1], [16, 16])

    def launch(count):
        for i in range(count):
            kernel[(2,)](X, 70000 + i % 7, X, 6, 7, len=0.25, BLOCK=64)
            kernel[lambda meta: (300, 500)](X, 5, d, 6, 7, BLOCK=64, num_warps=8)

    launch(10)
    n = len(fake.driver.launches)
    objects = [None, True, False, X, X.dtype, d, d.base, d.shape, d.padding, kernel, kernel.last_launched, fake.driver, 64, kernel._native._state, *kernel.__dict__.values(),
               *(owner for _, row in kernel._native._sites for owner in row.kept)]
    gc.collect()
    before, blocks = [sys.getrefcount(o) for o in objects], sys.getallocatedblocks()
    launch(8_000)
    assert len(fake.driver.launches) == n, "the machine code did not make these launches"
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 500
    grown = [(str(o)[:60], after - b) for o, b, after in zip(objects, before, map(sys.getrefcount, objects)) if abs(after - b) > 50]
    assert not grown


def test_threads_launch_kernels_of_their_own_and_of_others(fake):
    kernels = [make() for _ in range(4)]
    errors = []

    def work(i):
        try:
            for j in range(60):
                kernel = kernels[(i + j) % 4]
                kernel[(1 + i, 1 + j)](X, 2 + i, X, 2 + j, 1 + (i << 8) + j, BLOCK=64 << (j % 2))
                if j == 30 and i == 3:
                    kernel.device_caches.clear()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and len(fake.driver.launches) == 16 * 60 and len(fake.driver.by_machine_code) > 300
    for (gx, gy, _), _, (_, n, _, loose, unaligned, *_), _ in fake.driver.launches:
        assert gx == n - 1 and gy == loose - 1 and unaligned == 1 + ((gx - 1) << 8) + gy - 1


def test_what_cannot_be_told_is_left_to_python(fake, monkeypatch):
    monkeypatch.setattr(native_launch, "TRIES", 5)
    kernel = make()
    for _ in range(20):
        kernel[(2,)](np.zeros(4, np.float32), 5, X, 6, 7, BLOCK=64)
    assert kernel._launch is kernel._warm and not fake.driver.by_machine_code and len(fake.driver.launches) == 20
    monkeypatch.setattr(native_launch, "_address", 0)
    with knobs.runtime.scope():
        knobs.runtime.native_launch = False
        other = make()
        for _ in range(20):
            other[(2,)](X, 5, X, 6, 7, BLOCK=64)
    assert not fake.driver.by_machine_code and len(fake.driver.launches) == 40 and other._launch is other._warm and other._native is None


def test_kernels_are_told_again_however_often_they_are_forgotten(fake, monkeypatch):
    """Of a process that goes from target to target, say: what was told well is no try in vain."""
    monkeypatch.setattr(native_launch, "TRIES", 3)
    kernel = make()
    for _ in range(6):
        told(fake, kernel, X, 5, X, 6, 7, BLOCK=64)
        kernel.forget_entries()


SCRIPT = """
    import atexit, os, sys
    sys.path.insert(0, {here!r})
    import fake_target
    from native_target import NativeDriver
    import tilewright as triton, tilewright.language as tl
    from tilewright.compiler.source import ASTSource
    from tilewright.runtime import native_launch
    from tilewright.targets import registry
    target = fake_target.Fake()
    driver = target.driver = NativeDriver()
    registry.register(target.plugin)
    ASTSource.make_module = fake_target.stand_in_module
    @triton.jit
    def kernel(x, n, BLOCK: tl.constexpr):
        tl.store(x, n)
    X = 64
    for _ in range(5):
        kernel[(2,)](X, 5, BLOCK=64)
    assert driver.by_machine_code
    print("llvmlite" in sys.modules, flush=True)
    child = os.fork()
    n = len(driver.by_machine_code)
    kernel[(3,)](X, 6, BLOCK=64)
    assert len(driver.by_machine_code) == n + 1 and driver.launches[-1][2][1] == 6
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    class Late:
        launch = kernel[(1,)]
        def __del__(self):
            try:
                self.launch(X, 5, BLOCK=64)
            except Exception:
                pass
    late = Late()
    keep = kernel._launch
    atexit.register(lambda: kernel[(4,)](X, 5, BLOCK=64))
"""


def test_kept_code_needs_no_compiler_and_lives_through_forks_and_the_end(code_folder, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", code_folder)
    file = Path(code_folder) / "script.py"
    file.write_text(textwrap.dedent(SCRIPT.format(here=str(Path(__file__).parent))))
    assert native_launch._made()
    monkeypatch.setattr(native_machine, "make", None)
    assert native_launch._made()
    done = subprocess.run([sys.executable, str(file)], env={**os.environ, "TILEWRIGHT_TARGET": "fake:f1"}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "False\n", done.stderr


def test_objects_that_refer_to_anything_outside_are_refused():
    import llvmlite.binding as llvm

    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic", codemodel="small")
    with pytest.raises(ValueError, match="relocations"):
        native_machine.text_of(machine.emit_object(llvm.parse_assembly("declare void @g() define void @f() { call void @g() ret void }")), "f")
    with pytest.raises(ValueError, match="no h"):
        native_machine.text_of(machine.emit_object(llvm.parse_assembly("define void @f() { ret void }")), "h")
    others = [kind for kind in ("x86_64", "aarch64") if kind != native_machine.platform.machine()]
    assert all(len(native_machine.make(kind)) > 1000 for kind in others)  # which looks, too


def test_arguments_that_a_launcher_has_not_seen_are_told_quickly_and_for_good(fake, monkeypatch):
    fake.driver.plans = True
    kernel = make()
    told(fake, kernel, X, 5, X, 6, 7, BLOCK=64)
    monkeypatch.setattr(kernel._native, "_tell", None)  # all that is new is what the launcher decides
    monkeypatch.setattr(native_launch, "PLANS", 50)
    for i in range(150):
        n = len(fake.driver.by_machine_code)
        for _ in range(2):
            kernel[(7 + i, 2)](X, 5, X, 6, 7, BLOCK=64)
        assert len(fake.driver.by_machine_code) == n + 1 and fake.driver.launches[-1][0] == (7 + i, 2, 1)
    (owner,) = [o for _, row in kernel._native._sites for o in row.kept if isinstance(o, native_launch._Owner)]
    assert len(owner.plans) <= 50
    with pytest.raises(Exception, match="127"):  # an error on the way
        kernel[(1000, 2)](X, 5, X, 6, 7, BLOCK=64, small=200)
