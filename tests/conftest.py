"""Settings of the whole suite. Tests run on the installed package, in the quick mode of every checker."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

pytest_plugins = ["tilewright.conformance.plugin"]  # of an installed package it is an entry point of pytest
os.environ.setdefault("TILEWRIGHT_VERIFY", "1")  # verify the IR after every pass
sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("TILEWRIGHT_REQUIRE_TORCH") == "1" and importlib.util.find_spec("torch") is None:
        raise pytest.UsageError("torch is missing: the comparisons with torch tensors would not run. pip install torch")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compiled kernels of a test run are its own."""
    os.environ["TILEWRIGHT_CACHE_DIR"] = str(tmp_path_factory.mktemp("cache"))


@pytest.hookimpl(tryfirst=True)  # before pytest reads -m
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What slow_tests.txt lists is marked slow (choose_slow.py makes it from measured times). Tests marked nightly run where they are asked for: by ``-m nightly`` (or any ``-m`` that names the mark) or by their node id.

    An ``-m "not nightly"`` in addopts would be dropped by whoever says ``-m "not slow"``.
    """
    listed = Path(__file__).with_name("slow_tests.txt")
    slow = frozenset(listed.read_text().splitlines()) if listed.exists() else frozenset()
    for item in items:
        if item.nodeid in slow:
            item.add_marker("slow")
    if "nightly" in (config.option.markexpr or "") or any("::" in a for a in config.invocation_params.args):
        return
    nightly = [i for i in items if i.get_closest_marker("nightly") is not None]
    if nightly:
        config.hook.pytest_deselected(items=nightly)
        items[:] = [i for i in items if i.get_closest_marker("nightly") is None]
