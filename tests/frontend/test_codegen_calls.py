"""Calls of noinline functions in the code that is generated: which functions there are, what is said of them, and the errors in them."""

from __future__ import annotations

import re

import pytest
from tt_execution import compile_tt, define

from tilewright.dialects.errors import CompilationError, TypeMismatchError, UnsupportedLanguageConstruct
from tilewright.dialects.printer import print_module

SIG = {"p": "*fp32", "n": "i32"}


def module_of(source):
    return compile_tt(define(source), SIG)


def text_of(source, locations=False):
    return print_module(module_of(source), locations)


def functions_of(text):
    return re.findall(r"func\.func private @(\w+)", text)


def test_functions_are_private_and_keep_their_names():
    text = text_of("""
        @triton.jit(noinline=True)
        def add_up(x, pointer, n, WIDE: tl.constexpr):
            return tl.sum(x + tl.load(pointer), 0) + n

        @triton.jit
        def kernel(p, n):
            x = tl.load(p + tl.arange(0, 32))
            tl.store(p, add_up(x, p, n, True))
    """)
    assert functions_of(text) == ["add_up__fp32x32_Pfp32_int32_cTrue"]
    assert "call @add_up__fp32x32_Pfp32_int32_cTrue(" in text and "no_inline" in text


def test_a_function_of_the_kernels_name():
    text = text_of("""
        @triton.jit(noinline=True)
        def kernel(x):
            return x + 1
        helper = kernel

        @triton.jit
        def kernel(p, n):
            tl.store(p, helper(n).to(tl.float32))
    """)
    assert functions_of(text) == ["kernel_function__int32"]


def test_noinline_kernels_are_kernels():
    text = text_of("""
        @triton.jit(noinline=True)
        def kernel(p, n):
            tl.store(p, n)
    """)
    assert functions_of(text) == [] and "tt.kernel" in text


def test_what_no_code_calls_in_the_end_is_not_kept():
    """A loop's body is generated again where a number turns out to change; the first attempt called another function."""
    text = text_of("""
        @triton.jit(noinline=True)
        def next_one(x):
            return x * 2

        @triton.jit
        def kernel(p, n):
            x: tl.constexpr = 1
            for i in range(n):
                x = next_one(x)
            tl.store(p, x)
    """)
    assert functions_of(text) == ["next_one__int32"]


def test_inlined_after_all():
    """In combiners, which work on registers, and where a lambda of the caller is handed over."""
    text = text_of("""
        @triton.jit(noinline=True)
        def larger(a, b):
            return tl.maximum(a, b)

        @triton.jit(noinline=True)
        def through(f, x):
            return f(x)

        @triton.jit
        def kernel(p, n):
            x = tl.load(p + tl.arange(0, 32))
            tl.store(p, through(lambda v: v + n, tl.reduce(x, 0, larger)))
    """)
    assert functions_of(text) == []


def test_hints_of_arguments():
    text = text_of("""
        @triton.jit(noinline=True)
        def first(pointer, at):
            pointer = tl.multiple_of(pointer, 16)
            at = tl.max_contiguous(tl.multiple_of(at, [8]), [8])
            return tl.load(pointer + at)

        @triton.jit
        def kernel(p, n):
            tl.store(p + tl.arange(0, 32), first(p, tl.arange(0, 32)))
    """)
    assert ("%arg0: !tt.ptr<f32, 1 : i32> {tt.divisibility = 16 : i32}, "
            "%arg1: tensor<32xi32> {tt.contiguity = array<i32: 8>, tt.divisibility = 8 : i32}") in text


def mistake(body):
    with pytest.raises(CompilationError) as info:
        module_of(f"{body}\n@triton.jit\ndef kernel(p, n):\n    a = n + 1\n    x = f1(n)\n")
    return info.value


@pytest.mark.parametrize("first, second", [(True, True), (True, False), (False, True)])
def test_recursion(first, second):
    error = mistake(f"@triton.jit(noinline={first})\ndef f1(a):\n    return f2(a)\n\n@triton.jit(noinline={second})\ndef f2(a):\n    return f1(a)\n")
    assert type(error) is UnsupportedLanguageConstruct and "f1 calls itself" in error.message and "return f1(a)" in error.source_line
    error = mistake("@triton.jit(noinline=True)\ndef f1(a):\n    return f1(a - 1)\n")
    assert type(error) is UnsupportedLanguageConstruct and "recursion" in error.message


def test_errors_name_the_calls_on_the_way():
    error = mistake("@triton.jit(noinline=True)\ndef f2(a):\n    return a + tl.arange(0, 3)\n\n@triton.jit(noinline=True)\ndef f1(a):\n    return f2(a)\n")
    assert "return a + tl.arange(0, 3)" in error.source_line
    assert [line.split(": ", 1)[1] for line in str(error).splitlines()[-2:]] == ["return f2(a)", "x = f1(n)"]


def test_paths_that_return_different_types():
    error = mistake("@triton.jit(noinline=True)\ndef f1(a):\n    if a > 0:\n        return a\n    return 1.0\n")
    assert type(error) is TypeMismatchError and "int32 on one path and fp32" in error.message


def test_places():
    """Ops of a called function are at its lines, not at those of one of its calls."""
    text = text_of("""
        @triton.jit(noinline=True)
        def twice(x):
            return x * 2

        @triton.jit
        def kernel(p, n):
            tl.store(p, twice(twice(n)))
    """, locations=True)
    assert "arith.muli" in text and "callsite" not in text
