"""Not here: see ``tilewright.removed``."""

from tilewright.removed import MODULES, refuse

refuse("triton.tools.triton_to_gluon_translater", MODULES["tools.triton_to_gluon_translater"])
