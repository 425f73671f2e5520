"""PTX instructions as numpy functions over the threads of a block, from the PTX ISA manual (sections named at each).

``INSTRUCTIONS[name](opcode parts) -> handler(state, operands, mask)``; ``mask`` is the guard predicate, None for always.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.dialects.simt import SimtError
from tilewright.dialects.simt.fused import fma_to_odd
from tilewright.dialects.simt.machine import AtomicOrder
from tilewright.dialects.simt.values import VType, bf16_to_f32, f32_to_bf16, from_float

Array = Any
Handler = Callable[[Any, Any, Any], None]


def as_bits(x: Array, size: int) -> Array:
    """Unsigned integers of ``size`` bytes with these bits; a 16-bit register holding a byte is cut."""
    if x.dtype == np.bool_:
        x = x.astype(np.uint8)
    if x.dtype.itemsize != size:
        if x.dtype.kind == "f":
            raise SimtError(f"a register of {x.dtype} where {size} bytes are wanted")
        return x.astype(f"u{size}")
    return np.ascontiguousarray(x).view(f"u{size}")


def float32(f: Callable[[Array], Array], x: Array, flush: bool) -> Array:
    """f in f64 on f32 bits or values, rounded to f32; with ``flush`` subnormal inputs and results become signed zeros."""
    x = np.ascontiguousarray(x).view(np.float32)
    tiny = np.float32(2.0**-126)
    if flush:
        x = np.where(np.abs(x) < tiny, np.copysign(np.float32(0), x), x)
    out = f(x.astype(np.float64)).astype(np.float32)
    return np.where(np.abs(out) < tiny, np.copysign(np.float32(0), out), out) if flush else out


def _space(parts: list[str]) -> int:
    if "shared" in parts or "shared::cta" in parts:
        return 3
    return 1 if "global" in parts else 0


def _bits_type(parts: list[str]) -> int:
    """Bytes of the type at the end of an opcode."""
    return int(parts[-1].lstrip("bufs")) // 8


def _vector(parts: list[str]) -> int:
    return next((int(p[1:]) for p in parts if p in ("v2", "v4", "v8")), 1)


def memory_order(parts: list[str]) -> AtomicOrder:
    """Of an atomic's, load's or store's .sem and .scope, 8.4 and 8.5: relaxed where none is given, of the whole device's threads."""
    return AtomicOrder("acquire" in parts or "acq_rel" in parts, "release" in parts or "acq_rel" in parts, "cta" in parts)


def _synchronises(parts: list[str]) -> bool:
    """A strong load or store: it races with no other one, and orders as it says."""
    return bool({"acquire", "release", "relaxed"} & set(parts)) and "volatile" not in parts


# ---------------------------------------------------------------- 9.7.9 data movement: ld, st, createpolicy, mov, prmt
def _ld(parts: list[str]) -> Handler:
    size, count, space = _bits_type(parts), _vector(parts), _space(parts)

    order = memory_order(parts) if _synchronises(parts) else None

    def run(state: Any, operands: Any, mask: Any) -> None:
        data = state.machine.load_bytes(state.address(operands[1]), size * count, space, mask, size * count, order)
        words = np.ascontiguousarray(data).view(f"u{size}")
        targets = operands[0].value if count > 1 else (operands[0],)
        for i, target in enumerate(targets):
            # a byte arrives in a 16-bit register
            state.write(target, words[:, i].astype(np.uint16) if size == 1 else words[:, i].copy(), mask)

    return run


def _st(parts: list[str]) -> Handler:
    size, count, space = _bits_type(parts), _vector(parts), _space(parts)
    order = memory_order(parts) if _synchronises(parts) else None

    def run(state: Any, operands: Any, mask: Any) -> None:
        sources = operands[1].value if count > 1 else (operands[1],)
        words = np.stack([as_bits(state.read(s), size) for s in sources], axis=1)
        data = np.ascontiguousarray(words).view(np.uint8)
        state.machine.store_bytes(state.address(operands[0]), data, space, mask, size * count, order)

    return run


def _createpolicy(parts: list[str]) -> Handler:
    return lambda state, operands, mask: state.write(operands[0], np.zeros(state.machine.num_threads, np.uint64), mask)


def _mov(parts: list[str]) -> Handler:
    size = 1 if parts[-1] == "pred" else _bits_type(parts)

    def run(state: Any, operands: Any, mask: Any) -> None:
        to, source = operands
        if source.kind == "group":
            words = np.stack([as_bits(state.read(s), size // len(source.value)) for s in source.value], axis=1)
            state.write(to, np.ascontiguousarray(words).view(f"u{size}")[:, 0], mask)
        elif to.kind == "group":
            words = as_bits(state.read(source), size)[:, None].view(f"u{size // len(to.value)}")
            for i, target in enumerate(to.value):
                state.write(target, words[:, i].copy(), mask)
        else:
            state.write(to, as_bits(state.read(source), size), mask)

    return run


def _prmt(parts: list[str]) -> Handler:
    def run(state: Any, operands: Any, mask: Any) -> None:
        a, b, c = (as_bits(state.read(o), 4) for o in operands[1:])
        source = np.stack([a, b], axis=1).view(np.uint8)
        out = np.zeros((len(a), 4), np.uint8)
        for i in range(4):
            nibble = (c >> np.uint32(4 * i)) & np.uint32(15)
            byte = source[np.arange(len(a)), (nibble & 7).astype(np.int64)]
            out[:, i] = np.where(nibble & 8, np.where(byte & 0x80, 0xFF, 0), byte)
        state.write(operands[0], out.view(np.uint32)[:, 0], mask)

    return run


# ------------------------------------------------------------------------------------------- 9.7.13 atom and red
_ATOMIC = {"and": "and", "or": "or", "xor": "xor", "exch": "xchg", "add": "add", "inc": "uinc_wrap", "dec": "udec_wrap"}


def _atom(parts: list[str]) -> Handler:
    returns = parts[0] == "atom"
    kind, t, space = next(p for p in parts[1:] if p in (*_ATOMIC, "min", "max", "cas")), parts[-1], _space(parts)
    bits = int(t.lstrip("bufs"))
    vtype = VType("int", bits)
    if t == "bf16":
        bits, vtype = 16, VType("bf16", 16)
    elif t[0] == "f":
        vtype = VType("float", bits)
    if kind in ("min", "max"):
        op = ("u" if t[0] in "ub" else "f" if t[0] == "f" else "") + kind
    else:
        op = _ATOMIC.get(kind, "cas")
    if kind == "add" and vtype.kind != "int":
        op = "fadd"
    order = memory_order(parts)

    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        address, *values = operands[1:] if returns else operands
        typed = [as_bits(state.read(v), bits // 8).view(vtype.dtype) for v in values]
        if kind == "cas":
            old = m.atomic_cas(state.address(address), typed[0], typed[1], vtype, space, mask, order)
        else:
            old = m.atomic_rmw(op, state.address(address), typed[0], vtype, space, mask, order)
        if returns:
            state.write(operands[0], as_bits(old, bits // 8), mask)

    return run


# ------------------------------------------------------------------------------------ 9.7.9.25 asynchronous copies
def _cp(parts: list[str]) -> Handler:
    if parts[1] != "async" or "bulk" in parts:
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")
    if "commit_group" in parts:
        return lambda state, operands, mask: state.machine.async_commit()
    if "wait_all" in parts:
        return lambda state, operands, mask: state.machine.async_wait_all()
    if "wait_group" in parts:
        return lambda state, operands, mask: state.machine.async_wait(operands[0].value)
    allowed = (16,) if "cg" in parts else (4, 8, 16)
    hint = "L2::cache_hint" in parts

    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        size = operands[2].value
        if size not in allowed:
            raise SimtError(f"{'.'.join(parts)} copies {allowed} bytes, found {size}")
        rest = operands[3:-1] if hint else operands[3:]
        source = state.address(operands[1])
        if rest:
            wanted = as_bits(state.read(rest[0]), 4)
            if not ((wanted == 0) | (wanted == size))[m.mask].all():
                raise SimtError("cp.async with a partial source size is not simulated")
            reads = wanted == size if mask is None else mask & (wanted == size)
            data = m.load_bytes(source, size, 1, reads, size)
        else:
            data = m.load_bytes(source, size, 1, mask, size)
        m.async_copy(state.address(operands[0]), data, mask, size)

    return run


# ------------------------------------------------------------------------------- 9.7.14 warp-level matrix instructions
def _lanes() -> tuple[Array, Array]:
    lane = np.arange(32)
    return lane >> 2, lane & 3  # groupID, threadID_in_group


def _fragment(shape: str) -> tuple[Any, Any, Any]:
    """((row, col) of A, (row, col) of B, (row, col) of C), each an int array [32, elements], as the manual's formulas."""
    group, thread = _lanes()

    def table(count: int, row: Callable[[int], Array], col: Callable[[int], Array]) -> tuple[Array, Array]:
        full = np.zeros(32, np.int64)
        return (np.stack([full + row(i) for i in range(count)], axis=1), np.stack([full + col(i) for i in range(count)], axis=1))

    c16 = table(4, lambda i: group if i < 2 else group + 8, lambda i: thread * 2 + (i & 1))
    if shape == "m16n8k16":
        return (table(8, lambda i: group if 0 <= i < 2 or 4 <= i < 6 else group + 8,
                      lambda i: thread * 2 + (i & 1) if i < 4 else thread * 2 + (i & 1) + 8),
                table(4, lambda i: thread * 2 + (i & 1) if i < 2 else thread * 2 + (i & 1) + 8, lambda i: group), c16)
    if shape == "m16n8k8":  # .tf32
        return (table(4, lambda i: group if i in (0, 2) else group + 8, lambda i: thread if i < 2 else thread + 4),
                table(2, lambda i: thread if i == 0 else thread + 4, lambda i: group), c16)
    if shape == "m16n8k32":  # 8-bit types
        return (table(16, lambda i: group if 0 <= i < 4 or 8 <= i < 12 else group + 8,
                      lambda i: thread * 4 + (i & 3) if i < 8 else thread * 4 + (i & 3) + 16),
                table(8, lambda i: thread * 4 + (i & 3) if i < 4 else thread * 4 + (i & 3) + 16, lambda i: group), c16)
    if shape == "m8n8k4":  # .f64
        return (table(1, lambda i: group, lambda i: thread), table(1, lambda i: thread, lambda i: group),
                table(2, lambda i: group, lambda i: thread * 2 + (i & 1)))
    raise SimtError(f"mma shape {shape} is unknown to the simulator")


def _fp8(data: Array, exponent_bits: int) -> Array:
    """e4m3 (finite: only 0x7f is NaN) or e5m2 (IEEE-like) bytes as f64."""
    mantissa_bits = 7 - exponent_bits
    bias = (1 << (exponent_bits - 1)) - 1
    x = data.astype(np.int64)
    exponent, mantissa = (x >> mantissa_bits) & ((1 << exponent_bits) - 1), x & ((1 << mantissa_bits) - 1)
    scale = 2.0**-mantissa_bits
    value = np.where(exponent == 0, mantissa * scale * 2.0 ** (1 - bias),
                     (1 + mantissa * scale) * 2.0 ** (exponent - bias).astype(np.float64))
    if exponent_bits == 4:
        value = np.where((x & 0x7F) == 0x7F, np.nan, value)
    else:
        value = np.where(exponent == 31, np.where(mantissa == 0, np.inf, np.nan), value)
    return np.where(x & 0x80, -value, value)


def _decode(words: Array, t: str) -> Array:
    """Operand registers [threads, n] as f64 elements [threads, n·elements]."""
    raw = np.ascontiguousarray(words)
    if t == "f16":
        return raw.view(np.float16).astype(np.float64)
    if t == "bf16":
        return bf16_to_f32(raw.view(np.uint16)).astype(np.float64)
    if t == "tf32":  # the low 13 bits are not read
        return (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if t == "s8":
        return raw.view(np.int8).astype(np.float64)
    if t == "u8":
        return raw.view(np.uint8).astype(np.float64)
    if t in ("e4m3", "e5m2"):
        return _fp8(raw.view(np.uint8), int(t[1]))
    if t in ("f32", "f64"):
        return raw.view(f"f{int(t[1:]) // 8}").astype(np.float64)
    if t == "s32":
        return raw.view(np.int32).astype(np.float64)
    raise SimtError(f"mma operand type {t} is unknown to the simulator")


def _encode(values: Array, t: str) -> Array:
    """f64 elements [threads, n] as operand registers."""
    if t == "f16":
        return values.astype(np.float16).view(np.uint32)
    if t == "s32":
        return (values.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32)
    return values.astype(f"f{int(t[1:]) // 8}")


def _mma(parts: list[str]) -> Handler:
    if parts[1:3] != ["sync", "aligned"] or parts[4:6] != ["row", "col"]:
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")
    shape, (d_type, a_type, b_type, c_type) = parts[3], parts[6:10]
    (ar, ac), (br, bc), (cr, cc) = _fragment(shape)
    m, n, k = cr.max() + 1, cc.max() + 1, ac.max() + 1

    def run(state: Any, operands: Any, mask: Any) -> None:
        machine = state.machine
        machine.require_full_warps("mma.sync")
        a, b, c = (_decode(np.stack([_word(state.read(o)) for o in group.value], axis=1), t)
                   for group, t in zip(operands[1:], (a_type, b_type, c_type)))
        warps = machine.num_threads // 32
        full_a, full_b = np.zeros((warps, m, k)), np.zeros((warps, k, n))
        full_a[:, ar, ac] = a.reshape(warps, 32, -1)
        full_b[:, br, bc] = b.reshape(warps, 32, -1)
        product = np.matmul(full_a, full_b)[:, cr, cc].reshape(machine.num_threads, -1)
        out = _encode(product + c, d_type)
        for i, target in enumerate(operands[0].value):
            state.write(target, out[:, i].copy(), mask)

    return run


def _word(x: Array) -> Array:
    return x if x.dtype == np.float64 else as_bits(x, x.dtype.itemsize)


def _ldmatrix(parts: list[str]) -> Handler:
    """9.7.14.5.15: threads 8i..8i+7 address the rows (16 bytes) of matrix i; a thread receives of row lane / 4 the elements
    2·(lane % 4) and the next; with .trans of column lane / 4."""
    count, trans = int(next(p for p in parts if p in ("x1", "x2", "x4"))[1:]), "trans" in parts
    if "m8n8" not in parts or parts[-1] != "b16":
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")
    group, thread = _lanes()

    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        m.require_full_warps("ldmatrix")
        rows = m.load_bytes(state.address(operands[1]), 16, 3, m.lane_ids < 8 * count, 16)
        matrices = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, 4, 8, 8)
        for i, target in enumerate(operands[0].value if operands[0].kind == "group" else (operands[0],)):
            one = matrices[:, i]
            if trans:
                pair = np.stack([one[:, 2 * thread, group], one[:, 2 * thread + 1, group]], axis=-1)
            else:
                pair = np.stack([one[:, group, 2 * thread], one[:, group, 2 * thread + 1]], axis=-1)
            state.write(target, np.ascontiguousarray(pair).reshape(-1, 2).view(np.uint32)[:, 0], mask)

    return run


def _stmatrix(parts: list[str]) -> Handler:
    """9.7.14.5.16: the reverse of ldmatrix."""
    count, trans = int(next(p for p in parts if p in ("x1", "x2", "x4"))[1:]), "trans" in parts
    group, thread = _lanes()

    def run(state: Any, operands: Any, mask: Any) -> None:
        m = state.machine
        m.require_full_warps("stmatrix")
        matrices = np.zeros((m.num_threads // 32, 4, 8, 8), np.uint16)
        for i, source in enumerate(operands[1].value if operands[1].kind == "group" else (operands[1],)):
            pair = as_bits(state.read(source), 4)[:, None].view(np.uint16).reshape(-1, 32, 2)
            for j in range(2):
                if trans:
                    matrices[:, i, 2 * thread + j, group] = pair[:, :, j]
                else:
                    matrices[:, i, group, 2 * thread + j] = pair[:, :, j]
        rows = matrices.reshape(m.num_threads, 8).view(np.uint8)
        m.store_bytes(state.address(operands[0]), rows, 3, m.lane_ids < 8 * count, 16)

    return run


# --------------------------------------------------------------------------------------- 9.7.3, 9.7.4 arithmetic
def _unary(f: Callable[[Array], Array]) -> Callable[[list[str]], Handler]:
    def make(parts: list[str]) -> Handler:
        if parts[-1] != "f32":
            raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")
        flush = "ftz" in parts
        return lambda state, operands, mask: state.write(operands[0], float32(f, as_bits(state.read(operands[1]), 4), flush), mask)

    return make


def _binary(f: Callable[..., Array]) -> Callable[[list[str]], Handler]:
    """Two or three operands of f32, f16x2, bf16x2 or integers. Rounding other than to nearest, high halves and saturation are unknown."""
    def make(parts: list[str]) -> Handler:
        t = parts[-1]
        if not {*parts[1:-1]} <= {"rn", "lo"} or not (t in _FLOATS or (t[0] in ("s", "u", "b") and t[1:].isdigit())):
            raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")

        def run(state: Any, operands: Any, mask: Any) -> None:
            raw = [state.read(o) for o in operands[1:]]
            if t == "f32":
                values = [as_bits(x, 4).view(np.float32).astype(np.float64) for x in raw]
                out = f(*values).astype(np.float32)
            elif t == "f16x2":
                values = [as_bits(x, 4)[:, None].view(np.float16).astype(np.float64) for x in raw]
                out = f(*values).astype(np.float16).view(np.uint32)[:, 0]
            elif t == "bf16x2":
                values = [bf16_to_f32(as_bits(x, 4)[:, None].view(np.uint16)) for x in raw]
                out = from_float(f(*values), VType("bf16", 16)).view(np.uint32)[:, 0]
            else:
                kind = "i" if t[0] == "s" else "u"
                values = [as_bits(x, int(t[1:]) // 8).view(f"{kind}{int(t[1:]) // 8}") for x in raw]
                out = f(*values).view(f"u{int(t[1:]) // 8}")
            state.write(operands[0], out, mask)

        return run

    return make


_FLOATS = ("f32", "f16x2", "bf16x2")


def _fma(parts: list[str]) -> Handler:
    if parts[-1] not in _FLOATS:
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")
    return _binary(fma_to_odd)(parts)


def _max(a: Array, b: Array) -> Array:
    """9.7.3: the other operand where one is NaN; +0 is above -0."""
    if a.dtype.kind != "f":
        return np.maximum(a, b)
    return np.where((a == 0) & (b == 0), a + b, np.fmax(a, b))


def _min(a: Array, b: Array) -> Array:
    """As _max."""
    return -_max(-a, -b) if a.dtype.kind == "f" else np.minimum(a, b)


def _mad(parts: list[str]) -> Handler:
    """mad.wide.s32 (a sum of 64 bits and a product of two of 32) and mad.lo.s64, 9.7.1."""
    if parts[1:] not in (["wide", "s32"], ["lo", "s64"]):
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")
    size = 4 if parts[1] == "wide" else 8

    def run(state: Any, operands: Any, mask: Any) -> None:
        a, b = (as_bits(state.read(o), size).view(f"i{size}").astype(np.int64) for o in operands[1:3])
        state.write(operands[0], (a * b).view(np.uint64) + as_bits(state.read(operands[3]), 8), mask)

    return run


def _div(parts: list[str]) -> Handler:
    if parts[-1] != "f32":
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")
    return _binary(lambda a, b: a / b)(parts)


def _cvt(parts: list[str]) -> Handler:
    """cvt between f32 and packed or single 16-bit floats, cvt.rna.tf32.f32."""
    to, source = parts[-2], parts[-1]
    if "x2" in source or to in ("e4m3x2", "e5m2x2"):
        return _cvt_fp8(parts)
    relu = "relu" in parts
    if relu or source != "f32" or to not in ("f16x2", "bf16x2", "f16", "bf16", "tf32") or not {"rn", "rna"} & set(parts):
        raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")

    def one(x: Array) -> Array:
        x = as_bits(x, 4).view(np.float32)
        return x.astype(np.float16).view(np.uint16) if to.startswith("f16") else f32_to_bf16(x)

    def run(state: Any, operands: Any, mask: Any) -> None:
        if to == "tf32":  # round to nearest, ties away
            x = as_bits(state.read(operands[1]), 4)
            out = (x + np.uint32(0x1000)) & np.uint32(0xFFFFE000)
            special = (x & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
            out = np.where(special, x, out)
        elif to.endswith("x2"):  # the first source goes into the upper half
            high, low = one(state.read(operands[1])), one(state.read(operands[2]))
            out = (high.astype(np.uint32) << np.uint32(16)) | low
        else:
            out = one(state.read(operands[1]))
        state.write(operands[0], out, mask)

    return run


def _to_fp8(x: Array, exponent_bits: int) -> Array:
    """Codes of f32 values by .rn.satfinite: the nearest of all finite values, ties to the even code; NaN is 0x7f."""
    top = 0x7E if exponent_bits == 4 else 0x7B
    values = _fp8(np.arange(top + 1, dtype=np.uint8), exponent_bits)  # rises with the code
    magnitude = np.abs(x.astype(np.float64))
    above = np.clip(np.searchsorted(values, magnitude), 0, top)
    below = np.maximum(above - 1, 0)
    up, down = values[above] - magnitude, magnitude - values[below]
    code = np.where((up < down) | ((up == down) & (above % 2 == 0)), above, below)
    code = np.where(magnitude >= values[top], top, code)
    return np.where(np.isnan(x), 0x7F, code | np.where(np.signbit(x), 0x80, 0)).astype(np.uint16)


def _cvt_fp8(parts: list[str]) -> Handler:
    to, source = parts[-2], parts[-1]
    if to in ("e4m3x2", "e5m2x2") and source == "f32" and {"rn", "satfinite"} <= set(parts):
        bits = int(to[1])

        def narrow(state: Any, operands: Any, mask: Any) -> None:  # the first source goes into the upper half
            high, low = (_to_fp8(as_bits(state.read(o), 4).view(np.float32), bits) for o in operands[1:])
            state.write(operands[0], (high << np.uint16(8)) | low, mask)
        return narrow
    if to == "f16x2" and source in ("e4m3x2", "e5m2x2") and "rn" in parts:
        bits = int(source[1])

        def widen(state: Any, operands: Any, mask: Any) -> None:
            pair = as_bits(state.read(operands[1]), 2)[:, None].view(np.uint8)
            state.write(operands[0], _fp8(pair, bits).astype(np.float16).view(np.uint32)[:, 0], mask)
        return widen
    raise SimtError(f"{'.'.join(parts)} is unknown to the simulator")


INSTRUCTIONS: dict[str, Callable[[list[str]], Handler]] = {
    "ld": _ld, "st": _st, "createpolicy": _createpolicy, "mov": _mov, "prmt": _prmt, "atom": _atom, "red": _atom, "cp": _cp,
    "mma": _mma, "ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "cvt": _cvt, "div": _div,
    "ex2": _unary(np.exp2), "lg2": _unary(np.log2), "rsqrt": _unary(lambda x: 1 / np.sqrt(x)), "rcp": _unary(lambda x: 1 / x),
    "sqrt": _unary(np.sqrt), "tanh": _unary(np.tanh), "sin": _unary(np.sin), "cos": _unary(np.cos),
    "add": _binary(lambda a, b: a + b), "sub": _binary(lambda a, b: a - b), "mul": _binary(lambda a, b: a * b),
    "fma": _fma, "mad": _mad, "max": _binary(_max), "min": _binary(_min),
    "and": _binary(lambda a, b: a & b), "or": _binary(lambda a, b: a | b), "xor": _binary(lambda a, b: a ^ b),
    "shl": _binary(lambda a, b: a << b), "shr": _binary(lambda a, b: a >> b),
}
