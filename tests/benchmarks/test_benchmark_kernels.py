"""The benchmark kernels at tiny sizes against float64, on the cpu target and in the interpreter: what gpu.py measures is right.

The cases, references and the check are gpu.py's own; only the sizes and the device differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cases
import pytest
from cases import (
    Add,
    Attention,
    AttentionBackward,
    CrossEntropy,
    DescriptorMatmul,
    ExampleAttention,
    ExampleMatmul,
    LayerNorm,
    Matmul,
    RmsNorm,
    Softmax,
)

torch = pytest.importorskip("torch")

TILE = [{"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2, "WRAP": wrap} for wrap in (True, False)]
FLASH = [{"FORM": form, "BLOCK_M": m, "BLOCK_N": n, "num_warps": 4, "num_stages": 2} for form, m, n in (("p", 64, 32), ("d", 32, 32), ("w", 64, 32))]
BACKWARD = [{"KEYS": (64, 32, 4, 2), "QUERIES": (64, 32, 4, 2)}]
PERSISTENT = [{"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "num_warps": 4, "num_stages": 2, "FLATTEN": f, "WARP_SPECIALIZE": w, "HALVES": h}
              for f, w, h in ((True, False, False), (False, True, True))]
bf16, fp8 = "bfloat16", "float8_e4m3fn"
TINY = {case.name: case for case in (
    Matmul("matmul", 70, 200, 100, TILE, epilogue=True),
    Matmul("matmul_bf16", 64, 128, 64, TILE, bf16, bound=8e-3),
    Matmul("matmul_fp8", 64, 96, 128, TILE, fp8, out=bf16, transposed=True, bound=1e-2),
    DescriptorMatmul("matmul_desc", 96, 160, 64, PERSISTENT),
    DescriptorMatmul("matmul_fp8_desc", 64, 128, 64, PERSISTENT, dtype=fp8, out=bf16, bound=1e-2),
    Attention("attention", 2, 128, 64, False, FLASH),
    Attention("attention_causal", 2, 128, 32, True, FLASH),
    AttentionBackward("backward", 2, 128, 32, False, BACKWARD),
    AttentionBackward("backward_causal", 2, 128, 32, True, BACKWARD),
    Add("add", 3000),
    Softmax("softmax", "softmax", 6, 200, bf16, 8e-3, [{"num_warps": 4}]),
    LayerNorm("layer_norm", "layer norm", 6, 300, "float16", 1e-3, [{"BLOCK": 128, "num_warps": 4}]),
    RmsNorm("rms_norm", "rms norm", 6, 300, bf16, 8e-3, [{"num_warps": 4}]),
    CrossEntropy("cross_entropy", 6, 1000, [{"BLOCK": 256, "num_warps": 4}]),
    ExampleMatmul("example_matmul", 70, 96, 64, TILE[:1], epilogue=True),
    ExampleAttention("example_attention", 2, 96, 32, True, FLASH[:1]),
)}


def worst(name: str) -> list[str]:
    """What is wrong of each candidate of a tiny case, run where TILEWRIGHT_TARGET and TILEWRIGHT_INTERPRET say."""
    from checking import array, check, prepared
    from frameworks import Framework

    case, framework = TINY[name], Framework("tilewright")
    torch.manual_seed(3)
    b = case.buffers(lambda shape, dtype, fill: array(shape, dtype, fill, "cpu"))
    case.prepare(b)
    reference = case.reference(b)
    found = []
    for candidate in case.candidates:
        error, wrong = check(case, b, prepared(case, b, candidate, framework)[0], reference, lambda: None)
        assert wrong or error > 0 or case.unit == "GB/s"
        found.append(wrong)
    return found


@pytest.mark.parametrize("name", TINY)
def test_cpu(name, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_TARGET", "cpu")
    assert worst(name) == [""] * len(TINY[name].candidates)


def test_interpreter():
    """jit reads TILEWRIGHT_INTERPRET when a kernel is defined: another process."""
    names = ["matmul", "matmul_fp8", "attention_causal", "backward_causal", "rms_norm", "cross_entropy"]
    code = ("import sys; sys.path[:0] = sys.argv[1:3]; import test_benchmark_kernels as t\n"
            "for name in sys.argv[3:]: print(name, t.worst(name))")
    here = Path(__file__).parent
    done = subprocess.run([sys.executable, "-c", code, str(here), str(here.parents[1] / "benchmarks"), *names], capture_output=True, text=True,
                          env={**os.environ, "TILEWRIGHT_INTERPRET": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name} {[''] * len(TINY[name].candidates)}" for name in names]


def test_check_finds_what_is_wrong():
    """A wrong element and an element that nobody wrote are both found, at a size where the whole's error would hide neither."""
    from checking import check

    case = Add("add", 4096)
    reference = {"z": torch.randn(4096, dtype=torch.float64)}
    b = {"z": torch.empty(4096)}

    def run(index: int, value: float) -> None:
        b["z"].copy_(reference["z"])
        b["z"][index] = value

    assert check(case, b, lambda: run(7, float(reference["z"][7])), reference, lambda: None)[1] == ""
    assert check(case, b, lambda: run(7, float("nan")), reference, lambda: None)[1].startswith("WRONG z")
    assert check(case, b, lambda: run(7, float(reference["z"][7]) + 1e-3), reference, lambda: None)[1].startswith("WRONG z")


def test_candidates_are_few_and_fit():
    """At most 8 a kernel, each once; attention's blocks divide N, as its kernels ask."""
    for case in cases.all_cases().values():
        assert 1 <= len(case.candidates) <= 8, case.name
        assert len({repr(c) for c in case.candidates}) == len(case.candidates), case.name
        for c in case.candidates:
            if isinstance(case, Attention):
                assert case.n % c["BLOCK_M"] == case.n % c["BLOCK_N"] == 0
                assert not case.causal or c["BLOCK_M"] % c["BLOCK_N"] == 0
            if isinstance(case, AttentionBackward):
                assert all(case.n % outer == outer % inner == 0 for outer, inner, *_ in c.values())
