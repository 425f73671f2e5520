"""Names that need few tests: hints, promises, debugging, facts of types and values, rare keywords; and that the suite uses every listed name."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tilewright.conformance import names
from tilewright.conformance.cases import numbers
from tilewright.conformance.harness import (
    ALL,
    ON_CPU,
    UINTS,
    WIDTH,
    batch,
    compare,
    kernel_of,
    poisoned,
    random_array,
    rng_of,
    run,
    tl_name,
)


def test_hints_change_nothing():
    x = random_array("fp32", 64, rng_of("hints"), small=True)
    compare("""
        @triton.jit
        def kernel(p, o, n, m):
            tl.assume(n > 0)
            tl.assume(m >= 32)
            i = tl.max_contiguous(tl.multiple_of(tl.arange(0, 32), 32), 32)
            block = tl.multiple_of(n * 16, 16)
            same = tl.max_constancy(tl.where(i < 64, 3, 4), [32])
            grid = tl.max_contiguous(tl.multiple_of(i[:, None] * 2 + tl.arange(0, 2)[None, :], (1, 2)), (1, 2))
            tl.debug_barrier()
            tl.store(o + i, tl.load(p + block + i, mask=i < m) + same)
            tl.debug_barrier()
            tl.store(o + 32 + grid, tl.load(p + grid))
        """, {"p": x, "o": poisoned("fp32", 96), "n": 2, "m": 32}, expected={"o": torch.cat([x[32:] + 3, x])}, num_warps=2)


def test_loops_with_hints():
    """tl.range's and tl.condition's options change no result; static_range unrolls."""
    x = random_array("int32", (8, 32), rng_of("loops"), small=True)
    total = numbers(x).sum(0)
    compare("""
        @triton.jit
        def kernel(p, o, n, m):
            i = tl.arange(0, 32)
            a = tl.zeros((32,), dtype=tl.int32)
            for k in tl.range(0, n, num_stages=3):
                a += tl.load(p + k * 32 + i)
            tl.store(o + i, a)
            a = tl.full(shape=(32,), value=0, dtype=tl.int32)
            for k in tl.range(0, n, 1, loop_unroll_factor=2, flatten=True, disallow_acc_multi_buffer=True, disable_licm=True):
                a += tl.load(p + k * 32 + i)
            tl.store(o + 32 + i, a)
            a = tl.zeros_like(a)
            for k in tl.range(n - 1, -1, step=-1, warp_specialize=False):
                a += tl.load(p + k * 32 + i)
            tl.store(o + 64 + i, a)
            a = tl.zeros_like(a)
            for k in tl.static_range(0, 8, 2):
                a += tl.load(p + k * 32 + i) + tl.load(p + (k + 1) * 32 + i)
            tl.store(o + 96 + i, a)
            k = 0
            while tl.condition(k < n, disable_licm=True):
                a -= tl.load(p + k * 32 + i)
                k += 1
            tl.store(o + 128 + i, a)
        """, {"p": x, "o": poisoned("int32", 160), "n": 8, "m": 1}, expected={"o": np.concatenate([total] * 4 + [total * 0]).astype(np.int32)}, num_warps=1)


def test_annotations_and_keywords():
    """Arguments annotated with the language's types; keywords of calls that are mostly written without."""
    x = random_array("fp32", (16, 16), rng_of("annotated"), small=True)
    v = numbers(x)
    compare("""
        @triton.jit
        def read(d: tl.tensor_descriptor, at: tl.tensor):
            return d.load([at, 0])

        @triton.jit
        def kernel(p, o, q, n: tl.int32, KIND: tl.dtype = tl.float32):
            d = tl.make_tensor_descriptor(base=p, shape=[n, 16], strides=[16, 1], block_shape=[8, 16])
            x = read(d, tl.program_id(axis=0) * 8 * tl.num_programs(axis=0))
            tl.store(o + tl.arange(0, 8)[:, None] * 16 + tl.arange(0, 16)[None, :], x.to(KIND))
            value, where = tl.min(x, 1, return_indices=True, return_indices_tie_break_left=True)
            tl.store(q + tl.arange(0, 8), where)
            tl.static_assert(d.block_shape[1] == 16 and d.block_type == tl.block_type(tl.float32, [8, 16]) and d.dtype == KIND)
            tl.static_assert(p.dtype == tl.pointer_type(tl.float32))
        """, {"p": x, "o": poisoned("fp32", (8, 16)), "q": poisoned("int32", 8), "n": 16}, num_warps=1, expected={"o": v[:8].astype(np.float32), "q": v[:8].argmin(1).astype(np.int32)})


def test_debugging(capfd):
    """Static prints come while compiling, assertions that hold change nothing."""
    x = random_array("int32", 16, rng_of("print"), small=True)
    compare("""
        @triton.jit
        def kernel(p, o, N: tl.constexpr):
            tl.static_print("static", N, p.dtype)
            tl.static_print(f"N is {N}")
            tl.static_assert(N == 16, "sixteen")
            tl.static_assert(p.dtype.element_ty == tl.int32)
            assert N == 16
            i = tl.arange(0, N)
            x = tl.load(p + i)
            tl.device_assert(x < 100, "small")
            tl.device_assert(x < 0, "only there", mask=x < 0)
            tl.store(o + i, x)
        """, {"p": x, "o": poisoned("int32", 16), "N": 16}, expected={"o": x}, num_warps=1)
    assert "static 16" in capfd.readouterr().out


@pytest.mark.parametrize("dtype", ALL)
def test_facts_of_types(dtype):
    """What kernels ask of types and values, as compile-time numbers."""
    floating, signed = dtype[0] in "fb", dtype.startswith("int") and dtype != "int1"
    width = 1 if dtype == "int1" else WIDTH[dtype]
    facts = {"x.dtype.is_int()": not floating, "x.dtype.is_floating()": floating, "x.dtype.is_fp8()": False, "x.dtype.is_fp16()": dtype == "fp16",
             "x.dtype.is_bf16()": dtype == "bf16", "x.dtype.is_fp32()": dtype == "fp32", "x.dtype.is_fp64()": dtype == "fp64",
             "x.dtype.is_int_unsigned()": dtype in (*UINTS, "int1"), "x.dtype.is_int_signed()": signed, "x.dtype.is_int64()": dtype == "int64",
             "x.dtype.is_uint64()": dtype == "uint64", "x.dtype.is_ptr()": False, "p.dtype.is_ptr()": True, "x.dtype.primitive_bitwidth": width,
             "x.numel": 8, "x.shape[0]": 2, "x.shape[1]": 4, "x.type.is_block()": True, "p.dtype.element_ty.primitive_bitwidth": width,
             f"x.dtype == {tl_name(dtype)}": True, f"p.dtype.element_ty == {tl_name(dtype)}": True, "x.type.scalar == x.dtype": True,
             "x.type.element_ty == x.dtype": True, "len(x.shape)": 2, "x.T.shape[0]": 4,
             "isinstance(x, tl.tensor)": True, "isinstance(x.dtype, tl.dtype)": True, "x.type == tl.block_type(x.dtype, [2, 4])": True,
             f"p.dtype == tl.pointer_type({tl_name(dtype)})": True, "tl.constexpr(3).value": 3, "tl.TRITON_MAX_TENSOR_NUMEL > 1000": True}
    lines = "\n            ".join(f"tl.store(o + {k}, int({text}))" for k, text in enumerate(facts))
    compare(f"""
        @triton.jit
        def kernel(p, o):
            x = tl.load(p + tl.arange(0, 2)[:, None] * 4 + tl.arange(0, 4)[None, :])
            {lines}
        """, {"p": random_array(dtype, (2, 4), rng_of(dtype)), "o": poisoned("int32", len(facts))}, expected={"o": np.array(list(facts.values()), np.int32)}, num_warps=1)


def test_methods_of_tensors():
    """The function and the method of one name are the same."""
    x, y = random_array("fp32", (4, 8), rng_of("methods"), small=True), random_array("int32", (4, 8), rng_of("methods", 1), small=True)
    v, w = numbers(x), numbers(y)
    batch([("x.trans(1, 0)", v.T), ("x.T", v.T), ("x.permute((1, 0))", v.T), ("x.reshape(8, 4)", v.reshape(8, 4)), ("x.reshape((2, 16))", v.reshape(2, 16)),
           ("x.expand_dims(0)", v[None]), ("x.sum(0, keep_dims=True).broadcast_to(4, 8)", np.broadcast_to(v.sum(0), (4, 8)), {"ulp": 0.5}), ("(x * 0.25).floor()", np.floor(v / 4), {"ulp": 0.5}),
           ("x.reshape(16, 2).split()[1]", v.reshape(16, 2)[:, 1]), ("x.cast(tl.float16)", v), ("tl.cast(input=x, dtype=tl.float64)", v), ("x.to(tl.int32)", v.astype(np.int64)),
           ("tl.cast(x, dtype=tl.float16, fp_downcast_rounding='rtz')", v), ("tl.cast(x, tl.int32, bitcast=True)", x.view(torch.int32).numpy()),
           ("x.gather(y & 3, 0)", np.take_along_axis(v, w & 3, 0)), ("tl.gather(x, y & 3, axis=0)", np.take_along_axis(v, w & 3, 0)),
           ("x.sum(None, keep_dims=True).reshape(1).item()", np.array(v.sum()), {"ulp": 0.5}), ("(x > 0).logical_and(y > 0)", (v > 0) & (w > 0)),
           ("(x > 0).logical_or(y > 0)", (v > 0) | (w > 0)), ("x.abs()", abs(v)), ("x.exp2()", np.exp2(v), {"ulp": 2}), ("tl.add(y, y, sanitize_overflow=False)", w + w),
           ("tl.sub(x, y)", v - w, {"ulp": 0.5}), ("tl.sub(y, 1, sanitize_overflow=False)", w - 1), ("tl.mul(x, y)", v * w, {"ulp": 0.5}), ("y.cdiv(3)", -(-w // 3) if (w >= 0).all() else None),
           ("tl.broadcast(x, x.sum(0, keep_dims=True))[1]", np.broadcast_to(v.sum(0), (4, 8)), {"ulp": 0.5}), ("tl.to_tensor(3.5)", np.array(3.5)),
           ("x.argmax(1)", v.argmax(1)), ("y.xor_sum(1)", np.bitwise_xor.reduce(w, 1).astype(np.int32)), ("x.ravel()", v.reshape(-1)), ("x.flip(1)", v[:, ::-1]),
           ("x.sigmoid()", 1 / (1 + np.exp(-v)), {"ulp": 8}), ("y.reduce_or(0)", np.bitwise_or.reduce(w, 0))],
          {"x": x, "y": y}, num_warps=1)


def test_pointers_of_other_types():
    """A pointer cast or reinterpreted to another type reads the same bytes."""
    x = random_array("int32", 32, rng_of("pointers"))
    compare("""
        @triton.jit
        def kernel(p, o):
            i = tl.arange(0, 32)
            q = p.to(tl.pointer_type(tl.int16))
            tl.store(o + i, tl.load(q + 2 * i))
            words = tl.cast(p, tl.pointer_type(tl.uint8), bitcast=True)
            tl.store(o + 32 + i, tl.load(words + 4 * i).to(tl.int16))
        """, {"p": x, "o": poisoned("int16", 64)}, num_warps=1,
        expected={"o": np.concatenate([x.numpy().view(np.int16)[::2], x.numpy().view(np.uint8)[::4].astype(np.int16)])})


@pytest.mark.parametrize("dtype", ["fp32", "int8", "bf16", "int64", "fp64"])
def test_modifiers_of_loads_and_stores(dtype):
    """Cache, eviction and volatile are no more than hints for values."""
    x = random_array(dtype, 64, rng_of(dtype, "modifiers"))
    lines = [f'cache_modifier="{m}"' for m in ("", ".ca", ".cg", ".cs", ".cv")] + [f'eviction_policy="{e}"' for e in ("", "evict_first", "evict_last")] + ["volatile=True"]
    stores = [f'cache_modifier="{m}"' for m in (".wb", ".cg", ".cs", ".wt")] + [f'eviction_policy="{e}"' for e in ("evict_first", "evict_last")]
    text = "\n            ".join([f"tl.store(o + {64 * k} + i, tl.load(p + i, mask=i < n, other=0, {m}), mask=i < n)" for k, m in enumerate(lines)]
                               + [f"tl.store(o + {64 * (k + len(lines))} + i, x, {m})" for k, m in enumerate(stores)])
    count = len(lines) + len(stores)
    out = poisoned(dtype, 64 * count).reshape(count, 64)
    expected = out.clone()
    expected[: len(lines), :50] = x[:50]
    expected[len(lines) :] = x
    compare(f"""
        @triton.jit
        def kernel(p, o, n):
            i = tl.arange(0, 64)
            x = tl.load(p + i)
            {text}
        """, {"p": x, "o": out, "n": 50}, expected={"o": expected}, num_warps=2)


def test_every_listed_name_is_part_of_the_language():
    """The suite's own list (names.json) asks for nothing that the language does not have."""
    import tilewright.language as tl
    from tilewright.language.extra import libdevice

    assert not [n for n in names.LANGUAGE if not hasattr(tl, n)]
    assert not [n for n in names.LIBDEVICE if not hasattr(libdevice, n)]


def test_a_volatile_load_sees_what_was_stored():
    kernel = kernel_of("""
        @triton.jit
        def kernel(p, o):
            first = tl.load(p, volatile=True)
            tl.store(p, first + 1)
            tl.debug_barrier()
            tl.store(o, tl.load(p, volatile=True) + first)
        """)
    got = run(kernel, {"p": torch.tensor([5], dtype=torch.int32), "o": poisoned("int32", 1)}, num_warps=1 if ON_CPU else 4)
    assert got["o"].tolist() == [11]
