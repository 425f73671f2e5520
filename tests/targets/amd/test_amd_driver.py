"""Launching without a device: the argument buffer against the code object's own metadata, and the calls against a stand-in
whose signatures are hip-python's."""

from __future__ import annotations

import ctypes
import inspect
import struct

import numpy as np
import pytest

from tilewright.dialects.errors import ArgumentError, DriverNotFoundError
from tilewright.targets.amd.driver import AmdDriver, HipError, pack_format
from tilewright.targets.amd.emit import emit_amdgcn, kernel_arguments

LLVM_TYPES = {"i1": "i1", "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64",
              "fp32": "float", "fp64": "double", "*fp16": "ptr addrspace(1)", "*i64": "ptr addrspace(1)"}


def test_argument_buffer_is_laid_out_as_the_code_object_says():
    rng = np.random.default_rng()
    for _ in range(20):
        signature = [list(LLVM_TYPES)[i] for i in rng.integers(0, len(LLVM_TYPES), rng.integers(1, 12))]
        params = ", ".join(f"{LLVM_TYPES[t]} %a{i}" for i, t in enumerate(signature))
        text = emit_amdgcn(f"define amdgpu_kernel void @k({params}) {{\n  ret void\n}}", "gfx942")
        declared = kernel_arguments(text)
        assert len(declared) == len(signature), (signature, declared)
        layout = pack_format(signature)
        for i, argument in enumerate(declared):
            # only argument i is not zero: its bytes must lie where the metadata says, and no others be touched
            values = [0.0 if t.startswith("fp") else 0 for t in signature]
            values[i] = -1.5 if signature[i].startswith("fp") else 1
            packed = struct.pack(layout, *values)
            touched = np.flatnonzero(np.frombuffer(packed, np.uint8))
            assert touched.min() >= argument["offset"] and touched.max() < argument["offset"] + argument["size"], (signature, i)


class StandIn:
    """The small part of HIP that the driver uses; keeps what it was given."""

    def __init__(self, devices: int = 1):
        self.devices, self.calls, self.buffer = devices, [], b""

    def hipGetDeviceCount(self):
        return (0, self.devices)

    def hipGetDevice(self):
        return (0, 0)

    def hipModuleLoadData(self, image):
        return (0, ("module", image))

    def hipModuleGetFunction(self, module, kname):
        return (0, (module, kname))

    def hipModuleLaunchKernel(self, f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, stream, kernelParams, extra):
        self.calls.append((f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, stream, kernelParams))
        assert (extra[0], extra[2], extra[4]) == (1, 3 - 1, 3)  # BUFFER_POINTER, BUFFER_SIZE, END
        size = ctypes.cast(extra[3], ctypes.POINTER(ctypes.c_size_t))[0]
        self.buffer = ctypes.string_at(extra[1], size)
        return (0,)

    def hipDeviceSynchronize(self):
        return (719,)


class FakeTensor:
    def data_ptr(self):
        return 0x7F00_1234_5600


def test_launch_passes_grid_block_lds_and_arguments():
    hip = StandIn()
    driver = AmdDriver(hip)
    metadata = {"name": "k", "num_warps": 4, "warp_size": 64, "shared": 4096, "registers": 40, "spills": 0}
    handle = driver.load({"hsaco": b"ELF"}, metadata, 0)
    assert handle.function == (("module", b"ELF"), b"k") and handle.n_regs == 40
    launch = driver.make_launcher(["*fp16", "i32", "fp32", "*fp16"], metadata)
    launch(3, 2, 1, 77, handle, (FakeTensor(), -5, 2.5, None))
    assert hip.calls == [(handle.function, 3, 2, 1, 256, 1, 1, 4096, 77, None)]
    assert struct.unpack("=QifQ", hip.buffer) == (0x7F00_1234_5600, -5, 2.5, 0)


def test_the_stand_in_has_hip_pythons_signatures():
    """Parameter names and order in hip-python's docstrings are those of the stand-in."""
    hip = pytest.importorskip("hip").hip
    for name, fn in inspect.getmembers(StandIn, inspect.isfunction):
        if name.startswith("hip"):
            first_line = getattr(hip, name).__doc__.splitlines()[0]
            theirs = [p.split()[-1] for p in first_line[first_line.index("(") + 1 : first_line.rindex(")")].split(",") if p.strip()]
            assert theirs == list(inspect.signature(fn).parameters)[1:], first_line


def test_errors_name_what_to_do():
    with pytest.raises(DriverNotFoundError, match="no device"):
        AmdDriver(StandIn(devices=0))
    driver = AmdDriver(StandIn())
    with pytest.raises(HipError, match="hipDeviceSynchronize failed: 719"):
        driver.synchronize()
    with pytest.raises(DriverNotFoundError, match=r"tilewright\[amd\]"):
        driver.load({}, {"name": "k"}, 0)
    launch = driver.make_launcher(["*fp32"], {"name": "k", "num_warps": 1, "warp_size": 64})
    with pytest.raises(ArgumentError, match="does not live on an AMD GPU"):
        launch(1, 1, 1, 0, driver.load({"hsaco": b"x"}, {"name": "k"}, 0), (np.zeros(3),))
