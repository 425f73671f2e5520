"""VOP3P: two 16-bit or two 32-bit operations at once, products of mixed precision, and dot products. ISA manuals, "VOP3P".

op_sel and op_sel_hi choose the half that the low and the high result takes of each source; neg_lo and neg_hi flip their signs. Constants of
16-bit operations lie in the low half. Exact, but for v_dot2 of floats: the manuals do not say how it rounds; here each product, exact, is
added with one rounding, the low one first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.targets.amd.isa.modifiers import DTYPE, Operands, Read, Write, denormal_mode
from tilewright.targets.amd.isa.program import Imm, Instruction, Reg
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.state import Waves
from tilewright.targets.amd.isa.valu_float import _ieee
from tilewright.targets.amd.isa.valu_numbers import (
    Array,
    bf16_to_f32,
    clamp01,
    flush,
    fma16,
    fma32,
    max_number,
    maximum,
    min_number,
    minimum,
)

U16, U32, I64 = np.uint16, np.uint32, np.int64
Function = Callable[..., Any]


class Packed(Operands):
    """Operands of VOP3P: the half of each source that each half of the result takes, and its sign."""

    def __init__(self, ins: Instruction, ctx: DecodeContext, sources: int, high_default: int = 1):
        super().__init__(ins, ctx)
        m = ins.modifiers
        self.select = (self._bits("op_sel", 0, sources), self._bits("op_sel_hi", high_default, sources))
        self.negate = (self._bits("neg_lo", 0, sources), self._bits("neg_hi", 0, sources))
        self.op_sel = ()
        self.left -= {"op_sel", "op_sel_hi", "neg_lo", "neg_hi"}
        self.plain = all(s == (0, 1) for s in zip(*self.select)) and not any(self.negate[0] + self.negate[1]) and self.dpp is None
        self.clamp = "clamp" in m
        self.left.discard("clamp")

    def _bits(self, name: str, default: int, count: int) -> tuple[int, ...]:
        bits = self.ins.modifiers.get(name, (default,) * count)
        if not isinstance(bits, tuple) or len(bits) != count:
            raise self.ctx.unknown(self.ins, f"{name}:{bits}")
        return bits

    def half(self, index: int, kind: str, part: int) -> Read:
        """The 16 bits of source ``index`` (from 0) that the low (``part`` 0) or high result takes, as ``kind``."""
        operand = self.ins.operands[index + 1]
        if operand.neg or operand.abs:
            raise self.ctx.unknown(self.ins, f"sign of {operand.text}")
        whole = self.ctx.reader(operand, "pk16")
        shift, dtype = U32(16 * self.select[part][index]), DTYPE[kind]
        sign = U16(0x8000 if self.negate[part][index] else 0)
        if sign and kind not in ("f16", "bf16"):
            raise self.ctx.unknown(self.ins, "sign of an integer")
        flushes = kind == "f16" and denormal_mode(self.ctx, "f16")[0]

        def read(w: Waves) -> Array:
            x = ((whole(w) >> shift).astype(U16) ^ sign).view(dtype)
            return flush(x, "f16") if flushes else x

        if self.dpp is not None and index == 0:
            move = self.dpp.move
            return lambda w: move(w, read(w))
        return read


def _finish16(kind: str, o: Packed, f: Function, wide: Function | None) -> Function:
    """``f`` with saturation."""
    if kind == "f16":
        flushes, to_zero = denormal_mode(o.ctx, "f16")[1], bool(o.ctx.kernel.descriptor.get("dx10_clamp", 1))
        if not (flushes or o.clamp):
            return f

        def finish(*args: Array) -> Array:
            x = f(*args)
            x = flush(x, "f16") if flushes else x
            return clamp01(x, to_zero) if o.clamp else x

        return finish
    if not o.clamp:
        return f
    if wide is None:
        raise o.ctx.unknown(o.ins, "saturation")
    info, dtype, exact = np.iinfo(DTYPE[kind]), DTYPE[kind], wide
    return lambda *args: np.clip(exact(*[a.astype(I64) for a in args]), info.min, info.max).astype(dtype)


def packed16(name: str, kind: str, sources: int, f: Function | None = None, chosen: Callable[[DecodeContext], Function] | None = None,
             wide: Function | None = None) -> None:
    """Registers an operation on pairs of ``kind``. ``wide``: over int64, for saturation."""
    @instruction(name)
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        o = Packed(ins, ctx, sources)
        if len(ins.operands) != sources + 1:
            raise ctx.unknown(ins, "number of operands")
        function = chosen(ctx) if chosen is not None else f
        assert function is not None
        function = _finish16(kind, o, function, wide)
        write: Write = o.result(0, "b32")
        vectors = [x.first for x in ins.operands[1:] if isinstance(x, Reg) and x.kind == "v"]
        if o.plain and len(vectors) == sources and not (kind == "f16" and denormal_mode(ctx, "f16")[0]):
            o.done()
            dtype = DTYPE[kind]
            # pairs lie side by side, so that one operation does both
            return lambda w: write(w, function(*[w.vgpr(k).view(dtype) for k in vectors]).view(U32))
        low = [o.half(i, kind, 0) for i in range(sources)]
        high = [o.half(i, kind, 1) for i in range(sources)]
        o.done()

        def step(w: Waves) -> None:
            x, y = function(*[r(w) for r in low]), function(*[r(w) for r in high])
            write(w, x.view(U16).astype(U32) | y.view(U16).astype(U32) << U32(16))

        return step


def _three(make: Callable[[str], Function]) -> Function:
    f = make("f16")
    return lambda a, b, c: f(f(a, b), c)


packed16("v_pk_add_f16", "f16", 2, np.add)
packed16("v_pk_mul_f16", "f16", 2, np.multiply)
packed16("v_pk_fma_f16", "f16", 3, fma16)
packed16("v_pk_max_f16", "f16", 2, chosen=lambda ctx: max_number("f16", _ieee(ctx)))
packed16("v_pk_min_f16", "f16", 2, chosen=lambda ctx: min_number("f16", _ieee(ctx)))
packed16("v_pk_max_num_f16", "f16", 2, max_number("f16", False))
packed16("v_pk_min_num_f16", "f16", 2, min_number("f16", False))
packed16("v_pk_maximum_f16", "f16", 2, maximum("f16"))
packed16("v_pk_minimum_f16", "f16", 2, minimum("f16"))
packed16("v_pk_maximum3_f16", "f16", 3, _three(maximum))
packed16("v_pk_minimum3_f16", "f16", 3, _three(minimum))
for k in ("u16", "i16"):
    packed16(f"v_pk_add_{k}", k, 2, np.add, wide=np.add)
    packed16(f"v_pk_sub_{k}", k, 2, np.subtract, wide=np.subtract)
    packed16(f"v_pk_mad_{k}", k, 3, lambda a, b, c: a * b + c, wide=lambda a, b, c: a * b + c)
    packed16(f"v_pk_min_{k}", k, 2, np.minimum)
    packed16(f"v_pk_max_{k}", k, 2, np.maximum)
packed16("v_pk_mul_lo_u16", "u16", 2, np.multiply)
packed16("v_pk_lshlrev_b16", "u16", 2, lambda a, b: b << (a & U16(15)))
packed16("v_pk_lshrrev_b16", "u16", 2, lambda a, b: b >> (a & U16(15)))
packed16("v_pk_ashrrev_i16", "i16", 2, lambda a, b: b >> (a & np.int16(15)))


# ----------------------------------------------------------------------------------------------------------- pairs of f32
def _word(o: Packed, index: int, part: int, kind: str) -> Read:
    """One 32-bit half of source ``index``: a register of a pair. A constant has only its low half."""
    operand = o.ins.operands[index + 1]
    chosen = o.select[part][index]
    if isinstance(operand, Imm):
        if chosen and operand.value != 0:  # of 0 both halves are, however a constant is widened
            raise o.ctx.unknown(o.ins, "the high half of a constant")
        one: Any = operand
    elif isinstance(operand, Reg) and operand.count == 2:
        one = Reg(text=operand.text, kind=operand.kind, first=operand.first + chosen)
    else:
        raise o.ctx.unknown(o.ins, f"operand {operand.text}")
    read = o.ctx.reader(one, kind)
    if operand.neg or operand.abs:
        raise o.ctx.unknown(o.ins, f"sign of {operand.text}")
    flushes = kind == "f32" and denormal_mode(o.ctx, "f32")[0]
    if flushes:
        inner = read
        read = lambda w: flush(inner(w), "f32")  # noqa: E731
    if o.negate[part][index]:
        return lambda w: (read(w).view(U32) ^ U32(0x80000000)).view(np.float32)
    return read


def packed32(name: str, sources: int, f: Function) -> None:
    @instruction(name)
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        o = Packed(ins, ctx, sources)
        target = ins.operands[0]
        if not isinstance(target, Reg) or target.kind != "v":
            raise ctx.unknown(ins, "destination")
        reads = [[_word(o, i, part, "f32") for i in range(sources)] for part in (0, 1)]
        flushes, to_zero = denormal_mode(ctx, "f32")[1], bool(ctx.kernel.descriptor.get("dx10_clamp", 1))
        o.done()
        first = target.first

        def step(w: Waves) -> None:
            out = [f(*[r(w) for r in half]) for half in reads]  # both before either is written
            for part, x in enumerate(out):
                x = flush(x, "f32") if flushes else x
                w.set_vgpr(first + part, clamp01(x, to_zero) if o.clamp else x)

        return step


packed32("v_pk_add_f32", 2, np.add)
packed32("v_pk_mul_f32", 2, np.multiply)
packed32("v_pk_fma_f32", 3, fma32)


@instruction("v_pk_mov_b32")
def _pk_mov(ins: Instruction, ctx: DecodeContext) -> Step:
    """The low result is half op_sel[0] of source 0, the high one half op_sel[1] of source 1."""
    o = Packed(ins, ctx, 2)
    target = ins.operands[0]
    if not isinstance(target, Reg) or any(o.negate[0] + o.negate[1]) or o.clamp:
        raise ctx.unknown(ins, "operands")
    o.select = (o.select[0], (0, o.select[0][1]))
    low, high = _word(o, 0, 0, "b32"), _word(o, 1, 1, "b32")
    o.done()
    first = target.first

    def step(w: Waves) -> None:
        x, y = low(w).copy(), high(w).copy()
        w.set_vgpr(first, x)
        w.set_vgpr(first + 1, y)

    return step


# -------------------------------------------------------------------------------------------------- mixed precision
@instruction("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
def _mix(ins: Instruction, ctx: DecodeContext) -> Step:
    """fma of f32 sources, or f16 ones (op_sel_hi) of the half op_sel. The f16 result is the f32 one rounded again; its other half stays."""
    o = Packed(ins, ctx, 3, high_default=0)
    reads: list[Read] = []
    for i in range(3):
        operand = ins.operands[i + 1]
        if any((o.negate[0][i], o.negate[1][i])):
            raise ctx.unknown(ins, "neg_lo and neg_hi")
        if o.select[1][i]:
            read = _f16_half(ctx.reader(operand, "pk16"), o.select[0][i])
        elif o.select[0][i]:
            raise ctx.unknown(ins, "the high half of an f32")
        else:
            read = ctx.reader(operand, "f32")
        if denormal_mode(ctx, "f32")[0] or denormal_mode(ctx, "f16")[0]:
            raise ctx.unknown(ins, "flushed denormals")
        if o.dpp is not None and i == 0:
            raise ctx.unknown(ins, "DPP")
        reads.append(o._signed(read, operand, "f32"))
    a, b, c = reads
    to_zero = bool(ctx.kernel.descriptor.get("dx10_clamp", 1))
    clamp = (lambda x: clamp01(x, to_zero)) if o.clamp else (lambda x: x)
    target = ins.operands[0]
    if not isinstance(target, Reg):
        raise ctx.unknown(ins, "destination")
    k = target.first
    o.done()
    if ins.base == "v_fma_mix_f32":
        return lambda w: w.set_vgpr(k, clamp(fma32(a(w), b(w), c(w))))
    high = ins.base == "v_fma_mixhi_f16"
    return lambda w: w.set_vgpr16(k, clamp(fma32(a(w), b(w), c(w))).astype(np.float16), high)


def _f16_half(whole: Read, high: int) -> Read:
    return lambda w: (whole(w) >> U32(16 * high)).astype(U16).view(np.float16).astype(np.float32)


# ------------------------------------------------------------------------------------------------------ dot products
def _parts(x: Array, bits: int, signed: bool) -> Array:
    """(…, 32 / bits) integers of each 32-bit element, as int64."""
    parts = x[..., None] >> np.arange(0, 32, bits, dtype=U32) & U32((1 << bits) - 1)
    out = parts.astype(I64)
    return np.where(out >> (bits - 1), out - (1 << bits), out) if signed else out


def _dot_int(bits: int, signed: tuple[bool, bool], unsigned_out: bool, accumulates: bool = False, chosen: bool = False) -> Any:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        given = 2 if accumulates else 3
        o: Operands = Operands(ins, ctx) if accumulates else Packed(ins, ctx, given)
        signs = signed
        clamps = o.clamps()
        if isinstance(o, Packed):
            clamps = o.clamp
            if chosen:  # neg_lo says which source is signed
                signs = (bool(o.negate[0][0]), bool(o.negate[0][1]))
            elif any(o.negate[0]):
                raise ctx.unknown(ins, "neg_lo")
            if any(o.negate[1]) or any(o.select[0]) or not all(o.select[1]):
                raise ctx.unknown(ins, "op_sel or neg_hi")
        a, b = o.source(1, "b32", 0), o.source(2, "b32", 1)
        c = ctx.reader(ins.operands[0 if accumulates else 3], "u32" if unsigned_out else "i32")
        write = o.result(0, "b32")
        o.done()
        low, high = (0, 0xFFFFFFFF) if unsigned_out else (-(1 << 31), (1 << 31) - 1)

        def step(w: Waves) -> None:
            total = (_parts(a(w), bits, signs[0]) * _parts(b(w), bits, signs[1])).sum(-1) + c(w).astype(I64)
            write(w, (np.clip(total, low, high) if clamps else total).astype(I64).astype(U32))

        return step

    return make


for bits in (4, 8, 16):
    n = 32 // bits
    instruction(f"v_dot{n}_i32_i{bits}")(_dot_int(bits, (True, True), False))
    instruction(f"v_dot{n}_u32_u{bits}")(_dot_int(bits, (False, False), True))
    instruction(f"v_dot{n}c_i32_i{bits}")(_dot_int(bits, (True, True), False, accumulates=True))
    if bits < 16:
        instruction(f"v_dot{n}_i32_iu{bits}")(_dot_int(bits, (False, False), False, chosen=True))


def _dot2(kind: str, accumulates: bool) -> Any:
    def decode(bits: Array) -> Array:
        return bf16_to_f32(bits) if kind == "bf16" else bits.astype(np.float32)

    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        if accumulates:
            o = Operands(ins, ctx)
            whole = [o.source(i + 1, "b32", i) for i in range(2)]
            shifts = ((0, 0), (16, 16))
            flips = ((0, 0), (0, 0))
        else:
            p = Packed(ins, ctx, 3)
            o, shifts = p, tuple((16 * p.select[part][0], 16 * p.select[part][1]) for part in (0, 1))  # type: ignore[assignment]
            flips = tuple((p.negate[part][0] << 15, p.negate[part][1] << 15) for part in (0, 1))  # type: ignore[assignment]
            whole = [ctx.reader(x, "pk16") for x in ins.operands[1:3]]
            if p.clamp or p.negate[1][2]:
                raise ctx.unknown(ins, "clamp, or sign of the sum")
        addend = ctx.reader(ins.operands[0 if accumulates else 3], "f32")
        sign = U32(0 if accumulates else p.negate[0][2] << 31)
        write = o.result(0, "f32")
        o.done()
        dtype = DTYPE[kind]

        def part(x: Array, shift: int, flip: int) -> Array:
            return decode(((x >> U32(shift)).astype(U16) ^ U16(flip)).view(dtype))

        def step(w: Waves) -> None:
            a, b = whole[0](w), whole[1](w)
            total = (addend(w).view(U32) ^ sign).view(np.float32)
            for (i, j), (s, t) in zip(shifts, flips):
                total = fma32(part(a, i, s), part(b, j, t), total)
            write(w, total)

        return step

    return make


for kind in ("f16", "bf16"):
    instruction(f"v_dot2_f32_{kind}")(_dot2(kind, False))
    instruction(f"v_dot2c_f32_{kind}", *((f"v_dot2acc_f32_{kind}",) if kind == "f16" else ()))(_dot2(kind, True))
