"""What a launch may set on NVIDIA GPUs; names and defaults are Triton's."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dialects.errors import ArgumentError
from tilewright.targets.protocol import CommonOptions

PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


@dataclass(frozen=True)
class NvidiaOptions(CommonOptions):
    """num_warps: warps of 32 threads a program (power of two). num_stages: buffers of a pipelined loop. maxnreg: most
    registers a thread (None: the assembler decides). enable_fp_fusion: a·b+c may become one rounding. num_ctas: blocks of a
    cluster, a hint that is not followed (sm_90 and later; elsewhere an error). default_dot_input_precision: of float32 dots that name none. fast_compile: ptxas at -O1.

    launch_pdl (sm_90 and later; elsewhere nothing): the kernel may start before the one launched before it on the stream has ended; what that one writes is read after
    tl.extra.cuda.gdc_wait().

    tma (on sm_90a): tiles may be loaded and stored by the TMA unit, with tensor maps that the launcher makes of the arguments. A launch
    whose arguments forbid it runs the version compiled with tma=False instead; ``explain()`` of the launched kernel says why.
    warp_group_dots (on sm_90a): whether dots are given to warp groups (wgmma); None: as the target thinks best.
    max_num_imprecise_acc_default: of fp8 dots that do not say: how much of k may be added up in less precision than f32 has."""

    maxnreg: int | None = None
    default_dot_input_precision: str = "tf32"
    fast_compile: bool = False
    launch_pdl: bool = False
    tma: bool = True
    warp_group_dots: bool | None = None
    max_num_imprecise_acc_default: int = 1 << 30

    def __post_init__(self) -> None:
        if self.num_warps < 1 or self.num_warps & (self.num_warps - 1) or self.num_warps > 32:
            raise ArgumentError(f"num_warps is {self.num_warps}; allowed are 1, 2, 4, 8, 16, 32")
        if self.num_stages < 1:
            raise ArgumentError(f"num_stages is {self.num_stages}; at least 1 is needed")
        if self.maxnreg is not None and not 16 <= self.maxnreg <= 255:
            raise ArgumentError(f"maxnreg is {self.maxnreg}; allowed are 16 to 255")
        if self.default_dot_input_precision not in PRECISIONS:
            raise ArgumentError(f"default_dot_input_precision is {self.default_dot_input_precision!r}; allowed: {', '.join(PRECISIONS)}")
