"""The simulator's meaning of Hopper's PTX, instruction by instruction against numpy, and the mistakes that it must find."""

import re

import numpy as np
import pytest
from hopper_kernels import MAP, HopperKernel, P, box_image, descriptor, put_matrix

from tilewright.dialects.simt import SimtError
from tilewright.dialects.simt.values import bf16_to_f32, f32_to_bf16
from tilewright.targets.nvidia.simulate_bulk import TensorMap
from tilewright.targets.nvidia.simulate_hopper import descriptor_bytes


# ------------------------------------------------------------------------------------------------------------ wgmma
def encode_values(x, t):
    """float values → (raw elements, the values that they stand for)."""
    if t == "f16":
        return x.astype(np.float16), x.astype(np.float16).astype(np.float64)
    if t == "bf16":
        raw = f32_to_bf16(x.astype(np.float32))
        return raw, bf16_to_f32(raw).astype(np.float64)
    if t == "tf32":
        raw = x.astype(np.float32)
        return raw, (raw.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    if t == "s8":
        raw = np.clip(np.round(x * 40), -128, 127).astype(np.int8)
        return raw, raw.astype(np.float64)
    # fp8 values that are exact: small multiples of a quarter
    steps = np.clip(np.round(x * 2), -7, 7)
    code = {0.0: 0}
    for n in range(1, 8):
        exponent = n.bit_length() - 1
        fraction = n / 2**exponent - 1
        bits, bias = (3, 7) if t == "e4m3" else (2, 15)
        code[float(n)] = (exponent + bias) << bits | int(fraction * 2**bits)
        if fraction * 2**bits != int(fraction * 2**bits):
            code[float(n)] = code[float(n - 1)]
    exact = {c: v for v, c in reversed(code.items())}
    raw = np.vectorize(lambda s: code[abs(s)] | (0x80 if s < 0 else 0))(steps).astype(np.uint8)
    return raw, np.vectorize(lambda c: exact[c & 0x7F] * (-1 if c & 0x80 else 1))(raw).astype(np.float64)


def wgmma(shape, d_type, types, descriptors, flags, size, a_registers=False, accumulate=True, groups=1, mutate=()):
    """D = A·B (+ C): shared memory is filled by ordinary stores from argument 0. Arguments: image, C, D, words of A; C and D are
    [threads, registers] of 32 bits."""
    n = int(re.search(r"n(\d+)", shape)[1])
    registers = n // 4 if d_type == "f16" else n // 2

    def body(k, args):
        b = k.b
        image, c, d, a_words = args
        k.fill(image, size)
        if "fence" not in mutate:
            k.asm("fence.proxy.async.shared::cta;")
        k.barrier()
        kind, letter = (b.t_f32, "f") if d_type == "f32" else (b.t_i32, "r")
        base = b.mul(k.tid, k.i(registers))
        old = [b.load(k.word(c, b.add(base, k.i(i))), kind, align=4) for i in range(registers)]
        out = ", ".join(f"${i}" for i in range(registers))
        inputs = []
        if a_registers:
            words = b.mul(k.tid, k.i(4))
            inputs += [b.load(k.word(a_words, b.add(words, k.i(i))), b.t_i32, align=4) for i in range(4)]
            a_text, constraints = "{" + ", ".join(f"${registers + i}" for i in range(4)) + "}", ["r"] * 4
        else:
            inputs.append(b.i64(descriptors[0] if descriptors[0] < 1 << 63 else descriptors[0] - (1 << 64)))
            a_text, constraints = f"${registers}", ["l"]
        at = registers + len(inputs)
        inputs.append(b.i64(descriptors[1] if descriptors[1] < 1 << 63 else descriptors[1] - (1 << 64)))
        inputs.append(b.i32(int(accumulate)))
        fence = "" if "wgmma.fence" in mutate else "wgmma.fence.sync.aligned;\n"
        tail = "".join(f", {f}" for f in flags)
        text = (f"{{\n.reg .pred p;\nsetp.ne.b32 p, ${at + 1}, 0;\n{fence}wgmma.mma_async.sync.aligned.{shape}.{d_type}.{'.'.join(types)} "
                f"{{{out}}}, {a_text}, ${at}, p{tail};\nwgmma.commit_group.sync.aligned;\n}}")
        struct = b.struct([kind] * registers)
        ties = [str(i) for i in range(registers)]
        made = k.asm(text, ",".join([f"={letter}"] * registers + constraints + ["l", "r"] + ties), *inputs, *old, result=struct)
        values = b.unpack_struct(made)
        if "overwrite" in mutate:
            b.store(b.i32(0), k.shared_pointer(b.mul(k.tid, k.i(16))), align=4)
        if "wait" not in mutate:
            pending = 1 if "pending" in mutate else 0
            waited = k.asm(f"wgmma.wait_group.sync.aligned {pending};", ",".join([f"={letter}"] * registers + ties), *values, result=struct)
            values = b.unpack_struct(waited)
        for i, value in enumerate(values):
            b.store(value, k.word(d, b.add(base, k.i(i))), align=4)
        if "pending" in mutate:
            k.asm("wgmma.wait_group.sync.aligned 0;")

    return HopperKernel([P] * 4, body, 4 * groups, size)


def fragment(matrix, groups=1):
    """[64, N] → [128, N / 2] as "Register Fragments" draws D; one loop a register."""
    out = np.zeros((128, matrix.shape[1] // 2), matrix.dtype)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for i in range(out.shape[1]):
            out[thread, i] = matrix[16 * warp + lane // 4 + (8 if i % 4 >= 2 else 0), 8 * (i // 4) + 2 * (lane % 4) + i % 2]
    return out


def a_fragment(raw):
    """[64, k] raw elements → uint32[128, 4]: two halves of 8 rows, two halves of k."""
    item = raw.dtype.itemsize
    per = 4 // item
    out = np.zeros((128, 4), np.uint32)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for register in range(4):
            row = 16 * warp + lane // 4 + 8 * (register & 1)
            k = per * (lane % 4) + 4 * per * (register >> 1)
            out[thread, register] = np.ascontiguousarray(raw[row, k:k + per]).view(np.uint32)[0]
    return out


# types, K, N, swizzle of A and B, A and B K-major
CASES = [
    ("f16", 16, 64, 128, 128, True, True), ("f16", 16, 32, 0, 0, True, True), ("bf16", 16, 128, 64, 32, True, True),
    ("f16", 16, 128, 128, 128, False, False), ("bf16", 16, 64, 64, 64, False, False), ("f16", 16, 32, 32, 32, False, False),
    ("f16", 16, 64, 0, 0, False, False), ("bf16", 16, 256, 128, 128, True, False), ("f16", 16, 8, 32, 0, True, True),
    ("tf32", 8, 64, 128, 128, True, True), ("tf32", 8, 24, 32, 64, True, True), ("e4m3", 32, 64, 128, 128, True, True),
    ("e5m2", 32, 32, 64, 0, True, True), ("s8", 32, 96, 128, 64, True, True), ("s8", 32, 16, 32, 32, True, True),
]


def layout(extent, k, item, width, k_major):
    """(leading, stride, bytes) of offsets that leave no gaps but are not the usual ones either."""
    if k_major and width:
        return 16, 8 * width, extent // 8 * 8 * width
    if k_major:
        stride = 128 * (k * item // 16)
        return 128, stride, stride * (extent // 8)
    if width:
        blocks = -(-extent * item // width)
        return 8 * width, 8 * width * blocks, 8 * width * blocks * (k // 8)
    stride = 128
    return 128 * (extent * item // 16), stride, 128 * (extent * item // 16) * (k // 8)


def matrices(t, k, n, seed, hot=None, b_type=None):
    rng = np.random.default_rng(seed)
    a, b = (encode_values(rng.standard_normal(shape), kind) for shape, kind in (((64, k), t), ((n, k), b_type or t)))
    if hot is not None:
        for raw, values, place in ((*a, (hot[0], hot[1])), (*b, (hot[2], hot[1]))):
            kept, value = raw[place], values[place]
            raw[:], values[:] = 0, 0
            raw[place], values[place] = kept, value
    return a, b


def run_wgmma(t, k, n, wa, wb, ka, kb, a_registers=False, seed=0, signs=(1, 1), accumulate=True, d_type=None, groups=1, other=None, mutate=(),
              hot=None, execute=True, b_type=None):
    """(D of the simulator as [groups · 128, registers], what it must be)."""
    (a_raw, a), (b_raw, b) = matrices(t, k, n, seed, hot, b_type)
    d_type = d_type or ("s32" if t == "s8" else "f32")
    item = a_raw.dtype.itemsize
    la, sa, size_a = layout(64, k, item, wa, ka)
    lb, sb, size_b = layout(n, k, item, wb, kb)
    start_b = -(-size_a // 1024) * 1024
    size = -(-(start_b + size_b) // (2048 * groups)) * 2048 * groups
    image = np.zeros(size, np.uint8)
    put_matrix(image, 0, a_raw, wa, ka, la, sa)
    put_matrix(image, start_b, b_raw, wb, kb, lb, sb)
    flags = [] if t == "s8" else list(signs)
    if item == 2:
        flags += [int(not kb)] if a_registers else [int(not ka), int(not kb)]
    mode_b = wb if other is None else other
    kernel = wgmma(f"m64n{n}k{k}", d_type, (t, b_type or t), (descriptor(0, la, sa, wa), descriptor(start_b, lb, sb, mode_b)), flags, size, a_registers,
                   accumulate, groups, mutate)
    product = a @ b.T * signs[0] * signs[1]
    rng = np.random.default_rng(seed + 1)
    if d_type == "s32":
        c = rng.integers(-2**31, 2**31, (64, n)).astype(np.int32)
        want = (c.astype(np.int64) * accumulate + product.astype(np.int64)).astype(np.int32)
    else:
        c = rng.standard_normal((64, n)).astype(np.float32)
        want = (c * accumulate + product).astype(np.float32)
    if d_type == "f16":
        c = c.astype(np.float16)
        want = (c.astype(np.float32) * accumulate + product.astype(np.float32)).astype(np.float16)
        old = np.ascontiguousarray(fragment(c)).view(np.uint32)
    else:
        old = fragment(c)
    old = np.concatenate([old] * groups)
    out = np.zeros_like(old)
    words = a_fragment(a_raw) if a_registers else np.zeros((128, 4), np.uint32)
    kernel.cubin() if execute == "assemble" else kernel.simulate(image, old, out, np.concatenate([words] * groups))
    return (out.view(np.float16) if d_type == "f16" else out), np.concatenate([fragment(want)] * groups)


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_wgmma_of_shared_memory(case):
    got, want = run_wgmma(*case)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("case", [CASES[0], CASES[5], CASES[9], CASES[11], CASES[13]], ids=lambda c: c[0])
def test_wgmma_of_registers(case):
    got, want = run_wgmma(*case, a_registers=True, seed=3)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("hot", [(0, 0, 0), (9, 5, 3), (63, 15, 63), (17, 8, 32)])
@pytest.mark.parametrize("case", [CASES[0], (*CASES[1][:2], 64, *CASES[1][3:]), CASES[3]], ids=["128", "none", "128mn"])
def test_wgmma_one_hot(case, hot):
    """One element of A and of B: one element of D, where it belongs."""
    got, want = run_wgmma(*case, hot=hot, accumulate=False)
    assert np.count_nonzero(want) == np.count_nonzero(got) == 1
    np.testing.assert_array_equal(got, want)


def test_wgmma_signs_and_scale_d_and_f16_sums():
    for signs in ((-1, 1), (1, -1), (-1, -1)):
        got, want = run_wgmma(*CASES[0], signs=signs)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    got, want = run_wgmma(*CASES[0], accumulate=False)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    got, want = run_wgmma(*CASES[0], d_type="f16")
    np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("a_type, b_type", [("e4m3", "e5m2"), ("e5m2", "e4m3")])
def test_mixed_fp8(a_type, b_type):
    got, want = run_wgmma(a_type, 32, 32, 64, 32, True, True, b_type=b_type)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_two_warp_groups():
    got, want = run_wgmma(*CASES[0], groups=2)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("case", [CASES[0], CASES[3], CASES[9], CASES[11], CASES[13]], ids=lambda c: c[0])
@pytest.mark.parametrize("a_registers", [False, True])
def test_ptxas_takes_the_tests_own_wgmma(case, a_registers):
    run_wgmma(*case, a_registers=a_registers, execute="assemble")


def test_descriptors_step_along_k_within_a_swizzle():
    """The second 16 of 64 f16 values lie 32 bytes on, whatever the row's swizzle does to them."""
    whole = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    image = np.zeros(8192, np.uint8)
    put_matrix(image, 0, whole, 128, True, 16, 1024)
    for step in range(4):
        offsets, read = descriptor_bytes(descriptor(32 * step, 16, 1024, 128), 64, 16, 2, True)
        np.testing.assert_array_equal(image.view(np.uint16)[offsets // 2], whole[:, 16 * step:16 * step + 16])
        assert len(read) == 64 * 32


@pytest.mark.parametrize("value, message", [
    (descriptor(128, 16, 1024, 128), "lies in row 1 of a swizzle's pattern"), (1 << 50, "base offset"), (1 << 55, "leaves 0"),
    (descriptor(112, 16, 1024, 128), "reach past its swizzle's 128 bytes")])
def test_descriptors_that_are_refused(value, message):
    with pytest.raises(SimtError, match=message):
        descriptor_bytes(value, 64, 16, 2, True)


@pytest.mark.parametrize("mutation, message", [
    ("fence", r"wgmma of shared byte \d+, which warp \d wrote with no proxy fence in between"),
    ("wait", r"a register is read while wgmma.* of warp group 0 .* is to write it: a wait is missing"),
    ("pending", r"a register is read while wgmma.* is to write it: a wait is missing"),
    ("wgmma.fence", r"reads registers with no wgmma.fence"),
    ("overwrite", r"race: write of byte \d+ by warp \d after a read by an asynchronous operation of warp 0"),
])
def test_wgmma_mistakes(mutation, message):
    with pytest.raises(SimtError, match=message):
        run_wgmma(*CASES[0], mutate=(mutation,))


def test_wrong_swizzle_is_a_wrong_result():
    got, want = run_wgmma("f16", 16, 64, 128, 128, True, True, other=64)
    assert not np.allclose(got, want, atol=0.1)


# -------------------------------------------------------------------------------------------------------- bulk copies
def tensor_map(array, box, swizzle=0, dtype="", **more):
    strides = tuple(s // array.itemsize for s in array.strides)
    dtype = dtype or {"f2": "fp16", "f4": "fp32", "i1": "i8", "i4": "i32"}[array.dtype.str[1:]]
    return TensorMap(array.ctypes.data, dtype, array.itemsize, array.shape, strides, tuple(box), swizzle, **more)


def copy_in(rank, box_bytes, expected=None, wait=True, parity=0, overwrite=False):
    """Thread 0 loads a box at coordinates (arguments 2 and on, outermost first) to shared byte 1024; all threads store what lies there."""
    def body(k, args):
        b = k.b
        source, out, *coords = args
        bar = k.i(0)
        k.init_barriers({0: 1})

        def issue():
            k.expect(bar, box_bytes if expected is None else expected)
            k.load_box(k.i(1024), source, coords[::-1], bar)
        k.one_thread(0, issue)
        if wait:
            k.wait(bar, k.i(parity))
        for at in range(0, box_bytes, 16 * 128):
            offset = b.add(b.mul(k.tid, k.i(16)), k.i(at))
            vector = b.vec(4, b.t_i32)
            inside = b.icmp("ult", offset, k.i(box_bytes))
            b.if_then(inside, lambda offset=offset, vector=vector: b.store(
                b.load(k.shared_pointer(b.add(offset, k.i(1024))), vector, align=16), b.gep(out, offset, b.t_i8), align=16))

    return HopperKernel([MAP, P, *["i32"] * rank], body, 4, 1024 + -(-box_bytes // 1024) * 1024)


def box_of(array, coords, box, fill):
    """The box at ``coords``; elements outside are ``fill``."""
    out = np.full(box, fill, array.dtype)
    for place in np.ndindex(*box):
        at = tuple(c + p for c, p in zip(coords, place))
        if all(0 <= x < n for x, n in zip(at, array.shape)):
            out[place] = array[at]
    return out


@pytest.mark.parametrize("shape, box, swizzle, coords, dtype", [
    ((64,), (32,), 0, (40,), "f4"), ((64,), (32,), 0, (-4,), "f4"), ((33, 64), (16, 32), 64, (20, 16), "f2"),
    ((33, 64), (8, 64), 128, (30, 32), "f2"), ((33, 64), (16, 16), 32, (-5, -8), "f2"), ((12, 48), (4, 32), 32, (3, 32), "i1"),
    ((3, 9, 32), (2, 4, 32), 128, (1, 7, 8), "f4"), ((2, 3, 5, 16), (2, 2, 3, 8), 0, (1, -1, 3, 8), "f4"),
    ((2, 2, 3, 5, 16), (1, 2, 2, 3, 8), 0, (1, -1, 1, 3, 12), "f4"), ((8, 8), (8, 8), 0, (9, 0), "f4"),
])
@pytest.mark.parametrize("nan", [False, True])
def test_bulk_load(shape, box, swizzle, coords, dtype, nan):
    if nan and dtype[0] != "f":
        return
    array = np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype)
    kernel = copy_in(len(shape), int(np.prod(box)) * array.itemsize)
    out = np.zeros(np.prod(box) * array.itemsize, np.uint8)
    kernel.simulate(tensor_map(array, box, swizzle, nan_fill=nan), out, *coords)
    want = box_of(array, coords, box, np.nan if nan else 0)
    got = np.zeros_like(out)
    image = box_image(want, swizzle)
    if nan:  # any NaN is one
        np.testing.assert_array_equal(out.view(dtype), image.view(dtype))
    else:
        np.testing.assert_array_equal(out, image)
    assert got.size == image.size


def test_ptxas_takes_the_tests_own_copies():
    for rank in (1, 2, 5):
        copy_in(rank, 1024).cubin()
    copy_out(2).cubin()
    copy_out(2, "add").cubin()


@pytest.mark.parametrize("change, message", [
    ({"expected": 1040}, r"deadlock.*\n.*threads 0-127 at .*: the mbarrier at byte 0, parity 0: phase 0 has 1 of 1 arrivals and expects 16 more bytes"),
    ({"expected": 1008}, r"deadlock.*\n.*expects -16 more bytes"),
    ({"wait": False}, r"race: read of byte 1024 by warp 0 after a write by an asynchronous copy with no barrier in between"),
    ({"parity": 1}, r"race: read of byte 1024 by warp 0 after a write by an asynchronous copy|deadlock"),
])
def test_bulk_load_mistakes(change, message):
    array = np.ones((16, 32), np.float16)
    with pytest.raises(SimtError, match=message):
        copy_in(2, 1024, **change).simulate(tensor_map(array, (16, 32), 64), np.zeros(1024, np.uint8), 0, 0)


def test_a_bulk_load_that_outlives_its_kernel():
    def body(k, args):
        k.init_barriers({0: 1})
        k.one_thread(0, lambda: (k.expect(k.i(0), 1024), k.load_box(k.i(1024), args[0], [k.i(0), k.i(0)], k.i(0))))
    with pytest.raises(SimtError, match="a bulk copy may still write shared memory: nobody has waited for it"):
        HopperKernel([MAP], body, 4, 2048).simulate(tensor_map(np.ones((16, 32), np.float16), (16, 32), 64))


def test_tensor_maps_that_the_driver_refuses():
    whole, odd, tall = (np.ones(shape, np.float16) for shape in ((16, 32), (16, 36), (300, 32)))
    for array, box, swizzle, message in ((odd[:, :32], (16, 32), 64, "multiples of 16 bytes"), (tall, (257, 32), 0, "box"),
                                         (whole, (16, 32), 32, "more than the swizzle's 32"), (whole.reshape(-1)[4:], (64,), 0, "base address")):
        with pytest.raises(SimtError, match=message):
            tensor_map(array, box, swizzle)
    with pytest.raises(SimtError, match="no tensor map"):
        copy_in(1, 64).simulate(1 << 20, np.zeros(64, np.uint8), 0)


def copy_out(rank, reduce="", drop=()):
    """All threads fill shared bytes 0 to 2047 from argument 1; thread 0 stores them as a box at the coordinates; then shared memory changes."""
    def body(k, args):
        b = k.b
        target, image, *coords = args
        k.fill(image, 2048)
        if "fence" not in drop:
            k.asm("fence.proxy.async.shared::cta;")
        if "barrier" not in drop:
            k.barrier()

        def issue():
            k.store_box(target, coords[::-1], k.i(0), reduce)
            k.asm("cp.async.bulk.commit_group;")
        k.one_thread(0, issue)
        if "wait" not in drop:
            k.asm("cp.async.bulk.wait_group.read 0;")
        if "second barrier" not in drop:
            k.barrier()
        b.store(k.i(0), k.shared_pointer(b.mul(k.tid, k.i(16))), align=4)

    return HopperKernel([MAP, P, *["i32"] * rank], body, 4, 2048)


@pytest.mark.parametrize("shape, box, swizzle, coords, dtype", [
    ((33, 64), (16, 64), 128, (20, 16), "f2"), ((33, 64), (32, 32), 64, (5, 40), "f2"), ((40, 64), (16, 32), 0, (3, 8), "f4"),
    ((3, 9, 16), (2, 16, 16), 0, (2, 2, 4), "f4")])
@pytest.mark.parametrize("reduce", ["", "add", "max"])
def test_bulk_store(shape, box, swizzle, coords, dtype, reduce):
    rng = np.random.default_rng(7)
    array = rng.standard_normal(shape).astype(dtype)
    values = rng.standard_normal(box).astype(dtype)
    want = array.copy()
    for place in np.ndindex(*box):
        at = tuple(c + p for c, p in zip(coords, place))
        if all(0 <= x < n for x, n in zip(at, shape)):
            want[at] = {"": lambda o, v: v, "add": lambda o, v: o + v, "max": max}[reduce](want[at], values[place])
    copy_out(len(shape), reduce).simulate(tensor_map(array, box, swizzle), box_image(values, swizzle), *coords)
    np.testing.assert_array_equal(array, want)


@pytest.mark.parametrize("columns, coords, message", [
    (60, (0, 0), r"a bulk store into rows of 60 elements of 2 bytes: an H200 writes the last 16 bytes whole"), (60, (0, 64), None), (56, (0, 0), None),
    (64, (0, 4), r"a bulk store that begins at element 4 of 2 bytes of a row, within 16 bytes"), (64, (-1, 0), r"a bulk store that begins at \(-1, 0\), below 0")])
def test_edges_of_bulk_stores(columns, coords, message):
    """Seen on an H200; no manual says it."""
    array = np.zeros((16, 64), np.float16)[:, :columns]
    image = box_image(np.ones((16, 64), np.float16), 128)
    if message is None:
        copy_out(2).simulate(tensor_map(array, (16, 64), 128), image, *coords)
    else:
        with pytest.raises(SimtError, match=message):
            copy_out(2).simulate(tensor_map(array, (16, 64), 128), image, *coords)


def test_a_bulk_load_that_begins_within_16_bytes():
    with pytest.raises(SimtError, match=r"a bulk copy that begins at element 4 of 2 bytes of a row, within 16 bytes: an illegal instruction on an H200"):
        copy_in(2, 1024).simulate(tensor_map(np.ones((16, 64), np.float16), (16, 32), 64), np.zeros(1024, np.uint8), 0, 4)


@pytest.mark.parametrize("drop, message", [
    ("fence", "a bulk store of shared byte 0, which warp 0 wrote with no proxy fence"),
    ("barrier", r"race: a bulk store of byte \d+ by an asynchronous operation of warp 0 after a write by warp 1"),
    ("wait", r"race: write of byte 0 by warp 0 after a read by an asynchronous operation of warp 0"),
    ("second barrier", r"race: write of byte \d+ by warp 1 after a read by an asynchronous operation of warp 0"),
])
def test_bulk_store_mistakes(drop, message):
    with pytest.raises(SimtError, match=message):
        copy_out(2, drop=(drop,)).simulate(tensor_map(np.zeros((16, 64), np.float16), (16, 64), 128), np.ones(2048, np.uint8), 0, 0)


@pytest.mark.parametrize("wait, stays", [("cp.async.bulk.wait_group.read 0;", 1), ("cp.async.bulk.wait_group 0;", 2)])
def test_bulk_stores_to_one_place_come_in_order_only_where_they_are_waited_for(monkeypatch, wait, stays):
    """First ones and then twos go to one box; that shared memory has been read is not enough for the twos to stay."""
    def body(k, args):
        target, image, other = args
        for source in (image, other):
            k.fill(source, 2048)
            k.asm("fence.proxy.async.shared::cta;")
            k.barrier()

            def issue():
                k.store_box(target, [k.i(0), k.i(0)], k.i(0))
                k.asm("cp.async.bulk.commit_group;")
            k.one_thread(0, issue)
            k.asm(wait)
            k.barrier()

    array = np.zeros((16, 64), np.float16)
    images = [box_image(np.full((16, 64), v, np.float16), 128) for v in (1, 2)]
    if stays == 1:
        with pytest.raises(SimtError, match=r"global-memory race: .*: warp 0 of program \(0, 0, 0\) writes what an asynchronous store of warp 0 of "
                                            r"program \(0, 0, 0\) wrote .*an asynchronous copy that was not waited for"):
            HopperKernel([MAP, P, P], body, 4, 2048).simulate(tensor_map(array, (16, 64), 128), *images)
        array[:] = 0
        monkeypatch.setenv("TILEWRIGHT_SIMULATE_GLOBAL_RACES", "0")
    HopperKernel([MAP, P, P], body, 4, 2048).simulate(tensor_map(array, (16, 64), 128), *images)
    np.testing.assert_array_equal(array, stays)


# ------------------------------------------------------------------------------------- pipelines of specialised warps
def pipeline(mutate=(), stages=2):
    """D[64, 64] f32 = A[64, K] · B[64, K]ᵀ: warp 4's thread 0 copies tiles of 64 along K through a ring, warps 0-3 multiply.

    Arguments: maps of A and B, D, the number of tiles. Barriers: full at 8·s, empty at 64 + 8·s; stage s at 1024 + 16384·s.
    """
    def body(k, args):
        b = k.b
        map_a, map_b, out, count = args
        k.init_barriers({8 * s: 1 for s in range(stages)} | {64 + 8 * s: 1 for s in range(stages)})
        zero = k.i(0)

        def ring(s, parity):
            last = b.icmp("eq", s, k.i(stages - 1))
            return b.select(last, zero, b.add(s, k.i(1))), b.select(last, b.xor(parity, k.i(1)), parity)

        def producer():
            def step(i, values):
                s, parity = values
                full, empty = b.mul(s, k.i(8)), b.add(b.mul(s, k.i(8)), k.i(64))
                if "empty wait" not in mutate:
                    k.wait(empty, parity)
                k.expect(full, 16384)
                at = b.add(b.mul(s, k.i(16384)), k.i(1024))
                column = b.mul(i, k.i(64))
                k.load_box(at, map_a, [column, zero], full)
                k.load_box(b.add(at, k.i(8192)), map_b, [column, zero], full)
                return ring(s, parity)
            k.loop(count, [zero, k.i(0 if "producer phase" in mutate else 1)], step)

        def consumer():
            def step(i, values):
                s, parity, *acc = values
                full, empty = b.mul(s, k.i(8)), b.add(b.mul(s, k.i(8)), k.i(64))
                if "full wait" not in mutate:
                    k.wait(full, parity)
                high = 1024 >> 4 | (1 << 30)  # stride 1024, swizzle of 128 bytes
                base = b.lshr(b.add(b.mul(s, k.i(16384)), k.i(1024)), k.i(4))
                registers = "{" + ", ".join(f"${n}" for n in range(32)) + "}"
                lines = ["{", ".reg .b64 da, db;", ".reg .b32 wa, wb;", "wgmma.fence.sync.aligned;"]
                for j in range(4):
                    lines += [f"add.s32 wa, $32, {2 * j};", f"add.s32 wb, $32, {512 + 2 * j};",
                              f"mov.b64 da, {{wa, {high:#x}}};", f"mov.b64 db, {{wb, {high:#x}}};",
                              f"wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {registers}, da, db, 1, 1, 1, 0, 0;"]
                lines += ["wgmma.commit_group.sync.aligned;", "}"]
                struct = b.struct([b.t_f32] * 32)
                ties = [str(n) for n in range(32)]
                made = k.asm("\n".join(lines), ",".join(["=f"] * 32 + ["r"] + ties), base, *acc, result=struct)
                acc = b.unpack_struct(made)
                if "early arrival" in mutate:
                    k.one_thread(0, lambda: k.arrive(empty))
                waited = k.asm("wgmma.wait_group.sync.aligned 0;", ",".join(["=f"] * 32 + ties), *acc, result=struct)
                acc = b.unpack_struct(waited)
                if "early arrival" not in mutate:
                    k.one_thread(0, lambda: k.arrive(empty))
                return [*ring(s, parity), *acc]
            zeros = [b.const(b.t_f32, 0.0)] * 32
            _, _, *acc = k.loop(count, [zero, k.i(1 if "consumer phase" in mutate else 0), *zeros], step)
            k.asm("bar.sync 1, 128;")
            for i, value in enumerate(acc):
                b.store(value, k.word(out, b.add(b.mul(k.tid, k.i(32)), k.i(i))), align=4)

        def produce():
            k.one_thread(128, producer)
        b.if_then_else(b.icmp("uge", k.tid, k.i(128)), produce, consumer)

    return HopperKernel([MAP, MAP, P, "i32"], body, 5, 1024 + 16384 * stages)


def run_pipeline(mutate=(), tiles=5, swizzle=128):
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((64, 64 * tiles)).astype(np.float16) for _ in range(2))
    out = np.zeros((128, 32), np.float32)
    pipeline(mutate).simulate(tensor_map(a, (64, 64), swizzle), tensor_map(b, (64, 64), swizzle), out, tiles, max_steps=2000)
    return out, fragment((a.astype(np.float64) @ b.T.astype(np.float64)).astype(np.float32))


def test_pipeline():
    got, want = run_pipeline()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    pipeline().cubin()


def test_pipeline_with_the_wrong_swizzle_is_wrong():
    got, want = run_pipeline(swizzle=0)
    assert not np.allclose(got, want, atol=0.1)


@pytest.mark.parametrize("mutation, message", [
    ("empty wait", r"race: write of byte \d+ by an asynchronous copy of warp 4 after a (write|read)"),
    ("full wait", r"race: wgmma of byte \d+ by an asynchronous operation of warp 0 after a write by an asynchronous copy|which nothing has written"),
    ("early arrival", r"race: write of byte \d+ by an asynchronous copy of warp 4 after a read by an asynchronous operation of warp 0, which may"),
    ("consumer phase", r"which nothing has written|race: wgmma of byte"),
    ("producer phase", r"deadlock: all threads that are left wait.*\n  threads 0-127 at .*the mbarrier at byte 0.*\n  threads? ?128 at .*mbarrier at byte 64"),
])
def test_pipeline_mistakes(mutation, message):
    with pytest.raises(SimtError, match=message):
        run_pipeline((mutation,))
