"""The simulator's barriers, elections and waits of specialised warps: small kernels, and the mistakes that it must find."""

import numpy as np
import pytest
from hopper_kernels import HopperKernel, P
from hopper_texts import lower, ring_sum, ring_sum_host, ring_sum_reference

from tilewright.dialects.context import mlir_context
from tilewright.dialects.simt import SimtError, SimtExecutor
from tilewright.dialects.simt.executor import Opaque
from tilewright.targets.nvidia.simulate import parse, semantics
from tilewright.targets.nvidia.simulate_bulk import TensorMap


def run(body, types=(P,), warps=4, shared=1024, args=None, **checks):
    out = np.zeros(32 * warps, np.int32)
    kernel = HopperKernel(list(types), body, warps, shared)
    kernel.cubin()
    kernel.simulate(*([out] if args is None else args), **checks)
    return out


def put(k, out, value):
    k.b.store(value, k.word(out, k.tid), align=4)


# -------------------------------------------------------------------------------------------------- parts of a warp
def test_elect_chooses_one_lane_of_each_warp():
    def body(k, args):
        text = "{\n.reg .pred P;\nelect.sync _|P, 0xffffffff;\n@P mov.b32 $0, 1;\n}"
        put(k, args[0], k.asm(text, "=r,0", k.i(0), result=k.b.t_i32))
    out = run(body)
    assert out.reshape(4, 32).sum(axis=1).tolist() == [1] * 4


def test_setmaxnreg_is_by_whole_warp_groups_and_multiples_of_eight():
    def body(registers, threads):
        def build(k, args):
            k.b.if_then(k.b.icmp("ult", k.tid, k.i(threads)), lambda: k.asm(f"setmaxnreg.dec.sync.aligned.u32 {registers};"))
            put(k, args[0], k.tid)
        return build
    out = np.zeros(256, np.int32)
    for registers, threads in ((40, 128), (240, 256)):
        HopperKernel([P], body(registers, threads), 8).simulate(out)
    np.testing.assert_array_equal(out, np.arange(256))
    for registers, threads, message in ((44, 128, "multiple of 8"), (264, 128, "24 to 256"), (40, 64, "only some threads are active")):
        with pytest.raises(SimtError, match=message):
            HopperKernel([P], body(registers, threads), 8).simulate(out)


# ------------------------------------------------------------------------------------------------------ named barriers
def exchange(how):
    """The second 64 threads read what the first 64 wrote, with ``how(k, first)`` in between."""
    def body(k, args):
        b = k.b
        first = b.icmp("ult", k.tid, k.i(64))
        where = k.shared_pointer(b.mul(k.tid, k.i(4)))

        def write():
            b.store(b.add(k.tid, k.i(1000)), where, align=4)
            how(k, True)

        def read():
            how(k, False)
            put(k, args[0], b.load(k.shared_pointer(b.mul(b.sub(k.i(127), k.tid), k.i(4))), b.t_i32, align=4))
        b.if_then_else(first, write, read)
    return body


ORDERED = {
    "bar.sync": lambda k, first: k.asm("bar.sync 3, 128;"),
    "barrier.cta.sync": lambda k, first: k.asm("barrier.cta.sync.aligned 3, 128;"),
    "bar.arrive": lambda k, first: k.asm("bar.arrive 3, 128;" if first else "bar.sync 3, 128;"),
    "intrinsic": lambda k, first: k.b.call_intrinsic(f"llvm.nvvm.barrier.cta.{'arrive' if first else 'sync'}.aligned.count", None, [k.i(5), k.i(128)]),
    "cluster": lambda k, first: (k.asm("barrier.cluster.arrive.aligned;"), k.asm("barrier.cluster.wait.aligned;")),
}


@pytest.mark.parametrize("how", ORDERED)
def test_barriers_order_what_they_should(how):
    out = run(exchange(ORDERED[how]))
    np.testing.assert_array_equal(out[64:], 1000 + np.arange(63, -1, -1))


@pytest.mark.parametrize("how, message", [
    (lambda k, first: None, r"race: (read|write) of byte \d+ by warp \d after a (read|write) by warp"),
    (lambda k, first: k.asm("bar.sync 3, 64;"), r"race: (read|write) of byte \d+ by warp \d after a (read|write) by warp"),
    (lambda k, first: k.asm(f"bar.sync {3 if first else 4}, 128;"), r"deadlock.*\n  threads 64-127 at .*: barrier 4, at which 2 of 4 warps are\n  threads 0-63 at .*: barrier 3"),
    (lambda k, first: first and k.asm("bar.arrive 3, 128;"), r"race"),
    (lambda k, first: not first and k.asm("bar.arrive 3, 128;"), r"race"),
    (lambda k, first: k.asm(f"bar.sync 3, {128 if first else 96};"), r"barrier 3 of 128 threads, where 2 warps have arrived for one of 96"),
    (lambda k, first: k.asm("bar.sync 3, 32;"), r"2 warps arrive"),
    (lambda k, first: k.asm("bar.sync 17, 128;"), r"barriers 0 to 15"),
    (lambda k, first: k.asm("barrier.cluster.arrive.aligned;") or (first or k.asm("barrier.cluster.wait.aligned;")), None),
    (lambda k, first: first or k.asm("barrier.cluster.arrive.aligned;") or k.asm("barrier.cluster.wait.aligned;"), r"race: read of byte"),  # who has ended is not waited for
    (lambda k, first: first or k.asm("barrier.cluster.wait.aligned;"), r"barrier.cluster.wait with no arrival before it"),
    (lambda k, first: k.asm("barrier.cluster.arrive.aligned;") or first or k.asm("barrier.cluster.arrive.aligned;"), r"has not waited since"),
])
def test_barrier_mistakes(how, message):
    kernel = HopperKernel([P], exchange(how), 4, 1024)
    if message is None:  # an arrival alone is enough for those who write
        kernel.simulate(np.zeros(128, np.int32))
        return
    with pytest.raises(SimtError, match=message):  # by the order of accesses alone, whatever comes first
        kernel.simulate(np.zeros(128, np.int32), check_uninitialised=False)


def test_warps_that_name_different_barriers_in_one_instruction():
    def body(k, args):
        b = k.b
        half = b.lshr(k.tid, k.i(6))
        mine = k.shared_pointer(b.mul(k.tid, k.i(4)))
        b.store(k.tid, mine, align=4)
        b.call_intrinsic("llvm.nvvm.barrier.cta.sync.aligned.count", None, [b.add(half, k.i(2)), k.i(64)])
        # within its half every thread reads what another warp wrote
        put(k, args[0], b.load(k.shared_pointer(b.mul(b.xor(k.tid, k.i(63)), k.i(4))), b.t_i32, align=4))

    np.testing.assert_array_equal(run(body), np.arange(128) ^ 63)


def test_halves_that_take_turns():
    """Each half waits at its own barrier and arrives at the other's: what they add to one word is then in order."""
    def body(k, args, first_begins=True):
        b = k.b
        half = b.lshr(k.tid, k.i(6))
        own, other = b.add(half, k.i(2)), b.add(b.xor(half, k.i(1)), k.i(2))
        word = k.shared_pointer(0)
        k.one_thread(0, lambda: b.store(k.i(1), word, align=4))
        k.barrier()
        if first_begins:
            b.if_then(b.icmp("eq", half, k.i(1)), lambda: b.call_intrinsic("llvm.nvvm.barrier.cta.arrive.aligned.count", None, [other, k.i(128)]))

        def turn(i, values):
            b.call_intrinsic("llvm.nvvm.barrier.cta.sync.aligned.count", None, [own, k.i(128)])
            b.if_then(b.icmp("eq", b.and_(k.tid, k.i(63)), k.i(0)),
                      lambda: b.store(b.add(b.mul(b.load(word, b.t_i32, align=4), k.i(2)), half), word, align=4))
            b.call_intrinsic("llvm.nvvm.barrier.cta.arrive.aligned.count", None, [other, k.i(128)])
            return values

        k.loop(k.i(3), [], turn)
        b.if_then(b.icmp("eq", half, k.i(0)), lambda: b.call_intrinsic("llvm.nvvm.barrier.cta.sync.aligned.count", None, [own, k.i(128)]))
        k.barrier()
        put(k, args[0], b.load(word, b.t_i32, align=4))

    assert set(run(body)) == {0b1010101}
    with pytest.raises(SimtError, match="deadlock"):
        run(lambda k, args: body(k, args, first_begins=False))


def test_an_arrival_that_nobody_waits_for():
    with pytest.raises(SimtError, match="the kernel ends while barrier 3 has 2 of its 4 warps"):
        HopperKernel([P], lambda k, args: k.b.if_then(k.b.icmp("ult", k.tid, k.i(64)), lambda: k.asm("bar.arrive 3, 128;")), 4).simulate(np.zeros(128, np.int32))


def test_lanes_may_come_one_by_one_to_a_cluster_barrier_that_is_not_aligned():
    def body(aligned):
        def build(k, args):
            k.one_thread(96, lambda: k.b.store(k.i(7), k.shared_pointer(0), align=4))
            k.one_thread(96, lambda: k.wait(k.i(64), k.i(1)))
            k.asm(f"barrier.cluster.arrive{aligned};")
            k.asm(f"barrier.cluster.wait{aligned};")
            put(k, args[0], k.b.load(k.shared_pointer(0), k.b.t_i32, align=4))
        return lambda k, args: (k.init_barriers({64: 1}), build(k, args))
    assert (run(body("")) == 7).all() and (run(body(".aligned")) == 7).all()

    def alone(aligned):
        return lambda k, args: k.one_thread(96, lambda: k.asm(f"barrier.cluster.arrive{aligned};"))
    HopperKernel([P], alone(""), 4).simulate(np.zeros(128, np.int32))
    with pytest.raises(SimtError, match="arrive.aligned in a warp of which only some lanes are active"):
        HopperKernel([P], alone(".aligned"), 4).simulate(np.zeros(128, np.int32))

    def relaxed(k, args):  # orders nothing
        k.one_thread(96, lambda: k.b.store(k.i(7), k.shared_pointer(0), align=4))
        k.asm("barrier.cluster.arrive.relaxed.aligned;")
        k.asm("barrier.cluster.wait.aligned;")
        put(k, args[0], k.b.load(k.shared_pointer(0), k.b.t_i32, align=4))
    with pytest.raises(SimtError, match="race: read of byte 0"):
        HopperKernel([P], relaxed, 4, 64).simulate(np.zeros(128, np.int32))


def test_part_of_a_warp_at_a_barrier():
    with pytest.raises(SimtError, match="barrier 1 in a warp of which only some lanes are active"):
        HopperKernel([P], lambda k, args: k.one_thread(0, lambda: k.asm("bar.sync 1, 32;")), 4).simulate(np.zeros(128, np.int32))


# ---------------------------------------------------------------------------------------------------------- mbarriers
def ping_pong(mutate=()):
    """Warps 0-1 count in shared memory, warps 2-3 double what they find, in turns, ``n`` times; mbarriers 0 and 8 of 64 arrivals."""
    def body(k, args):
        b = k.b
        out, n = args
        k.init_barriers({0: 64, 8: 65 if "count" in mutate else 64})
        mine = k.shared_pointer(b.add(b.mul(b.and_(k.tid, k.i(63)), k.i(4)), k.i(64)))

        def side(first):
            def step(i, values):
                (parity,) = values
                own, other = (0, 8) if first else (8, 0)
                if not first and "wait" not in mutate:
                    k.wait(k.i(other), parity)
                if first and "first wait" not in mutate:
                    k.wait(k.i(other), b.xor(parity, k.i(1)))
                old = b.load(mine, b.t_i32, align=4) if not first else b.select(b.icmp("eq", i, k.i(0)), k.i(0), k.i(1))
                if not first:
                    b.store(b.add(old, old), mine, align=4)
                else:
                    b.store(b.add(b.mul(i, k.i(10)), old), mine, align=4)
                if "arrive" not in mutate or first:
                    k.arrive(k.i(own))
                if not first:
                    put(k, out, b.add(old, old))
                return [b.xor(parity, k.i(1))]
            k.loop(n, [k.i(0)], step)
        b.if_then_else(b.icmp("ult", k.tid, k.i(64)), lambda: side(True), lambda: side(False))
    return HopperKernel([P, "i32"], body, 4, 1024)


def test_mbarriers_take_turns():
    out = np.zeros(128, np.int32)
    ping_pong().simulate(out, 5)
    assert (out[64:] == 2 * 41).all()


@pytest.mark.parametrize("mutation, message", [
    ("wait", r"race|which nothing has written"), ("first wait", r"race: (write|read) of byte|deadlock"),
    ("arrive", r"deadlock.*\n(.*\n)?  threads 0-63 at .*the mbarrier at byte 8, parity 0: phase 0 has 0 of 64 arrivals and expects 0 more bytes"),
    ("count", r"deadlock.*\n(.*\n)*  threads 0-63 at .*phase 0 has 64 of 65 arrivals"),
])
def test_mbarrier_mistakes(mutation, message):
    with pytest.raises(SimtError, match=message):
        ping_pong((mutation,)).simulate(np.zeros(128, np.int32), 5)


@pytest.mark.parametrize("build, message", [
    (lambda k: k.arrive(k.i(8)), "where no mbarrier is initialised"),
    (lambda k: k.asm("mbarrier.init.shared::cta.b64 [$0], 1;", "r", k.i(0)), "mbarrier.inval is missing"),
    (lambda k: k.asm("mbarrier.init.shared::cta.b64 [$0], 1;", "r", k.i(12)), "not a multiple of 8"),
    (lambda k: k.b.store(k.i(1), k.shared_pointer(4), align=4), "byte 4, which is part of a barrier object"),
    (lambda k: k.wait(k.i(0), k.i(2)), "parity .* is 0 or 1, found 2"),
    (lambda k: k.expect(k.i(0), 1 << 20), "the limit is 1048575"),
    (lambda k: k.expect(k.i(0), 64), "the kernel ends while the mbarrier at byte 0 expects 64 more bytes"),
])
def test_mbarrier_misuse(build, message):
    def body(k, args):
        k.init_barriers({0: 1})
        k.one_thread(0, lambda: build(k))
    with pytest.raises(SimtError, match=message):
        HopperKernel([P], body, 4, 1024).simulate(np.zeros(128, np.int32))


def test_an_mbarrier_seen_before_the_barrier_that_follows_its_making():
    def body(k, args):
        k.one_thread(0, lambda: k.asm("mbarrier.init.shared::cta.b64 [$0], 1;", "r", k.i(0)))
        k.one_thread(64, lambda: k.arrive(k.i(0)))
    with pytest.raises(SimtError, match="race: mbarrier.arrive of byte 0 by warp 2 after a write by warp 0"):
        HopperKernel([P], body, 4, 1024).simulate(np.zeros(128, np.int32))


def test_remote_arrivals_reach_the_one_block_there_is():
    def body(rank):
        def build(k, args):
            k.init_barriers({0: 1})
            text = "{\n.reg .b32 RA;\nmapa.shared::cluster.u32 RA, $0, $1;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [RA];\n}"
            k.one_thread(96, lambda: k.asm(text, "r,r", k.i(0), k.i(rank)))
            k.wait(k.i(0), k.i(0))
            put(k, args[0], k.tid)
        return build
    np.testing.assert_array_equal(run(body(0)), np.arange(128))
    with pytest.raises(SimtError, match="mapa of block 1 of a cluster of 1"):
        HopperKernel([P], body(1), 4, 1024).simulate(np.zeros(128, np.int32))


def test_memory_of_an_invalidated_mbarrier_is_memory_again():
    def body(k, args):
        k.init_barriers({0: 1})
        k.one_thread(0, lambda: k.asm("mbarrier.inval.shared::cta.b64 [$0];", "r", k.i(0)))
        k.barrier()
        k.b.store(k.tid, k.shared_pointer(k.b.mul(k.tid, k.i(4))), align=4)
        put(k, args[0], k.b.load(k.shared_pointer(k.b.mul(k.tid, k.i(4))), k.b.t_i32, align=4))
    np.testing.assert_array_equal(run(body), np.arange(128))


def test_waits_as_they_are_written():
    """Loops of several shapes are waits; what does something else is refused when the kernel is decoded."""
    forms = ["W: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @!p bra W;",
             "{ .reg .pred p; setp.eq.u32 q, $1, 7; @q bra D; W: mbarrier.try_wait.parity.shared.b64 p, [$0+8], $1, 100; @p bra D; bra.uni W; D: }"]
    for form in forms[:1]:
        def body(k, args, form=form):
            k.init_barriers({0: 1})
            k.one_thread(96, lambda: k.arrive(k.i(0)))
            k.asm("{ .reg .pred p; " + form.replace("W", "W${:uid}") + " }", "r,r", k.i(0), k.i(0))
            put(k, args[0], k.tid)
        np.testing.assert_array_equal(run(body), np.arange(128))
    assert [n.opcode for n in parse(forms[1])] == ["setp.eq.u32", "bra", "label", "mbarrier.try_wait.parity.shared.b64", "bra", "bra.uni", "label"]
    for wrong in ("mbarrier.try_wait.parity.shared.b64 p, [$0], $1;", "W: mbarrier.try_wait.parity.shared.b64 p, [$0], $1; @p bra W;",
                  "W: mbarrier.try_wait.parity.shared.b64 p, [$0], $1; @!p bra W; mov.b32 x, 1;"):
        def body(k, args, wrong=wrong):
            k.asm(wrong, "r,r", k.i(0), k.i(0))
        with pytest.raises(SimtError, match="wait"):
            HopperKernel([P], body, 4, 64).executor()


# --------------------------------------------------------------------------------- the lowering's own pipelined kernel
def run_ring(text, n=7, rows=64, columns=64):
    a = np.random.default_rng(0).standard_normal((n * rows, columns)).astype(np.float16)
    out = np.zeros((rows, columns), np.float32)
    found = lower(text, host=ring_sum_host(rows, columns), assembled=False)
    with mlir_context():
        executor = SimtExecutor(found.llvm, "k", 32 * found.metadata["total_warps"], 32, found.metadata["shared"], semantics(), check_uninitialised=True)
    tensor_map = TensorMap(a.ctypes.data, "fp16", 2, a.shape, (columns, 1), (rows, min(columns, 64)), 128)
    executor.run((2,), [out, n, Opaque(tensor_map)], whole_process=True)
    return out, ring_sum_reference(a, n, rows)


def test_ring_sum():
    got, want = run_ring(ring_sum())
    np.testing.assert_array_equal(got, want)


def without(text, op):
    """``text`` without the line that has ``op``."""
    lines = [line for line in text.splitlines() if op not in line]
    assert len(lines) == len(text.splitlines()) - 1
    return "\n".join(lines)


@pytest.mark.parametrize("mutate, message", [
    (lambda t: without(t, '"ttng.wait_barrier"(%eb, %b)'), r"race: write of byte \d+ by an asynchronous copy of warp 4 after a (write|read)"),
    (lambda t: without(t, '"ttng.wait_barrier"(%fb, %b)'), r"race: read of byte \d+ by warp \d after a write by an asynchronous copy|which nothing has written"),
    (lambda t: t.replace("%a = %c0, %b = %c1)", "%a = %c0, %b = %c0)"), r"deadlock: all threads that are left wait.*\n.*mbarrier at byte \d+"),
    (lambda t: t.replace("%a = %c0, %b = %c0)", "%a = %c0, %b = %c1)"), r"race: read of byte|which nothing has written"),
    (lambda t: without(t, '"ttng.arrive_barrier"(%eb)'), r"deadlock: .*\n.*\n.*"),
])
def test_ring_sum_mistakes(mutate, message):
    text = ring_sum()
    changed = mutate(text)
    assert changed != text
    with pytest.raises(SimtError, match=message):
        run_ring(changed)
