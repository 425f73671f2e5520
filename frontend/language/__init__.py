"""``tilewright.language``: the language of kernels, with Triton's names. ``import tilewright.language as tl``.

Light to import: nothing of MLIR and no numpy. ``tl.extra`` and ``tl.extra.libdevice`` load when used.
"""

from typing import Any

from tilewright.language import core, math, random, standard
from tilewright.language.core import *  # noqa: F403
from tilewright.language.math import *  # noqa: F403
from tilewright.language.random import *  # noqa: F403
from tilewright.language.standard import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name == "extra":
        import importlib

        return importlib.import_module("tilewright.language.extra")
    from tilewright.removed import LANGUAGE, refuse

    if name in LANGUAGE:
        refuse(f"triton.language.{name}", LANGUAGE[name])
    if name == "target_info":
        from tilewright.language import target_info

        return target_info
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["core", "math", "random", "standard", *core.__all__, *math.__all__, *random.__all__, *standard.__all__]
