"""Not here: see ``tilewright.removed``."""

from tilewright.removed import MODULES, refuse

refuse("triton.tools.build_extern", MODULES["tools.build_extern"])
