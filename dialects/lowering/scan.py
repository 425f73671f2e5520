"""tt.scan: an inclusive scan along any axis of any layout whose bases do not mix dims.

The axis index's bits are handled from the lowest up; each lies in the register, lane or warp number. The lowest register bits
are scanned in order within the thread, which leaves chunks with a total each. Every further bit pairs a lower with an upper
half: the upper's carry is preceded by the lower's total, and both totals become their combination. Finally each chunk's
carry goes before its elements. The halves meet in the thread, by a shuffle, or through shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from tilewright.dialects import encodings
from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import InternalCompilerError
from tilewright.dialects.linear_layout import LinearLayout
from tilewright.dialects.lowering.control_flow import combiner
from tilewright.dialects.lowering.indices import fields, register_constants, thread_columns
from tilewright.dialects.lowering.registry import lowers
from tilewright.dialects.lowering.scratch import storage_bytes


@dataclass(frozen=True)
class ScanPlan:
    """chunks: lists of registers consecutive along the axis, all of one length. steps: for each further axis bit
    ("register", for each chunk the number of its partner, which chunks are upper) or ("lane" | "warp", bit of the thread's
    number). slot_columns: place of a thread among those that exchange through shared memory, by the thread's bits."""

    chunks: tuple[tuple[int, ...], ...]
    steps: tuple[tuple[str, Any], ...]
    slot_columns: tuple[int, ...]
    slots: int
    silent: int  # bits of the thread's number whose threads hold equal totals when warps exchange


@cache
def plan_scan(layout: LinearLayout, axis: int) -> ScanPlan:
    shift, bits = fields(layout)[axis]
    field = ((1 << bits) - 1) << shift
    masks = layout.free_variable_masks()
    lanes = len(layout.columns("lane"))
    idle = masks["lane"] | masks["warp"] << lanes
    where: dict[int, tuple[str, int]] = {}
    columns = [("register", i, c) for i, c in enumerate(layout.columns("register")) if not masks["register"] >> i & 1]
    columns += [("lane" if i < lanes else "warp", i, c) for i, c in enumerate(thread_columns(layout)) if not idle >> i & 1]
    for kind, i, c in columns:
        along = c & field
        if along and (c != along or along & (along - 1)):
            raise InternalCompilerError(f"a scan along dim {axis} of a layout that mixes bits: {layout}; convert it first")
        if along:
            where[(along >> shift).bit_length() - 1] = (kind, i)
    order = [where[k] for k in range(bits)]
    inner = 0
    while inner < bits and order[inner][0] == "register":
        inner += 1
    constants = register_constants(layout)
    groups: dict[int, list[tuple[int, int]]] = {}
    low = ((1 << inner) - 1) << shift
    for r in encodings.unique_registers(layout):
        groups.setdefault(constants[r] & ~low, []).append((constants[r] & low, r))
    keys = list(groups)
    steps: list[tuple[str, Any]] = []
    for k in range(inner, bits):
        kind, i = order[k]
        if kind == "register":
            bit = 1 << (shift + k)
            steps.append(("register", tuple((keys.index(key ^ bit), bool(key & bit)) for key in keys)))
        else:
            steps.append((kind, i))
    lane_axis = {i for kind, i in order if kind == "lane"}
    slot_columns, at = [], 0
    for i in range(len(thread_columns(layout))):
        slot_columns.append(0 if i in lane_axis else 1 << at)
        at += i not in lane_axis
    return ScanPlan(tuple(tuple(r for _, r in sorted(g)) for g in groups.values()), tuple(steps), tuple(slot_columns), 1 << at,
                    sum(1 << i for i in lane_axis))


def _plan(op: Any) -> ScanPlan:
    return plan_scan(encodings.layout_of(op.operands[0].type), int(ir.IntegerAttr(op.attributes["axis"]).value))


def _region(plan: ScanPlan, size: int) -> int:
    return -(-len(plan.chunks) * plan.slots * size // 16) * 16


def scratch_bytes(op: Any, hooks: Any) -> int:
    """A total a chunk of every thread that exchanges across warps, twice where there is more than one round."""
    plan = _plan(op)
    rounds = sum(kind == "warp" for kind, _ in plan.steps)
    return min(rounds, 2) * sum(_region(plan, storage_bytes(v.type)) for v in op.operands)


@lowers("tt.scan")
def lower_scan(ctx: Any, op: Any) -> list[Any]:
    b = ctx.b
    plan = _plan(op)
    reverse = bool(ir.BoolAttr(op.attributes["reverse"]).value)
    combine = combiner(ctx, ctx.node)
    sources = [ctx.get(v) for v in op.operands]
    operands = range(len(sources))
    count = len(plan.chunks)
    chunks = [tuple(reversed(c)) if reverse else c for c in plan.chunks]
    length = len(chunks[0])
    # prefix[o][i][g]: element i of chunk g scanned within its chunk
    prefix = [[[s[c[0]] for c in chunks]] for s in sources]
    for i in range(1, length):
        step = combine([prefix[o][i - 1] for o in operands], [[s[c[i]] for c in chunks] for s in sources])
        for o in operands:
            prefix[o].append(step[o])
    total = [list(prefix[o][-1]) for o in operands]
    # carry[o][g]: what precedes chunk g; has[g]: None (nothing), True, or an i1
    carry: list[list[Any]] = [list(total[o]) for o in operands]
    has: list[Any] = [None] * count

    def precede(g_list: list[int], before: list[list[Any]], when: Any) -> None:
        """``before`` (by operand, by chunk of ``g_list``) goes in front of the carries, where ``when`` (i1, or True)."""
        joined = combine(before, [[carry[o][g] for g in g_list] for o in operands])
        for n, g in enumerate(g_list):
            for o in operands:
                new, old = before[o][n], carry[o][g]
                if has[g] is True:
                    new = joined[o][n]
                elif has[g] is not None:
                    new = b.select(has[g], joined[o][n], new)
                carry[o][g] = new if when is True or has[g] is None else b.select(when, new, old)
            has[g] = True if when is True or has[g] is True else when if has[g] is None else b.or_(has[g], when)

    rounds = 0
    for kind, where in plan.steps:
        if kind == "register":
            upper = [g for g, (_, up) in enumerate(where) if up != reverse]
            lower = [where[g][0] for g in upper]
            both = combine([[total[o][g] for g in lower] for o in operands], [[total[o][g] for g in upper] for o in operands])
            precede(upper, [[total[o][g] for g in lower] for o in operands], True)
            for o in operands:
                for n, (lo, up) in enumerate(zip(lower, upper)):
                    total[o][lo] = total[o][up] = both[o][n]
            continue
        bit = ctx.indices.bits_are_zero(1 << where)
        is_upper = bit if reverse else ctx.once(("set", where), lambda b, bit=bit: b.xor(bit, b.i1(1)))
        if kind == "lane":
            others = [[ctx.shuffle_xor(x, 1 << where) for x in total[o]] for o in operands]
        else:
            others = _swap(ctx, op, plan, total, where, rounds)
            rounds += 1
        low = [[b.select(is_upper, x, y) for x, y in zip(others[o], total[o])] for o in operands]
        high = [[b.select(is_upper, y, x) for x, y in zip(others[o], total[o])] for o in operands]
        precede(list(range(count)), others, is_upper)
        total = combine(low, high)
    out: list[list[Any]] = [[None] * len(s) for s in sources]
    for i in range(length):
        joined = combine([carry[o] for o in operands], [prefix[o][i] for o in operands]) if plan.steps else None
        for g, chunk in enumerate(chunks):
            for o in operands:
                value = prefix[o][i][g]
                if has[g] is True:
                    assert joined is not None
                    value = joined[o][g]
                elif has[g] is not None:
                    assert joined is not None
                    value = b.select(has[g], joined[o][g], value)
                out[o][chunk[i]] = value
    owners = encodings.register_owners(ctx.layout_of(op.operands[0]))
    return [[o[r] for r in owners] for o in out]


def _swap(ctx: Any, op: Any, plan: ScanPlan, total: list[list[Any]], bit: int, number: int) -> list[list[Any]]:
    """Totals of the thread whose number differs in ``bit``, through shared memory. Rounds alternate between two regions, so
    one barrier each is enough."""
    b, hooks = ctx.b, ctx.hooks
    sizes = [storage_bytes(v.type) for v in op.operands]
    starts = [sum(_region(plan, s) for s in sizes) * (number % 2)]
    for size in sizes:
        starts.append(starts[-1] + _region(plan, size))
    base = ctx.scratch(op)
    mine = ctx.indices.combined(plan.slot_columns, 0)
    theirs = b.xor(mine, b.i32(plan.slot_columns[bit]))
    types = [ctx.storage_type(t[0].type) for t in total]
    bases = [b.gep(base, start, b.t_i8) for start in starts[:-1]]
    writer = ctx.indices.bits_are_zero(plan.silent)

    def pointers(slot: Any) -> list[list[Any]]:
        return [[b.gep(b.gep(bs, slot, t), g * plan.slots, t) for g in range(len(plan.chunks))] for bs, t in zip(bases, types)]

    targets = pointers(mine)

    def write() -> None:
        for values, ptrs, size in zip(total, targets, sizes):
            for x, p in zip(values, ptrs):
                hooks.store_shared(b, p, ctx.to_storage(x), None, size)

    if writer is None:
        write()
    else:
        b.if_then(writer, write)
    hooks.barrier(b)
    return [[ctx.from_storage(hooks.load_shared(b, p, t, size), values[0].type) for p in ptrs]
            for values, ptrs, t, size in zip(total, pointers(theirs), types, sizes)]
