"""Registers, spills and serialised WGMMAs of every benchmark configuration on sm_90a, from one ``ptxas -v``, beside Triton's. No GPU.

    python benchmarks/static_figures.py --remake PYTHON_WITH_TRITON [--kernels matmul1000,…]   # makes triton_static.json anew
    python benchmarks/static_figures.py [--kernels matmul8192,…]                               # prints ours beside it, as Markdown

tests/benchmarks/test_static.py compares with the same file.
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
from typing import Any

from cases import all_cases
from compile_ahead import first_line
from frameworks import Framework, compile_for, stand_in, warmup

HERE = pathlib.Path(__file__).parent
PEER = HERE / "triton_static.json"
ARCH = "sm_90a"
REGISTERS, SHARED = 65536, 232448  # of a block (CUDA C++ Programming Guide, table of technical specifications, 9.0)


def identity(launches: list[Any]) -> str:
    """What the code depends on: two cases of other sizes can have the same kernel."""

    def one(value: Any) -> str:
        if isinstance(value, int):
            return "one" if value == 1 else f"int{64 if value > 2**31 else 32}:{value % 16 == 0}"
        if hasattr(value, "block_shape"):
            return f"descriptor {value.base.dtype} {value.block_shape}"
        return str(getattr(value, "dtype", type(value)))

    return repr([(l.file, l.kernel, [one(a) for a in l.args], sorted((k, str(v)) for k, v in l.options.items())) for l in launches])


class _Names:
    """A framework, as far as ``launches`` asks, with no compiler."""

    class tl:
        float16, bfloat16 = "fp16", "bf16"

    class _Descriptor:
        def __init__(self, base: Any, block: Any):
            self.base, self.block_shape = base, list(block)

    def descriptor(self, array: Any, shape: Any, block: Any) -> Any:
        return self._Descriptor(array, block)


def configurations() -> dict[str, tuple[str, int]]:
    """"matmul8192 0" → (case, candidate), each distinct code once."""
    found: dict[str, tuple[str, int]] = {}
    seen: set[str] = set()
    for case in all_cases().values():
        b = case.buffers(stand_in)
        for i, candidate in enumerate(case.candidates):
            key = identity(case.launches(b, candidate, _Names()))
            if key not in seen:
                seen.add(key)
                found[f"{case.name} {i}"] = (case.name, i)
    return found


def figures(ptx: str, assembler: str) -> dict[str, Any]:
    """``regs`` a thread, ``spills`` (bytes stored and loaded), ``serialised``: ptxas' words (C7510 to C7515), or "". Of any compiler's PTX."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as f:
        f.write(ptx)
        f.flush()
        done = subprocess.run([assembler, "-v", f"-arch={ARCH}", f.name, "-o", os.devnull], capture_output=True, text=True)
    log = done.stderr + done.stdout
    used = re.search(r"Used (\d+) registers", log)
    if done.returncode or used is None:
        raise RuntimeError(f"ptxas: {log.splitlines()[0] if log else 'no output'}")
    serialised = next((line for line in log.splitlines() if "wgmma" in line and "serialized" in line), "")
    return {"regs": int(used.group(1)), "spills": sum(int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", log)),
            "serialised": serialised}


def compiled(framework: Framework, case_name: str, index: int) -> list[tuple[str, Any]]:
    """(kernel's name, what was compiled) of each launch of a candidate."""
    case = all_cases()[case_name]
    launches = case.launches(case.buffers(stand_in), case.candidates[index], framework)
    return [(launch.kernel, kernel) for launch, kernel in zip(launches, warmup(framework, launches))]


def ours(framework: Framework, label: str) -> list[dict[str, Any]]:
    """The figures of one configuration under Tilewright, which keeps what its own ``ptxas -v`` said."""
    rows = []
    for name, kernel in compiled(framework, *configurations()[label]):
        m = kernel.metadata
        rows.append({"kernel": name, "shared": m.shared, "warps": getattr(m, "total_warps", None) or m.num_warps, "regs": m.registers,
                     "spills": m.spills, "serialised": getattr(m, "wgmma_serialized", "")})
    return rows


def our_ptxas() -> str:
    from tilewright.targets.nvidia.emit import ptxas

    path = ptxas()
    if path is None:
        raise SystemExit("no ptxas: pip install nvidia-cuda-nvcc")
    return str(path)


def chosen(kernels: list[str]) -> dict[str, tuple[str, int]]:
    return {label: place for label, place in configurations().items() if not kernels or place[0] in kernels}


def emit(kernels: list[str]) -> None:
    """Run by the peer's Python: every configuration as a JSON line."""
    framework = Framework("triton")
    compile_for(framework, 90)
    for label, (case, index) in chosen(kernels).items():
        try:
            rows = [{"kernel": name, "ptx": k.asm["ptx"], "shared": k.metadata.shared, "warps": k.metadata.num_warps}
                    for name, k in compiled(framework, case, index)]
        except Exception as error:  # noqa: BLE001 - noted: nothing is asked of Tilewright there
            print(json.dumps({"label": label, "error": first_line(error)}), flush=True)
            continue
        print(json.dumps({"label": label, "rows": rows}), flush=True)


def remake(peer: str, kernels: list[str]) -> None:
    from tilewright.targets.nvidia.emit import ptxas_version

    assembler = our_ptxas()
    process = subprocess.Popen([peer, __file__, "--emit", "--kernels", ",".join(kernels)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found: dict[str, Any] = {}
    assert process.stdout is not None
    for line in process.stdout:
        if not line.startswith('{"label"'):
            continue
        item = json.loads(line)
        if "error" in item:
            found[item["label"]] = item["error"]
        else:
            found[item["label"]] = [{"kernel": r["kernel"], "shared": r["shared"], "warps": r["warps"], **figures(r["ptx"], assembler)} for r in item["rows"]]
        print(item["label"], found[item["label"]], flush=True)
    if process.wait() or not found:
        raise SystemExit("the peer's process failed")
    version = subprocess.run([peer, "-c", "import triton; print(triton.__version__)"], capture_output=True, text=True).stdout.strip()
    known = json.loads(PEER.read_text())["configurations"] if kernels else {}
    known |= found
    lines = ",\n".join(f"  {json.dumps(label)}: {json.dumps(known[label])}" for label in configurations())
    PEER.write_text(f'{{"triton": "{version}", "ptxas": "{ptxas_version()}", "arch": "{ARCH}", "configurations": {{\n{lines}\n}}}}\n')


def show(kernels: list[str]) -> None:
    peer = json.loads(PEER.read_text())["configurations"]
    framework = Framework("tilewright")
    compile_for(framework, 90)
    print("| configuration | kernel | regs | Triton | spills | Triton | shared | Triton | warps | Triton | serialised |\n" + "|---" * 11 + "|")
    for label in chosen(kernels):
        try:
            rows = ours(framework, label)
        except Exception as error:  # noqa: BLE001 - one configuration that fails must not hide the others
            print(f"| {label} | {first_line(error)} |", flush=True)
            continue
        for i, row in enumerate(rows):
            other = peer[label][i] if isinstance(peer.get(label), list) else {}
            cells = [f"{row[k]} | {other.get(k, '')}" for k in ("regs", "spills", "shared", "warps")]
            print(f"| {label} | {row['kernel']} | {' | '.join(cells)} | {'yes' if row['serialised'] else ''} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remake", metavar="PYTHON")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--emit", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    kernels = args.kernels.split(",") if args.kernels else []
    if args.emit:
        emit(kernels)
    elif args.remake:
        remake(args.remake, kernels)
    else:
        show(kernels)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
