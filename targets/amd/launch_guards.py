"""What a launch must check before it runs a kernel with buffer operations (``metadata["host"]``), by sizes and grid; answers are kept."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.targets.host_expressions import Expressions
from tilewright.targets.host_guards import check
from tilewright.targets.protocol import NeedsVariant

WITHOUT_BUFFERS = {"buffer_ops": False}
_KEPT = 1024


class LaunchGuards:
    """The guards of one kernel; ``needed`` is False where it has none."""

    def __init__(self, metadata: Mapping[str, Any]):
        host = metadata.get("host") or {}
        self.guards = list(host.get("guards", ()))
        self.expressions = Expressions(host.get("expressions", ()))
        for guard in self.guards:
            if guard["kind"] not in ("range", "multiple"):
                raise ValueError(f"the kernel has a guard of the unknown kind {guard['kind']!r}")
        used = [g[k] for g in self.guards for k in ("expr", "of") if k in g]
        self.arguments = tuple(sorted(frozenset().union(*(self.expressions.arguments(e) for e in used))))
        self.needed = bool(self.guards)
        self._kept: dict[Any, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def require(self, args: Sequence[Any], grid: tuple[int, int, int]) -> None:
        """Raises NeedsVariant where these arguments need the kernel without buffer operations. ``args``: all run-time arguments."""
        key = (tuple([args[i] for i in self.arguments]), grid)
        reasons = self._kept.get(key)
        if reasons is None:
            reasons = tuple(check(self.expressions, self.guards, args, grid))
            with self._lock:
                if len(self._kept) >= _KEPT:
                    self._kept.clear()
                self._kept[key] = reasons
        if reasons:
            raise NeedsVariant(WITHOUT_BUFFERS, reasons)
