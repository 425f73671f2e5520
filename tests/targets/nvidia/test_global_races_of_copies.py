"""Races in global memory of bulk copies, fences and strong accesses, in kernels by hand. (Those of whole kernels: tests/targets/test_global_races_simulated.py.)"""

import numpy as np
import pytest
from hopper_kernels import MAP, HopperKernel, P, box_image

from tilewright.dialects.simt import SimtError
from tilewright.targets.nvidia.simulate_bulk import TensorMap


def tensor_map(array):
    strides = tuple(s // array.itemsize for s in array.strides)
    return TensorMap(array.__array_interface__["data"][0], "fp16", 2, array.shape, strides, array.shape, 128)


def copy_word(k, source, target, value=None):
    """Each thread's word of ``source``, or ``value``, to ``target``."""
    b = k.b
    if value is None:
        value = b.load(k.word(source, b.sub(k.i(127), k.tid)), b.t_i32, align=4)
    b.store(value, k.word(target, k.tid), align=4)


@pytest.mark.parametrize("wait, barrier", [("cp.async.bulk.wait_group 0;", True), ("cp.async.bulk.wait_group.read 0;", True), ("cp.async.bulk.wait_group 0;", False)])
def test_who_reads_what_a_bulk_store_wrote(wait, barrier):
    def body(k, args):
        target, image, array, out = args
        k.fill(image, 2048)
        k.asm("fence.proxy.async.shared::cta;")
        k.barrier()
        k.one_thread(0, lambda: (k.store_box(target, [k.i(0), k.i(0)], k.i(0)), k.asm("cp.async.bulk.commit_group;")))
        k.asm(wait)
        if barrier:
            k.barrier()
        copy_word(k, array, out)

    array, out = np.zeros((16, 64), np.float16), np.zeros(128, np.int32)
    values = np.arange(1024).reshape(16, 64).astype(np.float16)
    kernel = HopperKernel([MAP, P, P, P], body, 4, 2048)
    given = tensor_map(array), box_image(values, 128), array, out
    if barrier and "read" not in wait:
        kernel.simulate(*given)
        np.testing.assert_array_equal(out, values.view(np.int32).reshape(-1)[:128][::-1])
        return
    with pytest.raises(SimtError, match=r"global-memory race: byte \d+ of argument 2 .*: warp \d of program \(0, 0, 0\) reads what an asynchronous store of "
                                        r"warp 0 of program \(0, 0, 0\) wrote \(cp.async.bulk.tensor.*\), with no barrier between, or an asynchronous copy"):
        kernel.simulate(*given)


@pytest.mark.parametrize("waits", [True, False])
def test_who_writes_what_a_bulk_load_reads(waits):
    def body(k, args):
        source, array = args
        k.init_barriers({0: 1})
        k.one_thread(0, lambda: (k.expect(k.i(0), 2048), k.load_box(k.i(1024), source, [k.i(0), k.i(0)], k.i(0))))
        if waits:
            k.wait(k.i(0), k.i(0))
        else:
            k.barrier()  # says that the copy has begun, not that it has ended
        copy_word(k, None, array, k.tid)
        k.wait(k.i(0), k.i(0))

    array = np.ones((16, 64), np.float16)
    kernel = HopperKernel([MAP, P], body, 4, 4096)
    if waits:
        kernel.simulate(tensor_map(array), array)
        np.testing.assert_array_equal(array.view(np.int32).reshape(-1)[:128], np.arange(128))
        return
    with pytest.raises(SimtError, match=r"warp 0 of program \(0, 0, 0\) writes what an asynchronous load of warp 0 of program \(0, 0, 0\) read"):
        kernel.simulate(tensor_map(array), array)


def test_two_programs_store_boxes_to_one_place():
    def body(k, args):
        target, images = args
        b = k.b
        program = b.call_intrinsic("llvm.nvvm.read.ptx.sreg.ctaid.x", b.t_i32, [])
        k.fill(b.gep(images, b.mul(program, k.i(2048)), b.t_i8), 2048)
        k.asm("fence.proxy.async.shared::cta;")
        k.barrier()
        k.one_thread(0, lambda: (k.store_box(target, [k.i(0), k.i(0)], k.i(0)), k.asm("cp.async.bulk.commit_group;")))
        k.asm("cp.async.bulk.wait_group 0;")

    array, image = np.zeros((16, 64), np.float16), box_image(np.ones((16, 64), np.float16), 128)
    kernel = HopperKernel([MAP, P], body, 4, 2048)
    kernel.simulate(tensor_map(array), np.concatenate([image, image]), grid=(2,))  # the same values
    assert (array == 1).all()
    with pytest.raises(SimtError, match=r"warp 0 of program \(1, 0, 0\) writes what an asynchronous store of warp 0 of program \(0, 0, 0\) wrote .*programs meet"):
        kernel.simulate(tensor_map(array), np.concatenate([image, image * 2]), grid=(2,))


ADD, EXCHANGE = "red.{}.gpu.global.add.u32 [$0], 1;", "{{\n.reg .b32 OLD;\natom.{}.gpu.global.exch.b32 OLD, [$0], 1;\n}}"
STORE, LOAD, FENCE = "st.{}.gpu.global.b32 [$0], 1;", "{{\n.reg .b32 V;\nld.{}.gpu.global.b32 V, [$0];\n}}", "fence.acq_rel.gpu;"


@pytest.mark.parametrize("tell, hear, ordered", [
    ([ADD.format("release")], [LOAD.format("acquire")], True),
    ([STORE.format("release")], [LOAD.format("acquire")], True),
    ([FENCE, EXCHANGE.format("relaxed")], [LOAD.format("relaxed"), FENCE], True),
    ([FENCE, ADD.format("relaxed")], [LOAD.format("acquire")], True),
    ([EXCHANGE.format("acq_rel")], [LOAD.format("relaxed"), FENCE], True),
    ([EXCHANGE.format("acq_rel")], [LOAD.format("relaxed")], False),
    ([EXCHANGE.format("relaxed")], [LOAD.format("acquire")], False),
    ([EXCHANGE.format("relaxed"), FENCE], [LOAD.format("acquire")], False),
    ([EXCHANGE.format("release").replace("gpu", "cta")], [LOAD.format("acquire").replace("gpu", "cta")], False),
    ([EXCHANGE.format("release")], [FENCE, LOAD.format("relaxed")], False),
    ([], [LOAD.format("acquire")], False)], ids=str)
def test_a_flag_between_programs(tell, hear, ordered):
    def body(k, args):
        b, (data, flag, out) = k.b, args
        program = b.call_intrinsic("llvm.nvvm.read.ptx.sreg.ctaid.x", b.t_i32, [])

        def first():
            copy_word(k, None, data, k.tid)
            k.barrier()
            k.one_thread(0, lambda: [k.asm(t, "l" if "$0" in t else "", *([flag] if "$0" in t else [])) for t in tell])

        def second():
            k.one_thread(0, lambda: [k.asm(t, "l" if "$0" in t else "", *([flag] if "$0" in t else [])) for t in hear])
            k.barrier()
            copy_word(k, data, out)

        b.if_then_else(b.icmp("eq", program, k.i(0)), lambda: first(), lambda: second())

    data, flag, out = np.zeros(128, np.int32), np.zeros(1, np.int32), np.zeros(128, np.int32)
    kernel = HopperKernel([P, P, P], body, 4, 256)
    if ordered:
        kernel.simulate(data, flag, out, grid=(2,))
        np.testing.assert_array_equal(out, np.arange(128)[::-1])
        return
    with pytest.raises(SimtError, match=r"warp \d of program \(1, 0, 0\) reads what warp \d of program \(0, 0, 0\) wrote .*nothing that orders them"):
        kernel.simulate(data, flag, out, grid=(2,))
