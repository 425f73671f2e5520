"""Every misuse of the conformance suite's error_table.py: the class, the user's line and the text, compiled (to tt, for no target) and interpreted."""

from __future__ import annotations

import contextlib
import io
import linecache
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from tt_execution import compile_tt, define

from tilewright.compiler import names
from tilewright.compiler.code_generator import CodeGenerator
from tilewright.conformance.error_table import CASES, COMPILED
from tilewright.dialects.errors import ArgumentError, CompilationError, TilewrightError, UnsupportedLanguageConstruct
from tilewright.runtime.interpreter import InterpretedFunction, InterpreterError

SIGNATURE = {"p": "*fp32", "q": "*i32", "n": "i32", "f": "fp32", "C": "constexpr"}


def kernel_with(statement):
    return define(f"@triton.jit\ndef kernel(p, q, n, f, C: tl.constexpr):\n    o = tl.arange(0, 16)\n{textwrap.indent(statement, '    ')}\n")


def interpret(kernel):
    with contextlib.redirect_stdout(io.StringIO()):
        InterpretedFunction(kernel)[(1,)](np.zeros(4096, np.float32), np.zeros(4096, np.int32), 3, 1.5, 7)


def check(error, statement, kind, text):
    assert type(error) is kind, str(error)
    assert text in error.message, error.message
    assert error.file.startswith("<kernel") and linecache.getline(error.file, error.line).strip() == statement
    assert f"{error.file}:{error.line}:" in str(error) and str(error).splitlines()[2].strip() == "^"


@pytest.mark.parametrize("case", CASES, ids=[c[0][:70] for c in CASES])
def test_compiled(case):
    with pytest.raises(CompilationError) as info:
        compile_tt(kernel_with(case[0]), SIGNATURE, {"C": 7})
    check(info.value, *case[:3])


SAME = [c for c in CASES if COMPILED not in c]


@pytest.mark.parametrize("case", SAME, ids=[c[0][:70] for c in SAME])
def test_interpreted(case):
    with pytest.raises(CompilationError) as info:
        interpret(kernel_with(case[0]))
    check(info.value, *case)


OTHER = [c for c in CASES if COMPILED in c and not c[0].startswith("while")]


@pytest.mark.parametrize("case", OTHER, ids=[c[0][:70] for c in OTHER])
def test_interpreted_otherwise(case):
    """It may run there, and where it does not the error is one of Tilewright's, with the line."""
    try:
        interpret(kernel_with(case[0]))
    except (CompilationError, InterpreterError) as error:
        assert linecache.getline(error.file, error.line).strip() == case[0]
    except ArgumentError as error:
        assert case[0].startswith("x = triton.jit"), error


def test_the_languages_builtins_are_those_of_the_code_generator():
    assert set(CodeGenerator.builtin_names) == names.BUILTIN_NAMES


@pytest.mark.parametrize("condition", ["n > 2", "n > 100"])
def test_the_interpreter_refuses_a_construct_in_both_branches(condition):
    kernel = kernel_with(f"if {condition}:\n    try:\n        pass\n    finally:\n        pass")
    with pytest.raises(UnsupportedLanguageConstruct, match="try: kernels have no exceptions") as info:
        interpret(kernel)
    assert linecache.getline(info.value.file, info.value.line).strip() == "try:"


@pytest.mark.parametrize("options, text", [({"num_wraps": 4}, "'num_wraps' is neither"), ({"num_warps": 3}, "power of two"), ({"num_stages": -1}, "0 or more")])
def test_the_interpreter_refuses_options_that_no_target_has(options, text):
    with pytest.raises(ArgumentError, match=text):
        InterpretedFunction(kernel_with("pass"))[(1,)](np.zeros(4, np.float32), np.zeros(4, np.int32), 3, 1.5, 7, **options)


def test_the_interpreter_names_the_lines_of_calls():
    kernel = define("@triton.jit\ndef helper(a):\n    return a.nothing\n\n@triton.jit\ndef kernel(p):\n    helper(p)\n")
    with pytest.raises(TilewrightError) as info:
        InterpretedFunction(kernel)[(1,)](np.zeros(4, np.float32))
    assert info.value.source_line.strip() == "return a.nothing" and str(info.value).endswith(": helper(p)")


def test_the_interpreter_is_independent_of_the_compiler(tmp_path):
    script = """
        import sys
        import numpy as np
        import tilewright.language as tl
        from tilewright.runtime.interpreter import InterpretedFunction

        def kernel(p, n, N: tl.constexpr):
            i = tl.arange(0, N)
            tl.store(p + i, tl.cumsum(tl.exp(tl.load(p + i, i < n, 0.0))), i < n)

        InterpretedFunction(kernel)[(1,)](np.zeros(8, np.float32), 8, N=8, num_warps=4)
        print([m for m in sys.modules if m.split(".")[0] in ("mlir", "torch_mlir", "llvmlite") or "_mlir" in m or "lowering" in m
               or "passes" in m or m.startswith("tilewright.targets.") and m.split(".")[2] not in ("protocol", "registry")])
        """
    (tmp_path / "script.py").write_text(textwrap.dedent(script))
    done = subprocess.run([sys.executable, str(tmp_path / "script.py")], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_an_assert_in_the_interpreter_names_its_line():
    with pytest.raises(InterpreterError, match="assert does not hold: too small") as info:
        interpret(kernel_with("assert n > 3, 'too small'"))
    assert linecache.getline(info.value.file, info.value.line).strip().startswith("assert")
