"""What a ``tt.dot_scaled`` multiplies: formats of operands, scales, and the shapes that belong together.

Operands hold one number an element, but e2m1 two a byte, the first in the lower half, along K or (``k_pack`` false) along M or N. A scale
belongs to a group of neighbours along K: 32 with e8m0 scales (a byte s is 2^(s-127), 255 is NaN), 16 with e4m3 ones. Both operands' scales
have K last: [M, K/group] and [N, K/group]. Source: OCP "Microscaling Formats (MX) Specification" 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# format → MLIR type of the operand's elements
FORMATS = {"e2m1": "i8", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "bf16": "bf16", "fp16": "f16"}
# MLIR type of scales → how many numbers along K share one
GROUPS = {"i8": 32, "f8E4M3FN": 16}
NARROW = ("e2m1", "e4m3", "e5m2")


def compute_format(a: str, b: str, scaled: bool) -> str:
    """The MLIR type that holds both operands, times their scales, for a product by ``tt.dot``: bf16, where fp16 is multiplied f32 (all values
    then have no more bits than tf32 has), or fp16 beside no scales at all and nothing wider."""
    if "fp16" not in (a, b):
        return "bf16"
    return "f32" if scaled or "bf16" in (a, b) else "f16"


def unpacked(shape: Sequence[int], format: str, k_pack: bool, k_dim: int) -> list[int]:
    """The shape of an operand of numbers; ``k_dim`` (-1 of the first operand, -2 of the second) is where K is."""
    out = list(shape)
    if format == "e2m1":
        out[k_dim if k_pack else -3 - k_dim] *= 2
    return out


def scale_shape(shape: Sequence[int], k_dim: int, group: int) -> list[int]:
    """The shape of an operand's scales, from its unpacked shape."""
    return [*shape[:-2], shape[-3 - k_dim], shape[k_dim] // group]


def sizes(node: Any) -> tuple[int, int, int]:
    """(M, N, K) of a ``tt.dot_scaled`` (a structure.Node), in numbers."""
    from tilewright.dialects.analysis.structure import type_info

    shape = unpacked(type_info(node.operands[0].type).shape or (), node.str_attr("a_format"), node.bool_attr("a_k_pack"), -1)
    m, n = (type_info(node.results[0].type).shape or ())[-2:]
    return m, n, shape[-1]


def describe(node: Any) -> str:
    """``tl.dot_scaled 64×64×128 of e2m1 and e4m3``: (M, N, K) and the operands' formats, for ``--explain``."""
    return f"tl.dot_scaled {'×'.join(map(str, sizes(node)))} of {node.str_attr('a_format')} and {node.str_attr('b_format')}"


def verify(op: Any) -> None:
    """Raises ValueError where a tt.dot_scaled's operands do not belong together."""
    from tilewright.dialects._mlir import ir
    from tilewright.dialects.analysis.structure import type_info

    formats = [ir.StringAttr(op.attributes[f"{x}_format"]).value for x in "ab"]
    packs = [ir.BoolAttr(op.attributes[f"{x}_k_pack"]).value for x in "ab"]
    present = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    infos = [type_info(v.type) for v in op.operands]
    scales = iter(infos[3:])
    shapes = []
    for i, (format, pack) in enumerate(zip(formats, packs)):
        if format not in FORMATS:
            raise ValueError(f"dot_scaled: a format is one of {', '.join(FORMATS)}, found {format!r}")
        if str(infos[i].element) != FORMATS[format]:
            raise ValueError(f"dot_scaled: an operand of format {format} has elements of {FORMATS[format]}, found {infos[i].element}")
        k_dim = -1 - i
        shapes.append(unpacked(infos[i].shape or (), format, pack, k_dim))
        if present[3 + i]:
            scale = next(scales)
            group = GROUPS.get(str(scale.element))
            if group is None:
                raise ValueError(f"dot_scaled: scales are of {' or '.join(GROUPS)}, found {scale.element}")
            wanted = scale_shape(shapes[i], k_dim, group)
            if list(scale.shape or ()) != wanted:
                raise ValueError(f"dot_scaled: the scales of operand {i} have shape {wanted}, found {list(scale.shape or ())}")
    a, b = shapes
    if len(a) != len(b) or a[-1] != b[-2] or list(infos[2].shape or ()) != [*a[:-1], b[-1]] or infos[2].type != op.results[0].type:
        raise ValueError(f"dot_scaled: operands of {a} and {b} (unpacked), accumulator {infos[2].type}, result {op.results[0].type} do not fit")
