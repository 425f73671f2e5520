"""A Driver without a device: kernels run in the SIMT executor, on host memory (``TILEWRIGHT_TARGET=amd:gfx942:sim``).

It executes the kernel's LLVM dialect, not its code object (see ``simulate_intrinsics``): a way to test lowering, not to test code objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import ArgumentError
from tilewright.dialects.pipeline import PassContext
from tilewright.dialects.simt.driver import SimulatedDriver, SimulatedKernel
from tilewright.targets.amd.capabilities import capabilities
from tilewright.targets.amd.options import AmdOptions


class AmdSimulatedDriver(SimulatedDriver):
    """targets.protocol.Driver over the SIMT executor. Pointers are addresses in this process."""

    def load(self, asm: Mapping[str, Any], metadata: Mapping[str, Any], device: int = 0) -> SimulatedKernel:
        """Lowers ``asm["ttgir"]`` again, since LLVM IR text has lost what the executor reads."""
        from tilewright.dialects._mlir import ir
        from tilewright.dialects.context import ensure_dialects
        from tilewright.dialects.lowering import lower_to_llvm
        from tilewright.dialects.matrix_ops import register_rows
        from tilewright.targets.amd.simulate_intrinsics import AmdExecutor
        from tilewright.targets.amd.target import TARGET

        text = asm.get("ttgir")
        if not text:
            raise ArgumentError("amd: the simulator needs the stage ttgir of the compiled kernel, which is not there")
        num_warps, name, shared = int(metadata["num_warps"]), str(metadata["name"]), int(metadata["shared"])
        options = AmdOptions(num_warps=num_warps, enable_fp_fusion=bool(metadata.get("enable_fp_fusion", True)))
        with mlir_context():
            ensure_dialects(*TARGET.dialects())
            register_rows(TARGET.matrix_ops())
            module = ir.Module.parse(text)
            lower_to_llvm(module, PassContext(TARGET, self.arch, capabilities(self.arch), options, name, {"shared": shared}))
            executor = AmdExecutor(module, name, self.arch, num_warps, shared, check_uninitialised=True)
        return SimulatedKernel(executor, metadata)

    def get_device_properties(self, device: int) -> Mapping[str, Any]:
        """The architecture's limits; one compute unit."""
        facts = capabilities(self.arch)
        return {"max_shared_mem": facts.max_shared_bytes, "max_num_regs": 65536, "multiprocessor_count": 1,
                "warpSize": facts.warp_size, "sm_clock_rate": 0, "mem_clock_rate": 0, "mem_bus_width": 0, "arch": self.arch}
