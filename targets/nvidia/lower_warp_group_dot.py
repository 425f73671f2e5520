"""ttng.warp_group_dot and ttng.warp_group_dot_wait: wgmma by inline assembly.

PTX ISA manual, "Asynchronous warpgroup-level matrix instructions": wgmma.fence orders the registers that the warp group wrote
before the first instruction; wgmma.mma_async instructions; wgmma.commit_group closes them into a group; wgmma.wait_group N
returns when at most N groups are in flight. Registers of a group in flight may not be touched.

A dot is one piece of assembly, from fence to commit, whose accumulators are its results (and its tied inputs, where c is read),
so LLVM can put nothing between the instructions, nor compute the addresses of each one anew: the low word of a descriptor comes in
once an operand, and constants are added to it (they stay below bit 14, the address being one of shared memory). In 32 bits ptxas
does that in uniform registers, where descriptors are read from; 64-bit sums it makes in ordinary ones and moves.

A dot is one sum in the matrix unit, whatever max_num_imprecise_acc says: passes cut a dot where that matters. Results pass through
the wait's assembly, so that nothing reads them before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.dialects import encodings, ttg
from tilewright.dialects.errors import InternalCompilerError, UnsupportedOnTargetError
from tilewright.dialects.linear_layout import log2
from tilewright.dialects.lowering.context import SharedMemory
from tilewright.dialects.matrix_ops import MatrixOp
from tilewright.targets.nvidia.lower_hooks import asm_results
from tilewright.targets.nvidia.matrix_descriptor import OperandDescriptor, describe

WARPS = 4  # of a warp group
ROWS = 64  # of one instruction
_LETTER = {"b32": "r", "f32": "f"}


@dataclass(frozen=True)
class _Operand:
    """One side of the product: descriptors (``low`` is the low word of the warp group's first one, ``high`` the other word;
    ``offsets[tile, k]`` the 16-byte units to add) or, where ``words`` are there, registers: ``words[tile, k]`` of an instruction."""

    low: Any = None
    high: int = 0
    offsets: dict[tuple[int, int], int] | None = None
    words: dict[tuple[int, int], list[Any]] | None = None
    mn_major: bool = False


# ------------------------------------------------------------------------------------------------------- the dot
def lower_dot(ctx: Any, op: Any) -> list[Any]:
    """ttng.warp_group_dot. The result is readable after the wait, or at once where is_async is false or it is f16."""
    b = ctx.b
    a, bv, c = list(op.operands)[:3]
    use_c = ctx.scalar(op.operands[3]) if len(op.operands) > 3 else None
    encoding = encodings.downcast(c.type.encoding)
    row, warps = _row_of(ctx, op, encoding)
    c_tiles = encodings.instruction_tiles(c.type.shape, encoding)
    counts = (1 + max(i for _, i, _ in c_tiles), 1 + max(j for _, _, j in c_tiles))
    steps = bv.type.shape[0] // row.k
    groups = warps[0] // WARPS
    size = 32 * WARPS
    right = _shared(ctx, bv, 0, row.n, [0] * log2(size * groups), counts[1], warps[1], steps, row.k)
    left_memory = ctx.get(a)
    if isinstance(left_memory, SharedMemory):
        left = _shared(ctx, a, 1, ROWS, [0] * log2(size), counts[0], groups, steps, row.k)
    else:
        left = _registers(ctx, a, encoding, row)
    old = ctx.get(c)
    if all(b.constant_of(r) == 0 for r in old):
        use_c = b.i1(0)
    packed = {(i, j): _pack(ctx, row, 2, [old[r] for r in registers]) for (_, i, j), registers in c_tiles.items()}
    # Two f16 accumulators share a register, so carrying them to the wait would take it apart while it is written.
    asynchronous = encodings.boolean(op.attributes["is_async"]) and row.extra["per_register"][2] == 1
    new = _product(b, row, left, right, packed, use_c, steps, wait=not asynchronous)
    out: list[Any] = [None] * len(old)
    for (_, i, j), registers in c_tiles.items():
        for r, value in zip(registers, _unpack(b, row, new[i, j], old[registers[0]].type), strict=True):
            out[r] = value
    return [[out[r] for r in encodings.register_owners(ctx.layout_of(c))]]


def _row_of(ctx: Any, op: Any, encoding: Any) -> tuple[MatrixOp, list[int]]:
    """The instruction and the warps along M and N, where everything fits together."""
    a, bv, c = list(op.operands)[:3]
    if not isinstance(encoding, ttg.MmaEncoding) or not encodings.mma_row(encoding).extra.get("warp_group"):
        raise InternalCompilerError(f"{op.name}: the accumulator's layout {encoding} is of no warp-group instruction")
    row, warps = encodings.mma_row(encoding), encodings.ints(encoding.params[1])
    if ctx.hooks.sm not in range(row.extra["min_sm"], row.extra["max_sm"] + 1):
        raise UnsupportedOnTargetError(f"nvidia: sm_{ctx.hooks.sm} has no wgmma; sm_90a alone does")
    if len(warps) != 2 or warps[0] % WARPS or encodings.boolean(encoding.params[2]):
        raise InternalCompilerError(f"{op.name}: {encoding} needs a multiple of {WARPS} warps along M, two dims and no transposition")
    types = [str(v.type.element_type) for v in (a, bv, c)]
    wanted = ["f32" if t == "tf32" else t for t in (row.a_type, row.b_type, row.c_type)]
    if types != wanted:
        raise InternalCompilerError(f"{op.name}: operands of {types} for {row.name}, which takes {wanted}")
    (m, n), k = c.type.shape, bv.type.shape[0]
    if m % ROWS or n % (row.n * warps[1]) or k % row.k:
        raise InternalCompilerError(f"{op.name}: [{m}, {k}] x [{k}, {n}] is not made of whole {row.name} on {warps} warps")
    return row, warps


def _shared(ctx: Any, value: Any, k_dim: int, tile: int, low: list[int], count: int, groups: int, steps: int, k: int) -> _Operand:
    """An operand in shared memory. low: zeros for the thread's bits below those that number the warp groups along this
    operand's own dim; count: tiles of one warp group, ``groups`` tiles apart."""
    b = ctx.b
    memory = ctx.get(value)
    found = describe(memory, k_dim, tile, encodings.storage_bits(value.type.element_type))
    rest = found.mn[log2(tile):]
    columns = [*low, *(rest[i] if i < len(rest) else 0 for i in range(log2(groups)))]
    extent = memory.shape[1 - k_dim]
    base = found.start(0, 0)
    offsets = {(i, s): _units(found, i * groups * tile % extent, s * k, columns, base) for i in range(count) for s in range(steps)}
    address = b.ptrtoint(memory.base, b.t_i32)
    if base:
        address = b.add(address, b.i32(base))
    part = _uniform(ctx, tuple(columns))
    if part is not None:
        address = b.add(address, part)
    low = b.lshr(b.and_(address, b.i32(0x3FFFF)), b.i32(4))
    constant = found.constant & 0xFFFFFFFF
    low = b.or_(low, b.i32(constant - (1 << 32) if constant >> 31 else constant), disjoint=True)
    return _Operand(low, found.constant >> 32, offsets, mn_major=found.mn_major)


def _units(found: OperandDescriptor, mn: int, k: int, columns: Sequence[int], base: int) -> int:
    """16-byte units from the first tile of a warp group to the one at (mn, k): a sum only where no bits meet."""
    offset = found.start(mn, k) ^ base
    if offset & base or any(c & (offset | base) for c in columns):
        raise InternalCompilerError(f"the tiles of {found} do not lie at sums of their distances")
    return offset >> 4


def _uniform(ctx: Any, columns: tuple[int, ...]) -> Any | None:
    """The xor of ``columns`` by the thread's bits, the same for a whole warp group, and known to be: read from lane 0."""
    if not any(columns):
        return None
    part = ctx.indices.linear(columns)
    return ctx.once(("uniform", columns), lambda b: ctx.hooks.shuffle_idx(b, part, b.i32(0)))


def _registers(ctx: Any, value: Any, encoding: Any, row: MatrixOp) -> _Operand:
    operand = encodings.downcast(value.type.encoding)
    if not isinstance(operand, ttg.DotOperandEncoding) or encodings.downcast(operand.params[1]) != encoding or encodings.integer(operand.params[0]):
        raise InternalCompilerError(f"ttng.warp_group_dot: operand {value.type} is no dot operand 0 of the accumulator's layout {encoding}")
    if encodings.integer(operand.params[2]) > encodings.native_k_width(row):  # k would be dealt out otherwise than B's in memory
        raise InternalCompilerError(f"ttng.warp_group_dot: operand {value.type} has a larger k_width than {row.name} itself")
    registers = ctx.get(value)
    tiles = encodings.instruction_tiles(value.type.shape, operand)
    return _Operand(words={(i, k): _pack(ctx, row, 0, [registers[r] for r in tile]) for (_, i, k), tile in tiles.items()})


def _pack(ctx: Any, row: MatrixOp, side: int, values: Sequence[Any]) -> list[Any]:
    if row.extra["register"][side] != "b32":
        return list(values)
    packed: list[Any] = ctx.hooks._pack(ctx.b, values, row.extra["per_register"][side])
    return packed


def _unpack(b: Any, row: MatrixOp, words: Sequence[Any], type: Any) -> list[Any]:
    per = row.extra["per_register"][2]
    if per == 1:
        return list(words)
    return [v for word in words for v in b.unpack_vector(b.bitcast(word, b.vec(per, type)), per)]


Accumulators = dict[tuple[int, int], list[Any]]


def _product(b: Any, row: MatrixOp, left: _Operand, right: _Operand, old: Accumulators, use_c: Any, steps: int, wait: bool) -> Accumulators:
    """``old`` (where ``use_c``) + the product over ``steps`` instructions' k, as one group."""
    kind = row.extra["register"][2]
    flat = [w for words in old.values() for w in words]
    known = None if use_c is None else b.constant_of(use_c)
    reads = known != 0
    dynamic = use_c if reads and use_c is not None and known is None else None
    args: list[Any] = list(flat) if reads else []
    constraints = [str(i) for i in range(len(flat))] if reads else []

    def operand(value: Any, letter: str) -> str:
        args.append(value)
        constraints.append(letter)
        return f"${len(flat) + len(args) - 1}"

    number, numbers = 0, {}
    for tile, words in old.items():
        numbers[tile] = "{" + ", ".join(f"${i}" for i in range(number, number + len(words))) + "}"
        number += len(words)
    lines = []
    first = "1"
    if not reads or dynamic is not None:
        tested = "0" if dynamic is None else operand(b.zext(dynamic, b.t_i32), "r")
        lines.append(f"setp.ne.b32 p, {tested}, 0;")
        first = "p"
    at = [operand(side.low, "r") if side.words is None else "" for side in (left, right)]
    rows = {i for i, _ in old}
    fragments = {} if left.words is None else {
        (i, s): "{" + ", ".join(operand(w, "r") for w in left.words[i, s]) + "}" for s in range(steps) for i in sorted(rows)}
    tail = ", 1, 1" if row.extra["negates"] else ""
    if row.extra["transposes"]:
        tail += (f", {int(left.mn_major)}" if left.words is None else "") + f", {int(right.mn_major)}"
    lines.append("wgmma.fence.sync.aligned;")
    # One register a descriptor, written once: ptxas 13.5 drops instructions where a descriptor's register is written again.
    descriptors: dict[tuple[str, int, int], str] = {}
    for s in range(steps):
        for (i, j), accumulators in numbers.items():
            sides = []
            for name, word, side, index in (("a", at[0], left, i), ("b", at[1], right, j)):
                if side.offsets is None:
                    sides.append(fragments[i, s])
                    continue
                key = (name, index, s)
                if key not in descriptors:
                    number = len(descriptors)
                    if side.offsets[index, s]:
                        lines.append(f"add.s32 w{number}, {word}, {side.offsets[index, s]};")
                        word = f"w{number}"
                    lines.append(f"mov.b64 d{number}, {{{word}, {side.high:#x}}};")
                    descriptors[key] = f"d{number}"
                sides.append(descriptors[key])
            lines.append(f"{row.intrinsic} {accumulators}, {sides[0]}, {sides[1]}, {1 if s else first}{tail};")
    lines.append("wgmma.commit_group.sync.aligned;")
    if wait:
        lines.append("wgmma.wait_group.sync.aligned 0;")
    count = len(descriptors)
    lines = ["{", f".reg .b64 d<{count}>;", f".reg .b32 w<{count}>;", ".reg .pred p;", *lines, "}"]
    # Without tied inputs the first instruction's results must not share registers with what later ones read.
    outputs = [f"={'' if reads else '&'}{_LETTER[kind]}"] * len(flat)
    results = asm_results(b, "\n".join(lines), ",".join([*outputs, *constraints, "~{memory}"]), [w.type for w in flat], args, True)
    new, number = {}, 0
    for tile, words in old.items():
        new[tile] = results[number:number + len(words)]
        number += len(words)
    return new


# ------------------------------------------------------------------------------------------------------ the wait
def lower_wait(ctx: Any, op: Any) -> list[Any]:
    """ttng.warp_group_dot_wait: tensors go through the assembly, so that nothing reads them before; memdescs stay as they are."""
    b = ctx.b
    lowered = [ctx.get(v) for v in op.operands]
    words: list[Any] = []
    made: dict[Any, Any] = {}  # register → how to get its tied value: (number of its word, element, elements in the word)
    for registers in lowered:
        if isinstance(registers, SharedMemory):
            continue
        fresh = [r for r in dict.fromkeys(registers) if r not in made]
        at = 0
        while at < len(fresh):
            bits = encodings.element_bits(fresh[at].type)
            group = fresh[at:at + max(1, 32 // bits)] if bits in (8, 16) else fresh[at:at + 1]
            for n, register in enumerate(group):
                made[register] = (len(words), n, len(group))
            words.append(_word(ctx, group, bits))
            at += len(group)
    text = f"wgmma.wait_group.sync.aligned {encodings.integer(op.attributes['pendings'])};"
    if not words:
        b.inline_asm(text, "~{memory}", None, [], side_effects=True)
        return lowered
    letters = [_letter(b, w.type) for w in words]
    constraints = [f"={letter}" for letter in letters] + [str(i) for i in range(len(words))] + ["~{memory}"]
    tied = asm_results(b, text, ",".join(constraints), [w.type for w in words], words, True)
    elements: dict[int, list[Any]] = {}
    out = []
    for registers in lowered:
        if not isinstance(registers, SharedMemory):
            for r in registers:
                number, _, count = made[r]
                if number not in elements:
                    elements[number] = _elements(ctx, tied[number], r.type, count)
            registers = [elements[made[r][0]][made[r][1]] for r in registers]
        out.append(registers)
    return out


def _letter(b: Any, type: Any) -> str:
    if type == b.t_f32:
        return "f"
    if type == b.t_f64:
        return "d"
    return "r" if type == b.t_i32 else "l"


def _word(ctx: Any, group: list[Any], bits: int) -> Any:
    """Registers as one value that a constraint letter takes; narrow ones fill 32 bits where there are enough."""
    b = ctx.b
    if len(group) * bits == 32 and bits < 32:
        return ctx.hooks._pack(b, group, len(group))[0]
    if bits >= 32:
        return group[0]
    if len(group) > 1:
        value = b.bitcast(b.pack_vector(group), b.int_type(len(group) * bits))
    else:
        value = b.bitcast(group[0], b.int_type(bits)) if group[0].type != b.int_type(bits) else group[0]
    return b.zext(value, b.t_i32)


def _elements(ctx: Any, word: Any, type: Any, count: int) -> list[Any]:
    b = ctx.b
    bits = encodings.element_bits(type)
    if bits >= 32:
        return [word]
    if count * bits < 32:
        word = b.trunc(word, b.int_type(count * bits))
    if count == 1:
        return [word if word.type == type else b.bitcast(word, type)]
    elements: list[Any] = b.unpack_vector(b.bitcast(word, b.vec(count, type)), count)
    if count * bits == 32:
        ctx.hooks._remember(elements, word)
    return elements


LOWERINGS = {"ttng.warp_group_dot": lower_dot, "ttng.warp_group_dot_wait": lower_wait}

__all__ = ["LOWERINGS", "lower_dot", "lower_wait"]
