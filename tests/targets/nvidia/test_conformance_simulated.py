"""A sample of the conformance suite in the simulator: kernels that once failed on an H200, and some that did not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent.parent.parent / "conformance" / "test_random_kernels.py"


@pytest.mark.parametrize("arch,seeds", [("sm_90a", (3, 33, 17)), ("sm_80", (0, 11, 5, 35))])
def test_random_kernels(arch, seeds):
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *(f"{SUITE}::test_random_kernel[{s}]" for s in seeds)],
                          capture_output=True, text=True, env={**os.environ, "TILEWRIGHT_TARGET": f"nvidia:{arch}:sim", "PYTEST_ADDOPTS": ""})
    assert done.returncode == 0 and done.stdout.startswith("." * len(seeds)), done.stdout[-3000:]
