"""Two LDS buffers for loads through registers: where they are chosen, values and races in the instruction-level simulator, and that every barrier and wait counts."""

import importlib
import re

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.targets.amd import emit
from tilewright.targets.amd.isa.errors import LdsRace, UseBeforeWait
from tilewright.targets.amd.simulate import simulate

TILE = (64, 64, 32)  # of eight waves, of which a SIMD then holds as many with two buffers as with one


@tilewright.jit
def product_kernel(x_ptr, w_ptr, y_ptr, FIRST, END, K, STEP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for i in range(FIRST, END, STEP):
        at = (i - FIRST) // STEP * BLOCK_K + k
        x = tl.load(x_ptr + m[:, None] * 256 + at[None, :], mask=at[None, :] < K, other=0.0)
        w = tl.load(w_ptr + at[:, None] * BLOCK_N + n[None, :], mask=at[:, None] < K, other=0.0)
        acc = tl.dot(x, w, acc)
    tl.store(y_ptr + m[:, None] * BLOCK_N + n[None, :], acc)


def compiled(arch="gfx942", tile=TILE, step=1, aligned=True, **options):
    signature = {"x_ptr": "*fp16", "w_ptr": "*fp16", "y_ptr": "*fp32", "FIRST": "i32", "END": "i32", "K": "i32"}
    constexprs = {"STEP": step, **dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile))}
    source = tilewright.compiler.ASTSource(fn=product_kernel, signature={**signature, **dict.fromkeys(constexprs, "constexpr")}, constexprs=constexprs,
                                           attrs={(i,): [["tt.divisibility", 16]] for i in (0, 1, 2, *([5] if aligned else []))})
    return tilewright.compile(source, target=GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32), options={"num_warps": 8, "num_stages": 3, **options})


def product(kernel, k, tile=TILE, first=0, step=1, text=None, end=None):
    """Result of the kernel, and the right one."""
    m, n, block = tile
    rng = np.random.default_rng(k)
    x, w = rng.standard_normal((m, 256)).astype(np.float16), rng.standard_normal((256, n)).astype(np.float16)
    y = np.full((m, n), np.nan, np.float32)
    end = first + -(-k // block) * step if end is None else end
    simulate(text or kernel.asm["amdgcn"], (1,), [x, w, y, first, end, k], num_warps=8, shared=kernel.metadata.shared)
    return y, x[:, :k].astype(np.float64) @ w[:k].astype(np.float64)


def loop_of(text):
    """From the loop's head to the last branch back to it."""
    blocks = re.split(r"^(?=\.LBB\d+_\d+:)", text, flags=re.M)
    with_products = [b for b in blocks if re.search(r"^\tv_w?mfma|^\tv_wmma", b, re.M)]
    assert len(with_products) in (1, 2)
    return with_products


BARRIER = re.compile(r"^\ts_barrier(?:_signal -1)?$", re.M)


@pytest.mark.parametrize("arch, stages, aligned", [("gfx942", 3, False), ("gfx942", 4, True), ("gfx1100", 3, True),
                                                   *(pytest.param(arch, stages, False, marks=pytest.mark.nightly)
                                                     for arch in ("gfx90a", "gfx942", "gfx1100", "gfx1201") for stages in (3, 4))])
def test_values_at_any_number_of_rounds(arch, stages, aligned):
    """None, one, and one less and more than the loop's text does in a turn; K inside a tile and just past it."""
    kernel = compiled(arch, num_stages=stages, aligned=aligned)
    assert f"ttg.register_tiles = {stages - 2}" in kernel.asm["ttgir"] and "ttg.rounds = 2" in kernel.asm["ttgir"]
    assert kernel.metadata.spills == 0 and kernel.metadata.shared == 2 * 2 * 64 * 32 * 2
    assert [len(BARRIER.findall(b)) for b in loop_of(kernel.asm["amdgcn"])] == [1, 1]
    for k in (0, 16, 32, 48, 80, 128, 176) if aligned else (0, 1, 32, 33, 65, 128, 161):
        y, expected = product(kernel, k)
        assert np.abs(y - expected).max() <= 1e-3 * max(1, np.abs(expected).max()), k


def test_through_pointers():
    kernel = compiled(buffer_ops=False, aligned=False)
    assert "buffer_load" not in kernel.asm["amdgcn"] and "ttg.rounds = 2" in kernel.asm["ttgir"]
    for k in (0, 31, 97):
        y, expected = product(kernel, k)
        assert np.abs(y - expected).max() <= 1e-3 * max(1, np.abs(expected).max()), k


def test_no_counter_wraps_that_did_not_before():
    """A turn of two rounds from 2147483000 by 400 would count past 2³¹."""
    kernel = compiled(step=400)
    for trips, end in ((1, 2147483300), (0, 2147483000)):
        y, expected = product(kernel, 32 * trips, first=2147483000, step=400, end=end)
        assert np.abs(y - expected).max() <= 1e-3 * max(1, np.abs(expected).max())


@pytest.mark.parametrize("number", range(2))
def test_each_round_needs_its_barrier(number):
    kernel = compiled()
    text = kernel.asm["amdgcn"]
    block = loop_of(text)[number]
    with pytest.raises(LdsRace):
        product(kernel, 176, text=text.replace(block, BARRIER.sub("\ts_nop 0", block)))


def test_a_tile_is_stored_once_it_has_come():
    """Without the waits for global memory a tile in flight would be stored."""
    kernel = compiled(num_stages=4)
    text = kernel.asm["amdgcn"]
    for block in loop_of(text):
        waits = re.compile(r"^(\ts_waitcnt.*)vmcnt\(\d+\)", re.M)
        assert waits.search(block)
        with pytest.raises(UseBeforeWait):
            product(kernel, 176, text=text.replace(block, waits.sub(r"\1vmcnt(63)", block)))


@pytest.mark.parametrize("arch, options, tiles", [
    ("gfx942", {"num_stages": 2}, 0), ("gfx942", {"num_warps": 4, "tile": (64, 64, 64)}, 0), ("gfx942", {"tile": (256, 128, 64)}, 0), ("gfx950", {"tile": (64, 64, 64)}, 0),
    ("gfx950", {"tile": (64, 64, 64), "async_copy": False}, 1)])
def test_where_one_buffer_stays(arch, options, tiles):
    """By num_stages; where two would take LDS that holds another wave; where halves take turns; where loads go to LDS directly."""
    kernel = compiled(arch, **options)
    assert ("ttg.register_tiles" in kernel.asm["ttgir"]) == bool(tiles)
    told = [c for c in kernel.metadata.choices if c["what"] == "loop"]
    assert len(told) == (options.get("num_stages", 3) > 2 and (arch, tiles) != ("gfx950", 0)) and all(f"{1 + bool(tiles)} LDS buffer" in c["chosen"] for c in told)


def test_spills_are_not_the_price(monkeypatch):
    """Where LLVM's registers do not suffice after all, the kernel has one buffer."""
    usage = emit.resource_usage
    monkeypatch.setattr(emit, "resource_usage", lambda text: usage(text) | {"spills": 7 * (len(loop_of(text)) - 1)})
    monkeypatch.setattr(emit, "STRATEGIES", ())
    kernel = compiled(tile=(64, 128, 32))
    assert "ttg.rounds" not in kernel.asm["ttgir"] and kernel.metadata.spills == 0
    assert [v["options"] for v in kernel.metadata.variants] == [{"num_stages": 2}]


@pytest.mark.nightly
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, monkeypatch):
    """Two products, each operand in two buffers, the queries' buffer in their place before the loop."""
    attention = importlib.import_module("attention").attention
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx942:sim")
    rng = np.random.default_rng(1)
    for n in (40, 64, 200):
        q, k, v = (rng.standard_normal((1, n, 64)).astype(np.float16) for _ in range(3))
        scores = q[0].astype(np.float64) @ k[0].astype(np.float64).T / 8
        p = np.exp(np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf) if causal else scores)
        expected = p / p.sum(1, keepdims=True) @ v[0].astype(np.float64)
        assert np.abs(attention(q, k, v, causal=causal, block=(128, 64), num_stages=3)[0] - expected).max() < 2e-3
