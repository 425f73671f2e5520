"""A Driver without a device: kernels run in the SIMT executor, on host memory (``TILEWRIGHT_TARGET=nvidia:sm_80:sim``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.dialects import global_races
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import ArgumentError
from tilewright.dialects.global_races import Region
from tilewright.dialects.pipeline import PassContext
from tilewright.dialects.simt import SimtExecutor
from tilewright.dialects.simt.driver import SimulatedDriver, SimulatedKernel
from tilewright.dialects.simt.executor import Opaque
from tilewright.targets.nvidia.capabilities import capabilities, sm_number
from tilewright.targets.nvidia.options import NvidiaOptions
from tilewright.targets.protocol import NeedsMemory, NeedsVariant


class NvidiaSimulatedDriver(SimulatedDriver):
    """targets.protocol.Driver over the SIMT executor. Pointers are addresses in this process."""

    def load(self, asm: Mapping[str, Any], metadata: Mapping[str, Any], device: int = 0) -> SimulatedKernel:
        """Lowers ``asm["ttgir"]`` again, since LLVM IR text has lost what the executor reads."""
        from tilewright.dialects._mlir import ir
        from tilewright.dialects.context import ensure_dialects
        from tilewright.dialects.lowering import lower_to_llvm
        from tilewright.dialects.matrix_ops import register_rows
        from tilewright.targets.nvidia.passes.note_lines import python_lines
        from tilewright.targets.nvidia.simulate import semantics
        from tilewright.targets.nvidia.target import TARGET

        text = asm.get("ttgir")
        if not text:
            raise ArgumentError("nvidia: the simulator needs the stage ttgir of the compiled kernel, which is not there")
        num_warps = int(metadata["num_warps"])
        options = NvidiaOptions(num_warps=num_warps, enable_fp_fusion=bool(metadata.get("enable_fp_fusion", True)))
        with mlir_context():
            ensure_dialects(*TARGET.dialects())
            register_rows(TARGET.matrix_ops())
            module = ir.Module.parse(text)
            ctx = PassContext(TARGET, self.arch, capabilities(self.arch), options, str(metadata["name"]), dict(metadata))
            lower_to_llvm(module, ctx)
            warps = int(ctx.metadata.get("total_warps") or num_warps)
            executor = SimtExecutor(module, str(metadata["name"]), 32 * warps, 32, int(metadata["shared"]), semantics(), check_uninitialised=True,
                                    group=_cluster(metadata.get("persistent")))
        executor.lines = python_lines(text, metadata)
        return SimulatedKernel(executor, metadata)

    def make_launcher(self, signature: Sequence[str], metadata: Mapping[str, Any]) -> Callable[..., None]:
        """As the real one: guards are checked, tensor maps made, and a persistent kernel gets the grid as arguments, and flags where it
        asks for them; it is launched with few blocks, so that each runs several programs. Raises NeedsVariant and NeedsMemory before anything runs."""
        from tilewright.targets.nvidia.host_plan import HostPlan, MemoryUnknown
        from tilewright.targets.nvidia.launcher import WITHOUT_TMA, address, has_flags

        host, persistent = metadata.get("host") or {}, metadata.get("persistent")
        cluster = _cluster(persistent)
        plan = HostPlan(host, signature) if host.get("descriptors") or host.get("guards") else None
        if plan is None and not persistent:
            return super().make_launcher(signature, metadata)

        def launch(gx: int, gy: int, gz: int, stream: int, handle: SimulatedKernel, args: Sequence[Any], memory: Any = None) -> None:
            extra: list[Any] = [gx, gy, gz] if persistent else []
            if plan is not None:
                known = [address(a) if kind.startswith("*") else a for a, kind in zip(args, signature)]
                try:
                    answer = plan.evaluate(known, (gx, gy, gz), memory)
                except MemoryUnknown:
                    raise NeedsMemory from None
                if answer.reasons:
                    raise NeedsVariant(WITHOUT_TMA, answer.reasons)
                if has_flags(persistent):
                    extra.append(answer.flags)
                extra += [Opaque(_tensor_map(m)) for m in answer.maps]
            programs = gx * gy * gz
            few = (2 if programs < 6 else 3) if cluster == 1 else (1 if programs < 6 else 2)
            blocks = (min(-(-programs // cluster), few) * cluster, 1, 1) if persistent else (gx, gy, gz)
            self.execute(handle, blocks, [*args, *extra], self.regions(signature, args, memory))

        return launch

    def regions(self, signature: Sequence[str], args: Sequence[Any], memory: Mapping[int, tuple[int, int]] | None) -> Sequence[Region]:
        """As SimulatedDriver's. Raises NeedsMemory where races are looked for: their messages name arrays."""
        if memory is None and global_races.wanted() and any(kind.startswith("*") for kind in signature):
            raise NeedsMemory
        return super().regions(signature, args, memory)

    def execute(self, handle: SimulatedKernel, grid: tuple[int, int, int], args: Sequence[Any], regions: Sequence[Region] = ()) -> None:
        """As SimulatedDriver's; a grid that no device would start is refused here too."""
        from tilewright.targets.nvidia.driver import NvidiaDriver

        if grid[0] >= 1 << 31 or max(grid[1:]) > 65535:
            NvidiaDriver.refuse_grid(grid)
        super().execute(handle, grid, args, regions)

    def get_device_properties(self, device: int) -> Mapping[str, Any]:
        """The architecture's limits; one multiprocessor."""
        facts = capabilities(self.arch)
        return {"max_shared_mem": facts.max_shared_bytes, "max_num_regs": 65536, "multiprocessor_count": 1, "warpSize": 32,
                "sm_clock_rate": 0, "mem_clock_rate": 0, "mem_bus_width": 0, "arch": sm_number(self.arch)}


def _cluster(persistent: Mapping[str, Any] | None) -> int:
    """Blocks of a cluster."""
    return int((persistent or {}).get("cluster", 1))


def _tensor_map(m: Any) -> Any:
    """The simulator's tensor map of a ``tensor_maps.TensorMap``."""
    from tilewright.targets.nvidia.simulate_bulk import TensorMap

    return TensorMap(m.base, m.dtype, m.itemsize, tuple(m.shape), tuple(m.strides), tuple(m.box), m.swizzle, m.padding == "nan")
