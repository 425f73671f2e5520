"""Registers, spills, shared memory and instruction counts of the five kernels beside Triton's, compiled offline.

    python benchmarks/static_compare.py --peer PYTHON_WITH_TRITON [--targets cuda:80:32,hip:gfx942:64,…]

NVIDIA: both compilers' PTX goes through one ptxas -v. AMD: the figures of the code object's own metadata.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from frameworks import for_the_peer

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parent / "examples"


def ptxas_figures(path: str, arch: str) -> dict[str, int]:
    from tilewright.targets.nvidia.emit import ptxas

    command = [str(ptxas()), "-v", f"-arch=sm_{arch}{'a' if arch == '90' else ''}", path, "-o", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True)
    text = done.stderr + done.stdout
    if done.returncode:
        return {"regs": -1, "spills": -1}
    return {"regs": int(re.search(r"Used (\d+) registers", text).group(1)),
            "spills": sum(int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", text))}


def amdgcn_figures(path: str) -> dict[str, int]:
    text = pathlib.Path(path).read_text()

    def field(name: str) -> int:
        found = re.search(rf"\.{name}:\s*(\d+)", text)
        return int(found.group(1)) if found else 0

    return {"regs": field("vgpr_count"), "spills": field("vgpr_spill_count")}


def counts(path: str) -> dict[str, int]:
    text = pathlib.Path(path).read_text()
    code = [line.split()[0] if not line.strip().startswith("@") else line.split()[1] for line in text.splitlines()
            if line.startswith(("\t", " ")) and line.strip() and not line.strip().startswith((".", "//", ";", "}", "{"))]
    return {"instructions": len(code), "matrix": sum(bool(re.match(r"(mma|wgmma\.mma|v_mfma|v_wmma)", c)) for c in code)}


def collect(python: str, framework: str, target: str, examples: str) -> dict[str, dict]:
    backend, arch, warp = target.split(":")
    with tempfile.TemporaryDirectory() as cache:
        env = dict(os.environ, TRITON_CACHE_DIR=cache, TILEWRIGHT_CACHE_DIR=cache)
        done = subprocess.run([python, str(HERE / "static_worker.py"), framework, backend, arch, warp, examples], env=env, capture_output=True, text=True)
    rows = {}
    for line in done.stdout.splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        if "error" not in row:
            row |= ptxas_figures(row["file"], arch) if backend == "cuda" else amdgcn_figures(row["file"])
            row |= counts(row["file"])
        rows[row["kernel"]] = row
    if not rows:
        print(done.stderr[-1500:], file=sys.stderr)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", default=None)
    parser.add_argument("--targets", default="cuda:80:32,cuda:90:32,hip:gfx90a:64,hip:gfx942:64,hip:gfx950:64,hip:gfx1100:32,hip:gfx1201:32")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ours_dir, peer_dir = pathlib.Path(folder) / "ours", pathlib.Path(folder) / "peer"
        ours_dir.mkdir(), peer_dir.mkdir()
        for f in EXAMPLES.glob("*.py"):
            text = f.read_text()
            (ours_dir / f.name).write_text(text)
            (peer_dir / f.name).write_text(for_the_peer(text))
        print("| target | kernel | regs | peer | spills | peer | shared | peer | matrix | peer | instructions | peer |")
        print("|---|---|---|---|---|---|---|---|---|---|---|---|")
        for target in args.targets.split(","):
            ours = collect(sys.executable, "tilewright", target, str(ours_dir))
            peer = collect(args.peer, "triton", target, str(peer_dir)) if args.peer else {}
            for name, row in ours.items():
                if "error" in row:
                    print(f"| {target} | {name} | {row['error']} |")
                    continue
                other = peer.get(name, {})
                cells = [f"{row.get(k, '')} | {other.get(k, '')}" for k in ("regs", "spills", "shared", "matrix", "instructions")]
                print(f"| {target} | {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
