"""What the axis analysis knows of a value, and how each op passes it on; the analysis itself is axis_info.py."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import NamedTuple

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import Node, type_info

MAX_DIVISIBILITY = 1 << 32  # what zero counts as


class AxisInfo(NamedTuple):
    """See the module's text; tuples have one entry a dim (scalars: one)."""

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None
    nonneg: bool = False

    @property
    def rank(self) -> int:
        return len(self.contiguity)


def power_of_two_divisor(n: int) -> int:
    """The largest power of two that divides n; MAX_DIVISIBILITY for 0."""
    return min(n & -n, MAX_DIVISIBILITY) if n else MAX_DIVISIBILITY


def unknown(rank: int, nonneg: bool = False) -> AxisInfo:
    """Nothing is known but perhaps the sign."""
    ones = (1,) * rank
    return AxisInfo(ones, ones, ones, None, nonneg)


def constant_info(value: int, shape: tuple[int, ...]) -> AxisInfo:
    """Every element is ``value``."""
    rank = len(shape)
    return AxisInfo((1,) * rank, (power_of_two_divisor(value),) * rank, shape, value, value >= 0)


def _div_at(info: AxisInfo, d: int, group: int) -> int:
    """Divisor of the values at multiples of ``group`` along dim d."""
    c = info.contiguity[d]
    return info.divisibility[d] if group % c == 0 else gcd(info.divisibility[d], group)


def join(a: AxisInfo | None, b: AxisInfo | None) -> AxisInfo | None:
    """What holds for a value that is one of the two; None is "no value yet"."""
    if a is None or b is None:
        return a if b is None else b
    if a == b:
        return a
    rank = a.rank
    contiguity = tuple(gcd(x, y) for x, y in zip(a.contiguity, b.contiguity))
    divisibility = tuple(gcd(_div_at(a, d, contiguity[d]), _div_at(b, d, contiguity[d])) for d in range(rank))
    constancy = tuple(gcd(x, y) for x, y in zip(a.constancy, b.constancy))
    return AxisInfo(contiguity, divisibility, constancy, a.constant if a.constant == b.constant else None, a.nonneg and b.nonneg)


# ------------------------------------------------------------------------------------------------ rules by op
# A rule is (node, operand infos, shape of the result) -> AxisInfo. The shape of a scalar is (1,).
Rule = Callable[[Node, list[AxisInfo], tuple[int, ...]], AxisInfo]
RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(f: Rule) -> Rule:
        for name in names:
            RULES[name] = f
        return f

    return add


def _sum(a: AxisInfo, b: AxisInfo, scale: int, subtract: bool) -> AxisInfo:
    """a ± b, b's values counting ``scale`` units of a's divisibility (bytes of the pointee; 1 for integers)."""
    contiguity, divisibility, constancy = [], [], []
    for d in range(a.rank):
        c = gcd(a.contiguity[d], b.constancy[d])
        if not subtract:
            c = max(c, gcd(a.constancy[d], b.contiguity[d]))
        contiguity.append(c)
        # a's divisibility at a group's start holds in its own unit: for pointers groups of c elements are c * scale bytes
        da = a.divisibility[d] if c % a.contiguity[d] == 0 else gcd(a.divisibility[d], c * scale)
        divisibility.append(gcd(da, min(_div_at(b, d, c) * scale, MAX_DIVISIBILITY)))
        constancy.append(gcd(a.constancy[d], b.constancy[d]))
    return AxisInfo(tuple(contiguity), tuple(divisibility), tuple(constancy), None, a.nonneg and b.nonneg and not subtract)


@_rule("arith.addi")
def _add(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    return _sum(x[0], x[1], 1, False)


@_rule("arith.subi")
def _sub(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    return _sum(x[0], x[1], 1, True)


@_rule("tt.addptr")
def _addptr(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    size = max(1, type_info(node.results[0].type).pointee_bits // 8)
    return _sum(x[0], x[1], power_of_two_divisor(size), False)._replace(nonneg=False)


@_rule("arith.muli")
def _mul(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    a, b = x
    if a.constant == 1:
        return b
    if b.constant == 1:
        return a
    rank = len(shape)
    divisibility = tuple(min(_div_at(a, d, 1) * _div_at(b, d, 1), MAX_DIVISIBILITY) for d in range(rank))
    constancy = tuple(map(gcd, a.constancy, b.constancy))
    return AxisInfo((1,) * rank, divisibility, constancy, None, a.nonneg and b.nonneg)


def _floor_group(a: AxisInfo, d: int, multiple: int) -> int:
    """Size of aligned groups along d within which a's values stay in one block of ``multiple`` (a power of two)."""
    return max(a.constancy[d], gcd(gcd(a.contiguity[d], a.divisibility[d]), multiple))


@_rule("arith.divsi", "arith.divui", "arith.floordivsi")
def _div(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    a, b = x
    if b.constant == 1:
        return a
    rank = len(shape)
    floors = a.nonneg or node.name != "arith.divsi"  # truncation towards zero cuts the blocks of negative values elsewhere
    power = b.constant if b.constant is not None and b.constant > 0 and b.constant & (b.constant - 1) == 0 else 0
    constancy, divisibility = [], []
    for d in range(rank):
        k = gcd(a.constancy[d], b.constancy[d])
        if floors:
            k = max(k, gcd(_floor_group(a, d, b.divisibility[d]) if b.contiguity[d] == 1 else 1, b.constancy[d]))
        constancy.append(k)
        exact = _div_at(a, d, k)
        divisibility.append(exact // power if power and exact >= power else 1)
    return AxisInfo((1,) * rank, tuple(divisibility), tuple(constancy), None, a.nonneg)


@_rule("arith.ceildivsi", "arith.ceildivui")
def _ceildiv(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    rank = len(shape)
    return AxisInfo((1,) * rank, (1,) * rank, tuple(map(gcd, x[0].constancy, x[1].constancy)), None, x[0].nonneg)


@_rule("arith.remsi", "arith.remui")
def _rem(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    a, b = x
    contiguity, divisibility, constancy = [], [], []
    for d in range(len(shape)):
        c = 1
        if (a.nonneg or node.name == "arith.remui") and b.contiguity[d] == 1:
            # a group whose start and size are multiples of those of the divisor does not wrap
            c = gcd(gcd(a.contiguity[d], a.divisibility[d]), gcd(b.divisibility[d], b.constancy[d]))
        contiguity.append(c)
        divisibility.append(gcd(_div_at(a, d, c), _div_at(b, d, 1)))
        constancy.append(gcd(a.constancy[d], b.constancy[d]))
    return AxisInfo(tuple(contiguity), tuple(divisibility), tuple(constancy), None, a.nonneg or node.name == "arith.remui")


@_rule("arith.andi")
def _and(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    a, b = x
    if a.constant is not None:
        a, b = b, a
    rank = len(shape)
    contiguity = [1] * rank
    constancy = list(map(gcd, a.constancy, b.constancy))
    divisibility = [max(_div_at(a, d, 1), _div_at(b, d, 1)) for d in range(rank)]
    m = b.constant
    if m is not None and m > 0 and m & (m + 1) == 0:  # low bits: the remainder by m + 1
        for d in range(rank):
            contiguity[d] = gcd(gcd(a.contiguity[d], a.divisibility[d]), m + 1)
            divisibility[d] = gcd(_div_at(a, d, contiguity[d]), MAX_DIVISIBILITY) if contiguity[d] > 1 else divisibility[d]
    elif m is not None and m < 0 and -m & (-m - 1) == 0:  # high bits: rounded down to a multiple of -m
        for d in range(rank):
            constancy[d] = _floor_group(a, d, -m)
            divisibility[d] = max(-m, _div_at(a, d, constancy[d]))
    return AxisInfo(tuple(contiguity), tuple(divisibility), tuple(constancy), None, a.nonneg or b.nonneg)


@_rule("arith.ori", "arith.xori")
def _or(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    a, b = x
    if a.constant == 0:
        return b
    if b.constant == 0:
        return a
    rank = len(shape)
    divisibility = tuple(gcd(_div_at(a, d, 1), _div_at(b, d, 1)) for d in range(rank))
    return AxisInfo((1,) * rank, divisibility, tuple(map(gcd, a.constancy, b.constancy)), None, a.nonneg and b.nonneg)


@_rule("arith.shli")
def _shl(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    a, b = x
    if b.constant == 0:
        return a
    rank = len(shape)
    factor = 1 << b.constant if b.constant is not None and 0 <= b.constant < 32 else 1
    divisibility = tuple(min(_div_at(a, d, 1) * factor, MAX_DIVISIBILITY) for d in range(rank))
    return AxisInfo((1,) * rank, divisibility, tuple(map(gcd, a.constancy, b.constancy)), None, a.nonneg)


@_rule("arith.shrsi", "arith.shrui")
def _shr(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    a, b = x
    if b.constant == 0:
        return a
    rank = len(shape)
    constancy = tuple(map(gcd, a.constancy, b.constancy))
    if b.constant is None or not 0 < b.constant < 32:
        return AxisInfo((1,) * rank, (1,) * rank, constancy, None, a.nonneg)
    factor = 1 << b.constant
    constancy = tuple(_floor_group(a, d, factor) for d in range(rank))
    exact = [_div_at(a, d, constancy[d]) for d in range(rank)]
    nonneg = a.nonneg or node.name == "arith.shrui"
    return AxisInfo((1,) * rank, tuple(max(1, e // factor) for e in exact), constancy, None, nonneg)


@_rule("arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui")
def _minmax(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    a, b = x
    rank = len(shape)
    divisibility = tuple(gcd(_div_at(a, d, 1), _div_at(b, d, 1)) for d in range(rank))
    nonneg = (a.nonneg or b.nonneg) if node.name == "arith.maxsi" else a.nonneg and b.nonneg
    return AxisInfo((1,) * rank, divisibility, tuple(map(gcd, a.constancy, b.constancy)), None, nonneg)


@_rule("arith.cmpi")
def _cmp(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    a, b = x
    predicate = int(ir.IntegerAttr(node.op.attributes["predicate"]).value)
    rank = len(shape)
    constancy = []
    for d in range(rank):
        k = gcd(a.constancy[d], b.constancy[d])
        # x < n and x >= n change only where x passes a multiple of n's divisor; n > x and n <= x are the same
        if predicate in (2, 5, 6, 9):  # slt sge ult uge
            moving, fixed = a, b
        elif predicate in (4, 3, 8, 7):  # sgt sle ugt ule
            moving, fixed = b, a
        else:
            constancy.append(k)
            continue
        if fixed.contiguity[d] == 1:
            k = max(k, gcd(_floor_group(moving, d, fixed.divisibility[d]), fixed.constancy[d]))
        constancy.append(k)
    return AxisInfo((1,) * rank, (1,) * rank, tuple(constancy), None, True)


@_rule("arith.select")
def _select(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    c, a, b = x
    if c.constant is not None:
        return a if c.constant else b
    rank = len(shape)
    same = shape if c.rank != rank or len(type_info(node.operands[0].type).shape or ()) == 0 else c.constancy
    contiguity = tuple(gcd(gcd(a.contiguity[d], b.contiguity[d]), same[d]) for d in range(rank))
    divisibility = tuple(gcd(_div_at(a, d, contiguity[d]), _div_at(b, d, contiguity[d])) for d in range(rank))
    constancy = tuple(gcd(gcd(a.constancy[d], b.constancy[d]), same[d]) for d in range(rank))
    constant = a.constant if a.constant == b.constant else None
    return AxisInfo(contiguity, divisibility, constancy, constant, a.nonneg and b.nonneg)


@_rule("arith.extsi", "arith.extui", "arith.index_cast", "arith.index_castui", "ttg.convert_layout")
def _same(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    info = x[0]
    if node.name == "arith.extui" and info.constant is not None and info.constant < 0:
        width = type_info(node.operands[0].type).bits
        return constant_info(info.constant & ((1 << width) - 1), shape)
    if node.name == "arith.extsi" and info.constant is not None and type_info(node.operands[0].type).bits == 1:
        return constant_info(-info.constant, shape)
    return info if node.name != "arith.extsi" or type_info(node.operands[0].type).bits > 1 else info._replace(nonneg=False)


@_rule("arith.trunci")
def _trunc(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    info, width = x[0], type_info(node.results[0].type).bits
    if info.constant is not None:
        value = info.constant & ((1 << width) - 1)
        return constant_info(value - (1 << width) if width > 1 and value >> (width - 1) else value, shape)
    # runs may be cut where the narrow value wraps, which for groups aligned to their size is never inside one
    contiguity = info.contiguity
    if width < 32:
        contiguity = tuple(gcd(c, gcd(info.divisibility[d], 1 << width)) for d, c in enumerate(contiguity))
    divisibility = tuple(_div_at(info, d, contiguity[d]) for d in range(info.rank))
    return AxisInfo(contiguity, divisibility, info.constancy, None, info.nonneg and width >= 32)


@_rule("tt.make_range")
def _make_range(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    start = node.int_attr("start")
    if shape == (1,):
        return constant_info(start, shape)
    return AxisInfo(shape, (power_of_two_divisor(start),), (1,), None, start >= 0)


@_rule("arith.constant")
def _constant(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    value = node.op.attributes["value"]
    if isinstance(value, ir.DenseElementsAttr):
        if not value.is_splat:
            return unknown(len(shape))
        value = value.get_splat_value()
    if isinstance(value, ir.BoolAttr):
        return constant_info(int(value.value), shape)
    if isinstance(value, ir.IntegerAttr):
        v = int(value.value)
        return constant_info(v & 1 if type_info(node.results[0].type).bits == 1 else v, shape)
    return unknown(len(shape))


@_rule("tt.splat")
def _splat(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    rank = len(shape)
    return AxisInfo((1,) * rank, x[0].divisibility[:1] * rank, shape, x[0].constant, x[0].nonneg)


def _all_elements(info: AxisInfo) -> int:
    """A divisor of every element."""
    if info.constant is not None:
        return power_of_two_divisor(info.constant)
    return max((d for c, d in zip(info.contiguity, info.divisibility) if c == 1), default=1)


@_rule("tt.expand_dims")
def _expand_dims(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    axis, a = node.int_attr("axis"), x[0]

    def put(t: tuple[int, ...], v: int) -> tuple[int, ...]:
        return t[:axis] + (v,) + t[axis:]

    return AxisInfo(put(a.contiguity, 1), put(a.divisibility, _all_elements(a)), put(a.constancy, 1), a.constant, a.nonneg)


@_rule("tt.unsplat")
def _unsplat(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    return AxisInfo((1,), (_all_elements(x[0]),), (1,), x[0].constant, x[0].nonneg)


@_rule("tt.broadcast")
def _broadcast(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    a = x[0]
    source = type_info(node.operands[0].type).shape or ()
    constancy = tuple(n if s == 1 else k for n, s, k in zip(shape, source, a.constancy))
    return AxisInfo(a.contiguity, a.divisibility, constancy, a.constant, a.nonneg)


@_rule("tt.trans")
def _trans(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    order, a = node.ints_attr("order"), x[0]

    def permuted(t: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(t[i] for i in order)

    return AxisInfo(permuted(a.contiguity), permuted(a.divisibility), permuted(a.constancy), a.constant, a.nonneg)


@_rule("tt.reshape")
def _reshape(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    a = x[0]
    if a.constant is not None:
        return constant_info(a.constant, shape)
    source: tuple[int, ...] = type_info(node.operands[0].type).shape or (1,)
    rank = len(shape)
    out = unknown(rank, a.nonneg)
    if node.bool_attr("allow_reorder"):
        return out
    if tuple(s for s in source if s > 1) == tuple(s for s in shape if s > 1):  # only dims of size 1 come and go
        kept = iter(d for d, s in enumerate(source) if s > 1)
        at = [next(kept) if s > 1 else None for s in shape]
        every = _all_elements(a)
        return AxisInfo(tuple(1 if d is None else a.contiguity[d] for d in at),
                        tuple(every if d is None else a.divisibility[d] for d in at),
                        tuple(1 if d is None else a.constancy[d] for d in at), None, a.nonneg)
    # row-major: what holds along the last dim holds along the new last dim, up to the smaller of the two
    last = min(source[-1], shape[-1])
    c, k = gcd(a.contiguity[-1], last), gcd(a.constancy[-1], last)
    return AxisInfo(out.contiguity[:-1] + (c,), out.divisibility[:-1] + (_div_at(a, a.rank - 1, c),), out.constancy[:-1] + (k,),
                    None, a.nonneg)


@_rule("tt.get_program_id", "tt.get_num_programs")
def _program(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    return unknown(1, nonneg=True)


@_rule("tt.bitcast", "tt.int_to_ptr", "tt.ptr_to_int")
def _cast(node: Node, x: list[AxisInfo], shape: tuple[int, ...]) -> AxisInfo:
    a = x[0]
    src, dst = type_info(node.operands[0].type), type_info(node.results[0].type)
    if src.kind == dst.kind and src.pointee_bits == dst.pointee_bits:
        return a
    if "float" in (src.kind, dst.kind):
        return unknown(len(shape))
    # runs of elements are not runs of bytes; single addresses keep what divides all of them
    size = max(src.pointee_bits // 8, 1)
    div = tuple(d if c == 1 else gcd(d, power_of_two_divisor(size)) for c, d in zip(a.contiguity, a.divisibility))
    return AxisInfo((1,) * len(shape), div, a.constancy, None, False)


_FOLDS: dict[str, Callable[[int, int], int]] = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.minsi": min,
    "arith.maxsi": max,
}


def fold(name: str, a: int, b: int, bits: int) -> int | None:
    """The value of an op on two known integers, wrapped to ``bits``; None where it is not folded."""
    if name in _FOLDS:
        v = _FOLDS[name](a, b)
    elif name in ("arith.divsi", "arith.remsi") and b != 0:
        q = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        v = q if name == "arith.divsi" else a - q * b
    elif name in ("arith.divui", "arith.remui") and a >= 0 and b > 0:
        v = a // b if name == "arith.divui" else a % b
    elif name == "arith.shli" and 0 <= b < bits:
        v = a << b
    elif (name == "arith.shrsi" or (name == "arith.shrui" and a >= 0)) and 0 <= b < bits:
        v = a >> b
    elif name in ("arith.minui", "arith.maxui") and a >= 0 and b >= 0:
        v = min(a, b) if name == "arith.minui" else max(a, b)
    else:
        return None
    if bits <= 1:
        return v & 1
    v &= (1 << bits) - 1
    return v - (1 << bits) if v >> (bits - 1) else v


COMPARE: dict[int, Callable[[int, int], bool]] = {
    0: lambda a, b: a == b, 1: lambda a, b: a != b, 2: lambda a, b: a < b, 3: lambda a, b: a <= b,
    4: lambda a, b: a > b, 5: lambda a, b: a >= b,
}
