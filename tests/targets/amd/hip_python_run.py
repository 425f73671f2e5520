"""The driver over hip-python itself, whose library is the stand-in's: ``python hip_python_run.py FOLDER``. Prints "ok" and what it measured."""

from __future__ import annotations

import os
import sys
import timeit

import numpy as np

import tilewright as triton
import tilewright.language as tl


@triton.jit
def scale(x, y, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


def main(folder: str) -> None:
    os.environ.pop("TILEWRIGHT_TARGET", None)
    import hip_library
    from hip import hip
    from hip_stand_in import HipStandIn

    library = hip_library.build(folder)
    os.environ["ROCM_PATH"] = folder
    stand_in = HipStandIn(("gfx942", "gfx1100"))
    keep = hip_library.serve(library, stand_in, hip)

    from tilewright.compiler import ASTSource
    from tilewright.dialects.errors import ArgumentError, OutOfResources
    from tilewright.runtime.driver import driver_of
    from tilewright.targets import registry
    from tilewright.targets.amd.driver import HipError
    from tilewright.targets.amd.launcher import loaded_runtimes

    assert loaded_runtimes() == [os.path.realpath(library)]
    selection = registry.parse("amd:gfx942")
    source = ASTSource(scale, {"x": "*fp32", "y": "*fp32", "factor": "fp32", "n": "i32"}, {"BLOCK": 128})
    kernel = triton.compile(source, target=selection)
    stand_in.code[kernel.asm["hsaco"]] = "gfx942", kernel.asm["amdgcn"]
    driver = driver_of(selection)
    assert driver.hip is hip and driver._native is not None, "the runtime's own function was not found"
    x, y = np.arange(300, dtype=np.float32), np.full(300, np.nan, np.float32)
    stand_in.memory += [(a.ctypes.data, a.ctypes.data + a.nbytes) for a in (x, y)]
    kernel[(3,)](x.ctypes.data, y.ctypes.data, 2.5, 300, 128)
    assert (y == 2.5 * x).all()
    launch = stand_in.launches[-1]
    assert (launch.kernel, launch.grid, launch.block, launch.device) == ("scale", (3, 1, 1), (256, 1, 1), 0), launch

    # through the bindings' own function, as where the library is not found
    from tilewright.targets.amd.launcher import launch_through

    y[:] = np.nan
    native, driver._native, driver.launch = driver._native, None, launch_through(hip)
    handle = driver.load(kernel.asm, kernel.metadata._asdict(), 0)
    driver.make_launcher(["*fp32", "*fp32", "fp32", "i32"], kernel.metadata._asdict())(3, 1, 1, 0x77, handle, (x.ctypes.data, y.ctypes.data, 0.5, 300))
    assert (y == 0.5 * x).all() and stand_in.launches[-1].stream == 0x77
    driver.unload(handle)
    driver._native, driver.launch = native, native

    properties = driver.get_device_properties(1)
    assert properties["arch"] == "gfx1100" and properties["max_shared_mem"] == 65536 and properties["multiprocessor_count"] == 304, properties
    timer = driver.event_timer()
    timer.start()
    timer.stop()
    assert timer.elapsed_ms() == 1.0
    del timer
    assert not stand_in.events
    driver.synchronize()

    try:
        driver.load(kernel.asm, kernel.metadata._asdict(), 1)
        raise AssertionError("code for another arch was loaded")
    except HipError as error:
        assert "no kernel image is available" in str(error) and "is for gfx942 and device 1 is gfx1100" in str(error), error
    assert stand_in.device == 0
    stand_in.fail["hipModuleLaunchKernel"] = [719, 701]
    for expected, words in ((HipError, "hipErrorLaunchFailure: unspecified launch failure"), (OutOfResources, "registers or scratch memory")):
        try:
            kernel[(3,)](x.ctypes.data, y.ctypes.data, 2.5, 300, 128)
            raise AssertionError(f"no {expected.__name__}")
        except expected as error:
            assert words in str(error), error
    try:
        driver.make_launcher([], kernel.metadata._asdict() | {"host": None})(1 << 24, 1, 1, 0, kernel.load(0), ())
        raise AssertionError("2³² threads were launched")
    except ArgumentError as error:
        assert "fewer than 2³² threads" in str(error)

    # the time of a launch's Python: a function that returns at once in the place of the runtime's
    driver.launch = native
    stand_in.code[kernel.asm["hsaco"]] = "gfx942", None
    run = kernel.launcher
    handle = kernel.load(0)
    args = (x.ctypes.data, y.ctypes.data, 2.5, 300)
    own = min(timeit.repeat(lambda: run(3, 1, 1, 0, handle, args), number=200, repeat=3)) / 200
    print(f"ok {len(stand_in.launches)} launches, {own * 1e6:.1f} us each with the stand-in's Python")
    del keep


if __name__ == "__main__":
    main(sys.argv[1])
