"""A matmul by pointers for sm_90a, compiled whole and launched over the stand-in driver: which version runs, and what is said of it."""

import ctypes

import numpy as np
import pytest
from test_planned_launch import TensorCuda

import tilewright as triton
import tilewright.language as tl
from tilewright.runtime import explain, launch_target
from tilewright.runtime.driver import _drivers
from tilewright.targets import registry
from tilewright.targets.nvidia import launcher
from tilewright.targets.nvidia.driver import NvidiaDriver
from tilewright.targets.nvidia.emit import ptxas
from tilewright.targets.nvidia.host_plan import Bounded


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        depth = k + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * stride_am + depth[None, :], mask=(rows[:, None] < M) & (depth[None, :] < K), other=0.0)
        b = tl.load(b_ptr + depth[:, None] * stride_bk + columns[None, :], mask=(depth[:, None] < K) & (columns[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * stride_cm + columns[None, :], acc.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


class CountingCuda(TensorCuda):
    """Records a launch's blocks and threads."""

    def __init__(self):
        super().__init__()
        address = ctypes.c_void_p
        self.native_launch = ctypes.CFUNCTYPE(ctypes.c_int, address, address, address, address)(self._launch)

    def cuModuleGetFunction(self, module, name):
        return 0, 77

    def _launch(self, config, function, table, extra):
        dims = (ctypes.c_uint32 * 6).from_address(config)
        self.launches.append((tuple(dims[:3]), dims[3]))
        return 0


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    if ptxas() is None:
        pytest.skip("there is no ptxas")
    for name in ("BULK_COPIES", "WARP_GROUP_DOTS", "EXPLAIN"):
        monkeypatch.setenv(f"TILEWRIGHT_{name}", "1")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a")
    monkeypatch.setattr(launch_target, "check_devices", lambda *args: None)  # arrays in host memory: nothing runs
    monkeypatch.setattr(launcher, "_maps", Bounded(16))
    monkeypatch.setattr(explain, "_told", set())
    stand_in = CountingCuda()
    selection = registry.select("nvidia:sm_90a")
    monkeypatch.setitem(_drivers, (id(selection.plugin), ""), (selection.plugin, NvidiaDriver(stand_in)))
    monkeypatch.setattr(matmul, "_entries", {})
    monkeypatch.setattr(matmul, "_kernels", {})
    return stand_in


def aligned(rows, columns):
    raw = np.zeros(rows * columns + 64, np.float16)
    return raw[-raw.ctypes.data % 64 // 2:][:rows * columns].reshape(rows, columns)


def test_guards_pick_the_version(cuda, capsys):
    a, b, c = aligned(256, 256), aligned(256, 256), aligned(256, 256)

    def launch(a=a, b=b, c=c, n=256, stride=256):
        # the strides' values differ in nothing that the code is specialised for
        return matmul[(2, 2)](a, b, c, 256, n, 256, stride, 256, 256, BM=64, BN=64, BK=64)

    usual = launch()
    assert usual.metadata.tma is True and len(usual.metadata.host["descriptors"]) >= 2 and "tl.load of a_ptr: tma" in usual.explain()
    encoded = len(cuda.encoded)
    assert encoded == len(usual.metadata.host["descriptors"]) and cuda.launches[-1][1] > 128  # a producer beside the consumers
    assert launch() is usual and len(cuda.encoded) == encoded
    told = capsys.readouterr().err
    assert "tilewright: matmul: line" in told and "launched with" not in told

    other = launch(c=a)  # the result is written over an operand
    assert other is not usual and other.metadata.tma is False and not (other.metadata._asdict().get("host") or {}).get("descriptors")
    assert "overlap" in other.reasons[0] or "one array's memory" in other.reasons[0]
    assert other.explain() == matmul.explain_last_launch() and "launched with tma=False because of tl.load of a_ptr: " in other.explain()
    assert "tilewright: matmul: launched with tma=False: tl.load of a_ptr: its memory must lie apart from that of c_ptr: " in capsys.readouterr().err
    assert launch(c=a) is other and launch() is usual and len(cuda.encoded) == encoded
    assert cuda.launches[-2] == ((2, 2, 1), 128)


def test_a_stride_that_copies_cannot_have(cuda):
    a, b, c = aligned(256, 256), aligned(256, 256), aligned(256, 256)
    kernel = matmul[(2, 2)](a, b, c, 256, 256, 256, 250, 256, 256, BM=64, BN=64, BK=64)
    assert kernel.metadata.tma is False and any("a stride is 500 bytes" in reason for reason in kernel.reasons)
