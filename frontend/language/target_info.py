"""``tl.target_info``: for which target a kernel is being compiled, as compile-time values. On the host: of the active driver.

    from tilewright.language.target_info import is_cuda

    if is_cuda():  # in a kernel: the other branch is not compiled
        …

In the interpreter there is no target: ``current_target()`` is None, and the others are False.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tilewright.dialects.errors import TilewrightError
from tilewright.language.const import constexpr_function
from tilewright.language.values import current_semantic

_compiling: ContextVar[Any] = ContextVar("tilewright_compiling", default=None)


@contextmanager
def compiling(target: Any) -> Iterator[None]:
    """While a kernel's Python is turned into IR for ``target``, a GPUTarget."""
    token = _compiling.set(target)
    try:
        yield
    finally:
        _compiling.reset(token)


def _target() -> Any:
    found = _compiling.get()
    if found is not None:
        return found
    try:
        current_semantic()
        return None  # the interpreter's: it runs for no target
    except TilewrightError:
        pass
    try:
        from tilewright.runtime import driver

        return driver.active.get_current_target()
    except TilewrightError:
        return None


@constexpr_function
def current_target() -> Any:
    """The target: ``backend`` ("cuda", "hip", "cpu" or a plugin's name), ``arch`` (90, "gfx942", …) and ``warp_size``; None without one."""
    return _target()


@constexpr_function
def is_cuda() -> bool:
    """Whether the backend is "cuda"."""
    target = _target()
    return target is not None and target.backend == "cuda"


@constexpr_function
def cuda_capability_geq(major: int, minor: int = 0) -> bool:
    """Whether the backend is "cuda" with a GPU of at least compute capability (``major``, ``minor``)."""
    target = _target()
    return target is not None and target.backend == "cuda" and int(target.arch) >= major * 10 + minor


@constexpr_function
def is_hip() -> bool:
    """Whether the backend is "hip"."""
    target = _target()
    return target is not None and target.backend == "hip"


@constexpr_function
def is_hip_cdna3() -> bool:
    """Whether the target is gfx942."""
    target = _target()
    return target is not None and target.arch == "gfx942"


@constexpr_function
def is_hip_cdna4() -> bool:
    """Whether the target is gfx950."""
    target = _target()
    return target is not None and target.arch == "gfx950"


@constexpr_function
def is_cpu() -> bool:
    """Whether the target is the host's processor."""
    target = _target()
    return target is not None and target.backend == "cpu"


__all__ = ["cuda_capability_geq", "current_target", "is_cpu", "is_cuda", "is_hip", "is_hip_cdna3", "is_hip_cdna4"]
