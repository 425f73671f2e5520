"""``tl.core``: types, values and the primitive functions of the language (those that Triton keeps in its core module).

Every function works on tensors and Python numbers; arguments called constexpr are compile-time values. Shapes are powers of two.
``_semantic`` is passed by the compiler and never by users.
"""

from __future__ import annotations

from typing import Any

from tilewright.language.aggregate import aggregate as _aggregate  # Triton's name  # noqa: F401
from tilewright.language.const import ConstexprFunction, constexpr, constexpr_function, constexpr_type
from tilewright.language.const import unwrap as _unwrap_if_constexpr
from tilewright.language.core_compute import (
    PROPAGATE_NAN,
    PropagateNan,
    add,
    associative_scan,
    clamp,
    dot,
    dot_scaled,
    gather,
    histogram,
    map_elementwise,
    maximum,
    minimum,
    mul,
    reduce,
    sub,
    where,
)
from tilewright.language.core_control import (
    assume,
    condition,
    debug_barrier,
    device_assert,
    device_print,
    extern,
    extern_elementwise,
    inline_asm_elementwise,
    max_constancy,
    max_contiguous,
    multiple_of,
    range,
    slice,
    static_assert,
    static_print,
    static_range,
)
from tilewright.language.core_memory import (
    advance,
    atomic_add,
    atomic_and,
    atomic_cas,
    atomic_max,
    atomic_min,
    atomic_or,
    atomic_xchg,
    atomic_xor,
    load,
    load_tensor_descriptor,
    make_block_ptr,
    make_tensor_descriptor,
    store,
    store_tensor_descriptor,
)
from tilewright.language.core_tiles import (
    arange,
    broadcast,
    broadcast_to,
    cast,
    cat,
    expand_dims,
    full,
    item,
    join,
    num_programs,
    permute,
    program_id,
    reshape,
    split,
    to_tensor,
    trans,
    view,
)
from tilewright.language.decorators import builtin, is_builtin, member
from tilewright.language.dtypes import (
    MAX_TENSOR_NUMEL,
    bfloat16,
    block_type,
    dtype,
    float8e4b8,
    float8e4b15,
    float8e4nv,
    float8e5,
    float8e5b16,
    float16,
    float32,
    float64,
    int1,
    int8,
    int16,
    int32,
    int64,
    pi32_t,
    pointer_type,
    str_to_ty,
    tensor_descriptor_type,
    tuple_type,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)
from tilewright.language.tensor_descriptor import tensor_descriptor
from tilewright.language.values import active_semantic, base_value, current_semantic, tensor
from tilewright.language.values import tuple as tuple  # noqa: A004

TRITON_MAX_TENSOR_NUMEL = MAX_TENSOR_NUMEL
_tensor_member_fn = member
base_type = dtype


class const:  # noqa: N801
    """Annotation of a kernel's pointer parameter: nothing is stored through it. A store or an atomic is an error.

    Example::

        @triton.jit
        def copied(x: tl.const, y):
            tl.store(y, tl.load(x))

        copied(p, out)
    """


CONSTEXPR_0 = constexpr(0)
TRITON_BUILTIN = "__triton_builtin__"  # the attribute that marks a function of the language


def get_int_dtype(bitwidth: int, signed: bool) -> dtype:
    """The integer type of 1, 8, 16, 32 or 64 bits."""
    bitwidth, signed = _unwrap_if_constexpr(bitwidth), _unwrap_if_constexpr(signed)
    return int1 if bitwidth == 1 else dtype(f"{'' if signed else 'u'}int{bitwidth}")


def must_use_result(x: Any, s: Any = True) -> Any:
    """Decorator with a hint for linters; changes nothing."""
    return x if callable(x) else (lambda fn: fn)


def _promote_bfloat16_to_float32(t: tensor, _semantic: Any = None) -> tensor:
    return (_semantic or current_semantic()).promote_bf16(t)


__all__ = [
    "CONSTEXPR_0", "ConstexprFunction", "MAX_TENSOR_NUMEL", "PropagateNan", "PROPAGATE_NAN", "TRITON_MAX_TENSOR_NUMEL", "active_semantic", "add", "advance",
    "arange", "associative_scan", "assume", "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or", "atomic_xchg",
    "atomic_xor", "base_type", "base_value", "bfloat16", "block_type", "broadcast", "broadcast_to", "builtin", "cast", "cat", "clamp", "condition",
    "const", "constexpr", "constexpr_function", "constexpr_type", "current_semantic", "debug_barrier", "device_assert", "device_print", "dot",
    "dot_scaled", "dtype", "expand_dims", "extern", "extern_elementwise", "float16", "float32", "float64", "float8e4b15", "float8e4b8",
    "float8e4nv", "float8e5", "float8e5b16", "full", "gather", "get_int_dtype", "histogram", "inline_asm_elementwise", "int1", "int16", "int32", "int64", "int8",
    "is_builtin", "item", "join", "load", "load_tensor_descriptor", "make_block_ptr", "make_tensor_descriptor", "map_elementwise", "max_constancy",
    "max_contiguous", "maximum", "minimum", "mul", "multiple_of", "num_programs", "permute", "pi32_t", "pointer_type", "program_id", "range",
    "reduce", "reshape", "slice", "split", "static_assert", "static_print", "static_range", "store", "store_tensor_descriptor", "str_to_ty",
    "sub", "tensor", "tensor_descriptor", "tensor_descriptor_type", "to_tensor", "trans", "tuple", "tuple_type", "uint16", "uint32", "uint64", "uint8", "view", "void", "where",
]
