"""Types of the language: scalars, pointers, tiles. They carry signedness, which the IR does not.

Names are Triton's: ``tl.float32.name == "fp32"``, ``tl.int32.name == "int32"``; signatures write "fp32", "i32", "u8", "i1",
"*fp16" (``str_to_ty`` reads them, ``signature_name`` writes them).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from enum import Enum
from typing import Any

from tilewright.dialects.errors import ShapeMismatchError, TypeMismatchError

_SINT = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UINT = {"int1": 1, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
# name → (width, explicit mantissa bits, exponent bias)
_FLOAT = {
    "fp8e4b15": (8, 3, 15), "fp8e4nv": (8, 3, 7), "fp8e4b8": (8, 3, 8), "fp8e5": (8, 2, 15), "fp8e5b16": (8, 2, 16),
    "fp16": (16, 10, 15), "bf16": (16, 7, 127), "fp32": (32, 23, 127), "fp64": (64, 52, 1023),
}


class _Signedness(Enum):
    SIGNED = 0
    UNSIGNED = 1


class _Kind(Enum):
    BOOLEAN = 0
    INTEGRAL = 1
    FLOATING = 2


class dtype:
    """A scalar type. Also the base of the compound types, whose predicates are those of no scalar."""

    SINT_TYPES = list(_SINT)
    UINT_TYPES = list(_UINT)
    FP_TYPES = list(_FLOAT)
    STANDARD_FP_TYPES = ["fp16", "bf16", "fp32", "fp64"]
    OTHER_TYPES = ["void"]
    SIGNEDNESS = _Signedness
    KIND = _Kind

    name: str
    primitive_bitwidth: int

    def __init__(self, name: str):
        name = getattr(name, "value", name)
        self.name = name
        self._hash = hash(name)
        self.int_bitwidth = 0
        if name in _SINT or name in _UINT:
            self.int_signedness = _Signedness.SIGNED if name in _SINT else _Signedness.UNSIGNED
            self.int_bitwidth = self.primitive_bitwidth = _SINT.get(name) or _UINT[name]
        elif name in _FLOAT:
            self.primitive_bitwidth, self.fp_mantissa_width, self.exponent_bias = _FLOAT[name]
        elif name == "void":
            self.primitive_bitwidth = 0
        else:
            raise TypeMismatchError(f"no type is called {name!r}; there are {', '.join([*_SINT, *_UINT, *_FLOAT])}")

    __triton_builtin__ = True  # kernels call types: tl.float32(0)

    def __call__(self, value: Any, _semantic: Any = None) -> Any:
        """In a kernel: ``value``, a number or a tensor, in this type, as a run-time value. TypeMismatchError where it has no such cast."""
        from tilewright.language.values import current_semantic

        semantic = _semantic or current_semantic()
        if type(self) is not dtype or self.name == "void":
            raise TypeMismatchError(f"{self!r} cannot be called; scalar types can: tl.float32(x) is x.to(tl.float32)")
        return semantic.cast(semantic.to_tensor(value), self)

    # -- predicates ------------------------------------------------------------------------------------------------
    def is_fp8(self) -> bool:
        return self.name.startswith("fp8")

    def is_fp8e4nv(self) -> bool:
        return self.name == "fp8e4nv"

    def is_fp8e4b8(self) -> bool:
        return self.name == "fp8e4b8"

    def is_fp8e4b15(self) -> bool:
        return self.name == "fp8e4b15"

    def is_fp8e5(self) -> bool:
        return self.name == "fp8e5"

    def is_fp8e5b16(self) -> bool:
        return self.name == "fp8e5b16"

    def is_fp16(self) -> bool:
        return self.name == "fp16"

    def is_bf16(self) -> bool:
        return self.name == "bf16"

    def is_fp32(self) -> bool:
        return self.name == "fp32"

    def is_fp64(self) -> bool:
        return self.name == "fp64"

    def is_int1(self) -> bool:
        return self.name == "int1"

    def is_int8(self) -> bool:
        return self.name == "int8"

    def is_int16(self) -> bool:
        return self.name == "int16"

    def is_int32(self) -> bool:
        return self.name == "int32"

    def is_int64(self) -> bool:
        return self.name == "int64"

    def is_uint8(self) -> bool:
        return self.name == "uint8"

    def is_uint16(self) -> bool:
        return self.name == "uint16"

    def is_uint32(self) -> bool:
        return self.name == "uint32"

    def is_uint64(self) -> bool:
        return self.name == "uint64"

    def is_floating(self) -> bool:
        return self.name in _FLOAT

    def is_standard_floating(self) -> bool:
        return self.name in ("fp16", "bf16", "fp32", "fp64")

    def is_int_signed(self) -> bool:
        return self.name in _SINT

    def is_int_unsigned(self) -> bool:
        return self.name in _UINT

    def is_int(self) -> bool:
        return self.name in _SINT or self.name in _UINT

    def is_bool(self) -> bool:
        return self.name == "int1"

    def is_void(self) -> bool:
        return self.name == "void"

    def is_block(self) -> bool:
        return False

    def is_ptr(self) -> bool:
        return False

    def is_const(self) -> bool:
        return False

    @staticmethod
    def is_dtype(type_str: str) -> bool:
        return type_str in _SINT or type_str in _UINT or type_str in _FLOAT or type_str == "void"

    # -- facts -----------------------------------------------------------------------------------------------------
    @property
    def scalar(self) -> dtype:
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def itemsize(self) -> int:
        """Bytes in memory (int1 takes one)."""
        return (self.primitive_bitwidth + 7) // 8

    def kind(self) -> _Kind:
        if self.is_bool():
            return _Kind.BOOLEAN
        return _Kind.INTEGRAL if self.is_int() else _Kind.FLOATING

    def get_int_max_value(self) -> int:
        if self.int_signedness == _Signedness.SIGNED:
            return 2 ** (self.int_bitwidth - 1) - 1
        return 2**self.int_bitwidth - 1

    def get_int_min_value(self) -> int:
        if self.int_signedness == _Signedness.SIGNED:
            return -(2 ** (self.int_bitwidth - 1))
        return 0

    def get_block_shapes(self) -> tuple[int, ...]:
        return ()

    @property
    def signature_name(self) -> str:
        """As signatures write it: "i32", "u8", "fp32"."""
        if self.name in _SINT or self.name == "int1":
            return f"i{self.int_bitwidth}"
        return f"u{self.int_bitwidth}" if self.name in _UINT else self.name

    codegen_name = signature_name
    cache_key_part = signature_name

    def mangle(self) -> str:
        return self.signature_name

    def with_element_ty(self, element_ty: dtype) -> dtype:
        return element_ty

    def __eq__(self, other: object) -> bool:
        other = getattr(other, "value", other) if type(other).__name__ == "constexpr" else other
        return type(other) is dtype and other.name == self.name

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"tilewright.language.{self.name}"

    def __reduce__(self) -> Any:
        return (dtype, (self.name,))


class pointer_type(dtype):
    """Pointer to ``element_ty`` in an address space (1 = global). ``const``: nothing is stored through it."""

    def __init__(self, element_ty: dtype, address_space: int = 1, const: bool = False):
        element_ty = getattr(element_ty, "value", element_ty) if type(element_ty).__name__ == "constexpr" else element_ty
        if not isinstance(element_ty, dtype):
            raise TypeMismatchError(f"pointer_type takes a type, not {element_ty!r}")
        self.element_ty = element_ty
        self.address_space = address_space
        self.const = const
        self.primitive_bitwidth = 64
        self.int_bitwidth = 0
        self.name = f"pointer<{element_ty}>" if not const else f"const_pointer<{element_ty}>"
        self._hash = hash((self.name, address_space))

    def is_ptr(self) -> bool:
        return True

    def is_const(self) -> bool:
        return self.const

    @property
    def signature_name(self) -> str:
        return ("*k" if self.const else "*") + self.element_ty.signature_name

    def mangle(self) -> str:
        return f"P{self.element_ty.mangle()}"

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, pointer_type) and self.element_ty == other.element_ty
                and self.address_space == other.address_space and self.const == other.const)

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        return (pointer_type, (self.element_ty, self.address_space, self.const))


class block_type(dtype):
    """A tile: ``shape`` (powers of two, at least one dim) of a scalar or pointer type."""

    def __init__(self, element_ty: dtype, shape: Sequence[int]):
        self.element_ty = element_ty
        self._shape = tuple(int(s) for s in shape)
        if not self._shape:
            raise ShapeMismatchError("a block has at least one dim")
        for s in self._shape:
            if s < 1 or s & (s - 1):
                raise ShapeMismatchError(f"block dims are powers of two, and shape {list(self._shape)} has {s}")
        self.numel = 1
        for s in self._shape:
            self.numel *= s
        if self.numel > MAX_TENSOR_NUMEL:
            raise ShapeMismatchError(f"a block holds at most {MAX_TENSOR_NUMEL} elements, and shape {list(self._shape)} has {self.numel}")
        self.name = f"<{list(self._shape)}, {element_ty}>"
        self._hash = hash((self._shape, element_ty))

    @property
    def primitive_bitwidth(self) -> int:  # type: ignore[override]
        return self.element_ty.primitive_bitwidth

    @property
    def int_bitwidth(self) -> int:  # type: ignore[override]
        return self.element_ty.int_bitwidth

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def is_block(self) -> bool:
        return True

    def get_block_shapes(self) -> tuple[int, ...]:
        return self._shape

    @property
    def scalar(self) -> dtype:
        return self.element_ty

    @property
    def nbytes(self) -> int:
        return self.numel * self.element_ty.itemsize

    @property
    def signature_name(self) -> str:
        return self.name

    def mangle(self) -> str:
        return f"{self.element_ty.mangle()}S{'_'.join(map(str, self._shape))}S"

    def with_element_ty(self, element_ty: dtype) -> block_type:
        return _block_of(element_ty, self._shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, block_type) and self._shape == other._shape and self.element_ty == other.element_ty

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        return (block_type, (self.element_ty, self._shape))


@functools.lru_cache(4096)
def _block_of(element_ty: dtype, shape: tuple[int, ...]) -> block_type:
    return block_type(element_ty, shape)


class tuple_type(dtype):
    """The type of a tuple of values; ``fields`` are the names of a named tuple."""

    def __init__(self, types: Sequence[Any], fields: Sequence[str] | None = None):
        self.types = list(types)
        self.fields = list(fields) if fields else None
        self.name = f"[{', '.join(str(t) for t in self.types)}]"
        self.primitive_bitwidth = self.int_bitwidth = 0
        self._hash = hash(tuple(self.types))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple_type) and self.types == other.types and self.fields == other.fields

    def __hash__(self) -> int:
        return self._hash

    def __iter__(self) -> Any:
        return iter(self.types)

    def __getitem__(self, i: int) -> Any:
        return self.types[i]

    def mangle(self) -> str:
        return "T" + "_".join(t.mangle() for t in self.types) + "T"

    def __reduce__(self) -> Any:
        return (tuple_type, (self.types, self.fields))


class tensor_descriptor_type(dtype):
    """A tensor descriptor: blocks of ``block_type`` (a block of the tensor's elements); ``padding`` ("zero" or "nan") is what elements
    outside the tensor read as. Signatures write "tensordesc<fp16[128,64]>", with padding "tensordesc<fp16[128,64] nan>"."""

    def __init__(self, block_type: block_type, padding: str = "zero"):
        self.block_type = block_type
        self.element_ty = block_type.element_ty
        self.padding = padding
        self.primitive_bitwidth = self.int_bitwidth = 0
        self.name = f"tensor_descriptor<{block_type}{'' if padding == 'zero' else ' ' + padding}>"
        self._hash = hash(self.name)

    @property
    def block_shape(self) -> tuple[int, ...]:
        return self.block_type.shape

    @property
    def signature_name(self) -> str:
        padding = "" if self.padding == "zero" else f" {self.padding}"
        return f"tensordesc<{self.element_ty.signature_name}[{','.join(map(str, self.block_shape))}]{padding}>"

    @property
    def flat_types(self) -> list[dtype]:
        """Of the arguments that a kernel's argument of this type is: the base, the sizes, the strides without the last (which is 1)."""
        rank = len(self.block_shape)
        return [pointer_type(self.element_ty), *[int32] * rank, *[int64] * (rank - 1)]

    def mangle(self) -> str:
        return f"D{self.block_type.mangle()}{self.padding[0]}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tensor_descriptor_type) and self.block_type == other.block_type and self.padding == other.padding

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        return (tensor_descriptor_type, (self.block_type, self.padding))


_DESCRIPTOR = re.compile(r"tensordesc<(\w+)\[([\d, ]+)\](?: (nan|zero))?>")


def descriptor_of(name: Any) -> Any:
    """The tensor_descriptor_type that a signature writes, or None where it writes another type."""
    if not isinstance(name, str) or not name.startswith("tensordesc<"):
        return None
    found = _DESCRIPTOR.fullmatch(name)
    if found is None:
        raise TypeMismatchError(f"signature type {name!r} is none; descriptors are written tensordesc<fp16[128,64]>, or "
                                "tensordesc<fp16[128,64] nan> with padding")
    element, sizes, padding = found.groups()
    return tensor_descriptor_type(block_type(str_to_ty(element), [int(s) for s in sizes.split(",")]), padding or "zero")


MAX_TENSOR_NUMEL = 1048576

void = dtype("void")
int1 = dtype("int1")
int8 = dtype("int8")
int16 = dtype("int16")
int32 = dtype("int32")
int64 = dtype("int64")
uint8 = dtype("uint8")
uint16 = dtype("uint16")
uint32 = dtype("uint32")
uint64 = dtype("uint64")
float8e5 = dtype("fp8e5")
float8e5b16 = dtype("fp8e5b16")
float8e4nv = dtype("fp8e4nv")
float8e4b8 = dtype("fp8e4b8")
float8e4b15 = dtype("fp8e4b15")
float16 = dtype("fp16")
bfloat16 = dtype("bf16")
float32 = dtype("fp32")
float64 = dtype("fp64")
pi32_t = pointer_type(int32)

_BY_SIGNATURE: dict[str, dtype] = {
    t.signature_name: t
    for t in (int1, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float8e5, float8e5b16, float8e4nv, float8e4b8,
              float8e4b15, float16, bfloat16, float32, float64, void)
}
_BY_SIGNATURE |= {t.name: t for t in list(_BY_SIGNATURE.values())}
_BY_SIGNATURE |= {"B": int1, "u1": int1, "f16": float16, "f32": float32, "f64": float64}


def str_to_ty(name: Any) -> Any:
    """The type that a signature writes: "fp32", "i32", "u8", "i1", "*bf16", "*kfp32" (const), or a tuple of such."""
    if isinstance(name, dtype):
        return name
    if isinstance(name, (tuple, list)):
        return tuple_type([str_to_ty(n) for n in name], getattr(name, "_fields", None))
    found = _BY_SIGNATURE.get(name) or descriptor_of(name)
    if found is None and isinstance(name, str) and name.startswith("*"):
        const = name.startswith("*k")
        found = _BY_SIGNATURE[name] = pointer_type(str_to_ty(name[2 if const else 1:]), 1, const)
    if found is None:
        raise TypeMismatchError(f"signature type {name!r} is unknown; types are {', '.join(_BY_SIGNATURE)}, *TYPE and tensordesc<TYPE[SIZES]>")
    return found
