"""What Python's syntax means in kernels: one function a row, whose value is stored with its type. Each target gives what the interpreter gives, and
what Python itself (or the language's rule, where numbers are run-time ones) has."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest
import torch

import tilewright
from tilewright.conformance.harness import ONLY_INTERPRETER, compare, kernel_of
from tilewright.dialects.errors import CompilationError, UnsupportedLanguageConstruct
from tilewright.runtime.interpreter import InterpretedFunction, InterpreterError

_TYPES = ["int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "fp16", "bf16", "fp32", "fp64"]
N, F, C = 5, 1.5, 7
# body of a function of (n: int32 = 5, f: fp32 = 1.5, C: constexpr = 7) → (value, type)
ROWS = {
    # an assigned number is a run-time one, a compile-time number is Python's
    "x = -7\nreturn x // 2": (-3, "int32"), "x: tl.constexpr = -7\nreturn x // 2": (-4, "int32"), "return -C // 2": (-4, "int32"),
    "return -n // 2": (-2, "int32"), "return -n % 3": (-2, "int32"), "return -C % 3": (2, "int32"), "x = 7\nreturn x / 2": (3.5, "fp32"),
    "x = 3\nreturn x * 0.5": (1.5, "fp32"), "x = 2147483647\nreturn x + 1": (-2147483648, "int32"), "return 2147483647 + 1": (2147483648, "uint32"),
    "x = 2**40\nreturn x * n": (2**40 * 5, "int64"), "x = True\nreturn x + x": (0, "int1"), "x = True\nreturn x + 1": (2, "int32"), "return True + True": (2, "int32"),
    "x, y = 7, -2\nreturn x // y": (-3, "int32"), "x = y = -7\nreturn (x + y) // 4": (-3, "int32"), "x = -7\nx //= 2\nreturn x": (-3, "int32"),
    "x: tl.constexpr = -7\nx //= 2\nreturn x": (-4, "int32"), "return (x := -7) // 2": (-3, "int32"), "x: tl.constexpr = C - 14\nreturn x // 2": (-4, "int32"),
    # loop variables are run-time, static ones are not
    "x = 0\nfor i in range(-3, 0):\n    x += i // 2\nreturn x": (-2, "int32"), "x = 0\nfor i in tl.range(-3, 0):\n    x += i // 2\nreturn x": (-2, "int32"),
    "x = 0\nfor i in tl.static_range(-3, 0):\n    x += i // 2\nreturn x": (-4, "int32"), "x = 0\nfor i in (-3, -2):\n    x += i // 2\nreturn x": (-3, "int32"),
    "x = 0\nfor i in range(n > 2):\n    x += 1\nreturn x": (1, "int32"), "x = 0\nfor i in range(n > 9, n, True):\n    x += i\nreturn x": (10, "int32"),
    "x = 0\nfor i in range(3, -1, -1):\n    x = x * 10 + i\nreturn x": (3210, "int32"), 
    # truth
    "return n and 3": (5, "int32"), "return 3 and n": (5, "int32"), "return n or 3": (3, "int32"), "return n and n - 5": (0, "int1"), "return 0 or n": (5, "int32"),
    "return C and C + 1": (8, "int32"), "return not n": (0, "int1"), "return not C": (0, "int1"), "return n > 2 and f < 2": (1, "int1"), "return 1 < n < 6 <= C": (1, "int1"),
    "return 1 < C < 3": (0, "int1"), "return n == n != 3": (1, "int1"), "return n is None": (0, "int1"), "return n is not None": (1, "int1"),
    "return C in (3, 7)": (1, "int1"), "return C not in (3, 7)": (0, "int1"), 'return "a" in "abc"': (1, "int1"), "return n == None": (0, "int1"), "return (n, 1) == (5, 1)": (1, "int1"),
    "return (n, 1) != (5, 1)": (0, "int1"), "return (1, 2) < (1, 3)": (1, "int1"), "return (n, 1) == (n, 1, 2)": (0, "int1"),
    # choices
    "return n if n > 2 else 3": (5, "int32"), "return 2 if n > 9 else -7 // 2": (-4, "int32"), "return f if C else n": (1.5, "fp32"), "return (n if n > 2 else 1) if f > 9 else 2": (2, "int32"),
    "x: tl.constexpr = 3 if C > 2 else 4\nreturn -x // 2": (-2, "int32"), "return 2 if n > 2 else 2": (2, "int32"),
    # tuples
    "t = (1, n, -7)\nreturn t[-1] // 2": (-3, "int32"), "return (1, 2, -7)[-1] // 2": (-4, "int32"), "return (1, 2, 3, n)[::3][1]": (5, "int32"), "return (1, 2, 3)[::-1][0]": (3, "int32"),
    "return [1, n][1:][0]": (5, "int32"), "t = (1, n)\nt[0] = -7\nreturn t[0] // 2 + t[1]": (2, "int32"), "t = [1, (n, 2)]\nt[1][0] += 4\nreturn t[1][0]": (9, "int32"), "t = (1, 2)\nu = t\nt[0] = 5\nreturn u[0]": (1, "int32"),
    "t = (1, 2) + (n,)\nreturn t[2]": (5, "int32"), "return len((1, n) * 3)": (6, "int32"), "return len(3 * (1, n))": (6, "int32"), "x, *y = (1, 2, n)\nreturn y[1] + len(y)": (7, "int32"),
    "*x, y = (1, 2, n)\nreturn x[1] * y": (10, "int32"), "(x, y), z = (1, n), 2\nreturn y * z": (10, "int32"), "x, y = n, f\nx, y = y, x\nreturn x": (1.5, "fp32"), "t = (0, 0)\nt[0], x = n, 2\nreturn t[0] * x": (10, "int32"),
    "return tl.sum(tl.zeros((4,), tl.int32) + (lambda *a: a[1])(1, n))": (20, "int32"), "return sum((n, 1, 2))": (8, "int32"), "return sum([i * n for i in (1, 2)])": (15, "int32"),
    "return sum(i for i in (1, 2, 3) if i != 2)": (4, "int32"), "return [i * i for i in tl.static_range(4)][3]": (9, "int32"), "return [a + b for a, b in ((1, 2), (3, 4))][1]": (7, "int32"),
    "return max(*(1, n), 3)": (5, "int32"), "return min((n, 9))": (5, "int32"), "return len([*(1, 2), n])": (3, "int32"), 'return {"a": -7, 3: 4}["a"] // 2': (-4, "int32"), "a, b = [n + k for k in (1, 2)]\nreturn a * b": (42, "int32"),
    "return [v for _, v in enumerate((3, n))][1]": (5, "int32"), "return [a * b for a, b in zip((1, 2), (n, 4))][0]": (5, "int32"), "return list(reversed((1, n)))[0]": (5, "int32"),
    # functions
    "return int(f)": (1, "int32"), "return int(-1.5)": (-1, "int32"), "return float(n)": (5, "fp32"), "return bool(n)": (1, "int1"), "return abs(-n)": (5, "int32"), "return len(f'{C}{3}')": (2, "int32"), "return int(f'{C:>2}'[1])": (7, "int32"),
    "return isinstance(C, int)": (1, "int1"), "return hasattr(n, 'dtype')": (1, "int1"), "return isinstance(n, tl.tensor)": (1, "int1"), "return (lambda a, b=2: a * b)(n)": (10, "int32"),
    "y = 3\ng = lambda a: a + y\ny = 4\nreturn g(n)": (9, "int32"), "return halved(-7)": (-4, "int32"), "return halved(n - 12)": (-3, "int32"), "x = -7\nreturn halved(x)": (-3, "int32"), "return halved(numbers(-7))": (-3, "int32"),
    "return counted(1, n, 3)": (8, "int32"), "return counted(*(1, n), *[3])": (8, "int32"), "return tl.cdiv(-7, 2)": (-3, "int32"), "return pow(2, C)": (128, "int32"),
    # statements
    "del f\nf = n\nreturn f": (5, "int32"), "assert C == 7\nreturn n": (5, "int32"), "x: tl.int32 = n\nreturn x": (5, "int32"), "x = 0\nwhile x < n:\n    x += 2\nreturn x": (6, "int32"),
    "x = 0\nwhile True:\n    x += 1\n    if x > n:\n        break\nreturn x": (6, "int32"), "if n > 2:\n    x = -7\nelse:\n    x = 3\nreturn x // 2": (-3, "int32"), "if C > 2:\n    x = -7\nreturn x // 2": (-3, "int32"),
    "for i in range(9):\n    if i == n:\n        return i\nreturn 77": (5, "int32"), "x = 0\nfor i in range(9):\n    if i % 2 == 0:\n        continue\n    x += i\nreturn x": (16, "int32"),
    "x = tl.full((16,), 0xFF, tl.int8)\nreturn tl.max(x, 0)": (-1, "int32"), "x = tl.full((16,), -1, tl.uint32)\nreturn tl.max(x, 0)": (2**32 - 1, "uint32"), "x = tl.full((4,), 2.0, tl.int32)\nreturn tl.sum(x)": (8, "int32"),
}
_HEADER = f"""
@triton.constexpr_function
def number_of(dtype):
    return {_TYPES}.index(str(dtype))

@triton.jit
def halved(a):
    return a // 2

@triton.jit
def numbers(a: tl.constexpr):
    return a

@triton.jit
def counted(first, *rest):
    return first + rest[0] + len(rest)

@triton.jit
def put(o, k: tl.constexpr, x):
    y = x
    tl.store(o + 2 * k, y.to(tl.float64))
    tl.store(o + 2 * k + 1, number_of(y.dtype))
"""


def test_values_and_types():
    rows: Any = ROWS
    functions = "".join(f"\n@triton.jit\ndef row{k}(n, f, C: tl.constexpr):\n{textwrap.indent(body, '    ')}\n" for k, body in enumerate(rows))
    calls = "".join(f"    put(o, {k}, row{k}(n, f, C))\n" for k in range(len(rows)))
    source = f"{_HEADER}{functions}\n@triton.jit\ndef kernel(o, n, f, C: tl.constexpr):\n{calls}"
    out = torch.full((2 * len(rows),), float("nan"), dtype=torch.float64)
    kernel = kernel_of(source)
    args = {"o": out.clone(), "n": N, "f": F, "C": C}
    InterpretedFunction(kernel)[(1,)](**args)
    found = args["o"].numpy().reshape(-1, 2)
    wrong = [(body, want, value, _TYPES[int(type)]) for (body, want), (value, type) in zip(rows.items(), found) if (value, _TYPES[int(type)]) != want]
    assert not wrong, "\n".join(map(str, wrong))
    compare(source, {"o": out, "n": N, "f": F, "C": C})


# statements of several lines, which error_table.py cannot hold
@pytest.mark.parametrize("body, text", [
    ("try:\n    x = 1\nfinally:\n    x = 2", "does not have try"), ("match n:\n    case 1:\n        x = 1", "does not have match"),
    ("for i in (1, 2):\n    pass\nelse:\n    x = 1", "else after for"), ("while n > 5:\n    pass\nelse:\n    x = 1", "else after while"),
    ("def g():\n    return 1", "nested function definition"), ("class A:\n    x = 1", "class definition"), ("with n:\n    x = 1", "`with` takes context managers")])
@pytest.mark.parametrize("interpreted", [False, True])
def test_statements_that_the_language_lacks(body, text, interpreted):
    kernel = kernel_of(f"@triton.jit\ndef kernel(o, n):\n{textwrap.indent(body, '    ')}\n    tl.store(o, n)\n")
    with pytest.raises(UnsupportedLanguageConstruct, match=text):
        (InterpretedFunction(kernel) if interpreted or ONLY_INTERPRETER else kernel)[(1,)](torch.zeros(4), 3)


@pytest.mark.parametrize("interpreted", [False, True])
def test_a_kernel_returns_nothing(interpreted):
    kernel = kernel_of("@triton.jit\ndef kernel(o, n):\n    tl.store(o, n)\n    return n\n")
    with pytest.raises(CompilationError, match="the kernel kernel returns a value"):
        (InterpretedFunction(kernel) if interpreted or ONLY_INTERPRETER else kernel)[(1,)](torch.zeros(4), 3)


LOCK = """
@triton.jit
def kernel(lock, total, order):
    while tl.atomic_cas(lock, 0, 1) != 0:
        pass
    tl.store(total, tl.load(total) + tl.program_id(0))
    tl.atomic_xchg(lock, 0)
"""


def test_a_lock_that_is_released_works():
    compare(LOCK, {"lock": torch.zeros(1, dtype=torch.int32), "total": torch.zeros(1, dtype=torch.int32), "order": 0}, grid=(6,),
            expected={"total": np.array([15], np.int32)})


@pytest.mark.parametrize("body", [
    "while tl.load(flag, volatile=True) != 1:\n    pass", "while tl.atomic_cas(flag, 1, 2) != 1:\n    pass", "while tl.atomic_add(flag, 0) != 1:\n    x = n",
    "while True:\n    if tl.load(flag) == 1:\n        break", "x = n\nwhile tl.load(flag) == 0:\n    x = 1 - x", "x = 0\nwhile tl.load(flag) == 0:\n    x = (x + 1) % 7"])
def test_a_wait_for_a_later_program_is_an_error_of_the_interpreter(body):
    kernel = kernel_of(f"""
@triton.jit
def kernel(flag, n):
    if tl.program_id(0) == 0:
{textwrap.indent(body, '        ')}
    else:
        tl.store(flag, 1)
""")
    with pytest.raises(InterpreterError, match="neither memory nor a variable changes any more"):
        InterpretedFunction(kernel)[(2,)](torch.zeros(1, dtype=torch.int32), 3)


def test_long_loops_that_change_something_end():
    compare("""
        @triton.jit
        def kernel(o, n):
            x = n
            rounds = 0
            while x != 1:
                x = x // 2 if x % 2 == 0 else 3 * x + 1
                rounds += 1
                tl.store(o + 1, rounds)
            while tl.load(o + 1) < 3000:
                tl.atomic_add(o + 1, 1)
            tl.store(o, rounds)
        """, {"o": torch.zeros(2, dtype=torch.int32), "n": 97}, num_warps=1, expected={"o": np.array([118, 3000], np.int32)})  # more warps would race


def test_hints_change_no_value():
    compare("""
        @triton.jit
        def kernel(o, n):
            x = 0
            for i in tl.range(0, n, num_stages=0, loop_unroll_factor=0, flatten=True, warp_specialize=False, disallow_acc_multi_buffer=True, disable_licm=True):
                x += i
            for i in tl.range(0, n, num_stages=3, loop_unroll_factor=-3):
                x += i
            tl.assume(n > 2)
            tl.store(o, tl.multiple_of(x, 5))
        """, {"o": torch.zeros(1, dtype=torch.int32), "n": 5}, expected={"o": np.array([20], np.int32)})


# taken as Triton takes it, since it may stand where it never runs, and told with the kernel's line
DOUBTFUL = [
    ("x = n // 0", "// by 0, a constant"), ("x = n % 0", "% by 0, a constant"), ("x = o // 0", "// by 0, a constant"),
    ("x = o % tl.zeros((16,), tl.int32)", "% by 0, a constant"), ("x = 0; y = n // x", "// by 0, a constant"), ("o //= 0", "// by 0, a constant"),
    ("x = tl.cdiv(n, 0)", "// by 0, a constant"),
    ("x = n << 32", "<< of int32 by 32, a constant: machines shift by 0 to 31"), ("x = n << -1", "<< of int32 by -1, a constant"),
    ("x = n >> 40", ">> of int32 by 40, a constant"), ("x = o.to(tl.int8) >> 8", ">> of int8 by 8, a constant: machines shift by 0 to 7"),
    ("x = n.to(tl.int64) << 64", "<< of int64 by 64, a constant"), ("x = 40; y = o << x", "<< of int32 by 40, a constant"),
    ('x = tl.load(tl.make_block_ptr(p, (n,), (1,), (0,), (16,), (0,)), padding_option="zero")', 'padding_option "zero" pads nothing'),
]


@pytest.mark.parametrize("interpreted", [False, True], ids=["compiled", "interpreted"])
@pytest.mark.parametrize("statement, text", DOUBTFUL)
def test_what_is_hardly_meant_is_told(statement, text, interpreted):
    kernel = kernel_of(f"""
        @triton.jit
        def kernel(p, n):
            o = tl.arange(0, 16)
            {statement}
            tl.store(p + o, 1.0)
        """)
    out = torch.full((16,), float("nan"))
    with pytest.warns(tilewright.KernelWarning) as told:
        if interpreted:
            InterpretedFunction(kernel)[(1,)](out, 16)
        else:
            kernel.warmup(out, 16, grid=(1,))
    (warning,) = [w for w in told if w.category is tilewright.KernelWarning]
    assert text in str(warning.message)
    assert warning.filename == kernel.fn.__code__.co_filename and warning.lineno == kernel.fn.__code__.co_firstlineno + 3
    assert not interpreted or bool((out == 1).all())
