"""ldmatrix: where the map from threads to memory has its shape, the same registers come back as by single loads."""

import types

import numpy as np
import pytest
from nvidia_harness import Kernel

from tilewright.dialects import encodings, ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.lowering.context import LoweringContext
from tilewright.dialects.lowering.shared_ops import View, buffer, load_registers
from tilewright.dialects.matrix_ops import register_rows
from tilewright.targets.nvidia.emit import ptxas
from tilewright.targets.nvidia.matrix_load import plan_matrix_load
from tilewright.targets.nvidia.matrix_ops import MATRIX_OPS

register_rows(MATRIX_OPS)
F16, TF32, S8 = "nvidia.mma_m16n8k16_f16", "nvidia.mma_m16n8k8_tf32", "nvidia.mma_m16n8k32_i8"
TYPES = {F16: "f16", TF32: "f32", S8: "i8"}


def load_kernel(row, shape, op_idx, order, swizzle, num_warps=(2, 2), slice_of=None):
    """Shared memory holds each element's own number; every thread writes the registers that its operand layout gives."""
    warps = num_warps[0] * num_warps[1]
    record = {}

    def body(b, h, args):
        element = ir.Type.parse(TYPES[row])
        size = element.width // 8
        word = b.int_type(element.width)
        encoding = ttg.SwizzledSharedEncoding.of(*swizzle, order)
        operand = ttg.DotOperandEncoding.of(op_idx, ttg.MmaEncoding.of(row, num_warps), 4 // size)
        tensor = ir.RankedTensorType.get(shape, element, operand)
        pass_ctx = types.SimpleNamespace(options=types.SimpleNamespace(), capabilities=None, metadata={}, num_warps=warps)
        ctx = LoweringContext(pass_ctx, h, {}, None, b.func)
        ctx.b = b  # one builder, whose constants stand in the entry block
        ctx.indices.b = b
        buffer_shape = slice_of[0] if slice_of else shape
        memory = buffer(ctx, ttg.MemDescType.of(buffer_shape, element, encoding), b.address_of("global_smem", 3))
        if slice_of:
            memory = memory.with_(shape=tuple(shape), offsets=tuple(slice_of[1]))
        total = int(np.prod(buffer_shape))
        for i in range(0, total, 32 * warps):  # fill: bytes come from the argument, in memory order
            at = b.add(h.thread_id(b), b.i32(i))
            b.store(b.load(b.gep(args[0], at, word), word), b.gep(b.address_of("global_smem", 3), at, word))
        h.barrier(b)
        op = types.SimpleNamespace(name="test")
        layout = encodings.layout_of(tensor)
        with b.no_contract():
            got = load_registers(ctx, op, layout, memory)
        base = b.mul(h.thread_id(b), b.i32(len(got)))
        for r, v in enumerate(got):
            b.store(b.bitcast(v, word), b.gep(args[1], b.add(base, b.i32(r)), word))
        view = View(memory)
        threads = np.arange(32 * warps)
        registers = np.arange(len(got))
        place = layout.apply_array({"register": np.tile(registers, len(threads)), "lane": np.repeat(threads % 32, len(got)),
                                    "warp": np.repeat(threads // 32, len(got))})
        flat = np.ravel_multi_index([place[d] for d in layout.out_dims], shape)
        record["expected"] = np.array([view.offset(int(e)) ^ view.constant for e in flat]).reshape(len(threads), len(got))
        record["total"] = total

    kernel = Kernel(["!llvm.ptr<1>", "!llvm.ptr<1>"], body, num_warps=warps, shared=65536)
    return kernel, record


CASES = [  # row, shape, operand, order, swizzle, ldmatrix expected, transposed
    (F16, [64, 64], 0, [1, 0], (8, 1, 8), "x4", False), (F16, [64, 32], 1, [0, 1], (8, 1, 8), "x4", False),
    (F16, [64, 64], 1, [1, 0], (8, 1, 8), "x4", True), (F16, [64, 64], 0, [0, 1], (8, 1, 8), "x4", True),
    (F16, [32, 16], 0, [1, 0], (8, 4, 2), "x4", False), (F16, [16, 16], 1, [0, 1], (1, 1, 1), "x2", False),
    (TF32, [32, 32], 0, [1, 0], (4, 1, 8), "x4", False), (TF32, [32, 32], 0, [0, 1], (4, 1, 8), None, None),
    (S8, [64, 64], 0, [1, 0], (16, 2, 4), "x4", False), (S8, [64, 64], 1, [0, 1], (16, 2, 4), "x4", False),
    (S8, [64, 64], 1, [1, 0], (16, 2, 4), None, None), (F16, [64, 64], 0, [1, 0], (4, 1, 8), None, None),
]


@pytest.mark.parametrize("row, shape, op_idx, order, swizzle, expected, trans", CASES)
def test_registers_are_the_layouts(row, shape, op_idx, order, swizzle, expected, trans):
    kernel, record = load_kernel(row, shape, op_idx, order, swizzle)
    text = str(kernel.module)
    if expected is None:
        assert "ldmatrix" not in text
    else:
        assert f"m8n8.{expected}{'.trans' if trans else ''}.b16" in text
        assert "llvm.load %" not in text.split("barrier")[1].replace("llvm.load %arg", "")
    dtype = {F16: np.uint16, TF32: np.uint32, S8: np.uint8}[row]
    memory = np.arange(record["total"]).astype(dtype)
    out = np.zeros(record["expected"].shape, dtype)
    kernel.run(memory, out)
    np.testing.assert_array_equal(out, record["expected"].astype(dtype))


def test_a_slice_of_a_buffer():
    kernel, record = load_kernel(F16, [64, 32], 0, [1, 0], (8, 1, 8), slice_of=([64, 64], [0, 32]))
    assert "ldmatrix" in str(kernel.module)
    out = np.zeros(record["expected"].shape, np.uint16)
    kernel.run(np.arange(record["total"], dtype=np.uint16), out)
    np.testing.assert_array_equal(out, record["expected"])


@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
def test_it_assembles():
    kernel, _ = load_kernel(F16, [64, 64], 1, [1, 0], (8, 1, 8))
    assert kernel.ptx().count("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") == 8
    kernel.cubin()


def test_plans_refuse_what_does_not_fit():
    row = {"register": (1, 64, 8), "lane": (2, 4, 128, 256, 512), "warp": ()}
    assert plan_matrix_load(row, 2) is not None
    assert plan_matrix_load({**row, "register": (1, 64, 4)}, 2) is None  # a matrix begins in the middle of a row
    assert plan_matrix_load({**row, "register": (1, 64, 64)}, 2) is None  # two registers hold one element
    assert plan_matrix_load({**row, "lane": (2, 4, 128, 256)}, 2) is None  # not a warp of 32
    assert plan_matrix_load({**row, "warp": (4,)}, 2) is None
    assert plan_matrix_load(row, 8) is None
    found = plan_matrix_load({**row, "register": (1, 0, 64, 8)}, 2)  # a register bit that repeats elements
    assert found is not None and found.owners[2] == 0 and found.count == 4
