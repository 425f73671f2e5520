"""What a kernel's loop does to memory, found by running its text in the instruction-level simulator: no GPU, no model of addresses.

The kernel runs one work-group for a few steps and for a few more; the difference is what a step does, of either compiler's text.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.targets.amd import simulate as simulator
from tilewright.targets.amd.emit import kernel_arguments
from tilewright.targets.amd.isa.machine import Machine
from tilewright.targets.amd.isa.memory import GlobalMemory

LINE = 128  # bytes of a line of the vector cache (CDNA 3 and RDNA ISA manuals, memory hierarchy)


class _Observed(Machine):
    """Counts bank conflicts (isa/bank_conflicts.py)."""

    latest: dict[int, list[int]] = {}  # instruction → [accesses, cycles, cycles without conflicts], of the latest machine

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self.lds_conflicts = _Observed.latest = {}


class _Counting(GlobalMemory):
    """Counts the lines that vector accesses touch, a wave at a time."""

    lines = 0

    def _count(self, addresses: Any, size: int, mask: Any) -> None:
        if addresses.shape[-1] == 1:
            return  # scalar loads
        for i in range(addresses.shape[0]):
            active = addresses[i] if mask is None else addresses[i][np.broadcast_to(mask, addresses.shape)[i]]
            first = active // LINE
            _Counting.lines += np.unique(np.concatenate([first, (active + (size - 1)) // LINE])).size if active.size else 0

    def load(self, w: Any, addresses: Any, size: int, mask: Any = None) -> Any:
        self._count(addresses, size, mask)
        return super().load(w, addresses, size, mask)

    def store(self, w: Any, addresses: Any, size: int, values: Any, mask: Any = None) -> None:
        self._count(addresses, size, mask)
        super().store(w, addresses, size, values, mask)


def _values(kernel: Any, steps: int) -> tuple[list[Any], tuple[int, int, int]]:
    """Arguments (arrays of zeros) for which the loop does ``steps`` steps, and the work-group to run."""
    c, k = kernel.config, kernel.config.constexprs
    group = (0, 0, 0)
    sizes: dict[str, Any] = {}
    if "BLOCK_K" in k:
        m, n, depth = k["BLOCK_M"], k["BLOCK_N"], k["BLOCK_K"] * steps
        sizes = {"M": m, "N": n, "K": depth, "stride_xm": depth, "stride_wk": n, "stride_ym": n}
    elif "HEAD_DIM" in k:
        dim, length = k["HEAD_DIM"], k["BLOCK_N"] * steps
        if k["CAUSAL"]:  # the last block of queries sees all before its own rows without a mask
            length += k["BLOCK_M"]
            group = (length // k["BLOCK_M"] - 1, 0, 0)
        sizes = {"n_ctx": length, "qk_scale": 0.5}
        sizes |= {f"stride_{t}": length * dim for t in ("qh", "kh", "vh", "oh")} | {f"stride_{t}": dim for t in ("qm", "kn", "vn", "om")}
    elif "BLOCK_N" in k:
        sizes = {"N": steps * k["BLOCK_M" if c.name == "keys" else "BLOCK_N"], "scale": 0.5, "plain_scale": 0.5}
    elif c.name == "softmax":
        sizes = {"n_rows": steps, "n_cols": k["BLOCK"], "in_stride": k["BLOCK"], "out_stride": k["BLOCK"]}
    else:
        sizes = {"n": steps * k["BLOCK"], "stride": steps * k["BLOCK"], "eps": 1e-5}
    return [_zeros(1 << 22) if t.startswith("*") else sizes[a] for a, t in c.signature.items() if t != "constexpr"], group


def _zeros(size: int) -> Any:
    """int32, begun at a line."""
    array = np.zeros(size + LINE, np.uint8)
    start = -array.ctypes.data % LINE
    return array[start:start + size].view(np.int32)


def _run(kernel: Any, text: str, shared: int, steps: int) -> tuple[float, ...]:
    """(instructions, cycles of LDS, those without conflicts, lines), all waves together."""
    values, group = _values(kernel, steps)
    values += [0] * (len(kernel_arguments(text)) - len(values))  # Triton's pointers to scratch memory, which these kernels do not use
    _Counting.lines = 0
    kept = simulator.GlobalMemory, simulator.Machine
    simulator.GlobalMemory, simulator.Machine = _Counting, _Observed  # type: ignore[misc]
    try:
        report = simulator.simulate(text, (group[0] + 1, 1, 1), values, num_warps=kernel.warps, shared=shared, groups=[group], check=False)
    finally:
        simulator.GlobalMemory, simulator.Machine = kept  # type: ignore[misc]
    accesses = list(_Observed.latest.values())
    if not accesses and any(name.startswith(("ds_load", "ds_read", "ds_store", "ds_write")) for name in report.instructions):
        raise RuntimeError("the simulator counted no LDS access, and there were some")
    return sum(report.instructions.values()), sum(a[1] for a in accesses), sum(a[2] for a in accesses), _Counting.lines


def measure(kernel: Any, text: str, shared: int) -> dict[str, float]:
    """Of one step of a work-group: "executed" (instructions a wave), "lds" (cycles with bank conflicts), "lds_least" (without), "lines". Kernels without a
    loop: the whole."""
    few, more = (4, 8) if kernel.loads else (0, 1)
    a = _run(kernel, text, shared, few) if few else (0.0,) * 4
    b = _run(kernel, text, shared, more)
    executed, taken, least, lines = ((y - x) / (more - few) for x, y in zip(a, b))
    return {"executed": executed / kernel.warps, "lds": taken, "lds_least": least, "lines": lines}
