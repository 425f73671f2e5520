"""Result types of the language. The expected ones are what Triton 3.6.0 gave for the same expressions, unless marked."""

from __future__ import annotations

import contextlib
import io

import pytest
from tt_execution import compile_tt, define

import tilewright.language as tl
from tilewright.language.dtypes import str_to_ty

SIG = {"p32": "*fp32", "p16": "*fp16", "pb": "*bf16", "p64": "*fp64", "p8": "*i8", "pi32": "*i32", "pi64": "*i64", "pu8": "*u8", "pi1": "*i1",
       "pu32": "*u32", "s": "i32", "f": "fp32", "C": "constexpr"}
LOADS = [("f32", "p32"), ("f16", "p16"), ("b16", "pb"), ("f64", "p64"), ("i8", "p8"), ("i32", "pi32"), ("i64", "pi64"), ("u8", "pu8"),
         ("i1", "pi1"), ("u32", "pu32")]

TRITON = """
i8 + 1 | int8 (64,)
i8 & 1 | int8 (64,)
u8 & 1 | uint8 (64,)
i8 / 2 | fp32 (64,)
f16 / f16 | fp32 (64,)
f16 + 1.0 | fp16 (64,)
f16 + f32 | fp32 (64,)
f16 + b16 | fp16 (64,)
b16 + b16 | bf16 (64,)
b16 + f32 | fp32 (64,)
f32 + f64 | fp64 (64,)
f16 * f | fp32 (64,)
i32 + 1.5 | fp32 (64,)
i1 + i1 | int1 (64,)
i1 + 1 | int32 (64,)
i1 * f32 | fp32 (64,)
i64 % i32 | int64 (64,)
i32 + u32 | uint32 (64,)
i64 + u32 | int64 (64,)
i8 + u8 | uint8 (64,)
i32 + u8 | int32 (64,)
f32 % 2 | fp32 (64,)
f16 % f16 | fp32 (64,)
u8 << 1 | uint8 (64,)
i8 >> i32 | int32 (64,)
-i1 | int1 (64,)
~i1 | int1 (64,)
-u8 | uint8 (64,)
i32 == f16 | int1 (64,)
i1 & i32 | int32 (64,)
tl.maximum(b16, b16) | fp32 (64,)
tl.maximum(f16, f16) | fp16 (64,)
tl.maximum(i8, 3) | int32 (64,)
tl.minimum(s, 4.0) | fp32 ()
tl.sum(b16, 0) | bf16 ()
tl.sum(f16, 0) | fp16 ()
tl.sum(i8, 0) | int32 ()
tl.sum(u8, 0) | uint32 ()
tl.sum(i1, 0) | uint32 ()
tl.max(f16, 0) | fp32 ()
tl.max(b16, 0) | fp32 ()
tl.max(i8, 0) | int32 ()
tl.max(u8, 0) | int32 ()
tl.max(f16, 0, return_indices=True)[0] | fp16 ()
tl.max(i8, 0, return_indices=True)[0] | int8 ()
tl.max(b16, 0, return_indices=True)[0] | fp32 ()
tl.max(b16, 0, return_indices=True)[1] | int32 ()
tl.argmax(f32, 0) | int32 ()
tl.cumsum(i8, 0) | int32 (64,)
tl.cumsum(b16, 0) | fp32 (64,)
tl.cumsum(f16, 0) | fp16 (64,)
tl.cumprod(b16, 0) | fp32 (64,)
tl.abs(f16) | fp16 (64,)
tl.abs(u8) | uint8 (64,)
tl.fma(f16, f16, f16) | fp16 (64,)
tl.clamp(f16, 0.0, 1.0) | fp32 (64,)
tl.clamp(b16, 0.0, 1.0) | fp32 (64,)
tl.sigmoid(f32) | fp32 (64,)
tl.softmax(f32) | fp32 (64,)
tl.where(i1, 1.0, f16) | fp16 (64,)
tl.where(i1, 1.0, 2) | fp32 (64,)
tl.xor_sum(i8, 0) | int8 ()
tl.reduce_or(i8, 0) | int8 ()
tl.cdiv(s, 4) | int32 ()
C // 2 | int32 ()
C ** 2 | int32 ()
s / 2 | fp32 ()
min(s, 4) | int32 ()
min(C, 4) + o | int32 (64,)
(s > 1) and (s < 3) | int1 ()
not (s > 1) | int1 ()
tl.fdiv(f16, f16) | fp16 (64,)
tl.umulhi(i32, i32) | int32 (64,)
tl.dot(tl.zeros((16, 16), tl.float16), tl.zeros((16, 16), tl.float16)) | fp32 (16, 16)
tl.dot(tl.zeros((16, 32), tl.int8), tl.zeros((32, 16), tl.int8)) | int32 (16, 16)
tl.dot(tl.zeros((16, 16), tl.float16), tl.zeros((16, 16), tl.float16), out_dtype=tl.float16) | fp16 (16, 16)
tl.dot(tl.zeros((16, 16), tl.float64), tl.zeros((16, 16), tl.float64)) | fp64 (16, 16)
tl.dot(tl.zeros((2, 16, 16), tl.bfloat16), tl.zeros((2, 16, 32), tl.bfloat16)) | fp32 (2, 16, 32)
libdevice.tanh(f32) | fp32 (64,)
libdevice.isnan(f32) | int1 (64,)
libdevice.pow(f32, i32) | fp32 (64,)
libdevice.pow(f32, 2.0) | fp32 (64,)
s if s > 3 else 4 | int32 ()
f if s > 3 else 4.0 | fp32 ()
tl.cast(f32, tl.int8) | int8 (64,)
tl.cast(3, tl.int64) | int64 ()
tl.sort(f16) | fp16 (64,)
tl.interleave(f16, f16) | fp16 (128,)
tl.join(f16, f16) | fp16 (64, 2)
tl.cat(f16, f16, can_reorder=True) | fp16 (128,)
tl.ravel(tl.zeros((4, 4), tl.float16)) | fp16 (16,)
tl.zeros_like(f16) | fp16 (64,)
tl.rand(s, o) | fp32 (64,)
tl.randint(s, o) | uint32 (64,)
tl.randn(s, o) | fp32 (64,)
tl.histogram(i32, 64) | int32 (64,)
tl.gather(f32, i32, 0) | fp32 (64,)
f32[None, :] | fp32 (1, 64)
f32[:, None, None] | fp32 (64, 1, 1)
tl.atomic_add(p32 + o, 1) | fp32 (64,)
tl.atomic_add(p16 + o, 1) | fp16 (64,)
tl.atomic_max(p32 + o, f32) | fp32 (64,)
tl.atomic_cas(pi32, 0, 1) | int32 ()
float("inf") + f16 | fp16 (64,)
tl.program_id(0) * C | int32 ()
tl.num_programs(0) * 2.5 | fp32 ()
tl.sum(tl.zeros((4, 4), tl.float16)) | fp16 ()
tl.sum(tl.zeros((4, 4), tl.float16), 1, keep_dims=True) | fp16 (4, 1)
tl.min(tl.zeros((4, 4), tl.float16), keep_dims=True) | fp32 (1, 1)
f32.to(tl.float16, fp_downcast_rounding="rtz") | fp16 (64,)
i32.to(tl.float32, bitcast=True) | fp32 (64,)
p32.to(tl.int64) | int64 ()
tl.reshape(f32, 8, 8) | fp32 (8, 8)
tl.reshape(f32, (8, 8)).T | fp32 (8, 8)
tl.expand_dims(f32, (0, 1)) | fp32 (1, 1, 64)
tl.expand_dims(f32, -1) | fp32 (64, 1)
tl.trans(tl.reshape(f32, 2, 4, 8)) | fp32 (2, 8, 4)
tl.trans(tl.reshape(f32, 2, 4, 8), 2, 0, 1) | fp32 (8, 2, 4)
tl.trans(tl.reshape(f32, 2, 4, 8), (2, 0, 1)) | fp32 (8, 2, 4)
pi1 + o | pointer<int1> (64,)
tl.load(p32 + o[None, :], mask=(o < 3)[:, None]) | fp32 (64, 64)
"""

# where Triton raises and Tilewright has a meaning
OURS = """
tl.exp(f16) | fp16 (64,)
tl.sqrt(b16) | bf16 (64,)
tl.sigmoid(f16) | fp16 (64,)
libdevice.tanh(b16) | bf16 (64,)
tl.flip(f32) | fp32 (64,)
abs(f16) | fp16 (64,)
tl.join(f16, f32) | fp32 (64, 2)
triton.cdiv(s, C) | int32 ()
tl.topk(f16, 8) | fp16 (8,)
i1 & True | int1 (64,)
o.to(tl.pointer_type(tl.float32)) | pointer<fp32> (64,)
"""


def _cases(text):
    return [tuple(part.strip() for part in line.rsplit("|", 1)) for line in text.strip().splitlines()]


@pytest.mark.parametrize("expression, expected", _cases(TRITON) + _cases(OURS))
def test_type(expression, expected):
    loads = "; ".join(f"{name} = tl.load({p} + o)" for name, p in LOADS)
    kernel = define(f"""
        @triton.jit
        def kernel({', '.join(a if a != 'C' else 'C: tl.constexpr' for a in SIG)}):
            o = tl.arange(0, 64)
            {loads}
            r = {expression}
            tl.static_print(r.dtype, r.shape)
        """)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        compile_tt(kernel, SIG, {"C": 7})
    assert out.getvalue().strip() == expected


def test_dtypes_have_tritons_names_and_predicates():
    names = {tl.float32: ("fp32", "fp32", 32), tl.int32: ("int32", "i32", 32), tl.uint8: ("uint8", "u8", 8), tl.int1: ("int1", "i1", 1),
             tl.bfloat16: ("bf16", "bf16", 16), tl.float8e4nv: ("fp8e4nv", "fp8e4nv", 8), tl.float64: ("fp64", "fp64", 64)}
    for type, (name, signature, width) in names.items():
        assert (type.name, str(type), type.signature_name, type.primitive_bitwidth, type.scalar) == (name, name, signature, width, type)
        assert str_to_ty(signature) is type and str_to_ty(f"*{signature}") == tl.pointer_type(type)
        assert str_to_ty(f"*{signature}").signature_name == f"*{signature}"
    for predicate, type in (("is_fp16", tl.float16), ("is_bf16", tl.bfloat16), ("is_fp32", tl.float32), ("is_fp64", tl.float64), ("is_int1", tl.int1),
                            ("is_int8", tl.int8), ("is_uint32", tl.uint32), ("is_int64", tl.int64), ("is_fp8e5", tl.float8e5)):
        assert getattr(type, predicate)() and not getattr(tl.int16, predicate)() and not getattr(tl.block_type(type, [4]), predicate)()
    assert tl.int1.is_int() and tl.int1.is_bool() and tl.uint8.is_int_unsigned() and tl.int8.is_int_signed() and not tl.int8.is_floating()
    assert tl.float8e5.is_fp8() and tl.float8e5.is_floating() and not tl.float8e5.is_standard_floating()
    pointer = tl.pointer_type(tl.float16)
    assert pointer.is_ptr() and pointer.element_ty == tl.float16 and pointer.scalar is pointer and str(pointer) == "pointer<fp16>"
    block = tl.block_type(pointer, [4, 8])
    assert block.is_block() and block.shape == (4, 8) and block.scalar == pointer and block.numel == 32 and not block.is_ptr()
    assert tl.int8.get_int_min_value() == -128 and tl.uint8.get_int_max_value() == 255


def test_constexpr_arithmetic_is_pythons():
    a, b = tl.constexpr(-7), tl.constexpr(2)
    assert (a // b).value == -4 and (a % b).value == 1 and (3 - b).value == 1 and (b ** 3).value == 8 and (-a).value == 7
    assert bool(a < b) and not bool(a == b) and (b << 3).value == 16 and tl.constexpr(a).value == -7
    assert [0, 1, 2][b] == 2 and f"{b}" == "2" and int(a) == -7 and hash(b) == hash(2)


def test_the_peers_attribute_forms():
    kernel = define("""
        @triton.jit
        def kernel(p, q, C: tl.constexpr):
            tl.static_assert(p.dtype.element_ty == tl.float16)
            tl.static_assert(p.type.element_ty.is_fp16())
            tl.static_assert(p.dtype.element_ty.primitive_bitwidth == 16)
            x = tl.load(p + tl.arange(0, 8)[:, None] * 2 + tl.arange(0, 4)[None, :])
            tl.static_assert(x.shape[0] == 8 and x.shape[1] == 4 and len(x.shape) == 2 and x.numel == 32)
            tl.static_assert(x.dtype == tl.float16 and x.dtype is not tl.float32 and x.type.shape[1] == 4)
            tl.static_assert(x.T.shape == (4, 8))
            tl.static_assert(x.dtype in (tl.float16, tl.bfloat16))
            tl.static_assert(q is None)
            y = tl.zeros(x.shape, dtype=x.dtype) + x.to(x.dtype)
            tl.static_assert(y.type == x.type)
            tl.static_assert(C.value == 3 and C == 3)
            tl.static_assert(tl.constexpr(C + 1) == 4)
        """)
    compile_tt(kernel, {"p": "*fp16", "q": "constexpr", "C": "constexpr"}, {"q": None, "C": 3})


def test_a_rounding_is_allowed_where_nothing_is_rounded():
    kernel = define("""
        @triton.jit
        def kernel(p, q):
            tl.store(p, tl.load(p).to(p.dtype.element_ty, fp_downcast_rounding="rtne"))
            tl.store(q, tl.load(p).to(q.dtype.element_ty, fp_downcast_rounding="rtz"))
        """)
    compile_tt(kernel, {"p": "*fp32", "q": "*fp16"})
