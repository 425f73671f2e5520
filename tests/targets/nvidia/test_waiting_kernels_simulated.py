"""Kernels whose programs tell each other, or are told by other kernels, what lies in memory: their loads may not be done by a producer that runs
ahead of the wait, and what they store must be there before they say so. Launched in the simulator of sm_90a.
"""

import re

import pytest
from tt_execution import define

from tilewright.tools.tensor_descriptor import TensorDescriptor

torch = pytest.importorskip("torch")

KERNEL = """
@triton.jit
def kernel(a, b_ptr, c, flag, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid = tl.program_id(0)
    {before}
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        {inside}
        k = k0 + tl.arange(0, BK)
        acc = tl.dot(a.load([pid * BM, k0]), tl.load(b_ptr + k[:, None] * BN + tl.arange(0, BN)[None, :]), acc)
    c.store([pid * BM, 0], acc)
    {after}
"""
# where, what, whether loads must stay where they are
WAITS = {
    "an atomic": ("before", "while tl.atomic_add(flag + pid, 0) == 0:\n        pass", True),
    "an atomic a round": ("inside", "while tl.atomic_cas(flag, 1, 1) != 1:\n            pass", True),
    "its value looked at once": ("before", "tl.store(flag + 2, tl.atomic_add(flag + pid, 0, sem='acquire'))", True),
    "an atomic that orders nothing": ("before", "while tl.atomic_add(flag + pid, 0, sem='relaxed') == 0:\n        pass", True),
    "a volatile load": ("before", "x = tl.load(flag + pid, volatile=True)\n    while x == 0:\n        x = tl.load(flag + pid, volatile=True)", True),
    "a load": ("before", "while tl.load(flag + pid) == 0:\n        pass", True),
    "a load that the condition's data came from": ("before", "x = 0\n    while x < 1:\n        if pid >= 0:\n            x = tl.load(flag + pid)", True),
    "a wait at the end": ("after", "while tl.atomic_add(flag + pid, 0) == 0:\n        pass", False),
    "an atomic that only releases": ("before", "tl.store(flag + 2, tl.atomic_add(flag + pid, 0, sem='release'))", False),
    "a relaxed atomic looked at once": ("before", "tl.store(flag + 2, tl.atomic_add(flag + pid, 0, sem='relaxed'))", False),
    "an atomic nobody looks at": ("inside", "tl.atomic_add(flag + pid, 1)", False),
    "a load once": ("before", "tl.store(flag + 2, tl.load(flag + pid))", False),
    "a count that is not loaded": ("before", "x = tl.load(flag + pid)\n    while x < 4:\n        x += 1\n    tl.store(flag + 2, x)", False),
}


SELDOM = ("a relaxed atomic looked at once", "a volatile load", "a wait at the end", "a load once", "a count that is not loaded", "in an if", "in a for")  # the code that the others run, again


def cases(table):
    return [pytest.param(name, marks=pytest.mark.nightly if name in SELDOM else ()) for name in table]


def launch(**parts):
    source = KERNEL.format(**{"before": "", "inside": "", "after": "", **parts})
    a, b = (torch.randint(-3, 4, s, generator=torch.Generator().manual_seed(1)).to(torch.float16) for s in ((128, 64), (64, 32)))
    c, flag = torch.full((128, 32), float("nan")), torch.ones(4, dtype=torch.int32)
    kernel = define(source)[(2,)](TensorDescriptor.from_tensor(a, [64, 32]), b, TensorDescriptor.from_tensor(c, [64, 32]), flag, 64, BM=64, BN=32, BK=32)
    assert torch.equal(c.double(), a.double() @ b.double())
    return kernel


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a:sim")


@pytest.mark.parametrize("case", cases(WAITS))
def test_no_copy_runs_ahead_of_a_wait(case):
    where, text, stays = WAITS[case]
    kernel = launch(**{where: text})
    assert ("cp.async.bulk.tensor.2d.shared" in kernel.asm["ptx"]) != stays, kernel.explain()
    if stays:
        assert "the kernel waits for others before it, by tt." in kernel.explain()


ANNOUNCED = {
    "an atomic": "tl.atomic_add(flag, 1)",
    "in an if": "if pid == 0:\n        tl.atomic_add(flag, 1)",
    "in a for": "for r in range(2):\n        tl.atomic_add(flag + r, 1)",
    "in a while": "while tl.atomic_cas(flag, 0, 1) == 7:\n        pass",
    "after a barrier": "tl.debug_barrier()\n    tl.store(flag, 5)",
}


@pytest.mark.parametrize("case", cases(ANNOUNCED))
def test_what_was_stored_is_there_before_others_are_told(case):
    text = launch(after=ANNOUNCED[case]).asm["ttgir"].split("async_tma_copy_local_to_global", 1)[1]
    told = re.search(r"tt\.atomic|tt\.debug_barrier", text).start()
    waited = [m for m in re.finditer(r"tma_store_wait.*complete", text[:told])]
    assert waited and "scf.while" not in text[:waited[0].start()], text


def test_tiles_by_ticket():
    """Stores by descriptor in a while loop, whose loads stay behind the tickets, are no case for a producer."""
    source = """
@triton.jit
def kernel(a, b, c, tickets, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    t = tl.atomic_add(tickets, 1)
    while t < 2:
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k0 in range(0, K, BK):
            acc = tl.dot(a.load([t * BM, k0]), b.load([k0, 0]), acc)
        c.store([t * BM, 0], acc)
        t = tl.atomic_add(tickets, 1)
"""
    a, b = (torch.randint(-3, 4, s, generator=torch.Generator().manual_seed(1)).to(torch.float16) for s in ((128, 64), (64, 32)))
    c, tickets = torch.full((128, 32), float("nan")), torch.zeros(1, dtype=torch.int32)
    descriptors = [TensorDescriptor.from_tensor(x, block) for x, block in ((a, [64, 32]), (b, [32, 32]), (c, [64, 32]))]
    define(source)[(2,)](*descriptors, tickets, 64, BM=64, BN=32, BK=32)
    assert torch.equal(c.double(), a.double() @ b.double()) and tickets.item() == 4
