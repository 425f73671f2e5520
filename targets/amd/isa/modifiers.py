"""Operands of vector instructions with all that the text can add to them: decided once, when the instruction is decoded.

``Operands(ins, ctx)`` hands out functions that read sources (``source``) and write results (``result``), and ``done`` raises
UnknownInstruction for a modifier that nobody asked for. Sources: ISA manuals, "Vector ALU Operations": input and output modifiers (neg, abs,
clamp, omod), "SDWA", "DPP" (controls, row and bank masks, BOUND_CTRL, FI), OP_SEL of 16-bit operands; for the text LLVM's "Syntax of AMDGPU
Instruction Modifiers". 16-bit results: VOP1, VOP2 and VOPC-like ones of GFX9 clear the register's other half, VOP3-only ones and all of
GFX10 and later keep it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.program import Imm, Instruction, Operand, Reg, Special
from tilewright.targets.amd.isa.valu_numbers import Array, clamp01, flush

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.registry import DecodeContext
    from tilewright.targets.amd.isa.state import Waves

Read = Callable[["Waves"], Array]
Write = Callable[..., None]

DTYPE: dict[str, Any] = {"b16": np.uint16, "u16": np.uint16, "i16": np.int16, "f16": np.float16, "bf16": np.uint16, "b32": np.uint32, "u32": np.uint32,
                         "i32": np.int32, "f32": np.float32, "b64": np.uint64, "u64": np.uint64, "i64": np.int64, "f64": np.float64}
FLOATS = ("f16", "bf16", "f32", "f64")
_UNSIGNED: dict[int, Any] = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_SELECT = {"BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8), "BYTE_3": (24, 8), "WORD_0": (0, 16), "WORD_1": (16, 16), "DWORD": (0, 32)}
_FLOAT_NAME = re.compile(r"_(b?f16|f32|f64|fp8|bf8)(_|$)")
_SDWA = ("dst_sel", "dst_unused", "src0_sel", "src1_sel")
_DPP_MASKS = ("row_mask", "bank_mask", "bound_ctrl", "fi")


def width(kind: str) -> int:
    """Bits."""
    return int(kind.lstrip("bfiu"))


def denormal_mode(ctx: DecodeContext, kind: str) -> tuple[bool, bool]:
    """(flush inputs, flush results) of float operations of ``kind``, from .amdhsa_float_denorm_mode_*: 0 both, 1 results, 2 inputs, 3 none."""
    mode = ctx.kernel.descriptor.get("float_denorm_mode_32" if kind == "f32" else "float_denorm_mode_16_64", 3)
    return mode in (0, 2), mode in (0, 1)


class Operands:
    """Reading and writing of one instruction's operands. ``keeps_half``: a VOP3-only instruction (see the module)."""

    def __init__(self, ins: Instruction, ctx: DecodeContext, keeps_half: bool = False):
        self.ins, self.ctx, self.keeps_half = ins, ctx, keeps_half
        m, mode = ins.modifiers, ctx.kernel.descriptor
        if _FLOAT_NAME.search(ins.base) and any(mode.get(name, 0) for name in ("float_round_mode_32", "float_round_mode_16_64", "fp16_overflow")):
            raise ctx.unknown(ins, "another rounding mode, or saturation by FP16_OVFL")
        self.left = set(m)
        self.sdwa = "_sdwa" in ins.name
        self.dpp = Dpp(ins, ctx) if "_dpp" in ins.name else None
        if self.sdwa:
            self.left -= set(_SDWA)
        elif self.dpp is not None:
            self.left -= {self.dpp.control, *_DPP_MASKS}
        self.op_sel: tuple[int, ...] = ()
        value = m.get("op_sel", ())
        if isinstance(value, tuple) and not ins.base.startswith("v_permlane"):
            self.op_sel = value
            self.left.discard("op_sel")

    # ------------------------------------------------------------------------------------------------------- sources
    def source(self, index: int, kind: str, position: int | None = None, modifiers: bool = True, flushes: bool = True) -> Read:
        """Operand ``index`` as ``kind``; ``position``: which source it is (by default the one before ``index``, after one destination).

        ``modifiers``: floats take neg and abs. ``flushes``: denormals by the kernel's mode (what does arithmetic; not what moves bits).
        """
        position = index - 1 if position is None else position
        operand = self.ins.operands[index]
        read = self._plain(operand, kind, position)
        if kind in FLOATS and modifiers:
            read = self._signed(read, operand, kind)
            if flushes and kind != "bf16" and denormal_mode(self.ctx, kind)[0]:
                inner = read
                read = lambda w: flush(inner(w), kind)  # noqa: E731
        elif operand.neg or operand.abs:
            raise self.ctx.unknown(self.ins, f"sign of {operand.text}")
        return read

    def _plain(self, operand: Operand, kind: str, position: int) -> Read:
        if self.sdwa and position < 2 and f"src{position}_sel" in self.ins.modifiers:
            return self._selected(operand, kind, position)
        if operand.sext:
            raise self.ctx.unknown(self.ins, f"sign extension of {operand.text}")
        read = self._register_or_constant(operand, kind, position)
        if self.dpp is not None and position == 0:
            shift, inner = self.dpp.move, read
            return lambda w: shift(w, inner(w))
        return read

    def _register_or_constant(self, operand: Operand, kind: str, position: int) -> Read:
        high = len(self.op_sel) > position and self.op_sel[position] == 1
        if high and width(kind) != 16:
            raise self.ctx.unknown(self.ins, f"op_sel of an operand of {width(kind)} bits")
        if isinstance(operand, Imm) and isinstance(operand.value, float) and kind in ("b16", "u16", "i16"):
            raise self.ctx.unknown(self.ins, "a float constant of an integer operand of 16 bits")
        if high and not isinstance(operand, Imm):
            whole, dtype = self.ctx.reader(operand, "b32"), DTYPE[kind]
            return lambda w: (whole(w) >> np.uint32(16)).astype(np.uint16).view(dtype)
        return self.ctx.reader(operand, kind)

    def _signed(self, read: Read, operand: Operand, kind: str) -> Read:
        """|x| first, then −x."""
        if not (operand.neg or operand.abs):
            return read
        dtype = _UNSIGNED[width(kind) // 8]
        sign, result = dtype(1 << (width(kind) - 1)), DTYPE[kind]
        if operand.abs and operand.neg:
            return lambda w: (read(w).view(dtype) | sign).view(result)
        if operand.neg:
            return lambda w: (read(w).view(dtype) ^ sign).view(result)
        return lambda w: (read(w).view(dtype) & ~sign).view(result)

    def _selected(self, operand: Operand, kind: str, position: int) -> Read:
        """SDWA: a byte or word of the register, extended to 32 bits; the element type takes its lowest bits."""
        if width(kind) == 64:
            raise self.ctx.unknown(self.ins, "SDWA of an operand of 64 bits")
        select = self.ins.modifiers[f"src{position}_sel"]
        start, bits = _SELECT[select]
        whole, dtype, signed = self.ctx.reader(operand, "b32"), DTYPE[kind], operand.sext
        if bits == 32:
            return self.ctx.reader(operand, kind)
        narrow = {(8, True): np.int8, (8, False): np.uint8, (16, True): np.int16, (16, False): np.uint16}[bits, signed]
        wide: Any = np.int32 if signed else np.uint32
        shift = np.uint32(start)
        if width(kind) == 16:
            return lambda w: (whole(w) >> shift).astype(narrow).astype(wide).astype(np.uint16).view(dtype)
        return lambda w: (whole(w) >> shift).astype(narrow).astype(wide).view(dtype)

    # -------------------------------------------------------------------------------------------------------- results
    def result(self, index: int, kind: str, arithmetic: bool = True) -> Write:
        """Writes operand ``index`` from an array of ``kind``'s type, through omod, clamp and flushing (``arithmetic``), DPP masks, SDWA, halves."""
        operand = self.ins.operands[index]
        write = self._store(operand, kind)
        if kind not in FLOATS or not arithmetic:
            return write
        steps = self._float_steps(kind)
        if not steps:
            return write
        if kind == "bf16":
            raise self.ctx.unknown(self.ins, "a modifier of a bf16 result")

        def finish(w: Waves, value: Array) -> None:
            for step in steps:
                value = step(value)
            write(w, value)

        return finish

    def _float_steps(self, kind: str) -> list[Callable[[Array], Array]]:
        m, steps = self.ins.modifiers, list[Callable[[Array], Array]]()
        mode = self.ctx.kernel.descriptor
        dtype = DTYPE[kind]
        for name, scale in (("mul", {2: 2.0, 4: 4.0}), ("div", {2: 0.5})):
            if name in m:
                self.left.discard(name)
                factor = dtype(scale[m[name]])
                steps.append(lambda x: x * factor)
        if kind != "bf16" and denormal_mode(self.ctx, kind)[1]:
            steps.append(lambda x: flush(x, kind))
        if "clamp" in m:
            self.left.discard("clamp")
            to_zero = bool(mode.get("dx10_clamp", 1))
            steps.append(lambda x: clamp01(x, to_zero))
        return steps

    def clamps(self) -> bool:
        """Whether the instruction saturates; for integers, whose makers do it themselves."""
        self.left.discard("clamp")
        return "clamp" in self.ins.modifiers

    def _store(self, operand: Operand, kind: str) -> Write:
        if self.sdwa and "dst_sel" in self.ins.modifiers:
            return self._placed(operand, kind)
        high = bool(getattr(operand, "hi", None))
        if width(kind) == 16 and isinstance(operand, Reg) and operand.kind == "v":
            explicit = operand.hi is not None
            # an op_sel as long as the operands has the destination's bit last
            high |= len(self.op_sel) == len(self.ins.operands) and self.op_sel[-1] == 1
            if self.ctx.generation == 9 and not self.keeps_half and not explicit and not high:
                return self._masked(_zero_extend(self.ctx.writer(operand, "b32")))
            k = operand.first
            return self._masked(lambda w, value, mask=None: w.set_vgpr16(k, value, high, mask))
        return self._masked(self.ctx.writer(operand, kind))

    def _masked(self, write: Write) -> Write:
        if self.dpp is None:
            return write
        mask = self.dpp.mask
        return lambda w, value: write(w, value, mask(w))

    def _placed(self, operand: Operand, kind: str) -> Write:
        """SDWA: the result in one byte or word of the register; the rest is cleared, filled with its sign, or kept."""
        start, bits = _SELECT[self.ins.modifiers["dst_sel"]]
        unused = self.ins.modifiers.get("dst_unused", "UNUSED_PRESERVE")
        write, read = self.ctx.writer(operand, "b32"), self.ctx.reader(operand, "b32")
        field = np.uint32(((1 << bits) - 1) << start)
        sign = np.uint32((0xFFFFFFFF << (start + bits)) & 0xFFFFFFFF)

        def put(w: Waves, value: Array) -> None:
            raw = np.asarray(value)
            raw = raw.view(_UNSIGNED[raw.dtype.itemsize]).astype(np.uint32)
            out = (raw << np.uint32(start)) & field
            if unused == "UNUSED_SEXT":
                out = np.where(out >> np.uint32(start + bits - 1) & np.uint32(1), out | sign, out)
            elif unused == "UNUSED_PRESERVE":
                out = out | (read(w) & ~field)
            write(w, out)

        if unused not in ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"):
            raise self.ctx.unknown(self.ins, f"dst_unused:{unused}")
        return put

    # ------------------------------------------------------------------------------------------------------ lane masks
    def mask_source(self, index: int) -> Read:
        """A scalar operand as a bool (n, lanes): carries and conditions."""
        read = self.ctx.reader(self.ins.operands[index], "mask")
        # many instructions select by the same masks again and again; one tuple, since threads may share decoded code
        last: list[tuple[Array, Array]] = []

        def mask(w: Waves) -> Array:
            value = read(w).reshape(-1)
            if last:
                old, bits = last[0]
                if old.shape == value.shape and len(bits) == w.n and (old == value).all():
                    return bits
            bits = w.sgpr_to_mask(np.broadcast_to(value, (w.n,)))
            last[:] = [(value.copy(), bits)]
            return bits

        return mask

    def mask_result(self, index: int) -> Write:
        """Writes a scalar operand from a bool (n, lanes); inactive lanes give 0."""
        write, dpp = self.ctx.writer(self.ins.operands[index], "mask"), self.dpp

        def put(w: Waves, value: Array) -> None:
            if not w.full:
                value = value & w.exec_mask
            moved = None if dpp is None else dpp.mask(w)
            if moved is not None:
                value = value & moved
            write(w, w.mask_to_sgpr(value))

        return put

    def done(self) -> None:
        """Raises UnknownInstruction for what nobody asked for."""
        for name in self.left:
            raise self.ctx.unknown(self.ins, f"modifier {name}:{self.ins.modifiers[name]}")


def _zero_extend(write: Write) -> Write:
    return lambda w, value, mask=None: write(w, np.asarray(value).view(np.uint16).astype(np.uint32), mask)


def is_scalar(operand: Operand) -> bool:
    return isinstance(operand, Special) or (isinstance(operand, Reg) and operand.kind in ("s", "ttmp"))


class Dpp:
    """Data-parallel primitives: which lane source 0 of each lane comes from, and which lanes are written.

    A lane whose source lies outside its row (or wave), or is inactive without ``fi``, reads 0 if ``bound_ctrl`` is given and else is not
    written. DPP8 has no ``bound_ctrl``: it reads 0.
    """

    def __init__(self, ins: Instruction, ctx: DecodeContext):
        m, lanes = ins.modifiers, np.arange(ctx.lanes)
        self.fi = bool(m.get("fi", 0))
        controls = [name for name in m if name in _CONTROLS]
        if len(controls) != 1:
            raise ctx.unknown(ins, f"DPP controls {controls}")
        self.control = controls[0]
        if self.control in _ONLY_GFX9 and ctx.generation != 9 or self.control in ("row_xmask", "row_share", "dpp8") and ctx.generation == 9:
            raise ctx.unknown(ins, f"{self.control} of another generation")
        source = _CONTROLS[self.control](lanes, m[self.control], ctx.lanes)
        inside = source >= 0
        self.source = np.where(inside, source, 0)
        self.zero = bool(m.get("bound_ctrl", 0)) or "bound_ctrl" in m or self.control == "dpp8"
        rows, banks = int(m.get("row_mask", 15)), int(m.get("bank_mask", 15))
        self.selected = ((rows >> (lanes // 16 % 4)) & 1 == 1) & ((banks >> (lanes // 4 % 4)) & 1 == 1)
        self.inside, self.all_inside = inside, bool(inside.all())
        self.everything = bool(self.selected.all())

    def _valid(self, w: Waves) -> Array | None:
        """bool (n, lanes) or (lanes,), None if all are."""
        if self.fi or w.full:
            return None if self.all_inside else self.inside
        return w.exec_mask[:, self.source] & self.inside

    def move(self, w: Waves, value: Array) -> Array:
        """The sources' lanes moved; invalid ones are 0 (where it is ``bound_ctrl`` that decides, else they are not written)."""
        value = np.broadcast_to(value, (w.n, w.lanes))[:, self.source]
        valid = self._valid(w)
        return value if valid is None else np.where(valid, value, value.dtype.type(0))

    def mask(self, w: Waves) -> Array | None:
        """The lanes that are written, besides EXEC; None: all."""
        mask = None if self.everything else self.selected
        if not self.zero:
            valid = self._valid(w)
            if valid is not None:
                mask = valid if mask is None else valid & mask
        return None if mask is None else np.broadcast_to(mask, (w.n, w.lanes))


def _row(lanes: Array, position: Array) -> Array:
    """Lane ``position`` of each lane's row of 16; −1 outside the row."""
    return np.where((position >= 0) & (position < 16), lanes // 16 * 16 + position, -1)


def _wave(position: Array, count: int) -> Array:
    return np.where((position >= 0) & (position < count), position, -1)


_CONTROLS: dict[str, Callable[[Array, Any, int], Array]] = {
    "quad_perm": lambda lanes, v, n: lanes // 4 * 4 + np.array(v)[lanes % 4],
    "dpp8": lambda lanes, v, n: lanes // 8 * 8 + np.array(v)[lanes % 8],
    "row_shl": lambda lanes, v, n: _row(lanes, lanes % 16 + v),
    "row_shr": lambda lanes, v, n: _row(lanes, lanes % 16 - v),
    "row_ror": lambda lanes, v, n: _row(lanes, (lanes - v) % 16),
    "row_mirror": lambda lanes, v, n: _row(lanes, 15 - lanes % 16),
    "row_half_mirror": lambda lanes, v, n: lanes // 8 * 8 + 7 - lanes % 8,
    "row_newbcast": lambda lanes, v, n: _row(lanes, np.full_like(lanes, v)),
    "row_share": lambda lanes, v, n: _row(lanes, np.full_like(lanes, v)),
    "row_xmask": lambda lanes, v, n: _row(lanes, lanes % 16 ^ v),
    "row_bcast": lambda lanes, v, n: np.where(lanes > 15, lanes // 16 * 16 - 1, -1) if v == 15 else np.where(lanes >= 32, 31, -1),
    "wave_shl": lambda lanes, v, n: _wave(lanes + v, n),
    "wave_shr": lambda lanes, v, n: _wave(lanes - v, n),
    "wave_rol": lambda lanes, v, n: (lanes + v) % n,
    "wave_ror": lambda lanes, v, n: (lanes - v) % n,
}
_ONLY_GFX9 = ("row_bcast", "wave_shl", "wave_shr", "wave_rol", "wave_ror", "row_newbcast")
