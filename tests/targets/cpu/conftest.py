"""Every test here runs on the cpu target, with a cache of its own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _cpu(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TILEWRIGHT_INTERPRET", raising=False)
