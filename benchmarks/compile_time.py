"""Compile time of the five kernels beside Triton's, offline: new process with an empty cache (import included), and warm.

    python benchmarks/compile_time.py --peer PYTHON_WITH_TRITON [--targets cuda:80:32,hip:gfx942:64] [--runs 3]

Medians of --runs processes, in turns, after one of each that is not counted: it writes the bytecode that an installed package has, which a
checkout has not, and which PYTHONDONTWRITEBYTECODE (left out here) would have every process make anew. The peer compiles the same kernel
source with ``tilewright`` replaced by ``triton`` in the imports. Prints a Markdown table for docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from configs import CONFIGS
from frameworks import for_the_peer

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parent / "examples"


def measure(python: str, framework: str, target: str, config: str, examples: str) -> dict:
    with tempfile.TemporaryDirectory() as cache:
        env = dict(os.environ, TRITON_CACHE_DIR=cache, TILEWRIGHT_CACHE_DIR=cache)
        for name in ("TILEWRIGHT_VERIFY", "PYTHONDONTWRITEBYTECODE"):
            env.pop(name, None)
        command = [python, str(HERE / "compile_worker.py"), framework, *target.split(":"), config, examples]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1][:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def median(rows: list[dict], key: str) -> float:
    return statistics.median(r[key] for r in rows)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", default=None)
    parser.add_argument("--targets", default="cuda:80:32,cuda:90:32,hip:gfx942:64")
    parser.add_argument("--kernels", default=",".join(c.name for c in CONFIGS))
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as peer_examples:
        for f in EXAMPLES.glob("*.py"):
            text = for_the_peer(f.read_text())
            (pathlib.Path(peer_examples) / f.name).write_text(text)
        print("| target | kernel | cold s | peer | ratio | warm s | peer | ratio |\n|---|---|---|---|---|---|---|---|")
        for target in args.targets.split(","):
            for config in args.kernels.split(","):
                ours, peer = [], []
                for _ in range(args.runs + 1):
                    ours.append(measure(sys.executable, "tilewright", target, config, str(EXAMPLES)))
                    if args.peer:
                        peer.append(measure(args.peer, "triton", target, config, peer_examples))
                ours, peer = ours[1:], peer[1:]
                bad = [r["error"] for r in ours + peer if "error" in r]
                if bad:
                    print(f"| {target} | {config} | {bad[0]} | | | | | |")
                    continue
                cells = []
                for key in ("cold", "warm"):
                    mine = median(ours, key)
                    theirs = median(peer, key) if peer else float("nan")
                    cells += [f"{mine:.3f}", f"{theirs:.3f}", f"{mine / theirs:.2f}"]
                print(f"| {target} | {config} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
