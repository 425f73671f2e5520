"""f32 → bf16 in pairs: every kind of number in the instruction-level simulator, and the instructions that a number costs."""

import re

import numpy as np
import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.backends.compiler import GPUTarget
from tilewright.compiler import ASTSource

N = 1024


@triton.jit
def narrow(x_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y_ptr + at, tl.load(x_ptr + at).to(tl.bfloat16).to(tl.int16, bitcast=True))


def numbers():
    """Ties of both kinds, their neighbours, the largest numbers, subnormals, infinities and NaNs of every sort, of both signs."""
    upper = np.array([0x0000, 0x0001, 0x007F, 0x0080, 0x3F80, 0x3F81, 0x7F7E, 0x7F7F, 0x7F80, 0x7FC0, 0x7FFE, 0x7FFF], np.uint32)
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    words = (upper[:, None] << 16 | lower).ravel()
    words = np.concatenate([words, words | 0x80000000])
    rest = np.random.default_rng().integers(0, 1 << 32, N - len(words), np.uint32)
    return np.random.default_rng().permutation(np.concatenate([words, rest]))


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_values(arch, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{arch}:sim")
    words = numbers()
    out = np.full(N, 0x1234, np.int16)
    narrow[(1,)](words.view(np.float32), out, N=N)
    nan = np.isnan(words.view(np.float32))
    wide = words.astype(np.uint64)
    want = (wide + 0x7FFF + (wide >> 16 & 1) >> 16).astype(np.uint16)
    got = out.view(np.uint16)
    np.testing.assert_array_equal(got[~nan], want[~nan])
    assert ((got[nan] & 0x7FFF) > 0x7F80).all()


@pytest.mark.parametrize("arch, size, most", [("gfx942", 64, 4.5), ("gfx1100", 32, 4.5), ("gfx950", 64, 0.5)])
def test_instructions_a_number(arch, size, most):
    source = ASTSource(fn=narrow, signature={"x_ptr": "*fp32", "y_ptr": "*i16", "N": "constexpr"}, constexprs={"N": N},
                       attrs={(i,): [["tt.divisibility", 16]] for i in (0, 1)})
    text = triton.compile(source, target=GPUTarget("hip", arch, size), options={"num_warps": 1}).asm["amdgcn"]
    rounding = re.findall(r"^\s+(v_(?:bfe_u32|add3_u32|cmp_[ou]_f32|(?:dual_)?cndmask_b32|perm_b32|cvt_pk_bf16_f32|lshrrev_b32|and_or_b32)\w*)", text, re.M)
    numbers = N // size
    assert numbers * most * 0.9 < len(rounding) <= numbers * most + 2
