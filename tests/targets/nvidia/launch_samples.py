"""A stand-in for cuda.bindings.driver that records calls, and what the host knows of a kernel that reads a matrix by TMA."""

import ctypes
import struct

SUCCESS = 0


class Names:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class FakeCuda:
    """The calls that the driver makes, with one device of compute capability 9.0."""

    CUdevice_attribute, CUfunction_attribute, CUfunc_cache = Names(), Names(), Names()

    def __init__(self, devices=1, init=SUCCESS, launch=(SUCCESS,), threads=1024, formats=None):
        self.devices, self.init, self.launch_results, self.threads = devices, init, list(launch), threads
        self.calls, self.launches, self.formats = [], [], formats

    def cuInit(self, flags):
        return (self.init,)

    def cuDeviceGetCount(self):
        return SUCCESS, self.devices

    def cuCtxGetDevice(self):
        return 201, None

    def cuDeviceGet(self, i):
        return SUCCESS, i

    def cuDevicePrimaryCtxRetain(self, device):
        self.calls.append("retain")
        return SUCCESS, f"context{device}"

    def cuCtxSetCurrent(self, context):
        self.calls.append(context)
        return (SUCCESS,)

    def cuDeviceGetAttribute(self, name, device):
        values = {"OPTIN": 232448, "REGISTERS_PER_BLOCK": 65536, "MAJOR": 9, "MINOR": 0, "MULTIPROCESSOR_COUNT": 132}
        return SUCCESS, next((v for k, v in values.items() if name.endswith(k)), 1)

    def cuModuleLoadData(self, image):
        self.image = image
        return SUCCESS, "module"

    def cuModuleGetFunction(self, module, name):
        return SUCCESS, f"function {name.decode()}"

    def cuFuncGetAttribute(self, name, function):
        return SUCCESS, {"CU_FUNC_ATTRIBUTE_NUM_REGS": 40, "CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES": 24}.get(name, self.threads)

    def cuFuncSetAttribute(self, function, name, value):
        self.calls.append((name, value))
        return (SUCCESS,)

    def cuFuncSetCacheConfig(self, function, config):
        return (SUCCESS,)

    def cuGetErrorString(self, status):
        return SUCCESS, b"described"

    def cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra):
        table = (ctypes.c_void_p * len(self.formats)).from_address(parameters)
        values = [struct.unpack("=" + f, ctypes.string_at(p, struct.calcsize("=" + f)))[0] for p, f in zip(table, self.formats)]
        self.launches.append((function, (gx, gy, gz), (bx, by, bz), shared, stream, values))
        return (self.launch_results.pop(0) if len(self.launch_results) > 1 else self.launch_results[0],)


META = {"name": "k", "shared": 100, "num_warps": 8}


class Nodes(list):
    """Expression nodes under construction."""

    def __call__(self, *node):
        self.append(list(node))
        return len(self) - 1


def matrix_host(**changes):
    """A kernel (a, c, rows, columns, stride) that reads tiles of a by TMA and stores to c."""
    n = Nodes()
    a, rows, columns, stride, two, one = n("arg", 0), n("arg", 2), n("arg", 3), n("arg", 4), n("const", 2), n("const", 1)
    coordinate = n("mul", n("program_id", 0), n("const", 128))
    host = {"expressions": n, "descriptors": [{"base": a, "dtype": "fp16", "itemsize": 2, "shape": [rows, columns], "strides": [stride, one],
                                               "box": [128, 64], "swizzle": 128, "padding": "zero", "name": "a_ptr"}],
            "guards": [{"kind": "aligned", "expr": n("mul", stride, two), "to": 16, "why": "rows of a_ptr must begin at 16 bytes"},
                       {"kind": "range", "expr": coordinate, "min": 0, "max": 2147483647, "why": "the row of a_ptr"},
                       {"kind": "multiple", "expr": rows, "of": n("const", 64), "why": "rows wrap"},
                       {"kind": "no_alias", "descriptor": 0, "arg": 1, "why": "c_ptr is stored to"}]}
    host["descriptors"][0].update(changes)
    return host


SIGNATURE = ["*fp16", "*fp16", "i32", "i32", "i32"]
GOOD = [0x1000, 0x9000, 128, 64, 64]
APART = {0x1000: (0x1000, 0x6000), 0x9000: (0x9000, 0xA000)}
