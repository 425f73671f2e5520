"""Tensor descriptors, made by kernels and by the host: every type and rank, blocks over all edges of the tensor and outside it.

Expected values come from numpy slices. The tensor lies with padded rows between guards in a larger buffer, all of which is compared.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import (
    DEVICE,
    ON_CPU,
    ON_GPU,
    TORCH,
    bits_of,
    kernel_of,
    poisoned,
    random_array,
    rng_of,
    tl_name,
)
from tilewright.runtime.interpreter import InterpretedFunction
from tilewright.tools.tensor_descriptor import TensorDescriptor

_FP8 = ("fp8e5", "fp8e4nv")
_DTYPES = ("int1", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "fp16", "bf16", "fp32", "fp64", *_FP8)
_GUARD = 32
# by rank: sizes of the tensor, of the block
_FORMS = {1: ((77,), (32,)), 2: ((13, 45), (8, 32)), 3: ((3, 6, 29), (2, 4, 16)), 4: ((2, 3, 5, 19), (1, 2, 4, 16)), 5: ((2, 3, 2, 3, 21), (2, 1, 2, 2, 16))}
_FAR = 2**31 - 3


class Buffer:
    """A tensor of ``shape`` inside a flat buffer of guard values; the rows are padded to multiples of 16 bytes, and by 16 more."""

    def __init__(self, dtype: str, shape: tuple[int, ...], values: torch.Tensor | None = None, replicas: int = 1):
        size = torch.empty(0, dtype=TORCH[dtype]).element_size()
        unit = max(1, 16 // size)
        row = -(-shape[-1] // unit) * unit + unit
        strides = [1]
        for n in (row, *reversed(shape[1:-1])) if len(shape) > 1 else ():
            strides.insert(0, strides[0] * n)
        self.dtype, self.shape, self.strides = dtype, shape, strides
        self.span = -(-(sum((n - 1) * s for n, s in zip(shape, strides)) + 1 + _GUARD) // unit) * unit  # from one replica to the next
        flat = poisoned(dtype, _GUARD + replicas * self.span + _GUARD)
        self.flat, self.replicas = flat.clone(), replicas
        if values is not None:
            for r in range(replicas):
                self.view(self.flat, r).copy_(values)

    def view(self, flat: torch.Tensor, replica: int = 0) -> torch.Tensor:
        return torch.as_strided(flat, self.shape, self.strides, _GUARD + replica * self.span)

    def numpy(self, flat: torch.Tensor, replica: int = 0) -> np.ndarray:
        """The tensor's bits, as a view."""
        start = _GUARD + replica * self.span
        whole = bits_of(flat)
        return np.lib.stride_tricks.as_strided(whole[start:], self.shape, [s * whole.itemsize for s in self.strides])


def values_of(dtype: str, shape: Any, *key: Any) -> torch.Tensor:
    if dtype in _FP8:
        return random_array("fp32", shape, rng_of(dtype, *key)).to(TORCH[dtype])
    return random_array(dtype, shape, rng_of(dtype, *key))


def overlap(shape: Any, block: Any, at: Any) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """(part of the tensor, part of the block) that lie on each other."""
    tensor, tile = [], []
    for n, b, p in zip(shape, block, at):
        low, high = max(0, p), min(n, p + b)
        if low >= high:
            return None
        tensor.append(slice(low, high))
        tile.append(slice(low - p, high - p))
    return tuple(tensor), tuple(tile)


def places(shape: Any, block: Any, count: int = 10) -> list[tuple[int, ...]]:
    """Offsets: inside, over each edge, outside on each side, and at the ends of 32 bits."""
    choices = [(0, -1, -b // 2, n - b, n - 1, n - b // 2, -b, n) for n, b in zip(shape, block)]
    out = [tuple(c[i] for c in choices) for i in range(5)]
    for d in range(len(shape)):
        for p in (-_FAR - 2, _FAR, -1, shape[d] - 1):
            out.append(tuple(p if e == d else 0 for e in range(len(shape))))
    rng = rng_of(shape, block)
    more = list(itertools.product(*choices))
    out += [more[i] for i in rng.choice(len(more), min(count, len(more)), replace=False)]
    return out


def on_device(flat: torch.Tensor) -> torch.Tensor:
    return flat.to(DEVICE)


def launch(kernel: Any, how: str, grid: Any, args: dict[str, Any], **options: Any) -> dict[str, torch.Tensor]:
    """Run with copies of the flat buffers; values may be (Buffer, block, padding): a host descriptor, or (Buffer,): its pointer."""
    flats: dict[str, torch.Tensor] = {}
    given: dict[str, Any] = {}
    for name, value in args.items():
        if isinstance(value, tuple):
            flat = flats[name] = on_device(value[0].flat.clone())
            view = value[0].view(flat)
            given[name] = view if len(value) == 1 else TensorDescriptor.from_tensor(view, list(value[1]), value[2])
        elif isinstance(value, torch.Tensor):
            given[name] = flats[name] = on_device(value.clone())
        else:
            given[name] = value
    if how == "interpreter":
        InterpretedFunction(kernel)[grid](**given)
    else:
        kernel[grid](**given, **options)
    if ON_GPU:
        torch.cuda.synchronize()
    return {n: f.cpu() for n, f in flats.items()}


def lists(rank: int) -> dict[str, str]:
    return {"sizes": ", ".join(f"n{d}" for d in range(rank)), "strides": ", ".join([*(f"s{d}" for d in range(rank - 1)), "1"]),
            "at": ", ".join(f"tl.load(at + pid * {rank} + {d})" for d in range(rank))}


def numbers(buffer: Buffer) -> dict[str, int]:
    return {**{f"n{d}": n for d, n in enumerate(buffer.shape)}, **{f"s{d}": s for d, s in enumerate(buffer.strides[:-1])}}


def assert_bits(got: np.ndarray, expected: np.ndarray, what: str, nan: np.ndarray | None = None, dtype: str = "") -> None:
    same = got == expected
    if nan is not None:
        floats = torch.from_numpy(np.ascontiguousarray(got).view(f"i{got.itemsize}")).view(TORCH[dtype]).to(torch.float64).numpy()
        same = np.where(nan, np.isnan(floats), same)
    assert same.all(), f"{what}: {int((~same).sum())} of {same.size} differ, the first at {tuple(int(i[0]) for i in np.nonzero(~same))}"


_HOWS = ("interpreter", "target")
_CASES = [(d, r) for i, d in enumerate(_DTYPES) for r in sorted({1 + i % 5, 1 + (i + 2) % 5, 2})]


def form(dtype: str, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape, block = _FORMS[rank]
    return shape, (*block[:-1], max(block[-1], 16 // torch.empty(0, dtype=TORCH[dtype]).element_size()))


@pytest.mark.parametrize("made", ["device", "host"])
@pytest.mark.parametrize("dtype, rank", _CASES)
def test_load(dtype, rank, made):
    shape, block = form(dtype, rank)
    padding = "nan" if TORCH[dtype].is_floating_point and rank != 1 else "zero"
    x = Buffer(dtype, shape, values_of(dtype, shape, rank))
    at = places(shape, block)
    n, names = math.prod(block), lists(rank)
    source = f"""
        @triton.jit
        def kernel(x, o, at, {names["sizes"]}, {", ".join(f"s{d}" for d in range(rank - 1)) or "unused"}):
            pid = tl.program_id(0)
            d = {"x" if made == "host" else f'tl.make_tensor_descriptor(x, [{names["sizes"]}], [{names["strides"]}], {list(block)}, padding_option="{padding}")'}
            v = d.load([{names["at"]}])
            tl.static_assert(v.dtype == {tl_name(dtype)})
            tl.store(o + pid * {n} + tl.arange(0, {n}), tl.reshape(v, [{n}]))
        """
    args = {"x": (x, block, padding) if made == "host" else (x,), "o": poisoned(dtype, (len(at) * n,)),
            "at": torch.tensor(at, dtype=torch.int32), **numbers(x)}
    if rank == 1:
        args["unused"] = 0
    size = bits_of(x.flat).dtype
    expected, nan = np.zeros((len(at), *block), size), np.zeros((len(at), *block), bool)
    for i, p in enumerate(at):
        found = overlap(shape, block, p)
        nan[i] = padding == "nan"
        if found:
            expected[i][found[1]] = x.numpy(x.flat)[found[0]]
            nan[i][found[1]] = False
    for how in _HOWS:
        got = launch(kernel_of(source), how, (len(at),), args, num_warps=1 if ON_CPU else 2)
        assert_bits(bits_of(got["o"]).reshape(expected.shape), expected, how, nan, dtype)
        assert_bits(bits_of(got["x"]), bits_of(x.flat), f"{how}: what was only read")


@pytest.mark.parametrize("made", ["device", "host"])
@pytest.mark.parametrize("dtype, rank", _CASES)
def test_store(dtype, rank, made):
    """Each program writes a tensor of its own (made by the kernel), or one block of a host descriptor's tensor."""
    shape, block = form(dtype, rank)
    at = places(shape, block, 6)
    if made == "host":
        at = [at[rank % len(at)], at[1]][:2 if ON_CPU else 1]
    n, names = math.prod(block), lists(rank)
    v = values_of(dtype, (n,), "v", rank)
    source = f"""
        @triton.jit
        def kernel(y, v, at, span, {names["sizes"]}, {", ".join(f"s{d}" for d in range(rank - 1)) or "unused"}):
            pid = tl.program_id(0)
            d = {"y" if made == "host" else f'tl.make_tensor_descriptor(y + pid * span, [{names["sizes"]}], [{names["strides"]}], {list(block)})'}
            d.store([{names["at"]}], tl.reshape(tl.load(v + tl.arange(0, {n})), {list(block)}))
        """
    for group in [at] if made == "device" else [[p] for p in at]:
        y = Buffer(dtype, shape, replicas=len(group))
        args = {"y": (y, block, "zero") if made == "host" else (y,), "v": v, "at": torch.tensor(group, dtype=torch.int32), "span": y.span, **numbers(y)}
        if rank == 1:
            args["unused"] = 0
        expected = y.flat.clone()
        for i, p in enumerate(group):
            found = overlap(shape, block, p)
            if found:
                y.view(expected, i)[found[0]] = v.view(block)[found[1]]
        for how in _HOWS:
            got = launch(kernel_of(source), how, (len(group),), args, num_warps=1 if ON_CPU else 2)
            assert_bits(bits_of(got["y"]), bits_of(expected), how)


_INTS = ("int32", "uint32", "int64", "uint64")
_ATOMICS = [*(("add", d) for d in (*_INTS, "fp16", "bf16", "fp32", "fp64")), *((k, d) for k in ("and", "or", "xor") for d in ("int32", "uint64")),
            *((k, d) for k in ("max", "min") for d in (*_INTS, "fp32", "fp64"))]


@pytest.mark.parametrize("op, dtype", _ATOMICS)
def test_atomics(op, dtype):
    """Blocks of several programs lie on each other and over the edges; each element takes part exactly once a program."""
    shape, block = (13, 45), (8, 32)
    at = [(0, 0), (-3, -5), (7, 20), (8, 40), (-8, 0), (0, 45), (5, -32), (6, 17)]
    small = op == "add" and dtype not in _INTS
    x = random_array(dtype, shape, rng_of(op, dtype), small=small)
    v = random_array(dtype, block, rng_of(op, dtype, "v"), small=small)
    made = "host" if (len(op) + len(dtype)) % 2 else "device"
    source = f"""
        @triton.jit
        def kernel(y, v, at, n0, n1, s0):
            pid = tl.program_id(0)
            d = {"y" if made == "host" else "tl.make_tensor_descriptor(y, [n0, n1], [s0, 1], [8, 32])"}
            value = tl.load(v + tl.arange(0, 8)[:, None] * 32 + tl.arange(0, 32)[None, :])
            d.atomic_{op}([tl.load(at + 2 * pid), tl.load(at + 2 * pid + 1)], value)
        """
    y = Buffer(dtype, shape, x)
    combine: Any = {"add": np.add, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "max": np.maximum, "min": np.minimum}[op]
    floats = TORCH[dtype].is_floating_point
    values, new = (t.to(torch.float64).numpy() if floats else t.numpy().copy() for t in (x, v))
    values = values.copy()
    with np.errstate(over="ignore"):
        for p in at:
            found = overlap(shape, block, p)
            if found:
                values[found[0]] = combine(values[found[0]], new[found[1]])
    expected = y.flat.clone()
    y.view(expected).copy_(torch.from_numpy(values).to(TORCH[dtype]))
    assert not torch.equal(y.view(expected).to(torch.float64), y.view(y.flat).to(torch.float64))
    args = {"y": (y, block, "zero") if made == "host" else (y,), "v": v, "at": torch.tensor(at, dtype=torch.int32), **numbers(y)}
    for how in _HOWS:
        got = launch(kernel_of(source), how, (len(at),), args, num_warps=1 if ON_CPU else 2)
        assert_bits(bits_of(got["y"]), bits_of(expected), how)


@pytest.mark.parametrize("made", ["device", "host"])
@pytest.mark.parametrize("dtype", ["int1", "int8", "fp16", "bf16", "fp32", "int64", "fp8e5"])
def test_gather_and_scatter(dtype, made):
    """Rows in any order, twice, below the first and above the last; columns over both edges."""
    columns, rows = 32, 16
    shape = (11, 45)
    x, y = Buffer(dtype, shape, values_of(dtype, shape, "x")), Buffer(dtype, shape, values_of(dtype, shape, "y"))
    padding = "nan" if TORCH[dtype].is_floating_point else "zero"
    wanted = np.array([3, 3, -1, 10, 11, 0, 7, 2**31 - 1, -(2**31), 5, 6, 4, 9, 1, 2, 10], np.int32)
    unique = np.array([3, -1, 10, 11, 0, 7, 12, 2**31 - 1, -(2**31), 5, 6, 4, 9, 1, -2, -3], np.int32)
    lowest = (0, -9, 20, 45, -32)
    source = f"""
        @triton.jit
        def kernel(x, o, y, r, u, n0, n1, s0, column):
            dx = {"x" if made == "host" else f'tl.make_tensor_descriptor(x, [n0, n1], [s0, 1], [1, {columns}], "{padding}")'}
            dy = {"y" if made == "host" else f'tl.make_tensor_descriptor(y, [n0, n1], [s0, 1], [1, {columns}])'}
            i = tl.arange(0, {rows})
            v = dx.gather(tl.load(r + i), column)
            at = i[:, None] * {columns} + tl.arange(0, {columns})[None, :]
            tl.store(o + at, v)
            dy.scatter(tl.load(o + {rows * columns} + at), tl.load(u + i), column)
        """
    source_rows = values_of(dtype, (rows, columns), "rows")
    for column in lowest if ON_CPU else lowest[1:3]:
        o = poisoned(dtype, (2 * rows * columns,))
        o[rows * columns:] = source_rows.reshape(-1)
        args = {"x": (x, (1, columns), padding) if made == "host" else (x,), "o": o, "y": (y, (1, columns), "zero") if made == "host" else (y,),
                "r": torch.from_numpy(wanted), "u": torch.from_numpy(unique), **numbers(x), "column": column}
        expected, nan = np.zeros((rows, columns), bits_of(x.flat).dtype), np.full((rows, columns), padding == "nan")
        written = y.flat.clone()
        for i in range(rows):
            found = overlap(shape, (1, columns), (int(wanted[i]), column))
            if found:
                expected[i:i + 1][:, found[1][1]] = x.numpy(x.flat)[found[0]]
                nan[i, found[1][1]] = False
            found = overlap(shape, (1, columns), (int(unique[i]), column))
            if found:
                y.view(written)[found[0]] = source_rows[i:i + 1][:, found[1][1]]
        for how in _HOWS:
            got = launch(kernel_of(source), how, (1,), args, num_warps=1 if ON_CPU else 2)
            assert_bits(bits_of(got["o"])[:rows * columns].reshape(rows, columns), expected, f"{how}, gather", nan, dtype)
            assert_bits(bits_of(got["y"]), bits_of(written), f"{how}, scatter")


def test_descriptors_carried_by_loops_and_branches():
    """Tuples of descriptors, helpers that return them, a loop that exchanges two, a branch that chooses one."""
    source = """
        @triton.jit
        def window(p, n, m, s, B: tl.constexpr):
            return tl.make_tensor_descriptor(p, (n, m), (s, 1), (B, B), padding_option="nan")
        @triton.jit
        def copy(pair, at):
            source, target = pair
            target.store([at, 0], source.load([at, 0]) + 1.0)
        @triton.jit
        def kernel(x, y, z, n, m, s, steps, flag):
            a, b = window(x, n, m, s, 16), window(y, n, m, s, 16)
            for i in range(steps):
                copy((a, b), i * 8)
                a, b = b, a
            if flag > 0:
                c = tl.make_tensor_descriptor(z, [n, m], [s, 1], [16, 16], padding_option="nan")
            else:
                c = tl.make_tensor_descriptor(z + s, [n - 1, m], [s, 1], [16, 16], padding_option="nan")
            c.store([0, 0], tl.load_tensor_descriptor(a, [0, 0]) + c.shape[0].to(tl.float32))
            tl.store_tensor_descriptor(c, [16, 0], b.load([0, 0]))
            tl.static_assert(a.block_shape[1] == 16 and a.dtype == tl.float32 and a.strides[1] == 1)
            tl.static_assert(a.block_type == tl.block_type(tl.float32, [16, 16]) and isinstance(a, tl.tensor_descriptor))
        """
    n, m = 24, 12
    for steps, flag in ((0, 1), (1, 0), (4, 0), (3, 1)):
        x, y = (random_array("fp32", (n, m), rng_of("carried", k)) for k in "xy")
        a, b = x.clone().numpy(), y.clone().numpy()
        for i in range(steps):
            b[i * 8:i * 8 + 16] = a[i * 8:i * 8 + 16] + np.float32(1)
            a, b = b, a
        z = np.full((n, m), np.nan, np.float32)
        c = z if flag > 0 else z[1:]
        c[:16] = a[:16] + np.float32(len(c))
        c[16:32] = b[:len(c) - 16]
        swapped = (b, a) if steps % 2 else (a, b)
        for how in _HOWS:
            got = launch(kernel_of(source), how, (1,), {"x": x, "y": y, "z": poisoned("fp32", (n, m)), "n": n, "m": m, "s": m, "steps": steps, "flag": flag},
                         num_warps=1 if ON_CPU else 2)
            for name, value in zip("xyz", (*swapped, z)):
                np.testing.assert_array_equal(got[name].numpy(), value, err_msg=f"{how}, {name}, {steps} steps")


@pytest.mark.parametrize("dtype", ["fp16", "fp32", "bf16"])
def test_products(dtype):
    """Descriptor loads as dot operands in a pipelined loop, K no multiple of the block."""
    m, n, k = 37, 45, 100
    unit = 16 // torch.empty(0, dtype=TORCH[dtype]).element_size()
    width = {d: -(-d // unit) * unit for d in (k, n)}
    x, w = (random_array(dtype, s, rng_of(dtype, s), small=True) for s in ((m, width[k]), (k, width[n])))
    x[:, k:] = float("nan")  # beyond the tensor's sizes
    w[:, n:] = float("nan")
    source = """
        @triton.jit
        def kernel(x, w, o, m, n, k, sx, sw, so, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
            a = tl.make_tensor_descriptor(x, [m, k], [sx, 1], [M, K])
            b = tl.make_tensor_descriptor(w, [k, n], [sw, 1], [K, N])
            c = tl.make_tensor_descriptor(o, [m, n], [so, 1], [M, N])
            i, j = tl.program_id(0) * M, tl.program_id(1) * N
            acc = tl.zeros((M, N), tl.float32)
            for s in tl.range(0, tl.cdiv(k, K), num_stages=3):
                acc = tl.dot(a.load([i, s * K]), b.load([s * K, j]), acc, input_precision="ieee")
            c.store([i, j], acc)
        """
    expected = np.full((m, width[n]), np.nan, np.float32)
    expected[:, :n] = x[:, :k].to(torch.float64).numpy() @ w[:, :n].to(torch.float64).numpy()  # small integers: exact
    args = {"x": x, "w": w, "o": poisoned("fp32", (m, width[n])), "m": m, "n": n, "k": k, "sx": width[k], "sw": width[n], "so": width[n], "M": 32, "N": 32, "K": 32}
    for how in _HOWS:
        got = launch(kernel_of(source), how, (2, 2), args, num_warps=1 if ON_CPU else 4)
        np.testing.assert_array_equal(got["o"].numpy(), expected, err_msg=how)
