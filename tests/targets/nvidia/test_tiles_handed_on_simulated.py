"""Loaded tiles that a loop carries to its next round, or that an if gives: kernels that load ahead by hand, warp-specialised, in the simulator."""

import pytest
from tt_execution import define

from tilewright.dialects.errors import InternalCompilerError
from tilewright.targets.nvidia.passes.warp_consumers import Consumers
from tilewright.tools.tensor_descriptor import TensorDescriptor

torch = pytest.importorskip("torch")

KERNEL = """
@triton.jit
def kernel(a_desc, b_desc, c_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM
    acc = tl.zeros((BM, BN), tl.float32)
    {}
    c_desc.store([i, 0], acc)
"""
STEPS = range(0, 160, 32)
# what stands in the kernel → the columns of a that meet the rows of b
FORMS = {
    "loaded ahead": ("""
    a = a_desc.load([i, 0])
    b = b_desc.load([0, 0])
    for r in range(BK, K, BK):
        next_a = a_desc.load([i, r])
        next_b = b_desc.load([r, 0])
        acc = tl.dot(a, b, acc)
        a = next_a
        b = next_b
    acc = tl.dot(a, b, acc)""", [(r, r) for r in STEPS]),
    "two ahead": ("""
    a = a_desc.load([i, 0])
    further = a_desc.load([i, BK])
    for r in range(0, K, BK):
        furthest = a_desc.load([i, r + 2 * BK])
        acc = tl.dot(a, b_desc.load([r, 0]), acc)
        a = further
        further = furthest""", [(r, r) for r in STEPS]),
    "used in this round and the next": ("""
    last = tl.zeros((BM, BK), tl.float16)
    for r in range(0, K, BK):
        a = a_desc.load([i, r])
        b = b_desc.load([r, 0])
        acc = tl.dot(a, b, acc)
        acc = tl.dot(last, b, acc)
        last = a""", [(r, r) for r in STEPS] + [(r - 32, r) for r in STEPS[1:]]),
    "the last one of a loop": ("""
    a = a_desc.load([i, 0])
    for r in range(0, K, BK):
        a = a_desc.load([i, r])
        acc = tl.dot(a, b_desc.load([r, 0]), acc)
    acc = tl.dot(a, b_desc.load([0, 0]), acc)""", [(r, r) for r in STEPS] + [(128, 0)]),
    "one of two": ("""
    for r in range(0, K, BK):
        a = a_desc.load([i, r])
        if r % (2 * BK) == 0:
            b = b_desc.load([r, 0])
            acc = tl.dot(a, b, acc)
        else:
            b = b_desc.load([0, 0])
        acc = tl.dot(a, b, acc)""", [(r, r) for r in STEPS[::2]] * 2 + [(r, 0) for r in STEPS[1::2]]),
    "changed once": ("""
    b = b_desc.load([0, 0])
    for r in range(0, K, BK):
        if r == 2 * BK:
            b = b_desc.load([r, 0])
        acc = tl.dot(a_desc.load([i, r]), b, acc)""", [(r, 64 * (r >= 64)) for r in STEPS]),
}
SELDOM = ("two ahead", "changed once")


def launch(text):
    a, b = (torch.randint(-3, 4, s, generator=torch.Generator().manual_seed(1)).to(torch.float16) for s in ((128, 160), (160, 32)))
    c = torch.full((128, 32), float("nan"))
    kernel = define(KERNEL.format(text.strip()))[(2,)](TensorDescriptor.from_tensor(a, [64, 32]), TensorDescriptor.from_tensor(b, [32, 32]),
                                                       TensorDescriptor.from_tensor(c, [64, 32]), 160, BM=64, BN=32, BK=32)
    return kernel, a.double(), b.double(), c


@pytest.fixture(autouse=True)
def hopper(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "nvidia:sm_90a:sim")


@pytest.mark.parametrize("form", [pytest.param(f, marks=pytest.mark.nightly if f in SELDOM else ()) for f in FORMS])
def test_values(form):
    text, pairs = FORMS[form]
    kernel, a, b, c = launch(text)
    assert torch.equal(c.double(), sum(a[:, x:x + 32] @ b[y:y + 32] for x, y in pairs))
    assert "cp.async.bulk.tensor.2d.shared" in kernel.asm["ptx"], kernel.explain()


def test_a_value_left_behind_is_told_of(monkeypatch, tmp_path):
    """MLIR crashes the process where an op that is erased is still used."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(Consumers, "leave", lambda self, end: None)
    with pytest.raises(InternalCompilerError, match="uses a value that only the kernel before it was split has"):
        launch(FORMS["loaded ahead"][0])
