"""The compiler that the kernel file being loaded is for: ``frameworks.py`` sets both names, then executes the file."""

from __future__ import annotations

from typing import Any

triton: Any = None
tl: Any = None
