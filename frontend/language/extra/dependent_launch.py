"""Waiting for the kernel launched before, and letting the next one start early: Triton's names, which change nothing here.

Launches of one stream run one after the other on every target, each after all of the one before is done and visible. So the wait is over
when a kernel begins, and nothing is gained by telling the next one to start.
"""

from __future__ import annotations

from typing import Any

from tilewright.language.decorators import builtin


@builtin
def gdc_wait(_semantic: Any = None) -> None:
    """Wait until the kernels launched before on the stream are done. They are, when a kernel begins: nothing is done.

    Example::

        tl.extra.gdc_wait()
        x = tl.load(p)
    """


@builtin
def gdc_launch_dependents(_semantic: Any = None) -> None:
    """Let the next kernel of the stream be launched before this one ends. It is launched after it: nothing is done.

    Example::

        tl.extra.gdc_launch_dependents()
        tl.store(p, x)
    """


__all__ = ["gdc_launch_dependents", "gdc_wait"]
