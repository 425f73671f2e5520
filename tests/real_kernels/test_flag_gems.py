"""flag-gems' operators against torch's on a CPU (flag_gems_values.py, in a process of its own, since it changes torch): no wrong value, nothing refused."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

OPS = {
    "pointwise": "abs|add|gelu|nn.functional.gelu|exp|erf|pow|where|clamp|div.floor_rounding|remainder|bitwise_.*|isnan",
    "reductions": "sum|mean|max.reduction.*|min.reduction.*|argmax|amax|prod|all|any|cumsum|cummax|var_mean|std|nn.functional.normalize",
    "normalisations": "softmax|log_softmax|nn.functional.(layer_norm|rms_norm|batch_norm|group_norm|cross_entropy|mse_loss)",
    "indices": "gather|scatter|scatter_add|index_select|index_put|nn.functional.embedding|sort|topk|flip|roll|cat|stack|masked_fill|nonzero|unique",
    "products": "mm|bmm|addmm|mv|dot|nn.functional.(conv1d|conv2d|linear)|kron|outer",
}


@pytest.mark.skipif(importlib.util.find_spec("flag_gems") is None, reason="pip install --no-deps flag-gems sqlalchemy pyyaml expecttest packaging")
@pytest.mark.parametrize("group", OPS)
def test_operators(tmp_path, group):
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("flag_gems_values.py")), "--out", str(tmp_path / "out.jsonl"), "--ops", OPS[group],
                           "--samples", "2"], capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert int(done.stdout.splitlines()[-1].split()[0]) > 20, done.stdout  # as many calls came out right
