"""gfx950's code of a microscaled matmul, under one compiler: instructions of one step of the loop by kind, and resources. No GPU.

    python benchmarks/amd_scaled.py tilewright            (or, with a Python that has it, triton)

Prints Markdown rows; docs/performance.md has both compilers' side by side.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import amd_cycles
import configs
from amd_static import Kernel, compiled
from frameworks import Framework

# name → formats, tile (M, N, K), waves, how the scales lie: "" in rows of K // 32, "stride" in rows of an argument known to be a multiple of 16, "shuffled"
CASES: dict[str, tuple[str, str, tuple[int, int, int], int, str]] = {
    "mxfp4": ("e2m1", "e2m1", (128, 128, 256), 4, ""), "mxfp4, rows of scales by a stride": ("e2m1", "e2m1", (128, 128, 256), 4, "stride"),
    "mxfp4, rows by a stride, 128×128×512": ("e2m1", "e2m1", (128, 128, 512), 4, "stride"),
    "mxfp4, shuffled scales": ("e2m1", "e2m1", (128, 128, 256), 4, "shuffled"),
    "mxfp4, shuffled scales, 256×256×256": ("e2m1", "e2m1", (256, 256, 256), 8, "shuffled"), "mxfp8": ("e4m3", "e4m3", (128, 128, 128), 4, ""),
    "mxfp8, rows by a stride, 128×128×256": ("e4m3", "e4m3", (128, 128, 256), 4, "stride"), "mxfp8 × mxfp4": ("e4m3", "e2m1", (128, 128, 128), 4, ""),
    "mxfp8 × mxfp4, rows by a stride, 128×128×256": ("e4m3", "e2m1", (128, 128, 256), 4, "stride"),
}
_POINTERS = {"e2m1": "*u8", "e4m3": "*fp8"}


def kernel_of(name: str) -> Kernel:
    x, w, (m, n, k), warps, scales = CASES[name]
    signature = {"x_ptr": _POINTERS[x], "x_scale_ptr": "*u8", "w_ptr": _POINTERS[w], "w_scale_ptr": "*u8", "y_ptr": "*fp32", **dict.fromkeys("MNKG", "i32")}
    constexprs: dict[str, Any] = {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "X": x, "W": w, "SHUFFLED": scales == "shuffled", "STRIDE": scales == "stride"}
    options = {"num_warps": warps, "num_stages": 2, "matrix_instr_nonkdim": 16}
    return Kernel(name, "scaled", configs.Config(name, "scaled", "matmul_scaled", signature | dict.fromkeys(constexprs, "constexpr"), constexprs, tuple(signature), options))


def main() -> None:
    framework = Framework(sys.argv[1])
    for name in CASES:
        made = compiled(framework, "gfx950", kernel_of(name))
        program = amd_cycles.parse(made["text"])
        loop = next(body for body in program.loops if any(amd_cycles.kind(c) == "matrix" for c in body))
        kinds = Counter(map(amd_cycles.kind, loop))
        _, _, (m, n, k), warps, _ = CASES[name]
        steps = kinds["matrix"] * warps // (m // 16 * (n // 16) * (k // 128))  # that the loop's body does
        counts = [len(program.code), *(c // steps for c in (len(loop), *(kinds[kind] for kind in ("matrix", "valu", "salu", "lds", "global", "wait"))))]
        print("|", " | ".join(map(str, (name, *counts, program.resources["vgprs"], program.resources["spills"], made["shared"]))), "|")


if __name__ == "__main__":
    main()
