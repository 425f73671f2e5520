"""autotune, heuristics, do_bench; on a target whose timers say what the launch's options cost."""

from __future__ import annotations

import fake_target
import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright import testing
from tilewright.dialects.errors import ArgumentError, CompileTimeAssertionFailure, OutOfResources, TilewrightError
from tilewright.targets import registry


@triton.jit
def kernel(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr = False):
    pass


def configs(*warps, **kw):
    return [triton.Config({"BLOCK": 32 * w}, num_warps=w, **kw) for w in warps]


@pytest.fixture
def fake(monkeypatch, tmp_path):
    with fake_target.selected(monkeypatch, tmp_path, kernel) as target:
        # a launch of w warps takes |w - 4| + 1 ms
        target.driver.on_launch = lambda metadata: setattr(target.driver, "next_ms", abs(metadata["num_warps"] - 4) + 1.0)
        yield target


def launches(fake):
    return len(fake.driver.launches)


def tune(*args, **kw):
    kw.setdefault("warmup", 1)
    kw.setdefault("rep", 1)
    return triton.autotune(*args, **kw)(kernel)


def test_the_fastest_is_kept_per_key(fake):
    tuned = tune(configs(1, 2, 4, 8), key=["n"])
    x = np.zeros(64, np.float32)
    compiled = tuned[lambda meta: (meta["BLOCK"],)](x, 5)
    assert tuned.best_config.num_warps == 4 and compiled.metadata.num_warps == 4
    assert fake.driver.launches[-1][0] == (128, 1, 1)
    assert {c.num_warps: t[0] for c, t in tuned.configs_timings.items()} == {1: 4.0, 2: 3.0, 4: 1.0, 8: 5.0}
    before = launches(fake)
    tuned[(1,)](x, 5)
    assert launches(fake) == before + 1  # no measuring
    tuned[(1,)](x, n=6)
    assert launches(fake) > before + 8  # another key
    before = launches(fake)
    tuned[(1,)](x.astype(np.float16), 5)
    assert launches(fake) > before + 8  # another dtype
    assert len(tuned.cache) == 3


def test_one_configuration_is_not_measured(fake):
    tuned = tune(configs(2), key=["n"])
    tuned[(1,)](np.zeros(4, np.float32), 5)
    assert launches(fake) == 1 and tuned.best_config.num_warps == 2


def test_configurations_that_cannot_run_lose(fake):
    def fail(ctx):
        return {4: OutOfResources(9, 1, "shared memory"), 2: CompileTimeAssertionFailure("no")}.get(ctx.options.num_warps)

    fake.fail = fail
    tuned = tune(configs(1, 2, 4, 8), key=["n"])
    tuned[(1,)](np.zeros(4, np.float32), 5)
    assert tuned.best_config.num_warps == 1
    fake.fail = lambda ctx: OutOfResources(9, 1, "shared memory")
    other = tune(configs(16, 32), key=["n"])
    with pytest.raises(OutOfResources):
        other[(1,)](np.zeros(4, np.float32), 5)
    fake.fail = lambda ctx: ZeroDivisionError() if ctx.options.num_warps == 64 else None
    with pytest.raises(TilewrightError):  # a mistake is not a slow configuration
        tune(configs(64, 128), key=["n"])[(1,)](np.zeros(4, np.float32), 5)


def test_reset_and_restore(fake):
    x, seen = np.full(4, 7.0, np.float32), []

    def launched(metadata):
        seen.append(x[0])
        x[:] += 1
        fake.driver.next_ms = metadata["num_warps"]

    fake.driver.on_launch = launched
    tune(configs(1, 2), key=["n"], restore_value=["x"])[(1,)](x, 5)
    assert set(seen) == {7.0} and x[0] == 8.0
    seen.clear()
    tune(configs(1, 2), key=["n"], reset_to_zero=["x"])[(1,)](x, 5)
    assert set(seen) == {0.0} and x[0] == 1.0


def test_reset_and_restore_of_torch_tensors(fake):
    torch = pytest.importorskip("torch")
    x, seen = torch.full((4,), 7.0), []

    def launched(metadata):
        seen.append(float(x[0]))
        x.add_(1)
        fake.driver.next_ms = metadata["num_warps"]

    fake.driver.on_launch = launched
    tune(configs(1, 2), key=["n"], restore_value=["x"])[(1,)](x, 5)
    assert set(seen) == {7.0} and x[0] == 8
    seen.clear()
    tune(configs(1, 2), key=["n"], reset_to_zero=["x"])[(1,)](x, 5)
    assert set(seen) == {0.0}


def test_hooks(fake):
    calls = []
    tuned = tune([triton.Config({"BLOCK": 32}, num_warps=w, pre_hook=lambda args, w=w: calls.append((w, args["BLOCK"], args["n"]))) for w in (1, 2)],
                 key=["n"], pre_hook=lambda args, reset_only=False: calls.append(("pre", reset_only)),
                 post_hook=lambda args, exception: calls.append(("post", exception)))
    tuned[(1,)](np.zeros(4, np.float32), 5)
    assert calls[:3] == [(1, 32, 5), ("pre", False), ("post", None)]
    assert calls[-2:] == [("pre", True), (2, 32, 5)]  # the last launch, of the winner
    assert tuned.best_config.num_warps == 2


def test_pruning(fake):
    seen = []

    def early(configs, named_args, **kwargs):
        seen.append((dict(named_args), kwargs))
        return [c for c in configs if c.num_warps != 4]

    tuned = tune(configs(1, 2, 4, 8), key=["n"], prune_configs_by={"early_config_prune": early, "perf_model": lambda num_warps, **kw: -num_warps, "top_k": 2})
    x = np.zeros(4, np.float32)
    tuned[(1,)](x, 5, EVEN=True)
    assert {c.num_warps for c in tuned.configs_timings} == {8, 2}
    assert seen[0][0]["n"] == 5 and seen[0][1]["EVEN"] is True
    with pytest.raises(TilewrightError, match="left no configuration"):
        tune(configs(1, 2), key=["n"], prune_configs_by={"early_config_prune": lambda c, a, **k: []})[(1,)](x, 5)
    with pytest.raises(ArgumentError, match="top_k"):
        tune(configs(1, 2), key=["n"], prune_configs_by={"perf_model": lambda **k: 0, "top_k": -3})[(1,)](x, 5)


def test_mistakes(fake):
    with pytest.warns(UserWarning, match="the key 'm' is no parameter of the kernel and is left out"):
        assert tune(configs(1, 2), key=["n", "m"]).keys == ["n"]
    with pytest.raises(ArgumentError, match="'y' in reset_to_zero is no parameter"):
        tune(configs(1, 2), key=["n"], reset_to_zero=["y"])
    with pytest.raises(ArgumentError, match="BLOCK is given in the launch and in the configurations"):
        tune(configs(1, 2), key=["n"])[(1,)](np.zeros(4, np.float32), 5, BLOCK=2)
    with pytest.raises(ArgumentError, match="BLOCK is given in the launch and in the configurations"):
        tune(configs(1), key=["n"])[(1,)](np.zeros(4, np.float32), 5, BLOCK=2)
    tuned = tune(configs(1, 2), key=["n"])
    tuned[(1,)](np.zeros(4, np.float32), 5)  # another launch finds its configuration without measuring
    with pytest.raises(ArgumentError, match="BLOCK is given in the launch and in the configurations"):
        tuned[(1,)](np.zeros(4, np.float32), 5, BLOCK=2)


def test_results_on_disk(fake):
    x = np.zeros(4, np.float32)
    tune(configs(1, 4), key=["n"], cache_results=True)[(1,)](x, 5)
    before = launches(fake)
    again = tune(configs(1, 4), key=["n"], cache_results=True)
    again[(1,)](x, 5)
    assert launches(fake) == before + 1 and again.best_config.num_warps == 4
    tune(configs(1, 4, 8), key=["n"], cache_results=True)[(1,)](x, 5)
    assert launches(fake) > before + 2


def test_own_bench(fake):
    asked = []

    def bench(call, quantiles):
        call()
        asked.append(quantiles)
        return [10.0 - len(asked)] * 3

    tuned = tune(configs(1, 2, 8), key=["n"], do_bench=bench)
    tuned[(1,)](np.zeros(4, np.float32), 5)
    assert asked == [(0.5, 0.2, 0.8)] * 3 and tuned.best_config.num_warps == 8


def test_warmup_compiles_all(fake):
    kernels = tune(configs(1, 2), key=["n"]).warmup(np.zeros(4, np.float32), 5, grid=(1,))
    assert [k.metadata.num_warps for k in kernels] == [1, 2] and launches(fake) == 0


def test_the_interpreter_takes_the_first_without_measuring(monkeypatch):
    from tilewright.runtime.interpreter import InterpretedFunction

    monkeypatch.setenv("TILEWRIGHT_ALLOW_NON_CONSTEXPR_GLOBALS", "1")  # the kernel counts in a list
    runs = []

    def add_one(x_ptr, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        runs.append(BLOCK)
        tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)

    x = np.zeros(40, np.float32)
    tuned = triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32})], key=["n"])(InterpretedFunction(add_one))
    tuned[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, 40)
    assert (x == 1).all() and len(runs) == 3


def test_heuristics(fake):
    ruled = triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})(kernel)
    x = np.zeros(4, np.float32)
    assert ruled[(1,)](x, 64, BLOCK=32).src.constants[(3,)] is True
    assert ruled[(1,)](x, 65, BLOCK=32).src.constants[(3,)] is False
    both = tune(configs(1, 4), key=["n"])
    both = triton.autotune(configs(1, 4), key=["n"], warmup=1, rep=1)(ruled)
    assert both[(1,)](x, 128).src.constants == {(2,): 128, (3,): True}
    assert ruled.warmup(x, 64, BLOCK=32, grid=(1,)).src.constants[(3,)] is True


def test_config():
    a, b = triton.Config({"B": 1}, num_warps=2), triton.Config({"B": 1}, num_warps=2)
    assert a == b and hash(a) == hash(b) and a != triton.Config({"B": 2}, num_warps=2)
    assert a.all_kwargs() == {"B": 1, "num_warps": 2, "num_ctas": 1, "num_stages": 3}
    assert str(a) == "B: 1, num_warps: 2, num_ctas: 1, num_stages: 3, maxnreg: None"


def test_do_bench(fake):
    times = iter([3.0] * 6 + [2.0] + [1.0, 2.0, 3.0, 4.0, 5.0] * 100)

    def fn():
        fake.driver.next_ms = next(times)

    measured = testing.do_bench(fn, warmup=3, rep=15, return_mode="all")  # estimate 3 ms: one warm-up, five runs
    assert measured == [1.0, 2.0, 3.0, 4.0, 5.0]
    times = iter([1.0] * 6 + [1.0] + [1.0, 2.0, 3.0, 4.0, 5.0] * 100)
    assert testing.do_bench(fn, warmup=1, rep=5, quantiles=[0.5, 0.25, 1.0]) == [3.0, 2.0, 5.0]
    for mode, expected in (("mean", 3.0), ("median", 3.0), ("min", 1.0), ("max", 5.0)):
        times = iter([1.0] * 6 + [1.0] + [1.0, 2.0, 3.0, 4.0, 5.0])
        assert testing.do_bench(fn, warmup=1, rep=5, return_mode=mode) == expected
    with pytest.raises(ArgumentError, match="return_mode"):
        testing.do_bench(fn, return_mode="mode")


def test_do_bench_times_the_target_that_ran(fake, monkeypatch):
    """On a machine whose first device is another one, kernels on arrays of the host are timed on the host."""
    other = fake_target.Fake("other", device_types=("elsewhere",))
    registry.register(other.plugin)
    try:
        monkeypatch.setenv("TILEWRIGHT_TARGET", "other")
        other.driver.next_ms, fake.driver.next_ms = 1000.0, 2.0
        assert testing.do_bench(lambda: None, warmup=1, rep=1) == 1000.0

        def launch():
            monkeypatch.setenv("TILEWRIGHT_TARGET", "fake:f1")
            kernel[(1,)](np.zeros(4, np.float32), 5, BLOCK=32, num_warps=4)
            monkeypatch.setenv("TILEWRIGHT_TARGET", "other")

        assert testing.do_bench(launch, warmup=1, rep=1) == 1.0
    finally:
        registry.unregister("other")


def test_do_bench_cudagraph_says_where_it_is_impossible(fake):
    with pytest.raises(TilewrightError, match="not possible on target fake:f1"):
        testing.do_bench_cudagraph(lambda: None)


def test_host_functions():
    assert [triton.cdiv(a, b) for a, b in ((0, 4), (1, 4), (4, 4), (5, 4))] == [0, 1, 1, 2]
    assert [triton.next_power_of_2(n) for n in (0, 1, 2, 3, 4, 5, 1000, 2**40 + 1)] == [1, 1, 2, 4, 4, 8, 1024, 2**41]
    with pytest.raises(ArgumentError):
        triton.set_allocator(3)


def test_active_driver(fake, monkeypatch):
    from tilewright.backends.compiler import GPUTarget

    active = triton.runtime.driver.active
    assert active.get_current_target() == GPUTarget("fakebackend", 1, 32)
    assert active.get_current_device() == 0 and active.get_current_stream(3) == 103
    assert active.utils.get_device_properties(0)["max_shared_mem"] == 1024
    monkeypatch.delenv("TILEWRIGHT_TARGET")
    triton.runtime.driver.set_active("fake:f2")
    try:
        assert triton.runtime.driver.active.get_current_target().arch == 2
        assert kernel.warmup(np.zeros(4, np.float32), 1, 2, grid=(1,)).metadata.arch == "f2"
    finally:
        triton.runtime.driver.reset_active()


def test_a_rule_of_heuristics_that_asks_for_an_unknown_name_says_so():
    @triton.heuristics({"E": lambda a: a["m"]})
    @triton.jit
    def kernel(p, E: tl.constexpr):
        tl.store(p, E)

    with pytest.raises(ArgumentError, match="the rule of 'E' in heuristics asks for 'm', which the launch does not give; it gives p"):
        kernel[(1,)](np.zeros(1, np.int32))
    with pytest.raises(KeyError):
        kernel[(1,)](np.zeros(1, np.int32))


def test_what_is_no_kernel_or_no_config_is_refused():
    with pytest.raises(ArgumentError, match="autotune stands over @jit"):
        triton.autotune(configs=configs(1), key=[])(lambda x: x)
    with pytest.raises(ArgumentError, match="heuristics stands over @jit"):
        triton.heuristics({"BLOCK": lambda args: 1})(lambda x: x)
    with pytest.raises(ArgumentError, match=r"list of Config.*\(dict\)"):
        triton.autotune(configs=[{"BLOCK": 32}], key=["n"])(kernel)
