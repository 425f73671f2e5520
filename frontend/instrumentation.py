"""Not here: see ``tilewright.removed``."""

from tilewright.removed import MODULES, refuse

refuse("triton.instrumentation", MODULES["instrumentation"])
