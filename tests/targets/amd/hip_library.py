"""A shared library libamdhip64.so whose functions call a ``HipStandIn``, so that the real hip-python runs on it: ``serve(folder, stand_in)``.

Run in a process of its own (hip-python opens one library a process): see test_amd_hip_python.py. Built with ziglang's clang and linker.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from typing import Any

# the functions, in the order of their numbers in the C text, with how many arguments each has
FUNCTIONS = (("hipGetDeviceCount", 1), ("hipGetDevice", 1), ("hipSetDevice", 1), ("hipDeviceGetAttribute", 3), ("hipGetDevicePropertiesR0600", 2),
             ("hipDeviceSynchronize", 0), ("hipGetLastError", 0), ("hipEventCreate", 1), ("hipEventDestroy", 1), ("hipEventRecord", 2), ("hipEventSynchronize", 1),
             ("hipEventElapsedTime", 3), ("hipModuleLoadData", 2), ("hipModuleUnload", 1), ("hipModuleGetFunction", 3), ("hipFuncGetAttribute", 3),
             ("hipModuleLaunchKernel", 11))
Hook = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64))


def source() -> str:
    """The C text: every argument is an integer or a pointer, and goes to the hook in an array of 64-bit numbers."""
    lines = ["typedef unsigned long long u64;", "static int (*hook)(int, const u64 *);", "static char text[256];",
             "void stand_in_serve(int (*h)(int, const u64 *)) { hook = h; }", "char *stand_in_text(void) { return text; }",
             "const char *hipGetErrorString(int e) { u64 a[] = {(unsigned)e}; hook(-1, a); return text; }"]
    for i, (name, count) in enumerate(FUNCTIONS):
        wide = name != "hipModuleLaunchKernel"
        kinds = ["u64" if wide or j in (0, 8, 9, 10) else "unsigned" for j in range(count)]
        parameters = ", ".join(f"{k} p{j}" for j, k in enumerate(kinds)) or "void"
        lines.append(f"int {name}({parameters}) {{ u64 a[] = {{{', '.join(f'p{j}' for j in range(count)) or '0'}}}; return hook({i}, a); }}")
    return "\n".join(lines) + "\n"


def build(folder: str) -> str:
    """The library's path, as hip-python looks for it under ROCM_PATH=folder."""
    os.makedirs(os.path.join(folder, "lib"), exist_ok=True)
    text, obj, library = os.path.join(folder, "hip.c"), os.path.join(folder, "hip.o"), os.path.join(folder, "lib", "libamdhip64.so")
    with open(text, "w") as f:
        f.write(source())
    zig = [sys.executable, "-m", "ziglang"]
    subprocess.run([*zig, "cc", "-c", "-O1", "-fPIC", "-ffreestanding", text, "-o", obj], check=True, capture_output=True)
    subprocess.run([*zig, "ld.lld", "-shared", "-soname", "libamdhip64.so", obj, "-o", library], check=True, capture_output=True)
    return library


def _arch_offset(hip: Any) -> int:
    """Where gcnArchName lies in hipDeviceProp_t: its bytes, read by hip-python from a structure whose bytes (ASCII, none 0) say their places."""
    properties = hip.hipDeviceProp_t()
    size = properties.c_sizeof()
    ctypes.memmove(int(properties), b"".join(bytes((i // 100 + 1, i % 100 + 1)) for i in range(size // 2)), size // 2 * 2)
    high, low = map(ord, properties.gcnArchName[:2])
    return 2 * ((high - 1) * 100 + low - 1)


def serve(library: str, stand_in: Any, hip: Any) -> Any:
    """Let the library's functions, called by ``hip`` (hip-python's module), be the stand-in's. Returns what must be kept alive."""
    lib = ctypes.CDLL(library)
    lib.stand_in_text.restype = ctypes.c_void_p
    arch_offset = _arch_offset(hip)
    kinds = {int(getattr(hip.hipDeviceAttribute_t, k)): v for k, v in vars(type(stand_in).hipDeviceAttribute_t).items() if k.startswith("hip")}
    threads = int(hip.hipFunction_attribute.HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)

    def image_at(where: int) -> bytes:
        return next(image for image in stand_in.code if ctypes.string_at(where, len(image)) == image)

    def out(kind: Any, where: int, value: Any) -> None:
        if value is not None:
            kind.from_address(where).value = value

    def answer(number: int, a: Any) -> int:
        if number < 0:
            ctypes.memmove(lib.stand_in_text(), stand_in.hipGetErrorString(a[0])[1] + b"\0", len(stand_in.hipGetErrorString(a[0])[1]) + 1)
            return 0
        name, count = FUNCTIONS[number]
        p = [a[i] for i in range(count)]
        i32 = [x & 0xFFFFFFFF for x in p]
        if name in ("hipGetDeviceCount", "hipGetDevice"):
            status, value = getattr(stand_in, name)()
            out(ctypes.c_int, p[0], value)
        elif name == "hipDeviceGetAttribute":
            status, value = stand_in.hipDeviceGetAttribute(kinds[i32[1]], i32[2])
            out(ctypes.c_int, p[0], value)
        elif name == "hipGetDevicePropertiesR0600":
            status, value = stand_in.hipGetDeviceProperties(i32[1])
            ctypes.memmove(p[0] + arch_offset, value.gcnArchName + b"\0", len(value.gcnArchName) + 1)
        elif name in ("hipEventCreate", "hipModuleLoadData"):
            status, value = getattr(stand_in, name)(*(() if count == 1 else (image_at(p[1]),)))
            out(ctypes.c_uint64, p[0], value)
        elif name == "hipModuleGetFunction":
            status, value = stand_in.hipModuleGetFunction(p[1], ctypes.string_at(p[2]))
            out(ctypes.c_uint64, p[0], value)
        elif name == "hipFuncGetAttribute":
            assert i32[1] == threads
            status, value = stand_in.hipFuncGetAttribute("threads", p[2])
            out(ctypes.c_int, p[0], value)
        elif name == "hipEventElapsedTime":
            status, value = stand_in.hipEventElapsedTime(p[1], p[2])
            out(ctypes.c_float, p[0], value)
        elif name == "hipModuleLaunchKernel":
            (status,) = stand_in.hipModuleLaunchKernel(p[0], *i32[1:8], p[8], None if p[9] == 0 else p[9], p[10])
        else:
            (status,) = getattr(stand_in, name)(*(i32 if name == "hipSetDevice" else p))
        return int(status)

    def called(number: int, a: Any) -> int:
        try:
            return answer(number, a)
        except BaseException as error:  # noqa: BLE001 - cannot go through C
            print(f"stand-in: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return 999  # hipErrorUnknown

    hook = Hook(called)
    lib.stand_in_serve(hook)
    return hook
