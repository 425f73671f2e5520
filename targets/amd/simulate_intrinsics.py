"""The meaning of the AMDGPU intrinsics that the AMD lowering emits, for the SIMT executor.

A test tool: it executes the kernel's LLVM dialect, not the code object that is shipped, so it proves the lowering and neither
LLVM's instruction selection nor the linking. Written from the "Instruction Set Architecture" manuals of CDNA 3, CDNA 4, RDNA 3 and
RDNA 4 and on purpose not from ``matrix_ops`` or ``lower_hooks``, so that a wrong row or a wrong operand there shows as a wrong
product. An intrinsic that is not here raises SimtError when the kernel is decoded.

Matrix instructions add exact products in float64 and round once to float32; devices round more often.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from tilewright.dialects.global_races import Region
from tilewright.dialects.simt import SimtError, SimtExecutor
from tilewright.dialects.simt.executor import CallInfo, Machine
from tilewright.dialects.simt.memory import address_range
from tilewright.dialects.simt.values import VType, to_bytes
from tilewright.targets.amd import simulate_buffers

Array = Any
Factory = Callable[[CallInfo], Callable[..., Any]]

_WAVE64 = ("gfx90a", "gfx942", "gfx950")


def wave_size(arch: str) -> int:
    """Lanes of a wave as kernels are compiled here: 64 on CDNA, 32 on RDNA."""
    return 64 if arch in _WAVE64 else 32


# --------------------------------------------------------------------------------------------------- element types
def _fp8(code: int, mantissa: int, bias: int, fnuz: bool, infinities: bool) -> float:
    """Value of a byte. FNUZ: 0x80 is NaN and there is no -0. OCP E5M2 has infinities; OCP E4M3 only S.1111.111 as NaN."""
    sign, magnitude = -1.0 if code & 0x80 else 1.0, code & 0x7F
    exponent, fraction = magnitude >> mantissa, magnitude & ((1 << mantissa) - 1)
    if fnuz and code == 0x80:
        return float("nan")
    if not fnuz and infinities and exponent == 31:
        return sign * (float("inf") if fraction == 0 else float("nan"))
    if not fnuz and not infinities and magnitude == 0x7F:
        return float("nan")
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - mantissa)
    return sign * (1 + fraction / (1 << mantissa)) * 2.0 ** (exponent - bias)


@cache
def fp8_table(kind: str, arch: str) -> Array:
    """The 256 values of "fp8" or "bf8", which are FNUZ formats on gfx942 and OCP's on gfx950 and gfx12."""
    fnuz = arch == "gfx942"
    mantissa, bias = (3, 8 if fnuz else 7) if kind == "fp8" else (2, 16 if fnuz else 15)
    return np.array([_fp8(c, mantissa, bias, fnuz, kind == "bf8") for c in range(256)])


def _elements(x: Array, t: VType, kind: str, arch: str, signed: bool = True) -> Array:
    """A register operand's bits as float64 (int64 for bytes) of shape [threads, elements]."""
    data = to_bytes(x, t)
    if kind in ("fp8", "bf8"):
        return fp8_table(kind, arch)[data]
    if kind in ("i8", "iu8"):
        return data.view(np.int8 if signed else np.uint8).astype(np.int64)
    if kind == "xf32":  # f32 with a mantissa of 10 bits, here rounded to nearest even
        bits = data.view(np.uint32)
        return ((bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if kind == "bf16":
        return (data.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return data.view({"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]).astype(np.float64)


# --------------------------------------------------------------------------------------------- matrix instructions
def _mfma_places(m: int, k: int, f64: bool = False) -> tuple[Array, Array, Array, Array]:
    """(row, k) of A's element j and (row, column) of D's register r of each lane; B is A with columns for rows.

    CDNA 3 manual, section 7.1.4: A's row is lane mod M, a lane holds k·M/64 consecutive k; D of 16 × 16 has four rows a
    lane from 4·(lane / 16), of 32 × 32 four groups of four rows, 8 apart, from 4·(lane / 32). D of 16 × 16 f64 has rows 4 apart.
    """
    lane = np.arange(64)[:, None]
    each = k * m // 64
    j, r = np.arange(each)[None, :], np.arange(m * m // 64)[None, :]
    rows = 4 * (lane // 16) + r if m == 16 else 8 * (r // 4) + 4 * (lane // 32) + r % 4
    if f64:
        rows = lane // 16 + 4 * r
    return np.broadcast_to(lane % m, (64, each)), each * (lane // m) + j, rows, np.broadcast_to(lane % m, rows.shape)


def _wmma_places(gfx12: bool) -> tuple[Array, Array, Array, Array]:
    """As ``_mfma_places``. RDNA 3 manual, 7.9: 16 elements a lane, lanes 16 to 31 repeating lanes 0 to 15, D's rows alternate
    between the halves. RDNA 4, 7.12: the halves of the wave hold k 0 to 7 and 8 to 15, and D's rows 0 to 7 and 8 to 15."""
    lane, r = np.arange(32)[:, None], np.arange(8)[None, :]
    if gfx12:
        rows = 8 * (lane // 16) + r
        return np.broadcast_to(lane % 16, (32, 8)), 8 * (lane // 16) + r, rows, np.broadcast_to(lane % 16, rows.shape)
    rows = 2 * r + lane // 16
    return (np.broadcast_to(lane % 16, (32, 16)), np.broadcast_to(np.arange(16)[None, :], (32, 16)), rows,
            np.broadcast_to(lane % 16, rows.shape))


def _multiply(m: Machine, what: str, a: Array, b: Array, c: Array, size: int, k: int, places: tuple[Array, Array, Array, Array]) -> Array:
    """D registers [threads, registers] as float64 or int64, wave by wave."""
    m.require_full_warps(what)
    outer, inner, rows, columns = places
    if a.shape[1] != outer.shape[1] or b.shape[1] != outer.shape[1] or c.shape[1] != rows.shape[1]:
        raise SimtError(f"{what} takes {outer.shape[1]} elements a lane of A and B and {rows.shape[1]} of C; found {a.shape[1]}, "
                        f"{b.shape[1]} and {c.shape[1]}")
    waves, lanes = m.num_threads // m.warp_size, m.warp_size
    shape = (waves, lanes, -1)
    left, right = np.zeros((waves, size, k), a.dtype), np.zeros((waves, k, size), b.dtype)
    left[:, outer, inner], right[:, inner, outer] = a.reshape(shape), b.reshape(shape)
    active = m.mask.reshape(waves, lanes).all(axis=1)
    for whole, given, index in ((left, a, (outer, inner)), (right, b, (inner, outer))):
        if not np.array_equal(whole[:, index[0], index[1]][active], given.reshape(shape)[active], equal_nan=given.dtype.kind == "f"):
            raise SimtError(f"{what}: lanes that must repeat each other's elements do not")
    product = left @ right
    return product[:, rows, columns].reshape(m.num_threads, -1) + c


def _matrix(info: CallInfo, arch: str, size: int, k: int, kinds: tuple[str, str], operands: tuple[int, int, int],
            places: tuple[Array, Array, Array, Array], signs: tuple[int, int] | None, zero: tuple[int, ...]) -> Callable[..., Array]:
    """``operands``: which arguments are A, B, C; ``signs``: which say that A and B are signed; ``zero``: which must be 0."""
    integer = kinds[0] in ("i8", "iu8")
    types = [info.operands[i] for i in operands]

    def run(m: Machine, *args: Array) -> Array:
        for i in zero:
            if np.asarray(args[i]).any():
                raise SimtError(f"{info.text}: argument {i} (broadcast, permutation or clamp) must be 0 here")
        signed = [bool(args[i].all()) for i in signs] if signs else [True, True]
        a, b = (_elements(args[operands[i]], types[i], kinds[i], arch, signed[i]) for i in (0, 1))
        c = args[operands[2]]
        wide = c.view(np.int32).astype(np.int64) if integer else c.astype(np.float64)
        d = _multiply(m, info.text, a, b, wide, size, k, places)
        return d.astype(np.int64).astype(np.uint32) if integer else d.astype(c.dtype)

    return run


def _mfma(arch: str) -> Factory:
    def make(info: CallInfo) -> Callable[..., Array]:
        assert info.match is not None
        m, n, k, a, b = info.match.groups()
        if m != n or m not in ("16", "32"):
            raise SimtError(f"{info.text}: only 16 × 16 and 32 × 32 tiles of one block are simulated")
        kinds = (a, b if b in ("fp8", "bf8") else a)
        return _matrix(info, arch, int(m), int(k), kinds, (0, 1, 2), _mfma_places(int(m), int(k), a == "f64"), None, (3, 4, 5))

    return make


def _mfma_f8f6f4(arch: str) -> Factory:
    """CDNA 4 manual, 7.1.5: the formats of A and B by arguments (0 e4m3, 1 e5m2), and scales, whose absence is a scale of 1."""
    def make(info: CallInfo) -> Callable[..., Array]:
        assert info.match is not None
        m, k = int(info.match.group(1)), int(info.match.group(2))
        forms = {(i, j): _matrix(info, arch, m, k, (x, y), (0, 1, 2), _mfma_places(m, k), None, (5, 6, 7, 8))
                 for i, x in enumerate(("fp8", "bf8")) for j, y in enumerate(("fp8", "bf8"))}

        def run(machine: Machine, *args: Array) -> Array:
            formats = int(args[3][0]), int(args[4][0])
            if formats not in forms:
                raise SimtError(f"{info.text}: formats {formats} are not simulated; 0 (e4m3) and 1 (e5m2) are")
            return forms[formats](machine, *args)

        return run

    return make


def _wmma(arch: str) -> Factory:
    def make(info: CallInfo) -> Callable[..., Array]:
        assert info.match is not None
        a, b = info.match.groups()
        places = _wmma_places(arch.startswith("gfx12"))
        if a == "iu8":
            return _matrix(info, arch, 16, 16, (a, a), (1, 3, 4), places, (0, 2), (5,))
        return _matrix(info, arch, 16, 16, (a, b or a), (0, 1, 2), places, None, ())

    return make


# ------------------------------------------------------------------------------------------------- shared memory
def _read_transposed(bits: int) -> Factory:
    """ds_read_b64_tr_b16 and _b8 (CDNA 4 manual, LDS transpose loads): in each 16 lanes the words that are addressed, put one after
    another, are rows of 16 elements; lane i receives column i, from the first row to the last."""
    def make(info: CallInfo) -> Callable[..., Array]:
        def run(m: Machine, address: Array) -> Array:
            m.require_full_warps("ds_read_tr")
            words = np.ascontiguousarray(m.load_bytes(address, 8, 3, np.ones(m.num_threads, bool), 8))
            rows = words.view(np.uint16 if bits == 16 else np.uint8).reshape(m.num_threads // 16, 64 // bits, 16)
            columns = np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(m.num_threads, -1)
            return columns if bits == 16 else columns.view(np.uint32)

        return run

    return make


# --------------------------------------------------------------------------------------------------------- lanes
def _source(m: Machine, value: Array, lane: Array, what: str) -> Array:
    """``value`` of each thread's lane number ``lane`` in its own wave."""
    m.require_full_warps(what)
    return value[m.thread_ids.astype(np.int64) - m.lane_ids + lane]


def _swizzle(info: CallInfo) -> Callable[..., Array]:
    """ds_swizzle_b32: bit mode within 32 lanes (and, or, xor masks of 5 bits), or with bit 15 a permutation of each four lanes."""
    def run(m: Machine, value: Array, pattern: Array) -> Array:
        code, lane = int(pattern[0]), m.lane_ids.astype(np.int64)
        if code & 0x8000:
            new = lane & ~3 | (code >> 2 * (lane & 3)) & 3
        else:
            new = lane & ~31 | (((lane & 31) & (code & 31)) | (code >> 5 & 31)) ^ (code >> 10 & 31)
        return _source(m, value, new, "ds_swizzle")

    return run


def _bpermute(info: CallInfo) -> Callable[..., Array]:
    """ds_bpermute_b32: the byte address wraps at the wave's size."""
    return lambda m, address, value: _source(m, value, (address.astype(np.int64) >> 2) % m.warp_size, "ds_bpermute")


def _dpp(info: CallInfo) -> Callable[..., Array]:
    """DPP controls that stay within 16 lanes: quad_perm, row_ror, row_mirror, row_half_mirror and (RDNA) row_xmask."""
    def run(m: Machine, *args: Array) -> Array:
        old, value, control, rows, banks = args[:5] if len(args) == 6 else (None, *args[:4])
        code, lane = int(control[0]), m.lane_ids.astype(np.int64)
        if int(rows[0]) != 15 or int(banks[0]) != 15:
            raise SimtError("DPP with rows or banks masked off is not simulated")
        if code < 0x100:
            new = lane & ~3 | (code >> 2 * (lane & 3)) & 3
        elif 0x121 <= code <= 0x12F:
            new = lane & ~15 | (lane - (code & 15)) & 15
        elif code in (0x140, 0x141):
            new = lane ^ (15 if code == 0x140 else 7)
        elif 0x160 <= code <= 0x16F and m.warp_size == 32:
            new = lane ^ (code & 15)
        else:
            raise SimtError(f"DPP control {code:#x} is not simulated")
        return _source(m, value, new, "DPP")

    return run


def _permlanex16(info: CallInfo) -> Callable[..., Array]:
    """v_permlanex16_b32: from the other 16 lanes of each 32, the lane that the 64 bits of selectors name."""
    def run(m: Machine, old: Array, value: Array, low: Array, high: Array, *flags: Array) -> Array:
        lane = m.lane_ids.astype(np.int64)
        selectors = int(low[0]) | int(high[0]) << 32
        chosen = np.array([selectors >> 4 * i & 15 for i in range(16)])
        return _source(m, value, (lane & ~31) + (16 - (lane & 16)) + chosen[lane & 15], "v_permlanex16")

    return run


def _perm(info: CallInfo) -> Callable[..., Array]:
    """v_perm_b32: byte selectors 0 to 3 are bytes of the second operand, 4 to 7 of the first (higher ones are not simulated)."""
    def run(m: Machine, first: Array, second: Array, selector: Array) -> Array:
        both = (first.astype(np.uint64) << np.uint64(32)) | second.astype(np.uint64)
        out = np.zeros_like(both)
        for i in range(4):
            which = selector.astype(np.uint64) >> np.uint64(8 * i) & np.uint64(255)
            if (which > 7).any():
                raise SimtError("v_perm_b32 with selectors above 7 is not simulated")
            out |= (both >> which * np.uint64(8) & np.uint64(255)) << np.uint64(8 * i)
        return out.astype(np.uint32)

    return run


def _permlane_swap(width: int) -> Factory:
    """v_permlane16_swap_b32, v_permlane32_swap_b32 (CDNA 4): the odd groups of ``width`` lanes of the first operand change places
    with the even groups of the second."""
    def make(info: CallInfo) -> Callable[..., Any]:
        def run(m: Machine, first: Array, second: Array, *flags: Array) -> Any:
            m.require_full_warps("v_permlane_swap")
            thread = m.thread_ids.astype(np.int64)
            odd = (m.lane_ids & np.uint32(width)) != 0
            return (np.where(odd, second[np.maximum(thread - width, 0)], first),
                    np.where(odd, second, first[np.minimum(thread + width, m.num_threads - 1)]))

        return run

    return make


def _mbcnt(high: bool) -> Factory:
    """How many lower-numbered lanes have their bit set in a mask of lanes 0 to 31 (lo) or 32 to 63 (hi), plus a base."""
    def run(m: Machine, mask: Array, base: Array) -> Array:
        below = np.clip(m.lane_ids.astype(np.int64) - (32 if high else 0), 0, 32)
        bits = mask.astype(np.int64) & ((np.int64(1) << below) - 1)
        return base + np.sum([bits >> i & 1 for i in range(32)], axis=0).astype(np.uint32)

    return lambda info: run


# ---------------------------------------------------------------------------------------------------------- table
def _index(f: Callable[[Machine], int]) -> Factory:
    return lambda info: lambda m: np.full(m.num_threads, f(m), np.uint32)


def _nothing(info: CallInfo) -> Callable[..., None]:
    return lambda m, *args: None


def _barrier(info: CallInfo) -> Callable[..., None]:
    return lambda m: m.barrier()


def _float32(f: Callable[[Array], Array]) -> Factory:
    """v_exp_f32, v_log_f32, v_rcp_f32, v_rsq_f32, v_sqrt_f32, here rounded from float64. Subnormal inputs and results of the
    first two are zero, as the instructions' are."""
    def make(info: CallInfo) -> Callable[..., Array]:
        flush = f in (np.exp2, np.log2)

        def run(m: Machine, x: Array) -> Array:
            tiny = np.float32(2.0**-126)
            given: Array = np.where(np.abs(x) < tiny, np.copysign(np.float32(0), x), x) if flush else x
            y = f(given.astype(np.float64)).astype(np.float32)
            return np.where(np.abs(y) < tiny, np.copysign(np.float32(0), y), y) if flush else y

        return run

    return make


def semantics(arch: str, implicit_arguments: Array) -> dict[Any, Factory]:
    """The table for ``SimtExecutor``. ``implicit_arguments``: the uint32 array to which llvm.amdgcn.implicitarg.ptr points."""
    address = implicit_arguments.__array_interface__["data"][0]
    table: dict[Any, Factory] = {
        "llvm.amdgcn.workitem.id.x": lambda info: lambda m: m.thread_ids,
        re.compile(r"^$"): lambda info: lambda m, x: x,  # the empty assembly of AmdHooks.thread_id_anew
        "llvm.amdgcn.implicitarg.ptr": lambda info: lambda m: np.full(m.num_threads, address, np.uint64),
        "llvm.amdgcn.s.barrier": _barrier, "llvm.amdgcn.sched.barrier": _nothing, "llvm.amdgcn.s.setprio": _nothing,
        "llvm.amdgcn.mbcnt.lo": _mbcnt(False), "llvm.amdgcn.mbcnt.hi": _mbcnt(True),
        "llvm.amdgcn.ds.swizzle": _swizzle, "llvm.amdgcn.ds.bpermute": _bpermute,
        "llvm.amdgcn.ds.read.tr16.b64.v4i16": _read_transposed(16), "llvm.amdgcn.ds.read.tr8.b64.v2i32": _read_transposed(8),
        "llvm.amdgcn.permlanex16.i32": _permlanex16, "llvm.amdgcn.perm": _perm,
        "llvm.amdgcn.update.dpp.i32": _dpp, "llvm.amdgcn.mov.dpp.i32": _dpp,
        "llvm.amdgcn.exp2.f32": _float32(np.exp2), "llvm.amdgcn.log.f32": _float32(np.log2),
        "llvm.amdgcn.rcp.f32": _float32(lambda x: 1 / x), "llvm.amdgcn.rsq.f32": _float32(lambda x: 1 / np.sqrt(x)),
        "llvm.amdgcn.sqrt.f32": _float32(np.sqrt),
        "llvm.amdgcn.fdiv.fast": lambda info: lambda m, x, y: (x.astype(np.float64) / y).astype(np.float32),
        "llvm.amdgcn.permlane16.swap": _permlane_swap(16), "llvm.amdgcn.permlane32.swap": _permlane_swap(32),
        re.compile(r"^llvm\.amdgcn\.mfma\.(?:[fi]32|f64)\.(\d+)x(\d+)x(\d+)\.?(bf16|f16|xf32|f32|f64|i8|fp8|bf8)(?:\.(1k|fp8|bf8))?$"):
            _mfma(arch),
        re.compile(r"^llvm\.amdgcn\.mfma\.scale\.f32\.(\d+)x\1x(\d+)\.f8f6f4\.v8i32\.v8i32$"): _mfma_f8f6f4(arch),
        re.compile(r"^llvm\.amdgcn\.wmma\.[fi]32\.16x16x16\.(f16|bf16|iu8|fp8|bf8)(?:\.(fp8|bf8))?\.v8"): _wmma(arch),
    }
    table.update(simulate_buffers.semantics(arch))
    for i, axis in enumerate("xyz"):
        table[f"llvm.amdgcn.workgroup.id.{axis}"] = _index(lambda m, i=i: m.program_ids[i])  # type: ignore[misc]
    return table


class AmdExecutor(SimtExecutor):
    """SimtExecutor with AMDGPU's intrinsics and the implicit arguments (block counts) that a launch passes.

    Must be constructed inside ``mlir_context()``. ``checks`` are SimtExecutor's.
    """

    def __init__(self, module: Any, kernel: str, arch: str, num_warps: int, shared_bytes: int, **checks: Any):
        self._implicit = np.zeros(64, np.uint32)  # hidden_block_count_x, _y, _z come first (code object version 5)
        lanes = wave_size(arch)
        super().__init__(module, kernel, lanes * num_warps, lanes, shared_bytes, semantics(arch, self._implicit), **checks)
        self._global_buffers.append((*address_range(self._implicit), self._implicit))

    def run(self, grid: Sequence[int], args: Sequence[Any], programs: Iterable[tuple[int, int, int]] | None = None,
            whole_process: bool = False, regions: Sequence[Region] = ()) -> None:
        self._implicit[:3] = (*grid, 1, 1, 1)[:3]
        super().run(grid, args, programs, whole_process, regions)
