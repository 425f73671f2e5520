"""Not here: see ``tilewright.removed``."""

from tilewright.removed import MODULES, refuse

refuse("triton.experimental", MODULES["experimental"])
