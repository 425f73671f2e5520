"""Shapes, reductions, scans, gather, histogram, sort: every axis of tiles of one to three dims, sizes of 1 included."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import ALL, SIMULATED, compare, poisoned, random_array, rng_of

SHAPES = [(1,), (2,), (32,), (256,), (1, 1), (1, 32), (32, 1), (4, 8), (16, 64), (64, 4), (64, 64), (1, 1, 1), (2, 4, 8), (8, 1, 16), (16, 8, 2), (4, 1, 1)]
CASES = [(s, a) for s in SHAPES for a in range(len(s))]
_SUMS = {"int1": "int32", "int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}
_REDUCED = {"int1": "int32", "int8": "int32", "int16": "int32", "uint8": "int32", "uint16": "int32", "fp16": "fp32", "bf16": "fp32"}


def _index(shape):
    """Offsets of a row-major tile, as text."""
    rank = len(shape)
    parts = []
    for d, size in enumerate(shape):
        stride = int(np.prod(shape[d + 1 :], dtype=int))
        at = ", ".join(":" if e == d else "None" for e in range(rank))
        parts.append(f"tl.arange(0, {size})[{at}] * {stride}" if rank > 1 else f"tl.arange(0, {size})")
    return " + ".join(parts)


def _rest(shape, axis):
    return tuple(s for d, s in enumerate(shape) if d != axis)


def _warps(*key) -> int:
    return (1, 2, 4, 8)[rng_of(*key).integers(0, 4)]


@pytest.mark.parametrize("shape, axis", CASES if not SIMULATED else CASES[::2])
def test_reductions(shape, axis):
    """sum, max, min, argmax, argmin, xor_sum and keep_dims of one type a case; all types over the cases."""
    dtype = [t for t in ALL if t != "int1"][CASES.index((shape, axis)) % (len(ALL) - 1)]
    small = random_array(dtype, shape, rng_of(shape, axis), small=True)  # exact sums, and ties
    rest = _rest(shape, axis)
    at = _index(rest) if rest else "0"
    is_int = "int" in dtype
    reduced, total = _REDUCED.get(dtype, dtype), _SUMS.get(dtype, dtype)
    wide = small.to(torch.float64).numpy()
    expected = {"top": wide.max(axis).astype(np.float32) if reduced == "fp32" else wide.max(axis), "first": wide.argmax(axis).astype(np.int32),
                "least": wide.argmin(axis).astype(np.int32)}
    outputs = {"total": poisoned(total, rest or 1), "top": poisoned(reduced, rest or 1), "low": poisoned(reduced, rest or 1), "first": poisoned("int32", rest or 1),
               "least": poisoned("int32", rest or 1), "kept": poisoned(reduced, shape), "all": poisoned(total, 1), "where": poisoned("int32", 1)}
    if is_int:
        outputs["odd"] = poisoned(dtype, rest or 1)
    source = f"""
        @triton.jit
        def kernel(p, {', '.join(outputs)}):
            x = tl.load(p + {_index(shape)})
            at = {at}
            tl.store(total + at, tl.sum(x, {axis}))
            tl.store(top + at, tl.max(x, {axis}))
            tl.store(low + at, tl.min(x, {axis}))
            tl.store(first + at, tl.argmax(x, {axis}))
            tl.store(least + at, tl.argmin(x, axis={axis}))
            tl.store(kept + {_index(shape)}, tl.max(x, {axis}, keep_dims=True) - x)
            tl.store(all, tl.sum(x))
            tl.store(where, tl.max(x, return_indices=True)[1] if {len(shape)} == 0 else tl.argmax(tl.ravel(x), 0))
            {f"tl.store(odd + at, tl.xor_sum(x, {axis}))" if is_int else ""}
        """
    # sums of 16-bit floats round as they go, in an order that is the target's own
    rounds = {"rtol": {"fp16": 2e-3, "bf16": 2e-2}[dtype], "atol": {"fp16": 2e-2, "bf16": 2e-1}[dtype]} if dtype in ("fp16", "bf16") else {}
    reference = compare(source, {"p": small, **outputs}, num_warps=_warps(shape, axis), tolerance={"total": rounds, "all": rounds})
    for name, value in expected.items():
        np.testing.assert_array_equal(reference[name].to(torch.float64).numpy().reshape(value.shape), value, err_msg=name)


@pytest.mark.parametrize("dtype", ["fp16", "fp32", "fp64", "bf16"])
def test_reductions_ignore_nan(dtype):
    x = random_array(dtype, (8, 32), rng_of(dtype, "nan"))
    x[2, 5], x[3, :], x[4, 0] = float("nan"), float("nan"), float("inf")
    out = _REDUCED.get(dtype, dtype)
    compare(f"""
        @triton.jit
        def kernel(p, top, low):
            x = tl.load(p + {_index((8, 32))})
            tl.store(top + tl.arange(0, 8), tl.max(x, 1))
            tl.store(low + tl.arange(0, 32), tl.min(x, 0))
        """, {"p": x, "top": poisoned(out, 8), "low": poisoned(out, 32)}, num_warps=2)


@pytest.mark.parametrize("shape, axis", CASES[::2] if not SIMULATED else CASES[::5])
def test_reduce_with_a_combiner_of_tuples(shape, axis):
    """(mean, weight)-like pairs, and a triple with a comparison; the order of elements matters to neither."""
    x, y = random_array("fp32", shape, rng_of(shape, 1), small=True), random_array("int32", shape, rng_of(shape, 2), small=True)
    rest = _rest(shape, axis)
    at = _index(rest) if rest else "0"
    compare(f"""
        @triton.jit
        def pair(a, i, b, j):
            return a + b, i ^ j

        @triton.jit
        def best(a, i, k, b, j, l):
            take = (a > b) | ((a == b) & (i > j)) | ((a == b) & (i == j) & (k < l))
            return tl.where(take, a, b), tl.where(take, i, j), tl.where(take, k, l)

        @triton.jit
        def kernel(p, q, total, odd, top, second, where):
            x, y = tl.load(p + {_index(shape)}), tl.load(q + {_index(shape)})
            s, t = tl.reduce((x, y), {axis}, pair)
            tl.store(total + {at}, s)
            tl.store(odd + {at}, t)
            a, b, c = tl.reduce((x, y, ({_index(shape)}) + tl.zeros_like(y)), {axis}, best)
            tl.store(top + {at}, a)
            tl.store(second + {at}, b)
            tl.store(where + {at}, c)
        """, {"p": x, "q": y, "total": poisoned("fp32", rest or 1), "odd": poisoned("int32", rest or 1), "top": poisoned("fp32", rest or 1),
              "second": poisoned("int32", rest or 1), "where": poisoned("int32", rest or 1)}, num_warps=_warps(shape, axis, 2))


@pytest.mark.parametrize("shape, axis", CASES[::2] if not SIMULATED else CASES[1::5])
def test_scans(shape, axis):
    dtype = ("int32", "fp32", "int64", "fp64", "int8", "uint32")[CASES.index((shape, axis)) // 2 % 6]
    x = random_array(dtype, shape, rng_of(shape, 3), small=True)
    total = _SUMS.get(dtype, dtype)
    compare(f"""
        @triton.jit
        def latest(a, i, b, j):
            return a + b, tl.where(j == 0, i, j)

        @triton.jit
        def kernel(p, up, down, product, sums, last):
            at = {_index(shape)}
            x = tl.load(p + at)
            tl.store(up + at, tl.cumsum(x, {axis}))
            tl.store(down + at, tl.cumsum(x, {axis}, reverse=True))
            tl.store(product + at, tl.cumprod(tl.where(x > 0, 1, -1).to(tl.int32), {axis}))
            s, t = tl.associative_scan((x, x.to(tl.int32)), {axis}, latest)
            tl.store(sums + at, s)
            tl.store(last + at, t)
        """, {"p": x, "up": poisoned(total, shape), "down": poisoned(total, shape), "product": poisoned("int32", shape), "sums": poisoned(dtype, shape),
              "last": poisoned("int32", shape)}, num_warps=_warps(shape, axis, 3))


@pytest.mark.parametrize("shape", [(1, 1), (1, 32), (16, 2), (32, 64), (2, 4, 8), (8, 1, 16), (4, 4, 4)])
@pytest.mark.parametrize("dtype", ["int1", "int8", "fp16", "fp32", "int64"])
def test_shapes(shape, dtype):
    if SIMULATED and dtype not in ("int1", "fp16", "int64"):
        pytest.skip("three widths are enough in the simulator")
    rank, size = len(shape), int(np.prod(shape))
    x, y = random_array(dtype, shape, rng_of(shape, 4)), random_array(dtype, shape, rng_of(shape, 5))
    orders = list(itertools.permutations(range(rank)))[1:]
    lines, outputs, expected = [], {}, {}

    def give(text: str, value: torch.Tensor) -> None:
        name = f"o{len(outputs)}"
        lines.append(f"tl.store({name} + {_index(value.shape)}, {text})")
        outputs[name], expected[name] = poisoned(dtype, tuple(value.shape)), value.contiguous()

    for order in orders:
        give(f"tl.permute(x, {order})", x.permute(order))
    give("tl.trans(x)", x.transpose(-1, -2))
    give(f"tl.reshape(x, ({size},))", x.reshape(-1))
    give(f"tl.reshape(x, (1, {size}, 1))", x.reshape(1, -1, 1))
    if size >= 4:
        give(f"tl.reshape(tl.trans(x), (4, {size // 4}))", x.transpose(-1, -2).reshape(4, -1))
        give(f"tl.trans(tl.reshape(x, ({size // 4}, 4)))", x.reshape(-1, 4).T)
    give("tl.join(x, y)", torch.stack([x, y], -1))
    give("tl.split(tl.join(x, y))[1]", y)
    give("tl.interleave(x, y)", torch.stack([x, y], -1).reshape(*shape[:-1], -1))
    for d in range(rank):
        give(f"tl.cat(x, y, dim={d})", torch.cat([x, y], d))
        give(f"tl.flip(x, {d})", x.flip(d))
        give(f"tl.expand_dims(x, {d})", x.unsqueeze(d))
    give(f"tl.broadcast_to(tl.expand_dims(x, 0), {(2, *shape)})", x.expand(2, *shape))
    give(f"tl.broadcast_to(tl.expand_dims(x, -1), {(*shape, 4)})", x.unsqueeze(-1).expand(*shape, 4))
    newline = "\n            "
    compare(f"""
        @triton.jit
        def kernel(p, q, {', '.join(outputs)}):
            x, y = tl.load(p + {_index(shape)}), tl.load(q + {_index(shape)})
            {newline.join(lines)}
        """, {"p": x, "q": y, **outputs}, expected=expected, num_warps=_warps(shape, dtype))


@pytest.mark.parametrize("dtype", ["int8", "fp32", "int64", "bf16"])
@pytest.mark.parametrize("source, index, axis", [((64,), (32,), 0), ((16,), (128,), 0), ((8, 16), (8, 64), 1), ((32, 4), (8, 4), 0), ((4, 8, 2), (4, 16, 2), 1), ((1,), (4,), 0)])
def test_gather(source, index, axis, dtype):
    rng = rng_of(source, index)
    x = random_array(dtype, source, rng)
    at = torch.from_numpy(rng.integers(0, source[axis], index).astype(np.int32))
    wide = x.to(torch.float64) if x.dtype.is_floating_point else x.to(torch.int64)
    compare(f"""
        @triton.jit
        def kernel(p, index, o):
            x, at = tl.load(p + {_index(source)}), tl.load(index + {_index(index)})
            tl.store(o + {_index(index)}, tl.gather(x, at, {axis}))
        """, {"p": x, "index": at, "o": poisoned(dtype, index)}, expected={"o": torch.gather(wide, axis, at.long()).to(x.dtype)}, num_warps=_warps(source))


@pytest.mark.parametrize("n, bins", [(2, 2), (64, 8), (256, 64), (128, 256), (512, 1)])
def test_histogram(n, bins):
    x = torch.from_numpy(rng_of(n, bins).integers(0, bins, n).astype(np.int32))
    compare(f"""
        @triton.jit
        def kernel(p, o, q, r):
            i = tl.arange(0, {n})
            x = tl.load(p + i)
            tl.store(o + tl.arange(0, {bins}), tl.histogram(x, {bins}))
            tl.store(q + tl.arange(0, {bins}), tl.histogram(x, {bins}, mask=i % 3 == 0))
            tl.store(r + tl.arange(0, {bins}), tl.cumsum(tl.histogram(x, {bins}), 0))
        """, {"p": x, "o": poisoned("int32", bins), "q": poisoned("int32", bins), "r": poisoned("int32", bins)},
        expected={"o": torch.bincount(x, minlength=bins).to(torch.int32), "r": torch.bincount(x, minlength=bins).cumsum(0).to(torch.int32)}, num_warps=_warps(n))


@pytest.mark.parametrize("dtype", ["fp32", "int32", "int16", "fp16", "int64"])
@pytest.mark.parametrize("shape", [(1,), (2,), pytest.param((128,), marks=pytest.mark.slow), (4, 16), (2, 2, 8)])
def test_sort(shape, dtype):
    x = random_array(dtype, shape, rng_of(shape, dtype))
    if SIMULATED and dtype in ("fp16", "int32"):
        pytest.skip("three types are enough in the simulator")
    compare(f"""
        @triton.jit
        def kernel(p, o, q):
            at = {_index(shape)}
            tl.store(o + at, tl.sort(tl.load(p + at)))
            tl.store(q + at, tl.sort(tl.load(p + at), descending=True))
        """, {"p": x, "o": poisoned(dtype, shape), "q": poisoned(dtype, shape)}, num_warps=_warps(shape, dtype),
        expected={"o": x.sort(-1).values, "q": x.sort(-1, descending=True).values})


@pytest.mark.parametrize("m, n", [(1, 1), (16, 32), (64, 1), (1, 64), (32, 32)])
def test_layouts_meet(m, n):
    """Row and column vectors, transposes and reductions of one tile combined with each other."""
    x = random_array("fp32", (m, n), rng_of(m, n), small=True)
    compare(f"""
        @triton.jit
        def kernel(p, o, q, M: tl.constexpr, N: tl.constexpr):
            i, j = tl.arange(0, M), tl.arange(0, N)
            x = tl.load(p + i[:, None] * N + j[None, :])
            rows, columns = tl.sum(x, 1), tl.max(x, 0)
            centred = x * 2 - rows[:, None] + columns[None, :]
            turned = tl.trans(centred) + columns[:, None] - rows[None, :]
            tl.store(o + j[:, None] * M + i[None, :], turned)
            tl.store(q + i[:, None] * N + j[None, :], tl.trans(turned) + tl.reshape(tl.trans(x), ({m}, {n})) + tl.sum(rows, 0) * tl.min(columns, 0))
        """, {"p": x, "o": poisoned("fp32", (n, m)), "q": poisoned("fp32", (m, n)), "M": m, "N": n}, num_warps=_warps(m, n))
