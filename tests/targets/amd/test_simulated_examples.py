"""The five examples, unchanged, and attention's gradients in the instruction-level simulator, on each kind of matrix instruction, against float64.

The code that runs is what would be shipped. Sizes are awkward on purpose, outputs hold NaN before each launch, and the simulator checks bounds, waits, races,
unwritten LDS and barriers while it computes. The quick runs take one case of each example an arch, the whole runs all types and more sizes.
"""

import importlib
import sys
from pathlib import Path

import common
import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

ARCHS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
# parts of the names of the cases: (in quick runs, for float16; in whole runs, for each type)
SIZES = {
    "vector_add": (("n=1025",), ("n=1", "n=97")),
    "softmax": (("37x781",), ("1x1", "3x97", "16x1025")),
    "layer_norm": (("5x1025",), ("1x2", "3x97", "2x8209")),
    "matmul": (("65x127x97",), ("1x1x1", "65x127x97", "129x33x200")),
    "attention": (("1x97x32",), ("1x1x16", "1x97x32", "2x129x64")),
}


@pytest.fixture(params=ARCHS)
def arch(request, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{request.param}:sim")
    return request.param


def run(example, dtype, sizes):
    """Every case of the example of that type and one of these sizes; a list of what is wrong."""
    chosen = [case for case in importlib.import_module(example).cases("cpu", False) if f" {dtype} " in case.name and
              any(size in case.name.replace(",", "").split() for size in sizes)]
    assert len(chosen) >= len(sizes)
    wrong = []
    for case in chosen:
        error = common.error(case.run(), case.reference())
        if not error <= case.tolerance:
            wrong.append(f"{case.name}: error {error:.2e}, allowed {case.tolerance:.2e}")
    return wrong


@pytest.mark.parametrize("example", SIZES)
def test_example(arch, example):
    assert run(example, "float16", SIZES[example][0]) == []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("example", SIZES)
def test_example_in_every_type(arch, example, dtype):
    assert run(example, dtype, SIZES[example][1]) == []


@pytest.mark.slow
@pytest.mark.parametrize("other", ["gfx90a", "gfx1030", "gfx1101", "gfx1102", "gfx1200"])
@pytest.mark.parametrize("example", SIZES)
def test_example_on_other_archs(monkeypatch, other, example):
    monkeypatch.setenv("TILEWRIGHT_TARGET", f"amd:{other}:sim")
    assert run(example, "float16", SIZES[example][0]) == []


BACKWARD = [{"KEYS": (64, 32, 4, 2), "QUERIES": (64, 32, 4, 2)}]


@pytest.mark.parametrize("n, dim, causal, dtype", [
    pytest.param(192, 32, True, "float16", marks=pytest.mark.slow), pytest.param(128, 64, False, "bfloat16", marks=pytest.mark.slow), (64, 32, True, "bfloat16")])
def test_attention_backward(arch, n, dim, causal, dtype):
    """Forward, then dQ, dK and dV; the check is the benchmark's. These kernels have no masks: n is a multiple of the blocks."""
    import torch
    from cases import AttentionBackward
    from checking import array, check, prepared
    from frameworks import Framework

    case, framework = AttentionBackward("backward", 2, n, dim, causal, BACKWARD, dtype=dtype), Framework("tilewright")
    torch.manual_seed(3)
    b = case.buffers(lambda shape, dtype, fill: array(shape, dtype, fill, "cpu"))
    case.prepare(b)
    error, wrong = check(case, b, prepared(case, b, BACKWARD[0], framework)[0], case.reference(b), lambda: None)
    assert wrong == "" and error > 0
