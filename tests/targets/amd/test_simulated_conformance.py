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


@pytest.mark.parametrize("arch, cases, files, least", [("gfx942", 1, ("control", "dot", "random_kernels", "tiles"), 12), ("gfx1100", 1, ("descriptors", "elementwise", "memory"), 20)])
def test_sample(arch, cases, files, least):
    assert run(arch, cases, *files) >= least


# file → cases of each test function, and how many have to pass; of a file that is not named here one case, on one arch of the two
SAMPLES = {"control": (12, 12), "descriptors": (2, 10), "dot": (3, 6), "elementwise": (2, 20), "memory": (2, 10), "random_kernels": (6, 6), "tiles": (2, 8), "reductions": (2, 6)}
# of dot_scaled_tiles gfx950's own instructions run; elsewhere the products are dot_scaled's
OTHERS = sorted({f.stem.removeprefix("test_") for f in SUITE.glob("test_*.py")} - SAMPLES.keys() - {"dot_scaled_tiles"})


@pytest.mark.slow
@pytest.mark.parametrize("arch, file, cases, least", [
    # of the later arch of each wave size what differs there: CI's time is short
    *((arch, file, *sample) for arch in ("gfx942", "gfx950", "gfx1100", "gfx1201") for file, sample in SAMPLES.items()
      if arch in ("gfx942", "gfx1100") or file in ("dot", "tiles", "descriptors")),
    ("gfx950", "dot_scaled_tiles", 4, 16), *((("gfx942", "gfx1100")[k % 2], file, 1, 1) for k, file in enumerate(OTHERS))])
def test_larger_sample(arch, file, cases, least):
    assert run(arch, cases, file) >= least
