"""Loops of products over rows that begin anywhere: which loads are ahead, where addresses are made, and that nothing spills."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.targets.nvidia.emit import ptxas
from tilewright.targets.nvidia.passes.fit_loads import BESIDES, Need
from tilewright.targets.protocol import GPUTarget

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="no ptxas")


@tilewright.jit
def product(x, w, y, M, N, K, WRAP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    xs, ws = x + (m % M if WRAP else m)[:, None] * K + k[None, :], w + k[:, None] * N + (n % N if WRAP else n)[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for i in range(0, tl.cdiv(K, BK)):
        left = k < K - i * BK
        if WRAP:
            a, b = tl.load(xs, mask=left[None, :], other=0), tl.load(ws, mask=left[:, None], other=0)
        else:
            a, b = tl.load(xs, mask=(m[:, None] < M) & left[None, :], other=0), tl.load(ws, mask=left[:, None] & (n[None, :] < N), other=0)
        acc = tl.dot(a, b, acc)
        xs += BK
        ws += BK * N
    tl.store(y + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def compiled(block: tuple[int, int, int], warps: int, arch: int = 80, wrap: bool = True, element: str = "fp16", aligned: str = "xwy", **options: Any) -> Any:
    """``aligned``: arguments that are multiples of 16."""
    signature = {"x": f"*{element}", "w": f"*{element}", "y": "*fp32", "M": "i32", "N": "i32", "K": "i32"}
    attrs = {(list(signature).index(a),): [["tt.divisibility", 16]] for a in aligned}
    source = ASTSource(product, signature, {"WRAP": wrap, **dict(zip(("BM", "BN", "BK"), block))}, attrs)
    if arch == 90:
        options["tma"] = False
    return tilewright.compile(source, target=GPUTarget("cuda", arch, 32), options={"num_warps": warps, **options})


def loop_of(kernel: Any) -> tuple[str, str]:
    """(head, body) of the loop."""
    return re.search(r"(scf\.for[^\n]*)\n(.*?)\n\s*scf\.yield", kernel.asm["ttgir"], re.S).groups()  # type: ignore[union-attr]


def order(body: str) -> list[str]:
    return [name for name in re.findall(r'"(tt\.load|ttg\.barrier|ttg\.local_alloc|ttg\.local_load|tt\.dot)"', body)]


# ------------------------------------------------------------------------------------------------------------------ the rules
@pytest.mark.parametrize("tiles, ahead, held, lean, rule", [
    (100, 50, 255 - BESIDES - 150, 0, 0), (100, 50, 256 - BESIDES - 150, 0, 1), (100, 50, 200, 255 - BESIDES - 150, 1),
    (100, 50, 200, 256 - BESIDES - 150, 2), (300, 0, 0, 0, 2), (0, 0, 0, 0, 0)])
def test_the_first_rule_that_fits(tiles, ahead, held, lean, rule):
    assert Need(tiles, ahead, held, lean).rule(255) == rule


def test_what_fits_is_loaded_ahead_through_the_pointers_that_the_kernel_wrote():
    kernel = compiled((16, 32, 32), 1)
    head, body = loop_of(kernel)
    assert head.count("x!tt.ptr<f16") == 2 and "ttng.pinned" not in body and "ttg.at_use" not in body
    assert order(body)[:2] == ["ttg.barrier", "ttg.local_alloc"]  # of what was loaded in the round before
    assert "loop of products" not in kernel.explain()


def test_addresses_give_way_first():
    """32×32 of 1 warp: 32 accumulators, 64 addresses of 2 registers and 64 elements ahead do not fit, with 64 offsets of one they do."""
    kernel = compiled((32, 32, 32), 1)
    head, body = loop_of(kernel)
    assert "x!tt.ptr<f16" not in head and head.count("tensor<32x32xf16") == 2, "carries scalar pointers, and data"
    assert body.count("ttng.pinned") >= 4 and "ttg.at_use" not in body
    assert order(body)[:2] == ["ttg.barrier", "ttg.local_alloc"]
    assert "mad.wide.s32" in kernel.asm["ptx"]
    assert "loop of products: addresses are computed in each round" in kernel.explain()


def test_then_loads_ahead():
    """Each tile goes from its load to its buffer, with no barrier between, before the next is loaded."""
    kernel = compiled((32, 64, 32), 1)
    head, body = loop_of(kernel)
    assert "x!tt.ptr<f16" not in head and not re.search(r"tensor<\w+xf16", head), "carries scalar pointers, and no data"
    assert order(body)[:6] == 2 * ["ttg.barrier", "tt.load", "ttg.local_alloc"]
    assert "addresses are computed in each round, loads stand where they are used" in kernel.explain()


def test_fewer_registers_are_asked_for():
    assert "ttg.at_use" in loop_of(compiled((16, 32, 32), 1, maxnreg=80))[1]


def test_asynchronous_copies_are_left_alone():
    """fp32 rows begin at multiples of 4 bytes: cp.async copies an element, ahead, from the pointers that the kernel wrote."""
    kernel = compiled((64, 64, 32), 1, element="fp32")
    head, body = loop_of(kernel)
    assert body.count('"ttg.async_copy_global_to_local"') == 2 and '"tt.load"' not in body
    assert head.count("x!tt.ptr<f32") == 2 and "ttng.pinned" not in body


def test_a_loop_that_is_not_pipelined_makes_its_addresses_too():
    head, body = loop_of(compiled((32, 64, 32), 1, num_stages=1))
    assert "x!tt.ptr<f16" not in head and "ttng.pinned" in body and "ttg.at_use" not in body


def test_wide_loads_are_left_alone():
    kernel = compiled((128, 128, 32), 4, aligned="xwyMNK")
    assert "ttng.pinned" not in kernel.asm["ttgir"] and "cp.async.cg.shared.global" in kernel.asm["ptx"]


# ----------------------------------------------------------------------------------------------------------------- what it is for
@needs_ptxas
@pytest.mark.parametrize("arch, block, warps, wrap", [(80, (128, 128, 32), 4, True), (90, (128, 128, 32), 4, False), (80, (128, 128, 64), 8, True)])
def test_nothing_spills(arch, block, warps, wrap):
    """benchmarks/kernels/matmul.py spilled 696, 820 and 580 bytes so, and by Triton 3.6 10,552, 200 and none."""
    kernel = compiled(block, warps, arch, wrap)
    assert kernel.metadata.spills == 0 and kernel.metadata.registers > 128


@pytest.mark.parametrize("wrap", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_warp_groups_products_of_odd_sizes(wrap, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a:sim")
    rows, columns, depth = 125, 131, 69
    rng = np.random.default_rng(1)
    x, w = (rng.integers(-4, 5, s).astype(np.float16) for s in ((rows, depth), (depth, columns)))
    y = torch.full((rows, columns), float("nan"))
    kernel = product[(1, 2)](torch.from_numpy(x), torch.from_numpy(w), y, rows, columns, depth, wrap, 128, 128, 32, num_warps=4)
    assert "ttng.warp_group_dot" in kernel.asm["ttgir"] and "ttg.at_use" in kernel.asm["ttgir"]
    np.testing.assert_array_equal(y.numpy(), x.astype(np.float32) @ w.astype(np.float32))
