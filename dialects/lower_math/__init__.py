"""Portable math: one function an operation, written against ``LLVMBuilder`` scalars, so that every GPU-like target has it.

``lookup(name, type)`` finds the function for libdevice's portable names ("exp", "pow", "isnan", …) and an MLIR type. f32 and f64
have functions of their own; f16 and bf16 go through f32. docs/math_accuracy.md states the largest error measured of each.
A target overrides by ``hooks.math = {(name, "f32"): MathFunction(…)}`` where it has an instruction of stated accuracy.
"""

from __future__ import annotations

from tilewright.dialects.lower_math.registry import MathFunction, defined, functions, lookup

__all__ = ["MathFunction", "defined", "functions", "lookup"]
