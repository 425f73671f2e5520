"""Makers of lane-by-lane instructions: one destination, one to four sources, a numpy function between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.targets.amd.isa.modifiers import DTYPE, Operands, Read, denormal_mode
from tilewright.targets.amd.isa.program import Instruction
from tilewright.targets.amd.isa.registry import DecodeContext, Maker, Step, instruction
from tilewright.targets.amd.isa.valu_numbers import flush

Function = Callable[..., Any]


def apply(read: Sequence[Read], f: Function, write: Callable[..., None]) -> Step:
    """write(f(sources)), with the number of sources written out: this runs for every instruction."""
    if len(read) == 1:
        a, = read
        return lambda w: write(w, f(a(w)))
    if len(read) == 2:
        a, b = read
        return lambda w: write(w, f(a(w), b(w)))
    if len(read) == 3:
        a, b, c = read
        return lambda w: write(w, f(a(w), b(w), c(w)))
    return lambda w: write(w, f(*[r(w) for r in read]))


def lanewise(*names: str, out: str, of: Sequence[str], f: Function | None = None, chosen: Callable[[DecodeContext], Function] | None = None,
             accumulates: bool = False, keeps_half: bool = False, saturating: Function | None = None, moves: bool = False) -> None:
    """Registers ``names``: results of kind ``out`` from sources of kinds ``of`` by ``f``, or by what ``chosen(ctx)`` gives.

    accumulates: the destination's old value is the last source, which the text does not repeat. keeps_half: of 16-bit results, see modifiers.
    saturating: for integers, the same operation over int64 arrays, whose result is held within ``out``'s range where the text says clamp.
    moves: floats only change places, so that denormals stay.
    """
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        o = Operands(ins, ctx, keeps_half)
        written = len(of) - int(accumulates)
        if len(ins.operands) != written + 1:
            raise ctx.unknown(ins, f"{len(ins.operands)} operands instead of {written + 1}")
        read = [o.source(i + 1, kind, i, flushes=not moves) for i, kind in enumerate(of[:written])]
        if accumulates:
            read.append(_old(o, of[-1]))
        function = chosen(ctx) if chosen is not None else f
        assert function is not None
        if saturating is not None and o.clamps():
            function = _held(saturating, out)
        write = o.result(0, out, arithmetic=not moves)
        o.done()
        return apply(read, function, write)

    maker: Maker = make
    instruction(*names)(maker)


def _old(o: Operands, kind: str) -> Read:
    """The destination as a source, never moved by DPP or selected by SDWA."""
    read = o.ctx.reader(o.ins.operands[0], kind)
    if kind in ("f16", "f32", "f64") and denormal_mode(o.ctx, kind)[0]:
        return lambda w: flush(read(w), kind)
    return read


def _held(f: Function, kind: str) -> Function:
    """``f`` over int64, held within the range of ``kind`` ("u16", "i32", …)."""
    dtype = DTYPE[kind]
    info = np.iinfo(dtype)

    def held(*args: Any) -> Any:
        return np.clip(f(*[a.astype(np.int64) for a in args]), info.min, info.max).astype(dtype)

    return held
