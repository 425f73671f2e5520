"""Loads, stores, atomics and the small operations with side effects."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from tilewright.dialects import prints
from tilewright.dialects.errors import ShapeMismatchError, TypeMismatchError
from tilewright.language import dtypes as t
from tilewright.language.const import unwrap
from tilewright.language.dtypes import pointer_type
from tilewright.language.semantic_arith import ArithmeticSemantic
from tilewright.language.semantic_base import describe
from tilewright.language.values import tensor

_CACHE = {"": "none", None: "none", ".ca": "ca", ".cg": "cg", ".cs": "cs", ".cv": "cv", ".wb": "wb", ".wt": "wt"}
_LOAD_CACHE, _STORE_CACHE = ("", ".ca", ".cg", ".cs", ".cv"), ("", ".wb", ".cg", ".cs", ".wt")
_EVICT = {"": "normal", None: "normal", "evict_normal": "normal", "evict_first": "evict_first", "evict_last": "evict_last"}
_SEM = {None: "acq_rel", "": "acq_rel", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel", "relaxed": "relaxed"}
_SCOPE = {None: "gpu", "": "gpu", "gpu": "gpu", "cta": "cta", "sys": "sys"}


def _choice(table: dict[Any, str], value: Any, what: str) -> str:
    value = unwrap(value)
    try:
        return table[value]
    except (KeyError, TypeError):
        raise TypeMismatchError(f"{what} is one of {', '.join(repr(k) for k in table if k is not None)}, not {value!r}") from None


class MemorySemantic(ArithmeticSemantic):
    """Operations on memory."""

    def _pointer(self, ptr: Any, what: str) -> tensor:
        if not isinstance(ptr, tensor) or not ptr.type.scalar.is_ptr():
            raise TypeMismatchError(f"{what} goes through a pointer or a tensor of pointers, not {describe(ptr)}")
        return ptr

    def _mask(self, mask: Any, what: str) -> tensor | None:
        mask = unwrap(mask)
        if mask is None:
            return None
        mask = self.to_tensor(mask)
        if not mask.type.scalar.is_bool():
            raise TypeMismatchError(f"the mask of {what} is int1 (a comparison), not {mask.type.scalar}")
        return mask

    def _no_block_pointer(self, boundary_check: Any, padding: Any, what: str) -> None:
        if unwrap(boundary_check) or unwrap(padding):
            raise TypeMismatchError(f"boundary_check and padding_option of {what} are for block pointers (tl.make_block_ptr); "
                                    "tensors of pointers take mask= and other=")

    def load(self, ptr: Any, mask: Any = None, other: Any = None, boundary_check: Any = (), padding_option: Any = "",
             cache_modifier: Any = "", eviction_policy: Any = "", volatile: Any = False) -> tensor:
        """Read through ptr; masked-off lanes read nothing and give ``other`` (0 without it)."""
        ptr = self._pointer(ptr, "load")
        self._no_block_pointer(boundary_check, padding_option, "load")
        mask, other = self._mask(mask, "load"), unwrap(other)
        if other is not None and mask is None:
            raise TypeMismatchError("load takes other= only with mask=")
        element = ptr.type.scalar.element_ty
        if not ptr.type.is_block():
            for value, name in ((mask, "mask"), (other, "other")):
                if isinstance(value, tensor) and value.type.is_block():
                    raise ShapeMismatchError(f"load through a scalar pointer takes a scalar {name}, not one of shape {list(value.shape)}")
        if other is not None:
            other = self.cast(self.to_tensor(other), element)
        if ptr.type.is_block():
            if mask is not None:
                ptr, mask = self.broadcast(ptr, mask)
            if other is not None:
                other = self.broadcast_to_rank(other, ptr.type.shape)
        stored = t.int8 if element.is_bool() else element
        if other is not None and element.is_bool():
            other = self.cast(other, t.int8)
        value = self.new("tt.load", [ptr, mask, other], ptr.type.with_element_ty(stored),
                         {"cache": self._cache(cache_modifier, _LOAD_CACHE, "load"),
                          "evict": _choice(_EVICT, eviction_policy, "eviction_policy"), "is_volatile": bool(unwrap(volatile))})
        return self.cast(value, t.int1) if element.is_bool() else value

    @staticmethod
    def _cache(value: Any, allowed: Sequence[str], what: str) -> str:
        value = unwrap(value) or ""
        if value not in allowed:
            raise TypeMismatchError(f"cache_modifier of {what} is one of {', '.join(map(repr, allowed))}, not {value!r}")
        return _CACHE[value]

    def broadcast_to_rank(self, value: tensor, shape: Sequence[int]) -> tensor:
        """As broadcast_to, with leading dims added first."""
        while value.type.is_block() and len(value.type.shape) < len(shape):
            value = self.expand_dims(value, 0)
        return self.broadcast_to(value, shape)

    def store(self, ptr: Any, value: Any, mask: Any = None, boundary_check: Any = (), cache_modifier: Any = "",
              eviction_policy: Any = "") -> None:
        """Write ``value``, cast to the pointee, through ptr where the mask holds."""
        ptr = self._pointer(ptr, "store")
        if ptr.type.scalar.is_const():
            raise TypeMismatchError("store through a pointer to const")
        self._no_block_pointer(boundary_check, "", "store")
        mask = self._mask(mask, "store")
        element = ptr.type.scalar.element_ty
        value = self.to_tensor(value)
        shape = ptr.type.shape
        for v, name in ((value, "value"), (mask, "mask")):
            if v is not None and v.type.is_block() and not shape:
                raise ShapeMismatchError(f"store through a scalar pointer takes a scalar {name}, not one of shape {list(v.shape)}; "
                                         "reduce it, or make a tensor of pointers")
        value = self.cast(value, element)
        if shape:
            value = self.broadcast_to_rank(value, shape)
            mask = self.broadcast_to_rank(mask, shape) if mask is not None else None
        if element.is_bool():
            value = self.cast(value, t.int8)
        self.builder.create("tt.store", [ptr.handle, value.handle, mask.handle if mask is not None else None], [],
                            {"cache": self._cache(cache_modifier, _STORE_CACHE, "store"),
                             "evict": _choice(_EVICT, eviction_policy, "eviction_policy")})

    # -- atomics ---------------------------------------------------------------------------------------------------
    def _atomic_operands(self, op: str, ptr: Any, value: Any, mask: Any) -> tuple[tensor, tensor, tensor | None]:
        ptr = self._pointer(ptr, f"atomic_{op}")
        if ptr.type.scalar.is_const():
            raise TypeMismatchError(f"atomic_{op} through a pointer to const")
        element = ptr.type.scalar.element_ty
        wide = element.primitive_bitwidth >= 32
        if element.is_ptr() or element.is_fp8() or not (wide or (op == "add" and element.is_floating())
                                                         or (op in ("xchg", "cas") and element.primitive_bitwidth == 16)):
            raise TypeMismatchError(f"atomic_{op} does not support {element}: it works on 32- and 64-bit values"
                                    + (", fp16 and bf16" if op == "add" else ""))
        if op in ("and", "or", "xor") and not element.is_int():
            raise TypeMismatchError(f"atomic_{op} works on integers, not {element}")
        mask = self._mask(mask, f"atomic_{op}")
        value = self.cast(self.to_tensor(value), element)
        shape = ptr.type.shape
        if not shape and (value.type.is_block() or (mask is not None and mask.type.is_block())):
            raise ShapeMismatchError(f"atomic_{op} through a scalar pointer takes a scalar value and mask")
        if shape:
            value = self.broadcast_to_rank(value, shape)
            mask = self.broadcast_to_rank(mask, shape) if mask is not None else None
        return ptr, value, mask

    def _rmw(self, op: str, ptr: tensor, value: tensor, mask: tensor | None, sem: Any, scope: Any) -> tensor:
        return self.new("tt.atomic_rmw", [ptr, value, mask], value.type,
                        {"rmw_op": op, "sem": _choice(_SEM, sem, "sem"), "scope": _choice(_SCOPE, scope, "scope")})

    def atomic_rmw(self, op: str, ptr: Any, value: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> tensor:
        """``op`` in add, and, or, xor, xchg, max, min. The result is the old value (0 where masked off)."""
        ptr, value, mask = self._atomic_operands(op, ptr, value, mask)
        scalar = value.type.scalar
        if op == "add" and scalar.is_floating():
            op = "fadd"
        if op in ("max", "min"):
            if scalar.is_floating():
                return self._atomic_float_extremum(op, ptr, value, mask, sem, scope)
            op = op if scalar.is_int_signed() else f"u{op}"
        return self._rmw(op, ptr, value, mask, sem, scope)

    def _atomic_float_extremum(self, op: str, ptr: tensor, value: tensor, mask: tensor | None, sem: Any, scope: Any) -> tensor:
        """Floats order as signed integers where positive and inversely as unsigned integers where negative."""
        scalar = value.type.scalar
        signed, unsigned = (t.int32, t.uint32) if scalar.primitive_bitwidth == 32 else (t.int64, t.uint64)
        bits = self.bitcast(value, signed)
        positive = self.greater_equal(bits, 0)
        negative = self.not_(positive)
        as_signed = self.bitcast(ptr, pointer_type(signed, ptr.type.scalar.address_space))
        as_unsigned = tensor(as_signed.handle, ptr.type.with_element_ty(pointer_type(unsigned, ptr.type.scalar.address_space)))
        on_positive = positive if mask is None else self.and_(mask, positive)
        on_negative = negative if mask is None else self.and_(mask, negative)
        up, down = ("max", "umin") if op == "max" else ("min", "umax")
        a = self._rmw(up, as_signed, bits, on_positive, sem, scope)
        b = self._rmw(down, as_unsigned, tensor(bits.handle, bits.type.with_element_ty(unsigned)), on_negative, sem, scope)
        b = tensor(b.handle, bits.type)
        return self.bitcast(self.where(positive, a, b), scalar)

    def atomic_cas(self, ptr: Any, cmp: Any, value: Any, sem: Any = None, scope: Any = None) -> tensor:
        """Store ``value`` where the memory holds ``cmp``; the result is the old value."""
        ptr, value, _ = self._atomic_operands("cas", ptr, value, None)
        cmp = self.cast(self.to_tensor(cmp), value.type.scalar)
        if ptr.type.is_block():
            cmp = self.broadcast_to_rank(cmp, ptr.type.shape)
        elif cmp.type.is_block():
            raise ShapeMismatchError("atomic_cas through a scalar pointer takes scalars")
        return self.new("tt.atomic_cas", [ptr, cmp, value], value.type,
                        {"sem": _choice(_SEM, sem, "sem"), "scope": _choice(_SCOPE, scope, "scope")})

    # -- the rest --------------------------------------------------------------------------------------------------
    def program_id(self, axis: Any) -> tensor:
        return self._grid("tt.get_program_id", axis, "program_id")

    def num_programs(self, axis: Any) -> tensor:
        return self._grid("tt.get_num_programs", axis, "num_programs")

    def _grid(self, op: str, axis: Any, what: str) -> tensor:
        axis = unwrap(axis)
        if not isinstance(axis, int) or axis not in (0, 1, 2):
            raise TypeMismatchError(f"the axis of {what} is 0, 1 or 2, not {describe(axis)}")
        return self.new(op, [], t.int32, {"axis": int(axis)})

    def assume(self, cond: Any) -> None:
        if not cond.type.scalar.is_bool():
            raise TypeMismatchError(f"assume takes a condition (a comparison, int1), not {describe(cond)}")
        if cond.type.is_block():
            raise ShapeMismatchError(f"assume takes a scalar condition, not one of shape {list(cond.shape)}")
        self.builder.create("tt.assume", [cond.handle], [], {})

    def debug_barrier(self) -> None:
        self.builder.create("tt.debug_barrier", [], [], {})

    def device_print(self, prefix: str, values: Sequence[Any], hex: bool) -> None:
        strange = next((c for c in prefix if c not in string.printable), None)
        if strange is not None:
            raise TypeMismatchError(f"the prefix of device_print is printable ASCII text; found {strange!r} in {prefix!r}")
        tensors = [self._printable(self.to_tensor(v), bool(hex)) for v in values]
        self.builder.create("tt.print", [v.handle for v in tensors], [],
                            {"prefix": prints.prefix_text(prefix, bool(tensors)), "hex": bool(hex),
                             "is_signed": [int(v.type.scalar.is_int_signed()) for v in tensors]})

    def _printable(self, value: tensor, hex: bool) -> tensor:
        """As targets print it: of floats the bits in hexadecimal, else fp32 or fp64."""
        scalar = value.type.scalar
        if not scalar.is_floating():
            return value
        if hex:
            return self.bitcast(value, getattr(t, f"uint{scalar.primitive_bitwidth}"))
        return value if scalar in (t.float32, t.float64) else self.cast(value, t.float32)

    def device_assert(self, cond: Any, message: str, mask: Any = None) -> None:
        """Only where the option ``debug`` is on."""
        if not getattr(self.builder.options, "debug", False) and not self.builder.is_interpreter:
            return
        cond = self.to_bool(cond)
        mask = self._mask(mask, "device_assert")
        if mask is not None:
            cond = self.or_(cond, self.not_(mask))
        self.builder.create("tt.assert", [cond.handle], [], {"message": message})

    def inline_asm(self, asm: str, constraints: str, operands: Sequence[Any], results: Sequence[t.dtype], pure: bool, pack: int) -> list[tensor]:
        """Target assembly applied to ``pack`` elements at a time; operands are broadcast."""
        values = [self.to_tensor(v) for v in operands]
        if len(values) > 1:
            for v in values[1:]:
                values[0], _ = self.broadcast(values[0], v)
            values = [self.broadcast(v, values[0])[0] for v in values]
        shape_type = values[0].type if values else t.int32
        types = [shape_type.with_element_ty(r) for r in results]
        handles = self.builder.create("tt.elementwise_inline_asm", [v.handle for v in values], types,
                                      {"asm_string": asm, "constraints": constraints, "pure": bool(pure), "packed": int(pack)})
        return [tensor(h, type) for h, type in zip(handles, types)]
