"""Compile every configuration for one target with one compiler; print what the code looks like as JSON lines.

    python static_worker.py tilewright|triton BACKEND ARCH WARP_SIZE EXAMPLES_DIR
"""

from __future__ import annotations

import importlib
import json
import pathlib
import sys

from configs import CONFIGS


def main() -> None:
    framework, backend, arch, warp_size, examples = sys.argv[1:]
    sys.path.insert(0, examples)
    triton = importlib.import_module(framework)
    compiler = importlib.import_module(f"{framework}.compiler")
    GPUTarget = importlib.import_module(f"{framework}.backends.compiler").GPUTarget
    target = GPUTarget(backend, int(arch) if arch.isdigit() else arch, int(warp_size))
    out = pathlib.Path(sys.argv[5]).parent
    for config in CONFIGS:
        fn = getattr(importlib.import_module(config.module), config.kernel)
        attrs = {(list(config.signature).index(a),): [["tt.divisibility", 16]] for a in config.aligned}
        constexprs = dict(config.constexprs)
        if backend == "hip" and "PRECISION" in constexprs:
            constexprs["PRECISION"] = "ieee"  # Triton refuses "tf32" on most AMD GPUs; 16-bit operands are the same under both
        src = compiler.ASTSource(fn=fn, signature=dict(config.signature), constexprs=constexprs, attrs=attrs)
        try:
            kernel = triton.compile(src, target=target, options=dict(config.options))
        except Exception as e:  # noqa: BLE001 - one kernel that fails must not hide the others
            print(json.dumps({"kernel": config.name, "error": f"{type(e).__name__}: {str(e)[:300]}"}), flush=True)
            continue
        text = kernel.asm.get("ptx") or kernel.asm.get("amdgcn")
        where = out / f"{framework}-{backend}{arch}-{config.name}.s"
        where.write_text(text)
        print(json.dumps({"kernel": config.name, "shared": getattr(kernel.metadata, "shared", None), "file": str(where)}), flush=True)


main()
