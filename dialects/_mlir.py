"""The only module that imports the MLIR Python bindings.

Everything else says ``from tilewright.dialects._mlir import ir, ext, …``, so the provider of the bindings can change
here alone: the official ``mlir`` wheel is taken once it carries ``dialects.ext``, else the LLVM project's ``torch_mlir``.

Importing this module takes 0.1-0.3 s: keep it off the path of a launch that the disk cache serves.
"""

from __future__ import annotations

try:
    from mlir.dialects import ext as _ext_probe  # noqa: F401

    from mlir import ir, passmanager, rewrite  # isort: skip
    from mlir.dialects import arith, cf, ext, func, llvm, math, memref, scf, vector  # isort: skip
except ImportError:
    from torch_mlir import ir, passmanager, rewrite  # type: ignore[no-redef]
    from torch_mlir.dialects import (  # type: ignore[no-redef]
        arith,
        cf,
        ext,
        func,
        llvm,
        math,
        memref,
        scf,
        vector,
    )

PassManager = passmanager.PassManager

__all__ = [
    "PassManager", "arith", "cf", "ext", "func", "ir", "llvm", "math", "memref", "passmanager", "rewrite", "scf", "vector",
]
