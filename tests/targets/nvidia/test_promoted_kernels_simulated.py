"""Pointer kernels around tl.dot as users write them, from a launch to the simulator of sm_90a with bulk copies, against numpy.

``expect``: "tma" where tiles must be moved by bulk copies, "pointer" where they must not (then the version without is launched, or compiled).
Outputs are poisoned with NaN. The simulator raises on races, and writes bulk stores as late and as disorderly as it may.
"""

import numpy as np
import pytest
from tt_execution import define

import tilewright as triton
from tilewright.dialects.errors import OutOfResources
from tilewright.targets.nvidia.emit import ptxas
from tilewright.tools.tensor_descriptor import TensorDescriptor

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a:sim")
    monkeypatch.setenv("TILEWRIGHT_WARP_GROUP_DOTS", "1")
    monkeypatch.setenv("TILEWRIGHT_BULK_COPIES", "1")


def ints(*shape, dtype=torch.float16, seed=0):
    """Small integers, whose sums of products are exact."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-3, 4, shape)).to(dtype)


def nan(*shape, dtype=torch.float32):
    return torch.full(shape, float("nan"), dtype=dtype)


def exact(x):
    return x.to(torch.float64).numpy()


HEAD = """
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, sa0, sa1, sb0, sb1, sc0, sc1, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
"""
INDICES = """
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
"""
LOOP = """
    for k0 in range(0, K, BK):
        kk = k0 + k
        a = tl.load(a_ptr + i[:, None] * sa0 + kk[None, :] * sa1, mask=(i < M)[:, None] & (kk < K)[None, :], other=0)
        b = tl.load(b_ptr + kk[:, None] * sb0 + j[None, :] * sb1, mask=(kk[:, None] < K) & (j[None, :] < N), other=0)
        acc += tl.dot(a, b)
"""
OUT = """
    pc = c_ptr + i[:, None] * sc0 + j[None, :] * sc1
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(pc, acc.to(c_ptr.dtype.element_ty), mask=inside)
"""
PLAIN = HEAD + INDICES + LOOP + OUT


def indented(text):
    return text.replace("\n    ", "\n        ")


def launch(source, a, b, c, more=(), blocks=(64, 32, 32), grid=None, **options):
    """``more``: (name, value) of arguments that stand before M."""
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    if more:
        source = source.replace("c_ptr, M", "c_ptr, " + ", ".join(name for name, _ in more) + ", M", 1)
    bm, bn, bk = blocks
    grid = grid or (triton.cdiv(m, bm), triton.cdiv(n, bn))
    return define(source)[grid](a, b, c, *(v for _, v in more), m, n, k, *a.stride(), *b.stride(), *c.stride(), BM=bm, BN=bn, BK=bk, **options)


def check(kernel, out, reference, expect=None):
    np.testing.assert_array_equal(exact(out), reference)
    if expect:
        assert ("cp.async.bulk.tensor" in kernel.asm["ptx"]) == (expect == "tma"), kernel.explain()


def operands(m=100, k=80, n=40, dtype=torch.float16, out=torch.float32):
    return ints(m, k, dtype=dtype), ints(k, n, seed=1, dtype=dtype), nan(m, n, dtype=out)


# --------------------------------------------------------------------------------------------- what arguments look like
ARGUMENTS = {
    "uneven": (lambda: operands(), "tma"),
    "no k": (lambda: operands(64, 0, 32), None),
    "one of everything": (lambda: (ints(1, 8)[:, :1], ints(1, 8, seed=1)[:, :1], nan(1, 8)[:, :1]), "tma"),
    "rows that are no multiple of 16 bytes": (lambda: operands(67, 37, 31), "pointer"),
    "every second column": (lambda: (ints(64, 128)[:, ::2], ints(64, 32, seed=1), nan(64, 32)), "tma"),  # b is
    "every second row": (lambda: (ints(128, 64)[::2], ints(64, 32, seed=1), nan(64, 32)), "tma"),
    "an odd address": (lambda: (ints(65, 80)[1:, 3:67], ints(64, 32, seed=1), nan(64, 32)), "pointer"),
    "columns": (lambda: (ints(96, 128).t(), ints(64, 96, seed=1).t(), nan(64, 128).t()), "tma"),
    "columns of f16 out": (lambda: (ints(128, 96), ints(96, 64, seed=1), nan(64, 128, dtype=torch.float16).t()), "tma"),
    "a stride of 0": (lambda: (ints(1, 64).expand(64, 64), ints(64, 1, seed=1).expand(64, 32), nan(64, 32)), "pointer"),
}


@pytest.mark.parametrize("what", ARGUMENTS)
def test_arguments(what):
    make, expect = ARGUMENTS[what]
    a, b, c = make()
    check(launch(PLAIN, a, b, c), c, exact(a) @ exact(b), expect)


@pytest.mark.parametrize("warps, stages, blocks", [(1, 2, (16, 16, 16)), (2, 6, (32, 16, 32)), (4, 1, (64, 16, 16)), (4, 6, (128, 8, 32)), (8, 1, (128, 32, 32)),
                                                   (8, 6, (256, 16, 16)), (16, 3, (64, 128, 32)), (4, 3, (64, 16, 256)), (4, 2, (64, 256, 16))], ids=str)
def test_sizes(warps, stages, blocks):
    a, b, c = operands(70, 80, 48)
    kernel = launch(PLAIN, a, b, c, blocks=blocks, num_warps=warps, num_stages=stages)
    check(kernel, c, exact(a) @ exact(b), "tma" if warps in (4, 8) else "pointer")


@pytest.mark.parametrize("type_", [torch.bfloat16, torch.float32, torch.float8_e4m3fn, torch.int8], ids=str)
@pytest.mark.parametrize("b_columns", [False, True])
def test_types(type_, b_columns):
    a, b, c = operands(64, 80, 48, type_)
    if b_columns:
        b = b.t().contiguous().t()
    kernel = launch(PLAIN.replace("tl.float32", "tl.int32") if type_ is torch.int8 else PLAIN, a, b, c)
    check(kernel, c, exact(a) @ exact(b), "tma" if b_columns or type_ is torch.bfloat16 else None)


# --------------------------------------------------------------------------------------------------- memory that overlaps
def test_the_same_matrix_twice():
    a, c = ints(64, 64), nan(64, 64)
    check(launch(PLAIN, a, a.t(), c), c, exact(a) @ exact(a).T, "tma")


@pytest.mark.parametrize("case", ["c is a", "c lies in b"])
def test_a_result_that_overlaps_an_operand(case):
    if case == "c is a":
        a, b = ints(128, 32), ints(32, 32, seed=1)
        out = a
    else:
        a, whole = ints(64, 64), ints(64, 64, seed=1)
        b = out = whole[:, :32]
    reference = exact(a) @ exact(b)
    check(launch(PLAIN, a, b, out, grid=(a.shape[0] // 64, 1)), out, reference, "pointer")


def test_in_place_sum():
    a, b, _ = operands()
    c = ints(100, 40, dtype=torch.float32, seed=5)
    reference = exact(c) + exact(a) @ exact(b)
    out = OUT.replace("    tl.store(pc, acc", "    tl.store(pc, tl.load(pc, mask=inside, other=0) + acc")
    check(launch(HEAD + INDICES + LOOP + out, a, b, c), c, reference, "tma")


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("changed", ["a", "b"])
def test_an_operand_that_the_kernel_also_stores_to(changed, stages):
    """Its tiles are read through pointers, and stored to shared memory by the warps that compute, while those of the other are copied."""
    a, b, c = operands(64, 160, 32)
    reference = exact(a) @ exact(b)
    more = {"a": "    tl.store(a_ptr + i[:, None] * sa0 + k[None, :], acc.to(tl.float16))\n",
            "b": "    tl.store(b_ptr + k[:, None] * sb0 + j[None, :], tl.zeros((BK, BN), tl.float16))\n"}[changed]
    check(launch(PLAIN + more, a, b, c, num_stages=stages), c, reference, "tma")


# -------------------------------------------------------------------------------------------------------- forms of kernels
def store_to(columns, value="acc"):
    return f"""
        tl.store(c_ptr + {columns}, {value})
"""


BODIES = {
    "down from the end": (INDICES + """
    pa = a_ptr + i[:, None] * sa0 + (K - BK + k)[None, :] * sa1
    pb = b_ptr + (K - BK + k)[:, None] * sb0 + j[None, :] * sb1
    for k0 in range(0, K, BK):
        acc += tl.dot(tl.load(pa, mask=(i < M)[:, None], other=0), tl.load(pb, mask=j[None, :] < N, other=0))
        pa -= BK * sa1
        pb -= BK * sb0
""" + OUT, "tma"),
    "a range backwards": (INDICES + LOOP.replace("range(0, K, BK)", "range((tl.cdiv(K, BK) - 1) * BK, -1, -BK)") + OUT, None),
    "from before the matrix": (INDICES + LOOP.replace("range(0, K, BK)", "range(-16, K, BK)").replace("(kk < K)[None, :]", "((kk >= 0) & (kk < K))[None, :]").replace(
        "(kk[:, None] < K)", "(kk[:, None] >= 0) & (kk[:, None] < K)") + OUT, "tma"),
    "while": (INDICES + LOOP.replace("for k0 in range(0, K, BK):", "k0 = 0\n    while k0 < K:") + "        k0 += BK\n" + OUT, None),
    "nested": (INDICES + indented(LOOP).replace("        for k0 in range(0, K, BK):", "    for k1 in range(0, K, 2 * BK):\n        for k2 in range(0, 2):").replace(
        "kk = k0", "kk = k1 + k2 * BK") + OUT, "tma"),
    "early return": ("    if tl.program_id(0) * BM >= M:\n        return\n" + INDICES + LOOP + OUT, None),
    "persistent by the user": ("""
    k = tl.arange(0, BK)
    across = tl.cdiv(N, BN)
    for t in range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0)):
        i = (t // across) * BM + tl.arange(0, BM)
        j = (t % across) * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
""" + indented(LOOP + OUT), "tma"),
    "two stores of one tile": (INDICES + LOOP + OUT.replace("acc.to", "(acc + 1).to") + OUT, "tma"),
}


@pytest.mark.parametrize("form", BODIES)
def test_forms(form):
    body, expect = BODIES[form]
    a, b, c = operands(100, 96, 40)
    grid = (3, 1) if form == "persistent by the user" else (3, 2) if form == "early return" else None
    check(launch(HEAD + body, a, b, c, grid=grid), c, exact(a) @ exact(b), expect)


def test_operands_that_are_also_summed():
    a, b, c = operands()
    sums = "    rows, columns = tl.zeros((BM,), tl.float32), tl.zeros((BN,), tl.float32)\n"
    loop = LOOP + "        rows += tl.sum(a.to(tl.float32), 1)\n        columns += tl.sum(b.to(tl.float32), 0)\n"
    kernel = launch(HEAD + sums + INDICES + loop + "    acc += rows[:, None] + columns[None, :]\n" + OUT, a, b, c)
    check(kernel, c, exact(a) @ exact(b) + exact(a).sum(1)[:, None] + exact(b).sum(0), "tma")


def test_an_accumulator_that_the_loop_changes():
    a, b, c = operands(64, 96, 32)
    kernel = launch(PLAIN.replace("acc += ", "acc = acc * 2.0 + "), a, b, c)
    check(kernel, c, sum(exact(a)[:, t:t + 32] @ exact(b)[t:t + 32] * 2 ** (2 - t // 32) for t in (0, 32, 64)), "tma")


def test_split_k():
    a, b, _ = operands(100, 160, 40)
    c = torch.zeros(100, 40)
    loop = LOOP.replace("range(0, K, BK)", "range(tl.program_id(2) * BK, K, BK * tl.num_programs(2))")
    kernel = launch(HEAD + INDICES + loop + OUT.replace("tl.store", "tl.atomic_add"), a, b, c, grid=(2, 2, 2))
    check(kernel, c, exact(a) @ exact(b), "tma")


@pytest.mark.parametrize("m, expect", [(64, "tma"), (40, "pointer")])
@pytest.mark.parametrize("seen", ["stored", "summed"])
def test_rows_that_wrap_and_are_seen(m, expect, seen):
    """Rows beyond the matrix are others of it, and count."""
    a, b, c = ints(m, 64), ints(64, 32, seed=1), nan(64, 32)
    loop = LOOP.replace("a_ptr + i", "a_ptr + (i % M)").replace("(i < M)[:, None] & ", "")
    more = "    acc = acc + tl.sum(acc, 0)[None, :]\n" if seen == "summed" else ""
    kernel = launch(HEAD + INDICES + loop + more + "    tl.store(c_ptr + i[:, None] * sc0 + j[None, :], acc)\n", a, b, c)
    reference = (exact(a) @ exact(b))[np.arange(64) % m]
    check(kernel, c, reference + reference.sum(0) * (seen == "summed"), expect)


@pytest.mark.parametrize("where", ["one place", "two places in turn", "places that overlap"])
def test_a_loop_that_stores_to_one_place_again(where):
    """The last store of a program is what stays, though bulk stores overtake each other."""
    a, b = ints(64, 160), ints(160, 32, seed=1)
    c = nan(96, 64)
    columns = {"one place": "i[:, None] * sc0 + j[None, :]", "two places in turn": "i[:, None] * sc0 + (j + k0 // BK % 2 * BN)[None, :]",
               "places that overlap": "(i + k0 // 4)[:, None] * sc0 + j[None, :]"}[where]
    kernel = launch(HEAD + INDICES + LOOP + store_to(columns), a, b, c, grid=(1, 1))
    reference = np.full((96, 64), np.nan)
    for t in range(5):
        down, right = (8 * t if where == "places that overlap" else 0), (32 * (t % 2) if where == "two places in turn" else 0)
        reference[down:down + 64, right:right + 32] = exact(a)[:, :32 * t + 32] @ exact(b)[:32 * t + 32]
    check(kernel, c, reference, "tma")


def test_an_atomic_after_a_store_waits_for_it():
    a, b, c = operands()
    count = torch.zeros(1, dtype=torch.int32)
    kernel = launch(PLAIN + "    tl.atomic_add(count_ptr, 1)\n", a, b, c, [("count_ptr", count)])
    check(kernel, c, exact(a) @ exact(b), "tma")
    assert count.item() == 4
    lines = kernel.asm["ttgir"].splitlines()
    place = next(i for i, line in enumerate(lines) if "tt.atomic_rmw" in line)
    before = [line for line in lines[:place] if "tma_store_wait" in line or "async_tma_copy_local_to_global" in line]
    assert "tma_store_wait" in before[-1] and "complete" in before[-1]


# ------------------------------------------------------------------------------------------------------ what fits, and what not
@pytest.mark.parametrize("blocks, warps, stages, transposed", [((128, 256, 32), 8, 3, True), ((128, 256, 64), 8, 4, False), ((64, 256, 64), 4, 3, True)])
def test_rings_leave_room_for_the_result(blocks, warps, stages, transposed):
    a, b, c = operands(64, 64, 16)
    source = PLAIN.replace("j[None, :] * sc1", "j[None, :] * sc1 * 2") if transposed else PLAIN
    bm, bn, bk = blocks
    kernel = define(source).warmup(a, b, c, 64, 16, 64, *a.stride(), *b.stride(), *c.stride(), BM=bm, BN=bn, BK=bk, grid=(1, 1), num_warps=warps,
                                   num_stages=stages)
    assert "cp.async.bulk.tensor" in kernel.asm["ptx"] and kernel.metadata.shared <= 232448, kernel.explain()


def test_blocks_that_do_not_fit():
    a, b, c = operands(64, 64, 16)
    with pytest.raises(OutOfResources, match="shared memory"):
        launch(PLAIN, a, b, c, blocks=(128, 256, 256), num_warps=8, num_stages=3)


@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
def test_an_instruction_that_needs_more_registers_than_allowed():
    a, b, c = operands(64, 64, 16)
    with pytest.raises(OutOfResources, match="registers of a thread: [0-9]+ needed, 64 available.*raise maxnreg"):
        launch(PLAIN, a, b, c, blocks=(64, 256, 16), maxnreg=64)


@pytest.mark.parametrize("maxnreg, consumers", [(64, 104), (104, 184)])
def test_no_warp_waits_for_registers_that_the_block_has_not(maxnreg, consumers):
    a, b, c = operands(64, 64, 32)
    kernel = launch(PLAIN, a, b, c, maxnreg=maxnreg)
    check(kernel, c, exact(a) @ exact(b), "tma")
    assert f"setmaxnreg.inc.sync.aligned.u32 \t{consumers};" in kernel.asm["ptx"]
    assert 128 * consumers + 128 * 24 <= 256 * maxnreg


# ------------------------------------------------------------------------------------------------------ descriptors of the host
DESCRIPTORS = """
@triton.jit
def kernel(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM
    j = tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        acc += tl.dot(a.load([i, k0]), b.load([k0, j]))
    c.store([i, j], acc.to(c.dtype))
"""


def described(source, a, b, c, blocks=(64, 32, 32), c_block=None):
    bm, bn, bk = blocks
    args = (TensorDescriptor.from_tensor(x, block) for x, block in ((a, [bm, bk]), (b, [bk, bn]), (c, c_block or [bm, bn])))
    return define(source)[(triton.cdiv(a.shape[0], bm), triton.cdiv(b.shape[1], bn))](*args, a.shape[1], BM=bm, BN=bn, BK=bk)


STORES = "    c.store([i, j], acc.to(c.dtype))"
CHANGES = {
    "as it is": ({}, lambda p, c: p, None),
    "from before the matrix": ({"range(0, K, BK)": "range(-BK, K, BK)"}, lambda p, c: p, None),
    "a tile stored twice": ({STORES: STORES + "\n    c.store([i, j], acc * 2)"}, lambda p, c: 2 * p, None),
    "halves of a tile": ({STORES: """
    x, y = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
    c.store([i, j], x)
    c.store([i, j + BN // 2], y)"""}, lambda p, c: p, [64, 16]),
    "overlapping halves": ({STORES: """
    x, y = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
    c.store([i, j + 8], y)
    c.store([i, j], x)
    c.store([i, j + BN // 2], y)"""}, lambda p, c: p, [64, 16]),
    "loaded and stored": ({"acc.to(c.dtype)": "c.load([i, j]) + acc"}, lambda p, c: c + p, None),
    "an atomic sum": ({"c.store([i, j], acc.to(c.dtype))": "c.atomic_add([i, j], acc)\n    c.atomic_add([i, j], acc)"}, lambda p, c: c + 2 * p, None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_descriptors(change):
    edits, reference, c_block = CHANGES[change]
    source = DESCRIPTORS
    for old, new in edits.items():
        assert old in source
        source = source.replace(old, new)
    a, b = ints(100, 80), ints(80, 40, seed=1)
    c = ints(100, 40, seed=2, dtype=torch.float32) if change in ("loaded and stored", "an atomic sum") else nan(100, 40)
    expected = reference(exact(a) @ exact(b), exact(c))
    kernel = described(source, a, b, c, c_block=c_block)
    check(kernel, c, expected, "tma")
    waits = [line for line in kernel.asm["ttgir"].splitlines() if "tma_store_wait" in line]
    assert sum("complete" in w for w in waits) == {"a tile stored twice": 1, "overlapping halves": 2}.get(change, 0)


def test_one_array_under_two_descriptors():
    a, b = ints(64, 64, dtype=torch.float32), ints(64, 64, seed=1, dtype=torch.float32)
    reference = exact(a) @ exact(b)
    check(described(DESCRIPTORS, a, b, a, blocks=(64, 64, 32)), a, reference, "pointer")
