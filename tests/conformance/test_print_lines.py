"""device_print: each element once, with its index, in one form on every target and in the interpreter."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from tilewright.conformance.harness import (
    ALL,
    INTS,
    ONLY_INTERPRETER,
    TORCH,
    UINTS,
    interpret,
    kernel_of,
    random_array,
    rng_of,
    run,
    wide,
)
from tilewright.dialects.errors import TypeMismatchError

HOW = [pytest.param(run, marks=pytest.mark.skipif(ONLY_INTERPRETER, reason="the interpreter is the other case")), interpret]
PRINTED = (*ALL, "fp8e4nv", "fp8e5")
BITS = {name: torch.empty(0, dtype=kind).element_size() * 8 for name, kind in TORCH.items()}


def number(value: object) -> str:
    return f"{float(value):f}" if isinstance(value, (float, np.floating)) else str(int(value))  # type: ignore[call-overload]


def lines_of(array: np.ndarray, text: str, program: str = "0, 0, 0", show=number) -> list[str]:
    """What has to be printed of a tile, or of a scalar."""
    digits = [len(str(size - 1)) for size in array.shape]
    return [f"pid ({program}) idx ({', '.join(str(i).rjust(d) for i, d in zip(at, digits))}){text}{show(array[at])}" for at in np.ndindex(array.shape)]


def held(how, source: str, args, capfd, expected: list[str], grid=(1,), **options) -> None:
    """The kernel prints these lines and no other, in any order: each as often as it stands in ``expected``."""
    how(kernel_of(source), args, grid, **({} if how is interpret else options))
    said = [text for text in capfd.readouterr().out.splitlines() if "pid (" in text]
    assert Counter(said) == Counter(expected)


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("how", HOW)
def test_each_element_is_printed_once_with_its_index(how, warps, capfd):
    """Few elements on many threads, broadcast dims, what a reduction leaves everywhere, scalars, two programs."""
    source = """
        @triton.jit
        def kernel(x):
            i, j = tl.arange(0, 4), tl.arange(0, 16)
            v = tl.load(x + i[:, None] * 16 + j[None, :])
            tl.device_print("v", v)
            sums = tl.sum(v, axis=1)
            tl.device_print("sums: ", sums)
            tl.device_print("wide ", tl.broadcast_to(sums[:, None], [4, 2]) + 1)
            tl.device_print("cube", tl.reshape(j, [2, 1, 8]), tl.program_id(0) * 10, 7)
            tl.device_print("total", tl.sum(sums))
            tl.device_print("100%s done\\t%")
            tl.device_print("", i.to(tl.int16) - 2)
        """
    x = np.arange(64, dtype=np.int32).reshape(4, 16) * 5 - 100
    expected = []
    for p in range(2):
        at = f"{p}, 0, 0"
        expected += lines_of(x, " v: ", at) + lines_of(x.sum(1), " sums: ", at) + lines_of(np.repeat(x.sum(1)[:, None] + 1, 2, 1), " wide: ", at)
        expected += lines_of(np.arange(16).reshape(2, 1, 8), " cube: (operand 0) ", at) + lines_of(np.array(10 * p), " cube: (operand 1) ", at)
        expected += lines_of(np.array(7), " cube: (operand 2) ", at) + lines_of(x.sum(), " total: ", at)
        expected += [f"pid ({at}) 100%s done\t%", *lines_of(np.arange(4) - 2, ": ", at)]
    held(how, source, {"x": torch.from_numpy(x)}, capfd, expected, (2,), num_warps=warps)


@pytest.mark.parametrize("how", HOW)
def test_every_type_in_decimal_and_hexadecimal(how, capfd):
    pointers = ", ".join(f"p{name}" for name in PRINTED)
    body = "\n            ".join(f'v{n} = tl.load(p{n} + i)\n            tl.device_print("{n}", v{n})\n            tl.device_print("x{n}", v{n}, hex=True)' for n in PRINTED)
    source = f"""
        @triton.jit
        def kernel({pointers}):
            i = tl.arange(0, 8)
            {body}
        """
    rng, args, expected = rng_of("every type printed"), {}, []
    for name in PRINTED:
        x = random_array(name, 8, rng)
        if TORCH[name].is_floating_point:
            x = torch.tensor([0.0, -0.0, 1.5, -2.25, float("nan"), float("inf") if name != "fp8e4nv" else 448.0, -1.0, 0.0078125]).to(TORCH[name])
        elif name in INTS or name in UINTS:
            info = np.iinfo(name)
            x.view(-1)[:3] = torch.from_numpy(np.array([info.min, info.max, 0], name))
        args[f"p{name}"] = x
        bits = (x.view(torch.uint8).numpy() if BITS[name] == 8 else x.view(getattr(torch, f"int{BITS[name]}")).numpy().view(f"u{BITS[name] // 8}"))
        digits = 1 if name == "int1" else BITS[name] // 4
        expected += lines_of(wide(x), f" {name}: ") + lines_of(bits, f" x{name}: ", show=lambda v, d=digits: f"0x{int(v):0{d}x}")
    held(how, source, args, capfd, expected)


@pytest.mark.parametrize("how", HOW)
def test_types_that_torch_lacks(how, capfd):
    source = """
        @triton.jit
        def kernel(x):
            v = tl.load(x + tl.arange(0, 4))
            tl.device_print("b15", v.to(tl.float8e4b15))
            tl.device_print("b8", v.to(tl.float8e4b8))
            tl.device_print("xb15", v.to(tl.float8e4b15), hex=True)
        """
    x = np.array([0.0, 1.5, -1.0, 0.25], np.float32)
    codes = np.array([0, 0x7C, 0xF8, 0x68])  # 1 is 15 << 3
    expected = lines_of(x, " b15: ") + lines_of(x, " b8: ") + lines_of(codes, " xb15: ", show=lambda v: f"0x{v:02x}")
    held(how, source, {"x": torch.from_numpy(x)}, capfd, expected)


@pytest.mark.parametrize("how", HOW)
def test_pointers_are_addresses(how, capfd):
    source = """
        @triton.jit
        def kernel(x):
            tl.device_print("step", x + tl.arange(0, 2))
        """
    x = torch.zeros(4, dtype=torch.int32)
    how(kernel_of(source), {"x": x})
    said = capfd.readouterr().out.splitlines()
    first, second = (int(text.split("step: ")[1], 16) for text in sorted(said) if "idx (" in text)
    assert second - first == 4 and first > 0 and len(said) == 2


@pytest.mark.parametrize("how", HOW)
def test_prints_under_branches_in_loops_and_of_dots(how, capfd):
    source = """
        @triton.jit
        def kernel(x, n):
            i = tl.arange(0, 16)
            a = tl.load(x + i[:, None] * 16 + i[None, :])
            d = tl.dot(a, a)
            tl.device_print("dot", d)
            for k in range(n):
                if k != 1:
                    tl.device_print("k", k, i + k)
        """
    a = rng_of("print dots").integers(-3, 4, (16, 16))
    expected = lines_of((a @ a).astype(np.float64), " dot: ")
    for k in (0, 2):
        expected += lines_of(np.array(k), " k: (operand 0) ") + lines_of(np.arange(16) + k, " k: (operand 1) ")
    held(how, source, {"x": torch.from_numpy(a).to(torch.float16), "n": 3}, capfd, expected)


@pytest.mark.parametrize("how", HOW)
def test_print_is_device_print(how, capfd):
    """In the interpreter only what has a tensor: of texts and compile-time numbers Python's own print tells whoever debugs."""
    source = """
        @triton.jit
        def kernel(x, N: tl.constexpr):
            print("of", "both", N, tl.program_id(0) + 1)
            print("hexadecimal", N, hex=True)
            print(tl.arange(0, 2))
            print(f"N = {N}")
        """
    expected = ["pid (0, 0, 0) idx () of both: (operand 0) 12", "pid (0, 0, 0) idx () of both: (operand 1) 1",
                "pid (0, 0, 0) idx () hexadecimal: 0x0000000c", "pid (0, 0, 0) idx (0): 0", "pid (0, 0, 0) idx (1): 1"]
    held(how, source, {"x": torch.zeros(1), "N": 12}, capfd, expected + ["pid (0, 0, 0) N = 12"] * (how is run and not ONLY_INTERPRETER))


@pytest.mark.parametrize("how", HOW)
def test_print_refuses_what_device_print_refuses(how):
    for wrong, why in (('print("a", n, end="")', "hex; found end"), ('print("a", n, "b")', "'b' of Python type str"), ('print("caf\u00e9", n)', "printable ASCII")):
        text = f"@triton.jit\ndef kernel(x, n):\n    {wrong}\n"
        with pytest.raises(TypeMismatchError, match=why):
            how(kernel_of(text), {"x": torch.zeros(1), "n": 12})
