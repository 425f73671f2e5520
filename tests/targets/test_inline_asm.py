"""Inline assembly that a target cannot take is an error of the kernel's line: LLVM itself would end the process."""

from __future__ import annotations

import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.targets.protocol import GPUTarget


@triton.jit
def moved(p, ASM: tl.constexpr, CONSTRAINTS: tl.constexpr):
    at = p + tl.arange(0, 64)
    x = tl.inline_asm_elementwise(ASM, CONSTRAINTS, [tl.load(at)], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(at, x)


def compiled(target: GPUTarget, asm: str, constraints: str):
    src = ASTSource(moved, {"p": "*fp32", "ASM": "constexpr", "CONSTRAINTS": "constexpr"}, {"ASM": asm, "CONSTRAINTS": constraints})
    return triton.compile(src, target=target)


@pytest.mark.parametrize("arch,warp", [("gfx942", 64), ("gfx1100", 32)])
def test_amd_takes_its_own_and_refuses_ptx(arch, warp):
    assert "v_sqrt_f32" in compiled(GPUTarget("hip", arch, warp), "v_sqrt_f32 $0, $1", "=v,v").asm["amdgcn"]
    with pytest.raises(UnsupportedOnTargetError, match=f"assembler of {arch} does not take this inline assembly: .*mov.b32") as caught:
        compiled(GPUTarget("hip", arch, warp), "mov.b32 $0, $1;", "=v,v")
    assert "tl.inline_asm_elementwise(ASM" in str(caught.value)


def test_a_wrong_mnemonic_is_the_users_error_with_the_line_of_ptx():
    pytest.importorskip("nvidia")
    with pytest.raises(UnsupportedOnTargetError, match=r"(?s)ptxas does not take this inline assembly: .*PTX line \d+: movv.b32") as caught:
        compiled(GPUTarget("cuda", 80, 32), "movv.b32 $0, $1;", "=f,f")
    assert "tl.inline_asm_elementwise(ASM" in caught.value.source_line


def test_unknown_constraint_letters_are_refused():
    with pytest.raises(UnsupportedOnTargetError, match="'=z'"):
        compiled(GPUTarget("cuda", 80, 32), "mov.b32 $0, $1;", "=z,z")


def test_good_assembly_reaches_the_ptx():
    assert "mov.b32" in compiled(GPUTarget("cuda", 80, 32), "mov.b32 $0, $1;", "=f,f").asm["ptx"]
