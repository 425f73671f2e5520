"""Functions that kernels have on NVIDIA GPUs only: ``tl.extra.cuda.NAME()``. From the PTX ISA manual,
"Special Registers", and "griddepcontrol"."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.targets.nvidia.capabilities import sm_number
from tilewright.targets.protocol import TargetFunction


def _dependency(what: str) -> Callable[[str], tuple[str, str]]:
    """Grid dependency control, which architectures before 9.0 do not have: there it is nothing, as launches follow one another."""
    return lambda arch: (f"griddepcontrol.{what}; mov.b32 $0, 0;", "=r,~{memory}") if sm_number(arch) >= 90 else ("", "")


LANGUAGE = {
    "gdc_wait": TargetFunction("Wait until the kernels launched before on the stream are done and what they wrote is seen.", _dependency("wait")),
    "gdc_launch_dependents": TargetFunction("Let the next kernel of the stream be launched before this one ends.", _dependency("launch_dependents")),
    "globaltimer": TargetFunction("Nanoseconds of a clock that all of the GPU shares, int64.", lambda arch: ("mov.u64 $0, %globaltimer;", "=l"), "int64"),
    "smid": TargetFunction("Number of the multiprocessor that runs the program, int32.", lambda arch: ("mov.u32 $0, %smid;", "=r"), "int32", pure=True),
    "num_threads": TargetFunction("Threads of a program, a constexpr.", number=lambda options, warp_size: options.num_warps * warp_size),
    "num_warps": TargetFunction("Warps of a program, a constexpr.", number=lambda options, warp_size: int(options.num_warps)),
}
