"""Not here: see ``tilewright.removed``."""

from tilewright.removed import MODULES, refuse

refuse("triton.tools.experimental_descriptor", MODULES["tools.experimental_descriptor"])
