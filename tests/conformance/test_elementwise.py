"""Operators, selection, functions and casts of every type, against the interpreter and, where easy, numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import (
    ALL,
    FLOATS,
    INTS,
    ON_CPU,
    SIMULATED,
    UINTS,
    WIDTH,
    compare,
    expressions,
    poisoned,
    random_array,
    rng_of,
    special_floats,
    tl_name,
)

DIVIDED = {"ulp": 2}  # the language's `/` of fp32 is not correctly rounded; tl.div_rn is
_BITWISE = ("&", "|", "^")
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def _quick(cases, every: int):
    """All cases, those but each ``every``-th marked slow; simulators, being slow, take fewer of them."""
    every = every * 3 if SIMULATED else every
    return [c if i % every == 0 else pytest.param(*c, marks=pytest.mark.slow) for i, c in enumerate(cases)]


def _operand(dtype: str, key: str, n: int = 128, divisor: bool = False) -> torch.Tensor:
    x = random_array(dtype, n, rng_of(dtype, key))
    if divisor and dtype in (*INTS, *UINTS):
        small = random_array(dtype, n, rng_of(dtype, key, 1), small=True).numpy().copy()
        y = x.numpy().copy()
        y[::2] = small[::2]
        y[(y == 0) | (y == np.array(-1).astype(dtype))] = 3
        x = torch.from_numpy(y)
    return x


@pytest.mark.parametrize("a, b", _quick([(a, a) for a in ALL] + [p for p in itertools.product(ALL, ALL) if p[0] != p[1]], 5))
def test_binary_operators(a, b):
    x, y = _operand(a, "x"), _operand(b, "y", divisor=True)
    # remainders of large quotients differ: fmod is exact, x - trunc(x / y) * y is not
    table = [f"a {s} b" for s in ("+", "-", "*", *_BITWISE, *_COMPARISONS)] + [("a / b", DIVIDED)]
    table += ["a // b", "a % b"] if b != "int1" else []  # false is no divisor
    table += ["tl.minimum(a, b)", "tl.maximum(a, b)", "tl.where(a > b, a, b)", "(a < b) & (a != b) | (b == a)", "not a"]
    assert expressions(table, {"a": x, "b": y}, num_warps=2) >= 10
    if a not in FLOATS and b not in FLOATS:
        width = max(WIDTH[a] if a != "int1" else 1, WIDTH[b] if b != "int1" else 1)
        shift = (rng_of(a, b).integers(0, max(1, min(width, 64)), 128)).astype("bool" if b == "int1" else b)
        if width > 1:
            assert expressions(["a << b", "a >> b"], {"a": x, "b": torch.from_numpy(shift)}, num_warps=1) == 2


@pytest.mark.parametrize("dtype", ALL)
def test_python_numbers_as_operands(dtype):
    x = _operand(dtype, "x", 64)
    n = 3 if dtype != "int1" else True
    table = [f"a {s} {n}" for s in ("+", "-", "*", *_BITWISE, *_COMPARISONS)] + [f"{n} {s} a" for s in ("+", "-", "*", *_BITWISE, *_COMPARISONS)]
    table += ["a // 3", "a % 5", "a // 8", "a % 16", "a * 4", "a << 2", "a >> 1", "1 << (a & 3)", ("a / 3", DIVIDED), "a + 0.5", "a * 1.5", "2.5 - a", "a > 0.5",
              "a + 0", "a * 0", "a * 1", "a - a", "a ^ a", "tl.where(a > 1, a, 0)", "tl.where(a > 1, 1.5, a)", "tl.maximum(a, 0)", "tl.minimum(a, 1)",
              "-a", "+a", "~a", "tl.abs(a)", "a + True"]
    assert expressions(table, {"a": x}, num_warps=1) >= 20


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_floats(dtype):
    """NaN, infinities, zeros of both signs and subnormals through all that is exact."""
    x, y = special_floats(dtype, 128, rng_of(dtype, 2)), special_floats(dtype, 128, rng_of(dtype, 3)).roll(7)
    y[24:44] = x[24:44]
    keep = "propagate_nan=tl.PropagateNan.ALL"
    table = ["a + b", "a - b", "a * b", "-a", "tl.abs(a)", "tl.floor(a)", "tl.ceil(a)", "a == b", "a != b", "a < b", "a <= b", "a > b", "a >= b",
             "tl.where(a < b, a, b)", f"tl.maximum(a, b, {keep})", f"tl.minimum(a, b, {keep})", "a != a", "a.to(tl.int1)", "not a",
             "tl.div_rn(a, b)", "tl.sqrt_rn(a)", "tl.fma(a, b, a)",
             "tl.clamp(a, -1.0, 1.0)", f"tl.clamp(a, -1.0, 1.0, {keep})", "tl.maximum(a, b) + 0.0", "tl.minimum(a, b) + 0.0", "tl.abs(tl.abs(a) * -1)"]
    if dtype == "fp64":
        table += [("tl.sqrt(a)", {"ulp": 1}), "a / b"]
    assert expressions(table, {"a": x, "b": y}, num_warps=2) >= 20


# function → (ulp in fp32, domain). 16-bit results are rounded from fp32: one value more or less at ties.
# exp of the GPUs multiplies by log2(e) in fp32 first, so its error grows with the argument (as Triton's does): 60.5 measured on an H200.
_FUNCTIONS = {"exp": 2 if ON_CPU else 64, "exp2": 2, "log": 2, "log2": 2, "sqrt": 2, "rsqrt": 2, "sin": 2, "cos": 2, "erf": 2, "sigmoid": 4 if ON_CPU else 66}
_LIBDEVICE = {"tanh": 2, "atan": 2, "asin": 2, "acos": 2, "sinh": 2, "cosh": 2, "expm1": 2, "log1p": 2, "log10": 2, "cbrt": 2, "exp10": 3, "tan": 3, "asinh": 3, "atanh": 3,
              "acosh": 3, "trunc": 0, "rint": 0, "round": 0}


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions(dtype):
    x = special_floats(dtype, 256, rng_of(dtype, 4))
    x[128:] = (x[128:].to(torch.float64).nan_to_num(0, 1, 1).remainder(1.0) - 0.5).to(x.dtype) * 2
    bound = {"fp32": 1, "fp64": 8, "fp16": 0, "bf16": 0}[dtype]
    table = [(f"tl.{f}(a)", {"ulp": max(u * bound, 1)}) for f, u in _FUNCTIONS.items()]
    assert expressions(table, {"a": x}, num_warps=4) == len(table)


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_libdevice(dtype):
    x = special_floats(dtype, 256, rng_of(dtype, 5))
    x[128:] = (x[128:].to(torch.float64).nan_to_num(0, 1, 1).remainder(1.0) - 0.5).to(x.dtype) * 2
    table = [(f"libdevice.{f}(a)", {"ulp": (u if ON_CPU else max(u, 3)) * (8 if dtype == "fp64" else 1)}) for f, u in _LIBDEVICE.items()]
    assert expressions(table, {"a": x}, num_warps=4) >= len(table) - 2


# function → ulp in fp32 (eight times that in fp64; j and y, whose error near zeros is absolute, are held in tests/dialects/lower_math)
_RARE = {"erfinv": 2, "erfcinv": 2, "erfcx": 2, "normcdfinv": 2, "cyl_bessel_i0": 2, "cyl_bessel_i1": 2, "sinpi": 2, "cospi": 2, "rcbrt": 2, "rsqrt_rn": 2,
         "logb": 0, "tgamma": 8, "fast_expf": 64, "fast_exp10f": 64, "fast_logf": 4, "fast_log2f": 4, "fast_log10f": 4, "fast_tanhf": 4, "ilogb": 0}
_RARE_OF_TWO = {"nextafter": 0, "remainder": 0, "fdim": 0, "rhypot": 4, "add_rn": 0, "sub_rn": 0, "mul_rn": 0, "fast_dividef": 4}


@pytest.mark.parametrize("dtype", ["fp32", "fp64"])
def test_rare_libdevice(dtype):
    x = special_floats(dtype, 128, rng_of(dtype, 8))
    x[64:] = (x[64:].to(torch.float64).nan_to_num(0, 1, 1).remainder(1.0)).to(x.dtype) * 2
    y = special_floats(dtype, 128, rng_of(dtype, 9)).roll(5)
    table = [(f"libdevice.{f}(a)", {"ulp": u * (8 if dtype == "fp64" else 1)}) for f, u in _RARE.items()]
    table += [(f"libdevice.{f}(a, b)", {"ulp": u * (8 if dtype == "fp64" else 1)}) for f, u in _RARE_OF_TWO.items()]
    # results below the least normal number are flushed; lgamma of Python is absolute near its zeros
    table += [("libdevice.normcdf(tl.clamp(a, -12.0, 12.0))", {"ulp": 16}), ("libdevice.lgamma(tl.abs(a) + 3.0)", {"ulp": 16})]
    table += [("libdevice.norm3d(a, b, a)", {"ulp": 8}), ("libdevice.rnorm4d(a, b, a, b)", {"ulp": 8}), "libdevice.ldexp(a, 3)", "libdevice.scalbn(a, -130)"]
    assert expressions(table, {"a": x, "b": y}, num_warps=2) >= len(table) - 7  # fast_* are of fp32 alone


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_libdevice_of_bits(dtype):
    x, y = random_array(dtype, 128, rng_of(dtype, 10)), random_array(dtype, 128, rng_of(dtype, 11))
    table = ["libdevice.popc(a)", "libdevice.clz(a)", "libdevice.ffs(a)", "libdevice.brev(a)", "libdevice.clz(a & 255)", "libdevice.ffs(a & 0)", "libdevice.popc(a >> 7)",
             "libdevice.byte_perm(a, b, 29521)", "libdevice.mulhi(a, b)"]
    assert expressions(table, {"a": x, "b": y}, num_warps=1) >= 8


_CASTS = [*ALL, "fp8e5", "fp8e4nv"]


def _castable(src: str, dst: str) -> torch.Tensor:
    """Values whose conversion is defined: floats become integers only where those hold them."""
    if src.startswith("fp") or src == "bf16":
        x = special_floats(src, 128, rng_of(src, 6)) if "fp8" not in src else random_array("fp32", 128, rng_of(src, 6)).to(poisoned(src, 1).dtype)
        if dst in (*INTS, *UINTS):
            info = np.iinfo(dst)
            y = x.to(torch.float64).nan_to_num(0, 0, 0)
            y = y.clamp(float(info.min) / 2, float(info.max) / 2).to(x.dtype)
            return torch.where(torch.isfinite(y.to(torch.float64)), y, torch.zeros_like(y))
        return x
    return random_array(src, 128, rng_of(src, 6))


@pytest.mark.parametrize("src", _CASTS)
def test_casts(src):
    inputs, table = {}, []
    for dst in _CASTS:
        if dst != src:
            inputs["x" + dst] = _castable(src, dst)
            table.append(f"x{dst}.to({tl_name(dst)})")
    assert expressions(table, inputs, num_warps=2) == len(table)


@pytest.mark.parametrize("src, dst", [("fp32", "fp16"), ("fp32", "bf16"), ("fp64", "fp32"), ("fp32", "fp8e5")])
def test_rounding_towards_zero(src, dst):
    x = special_floats(src, 128, rng_of(src, dst))
    assert expressions([f'a.to({tl_name(dst)}, fp_downcast_rounding="rtz")', f'a.to({tl_name(dst)}, fp_downcast_rounding="rtne")'], {"a": x}, num_warps=1) == 2


@pytest.mark.parametrize("width, group", [(8, ("int8", "uint8", "fp8e5", "fp8e4nv")), (16, ("int16", "uint16", "fp16", "bf16")), (32, ("int32", "uint32", "fp32")),
                                          (64, ("int64", "uint64", "fp64"))])
def test_bitcasts(width, group):
    for src in group:
        x = random_array(f"int{width}", 64, rng_of(src)).view(poisoned(src, 1).dtype)
        if x.dtype.is_floating_point:  # which NaN it is may get lost
            x = torch.where(x.to(torch.float32).isnan(), torch.ones_like(x.to(torch.float32)), x.to(torch.float32)).to(x.dtype) if width < 32 else x.nan_to_num(1, 1, 1)
        table = [f"a.to({tl_name(dst)}, bitcast=True)" for dst in group if dst != src]
        assert expressions(table, {"a": x}, num_warps=1) == len(table)


@pytest.mark.parametrize("src", ["int32", "uint32", "int64", "uint64"])
def test_integers_near_ties_round_once(src):
    """One more and one less than halfway between two floats of each type, where rounding to a wider float first goes wrong."""
    width = WIDTH[src] - 1
    values = [(1 << e) + (1 << (e - p)) + d for p in (8, 11, 24, 53) for e in range(p + 1, width) for d in (-1, 0, 1)]
    if src.startswith("int"):
        values += [-v for v in values]
    x = torch.from_numpy(np.resize(np.array(values, src), 1024))
    assert expressions([f"a.to({tl_name(t)})" for t in FLOATS], {"a": x}, num_warps=4) == 4
    with np.errstate(over="ignore"):
        compare("""
            @triton.jit
            def kernel(p, o):
                i = tl.arange(0, 1024)
                tl.store(o + i, tl.load(p + i).to(tl.bfloat16))
            """, {"p": x, "o": poisoned("bf16", 1024)}, expected={"o": torch.tensor([_bf16_of(v) for v in x.tolist()], dtype=torch.float64).to(torch.bfloat16)})


def _bf16_of(value: int) -> float:
    """The nearest bf16 of an integer, ties to even, by integers alone."""
    drop = max(abs(value).bit_length() - 8, 0)
    down, rest, half = abs(value) >> drop, abs(value) & ((1 << drop) - 1), (1 << drop) >> 1
    up = rest > half or (drop > 0 and rest == half and down & 1)
    return float((down + up) << drop) * (1 if value >= 0 else -1)


def test_chained_casts_round_at_each_step():
    x = special_floats("fp32", 128, rng_of("chain"))
    table = ["a.to(tl.float16).to(tl.float32)", "a.to(tl.bfloat16).to(tl.float32) * 2", "a.to(tl.float16).to(tl.bfloat16)", "(a.to(tl.float16) * 3).to(tl.float32)",
             "(a.to(tl.bfloat16) + 1.0).to(tl.float32)", "(a.to(tl.bfloat16) * a.to(tl.bfloat16) + a.to(tl.bfloat16)).to(tl.float32)",
             "(a.to(tl.float16) * a.to(tl.float16) - a.to(tl.float16)).to(tl.float32)", "a.to(tl.float64).to(tl.float16)"]
    # with fusion a product and a sum of 16-bit floats may become one rounding, where the device has that instruction
    assert expressions(table, {"a": x}, num_warps=1, enable_fp_fusion=False) == len(table)


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64", "uint64"])
def test_high_halves_of_products(dtype):
    assert expressions(["tl.umulhi(a, b)"], {"a": _operand(dtype, "x"), "b": _operand(dtype, "y")}, num_warps=1) == 1


@pytest.mark.parametrize("dtype", ALL)
def test_scalars(dtype):
    """Scalar loads, arithmetic and stores, as kernels do with sizes and scales."""
    x = random_array(dtype, 4, rng_of(dtype, "scalars"), small=True)
    expression = "x + y" if dtype != "int1" else "x & y"
    compare(f"""
        @triton.jit
        def kernel(p, o, q):
            x = tl.load(p + 1)
            y = tl.load(p + 2)
            tl.store(o, {expression})
            tl.store(o + 1, tl.where(x > y, x, y))
            tl.store(o + 2, x if x == y else y)
            if x != 0:
                tl.store(o + 3, y)
            else:
                tl.store(o + 3, x)
            tl.store(q, (x == y) | (x > y))
        """, {"p": x, "o": poisoned(dtype, 4), "q": poisoned("int1", 1)})


def test_arguments_of_every_kind():
    """Python ints of 32 and 64 bits, floats and bools as arguments of a kernel, alone and with tensors."""
    for i, n, big, f, flag in ((0, 1, 2**40, 0.1, True), (1, -7, -(2**35), -3.5, False), (2, 16, 2**62, 1e30, True)):
        source = """
            @triton.jit
            def kernel(o, u, p, n, big, f, flag):
                i = tl.arange(0, 16)
                tl.store(o + i, i * n + big)
                tl.store(u + i, tl.load(p + i) * f + n)
                if flag:
                    tl.store(o + 16, n + 1)
                else:
                    tl.store(o + 16, big // 3)
            """
        compare(source, {"o": poisoned("int64", 17), "u": poisoned("fp32", 16), "p": random_array("fp32", 16, rng_of(i), small=True), "n": n, "big": big, "f": f, "flag": flag},
                tolerance={"u": {"ulp": 1}})


def test_division_by_constants_of_every_type():
    for dtype in (*INTS, *UINTS):
        x = _operand(dtype, "x", 64)
        high = int(np.iinfo(dtype).max)
        table = [f"a {op} {d}" for op in ("//", "%") for d in (1, 2, 3, 7, 64, 100, high, high // 2 + 1)]
        assert expressions(table, {"a": x}, num_warps=1) == len(table)
