"""The target of the suite: TILEWRIGHT_TARGET, else cpu; with TILEWRIGHT_TEST_DEVICE the one on which torch's arrays lie."""

from __future__ import annotations

import pytest

from conformance import harness


@pytest.fixture(autouse=True)
def _target(monkeypatch: pytest.MonkeyPatch) -> None:
    if harness.TARGET:
        monkeypatch.setenv("TILEWRIGHT_TARGET", harness.TARGET)
