"""Keep the kernel's lines for who reads the stage's text again: the text has no locations, and the simulator is to name lines of Python.

Before: ttg, as the stage leaves it. After: the same, and ctx.metadata["lines"] says of each line of the module's text (without those that define aliases)
where it comes from: {"files": [path, …], "at": [[file, line] or 0, …]}. Of inlined code that is the line inside the function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_DEFINITION = re.compile(r"^(#loc\d*) = (.*)$")
_LINE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+')
_REFERENCE = re.compile(r"#loc\d*")
_LAST = re.compile(r" loc\((.*)\)$")


def run(module: Any, ctx: Any) -> None:
    lines = module.operation.get_asm(enable_debug_info=True, assume_verified=True).splitlines()
    definitions = {m[1]: m[2] for m in map(_DEFINITION.match, lines) if m}
    places: dict[str, tuple[str, int] | None] = {}

    def place(text: str) -> tuple[str, int] | None:
        """The first line that a location has, following references: of a call the callee's."""
        if text not in places:
            places[text] = None
            for m in re.finditer(rf"{_LINE.pattern}|{_REFERENCE.pattern}", text):
                found = (m[1], int(m[2])) if m[1] is not None else place(definitions.get(m[0], ""))
                if found is not None:
                    places[text] = found
                    break
        return places[text]

    files: dict[str, int] = {}
    at: list[Any] = []
    for line in lines:
        if line.startswith("#"):
            continue
        end = _LAST.search(line)
        found = place(end[1]) if end else None
        at.append([files.setdefault(found[0], len(files)), found[1]] if found is not None and found[0] != "-" else 0)
    ctx.metadata["lines"] = {"files": list(files), "at": at}


def python_lines(text: str, metadata: Mapping[str, Any]) -> dict[int, str]:
    """Line of a stage's ``text`` → "file:line" of the kernel, as far as the metadata tells."""
    known = metadata.get("lines")
    if not known:
        return {}
    numbers = [n for n, line in enumerate(text.splitlines(), 1) if not line.startswith("#")]
    if len(numbers) != len(known["at"]):  # another text than that which was noted
        return {}
    return {n: f"{known['files'][where[0]]}:{where[1]}" for n, where in zip(numbers, known["at"]) if where}
