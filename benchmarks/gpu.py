"""Run the five example kernels under Tilewright and Triton in one process on one GPU, the same inputs and configurations.

    python benchmarks/gpu.py [--kernels add,softmax,…] [--quick] [--json FILE]

Each kernel is first compared with float64 (outputs poisoned with NaN). Times are medians of event pairs, L2 flushed before each
launch, on random data. ``limit``: bytes over the measured copy bandwidth, or the ratio to the framework's own kernel.
Needs torch with a GPU; without Triton only Tilewright's column is filled.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
sys.path.insert(0, str(EXAMPLES))


def peer_modules() -> dict[str, Any] | None:
    """The examples over again with ``triton`` in place of ``tilewright``, or None where there is no Triton."""
    try:
        importlib.import_module("triton")
    except ImportError:
        return None
    folder = pathlib.Path(tempfile.mkdtemp())
    names = [f.stem for f in EXAMPLES.glob("*.py") if f.stem != "common"]
    for name in names:
        text = (EXAMPLES / f"{name}.py").read_text()
        text = text.replace("import tilewright as triton", "import triton").replace("import tilewright.", "import triton.")
        text = text.replace("from matmul import", "from peer_matmul import")
        (folder / f"peer_{name}.py").write_text(text)
    sys.path.insert(0, str(folder))
    return {name: importlib.import_module(f"peer_{name}") for name in names}


def our_modules() -> dict[str, Any]:
    return {f.stem: importlib.import_module(f.stem) for f in EXAMPLES.glob("*.py")}


def bench(fn: Callable[[], Any], budget_ms: float = 200.0) -> float:
    """Median milliseconds of one call, the L2 cache flushed before each."""
    import torch

    flush = torch.empty(256 * 2**20 // 4, dtype=torch.int32, device="cuda")
    for _ in range(3):
        fn()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    fn()
    torch.cuda.synchronize()
    once = max((time.perf_counter() - begin) * 1e3, 0.02)
    n = int(max(10, min(100, budget_ms / once)))
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(n)]
    for a, b in pairs:
        flush.zero_()
        a.record()
        fn()
        b.record()
    torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) for a, b in pairs)


class Case:
    """One kernel at one size. ``launch(modules, config)`` runs it and returns the output; ``work`` is bytes or flops."""

    def __init__(self, name: str, unit: str, work: float, launch: Callable[..., Any], reference: Callable[[], Any], bound: float,
                 library: Callable[[], Any] | None, configs: list[dict[str, Any]]):
        self.name, self.unit, self.work, self.launch, self.reference = name, unit, work, launch, reference
        self.bound, self.library, self.configs = bound, library, configs

    def rate(self, ms: float) -> float:
        return self.work / ms / (1e6 if self.unit == "GB/s" else 1e9)


def cases() -> dict[str, Callable[[], Case]]:
    import torch

    def rnd(*shape: int, dtype: Any) -> Any:
        return torch.randn(shape, device="cuda", dtype=torch.float32).to(dtype)

    def nan_like(x: Any, shape: Any = None) -> Any:
        return torch.full(shape or x.shape, float("nan"), device="cuda", dtype=x.dtype)

    def add() -> Case:
        n = 2**27
        x, y = rnd(n, dtype=torch.float32), rnd(n, dtype=torch.float32)
        z = nan_like(x)

        def launch(m: Any, c: dict[str, Any]) -> Any:
            m["vector_add"].add_kernel[((n + c["BLOCK"] - 1) // c["BLOCK"],)](x, y, z, n, **c)
            return z

        return Case("add 2^27 fp32", "GB/s", 12.0 * n, launch, lambda: x.double() + y.double(), 1e-6, lambda: torch.add(x, y, out=z),
                    [{"BLOCK": b, "num_warps": w} for b, w in ((1024, 4), (2048, 8), (4096, 8))])

    def softmax() -> Case:
        rows, cols = 8192, 4096
        x = rnd(rows, cols, dtype=torch.bfloat16)
        z = nan_like(x)

        def launch(m: Any, c: dict[str, Any]) -> Any:
            m["softmax"].softmax_kernel[(rows,)](z, x, cols, cols, rows, cols, BLOCK=4096, **c)
            return z

        return Case("softmax 8192x4096 bf16", "GB/s", 4.0 * rows * cols, launch, lambda: torch.softmax(x.double(), 1), 8e-3,
                    lambda: torch.softmax(x, 1), [{"num_warps": w} for w in (4, 8, 16)])

    def layer_norm() -> Case:
        rows, cols = 8192, 8192
        x, w, b = rnd(rows, cols, dtype=torch.float16), rnd(cols, dtype=torch.float16), rnd(cols, dtype=torch.float16)
        y = nan_like(x)
        mean, rstd = (torch.empty(rows, device="cuda") for _ in range(2))

        def launch(m: Any, c: dict[str, Any]) -> Any:
            m["layer_norm"].layer_norm_kernel[(rows,)](x, y, w, b, mean, rstd, cols, cols, 1e-5, **c)
            return y

        norm = torch.nn.functional.layer_norm
        return Case("layer_norm 8192x8192 fp16", "GB/s", 4.0 * rows * cols, launch,
                    lambda: norm(x.double(), (cols,), w.double(), b.double(), 1e-5), 1e-3, lambda: norm(x, (cols,), w, b, 1e-5),
                    [{"BLOCK": blk, "num_warps": nw} for blk, nw in ((2048, 8), (4096, 8), (8192, 8), (8192, 16))])

    def matmul(size: int) -> Callable[[], Case]:
        def make() -> Case:
            m_, n_, k_ = size, size, size
            x, w, b = rnd(m_, k_, dtype=torch.float16), rnd(k_, n_, dtype=torch.float16), rnd(n_, dtype=torch.float16)
            y = nan_like(x, (m_, n_))

            def launch(m: Any, c: dict[str, Any]) -> Any:
                grid = (-(-m_ // c["BLOCK_M"]) * -(-n_ // c["BLOCK_N"]),)
                m["matmul"].matmul_kernel[grid](x, w, b, y, m_, n_, k_, *x.stride(), *w.stride(), *y.stride(), GROUP_M=8,
                                                RELU=True, PRECISION="tf32", **c)
                return y

            return Case(f"matmul {size}^3 fp16 bias relu", "TFLOP/s", 2.0 * m_ * n_ * k_, launch,
                        lambda: torch.relu(x[:512].double() @ w.double() + b.double()), 2e-3,
                        lambda: torch.relu(torch.addmm(b, x, w)),
                        [{"BLOCK_M": bm, "BLOCK_N": bn, "BLOCK_K": bk, "num_warps": nw, "num_stages": s}
                         for bm, bn, bk, nw, s in ((128, 128, 64, 4, 3), (128, 128, 32, 4, 4), (128, 256, 64, 8, 3), (128, 128, 64, 8, 4))])

        return make

    def attention(dim: int, causal: bool) -> Callable[[], Case]:
        def make() -> Case:
            heads, n = 64, 4096
            q, k, v = (rnd(heads, n, dim, dtype=torch.bfloat16) for _ in range(3))
            o = nan_like(q)
            strides = [s for t in (q, k, v, o) for s in t.stride()[:2]]

            def launch(m: Any, c: dict[str, Any]) -> Any:
                m["attention"].attention_kernel[(-(-n // c["BLOCK_M"]), heads)](
                    q, k, v, o, *strides, n, 1.4426950408889634 / dim**0.5, HEAD_DIM=dim, CAUSAL=causal, PRECISION="tf32", **c)
                return o

            def reference() -> Any:
                s = q[:2].double() @ k[:2].double().transpose(1, 2) / dim**0.5
                if causal:
                    s = s.masked_fill(~torch.ones(n, n, dtype=torch.bool, device="cuda").tril(), float("-inf"))
                return torch.softmax(s, -1) @ v[:2].double()

            sdpa = torch.nn.functional.scaled_dot_product_attention
            return Case(f"attention D={dim}{' causal' if causal else ''} N=4096 bf16", "TFLOP/s",
                        4.0 * heads * n * n * dim * (0.5 if causal else 1.0), launch, reference, 8e-3,
                        lambda: sdpa(q[None], k[None], v[None], is_causal=causal),
                        [{"BLOCK_M": 128, "BLOCK_N": bn, "num_warps": nw, "num_stages": s} for bn, nw, s in ((64, 4, 3), (64, 8, 3), (128, 8, 3), (32, 4, 4))])

        return make

    return {"add": add, "softmax": softmax, "layer_norm": layer_norm, "matmul4096": matmul(4096), "matmul8192": matmul(8192),
            "attention64": attention(64, False), "attention128": attention(128, False), "attention64c": attention(64, True)}


def best(case: Case, modules: dict[str, Any], reference: Any) -> tuple[float, float, dict[str, Any], str]:
    """(milliseconds, error, configuration, note) of the fastest right configuration."""
    found: tuple[float, float, dict[str, Any], str] = (float("nan"), float("nan"), {}, "")
    for config in case.configs:
        try:
            out = case.launch(modules, config)
            got = out[: reference.shape[0]].double()
            err = float((got - reference).norm() / reference.norm())
            if not err <= case.bound:
                print(f"  WRONG {case.name} {config}: error {err:.2e} over {case.bound:.0e}", flush=True)
                found = (*found[:3], found[3] + f" wrong:{config}")
                continue
            ms = bench(lambda c=config: case.launch(modules, c))
        except Exception as e:  # noqa: BLE001 - one configuration that does not fit must not end the table
            print(f"  {case.name} {config}: {type(e).__name__}: {str(e)[:300]}", flush=True)
            continue
        if not ms >= found[0]:
            found = (ms, err, config, found[3])
    return found


def launch_overhead(modules: dict[str, Any]) -> float:
    """Host microseconds of one launch: three tensors, one int, one constexpr, a grid of one program."""
    import torch

    x = torch.randn(16, device="cuda")
    kernel = modules["vector_add"].add_kernel
    for _ in range(200):
        kernel[(1,)](x, x, x, 16, BLOCK=16)
    torch.cuda.synchronize()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(1000):
            kernel[(1,)](x, x, x, 16, BLOCK=16)
        times.append((time.perf_counter() - begin) * 1e3)
        torch.cuda.synchronize()
    return statistics.median(times)


def copy_bandwidth() -> float:
    """GB/s of a device-to-device copy, bytes read and written counted."""
    import torch

    a = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * 2**30 / bench(lambda: b.copy_(a)) / 1e6


def main() -> None:
    import torch

    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", default="")
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    ours, peer = our_modules(), peer_modules()
    made = cases()
    rows: list[dict[str, Any]] = []
    copy = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, copy {copy:.0f} GB/s", flush=True)
    for name in args.kernels.split(",") if args.kernels else made:
        torch.manual_seed(time.time_ns() % 2**31)
        case = made[name]()
        reference = case.reference()
        mine = best(case, ours, reference)
        theirs = best(case, peer, reference) if peer else (float("nan"), float("nan"), {}, "")
        library = bench(case.library) if case.library else float("nan")
        rows.append({"kernel": case.name, "unit": case.unit, "tilewright": case.rate(mine[0]), "triton": case.rate(theirs[0]),
                     "library": case.rate(library), "ratio": theirs[0] / mine[0], "error": mine[1], "config": mine[2],
                     "peer_config": theirs[2], "note": mine[3]})
        print(json.dumps(rows[-1]), flush=True)
        torch.cuda.empty_cache()
    mine_us = launch_overhead(ours)
    theirs_us = launch_overhead(peer) if peer else float("nan")
    print("\n| kernel | unit | Tilewright | Triton | ratio | torch | error |\n|---|---|---|---|---|---|---|")
    for r in rows:
        print(f"| {r['kernel']} | {r['unit']} | {r['tilewright']:.0f} | {r['triton']:.0f} | {r['ratio']:.2f} | {r['library']:.0f} | {r['error']:.1e}{r['note']} |")
    print(f"| launch | µs | {mine_us:.1f} | {theirs_us:.1f} | {theirs_us / mine_us:.2f} | | |")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"copy": copy, "rows": rows, "launch": [mine_us, theirs_us]}, indent=1))


if __name__ == "__main__":
    main()
