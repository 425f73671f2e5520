"""launch_overhead.py without a GPU: kernels are launched through the targets' stand-ins, by machine code where there is any, and timed."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("torch")
import launch_overhead

from tilewright.runtime import native_machine
from tilewright.targets import registry


def test_stand_ins(capsys, monkeypatch):
    targets, quick, made = ["nvidia:sm_80", "amd:gfx942"], ("3 arguments", "7 arguments"), []
    calls, parts = launch_overhead.calls, launch_overhead.parts
    monkeypatch.setattr(launch_overhead, "calls", lambda *args: {row: call for row, call in calls(*args).items() if row in quick})
    monkeypatch.setattr(launch_overhead, "parts", lambda function, launch: made.append(function) or parts(function, launch))
    types = [registry.parse(target).plugin.device_types for target in targets]
    launch_overhead.without_a_device(targets, rounds=1, batch=3)
    assert [registry.parse(target).plugin.device_types for target in targets] == types  # all is as it was
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert [row[:2] for row in rows] == [[name, target] for name in quick for target in targets]
    for row in rows:
        assert all(float(cell) > 0 for cell in row[2:6]) and re.fullmatch(r"\d+ guards", row[6]), row
    if native_machine.usable():
        assert all(type(function._launch).__name__ == "builtin_function_or_method" for function in made)
