"""What happens before what in the SIMT executor, threads that wait for each other, and registers that are filled later."""

import numpy as np
import pytest
from test_simt import SEMANTICS, SMEM, TID

from tilewright.dialects._mlir import ir
from tilewright.dialects.context import mlir_context
from tilewright.dialects.simt import SimtError, SimtExecutor
from tilewright.dialects.simt.executor import Opaque
from tilewright.dialects.simt.machine import threads_text
from tilewright.dialects.simt.order import AccessLog, Order
from tilewright.dialects.simt.pending import Pending

BYTES = np.arange(4)[None]


def seen(log, order, warp):
    return not log.unseen_writes(BYTES, order.view(np.array([warp]))).any()


def unread(log, order, warp):
    return not (log.unseen_reads(BYTES, order.view(np.array([warp]))) != -1).any()


def test_a_release_is_seen_by_who_acquires_it_and_nothing_after_it():
    order = Order(3)
    log = AccessLog(4, order)
    log.log_write(BYTES, np.array([0]))
    assert seen(log, order, 0) and not seen(log, order, 1)
    clock = order.release([0])
    order.acquire([1], clock)
    assert seen(log, order, 1) and not seen(log, order, 2)
    order.acquire([2], order.release([1]))  # on from warp to warp
    assert seen(log, order, 2)
    log.log_write(BYTES, np.array([0]))
    order.acquire([1], clock)  # an old release says nothing of later writes
    assert not seen(log, order, 1)
    order.barrier()
    assert all(seen(log, order, w) for w in range(3))


def test_reads_before_writes():
    order = Order(2)
    log = AccessLog(4, order)
    log.log_read(BYTES, np.array([0]))
    assert unread(log, order, 0) and not unread(log, order, 1)
    order.barrier()
    assert unread(log, order, 1)
    log.log_read(BYTES, np.array([1]))
    log.log_read(BYTES, np.array([0]))
    assert not unread(log, order, 0) and not unread(log, order, 1)


def test_streams_and_events_are_learnt_of_one_by_one():
    order = Order(2)
    log = AccessLog(4, order)
    stream = order.stream(0, 1)
    first, second = order.stream_begin(stream), order.stream_begin(stream)
    log.log_stream_read(BYTES, stream, second)
    order.barrier()  # barriers do not end what runs on its own
    assert not unread(log, order, 0)
    order.stream_done([0], stream, first)
    assert not unread(log, order, 0)
    order.stream_done([0], stream, second)
    assert unread(log, order, 0) and not unread(log, order, 1)
    a, b = order.event(), order.event()
    log.log_event(BYTES[:, :2], a)
    log.log_event(BYTES[:, 2:], b)
    order.acquire([0], order.event_clock(a, order.release([1])))
    assert log.unseen_writes(BYTES, order.view(np.array([0]))).tolist() == [[False, False, True, True]]
    assert log.unseen_writes(BYTES, order.joint_view([0, 1])).all()
    order.restart()
    assert seen(log, order, 0) and unread(log, order, 1)


def test_a_fence_counts_for_the_writes_before_it_of_its_own_warp():
    order = Order(2)
    log = AccessLog(4, order)

    def fenced(warp):
        return not log.unfenced_writes(BYTES, order.view(np.array([warp]))).any()
    log.log_write(BYTES, np.array([0]))
    order.barrier()
    order.fence([1])
    assert not fenced(0) and not fenced(1)
    order.fence([0])
    assert fenced(0) and not fenced(1)  # warp 1 has not learnt of it
    order.barrier()
    assert fenced(1)
    log.log_write(BYTES, np.array([0]))
    assert not fenced(0)


def test_warps_of_a_group_of_blocks():
    order = Order(4, 2)
    assert [order.name(w) for w in (1, 3)] == ["warp 1 of the group's block 0", "warp 1 of the group's block 1"] and Order(4).name(3) == "warp 3"
    log = AccessLog(4, order, range(2, 4))  # of the second block's memory
    log.log_read(BYTES, np.array([2]))
    log.log_write(BYTES, np.array([3]))
    for barrier in ([0, 1], [2, 3]):  # each block's own says nothing to the other
        order.barrier(barrier)
        assert not seen(log, order, 0) and not unread(log, order, 0)
    assert seen(log, order, 2) and unread(log, order, 3)
    order.acquire([0], order.release([3]))
    assert seen(log, order, 0) and unread(log, order, 0) and not seen(log, order, 1)
    assert not log.unseen_writes(BYTES, order.view(np.array([0]), slice(2, 4))).any()
    event = order.event()
    log.log_event(BYTES, event)
    assert not seen(log, order, 2)
    order.acquire([2], order.event_clock(event, order.nothing()))
    assert seen(log, order, 2) and not seen(log, order, 3)


# ------------------------------------------------------------------------------------------------- threads that wait
def turnstile(info):
    """Threads go on when the word at their address is not 0, and know what all did until then."""
    def run(m, address):
        m.waits_for = "a word"
        order = m.shared.order
        passed = m.mask.copy()
        passed[m.mask] = m.memory.load(address[m.mask], 4).any(axis=1)
        order.acquire(m.active_warps(passed), order.release(range(order.warps)))
        return passed
    run.waits = True
    return run


def waiting(signature, body, threads=64):
    with mlir_context():
        module = ir.Module.parse(f"module {{ {SMEM} llvm.func @k({signature}) {{ {TID} {body} }} }}")
        return SimtExecutor(module, "k", threads, 32, 64, {**SEMANTICS, "llvm.test.turnstile": turnstile})


BODY = """
      %c32 = llvm.mlir.constant(32 : i32) : i32
      %c1 = llvm.mlir.constant(1 : i32) : i32
      %c5 = llvm.mlir.constant(5 : i32) : i32
      %x = llvm.mul %tid, %c5 : i32
      %first = llvm.icmp "ult" %tid, %c32 : i32
      llvm.cond_br %first, ^wait, ^go
    ^wait:
      %y = llvm.add %x, %c1 : i32
      llvm.call_intrinsic "llvm.test.turnstile"(%flag) : (!llvm.ptr<1>) -> ()
      %z = llvm.add %y, %y : i32
      %p = llvm.getelementptr %o[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.store %z, %p {alignment = 4 : i64} : i32, !llvm.ptr<1>
      llvm.br ^end
    ^go:
      %q = llvm.getelementptr %o[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.store %x, %q {alignment = 4 : i64} : i32, !llvm.ptr<1>
      STORE
      llvm.br ^end
    ^end:
      llvm.return"""


def test_threads_that_wait_let_others_go_on_and_keep_their_values():
    executor = waiting("%o: !llvm.ptr<1>, %flag: !llvm.ptr<1>",
                       BODY.replace("STORE", "llvm.store %c1, %flag {alignment = 4 : i64} : i32, !llvm.ptr<1>"))
    out, flag, t = np.zeros(64, np.int32), np.zeros(1, np.int32), np.arange(64)
    executor.run((1,), [out, flag])
    np.testing.assert_array_equal(out, np.where(t < 32, 2 * (5 * t + 1), 5 * t))


def test_a_deadlock_names_the_threads_the_line_and_what_they_wait_for():
    executor = waiting("%o: !llvm.ptr<1>, %flag: !llvm.ptr<1>", BODY.replace("STORE", ""))
    with pytest.raises(SimtError, match=r"deadlock: all threads that are left wait .*\n  threads 0-31 at loc\(.*\): a word"):
        executor.run((1,), [np.zeros(64, np.int32), np.zeros(1, np.int32)])


def test_threads_text():
    mask = np.zeros(64, bool)
    mask[[0, 1, 2, 7, 40, 41]] = True
    assert threads_text(mask) == "threads 0-2, 7, 40-41"


def test_opaque_arguments_have_addresses_and_no_memory():
    executor = waiting("%o: !llvm.ptr<1>, %x: !llvm.ptr", """
      %a = llvm.ptrtoint %x : !llvm.ptr to i64
      %p = llvm.getelementptr %o[%tid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i64
      llvm.store %a, %p {alignment = 8 : i64} : i64, !llvm.ptr<1>
      llvm.return""")
    out, thing = np.zeros(64, np.uint64), object()
    executor.run((1,), [out, Opaque(thing)])
    assert executor.machine.objects[int(out[5])] is thing
    bad = waiting("%o: !llvm.ptr<1>, %x: !llvm.ptr", "%v = llvm.load %x {alignment = 4 : i64} : !llvm.ptr -> i32\n llvm.return")
    with pytest.raises(SimtError, match="load out of bounds"):
        bad.run((1,), [out, Opaque(thing)])


# ---------------------------------------------------------------------------------------------------- late registers
def test_pending_registers_move_and_merge_and_are_not_read():
    class M:
        mask = np.ones(4, bool)
    half = np.array([True, True, False, False])
    late = Pending(M, np.full(4, np.nan, np.float32), [(half, "a product")])
    with pytest.raises(SimtError, match="a register is read while a product is to write it"):
        late + 1
    with pytest.raises(SimtError, match="a register is read"):
        np.where(half, late, 0)
    M.mask = ~half  # threads that have their value may read it
    assert np.isnan((late + 1)[3])
    assert isinstance(late.resolve(lambda ticket: None), Pending)
    np.testing.assert_array_equal(late.resolve(lambda ticket: np.arange(4, dtype=np.float32))[:2], [0, 1])


# -------------------------------------------------------------------------------------------------- groups of blocks
MEET = """
      %pid = llvm.call_intrinsic "llvm.test.pid"() : () -> i32
      %c1 = llvm.mlir.constant(1 : i32) : i32
      %c10 = llvm.mlir.constant(10 : i32) : i32
      %one = llvm.mlir.constant(1 : i64) : i64
      %own = llvm.alloca %one x i32 : (i64) -> !llvm.ptr
      %mine = llvm.getelementptr %flags[%pid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      %n = llvm.add %pid, %c10 : i32
      llvm.store %n, %own {alignment = 4 : i64} : i32, !llvm.ptr
      llvm.store %n, %mine {alignment = 4 : i64} : i32, !llvm.ptr<1>
      %other = llvm.xor %pid, %c1 : i32
      %theirs = llvm.getelementptr %flags[%other] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.call_intrinsic "llvm.test.turnstile"(%theirs) : (!llvm.ptr<1>) -> ()
      %got = llvm.load %theirs {alignment = 4 : i64} : !llvm.ptr<1> -> i32
      %kept = llvm.load %own {alignment = 4 : i64} : !llvm.ptr -> i32
      %sum = llvm.mul %got, %kept : i32
      %p = llvm.getelementptr %o[%pid] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, i32
      llvm.store %sum, %p {alignment = 4 : i64} : i32, !llvm.ptr<1>
      llvm.return
"""


def meeting(group):
    with mlir_context():
        module = ir.Module.parse(f"module {{ {SMEM} llvm.func @k(%o: !llvm.ptr<1>, %flags: !llvm.ptr<1>) {{ {TID} {MEET} }} }}")
        return SimtExecutor(module, "k", 32, 32, 64, {**SEMANTICS, "llvm.test.turnstile": turnstile}, group=group)


def test_blocks_of_a_group_wait_for_each_other():
    out, flags = np.zeros(4, np.int32), np.zeros(4, np.int32)
    meeting(2).run((4,), [out, flags])
    assert flags.tolist() == [10, 11, 12, 13] and out.tolist() == [110, 110, 156, 156]
    with pytest.raises(SimtError, match=r"deadlock: .*\[program \(0, 0, 0\), k\]\n  threads 0-31 at .*: a word$"):
        meeting(1).run((4,), [out, np.zeros(4, np.int32)])
    with pytest.raises(SimtError, match=r"blocks run in groups of 2, and the last of the grid \(3, 1, 1\) has 1"):
        meeting(2).run((3,), [out, np.zeros(4, np.int32)])
