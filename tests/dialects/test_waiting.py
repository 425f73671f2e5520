"""What the end of a loop waits for."""

import pytest

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.structure import functions
from tilewright.dialects.analysis.waiting import waiting_reads
from tilewright.dialects.context import mlir_context


def reads(steps, start):
    """The waiting reads of a loop that goes round until what lies ``steps`` additions behind ``start`` is not 0."""
    chain = "\n".join(f"%a{i + 1} = arith.addi %a{i}, %n : i32" for i in range(steps))
    text = f"""
      func.func @kernel(%p: !tt.ptr<i32, 1 : i32>, %n: i32) attributes {{tt.kernel}} {{
        %zero = arith.constant 0 : i32
        %end = scf.while (%i = %n) : (i32) -> i32 {{
          %a0 = arith.addi {start}, %n : i32
          {chain}
          %at = "tt.addptr"(%p, %a{steps}) : (!tt.ptr<i32, 1 : i32>, i32) -> !tt.ptr<i32, 1 : i32>
          %v = "tt.load"(%at) {{cache = "none", evict = "normal", is_volatile = false, operandSegmentSizes = array<i32: 1, 0, 0>}} : (!tt.ptr<i32, 1 : i32>) -> i32
          %more = arith.cmpi eq, %v, %zero : i32
          scf.condition(%more) %i : i32
        }} do {{
        ^bb0(%j: i32):
          %next = arith.addi %j, %n : i32
          scf.yield %next : i32
        }}
        func.return
      }}"""
    with mlir_context():
        (function,) = functions(ir.Module.parse(text))
        return [read.name for read in waiting_reads(function)]


@pytest.mark.parametrize("steps", [1, 3000])
def test_an_address_that_stays_is_waited_at(steps):
    """However long it is computed."""
    assert reads(steps, "%n") == ["tt.load"]


def test_an_address_that_goes_on_is_not():
    assert reads(2, "%i") == []
