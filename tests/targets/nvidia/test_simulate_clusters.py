"""Blocks that come in clusters of two, simulated together: each instruction, whole matmuls, and the mistakes that must be found."""

import re

import numpy as np
import pytest
from hopper_kernels import MAP, HopperKernel, P
from hopper_texts import tensor_map

import tilewright
import tilewright.language as tl
from tilewright.dialects._mlir import ir
from tilewright.dialects.simt import SimtError
from tilewright.targets.nvidia import host_plan
from tilewright.targets.nvidia.simulated_driver import NvidiaSimulatedDriver

REMOTE = "{\n.reg .b32 RA;\nmapa.shared::cluster.u32 RA, $0, $1;\nmbarrier.arrive.shared::cluster.b64 _, [RA];\n}"


def rank_of(k):
    return k.b.call_intrinsic("llvm.nvvm.read.ptx.sreg.cluster.ctarank", k.b.t_i32, [])


def other_of(k):
    return k.b.xor(rank_of(k), k.i(1))


def program(k):
    return k.b.call_intrinsic("llvm.nvvm.read.ptx.sreg.ctaid.x", k.b.t_i32, [])


def arrive_remote(k, bar, rank):
    k.asm(REMOTE, "r,r", bar, rank)


def cluster_barrier(k, relaxed=".relaxed"):
    k.asm(f"barrier.cluster.arrive{relaxed};")
    k.asm("barrier.cluster.wait;")


def init(k, barriers, fence=True):
    def make():
        for at, count in barriers.items():
            k.asm(f"mbarrier.init.shared::cta.b64 [$0], {count};", "r", k.i(at))
        if fence:
            k.asm("fence.mbarrier_init.release.cluster;")
    k.one_thread(0, make)


def run(body, blocks=2, warps=1, shared=256, group=2, types=(P,), args=(), assembled=True):
    out = np.zeros(blocks * 32 * warps, np.int32)
    kernel = HopperKernel(list(types), body, warps, shared)
    if assembled:
        kernel.cubin()
    kernel.simulate(out, *args, grid=(blocks,), group=group)
    return out.reshape(blocks, -1)


def put(k, out, value):
    b = k.b
    b.store(value, k.word(out, b.add(b.mul(program(k), k.i(32 * k.num_warps)), k.tid)), align=4)


# ------------------------------------------------------------------------------------------------- ranks, barriers
def test_ranks():
    def body(k, args):
        size = k.b.call_intrinsic("llvm.nvvm.read.ptx.sreg.cluster.nctarank", k.b.t_i32, [])
        put(k, args[0], k.b.add(k.b.mul(size, k.i(100)), rank_of(k)))
    assert run(body, blocks=6)[:, 0].tolist() == [200, 201] * 3
    assert run(body, blocks=3, group=1)[:, 0].tolist() == [100] * 3
    with pytest.raises(SimtError, match=r"blocks run in groups of 2, and the last of the grid \(5, 1, 1\) has 1"):
        run(body, blocks=5)


def test_each_block_has_its_own_shared_memory_and_named_barriers():
    def body(k, args):
        b = k.b
        mine = k.shared_pointer(b.mul(k.tid, k.i(4)))
        b.store(b.add(b.mul(program(k), k.i(1000)), k.tid), mine, align=4)
        cluster_barrier(k)
        k.asm("bar.sync 3, 64;")
        put(k, args[0], b.load(k.shared_pointer(b.mul(b.xor(k.tid, k.i(63)), k.i(4))), b.t_i32, align=4))
    want = np.arange(4)[:, None] * 1000 + np.arange(63, -1, -1)
    np.testing.assert_array_equal(run(body, blocks=4, warps=2), want)


def test_each_block_has_its_own_local_memory():
    def body(k, args):
        b = k.b
        mine = ir.Operation.create("llvm.alloca", [b.ptr(0)], [k.i(1)], {"elem_type": ir.TypeAttr.get(b.t_i32)}, loc=b.loc, ip=b._const_ip).result
        b.store(program(k), mine, align=4)
        cluster_barrier(k)
        put(k, args[0], b.load(mine, b.t_i32, align=4))
    assert run(body, blocks=4)[:, 0].tolist() == [0, 1, 2, 3]


def swap(how):
    """Each block stores its number, and reads the other's after ``how``."""
    def body(k, args):
        b = k.b
        put(k, args[0], b.add(program(k), k.i(10)))
        how(k)
        out = k.word(args[1], b.add(b.mul(program(k), k.i(32)), k.tid))
        b.store(b.load(k.word(args[0], b.add(b.mul(b.xor(program(k), k.i(1)), k.i(32)), k.tid)), b.t_i32, align=4), out, align=4)
    return body


def test_a_cluster_barrier_waits_for_both_blocks():
    seen = np.zeros(128, np.int32)
    run(swap(lambda k: cluster_barrier(k, "")), blocks=4, types=(P, P), args=(seen,))
    assert seen[::32].tolist() == [11, 10, 13, 12]
    with pytest.raises(SimtError, match=r"global-memory race: byte 128 of argument 0 .*: warp 0 of program \(1, 0, 0\) writes what warp 0 of program \(0, 0, 0\) read"):
        run(swap(lambda k: None), blocks=4, types=(P, P), args=(seen * 0,))
    with pytest.raises(SimtError, match="global-memory race"):  # of a block alone it orders nothing
        run(swap(lambda k: cluster_barrier(k, "")), blocks=4, group=1, types=(P, P), args=(seen * 0,))


def test_a_cluster_barrier_does_not_wait_for_who_has_ended():
    def body(k, args):
        k.b.if_then(k.b.icmp("eq", rank_of(k), k.i(0)), lambda: cluster_barrier(k))
        put(k, args[0], k.i(1))
    assert (run(body) == 1).all()


def test_a_deadlock_names_the_places_in_both_blocks():
    def body(k, args):
        init(k, {0: 1})
        k.barrier()
        k.b.if_then_else(k.b.icmp("eq", rank_of(k), k.i(0)), lambda: cluster_barrier(k), lambda: k.wait(k.i(0), k.i(0)))
    with pytest.raises(SimtError, match=r"deadlock: .* \[program \(2, 0, 0\), k\]\n  threads 0-31 at .*barrier.cluster, at which 32 of 64 threads are"
                       r"\nand \[program \(3, 0, 0\), k\]\n  threads 0-31 at .*the mbarrier at byte 0"):
        kernel = HopperKernel([P], body, 1, 256)
        kernel.executor(group=2).run((4,), [np.zeros(128, np.int32)], programs=[(2, 0, 0), (3, 0, 0)])


# ------------------------------------------------------------------------------------------------ remote arrivals
def handshake(k, rank=other_of, begin=cluster_barrier, fence=True, end=cluster_barrier):
    init(k, {0: 32}, fence)
    begin(k)
    arrive_remote(k, k.i(0), rank(k))
    k.wait(k.i(0), k.i(0))
    end(k)


def test_a_remote_arrival():
    """Each block waits for the other's arrivals alone."""
    seen = np.zeros(128, np.int32)
    run(swap(handshake), blocks=4, types=(P, P), args=(seen,))
    assert seen[::32].tolist() == [11, 10, 13, 12]


def test_an_arrival_by_mapa_at_the_own_block():
    assert (run(lambda k, args: (handshake(k, rank_of), put(k, args[0], k.i(1)))) == 1).all()


def no_end(k):
    """The first block tells the second to arrive, and ends."""
    init(k, {0: 32})
    cluster_barrier(k)

    def second():
        k.wait(k.i(0), k.i(0))
        arrive_remote(k, k.i(0), k.i(0))
    k.b.if_then_else(k.b.icmp("eq", rank_of(k), k.i(1)), second, lambda: arrive_remote(k, k.i(0), k.i(1)))


def in_time(k):
    """As ``no_end``, where the first block happens to live long enough: it waits for something else."""
    init(k, {0: 32, 8: 32})
    cluster_barrier(k)

    def second():
        arrive_remote(k, k.i(8), k.i(0))
        arrive_remote(k, k.i(0), k.i(0))
    k.b.if_then_else(k.b.icmp("eq", rank_of(k), k.i(1)), second, lambda: k.wait(k.i(8), k.i(0)))


@pytest.mark.parametrize("how, message", [
    (lambda k: handshake(k, lambda k: k.i(2)), "mapa of block 2 of a cluster of 2"),
    (lambda k: handshake(k, rank=lambda k: k.i(0)), r"64 arrivals|32 arrivals|1 arrivals where its phase|deadlock"),
    (lambda k: handshake(k, begin=lambda k: k.barrier()), r"byte 0 of the cluster's block \d, where warp 0 of the group's block \d knows of no mbarrier"),
    (lambda k: handshake(k, fence=False), r"byte 0 of the cluster's block \d, where warp 0 of the group's block \d knows of no mbarrier"),
    (no_end, r"mbarrier.arrive in shared memory of the cluster's block 0, which has ended"),
    (in_time, r"block 0 of the cluster \[program \(0, 0, 0\)\] may have ended before warp 0 of the group's block 1 accessed its shared memory"),
    (lambda k: k.asm("{\n.reg .b32 RA;\nmapa.shared::cluster.u32 RA, $0, 1;\nmbarrier.arrive.shared::cta.b64 _, [RA];\n}", "r", k.i(0)),
     r"mbarrier.arrive.shared::cta.b64 of an address in shared memory of block 1 of the cluster: only shared::cluster reaches it"),
])
def test_mistakes_of_remote_arrivals(how, message):
    with pytest.raises(SimtError, match=message):
        run(lambda k, args: how(k), assembled=False)


@pytest.mark.parametrize("how", [
    lambda k: handshake(k, fence=False, begin=lambda k: cluster_barrier(k, "")),  # an arrival that is not relaxed releases the making too
    lambda k: handshake(k, end=lambda k: None),  # all arrivals are known to who waited for them
    lambda k: (no_end(k), cluster_barrier(k)), lambda k: (in_time(k), cluster_barrier(k)),
])
def test_what_is_no_mistake_of_remote_arrivals(how):
    run(lambda k, args: how(k))


# ------------------------------------------------------------------------------------------------ multicast copies
HALF, FULL, EMPTY, TILE = 512, 0, 8, 1024  # bytes of half a tile; places in shared memory


def shared_tiles(mutate=()):
    """Both blocks store all ``n`` tiles of 256 words; each loads half of every tile for both. Thread 0 loads, warp 1 reads. One stage."""
    def body(k, args):
        b = k.b
        out, n, desc = args
        rank, other = rank_of(k), other_of(k)
        init(k, {FULL: 1, EMPTY: 32 if "count" in mutate else 64}, "fence" not in mutate)
        if "begin" in mutate:
            k.barrier()
        else:
            cluster_barrier(k)

        def produce():
            def step(i, values):
                (parity,) = values
                k.wait(k.i(EMPTY), parity)
                k.expect(k.i(FULL), HALF if "half" in mutate else 2 * HALF)
                row = b.add(b.mul(i, k.i(16)), b.mul(rank, k.i(8)))
                at = b.add(k.i(TILE), b.mul(rank, k.i(HALF)))
                mask = {"mask": b.i16(1), "no mask": b.i16(0), "wide mask": b.i16(7)}.get(next(iter(mutate), ""), b.i16(3))
                k.asm("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                      "[$0], [$1, {$2, $3}], [$4], $5;", "r,l,r,r,r,h", at, desc, k.i(0), row, k.i(FULL), mask)
                return [b.xor(parity, k.i(1))]
            k.loop(n, [k.i(1)], step)

        def consume():
            lane = b.sub(k.tid, k.i(32))

            def step(i, values):
                (parity,) = values
                k.wait(k.i(FULL), parity)
                if "early" in mutate:
                    arrive_remote(k, k.i(EMPTY), other)
                first = b.mul(b.add(b.mul(program(k), n), i), k.i(256))
                for j in range(0, 256, 32):
                    word = b.add(lane, k.i(j))
                    value = b.load(k.shared_pointer(b.add(b.mul(word, k.i(4)), k.i(TILE))), b.t_i32, align=4)
                    b.store(value, k.word(out, b.add(first, word)), align=4)
                k.arrive(k.i(EMPTY))
                if not {"remote", "early"} & set(mutate):
                    arrive_remote(k, k.i(EMPTY), other)
                return [b.xor(parity, k.i(1))]
            k.loop(n, [k.i(0)], step)

        b.if_then_else(b.icmp("uge", k.tid, k.i(32)), consume, lambda: k.one_thread(0, produce))
        if "end" not in mutate:
            cluster_barrier(k)
    return HopperKernel([P, "i32", MAP], body, 2, TILE + 2 * HALF)


def run_shared_tiles(mutate=(), n=3):
    kernel = shared_tiles(mutate)
    source = np.arange(n * 256, dtype=np.int32).reshape(n * 16, 16)
    out = np.full((2, n, 256), -1, np.int32)
    if not mutate:
        kernel.cubin()
    kernel.simulate(out, n, tensor_map(source, (8, 16), 0, "i32"), grid=(2,), group=2)
    return out, source.reshape(n, 256)


def test_multicast_copies_reach_both_blocks():
    out, want = run_shared_tiles()
    np.testing.assert_array_equal(out, np.stack([want, want]))


BOTH = r"\[program \(0, 0, 0\), k\](\n  .*)+\nand \[program \(1, 0, 0\), k\](\n  .*)+"


@pytest.mark.parametrize("mutate, message", [
    (["remote"], rf"deadlock: .*{BOTH}the mbarrier at byte 8, parity 0: phase 0 has 32 of 64 arrivals"),
    (["remote", "count"], r"race: write of byte \d+ of the group's block (0|1) by an asynchronous copy of warp 0 of the group's block (1|0) after a "
     r"(read by warp 1 of the group's block|write)"),
    (["early"], r"race: write of byte \d+ of the group's block (0|1) by an asynchronous copy of warp 0 of the group's block (1|0) after a read by warp 1 of the group's block (0|1)"),
    (["mask"], rf"deadlock: .*{BOTH}the mbarrier at byte 0, parity 0: phase 0 has 1 of 1 arrivals and expects 1024 more bytes"),
    (["no mask"], r"mask 0x0 of a cluster of 2"),
    (["wide mask"], r"mask 0x7 of a cluster of 2"),
    (["half"], r"race: |deadlock|which nothing has written"),
    (["end"], r"block \d of the cluster \[program \(\d, 0, 0\)\] may have ended before warp 1 of the group's block \d|which has ended"),
    (["begin"], r"a bulk copy's mbarrier of shared byte 0 of the cluster's block (0|1), where warp 0 of the group's block (1|0) knows of no mbarrier"),
    (["fence"], r"race: a wait of byte 0 by warp 1|knows of no mbarrier"),
])
def test_mistakes_of_multicast_copies(mutate, message):
    with pytest.raises(SimtError, match=message):
        run_shared_tiles(mutate)


# --------------------------------------------------------------------------------------------------- whole kernels
torch = pytest.importorskip("torch")


@tilewright.jit
def matmul(a, b, c, M, N, K, sa, sb, sc, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ALONG_N: tl.constexpr):
    pm = tl.program_id(1 if ALONG_N else 0)
    pn = tl.program_id(0 if ALONG_N else 1)
    m, n = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + m[:, None] * sa + (rk[None, :] + k), mask=(m[:, None] < M) & (rk[None, :] + k < K), other=0.0)
        y = tl.load(b + (rk[:, None] + k) * sb + n[None, :], mask=(rk[:, None] + k < K) & (n[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * sc + n[None, :], acc.to(tl.float16), mask=(m[:, None] < M) & (n[None, :] < N))


class Launches:
    """What the driver was asked to run."""

    def __init__(self, monkeypatch):
        monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a:sim")
        self.executed = []
        execute = NvidiaSimulatedDriver.execute

        def executing(driver, handle, grid, args, regions=()):
            self.executed.append((handle, grid, args))
            handle.executor.group.counts.clear()
            execute(driver, handle, grid, args, regions)
        monkeypatch.setattr(NvidiaSimulatedDriver, "execute", executing)

    @property
    def counts(self):
        return self.executed[-1][0].executor.group.counts


@pytest.fixture
def launches(monkeypatch):
    return Launches(monkeypatch)


ALIVE = []


def launch(m, n, k, blocks=(64, 128, 64), along_n=False, warps=4):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = torch.full((m, n), float("nan"), dtype=torch.float16)
    ALIVE[:] = a, b, c  # what was launched may be executed again
    bm, bn, bk = blocks
    grid = (-(-m // bm), -(-n // bn))
    kernel = matmul[grid[::-1] if along_n else grid](torch.from_numpy(a), torch.from_numpy(b), c, m, n, k, k, n, n, bm, bn, bk, along_n, num_warps=warps)
    return kernel, c.numpy(), (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)


def test_a_matmul_whose_blocks_share_tiles(launches):
    kernel, got, want = launch(2 * 64, 3 * 128, 192)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-2)
    assert kernel.metadata.persistent["cluster"] == 2
    # 6 programs in turn by 2 clusters: three steps along K, of which each block loads half of B's tile; 4 warps give each stage back
    assert launches.counts == {"multicast copies": 6 * 3, "remote arrivals": 6 * 3}
    assert launches.executed[-1][1] == (4, 1, 1)


@pytest.mark.parametrize("m, n, k, blocks, along_n, warps, flags", [
    (4 * 64, 2 * 128, 192, (64, 128, 64), False, 4, 1), (4 * 64 - 24, 2 * 128 - 40, 200, (64, 128, 64), False, 4, 1),
    (3 * 64, 2 * 128, 192, (64, 128, 64), False, 4, 0),  # neighbours need not have the same n
    (3 * 64, 128, 192, (64, 128, 64), False, 4, 0), (64, 128, 192, (64, 128, 64), False, 4, 0),
    (2 * 128, 128, 192, (128, 128, 64), False, 8, 1),
    (2 * 64, 2 * 128, 384, (64, 128, 128), True, 4, 1), (2 * 64, 2 * 128, 384, (64, 128, 128), False, 4, 2),  # A's tile, B's
])
def test_matmuls(launches, m, n, k, blocks, along_n, warps, flags):
    kernel, got, want = launch(m, n, k, blocks, along_n, warps)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-2)
    assert kernel.metadata.persistent["cluster"] == 2
    assert bool(launches.counts.get("multicast copies")) == bool(launches.counts.get("remote arrivals")) == bool(flags)
    assert [a for a in launches.executed[-1][2] if isinstance(a, int)][-1] == flags


@pytest.mark.parametrize("m, n, warps, blocks, flags", [
    (64, 5 * 128, 4, (64, 128, 64), 2 << 8), (2 * 64, 128, 4, (64, 128, 64), 1 << 8 | 1),  # B is read once; A is, and B's tile is shared
    (2 * 64, 3 * 128, 4, (64, 128, 64), 1), (128, 128, 8, (128, 128, 64), 3 << 8)])  # neither; one program: both
def test_what_a_grid_reads_once(launches, monkeypatch, m, n, warps, blocks, flags):
    """Bits from 8 on: no two programs read the same tile of A (0), of B (1); but of small tensors they are never set."""
    kernel, got, want = launch(m, n, 192, blocks, False, warps)
    assert [a for a in launches.executed[-1][2] if isinstance(a, int)][-1] == flags & 0xFF
    assert "streamed" in kernel.asm["ttgir"] and "L2::evict_first" in kernel.asm["ptx"]
    monkeypatch.setattr(host_plan, "STREAMED_BYTES", 0)
    _, got, want = launch(m, n, 256, blocks, False, warps)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-2)
    assert [a for a in launches.executed[-1][2] if isinstance(a, int)][-1] == flags


def test_tiles_mostly_outside_are_loaded_with_masks(launches, monkeypatch):
    """A of 16 and of 40 rows in tiles of 64: more than 32 rows to fill are too many where there are many programs, and masks cost no more."""
    for rows, few, k, bulk in ((16, 32, 192, True), (16, 2, 192, False), (40, 2, 192, True), (16, 2, 200, True)):
        monkeypatch.setattr(host_plan, "FEW_PROGRAMS", few)
        kernel, got, want = launch(rows, 2 * 128 + 16 * few, k)  # another size, since the answer is kept
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-2)
        assert ("async_tma_copy" in kernel.asm["ttgir"]) == bulk


def without(text, pattern):
    """``text`` without the lines that match."""
    lines = [line for line in text.splitlines() if not re.search(pattern, line)]
    assert len(lines) < len(text.splitlines())
    return "\n".join(lines)


def changed(pattern, new):
    def change(text):
        out = re.sub(pattern, new, text)
        assert out != text
        return out
    return change


MISTAKES = {
    "no remote arrival": (lambda t: without(t, "ttng.arrive_barrier_remote"), r"deadlock: .*\[program \(0, 0, 0\), matmul\](\n.*)+\nand \[program \(1, 0, 0\)"),
    "no remote arrival is waited for": (None, r"race: write of byte \d+ of the group's block (0|1) by an asynchronous copy of warp 4 of the "
                                        r"group's block (1|0) after a (read by an asynchronous operation of warp 0 of the group's block|write)"),
    "a stage given back while products read it": (changed(r"(warp_group_dot_wait.*pendings = )1", r"\g<1>2"),
                                                  r"race: write of byte .*by an asynchronous copy of warp 4 .*after a read by an asynchronous operation of warp 0"),
    "one block's mask": (changed(r"multicast = 3", "multicast = 1"), r"deadlock: (.*\n)+and \[program \(1, 0, 0\)(.*\n)+.*expects [1-9]\d* more bytes"),
    "half of the bytes": (None, r"race|expects -\d+ more bytes|which nothing has written"),
    "no cluster barrier at the end": (changed(r"cluster = 2 : i32, ", ""), r"may have ended before warp \d of the group's block \d|which has ended"),
    "no cluster barrier at the beginning": (lambda t: without(t, r"ttng.cluster_(arrive|wait)"), r"knows of no mbarrier"),
}


def half_expected(text):
    sizes = [int(s) for s in re.findall(r"ttng.barrier_expect.*size = (\d+)", text)]
    assert sizes
    return re.sub(r"(ttng.barrier_expect.*size = )(\d+)", lambda m: f"{m[1]}{int(m[2]) // 2}", text)


def arrivals_halved(text):
    """Stages need no arrivals of the other block."""
    text = without(text, "ttng.arrive_barrier_remote")
    return changed(r"(ttng.init_barrier.*count = )2\b", r"\g<1>1")(text)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_a_matmul(launches, name):
    kernel, got, want = launch(2 * 64, 128, 64 * 6)
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-2)
    _, grid, args = launches.executed[-1]
    change, message = MISTAKES[name]
    change = change or {"half of the bytes": half_expected, "no remote arrival is waited for": arrivals_halved}[name]
    driver = NvidiaSimulatedDriver("sm_90a")
    handle = driver.load({**kernel.asm, "ttgir": change(kernel.asm["ttgir"])}, kernel.metadata._asdict())
    with pytest.raises(SimtError, match=message):
        driver.execute(handle, grid, args)
