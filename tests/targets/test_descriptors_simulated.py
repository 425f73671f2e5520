"""A sample of the conformance suite's tensor descriptors in the simulators of the GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent.parent / "conformance" / "test_descriptors.py"
SAMPLE = ("test_load[fp16-2-host]", "test_load[int8-2-device]", "test_store[fp32-4-device]", "test_store[bf16-2-host]", "test_atomics[add-fp32]",
          "test_atomics[max-fp32]", "test_gather_and_scatter[fp16-device]", "test_descriptors_carried_by_loops_and_branches", "test_products[fp16]")


@pytest.mark.parametrize("target", ["nvidia:sm_80:sim", "amd:gfx942:sim"])
def test_sample(target):
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *(f"{SUITE}::{t}" for t in SAMPLE)],
                          capture_output=True, text=True, env={**os.environ, "TILEWRIGHT_TARGET": target, "PYTEST_ADDOPTS": ""})
    assert done.returncode == 0 and done.stdout.startswith("." * len(SAMPLE)), done.stdout[-3000:]
