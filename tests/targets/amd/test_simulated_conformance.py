"""A sample of the conformance suite in the instruction-level simulator: some cases of every test function of every file, on a wave of 64 and on one of 32.

TILEWRIGHT_CONFORMANCE_SEED picks another sample. All of it: TILEWRIGHT_TARGET=amd:gfx942:sim pytest tests/conformance
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parents[2] / "conformance"
SEED = os.environ.get("TILEWRIGHT_CONFORMANCE_SEED", "1")


def run(arch, cases, *files):
    """Runs that many cases of each test function; all have to pass, or to say why they are skipped. Returns how many passed."""
    environment = {**os.environ, "TILEWRIGHT_TARGET": f"amd:{arch}:sim", "PYTEST_ADDOPTS": "", "TILEWRIGHT_CONFORMANCE_SAMPLE": f"{cases}:{SEED}"}
    done = subprocess.run([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-n", "0", *(str(SUITE / f"test_{f}.py") for f in files)],
                          capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    return int(re.search(r"(\d+) passed", done.stdout)[1])


@pytest.mark.parametrize("arch, cases, files, least", [("gfx942", 1, ("control", "dot", "random_kernels", "tiles"), 12), ("gfx1100", 1, ("descriptors", "elementwise", "memory"), 24)])
def test_sample(arch, cases, files, least):
    assert run(arch, cases, *files) >= least


SAMPLES = [("control", 12, 12), ("descriptors", 2, 10), ("dot", 3, 6), ("elementwise", 2, 20), ("memory", 2, 12), ("random_kernels", 6, 6), ("tiles", 2, 8)]


@pytest.mark.slow
@pytest.mark.parametrize("arch, file, cases, least", [
    # of the later arch of each wave size what differs there: CI's time is short
    (arch, *sample) for arch in ("gfx942", "gfx950", "gfx1100", "gfx1201") for sample in SAMPLES
    if arch in ("gfx942", "gfx1100") or sample[0] in ("dot", "tiles", "descriptors")])
def test_larger_sample(arch, file, cases, least):
    assert run(arch, cases, file) >= least
