"""Run a hand-lowered kernel on the device there is, where TILEWRIGHT_TEST_DEVICE=cuda asks for it; else tests simulate."""

import ctypes
import os
from functools import cache

import numpy as np

from tilewright.targets.nvidia.emit import assemble, ptxas

ON_DEVICE = os.environ.get("TILEWRIGHT_TEST_DEVICE") == "cuda"


@cache
def _driver():
    from tilewright.targets.nvidia.driver import NvidiaDriver

    driver = NvidiaDriver()
    driver.use(0)
    return driver


def run_on_device(ptx, arch, metadata, args, name="k", grid=(1, 1, 1)):
    """numpy arrays are copied there and back; ints are i32. ``metadata``: shared, num_warps."""
    driver = _driver()
    stages = {"ptx": ptx} if ptxas() is None else {"cubin": assemble(ptx, arch)[0]}
    loaded = driver.load(stages, {"name": name, **metadata}, 0)
    values, types, buffers = [], [], []
    for arg in args:
        if isinstance(arg, np.ndarray):
            pointer = driver.call("cuMemAlloc", arg.nbytes)
            driver.call("cuMemcpyHtoD", pointer, arg.ctypes.data, arg.nbytes)
            buffers.append((arg, pointer))
            values.append(int(pointer))
            types.append(ctypes.c_void_p)
        else:
            values.append(int(arg))
            types.append(ctypes.c_int)
    threads = 32 * int(metadata.get("total_warps") or metadata["num_warps"])
    driver.call("cuLaunchKernel", loaded.function, *grid, threads, 1, 1, int(metadata["shared"]), 0, (tuple(values), tuple(types)), 0)
    driver.call("cuCtxSynchronize")
    for array, pointer in buffers:
        driver.call("cuMemcpyDtoH", array.ctypes.data, pointer, array.nbytes)
        driver.call("cuMemFree", pointer)
    driver.unload(loaded)
