"""Stands for ``triton`` until it is imported; then Tilewright does (see dropin.py)."""

import sys

from tilewright import dropin

del sys.modules[dropin.ALIAS]  # this module, half imported; what the name means from here on is what the import statement gives
dropin.install_as_triton()
