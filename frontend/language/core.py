"""``tl.core``: types, values and the primitive functions of the language (those that Triton keeps in its core module)."""

from __future__ import annotations

from tilewright.language.const import ConstexprFunction, constexpr, constexpr_function, constexpr_type
from tilewright.language.const import unwrap as _unwrap_if_constexpr
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
    tuple_type,
    uint8,
    uint16,
    uint32,
    uint64,
    void,
)
from tilewright.language.values import active_semantic, base_value, current_semantic, tensor, tuple
