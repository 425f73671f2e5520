"""The driver over a stand-in for cuda.bindings.driver that records calls; probing; the packing of parameters."""

import struct
import types

import pytest
from launch_samples import META, SUCCESS, FakeCuda

from tilewright.dialects.errors import ArgumentError, DriverNotFoundError, OutOfResources
from tilewright.targets.nvidia import probe as probing
from tilewright.targets.nvidia.driver import CudaError, NvidiaDriver
from tilewright.targets.nvidia.launcher import parameter_layout
from tilewright.targets.protocol import Device


def test_parameters_lie_at_their_natural_alignment():
    layout, offsets = parameter_layout(["i8", "*fp32", "i1", "i16", "fp32", "fp64", "i32", "fp16"])
    assert offsets == [0, 8, 16, 18, 20, 24, 32, 36]
    assert struct.calcsize(layout) == 38
    with pytest.raises(ArgumentError, match="bf16"):
        parameter_layout(["bf16"])


def test_load_and_launch():
    cuda = FakeCuda(formats="QifQ")
    driver = NvidiaDriver(cuda)
    handle = driver.load({"cubin": b"\x7fELF", "ptx": "text"}, META, 0)
    assert (handle.function, handle.n_regs, handle.n_spills, cuda.image) == ("function k", 40, 6, b"\x7fELF")
    launch = driver.make_launcher(["*fp32", "i32", "fp32", "*bf16"], META)
    tensor = types.SimpleNamespace(data_ptr=lambda: 1 << 40)
    array = types.SimpleNamespace(__cuda_array_interface__={"data": (77, False)})
    launch(2, 3, 4, 99, handle, [1 << 47, -5, 1.5, 256])
    launch(1, 1, 1, 0, handle, [tensor, 7, 2, array])
    launch(1, 1, 1, 0, handle, [None, 7, 2, 0])
    assert cuda.launches[0] == ("function k", (2, 3, 4), (256, 1, 1), 100, 99, [1 << 47, -5, 1.5, 256])
    assert [c[5] for c in cuda.launches[1:]] == [[1 << 40, 7, 2.0, 77], [0, 7, 2.0, 0]]
    with pytest.raises(ArgumentError, match="argument 4294967296 does not fit a kernel parameter of type i32"):
        launch(1, 1, 1, 0, handle, [1, 1 << 32, 0.0, 1])
    with pytest.raises(ArgumentError, match="takes 4 arguments, 1 were given"):
        launch(1, 1, 1, 0, handle, [1])
    with pytest.raises(ArgumentError, match="type list does not live on an NVIDIA GPU"):
        launch(1, 1, 1, 0, handle, [[1.0], 1, 0.0, 1])


def test_ptx_is_loaded_without_a_cubin_and_nothing_is_an_error():
    driver = NvidiaDriver(cuda := FakeCuda())
    driver.load({"ptx": ".version 8.0", "cubin": None}, META, 0)
    assert cuda.image == b".version 8.0\0"
    with pytest.raises(DriverNotFoundError, match="neither cubin nor PTX"):
        driver.load({}, META, 0)


def test_large_shared_memory_is_asked_for_and_too_much_is_refused():
    driver = NvidiaDriver(cuda := FakeCuda())
    driver.load({"cubin": b"x"}, {**META, "shared": 100_000}, 0)
    assert ("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 100_000) in cuda.calls
    with pytest.raises(OutOfResources, match="shared memory: 300000 needed, 232448 available"):
        driver.load({"cubin": b"x"}, {**META, "shared": 300_000}, 0)
    with pytest.raises(OutOfResources, match="threads: 256 needed, 128 available.*num_warps"):
        NvidiaDriver(FakeCuda(threads=128)).load({"cubin": b"x"}, META, 0)


def test_another_threads_context_is_set_and_the_launch_repeated():
    driver = NvidiaDriver(cuda := FakeCuda(launch=(201, SUCCESS), formats="i"))
    handle = driver.load({"cubin": b"x"}, META, 0)
    cuda.calls.clear()
    driver.make_launcher(["i32"], META)(1, 1, 1, 0, handle, [3])
    assert cuda.calls == ["context0"] and len(cuda.launches) == 2


@pytest.mark.parametrize("status, grid, error, message", [
    (701, (1, 1, 1), OutOfResources, "registers: 10240 needed, 65536 available"),
    (1, (1, 70000, 1), ArgumentError, "the grid is"), (719, (1, 1, 1), CudaError, "cuLaunchKernel failed with 719: described")])
def test_failed_launches(status, grid, error, message):
    driver = NvidiaDriver(FakeCuda(launch=(status,), formats="i"))
    handle = driver.load({"cubin": b"x"}, META, 0)
    with pytest.raises(error, match=message):
        driver.make_launcher(["i32"], META)(*grid, 0, handle, [3])


def test_missing_driver_or_device():
    with pytest.raises(DriverNotFoundError, match="cannot be used"):
        NvidiaDriver(FakeCuda(init=100))
    with pytest.raises(DriverNotFoundError, match="finds no device"):
        NvidiaDriver(FakeCuda(devices=0))


def test_device_properties():
    properties = NvidiaDriver(FakeCuda()).get_device_properties(0)
    assert properties["arch"] == 90 and properties["max_shared_mem"] == 232448 and properties["multiprocessor_count"] == 132


def test_probe_reads_the_drivers_files(tmp_path):
    for i, model in enumerate(["NVIDIA H200", "Tesla V100-SXM2", "NVIDIA A100-SXM4-80GB"]):
        (tmp_path / f"000{i}").mkdir()
        (tmp_path / f"000{i}" / "information").write_text(f"Model: \t\t {model}\nIRQ: 1\n")
    found = probing._by_files(str(tmp_path))
    assert found == [Device(0, "NVIDIA H200", "sm_90a"), Device(2, "NVIDIA A100-SXM4-80GB", "sm_80")]
    assert probing._visible(found, "2") == [Device(0, "NVIDIA A100-SXM4-80GB", "sm_80")]
    assert probing._visible(found, "") == [] and probing._visible(found, "-1") == [] and probing._visible(found, None) == found
    assert probing._visible(found, "2,0")[1] == Device(1, "NVIDIA H200", "sm_90a")


def test_probe_never_raises(monkeypatch):
    def broken():
        raise OSError("half installed")
    monkeypatch.setattr(probing, "_by_nvml", broken)
    assert probing.probe() == []
