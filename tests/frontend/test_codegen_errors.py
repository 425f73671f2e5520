"""Mistakes in kernels: the class, the message, and a caret under the place."""

from __future__ import annotations

import linecache

import pytest
from tt_execution import compile_tt, define

from tilewright.dialects.errors import (
    CompilationError,
    CompileTimeAssertionFailure,
    NameResolutionError,
    ShapeMismatchError,
    TypeMismatchError,
    UnsupportedLanguageConstruct,
)

SIG = {"p": "*fp32", "q": "*i32", "n": "i32", "f": "fp32", "C": "constexpr"}


def mistake(body: str, before: str = "") -> CompilationError:
    """The error of a kernel whose last statement is wrong."""
    text = "\n".join("    " + line for line in body.strip("\n").splitlines())
    kernel = define(f"{before}\n@triton.jit\ndef kernel(p, q, n, f, C: tl.constexpr):\n    o = tl.arange(0, 16)\n{text}\n")
    with pytest.raises(CompilationError) as info:
        compile_tt(kernel, SIG, {"C": 7})
    return info.value


_D = "tl.make_tensor_descriptor(p, [n], [1], [16])"

# body, class, a part of the message, what stands at the caret
CASES = [
    ("x = nonsense", NameResolutionError, "nonsense is not defined", "nonsense"),
    ("x = tl.arrange(0, 4)", NameResolutionError, "did you mean arange?", "tl.arrange"),
    ("x = on + 1", NameResolutionError, "", "on"),
    ("if n > 0:\n    y = o\nz = y", NameResolutionError, "one path", "y"),
    ("for i in range(n):\n    y = i\nz = y", NameResolutionError, "y is not defined", "y"),
    ("del o\nz = o", NameResolutionError, "deleted", "o"),
    ("x = o + tl.arange(0, 32)", ShapeMismatchError, "[16] and [32]", "o + tl"),
    ("x = tl.arange(0, 12)", ShapeMismatchError, "power of two", "tl.arange"),
    ("x = tl.arange(0, n)", TypeMismatchError, "compile-time", "tl.arange"),
    ("x = tl.zeros((3, 4), tl.float32)", ShapeMismatchError, "powers of two", "tl.zeros"),
    ("x = tl.zeros((n, 4), tl.float32)", TypeMismatchError, "compile-time", "tl.zeros"),
    ("x = tl.zeros((2048, 2048), tl.float32)", ShapeMismatchError, "1048576", "tl.zeros"),
    ("x = tl.reshape(o, 3, 5)", ShapeMismatchError, "16 elements", "tl.reshape"),
    ("x = o[:, None, :]", ShapeMismatchError, "too many indices", "o["),
    ("x = o[0]", TypeMismatchError, "indexed by", "o[0]"),
    ("x = tl.trans(o)", ShapeMismatchError, "at least 2 dims", "tl.trans"),
    ("x = tl.permute(o[:, None], 0, 0)", ShapeMismatchError, "permutation", "tl.permute"),
    ("x = tl.sum(o, axis=1)", ShapeMismatchError, "axis 1", "tl.sum"),
    ("x = tl.sum(n)", ShapeMismatchError, "scalar", "tl.sum"),
    ("x = tl.dot(o[:, None], o[:, None])", ShapeMismatchError, "dot", "tl.dot"),
    ("x = tl.dot(tl.zeros((16, 16), tl.float16), tl.zeros((16, 16), tl.float32))", TypeMismatchError, "one type", "tl.dot"),
    ("x = tl.dot(o, o)", ShapeMismatchError, "2, or both of 3", "tl.dot"),
    ("x = tl.dot(tl.zeros((16, 16), tl.float16), tl.zeros((16, 16), tl.float16), input_precision='exact')", TypeMismatchError, "tf32", "tl.dot"),
    ("x = tl.broadcast_to(o, 16, 16)", ShapeMismatchError, "numbers of dims", "tl.broadcast_to"),
    ("x = tl.split(o[:, None])", ShapeMismatchError, "size 2", "tl.split"),
    ("x = tl.load(n)", TypeMismatchError, "pointer", "tl.load"),
    ("x = tl.load(p + o, mask=o)", TypeMismatchError, "int1", "tl.load"),
    ("x = tl.load(p + o, other=1.0)", TypeMismatchError, "with mask", "tl.load"),
    ("x = tl.load(p, mask=o < 3)", ShapeMismatchError, "scalar mask", "tl.load"),
    ("x = tl.load(p + o, cache_modifier='.xy')", TypeMismatchError, "cache_modifier", "tl.load"),
    ("x = tl.load(p + o, eviction_policy='never')", TypeMismatchError, "eviction_policy", "tl.load"),
    ("x = tl.load(p + o, boundary_check=(0,))", TypeMismatchError, "block pointers", "tl.load"),
    ("tl.store(p, o)", ShapeMismatchError, "scalar value", "tl.store"),
    ("tl.store(p + o, tl.zeros((32,), tl.float32))", ShapeMismatchError, "[32]", "tl.store"),
    ("x = p * 2", TypeMismatchError, "pointer<fp32>", "p * 2"),
    ("x = p + f", TypeMismatchError, "+", "p + f"),
    ("x = p + q", TypeMismatchError, "one type", "p + q"),
    ("x = f & 1", TypeMismatchError, "integers", "f & 1"),
    ("x = f // 2", TypeMismatchError, "integers", "f // 2"),
    ("x = ~f", TypeMismatchError, "integers", "~f"),
    ("x = n ** 2", UnsupportedLanguageConstruct, "**", "n ** 2"),
    ("x = o @ o", UnsupportedLanguageConstruct, "tl.dot", "o @ o"),
    ("x = n.to(tl.int8) + 300", TypeMismatchError, "range of int8", "n.to"),
    ("x = n.to(tl.uint8) * -1", TypeMismatchError, "negative", "n.to"),
    ("x = n.to(tl.uint32) // n", TypeMismatchError, "signedness", "n.to"),
    ("x = f.to(tl.int32, fp_downcast_rounding='rtz')", TypeMismatchError, "fp_downcast_rounding", "f.to"),
    ("x = f.to(tl.int64, bitcast=True)", TypeMismatchError, "64", "f.to"),
    ("x = n.foo", TypeMismatchError, "no attribute 'foo'", "n.foo"),
    ("x = tl.exp(n)", TypeMismatchError, "fp32", "tl.exp"),
    ("x = tl.load(p + o, o < 3, 0.0, 1, 2, 3, 4, 5, 6, 7)", TypeMismatchError, "argument", "tl.load"),
    ("x = tl.load()", TypeMismatchError, "pointer", "tl.load"),
    ("x = tl.program_id(3)", TypeMismatchError, "0, 1 or 2", "tl.program_id"),
    ("if o > 3:\n    pass", TypeMismatchError, "one truth value", "if"),
    ("while o > 3:\n    pass", TypeMismatchError, "one truth value", "while"),
    ("x = 1 if o > 3 else 2", TypeMismatchError, "one truth value", "1 if"),
    ("x = 1\nif n > 3:\n    x = 2.0", TypeMismatchError, "x is fp32", "if n"),
    ("x = f if n > 3 else n", TypeMismatchError, "fp32 and int32", "f if"),
    ("x = 0\nfor i in range(n):\n    x += 0.5", TypeMismatchError, "x is int32 before the loop and fp32", "for i"),
    ("x = o\nwhile n > 0:\n    x = tl.sum(x)", TypeMismatchError, "x is <[16], int32>", "while"),
    ("for i in range(f):\n    pass", TypeMismatchError, "integers", "for i"),
    ("for i in range(0, n, 0):\n    pass", TypeMismatchError, "not 0", "for i"),
    ("for i in tl.static_range(n):\n    pass", TypeMismatchError, "compile-time", "tl.static_range"),
    ("for i in o:\n    pass", TypeMismatchError, "not a tensor", "for i"),
    ("x = 0\nfor i in range(n):\n    if n > i:\n        x = 1.5\n        break", TypeMismatchError, "x is fp32 after the then branch", "if n > i"),
    ("for i in range(n):\n    if n > 2:\n        continue\n    y = i\ntl.store(p, y)", NameResolutionError, "y is not defined", "y)"),
    ("for i in tl.static_range(3):\n    if n > 2:\n        continue\n    y = i\ntl.store(p, y)", NameResolutionError, "y is assigned on some paths of an unrolled loop", "y)"),
    ("for i in range(n):\n    if n > 2:\n        return i", TypeMismatchError, "returns int32 on one path and nothing", None),
    ("while True:\n    if n > 2:\n        continue\n    n += 1", UnsupportedLanguageConstruct, "never ends", "while"),
    ("while True:\n    continue\n    return", UnsupportedLanguageConstruct, "its return cannot be reached", "while"),
    ("while True:\n    break\nelse:\n    pass", UnsupportedLanguageConstruct, "else after while", "while"),
    ("while True:\n    n += 1", UnsupportedLanguageConstruct, "never ends", "while"),
    ("for i in range(n):\n    pass\nelse:\n    pass", UnsupportedLanguageConstruct, "else after for", "for i"),
    ("return n", TypeMismatchError, "kernels return nothing", None),
    ("try:\n    pass\nexcept ValueError:\n    pass", UnsupportedLanguageConstruct, "try", "try"),
    ("with p:\n    pass", UnsupportedLanguageConstruct, "with", "with"),
    ("import os", UnsupportedLanguageConstruct, "import", "import"),
    ("def g():\n    pass", UnsupportedLanguageConstruct, "nested function", "def g"),
    ("x = {1: n}", TypeMismatchError, "compile-time keys and values", "{1"),
    ("x = {1, 2}", UnsupportedLanguageConstruct, "a set", "{1"),
    ("raise ValueError()", UnsupportedLanguageConstruct, "raise", "raise"),
    ("p[0] = 1.0", UnsupportedLanguageConstruct, "tl.store", "p[0]"),
    ("global D", UnsupportedLanguageConstruct, "global", "global"),
    ("a, b = 1, 2, 3", TypeMismatchError, "3 values are assigned to 2 names", "a, b"),
    ("tl.static_assert(C == 8, f'C is {C}')", CompileTimeAssertionFailure, "C is 7", "tl.static_assert"),
    ("assert C == 8, 'no'", CompileTimeAssertionFailure, "no", "assert"),
    ("tl.static_assert(n == 8)", TypeMismatchError, "device_assert", "tl.static_assert"),
    ("x = tl.make_block_ptr(p + o, (4,), (1,), (0,), (4,), (0,))", TypeMismatchError, "scalar pointer", "tl.make_block_ptr"),
    ("x = tl.make_block_ptr(p, (4, 4), (1,), (0,), (4,), (0,))", ShapeMismatchError, "1 integers", "tl.make_block_ptr"),
    ("x = tl.make_block_ptr(p, (4,), (1,), (n.to(tl.int64),), (4,), (0,))", TypeMismatchError, "32 bits", "tl.make_block_ptr"),
    ("x = tl.make_block_ptr(p, (4,), (1,), (0,), (5,), (0,))", ShapeMismatchError, "powers of two", "tl.make_block_ptr"),
    ("x = tl.make_block_ptr(p, (4,), (1,), (0,), (4,), (1,))", ShapeMismatchError, "permutation", "tl.make_block_ptr"),
    ("x = tl.load(tl.make_block_ptr(p, (4,), (1,), (0,), (4,), (0,)), other=0.0)", TypeMismatchError, "boundary_check", "tl.load"),
    ("x = tl.load(tl.make_block_ptr(p, (4,), (1,), (0,), (4,), (0,)), boundary_check=(1,))", ShapeMismatchError, "dim 1", "tl.load"),
    ("tl.store(tl.make_block_ptr(p, (16,), (1,), (0,), (16,), (0,)), o)", TypeMismatchError, "cast with .to(fp32)", "tl.store"),
    ("x = tl.advance(p, (1,))", TypeMismatchError, "block pointer", "tl.advance"),
    ("x = tl.make_tensor_descriptor(p + o, [4], [1], [4])", TypeMismatchError, "scalar pointer", "tl.make_tensor_descriptor"),
    ("x = tl.make_tensor_descriptor(p, [4, 4], [4, 1], [4])", ShapeMismatchError, "2 entries of block_shape, not 1", "tl.make_tensor_descriptor"),
    ("x = tl.make_tensor_descriptor(p, [4, 4], [1], [4, 4])", ShapeMismatchError, "2 entries of strides, not 1", "tl.make_tensor_descriptor"),
    ("x = tl.make_tensor_descriptor(p, [n] * 6, [n] * 5 + [1], [4] * 6)", ShapeMismatchError, "1 to 5 dims, not 6", "tl.make_tensor_descriptor"),
    ("x = tl.make_tensor_descriptor(p, [n], [1], [n])", TypeMismatchError, "compile-time integers", "tl.make_tensor_descriptor"),
    ("x = tl.make_tensor_descriptor(p, [n], [1], [12])", ShapeMismatchError, "powers of two", "tl.make_tensor_descriptor"),
    ("x = tl.make_tensor_descriptor(p, [n], [1], [2])", ShapeMismatchError, "at least 16 bytes; 2 elements of fp32 have 8", "tl.make_tensor_descriptor"),
    ("x = tl.make_tensor_descriptor(p, [n], [n], [4])", TypeMismatchError, "last stride of a tensor descriptor is 1", "tl.make_tensor_descriptor"),
    ("x = tl.make_tensor_descriptor(p, [n, n], [1, 2], [4, 4])", TypeMismatchError, "last stride of a tensor descriptor is 1", "tl.make_tensor_descriptor"),
    ("x = tl.make_tensor_descriptor(p, [f], [1], [4])", TypeMismatchError, "integer scalars, not fp32", "tl.make_tensor_descriptor"),
    ("x = tl.make_tensor_descriptor(p, n, [1], [4])", TypeMismatchError, "are a list", "tl.make_tensor_descriptor"),
    ("x = tl.make_tensor_descriptor(p, [n], [1], [4], padding_option='one')", TypeMismatchError, "padding_option", "tl.make_tensor_descriptor"),
    ("x = tl.make_tensor_descriptor(q, [n], [1], [4], padding_option='nan')", TypeMismatchError, "for floats, not int32", "tl.make_tensor_descriptor"),
    (f"d = {_D}\nx = d.load([n, 0])", ShapeMismatchError, "takes 1 offsets, not 2", "d.load"),
    (f"d = {_D}\nx = d.load(n)", TypeMismatchError, "offsets of a tensor descriptor are a list", "d.load"),
    (f"d = {_D}\nx = d.load([f])", TypeMismatchError, "integer scalars, not fp32", "d.load"),
    (f"d = {_D}\nx = d.load([o])", TypeMismatchError, "integer scalars, not <[16], int32>", "d.load"),
    (f"d = {_D}\nx = d.load([n.to(tl.int64)])", TypeMismatchError, "32 bits, not int64", "d.load"),
    (f"d = {_D}\nd.store([0], o[:, None])", ShapeMismatchError, "of shape [16], not [16, 1]", "d.store"),
    (f"d = {_D}\nd.store([0], 1.0)", ShapeMismatchError, "of shape [16], not []", "d.store"),
    (f"d = {_D}\nd.atomic_and([0], o)", TypeMismatchError, "works on integers, not fp32", "d.atomic_and"),
    ("d = tl.make_tensor_descriptor(p.to(tl.pointer_type(tl.int16), bitcast=True), [n], [1], [16])\nd.atomic_add([0], o)", TypeMismatchError,
     "does not support int16", "d.atomic_add"),
    (f"d = {_D}\nx = d.gather(o, 0)", ShapeMismatchError, "blocks [1, columns], not [16]", "d.gather"),
    ("d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [1, 4])\nx = d.gather(o * 1.0, 0)", TypeMismatchError, "row numbers of gather", "d.gather"),
    ("d = tl.make_tensor_descriptor(p, [n, n], [n, 1], [1, 4])\nd.scatter(tl.zeros((16, 8), tl.float32), o, 0)", ShapeMismatchError,
     "of shape [16, 4], not [16, 8]", "d.scatter"),
    ("x = tl.load_tensor_descriptor(p, [0])", TypeMismatchError, "through a tensor descriptor", "tl.load_tensor_descriptor"),
    (f"d = {_D}\nx = tl.load(d)", TypeMismatchError, "pointer", "tl.load"),
    (f"d = {_D}\nfor i in range(n):\n    d = tl.make_tensor_descriptor(p, [n], [1], [32])", TypeMismatchError, "d is tensor descriptor of blocks [16]", "for i"),
    (f"d = {_D}\nif n > 3:\n    d = tl.make_tensor_descriptor(p, [n], [1], [16], padding_option='nan')", TypeMismatchError, "d is tensor descriptor of blocks [16]", "if n"),
    ("x = C(1)", TypeMismatchError, "cannot be called", "C(1)"),
    ("x = open('f')", NameResolutionError, "Python's open", "open"),
    ("tl.atomic_add(q + o, o, sem='strong')", TypeMismatchError, "sem", "tl.atomic_add"),
    ("tl.atomic_and(p + o, 1.0)", TypeMismatchError, "integers", "tl.atomic_and"),
    ("x = libdevice.tanh(n)", TypeMismatchError, "tanh takes", "libdevice.tanh"),
    ("x = tl.where(n > 3, p, 1)", TypeMismatchError, "one type", "tl.where"),
    ("x = tl.topk(o, 3)", ShapeMismatchError, "power of two", "tl.topk"),
    ("x = -p", TypeMismatchError, "negative", "-p"),
    ("x = (1, 2)[n]", TypeMismatchError, "compile-time integer", "(1, 2)[n]"),
    ("x = (1, 2)[5]", TypeMismatchError, "outside a tuple", "(1, 2)[5]"),
]


@pytest.mark.parametrize("body, kind, part, at", CASES, ids=[c[0].replace("\n", ";")[:60] for c in CASES])
def test_mistake(body, kind, part, at):
    error = mistake(body)
    assert type(error) is kind, str(error)
    assert part in error.message, error.message
    assert error.file.startswith("<kernel") and error.line > 0
    line = linecache.getline(error.file, error.line)
    text = str(error).splitlines()
    assert text[0].startswith(f"{error.file}:{error.line}:{error.col + 1}: ")
    assert text[-2] == "    " + line.rstrip("\n") and text[-1] == "    " + " " * error.col + "^"
    if at is not None:
        assert line[error.col:].startswith(at), str(error)


def test_a_global_that_is_no_constexpr():
    error = mistake("x = SIZE + 1", before="SIZE = 3")
    assert type(error) is NameResolutionError and "SIZE = tl.constexpr(3)" in error.message


def test_a_plain_python_function():
    error = mistake("x = helper(n)", before="def helper(x):\n    return x")
    assert type(error) is NameResolutionError and "@jit" in error.message


def test_globals_may_be_allowed(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_ALLOW_NON_CONSTEXPR_GLOBALS", "1")
    kernel = define("SIZE = 4\n@triton.jit\ndef kernel(p):\n    tl.store(p + tl.arange(0, SIZE), 1.0)\n")
    compile_tt(kernel, {"p": "*fp32"})


def test_an_error_in_a_helper_names_the_helpers_line():
    error = mistake("x = helper(o, n)", before="@triton.jit\ndef helper(a, b):\n    c = b + 1\n    return a + tl.load(c)\n")
    assert type(error) is TypeMismatchError and "return a + tl.load(c)" in error.source_line
    assert error.source_line[error.col:].startswith("tl.load(c)")
    assert str(error).splitlines()[-1].endswith(": x = helper(o, n)") and "called from <kernel" in str(error)


def test_an_error_names_every_call_on_the_way():
    error = mistake("y = n\nx = outer(o)", before="@triton.jit\ndef inner(a):\n    return a.nothing\n\n@triton.jit\ndef outer(a):\n    return inner(a)\n")
    assert [line.split(": ", 1)[1] for line in str(error).splitlines()[-2:]] == ["return inner(a)", "x = outer(o)"]


@pytest.mark.parametrize("call, part", [("helper(1)", "missing a required argument: 'b'"), ("helper(1, 2, 3)", "too many positional"),
                                        ("helper(1, c=3)", "missing a required argument")])
def test_wrong_arguments_of_a_helper(call, part):
    error = mistake(f"x = {call}", before="@triton.jit\ndef helper(a, b):\n    return a + b\n")
    assert type(error) is TypeMismatchError and part in error.message


def test_recursion():
    error = mistake("x = f1(n)", before="@triton.jit\ndef f1(a):\n    return f2(a)\n\n@triton.jit\ndef f2(a):\n    return f1(a)\n")
    assert type(error) is UnsupportedLanguageConstruct and "recursion" in error.message and "return f1(a)" in error.source_line


def test_paths_that_return_different_types():
    before = "@triton.jit\ndef g(a):\n    if a > 0:\n        return a\n    return 1.0\n"
    error = mistake("x = g(n)", before)
    assert type(error) is TypeMismatchError and "int32 on one path and fp32" in error.message
    before = "@triton.jit\ndef g(a):\n    for i in range(a):\n        if i > 3:\n            return i\n"
    error = mistake("x = g(n)", before=before)
    assert type(error) is TypeMismatchError and "returns int32 on one path and nothing on another" in error.message
    before = "@triton.jit\ndef g(a):\n    for i in range(a):\n        if i > 3:\n            return i\n        if i == 2:\n            return 0.5\n    return a\n"
    error = mistake("x = g(n)", before=before)
    assert type(error) is TypeMismatchError and "the function returns" in error.message
    before = "@triton.jit\ndef g(a):\n    if a > 0:\n        return a\n"
    error = mistake("x = g(n)", before)
    assert type(error) is TypeMismatchError and "nothing on another" in error.message


def test_a_wrong_combiner():
    before = "@triton.jit\ndef g(a, b):\n    return a, b\n"
    error = mistake("x = tl.reduce(o, 0, g)", before)
    assert type(error) is TypeMismatchError and "returns 2 values for 1 inputs" in error.message
    before = "@triton.jit\ndef g(a, b):\n    return a + 0.5\n"
    error = mistake("x = tl.reduce(o, 0, g)", before)
    assert type(error) is TypeMismatchError and "fp32 where its input is int32" in error.message


def test_a_tl_function_outside_a_kernel():
    import tilewright.language as tl
    from tilewright.dialects.errors import TilewrightError

    with pytest.raises(TilewrightError, match="outside a kernel"):
        tl.arange(0, 4)


def test_an_indented_kernel_has_its_own_columns():
    kernel = define("class Holder:\n    @triton.jit\n    def kernel(p):\n        tl.store(p, nothing)\nkernel = Holder.kernel\n")
    with pytest.raises(NameResolutionError) as info:
        compile_tt(kernel, {"p": "*fp32"})
    assert info.value.source_line[info.value.col:].startswith("nothing")


def test_a_failed_compilation_leaves_the_next_one_intact():
    for _ in range(3):
        mistake("for i in range(n):\n    if i > 3:\n        o = o + tl.arange(0, 32)")
    compile_tt(define("@triton.jit\ndef kernel(p):\n    tl.store(p, 1.0)\n"), {"p": "*fp32"})
