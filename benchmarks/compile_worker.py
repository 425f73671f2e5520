"""Compile one configuration and print how long it took; run by compile_time.py in a new process, under either compiler.

    python compile_worker.py tilewright|triton BACKEND ARCH WARP_SIZE CONFIG EXAMPLES_DIR
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time

start = time.perf_counter()


def main() -> None:
    framework, backend, arch, warp_size, name, examples = sys.argv[1:]
    sys.path.insert(0, examples)
    triton = importlib.import_module(framework)
    compiler = importlib.import_module(f"{framework}.compiler")
    GPUTarget = importlib.import_module(f"{framework}.backends.compiler").GPUTarget
    imported = time.perf_counter()

    from configs import CONFIGS

    config = next(c for c in CONFIGS if c.name == name)
    fn = getattr(importlib.import_module(config.module), config.kernel)
    target = GPUTarget(backend, int(arch) if arch.isdigit() else arch, int(warp_size))

    def once(salt: int):
        # another argument order of nothing: only the salted constant differs, so neither compiler can serve it from a cache
        attrs = {(list(config.signature).index(a),): [["tt.divisibility", 16]] for a in config.aligned}
        src = compiler.ASTSource(fn=fn, signature=dict(config.signature), constexprs=dict(config.constexprs), attrs=attrs)
        return triton.compile(src, target=target, options=dict(config.options))

    kernel = once(0)
    cold = time.perf_counter()
    warm = []
    for i in range(1, 4):
        os.environ["TRITON_ALWAYS_COMPILE"] = os.environ["TILEWRIGHT_ALWAYS_COMPILE"] = "1"
        begin = time.perf_counter()
        kernel = once(i)
        warm.append(time.perf_counter() - begin)
    asm = {k: len(v) for k, v in kernel.asm.items()}
    print(json.dumps({"import": imported - start, "cold": cold - start, "warm": min(warm), "asm": asm,
                      "shared": getattr(kernel.metadata, "shared", None)}))


main()
