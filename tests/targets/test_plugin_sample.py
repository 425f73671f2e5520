"""A third-party target, installed from its own project by pip and found through its entry point: no private hooks."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SAMPLE = Path(__file__).parent.parent / "plugin_sample"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that holds the installed sample."""
    site = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "plugin_sample"
    subprocess.run(["cp", "-r", str(SAMPLE), str(source)], check=True)
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target", str(site), str(source)],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return site


def run(installed: Path, script: str, tmp_path: Path, **env: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env={
        **os.environ, "PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")]), "TILEWRIGHT_TARGET": "toy:toy1",
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"), **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


HEADER = """
    import numpy as np
    import tilewright as triton
    import tilewright.language as tl
"""


def test_the_sample_is_small_and_uses_public_names_only():
    files = list((SAMPLE / "tilewright_toy").glob("*.py"))
    assert sum(len(f.read_text().splitlines()) for f in files) < 300
    for f in files:
        for module in re.findall(r"^\s*(?:from|import) (tilewright[\w.]*)", f.read_text(), re.M):
            assert module in ("tilewright.targets.api", "tilewright.dialects._mlir", "tilewright_toy.dialect"), (f, module)
        assert "interpreter" not in f.read_text()


def test_vector_add(installed, tmp_path):
    run(installed, HEADER + """
    @triton.jit
    def add(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n)
        tl.store(z_ptr + i, x + tl.load(y_ptr + i, mask=i < n), mask=i < n)

    for n in (1, 31, 33, 200):
        x, y = np.random.default_rng().standard_normal((2, n)).astype(np.float32)
        z = np.full(n, np.nan, np.float32)
        add[(triton.cdiv(n, 32),)](x, y, z, n, BLOCK=32)
        np.testing.assert_array_equal(z, x + y)
    """, tmp_path)


MATMUL = HEADER + """
    @triton.jit
    def matmul(x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
        m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, K, BK):
            x = tl.load(x_ptr + m[:, None] * K + (start + k)[None, :], mask=(m[:, None] < M) & (start + k[None, :] < K), other=0.0)
            w = tl.load(w_ptr + (start + k)[:, None] * N + n[None, :], mask=(start + k[:, None] < K) & (n[None, :] < N), other=0.0)
            acc = tl.dot(x, w, acc, input_precision="ieee")
        acc = tl.maximum(acc, 0.0)
        tl.store(y_ptr + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))
"""


def test_matmul_uses_the_plugins_row_op_and_pass(installed, tmp_path):
    out = run(installed, MATMUL + """
    for M, N, K in ((8, 8, 8), (17, 5, 11), (1, 1, 1)):
        rng = np.random.default_rng()
        x, w = rng.standard_normal((M, K)).astype(np.float32), rng.standard_normal((K, N)).astype(np.float32)
        y = np.full((M, N), np.nan, np.float32)
        kernel = matmul[(triton.cdiv(M, 8), triton.cdiv(N, 8))](x, w, y, M, N, K, BM=8, BN=8, BK=8)
        ref = np.maximum(x.astype(np.float64) @ w, 0)
        assert np.linalg.norm(y - ref) <= 1e-6 * max(np.linalg.norm(ref), 1e-30), (M, N, K)
    print(kernel.asm["ttgir"])
    print(kernel.asm["llir"])
    print("stages", sorted(kernel.asm))
    """, tmp_path)
    assert "toy.relu" in out and "maxnumf" not in out.split("toy.relu")[0].split("tt.dot")[-1]
    assert 'toy.fma_2x2x2_f32' in out and "llvm.fma" in out
    assert "toyasm" in out and "toyobj" in out


def test_what_the_plugin_lacks_is_refused(installed, tmp_path):
    """A hook that it does not define, a number of warps, and what LLVM would make a call of a library that is not there: that was address 0."""
    run(installed, HEADER + """
    import torch
    from tilewright.dialects.errors import UnsupportedOnTargetError

    @triton.jit
    def add_up(p, N: tl.constexpr):
        tl.atomic_add(p + tl.arange(0, N), 1)

    @triton.jit
    def copy(p, N: tl.constexpr):
        tl.store(p + tl.arange(0, N), tl.load(p + tl.arange(0, N)) + 1)

    @triton.jit
    def assembly(p, N: tl.constexpr):
        x = tl.load(p + tl.arange(0, N))
        tl.store(p + tl.arange(0, N), tl.inline_asm_elementwise("mov $0, $1;", "=r,r", [x], tl.int32, True, 1))

    def refused(call, *texts):
        try:
            call()
        except UnsupportedOnTargetError as e:
            assert all(text in str(e) for text in texts), e
        else:
            raise AssertionError(texts)

    ints, halves, words = np.arange(8, dtype=np.int32), np.arange(8, dtype=np.float16), torch.zeros(8, dtype=torch.bfloat16)
    refused(lambda: add_up[(1,)](ints, N=8), "script.py:11", "tl.atomic_add(p", "Hooks", "atomic_rmw")
    refused(lambda: assembly[(1,)](ints, N=8), "script.py:20", "check_inline_asm")
    refused(lambda: copy[(1,)](ints, N=8, num_warps=2), "num_warps=2")
    copy[(1,)](ints, N=8)
    np.testing.assert_array_equal(ints, np.arange(1, 9))
    for array in (halves, words):
        try:  # as the processor has instructions
            copy[(1,)](array, N=8)
        except UnsupportedOnTargetError as e:
            assert "the toy chip has no __" in str(e)
        else:
            assert array[1] == (2 if array is halves else 1)
    """, tmp_path)


def test_it_takes_the_options_of_every_target(installed, tmp_path):
    """Which it never names; a failed assertion, for which it has no hook, is refused and does not end the process. So are programs too long for it."""
    run(installed, HEADER + """
    from tilewright.dialects.errors import ArgumentError, OutOfResources, UnsupportedOnTargetError

    @triton.jit
    def scale(p, f, N: tl.constexpr):
        tl.store(p + tl.arange(0, N), tl.load(p + tl.arange(0, N)) * f)

    @triton.jit
    def asserts(p):
        tl.device_assert(tl.load(p) > 0, "positive")

    def raises(kind, text, call):
        try:
            call()
        except kind as e:
            assert text in str(e), e
        else:
            raise AssertionError(text)

    x = np.ones(8, np.float32)
    options = dict(debug=True, sanitize_overflow=False, default_dot_input_precision="ieee", enable_fp_fusion=False, num_ctas=1, num_stages=3)
    scale[(1,)](x, 2.0, N=8, **options)
    assert (x == 2).all()
    raises(ArgumentError, "default_dot_input_precision is one of", lambda: scale[(1,)](x, 2.0, N=8, default_dot_input_precision="x"))
    raises(ArgumentError, "num_ctas is 2", lambda: scale[(1,)](x, 2.0, N=8, num_ctas=2))
    raises(ArgumentError, "argument 'f' of scale: 1e+39 is beyond the largest fp32", lambda: scale[(1,)](x, 1e39, N=8))
    asserts[(1,)](x)
    raises(UnsupportedOnTargetError, "do not define assert_failed", lambda: asserts[(1,)](x, debug=True))
    raises(OutOfResources, "lines of LLVM IR", lambda: scale[(1,)](np.ones(16384, np.float32), 2.0, N=16384))
    """, tmp_path)


def test_a_part_of_the_conformance_suite_runs_on_it(installed, tmp_path):
    """As docs/conformance.md has it for the whole suite: passes, refusals with reasons, no failures, and a report."""
    files = ("test_host_errors", "test_prints_and_asserts", "test_inline_assembly")
    done = subprocess.run([
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--pyargs", *(f"tilewright.conformance.{f}" for f in files),
        "--tilewright-target", "toy", "--tilewright-sample", "1:5", "--tilewright-report", "report.json"],
        capture_output=True, text=True, cwd=tmp_path, env={
            **{k: v for k, v in os.environ.items() if k not in ("PYTEST_ADDOPTS", "TILEWRIGHT_TARGET", "TILEWRIGHT_TEST_DEVICE", "TILEWRIGHT_INTERPRET")},
            "PYTHONPATH": str(installed), "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    tests = list(report["tests"].values())
    assert report["target"] == "toy" and {t["outcome"] for t in tests} == {"passed", "refused"}
    assert all(t["reason"] for t in tests if t["outcome"] == "refused")
    assert {n.partition(".py::")[0] for n in report["tests"]} == set(files)


def test_the_plugin_is_listed_and_a_broken_one_harms_nothing(installed, tmp_path):
    broken = installed / "broken-1.dist-info"
    broken.mkdir(exist_ok=True)
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (broken / "entry_points.txt").write_text("[tilewright.targets]\nbroken = no_such_module:TARGET\n")
    env = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run([sys.executable, "-m", "tilewright.cli", "targets"], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^toy.*toy1", done.stdout, re.M) and "no_such_module" in done.stdout
