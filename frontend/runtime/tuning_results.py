"""What ``autotune`` has chosen, kept on disk: a file for each kernel, key and list of candidates."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.runtime.autotuner import Config


def path_of(kernel_key: str, device_type: str | None, key: tuple[Any, ...], candidates: Sequence[Config]) -> str:
    """The file of what is chosen for a key, by all that what is fast depends on: the kernel's text, the compiler, its settings, the target, the candidates."""
    import hashlib

    from tilewright import knobs
    from tilewright.runtime.cache import cache_dir, compiler_stamp
    from tilewright.runtime.driver import driver

    target = getattr(driver.active, "selection", None)
    settings = "" if target is None else knobs.code_key(target.plugin)
    text = "\n".join([compiler_stamp(), str(target), str(device_type), settings, kernel_key, repr(key), *map(str, candidates)])
    return os.path.join(cache_dir(), f"autotune-{hashlib.sha256(text.encode()).hexdigest()}.json")


def read(path: str, candidates: Sequence[Config]) -> tuple[Config, dict[Config, list[float]]] | None:
    """(the configuration chosen, the times of all); None where there is no such file, or none that can be read."""
    import json

    try:
        with open(path, encoding="utf-8") as f:
            kept = json.load(f)
        return candidates[kept["best"]], {candidates[i]: times for i, _, times in kept["timings"]}
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def write(path: str, candidates: Sequence[Config], best: Config, timings: Mapping[Config, Sequence[float]]) -> None:
    """Keep what was chosen. Where that cannot be, it is measured again another time."""
    import json

    kept = {"best": candidates.index(best), "timings": [[candidates.index(c), str(c), list(t)] for c, t in timings.items()]}
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.{os.getpid()}"
        with open(temporary, "w", encoding="utf-8") as f:
            json.dump(kept, f)
        os.replace(temporary, path)
    except OSError:
        pass
