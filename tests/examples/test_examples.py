"""The examples, each from the command line as a user runs it, at awkward sizes and in every dtype they claim."""

from __future__ import annotations

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
