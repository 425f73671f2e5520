"""The IR itself: ops, attributes, hints, arguments, locations."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tt_execution import compile_tt, define, text_of

from tilewright.dialects.context import mlir_context


def text(body: str, signature: dict, constexprs: dict | None = None, **kwargs) -> str:
    arguments = ", ".join(f"{n}: tl.constexpr" if t == "constexpr" else n for n, t in signature.items())
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return text_of(define(f"@triton.jit\ndef kernel({arguments}):\n{lines}\n"), signature, constexprs, **kwargs)


def test_the_function_its_arguments_and_hints():
    got = text("tl.store(p, n)", {"p": "*fp16", "n": "i32", "b": "i1", "u": "u64", "f": "fp32", "q": "*i1", "h": "*fp8e4nv"},
               attrs={(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]})
    assert ("func.func public @kernel(%arg0: !tt.ptr<f16, 1 : i32> {tt.divisibility = 16 : i32}, %arg1: i32 {tt.divisibility = 16 : i32}, "
            "%arg2: i1, %arg3: i64, %arg4: f32, %arg5: !tt.ptr<i8, 1 : i32>, %arg6: !tt.ptr<f8E4M3FN, 1 : i32>) attributes {tt.kernel}") in got
    assert "arith.sitofp %arg1 : i32 to f16" in got


def test_hints_stand_on_the_ops_and_on_the_arguments():
    got = text("""
x = tl.multiple_of(tl.arange(0, 16) * n, 8)
x = tl.max_contiguous(x + 1, 4)
x = tl.max_constancy(x + 2, [2])
tl.multiple_of(n, 32)
tl.assume(n > 3)
tl.store(p + x, 1.0)
""", {"p": "*fp32", "n": "i32"})
    for hint in ("tt.divisibility = array<i32: 8>", "tt.contiguity = array<i32: 4>", "tt.constancy = array<i32: 2>", "{tt.divisibility = 32 : i32}"):
        assert hint in got, hint
    assert '"tt.assume"' in got


def test_memory_attributes():
    got = text("""
i = tl.arange(0, 16)
x = tl.load(p + i, mask=i < n, other=1.0, cache_modifier=".cg", eviction_policy="evict_first", volatile=True)
tl.store(p + i, x, mask=i < n, cache_modifier=".wt", eviction_policy="evict_last")
tl.atomic_add(p + i, x, sem="relaxed", scope="sys")
tl.atomic_xchg(p, 1.0)
tl.debug_barrier()
""", {"p": "*fp32", "n": "i32"})
    assert 'cache = "cg", evict = "evict_first", is_volatile = true, operandSegmentSizes = array<i32: 1, 1, 1>' in got
    assert 'cache = "wt", evict = "evict_last", operandSegmentSizes = array<i32: 1, 1, 1>' in got
    assert 'rmw_op = "fadd", scope = "sys", sem = "relaxed"' in got and "array<i32: 1, 1, 0>" in got
    assert 'rmw_op = "xchg", scope = "gpu", sem = "acq_rel"' in got and '"tt.debug_barrier"() : () -> ()' in got


def test_booleans_in_memory_are_bytes():
    got = text("x = tl.load(p + tl.arange(0, 16))\ntl.store(p + tl.arange(0, 16), x)", {"p": "*i1"})
    assert "-> tensor<16xi8>" in got and "arith.cmpi ne" in got and "arith.extui" in got


def test_unmasked_ops_have_no_mask_and_constants_are_dense():
    got = text("i = tl.arange(0, 16)\ntl.store(p + i, tl.load(p + i) + 1)", {"p": "*fp32"})
    assert "array<i32: 1, 0, 0>" in got and "dense<1.000000e+00> : tensor<16xf32>" in got
    assert got.count("arith.constant") == 1


def test_an_offset_that_is_unsigned_keeps_its_value():
    assert "arith.extui" in text("tl.store(p + u, 1.0)", {"p": "*fp32", "u": "u32"})


def test_dot_attributes_follow_arguments_and_options():
    body = "x = tl.zeros((16, 16), tl.float32)\ntl.store(p + tl.arange(0, 16)[:, None] + tl.arange(0, 16)[None, :], tl.dot(x, x{}))"
    signature = {"p": "*fp32"}
    for argument, precision in (("", "tf32"), (", input_precision='tf32x3'", "tf32x3"), (", allow_tf32=False", "ieee"), (", allow_tf32=True", "tf32")):
        assert f'input_precision = "{precision}"' in text(body.format(argument), signature)
    assert 'input_precision = "ieee"' in text(body.format(""), signature, options=SimpleNamespace(default_dot_input_precision="ieee"))


def test_prints_asserts_and_assembly():
    body = """
i = tl.arange(0, 16)
tl.device_print("x", i, n, hex=True)
tl.device_assert(n > 0, "n is positive")
r = tl.inline_asm_elementwise("add.u32 $0, $1, $2;", "=r,r,r", [i, n], dtype=tl.int32, is_pure=True, pack=1)
a, b = tl.inline_asm_elementwise("two", "=r,=r,r", [i], dtype=(tl.int32, tl.float32), is_pure=False, pack=2)
tl.store(p + i, r + a + b)
"""
    got = text(body, {"p": "*fp32", "n": "u32"}, options=SimpleNamespace(debug=True))
    assert 'prefix = " x: "' in got and "is_signed = array<i32: 1, 0>" in got and "hex = true" in got
    assert 'message = "n is positive"' in got and 'asm_string = "two"' in got and "-> (tensor<16xi32>, tensor<16xf32>)" in got
    assert "tt.assert" not in text(body, {"p": "*fp32", "n": "u32"})


def test_functions_of_the_users_own():
    kernel = define("""
        from tilewright.language import core

        @core.extern
        def tanh(x, _semantic=None):
            table = {(tl.float32,): ("tanh", tl.float32), (tl.float64,): ("tanh", tl.float64)}
            return core.extern_elementwise("lib", "path", [x], table, is_pure=True, _semantic=_semantic)

        @core.builtin
        def twice(x, k, _semantic=None):
            assert k == 2
            return _semantic.mul(x, k)

        @triton.jit
        def kernel(p):
            x = tl.load(p + tl.arange(0, 16))
            tl.store(p + tl.arange(0, 16), twice(tanh(x), 2))
        """)
    got = text_of(kernel, {"p": "*fp32"})
    assert 'symbol = "tanh"' in got and "arith.mulf" in got


def test_tuples_and_none_as_kernel_arguments():
    kernel = define("""
        @triton.jit
        def kernel(t, q, n):
            tl.static_assert(q is None)
            p, m = t[0], t[1][0]
            tl.store(p, m + n)
            tl.static_assert(t[1][1] == 5)
        """)
    got = text_of(kernel, {"t": ("*i32", ("i32", "constexpr")), "q": "constexpr", "n": "i32"}, {(0, 1, 1): 5, (1,): None},
                  attrs={(0, 0): [("tt.divisibility", 16)]})
    assert "%arg0: !tt.ptr<i32, 1 : i32> {tt.divisibility = 16 : i32}, %arg1: i32, %arg2: i32)" in got


def test_every_op_has_its_line_and_inlined_ones_their_call():
    kernel = define("""
        @triton.jit
        def helper(x, n):
            return x * n

        @triton.jit
        def kernel(p, n):
            i = tl.arange(0, 16)
            y = helper(i, n)
            if n > 2:
                y = y + 1
            tl.store(p + i, y)
        """)
    module = compile_tt(kernel, {"p": "*i32", "n": "i32"})
    file, first = kernel.file, kernel.def_line
    with mlir_context():
        found = {}

        def collect(op):
            from tilewright.dialects._mlir import ir

            found.setdefault(op.name, []).append(str(op.location))
            return ir.WalkResult.ADVANCE

        module.operation.walk(collect)
    assert found["tt.make_range"] == [f'loc("{file}":{first + 1}:9)']
    assert found["arith.muli"] == [f'loc(callsite("{file}":{first - 3}:12 at "{file}":{first + 2}:9))']
    assert found["scf.if"] == [f'loc("{file}":{first + 3}:8)'] and found["tt.store"] == [f'loc("{file}":{first + 5}:5)']
    assert found["arith.addi"] == [f'loc("{file}":{first + 4}:13)']
    assert not any("unknown" in place for places in found.values() for place in places)


def test_the_hints_of_a_function_called_with_a_tuple_path_do_not_reach_constants():
    assert "tt.divisibility" not in text("tl.store(p, C)", {"p": "*i32", "C": "constexpr"}, {"C": 16}, attrs={(1,): [("tt.divisibility", 16)]})


def test_generating_attention_is_fast():
    """The budget of the frontend is 30 ms; an idle machine takes 6."""
    import attention

    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    from configs import CONFIGS

    config = next(c for c in CONFIGS if c.name == "attention_causal")
    compile_tt(attention.attention_kernel, dict(config.signature), dict(config.constexprs))
    best = 1.0
    for _ in range(5):
        start = time.perf_counter()
        compile_tt(attention.attention_kernel, dict(config.signature), dict(config.constexprs))
        best = min(best, time.perf_counter() - start)
    assert best < 0.06, f"{best * 1e3:.0f} ms, verification included"


def test_importing_the_language_imports_neither_mlir_nor_numpy():
    import subprocess

    code = "import sys, tilewright.language; print([m for m in sys.modules if m.split('.')[0] in ('mlir', 'torch_mlir', 'numpy', 'torch', 'llvmlite')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_extra_has_the_portable_libdevice_under_every_targets_name():
    import tilewright.language as tl
    from tilewright.language.extra import libdevice
    from tilewright.language.extra.cuda import libdevice as first
    from tilewright.language.extra.hip import libdevice as second

    assert first is second is libdevice is tl.extra.cuda.libdevice is tl.extra.libdevice
    with pytest.raises(AttributeError, match="libdevice"):
        tl.extra.nobody  # noqa: B018
