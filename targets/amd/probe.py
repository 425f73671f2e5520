"""Which AMD GPUs are there, by the kernel driver's files; HIP is never initialised (that would break forks)."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping

from tilewright.targets.protocol import Device

_NODES = "/sys/class/kfd/kfd/topology/nodes"


def probe() -> list[Device]:
    """GPUs that amdkfd lists in sysfs, in the order and with the numbers that the runtime gives them. Never raises."""
    try:
        return visible(by_files(_NODES), os.environ)
    except Exception:  # a half-installed driver must not break other targets
        return []


def by_files(folder: str) -> list[Device]:
    """The nodes with a ``gfx_target_version``, by number: 90402 is gfx942 (major 9, minor 4, stepping 2 in hexadecimal)."""
    devices: list[Device] = []
    paths = glob.glob(os.path.join(folder, "*", "properties"))
    for path in sorted(paths, key=lambda p: int(os.path.basename(os.path.dirname(p)))):
        try:
            with open(path) as f:
                facts = dict(line.split(None, 1) for line in f if " " in line)
            version = int(facts.get("gfx_target_version", "0"))
        except (OSError, ValueError):  # of another user's container
            continue
        if version:
            arch = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
            devices.append(Device(len(devices), facts.get("name", "AMD GPU").strip(), arch))
    return devices


def visible(devices: list[Device], environment: Mapping[str, str]) -> list[Device]:
    """Those that ROCR_VISIBLE_DEVICES leaves, of them those that HIP_VISIBLE_DEVICES (else CUDA_VISIBLE_DEVICES, which HIP heeds too) leaves, renumbered
    (ROCm, "GPU isolation techniques"). Lists of indices end at the first that is none; anything else (UUIDs) is left alone."""
    hip = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in environment else "CUDA_VISIBLE_DEVICES"
    for name in ("ROCR_VISIBLE_DEVICES", hip):
        setting = environment.get(name)
        if setting is None:
            continue
        words = [w.strip() for w in setting.split(",")]
        if not all(re.fullmatch(r"-?\d+|", w) for w in words):
            continue
        kept: list[Device] = []
        for word in words:
            if not word or not 0 <= int(word) < len(devices):
                break
            kept.append(Device(len(kept), devices[int(word)].name, devices[int(word)].arch))
        devices = kept
    return devices
