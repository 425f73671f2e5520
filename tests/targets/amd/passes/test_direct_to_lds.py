"""gfx950, and gfx942 where it is asked for: loads of dot operands that go to LDS directly, several iterations ahead, executed by the instruction-level simulator."""

import re

import attention
import matmul
import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.dialects.errors import TilewrightError
from tilewright.targets.amd import async_marks, lower_buffer_ops
from tilewright.targets.amd.isa.errors import LdsRace, SimulationError
from tilewright.targets.amd.simulate import simulate


@pytest.fixture(autouse=True)
def gfx950(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx950:sim")


@pytest.fixture
def no_cache(monkeypatch, tmp_path):
    """For kernels that are compiled wrongly on purpose; each has options that no other test uses, so that nobody else gets it."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))


@tilewright.jit
def product_kernel(x_ptr, w_ptr, y_ptr, K, stride_x, stride_w, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK), tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    x_ptrs, w_ptrs = x_ptr + m[:, None] * stride_x + k[None, :], w_ptr + k[:, None] * stride_w + n[None, :]
    for i in range(0, tl.cdiv(K, BLOCK_K)):
        x = tl.load(x_ptrs, mask=k[None, :] < K - i * BLOCK_K, other=0.0)
        w = tl.load(w_ptrs, mask=k[:, None] < K - i * BLOCK_K, other=0.0)
        acc = tl.dot(x, w, acc)
        x_ptrs += BLOCK_K
        w_ptrs += BLOCK_K * stride_w
    tl.store(y_ptr + m[:, None] * BLOCK + n[None, :], acc)


@tilewright.jit
def whole_kernel(x_ptr, w_ptr, y_ptr, K, stride_x, stride_w, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n, k = tl.arange(0, BLOCK), tl.arange(0, BLOCK), tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK, BLOCK), tl.int32)
    for i in range(0, K, BLOCK_K):
        x = tl.load(x_ptr + m[:, None] * stride_x + (i + k)[None, :], mask=(i + k)[None, :] < K, other=0)
        w = tl.load(w_ptr + (i + k)[:, None] * stride_w + n[None, :], mask=(i + k)[:, None] < K, other=0)
        acc = tl.dot(x, w, acc)
    tl.store(y_ptr + m[:, None] * BLOCK + n[None, :], acc)


@tilewright.jit
def gathered_kernel(x_ptr, rows_ptr, w_ptr, y_ptr, K, stride_x, stride_w, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    m, n, k = tl.load(rows_ptr + tl.arange(0, BLOCK)), tl.arange(0, BLOCK), tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for i in range(0, K, BLOCK_K):
        x = tl.load(x_ptr + m[:, None] * stride_x + (i + k)[None, :])
        w = tl.load(w_ptr + (i + k)[:, None] * stride_w + n[None, :])
        acc = tl.dot(x, w, acc)
    tl.store(y_ptr + tl.arange(0, BLOCK)[:, None] * BLOCK + n[None, :], acc)


def operands(k, block=64, dtype=np.float16):
    rng = np.random.default_rng(k)
    return rng.standard_normal((block, k)).astype(dtype), rng.standard_normal((k, block)).astype(dtype)


def product(k, block=64, block_k=32, **options):
    x, w = operands(k, block)
    y = np.full((block, block), np.nan, np.float32)
    kernel = product_kernel[(1,)](x, w, y, k, k, block, block, block_k, **options)
    return y, x.astype(np.float64) @ w.astype(np.float64), kernel


def loop_of(assembly):
    block = max(re.split(r"^\.LBB\d+_\d+:.*$", assembly, flags=re.M), key=lambda b: len(re.findall(r"v_mfma", b)))
    return [line.strip() for line in block.splitlines() if re.match(r"\t[a-z]", line)]


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("k", [16, 32, 96, 208])
def test_values(k, stages):
    y, expected, kernel = product(k, num_stages=stages)
    assert " lds" in kernel.asm["amdgcn"]
    assert np.abs(y - expected).max() < 1e-3 * np.abs(expected).max()


@pytest.mark.parametrize("buffers", [3, 4])
def test_a_turn_of_the_loop_fills_each_buffer_once(buffers):
    """The body is written once for each buffer: no stage is chosen and no address computed from it, and the loop may end after any round of a turn."""
    for blocks in range(1, 2 * buffers + 2):
        y, expected, kernel = product(32 * blocks, num_stages=buffers)
        assert np.abs(y - expected).max() < 1e-3 * np.abs(expected).max()
    assert kernel.metadata.shared == buffers * 2 * 64 * 32 * 2
    loop = loop_of(kernel.asm["amdgcn"])
    assert sum(line.startswith("v_mfma") for line in loop) == 2 * buffers and sum(line == "s_barrier" for line in loop) == buffers
    assert not [line for line in loop if re.match(r"s_cmp_eq|s_cmp_lg_u32 \S+ [1-9]|v_(?:add|lshl_add)_u32", line)]


@pytest.mark.parametrize("stages", [2, 3])
def test_no_iteration_at_all(stages):
    y, _, kernel = product(16)
    x = np.zeros((64, 16), np.float16)
    kernel = product_kernel[(1,)](x, np.zeros((16, 64), np.float16), y, 0, 16, 64, 64, 32, num_stages=stages)
    assert (y == 0).all() and " lds" in kernel.asm["amdgcn"]


def test_the_loop_neither_stores_to_lds_nor_waits_for_all_loads():
    _, _, kernel = product(96, num_stages=3)
    loop = loop_of(kernel.asm["amdgcn"])
    rounds = 3  # of a turn, as many as there are buffers
    assert sum(line.startswith("buffer_load_dwordx4") and line.endswith("lds") for line in loop) == 2 * rounds
    assert not [line for line in loop if line.startswith(("ds_write", "v_perm"))]
    waits = [int(n) for line in loop for n in re.findall(r"vmcnt\((\d+)\)", line)]
    assert waits == [2] * rounds  # of three iterations in flight the oldest: its two loads


def test_the_loop_asks_once_whether_there_is_more():
    """Of two stages the next is 1 - this one, and ``k < K`` says that an iteration exists: nothing is chosen in the loop."""
    _, _, kernel = product(96, num_stages=2)
    loop = loop_of(kernel.asm["amdgcn"])
    assert not [line for line in loop if line.startswith(("s_cselect", "s_cmp_eq"))] and sum(line.startswith("s_cmp") for line in loop) == 1


@pytest.mark.parametrize("dtype, k_block", [(np.float16, 64), (np.float32, 32)])
def test_matmul_example(dtype, k_block):
    x, w = operands(136, 128, dtype)
    b = np.zeros(128, dtype)
    y = matmul.matmul(x, w, b, block=(64, 64, k_block), num_stages=2)
    assert np.abs(y - matmul.reference(x, w, b)).max() < 2e-3 * np.abs(matmul.reference(x, w, b)).max()


def test_attention_example():
    q, k, v = (np.random.default_rng(i).standard_normal((1, 144, 64)).astype(np.float16) for i in range(3))
    out = attention.attention(q, k, v, causal=True)
    assert np.abs(out - attention.reference(q, k, v, causal=True)).max() < 5e-3


# ------------------------------------------------------------------------------------------------- what stays as it was
def test_gathered_rows_are_prefetched_in_registers():
    x, w = operands(64)
    rows = np.random.default_rng(1).permutation(64).astype(np.int32)
    y = np.full((64, 64), np.nan, np.float32)
    kernel = gathered_kernel[(1,)](x, rows, w, y, 64, 64, 64, 64, 32)
    expected = x[rows].astype(np.float64) @ w.astype(np.float64)
    assert np.abs(y - expected).max() < 1e-3 * np.abs(expected).max()
    assert kernel.metadata.variants[0]["options"] == {"async_copy": False} and " lds" not in kernel.asm["amdgcn"]


@pytest.mark.parametrize("options", [{"async_copy": False}, {"buffer_ops": False}, {"num_stages": 1}])
def test_options_that_say_no(options):
    y, expected, kernel = product(96, **options)
    assert " lds" not in kernel.asm["amdgcn"] and np.abs(y - expected).max() < 1e-3 * np.abs(expected).max()


def test_operands_of_rows_that_are_not_aligned_are_prefetched_in_registers():
    y, expected, kernel = product(35)
    assert np.abs(y - expected).max() < 1e-3 * np.abs(expected).max()
    assert sum(line.endswith(" lds") for line in loop_of(kernel.asm["amdgcn"])) <= 1  # w's rows are


# ------------------------------------------------------------------------------------------------------- mutations
def test_a_wait_for_too_few_loads_is_caught(monkeypatch, no_cache):
    monkeypatch.setattr(lower_buffer_ops, "_fewest_in_a_group", lambda root, size: 4)
    with pytest.raises(SimulationError):
        product(224, num_stages=3, waves_per_eu=1)


def test_every_barrier_of_both_rounds_counts():
    """Of two buffers the loop's text is two rounds, each for a buffer of its own (``ttg.rounds``)."""
    _, _, kernel = product(208, num_stages=2)
    text = kernel.asm["amdgcn"]
    assert "ttg.rounds = 2" in kernel.asm["ttgir"]
    x, w = operands(208)
    rounds = [b for b in re.split(r"^(?=\.LBB\d+_\d+:)", text, flags=re.M) if "v_mfma" in b]
    assert [b.count("\ts_barrier") for b in rounds] == [1, 1]
    for part in rounds:
        with pytest.raises(LdsRace):
            simulate(text.replace(part, part.replace("\ts_barrier", "\ts_nop 0")), (1,), [x, w, np.zeros((64, 64), np.float32), 208, 208, 64], num_warps=4,
                     shared=kernel.metadata.shared)


def test_without_marks_llvm_waits_for_all_loads(monkeypatch, no_cache):
    monkeypatch.setattr(async_marks, "mark_async_copies", lambda text: text)
    y, expected, kernel = product(96, num_stages=3, waves_per_eu=2)
    assert np.abs(y - expected).max() < 1e-3 * np.abs(expected).max()
    assert 0 in [int(n) for line in loop_of(kernel.asm["amdgcn"]) for n in re.findall(r"vmcnt\((\d+)\)", line)]


def test_lds_addresses_that_are_not_lane_after_lane_are_a_compiler_error(monkeypatch, no_cache):
    from tilewright.targets.amd.passes import convert_to_buffer_ops

    original = convert_to_buffer_ops.run_copies

    def wrong(module, ctx):
        original(module, ctx)
        text = str(module)
        assert "amdg.buffer_load_to_local" in text
        monkeypatch.setattr(lower_buffer_ops, "COPY_BYTES", {"gfx950": 8})

    monkeypatch.setattr(convert_to_buffer_ops, "run_copies", wrong)
    with pytest.raises(TilewrightError, match="copy to LDS"):
        product(64, waves_per_eu=3)


# ------------------------------------------------------------------------------------------------ gfx942: four bytes a lane
@pytest.fixture
def gfx942(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx942:sim")


def lds_loads(kernel):
    return [line for line in loop_of(kernel.asm["amdgcn"]) if line.startswith("buffer_load_dword ") and line.endswith(" lds")]


def test_gfx942_loads_dwords_to_lds_where_asked(gfx942, monkeypatch):
    for k, stages in ((16, 3), (96, 2), (208, 3)):
        y, expected, kernel = product(k, num_stages=stages, async_copy=True)
        rounds = 3 if stages == 3 else 1  # of the block that loop_of takes
        assert len(lds_loads(kernel)) == rounds * (2 * 64 * 32 * 2 // (4 * 64 * 4)) and "ds_write" not in "".join(loop_of(kernel.asm["amdgcn"]))
        assert np.abs(y - expected).max() < 1e-3 * np.abs(expected).max()
    assert not lds_loads(product(96, num_stages=3)[2])  # unasked: four times the instructions
    monkeypatch.setenv("TRITON_HIP_USE_ASYNC_COPY", "1")
    assert lds_loads(product(96, num_stages=3, waves_per_eu=4)[2])


def test_gfx942_waits_for_the_oldest_group_alone(gfx942, monkeypatch, no_cache):
    _, _, kernel = product(96, num_stages=3, async_copy=True)
    assert [int(n) for line in loop_of(kernel.asm["amdgcn"]) for n in re.findall(r"vmcnt\((\d+)\)", line)] == [8] * 3
    monkeypatch.setattr(lower_buffer_ops, "_fewest_in_a_group", lambda root, size: 16)
    with pytest.raises(SimulationError):
        product(224, num_stages=3, waves_per_eu=1, async_copy=True)


def test_gfx942_other_elements(gfx942):
    for dtype, block_k in ((np.float32, 32), (np.int8, 64)):
        x, w = operands(96, 64, np.float32) if dtype == np.float32 else (np.arange(64 * 96, dtype=np.int8).reshape(64, 96), np.ones((96, 64), np.int8))
        y = np.full((64, 64), np.nan, np.float32) if dtype == np.float32 else np.zeros((64, 64), np.int32)
        kernel = (product_kernel if dtype == np.float32 else whole_kernel)[(1,)](x, w, y, 96, 96, 64, 64, block_k, num_stages=2, async_copy=True)
        assert lds_loads(kernel)
        assert np.abs(y - x.astype(np.float64) @ w.astype(np.float64)).max() < 1e-3
