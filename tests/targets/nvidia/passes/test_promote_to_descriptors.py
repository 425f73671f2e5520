"""promote_to_descriptors: which accesses become descriptors, why others do not, and that what is computed stays, by numpy."""

import matmul
import numpy as np
import pytest
from descriptor_oracle import Compiled

from tilewright.targets.nvidia.options import NvidiaOptions
from tilewright.targets.nvidia.pipeline import pipeline


def random(*shape, seed=0):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float16)


def strides(x):
    return [s // x.itemsize for s in x.strides]


def padded(x, multiple=8):
    """The same values with rows whose stride is a multiple of 16 bytes, and as many columns."""
    rows, columns = x.shape
    wide = np.zeros((rows, -(-columns // multiple) * multiple), x.dtype)
    wide[:, :columns] = x
    return wide


# ------------------------------------------------------------------------------------------------------ matmuls
def example(m, n, k, block=(16, 16, 16), w_columns=False):
    bm, bn, bk = block
    x, b, y = padded(random(m, k)), random(n, seed=2), padded(np.zeros((m, n), np.float16))
    w = padded(random(n, k, seed=1)) if w_columns else padded(random(k, n, seed=1))
    sw = strides(w)[::-1] if w_columns else strides(w)
    args = dict(x_ptr=x, w_ptr=w, b_ptr=b, y_ptr=y, M=m, N=n, K=k, **dict(zip(
        ("stride_xm", "stride_xk", "stride_wk", "stride_wn", "stride_ym", "stride_yn"), (*strides(x), *sw, *strides(y)))))
    grid = (-(-m // bm) * -(-n // bn),)
    return Compiled(matmul.matmul_kernel, args, dict(BLOCK_M=bm, BLOCK_N=bn, BLOCK_K=bk, GROUP_M=2, RELU=True, PRECISION="ieee")), grid


@pytest.mark.parametrize("w_columns", [False, True])
@pytest.mark.parametrize("m, n, k", [(48, 64, 48), (32, 32, 40), (16, 80, 7), (64, 16, 100)])
def test_example_matmul(m, n, k, w_columns):
    c, grid = example(m, n, k, w_columns=w_columns)
    assert c.chosen() == ["tma", "tma", "it feeds no dot"] and c.chosen("tl.store") == ["tma"]
    assert c.boxes() == [[16, 16]] * 3
    assert ("tt.trans" in c.text) == w_columns
    c.check(grid)


def test_example_matmul_leaves_no_pointers_in_the_loop():
    c, _ = example(48, 64, 48)
    loop = c.text[c.text.index("scf.for"):c.text.index("scf.yield")]
    assert "tt.ptr" not in loop and loop.count("arith.") <= 2


@pytest.mark.parametrize("m, n, k", [(40, 24, 32), (3, 5, 1), (17, 65, 50)])
@pytest.mark.parametrize("w_columns", [False, True])
def test_example_matmul_of_partial_blocks(m, n, k, w_columns):
    """Rows that wrap around are masked off by the store, so they may be zeros: no guard on M and N is needed."""
    c, grid = example(m, n, k, w_columns=w_columns)
    assert c.chosen()[:2] == ["tma", "tma"] and not any(g["kind"] == "multiple" for g in c.guards)
    c.check(grid)


# ----------------------------------------------------------------------------------------------------- pipeline
def test_pipeline_promotes_on_sm_90a_only_and_not_without_tma():
    names = {"promote_to_descriptors", "host_descriptors"}

    def passes(arch, **options):
        return [p.name for _, p in pipeline(arch, NvidiaOptions(**options)).passes()]

    found = passes("sm_90a")
    order = ["dce_cse", "host_descriptors", "rewrite_tensor_descriptors", "canonicalize_tt", "promote_to_descriptors", "host_descriptors", "coalesce"]
    remaining = iter(found)
    assert all(name in remaining for name in order), found
    assert not names & set(passes("sm_90a", tma=False)) and not names & set(passes("sm_80")) and not names & set(passes("sm_100a"))
