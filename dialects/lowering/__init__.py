"""From ttg to the LLVM dialect, shared by every GPU-like target. See docs/architecture.md, "Lowering"."""

from __future__ import annotations

from typing import Any


def lower_to_llvm(module: Any, ctx: Any) -> None:
    """Replace every ``func.func`` by an ``llvm.func`` of scalar code for one thread.

    Before: every tensor has an encoding; shared memory is allocated (``allocation.offset``) and barriers stand.
    After: only the LLVM dialect, ``llvm.func`` kernels (calling convention and attributes by the target's hooks) and the
    external global ``global_smem``; metadata has name, num_warps and shared.
    Raises UnsupportedOnTargetError for an op that the target has no lowering for.
    """
    from tilewright.dialects.lowering.lower import lower_module

    lower_module(module, ctx)
