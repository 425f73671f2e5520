"""Kernels that print or assert take a pointer to the buffer of their reports after the user's arguments; others do not."""

from __future__ import annotations

import pytest

import tilewright as triton
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.dialects.prints import line, value_text
from tilewright.targets.amd.emit import kernel_arguments
from tilewright.targets.device_reports import CAPACITY, tell
from tilewright.targets.protocol import GPUTarget


@triton.jit
def says(p, n, PRINT: tl.constexpr):
    if PRINT:
        tl.device_print("n is ", n)
    tl.store(p, n)


@pytest.mark.parametrize("arch, lanes", [("gfx942", 64), ("gfx1100", 32)])
def test_the_last_argument_is_the_buffer(arch, lanes):
    def compiled(prints: bool):
        return triton.compile(ASTSource(says, {"p": "*i32", "n": "i32", "PRINT": "constexpr"}, {"PRINT": prints}), target=GPUTarget("hip", arch, lanes))

    quiet, loud = compiled(False), compiled(True)
    assert [a["kind"] for a in kernel_arguments(quiet.asm["amdgcn"])] == ["global_buffer", "by_value"]
    assert [a["kind"] for a in kernel_arguments(loud.asm["amdgcn"])] == ["global_buffer", "by_value", "global_buffer"]
    assert getattr(quiet.metadata, "reports", None) is None
    assert list(loud.metadata.reports) == [{"kind": "print", "text": " n is: ", "type": "i", "bits": 32, "hex": False, "shape": []}]


def test_values_as_text():
    assert [value_text(kind, 8, as_hex, 0xFA) for kind, as_hex in (("i", False), ("u", False), ("i", True))] == ["-6", "250", "0xfa"]
    assert value_text("f", 64, False, 0x3FF8000000000000) == "1.500000" and value_text("p", 64, False, 0x7F00) == "0x7f00"
    assert line((1, 2, 3), " n: ", [4, 16], 35, "7") == "pid (1, 2, 3) idx (2,  3) n: 7" and line((0, 0, 0), " done") == "pid (0, 0, 0) done"


def test_records_that_do_not_fit_are_counted(capsys):
    tell((CAPACITY + 5).to_bytes(4, "little") + bytes(4 * (7 + CAPACITY * 8)), [{"kind": "print", "text": "x"}], "kernel")
    assert "kernel: 5 more lines" in capsys.readouterr().out
