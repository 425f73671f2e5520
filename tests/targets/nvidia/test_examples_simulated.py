"""The examples as a user runs them, in the simulator; minutes in all, so slow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vector_add", "softmax", "layer_norm", "matmul", "attention", "matmul_descriptors", "attention_descriptors"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_example(name, arch):
    done = subprocess.run([sys.executable, str(EXAMPLES / f"{name}.py"), "--numpy"], capture_output=True, text=True,
                          env={**os.environ, "TILEWRIGHT_VERIFY": "0", "TILEWRIGHT_TARGET": f"nvidia:{arch}:sim"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok  ") >= 10 and "FAIL" not in done.stdout
