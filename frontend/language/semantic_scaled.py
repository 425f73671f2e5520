"""``tl.dot_scaled``: checks and the op."""

from __future__ import annotations

from typing import Any

from tilewright.dialects import scaled
from tilewright.dialects.errors import ShapeMismatchError, TypeMismatchError
from tilewright.language import dtypes as t
from tilewright.language.const import unwrap
from tilewright.language.dtypes import block_type
from tilewright.language.semantic_base import describe
from tilewright.language.semantic_tile import TileSemantic
from tilewright.language.values import tensor

# format → (the type of its elements, what may be given instead and is read as its bits)
_TYPES = {"e2m1": (t.uint8, None), "e4m3": (t.float8e4nv, t.uint8), "e5m2": (t.float8e5, t.uint8), "bf16": (t.bfloat16, t.uint16),
          "fp16": (t.float16, t.uint16)}
_SCALES = {"uint8": 32, "fp8e4nv": 16}


class ScaledSemantic(TileSemantic):
    """Products in microscaling formats."""

    def dot_scaled(self, lhs: Any, lhs_scale: Any, lhs_format: Any, rhs: Any, rhs_scale: Any, rhs_format: Any, acc: Any = None,
                   fast_math: Any = False, lhs_k_pack: Any = True, rhs_k_pack: Any = True, out_dtype: Any = t.float32) -> tensor:
        """``(lhs × lhs_scale) @ (rhs × rhs_scale) + acc`` of 2 or, batched, 3 dims."""
        out_dtype, acc = unwrap(out_dtype), unwrap(acc)
        if out_dtype != t.float32:
            raise TypeMismatchError(f"out_dtype of dot_scaled is tl.float32, not {out_dtype}; cast the result with .to()")
        formats = [self._format(f, side) for f, side in ((lhs_format, "lhs"), (rhs_format, "rhs"))]
        packs = [bool(unwrap(lhs_k_pack)), bool(unwrap(rhs_k_pack))]
        operands = [self._scaled_operand(v, f, side) for v, f, side in zip((lhs, rhs), formats, ("lhs", "rhs"))]
        ranks = [len(o.type.shape) for o in operands]
        if ranks[0] not in (2, 3) or ranks[0] != ranks[1]:
            raise ShapeMismatchError(f"dot_scaled takes two tensors of 2, or both of 3, dims, not of shapes {list(operands[0].shape)} and {list(operands[1].shape)}")
        for side, format, pack in zip(("lhs", "rhs"), formats, packs):
            if not pack and format != "e2m1":
                raise TypeMismatchError(f"{side}_k_pack=False is for e2m1, which packs two numbers a byte, not for {format}")
        a, b = (scaled.unpacked(o.type.shape, f, p, -1 - i) for i, (o, f, p) in enumerate(zip(operands, formats, packs)))
        if a[-1] != b[-2]:
            raise ShapeMismatchError(f"dot_scaled of {a[-2]}×{a[-1]} and {b[-2]}×{b[-1]} numbers (lhs {list(operands[0].shape)} of {formats[0]}, rhs "
                                     f"{list(operands[1].shape)} of {formats[1]}): K has to be the same; e2m1 has two numbers a byte along K, or along M or N "
                                     "with lhs_k_pack=False or rhs_k_pack=False")
        if a[:-2] != b[:-2]:
            raise ShapeMismatchError(f"dot_scaled of shapes {list(operands[0].shape)} and {list(operands[1].shape)}: the batch dims differ")
        scales = [self._scales(s, shape, f, side, i) for i, (s, shape, f, side) in enumerate(zip((lhs_scale, rhs_scale), (a, b), formats, ("lhs", "rhs")))]
        type = block_type(t.float32, [*a[:-1], b[-1]])
        if acc is None:
            acc = self.constant(0, type)
        else:
            acc = self.to_tensor(acc)
            if acc.type != type:
                raise (TypeMismatchError if acc.type.is_block() and acc.type.shape == type.shape else ShapeMismatchError)(
                    f"the accumulator of this dot_scaled is {type}, not {acc.type}")
        attrs = {"a_format": formats[0], "b_format": formats[1], "a_k_pack": packs[0], "b_k_pack": packs[1], "fast_math": bool(unwrap(fast_math))}
        return self.new("tt.dot_scaled", [*operands, acc, *scales], type, attrs)

    @staticmethod
    def _format(format: Any, side: str) -> str:
        format = unwrap(format)
        if not isinstance(format, str) or format not in _TYPES:
            raise TypeMismatchError(f"{side}_format is one of {', '.join(map(repr, _TYPES))}, a compile-time text, not {describe(format)}")
        return format

    def _scaled_operand(self, value: Any, format: str, side: str) -> tensor:
        value = self._block(value, "dot_scaled")
        own, bits = _TYPES[format]
        if value.type.scalar == own:
            return value
        if value.type.scalar == bits:
            return self.bitcast(value, own)
        also = f" or its bits as {bits}" if bits else ", two numbers a byte"
        raise TypeMismatchError(f"{side} of format {format} has elements of {own}{also}, not {value.type.scalar}")

    def _scales(self, scale: Any, shape: list[int], format: str, side: str, number: int) -> tensor | None:
        scale = unwrap(scale)
        if scale is None:
            return None
        if not isinstance(scale, tensor):
            raise TypeMismatchError(f"{side}_scale is a tensor of scales or None, not {describe(scale)}")
        group = _SCALES.get(scale.type.scalar.name)
        if group is None:
            raise TypeMismatchError(f"{side}_scale has elements of uint8 (e8m0, one for 32 numbers along K) or float8e4nv (one for 16), not {scale.type.scalar}")
        if group == 16 and format not in scaled.NARROW:
            raise TypeMismatchError(f"float8e4nv scales go with {', '.join(scaled.NARROW)}, whose products with them are exact, not with {format}; "
                                    "use uint8 (e8m0) scales")
        k_dim = -1 - number
        k = shape[k_dim]
        if k % group:
            raise ShapeMismatchError(f"one scale of {side} belongs to {group} numbers along K, of which there are only {k}")
        wanted = tuple(scaled.scale_shape(shape, k_dim, group))
        if scale.type.shape != wanted:
            rows = "M" if side == "lhs" else "N"
            raise ShapeMismatchError(f"{side}_scale has shape {list(wanted)} ([{rows}, K / {group}]), not {list(scale.shape)}")
        return scale
