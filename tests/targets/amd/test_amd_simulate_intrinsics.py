"""The simulator's own meaning of intrinsics against numpy, and every row of the table through the mma hook in the simulator."""

import numpy as np
import pytest
from amd_harness import Kernel, coordinates

from tilewright.dialects._mlir import ir
from tilewright.dialects.lowering.conversions import FP8
from tilewright.dialects.simt import SimtError
from tilewright.targets.amd.matrix_ops import MATRIX_OPS
from tilewright.targets.amd.simulate_intrinsics import fp8_table, wave_size

P1 = "!llvm.ptr<1>"
ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")


def test_fp8_tables_agree_with_the_conversions():
    """Two independent writings of the formats: the shared conversions' and the simulator's."""
    for arch, kind, name in (("gfx942", "fp8", "f8E4M3FNUZ"), ("gfx942", "bf8", "f8E5M2FNUZ"), ("gfx1201", "fp8", "f8E4M3FN"),
                             ("gfx950", "bf8", "f8E5M2")):
        np.testing.assert_array_equal(fp8_table(kind, arch), [FP8[name].decode(c) for c in range(256)])


def random_operand(kind, shape, arch):
    """(bits, values)"""
    rng = np.random.default_rng()
    if kind == "i8":
        bits = rng.integers(-128, 128, shape).astype(np.int8)
        return bits, bits.astype(np.int64)
    if kind.startswith("f8"):
        table = fp8_table("fp8" if "E4M3" in kind else "bf8", arch)
        bits = rng.choice(np.flatnonzero(np.isfinite(table)), shape).astype(np.uint8)
        return bits, table[bits]
    values = rng.standard_normal(shape).astype({"f16": np.float16, "f64": np.float64}.get(kind, np.float32))
    if kind == "tf32":  # all of what the instruction reads
        values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    if kind == "bf16":
        bits = (values.view(np.uint32) >> 16).astype(np.uint16)
        return bits, (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return values, values.astype(np.float64)


@pytest.mark.parametrize("row", MATRIX_OPS, ids=lambda r: r.name)
def test_hook_multiplies(row):
    """Operands laid out by the row, multiplied by the hook, on the first architecture that has the row."""
    arch = row.extra["archs"][0]

    def body(b, h, args):
        lane = h.thread_id(b)

        def values(pointer, name, bases):
            t = b.t_i8 if name.startswith("f8") else ir.Type.parse("f32" if name == "tf32" else name)
            count = 1 << len(bases.register)
            return [b.load(b.gep(pointer, b.add(b.mul(lane, b.i32(count)), b.i32(i)), t), t) for i in range(count)]

        operands = [values(p, t, bases) for p, t, bases in zip(args, (row.a_type, row.b_type, row.c_type), (row.a, row.b, row.c))]
        for i, v in enumerate(h.mma(b, row, *operands)):
            b.store(v, b.gep(args[3], b.add(b.mul(lane, b.i32(1 << len(row.c.register))), b.i32(i)), v.type))

    kernel = Kernel(arch, [P1] * 4, body)
    (a, av), (bb, bv) = random_operand(row.a_type, (row.m, row.k), arch), random_operand(row.b_type, (row.k, row.n), arch)
    c = np.random.default_rng().integers(-100, 100, (row.m, row.n)).astype({"i32": np.int32, "f64": np.float64}.get(row.c_type, np.float32))
    at, bt, ct = (coordinates(x) for x in (row.a, row.b, row.c))
    arrays = [np.ascontiguousarray(x[t[..., 0], t[..., 1]]) for x, t in ((a, at), (bb, bt), (c, ct))]
    d = np.full(arrays[2].shape, -77, arrays[2].dtype)
    kernel.run(*arrays, d)
    expected = (av @ bv + c)[ct[..., 0], ct[..., 1]]
    np.testing.assert_allclose(d, expected, rtol=2e-7, atol={"f32": 1e-6, "f64": 1e-14, "i32": 0}[row.c_type] * np.abs(expected).max())
    assert kernel.assembly().count(f"{row.m}x{row.n}x{row.k}") == 1


@pytest.mark.parametrize("arch", ARCHS)
def test_lanes(arch):
    """Every xor mask, an arbitrary permutation, and lane and program numbers."""
    wave = wave_size(arch)
    masks = [m for m in range(1, wave)]

    def body(b, h, args):
        tid = h.thread_id(b)
        lane = b.and_(tid, b.i32(wave - 1))
        results = [h.shuffle_xor(b, tid, m) for m in masks]
        results.append(h.shuffle_idx(b, tid, b.sub(b.i32(wave - 1), lane)))
        results.append(h.shuffle_idx(b, tid, b.and_(b.mul(lane, b.i32(5)), b.i32(wave - 1))))
        for i, r in enumerate(results):
            b.store(r, b.gep(args[0], b.add(b.mul(tid, b.i32(len(results))), b.i32(i)), b.t_i32))

    kernel = Kernel(arch, [P1], body, num_warps=2)
    out = np.full((2 * wave, len(masks) + 2), -1, np.int32)
    kernel.run(out)
    t = np.arange(2 * wave)
    base, lane = t - t % wave, t % wave
    expected = np.stack([base + (lane ^ m) for m in masks] + [base + wave - 1 - lane, base + lane * 5 % wave], 1)
    np.testing.assert_array_equal(out, expected)
    kernel.assembly()


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_barrier_in_a_branch_is_an_error(arch):
    def body(b, h, args):
        b.if_then(b.icmp("slt", h.thread_id(b), b.i32(wave_size(arch))), lambda: h.barrier(b))

    with pytest.raises(SimtError, match=r"barrier reached by \d+ of \d+ threads"):
        Kernel(arch, [], body, num_warps=2).run()


def test_lanes_that_must_repeat_are_checked():
    row = next(r for r in MATRIX_OPS if r.name == "amd.wmma_16x16x16_f16_gfx11")

    def body(b, h, args):
        lane = b.sitofp(h.thread_id(b), b.t_f16)
        h.mma(b, row, [lane] * 16, [lane] * 16, [b.const(b.t_f32, 0.0)] * 8)

    with pytest.raises(SimtError, match="lanes that must repeat"):
        Kernel("gfx1100", [], body).run()
