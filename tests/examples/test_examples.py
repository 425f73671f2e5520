"""The examples, each from the command line as a user runs it, at awkward sizes and in every dtype they claim."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
NAMES = ("vector_add", "softmax", "layer_norm", "matmul", "attention", "matmul_descriptors", "attention_descriptors")


def run(name: str, *args: str, **env: str) -> str:
    done = subprocess.run([sys.executable, str(EXAMPLES / f"{name}.py"), *args], capture_output=True, text=True,
                          env={**os.environ, "TILEWRIGHT_VERIFY": "0", **env})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok  ") >= 10 and "FAIL" not in done.stdout
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_interpreter(name):
    out = run(name, "--numpy", TILEWRIGHT_INTERPRET="1")
    assert "float16" in out and "float32" in out


@pytest.mark.parametrize("name", NAMES)
def test_interpreter_with_torch(name):
    pytest.importorskip("torch")
    assert "bfloat16" in run(name, "--device", "cpu", TILEWRIGHT_INTERPRET="1")


@pytest.mark.parametrize("name", NAMES)
def test_cpu_with_numpy(name):
    run(name, "--numpy", TILEWRIGHT_TARGET="cpu")


@pytest.mark.parametrize("name", NAMES)
def test_cpu_with_torch(name):
    pytest.importorskip("torch")
    assert "bfloat16" in run(name, "--device", "cpu", TILEWRIGHT_TARGET="cpu")


@pytest.mark.parametrize("name", NAMES)
def test_the_same_file_on_every_target(name, tmp_path):
    """`tilewright matrix` runs the cases of each example as it stands; here on a host and, in float16, one simulated GPU."""
    report = tmp_path / "report.json"
    done = subprocess.run([sys.executable, "-m", "tilewright.cli", "matrix", str(EXAMPLES / f"{name}.py"), "--targets", "cpu,amd:gfx942:sim",
                           "--cases", "* float16 *", "--json", str(report)], capture_output=True, text=True, env={**os.environ, "TILEWRIGHT_VERIFY": "0"})
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())["targets"]
    assert [(t["target"], t["ran"]) for t in found] == [("cpu", "device"), ("amd:gfx942:sim", "simulator")]
    assert all(len(t["cases"]) >= 1 and t["max_error"] < 1e-2 for t in found) and found[1]["kernels"]
