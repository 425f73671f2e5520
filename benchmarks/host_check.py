"""Check the host side on the machine's GPU: streams, graphs, threads, processes, timing, autotuning.

    python benchmarks/host_check.py [--only NAME,…] [--allow-cpu]

Needs torch with the device. Prints a table, one check a line; exit status 1 where one failed. ``--allow-cpu`` runs what needs no device on the cpu
target, for trying the script. Each check compares values, so that a launch on a wrong stream or out of order shows.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import tilewright as triton
import tilewright.language as tl
from tilewright import knobs, profiler, testing


class Skipped(Exception):
    """The machine lacks what a check needs."""


# asking torch would start CUDA, which a process that forks must not: check_fork says the device itself
DEVICE = os.environ.get("HOST_CHECK_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
N = 1 << 20


@triton.jit
def add_one(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def slow_add(x, n, rounds, BLOCK: tl.constexpr):
    """Adds 1 ``rounds`` times, each by a load and a store: long enough for a wrong order to show."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(rounds):
        tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)
        tl.debug_barrier()


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        acc += tl.dot(tl.load(a + m[:, None] * K + start + k[None, :]), tl.load(b + (start + k)[:, None] * N + n[None, :]))
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16))


def grid(meta: Any) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def zeros() -> Any:
    return torch.zeros(N, device=DEVICE)


def expect(x: Any, value: float, what: str = "values") -> None:
    if DEVICE != "cpu":
        torch.cuda.synchronize()
    low, high = float(x.min()), float(x.max())
    if (low, high) != (value, value):
        raise AssertionError(f"{what}: from {low} to {high}, not all {value}")


def need_device(count: int = 1) -> None:
    if DEVICE == "cpu" or torch.cuda.device_count() < count:
        raise Skipped(f"needs {count} device{'s' * (count > 1)}")


# ---------------------------------------------------------------------------------------------------------------------- checks
def check_launch() -> None:
    x = zeros()
    for _ in range(3):
        add_one[grid](x, N, BLOCK=1024)
    expect(x, 3)
    add_one[(0,)](x, N, BLOCK=1024)
    expect(x, 3, "after a grid of nothing")


def check_grid_limits() -> None:
    need_device()
    for size in ((1, 65537), (1, 1, 1 << 20), (1 << 31,)):
        try:
            add_one[size](zeros(), N, BLOCK=1024)
        except triton.runtime.errors.ArgumentError as error:
            assert "allowed are" in str(error), error
        else:
            raise AssertionError(f"the grid {size} was taken")
    check_launch()  # and nothing is broken after it


def check_own_stream() -> None:
    """Kernels on a stream of one's own follow each other and its copies, beside the default stream's work."""
    need_device()
    x, y = zeros(), zeros()
    add_one[grid](y, N, BLOCK=1024)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(20):
            slow_add[grid](x, N, 50, BLOCK=1024)
            x.mul_(1.0)
        done = torch.cuda.Event()
        done.record()
    add_one[grid](y, N, BLOCK=1024)
    torch.cuda.current_stream().wait_event(done)
    expect(x, 1000, "own stream")
    expect(y, 2, "default stream")


def check_graph() -> None:
    """A captured launch runs at each replay, on what the arrays hold then."""
    need_device()
    x = zeros()
    add_one[grid](x, N, BLOCK=1024)  # loaded before it is captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            add_one[grid](x, N, BLOCK=1024)
    torch.cuda.synchronize()
    expect(x, 1, "captured, not run")
    for _ in range(5):
        graph.replay()
    expect(x, 16)
    x.zero_()
    graph.replay()
    expect(x, 3, "after the array was changed")


def check_graph_of_matmul() -> None:
    """The version with tensor maps (where there is one) is captured too."""
    need_device()
    a, b, c = (torch.randn(512, 512, device=DEVICE).half() for _ in range(3))
    config = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8}
    matmul[(4, 4)](a, b, c, 512, 512, 512, **config)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    c.zero_()
    with torch.cuda.graph(graph):
        matmul[(4, 4)](a, b, c, 512, 512, 512, **config)
    for _ in range(2):
        a.normal_()
        graph.replay()
        testing.assert_close(c.float(), (a.float() @ b.float()), atol=0.2, rtol=1e-2)


def check_threads() -> None:
    """Two threads (and more) launch at once, known and new kernels."""
    arrays = [zeros() for _ in range(4)]
    errors: list[BaseException] = []
    start = threading.Barrier(4)

    def work(i: int) -> None:
        try:
            start.wait(60)
            if DEVICE != "cpu" and i >= 2:
                with torch.cuda.stream(torch.cuda.Stream()):
                    for _ in range(50):
                        add_one[grid](arrays[i], N, BLOCK=2048)
                    torch.cuda.current_stream().synchronize()
            else:
                for _ in range(50):
                    add_one[grid](arrays[i], N, BLOCK=2048)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    if DEVICE != "cpu":
        torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    for x in arrays:
        expect(x, 50)


def check_devices() -> None:
    """Launches go to the current device, on its current stream, with code that is loaded on each; arrays of another device, or of two, are refused
    before anything runs, cold and warm, and so are descriptors of them."""
    need_device(2)
    before = torch.cuda.current_device()
    kernel = triton.JITFunction(add_one.fn)
    arrays = [torch.zeros(N, device=f"cuda:{index}") for index in (0, 1)]
    count = 0
    for _ in range(3):
        for index in (0, 1, 0):
            with torch.cuda.device(index):
                kernel[grid](arrays[index], N, BLOCK=1024)
                stream = torch.cuda.Stream()  # of this device
                stream.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(stream):
                    slow_add[grid](arrays[index], N, 20, BLOCK=1024)
                torch.cuda.current_stream().wait_stream(stream)
                try:
                    kernel[grid](arrays[1 - index], N, BLOCK=1024)
                except triton.runtime.errors.DeviceMismatchError as error:
                    assert f"with torch.cuda.device({1 - index}):" in str(error), error
                else:
                    raise AssertionError(f"an array of device {1 - index} was taken on device {index}")
            count += index == 0
    for index in (0, 1):
        torch.cuda.synchronize(index)
        launches = count if index == 0 else 3
        low, high = float(arrays[index].min()), float(arrays[index].max())
        assert (low, high) == (launches * 21.0, launches * 21.0), f"device {index}: from {low} to {high}, not all {launches * 21}"
    assert torch.cuda.current_device() == before
    a, b = (torch.zeros(512, 512, device=f"cuda:{index}").half() for index in (0, 1))
    config = {"BM": 128, "BN": 128, "BK": 64}
    for _ in range(2):
        try:
            matmul[(4, 4)](a, b, a, 512, 512, 512, **config)
        except triton.runtime.errors.DeviceMismatchError as error:
            assert "argument 'b' of matmul lies on cuda:1, and 'a' on cuda:0" in str(error), error
        else:
            raise AssertionError("arrays of two devices were taken")
        matmul[(4, 4)](a, a, torch.empty_like(a), 512, 512, 512, **config)
    with torch.cuda.device(1):  # the version with tensor maps makes them for this device
        x, y, c = (torch.randn(512, 512, device="cuda:1").half() for _ in range(3))
        for _ in range(2):
            matmul[(4, 4)](x, y, c, 512, 512, 512, **config)
        testing.assert_close(c.float(), x.float() @ y.float(), atol=0.2, rtol=1e-2)


def check_machine_code() -> None:
    """Launches by machine code: sizes, their types, grids and options that change from launch to launch, errors between them, and kernels with tensor maps."""
    need_device()
    kernel, x, y = triton.JITFunction(add_one.fn), zeros(), zeros()
    for i in range(200):
        n = N - i if i % 2 else 4096 * (1 + i)
        kernel[grid if i % 3 else (N // 1024,)](x, n if i % 5 else np.int64(n), BLOCK=1024, num_warps=4 if i % 7 else 8)
        y[:n] += 1
        if i % 50 == 49:
            for size, more in (((1, 65537), {}), ((1,), {"speed": 3})):
                try:
                    kernel[size](x, N, BLOCK=1024, **more)
                except triton.runtime.errors.ArgumentError:
                    continue
                raise AssertionError(f"the grid {size} with {more} was taken")
    torch.cuda.synchronize()
    assert type(kernel._launch).__name__ == "builtin_function_or_method", f"launched by {kernel._launch}"
    assert torch.equal(x, y), f"{int((x != y).sum())} of {N} elements differ"
    products = triton.JITFunction(matmul.fn)
    operands = [torch.randn(512, 512, device=DEVICE).half() for _ in range(5)]
    for i in range(40):
        a, b, c = operands[i % 5], operands[(i + 2) % 5], torch.full((512, 512), float("nan"), device=DEVICE).half()
        products[(4, 4)](a, b, c, 512, 512, 512, BM=128, BN=128, BK=64, num_warps=8)
        testing.assert_close(c.float(), a.float() @ b.float(), atol=0.2, rtol=1e-2)


def check_fork() -> None:
    """A forked process that never touched the device compiles and launches (in a process that imports, forks, and only then launches)."""
    code = f"""
import os, sys
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import host_check  # imports torch and tilewright
pids = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        host_check.check_launch()
        os._exit(0)
    pids.append(pid)
codes = [os.waitpid(pid, 0)[1] for pid in pids]
host_check.check_launch()
sys.exit(codes != [0, 0])
"""
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "HOST_CHECK_DEVICE": DEVICE})
    if done.returncode:
        raise AssertionError(done.stderr[-2000:])


def check_do_bench() -> None:
    x = zeros()
    full = testing.do_bench(lambda: slow_add[grid](x, N, 20, BLOCK=1024), warmup=5, rep=20)
    half = testing.do_bench(lambda: slow_add[grid](x, N, 10, BLOCK=1024), warmup=5, rep=20)
    low, middle, high = testing.do_bench(lambda: add_one[grid](x, N, BLOCK=1024), warmup=5, rep=20, quantiles=[0.2, 0.5, 0.8])
    assert 0 < low <= middle <= high, (low, middle, high)
    assert DEVICE == "cpu" or (high < full and 1.3 < full / half < 3), (high, half, full)  # the host may be busy
    assert len(testing.do_bench(lambda: add_one[grid](x, N, BLOCK=1024), rep=5, return_mode="all")) >= 1


def check_do_bench_cudagraph() -> None:
    need_device()
    x = zeros()
    plain = testing.do_bench(lambda: slow_add[grid](x, N, 50, BLOCK=1024), warmup=5, rep=20)
    graph = testing.do_bench_cudagraph(lambda: slow_add[grid](x, N, 50, BLOCK=1024), rep=10)
    assert 0.5 < graph / plain < 1.5, (graph, plain)


def check_autotune() -> None:
    """Several configurations, compiled by several processes from a fork after the device is in use; one that cannot run is left out."""
    size = 512
    a, b, c = (torch.randn(size, size, device=DEVICE).half() for _ in range(3))
    candidates = [triton.Config({"BM": m, "BN": n, "BK": 32}, num_warps=4) for m, n in ((32, 32), (64, 64), (64, 128), (128, 128))]
    candidates.append(triton.Config({"BM": 128, "BN": 256, "BK": 512}, num_warps=8))  # 384 KiB of shared memory
    for processes in ("1", ""):
        os.environ["TILEWRIGHT_COMPILE_PROCESSES"] = processes
        with tempfile.TemporaryDirectory() as folder, knobs.cache.scope():
            knobs.cache.dir = folder
            matmul.device_caches.clear()
            tuned = triton.autotune(candidates if DEVICE != "cpu" else candidates[:2], key=["M"])(matmul)
            begin = time.perf_counter()
            tuned[lambda meta: (triton.cdiv(size, meta["BM"]), triton.cdiv(size, meta["BN"]))](a, b, c, size, size, size)
            took = time.perf_counter() - begin
            testing.assert_close(c.float(), a.float() @ b.float(), atol=0.2, rtol=1e-2)
            print(f"    autotune, {'one process' if processes else 'several processes'}: {took:.1f} s; best {tuned.best_config}")
            assert len(tuned.configs_timings) > 1 and tuned.best_config.kwargs["BK"] < 512
    os.environ.pop("TILEWRIGHT_COMPILE_PROCESSES")
    matmul.device_caches.clear()


def check_profiler() -> None:
    with tempfile.TemporaryDirectory() as folder:
        session = profiler.start(os.path.join(folder, "p"))
        x = zeros()
        with profiler.scope("here"):
            for _ in range(10):
                slow_add[grid](x, N, 10, BLOCK=1024)
        (path,) = profiler.finalize(session)
        text = profiler.viewer.tree(path)
        assert "slow_add" in text and "here" in text and float(text.splitlines()[1].split()[0]) > 1000, text


def check_properties() -> None:
    need_device()
    active = triton.runtime.driver.active
    facts = active.utils.get_device_properties(active.get_current_device())
    assert facts["multiprocessor_count"] > 10 and active.get_active_torch_device().type == "cuda"
    with torch.cuda.stream(torch.cuda.Stream()):
        assert active.get_current_stream(active.get_current_device()) == torch.cuda.current_stream().cuda_stream
    print(f"    memory {testing.get_dram_gbps():.0f} GB/s, fp16 {testing.get_max_tensorcore_tflops(torch.float16, facts['sm_clock_rate']):.0f} TFLOPS")


CHECKS: dict[str, Callable[[], None]] = {name.removeprefix("check_"): function for name, function in list(globals().items()) if name.startswith("check_")}


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the host side on this machine's GPU.")
    parser.add_argument("--only", default="", help=f"of {', '.join(CHECKS)}")
    parser.add_argument("--allow-cpu", action="store_true")
    given = parser.parse_args()
    if DEVICE == "cpu" and not given.allow_cpu:
        print("torch finds no device; --allow-cpu runs what needs none", file=sys.stderr)
        return 2
    failed = []
    rows = []
    for name in [n for n in given.only.split(",") if n] or CHECKS:
        begin = time.perf_counter()
        try:
            CHECKS[name]()
            result = "ok"
        except Skipped as reason:
            result = f"skipped: {reason}"
        except Exception as error:  # noqa: BLE001 - the other checks run too
            traceback.print_exc()
            result = f"FAILED: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:150]}"
            failed.append(name)
        rows.append(f"{name:22} {time.perf_counter() - begin:7.2f} s  {result}")
        print(rows[-1], flush=True)
    print(f"\n{triton.runtime.driver.active.get_current_target()}\n" + "\n".join(rows))
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
