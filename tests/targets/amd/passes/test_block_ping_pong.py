"""Two halves of a work-group that take turns: the schedule's text, values and races in the instruction-level simulator, and where it is not done."""

import re

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.dialects.errors import ArgumentError
from tilewright.targets.amd.isa.errors import LdsRace
from tilewright.targets.amd.options import AmdOptions
from tilewright.targets.amd.passes import block_ping_pong
from tilewright.targets.amd.pipeline import pipeline
from tilewright.targets.amd.simulate import simulate


@tilewright.jit
def product_kernel(x_ptr, w_ptr, y_ptr, K, stride_x, stride_w, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, TURNED: tl.constexpr):
    m, n, k = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for i in range(0, tl.cdiv(K, BLOCK_K)):
        x = tl.load(x_ptr + m[:, None] * stride_x + (i * BLOCK_K + k)[None, :], mask=k[None, :] < K - i * BLOCK_K, other=0.0)
        if TURNED:  # w is stored by columns
            w = tl.trans(tl.load(w_ptr + n[:, None] * stride_w + (i * BLOCK_K + k)[None, :], mask=k[None, :] < K - i * BLOCK_K, other=0.0))
        else:
            w = tl.load(w_ptr + (i * BLOCK_K + k)[:, None] * stride_w + n[None, :], mask=k[:, None] < K - i * BLOCK_K, other=0.0)
        acc = tl.dot(x, w, acc)
    tl.store(y_ptr + m[:, None] * BLOCK_N + n[None, :], acc)


TILE = (256, 128, 64)


def compiled(arch="gfx942", tile=TILE, turned=False, dtype="fp16", **options):
    signature = {"x_ptr": f"*{dtype}", "w_ptr": f"*{dtype}", "y_ptr": "*fp32", "K": "i32", "stride_x": "i32", "stride_w": "i32"}
    constexprs = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K", "TURNED"), (*tile, turned)))
    attrs = {(i,): [["tt.divisibility", 16]] for i in (0, 1, 2, 4, 5)}
    source = tilewright.compiler.ASTSource(fn=product_kernel, signature={**signature, **dict.fromkeys(constexprs, "constexpr")}, constexprs=constexprs, attrs=attrs)
    return tilewright.compile(source, target=GPUTarget("hip", arch, 64 if arch.startswith("gfx9") else 32), options={"num_warps": 8, "num_stages": 2, **options})


def product(text, shared, k, tile=TILE, turned=False, dtype=np.float16):
    m, n, _ = tile
    rng = np.random.default_rng(k)
    room = -(-max(k, 1) // 16) * 16
    x, w = rng.standard_normal((m, room)).astype(dtype), rng.standard_normal((n, room) if turned else (max(k, 1), n)).astype(dtype)
    y = np.full((m, n), np.nan, np.float32)
    simulate(text, (1,), [x, w, y, k, x.shape[1], w.shape[1]], num_warps=8, shared=shared)
    right = (w[:, :k].T if turned else w[:k]).astype(np.float64)
    return y, x[:, :k].astype(np.float64) @ right


def phases(text):
    """The loop's instructions in groups that barriers end, each as the set of its kinds."""
    block = max(re.split(r"^\.LBB\d+_\d+:.*$", text, flags=re.M), key=lambda b: b.count("v_mfma"))
    kinds = {"buffer_load": "load", "ds_read": "read", "ds_write": "write", "v_mfma": "product", "s_setprio 1": "high", "s_setprio 0": "low"}
    return [{kind for start, kind in kinds.items() if re.search(rf"^\t{start}\b|^\t{start}_", part, re.M)} for part in re.split(r"^\ts_barrier.*$", block, flags=re.M)]


@pytest.mark.parametrize("turned, tile", [(False, TILE), pytest.param(True, (128, 256, 64), marks=pytest.mark.nightly)])
def test_schedule_and_values(turned, tile):
    kernel = compiled(tile=tile, turned=turned)
    text, shared = kernel.asm["amdgcn"], kernel.metadata.shared
    assert phases(text) == [{"load", "read"}, {"high", "product", "low"}, {"write"}, {"high", "product", "low"}, set()]
    assert kernel.metadata.spills == 0 and kernel.metadata.matrix_instructions == {"v_mfma_f32_32x32x8_f16": 32}
    plain = compiled(tile=tile, turned=turned, block_pingpong=False)
    assert "s_setprio" not in plain.asm["amdgcn"] and plain.metadata.shared == shared
    for k in (0, 136):
        y, expected = product(text, shared, k, tile, turned)
        assert np.abs(y - expected).max() <= 1e-3 * max(1, np.abs(expected).max())
        np.testing.assert_array_equal(y, product(plain.asm["amdgcn"], shared, k, tile, turned)[0])


def test_bf16_on_gfx950_through_registers():
    kernel = compiled("gfx950", dtype="bf16", async_copy=False)
    assert [p & {"read", "write", "product"} for p in phases(kernel.asm["amdgcn"])] == [{"read"}, {"product"}, {"write"}, {"product"}, set()]
    bits = np.full((256, 64), 0x3F80, np.uint16)  # ones
    y = np.zeros((256, 128), np.float32)
    simulate(kernel.asm["amdgcn"], (1,), [bits, np.full((64, 128), 0x3F80, np.uint16), y, 50, 64, 128], num_warps=8, shared=kernel.metadata.shared)
    assert (y == 50).all()


@pytest.mark.parametrize("phase", range(4))
def test_every_phase_needs_its_barrier(phase):
    """The race detector sees it where the n-th barrier of the loop is missing."""
    kernel = compiled()
    text = kernel.asm["amdgcn"]
    loop = max(re.split(r"^(\.LBB\d+_\d+:.*)$", text, flags=re.M), key=lambda b: b.count("v_mfma"))
    at = [m.start() for m in re.finditer(r"^\ts_barrier.*$", loop, re.M)][phase]
    with pytest.raises(LdsRace):
        product(text.replace(loop, loop[:at] + "\ts_nop 0" + loop[at + len("\ts_barrier"):]), kernel.metadata.shared, 136)


@pytest.mark.parametrize("arch, options", [("gfx942", {"tile": (128, 128, 64)}), ("gfx942", {"num_stages": 1}), ("gfx950", {})])
def test_loops_that_stay_as_they_are(arch, options):
    """Small tiles, no tile in flight, loads that go to LDS directly."""
    assert "amdg.setprio" not in compiled(arch, **options).asm["ttgir"]


def test_other_numbers_of_waves_and_architectures():
    class FourWaves:
        num_warps = 4

    block_ping_pong.run(None, FourWaves())  # looks at nothing

    def has_pass(arch, **options):
        return "block_ping_pong" in [p.name for stage in pipeline(arch, AmdOptions(num_warps=8, **options)).stages for p in stage.passes]

    assert [a for a in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201") if has_pass(a)] == ["gfx942", "gfx950"]
    assert not has_pass("gfx942", block_pingpong=False)


@pytest.mark.parametrize("waves", [4, 16])
def test_a_launch_of_other_waves_than_compiled_for_is_refused(waves):
    kernel = compiled()
    with pytest.raises(ArgumentError, match=f"compiled for 8 waves of 64 lanes a work-group; found {waves}"):
        simulate(kernel.asm["amdgcn"], (1,), [*[np.zeros(1 << 15, np.float16)] * 2, np.zeros((256, 128), np.float32), 0, 16, 128], num_warps=waves,
                 shared=kernel.metadata.shared)


def test_the_setting(monkeypatch):
    from tilewright.targets.amd.knobs import KNOBS

    assert "block_pingpong" not in KNOBS.option_defaults()
    monkeypatch.setenv("TRITON_HIP_USE_BLOCK_PINGPONG", "0")
    assert KNOBS.option_defaults()["block_pingpong"] is False
