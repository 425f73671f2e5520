"""Block pointers: windows of one to three dims of every type, checked boundaries, padding, moves, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance.cases import WARPS, covering
from tilewright.conformance.harness import ALL, FLOATS, compare, poisoned, random_array, rng_of

# array, strides' order (last fastest), offsets, block
_WINDOWS = [((37,), (0,), (0,), (32,)), ((37,), (0,), (32,), (16,)), ((5,), (0,), (-3,), (16,)), ((13, 29), (0, 1), (8, 16), (8, 16)), ((13, 29), (1, 0), (0, 16), (16, 16)),
            ((40, 40), (0, 1), (9, 9), (8, 16)), ((3, 40), (1, 0), (-2, 31), (4, 16)), ((16, 1), (0, 1), (0, 0), (16, 1)), ((1, 64), (0, 1), (0, 32), (1, 32)),
            ((5, 6, 7), (0, 1, 2), (2, 4, 4), (4, 2, 8)), ((5, 6, 7), (2, 0, 1), (0, 4, 0), (1, 4, 8))]


def _strides(shape, order):
    out, step = [0] * len(shape), 1
    for d in reversed(order):
        out[d] = step
        step *= shape[d]
    return tuple(out)


def _window(x, offsets, block, filler):
    """The block at the offsets; outside the array the filler."""
    out = np.full(block, filler, x.dtype)
    inside = tuple(slice(max(o, 0), max(min(o + b, s), 0)) for o, b, s in zip(offsets, block, x.shape))
    where = tuple(slice(i.start - o, i.stop - o) for i, o in zip(inside, offsets))
    out[where] = x[inside]
    return out


@pytest.mark.parametrize("window, dtype, padding, warps", covering(_WINDOWS, ALL, ["zero", "nan", ""], WARPS, quick=16, keep=lambda w, d, p, _: p != "nan" or d in FLOATS))
def test_windows(window, dtype, padding, warps):
    """Loads that leave the array give 0 or NaN, stores write nothing there; strides in any order; a window moved and one made there agree."""
    shape, order, offsets, block = window
    strides, rank = _strides(shape, order), len(shape)
    flat = random_array(dtype, int(np.prod(shape)), rng_of(window, dtype))
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    view = np.lib.stride_tricks.as_strided(flat.view(bits).numpy(), shape, [s * flat.element_size() for s in strides])
    nan = int(torch.tensor([float("nan")], dtype=flat.dtype).view(bits)[0]) if padding == "nan" else 0
    loaded = _window(view, offsets, block, nan)
    out = poisoned(dtype, int(np.prod(shape)))
    stored = out.clone()
    target = np.lib.stride_tricks.as_strided(stored.view(bits).numpy(), shape, [s * flat.element_size() for s in strides])
    inside = tuple(slice(max(o, 0), max(min(o + b, s), 0)) for o, b, s in zip(offsets, block, shape))
    target[inside] = view[inside]
    every, zeros = tuple(range(rank)), (0,) * rank
    index = " + ".join(f"tl.arange(0, {b})[{', '.join(':' if e == d else 'None' for e in range(rank))}] * {int(np.prod(block[d + 1:], dtype=int))}" for d, b in enumerate(block)) \
        if rank > 1 else f"tl.arange(0, {block[0]})"
    compare(f"""
        @triton.jit
        def kernel(p, o, q, m, {', '.join(f's{d}' for d in every)}):
            a = tl.make_block_ptr(base=p, shape=({', '.join(f's{d}' for d in every)},), strides={strides}, offsets={offsets}, block_shape={block}, order={tuple(reversed(order))})
            x = tl.load(a, boundary_check={every}, padding_option="{padding}")
            tl.store(o + {index}, x)
            b = tl.make_block_ptr(q, {shape}, {strides}, {zeros}, {block}, {tuple(reversed(order))})
            b = b.advance({offsets})
            tl.store(b, x, boundary_check={every})
            c = tl.advance(tl.make_block_ptr(p, {shape}, {strides}, {zeros}, {block}, {tuple(reversed(order))}), {offsets})
            tl.store(m + {index}, tl.load(c, boundary_check={every}, cache_modifier=".cg", eviction_policy="evict_first") == x)
        """, {"p": flat, "o": poisoned(dtype, block), "q": out, "m": poisoned("int1", block), **{f"s{d}": shape[d] for d in every}}, num_warps=warps,
        expected={"o": torch.from_numpy(loaded).view(flat.dtype), "q": stored})


@pytest.mark.parametrize("warps", [1, pytest.param(4, marks=pytest.mark.nightly)])
def test_windows_that_are_walked(warps):
    """Carried through a loop and chosen by a branch; only the dims that need it are checked."""
    x = random_array("int32", (24, 50), rng_of("walk"), small=True)
    v = x.numpy()
    compare("""
        @triton.jit
        def kernel(p, o, q, rows, columns, flag):
            a = tl.make_block_ptr(p, (rows, columns), (columns, 1), (8, 0), (8, 16), (1, 0))
            total = tl.zeros((8, 16), tl.int32)
            for k in range(0, columns, 16):
                total += tl.load(a, boundary_check=(1,), padding_option="zero")
                a = tl.advance(a, (0, 16))
            tl.store(tl.make_block_ptr(o, (8, 16), (16, 1), (0, 0), (8, 16), (1, 0)), total)
            if flag > 0:
                b = tl.make_block_ptr(p, (rows, columns), (columns, 1), (0, 32), (16, 16), (1, 0))
            else:
                b = tl.make_block_ptr(p, (rows, columns), (columns, 1), (0, 0), (16, 16), (1, 0))
            tl.store(tl.make_block_ptr(q, (16, 16), (1, 16), (0, 0), (16, 16), (0, 1)), tl.load(b))
        """, {"p": x, "o": poisoned("int32", (8, 16)), "q": poisoned("int32", (16, 16)), "rows": 24, "columns": 50, "flag": 1}, num_warps=warps,
        expected={"o": np.pad(v[8:16], ((0, 0), (0, 14))).reshape(8, 4, 16).sum(1).astype(np.int32), "q": np.ascontiguousarray(v[:16, 32:48].T)})
