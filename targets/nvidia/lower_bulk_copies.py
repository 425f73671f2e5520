"""Bulk tensor copies (TMA): one ttng op becomes one instruction a box of the tensor map, issued by one thread.

The tensor map (CUtensorMap) says the box and how its rows are swizzled; shared memory holds a box's rows one after another, and the
16-byte units of each 128 bytes are xor-ed with the number of the 128 bytes (PTX ISA, "Tensors: swizzling modes"; CUDA driver API,
"cuTensorMapEncodeTiled"). A tile of several boxes (panels of the fastest dim, or more than 256 rows) lies in shared memory box after
box. ``plan`` finds the boxes from the buffer's linear layout and holds each bit of it against what the hardware will write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from tilewright.dialects import encodings, tt
from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import InternalCompilerError, UnsupportedOnTargetError
from tilewright.dialects.lowering.shared_ops import View
from tilewright.targets.nvidia.lower_barriers import asm, first_of, flag, integer, shared_address, text, where

MAX_BOX = 256  # elements along any dim of a box
ALIGNMENT = 128  # bytes, of a box in shared memory without a swizzle
SWIZZLES = (0, 128, 64, 32)


@dataclass(frozen=True)
class Plan:
    """``box``: extents, one a dim of the descriptor. ``copies``: for each instruction the byte offset of its box from the buffer's
    start, and the box's first element in the tile, one number a dim of the descriptor. ``swizzle``: 0, 32, 64 or 128 bytes."""

    box: tuple[int, ...]
    swizzle: int
    copies: tuple[tuple[int, tuple[int, ...]], ...]


def swizzled(byte: int, swizzle: int) -> int:
    """Where byte ``byte`` of a box lies: the number of its 16 bytes xor that of its 128 bytes, as far as the swizzle goes."""
    units = swizzle // 16
    return byte ^ ((byte >> 7) % units << 4) if units else byte


def _own_box(shape: Sequence[int], columns: Sequence[Sequence[int]]) -> list[int]:
    """The largest box that the layout may hold in one piece: rows as long as they are consecutive."""
    run = 0
    while run < len(columns[-1]) and columns[-1][run] == 1 << run:
        run += 1
    return [*(min(n, MAX_BOX) for n in shape[:-1]), min(1 << run, MAX_BOX)]


def _mismatch(shape: Sequence[int], columns: Sequence[Sequence[int]], constant: int, box: Sequence[int], swizzle: int, size: int) -> str:
    """Why the layout is not what copies of ``box`` would write; empty where it is."""
    period = 8 * swizzle or ALIGNMENT
    inner = box[-1] * size
    if inner % 16 or (swizzle and inner > swizzle) or any(n > MAX_BOX for n in box):
        return f"a box of {list(box)} elements of {size} bytes cannot be copied with a {swizzle}-byte swizzle"
    if constant * size % period:
        return f"the tile begins {constant * size} bytes into the buffer, which is no multiple of {period}"
    for d, (n, extent) in enumerate(zip(shape, box)):
        if n % extent:
            return f"dim {d} has {n} elements, which is no multiple of the box's {extent}"
        below = prod(box[d + 1:])
        for bit, found in enumerate(columns[d]):
            at = 1 << bit
            if at < extent:
                wanted = swizzled(at * below * size, swizzle)
                if found * size != wanted:
                    return f"element {at} of dim {d} lies at byte {found * size}, and a copy of {list(box)} puts it at {wanted}"
            elif found * size % period:
                return f"the box at element {at} of dim {d} begins at byte {found * size}, which is no multiple of {period}"
    return ""


def plan(shape: Sequence[int], columns: Sequence[Sequence[int]], constant: int, size: int, rank: int,
         host: tuple[Sequence[int], int] | None = None) -> Plan:
    """How to copy a tile of ``shape`` whose layout has the offset ``columns[d][bit]`` (elements) for coordinate 1 << bit of dim d.

    constant: the offset of its first element. size: bytes an element. rank: dims of the descriptor, at least the tile's. host:
    (box, swizzle) that the descriptor is made with; found from the layout where None. Raises InternalCompilerError where no box fits.
    """
    extra = rank - len(shape)
    shape = [1] * extra + list(shape)
    columns = [[]] * extra + [list(c) for c in columns]
    if host is None:
        box: Sequence[int] = _own_box(shape, columns)
        candidates: Sequence[int] = SWIZZLES
    else:
        box, candidates = host[0], (host[1],)
        if len(box) != rank:
            raise InternalCompilerError(f"a descriptor with a box of {len(box)} dims is used with {rank} coordinates")
    reasons = [_mismatch(shape, columns, constant, box, swizzle, size) for swizzle in candidates]
    if all(reasons):
        likely = {swizzle: reason for swizzle, reason in zip(candidates, reasons)}.get(box[-1] * size, reasons[0])
        raise InternalCompilerError(f"a bulk copy of a tile {shape} does not fit its shared memory: {likely}")
    copies: list[tuple[int, tuple[int, ...]]] = [(constant, (0,) * rank)]
    for d in range(rank):
        for bit, offset in enumerate(columns[d]):
            if 1 << bit >= box[d]:
                step = [0] * rank
                step[d] = 1 << bit
                copies += [(o ^ offset, tuple(a + s for a, s in zip(at, step))) for o, at in copies]
    return Plan(tuple(box), next(s for s, r in zip(candidates, reasons) if not r), tuple((o * size, at) for o, at in copies))


# -------------------------------------------------------------------------------------------------------- operands
def _recipe(ctx: Any, desc: Any) -> Any | None:
    """How the launcher makes the descriptor, where the kernel's metadata says."""
    recipes = ctx.metadata.get("host", {}).get("descriptors")
    if not recipes or not isinstance(desc.owner, ir.Block):
        return None
    number = ir.BlockArgument(desc).arg_number
    index = sum(tt.is_descriptor(a.type) for a in list(desc.owner.arguments)[:number])
    if index >= len(recipes):
        raise InternalCompilerError(f"the kernel has descriptor {index}, but the launcher makes {len(recipes)}")
    return recipes[index]


def _host_box(ctx: Any, desc: Any) -> tuple[Sequence[int], int] | None:
    """(box, swizzle) of the tensor map."""
    recipe = _recipe(ctx, desc)
    return None if recipe is None else ([int(n) for n in recipe["box"]], int(recipe["swizzle"]))


def _tile(ctx: Any, desc: Any, value: Any, rank: int) -> tuple[Any, Plan]:
    """(i32 address of the buffer, how to copy the memdesc ``value``)."""
    memory = ctx.get(value)
    view = View(memory)
    size = encodings.storage_bits(memory.element_type) // 8
    if view.padding:
        raise InternalCompilerError("a bulk copy cannot leave padding between rows of shared memory")
    if encodings.shared_alignment(memory.encoding) < ALIGNMENT and prod(memory.shape) * size % ALIGNMENT:
        raise InternalCompilerError(f"a bulk copy of {prod(memory.shape) * size} bytes: stages of such a buffer would not begin at "
                                    f"multiples of {ALIGNMENT} bytes; use panel_shared")
    columns: list[tuple[int, ...]] = []
    at = len(view.columns)
    for n in memory.shape:
        bits = n.bit_length() - 1
        columns.append(view.columns[at - bits:at])
        at -= bits
    found = plan(memory.shape, columns, view.constant, size, rank, _host_box(ctx, desc))
    return ctx.b.ptrtoint(memory.base, ctx.b.t_i32), found


def _coordinates(ctx: Any, coords: Sequence[Any], at: Sequence[int]) -> list[Any]:
    """Innermost first, as PTX has them."""
    b = ctx.b
    return [b.add(c, b.i32(n)) if n else c for c, n in zip(reversed(coords), reversed(at))]


def _at(b: Any, address: Any, offset: int) -> Any:
    return b.add(address, b.i32(offset)) if offset else address


def _braces(first: int, count: int) -> str:
    return "{" + ", ".join(f"${i}" for i in range(first, first + count)) + "}"


# ------------------------------------------------------------------------------------------------------------- ops
def lower_global_to_local(ctx: Any, op: Any) -> None:
    b = ctx.b
    desc, barrier, dst, pred, *coords = op.operands
    streamed = ctx.scalar(coords.pop()) if "streamed" in op.attributes else None
    rank = len(coords)
    pointer, bar, numbers = ctx.scalar(desc), shared_address(ctx, barrier), [ctx.scalar(c) for c in coords]
    base, found = _tile(ctx, desc, dst, rank)
    mask = integer(op, "multicast") if "multicast" in op.attributes else 0

    def copy(evict: str) -> None:
        policy = ctx.hooks.cache_policy(b, evict)
        modifiers, tail, letters = "", "", "rl" + "r" * rank + "r"
        last: list[Any] = []
        for value, modifier, letter in ((b.i16(mask) if mask else None, ".multicast::cluster", "h"), (policy, ".L2::cache_hint", "l")):
            if value is not None:
                modifiers, tail, letters = modifiers + modifier, f"{tail}, ${len(letters)}", letters + letter
                last.append(value)
        instruction = (f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes{modifiers} "
                       f"[$0], [$1, {_braces(2, rank)}], [${2 + rank}]{tail};")
        for offset, at in found.copies:
            asm(ctx, instruction, letters, (_at(b, base, offset), pointer, *_coordinates(ctx, numbers, at), bar, *last))

    conditions = [first_of(ctx, 0), ctx.scalar(pred)]
    if streamed is None:
        where(ctx, conditions, lambda: copy(text(op, "evict")))
    else:  # no policy at all in the other case: evict_normal, said aloud, took up to 1.4 times as long on an H200 (docs/hopper.md)
        for evict, predicate in (("evict_first", "ne"), ("normal", "eq")):
            where(ctx, [*conditions, b.icmp(predicate, streamed, b.i32(0))], partial(copy, evict))


def _lower_out(ctx: Any, op: Any, opcode: str) -> None:
    """The copies from shared memory, and the commit that makes a group of them."""
    b = ctx.b
    desc, src, *coords = op.operands
    rank = len(coords)
    pointer, numbers = ctx.scalar(desc), [ctx.scalar(c) for c in coords]
    base, found = _tile(ctx, desc, src, rank)
    name, _, kind = opcode.partition(" ")

    def copy() -> None:
        policy = ctx.hooks.cache_policy(b, text(op, "evict"))
        hint, tail = (".L2::cache_hint", f", ${2 + rank}") if policy is not None else ("", "")
        instruction = (f"{name}.{rank}d.global.shared::cta{kind}.bulk_group{hint} [$0, {_braces(1, rank)}], [${1 + rank}]{tail};")
        for offset, at in found.copies:
            args = (pointer, *_coordinates(ctx, numbers, at), _at(b, base, offset), *([policy] if policy is not None else []))
            asm(ctx, instruction, "l" + "r" * rank + "r" + ("l" if policy is not None else ""), args)
        asm(ctx, "cp.async.bulk.commit_group;")

    where(ctx, [first_of(ctx, 0)], copy)


def lower_local_to_global(ctx: Any, op: Any) -> None:
    _lower_out(ctx, op, "cp.async.bulk.tensor")


def lower_reduce(ctx: Any, op: Any) -> None:
    """The element type is the tensor map's (PTX ISA, "cp.reduce.async.bulk.tensor"; its table of operations by type is that of
    "cp.reduce.async.bulk")."""
    kind, element = text(op, "kind"), str(ctx.get(op.operands[1]).element_type)
    allowed = {"f16": ("fadd", "fmin", "fmax"), "bf16": ("fadd", "fmin", "fmax"), "f32": ("fadd",), "f64": ("fadd",),
               "i32": ("add", "min", "max", "umin", "umax", "and", "or", "xor"),
               "i64": ("add", "min", "max", "umin", "umax", "and", "or", "xor")}.get(element, ())
    if kind not in allowed:
        raise UnsupportedOnTargetError(f"nvidia: no bulk tensor reduction {kind} of {element}"
                                       + (f"; allowed: {', '.join(allowed)}" if allowed else "; 32 and 64 bits, f16 and bf16 have some"))
    _check_sign(ctx, op.operands[0], kind)
    _lower_out(ctx, op, f"cp.reduce.async.bulk.tensor .{kind[1:] if kind[0] in 'fu' else kind}")


def _check_sign(ctx: Any, desc: Any, kind: str) -> None:
    """Minima and maxima go by the sign that the tensor map's type has."""
    recipe = _recipe(ctx, desc)
    if recipe is None or kind not in ("min", "max", "umin", "umax"):
        return
    if str(recipe["dtype"]).startswith("u") != (kind[0] == "u"):
        raise InternalCompilerError(f"a bulk reduction {kind} through a descriptor of {recipe['dtype']}: its sign is the other one")


def lower_store_wait(ctx: Any, op: Any) -> None:
    """Groups belong to the thread that made them, so the other threads have none to wait for."""
    read = "" if flag(op, "complete") else ".read"
    asm(ctx, f"cp.async.bulk.wait_group{read} {integer(op, 'pendings')};")


def lower_prefetch(ctx: Any, op: Any) -> None:
    where(ctx, [first_of(ctx, 0)], lambda: asm(ctx, "prefetch.tensormap [$0];", "l", (ctx.scalar(op.operands[0]),)))


def _refuse(ctx: Any, op: Any) -> None:
    what = "gathers" if op.name.endswith("gather") else "scatters"
    raise UnsupportedOnTargetError(f"nvidia: {ctx.pass_ctx.arch} has no bulk tensor copy that {what} rows (sm_100 has); "
                                   f"{op.name} must become loads and stores of pointers")


LOWERINGS: dict[str, Callable[..., Any]] = {
    "ttng.async_tma_copy_global_to_local": lower_global_to_local, "ttng.async_tma_copy_local_to_global": lower_local_to_global,
    "ttng.async_tma_reduce": lower_reduce, "ttng.tma_store_wait": lower_store_wait, "ttng.prefetch_tensormap": lower_prefetch,
    "ttng.async_tma_gather": _refuse, "ttng.async_tma_scatter": _refuse,
}
