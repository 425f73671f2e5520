"""What a launch may set on a CPU. num_warps, num_stages and num_ctas are taken for the sake of kernels tuned elsewhere and
change nothing: a program is one thread. enable_fp_fusion: a·b+c may become one rounding."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dialects.errors import ArgumentError


@dataclass(frozen=True)
class CpuOptions:
    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    enable_fp_fusion: bool = True
    debug: bool = False
    sanitize_overflow: bool = True
    maxnreg: int | None = None
    default_dot_input_precision: str = "ieee"

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_ctas", 1)  # there are no blocks: whatever is asked for, a program is one thread
        if self.num_warps < 1 or self.num_warps & (self.num_warps - 1):
            raise ArgumentError(f"num_warps is {self.num_warps}; allowed are powers of two")
        if self.num_stages < 1:
            raise ArgumentError(f"num_stages is {self.num_stages}; at least 1 is needed")
        if self.maxnreg is not None and self.maxnreg < 1:
            raise ArgumentError(f"maxnreg is {self.maxnreg}; at least 1 is needed")
