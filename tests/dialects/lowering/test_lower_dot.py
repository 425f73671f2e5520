"""tt.dot: every row of the targets' tables by its bases, and fused multiply-adds, against float64."""

import numpy as np
import pytest
from lowering_harness import Text, blocked, ptr, tensor

from tilewright.dialects.matrix_ops import register_rows
from tilewright.targets.amd.matrix_ops import MATRIX_OPS as AMD
from tilewright.targets.nvidia.matrix_ops import MATRIX_OPS as NVIDIA

ROWS = [r for r in (*NVIDIA, *AMD) if r.a_type in ("f16", "f32", "tf32", "i8", "bf16") and r.c_type in ("f32", "i32")]
register_rows((*NVIDIA, *AMD))
NUMPY = {"f16": np.float16, "f32": np.float32, "tf32": np.float32, "i8": np.int8, "i32": np.int32}


def dot_kernel(shapes, types, operands, accumulator, warps, lanes, precision="ieee"):
    """o = a b + c, loaded straight into the operands' layouts."""
    a_type, b_type, c_type = types
    t = Text(ptr("a", a_type), ptr("b", b_type), ptr("c", c_type), ptr("o", c_type))
    values = [t.load(name, e, shape, enc) for name, e, shape, enc in zip(("%a", "%b", "%c"), types, shapes, (*operands, accumulator))]
    names = [tensor(shape, e, enc) for e, shape, enc in zip(types, shapes, (*operands, accumulator))]
    r = t("tt.dot", ", ".join(values), ", ".join(names), names[2], f'input_precision = "{precision}", max_num_imprecise_acc = 0 : i32')
    t.store("%o", r, c_type, shapes[2], accumulator)
    return t.kernel(warps, lanes)


def draw(rng, shape, dtype):
    return rng.integers(-4, 5, shape).astype(dtype)


def dot_op(index, parent, k_width):
    return f"#ttg.dot_op<{index} : i32, {parent}, {k_width} : i32>"


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_matrix_instruction(row, transposed):
    """Several tiles in every direction, several warps; numpy multiplies by the row's bases."""
    m, n, k = (row.n, row.m, row.k) if transposed else (row.m, row.n, row.k)
    m, n, k = 4 * m, 4 * n, 2 * k
    parent = f'#ttg.mma<"{row.name}", array<i32: 2, 2>, {str(transposed).lower()}>'
    element = {"tf32": "f32"}.get(row.a_type, row.a_type)
    shapes = [[m, k], [k, n], [m, n]]
    kernel = dot_kernel(shapes, (element, element, row.c_type), [dot_op(0, parent, 0), dot_op(1, parent, 0)], parent, 4,
                        row.warp_size, "tf32")
    rng = np.random.default_rng(0)
    a, b = (draw(rng, s, np.float32) for s in shapes[:2])
    c = draw(rng, shapes[2], NUMPY[row.c_type])
    want = a.astype(np.float64) @ b + c
    if row.a_type == "bf16":
        a, b = ((x.view(np.uint32) >> 16).astype(np.uint16) for x in (a, b))
    else:
        a, b = a.astype(NUMPY[row.a_type]), b.astype(NUMPY[row.a_type])
    out = np.full(shapes[2], -1, NUMPY[row.c_type])
    kernel.run(a, b, c, out)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("types", [("f32", "f32", "f32"), ("f16", "f16", "f32"), ("i8", "i8", "i32"), ("f16", "f16", "f16"),
                                   ("f64", "f64", "f64")])
@pytest.mark.parametrize("parent,warps,lanes", [(blocked([4, 4], [8, 4], [2, 2], [1, 0]), 4, 32),
                                                (blocked([1, 2], [8, 8], [1, 1], [0, 1]), 1, 64)])
def test_multiply_and_add(types, parent, warps, lanes):
    shapes = [[32, 16], [16, 64], [32, 64]]
    kernel = dot_kernel(shapes, types, [dot_op(0, parent, 0), dot_op(1, parent, 0)], parent, warps, lanes)
    rng = np.random.default_rng(0)
    dtypes = [{"f64": np.float64}.get(t) or NUMPY[t] for t in types]
    a, b, c = (draw(rng, s, d) for s, d in zip(shapes, dtypes))
    out = np.full(shapes[2], -1, dtypes[2])
    kernel.run(a, b, c, out)
    np.testing.assert_array_equal(out, a.astype(np.float64) @ b + c)


def test_batches():
    parent = blocked([1, 2, 2], [1, 8, 4], [2, 1, 2], [2, 1, 0])
    shapes = [[4, 16, 8], [4, 8, 16], [4, 16, 16]]
    kernel = dot_kernel(shapes, ("f32",) * 3, [dot_op(0, parent, 0), dot_op(1, parent, 0)], parent, 4, 32)
    rng = np.random.default_rng(0)
    a, b, c = (draw(rng, s, np.float32) for s in shapes)
    out = np.full(shapes[2], -1, np.float32)
    kernel.run(a, b, c, out)
    np.testing.assert_array_equal(out, a @ b + c)
