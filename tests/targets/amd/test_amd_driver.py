"""Launching without a device: the argument buffer against the code object's own metadata, and the calls against a stand-in of the HIP runtime
(hip_stand_in.py) that executes launches in the instruction-level simulator; its signatures are hip-python's, and hip-python itself runs on it."""

from __future__ import annotations

import importlib.util
import inspect
import os
import struct
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from hip_stand_in import TEXTS, HipStandIn

import tilewright as triton
import tilewright.language as tl
from tilewright.dialects.errors import ArgumentError, DriverNotFoundError, OutOfResources
from tilewright.runtime.driver import _drivers, set_driver
from tilewright.runtime.errors import DeviceMismatchError
from tilewright.targets import registry
from tilewright.targets.amd.driver import AmdDriver, HipError, _torch_runtime, pack_format
from tilewright.targets.amd.emit import emit_amdgcn, kernel_arguments
from tilewright.targets.amd.launcher import loaded_runtimes
from tilewright.targets.protocol import NeedsVariant

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


META = {"name": "k", "num_warps": 4, "warp_size": 64, "shared": 4096, "registers": 40, "spills": 3, "arch": "gfx942"}


def made(*archs: str, **given) -> tuple[HipStandIn, AmdDriver]:
    """A stand-in that only records launches of the code object b"ELF", and the driver on it."""
    hip = HipStandIn(archs or ("gfx942", "gfx942"), **given)
    hip.code[b"ELF"] = "gfx942", None
    return hip, AmdDriver(hip)


def test_launch_passes_grid_block_lds_stream_and_arguments():
    hip, driver = made()
    handle = driver.load({"hsaco": b"ELF"}, META, 0)
    assert (handle.n_regs, handle.n_spills, handle.device, handle.image) == (40, 3, 0, b"ELF")
    launch = driver.make_launcher(["*fp16", "i32", "fp32", "*fp16", "i1", "fp16"], META)
    tensor = SimpleNamespace(data_ptr=lambda: 0x7F00_1234_5600)
    array = SimpleNamespace(__cuda_array_interface__={"data": (77, False)})
    launch(3, 2, 1, 77, handle, (1 << 47, -5, 2.5, 16, True, 0.5))
    launch(1, 1, 1, 0, handle, (tensor, 7, 2, None, 0, 1))
    launch(1, 1, 1, np.int64(5), handle, (array, 7, 2, 0, 1, -2.0))
    first = hip.launches[0]
    assert (first.kernel, first.grid, first.block, first.shared, first.stream, first.device) == ("k", (3, 2, 1), (256, 1, 1), 4096, 77, 0)
    assert [struct.unpack("=QifQ?xe", launched.buffer) for launched in hip.launches] == [
        (1 << 47, -5, 2.5, 16, True, 0.5), (0x7F00_1234_5600, 7, 2.0, 0, False, 1.0), (77, 7, 2.0, 0, True, -2.0)]
    driver.unload(handle)
    assert not hip.modules


@pytest.mark.parametrize("args, text", [
    ((1, 1 << 32, 0.0), "argument 4294967296 does not fit a kernel parameter of type i32"), ((1,), "takes 3 arguments, 1 were given"),
    (([1.0], 1, 0.0), "type list does not live on an AMD GPU"), ((np.zeros(3), 1, 0.0), "type ndarray does not live on an AMD GPU"),
    ((1, 1, 1e39), "argument 1e\\+39 does not fit a kernel parameter of type fp32"), ((1 << 64, 1, 0.0), "does not fit a kernel parameter of type \\*fp32")])
def test_arguments_that_do_not_fit_are_not_launched(args, text):
    hip, driver = made()
    launch = driver.make_launcher(["*fp32", "i32", "fp32"], META)
    with pytest.raises(ArgumentError, match=text):
        launch(1, 1, 1, 0, driver.load({"hsaco": b"ELF"}, META, 0), args)
    assert not hip.launches
    with pytest.raises(ArgumentError, match="'bf16' cannot be passed"):
        driver.make_launcher(["bf16"], META)


@pytest.mark.parametrize("grid", [(1 << 24, 1, 1), (0, 1, 1), (1, 1 << 32, 1)])
def test_grids_that_no_device_takes_are_refused(grid):
    hip, driver = made()
    with pytest.raises(ArgumentError, match=r"fewer than 2³² threads \(16777215 programs of 256\)"):
        driver.make_launcher([], META)(*grid, 0, driver.load({"hsaco": b"ELF"}, META, 0), ())
    assert not hip.launches


# ------------------------------------------------------------------------------------------------------- executed launches
@triton.jit
def row_sums(x, y, stride, n, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + row * stride + i, mask=i < n, other=0.0), 0)
    tl.store(y + row, total)


class Tensor:
    """An array that says that it lies on a GPU; the stand-in's memory is the host's."""

    def __init__(self, hip: HipStandIn, values: np.ndarray, index: int = 0):
        self.values, self.dtype, self.device = values, values.dtype, SimpleNamespace(type="cuda", index=index)
        hip.memory.append((values.ctypes.data, values.ctypes.data + values.nbytes))

    def data_ptr(self) -> int:
        return self.values.ctypes.data


@pytest.fixture
def served(monkeypatch):
    """arch → the stand-in that launches of amd:ARCH go to."""
    saved = dict(_drivers)

    def serve(arch: str) -> HipStandIn:
        hip = HipStandIn((arch, arch))
        selection = registry.parse(f"amd:{arch}")
        monkeypatch.setenv("TILEWRIGHT_TARGET", str(selection))
        set_driver(selection, AmdDriver(hip))
        return hip

    yield serve
    _drivers.clear()
    _drivers.update(saved)


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_kernel_runs_from_the_code_object_to_the_result(served, arch):
    hip = served(arch)
    rng = np.random.default_rng(0)
    kernel = triton.JITFunction(row_sums.fn)
    for n in (64, 1000, 333):
        x, y = Tensor(hip, rng.standard_normal((3, n)).astype(np.float32)), Tensor(hip, np.full(3, np.nan, np.float32))
        compiled = kernel.warmup(x, y, n, n, BLOCK=1024, grid=(3,))
        hip.code[compiled.asm["hsaco"]] = arch, compiled.asm["amdgcn"]
        kernel[(3,)](x, y, n, n, BLOCK=1024)
        assert np.allclose(y.values, x.values.astype(float).sum(1), atol=1e-4)
        assert hip.launches[-1].shared == compiled.metadata.shared > 0
    assert len(hip.launches) == 3


def test_each_device_gets_its_own_module_and_its_threads_are_left_as_they_were(served):
    hip = served("gfx942")
    kernel = triton.JITFunction(row_sums.fn)
    arrays = [(Tensor(hip, np.ones((1, 64), np.float32), index), Tensor(hip, np.zeros(1, np.float32), index)) for index in (0, 1)]
    compiled = kernel.warmup(*arrays[0], 64, 64, BLOCK=64, grid=(1,))
    hip.code[compiled.asm["hsaco"]] = "gfx942", compiled.asm["amdgcn"]
    for device in (0, 1, 0, 1):
        hip.hipSetDevice(device)
        x, y = arrays[device]
        y.values[:] = np.nan
        kernel[(1,)](x, y, 64, 64, BLOCK=64)
        assert y.values[0] == 64 and hip.launches[-1].device == device == hip.device
        count = len(hip.launches)
        for wrong in (arrays[1 - device], (x, arrays[1 - device][1]), (arrays[1 - device][0], y)):
            with pytest.raises(DeviceMismatchError):
                kernel[(1,)](*wrong, 64, 64, BLOCK=64)
        assert len(hip.launches) == count
    assert len(hip.modules) == 2 and {device for device, _ in hip.modules.values()} == {0, 1}


def test_a_launch_on_another_threads_device_goes_to_the_kernels():
    hip, driver = made()
    handle = driver.load({"hsaco": b"ELF"}, META, 1)  # loading for device 1 leaves the thread at 0
    assert hip.device == 0 and hip.modules[handle.module][0] == 1
    for stream in (0, 0x55):
        driver.make_launcher(["i32"], META)(1, 1, 1, stream, handle, (3,))
        assert hip.launches[-1].device == 1 and hip.device == 0 and hip.last_error == 0 and hip.launches[-1].stream == stream


def test_threads_do_not_mix_their_arguments():
    hip, driver = made()
    handle, launch = driver.load({"hsaco": b"ELF"}, META, 0), driver.make_launcher(["i64", "i64"], META)

    def work(i):
        for j in range(200):
            launch(i + 1, 1, 1, i, handle, (i, -i - (j << 8)))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    seen = [(x.grid[0] - 1, x.stream, *struct.unpack("=qq", x.buffer)) for x in hip.launches]
    assert len(seen) == 800 and all(g == s == i and -second & 0xFF == i for g, s, i, second in seen)


def test_a_launch_within_a_launch_leaves_its_arguments_alone():
    """What another thread may do while the runtime has the interpreter's lock released."""
    hip, driver = made()
    handle, launch = driver.load({"hsaco": b"ELF"}, META, 0), driver.make_launcher(["i64"], META)
    usual, nested = hip.hipModuleLaunchKernel, [2, 3]

    def in_between(*args):
        if nested:
            launch(nested[0], 1, 1, nested[0], handle, (nested.pop(0),))
        return usual(*args)

    hip.hipModuleLaunchKernel = in_between
    launch(1, 1, 1, 1, handle, (1,))
    assert [(x.grid[0], x.stream, *struct.unpack("=q", x.buffer)) for x in hip.launches] == [(i, i, i) for i in (3, 2, 1)]


def test_guards_on_the_grid_are_asked_for_every_grid():
    hip, driver = made()
    host = {"expressions": [["program_id", 0], ["arg", 0], ["mul", 0, 1]], "guards": [{"kind": "range", "expr": 2, "min": 0, "max": 99, "why": "offsets must fit"}]}
    handle, launch = driver.load({"hsaco": b"ELF"}, META, 0), driver.make_launcher(["i32"], {**META, "host": host})
    for gx, n, fits in ((10, 11, True), (10, 11, True), (11, 11, False), (11, 9, True), (10, 12, False), (11, 11, False), (10, 11, True)):
        if fits:
            launch(gx, 1, 1, 0, handle, (n,))
        else:
            with pytest.raises(NeedsVariant):
                launch(gx, 1, 1, 0, handle, (n,))
    assert len(hip.launches) == 4


def test_guards_are_checked_before_a_launch():
    hip, driver = made()
    host = {"expressions": [["arg", 1]], "guards": [{"kind": "range", "expr": 0, "min": 0, "max": 99, "why": "offsets must fit 32 bits"}]}
    handle = driver.load({"hsaco": b"ELF"}, META, 0)
    launch = driver.make_launcher(["*fp32", "i32"], {**META, "host": host})
    launch(1, 1, 1, 0, handle, (1, 99))
    with pytest.raises(NeedsVariant) as asked:
        launch(1, 1, 1, 0, handle, (1, 100))
    assert len(hip.launches) == 1 and "offsets must fit 32 bits" in asked.value.reasons[0]


# ------------------------------------------------------------------------------------------------------- devices, errors
def test_devices_streams_events_and_properties():
    hip, driver = made("gfx942", "gfx1100")
    assert driver.current_device() == 0 and driver.current_stream(0) == 0
    hip.hipSetDevice(1)
    assert driver.current_device() == 1
    timer = driver.event_timer()
    timer.start()
    timer.stop()
    assert timer.elapsed_ms() == 1.0 and len(hip.events) == 2
    del timer
    assert not hip.events
    driver.synchronize()
    assert hip.calls[-1] == "hipDeviceSynchronize"
    assert driver.get_device_properties(1) == {"max_shared_mem": 65536, "max_num_regs": 65536, "multiprocessor_count": 304, "warpSize": 64, "sm_clock_rate": 2100000,
                                               "mem_clock_rate": 1300000, "mem_bus_width": 8192, "arch": "gfx1100"}


def test_torchs_device_and_stream_are_used_where_it_is_torch_for_rocm(monkeypatch):
    hip, driver = made()
    functions = SimpleNamespace(_cuda_getDevice=lambda: 1, _cuda_getCurrentRawStream=lambda device: 100 + device)
    cuda = SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=None), _C=functions))
    assert driver.current_device() == 0 and driver.current_stream(1) == 0  # a torch for another vendor's GPUs
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip="7.0"), _C=functions))
    assert driver.current_device is functions._cuda_getDevice and driver.current_stream is functions._cuda_getCurrentRawStream
    assert driver._current_device() == 1 and driver._current_stream(1) == 101


def test_what_the_device_does_not_have_is_refused():
    hip, driver = made()
    with pytest.raises(OutOfResources, match="shared memory: 70000 needed, 65536 available"):
        driver.load({"hsaco": b"ELF"}, {**META, "shared": 70000}, 0)
    with pytest.raises(OutOfResources, match="threads: 256 needed, 128 available.*num_warps"):
        made(threads=128)[1].load({"hsaco": b"ELF"}, META, 0)
    hip.code[b"other"] = "gfx1100", None
    with pytest.raises(HipError, match="hipModuleLoadData failed with 209: no kernel image is available.* is for gfx1100 and device 0 is gfx942"):
        driver.load({"hsaco": b"other"}, {**META, "arch": "gfx1100"}, 0)
    with pytest.raises(DriverNotFoundError, match=r"tilewright\[amd\]"):
        driver.load({}, META, 0)


@pytest.mark.parametrize("status, grid, error, message", [
    (701, (1, 1, 1), OutOfResources, "registers or scratch memory: 10240 needed, 65536 available"), (9, (1, 70000, 1), ArgumentError, "the grid is"),
    (0, (1, 1, 65537), ArgumentError, "at most 65536 programs along y and z"), (1, (1, 65536, 1), HipError, "failed with 1: invalid argument"),
    (719, (1, 1, 1), HipError, "hipModuleLaunchKernel failed with 719: unspecified launch failure")])
def test_failed_launches(status, grid, error, message):
    hip, driver = made()
    handle = driver.load({"hsaco": b"ELF"}, META, 0)
    hip.fail["hipModuleLaunchKernel"] = [status]
    launch = driver.make_launcher(["i32"], META)
    with pytest.raises(error, match=message):
        launch(*grid, 0, handle, (3,))
    assert hip.last_error == 0  # nobody else takes it for theirs
    launch(1, 1, 1, 0, handle, (3,))  # the lock was given back
    assert len(hip.launches) == 1


def test_missing_runtime_or_device():
    with pytest.raises(DriverNotFoundError, match="finds no device.*HIP_VISIBLE_DEVICES"):
        AmdDriver(SimpleNamespace(hipGetDeviceCount=lambda: (0, 0)))
    hip = HipStandIn()
    hip.fail["hipGetDeviceCount"] = [100]
    with pytest.raises(DriverNotFoundError, match="cannot be used.*hipGetDeviceCount failed with 100"):
        AmdDriver(hip)

    def absent():
        raise RuntimeError("failed to dlopen")

    with pytest.raises(DriverNotFoundError, match="cannot be loaded .failed to dlopen.; install ROCm"):
        AmdDriver(SimpleNamespace(hipGetDeviceCount=absent))
    hip, driver = made()
    hip.fail["hipDeviceSynchronize"] = [719]
    with pytest.raises(HipError, match="hipDeviceSynchronize failed with 719") as failed:
        driver.synchronize()
    assert failed.value.status == 719


def test_two_runtimes_in_a_process_are_found(tmp_path, monkeypatch):
    line = "7f0000000000-7f0000001000 r-xp 00000000 08:01 123 {}\n"
    paths = [str(tmp_path / "torch" / "lib" / "libamdhip64.so"), "/opt/rocm/lib/libamdhip64.so.7.0.0", str(tmp_path / "a folder" / "libamdhip64.so")]
    maps = tmp_path / "maps"
    maps.write_text("".join(line.format(p) for p in ("[heap]", paths[0], paths[0], "/usr/lib/libc.so.6", "/x/libamdhip64_notes.txt/other")) + "7f-80 rw-p 0 00:00 0\n")
    assert loaded_runtimes(str(maps)) == [os.path.realpath(paths[0])] and loaded_runtimes(str(tmp_path / "none")) == []
    assert _torch_runtime([paths[0]]) == str(tmp_path / "torch") and _torch_runtime(paths) is None and _torch_runtime([paths[2]]) is None
    maps.write_text("".join(line.format(p) for p in paths))
    assert len(loaded_runtimes(str(maps))) == 3
    monkeypatch.setattr("tilewright.targets.amd.driver.loaded_runtimes", lambda: paths[:2])
    with pytest.raises(DriverNotFoundError, match="2 HIP runtimes are in this process.*torch/lib.*which do not share memory"):
        made()


# ------------------------------------------------------------------------------------------------------- hip-python itself
def test_the_stand_in_has_hip_pythons_signatures():
    """Names, parameters and constants are hip-python's: by its docstrings, and by its signatures where the build gives them."""
    hip = pytest.importorskip("hip").hip
    names = [n for n, _ in inspect.getmembers(HipStandIn, inspect.isfunction) if n.startswith("hip")]
    assert len(names) >= 15
    for name in names:
        theirs = getattr(hip, name)
        first_line = theirs.__doc__.splitlines()[0]
        listed = [p.split()[-1] for p in first_line[first_line.index("(") + 1 : first_line.rindex(")")].split(",") if p.strip()]
        ours = list(inspect.signature(getattr(HipStandIn, name)).parameters)[1:]
        assert listed == ours, first_line
        returned = inspect.getdoc(theirs).split("Returns:")[-1]
        assert "tuple" in returned and "hipError_t" in returned, f"{name} does not return a status"
    for ours, theirs in ((HipStandIn.hipDeviceAttribute_t, hip.hipDeviceAttribute_t), (HipStandIn.hipFunction_attribute, hip.hipFunction_attribute)):
        for name in vars(ours):
            assert name.startswith("_") or hasattr(theirs, name), name
    from tilewright.targets.amd import driver, launcher

    errors = {"_INVALID_VALUE": "hipErrorInvalidValue", "_OUT_OF_MEMORY": "hipErrorOutOfMemory", "_INVALID_CONFIGURATION": "hipErrorInvalidConfiguration",
              "_NO_BINARY_FOR_GPU": "hipErrorNoBinaryForGpu", "_LAUNCH_OUT_OF_RESOURCES": "hipErrorLaunchOutOfResources"}
    for name, theirs in errors.items():
        assert getattr(driver, name) == int(getattr(hip.hipError_t, theirs)), name
    assert all(hip.hipError_t(status) for status in TEXTS)
    for name in ("BUFFER_POINTER", "BUFFER_SIZE", "END"):
        value = getattr(hip, f"HIP_LAUNCH_PARAM_{name}")
        assert getattr(launcher, f"_PARAM_{name}") == int(value), name


def test_hip_python_runs_on_the_stand_in(tmp_path):
    """hip-python's own code between the driver and a library whose functions are the stand-in's, in a process of its own."""
    if importlib.util.find_spec("hip") is None or importlib.util.find_spec("ziglang") is None:
        pytest.skip("needs hip-python, and ziglang to build the library")
    script = os.path.join(os.path.dirname(__file__), "hip_python_run.py")
    done = subprocess.run([sys.executable, script, str(tmp_path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.startswith("ok "), done.stdout + done.stderr
