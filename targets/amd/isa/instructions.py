"""Imports every module that registers instructions; after that ``registry.INSTRUCTIONS`` is complete. A new module is one more line."""

from __future__ import annotations

from tilewright.targets.amd.isa import control, matrix, matrix_wmma, salu, smem, waits

MODULES = (control, matrix, matrix_wmma, salu, smem, waits)
