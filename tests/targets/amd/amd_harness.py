"""Build one LLVM-dialect kernel with the builder and the AMD hooks; run it in the simulator; compile it to assembly."""

import numpy as np

from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.dialects.lowering.builder import LLVMBuilder
from tilewright.dialects.lowering.translate import translate_to_llvm_ir
from tilewright.dialects.matrix_ops import OperandBases
from tilewright.targets.amd.emit import emit_amdgcn, optimise
from tilewright.targets.amd.lower_hooks import AmdHooks
from tilewright.targets.amd.options import AmdOptions
from tilewright.targets.amd.simulate_intrinsics import AmdExecutor

HEADER = "llvm.mlir.global external @global_smem() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>"


class Kernel:
    """``body(b, hooks, arguments)`` builds the kernel; ``types`` are argument types as MLIR text."""

    def __init__(self, arch, types, body, num_warps=1, shared=0, **options):
        self.arch, self.num_warps, self.shared = arch, num_warps, shared
        with mlir_context():
            args = ", ".join(f"%a{i}: {t}" for i, t in enumerate(types))
            self.module = ir.Module.parse(f"module {{ {HEADER}\n llvm.func @k({args}) {{ llvm.return }} }}")
            func = self.module.body.operations[1].operation
            func.regions[0].blocks[0].operations[0].operation.erase()
            b = LLVMBuilder(func, self.module.operation)
            hooks = AmdHooks(arch, AmdOptions(num_warps=num_warps, **options))
            hooks.declare_kernel(b, func, num_warps)
            body(b, hooks, list(func.regions[0].blocks[0].arguments))
            b.ret()
            assert self.module.operation.verify()
            self.llvm_ir = translate_to_llvm_ir(self.module)

    def run(self, *args, grid=(1,), **checks):
        with mlir_context():
            executor = AmdExecutor(self.module, "k", self.arch, self.num_warps, self.shared, **checks)
        executor.run(grid, args)

    def assembly(self):
        return emit_amdgcn(optimise(self.llvm_ir, self.arch), self.arch)


def coordinates(bases: OperandBases) -> np.ndarray:
    """(lanes, registers, 2): the element that each register of each lane holds, by the row's bases."""
    out = np.zeros((1 << len(bases.lane), 1 << len(bases.register), 2), int)
    for lane in range(out.shape[0]):
        for register in range(out.shape[1]):
            for index, vectors in ((lane, bases.lane), (register, bases.register)):
                for bit, vector in enumerate(vectors):
                    if index >> bit & 1:
                        out[lane, register] ^= np.array(vector)
    return out
