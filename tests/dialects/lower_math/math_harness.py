"""Runs the functions of lower_math on the host (LLVM dialect → llvmlite's JIT) and measures them against mpmath."""

from __future__ import annotations

import ctypes
from typing import Any

import llvmlite.binding as binding
import mpmath
import numpy as np

from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.dialects.lower_math import functions
from tilewright.dialects.lowering.builder import LLVMBuilder
from tilewright.dialects.lowering.translate import translate_to_llvm_ir

DTYPE = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i8": np.uint8, "i32": np.int32, "i64": np.int64}
_alive: list[Any] = []
_compiled: dict[tuple[str, str], Any] = {}


def compile_loop(name: str, type: str) -> Any:
    """``run(*arrays) -> array`` of the function's results (uint8 for predicates). ldexp and scalbn take i32 beside their float."""
    if (name, type) in _compiled:
        return _compiled[name, type]
    function = functions()[name, type]
    with mlir_context():
        arguments = ", ".join(f"%p{i}: !llvm.ptr" for i in range(function.arity + 1))
        module = ir.Module.parse(f"llvm.func @k({arguments}, %n: i64) {{ llvm.return }}")
        func = module.body.operations[0].operation
        func.regions[0].blocks[0].operations[0].operation.erase()
        b = LLVMBuilder(func, module.operation)
        b.contract = True  # as in kernels: what must not be fused has to say so
        *pointers, n = b.entry.arguments
        t = ir.Type.parse(type)
        i32 = ir.Type.parse("i32")
        types = {"ldexp": [t, i32], "scalbn": [t, i32], "jn": [i32, t], "yn": [i32, t]}.get(name, [t] * function.arity)
        loop = b.block([b.t_i64])
        body = b.block(after=loop)
        end = b.block(after=body)
        b.br(loop, [b.i64(0)])
        b.set_block(loop)
        i = loop.arguments[0]
        b.cond_br(b.icmp("slt", i, n), body, end)
        b.set_block(body)
        result = function.build(b, *(b.load(b.gep(p, i, of), of) for p, of in zip(pointers[:-1], types)))
        if function.predicate:
            result = b.zext(result, b.t_i8)
        out = result.type
        given, made = [DTYPE[str(of)] for of in types], DTYPE[str(out)]
        b.store(result, b.gep(pointers[-1], i, out))
        b.br(loop, [b.add(i, b.i64(1))])
        b.set_block(end)
        b.ret()
        module.operation.verify()
        text = translate_to_llvm_ir(module, line_tables=False)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    parsed = binding.parse_assembly(text)
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=2)
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options())
    builder.getModulePassManager().run(parsed, builder)
    engine = binding.create_mcjit_compiler(parsed, machine)
    engine.finalize_object()
    _alive.append(engine)
    address = engine.get_function_address("k")
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (function.arity + 1), ctypes.c_int64)(address)

    def run(*arrays: Any) -> Any:
        arrays = tuple(np.ascontiguousarray(a, of) for a, of in zip(arrays, given))
        out = np.empty(len(arrays[0]), made)
        call(*(a.ctypes.data for a in arrays), out.ctypes.data, len(out))
        return out

    _compiled[name, type] = run
    return run


def _log1p(x):
    return mpmath.log1p(x) if x > -1 else -mpmath.inf if x == -1 else mpmath.nan


def _log(f):
    return lambda x: -mpmath.inf if x == 0 else f(x) if x > 0 else mpmath.nan


def _domain(f, low, high):
    return lambda x: f(x) if low <= x <= high else mpmath.nan


def _erfcinv(q):
    """Newton on log erfc, from double precision; mpmath's erfinv knows no argument this close to 1."""
    if q in (0, 2):
        return mpmath.inf if q == 0 else -mpmath.inf
    if not 0 < q < 2:
        return mpmath.nan
    if q > 0.5:
        return mpmath.erfinv(1 - q)
    y = mpmath.sqrt(-mpmath.log(q * mpmath.sqrt(mpmath.pi) * mpmath.sqrt(-mpmath.log(q) + 0.2)))
    for _ in range(12):
        value = mpmath.erfc(y)
        y += (mpmath.log(value) - mpmath.log(q)) * value * mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(y * y)
    return y


REFERENCE = {
    "exp": mpmath.exp, "exp2": lambda x: mpmath.mpf(2) ** x, "exp10": lambda x: mpmath.mpf(10) ** x, "expm1": mpmath.expm1,
    "log": _log(mpmath.log), "log2": _log(lambda x: mpmath.log(x) / mpmath.log(2)), "log10": _log(mpmath.log10), "log1p": _log1p,
    "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan, "asin": _domain(mpmath.asin, -1, 1), "acos": _domain(mpmath.acos, -1, 1),
    "atan": mpmath.atan, "atan2": mpmath.atan2, "sinh": mpmath.sinh, "cosh": mpmath.cosh, "tanh": mpmath.tanh, "asinh": mpmath.asinh,
    "acosh": _domain(mpmath.acosh, 1, mpmath.inf), "atanh": _domain(mpmath.atanh, -1, 1), "erf": mpmath.erf, "erfc": lambda x: mpmath.erfc(x) if abs(x) < 1000 else mpmath.mpf(0 if x > 0 else 2),
    "pow": lambda x, y: mpmath.power(x, y), "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), "hypot": mpmath.hypot,
    "sqrt": _domain(mpmath.sqrt, 0, mpmath.inf), "rsqrt": lambda x: 1 / mpmath.sqrt(x) if x > 0 else mpmath.nan,
    "lgamma": lambda x: mpmath.loggamma(x).real if x > 0 else mpmath.inf if x == 0 or x == mpmath.floor(x) else None,
    "tgamma": lambda x: mpmath.gamma(x) if x != 0 else mpmath.inf, "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x) if x < 1e5 else 1 / (x * mpmath.sqrt(mpmath.pi)),
    "erfinv": lambda x: mpmath.erfinv(x) if abs(x) < 1 else x * mpmath.inf if abs(x) == 1 else mpmath.nan,
    "erfcinv": lambda x: _erfcinv(x), "normcdfinv": lambda x: -mpmath.sqrt(2) * _erfcinv(2 * x),
    "normcdf": lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2 if abs(x) < 100 else mpmath.mpf(x > 0),
    "cyl_bessel_i0": lambda x: mpmath.besseli(0, x) if abs(x) < 1000 else mpmath.inf, "cyl_bessel_i1": lambda x: mpmath.besseli(1, x) if abs(x) < 1000 else x * mpmath.inf,
    "sinpi": mpmath.sinpi, "cospi": mpmath.cospi, "rcbrt": lambda x: mpmath.sign(x) / mpmath.cbrt(abs(x)),
    "rsqrt_rn": lambda x: 1 / mpmath.sqrt(x) if x > 0 else mpmath.nan,
    "norm3d": lambda *v: mpmath.sqrt(mpmath.fsum(x * x for x in v)), "norm4d": lambda *v: mpmath.sqrt(mpmath.fsum(x * x for x in v)),
    "rnorm3d": lambda *v: 1 / mpmath.sqrt(mpmath.fsum(x * x for x in v)), "rnorm4d": lambda *v: 1 / mpmath.sqrt(mpmath.fsum(x * x for x in v)),
    "rhypot": lambda *v: 1 / mpmath.sqrt(mpmath.fsum(x * x for x in v)),
    "fma": lambda x, y, z: x * y + z, "fdim": lambda x, y: max(x - y, mpmath.mpf(0)),
}
# Where arguments are drawn from, besides all magnitudes: (low, high) of a uniform distribution
RANGE = {
    "exp": (-87.3, 88.7), "exp2": (-126, 127.9), "exp10": (-37.9, 38.5), "expm1": (-20, 88.7), "sinh": (-89, 89), "cosh": (-89, 89),
    "tanh": (-10, 10), "asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1), "erf": (-4.5, 4.5), "erfc": (-4, 9.19), "log1p": (-1, 3),
    "sin": (-300, 300), "cos": (-300, 300), "tan": (-300, 300), "acosh": (1, 4), "lgamma": (0, 30), "tgamma": (-30, 34.9), "erfinv": (-1, 1), "erfcinv": (0, 2), "normcdfinv": (0, 1), "erfcx": (-9, 40),
    "normcdf": (-12, 6), "cyl_bessel_i0": (-88, 88), "cyl_bessel_i1": (-88, 88),
}
FLUSHED = ("exp", "exp2", "exp10", "erfc", "normcdf")


def draw(name: str, type: str, n: int, seed: int = 0) -> list[np.ndarray]:
    """Arguments: all magnitudes, the function's own range, neighbourhoods of 0 and 1."""
    rng = np.random.default_rng(seed)
    arity = functions()[name, type].arity
    dtype = DTYPE[type]
    out = []
    for k in range(arity):
        if type == "f32":
            bits = rng.integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)
        else:
            bits = np.ldexp(rng.uniform(1, 2, n), rng.integers(-1022, 1023, n)) * rng.choice([-1, 1], n)
        low, high = RANGE.get(name, (-20, 20))
        if type == "f64" and name in ("exp", "expm1", "exp2", "exp10", "sinh", "cosh"):
            low, high = low * 8, high * 7.9
        parts = [bits[: n // 4], rng.uniform(low, high, n // 2), 1 + rng.standard_normal(n // 8) * 2.0 ** rng.integers(-20, 0, n // 8),
                 rng.standard_normal(n // 8) * 2.0 ** rng.integers(-30, 0, n // 8)]
        with np.errstate(all="ignore"):
            values = np.concatenate(parts).astype(dtype)
        if k:
            rng.shuffle(values)
        out.append(np.where(np.isfinite(values), values, dtype(0.5)))
    if name == "pow":  # keep most results in range
        x, y = out
        top = 120 if type == "f32" else 1000
        y[: n // 2] = (rng.uniform(-top, top, n // 2) / np.maximum(np.abs(np.log2(np.maximum(np.abs(x[: n // 2]), 1e-30))), 1e-3))
        y[n // 2: n // 2 + n // 8] = np.rint(y[n // 2: n // 2 + n // 8])
        x[: n // 2] = np.abs(x[: n // 2])
    return out


def ulp_errors(name: str, type: str, arguments: list[np.ndarray]) -> np.ndarray:
    """Errors of the results in units in the last place of the exact value; infinity where one is NaN or infinite and the other not."""
    got = compile_loop(name, type)(*arguments)
    mantissa, least, largest = {"f32": (24, -149, np.finfo(np.float32).max), "f64": (53, -1074, np.finfo(np.float64).max)}[type]
    errors = np.zeros(len(got))
    reference = REFERENCE[name]
    with mpmath.workprec(2 * mantissa + 40):
        for i, values in enumerate(zip(*arguments)):
            numbers = [mpmath.mpf(float(v)) for v in values]
            extra = max((abs(float(v)) for v in values), default=0.0)
            with mpmath.workprec(2 * mantissa + 60 + (int(np.log2(extra)) if extra > 2 and name in ("sin", "cos", "tan") else 0)):
                try:
                    exact = reference(*numbers)
                except (ZeroDivisionError, ValueError):
                    exact = mpmath.nan
                except OverflowError:
                    exact = mpmath.inf
            if exact is None:  # nothing is stated there
                continue
            if isinstance(exact, mpmath.mpc):
                exact = exact.real if exact.imag == 0 else mpmath.nan
            g = float(got[i])
            if mpmath.isnan(exact) or np.isnan(g):
                errors[i] = 0 if mpmath.isnan(exact) and np.isnan(g) else np.inf
                continue
            if abs(exact) >= mpmath.mpf(float(largest)) * (1 + mpmath.mpf(2) ** -(mantissa + 1)):
                errors[i] = 0 if np.isinf(g) and (g > 0) == (exact > 0) or mpmath.isinf(exact) is False and abs(g) == largest else np.inf
                continue
            if np.isinf(g):
                errors[i] = 0 if abs(exact) >= mpmath.mpf(float(largest)) else np.inf
                continue
            if name in FLUSHED and g == 0 and abs(exact) < mpmath.ldexp(1, least + mantissa - 1):
                continue
            exponent = mpmath.frexp(exact)[1] if exact != 0 else least
            unit = mpmath.ldexp(1, max(exponent - mantissa, least))
            errors[i] = float(abs(mpmath.mpf(g) - exact) / unit)
    return errors


def measured() -> list[tuple[str, str]]:
    """(name, type) of the functions that are measured in ulp."""
    return [key for key, f in sorted(functions().items()) if key[0] in REFERENCE and key[1] != "f16" and not f.predicate]


if __name__ == "__main__":
    import sys

    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    print("| function | type | largest error stated | measured |\n| --- | --- | --- | --- |")
    for name, type in measured():
        arguments = draw(name, type, count, seed=7)
        errors = ulp_errors(name, type, arguments)
        worst = int(np.argmax(errors))
        place = ", ".join(repr(float(a[worst])) for a in arguments)
        print(f"| {name} | {type} | {functions()[name, type].ulp} | {errors[worst]:.3f} at {place} |", flush=True)
