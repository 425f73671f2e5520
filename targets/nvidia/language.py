"""Functions that kernels have on NVIDIA GPUs only: ``tl.extra.cuda.NAME()``. From the PTX ISA manual,
"Special Registers"."""

from __future__ import annotations

from tilewright.targets.protocol import TargetFunction

LANGUAGE = {
    "globaltimer": TargetFunction("Nanoseconds of a clock that all of the GPU shares, int64.", lambda arch: ("mov.u64 $0, %globaltimer;", "=l"), "int64"),
    "smid": TargetFunction("Number of the multiprocessor that runs the program, int32.", lambda arch: ("mov.u32 $0, %smid;", "=r"), "int32", pure=True),
    "num_threads": TargetFunction("Threads of a program, a constexpr.", number=lambda options, warp_size: options.num_warps * warp_size),
    "num_warps": TargetFunction("Warps of a program, a constexpr.", number=lambda options, warp_size: int(options.num_warps)),
}
