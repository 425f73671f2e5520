"""Waiting for the kernel launched before, and letting the next one start early: Triton's names.

Launches of one stream run one after the other, each after all of the one before is done and visible, unless the later one has the option ``launch_pdl`` on a target
that follows it (the names stand in its ``TargetPlugin.language`` then). Without it the wait is over when a kernel begins.
"""

from __future__ import annotations

from typing import Any

from tilewright.language.decorators import builtin


def _on_target(name: str, semantic: Any) -> None:
    """Write the assembly that the target being compiled for has for ``name``; nothing where it has none, and in the interpreter."""
    from tilewright.language import core
    from tilewright.language.target_info import _target
    from tilewright.targets import registry

    target = _target()
    if target is None:  # interpreted
        return
    plugin = registry.get(target.backend)
    function = plugin.language.get(name)
    if function is None or function.asm is None:
        return
    asm, constraints = function.asm(plugin.resolve_arch(target.arch))
    if asm:
        semantic.inline_asm(asm, constraints, [], [core.int32], False, 1)


@builtin
def gdc_wait(_semantic: Any = None) -> None:
    """Wait until the kernels launched before on the stream are done, and what they wrote is seen. Kernels launched with ``launch_pdl=True`` need it before they
    read that, where the target follows the option; for others all is done when they begin, and nothing is done here.

    Example::

        tl.extra.gdc_wait()
        x = tl.load(p)
    """
    if getattr(_semantic.builder.options, "launch_pdl", False):
        _on_target("gdc_wait", _semantic)


@builtin
def gdc_launch_dependents(_semantic: Any = None) -> None:
    """Let the next kernel of the stream start before this one ends, where it is launched with ``launch_pdl=True``: once all programs have called this or
    ended. A hint; where the target does not follow the option, nothing is done.

    Example::

        tl.extra.gdc_launch_dependents()
        tl.store(p, x)
    """
    _on_target("gdc_launch_dependents", _semantic)


__all__ = ["gdc_launch_dependents", "gdc_wait"]
