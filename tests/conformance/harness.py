"""What the conformance suite stands on: kernels from text, run on the target under test and in the interpreter, compared.

``TILEWRIGHT_TARGET`` picks the target (cpu where it is not set, "interpreter" to run the oracle alone) and ``TILEWRIGHT_TEST_DEVICE=cuda``
puts the arrays on that torch device, for a machine that has one; the plugin's options set both. Outputs hold a poison before each run, and
lie between guard elements that have to survive it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import tempfile
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tilewright import knobs
from tilewright.conformance import record
from tilewright.dialects.errors import OutOfResources, TilewrightError, UnsupportedOnTargetError
from tilewright.runtime.interpreter import InterpretedFunction

DEVICE = os.environ.get("TILEWRIGHT_TEST_DEVICE", "cpu")
TARGET = os.environ.get("TILEWRIGHT_TARGET", "") or ("cpu" if DEVICE == "cpu" else "")
ON_GPU = DEVICE != "cpu"
SIMULATED = TARGET.endswith(":sim")
ON_CPU = TARGET.split(":")[0] in ("cpu", "interpreter")
ONLY_INTERPRETER = TARGET == "interpreter"

TORCH = {"int1": torch.bool, "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8,
         "uint16": torch.uint16, "uint32": torch.uint32, "uint64": torch.uint64, "fp16": torch.float16, "bf16": torch.bfloat16,
         "fp32": torch.float32, "fp64": torch.float64, "fp8e4nv": torch.float8_e4m3fn, "fp8e5": torch.float8_e5m2}
TL = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64", "fp8e4nv": "float8e4nv", "fp8e5": "float8e5"}
INTS = ("int8", "int16", "int32", "int64")
UINTS = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("fp16", "bf16", "fp32", "fp64")
ALL = ("int1", *INTS, *UINTS, *FLOATS)
WIDTH = {t: torch.empty(0, dtype=d).element_size() * 8 for t, d in TORCH.items()}
_GUARD = 16
_POISON = {torch.bool: 1}
_HEADER = """import tilewright as triton
import tilewright.language as tl
from tilewright.language.extra import libdevice
"""


def tl_name(dtype: str) -> str:
    """``fp32`` → ``tl.float32``."""
    return "tl." + TL.get(dtype, dtype)


def rng_of(*key: Any) -> np.random.Generator:
    """A generator whose seed is the key's."""
    return np.random.default_rng(int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:8], "little"))


def fresh_rng() -> np.random.Generator:
    """A generator that draws something else in each run. Its seed is printed, which pytest shows of a test that fails."""
    seed = np.random.SeedSequence().entropy
    print("seed of this run:", seed)
    return np.random.default_rng(seed)


_folder: list[Path] = []


@functools.cache
def module_of(source: str) -> Any:
    """The module with that text, after a header of imports. It lies in a file, since jit reads the source of functions."""
    if not _folder:
        _folder.append(Path(tempfile.mkdtemp(prefix="tilewright-conformance-")))
    text = _HEADER + textwrap.dedent(source)
    name = "kernels_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    path = _folder[0] / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    setattr(module, "source_text", text)  # noqa: B010  (modules of text have one)
    return module


def kernel_of(source: str, name: str = "kernel") -> Any:
    """The jit function ``name`` of that text."""
    module = module_of(source)
    kernel = getattr(module, name)
    kernel.module_source = module.source_text  # read by the recorder
    record.note_source(module.source_text)
    return kernel


# ------------------------------------------------------------------------------------------------------------- data
def random_array(dtype: str, shape: Any, rng: np.random.Generator, small: bool = False) -> torch.Tensor:
    """Values over the whole range of an integer type with its ends, and normal floats; ``small``: integers within ±4 (or 0…4)."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if dtype == "int1":
        return torch.from_numpy(np.array(rng.integers(0, 2, shape)).astype(bool))
    if dtype in INTS or dtype in UINTS:
        info = np.iinfo(dtype)
        low, high = (max(info.min, -4), 4) if small else (info.min, info.max)
        x = np.array(rng.integers(low, high, shape, dtype=dtype, endpoint=True))
        if not small and x.size > 8:
            x.reshape(-1)[:5] = (info.max, info.min, 1, 0, info.max // 2)
        return torch.from_numpy(x)
    if small:
        return torch.from_numpy(np.array(rng.integers(-4, 5, shape)).astype(np.float64)).to(TORCH[dtype])
    return torch.from_numpy(np.array(rng.standard_normal(shape) * 2.0)).to(TORCH[dtype])


def special_floats(dtype: str, n: int, rng: np.random.Generator) -> torch.Tensor:
    """Normal values of many sizes among zeros, infinities, NaN, subnormals and the ends of the range."""
    info = torch.finfo(TORCH[dtype])
    x = torch.from_numpy(rng.standard_normal(n) * 2.0 ** rng.integers(-12, 12, n)).to(TORCH[dtype])
    listed = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), info.max, info.min, info.tiny, -info.tiny,
              info.smallest_normal / 4, -info.smallest_normal / 2, 0.5, -0.5, 1.5, 2.5, -2.5, 1 + info.eps, 1 - info.eps / 2]
    x[: len(listed)] = torch.tensor(listed, dtype=torch.float64).to(TORCH[dtype])
    return x


def poisoned(dtype: str, shape: Any) -> torch.Tensor:
    """An output: NaN, or a number that no test computes."""
    kind = TORCH[dtype]
    if kind.is_floating_point:
        return torch.full(shape if isinstance(shape, tuple) else (shape,), float("nan"), dtype=torch.float32).to(kind)
    return torch.from_numpy(np.full(shape, True if dtype == "int1" else 77, bool if dtype == "int1" else dtype))


def bits_of(x: torch.Tensor) -> np.ndarray:
    """The elements' bits as unsigned integers."""
    x = x.cpu().contiguous()
    return x.reshape(-1).view(torch.uint8).numpy().view(f"u{x.element_size()}").reshape(tuple(x.shape))


def wide(x: torch.Tensor) -> np.ndarray:
    """As numpy: floats in float64, integers in their own type."""
    x = x.cpu()
    return x.to(torch.float64).numpy() if x.dtype.is_floating_point else x.numpy()


def ulp_distance(a: torch.Tensor, b: torch.Tensor) -> np.ndarray:
    """How many values of their type lie between; NaN is 0 from NaN and far from all else. Zeros of both signs are equal."""
    width = a.element_size() * 8
    sign = np.uint64(1 << (width - 1))

    def ordered(x: torch.Tensor) -> np.ndarray:
        bits = bits_of(x).astype(np.uint64)
        return np.where(bits & sign, -(bits & (sign - np.uint64(1))).astype(np.int64), bits.astype(np.int64))

    i, j = ordered(a), ordered(b)
    rough = np.abs(i.astype(np.float64) - j.astype(np.float64))
    with np.errstate(over="ignore"):
        distance = np.where(rough < 2.0**40, np.abs(i - j).astype(np.float64), rough)
    nan_a, nan_b = np.isnan(wide(a)), np.isnan(wide(b))
    return np.where(nan_a & nan_b, 0.0, np.where(nan_a != nan_b, np.inf, distance))


def assert_same(got: torch.Tensor, expected: torch.Tensor, ulp: float = 0, rtol: float = 0, what: str = "", inputs: Sequence[Any] = (),
                atol: float = 0) -> None:
    """Equal bit for bit (``ulp`` 0; any NaN for NaN), or within ``ulp`` values, or within ``rtol`` × the largest value + ``atol``."""
    if not got.dtype.is_floating_point:
        bad = wide(got) != wide(expected)
    elif rtol or atol:
        a, b = wide(got), wide(expected)
        finite = np.isfinite(b)
        scale = np.abs(b[finite]).max(initial=0.0)
        with np.errstate(invalid="ignore"):
            bad = np.where(finite, ~(np.abs(a - b) <= rtol * scale + atol), ~((a == b) | (np.isnan(a) & np.isnan(b))))
    elif ulp:
        bad = ulp_distance(got, expected) > ulp
    else:
        bad = (bits_of(got) != bits_of(expected)) & ~(np.isnan(wide(got)) & np.isnan(wide(expected)))
    if bad.any():
        at = tuple(int(v[0]) for v in np.nonzero(bad))
        values = [wide(x)[at] for x in inputs if tuple(x.shape) == tuple(got.shape)]
        raise AssertionError(f"{what}: {int(bad.sum())} of {bad.size} elements differ; the first at {at}: got {wide(got)[at]!r}, expected "
                             f"{wide(expected)[at]!r}, of {values}")


# -------------------------------------------------------------------------------------------------------------- runs
def _guarded(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(whole, view): a copy of ``x`` on the device between guards."""
    if not x.is_contiguous():
        return x, x
    flat = torch.zeros(x.numel() + 2 * _GUARD, dtype=torch.uint8 if x.element_size() == 1 else {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])
    flat.fill_(91)
    flat = flat.view(x.dtype) if x.dtype != torch.bool else flat.view(torch.bool)
    flat[_GUARD : _GUARD + x.numel()] = x.reshape(-1)
    flat = flat.to(DEVICE)
    return flat, flat[_GUARD : _GUARD + x.numel()].view(x.shape)


def run(kernel: Any, args: Mapping[str, Any], grid: Any = (1,), **options: Any) -> dict[str, torch.Tensor]:
    """Run the kernel on the target; the arrays of ``args`` are copied first. Returns the copies after the run, on the host."""
    copies, guarded = {}, {}
    for name, value in args.items():
        if isinstance(value, torch.Tensor):
            guarded[name], copies[name] = _guarded(value)
        else:
            copies[name] = value
    if ONLY_INTERPRETER:
        InterpretedFunction(kernel)[grid](**copies)
    else:
        kernel[grid](**copies, **options)
    if ON_GPU:
        torch.cuda.synchronize()
    for name, whole in guarded.items():
        bits = bits_of(whole).reshape(-1)
        assert (bits[:_GUARD] == 91).all() and (bits[-_GUARD:] == 91).all(), f"the kernel wrote outside {name}"
    return {n: v.cpu() for n, v in copies.items() if isinstance(v, torch.Tensor)}


def interpret(kernel: Any, args: Mapping[str, Any], grid: Any = (1,)) -> dict[str, torch.Tensor]:
    """The same in the interpreter."""
    record.start(kernel)
    copies = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in args.items()}
    InterpretedFunction(kernel)[grid](**copies)
    return {n: v for n, v in copies.items() if isinstance(v, torch.Tensor)}


def _probe(kernel: Any, args: Mapping[str, Any]) -> None:
    """Interpret a kernel that notes something in a list of its module, which the language does not have."""
    with knobs.compilation.scope():
        knobs.compilation.allow_non_constexpr_globals = True
        interpret(kernel, args)


def compare(source: str, args: Mapping[str, Any], grid: Any = (1,), expected: Mapping[str, Any] | None = None, tolerance: Mapping[str, Any] | None = None,
            name: str = "kernel", **options: Any) -> dict[str, torch.Tensor]:
    """Run ``source``'s kernel on the target and in the interpreter; every array has to agree.

    ``expected``: name → array that the interpreter has to give as well. ``tolerance``: name → keywords of assert_same ("*": all).
    """
    kernel = kernel_of(source, name)
    reference = interpret(kernel, args, grid)
    tolerance = tolerance or {}
    for out, value in (expected or {}).items():
        value = value if isinstance(value, torch.Tensor) else torch.from_numpy(np.ascontiguousarray(value))
        assert_same(reference[out], value.reshape(reference[out].shape), what=f"interpreter, {out}", **tolerance.get(out, tolerance.get("*", {})))
    got = run(kernel, args, grid, **options)
    for out, value in reference.items():
        assert_same(got[out], value, what=f"{out} of\n{textwrap.dedent(source)}", **tolerance.get(out, tolerance.get("*", {})))
    return reference


def expressions(table: Sequence[Any], inputs: Mapping[str, torch.Tensor], setup: str = "", **options: Any) -> int:
    """Elementwise expressions of arrays of one length: each is stored in the type that it has. Returns how many were legal.

    ``table``: texts, or (text, keywords of assert_same). Those that the language refuses are left out (it refuses them in the
    interpreter and the compiler by the same code).
    """
    rows = [(r, {}) if isinstance(r, str) else r for r in table]
    n = next(iter(inputs.values())).numel()
    names = list(inputs)
    loads = [f"{x} = tl.load(p{x} + i)" for x in names] + [line for line in setup.splitlines() if line.strip()]
    parameters = ", ".join(f"p{x}" for x in names)
    indent = "\n            "
    probe = module_of(f"""
        from tilewright.dialects.errors import TilewrightError
        types = []
        def attempt(f):
            try:
                types.append(str(f().dtype))
            except TilewrightError as error:
                types.append(None)
        @triton.jit
        def kernel({parameters}):
            types.clear()
            i = tl.arange(0, {n})
            {indent.join(loads)}
            {indent.join(f"attempt(lambda: {text})" for text, _ in rows)}
        """)
    _probe(probe.kernel, {f"p{x}": v for x, v in inputs.items()})
    if record.Recorder.current is not None:  # what the probe used is seen again in the run
        record.Recorder.current.drop()
    legal = [(f"o{k}", text, type, how) for k, ((text, how), type) in enumerate(zip(rows, probe.types)) if type is not None]
    if not legal:
        return 0
    failures: list[str] = []
    _run_expressions(legal, inputs, loads, options, failures)
    assert not failures, "\n".join(failures)
    return len(legal)


def _run_expressions(legal: list[Any], inputs: Mapping[str, torch.Tensor], loads: list[str], options: Mapping[str, Any], failures: list[str]) -> None:
    """One kernel of all; where the target refuses it and a recorder listens, halves of it, so that the report names what was refused."""
    n = next(iter(inputs.values())).numel()
    outputs = {o: poisoned(type, n) for o, _, type, _ in legal}
    indent = "\n            "
    kernel = kernel_of(f"""
        @triton.jit
        def kernel({', '.join(f'p{x}' for x in inputs)}, {', '.join(outputs)}):
            i = tl.arange(0, {n})
            {indent.join(loads)}
            {indent.join(f"tl.store({o} + i, {text})" for o, text, _, _ in legal)}
        """)
    args = {**{f"p{x}": v for x, v in inputs.items()}, **outputs}
    reference = interpret(kernel, args)
    try:
        got = run(kernel, args, **options)
    except (UnsupportedOnTargetError, OutOfResources) as refusal:
        recorder = record.Recorder.current
        if recorder is None:
            raise
        if len(legal) == 1:
            recorder.refuse(getattr(refusal, "message", str(refusal)))
            return
        recorder.drop()
        half = len(legal) // 2
        _run_expressions(legal[:half], inputs, loads, options, failures)
        _run_expressions(legal[half:], inputs, loads, options, failures)
        return
    for o, text, type, how in legal:
        try:
            assert_same(got[o], reference[o], what=f"{text} : {type} ({', '.join(f'{x}: {v.dtype}' for x, v in inputs.items())})", inputs=list(inputs.values()), **how)
        except AssertionError as error:
            failures.append(str(error))


def index_text(shape: Sequence[int]) -> str:
    """The offsets of a row-major tile, as text."""
    if not shape:
        return "0"
    parts = []
    for d, size in enumerate(shape):
        stride = int(np.prod(shape[d + 1 :], dtype=int))
        at = ", ".join(":" if e == d else "None" for e in range(len(shape)))
        parts.append(f"tl.arange(0, {size})[{at}] * {stride}" if len(shape) > 1 else f"tl.arange(0, {size})")
    return " + ".join(parts)


def batch(table: Sequence[Any], inputs: Mapping[str, torch.Tensor], setup: str = "", functions: str = "", **options: Any) -> dict[str, str]:
    """Expressions of tiles of any shape, all in one kernel, each against numpy's answer and the interpreter's.

    ``table``: rows (text, expected array or None, keywords of assert_same); the array, in float64 or integers of any width, is what the result
    has to be, in the type that the language gives it. ``inputs`` are loaded under their names; ``setup`` are further lines, ``functions`` jit
    functions beside the kernel. Returns each text's type.
    """
    rows = [(r[0], r[1] if len(r) > 1 else None, r[2] if len(r) > 2 else {}) for r in table]
    lines = [f"{x} = tl.load(p{x} + {index_text(tuple(v.shape))})" for x, v in inputs.items()]
    lines += [line.strip() for line in setup.splitlines() if line.strip()]
    indent = "\n" + " " * 16
    pointers = ", ".join(f"p{x}" for x in inputs)
    functions = textwrap.indent(textwrap.dedent(functions), " " * 12)
    probe = module_of(f"""
            types = []
            {functions.lstrip()}
            @triton.jit
            def kernel({pointers}):
                types.clear()
                {indent.join(lines)}
                {indent.join(f"types.append(({text}).type)" for text, _, _ in rows)}
            """)
    args: dict[str, Any] = {f"p{x}": v for x, v in inputs.items()}
    _probe(probe.kernel, args)
    if record.Recorder.current is not None:
        record.Recorder.current.drop()
    kinds = [(str(t.scalar), tuple(int(d) for d in t.shape)) for t in probe.types]
    outputs = {f"o{k}": poisoned(kind, shape or (1,)) for k, (kind, shape) in enumerate(kinds)}
    kernel = kernel_of(f"""
            {functions.lstrip()}
            @triton.jit
            def kernel({pointers}, {', '.join(outputs)}):
                {indent.join(lines)}
                {indent.join(f"tl.store({o} + {index_text(shape)}, {text})" for o, (text, _, _), (_, shape) in zip(outputs, rows, kinds))}
            """)
    args.update(outputs)
    reference = interpret(kernel, args)
    got = run(kernel, args, **options)
    failures = []
    for o, (text, expected, how), (kind, shape) in zip(outputs, rows, kinds):
        for who, have in (("interpreter", reference[o]), (TARGET or DEVICE, got[o])):
            try:
                if expected is None:
                    assert_same(have, reference[o], what=f"{who}: {text} : {kind}{list(shape)}", **how)
                    continue
                value = np.asarray(expected)
                assert value.shape == (shape or value.shape), f"{text} has shape {shape}, expected {value.shape}"
                wanted = torch.from_numpy(np.array(value, copy=True, order="C").reshape(shape or (1,)))
                assert_same(have, wanted.to(TORCH[kind]), what=f"{who}: {text} : {kind}{list(shape)}", inputs=list(inputs.values()), **how)
            except AssertionError as error:
                failures.append(str(error))
    assert not failures, "\n".join(failures)
    return {text: kind for (text, _, _), (kind, _) in zip(rows, kinds)}

__all__ = ["ALL", "DEVICE", "FLOATS", "INTS", "ON_CPU", "ON_GPU", "SIMULATED", "TARGET", "TORCH", "TilewrightError", "UINTS", "WIDTH", "assert_same", "batch", "compare",
           "expressions", "index_text", "interpret", "kernel_of", "poisoned", "random_array", "rng_of", "run", "special_floats", "tl_name", "wide"]


def assert_stops(call: Callable[[], Any], message: str, capfd: Any) -> None:
    """``call`` launches a kernel that an assertion with ``message`` (a pattern) stops. On a device the driver writes the message, and the
    context is lost: mark such tests ``own_process``. A target that has no assertions refuses the kernel, which is passed on."""
    import pytest

    with pytest.raises((TilewrightError, RuntimeError if ON_GPU else AssertionError)) as caught:
        call()
    if isinstance(caught.value, (UnsupportedOnTargetError, OutOfResources)):
        raise caught.value
    if not ON_GPU:
        assert re.search(message, str(caught.value)), f"{message!r} is not in {caught.value}"
        return
    assert re.search(message, capfd.readouterr().err)
