"""Integer and bitwise instructions of the vector ALU, moves and selections. ISA manuals, "Instructions": VOP1, VOP2, VOP3.

16-bit shifts take 4 bits of the count, 32-bit ones 5, 64-bit ones 6. clamp saturates sums and differences. All exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.targets.amd.isa.modifiers import Operands
from tilewright.targets.amd.isa.program import Instruction, Reg
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.state import Waves
from tilewright.targets.amd.isa.valu_numbers import Array
from tilewright.targets.amd.isa.valu_table import lanewise

U16, U32, U64, I32, I64 = np.uint16, np.uint32, np.uint64, np.int32, np.int64


def _reversed_subtract(a: Array, b: Array) -> Array:
    return b - a


# ------------------------------------------------------------------------------------------------ sums and differences
lanewise("v_add_u32", "v_add_nc_u32", out="u32", of=("u32", "u32"), f=np.add, saturating=np.add)
lanewise("v_sub_u32", "v_sub_nc_u32", out="u32", of=("u32", "u32"), f=np.subtract, saturating=np.subtract)
lanewise("v_subrev_u32", "v_subrev_nc_u32", out="u32", of=("u32", "u32"), f=_reversed_subtract, saturating=_reversed_subtract)
lanewise("v_add_i32", "v_add_nc_i32", out="i32", of=("i32", "i32"), f=np.add, saturating=np.add)
lanewise("v_sub_i32", "v_sub_nc_i32", out="i32", of=("i32", "i32"), f=np.subtract, saturating=np.subtract)
lanewise("v_add_u16", out="u16", of=("u16", "u16"), f=np.add, saturating=np.add)
lanewise("v_sub_u16", out="u16", of=("u16", "u16"), f=np.subtract, saturating=np.subtract)
lanewise("v_subrev_u16", out="u16", of=("u16", "u16"), f=_reversed_subtract, saturating=_reversed_subtract)
lanewise("v_add_nc_u16", out="u16", of=("u16", "u16"), f=np.add, saturating=np.add, keeps_half=True)
lanewise("v_sub_nc_u16", out="u16", of=("u16", "u16"), f=np.subtract, saturating=np.subtract, keeps_half=True)
lanewise("v_add_i16", "v_add_nc_i16", out="i16", of=("i16", "i16"), f=np.add, saturating=np.add, keeps_half=True)
lanewise("v_sub_i16", "v_sub_nc_i16", out="i16", of=("i16", "i16"), f=np.subtract, saturating=np.subtract, keeps_half=True)
lanewise("v_add3_u32", out="u32", of=("u32",) * 3, f=lambda a, b, c: a + b + c)
lanewise("v_xad_u32", out="u32", of=("u32",) * 3, f=lambda a, b, c: (a ^ b) + c)
lanewise("v_lshl_add_u32", out="u32", of=("u32",) * 3, f=lambda a, b, c: (a << (b & U32(31))) + c)
lanewise("v_add_lshl_u32", out="u32", of=("u32",) * 3, f=lambda a, b, c: (a + b) << (c & U32(31)))
lanewise("v_lshl_add_u64", out="u64", of=("u64", "u32", "u64"), f=lambda a, b, c: (a << (b & U32(7)).astype(U64)) + c)


def _sad(a: Array, b: Array, c: Array) -> Array:
    return np.maximum(a, b) - np.minimum(a, b) + c


lanewise("v_sad_u32", out="u32", of=("u32",) * 3, f=_sad)
lanewise("v_mul_lo_u32", out="u32", of=("u32", "u32"), f=np.multiply)
lanewise("v_mul_lo_u16", out="u16", of=("u16", "u16"), f=np.multiply)
lanewise("v_mad_u16", out="u16", of=("u16",) * 3, f=lambda a, b, c: a * b + c, saturating=lambda a, b, c: a * b + c, keeps_half=True)
lanewise("v_mad_i16", out="i16", of=("i16",) * 3, f=lambda a, b, c: a * b + c, saturating=lambda a, b, c: a * b + c, keeps_half=True)
# GFX9's opcodes from before it could choose halves: they clear the upper one (Vega ISA manual, V_MAD_LEGACY_U16); LLVM prints these
lanewise("v_mad_legacy_u16", out="u16", of=("u16",) * 3, f=lambda a, b, c: a * b + c, saturating=lambda a, b, c: a * b + c)
lanewise("v_mad_legacy_i16", out="i16", of=("i16",) * 3, f=lambda a, b, c: a * b + c, saturating=lambda a, b, c: a * b + c)
lanewise("v_mad_u32_u16", out="u32", of=("u16", "u16", "u32"), f=lambda a, b, c: a.astype(U32) * b + c)
lanewise("v_mad_i32_i16", out="i32", of=("i16", "i16", "i32"), f=lambda a, b, c: a.astype(I32) * b + c)


def _high_unsigned(a: Array, b: Array) -> Array:
    return (a.astype(U64) * b.astype(U64) >> U64(32)).astype(U32)


def _high_signed(a: Array, b: Array) -> Array:
    return (a.astype(I64) * b.astype(I64) >> I64(32)).astype(I32)


lanewise("v_mul_hi_u32", out="u32", of=("u32", "u32"), f=_high_unsigned)
lanewise("v_mul_hi_i32", out="i32", of=("i32", "i32"), f=_high_signed)


def u24(x: Array) -> Array:
    """The lowest 24 bits."""
    return x & U32(0xFFFFFF)


def i24(x: Array) -> Array:
    """The lowest 24 bits, sign-extended, as int32."""
    return (x << U32(8)).view(I32) >> I32(8)


def _wide(f: Any, a: Array, b: Array) -> Array:
    return f(a).astype(I64) * f(b).astype(I64)


lanewise("v_mul_u32_u24", out="u32", of=("u32", "u32"), f=lambda a, b: u24(a) * u24(b))
lanewise("v_mul_hi_u32_u24", out="u32", of=("u32", "u32"), f=lambda a, b: (_wide(u24, a, b) >> 32).astype(U32))
lanewise("v_mul_i32_i24", out="i32", of=("b32", "b32"), f=lambda a, b: i24(a) * i24(b))
lanewise("v_mul_hi_i32_i24", out="i32", of=("b32", "b32"), f=lambda a, b: (_wide(i24, a, b) >> 32).astype(I32))
lanewise("v_mad_u32_u24", out="u32", of=("u32",) * 3, f=lambda a, b, c: u24(a) * u24(b) + c)
lanewise("v_mad_i32_i24", out="i32", of=("b32", "b32", "i32"), f=lambda a, b, c: i24(a) * i24(b) + c)


# --------------------------------------------------------------------------------------------------------------- bits
for names, function in ((("v_and_b32",), np.bitwise_and), (("v_or_b32",), np.bitwise_or), (("v_xor_b32",), np.bitwise_xor)):
    lanewise(*names, out="b32", of=("b32", "b32"), f=function)
    lanewise(names[0].replace("32", "16"), out="b16", of=("b16", "b16"), f=function)
lanewise("v_xnor_b32", out="b32", of=("b32", "b32"), f=lambda a, b: ~(a ^ b))
lanewise("v_not_b32", out="b32", of=("b32",), f=np.invert)
lanewise("v_not_b16", out="b16", of=("b16",), f=np.invert)
lanewise("v_or3_b32", out="b32", of=("b32",) * 3, f=lambda a, b, c: a | b | c)
lanewise("v_xor3_b32", out="b32", of=("b32",) * 3, f=lambda a, b, c: a ^ b ^ c)
lanewise("v_and_or_b32", out="b32", of=("b32",) * 3, f=lambda a, b, c: a & b | c)
lanewise("v_lshl_or_b32", out="b32", of=("b32",) * 3, f=lambda a, b, c: a << (b & U32(31)) | c)
lanewise("v_bfi_b32", out="b32", of=("b32",) * 3, f=lambda a, b, c: a & b | ~a & c)
lanewise("v_bfm_b32", out="b32", of=("b32", "b32"), f=lambda a, b: ((U32(1) << (a & U32(31))) - U32(1)) << (b & U32(31)))

lanewise("v_lshlrev_b32", out="b32", of=("b32", "b32"), f=lambda a, b: b << (a & U32(31)))
lanewise("v_lshrrev_b32", out="b32", of=("b32", "b32"), f=lambda a, b: b >> (a & U32(31)))
lanewise("v_ashrrev_i32", out="i32", of=("i32", "i32"), f=lambda a, b: b >> (a & I32(31)))
lanewise("v_lshlrev_b16", out="b16", of=("b16", "b16"), f=lambda a, b: b << (a & U16(15)))
lanewise("v_lshrrev_b16", out="b16", of=("b16", "b16"), f=lambda a, b: b >> (a & U16(15)))
lanewise("v_ashrrev_i16", out="i16", of=("i16", "i16"), f=lambda a, b: b >> (a & np.int16(15)))
lanewise("v_lshlrev_b64", out="b64", of=("b32", "b64"), f=lambda a, b: b << (a & U32(63)).astype(U64))
lanewise("v_lshrrev_b64", out="b64", of=("b32", "b64"), f=lambda a, b: b >> (a & U32(63)).astype(U64))
lanewise("v_ashrrev_i64", out="i64", of=("i32", "i64"), f=lambda a, b: b >> (a & I32(63)).astype(I64))


def _field_unsigned(a: Array, b: Array, c: Array) -> Array:
    return a >> (b & U32(31)) & ((U32(1) << (c & U32(31))) - U32(1))


def _field_signed(a: Array, b: Array, c: Array) -> Array:
    """Of a field that reaches beyond bit 31 what there is, sign-extended from its last bit; nothing of width 0."""
    offset, size = b & U32(31), c & U32(31)
    field = a.view(I32).astype(I64) >> offset.astype(I64)
    shift = np.where(size == 0, 0, 64 - size.astype(I64))
    return np.where(size == 0, 0, field << shift >> shift).astype(I32)


lanewise("v_bfe_u32", out="u32", of=("u32",) * 3, f=_field_unsigned)
lanewise("v_bfe_i32", out="i32", of=("b32", "u32", "u32"), f=_field_signed)


def _reverse(x: Array) -> Array:
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        x = (x & U32(mask)) << U32(shift) | (x >> U32(shift)) & U32(mask)
    return x


def _first_high(x: Array) -> Array:
    """Zeros above the highest one; −1 of 0. A float64 holds 32 bits exactly."""
    return np.where(x == 0, -1, 32 - np.frexp(x.astype(np.float64))[1]).astype(I32)


def _first_low(x: Array) -> Array:
    """Zeros below the lowest one; −1 of 0."""
    lowest = x & (~x + U32(1))
    return np.where(x == 0, -1, np.frexp(lowest.astype(np.float64))[1] - 1).astype(I32)


def _first_other(x: Array) -> Array:
    """Bits above the highest one that differs from the sign; −1 where none does."""
    return _first_high(np.where(x.view(I32) < 0, ~x, x))


lanewise("v_bfrev_b32", out="b32", of=("b32",), f=_reverse)
lanewise("v_bcnt_u32_b32", out="u32", of=("b32", "u32"), f=lambda a, b: np.bitwise_count(a).astype(U32) + b)
lanewise("v_ffbh_u32", "v_clz_i32_u32", out="i32", of=("u32",), f=_first_high)
lanewise("v_ffbl_b32", "v_ctz_i32_b32", out="i32", of=("b32",), f=_first_low)
lanewise("v_ffbh_i32", "v_cls_i32", out="i32", of=("b32",), f=_first_other)


def _align(unit: int, mask: int) -> Any:
    def f(a: Array, b: Array, c: Array) -> Array:
        both = a.astype(U64) << U64(32) | b.astype(U64)
        return (both >> (c & U32(mask)).astype(U64) * U64(unit)).astype(U32)

    return f


lanewise("v_alignbit_b32", out="b32", of=("b32",) * 3, f=_align(1, 31))
lanewise("v_alignbyte_b32", out="b32", of=("b32",) * 3, f=_align(8, 3))


def permute(a: Array, b: Array, selector: Array) -> Array:
    """v_perm_b32: bytes of {a, b} (b's are 0–3) by the selector's bytes; 8–11 signs of words, 12 zero, above 12 ones."""
    a, b, selector = np.broadcast_arrays(a, b, selector)
    pairs = np.empty((*a.shape, 2), U32)
    pairs[..., 0], pairs[..., 1] = b, a
    codes = np.ascontiguousarray(selector).view(np.uint8).reshape(*a.shape, 4)
    if codes.max() < 8:
        return np.take_along_axis(pairs.view(np.uint8), codes, axis=-1).view(U32)[..., 0]
    both = pairs.view(U64)[..., 0]
    out = np.zeros(both.shape, U32)
    for i in range(4):
        s = selector >> U32(8 * i) & U32(0xFF)
        byte = both >> ((s & U32(7)) * U32(8)).astype(U64) & U64(0xFF)
        # 8, 9, 10, 11: the signs of b's and a's 16-bit words, from the lowest
        sign = np.where(both >> ((s & U32(3)) * U32(16) + U32(15)).astype(U64) & U64(1), 0xFF, 0).astype(U64)
        byte = np.where(s >= 8, np.where(s <= 11, sign, np.where(s == 12, U64(0), U64(0xFF))), byte)
        out |= byte.astype(U32) << U32(8 * i)
    return out


def _of_words(selector: int) -> tuple[int, int] | None:
    """(first byte of the low word, of the high one) where the selector takes two whole words, as conversions to 16 bits do."""
    low, second, high, last = (selector >> 8 * i & 0xFF for i in range(4))
    fits = second == low + 1 and last == high + 1 and max(second, last) < 8 and low % 4 < 3 and high % 4 < 3
    return (low, high) if fits else None


def _permute(a: Array, b: Array, selector: Array) -> Array:
    first = int(selector.flat[0])
    if selector.shape[-1] == 1 and (selector == first).all():
        words = _of_words(first)
        if words is not None:
            low, high = words
            x = (b if low < 4 else a) >> U32(8 * (low % 4)) & U32(0xFFFF)
            return x | ((b if high < 4 else a) >> U32(8 * (high % 4)) & U32(0xFFFF)) << U32(16)
    return permute(a, b, selector)


lanewise("v_perm_b32", out="b32", of=("b32",) * 3, f=_permute)


# ------------------------------------------------------------------------------------------------- smallest and largest
for kind in ("i16", "u16", "i32", "u32"):
    whole = kind.endswith("32")
    lanewise(f"v_min_{kind}", out=kind, of=(kind, kind), f=np.minimum)
    lanewise(f"v_max_{kind}", out=kind, of=(kind, kind), f=np.maximum)
    lanewise(f"v_min3_{kind}", out=kind, of=(kind,) * 3, f=lambda a, b, c: np.minimum(np.minimum(a, b), c), keeps_half=True)
    lanewise(f"v_max3_{kind}", out=kind, of=(kind,) * 3, f=lambda a, b, c: np.maximum(np.maximum(a, b), c), keeps_half=True)
    lanewise(f"v_med3_{kind}", out=kind, of=(kind,) * 3, f=lambda a, b, c: np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c)), keeps_half=True)
    if whole:
        lanewise(f"v_maxmin_{kind}", out=kind, of=(kind,) * 3, f=lambda a, b, c: np.minimum(np.maximum(a, b), c))
        lanewise(f"v_minmax_{kind}", out=kind, of=(kind,) * 3, f=lambda a, b, c: np.maximum(np.minimum(a, b), c))


# ------------------------------------------------------------------------------------------------------ truth tables
def bitop3(table: int, a: Array, b: Array, c: Array) -> Array:
    """Any function of three bits: bit 4·a + 2·b + c of ``table``."""
    out: Any = a.dtype.type(0)
    for i in range(8):
        if table >> i & 1:
            out = out | ((a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c))
    return np.broadcast_arrays(out, a | b | c)[0]


@instruction("v_bitop3_b32", "v_bitop3_b16")
def _bitop3(ins: Instruction, ctx: DecodeContext) -> Step:
    kind = ins.base[-3:]
    o = Operands(ins, ctx, keeps_half=True)
    o.left.discard("bitop3")
    table = int(ins.modifiers.get("bitop3", 0))
    a, b, c = (o.source(i + 1, kind, i) for i in range(3))
    write = o.result(0, kind)
    o.done()
    return lambda w: write(w, bitop3(table, a(w), b(w), c(w)))


# -------------------------------------------------------------------------------------------------------- with carries
def _carry(ins: Instruction, ctx: DecodeContext, f: Any) -> Step:
    """d, carry-out = sources (and carry-in, the last operand, where there is one): f(a, b, carry) in int64."""
    o = Operands(ins, ctx)
    a, b = o.source(2, "u32", 0), o.source(3, "u32", 1)
    carry = o.mask_source(4) if len(ins.operands) == 5 else None
    clamps = o.clamps()
    write, out = o.result(0, "u32"), o.mask_result(1)
    o.done()

    def step(w: Waves) -> None:
        exact = f(a(w).astype(I64), b(w).astype(I64), 0 if carry is None else carry(w).astype(I64))
        over = (exact < 0) | (exact > 0xFFFFFFFF)
        write(w, np.clip(exact, 0, 0xFFFFFFFF).astype(U32) if clamps else exact.astype(U32))
        out(w, np.broadcast_to(over, (w.n, w.lanes)))

    return step


@instruction("v_add_co_u32", "v_addc_co_u32", "v_add_co_ci_u32")
def _add_carry(ins: Instruction, ctx: DecodeContext) -> Step:
    return _carry(ins, ctx, lambda a, b, c: a + b + c)


@instruction("v_sub_co_u32", "v_subb_co_u32", "v_sub_co_ci_u32")
def _sub_carry(ins: Instruction, ctx: DecodeContext) -> Step:
    return _carry(ins, ctx, lambda a, b, c: a - b - c)


@instruction("v_subrev_co_u32", "v_subbrev_co_u32", "v_subrev_co_ci_u32")
def _subrev_carry(ins: Instruction, ctx: DecodeContext) -> Step:
    return _carry(ins, ctx, lambda a, b, c: b - a - c)


@instruction("v_mad_u64_u32", "v_mad_co_u64_u32", "v_mad_i64_i32", "v_mad_co_i64_i32")
def _mad64(ins: Instruction, ctx: DecodeContext) -> Step:
    """64 bits of a·b + c, and the carry out of bit 63 (of the signed one: whether the exact sum does not fit)."""
    signed = "_i64_" in ins.base
    o = Operands(ins, ctx)
    narrow, wide, dtype = ("i32", "i64", I64) if signed else ("u32", "u64", U64)
    a, b, c = o.source(2, narrow, 0), o.source(3, narrow, 1), o.source(4, wide, 2)
    write, out = o.result(0, wide), o.mask_result(1)
    o.done()

    def step(w: Waves) -> None:
        product, addend = a(w).astype(dtype) * b(w).astype(dtype), c(w)
        total = product + addend
        over = ((total ^ product) & (total ^ addend)) < 0 if signed else total < product
        write(w, total)
        out(w, np.broadcast_to(over, (w.n, w.lanes)))

    return step


# ------------------------------------------------------------------------------------------------- moves and selections
lanewise("v_mov_b32", out="b32", of=("b32",), f=lambda a: a, moves=True)
lanewise("v_mov_b16", out="b16", of=("b16",), f=lambda a: a, moves=True)
lanewise("v_mov_b64", out="b64", of=("b64",), f=lambda a: a, moves=True)


@instruction("v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32")
def _accumulator(ins: Instruction, ctx: DecodeContext) -> Step:
    o = Operands(ins, ctx)
    read, write = o.source(1, "b32"), o.result(0, "b32")
    o.done()
    return lambda w: write(w, read(w))


@instruction("v_cndmask_b32", "v_cndmask_b16")
def _select(ins: Instruction, ctx: DecodeContext) -> Step:
    """The second source where the condition's bit is set; VOPD does not write the condition, which is VCC. Signs count as floats'."""
    bits = ins.base[-2:]
    o = Operands(ins, ctx, keeps_half=True)
    kind = f"f{bits}" if any(x.neg or x.abs for x in ins.operands) else f"b{bits}"
    a, b = o.source(1, kind, 0, flushes=False), o.source(2, kind, 1, flushes=False)
    write = o.result(0, kind, arithmetic=False)
    o.done()
    if len(ins.operands) == 4:
        condition = o.mask_source(3)
    elif ins.name.startswith("v_dual_"):
        def condition(w: Waves) -> Array:
            return w.sgpr_to_mask(w.vcc)
    else:
        raise ctx.unknown(ins, "a selection without condition")
    return lambda w: write(w, np.where(condition(w), b(w), a(w)))


@instruction("v_swap_b32", "v_swap_b16")
def _swap(ins: Instruction, ctx: DecodeContext) -> Step:
    kind = ins.base[-3:]
    o = Operands(ins, ctx)
    a, b, to_a, to_b = o.source(0, kind, 0), o.source(1, kind, 1), o.result(0, kind), o.result(1, kind)
    o.done()
    if not all(isinstance(x, Reg) for x in ins.operands):
        raise ctx.unknown(ins, "a swap with what is no register")

    def step(w: Waves) -> None:
        x, y = a(w).copy(), b(w).copy()
        to_a(w, y)
        to_b(w, x)

    return step
