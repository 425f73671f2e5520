"""The launcher's native call is the launch that the launcher makes."""

import ctypes
import random
import struct

import numpy as np
import pytest
from hip_stand_in import HipStandIn
from native_calls import perform, some_arguments

import tilewright as triton
import tilewright.language as tl
from tilewright.dialects.errors import ArgumentError
from tilewright.runtime import launch_target, native_machine
from tilewright.runtime.driver import _drivers, set_driver
from tilewright.targets import kernel_arguments, registry
from tilewright.targets.amd.driver import AmdDriver, HipError
from tilewright.targets.protocol import NeedsVariant

META = {"name": "k", "num_warps": 4, "warp_size": 64, "shared": 4096, "registers": 40, "spills": 3, "arch": "gfx942"}


class NativeHip(HipStandIn):
    """hipModuleLaunchKernel as a C function, as the runtime's own is called."""

    def __init__(self):
        super().__init__(("gfx942", "gfx942"))
        self.code[b"ELF"] = "gfx942", None
        p, i = ctypes.c_void_p, ctypes.c_uint32

        def called(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra):
            return self.hipModuleLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra)[0]

        self.native_launch = ctypes.CFUNCTYPE(ctypes.c_int, p, *[i] * 7, p, p, p)(called)


def made(signature, **metadata):
    driver = AmdDriver(hip := NativeHip())
    metadata = {**META, **metadata}
    launch = driver.make_launcher(signature, metadata)
    return hip, launch, launch.native, driver.load({"hsaco": b"ELF"}, metadata, 0)


def test_arguments_of_every_type():
    rng = random.Random(0)
    for _ in range(30):
        signature, _, args = some_arguments(rng)
        hip, launch, call, handle = made(signature)
        grid = (rng.randint(1, 1 << 23), 7, 8)
        launch(*grid, 0x77, handle, args)
        assert perform(call, grid, 0x77, handle, args) == 0 and hip.launches[0] == hip.launches[1]
        assert hip.launches[0].grid == grid and len(hip.launches[0].buffer) == struct.calcsize(kernel_arguments.layout(signature)[0])
        assert perform(call, (1 << 24, 1, 1), 0, handle, args) is None


def test_guards_are_asked_for():
    host = {"expressions": [["program_id", 0], ["arg", 0], ["mul", 0, 1]], "guards": [{"kind": "range", "expr": 2, "min": 0, "max": 99, "why": "offsets must fit"}]}
    hip, launch, call, handle = made(["i32", "*fp32"], host=host)
    assert perform(call, (10, 1, 1), 0, handle, (11, 5)) is None
    launch(10, 1, 1, 0, handle, (11, 5))
    assert perform(call, (10, 1, 1), 0, handle, (11, 99)) == 0  # the array does not matter
    with pytest.raises(NeedsVariant):
        launch(11, 1, 1, 0, handle, (11, 5))
    assert perform(call, (11, 1, 1), 0, handle, (11, 5)) is None and len(hip.launches) == 2
    assert call.planned.arguments == (0,) and call.planned.by_grid


def test_failures_mean_what_they_mean_to_the_launcher():
    hip, launch, call, handle = made(["i32"])
    hip.last_error = 400
    hip.hipSetDevice(1)
    assert call.failed(handle, (1, 1, 1), 400) is None and hip.last_error == 0  # to be tried again, on the kernel's device
    hip.hipSetDevice(0)
    with pytest.raises(HipError, match="hipModuleLaunchKernel failed with 719: unspecified launch failure"):
        call.failed(handle, (1, 1, 1), 719)
    with pytest.raises(ArgumentError, match="the grid is"):
        call.failed(handle, (1, 1, 1 << 20), 1)


def test_kernels_that_report_are_launched_by_python():
    assert getattr(AmdDriver(NativeHip()).make_launcher(["i32"], {**META, "reports": []}), "native", None) is None


@triton.jit
def scaled_sums(x, y, stride, n, scale, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(y + row, tl.sum(tl.load(x + row * stride + i, mask=i < n, other=0.0), 0) * scale)


@pytest.mark.skipif(not native_machine.usable(), reason="this Python or system has no machine code of its own")
def test_a_kernel_launched_by_machine_code(monkeypatch):
    torch = pytest.importorskip("torch")
    hip, selection, saved = NativeHip(), registry.parse("amd:gfx942"), dict(_drivers)
    monkeypatch.setenv("TILEWRIGHT_TARGET", "amd:gfx942")
    monkeypatch.setattr(launch_target, "check_devices", lambda *args: None)  # arrays in host memory: the stand-in's is the host's
    try:
        set_driver(selection, AmdDriver(hip))
        rng, kernel = np.random.default_rng(0), triton.JITFunction(scaled_sums.fn)

        def launch(n, scale, rows):
            x, y = torch.from_numpy(rng.standard_normal((rows, n), np.float32)), torch.full((rows,), float("nan"))
            hip.memory[:] = [(t.data_ptr(), t.data_ptr() + 4 * t.numel()) for t in (x, y)]
            if not hip.modules:
                compiled = kernel.warmup(x, y, n, n, scale, BLOCK=64, grid=(rows,))
                hip.code[compiled.asm["hsaco"]] = "gfx942", compiled.asm["amdgcn"]
            kernel[(rows,)](x, y, n, n, scale, BLOCK=64)
            assert np.allclose(y.numpy(), x.double().sum(1).numpy() * scale, atol=1e-4)

        for _ in range(2):
            for n in (40, 56):  # guards of the sizes are checked, and kept
                launch(n, 0.5, 2)
        monkeypatch.setattr(kernel, "_warm", None)  # from now on machine code alone
        for n, scale, rows in ((40, 2.5, 2), (56, -1.0, 2), (40, 1e-3, 2)):
            launch(n, scale, rows)
        assert len(hip.launches) == 7
    finally:
        _drivers.clear()
        _drivers.update(saved)
