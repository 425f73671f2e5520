"""The SIMT executor against numpy, and the faults that it must report."""

import re

import numpy as np
import pytest

from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.dialects.simt import SimtError, SimtExecutor
from tilewright.dialects.simt.decode import reverse_post_order
from tilewright.dialects.simt.values import VType, bf16_to_f32, f32_to_bf16, from_float

SEMANTICS = {
    "llvm.test.tid": lambda info: lambda m: m.thread_ids,
    "llvm.test.pid": lambda info: lambda m: np.full(m.num_threads, m.program_ids[0], np.uint32),
    "llvm.test.barrier": lambda info: lambda m: m.barrier(),
    "llvm.test.copy": lambda info: lambda m, dst, src: m.async_copy(dst, m.load_bytes(src, 4)),
    "llvm.test.commit": lambda info: lambda m: m.async_commit(),
    "llvm.test.wait": lambda info: lambda m, n: m.async_wait(int(n[0])),
    re.compile(r"^add\.u32 \$0"): lambda info: lambda m, a, b: a + b,
}
SMEM = "llvm.mlir.global external @global_smem() {addr_space = 3 : i32, alignment = 16 : i64} : !llvm.array<0 x i8>\n"
TID = '%tid = llvm.call_intrinsic "llvm.test.tid"() : () -> i32\n'


def build(body: str, signature: str, threads: int = 64, shared: int = 1024, extra: str = "", **options) -> SimtExecutor:
    text = f"module {{ {SMEM} {extra} llvm.func @k({signature}) {{ {TID} {body} }} }}"
    with mlir_context():
        return SimtExecutor(ir.Module.parse(text), "k", threads, 32, shared, SEMANTICS, **options)


def test_vector_add_with_mask_and_grid():
    x, y = np.arange(200, dtype=np.float32), np.random.default_rng(0).random(200).astype(np.float32)
    out = np.full(200, np.nan, np.float32)
    ex = build("""
      %pid = llvm.call_intrinsic "llvm.test.pid"() : () -> i32
      %c64 = llvm.mlir.constant(64 : i32) : i32
      %b = llvm.mul %pid, %c64 : i32
      %i = llvm.add %b, %tid : i32
      %in = llvm.icmp "slt" %i, %n : i32
      llvm.cond_br %in, ^do, ^end
    ^do:
      %px = llvm.getelementptr %x[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
      %py = llvm.getelementptr %y[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
      %po = llvm.getelementptr %o[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
      %a = llvm.load %px {alignment = 4 : i64} : !llvm.ptr<1> -> f32
      %c = llvm.load %py {alignment = 4 : i64} : !llvm.ptr<1> -> f32
      %s = llvm.fadd %a, %c : f32
      llvm.store %s, %po {alignment = 4 : i64} : f32, !llvm.ptr<1>
      llvm.br ^end
    ^end:
      llvm.return""", "%x: !llvm.ptr<1>, %y: !llvm.ptr<1>, %o: !llvm.ptr<1>, %n: i32")
    ex.run((4,), [x, y, out, 199])
    np.testing.assert_array_equal(out[:199], x[:199] + y[:199])
    assert np.isnan(out[199])
    with pytest.raises(SimtError, match=r"load out of bounds.*800 bytes and this starts at byte 800.*llvm.load at loc"):
        ex.run((4,), [x, y, out, 201])


def loop(barrier_inside: bool) -> str:
    """out[t] = sum of i for i < t: threads leave the loop at different times."""
    barrier = 'llvm.call_intrinsic "llvm.test.barrier"() : () -> ()\n'
    return f"""
      %c0 = llvm.mlir.constant(0 : i32) : i32
      %c1 = llvm.mlir.constant(1 : i32) : i32
      llvm.br ^head(%c0, %c0 : i32, i32)
    ^head(%i: i32, %acc: i32):
      %more = llvm.icmp "slt" %i, %tid : i32
      %twice = llvm.add %acc, %acc : i32
      llvm.cond_br %more, ^body, ^exit
    ^body:
      {barrier if barrier_inside else ""}
      %acc2 = llvm.add %acc, %i : i32
      %i2 = llvm.add %i, %c1 : i32
      llvm.br ^head(%i2, %acc2 : i32, i32)
    ^exit:
      {barrier}
      %p = llvm.getelementptr %o[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.store %twice, %p {{alignment = 4 : i64}} : i32, !llvm.ptr<1>
      llvm.return"""


def test_divergent_loop_reconverges_and_keeps_each_threads_values():
    out = np.zeros(64, np.int32)
    build(loop(False), "%o: !llvm.ptr<1>").run((1,), [out])
    t = np.arange(64)
    np.testing.assert_array_equal(out, t * (t - 1))


def test_divergent_barrier_is_an_error():
    with pytest.raises(SimtError, match="barrier reached by 63 of 64 threads; the first missing is thread 0"):
        build(loop(True), "%o: !llvm.ptr<1>").run((1,), [np.zeros(64, np.int32)])


def test_a_grid_is_not_listed_before_it_runs():
    with pytest.raises(SimtError, match="barrier reached by 63 of 64"):  # the first program's; 2^62 programs fit no memory
        build(loop(True), "%o: !llvm.ptr<1>").run((1 << 62,), [np.zeros(64, np.int32)])


def exchange(barrier: bool) -> str:
    """out[t] = value that thread 63 - t stored."""
    return f"""
      %base = llvm.mlir.addressof @global_smem : !llvm.ptr<3>
      %p = llvm.getelementptr %base[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
      llvm.store %tid, %p {{alignment = 4 : i64}} : i32, !llvm.ptr<3>
      {'llvm.call_intrinsic "llvm.test.barrier"() : () -> ()' if barrier else ''}
      %c = llvm.mlir.constant(63 : i32) : i32
      %j = llvm.sub %c, %tid : i32
      %q = llvm.getelementptr %base[%j] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
      %v = llvm.load %q {{alignment = 4 : i64}} : !llvm.ptr<3> -> i32
      %o1 = llvm.getelementptr %o[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.store %v, %o1 {{alignment = 4 : i64}} : i32, !llvm.ptr<1>
      llvm.return"""


def test_shared_exchange_and_race():
    out = np.zeros(64, np.int32)
    build(exchange(True), "%o: !llvm.ptr<1>").run((2,), [out])
    np.testing.assert_array_equal(out, 63 - np.arange(64))
    with pytest.raises(SimtError, match="race: read of byte .* after a write by warp"):
        build(exchange(False), "%o: !llvm.ptr<1>").run((1,), [out])
    # Within one warp there is no race.
    with pytest.raises(SimtError, match="shared load out of bounds"):
        build(exchange(False), "%o: !llvm.ptr<1>", threads=32, shared=128).run((1,), [out])


def test_write_after_read_race_and_uninitialised_read():
    body = """
      %base = llvm.mlir.addressof @global_smem : !llvm.ptr<3>
      %v = llvm.load %base {alignment = 4 : i64} : !llvm.ptr<3> -> i32
      %c = llvm.mlir.constant(40 : i32) : i32
      %last = llvm.icmp "eq" %tid, %c : i32
      llvm.cond_br %last, ^w, ^e
    ^w:
      llvm.store %tid, %base {alignment = 4 : i64} : i32, !llvm.ptr<3>
      llvm.br ^e
    ^e:
      llvm.return"""
    with pytest.raises(SimtError, match="race: write of byte 0 by warp 1 after a read by warp 0"):
        build(body, "").run((1,), [])
    with pytest.raises(SimtError, match="byte 0, which nothing has written"):
        build(body, "", check_uninitialised=True).run((1,), [])
    build(body, "", check_races=False).run((1,), [])


@pytest.mark.parametrize("wait", ["none", "late", "right"])
def test_async_copy_lands_at_the_wait(wait):
    waits = {"none": "", "late": 'llvm.call_intrinsic "llvm.test.wait"(%c1) : (i32) -> ()',
             "right": 'llvm.call_intrinsic "llvm.test.wait"(%c0) : (i32) -> ()'}[wait]
    ex = build(f"""
      %c0 = llvm.mlir.constant(0 : i32) : i32
      %c1 = llvm.mlir.constant(1 : i32) : i32
      %base = llvm.mlir.addressof @global_smem : !llvm.ptr<3>
      %p = llvm.getelementptr %base[%tid] : (!llvm.ptr<3>, i32) -> !llvm.ptr<3>, i32
      %s = llvm.getelementptr %x[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.call_intrinsic "llvm.test.copy"(%p, %s) : (!llvm.ptr<3>, !llvm.ptr<1>) -> ()
      llvm.call_intrinsic "llvm.test.commit"() : () -> ()
      {waits}
      %v = llvm.load %p {{alignment = 4 : i64}} : !llvm.ptr<3> -> i32
      %o1 = llvm.getelementptr %o[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.store %v, %o1 {{alignment = 4 : i64}} : i32, !llvm.ptr<1>
      llvm.return""", "%x: !llvm.ptr<1>, %o: !llvm.ptr<1>")
    x, out = np.arange(64, dtype=np.int32) * 7, np.zeros(64, np.int32)
    if wait == "right":
        ex.run((1,), [x, out])
        np.testing.assert_array_equal(out, x)
    else:
        with pytest.raises(SimtError, match="asynchronous copy in flight writes: a wait is missing"):
            ex.run((1,), [x, out])


def unary(op: str, source: str, to: str, threads: int = 64) -> SimtExecutor:
    return build(f"""
      %p = llvm.getelementptr %x[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, {source}
      %a = llvm.load %p : !llvm.ptr<1> -> {source}
      %r = {op}
      %q = llvm.getelementptr %o[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, {to}
      llvm.store %r, %q : {to}, !llvm.ptr<1>
      llvm.return""", "%x: !llvm.ptr<1>, %o: !llvm.ptr<1>", threads)


@pytest.mark.parametrize("op, source, to, reference", [
    ("llvm.sdiv %a, %tid : i32", "i32", "i32", lambda a, t: np.trunc(a / np.maximum(t, 1)) * (t > 0)),
    ("llvm.ashr %a, %tid : i32", "i32", "i32", lambda a, t: a.astype(np.int64) >> np.minimum(t, 31)),
    ("llvm.sext %a : i16 to i64", "i16", "i64", lambda a, t: a),
    ("llvm.sitofp %a : i32 to f32", "i32", "f32", lambda a, t: a.astype(np.float32)),
    ('"llvm.intr.abs"(%a) <{is_int_min_poison = false}> : (i32) -> i32', "i32", "i32", lambda a, t: np.abs(a)),
    ('"llvm.intr.ctlz"(%a) <{is_zero_poison = false}> : (i32) -> i32', "i32", "i32",
     lambda a, t: np.array([32 - (int(v) & 0xFFFFFFFF).bit_length() for v in a])),
    ("llvm.intr.ctpop(%a) : (i32) -> i32", "i32", "i32", lambda a, t: np.array([bin(int(v) & 0xFFFFFFFF).count("1") for v in a])),
    ("llvm.intr.smax(%a, %tid) : (i32, i32) -> i32", "i32", "i32", np.maximum),
    ("llvm.intr.umax(%a, %tid) : (i32, i32) -> i32", "i32", "i32",
     lambda a, t: np.maximum(a.astype(np.uint32), t.astype(np.uint32)).astype(np.int32)),
])
def test_integer_ops(op, source, to, reference):
    kind = {"i16": np.int16, "i32": np.int32, "i64": np.int64, "f32": np.float32}
    x = np.random.default_rng(1).integers(-30000, 30000, 64).astype(kind[source])
    x[:3] = [0, -1, 1]
    out = np.zeros(64, kind[to])
    unary(op, source, to).run((1,), [x, out])
    np.testing.assert_array_equal(out, reference(x, np.arange(64)))


def test_float_ops_and_bf16():
    rng = np.random.default_rng(2)
    x = (rng.standard_normal(64) * 100).astype(np.float32)
    out = np.zeros(64, np.float32)
    unary("llvm.intr.maximum(%a, %a) : (f32, f32) -> f32", "f32", "f32").run((1,), [x, out])
    np.testing.assert_array_equal(out, x)
    bits = np.zeros(64, np.uint16)
    unary("llvm.fptrunc %a : f32 to bf16", "f32", "bf16").run((1,), [x, bits])
    assert (np.abs(bf16_to_f32(bits) - x) <= np.abs(x) * 2.0**-8).all()
    doubled = np.zeros(64, np.uint16)
    unary("llvm.fadd %a, %a : bf16", "bf16", "bf16").run((1,), [bits, doubled])
    np.testing.assert_array_equal(bf16_to_f32(doubled), 2 * bf16_to_f32(bits))
    integers = np.zeros(64, np.int32)
    x[:4] = [np.nan, 3e9, -3e9, -2.5]
    unary("llvm.fptosi %a : f32 to i32", "f32", "i32").run((1,), [x, integers])
    assert integers[:4].tolist() == [0, 2**31 - 1, -2**31, -2]


def test_f64_to_bf16_rounds_once():
    # 1 + 2^-8 is a tie (to even: 1); a bit above it must go up, and f32 would lose that bit.
    assert bf16_to_f32(from_float(np.array([1 + 2.0**-8, 1 + 2.0**-8 + 2.0**-40]), VType("bf16", 16))).tolist() == [1.0, 1 + 2.0**-7]
    assert f32_to_bf16(np.array([np.nan, np.inf], np.float32)).tolist() == [0x7FC0, 0x7F80]


def test_vectors_structs_calls_and_inline_assembly():
    helper = """llvm.func @twice(%a: i32) -> i32 {
        %c = llvm.mlir.constant(10 : i32) : i32
        %small = llvm.icmp "slt" %a, %c : i32
        llvm.cond_br %small, ^yes, ^no
      ^yes:
        %d = llvm.inline_asm "add.u32 $0, $1, $2;", "=r,r,r" %a, %a : (i32, i32) -> i32
        llvm.return %d : i32
      ^no:
        llvm.return %a : i32
      }"""
    ex = build("""
      %c0 = llvm.mlir.constant(0 : i32) : i32
      %c1 = llvm.mlir.constant(1 : i32) : i32
      %r = llvm.call @twice(%tid) : (i32) -> i32
      %v = llvm.mlir.undef : vector<2xi32>
      %v0 = llvm.insertelement %r, %v[%c0 : i32] : vector<2xi32>
      %v1 = llvm.insertelement %tid, %v0[%c1 : i32] : vector<2xi32>
      %w = llvm.bitcast %v1 : vector<2xi32> to i64
      %back = llvm.bitcast %w : i64 to vector<4xi16>
      %e = llvm.extractelement %back[%c1 : i32] : vector<4xi16>
      %s = llvm.mlir.undef : !llvm.struct<(i64, i16)>
      %s0 = llvm.insertvalue %w, %s[0] : !llvm.struct<(i64, i16)>
      %s1 = llvm.insertvalue %e, %s0[1] : !llvm.struct<(i64, i16)>
      %x = llvm.extractvalue %s1[0] : !llvm.struct<(i64, i16)>
      %p = llvm.getelementptr %o[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i64
      llvm.store %x, %p {alignment = 8 : i64} : i64, !llvm.ptr<1>
      llvm.return""", "%o: !llvm.ptr<1>", extra=helper)
    out = np.zeros(64, np.uint64)
    ex.run((1,), [out])
    t = np.arange(64, dtype=np.uint64)
    np.testing.assert_array_equal(out, np.where(t < 10, 2 * t, t) | (t << np.uint64(32)))


def test_atomics_take_turns():
    ex = build("""
      %v = llvm.atomicrmw add %o, %tid monotonic : !llvm.ptr<1>, i32
      %pid = llvm.call_intrinsic "llvm.test.pid"() : () -> i32
      %c64 = llvm.mlir.constant(64 : i32) : i32
      %b = llvm.mul %pid, %c64 : i32
      %i = llvm.add %b, %tid : i32
      %p = llvm.getelementptr %old[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.store %v, %p {alignment = 4 : i64} : i32, !llvm.ptr<1>
      llvm.return""", "%o: !llvm.ptr<1>, %old: !llvm.ptr<1>")
    total, old = np.zeros(1, np.int32), np.zeros((3, 64), np.int32)
    ex.run((3,), [total, old])
    assert total[0] == 3 * 64 * 63 // 2
    t = np.arange(64)
    np.testing.assert_array_equal(old - 2016 * np.arange(3)[:, None], np.tile(t * (t - 1) // 2, (3, 1)))


def test_misalignment_and_unknown_things_are_named():
    body = """
      %p = llvm.getelementptr %x[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
      %v = llvm.load %p {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
      llvm.return"""
    with pytest.raises(SimtError, match="misaligned global load of 16 bytes: .*not a multiple of 16"):
        build(body, "%x: !llvm.ptr<1>").run((1,), [np.zeros(128, np.float32)])
    with pytest.raises(SimtError, match="no semantics for 'llvm.nvvm.unheard.of'"):
        build('llvm.call_intrinsic "llvm.nvvm.unheard.of"() : () -> () llvm.return', "")
    with pytest.raises(SimtError, match="takes 1 arguments, 0 were given"):
        build("llvm.return", "%x: i32").run((1,), [])


def test_order_puts_loops_before_what_follows():
    # 0 → 1 (head) → 3 (exit) or 2 (body) → 1, whichever way the successors are listed
    for successors in ([[1], [3, 2], [1], []], [[1], [2, 3], [1], []]):
        assert reverse_post_order(successors) == [0, 1, 2, 3]
