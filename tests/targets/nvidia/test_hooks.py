"""Each hook: its meaning in the simulator, and that ptxas takes it."""

import numpy as np
import pytest
from nvidia_harness import Kernel, elementwise, random

from tilewright.dialects._mlir import ir
from tilewright.dialects.lowering.hooks import PrintedValues
from tilewright.dialects.simt import SimtError
from tilewright.targets.nvidia.emit import ptxas

pytestmark = pytest.mark.skipif(ptxas() is None, reason="no ptxas")
P1 = "!llvm.ptr<1>"


def copy_kernel(text, cache="none", evict="normal", volatile=False, predicated=True, other=None, store_cache="none"):
    """out[t] = in[t] where t < n, else ``other``; then stored where t < n2."""
    def body(b, h, tid, args):
        x, out, n, n2 = args
        t = ir.Type.parse(text)
        element = t.element_type if isinstance(t, ir.VectorType) else t
        lanes = t.shape[0] if isinstance(t, ir.VectorType) else 1
        size = lanes * (element.width if hasattr(element, "width") else 16) // 8
        index = b.mul(tid, b.i32(lanes))
        pred = b.icmp("slt", tid, n) if predicated else None
        default = None if other is None else b.const(t, other)
        value = h.load_global(b, b.gep(x, index, element), t, pred, default, cache, evict, volatile, size)
        h.store_global(b, b.gep(out, index, element), value, b.icmp("slt", tid, n2) if predicated else None, store_cache, evict, size)
    return elementwise([P1, P1, "i32", "i32"], body)


@pytest.mark.parametrize("text, dtype, lanes", [
    ("i8", np.int8, 1), ("vector<2xi8>", np.int8, 2), ("vector<4xi8>", np.int8, 4), ("vector<16xi8>", np.int8, 16),
    ("f16", np.float16, 1), ("vector<8xf16>", np.float16, 8), ("bf16", np.uint16, 1), ("vector<2xbf16>", np.uint16, 2),
    ("f32", np.float32, 1), ("vector<2xf32>", np.float32, 2), ("vector<4xf32>", np.float32, 4), ("i64", np.int64, 1),
    ("vector<2xf64>", np.float64, 2)])
def test_predicated_load_and_store(text, dtype, lanes):
    kernel = copy_kernel(text, other=1)
    x = np.frombuffer(np.random.default_rng(0).bytes(20 * lanes * np.dtype(dtype).itemsize), dtype).copy()  # 20 of 32 threads
    x = x.view(f"u{x.itemsize}")
    sentinel = np.array(77, x.dtype)
    out = np.full(25 * lanes, sentinel)
    kernel.run(x, out, 20, 25)
    np.testing.assert_array_equal(out[:20 * lanes], x)
    one = np.ones(1, dtype) if dtype is not np.uint16 else np.array([0x3F80], np.uint16)
    assert (out[20 * lanes:] == one.view(x.dtype)[0]).all()
    kernel.run(x, out, 20, 0)
    kernel.cubin()


def test_no_other_gives_zero_and_masked_lanes_touch_no_memory():
    kernel = copy_kernel("vector<4xf32>")
    x, out = random(80, np.float32), np.full(128, np.nan, np.float32)
    kernel.run(x, out, 20, 32)
    np.testing.assert_array_equal(out, np.concatenate([x, np.zeros(48, np.float32)]))
    with pytest.raises(SimtError, match="load out of bounds"):
        kernel.run(x, out, 21, 32)
    with pytest.raises(SimtError, match="store out of bounds"):
        kernel.run(x, out[:100], 20, 32)


@pytest.mark.parametrize("cache, evict, volatile, expected", [
    ("cg", "normal", False, "ld.global.cg.v4.b32"), ("ca", "evict_first", False, "ld.global.ca.L2::cache_hint.v4.b32"),
    ("cv", "normal", False, "ld.global.cv.v4.b32"), ("none", "evict_last", False, "ld.global.L1::evict_last.L2::cache_hint.v4.b32"),
    ("none", "evict_first", False, "ld.global.L1::evict_first.L2::cache_hint.v4.b32"),
    ("none", "normal", True, "ld.volatile.global.v4.b32")])
@pytest.mark.parametrize("predicated", [True, False])
def test_load_hints(cache, evict, volatile, expected, predicated):
    kernel = copy_kernel("vector<4xf32>", cache, evict, volatile, predicated)
    x, out = random(128, np.float32), np.zeros(128, np.float32)
    kernel.run(x, out, 32, 32)
    np.testing.assert_array_equal(out, x)
    assert expected in kernel.ptx()
    kernel.cubin()


@pytest.mark.parametrize("cache, expected", [("wb", "st.global.wb."), ("cg", "st.global.cg."), ("cs", "st.global.cs."),
                                             ("wt", "st.global.wt.")])
def test_store_hints(cache, expected):
    kernel = copy_kernel("vector<4xf32>", store_cache=cache)
    assert expected in kernel.ptx()
    kernel.cubin()


def test_plain_accesses_stay_llvm():
    kernel = copy_kernel("vector<4xf32>", predicated=False)
    assert "asm" not in kernel.llvm_ir
    assert "ld.global.v4.b32" in kernel.ptx()


ATOMICS = [("add", "i32", np.int32), ("add", "i64", np.int64), ("max", "i32", np.int32), ("umax", "i32", np.uint32),
           ("min", "i64", np.int64), ("umin", "i64", np.uint64), ("and", "i32", np.int32), ("or", "i32", np.int32),
           ("xor", "i64", np.int64), ("xchg", "i32", np.int32), ("xchg", "f32", np.float32), ("fadd", "f32", np.float32),
           ("fadd", "f64", np.float64), ("fadd", "f16", np.float16)]


@pytest.mark.parametrize("op, text, dtype", ATOMICS)
def test_atomics(op, text, dtype):
    def body(b, h, tid, args):
        target, values, old, n = args
        t = ir.Type.parse(text)
        v = b.load(b.gep(values, tid, t), t)
        got = h.atomic_rmw(b, op, b.gep(target, b.and_(tid, b.i32(3)), t), v, b.icmp("slt", tid, n), "acq_rel", "gpu")
        b.store(got, b.gep(old, tid, t))
    kernel = elementwise([P1, P1, P1, "i32"], body)
    rng = np.random.default_rng(3)
    values, target = rng.integers(0, 50, 32).astype(dtype), rng.integers(0, 50, 4).astype(dtype)
    start, old = target.copy(), np.full(32, 99).astype(dtype)
    kernel.run(target, values, old, 30)
    f = {"add": np.add, "fadd": np.add, "max": np.maximum, "umax": np.maximum, "min": np.minimum, "umin": np.minimum,
         "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "xchg": lambda a, b: b}[op]
    for t in range(30):
        assert old[t] == start[t & 3]
        start[t & 3] = f(start[t & 3], values[t])
    np.testing.assert_array_equal(target, start)
    assert (old[30:] == 0).all()
    kernel.cubin()


@pytest.mark.parametrize("text, dtype", [("i32", np.int32), ("i64", np.int64), ("f32", np.float32), ("i16", np.int16)])
def test_compare_and_swap(text, dtype):
    def body(b, h, tid, args):
        t = ir.Type.parse(text)
        p = b.gep(args[0], b.lshr(tid, b.i32(1)), t)
        expected = b.load(b.gep(args[1], tid, t), t)
        new = b.load(b.gep(args[2], tid, t), t)
        b.store(h.atomic_cas(b, p, expected, new, None, "relaxed", "sys"), b.gep(args[3], tid, t))
    kernel = elementwise([P1] * 4, body)
    memory, expected, new, old = (np.zeros(n, dtype) for n in (16, 32, 32, 32))
    expected[16:] = 5
    new[:] = np.arange(32) + 1
    kernel.run(memory, expected, new, old)
    assert memory.tolist() == [2 * i + 1 for i in range(8)] + [0] * 8
    assert old.tolist() == [0, 1] * 0 + [v for i in range(8) for v in (0, 2 * i + 1)] + [0] * 16
    kernel.cubin()


def test_bf16_atomic_add_by_architecture():
    def body(b, h, tid, args):
        h.atomic_rmw(b, "fadd", args[0], b.const(b.t_bf16, 1.0), None, "relaxed", "gpu")
    for sm, instruction in ((80, ".cas.b16"), (90, ".noftz.bf16")):
        kernel = elementwise([P1], body, sm=sm)
        total = np.zeros(1, np.uint16)
        kernel.run(total)
        assert total[0] == 0x4200  # 32.0
        assert instruction in kernel.ptx()


def test_shuffles_program_ids_and_barrier():
    def body(b, h, tid, args):
        pid = b.add(h.program_id(b, 0), b.mul(h.program_id(b, 1), h.num_programs(b, 0)))
        x = h.shuffle_xor(b, tid, 5)
        y = h.shuffle_idx(b, tid, b.sub(b.i32(31), b.and_(tid, b.i32(31))))
        h.barrier(b)
        h.warp_barrier(b)
        at = b.add(b.mul(pid, b.i32(128)), b.mul(tid, b.i32(2)))
        b.store(x, b.gep(args[0], at, b.t_i32))
        b.store(y, b.gep(args[0], b.add(at, b.i32(1)), b.t_i32))
    kernel = elementwise([P1], body, num_warps=2)
    out = np.zeros((6, 64, 2), np.int32)
    kernel.run(out, grid=(3, 2))
    t = np.arange(64)
    np.testing.assert_array_equal(out, np.broadcast_to(np.stack([t ^ 5, (t // 32) * 32 + 31 - t % 32], 1), out.shape))
    ptx = kernel.ptx()
    assert "shfl.sync.bfly" in ptx and "bar.sync" in ptx and ".reqntid 64" in ptx
    kernel.cubin()


@pytest.mark.parametrize("size, cache, opcode", [(16, "none", ".cg."), (16, "ca", ".ca."), (8, "none", ".ca."), (4, "cg", ".ca.")])
@pytest.mark.parametrize("wait", [0, 1])
def test_async_copy(size, cache, opcode, wait):
    def body(b, h, args):
        tid = h.thread_id(b)
        words = size // 4
        dst = b.gep(b.address_of("global_smem", 3), b.mul(tid, b.i32(words)), b.t_i32)
        src = b.gep(args[0], b.mul(tid, b.i32(words)), b.t_i32)
        h.async_copy(b, dst, src, size, b.icmp("slt", tid, args[2]), cache, "evict_first" if size == 16 else "normal")
        h.async_commit(b)
        h.async_wait(b, wait)
        h.barrier(b)
        other = b.xor(tid, b.i32(63))
        for i in range(words):
            index = b.add(b.mul(other, b.i32(words)), b.i32(i))
            v = b.load(b.gep(b.address_of("global_smem", 3), index, b.t_i32), b.t_i32)
            b.store(v, b.gep(args[1], index, b.t_i32))
    kernel = Kernel([P1, P1, "i32"], body, num_warps=2, shared=64 * size)
    words = size // 4
    x, out = np.arange(50 * words, dtype=np.int32) + 1, np.full(64 * words, -1, np.int32)
    if wait:
        with pytest.raises(SimtError, match="a wait is missing"):
            kernel.run(x, out, 50)
        return
    kernel.run(x, out, 50)
    np.testing.assert_array_equal(out, np.concatenate([x, np.zeros(14 * words, np.int32)]))
    assert f"cp.async{opcode}" in kernel.ptx()
    kernel.cubin()


def test_print_and_assert():
    def body(b, h, tid, args):
        h.print_values(b, " 50% x: ", False, PrintedValues([b.sub(tid, b.i32(1)), b.zext(tid, b.t_i64), b.const(b.t_f32, 1.5)], True, (4, 32), [(b.i32(0), tid), (b.i32(1), tid), (b.i32(2), tid)]))
        h.print_values(b, " h: ", True, PrintedValues([tid, b.trunc(b.sub(b.i32(3), tid), b.t_i8)], True, (), [(), ()]))
        h.print_values(b, " here", False, None)
        b.if_then(b.icmp("sgt", args[0], b.i32(3)), lambda: h.assert_failed(b, "n is too large"))
    kernel = elementwise(["i32"], body)
    with pytest.raises(SimtError, match="<unknown>:0: thread 0: assertion failed: n is too large"):
        kernel.run(4)
    from tilewright.dialects.context import mlir_context
    from tilewright.targets.nvidia.simulate import simulate
    with mlir_context():
        output = simulate(kernel.module, "k", 1, 0, (2,), [3]).machine.output
    assert len(output) == 2 * 6 * 32
    lines = [text for program, thread, text in output if thread == 5 and program == (1, 0, 0)]
    start = "pid (1, 0, 0)"
    assert lines == [start + end + "\n" for end in (" idx (0,  5) 50% x: 4", " idx (1,  5) 50% x: 5", " idx (2,  5) 50% x: 1.500000", " idx () h: 0x00000005",
                                                    " idx () h: 0xfe", " here")]
    assert "vprintf" in kernel.ptx() and "__assertfail" in kernel.ptx()
    kernel.cubin()
