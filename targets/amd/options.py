"""What a launch may set on AMD GPUs; names and defaults are Triton's."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dialects.errors import ArgumentError


@dataclass(frozen=True)
class AmdOptions:
    """num_warps: waves a program (power of two). num_stages: buffers of a pipelined loop. waves_per_eu: occupancy to aim at
    (0: LLVM decides). matrix_instr_nonkdim: 0, 16 or 32, the M and N of the matrix instruction. kpack: accepted for
    Triton's sake; the layouts already load the widest vectors. enable_fp_fusion: a·b+c may become one rounding."""

    num_warps: int = 4
    num_stages: int = 2
    num_ctas: int = 1
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 0
    kpack: int = 1
    enable_fp_fusion: bool = True
    debug: bool = False
    sanitize_overflow: bool = False
    default_dot_input_precision: str = "ieee"

    def __post_init__(self) -> None:
        if self.num_warps < 1 or self.num_warps & (self.num_warps - 1) or self.num_warps > 16:
            raise ArgumentError(f"num_warps is {self.num_warps}; allowed are 1, 2, 4, 8, 16")
        if self.num_stages < 1:
            raise ArgumentError(f"num_stages is {self.num_stages}; at least 1 is needed")
        if self.num_ctas != 1:
            raise ArgumentError("num_ctas must be 1: AMD GPUs have no clusters of work-groups")
        if self.matrix_instr_nonkdim not in (0, 16, 32):
            raise ArgumentError(f"matrix_instr_nonkdim is {self.matrix_instr_nonkdim}; allowed are 0 (automatic), 16, 32")
