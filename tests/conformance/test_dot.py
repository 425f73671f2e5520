"""Dots of all types at awkward blocks, with every precision, transposed operands, batches, loops and fused epilogues."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.conformance.cases import WARPS, covering, numbers
from tilewright.conformance.harness import (
    ON_CPU,
    SIMULATED,
    TARGET,
    TORCH,
    batch,
    compare,
    poisoned,
    random_array,
    rng_of,
    tl_name,
)

_BLOCKS = [(16, 16, 16), (1, 16, 32), (16, 8, 16), (2, 4, 8), (32, 16, 64), (64, 32, 16), (16, 64, 32), (4, 64, 16), (64, 16, 8), (32, 32, 1), (1, 1, 1), (64, 64, 64), (128, 16, 32)]
_ACCUMULATED = {"int8": "int32", "fp64": "fp64"}
_FP8 = ("fp8e5", "fp8e4nv")
_ANY_ZERO = {"ulp": 0.5}  # zeros of both signs are equal

_SOURCE = """
    @triton.jit
    def kernel(p, q, c, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr, TURN_A: tl.constexpr, TURN_B: tl.constexpr):
        m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
        if TURN_A:
            x = tl.trans(tl.load(p + k[:, None] * M + m[None, :]))
        else:
            x = tl.load(p + m[:, None] * K + k[None, :])
        if TURN_B:
            y = tl.trans(tl.load(q + n[:, None] * K + k[None, :]))
        else:
            y = tl.load(q + k[:, None] * N + n[None, :])
        z = tl.load(c + m[:, None] * N + n[None, :])
        tl.store(o + m[:, None] * N + n[None, :], tl.dot(x, y, z, input_precision=PRECISION))
    """


def _operand(dtype, shape, *key):
    if dtype in _FP8:
        return random_array("fp32", shape, rng_of(dtype, shape, *key), small=True).to(TORCH[dtype])
    return random_array(dtype, shape, rng_of(dtype, shape, *key), small=True)


@pytest.mark.parametrize("block", _BLOCKS)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64", "int8", *_FP8])
def test_exact_dots(dtype, block):
    """Small integers: every product and sum is exact in every precision, so that layouts alone decide."""
    number = _BLOCKS.index(block) + len(dtype)
    if SIMULATED and number % 3:
        pytest.skip("a third of the blocks is enough in the simulator")
    if dtype == "fp64" and block == (64, 64, 64) and TARGET.startswith("amd"):
        pytest.skip("the operands alone take more than the 64 KiB of shared memory")
    m, n, k = block
    turn_a, turn_b = number % 2 == 0, number % 4 < 2
    out = _ACCUMULATED.get(dtype, "fp32")
    x, y, z = _operand(dtype, (k, m) if turn_a else (m, k), 1), _operand(dtype, (n, k) if turn_b else (k, n), 2), _operand(out, (m, n), 3)
    precision = ("tf32", "ieee", "tf32x3", "bf16x3")[number % 4]
    # products stay below 2**8, as bf16 and tf32 want
    reference = compare(_SOURCE, {"p": x, "q": y, "c": z, "o": poisoned(out, (m, n)), "M": m, "N": n, "K": k, "PRECISION": precision, "TURN_A": turn_a, "TURN_B": turn_b},
                        num_warps=(1, 2, 4, 8)[number % 4])
    a, b = (v.to(TORCH["fp64"]).numpy() for v in (x, y))
    np.testing.assert_array_equal(reference["o"].to(TORCH["fp64"]).numpy(), (a.T if turn_a else a) @ (b.T if turn_b else b) + z.to(TORCH["fp64"]).numpy())


# largest error relative to the largest result, of normal operands
_ERRORS = {"fp16": 1e-5, "bf16": 1e-5, "fp64": 1e-13, "tf32": 2e-3, "ieee": 1e-6, "tf32x3": 1e-5, "bf16x3": 1e-4, "bf16x6": 1e-5}


@pytest.mark.parametrize("dtype, precision", [("fp16", "tf32"), ("bf16", "tf32"), ("fp64", "tf32"), ("fp32", "tf32"), ("fp32", "ieee"), ("fp32", "tf32x3"), ("fp32", "bf16x3"), ("fp32", "bf16x6")])
@pytest.mark.parametrize("block", [(32, 32, 64), (16, 8, 32)])
def test_rounding_of_dots(dtype, precision, block):
    m, n, k = block
    out = _ACCUMULATED.get(dtype, "fp32")
    x, y, z = (random_array(d, s, rng_of(s, i)) for i, (d, s) in enumerate(((dtype, (m, k)), (dtype, (k, n)), (out, (m, n)))))
    compare(_SOURCE, {"p": x, "q": y, "c": z, "o": poisoned(out, (m, n)), "M": m, "N": n, "K": k, "PRECISION": precision, "TURN_A": False, "TURN_B": False},
            num_warps=2, tolerance={"*": {"rtol": _ERRORS[precision if dtype == "fp32" else dtype]}})


_BATCHES = [(2, 16, 16, 16), (4, 32, 8, 16), (1, 16, 16, 32), (2, 1, 16, 8), (8, 4, 4, 4), (2, 64, 16, 1)]


@pytest.mark.parametrize("shape, dtype, warps", covering(_BATCHES, ["fp16", "fp32", "int8", "bf16", "fp64", *_FP8], WARPS))
def test_batched_dots(shape, dtype, warps):
    b, m, n, k = shape
    out = _ACCUMULATED.get(dtype, "fp32")
    x, y, z = _operand(dtype, (b, m, k)), _operand(dtype, (b, k, n)), _operand(out, (b, m, n), "acc")
    product = numbers(x.to(TORCH["fp64"])) @ numbers(y.to(TORCH["fp64"]))
    batch([("tl.dot(x, y)", product, _ANY_ZERO), ("tl.dot(x, y, acc=z)", product + numbers(z), _ANY_ZERO)], {"x": x, "y": y, "z": z}, num_warps=warps)


@pytest.mark.parametrize("dtype, warps", covering(["fp32", "fp16", "bf16", "int8", "fp64", *_FP8], WARPS))
def test_arguments_of_dots(dtype, warps):
    """allow_tf32, every input_precision, max_num_imprecise_acc, out_dtype; small integers are exact under all of them."""
    out = _ACCUMULATED.get(dtype, "fp32")
    x, y, z = _operand(dtype, (32, 16), 1), _operand(dtype, (16, 32), 2), _operand(out, (32, 32), 3)
    product, acc = numbers(x.to(TORCH["fp64"])) @ numbers(y.to(TORCH["fp64"])), numbers(z)
    texts = ["tl.dot(x, y, z, max_num_imprecise_acc=0)", "tl.dot(x, y, z, max_num_imprecise_acc=16)"]
    if dtype == "fp32":
        texts += ["tl.dot(x, y, z, allow_tf32=True)", "tl.dot(x, y, z, allow_tf32=False)", *(f'tl.dot(x, y, z, input_precision="{p}")' for p in ("tf32", "tf32x3", "ieee"))]
    rows = [(t, product + acc, _ANY_ZERO) for t in texts] + [(f"tl.dot(x, y, out_dtype={tl_name(out)})", product, _ANY_ZERO)]
    if dtype == "fp16":
        rows += [("tl.dot(x, y, out_dtype=tl.float16)", product, _ANY_ZERO)]
    batch(rows, {"x": x, "y": y, "z": z}, num_warps=warps)


@pytest.mark.parametrize("stages", [1] if ON_CPU else [1, 2, 3])
@pytest.mark.parametrize("dtype", ["fp16", "fp32", "bf16", "int8"])
@pytest.mark.parametrize("m, n, k", [(37, 50, 83), (16, 16, 16), (64, 33, 5)])
def test_matmuls(m, n, k, dtype, stages):
    """A pipelined loop with masked loads, a bias, relu and a cast, over a grid; k may leave the last block almost empty."""
    if SIMULATED and (stages == 1 or dtype == "bf16"):
        pytest.skip("fewer in the simulator")
    out = {"int8": "int32"}.get(dtype, dtype)
    zero, acc = ("0", "tl.int32") if dtype == "int8" else ("0.0", "tl.float32")
    compare(f"""
        @triton.jit
        def kernel(p, q, bias, o, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
            i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
            r = tl.arange(0, BK)
            a, b = p + i[:, None] * k + r[None, :], q + r[:, None] * n + j[None, :]
            acc = tl.zeros([BM, BN], {acc})
            for at in range(0, k, BK):
                x = tl.load(a, mask=(i[:, None] < m) & (r[None, :] < k - at), other=0)
                y = tl.load(b, mask=(r[:, None] < k - at) & (j[None, :] < n), other=0)
                acc = tl.dot(x, y, acc)
                a += BK
                b += BK * n
            acc += tl.load(bias + j, mask=j < n, other=0)[None, :]
            tl.store(o + i[:, None] * n + j[None, :], tl.where(acc > 0, acc, {zero}), mask=(i[:, None] < m) & (j[None, :] < n))
        """, {"p": _operand(dtype, (m, k)), "q": _operand(dtype, (k, n)), "bias": _operand(dtype, (n,)), "o": poisoned(out, (m, n)), "m": m, "n": n, "k": k,
              "BM": 32, "BN": 32, "BK": 32}, (-(-m // 32), -(-n // 32)), num_warps=4, num_stages=stages)


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_chained_dots(dtype):
    """The result of a dot is an operand of the next, with a row maximum and a transpose between: attention's shape."""
    compare(f"""
        @triton.jit
        def kernel(p, q, v, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
            m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
            x, y = tl.load(p + m[:, None] * K + k[None, :]), tl.load(q + n[:, None] * K + k[None, :])
            s = tl.dot(x, tl.trans(y))
            s = tl.where(s == tl.max(s, 1)[:, None], 1.0, 0.0).to({'tl.float16' if dtype == 'fp16' else 'tl.float32'})
            z = tl.dot(s, tl.load(v + n[:, None] * K + k[None, :]))
            tl.store(o + m[:, None] * K + k[None, :], z + tl.sum(s, 1)[:, None])
        """, {"p": _operand(dtype, (32, 16), 1), "q": _operand(dtype, (64, 16), 2), "v": _operand(dtype, (64, 16), 3), "o": poisoned("fp32", (32, 16)), "M": 32, "N": 64, "K": 16},
        num_warps=4)


def test_half_precision_accumulator():
    compare("""
        @triton.jit
        def kernel(p, q, o):
            i, j = tl.arange(0, 32)[:, None], tl.arange(0, 32)[None, :]
            x, y = tl.load(p + i * 32 + j), tl.load(q + i * 32 + j)
            tl.store(o + i * 32 + j, tl.dot(x, y, out_dtype=tl.float16))
        """, {"p": _operand("fp16", (32, 32), 1), "q": _operand("fp16", (32, 32), 2), "o": poisoned("fp16", (32, 32))}, num_warps=1)




@pytest.mark.parametrize("dtype", ["fp16", "int8"])
def test_more_batch_dims(dtype):
    """Four dims: all but the last two are batches, of the accumulator too."""
    out = _ACCUMULATED.get(dtype, "fp32")
    x, y, z = _operand(dtype, (2, 2, 16, 32), 1), _operand(dtype, (2, 2, 32, 16), 2), _operand(out, (2, 2, 16, 16), 3)
    compare("""
        @triton.jit
        def kernel(p, q, c, o):
            b = tl.arange(0, 2)[:, None, None, None] * 2 + tl.arange(0, 2)[None, :, None, None]
            m, n, k = tl.arange(0, 16), tl.arange(0, 16), tl.arange(0, 32)
            x = tl.load(p + b * 512 + m[None, None, :, None] * 32 + k[None, None, None, :])
            y = tl.load(q + b * 512 + k[None, None, :, None] * 16 + n[None, None, None, :])
            at = b * 256 + m[None, None, :, None] * 16 + n[None, None, None, :]
            tl.store(o + at, tl.dot(x, y, tl.load(c + at)))
        """, {"p": x, "q": y, "c": z, "o": poisoned(out, (2, 2, 16, 16))}, num_warps=2,
            expected={"o": (x.to(TORCH["fp64"]) @ y.to(TORCH["fp64"]) + z.to(TORCH["fp64"])).to(TORCH[out])})
