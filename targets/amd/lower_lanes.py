"""Exchange between lanes whose numbers differ by an xor mask, without LDS where an instruction does it.

Within 16 lanes: DPP (ISA manuals, "Data Parallel Processing"): permutations of four lanes, mirrors of 8 and 16, rotation by 8, and
on RDNA any xor. Between halves of 32: v_permlanex16 on RDNA, v_permlane16_swap on gfx950. Between halves of 64:
v_permlane32_swap on gfx950. What is left goes through LDS hardware without using its memory: ds_swizzle, ds_bpermute.
"""

from __future__ import annotations

from typing import Any

_ROW_ROR_8, _ROW_MIRROR, _ROW_HALF_MIRROR, _ROW_XMASK = 0x128, 0x140, 0x141, 0x160


def _dpp(b: Any, value: Any, control: int) -> Any:
    return b.call_intrinsic("llvm.amdgcn.update.dpp.i32", b.t_i32, [b.undef(b.t_i32), value, b.i32(control), b.i32(15), b.i32(15), b.i1(1)])


def _quad(mask: int) -> int:
    """quad_perm control: lane i of each four reads lane i ^ mask."""
    return sum((i ^ mask) << 2 * i for i in range(4))


def _within_row(b: Any, value: Any, mask: int, rdna: bool) -> Any:
    """xor by 1 to 15."""
    if mask < 4:
        return _dpp(b, value, _quad(mask))
    if rdna:
        return _dpp(b, value, _ROW_XMASK | mask)
    # a mirror or rotation is an xor by 7, 15 or 8; four lanes' permutation makes up the rest
    step, control = {4: (7, _ROW_HALF_MIRROR), 8: (8, _ROW_ROR_8), 12: (15, _ROW_MIRROR)}[mask & 12]
    moved = _dpp(b, value, control)
    return _dpp(b, moved, _quad(mask ^ step)) if mask != step else moved


def _swap(b: Any, value: Any, lane: Any, width: int) -> Any:
    """xor by 16 or 32 on gfx950: the swap of a register with itself gives both halves, of which each lane takes the other's."""
    pair = b.call_intrinsic(f"llvm.amdgcn.permlane{width}.swap", b.struct([b.t_i32, b.t_i32]), [value, value, b.i1(0), b.i1(0)])
    low_half = b.icmp("eq", b.and_(lane, b.i32(width)), b.i32(0))
    return b.select(low_half, b.extract_value(pair, 1), b.extract_value(pair, 0))


def shuffle_xor(hooks: Any, b: Any, value: Any, mask: int) -> Any:
    """``value`` (i32) of lane number ``lane ^ mask``, 1 ≤ mask < the wave's size."""
    arch, row, high = hooks.arch, mask & 15, mask & 48
    if arch == "gfx950":
        for width in (16, 32):
            if high & width:
                value = _swap(b, value, hooks.lane(b), width)
        return _within_row(b, value, row, False) if row else value
    if high == 0:
        return _within_row(b, value, row, hooks.warp_size == 32)
    if hooks.warp_size == 32:
        selectors = [sum((i ^ row) << 4 * (i - first) for i in range(first, first + 8)) for first in (0, 8)]
        low, top = (b.i32(s - (1 << 32) if s >> 31 else s) for s in selectors)
        return b.call_intrinsic("llvm.amdgcn.permlanex16.i32", b.t_i32, [b.undef(b.t_i32), value, low, top, b.i1(0), b.i1(1)])
    if mask < 32:  # ds_swizzle_b32 in bit mode: xor mask in bits 14:10, and mask 0x1f in 4:0
        return b.call_intrinsic("llvm.amdgcn.ds.swizzle", b.t_i32, [value, b.i32(mask << 10 | 0x1F)])
    return hooks.shuffle_idx(b, value, b.xor(hooks.lane(b), b.i32(mask)))
