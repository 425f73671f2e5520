"""stmatrix: where the map from threads to memory has its shape, the same bytes come out as by single stores, without bank conflicts."""

import re
import types

import numpy as np
import pytest
from nvidia_harness import Kernel

from tilewright.dialects import encodings, ttg
from tilewright.dialects._mlir import ir
from tilewright.dialects.lowering.context import LoweringContext
from tilewright.dialects.lowering.shared_ops import buffer, store_registers
from tilewright.dialects.matrix_ops import register_rows
from tilewright.targets.nvidia.emit import ptxas
from tilewright.targets.nvidia.matrix_load import plan_matrix_load
from tilewright.targets.nvidia.target import TARGET

register_rows(TARGET.matrix_ops())
MMA, WGMMA = "nvidia.mma_m16n8k16_f16", "nvidia.wgmma_m64n{}k16_f16"
PANELS = {0: (8, 8, 1, 1), 32: (16, 8, 4, 2), 64: (32, 8, 2, 4), 128: (64, 8, 1, 8)}


def panel(swizzle, order):
    return ttg.PanelSharedEncoding.of(*PANELS[swizzle], order)


def store_kernel(row, warps, shape, make_encoding, view=None, sm=90):
    """Every register holds its element's own number; what is in shared memory then is copied out. view: (shape, offsets)."""
    record = {}
    size = int(np.prod(shape))
    num_warps = warps[0] * warps[1]

    def body(b, h, args):
        start = b.block()  # the entry block is for what the context makes once
        b.set_block(start)
        f16 = ir.F16Type.get()
        encoding = make_encoding()
        small = view[0] if view else shape
        tensor = ir.RankedTensorType.get(small, f16, ttg.MmaEncoding.of(row, warps))
        pass_ctx = types.SimpleNamespace(options=types.SimpleNamespace(), capabilities=None, metadata={}, num_warps=num_warps)
        ctx = LoweringContext(pass_ctx, h, {}, None, b.func)
        ctx.b = b  # one builder, whose constants stand in the entry block
        ctx.indices.b = b
        base = b.address_of("global_smem", 3)
        for i in range(0, size, 32 * num_warps):
            b.store(b.i16(-1), b.gep(base, b.add(h.thread_id(b), b.i32(i)), b.t_i16))
        h.barrier(b)
        memory = buffer(ctx, ttg.MemDescType.of(shape, f16, encoding), base)
        record["place"] = memory.layout.invert()
        if view:
            memory = memory.with_(shape=tuple(small), offsets=tuple(view[1]))
        layout = encodings.layout_of(tensor)
        registers = [b.bitcast(b.trunc(e, b.t_i16), f16) for e in ctx.indices.flat(layout)]
        store_registers(ctx, types.SimpleNamespace(name="test"), registers, layout, memory)
        h.barrier(b)
        for i in range(0, size, 32 * num_warps):
            at = b.add(h.thread_id(b), b.i32(i))
            b.store(b.load(b.gep(base, at, b.t_i16), b.t_i16), b.gep(args[0], at, b.t_i16))
        end = b.current
        b.set_block(b.entry)
        b.br(start)
        b.set_block(end)

    return Kernel(["!llvm.ptr<1>"], body, num_warps=num_warps, shared=65536, sm=sm), record


CASES = [  # row, warps, shape, swizzle, order, what is emitted
    (WGMMA.format(64), [4, 1], [64, 64], 128, [1, 0], "x4.shared"), (WGMMA.format(256), [4, 1], [64, 256], 128, [1, 0], "x4.shared"),
    (WGMMA.format(64), [4, 1], [128, 128], 64, [1, 0], "x4.shared"), (WGMMA.format(32), [8, 1], [128, 64], 32, [1, 0], "x4.shared"),
    (WGMMA.format(16), [4, 2], [64, 32], 0, [1, 0], "x4.shared"), (WGMMA.format(8), [4, 1], [64, 8], 0, [1, 0], "x2.shared"),
    (WGMMA.format(64), [4, 1], [64, 64], 128, [0, 1], "x4.trans.shared"), (WGMMA.format(32), [4, 1], [128, 64], 64, [0, 1], "x4.trans.shared"),
    (WGMMA.format(32), [8, 1], [64, 32], 64, [1, 0], "x4.shared"),  # two warp groups hold the same rows
    (MMA, [2, 2], [64, 64], 128, [1, 0], "x4.shared"), (MMA, [2, 2], [32, 16], 32, [1, 0], "x2.shared"),
]


def check(kernel, record, shape, small=None, offsets=(0, 0)):
    small = small or shape
    out = np.full(int(np.prod(shape)), 12345, np.uint16)
    kernel.run(out)
    want = np.full(out.shape, 0xFFFF, np.uint16)
    r, c = np.indices(small)
    want[record["place"].apply_array({"dim0": r + offsets[0], "dim1": c + offsets[1]})["offset"]] = r * small[1] + c
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("row, warps, shape, swizzle, order, emitted", CASES)
def test_every_element_lies_where_the_layout_says(row, warps, shape, swizzle, order, emitted):
    kernel, record = store_kernel(row, warps, shape, lambda: panel(swizzle, order))
    text = str(kernel.module)
    assert f"stmatrix.sync.aligned.m8n8.{emitted}.b16" in text
    stored = len(re.findall(r"stmatrix\.sync", text)) * {"x2": 2, "x4": 4}[emitted[:2]]
    different_warps = min(warps[0], shape[0] // 16) * warps[1]
    assert stored * 64 * different_warps == int(np.prod(shape))  # no matrix twice in a warp
    check(kernel, record, shape)


def test_a_slice_and_what_does_not_fit():
    kernel, record = store_kernel(WGMMA.format(32), [4, 1], [128, 64], lambda: panel(128, [1, 0]), ([64, 32], [64, 32]))
    assert "stmatrix" in str(kernel.module)
    check(kernel, record, [128, 64], [64, 32], (64, 32))
    kernel, record = store_kernel(WGMMA.format(32), [4, 1], [64, 32], lambda: ttg.SwizzledSharedEncoding.of(4, 1, 8, [1, 0]))
    assert "stmatrix" not in str(kernel.module)  # rows of 8 bytes
    check(kernel, record, [64, 32])
    assert "stmatrix" not in str(store_kernel(MMA, [2, 2], [64, 64], lambda: panel(128, [1, 0]), sm=89)[0].module)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("order", [[1, 0], [0, 1]])
def test_no_bank_conflicts(swizzle, order):
    """The 8 rows of 16 bytes of each matrix lie in the 32 banks of 4 bytes once."""
    shape = [128, 128]
    from tilewright.dialects.context import mlir_context

    with mlir_context():
        layout = encodings.to_linear_layout(shape, ttg.MmaEncoding.of(WGMMA.format(64), [4, 1]))
        place = encodings.to_linear_layout(shape, panel(swizzle, order)).invert()
    flat = {d: tuple(place.apply_flat(_as_input(place, c)) for c in layout.columns(d)) for d in ("register", "lane", "warp")}
    plan = plan_matrix_load(flat, 2)
    assert plan is not None and plan.count == 4 and plan.trans == (order == [0, 1])
    for step, _ in plan.steps:
        for matrix in range(4):
            rows = [step]
            for i in range(3):
                rows += [r ^ plan.thread[i] for r in rows]
            chosen = 0
            for i in range(2):
                chosen ^= plan.thread[3 + i] if matrix >> i & 1 else 0
            banks = {((r ^ chosen) * 2 + 4 * word) // 4 % 32 for r in rows for word in range(4)}
            assert len(banks) == 32


def _as_input(place, flat):
    """A row-major element number as the inverse layout's input number (its first dim lowest)."""
    bits = place.in_bits("dim1")
    return (flat >> bits) | (flat & ((1 << bits) - 1)) << place.in_bits("dim0")


@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
def test_it_assembles():
    for order, trans in (([1, 0], ""), ([0, 1], ".trans")):
        kernel, _ = store_kernel(WGMMA.format(64), [4, 1], [64, 64], lambda order=order: panel(128, order))
        assert kernel.ptx().count(f"stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16") == 4
        kernel.cubin()
