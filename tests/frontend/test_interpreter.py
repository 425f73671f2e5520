"""The interpreter: memory checks, types, breakpoints, the order of programs, narrow floats against torch."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from tilewright.dialects.errors import ArgumentError
from tilewright.runtime.errors import KernelCallError
from tilewright.runtime.interpreter import InterpretedFunction, InterpreterError
from tilewright.runtime.interpreter_memory import decode, encode, round_to
from tilewright.runtime.interpreter_ops import OPS


def interpreted(source: str, name: str = "kernel"):
    """The function ``name`` of a module with that source, as the interpreter runs it."""
    import linecache

    source = "import tilewright.language as tl\n" + textwrap.dedent(source)
    scope: dict = {}
    linecache.cache["<kernel>"] = (len(source), None, source.splitlines(True), "<kernel>")
    exec(compile(source, "<kernel>", "exec"), scope)
    return InterpretedFunction(scope[name])


def test_without_its_source_a_kernel_is_refused():
    """Python's own // rounds down, the language's towards 0."""
    import linecache

    text = "def kernel(p, n):\n    for i in range(n):\n        i // 2\n"
    for lines, told in ((None, "the source of 'kernel' cannot be read"), (text.replace("kernel", "other"), "what stands there is not kernel: the file was edited")):
        linecache.cache.pop("<moved>", None)
        if lines:
            linecache.cache["<moved>"] = (1, None, lines.splitlines(True), "<moved>")
        scope: dict = {}
        exec(compile(text, "<moved>", "exec"), scope)
        with pytest.raises(KernelCallError, match=told):
            InterpretedFunction(scope["kernel"])[(1,)](np.zeros(1), 2)


def test_out_of_bounds_store_is_an_error_that_names_the_element():
    kernel = interpreted("""
        def kernel(p, N: tl.constexpr):
            tl.store(p + tl.arange(0, N), 1.0)
        """)
    x = np.zeros(100, np.float32)
    with pytest.raises(InterpreterError, match="element 100 of the access"):
        kernel[(1,)](x, N=128)


@pytest.mark.parametrize("index", [-1, 16, 2**31 - 1])
def test_gather_outside_its_dim_is_an_error_that_names_the_index(index):
    kernel = interpreted("""
        def kernel(p, index):
            i = tl.arange(0, 16)
            tl.store(p + i, tl.gather(i, tl.where(i == 3, index, i), 0))
        """)
    with pytest.raises(InterpreterError, match=f"index {index} is outside dim 0, which has 16"):
        kernel[(1,)](np.zeros(16, np.int32), index)


def test_masked_lanes_never_touch_memory_and_load_zero():
    kernel = interpreted("""
        def kernel(p, q, n, N: tl.constexpr):
            i = tl.arange(0, N)
            tl.store(q + i, tl.load(p + i * 1000, mask=i < n))
        """)
    x, y = np.full(2001, 7, np.int32), np.full(8, -1, np.int32)
    kernel[(1,)](x, y, 3, N=8)
    assert y.tolist() == [7, 7, 7, 0, 0, 0, 0, 0]


def test_runtime_integers_truncate_and_wrap():
    kernel = interpreted("""
        def kernel(p, a, b):
            tl.store(p, a // b)
            tl.store(p + 1, a % b)
            tl.store(p + 2, a * 2000000000)
        """)
    out = np.zeros(3, np.int32)
    kernel[(1,)](out, -7, 2)
    assert out.tolist() == [-3, -1, ((-7 * 2000000000 + 2**31) % 2**32) - 2**31]


def test_loop_variables_are_int32():
    kernel = interpreted("""
        def kernel(p, n):
            for i in range(n):
                tl.store(p + i, (i - 5) // 2)
        """)
    out = np.zeros(10, np.int32)
    kernel[(1,)](out, 10)
    assert out.tolist() == [int((i - 5) / 2) for i in range(10)]


def test_grid_runs_in_order_x_fastest():
    kernel = interpreted("""
        def kernel(count, order):
            i = tl.atomic_add(count, 1)
            tl.store(order + i, tl.program_id(0) + 10 * tl.program_id(1) + 100 * tl.program_id(2))
        """)
    count, order = np.zeros(1, np.int32), np.zeros(12, np.int32)
    kernel[(2, 3, 2)](count, order)
    assert order.tolist() == [x + 10 * y + 100 * z for z in range(2) for y in range(3) for x in range(2)]


def test_equal_addresses_of_an_atomic_see_each_other():
    kernel = interpreted("""
        def kernel(p, old, N: tl.constexpr):
            i = tl.arange(0, N)
            tl.store(old + i, tl.atomic_add(p + i % 2, i))
        """)
    p, old = np.zeros(2, np.int32), np.zeros(8, np.int32)
    kernel[(1,)](p, old, N=8)
    assert p.tolist() == [0 + 2 + 4 + 6, 1 + 3 + 5 + 7] and old.tolist() == [0, 0, 0, 1, 2, 4, 6, 9]


def test_unknown_argument_kind():
    kernel = interpreted("def kernel(p):\n    tl.store(p, 1)\n")
    with pytest.raises(ArgumentError, match="a builtins.dict is no kernel argument"):
        kernel[(1,)]({})


def test_breakpoints_in_kernels_see_tiles(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent("""
        import numpy as np
        import tilewright as triton
        import tilewright.language as tl

        @triton.jit
        def double(p, N: tl.constexpr):
            x = tl.load(p + tl.arange(0, N))
            breakpoint()
            tl.store(p + tl.arange(0, N), 2 * x)

        data = np.arange(4, dtype=np.float32)
        double[(1,)](data, N=4)
        print("result", data.tolist())
        """))
    done = subprocess.run([sys.executable, str(script)], input="p x.handle.data\nup\nc\n", capture_output=True, text=True,
                          env={**os.environ, "TILEWRIGHT_INTERPRET": "1"})
    assert "array([0., 1., 2., 3.], dtype=float32)" in done.stdout, done.stdout + done.stderr
    assert "result [0.0, 2.0, 4.0, 6.0]" in done.stdout


@pytest.mark.parametrize("name,torch_name", [("bf16", "bfloat16"), ("fp8e5", "float8_e5m2"), ("fp8e4b8", "float8_e4m3fnuz")])
def test_narrow_floats_round_as_torch_does(name, torch_name):
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng().integers(0, 2**32, 20000, dtype=np.uint32)
    values = bits.view(np.float32)
    values = np.concatenate([values, np.random.default_rng().standard_normal(20000).astype(np.float32) * 8])
    values = values[np.isfinite(values)]
    limit = {"bf16": 3e38, "fp8e5": 57344.0, "fp8e4b8": 240.0}[name]
    values = values[np.abs(values) <= limit]
    ours = round_to(values, name)
    theirs = torch.from_numpy(values).to(getattr(torch, torch_name)).float().numpy()
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(np.signbit(ours[ours != 0]), np.signbit(theirs[theirs != 0]))


@pytest.mark.parametrize("name", ["bf16", "fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16", "fp8e4b15"])
def test_every_pattern_survives_decode_and_encode(name):
    codes = np.arange(2 ** (16 if name == "bf16" else 8)).astype(np.uint16 if name == "bf16" else np.uint8)
    values = decode(codes, name)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(encode(values, name)[number], codes[number])
    assert np.isnan(decode(encode(values[~number], name), name)).all()


def test_fma_rounds_once():
    from fractions import Fraction

    import tilewright.language as tl

    rng = np.random.default_rng()
    a, b = (rng.standard_normal(3000).astype(np.float32) for _ in range(2))
    c = (-(a.astype(np.float64) * b) * (1 + rng.integers(-2, 3, 3000) * 2.0**-24)).astype(np.float32)  # cancellation
    got = OPS["math.fma"]([a, b, c], tl.float32, {})
    for x, y, z, g in zip(a, b, c, got):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        near = np.float32(float(exact)) if exact.denominator.bit_length() < 900 else g
        candidates = {float(np.nextafter(near, np.float32(s * np.inf))) for s in (1, -1)} | {float(near)}
        best = min(abs(Fraction(f) - exact) for f in candidates)
        assert abs(Fraction(float(g)) - exact) == best


def test_none_arguments_are_none_in_the_kernel():
    kernel = interpreted("""
        def kernel(p, bias, scale: tl.constexpr = None):
            v = 1.0
            if bias is not None:
                v += tl.load(bias)
            if scale is not None:
                v *= scale
            tl.store(p, v)
        """)
    x, b = np.zeros(1, np.float32), np.full(1, 2, np.float32)
    for arguments, want in (((None,), 1), ((b,), 3), ((None, 4), 4), ((b, 4), 12)):
        kernel[(1,)](x, *arguments)
        assert x[0] == want


@pytest.mark.parametrize("grid", [None, "a", (), (-1,), (1.5,), (1, 1, 1, 1)])
def test_grids_are_checked_as_for_compiled_kernels(grid):
    kernel = interpreted("def kernel(p):\n    tl.store(p, 1.0)")
    with pytest.raises(ArgumentError, match="grid"):
        kernel[grid](np.zeros(1, np.float32))


def test_arguments_that_cannot_be_read_are_errors():
    kernel = interpreted("def kernel(p, n):\n    tl.store(p, n)")
    with pytest.raises(ArgumentError, match="byte order"):
        kernel[(1,)](np.zeros(4, np.dtype(np.float32).newbyteorder()), 1)
    with pytest.raises(ArgumentError, match="more than 64 bits"):
        kernel[(1,)](np.zeros(4, np.float32), 2**70)
    torch = pytest.importorskip("torch")
    for value in (torch.empty(4, device="meta"), torch.eye(4).to_sparse()):
        with pytest.raises(ArgumentError, match="dense tensor"):
            kernel[(1,)](value, 1)
