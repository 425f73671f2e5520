"""Every form of instruction that LLVM prints for the examples, the conformance tests' kernels, the math functions and Triton's examples.

``emitted_instructions.txt`` has one line for each mnemonic, kinds of operands and modifiers, under the archs that print it; the numbers of
registers and large constants are made alike. It was collected from compiled kernels: add what a kernel is found to need.
"""

from pathlib import Path

import pytest
from snippets import kernel_text

from tilewright.targets.amd.isa import instructions
from tilewright.targets.amd.isa.program import parse, parse_instruction
from tilewright.targets.amd.isa.registry import DecodeContext, decode

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")


def emitted(arch):
    """Lines of that arch."""
    out, here = [], False
    for line in (Path(__file__).parent / "emitted_instructions.txt").read_text().splitlines():
        if line.startswith("["):
            here = arch in line[1:-1].split()
        elif here:
            out.append(line)
    return out


@pytest.mark.parametrize("arch", ARCHS)
def test_what_is_emitted_is_known(arch):
    assert instructions.MODULES
    program = parse(kernel_text(arch, "s_nop 0"))
    ctx = DecodeContext(program, program.kernel())
    lines = emitted(arch)
    assert len(lines) > 800
    for line in lines:
        decode(parse_instruction(line), ctx)  # raises UnknownInstruction naming it
