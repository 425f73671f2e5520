"""What the suite's tests need wherever it is run from; its options and its report are plugin.py's."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

os.environ.setdefault("TILEWRIGHT_VERIFY", "1")  # verify the IR after every pass


@pytest.fixture(autouse=True, scope="session")
def _cache_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compiled kernels are the run's own."""
    os.environ.setdefault("TILEWRIGHT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _target(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target under test is what every launch uses."""
    # not at the top: this file is read before the options are, and the harness takes its target from the variables when it is imported
    from tilewright.conformance import harness

    if harness.ONLY_INTERPRETER:  # what is launched without the harness (errors of the compiler) has to be compiled for something
        monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    elif harness.TARGET:
        monkeypatch.setenv("TILEWRIGHT_TARGET", harness.TARGET)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A failed assertion ends a device's context, and every later launch of the process with it."""
    if pyfuncitem.get_closest_marker("own_process") is None or "TILEWRIGHT_OWN_PROCESS" in os.environ:
        return None
    from tilewright.conformance import harness

    if not harness.ON_GPU:
        return None
    name = f"{pyfuncitem.path}::{pyfuncitem.name}"
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name], env={**os.environ, "TILEWRIGHT_OWN_PROCESS": "1"}, text=True,
                          capture_output=True, cwd=pyfuncitem.config.rootpath)
    assert done.returncode == 0, done.stdout + done.stderr
    return True
