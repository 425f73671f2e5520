"""Conversions between floats and integers of all widths, packed ones, and to and from 8-bit floats. ISA manuals, VOP1 and VOP3 "CVT".

Floats to integers: towards zero, held within the range, NaN 0. To floats: nearest even; v_cvt_pkrtz towards zero. To fp8 and bf8: nearest
even, what is too large becomes NaN or infinity (the mode FP16_OVFL, which would saturate, is 0). All exact. Not here: stochastic rounding, and
the scaled conversions of gfx950.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.targets.amd.isa.modifiers import Operands, Read
from tilewright.targets.amd.isa.program import Instruction
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.state import Waves
from tilewright.targets.amd.isa.valu_numbers import (
    Array,
    bf16_to_f32,
    f32_to_bf16,
    float8,
    to_f16_towards_zero,
    to_integer,
)
from tilewright.targets.amd.isa.valu_table import lanewise

U16, U32 = np.uint16, np.uint32


def _cast(dtype: Any) -> Any:
    return lambda x: x.astype(dtype)


def _whole(kind: str) -> Any:
    return lambda x: to_integer(x, kind)


for out, of, dtype in (("f16", "f32", np.float16), ("f32", "f16", np.float32), ("f64", "f32", np.float64), ("f32", "f64", np.float32),
                       ("f32", "i32", np.float32), ("f32", "u32", np.float32), ("f64", "i32", np.float64), ("f64", "u32", np.float64),
                       ("f16", "i16", np.float16), ("f16", "u16", np.float16)):
    lanewise(f"v_cvt_{out}_{of}", out=out, of=(of,), f=_cast(dtype))
for out, of in (("i32", "f32"), ("u32", "f32"), ("i32", "f64"), ("u32", "f64"), ("i16", "f16"), ("u16", "f16")):
    lanewise(f"v_cvt_{out}_{of}", out=out, of=(of,), f=_whole(out))
lanewise("v_cvt_i32_i16", out="i32", of=("i16",), f=_cast(np.int32))
lanewise("v_cvt_u32_u16", out="u32", of=("u16",), f=_cast(U32))
lanewise("v_cvt_f32_bf16", out="f32", of=("bf16",), f=bf16_to_f32)
lanewise("v_cvt_rpi_i32_f32", "v_cvt_nearest_i32_f32", out="i32", of=("f32",), f=lambda x: to_integer(np.floor(x.astype(np.float64) + 0.5), "i32"))
lanewise("v_cvt_flr_i32_f32", "v_cvt_floor_i32_f32", out="i32", of=("f32",), f=lambda x: to_integer(np.floor(x), "i32"))
for i in range(4):
    lanewise(f"v_cvt_f32_ubyte{i}", out="f32", of=("b32",), f=lambda x, i=i: (x >> U32(8 * i) & U32(0xFF)).astype(np.float32))


# ------------------------------------------------------------------------------------------------------------- packed
def _pair(low: Array, high: Array) -> Array:
    """Two arrays of 2-byte elements as one of uint32."""
    return np.asarray(low).view(U16).astype(U32) | np.asarray(high).view(U16).astype(U32) << U32(16)


def _packed(f: Any) -> Any:
    return lambda a, b: _pair(f(a), f(b))


def _norm(kind: str, scale: float) -> Any:
    """−1…1, or 0…1, to the integer's range, rounded to nearest even."""
    return lambda x: to_integer(np.rint(np.clip(x.astype(np.float64), -1, 1) * scale), kind)


for names, of, function in (
        (("v_cvt_pkrtz_f16_f32", "v_cvt_pk_rtz_f16_f32"), "f32", to_f16_towards_zero),
        (("v_cvt_pk_f16_f32",), "f32", _cast(np.float16)),
        (("v_cvt_pk_bf16_f32",), "f32", f32_to_bf16),
        (("v_cvt_pk_i16_i32",), "i32", _whole("i16")), (("v_cvt_pk_u16_u32",), "u32", _whole("u16")),
        (("v_cvt_pk_i16_f32",), "f32", _whole("i16")), (("v_cvt_pk_u16_f32",), "f32", _whole("u16")),
        (("v_cvt_pknorm_i16_f32", "v_cvt_pk_norm_i16_f32"), "f32", _norm("i16", 32767)),
        (("v_cvt_pknorm_u16_f32", "v_cvt_pk_norm_u16_f32"), "f32", _norm("u16", 65535)),
        (("v_cvt_pknorm_i16_f16", "v_cvt_pk_norm_i16_f16"), "f16", _norm("i16", 32767)),
        (("v_cvt_pknorm_u16_f16", "v_cvt_pk_norm_u16_f16"), "f16", _norm("u16", 65535))):
    lanewise(*names, out="b32", of=(of, of), f=_packed(function))
lanewise("v_pack_b32_f16", out="b32", of=("f16", "f16"), f=_pair, moves=True)


def _insert_byte(x: Array, position: Array, rest: Array) -> Array:
    shift = (position & U32(3)) * U32(8)
    byte = np.clip(np.rint(np.nan_to_num(x.astype(np.float64))), 0, 255).astype(U32)
    return rest & ~(U32(0xFF) << shift) | byte << shift


lanewise("v_cvt_pk_u8_f32", out="b32", of=("f32", "u32", "b32"), f=_insert_byte)


# -------------------------------------------------------------------------------------------------------- 8-bit floats
def _byte_source(o: Operands, ins: Instruction) -> Read:
    """Source 0's byte: the lowest, or that of SDWA's src0_sel or of byte_sel."""
    select = ins.modifiers.get("byte_sel", 0)
    o.left.discard("byte_sel")
    high = bool(o.op_sel) and o.op_sel[0]
    o.op_sel = ()
    if high:
        raise o.ctx.unknown(ins, "op_sel where byte_sel is expected")
    read = o.source(1, "b32")
    return lambda w: read(w) >> U32(8 * int(select)) & U32(0xFF)


@instruction("v_cvt_f32_fp8", "v_cvt_f32_bf8")
def _from_byte(ins: Instruction, ctx: DecodeContext) -> Step:
    format = float8(ctx.arch, ins.base[-3:])
    o = Operands(ins, ctx)
    read, write = _byte_source(o, ins), o.result(0, "f32")
    o.done()
    return lambda w: write(w, format.decode(read(w)))


@instruction("v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8")
def _from_bytes(ins: Instruction, ctx: DecodeContext) -> Step:
    """Two bytes of one half of the source to two floats."""
    format = float8(ctx.arch, ins.base[-3:])
    o = Operands(ins, ctx)
    read, write = o.source(1, "b16"), o.result(0, "b64")
    o.done()

    def step(w: Waves) -> None:
        pair = format.decode(read(w)[..., None] >> np.array([0, 8], U16) & U16(0xFF))
        write(w, np.ascontiguousarray(pair, np.float32).view(np.uint64)[..., 0])

    return step


@instruction("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32")
def _to_bytes(ins: Instruction, ctx: DecodeContext) -> Step:
    """Two floats to one half of the destination, which keeps the other."""
    format = float8(ctx.arch, ins.base[-7:-4])
    o = Operands(ins, ctx, keeps_half=True)
    a, b, write = o.source(1, "f32"), o.source(2, "f32"), o.result(0, "b16")
    o.done()
    return lambda w: write(w, (format.encode(a(w)) | format.encode(b(w)) << U32(8)).astype(U16))
