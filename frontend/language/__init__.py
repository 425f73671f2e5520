"""``tilewright.language``: the language of kernels, with Triton's names. ``import tilewright.language as tl``.

Light to import: nothing of MLIR and no numpy.
"""

from tilewright.language import core, math, standard
from tilewright.language.core import *  # noqa: F403
from tilewright.language.math import *  # noqa: F403
from tilewright.language.standard import *  # noqa: F403

__all__ = ["core", "math", "standard", *core.__all__, *math.__all__, *standard.__all__]
