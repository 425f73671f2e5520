"""What a launch may set on AMD GPUs; names and defaults are Triton's."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.dialects.errors import ArgumentError
from tilewright.targets.protocol import CommonOptions


@dataclass(frozen=True)
class AmdOptions(CommonOptions):
    """num_warps: waves a program (power of two). num_stages: buffers of a pipelined loop. waves_per_eu: waves a SIMD unit at least, for
    which LLVM limits registers (0: LLVM decides). matrix_instr_nonkdim: 0, 16 or 32, the M and N of the matrix instructions (0: by the
    tile). kpack: 1 or 2, the instructions' k that a lane holds one after another, at least (operands are read 128 bits at a time in any
    case). enable_fp_fusion: a·b+c may become one rounding. buffer_ops: tiles may be loaded and stored by buffer instructions; a launch
    whose arguments forbid it runs the version compiled with buffer_ops=False. buffer_atomics: atomics too (docs/amd.md says which). async_copy: loads of dot operands may go to LDS
    directly (None: on gfx950, where a lane moves 16 bytes; True also on gfx942, where it moves 4). schedule_hint: "none", or a list, separated by commas, of "attention" (exponentials between the products of a loop) and
    "memory-bound-attention" (LLVM's scheduler for instruction-level parallelism, on waves of 64 lanes; no effect on 32). addresses_anew:
    loops with products compute their addresses in each iteration instead of holding them in registers; the compiler sets it where
    registers would spill. most_stages: loops have at most so many stages (0: as many as asked for); the compiler sets it where
    LDS holds no more. block_pingpong: on gfx942 and gfx950 the halves of a work-group of eight waves may take turns in a matmul's loop.
    What depends on the architecture is checked by ``check_options``."""

    num_stages: int = 2
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 0
    kpack: int = 1
    buffer_ops: bool = True
    buffer_atomics: bool = True
    async_copy: bool | None = None
    schedule_hint: str = "none"
    addresses_anew: bool = False
    most_stages: int = 0
    block_pingpong: bool = True

    def __post_init__(self) -> None:
        if self.num_warps < 1 or self.num_warps & (self.num_warps - 1) or self.num_warps > 32:
            raise ArgumentError(f"num_warps is {self.num_warps}; allowed are 1, 2, 4, 8, 16 and, on waves of 32 lanes, 32")
        if self.num_stages < 1:
            raise ArgumentError(f"num_stages is {self.num_stages}; at least 1 is needed")
        if self.most_stages < 0:
            raise ArgumentError(f"most_stages is {self.most_stages}; allowed are 0 (as many as asked for) and more")
        if self.num_ctas != 1:
            raise ArgumentError("num_ctas must be 1: AMD GPUs have no clusters of work-groups")
        if self.matrix_instr_nonkdim not in (0, 16, 32):
            raise ArgumentError(f"matrix_instr_nonkdim is {self.matrix_instr_nonkdim}; allowed are 0 (automatic), 16, 32")
        hints = self.schedule_hint.split(",")
        if hints != ["none"] and not set(hints) <= {"attention", "memory-bound-attention"}:
            raise ArgumentError(f'schedule_hint is {self.schedule_hint!r}; allowed are "none", "attention", "memory-bound-attention", or both of these '
                                "with a comma between")
        if self.kpack not in (1, 2):
            raise ArgumentError(f"kpack is {self.kpack}; allowed are 1 and 2")


def check_options(arch: str, wave_size: int, options: AmdOptions) -> None:
    """Raises ArgumentError for what ``arch``, of waves of ``wave_size`` lanes, does not have."""
    if options.num_warps * wave_size > 1024:
        raise ArgumentError(f"num_warps is {options.num_warps}; {arch} has waves of {wave_size} lanes and work-groups of up to 1024")
    most = 8 if wave_size == 64 else 16
    if not 0 <= options.waves_per_eu <= most:
        raise ArgumentError(f"waves_per_eu is {options.waves_per_eu}; {arch} allows 0 (automatic) to {most}")
    if options.matrix_instr_nonkdim == 32 and wave_size == 32:
        raise ArgumentError(f"matrix_instr_nonkdim is 32; the matrix instructions of {arch} are 16 × 16: leave it at 0 or 16")
