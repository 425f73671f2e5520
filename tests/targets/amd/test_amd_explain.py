"""--explain on AMD: where a kernel loses on an arch, by the line, in the user's words."""

from __future__ import annotations

import inspect

import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright import cli
from tilewright.compiler import ASTSource


@triton.jit
def product(x, y, z, M: tl.constexpr, K: tl.constexpr, KIND: tl.constexpr):
    i, k = tl.arange(0, M), tl.arange(0, K)
    a = tl.load(x + i[:, None] * K + k[None, :])
    b = tl.load(y + k[:, None] * M + i[None, :])
    tl.store(z + i[:, None] * M + i[None, :], tl.dot(a, b, input_precision=KIND))


@triton.jit
def copy(x, y, n, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i * stride, tl.load(x + i, mask=i < n), mask=i < n)


def told(kernel, arch: str, signature: str, **options) -> str:
    return triton.compile(ASTSource(kernel, *cli.parse_signature(kernel, signature)), target=f"amd:{arch}", options=options).explain()


@pytest.mark.parametrize("arch, element, m, k, words", [
    ("gfx1030", "fp16", 32, 32, "tl.dot 32×32×32 of f16 and f16: multiply-adds, no matrix instruction (gfx1030 has no matrix instructions)"),
    ("gfx942", "fp8e4nv", 32, 32, "(f8E4M3FN is converted to f16: the fp8 types of gfx942 are f8E4M3FNUZ, f8E5M2FNUZ)"),
    ("gfx942", "fp8e4b8", 32, 32, "matrix instruction amd.mfma_16x16x32_f8E4M3FNUZ"),
    ("gfx1100", "fp16", 32, 8, "no matrix instruction (K is 8, no multiple of what one instruction computes on gfx1100: M×N×K of 16×16×16)"),
    ("gfx1201", "fp32", 32, 32, "multiply-adds, no matrix instruction (gfx1201 has no matrix instruction that multiplies f32 into f32"),
    ("gfx942", "fp16", 64, 32, "tl.dot 64×64×32 of f16 and f16: matrix instruction amd.mfma_32x32x8_f16"),
])
def test_dots(arch, element, m, k, words):
    text = told(product, arch, f"*{element}:16,*{element}:16,*fp32:16,{m},{k},'ieee'")
    line = next(line for line in text.splitlines() if "tl.dot" in line)
    assert words in line, text
    source, first = inspect.getsourcelines(product.fn)
    assert line.strip().startswith(f"line {first + next(n for n, t in enumerate(source) if 'tl.dot' in t)}: ")


def test_accesses_that_are_narrow():
    text = told(copy, "gfx1100", "*fp16,*fp16:16,i32:16,i32,1024", num_warps=2)
    load, store = (next(line for line in text.splitlines() if f"tl.{kind} of 16-bit elements" in line) for kind in ("load", "store"))
    assert "1 at a time, of 8 (they are known to start at multiples of 2 bytes; arguments divisible by 16, or tl.multiple_of, would say more)" in load
    assert "1 at a time, of 8 (addresses are known to be contiguous for no more than 1" in store
    aligned = told(copy, "gfx1100", "*fp16:16,*fp16:16,i32:16,1,1024", num_warps=2)
    assert "at a time" not in aligned, aligned


def test_spills():
    """A tile of 64×64 in the registers of one wave of 32 lanes."""
    kernel = triton.compile(ASTSource(product, *cli.parse_signature(product, "*fp32:16,*fp32:16,*fp32:16,64,16,'ieee'")), target="amd:gfx1030",
                            options={"num_warps": 1})
    assert kernel.metadata.spills > 0
    assert f"registers: {kernel.metadata.spills} of a lane's are kept in scratch memory (gfx1030 has 256 for 1 waves a program; a smaller tile" in kernel.explain()
    assert "scratch memory" not in told(product, "gfx1030", "*fp32:16,*fp32:16,*fp32:16,32,16,'ieee'")


def test_matrix_instructions_are_counted():
    def counts(arch, element):
        return triton.compile(ASTSource(product, *cli.parse_signature(product, f"*{element}:16,*{element}:16,*fp32:16,32,32,'ieee'")),
                              target=f"amd:{arch}").metadata.matrix_instructions

    assert set(counts("gfx942", "fp16")) == {"v_mfma_f32_16x16x16_f16"} and set(counts("gfx1201", "bf16")) == {"v_wmma_f32_16x16x16_bf16"}
    assert counts("gfx1030", "fp16") == {} and sum(counts("gfx942", "fp16").values()) >= 2
