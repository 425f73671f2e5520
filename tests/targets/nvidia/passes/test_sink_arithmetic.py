"""What only the end needs is computed after the loop of products; what the loop needs too, or what was loaded, stays."""

from __future__ import annotations

from collections.abc import Callable

from descriptor_texts import BEFORE, MATMUL, run

from tilewright.dialects.analysis.structure import Node, functions, type_info
from tilewright.dialects.context import mlir_context
from tilewright.dialects.lowering.context import READ_ANEW, REST_READS_ANEW

# columns: only the end's; bias: the end's, but of memory; the first op of the loop uses the rows
EARLY = """
    %range = "tt.make_range"() {start = 0 : i32, end = 256 : i32} : () -> tensor<256xi32>
    %first = "tt.splat"(%n) : (i32) -> tensor<256xi32>
    %columns = "arith.addi"(%first, %range) : (tensor<256xi32>, tensor<256xi32>) -> tensor<256xi32>
    %base = "tt.splat"(%p) : (!tt.ptr<f32, 1 : i32>) -> tensor<256x!tt.ptr<f32, 1 : i32>>
    %places = "tt.addptr"(%base, %range) : (tensor<256x!tt.ptr<f32, 1 : i32>>, tensor<256xi32>) -> tensor<256x!tt.ptr<f32, 1 : i32>>
    %bias = "tt.load"(%places) {cache = "none", evict = "normal", is_volatile = false, operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<256x!tt.ptr<f32, 1 : i32>>) -> tensor<256xf32>
    %out = "tt.addptr"(%base, %columns) : (tensor<256x!tt.ptr<f32, 1 : i32>>, tensor<256xi32>) -> tensor<256x!tt.ptr<f32, 1 : i32>>
"""
LATE = """
    "tt.store"(%out, %bias) {cache = "none", evict = "normal", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<256x!tt.ptr<f32, 1 : i32>>, tensor<256xf32>) -> ()
"""
TEXT = MATMUL.replace("!A, !B, !C) -> ()", "!A, !B, !C, !tt.ptr<f32, 1 : i32>) -> ()", 1).replace("%dc: !C", "%dc: !C, %p: !tt.ptr<f32, 1 : i32>").replace(
    "    %z = ", EARLY + "    %z = ").replace("    %h = ", LATE + "    %h = ")


def ops(look: Callable[[list[Node], int], None]) -> None:
    """Call ``look`` with the body's ops after the pass, and where the loop stands."""
    with mlir_context():
        module, _ = run(TEXT, (*BEFORE, "sink_arithmetic"))
        module.operation.verify()
        body = functions(module)[0].body.ops
        look(body, next(i for i, n in enumerate(body) if n.name == "scf.for"))


def pointers(nodes: list[Node]) -> list[str]:
    return [n.name for n in nodes if n.results and type_info(n.results[0].type).kind == "ptr" and n.name == "tt.addptr"]


def test_addresses_of_the_result_are_made_after_the_loop():
    def look(body: list[Node], loop: int) -> None:
        assert pointers(body[:loop]) == ["tt.addptr"] and pointers(body[loop:]) == ["tt.addptr"]
        # what was loaded stays: moved down, it would be waited for at the end
        assert [n.name for n in body[:loop]].count("tt.load") == 1
        assert not any(n.name == "arith.addi" and type_info(n.results[0].type).shape for n in body[:loop])

    ops(look)


def test_what_follows_reads_the_numbers_anew():
    def look(body: list[Node], loop: int) -> None:
        assert REST_READS_ANEW in body[loop].op.attributes
        anew = [[READ_ANEW in n.op.attributes for n in part if n.name == "tt.get_program_id"] for part in (body[:loop], body[loop:])]
        assert anew[0] and not any(anew[0]) and anew[1] and all(anew[1])

    ops(look)
