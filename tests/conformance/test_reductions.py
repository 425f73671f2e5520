"""Reductions and scans of every type along every axis, against numpy in float64 or 64-bit integers, and the interpreter."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from tilewright.conformance.cases import AXES, WARPS, covering, exact_array, numbers, wrapped
from tilewright.conformance.harness import ALL, FLOATS, INTS, SIMULATED, UINTS, batch, random_array, rng_of

_NO_ZERO_SIGN = {"ulp": 0.5}
_COMBINERS = """
    @triton.jit
    def pair(a, i, b, j):
        return a + b, i ^ j

    @triton.jit
    def best(a, i, k, b, j, l):
        take = (a > b) | ((a == b) & (i > j)) | ((a == b) & (i == j) & (k < l))
        return tl.where(take, a, b), tl.where(take, i, j), tl.where(take, k, l)

    @triton.jit
    def largest(a, b):
        return tl.maximum(a, b).to(a.dtype)

    @triton.jit
    def latest(a, i, b, j):
        return a + b, tl.where(j == 0, i, j)
    """


@pytest.mark.parametrize("case, dtype, warps", covering(AXES, ALL, WARPS, quick=14))
def test_reductions(case, dtype, warps):
    """sum, max, min, argmax, argmin with ties, xor_sum, reduce_or: along an axis, over all, with kept dims."""
    shape, axis = case
    x = exact_array(dtype, shape, axis)
    v = numbers(x)
    keep = {"axis": axis, "keepdims": True}
    rows = [(f"tl.sum(x, {axis})", v.sum(axis)), (f"tl.sum(x, axis={axis}, keep_dims=True)", v.sum(**keep)), ("tl.sum(x)", v.sum()),
            ("tl.sum(x, keep_dims=True)", v.sum(keepdims=True)), (f"x.sum({axis}, dtype=tl.float64)", v.sum(axis).astype(np.float64), _NO_ZERO_SIGN)]
    for f, value, where in (("max", np.max, np.argmax), ("min", np.min, np.argmin)):
        rows += [(f"tl.{f}(x, {axis})", value(v, axis), _NO_ZERO_SIGN), (f"tl.{f}(x, {axis}, keep_dims=True)", value(v, **keep), _NO_ZERO_SIGN),
                 (f"x.{f}()", value(v), _NO_ZERO_SIGN)]
        if dtype == "int1":  # indices need an order: Triton's too compare numbers
            continue
        rows += [(f"tl.arg{f}(x, {axis})", where(v, axis)), (f"tl.arg{f}(x, axis={axis}, keep_dims=True)", np.expand_dims(where(v, axis), axis)),
                 (f"tl.{f}(x, axis={axis}, return_indices=True)[1]", where(v, axis)),
                 (f"tl.{f}(x, {axis}, return_indices=True)[0]", value(v, axis), _NO_ZERO_SIGN),
                 (f"tl.{f}(x, return_indices=True)[1]", where(v)),
                 # any of equal ones will do: what lies there is the extremum
                 (f"tl.gather(x, tl.arg{f}(x, {axis}, tie_break_left=False, keep_dims=True), {axis})", value(v, **keep), _NO_ZERO_SIGN)]
    rows = [(r[0], r[1], r[2] if len(r) > 2 else _NO_ZERO_SIGN) for r in rows]
    inputs = {"x": x}
    if dtype in (*INTS, *UINTS):
        y = random_array(dtype, shape, rng_of(dtype, shape, axis, "bits"))
        bits = numbers(y)
        rows += [(f"tl.xor_sum(y, {axis})", wrapped(np.bitwise_xor.reduce(bits, axis=axis), dtype)), ("tl.xor_sum(y)", wrapped(np.bitwise_xor.reduce(bits, axis=None), dtype)),
                 (f"tl.reduce_or(y, {axis}, keep_dims=True)", wrapped(np.bitwise_or.reduce(bits, **keep), dtype)),
                 (f"tl.reduce_or(y, axis={axis})", wrapped(np.bitwise_or.reduce(bits, axis=axis), dtype))]
        inputs["y"] = y
    batch(rows, inputs, num_warps=warps)


@pytest.mark.parametrize("case, warps, dtype", covering(AXES, WARPS, ["fp32", "int32", "fp16", "int64"], quick=6))
def test_reduce_with_a_combiner(case, warps, dtype):
    """One value, a pair and a triple at a time: ties, several types in one reduction, kept dims, over all."""
    shape, axis = case
    x, y = exact_array(dtype, shape, 1), random_array("int32", shape, rng_of(shape, 2), small=True)
    v, w = numbers(x), numbers(y)
    at = np.arange(v.size, dtype=np.int64).reshape(shape)
    key = np.argmax(v.astype(np.float64) * 2**40 + w.astype(np.float64) * 2**20 - at, axis=axis, keepdims=True)

    def chosen(a):
        return np.take_along_axis(a, key, axis).squeeze(axis)

    triple = f"tl.reduce((x, y, at), {axis}, best)"
    batch([(f"tl.reduce((x, y), axis={axis}, combine_fn=pair)[0]", v.sum(axis), _NO_ZERO_SIGN),
           (f"tl.reduce((x, y), {axis}, pair, keep_dims=True)[1]", np.bitwise_xor.reduce(w.astype(np.int64), axis=axis, keepdims=True)),
           (f"tl.reduce(x, {axis}, largest)", v.max(axis), _NO_ZERO_SIGN), ("x.reduce(None, largest)", v.max(), _NO_ZERO_SIGN),
           (f"{triple}[0]", chosen(v), _NO_ZERO_SIGN), (f"{triple}[1]", chosen(w)), (f"{triple}[2]", chosen(at))],
          {"x": x, "y": y, "at": torch.from_numpy(at.astype(np.int32))}, functions=_COMBINERS, num_warps=warps)


@pytest.mark.parametrize("case, dtype, warps", covering(AXES, [t for t in ALL if t != "int1"], WARPS, quick=13))
def test_scans(case, dtype, warps):
    """cumsum, cumprod and associative_scan, from both ends; of pairs too."""
    shape, axis = case
    x = exact_array(dtype, shape, 3)
    v = numbers(x)
    signs = np.where(v > 0, 1, -1 if dtype not in UINTS else 1)
    flip = np.flip

    def latest(w):
        out, rows = np.moveaxis(w.astype(np.int64).copy(), axis, 0), range(1, shape[axis])
        for r in rows:
            out[r] = np.where(out[r] == 0, out[r - 1], out[r])
        return np.moveaxis(out, 0, axis)

    setup = f"one = tl.where(x > 0, 1, {-1 if dtype not in UINTS else 1}).to(x.dtype)"
    batch([(f"tl.cumsum(x, {axis})", v.cumsum(axis), _NO_ZERO_SIGN), (f"tl.cumsum(x, axis={axis}, reverse=True)", flip(flip(v, axis).cumsum(axis), axis), _NO_ZERO_SIGN),
           (f"x.cumsum({axis}, dtype=tl.float64)", v.astype(np.float64).cumsum(axis), _NO_ZERO_SIGN),
           (f"tl.cumprod(one, {axis})", signs.cumprod(axis)), (f"tl.cumprod(one, axis={axis}, reverse=True)", flip(flip(signs, axis).cumprod(axis), axis)),
           (f"tl.associative_scan(x, {axis}, largest)", np.maximum.accumulate(v, axis), _NO_ZERO_SIGN),
           (f"tl.associative_scan(x, {axis}, largest, reverse=True)", flip(np.maximum.accumulate(flip(v, axis), axis), axis), _NO_ZERO_SIGN),
           (f"tl.associative_scan((x, x.to(tl.int32)), axis={axis}, combine_fn=latest)[1]", latest(v))],
          {"x": x}, setup, _COMBINERS, num_warps=warps)


@pytest.mark.parametrize("dtype", FLOATS)
def test_reductions_ignore_nan(dtype):
    x = random_array(dtype, (8, 32), rng_of(dtype, "nan"))
    x[2, 5], x[3, :], x[4, 0] = float("nan"), float("nan"), float("inf")
    v = numbers(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        batch([("tl.max(x, 1)", np.fmax.reduce(v, 1)), ("tl.min(x, 0)", np.fmin.reduce(v, 0)), ("tl.max(x)", np.fmax.reduce(v, None))], {"x": x}, num_warps=2)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64"])
def test_sums_of_floats_round_little(dtype):
    """Any order of additions: n roundings of partial sums at most."""
    n, eps = 256, {"fp16": 2.0**-11, "bf16": 2.0**-8, "fp32": 2.0**-24, "fp64": 2.0**-53}[dtype]
    x = random_array(dtype, (4, n), rng_of(dtype, "sum"))
    v = numbers(x)
    bound = {"atol": float(np.abs(v).sum(1).max() * eps * (16 if SIMULATED else 256))}
    batch([("tl.sum(x, 1)", v.sum(1), bound), ("tl.cumsum(x, 1)", v.cumsum(1), bound)], {"x": x}, num_warps=4)
