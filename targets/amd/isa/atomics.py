"""Atomic instructions of global, flat, buffer and LDS memory: what they do to memory, and the names that each generation gives them.

Manuals, the atomics of "FLAT, global, scratch instructions", "MUBUF instructions" and "LDS instructions". Each lane's operation happens
by itself, in the order of waves and lanes. The address is a multiple of the operand's size, else Misaligned.

Not known to be exact: the memory's floating-point adders may flush denormals (L2 of gfx90a and gfx942 flushes f32 results, says LLVM's user
guide under "amdgpu.ignore.denormal.mode"); here results keep them. Minimum and maximum before gfx12 take the new value only where it compares less
(greater); of gfx12 are IEEE minimumNumber and maximumNumber.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa import buffer_ops, flat_ops, global_ops, lds_ops
from tilewright.targets.amd.isa import transfers as t
from tilewright.targets.amd.isa.errors import Misaligned
from tilewright.targets.amd.isa.memory import offenders
from tilewright.targets.amd.isa.program import Instruction, Operand
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any
Operation = Callable[[Array, Sequence[Array]], Array]


# ------------------------------------------------------------------------------------------------------- operations
def _bits(x: Array, dtype: Any) -> Array:
    return x.view(dtype)


def _minimum(a: Array, b: Array) -> Array:
    return np.where(b < a, b, a)


def _maximum(a: Array, b: Array) -> Array:
    return np.where(b > a, b, a)


def _number(choose: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """IEEE 754-2019 minimumNumber and maximumNumber: a number wins over NaN, −0 is less than +0."""
    def operation(a: Array, b: Array) -> Array:
        found = np.where(np.isnan(a), b, np.where(np.isnan(b), a, choose(a, b)))
        tie = (a == b) & (a == 0)
        smaller = np.where(np.signbit(a), a, b)
        larger = np.where(np.signbit(a), b, a)
        return np.where(tie, smaller if choose is _minimum else larger, found).astype(a.dtype)

    return operation


def _bf16_add(a: Array, b: Array) -> Array:
    """Sum of bfloat16 (uint16): exact to 24 bits in float32, which is enough to round once more to 8."""
    total = (a.astype(np.uint32) << np.uint32(16)).view(np.float32) + (b.astype(np.uint32) << np.uint32(16)).view(np.float32)
    bits = total.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(total), bits >> np.uint32(16) | np.uint32(0x40), rounded).astype(np.uint16)


# name → (old, data, second data or None) → new, on arrays of the type's dtype
_INTEGER: dict[str, Callable[..., Array]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "rsub": lambda a, b: b - a, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b, "swap": lambda a, b: b, "min": np.minimum, "max": np.maximum,
    "inc": lambda a, b: np.where(a >= b, a - a, a + a.dtype.type(1)),
    "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - a.dtype.type(1)),
    "sub_clamp": lambda a, b: np.where(a < b, a - a, a - b),
    "cond_sub": lambda a, b: np.where(a >= b, a - b, a),
    "mskor": lambda a, b, c: (a & ~b) | c, "wrap": lambda a, b, c: np.where(a >= b, a - b, a + c),
}
_FLOAT: dict[str, Callable[..., Array]] = {
    "add": lambda a, b: a + b, "min": _minimum, "max": _maximum, "min_num": _number(_minimum), "max_num": _number(_maximum),
}


@dataclass(frozen=True)
class Atomic:
    """``operation`` on elements of ``dtype`` (packed: two of them), ``sources`` data operands; ``compare``: swaps where the old value is the second."""

    operation: Callable[..., Array] | None
    dtype: Any
    sources: int = 1
    packed: bool = False

    @property
    def size(self) -> int:
        return np.dtype(self.dtype).itemsize * (2 if self.packed else 1)

    def apply(self, old: Array, values: Sequence[Array]) -> Array:
        """Memory's new dwords (dwords, k) from the old ones and the operands' dwords, one operand after another."""
        words = self.size // 4
        before = self._elements(old)
        data = [self._elements(values[i * words: (i + 1) * words]) for i in range(self.sources)]
        with np.errstate(all="ignore"):
            if self.operation is None:  # compare and swap
                new = np.where(before == data[1], data[0], before)
            else:
                new = self.operation(before, *data)
        return np.ascontiguousarray(new.astype(self.dtype)).view(np.uint32).reshape(-1, words).T

    def _elements(self, words: Sequence[Array]) -> Array:
        flat = np.stack([np.ascontiguousarray(v) for v in words], axis=-1)
        return flat.view(self.dtype).reshape(len(flat), -1)


_SIGNED, _UNSIGNED = {4: np.int32, 8: np.int64}, {4: np.uint32, 8: np.uint64}
_REAL: dict[int, Any] = {4: np.float32, 8: np.float64}
_PACKED = {"pk_add_f16": Atomic(_FLOAT["add"], np.float16, packed=True), "pk_add_bf16": Atomic(_bf16_add, np.uint16, packed=True)}
_ALL = ("gfx90a", "gfx942", "gfx950", "gfx10", "gfx11", "gfx12")
_CDNA, _RDNA = _ALL[:3], _ALL[3:]


def _has(ctx: DecodeContext, archs: Sequence[str]) -> bool:
    return any(ctx.arch.startswith(a) for a in archs)


def _memory_names() -> dict[str, tuple[Atomic, Sequence[str]]]:
    """Names after "global_atomic_" and their archs. Operands of the assembler tables of LLVM ("Syntax of … Instructions")."""
    names: dict[str, tuple[Atomic, Sequence[str]]] = {}
    for size, old, bits in ((4, "", "32"), (8, "_x2", "64")):
        u, s, f = _UNSIGNED[size], _SIGNED[size], _REAL[size]
        for name in ("swap", "add", "sub", "and", "or", "xor", "inc", "dec"):
            letter = "b" if name in ("swap", "and", "or", "xor") else "u"
            entry = Atomic(_INTEGER[name], u)
            names[name + old] = entry, _ALL
            names[f"{name}_{letter}{bits}"] = entry, _RDNA[1:]
        for name in ("min", "max"):
            for letter, dtype in (("s", s), ("u", u)):
                entry = Atomic(_INTEGER[name], dtype)
                names[letter + name + old] = entry, _ALL
                names[f"{name}_{'i' if letter == 's' else 'u'}{bits}"] = entry, _RDNA[1:]
            names["f" + name + old] = Atomic(_FLOAT[name], f), ("gfx10", "gfx11") if size == 4 else ("gfx10",)
        names["cmpswap" + old] = Atomic(None, u, 2), _ALL
        names["cmpswap_b" + bits] = Atomic(None, u, 2), _RDNA[1:]
        names["fcmpswap" + old] = Atomic(None, f, 2), ("gfx10", "gfx11") if size == 4 else ("gfx10",)
    names["add_f32"] = Atomic(_FLOAT["add"], np.float32), (*_CDNA, *_RDNA[1:])
    names["add_f64"] = Atomic(_FLOAT["add"], np.float64), _CDNA
    for name in ("min", "max"):
        names[name + "_f64"] = Atomic(_FLOAT[name], np.float64), _CDNA
        names[name + "_f32"] = Atomic(_FLOAT[name], np.float32), ("gfx11",)
        names[name + "_num_f32"] = Atomic(_FLOAT[name + "_num"], np.float32), ("gfx12",)
    names["cmpswap_f32"] = Atomic(None, np.float32, 2), ("gfx11",)
    clamped = Atomic(_INTEGER["sub_clamp"], np.uint32)
    names |= {"csub": (clamped, _RDNA), "csub_u32": (clamped, _RDNA[1:]), "sub_clamp_u32": (clamped, ("gfx12",))}
    names["cond_sub_u32"] = Atomic(_INTEGER["cond_sub"], np.uint32), ("gfx12",)
    names["pk_add_f16"] = _PACKED["pk_add_f16"], (*_CDNA, "gfx12")
    names["pk_add_bf16"] = _PACKED["pk_add_bf16"], ("gfx942", "gfx950", "gfx12")
    return names


def _lds_names() -> dict[str, tuple[Atomic, Sequence[str]]]:
    """Names after "ds_" with {} where "_rtn" stands, and their archs."""
    names: dict[str, tuple[Atomic, Sequence[str]]] = {}
    for size, bits in ((4, "32"), (8, "64")):
        u, s, f = _UNSIGNED[size], _SIGNED[size], _REAL[size]
        for name in ("add", "sub", "rsub", "inc", "dec"):
            names[f"{name}{{}}_u{bits}"] = Atomic(_INTEGER[name], u), _ALL
        for name in ("and", "or", "xor"):
            names[f"{name}{{}}_b{bits}"] = Atomic(_INTEGER[name], u), _ALL
        for name in ("min", "max"):
            names[f"{name}{{}}_i{bits}"] = Atomic(_INTEGER[name], s), _ALL
            names[f"{name}{{}}_u{bits}"] = Atomic(_INTEGER[name], u), _ALL
            names[f"{name}{{}}_f{bits}"] = Atomic(_FLOAT[name], f), _ALL[:-1]
            names[f"{name}_num{{}}_f{bits}"] = Atomic(_FLOAT[name + "_num"], f), ("gfx12",)
        names[f"mskor{{}}_b{bits}"] = Atomic(_INTEGER["mskor"], u, 2), _ALL
        names[f"cmpst{{}}_b{bits}"] = Atomic(None, u, 2), _ALL[:4]
        names[f"cmpst{{}}_f{bits}"] = Atomic(None, f, 2), _ALL[:4]
        names[f"cmpstore{{}}_b{bits}"] = Atomic(None, u, 2), _RDNA[1:]
        names[f"cmpstore{{}}_f{bits}"] = Atomic(None, f, 2), ("gfx11",)
    names["add{}_f32"] = Atomic(_FLOAT["add"], np.float32), _ALL
    names["add{}_f64"] = Atomic(_FLOAT["add"], np.float64), _CDNA
    names["pk_add{}_f16"] = _PACKED["pk_add_f16"], ("gfx942", "gfx950", "gfx12")
    names["pk_add{}_bf16"] = _PACKED["pk_add_bf16"], ("gfx942", "gfx950", "gfx12")
    names["sub_clamp{}_u32"] = Atomic(_INTEGER["sub_clamp"], np.uint32), ("gfx12",)
    names["cond_sub{}_u32"] = Atomic(_INTEGER["cond_sub"], np.uint32), ("gfx12",)
    return names


MEMORY_NAMES, LDS_NAMES = _memory_names(), _lds_names()


def check_aligned(w: Waves, addresses: Array, size: int, mask: Array | None) -> None:
    """Raises Misaligned."""
    bad = (addresses & addresses.dtype.type(size - 1)) != 0
    if mask is not None:
        bad &= mask
    if bad.any():
        wave, lanes, place = offenders(addresses, bad, mask)
        raise Misaligned(f"an atomic of {size} bytes at {place:#x}, which is no multiple of {size}", wave, lanes).at_waves(w)


# ------------------------------------------------------------------------------------------------- global and flat
def _check_arch(ins: Instruction, ctx: DecodeContext, archs: Sequence[str]) -> None:
    if not _has(ctx, archs):
        raise ctx.unknown(ins, f"only {', '.join(archs)} have it")


def _data(ins: Instruction, ctx: DecodeContext, operand: Operand, words: int) -> Callable[[Waves], Array]:
    source = t.vector(operand, ctx, ins, words)
    return lambda w: w.vectors(source.kind, source.first, words)


def _global(atomic: Atomic, archs: Sequence[str]) -> Callable[[Instruction, DecodeContext], Step]:
    words = atomic.size // 4

    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        _check_arch(ins, ctx, archs)
        t.only(ins, ctx)
        gives = t.returns(ins, ctx)
        operands = list(ins.operands)
        if len(operands) != (4 if gives else 3):
            raise ctx.unknown(ins, "its modifiers and its operands disagree on whether it returns")
        regs: t.Registers = ()
        target = None
        if gives:
            target = t.vector(operands.pop(0), ctx, ins, words)
            regs = t.destination(target)
        vaddr, source, saddr = operands
        where, read = global_ops.address(ins, ctx, vaddr, saddr), _data(ins, ctx, source, words * atomic.sources)
        counter = t.load_counter(ctx) if gives else t.store_counter(ctx)

        def step(w: Waves) -> None:
            addresses, values, mask = where(w), read(w), t.mask(w)
            check_aligned(w, addresses, atomic.size, mask)
            w.waits.issue(w, counter, regs)
            old = w.machine.memory.update(w, addresses, atomic.size, values, mask, atomic.apply)
            if target is not None:
                w.set_vectors(target.kind, target.first, old)

        return step

    return make


def _flat(atomic: Atomic, archs: Sequence[str]) -> Callable[[Instruction, DecodeContext], Step]:
    words = atomic.size // 4

    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        _check_arch(ins, ctx, archs)
        t.only(ins, ctx)
        gives = t.returns(ins, ctx)
        operands = list(ins.operands)
        if len(operands) != (3 if gives else 2):
            raise ctx.unknown(ins, "its modifiers and its operands disagree on whether it returns")
        regs: t.Registers = ()
        target = None
        if gives:
            target = t.vector(operands.pop(0), ctx, ins, words)
            regs = t.destination(target)
        where, read = flat_ops.address(ins, ctx, operands[0]), _data(ins, ctx, operands[1], words * atomic.sources)
        counters = flat_ops.counters(ctx, gives)

        def step(w: Waves) -> None:
            addresses, values = where(w), read(w)
            check_aligned(w, addresses, atomic.size, t.mask(w))
            w.waits.issue(w, counters, regs)
            old = flat_ops.update(w, addresses, atomic.size, values, atomic.apply)
            if target is not None:
                w.set_vectors(target.kind, target.first, old)

        return step

    return make


def _buffer(atomic: Atomic, archs: Sequence[str]) -> Callable[[Instruction, DecodeContext], Step]:
    """The old value comes back in the data's registers; out of range it is 0 and nothing is done."""
    words = atomic.size // 4

    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        _check_arch(ins, ctx, archs)
        place = buffer_ops.Place(ins, ctx, 1)
        gives, source = t.returns(ins, ctx), t.vector(ins.operands[0], ctx, ins, words * atomic.sources)
        regs = ((source.kind, source.first, words),) if gives else ()
        counter = t.load_counter(ctx) if gives else t.store_counter(ctx)

        def step(w: Waves) -> None:
            addresses, inside = place.whole(w, atomic.size)
            values = w.vectors(source.kind, source.first, words * atomic.sources)
            check_aligned(w, addresses, atomic.size, inside)
            w.waits.issue(w, counter, regs)
            old = w.machine.memory.update(w, addresses, atomic.size, values, inside, atomic.apply)
            if gives:
                w.set_vectors(source.kind, source.first, old)

        return step

    return make


# what global memory has and the other kinds lack
FLAT_LACKS = {"add_f32": ("gfx90a",), "pk_add_f16": ("gfx90a",), "csub": _RDNA, "csub_u32": ("gfx11",)}
BUFFER_LACKS = {"pk_add_bf16": ("gfx942",)}
for _name, (_atomic, _archs) in MEMORY_NAMES.items():
    instruction(f"global_atomic_{_name}")(_global(_atomic, _archs))
    instruction(f"flat_atomic_{_name}")(_flat(_atomic, [a for a in _archs if a not in FLAT_LACKS.get(_name, ())]))
    instruction(f"buffer_atomic_{_name}")(_buffer(_atomic, [a for a in _archs if a not in BUFFER_LACKS.get(_name, ())]))


# -------------------------------------------------------------------------------------------------------------- LDS
def _lds(atomic: Atomic, archs: Sequence[str], gives: bool, compare_first: bool) -> Callable[[Instruction, DecodeContext], Step]:
    """``compare_first``: ds_cmpst has the comparison before the new value, ds_cmpstore of gfx11 after it."""
    words = atomic.size // 4

    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        _check_arch(ins, ctx, archs)
        imm = lds_ops.one_offset(ins, ctx)
        operands = list(ins.operands)
        target = t.vector(operands.pop(0), ctx, ins, words) if gives else None
        k = lds_ops.address(ins, ctx, operands[0])
        sources = [t.vector(o, ctx, ins, words) for o in operands[1:]]
        if len(sources) != atomic.sources:
            raise ctx.unknown(ins, f"{len(sources)} data operands")
        if compare_first:
            sources.reverse()
        regs: t.Registers = () if target is None else t.destination(target)
        counter = t.lds_counter(ctx)

        def step(w: Waves) -> None:
            addresses, mask = lds_ops.at(w, k, imm), t.mask(w)
            values = [w.vector(s.kind, s.first + i) for s in sources for i in range(words)]
            check_aligned(w, addresses, atomic.size, mask)
            w.waits.issue(w, counter, regs)
            old = w.machine.lds.update(w, addresses, atomic.size, values, mask, atomic.apply)
            if target is not None:
                w.set_vectors(target.kind, target.first, old)

        return step

    return make


for _name, (_atomic, _archs) in LDS_NAMES.items():
    for _rtn in ("", "_rtn"):
        instruction("ds_" + _name.format(_rtn))(_lds(_atomic, _archs, bool(_rtn), _name.startswith("cmpst{")))
for _size, _letter in ((4, "b32"), (8, "b64")):
    _exchange = Atomic(_INTEGER["swap"], _UNSIGNED[_size])
    instruction(f"ds_wrxchg_rtn_{_letter}")(_lds(_exchange, _ALL, True, False))
    instruction(f"ds_storexchg_rtn_{_letter}")(_lds(_exchange, _RDNA[1:], True, False))
instruction("ds_wrap_rtn_b32")(_lds(Atomic(_INTEGER["wrap"], np.uint32, 2), _ALL[:-1], True, False))


def _lds_two(size: int, stride64: bool, archs: Sequence[str]) -> Callable[[Instruction, DecodeContext], Step]:
    """ds_wrxchg2: two exchanges of one address register."""
    words, atomic = size // 4, Atomic(_INTEGER["swap"], _UNSIGNED[size])

    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        _check_arch(ins, ctx, archs)
        lds_ops.operands(ins, ctx, 4)
        target, k = t.vector(ins.operands[0], ctx, ins, 2 * words), lds_ops.address(ins, ctx, ins.operands[1])
        sources, offsets = [t.vector(o, ctx, ins, words) for o in ins.operands[2:]], lds_ops.two_offsets(ins, ctx, size, stride64)
        regs, counter = t.destination(target), t.lds_counter(ctx)

        def step(w: Waves) -> None:
            mask = t.mask(w)
            values, places = [w.vectors(s.kind, s.first, words).copy() for s in sources], [lds_ops.at(w, k, imm) for imm in offsets]
            w.waits.issue(w, counter, regs)
            for i in range(2):
                check_aligned(w, places[i], size, mask)
                old = w.machine.lds.update(w, places[i], size, values[i], mask, atomic.apply)
                w.set_vectors(target.kind, target.first + i * words, old)

        return step

    return make


for _size, _letter in ((4, "b32"), (8, "b64")):
    instruction(f"ds_wrxchg2_rtn_{_letter}")(_lds_two(_size, False, _ALL))
    instruction(f"ds_wrxchg2st64_rtn_{_letter}")(_lds_two(_size, True, _ALL))
    instruction(f"ds_storexchg_2addr_rtn_{_letter}")(_lds_two(_size, False, _RDNA[1:]))
    instruction(f"ds_storexchg_2addr_stride64_rtn_{_letter}")(_lds_two(_size, True, _RDNA[1:]))
