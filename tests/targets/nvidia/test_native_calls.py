"""The launcher's native call is the launch that the launcher makes."""

import random

import pytest
from launch_samples import APART, GOOD, META, SIGNATURE
from native_calls import perform, some_arguments
from test_planned_launch import NativeCuda, TensorCuda

from tilewright.dialects.errors import ArgumentError
from tilewright.targets.nvidia import launcher
from tilewright.targets.nvidia.driver import CudaError, NvidiaDriver
from tilewright.targets.nvidia.host_plan import Bounded
from tilewright.targets.protocol import NeedsMemory, NeedsVariant


class Cuda(NativeCuda, TensorCuda):
    def __init__(self, formats, **more):
        super().__init__(**more)
        self.formats, self.encoded, self.encode_status = formats, [], 0


def made(cuda, signature, **metadata):
    driver = NvidiaDriver(cuda)
    metadata = {**META, **metadata}
    launch = driver.make_launcher(signature, metadata)
    return launch, launch.native, driver.load({"cubin": b"x"}, metadata, 0)


def alike(cuda, launch, call, handle, grid, stream, args, **more):
    """Both launch, and the same."""
    launch(*grid, stream, handle, args, **more)
    assert perform(call, grid, stream, handle, args) == 0
    assert cuda.launches[-1] == cuda.launches[-2]


def test_arguments_of_every_type():
    rng = random.Random(0)
    for _ in range(30):
        signature, letters, args = some_arguments(rng)
        launch, call, handle = made(cuda := Cuda(letters), signature)
        alike(cuda, launch, call, handle, (rng.randint(1, 1 << 30), 7, 8), 1 << 40, args)
        assert call.planned is None and call.persistent is None


@pytest.mark.parametrize("pairs", [None, {"ctas_per_sm": 2}, {"ctas_per_sm": 3, "cluster": 2, "flags": True}])
def test_plans_and_persistent_kernels(pairs, monkeypatch):
    from launch_samples import matrix_host

    monkeypatch.setattr(launcher, "_maps", Bounded(16))
    host = matrix_host()
    if pairs and "cluster" in pairs:
        host["pairs"] = [[1]]
    numbers = [] if pairs is None else ["i"] * (3 + ("cluster" in pairs))
    launch, call, handle = made(cuda := Cuda(["Q", "Q", "i", "i", "i", *numbers, "128s"]), SIGNATURE, host=host, persistent=pairs)
    grid = (2, 5, 3)
    assert perform(call, grid, 9, handle, GOOD) is None  # nothing is decided yet
    with pytest.raises(NeedsMemory):
        launch(*grid, 9, handle, GOOD)
    alike(cuda, launch, call, handle, grid, 9, GOOD, memory=APART)
    assert cuda.launches[-1][5][-1][:5] == b"map 1"
    other = [0x1000, 0x9000, 64, 64, 64]
    assert perform(call, grid, 9, handle, other) is None and perform(call, (3, 5, 3), 9, handle, GOOD) is None  # by arguments, and by grid
    alike(cuda, launch, call, handle, (300, 50, 3), 9, other, memory=APART)
    assert cuda.launches[-1][5][-1][:5] == b"map 2"
    with pytest.raises(NeedsVariant):  # decided against
        launch(*grid, 9, handle, [0x1000, 0x9000, 100, 64, 64], memory=APART)
    assert perform(call, grid, 9, handle, [0x1000, 0x9000, 100, 64, 64]) is None
    if pairs:
        assert cuda.launches[-1][1][0] == min(132 * pairs["ctas_per_sm"], 300 * 50 * 3) and perform(call, (1 << 16, 1 << 15, 1), 9, handle, GOOD) is None
    assert set(call.planned.arguments) == {0, 1, 2, 3, 4} and call.planned.by_grid


def test_a_persistent_kernel_without_plans():
    launch, call, handle = made(cuda := Cuda(list("QQiiiiii")), SIGNATURE, persistent={"ctas_per_sm": 2})
    for grid in ((1, 1, 1), (7, 3, 2), (1000, 10, 1)):
        alike(cuda, launch, call, handle, grid, 5, GOOD)


def test_failures_mean_what_they_mean_to_the_launcher():
    launch, call, handle = made(cuda := Cuda("i"), ["i32"])
    cuda.calls.clear()
    assert call.failed(handle, (1, 1, 1), 201) is None and cuda.calls == ["context0"]  # to be tried again
    with pytest.raises(CudaError, match="cuLaunchKernel failed with RESULT_719: described"):
        call.failed(handle, (1, 1, 1), 719)
    with pytest.raises(ArgumentError, match="the grid is"):
        call.failed(handle, (1, 1 << 20, 1), 1)


def test_without_the_drivers_own_function_there_is_none():
    assert made(TensorCuda(formats="i"), ["i32"])[1] is None


@pytest.mark.parametrize("said", [{"flags": True}, {}], ids=["flags", "an older bundle's"])
def test_flags_lie_before_the_maps(said):
    from launch_samples import matrix_host

    _, call, _ = made(Cuda("Qi"), SIGNATURE, host={**matrix_host(), "pairs": [[1]]}, persistent={"ctas_per_sm": 1, "cluster": 2, **said})
    offsets = launcher.parameter_layout(SIGNATURE, 4, 1)[1]
    begin = call.parameters[0][1]
    assert call.persistent[0] - begin == offsets[5] and call.planned.extra_at - begin == offsets[8]
