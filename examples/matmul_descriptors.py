"""y = relu(x @ w + b) with tensor descriptors and a persistent kernel: as many programs as the device runs at a time share the tiles."""

from __future__ import annotations

from functools import partial
from typing import Any

import common
import numpy as np
from matmul import reference

import tilewright as triton
import tilewright.language as tl
from tilewright.testing import Case
from tilewright.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def tile_of(tile, num_m, num_n, GROUP_M: tl.constexpr):
    """Row and column of tile number ``tile``: groups of GROUP_M rows of tiles, down the columns of each."""
    per_group = GROUP_M * num_n
    first_m = (tile // per_group) * GROUP_M
    group_m = min(num_m - first_m, GROUP_M)
    return first_m + (tile % group_m), (tile % per_group) // group_m


@triton.jit
def matmul_descriptors_kernel(x_desc, w_desc, b_ptr, y_desc, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
                              GROUP_M: tl.constexpr, NUM_PROGRAMS: tl.constexpr, RELU: tl.constexpr, FLATTEN: tl.constexpr,
                              WARP_SPECIALIZE: tl.constexpr, PRECISION: tl.constexpr):
    num_m = tl.cdiv(M, BLOCK_M)
    num_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), num_m * num_n, NUM_PROGRAMS, flatten=FLATTEN, warp_specialize=WARP_SPECIALIZE):
        pid_m, pid_n = tile_of(tile, num_m, num_n, GROUP_M)
        offs_m = pid_m * BLOCK_M
        offs_n = pid_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(tl.cdiv(K, BLOCK_K)):
            x = x_desc.load([offs_m, k * BLOCK_K])
            w = w_desc.load([k * BLOCK_K, offs_n])
            acc = tl.dot(x, w, acc, input_precision=PRECISION)
        columns = offs_n + tl.arange(0, BLOCK_N)
        acc += tl.load(b_ptr + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
        if RELU:
            acc = tl.maximum(acc, 0.0)
        y_desc.store([offs_m, offs_n], acc.to(y_desc.dtype))


@triton.jit
def matmul_device_descriptors_kernel(x_ptr, w_ptr, b_ptr, y_ptr, M, N, K, stride_x, stride_w, stride_y, BLOCK_M: tl.constexpr,
                                     BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, NUM_PROGRAMS: tl.constexpr,
                                     RELU: tl.constexpr, FLATTEN: tl.constexpr, WARP_SPECIALIZE: tl.constexpr, PRECISION: tl.constexpr):
    """The same with descriptors that the kernel makes."""
    x_desc = tl.make_tensor_descriptor(x_ptr, shape=[M, K], strides=[stride_x, 1], block_shape=[BLOCK_M, BLOCK_K])
    w_desc = tl.make_tensor_descriptor(w_ptr, shape=[K, N], strides=[stride_w, 1], block_shape=[BLOCK_K, BLOCK_N])
    y_desc = tl.make_tensor_descriptor(y_ptr, shape=[M, N], strides=[stride_y, 1], block_shape=[BLOCK_M, BLOCK_N])
    matmul_descriptors_kernel(x_desc, w_desc, b_ptr, y_desc, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, NUM_PROGRAMS, RELU, FLATTEN,
                              WARP_SPECIALIZE, PRECISION)


def padded(x: Any) -> Any:
    """``x`` with rows that begin at multiples of 16 bytes, as descriptors need them: a view of a wider array full of NaN."""
    rows, columns = x.shape
    unit = 16 // (x.itemsize if isinstance(x, np.ndarray) else x.element_size())
    width = -(-columns // unit) * unit
    whole = common.poisoned((rows, width), x)
    whole[:, :columns] = x
    return whole[:, :columns]


def matmul(x: Any, w: Any, b: Any, relu: bool = True, block: tuple[int, int, int] = (64, 64, 32), num_programs: int = 8, num_warps: int = 4,
           num_stages: int = 3, device_descriptors: bool = False, flatten: bool = True, warp_specialize: bool = False,
           precision: str = "ieee") -> Any:
    """relu(x @ w + b) for x (M, K), w (K, N), b (N,) with rows at multiples of 16 bytes; fp32 accumulation, output of x's dtype.

    ``num_programs``: at most so many programs run, say the number of multiprocessors.
    """
    (m, k), (_, n) = x.shape, w.shape
    y = padded(common.poisoned((m, n), x))
    bm, bn, bk = block
    tiles = triton.cdiv(m, bm) * triton.cdiv(n, bn)
    programs = min(num_programs, tiles)
    options = dict(BLOCK_M=bm, BLOCK_N=bn, BLOCK_K=bk, GROUP_M=8, NUM_PROGRAMS=programs, RELU=relu, FLATTEN=flatten,
                   WARP_SPECIALIZE=warp_specialize, PRECISION=precision, num_warps=num_warps, num_stages=num_stages)
    if device_descriptors:
        def row(t: Any) -> int:
            return t.strides[0] // t.itemsize if isinstance(t, np.ndarray) else t.stride(0)

        matmul_device_descriptors_kernel[(programs,)](x, w, b, y, m, n, k, row(x), row(w), row(y), **options)
    else:
        x_desc, w_desc, y_desc = (TensorDescriptor.from_tensor(t, s) for t, s in ((x, [bm, bk]), (w, [bk, bn]), (y, [bm, bn])))
        matmul_descriptors_kernel[(programs,)](x_desc, w_desc, b, y_desc, m, n, k, **options)
    return y


def cases(device: str, use_numpy: bool):
    for dtype, bound in (("float32", 1e-6), ("float16", 2e-3), ("bfloat16", 1e-2)):
        if use_numpy and dtype == "bfloat16":
            continue
        for m, n, k in ((1, 1, 1), (64, 64, 64), (65, 127, 97), (200, 140, 40)):
            x, w, b = (common.random(s, dtype, device, i, use_numpy) for i, s in enumerate(((m, k), (k, n), (n,))))
            x, w = padded(x), padded(w)
            for where in ("host", "device"):
                # 2 programs: most of these sizes give each several tiles
                run = partial(matmul, x, w, b, num_programs=2, device_descriptors=where == "device", warp_specialize=where == "device")
                yield Case(f"matmul {dtype} {m}x{n}x{k}, descriptors of the {where}", run, partial(reference, x, w, b), bound)


def tilewright_cases(device: str):
    """What `tilewright matrix` runs."""
    return common.sample(cases, device, "65x127x97")


if __name__ == "__main__":
    common.main(cases)
