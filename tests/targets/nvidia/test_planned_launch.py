"""Launches with tensor maps, of persistent kernels and with extra warps, over the stand-in for cuda.bindings.driver."""

import ctypes
import struct
import sys
import types

import pytest
from launch_samples import APART, GOOD, META, SIGNATURE, SUCCESS, FakeCuda, Names, matrix_host

from tilewright.dialects.errors import ArgumentError, OutOfResources
from tilewright.targets.nvidia import launcher
from tilewright.targets.nvidia.driver import CudaError, NvidiaDriver
from tilewright.targets.nvidia.host_plan import Bounded
from tilewright.targets.protocol import NeedsMemory, NeedsVariant


class TensorCuda(FakeCuda):
    """Encodes a tensor map as the text of its arguments."""

    CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion = Names(), Names(), Names()
    CUtensorMapFloatOOBfill, CUtensorMapInterleave = Names(), Names()
    cuuint64_t, cuuint32_t = staticmethod(lambda v: ("u64", v)), staticmethod(lambda v: ("u32", v))

    def __init__(self, encode=SUCCESS, **more):
        super().__init__(**more)
        self.encode_status, self.encoded = encode, []

    def cuTensorMapEncodeTiled(self, *args):
        self.encoded.append(args)
        self.image = ctypes.create_string_buffer(f"map {len(self.encoded)}".encode(), 128)
        return self.encode_status, self

    def getPtr(self):
        return ctypes.addressof(self.image)


@pytest.fixture(autouse=True)
def no_maps(monkeypatch):
    monkeypatch.setattr(launcher, "_maps", Bounded(16))


def made(cuda, **metadata):
    driver = NvidiaDriver(cuda)
    metadata = {**META, **metadata}
    return driver.make_launcher(SIGNATURE, metadata), driver.load({"cubin": b"x"}, metadata, 0)


def test_layout_of_the_parameters_that_follow_the_users():
    layout, offsets = launcher.parameter_layout(["*fp32", "i8"], numbers=3, maps=2)
    assert offsets == [0, 8, 12, 16, 20, 64, 192] and struct.calcsize(layout) == 320
    layout, offsets = launcher.parameter_layout(["*fp32"], maps=1)
    assert offsets == [0, 64] and struct.calcsize(layout) == 192


def test_tensor_maps_are_made_once_and_passed():
    cuda = TensorCuda(formats=["Q", "Q", "i", "i", "i", "128s"])
    launch, handle = made(cuda, host=matrix_host())
    with pytest.raises(NeedsMemory):
        launch(2, 1, 1, 9, handle, GOOD)
    assert cuda.launches == [] and cuda.encoded == []
    launch(2, 1, 1, 9, handle, GOOD, memory=APART)
    launch(2, 1, 1, 9, handle, GOOD)
    assert cuda.launches == [("function k", (2, 1, 1), (256, 1, 1), 100, 9, [*GOOD, b"map 1" + bytes(123)])] * 2
    assert cuda.encoded == [("CU_TENSOR_MAP_DATA_TYPE_FLOAT16", 2, 0x1000, [("u64", 64), ("u64", 128)], [("u64", 128)], [("u32", 64), ("u32", 128)],
                             [("u32", 1)] * 2, "CU_TENSOR_MAP_INTERLEAVE_NONE", "CU_TENSOR_MAP_SWIZZLE_128B", "CU_TENSOR_MAP_L2_PROMOTION_L2_128B",
                             "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE")]
    other = [0x1000, 0x9000, 64, 64, 64]  # another tensor, of which another map is made; then the first again
    launch(1, 1, 1, 9, handle, other, memory=APART)
    launch(2, 1, 1, 9, handle, GOOD)
    assert [call[5][5][:5] for call in cuda.launches[2:]] == [b"map 2", b"map 1"]
    launch(4, 1, 1, 9, handle, GOOD, memory=APART)  # the grid matters to the guards, not to the map
    assert len(cuda.encoded) == 2 and cuda.launches[-1][1] == (4, 1, 1)


def test_a_failing_guard_asks_for_the_version_without_and_is_remembered():
    cuda = TensorCuda(formats=["Q", "Q", "i", "i", "i", "128s"])
    launch, handle = made(cuda, host=matrix_host())
    for _ in range(2):
        with pytest.raises(NeedsVariant) as request:
            launch(1, 1, 1, 0, handle, [0x1000, 0x9000, 100, 64, 64])
        assert request.value.options == {"tma": False} and request.value.reasons == ("rows wrap: 100 is no multiple of 64",)
    assert cuda.launches == [] and cuda.encoded == []
    with pytest.raises(ArgumentError, match="does not fit a kernel parameter of type i32"):
        launch(1, 1, 1, 0, handle, [0x1000, 0x9000, 1 << 40, 64, 64])


def test_a_map_that_the_driver_refuses_is_a_reason():
    cuda = TensorCuda(formats=["Q", "Q", "i", "i", "i", "128s"], encode=1)
    launch, handle = made(cuda, host=matrix_host())
    with pytest.raises(NeedsVariant) as request:
        launch(1, 1, 1, 0, handle, GOOD, memory=APART)
    assert "cuTensorMapEncodeTiled failed with 1" in request.value.reasons[0]


def test_nan_padding_and_plain_rows():
    cuda = TensorCuda(formats=["Q", "Q", "i", "i", "i", "128s"])
    launch, handle = made(cuda, host=matrix_host(padding="nan", swizzle=0, l2=256))
    launch(1, 1, 1, 0, handle, GOOD, memory=APART)
    assert cuda.encoded[0][8:] == ("CU_TENSOR_MAP_SWIZZLE_NONE", "CU_TENSOR_MAP_L2_PROMOTION_L2_256B", "CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA")


def test_a_persistent_kernel_leaves_grids_that_it_cannot_count_to_the_other_version():
    launch, handle = made(cuda := TensorCuda(formats=["Q", "Q", "i", "i", "i", "i", "i", "i", "128s"]), host=matrix_host(),
                          persistent={"ctas_per_sm": 2}, total_warps=12)
    with pytest.raises(NeedsVariant, match="2147483648 programs"):
        launch(65536, 32768, 1, 5, handle, GOOD, memory=APART)
    for grid in ((1 << 31, 1, 1), (0, 1, 1), (1, 65536, 40000)):
        with pytest.raises(ArgumentError, match="the grid is"):
            launch(*grid, 5, handle, GOOD, memory=APART)
    assert cuda.launches == []


@pytest.mark.parametrize("grid, blocks", [((7, 3, 2), 42), ((100, 50, 1), 264), ((1, 1, 1), 1)])
def test_persistent_kernels_get_the_grid_and_a_block_a_place(grid, blocks):
    cuda = TensorCuda(formats=["Q", "Q", "i", "i", "i", "i", "i", "i", "128s"])
    launch, handle = made(cuda, host=matrix_host(), persistent={"ctas_per_sm": 2}, total_warps=12)
    launch(*grid, 5, handle, GOOD, memory=APART)
    assert cuda.launches == [("function k", (blocks, 1, 1), (384, 1, 1), 100, 5, [*GOOD, *grid, b"map 1" + bytes(123)])]
    plain, handle = made(cuda := FakeCuda(formats="QQiiiiii"), persistent={"ctas_per_sm": 2})
    plain(*grid, 5, handle, GOOD)
    assert cuda.launches == [("function k", (blocks, 1, 1), (256, 1, 1), 100, 5, [*GOOD, *grid])]


def test_extra_warps_count_against_the_devices_threads():
    with pytest.raises(OutOfResources, match="threads: 384 needed, 256 available"):
        NvidiaDriver(FakeCuda(threads=256)).load({"cubin": b"x"}, {**META, "total_warps": 12}, 0)
    launch, handle = made(cuda := FakeCuda(formats="QQiii"), total_warps=12)
    launch(1, 1, 1, 0, handle, GOOD)
    assert cuda.launches[0][2] == (384, 1, 1)


def test_plans_are_bounded(monkeypatch):
    monkeypatch.setattr(launcher, "_PLANS", 4)
    cuda = TensorCuda(formats=["Q", "Q", "i", "i", "i", "128s"])
    launch, handle = made(cuda, host=matrix_host())
    for i in range(6):
        launch(1, 1, 1, 0, handle, [0x1000, 0x9000, 128, 64, 64 + 8 * i], memory=APART)
    with pytest.raises(NeedsMemory):  # forgotten, so asked for again
        launch(1, 1, 1, 0, handle, GOOD)
    launch(1, 1, 1, 0, handle, [0x1000, 0x9000, 128, 64, 104])
    assert len(cuda.launches) == 7 and len(cuda.encoded) == 6


class NativeCuda(FakeCuda):
    """cuLaunchKernelEx as a C function that gets bare addresses, as the driver's own is called."""

    def __init__(self, statuses=(0,), **more):
        super().__init__(**more)
        self.statuses = list(statuses)
        self.expected, self.attributes = 0, []  # attributes of a launch
        address = ctypes.c_void_p
        self.native_launch = ctypes.CFUNCTYPE(ctypes.c_int, address, address, address, address)(self._launch)

    def _launch(self, config, function, table, extra):
        dims = struct.unpack("=7I", ctypes.string_at(config, 28))
        stream, attributes, count = struct.unpack("=QQI", ctypes.string_at(config + 32, 20))
        assert extra is None and count == self.expected and bool(attributes) == bool(count)
        self.attributes.append([ctypes.string_at(attributes + 72 * i, 72) for i in range(count)])
        pointers = (ctypes.c_void_p * len(self.formats)).from_address(table)
        values = [struct.unpack("=" + f, ctypes.string_at(p, struct.calcsize("=" + f)))[0] for p, f in zip(pointers, self.formats)]
        self.launches.append((function, dims[:3], dims[3:6], dims[6], stream, values))
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def cuModuleGetFunction(self, module, name):
        return SUCCESS, 0x7F0012345678

    def cuLaunchKernel(self, *args):
        raise AssertionError("the C function is there")

    class CUresult(int):
        name = property(lambda self: f"RESULT_{int(self)}")


def test_the_drivers_own_function_is_called_with_a_whole_configuration():
    driver = NvidiaDriver(cuda := NativeCuda(formats="QbifQ"))
    handle = driver.load({"cubin": b"x"}, META, 0)
    launch = driver.make_launcher(["*fp32", "i8", "i32", "fp32", "*bf16"], META)
    launch(2, 3, 4, 1 << 40, handle, (1 << 47, -3, -5, 1.5, 256))
    launch(5, 1, 1, 0, handle, (0, 7, 7, 2, None))
    launch((1 << 31) - 1, 1, 1, 0, handle, (0, 7, 7, 2, 1))
    assert cuda.launches == [(0x7F0012345678, (2, 3, 4), (256, 1, 1), 100, 1 << 40, [1 << 47, -3, -5, 1.5, 256]),
                             (0x7F0012345678, (5, 1, 1), (256, 1, 1), 100, 0, [0, 7, 7, 2.0, 0]),
                             (0x7F0012345678, ((1 << 31) - 1, 1, 1), (256, 1, 1), 100, 0, [0, 7, 7, 2.0, 1])]
    with pytest.raises(ArgumentError, match=r"the grid is \(4294967296, 1, 1\)"):
        launch(1 << 32, 1, 1, 0, handle, (0, 7, 7, 2, 1))
    assert len(cuda.launches) == 3


def test_statuses_of_the_drivers_own_function():
    driver = NvidiaDriver(cuda := NativeCuda(statuses=(201, 0), formats="i"))
    handle = driver.load({"cubin": b"x"}, META, 0)
    cuda.calls.clear()
    driver.make_launcher(["i32"], META)(1, 1, 1, 0, handle, [3])
    assert cuda.calls == ["context0"] and len(cuda.launches) == 2
    for status, error, message in ((701, OutOfResources, "registers: 10240 needed"), (719, CudaError, "cuLaunchKernel failed with RESULT_719: described")):
        driver = NvidiaDriver(NativeCuda(statuses=(status,), formats="i"))
        with pytest.raises(error, match=message):
            driver.make_launcher(["i32"], META)(1, 1, 1, 0, driver.load({"cubin": b"x"}, META, 0), [3])


def test_torchs_own_functions_are_given_once_torch_uses_the_device(monkeypatch):
    driver = NvidiaDriver(FakeCuda())
    assert driver.current_device() == 0 and driver.current_stream(0) == 0
    early = driver.current_device, driver.current_stream
    started = types.SimpleNamespace(_cuda_getDevice=lambda: 3, _cuda_getCurrentRawStream=lambda device: 70 + device)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(_C=started, cuda=types.SimpleNamespace(is_initialized=lambda: True)))
    assert driver.current_device is started._cuda_getDevice and driver.current_stream is started._cuda_getCurrentRawStream
    assert early[0]() == 3 and early[1](2) == 72  # what was taken before follows
