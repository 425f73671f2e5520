"""Every operator of Python between every two kinds of scalars, compiled and interpreted: the same error class, or the same type and bits.

The IR is executed by the interpreter's operations (tt_execution), so that what is compared is the frontend's judgement: what is a compile-time
number, what a run-time one, of which type, and which operation it takes.
"""

from __future__ import annotations

import numpy as np
import pytest
from tt_execution import compile_tt, define, run_both, signature_of

from tilewright.dialects.errors import CompilationError
from tilewright.runtime.interpreter import InterpretedFunction

# kind of operand → the expression that has it (see _SETUP)
KINDS = {
    "int32 argument": "n", "int64 argument": "m", "fp32 argument": "f", "int1 argument": "b", "loop variable": "i", "program id": "pid", "int8 load": "i8",
    "uint8 load": "u8", "uint32 load": "u32", "fp16 load": "h", "fp64 load": "d", "constexpr": "C", "float constexpr": "D", "assigned number": "v",
    "assigned float": "w", "int": "-3", "float": "2.5", "bool": "True", "constexpr variable": "k",
}
_SETUP = """
    pid = tl.program_id(0)
    i8 = tl.load(p8)
    u8 = tl.load(pu8)
    u32 = tl.load(pu32)
    h = tl.load(ph)
    d = tl.load(pd)
    v = 7
    w = 0.75
    k: tl.constexpr = C - 2
"""
OPERATORS = ["{} + {}", "{} - {}", "{} * {}", "{} / {}", "{} // {}", "{} % {}", "{} ** {}", "{} << {}", "{} >> {}", "{} & {}", "{} | {}", "{} ^ {}", "{} == {}",
             "{} != {}", "{} < {}", "{} <= {}", "{} > {}", "{} >= {}", "{} and {}", "{} or {}", "{} is {}", "{} is not {}", "{} in ({}, 1)", "min({}, {})",
             "max({}, {})", "{} if n > 2 else {}", "{} if C > 2 else {}", "{} < {} < 5", "({}, {})[1]", "tl.cdiv({}, {})", "tl.where(b, {}, {})"]
UNARY = ["-{}", "+{}", "~{}", "not {}", "abs({})", "int({})", "float({})", "bool({})", "{} + 0", "(lambda a: a * 2)({})", "helper({})", "(y := {}) + 1"]
_NAMES = "p8 pu8 pu32 ph pd n m f b".split()
_TYPES = ["int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "fp16", "bf16", "fp32", "fp64"]


def source_of(texts):
    lines = "".join(f"        put(o, {k}, {text})\n" for k, text in enumerate(texts))
    return f"""
@triton.constexpr_function
def number_of(dtype):
    return {_TYPES}.index(str(dtype))

@triton.jit
def helper(a):
    a += 1
    return a

@triton.jit
def put(o, k: tl.constexpr, x):
    y = x
    tl.store(o + 2 * k, y.to(tl.float64))
    tl.store(o + 2 * k + 1, number_of(y.dtype))

@triton.jit
def kernel({', '.join(_NAMES)}, o, C: tl.constexpr, D: tl.constexpr):
{_SETUP}
    for i in range(-2, -1):
{lines}"""


def arguments(count):
    arrays = [np.array([-5], np.int8), np.array([250], np.uint8), np.array([4000000000], np.uint32), np.array([1.25], np.float16), np.array([-3.5], np.float64)]
    return [*arrays, 5, 2**40 + 9, -1.5, True, np.full(2 * count, np.nan)]


def outcome(call):
    try:
        call()
    except CompilationError as error:
        return type(error).__name__
    return None


def differences(texts):
    """Texts with what they are compiled and interpreted, where that is not the same. All that are taken run in one kernel."""
    found, taken = [], []
    constants = {"C": 4, "D": 0.5}
    for text in texts:
        kernel, args = define(source_of([text])), arguments(1)
        signature = {name: signature_of(a) for name, a in zip([*_NAMES, "o"], args)} | {"C": "constexpr", "D": "constexpr"}
        compiled = outcome(lambda: compile_tt(kernel, signature, constants))
        interpreted = outcome(lambda: InterpretedFunction(kernel)[(1,)](*args, **constants))
        if compiled != interpreted:
            found.append((text, compiled, interpreted))
        elif compiled is None:
            taken.append(text)
    if taken:
        args = arguments(len(taken))
        try:
            run_both(define(source_of(taken)), *args, **constants)
        except AssertionError:
            for text in taken:  # which of them
                try:
                    run_both(define(source_of([text])), *arguments(1), **constants)
                except AssertionError as error:
                    found.append((text, "values", str(error)[:200]))
    return found


SOME = [("n", "-3"), ("C", "n"), ("v", "w"), ("i", "u32"), ("b", "2.5"), ("h", "k"), ("C", "-3"), ("m", "pid")]


@pytest.mark.parametrize("a, b", SOME)
def test_some_pairs(a, b):
    assert not differences([op.format(a, b) for op in OPERATORS])


@pytest.mark.nightly
@pytest.mark.parametrize("a", KINDS.values(), ids=KINDS)
def test_all_pairs(a):
    assert not [d for b in KINDS.values() for d in differences([op.format(a, b) for op in OPERATORS])]


def test_operators_of_one():
    assert not differences([op.format(a) for op in UNARY for a in ("n", "f", "b", "i", "u8", "C", "D", "v", "-3", "True")])
