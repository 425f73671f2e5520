"""Reading operands from LDS transposed: gfx950's ds_read_b64_tr_b16 and ds_read_b64_tr_b8 (CDNA 4 manual, "LDS transpose loads").

Of each 16 lanes the 64-bit words that their addresses name are the rows of a matrix of 16 columns, and lane i receives column i: an
operand whose k is not what is consecutive in LDS comes into registers with k consecutive.
"""

from __future__ import annotations

from typing import Any

from tilewright.dialects.encodings import register_owners
from tilewright.dialects.lowering.indices import register_constants
from tilewright.dialects.shared_layouts import is_transposing

_INTRINSICS = {16: "llvm.amdgcn.ds.read.tr16.b64", 8: "llvm.amdgcn.ds.read.tr8.b64"}


def load_transposed(b: Any, plan: Any, bytes_: int) -> list[Any] | None:
    """The registers of ``plan`` (a MatrixLoadPlan) by transposing loads, or None where its layouts do not fit them."""
    bits = plan.element_bits
    if bits not in _INTRINSICS or plan.has_padding or plan.view.constant & (8 * bytes_ // bits - 1):
        return None
    read = is_transposing(plan.view.memory.layout, plan.layout, bits, bytes_)
    if read is None:
        return None
    count = (8 * bytes_ // bits).bit_length() - 1
    rows = plan.layout.columns("register")[:count]
    in_registers = [plan.layout.columns("register").index(c) for c in rows]
    columns = [plan.offset(c) for c in (*read.columns("lane"), *read.columns("warp"))]
    constants, owners = register_constants(plan.layout), register_owners(plan.layout)
    steps = [0]
    for i in in_registers:
        steps += [s ^ 1 << i for s in steps]
    mask = steps[-1]
    i32x2 = b.vec(2, b.t_i32)
    type_ = b.vec(4, b.t_i16) if bits == 16 else i32x2
    out: list[Any] = [None] * len(constants)
    for r, owner in enumerate(owners):
        if r & mask or owner != r:
            continue
        pointer = plan.address(columns, plan.offset(constants[r]))
        stored = plan.ctx.storage_type(plan.element_type)
        vector = b.bitcast(b.call(_INTRINSICS[bits] + (".v4i16" if bits == 16 else ".v2i32"), type_, [pointer]), b.vec(1 << count, stored))
        for step, value in zip(steps, b.unpack_vector(vector, 1 << count)):
            out[r ^ step] = plan.ctx.from_storage(value, plan.element_type)
    return [out[r] for r in owners]
