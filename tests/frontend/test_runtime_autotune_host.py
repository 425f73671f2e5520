"""autotune beside its choice: keys however arguments are given, failures, simulators, processes that compile, threads; asynchronous compilation."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import fake_target
import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright import knobs
from tilewright.compiler.source import ASTSource
from tilewright.dialects.errors import (
    ArgumentError,
    AssemblerError,
    CompilationError,
    InternalCompilerError,
    OutOfResources,
)
from tilewright.runtime import autotuner, compile_ahead
from tilewright.runtime._async_compile import AsyncCompileError, AsyncCompileMode, FutureKernel


@triton.jit
def kernel(x, y, n, m=3, BLOCK: tl.constexpr = 1, EVEN: tl.constexpr = False):
    pass


@triton.jit
def double(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def configs(*warps, **kw):
    return [triton.Config({"BLOCK": 32 * w}, num_warps=w, **kw) for w in warps]


def bench(times):
    """A do_bench that runs the call once and says the time of its configuration's warps."""

    def measure(call, quantiles):
        kernel = call()
        del kernel
        return [times()] * 3

    return measure


@pytest.fixture
def fake(monkeypatch, tmp_path):
    with fake_target.selected(monkeypatch, tmp_path, kernel, double) as target:
        target.driver.on_launch = lambda metadata: setattr(target.driver, "next_ms", abs(metadata["num_warps"] - 4) + 1.0)
        yield target


def tune(fake, *args, fn=kernel, **kw):
    kw.setdefault("do_bench", bench(lambda: fake.driver.next_ms))
    return triton.autotune(*args, **kw)(fn)


@pytest.fixture
def on_cpu(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    monkeypatch.setattr(double, "_entries", {})
    monkeypatch.setattr(double, "_kernels", {})
    double.device_caches.clear()


def test_a_key_does_not_depend_on_how_arguments_are_given(fake):
    tuned = tune(fake, configs(1, 4), key=["n", "m"])
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float16)
    tuned[(1,)](x, y, 5, 3)
    tuned[(1,)](x, y, 5)
    tuned[(1,)](y=y, n=5, x=x)
    tuned[(1,)](x, m=3, n=5, y=y)
    assert list(tuned.cache) == [(5, 3, "float32", "float16")]
    tuned[(1,)](x, y, 3, 5)
    tuned[(1,)]((x, (y,)), y, 5)
    assert list(tuned.cache)[1:] == [(3, 5, "float32", "float16"), (5, 3, "float32", "float16", "float16")]
    with pytest.raises(ArgumentError, match="argument 'n' of kernel is a ndarray, by which nothing can be kept"):
        tuned[(1,)](x, y, x)
    with pytest.raises(ArgumentError, match="key is a list"):
        tune(fake, configs(1, 4), key="n")


def test_each_target_has_its_own_choice(fake, monkeypatch):
    tuned = tune(fake, configs(1, 4), key=["n"])
    x = np.zeros(4, np.float32)
    tuned[(1,)](x, x, 5)
    first = tuned.cache
    monkeypatch.setenv("TILEWRIGHT_TARGET", "fake:f2")
    fake.driver.on_launch = lambda metadata: setattr(fake.driver, "next_ms", float(metadata["num_warps"]))
    tuned[(1,)](x, x, 5)
    assert tuned.best_config.num_warps == 1 and tuned.cache is not first
    monkeypatch.setenv("TILEWRIGHT_TARGET", "fake:f1")
    tuned[(1,)](x, x, 5)
    assert tuned.best_config.num_warps == 4 and tuned.cache is first
    tuned.cache = {}
    tuned[(1,)](x, x, 5)
    assert tuned.best_config.num_warps == 1  # measured again


def test_what_cannot_be_compiled_is_left_out_and_told(fake):
    errors = {1: AssemblerError("no such instruction"), 2: OutOfResources(9, 1, "registers")}
    fake.fail = lambda ctx: errors.get(ctx.options.num_warps)
    x = np.zeros(4, np.float32)
    tuned = tune(fake, [*configs(1, 2, 4), triton.Config({"BLOCK": 7}, num_warps=3)], key=["n"])
    with pytest.warns(UserWarning, match="leaves out 2 of kernel's configurations; the first is BLOCK: 32.*AssemblerError: no such instruction"):
        tuned[(1,)](x, x, 5)
    assert tuned.best_config.num_warps == 4
    fake.fail = lambda ctx: errors.get(ctx.options.num_warps, CompilationError("a mistake in the kernel"))
    with pytest.raises(OutOfResources):
        tune(fake, configs(2, 16), key=["n"])[(1,)](x, x, 5)
    fake.fail = lambda ctx: InternalCompilerError("a mistake of the compiler") if ctx.options.num_warps == 32 else None
    with pytest.raises(InternalCompilerError, match="of the compiler"):
        tune(fake, configs(64, 32), key=["n"])[(1,)](x, x, 5)


def test_what_is_printed(fake, capsys):
    with knobs.autotuning.scope():
        knobs.autotuning.print = True
        fake.fail = lambda ctx: OutOfResources(9, 1, "registers") if ctx.options.num_warps == 2 else None
        x = np.zeros(4, np.float32)
        tune(fake, configs(2, 4), key=["n"])[(1,)](x, x, 5)
    said = capsys.readouterr().out
    assert "Autotuning kernel: BLOCK: 64, num_warps: 2" in said and "cannot be run: out of resource: registers" in said
    assert "Autotuning kernel for {'n': 5}" in said and "best: BLOCK: 128, num_warps: 4" in said


def test_deprecated_arguments_say_so():
    with pytest.warns(DeprecationWarning, match="pass do_bench"):
        triton.autotune(configs(1), key=["n"], warmup=3)(kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        triton.autotune(configs(1), key=["n"])(kernel)


def test_a_simulators_time_decides_nothing(on_cpu, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_80:sim")
    monkeypatch.setattr(autotuner, "_said", False)
    tuned = triton.autotune([triton.Config({"BLOCK": 32}, num_ctas=2), triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 32})],
                            key=["n"])(double)
    monkeypatch.setattr(tuned, "_bench", lambda *a, **k: pytest.fail("it was measured"))
    x = np.ones(64, np.float32)
    with pytest.warns(UserWarning) as told:
        tuned[(1,)](x, 64)
    assert [str(w.message).split(",")[0] for w in told] == ["autotune leaves out 1 of double's configurations; the first is BLOCK: 32",
                                                            "target nvidia:sm_80:sim is a simulator"][::-1]
    assert tuned.best_config.num_warps == 2 and (x == 2).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tuned[(2,)](x, 32)
    assert list(tuned.cache) == [(64, "float32"), (32, "float32")] and x[0] == 4


def test_candidates_are_compiled_by_several_processes(on_cpu, monkeypatch):
    """The parent finds all but the one that cannot be compiled in the cache."""
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "2")
    candidates = [triton.Config({"BLOCK": b}) for b in (16, 32, 3, 64)]
    tuned = triton.autotune(candidates, key=["n"], do_bench=lambda call, quantiles: (call(), [1.0] * 3)[1])(double)
    x = np.ones(100, np.float32)
    hits = []
    with knobs.compilation.scope():
        knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
        with pytest.warns(UserWarning, match="leaves out 1 of double's configurations; the first is BLOCK: 3,"):
            tuned[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, 100)
    assert hits == [True] * 3 and (x == 2.0 ** 4).all()  # three measured, one launched


def test_processes_that_compile_leave_nothing_behind(on_cpu, monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "3")
    done = tmp_path / "done"
    done.mkdir()

    def job(i):
        def run():
            if i == 2:
                raise ValueError("a job that fails harms no other")
            (done / str(i)).write_text(str(compile_ahead.processes()))
            assert compile_ahead.compile_ahead([run, run]) == 0  # no processes of processes
        return run

    assert compile_ahead.compile_ahead([job(i) for i in range(7)]) == 3
    assert sorted(p.name for p in done.iterdir()) == ["0", "1", "3", "4", "5", "6"]
    assert compile_ahead.compile_ahead([job(7)]) == 0 and not (done / "7").exists()
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "1")
    assert compile_ahead.compile_ahead([job(7), job(8)]) == 0


def test_a_process_that_is_stuck_is_ended(monkeypatch):
    import time

    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "2")
    monkeypatch.setattr(compile_ahead, "SILENCE", 0.2)
    monkeypatch.setattr(compile_ahead, "POLL", 0.1)
    begin = time.monotonic()
    assert compile_ahead.compile_ahead([lambda: time.sleep(60), lambda: None]) == 2
    assert time.monotonic() - begin < 30


def test_a_config_hook_that_changes_what_is_compiled_is_waited_for(fake, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_COMPILE_PROCESSES", "2")
    monkeypatch.setattr(compile_ahead, "compile_ahead", lambda jobs: pytest.fail("compiled without its hook"))
    tuned = tune(fake, configs(1, 4, pre_hook=lambda named: None), key=["n"])
    x = np.zeros(4, np.float32)
    tuned[(1,)](x, x, 5)
    assert tuned.best_config.num_warps == 4


def test_threads_measure_once(fake):
    measured = []

    def measure(call, quantiles):
        call()
        measured.append(threading.get_ident())
        return [fake.driver.next_ms] * 3

    tuned = tune(fake, configs(1, 2, 4), key=["n"], do_bench=measure)
    x = np.zeros(4, np.float32)
    seen = []

    def work(i):
        for _ in range(20):
            kernel = tuned[(i + 1,)](x, x, 5)
            seen.append(kernel.metadata.num_warps)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(measured) == 3 and len(set(measured)) == 1 and seen == [4] * 160
    assert tuned.nargs is None


def test_results_on_disk_tell_configurations_apart(on_cpu, tmp_path):
    """Two that differ only in the code they bring."""
    source = triton.compile(ASTSource(double, {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 64}), "cpu").asm["ttir"]
    path = tmp_path / "mine.ttir"
    path.write_text(source.replace("2.000000e+00", "3.000000e+00"))
    candidates = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 64}, ir_override=str(path))]
    assert str(candidates[0]) != str(candidates[1])
    times = iter([2.0, 1.0])
    for _ in range(2):
        tuned = triton.autotune(candidates, key=["n"], cache_results=True,
                                do_bench=lambda call, quantiles: (call(), [next(times)] * 3)[1])(double)
        x = np.ones(64, np.float32)
        tuned[(1,)](x, 64)
        assert tuned.best_config is candidates[1] and list(tuned.configs_timings.values())[1] == [1.0] * 3
    assert (x == 3).all()  # the second time nothing was measured


def test_autotune_over_heuristics_and_the_reverse(fake):
    asked = []

    def even(named):
        asked.append(named)
        return named["n"] % named["BLOCK"] == 0

    x = np.zeros(4, np.float32)
    over = tune(fake, configs(1, 4), key=["n"], fn=triton.heuristics({"EVEN": even})(kernel))
    compiled = over[(1,)](x, x, 128)
    assert compiled.src.constants[(5,)] is True and {a["BLOCK"] for a in asked} == {32, 128}
    under = triton.heuristics({"m": lambda named: named["n"] // 2, "EVEN": lambda named: named["m"] == 64})(tune(fake, configs(1, 4), key=["m"]))
    compiled = under[(1,)](x, x, n=128)
    assert compiled.src.constants[(5,)] is True and list(under.fn.cache) == [(64, "float32", "float32")]
    assert under.arg_names == kernel.arg_names and over.base_fn is kernel.fn


def test_asynchronous_compilation(on_cpu):
    x = np.ones(64, np.float32)
    with ThreadPoolExecutor(2) as pool, AsyncCompileMode(pool):
        first = double.warmup(x, 64, BLOCK=16, grid=(1,))
        again = double.warmup(x, 64, BLOCK=16, grid=(1,))
        double.warmup(x, 64, BLOCK=32, grid=(1,))
        assert isinstance(first, FutureKernel) and again is first
        with pytest.raises(AsyncCompileError, match="active already"):
            AsyncCompileMode(pool).__enter__()
        assert (double[(1,)](x, 64, BLOCK=64).asm["ttir"]).count("64xf32")  # a launch waits
    assert first.result() is double.warmup(x, 64, BLOCK=16, grid=(1,)) and first.metadata.name == "double"
    assert (x == 2).all()
    with ThreadPoolExecutor(2) as pool:
        with pytest.raises(CompilationError):
            with AsyncCompileMode(pool):
                double.warmup(x, 64, BLOCK=3, grid=(1,))
        with AsyncCompileMode(pool, ignore_errors=True):
            double.warmup(x, 64, BLOCK=3, grid=(1,))
            double.warmup(x, 64, BLOCK=128, grid=(1,))
    assert double.warmup(x, 64, BLOCK=128, grid=(1,)).metadata.name == "double"
