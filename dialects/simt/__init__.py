"""Execute LLVM-dialect kernels with numpy over all threads of a block: how lowering is proven where there is no GPU.

    from tilewright.dialects.simt import SimtExecutor
    executor = SimtExecutor(module, "kernel", num_threads=128, warp_size=32, shared_bytes=4096, semantics=table)
    executor.run((grid_x, grid_y, grid_z), [numpy arrays, ints, floats])

It checks what a GPU does not: accesses outside the buffers that were passed, misaligned accesses, barriers that some
threads miss, shared-memory races between warps, reads of bytes that an asynchronous copy in flight still writes.
"""

from tilewright.dialects.simt.executor import SimtExecutor
from tilewright.dialects.simt.memory import SimtError

__all__ = ["SimtError", "SimtExecutor"]
