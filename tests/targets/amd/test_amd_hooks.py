"""Each memory and synchronisation hook: its meaning in the simulator, and the instructions that LLVM makes of it."""

import re

import numpy as np
import pytest
from amd_harness import Kernel

from tilewright.dialects._mlir import ir
from tilewright.dialects.errors import UnsupportedOnTargetError
from tilewright.dialects.simt import SimtError
from tilewright.targets.amd.simulate_intrinsics import wave_size

P1 = "!llvm.ptr<1>"


def copy_kernel(arch, text, cache="none", volatile=False, predicated=True, other=None, store_cache="none"):
    """out[t] = in[t] where t < n, else ``other``; stored where t < n2."""
    def body(b, h, args):
        x, out, n, n2 = args
        tid, t = h.thread_id(b), ir.Type.parse(text)
        element, lanes = (t.element_type, t.shape[0]) if isinstance(t, ir.VectorType) else (t, 1)
        size = lanes * (element.width if hasattr(element, "width") else 16) // 8
        index = b.mul(tid, b.i32(lanes))
        pred = b.icmp("slt", tid, n) if predicated else None
        default = None if other is None else b.const(t, other)
        value = h.load_global(b, b.gep(x, index, element), t, pred, default, cache, "normal", volatile, size)
        h.store_global(b, b.gep(out, index, element), value, b.icmp("slt", tid, n2) if predicated else None, store_cache, "normal", size)

    return Kernel(arch, [P1, P1, "i32", "i32"], body)


@pytest.mark.parametrize("text, dtype, lanes", [("i8", np.int8, 1), ("vector<16xi8>", np.int8, 16), ("f16", np.float16, 1),
                                                ("vector<8xf16>", np.float16, 8), ("vector<2xbf16>", np.uint16, 2), ("f32", np.float32, 1),
                                                ("vector<4xf32>", np.float32, 4), ("i64", np.int64, 1), ("vector<2xf64>", np.float64, 2)])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_predicated_load_and_store(arch, text, dtype, lanes):
    kernel = copy_kernel(arch, text, other=1)
    x = np.random.default_rng().integers(0, 256, 20 * lanes * np.dtype(dtype).itemsize, np.uint8).view(f"u{np.dtype(dtype).itemsize}")
    sentinel = np.array(77, x.dtype)
    out = np.full(25 * lanes, sentinel)
    kernel.run(x, out, 20, 25)
    np.testing.assert_array_equal(out[:20 * lanes], x)
    one = np.array([0x3F80], np.uint16) if dtype is np.uint16 else np.ones(1, dtype)
    assert (out[20 * lanes:] == one.view(x.dtype)[0]).all()
    with pytest.raises(SimtError, match="load out of bounds"):
        kernel.run(x, out, 21, 25)
    with pytest.raises(SimtError, match="store out of bounds"):
        kernel.run(x, out, 20, 26)
    assert kernel.assembly()


def test_a_masked_load_without_other_gives_zero():
    kernel = copy_kernel("gfx942", "vector<4xf32>")
    x, out = np.ones(80, np.float32), np.full(256, np.nan, np.float32)
    kernel.run(x, out, 20, 64)
    np.testing.assert_array_equal(out, np.concatenate([x, np.zeros(176, np.float32)]))


@pytest.mark.parametrize("arch, cache, volatile, expected", [
    ("gfx942", "none", False, r"global_load_dwordx4 \S+, \S+, \S+$"), ("gfx942", "cg", False, r"global_load_dwordx4 .* nt$"),
    ("gfx942", "cs", False, r"global_load_dwordx4 .* nt$"), ("gfx942", "cv", False, r"global_load_dwordx4 .* sc0 sc1"),
    ("gfx942", "none", True, r"global_load_dwordx4 .* sc0 sc1"), ("gfx90a", "cg", False, r"global_load_dwordx4 .* glc slc"),
    ("gfx1201", "cg", False, r"global_load_b128 .* th:TH_LOAD_NT"), ("gfx1201", "none", True, r"global_load_b128 .* scope:SCOPE_SYS")])
def test_load_hints(arch, cache, volatile, expected):
    kernel = copy_kernel(arch, "vector<4xf32>", cache, volatile, predicated=False)
    x, out = np.random.default_rng().standard_normal(256).astype(np.float32), np.zeros(256, np.float32)
    lanes = wave_size(arch) * 4
    kernel.run(x, out, 0, 0)
    np.testing.assert_array_equal(out[:lanes], x[:lanes])
    assert re.search(expected, re.sub(r"\s*;.*", "", kernel.assembly()), re.M), kernel.assembly()


@pytest.mark.parametrize("arch, cache, expected", [("gfx942", "wb", r"global_store_dwordx4 \S+, \S+, \S+$"), ("gfx942", "cs", r"global_store_dwordx4 .* nt$"),
                                                   ("gfx942", "wt", r"global_store_dwordx4 .* sc0 sc1"),
                                                   ("gfx1201", "cs", r"global_store_b128 .* th:TH_STORE_NT")])
def test_store_hints(arch, cache, expected):
    text = copy_kernel(arch, "vector<4xf32>", predicated=False, store_cache=cache).assembly()
    assert re.search(expected, re.sub(r"\s*;.*", "", text), re.M), text


ATOMICS = [("add", "i32", np.int32), ("add", "i64", np.int64), ("max", "i32", np.int32), ("umax", "i32", np.uint32),
           ("min", "i64", np.int64), ("umin", "i64", np.uint64), ("and", "i32", np.int32), ("or", "i32", np.int32),
           ("xor", "i64", np.int64), ("xchg", "i32", np.int32), ("xchg", "f32", np.float32), ("fadd", "f32", np.float32),
           ("fadd", "f64", np.float64), ("fadd", "f16", np.float16)]


@pytest.mark.parametrize("op, text, dtype", ATOMICS)
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_atomics(arch, op, text, dtype):
    def body(b, h, args):
        target, values, old, n = args
        tid, t = h.thread_id(b), ir.Type.parse(text)
        v = b.load(b.gep(values, tid, t), t)
        got = h.atomic_rmw(b, op, b.gep(target, b.and_(tid, b.i32(3)), t), v, b.icmp("slt", tid, n), "acq_rel", "gpu")
        b.store(got, b.gep(old, tid, t))

    kernel = Kernel(arch, [P1, P1, P1, "i32"], body)
    rng, lanes = np.random.default_rng(), wave_size(arch)
    values, target = rng.integers(0, 50, lanes).astype(dtype), rng.integers(0, 50, 4).astype(dtype)
    start, old = target.copy(), np.full(lanes, 99).astype(dtype)
    kernel.run(target, values, old, 30)
    f = {"add": np.add, "fadd": np.add, "max": np.maximum, "umax": np.maximum, "min": np.minimum, "umin": np.minimum,
         "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "xchg": lambda a, b: b}[op]
    for t in range(30):
        assert old[t] == start[t & 3]
        start[t & 3] = f(start[t & 3], values[t])
    np.testing.assert_array_equal(target, start)
    assert (old[30:] == 0).all()
    assert "atomic" in kernel.assembly()


@pytest.mark.parametrize("text, dtype", [("i32", np.int32), ("i64", np.int64), ("f32", np.float32)])
def test_compare_and_swap(text, dtype):
    def body(b, h, args):
        tid, t = h.thread_id(b), ir.Type.parse(text)
        p = b.gep(args[0], b.lshr(tid, b.i32(1)), t)
        expected, new = (b.load(b.gep(a, tid, t), t) for a in args[1:3])
        b.store(h.atomic_cas(b, p, expected, new, None, "relaxed", "sys"), b.gep(args[3], tid, t))

    kernel = Kernel("gfx1100", [P1] * 4, body)
    memory, expected, new, old = (np.zeros(n, dtype) for n in (16, 32, 32, 32))
    expected[16:] = 5
    new[:] = np.arange(32) + 1
    kernel.run(memory, expected, new, old)
    assert memory.tolist() == [2 * i + 1 for i in range(8)] + [0] * 8
    assert old.tolist() == [v for i in range(8) for v in (0, 2 * i + 1)] + [0] * 16
    assert "atomic_cmpswap" in kernel.assembly()


def test_atomics_of_bytes_are_refused():
    with pytest.raises(UnsupportedOnTargetError, match="gfx942 has 32- and 64-bit atomics"):
        Kernel("gfx942", [P1], lambda b, h, args: h.atomic_rmw(b, "add", args[0], b.i8(1), None, "relaxed", "gpu"))


def fence_kernel(arch, full):
    def body(b, h, args):
        smem, tid = b.address_of("global_smem", 3), h.thread_id(b)
        b.store(b.load(b.gep(args[0], tid, b.t_i32), b.t_i32), b.gep(smem, tid, b.t_i32))
        b.store(tid, b.gep(args[1], tid, b.t_i32))
        (h.full_barrier if full else h.barrier)(b)
        b.store(b.load(b.gep(smem, b.xor(tid, b.i32(1)), b.t_i32), b.t_i32), b.gep(args[0], tid, b.t_i32))

    return Kernel(arch, [P1, P1], body, num_warps=4, shared=1024)


def test_barrier_of_shared_memory_leaves_global_memory_alone():
    """On RDNA a full barrier waits for the stores and drops what the first cache holds; one for shared memory does neither."""
    for full in (False, True):
        text = fence_kernel("gfx1100", full).assembly()
        assert ("buffer_gl0_inv" in text) == full and ("s_waitcnt_vscnt" in text) == full
        assert text.count("s_barrier") == 1
    assert "s_barrier_signal" in fence_kernel("gfx1201", False).assembly()


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"])
def test_a_loop_waits_for_its_reads_before_the_barrier(arch):
    """The reads of one pass must be done before others write in the next one. LLVM 22 loses the fence's wait where the first pass has none to wait for."""
    def body(b, h, args):
        smem, tid = b.address_of("global_smem", 3), h.thread_id(b)
        first = b.load(b.gep(args[0], tid, b.t_i32), b.t_i32)
        count = b.load(args[1], b.t_i32)
        head = b.block([b.t_i32, b.t_i32])
        done = b.block([b.t_i32], after=head)
        b.br(head, [b.i32(0), first])
        b.set_block(head)
        i, value = head.arguments
        h.barrier(b)
        b.store(value, b.gep(smem, tid, b.t_i32))
        h.barrier(b)
        read = b.load(b.gep(smem, b.xor(tid, b.i32(64)), b.t_i32), b.t_i32)
        after = b.add(i, b.i32(1))
        b.cond_br(b.icmp("slt", after, count), head, done, [after, read], [read])
        b.set_block(done)
        b.store(done.arguments[0], b.gep(args[0], tid, b.t_i32))

    lines = [line.split(";")[0].split("#")[0].strip() for line in Kernel(arch, [P1, P1], body, num_warps=4, shared=1024).assembly().splitlines()]
    ends = [i for i, line in enumerate(lines) if line in ("s_barrier", "s_barrier_signal -1")]
    assert len(ends) == 2
    for end in ends:
        before = [line for line in lines[:end] if line.startswith(("s_wait", "ds_")) and "alu" not in line]
        assert "lgkmcnt(0)" in before[-1] or before[-1] == "s_wait_dscnt 0x0", before


def test_the_launch_bounds_reach_the_code_object():
    kernel = Kernel("gfx942", [P1], lambda b, h, args: None, num_warps=4, waves_per_eu=2)
    assert '"amdgpu-waves-per-eu"="2"' in kernel.llvm_ir and '"amdgpu-flat-work-group-size"="256,256"' in kernel.llvm_ir
    text = kernel.assembly()
    assert ".max_flat_workgroup_size: 256" in text and ".uniform_work_group_size: 1" in text
