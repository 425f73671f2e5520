"""Shapes, gather, histogram, order: every axis of tiles of one to three dims, sizes of 1 included."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tilewright.conformance.cases import WARPS, covering, numbers
from tilewright.conformance.harness import ALL, WIDTH, batch, compare, index_text, poisoned, random_array, rng_of


def _warps(*key) -> int:
    return (1, 2, 4, 8)[rng_of(*key).integers(0, 4)]


@pytest.mark.parametrize("shape, dtype, warps", covering([(1, 1), (1, 32), (16, 2), (32, 64), (2, 4, 8), (8, 1, 16), (4, 4, 4)], ALL, WARPS, quick=14))
def test_shapes(shape, dtype, warps):
    rank, size = len(shape), int(np.prod(shape))
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[1 if dtype == "int1" else WIDTH[dtype] // 8]
    x, y = random_array(dtype, shape, rng_of(shape, 4)), random_array(dtype, shape, rng_of(shape, 5))
    orders = list(itertools.permutations(range(rank)))[1:]
    lines, outputs, expected = [], {}, {}

    def give(text: str, value: torch.Tensor) -> None:
        name = f"o{len(outputs)}"
        lines.append(f"tl.store({name} + {index_text(value.shape)}, {text})")
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
        give(f"tl.flip(x, {d})", torch.from_numpy(np.flip(x.view(bits).numpy(), d).copy()).view(x.dtype))
        give(f"tl.expand_dims(x, {d})", x.unsqueeze(d))
    give(f"tl.broadcast_to(tl.expand_dims(x, 0), {(2, *shape)})", x.expand(2, *shape))
    give(f"tl.broadcast_to(tl.expand_dims(x, -1), {(*shape, 4)})", x.unsqueeze(-1).expand(*shape, 4))
    newline = "\n            "
    compare(f"""
        @triton.jit
        def kernel(p, q, {', '.join(outputs)}):
            x, y = tl.load(p + {index_text(shape)}), tl.load(q + {index_text(shape)})
            {newline.join(lines)}
        """, {"p": x, "q": y, **outputs}, expected=expected, num_warps=warps)


_GATHERS = [((64,), (32,), 0), ((16,), (128,), 0), ((8, 16), (8, 64), 1), ((32, 4), (8, 4), 0), ((4, 8, 2), (4, 16, 2), 1), ((1,), (4,), 0), ((2, 1), (2, 8), 1), ((1, 4), (1, 4), 0)]


@pytest.mark.parametrize("case, dtype, warps", covering(_GATHERS, ALL, WARPS, quick=14))
def test_gather(case, dtype, warps):
    source, index, axis = case
    rng = rng_of(source, index)
    x = random_array(dtype, source, rng)
    at = torch.from_numpy(rng.integers(0, source[axis], index).astype(np.int32))
    wide = x.to(torch.float64) if x.dtype.is_floating_point else x.to(torch.int64)
    compare(f"""
        @triton.jit
        def kernel(p, index, o):
            x, at = tl.load(p + {index_text(source)}), tl.load(index + {index_text(index)})
            tl.store(o + {index_text(index)}, tl.gather(x, at, {axis}))
        """, {"p": x, "index": at, "o": poisoned(dtype, index)}, expected={"o": torch.gather(wide, axis, at.long()).to(x.dtype)}, num_warps=warps)


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


_SORTED = [(1,), (2,), (32,), (4, 16), (2, 2, 8), (1, 1), (8, 1), (128,)]


@pytest.mark.parametrize("shape, dtype, warps", covering(_SORTED, [t for t in ALL if t != "int1"], WARPS, quick=10, keep=lambda s, *_: s != (128,)) + [
    pytest.param((128,), t, 4, marks=pytest.mark.nightly) for t in ("fp32", "int16", "int64")])
def test_order(shape, dtype, warps):
    """sort both ways, topk of every k, bitonic_merge of what rises and falls, flips."""
    x = random_array(dtype, shape, rng_of(shape, dtype))
    v, n = numbers(x), shape[-1]
    up = np.sort(v, -1)
    # rising, then falling
    hill = np.concatenate([np.sort(v[..., : n // 2], -1), np.sort(v[..., n // 2 :], -1)[..., ::-1]], -1)
    rows = [("tl.sort(x)", up), ("tl.sort(x, dim=-1, descending=True)", up[..., ::-1]), ("tl.bitonic_merge(y)", up), ("tl.bitonic_merge(y, descending=True)", up[..., ::-1])]
    rows += [(f"tl.topk(x, {k})", up[..., ::-1][..., :k]) for k in (1, 2, 8) if k <= n] + [("tl.topk(x, 1, descending=False)", up[..., :1])]
    rows += [("tl.flip(x)", v[..., ::-1])] + [(f"x.flip({d})", np.flip(v, d)) for d in range(len(shape))]
    batch(rows, {"x": x, "y": torch.from_numpy(np.ascontiguousarray(hill)).to(x.dtype)}, num_warps=warps)


@pytest.mark.parametrize("dtype, warps", covering(["fp16", "int32", "int64", "fp32"], WARPS))
def test_orders_that_are_not_promised(dtype, warps):
    """view, reshape, ravel and cat that may reorder keep the elements, each once."""
    x, y = random_array(dtype, (8, 4), rng_of(dtype, "any"), small=True), random_array(dtype, (8, 4), rng_of(dtype, "other"), small=True)
    v, both = numbers(x), np.concatenate([numbers(x), numbers(y)])
    at = np.arange(32)

    def counts(a):
        return np.bincount(a.reshape(-1).astype(np.int64) + 4, minlength=16)

    texts = {"tl.view(x, (32,))": v, "x.view(32)": v, "tl.reshape(x, (32,), can_reorder=True)": v, "x.ravel(can_reorder=True)": v, "tl.ravel(tl.cat(x, y, can_reorder=True))": both}
    rows = [(f"tl.histogram({text}.to(tl.int32) + 4, 16)", counts(a)) for text, a in texts.items()]
    rows += [("tl.ravel(x)", v.reshape(-1)),
            # what is reordered is reordered alike
            ("tl.sum(tl.view(x, (2, 16)) * tl.view(i, (2, 16)).to(x.dtype))", np.array((v.reshape(-1) * at).sum()), {"ulp": 0.5})]
    batch(rows, {"x": x, "y": y, "i": torch.arange(32, dtype=torch.int32).reshape(8, 4)}, num_warps=warps)


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
