"""Scalar float instructions of gfx11.5 and gfx12 (RDNA 4 manual, "Scalar ALU Floating Point" and the instruction pages), and v_s_*, the vector unit's
transcendental functions on scalar registers ("Pseudo-scalar transcendental ALU instructions").

Denormals are kept where the kernel's mode keeps them; another mode is not simulated. Functions that hardware approximates are rounded
correctly here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.program import Instruction
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.salu import compare
from tilewright.targets.amd.isa.state import scalar_reader, scalar_writer
from tilewright.targets.amd.isa.valu_numbers import fma16, fma32

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any
_SIZE = {"f16": "b16", "f32": "b32"}


def _check_mode(ins: Instruction, ctx: DecodeContext, kind: str) -> None:
    name = "float_denorm_mode_32" if kind == "f32" else "float_denorm_mode_16_64"
    if ctx.generation < 11:
        raise ctx.unknown(ins, "scalar floats came with gfx11.5")
    if ctx.kernel.descriptor.get(name, 3) != 3:
        raise ctx.unknown(ins, "a mode that flushes denormals")
    ctx.only(ins)


def _write_half(operand: Any) -> Callable[[Waves, Array], None]:
    """16-bit results of scalar instructions: the high half of the register becomes 0."""
    write = scalar_writer(operand)
    return lambda w, value: write(w, np.asarray(value).view(np.uint16).astype(np.uint32))


def _define(names: str, kinds: str, out: str, function: Callable[..., Array]) -> None:
    """D = function(operands) of the kinds given, one letter group each ("f32 f32")."""
    sources = kinds.split()

    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        for kind in (*sources, out):
            if kind in _SIZE:
                _check_mode(ins, ctx, kind)
        if len(ins.operands) != 1 + len(sources) or any(o.neg or o.abs for o in ins.operands):
            raise ctx.unknown(ins, "operands")
        reads = [scalar_reader(o, k) for o, k in zip(ins.operands[1:], sources)]
        write = _write_half(ins.operands[0]) if out in ("f16", "b16") else scalar_writer(ins.operands[0])
        dtype = {"f16": np.float16, "f32": np.float32}.get(out)

        def step(w: Waves) -> None:
            values = [np.atleast_1d(r(w)) for r in reads]
            result = function(*values)
            write(w, np.broadcast_to(result if dtype is None else result.astype(dtype), (w.n,)).copy())

        return step

    instruction(*names.split())(make)


def _number(pick: Callable[[Array, Array], Array], smaller: bool) -> Callable[[Array, Array], Array]:
    """minimumNumber and maximumNumber: the other operand for a NaN; −0 is below +0."""
    def run(a: Array, b: Array) -> Array:
        chosen = pick(a, b)
        zeros = (a == 0) & (b == 0)
        negative = np.signbit(a) | np.signbit(b) if smaller else np.signbit(a) & np.signbit(b)
        return np.where(zeros, np.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0)), chosen)

    return run


def _propagating(pick: Callable[[Array, Array], Array], smaller: bool) -> Callable[[Array, Array], Array]:
    """minimum and maximum of IEEE 754-2019: NaN if either is."""
    number = _number(pick, smaller)
    return lambda a, b: np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), number(a, b))


for _k in ("f32", "f16"):
    _two = f"{_k} {_k}"
    _define(f"s_add_{_k}", _two, _k, lambda a, b: a + b)
    _define(f"s_sub_{_k}", _two, _k, lambda a, b: a - b)
    _define(f"s_mul_{_k}", _two, _k, lambda a, b: a * b)
    _define(f"s_min_num_{_k} s_min_{_k}", _two, _k, _number(np.fmin, True))
    _define(f"s_max_num_{_k} s_max_{_k}", _two, _k, _number(np.fmax, False))
    _define(f"s_minimum_{_k}", _two, _k, _propagating(np.fmin, True))
    _define(f"s_maximum_{_k}", _two, _k, _propagating(np.fmax, False))
    _define(f"s_ceil_{_k}", _k, _k, np.ceil)
    _define(f"s_floor_{_k}", _k, _k, np.floor)
    _define(f"s_trunc_{_k}", _k, _k, np.trunc)
    _define(f"s_rndne_{_k}", _k, _k, np.rint)
    compare(f"s_cmp_lt_{_k}", _k, lambda a, b: a < b)
    compare(f"s_cmp_eq_{_k}", _k, lambda a, b: a == b)
    compare(f"s_cmp_le_{_k}", _k, lambda a, b: a <= b)
    compare(f"s_cmp_gt_{_k}", _k, lambda a, b: a > b)
    compare(f"s_cmp_lg_{_k}", _k, lambda a, b: (a < b) | (a > b))
    compare(f"s_cmp_ge_{_k}", _k, lambda a, b: a >= b)
    compare(f"s_cmp_o_{_k}", _k, lambda a, b: ~(np.isnan(a) | np.isnan(b)))
    compare(f"s_cmp_u_{_k}", _k, lambda a, b: np.isnan(a) | np.isnan(b))
    compare(f"s_cmp_nge_{_k}", _k, lambda a, b: ~(a >= b))
    compare(f"s_cmp_nlg_{_k}", _k, lambda a, b: ~((a < b) | (a > b)))
    compare(f"s_cmp_ngt_{_k}", _k, lambda a, b: ~(a > b))
    compare(f"s_cmp_nle_{_k}", _k, lambda a, b: ~(a <= b))
    compare(f"s_cmp_neq_{_k}", _k, lambda a, b: ~(a == b))
    compare(f"s_cmp_nlt_{_k}", _k, lambda a, b: ~(a < b))


def _to_integer(dtype: Any) -> Callable[[Array], Array]:
    """Toward zero; beyond the range its end; NaN gives 0."""
    info = np.iinfo(dtype)

    def run(a: Array) -> Array:
        wide = np.nan_to_num(np.trunc(a.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
        return np.clip(wide, info.min, info.max).astype(np.int64).astype(dtype)

    return run


_define("s_cvt_f32_i32", "i32", "f32", lambda a: a.astype(np.float32))
_define("s_cvt_f32_u32", "u32", "f32", lambda a: a.astype(np.float32))
_define("s_cvt_i32_f32", "f32", "i32", _to_integer(np.int32))
_define("s_cvt_u32_f32", "f32", "u32", _to_integer(np.uint32))
_define("s_cvt_f16_f32", "f32", "f16", lambda a: a.astype(np.float16))
_define("s_cvt_f32_f16", "f16", "f32", lambda a: a.astype(np.float32))
_define("s_cvt_hi_f32_f16", "u32", "f32", lambda a: (a >> np.uint32(16)).astype(np.uint16).view(np.float16).astype(np.float32))

for _k in ("f32", "f16"):
    _define(f"v_s_rcp_{_k}", _k, _k, lambda a: 1 / a.astype(np.float64))
    _define(f"v_s_rsq_{_k}", _k, _k, lambda a: 1 / np.sqrt(a.astype(np.float64)))
    _define(f"v_s_sqrt_{_k}", _k, _k, lambda a: np.sqrt(a.astype(np.float64)))


def _flushed(a: Array) -> Array:
    """Results and operands of v_exp_f32 and v_log_f32 that are denormal become zero."""
    return np.where(np.abs(a) < 2.0**-126, np.copysign(a.dtype.type(0), a), a)


_define("v_s_exp_f32", "f32", "f32", lambda a: _flushed(np.exp2(a.astype(np.float64)).astype(np.float32)))
_define("v_s_log_f32", "f32", "f32", lambda a: np.log2(_flushed(a).astype(np.float64)))
_define("v_s_exp_f16", "f16", "f16", lambda a: np.exp2(a.astype(np.float64)))
_define("v_s_log_f16", "f16", "f16", lambda a: np.log2(a.astype(np.float64)))


def _accumulating(name: str, order: str, kind: str) -> None:
    """s_fmac: D = S0·S1 + D; s_fmamk: S0·K + S1; s_fmaak: S0·S1 + K; one rounding."""
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        _check_mode(ins, ctx, kind)
        target, *sources = ins.operands
        a, b, c = {"fmac": lambda s: (s[0], s[1], target), "fmamk": lambda s: (s[0], s[1], s[2]), "fmaak": lambda s: (s[0], s[1], s[2])}[order](sources)
        reads = [scalar_reader(o, kind) for o in (a, b, c)]
        write = scalar_writer(target) if kind == "f32" else _write_half(target)
        fma = fma32 if kind == "f32" else fma16
        return lambda w: write(w, np.broadcast_to(fma(*(np.atleast_1d(r(w)) for r in reads)), (w.n,)).copy())

    instruction(name)(make)


_accumulating("s_fmac_f32", "fmac", "f32")
_accumulating("s_fmac_f16", "fmac", "f16")
_accumulating("s_fmamk_f32", "fmamk", "f32")
_accumulating("s_fmaak_f32", "fmaak", "f32")


@instruction("s_cvt_pk_rtz_f16_f32")
def _pack(ins: Instruction, ctx: DecodeContext) -> Step:
    """Two floats toward zero to f16, the first into the low half."""
    _check_mode(ins, ctx, "f16")
    a, b = (scalar_reader(o, "f32") for o in ins.operands[1:])
    write = scalar_writer(ins.operands[0])

    def step(w: Waves) -> None:
        low, high = (_toward_zero(np.atleast_1d(x(w))) for x in (a, b))
        write(w, np.broadcast_to(low.view(np.uint16).astype(np.uint32) | high.view(np.uint16).astype(np.uint32) << np.uint32(16), (w.n,)).copy())

    return step


def _toward_zero(a: Array) -> Array:
    near = a.astype(np.float16)
    over = np.abs(near.astype(np.float32)) > np.abs(a)
    return np.where(over, np.nextafter(near, np.float16(0)), near).astype(np.float16)
