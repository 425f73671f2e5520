"""Triton's package of C++ modules. There are none here: see ``tilewright.removed``."""

from tilewright._C import libtriton as libtriton
