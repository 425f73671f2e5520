"""Elementwise ops: integers against numpy, narrow floats bit by bit against torch, functions in ulps against mpmath's values."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.language.extra import libdevice

torch = pytest.importorskip("torch")


@triton.jit
def integers_kernel(x, y, out, N: tl.constexpr, OP: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    if OP == "add":
        r = a + b
    elif OP == "sub":
        r = a - b
    elif OP == "mul":
        r = a * b
    elif OP == "div":
        r = a // b
    elif OP == "rem":
        r = a % b
    elif OP == "and":
        r = a & b
    elif OP == "or":
        r = a | b
    elif OP == "xor":
        r = a ^ b
    elif OP == "shl":
        r = a << (b & 7)
    elif OP == "shr":
        r = a >> (b & 7)
    elif OP == "min":
        r = tl.minimum(a, b)
    elif OP == "max":
        r = tl.maximum(a, b)
    elif OP == "lt":
        r = (a < b).to(x.dtype.element_ty)
    elif OP == "ge":
        r = (a >= b).to(x.dtype.element_ty)
    else:
        r = tl.where(a == b, a, -b)
    tl.store(out + at, r)


def truncated(a, b, what):
    """Division as in C, of Python integers; by zero anything will do (given as by one)."""
    b = b or 1
    q = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return q if what == "div" else a - q * b


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32"])
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "rem", "and", "or", "xor", "shl", "shr", "min", "max", "lt", "ge", "where"])
def test_integers(dtype, op):
    info, rng = np.iinfo(dtype), np.random.default_rng(0)
    x, y = (rng.integers(info.min, info.max, 64, endpoint=True, dtype=dtype) for _ in range(2))
    x[:4], y[:4] = [info.min, info.max, info.min, 7], [info.max, info.min, np.array(-1).astype(dtype), 0]
    y[8:24] = rng.integers(1, 9, 16)
    y[24:28] = x[24:28]
    out = np.zeros(64, dtype)
    integers_kernel[(1,)](x, y, out, N=64, OP=op)
    with np.errstate(over="ignore"):
        if op in ("div", "rem"):
            mask = (1 << info.bits) - 1
            expected = np.array([truncated(int(a), int(b), op) & mask for a, b in zip(x, y)], "uint64").astype(f"uint{info.bits}").view(dtype)
            out, expected = out[y != 0], expected[y != 0]
        else:
            expected = {"add": x + y, "sub": x - y, "mul": x * y, "and": x & y, "or": x | y, "xor": x ^ y, "shl": x << (y & 7),
                        "shr": x >> (y & 7), "min": np.minimum(x, y), "max": np.maximum(x, y), "lt": (x < y).astype(dtype),
                        "ge": (x >= y).astype(dtype), "where": np.where(x == y, x, np.zeros_like(y) - y)}[op]
    assert np.array_equal(out, expected)


@triton.jit
def convert_kernel(x, out, N: tl.constexpr, TO: tl.constexpr, ROUNDING: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    v = tl.load(x + at)
    if ROUNDING == "":
        tl.store(out + at, v.to(TO))
    else:
        tl.store(out + at, v.to(TO, fp_downcast_rounding=ROUNDING))


def floats(dtype):
    """Values that matter for rounding to narrower types, finite, with ties, subnormals and the ends of ranges."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(4096) * 2.0 ** rng.integers(-30, 18, 4096)
    halves = np.arange(0, 0x7C00, 31, dtype="uint16").view("float16").astype("float64")
    ties = halves + np.concatenate([np.diff(halves), [1]]) / 2
    fixed = [0.0, -0.0, 448, 449, 463.9, 464, 465, 57344, 61439, 61440, 65503, 65519.9, 65520, 2.0**-9, 2.0**-10, 1.5 * 2.0**-10, 2.0**-17, 2.0**-16 * 0.75]
    x = np.concatenate([x, halves, ties, fixed, -np.array(fixed)])
    return np.resize(x, 8192).astype(dtype)


TL = {"float16": tl.float16, "bfloat16": tl.bfloat16, "float8_e5m2": tl.float8e5, "float8_e4m3fn": tl.float8e4nv, "float32": tl.float32}


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_rounding_to_narrow_floats(source, target):
    x = torch.from_numpy(floats(source))
    if target.startswith("float8"):
        largest = 448.0 if "e4m3" in target else 57344.0
        expected = x.clamp(-largest, largest)
    else:
        expected = x
    # torch rounds f64 by way of f32; round to odd first so that it rounds once
    if source == "float64":
        near = expected.float()
        inexact = near.double() != expected
        bits = near.view(torch.int32)
        bits = torch.where(near.double().abs() > expected.abs(), bits - 1, bits)
        expected = torch.where(inexact, bits | 1, bits).view(torch.float32)
    expected = expected.to(getattr(torch, target))
    out = torch.zeros(8192, dtype=getattr(torch, target))
    convert_kernel[(8,)](x, out, N=1024, TO=TL[target], ROUNDING="")
    kind = torch.uint8 if target.startswith("float8") else torch.int16
    wrong = out.view(kind) != expected.view(kind)
    assert not wrong.any(), (x[wrong][:5], out[wrong][:5].float(), expected[wrong][:5].float())


@pytest.mark.parametrize("target", ["float16", "bfloat16", "float8_e5m2", "float8_e4m3fn"])
def test_rounding_toward_zero(target):
    largest = {"float16": 65504.0, "bfloat16": 3e38, "float8_e5m2": 57344.0, "float8_e4m3fn": 448.0}[target]
    x = torch.from_numpy(floats("float32")).clamp(-largest, largest)
    out = torch.zeros(8192, dtype=getattr(torch, target))
    convert_kernel[(8,)](x, out, N=1024, TO=TL[target], ROUNDING="rtz")
    got = out.float()
    assert (got.abs() <= x.abs()).all() and (got.signbit() == x.signbit()).all()
    kind = torch.uint8 if target.startswith("float8") else torch.int16
    above = (out.view(kind) + 1).view(out.dtype).float()  # the next magnitude
    assert ((above.abs() > x.abs()) | (got == x) | (got.abs() == largest)).all()


@pytest.mark.parametrize("source", ["float8_e5m2", "float8_e4m3fn", "bfloat16", "float16"])
def test_widening_is_exact(source):
    count = 256 if source.startswith("float8") else 65536
    codes = torch.arange(count, dtype=torch.int32)
    x = (codes.to(torch.uint8) if count == 256 else codes.to(torch.int16)).view(getattr(torch, source))
    out = torch.zeros(count)
    convert_kernel[(count // 256,)](x, out, N=256, TO=tl.float32, ROUNDING="")
    expected = x.float()
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out[~out.isnan()].view(torch.int32), expected[~out.isnan()].view(torch.int32))


@triton.jit
def arithmetic_kernel(x, y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, a + b)
    tl.store(out + N + at, a * b)
    tl.store(out + 2 * N + at, (a - b) * a)
    tl.store(out + 3 * N + at, (a.to(tl.float32) / b.to(tl.float32)).to(x.dtype.element_ty))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_operation_rounds_to_its_type(dtype):
    kind = getattr(torch, dtype)
    torch.manual_seed(0)
    x, y = torch.randn(256, dtype=torch.float64).to(kind), torch.randn(256, dtype=torch.float64).to(kind)
    out = torch.full((1024,), float("nan"), dtype=kind)
    arithmetic_kernel[(1,)](x, y, out, N=256, enable_fp_fusion=False)
    expected = torch.cat([x + y, x * y, (x - y) * x, (x.float() / y.float()).to(kind)])
    assert torch.equal(out, expected)


@triton.jit
def function_kernel(x, out, N: tl.constexpr, NAME: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    v = tl.load(x + at)
    if NAME == "exp":
        r = tl.exp(v)
    elif NAME == "exp2":
        r = tl.exp2(v)
    elif NAME == "log":
        r = tl.log(v)
    elif NAME == "log2":
        r = tl.log2(v)
    elif NAME == "sin":
        r = tl.sin(v)
    elif NAME == "cos":
        r = tl.cos(v)
    elif NAME == "erf":
        r = tl.erf(v)
    elif NAME == "tanh":
        r = libdevice.tanh(v)
    elif NAME == "sqrt":
        r = tl.sqrt(v)
    elif NAME == "rsqrt":
        r = tl.rsqrt(v)
    else:
        r = libdevice.atan(v)
    tl.store(out + at, r)


# name → (arguments, ulps of f32)
SPREAD = np.concatenate([np.linspace(-10, 10, 700), np.geomspace(1e-30, 1, 200), -np.geomspace(1e-30, 1, 100), [0.0]])
FUNCTIONS = {
    "exp": (np.linspace(-87, 88.7, 1000), 1.5), "exp2": (np.linspace(-125.9, 127.99, 1000), 1.5),
    "log": (np.geomspace(1e-40, 3e38, 1000), 1.5), "log2": (np.geomspace(1e-40, 3e38, 1000), 2.5),
    "sin": (np.concatenate([SPREAD, SPREAD * 1e4, [3e9, 1e30, 3.1415927]]), 2.0), "cos": (np.concatenate([SPREAD, SPREAD * 1e4, [3e9, 1e30, 1.5707964]]), 2.0),
    "tanh": (SPREAD, 2.5), "erf": (SPREAD / 2, 2.5), "sqrt": (np.geomspace(1e-38, 3e38, 500), 0.5), "rsqrt": (np.geomspace(1e-38, 3e38, 500), 1.5),
    "atan": (SPREAD, 1.0),
}


def ulps(out, x, name, dtype):
    reference = {"exp2": lambda v: mpmath.power(2, v), "log2": lambda v: mpmath.log(v, 2), "rsqrt": lambda v: 1 / mpmath.sqrt(v)}.get(name) \
        or getattr(mpmath, name)
    worst = 0.0
    with mpmath.workprec(160):
        for got, v in zip(out, x):
            exact = reference(mpmath.mpf(float(v)))
            spacing = float(np.spacing(np.abs(np.dtype(dtype).type(float(exact)))))
            worst = max(worst, float(abs(mpmath.mpf(float(got)) - exact) / spacing))
    return worst


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions(name, dtype):
    arguments, bound = FUNCTIONS[name]
    x = np.resize(arguments.astype(dtype), 2048)
    out = np.full(2048, np.nan, dtype)
    function_kernel[(8,)](x, out, N=256, NAME=name)
    count = len(arguments)
    assert ulps(out[:count], x[:count], name, dtype) <= (bound if dtype == "float32" else 1.5)


@pytest.mark.parametrize("name,arguments,expected", [
    ("exp", [-np.inf, np.inf, np.nan, 89, -104], [0, np.inf, np.nan, np.inf, 0]),
    ("exp2", [-np.inf, np.inf, np.nan, 128, -151], [0, np.inf, np.nan, np.inf, 0]),
    ("log", [0, -1, np.inf, np.nan, 1], [-np.inf, np.nan, np.inf, np.nan, 0]),
    ("log2", [0, -1, np.inf, np.nan, 1], [-np.inf, np.nan, np.inf, np.nan, 0]),
    ("sin", [np.inf, -np.inf, np.nan, 0, 0], [np.nan, np.nan, np.nan, 0, 0]),
    ("cos", [np.inf, -np.inf, np.nan, 0, 0], [np.nan, np.nan, np.nan, 1, 1]),
    ("tanh", [np.inf, -np.inf, np.nan, 0, 50], [1, -1, np.nan, 0, 1]),
    ("erf", [np.inf, -np.inf, np.nan, 0, 50], [1, -1, np.nan, 0, 1]),
])
def test_ends_of_functions(name, arguments, expected):
    x, out = np.resize(np.array(arguments, "float32"), 16), np.zeros(16, "float32")
    function_kernel[(1,)](x, out, N=16, NAME=name)
    assert np.array_equal(out[:5], np.array(expected, "float32"), equal_nan=True)


@triton.jit
def clamp_kernel(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    tl.store(out + at, tl.clamp(v, -1.0, 1.0))
    tl.store(out + N + at, tl.maximum(v, 0.5, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 2 * N + at, tl.maximum(v, 0.5))
    tl.store(out + 3 * N + at, tl.umulhi(v.to(tl.int32, bitcast=True), v.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True))


def test_clamp_nan_and_umulhi():
    x = np.random.default_rng(0).standard_normal(32).astype("float32")
    x[3] = np.nan
    out = np.zeros((4, 32), "float32")
    clamp_kernel[(1,)](x, out, N=32)
    bits = x.view("uint32").astype("uint64")
    assert np.array_equal(np.delete(out[0], 3), np.delete(np.clip(x, -1, 1), 3))
    assert np.array_equal(out[1], np.maximum(x, np.float32(0.5)), equal_nan=True) and np.array_equal(out[2], np.fmax(x, np.float32(0.5)))
    assert np.array_equal(out[3].view("uint32"), (bits * bits >> 32).astype("uint32"))
