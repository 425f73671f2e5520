"""Meaning of warp-group matrix products, wgmma (PTX ISA manual, "Asynchronous Warpgroup Level Matrix Instructions"). Written apart from the
lowering: matrix descriptors and register fragments are read as the manual defines them.

A product is computed when its group is waited for: its operands in shared memory are read then, and its registers are ``Pending``
until then. Products are exact in f32 (f16, bf16, tf32, fp8) or integers, sums are f32 or i32; a device adds up f32 with slightly fewer
bits (fp8 notably), so results may differ from it in the last bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.dialects.simt import SimtError
from tilewright.dialects.simt.pending import Pending
from tilewright.dialects.simt.values import bf16_to_f32
from tilewright.targets.nvidia import simulate_barriers, simulate_bulk
from tilewright.targets.nvidia.simulate_barriers import require_groups
from tilewright.targets.nvidia.simulate_bulk import swizzled
from tilewright.targets.nvidia.simulate_instructions import INSTRUCTIONS as WARP_INSTRUCTIONS
from tilewright.targets.nvidia.simulate_instructions import Handler, _fp8, _word, as_bits

Array = Any

# type: (bytes, K of one instruction, types of D)
_TYPES = {"f16": (2, 16, ("f16", "f32")), "bf16": (2, 16, ("f32",)), "tf32": (4, 8, ("f32",)), "e4m3": (1, 32, ("f16", "f32")),
          "e5m2": (1, 32, ("f16", "f32")), "s8": (1, 32, ("s32",)), "u8": (1, 32, ("s32",))}
_SWIZZLE = {0: 0, 1: 128, 2: 64, 3: 32}  # bits 63-62


# ------------------------------------------------------------------------------------------- operands in shared memory
@lru_cache(maxsize=512)
def descriptor_bytes(descriptor: int, extent: int, k: int, itemsize: int, k_major: bool) -> tuple[Array, Array]:
    """(int[extent, k]: each element's offset in shared memory; the distinct bytes). ``extent`` is M of A or N of B.

    "Matrix Descriptor Format", "Strides", "Shared Memory Matrix Layout": start address, leading and stride byte offset in units
    of 16 bytes; core matrices are 8 rows of 16 bytes, or with a swizzle 8 rows of its width.
    """
    if descriptor & ~0xC00E_3FFF_3FFF_3FFF:
        raise SimtError(f"matrix descriptor {descriptor:#018x} has bits set that the format leaves 0")
    start, leading, stride = ((descriptor >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    width = _SWIZZLE[descriptor >> 62]
    if descriptor >> 49 & 7:
        raise SimtError("a matrix descriptor with a base offset is not simulated: let matrices start where a swizzle's pattern does")
    if width and start % (8 * width) >= width and k_major:
        raise SimtError(f"a matrix descriptor's start {start} lies in row {start % (8 * width) // width} of a swizzle's pattern of 8 rows")
    if width and start % (8 * width) and not k_major:
        raise SimtError(f"a matrix descriptor's start {start} is not a multiple of {8 * width}, where a swizzle's pattern starts")
    vector = 16 // itemsize  # elements
    i, j = np.meshgrid(np.arange(extent), np.arange(k), indexing="ij")
    if k_major and width:
        offset = i % 8 * width + i // 8 * stride + j * itemsize
        if (start % width) + k * itemsize > width:
            raise SimtError(f"a matrix descriptor's rows reach past its swizzle's {width} bytes")
    elif k_major:
        offset = i % 8 * 16 + i // 8 * stride + j // vector * leading + j % vector * itemsize
    elif width:
        row = width // itemsize
        offset = i % row * itemsize + i // row * leading + j % 8 * width + j // 8 * stride
    else:
        offset = i % vector * itemsize + i // vector * stride + j % 8 * 16 + j // 8 * leading
    offset = swizzled(start + offset.astype(np.int64), width)
    return offset, np.unique(offset[..., None] + np.arange(itemsize))


def _floats(raw: Array, t: str) -> Array:
    """Unsigned integers with an element's bits each, as f32, exactly."""
    if t == "f16":
        return raw.view(np.float16).astype(np.float32)
    if t == "bf16":
        return bf16_to_f32(raw)
    if t == "tf32":  # the low 13 bits are not read
        return (raw & np.uint32(0xFFFFE000)).view(np.float32)
    if t in ("s8", "u8"):
        return raw.view(np.int8 if t == "s8" else np.uint8).astype(np.float32)
    return _FP8[t][raw]


_FP8 = {"e4m3": _fp8(np.arange(256, dtype=np.uint8), 4).astype(np.float32), "e5m2": _fp8(np.arange(256, dtype=np.uint8), 5).astype(np.float32)}


# --------------------------------------------------------------------------------------------- operands in registers
@lru_cache(maxsize=64)
def _accumulator(n: int) -> tuple[Array, Array]:
    """(row, column) of D's elements, int[128, n / 2]: "Register Fragments", "Matrix D". Warp w has rows 16w and on; element i of
    a lane is row lane / 4 + 8·(i / 2 % 2), column 2·(lane % 4) + i % 2 + 8·(i / 4)."""
    thread, i = np.arange(128)[:, None], np.arange(n // 2)[None]
    lane = thread % 32
    return 16 * (thread // 32) + lane // 4 + i // 2 % 2 * 8, lane % 4 * 2 + i % 2 + i // 4 * 8


@lru_cache(maxsize=8)
def _register_a(itemsize: int) -> tuple[Array, Array]:
    """(row, k) of A's elements, int[128, 16 / itemsize], four 32-bit registers: register r has row lane / 4 + 8·(r % 2) and the
    4 / itemsize elements from (lane % 4 + 4·(r / 2))·(4 / itemsize)."""
    per = 4 // itemsize
    thread, i = np.arange(128)[:, None], np.arange(4 * per)[None]
    lane, register = thread % 32, i // per
    return 16 * (thread // 32) + lane // 4 + register % 2 * 8, (lane % 4 + 4 * (register // 2)) * per + i % per


class Product:
    """One warp group's wgmma.mma_async: its operands, and after ``compute`` its registers, [128, registers]."""

    def __init__(self, group: int, name: str, n: int, d_type: str, registers: int):
        self.group, self.name, self.n, self.d_type, self.registers = group, name, n, d_type, registers
        self.result: Array = None
        self.a: Callable[[], Array]
        self.b: Callable[[], Array]
        self.c: Product | Array | None = None
        self.signs, self.saturate, self.time = (1, 1), False, 0

    def compute(self) -> None:
        a, b = self.a(), self.b()
        total = np.matmul(a, b.T)
        if self.signs[0] * self.signs[1] < 0:
            total = -total
        rows, columns = _accumulator(self.n)
        new = total[rows, columns]
        c = self.c.result if isinstance(self.c, Product) else self.c
        if self.d_type == "f32":
            self.result = new if c is None else new + c
        elif self.d_type == "f16":
            old = 0 if c is None else np.ascontiguousarray(c).view(np.float16).astype(np.float32)
            self.result = (new + old).astype(np.float16).view(np.uint32)
        else:
            wide = new.astype(np.int64) + (0 if c is None else np.ascontiguousarray(c).view(np.int32))
            if self.saturate:
                wide = np.clip(wide, -1 << 31, (1 << 31) - 1)
            self.result = (wide & 0xFFFFFFFF).astype(np.uint32)
        self.a = self.b = _gone
        self.c = None

    def __str__(self) -> str:
        return f"{self.name} of warp group {self.group}"


def _gone() -> Array:
    raise SimtError("a product is computed twice")


class Ticket:
    """Register ``register`` of a product, for ``Pending``."""

    def __init__(self, product: Product, register: int):
        self.product, self.register = product, register

    def __str__(self) -> str:
        return f"{self.product} (register {self.register})"


class WarpGroups:
    """The products of each warp group that are not known to be complete: the latest, uncommitted ones, and committed groups."""

    def __init__(self, machine: Any):
        self.count = machine.num_threads // 128
        self.begun: list[list[Product]] = [[] for _ in range(self.count)]
        self.groups: list[list[list[Product]]] = [[] for _ in range(self.count)]
        self.fenced = [False] * self.count
        self.masks = [np.arange(machine.num_threads) // 128 == g for g in range(self.count)]

    @staticmethod
    def of(m: Any) -> WarpGroups:
        found = m.state.get("warp groups")
        if found is None:
            found = m.state["warp groups"] = WarpGroups(m)
        return found  # type: ignore[no-any-return]

    def finish(self, machine: Any) -> None:
        if any(self.begun) or any(any(g) for g in self.groups):
            raise SimtError("the kernel ends while wgmma may still run: wgmma.wait_group is missing")


# -------------------------------------------------------------------------------------------------------- instructions
def wgmma(parts: list[str]) -> Handler:
    """wgmma.fence, commit_group, wait_group, mma_async."""
    if "aligned" not in parts or "sync" not in parts:
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")
    handlers = {"fence": _fence, "commit_group": _commit, "wait_group": _wait}
    if parts[1] == "mma_async":
        return _mma_async(parts)
    if parts[1] not in handlers:
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")
    return handlers[parts[1]]


def _groups(state: Any, mask: Any, what: str) -> list[int]:
    if mask is not None and not mask[state.machine.mask].all():
        raise SimtError(f"{what} under a predicate that differs between threads")
    return require_groups(state.machine, what)


def _fence(state: Any, operands: Any, mask: Any) -> None:
    groups = WarpGroups.of(state.machine)
    for g in _groups(state, mask, "wgmma.fence"):
        groups.fenced[g] = True


def _commit(state: Any, operands: Any, mask: Any) -> None:
    groups = WarpGroups.of(state.machine)
    for g in _groups(state, mask, "wgmma.commit_group"):
        groups.groups[g].append(groups.begun[g])
        groups.begun[g] = []


def _wait(state: Any, operands: Any, mask: Any) -> None:
    """All but the n latest groups are complete, for the whole warp group: a product is one operation of its four warps."""
    m = state.machine
    groups, pending = WarpGroups.of(m), operands[0].value
    if operands[0].kind != "imm":
        raise SimtError("wgmma.wait_group takes a number")
    for g in _groups(state, mask, "wgmma.wait_group"):
        committed = groups.groups[g]
        done = max(0, len(committed) - pending)
        for product in (p for group in committed[:done] for p in group):
            product.compute()
            warps = _warps(m, g)
            m.shared.order.stream_done(warps, m.shared.order.stream(0, warps[0]), product.time)
        del committed[:done]
        groups.fenced[g] = False
    for key, value in state.values.items():
        if isinstance(value, Pending):
            state.values[key] = value.resolve(lambda ticket: _value(m, ticket))


def _warps(m: Any, group: int) -> list[int]:
    return list(range(m.first_warp + 4 * group, m.first_warp + 4 * group + 4))


def _value(m: Any, ticket: Ticket) -> Array | None:
    result = ticket.product.result
    if result is None:
        return None
    out = np.zeros(m.num_threads, result.dtype)
    first = 128 * ticket.product.group
    out[first:first + 128] = result[:, ticket.register]
    return out


def _uniform(state: Any, operand: Any, group: int, what: str) -> int:
    values = state.read(operand)[128 * group:128 * group + 128]
    if (values != values[0]).any():
        raise SimtError(f"{what} differs between the threads of a warp group")
    return int(values[0])


def _mma_async(parts: list[str]) -> Handler:
    name = ".".join(parts)
    shape = re.fullmatch(r"m64n(\d+)k(\d+)", parts[4])
    d_type, (a_type, b_type) = parts[5], [p for p in parts[6:] if p != "satfinite"] if len(parts) >= 8 else ("", "")
    if shape is None or a_type not in _TYPES or b_type not in _TYPES:
        raise SimtError(f"{name} is unknown to the simulator")
    n, k = int(shape[1]), int(shape[2])
    itemsize, k_of_type, d_types = _TYPES[a_type]
    same = a_type == b_type or (a_type[0] == b_type[0] == "e") or {a_type, b_type} == {"s8", "u8"}
    sizes = range(8, 257, 8) if a_type not in ("s8", "u8") else (8, 24, *range(16, 257, 16))
    if not same or k != k_of_type or d_type not in d_types or n not in sizes:
        raise SimtError(f"{name}: PTX has no such shape and types")
    integer, transposable = d_type == "s32", itemsize == 2
    registers = n // 4 if d_type == "f16" else n // 2
    dtype = np.float32 if d_type == "f32" else np.uint32

    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        d, a, b, scale_d, *flags = operands
        in_registers = a.kind == "group"
        count = 0 if integer else (4 if not in_registers else 3) if transposable else 2
        if d.kind != "group" or len(d.value) != registers or len(flags) != count or (in_registers and len(a.value) != 4):
            raise SimtError(f"{name} takes {registers} registers of D, {'four registers' if in_registers else 'a descriptor'} of A, a "
                            f"descriptor of B, scale-d and {count} flags")
        groups = WarpGroups.of(m)
        values = [f.value for f in flags]
        if any(f.kind != "imm" for f in flags):
            raise SimtError(f"{name}: the flags are numbers")
        signs = tuple(values[:2]) if values else (1, 1)
        signs = tuple(s - (1 << 32) if s >= 1 << 31 else s for s in signs)
        trans = values[2:]
        if set(signs) - {1, -1} or set(trans) - {0, 1}:
            raise SimtError(f"{name}: imm-scale is 1 or -1 and imm-trans 0 or 1, found {values}")
        a_trans, b_trans = (0, trans[0]) if len(trans) == 1 else tuple(trans) or (0, 0)
        old = [state.values.get(r.value) for r in d.value]
        a_words = np.stack([_word(np.asarray(state.read(r))) for r in a.value], axis=1) if in_registers else None
        tickets: list[list[tuple[Array, Ticket]]] = [[] for _ in d.value]
        for g in _groups(state, mask, name):
            product = Product(g, name, n, d_type, registers)
            product.signs, product.saturate = signs, "satfinite" in parts
            accumulate = bool(_uniform(state, scale_d, g, "scale-d"))
            if accumulate:
                product.c = _accumulators(m, groups, old, product, dtype)
            if not groups.fenced[g] and (in_registers or (accumulate and not isinstance(product.c, Product))):
                raise SimtError(f"{name} reads registers with no wgmma.fence since the last wait")
            b_bytes, b_read = descriptor_bytes(_uniform(state, b, g, "the descriptor of B"), n, k, itemsize, not b_trans)
            product.b = _reader(m, b_bytes, itemsize, b_type)
            reads = [b_read]
            if a_words is not None:
                product.a = _from_registers(a_words[128 * g:128 * g + 128], a_type, itemsize, k)
            else:
                a_bytes, a_read = descriptor_bytes(_uniform(state, a, g, "the descriptor of A"), 64, k, itemsize, not a_trans)
                product.a = _reader(m, a_bytes, itemsize, a_type)
                reads.append(a_read)
            warps = _warps(m, g)
            product.time = max(m.shared.unit_read(read, warps, m.shared.order.stream(0, warps[0]), "wgmma") for read in reads)
            groups.begun[g].append(product)
            for i, parts_of in enumerate(tickets):
                parts_of.append((groups.masks[g], Ticket(product, i)))
        blank = np.full(m.num_threads, 0x7FFFDEAD, np.uint32).view(dtype)
        for register, parts_of in zip(d.value, tickets):
            state.values[register.value] = Pending(m, blank, parts_of)

    return run


def _reader(m: Any, offsets: Array, itemsize: int, t: str) -> Callable[[], Array]:
    """Shared memory as it is when called."""
    return lambda: _floats(m.shared.data.view(f"u{itemsize}")[offsets // itemsize], t)


def _from_registers(words: Array, t: str, itemsize: int, k: int) -> Callable[[], Array]:
    rows, columns = _register_a(itemsize)

    def matrix() -> Array:
        out = np.zeros((64, k), np.float32)
        out[rows, columns] = _floats(np.ascontiguousarray(words).view(f"u{itemsize}"), t)
        return out

    return matrix


def _accumulators(m: Any, groups: WarpGroups, old: list[Any], product: Product, dtype: Any) -> Product | Array:
    """The registers of D before: values, or an earlier product's whose registers these are, which need no wait in between."""
    g = product.group
    rows, masks = slice(128 * g, 128 * g + 128), groups.masks
    earlier: set[Any] = set()
    values = []
    for i, register in enumerate(old):
        if register is None:
            raise SimtError(f"{product.name} adds to registers that nothing has written")
        if isinstance(register, Pending):
            # a mask that is no group's own comes of a merge
            mine = [(threads, ticket) for threads, ticket in register.parts if threads is masks[g] or threads[rows].any()]
            if mine:
                threads, ticket = mine[0]
                p = ticket.product
                if len(mine) > 1 or (threads is not masks[g] and not threads[rows].all()) or ticket.register != i or (p.n, p.d_type) != (product.n, product.d_type):
                    raise SimtError(f"{product} adds to a register that {ticket} is to write: a wait is missing between")
                earlier.add(p)
                continue
            register = register.values
        values.append(as_bits(register[rows], 4).view(dtype))
    if earlier:
        if len(earlier) > 1 or values:
            raise SimtError(f"{product} adds to registers of which only some are another product's in flight")
        return earlier.pop()  # type: ignore[no-any-return]
    return np.stack(values, axis=1)


def _cp(parts: list[str]) -> Handler:
    return simulate_bulk.cp(parts) or WARP_INSTRUCTIONS["cp"](parts)


INSTRUCTIONS: dict[str, Callable[[list[str]], Handler]] = {
    **WARP_INSTRUCTIONS, **simulate_barriers.INSTRUCTIONS, "cp": _cp, "wgmma": wgmma, "prefetch": simulate_bulk.prefetch,
}
