"""The names that real kernels use, from the usage list (names.json): which a conformance test has to use.

P0 to P2 are used by some kernel of those that were counted; P3 is in the documentation only.
"""

from __future__ import annotations

import json
from pathlib import Path

_LISTED = json.loads((Path(__file__).parent / "names.json").read_text())

PRIORITY: dict[str, str] = _LISTED["language"]  # name of tl → P0 … P3
LANGUAGE: list[str] = [n for n, p in PRIORITY.items() if p != "P3"]
LIBDEVICE: list[str] = list(_LISTED["libdevice"])  # all P1
DTYPES: list[str] = _LISTED["dtypes"]
METHODS: list[str] = _LISTED["methods"]  # of tensors, descriptors, pointers and types
KEYWORDS: list[str] = _LISTED["keywords"]  # "load(mask=)"


def wanted() -> dict[str, str]:
    """Name, as a recorder writes it → its priority, of every name that the suite has to use."""
    out = {n: PRIORITY[n] for n in LANGUAGE}
    out.update({f"libdevice.{n}": "P1" for n in LIBDEVICE})
    out.update({n: "P1" for n in (*DTYPES, *KEYWORDS)})
    out.update({f".{n}": "P1" for n in METHODS})
    return out
