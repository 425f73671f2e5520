"""The printer's text has aliases, reads well and parses back to the same module."""

from __future__ import annotations

import time

import pytest

from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.dialects.printer import alias_attributes, print_module

BLOCKED = "#ttg.blocked<array<i32: 1, 4>, array<i32: 1, 32>, array<i32: 4, 1>, array<i32: 1, 0>>"
BLOCKED2 = "#ttg.blocked<array<i32: 4, 1>, array<i32: 32, 1>, array<i32: 1, 4>, array<i32: 0, 1>>"
MMA = '#ttg.mma<"some.mma_1", array<i32: 4, 1>, false>'
SHARED = "#ttg.swizzled_shared<8 : i32, 1 : i32, 8 : i32, array<i32: 1, 0>>"
MODULE = f"""
module attributes {{"ttg.num-warps" = 4 : i32}} {{
  func.func @k(%a: !tt.ptr<f32, 1 : i32> {{tt.divisibility = 16 : i32}}) attributes {{tt.kernel}} {{
    %0 = "tt.make_range"() {{start = 0 : i32, end = 128 : i32}} : () -> tensor<128xi32, #ttg.slice<0 : i32, {BLOCKED}>>
    %1 = "tt.make_range"() {{start = 0 : i32, end = 128 : i32}} : () -> tensor<128xi32, #ttg.slice<0 : i32, #ttg.slice<1 : i32, {BLOCKED2}>>>
    %2 = arith.addi %0, %0 : tensor<128xi32, #ttg.slice<0 : i32, {BLOCKED}>>
    %3 = arith.constant dense<1.5> : tensor<128x64xf32, {MMA}>
    %4 = arith.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32, #ttg.dot_op<0 : i32, {MMA}, 2 : i32>>
    %5 = "ttg.local_alloc"() : () -> !ttg.memdesc<array<i64: 2, 4>, f32, {SHARED}, true>
    %6 = "tt.elementwise_inline_asm"() {{asm_string = "STRING", constraints = "=r", pure = true, packed = 1 : i32,
        operandSegmentSizes = array<i32: 0, 0, 0, 0, 0, 0, 0, 0>, resultSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0>}}
        : () -> tensor<128x64xf32, {MMA}>
    %7 = arith.addf %3, %6 fastmath<contract> : tensor<128x64xf32, {MMA}>
    return
  }}
}}"""


@pytest.mark.parametrize("string", [
    "nothing special",
    f"mov {BLOCKED.replace('array', 'x')};",  # looks like an attribute
    BLOCKED,  # is one, inside a string: must stay
    'with \\"quotes\\" and #ttg.mma<',
    "a # mark",
])
@pytest.mark.parametrize("locations", [False, True])
def test_text_parses_again_and_is_equal(string, locations):
    with mlir_context():
        module = ir.Module.parse(MODULE.replace("STRING", string))
        text = print_module(module, locations)
        again = ir.Module.parse(text)
        assert str(again) == str(module)
        if locations:
            assert again.operation.get_asm(enable_debug_info=True) == module.operation.get_asm(enable_debug_info=True)


def test_aliases_are_named_once_and_nested():
    with mlir_context():
        text = print_module(ir.Module.parse(MODULE))
    lines = text.splitlines()
    assert f"#blocked = {BLOCKED}" in lines
    assert f"#blocked1 = {BLOCKED2}" in lines
    assert "#slice = #ttg.slice<0 : i32, #blocked>" in lines
    assert "#slice1 = #ttg.slice<1 : i32, #blocked1>" in lines
    assert "#slice2 = #ttg.slice<0 : i32, #slice1>" in lines
    assert f"#mma = {MMA}" in lines and "#dot_op = #ttg.dot_op<0 : i32, #mma, 2 : i32>" in lines
    assert f"#shared = {SHARED}" in lines
    body = text[text.index("module"):]
    assert "#ttg." not in body and "loc(" not in body
    assert "tensor<128xi32, #slice>" in body and "!ttg.memdesc<array<i64: 2, 4>, f32, #shared, true>" in body


def test_locations_only_when_asked():
    with mlir_context():
        module = ir.Module.parse('func.func @f() { return loc("kernel.py":7:3) }')
        assert "kernel.py" not in print_module(module)
        assert '"kernel.py":7:3' in print_module(module, locations=True)


def test_text_without_attributes_is_untouched():
    assert alias_attributes("module {\n}\n") == "module {\n}\n"


def test_three_hundred_ops_print_in_milliseconds():
    """The asm text of a stage is made eagerly; that is all right only while it is cheap (compile time)."""
    body = "".join(f"    %{i + 1} = arith.addi %{i}, %0 : tensor<128xi32, #ttg.slice<0 : i32, {BLOCKED}>>\n" for i in range(300))
    head, tail = MODULE.split("    %1 = ")[0], "    return\n  }\n}"
    with mlir_context():
        module = ir.Module.parse(head + body + tail)
        raw = module.operation.get_asm()
        best = min(_timed(lambda: alias_attributes(raw)) for _ in range(5))
    assert best < 0.005, f"{best * 1e3:.2f} ms to put aliases into the text of 300 ops"


def _timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
