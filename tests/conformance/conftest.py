"""The target of the suite: TILEWRIGHT_TARGET, else cpu; with TILEWRIGHT_TEST_DEVICE the one on which torch's arrays lie.

TILEWRIGHT_CONFORMANCE_SAMPLE=N:SEED runs at most N cases of each test function, chosen by the seed: what a simulator has time for.
"""

from __future__ import annotations

import hashlib
import os

import pytest

from conformance import harness


@pytest.fixture(autouse=True)
def _target(monkeypatch: pytest.MonkeyPatch) -> None:
    if harness.TARGET:
        monkeypatch.setenv("TILEWRIGHT_TARGET", harness.TARGET)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sample = os.environ.get("TILEWRIGHT_CONFORMANCE_SAMPLE")
    if not sample:
        return
    most, _, seed = sample.partition(":")
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen = {item for cases in functions.values() for item in sorted(cases, key=lambda i: hashlib.sha256(f"{seed}:{i.nodeid.rpartition('::')[2]}".encode()).digest())[:int(most)]}
    config.hook.pytest_deselected(items=[i for i in items if i not in chosen])
    items[:] = [i for i in items if i in chosen]
