"""torch.compile with Tilewright in Triton's place, on the cpu target: what torch generates is compiled and launched in this process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import tilewright
    tilewright.install_as_triton()
    import torch
    import torch._inductor.config as config
    from tilewright import knobs

    config.compile_threads = 1  # child processes would import the real triton
    config.cpu_backend = "triton"
    config.fx_graph_cache = False
    names = []
    knobs.compilation.listener = lambda *, src, **_: names.append(src.name)

    @torch.compile
    def softmax(x):
        return torch.softmax(x * 2 + 1, dim=-1)

    @torch.compile
    def pointwise(x, y):
        return torch.relu(x) * y.exp() + 3

    x, y = torch.randn(64, 128), torch.randn(64, 128)
    torch.testing.assert_close(softmax(x), torch.softmax(x * 2 + 1, dim=-1))
    torch.testing.assert_close(pointwise(x, y), torch.relu(x) * y.exp() + 3)
    assert any("softmax" in n for n in names) and any(n.startswith("triton_poi") for n in names), names
    print("compiled", sorted(set(names)))
"""


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is missing")
def test_fused_kernels_of_torch_compile(tmp_path):
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(SCRIPT)], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "TILEWRIGHT_TARGET": "cpu", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)})
    assert done.returncode == 0 and "compiled" in done.stdout, done.stderr[-3000:]
