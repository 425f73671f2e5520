"""With ``enable_fp_fusion=False`` every target gives the same bits: where IEEE 754 fixes the answer all of them and the interpreter,
and in the functions of dialects/lower_math all that go through the shared lowering. NaNs of any payload are equal."""

from __future__ import annotations

import functools
import importlib.util
import textwrap

import numpy as np
import pytest
import torch

from tilewright.runtime.interpreter import InterpretedFunction

GPUS = ("nvidia:sm_80:sim", "amd:gfx942:sim", "amd:gfx950:sim", "amd:gfx1100:sim", "amd:gfx1201:sim")
N = 512
TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
EXACT = ["a + b", "a - b", "a * b", "tl.fma(a, b, c)", "a * b + c", "a / b", "tl.sqrt(tl.abs(a))", "tl.maximum(a, b)", "tl.minimum(a, b)",
         "tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)", "tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)",
         "tl.clamp(a, -1.0, 1.0)", "tl.floor(a)", "tl.ceil(a)", "a.to(tl.float16)", "a.to(tl.bfloat16)", "a.to(tl.float32)",
         "a.to(tl.float8e5)", "a.to(tl.float8e4nv)", "a < b", "a == b", "(tl.clamp(a, -1000.0, 1000.0)).to(tl.int32)", "b.to(tl.int1)"]
FUNCTIONS = ["tl.exp(a)", "tl.exp2(a)", "tl.log(tl.abs(a))", "tl.log2(tl.abs(a))", "tl.rsqrt(tl.abs(a))", "tl.sin(a)", "tl.cos(a)", "tl.erf(a)",
             "tl.sigmoid(a)", "libdevice.tanh(a)", "libdevice.pow(tl.abs(a), b)", "libdevice.atan2(a, b)", "libdevice.expm1(a)",
             "libdevice.log1p(tl.abs(a))", "libdevice.cbrt(a)", "libdevice.hypot(a, b)", "libdevice.fmod(a, b)"]


@functools.cache
def kernel(table: tuple[str, ...], path: str):
    lines = "".join(f"    tl.store(o{i} + i, {e})\n" for i, e in enumerate(table))
    outs = ", ".join(f"o{i}" for i in range(len(table)))
    text = (f"import tilewright as triton\nimport tilewright.language as tl\nfrom tilewright.language.extra import libdevice\n\n\n@triton.jit\n"
            f"def kernel(x, y, z, {outs}, N: tl.constexpr):\n    i = tl.arange(0, N)\n    a = tl.load(x + i)\n    b = tl.load(y + i)\n    c = tl.load(z + i)\n{lines}")
    with open(path, "w") as f:
        f.write(textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location("bits", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def operands(dtype):
    """Random magnitudes over the whole range, subnormals, zeros, infinities, NaN, and pairs at rounding ties."""
    info, rng = torch.finfo(TYPES[dtype]), np.random.default_rng()
    values = []
    for _ in range(3):
        x = rng.standard_normal(N) * np.exp2(rng.uniform(-6, 6, N))
        wide = rng.uniform(np.log2(info.tiny) - 8, np.log2(info.max), 128)
        x[:128] = np.exp2(wide) * rng.choice([-1, 1], 128)
        x[128:192] = rng.integers(-64, 64, 64) * info.smallest_normal / 8
        x[192:256] = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny, 1.0, -1.0, 448.0, 464.0, 57344.0, 61440.0], 64)
        x[256:320] = rng.integers(-4096, 4096, 64) / 2.0
        with np.errstate(all="ignore"):
            values.append(torch.from_numpy(x).to(TYPES[dtype]))
    return values


RESULT = {"a.to(tl.float16)": torch.float16, "a.to(tl.bfloat16)": torch.bfloat16, "a.to(tl.float32)": torch.float32,
          "a.to(tl.float8e5)": torch.float8_e5m2, "a.to(tl.float8e4nv)": torch.float8_e4m3fn, "a < b": torch.bool, "a == b": torch.bool,
          "b.to(tl.int1)": torch.bool, "(tl.clamp(a, -1000.0, 1000.0)).to(tl.int32)": torch.int32}


def run(table, dtype, inputs, path, interpret=False, warps=2):
    fn = kernel(tuple(table), str(path))
    outs = [torch.full((N,), 1, dtype=RESULT.get(e, TYPES[dtype])) for e in table]
    (InterpretedFunction(fn.fn) if interpret else fn)[(1,)](*inputs, *outs, N, num_warps=warps, enable_fp_fusion=False)
    return outs


def differences(table, expected, got, inputs):
    bad = []
    for e, x, y in zip(table, expected, got):
        word = WORDS[x.element_size()] if x.dtype != torch.bool else torch.uint8
        same = x.view(word) == y.view(word)
        if x.dtype.is_floating_point:
            same |= x.to(torch.float64).isnan() & y.to(torch.float64).isnan()
        for i in torch.nonzero(~same).flatten().tolist()[:3]:
            bad.append(f"{e} of {[float(t[i]) for t in inputs]}: {float(x[i])!r} and {float(y[i])!r}")
    return bad


@pytest.mark.parametrize("dtype", TYPES)
def test_what_ieee_fixes(dtype, tmp_path, monkeypatch):
    table, inputs = EXACT, operands(dtype)
    expected = run(table, dtype, inputs, tmp_path / "k.py", interpret=True)
    bad = []
    for target in ("cpu", *GPUS):
        monkeypatch.setenv("TILEWRIGHT_TARGET", target)
        bad += [f"{target}: {d}" for d in differences(table, expected, run(table, dtype, inputs, tmp_path / "k.py"), inputs)]
    assert not bad, "\n".join(bad)


# the quick run has one type of the four
@pytest.mark.parametrize("dtype", [t if t == "fp32" else pytest.param(t, marks=pytest.mark.slow) for t in TYPES])
def test_functions_on_every_gpu(dtype, tmp_path, monkeypatch):
    table, inputs, expected, bad = FUNCTIONS, operands(dtype), None, []
    if dtype == "fp64":
        # LLVM's f64 division for AMD is one place off for 1 / x where x's fraction is all ones, with the simulator's 24-bit seed of a reciprocal
        # (tests/targets/amd/isa/test_valu_division.py has it); what a device's seed gives is not known here. The root of the largest number is such an x.
        inputs = [torch.where(t.abs() == torch.finfo(t.dtype).max, t / 3, t) for t in inputs]
    for target in GPUS:
        monkeypatch.setenv("TILEWRIGHT_TARGET", target)
        # one or two elements a thread: the code of these functions is long, and packed arithmetic is held by the test above
        got = run(table, dtype, inputs, tmp_path / "k.py", warps=8)
        if expected is not None:
            bad += [f"{target}: {d}" for d in differences(table, expected, got, inputs)]
        expected = expected or got
    assert not bad, "\n".join(bad)


