"""Vectors are loaded right where they are used, where tiles leave no registers for them, and only there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from crowded_kernel import crowded

import tilewright
from tilewright.compiler import ASTSource
from tilewright.targets.nvidia.emit import ptxas
from tilewright.targets.protocol import GPUTarget

POINTERS = {n: "*fp16" if n[0] in "qkvg" else "*fp32" for n in crowded.arg_names if n.endswith("_ptr")}


def compiled(m: int, n: int = 128, d: int = 64) -> Any:
    signature = {**POINTERS, "steps": "i32"}
    divisible = {(i,): [["tt.divisibility", 16]] for i in range(len(POINTERS))}
    source = ASTSource(crowded, signature, {"M": m, "N": n, "D": d}, divisible)
    return tilewright.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8, "num_stages": 2})


def loads_before_products(kernel: Any) -> list[int]:
    """How many products of the consumers' loop stand before each load of a vector in it."""
    consumers = kernel.asm["ttgir"].split("ttng.warp_specialize", 1)[1].split("ttng.warp_return", 1)[0]
    found, products = [], 0
    for line in consumers.splitlines():
        products += '"ttng.warp_group_dot"' in line
        if '"tt.load"' in line:
            found.append(products)
    return found


@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
def test_a_crowded_loop_loads_late_and_spills_nothing():
    kernel = compiled(128)
    assert loads_before_products(kernel) == [1, 3]
    assert kernel.metadata.spills == 0 and not hasattr(kernel.metadata, "wgmma_serialized")


def test_where_there_is_room_loads_are_early():
    assert loads_before_products(compiled(64)) == [0, 0]


@pytest.mark.parametrize("m", [64, 128])
def test_executed(m, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a:sim")
    rng = np.random.default_rng(0)
    n, d, steps = 128, 64, 2
    q, g, k, v = (rng.integers(-1, 2, (rows, d)).astype(np.float16) for rows in (m * steps, m * steps, n, n))
    a, b = (rng.integers(-1, 3, m * steps).astype(np.float32) for _ in range(2))
    dk, dv = (torch.full((n, d), float("nan")) for _ in range(2))
    kernel = crowded[(1,)](*map(torch.from_numpy, (q, k, v, g, a, b)), dk, dv, steps, M=m, N=n, D=d, num_warps=8, num_stages=2)
    assert "cp.async.bulk.tensor" in kernel.asm["ptx"]
    p = k.astype(np.float32) @ q.T.astype(np.float32) * a
    ds = p * (v.astype(np.float32) @ g.T.astype(np.float32) - b)
    np.testing.assert_array_equal(dv.numpy(), p @ g.astype(np.float32))
    np.testing.assert_array_equal(dk.numpy(), ds.astype(np.float16).astype(np.float32) @ q.astype(np.float32))
