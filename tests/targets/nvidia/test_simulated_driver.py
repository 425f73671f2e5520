"""Launches of Hopper kernels without a device: tensor maps, guards and persistent grids, from source to numbers."""

import threading

import pytest
import torch

import tilewright
import tilewright.language as tl
from tilewright.targets.nvidia.simulated_driver import NvidiaSimulatedDriver
from tilewright.targets.protocol import NeedsVariant


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a:sim")


@tilewright.jit
def matmul(a, b, c, M, N, K, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + m[:, None] * sa + (rk[None, :] + k), mask=(m[:, None] < M) & (rk[None, :] + k < K), other=0.0)
        y = tl.load(b + (rk[:, None] + k) * sb + n[None, :], mask=(rk[:, None] + k < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * sc + n[None, :], acc.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


def launch(m, n, k, offset=0):
    """(kernel, C of the simulator, C). ``offset``: elements by which A begins behind an aligned address."""
    torch.manual_seed(0)
    a = torch.randn(m * k + 8, dtype=torch.float16)[offset:offset + m * k].view(m, k)
    b, c = torch.randn(k, n, dtype=torch.float16), torch.full((m, n), float("nan"), dtype=torch.float16)
    grid = (tilewright.cdiv(m, 64), tilewright.cdiv(n, 64))
    kernel = matmul[grid](a, b, c, m, n, k, k, n, n, 64, 64, 64, num_warps=4)
    return kernel, c.float(), (a.float() @ b.float()).half().float()


def test_a_persistent_kernel_runs_all_programs_of_its_few_blocks():
    # 7 programs in 3 blocks; the last tiles reach out of bounds along each dim
    kernel, got, want = launch(7 * 64 - 20, 40, 136)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=2e-2)
    text = kernel.asm["ttgir"]
    assert kernel.metadata.persistent and kernel.metadata.total_warps == 8 and len(kernel.metadata.host["descriptors"]) >= 2
    assert "ttng.warp_specialize" in text and "ttng.async_tma_copy_global_to_local" in text and "ttng.warp_group_dot" in text


def test_a_base_that_no_tensor_map_can_have():
    kernel, got, want = launch(64, 64, 64, offset=1)
    torch.testing.assert_close(got, want, rtol=1e-3, atol=2e-2)
    assert "ttng.async_tma_copy_global_to_local" not in kernel.asm["ttgir"]


def test_a_guard_that_fails_asks_for_the_version_without_tensor_maps():
    guards = [{"kind": "aligned", "expr": 0, "to": 16, "why": "the copy engine reads 16 bytes at a time"}]
    run = NvidiaSimulatedDriver("sm_90a").make_launcher(["*fp16"], {"host": {"expressions": [["arg", 0]], "guards": guards, "descriptors": []}})
    with pytest.raises(NeedsVariant) as caught:
        run(1, 1, 1, 0, None, [1 << 20 | 8])
    assert caught.value.options == {"tma": False} and "16 bytes at a time" in caught.value.reasons[0]


@tilewright.jit
def sum_of_warps(x, o, R, N: tl.constexpr):
    i = tl.arange(0, N)
    for r in range(R):
        tl.store(o + r, tl.sum(tl.load(x + r * N + i), 0))


def test_threads_take_turns():
    """An executor has one machine: launches of several threads ran through each other's shared memory and barriers."""
    x = torch.arange(4 * 20 * 256, dtype=torch.int32).view(4, 20, 256)
    out, failed = torch.zeros((4, 20), dtype=torch.int32), []

    def work(i):
        try:
            sum_of_warps[(1,)](x[i], out[i], 20, 256, num_warps=4)
        except Exception as error:
            failed.append(error)

    work(0)  # loads the kernel, so that the others share it
    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed and torch.equal(out, x.sum(2, dtype=torch.int32))
