"""Imports every module that registers instructions; after that ``registry.INSTRUCTIONS`` is complete. A new module is one more line."""

from __future__ import annotations

from tilewright.targets.amd.isa import (
    atomics,
    buffer_ops,
    control,
    flat_ops,
    global_ops,
    lds_ops,
    matrix,
    matrix_wmma,
    salu,
    salu_float,
    scratch_ops,
    smem,
    valu_compare,
    valu_convert,
    valu_division,
    valu_float,
    valu_integer,
    valu_lanes,
    valu_packed,
    waits,
)

MODULES = (atomics, buffer_ops, control, flat_ops, global_ops, lds_ops, matrix, matrix_wmma, salu, salu_float, scratch_ops, smem, waits,
           valu_compare, valu_convert, valu_division, valu_float, valu_integer, valu_lanes, valu_packed)
