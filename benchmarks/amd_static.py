"""The kernels' AMD code beside Triton's, compiled offline: loop instructions by kind, registers, occupancy, spills, modelled cycles. No GPU.

    python benchmarks/amd_static.py --remake PYTHON_WITH_TRITON [--archs gfx942,…] [--kernels matmul,…]   # makes triton_amd.json anew
    python benchmarks/amd_static.py [--archs …] [--kernels …]                 # prints ours beside it, as Markdown
    python benchmarks/amd_static.py --write                                   # … into docs/performance.md
    python benchmarks/amd_static.py --keep FOLDER …                           # keeps the assembly texts there

A loop's figures are of one step: a block of k of a matmul, a block of keys (or queries) of attention, a row or a block of a row elsewhere, however
far the compiler unrolls: the loop's body does as many as its matrix instructions and its loads suffice for. Kernels without a loop count whole. ``amd_cycles.py`` has the model. tests/benchmarks/test_amd_static.py compares with the same file.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import amd_cycles
import configs
from frameworks import Framework

HERE = pathlib.Path(__file__).parent
PEER = HERE / "triton_amd.json"
PERFORMANCE = HERE.parent / "docs" / "performance.md"
BEGIN, END = "<!-- amd_static.py begins -->\n", "<!-- amd_static.py ends -->\n"
ARCHS = {"gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1201": 32}
FP8 = {"gfx942": "fp8e4b8", "gfx950": "fp8e4nv", "gfx1201": "fp8e4nv"}  # 3 bits of mantissa, in the architecture's own encoding


@dataclass(frozen=True)
class Kernel:
    """``file``: as ``Framework.kernel`` has it. ``loads``: bytes that a work-group loads in a step of each loop, in order; ``flops``: what it multiplies
    in one. Of several loops with products the first counts (those that mask come after)."""

    name: str
    file: str
    config: configs.Config
    flops: int = 0
    loads: tuple[int, ...] = ()
    archs: tuple[str, ...] = tuple(ARCHS)

    @property
    def warps(self) -> int:
        return self.config.options["num_warps"]


def _matmul(name: str, dtype: str, m: int, n: int, k: int, warps: int, stages: int) -> Kernel:
    size = 1 if dtype == "fp8" else 2
    return Kernel(name, "examples/matmul", configs.matmul(dtype, m, n, k, warps, stages), 2 * m * n * k, (size * k * (m + n),))


def _attention(name: str, m: int, n: int, dim: int, causal: bool, warps: int, stages: int) -> Kernel:
    return Kernel(name, "examples/attention", configs.attention("bf16", m, n, dim, causal, warps, stages),
                  4 * m * n * dim, (4 * n * dim,))


def _backward(which: str, m: int, n: int, dim: int, warps: int, stages: int) -> Kernel:
    pointers = {"keys": ("dk_ptr", "dv_ptr"), "queries": ("dq_ptr",)}[which]
    signature = {f"{t}_ptr": "*bf16" for t in ("q", "k", "v", "do")} | dict.fromkeys(pointers, "*bf16") | {"lse_ptr": "*fp32", "delta_ptr": "*fp32"}
    aligned = (*signature, "N")
    signature |= {"N": "i32", "scale": "fp32", "plain_scale": "fp32", **dict.fromkeys(("D", "BLOCK_M", "BLOCK_N", "CAUSAL"), "constexpr")}
    constexprs = {"D": dim, "BLOCK_M": m, "BLOCK_N": n, "CAUSAL": False}
    config = configs.Config(which, "attention", f"backward_{which}", signature, constexprs, aligned, {"num_warps": warps, "num_stages": stages})
    dots, other = {"keys": (4, m), "queries": (3, n)}[which]
    return Kernel(f"backward_{which}_d{dim}", "attention", config, 2 * dots * m * n * dim, (4 * other * dim,))


def _fp8() -> Kernel:
    kernel = _matmul("matmul_fp8", "fp8", 128, 128, 64, 4, 2)
    types = {**kernel.config.signature, "b_ptr": "*fp16", "y_ptr": "*fp16"}
    return replace(kernel, config=replace(kernel.config, signature=types), archs=tuple(FP8))


_FILES = {"add": "examples/vector_add", "softmax": "examples/softmax", "layer_norm": "examples/layer_norm"}
_ROW = 4096 * 2
_LOADS = {"add": (), "softmax": (_ROW,), "layer_norm": (_ROW, _ROW, 3 * _ROW)}
KERNELS = {k.name: k for k in (
    *(Kernel(c.name, _FILES[c.name], c, loads=_LOADS[c.name]) for c in configs.CONFIGS if c.name in _FILES),
    _matmul("matmul", "fp16", 128, 128, 64, 4, 3),
    _attention("attention", 128, 64, 64, False, 4, 3),
    _attention("attention_causal", 128, 64, 64, True, 4, 3),
    _matmul("matmul_bf16", "bf16", 128, 128, 64, 4, 2),
    _fp8(),
    _matmul("matmul_64x64x32", "fp16", 64, 64, 32, 4, 2),
    _matmul("matmul_128x128x32", "fp16", 128, 128, 32, 4, 2),
    _matmul("matmul_128x256x64", "fp16", 128, 256, 64, 8, 2),
    _matmul("matmul_256x128x64", "fp16", 256, 128, 64, 8, 2),
    _attention("attention_d128", 128, 64, 128, False, 8, 2),
    _backward("keys", 32, 64, 64, 4, 2),
    _backward("queries", 64, 32, 64, 4, 2),
)}
TUTORIAL = tuple(KERNELS)[:6]


# ------------------------------------------------------------------------------------------------------------- compiling
def compiled(framework: Framework, arch: str, kernel: Kernel) -> dict[str, Any]:
    """"text" and "shared" (bytes of LDS). Under either compiler."""
    compiler = importlib.import_module(f"{framework.compiler}.compiler")
    target = importlib.import_module(f"{framework.compiler}.backends.compiler").GPUTarget("hip", arch, ARCHS[arch])
    config, places = kernel.config, list(kernel.config.signature)
    constexprs = {**config.constexprs, **({"PRECISION": "ieee"} if "PRECISION" in config.constexprs else {})}  # Triton refuses "tf32" on most
    source = compiler.ASTSource(fn=framework.kernel(kernel.file, config.kernel), constexprs=constexprs,
                                signature={a: FP8.get(arch, "").join(t.split("fp8")) for a, t in config.signature.items()},
                                attrs={(places.index(a),): [["tt.divisibility", 16]] for a in config.aligned})
    made = framework.triton.compile(source, target=target, options=dict(config.options))
    return {"text": made.asm["amdgcn"], "shared": made.metadata.shared}


def figures(kernel: Kernel, text: str, shared: int) -> dict[str, Any]:
    """Of any compiler's text: "loop" (instruction → how many a step and wave), "unroll" (steps of the loop's body), resources."""
    program = amd_cycles.parse(text)
    row: dict[str, Any] = {"instructions": len(program.code), "matrix": sum(amd_cycles.kind(c) == "matrix" for c in program.code),
                           "shared": shared + program.resources["static_lds"], **program.resources}
    loop: Counter[str] = Counter()
    row["unroll"] = []
    for body, steps in _steps(kernel, program):
        row["unroll"].append(steps)
        for name, count in Counter(body).items():
            loop[name] += count / steps  # type: ignore[assignment]
    if not row["unroll"]:
        loop = Counter(program.code)
    return row | {"loop": dict(sorted(loop.items()))}


def _steps(kernel: Kernel, program: amd_cycles.Program) -> list[tuple[tuple[str, ...], int]]:
    """The loops that count, and how many steps the body of each does."""
    def loaded(body: tuple[str, ...]) -> int:
        return sum(amd_cycles.bytes_moved(c) for c in body if amd_cycles.kind(c) == "global" and "load" in c)

    def multiplied(body: tuple[str, ...]) -> int:
        return sum(amd_cycles.flops(c) for c in body if amd_cycles.kind(c) == "matrix")

    if not kernel.loads:
        return []
    bodies = [b for b in program.loops if (multiplied(b) if kernel.flops else loaded(b))]
    if kernel.flops:
        bodies = bodies[:1]
    if len(bodies) != len(kernel.loads):
        raise ValueError(f"{kernel.name} has {len(bodies)} loops of its kind, not {len(kernel.loads)}")
    found = []
    for body, work in zip(bodies, kernel.loads):
        share = loaded(body) * program.lanes * kernel.warps / work
        if kernel.flops:
            share = min(share, multiplied(body) * kernel.warps / kernel.flops)
        steps = int(share + 1e-9)
        if not steps:
            raise ValueError(f"{kernel.name}: a loop's body does {share:.2f} of a step")
        found.append((body, steps))
    return found


def measured(kernel: Kernel, text: str, shared: int) -> dict[str, float]:
    """What the simulator saw (see amd_memory.measure)."""
    import amd_memory

    return {name: round(value, 3) for name, value in amd_memory.measure(kernel, text, shared).items()}


def modelled(arch: str, kernel: Kernel, row: Mapping[str, Any], conflicts: bool) -> amd_cycles.Cost:
    """``conflicts``: with bank conflicts as they were measured."""
    memory = row["memory"] if conflicts else {"lds": 0, "lds_least": 0}
    return amd_cycles.cost(arch, row["loop"], kernel.warps, memory["lds"] / memory["lds_least"] if memory["lds_least"] else 1.0)


def chosen(archs: str, kernels: str) -> list[tuple[str, Kernel]]:
    return [(a, k) for a in (archs.split(",") if archs else ARCHS) for n, k in KERNELS.items()
            if a in k.archs and (not kernels or n in kernels.split(","))]


# --------------------------------------------------------------------------------------------------------------- the peer
def emit(pairs: list[tuple[str, Kernel]]) -> None:
    """Run by the peer's Python: each kernel's text as a JSON line."""
    framework = Framework("triton")
    for arch, kernel in pairs:
        try:
            made = compiled(framework, arch, kernel)
        except Exception as error:  # noqa: BLE001 - noted: nothing is asked of Tilewright there
            made = {"error": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200] if str(error).strip() else ''}"}
        print(json.dumps({"arch": arch, "kernel": kernel.name, **made}), flush=True)


def remake(peer: str, args: argparse.Namespace) -> None:
    partial = bool(args.archs or args.kernels)
    known = json.loads(PEER.read_text())["kernels"] if partial and PEER.exists() else {}
    command = [peer, __file__, "--emit", "--archs", args.archs, "--kernels", args.kernels]
    with tempfile.TemporaryDirectory() as cache:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "TRITON_CACHE_DIR": cache})
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('{"arch"'):
                item = json.loads(line)
                label = f"{item['arch']} {item['kernel']}"
                if "error" in item:
                    known[label] = item["error"]
                else:
                    kernel = KERNELS[item["kernel"]]
                    known[label] = figures(kernel, item["text"], item["shared"])
                    try:
                        known[label]["memory"] = measured(kernel, item["text"], item["shared"])
                    except Exception as error:  # noqa: BLE001 - Triton lets halves of a work-group meet at different barriers; the simulator refuses that
                        print(f"{label} was not simulated: {type(error).__name__}: {str(error)[:200]}", flush=True)
                    _keep(args.keep, "triton", label, item["text"])
                print(label, known[label] if "error" in item else {k: v for k, v in known[label].items() if k != "loop"}, flush=True)
        if process.wait():
            raise SystemExit("the peer's process failed")
    version = subprocess.run([peer, "-c", "import triton; print(triton.__version__)"], capture_output=True, text=True).stdout.strip()
    lines = ",\n".join(f"  {json.dumps(f'{a} {k.name}')}: {json.dumps(known[f'{a} {k.name}'])}" for a, k in chosen("", "") if f"{a} {k.name}" in known)
    PEER.write_text(f'{{"triton": "{version}", "kernels": {{\n{lines}\n}}}}\n')


def _keep(folder: str | None, who: str, label: str, text: str) -> None:
    if folder:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        (pathlib.Path(folder) / f"{label.replace(' ', '-')}.{who}.s").write_text(text)


# -------------------------------------------------------------------------------------------------------------- the table
@dataclass
class Comparison:
    """Ours and Triton's (None: it compiles nothing there) of one kernel. Bank conflicts count where both were measured."""

    arch: str
    kernel: Kernel
    ours: Mapping[str, Any]
    peer: Mapping[str, Any] | None
    ratios: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self.ratios = {}
        if self.peer:
            for name, value in (("loop", lambda r: sum(r["loop"].values())), ("instructions", lambda r: r["instructions"]),
                                ("cycles", lambda r: self.cost(r).cycles), ("serial", lambda r: self.cost(r).serial)):
                self.ratios[name] = value(self.ours) / value(self.peer)

    def cost(self, row: Mapping[str, Any]) -> amd_cycles.Cost:
        return modelled(self.arch, self.kernel, row, all("memory" in r for r in (self.ours, self.peer) if r))


def compare(framework: Framework, arch: str, kernel: Kernel, peers: Mapping[str, Any], keep: str | None = None, measure: bool = False) -> Comparison:
    made = compiled(framework, arch, kernel)
    label = f"{arch} {kernel.name}"
    _keep(keep, "ours", label, made["text"])
    other = peers.get(label)
    ours = figures(kernel, made["text"], made["shared"])
    if measure:
        ours["memory"] = measured(kernel, made["text"], made["shared"])
    return Comparison(arch, kernel, ours, other if isinstance(other, dict) else None)


COLUMNS = ("arch", "kernel", "instructions", "loop", "matrix", "valu", "salu", "lds", "global", "other", "LDS cycles", "lines", "LDS bytes", "VGPRs", "waves", "spills",
           "cycles", "limit", "serial")


def cells(c: Comparison) -> list[str]:
    """"ours/Triton's" for each figure."""
    sides = [s for s in (c.ours, c.peer) if s]
    kinds = [amd_cycles.by_kind(s["loop"]) for s in sides]
    costs = [c.cost(s) for s in sides]
    memory = [s.get("memory") for s in sides]  # of Triton's none where the simulator refuses its code
    conflicts = [f"{m['lds']:.0f} ({m['lds'] - m['lds_least']:.0f})" if m else "?" for m in memory]
    lines = [f"{m['lines']:.0f}" if m else "?" for m in memory]

    def both(values: Callable[[int], Any]) -> str:
        return " / ".join(f"{v:.0f}" if isinstance(v := values(i), float) else str(v) for i in range(len(sides)))

    return [c.arch, c.kernel.name, both(lambda i: sides[i]["instructions"]), both(lambda i: float(sum(sides[i]["loop"].values()))),
            *(both(lambda i, k=k: kinds[i][k]) for k in ("matrix", "valu", "salu", "lds", "global")),  # type: ignore[misc]
            both(lambda i: kinds[i]["wait"] + kinds[i]["smem"] + kinds[i]["scratch"]),
            both(lambda i: conflicts[i]), both(lambda i: lines[i]), both(lambda i: sides[i]["shared"]), both(lambda i: sides[i]["vgprs"]),
            both(lambda i: amd_cycles.occupancy(c.arch, sides[i]["vgprs"], sides[i]["shared"], c.kernel.warps)),
            both(lambda i: sides[i]["spills"]), both(lambda i: costs[i].cycles), both(lambda i: costs[i].limit), both(lambda i: costs[i].serial)]


def geometric(values: list[float]) -> float:
    product = 1.0
    for v in values:
        product *= v
    return product ** (1 / len(values)) if values else 1.0


def table(args: argparse.Namespace) -> list[str]:
    peers = json.loads(PEER.read_text())["kernels"] if PEER.exists() else {}
    framework = Framework("tilewright")
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    ratios: dict[str, list[float]] = {}
    print("\n".join(lines), flush=True)
    for arch, kernel in chosen(args.archs, args.kernels):
        try:
            c = compare(framework, arch, kernel, peers, args.keep, not args.quick)
        except Exception as error:  # noqa: BLE001 - one kernel that fails must not hide the others
            lines.append(f"| {arch} | {kernel.name} | {type(error).__name__}: {str(error).splitlines()[0][:200]} |")
        else:
            lines.append(f"| {' | '.join(cells(c))} |")
            for name, value in c.ratios.items():
                ratios.setdefault(name, []).append(value)
        print(lines[-1], flush=True)
    words = {"loop": "loop instructions", "instructions": "all instructions", "cycles": "cycles", "serial": "cycles, nothing overlapping"}
    summary = "; ".join(f"{words[n]} {geometric(v):.2f} (least {min(v):.2f}, most {max(v):.2f})" for n, v in ratios.items())
    lines += ["", f"Ratios to Triton, geometric means: {summary}."]
    print("\n".join(lines[-2:]))
    return lines


def write(lines: list[str]) -> None:
    text = PERFORMANCE.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    from importlib.metadata import version

    peer = json.loads(PEER.read_text())["triton"] if PEER.exists() else ""
    head = f"{datetime.date.today()}, `python benchmarks/amd_static.py`, LLVM of llvmlite {version('llvmlite')}; each cell ours / Triton {peer}'s.\n\n"
    PERFORMANCE.write_text(before + BEGIN + head + "\n".join(lines) + "\n" + END + after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remake", metavar="PYTHON")
    parser.add_argument("--archs", default="")
    parser.add_argument("--kernels", default="")
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--quick", action="store_true", help="leave the simulator out")
    parser.add_argument("--emit", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.emit:
        emit(chosen(args.archs, args.kernels))
    elif args.remake:
        remake(args.remake, args)
    else:
        lines = table(args)
        if args.write:
            write(lines)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
