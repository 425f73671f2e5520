"""Every row: its lane layout against numpy's product, through the mma hook and the simulator's own reading of the manual."""

import numpy as np
import pytest
from nvidia_harness import elementwise

from tilewright.dialects._mlir import ir
from tilewright.dialects.simt.values import bf16_to_f32, f32_to_bf16
from tilewright.targets.nvidia.emit import ptxas
from tilewright.targets.nvidia.matrix_ops import MATRIX_OPS, rows_for

# f8 bytes of the values 0, ±1, ±2, 0.5, 4
FP8 = {"f8E4M3FN": [0x00, 0x38, 0xB8, 0x40, 0xC0, 0x30, 0x48], "f8E5M2": [0x00, 0x3C, 0xBC, 0x40, 0xC0, 0x38, 0x44]}
FP8_VALUES = np.array([0, 1, -1, 2, -2, 0.5, 4])
LLVM_TYPE = {"tf32": "f32", "f8E4M3FN": "i8", "f8E5M2": "i8"}


def memory_and_values(kind, shape, rng):
    """(array as in memory, the same in float64); small values, so that every product and sum is exact."""
    small = rng.integers(-4, 5, shape)
    if kind in FP8:
        which = rng.integers(0, 7, shape)
        return np.array(FP8[kind], np.uint8)[which], FP8_VALUES[which]
    if kind == "bf16":
        bits = f32_to_bf16(small.astype(np.float32).ravel()).reshape(shape)
        return bits, small.astype(np.float64)
    dtype = {"f16": np.float16, "f32": np.float32, "tf32": np.float32, "f64": np.float64, "i8": np.int8, "i32": np.int32}[kind]
    return small.astype(dtype), small.astype(np.float64)


def offset(b, lane, bases, register, stride):
    """Element offset (row * stride + column) of a register in a lane."""
    fixed = 0
    for bit, (row, col) in enumerate(bases.register):
        if register >> bit & 1:
            fixed ^= row * stride + col
    out = b.i32(fixed)
    for bit, (row, col) in enumerate(bases.lane):
        on = b.and_(b.lshr(lane, b.i32(bit)), b.i32(1))
        out = b.add(out, b.mul(on, b.i32(row * stride + col)))
    return out


def mma_kernel(row):
    def body(b, h, tid, args):
        lane = b.and_(tid, b.i32(31))
        def elements(pointer, bases, stride, kind):
            t = ir.Type.parse(LLVM_TYPE.get(kind, kind))
            return [b.load(b.gep(pointer, offset(b, lane, bases, r, stride), t), t) for r in range(1 << len(bases.register))]
        a = elements(args[0], row.a, row.k, row.a_type)
        bv = elements(args[1], row.b, row.n, row.b_type)
        c = elements(args[2], row.c, row.n, row.c_type)
        out = h.mma(b, row, a, bv, c)
        out = h.mma(b, row, a, bv, out)
        assert len(out) == len(c)
        # Each warp writes its own copy.
        base = b.mul(b.lshr(tid, b.i32(5)), b.i32(row.m * row.n))
        for r, v in enumerate(out):
            b.store(v, b.gep(args[3], b.add(base, offset(b, lane, row.c, r, row.n)), v.type))
    return elementwise(["!llvm.ptr<1>"] * 4, body, num_warps=2, sm=row.extra["min_sm"])


@pytest.mark.parametrize("row", MATRIX_OPS, ids=lambda r: r.name)
def test_row_multiplies(row):
    rng = np.random.default_rng(1)
    a, av = memory_and_values(row.a_type, (row.m, row.k), rng)
    bm, bv = memory_and_values(row.b_type, (row.k, row.n), rng)
    c, cv = memory_and_values(row.c_type, (row.m, row.n), rng)
    out = np.zeros((2, row.m, row.n), c.dtype)
    kernel = mma_kernel(row)
    kernel.run(a, bm, c, out)
    got = bf16_to_f32(out) if row.c_type == "bf16" else out
    np.testing.assert_array_equal(got.astype(np.float64), np.broadcast_to(2 * (av @ bv) + cv, out.shape))


@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
@pytest.mark.parametrize("row", MATRIX_OPS, ids=lambda r: r.name)
def test_row_assembles(row):
    kernel = mma_kernel(row)
    assert kernel.ptx().count(row.intrinsic) == 2
    kernel.cubin()


@pytest.mark.parametrize("row", MATRIX_OPS, ids=lambda r: r.name)
def test_bases_cover_each_element_once(row):
    for bases, shape in ((row.a, (row.m, row.k)), (row.b, (row.k, row.n)), (row.c, (row.m, row.n))):
        seen = np.zeros(shape, int)
        vectors = [*bases.register, *bases.lane]
        for i in range(1 << len(vectors)):
            r = c = 0
            for bit, (dr, dc) in enumerate(vectors):
                if i >> bit & 1:
                    r, c = r ^ dr, c ^ dc
            seen[r, c] += 1
        assert (seen == 1).all()


def test_rows_by_architecture():
    names = {row.name for row in rows_for(80)}
    assert "nvidia.mma_m16n8k16_f16" in names and not any("f8" in n for n in names)
    assert "nvidia.mma_m16n8k32_f8E4M3FN_f8E5M2" in {row.name for row in rows_for(89)}
