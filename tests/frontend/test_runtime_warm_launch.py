"""The generated function of warm launches does what a launch in full does: the same code for the same arguments, the same values."""

from __future__ import annotations

import random

import fake_target
import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.dialects.errors import ArgumentError
from tilewright.runtime.jit import JITFunction

torch = pytest.importorskip("torch")


def make():
    """A kernel that no other test has launched."""
    @triton.jit(do_not_specialize=["loose"], do_not_specialize_on_alignment=["unaligned"])
    def kernel(x, n, y, loose, unaligned, flag=True, type: tl.int64 = 3, *, len=0.5, CAUSAL: tl.constexpr = False, BLOCK: tl.constexpr):
        tl.store(x, tl.load(y))

    return kernel


@pytest.fixture
def fake(monkeypatch, tmp_path):
    with fake_target.selected(monkeypatch, tmp_path) as target:
        yield target


BASE = torch.zeros(4096, dtype=torch.uint8)
ALIGNED = BASE[-BASE.data_ptr() % 64:]


def tensor(rng):
    dtype = rng.choice([torch.float32, torch.float16, torch.int8])
    return ALIGNED[rng.choice([0, 16, 64, 4, 8]):][:64].view(dtype)


POINTERS = [tensor, tensor, tensor, lambda rng: np.zeros(8, rng.choice([np.float32, np.int16])), lambda rng: None,
            lambda rng: torch.nn.Parameter(torch.zeros(4)), lambda rng: (tensor(rng), rng.randint(0, 3), None)]
NUMBERS = [lambda rng: rng.choice([0, 1, 2, 15, 16, 17, 32, -1, -16, 2**31 - 1, 2**31, 2**40, 2**63, -2**31, 2**31 - 16])] * 3 + [
    lambda rng: rng.choice([True, False]), lambda rng: rng.choice([0.0, 1.5]), lambda rng: np.int64(rng.choice([1, 16, 3])),
    lambda rng: np.float32(2), lambda rng: None, lambda rng: tl.constexpr(5), tensor]


def arguments(rng):
    pointer, number = (lambda: rng.choice(POINTERS)(rng)), (lambda: rng.choice(NUMBERS)(rng))
    args = [pointer(), number(), pointer(), number(), number() if rng.random() < 0.5 else pointer()]
    options = {"BLOCK": rng.choice([64, 128, True, 1, 1.0, "a", None, (1, 2)])}
    for name, value in (("flag", number), ("type", lambda: rng.choice([3, 16, 1])), ("len", number),
                        ("CAUSAL", lambda: rng.choice([True, False, 0, 1])), ("num_warps", lambda: rng.choice([4, 8]))):
        if rng.random() < 0.5:
            options[name] = value()
    if rng.random() < 0.3:  # by name, what stands last
        options["unaligned"] = args.pop()
    return args, options


@pytest.mark.parametrize("seed", range(8))
def test_warm_launches_run_what_full_ones_run(fake, seed):
    rng, kernel = random.Random(seed), make()
    for _ in range(60):
        args, options = arguments(rng)
        grid = rng.choice([(3,), (2, 5), (1, 2, 3), 4, [2], (np.int64(2),), lambda meta: (3, 2 if meta["CAUSAL"] else 1)])
        ran = [kernel[grid](*args, **options) for _ in range(3)]
        ran += [kernel.run(*args, grid=grid, warmup=False, **options), kernel._run_cold(None, tuple(args), options, grid, False)]
        assert all(k is ran[0] for k in ran), (args, options)
        launched = fake.driver.launches[-5:]
        assert all(repr(launch) == repr(launched[0]) for launch in launched), launched
        assert kernel.last_launched is ran[0]
    compiled = {repr((k.src.signature, k.src.constants, k.src.attrs, k.metadata.num_warps)) for k in kernel._kernels.values()}
    assert len(compiled) == len(kernel._kernels) > 20


def test_warm_launches_do_not_look_in_full(fake, monkeypatch):
    kernel, x = make(), ALIGNED[:64].view(torch.float16)
    launch = kernel[(2,)]  # taken before anything was compiled
    for _ in range(2):
        launch(x, 5, x, 6, 7, BLOCK=64)
    monkeypatch.setattr(kernel, "_run_cold", None)
    other = ALIGNED[64:128].view(torch.float16)
    launch(other, 9, x, 8, 9, BLOCK=64)
    kernel[(2, 2)](x, 5, y=x, loose=2**40 - 2**40 + 6, unaligned=7, BLOCK=64)
    kernel.run(x, 5, other, 6, 7, BLOCK=64, grid=lambda meta: (meta["BLOCK"],), warmup=False)
    assert [launch[:1] + launch[2][:3] for launch in fake.driver.launches[2:]] == [
        ((2, 1, 1), other.data_ptr(), 9, x.data_ptr()), ((2, 2, 1), x.data_ptr(), 5, x.data_ptr()), ((64, 1, 1), x.data_ptr(), 5, other.data_ptr())]
    with pytest.raises(TypeError):
        launch(x[1:], 5, x, 6, 7, BLOCK=64)  # another alignment


def test_a_tensor_on_another_device_is_looked_at_in_full(fake):
    kernel, x = make(), ALIGNED[:64].view(torch.float16)
    for _ in range(2):
        kernel[(1,)](x, 5, x, 6, 7, BLOCK=64)
    with pytest.raises(ArgumentError, match="argument 'y' of kernel lies on device 'meta'"):
        kernel[(1,)](x, 5, torch.empty(32, dtype=torch.float16, device="meta"), 6, 7, BLOCK=64)


def test_wrong_arguments_of_a_warm_launch(fake):
    kernel, x = make(), ALIGNED[:64].view(torch.float16)
    for _ in range(2):
        kernel[(1,)](x, 5, x, 6, 7, BLOCK=64)
    with pytest.raises(TypeError, match="kernel: missing 1 required positional argument: 'y'; its parameters are x, n, y, loose"):
        kernel[(1,)](x, 5, loose=6, unaligned=7, BLOCK=64)
    with pytest.raises(TypeError, match="kernel: missing 1 required keyword-only argument: 'BLOCK'"):
        kernel[(1,)](x, 5, x, 6, 7)
    with pytest.raises(ArgumentError, match="kernel: takes from 5 to 7 positional arguments but 8"):
        kernel[(1,)](x, 5, x, 6, 7, True, 3, 4, BLOCK=64)
    with pytest.raises(ArgumentError, match="argument 'n' of kernel: a builtins.object is no kernel argument"):
        kernel[(1,)](x, object(), x, 6, 7, BLOCK=64)
    with pytest.raises(ArgumentError, match="'speeed' is neither a parameter"):
        kernel[(1,)](x, 5, x, 6, 7, BLOCK=64, speeed=1)
    for grid, text in (((1.5,), "integers; found 1.5"), ((-1,), "not negative"), ((1, -1), "not negative"), ((1, 2, 3, 4), "one to three"), ((), "one to three")):
        with pytest.raises(ArgumentError, match=text):
            kernel[grid](x, 5, x, 6, 7, BLOCK=64)
    n = len(fake.driver.launches)
    assert kernel[(0,)](x, 5, x, 6, 7, BLOCK=64) is kernel[(3, 0)](x, 5, x, 6, 7, BLOCK=64) is kernel.last_launched
    assert len(fake.driver.launches) == n


def test_a_tool_may_take_the_place_of_run(fake):
    kernel, x, seen = make(), ALIGNED[:64].view(torch.float16), []
    kernel[(1,)](x, 5, x, 6, 7, BLOCK=64)
    usual = kernel.run
    kernel.run = lambda *args, grid, warmup, **kwargs: seen.append((len(args), grid, warmup, kwargs)) or usual(*args, grid=grid, warmup=warmup, **kwargs)
    ran = kernel[(1,)](x, 5, x, 6, 7, BLOCK=64)
    assert seen == [(5, (1,), False, {"BLOCK": 64})] and ran is kernel.last_launched and len(fake.driver.launches) == 2


def test_a_tool_may_take_the_place_of_run_of_all_kernels(fake):
    """As tools that record launches do: they keep what the class has, put a function there, call what they kept, and put it back."""
    @triton.jit
    def small(o, n):
        tl.store(o, n)

    o, seen = np.zeros(4, np.float32), []
    for _ in range(2):
        small[(1,)](o, 2)
    kept = JITFunction.run

    def run(self, *args, grid, warmup, **kwargs):
        seen.append((self, grid, warmup))
        return kept(self, *args, grid=grid, warmup=warmup, **kwargs)

    JITFunction.run = run
    try:
        ran = small[(3,)](o, 2)
        assert small.run(o, 2, grid=(4,), warmup=False) is ran is small.warmup(o, 2, grid=(5,))
    finally:
        JITFunction.run = kept
    assert seen == [(small, (3,), False), (small, (4,), False), (small, (5,), True)] and [x[0][0] for x in fake.driver.launches] == [1, 1, 3, 4]
    assert small[(6,)](o, 2) is ran and len(seen) == 3 and JITFunction.run is kept
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JITFunction, "run", run)
        small[(7,)](o, 2)
    small[(8,)](o, 2)
    assert len(seen) == 4 and "partial" in repr(small[(1,)]) and small[(1,)].func is small._launch

    class Own(JITFunction):
        def run(self, *args, grid, warmup, **kwargs):
            seen.append("own")

    Own(small.fn)[(1,)](o, 2)
    assert seen[-1] == "own" and small[(1,)].func is small._launch


def test_launches_from_many_threads(fake):
    from concurrent.futures import ThreadPoolExecutor

    kernel, x = make(), ALIGNED[:64].view(torch.float16)
    with ThreadPoolExecutor(8) as pool:
        ran = list(pool.map(lambda i: kernel[(1 + i % 3,)](x, 2 + i % 5, x, 6, 7, BLOCK=64), range(200)))
    assert len(set(map(id, ran))) == 1 and len(fake.driver.launches) == 200 and len(fake.contexts) == 1
