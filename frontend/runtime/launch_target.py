"""On which target a launch runs, and whether its arguments lie there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.runtime.errors import ArgumentError
from tilewright.runtime.specialize import PINNED
from tilewright.targets import registry

HOST = "cpu"  # the device type of arrays in host memory


def choose(driver: Any, device_types: Iterable[str]) -> registry.Selection:
    """The target that the user set (``driver.set_active``, ``TILEWRIGHT_TARGET``), else that of the arguments, else the first detected. Pinned memory of
    the host goes with the other arguments; alone it is the host's."""
    selected = driver.selected()
    if selected is not None and not os.environ.get("TILEWRIGHT_TARGET"):
        return selected
    wanted = set(device_types)
    return registry.select(None, sorted(wanted - {PINNED} or {HOST} if wanted else wanted))


def check_devices(kernel: str, selection: registry.Selection, places: Mapping[str, Iterable[str]]) -> None:
    """Raise ArgumentError where an argument lies on a device that the target does not take. ``places``: parameter → device types."""
    allowed = {HOST} if selection.simulate else set(selection.plugin.device_types)
    pinned = HOST in allowed or selection.plugin.takes_pinned
    seen = {d for devices in places.values() for d in devices}
    for name, devices in places.items():
        for device in devices:
            if device not in allowed and not (pinned and device == PINNED):
                others = sorted(seen - {device})
                mixed = f" Other arguments lie on {', '.join(others)}." if others else ""
                simulator = f" {selection}:sim runs its simulator on arrays of the host." if device == HOST and selection.plugin.simulator is not None else ""
                raise ArgumentError(
                    f"argument {name!r} of {kernel} lies on device {device!r}, and target {selection} takes arrays on "
                    f"{', '.join(sorted(allowed)) or 'no device'}.{mixed} Move it there, or choose a target by TILEWRIGHT_TARGET.{simulator}")
