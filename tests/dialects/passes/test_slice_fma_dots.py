"""slice_fma_dots: chains of dots over a few k, with the same values."""

import numpy as np
import pytest
from evaluate import Evaluator, poisoned
from kernel_texts import KERNELS, attention, context, matmul, run_passes

from tilewright.dialects._mlir import ir
from tilewright.dialects.analysis.layout_cost import registers
from tilewright.dialects.analysis.structure import functions, type_info
from tilewright.dialects.context import mlir_context
from tilewright.dialects.errors import OutOfResources
from tilewright.dialects.passes import (
    accelerate_dot,
    coalesce,
    convert_tt_to_ttg,
    optimize_dot_operands,
    remove_layout_conversions,
    slice_fma_dots,
)

PASSES = (convert_tt_to_ttg, coalesce, accelerate_dot, remove_layout_conversions, optimize_dot_operands, slice_fma_dots)


@pytest.mark.parametrize("name", KERNELS)
def test_result_is_valid(name):
    with mlir_context():
        run_passes(KERNELS[name](), context(rows=[]), *PASSES)


def operand_registers(f):
    """Registers of both operands of each dot."""
    return [sum(registers(type_info(v.type).shape, type_info(v.type).encoding) for v in n.operands[:2])
            for n in f.nodes() if n.name == "tt.dot"]


def test_a_thread_holds_few_operands_at_a_time():
    with mlir_context():
        text = matmul(128, 128, 32, "f32", out="f32")
        _, f = run_passes(text, context(num_warps=8), *PASSES[:-1])
        assert operand_registers(f) == [512]  # all at once without this pass
        _, f = run_passes(text, context(num_warps=8), *PASSES)
        assert operand_registers(f) == [64] * 8
        names = [n.name for n in f.nodes() if n.depth == 1]
        assert names.count("ttg.local_load") == 16 and names.count("ttg.local_alloc") == 2
        # each dot's reads stand before it
        first = names.index("tt.dot")
        assert names[:first].count("ttg.local_load") == 2


def test_matrix_instructions_are_left_alone():
    with mlir_context():
        _, f = run_passes(matmul(), context(), *PASSES)
        assert [n.name for n in f.nodes()].count("tt.dot") == 1


def test_fp8_is_widened_piece_by_piece():
    with mlir_context():
        _, f = run_passes(matmul(128, 128, 64, "f16"), context(rows=[]), *PASSES)
        assert len(operand_registers(f)) > 1


@pytest.mark.parametrize("column_major", [False, True])
def test_values(column_major):
    text = matmul(64, 64, 32, "f32", out="f32", w_column_major=column_major)
    with mlir_context():
        results = []
        for f in (functions(ir.Module.parse(text))[0], run_passes(text, context(), *PASSES)[1]):
            rng = np.random.default_rng(0)
            x, w, b = (rng.integers(-4, 5, n).astype(float) for n in (100 * 112, 112 * 112, 80))
            y = poisoned(100 * 80)
            Evaluator(f, [x, w, b, y, 100, 80, 70, 112, 112, 80], (1, 0, 0))
            results.append(y)
        np.testing.assert_array_equal(*results)  # sums of small integers are exact in any order


def test_an_operand_in_registers_keeps_its_dot_whole():
    with mlir_context():
        _, f = run_passes(attention(32, 32, 64), context(rows=[]), *PASSES)
        dots = [n for n in f.nodes() if n.name == "tt.dot"]
        assert type_info(dots[-1].operands[0].type).shape[-1] == 32  # P · V
        assert len(dots) > 2  # Q · K is cut


@pytest.mark.parametrize("size, num_warps, refused", [((128, 128, 32), 1, True), ((128, 64, 64), 1, True), ((64, 64, 64), 1, False), ((128, 128, 64), 4, False),
                                                      ((128, 64, 16), 1, False)])
def test_accumulators_that_no_register_file_holds_are_refused(size, num_warps, refused):
    """What would take minutes to compile: small dots whose accumulators do not fit are let through."""
    with mlir_context():
        if not refused:
            run_passes(matmul(*size, "f32", out="f32"), context(num_warps=num_warps), *PASSES)
            return
        with pytest.raises(OutOfResources, match=rf"registers of a thread .*: \d+ needed, 255 available.* {size[0]}×{size[1]} results over 1 warp .*raise num_warps"):
            run_passes(matmul(*size, "f32", out="f32"), context(num_warps=num_warps), *PASSES)
