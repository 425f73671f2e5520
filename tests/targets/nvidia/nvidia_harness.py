"""Build one LLVM-dialect kernel with the builder and the NVIDIA hooks; run it in the simulator; compile it to a cubin."""

import numpy as np

from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.dialects.lowering.builder import LLVMBuilder
from tilewright.dialects.lowering.translate import translate_to_llvm_ir
from tilewright.targets.nvidia.emit import assemble, emit_ptx
from tilewright.targets.nvidia.lower_hooks import NvidiaHooks
from tilewright.targets.nvidia.simulate import simulate

HEADER = "llvm.mlir.global external @global_smem() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>"


class Kernel:
    """``body(b, hooks, arguments)`` builds the kernel; ``types`` are argument types as MLIR text."""

    def __init__(self, types, body, num_warps=1, sm=80, shared=0):
        self.num_warps, self.shared, self.sm = num_warps, shared, sm
        with mlir_context():
            args = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
            self.module = ir.Module.parse(f"module {{ {HEADER}\n llvm.func @k({args}) attributes {{nvvm.kernel}} {{ llvm.return }} }}")
            func = self.module.body.operations[1].operation
            func.regions[0].blocks[0].operations[0].operation.erase()
            b = LLVMBuilder(func)
            hooks = NvidiaHooks(sm)
            hooks.declare_kernel(b, func, num_warps)
            body(b, hooks, list(func.regions[0].blocks[0].arguments))
            b.ret()
            assert self.module.operation.verify()
            self.llvm_ir = translate_to_llvm_ir(self.module)

    def run(self, *args, grid=(1,), **checks):
        with mlir_context():
            simulate(self.module, "k", self.num_warps, self.shared, grid, args, **checks)

    def ptx(self):
        return emit_ptx(self.llvm_ir, f"sm_{self.sm}" + ("a" if self.sm == 90 else ""))

    def cubin(self):
        """(bytes, figures); fails where ptxas does not take the PTX."""
        return assemble(self.ptx(), f"sm_{self.sm}")


def elementwise(types, body, num_warps=1, sm=80):
    """A kernel whose pointer arguments are advanced to this thread's element: ``body(b, hooks, thread, arguments)``."""
    return Kernel(types, lambda b, h, args: body(b, h, h.thread_id(b), args), num_warps, sm)


def random(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
