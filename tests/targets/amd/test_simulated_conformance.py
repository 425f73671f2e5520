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
# file → cases of each test function, in quick and in whole runs
FILES = {"test_control.py": (4, 20), "test_descriptors.py": (1, 4), "test_dot.py": (1, 6), "test_elementwise.py": (1, 6), "test_memory.py": (1, 6),
         "test_random_kernels.py": (4, 20), "test_tiles.py": (1, 4)}


def run(arch, file, cases):
    """Runs that many cases of each function; returns how many ran and passed."""
    environment = {**os.environ, "TILEWRIGHT_TARGET": f"amd:{arch}:sim", "PYTEST_ADDOPTS": "", "TILEWRIGHT_CONFORMANCE_SAMPLE": f"{cases}:{SEED}"}
    done = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "0", str(SUITE / file)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    return len(re.findall(r"\.", re.search(r"^([.sx\s\[\]%\d]*)$", done.stdout, re.MULTILINE)[1]))


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("file", FILES)
def test_sample(arch, file):
    assert run(arch, file, FILES[file][0]) > 0


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("file", FILES)
def test_larger_sample(arch, file):
    assert run(arch, file, FILES[file][1]) > 0
