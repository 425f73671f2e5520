"""Which NVIDIA GPUs are there, by NVML or the kernel driver's files; CUDA is never initialised (that would break forks)."""

from __future__ import annotations

import ctypes
import glob
import os
import re
from typing import Any

from tilewright.dialects.errors import UnsupportedArchError
from tilewright.targets.nvidia.capabilities import resolve_arch
from tilewright.targets.protocol import Device

_NVML = ("libnvidia-ml.so.1", "/usr/local/nvidia/lib64/libnvidia-ml.so.1", "/usr/lib64/libnvidia-ml.so.1",
         "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1")

# For machines without NVML: the model in /proc/driver/nvidia, by the part of its name that says the generation.
_MODELS = ((r"\b(B200|B100|GB200)\b", "sm_100a"), (r"\b(H100|H200|H800|H20|GH200)\b", "sm_90a"),
           (r"\b(L4|L20|L40S?|RTX 40\d\d)\b|\bAda\b", "sm_89"), (r"\b(A100|A800|A30)\b", "sm_80"),
           (r"\b(A10G?|A40|A16|A2|RTX 30\d\d|RTX A\d000)\b", "sm_86"), (r"\bRTX 50\d\d\b", "sm_120a"))


def probe() -> list[Device]:
    """Devices in NVML's (PCI) order, those of CUDA_VISIBLE_DEVICES where it lists indices. Never raises."""
    try:
        found = _by_nvml()
        if found is None:
            found = _by_files()
        return _visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))
    except Exception:  # a half-installed driver must not break other targets
        return []


def _arch(capability: str) -> str | None:
    """None for a GPU that is too old, or newer than what is known here."""
    try:
        return resolve_arch(capability)
    except UnsupportedArchError:
        return None


def _open_nvml() -> Any:
    for name in _NVML:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _by_nvml() -> list[Device] | None:
    nvml = _open_nvml()
    if nvml is None or nvml.nvmlInit_v2() != 0:
        return None
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return None
        devices = []
        for i in range(count.value):
            handle, major, minor = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
            name = ctypes.create_string_buffer(96)
            if (nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle))
                    or nvml.nvmlDeviceGetCudaComputeCapability(handle, ctypes.byref(major), ctypes.byref(minor))):
                continue
            nvml.nvmlDeviceGetName(handle, name, len(name))
            arch = _arch(f"{major.value}{minor.value}")
            if arch:
                devices.append(Device(i, name.value.decode(errors="replace"), arch))
        return devices
    finally:
        nvml.nvmlShutdown()


def _by_files(folder: str = "/proc/driver/nvidia/gpus") -> list[Device]:
    devices = []
    for i, path in enumerate(sorted(glob.glob(os.path.join(folder, "*", "information")))):
        with open(path) as f:
            found = re.search(r"^Model:\s*(.+?)\s*$", f.read(), re.M)
        model = found.group(1) if found else ""
        arch = next((arch for pattern, arch in _MODELS if re.search(pattern, model)), None)
        if arch:
            devices.append(Device(i, model, arch))
    return devices


def _visible(devices: list[Device], setting: str | None) -> list[Device]:
    """CUDA_VISIBLE_DEVICES as CUDA reads it: indices up to the first that is not one; anything else (UUIDs) is left alone."""
    if setting is None:
        return devices
    words = [w.strip() for w in setting.split(",")]
    if not all(re.fullmatch(r"-?\d+|", w) for w in words):
        return devices
    by_index = {d.index: d for d in devices}
    out: list[Device] = []
    for word in words:
        if not word or int(word) not in by_index:
            break
        out.append(Device(len(out), by_index[int(word)].name, by_index[int(word)].arch))
    return out
