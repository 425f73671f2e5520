"""Scalar integer ALU: SOP1, SOP2, SOPC and SOPK ("Scalar ALU Operations" in the CDNA 3 and RDNA 2, 3 and 4 manuals; the instruction
pages of each encoding for results and SCC). Names of gfx9 and gfx10 first, then those that gfx11 and gfx12 renamed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.targets.amd.isa.program import Expr, Imm, Instruction, Operand
from tilewright.targets.amd.isa.registry import DecodeContext, Step, instruction
from tilewright.targets.amd.isa.state import scalar_reader, scalar_writer

if TYPE_CHECKING:
    from tilewright.targets.amd.isa.state import Waves

Array = Any
_ONE = np.uint64(1)


def read_scalar(operand: Operand, kind: str, ins: Instruction) -> Callable[[Waves], Array]:
    """scalar_reader, and symbols of constant data relative to the program counter (LLVM: sym@rel32@lo+4, …@hi+12)."""
    if not isinstance(operand, Expr):
        return scalar_reader(operand, kind)
    found = re.match(r"([\w.$]+)@rel32@(lo|hi)(?:\+(\d+))?$", operand.text)
    if not found:
        raise TypeError(f"no scalar operand: {operand.text!r}")
    symbol, half, addend = found[1], found[2], int(found[3] or 0)

    def read(w: Waves) -> Array:
        # what the linker writes: the distance from the literal, 4 bytes behind the instruction's start
        distance = w.machine.symbol_address(symbol) + addend - (w.machine.code_address + ins.address + 4)
        return np.array(distance >> (32 if half == "hi" else 0) & 0xFFFFFFFF, np.uint32)

    return read


def _define(names: str, kind: str, function: Callable[..., Any], out: str | None = None, scc: str = "", count: int = 2) -> None:
    """Registers D = function(operands). kind: the sources' type, one for all or "a,b"; scc: "nonzero": SCC = D is not zero;
    "pair": function gives (D, SCC); "" SCC stays; "in" before any of them: function takes SCC first."""
    kinds = kind.split(",") if "," in kind else [kind] * count
    out_kind = out or kinds[0]
    takes_scc = scc.startswith("in")
    mode = scc.removeprefix("in").strip()

    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        ctx.only(ins)
        if len(ins.operands) != count + 1:
            raise ctx.unknown(ins, f"{len(ins.operands)} operands")
        write = scalar_writer(ins.operands[0], out_kind)
        sources = [read_scalar(o, k, ins) for o, k in zip(ins.operands[1:], kinds)]

        def step(w: Waves) -> None:
            values = [s(w) for s in sources]
            result = function(w.scc, *values) if takes_scc else function(*values)
            if mode == "pair":
                result, flag = result
                w.scc = flag
            elif mode == "nonzero":
                w.scc = result != 0
            write(w, result)

        return step

    instruction(*names.split())(make)


# ------------------------------------------------------------------------------------------------------ arithmetic
def _add_u32(a: Array, b: Array) -> Any:
    total = a.astype(np.uint64) + b
    return total.astype(np.uint32), total >> np.uint64(32) != 0


def _sub_u32(a: Array, b: Array) -> Any:
    return a - b, b > a


def _add_i32(a: Array, b: Array) -> Any:
    total = a.astype(np.int64) + b
    small = total.astype(np.int32)
    return small, small != total


def _sub_i32(a: Array, b: Array) -> Any:
    total = a.astype(np.int64) - b
    small = total.astype(np.int32)
    return small, small != total


def _addc(carry: Array, a: Array, b: Array) -> Any:
    total = a.astype(np.uint64) + b + carry
    return total.astype(np.uint32), total >> np.uint64(32) != 0


def _subb(borrow: Array, a: Array, b: Array) -> Any:
    total = a.astype(np.int64) - b.astype(np.int64) - borrow
    return (total & 0xFFFFFFFF).astype(np.uint32), total < 0


def _shifted_add(n: int) -> Callable[[Array, Array], Any]:
    def run(a: Array, b: Array) -> Any:
        total = (a.astype(np.uint64) << np.uint64(n)) + b
        return total.astype(np.uint32), total >> np.uint64(32) != 0

    return run


_define("s_add_u32 s_add_co_u32", "u32", _add_u32, scc="pair")
_define("s_sub_u32 s_sub_co_u32", "u32", _sub_u32, scc="pair")
_define("s_add_i32 s_add_co_i32", "i32", _add_i32, scc="pair")
_define("s_sub_i32 s_sub_co_i32", "i32", _sub_i32, scc="pair")
_define("s_addc_u32 s_add_co_ci_u32", "u32", _addc, scc="in pair")
_define("s_subb_u32 s_sub_co_ci_u32", "u32", _subb, scc="in pair")
_define("s_add_u64 s_add_nc_u64", "u64", lambda a, b: a + b)
_define("s_sub_u64 s_sub_nc_u64", "u64", lambda a, b: a - b)
_define("s_mul_i32", "u32", lambda a, b: a * b)
_define("s_mul_u64", "u64", lambda a, b: a * b)
_define("s_mul_hi_u32", "u32", lambda a, b: (a.astype(np.uint64) * b >> np.uint64(32)).astype(np.uint32))
_define("s_mul_hi_i32", "i32", lambda a, b: (a.astype(np.int64) * b >> 32).astype(np.int32))
_define("s_absdiff_i32", "i32", lambda a, b: np.abs((a - b).astype(np.int32)), scc="nonzero")
_define("s_min_i32", "i32", lambda a, b: (np.minimum(a, b), a < b), scc="pair")
_define("s_min_u32", "u32", lambda a, b: (np.minimum(a, b), a < b), scc="pair")
_define("s_max_i32", "i32", lambda a, b: (np.maximum(a, b), a >= b), scc="pair")
_define("s_max_u32", "u32", lambda a, b: (np.maximum(a, b), a >= b), scc="pair")
_define("s_abs_i32", "i32", np.abs, scc="nonzero", count=1)
for _n in (1, 2, 3, 4):
    _define(f"s_lshl{_n}_add_u32", "u32", _shifted_add(_n), scc="pair")

# ------------------------------------------------------------------------------------------------------------ bits
_BITWISE: dict[str, Callable[[Array, Array], Array]] = {
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "andn2": lambda a, b: a & ~b, "orn2": lambda a, b: a | ~b,
    "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b), "xnor": lambda a, b: ~(a ^ b),
}
_RENAMED = {"andn2": "and_not1", "orn2": "or_not1", "andn1": "and_not0", "orn1": "or_not0"}


def _names(pattern: str, word: str) -> str:
    return " ".join(pattern.format(w) for w in (word, _RENAMED.get(word)) if w)


def _mask_bits(width: Array, offset: Array, bits: int) -> Array:
    kind = np.uint32 if bits == 32 else np.uint64
    low = kind(bits - 1)
    return ((kind(1) << (width & low)) - kind(1)) << (offset & low)


def _bfe(bits: int, signed: bool) -> Callable[[Array, Array], Array]:
    """Field of S1[22:16] bits from bit S1[4:0] (64: S1[5:0]); a width past the end reads what is there."""
    def run(a: Array, control: Array) -> Array:
        offset = (control & np.uint32(bits - 1)).astype(np.uint64)
        width = ((control >> np.uint32(16)) & np.uint32(0x7F)).astype(np.uint64)
        width = np.minimum(width, np.uint64(bits) - offset)
        value = a.astype(np.uint64) >> offset
        full = width >= 64
        field = np.where(full, value, value & ((_ONE << np.where(full, np.uint64(0), width)) - _ONE))
        if signed:
            up = np.uint64(64) - np.maximum(width, _ONE)
            field = np.where(width == 0, np.uint64(0), ((field << up).view(np.int64) >> up.view(np.int64)).view(np.uint64))
        return field.astype(np.uint64) if bits == 64 else field.astype(np.uint32)

    return run


for _bits in (32, 64):
    _k = f"u{_bits}"
    _sign = f"i{_bits}"
    _low = np.uint32(_bits - 1)
    _type: Any = np.uint32 if _bits == 32 else np.uint64
    _stype: Any = np.int32 if _bits == 32 else np.int64
    for _word, _function in _BITWISE.items():
        _define(_names("s_{}_b" + str(_bits), _word), _k, _function, scc="nonzero")
    _define(f"s_lshl_b{_bits}", f"{_k},u32", lambda a, b, low=_low, t=_type: a << (b & low).astype(t), scc="nonzero")
    _define(f"s_lshr_b{_bits}", f"{_k},u32", lambda a, b, low=_low, t=_type: a >> (b & low).astype(t), scc="nonzero")
    _define(f"s_ashr_i{_bits}", f"{_sign},u32", lambda a, b, low=_low, t=_stype: a >> (b & low).astype(t), scc="nonzero")
    _define(f"s_bfm_b{_bits}", "u32", lambda a, b, n=_bits, t=_type: _mask_bits(a.astype(t), b.astype(t), n), out=_k)
    _define(f"s_bfe_u{_bits}", f"{_k},u32", _bfe(_bits, False), scc="nonzero")
    _define(f"s_bfe_i{_bits}", f"{_k},u32", _bfe(_bits, True), scc="nonzero")
    _define(f"s_cselect_b{_bits}", _k, lambda scc, a, b: np.where(scc, a, b), scc="in")
    _define(f"s_mov_b{_bits}", _k, lambda a: a, count=1)
    _define(f"s_not_b{_bits}", _k, lambda a: ~a, scc="nonzero", count=1)


def _bytes_of(a: Array) -> Array:
    return np.ascontiguousarray(a).reshape(-1, 1).view(np.uint8)


def _reverse(a: Array) -> Array:
    """Bits in reverse order."""
    bits = np.unpackbits(_bytes_of(a), axis=1, bitorder="little")[:, ::-1]
    return np.packbits(bits, axis=1, bitorder="little").view(a.dtype).reshape(a.shape)


def _ones(a: Array) -> Array:
    return np.unpackbits(_bytes_of(a), axis=1).sum(axis=1).astype(np.uint32).reshape(a.shape)


def _trailing(a: Array) -> Array:
    """Position of the lowest 1, or −1."""
    bits = np.unpackbits(_bytes_of(a), axis=1, bitorder="little")
    return np.where(bits.any(axis=1), bits.argmax(axis=1), -1).astype(np.int32).reshape(a.shape)


def _leading(a: Array) -> Array:
    """Number of zeros before the highest 1, or −1."""
    return _trailing(_reverse(a))


def _sign_run(a: Array) -> Array:
    """How many leading bits equal the sign bit, or −1 where all do."""
    bits = a.dtype.itemsize * 8
    signed = a.view(np.int32 if bits == 32 else np.int64)
    return _leading((signed ^ (signed >> (bits - 1))).view(a.dtype))


for _bits in (32, 64):
    _k = f"u{_bits}"
    _suffix = "" if _bits == 32 else "64"
    _define(f"s_brev_b{_bits}", _k, _reverse, count=1)
    _define(f"s_bcnt1_i32_b{_bits}", _k, _ones, out="u32", scc="nonzero", count=1)
    _define(f"s_bcnt0_i32_b{_bits}", _k, lambda a: _ones(~a), out="u32", scc="nonzero", count=1)
    _define(f"s_ff1_i32_b{_bits} s_ctz_i32_b{_bits}", _k, _trailing, out="i32", count=1)
    _define(f"s_ff0_i32_b{_bits}", _k, lambda a: _trailing(~a), out="i32", count=1)
    _define(f"s_flbit_i32_b{_bits} s_clz_i32_u{_bits}", _k, _leading, out="i32", count=1)
_define("s_flbit_i32 s_cls_i32", "u32", _sign_run, out="i32", count=1)
_define("s_flbit_i32_i64 s_cls_i32_i64", "u64", _sign_run, out="i32", count=1)
_define("s_sext_i32_i8", "u32", lambda a: a.astype(np.uint8).view(np.int8).astype(np.int32), out="i32", count=1)
_define("s_sext_i32_i16", "u32", lambda a: a.astype(np.uint16).view(np.int16).astype(np.int32), out="i32", count=1)
_LOW16, _HIGH16, _16 = np.uint32(0xFFFF), np.uint32(0xFFFF0000), np.uint32(16)
_define("s_pack_ll_b32_b16", "u32", lambda a, b: a & _LOW16 | b << _16)
_define("s_pack_lh_b32_b16", "u32", lambda a, b: a & _LOW16 | b & _HIGH16)
_define("s_pack_hh_b32_b16", "u32", lambda a, b: a >> _16 | b & _HIGH16)
_define("s_pack_hl_b32_b16", "u32", lambda a, b: a >> _16 | b << _16)


def _reading_target(names: str, kind: str, function: Callable[..., Array], scc: str = "") -> None:
    """D = function(SCC, D, S0)."""
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        ctx.only(ins)
        target, source = ins.operands
        old, read = scalar_reader(target, kind), read_scalar(source, "u32" if "bitset" in ins.base else kind, ins)
        write = scalar_writer(target, kind)
        return lambda w: write(w, function(w.scc, old(w), read(w)))

    instruction(*names.split())(make)


for _bits in (32, 64):
    _type = np.uint32 if _bits == 32 else np.uint64
    _reading_target(f"s_cmov_b{_bits}", f"u{_bits}", lambda scc, old, a: np.where(scc, a, old))
    _reading_target(f"s_bitset1_b{_bits}", f"u{_bits}", lambda scc, old, a, t=_type, n=_bits - 1: old | t(1) << (a & np.uint32(n)).astype(t))
    _reading_target(f"s_bitset0_b{_bits}", f"u{_bits}", lambda scc, old, a, t=_type, n=_bits - 1: old & ~(t(1) << (a & np.uint32(n)).astype(t)))


# --------------------------------------------------------------------------------------------------- EXEC and SOP1
def _quads(a: Array) -> Array:
    bits = a.dtype.itemsize * 8
    each = np.unpackbits(_bytes_of(a), axis=1, bitorder="little").reshape(-1, bits // 4, 4).any(axis=2)
    return np.packbits(np.repeat(each, 4, axis=1), axis=1, bitorder="little").view(a.dtype).reshape(a.shape)


_define("s_wqm_b32", "u32", _quads, scc="nonzero", count=1)
_define("s_wqm_b64", "u64", _quads, scc="nonzero", count=1)

# EXEC' from (S0, EXEC)
_SAVEEXEC: dict[str, Callable[[Array, Array], Array]] = {**_BITWISE, "andn1": lambda a, b: ~a & b, "orn1": lambda a, b: ~a | b}


def _saveexec(word: str, bits: int) -> None:
    """s_X_saveexec: D = EXEC, EXEC = S0 X EXEC, SCC = EXEC is not 0; s_andn1_wrexec and s_andn2_wrexec: D = the new EXEC."""
    operation = _SAVEEXEC[word]
    wrexec = word in ("andn1", "andn2")
    names = _names("s_{}_saveexec_b" + str(bits), word) + (" " + _names("s_{}_wrexec_b" + str(bits), word) if wrexec else "")

    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        ctx.only(ins)
        if bits != ctx.lanes:
            raise ctx.unknown(ins, f"EXEC has {ctx.lanes} bits")
        write, read = scalar_writer(ins.operands[0], "mask"), scalar_reader(ins.operands[1], "mask")
        saves = "saveexec" in ins.base

        def step(w: Waves) -> None:
            old = w.exec.copy()
            new = operation(read(w), old) & w.all_ones
            write(w, old if saves else new)
            w.exec = new
            w.scc = new != 0

        return step

    instruction(*names.split())(make)


for _word in _SAVEEXEC:
    _saveexec(_word, 32)
    _saveexec(_word, 64)

# -------------------------------------------------------------------------------------------------- SOPC and SOPK
_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": lambda a, b: a == b, "lg": lambda a, b: a != b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}


def short(operand: Operand, signed: bool) -> int:
    """A 16-bit immediate of SOPK, which LLVM prints as hex or decimal."""
    if not isinstance(operand, Imm) or not isinstance(operand.value, int):
        raise TypeError(f"no 16-bit immediate: {operand.text!r}")
    value = operand.value & 0xFFFF
    return value - (1 << 16) if signed and value & 0x8000 else value


def compare(names: str, kinds: str, function: Callable[[Array, Array], Array]) -> None:
    """Registers SCC = function(S0, S1)."""
    first, second = kinds.split(",") if "," in kinds else (kinds, kinds)

    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        ctx.only(ins)
        a, b = read_scalar(ins.operands[0], first, ins), read_scalar(ins.operands[1], second, ins)

        def step(w: Waves) -> None:
            w.scc = function(a(w), b(w))

        return step

    instruction(*names.split())(make)


def _compare_short(name: str, kind: str, function: Callable[[Array, Array], Array]) -> None:
    def make(ins: Instruction, ctx: DecodeContext) -> Step:
        a, k = scalar_reader(ins.operands[0], kind), short(ins.operands[1], kind == "i32")
        constant = np.array(k, np.int32 if kind == "i32" else np.uint32)

        def step(w: Waves) -> None:
            w.scc = function(a(w), constant)

        return step

    instruction(name)(make)


for _word, _function in _COMPARISONS.items():
    for _k in ("i32", "u32"):
        compare(f"s_cmp_{_word}_{_k}", _k, _function)
        _compare_short(f"s_cmpk_{_word}_{_k}", _k, _function)
    if _word in ("eq", "lg"):
        compare(f"s_cmp_{_word}_u64", "u64", _function)


def _bit_test(bits: int, wanted: int) -> Callable[[Array, Array], Array]:
    low = np.uint32(bits - 1)
    return lambda a, b: (a >> (b & low).astype(a.dtype) & a.dtype.type(1)) == wanted


for _bits in (32, 64):
    for _value in (0, 1):
        compare(f"s_bitcmp{_value}_b{_bits}", f"u{_bits},u32", _bit_test(_bits, _value))


@instruction("s_movk_i32", "s_cmovk_i32", "s_addk_i32", "s_addk_co_i32", "s_mulk_i32")
def _sopk(ins: Instruction, ctx: DecodeContext) -> Step:
    """D = a sign-extended 16-bit immediate, or D and it; s_addk sets SCC to the signed overflow."""
    ctx.only(ins)
    old, write = scalar_reader(ins.operands[0], "i32"), scalar_writer(ins.operands[0], "i32")
    k = np.array(short(ins.operands[1], True), np.int32)
    kind = ins.base.split("_")[1]

    def add(w: Waves) -> None:
        result, w.scc = _add_i32(old(w), k)
        write(w, result)

    if kind == "movk":
        return lambda w: write(w, k)
    if kind == "cmovk":
        return lambda w: write(w, np.where(w.scc, k, old(w)))
    return add if kind == "addk" else lambda w: write(w, old(w) * k)
