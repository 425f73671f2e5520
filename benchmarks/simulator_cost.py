"""What the check for races in global memory costs in the simulators: CPU time of launches with and without it, taking turns.

    TILEWRIGHT_TARGET=amd:gfx942:sim python benchmarks/simulator_cost.py
    TILEWRIGHT_TARGET=nvidia:sm_90a:sim python benchmarks/simulator_cost.py --rounds 7 --kernels softmax matmul

Prints a row of a Markdown table for each kernel of examples/: seconds without it, and what it adds in per cent, the median of the rounds and their span.
CPU time is the process's own (time.process_time), so other processes disturb it less than they do a clock.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

SWITCH = "TILEWRIGHT_SIMULATE_GLOBAL_RACES"


def launches() -> dict[str, Callable[[], Any]]:
    """One launch each of the five examples, on numpy arrays."""
    import attention
    import common
    import layer_norm
    import matmul
    import softmax
    import vector_add

    def array(*shape: int, dtype: str = "float16", seed: int = 0) -> Any:
        return common.random(shape, dtype, "cpu", seed, True)

    x, y = array(1 << 17, dtype="float32"), array(1 << 17, dtype="float32", seed=1)
    rows, narrow = array(128, 781, dtype="float32"), array(64, 2000)
    w, b = array(2000, seed=1), array(2000, seed=2)
    a, c, bias = array(256, 256), array(256, 256, seed=1), array(256, seed=2)
    q, k, v = (array(2, 272, 64, seed=i) for i in range(3))
    return {
        "vector_add": lambda: vector_add.add(x, y), "softmax": lambda: softmax.softmax(rows), "layer_norm": lambda: layer_norm.layer_norm(narrow, w, b),
        "matmul": lambda: matmul.matmul(a, c, bias), "attention": lambda: attention.attention(q, k, v),
    }


def seconds(launch: Callable[[], Any], least: float) -> tuple[float, float]:
    """CPU time of a launch without and with the check, the median of as many launches, turn by turn, as take ``least`` seconds together."""
    took: tuple[list[float], list[float]] = ([], [])
    while sum(took[0]) + sum(took[1]) < least:
        for check in (0, 1) if len(took[0]) % 2 else (1, 0):
            os.environ[SWITCH] = str(check)
            begin = time.process_time()
            launch()
            took[check].append(time.process_time() - begin)
    return statistics.median(took[0]), statistics.median(took[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--least", type=float, default=1.5, help="seconds of each round")
    parser.add_argument("--kernels", nargs="*", default=None)
    args = parser.parse_args()
    for name, launch in launches().items():
        if args.kernels is not None and name not in args.kernels:
            continue
        launch()  # compiles
        pairs = [seconds(launch, args.least) for _ in range(args.rounds)]
        costs = sorted(100 * (on / off - 1) for off, on in pairs)
        print(f"| {name} | {statistics.median(off for off, _ in pairs):.3f} | {statistics.median(costs):.1f} | {costs[0]:.1f} to {costs[-1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
