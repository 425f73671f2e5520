"""Nsight Compute's few counters that matter, of one candidate of one benchmark kernel on the GPU.

    python benchmarks/profile_kernel.py matmul8192 [--candidate 0] [--framework tilewright] [--sass FILE] [--all]

Each launch of the case is profiled once, after a run that compiles it. The counters come from ncu's sections, whose names stay the same
between versions, and from those of the chip's tensor-pipe, bank-conflict and stall counters that ``ncu --query-metrics`` knows.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

SECTIONS = ("SpeedOfLight", "LaunchStats", "Occupancy", "SchedulerStats", "WarpStateStats", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis")
SHOWN = ("Duration", "SM Frequency", "Compute (SM) Throughput", "Memory Throughput", "DRAM Throughput", "L2 Cache Throughput", "L1/TEX Cache Throughput",
         "L2 Hit Rate", "Mem Busy", "SM Busy", "Issue Slots Busy", "Executed Ipc Active", "No Eligible", "Eligible Warps Per Scheduler",
         "Warp Cycles Per Issued Instruction", "Registers Per Thread", "Dynamic Shared Memory Per Block", "Theoretical Occupancy", "Achieved Occupancy",
         "Waves Per SM", "Grid Size", "Block Size")
# pattern of a base metric → the suffix that makes it a number
EXTRA = ((r"sm__(inst_executed_)?pipe_tensor\w*", ".avg.pct_of_peak_sustained_active"), (r"l1tex__data_bank_conflicts_pipe_lsu_mem_shared\w*", ".sum"),
         (r"smsp__average_warps_issue_stalled_\w+_per_issue_active", ".ratio"))
STALLS = 6


def extra_metrics(listing: str) -> list[str]:
    """The metrics of EXTRA that are in ``ncu --query-metrics``' output."""
    names = [line.split()[0] for line in listing.splitlines() if re.match(r"[a-z0-9]+__\w+\s", line)]
    return [name + suffix for pattern, suffix in EXTRA for name in names if re.fullmatch(pattern, name)]


def parse(text: str) -> list[tuple[str, dict[str, str]]]:
    """(kernel, {metric: "value unit"}) of each profiled launch, from ``ncu --csv`` output with other lines in between."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        raise SystemExit(f"ncu printed no table:\n{text[-3000:]}")
    launches: dict[str, tuple[str, dict[str, str]]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(line for line in lines[start:] if line.startswith('"')))):
        if row.get("Metric Name"):
            _, found = launches.setdefault(row["ID"], (row["Kernel Name"], {}))
            found[row["Metric Name"]] = f"{row['Metric Value']} {row['Metric Unit']}".strip()
    return list(launches.values())


def report(launches: list[tuple[str, dict[str, str]]], everything: bool) -> str:
    out = []
    for kernel, found in launches:
        out.append(f"{kernel}")
        names = [n for n in found if everything or n in SHOWN or n.startswith(("sm__", "l1tex__"))]
        out += [f"  {n:58} {found[n]}" for n in sorted(names, key=lambda n: (n not in SHOWN, SHOWN.index(n) if n in SHOWN else 0, n))]
        stalls = sorted(((float(v.split()[0].replace(",", "")), n) for n, v in found.items() if "issue_stalled" in n), reverse=True)
        out += [f"  stalled: {re.sub('smsp__average_warps_issue_stalled_|_per_issue_active.ratio', '', n):49} {v:.2f} cycles an instruction"
                for v, n in stalls[:STALLS]]
    return "\n".join(out)


def run_case(args: argparse.Namespace) -> None:
    """What ncu watches: a run that compiles, then one between the profiler's start and stop."""
    import torch
    from cases import all_cases
    from checking import array, prepared
    from frameworks import Framework

    case = all_cases()[args.case]
    b = case.buffers(array)
    case.prepare(b)
    run, kernels = prepared(case, b, case.candidates[args.candidate], Framework(args.framework))
    run()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    run()
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()
    if args.sass:
        Path(args.sass).write_bytes(b"\n".join(k.asm["cubin"] for k in kernels[-1:]))
        disassembler = shutil.which("nvdisasm")
        if disassembler:
            text = subprocess.run([disassembler, "-c", args.sass], capture_output=True, text=True).stdout
            Path(args.sass).write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", help="a name of gpu.py --list")
    parser.add_argument("--candidate", type=int, default=0)
    parser.add_argument("--framework", default="tilewright", choices=("tilewright", "triton"))
    parser.add_argument("--sass", default="", help="write the last launch's machine code, disassembled, here")
    parser.add_argument("--all", action="store_true", help="every counter of the sections")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run_case(args)
        return
    ncu = shutil.which("ncu")
    if ncu is None:
        raise SystemExit("no ncu on PATH: it is part of the CUDA toolkit")
    listing = subprocess.run([ncu, "--query-metrics"], capture_output=True, text=True).stdout
    command = [ncu, "--csv", "--page", "details", "--clock-control", "none", "--profile-from-start", "off", "--target-processes", "all"]
    for section in SECTIONS:
        command += ["--section", section]
    if metrics := extra_metrics(listing):
        command += ["--metrics", ",".join(metrics)]
    done = subprocess.run([*command, sys.executable, __file__, *sys.argv[1:], "--child"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"ncu failed:\n{(done.stdout + done.stderr)[-3000:]}")
    print(report(parse(done.stdout), args.all))


if __name__ == "__main__":
    main()
