"""Plan a conversion between two register layouts: pure data, made from the layouts alone, executed by the lowering (or by
a numpy model in the tests).

Three ways, the cheapest that works:

- registers: every thread has what it needs; registers are renumbered (nothing is emitted);
- shuffle: every warp has what it needs; lanes exchange registers, at most 32 bits at a time;
- shared: through shared memory in the layout that ``dialects.swizzle`` chooses, in rounds where scratch is short.
  Rounds in which some threads write and others do not are made only for ``most_bytes``, which is for what would not fit otherwise.

Maps below are linear over GF(2): a tuple of columns, one a bit of the index, xor-ed for the bits set.
A thread's index is lane + warp_size * warp, so thread columns are the lane's followed by the warp's.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tilewright.dialects.encodings import register_owners
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.dialects.gf2 import Gf2Solver, combine, independent
from tilewright.dialects.linear_layout import LinearLayout, log2
from tilewright.dialects.swizzle import choose_shared, coordinates

Columns = tuple[int, ...]
DEFAULT_MAX_BYTES = 32768  # scratch for one conversion; beyond it more rounds are made where that is possible
_SHARED_FIXED_COST = 24  # a barrier and a round trip, in shuffles


@dataclass(frozen=True)
class ShufflePlan:
    """Within each warp, in steps ``t`` numbered by the destination's unique registers.

    In step t the thread sends source register ``send_step(t) ^ send_thread(thread)`` and receives from lane
    ``lane_step(t) ^ lane_thread(thread)``; destination register r is what step ``r_unique ^ keep_thread(thread)`` received,
    r_unique being ``unique[r]``. ``packed``: steps whose lanes agree and which share one 32-bit word, as groups of steps.
    """

    send_step: Columns
    send_thread: Columns
    lane_step: Columns
    lane_thread: Columns
    keep_thread: Columns
    unique: tuple[int, ...]
    packed: tuple[tuple[int, ...], ...]
    lane_identity: bool  # lane_thread is the identity: the lane differs from one's own by a constant

    def moves(self, group: tuple[int, ...]) -> bool:
        """Whether a group of steps leaves its lane at all."""
        return not self.lane_identity or combine(self.lane_step, group[0]) != 0

    @property
    def keeps_words(self) -> bool:
        """Whether ``keep_thread`` takes groups of steps to groups as they are, so that whole words can be chosen from."""
        groups = set(self.packed)
        return all(tuple(t ^ c for t in group) in groups for c in self.keep_thread for group in self.packed)


@dataclass(frozen=True)
class Access:
    """One vector: registers in address order, and the element offset that is xor-ed with the thread's own."""

    registers: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class SharedPlan:
    """Each round: all ``stores``, a barrier, all ``loads``, and a barrier before the next round.

    ``round_thread``, where not 0: the entry q of ``stores`` is written in round q ^ round_thread(thread). Element offset of an access: ``offset ^ thread columns``. Threads write where ``thread & idle_threads == 0``.
    ``copies``: destination registers that repeat another. The barrier is of the whole block even where no warp reads what
    another wrote: insert_barriers counts on every op with scratch to settle what came before it.
    """

    stores: tuple[tuple[Access, ...], ...]
    loads: tuple[tuple[Access, ...], ...]
    store_thread: Columns
    load_thread: Columns
    idle_threads: int
    copies: tuple[tuple[int, int], ...]
    elements: int
    round_thread: Columns = ()

    def writers(self, number: int) -> list[tuple[int, tuple[Access, ...]]]:
        """What is written in a round: (value of ``round_thread`` of the threads that write, their accesses), of those that are any."""
        values = sorted(span_table(tuple(independent(self.round_thread))))
        return [(v, self.stores[number ^ v]) for v in values if self.stores[number ^ v]]


@dataclass(frozen=True)
class ConvertPlan:
    """``kind``: "registers", "shuffle" or "shared"; the field of that name is set.

    registers: source register of each destination register. element_bytes: storage of one element.
    """

    kind: str
    element_bytes: int
    num_registers: int
    registers: tuple[int, ...] | None = None
    shuffle: ShufflePlan | None = None
    shared: SharedPlan | None = None

    @property
    def is_noop(self) -> bool:
        """Every register stays what it is."""
        return self.registers == tuple(range(self.num_registers)) if self.registers is not None else False

    @property
    def scratch_bytes(self) -> int:
        return self.shared.elements * self.element_bytes if self.shared else 0


@functools.lru_cache(maxsize=4096)
def plan_convert(src: LinearLayout, dst: LinearLayout, bits: int, warp_size: int, num_warps: int,
                 max_bytes: int = DEFAULT_MAX_BYTES, way: str = "", most_bytes: int | None = None) -> ConvertPlan:
    """How to get from ``src`` to ``dst``: layouts (register, lane, warp, block) of one tensor.

    bits: of an element; those below 8 occupy a byte. max_bytes: scratch to stay within, where the layouts allow rounds.
    most_bytes: scratch that a shared plan must stay within, by rounds of some threads' elements too; a row of one element a thread is the least.
    way: "" for the cheapest, or the kind to take (tests); "exchange" is a shuffle in which every lane deals with the lane at one
    xor distance, if it can be: lanes that need the same data from different lanes do their steps in different orders.
    Raises ValueError where layouts do not match the machine or each other, or where ``way`` is impossible; UnsupportedOnTargetError where data would have to cross thread blocks.
    """
    if src.out_sizes != dst.out_sizes:
        raise ValueError(f"a conversion keeps the shape: {src.out_sizes} to {dst.out_sizes}")
    for layout in (src, dst):
        if (layout.in_size("lane"), layout.in_size("warp")) != (warp_size, num_warps):
            raise ValueError(f"{layout} is not for {num_warps} warps of {warp_size} lanes")
    if src.columns("block") != dst.columns("block"):
        raise UnsupportedOnTargetError("a layout conversion that moves data between the thread blocks of a cluster is not supported")
    element_bytes = max(8, bits) // 8
    registers = _plan_registers(src, dst)
    if registers is not None and way in ("", "registers"):
        return ConvertPlan("registers", element_bytes, len(registers), registers=registers)
    shuffle = _plan_shuffle(src, dst, element_bytes, way == "exchange") if way in ("", "shuffle", "exchange") else None
    if shuffle and (way or _shuffle_cost(shuffle, src, element_bytes) <= _shared_cost(src, dst, element_bytes)):
        return ConvertPlan("shuffle", element_bytes, dst.in_size("register"), shuffle=shuffle)
    if way not in ("", "shared"):
        raise ValueError(f"{way} alone cannot convert {src} to {dst}")
    return ConvertPlan("shared", element_bytes, dst.in_size("register"), shared=_plan_shared(src, dst, element_bytes, max_bytes, most_bytes))


def span_table(columns: Columns) -> list[int]:
    """The map's value for every index."""
    table = [0]
    for c in columns:
        table += [x ^ c for x in table]
    return table


def _plan_registers(src: LinearLayout, dst: LinearLayout) -> tuple[int, ...] | None:
    if any(src.columns(d) != dst.columns(d) for d in ("lane", "warp")):
        return None
    solver = Gf2Solver(src.columns("register"))
    columns = [solver.solve(c) for c in dst.columns("register")]
    if None in columns:
        return None
    return tuple(span_table(tuple(c for c in columns if c is not None)))


# --------------------------------------------------------------------------------------------------- shuffles
def _plan_shuffle(src: LinearLayout, dst: LinearLayout, element_bytes: int, exchange: bool = False) -> ShufflePlan | None:
    """None where some warp lacks data that it needs, or this method finds no lanes to read from.

    The source of (destination register, lane, warp) is sought as (register r', lane l') of the same warp, linear in all.
    Where several lanes of one step would read different registers of one lane, lanes are made to do other steps first
    (``keep_thread``), so that in each step a sender serves one register.
    """
    s_reg, s_lane = src.columns("register"), src.columns("lane")
    lane_bits, reg_bits = len(s_lane), len(s_reg)
    reg_mask = (1 << reg_bits) - 1
    columns = s_reg + s_lane
    solver = Gf2Solver(columns)

    def find(vector: int) -> tuple[int, int] | None:
        x = solver.solve(vector)
        return None if x is None else (x & reg_mask, x >> reg_bits)

    # unique destination registers
    d_reg = dst.columns("register")
    kept = independent(d_reg)
    numbering = Gf2Solver(kept)
    unique_columns = tuple(numbering.solve(c) or 0 for c in d_reg)
    steps = [find(c) for c in kept]
    warps = [find(d ^ s) for d, s in zip(dst.columns("warp"), src.columns("warp"))]
    if None in steps or None in warps:
        return None
    step = [s for s in steps if s is not None]
    warp = [w for w in warps if w is not None]

    # ways to name the same source differently: dependent columns
    kernel = []
    seen = Gf2Solver()
    for i, c in enumerate(columns):
        rest, comb = seen.reduce(c)
        if rest == 0:
            x = comb | 1 << i
            kernel.append((x & reg_mask, x >> reg_bits))
        seen.add(c)

    keep = [0] * lane_bits
    lane: list[tuple[int, int]] = []
    reached = Gf2Solver()
    only_registers = Gf2Solver(s_reg)
    for i, c in enumerate(dst.columns("lane")):
        base = find(c)
        if base is None:
            return None
        candidates: list[tuple[int, int, int]] = []  # register part, lane part, step xor-ed in
        at_home = only_registers.solve(c ^ s_lane[i])
        if at_home is not None:
            candidates.append((at_home, 1 << i, 0))
        candidates.append((*base, 0))
        candidates += [(base[0] ^ r, base[1] ^ l, 0) for r, l in kernel if l]
        candidates += [(base[0] ^ r, base[1] ^ l, 1 << t) for t, (r, l) in enumerate(step) if l]
        candidates += [(base[0] ^ r ^ kr, base[1] ^ l ^ kl, 1 << t)
                       for t, (r, l) in enumerate(step) if l for kr, kl in kernel if kl]
        if exchange:
            candidates.sort(key=lambda candidate: candidate[1] != 1 << i)
        for r, l, t in candidates:  # noqa: B007 (t is used after the loop)
            rest, comb = reached.reduce(l)
            if rest or r == combine([x[0] for x in lane], comb):
                break
        else:
            return None
        keep[i] = t
        lane.append((r, l))
        reached.add(l)

    # register sent, as a function of the sender's lane
    taken = [i for i in range(lane_bits) if not reached.free >> i & 1]
    by_lane = Gf2Solver([lane[i][1] for i in taken])

    def sent(lane_part: int) -> int:
        """Extended by 0 to lanes that nobody reads from."""
        return combine([lane[i][0] for i in taken], by_lane.reduce(lane_part)[1])

    # On a complement of the read lanes the extension is whatever reduce makes of it, but linear: reduce is.
    send_lane = tuple(sent(1 << i) for i in range(lane_bits))
    send_warp = tuple(r ^ sent(l) for r, l in warp)
    send_step = tuple(r ^ sent(l) for r, l in step)
    lane_step = tuple(l for _, l in step)
    lane_thread = tuple(l for _, l in lane) + tuple(l for _, l in warp)
    identity = lane_thread == tuple(1 << i for i in range(lane_bits)) + (0,) * len(warp)

    # steps that differ by these leave the lane alone: they share a word
    still, seen = [], Gf2Solver()
    for i, l in enumerate(lane_step):
        rest, comb = seen.reduce(l)
        if rest == 0:
            still.append(comb | 1 << i)
        seen.add(l)
    still = still[:max(0, 2 - log2(element_bytes))]
    others = independent([1 << i for i in range(len(kept))], given=still)
    inner = span_table(tuple(still))
    packed = tuple(tuple(a ^ b for b in inner) for a in span_table(tuple(others)))
    return ShufflePlan(send_step, send_lane + send_warp, lane_step, lane_thread, tuple(keep) + (0,) * len(warp),
                       tuple(span_table(unique_columns)), packed, identity)


def shuffles_of(plan: ShufflePlan, element_bytes: int) -> int:
    """32-bit shuffles a thread makes."""
    return sum(plan.moves(g) for g in plan.packed) * max(1, element_bytes // 4)


def selects_of(plan: ShufflePlan, src_registers: int) -> int:
    """Selects a thread makes, at most: a level each for every independent register bit that depends on the thread."""
    steps = 1 << len(plan.send_step)
    return (Gf2Solver(plan.send_thread).rank * min(src_registers, steps) + Gf2Solver(plan.keep_thread).rank * steps)


def _shuffle_cost(plan: ShufflePlan, src: LinearLayout, element_bytes: int) -> float:
    words = max(1, element_bytes // 4)
    return shuffles_of(plan, element_bytes) + 0.5 * words * selects_of(plan, src.in_size("register"))


def _shared_cost(src: LinearLayout, dst: LinearLayout, element_bytes: int) -> float:
    """In shuffles: wavefronts of four bytes a lane, and a fixed part."""
    registers = (1 << Gf2Solver(src.columns("register")).rank) + (1 << Gf2Solver(dst.columns("register")).rank)
    return registers * element_bytes / 4 + _SHARED_FIXED_COST


# ---------------------------------------------------------------------------------------------- shared memory
def _plan_shared(src: LinearLayout, dst: LinearLayout, element_bytes: int, max_bytes: int, most_bytes: int | None) -> SharedPlan:
    choice = choose_shared(src, dst, element_bytes, max_bytes)
    if most_bytes is not None and choice.layout.in_size("offset") * element_bytes > most_bytes:
        choice = choose_shared(src, dst, element_bytes, most_bytes, by_threads=True)
    size = choice.layout.in_bits("offset")
    mask = (1 << size) - 1
    at_src, at_dst = coordinates(choice.layout, src), coordinates(choice.layout, dst)
    free = src.free_variable_masks()
    src_regs = [r for r in range(src.in_size("register")) if r & free["register"] == 0]
    owners = register_owners(dst)
    dst_regs = [r for r, o in enumerate(owners) if r == o]

    def accesses(registers: list[int], columns: Columns, vec: int) -> tuple[tuple[Access, ...], ...]:
        where = span_table(columns)
        rounds: list[dict[int, list[tuple[int, int]]]] = [{} for _ in range(choice.rounds)]
        for r in registers:
            offset = where[r] & mask
            rounds[where[r] >> size].setdefault(offset & -vec, []).append((offset, r))
        return tuple(tuple(Access(tuple(r for _, r in sorted(group)), base) for base, group in found.items())
                     for found in rounds)

    idle = free["lane"] | free["warp"] << src.in_bits("lane")
    writer = tuple(0 if idle >> i & 1 else c for i, c in enumerate(at_src["lane"] + at_src["warp"]))
    return SharedPlan(
        accesses(src_regs, at_src["register"], choice.store_vec), accesses(dst_regs, at_dst["register"], choice.load_vec),
        tuple(c & mask for c in writer), at_dst["lane"] + at_dst["warp"], idle, tuple((r, o) for r, o in enumerate(owners) if r != o),
        1 << size, tuple(c >> size for c in writer))
