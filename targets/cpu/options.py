"""What a launch may set on a CPU. num_warps, num_stages and num_ctas are taken for the sake of kernels tuned elsewhere and
change nothing: a program is one thread. enable_fp_fusion: a·b+c may become one rounding. check_addresses: null pointers are told (passes/check_addresses.py);
launches with one ask for it. arguments_apart: no two arguments are one array that is read in one place and written in another; launches whose arguments are ask for False."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dialects.errors import ArgumentError
from tilewright.targets.protocol import CommonOptions


@dataclass(frozen=True)
class CpuOptions(CommonOptions):
    maxnreg: int | None = None
    check_addresses: bool = False
    arguments_apart: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_ctas", 1)  # there are no blocks: whatever is asked for, a program is one thread
        super().__post_init__()
        if self.maxnreg is not None and self.maxnreg < 1:
            raise ArgumentError(f"maxnreg is {self.maxnreg}; at least 1 is needed")
