"""The cpu target beside torch and numpy: speed on all cores, one core, and compile time. Prints a Markdown table.

    env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE python benchmarks/cpu.py
"""

from __future__ import annotations

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "examples"))
os.environ.setdefault("TILEWRIGHT_TARGET", "cpu")
os.environ.setdefault("TILEWRIGHT_CACHE_DIR", tempfile.mkdtemp())


def medians(ours: Callable[[], Any], theirs: Callable[[], Any], seconds: float = 2.4) -> tuple[float, float]:
    """Median seconds of one call of each, measured in turns of a fifth of a second: what else the machine does falls on both.

    Not call by call: threads of OpenMP spin for a while after their work, and would take the core of whoever comes next."""
    times: tuple[list[float], list[float]] = ([], [])
    turns = 12
    for turn in range(turns):
        fn, kept = ((ours, times[0]), (theirs, times[1]))[turn % 2]
        time.sleep(0.05)
        fn(), fn()
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds / turns or len(kept) < 5:
            start = time.perf_counter()
            fn()
            kept.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def one_core() -> None:
    """A 128×128×64 fp32 dot: processor time to compile it, and its speed beside numpy's matmul, all on one thread."""
    import tilewright as triton
    import tilewright.language as tl

    @triton.jit
    def dot_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
        m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
        x, y = tl.load(a + m[:, None] * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
        tl.store(out + m[:, None] * N + n[None, :], tl.dot(x, y, input_precision="ieee"))

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((128, 64)).astype("float32"), rng.standard_normal((64, 128)).astype("float32")
    out, repeats = np.empty((128, 128), "float32"), 200
    small = np.zeros((16, 16), "float32")
    dot_kernel[(1,)](small, small, small.copy(), M=16, N=16, K=16)  # imports, and the first use of LLVM
    start = time.process_time()
    dot_kernel[(1,)](a, b, out, M=128, N=128, K=64)
    compiled = time.process_time() - start
    assert np.linalg.norm(out - a.astype("float64") @ b.astype("float64")) / np.linalg.norm(out) < 1e-6

    def numpy_dots() -> None:
        for _ in range(repeats):
            np.matmul(a, b, out=out)

    work = 2.0 * 128 * 128 * 64 * repeats / 1e9
    ours = work / fastest(lambda: dot_kernel[(repeats,)](a, b, out, M=128, N=128, K=64))
    theirs = work / fastest(numpy_dots)
    print(f"one core, 128x128x64 fp32 dot: compiled in {compiled:.3f} s; {ours:.1f} GFLOP/s, numpy {theirs:.1f} (ratio {ours / theirs:.2f})")


def fastest(fn: Callable[[], Any], rounds: int = 15) -> float:
    """Least processor seconds of one call: what other processes take is left out."""
    fn()
    times = []
    for _ in range(rounds):
        start = time.process_time()
        fn()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    import layer_norm
    import matmul
    import softmax
    import torch

    rows: list[tuple[str, str, float, float]] = []

    def compare(name: str, unit: str, work: float, ours: Callable[[], Any], theirs: Callable[[], Any]) -> None:
        mine, other = medians(ours, theirs)
        rows.append((name, unit, work / mine / 1e9, work / other / 1e9))

    n = 1024
    x, w, b = (torch.randn(s) for s in ((n, n), (n, n), (n,)))
    y = torch.empty(n, n)

    def launch(bm: int, bn: int, bk: int) -> None:
        matmul.matmul_kernel[(n // bm * (n // bn),)](x, w, b, y, n, n, n, n, 1, n, 1, n, 1, BLOCK_M=bm, BLOCK_N=bn, BLOCK_K=bk, GROUP_M=8,
                                                     RELU=True, PRECISION="ieee")

    for block in ((128, 128, 64), (64, 64, 64), (128, 128, 128), (128, 256, 128)):
        compare(f"matmul 1024^3 fp32 bias relu, block {block}", "GFLOP/s", 2.0 * n**3, lambda bl=block: launch(*bl),
                lambda: torch.relu(torch.addmm(b, x, w)))
        ref = np.maximum(x.double().numpy() @ w.double().numpy() + b.double().numpy(), 0)
        assert np.linalg.norm(y.numpy() - ref) / np.linalg.norm(ref) < 1e-6

    for r, c in ((2048, 4096), (4096, 1024)):
        s = torch.randn(r, c)
        out = torch.empty_like(s)
        block = 1 << (c - 1).bit_length()
        compare(f"softmax {r}x{c} fp32", "GB/s", 8.0 * r * c, lambda: softmax.softmax_kernel[(r,)](out, s, c, c, r, c, BLOCK=block),
                lambda: torch.softmax(s, 1))
        assert torch.allclose(out, torch.softmax(s, 1), atol=1e-6)
        gamma, beta = torch.randn(c), torch.randn(c)
        mean, rstd = torch.empty(r), torch.empty(r)
        for ln_block in (128, min(block, 4096)):
            compare(f"layer_norm {r}x{c} fp32, block {ln_block}", "GB/s", 8.0 * r * c,
                    lambda size=ln_block: layer_norm.layer_norm_kernel[(r,)](s, out, gamma, beta, mean, rstd, c, c, 1e-5, BLOCK=size),
                    lambda: torch.nn.functional.layer_norm(s, (c,), gamma, beta, 1e-5))
            assert torch.allclose(out, torch.nn.functional.layer_norm(s, (c,), gamma, beta, 1e-5), atol=1e-4)

    print(f"{os.cpu_count()} cores, torch {torch.__version__} ({torch.get_num_threads()} threads)\n")
    print("| kernel | unit | Tilewright | torch | ratio |\n|---|---|---|---|---|")
    for name, unit, mine, other in rows:
        print(f"| {name} | {unit} | {mine:.1f} | {other:.1f} | {mine / other:.2f} |")


if __name__ == "__main__":
    if sys.argv[1:] == ["one-core"]:
        one_core()
    else:
        main()
        single = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TILEWRIGHT_NUM_THREADS": "1"}
        print(flush=True)
        subprocess.run([sys.executable, __file__, "one-core"], env={**os.environ, **single}, check=True)
