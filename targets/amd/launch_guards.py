"""What a launch must check before it runs a kernel with buffer operations (``metadata["host"]``), by sizes and grid; answers are kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from tilewright.targets.host_expressions import Expressions
from tilewright.targets.host_guards import check
from tilewright.targets.protocol import NeedsVariant

WITHOUT_BUFFERS = {"buffer_ops": False}
_KEPT = 1024


class LaunchGuards:
    """The guards of one kernel; ``needed`` is False where it has none.

    ``held``: keys of launches for which all guards are known to hold, a key being ``pick(args)``, with ``uses_grid`` ``(pick(args), *grid)``: a
    launcher that finds its own there need not call ``require``."""

    def __init__(self, metadata: Mapping[str, Any]):
        host = metadata.get("host") or {}
        self.guards = list(host.get("guards", ()))
        self.expressions = Expressions(host.get("expressions", ()))
        for guard in self.guards:
            if guard["kind"] not in ("range", "multiple"):
                raise ValueError(f"the kernel has a guard of the unknown kind {guard['kind']!r}")
        used = [g[k] for g in self.guards for k in ("expr", "of") if k in g]
        self.arguments = tuple(sorted(frozenset().union(*(self.expressions.arguments(e) for e in used))))
        self.uses_grid = any(self.expressions.uses_grid(e) for e in used)
        # (one argument alone need not be a tuple; without any, all launches are one)
        self.pick: Callable[[Sequence[Any]], Any] = itemgetter(*self.arguments) if self.arguments else lambda args: ()
        self.needed = bool(self.guards)
        self.held: set[Any] = set()
        self._broken: dict[Any, tuple[str, ...]] = {}
        self._lock = threading.Lock()

    def require(self, args: Sequence[Any], grid: tuple[int, int, int]) -> None:
        """Raises NeedsVariant where these arguments need the kernel without buffer operations. ``args``: all run-time arguments."""
        key = (self.pick(args), *grid) if self.uses_grid else self.pick(args)
        if key in self.held:
            return
        reasons = self._broken.get(key)
        if reasons is None:
            reasons = tuple(check(self.expressions, self.guards, args, grid))
            with self._lock:
                if len(self.held) + len(self._broken) >= _KEPT:
                    self.held.clear()
                    self._broken.clear()
                if reasons:
                    self._broken[key] = reasons
                else:
                    self.held.add(key)
        if reasons:
            raise NeedsVariant(WITHOUT_BUFFERS, reasons)
